"""What hangs on what: a part of an input is changed, and what changes with it is seen.

What is said was seen, on one input: it is true whatever the answer does in between.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.compare import TOLERANCE, close, close_cells
from mha_lesson.check.engine.exercise import Exercise
from mha_lesson.check.engine.inputs import normal
from mha_lesson.check.engine.naming import Trial, part_of
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Returned

_TIGHT = TOLERANCE[torch.float64]


def experiment(exercise: Exercise, answer: Callable[..., Any], trial: Trial) -> Finding | None:
    """What stays where it should change, changes where it should stay, or does not double.

    None where all hangs together as it should, or where the result has another form.
    """
    found = trial.difference
    if found is None or found.kind != "values" or not isinstance(found.expected, Tensor):
        return None
    if found.expected.dtype == torch.bool or not found.yours.isfinite().all():
        return None  # which move seldom, or not at all
    before, part = (found.yours, found.expected), found.part
    letters = exercise.gives[part].partition("(")[2].rstrip(",)").split(", ")
    mine = part_of(exercise, found).replace("Your", "your")

    def seen(at: int, x: Tensor) -> list[Any]:
        """What the answer and the right one give with another input; empty if it has no form."""
        inputs = (*trial.case.inputs[:at], x, *trial.case.inputs[at + 1 :])
        right, case = exercise.variant((), inputs), replace(trial.case, inputs=inputs)
        other = replace(trial, case=case, expected=right).again(answer).outcome
        both = (other.value if isinstance(other, Returned) else None, right)
        parts = [x[part] if isinstance(x, (tuple, list)) else x for x in both]
        fits = (isinstance(x, Tensor) and x.shape == before[1].shape for x in parts)
        return parts if all(fits) else []

    inputs = [
        (i, f"`{exercise.inputs[i]}`", x)
        for i, x in enumerate(trial.case.inputs)
        if isinstance(x, Tensor) and x.is_floating_point()
    ]
    too_much: Finding | None = None
    for i, name, x in inputs:
        for what, changed in _changes(x, trial.case.sizes):
            if not (pair := seen(i, changed)):
                continue
            yours, right = (~close_cells(*p, _TIGHT) for p in zip(pair, before, strict=True))
            for where, moves, should in _places(yours, right, letters, trial.case.sizes):
                does = f"When {what}{name} changes, {where}{mine} "
                if should and not moves:
                    does += "stays as it is, and it should change."
                    return Finding("stays", does, "Which line should bring it there?")
                if moves and not should and too_much is None:
                    does += "changes too, and it should stay as it is."
                    too_much = Finding("changes_too", does, "Which line brings the two together?")
    for i, name, x in inputs if too_much is None else ():
        pair = seen(i, 2 * x)
        if pair and close(pair[1], 2 * before[1], _TIGHT) > close(pair[0], 2 * before[0], _TIGHT):
            stays = "stay as they are" if close(pair[0], before[0], _TIGHT) else "do not"
            does = f"When all of {name} is doubled the right numbers double, and yours {stays}."
            return Finding("not_doubled", does, "By which operations do numbers double with it?")
    return too_much


def _changes(x: Tensor, sizes: Mapping[str, int]) -> Iterator[tuple[str, Tensor]]:
    """All of it, and the first and the last position of every axis, with other numbers."""
    other = x + normal(*x.shape, seed=98)
    yield "all of ", other
    for axis, n in enumerate(x.shape):
        along = _letter(n, sizes) or f"axis {axis}"
        for place in {0, n - 1} if n > 1 else ():
            changed = x.clone()
            changed.select(axis, place).copy_(other.select(axis, place))
            yield f"position {place} along {along} of ", changed


def _letter(n: int, sizes: Mapping[str, int]) -> str:
    """The axis of this length, if there is one."""
    names = [name for name, size in sizes.items() if size == n]
    return names[0] if len(names) == 1 else ""


def _places(
    yours: Tensor, right: Tensor, letters: list[str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, bool, bool]]:
    """Of the whole and of each position of every axis: whether it moves, and whether it should."""
    yield "", bool(yours.any()), bool(right.any())
    for axis in range(-right.ndim, 0):
        rows = [m.movedim(axis, 0).reshape(m.shape[axis], -1).any(1) for m in (yours, right)]
        named = dict(enumerate(reversed(letters), 1)).get(-axis, "...")
        along = _letter(right.shape[axis], sizes) or f"axis {axis}" if named == "..." else named
        for place, (moves, should) in enumerate(zip(*rows, strict=True)):
            yield f"position {place} along {along} of ", bool(moves), bool(should)
