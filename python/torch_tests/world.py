"""What a case is given: its rank and world, the group that is tested, the group that is the truth, and data."""

import ctypes
import datetime
import time
import zlib

import torch
import torch.distributed as dist

from torch_tests.compare import difference
from torch_tests.registry import Skip


class World:
    """One rank's view. `group` is the tested one, `truth` has the same ranks over torch's own backend.

    `device` is where data is made: that of the group which is running in `same`. gloo is given host memory, also where
    it is the truth of GPUs: it crashes on much of theirs.
    """

    def __init__(self, rank: int, size: int, device: torch.device, backend: str, truth: str, group,
                 truth_group) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._truth_device = device_of(truth, device)
        self.backend, self.truth_backend = backend, truth
        self.group, self.truth = group, truth_group
        self.seed = 0
        self._draws = 0
        self._awaited = 0

    def begin(self, key: str) -> None:
        """Resets the data for a case: the same on every run, different for each case."""
        self.seed = zlib.crc32(key.encode())
        self._draws = 0
        torch.manual_seed(self.seed)

    # ---- data ----

    def everyone(self, shape, dtype: torch.dtype = torch.float32, kind: str = "bits") -> list[torch.Tensor]:
        """Every rank's input, so that each rank can tell what a result must be.

        bits: any pattern of bits, for what only moves; real: normal numbers; whole: small whole
        numbers, whose sums, products and averages are exact in every dtype.
        """
        self._draws += 1
        return [_random(shape, dtype, kind,
                        torch.Generator().manual_seed(self.seed * 1000 + self._draws * 17 + r)).to(self.device)
                for r in range(self.size)]

    def own(self, shape, dtype: torch.dtype = torch.float32, kind: str = "bits") -> torch.Tensor:
        return self.everyone(shape, dtype, kind)[self.rank]

    def empty(self, shape, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Where a result goes: filled with what no result is likely to be."""
        t = torch.empty(shape, dtype=dtype, device=self.device)
        t.view(-1).view(torch.uint8).fill_(0x5B if dtype != torch.bool else 1)
        return t

    # ---- judgement ----

    def same(self, f, *, model=None, atol: float = 0.0, truth: bool = True):
        """Runs f(group) with both groups and fails where results differ.

        model() is the result worked out by this rank alone: it is compared too, and alone where
        the truth's backend refuses the call or truth is False. Returns the tested result.
        """
        draws, want = self._draws, []
        try:
            if truth:
                want.append(("that of " + self.truth_backend, self.true(f)))
        except (RuntimeError, ValueError, TypeError) as error:
            lacks = str(error).partition("\n")[0] or type(error).__name__
            if self.truth_backend == "nccl":
                _end_group_of_nccl()
            if self.backend == self.truth_backend:
                raise Skip(f"{self.truth_backend}: {lacks}") from None
            if model is None:
                raise
        if model is not None:
            self._draws = draws
            want.append(("the expected", model()))
        self._draws = draws
        got = self._run(f, self.group)
        for name, w in want:
            found = difference(got, w, atol)
            assert not found, f"{found} ({name} result)"
        return got

    def true(self, f):
        """f(group) with the truth's group."""
        return self._run(f, self.truth)

    def _run(self, f, group):
        device = self.device
        if group is self.truth:
            self.device = self._truth_device
        try:
            result = f(group)
        finally:
            self.device = device
        if device.type == "cuda":
            torch.cuda.synchronize()
        return result

    def gathered(self, t: torch.Tensor) -> list[torch.Tensor]:
        """What t is on every rank, over the truth's group."""
        t = t.to(self._truth_device)
        everyone = [torch.empty_like(t) for _ in range(self.size)]
        dist.all_gather(everyone, t, group=self.truth)
        return [each.to(self.device) for each in everyone]

    def equal(self, got, want, atol: float = 0.0) -> None:
        found = difference(got, want, atol)
        assert not found, found

    def raises(self, f, *words: str, kinds=(RuntimeError, ValueError, TypeError)) -> Exception:
        """Runs f, which must raise one of kinds (torch's DistBackendError is a RuntimeError) and name the words."""
        try:
            f()
        except kinds as error:
            missing = [word for word in words if word.lower() not in str(error).lower()]
            assert not missing, f"the error does not name {missing}: {type(error).__name__}: {error}"
            return error
        raise AssertionError(f"no error; want one that names {list(words)}")

    def needs(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Skip(reason)

    @property
    def judged(self) -> bool:
        """False where gloo runs as the tested backend, which proves the cases only: its error texts are its own."""
        return self.backend == "shunt"

    def meet(self) -> None:
        """All ranks get here, over the truth's group."""
        self.truth_barrier()

    def await_others(self, rank: int) -> None:
        """Returns on that rank when every other one has called this, and on those at once: no rank is in a call from
        before any more when it dies or aborts. A barrier ends on one rank before it ends on another."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self._awaited += 1
        store, key = dist.distributed_c10d._get_default_store(), f"others of {self.seed}, {self._awaited}"
        if self.rank != rank:
            store.add(key, 1)
            return
        while store.add(key, 0) < self.size - 1:
            time.sleep(0.01)

    def truth_barrier(self) -> None:
        dist.barrier(group=self.truth)

    def new_group(self, ranks=None, seconds: float = 60, **kwargs):
        return dist.new_group(ranks, timeout=datetime.timedelta(seconds=seconds), backend=self.spec, **kwargs)

    @property
    def spec(self) -> str:
        """The name of the tested backend as init_process_group takes it."""
        return f"{self.device.type}:{self.backend}"


def device_of(backend: str, device: torch.device) -> torch.device:
    """Where a backend that runs beside tests on device has its data."""
    return torch.device("cpu") if backend == "gloo" else device


def _end_group_of_nccl() -> None:
    """torch's nccl backend throws for a dtype between ncclGroupStart and ncclGroupEnd (torch/csrc/cuda/nccl.cpp,
    scatter and all2all), and all that the thread calls from then on waits in that group. With no group open
    ncclGroupEnd returns an error, which says nothing here."""
    ctypes.CDLL("libnccl.so.2").ncclGroupEnd()


def _random(shape, dtype: torch.dtype, kind: str, generator: torch.Generator) -> torch.Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if kind == "bits":
        size = torch.empty((), dtype=dtype).element_size()
        raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * size) if shape else (size,), generator=generator,
                            dtype=torch.int64)
        out = raw.to(torch.uint8).view(dtype)
        return out if shape else out.reshape(())
    if dtype.is_complex:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return torch.complex(_random(shape, part, kind, generator), _random(shape, part, kind, generator))
    if kind == "whole" or not dtype.is_floating_point:
        low = -2 if dtype.is_signed or dtype.is_floating_point else 0
        return torch.randint(low, 3, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).clamp(-8, 8).to(dtype)
