"""Real signals while ranks wait in calls."""

import pytest

import interrupt_programs


@pytest.fixture
def run(world):
    def run(size, program, *arguments):
        world.program = "interrupt_programs.py"
        world.run(size, program, *arguments)

    return run


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
@pytest.mark.parametrize("where", interrupt_programs.CALLS)
def test_a_call_is_interrupted(run, where, error):
    run(3, "blocked", where, error)


@pytest.mark.parametrize("where", ["later call", "quickest call", "recv"])
def test_a_call_by_the_full_path_is_interrupted(run, where, monkeypatch):
    monkeypatch.setenv("WAY", "full")
    run(3, "blocked", where)


def test_waiting_at_a_window_is_interrupted(run):
    run(2, "window_wait")


def test_joining_is_interrupted(run):
    run(3, "joining")


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_closing_is_interrupted(run, error):
    run(2, "closing", error)


def test_handlers_that_return_do_no_harm(run):
    run(2, "handled")


def test_interrupted_work_goes_on(run):
    run(2, "work_goes_on")


def test_interrupts_at_any_moment(run, way):
    run(2, "storm")
