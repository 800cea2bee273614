"""The processes of the ranks: started once, used for all cases, replaced after a failure.

A fork server imports torch once, so that a rank costs a fork (20 ms) and not an import (2 to 10 s).
"""

import atexit
import dataclasses
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.connection import wait

from torch_tests.registry import Case

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
#: After the first rank has failed the others get this long to come back.
GRACE = 5.0


class Failure(Exception):
    """A case failed: what each rank said."""


class Lacking(Exception):
    """A case was skipped by every rank that ran it."""


@dataclasses.dataclass(frozen=True)
class Setting:
    device: str = "cpu"
    backend: str = "shunt"
    truth: str = "gloo"
    seconds: float = 60


class Pool:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="torch-tests-"))
        self.ranks: list = []
        self.world = 0
        self.meetings = 0
        self.context = _fork_server()
        atexit.register(self.close)

    def run(self, case: Case, size: int, **arguments) -> None:
        """Runs a case in a world of this size. Raises Failure or Lacking."""
        from torch_tests.worker import tail

        try:
            self._make_world(size)
            replies = self._ask([("case", case.key, arguments)] * size, case.seconds, case.dies)
        except Failure as failure:
            logs = "\n".join(f"--- log of rank {i} ---\n{text}"
                             for i in range(len(self.ranks)) if (text := tail(self._log(i), 30)))
            self.stop()
            raise Failure(f"{case.key} on {size} ranks: {_gist(failure)}\n{failure}\n{logs}") from None
        if case.breaks:
            self.stop()
        skips = {text for kind, text in replies if kind == "skip"}
        if skips:
            if any(kind not in ("skip", "died") for kind, _ in replies):
                raise Failure(f"{case.key}: only some ranks skipped: {replies}")
            raise Lacking("; ".join(sorted(skips)))

    def _make_world(self, size: int) -> None:
        if self.world == size:
            return
        while len(self.ranks) < size:
            number = len(self.ranks)
            ours, theirs = self.context.Pipe()
            process = self.context.Process(target=_serve, args=(theirs, number, str(self._log(number)), os.getpid()),
                                           daemon=True)
            process.start()
            theirs.close()
            self.ranks.append((process, ours))
        self.meetings += 1
        meeting = self.directory / f"meeting-{self.meetings}"
        s = self.setting
        self._ask([("world", size, s.device, s.backend, s.truth, str(meeting), s.seconds)] * size, 120)
        self.world = size

    def _ask(self, requests: list, seconds: float, last_dies: bool = False) -> list[tuple[str, str]]:
        """Every rank's reply; a rank that fails, ends or does not respond in time is a Failure."""
        for (_, connection), request in zip(self.ranks, requests):
            connection.send(request)
        waiting = {self.ranks[i][1]: i for i in range(len(requests))}
        replies: list = [None] * len(requests)
        end = time.monotonic() + seconds
        bad = False
        while waiting and (left := end - time.monotonic()) > 0:
            for connection in wait(list(waiting), left):
                rank = waiting.pop(connection)
                try:
                    replies[rank] = connection.recv()
                except (EOFError, OSError):
                    self.ranks[rank][0].join(5)
                    expected = last_dies and rank == len(requests) - 1
                    replies[rank] = ("died" if expected else "error",
                                     f"the process ended with status {self.ranks[rank][0].exitcode}")
                if replies[rank][0] == "error" and not bad:
                    bad, end = True, min(end, time.monotonic() + GRACE)
        for rank in waiting.values():
            replies[rank] = ("error", f"no reply after {GRACE if bad else seconds:g} s"
                             + (" since the first failure" if bad else ""))
            os.kill(self.ranks[rank][0].pid, signal.SIGUSR1)  # its stack goes to its log
        if waiting:
            time.sleep(0.3)
        if any(kind == "error" for kind, _ in replies):
            raise Failure("\n".join(f"rank {i}: {text}" for i, (kind, text) in enumerate(replies) if kind == "error"))
        return replies

    def _log(self, rank: int) -> pathlib.Path:
        return self.directory / f"rank-{rank}.log"

    def stop(self) -> None:
        """Ends the processes; the next case gets new ones."""
        for process, connection in self.ranks:
            connection.close()
            process.kill()
            process.join()
        self.ranks, self.world = [], 0
        for log in self.directory.glob("rank-*.log"):
            log.unlink()

    def close(self) -> None:
        atexit.unregister(self.close)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _gist(failure: Failure) -> str:
    """What the first rank that failed by itself said last: the line of a summary."""
    blocks = [block.strip() for block in str(failure).split("\nrank ")]
    first = next((b for b in blocks if "no reply after" not in b), blocks[0])
    return first.splitlines()[-1]


def _serve(*args) -> None:
    from torch_tests.worker import serve
    serve(*args)


def _fork_server():
    """A multiprocessing context whose server has imported torch, but not shunt: libshunt must not be live before a
    fork."""
    paths = [str(PACKAGE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if str(PACKAGE) not in sys.path:
        sys.path.insert(0, str(PACKAGE))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch_tests.worker", "torch_tests.preload"])
    return context
