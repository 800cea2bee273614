"""Windows: memory of every rank that peers write and read directly."""

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from . import _library, _operations
from ._buffers import Buffer
from ._dtypes import DTypeLike
from ._tables import ClosedError, InvalidArgumentError

if TYPE_CHECKING:
    from ._communicator import Communicator


class Window:
    """Memory of this rank, of the same size on every rank, made by
    Communicator.window. A context manager that closes itself.
    """

    def __init__(self, comm: "Communicator", handle: int, base: int | None, size: int) -> None:
        self._comm = comm
        self._handle: int | None = handle
        self._array = (ctypes.c_ubyte * size).from_address(base) if base and size else (ctypes.c_ubyte * 0)()
        self._references = sys.getrefcount(self._array)
        self._memory = memoryview(self._array).cast("B")

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"of {self._memory.nbytes} bytes"
        return f"<Window {state} on rank {self._comm.rank}>"

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    @property
    def memory(self) -> memoryview:
        """This rank's part, as bytes; numpy.frombuffer makes an array of it.

        Release such views before the window is closed: close refuses while
        they live.
        """
        self._alive()
        return self._memory

    def put(self, data: Buffer, peer: int, offset: int = 0, *, dtype: DTypeLike = None) -> None:
        """Writes data into peer's part, offset bytes from its start. It is
        visible there after a signal that follows."""
        self._comm._run(_operations.put(self._comm, self._alive(), data, peer, offset, dtype))

    def get(self, buffer: Buffer, peer: int, offset: int = 0, *, dtype: DTypeLike = None) -> Buffer:
        """Reads peer's part from offset bytes on into buffer, and returns it."""
        return self._comm._run(_operations.get(self._comm, self._alive(), buffer, peer, offset, dtype))

    def signal(self, peer: int) -> None:
        """Raises this rank's counter at peer by one, after earlier puts."""
        self._comm._run(_operations.signal(self._comm, self._alive(), peer))

    def wait(self, peer: int, times: int = 1) -> None:
        """Waits until peer has signalled this rank times more than was waited
        for before."""
        self._comm._run(_operations.wait(self._comm, self._alive(), peer, times))

    def _alive(self) -> int:
        if self._handle is None:
            raise ClosedError("the window is closed")
        return self._handle

    def close(self) -> None:
        """Gives up this rank's part. No rank may use the window afterwards;
        call Communicator.barrier before if peers may still be at it."""
        if self._handle is None:
            return
        # Whoever still looks at the memory holds a reference to the array.
        self._memory.release()
        if sys.getrefcount(self._array) > self._references:
            self._memory = memoryview(self._array).cast("B")
            raise InvalidArgumentError("the window's memory is still in use by an array or memoryview; delete it before close")
        handle, self._handle = self._handle, None
        self._comm._windows.discard(self)
        if not _library.forked:
            _library.check(_library.library().shunt_window_free(handle))
