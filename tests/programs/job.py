"""Buffers that grow, containers, threads, processes; prints digests of what came out."""
import array
import concurrent.futures
import hashlib
import io
import json
import os
import pickle
import sys
import threading
import zlib


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


grown = bytearray()
for i in range(3000):
    grown += bytes([i % 251]) * (i % 5000)
print(len(grown), digest(grown))
del grown[1000:-1000]
grown.extend(b"x" * 5_000_000)
print(len(grown), digest(grown))

numbers = array.array("q")
for i in range(1_500_000):
    numbers.append(i * i)
print(len(numbers), digest(numbers.tobytes()))

stream = io.BytesIO()
for i in range(20000):
    stream.write(str(i).encode() * 30)
print(stream.tell(), digest(stream.getvalue()))

text = []
for i in range(200_000):
    text.append(f"{i:x}")
joined = ",".join(text)
print(len(joined), digest(joined.encode()))

nested = {str(i): [i, str(i) * (i % 20), {"x": i / 3}] for i in range(60_000)}
encoded = json.dumps(nested)
print(digest(encoded.encode()), json.loads(encoded) == nested)
packed = pickle.dumps(nested)
print(len(packed) > 0, pickle.loads(packed) == nested)
squeezed = zlib.compress(encoded.encode(), 6)
print(zlib.decompress(squeezed) == encoded.encode())

results = {}


def work(n):
    local = bytearray()
    for i in range(400):
        local += hashlib.sha256(f"{n}/{i}".encode()).digest() * (i % 100)
    results[n] = digest(local)


threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(sorted(results.items()))

with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda n: len(hex(3**n)), range(0, 20000, 50))))

reader, writer = os.pipe()
if os.fork() == 0:
    grown *= 3
    os.write(writer, digest(grown).encode())
    os._exit(0)
os.close(writer)
print(os.read(reader, 100).decode())
print(os.waitpid(-1, 0)[1])

try:
    bytearray(1 << 62)
except MemoryError:
    print("refused")
try:
    "x" * (1 << 61)
except MemoryError:
    print("refused")
sys.exit(5)
