#!/bin/sh
# Records the traces of this directory anew: data/traces/record.sh [DIRECTORY]
# Needs spandrel and its benchmark worker (target/release after `make build`, or in PATH), redis-server
# and redis-benchmark, python3 and g++. Of the processes that g++ starts only the compiler's is kept.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
root=$(cd "$here/../.." && pwd)
PATH=$root/target/release:$PATH
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A server that is filled, read and half emptied. Spans alone for the larger load, all for a small one.
redis() {
    name=$1 of=$2 requests=$3
    spandrel trace record --of "$of" -o "$name.trace" -- \
        redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no >/dev/null &
    server=$!
    for _ in $(seq 100); do
        redis-cli -s "$work/redis.sock" ping >/dev/null 2>&1 && break
        sleep 0.1
    done
    redis-benchmark -s "$work/redis.sock" -q -n "$requests" -r "$requests" -d 400 -P 8 -t set,get,lpush >/dev/null
    redis-benchmark -s "$work/redis.sock" -q -n "$((requests / 4))" -r "$((requests / 4))" -d 4000 -t set >/dev/null
    redis-benchmark -s "$work/redis.sock" -q -n "$((requests / 50))" -t lrange_100 >/dev/null
    redis-cli -s "$work/redis.sock" --scan --pattern 'key:*[02468]' | xargs -n 1000 redis-cli -s "$work/redis.sock" del >/dev/null
    redis-benchmark -s "$work/redis.sock" -q -n "$((requests / 4))" -r "$requests" -d 700 -P 8 -t set >/dev/null
    redis-cli -s "$work/redis.sock" shutdown nosave || true
    wait "$server"
    mv "$name.trace" "$out/"
}

python() {
    cat > job.py <<'PY'
import json, random
random.seed(1)
rows = [{"id": n, "name": "name %d" % n, "values": [random.random() for _ in range(n % 20)]} for n in range(60000)]
text = json.dumps(rows)
again = json.loads(text)
index = {}
for row in again:
    index.setdefault(len(row["values"]), []).append(row)
del rows, again
words = text.split()
counts = {}
for word in words:
    counts[word] = counts.get(word, 0) + 1
print(len(text), len(index), len(counts))
PY
    spandrel trace record --of spans --mode native -o python.trace -- \
        env PYTHONMALLOC=malloc "$(python3 -c 'import sys; print(sys.executable)')" job.py
    mv python.trace "$out/"
}

compiler() {
    cat > unit.cc <<'CC'
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
int main() {
    std::map<std::string, std::vector<std::regex>> all;
    std::unordered_map<int, std::string> names;
    for (int i = 0; i < 10; i++) {
        all[std::to_string(i)].emplace_back("a+b*" + std::to_string(i));
        names[i] = std::to_string(i);
    }
    std::vector<int> order(100);
    std::sort(order.begin(), order.end(), [](int a, int b) { return a > b; });
    std::cout << all.size() + names.size() << '\n';
}
CC
    spandrel trace record --of spans --mode native -o 'gcc.%p.trace' -- g++ -O2 -c unit.cc -o unit.o
    for file in gcc.*.trace; do
        if spandrel trace info --json "$file" | grep -q '"program":"cc1plus"'; then
            mv "$file" "$out/gcc.trace"
        fi
    done
}

# A server in Rust under load: the benchmarks' own.
rust() {
    name=$1 of=$2 requests=$3
    spandrel trace record --of "$of" --mode native -o "$name.trace" -- \
        spandrel-bench-worker server --requests "$requests" --documents "$((requests / 2))" >/dev/null
    mv "$name.trace" "$out/"
}

redis redis-spans spans 100000
redis redis all 2500
python
compiler
rust rust-server-spans spans 60000
rust rust-server all 1500
spandrel trace info "$out"/*.trace
