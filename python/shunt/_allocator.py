"""Allocators: cached memory of a GPU that peers map, for programs and for torch's pools."""

import ctypes
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _device, _library
from ._device import StreamLike
from ._interruptible import interruptible
from ._operations import whole
from ._owned import Owned
from ._tables import ClosedError, InvalidArgumentError, ShuntError, TimeoutError

if TYPE_CHECKING:
    from ._communicator import Communicator

_SYMMETRIC = 1  # SHUNT_ALLOCATOR_SYMMETRIC


class AllocatorStats(NamedTuple):
    """Bytes and numbers of an allocator: in_use bytes of blocks that are allocated, cached in free ones, peak bytes
    that were in use at one time, and the segments of the GPU's memory that all of it lies in."""

    in_use: int
    cached: int
    peak: int
    blocks: int
    segments: int


class _Stats(ctypes.Structure):
    """shunt_allocator_stats."""

    _fields_ = [("struct_size", ctypes.c_size_t), *((name, ctypes.c_int64) for name in AllocatorStats._fields)]


def _bytes(size: Any, what: str) -> int:
    size = whole(size, what)
    if not 0 < size < 1 << 62:
        raise InvalidArgumentError(f"{what} is {size} bytes, want 1 or more and less than 2**62")
    return size


class Allocator(Owned):
    """A cache of memory of this rank's GPU that peers map, made by Communicator.allocator.

    Memory is reused in the order of streams; nothing but close waits for a GPU, and other threads still run meanwhile.
    Ranks may each go their own way, but with symmetric=True every rank makes the same calls in the same order (those
    that grow or shrink it are collective), and then large messages go through the GPUs' copy engines.

    mem_pool makes a torch.cuda.MemPool of it:

        with torch.cuda.use_mem_pool(comm.allocator().mem_pool()):
            x = torch.empty(1 << 20, device="cuda")

    It outlives its communicator, but does not grow without it. A context manager that closes itself.
    """

    def __init__(self, comm: "Communicator", handle: int, symmetric: bool) -> None:
        self._comm = comm
        self._handle: int | None = handle
        self.symmetric = symmetric

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else "symmetric" if self.symmetric else "plain"
        return f"<Allocator {state} on rank {self._comm.rank}>"

    def __enter__(self) -> "Allocator":
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is None:
            self.close()  # else its memory may be in use, and the error that ended the block is what matters

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not _library.forked:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def _alive(self) -> int:
        if self._handle is None:
            raise ClosedError("the allocator is closed")
        return self._handle

    def alloc(self, size: int, *, stream: StreamLike = None) -> int:
        """The address of size bytes, aligned to 512 and not zeroed, for use in stream; by default torch's current
        stream, without torch the default stream. Raises OutOfMemoryError with the bytes in use and cached when there is
        none, also after cached segments were given back."""
        size, number = _bytes(size, "alloc: size"), _stream(stream)
        memory = ctypes.c_void_p()
        _library.check(_library.library().shunt_allocator_alloc(self._alive(), size, number, ctypes.byref(memory)))
        assert memory.value is not None
        return memory.value

    def free(self, address: int, *, stream: StreamLike = None) -> None:
        """Gives memory of alloc back, after what is in stream by now and in the streams that were recorded on it."""
        _library.check(_library.library().shunt_allocator_free(self._alive(), whole(address, "free: address"),
                                                               _stream(stream)))

    def record_stream(self, address: int, stream: StreamLike) -> None:
        """Makes the free of memory wait for what is in another stream by then; the stream must exist until then. It
        cannot be the thread's own (CU_STREAM_PER_THREAD)."""
        address = whole(address, "record_stream: address")
        _library.check(_library.library().shunt_allocator_record_stream(self._alive(), address, _stream(stream)))

    def reserve(self, size: int) -> None:
        """Grows the allocator unless it has size bytes in one piece that nothing uses any more. Collective with
        symmetric=True, and then needed before a capture that allocates."""
        size = _bytes(size, "reserve: size")
        self._step(lambda: _library.library().shunt_allocator_reserve(self._alive(), size))

    def trim(self) -> None:
        """Gives the segments that nothing uses any more back to the GPU. Collective with symmetric=True."""
        self._step(lambda: _library.library().shunt_allocator_trim(self._alive()))

    def _step(self, call: Any) -> None:
        """Makes a call that may wait for peers."""
        interruptible(lambda: _library.check(call()), self._comm._end, lambda _: None)

    @property
    def stats(self) -> AllocatorStats:
        """What the allocator has."""
        stats = _Stats(ctypes.sizeof(_Stats))
        _library.check(_library.library().shunt_allocator_get_stats(self._alive(), ctypes.addressof(stats)))
        return AllocatorStats(*(getattr(stats, name) for name in AllocatorStats._fields))

    def mem_pool(self, **options: Any) -> Any:
        """A torch.cuda.MemPool whose segments are this allocator's blocks, with torch's options of a pool. Close the
        allocator after the pool and its tensors are gone. In a symmetric allocator all ranks must allocate and free
        tensors of the pool alike; reserve first, so that torch, which holds locks meanwhile, grows nothing."""
        import torch  # a caller that asks for its pool has it

        return torch.cuda.MemPool(self.torch_allocator(), **options)

    def torch_allocator(self) -> Any:
        """This allocator as torch takes it: what torch.cuda.memory.CUDAPluggableAllocator.allocator() returns."""
        import torch

        alloc, free = ctypes.c_void_p(), ctypes.c_void_p()
        _library.check(_library.library().shunt_allocator_functions(self._alive(), ctypes.byref(alloc),
                                                                    ctypes.byref(free)))
        return torch._C._cuda_customAllocator(alloc.value, free.value)

    def close(self) -> None:
        """Gives all memory back; waits up to two seconds for work on freed memory. Raises InvalidArgumentError while
        blocks are allocated, TimeoutError while graphs exist that were captured with them; the allocator then goes
        on. After DeviceError it has ended, but memory could not be given back."""
        if self._handle is None:
            return
        try:
            if not _library.forked:
                _library.check(_library.library().shunt_allocator_destroy(self._handle))
        except (InvalidArgumentError, TimeoutError):
            raise
        except ShuntError:
            self._handle = None
            raise
        self._handle = None


def _stream(stream: StreamLike) -> int | None:
    return (_device.current_stream() if stream is None else _device.stream_of(stream)) or None
