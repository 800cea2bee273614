"""Memory of GPUs: what arrays of other libraries say about theirs, and streams.

Arrays are understood by what they are: tensors of torch, if the program has
imported it, and whatever has __cuda_array_interface__ or lends itself through
DLPack. Nothing is imported from here, and no memory is touched.
"""

import sys
from typing import Any, NamedTuple

from . import _dlpack, _dtypes, _quick
from ._tables import DType, InvalidArgumentError

#: What a stream argument may be: the number of a CUstream, or an object of
#: torch, cupy or cuda.core that has one; None is the stream of the first
#: buffer, which is torch's current one for a tensor.
StreamLike = Any


class OnDevice(NamedTuple):
    """Memory of a GPU. stream is where its last writer runs, or None; gpu is the
    number of the GPU, or None where the array does not say."""

    address: int | None
    count: int
    itemsize: int
    dtype: DType | None
    format: str
    readonly: bool
    stream: int | None
    hold: Any
    dimensions: int
    gpu: int | None


# What is known of torch since its first tensor was seen: the module, its dtypes,
# and the fastest way to the current stream of a GPU.
_torch: Any = None
_torch_dtypes: dict[Any, DType] = {}
_torch_stream: Any = None

# See _quick; of tensors of torch from the first one on. Parameters and other
# subclasses are none.
described, quick = _quick.nothing, _quick.nothing


def torch_module() -> Any:
    """torch, if the program has imported it."""
    return sys.modules.get("torch")


def _learn(torch: Any) -> None:
    global _torch, _torch_dtypes, _torch_stream, described, quick
    dtypes = {}
    for name, kind in (
        ("int8", DType.INT8), ("uint8", DType.UINT8), ("int32", DType.INT32), ("uint32", DType.UINT32),
        ("int64", DType.INT64), ("uint64", DType.UINT64), ("float16", DType.FLOAT16), ("bfloat16", DType.BFLOAT16),
        ("float32", DType.FLOAT32), ("float64", DType.FLOAT64), ("float8_e4m3fn", DType.FLOAT8_E4M3),
        ("float8_e5m2", DType.FLOAT8_E5M2),
    ):
        if hasattr(torch, name):  # older versions do not have all
            dtypes[getattr(torch, name)] = kind
    # What torch's own compiler uses: a tenth of the time of the public way.
    _torch_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if _torch_stream is None:
        _torch_stream = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
    _torch_dtypes, _torch = dtypes, torch
    described, quick = _quick.tensors(torch.Tensor, _dlpack.dtypes(), stream_of)


def tensor_stream(ordinal: int) -> int:
    """torch's current stream of a GPU."""
    return _torch_stream(ordinal)


def on_device(obj: Any, what: str) -> OnDevice | None:
    """The GPU memory behind an array, or None if it is none of a GPU."""
    torch = torch_module()
    if torch is not None and isinstance(obj, getattr(torch, "Tensor", ())):
        return _of_torch(torch, obj, what)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(interface, obj, what)
    if hasattr(obj, "__dlpack__") and _dlpack.device_of(obj) in _dlpack.CUDA_DEVICES:
        lent = _dlpack.borrow(obj, what, cuda=True)
        return OnDevice(lent.address, lent.count, lent.itemsize, lent.dtype, lent.format, lent.readonly, None,
                        lent.capsule,
                        lent.dimensions, lent.gpu)
    return None


def _of_torch(torch: Any, tensor: Any, what: str) -> OnDevice | None:
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(f"{what}: tensor stands for the conjugate or the negative of its memory; call "
                                   "resolve_conj().resolve_neg() first")
    if not tensor.is_cuda:
        return None
    if not tensor.is_contiguous():
        raise InvalidArgumentError(f"{what}: tensor of shape {tuple(tensor.shape)} is not contiguous; call "
                                   "contiguous() first")
    if torch is not _torch:
        _learn(torch)
    count, gpu = tensor.numel(), tensor.get_device()
    return OnDevice(tensor.data_ptr() if count else None, count, tensor.element_size(), _torch_dtypes.get(tensor.dtype),
                    str(tensor.dtype), False, _torch_stream(gpu), tensor, tensor.dim(), gpu)


def _of_interface(interface: Any, obj: Any, what: str) -> OnDevice:
    name = type(obj).__name__
    try:
        shape, typestr, (address, readonly) = tuple(interface["shape"]), interface["typestr"], interface["data"]
        strides, mask, stream = interface.get("strides"), interface.get("mask"), interface.get("stream")
        order, kind, itemsize = typestr[0], typestr[1], int(typestr[2:])
        count = 1
        for n in shape:
            if n < 0:
                raise ValueError(f"shape {shape} has a negative length")
            count *= n
        address = int(address or 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
        raise InvalidArgumentError(f"{what}: {name}.__cuda_array_interface__ cannot be read: {err!r}") from None
    if kind == "O":
        raise InvalidArgumentError(f"{what}: {name} of {typestr} holds references to objects, which other ranks cannot "
                                   "follow")
    if mask is not None:
        raise InvalidArgumentError(f"{what}: {name} is a masked array")
    if order == ">" and itemsize > 1:
        raise InvalidArgumentError(f"{what}: {name} of {typestr} is in foreign byte order; convert it first")
    if strides is not None and count:
        step = itemsize
        for n, stride in zip(reversed(shape), reversed(tuple(strides))):
            if n != 1 and stride != step:
                raise InvalidArgumentError(
                    f"{what}: {name} of shape {shape} and strides {tuple(strides)} is not C-contiguous; copy it first")
            step *= n
    if stream == 0 and stream is not None:
        raise InvalidArgumentError(f"{what}: {name}.__cuda_array_interface__ names stream 0, which the interface "
                                   "forbids")
    return OnDevice(address if count else None, count, itemsize, _dtypes.of_kind(kind, itemsize), typestr,
                    bool(readonly),
                    None if stream is None else int(stream), obj, len(shape), None)


def stream_of(stream: StreamLike) -> int:
    """The CUstream of a stream argument that is not None."""
    if type(stream) is int and 0 <= stream < 1 << 64:
        return stream
    number: Any = None
    if hasattr(stream, "__cuda_stream__"):  # cuda.core, and what follows it
        protocol = stream.__cuda_stream__
        _, number = protocol() if callable(protocol) else protocol
        number = int(number)
    else:
        for name in ("cuda_stream", "ptr"):  # torch; cupy
            number = getattr(stream, name, None)
            if isinstance(number, int):
                break
        else:
            number = stream
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidArgumentError(
            f"stream is {stream!r}, want the number of a CUstream, or an object with cuda_stream, ptr or "
            "__cuda_stream__"
        )
    number = number.__index__()
    if not 0 <= number < 1 << 64:
        raise InvalidArgumentError(f"stream {number} is no CUstream")
    return number


def current_stream() -> int:
    """The stream of an operation without buffers: torch's current one, if the
    program uses torch on GPUs, else the default stream."""
    torch = torch_module()
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return torch.cuda.current_stream().cuda_stream
    return 0
