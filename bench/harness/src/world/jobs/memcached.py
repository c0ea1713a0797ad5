# Sets and gets of values of many sizes, a part of which is replaced by larger ones.
import random
import socket
import zlib

random.seed(7)
filler = bytes(random.randrange(32, 127) for _ in range(1 << 16))
total = 0


class Client:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect("memcached.sock")
        self.lines = self.socket.makefile("rb")

    def store(self, pairs):
        parts = [b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value) for key, value in pairs]
        self.socket.sendall(b"".join(parts))
        return sum(self.lines.readline() == b"STORED\r\n" for _ in parts)

    def load(self, keys):
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found = check = 0
        while (line := self.lines.readline()) != b"END\r\n":
            check = zlib.crc32(self.lines.read(int(line.split()[3]) + 2), check)
            found += 1
        return found, check


clients = [Client() for _ in range(40)]
for largest in (200, 1_000, 3_000):
    for number in range(3_000):
        client = clients[number % len(clients)]
        keys = [b"key%d" % random.randrange(60_000) for _ in range(40)]
        sizes = [random.randrange(1, largest) for _ in keys]
        total += client.store([(key, filler[size : 2 * size]) for key, size in zip(keys, sizes)])
        found, check = client.load(sorted(set(keys)))
        total += found + check % 97
print(total)
