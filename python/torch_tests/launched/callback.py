"""A program that leaves while a call is under way whose future has a callback.

    torchrun --nproc-per-node 2 callback.py BACKEND MARK

Rank 1 makes its part of the call a second later, or when the file MARK is there: rank 0 makes it while its interpreter
ends.
"""

import os
import sys
import time

import torch
import torch.distributed as dist


class AtTheEnd:
    """Deleted when Python no longer gives other threads its lock."""

    def __del__(self, mark=sys.argv[2], open=open, sleep=time.sleep):
        open(mark, "w").close()
        sleep(2)


backend = sys.argv[1]
if "shunt" in backend:
    import shunt.torch  # noqa: F401 (registers the backend)
dist.init_process_group(backend)
dist.barrier()
t = torch.ones(3)
if dist.get_rank() == 0:
    future = dist.all_reduce(t, async_op=True).get_future()
    future.then(lambda f: print("called with", f.value()[0].tolist(), flush=True))
    sys.at_the_end = AtTheEnd()  # sys is cleared last
else:
    until = time.monotonic() + 1
    while time.monotonic() < until and not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    dist.all_reduce(t)
