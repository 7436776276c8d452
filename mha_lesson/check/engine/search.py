"""Which slips an answer makes: those whose variants give, on the same inputs, what it gave.

The known slips run alone and in combinations, until one reproduces what the answer gave (Brown &
Burton, 1978).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mha_lesson.check.engine.attempt import (
    Attempt,
    Explanation,
    Trial,
    most_telling,
    where_right,
    wrong_only,
)
from mha_lesson.check.engine.compare import plain
from mha_lesson.check.engine.families import BY_FIXED
from mha_lesson.check.engine.problem import Problem, Slips, disjoint
from mha_lesson.check.engine.relations import experiment
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Raised, Returned, run

MOST_BEGUN = 6  # explanations of the first input that are tried with one slip more


class Match(NamedTuple):
    """Slips, and what they give: what the answer gave on "every" input; all but its "errors"; what
    it gave on "some" of the inputs that go wrong; on "wrong" ones, and not where it is right.
    """

    slips: Slips = ()
    on: Literal["", "every", "errors", "some", "wrong"] = ""
    fits: int = 0


def single(attempt: Attempt) -> Match:
    """The one slip that fits best."""
    return match(attempt.problem, attempt.trials, attempt.problem.singles, wrong_only(attempt))


def one_slip(attempt: Attempt) -> Explanation | None:
    """A slip that gives what the answer gave on every input."""
    found = attempt.once(single)
    if found.on != "every":
        return None
    if found.slips[0].key.startswith(BY_FIXED) and (named := attempt.source.from_the_notebook()):
        return Explanation((named,))
    stops = len(attempt.raised) == len(attempt.wrong)
    return Explanation(found.slips, (attempt.error.does,) if stops else ())


def slip_in_part(attempt: Attempt) -> Explanation | None:
    """A slip that gives what the answer gave on some inputs; and what the others show."""
    slips, on, fits = attempt.once(single)
    if not slips:
        return None
    findings: tuple[Finding, ...] = slips
    if on == "some":
        findings = (replace(slips[0], fits=(fits, len(attempt.wrong))),)
    if attempt.raised:
        findings = (*findings, attempt.error)
    notes = [ONLY_WHERE_WRONG * (on == "wrong"), where_right(attempt)]
    open_ones = [t for t in attempt.wrong if not reproduces(attempt.problem, slips, t)]
    if not attempt.raised and open_ones:
        seen = experiment(attempt, open_ones)
        words = most_telling(open_ones).case.words
        notes += [f"{seen.does} (On {words}.)"] if seen and seen.key == "stays" else []
    return Explanation(findings, tuple(filter(None, notes)))


ONLY_WHERE_WRONG = (
    "On every input that goes wrong your result is exactly what this gives; elsewhere it is right."
)


def several_slips(attempt: Attempt) -> Explanation | None:
    """Slips that come together; where parts can be looked at one by one, those of each."""
    if _all_alike(attempt.trials) or one_truth_value(attempt.trials[0]):
        return None
    problem, trials = attempt.problem, attempt.trials
    found: list[Finding] = []
    parts = list(problem.parts(trials)) if problem.parts else []
    every = False
    for part, of_part in parts or [(problem, trials)]:
        if all(reproduces(part, (), t) for t in of_part):
            continue
        counts = isinstance(of_part[0].expected, int)  # three terms may meet by chance
        slips = match(part, of_part, part.singles, grow=not counts)
        if slips.on != "every":
            together = chain(part.pairs, () if counts else part.triples)
            several = match(part, of_part, together, grow=not counts)
            if slips.on != "errors" or several.on == "every":  # the fewest, if as good
                slips = several
        if slips.on not in ("every", "errors"):
            return None
        found += slips.slips
        every = not parts and slips.on == "every"
    if found and attempt.raised and not every:
        found.append(attempt.error)
    return Explanation(tuple(found)) if found else None


def match(
    problem: Problem,
    trials: list[Trial],
    candidates: Iterable[Slips],
    wrong_only: str = "",
    grow: bool = False,
) -> Match:
    """The first of the candidates that give, on every input, what the answer gave.

    An answer that raises somewhere is matched there by slips that raise too. If there are none,
    those that fit where it returns; if there are none, one that fits on most inputs. With `grow`,
    those that fit the first input meet one slip more: the one that the first input does not show.
    """
    returned = [t for t in trials if isinstance(t.outcome, Returned)]
    returned.sort(key=_wrong_numbers, reverse=True)  # where it is wrong, slips differ most
    wrong = [t for t in returned if _wrong_numbers(t)]
    if not wrong:
        return _stops_alike(problem, trials, candidates) if returned else Match()
    raised = [t for t in trials if isinstance(t.outcome, Raised)]
    best = Match(fits=max(1, len(wrong) // 2))
    begun: list[tuple[Slips, Trial]] = []
    for slips in chain(candidates, _grown(problem, begun) if grow else ()):
        if not reproduces(problem, slips, returned[0]):
            continue
        told = tuple(slip for slip in slips if slip.does)
        fits = list(_fits(problem, slips, returned, len(told) == 1))
        if all(fits):
            if all(reproduces(problem, slips, t) for t in raised):
                return Match(told, "every")
            if best.on != "errors":
                best = Match(told, "errors")
        elif len(begun) < MOST_BEGUN:
            begun.append((slips, returned[fits.index(False)]))
        # One slip, that no right result speaks against: several meet some inputs by chance.
        alone = len(told) == 1 and best.on != "errors"
        if alone and all(fits[len(wrong) :]) and sum(fits[: len(wrong)]) > best.fits:
            best = Match(told, "some", sum(fits[: len(wrong)]))
        elif alone and not (best.on or raised) and all(fits[: len(wrong)]) and wrong_only:
            best = Match(told, "wrong", len(wrong) // 2)
    return best


def _wrong_numbers(trial: Trial) -> bool:
    """More than another floating dtype."""
    return trial.difference is not None and not trial.only_float_width


def _stops_alike(problem: Problem, trials: list[Trial], candidates: Iterable[Slips]) -> Match:
    """Slips that are right wherever the answer is, and elsewhere stop with the very same words."""
    if all(isinstance(t.outcome, Returned) for t in trials):
        return Match()
    for slips in candidates:
        if all(reproduces(problem, slips, t) and _says(problem, slips, t) for t in trials):
            return Match(tuple(slip for slip in slips if slip.does), "every")
    return Match()


def _says(problem: Problem, slips: Slips, trial: Trial) -> bool:
    """Whether the error that these slips end in has the words of the answer's, if there is one."""
    if isinstance(trial.outcome, Returned):
        return True
    end = run(partial(problem.variant, slips), (trial.case.inputs,), set())
    return isinstance(end, Raised) and end.message == trial.outcome.message


def _fits(problem: Problem, slips: Slips, trials: list[Trial], counted: bool) -> Iterator[bool]:
    """Whether they give each result; up to the first that they do not, unless that is counted."""
    for trial in trials:
        yield (fits := reproduces(problem, slips, trial))
        if not (fits or counted):
            return


def _grown(problem: Problem, begun: list[tuple[Slips, Trial]]) -> Iterator[Slips]:
    """One slip more, for each of those that fit some inputs: it has to fit the first open one."""
    for slips, trial in begun:  # which grows meanwhile
        for more in problem.singles:
            if disjoint(slips + more) and reproduces(problem, slips + more, trial):
                yield slips + more


def reproduces(problem: Problem, slips: Slips, trial: Trial) -> bool:
    """Whether these slips give what the answer gave, or raise where it raised."""
    try:
        result = problem.on(trial.case, slips)
    except Exception:
        return isinstance(trial.outcome, Raised)
    return trial.gives(result)


def one_truth_value(trial: Trial) -> bool:
    """Whether the answer gave True or False alone: half of all mistakes would give the same."""
    value = trial.outcome.value if isinstance(trial.outcome, Returned) else None
    if isinstance(value, Tensor):
        return value.dtype == torch.bool and value.numel() == 1
    return isinstance(value, bool)


def _all_alike(trials: list[Trial]) -> bool:
    """Whether all numbers are the same: several slips together meet them by chance."""
    values = [t.outcome.value for t in trials if isinstance(t.outcome, Returned)]
    if len(values) < 2 or not all(map(_floats, [*values, trials[0].expected])):
        return False
    return len(torch.cat([v.detach().flatten() for v in values]).unique()) == 1


def _floats(x: Any) -> bool:
    return plain(x) and x.is_floating_point()
