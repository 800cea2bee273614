"""How a communicator runs operations, and how it is interrupted.

Python's signal handlers run between the bytecodes of the main thread, not during a
call of the library. So communicators have a block limit (shunt.h): a call that takes
longer returns as pending and is continued in slices, with handlers in between. When a
handler raises, as that of Ctrl-C does, the communicator is aborted, the other ranks
get an error that names this rank, and the exception propagates once nothing touches
the buffers any more.
"""

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterator
from typing import Any

from . import _buffers, _device, _library, _operations
from ._buffers import Memory
from ._device import StreamLike
from ._group import Group, Open
from ._operations import Prepared
from ._owned import Owned
from ._tables import ClosedError, Code, Collective, InvalidArgumentError, MemoryKind, ShuntError
from ._window import Window
from ._work import Work, let_go

_byref = ctypes.byref

_interrupted = ctypes.create_string_buffer(b"interrupted")
INTERRUPTED = ctypes.addressof(_interrupted)

PENDING = _library.PENDING

#: How long a call may delay signal handlers, in milliseconds.
BLOCK_LIMIT = 100


class Running(Owned):
    """The part of a communicator that runs operations."""

    def __init__(self, handle: int, memory: MemoryKind) -> None:
        let_go()
        lib = _library.library()
        #: Where its buffers lie.
        self.memory: MemoryKind = memory
        self.on_device: bool = memory is MemoryKind.CUDA
        self._lib = lib
        self._handle: int | None = handle
        number = ctypes.c_int32()
        _library.check(lib.shunt_rank(handle, _byref(number)))
        self._rank = number.value
        _library.check(lib.shunt_world(handle, _byref(number)))
        self._world = number.value
        _library.check(lib.shunt_set_block_limit(handle, BLOCK_LIMIT))
        self._unclosed = {0: True}  # the thread that takes it closes
        self._groups: dict[int, Open] = {}  # by thread
        self._works: dict[Work, None] = {}  # in flight, oldest first
        self._windows: set[Window] = set()
        self._all_reduce = lib.shunt_all_reduce
        self._cancel = lib.shunt_cancel_as
        #: The module for arrays of that memory, with described and quick.
        self._arrays: Any = _device if self.on_device else _buffers

    @property
    def rank(self) -> int:
        """This process's number, 0 to world - 1."""
        return self._rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._world

    def _alive(self) -> int:
        if self._handle is None:
            raise ClosedError(f"the communicator (rank {self.rank} of {self.world}) is closed")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> bool:
        """Calls a function that runs operations, to its end; returns whether it has run
        one, which functions of _quick may decline."""
        handle = self._handle
        # A handler may raise as soon as the library comes back, so even that
        # bytecode is inside: nothing is left pending behind an exception.
        status: int | None = PENDING
        try:
            status = function(handle, *arguments)
            if status:
                status = self._settle(handle, status)
                self._check(status)
        except BaseException as error:
            try:
                self._interrupted(handle, status, error)
            except BaseException:
                self._cancel(handle, INTERRUPTED)  # a second Ctrl-C came before that, or the stack is full
            raise
        return status is not None

    def _quick(self, *arguments: Any) -> bool:
        """Calls a collective by the quick path, if it takes these arguments."""
        return not self._groups and self._call(self._arrays.quick, *arguments)

    def _settle(self, handle: int | None, status: int) -> int:
        """Continues a call while it is pending; returns the status that it ends with."""
        while status == PENDING:
            status = self._lib.shunt_continue(handle)
        return status

    def _check(self, status: int) -> None:
        """Raises unless the status of a call that has ended is OK."""
        if status == Code.INVALID_ARGUMENT:
            self._alive()  # raises ClosedError, which says more than a null handle
        _library.check(status)

    @contextlib.contextmanager
    def _noting(self, call: str) -> Iterator[None]:
        """Notes what of a call's arguments is refused within."""
        try:
            yield
        except Exception as error:
            self._note_refusal(call, error)
            raise

    def _note_refusal(self, call: str, error: Exception) -> None:
        """Has the errors of ranks that wait for a call say why this one has not made it, and the error itself name call
        and rank."""
        text = str(error).removeprefix(f"{call}: ")
        if isinstance(error, ShuntError) and not text.startswith(f"{call} on rank "):
            error.args = (f"{call} on rank {self.rank}: {text}",)
        if self._handle is not None:
            why = text.replace("\0", "?")[:200]
            self._lib.shunt_note_refusal(self._handle, call.encode(), why.encode(errors="replace"))

    def _interrupted(self, handle: int | None, status: int | None, error: BaseException) -> None:
        """Cancels the call if it may be pending. The status decides, not the error: one of the library's own may be
        that of a call which a signal handler made. A call that has ended leaves alone what its handler interrupted.
        """
        if status == PENDING:
            self._lib.shunt_cancel(handle, f"interrupted by {type(error).__name__}".encode())

    def _end(self, reason: bytes) -> None:
        """Aborts, if there is still something to abort."""
        self._lib.shunt_abort(self._handle, reason)

    def _stream(self, prepared: Prepared, stream: StreamLike) -> None:
        """Enters the stream that an operation on a GPU runs in."""
        number: int | None = None
        if stream is not None:
            with self._noting(Collective(prepared.operation.collective).name.lower()):
                if not self.on_device:
                    raise InvalidArgumentError("stream= is for communicators of CUDA memory")
                number = _device.stream_of(stream)
        elif not self.on_device:
            return
        else:
            hold = prepared.hold
            for memory in (hold,) if isinstance(hold, Memory) else hold or ():
                if isinstance(memory, Memory) and memory.stream is not None:
                    number = memory.stream
                    break
        if number is None and prepared.hold is None:
            prepared.operation.stream = _device.current_stream()
        else:
            prepared.operation.stream = number or None

    def _run(self, prepared: Prepared, stream: StreamLike = None) -> Any:
        self._stream(prepared, stream)
        group = self._group()
        if group is not None:
            group.check()
            group.hold.append(prepared)
        self._call(self._lib.shunt_run, _byref(prepared.operation))
        return prepared.result

    def _group(self) -> Open | None:
        """The groups that this thread has open."""
        mine = self._groups.get(threading.get_ident()) if self._groups else None
        if mine is not None and not (mine.entered and mine.entered[0]()):
            # A signal handler has raised as its __exit__ began.
            self._lib.shunt_group_cancel(self._handle)
            del self._groups[threading.get_ident()]
            return None
        return mine

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
        self._let_go()
        work = Work(self, prepared, collective)
        work._start()
        return work

    def _let_go(self) -> None:
        """Lets go of works that have ended and were dropped; operations end in order."""
        try:
            oldest = list(itertools.islice(self._works, 4))
        except RuntimeError:  # another thread, or a signal handler, has changed it meanwhile: the next call does it
            return
        for work in oldest:
            if not work.done():
                break

    def group(self) -> Group:
        """A context in which this thread's send, recv, put, get, signal and
        wait are queued; they run together at its end, in no particular order
        between different peers. Received data is there after the context.

            with comm.group():
                comm.send(mine, right)
                comm.recv(theirs, left)
        """
        return Group(self)
