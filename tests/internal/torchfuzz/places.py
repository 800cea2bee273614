"""Where a rank's calls run: on the host, or on a GPU with its streams, graphs and allocator."""

import contextlib
import ctypes
import gc
import os
import random
import time
from typing import Any, Callable

from arrays import Torch


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t"""

    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", ctypes.c_uint),
                ("compute", ctypes.c_uint)]


class Gpu:
    """What NVML says of a GPU's memory."""

    def __init__(self, uuid: str) -> None:
        self.handle = ctypes.c_void_p()
        try:
            self.lib = ctypes.CDLL("libnvidia-ml.so.1")
            failed = self.lib.nvmlInit_v2() or self.lib.nvmlDeviceGetHandleByUUID(
                f"GPU-{uuid}".encode(), ctypes.byref(self.handle))
        except (OSError, AttributeError):
            failed = 1
        if failed:
            self.handle.value = None

    def used(self) -> int | None:
        """Bytes that this process and its children, plugins among them, use; None where NVML does not know."""
        count, found = ctypes.c_uint(256), (ProcessInfo * 256)()
        if not self.handle.value or self.lib.nvmlDeviceGetComputeRunningProcesses_v3(
                self.handle, ctypes.byref(count), found):
            return None
        ours = {info.pid: info.bytes for info in found[:count.value]
                if os.getpid() in (info.pid, parent_of(info.pid))}
        if os.getpid() not in ours or (1 << 64) - 1 in ours.values():
            return None
        return sum(ours.values())


def parent_of(pid: int) -> int:
    """A process's parent, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Host:
    """Host memory: one stream, which is the thread, and graphs that call again."""

    streams = 1

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    def begin(self, chance: random.Random) -> None:
        pass

    def on(self, stream: int) -> Any:
        return contextlib.nullcontext()

    def follow(self, stream: int, other: int) -> None:
        pass

    def lend(self, raw: Any, stream: int) -> None:
        pass

    def delay(self, chance: random.Random) -> None:
        if chance.random() < 0.02:
            time.sleep(chance.random() * 0.002)

    def capture(self, stream: int, calls: Callable[[], None], chance: random.Random) -> Any:
        calls()
        return calls

    def replay(self, graph: Any) -> None:
        graph()

    def synchronize(self) -> None:
        pass

    def trim(self) -> None:
        gc.collect()

    def used(self) -> int:
        """Bytes of the device's memory that are in use; the device is the host here."""
        return resident()


class Cuda:
    """The GPU of a rank. shared says that ranks are threads of one process: then nothing may wait for every device, as
    torch's empty_cache does, while a rank is inside a collective."""

    def __init__(self, arrays: Torch, shared: bool) -> None:
        self.arrays, self.shared, torch = arrays, shared, arrays.torch
        self.torch, self.cuda, self.device = torch, torch.cuda, arrays.device
        # The default stream, which others wait for and which waits for others, and two that do not. Ranks differ in the
        # priority of one: what a call does by it must suit what its peers do.
        self.all = [self.cuda.default_stream(self.device),
                    self.cuda.Stream(self.device, priority=-(self.device.index % 2)),
                    self.cuda.Stream(self.device, priority=-1)]
        self.streams = len(self.all)
        self.gpu = Gpu(str(self.cuda.get_device_properties(self.device).uuid))
        # torch 2.11 frees the two words of its random numbers' state with the last graph, while another stream may have
        # yet to write what the capture of one put there: a graph that stays keeps them.
        arrays.zeros(1)  # loads its kernel
        self.lasting = self.cuda.CUDAGraph()
        with self.on(1):
            self.lasting.capture_begin(capture_error_mode="thread_local")
            arrays.zeros(1)
            self.lasting.capture_end()
        #: How often memory goes back to the driver, which changes from epoch to epoch.
        self.churn = 0.0

    def begin(self, chance: random.Random) -> None:
        """An epoch begins."""
        self.churn = chance.choice((0.0, 0.02, 0.1, 0.3))

    def on(self, stream: int) -> Any:
        return self.cuda.stream(self.all[stream])

    def follow(self, stream: int, other: int) -> None:
        """What is put into stream from now on comes behind what other has."""
        if stream != other:
            self.all[stream].wait_stream(self.all[other])

    def lend(self, raw: Any, stream: int) -> None:
        """stream uses memory that was made on another one."""
        raw.record_stream(self.all[stream])

    def delay(self, chance: random.Random) -> None:
        """Lets ranks and streams come to their calls at different times; some memory goes back to the driver."""
        dice = chance.random()
        if dice < 0.03:
            time.sleep(chance.random() * 0.003)
        elif dice < 0.10:
            self.cuda._sleep(chance.choice((10_000, 300_000, 3_000_000)))  # cycles, on the current stream
        elif dice < 0.10 + self.churn and not self.shared:
            self.cuda.empty_cache()

    def capture(self, stream: int, calls: Callable[[], None], chance: random.Random) -> Any:
        graph = self.cuda.CUDAGraph()
        if not self.shared and chance.random() < 0.5:
            # The usual way, which synchronizes, collects garbage and empties the cache.
            with self.cuda.graph(graph, stream=self.all[stream], capture_error_mode="thread_local"):
                calls()
            return graph
        with self.on(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                calls()
            finally:
                graph.capture_end()
        return graph

    def replay(self, graph: Any) -> None:
        graph.replay()

    def synchronize(self) -> None:
        self.cuda.synchronize(self.device)

    def trim(self) -> None:
        """Gives back what is free. Every rank is idle."""
        gc.collect()
        self.synchronize()
        self.cuda.empty_cache()

    def used(self) -> int:
        """Bytes of the GPU's memory that are this rank's; where nobody knows whose they are, all that are in use."""
        own = self.gpu.used()
        if own is not None:
            return own
        free, total = self.cuda.mem_get_info(self.device)
        return total - free
