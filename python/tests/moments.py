"""Interrupts at every moment at which Python lets a signal handler run."""

import sys

import shunt


class Interrupt(BaseException):
    """What a handler raises; no code knows it."""


class At:
    """Runs handler at a moment, counted from 0, at which a function of the package begins or one of C returns to it:
    there Python runs signal handlers, and in loops. Not in finalizers, in which Python ignores what they raise."""

    def __init__(self, number, handler):
        self.number, self.handler = number, handler

    def __enter__(self):
        self.before = sys.getprofile()
        sys.setprofile(self.event)
        return self

    def __exit__(self, *_):
        sys.setprofile(self.before)

    def event(self, frame, event, argument):
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(shunt.__path__[0]):
            return
        if code.co_name == "__del__":
            return
        self.number -= 1
        if self.number == -1:
            sys.setprofile(None)
            self.handler()


def interrupted_everywhere(make, kind=Interrupt):
    """Calls what make returns again and again, each time interrupted a moment later; yields after each of them."""
    def handler():
        raise kind("of the handler")

    for number in range(2000):
        step, at = make(), At(number, handler)
        try:
            with at:
                step()
        except kind:
            pass
        if at.number >= 0:
            assert number > 3
            return
        yield number
    raise AssertionError("there is no end of it")
