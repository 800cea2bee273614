"""dtypes and reduction ops as callers name them."""

import re
from typing import Any

from ._tables import DTYPE_BYTES, DType, InvalidArgumentError, Op

#: What a dtype argument may be: a DType, its name, or a numpy dtype.
DTypeLike = Any
#: What an op argument may be: an Op or its name, in any case.
OpLike = Op | str

_NAMES: dict[str, DType] = {d.name.lower(): d for d in DType}
# What ml_dtypes and torch call the types that numpy has no name for.
_NAMES.update({"float8_e4m3fn": DType.FLOAT8_E4M3, "half": DType.FLOAT16, "double": DType.FLOAT64})

OPS: dict[str, Op] = {o.name.lower(): o for o in Op}

KNOWN = ", ".join(d.name.lower() for d in DType)

# Formats of the struct module, in native or little-endian order, to the kind
# and then by item size; '?' (bool) and 'c' (char) are bytes of their own kind
# and are rejected so that they are not summed by accident.
_SIGNED = {1: DType.INT8, 4: DType.INT32, 8: DType.INT64}
_UNSIGNED = {1: DType.UINT8, 4: DType.UINT32, 8: DType.UINT64}
_FLOATS = {2: DType.FLOAT16, 4: DType.FLOAT32, 8: DType.FLOAT64}


def of_format(format: str, itemsize: int) -> DType | None:
    """The dtype of a struct-module format of one element, or None."""
    if format[:1] in ("@", "=", "<"):
        format = format[1:]
    if len(format) != 1 or (format in "bB" and itemsize != 1):  # B of more bytes is a union of ctypes
        return None
    if format in "bhilqn":
        return _SIGNED.get(itemsize)
    if format in "BHILQN":
        return _UNSIGNED.get(itemsize)
    if format in "efd":
        return _FLOATS.get(itemsize)
    return None


# What has letters of references and is none: names of fields, and complex numbers.
_HARMLESS = re.compile(":[^:]*:|Z[fdg]")


def has_references(format: str) -> bool:
    """Whether elements of a buffer's format hold objects of Python, or pointers that
    ctypes follows: to text, functions and typed memory."""
    return any(code in "OzZ&X" for code in _HARMLESS.sub("", format))


def of_kind(kind: str, itemsize: int) -> DType | None:
    """The dtype of a kind character of numpy's, or None."""
    return {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOATS}.get(kind, {}).get(itemsize)


#: As numpy takes them. The text "float" is none: numpy's has 8 bytes, torch's 4.
_OF_PYTHON = {float: DType.FLOAT64, int: DType.INT64}


def of_name(name: str) -> DType | None:
    """The dtype that numpy, ml_dtypes and torch call so, or None."""
    # Theirs has infinities, and float8_e4m3fn is what Shunt calls float8_e4m3.
    return None if name == "float8_e4m3" else _NAMES.get(name)


def named(dtype: Any) -> str:
    """A type of numpy as errors name it."""
    if dtype.name == "float8_e4m3":
        return "float8_e4m3 with infinities (ml_dtypes calls Shunt's float8_e4m3fn)"
    # numpy names text and what has fields by their lengths.
    return str(dtype) if dtype.kind in "SU" or dtype.names else str(dtype.name)


#: What carries elements of types that Shunt has no name for, where they only move: by their bytes.
_CARRIERS = {1: (DType.UINT8, 1), 2: (DType.FLOAT16, 1), 4: (DType.UINT32, 1), 8: (DType.UINT64, 1),
             16: (DType.UINT64, 2)}
#: Complex numbers are aligned as their halves.
_COMPLEX = {"complex32": (DType.FLOAT16, 2), "complex64": (DType.UINT32, 2)}

# Those types, as callers name them.
_MOVED_NAMES = {"bool": _CARRIERS[1], "int16": _CARRIERS[2], "uint16": _CARRIERS[2], "complex128": _CARRIERS[16],
                **_COMPLEX}

#: Formats of elements that only move, and what numpy calls those.
MOVED = {"?": "bool", "h": "int16", "H": "uint16", "Zf": "complex64", "Zd": "complex128"}


def carrier(obj: Any) -> tuple[DType, int] | None:
    """The dtype that moves a buffer's elements, and how many of it each takes: for bool, int16, complex, and whatever
    else lies in the elements themselves. None for what does not."""
    dtype = getattr(obj, "dtype", None)
    if dtype is None:
        try:
            view = memoryview(obj)
        except (TypeError, BufferError, ValueError):
            return None
        if view.format.lstrip("@=<") not in MOVED:
            return None
        name, size = MOVED[view.format.lstrip("@=<")], view.itemsize
    else:
        name, size = str(dtype).removeprefix("torch."), getattr(dtype, "itemsize", None)
        # numpy says of what kind elements are; torch has numbers only.
        kind = getattr(dtype, "kind", "i")
        if (kind not in "biufcmMSUV" or getattr(dtype, "hasobject", False)
                or not getattr(dtype, "isnative", True) or type(obj).__name__ == "MaskedArray"):
            return None
        if size and kind in "SUV":
            return DType.UINT8, size  # text and structures may lie anywhere, and equal ones be aligned or not
    return _COMPLEX.get(name) or _CARRIERS.get(size, (DType.UINT8, size)) if size else None


def _name(given: DTypeLike) -> str:
    """What numpy dtypes and scalar types, ml_dtypes and torch dtypes call themselves, and a text itself."""
    name = given if isinstance(given, str) else getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or given).removeprefix("torch.").lower()


def named_carrier(given: DTypeLike) -> tuple[DType, int, str] | None:
    """What carries elements of a dtype argument that only move, as carrier, and their name."""
    name = _name(given)
    return (*_MOVED_NAMES[name], name) if name in _MOVED_NAMES and getattr(given, "isnative", True) else None


def dtype_of(given: DTypeLike) -> DType:
    """A dtype argument as a DType."""
    if type(given) is DType:
        return given
    if isinstance(given, str):
        found = _NAMES.get(given.lower())
    elif isinstance(given, int):
        try:
            return DType(given)
        except ValueError:
            raise InvalidArgumentError(f"unknown dtype {given}; known are {KNOWN}") from None
    elif isinstance(given, type) and given in _OF_PYTHON:
        found = _OF_PYTHON[given]
    else:
        if not getattr(given, "isnative", True):
            raise InvalidArgumentError(f"dtype {given} is of foreign byte order; convert what has it first")
        found = of_name(_name(given))
    if found is None:
        raise InvalidArgumentError(f"unknown dtype {given!r}; known are {KNOWN}, and half and double")
    return found


def op_of(given: OpLike) -> Op:
    """An op argument as an Op. Numbers are none: enums of other libraries are equal to some, and number their ops in
    another order."""
    if isinstance(given, Op):
        return given
    found = OPS.get(given.lower()) if isinstance(given, str) else None
    if found is not None:
        return found
    raise InvalidArgumentError(f"unknown reduction op {given!r}; known are {', '.join(o.name.lower() for o in Op)}")


def size_of(dtype: DType) -> int:
    """Bytes of one element."""
    return DTYPE_BYTES[dtype]
