"""Shunt: collectives between ranks, over transports loaded as plugins.

    import numpy, shunt

    with shunt.init() as comm:              # rank and world from the launcher
        x = numpy.full(4, comm.rank, "float32")
        comm.all_reduce(x)                  # in place, over all ranks

On GPUs, shunt.init(memory="cuda") moves tensors of torch and arrays with
`__cuda_array_interface__` or DLPack, on their streams.

Start ranks with `shunt run -n 4 python program.py`, torchrun, mpirun or srun.
Importing this package loads neither libshunt.so nor numpy. After a fork() of a
process that has used Shunt, calls in the child raise ForkedError: use
multiprocessing's spawn or forkserver.
"""

import types

from ._allocator import Allocator, AllocatorStats
from ._buffers import Buffer
from ._communicator import Communicator
from ._group import Group
from ._joining import init, unique_id, version
from ._logging import log_to
from ._registration import Registration
from ._tables import (
    AbortedError,
    ClosedError,
    Code,
    Collective,
    DeviceError,
    DType,
    ForkedError,
    InternalError,
    InvalidArgumentError,
    MemoryKind,
    MismatchError,
    Op,
    OutOfMemoryError,
    PeerDiedError,
    PluginDiedError,
    PluginRejectedError,
    ProtocolError,
    ShuntError,
    SystemError as SystemError,
    TimeoutError as TimeoutError,
    UnsupportedError,
)
from ._window import Window
from ._work import Work

__version__ = "1.1.0"

# Without SystemError and TimeoutError, which `from shunt import *` would put in place of Python's own.
__all__ = [
    "AbortedError",
    "Allocator",
    "AllocatorStats",
    "Buffer",
    "ClosedError",
    "Code",
    "Collective",
    "Communicator",
    "DType",
    "DeviceError",
    "ForkedError",
    "Group",
    "InternalError",
    "InvalidArgumentError",
    "MemoryKind",
    "MismatchError",
    "Op",
    "OutOfMemoryError",
    "PeerDiedError",
    "PluginDiedError",
    "PluginRejectedError",
    "ProtocolError",
    "Registration",
    "ShuntError",
    "UnsupportedError",
    "Window",
    "Work",
    "init",
    "log_to",
    "unique_id",
    "version",
]

# Named as programs name them, in tracebacks and pickles too.
for _public in list(globals().values()):
    if isinstance(_public, (type, types.FunctionType)) and _public.__module__.startswith("shunt._"):
        _public.__module__ = "shunt"
