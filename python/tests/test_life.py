"""What objects, threads and interpreters leave behind when they end while the library
is at work: life_programs.py, with arrays that tell of who touches them too late, under
the Pythons that this machine has: each case under half of them, and under all of them with
--every-python."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import life_programs

# What a program that has gone wrong leaves on its standard error.
CRASHES = ("Fatal Python error", "SIGSEGV", "SIGABRT", "fatal error:", "unexpected fault address", "panic:",
           "Segmentation fault",
           "Exception ignored", "Traceback")


def _identity(python):
    """(3, 12, "") of an interpreter that can load the package; None of others."""
    code = ("import sys, sysconfig, ctypes; "
            "print(*sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)")
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    major, minor, free = map(int, done.stdout.split())
    return (major, minor, "t" if free else "") if (major, minor) >= (3, 10) else None


def interpreters():
    """One interpreter of each version, by name: this one, those of SHUNT_PYTHONS (paths,
    with colons), of PATH and of pyenv."""
    found = [sys.executable, *filter(None, os.environ.get("SHUNT_PYTHONS", "").split(":"))]
    for directory in os.environ.get("PATH", "").split(":"):
        if "shims" not in directory:  # of pyenv: they start whichever was chosen
            found += sorted(map(str, pathlib.Path(directory or ".").glob("python3.[0-9]*[0-9t]")))
    found += sorted(map(str, pathlib.Path.home().glob(".pyenv/versions/*/bin/python3")))
    by_version = {}
    for python in found:
        identity = _identity(python)
        if identity is not None:
            by_version.setdefault(identity, python)
    return {"{}.{}{}".format(*identity): python for identity, python in sorted(by_version.items())}


PYTHONS = interpreters()


@pytest.fixture(params=PYTHONS)
def life(request, world):
    """Runs a program on two ranks, which must end by themselves; returns (status, output, errors) of each."""
    world.program = "life_programs.py"
    world.interpreter = [PYTHONS[request.param], "-X", "faulthandler"]

    def run(program, *arguments, expected=(0,), errors=(), **env):
        results = world.finish(world.start(2, program, *arguments, PYTHONMALLOC="debug", **env))
        for rank, (status, _, err) in enumerate(results):
            told = f"rank {rank} ended with {status}:\n{err}"
            assert status in expected if rank == 0 else status == 0, told
            if rank == 0 and errors:
                assert any(error in err for error in errors), told
            else:
                assert not any(crash in err for crash in CRASHES), told
        return results

    return run


@pytest.mark.parametrize("what", life_programs.STARTED)
def test_what_is_in_flight_stays_until_it_has_ended(life, what):
    life("dropped", what)


@pytest.mark.parametrize("until", ["closed", "communicator closed", "dropped", "the end"])
def test_registered_memory_stays(life, until):
    life("registered", until)


STATUS = {"exception": ((1,), ["ZeroDivisionError"]), "interrupt": ((-signal.SIGINT,), ["KeyboardInterrupt"]),
          "sigterm": ((-signal.SIGTERM,), [])}


@pytest.mark.parametrize("how", life_programs.ENDS)
def test_a_program_ends_with_an_operation_in_flight(life, how):
    expected, errors = STATUS.get(how, ((0,), []))
    life("left", "recv", how, expected=expected, errors=errors)


@pytest.mark.parametrize("what", life_programs.STARTED)
def test_what_is_in_flight_outlives_the_modules(life, what):
    life("left", what, "return")


def test_what_is_in_flight_outlives_the_last_collection(life):
    life("left_for_good")  # the collection after the modules are unloaded


MOMENTS = [(call, moment) for moment in ("del", "collected", "atexit", "thread", "thread-local", "generator",
                                               "exit")
           for call in life_programs.CALLS
           if moment in ("atexit", "exit") or call in ("closed", "start")]


@pytest.mark.parametrize("call,moment", MOMENTS)
def test_calls_of_an_object_that_goes(life, call, moment):
    for _, out, _ in life("when", call, moment):
        assert out == "called\n"


def test_a_suspended_with_block_ends_with_the_program(life):
    life("with_block_of_generator")


@pytest.mark.parametrize("drop", ["dropped", "kept"])
def test_a_communicator_that_is_not_closed(life, drop):
    life("not_closed", drop)


@pytest.mark.parametrize("how", ["return", "exit", "exception", "atexit"])
def test_a_daemon_thread_is_inside_a_call(life, how):
    expected, errors = STATUS.get(how, ((0,), []))
    life("daemon", how, expected=expected, errors=errors)


@pytest.mark.parametrize("program", ["threads", "collected_meanwhile", "interrupted_start", "interrupted_call",
                                     "raised_with_work"])
def test_program(life, program):
    life(program)


@pytest.mark.parametrize("what", ["module", "view"])
def test_memory_of_a_window_outlives_it(life, what):
    life("window_alive", what)


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_another_interpreter_of_the_process(life, kind):
    life("subinterpreter", kind)
