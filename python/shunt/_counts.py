"""Counts and displacements of an all_to_all_v in memory of the GPU.

The kernel reads them when it runs. Nothing here does, which would wait for the GPU.
"""

from typing import Any, Protocol, SupportsIndex

from . import _device
from ._buffers import Buffer, Memory
from ._tables import DType, InvalidArgumentError



class Numbers(Protocol):
    """Whole numbers of the host: a list, a tuple, a range, an array of one dimension."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SupportsIndex: ...


#: What counts and displacements of all_to_all_v may be: numbers of the host, or an
#: array of int64 on the communicator's GPU.
Counts = Numbers | Buffer

_NAMES = ("send_counts", "send_displs", "recv_counts", "recv_displs")


def on_device(arrays: tuple[Any, Any, Any, Any], world: int, cuda: bool, send: Memory,
              recv: Memory) -> list[Memory | None] | None:
    """The memory of send_counts, send_displs, recv_counts and recv_displs, or None if
    none of them lies on a GPU. cuda says whether the communicator moves CUDA memory,
    send and recv are its buffers."""
    found = [None if array is None or isinstance(array, (list, tuple)) else _device.on_device(array, name)
             for array, name in zip(arrays, _NAMES)]
    first = next((name for name, memory in zip(_NAMES, found) if memory is not None), None)
    if first is None:
        return None
    if not cuda:
        raise InvalidArgumentError(f"all_to_all_v: {first} lies in CUDA memory; this communicator moves host memory, "
                                   "and takes numbers")
    memories: list[Memory | None] = []
    for array, memory, name in zip(arrays, found, _NAMES):
        kind = type(array).__name__
        if array is None:
            if name.endswith("counts"):
                raise InvalidArgumentError(f"all_to_all_v: {name} is None, want one for each rank")
            memories.append(None)
            continue
        if memory is None:
            raise InvalidArgumentError(f"all_to_all_v: {name} is a {kind} on the host, but {first} lies on the GPU; "
                                       "want all there, or none")
        if memory.dtype is not DType.INT64:
            raise InvalidArgumentError(f"{name}: {kind} of {memory.format}, want int64")
        if memory.dimensions != 1:
            raise InvalidArgumentError(f"{name}: {kind} of {memory.dimensions} dimensions, want 1")
        if memory.count != world:
            raise InvalidArgumentError(f"there are {memory.count} {name} for a world of {world}")
        for buffer, what in ((send, "send"), (recv, "recv")):
            if None not in (memory.gpu, buffer.gpu) and memory.gpu != buffer.gpu:
                raise InvalidArgumentError(f"{name}: {kind} lies on GPU {memory.gpu}, but {what} on GPU {buffer.gpu}")
        memories.append(Memory(memory.address, memory.count, DType.INT64, memory.hold, memory.stream, memory.gpu))
    return memories
