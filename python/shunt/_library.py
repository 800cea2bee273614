"""libshunt.so: finding it, the prototypes of shunt.h, and errors.

The library is loaded at the first use, not at import, so that a program may
import shunt, fork, and use it in the children.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _quick, _tables
from ._tables import Code, ShuntError

UNIQUE_ID_BYTES = 512
NO_COLOR = -1
DEVICE_AUTO = -1
PENDING = -1


# Kept: another interpreter of the process that imports ctypes empties the table by which ctypes.pointer finds it.
WORD = POINTER(c_int32)


class Options(ctypes.Structure):
    """shunt_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int32),
        ("world", c_int32),
        ("id", c_char_p),
        ("transports", c_char_p),
        ("timeout_ms", c_int64),
        ("device", c_int32),
        ("memory", c_uint32),
        ("flags", c_uint64),
        ("cancel", WORD),
        ("max_sms", c_int32),
        ("reserved", c_int32),
        ("label", c_char_p),
    ]


class Operation(ctypes.Structure):
    """shunt_operation."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("collective", c_uint32),
        ("dtype", c_uint32),
        ("op", c_uint32),
        ("root", c_int32),
        ("scalar", c_double),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_int64),
        ("send_counts", POINTER(c_int64)),
        ("send_displs", POINTER(c_int64)),
        ("recv_counts", POINTER(c_int64)),
        ("recv_displs", POINTER(c_int64)),
        ("window", c_void_p),
        ("offset", c_int64),
        ("stream", c_void_p),
        ("counts_on_device", c_uint32),
        ("reserved", c_uint32),
        ("send_capacity", c_int64),
        ("recv_capacity", c_int64),
    ]


OPERATION_SIZE = ctypes.sizeof(Operation)

# Arrays of counts and displacements go as addresses; see _collectives.
_array = c_void_p

_PROTOTYPES: dict[str, list[Any]] = {
    "shunt_set_log": [c_void_p, c_void_p, c_uint32],
    "shunt_version": [POINTER(c_int32), POINTER(c_int32), POINTER(c_int32)],
    "shunt_get_unique_id": [c_char_p, c_size_t],
    "shunt_comm_init": [POINTER(Options), POINTER(c_void_p)],
    "shunt_rank": [c_void_p, POINTER(c_int32)],
    "shunt_world": [c_void_p, POINTER(c_int32)],
    "shunt_split": [c_void_p, c_int32, c_int32, POINTER(c_void_p)],
    "shunt_shrink": [c_void_p, POINTER(c_void_p)],
    "shunt_abort": [c_void_p, c_char_p],
    "shunt_note_refusal": [c_void_p, c_char_p, c_char_p],
    "shunt_close": [c_void_p],
    "shunt_explain": [c_void_p, c_uint32, c_uint32, c_uint32, c_int64, c_char_p, c_size_t, POINTER(c_size_t)],
    "shunt_get_async_error": [c_void_p, POINTER(c_int32)],
    "shunt_records": [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)],
    "shunt_all_reduce": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_uint32, c_void_p],
    "shunt_reduce": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_uint32, c_int32, c_void_p],
    "shunt_broadcast": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_all_gather": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_void_p],
    "shunt_all_gather_v": [c_void_p, c_void_p, c_void_p, _array, _array, c_uint32, c_void_p],
    "shunt_reduce_scatter": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_uint32, c_void_p],
    "shunt_reduce_scatter_v": [c_void_p, c_void_p, c_void_p, _array, _array, c_uint32, c_uint32, c_void_p],
    "shunt_all_to_all": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_void_p],
    "shunt_all_to_all_v": [c_void_p, c_void_p, _array, _array, c_void_p, _array, _array, c_uint32, c_void_p],
    "shunt_all_to_all_v_on_device": [c_void_p, c_void_p, c_int64, _array, _array, c_void_p, c_int64, _array, _array,
                                     c_uint32, c_void_p],
    "shunt_gather": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_gather_v": [c_void_p, c_void_p, c_int64, c_void_p, _array, _array, c_uint32, c_int32, c_void_p],
    "shunt_scatter": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_scatter_v": [c_void_p, c_void_p, _array, _array, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_send": [c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_recv": [c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_void_p],
    "shunt_barrier": [c_void_p, c_void_p],
    "shunt_put": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_int64, c_void_p],
    "shunt_get": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_int32, c_int64, c_void_p],
    "shunt_signal": [c_void_p, c_void_p, c_int32, c_void_p],
    "shunt_wait": [c_void_p, c_void_p, c_int32, c_int64, c_void_p],
    "shunt_run": [c_void_p, POINTER(Operation)],
    "shunt_set_block_limit": [c_void_p, c_int64],
    "shunt_set_timeout": [c_void_p, c_int64],
    "shunt_continue": [c_void_p],
    "shunt_cancel": [c_void_p, c_char_p],
    "shunt_synchronize": [c_void_p, c_void_p],
    "shunt_start": [c_void_p, POINTER(Operation), POINTER(c_void_p)],
    "shunt_request_test": [c_void_p, c_int64, POINTER(c_int32)],
    "shunt_request_notify": [c_void_p, c_int32],
    "shunt_request_wait": [c_void_p],
    "shunt_group_start": [c_void_p],
    "shunt_group_end": [c_void_p],
    "shunt_group_cancel": [c_void_p],
    "shunt_register": [c_void_p, c_void_p, c_int64],
    "shunt_register_symmetric": [c_void_p, c_void_p, c_int64],
    "shunt_peer_address": [c_void_p, c_void_p, c_int32, POINTER(c_void_p)],
    "shunt_deregister": [c_void_p, c_void_p],
    "shunt_allocator_create": [c_void_p, c_uint32, c_int64, POINTER(c_void_p)],
    "shunt_allocator_alloc": [c_void_p, c_int64, c_void_p, POINTER(c_void_p)],
    "shunt_allocator_free": [c_void_p, c_void_p, c_void_p],
    "shunt_allocator_record_stream": [c_void_p, c_void_p, c_void_p],
    "shunt_allocator_reserve": [c_void_p, c_int64],
    "shunt_allocator_trim": [c_void_p],
    "shunt_allocator_get_stats": [c_void_p, c_void_p],
    "shunt_allocator_functions": [c_void_p, POINTER(c_void_p), POINTER(c_void_p)],
    "shunt_allocator_destroy": [c_void_p],
    "shunt_window_create": [c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p)],
    "shunt_window_at": [c_void_p, c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p)],
    "shunt_window_free": [c_void_p],
}

_CANCEL = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p)

_lock = threading.RLock()  # a signal handler may use the package while this thread holds it
_at_load: dict[str, Callable[[ctypes.CDLL], None]] = {}
_loaded: ctypes.CDLL | None = None

# True in a forked child of a process that had loaded the library. The library
# guards itself as well; this spares Python-side work that could not succeed.
forked = False


def _in_child() -> None:
    global forked, _lock
    _lock = threading.RLock()
    if _loaded is not None:
        forked = True


os.register_at_fork(after_in_child=_in_child)


def _candidates() -> list[str]:
    named = os.environ.get("SHUNT_LIBRARY")
    if named:
        return [named]
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libshunt.so.1")
    return [bundled, "libshunt.so.1"] if os.path.exists(bundled) else ["libshunt.so.1"]


def set_at_load(name: str, prepare: Callable[[ctypes.CDLL], None]) -> None:
    """Calls prepare(library) now if that is loaded, else when it is; instead of an earlier one of this name."""
    with _lock:
        _at_load[name] = prepare
        lib = _loaded
    if lib is not None:
        prepare(lib)


def library() -> ctypes.CDLL:
    """The loaded library, with prototypes; what takes numbers only is no function of
    ctypes but one of _calls, where there is that. Raises PluginRejectedError if there
    is none, or one of another major version."""
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is not None:
            return _loaded
        reasons = []
        for path in _candidates():
            try:
                lib = ctypes.CDLL(path)
                for name, argtypes in _PROTOTYPES.items():
                    function = getattr(lib, name)
                    function.argtypes = argtypes
                    function.restype = c_int32
                    setattr(lib, name, _quick.function(function))
                # Of an address: it takes no more room on the stack than the call that it cancels.
                lib.shunt_cancel_as = _quick.function(_CANCEL(("shunt_cancel", lib)))
                for name, argtypes in (("shunt_last_error", [c_void_p]), ("shunt_status_string", [c_int32])):
                    function = getattr(lib, name)
                    function.argtypes = argtypes
                    function.restype = c_char_p
            except (OSError, AttributeError) as err:
                reasons.append(f"{path}: {err}")
                continue
            major = c_int32()
            lib.shunt_version(ctypes.byref(major), None, None)
            if major.value != 1:
                reasons.append(f"{path}: version {major.value}, this package needs 1")
                continue
            _loaded = lib
            for prepare in list(_at_load.values()):
                prepare(lib)
            return lib
        raise _tables.PluginRejectedError("no usable libshunt.so (SHUNT_LIBRARY names one): " + "; ".join(reasons))


def error_of(status: int, message: bytes | None = None) -> ShuntError:
    """The exception of a status that is not OK, with its message: by default the
    one that the library left for this thread."""
    text = (library().shunt_last_error(None) if message is None else message).decode("utf-8", "replace")
    try:
        kind = _tables.ERRORS[Code(status)]
    except (KeyError, ValueError):
        kind = ShuntError
    return kind(text or f"status {status}")


def raise_status(status: int) -> None:
    """Raises the exception of a status that is not OK."""
    raise error_of(status)


def peer_address(comm: int, memory: int, peer: int) -> int:
    """shunt_peer_address."""
    out = c_void_p()
    check(library().shunt_peer_address(comm, memory, peer, ctypes.byref(out)))
    return out.value or 0


def check(status: int) -> None:
    """Raises unless the status is OK."""
    if status:
        raise_status(status)
