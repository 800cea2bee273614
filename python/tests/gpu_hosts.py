"""A world whose ranks say that they are on two hosts, on the GPUs of this one: gpu_hosts.py RANKS.

The second half of the ranks gets another host identity, for Shunt and for NCCL, so that only a transport between hosts
serves them; where ranks share a GPU (SHUNT_SHARE_GPU) each gets its own, for NCCL takes no two ranks of a host there.
Rank 0 aborts the communicator, or the last rank is killed, each while the others are in a
collective: every other rank must be told which rank it was, within SOON seconds, and go on without it after shrink.
Needs torch.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

#: A rank whose process is killed leaves a connection that the others' store loses at once.
SOON = 5.0


def survive(fault: str) -> str:
    """Runs collectives until the fault, and after it on those that are left; says how long the news took."""
    import torch

    import shunt
    torch.cuda.set_device(int(os.environ["SHUNT_RANK"]) % torch.cuda.device_count())
    comm = shunt.init(memory="cuda", timeout=60)
    assert comm.size == int(os.environ["SHUNT_WORLD"])
    culprit = {"abort": 0, "kill": comm.size - 1}[fault]
    expected = float(sum(range(comm.size)))
    x = torch.empty(1 << 20, device="cuda")
    error, since = None, time.monotonic()
    try:
        for call in range(1000):
            x.fill_(comm.rank)
            comm.all_reduce(x, x)
            torch.cuda.synchronize()
            if not x[0].item() == x[-1].item() == expected:
                comm.barrier()  # the next call returns the error of an operation that failed on its stream
                raise AssertionError((x[0].item(), x[-1].item(), expected))
            since = time.monotonic()
            if call == 20 and comm.rank == culprit:
                if fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                comm.abort("enough")
    except shunt.ShuntError as err:
        error = err
    took = time.monotonic() - since
    assert error is not None, f"1,000 calls passed after the {fault}"
    assert f"rank {culprit}" in str(error), error
    assert took < SOON, f"{took:.1f} s until: {error}"
    left = comm.shrink()
    assert left.size == comm.size - (fault == "kill")
    x.fill_(1)
    left.all_reduce(x, x)
    torch.cuda.synchronize()
    assert x[0].item() == left.size
    left.close()
    comm.close()
    return f"{took * 1000:.0f} ms until {type(error).__name__}: {error}"


def world(size: int, fault: str) -> bool:
    """Runs the ranks; true if each of them ended as it should."""
    with tempfile.TemporaryDirectory() as directory:
        ranks = []
        for rank in range(size):
            host = f"host-{rank if os.environ.get('SHUNT_SHARE_GPU') == 'on' else 2 * rank // size}"
            env = {"SHUNT_RANK": str(rank), "SHUNT_WORLD": str(size), "SHUNT_ID": f"file://{directory}/id",
                   "SHUNT_HOST_ID": host, "NCCL_HOSTID": host}
            ranks.append(subprocess.Popen([sys.executable, __file__, "rank", fault], env={**os.environ, **env},
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        good = True
        for rank, process in enumerate(ranks):
            try:
                said, _ = process.communicate(timeout=90)
            except subprocess.TimeoutExpired:
                process.kill()
                said = process.communicate()[0] + "rank did not end within 90 s\n"
            killed = fault == "kill" and rank == size - 1
            good &= process.returncode == (-signal.SIGKILL if killed else 0)
            print(f"{fault}, rank {rank}, status {process.returncode}: {said.strip()}")
    return good


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        print(survive(sys.argv[2]))
    elif not all([world(int(sys.argv[1]), fault) for fault in ("abort", "kill")]):
        sys.exit("a rank was not told")
