"""Memory of the caller: where it is, how long it is, and what is in it.

Anything with the buffer protocol will do (numpy arrays, array.array,
bytearray, memoryview, mmap, ctypes arrays), as long as it is C-contiguous.
A numpy array's dtype and a buffer's format say what the elements are, unless
the caller does: bytes and 16-bit integers may hold bfloat16, for instance.
A communicator on a GPU takes arrays of its memory instead; see _device.
"""

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from . import _device, _dlpack, _dtypes, _quick
from ._dtypes import DTypeLike
from ._tables import DTYPE_BYTES, DType, InvalidArgumentError, UnsupportedError



class _Exported(Protocol):
    """An object with the buffer protocol: arrays of numpy, array.array, bytearray, memoryview, mmap."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class _Lent(Protocol):
    """An object with DLPack: tensors of torch, arrays of jax and cupy, of numpy too."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class _OfCuda(Protocol):
    """An array on a GPU, as of numba."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


#: What a buffer argument may be.
Buffer = _Exported | _Lent | _OfCuda

#: The buffer that a call returns, which is one of its arguments.
B = TypeVar("B", bound=Buffer)

_byte = ctypes.c_char
_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof

PyBUF_WRITABLE = 0x0001
PyBUF_FORMAT = 0x0004
PyBUF_ND = 0x0008
PyBUF_STRIDES = 0x0010 | PyBUF_ND
PyBUF_C_CONTIGUOUS = 0x0020 | PyBUF_STRIDES


class _PyBuffer(ctypes.Structure):
    """Py_buffer, as CPython has it since 3.0."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class _Held:
    """A read-only buffer that is held until this object goes."""

    __slots__ = ("view",)

    def __init__(self, obj: Any) -> None:
        self.view = None
        view = _PyBuffer()
        _get_buffer(obj, ctypes.byref(view), PyBUF_C_CONTIGUOUS)
        self.view = view

    def __del__(self) -> None:
        if getattr(self, "view", None) is not None:  # a signal handler may raise as __init__ begins
            _release_buffer(ctypes.byref(self.view))


class Memory(NamedTuple):
    """A caller's memory: address, elements, dtype, what keeps it there, and for
    a GPU's the stream and the GPU that its array names, if any."""

    address: int | None
    count: int
    dtype: DType
    hold: Any
    stream: int | None = None
    gpu: int | None = None
    scale: int = 1  # how many of that dtype are an element of the caller's
    carried: Any = None  # the caller's type or its name, if Shunt has none of that name

    @property
    def elements(self) -> int:
        """How many elements of the caller's it has."""
        return self.count // self.scale


_numpy_dtypes: dict[Any, DType] = {}
#: What carries other dtypes of numpy that only move, and how many of it. A program that makes dtypes all the time does
#: not fill memory.
_moved_dtypes: dict[Any, tuple[DType, int]] = {}
_MOST_MOVED = 256
_ndarray: Any = None
_tensor: Any = None

# See _quick; of arrays of numpy and tensors of torch from the first one on.
described, quick = _quick.nothing, _quick.nothing


def _learn(ndarray: Any, tensor: Any) -> None:
    global _ndarray, _tensor, described, quick
    described, quick = _quick.arrays(ndarray, _numpy_dtypes, tensor, _dlpack.dtypes())
    _ndarray, _tensor = ndarray, tensor


def _numpy_type() -> Any:
    """numpy.ndarray if the program uses numpy, else None; numpy is never
    imported from here."""
    if _ndarray is None:
        ndarray = getattr(sys.modules.get("numpy"), "ndarray", None)
        if ndarray is not None:
            _learn(ndarray, _tensor)
    return _ndarray


def _numpy_dtype(dtype: Any, what: str) -> DType:
    _no_references(dtype.hasobject, f"array of {dtype}", what)
    _native(dtype.isnative, f"array of {dtype}", what)
    found = _own(_dtypes.of_name(dtype.name), f"array of {_dtypes.named(dtype)}", what)
    _numpy_dtypes[dtype] = found
    return found


def describe(obj: Buffer, what: str, writable: bool, dtype: DTypeLike = None, cuda: bool = False,
             scale: int = 1) -> Memory:
    """The memory of a buffer argument, which must be a GPU's with cuda, and the
    host's without. what names it in errors ("send"). scale is how many of dtype an
    element takes."""
    if cuda:
        return _describe_device(obj, what, writable, None if dtype is None else _dtypes.dtype_of(dtype), scale)
    ndarray = _ndarray or _numpy_type()
    if ndarray is not None and isinstance(obj, ndarray):
        if type(obj) is not ndarray and hasattr(type(obj), "mask"):  # a field of a record may be called so
            raise InvalidArgumentError(f"{what}: {type(obj).__name__} is a masked array; pass its data, or what "
                                       "filled() returns")
        if dtype is not None:
            return _describe_bytes(obj, what, writable, _dtypes.dtype_of(dtype), scale)
        kind = _numpy_dtypes.get(obj.dtype)
        if kind is None:
            kind = _numpy_dtype(obj.dtype, what)
        if obj.size:
            try:
                hold = _from_buffer(obj)
            except (TypeError, ValueError, BufferError):
                pass  # read-only, not contiguous, or of a type without a buffer format
            else:
                return Memory(_addressof(hold), obj.size, kind, hold)
        return _describe_numpy(obj, what, writable, kind)
    tensor = described(obj) if dtype is None and type(obj) is _tensor else None
    if tensor is not None:
        return Memory(tensor[0], tensor[1], tensor[2], obj.untyped_storage())
    return _describe_any(obj, what, writable, None if dtype is None else _dtypes.dtype_of(dtype), scale)


def describe_moved(obj: Buffer, what: str, writable: bool, dtype: DTypeLike = None, cuda: bool = False) -> Memory:
    """As describe, for operations that only move elements: these may be of any plain type."""
    own = getattr(obj, "dtype", None) if dtype is None and not cuda and type(obj) is _ndarray else None
    known = None if own is None else _moved_dtypes.get(own)
    if known is not None:
        kind, scale = known
        memory = _describe_numpy(obj, what, writable, kind)
        return memory._replace(count=memory.count * scale, scale=scale, carried=own)
    try:
        return describe(obj, what, writable, dtype, cuda)
    except InvalidArgumentError:
        named = None if dtype is None else _dtypes.named_carrier(dtype)
        if named is not None:
            return describe(obj, what, writable, named[0], cuda, named[1])._replace(scale=named[1], carried=named[2])
        found = _dtypes.carrier(obj) if dtype is None else None
        if found is None:
            raise
    kind, scale = found
    carried = getattr(obj, "dtype", None)
    if carried is None:
        carried = _dtypes.MOVED[memoryview(obj).format.lstrip("@=<")]
    if own is not None and len(_moved_dtypes) < _MOST_MOVED:
        _moved_dtypes[own] = kind, scale
    return describe(obj, what, writable, kind, cuda, scale)._replace(scale=scale, carried=carried)


def _describe_device(obj: Any, what: str, writable: bool, dtype: DType | None, scale: int) -> Memory:
    tensor = _device.described(obj) if dtype is None else None
    if tensor is not None:
        return Memory(tensor[0], tensor[1], tensor[2], obj, _device.tensor_stream(tensor[3]), tensor[3])
    found = _device.on_device(obj, what)
    if found is None:
        raise UnsupportedError(f"{what}: {type(obj).__name__} lies in host memory; this communicator moves memory of "
                               "its CUDA device")
    if writable and found.readonly:
        raise InvalidArgumentError(f"{what}: {type(obj).__name__} is read-only")
    if dtype is None:
        dtype = _own(found.dtype, f"{type(obj).__name__} of {found.format}", what)
    memory = _typed(found.address, found.count * found.itemsize, found.itemsize, found.format, what, dtype, found.hold,
                    scale)
    return memory._replace(stream=found.stream, gpu=found.gpu)


def _describe_numpy(obj: Any, what: str, writable: bool, kind: DType) -> Memory:
    flags = obj.flags
    if not flags.c_contiguous:
        raise InvalidArgumentError(f"{what}: array of shape {obj.shape} and strides {obj.strides} is not C-contiguous; "
                                   "copy it first")
    if writable and not flags.writeable:
        raise InvalidArgumentError(f"{what}: array is read-only")
    return Memory(obj.__array_interface__["data"][0] if obj.size else None, obj.size, kind, obj)


def _describe_bytes(obj: Any, what: str, writable: bool, dtype: DType, scale: int) -> Memory:
    """An array of numpy whose elements the caller has named: types that the buffer
    protocol cannot express (bfloat16) still have bytes."""
    _no_references(obj.dtype.hasobject, f"array of {obj.dtype}", what)
    _native(obj.dtype.isnative, f"array of {obj.dtype}", what)
    memory = _describe_numpy(obj, what, writable, DType.UINT8)
    return _typed(memory.address, obj.nbytes, obj.itemsize, str(obj.dtype), what, dtype, obj, scale)


def _describe_any(obj: Any, what: str, writable: bool, dtype: DType | None, scale: int) -> Memory:
    if _device.on_device(obj, what) is not None:
        raise UnsupportedError(
            f"{what}: {type(obj).__name__} lies in CUDA memory; this communicator moves host memory: "
            'shunt.init(memory="cuda") makes one that moves CUDA memory'
        )
    try:
        view = memoryview(obj)
    except ValueError as error:
        raise InvalidArgumentError(f"{what}: {type(obj).__name__} lends no memory: {error}") from error
    except (TypeError, BufferError) as error:
        # The buffer protocol has no format for bfloat16 of jax, whose arrays say only there that they are read-only.
        if writable and isinstance(error, BufferError):
            raise InvalidArgumentError(f"{what}: {type(obj).__name__} is read-only") from None
        if not hasattr(obj, "__dlpack__"):
            raise InvalidArgumentError(
                f"{what}: {type(obj).__name__} is no buffer; pass an array of numpy, a tensor, or what else has DLPack "
                "or the buffer protocol, as array.array and bytearray have"
            ) from None
        return _describe_lent(obj, what, writable, dtype, scale)
    _no_references(_dtypes.has_references(view.format), f"buffer of format {view.format!r}", what)
    if view.nbytes and not view.c_contiguous:
        raise InvalidArgumentError(f"{what}: buffer of shape {view.shape} and strides {view.strides} is not "
                                   "C-contiguous; copy it first")
    if writable and view.readonly:
        raise InvalidArgumentError(f"{what}: {type(obj).__name__} is read-only")
    # The names of a structure's fields stand between colons.
    foreign = any(mark in part for part in view.format.split(":")[::2] for mark in ">!")
    _native(not foreign, f"buffer of format {view.format!r}", what)
    if dtype is None:
        dtype = _own(_dtypes.of_format(view.format, view.itemsize), f"buffer of format {view.format!r}", what)
    if view.nbytes == 0:
        return Memory(None, 0, dtype, view)
    address: int | None
    if view.readonly:
        held = _Held(view)
        address, hold = held.view.buf, held
    else:
        hold = _byte.from_buffer(view)
        address = _addressof(hold)
    return _typed(address, view.nbytes, view.itemsize, view.format, what, dtype, hold, scale)


def _describe_lent(obj: Any, what: str, writable: bool, dtype: DType | None, scale: int) -> Memory:
    if type(obj) is not _tensor and type(obj) is getattr(_device.torch_module(), "Tensor", None):
        _learn(_ndarray, type(obj))
    lent = _dlpack.borrow(obj, what)
    if writable and lent.readonly:
        raise InvalidArgumentError(f"{what}: {type(obj).__name__} is read-only")
    if dtype is None:
        dtype = _own(lent.dtype, f"{type(obj).__name__} of {getattr(obj, 'dtype', None) or lent.format}", what)
    # torch's capsule keeps the tensor, which the program may give other memory.
    hold = (lent.capsule, obj.untyped_storage()) if type(obj) is _tensor and lent.count else lent.capsule
    return _typed(lent.address, lent.count * lent.itemsize, lent.itemsize, lent.format, what, dtype, hold, scale)


def _no_references(found: bool, of: str, what: str) -> None:
    if found:
        raise InvalidArgumentError(
            f"{what}: {of} holds references to objects of this process, which other ranks cannot follow; send bytes, "
            "such as pickle.dumps makes")


def _native(found: bool, of: str, what: str) -> None:
    if not found:
        raise InvalidArgumentError(f"{what}: {of} has foreign byte order; convert it first")


def _own(dtype: DType | None, of: str, what: str) -> DType:
    """The dtype that the elements have by themselves, if any."""
    if dtype is None:
        raise InvalidArgumentError(
            f"{what}: {of} is none of Shunt's dtypes, which are {_dtypes.KNOWN}; convert it, or pass dtype= if its "
            "bytes hold one of these; a call that only moves them takes a view as uint8"
        )
    return dtype


def _typed(address: int | None, nbytes: int, itemsize: int, format: str, what: str, dtype: DType | None,
           hold: Any, scale: int) -> Memory:
    assert dtype is not None
    size = DTYPE_BYTES[dtype]
    if itemsize not in (1, size * scale):
        raise InvalidArgumentError(
            f"{what}: elements of {itemsize} bytes ({format}) cannot hold {dtype.name.lower()} of {size}; "
            "pass a buffer of bytes or of elements of that size"
        )
    if nbytes % (size * scale):
        pair = "pairs of " if scale > 1 else ""
        raise InvalidArgumentError(
            f"{what}: {nbytes} bytes are no whole number of {pair}{dtype.name.lower()} of {size} bytes")
    return Memory(address, nbytes // size, dtype, hold)
