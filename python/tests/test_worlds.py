"""Real ranks as processes."""

import re
import signal

import pytest


@pytest.mark.parametrize("size", [1, 3, 4])
def test_every_collective(world, size):
    world.run(size, "collectives")


def test_every_collective_by_either_path(world, way):
    world.run(2, "collectives")


def test_death_of_a_rank_names_it(world):
    results = world.finish(world.start(3, "dies", "2"))
    assert [status for status, _, _ in results] == [0, 0, -signal.SIGKILL], "".join(err for _, _, err in results)


def test_timeout_names_the_rank_that_stayed_away(world):
    ranks = world.start(2, "stays_away")
    results = world.finish(ranks)
    assert results[0][0] == 0, results[0][2]


@pytest.mark.parametrize("call", ["all_reduce", "broadcast", "all_gather_v", "reduce", "send", "number", "window",
                                  "split", "register", "stream", "started"])
def test_refused_arguments_are_told_to_who_waits(world, call):
    waits, refuses = (out.strip() for out in world.run(2, "refuses", call))
    name = {"number": "all_reduce", "stream": "all_reduce", "started": "barrier"}.get(call, call)
    assert refuses.startswith(f"{name} on rank 1: "), refuses
    why = refuses.removeprefix(f"{name} on rank 1: ")
    assert why and f"rank 1 refused its {name}: {why[:200]}" in waits, (waits, refuses)


@pytest.mark.parametrize("size, program", [(3, "ends_without_close"), (2, "ends_before_the_store")])
def test_programs_that_just_end_print_nothing(world, size, program):
    """What calls would return as errors is no warning: there is no further call."""
    world.program = "exit_programs.py"
    for rank, (status, _, err) in enumerate(world.finish(world.start(size, program))):
        assert (status, err) == (0, ""), f"rank {rank}"


def test_abort_reaches_every_rank(world):
    world.run(3, "aborts")


def test_a_call_says_how_it_ended_though_closed_meanwhile(world):
    world.run(2, "closes_during_a_call")


def test_queries_return_during_a_call(world):
    world.run(3, "asks")


def test_exception_in_with_block_aborts(world):
    world.run(2, "raises")


@pytest.mark.parametrize("code", [[], ["0"]])
def test_a_rank_that_exits_well_has_only_closed(world, code):
    world.program = "exit_programs.py"
    (status, _, _), (other, told, errors) = world.finish(world.start(2, "exits", *code))
    assert (status, other) == (0, 0), errors
    assert re.fullmatch(r"\[7.0, 7.0, 7.0, 7.0\]\nClosedError .*rank 0 .*has closed.*\n", told), told


@pytest.mark.parametrize("code, reason", [("3", "SystemExit: 3"), ("no data", "SystemExit: no data")])
def test_a_rank_that_exits_with_an_error_aborts(world, code, reason):
    world.program = "exit_programs.py"
    (status, _, _), (_, told, _) = world.finish(world.start(2, "exits", code))
    assert status != 0 and told.startswith("AbortedError") and f"rank 0 aborted: {reason}" in told, told
