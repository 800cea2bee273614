"""The package itself: loading, forking, tables."""

import ctypes
import os
import pickle
import re
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest

import shunt
from shunt import _library, _operations


def test_import_loads_neither_library_nor_numpy_nor_torch(python):
    done = python("""
        import sys, shunt
        from shunt import _library
        assert _library._loaded is None
        assert not {"numpy", "torch"} & set(sys.modules)
        with open("/proc/self/maps") as maps:
            assert "libshunt" not in maps.read()
    """)
    assert done.returncode == 0, done.stderr


def test_works_without_numpy(python):
    done = python("""
        import sys
        sys.modules["numpy"] = None
        import array, shunt
        with shunt.init(0, 1) as comm:
            a = array.array("i", [1, 2, 3])
            comm.all_reduce(a)
            assert list(a) == [1, 2, 3]
    """)
    assert done.returncode == 0, done.stderr


def test_missing_library_says_where_it_looked(python):
    done = python("import shunt; shunt.version()", SHUNT_LIBRARY="/nowhere/libshunt.so")
    assert done.returncode != 0
    assert "PluginRejectedError" in done.stderr and "/nowhere/libshunt.so" in done.stderr


def test_another_library_is_refused(python):
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line)
    done = python("import shunt; shunt.version()", SHUNT_LIBRARY=libc)
    assert done.returncode != 0
    assert "PluginRejectedError" in done.stderr and "shunt_version" in done.stderr


FORK = """
    import os, sys, shunt, array
    comm = shunt.init(0, 1)
    a = array.array("d", [1.0])
    comm.all_reduce(a)
    work = comm.start("all_reduce", a)
    work.wait()
    child = os.fork()
    if child == 0:
        failed = 1
        calls = [lambda: comm.all_reduce(a), lambda: comm.all_reduce(a, op="max"), comm.barrier,
                 lambda: shunt.init(0, 1), shunt.unique_id, lambda: comm.split(0), lambda: comm.start("barrier"),
                 lambda: comm.abort("x"), lambda: comm.group().__enter__(), lambda: comm.window(8),
                 lambda: comm.explain("barrier", 0), comm.shrink, lambda: comm.register(a),
                 lambda: comm.error, comm.records,
                 lambda: comm.write_records(sys.stderr)]
        try:
            for call in calls:
                try:
                    call()
                except shunt.ForkedError as err:
                    assert "spawn" in str(err), err
                else:
                    raise AssertionError("a call in a forked child succeeded")
            comm.close()
            failed = 0
        finally:
            sys.stderr.flush()
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0
    comm.all_reduce(a)
    comm.close()
"""


def test_forked_child_gets_a_clear_error_and_the_parent_goes_on(python):
    done = python(FORK)
    assert done.returncode == 0, done.stderr


def test_fork_before_first_use_is_fine(python):
    done = python("""
        import os, shunt, array
        child = os.fork()
        a = array.array("d", [2.0])
        with shunt.init(0, 1) as comm:
            comm.all_reduce(a)
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """)
    assert done.returncode == 0, done.stderr


def test_multiprocessing_fork_and_spawn(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent("""
        import multiprocessing, shunt, array, sys

        def use():
            with shunt.init(0, 1) as comm:
                comm.barrier()

        if __name__ == "__main__":
            use()
            for method, want in (("spawn", 0), ("forkserver", 0), ("fork", 1)):
                p = multiprocessing.get_context(method).Process(target=use)
                p.start()
                p.join(30)
                assert p.exitcode == want, (method, p.exitcode)
    """))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(shunt.__file__))})
    assert done.returncode == 0, done.stderr
    assert "ForkedError" in done.stderr


def test_unclosed_communicator_warns(python):
    done = python("""
        import shunt
        comm = shunt.init(0, 1)
        del comm
    """, PYTHONWARNINGS="error::ResourceWarning")
    assert "ResourceWarning" in done.stderr and "not closed" in done.stderr


def header():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    with open(os.path.join(root, "capi", "include", "shunt.h")) as f:
        return re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)


CTYPES = {
    "size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double, "shunt_collective": ctypes.c_uint32, "shunt_dtype": ctypes.c_uint32,
    "shunt_op": ctypes.c_uint32, "shunt_memory_kind": ctypes.c_uint32, "shunt_log_level": ctypes.c_uint32,
}


@pytest.mark.parametrize("name, mirror", [("shunt_options", _library.Options), ("shunt_operation", _library.Operation)])
def test_structs_mirror_the_header(name, mirror):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header(), re.S).group(1)
    fields = [re.match(r"\s*(const\s+)?(\w+)\s*(\*?)\s*(\w+)$", line) for line in body.split(";") if line.strip()]
    assert [f.group(4) for f in fields] == [n for n, _ in mirror._fields_]
    for field, (_, kind) in zip(fields, mirror._fields_):
        if field.group(3) or field.group(2) == "shunt_window":
            assert ctypes.sizeof(kind) == 8 and kind in (ctypes.c_char_p, ctypes.c_void_p,
                                                         ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int32))
        else:
            assert kind is CTYPES[field.group(2)], field.group(0)


def test_prototypes_mirror_the_header():
    text = header()
    for name, argtypes in _library._PROTOTYPES.items():
        arguments = re.search(r"shunt_status %s\((.*?)\);" % name, text, re.S).group(1).split(",")
        assert len(arguments) == len(argtypes), name
        for argument, kind in zip(arguments, argtypes):
            plain = CTYPES.get(argument.split()[0])
            if plain is not None and "*" not in argument:
                assert kind is plain, f"{name}: {argument}"
            else:
                assert ctypes.sizeof(kind) == 8, f"{name}: {argument}"


def test_constants_mirror_the_header():
    text = header()
    number = lambda name: int(re.search(r"#define %s \(?(-?\d+)" % name, text).group(1))
    assert number("SHUNT_UNIQUE_ID_BYTES") == _library.UNIQUE_ID_BYTES
    assert number("SHUNT_NO_COLOR") == _library.NO_COLOR
    version = tuple(number(f"SHUNT_API_{part}") for part in ("MAJOR", "MINOR", "PATCH"))
    assert shunt.version() == version
    assert shunt.__version__ == ".".join(map(str, version))


def test_every_status_has_its_exception_and_name():
    lib = _library.library()
    for code in shunt.Code:
        assert lib.shunt_status_string(code).decode() == code.name.lower()
        if code:
            kind = _library._tables.ERRORS[code]
            assert issubclass(kind, shunt.ShuntError) and kind.code is code


def test_every_collective_can_be_started():
    blocking = {c.name.lower() for c in shunt.Collective} - {"put", "get", "signal", "wait"}
    assert set(_operations.STARTABLE) == blocking
    assert all(hasattr(shunt.Communicator, name) for name in blocking)


def test_many_communicators_windows_and_works_leave_nothing(comm):
    def once():
        part = comm.split(0)
        part.window(4096).close()
        part.start("all_reduce", np.zeros(10))
        part.close()

    def files():
        return len(os.listdir("/proc/self/fd"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            once()
        before = files()
        for _ in range(50):
            once()
        assert files() <= before


def test_windows_are_arrays(comm):
    with comm.window(64) as window:
        assert window.__dlpack_device__() == (1, 0)
        for array in (np.asarray(window), np.from_dlpack(window), np.array(window, copy=False)):
            x = array.view("float32")
            x[:] = 3
            assert comm.all_reduce(x) is x
            assert bytes(window.memory[:4]) == np.float32(3).tobytes()
            x[:] = 0
            assert bytes(window.memory) == bytes(64)
        copied = np.array(window)
        copied[:] = 1
        assert bytes(window.memory) == bytes(64)
        assert np.asarray(window, "int32").dtype == "int32"
        with pytest.raises(ValueError, match="view it as"):
            window.__array__(np.dtype("int32"), copy=False)
    with pytest.raises(shunt.ClosedError):
        np.asarray(window)
    assert copied.sum() == 64


def test_names_are_those_that_programs_use():
    hidden = [name for name, value in vars(shunt).items()
              if isinstance(value, (type, types.FunctionType)) and value.__module__.startswith("shunt._")]
    assert not hidden
    error = pickle.loads(pickle.dumps(shunt.PeerDiedError("rank 1 died")))
    assert type(error) is shunt.PeerDiedError and repr(type(error)) == "<class 'shunt.PeerDiedError'>"


def test_errors_are_pythons_own_too():
    for kind, own in ((shunt.InvalidArgumentError, ValueError), (shunt.TimeoutError, TimeoutError),
                      (shunt.OutOfMemoryError, MemoryError)):
        error = kind("all_reduce on rank 3: no")
        assert isinstance(error, own) and isinstance(error, shunt.ShuntError) and isinstance(error, RuntimeError)
        assert str(error) == "all_reduce on rank 3: no"
    assert not issubclass(shunt.PeerDiedError, (ValueError, OSError))


def test_an_error_of_closing_does_not_cover_the_one_that_ended_the_block(monkeypatch):
    real = shunt.Communicator.close

    def close(self):
        real(self)
        raise shunt.PluginDiedError("the plugin died")

    monkeypatch.setattr(shunt.Communicator, "close", close)
    with pytest.raises(KeyError) as raised, shunt.init(0, 1):
        raise KeyError("mine")
    assert raised.value.__context__ is None
    with pytest.raises(shunt.PluginDiedError), shunt.init(0, 1):
        pass
