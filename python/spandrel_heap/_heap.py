"""An open heap, its roots, and copies of it."""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import threading
from types import TracebackType
from typing import Dict as DictOf
from typing import Iterator, MutableMapping, NamedTuple, Optional, Type, TypeVar, Union

from . import _library
from ._dict import Dict
from ._errors import HeapTypeError
from ._library import c_string, failed, library
from ._list import List
from ._memory import BytesLike, Memory, as_bytes

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Value = Union[bytes, Dict, List]
_S = TypeVar("_S", Dict, List)

_WAIT_SECONDS = 10.0
_BETWEEN_CHECKPOINTS_SECONDS = 0.001


class Medium(enum.IntEnum):
    """What a heap lies on. The file remembers what it was made with."""

    AUTO = 0
    """Mapped on tmpfs and on persistent memory, logged elsewhere."""
    MAPPED = 1
    """Stores are the file's: they survive the process, and power only on persistent memory."""
    LOGGED = 2
    """The file changes from checkpoint to checkpoint, which survives power."""


class Guarantee(enum.IntEnum):
    """What stores to a heap survive."""

    PROCESS = 1
    """The end of the process, in the order of the stores."""
    FILE = 2
    """Also a loss of power: what a checkpoint has made durable, nothing else."""
    DAX = 3
    """Also a loss of power: what was persisted."""


class Collected(NamedTuple):
    """What a collection has found."""

    live: int
    """Objects that can be reached."""
    live_bytes: int
    freed_blocks: int
    """Blocks of 64 KiB that became free."""
    freed: int
    """Objects that became free."""
    cleared: int
    """Pointers that led nowhere."""


def _path(path: Path) -> bytes:
    return c_string(os.fsencode(path), "the path")


def _collected(found: _library.Found) -> Collected:
    return Collected(found.live, found.live_bytes, found.freed_blocks, found.freed, found.cleared)


def _found() -> _library.Found:
    return _library.Found(struct_size=ctypes.sizeof(_library.Found))


class Heap:
    """An open heap, for one process at a time; its threads may share it.

    It is opened by `open`, `create` and `open_or_create`, and closed by `close` or at the end of a `with` block. A heap that is not
    closed when the process ends is recovered when it is opened.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._structures: DictOf[str, Union[Dict, List]] = {}
        self._indexes: DictOf[str, int] = {}
        found = _found()
        is_recovered = memory.check(library().spandrel_heap_recovered(memory.handle(), ctypes.byref(found))) == 1
        self.recovered: Optional[Collected] = _collected(found) if is_recovered else None
        """What recovery has found; None: the heap had been closed, or is new."""
        self.is_new: bool = memory.check(library().spandrel_heap_is_new(memory.handle())) == 1
        """Whether the heap was made just now."""
        self.roots = Roots(self)
        """All roots that have a name."""

    @classmethod
    def _started(
        cls, start: str, path: Path, size: int, limit: int, layout: int, medium: Medium, read_only: bool = False
    ) -> Heap:
        name = _path(path)
        options = _library.Options(
            struct_size=ctypes.sizeof(_library.Options),
            size=size,
            limit=limit,
            layout=layout,
            medium=medium,
            read_only=read_only,
        )
        handle = getattr(library(), "spandrel_heap_" + start)(name, ctypes.byref(options))
        if handle is None:
            raise failed(os.fsdecode(name), names_file=True)
        return cls(Memory(handle, os.fsdecode(name), read_only))

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        limit: int = 0,
        layout: int = 0,
        medium: Medium = Medium.AUTO,
        read_only: bool = False,
    ) -> Heap:
        """Opens a heap, and recovers it if it was not closed.

        `limit` is how many bytes the heap may have at most (0: 256 GiB), `layout` the program's number of its layout of
        objects (0: any).

        With `read_only` a copy in memory of the last checkpoint is opened, and changes are refused (`EROFS`). Another process may
        have the heap open. The file need not be writable, unless another process has the heap open and mapped.
        """
        return cls._started("open", path, 0, limit, layout, medium, read_only)

    @classmethod
    def create(
        cls, path: Path, *, size: int = 0, limit: int = 0, layout: int = 0, medium: Medium = Medium.AUTO
    ) -> Heap:
        """Makes a heap in a new file, of `size` bytes to begin with (0: 64 MiB)."""
        return cls._started("start", path, size, limit, layout, medium)

    @classmethod
    def open_or_create(
        cls, path: Path, *, size: int = 0, limit: int = 0, layout: int = 0, medium: Medium = Medium.AUTO
    ) -> Heap:
        """Opens a heap, or makes it if there is no such file."""
        return cls._started("open_or_create", path, size, limit, layout, medium)

    def __enter__(self) -> Heap:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], why: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the heap; closed a second time, it does nothing. HeapError: it is recovered when it is opened."""
        self._memory.close()

    @property
    def closed(self) -> bool:
        """Whether the heap can no longer be used."""
        return not self._memory.is_open

    @property
    def path(self) -> str:
        """The heap's file."""
        return self._memory.path

    @property
    def bytes(self) -> int:
        """The size of the heap; it grows."""
        with self._memory.lock:
            size: int = library().spandrel_heap_bytes(self._memory.handle())
            return size

    @property
    def guarantee(self) -> Guarantee:
        """What stores survive."""
        with self._memory.lock:
            return Guarantee(self._memory.check(library().spandrel_heap_guarantee(self._memory.handle())))

    def checkpoint(self) -> None:
        """Makes all that was stored durable, on every medium. Other threads wait meanwhile."""
        with self._memory.lock:
            self._memory.check(library().spandrel_heap_checkpoint(self._memory.handle()))

    def collect(self) -> Collected:
        """Frees what cannot be reached from the roots."""
        with self._memory.lock:
            found = _found()
            self._memory.check(library().spandrel_heap_collect(self._memory.handle(), ctypes.byref(found)))
            return _collected(found)

    def copy(self, to: Path, wait: float = _WAIT_SECONDS) -> None:
        """Writes a copy of the heap as it is now to a new file, while the heap stays open.

        The file is there whole or not at all; it is opened as any heap, and recovered then.
        """
        with self._memory.lock:
            self.checkpoint()
            outcome: list[BaseException] = []

            def work() -> None:
                try:
                    copy(self.path, to, wait)
                except BaseException as why:
                    outcome.append(why)

            copying = threading.Thread(target=work, name="spandrel-heap-copy", daemon=True)
            copying.start()
            # A mapped heap is lent to the copy at a checkpoint.
            while copying.is_alive():
                if self.guarantee is not Guarantee.FILE:
                    self.checkpoint()
                copying.join(_BETWEEN_CHECKPOINTS_SECONDS)
            if outcome:
                raise outcome[0]

    def dict(self, name: str) -> Dict:
        """The map of a name, made if there is none. HeapTypeError: the root of that name leads to something else."""
        return self._structure(Dict, name)

    def list(self, name: str) -> List:
        """The list of a name, made if there is none. HeapTypeError: the root of that name leads to something else."""
        return self._structure(List, name)

    def _structure(self, kind: Type[_S], name: str) -> _S:
        with self._memory.lock:
            if self._word(name) == 0:
                # A wrong name is an error before anything is allocated.
                self._index(name)
                self._set(name, kind.new(self._memory))
            value = self._value(name)
            if isinstance(value, kind):
                return value
            raise self._wrong_kind(name)

    def _wrong_kind(self, name: str) -> HeapTypeError:
        return HeapTypeError(errno.EPROTOTYPE, self.path, f"the root {name!r} leads to an object of another kind")

    def _index(self, name: str) -> int:
        """The number of the root of that name, which gets one if it has none."""
        if name not in self._indexes:
            text = c_string(name.encode(), "the name of a root")
            self._indexes[name] = self._memory.check(library().spandrel_heap_named_root(self._memory.handle(), text))
        return self._indexes[name]

    def _names(self) -> Iterator[tuple[int, str]]:
        """Numbers and names of all named roots."""
        room = ctypes.create_string_buffer(_library.NAME_BYTES)
        for index in range(_library.ROOTS):
            handle = self._memory.handle()
            if self._memory.check(library().spandrel_heap_root_name(handle, index, room, len(room))) > 0:
                yield index, room.value.decode()

    def _word(self, name: str) -> int:
        """The word that a root leads to; 0: nothing, or there is no such root."""
        handle = self._memory.handle()
        if name not in self._indexes:
            self._indexes.update((known, index) for index, known in self._names())
        if name not in self._indexes:
            return 0
        address = library().spandrel_heap_get_root(handle, self._indexes[name])
        return 0 if address is None else self._memory.word_of(address)

    def _set(self, name: str, word: int) -> None:
        address = self._memory.address(word)
        outcome = library().spandrel_heap_set_root(self._memory.handle(), self._index(name), address)
        self._memory.check(outcome)

    def _value(self, name: str) -> Optional[Value]:
        """What a root leads to; None: to nothing."""
        memory, word = self._memory, self._word(name)
        if word == 0:
            return None
        if name in self._structures:
            return self._structures[name]
        kind = memory.kind(word)
        for structure in (Dict, List):
            if kind == structure.KIND:
                return self._structures.setdefault(name, structure(memory, word))
        if memory.is_blob(word):
            return memory.blob(word)
        raise self._wrong_kind(name)

    def _free(self, name: str, word: int) -> None:
        """Frees the objects that a root led to. Objects of an unknown kind are left to the next collection."""
        memory = self._memory
        kind = memory.kind(word)
        structure = self._structures.pop(name, None)
        if structure is None:
            structure = next((known(memory, word) for known in (Dict, List) if kind == known.KIND), None)
        if structure is not None:
            structure.free_all()
        elif memory.is_blob(word):
            memory.free_word(word)

    def __repr__(self) -> str:
        return f"<Heap {self.path!r}{'' if not self.closed else ', closed'}>"


class Roots(MutableMapping[str, Value]):
    """The roots of a heap by name: each leads to bytes, a Dict or a List. Bytes can be set; a str is stored as UTF-8.

    Every operation is all or nothing when the process is killed. A name has 1 to 40 bytes.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    def __getitem__(self, name: str) -> Value:
        heap = self._heap
        with heap._memory.lock:
            value = heap._value(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: BytesLike) -> None:  # type: ignore[override]
        content, heap = as_bytes(value), self._heap
        with heap._memory.lock:
            before = heap._word(name)
            # A wrong name is an error before anything is allocated.
            heap._index(name)
            heap._set(name, heap._memory.new_blob(content))
            if before:
                heap._free(name, before)

    def __delitem__(self, name: str) -> None:
        heap = self._heap
        with heap._memory.lock:
            before = heap._word(name)
            if not before:
                raise KeyError(name)
            heap._memory.check(library().spandrel_heap_remove_root(heap._memory.handle(), name.encode()))
            heap._indexes.pop(name, None)
            heap._free(name, before)

    def __contains__(self, name: object) -> bool:
        heap = self._heap
        with heap._memory.lock:
            return isinstance(name, str) and heap._word(name) != 0

    def __iter__(self) -> Iterator[str]:
        heap = self._heap
        with heap._memory.lock:
            names = [name for _, name in heap._names()]
            return iter([name for name in names if heap._word(name)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def copy(path: Path, to: Path, wait: float = _WAIT_SECONDS) -> None:
    """Writes a copy of a heap to a new file, whether or not a program has the heap open.

    Of an open heap that keeps a log, the copy is the last checkpoint. An open heap that is mapped is copied at the next
    checkpoint of its process, for which `wait` seconds are waited. For a heap that this process has open there is `Heap.copy`.
    """
    name = _path(path)
    milliseconds = max(1, round(1000 * wait))
    if library().spandrel_heap_copy(name, _path(to), milliseconds) != 0:
        raise failed(os.fsdecode(name), names_file=True)
