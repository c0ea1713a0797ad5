"""Objects that outlive the process: the recoverable heap of Spandrel from Python.

    >>> import spandrel_heap
    >>> with spandrel_heap.open_or_create("visits.heap") as heap:      # doctest: +SKIP
    ...     visits = heap.dict("visits")
    ...     visits["today"] = b"17"
    ...     heap.checkpoint()

A heap is a file. What a root leads to is there again when the heap is opened the next time, also after the process was
killed. README.md says what survives which failure.
"""

from __future__ import annotations

from ._dict import Dict
from ._errors import (
    HeapDamagedError,
    HeapError,
    HeapExistsError,
    HeapFullError,
    HeapLayoutError,
    HeapLockedError,
    HeapNotFoundError,
    HeapTypeError,
    LibraryNotFoundError,
)
from ._heap import Collected, Guarantee, Heap, Medium, Roots, copy
from ._list import List

open = Heap.open
create = Heap.create
open_or_create = Heap.open_or_create

__all__ = [
    "Collected",
    "Dict",
    "Guarantee",
    "Heap",
    "HeapDamagedError",
    "HeapError",
    "HeapExistsError",
    "HeapFullError",
    "HeapLayoutError",
    "HeapLockedError",
    "HeapNotFoundError",
    "HeapTypeError",
    "LibraryNotFoundError",
    "List",
    "Medium",
    "Roots",
    "copy",
    "create",
    "open",
    "open_or_create",
]
