"""The examples run and check themselves, and notice when something is wrong."""

import json
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"


def example(world, size, name, *arguments, fault="none"):
    pytest.importorskip("sklearn" if name == "digits" else "numpy", reason=f"what the example {name} needs is absent")
    return world.finish(world.start(size, "example", str(EXAMPLES / name / f"{name}.py"), fault, *arguments))


@pytest.mark.parametrize("name, size", [("digits", 4), ("experts", 4), ("experts", 3), ("experts", 1)])
def test_example(world, name, size):
    results = example(world, size, name)
    for status, _, err in results:
        assert status == 0, err
    assert results[0][1].endswith("ok\n")


@pytest.mark.parametrize("name", ["digits", "experts"])
def test_example_notices_one_wrong_element(world, name):
    results = example(world, 2, name, fault="flip")
    assert [status for status, _, _ in results] == [1, 1]
    assert results[0][1].endswith("FAILED\n")


def test_experts_on_another_text(world, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("one word\n")
    results = example(world, 4, "experts", str(text))
    assert [status for status, _, _ in results] == [0] * 4, results


def test_readme_program_runs_as_printed(world, tmp_path):
    block = re.search(r"```python\n(.*?)```", (HERE.parent / "README.md").read_text(), re.S).group(1)
    program = tmp_path / "program.py"
    program.write_text(block)
    results = world.finish(world.start(3, "example", str(program), "none"))
    for rank, (status, out, err) in enumerate(results):
        assert status == 0, err
        assert out == f"{rank} [3. 3. 3. 3.]\n"


def test_benchmark_checks_its_result(world):
    program = HERE.parents[1] / "bench" / "python" / "bench_calls.py"
    results = world.finish(world.start(2, "example", str(program), "none", "50"))
    assert [status for status, _, _ in results] == [0, 0], results
    lines = [json.loads(line) for line in results[0][1].splitlines()]
    assert [line["op"] for line in lines] == ["all_reduce", "broadcast", "send_recv", "barrier"]
    assert all(line["world"] == 2 and 0 < line["ns_median"] <= line["ns_p99"] for line in lines)
