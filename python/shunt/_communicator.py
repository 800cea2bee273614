"""Communicators."""

import ctypes
import itertools
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from . import _buffers, _device, _dtypes, _library, _operations
from ._buffers import Buffer, Memory, plain
from ._device import StreamLike, tensor, tensor_stream
from ._dtypes import DTypeLike, OpLike
from ._operations import Prepared
from ._registration import Registration
from ._tables import DTYPE_BYTES, ClosedError, Collective, DType, InvalidArgumentError, MemoryKind, Op, ShuntError
from ._window import Window
from ._work import Work

_byref = ctypes.byref
_SUM = Op.SUM


class Group:
    """Operations that run as one; see Communicator.group."""

    def __init__(self, comm: "Communicator") -> None:
        self._comm = comm
        self._hold: list[Prepared] = []
        self._outer: Group | None = None

    def __enter__(self) -> "Group":
        me = threading.get_ident()
        _library.check(self._comm._lib.shunt_group_start(self._comm._alive()))
        self._outer = self._comm._groups.get(me)
        self._comm._groups[me] = self
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        me = threading.get_ident()
        comm = self._comm
        if comm._groups.get(me) is not self:
            # An inner group failed and took the whole of it along.
            return
        if self._outer is None:
            del comm._groups[me]
        else:
            comm._groups[me] = self._outer
        if kind is not None:
            # Half a group must not run: peers would wait for the other half.
            comm._groups.pop(me, None)
            if comm._handle is not None:
                comm._lib.shunt_group_cancel(comm._handle)
            return
        if self._outer is not None:
            self._outer._hold.extend(self._hold)
        status = comm._lib.shunt_group_end(comm._alive())
        self._hold.clear()
        _library.check(status)


class Communicator:
    """A group of ranks that run collectives together; made by shunt.init.

    Every rank must call the same collectives in the same order. Buffers are
    numpy arrays or anything with the buffer protocol, C-contiguous, of any
    shape; lengths are in elements. The element type is the buffer's, or
    dtype= (a DType, its name, or a numpy dtype). Blocking calls release the
    GIL; Ctrl-C is noticed when they return, and at once by Work.wait (start).
    A context manager that closes itself.

    With memory "cuda" buffers are arrays of the communicator's GPU: tensors of
    torch, and what has __cuda_array_interface__ or DLPack (cupy, numba, jax).
    A call puts the operation into a stream and returns. stream= says which:
    the number of a CUstream or a stream of torch or cupy; without it, the one
    that the first buffer names (for a tensor torch's current stream), else the
    default stream. Calls may be captured in CUDA graphs.

    Errors are subclasses of ShuntError. After TimeoutError, PeerDiedError or
    AbortedError the communicator is only good for shrink and close.
    """

    def __init__(self, handle: int, memory: MemoryKind = MemoryKind.HOST) -> None:
        lib = _library.library()
        #: Where its buffers lie.
        self.memory: MemoryKind = memory
        self.on_device: bool = memory is MemoryKind.CUDA
        self._lib = lib
        self._handle: int | None = handle
        number = ctypes.c_int32()
        _library.check(lib.shunt_rank(handle, _byref(number)))
        #: This process's number, 0 to world - 1.
        self.rank: int = number.value
        _library.check(lib.shunt_world(handle, _byref(number)))
        #: Number of ranks.
        self.world: int = number.value
        self._groups: dict[int, Group] = {}
        self._works: dict[Work, None] = {}  # in flight, oldest first
        self._windows: set[Window] = set()
        self._all_reduce = lib.shunt_all_reduce
        self._run_operation = lib.shunt_run

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.world}{'' if self._handle else ', closed'}>"

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self._handle is not None and not _library.forked:
            # Peers may be waiting for calls that will not come.
            self._lib.shunt_abort(self._handle, f"{kind.__name__}: {error}".encode("utf-8", "replace")[:1024])
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not _library.forked:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._handle is None

    def _alive(self) -> int:
        if self._handle is None:
            raise ClosedError(f"the communicator (rank {self.rank} of {self.world}) is closed")
        return self._handle

    # ---- how operations run ----

    def _stream(self, prepared: Prepared, stream: StreamLike) -> None:
        """Enters the stream that an operation on a GPU runs in."""
        if not self.on_device:
            if stream is not None:
                raise InvalidArgumentError("stream= is for communicators of CUDA memory")
            return
        number: int | None = None
        if stream is not None:
            number = _device.stream_of(stream)
        else:
            hold = prepared.hold
            for memory in (hold,) if isinstance(hold, Memory) else hold or ():
                if isinstance(memory, Memory) and memory.stream is not None:
                    number = memory.stream
                    break
        prepared.operation.stream = _device.current_stream() if number is None and prepared.hold is None else number or None

    def _run(self, prepared: Prepared, stream: StreamLike = None) -> Any:
        if self.on_device or stream is not None:
            self._stream(prepared, stream)
        status = self._run_operation(self._alive(), _byref(prepared.operation))
        if status:
            _library.raise_status(status)
        if self._groups:
            self._queue(prepared)
        return prepared.result

    def _failed(self, status: int) -> None:
        self._alive()  # raises ClosedError, which says more than a null handle
        _library.raise_status(status)

    def _queue(self, hold: Any) -> None:
        """Keeps what a group of this thread points into until it has run."""
        group = self._groups.get(threading.get_ident())
        if group is not None:
            group._hold.append(hold)

    def start(self, collective: str, *args: Any, **kwargs: Any) -> Work:
        """Begins a collective and returns at once.

        collective is the name of a method of this class, from all_reduce to
        barrier, and the rest are its arguments. Operations of one communicator
        run in the order they were started; buffers belong to the library until
        Work.wait returns.

            work = comm.start("all_reduce", gradients)
            ...
            work.wait()
        """
        try:
            make = _operations.STARTABLE[collective]
        except (KeyError, TypeError):
            raise InvalidArgumentError(
                f"unknown collective {collective!r}; known are {', '.join(_operations.STARTABLE)}"
            ) from None
        stream = kwargs.pop("stream", None)
        prepared = make(self, *args, **kwargs)
        self._stream(prepared, stream)
        # Lets go of what has ended and was dropped; operations end in order.
        for oldest in list(itertools.islice(self._works, 4)):
            if not oldest.done():
                break
        request = ctypes.c_void_p()
        _library.check(self._lib.shunt_start(self._alive(), _byref(prepared.operation), _byref(request)))
        assert request.value is not None
        work = Work(self, request.value, prepared, collective)
        self._works[work] = None
        return work

    def _forget(self, work: Work) -> None:
        self._works.pop(work, None)

    def group(self) -> Group:
        """A context in which this thread's send, recv, put, get, signal and
        wait are queued; they run together at its end, in no particular order
        between different peers. Received data is there after the context.

            with comm.group():
                comm.send(mine, right)
                comm.recv(theirs, left)
        """
        return Group(self)

    # ---- collectives ----

    def all_reduce(self, send: Buffer, recv: Buffer | None = None, op: OpLike = Op.SUM, *,
                   scalar: float | None = None, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Reduces n elements over all ranks into every rank's recv.

        send: n elements. recv: n elements of the same type; None means in
        place. op: sum, prod, max, min, avg or premul_sum; premul_sum multiplies
        this rank's elements by scalar first. Returns recv (or send).
        """
        if op is _SUM and scalar is None and dtype is None and not self._groups:
            # The common cases, without building an Operation.
            memory = tensor(send) if self.on_device else plain(send) if stream is None else None
            if memory is not None:
                address, count, kind, place = memory
                if recv is None or recv is send:
                    result, into = send, memory
                else:
                    result, into = recv, tensor(recv) if self.on_device else plain(recv)
                if into is not None and into[1] == count and into[2] is kind:
                    number = None
                    if self.on_device:
                        number = tensor_stream(place) if stream is None else _device.stream_of(stream)
                    status = self._all_reduce(self._handle, address, into[0], count, kind, 0, number)
                    if status:
                        self._failed(status)
                    return result
        return self._run(_operations.all_reduce(self, send, recv, op, scalar=scalar, dtype=dtype), stream)

    def reduce(self, send: Buffer, recv: Buffer | None = None, root: int = 0, op: OpLike = Op.SUM, *,
               scalar: float | None = None, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Reduces n elements over all ranks into root's recv.

        send: n elements. recv, on the root: n elements; None means in place.
        Other ranks' recv is ignored. Returns recv on the root, else None.
        """
        return self._run(_operations.reduce(self, send, recv, root, op, scalar=scalar, dtype=dtype), stream)

    def broadcast(self, buffer: Buffer, root: int = 0, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Root's n elements go to every rank's buffer of n elements, which is
        returned."""
        return self._run(_operations.broadcast(self, buffer, root, dtype=dtype), stream)

    def all_gather(self, send: Buffer, recv: Buffer, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Every rank's n elements, in rank order, into every rank's recv of
        world * n elements, which is returned. send may be this rank's block
        of recv."""
        return self._run(_operations.all_gather(self, send, recv, dtype=dtype), stream)

    def all_gather_v(self, send: Buffer, recv: Buffer, counts: Sequence[int],
                     displs: Sequence[int] | None = None, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """As all_gather, with counts[r] elements of rank r at recv[displs[r]];
        displs None means packed. Counts and displacements are equal on all
        ranks."""
        return self._run(_operations.all_gather_v(self, send, recv, counts, displs, dtype=dtype), stream)

    def reduce_scatter(self, send: Buffer, recv: Buffer, op: OpLike = Op.SUM, *, scalar: float | None = None,
                       dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Reduces world * n elements of send; rank r gets block r in its recv
        of n elements, which is returned."""
        return self._run(_operations.reduce_scatter(self, send, recv, op, scalar=scalar, dtype=dtype), stream)

    def reduce_scatter_v(self, send: Buffer, recv: Buffer, counts: Sequence[int],
                         displs: Sequence[int] | None = None, op: OpLike = Op.SUM, *, scalar: float | None = None,
                         dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """As reduce_scatter, with block r of counts[r] elements at
        send[displs[r]]."""
        return self._run(_operations.reduce_scatter_v(self, send, recv, counts, displs, op, scalar=scalar, dtype=dtype), stream)

    def all_to_all(self, send: Buffer, recv: Buffer, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Block r of send goes to rank r; both buffers have world blocks of
        equal length. Returns recv."""
        return self._run(_operations.all_to_all(self, send, recv, dtype=dtype), stream)

    def all_to_all_v(self, send: Buffer, send_counts: Sequence[int], recv: Buffer, recv_counts: Sequence[int],
                     send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None, *,
                     dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """send_counts[r] elements at send[send_displs[r]] go to rank r, and
        recv_counts[r] come from it to recv[recv_displs[r]]; both ends of a pair
        must agree on its counts. Displacements None mean packed. Returns recv."""
        return self._run(_operations.all_to_all_v(self, send, send_counts, recv, recv_counts, send_displs,
                                                  recv_displs, dtype=dtype), stream)

    def gather(self, send: Buffer, recv: Buffer | None = None, root: int = 0, *, dtype: DTypeLike = None,
               stream: StreamLike = None) -> Any:
        """Every rank's n elements, in rank order, into root's recv of
        world * n elements. Returns recv on the root, else None."""
        return self._run(_operations.gather(self, send, recv, root, dtype=dtype), stream)

    def gather_v(self, send: Buffer, recv: Buffer | None = None, counts: Sequence[int] | None = None,
                 displs: Sequence[int] | None = None, root: int = 0, *, dtype: DTypeLike = None,
                 stream: StreamLike = None) -> Any:
        """As gather; the root says with counts and displs what comes from whom
        and where it goes. Returns recv on the root, else None."""
        return self._run(_operations.gather_v(self, send, recv, counts, displs, root, dtype=dtype), stream)

    def scatter(self, send: Buffer | None, recv: Buffer, root: int = 0, *, dtype: DTypeLike = None,
                stream: StreamLike = None) -> Any:
        """Block r of root's send of world * n elements goes to rank r's recv of
        n elements, which is returned. Other ranks' send is ignored."""
        return self._run(_operations.scatter(self, send, recv, root, dtype=dtype), stream)

    def scatter_v(self, send: Buffer | None, recv: Buffer, counts: Sequence[int] | None = None,
                  displs: Sequence[int] | None = None, root: int = 0, *, dtype: DTypeLike = None,
                  stream: StreamLike = None) -> Any:
        """As scatter; the root says with counts and displs what goes to whom.
        recv has exactly the elements that come."""
        return self._run(_operations.scatter_v(self, send, recv, counts, displs, root, dtype=dtype), stream)

    def send(self, buffer: Buffer, peer: int, *, dtype: DTypeLike = None, stream: StreamLike = None) -> None:
        """Sends buffer to peer, whose recv takes it, in the order of the
        sends. Two ranks that send to each other first need a group."""
        self._run(_operations.send(self, buffer, peer, dtype=dtype), stream)

    def recv(self, buffer: Buffer, peer: int, *, dtype: DTypeLike = None, stream: StreamLike = None) -> Any:
        """Receives what peer sent into buffer, of the same length, and returns
        it."""
        return self._run(_operations.recv(self, buffer, peer, dtype=dtype), stream)

    def barrier(self, *, stream: StreamLike = None) -> None:
        """No rank returns before every rank has called. On a GPU: nothing that is
        put into the stream later begins before every rank's barrier does."""
        self._run(_operations.barrier(self), stream)

    # ---- the communicator itself ----

    def split(self, color: int | None, key: int = 0) -> "Communicator | None":
        """Collective: ranks with the same color (0 or more) form a new
        communicator, ordered by key, then by rank. None for no color, and then
        no communicator."""
        return self._made(lambda out: self._lib.shunt_split(
            self._alive(), _library.NO_COLOR if color is None else _int32(color, "color"), _int32(key, "key"), out))

    def shrink(self) -> "Communicator":
        """Collective among the ranks that are alive: a new communicator of
        them, after PeerDiedError or AbortedError. This one is then only good
        for close."""
        made = self._made(lambda out: self._lib.shunt_shrink(self._alive(), out))
        assert made is not None
        return made

    def _made(self, call: Any) -> "Communicator | None":
        out = ctypes.c_void_p()
        _library.check(call(_byref(out)))
        return Communicator(out.value, self.memory) if out.value is not None else None

    def window(self, size: int) -> Window:
        """Collective: size bytes of zero-filled memory on every rank that peers
        reach with put and get. On a GPU it has __cuda_array_interface__."""
        handle, base = ctypes.c_void_p(), ctypes.c_void_p()
        if not 0 <= size < 1 << 62:
            raise InvalidArgumentError(f"window of {size} bytes")
        _library.check(self._lib.shunt_window_create(self._alive(), size, _byref(handle), _byref(base)))
        assert handle.value is not None
        window = Window(self, handle.value, base.value, size, self.on_device)
        self._windows.add(window)
        return window

    def register(self, buffer: Buffer, *, dtype: DTypeLike = None) -> Registration:
        """Collective: from the next call on, long messages from and to a
        buffer on this rank's GPU go straight between the ranks' buffers; every
        rank registers one of its own. Without it that comes about by itself,
        some time after the first call that could use it; and memory that peers
        cannot map is staged, which is UnsupportedError here. For host memory
        there is nothing to do."""
        handle = self._alive()
        memory = _buffers.describe(buffer, "buffer", False, dtype, self.on_device)
        size = memory.count * DTYPE_BYTES[memory.dtype]
        if not size:
            raise InvalidArgumentError("register: the buffer is empty")
        _library.check(self._lib.shunt_register(handle, memory.address, size))
        return Registration(self, memory, size)

    def explain(self, collective: str | Collective, count: int, dtype: DTypeLike = DType.FLOAT32,
                op: OpLike = Op.SUM) -> str:
        """Which transport and algorithm serves a collective of count elements,
        and why not the others."""
        try:
            which = Collective[collective.upper()] if isinstance(collective, str) else Collective(collective)
        except (KeyError, ValueError):
            raise InvalidArgumentError(
                f"unknown collective {collective!r}; known are {', '.join(c.name.lower() for c in Collective)}"
            ) from None
        needed = ctypes.c_size_t()
        arguments = (self._alive(), which, _dtypes.dtype_of(dtype), _dtypes.op_of(op), count)
        _library.check(self._lib.shunt_explain(*arguments, None, 0, _byref(needed)))
        text = ctypes.create_string_buffer(needed.value)
        _library.check(self._lib.shunt_explain(*arguments, text, needed.value, _byref(needed)))
        return text.value.decode("utf-8", "replace")

    def synchronize(self, stream: StreamLike = None) -> None:
        """Waits until everything in a stream has ended, and raises the
        communicator's error if it has failed by then; None is the stream that
        a barrier would run in. On host memory there is nothing to wait for."""
        number = None
        if self.on_device:
            number = _device.current_stream() if stream is None else _device.stream_of(stream)
        _library.check(self._lib.shunt_synchronize(self._alive(), number or None))

    def abort(self, reason: str = "no reason given") -> None:
        """Makes every rank's pending and later calls raise AbortedError. May be
        called from any thread."""
        _library.check(self._lib.shunt_abort(self._alive(), str(reason).encode("utf-8", "replace").replace(b"\0", b" ")))

    def close(self) -> None:
        """Waits for this rank's operations in flight and releases everything.
        Calling it again does nothing. In a forked child it only forgets."""
        if self._handle is None:
            return
        if _library.forked:
            self._handle = None
            return
        for work in list(self._works):
            try:
                work.wait()
            except ShuntError:
                pass  # who waits for the work is told
        for window in list(self._windows):
            window.close()
        handle, self._handle = self._handle, None
        status = self._lib.shunt_close(handle)
        self._groups.clear()
        _library.check(status)


def _int32(value: int, what: str) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise InvalidArgumentError(f"{what} {value} does not fit 32 bits")
    return value


def init(rank: int | None = None, world: int | None = None, id: str | None = None, *,
         transports: str | Sequence[str] | None = None, timeout: float | None = None,
         memory: str | MemoryKind = MemoryKind.HOST, device: int | None = None) -> Communicator:
    """Joins the ranks of a job and returns their communicator. Collective.

    Without arguments everything comes from the environment, as `shunt run`,
    torchrun, mpirun and srun set it. rank and world go together. id is a text
    from unique_id, "tcp://host:port" or "file:///path". transports: as
    SHUNT_TRANSPORTS. timeout: deadline of one operation, in seconds.

    memory: "host" or "cuda". device: with "cuda", the GPU's number; None is that
    of this process's number among the ranks of its host (LOCAL_RANK of
    torchrun), modulo the number of GPUs.
    """
    kind = _memory_kind(memory)
    if device is not None and (kind is not MemoryKind.CUDA or not 0 <= device < 1 << 31):
        raise InvalidArgumentError(f"init: device {device!r} with memory {kind.name.lower()}; want a GPU's number with memory cuda")
    if (rank is None) != (world is None):
        raise InvalidArgumentError("init: rank and world go together: give both or neither")
    if world is not None and (world < 1 or rank is None or not 0 <= rank < world):
        raise InvalidArgumentError(f"init: rank {rank} of world {world}")
    if timeout is not None and not 0.001 <= timeout < 1 << 40:
        raise InvalidArgumentError(f"init: timeout {timeout} s; want at least 0.001")
    if transports is not None and not isinstance(transports, str):
        transports = ",".join(transports)
    options = _library.Options(
        struct_size=ctypes.sizeof(_library.Options),
        rank=_int32(rank or 0, "rank"),
        world=_int32(world or 0, "world"),
        id=_text(id, "id"),
        transports=_text(transports, "transports"),
        timeout_ms=0 if timeout is None else int(timeout * 1000),
        device=_library.DEVICE_AUTO if device is None else device,
        memory=kind,
    )
    out = ctypes.c_void_p()
    _library.check(_library.library().shunt_comm_init(_byref(options), _byref(out)))
    assert out.value is not None
    return Communicator(out.value, kind)


def _memory_kind(memory: str | MemoryKind) -> MemoryKind:
    try:
        return MemoryKind[memory.upper()] if isinstance(memory, str) else MemoryKind(memory)
    except (KeyError, ValueError):
        raise InvalidArgumentError(f"init: unknown memory {memory!r}; known are {', '.join(m.name.lower() for m in MemoryKind)}") from None


def _text(value: str | None, what: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgumentError(f"init: {what} is {value!r}, want a text without zero characters")
    return value.encode("utf-8")


def unique_id() -> str:
    """A text that every rank passes to init as id. This process must be one of
    the ranks: it serves the rendezvous."""
    text = ctypes.create_string_buffer(_library.UNIQUE_ID_BYTES)
    _library.check(_library.library().shunt_get_unique_id(text, _library.UNIQUE_ID_BYTES))
    return text.value.decode("ascii")


def version() -> tuple[int, int, int]:
    """The library's version."""
    parts = [ctypes.c_int32() for _ in range(3)]
    _library.library().shunt_version(*map(_byref, parts))
    return parts[0].value, parts[1].value, parts[2].value
