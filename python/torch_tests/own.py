"""torch's own tests of torch.distributed, as its wheel carries them, with Shunt in gloo's place.

    python -m torch_tests.own [--backend gloo] [-k PART] [--write own_results.tsv | --check own_results.tsv]

torch.testing._internal.distributed.distributed_test asks for gloo by name. Here a group that is
asked for by that name is Shunt's, so that every test for gloo runs unchanged, on 4 ranks that
are forked from one process which has imported torch. --check fails when a test
that passed by the file does not pass any more.
"""

import argparse
import collections
import contextlib
import io
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import unittest
import warnings

WORLD = "4"
os.environ.update(BACKEND="gloo", WORLD_SIZE=WORLD, TEMP_DIR=(FOLDER := tempfile.mkdtemp(prefix="torch-own-")),
                  DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=os.environ.get("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60"),
                  OMP_NUM_THREADS="1")

import torch.distributed.distributed_c10d as c10d  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

# Events of the profiler are looked for by gloo's names ("gloo:all_reduce"); torch_tests.cases.profiler looks for ours.
for name in ("PROFILING", "CUDA_PROFILING", "SEND_RECV_PROFILING"):
    setattr(distributed_test, f"{name}_SUPPORTED_BACKENDS", [])

BACKEND = "shunt"


def replace_gloo() -> None:
    """Groups that are asked for by gloo's name are Shunt's. In the rank only: libshunt must not be live before a
    fork."""
    import torch.distributed as dist

    import shunt.torch  # noqa: F401 (registers the backend)

    def replaced(f):
        def call(*args, **kwargs):
            named = ["shunt" if isinstance(a, str) and a == "gloo" else a for a in args]
            if kwargs.get("backend") == "gloo":
                kwargs["backend"] = "shunt"
            return f(*named, **kwargs)
        return call

    def get_backend(group=None):
        name = asked(group)
        return "gloo" if name == "shunt" else name

    asked = c10d.get_backend
    for module in (c10d, dist):
        for name in ("init_process_group", "new_group"):
            setattr(module, name, replaced(getattr(module, name)))
        module.get_backend = get_backend


class Own(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **kwargs):
        if BACKEND == "shunt":
            replace_gloo()
        super()._run(rank, test_name, file_name, pipe, **kwargs)


def outcome(name: str) -> tuple[str, str, str]:
    """passes, skips or fails; why; and all that was written."""
    said, result = tempfile.TemporaryFile("w+"), unittest.TestResult()
    with _output_to(said):
        unittest.TestSuite([Own(name)]).run(result)
    said.seek(0)
    text = said.read()
    if result.skipped:
        return "skips", result.skipped[0][1], text
    bad = result.failures + result.errors
    if not bad:
        return "passes", "", text
    return "fails", _cause(bad[0][1] + "\n" + text), bad[0][1] + text


@contextlib.contextmanager
def _output_to(file):
    """stdout and stderr of this process and of the ranks."""
    kept = os.dup(1), os.dup(2)
    sys.stdout.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    out, err = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(os.dup(file.fileno()), "wb"), write_through=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        os.close(kept[0])
        os.close(kept[1])


def _cause(text: str) -> str:
    """The last line that names an error, without addresses and paths."""
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)]
    own = [line for line in lines if "Process" not in line and "exited with error code" not in line]
    return re.sub(r"0x[0-9a-f]+|/\S+/", "", (own or lines or ["no reply in time"])[-1])[:160]


def names(part: str) -> list[str]:
    return [n for n in sorted(dir(Own)) if n.startswith("test_") and part in n]


def main() -> int:
    global BACKEND
    parser = argparse.ArgumentParser(prog="torch_tests.own")
    parser.add_argument("--backend", default="shunt", choices=["shunt", "gloo"])
    parser.add_argument("-k", default="", metavar="PART")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("-v", action="store_true", help="print what failing tests wrote")
    options = parser.parse_args()
    BACKEND = options.backend
    warnings.simplefilter("ignore")
    wanted = dict(_read(options.check)) if options.check else {}
    Own.setUpClass()
    rows, lost = [], []
    for name in names(options.k):
        began = time.monotonic()
        kind, why, text = outcome(name)
        if kind == "fails" and wanted.get(name) == "passes":
            kind, why, text = outcome(name)  # by load: once more before it counts
        rows.append((name, kind, why))
        if wanted.get(name) == "passes" != kind:
            lost.append(name)
        print(f"{kind:7} {time.monotonic() - began:5.1f} s  {name}  {why}", flush=True)
        if kind == "fails" and options.v:
            print(text, flush=True)
    Own.tearDownClass()
    shutil.rmtree(FOLDER, ignore_errors=True)  # torch puts another name into TEMP_DIR
    print(dict(collections.Counter(kind for _, kind, _ in rows)))
    if options.write:
        with open(options.write, "w") as f:
            f.writelines("\t".join(row) + "\n" for row in rows)
    if lost:
        print("passed before and does not any more:", *lost, sep="\n  ")
    return 1 if lost else 0


def _read(path: str):
    with open(path) as f:
        for line in f:
            name, kind, *_ = line.rstrip("\n").split("\t")
            yield name, kind


if __name__ == "__main__":
    sys.exit(main())
