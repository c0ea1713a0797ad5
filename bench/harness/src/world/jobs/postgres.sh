# A benchmark's transactions on lasting and on new connections, and aggregates.
set -eu
export PGHOST="$PWD" PGDATABASE=postgres PGUSER=spandrel
pgbench -q -i -s 5 2>/dev/null
pgbench -n -c 8 -j 2 -t 500 >/dev/null 2>&1
pgbench -n -S -C -c 4 -t 150 >/dev/null 2>&1
ask() { psql -qAtc "$1"; }
for _ in 1 2 3; do
    ask "SELECT md5(string_agg(w, ',')) FROM (SELECT md5(i::text) AS w FROM generate_series(1, 200000) i ORDER BY 1) t"
    ask "SELECT length(jsonb_agg(jsonb_build_object('n', i, 'w', md5(i::text)))::text) FROM generate_series(1, 200000) i"
    ask "SELECT count(*), sum(c) FROM (SELECT aid % 7001 AS a, count(*) AS c FROM pgbench_accounts GROUP BY 1) t"
done
ask "SELECT count(*) FROM pgbench_accounts a JOIN pgbench_branches b USING (bid)"
