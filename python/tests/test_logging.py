"""The library's log lines in Python's logging."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import shunt

PACKAGE = pathlib.Path(__file__).resolve().parent.parent

BEGIN = """
import logging, os, sys, threading
import shunt

class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []
    def emit(self, record):
        self.records.append(record)
    def made(self):
        start = "communicator made communicator=world rank=0 world=1"
        return [r for r in self.records if r.getMessage().startswith(start)]

def make():
    shunt.init(0, 1, shunt.unique_id()).close()
"""


def run(program: str, **env: str) -> subprocess.CompletedProcess:
    """Runs a program of one rank, which must succeed."""
    done = subprocess.run([sys.executable, "-c", BEGIN + textwrap.dedent(program)], capture_output=True, text=True,
                          timeout=60,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE), **env})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_lines_are_records():
    done = run("""
        kept = Kept()
        logging.getLogger("shunt").addHandler(kept)
        logging.getLogger("shunt").setLevel(logging.INFO)
        shunt.log_to()                      # before the library is loaded
        make()
        shunt.log_to(None)                  # everything has come
        (record,) = kept.made()
        assert record.levelno == logging.INFO and record.name == "shunt", record
        assert {r.levelno for r in kept.records} == {logging.INFO}
        make()
        assert len(kept.made()) == 1
    """, SHUNT_LOG="info")  # fmt: skip
    assert done.stderr.count("communicator made") == 1, done.stderr  # the second


def test_the_logger_decides():
    done = run("""
        kept, mine = Kept(), logging.getLogger("mine.shunt")
        logging.getLogger("mine").addHandler(kept)
        make()
        for given in (mine, "mine.shunt"):
            shunt.log_to(given)
            mine.setLevel(logging.WARNING)
            make()
            shunt.log_to(given)             # everything has come
            mine.setLevel(logging.DEBUG)    # looked at for each line
            make()
            shunt.log_to(None)
            assert len(kept.made()) == 1 and kept.records[0].name == "mine.shunt"
            kept.records.clear()
    """)
    assert done.stderr == ""


def test_a_handler_may_fail_and_wait():
    """While a line waits for the handler calls still run, and what the handler raises ends nothing."""
    done = run("""
        go_on = threading.Event()
        class Slow(Kept):
            def emit(self, record):
                assert go_on.wait(30)
                super().emit(record)
                make_inside.append(shunt.version())
                try:
                    shunt.log_to(None)
                except shunt.InvalidArgumentError as err:
                    refused.append(str(err))
                raise RuntimeError("of the handler")
        make_inside, refused, slow = [], [], Slow()
        logger = logging.getLogger("shunt")
        logger.addHandler(slow)
        logger.setLevel(logging.INFO)
        shunt.log_to(logger)
        make()
        make()
        assert slow.records == []
        go_on.set()
        shunt.log_to(None)
        assert len(slow.made()) == 2 and len(make_inside) == len(refused) == len(slow.records), slow.records
        assert refused[0].startswith("log_to: it was called by a handler")
    """)
    assert "RuntimeError: of the handler" in done.stderr


def test_the_interpreter_ends_in_the_middle():
    """No line comes into an interpreter that is gone: the last ones are delivered before, or go to standard error."""
    for end in ("", "os._exit(0)", "sys.exit(0)"):
        done = run(f"""
            logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
            shunt.log_to()
            def forever():
                while True:
                    make()
            for _ in range(3):
                threading.Thread(target=forever, daemon=True).start()
            kept = Kept()
            logging.getLogger("shunt").addHandler(kept)
            while not kept.made():
                make()
            {end}
        """)
        assert "INFO:shunt:communicator made" in done.stdout


def test_fork():
    run("""
        logging.basicConfig(level=logging.INFO, stream=sys.stdout)
        shunt.log_to()                      # loads nothing, so that children may use Shunt
        def child(of):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    of()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        child(make)
        make()
        def refused():
            try:
                shunt.log_to(None)
            except shunt.ForkedError:
                return
            raise AssertionError("want ForkedError")
        child(refused)
        make()
    """)


@pytest.mark.parametrize("given", [3, b"shunt", object()])
def test_bad_input(given):
    with pytest.raises(shunt.InvalidArgumentError, match="want a logging.Logger, its name, or None"):
        shunt.log_to(given)
