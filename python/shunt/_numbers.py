"""Single numbers as buffers of one element."""

import sys
from array import array
from typing import Any

from . import _dtypes
from ._dtypes import OpLike
from ._tables import InvalidArgumentError, Op

#: Whose results of integers are no integers.
_FRACTIONAL = (Op.AVG, Op.PREMUL_SUM)


def boxed(value: Any, op: OpLike = Op.SUM) -> Any:
    """A buffer with that number in it, or None if it is no number: int64 for an int, float64 for a float and for
    averages, numpy's own type for a scalar of numpy, of which averages are float64 where it is an integer."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, getattr(numpy, "generic", ())):  # of which float64 is a float, too
        whole = isinstance(value, numpy.integer) and _dtypes.op_of(op) in _FRACTIONAL
        return numpy.array([value], "float64" if whole else None)
    if isinstance(value, float):
        return array("d", [value])
    if isinstance(value, int):
        try:
            return array("d" if _dtypes.op_of(op) in _FRACTIONAL else "q", [value])
        except OverflowError:
            raise InvalidArgumentError(f"{value} does not fit 64 bits") from None
    return None
