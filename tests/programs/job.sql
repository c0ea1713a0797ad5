PRAGMA journal_mode = WAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value REAL, data BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO t SELECT i, 'name' || (i * 7919 % 1009), i * 0.5, zeroblob(i % 300) FROM n;
CREATE INDEX by_name ON t (name, value);
SELECT count(*), sum(value), sum(length(data)) FROM t;
SELECT name, count(*), max(value) FROM t GROUP BY name ORDER BY 3 DESC LIMIT 5;
SELECT a.name, count(*) FROM t a JOIN t b ON a.name = b.name AND b.id < 2000 WHERE a.id < 500 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3;
UPDATE t SET data = zeroblob(20000) WHERE id % 500 = 0;
SELECT sum(length(data)) FROM t;
DELETE FROM t WHERE id % 3 = 0;
SELECT group_concat(name, '') IS NOT NULL, length(group_concat(name, ',')) FROM t;
SELECT json_array_length(json_group_array(json_object('id', id, 'name', name))) FROM t;
VACUUM;
PRAGMA integrity_check;
SELECT length(replace(hex(zeroblob(2000000)), '00', 'ab'));
SELECT * FROM missing_table;
