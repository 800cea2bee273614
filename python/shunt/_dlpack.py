"""Tensors that other libraries lend through DLPack (torch on the CPU, jax).

The capsule is read and held, never consumed: its own destructor gives the
tensor back when it goes.
"""

import ctypes
import sys
from typing import Any, NamedTuple

from ._tables import DType, InvalidArgumentError, UnsupportedError


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, as of DLPack 1.0."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged

_DTYPES = {
    (0, 8): DType.INT8, (0, 32): DType.INT32, (0, 64): DType.INT64,
    (1, 8): DType.UINT8, (1, 32): DType.UINT32, (1, 64): DType.UINT64,
    (2, 16): DType.FLOAT16, (2, 32): DType.FLOAT32, (2, 64): DType.FLOAT64,
    (4, 16): DType.BFLOAT16, (10, 8): DType.FLOAT8_E4M3, (12, 8): DType.FLOAT8_E5M2,
}



def dtypes() -> dict[int, DType]:
    """The DType of every DLDataType that Shunt has, as code << 8 | bits."""
    return {code << 8 | bits: dtype for (code, bits), dtype in _DTYPES.items()}


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid.restype = ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer.restype = ctypes.c_void_p


class Lent(NamedTuple):
    """A lent tensor. dtype is None for a type that Shunt does not have; capsule keeps
    the tensor; gpu is the number of its GPU, if it lies on one."""

    address: int | None
    count: int
    itemsize: int
    dtype: DType | None
    format: str
    readonly: bool
    capsule: Any
    dimensions: int
    gpu: int | None


_REFUSALS = (BufferError, RuntimeError, ValueError, TypeError)


def device_of(obj: Any) -> int | None:
    """The DLPack type of the device that obj lies on; None if it does not say."""
    try:
        return int(obj.__dlpack_device__()[0])
    except (AttributeError, IndexError, *_REFUSALS):
        return None


def _capsule(obj: Any, **stream: int) -> Any:
    try:
        return obj.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:
        return obj.__dlpack__(**stream)  # of before DLPack 1.0


def _lend(obj: Any, cuda: bool) -> Any:
    if not cuda:
        return _capsule(obj)
    try:
        return _capsule(obj, stream=-1)  # no stream waits
    except _REFUSALS as err:
        try:
            return _capsule(obj, stream=1)  # jax takes every number for that of a stream
        except _REFUSALS:
            raise err


def _is_of_jax(obj: Any) -> bool:
    """Whether obj is read-only though its capsule does not say so."""
    array = getattr(sys.modules.get("jax"), "Array", None)
    return isinstance(array, type) and isinstance(obj, array)


def borrow(obj: Any, what: str, cuda: bool = False) -> Lent:
    """The tensor behind obj.__dlpack__, which must be contiguous, and in host
    memory, or a GPU's with cuda. Nothing waits for the producer's stream; where the
    producer does not lend so, the legacy default stream does."""
    name = type(obj).__name__
    try:
        capsule = _lend(obj, cuda)
    except _REFUSALS as err:
        raise InvalidArgumentError(f"{what}: {name} cannot be lent through DLPack: {err}") from err
    flags = 0
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise InvalidArgumentError(f"{what}: {name} lends through DLPack {managed.major}.{managed.minor}, want 1")
        flags, tensor = managed.flags, managed.tensor
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise InvalidArgumentError(f"{what}: {name}.__dlpack__ returned no DLPack capsule")
    if tensor.device_type not in (CUDA_DEVICES if cuda else _HOST_DEVICES):
        raise UnsupportedError(f"{what}: {name} lies on a device of DLPack type {tensor.device_type}; want "
                               f"{'CUDA' if cuda else 'host'} memory")
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    count = 1
    for n in shape:
        count *= n
    if count and tensor.strides:
        step = 1
        for i in reversed(range(tensor.ndim)):
            if shape[i] != 1 and tensor.strides[i] != step:
                raise InvalidArgumentError(f"{what}: {name} of shape {shape} is not contiguous; copy it first")
            step *= shape[i]
    if count and not tensor.data:  # a wrapper of torch, or storage that was freed
        raise InvalidArgumentError(f"{what}: {name} of shape {shape} has no memory")
    bits = tensor.bits * tensor.lanes
    if bits % 8:
        raise InvalidArgumentError(f"{what}: {name} has elements of {bits} bits")
    return Lent(
        address=tensor.data + tensor.byte_offset if count else None,
        count=count,
        itemsize=bits // 8,
        dtype=_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None,
        format=f"DLPack type {tensor.code}, {tensor.bits} bits",
        readonly=bool(flags & _READ_ONLY) or _is_of_jax(obj),
        capsule=capsule,
        dimensions=tensor.ndim,
        gpu=tensor.device_id if tensor.device_type == CUDA_DEVICES[0] else None,  # managed memory is of all
    )
