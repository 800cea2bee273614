"""Groups: operations that run as one."""

import threading
from typing import TYPE_CHECKING, Any

from . import _library
from ._owned import Owned
from ._tables import InvalidArgumentError

if TYPE_CHECKING:
    from ._communicator import Communicator


class Open:
    """The groups that a thread has open on a communicator, one within the other."""

    __slots__ = ("depth", "hold", "failed")

    def __init__(self) -> None:
        self.depth = 0
        #: What the operations point into: the outermost group's end runs them all.
        self.hold: list[Any] = []
        #: An inner group has ended with an exception, and took the whole of it along.
        self.failed = False

    def check(self) -> None:
        """Raises if nothing of these groups will run."""
        if self.failed:
            raise InvalidArgumentError("group: a group within it ended with an exception, so none of its operations "
                                       "runs")


class Group(Owned):
    """Operations that run as one; see Communicator.group. It may be entered again and again, by any thread."""

    def __init__(self, comm: "Communicator") -> None:
        self._comm = comm

    def __enter__(self) -> "Group":
        comm, me = self._comm, threading.get_ident()
        mine = comm._groups.get(me)
        if mine is not None:
            mine.check()
        _library.check(comm._lib.shunt_group_start(comm._alive()))
        if mine is None:
            mine = comm._groups[me] = Open()
        mine.depth += 1
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        comm, me = self._comm, threading.get_ident()
        mine = comm._groups.get(me)
        if mine is None:
            if kind is None:
                comm._alive()  # not closed within it?
                raise InvalidArgumentError("group: it is to be left in the thread that entered it")
            return
        mine.depth -= 1
        if mine.depth == 0:
            del comm._groups[me]
        if kind is not None:
            # Half a group must not run: peers would wait for the other half.
            if not mine.failed and comm._handle is not None:
                comm._lib.shunt_group_cancel(comm._handle)
            mine.failed = True
            return
        mine.check()
        comm._alive()
        comm._call(comm._lib.shunt_group_end)
