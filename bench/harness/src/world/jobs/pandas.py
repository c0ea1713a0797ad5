# Frames that are made, joined, grouped and written, and a rest.
import io
import sys

import numpy as np
import pandas as pd

random = np.random.default_rng(7)
rows = 400_000
frame = pd.DataFrame(
    {
        "key": random.integers(0, 5_000, rows),
        "word": [f"w{n}" for n in random.integers(0, 50_000, rows)],
        "x": random.random(rows),
    }
)
for round in range(6):
    groups = frame.groupby("word")["x"].agg(["mean", "count"])
    joined = frame.merge(groups.reset_index(), on="word")
    wide = joined.pivot_table(index=joined["key"] % 50, columns=joined["count"] % 7, values="x")
    print(round, len(groups), f"{joined['mean'].sum():.6f}", wide.shape)
text = frame.head(100_000).to_csv(index=False)
again = pd.read_csv(io.StringIO(text))
print(len(text), f"{again.x.sum():.6f}", frame["word"].str.upper().str.cat(sep="").count("W1"))
del groups, joined, wide, text, again
print("ready", flush=True)
sys.stdin.read()
