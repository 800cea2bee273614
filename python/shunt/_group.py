"""Groups: operations that run as one."""

import threading
from typing import TYPE_CHECKING, Any

from . import _library
from ._operations import Prepared
from ._owned import Owned

if TYPE_CHECKING:
    from ._communicator import Communicator


class Group(Owned):
    """Operations that run as one; see Communicator.group."""

    def __init__(self, comm: "Communicator") -> None:
        self._comm = comm
        self._hold: list[Prepared] = []
        self._outer: Group | None = None

    def __enter__(self) -> "Group":
        me = threading.get_ident()
        _library.check(self._comm._lib.shunt_group_start(self._comm._alive()))
        self._outer = self._comm._groups.get(me)
        self._comm._groups[me] = self
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        me = threading.get_ident()
        comm = self._comm
        if comm._groups.get(me) is not self:
            # An inner group failed and took the whole of it along.
            return
        if self._outer is None:
            del comm._groups[me]
        else:
            comm._groups[me] = self._outer
        if kind is not None:
            # Half a group must not run: peers would wait for the other half.
            comm._groups.pop(me, None)
            if comm._handle is not None:
                comm._lib.shunt_group_cancel(comm._handle)
            return
        if self._outer is not None:
            self._outer._hold.extend(self._hold)
        comm._alive()
        try:
            comm._call(comm._lib.shunt_group_end)
        finally:
            self._hold.clear()
