"""How a wrong result relates to the right one, where no slip explains it.

Every function takes (yours, expected, sizes) and gives a sentence, or None where it does not fit.
"""

import math
from collections.abc import Mapping
from itertools import permutations, product

import torch
from torch import Tensor

from mha_lesson.check.compare import TOLERANCE, close, close_cells, in_letters
from mha_lesson.check.exercise import Finding
from mha_lesson.check.report import number

Sizes = Mapping[str, int]
_TIGHT = TOLERANCE[torch.float64]


def relate(yours: Tensor, expected: Tensor, sizes: Sizes) -> Finding | None:
    """The first relation that holds."""
    yours, expected = yours.detach(), expected.detach()
    if yours.dtype != torch.bool:
        yours, expected = yours.double(), expected.double()
    relations = _SAME_SHAPE if yours.shape == expected.shape else _OTHER_SHAPE
    for relation in relations:
        if sentence := relation(yours, expected, sizes):
            return Finding(f"relation:{relation.__name__}", sentence)
    return None


def inverted(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.dtype == torch.bool and torch.equal(yours, ~expected):
        return "Your True and False are the right ones turned round."
    return None


def constant(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.numel() > 1 and (yours == yours.flatten()[0]).all():
        return f"Every entry of your result is {number(float(yours.flatten()[0]))}."
    return None


def factor(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    """A constant factor, in letters where it is one."""
    if yours.dtype == torch.bool or not (expected.abs() > 1e-9).any():
        return None
    at = expected.abs().flatten().argmax()
    ratio = float(yours.flatten()[at] / expected.flatten()[at])
    if not math.isfinite(ratio) or abs(ratio - 1) < 1e-4 or ratio == 0:
        return None
    if not close(yours, expected * ratio, _TIGHT):
        return None
    return f"Every number of yours is {_in_words(ratio, sizes)} times the right one."


def _in_words(ratio: float, sizes: Sizes) -> str:
    for (name, n), power in product(sizes.items(), (1, -1, 0.5, -0.5, 2, -2)):
        if n > 1 and math.isclose(abs(ratio), n**power, rel_tol=1e-4):
            root = {1: name, -1: f"1/{name}", 0.5: f"√{name}", -0.5: f"1/√{name}"}
            word = root.get(power, f"{name}²" if power == 2 else f"1/{name}²")
            return ("−" if ratio < 0 else "") + f"{word} = {number(abs(ratio))}"
    return number(ratio)


def offset(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.dtype == torch.bool or yours.numel() < 2:
        return None
    shift = float((yours - expected).flatten()[0])
    if math.isfinite(shift) and shift and close(yours, expected + shift, _TIGHT):
        return f"Every number of yours is the right one plus {number(shift)}."
    return None


def moved_axes(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    """The right numbers, with axes in another order."""
    if 1 < expected.ndim < 6:
        for order in permutations(range(expected.ndim)):
            turned = expected.permute(order)
            if turned.shape == yours.shape and close(yours, turned, _TIGHT):
                if order == tuple(range(expected.ndim)):
                    continue
                have, want = (in_letters(tuple(t.shape), sizes) for t in (yours, expected))
                if have == want:
                    return f"These are the right numbers with axes exchanged: order {order}."
                return f"These are the right numbers with their axes in another order: {have}."
    return None


def flipped_or_rolled(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    for axis in range(expected.ndim):
        if close(yours, expected.flip(axis), _TIGHT):
            return f"These are the right numbers, back to front along axis {axis - expected.ndim}."
        for shift in (1, -1):
            if close(yours, expected.roll(shift, axis), _TIGHT):
                return (
                    f"These are the right numbers, shifted by {shift} along axis "
                    f"{axis - expected.ndim}."
                )
    return None


def shuffled(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.dtype == torch.bool or yours.numel() < 4:
        return None
    if close(yours.flatten().sort().values, expected.flatten().sort().values, _TIGHT):
        return "These are the right numbers, each in the wrong place: nothing is lost, only order."
    return None


def logarithm(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.dtype != torch.bool and (expected > 0).all() and close(yours, expected.log(), _TIGHT):
        return "Yours is the logarithm of what is asked."
    return None


def partly_right(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    """Right everywhere but in a few slices of one axis, or only there."""
    cells = close_cells(yours, expected, _TIGHT)
    for axis in range(expected.ndim):
        n = expected.shape[axis]
        right = cells.movedim(axis, 0).reshape(n, -1).all(1)
        wrong = [i for i, fine in enumerate(right.tolist()) if not fine]
        if n > 2 and 0 < len(wrong) < n:
            letter = in_letters((n,), sizes).strip("(),")
            which = "positions" if len(wrong) > 1 else "position"
            if len(wrong) <= n / 2:
                where = ", ".join(map(str, wrong[:4])) + ("…" if len(wrong) > 4 else "")
                return (
                    f"Along axis {axis - expected.ndim} (of length {letter} = {n}) all is right "
                    f"but {which} {where}."
                )
            fine = [i for i in range(n) if i not in wrong]
            where = ", ".join(map(str, fine[:4])) + ("…" if len(fine) > 4 else "")
            return (
                f"Along axis {axis - expected.ndim} (of length {letter} = {n}) only position"
                f"{'s' * (len(fine) > 1)} {where} {'are' if len(fine) > 1 else 'is'} right."
            )
    return None


def same_memory(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.numel() == expected.numel() and yours.dtype == expected.dtype:
        if close(yours.reshape(-1), expected.reshape(-1), _TIGHT):
            return "These are the right numbers in the right order, under another shape."
        return shuffled(yours.reshape(-1), expected.reshape(-1), sizes)
    return None


def reduced(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    if yours.dtype == torch.bool:
        return None
    for axis in range(expected.ndim):
        for keep, (word, values) in product(
            (False, True), (("sum", expected.sum), ("mean", expected.mean))
        ):
            candidate = values(dim=axis, keepdim=keep)
            if candidate.shape == yours.shape and close(yours, candidate, _TIGHT):
                return f"Yours is the {word} of the right numbers over axis {axis - expected.ndim}."
    return None


def a_slice(yours: Tensor, expected: Tensor, sizes: Sizes) -> str | None:
    """One position of one axis only, or all but the first or last."""
    for axis in range(expected.ndim):
        n = expected.shape[axis]
        for i in range(n):
            if yours.shape == expected.select(axis, i).shape and close(
                yours, expected.select(axis, i), _TIGHT
            ):
                return f"Yours holds only position {i} along axis {axis - expected.ndim}."
        for start in (0, 1):
            part = expected.narrow(axis, start, n - 1) if n > 1 else expected
            if yours.shape == part.shape and close(yours, part, _TIGHT):
                lost = "last" if start == 0 else "first"
                return f"The {lost} position along axis {axis - expected.ndim} is missing."
    return None


_SAME_SHAPE = (
    inverted,
    constant,
    factor,
    offset,
    moved_axes,
    flipped_or_rolled,
    shuffled,
    logarithm,
    partly_right,
)
_OTHER_SHAPE = (moved_axes, same_memory, reduced, a_slice)


def relate_numbers(results: list[tuple[float, int, Sizes]]) -> Finding | None:
    """The same for counts: (yours, expected, sizes) of several inputs at once."""
    yours, expected, sizes = zip(*results, strict=True)
    ratios = [y / e for y, e in zip(yours, expected, strict=True)]
    if max(ratios) - min(ratios) < 1e-9 and ratios[0] not in (0, 1):
        return Finding(
            "relation:factor", f"Your number is {number(ratios[0])} times the right one, always."
        )
    gaps = [y - e for y, e in zip(yours, expected, strict=True)]
    letters = list(sizes[0])
    for powers in sorted(product(range(4), repeat=len(letters)), key=sum):
        if sum(powers) > 4:
            continue
        terms = [
            math.prod(s[name] ** p for name, p in zip(letters, powers, strict=True)) for s in sizes
        ]
        shares = {round(gap / term, 9) for gap, term in zip(gaps, terms, strict=True)}
        share = shares.pop()
        if not shares and share and (share * 2).is_integer():
            term = "·".join(
                name + {1: "", 2: "²", 3: "³"}[p]
                for name, p in zip(letters, powers, strict=True)
                if p
            )
            much, word = number(abs(share)), "too many" if share > 0 else "missing"
            amount = f"{much}·{term}" if term and much != "1" else term or much
            return Finding("relation:gap", f"Always {amount} {'are' if term else ''} {word}.")
    return None
