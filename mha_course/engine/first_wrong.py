"""Where no slip fits: up to which line the numbers are right, and where the first wrong ones are.

What the learner's lines make is held against what the steps of the right way make. A value counts
as made in any order of its axes, and head by head, too.
"""

import contextlib
import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any

from torch import Tensor

from mha_course.engine.attempt import Attempt
from mha_course.engine.compare import allowed, close
from mha_course.engine.device import flat
from mha_course.engine.problem import Case, Problem
from mha_course.engine.report import Finding
from mha_course.engine.safely import Returned
from mha_course.engine.watch import spoken_line, watched

NOT_MADE = -1
BLOCKS = -1e8  # a score below it


def first_wrong(attempt: Attempt) -> Finding | None:
    """A sentence on the first wrong step, and a question; None where nothing can be said."""
    case, stages = attempt.shown.case, attempt.problem.stages
    if not stages or not isinstance(attempt.shown.outcome, Returned):
        return None
    seen, right = watched(attempt, case).seen, _on_the_right_way(attempt.problem, case)
    ways = [stage for stage in stages if right.get(stage)]
    made = [_last(right[stage], seen, case.tolerance) for stage in ways]
    reached = max((i for i, n in enumerate(made) if n != NOT_MADE), default=-1)
    if reached + 1 == len(ways):
        return None
    begin = made[reached] if reached >= 0 else -1
    known = [value for values in right.values() for value in values]
    known += [piece for value in known for pieces in _pieces(value) for piece in pieces]
    for given in flat(case.inputs):
        known += [given] if isinstance(given, Tensor) else getattr(given, "tensors", list)()
    parts = right[ways[reached]] if reached >= 0 else ()
    wrong = [
        (x, line)
        for n, (x, line) in enumerate(seen)
        if (n > begin or any(_rearranged(x, part) for part in parts))
        and _says_something(x)
        and not any(_is(x, value, case.tolerance) for value in known)
    ]
    following = ways[reached + 1]
    shapes = {tuple(sorted(x.shape)) for x in right[following]}
    alike = [line for x, line in wrong if tuple(sorted(x.shape)) in shapes]
    if reached < 0 and not alike:
        return None
    line = alike[0] if reached < 0 else wrong[0][1] if wrong else 0
    name, come = stages[following], "the first wrong numbers come in"
    if reached < 0:
        does, come = f"Already your {_are(name)} not right", "the mistake comes no later than"
    else:
        last, them = seen[begin][1], "them" if name.endswith("s") else "it"
        where = f" (line {last})" if last <= (line or last) else ""
        nowhere = f"{name} should come next, and no line makes {them}"
        left_out = wrong and _goes_on_without(attempt.problem, case, following, wrong[0][0])
        then = f"your {_are(name)} not" if alike and not left_out else nowhere
        order = ", in another order of axes" * _turned(seen[begin][0], parts, case.tolerance)
        does = f"Your {_are(stages[ways[reached]])} right{where}{order}; {then}"
    if not line:
        asks = f"What {'are' if name.endswith('s') else 'is'} the {name} made of?"
        return Finding("unfinished", f"{does}.", asks)
    return Finding(
        "first_wrong",
        f"{does}: {come} {spoken_line(attempt, line)}.",
        f"What goes into line {line}, and what should come out?",
    )


def turned_axes(attempt: Attempt) -> str:
    """Beside an error: which values are right but for the order of their axes; or empty."""
    case, stages = attempt.raised[0].case, attempt.problem.stages
    seen = watched(attempt, case).seen if stages else []
    right = _on_the_right_way(attempt.problem, case) if seen else {}
    for stage in [*stages][::-1]:
        n = _last(parts, seen, case.tolerance) if (parts := right.get(stage)) else NOT_MADE
        if n != NOT_MADE:
            turned = _turned(seen[n][0], parts or [], case.tolerance)
            does = f"Your {_are(stages[stage])} right (line {seen[n][1]})"
            return f"{does}, in another order of axes." if turned else ""
    return ""


def _are(name: str) -> str:
    return f"{name} {'are' if name.endswith('s') else 'is'}"


def _goes_on_without(problem: Problem, case: Case, step: str, yours: Tensor) -> bool:
    """Whether these numbers come of a later step where this one is left out."""
    with contextlib.suppress(Exception):  # what it is given is not what it gives
        made = _on_the_right_way(problem, case, **{step: lambda x, *_: x})
        return any(_is(yours, x, case.tolerance) for values in made.values() for x in values)
    return False


def _turned(yours: Tensor, parts: Sequence[Tensor], tolerance: float) -> bool:
    """Whether these are the numbers of one of the right values, its axes in another order."""
    alike = [x for x in parts if x.ndim == yours.ndim and _is(yours, x, tolerance)]
    return bool(alike) and not any(_is(yours, x, tolerance, as_it_is=True) for x in alike)


def _on_the_right_way(problem: Problem, case: Case, **other: Any) -> dict[str, list[Tensor]]:
    """Step -> what it makes; ">step" -> what it is given first. Other steps replace right ones."""
    made: dict[str, list[Tensor]] = {}

    def kept(site: str, step: Any) -> Any:
        def run(*inputs: Any) -> Any:
            result = step(*inputs)
            for name, values in (site, result), (f">{site}", inputs[:1]):
                made.setdefault(name, []).extend(x for x in flat(values) if isinstance(x, Tensor))
            return result

        return run

    steps = problem.steps | other
    problem.right(*case.inputs, **{site: kept(site, step) for site, step in steps.items()})
    return made


def _last(values: list[Tensor], seen: list[tuple[Tensor, int]], tolerance: float) -> int:
    """The number of the result by which all of these values are made, or NOT_MADE."""

    def number(value: Tensor) -> int:
        same = (n for n, (x, _) in enumerate(seen) if _is(x, value, tolerance))
        return next(same, NOT_MADE)

    def in_all(value: Tensor) -> int:
        ways = [[number(piece) for piece in pieces] for pieces in ([value], *_pieces(value))]
        return next((max(way) for way in ways if NOT_MADE not in way), NOT_MADE)

    numbers = [in_all(value) for value in values]
    return NOT_MADE if NOT_MADE in numbers else max(numbers)


def _pieces(value: Tensor) -> list[tuple[Tensor, ...]]:
    """A value head by head, and sequence by sequence, as a loop makes it."""
    return [value.unbind(axis) for axis in (1, 0) if value.ndim > 2 + axis]


def _is(yours: Tensor, right: Tensor, tolerance: float, as_it_is: bool = False) -> bool:
    """Whether they hold the same numbers, with their axes in any order, or joined.

    What is low enough to block a key counts as −∞.
    """
    if yours.numel() != right.numel() or not yours.is_floating_point():
        return False
    room = allowed(yours.dtype, tolerance)
    yours, right = (x.double().masked_fill(x < BLOCKS, -math.inf) for x in (yours, right))
    ways = [yours.permute(p) for p in permutations(range(yours.ndim))] if yours.ndim < 5 else []
    fitting = [x for x in ways[: 1 if as_it_is else None] if x.shape == right.shape]
    if not (fitting or as_it_is) and (_cuts(yours, right) or _cuts(right, yours)):
        fitting = [yours.reshape(right.shape)]
    return any(close(x, right, room) for x in fitting)


def _cuts(fine: Tensor, coarse: Tensor) -> bool:
    """Whether the axes of one are those of the other, some of them cut."""
    left = [*coarse.shape]
    for n in fine.shape:
        while left and left[0] == 1 != n:
            left.pop(0)
        if not left or left[0] % n:
            return False
        left[0] //= n
    return all(n == 1 for n in left)


def _says_something(x: Tensor) -> bool:
    """Whether it holds numbers, and not one number alone: an empty buffer is not wrong."""
    return x.is_floating_point() and bool((x != x.flatten()[0]).any())


def _rearranged(yours: Tensor, right: Tensor) -> bool:
    """Whether the numbers are those of a right value, in whatever order."""
    return _is(yours.flatten().sort().values, right.flatten().sort().values, 0.0)
