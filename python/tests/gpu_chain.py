"""A graph of many short calls holds no other kernel up while it waits for a peer.

Two ranks as threads, each on a GPU of its own or both on the one there is (SHUNT_SHARE_GPU). Rank 0 replays a graph of
300 all_reduces, and before rank 1 does so a kernel on another stream of rank 0 must run. Then rank 1 replays; every
result is checked.

    python3 python/tests/gpu_chain.py
"""

import os
import sys
import threading
import traceback

import torch

import shunt

CALLS, SECONDS = 300, 10.0
#: Elements of float32: one block of one warp, one block, several, and the most that packets carry.
COUNTS = (2, 1024, 8192, 16384)

barrier = threading.Barrier(2, timeout=60)
failures: list[str] = []
capturing = threading.Lock()


def captured(comm: "shunt.Communicator", x: torch.Tensor) -> torch.cuda.CUDAGraph:
    """The graph of CALLS all_reduces in place, of the call that has been made before."""
    graph = torch.cuda.CUDAGraph()
    with capturing:
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(CALLS):
            comm.all_reduce(x, op="max")
        graph.capture_end()
    return graph


def run(rank: int, id: str) -> None:
    device = rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    with shunt.init(rank, 2, id, memory="cuda", device=device, timeout=30) as comm, torch.cuda.stream(stream):
        for count in COUNTS:
            x, y = torch.zeros(count, device="cuda"), torch.zeros(1, device="cuda")
            comm.all_reduce(x, op="max")
            stream.synchronize()
            barrier.wait()
            graph = captured(comm, x)
            barrier.wait()  # no capture is open, which forbids to synchronize a device
            x.fill_(rank + 1.0)
            with torch.cuda.stream(other):
                y.add_(0.0)  # its code is there from here on
            torch.cuda.synchronize()
            barrier.wait()
            ran = True
            if rank == 0:
                graph.replay()
                done = torch.cuda.Event()
                with torch.cuda.stream(other):
                    y.add_(1.0)
                    done.record()
                ran = waited(done)
            barrier.wait()
            if rank == 1:
                graph.replay()
            stream.synchronize()
            other.synchronize()
            if not ran:
                failures.append(f"{count} elements: a kernel of another stream did not run before the peer came")
            if not bool((x == 2.0).all()):
                failures.append(f"{count} elements: rank {rank} has {x.unique().tolist()[:4]} instead of 2")
            barrier.wait()


def waited(event: torch.cuda.Event) -> bool:
    """Whether the event comes within SECONDS."""
    at_last = threading.Event()
    threading.Thread(target=lambda: (event.synchronize(), at_last.set()), daemon=True).start()
    return at_last.wait(SECONDS)


def guarded(rank: int, id: str) -> None:
    try:
        run(rank, id)
    except BaseException as error:
        traceback.print_exc()
        failures.append(f"rank {rank}: {type(error).__name__}")
        barrier.abort()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        os.environ["SHUNT_SHARE_GPU"] = "on"
    where = shunt.unique_id()
    ranks = [threading.Thread(target=guarded, args=(rank, where)) for rank in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    print("\n".join(failures) if failures else f"{CALLS} calls of {', '.join(map(str, COUNTS))} elements: ok")
    sys.exit(bool(failures))
