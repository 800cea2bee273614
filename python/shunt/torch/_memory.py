"""Pools of torch over Shunt's allocators, and memory of torch's own pools."""

import ctypes
from typing import Any

import torch
import torch.distributed as dist

from .. import _allocator, _library
from .._operations import whole
from .._tables import Code, InvalidArgumentError
from ._backend import ShuntBackend
from ._calls import _backend


class _Group:
    """What an allocator asks of its communicator: the group's, on one device."""

    def __init__(self, backend: Any, device: torch.device) -> None:
        self.rank = backend.rank()
        self._handle = backend.communicator_handle(device)

    def _end(self, reason: bytes) -> None:
        _library.library().shunt_abort(self._handle, reason)


def _device(device: Any) -> torch.device:
    device = torch.device("cuda" if device is None else device)
    if device.type != "cuda":
        raise ValueError(f"shunt.torch: pools serve memory of GPUs, and the device is {device}; expected a cuda device")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


def _made(backend: Any, device: torch.device, symmetric: bool, segment_bytes: int) -> _allocator.Allocator:
    comm = _Group(backend, device)
    handle = ctypes.c_void_p()
    flags = _allocator._SYMMETRIC if symmetric else 0
    size = whole(segment_bytes, "mem_pool: segment_bytes")
    _library.check(_library.library().shunt_allocator_create(comm._handle, flags, size, ctypes.byref(handle)))
    assert handle.value is not None
    return _allocator.Allocator(comm, handle.value, symmetric)  # type: ignore[arg-type]


def mem_pool(group: Any = None, *, device: Any = None, symmetric: bool = False, reserve: int = 0,
             segment_bytes: int = 0,
             **options: Any) -> Any:
    """Collective: a torch.cuda.MemPool of memory that the group's ranks map; a GPU of the group is device, by default
    the current one. Its allocator (shunt.Allocator) is pool.allocator: close it after the pool and its tensors are
    gone.

    reserve: bytes that the allocator has from the start. symmetric: large messages go through the GPUs' copy engines;
    every rank allocates and frees tensors of the pool alike, and reserve is enough for them. segment_bytes: see
    Communicator.allocator. Other options are those of torch's pool."""
    gpu = _device(device)
    backend = _backend(group, gpu)
    if backend is None:
        raise ValueError(f"shunt.torch: the group has no shunt backend for {gpu}; its backend is "
                         f"{dist.get_backend(group)}")
    allocator = _made(backend, gpu, symmetric, segment_bytes)
    try:
        if reserve:
            allocator.reserve(reserve)
        with torch.cuda.device(gpu):
            pool = allocator.mem_pool(**options)
    except BaseException:
        allocator.close()
        raise
    pool.allocator = allocator
    return pool


_of_backend: dict[tuple[int, int], _allocator.Allocator] = {}


def _mem_allocator(self: Any) -> Any:
    """An allocator for torch.cuda.MemPool, of the current GPU; the same for each call, and for the life of the
    process."""
    device = _device(None)
    key = self.communicator_handle(device), device.index
    if key not in _of_backend:
        _of_backend[key] = _made(self, device, False, 0)
    return _of_backend[key].torch_allocator()


def _segments(pool: Any, device: torch.device) -> list[tuple[int, int]]:
    return sorted((s["address"], s["total_size"]) for s in pool.snapshot() if s["device"] == device.index)


_registered: dict[tuple[int, tuple[int, int]], list[int]] = {}


def _register_mem_pool(self: Any, pool: Any, symm: bool = False) -> None:
    """Collective: registers the memory that a pool of torch has on the current GPU, so that long messages go straight
    from the next call on; without it peers map memory in the background. Every rank registers as many segments. symm:
    the pool is one of mem_pool(symmetric=True), which is registered already."""
    device = _device(None)
    allocator = getattr(pool, "allocator", None)
    if symm:
        if not getattr(allocator, "symmetric", False):
            raise ValueError(f"shunt: rank {self.rank()}: register_mem_pool: the pool is not symmetric; expected one "
                             "of shunt.torch.mem_pool(symmetric=True)")
        return
    segments = _segments(pool, device)
    count = torch.tensor([len(segments), -len(segments)], device=device)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    work = self.allreduce([count], options)
    if work is not None:
        work.wait()
    most, least = count.tolist()
    if most != -least:
        raise InvalidArgumentError(f"register_mem_pool on rank {self.rank()}: the pool has {len(segments)} segments "
                                   "here, and "
                                   f"{-least} to {most} on the ranks; every rank registers as many")
    handle, lib = self.communicator_handle(device), _library.library()
    addresses = _registered.setdefault((handle, pool.id), [])
    for address, size in segments:
        _library.check(lib.shunt_register(handle, address, size))
        addresses.append(address)


def _deregister_mem_pool(self: Any, pool: Any) -> None:
    """Undoes register_mem_pool. Segments that the pool has freed since then are registered no more."""
    handle, lib = self.communicator_handle(_device(None)), _library.library()
    for status in [lib.shunt_deregister(handle, address) for address in _registered.pop((handle, pool.id), [])]:
        if status != Code.INVALID_ARGUMENT:
            _library.check(status)


ShuntBackend.mem_allocator = property(_mem_allocator)
ShuntBackend.register_mem_pool = _register_mem_pool
ShuntBackend.deregister_mem_pool = _deregister_mem_pool
