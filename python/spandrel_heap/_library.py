"""libspandrel_heap: found, loaded, and its functions declared for ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from ._errors import HeapError, LibraryNotFoundError, error

ROOTS = 512
"""Roots of a heap."""

NAME_BYTES = 41
"""Room for the name of a root, with the zero that ends it."""


class Options(ctypes.Structure):
    """struct spandrel_heap_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("size", c_size_t),
        ("limit", c_size_t),
        ("layout", c_uint64),
        ("fixed", c_int),
        ("medium", c_int),
        ("types", c_void_p),
        ("type_count", c_size_t),
        ("read_only", c_int),
        ("sums", c_int),
    ]


class Found(ctypes.Structure):
    """struct spandrel_heap_collected."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("live", c_uint64),
        ("live_bytes", c_uint64),
        ("freed_blocks", c_uint64),
        ("freed", c_uint64),
        ("cleared", c_uint64),
    ]


# Name: (result, arguments). A handle and an address are void pointers.
_FUNCTIONS = {
    "start": (c_void_p, [c_char_p, POINTER(Options)]),
    "open": (c_void_p, [c_char_p, POINTER(Options)]),
    "open_or_create": (c_void_p, [c_char_p, POINTER(Options)]),
    "is_new": (c_int, [c_void_p]),
    "close": (c_int, [c_void_p]),
    "collect": (c_int, [c_void_p, POINTER(Found)]),
    "recovered": (c_int, [c_void_p, POINTER(Found)]),
    "malloc": (c_void_p, [c_void_p, c_size_t]),
    "free": (c_int, [c_void_p, c_void_p]),
    "usable_size": (c_size_t, [c_void_p, c_void_p]),
    "set_root": (c_int, [c_void_p, c_uint, c_void_p]),
    "get_root": (c_void_p, [c_void_p, c_uint]),
    "named_root": (c_int, [c_void_p, c_char_p]),
    "remove_root": (c_int, [c_void_p, c_char_p]),
    "root_name": (c_int, [c_void_p, c_uint, c_char_p, c_size_t]),
    "base": (c_void_p, [c_void_p]),
    "bytes": (c_size_t, [c_void_p]),
    "guarantee": (c_int, [c_void_p]),
    "persist": (c_int, [c_void_p, c_void_p, c_size_t]),
    "checkpoint": (c_int, [c_void_p]),
    "copy": (c_int, [c_char_p, c_char_p, c_uint]),
    "error_text": (c_char_p, []),
}


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library: the one that SPANDREL_HEAP_LIB names, or else the one that the dynamic linker finds.

    Raises LibraryNotFoundError.
    """
    named = os.environ.get("SPANDREL_HEAP_LIB")
    name = named or "libspandrel_heap.so.0"
    try:
        loaded = ctypes.CDLL(name, use_errno=True)
        for function, (result, arguments) in _FUNCTIONS.items():
            declared = getattr(loaded, "spandrel_heap_" + function)
            declared.restype, declared.argtypes = result, arguments
    except (OSError, AttributeError) as why:
        advice = (
            "SPANDREL_HEAP_LIB has to name libspandrel_heap.so"
            if named
            else "install it (make install, then ldconfig), or set SPANDREL_HEAP_LIB to the path of libspandrel_heap.so"
        )
        raise LibraryNotFoundError(f"{name} cannot be loaded: {why}; {advice}", name=name) from why
    return loaded


def c_string(text: bytes, what: str) -> bytes:
    """A string for C, where a zero byte would cut off the rest. Raises ValueError."""
    if b"\0" in text:
        raise ValueError(f"embedded zero byte in {what} {text!r}")
    return text


def failed(path: str, names_file: bool = False) -> HeapError:
    """The exception for the function of the library that has just failed in this thread; `names_file`: it makes, opens or copies a heap."""
    number = ctypes.get_errno()
    text: bytes = library().spandrel_heap_error_text() or b""
    return error(number, path, text.decode(errors="replace") or os.strerror(number), names_file)
