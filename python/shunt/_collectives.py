"""The collectives of a communicator.

Each has a quick path for the most common arguments: numpy arrays or tensors of torch
that are contiguous, writable, not empty and of matching dtypes and lengths. It calls
the function of shunt.h directly (_quick). Everything else, and every mistake, takes
the full path of _operations, which handles all kinds of memory and raises the errors.
"""

from array import array
from typing import Any, Literal, Protocol, TypeVar, overload

from . import _dtypes, _numbers, _operations
from ._buffers import B, Buffer
from ._counts import Counts, Numbers
from ._device import StreamLike, stream_of, tensor_stream
from ._dtypes import DTypeLike, OpLike
from ._running import INTERRUPTED, PENDING, Running
from ._tables import DType, InvalidArgumentError, Op

#: A number of Python; what it is reduced to is one of its kind.
N = TypeVar("N", int, float)


class _Scalar(Protocol):
    """A number of numpy."""

    @property
    def dtype(self) -> Any: ...

    def item(self) -> Any: ...

    def tobytes(self) -> bytes: ...


class _Integer(_Scalar, Protocol):
    """A whole number of numpy."""

    @property
    def numerator(self) -> Any: ...


S = TypeVar("S", bound=_Scalar)

_SUM = Op.SUM


def _quick_op(op: OpLike) -> Op | None:
    """Returns the op for the quick paths, or None."""
    found = op if type(op) is Op else _dtypes.OPS.get(op) if type(op) is str else None
    return None if found is Op.PREMUL_SUM else found


class _Blocks:
    """Counts and displacements for the library: arrays, which this keeps alive, and
    their addresses."""

    __slots__ = ("counts", "at", "displs", "displs_at")

    def __init__(self, counts: array, displs: array | None) -> None:
        self.counts, self.displs = counts, displs
        self.at = counts.buffer_info()[0]
        self.displs_at = None if displs is None else displs.buffer_info()[0]


class Collectives(Running):
    """The collectives of Communicator."""

    # ---- the quick paths ----

    def _is_rank(self, rank: Any) -> bool:
        return type(rank) is int and 0 <= rank < self.world

    def _one(self, buffer: Any, dtype: DTypeLike, stream: StreamLike) -> Any:
        """Returns (address, count, dtype, stream, GPU) of a buffer, or None if it takes
        the full path."""
        if dtype is not None or self._groups or (stream is not None and not self.on_device):
            return None
        memory = self._arrays.described(buffer)
        if memory is None:
            return None
        address, count, kind, gpu = memory
        try:
            return address, count, kind, self._number(stream, gpu), gpu
        except Exception:
            return None  # the full path says what is wrong, to the other ranks too

    def _pair(self, send: Any, recv: Any, dtype: DTypeLike, stream: StreamLike) -> Any:
        """Two buffers as (address of send, of recv, count of send, of recv, dtype,
        stream, GPU of send), or None if they take the full path."""
        one = self._one(send, dtype, stream)
        into = None if one is None else self._arrays.described(recv)
        if into is None or into[2] is not one[2]:
            return None
        return one[0], into[0], one[1], into[1], one[2], one[3], one[4]

    def _number(self, stream: StreamLike, gpu: int | None) -> int | None:
        """Returns the stream of a quick call; without one, torch's current on that GPU."""
        if not self.on_device:
            return None
        return tensor_stream(gpu) if stream is None else stream_of(stream)

    def _blocks(self, counts: Any, displs: Any, room: int) -> _Blocks | None:
        """Returns the blocks of a buffer of room elements, or None if the arguments are no
        lists of numbers or the buffer is too short."""
        if type(counts) not in (list, tuple) or len(counts) != self.world:
            return None
        try:
            many = array("q", counts)
            if min(many) < 0:
                return None
            if displs is None:
                return _Blocks(many, None) if sum(many) <= room else None
            if type(displs) not in (list, tuple) or len(displs) != self.world:
                return None
            places = array("q", displs)
        except (TypeError, OverflowError):
            return None
        if min(places) < 0 or _operations.extent(many, places) > room:
            return None
        return _Blocks(many, places)

    def _blocks_on(self, gpu: int | None, counts: Any, displs: Any) -> Any:
        """Returns the addresses of tensors of counts and displacements on that GPU, or None
        if they are no such tensors. Nothing reads their elements."""
        places = []
        for given in (counts,) if displs is None else (counts, displs):
            memory = self._arrays.described(given)
            if (memory is None or memory[1] != self.world or memory[2] is not DType.INT64 or memory[3] != gpu
                    or given.dim() != 1):
                return None
            places.append(memory[0])
        return places if displs is not None else (*places, None)

    # ---- the collectives ----

    @overload
    def all_reduce(self, send: int, recv: None = None, *,  # type: ignore[overload-overlap]
                   op: Literal["avg", "premul_sum", Op.AVG, Op.PREMUL_SUM], scalar: float | None = ...) -> float: ...
    @overload
    def all_reduce(self, send: _Integer, recv: None = None, *,
                   op: Literal["avg", "premul_sum", Op.AVG, Op.PREMUL_SUM], scalar: float | None = ...) -> Any: ...
    @overload
    def all_reduce(self, send: S, recv: None = None, op: OpLike = ..., *, scalar: float | None = ...) -> S: ...
    @overload
    def all_reduce(self, send: N, recv: None = None, op: OpLike = ..., *, scalar: float | None = ...) -> N: ...
    @overload
    def all_reduce(self, send: B, recv: None = None, op: OpLike = ..., *, scalar: float | None = ...,
                   dtype: DTypeLike = ...,
                   stream: StreamLike = ...) -> B: ...
    @overload
    def all_reduce(self, send: Buffer, recv: B, op: OpLike = ..., *, scalar: float | None = ..., dtype: DTypeLike = ...,
                   stream: StreamLike = ...) -> B: ...
    def all_reduce(self, send: Any, recv: Any = None, op: OpLike = Op.SUM, *, scalar: float | None = None,
                   dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Reduces n elements over all ranks into every rank's recv.

        send: n elements. recv: n elements of the same type; None means in
        place. op: sum, prod, max, min, avg or premul_sum; premul_sum multiplies
        this rank's elements by scalar first. Returns recv (or send).

        send may also be a number, on every rank; then the result is returned, a
        float for floats, an int for ints (of avg and premul_sum a float) and a scalar
        of numpy for one of numpy.
        """
        code = 0 if op is _SUM else _quick_op(op)
        if code is not None and scalar is None and dtype is None and not self._groups:
            # _quick inlined: this is the fastest call of all.
            result = send if recv is None else recv
            handle = self._handle
            status: int | None = PENDING
            try:
                status = self._arrays.quick(handle, self._all_reduce, send, result, 1, 1, stream, code)
                if status:
                    status = self._settle(handle, status)
                    self._check(status)
            except BaseException as error:
                try:
                    self._interrupted(handle, status, error)
                except BaseException:
                    self._cancel(handle, INTERRUPTED)  # a second Ctrl-C came before that, or the stack is full
                raise
            if status is not None:
                return result
        number = self._boxed("all_reduce", send, op) if recv is None else None
        prepared = _operations.all_reduce(self, send if number is None else number, recv, op, scalar=scalar,
                                          dtype=dtype)
        result = self._run(prepared, stream)
        return result if number is None else number[0]

    def _boxed(self, name: str, value: Any, op: OpLike = Op.SUM) -> Any:
        """A number as a buffer, or None if it is none."""
        with self._noting(name):
            number = _numbers.boxed(value, op)
            if number is not None and self._group() is not None:
                raise InvalidArgumentError(f"{name}: a number cannot go in a group, as its result is there only at the "
                                           "end")
        return number

    @overload
    def reduce(self, send: B, recv: None = None, root: int = ..., op: OpLike = ..., *, scalar: float | None = ...,
               dtype: DTypeLike = ..., stream: StreamLike = ...) -> B | None: ...
    @overload
    def reduce(self, send: Buffer, recv: B, root: int = ..., op: OpLike = ..., *, scalar: float | None = ...,
               dtype: DTypeLike = ..., stream: StreamLike = ...) -> B | None: ...
    def reduce(self, send: Any, recv: Any = None, root: int = 0, op: OpLike = Op.SUM, *, scalar: float | None = None,
               dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Reduces n elements over all ranks into root's recv.

        send: n elements. recv, on the root: n elements; None means in place.
        Other ranks' recv is ignored. Returns recv on the root, else None.
        """
        code = _quick_op(op) if scalar is None and dtype is None else None
        if code is not None and self._is_rank(root):
            result = None if self.rank != root else send if recv is None else recv
            if self._quick(self._lib.shunt_reduce, send, result, 1, self.rank == root, stream, code, root):
                return result
        return self._run(_operations.reduce(self, send, recv, root, op, scalar=scalar, dtype=dtype), stream)

    @overload
    def broadcast(self, buffer: S, root: int = ...) -> S: ...
    @overload
    def broadcast(self, buffer: N, root: int = ...) -> N: ...
    @overload
    def broadcast(self, buffer: B, root: int = ..., *, dtype: DTypeLike = ..., stream: StreamLike = ...) -> B: ...
    def broadcast(self, buffer: Any, root: int = 0, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Sends root's n elements to every rank's buffer of n elements. Returns the
        buffer. On every rank a number of one type instead of a buffer: returns root's."""
        if (dtype is None and self._is_rank(root)
                and self._quick(self._lib.shunt_broadcast, buffer, buffer, 1, 1, stream, root)):
            return buffer
        number = self._boxed("broadcast", buffer)
        result = self._run(_operations.broadcast(self, buffer if number is None else number, root, dtype=dtype), stream)
        if number is None:
            return result
        return bool(number[0]) if isinstance(buffer, bool) else number[0]

    def all_gather(self, send: Buffer, recv: B, *, dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """Concatenates every rank's n elements, in rank order, into every rank's recv of
        world * n elements, which is returned. send may be this rank's block of recv."""
        if dtype is None and self._quick(self._lib.shunt_all_gather, send, recv, 1, self.world, stream):
            return recv
        return self._run(_operations.all_gather(self, send, recv, dtype=dtype), stream)

    def all_gather_v(self, send: Buffer, recv: B, counts: Numbers,
                     displs: Numbers | None = None, *, dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """As all_gather, with counts[r] elements of rank r at recv[displs[r]];
        displs None means packed. Counts and displacements are equal on all
        ranks."""
        pair = self._pair(send, recv, dtype, stream)
        if pair is not None:
            blocks = self._blocks(counts, displs, pair[3])
            if blocks is not None and blocks.counts[self.rank] == pair[2]:
                self._call(self._lib.shunt_all_gather_v, pair[0], pair[1], blocks.at, blocks.displs_at, pair[4],
                           pair[5])
                return recv
        return self._run(_operations.all_gather_v(self, send, recv, counts, displs, dtype=dtype), stream)

    def reduce_scatter(self, send: Buffer, recv: B, op: OpLike = Op.SUM, *, scalar: float | None = None,
                       dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """Reduces world * n elements of send; rank r gets block r in its recv
        of n elements, which is returned."""
        code = _quick_op(op) if scalar is None and dtype is None else None
        if code is not None and self._quick(self._lib.shunt_reduce_scatter, send, recv, self.world, 1, stream, code):
            return recv
        return self._run(_operations.reduce_scatter(self, send, recv, op, scalar=scalar, dtype=dtype), stream)

    def reduce_scatter_v(self, send: Buffer, recv: B, counts: Numbers,
                         displs: Numbers | None = None, op: OpLike = Op.SUM, *, scalar: float | None = None,
                         dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """As reduce_scatter, with block r of counts[r] elements at
        send[displs[r]]."""
        code = _quick_op(op) if scalar is None else None
        pair = self._pair(send, recv, dtype, stream) if code is not None else None
        if pair is not None:
            blocks = self._blocks(counts, displs, pair[2])
            if blocks is not None and blocks.counts[self.rank] == pair[3]:
                self._call(self._lib.shunt_reduce_scatter_v, pair[0], pair[1], blocks.at, blocks.displs_at, pair[4],
                           code, pair[5])
                return recv
        return self._run(_operations.reduce_scatter_v(self, send, recv, counts, displs, op, scalar=scalar, dtype=dtype),
                         stream)

    def all_to_all(self, send: Buffer, recv: B, *, dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """Sends block r of send to rank r; both buffers have world blocks of equal length.
        Returns recv."""
        if dtype is None and self._quick(self._lib.shunt_all_to_all, send, recv, self.world, self.world, stream):
            return recv
        return self._run(_operations.all_to_all(self, send, recv, dtype=dtype), stream)

    def all_to_all_v(self, send: Buffer, send_counts: Counts, recv: B, recv_counts: Counts,
                     send_displs: Counts | None = None, recv_displs: Counts | None = None, *,
                     row: int = 1, dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """Sends send_counts[r] elements at send[send_displs[r]] to rank r, and receives
        recv_counts[r] from it at recv[recv_displs[r]]; both ends of a pair must agree
        on its counts. Displacements None mean packed. Returns recv.

        Counts and displacements are world numbers each, in rows of row elements. On a GPU they
        may also be its arrays (of one dimension, int64, contiguous, of world
        elements): both counts, and the displacements that are given, and on all
        ranks or none. The kernel reads them when it runs, so kernels before it in
        the stream may compute them, the host does not wait for the GPU, and a CUDA graph
        uses those of each replay. Keep them as you keep the buffers, do not change them
        before the stream is past the call, and do not put them into recv.

        Only the kernel finds a count that is negative or reaches past send or recv, or a
        count to this rank itself that differs from the one from itself: the communicator
        then fails with InvalidArgumentError on all ranks, which the next call,
        synchronize and error return, and the rank has stored and sent nothing."""
        pair = self._pair(send, recv, dtype, stream) if type(row) is int and row == 1 else None
        if pair is not None:
            to, come = self._blocks(send_counts, send_displs, pair[2]), self._blocks(recv_counts, recv_displs, pair[3])
            if to is not None and come is not None:
                self._call(self._lib.shunt_all_to_all_v, pair[0], to.at, to.displs_at, pair[1], come.at, come.displs_at,
                           pair[4], pair[5])
                return recv
            if self.on_device:
                out = self._blocks_on(pair[6], send_counts, send_displs)
                back = self._blocks_on(pair[6], recv_counts, recv_displs)
                if out is not None and back is not None:
                    self._call(self._lib.shunt_all_to_all_v_on_device, pair[0], pair[2], *out, pair[1], pair[3], *back,
                               pair[4], pair[5])
                    return recv
        return self._run(_operations.all_to_all_v(self, send, send_counts, recv, recv_counts, send_displs,
                                                  recv_displs, row=row, dtype=dtype), stream)

    def gather(self, send: Buffer, recv: B | None = None, root: int = 0, *, dtype: DTypeLike = None,
               stream: StreamLike = None) -> B | None:
        """Concatenates every rank's n elements, in rank order, into root's recv of
        world * n elements. Returns recv on the root, else None."""
        if dtype is None and self._is_rank(root):
            result, blocks = (recv, self.world) if self.rank == root else (None, 0)
            if self._quick(self._lib.shunt_gather, send, result, 1, blocks, stream, root):
                return result
        return self._run(_operations.gather(self, send, recv, root, dtype=dtype), stream)

    def gather_v(self, send: Buffer, recv: B | None = None, counts: Numbers | None = None,
                 displs: Numbers | None = None, root: int = 0, *, dtype: DTypeLike = None,
                 stream: StreamLike = None) -> B | None:
        """As gather; the root gives the count and the displacement of each rank. Returns
        recv on the root, else None."""
        if self._is_rank(root):
            if self.rank != root:
                one = self._one(send, dtype, stream)
                if one is not None:
                    self._call(self._lib.shunt_gather_v, one[0], one[1], None, None, None, one[2], root, one[3])
                    return None
            else:
                pair = self._pair(send, recv, dtype, stream)
                blocks = self._blocks(counts, displs, pair[3]) if pair is not None else None
                if blocks is not None and blocks.counts[root] == pair[2]:
                    self._call(self._lib.shunt_gather_v, pair[0], pair[2], pair[1], blocks.at, blocks.displs_at,
                               pair[4], root, pair[5])
                    return recv
        return self._run(_operations.gather_v(self, send, recv, counts, displs, root, dtype=dtype), stream)

    def scatter(self, send: Buffer | None, recv: B, root: int = 0, *, dtype: DTypeLike = None,
                stream: StreamLike = None) -> B:
        """Sends block r of root's send of world * n elements to rank r's recv of n
        elements, which is returned. Other ranks' send is ignored."""
        if dtype is None and self._is_rank(root):
            blocks = self.world if self.rank == root else 0
            if self._quick(self._lib.shunt_scatter, send, recv, blocks, 1, stream, root):
                return recv
        return self._run(_operations.scatter(self, send, recv, root, dtype=dtype), stream)

    def scatter_v(self, send: Buffer | None, recv: B, counts: Numbers | None = None,
                  displs: Numbers | None = None, root: int = 0, *, dtype: DTypeLike = None,
                  stream: StreamLike = None) -> B:
        """As scatter; the root gives the count and the displacement of each rank. recv has
        exactly the elements that come."""
        if self._is_rank(root):
            if self.rank != root:
                one = self._one(recv, dtype, stream)
                if one is not None:
                    self._call(self._lib.shunt_scatter_v, None, None, None, one[0], one[1], one[2], root, one[3])
                    return recv
            else:
                pair = self._pair(send, recv, dtype, stream)
                blocks = self._blocks(counts, displs, pair[2]) if pair is not None else None
                if blocks is not None and blocks.counts[root] == pair[3]:
                    self._call(self._lib.shunt_scatter_v, pair[0], blocks.at, blocks.displs_at, pair[1], pair[3],
                               pair[4], root, pair[5])
                    return recv
        return self._run(_operations.scatter_v(self, send, recv, counts, displs, root, dtype=dtype), stream)

    def send(self, buffer: Buffer, peer: int, *, dtype: DTypeLike = None, stream: StreamLike = None) -> None:
        """Sends buffer to peer, whose recv calls take the sends in order. Two ranks that
        both send first need a group."""
        one = self._one(buffer, dtype, stream)
        if one is not None and self._is_rank(peer):
            self._call(self._lib.shunt_send, one[0], one[1], one[2], peer, one[3])
            return
        self._run(_operations.send(self, buffer, peer, dtype=dtype), stream)

    def recv(self, buffer: B, peer: int, *, dtype: DTypeLike = None, stream: StreamLike = None) -> B:
        """Receives from peer into buffer, of the same length and dtype, and returns it.
        Another length raises MismatchError here, and on the sender then or in a later call."""
        one = self._one(buffer, dtype, stream)
        if one is not None and self._is_rank(peer):
            self._call(self._lib.shunt_recv, one[0], one[1], one[2], peer, one[3])
            return buffer
        return self._run(_operations.recv(self, buffer, peer, dtype=dtype), stream)

    def barrier(self, *, stream: StreamLike = None) -> None:
        """No rank returns before every rank has called. On a GPU: nothing that is
        put into the stream later begins before every rank's barrier does."""
        if not self.on_device and stream is None and not self._groups:
            self._call(self._lib.shunt_barrier, None)
            return
        self._run(_operations.barrier(self), stream)
