"""Calls that torch.distributed does not pass to other backends than its own, or lacks."""

import functools
import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._backend import ShuntBackend


def _backend(group: Any, device: torch.device | None = None) -> Any:
    """The shunt backend of a group, for a device or any; None if it has none."""
    pg = distributed_c10d._get_default_group() if group is None else group
    for candidate in (device,) if device is not None else (torch.device("cpu"), torch.device("cuda")):
        try:
            backend = pg._get_backend(candidate)
        except RuntimeError:
            continue
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        if isinstance(backend, ShuntBackend):
            return backend
    return None


_torch_monitored_barrier = dist.monitored_barrier


@functools.wraps(_torch_monitored_barrier)
def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """torch.distributed.monitored_barrier, which torch refuses to backends other than gloo: importing shunt.torch
    replaces it by this function, which passes groups without a shunt backend on to torch's."""
    if distributed_c10d._rank_not_in_group(group) or (backend := _backend(group)) is None:
        return _torch_monitored_barrier(group, timeout, wait_all_ranks)
    if timeout is None:
        timeout = backend.options._timeout
    elif isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    backend.monitored_barrier(timeout, wait_all_ranks)


dist.monitored_barrier = distributed_c10d.monitored_barrier = monitored_barrier


_torch_set_pg_timeout = distributed_c10d._set_pg_timeout


@functools.wraps(_torch_set_pg_timeout)
def _set_pg_timeout(timeout: timedelta, group: Any = None) -> None:
    """torch.distributed.distributed_c10d._set_pg_timeout, which torch leaves without effect for backends other than
    nccl and gloo: importing shunt.torch replaces it by this function, which passes others on to torch's."""
    if distributed_c10d._rank_not_in_group(group):
        return _torch_set_pg_timeout(timeout, group)
    pg = distributed_c10d._get_default_group() if group is None else group
    ours = {device: backend for device in pg._device_types if (backend := _backend(pg, device)) is not None}
    if len(ours) < len(pg._device_types):
        _torch_set_pg_timeout(timeout, group)
    for backend in set(ours.values()):
        backend.set_timeout(timeout)


distributed_c10d._set_pg_timeout = _set_pg_timeout


@functools.cache
def _told(backend: str) -> None:
    """Warns, once for each other backend."""
    warnings.warn(f"shunt.torch: all_to_all_single in a group of backend {backend}, without a shunt backend for the "
                  "tensors: "
                  "torch's function serves it, and the host waits for split sizes that are on a GPU", stacklevel=3)


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: list[int] | torch.Tensor | None = None,
    input_split_sizes: list[int] | torch.Tensor | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """torch.distributed.all_to_all_single, whose split sizes may also be int64 tensors on the GPU of input: they are
    read there when the operation runs, so the host does not wait for them. output and input then only need room for
    what is sent: rows behind the sum of the splits are left alone. Split sizes that reach further fail the group,
    as its next call tells. With tensors async_op makes no difference to the host; None is returned.

    Split sizes in host memory may be tensors too. In groups of other backends they are read (which waits for a GPU)
    and passed to torch's function, as a warning says once.
    """
    tensors = [s for s in (output_split_sizes, input_split_sizes) if isinstance(s, torch.Tensor)]
    if tensors and not distributed_c10d._rank_not_in_group(group):
        backend = _backend(group, input.device)
        if backend is None:
            _told(dist.get_backend(group))
        elif len(tensors) == 2 and all(s.is_cuda for s in tensors):
            return backend.all_to_all_on_device(output, input, output_split_sizes, input_split_sizes)
    lists = [s.tolist() if isinstance(s, torch.Tensor) else s for s in (output_split_sizes, input_split_sizes)]
    return dist.all_to_all_single(output, input, lists[0], lists[1], group, async_op)
