"""A process of a run, for one rank or for several as threads: worker.py CONFIGURATION, as JSON.

Every rank has a pair of pipes to fuzz.py: it says where it is, and goes on when it is told that all ranks are there.
What it does is also written to a file, so that the last operations are known however the process ends.
"""

import faulthandler
import gc
import importlib
import json
import os
import sys
import threading
import time
import traceback
import warnings
from typing import Any

import arrays
import places
import plan
import truth
from runner import Runner

#: How much more may be in use after an epoch than after an earlier one. torch 2.11 itself keeps 47 KiB of host memory
#: of every graph that it has captured, also when the graph is gone and its cache is emptied.
SLACK = {"device": 64 << 20, "host": 512 << 20, "files": 8}
#: The same on GPUs where the choice of transports is free: NCCL makes its communicator for the first call that it wins,
#: in whatever epoch, and keeps it. On 2 H200 it took at most 910 MiB of a device, 502 MiB of the host, 28 descriptors.
ENGINE_SLACK = {"device": 1 << 30, "host": 1 << 30, "files": 32}
#: How long freed memory may stay with peers that have mapped it, in seconds.
LIMIT = 5.0
#: Bytes that the log of a rank's steps holds, twice at most.
LOG = 1 << 20


class Control:
    """The pipes of a rank."""

    def __init__(self, rank: int, fds: tuple[int, int]) -> None:
        self.rank, self.failed = rank, False
        self.inlet, self.outlet = os.fdopen(fds[0], "r"), os.fdopen(fds[1], "w")

    def say(self, at: str, **facts: Any) -> None:
        self.outlet.write(json.dumps({"at": at, "rank": self.rank, **facts}) + "\n")
        self.outlet.flush()

    def meet(self, at: str, **facts: Any) -> str:
        """Waits for all ranks to come to this point; returns what comes next."""
        self.say(at, **facts)
        reply = self.inlet.readline().strip()
        if not reply:
            raise SystemExit(f"rank {self.rank}: fuzz.py has ended")
        return reply


class Log:
    """The file of a rank's steps, with the seconds since its start: the last ones, also when the process is killed."""

    def __init__(self, path: str) -> None:
        self.path, self.written, self.began = path, 0, time.monotonic()
        self.file = open(path, "wb", buffering=0)

    def note(self, text: str) -> None:
        if self.written > LOG:
            os.replace(self.path, self.path + ".before")
            self.file, self.written = open(self.path, "wb", buffering=0), 0
        self.written += self.file.write(f"{time.monotonic() - self.began:.3f} {text}\n".encode())


def device(rank: int) -> int:
    """The rank's GPU. Ranks may share GPUs where SHUNT_SHARE_GPU says so."""
    import torch

    return rank % torch.cuda.device_count()


def make(config: dict, rank: int) -> tuple[Any, Any]:
    """The arrays and the place of a rank."""
    room = truth.table_bytes(4 * config["limits"]["bytes"] + (16 << 10))
    if config["arrays"] == "numpy":
        numbers: Any = arrays.Numpy(config["seed"], room)
    else:
        numbers = arrays.Torch(config["seed"], room, f"cuda:{device(rank)}" if config["memory"] == "cuda" else "cpu")
    if config["memory"] == "cuda":
        return numbers, places.Cuda(numbers, config["threads"])
    return numbers, places.Host(numbers)


def run(config: dict, rank: int, control: Control, log: Log) -> None:
    if config["memory"] == "cuda":
        import torch

        torch.cuda.set_device(device(rank))
    numbers, place = make(config, rank)
    warm_up(numbers, place)
    import shunt

    if config["wrapper"]:  # tests of the fuzzer itself break something here
        importlib.import_module(config["wrapper"]).install(shunt, rank)
    control.meet("ready")
    on_device = config["memory"] == "cuda"
    options = {"memory": "cuda", "device": device(rank)} if on_device else {}
    comm = shunt.init(rank, config["world"], config["id"], transports=config["transport"] or None,
                      timeout=config["timeout"], **options)
    with comm:
        try:
            epochs(config, Runner(comm, rank, config["seed"], numbers, place, on_device, log.note), control)
        except BaseException as error:
            tell(error, control, log)  # before the communicator is closed, which may take its time
            raise
    control.meet("closed")


def epochs(config: dict, runner: Runner, control: Control) -> None:
    first: Any = None
    slack = SLACK if config["transport"] or config["memory"] == "host" else ENGINE_SLACK
    epoch = config["epoch"]
    while True:
        runner.note(f"epoch {epoch}")
        runner.epoch(epoch, plan.Limits(**config["limits"]))
        control.meet("released", epoch=epoch)
        # What communicators that were closed before their graphs had to keep goes when the next one is made.
        runner.comms[plan.WORLD].split(0).close()
        first, grown = flat(runner.place, first, slack)
        if control.meet("epoch", epoch=epoch, results=runner.checks.results, grown=grown, **runner.counts) == "stop":
            return
        epoch += 1


def warm_up(numbers: Any, place: Any) -> None:
    """Computes a little of everything, so that the kernels for it are loaded: loading waits for kernels that run,
    and in a collective those wait for peers."""
    check = truth.Truth(numbers, 0)
    found = numbers.zeros(1)
    for stream in range(place.streams):
        with place.on(stream):
            for dtype in plan.DTYPES:
                for op in plan.OPS:
                    for n in (3, 64, 5000):
                        call = plan.Call(1, "all_reduce", (0, 1), dtype, op, (1, 2) if op == "premul_sum" else (),
                                         count=n)
                        want = numbers.clone(check.bits("around", 1, 0, 0, (n * call.size + 15) // 8 * 8))
                        have = numbers.clone(want)
                        numbers.copy(have[call.size:call.size + n * call.size], check.sent(call, 0, 1, n))
                        numbers.copy(want[call.size:call.size + n * call.size], check.reduced(call, 1, n))
                        numbers.compare(have, want, found[0])
    place.synchronize()


def flat(place: Any, first: dict | None, slack: dict) -> tuple[dict, dict]:
    """The least that was in use after an epoch, and by how much more is now, slack at most; every rank is idle."""
    until = time.monotonic() + LIMIT
    while True:
        place.trim()
        now = {"device": place.used(), "host": places.resident(), "files": places.open_files()}
        if first is None:
            if time.monotonic() > until - LIMIT + 1.5:  # peers have let go by then
                return now, {what: 0 for what in now}
        else:
            grown = {what: n - first[what] for what, n in now.items()}
            big = {what: n for what, n in grown.items() if n > slack[what]}
            if not big:
                return {what: min(n, first[what]) for what, n in now.items()}, grown
            if time.monotonic() > until:
                raise RuntimeError(
                    f"not released within {LIMIT} s: {describe(big)} more than after an earlier epoch")
        time.sleep(0.1)


def describe(grown: dict) -> str:
    return ", ".join(f"{n} open files" if what == "files" else f"{n / (1 << 20):.1f} MiB of {what} memory"
                     for what, n in grown.items())


def tell(error: BaseException, control: Control, log: Log) -> None:
    if not control.failed:
        control.failed = True
        log.note(f"failed: {error!r}")
        control.say("failed", text="".join(traceback.format_exception(error)))


def guarded(config: dict, rank: int, control: Control, log: Log) -> None:
    """Runs a rank; what goes wrong is told with the last operations."""
    try:
        run(config, rank, control, log)
    except BaseException as error:
        tell(error, control, log)
        time.sleep(config["grace"])  # fuzz.py ends everything when the other ranks have told too
        os._exit(1)


def main() -> None:
    faulthandler.enable()
    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # one of calls of zero bytes
    config = json.loads(sys.argv[1])
    ranks = [(rank, Control(rank, tuple(fds)), Log(path)) for rank, fds, path in config["ranks"]]
    if config["memory"] == "cuda":
        import torch

        for rank, _, _ in ranks:  # contexts are made before there are threads
            torch.zeros(1, device=f"cuda:{device(rank)}")
        if len(ranks) > 1:
            torch.cuda.synchronize()
    if len(ranks) == 1:
        guarded(config, *ranks[0])
        return
    gc.disable()  # finalizers run where their rank is: see Runner, which drops what it has made
    threads = [threading.Thread(target=guarded, args=(config, *rank)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
