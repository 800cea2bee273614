"""Time of an 8-byte all_reduce from Python, in the world that the environment
describes. Rank 0 prints the median and best of 5 runs, as JSON:

    shunt run -n 2 python bench/python/bench_all_reduce.py [CALLS]
"""

import json
import sys
import timeit

import numpy as np

import shunt


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with shunt.init() as comm:
        send, recv = np.ones(1), np.zeros(1)
        for name, text in (("in place", "comm.all_reduce(recv)"), ("two buffers", "comm.all_reduce(send, recv)")):
            recv[:] = 0  # in place, ones would grow without end
            runs = timeit.repeat(text, globals={"comm": comm, "send": send, "recv": recv}, number=calls, repeat=6)
            times = sorted(t / calls * 1e9 for t in runs[1:])  # the first run warms up
            if comm.rank == 0:
                print(json.dumps({"lang": "python", "world": comm.world, "bytes": 8, "calls": calls, "buffers": name,
                                  "ns_median": round(times[2], 1), "ns_best": round(times[0], 1)}))
        if recv[0] != comm.world:
            sys.exit(f"rank {comm.rank}: result {recv[0]}, want {comm.world}")


main()
