"""Windows: memory of every rank that peers write and read directly."""

import ctypes
import os
from typing import TYPE_CHECKING, Any

from . import _library, _operations
from ._buffers import B, Buffer
from ._device import StreamLike
from ._dtypes import DTypeLike
from ._owned import Owned
from ._tables import ClosedError, Code, SystemError, UnsupportedError

if TYPE_CHECKING:
    from ._communicator import Communicator


_libc = ctypes.CDLL(None, use_errno=True)
_mremap, _munmap = _libc.mremap, _libc.munmap
_mremap.restype = ctypes.c_void_p
_mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAYMOVE = 1
_PAGE = os.sysconf("SC_PAGESIZE")


def _is_offset(offset: Any) -> bool:
    return type(offset) is int and 0 <= offset < 1 << 63


class _Mapping:
    """Another mapping of the pages behind a shared one, until this object goes."""

    def __init__(self, base: int, size: int) -> None:
        before = base % _PAGE
        self._length = before + size
        # With an old size of 0 the old mapping stays where it is.
        at = _mremap(base - before, 0, self._length, _MAYMOVE)
        if at is None or at == ctypes.c_void_p(-1).value:
            raise SystemError(f"window: its memory cannot be mapped: {os.strerror(ctypes.get_errno())}")
        self._at = at
        self.base: int = at + before

    def __del__(self, munmap: Any = _munmap) -> None:
        if hasattr(self, "_at"):
            munmap(self._at, self._length)


def _array(base: int | None, size: int) -> Any:
    """The size bytes at base, for as long as anything looks at them."""
    if not base or not size:
        return (ctypes.c_ubyte * 0)()
    mapping = _Mapping(base, size)
    array = (ctypes.c_ubyte * size).from_address(mapping.base)
    array.mapping = mapping  # type: ignore[attr-defined]
    return array


class Window(Owned):
    """Memory of this rank, of the same size on every rank, made by
    Communicator.window. A context manager that closes itself.

    All ranks have it mapped, so collectives on arrays of it take the fastest
    ways without register:

        x = numpy.asarray(window).view("float32")                        # host memory, numpy
        x = torch.from_dlpack(window).view(torch.float32)                # host memory, torch
        x = torch.as_tensor(window, device="cuda").view(torch.float32)   # a GPU's
    """

    def __init__(self, comm: "Communicator", handle: int, base: int | None, size: int, on_device: bool) -> None:
        self._comm = comm
        self._handle: int | None = handle
        self._unclosed = {0: True}  # the thread that takes it closes
        self._base, self._size, self._on_device = base or 0, size, on_device
        self._memory = memoryview(_array(None if on_device else base, size)).cast("B")

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"of {self._size} bytes"
        return f"<Window {state} on rank {self._comm.rank}>"

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    @property
    def memory(self) -> memoryview:
        """This rank's part, as bytes.

        Views of it may outlive the window: they keep the bytes, which no peer
        reaches any more. On a GPU use `__cuda_array_interface__`
        (torch.as_tensor, cupy.asarray).
        """
        self._alive()
        if self._on_device:
            raise UnsupportedError(
                "the window lies in CUDA memory; torch.as_tensor or cupy.asarray make an array of it")
        return self._memory

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """This rank's part in host memory as bytes, for numpy.asarray."""
        import numpy  # a caller that asks for an array has it

        array = numpy.frombuffer(self.memory, "uint8")
        if dtype is not None and dtype != array.dtype:
            if copy is False:
                raise ValueError(f"a window is an array of uint8; view it as {dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory, for from_dlpack."""
        if self._on_device:
            raise BufferError("the window lies in CUDA memory and lends itself by __cuda_array_interface__")
        return 1, 0  # kDLCPU

    def __dlpack__(self, **options: Any) -> Any:
        """This rank's part in host memory as bytes; numpy lends it."""
        self.__dlpack_device__()
        return self.__array__().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """This rank's part as bytes of a GPU. Arrays of it must not outlive the
        window."""
        if not self._on_device:
            raise AttributeError("the window lies in host memory")
        self._alive()
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._base, False), "version": 3, "strides": None}

    def peer_address(self, peer: int) -> int:
        """Where this rank's GPU reaches another rank's part, for kernels of the program. Valid until the window is
        closed. Local; InvalidArgumentError for host memory."""
        self._alive()
        return _library.peer_address(self._comm._alive(), self._base, _operations.whole(peer, "peer_address: peer", 32))

    def put(self, data: Buffer, peer: int, offset: int = 0, *, dtype: DTypeLike = None,
            stream: StreamLike = None) -> None:
        """Writes data into peer's part, offset bytes from its start, a multiple
        of the element's size. It is visible there after a signal that follows. In this rank's own part
        data must not overlap the place that it is written to."""
        comm = self._comm
        one = comm._one(data, dtype, stream)
        if one is not None and comm._is_rank(peer) and _is_offset(offset):
            comm._call(comm._lib.shunt_put, self._alive(), one[0], one[1], one[2], peer, offset, one[3])
            return
        comm._run(_operations.put(comm, self._alive(), data, peer, offset, dtype), stream)

    def get(self, buffer: B, peer: int, offset: int = 0, *, dtype: DTypeLike = None,
            stream: StreamLike = None) -> B:
        """Reads peer's part from offset bytes on, a multiple of the element's
        size, into buffer, and returns it.
        Of this rank's own part buffer must not overlap what is read."""
        comm = self._comm
        one = comm._one(buffer, dtype, stream)
        if one is not None and comm._is_rank(peer) and _is_offset(offset):
            comm._call(comm._lib.shunt_get, self._alive(), one[0], one[1], one[2], peer, offset, one[3])
            return buffer
        into: B = comm._run(_operations.get(comm, self._alive(), buffer, peer, offset, dtype), stream)
        return into

    def signal(self, peer: int, *, stream: StreamLike = None) -> None:
        """Raises this rank's counter at peer by one, after earlier puts."""
        comm = self._comm
        if comm._is_rank(peer) and stream is None and not comm.on_device and not comm._groups:
            comm._call(comm._lib.shunt_signal, self._alive(), peer, None)
            return
        comm._run(_operations.signal(comm, self._alive(), peer), stream)

    def wait(self, peer: int, times: int = 1, *, stream: StreamLike = None) -> None:
        """Waits until peer has signalled this rank times more than was waited
        for before."""
        comm = self._comm
        if comm._is_rank(peer) and _is_offset(times) and stream is None and not comm.on_device and not comm._groups:
            comm._call(comm._lib.shunt_wait, self._alive(), peer, times, None)
            return
        comm._run(_operations.wait(comm, self._alive(), peer, times), stream)

    def _alive(self) -> int:
        if self._handle is None:
            raise ClosedError("the window is closed")
        return self._handle

    def close(self) -> None:
        """Gives up this rank's part. No rank may use the window afterwards;
        call Communicator.barrier before if peers may still be at it."""
        handle, library = self._handle, _library.library()
        try:
            if not self._unclosed.pop(0, False):
                return
            self._handle = None
            self._memory = memoryview(b"")
            self._comm._windows.discard(self)
            if _library.forked:
                return
            status = library.shunt_window_free(handle)
        except BaseException:  # of a signal handler
            self._handle = None
            library.shunt_window_free(handle)  # which does nothing if it is freed
            raise
        if status == Code.INVALID_ARGUMENT and self._comm.closed:
            return  # another thread has closed the communicator, and so freed the window
        _library.check(status)
