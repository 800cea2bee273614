"""The examples run and check themselves, and notice when something is wrong."""

import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


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
