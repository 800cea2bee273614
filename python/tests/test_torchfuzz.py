"""The fuzzer of tests/internal/torchfuzz: a short run on host memory, and that it finds what is wrong."""

import os
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
FUZZER = HERE.parent.parent / "tests" / "internal" / "torchfuzz"
if not FUZZER.exists():
    pytest.skip("the fuzzer is not beside these tests", allow_module_level=True)
sys.path.insert(0, str(FUZZER))

import arrays  # noqa: E402
import plan  # noqa: E402
import truth  # noqa: E402


def fuzz(*arguments, **env):
    return subprocess.run(
        [sys.executable, str(FUZZER / "fuzz.py"), "--limit", "15", "--timeout", "5", *arguments],
        env={**os.environ, "PYTHONPATH": f"{HERE.parent}:{HERE}", **env}, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("size, ranks, steps", [(3, "processes", 250), (2, "threads", 250), (1, "processes", 60)])
def test_short_run(size, ranks, steps):
    run = fuzz("-n", str(size), "--ranks", ranks, "--epochs", "2", "--steps", str(steps))
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"2 epochs, [1-9]\d+ calls, \d+ graphs, \d+ replays, \d+ splits, \d{3,} buffers checked.*: ok$",
                     run.stdout.strip()), run.stdout


@pytest.mark.parametrize("mutant, told", [
    ("a_result_has_a_wrong_bit", r"recv *memory of \d+ bytes: 1 words of 8 bytes are wrong"),
    ("a_byte_behind_is_written", r"memory of \d+ bytes: 1 words of 8 bytes are wrong"),
    ("a_byte_before_is_written", r"memory of \d+ bytes: 1 words of 8 bytes are wrong"),
    # What is wrong is the send buffer, or what a replay made of it.
    ("the_send_buffer_is_changed", r"memory of \d+ bytes: \d+ words of 8 bytes are wrong"),
    ("an_old_result_stays", r"recv *memory of \d+ bytes: \d+ words of 8 bytes are wrong"),
    ("it_raises", r"ZeroDivisionError: of the mutant"),
    ("it_crashes", r"rank 1: the process has ended with status -11 \(SIGSEGV\)"),
    ("it_exits", r"rank 1: the process has ended with status 3"),
    ("it_hangs", r"rank 0: Traceback[\s\S]*TimeoutError: .*rank 1"),
    ("everybody_hangs", r"nothing has happened for too long: rank 0 after '\w+', rank 1 after '\w+'"),
    ("it_leaks_memory", r"not released within 5.0 s: .*device memory"),
    ("it_leaks_files", r"not released within 5.0 s: \d+ open files more than after an earlier epoch"),
])
def test_a_mutant_is_found(mutant, told):
    arguments = ["--ranks", "processes", "--epochs", "4", "--steps", "150", "--bytes", "4096", "--wrapper",
                 "fuzz_mutants"]
    if mutant == "everybody_hangs":
        arguments += ["--limit", "4", "--timeout", "60"]
    run = fuzz(*arguments, MUTANT=mutant)
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(told, run.stdout), run.stdout
    assert re.search(r"FAILED\nseed \d+, epoch \d+; again: fuzz.py .*--seed \d+ --epoch \d+", run.stdout), run.stdout
    for rank in range(2):
        assert f"-- last operations of rank {rank}:" in run.stdout
    assert re.search(r"^   [\d.]+ \d+ on stream 0: .*#\d+ \w+ ", run.stdout, re.MULTILINE), run.stdout


def test_ranks_draw_the_same_steps():
    for seed, number in ((1, 0), (1, 1), (2, 0)):
        first, again = ([*plan.Epoch(seed, number, 4, plan.Limits(), True).steps()] for _ in range(2))
        assert first == again and len(first) > 200
    assert [*plan.Epoch(1, 0, 4, plan.Limits(), True).steps()] != [*plan.Epoch(1, 1, 4, plan.Limits(), True).steps()]


def test_every_step_and_collective_is_drawn():
    steps = [step for number in range(10) for step in plan.Epoch(5, number, 3, plan.Limits(), True).steps()]
    assert {type(step) for step in steps} == {plan.Run, plan.Registered, plan.Windowed, plan.Split, plan.Close,
                                              plan.Capture, plan.Replay, plan.Forget}
    calls = [call for step in steps if isinstance(step, plan.Run) for call in step.calls]
    assert {call.collective for call in calls} == set(plan.WEIGHTS)
    assert {call.dtype for call in calls} == set(plan.DTYPES) and {call.op for call in calls} == set(plan.OPS)
    assert {len(call.members) for call in calls} == {1, 2, 3} and any(call.counts_on_device for call in calls)
    assert max(call.count * call.size for call in calls) > 32 << 20


@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
def test_reductions_are_exact(world):
    """Whatever the order and the precision of partial results, down to the dtype's own: the numbers are chosen so."""
    right = truth.Truth(arrays.Numpy(7, truth.table_bytes(1 << 16)), 7)
    n = 4099
    for dtype in plan.DTYPES:
        kind = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3fn,
                "float8_e5m2": ml_dtypes.float8_e5m2}.get(dtype, dtype)
        for op in plan.OPS:
            scalars = (2,) * world
            if op == "premul_sum" and not dtype.startswith("float8"):
                scalars = tuple(1 + r % 2 for r in range(world))
            call = plan.Call(3, "all_reduce", tuple(range(world)), dtype, op, scalars if op == "premul_sum" else (),
                             count=n)
            parts = [right.sent(call, r, 5, n).view(kind) for r in range(world)]
            have = right.reduced(call, 5, n).view(kind)
            if op == "premul_sum":
                parts = [part * np.dtype(kind).type(scalar) for part, scalar in zip(parts, scalars)]
            function = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}.get(op, np.add)
            for order in (parts, parts[::-1]):
                total = order[0]
                for part in order[1:]:
                    total = function(total, part)
                if op == "avg":
                    if np.dtype(kind).kind in "iu":
                        total = np.trunc(total.astype("float64") / world).astype(kind)
                    else:
                        total = (total.astype("float32") / np.float32(world)).astype(kind)
                if op != "avg" or np.dtype(kind).itemsize > 2:  # of avg the sum alone may need more digits
                    np.testing.assert_array_equal(total.view("uint8"), have.view("uint8"), f"{dtype} {op}")
            assert len(set(have.tolist())) > 1, f"{dtype} {op}: all results are equal"
