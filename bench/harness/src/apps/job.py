"""A job of the kind that grows large buffers: what scripts do when they collect,
join, search and convert data. Prints a digest of everything that it computed, so
that runs can be compared, and where its memory was: the most that it held, and on huge pages."""

import array
import io
import json
import re
import resource
import zlib

digest = 0
anonymous = huge = 0


def note(data):
    global digest
    digest = zlib.crc32(data, digest)
    look()


def look():
    """Where memory is while it is in use, added up."""
    global anonymous, huge
    with open("/proc/self/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Anonymous:"):
                anonymous += int(line.split()[1])
            elif line.startswith("AnonHugePages:"):
                huge += int(line.split()[1])


def collect_bytes():
    """A bytearray that grows chunk by chunk, as when reading from a socket."""
    chunk = bytes(range(256)) * 16
    for _ in range(2):
        buffer = bytearray()
        for number in range(48_000):
            buffer += chunk
            buffer[-1] = number & 255
        note(buffer)


def collect_list():
    """Lists of numbers: only the list's own array is large."""
    for _ in range(3):
        numbers = []
        for number in range(6_000_000):
            numbers.append(number & 127)
        note(bytes(numbers[::61]))
        del numbers


def build_string():
    """Text by repeated concatenation, which CPython does with realloc."""
    text = ""
    for number in range(1_200_000):
        text += "line of text number %d\n" % (number & 1023)
    note(text.encode())
    return text


def write_streams():
    """In-memory files."""
    stream = io.BytesIO()
    block = b"0123456789abcdef" * 512
    for _ in range(20_000):
        stream.write(block)
    note(stream.getbuffer())
    text = io.StringIO()
    for number in range(600_000):
        text.write("%d,%d\n" % (number, number * 7 & 4095))
    note(text.getvalue().encode())


def extend_arrays():
    """Typed arrays, as numeric code uses them."""
    values = array.array("d")
    piece = array.array("d", (float(number) for number in range(1024)))
    for _ in range(24_000):
        values.extend(piece)
    note(memoryview(values)[::4099].tobytes())


def search(text):
    """Regular expressions over a large text, and joins of many pieces."""
    found = re.findall(r"number (\d+)\n", text)
    note(",".join(found).encode())
    changed = re.sub(r"text number (\d)", r"record no. \1", text)
    note(changed.encode())
    note("".join(reversed(changed.splitlines(True))).encode())


def convert():
    """JSON there and back."""
    table = [
        {"id": number, "name": "item %d" % number, "values": list(range(number % 7))}
        for number in range(120_000)
    ]
    text = json.dumps(table)
    again = json.loads(text)
    note(text.encode())
    note(json.dumps(again[::97]).encode())


def status(name):
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0


collect_bytes()
collect_list()
extend_arrays()
write_streams()
search(build_string())
convert()
usage = resource.getrusage(resource.RUSAGE_SELF)
print(
    json.dumps(
        {
            "digest": "%08x" % digest,
            "peak_rss": status("VmHWM:"),
            "rss": status("VmHWM:"),
            "coverage": huge / max(anonymous, 1),
            "minor_faults": usage.ru_minflt,
        }
    )
)
