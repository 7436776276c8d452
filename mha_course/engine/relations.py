"""How a wrong result relates to the right one, and to its inputs, where no slip explains it.

A relation takes (yours, expected, sizes) and gives the sentences that are true of the two. Only
what is true on every input is said: on one of them √d_k and √2 may be the same. An experiment
changes a part of an input, and sees what changes with it: that is true whatever happens in between.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations, product
from operator import mul
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.attempt import Attempt, Trial, most_telling
from mha_course.engine.compare import COARSE, TOLERANCE, close, close_cells
from mha_course.engine.inputs import normal
from mha_course.engine.report import Finding, number
from mha_course.engine.safely import Returned

Sizes = Mapping[str, int]
Sample = tuple[Tensor, Tensor, Sizes]
_TIGHT = TOLERANCE[torch.float64]
FEW = 4  # smaller results are left out: there relations hold by chance


def relate(samples: Sequence[Sample]) -> Finding | None:
    """The first sentence that is true of every sample."""
    prepared = [_prepare(sample) for sample in samples]
    alike = all(yours.shape == expected.shape for yours, expected, _ in prepared)
    for relation in _SAME_SHAPE if alike else _OTHER_SHAPE:
        texts = relation(*prepared[0])
        for sample in prepared[1:]:
            if sample[1].numel() < FEW and relation is not factor:
                continue
            texts = [s for s in texts if s in relation(*sample)] if texts else []
        if texts:
            return Finding(f"relation:{relation.__name__}", texts[0], ASKS.get(relation, ""))
    return None


def _prepare(sample: Sample) -> Sample:
    """Masks stay masks, and everything else becomes float64."""
    yours, expected, sizes = sample
    if yours.dtype == expected.dtype == torch.bool:
        return sample
    return yours.detach().double(), expected.detach().double(), sizes


def factor(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    """A constant factor, in letters where it is one."""
    if yours.dtype == torch.bool or not (expected.abs() > 1e-9).any():
        return []
    at = expected.abs().flatten().argmax()
    ratio = float(yours.flatten()[at] / expected.flatten()[at])
    if not math.isfinite(ratio) or abs(ratio - 1) < 1e-4 or ratio == 0:
        return []
    if not close(yours, expected * ratio, _TIGHT):
        return []
    sign, words = "−" * (ratio < 0), []
    for (name, n), (power, spoken) in product(sizes.items(), _POWERS.items()):
        for share in (1, 2, 0.5):
            if n > 1 and math.isclose(abs(ratio), share * n**power, rel_tol=1e-4):
                words.append(sign + {1: "", 2: "2·", 0.5: "½·"}[share] + spoken.format(name))
    words.append(number(ratio))
    texts = [f"Every number of yours is {word} times the right one." for word in words]
    if expected.ndim:
        texts.append("Every number of yours is the right one times the same factor.")
    return texts


_POWERS = {1: "{}", -1: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2: "{}²", -2: "1/{}²"}


def moved_axes(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    """The right numbers, with axes in another order."""
    if not 1 < expected.ndim < 6:
        return []
    names, texts = [f"axis {i}" for i in range(expected.ndim)], []
    for order in permutations(range(expected.ndim)):
        turned = expected.permute(order)
        if order == tuple(range(expected.ndim)) or turned.shape != yours.shape:
            continue
        if close(yours, turned, _TIGHT):
            spoken = ", ".join(names[i] for i in order)
            texts.append(f"These are the right numbers with the axes in the wrong order: {spoken}.")
            for axis in range(expected.ndim):  # said alike whatever axes are in front
                if list(order) == [axis, *(i for i in range(expected.ndim) if i != axis)]:
                    put = f"axis {axis - expected.ndim} put first"
                    texts.append(f"These are the right numbers with {put}.")
    return texts


def shuffled(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    if yours.dtype == torch.bool or yours.numel() < 4:
        return []
    if close(yours.flatten().sort().values, expected.flatten().sort().values, _TIGHT):
        return ["These are the right numbers in the wrong places: only their order is lost."]
    return []


def row_factors(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    """Rows that are right but for a factor of their own."""
    if yours.dtype == torch.bool or not yours.ndim or expected.shape[-1] < 2:
        return []
    at = expected.abs().argmax(-1, keepdim=True)
    ratio = (yours.gather(-1, at) / expected.gather(-1, at)).nan_to_num(1.0, 0.0, 0.0)
    if (ratio == 0).any() or not close(yours, expected * ratio, _TIGHT):
        return []
    texts = ["Every row of yours is the right one times a factor of its own."]
    sums, ones = yours.sum(-1), expected.sum(-1)
    if close(ones, (ones > 0.5).double(), _TIGHT):
        lacking = (sums < ones + 1e-9).all()
        texts.insert(0, f"The rows sum to {'less' if lacking else 'something other'} than 1.")
    return texts


def partly_right(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    """Right everywhere but in a few slices of one axis, or only there."""
    cells, texts = close_cells(yours, expected, _TIGHT), []
    for axis in range(expected.ndim):
        n, name = expected.shape[axis], f"axis {axis - expected.ndim}"
        right = cells.movedim(axis, 0).reshape(n, -1).all(1).tolist()
        wrong = [i for i, fine in enumerate(right) if not fine]
        if not 0 < len(wrong) < n:
            continue
        right_but = f"Along {name} everything is right except"
        texts += [f"{right_but} position {i}." for i in wrong if len(wrong) == 1]
        if wrong == [n - 1]:
            texts.append(f"{right_but} the last position.")
        fine = [i for i in range(n) if right[i]]
        texts += [f"Along {name} only position {i} is right." for i in fine if len(fine) == 1]
        if fine == [n - 1]:
            texts.append(f"Along {name} only the last position is right.")
        texts.append(f"Along {name} some positions are right and others are not.")
    return texts


def near(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    if expected.dtype == torch.bool or not close(yours, expected, COARSE):
        return []
    return ["They are close to the right ones, to about two digits, as rounded numbers are."]


def same_memory(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    if yours.numel() != expected.numel() or yours.dtype != expected.dtype:
        return []
    if close(yours.reshape(-1), expected.reshape(-1), _TIGHT):
        return ["These are the right numbers in the right order, in a different shape."]
    return shuffled(yours, expected, sizes)


def a_slice(yours: Tensor, expected: Tensor, sizes: Sizes) -> list[str]:
    """One position of one axis only, or all but the first or last."""
    texts = []
    for axis in range(-expected.ndim, 0):
        n = expected.shape[axis]
        for i in range(n):
            part = expected.select(axis, i)
            if yours.shape == part.shape and close(yours, part, _TIGHT):
                texts.append(f"Your result holds only position {i} along axis {axis}.")
        for start, lost in ((0, "last"), (1, "first")):
            rest = expected.narrow(axis, start, n - 1)
            if n > 1 and yours.shape == rest.shape and close(yours, rest, _TIGHT):
                texts.append(f"The {lost} position along axis {axis} is missing.")
    return texts


Relation = Callable[[Tensor, Tensor, Sizes], list[str]]
_SAME_SHAPE: tuple[Relation, ...] = (factor, moved_axes, shuffled, row_factors, partly_right, near)
_OTHER_SHAPE: tuple[Relation, ...] = (moved_axes, same_memory, a_slice)
ASKS: dict[Relation, str] = {
    factor: "Which factor is missing, or stands there once too often?",
    moved_axes: "Which line should bring the axes into their order?",
    shuffled: "Which line moves numbers, and does it keep together what belongs together?",
    row_factors: "By what is each row divided in the end, and by what should it be?",
    partly_right: "What is special about these positions?",
    near: "Which line rounds, or computes with fewer digits?",
}


def relate_numbers(results: Sequence[tuple[int, int, Sizes]]) -> Finding | None:
    """The same for counts: (yours, expected, sizes) of several inputs at once."""
    ratios = {Fraction(yours, expected) for yours, expected, _ in results}
    if len(ratios) == 1 and not ratios & {0, 1}:
        times = number(float(ratios.pop()))
        return Finding("relation:factor", f"Your number is always {times} times the right one.")
    terms = _terms([sizes for *_, sizes in results])
    sides = {yours > expected for yours, expected, _ in results if yours != expected}
    gaps = [abs(yours - expected) for yours, expected, _ in results]
    for n in (1, 2):
        if len(sides) == 1 and (gap := _sum_of(gaps, terms, n)):
            word = "many" if sides == {True} else "few"
            return Finding("relation:gap", f"That is {gap} too {word}, on every input.")
        if sides and (formula := _sum_of([yours for yours, *_ in results], terms, n)):
            return Finding("formula", f"On every input your number is {formula}.")
    return None


def doubled(attempt: Attempt, trial: Trial) -> Finding | None:
    """Of a count: the first argument that it grows with as it should not."""
    given, problem = trial.case.inputs, attempt.problem
    if not isinstance(trial.outcome, Returned) or not (yours := trial.outcome.value):
        return None
    for i, name in enumerate(problem.arguments):
        inputs = (*given[:i], 2 * given[i], *given[i + 1 :])
        larger = replace(trial, case=replace(trial.case, inputs=inputs))
        outcome = larger.given_by(attempt.bound.answer).outcome
        if isinstance(outcome, Returned) and type(outcome.value) is int:
            right, own = problem.result_of((), inputs) / trial.expected, outcome.value / yours
            if not math.isclose(right, own, rel_tol=1e-3):
                does = f"When `{name}` is doubled, the right number {_grows(right)}, and yours "
                asks = f"Where should `{name}` stand among your terms?"
                return Finding("values", f"{does}{_grows(own)}.", asks)
    return None


def _grows(times: float) -> str:
    return "stays as it is" if times == 1 else f"becomes {number(times)} times as large"


def _terms(sizes: Sequence[Sizes]) -> dict[str, list[int]]:
    """Products of sizes, the simplest first; h · d_k is left out where it is d_model."""
    letters = list(sizes[0])
    tied = all(s.get("d_model") == s.get("n_heads", 0) * s.get("d_k", 0) for s in sizes)
    terms = {}
    for powers in sorted(product(range(4), repeat=len(letters)), key=sum):
        used = [(x, p) for x, p in zip(letters, powers, strict=True) if p]
        if sum(powers) <= 4 and not (tied and {"n_heads", "d_k"} <= {x for x, _ in used}):
            name = "·".join(x + ["", "", "²", "³"][p] for x, p in used)
            terms[name] = [math.prod(s[x] ** p for x, p in used) for s in sizes]
    return terms


def _sum_of(wanted: list[int], terms: dict[str, list[int]], n: int) -> str:
    """Numbers as a sum of n terms, one or two, each with a factor; empty if they are none."""
    for some in combinations(terms, n):
        rows = [[terms[x][i] for x in some] for i in range(len(wanted))]
        factors = _factors(rows[:2], wanted[:2])
        sums = (sum(map(mul, factors, row)) for row in rows)
        if factors and wanted == [*sums]:
            parts = zip(factors, some, strict=True)
            terms_of = (("" if f == 1 and x else number(float(f)), x) for f, x in parts)
            return " + ".join("·".join(filter(None, words)) for words in terms_of)
    return ""


def _factors(rows: list[list[int]], wanted: list[int]) -> list[Fraction]:
    """The factors that two inputs leave: positive halves up to 24."""
    if len(rows[0]) == 1:
        factors = [Fraction(wanted[0], rows[0][0])]
    else:
        (a, b), (c, d) = rows
        if not (base := a * d - b * c):
            return []
        (x, y) = wanted
        factors = [Fraction(x * d - b * y, base), Fraction(a * y - x * c, base)]
    return factors if all(0 < f <= 24 and f.denominator <= 2 for f in factors) else []


# --- experiments: which input changes which part of the result -----------------------------------


def experiment(attempt: Attempt, trials: list[Trial]) -> Finding | None:
    """What stays where it should change, changes where it should stay, or does not double.

    Tried on the most telling of the trials; None where all changes as it should, or where the
    result has another shape.
    """
    trial, problem = most_telling(trials), attempt.problem
    differs = trial.difference
    if differs is None or differs.kind != "values" or not isinstance(differs.expected, Tensor):
        return None
    if differs.expected.dtype == torch.bool or not differs.yours.isfinite().all():
        return None  # masks, NaN and ∞ change too seldom to tell anything
    before, part = (differs.yours, differs.expected), differs.part
    axes = problem.results[part].axes
    result = "your result" if len(problem.results) == 1 else f"your {problem.results[part].short}"

    def seen(at: int, x: Tensor) -> list[Any]:
        """What the answer and the right one give with another input; empty if a shape differs."""
        inputs = (*trial.case.inputs[:at], x, *trial.case.inputs[at + 1 :])
        right, case = problem.result_of((), inputs), replace(trial.case, inputs=inputs)
        other = replace(trial, case=case, expected=right).given_by(attempt.bound.answer).outcome
        both = (other.value if isinstance(other, Returned) else None, right)
        parts = [x[part] if isinstance(x, (tuple, list)) else x for x in both]
        fits = (isinstance(x, Tensor) and x.shape == before[1].shape for x in parts)
        return parts if all(fits) else []

    inputs = [
        (i, f"`{problem.arguments[i]}`", x)
        for i, x in enumerate(trial.case.inputs)
        if isinstance(x, Tensor) and x.is_floating_point()
    ]
    too_much: Finding | None = None
    for i, name, x in inputs:
        for what, changed in _changes(x, trial.case.sizes):
            if not (pair := seen(i, changed)):
                continue
            yours, right = (~close_cells(*p, _TIGHT) for p in zip(pair, before, strict=True))
            for where, moves, should in _positions(yours, right, axes, trial.case.sizes):
                does = f"When {what}{name} changes, {where}{result} "
                if should and not moves:
                    does += "stays as it is, but it should change."
                    return Finding("stays", does, "Which line should bring the change there?")
                if moves and not should and too_much is None:
                    does += "changes too, but it should stay as it is."
                    too_much = Finding("changes_too", does, "Which line brings the two together?")
    for i, name, x in inputs if too_much is None else ():
        pair = seen(i, 2 * x)
        if pair and close(pair[1], 2 * before[1], _TIGHT) > close(pair[0], 2 * before[0], _TIGHT):
            stays = "stay as they are" if close(pair[0], before[0], _TIGHT) else "do not"
            does = f"When all of {name} is doubled, the right numbers double, but yours {stays}."
            return Finding("not_doubled", does, "Which operations carry a doubling through?")
    return too_much


def _changes(x: Tensor, sizes: Sizes) -> Iterator[tuple[str, Tensor]]:
    """All of it, and the first and the last position of every axis, with other numbers."""
    other = x + normal(*x.shape, seed=98)
    yield "all of ", other
    for axis, n in enumerate(x.shape):
        along = _letter(n, sizes) or f"axis {axis}"
        for place in {0, n - 1} if n > 1 else ():
            changed = x.clone()
            changed.select(axis, place).copy_(other.select(axis, place))
            yield f"position {place} along {along} of ", changed


def _letter(n: int, sizes: Sizes) -> str:
    """The axis of this length, if there is one."""
    names = [name for name, size in sizes.items() if size == n]
    return names[0] if len(names) == 1 else ""


def _positions(
    yours: Tensor, right: Tensor, axes: Sequence[str], sizes: Sizes
) -> Iterator[tuple[str, bool, bool]]:
    """Of the whole and of each position of every axis: whether it moves, and whether it should."""
    yield "", bool(yours.any()), bool(right.any())
    for axis in range(-right.ndim, 0):
        rows = [m.movedim(axis, 0).reshape(m.shape[axis], -1).any(1) for m in (yours, right)]
        named = axes[axis] if -axis <= len(axes) else "..."
        along = _letter(right.shape[axis], sizes) or f"axis {axis}" if named == "..." else named
        for place, (moves, should) in enumerate(zip(*rows, strict=True)):
            yield f"position {place} along {along} of ", bool(moves), bool(should)
