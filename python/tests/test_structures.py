"""Maps and lists beside those of Python."""

from __future__ import annotations

import random
import unittest
import unittest.mock
from typing import Any

import spandrel_heap as sh

from .places import PLACES, SMALL, heap_in


class Dicts(unittest.TestCase):
    def test_a_random_life_agrees_with_a_dict(self) -> None:
        for place in PLACES:
            with self.subTest(place), heap_in(place) as path:
                model: dict[bytes, bytes] = {}
                chance = random.Random(7)
                sh.create(path, size=SMALL).close()
                for _ in range(5):
                    with sh.open(path) as heap:
                        persistent = heap.dict("model")
                        for _ in range(2000):
                            key = str(chance.randrange(300)).encode()
                            value = chance.randbytes(chance.choice((0, 5, 40, 3000)))
                            choice = chance.random()
                            if choice < 0.5:
                                persistent[key] = model[key] = value
                            elif choice < 0.8:
                                self.assertEqual(persistent.pop(key, None), model.pop(key, None))
                            elif choice < 0.9:
                                self.assertEqual(persistent.setdefault(key, value), model.setdefault(key, value))
                            elif choice < 0.998:
                                self.assertEqual(persistent.get(key), model.get(key))
                                self.assertEqual(key in persistent, key in model)
                            else:
                                persistent.clear()
                                model.clear()
                            self.assertEqual(len(persistent), len(model))
                        self.assertEqual(dict(persistent), model)
                        self.assertEqual(heap.collect().live, 2 + len(model))

    def test_keys_are_bytes_and_texts(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            names = heap.dict("names")
            names["Zoë"] = "ë"
            self.assertEqual(names["Zoë".encode()], "ë".encode())
            self.assertEqual(list(names.items()), [("Zoë".encode(), "ë".encode())])
            names[b""] = b""
            names[bytearray(b"ab")] = memoryview(b"cd")
            self.assertEqual((names[""], names["ab"]), (b"", b"cd"))
            self.assertNotIn(1, names)
            wrong: Any = names
            uses: Any = (lambda: wrong[1], lambda: wrong.update({1: b"x"}), lambda: wrong.update({"x": 1}))
            for use in uses:
                with self.assertRaises(TypeError):
                    use()
            with self.assertRaises(KeyError) as why:
                names["none"]
            self.assertEqual(why.exception.args, ("none",))
            with self.assertRaises(KeyError):
                del names["none"]

    def test_a_map_that_changes_stops_its_iterators(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            names = heap.dict("names")
            names.update({str(number): b"x" for number in range(100)})
            with self.assertRaises(RuntimeError):
                for key in names:
                    del names[key]
            for key in names:
                names[key] = b"y"
            self.assertEqual(set(names.values()), {b"y"})
            seen = set()
            while names:
                seen.add(names.popitem()[0])
            self.assertGreaterEqual(len(seen), 99)


    def test_a_map_is_drained_in_one_pass(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            names = heap.dict("names")
            count, drained = 2000, []
            names.update({str(number): str(number) for number in range(count)})
            looks = 0
            enter = sh.Dict._entered

            def counting(self: sh.Dict) -> Any:
                nonlocal looks
                looks += 1
                return enter(self)

            with unittest.mock.patch.object(sh.Dict, "_entered", counting):
                for _ in range(count // 2):
                    drained.append(names.popitem())
                for _ in range(count // 4):
                    key = next(iter(names))
                    drained.append((key, names.pop(key)))
            # Each slot that an iterator passes is a look.
            self.assertLess(looks, 12 * count)
            self.assertEqual(len(names), count // 4)
            # Entries before the place that was reached are found as well.
            names.update({str(number): str(number) for number in range(count, count + 200)})
            self.assertEqual(len(list(names)), count // 4 + 200)
            while names:
                drained.append(names.popitem())
            self.assertEqual(sorted(drained), sorted((str(number).encode(),) * 2 for number in range(count + 200)))
            with self.assertRaises(KeyError):
                names.popitem()
            self.assertEqual(list(names), [])


class Lists(unittest.TestCase):
    def test_a_random_life_agrees_with_a_list(self) -> None:
        for place in PLACES:
            with self.subTest(place), heap_in(place) as path:
                model: list[bytes] = []
                chance = random.Random(8)
                sh.create(path, size=SMALL).close()
                for _ in range(5):
                    with sh.open(path) as heap:
                        persistent = heap.list("model")
                        for _ in range(1000):
                            self.change(chance, persistent, model)
                            self.assertEqual(len(persistent), len(model))
                        self.assertEqual(list(persistent), model)
                        self.assertEqual(heap.collect().live, 2 + len(model))

    def change(self, chance: random.Random, persistent: sh.List, model: list[bytes]) -> None:
        values = [chance.randbytes(chance.choice((0, 5, 40))) for _ in range(chance.randrange(4))]
        at = chance.randrange(-len(model) - 2, len(model) + 2)
        part = slice(at, at + chance.randrange(5), chance.choice((1, 1, 2)))
        choice = chance.randrange(11)
        if choice < 3:
            for value in values:
                persistent.append(value)
                model.append(value)
        elif choice == 3:
            persistent.extend(values)
            model.extend(values)
        elif choice == 4:
            persistent.insert(at, b"here")
            model.insert(at, b"here")
        elif choice == 5 and model:
            self.assertEqual(persistent.pop(), model.pop())
        elif choice == 6:
            del persistent[part]
            del model[part]
        elif choice == 7 and part.step == 1:
            persistent[part] = values
            model[part] = values
        elif choice == 8:
            self.assertEqual(persistent[part], model[part])
        elif choice == 9 and chance.random() < 0.1:
            persistent.reverse()
            model.reverse()
        elif choice == 10 and -len(model) <= at < len(model):
            persistent[at] = model[at] = b"replaced"
            self.assertEqual(persistent.pop(at), model.pop(at))

    def test_indexes_that_are_not_there(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            lines: Any = heap.list("lines")
            lines += ["one", "two", "three", "four"]
            for index in (4, -5):
                with self.assertRaises(IndexError):
                    lines[index]
                with self.assertRaises(IndexError):
                    lines[index] = b"x"
                with self.assertRaises(IndexError):
                    del lines[index]
            with self.assertRaises(ValueError):
                lines[::2] = [b"x"]
            with self.assertRaises(TypeError):
                lines.extend([b"five", 6])
            lines[::2] = [b"1", b"3"]
            self.assertEqual(lines[:], [b"1", b"two", b"3", b"four"])
            lines.extend(lines)
            self.assertEqual(len(lines), 8)
            lines.clear()
            self.assertEqual(list(lines), [])
            with self.assertRaises(IndexError):
                lines.pop()


if __name__ == "__main__":
    unittest.main()
