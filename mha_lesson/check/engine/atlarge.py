"""What all trials together show, where no single result says what was done."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.compare import close
from mha_lesson.check.engine.naming import Trial
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Returned, run

COARSE = 2e-2  # half precision, and rounding to two digits
MOST = 3  # kinds of inputs that a sentence can list


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


def where_right(trials: list[Trial]) -> str:
    """On which inputs all is right, as a sentence; empty where that cannot be said in short."""
    right, wrong = _apart(trials)
    if not right:
        return ""
    if max(map(_axes, right)) == 2 < min(map(_axes, wrong)):
        return "For single matrices all is right; it goes wrong with axes (B, h) in front of them."
    also_wrong = {t.case.note for t in wrong}
    notes = Counter(t.case.note for t in right if t.case.note not in also_wrong)
    often = [note for note, n in notes.items() if n > 1] or [*notes]
    if "" in often or not 0 < len(often) <= MOST:
        return ""
    return f"It is right {', and '.join(often)}."


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
