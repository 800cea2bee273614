"""Runs the cases without pytest, as on a machine with GPUs that has torch and nothing else:

    python -m torch_tests.run --device cuda [--truth nccl] [--worlds 2] [-k PART] [--slow]

Prints failures as they come, skips by their reasons, and the count. Starts its ranks itself.
"""

import argparse
import collections
import sys
import time

from torch_tests.pool import Failure, Lacking, Pool, Setting
from torch_tests.registry import cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="torch_tests.run")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="shunt")
    parser.add_argument("--truth", help="gloo, on GPUs nccl")
    parser.add_argument("--worlds", help="numbers of ranks, as 2,4: all that there are devices for")
    parser.add_argument("-k", default="", metavar="PART", help="cases whose name contains it")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS",
                        help="stop after so long, saying what was left")
    options = parser.parse_args()
    setting = Setting(options.device, options.backend, options.truth or _truth(options))
    chosen = [(size, key) for size in _worlds(options) for key, case in cases().items()
              if size in case.worlds and options.k in key and (options.slow or not case.slow)]
    # Those that cost new processes come last: most is seen in a short time.
    chosen.sort(key=lambda c: cases()[c[1]].breaks)
    pool, began = Pool(setting), time.monotonic()
    count, reasons, times = collections.Counter(), collections.Counter(), []
    for done, (size, key) in enumerate(chosen):
        if time.monotonic() - began > options.limit:
            count["not run"] = len(chosen) - done
            break
        start = time.monotonic()
        try:
            pool.run(cases()[key], size)
            count["passed"] += 1
        except Lacking as lacking:
            count["skipped"] += 1
            reasons[f"{key.partition('/')[0]}: {lacking}"] += 1
        except Failure as failure:
            count["failed"] += 1
            print(f"FAILED {failure}\n", flush=True)
        times.append((time.monotonic() - start, f"{size}-{key}"))
    pool.close()
    for reason, n in sorted(reasons.items()):
        print(f"skipped {n} x {reason}")
    print("slowest:", ", ".join(f"{key} {seconds:.1f} s" for seconds, key in sorted(times, reverse=True)[:5]))
    print(f"{dict(count)} in {time.monotonic() - began:.0f} s, {setting}")
    return 0 if count["passed"] and not count["failed"] and not count["not run"] else 1


def _truth(options) -> str:
    """nccl on GPUs, unless ranks share them, which it rejects."""
    if options.device == "cpu":
        return "gloo"
    import torch
    return "nccl" if max(_worlds(options)) <= torch.cuda.device_count() else "gloo"


def _worlds(options) -> list[int]:
    if options.worlds:
        return [int(n) for n in options.worlds.split(",")]
    if options.device == "cpu":
        return [2, 3, 4]
    import torch
    return [n for n in (2, 3, 4) if n <= torch.cuda.device_count()]


if __name__ == "__main__":
    sys.exit(main())
