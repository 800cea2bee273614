"""Registered memory of GPUs."""

from typing import TYPE_CHECKING, Any

from . import _library
from ._buffers import Memory

if TYPE_CHECKING:
    from ._communicator import Communicator


class Registration:
    """Memory that peers have mapped, made by Communicator.register, which keeps
    the array alive. A context manager that closes itself.
    """

    def __init__(self, comm: "Communicator", memory: Memory, size: int) -> None:
        self._comm = comm
        self._memory: Memory | None = memory
        self._size = size

    def __repr__(self) -> str:
        state = "closed" if self._memory is None else f"of {self._size} bytes"
        return f"<Registration {state} on rank {self._comm.rank}>"

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the array; peers unmap its memory once the operations that
        were called so far have ended. Local; calling it again, or after the
        communicator was closed, does nothing."""
        memory, self._memory = self._memory, None
        if memory is None or self._comm.closed or _library.forked:
            return
        _library.check(_library.library().shunt_deregister(self._comm._alive(), memory.address))
