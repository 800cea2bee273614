"""Interrupts at every moment at which Python lets a signal handler run."""

import sys

import shunt


class Interrupt(BaseException):
    """What a handler raises; no code knows it."""


class At:
    """Runs handler at moment number n in which this thread begins or has returned from a function, with the package's
    code on the stack: Python runs signal handlers there, and in loops."""

    def __init__(self, number, handler):
        self.number, self.handler = number, handler

    def __enter__(self):
        self.before = sys.getprofile()
        sys.setprofile(self.event)
        return self

    def __exit__(self, *_):
        sys.setprofile(self.before)

    def event(self, frame, event, argument):
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(shunt.__path__[0]):
            return
        self.number -= 1
        if self.number == -1:
            sys.setprofile(None)
            self.handler()


def raising(kind):
    def handler():
        raise kind("of the handler")

    return handler


def interrupted_everywhere(step, kind=Interrupt):
    """Calls step again and again, each time interrupted a moment later; yields after each of them."""
    number = 0
    while True:
        at = At(number, raising(kind))
        try:
            with at:
                step()
        except kind:
            pass
        if at.number >= 0:
            assert number > 3
            return
        yield number
        number += 1
        assert number < 2000
