#!/bin/sh
# Records the traces of this directory anew: data/traces/record.sh [DIRECTORY]
# Needs spandrel and its benchmark worker (target/release after `make build`, or in PATH), redis-server,
# python3 and g++; takes four minutes. Of the processes that g++ starts only the compiler's is kept.
# NAME-spans has spans alone and a large load, NAME has requests too and a small one.
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

# A cache that is filled, used, dropped to a quarter, refilled with smaller values, and dropped again.
redis() {
    name=$1 of=$2 share=$3 pace=$4
    cat > load.py <<'PY'
import random, socket, sys, time

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
answers = server.makefile("rb")
share, pace = float(sys.argv[2]), float(sys.argv[3])
random.seed(1)
keys, made = [], 0

def run(commands):
    for words in commands:
        server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
    for _ in commands:
        assert answers.readline()[:1] in b"+:"

def put(sizes):
    global made
    made += 1
    keys.append(b"key:%d" % made)
    return (b"SET", keys[-1], b"x" * int(2 ** random.uniform(*sizes)))

def drop():
    # Half of what goes is young.
    oldest = random.choice((0, len(keys) * 9 // 10))
    at = random.randrange(oldest, len(keys))
    keys[at], keys[-1] = keys[-1], keys[at]
    return (b"DEL", keys.pop())

# Seconds, keys at the end, keys that are replaced in each second, sizes of values as powers of two.
for seconds, count, replaced, sizes in [
    (10, 16000, 0, (8, 17)), (25, 16000, 700, (8, 17)), (5, 4000, 0, (8, 17)), (20, 4000, 300, (8, 17)),
    (10, 30000, 100, (8, 15)), (25, 30000, 700, (8, 15)), (5, 5000, 0, (8, 15)), (20, 5000, 200, (8, 15)),
]:
    steps, before, began = max(1, round(seconds * pace * 50)), len(keys), time.monotonic()
    for step in range(1, steps + 1):
        wanted = before + (round(count * share) - before) * step // steps
        commands = [c for _ in range(round(replaced * share / 50)) for c in (drop(), put(sizes))]
        while len(keys) < wanted:
            commands.append(put(sizes))
        while len(keys) > wanted:
            commands.append(drop())
        run(commands)
        time.sleep(max(0, began + step / 50 - time.monotonic()))
server.sendall(b"SHUTDOWN NOSAVE\r\n")
PY
    spandrel trace record --of "$of" --mode native -o "$name.trace" -- \
        redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no >/dev/null &
    server=$!
    for _ in $(seq 100); do
        [ -S "$work/redis.sock" ] && break
        sleep 0.1
    done
    python3 load.py "$work/redis.sock" "$share" "$pace"
    wait "$server"
    mv "$name.trace" "$out/"
}

# Tables are made of rows and dropped at random: many at once, few, many of wide rows, few.
python() {
    name=$1 of=$2 share=$3 pause=$4
    cat > job.py <<'PY'
import json, random, sys, time

share, pause = float(sys.argv[1]), float(sys.argv[2])
random.seed(1)

def row(number, width):
    values = [random.random() for _ in range(random.randrange(width))]
    text = "w" * random.randrange(20 * width)
    return {"id": number, "name": "name %d" % number, "values": values, "text": text}

def table(rows, width):
    made = [row(number, width) for number in range(rows)]
    index = {}
    for each in made:
        index.setdefault(len(each["values"]), []).append(each)
    again = json.loads(json.dumps(made[: rows // 4]))
    return made, index, again, bytes(random.randrange(round(share * (1 << 20))))

tables = []
for most, rounds, width in [(24, 40, 20), (6, 20, 20), (20, 30, 200), (4, 10, 20)]:
    rows = int(40000 * share / width)
    while len(tables) > most:
        tables.pop(random.randrange(len(tables)))
    for _ in range(rounds):
        if len(tables) == most:
            tables.pop(random.randrange(len(tables)))
        tables.append(table(random.randrange(rows // 2, 2 * rows), width))
        time.sleep(pause)
print(len(tables), sum(len(rows) for rows, *_ in tables))
PY
    spandrel trace record --of "$of" --mode native -o "$name.trace" -- env PYTHONMALLOC=malloc \
        "$(python3 -c 'import sys; print(sys.executable)')" -S job.py "$share" "$pause"
    mv "$name.trace" "$out/"
}

# The C++ compiler, optimising so many functions, and as many with templates.
compiler() {
    name=$1 of=$2 functions=$3 templates=$4
    {
        [ "$templates" -eq 0 ] || for file in algorithm array map regex string vector; do
            echo "#include <$file>"
        done
        for n in $(seq "$functions"); do
            cat <<CC
struct S$n { int key; double value; int rank[$n]; };
double f$n(const S$n *all, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < $n; k++) sum += all[i].value * all[i].rank[k] - (all[i].key ^ k);
    return sum;
}
CC
        done
        for n in $(seq "$templates"); do
            cat <<CC
std::map<std::string, std::vector<std::regex>> g$n(std::vector<std::array<int, $n>> &order) {
    std::map<std::string, std::vector<std::regex>> all;
    for (auto &each : order) all[std::to_string(each[0])].emplace_back("a+b*" + std::to_string($n));
    std::sort(order.begin(), order.end(), [](auto &a, auto &b) { return a > b; });
    return all;
}
CC
        done
    } > unit.cc
    spandrel trace record --of "$of" --mode native -o 'gcc.%p.trace' -- g++ -O2 -c unit.cc -o unit.o
    for file in gcc.*.trace; do
        if spandrel trace info --json "$file" | grep -q '"program":"cc1plus"'; then
            mv "$file" "$out/$name.trace"
        else
            rm "$file"
        fi
    done
}

# A server in Rust under load: the benchmarks' own.
rust() {
    name=$1 of=$2 requests=$3 documents=$4
    spandrel trace record --of "$of" --mode native -o "$name.trace" -- \
        spandrel-bench-worker server --requests "$requests" --documents "$documents" >/dev/null
    mv "$name.trace" "$out/"
}

redis redis-spans spans 1.5 1
redis redis all 0.03 0.1
python python-spans spans 1.5 0.4
python python all 0.006 0
compiler gcc-spans spans 100 40
compiler gcc all 4 0
rust rust-server-spans spans 600000 30000
rust rust-server all 500 100
spandrel trace info "$out"/*.trace
