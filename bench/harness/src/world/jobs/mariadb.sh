# Tables that are filled, joined and changed over lasting and new connections.
set -eu
ask() { mariadb --socket="$PWD/mariadb.sock" -u root -N "$@"; }
ask -e "CREATE DATABASE world"
ask world <<'SQL'
CREATE TABLE facts (n INT PRIMARY KEY, k INT, w VARCHAR(40), KEY (k));
INSERT INTO facts SELECT seq, seq * 7919 % 5000, md5(seq) FROM seq_1_to_150000;
SELECT count(*), sum(c) FROM (SELECT k, count(*) AS c FROM facts GROUP BY k) t;
SELECT md5(group_concat(w ORDER BY w SEPARATOR '')) FROM facts WHERE k < 5;
SELECT count(DISTINCT substr(w, 1, 4)), max(length(replace(w, 'a', 'abc'))) FROM facts;
CREATE TABLE others AS SELECT k, json_arrayagg(w) AS list FROM facts GROUP BY k;
SELECT sum(json_length(list)), sum(length(list)) FROM others;
SELECT count(*), sum(a.n % 7) FROM facts a JOIN facts b ON a.k = b.k WHERE b.n % 50 = 0;
SQL
mariadb-slap --socket="$PWD/mariadb.sock" -u root --concurrency=8 --number-of-queries=4000 --create-schema=world --delimiter=";" \
    --query="SELECT count(*), max(w) FROM facts WHERE k = 77; UPDATE facts SET w = md5(w) WHERE n = 1000" >/dev/null
number=0
while [ $number -lt 60 ]; do
    ask world -e "SELECT length(group_concat(w)) FROM facts WHERE k = $number"
    number=$((number + 1))
done | sort | uniq -c
