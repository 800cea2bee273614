"""The backend "shunt" of torch.distributed. Importing this registers it.

    import torch.distributed as dist
    import shunt.torch

    dist.init_process_group("shunt")              # GPUs and host memory
    dist.init_process_group("cpu:gloo,cuda:shunt")

Groups find each other through torch's own store. Each device has a communicator of its own, made by the first
collective on it.
"""

import sys

if not (sys.argv[:1] == ["-m"] and "shunt.torch.build" in sys.orig_argv):  # which needs no extension
    from ._backend import ShuntBackend as ShuntBackend
    from ._backend import process_group as process_group
    from ._calls import all_to_all_single as all_to_all_single
    from ._calls import monitored_barrier as monitored_barrier
    from ._memory import mem_pool as mem_pool

    __all__ = ["ShuntBackend", "all_to_all_single", "mem_pool", "monitored_barrier", "process_group"]
