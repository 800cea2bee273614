"""A program whose interpreter ends while daemon threads are inside calls, which fail just then.

    torchrun --nproc-per-node 2 leave.py BACKEND MARK

Rank 0 makes the file MARK while its interpreter ends, and rank 1, which takes part in none of the calls, leaves.
"""

import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist


class AtTheEnd:
    """Deleted when Python no longer gives other threads its lock."""

    def __del__(self, mark=sys.argv[2], open=open, sleep=time.sleep):
        open(mark, "w").close()
        sleep(2)


def calls(group):
    t = torch.ones(3)
    return {"all_reduce": lambda: dist.all_reduce(t, group=group),
            "wait": lambda: dist.all_reduce(t, group=group, async_op=True).wait(),
            "callback": lambda: dist.all_reduce(t, group=group, async_op=True).get_future().then(print).wait(),
            "recv": lambda: dist.recv(t, 1, group=group),
            "recv from any": lambda: dist.recv(t, group=group),
            # Its deadline is while the interpreter ends: it does not notice that rank 1 leaves.
            "monitored_barrier": lambda: dist.monitored_barrier(group, datetime.timedelta(seconds=1.5)),
            "destroy": lambda: (dist.irecv(t, 1, group=group), dist.destroy_process_group(group))}


backend = sys.argv[1]
if "shunt" in backend:
    import shunt.torch  # noqa: F401 (registers the backend)
dist.init_process_group(backend)
for name in calls(None):
    group = dist.new_group()
    dist.all_reduce(torch.ones(3), group=group)
    if dist.get_rank() == 0:
        threading.Thread(target=calls(group)[name], daemon=True).start()
if dist.get_rank() == 1:
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    os._exit(0)
time.sleep(1)  # the threads are in their calls
sys.at_the_end = AtTheEnd()  # sys is cleared last; threads keep the names of this module
print("rank 0 leaves", flush=True)
