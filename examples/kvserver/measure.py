#!/usr/bin/env python3
"""Measures kvserver beside Redis: SET and GET of redis-benchmark over Unix sockets, medians of interleaved rounds.

    cargo build --release -p spandrel-kvserver
    examples/kvserver/measure.py [--rounds 3] [--place DIRECTORY]...

Each place has a column; the default is memory (/dev/shm) and the current directory. Redis runs without persistence, with an append-only file
that is synced each second, and with one that is synced before each reply.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

LOADS = [(1, 1), (8, 1), (8, 16), (32, 16)]
OPERATIONS = ["set", "get"]
# Seconds that a measurement takes about.
SECONDS = 1


def kvserver(directory):
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    return [f"{target}/release/kvserver", str(directory / "state"), "--socket", str(directory / "sock")]


def redis(*settings):
    return lambda directory: [
        "redis-server", "--port", "0", "--unixsocket", str(directory / "sock"), "--dir", str(directory), "--save", "", *settings,
    ]


SERVERS = {
    "kvserver": kvserver,
    "Redis, AOF always": redis("--appendonly", "yes", "--appendfsync", "always"),
    "Redis, AOF everysec": redis("--appendonly", "yes", "--appendfsync", "everysec"),
    "Redis, no persistence": redis("--appendonly", "no"),
}


class Running:
    """A server in a directory of its own."""

    def __init__(self, command, place):
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=place, prefix="kv-"))
        self.socket = str(self.directory / "sock")
        self.process = subprocess.Popen(command(self.directory), stdout=subprocess.DEVNULL)
        while subprocess.run(["redis-cli", "-s", self.socket, "ping"], capture_output=True).stdout != b"PONG\n":
            if self.process.poll() is not None:
                raise SystemExit("a server does not start")
            time.sleep(0.05)

    def measure(self, operation, clients, pipeline, requests):
        """Requests in a second."""
        out = subprocess.run(
            ["redis-benchmark", "-s", self.socket, "-t", operation, "-c", str(clients), "-P", str(pipeline),
             "-n", str(requests), "-r", "100000", "-d", "100", "--csv"],
            capture_output=True, text=True, check=True,
        )
        return float(out.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", action="append")
    options = parser.parse_args()
    for place in options.place or ["/dev/shm", "."]:
        servers = {name: Running(command, place) for name, command in SERVERS.items()}
        print(f"\n{place}: requests in a second, median of {options.rounds} rounds\n")
        print("| | " + " | ".join(servers) + " |")
        print("|---" * (len(servers) + 1) + "|")
        try:
            for operation in OPERATIONS:
                for clients, pipeline in LOADS:
                    # A short run says how long the others are to be.
                    requests = {}
                    for name, server in servers.items():
                        requests[name] = max(1000, int(SECONDS * server.measure(operation, clients, pipeline, 2000)))
                    seen = {name: [] for name in servers}
                    for _ in range(options.rounds):
                        for name, server in servers.items():
                            seen[name].append(server.measure(operation, clients, pipeline, requests[name]))
                    cells = [f"{statistics.median(values):,.0f}" for values in seen.values()]
                    load = f"{clients} client{'s' if clients > 1 else ''}"
                    load += f", pipeline {pipeline}" if pipeline > 1 else ""
                    print(f"| {operation.upper()}, {load} | " + " | ".join(cells) + " |", flush=True)
        finally:
            for server in servers.values():
                server.end()


if __name__ == "__main__":
    main()
