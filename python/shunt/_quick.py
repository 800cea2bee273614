"""The quick path of a call: from the arrays that programs mostly use straight to the
function of shunt.h.

_calls.c has it. Where that was not built or cannot be loaded, and for tensors of torch
before 2.10, described and quick find no array that suits them, and calls take the full
path, which costs about 4 µs more, and 25 µs more for tensors in host memory. Nothing but
this file knows which one runs. For an array library there are two functions:

described(array) returns (address, elements, dtype, GPU or None) of a contiguous,
writable array that is not empty and has a dtype of Shunt's; None for everything else.
The address is good for as long as the caller keeps the array.

quick(handle, function, send, recv, send_blocks, recv_blocks, stream, *numbers) calls
function(handle, address of send, of recv, count, dtype, *numbers, stream) and returns
its status. send has send_blocks times count elements, recv has recv_blocks times
count, and both are of one dtype; one of 0 blocks is not looked at, and its address is
null. It returns None, and calls nothing, if these are not such arrays.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

_calls: Any = None
# Built for the stable ABI of 3.11, which free-threaded interpreters have not; some load it all the same.
if sys.version_info >= (3, 11) and "t" not in sys.abiflags:
    try:
        from . import _calls  # type: ignore[attr-defined, no-redef]
    except ImportError:
        pass

Described = Callable[[Any], Any]
Quick = Callable[..., "int | None"]

# How _calls takes an argument: an address (None is null) or a number that must fit.
_KINDS = {ctypes.c_void_p: "p", ctypes.c_int64: "q", ctypes.c_uint32: "I", ctypes.c_int32: "i"}


def function(of_ctypes: Any) -> Any:
    """The quickest callable that calls what a function of ctypes calls. It lets go
    of the GIL, takes whole numbers and None, and returns the status."""
    kinds = [_KINDS.get(kind) for kind in of_ctypes.argtypes]
    if _calls is None or None in kinds:
        return of_ctypes
    return _calls.function(ctypes.cast(of_ctypes, ctypes.c_void_p).value, "".join(kinds))


def nothing(*arguments: Any) -> None:
    """described and quick where no array takes the quick path."""


class _Missing:
    """The type of the arrays of a library that the program does not use."""


def arrays(ndarray: type | None, dtypes: dict[Any, Any], tensor: type | None = None,
           exchanged: dict[int, Any] | None = None) -> tuple[Described, Quick]:
    """described and quick for arrays of numpy, of which dtypes says what Shunt calls
    theirs, and for tensors of torch in host memory, of which exchanged says that as for
    tensors(). Subclasses, and tensors that require a gradient, take the full path."""
    if _calls is None:
        return nothing, nothing
    known = ndarray or _Missing, dtypes
    exchange = getattr(tensor, "__dlpack_c_exchange_api__", None)
    if exchange is not None:
        try:
            return _calls.arrays(*known, tensor, exchanged, exchange)
        except ValueError:
            pass  # another version of DLPack's
    return _calls.arrays(*known)


def tensors(tensor: type, exchanged: dict[int, Any], stream_of: Callable[[Any], int]) -> tuple[Described, Quick]:
    """described and quick for tensors of torch on GPUs. exchanged says what Shunt calls
    the dtypes of DLPack (code << 8 | bits). A stream is what stream_of makes of it, and
    None is torch's current one of the first tensor's GPU."""
    # What torch has from 2.10 on: the functions behind its tensors' methods.
    exchange = getattr(tensor, "__dlpack_c_exchange_api__", None)
    if _calls is not None and exchange is not None:
        try:
            return _calls.tensors(tensor, exchanged, exchange, stream_of)
        except ValueError:
            pass  # another version of DLPack's
    return nothing, nothing
