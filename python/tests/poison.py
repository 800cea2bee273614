"""Arrays that tell of who uses them too late: freed ones stay where they were, and
whoever touches them then, in C too, dies of SIGSEGV."""

import ctypes
import sys

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PAGE = 4096
_NOTHING, _READ_WRITE, _PRIVATE_ANONYMOUS = 0, 3, 0x22

#: How many arrays were freed.
freed = []


def doubles(count, value=0.0):
    """An array of ctypes."""
    size = -(-count * 8 // _PAGE) * _PAGE
    address = _libc.mmap(None, size, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), "mmap"

    def poison(self, protect=_libc.mprotect, freed=freed):
        protect(address, size, _NOTHING)
        freed.append(address)

    array = type("Doubles", (ctypes.c_double * count,), {"__del__": poison}).from_address(address)
    array[:] = [value] * count
    return array


def numbers(count, value=0.0):
    """The same as an array of numpy where there is numpy."""
    try:
        import numpy
    except ImportError:
        return doubles(count, value)
    return numpy.frombuffer(doubles(count, value), "float64")


class AtTheEnd:
    """Calls a function when the interpreter has unloaded all modules but its own."""

    def __init__(self, function):
        self._function = function
        sys.poison_at_the_end = self  # sys is the last of all

    def __del__(self):
        self._function()
