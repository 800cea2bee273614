"""What an 8-byte all_reduce of GPU memory costs the calling thread in Python,
the driver's launch included: calls are put into a stream in batches, and only
the calls are timed. Rank 0 prints the median and best batch, as JSON. Needs
torch.

    shunt run -n 2 python bench/python/bench_stream.py [BATCHES]
"""

import json
import os
import sys
import time

import torch

import shunt

BATCH = 100


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rank = int(os.environ["SHUNT_RANK"])
    torch.cuda.set_device(rank)
    with shunt.init(memory="cuda", device=rank) as comm:
        send = torch.ones(1, dtype=torch.float64, device="cuda")
        recv = torch.zeros(1, dtype=torch.float64, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        for name, call in (("stream of the tensor", lambda: comm.all_reduce(send, recv)),
                           ("stream given", lambda: comm.all_reduce(send, recv, stream=stream))):
            times = []
            for batch in range(-5, batches):
                start = time.perf_counter_ns()
                for _ in range(BATCH):
                    call()
                if batch >= 0:
                    times.append((time.perf_counter_ns() - start) / BATCH)
                comm.synchronize(stream)
            times.sort()
            if comm.rank == 0:
                print(json.dumps({"lang": "python", "memory": "cuda", "world": comm.world, "bytes": 8,
                                  "calls": batches * BATCH,
                                  "how": name, "ns_median": round(times[len(times) // 2], 1),
                                  "ns_best": round(times[0], 1)}))
        if recv.item() != comm.world:
            sys.exit(f"rank {comm.rank}: result {recv.item()}, want {comm.world}")


main()
