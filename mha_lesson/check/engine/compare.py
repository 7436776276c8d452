"""Whether two results are the same, and if not, in what they first differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

# How far a right answer may be off, relative; float64 because √d_k may be a float32 number.
TOLERANCE = {
    torch.float64: 2e-6,
    torch.float32: 3e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


def allowed(dtype: torch.dtype, tolerance: float = 0.0) -> float:
    return max(TOLERANCE.get(dtype, 0.0), tolerance)


@dataclass(frozen=True)
class Difference:
    """The first thing in which a result differs from the right one.

    Attributes:
        kind: "type", "count", "shape", "dtype", "nan" or "values".
        part: which of several results, counted from 0.
    """

    kind: str
    yours: Any
    expected: Any
    part: int = 0


def difference(yours: Any, expected: Any, tolerance: float = 0.0) -> Difference | None:
    """Compares a result with the right one: type, shape, dtype and values."""
    if isinstance(expected, tuple):
        if not isinstance(yours, (tuple, list)):
            return Difference("type", yours, expected)
        if len(yours) != len(expected):
            return Difference("count", yours, expected)
        for part, (mine, theirs) in enumerate(zip(expected, yours, strict=True)):
            if found := difference(theirs, mine, tolerance):
                return Difference(found.kind, found.yours, found.expected, part)
        return None
    if isinstance(expected, int):
        if isinstance(yours, bool) or not isinstance(yours, Integral):
            return Difference("type", yours, expected)
        return None if yours == expected else Difference("values", yours, expected)
    if not plain(yours):
        return Difference("type", yours, expected)
    if yours.shape != expected.shape:
        return Difference("shape", yours, expected)
    if yours.dtype != expected.dtype:
        return Difference("dtype", yours, expected)
    if expected.dtype != torch.bool and yours.isnan().any():
        return Difference("nan", yours, expected)
    if not close(yours, expected, allowed(expected.dtype, tolerance)):
        return Difference("values", yours, expected)
    return None


def plain(x: Any) -> bool:
    """A tensor that can be compared: dense and real, with numbers on the CPU."""
    return (
        isinstance(x, Tensor)
        and x.layout == torch.strided
        and x.device.type == "cpu"
        and not (x.is_complex() or x.is_quantized or x.is_nested)
    )


def close(yours: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Equal up to `tolerance`, relative to each number and to the largest."""
    if expected.dtype == torch.bool or not expected.numel():
        return torch.equal(yours, expected)
    yours, expected = yours.detach().double(), expected.detach().double()
    gap = float((yours - expected).abs().max())
    if gap > 2 * tolerance * max(1.0, float(expected.abs().max())):
        return False  # the usual case, decided cheaply; NaN and ∞ go on
    return gap == 0 or bool(close_cells(yours, expected, tolerance).all())


def close_cells(yours: Tensor, expected: Tensor, tolerance: float) -> Tensor:
    """The same cell by cell; NaN is like NaN, and ∞ like ∞."""
    yours, expected = yours.detach(), expected.detach()
    if expected.dtype == torch.bool:
        return yours == expected
    yours, expected = yours.double(), expected.double()
    largest = expected.abs().nan_to_num(posinf=0.0).amax() if expected.numel() else 0.0
    return torch.isclose(
        yours, expected, tolerance, tolerance * max(1.0, float(largest)), equal_nan=True
    )


def same(yours: Any, variant: Any, tolerance: float = 0.0) -> bool:
    """Whether a slip explains a result: shapes, kinds, NaN and values, float widths aside."""
    if isinstance(variant, (tuple, list)):
        return (
            isinstance(yours, (tuple, list))
            and len(yours) == len(variant)
            and all(same(y, v, tolerance) for y, v in zip(yours, variant, strict=True))
        )
    if isinstance(variant, float):
        return type(yours) is float and close(torch.tensor(yours), torch.tensor(variant), 1e-5)
    if isinstance(variant, (int, str)):
        return type(yours) is type(variant) and yours == variant
    if not plain(yours) or yours.shape != variant.shape:
        return False
    if yours.dtype.is_floating_point != variant.dtype.is_floating_point:
        return False
    if (yours.dtype == torch.bool) != (variant.dtype == torch.bool):
        return False
    return close(yours, variant, allowed(torch.float64, tolerance))


def in_letters(shape: tuple[int, ...], sizes: Mapping[str, int]) -> str:
    """A shape in the letters of the course: (2, 7, 15) is (B, T, d_model)."""
    return "(" + ", ".join(_letter(n, sizes) for n in shape) + ("," * (len(shape) == 1)) + ")"


def _letter(n: int, sizes: Mapping[str, int]) -> str:
    if n == 1:
        return "1"
    for name, size in sizes.items():
        if size == n:
            return name
    for a, size_a in sizes.items():
        for b, size_b in sizes.items():
            if size_a * size_b == n:
                return f"{a}·{b}"
    return str(n)
