"""Whether two results are the same, and if not, in what they first differ."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, permutations
from typing import Any

import torch
from torch import Tensor

# How far a right answer may be off, relative; float64 because √d_k may be a float32 number.
TOLERANCE = {torch.float64: 2e-6, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
COARSE = 2e-2  # half precision, and rounding to two digits


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
        for part, (one, right) in enumerate(zip(yours, expected, strict=True)):
            if inner := difference(one, right, tolerance):
                return replace(inner, part=part)
        return None
    if isinstance(expected, int):
        if type(yours) is not int:
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
    gap = float(torch.dist(yours, expected, math.inf))
    if gap <= tolerance:
        return True  # the usual cases, decided cheaply; NaN and ∞ go on
    if gap > 2 * tolerance and gap > 2 * tolerance * float(expected.abs().max()):
        return False
    return bool(close_cells(yours, expected, tolerance).all())


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


def same(yours: Any, result: Any, tolerance: float = 0.0) -> bool:
    """Whether a slip explains a result: shapes, kinds, NaN and values, float widths aside."""
    if isinstance(result, (tuple, list)):
        return (
            isinstance(yours, (tuple, list))
            and len(yours) == len(result)
            and all(same(y, v, tolerance) for y, v in zip(yours, result, strict=True))
        )
    if isinstance(result, float):
        return type(yours) is float and close(torch.tensor(yours), torch.tensor(result), 1e-5)
    if isinstance(result, (int, str)):
        return type(yours) is type(result) and yours == result
    if not plain(yours) or yours.shape != result.shape:
        return False
    if yours.dtype.is_floating_point != result.dtype.is_floating_point:
        return False
    if (yours.dtype == torch.bool) != (result.dtype == torch.bool):
        return False
    return close(yours, result, allowed(torch.float64, tolerance))


def letters_of_all(shapes: Sequence[tuple[tuple[int, ...], Mapping[str, int]]]) -> str:
    """The first shape in letters of the course, (2, 7, 15) is (B, T, d_model).

    Only what is true of all the shapes is said, and of that the simplest: where 6 is 2 · 3, it may
    be 7 − 1 as well.
    """
    (shape, sizes), *others = shapes
    alike = [(other, own) for other, own in others if len(other) == len(shape)]
    words = [
        _spoken(n, sizes, [(other[i], own) for other, own in alike]) for i, n in enumerate(shape)
    ]
    return "(" + ", ".join(words) + ("," * (len(shape) == 1)) + ")"


def _spoken(n: int, sizes: Mapping[str, int], others: list[tuple[int, Mapping[str, int]]]) -> str:
    wanted = [n, *(m for m, _ in others)]
    if wanted == [1] * len(wanted):
        return "1"
    columns = {name: [sizes[name], *(own.get(name, -1) for _, own in others)] for name in sizes}
    return next((word for word, values in _expressions(columns) if values == wanted), str(n))


def _expressions(columns: Mapping[str, list[int]]) -> Iterator[tuple[str, Sequence[float]]]:
    """Sizes, and what can be made of them, the simplest first."""
    yield from columns.items()
    for a, x in columns.items():
        yield f"{a}−1", [n - 1 for n in x]
        yield f"{a}+1", [n + 1 for n in x]
    pairs = [*combinations_with_replacement(columns.items(), 2)]
    for (a, x), (b, y) in pairs:
        yield (f"{a}·{b}" if a != b else f"{a}²"), [m * n for m, n in zip(x, y, strict=True)]
    for a, x in columns.items():
        yield f"2·{a}", [2 * n for n in x]
        yield f"3·{a}", [3 * n for n in x]
    for (a, x), (b, y) in permutations(columns.items(), 2):
        yield f"{a}/{b}", [m / n if n else -1 for m, n in zip(x, y, strict=True)]
        yield f"{a}+{b}", [m + n for m, n in zip(x, y, strict=True)]
    for (a, x), (b, y), (c, z) in combinations(columns.items(), 3):
        yield f"{a}·{b}·{c}", [math.prod(part) for part in zip(x, y, z, strict=True)]
