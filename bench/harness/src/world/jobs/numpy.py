# Arrays of many sizes in four worker processes, and a rest.
import multiprocessing
import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402


def work(seed):
    random = np.random.default_rng(seed)
    total = 0.0
    for _ in range(60):
        a = random.random((300, 400))
        total += float((a @ a.T).sum())
        parts = [random.random(random.integers(10, 40_000)) for _ in range(40)]
        total += float(np.sort(np.concatenate(parts))[::100].sum())
        total += float(np.abs(np.fft.rfft(parts[0], 1 << 14)).sum())
    return f"{total:.8e}"


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    start = np.arange(2_000_000, dtype=np.float64)
    with context.Pool(4) as pool:
        print(*pool.map(work, range(12)), start.sum())
        print("ready", flush=True)
        sys.stdin.read()
