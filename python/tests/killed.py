"""What a process does that test_killed.py kills: changes of a map, a list and a root, in an order that a number decides.

    python -m tests.killed PATH NUMBER CHECKPOINTS

One byte on standard output says that an operation has returned.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any, Dict, List, MutableMapping, MutableSequence

import spandrel_heap

PER_CHECKPOINT = 10


class Model:
    """What the heap holds."""

    def __init__(self) -> None:
        self.map: MutableMapping[bytes, bytes] = {}
        self.list: MutableSequence[bytes] = []
        self.roots: MutableMapping[str, Any] = {}

    def of(self, heap: spandrel_heap.Heap) -> Model:
        """The same from a heap."""
        self.map, self.list, self.roots = heap.dict("map"), heap.list("list"), heap.roots
        return self

    def change(self, chance: random.Random) -> None:
        """One operation, the same on whatever is the same."""
        choice, key, size = chance.random(), b"%d" % chance.randrange(60), chance.choice((1, 30, 2000))
        value = b"%d " % chance.randrange(1 << 30) * size
        if choice < 0.40:
            self.map[key] = value
        elif choice < 0.60:
            self.map.pop(key, None)
        elif choice < 0.61:
            self.map.clear()
        elif choice < 0.75:
            self.list.extend([value, key])
        elif choice < 0.80:
            self.list.insert(len(self.list) // 2, key)
        elif choice < 0.92:
            if self.list:
                self.list.pop()
        elif choice < 0.94:
            del self.list[len(self.list) // 3 :]
        else:
            self.roots["root"] = value

    def contents(self) -> List[object]:
        """To compare."""
        plain: Dict[bytes, bytes] = dict(self.map)
        return [plain, list(self.list), self.roots.get("root")]


def run(path: str, number: int, has_checkpoints: bool) -> None:
    """Changes the heap until the process is killed."""
    heap = spandrel_heap.open(path)
    model, chance = Model().of(heap), random.Random(number)
    os.write(1, b"!")
    while True:
        for _ in range(PER_CHECKPOINT if has_checkpoints else 1):
            model.change(chance)
        if has_checkpoints:
            heap.checkpoint()
        os.write(1, b".")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")
