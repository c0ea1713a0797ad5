# Frames that are scanned, joined, grouped and sorted by the engine's threads, and a rest.
import sys

import polars as pl

rows = 1_500_000
frame = pl.select(n=pl.int_range(rows)).with_columns(
    key=pl.col("n").hash(7) % 20_000,
    word=pl.concat_str(pl.lit("w"), (pl.col("n").hash(8) % 90_000).cast(pl.String)),
    x=(pl.col("n").hash(9) % 1_000).cast(pl.Float64),
)
for round in range(4):
    groups = frame.group_by("word").agg(pl.col("x").sum().alias("sum"), pl.len().alias("count"))
    joined = frame.lazy().join(groups.lazy(), on="word").filter(pl.col("count") > round).sort("sum", "n").collect()
    lists = frame.group_by("key").agg(pl.col("word")).with_columns(pl.col("word").list.len().alias("length"))
    print(round, groups.height, joined.height, joined["n"][1000], lists["length"].max())
text = frame.head(300_000).write_csv()
print(len(text), frame["word"].str.to_uppercase().str.len_bytes().sum())
del groups, joined, lists, text
print("ready", flush=True)
sys.stdin.read()
