"""How far an answer is right: which values of the right answer its own lines come to.

The right steps that have words are the stages; what the learner's code computes is watched as it
runs, line by line. Where the last stage that it reaches stands, all is right up to there.
"""

import linecache
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_lesson.check.engine import safely
from mha_lesson.check.engine.compare import COARSE, TOLERANCE, allowed, close, close_cells
from mha_lesson.check.engine.elsewhere import flat
from mha_lesson.check.engine.exercise import Case, Exercise
from mha_lesson.check.engine.safely import Raised, run

MOST = 400  # results that are looked at: a loop over all entries computes many


class _Watch(TorchFunctionMode):
    """Keeps what is computed, with the learner's line."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files = files
        self.seen: list[tuple[Tensor, int]] = []
        self.nan: tuple[int, str] = (0, "")  # the first line that makes NaN, and by what

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if len(self.seen) < MOST and (line := self._line()):
            for x in flat(result):
                if isinstance(x, Tensor) and x.numel() > 1 and not x.is_meta:
                    self.seen.append((x.detach().clone(), line))
                if not self.nan[0] and _has_nan(x) and not any(map(_has_nan, flat((args, kwargs)))):
                    self.nan = line, getattr(func, "__name__", "").strip("_")
        return result

    def _line(self) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self.files:
            if frame.f_code.co_filename == safely.__file__:
                return 0  # not the learner's: inputs are copied there
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def reached(
    exercise: Exercise, answer: Callable[..., Any], case: Case, codes: set[CodeType]
) -> tuple[str, bool]:
    """A sentence about the last stage that the answer comes to, empty if there is none, and
    whether it is there in part only."""
    stages: dict[str, Any] = {}  # of a loop the last turn

    def kept(step: Any, words: str) -> Any:
        def and_keep(*inputs: Any) -> Any:
            result = step(*inputs)
            stages.pop(words, None)
            stages[words] = result
            return result

        return and_keep

    steps = {
        p.name: kept(p.default, p.default.__doc__)
        for p in exercise.steps
        if (p.default.__doc__ or "").startswith("the ") or (p.default.__doc__ or "")[:5] == "what "
    }
    with torch.no_grad():
        final = exercise.right(*case.inputs, **steps)
    watch = _Watch({code.co_filename for code in codes})
    with watch:
        outcome = run(answer, case.inputs, codes)
    given = [(x, 0) for x in flat(case.inputs) if isinstance(x, Tensor)]
    known = [(w, r) for w, r in stages.items() if r is not final and not _is_among(r, given)]
    for words, result in reversed(known):
        lines = [_found(x, watch.seen) for x in flat(result) if isinstance(x, Tensor)]
        if lines and all(lines):
            then = " It stops then." if isinstance(outcome, Raised) else AND_THEN
            if isinstance(final, tuple):
                then = ""  # a part of it may be right
            return f"By line {max(lines)} the right numbers are there for {words}.{then}", False
    parts = ((words, _parts(r, watch.seen)) for words, r in known if isinstance(r, Tensor))
    for words, (columns, line) in parts:
        if columns and not all(columns):
            there = ", ".join(str(i) for i, fine in enumerate(columns) if fine)
            return (
                f"By line {line} the right numbers are there for a part of {words}: along the last "
                f"axis for positions {there} of 0 to {len(columns) - 1}."
            ), True
    return "", False


AND_THEN = " What comes of them is not."


def _has_nan(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_meta and bool(x.detach().isnan().any())


def where_nan(answer: Callable[..., Any], case: Case, codes: set[CodeType]) -> str:
    """A sentence about the line in which NaN comes up; empty if that is not seen."""
    watch = _Watch({code.co_filename for code in codes})
    with watch:
        run(answer, case.inputs, codes)
    number, name = watch.nan
    for words, names in _MAKES_NAN.items():
        if number and name in names.split():
            return f"It comes up in line {number}, which {words}."
    return ""


_MAKES_NAN = {
    "takes the root of a negative number": "sqrt rsqrt pow",
    "takes the logarithm of a negative number": "log log2 log10 log1p",
    "takes the softmax of a row of nothing but −∞": "softmax",
    "divides 0 by 0, or ∞ by ∞": "div truediv true_divide rtruediv rdiv",
    "subtracts ∞ from ∞": "sub rsub",
    "adds ∞ and −∞": "add radd",
    "multiplies 0 by ∞": "mul rmul",
}


def parting(
    answer: Callable[..., Any], exact: Case, rounded: Case, codes: set[CodeType]
) -> tuple[int, str]:
    """The learner's first line whose numbers leave those in float64, and the line; (0, "") if it
    cannot be told."""
    seen = []
    for case in (exact, rounded):
        watch = _Watch({code.co_filename for code in codes})
        with watch:
            run(answer, case.inputs, codes)
        seen.append(watch.seen)
    for (right, line), (mine, other) in zip(*seen, strict=False):
        if line != other or mine.shape != right.shape:
            return 0, ""
        if not close(mine, right, allowed(mine.dtype, rounded.tolerance)):
            files = {code.co_filename for code in codes}
            return line, linecache.getline(files.pop(), line).strip() if len(files) == 1 else ""
    return 0, ""


def _parts(right: Tensor, seen: list[tuple[Tensor, int]]) -> tuple[list[bool], int]:
    """Which columns of a stage are there, in pieces of it, and by which line; ([], 0) if none."""
    there, last, n = [False] * right.shape[-1], 0, right.shape[-1]
    for x, line in seen:
        if x.shape[:-1] != right.shape[:-1] or not 1 < x.shape[-1] <= n or right.ndim < 2:
            continue
        for start in range(n - x.shape[-1] + 1):
            piece = right[..., start : start + x.shape[-1]]
            if x.shape[-1] == n and close(x, piece, COARSE):
                continue  # nearly right all over: no part of it is
            cells = close_cells(x, piece, TOLERANCE[torch.float64])
            columns = cells.flatten(0, -2).all(0).tolist()
            if any(columns) and (x.shape[-1] == n or all(columns)):
                for i, fine in enumerate(columns, start):
                    there[i], last = there[i] or fine, last if there[i] or not fine else line
    return (there, last) if last else ([], 0)


def _is_among(result: Any, given: list[tuple[Tensor, int]]) -> bool:
    """Whether a stage has an input's numbers: to come to those is nothing."""
    parts = [x for x in flat(result) if isinstance(x, Tensor)]
    return all(any(_found(x, [(g, 1)]) for g, _ in given) for x in parts)


def _found(x: Tensor, seen: list[tuple[Tensor, int]]) -> int:
    """The first line that comes to these numbers, in whatever shape; 0 if none does."""
    for mine, line in seen:
        alike = mine.numel() == x.numel() and mine.is_floating_point() == x.is_floating_point()
        if alike and close(mine.reshape(-1), x.reshape(-1), TOLERANCE[torch.float64]):
            return line
    return 0
