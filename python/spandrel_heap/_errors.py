"""What can fail, as exceptions with the number, the path and the reason."""

from __future__ import annotations

import errno
from typing import Dict, Tuple, Type


class LibraryNotFoundError(ImportError):
    """The library libspandrel_heap is not installed, or SPANDREL_HEAP_LIB names no such library."""


class HeapError(OSError):
    """An operation on a heap failed; the heap is as it was before.

    ``errno`` is the number, as spandrel_heap.h lists it for each function; ``filename`` is the heap's file; ``reason`` is
    the cause in words.
    """

    def __init__(self, number: int, path: str, reason: str) -> None:
        super().__init__(number, reason, path)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return self.reason if self.path in self.reason else f"{self.path}: {self.reason}"

    def __reduce__(self) -> Tuple[Type[HeapError], Tuple[int, str, str]]:
        return type(self), (self.errno or 0, self.path, self.reason)


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


def error(number: int, path: str, reason: str) -> HeapError:
    """The exception for a number. The library's text begins with the path where a heap is made or opened."""
    prefix = path + ": "
    if reason.startswith(prefix):
        reason = reason[len(prefix) :]
    return _CLASSES.get(number, HeapError)(number, path, reason)
