"""Started operations.

The library writes into the arrays of an operation in flight whatever becomes of the
program's references to them. So the works in flight are kept here, each with its
arrays and its communicator, until someone sees that it has ended: its wait or done,
a later start on its communicator, or the next communicator that is made.
"""

import ctypes
import os
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import _library
from ._operations import seconds
from ._owned import Owned
from ._tables import Code, InvalidArgumentError, ShuntError, TimeoutError

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
        self._error: BaseException | None = None
        self._lock = threading.RLock()  # a signal handler may wait while this thread holds it
        self._taking = False

    def __repr__(self) -> str:
        return f"<Work {self._name} {'ended' if self._ended else 'in flight'}>"

    def _start(self) -> None:
        # Known here before the library knows it: a signal handler may raise as soon as that returns.
        _in_flight[self] = self._comm._works[self] = None
        try:
            _library.check(self._comm._lib.shunt_start(
                self._comm._alive(), ctypes.byref(self._prepared.operation), ctypes.byref(self._request)))
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
        while True:
            # In slices, so that Ctrl-C is noticed.
            left = 0.1 if deadline is None else min(0.1, max(0.0, deadline - time.monotonic()))
            if self._reap(int(left * 1000 + 0.999)):
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._name} has not ended within {timeout} s; it goes on")
        if self._error is not None:
            raise self._error
        return self._result

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
        done = ctypes.c_int32()
        lib = self._comm._lib
        status = lib.shunt_request_test(request, timeout_ms, ctypes.byref(done))
        if status == 0 and not done.value:
            return False
        # Another thread may be taking it; or this one, when a signal handler has come here.
        if not self._lock.acquire(blocking=timeout_ms > 0):
            return False
        try:
            if not self._ended:
                if self._taking:  # by the code that this handler has interrupted
                    if timeout_ms == 0:
                        return False
                    raise InvalidArgumentError(f"wait: {self._name} has ended; the code that this signal handler "
                                               "interrupted is about to return how")
                self._taking = True
                self._take(status, request)
        finally:
            self._lock.release()
        return True

    def _take(self, status: int, request: int) -> None:
        try:
            _library.check(status or self._comm._lib.shunt_request_wait(request))
        except BaseException as error:
            self._error = error
            if not isinstance(error, ShuntError):
                raise  # of a signal handler
        finally:
            self._forget()

    def _forget(self) -> None:
        """Lets go of the buffers, which nothing touches any more."""
        self._ended = True
        self._prepared = None
        self._comm._works.pop(self, None)
        _in_flight.pop(self, None)
