"""Groups, and what is closed or aborted in the midst of something: real ranks as processes."""

import pytest


@pytest.mark.parametrize("name", [
    "entered_again", "of_two_threads", "inner_fails", "closed_within", "left_by_another_thread", "another_threads",
    "closed_by_several_threads", "long_reason", "miscounted"])
def test_two_ranks(world, name):
    world.program = "group_programs.py"
    world.run(2, name)
