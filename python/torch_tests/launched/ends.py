"""Pairs of ranks that leave without destroy_process_group while threads of their group may still free tensors.

    python ends.py BACKEND FOLDER TIMES

They are forked, so many ends take little time. Says which ended with another status than 0.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

backend, folder, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
if "shunt" in backend:
    import shunt.torch  # noqa: F401 (registers the backend)
    from shunt.torch._extension import C
    await_ends = C.await_ends


def waited(rank):
    for _ in range(100):
        dist.all_reduce(torch.ones(1000), async_op=True).wait()


def unwaited(rank):
    for _ in range(100):
        dist.all_reduce(torch.ones(1000), async_op=True)


def messages(rank):
    for _ in range(50):
        dist.isend(torch.ones(1000), 1 - rank)
        dist.irecv(torch.ones(1000), 1 - rank).wait()


def callbacks(rank):
    for _ in range(50):
        dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(lambda f: f.value()[0].sum())


def forks(rank):
    """A fork leaves at once: the call under way, whose future is open, is its parent's."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["the fork has ended"])
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    if rank == 0:
        fork = os.fork()
        if fork == 0:
            if "shunt" in backend and not await_ends(datetime.timedelta(0)):  # what the interpreter's end waits for
                os._exit(1)
            return
        status = os.waitpid(fork, 0)[1]
        if status:
            print(f"the fork ended with status {status}", flush=True)
        store.set("the fork has ended", "")
    future.wait()


def pair(manner, store):
    """Returns True in the two ranks, which leave then, and in their parent once they have left False."""
    for rank in range(2):
        if os.fork() == 0:
            dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
            dist.all_reduce(torch.ones(1))
            manner(rank)
            return True
    for _ in range(2):
        if status := os.wait()[1]:
            print(f"a rank of {manner.__name__} ended with status {status}", flush=True)
    return False


manners = [*[waited, unwaited, messages, callbacks] * times, forks]
if not any(pair(manner, f"{folder}/{turn}") for turn, manner in enumerate(manners)):
    print("all have left")
