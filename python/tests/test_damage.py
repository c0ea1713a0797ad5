"""Damaged maps and lists: every use is an error or works. None ends the process, and none loops without end."""

from __future__ import annotations

import random
import struct
import unittest

import spandrel_heap as sh

from .places import PLACES, SMALL, heap_in

ROUNDS = 300
# Where objects begin: behind the metadata of the region.
OBJECTS_AT = 10 << 16


class Damage(unittest.TestCase):
    def use(self, heap: sh.Heap) -> None:
        names, lines = heap.dict("names"), heap.list("lines")
        for use in (
            lambda: dict(names),
            lambda: names.update({str(number): b"new" for number in range(60)}),
            lambda: [names.pop(str(number), None) for number in range(30)],
            names.clear,
            lambda: list(lines),
            lambda: lines.extend([b"x"] * 40),
            lambda: lines.insert(3, b"y"),
            lambda: lines.pop(),
            lines.clear,
            lambda: heap.roots["text"],
            lambda: heap.roots.update(text=b"other"),
            lambda: heap.roots.clear(),
        ):
            try:
                use()
            except (sh.HeapError, KeyError, IndexError):
                pass

    def test_any_word_of_the_structures_may_be_wrong(self) -> None:
        chance = random.Random(5)
        with heap_in(PLACES[0]) as path:
            with sh.create(path, size=SMALL) as heap:
                heap.dict("names").update({str(number): b"name %d" % number for number in range(30)})
                heap.list("lines").extend([b"line %d" % number for number in range(30)])
                heap.roots["text"] = b"text"
            with open(path, "rb") as file:
                image = bytearray(file.read())
            count = (len(image) - OBJECTS_AT) // 8
            words = struct.unpack_from(f"<{count}Q", image, OBJECTS_AT)
            places = [OBJECTS_AT + 8 * at for at, word in enumerate(words) if word]
            pointers = [word for word in words if word >> 48 == 0x50A7]
            refused = 0
            for _ in range(ROUNDS):
                place = chance.choice(places)
                (before,) = struct.unpack_from("<Q", image, place)
                wrong = chance.choice(
                    (
                        0,
                        1,
                        chance.getrandbits(64),
                        before ^ 1 << chance.randrange(64),
                        chance.choice(pointers),
                        0x50A7 << 48 | chance.randrange(2 * SMALL),
                    )
                )
                damaged = bytearray(image)
                struct.pack_into("<Q", damaged, place, wrong)
                with open(path, "wb") as file:
                    file.write(damaged)
                with sh.open(path, limit=4 * SMALL) as heap:
                    try:
                        self.use(heap)
                    except sh.HeapError:
                        refused += 1
            self.assertGreater(refused, 0)


if __name__ == "__main__":
    unittest.main()
