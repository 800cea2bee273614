"""Communicators: making, closing, explaining and watching them."""

import ctypes
import json
import threading
import warnings
from typing import Any, TextIO

from . import _allocator, _buffers, _device, _dtypes, _library, _records
from ._buffers import Buffer
from ._device import StreamLike
from ._dtypes import DTypeLike, OpLike
from ._interruptible import interruptible
from ._objects import Objects
from ._operations import deadline, whole
from ._registration import Registration, let_go
from ._tables import DTYPE_BYTES, Collective, DType, InvalidArgumentError, MemoryKind, Op, ShuntError
from ._window import Window

_byref = ctypes.byref


class Communicator(Objects):
    """A group of ranks that run collectives together; made by shunt.init.

    Every rank must call the same collectives in the same order. Buffers are
    numpy arrays, tensors of torch on the CPU, and other objects with the buffer
    protocol or DLPack, C-contiguous, of any shape; lengths are in elements. The
    element type is the buffer's, or dtype= (a DType, its name, or a numpy dtype).
    Blocking calls release the GIL. A context manager that closes itself; an exception
    that leaves it, other than that of sys.exit(0) or of a generator's close, aborts
    first: the other ranks' calls raise AbortedError with its text.

    With memory "cuda" buffers are arrays of the communicator's GPU: tensors of
    torch, and objects with `__cuda_array_interface__` or DLPack (cupy, numba,
    jax). A call puts the operation into a stream and returns. stream= is the
    number of a CUstream or a stream of torch or cupy; without it the stream is
    that of the first buffer (for a tensor torch's current stream), else the
    default stream. Calls may be captured in CUDA graphs.

    Errors are subclasses of ShuntError. After TimeoutError, PeerDiedError,
    MismatchError or AbortedError of a collective the communicator is only good for
    shrink and close. Any thread may ask for error and records meanwhile.

    Signal handlers run within a tenth of a second, whatever the main thread waits
    for. When one raises (Ctrl-C: KeyboardInterrupt) during a call, and the call is
    not over by then, the communicator is aborted: every other rank's calls raise
    AbortedError, "rank 1 aborted: interrupted by KeyboardInterrupt", and the
    buffers are free again. Only Work.wait lets the operation continue.
    """

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.world}{'' if self._handle else ', closed'}>"

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if _ends_well(error):
            kind = None
        if kind is not None and self._handle is not None and not _library.forked:
            # Peers may be waiting for calls that will not come.
            try:
                reason = f"{kind.__name__}: {error}".removesuffix(": ")
            except Exception:  # of its __str__
                reason = kind.__name__
            self._lib.shunt_abort(self._handle, _reason(reason))
        try:
            self.close()
        except ShuntError:
            if kind is None:
                raise  # else the error that ended the block is what matters, and often the cause of this one

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not _library.forked:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    @property
    def size(self) -> int:
        """Number of ranks, by the name that mpi4py and torch have for it; the same as world."""
        return self.world

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._handle is None

    # ---- the communicator itself ----

    def split(self, color: int | None, key: int = 0) -> "Communicator | None":
        """Collective: ranks with the same color (0 or more) form a new
        communicator, ordered by key, then by rank. None for no color, and then
        no communicator."""
        with self._noting("split"):
            number, key = _library.NO_COLOR if color is None else int32(color, "color"), int32(key, "key")
            if color is not None and number < 0:
                raise InvalidArgumentError(f"split: color {number} is negative")
        return self._made(self._lib.shunt_split, number, key)

    def shrink(self) -> "Communicator":
        """Collective among the ranks that are alive: a new communicator of
        them, in the same order, after a failure of this one, which is then only
        good for close."""
        made = self._made(self._lib.shunt_shrink)
        assert made is not None
        return made

    def _made(self, function: Any, *arguments: int) -> "Communicator | None":
        alive = self._alive()

        def make() -> int | None:
            out = ctypes.c_void_p()
            _library.check(function(alive, *arguments, _byref(out)))
            return out.value

        handle = interruptible(make, self._end, lambda handle: end(self._lib, handle))
        return made(self._lib, handle, self.memory) if handle is not None else None

    def window(self, size: int) -> Window:
        """Collective: size bytes of zero-filled memory on every rank that peers
        reach with put and get. On a GPU it has `__cuda_array_interface__`."""
        handle, base = ctypes.c_void_p(), ctypes.c_void_p()
        with self._noting("window"):
            size = whole(size, "window: size")
            if not 0 <= size < 1 << 62:
                raise InvalidArgumentError(f"window: size is {size} bytes, want 0 or more and less than 2**62")
        alive = self._alive()
        interruptible(lambda: _library.check(self._lib.shunt_window_create(alive, size, _byref(handle), _byref(base))),
                      self._end, lambda _: self._lib.shunt_window_free(handle.value))
        assert handle.value is not None
        try:
            window = Window(self, handle.value, base.value, size, self.on_device)
        except BaseException:
            self._lib.shunt_window_free(handle.value)
            raise
        self._windows.add(window)
        return window

    def register(self, buffer: Buffer, *, dtype: DTypeLike = None, symmetric: bool = False) -> Registration:
        """Collective: from the next call on, long messages from and to a
        buffer on this rank's GPU go straight between the ranks' buffers; every
        rank registers one of its own. Without it peers map the buffer in the
        background, some time after the first call that could use it, and memory that
        they cannot map is staged, which is UnsupportedError here. Host memory is
        registered with transports that have an engine for it; end that before it is freed.

        symmetric is a guarantee by the caller, by which large messages may go through
        the GPUs' copy engines: whenever all_reduce, all_gather, all_to_all, broadcast or
        scatter receives into the buffer on one rank, it does so on every rank,
        each into the buffer that it registered in this call, at the same
        offset; and an all_reduce is in place on all ranks or on none. Symmetric buffers
        have the same size on all ranks, those that overlap do so alike everywhere, and
        none overlaps a window; keep them until the registration is closed, which all
        ranks do between the same two collectives. A call that breaks the guarantee raises MismatchError on all
        ranks."""
        alive = self._alive()
        with self._noting("register"):
            memory = _buffers.describe(buffer, "buffer", False, dtype, self.on_device)
            size = memory.count * DTYPE_BYTES[memory.dtype]
            if not size:
                raise InvalidArgumentError("register: the buffer is empty")
        register = self._lib.shunt_register_symmetric if symmetric else self._lib.shunt_register
        interruptible(lambda: _library.check(register(alive, memory.address, size)),
                      self._end, lambda _: self._lib.shunt_deregister(alive, memory.address))
        return Registration(self, memory, size)

    def allocator(self, *, symmetric: bool = False, segment_bytes: int = 0) -> _allocator.Allocator:
        """Local: an allocator of memory of this rank's GPU that peers map, without memory yet. All ranks make their
        symmetric ones in the same order, with the same segment_bytes: the least size of a segment of its memory, in
        multiples of 2 MiB (0: 32 MiB). UnsupportedError for host memory."""
        handle = ctypes.c_void_p()
        size = whole(segment_bytes, "allocator: segment_bytes")
        if not 0 <= size < 1 << 62:
            raise InvalidArgumentError(f"allocator: segment_bytes is {size}, want 0 or more and less than 2**62")
        _library.check(self._lib.shunt_allocator_create(self._alive(), _allocator._SYMMETRIC if symmetric else 0, size,
                                                        _byref(handle)))
        assert handle.value is not None
        return _allocator.Allocator(self, handle.value, symmetric)

    def explain(self, collective: str | Collective, count: int, dtype: DTypeLike = DType.FLOAT32,
                op: OpLike = Op.SUM) -> str:
        """Returns which transport and algorithm serves a collective of count elements,
        and why not the others."""
        try:
            which = Collective[collective.upper()] if isinstance(collective, str) else Collective(collective)
        except (KeyError, ValueError):
            raise InvalidArgumentError(
                f"unknown collective {collective!r}; known are {', '.join(c.name.lower() for c in Collective)}"
            ) from None
        needed = ctypes.c_size_t()
        arguments = (self._alive(), which, _dtypes.dtype_of(dtype), _dtypes.op_of(op), whole(count, "explain: count"))
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
        self._call(self._lib.shunt_synchronize, number or None)

    def abort(self, reason: str = "no reason given") -> None:
        """Makes every rank's pending and later calls raise AbortedError. May be
        called from any thread. Of a long reason all get the beginning."""
        _library.check(self._lib.shunt_abort(self._alive(), _reason(str(reason))))

    def set_timeout(self, timeout: float) -> None:
        """Changes the deadline, in seconds, of what this rank calls from now on; init
        has set it. With memory "cuda" it bounds what is enqueued already, too.
        Communicators that are made of this one later inherit it. May be called from
        any thread."""
        _library.check(self._lib.shunt_set_timeout(self._alive(), deadline(timeout, "set_timeout: timeout")))

    @property
    def error(self) -> ShuntError | None:
        """None while the communicator works; after a failure the exception, not
        raised, with the class and the cause of what every later call raises.

        It waits for nothing, also while other threads are inside calls or those
        hang: for a watchdog that asks every now and then. A rank's death is known
        at once, what a kernel has found on the GPU within a quarter of a second,
        without a call or synchronize."""
        status = ctypes.c_int32()
        self._ask(self._lib.shunt_get_async_error, _byref(status))
        return _library.error_of(status.value) if status.value else None

    def records(self) -> list[dict[str, Any]]:
        """The flight recorder: this rank's latest operations, oldest first, as
        many as SHUNT_FLIGHT_RECORDER_SIZE says. Waits for nothing, as error.

        Each has number, collective, dtype, op (of reductions), count, root,
        symmetric (where it is), begin_ns and end_ns since the communicator was
        made, plan (on a GPU: the algorithm and the kernels that ran), and state:
        running, ended or failed; on a GPU enqueued, as whether an operation has
        ended in its stream is not seen."""
        operations: list[dict[str, Any]] = json.loads(self._record())["operations"]
        return operations

    def write_records(self, file: TextIO) -> None:
        """Writes the flight recorder to a text file as one line of JSON: an object
        with communicator, job, rank, world, pid, host, last (the call made last,
        numbered as on all ranks), code and failure (after one) and operations,
        which are those of records."""
        file.write(self._record() + "\n")

    def _record(self) -> str:
        return _records.text(lambda *room: self._ask(self._lib.shunt_records, *room))

    def _ask(self, function: Any, *arguments: Any) -> None:
        """Calls a function that waits for nothing."""
        status = function(self._alive(), *arguments)
        if status:
            self._alive()  # another thread has closed it: that says more
            _library.raise_status(status)

    def close(self) -> None:
        """Waits for this rank's operations in flight, on a GPU two seconds at most (what runs
        then goes on in its stream), and releases everything. Raises the errors of that, but
        not again a failure that a call has raised or error has returned. Calling it again
        does nothing. In a forked child it only drops the handle. Interrupted while
        operations are in flight it aborts, and must be called again; later it completes by
        itself."""
        handle = self._handle
        if handle is None:
            return
        if _library.forked:
            self._handle = None
            return
        try:
            for work in list(self._works):
                if work._request:  # else the library is yet to hear of it
                    work._ends()
        except BaseException as error:
            # Of a signal handler, and the program wants to be gone.
            self._end(f"interrupted by {type(error).__name__}".encode())
            raise
        found: ShuntError | None = None
        for window in list(self._windows):
            try:
                window.close()
            except ShuntError as error:
                found = found or error
        try:
            if not self._unclosed.pop(0, False):
                return  # another thread is at it
            self._handle = None
            if self._groups.pop(threading.get_ident(), None) is not None:
                self._lib.shunt_group_cancel(handle)
            self._groups.clear()
            # A close that has begun continues: there is nothing to cancel, nor to undo.
            interruptible(lambda: _library.check(self._lib.shunt_close(handle)), lambda reason: None, lambda _: None)
        except BaseException as error:
            self._handle = None
            self._lib.shunt_close(handle)  # which does nothing if it has begun
            if not isinstance(error, ShuntError):
                raise
            found = found or error
        finally:
            let_go(handle)
        if found is not None:
            raise found


def _ends_well(error: Any) -> bool:
    """Whether an exception is the end of a program or a generator that has done its work, as that of sys.exit() is."""
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and (
        error.code is None or (isinstance(error.code, int) and error.code == 0)))


def _reason(text: str) -> bytes:
    """The reason of an abort for the library, which takes no more than 64 KiB."""
    return text.encode("utf-8", "replace").replace(b"\0", b" ")[:1024]


def int32(value: int, what: str) -> int:
    """Returns a value that fits the library's 32-bit integers."""
    return whole(value, what, 32)


def made(lib: Any, handle: int, memory: MemoryKind) -> Communicator:
    """The communicator of a new handle, which is ended if a signal handler raises meanwhile."""
    try:
        return Communicator(handle, memory)
    except BaseException:
        end(lib, handle)
        raise


def end(lib: Any, handle: int | None) -> None:
    """Ends a communicator that the caller will not get."""
    if handle is not None:
        lib.shunt_abort(handle, b"interrupted while it was made")
        lib.shunt_close(handle)
