"""Registering the backend, and making it for a group."""

import atexit
import datetime
import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .. import _library
from ._extension import C

ShuntBackend = C.ShuntBackend

_named = False


def _name_variables() -> None:
    """Warns, once a process, of set variables of torch's nccl backend that have no meaning here."""
    global _named
    # torchrun sets the first by itself.
    ignored = sorted(name for name in os.environ if name.startswith("TORCH_NCCL_")
                     and name != "TORCH_NCCL_ASYNC_ERROR_HANDLING")
    if ignored and not _named:
        warnings.warn(f"shunt.torch: {', '.join(ignored)} set up torch's nccl backend; the shunt backend ignores them",
                      stacklevel=2)
    _named = True


def _create(options: Any, backend_options: Any) -> Any:
    """Makes the backend of a group; torch calls this for each new one."""
    if backend_options is not None and not isinstance(backend_options, C.Options):
        kind = type(backend_options)
        raise TypeError(f"shunt: pg_options is a {kind.__module__}.{kind.__qualname__}; expected None, as this backend "
                        "has no options")
    # A copy: torch may pass one object for several groups.
    own = backend_options.__copy__() if backend_options is not None else C.Options()
    return _make(own, options.store, options.group_rank, options.group_size, options.timeout, options.group_id,
                 options.global_ranks_in_group)


def _make(own: Any, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta, name: str,
          global_ranks: list[int]) -> Any:
    _name_variables()
    C.load(_library.library()._name)
    own._timeout = timeout
    own.group_name = name
    own.global_ranks_in_group = global_ranks
    return ShuntBackend(store, rank, size, own)


def process_group(store: dist.Store, rank: int, world_size: int, *, name: str = "group",
                  timeout: datetime.timedelta = distributed_c10d.default_pg_timeout) -> dist.ProcessGroup:
    """Makes a group that `torch.distributed` does not know, for programs that keep their groups themselves, as torchft
    does: they call its methods, such as `group.allreduce([tensor]).wait()`, and may have any number of such groups
    without `init_process_group`.

    The `world_size` ranks, each with its own number from 0, pass the same store and name; groups of one store have
    different names, also one after the other. GPUs and host memory are served, and ranks connect with the first call.
    `timeout` bounds each call. The group ends with its last reference, or by `group.abort()` or `group.shutdown()`.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"shunt: rank {rank} is not one of a group of {world_size}")
    backend = _make(C.Options(), dist.PrefixStore(f"shunt/{name}", store), rank, world_size, timeout, name,
                    list(range(world_size)))
    group, kind = dist.ProcessGroup(store, rank, world_size), dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in "cpu", "cuda":
        group._register_backend(torch.device(device), kind, backend)
    return group


def _register() -> None:
    dist.Backend.register_backend("shunt", _create, extended_api=True, devices=["cpu", "cuda"])
    # torch 2.11 gives groups of several backends a default one only if the first plugin's name, which it keeps in
    # capitals, is that in the group's configuration, which is not. Entered as written, and first, it is found.
    plugins = distributed_c10d.Backend._plugins
    others = dict(plugins)
    plugins.clear()
    plugins["shunt"] = others["SHUNT"]
    plugins.update(others)


_register()
# Callbacks of calls that have not been waited for, and threads that free their tensors.
atexit.register(C.await_ends, datetime.timedelta(seconds=2))
C.offer_symmetric_memory()
