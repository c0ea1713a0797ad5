"""A list of bytes in a heap.

    head   kind, pointer to the array
    array  kind, capacity, length, 0, the slots: pointers to objects of bytes, and beyond the length anything

An item is appended by the store of the length, replaced by the store of its slot; all else makes a new array, which the head's
word publishes.
"""

from __future__ import annotations

import array
import struct
from typing import Iterable, List as ListOf, MutableSequence, Union, overload

from ._memory import BytesLike, Memory, as_bytes
from ._structure import Structure

_ARRAY = int.from_bytes(b"PyArray1", "little")
_ARRAY_HEAD = struct.Struct("<QQQQ")
_LENGTH_AT = 16
_LEAST_CAPACITY = 8


def _new_array(memory: Memory, words: ListOf[int]) -> int:
    """An array of these slots with room for as many more, persisted: its offset."""
    capacity = max(2 * len(words), _LEAST_CAPACITY)
    size = _ARRAY_HEAD.size + 8 * capacity
    at = memory.new(size)
    _ARRAY_HEAD.pack_into(memory.bytes, at, _ARRAY, capacity, len(words), 0)
    first = (at + _ARRAY_HEAD.size) >> 3
    slots = array.array("Q", words)
    slots.frombytes(bytes(8 * (capacity - len(words))))
    memory.words[first : first + capacity] = memoryview(slots)
    memory.persist(at, size)
    return at


class List(Structure, MutableSequence[bytes]):
    """A persistent list of bytes; a str is stored as UTF-8 and read as bytes.

    Every operation is all or nothing when the process is killed, also `extend`, `clear` and those of slices. An operation at the
    end of the list and the replacement of an item take constant time, amortised; every other one takes time linear in the list.
    """

    KIND = int.from_bytes(b"PyList_1", "little")
    _array: int
    _capacity: int
    _first: int
    _len: int

    @classmethod
    def new(cls, memory: Memory) -> int:
        """An empty list: the word that leads to it."""
        return cls.new_head(memory, _new_array(memory, []))

    def _load(self) -> None:
        memory = self._memory
        word = self._target()
        at = memory.target(word, _ARRAY_HEAD.size)
        kind, capacity, length, _ = _ARRAY_HEAD.unpack_from(memory.bytes, at)
        if kind != _ARRAY or length > capacity:
            raise memory.damaged(f"there is no array at {at:#x}")
        memory.target(word, _ARRAY_HEAD.size + 8 * capacity)
        self._array, self._capacity, self._len = at, capacity, length
        self._first = (at + _ARRAY_HEAD.size) >> 3
        # A failure has cut off an append or a pop: no other slot leads to the objects of slots beyond the length.
        for slot, left in enumerate(memory.words[self._first + length : self._first + capacity].tolist()):
            if left:
                memory.publish(8 * (self._first + length + slot), 0)
                memory.free_word(left)

    def _words(self) -> ListOf[int]:
        words: ListOf[int] = self._memory.words[self._first : self._first + self._len].tolist()
        return words

    def _index(self, index: int) -> int:
        """The place of an item, counted from the beginning."""
        place = index + self._len if index < 0 else index
        if not 0 <= place < self._len:
            raise IndexError("list index out of range")
        return place

    def _set_length(self, length: int) -> None:
        self._memory.publish(self._array + _LENGTH_AT, length)
        self._len = length

    def _replace(self, memory: Memory, words: ListOf[int]) -> None:
        """Replaces the slots by these, and frees the items that are not among them. If that fails, the new items are freed."""
        before, old = self._array, self._words()
        try:
            new = _new_array(memory, words)
        except BaseException:
            known = set(old)
            for word in words:
                if word not in known:
                    memory.free_word(word)
            raise
        self._publish_target(new)
        self._load()
        kept = set(words)
        for word in old:
            if word not in kept:
                memory.free_word(word)
        memory.free(before)

    def _append(self, memory: Memory, values: Iterable[BytesLike]) -> None:
        contents = [as_bytes(value) for value in values]
        length = self._len + len(contents)
        if length > self._capacity:
            self._replace(memory, self._words() + memory.new_blobs(contents))
            return
        for slot, word in enumerate(memory.new_blobs(contents), self._first + self._len):
            # Beyond the length the word means nothing.
            memory.words[slot] = word
        memory.persist(8 * (self._first + self._len), 8 * len(contents))
        self._set_length(length)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> ListOf[bytes]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[bytes, ListOf[bytes]]:
        with self._entered() as memory:
            if isinstance(index, slice):
                return [memory.blob(word) for word in self._words()[index]]
            return memory.blob(memory.words[self._first + self._index(index)])

    def __setitem__(self, index, value) -> None:  # type: ignore[no-untyped-def]
        """Replaces an item, or the items of a slice."""
        if isinstance(index, slice):
            contents = [as_bytes(item) for item in value]
            with self._entered() as memory:
                words = self._words()
                count = len(range(*index.indices(len(words))))
                if index.step not in (None, 1) and count != len(contents):
                    raise ValueError(f"{len(contents)} items for a slice of {count}")
                words[index] = memory.new_blobs(contents)
                self._replace(memory, words)
            return
        content = as_bytes(value)
        with self._entered() as memory:
            slot = self._first + self._index(index)
            new = memory.new_blob(content)
            before = memory.words[slot]
            memory.publish(8 * slot, new)
            memory.free_word(before)

    def __delitem__(self, index: Union[int, slice]) -> None:
        with self._entered() as memory:
            if not isinstance(index, slice):
                place = self._index(index)
                if place == self._len - 1:
                    self._remove_last(memory)
                    return
                index = slice(place, place + 1)
            words = self._words()
            del words[index]
            self._replace(memory, words)

    def _remove_last(self, memory: Memory) -> None:
        slot = self._first + self._len - 1
        before = memory.words[slot]
        self._set_length(self._len - 1)
        # Recovery looks at every word: this one must not keep the object.
        memory.publish(8 * slot, 0)
        memory.free_word(before)

    def __len__(self) -> int:
        with self._entered():
            return self._len

    def insert(self, index: int, value: BytesLike) -> None:
        """Puts an item before the one of that index."""
        content = as_bytes(value)
        with self._entered() as memory:
            if index >= self._len:
                self._append(memory, [content])
                return
            words = self._words()
            words.insert(index, memory.new_blob(content))
            self._replace(memory, words)

    def append(self, value: BytesLike) -> None:
        """Appends an item."""
        self.extend((value,))

    def extend(self, values: Iterable[BytesLike]) -> None:
        """Appends all of the values, or none of them."""
        contents = list(values)
        with self._entered() as memory:
            self._append(memory, contents)

    def __iadd__(self, values: Iterable[BytesLike]) -> List:
        self.extend(values)
        return self

    def pop(self, index: int = -1) -> bytes:
        """Removes an item and returns it."""
        with self._memory.lock:
            value: bytes = self[index]
            del self[index]
            return value

    def clear(self) -> None:
        """Removes all items, all or nothing."""
        del self[:]

    def reverse(self) -> None:
        """Turns the list around, all or nothing."""
        with self._entered() as memory:
            self._replace(memory, self._words()[::-1])

    def free_all(self) -> None:
        """Frees all objects of the list, which no root leads to any more."""
        with self._entered() as memory:
            head = self._head
            assert head is not None
            # First: after an exception below no use of this list reaches what was freed.
            self.detach()
            for word in self._words():
                memory.free_word(word)
            memory.free(self._array)
            memory.free(head)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._memory.path!r}>"
