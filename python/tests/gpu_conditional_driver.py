"""What the driver says about bodies of conditional nodes, without Shunt: python3 gpu_conditional_driver.py [PROBE].
Each probe runs in a process of its own, and prints what it found; nothing here is a test that passes or fails."""

import ctypes
import subprocess
import sys
import traceback

from conditional import IF, WHILE, Gpu, call, driver, result_of

PDL = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry bump(.param .u64 word)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  griddepcontrol.wait;
  griddepcontrol.launch_dependents;
  ld.param.u64 %rd1, [word];
  ld.global.u32 %r1, [%rd1];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
null, zero = ctypes.c_void_p(), ctypes.c_size_t(0)


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int * 16)]


class _Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint)]


def say(*words):
    print("      driver:", *words, flush=True)


def tried(gpu, what, body, kind=IF, runs=1, after=lambda: None, check=lambda: ""):
    """How far a graph with such a body comes."""
    said = {}

    def counted(stream):
        said["capture"] = body(stream) or "ok"
        gpu.set_condition(stream, handle, 1)

    try:
        root = None

        def enqueue():
            nonlocal handle
            handle, graphs = gpu.add_conditional(kind)
            gpu.capture_body(graphs[0], counted)
            said["after"] = after() or "ok"

        handle = None
        root = gpu.capture(enqueue)
        run = ctypes.c_void_p()
        failed = result_of("cuGraphInstantiateWithFlags", ctypes.byref(run), root, ctypes.c_ulonglong(0))
        said["instantiate"] = failed or "ok"
        if not failed:
            gpu.write(gpu.limit, runs.to_bytes(4, "little"))
            said["launch"] = result_of("cuGraphLaunch", run, gpu.stream) or "ok"
            said["end"] = result_of("cuStreamSynchronize", gpu.stream) or "ok"
            said["result"] = check()
            driver.cuGraphExecDestroy(run)
        driver.cuGraphDestroy(root)
    except Exception as err:  # a probe says what happened
        said["error"] = f"{type(err).__name__}: {err}"
    say(f"{what}:", ", ".join(f"{k} {v}" for k, v in said.items() if v))


def objects(gpu):
    """User objects on the body: whether the executable holds them, and when they go."""
    gone = []
    destroyed = _CALLBACK(lambda which: gone.append(which))

    def retain(graph, which):
        made = ctypes.c_void_p()
        one = ctypes.c_uint(1)
        call("cuUserObjectCreate", ctypes.byref(made), ctypes.c_void_p(which), destroyed, one, one)
        return result_of("cuGraphRetainUserObject", graph, made, one, one) or "ok"

    said = []

    def enqueue():
        handle, graphs = gpu.add_conditional(WHILE)
        said.append("root " + retain(gpu.captured_into(gpu.stream)[0], 1))

        def body(stream):
            said.append("body under capture " + retain(gpu.captured_into(stream)[0], 2))
            gpu.set_condition(stream, handle, 1)

        gpu.capture_body(graphs[0], body)
        said.append("body after capture " + retain(graphs[0], 3))

    root, run = gpu.capture(enqueue), ctypes.c_void_p()
    say("user objects (1 root, 2 and 3 body):", ", ".join(said))
    call("cuGraphInstantiateWithFlags", ctypes.byref(run), root, ctypes.c_ulonglong(0))
    say("user objects gone after instantiate:", gone)
    call("cuGraphDestroy", root)
    say("user objects gone after cuGraphDestroy, with the executable left:", gone)
    gpu.write(gpu.limit, (3).to_bytes(4, "little"))
    call("cuGraphLaunch", run, gpu.stream)
    gpu.wait()
    call("cuGraphExecDestroy", run)
    call("cuCtxSynchronize")
    say("user objects gone after cuGraphExecDestroy:", gone)
    root = gpu.capture(enqueue)
    del gone[:]
    call("cuGraphDestroy", root)
    call("cuCtxSynchronize")
    say("user objects gone with a graph that was never instantiated:", gone)


def nodes(gpu):
    """Nodes that a body may have, and those that it may not."""
    a, b, host, event = gpu.alloc(1 << 20), gpu.alloc(1 << 20), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(1 << 20), ctypes.c_uint(3))
    call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))
    nothing = _CALLBACK(lambda _: None)
    size = ctypes.c_size_t(1 << 20)
    tried(gpu, "empty body but for the kernel", lambda s: None)
    tried(gpu, "memset", lambda s: result_of("cuMemsetD8Async", a, ctypes.c_ubyte(3), size, s))
    tried(gpu, "copy on the GPU", lambda s: result_of("cuMemcpyDtoDAsync_v2", b, a, size, s), WHILE, 3)
    tried(gpu, "copy to pinned memory", lambda s: result_of("cuMemcpyDtoHAsync_v2", host, a, size, s))
    tried(gpu, "host function", lambda s: result_of("cuLaunchHostFunc", s, nothing, null))
    tried(gpu, "external event record", lambda s: result_of("cuEventRecordWithFlags", event, s, ctypes.c_uint(1)))
    tried(gpu, "external event wait", lambda s: result_of("cuStreamWaitEvent", s, event, ctypes.c_uint(1)))
    word = ctypes.c_uint64(7)
    tried(gpu, "write value", lambda s: result_of("cuStreamWriteValue64_v2", s, a, word, ctypes.c_uint(0)))
    side = gpu.new_stream()

    def fork(stream):
        """As Shunt's tracks: events between streams of one capture, which are edges and no nodes."""
        other = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(other), ctypes.c_uint(2))
        none = ctypes.c_uint(0)
        return (result_of("cuEventRecord", event, stream) or result_of("cuStreamWaitEvent", side, event, none)
                or result_of("cuMemcpyDtoDAsync_v2", b, a, size, side) or result_of("cuEventRecord", other, side)
                or result_of("cuStreamWaitEvent", stream, other, none))

    tried(gpu, "fork and join with a copy", fork, WHILE, 3)


def peers(gpu):
    """Copies to and from memory of another GPU."""
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value < 2:
        return say("one GPU, no copies between two")
    other = Gpu(1)
    theirs = other.alloc(1 << 20)
    call("cuMemsetD8_v2", theirs, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20))
    call("cuCtxSynchronize")
    call("cuCtxSetCurrent", gpu.context)
    mine, size = gpu.alloc(1 << 20), ctypes.c_size_t(1 << 20)

    def same():
        return "right" if bytes(gpu.read(mine, 1 << 20)) == b"\7" * (1 << 20) else "WRONG"

    def get(stream):
        return result_of("cuMemcpyAsync", mine, theirs, size, stream)

    tried(gpu, "copy from a peer without access", get, check=same)
    call("cuCtxEnablePeerAccess", other.context, ctypes.c_uint(0))
    call("cuMemsetD8_v2", mine, ctypes.c_ubyte(0), size)
    tried(gpu, "copy from a peer", get, WHILE, 3, check=same)
    tried(gpu, "copy to a peer", lambda s: result_of("cuMemcpyAsync", theirs, mine, size, s), WHILE, 3, check=same)


def kernels(gpu):
    """Programmatic dependent launch and memory synchronization domains, within bodies and behind the node."""
    module, bump, word = ctypes.c_void_p(), ctypes.c_void_p(), gpu.alloc(4)
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PDL))
    call("cuModuleGetFunction", ctypes.byref(bump), module, ctypes.c_char_p(b"bump"))
    programmatic = _Attribute(id=6, value=(ctypes.c_int * 16)(1))
    domain = _Attribute(id=10, value=(ctypes.c_int * 16)(1))

    def launch(stream, *attributes):
        one = (ctypes.c_uint * 3)(1, 1, 1)
        list_ = (_Attribute * max(len(attributes), 1))(*attributes)
        config = _Config(one, one, 0, stream, list_, len(attributes))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(word))
        return result_of("cuLaunchKernelEx", ctypes.byref(config), bump, arguments, None)

    def twice(*attributes):
        return lambda s: launch(s, *attributes) or launch(s, *attributes)

    def counted():
        return "counted " + str(int.from_bytes(bytes(gpu.read(word, 4)), "little"))

    for what, attributes in {"plain kernels": (), "a domain": (domain,), "programmatic launches": (programmatic,),
                             "both": (programmatic, domain)}.items():
        for kind, runs in ((IF, 1), (WHILE, 3)):
            call("cuMemsetD32_v2", word, ctypes.c_uint(0), ctypes.c_size_t(1))
            tried(gpu, f"{what}, {('if', 'while')[kind]}, want {2 * runs + 1}", twice(*attributes), kind, runs,
                  lambda a=attributes: launch(gpu.stream, *a), counted)


PROBES = {f.__name__: f for f in (nodes, peers, kernels, objects)}


def main():
    if len(sys.argv) > 1:
        return PROBES[sys.argv[1]](Gpu(0))
    version = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    say(f"CUDA {version.value // 1000}.{version.value % 1000 // 10}")
    for name in PROBES:
        try:
            status = subprocess.run([sys.executable, __file__, name], timeout=30, check=False).returncode
            if status:
                say(f"{name} ended with {status}")
        except subprocess.TimeoutExpired:
            say(f"{name} did not end within 30 s")


try:
    main()
except Exception:
    traceback.print_exc()
    sys.exit(1)
