"""Groups: operations that run as one."""

import threading
import weakref
from typing import TYPE_CHECKING, Any

from . import _library
from ._owned import Owned
from ._tables import InvalidArgumentError

if TYPE_CHECKING:
    from ._communicator import Communicator


class Open:
    """The groups that a thread has open on a communicator, one within the other."""

    __slots__ = ("entered", "hold", "failed")

    def __init__(self) -> None:
        #: The groups, from the outermost on. A with statement keeps its own.
        self.entered: list[weakref.ref[Group]] = []
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

    # A signal handler may raise between any two lines: then the group ends, as by an exception within it.

    def __enter__(self) -> "Group":
        comm, me = self._comm, threading.get_ident()
        mine = comm._group() or Open()
        mine.check()
        handle = comm._alive()
        try:
            mine.entered.append(weakref.ref(self))
            if len(mine.entered) == 1:
                comm._groups[me] = mine
                _library.check(comm._lib.shunt_group_start(handle))
            return self
        except BaseException:
            self._fail()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            comm, me = self._comm, threading.get_ident()
            mine = comm._groups.get(me)
            if kind is not None:
                self._fail()
            elif mine is None:
                comm._alive()  # not closed within it?
                raise InvalidArgumentError("group: it is to be left in the thread that entered it")
            else:
                mine.check()
                comm._alive()
                if len(mine.entered) > 1:
                    del mine.entered[-1]
                else:
                    del comm._groups[me]
                    comm._call(comm._lib.shunt_group_end)
        except BaseException:
            self._fail()
            raise

    def _fail(self) -> None:
        """Half a group must not run: peers would wait for the other half."""
        comm, me, it = self._comm, threading.get_ident(), weakref.ref(self)
        if comm._handle is not None:
            comm._lib.shunt_group_cancel(comm._handle)
        mine = comm._groups.get(me)
        if mine is None:
            return
        mine.failed = True
        if it in mine.entered:
            while mine.entered.pop() != it:
                pass  # one that a handler left as its __exit__ began
        if not mine.entered:
            comm._groups.pop(me, None)
