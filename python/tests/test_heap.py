"""Heaps are made, opened, closed, copied, and say why they fail."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import subprocess
import sys
import threading
import unittest

import spandrel_heap as sh

from .places import PLACES, SMALL, heap_in


class Opening(unittest.TestCase):
    def test_what_roots_lead_to_is_there_again(self) -> None:
        for place in PLACES:
            with self.subTest(place), heap_in(place) as path:
                with sh.open_or_create(path, size=SMALL) as heap:
                    self.assertIsNone(heap.recovered)
                    self.assertTrue(heap.is_new)
                    heap.roots["greeting"] = "hello"
                    heap.dict("ages")["Ada"] = b"36"
                    heap.list("lines").extend([b"one", b"two"])
                    self.assertIs(heap.dict("ages"), heap.dict("ages"))
                with sh.open_or_create(path) as heap:
                    self.assertIsNone(heap.recovered)
                    self.assertFalse(heap.is_new)
                    self.assertEqual(sorted(heap.roots), ["ages", "greeting", "lines"])
                    self.assertEqual(heap.roots["greeting"], b"hello")
                    self.assertEqual(dict(heap.dict("ages")), {b"Ada": b"36"})
                    self.assertEqual(list(heap.list("lines")), [b"one", b"two"])
                    self.assertIs(heap.roots["lines"], heap.list("lines"))

    def test_roots_are_replaced_and_removed_with_all_that_they_hold(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            self.assertEqual(heap.collect().live, 0)
            heap.roots["a"] = b"1"
            heap.roots["a"] = b"2"
            ages, lines = heap.dict("ages"), heap.list("lines")
            ages.update({str(age): b"x" * age for age in range(50)})
            lines.extend([b"x"] * 50)
            self.assertEqual(heap.collect().live, 1 + 2 + 50 + 2 + 50)
            heap.roots["ages"] = b"no map any more"
            del heap.roots["lines"]
            found = heap.collect()
            self.assertEqual((found.live, found.freed), (2, 0))
            for use in (ages.clear, lines.clear, lambda: ages["1"], lambda: len(lines)):
                with self.assertRaisesRegex(sh.HeapError, "removed or set to another"):
                    use()
            self.assertEqual(sorted(heap.roots), ["a", "ages"])
            with self.assertRaises(KeyError):
                heap.roots["lines"]
            with self.assertRaises(KeyError):
                del heap.roots["lines"]
            self.assertEqual(list(heap.list("lines")), [])

    def test_medium_size_and_guarantee(self) -> None:
        with heap_in(PLACES[1]) as path:
            with sh.create(path, size=SMALL, medium=sh.Medium.MAPPED) as heap:
                self.assertEqual((heap.bytes, heap.guarantee), (SMALL, sh.Guarantee.PROCESS))
                self.assertEqual((heap.path, heap.closed), (path, False))
                heap.roots["large"] = bytes(2 * SMALL)
                self.assertGreater(heap.bytes, 2 * SMALL)
                self.assertEqual(heap.roots["large"], bytes(2 * SMALL))
            self.assertTrue(heap.closed)
            with sh.open(path, medium=sh.Medium.LOGGED) as heap:
                self.assertEqual(heap.guarantee, sh.Guarantee.FILE)

    def test_a_heap_that_no_variable_holds_is_closed(self) -> None:
        with heap_in(PLACES[0]) as path:
            ages = sh.create(path, size=SMALL).dict("ages")
            gc.collect()
            ages["Ada"] = b"36"
            del ages
            gc.collect()
            with sh.open(path) as heap:
                self.assertIsNone(heap.recovered)
                self.assertEqual(heap.dict("ages")["Ada"], b"36")


    def test_a_heap_that_is_open_is_read_as_of_its_last_checkpoint(self) -> None:
        with heap_in(PLACES[1]) as path, sh.create(path, size=SMALL, medium=sh.Medium.LOGGED) as heap:
            ages, lines = heap.dict("ages"), heap.list("lines")
            ages["Ada"], heap.roots["greeting"] = b"36", b"hello"
            lines.extend([b"one", b"two"])
            heap.checkpoint()
            ages["Ada"] = b"37"
            with sh.open(path, read_only=True) as copy:
                read = copy.dict("ages")
                self.assertEqual((dict(read), copy.roots["greeting"]), ({b"Ada": b"36"}, b"hello"))
                self.assertEqual(copy.list("lines")[:], [b"one", b"two"])
                changes = (
                    lambda: read.update(Ada=b"0"),
                    lambda: read.pop("Ada"),
                    read.popitem,
                    read.clear,
                    lambda: copy.list("lines").append(b"three"),
                    copy.list("lines").clear,
                    copy.list("lines").reverse,
                    lambda: copy.dict("new"),
                    lambda: copy.roots.update(greeting=b"x"),
                    lambda: copy.roots.pop("greeting"),
                )
                for change in changes:
                    with self.assertRaises(sh.HeapError) as why:
                        change()
                    self.assertEqual(why.exception.errno, errno.EROFS)
                self.assertEqual((dict(read), copy.roots["greeting"]), ({b"Ada": b"36"}, b"hello"))
                self.assertEqual(copy.list("lines")[:], [b"one", b"two"])
            self.assertEqual(ages["Ada"], b"37")


class Errors(unittest.TestCase):
    def test_the_path_is_there_whatever_the_reason_has_in_it(self) -> None:
        self.assertEqual(str(sh.HeapError(errno.EINVAL, "heap", "the heap is closed")), "heap: the heap is closed")
        with heap_in(PLACES[1]) as path:
            directory = os.getcwd()
            os.chdir(os.path.dirname(path))
            try:
                heap = sh.create("heap", size=SMALL, medium=sh.Medium.LOGGED)
                heap.close()
                with self.assertRaises(sh.HeapError) as closed:
                    heap.checkpoint()
                self.assertEqual(str(closed.exception), "heap: the heap is closed")
                with self.assertRaises(FileExistsError) as there:
                    sh.create("heap")
                self.assertRegex(str(there.exception), "^heap: File exists")
                with self.assertRaises(FileNotFoundError) as none:
                    sh.copy("heap", "no/such")
                self.assertRegex(str(none.exception), "^no/such: No such file")
                again = pickle.loads(pickle.dumps(none.exception))
                self.assertEqual(str(again), str(none.exception))
                os.makedirs("heap.wal")
                with self.assertRaises(sh.HeapDamagedError) as log:
                    sh.open("heap")
                self.assertRegex(str(log.exception), "^heap.wal: ")
                os.rmdir("heap.wal")
            finally:
                os.chdir(directory)
            with self.assertRaises(FileNotFoundError) as far:
                sh.open(path + "x" * 150)
            self.assertEqual(str(far.exception), f"{far.exception.filename}: {far.exception.reason}")  # type: ignore[attr-defined]
            self.assertRegex(far.exception.reason, "^No such file")  # type: ignore[attr-defined]

    def test_errors_have_path_reason_and_a_class_of_python(self) -> None:
        with heap_in(PLACES[1]) as path:
            with self.assertRaises(FileNotFoundError) as none:
                sh.open(path)
            why = none.exception
            self.assertIsInstance(why, sh.HeapNotFoundError)
            assert isinstance(why, sh.HeapError)
            self.assertEqual((why.errno, why.filename, why.path), (errno.ENOENT, path, path))
            self.assertIn(why.reason, str(why))
            self.assertIn(path, str(why))
            again = pickle.loads(pickle.dumps(why))
            self.assertEqual((type(again), str(again)), (type(why), str(why)))
            with self.assertRaises(FileNotFoundError):
                sh.open_or_create(os.path.join(path, "no", "folder"))
            with sh.create(path, size=SMALL, layout=7):
                with self.assertRaises(FileExistsError):
                    sh.create(path)
                with self.assertRaises(sh.HeapLockedError):
                    sh.open_or_create(path)
            with self.assertRaises(sh.HeapLayoutError):
                sh.open(path, layout=8)
            with open(path, "r+b") as file:
                file.truncate(1000)
            with self.assertRaises(sh.HeapError) as cut_off:
                sh.open(path)
            self.assertNotIsInstance(cut_off.exception, (FileNotFoundError, FileExistsError))

    def test_a_closed_heap_refuses_everything(self) -> None:
        with heap_in(PLACES[0]) as path:
            heap = sh.create(path, size=SMALL)
            ages, lines = heap.dict("ages"), heap.list("lines")
            heap.close()
            heap.close()
            uses = (
                heap.checkpoint,
                heap.collect,
                lambda: heap.bytes,
                lambda: heap.guarantee,
                lambda: heap.dict("ages"),
                lambda: list(heap.roots),
                lambda: heap.copy(path + ".copy"),
                lambda: ages["x"],
                lambda: ages.update(x=b"y"),
                lambda: len(ages),
                lambda: list(ages),
                lambda: lines.append(b"x"),
                lambda: lines[0],
            )
            for use in uses:
                with self.assertRaises(sh.HeapError) as why:
                    use()
                self.assertEqual(why.exception.errno, errno.EINVAL)

    def test_names_and_types_that_cannot_be(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL) as heap:
            for name in ("", "a" * 41):
                with self.assertRaises(sh.HeapError):
                    heap.roots[name] = b"x"
            for use in (lambda: heap.dict("a\0b"), lambda: sh.open("a\0b"), lambda: sh.copy(path, "a\0b")):
                with self.assertRaises(ValueError):
                    use()
            for value in (1, None, [b"x"]):
                with self.assertRaises(TypeError):
                    heap.roots["a"] = value  # type: ignore[assignment]
            heap.dict("ages")
            with self.assertRaises(sh.HeapTypeError):
                heap.list("ages")
            with self.assertRaises(TypeError):
                heap.list("ages")
            for number in range(511):
                heap.roots[str(number)] = b"x"
            with self.assertRaises(sh.HeapFullError):
                heap.roots["one more"] = b"x"
            self.assertEqual(len(heap.roots), 512)

    def test_a_full_heap_stays_as_it_is(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL, limit=2 * SMALL) as heap:
            ages, lines = heap.dict("ages"), heap.list("lines")
            ages["small"], count = b"x", 0
            with self.assertRaises(sh.HeapFullError):
                while True:
                    lines.append(bytes(1000))
                    count += 1
            with self.assertRaises(sh.HeapFullError):
                ages["large"] = bytes(SMALL)
            with self.assertRaises(sh.HeapFullError):
                lines.extend([bytes(10), bytes(10), bytes(2 * SMALL)])
            self.assertEqual((dict(ages), len(lines)), ({b"small": b"x"}, count))
            del lines[-200:]
            ages["more"] = bytes(10_000)
            lines.extend([bytes(1000)] * 50)
            self.assertEqual((len(ages), len(lines)), (2, count - 150))

    def test_a_library_that_is_not_there_is_named_with_the_way_out(self) -> None:
        for name in ("/no/such/library.so", "libc.so.6"):
            code = "import spandrel_heap; spandrel_heap.open('heap')"
            environment = {**os.environ, "SPANDREL_HEAP_LIB": name}
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, f"LibraryNotFoundError: {name} .*SPANDREL_HEAP_LIB has to name")


class Copies(unittest.TestCase):
    def test_an_open_heap_is_copied_as_it_is_and_goes_on(self) -> None:
        for place in PLACES:
            for medium in (sh.Medium.MAPPED, sh.Medium.LOGGED):
                with self.subTest(place=place, medium=medium), heap_in(place) as path:
                    with sh.create(path, size=SMALL, medium=medium) as heap:
                        heap.dict("ages")["Ada"] = b"36"
                        heap.copy(path + ".copy")
                        heap.dict("ages")["Ada"] = b"37"
                        with self.assertRaises(FileExistsError):
                            heap.copy(path + ".copy")
                    with sh.open(path + ".copy") as copy:
                        self.assertIsNotNone(copy.recovered)
                        self.assertEqual(copy.dict("ages")["Ada"], b"36")
                    with sh.open(path) as heap:
                        self.assertEqual(heap.dict("ages")["Ada"], b"37")

    def test_a_closed_heap_is_copied_closed(self) -> None:
        with heap_in(PLACES[1]) as path:
            with sh.create(path, size=SMALL) as heap:
                heap.list("lines").append(b"one")
            sh.copy(path, path + ".copy")
            with sh.open(path + ".copy") as copy:
                self.assertIsNone(copy.recovered)
                self.assertEqual(copy.list("lines")[:], [b"one"])

    def test_a_mapped_heap_that_comes_to_no_checkpoint_is_not_copied(self) -> None:
        with heap_in(PLACES[0]) as path, sh.create(path, size=SMALL):
            with self.assertRaises(sh.HeapError) as why:
                sh.copy(path, path + ".copy", wait=0.05)
            self.assertEqual(why.exception.errno, errno.ETIMEDOUT)
            self.assertFalse(os.path.exists(path + ".copy"))


class Sharing(unittest.TestCase):
    def test_threads_share_a_heap(self) -> None:
        for place in PLACES:
            with self.subTest(place), heap_in(place) as path, sh.create(path, size=SMALL) as heap:
                counts, lines = heap.dict("counts"), heap.list("lines")
                wrong = []

                def work(number: int) -> None:
                    try:
                        for round_ in range(200):
                            counts[f"{number} {round_ % 20}"] = str(round_)
                            lines.append(str(number))
                            if round_ % 50 == 0:
                                heap.checkpoint()
                    except BaseException as why:
                        wrong.append(why)

                threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(wrong, [])
                self.assertEqual((len(counts), len(lines)), (80, 800))
                for number in range(4):
                    self.assertEqual(lines[:].count(str(number).encode()), 200)
                    self.assertEqual(counts[f"{number} 19"], b"199")

    def test_a_child_cannot_change_the_heap_of_its_parent(self) -> None:
        for place in PLACES:
            with self.subTest(place), heap_in(place) as path, sh.create(path, size=SMALL) as heap:
                ages = heap.dict("ages")
                ages["Ada"] = b"36"
                child = os.fork()
                if child == 0:
                    refused = 0
                    try:
                        for use in (lambda: ages.update(A=b"0"), ages.clear, heap.checkpoint, lambda: heap.roots["ages"]):
                            try:
                                use()
                            except sh.HeapError as why:
                                refused += why.errno == errno.EPERM
                        heap.close()
                    finally:
                        os._exit(refused)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 4)
                self.assertEqual(ages["Ada"], b"36")
                ages["Ada"] = b"37"
                heap.checkpoint()


if __name__ == "__main__":
    unittest.main()
