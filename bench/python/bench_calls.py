"""Times of 8-byte calls on host memory from Python, in the world that the environment
describes. Rank 0 prints a line of JSON for each operation: the median and the 99th
percentile over samples of CALLS_PER_SAMPLE calls, in ns a call. A send_recv is half of
a message there and back. bench/c and bench/go measure the same, and bench/compare
compares two versions of Shunt by them.

    shunt run -n 2 --bind python bench/python/bench_calls.py [SAMPLES]
"""

import json
import sys
from time import perf_counter_ns

import numpy as np

import shunt

CALLS_PER_SAMPLE = 8
WARM_UP = 2000


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with shunt.init() as comm:
        send, recv = np.ones(1), np.zeros(1)

        def send_recv() -> None:
            """One message each way between ranks 0 and 1."""
            if comm.rank == 0:
                comm.send(recv, 1)
                comm.recv(recv, 1)
            elif comm.rank == 1:
                comm.recv(recv, 0)
                comm.send(recv, 0)

        operations = [  # name, call, messages of a call one after the other, ranks that it needs
            ("all_reduce", lambda: comm.all_reduce(send, recv), 1, 1),
            ("broadcast", lambda: comm.broadcast(recv), 1, 1),
            ("send_recv", send_recv, 2, 2),
            ("barrier", comm.barrier, 1, 1),
        ]
        for name, call, messages, ranks in operations:
            if comm.world < ranks:
                continue
            times = []
            for i in range(-WARM_UP // CALLS_PER_SAMPLE, samples):
                start = perf_counter_ns()
                for _ in range(CALLS_PER_SAMPLE):
                    call()
                if i >= 0:
                    times.append((perf_counter_ns() - start) / CALLS_PER_SAMPLE / messages)
            if recv[0] != comm.world:
                sys.exit(f"rank {comm.rank}: {name} left {recv[0]}, want {comm.world}")
            times.sort()
            if comm.rank == 0:
                print(json.dumps({"lang": "python", "op": name, "world": comm.world, "bytes": 8, "samples": samples,
                                  "ns_median": round(times[samples // 2], 1),
                                  "ns_p99": round(times[samples * 99 // 100], 1)}))


main()
