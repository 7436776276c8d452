"""What travels from one namer to the next: an answer, and what it did on every input."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from mha_course.engine import errors
from mha_course.engine.compare import Difference, difference, same
from mha_course.engine.problem import Bound, Case, Problem
from mha_course.engine.report import Finding
from mha_course.engine.safely import Outcome, Raised, Returned, run
from mha_course.engine.source import Source

T = TypeVar("T")
LISTED = 3  # kinds of inputs that a sentence can list


@dataclass(frozen=True)
class Trial:
    """One case, the right result, and what the answer did."""

    case: Case
    expected: Any
    outcome: Outcome

    @cached_property
    def difference(self) -> Difference | None:
        if isinstance(self.outcome, Raised):
            return Difference("raised", self.outcome, self.expected)
        try:
            return difference(self.outcome.value, self.expected, self.case.tolerance)
        except Exception:  # an object that only looks like a tensor
            return Difference("type", self.outcome.value, self.expected)

    @cached_property
    def only_float_width(self) -> bool:
        """Right values in another floating dtype."""
        differs, outcome = self.difference, self.outcome
        if not isinstance(outcome, Returned) or differs is None or differs.kind != "dtype":
            return False
        floats = differs.yours.is_floating_point()
        return floats and same(outcome.value, self.expected, self.case.tolerance)

    def gives(self, result: Any) -> bool:
        """Whether this is what the answer gave."""
        outcome, tolerance = self.outcome, self.case.tolerance
        return isinstance(outcome, Returned) and same(outcome.value, result, tolerance)

    def given_by(self, answer: Callable[..., Any]) -> "Trial":
        """The same case, tried with another answer."""
        return Trial(self.case, self.expected, run(answer, self.case.inputs, set()))


@dataclass(frozen=True, eq=False)
class Attempt:
    """An answer, what it did on every input, and the results of searches about it."""

    problem: Problem
    bound: Bound
    source: Source
    codes: set[Any]
    trials: list[Trial]
    _results: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def remembered(self, search: "Callable[[Attempt], T]") -> T:
        """What a search gives, which runs once, whoever asks for it."""
        if search not in self._results:
            self._results[search] = search(self)
        return self._results[search]

    @cached_property
    def wrong(self) -> list[Trial]:
        return [t for t in self.trials if t.difference is not None]

    @cached_property
    def raised(self) -> list[Trial]:
        """Those that stopped; first where a name is unknown, which hangs on no input."""
        stopped = [t for t in self.trials if isinstance(t.outcome, Raised)]
        return sorted(stopped, key=lambda t: getattr(t.outcome, "kind", "") != "NameError")

    @cached_property
    def shown(self) -> Trial:
        return most_telling(self.wrong)

    @property
    def stops(self) -> bool:
        """Whether the error is what the report has to explain."""
        return isinstance(self.shown.outcome, Raised) or 2 * len(self.raised) > len(self.trials)

    @cached_property
    def first_error(self) -> Finding:
        """What its first error means, and on which kind of inputs it came, if on one alone."""
        first = self.raised[0].outcome
        assert isinstance(first, Raised)
        notes = {t.case.note for t in self.raised}
        one_kind = len(notes) == 1 and len(self.raised) < len(self.trials)
        return errors.explain(first, notes.pop() if one_kind else "")


def most_telling(wrong: list[Trial]) -> Trial:
    """The trial to show: one that returned, whose sizes all differ, and of these the smallest.

    Right values in another dtype come last.
    """

    def size(trial: Trial) -> tuple[bool, bool, bool, int]:
        tensors = [x for x in trial.case.inputs if isinstance(x, Tensor)]
        axes = list(trial.case.sizes.values())
        vague = 1 in axes or len(set(axes)) < len(axes)
        raised, numbers = isinstance(trial.outcome, Raised), sum(x.numel() for x in tensors)
        return trial.only_float_width, raised, vague, numbers

    return min(wrong, key=size)


class Explanation(NamedTuple):
    """What a namer says: what the answer does, and notes; `shows` on an input, as tables."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    shows: bool = True


Namer = Callable[[Attempt], Explanation | None]


def wrong_only(attempt: Attempt) -> str:
    """On which inputs alone it goes wrong, as the end of a sentence; empty if that is not short."""
    right = [t.case for t in attempt.trials if t.difference is None]
    wrong = [t.case for t in attempt.wrong]
    for letter in wrong[0].sizes if right else ():
        ones = {c.sizes.get(letter) == 1 for c in wrong}, {c.sizes.get(letter) == 1 for c in right}
        if ones == ({True}, {False}):
            return f"where {letter} = 1"
    notes = dict.fromkeys(c.note for c in wrong)
    clear = 0 < len(notes) <= LISTED and notes.keys().isdisjoint({"", *(c.note for c in right)})
    short = [n for n in notes if not n.startswith(tuple(f"{m}," for m in notes))]
    return ", and ".join(short) if right and clear else ""


SINGLE_MATRICES = (
    "It is right for single matrices, and goes wrong with axes (B, h) in front of them."
)


def where_right(attempt: Attempt) -> str:
    """On which inputs all is right, as a sentence; empty where that cannot be said in short."""
    right = [t for t in attempt.trials if t.difference is None or t.only_float_width]
    wrong = [t for t in attempt.wrong if not t.only_float_width]
    if not right or not wrong:
        return ""
    of_right, of_wrong = (
        {getattr(t.case.inputs[0], "ndim", 0) for t in some} for some in (right, wrong)
    )
    if max(of_right) == 2 < min(of_wrong):
        return SINGLE_MATRICES
    if of_right.isdisjoint(of_wrong):
        return f"It is right where the first input has {' or '.join(map(str, of_right))} axes."
    if words := wrong_only(attempt):
        return f"It goes wrong {words}, and is right elsewhere."
    also_wrong = {t.case.note for t in attempt.wrong}
    notes = Counter(t.case.note for t in right if t.case.note not in also_wrong)
    often = [note for note, n in notes.items() if n > 1] or [*notes]
    if "" in often or not 0 < len(often) <= LISTED:
        return ""
    return f"Of the inputs tried, it is right {', and '.join(often)}."
