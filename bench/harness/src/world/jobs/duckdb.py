# Tables, joins, groups and lists in an analytical database in memory, and a rest.
import sys

import duckdb

base = duckdb.connect(config={"threads": 2})
base.execute("CREATE TABLE facts AS SELECT i AS n, hash(i) % 50000 AS key, 'w' || (hash(i + 1) % 90000) AS word FROM range(2000000) t(i)")
for question in (
    "SELECT count(*), sum(c) FROM (SELECT word, count(*) AS c FROM facts GROUP BY word)",
    "SELECT count(*) FROM facts a JOIN facts b ON a.key = b.n WHERE b.n % 3 = 0",
    "SELECT max(len(l)), count(*) FROM (SELECT key, list(word ORDER BY n) AS l FROM facts GROUP BY key)",
    "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY key ORDER BY word, n) AS r FROM facts)",
    "SELECT count(DISTINCT upper(word)), sum(length(replace(word, '1', 'one'))) FROM facts",
):
    for _ in range(2):
        print(base.execute(question).fetchall())
print(len(base.execute("SELECT * FROM facts WHERE n < 200000").fetchall()))
print("ready", flush=True)
sys.stdin.read()
