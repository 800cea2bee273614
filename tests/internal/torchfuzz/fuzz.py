#!/usr/bin/env python3
"""Fuzzes the Python package: random programs of collectives whose every result is computed from the seed and checked.

    fuzz.py --memory cuda -n 2 --seconds 30          every carrier given by --transport, each with and without torch's
                                                     expandable segments, with ranks as processes and as threads
    fuzz.py --memory host -n 3 --seconds 5           host memory with numpy (or --arrays torch)
    fuzz.py ... --seed 1234 --epoch 7                the program of a failed run again, from that epoch on

One line for each configuration; the exit status is 1 if any went wrong: a wrong byte, an error, a crash, a hang, or
memory and files that are not given back. A failure prints seed, epoch, and each rank's last operations.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import plan

HERE = pathlib.Path(__file__).resolve().parent
#: How long ranks have to tell what went wrong after the first has.
GRACE = 5.0
#: Lines of a rank's operations that a failure shows.
TAIL = 12


@dataclasses.dataclass(frozen=True)
class Configuration:
    transport: str
    expandable: bool
    threads: bool

    def __str__(self) -> str:
        return " ".join((self.transport.split(":")[0] or "default", "threads" if self.threads else "processes",
                         "expandable" if self.expandable else "plain"))


class World:
    """The ranks of one run."""

    def __init__(self, arguments: argparse.Namespace, config: Configuration, seed: int,
                 directory: pathlib.Path) -> None:
        self.arguments, self.config, self.seed, self.directory = arguments, config, seed, directory
        self.world = arguments.n
        self.selector = selectors.DefaultSelector()
        self.replies: dict[int, Any] = {}
        self.alive = set(range(self.world))
        self.at: dict[int, dict] = {}       # the last word of each rank
        self.waiting: set[int] = set()      # ranks that have said it and wait for a reply
        self.failures: dict[int, str] = {}
        self.epochs = 0
        self.processes = []
        each = [list(range(self.world))] if config.threads else [[rank] for rank in range(self.world)]
        for ranks in each:
            self.processes.append((ranks, self.start(ranks)))

    def start(self, ranks: list[int]) -> subprocess.Popen:
        pipes, ours = [], []
        for rank in ranks:
            (come, reply), (inlet, outlet) = os.pipe(), os.pipe()
            pipes.append((rank, (come, outlet), str(self.directory / f"steps-{rank}")))
            ours += [come, outlet]
            self.replies[rank] = os.fdopen(reply, "w")
            self.selector.register(os.fdopen(inlet, "r"), selectors.EVENT_READ, rank)
        a = self.arguments
        config = {"memory": a.memory, "arrays": a.arrays, "world": self.world, "seed": self.seed, "epoch": a.epoch,
                  "limits": dataclasses.asdict(plan.Limits(a.steps, a.bytes)), "transport": self.config.transport,
                  "threads": self.config.threads,
                  "timeout": a.timeout, "id": f"file://{self.directory}/meeting", "ranks": pipes, "grace": 2 * GRACE,
                  "wrapper": a.wrapper}
        environment = dict(os.environ,
                           PYTHONPATH=os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))))
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        if self.config.expandable:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if self.config.threads:
            environment["CUDA_MODULE_LOADING"] = "EAGER"  # a kernel's first use waits for kernels that run
        log = open(self.directory / f"output-{ranks[0]}", "wb")
        process = subprocess.Popen([sys.executable, str(HERE / "worker.py"), json.dumps(config)], env=environment,
                                   pass_fds=ours,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        for fd in ours:
            os.close(fd)
        log.close()
        return process

    def run(self, seconds: float) -> None:
        """Lets the ranks run, and tells them when to stop."""
        began: float | None = None
        # Of what is being waited for; importing torch takes its time.
        limit = time.monotonic() + 2 * self.arguments.limit
        while not self.alive <= set(self.failures):
            events = self.selector.select(max(0.0, min(limit - time.monotonic(), 1.0)))
            if not events and time.monotonic() > limit:
                waiting = [f"rank {rank} after {self.at.get(rank, {'at': 'the start'})['at']!r}"
                           for rank in sorted(self.alive)]
                self.failures.setdefault(-1, f"nothing has happened for too long: {', '.join(waiting)}")
                break
            for key, _ in events:
                self.hear(key.data, key.fileobj)
            if self.failures and not self.told:
                self.told, limit = True, time.monotonic() + GRACE
            if not self.failures and self.waiting == set(range(self.world)):
                at = self.at[min(self.alive)]["at"]
                if began is None and at == "ready":
                    began = time.monotonic()
                over = began is not None and time.monotonic() - began > seconds
                self.epochs += at == "epoch"
                self.reply("stop" if at == "epoch" and (over or self.epochs == self.arguments.epochs) else "go")
                limit = time.monotonic() + self.arguments.limit
        self.end()

    told = False

    def hear(self, rank: int, pipe: Any) -> None:
        line = pipe.readline()
        if not line:
            self.selector.unregister(pipe)
            pipe.close()
            self.alive.discard(rank)
            if self.at.get(rank, {}).get("at") != "closed":
                self.failures.setdefault(rank, "")
            return
        word = json.loads(line)
        if word["at"] == "failed":
            self.failures[rank] = word["text"]
            return
        self.at[rank] = {**self.at.get(rank, {}), **word}
        self.waiting.add(rank)

    def reply(self, word: str) -> None:
        self.waiting.clear()
        for rank in self.alive:
            try:
                self.replies[rank].write(word + "\n")
                self.replies[rank].flush()
            except BrokenPipeError:
                pass  # hear finds out

    def end(self) -> None:
        """Ends the processes; how they ended is known then."""
        for ranks, process in self.processes:
            if self.failures and process.poll() is None and not set(ranks) & set(self.failures):
                process.send_signal(signal.SIGABRT)  # faulthandler writes where its threads are
        for ranks, process in self.processes:
            try:
                status = process.wait(0.0 if set(ranks) & set(self.failures) else 10)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
                if not self.failures:
                    self.failures[ranks[0]] = "the process has not ended"
            if status != 0 and not self.failures:
                self.failures[ranks[0]] = ""
            for rank in ranks:
                if rank in self.failures and not self.failures[rank]:
                    name = f" ({signal.Signals(-status).name})" if status < 0 else ""
                    self.failures[rank] = f"the process has ended with status {status}{name}"

    def summary(self) -> str:
        facts = self.at.get(0, {})
        total = lambda what: sum(at.get(what, 0) for at in self.at.values())  # noqa: E731
        grown = {what: max((at.get("grown", {}).get(what, 0) for at in self.at.values()), default=0)
                 for what in ("device", "host", "files")}
        return (f"{self.epochs} epochs, {facts.get('calls', 0)} calls, {facts.get('graphs', 0)} graphs, "
                f"{facts.get('replays', 0)} replays, "
                f"{facts.get('communicators', 0)} splits, {total('results')} buffers checked; "
                f"device {grown['device'] / (1 << 20):+.1f} MiB, host {grown['host'] / (1 << 20):+.1f} MiB, files "
                f"{grown['files']:+d}")

    def report(self) -> str:
        """What is known of a failure."""
        lines = [f"seed {self.seed}, epoch {self.arguments.epoch + self.epochs}; again: {self.again()}"]
        for rank, text in sorted(self.failures.items()):
            lines.append(f"-- rank {rank}: {text.strip()}" if rank >= 0 else f"-- {text}")
        for rank in range(self.world):
            path = self.directory / f"steps-{rank}"
            text = "".join(p.read_text(errors="replace") for p in (path.with_suffix(".before"), path) if p.exists())
            lines.append(f"-- last operations of rank {rank}:")
            lines += ["   " + line[:400] for line in text.splitlines()[-TAIL:]]
        for ranks, _ in self.processes:
            text = (self.directory / f"output-{ranks[0]}").read_text(errors="replace").splitlines()
            if text:
                lines.append(f"-- output of {'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))}:")
                lines += ["   " + line[:400] for line in text[-60:]]
        return "\n".join(lines)

    def again(self) -> str:
        a = self.arguments
        words = ["fuzz.py", "--memory", a.memory, "--arrays", a.arrays, "-n", str(a.n), "--steps", str(a.steps),
                 "--bytes", str(a.bytes),
                 "--seed", str(self.seed), "--epoch", str(a.epoch + self.epochs), "--seconds", str(a.seconds),
                 "--ranks", "threads" if self.config.threads else "processes", "--expandable",
                 "on" if self.config.expandable else "off"]
        return " ".join(words + (["--transport", self.config.transport] if self.config.transport else []))


def perform(arguments: argparse.Namespace, config: Configuration, seed: int) -> bool:
    """Runs one configuration; whether all was right."""
    with tempfile.TemporaryDirectory(prefix="shunt-fuzz-") as directory:
        began = time.monotonic()
        world = World(arguments, config, seed, pathlib.Path(directory))
        try:
            world.run(arguments.seconds)
        finally:
            for _, process in world.processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        verdict = "FAILED" if world.failures else "ok"
        print(f"{arguments.memory} n={arguments.n} {config} seed={seed}: {world.summary()}; "
              f"{time.monotonic() - began:.1f} s: {verdict}", flush=True)
        if world.failures:
            print(world.report(), flush=True)
        return not world.failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", choices=("host", "cuda"), default="host")
    parser.add_argument("--arrays", choices=("numpy", "torch"), help="default: torch with cuda, numpy with host")
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--seconds", type=float, default=20, help="how long each configuration runs, whole epochs")
    parser.add_argument("--seed", type=int, help="default: a random one")
    parser.add_argument("--epoch", type=int, default=0, help="the first epoch")
    parser.add_argument("--epochs", type=int, default=0, help="how many at most; 0: as many as time allows")
    parser.add_argument("--steps", type=int, default=400, help="of an epoch")
    parser.add_argument("--bytes", type=int, default=0,
                        help="longest buffer; default: 48 MiB with cuda, 256 KiB with host")
    parser.add_argument("--transport", action="append", help="as SHUNT_TRANSPORTS; may be given several times")
    parser.add_argument("--expandable", choices=("off", "on", "both"), default="both",
                        help="torch's expandable segments")
    parser.add_argument("--ranks", choices=("processes", "threads", "both"), default="both")
    parser.add_argument("--timeout", type=float, default=20, help="of the communicator, in seconds")
    parser.add_argument("--limit", type=float, default=60,
                        help="longest time for an epoch, joining or leaving, in seconds")
    parser.add_argument("--wrapper", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.arrays = arguments.arrays or ("torch" if arguments.memory == "cuda" else "numpy")
    arguments.bytes = arguments.bytes or (48 << 20 if arguments.memory == "cuda" else 256 << 10)
    kinds = {"processes": [False], "threads": [True], "both": [False, True]}[arguments.ranks]
    expandable = {"off": [False], "on": [True], "both": [False, True]}[arguments.expandable]
    if arguments.memory == "host":
        expandable = [False]
    elif arguments.ranks == "both" and os.environ.get("SHUNT_SHARE_GPU") == "on":
        kinds = [False]
        print("without threads: they would share a context too, where torch's copies of one hold up the other's "
              "launches", flush=True)
    right = True
    for transport, threads, segments in itertools.product(arguments.transport or [""], kinds, expandable):
        seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
        right &= perform(arguments, Configuration(transport, segments, threads), seed)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
