"""Where the heaps of tests lie: in the memory of the machine, and on its disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Iterator

PLACES = ("/dev/shm", tempfile.gettempdir())
SMALL = 1 << 20


@contextlib.contextmanager
def heap_in(place: str) -> Iterator[str]:
    """The path of a heap that is not there yet, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield os.path.join(folder, "heap")
