"""Ranks of test_worlds.py that exit: exit_programs.py NAME [arguments]."""

import sys
import time

import numpy as np

import shunt


def exits(*code):
    """Rank 0 exits inside the with block, and rank 1 makes its calls afterwards. It prints how they ended."""
    with shunt.init() as comm:
        if comm.rank == 0:
            comm.send(np.full(4, 7.0), 1)
            sys.exit(*(int(text) if text.isdigit() else text for text in code))
        sys.stdin.read()  # ends when rank 0 has ended
        try:
            print(comm.recv(np.zeros(4), 0).tolist())
            comm.barrier()
        except shunt.ShuntError as error:
            print(type(error).__name__, error)


def ends_without_close():
    """Each rank ends when it knows that those before it have."""
    comm = shunt.init()
    comm.all_reduce(np.ones(2))
    sys.stdin.read()
    while comm.rank > 0 and comm.error is None:
        time.sleep(0.001)
    assert comm.rank == 0 or isinstance(comm.error, shunt.PeerDiedError)


def ends_before_the_store():
    """Rank 1 ends when rank 0, whose process runs the job's store, has all it needs; rank 0 ends when it knows that."""
    comm = shunt.init()
    if comm.rank == 1:
        comm.recv(np.zeros(1), 0)
        return
    try:
        comm.send(np.ones(1), 1)
    except shunt.PeerDiedError:
        pass  # it was quick
    while comm.error is None:
        time.sleep(0.001)
    assert isinstance(comm.error, shunt.PeerDiedError)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
