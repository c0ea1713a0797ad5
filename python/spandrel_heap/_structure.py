"""The common part of maps and lists: a head object that a root leads to, and the state that the process keeps of it."""

from __future__ import annotations

import contextlib
import errno
from typing import Iterator, Optional

from ._errors import HeapError
from ._memory import Memory

HEAD_BYTES = 16
"""A head: its kind, and a pointer to all else."""


class Structure:
    """A structure in a heap; its head's second word is what changes when it grows."""

    KIND: int

    def __init__(self, memory: Memory, head: int) -> None:
        self._memory = memory
        self._head: Optional[int] = memory.target(head, HEAD_BYTES)
        self._is_loaded = False

    @classmethod
    def new_head(cls, memory: Memory, to: int) -> int:
        """A head, persisted, that leads to the object at an offset: the word that leads to the head."""
        return memory.pointer(memory.new_words(cls.KIND, memory.pointer(to)))

    def detach(self) -> None:
        """Ends the use of the structure: its root leads elsewhere."""
        self._head = None

    @contextlib.contextmanager
    def _entered(self) -> Iterator[Memory]:
        """The memory, locked. After an exception, KeyboardInterrupt among them, what the process knows is read anew."""
        memory = self._memory
        with memory.lock:
            memory.handle()
            if self._head is None:
                raise HeapError(errno.EINVAL, memory.path, "the root of this structure was removed or set to another")
            try:
                if not self._is_loaded:
                    self._load()
                    self._is_loaded = True
                yield memory
            except BaseException:
                self._is_loaded = False
                raise

    def _load(self) -> None:
        raise NotImplementedError

    def _target(self) -> int:
        """The word in the head."""
        assert self._head is not None
        return self._memory.words[(self._head >> 3) + 1]

    def _publish_target(self, offset: int) -> None:
        """Sets the head to another object."""
        assert self._head is not None
        self._memory.publish(self._head + 8, self._memory.pointer(offset))
