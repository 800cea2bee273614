"""Equality of results: exact to the bit, or within a bound that follows from the dtype."""

import torch

#: Dtypes of which no arithmetic is asked, compared by their bytes only.
FLOAT8 = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))


def rounding(dtype: torch.dtype, ranks: int, largest: float = 8.0) -> float:
    """How far two sums of `ranks` numbers, each at most `largest`, may lie apart when they are added in different
    orders.

    Each of ranks - 1 additions and the conversion of the result rounds by at most eps/2 of a
    value no greater than ranks * largest; two results may err in opposite directions.
    """
    return ranks * torch.finfo(dtype).eps * ranks * largest


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return t.detach().contiguous().cpu().reshape(-1).view(torch.uint8)


def _wide(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().cpu()
    if t.is_complex():
        return torch.view_as_real(t).double()
    return t.double()


def difference(got, want, atol: float = 0.0, path: str = "result") -> str | None:
    """What is first found to differ between two results, or None."""
    if isinstance(want, torch.Tensor):
        return _difference_of_tensors(got, want, atol, path)
    if type(got) is not type(want):
        return f"{path} is a {type(got).__name__}, want a {type(want).__name__}: {got!r}, want {want!r}"
    if isinstance(want, dict):
        if got.keys() != want.keys():
            return f"{path} has the keys {sorted(got)}, want {sorted(want)}"
        return next((d for k in want if (d := difference(got[k], want[k], atol, f"{path}[{k!r}]"))), None)
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f"{path} has {len(got)} elements, want {len(want)}"
        return next((d for i, w in enumerate(want) if (d := difference(got[i], w, atol, f"{path}[{i}]"))), None)
    if isinstance(want, float) and atol:
        return None if abs(got - want) <= atol else f"{path} is {got}, want {want} within {atol:g}"
    return None if got == want else f"{path} is {got!r}, want {want!r}"


def _difference_of_tensors(got, want: torch.Tensor, atol: float, path: str) -> str | None:
    if not isinstance(got, torch.Tensor):
        return f"{path} is {got!r}, want a tensor"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{path} is {got.dtype} of {tuple(got.shape)}, want {want.dtype} of {tuple(want.shape)}"
    if not atol:
        same = (_bytes(got) == _bytes(want)).reshape(-1, want.element_size()).all(1)
        if same.all():
            return None
        at = int((~same).nonzero()[0])
        count = int((~same).sum())
    else:
        far = ~torch.isclose(_wide(got), _wide(want), rtol=0, atol=atol, equal_nan=True).reshape(-1)
        if not far.any():
            return None
        at = int(far.nonzero()[0])
        at, count = at // (2 if want.is_complex() else 1), int(far.sum())
    g, w = got.detach().cpu().reshape(-1)[at], want.detach().cpu().reshape(-1)[at]
    return (f"{path} of {want.dtype} {tuple(want.shape)} differs in {count} places, first at element {at}: "
            f"{g.item()!r}, want {w.item()!r}" + (f" within {atol:g}" if atol else ""))
