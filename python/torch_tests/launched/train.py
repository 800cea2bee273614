"""A training program as torchrun starts it, unchanged but for the backend's name.

    torchrun --nproc-per-node 2 train.py BACKEND STEPS [FAULT]

FAULT is killed (rank 1 ends by SIGKILL in its first run), raises (rank 1 raises) or endless.
"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from torch_tests import model as m  # noqa: E402


def main() -> None:
    backend, steps, fault = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    if "shunt" in backend:
        import shunt.torch  # noqa: F401 (registers the backend)
    device = "cpu"
    if backend.startswith("cuda"):
        device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    net = DistributedDataParallel(m.make(device))
    m.train(net, 2, rank, device)
    if rank == 1 and fault == "killed" and attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and fault == "raises":
        raise ValueError("rank 1 has had enough")
    print(f"rank {rank} of attempt {attempt} is under way", flush=True)
    losses = m.train(net, steps if fault != "endless" else 1_000_000, rank, device)
    print(f"rank {rank} of attempt {attempt} has loss {losses[-1]:.3f}", flush=True)
    dist.destroy_process_group()


main()
