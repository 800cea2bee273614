"""Rare calls of the library that wait for other ranks and cannot be paused."""

import threading
from collections.abc import Callable
from sys import is_finalizing
from typing import Any

#: How long a signal handler waits for its turn, and how long a call that was
#: given up may take to end before it is left to itself, in seconds.
_SLICE = 0.1
_LONGEST = 2.0


class _Call:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any], undo: Callable[[Any], None]) -> None:
        self._call, self._undo = call, undo
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._left = self._begun = False
        self._lock = threading.Lock()  # orders the end of the call and leaving it
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            outcome = self._call()
        except BaseException as error:
            with self._lock:
                self._error = error
                self._ended.set()
            return
        with self._lock:
            self._outcome = outcome
            self._ended.set()
            if not self._left:
                return
        self._undo(outcome)

    def wait(self) -> Any:
        while not self._ended.wait(_SLICE):
            pass  # signal handlers run here
        if self._error is not None:
            raise self._error
        return self._outcome

    def leave(self) -> None:
        """Undoes the call, now or when it ends, also when a second Ctrl-C comes meanwhile."""
        try:
            self._ended.wait(_LONGEST if self._begun else 0)
        finally:
            with self._lock:
                self._left = True
                ended = self._ended.is_set() and self._error is None
            if ended:
                self._undo(self._outcome)

    def start(self) -> bool:
        """Starts the thread; False if there can be none."""
        self._begun = True
        try:
            # A daemon: a program that ends does not wait for it.
            threading.Thread(target=self.run, name="shunt", daemon=True).start()
        except RuntimeError:  # no more threads; or, from 3.12 on, the atexit handlers run
            return False
        return True


def interruptible(call: Callable[[], Any], give_up: Callable[[bytes], Any], undo: Callable[[Any], None]) -> Any:
    """Calls call(), and returns or raises what it does. Meanwhile Python's signal handlers run
    as they do between bytecodes. When one raises, give_up(reason) makes the call
    end, undo(outcome) takes back what it made if it has ended well all the same,
    and then the exception is raised. Handlers run in the main thread only, so elsewhere
    this is call(). So it is while the interpreter ends: a thread that is started then
    never runs, and up to Python 3.11 start() waits for it for ever."""
    # Not current_thread(), which makes an entry of the threading module for a thread that has ended or is not its own.
    if is_finalizing() or threading.get_ident() != threading.main_thread().ident:
        return call()
    running = _Call(call, undo)
    try:
        if running.start():  # which waits for the thread, so a handler may raise here too
            return running.wait()
    except BaseException as error:
        if error is running._error:
            raise
        give_up(f"interrupted by {type(error).__name__}".encode())
        running.leave()
        raise
    return call()
