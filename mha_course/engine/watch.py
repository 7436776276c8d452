"""Which of the learner's lines: the first that makes NaN, or whose numbers leave float64's."""

import linecache
import sys
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_course.engine import safely
from mha_course.engine.attempt import Attempt
from mha_course.engine.compare import allowed, close
from mha_course.engine.device import flat
from mha_course.engine.problem import Case

MOST_WATCHED = 400  # results: a loop over all entries computes many


class _Watch(TorchFunctionMode):
    """Keeps what is computed, with the learner's line."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files = files
        self.seen: list[tuple[Tensor, int]] = []
        self.nan: tuple[int, str] = (0, "")  # the first line that makes NaN, and by what

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if len(self.seen) < MOST_WATCHED and (line := self._line()):
            for x in flat(result):
                if isinstance(x, Tensor) and x.numel() > 1 and not x.is_meta:
                    self.seen.append((x.detach().clone(), line))
                if not self.nan[0] and _has_nan(x) and not any(map(_has_nan, flat((args, kwargs)))):
                    name = getattr(func, "__name__", "").strip("_")
                    rises = any(isinstance(y, Tensor) and y.isposinf().any() for y in flat(args))
                    self.nan = line, name + "+∞" * (rises and name == "softmax")
        return result

    def _line(self) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self.files:
            if frame.f_code.co_filename == safely.__file__:
                return 0  # not the learner's: inputs are copied there
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def watched(attempt: Attempt, case: Case) -> _Watch:
    watch = _Watch({code.co_filename for code in attempt.codes})
    with watch:
        safely.run(attempt.bound.answer, case.inputs, attempt.codes)
    return watch


def _has_nan(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_meta and bool(x.detach().isnan().any())


def where_nan(attempt: Attempt, case: Case) -> str:
    """A sentence about the line in which NaN comes up; empty if that is not seen."""
    number, name = watched(attempt, case).nan
    for words, names in _MAKES_NAN.items():
        if number and name in names.split():
            return f"It first appears in line {number}, which {words}."
    return ""


_MAKES_NAN = {
    "takes the root of a negative number": "sqrt rsqrt pow",
    "takes the logarithm of a negative number": "log log2 log10 log1p",
    "takes the softmax of a row of nothing but −∞": "softmax",
    "takes the softmax of a row that holds +∞": "softmax+∞",
    "divides 0 by 0, or ∞ by ∞": "div truediv true_divide rtruediv rdiv",
    "subtracts ∞ from ∞": "sub rsub",
    "adds ∞ and −∞": "add radd",
    "multiplies 0 by ∞": "mul rmul",
}


def spoken_line(attempt: Attempt, line: int) -> str:
    """Its number, and what stands there."""
    files = {code.co_filename for code in attempt.codes}
    text = linecache.getline(files.pop(), line).strip() if len(files) == 1 else "…"
    return f"line {line}, `{text}`"


def leaves_float64(attempt: Attempt, exact: Case, rounded: Case) -> str:
    """A sentence about the first line whose numbers leave those in float64; or empty."""
    seen = (watched(attempt, case).seen for case in (exact, rounded))
    for (right, line), (yours, other) in zip(*seen, strict=False):
        if line != other or yours.shape != right.shape:
            return ""
        if not close(yours, right, allowed(yours.dtype, rounded.tolerance)):
            return (
                f"After {spoken_line(attempt, line)}, the numbers are "
                "further from those in float64 than one rounding would bring them."
            )
    return ""
