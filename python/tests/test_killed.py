"""A process that is killed leaves each operation done or not begun."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
import time
import unittest

import spandrel_heap as sh

from .killed import PER_CHECKPOINT, Model
from .places import PLACES, SMALL, heap_in

LIVES = int(os.environ.get("SPANDREL_PYTHON_LIVES", "12"))
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A map, a list, and what an operation that was cut off keeps: the items of an append.
HEADS, CUT_OFF = 4, 2


class Killed(unittest.TestCase):
    def live(self, path: str, number: int, has_checkpoints: bool, seconds: float) -> int:
        """Runs a process, kills it, and returns how many operations it has said to be done."""
        command = [sys.executable, "-m", "tests.killed", path, str(number), str(has_checkpoints)]
        child = subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        begun = child.stdout.read(1)
        self.assertEqual(begun, b"!")
        time.sleep(seconds)
        child.kill()
        said, _ = child.communicate()
        self.assertEqual(child.returncode, -9)
        return len(said)

    def check(self, place: str, medium: sh.Medium, has_checkpoints: bool) -> None:
        chance = random.Random(9)
        model = Model()
        done = 0
        with heap_in(place) as path:
            with sh.create(path, size=SMALL, medium=medium) as heap:
                heap.dict("map"), heap.list("list")
            for number in range(LIVES):
                said = self.live(path, number, has_checkpoints, chance.uniform(0.001, 0.1))
                done += said
                order = random.Random(number)
                for _ in range(said * (PER_CHECKPOINT if has_checkpoints else 1)):
                    model.change(order)
                after = copy.deepcopy(model)
                for _ in range(PER_CHECKPOINT if has_checkpoints else 1):
                    after.change(order)
                with sh.open(path) as heap:
                    self.assertIsNotNone(heap.recovered)
                    assert heap.recovered is not None
                    found = Model().of(heap).contents()
                    self.assertIn(found, [model.contents(), after.contents()], f"life {number}")
                    if found != model.contents():
                        model = after
                    expected = HEADS + len(model.map) + len(model.list) + len(model.roots)
                    extra = heap.recovered.live - expected
                    self.assertTrue(0 <= extra <= CUT_OFF, f"life {number}: {extra} objects more")
                    self.assertEqual(heap.collect().live, expected)
        self.assertGreater(done, LIVES)

    def test_in_memory_every_operation_that_returned_is_there(self) -> None:
        self.check("/dev/shm", sh.Medium.AUTO, False)

    def test_mapped_on_a_disk_every_operation_that_returned_is_there(self) -> None:
        self.check(PLACES[1], sh.Medium.MAPPED, False)

    def test_with_a_log_the_last_checkpoint_is_there(self) -> None:
        for place in PLACES:
            with self.subTest(place):
                self.check(place, sh.Medium.LOGGED, True)


if __name__ == "__main__":
    unittest.main()
