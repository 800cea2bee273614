"""One rank: a process that makes worlds and runs cases as the pool asks, and replies to each with one message."""

import contextlib
import ctypes
import datetime
import faulthandler
import os
import pathlib
import signal
import sys
import traceback

import torch
import torch.distributed as dist

from torch_tests.registry import Skip, cases
from torch_tests.world import World, device_of

PR_SET_PDEATHSIG = 1


def serve(connection, number: int, log: str, parent: int) -> None:
    """Serves requests until the pool goes away. Outputs and stacks (SIGUSR1) go to the log."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = os.fdopen(out, "w", buffering=1, errors="replace")
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's
    torch.set_num_threads(1)
    world = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            if request[0] == "world":
                world = _make(number, *request[1:])
                reply = ("ok", "")
            else:
                reply = _run(world, request[1], request[2])
        except Skip as skip:
            reply = ("skip", str(skip))
        except BaseException:
            reply = ("error", traceback.format_exc())
        connection.send(reply)


def _make(rank: int, size: int, device: str, backend: str, truth: str, meeting: str, seconds: float) -> World:
    if dist.is_initialized():
        dist.destroy_process_group()
    if backend == "shunt":
        import shunt.torch  # noqa: F401 (registers the backend)
    where = torch.device(device)
    if device == "cuda":
        where = torch.device("cuda", rank % torch.cuda.device_count())  # ranks may share GPUs: SHUNT_SHARE_GPU
        torch.cuda.set_device(where)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    timeout = datetime.timedelta(seconds=seconds)
    dist.init_process_group(f"{device}:{backend}", init_method=f"file://{meeting}", rank=rank, world_size=size,
                            timeout=timeout)
    truth_group = dist.new_group(backend=f"{device_of(truth, where).type}:{truth}", timeout=timeout)
    return World(rank, size, where, backend, truth, dist.group.WORLD, truth_group)


def _run(world: World, key: str, arguments: dict) -> tuple[str, str]:
    case = cases()[key]
    world.begin(key)
    world.arguments = arguments
    with contextlib.ExitStack() as world.later:
        case.function(world, *case.values)
    return "ok", ""


def tail(log: pathlib.Path, lines: int = 60) -> str:
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
