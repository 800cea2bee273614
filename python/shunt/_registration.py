"""Registered memory of GPUs.

Peers may reach it whatever becomes of the program's references to it. So it is kept
here until the registration is closed or the communicator is, by its handle.
"""

import ctypes
from typing import TYPE_CHECKING, Any

from . import _library
from ._buffers import Memory
from ._operations import whole
from ._owned import Owned
from ._tables import ClosedError

if TYPE_CHECKING:
    from ._communicator import Communicator


_reachable: dict[int, dict[object, Memory]] = {}

# A reference that is never given back: peers may still write when the interpreter ends.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_reachable))


def let_go(handle: int | None) -> None:
    """Lets go of what was registered with a communicator that is closed."""
    _reachable.pop(handle, None)  # type: ignore[arg-type]


class Registration(Owned):
    """Memory that peers have mapped, made by Communicator.register. The array stays
    alive until this or its communicator is closed, also when the program drops both.
    A context manager that closes itself.
    """

    def __init__(self, comm: "Communicator", memory: Memory, size: int) -> None:
        self._comm = comm
        self._memory: Memory | None = memory
        self._size = size
        self._handle = comm._alive()
        # Only the memory: neither this nor the communicator is kept.
        self._key = object()
        _reachable.setdefault(self._handle, {})[self._key] = memory

    def __repr__(self) -> str:
        state = "closed" if self._memory is None else f"of {self._size} bytes"
        return f"<Registration {state} on rank {self._comm.rank}>"

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def peer_address(self, peer: int) -> int:
        """Where this rank's GPU reaches what another rank gave to this registration, which must be symmetric: for
        kernels of the program. Valid until this registration is closed. Local."""
        if self._memory is None:
            raise ClosedError(f"peer_address: the registration on rank {self._comm.rank} is closed")
        return _library.peer_address(self._comm._alive(), self._memory.address, whole(peer, "peer_address: peer", 32))

    def close(self) -> None:
        """Lets go of the array; peers unmap its memory once the operations that
        were called so far have ended. Local; calling it again, or after the
        communicator was closed, does nothing."""
        memory, self._memory = self._memory, None
        if memory is None or self._comm.closed or _library.forked:
            return
        _library.check(_library.library().shunt_deregister(self._handle, memory.address))
        _reachable.get(self._handle, {}).pop(self._key, None)
