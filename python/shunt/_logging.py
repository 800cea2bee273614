"""The library's log lines in Python's logging."""

import atexit
import ctypes
import logging
import os
import threading
from typing import Any

from . import _library
from ._tables import InvalidArgumentError, UnsupportedError

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

_interpreter = ctypes.pythonapi.PyInterpreterState_Get
_interpreter.argtypes, _interpreter.restype = [], ctypes.c_void_p
_number_of = ctypes.pythonapi.PyInterpreterState_GetID
_number_of.argtypes, _number_of.restype = [ctypes.c_void_p], ctypes.c_int64

_lock = threading.RLock()  # a signal handler may call log_to while this thread holds it
_inside = threading.local()
_registered = False
_functions: list[Any] = []  # what the library has or had: a signal handler may put another in between


def log_to(logger: logging.Logger | str | None = "shunt") -> None:
    """The library's log lines go to a logger of the module logging, given or named, instead of standard error; None
    takes it back. The logger's level decides which, not SHUNT_LOG. Records have the library's level and text.

    It may be called at any time, before ranks join and before libshunt.so is loaded too, and does not load it. Lines
    arrive in their order from a thread of their own, perhaps after the call that they are about. Handlers may take
    their time, and may call everything in this package but log_to. When the interpreter exits the rest is delivered,
    and later lines go to standard error. Of a process with several interpreters only the main one may call it.
    """
    global _registered
    # Threads of the library's enter the main one.
    if _number_of(_interpreter()) != 0:
        raise UnsupportedError("log_to: this is not the main interpreter of the process, which the library's log lines "
                               "go to; call it there")
    if isinstance(logger, str):
        logger = logging.getLogger(logger)
    if logger is not None and not isinstance(logger, logging.Logger):
        raise InvalidArgumentError(f"log_to: logger is {logger!r}; want a logging.Logger, its name, or None")
    if getattr(_inside, "yes", False):
        raise InvalidArgumentError("log_to: it was called by a handler of the library's own lines, for which it waits")
    function = None if logger is None else _FUNCTION(_handler(logger))
    with _lock:
        if not _registered:
            atexit.register(_at_exit)
            _registered = True
        _functions.append(function)
        _library.set_at_load("log", lambda lib: _install(lib, function))


def _install(lib: ctypes.CDLL, function: Any) -> None:
    # The call releases the GIL: it waits for a line that another thread is handling.
    _library.check(lib.shunt_set_log(ctypes.cast(function, ctypes.c_void_p).value, None, 0))


def _handler(logger: logging.Logger) -> Any:
    def handle(context: Any, number: int, text: bytes) -> None:
        level = _LEVELS[number]
        if logger.isEnabledFor(level):
            message = text.decode("utf-8", "replace")
            _inside.yes = True
            try:
                logger.handle(logger.makeRecord(logger.name, level, "libshunt.so", 0, message, (), None, "shunt"))
            finally:
                _inside.yes = False

    return handle


def _at_exit() -> None:
    # No thread of the library's may come into an interpreter that is gone.
    if not _library.forked:
        log_to(None)


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)
