"""The memory of an open heap: objects by their offsets, words that are replaced as a whole.

A change of a structure is one store of one word of 8 bytes (`Memory.publish`): whatever the word leads to is persisted before,
and what the old word led to is freed afterwards. A memoryview of format "Q" stores an item by a copy of 8 bytes, which
CPython's compiler makes one instruction; so a process that is killed leaves the old word or the new one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
import weakref
from typing import List, Optional, Tuple, Union

from ._errors import HeapDamagedError, HeapError
from ._library import failed, library

BytesLike = Union[bytes, bytearray, memoryview, str]

_TAG = 0x50A7 << 48
_OFFSET = (1 << 48) - 1

_BLOB = int.from_bytes(b"PyBytes1", "little")
_BLOB_HEAD = struct.Struct("<QQ")


def as_bytes(value: BytesLike) -> bytes:
    """Bytes of a key or a value; a str is encoded as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a heap holds bytes or str, not {type(value).__name__}")


class Memory:
    """An open heap and its bytes. Callers hold `lock`."""

    def __init__(self, handle: int, path: str, is_read_only: bool = False) -> None:
        self.path = path
        self._is_read_only = is_read_only
        self.lock = threading.RLock()
        self._handle: Optional[int] = handle
        self._base: int = library().spandrel_heap_base(handle)
        self._close = weakref.finalize(self, library().spandrel_heap_close, handle)
        # At exit, other threads may still use the memory: a heap that the program has not closed is recovered.
        self._close.atexit = False
        self._is_child = False
        self._map()
        _OPEN.add(self)

    def _map(self) -> None:
        """Makes views of all bytes of the heap, which grows in place."""
        self._length: int = library().spandrel_heap_bytes(self._handle)
        memory = memoryview((ctypes.c_ubyte * self._length).from_address(self._base)).cast("B")
        self.bytes = memory.toreadonly() if self._is_read_only else memory
        self.words = self.bytes.cast("Q")

    def close(self) -> None:
        """Closes the heap; closed a second time, it does nothing."""
        with self.lock:
            if self._handle is None:
                return
            self._forget()
            self._close.detach()
            handle, self._handle = self._handle, None
            # In a child the library refuses to close the heap of the parent, which is no error here.
            if library().spandrel_heap_close(handle) != 0 and not self._is_child:
                raise failed(self.path)

    def _forget(self) -> None:
        self.bytes = memoryview(b"")
        self.words = self.bytes.cast("Q")
        self._length = 0

    def after_fork(self) -> None:
        """Ends the use of the heap in the child of a fork: a store of the child would change the parent's file."""
        self.lock = threading.RLock()
        self._close.detach()
        self._forget()
        self._is_child = True

    @property
    def is_open(self) -> bool:
        """Whether the heap can be used."""
        return self._handle is not None and not self._is_child

    def handle(self) -> int:
        """The handle for functions of the library. Raises HeapError if the heap is closed or the parent's."""
        if self._is_child:
            raise HeapError(errno.EPERM, self.path, "the heap was opened by the parent of this process")
        if self._handle is None:
            raise HeapError(errno.EINVAL, self.path, "the heap is closed")
        return self._handle

    def check(self, outcome: int) -> int:
        """The outcome of a function that returns -1 when it fails."""
        if outcome < 0:
            raise failed(self.path)
        return outcome

    def new(self, size: int) -> int:
        """Allocates an object: its offset.

        Recovery looks at every word of an object, also behind the bytes that were wanted: what an earlier object has left there
        must not keep other objects.
        """
        handle = self.handle()
        address = library().spandrel_heap_malloc(handle, size)
        if address is None:
            raise failed(self.path)
        offset: int = address - self._base
        room: int = library().spandrel_heap_usable_size(handle, address)
        if offset + room > self._length:
            self._map()
        self.bytes[offset + size : offset + room] = bytes(room - size)
        return offset

    def free(self, offset: int) -> None:
        """Frees an object, to which no word of the heap leads any more."""
        self.check(library().spandrel_heap_free(self.handle(), self._base + offset))

    def persist(self, offset: int, length: int) -> None:
        """Writes bytes back and waits."""
        self.check(library().spandrel_heap_persist(self.handle(), self._base + offset, length))

    def publish(self, offset: int, word: int) -> None:
        """Replaces a word, all or nothing, and persists it."""
        handle = self.handle()
        if self._is_read_only:
            raise HeapError(errno.EROFS, self.path, "the heap was opened read only, and refuses changes")
        self.words[offset >> 3] = word
        self.check(library().spandrel_heap_persist(handle, self._base + offset, 8))

    @staticmethod
    def pointer(offset: int) -> int:
        """The word that leads to an object."""
        return _TAG | offset

    def address(self, word: int) -> int:
        """Where the object of a word is in this process."""
        return self._base + (word & _OFFSET)

    def word_of(self, address: int) -> int:
        """The word that leads to an address of the heap."""
        return self.pointer(address - self._base)

    def target(self, word: int, size: int) -> int:
        """The offset of the object of at least `size` bytes that a word leads to."""
        offset = word & _OFFSET
        if word & ~_OFFSET != _TAG or offset & 7:
            raise self.damaged(f"{word:#x} is no pointer")
        if offset + size > self._length:
            self._map()
            if offset + size > self._length:
                raise self.damaged(f"the pointer {word:#x} leads out of the heap")
        return offset

    def damaged(self, reason: str) -> HeapDamagedError:
        """The exception for a state that no operation leaves."""
        return HeapDamagedError(errno.EBADMSG, self.path, f"the heap is damaged: {reason}")

    def kind(self, word: int) -> int:
        """The first word of an object."""
        return self.words[self.target(word, 8) >> 3]

    def new_words(self, *words: int) -> int:
        """An object of these words, persisted: its offset."""
        offset = self.new(8 * len(words))
        struct.pack_into(f"<{len(words)}Q", self.bytes, offset, *words)
        self.persist(offset, 8 * len(words))
        return offset

    def new_blob(self, value: bytes) -> int:
        """An object of bytes, persisted: the word that leads to it."""
        size = _BLOB_HEAD.size + len(value)
        offset = self.new(size)
        _BLOB_HEAD.pack_into(self.bytes, offset, _BLOB, len(value))
        self.bytes[offset + _BLOB_HEAD.size : offset + size] = value
        self.persist(offset, size)
        return self.pointer(offset)

    def new_blobs(self, values: List[bytes]) -> List[int]:
        """Objects of bytes, persisted, all or none: the words that lead to them."""
        made: List[int] = []
        try:
            for value in values:
                made.append(self.new_blob(value))
        except BaseException:
            for word in made:
                self.free_word(word)
            raise
        return made

    def is_blob(self, word: int) -> bool:
        """Whether a word leads to an object of bytes."""
        return self.kind(word) == _BLOB

    def blob(self, word: int) -> bytes:
        """The bytes of such an object."""
        offset, length = self._blob(word)
        return bytes(self.bytes[offset : offset + length])

    def _blob(self, word: int) -> Tuple[int, int]:
        offset = self.target(word, _BLOB_HEAD.size)
        kind, length = _BLOB_HEAD.unpack_from(self.bytes, offset)
        if kind != _BLOB:
            raise self.damaged(f"there are no bytes at {offset:#x}")
        return self.target(word, _BLOB_HEAD.size + length) + _BLOB_HEAD.size, length

    def free_word(self, word: int) -> None:
        """Frees the object that a word leads to."""
        self.free(self.target(word, 8))


_OPEN: weakref.WeakSet[Memory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in list(_OPEN):
        memory.after_fork()


os.register_at_fork(after_in_child=_after_fork)
