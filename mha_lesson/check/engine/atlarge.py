"""What all trials together show, where no single result says what was done."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.compare import COARSE, Difference, close
from mha_lesson.check.engine.naming import MOST, Trial, only
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Returned, run


def at_large(answer: Callable[..., Any], trials: list[Trial]) -> Finding | None:
    """What goes wrong, seen from how it differs, and on which inputs."""
    _, wrong = _apart(trials)
    if all(_coarse(t) for t in wrong):
        return Finding(
            "coarse",
            "Your numbers come near the right ones, to about two digits, and not closer.",
            "Are they rounded on the way, or computed in a smaller dtype, or is a small number "
            "added?",
        )
    if words := _one_for_all(wrong):
        return Finding("one_for_all", words, "Which line looks at one of them only?")
    again = replace(wrong[0].case, inputs=tuple(map(_laid_otherwise, wrong[0].case.inputs)))
    other = Trial(again, wrong[0].expected, run(answer, again.inputs, set()))
    if _returned(other) and _returned(wrong[0]) and other.difference is None:
        return Finding(
            "hangs_on_memory",
            "With the same numbers laid out in memory in another order it comes out right: your "
            "code reads numbers where they lie, and one shape can lie there in several ways.",
            "Which call looks at memory (`as_strided`, `storage`, strides) and not at axes?",
        )
    return None


def _one_for_all(wrong: list[Trial]) -> str:
    """Whether what is right for position 0 of an axis stands at all its positions."""
    found = [t.difference for t in wrong]
    for axis in range(4):
        if all(d is not None and d.kind == "values" and _repeats(d, axis) for d in found):
            return f"What is right at position 0 of axis {axis} stands at all positions of it."
    return ""


def _repeats(found: Difference, axis: int) -> bool:
    right = found.expected
    if not isinstance(right, Tensor) or right.ndim <= axis or right.shape[axis] == 1:
        return False
    return close(found.yours, right.narrow(axis, 0, 1).expand_as(right), COARSE / 1e3)


def where_right(trials: list[Trial]) -> str:
    """On which inputs all is right, as a sentence; empty where that cannot be said in short."""
    right, wrong = _apart(trials)
    if not right:
        return ""
    of_right, of_wrong = ({_axes(t) for t in some} for some in (right, wrong))
    if max(of_right) == 2 < min(of_wrong):
        return "For single matrices all is right; it goes wrong with axes (B, h) in front of them."
    if of_right.isdisjoint(of_wrong):
        return f"It is right where the first input has {' or '.join(map(str, of_right))} axes."
    if words := only(trials):
        return f"It goes wrong {words}, and is right elsewhere."
    also_wrong = {t.case.note for t in wrong}
    notes = Counter(t.case.note for t in right if t.case.note not in also_wrong)
    often = [note for note, n in notes.items() if n > 1] or [*notes]
    if "" in often or not 0 < len(often) <= MOST:
        return ""
    return f"Of what was tried, it is right {', and '.join(often)}."


def _apart(trials: list[Trial]) -> tuple[list[Trial], list[Trial]]:
    right = [t for t in trials if t.difference is None]
    return right, [t for t in trials if t.difference is not None]


def _axes(trial: Trial) -> int:
    first = trial.case.inputs[0]
    return first.ndim if isinstance(first, Tensor) else 0


def _returned(trial: Trial) -> bool:
    return isinstance(trial.outcome, Returned)


def _laid_otherwise(x: Any) -> Any:
    """The same tensor, contiguous if it was not, and else with two axes exchanged in memory."""
    if not isinstance(x, Tensor) or x.ndim < 3:
        return x
    return x.transpose(1, 2).contiguous().transpose(1, 2) if x.is_contiguous() else x.contiguous()


def _coarse(trial: Trial) -> bool:
    found = trial.difference
    if found is None or found.kind != "values" or not isinstance(found.expected, Tensor):
        return False
    return found.expected.dtype != torch.bool and close(found.yours, found.expected, COARSE)
