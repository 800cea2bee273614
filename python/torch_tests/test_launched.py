"""Programs under torchrun: restarts, exceptions, Ctrl-C. Nothing is left of them."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 300  # seconds; other tests that go first may run beside these


def processes_of(session: int) -> list[str]:
    """The command lines of a session's processes."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # it has ended
    return found


def children_of(parent: int) -> list[int]:
    """The processes that a process has started, which may have sessions of their own."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(process.name))
        except OSError:
            pass  # it has ended
    return found


def shared_memory_of_the_dead() -> list[str]:
    """Files in /dev/shm that nothing will remove: torch names its files by the process that made
    them (torch_PID_...), and other tests run meanwhile. Shunt has none there."""
    made_by = {name: name.split("_")[1] for name in os.listdir("/dev/shm") if name.startswith("torch_")}
    orphans = {name for name, pid in made_by.items() if not os.path.exists(f"/proc/{pid}")}
    # Again, as a process may have removed its file and ended meanwhile.
    return [name for name in os.listdir("/dev/shm") if "shunt" in name or name in orphans]


class Launched:
    def __init__(self, backend: str, log: pathlib.Path, *arguments: str, restarts: int = 0,
                 program: str = "train.py") -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                 "--max-restarts", str(restarts),
                 str(HERE / "launched" / program), backend, *arguments],
                stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    def wait(self, seconds: float = LIMIT) -> str:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.text()}")
        return self.text()

    def until(self, words: str, seconds: float = LIMIT) -> None:
        end = time.monotonic() + seconds
        while words not in self.text():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.text()}"
            assert time.monotonic() < end, f"no {words!r} after {seconds} s:\n{self.text()}"
            time.sleep(0.05)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def nothing_left(self) -> None:
        """Neither processes nor files in /dev/shm."""
        end = time.monotonic() + 10
        while left := processes_of(self.process.pid):
            assert time.monotonic() < end, f"still there: {left}\n{self.text()}"
            time.sleep(0.1)
        assert not (left := shared_memory_of_the_dead()), f"left in /dev/shm: {left}"

    def kill(self) -> None:
        if self.process.poll() is None or processes_of(self.process.pid):
            ranks = children_of(self.process.pid)  # torchrun gives them sessions of their own
            for end, target in [(os.killpg, self.process.pid), *((os.kill, rank) for rank in ranks)]:
                try:
                    end(target, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()


@pytest.fixture
def slow(request):
    if not request.config.getoption("--slow"):
        pytest.skip("takes three imports of torch: --slow")


@pytest.fixture
def launch(request, tmp_path):
    device, started = request.config.getoption("--device"), []

    def launch(*arguments, **options):
        started.append(Launched(f"{device}:{request.config.getoption('--backend')}", tmp_path / "log", *arguments,
                                **options))
        return started[-1]
    yield launch
    for program in started:
        program.kill()


def test_the_program_of_the_docs(launch, tmp_path):
    """docs/torch.md: after ten steps every rank has the same weights, though its data differ."""
    page = (HERE.parents[1] / "docs" / "torch.md").read_text()
    path = tmp_path / "ddp.py"
    path.write_text(page.partition("<!-- snippet: torch-ddp -->\n```python\n")[2].partition("```")[0])
    program = launch(program=str(path))
    text = program.wait()
    found = re.findall(r"rank ([01]): loss (\d+\.\d+), weights (-?\d+\.\d+)", text)
    assert program.process.returncode == 0 and {rank for rank, *_ in found} == {"0", "1"}, text
    assert len({loss for _, loss, _ in found}) == 2 and len({weights for *_, weights in found}) == 1, text


def test_a_killed_rank_is_restarted(launch, request):
    """--max-restarts 1: the first attempt fails, the second trains to the end in new groups over the same machine."""
    if request.config.getoption("--backend") == "gloo":
        pytest.skip("gloo: connects to the addresses of the attempt before")
    program = launch("8", "killed", restarts=1)
    text = program.wait()
    assert program.process.returncode == 0, text
    for rank in range(2):
        assert f"rank {rank} of attempt 1 has loss" in text, text
    program.nothing_left()


def test_an_exception_ends_the_job(launch, slow):
    """One rank raises: torchrun ends the job, and the exception is what one reads."""
    program = launch("8", "raises")
    text = program.wait()
    assert program.process.returncode != 0 and "ValueError: rank 1 has had enough" in text, text
    program.nothing_left()


def test_daemon_threads_are_in_calls_at_the_end(launch, request, tmp_path):
    """The interpreter ends, and then the calls of other threads fail: the program ends as if they had not."""
    if request.config.getoption("--device") != "cpu":
        pytest.skip("on GPUs: calls return at once, so no thread is inside one")
    if request.config.getoption("--backend") == "gloo":
        pytest.skip("gloo: the threads return to Python, which ends them through C++: std::terminate")
    program = launch(str(tmp_path / "mark"), program="leave.py")
    text = program.wait()
    assert program.process.returncode == 0 and "rank 0 leaves" in text, text
    program.nothing_left()


def test_callbacks_run_before_the_end(launch, request, tmp_path):
    """A program may leave without waiting for a call whose future has a callback."""
    if request.config.getoption("--device") != "cpu":
        pytest.skip("on GPUs: a callback runs at once, in a stream, and not in another thread")
    if request.config.getoption("--backend") == "gloo":
        pytest.skip("gloo: the thread that runs the callback is ended through C++: std::terminate")
    program = launch(str(tmp_path / "mark"), program="callback.py")
    text = program.wait()
    assert program.process.returncode == 0 and "called with [2.0, 2.0, 2.0]" in text, text
    program.nothing_left()


def test_threads_free_tensors_at_the_end(request, tmp_path):
    """A program may leave without destroy_process_group, with calls that it has waited for or not."""
    if request.config.getoption("--device") != "cpu" or request.config.getoption("--backend") == "gloo":
        pytest.skip("on GPUs no thread frees tensors; gloo: Python ends its threads through C++: std::terminate")
    program = subprocess.run([sys.executable, HERE / "launched" / "ends.py", "cpu:shunt", tmp_path, "2"],
                             env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
                             capture_output=True, text=True, timeout=LIMIT)
    assert program.returncode == 0 and program.stdout == "all have left\n", program.stdout + program.stderr


def test_a_first_call_without_the_store(request):
    """A group's ranks meet through torch's store: that it has gone is an error at once, on every rank."""
    if request.config.getoption("--backend") == "gloo":
        pytest.skip("gloo: ranks meet when the group is made")
    program = subprocess.run([sys.executable, HERE / "launched" / "storeless.py", "cpu:shunt"],
                             env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
                             capture_output=True, text=True, timeout=LIMIT)
    assert program.returncode == 0, program.stdout + program.stderr
    for rank in (1, 2):
        assert re.search(rf"^rank {rank}: .*torch.distributed's store does not respond", program.stdout, re.M), (
            program.stdout + program.stderr)


def test_ctrl_c(launch, slow):
    """SIGINT, as a terminal sends it to all processes: all end soon, none by a crash."""
    program = launch("8", "endless")
    for rank in range(2):
        program.until(f"rank {rank} of attempt 0 is under way")
    began = time.monotonic()
    os.killpg(program.process.pid, signal.SIGINT)
    text = program.wait(45)
    assert time.monotonic() - began < 40
    assert program.process.returncode != 0
    assert "SIGINT" in text or "KeyboardInterrupt" in text, text
    for crash in ("Segmentation fault", "SIGSEGV", "SIGABRT", "panic:", "fatal error:", "terminate called"):
        assert crash not in text, text
    program.nothing_left()
