"""What the benchmarks with torch share: the median, and torch's process group of the ranks of a communicator."""

import datetime

import torch
import torch.distributed as dist


def median(values):
    values = sorted(values)
    n = len(values)
    return values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2


def join(comm, device, **options):
    """Makes torch's process group over NCCL of comm's ranks, which meet over Shunt. Keep the store that it returns as
    long as the group. options are those of init_process_group."""
    store, port = None, torch.zeros(1, dtype=torch.int64, device=device)
    timeout = datetime.timedelta(seconds=60)
    if comm.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, timeout, False)
        port.fill_(store.port)
    torch.cuda.synchronize()
    comm.broadcast(port, 0)
    comm.synchronize()
    if store is None:
        store = dist.TCPStore("127.0.0.1", int(port.item()), None, False, timeout, False)
    dist.init_process_group("nccl", store=store, rank=comm.rank, world_size=comm.world, timeout=timeout,
                            device_id=device,
                            **options)
    return store
