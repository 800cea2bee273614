"""Bytes and numbers of numpy (host memory) and of torch (a GPU's memory, or the host's), with one interface."""

from typing import Any


class Numpy:
    """Arrays of numpy."""

    def __init__(self, seed: int, table: int) -> None:
        import ml_dtypes
        import numpy

        #: Random bytes, equal on all ranks.
        self.table = numpy.random.default_rng(seed).integers(0, 256, table, "uint8")
        self.np = numpy
        self.dtypes = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3fn,
                       "float8_e5m2": ml_dtypes.float8_e5m2}

    def empty(self, nbytes: int) -> Any:
        return self.np.empty(nbytes, "uint8")

    def of(self, buffer: Any) -> Any:
        """A window's memory."""
        return self.np.asarray(buffer)

    def int64s(self, values: Any) -> Any:
        return self.np.array(values, "int64")

    def typed(self, raw: Any, dtype: str) -> Any:
        return raw.view(self.dtypes.get(dtype, dtype))

    def copy(self, to: Any, values: Any) -> None:
        to[...] = values

    def clone(self, raw: Any) -> Any:
        return raw.copy()

    def bytes(self, values: Any) -> Any:
        return values.view("uint8")

    def integers(self, raw: Any, size: int) -> Any:
        return raw.view(f"int{8 * size}")

    def whole(self, raw: Any, most: int) -> Any:
        """float32 of bytes: from -most to most."""
        return (raw.astype("int16") % (2 * most + 1) - most).astype("float32")

    def powers(self, raw: Any) -> Any:
        """float32 of bytes: 1, -1, 2 or -2."""
        return ((1 + raw % 2).astype("float32")) * (1 - (raw & 2).astype("float32"))

    def cast(self, numbers: Any, dtype: str) -> Any:
        return numbers.astype(self.dtypes.get(dtype, dtype)).view("uint8")

    def minimum(self, x: Any, y: Any) -> Any:
        return self.np.minimum(x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        return self.np.maximum(x, y)

    def quotient(self, x: Any, n: int) -> Any:
        """x / n, rounded toward zero; of x's own type."""
        return self.np.sign(x) * (abs(x) // n)

    def compare(self, have: Any, want: Any, found: Any) -> None:
        """Notes in found (4 numbers) how many words of 8 bytes differ, the first that does, and its two values."""
        have, want = have.view("int64"), want.view("int64")
        wrong = (have != want).nonzero()[0]
        found[0] = len(wrong)
        if len(wrong):
            found[1:] = wrong[0], have[wrong[0]], want[wrong[0]]

    def zeros(self, rows: int) -> Any:
        """Where compare notes."""
        return self.np.zeros((rows, 4), "int64")


class Torch:
    """Tensors of torch on a device. Nothing here waits for the device."""

    def __init__(self, seed: int, table: int, device: str) -> None:
        import torch

        self.torch, self.device = torch, torch.device(device)
        # Made on the host, where threads of ranks have no generator in common.
        words = torch.randint(-(1 << 63), (1 << 63) - 1, (table // 8 + 1,),
                              generator=torch.Generator().manual_seed(seed))
        self.table = words.view(torch.uint8).to(self.device)
        self.dtypes = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
        self.signed = {1: torch.int8, 4: torch.int32, 8: torch.int64}

    def _dtype(self, dtype: str) -> Any:
        return self.dtypes.get(dtype) or getattr(self.torch, dtype)

    def empty(self, nbytes: int) -> Any:
        return self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.device)

    def of(self, buffer: Any) -> Any:
        if self.device.type == "cpu":
            return self.torch.from_dlpack(buffer)
        return self.torch.as_tensor(buffer, device=self.device)

    def int64s(self, values: Any) -> Any:
        return self.torch.tensor(values, dtype=self.torch.int64, device=self.device)

    def typed(self, raw: Any, dtype: str) -> Any:
        return raw.view(self._dtype(dtype))

    def copy(self, to: Any, values: Any) -> None:
        to.copy_(values)

    def clone(self, raw: Any) -> Any:
        return raw.clone()

    def bytes(self, values: Any) -> Any:
        return values.view(self.torch.uint8)

    def integers(self, raw: Any, size: int) -> Any:
        if raw.storage_offset() % size:
            raw = raw.clone()
        return raw.view(self.signed[size])

    def whole(self, raw: Any, most: int) -> Any:
        return (raw.to(self.torch.int16) % (2 * most + 1) - most).to(self.torch.float32)

    def powers(self, raw: Any) -> Any:
        return (1 + raw % 2).to(self.torch.float32) * (1 - (raw & 2).to(self.torch.float32))

    def cast(self, numbers: Any, dtype: str) -> Any:
        kind = self._dtype(dtype)
        if dtype.startswith("uint"):  # torch converts to few unsigned types
            kind = self.signed[kind.itemsize]
        return numbers.to(kind).view(self.torch.uint8)

    def minimum(self, x: Any, y: Any) -> Any:
        return self.torch.minimum(x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        return self.torch.maximum(x, y)

    def quotient(self, x: Any, n: int) -> Any:
        return self.torch.div(x, n, rounding_mode="trunc")

    def compare(self, have: Any, want: Any, found: Any) -> None:
        have, want = have.view(self.torch.int64), want.view(self.torch.int64)
        wrong = have != want
        first = wrong.to(self.torch.uint8).argmax().view(1)
        self.torch.cat((wrong.sum().view(1), first, have.gather(0, first), want.gather(0, first)), out=found)

    def zeros(self, rows: int) -> Any:
        return self.torch.zeros((rows, 4), dtype=self.torch.int64, device=self.device)
