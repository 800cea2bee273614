"""Started operations."""

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _library
from ._tables import TimeoutError

if TYPE_CHECKING:
    from ._communicator import Communicator


class Work:
    """An operation in flight, made by Communicator.start.

    It keeps the buffers alive until the operation has ended, also when the
    program drops it. Wait for it before using the buffers.
    """

    def __init__(self, comm: "Communicator", request: int, prepared: Any, name: str) -> None:
        self._comm = comm
        self._request: int | None = request
        self._prepared = prepared
        self._result = prepared.result
        self._name = name
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Work {self._name} {'ended' if self._request is None else 'in flight'}>"

    def done(self) -> bool:
        """Whether the operation has ended, well or badly. Never blocks."""
        return self._reap(0)

    def wait(self, timeout: float | None = None) -> Any:
        """Waits for the end, and returns what the blocking call would.

        timeout is in seconds; TimeoutError says that it passed, and the
        operation goes on. Other errors are the operation's. May be called
        again, and answers the same.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
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

    def _reap(self, timeout_ms: int) -> bool:
        """Waits at most so long; takes the outcome if there is one."""
        request = self._request
        if request is None:
            return True
        done = ctypes.c_int32()
        lib = _library.library()
        status = lib.shunt_request_test(request, timeout_ms, ctypes.byref(done))
        with self._lock:
            if self._request is None:
                return True
            if status == 0 and not done.value:
                return False
            try:
                _library.check(status or lib.shunt_request_wait(request))
            except BaseException as err:
                self._error = err
            # The outcome is in: nothing touches the buffers any more.
            self._request = None
            self._prepared = None
        self._comm._forget(self)
        return True
