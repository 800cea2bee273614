"""Started operations.

The library writes into the arrays of an operation in flight whatever becomes of the
program's references to them. So the works in flight are kept here, each with its
arrays and its communicator, until someone sees that it has ended: its wait or done,
a later start on its communicator, or the next communicator that is made.
"""

import ctypes
import itertools
import os
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import _library
from ._operations import seconds
from ._owned import Owned
from ._tables import ClosedError, Code, ShuntError, TimeoutError

if TYPE_CHECKING:
    import asyncio

    from ._running import Running

_in_flight: dict["Work", None] = {}

# A reference that is never given back: the interpreter's end, at which the library
# still runs, must not free the arrays either.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_in_flight))


def let_go() -> None:
    """Lets go of what has ended and the program has dropped."""
    for work in list(_in_flight):
        work.done()


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Work(Owned):
    """An operation in flight, made by Communicator.start.

    Its buffers and its communicator stay alive until the operation has ended, also
    when the program drops them and this. Wait for it before using the buffers: with
    wait, or in a coroutine of asyncio with await.
    """

    def __init__(self, comm: "Running", prepared: Any, name: str) -> None:
        self._comm = comm
        self._request = ctypes.c_void_p()  # null before the operation is started and after its end
        self._prepared = prepared
        self._result = prepared.result
        self._name = name
        self._ended = False
        self._error: ShuntError | None = None
        self._untaken = {0: True}  # the thread that takes it takes the outcome
        self._outcome: list[tuple[int, bytes]] = []  # the status, and the text of an error

    def __repr__(self) -> str:
        return f"<Work {self._name} {'ended' if self._ended else 'in flight'}>"

    def _start(self) -> None:
        try:
            # Known here before the library knows it: a signal handler may raise as soon as that returns.
            _in_flight[self] = self._comm._works[self] = None
            status = self._comm._lib.shunt_start(
                self._comm._alive(), ctypes.byref(self._prepared.operation), ctypes.byref(self._request))
            if status == Code.INVALID_ARGUMENT:
                self._comm._alive()  # raises ClosedError, which says more than a null handle
            _library.check(status)
        finally:
            if not self._request:
                self._forget()

    def done(self) -> bool:
        """Whether the operation has ended, with success or an error. Never blocks."""
        return self._reap(0)

    def wait(self, timeout: float | None = None) -> Any:
        """Waits for the end, and returns what the blocking call would.

        timeout is in seconds; TimeoutError says that it passed, and the
        operation goes on. Other errors are the operation's. May be called
        again, and returns the same.
        """
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "wait: timeout")
        if not self._ends(deadline):
            raise TimeoutError(f"{self._name} has not ended within {timeout} s; it goes on")
        if self._error is not None:
            raise self._error
        return self._result

    def _ends(self, deadline: float | None = None) -> bool:
        """Waits for the end; False if the deadline came first. Raises nothing but what signal handlers do."""
        while True:
            # In slices, so that Ctrl-C is noticed.
            left = 0.1 if deadline is None else min(0.1, max(0.0, deadline - time.monotonic()))
            if self._reap(int(left * 1000 + 0.999)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def __await__(self) -> Generator[Any, None, Any]:
        """Waits in a coroutine of asyncio: returns and raises what wait does, while other
        tasks run. No thread waits; the event loop watches a file descriptor meanwhile. A
        task that is cancelled or runs out of time only stops waiting: the operation goes on,
        and may be waited for again."""
        if not self.done():
            yield from self._notice()
        return self.wait()

    def _notice(self) -> Generator[Any, None, None]:
        """Returns in the running event loop when the operation has ended."""
        import asyncio  # whoever has a running loop has it

        loop = asyncio.get_running_loop()
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            ended = loop.create_future()
            loop.add_reader(descriptor, _end, ended)
            try:
                status = self._comm._lib.shunt_request_notify(self._request.value, descriptor)
                if status == Code.INVALID_ARGUMENT:
                    return  # another thread has taken the outcome meanwhile, and wait has it
                _library.check(status)
                yield from ended
            finally:
                if not loop.is_closed():
                    loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)

    def _reap(self, timeout_ms: int) -> bool:
        """Waits at most so long; takes the outcome if there is one."""
        request = self._request.value
        if self._ended or request is None:
            return self._ended
        if not self._outcome:
            done, lib = ctypes.c_int32(), self._comm._lib
            status = lib.shunt_request_test(request, timeout_ms, ctypes.byref(done))
            if status == 0 and not done.value:
                return False
            # In one step for Python: before and after it a signal handler may raise, or come here itself, and another
            # thread may be here all the time.
            mine = itertools.compress((request,), map(self._untaken.pop, (0,), (False,)))
            self._outcome.extend(zip(map(lib.shunt_request_wait, mine), map(lib.shunt_last_error, (None,))))
            if not self._outcome:
                return False  # the other thread is about to have it
        status, text = self._outcome[0]
        if status:
            self._error = self._error or self._failure(status, text)
        self._forget()
        return True

    def _failure(self, status: int, text: bytes) -> ShuntError:
        # The library knows no operation of a communicator that is closed.
        if status == Code.INVALID_ARGUMENT and self._comm._handle is None:
            return ClosedError(f"{self._name} on rank {self._comm.rank}: the communicator was closed before it ended")
        return _library.error_of(status, text)

    def _forget(self) -> None:
        """Lets go of the buffers, which nothing touches any more."""
        self._prepared = None
        self._comm._works.pop(self, None)
        _in_flight.pop(self, None)
        self._ended = True
