"""What can fail, as exceptions with the number, the path and the reason."""

from __future__ import annotations

import errno
import os
from typing import Dict, Tuple, Type


class LibraryNotFoundError(ImportError):
    """The library libspandrel_heap is not installed, or SPANDREL_HEAP_LIB names no such library."""


class HeapError(OSError):
    """An operation on a heap failed; the heap is as it was before.

    ``errno`` is the number, as spandrel_heap.h lists it for each function; ``filename`` is the heap's file; ``reason`` is
    the cause in words.
    """

    _names_other = False
    """The reason begins with the path of another file, which is the one that is meant: of the log, or of a copy."""

    def __init__(self, number: int, path: str, reason: str) -> None:
        super().__init__(number, reason, path)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return self.reason if self._names_other else f"{self.path}: {self.reason}"

    def __reduce__(self) -> Tuple[Type[HeapError], Tuple[int, str, str], Dict[str, bool]]:
        return type(self), (self.errno or 0, self.path, self.reason), {"_names_other": self._names_other}


class HeapNotFoundError(HeapError, FileNotFoundError):
    """There is no such file."""


class HeapExistsError(HeapError, FileExistsError):
    """There is such a file already."""


class HeapLockedError(HeapError, BlockingIOError):
    """Another process has the heap open, or this one has it open twice."""


class HeapFullError(HeapError):
    """No room: the limit of the heap or of its file, the disk or the address space is full, or all 512 roots are in use."""


class HeapLayoutError(HeapError):
    """The heap or the root was made for another layout of types."""


class HeapDamagedError(HeapError):
    """The file is damaged."""


class HeapTypeError(HeapError, TypeError):
    """The root leads to an object of another kind."""


_SHORT_BYTES = 120
"""Bytes of a long path in the library's text: its end."""

_CLASSES: Dict[int, Type[HeapError]] = {
    errno.ENOENT: HeapNotFoundError,
    errno.EEXIST: HeapExistsError,
    errno.EWOULDBLOCK: HeapLockedError,
    errno.ENOMEM: HeapFullError,
    errno.ENOSPC: HeapFullError,
    errno.EDQUOT: HeapFullError,
    errno.EFBIG: HeapFullError,
    errno.EPROTOTYPE: HeapLayoutError,
    errno.EBADMSG: HeapDamagedError,
}


def error(number: int, path: str, text: str, names_file: bool) -> HeapError:
    """The exception for a number. The text of a function that makes, opens or copies a heap names a file: it begins with the path."""
    prefixes = (f"{path}: ", f"\u2026{os.fsdecode(os.fsencode(path)[-_SHORT_BYTES:])}: ") if names_file else ()
    prefix = next((prefix for prefix in prefixes if text.startswith(prefix)), "")
    why = _CLASSES.get(number, HeapError)(number, path, text[len(prefix) :])
    why._names_other = names_file and not prefix
    return why
