"""Ranks make a group's first call when the rank that runs torch's store has ended.

    storeless.py BACKEND

Each of the two that are left prints its error.
"""

import datetime
import multiprocessing
import sys

import torch
import torch.distributed as dist


def run(rank, backend, place, made, left):
    import shunt.torch  # noqa: F401 (registers the backend)
    dist.init_process_group(backend, init_method=place, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=60))
    group = dist.new_group([1, 2])
    made.wait()
    if rank == 0:
        return
    left.wait()
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except dist.DistBackendError as error:
        print(f"rank {rank}: {error}", flush=True)


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # for a port that is free
    place = f"tcp://127.0.0.1:{store.port}"
    del store
    context = multiprocessing.get_context("spawn")
    made, left = context.Barrier(3), context.Event()
    ranks = [context.Process(target=run, args=(rank, sys.argv[1], place, made, left)) for rank in range(3)]
    for process in ranks:
        process.start()
    ranks[0].join()
    left.set()
    for process in ranks[1:]:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))
