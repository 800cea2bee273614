"""Graphs with conditional nodes, by the driver alone: what gpu_conditional.py and gpu_conditional_driver.py share."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")
IF, WHILE, SWITCH = 0, 1, 2
THREAD_LOCAL = ctypes.c_int(1)  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_SET, _CONDITIONAL, _NONBLOCKING = ctypes.c_uint(1), 13, ctypes.c_uint(1)

# decide(handle, counter, limit, more): adds more to the counter; the condition is whether it is below the limit. The
# function that it calls is the driver's own.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry decide(.param .u64 handle, .param .u64 counter, .param .u64 limit, .param .u32 more)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [counter];
  ld.param.u64 %rd3, [limit];
  ld.param.u32 %r1, [more];
  ld.global.u32 %r2, [%rd2];
  add.u32 %r2, %r2, %r1;
  st.global.u32 [%rd2], %r2;
  ld.global.u32 %r3, [%rd3];
  setp.lt.u32 %p, %r2, %r3;
  selp.u32 %r4, 1, 0, %p;
  {
    .param .b64 param0;
    .param .b32 param1;
    st.param.b64 [param0], %rd1;
    st.param.b32 [param1], %r4;
    call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}
"""


class Failed(Exception):
    """A call of the driver has failed."""


def result_of(name, *arguments):
    """The name of what a call of the driver returned, or None for success."""
    if not hasattr(driver, name):
        return "a driver without it"
    status = getattr(driver, name)(*arguments)
    if status == 0:
        return None
    text = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"error %d" % status).decode()


def call(name, *arguments):
    failed = result_of(name, *arguments)
    if failed:
        raise Failed(f"{name}: {failed}")


class _Conditional(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64), ("type", ctypes.c_int), ("size", ctypes.c_uint),
                ("graphs", ctypes.POINTER(ctypes.c_void_p)), ("ctx", ctypes.c_void_p)]


class _Union(ctypes.Union):
    _fields_ = [("padding", ctypes.c_longlong * 29), ("conditional", _Conditional)]


class _NodeParams(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("reserved", ctypes.c_int * 3), ("of", _Union),
                ("reserved2", ctypes.c_longlong)]


class Gpu:
    """The primary context of a GPU, current on this thread: a stream, another one for bodies, and the kernel."""

    def __init__(self, ordinal):
        call("cuInit", ctypes.c_uint(0))
        self.ordinal, self.context, self.module = ordinal, ctypes.c_void_p(), ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ctypes.c_int(ordinal))
        call("cuCtxSetCurrent", self.context)
        self.stream, self.inner, self.decide = self.new_stream(), self.new_stream(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self.module), ctypes.c_char_p(PTX))
        call("cuModuleGetFunction", ctypes.byref(self.decide), self.module, ctypes.c_char_p(b"decide"))
        self.counter, self.limit = self.alloc(4), self.alloc(4)

    def new_stream(self):
        stream = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(stream), _NONBLOCKING)
        return stream

    def alloc(self, size):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 4)))
        return address

    def write(self, address, data):
        call("cuMemcpyHtoD_v2", address, ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
        call("cuStreamSynchronize", None)

    def read(self, address, size):
        data = (ctypes.c_char * size)()
        call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(size))
        return data

    def wait(self, stream=None):
        call("cuStreamSynchronize", stream or self.stream)

    def used(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def launch(self, function, stream, *arguments):
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        one = ctypes.c_uint(1)
        call("cuLaunchKernel", function, one, one, one, one, one, one, ctypes.c_uint(0), stream, pointers, None)

    def set_condition(self, stream, handle, more):
        self.launch(self.decide, stream, handle, self.counter, self.limit, ctypes.c_uint(more))

    def captured_into(self, stream):
        """The graph that a stream is captured into, and the nodes that the next one follows."""
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        call("cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph),
             ctypes.byref(nodes), ctypes.byref(count))
        return graph, nodes, count

    def add_conditional(self, kind, bodies=1):
        """Captures a conditional node, behind a kernel that decides; returns its handle and its bodies' graphs."""
        call("cuMemsetD32Async", self.counter, ctypes.c_uint(0), ctypes.c_size_t(1), self.stream)
        graph, _, _ = self.captured_into(self.stream)
        handle, zero = ctypes.c_uint64(), ctypes.c_uint(0)
        call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, self.context, zero, zero)
        self.set_condition(self.stream, handle, 0)
        graph, before, count = self.captured_into(self.stream)
        params, node = _NodeParams(type=_CONDITIONAL), ctypes.c_void_p()
        params.of.conditional = _Conditional(handle=handle.value, type=kind, size=bodies, ctx=self.context)
        if hasattr(driver, "cuGraphAddNode_v2"):
            call("cuGraphAddNode_v2", ctypes.byref(node), graph, before, None, count, ctypes.byref(params))
        else:
            call("cuGraphAddNode", ctypes.byref(node), graph, before, count, ctypes.byref(params))
        call("cuStreamUpdateCaptureDependencies", self.stream, ctypes.byref(node), ctypes.c_size_t(1), _SET)
        return handle, [ctypes.c_void_p(params.of.conditional.graphs[i]) for i in range(bodies)]

    def capture_body(self, graph, body):
        """Captures what body puts into the inner stream into a graph that is there."""
        call("cuStreamBeginCaptureToGraph", self.inner, graph, None, None, ctypes.c_size_t(0), THREAD_LOCAL)
        done = False
        try:
            body(self.inner)
            done = True
        finally:
            failed = result_of("cuStreamEndCapture", self.inner, ctypes.byref(ctypes.c_void_p()))
            if done and failed:
                raise Failed(f"cuStreamEndCapture of a body: {failed}")

    def capture(self, enqueue):
        """The graph of what enqueue puts into the stream."""
        root, done = ctypes.c_void_p(), False
        call("cuStreamBeginCapture_v2", self.stream, THREAD_LOCAL)
        try:
            enqueue()
            done = True
        finally:
            failed = result_of("cuStreamEndCapture", self.stream, ctypes.byref(root))
            if not done and not failed:
                driver.cuGraphDestroy(root)
            if done and failed:
                raise Failed(f"cuStreamEndCapture: {failed}")
        return root

    def conditional(self, kind, bodies, before=lambda: None, after=lambda: None):
        """A graph with a conditional node whose bodies count their runs, between what before and after capture."""

        def enqueue():
            before()
            handle, graphs = self.add_conditional(kind, len(bodies))
            for graph, body in zip(graphs, bodies):

                def counted(stream, body=body):
                    body(stream)
                    self.set_condition(stream, handle, 1)

                self.capture_body(graph, counted)
            after()

        return Graph(self, self.capture(enqueue))


class Graph:
    """A graph and its executable."""

    def __init__(self, gpu, root):
        self.gpu, self.root, self.run = gpu, root, ctypes.c_void_p()
        failed = result_of("cuGraphInstantiateWithFlags", ctypes.byref(self.run), root, ctypes.c_ulonglong(0))
        if failed:
            self.forget()
            raise Failed(f"cuGraphInstantiate: {failed}")

    def replay(self, limit):
        """Launches it with a limit for the kernel that decides."""
        self.gpu.write(self.gpu.limit, limit.to_bytes(4, "little"))
        call("cuGraphLaunch", self.run, self.gpu.stream)

    def runs(self):
        """How often a body has run in the last replay."""
        return int.from_bytes(bytes(self.gpu.read(self.gpu.counter, 4)), "little")

    def forget(self):
        """Destroys the graph alone; the executable stays."""
        if self.root:
            driver.cuGraphDestroy(self.root)
        self.root = None

    def destroy(self):
        self.forget()
        if self.run:
            driver.cuGraphExecDestroy(self.run)
        self.run = None
