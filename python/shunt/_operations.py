"""The arguments of each collective as an Operation.

Each function checks what the library cannot see, the length and the type of
the caller's buffers, and returns the Operation and what must stay alive until
it has ended. Counts and displacements are in elements. The library checks all
the rest, so that C, Go and Python return the same errors.
"""

import ctypes
import functools
import numbers
import operator
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol

from . import _counts, _dtypes
from ._buffers import Buffer, Memory, describe, describe_moved
from ._counts import Counts, Numbers
from ._dtypes import DTypeLike, OpLike
from ._library import OPERATION_SIZE, Operation
from ._tables import Collective, DType, InvalidArgumentError, Op


_int64s = ctypes.POINTER(ctypes.c_int64)


class Place(Protocol):
    """What an operation needs to know of its communicator."""

    on_device: bool

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...

    def _note_refusal(self, call: str, error: Exception) -> None: ...


P = ParamSpec("P")


def _noted(make: Callable[Concatenate[Place, P], "Prepared"]) -> Callable[Concatenate[Place, P], "Prepared"]:
    """Has the other ranks know of arguments that are refused here: they wait for the call."""
    @functools.wraps(make)
    def noted(place: Place, *args: P.args, **kwargs: P.kwargs) -> Prepared:
        try:
            return make(place, *args, **kwargs)
        except Exception as error:
            place._note_refusal(make.__name__, error)
            raise
    return noted


def _describe(place: Place, obj: Any, what: str, writable: bool, dtype: DTypeLike) -> Memory:
    return describe(obj, what, writable, dtype, place.on_device)


def _moved(place: Place, obj: Any, what: str, writable: bool, dtype: DTypeLike) -> Memory:
    return describe_moved(obj, what, writable, dtype, place.on_device)


class Prepared:
    """An Operation with the memory that it points into. result is the return value of
    the call."""

    __slots__ = ("operation", "hold", "result")

    def __init__(self, operation: Operation, hold: Any, result: Any) -> None:
        self.operation = operation
        self.hold = hold
        self.result = result


def _operation(collective: Collective, dtype: DType = DType.INT8, **fields: Any) -> Operation:
    return Operation(struct_size=OPERATION_SIZE, collective=collective, dtype=dtype, **fields)


def _same(send: Memory, recv: Memory, name: str) -> None:
    # Types of numpy that are equal may have several texts, and those of other libraries are equal by their texts.
    if send.dtype is not recv.dtype or (send.carried != recv.carried and _held(send) != _held(recv)):
        raise InvalidArgumentError(f"{name}: send holds {_held(send)}, recv holds {_held(recv)}")


def _held(memory: Memory) -> str:
    """The caller's type as errors name it."""
    return memory.dtype.name.lower() if memory.carried is None else str(memory.carried).removeprefix("torch.")


def _length(memory: Memory, want: int, what: str, why: str) -> None:
    if memory.count != want:
        raise InvalidArgumentError(f"{what} has {memory.elements} elements, want {want // memory.scale}: {why}")


def _reduction(op: OpLike, scalar: float | None, name: str) -> tuple[Op, float]:
    kind = _dtypes.op_of(op)
    if (kind is Op.PREMUL_SUM) != (scalar is not None):
        if scalar is None:
            raise InvalidArgumentError(f"{name}: op premul_sum needs scalar=")
        raise InvalidArgumentError(f"{name}: scalar= goes with op premul_sum only, not with {kind.name.lower()}")
    try:
        return kind, 0.0 if scalar is None else float(scalar)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(f"{name}: scalar is {scalar!r}, want a number") from None


def _root(place: Place, root: int, name: str, what: str = "root") -> int:
    try:
        root = operator.index(root)
    except TypeError:
        raise InvalidArgumentError(f"{name}: {what} is {root!r}, want a rank") from None
    if not 0 <= root < place.world:
        raise InvalidArgumentError(f"{name} on rank {place.rank}: {what} {root} is not a rank of a world of "
                                   f"{place.world}")
    return root


def whole(value: Any, what: str, bits: int = 64) -> int:
    """A number that the library takes as a signed one of so many bits; ctypes
    would cut off what does not fit."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what} is {value!r}, want a whole number") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise InvalidArgumentError(f"{what} {number} does not fit {bits} bits")
    return number


def seconds(value: Any, what: str) -> float:
    """A time in seconds."""
    if not isinstance(value, numbers.Real) or value != value:  # which is nan
        raise InvalidArgumentError(f"{what} is {value!r}, want a number of seconds")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(f"{what} is {value!r}, which is too large") from None


def deadline(value: Any, what: str) -> int:
    """The time that an operation may take, of seconds in milliseconds."""
    limit = seconds(value, what)
    if not 0.001 <= limit < 1 << 40:
        raise InvalidArgumentError(f"{what} {limit} s; want at least 0.001 and less than {1 << 40}")
    return int(limit * 1000)


def _array(values: Any, place: Place, what: str, scale: int = 1) -> Any:
    """world counts or displacements as an int64 array, times scale; None stays None."""
    if values is None:
        return None
    try:
        if isinstance(values, (dict, set, frozenset)) or not hasattr(values, "__len__"):
            raise TypeError
        entries = list(values)  # which an array of no dimension refuses
    except TypeError:
        raise InvalidArgumentError(f"{what} is {values!r}, want a sequence of {place.world} numbers") from None
    if len(entries) != place.world:
        raise InvalidArgumentError(f"there are {len(entries)} {what} for a world of {place.world}")
    array = (ctypes.c_int64 * place.world)()
    for i, entry in enumerate(entries):
        try:
            v = operator.index(entry)
        except TypeError:
            v = -1
        if not 0 <= v * scale < 1 << 63:
            raise InvalidArgumentError(f"{what}: entry {i} is {entry!r}, want a number of elements")
        array[i] = v * scale
    return array


def _row(row: Any, scale: int) -> int:
    """How many of Shunt's elements a count stands for, in buffers of elements of scale of them each."""
    try:
        if 1 <= operator.index(row) * scale < 1 << 63:
            return operator.index(row) * scale
    except TypeError:
        pass
    raise InvalidArgumentError(f"all_to_all_v: row is {row!r}, want the number of elements that a count stands for")


def extent(counts: Any, displs: Any) -> int:
    """Returns the number of elements that a buffer must have to hold every block."""
    if displs is None:
        return sum(counts)
    return max((d + c for c, d in zip(counts, displs) if c), default=0)


def _reaches(memory: Memory, extent: int, what: str) -> None:
    if memory.count < extent:
        raise InvalidArgumentError(
            f"{what} has {memory.elements} elements, but counts and displacements reach to {extent // memory.scale}")


def _need(value: Any, name: str, what: str) -> None:
    if value is None:
        raise InvalidArgumentError(f"{name}: {what} is needed on the root")


@_noted
def all_reduce(place: Place, send: Buffer, recv: Buffer | None = None, op: OpLike = Op.SUM, *,
               scalar: float | None = None, dtype: DTypeLike = None) -> Prepared:
    kind, factor = _reduction(op, scalar, "all_reduce")
    into = _describe(place, send if recv is None else recv, "send" if recv is None else "recv", True, dtype)
    source = into
    if recv is not None and recv is not send:
        source = _describe(place, send, "send", False, dtype)
        _same(source, into, "all_reduce")
        _length(into, source.count, "recv", "as many as send")
    operation = _operation(Collective.ALL_REDUCE, into.dtype, op=kind, scalar=factor, send=source.address,
                           recv=into.address, count=into.count)
    return Prepared(operation, (source, into), send if recv is None else recv)


@_noted
def reduce(place: Place, send: Buffer, recv: Buffer | None = None, root: int = 0, op: OpLike = Op.SUM, *,
           scalar: float | None = None, dtype: DTypeLike = None) -> Prepared:
    kind, factor = _reduction(op, scalar, "reduce")
    root = _root(place, root, "reduce")
    is_root = place.rank == root
    in_place = is_root and (recv is None or recv is send)
    source = _describe(place, send, "send", in_place, dtype)
    into = source
    if is_root and not in_place:
        into = _describe(place, recv, "recv", True, dtype)
        _same(source, into, "reduce")
        _length(into, source.count, "recv", "as many as send")
    operation = _operation(Collective.REDUCE, source.dtype, op=kind, scalar=factor, root=root, send=source.address,
                           recv=into.address if is_root else None, count=source.count)
    return Prepared(operation, (source, into), (send if recv is None else recv) if is_root else None)


@_noted
def broadcast(place: Place, buffer: Buffer, root: int = 0, *, dtype: DTypeLike = None) -> Prepared:
    root = _root(place, root, "broadcast")
    memory = _moved(place, buffer, "buffer", place.rank != root, dtype)
    operation = _operation(Collective.BROADCAST, memory.dtype, root=root, send=memory.address, recv=memory.address,
                           count=memory.count)
    return Prepared(operation, memory, buffer)


@_noted
def all_gather(place: Place, send: Buffer, recv: Buffer, *, dtype: DTypeLike = None) -> Prepared:
    source, into = _moved(place, send, "send", False, dtype), _moved(place, recv, "recv", True, dtype)
    _same(source, into, "all_gather")
    _length(into, place.world * source.count, "recv", f"world {place.world} times the {source.elements} of send")
    operation = _operation(Collective.ALL_GATHER, source.dtype, send=source.address, recv=into.address,
                           count=source.count)
    return Prepared(operation, (source, into), recv)


@_noted
def all_gather_v(place: Place, send: Buffer, recv: Buffer, counts: Numbers,
                 displs: Numbers | None = None, *, dtype: DTypeLike = None) -> Prepared:
    source, into = _moved(place, send, "send", False, dtype), _moved(place, recv, "recv", True, dtype)
    _same(source, into, "all_gather_v")
    many, places = _array(counts, place, "counts", into.scale), _array(displs, place, "displs", into.scale)
    _need_counts(many, "all_gather_v", "counts")
    _length(source, many[place.rank], "send", f"counts[{place.rank}]")
    _reaches(into, extent(many, places), "recv")
    operation = _operation(Collective.ALL_GATHER_V, source.dtype, send=source.address, recv=into.address,
                           count=source.count, recv_counts=many, recv_displs=places)
    return Prepared(operation, (source, into, many, places), recv)


def _need_counts(counts: Any, name: str, what: str) -> None:
    if counts is None:
        raise InvalidArgumentError(f"{name}: {what} is None, want one for each rank")


@_noted
def reduce_scatter(place: Place, send: Buffer, recv: Buffer, op: OpLike = Op.SUM, *, scalar: float | None = None,
                   dtype: DTypeLike = None) -> Prepared:
    kind, factor = _reduction(op, scalar, "reduce_scatter")
    source, into = _describe(place, send, "send", False, dtype), _describe(place, recv, "recv", True, dtype)
    _same(source, into, "reduce_scatter")
    _length(source, place.world * into.count, "send", f"world {place.world} times the {into.elements} of recv")
    operation = _operation(Collective.REDUCE_SCATTER, source.dtype, op=kind, scalar=factor, send=source.address,
                           recv=into.address, count=into.count)
    return Prepared(operation, (source, into), recv)


@_noted
def reduce_scatter_v(place: Place, send: Buffer, recv: Buffer, counts: Numbers,
                     displs: Numbers | None = None, op: OpLike = Op.SUM, *, scalar: float | None = None,
                     dtype: DTypeLike = None) -> Prepared:
    kind, factor = _reduction(op, scalar, "reduce_scatter_v")
    source, into = _describe(place, send, "send", False, dtype), _describe(place, recv, "recv", True, dtype)
    _same(source, into, "reduce_scatter_v")
    many, places = _array(counts, place, "counts"), _array(displs, place, "displs")
    _need_counts(many, "reduce_scatter_v", "counts")
    _length(into, many[place.rank], "recv", f"counts[{place.rank}]")
    _reaches(source, extent(many, places), "send")
    operation = _operation(Collective.REDUCE_SCATTER_V, source.dtype, op=kind, scalar=factor, send=source.address,
                           recv=into.address, count=into.count, send_counts=many, send_displs=places)
    return Prepared(operation, (source, into, many, places), recv)


@_noted
def all_to_all(place: Place, send: Buffer, recv: Buffer, *, dtype: DTypeLike = None) -> Prepared:
    source, into = _moved(place, send, "send", False, dtype), _moved(place, recv, "recv", True, dtype)
    _same(source, into, "all_to_all")
    _length(into, source.count, "recv", "as many as send")
    if source.elements % place.world:
        raise InvalidArgumentError(f"send has {source.elements} elements, which do not divide into world {place.world} "
                                   "blocks")
    operation = _operation(Collective.ALL_TO_ALL, source.dtype, send=source.address, recv=into.address,
                           count=source.count // place.world)
    return Prepared(operation, (source, into), recv)


@_noted
def all_to_all_v(place: Place, send: Buffer, send_counts: Counts, recv: Buffer, recv_counts: Counts,
                 send_displs: Counts | None = None, recv_displs: Counts | None = None, *,
                 row: int = 1, dtype: DTypeLike = None) -> Prepared:
    source, into = _moved(place, send, "send", False, dtype), _moved(place, recv, "recv", True, dtype)
    each = _row(row, source.scale)
    _same(source, into, "all_to_all_v")
    arrays = _counts.on_device((send_counts, send_displs, recv_counts, recv_displs), place.world, place.on_device,
                               source, into)
    if arrays is not None:
        at = [None if memory is None else ctypes.cast(memory.address, _int64s) for memory in arrays]
        operation = _operation(Collective.ALL_TO_ALL_V, source.dtype, send=source.address, recv=into.address,
                               counts_on_device=1, count=each,
                               send_counts=at[0], send_displs=at[1], recv_counts=at[2], recv_displs=at[3],
                               send_capacity=source.count, recv_capacity=into.count)
        return Prepared(operation, (source, into, *arrays), recv)
    to, to_places = _array(send_counts, place, "send_counts", each), _array(send_displs, place, "send_displs", each)
    come, come_places = _array(recv_counts, place, "recv_counts", each), _array(recv_displs, place, "recv_displs", each)
    _need_counts(to, "all_to_all_v", "send_counts")
    _need_counts(come, "all_to_all_v", "recv_counts")
    _reaches(source, extent(to, to_places), "send")
    _reaches(into, extent(come, come_places), "recv")
    operation = _operation(Collective.ALL_TO_ALL_V, source.dtype, send=source.address, recv=into.address,
                           send_counts=to, send_displs=to_places, recv_counts=come, recv_displs=come_places)
    return Prepared(operation, (source, into, to, to_places, come, come_places), recv)


@_noted
def gather(place: Place, send: Buffer, recv: Buffer | None = None, root: int = 0, *,
           dtype: DTypeLike = None) -> Prepared:
    root = _root(place, root, "gather")
    source = _moved(place, send, "send", False, dtype)
    into = None
    if place.rank == root:
        _need(recv, "gather", "recv")
        into = _moved(place, recv, "recv", True, dtype)
        _same(source, into, "gather")
        _length(into, place.world * source.count, "recv", f"world {place.world} times the {source.elements} of send")
    operation = _operation(Collective.GATHER, source.dtype, root=root, send=source.address,
                           recv=into.address if into else None, count=source.count)
    return Prepared(operation, (source, into), recv if into else None)


@_noted
def gather_v(place: Place, send: Buffer, recv: Buffer | None = None, counts: Numbers | None = None,
             displs: Numbers | None = None, root: int = 0, *, dtype: DTypeLike = None) -> Prepared:
    root = _root(place, root, "gather_v")
    source = _moved(place, send, "send", False, dtype)
    into = many = places = None
    if place.rank == root:
        _need(recv, "gather_v", "recv")
        _need(counts, "gather_v", "counts")
        into = _moved(place, recv, "recv", True, dtype)
        _same(source, into, "gather_v")
        many, places = _array(counts, place, "counts", into.scale), _array(displs, place, "displs", into.scale)
        _length(source, many[place.rank], "send", f"counts[{place.rank}]")
        _reaches(into, extent(many, places), "recv")
    operation = _operation(Collective.GATHER_V, source.dtype, root=root, send=source.address,
                           recv=into.address if into else None, count=source.count, recv_counts=many,
                           recv_displs=places)
    return Prepared(operation, (source, into, many, places), recv if into else None)


@_noted
def scatter(place: Place, send: Buffer | None, recv: Buffer, root: int = 0, *, dtype: DTypeLike = None) -> Prepared:
    root = _root(place, root, "scatter")
    into = _moved(place, recv, "recv", True, dtype)
    source = None
    if place.rank == root:
        _need(send, "scatter", "send")
        source = _moved(place, send, "send", False, dtype)
        _same(source, into, "scatter")
        _length(source, place.world * into.count, "send", f"world {place.world} times the {into.elements} of recv")
    operation = _operation(Collective.SCATTER, into.dtype, root=root, send=source.address if source else None,
                           recv=into.address, count=into.count)
    return Prepared(operation, (source, into), recv)


@_noted
def scatter_v(place: Place, send: Buffer | None, recv: Buffer, counts: Numbers | None = None,
              displs: Numbers | None = None, root: int = 0, *, dtype: DTypeLike = None) -> Prepared:
    root = _root(place, root, "scatter_v")
    into = _moved(place, recv, "recv", True, dtype)
    source = many = places = None
    if place.rank == root:
        _need(send, "scatter_v", "send")
        _need(counts, "scatter_v", "counts")
        source = _moved(place, send, "send", False, dtype)
        _same(source, into, "scatter_v")
        many, places = _array(counts, place, "counts", source.scale), _array(displs, place, "displs", source.scale)
        _length(into, many[place.rank], "recv", f"counts[{place.rank}]")
        _reaches(source, extent(many, places), "send")
    operation = _operation(Collective.SCATTER_V, into.dtype, root=root, send=source.address if source else None,
                           recv=into.address, count=into.count, send_counts=many, send_displs=places)
    return Prepared(operation, (source, into, many, places), recv)


@_noted
def send(place: Place, buffer: Buffer, peer: int, *, dtype: DTypeLike = None) -> Prepared:
    peer = _root(place, peer, "send", "peer")
    memory = _moved(place, buffer, "buffer", False, dtype)
    return Prepared(_operation(Collective.SEND, memory.dtype, root=peer, send=memory.address, count=memory.count),
                    memory, None)


@_noted
def recv(place: Place, buffer: Buffer, peer: int, *, dtype: DTypeLike = None) -> Prepared:
    peer = _root(place, peer, "recv", "peer")
    memory = _moved(place, buffer, "buffer", True, dtype)
    return Prepared(_operation(Collective.RECV, memory.dtype, root=peer, recv=memory.address, count=memory.count),
                    memory, buffer)


@_noted
def barrier(place: Place) -> Prepared:
    return Prepared(_operation(Collective.BARRIER), None, None)


@_noted
def put(place: Place, window: int, data: Buffer, peer: int, offset: int, dtype: DTypeLike = None) -> Prepared:
    peer = _root(place, peer, "put", "peer")
    memory = _moved(place, data, "data", False, dtype)
    return Prepared(_operation(Collective.PUT, memory.dtype, root=peer, send=memory.address, count=memory.count,
                               window=window, offset=whole(offset, "offset")), memory, None)


@_noted
def get(place: Place, window: int, buffer: Buffer, peer: int, offset: int, dtype: DTypeLike = None) -> Prepared:
    peer = _root(place, peer, "get", "peer")
    memory = _moved(place, buffer, "buffer", True, dtype)
    return Prepared(_operation(Collective.GET, memory.dtype, root=peer, recv=memory.address, count=memory.count,
                               window=window, offset=whole(offset, "offset")), memory, buffer)


@_noted
def signal(place: Place, window: int, peer: int) -> Prepared:
    peer = _root(place, peer, "signal", "peer")
    return Prepared(_operation(Collective.SIGNAL, root=peer, window=window), None, None)


@_noted
def wait(place: Place, window: int, peer: int, times: int) -> Prepared:
    peer = _root(place, peer, "wait", "peer")
    return Prepared(_operation(Collective.WAIT, root=peer, window=window, offset=whole(times, "times")), None, None)


#: The operations that Communicator.start begins, by name.
STARTABLE = {
    f.__name__: f
    for f in (all_reduce, reduce, broadcast, all_gather, all_gather_v, reduce_scatter, reduce_scatter_v, all_to_all,
              all_to_all_v, gather, gather_v, scatter, scatter_v, send, recv, barrier)
}
