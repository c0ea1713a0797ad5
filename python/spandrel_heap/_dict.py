"""A map from bytes to bytes in a heap.

    head   kind, pointer to the table
    table  kind, number of slots (a power of two), the slots: 0, 1 for an entry that was removed, or a pointer to an entry
    entry  kind, hash of the key, length of the key, length of the value, key, value; it never changes

An entry is made whole and persisted before the store of a slot publishes it; the entry that it replaces is freed afterwards.
A table grows by a new one, which the head's word publishes.
"""

from __future__ import annotations

import array
import hashlib
import struct
from typing import Any, Iterator, List, MutableMapping, Optional, Tuple

from ._memory import BytesLike, Memory, as_bytes
from ._structure import Structure

_TABLE = int.from_bytes(b"PyTable1", "little")
_ENTRY = int.from_bytes(b"PyEntry1", "little")
_TABLE_HEAD = struct.Struct("<QQ")
_ENTRY_HEAD = struct.Struct("<QQQQ")
_EMPTY, _REMOVED = 0, 1
_LEAST_SLOTS = 8


def _hash(key: bytes) -> int:
    """The same in every process, which hash() is not."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def _new_table(memory: Memory, slots: array.array[int]) -> int:
    """A table with these slots, persisted: its offset."""
    size = _TABLE_HEAD.size + 8 * len(slots)
    table = memory.new(size)
    _TABLE_HEAD.pack_into(memory.bytes, table, _TABLE, len(slots))
    first = (table + _TABLE_HEAD.size) >> 3
    memory.words[first : first + len(slots)] = memoryview(slots)
    memory.persist(table, size)
    return table


def _empty(slots: int) -> array.array[int]:
    return array.array("Q", bytes(8 * slots))


class Dict(Structure, MutableMapping[bytes, bytes]):
    """A persistent map. Keys and values are bytes; a str is stored as UTF-8 and read as bytes. The map has no order.

    Each of `[]=`, `del`, `pop`, `popitem`, `setdefault` and `clear` is all or nothing when the process is killed; `update` is as
    many of them as it has items.
    """

    KIND = int.from_bytes(b"PyDict_1", "little")
    _table: int
    _slots: int
    _first: int
    _used: int
    _len: int
    _changes = 0
    _begin = 0
    """The slot at which iterators begin: those before it are empty where entries are taken away in the order of the slots."""

    @classmethod
    def new(cls, memory: Memory) -> int:
        """An empty map: the word that leads to it."""
        return cls.new_head(memory, _new_table(memory, _empty(_LEAST_SLOTS)))

    def _load(self) -> None:
        memory = self._memory
        word = self._target()
        table = memory.target(word, _TABLE_HEAD.size)
        kind, slots = _TABLE_HEAD.unpack_from(memory.bytes, table)
        if kind != _TABLE or slots < _LEAST_SLOTS or slots & (slots - 1):
            raise memory.damaged(f"there is no table at {table:#x}")
        memory.target(word, _TABLE_HEAD.size + 8 * slots)
        self._set_table(table, slots)
        words = self._words()
        self._used = slots - words.count(_EMPTY)
        self._len = self._used - words.count(_REMOVED)

    def _set_table(self, table: int, slots: int) -> None:
        self._table, self._slots, self._begin = table, slots, 0
        self._first = (table + _TABLE_HEAD.size) >> 3
        # Iterators see that the map has changed.
        self._changes += 1

    def _words(self) -> List[int]:
        """All slots."""
        words: List[int] = self._memory.words[self._first : self._first + self._slots].tolist()
        return words

    def _entry(self, word: int) -> Tuple[int, int, int, int]:
        """An entry's hash, and where its key begins, its value begins and ends."""
        memory = self._memory
        at = memory.target(word, _ENTRY_HEAD.size)
        kind, code, key, value = _ENTRY_HEAD.unpack_from(memory.bytes, at)
        if kind != _ENTRY:
            raise memory.damaged(f"there is no entry at {at:#x}")
        memory.target(word, _ENTRY_HEAD.size + key + value)
        begin = at + _ENTRY_HEAD.size
        return code, begin, begin + key, begin + key + value

    def _find(self, key: bytes, code: int) -> Tuple[Optional[int], int]:
        """The slot of a key, as the index of its word, and the slot that a new key gets."""
        words, first, mask = self._memory.words, self._first, self._slots - 1
        free = None
        for at in range(code, code + self._slots):
            index = first + (at & mask)
            word = words[index]
            if word == _EMPTY:
                return None, index if free is None else free
            if word == _REMOVED:
                free = index if free is None else free
                continue
            known, begin, middle, _ = self._entry(word)
            if known == code and self._memory.bytes[begin:middle] == key:
                return index, index
        if free is None:
            raise self._memory.damaged(f"the table at {self._table:#x} is full")
        return None, free

    def _grow(self, memory: Memory) -> None:
        """Replaces the table by a larger one, a third full at most, without removed entries."""
        slots = _LEAST_SLOTS
        while slots < 3 * (self._len + 1):
            slots *= 2
        new = _empty(slots)
        for word in self._words():
            if word > _REMOVED:
                at = self._entry(word)[0] & (slots - 1)
                while new[at] != _EMPTY:
                    at = (at + 1) & (slots - 1)
                new[at] = word
        table = _new_table(memory, new)
        before = self._table
        self._publish_target(table)
        memory.free(before)
        self._set_table(table, slots)
        self._used = self._len

    def __getitem__(self, key: BytesLike) -> bytes:
        wanted = as_bytes(key)
        with self._entered() as memory:
            index, _ = self._find(wanted, _hash(wanted))
            if index is not None:
                _, _, middle, end = self._entry(memory.words[index])
                return bytes(memory.bytes[middle:end])
        raise KeyError(key)

    def __setitem__(self, key: BytesLike, value: BytesLike) -> None:
        wanted, content = as_bytes(key), as_bytes(value)
        code = _hash(wanted)
        with self._entered() as memory:
            index, free = self._find(wanted, code)
            if index is None and 3 * (self._used + 1) > 2 * self._slots:
                self._grow(memory)
                index, free = self._find(wanted, code)
            head = _ENTRY_HEAD.pack(_ENTRY, code, len(wanted), len(content))
            size = len(head) + len(wanted) + len(content)
            entry = memory.new(size)
            memory.bytes[entry : entry + size] = b"".join((head, wanted, content))
            memory.persist(entry, size)
            before = memory.words[free]
            memory.publish(8 * free, memory.pointer(entry))
            if index is None:
                self._len += 1
                self._used += before == _EMPTY
                self._changes += 1
            else:
                memory.free_word(before)

    def __delitem__(self, key: BytesLike) -> None:
        wanted = as_bytes(key)
        with self._entered() as memory:
            index, _ = self._find(wanted, _hash(wanted))
            if index is None:
                raise KeyError(key)
            self._remove(memory, index)

    def _remove(self, memory: Memory, index: int) -> None:
        """Removes the entry of a slot."""
        before = memory.words[index]
        behind = self._first + ((index + 1 - self._first) & (self._slots - 1))
        # The next slot is empty: no search has to pass this one.
        is_last = memory.words[behind] == _EMPTY
        memory.publish(8 * index, _EMPTY if is_last else _REMOVED)
        self._len -= 1
        self._used -= is_last
        self._changes += 1
        memory.free_word(before)

    def _go_on(self, memory: Memory) -> bool:
        """Has iterators begin at the next entry: empty slots are passed once. Whether there is an entry."""
        words, first, mask = memory.words, self._first, self._slots - 1
        for at in range(self._begin, self._begin + self._slots):
            if words[first + (at & mask)] > _REMOVED:
                self._begin = at & mask
                return True
        return False

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, (bytes, bytearray, memoryview, str)):
            return False
        wanted = as_bytes(key)
        with self._entered():
            return self._find(wanted, _hash(wanted))[0] is not None

    def __len__(self) -> int:
        with self._entered():
            return self._len

    def __iter__(self) -> Iterator[bytes]:
        with self._entered() as memory:
            self._go_on(memory)
            changes, begin, slots = self._changes, self._begin, self._slots
        for at in range(begin, begin + slots):
            with self._entered() as memory:
                if self._changes != changes:
                    raise RuntimeError("the map changed during iteration")
                word = memory.words[self._first + (at & slots - 1)]
                if word <= _REMOVED:
                    continue
                _, start, middle, _ = self._entry(word)
                key = bytes(memory.bytes[start:middle])
            yield key

    def clear(self) -> None:
        """Removes all entries, all or nothing."""
        with self._entered() as memory:
            words, before = self._words(), self._table
            table = _new_table(memory, _empty(_LEAST_SLOTS))
            self._publish_target(table)
            self._set_table(table, _LEAST_SLOTS)
            self._used = self._len = 0
            _free_entries(memory, words)
            memory.free(before)

    def pop(self, key: BytesLike, *default: Any) -> Any:
        """Removes an entry and returns its value, or the default."""
        with self._memory.lock:
            return super().pop(as_bytes(key), *default)

    def popitem(self) -> Tuple[bytes, bytes]:
        """Removes an arbitrary entry, and returns it."""
        with self._entered() as memory:
            if not self._go_on(memory):
                raise KeyError("the map is empty")
            index = self._first + self._begin
            _, begin, middle, end = self._entry(memory.words[index])
            item = bytes(memory.bytes[begin:middle]), bytes(memory.bytes[middle:end])
            self._remove(memory, index)
            return item

    def setdefault(self, key: BytesLike, default: BytesLike = b"") -> bytes:
        """The value of a key, which gets the default if it has none."""
        with self._memory.lock:
            if key not in self:
                self[key] = default
            return self[key]

    def free_all(self) -> None:
        """Frees all objects of the map, which no root leads to any more."""
        with self._entered() as memory:
            head = self._head
            assert head is not None
            # First: after an exception below no use of this map reaches what was freed.
            self.detach()
            _free_entries(memory, self._words())
            memory.free(self._table)
            memory.free(head)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._memory.path!r}>"


def _free_entries(memory: Memory, words: List[int]) -> None:
    for word in words:
        if word > _REMOVED:
            memory.free_word(word)
