"""The quick way of a call: from the arrays that programs mostly use straight to the
function of shunt.h.

It is written twice. _calls.c has it in C, which takes a fraction of the time; here
it is in Python and ctypes, for source trees in which that was not built, and for
interpreters that cannot load it. Nothing but this file knows which one runs. For an
array library both give two functions:

described(array) answers (address, elements, dtype, GPU or None) of a contiguous,
writable array that is not empty and has a dtype of Shunt's; None for everything else.
The address is good for as long as the caller keeps the array.

quick(handle, function, send, recv, send_blocks, recv_blocks, stream, *numbers) calls
function(handle, address of send, of recv, count, dtype, *numbers, stream) and answers
its status. send has send_blocks times count elements, recv has recv_blocks times
count, and both are of one dtype; one of 0 blocks is not looked at, and its address is
null. None, and nothing was called, if these are not such arrays.
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
    """described and quick before an array of the library was seen."""


def arrays(ndarray: type, dtypes: dict[Any, Any]) -> tuple[Described, Quick]:
    """described and quick for arrays of numpy, of which dtypes says what Shunt calls
    theirs. Subclasses are none of them."""
    if _calls is not None:
        return _calls.arrays(ndarray, dtypes)
    from_buffer, addressof = ctypes.c_char.from_buffer, ctypes.addressof

    def described(obj: Any) -> Any:
        if type(obj) is ndarray:
            kind = dtypes.get(obj.dtype)
            if kind is not None:
                try:
                    return addressof(from_buffer(obj)), obj.size, kind, None
                except (TypeError, ValueError, BufferError):
                    pass  # empty, read-only, not contiguous, or of a type without a buffer format
        return None

    return described, _quick(described, None)


def tensors(tensor: type, dtypes: dict[Any, Any], exchanged: dict[int, Any], current_stream: Callable[[int], int],
            stream_of: Callable[[Any], int]) -> tuple[Described, Quick]:
    """described and quick for tensors of torch on GPUs. dtypes says what Shunt calls
    torch's, and exchanged those of DLPack (code << 8 | bits). A stream is what
    stream_of makes of it, and None is torch's current one of the first tensor's GPU."""
    # What torch has from 2.10 on: the functions behind its tensors' methods.
    exchange = getattr(tensor, "__dlpack_c_exchange_api__", None)
    if _calls is not None and exchange is not None:
        try:
            return _calls.tensors(tensor, exchanged, exchange, stream_of)
        except ValueError:
            pass  # another version of DLPack's

    def described(obj: Any) -> Any:
        if type(obj) is tensor and obj.is_cuda and obj.is_contiguous():
            kind = dtypes.get(obj.dtype)
            count = obj.numel()
            if kind is not None and count:
                return obj.data_ptr(), count, kind, obj.get_device()
        return None

    return described, _quick(described, lambda stream, gpu: current_stream(gpu) if stream is None else stream_of(stream))


_NOTHING = (None, 0, None, None)


def _quick(described: Described, number_of: Callable[[Any, int], int] | None) -> Quick:
    def quick(handle: Any, function: Any, send: Any, recv: Any, send_blocks: int, recv_blocks: int, stream: Any,
              *numbers: int) -> Any:
        if stream is not None and number_of is None:
            return None
        source = described(send) if send_blocks else _NOTHING
        if not recv_blocks:
            into = _NOTHING
        else:
            into = source if recv is send and send_blocks else described(recv)
        if source is None or into is None:
            return None
        _, elements, kind, gpu = source if send_blocks else into
        count, odd = divmod(elements, send_blocks or recv_blocks)
        if odd or (send_blocks and recv_blocks and (into[1] != recv_blocks * count or into[2] is not kind)):
            return None
        number = None if number_of is None else number_of(stream, gpu)
        return function(handle, source[0], into[0], count, kind, *numbers, number)

    return quick
