"""Which slips an answer makes: those that give, on the same inputs, what it gave.

The known slips run alone and in combinations, until one reproduces what the answer gave (Brown &
Burton, 1978).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from mha_course.engine.attempt import (
    Attempt,
    Explanation,
    Trial,
    most_telling,
    where_right,
    wrong_only,
)
from mha_course.engine.compare import plain
from mha_course.engine.families import BY_FIXED
from mha_course.engine.problem import Problem, Slip, Slips, disjoint
from mha_course.engine.relations import experiment
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, Returned

MOST_BEGUN = 12  # explanations of the first input that are tried with one slip more


class Match(NamedTuple):
    """Slips that give, wherever the answer returns, what it gave.

    `everywhere` says whether they also raise wherever it raises.
    """

    slips: Slips = ()
    everywhere: bool = False


def single(attempt: Attempt) -> Match:
    """The one slip that gives what the answer gave, wherever it returns."""
    return match(attempt.problem, attempt.trials, attempt.problem.singles)


def one_slip(attempt: Attempt) -> Explanation | None:
    """A slip that gives what the answer gave on every input."""
    slips, everywhere = attempt.remembered(single)
    if not everywhere:
        return None
    if slips[0].key.startswith(BY_FIXED) and (named := attempt.source.from_the_notebook()):
        return Explanation((named,))
    stops = len(attempt.raised) == len(attempt.wrong)
    return Explanation(slips, (attempt.first_error.does,) if stops else ())


def slips_beside_errors(attempt: Attempt) -> Slips:
    """The slip that gives what the answer gave, where it raises and the slip does not."""
    slips, everywhere = attempt.remembered(single)
    return () if everywhere else slips


def slip_in_part(attempt: Attempt) -> Explanation | None:
    """A slip that gives what the answer gave on a part of the inputs, and what the others show."""
    where = where_right(attempt)
    if slips := slips_beside_errors(attempt):
        return Explanation((*slips, attempt.first_error), (where,))
    slip, n = _on_most(attempt)
    if slip:
        partly = replace(slip, only_on=(n, len(attempt.wrong)))
        if attempt.raised:
            return Explanation((partly, attempt.first_error), (where,))
        rest = [t for t in attempt.wrong if not reproduces(attempt.problem, (slip,), t)]
        seen = experiment(attempt, rest) if rest else None
        if seen and seen.key == "stays":
            where = f"{where} {seen.does} (On {most_telling(rest).case.words}.)"
        return Explanation((partly,), (where,))
    if wrong_only(attempt) and (slip := _where_wrong(attempt)):
        return Explanation((slip,), (ONLY_WHERE_WRONG, where))
    return None


ONLY_WHERE_WRONG = (
    "On every input that goes wrong your result is exactly what this gives; elsewhere it is right."
)


def _on_most(attempt: Attempt) -> tuple[Slip | None, int]:
    """The slip that gives the answer's wrong results on the most inputs, over half of them.

    No right result may speak against it.
    """
    problem, (wrong, right) = attempt.problem, _returned(attempt.trials)
    best, most = None, max(1, len(wrong) // 2)
    for slips in problem.singles:
        if wrong and reproduces(problem, slips, wrong[0]):
            n = sum(reproduces(problem, slips, t) for t in wrong)
            if n > most and all(reproduces(problem, slips, t) for t in right):
                best, most = slips[0], n
    return best, most


def _where_wrong(attempt: Attempt) -> Slip | None:
    """The slip that gives all of the answer's wrong results, though others are right."""
    problem, (wrong, _) = attempt.problem, _returned(attempt.trials)
    if attempt.raised:
        return None
    fitting = (s for s in problem.singles if all(reproduces(problem, s, t) for t in wrong))
    return next(fitting, (None,))[0]


def several_slips(attempt: Attempt) -> Explanation | None:
    """Slips that come together; where parts can be looked at one by one, those of each."""
    if _all_alike(attempt.trials) or one_truth_value(attempt.trials[0]):
        return None
    problem, trials = attempt.problem, attempt.trials
    findings: list[Finding] = []
    parts = list(problem.trials_by_part(trials)) if problem.trials_by_part else []
    everywhere = False
    for part, of_part in parts or [(problem, trials)]:
        if all(reproduces(part, (), t) for t in of_part):
            continue
        counts = isinstance(of_part[0].expected, int)  # two slips may agree with numbers by chance
        candidates = chain(part.singles, part.pairs)
        slips, everywhere = match(part, of_part, candidates, grow=not counts)
        if not slips:
            return None
        findings += slips
    if findings and attempt.raised and (parts or not everywhere):
        findings.append(attempt.first_error)
    return Explanation(tuple(findings)) if findings else None


def match(
    problem: Problem, trials: list[Trial], candidates: Iterable[Slips], grow: bool = False
) -> Match:
    """The first candidate that fits every input; else the first that fits wherever it returns."""
    raised = [t for t in trials if isinstance(t.outcome, Raised)]
    first: Slips = ()
    for slips in _fitting(problem, trials, candidates, grow):
        mistakes = tuple(slip for slip in slips if slip.is_mistake)
        if all(reproduces(problem, slips, t) for t in raised):
            return Match(mistakes, True)
        first = first or mistakes
    return Match(first)


def _fitting(
    problem: Problem, trials: list[Trial], candidates: Iterable[Slips], grow: bool
) -> Iterator[Slips]:
    """The candidates that give, wherever the answer returns, what it gave.

    With `grow`, those that fit the first input meet one slip more: what that input does not show.
    """
    wrong, right = _returned(trials)
    begun: list[tuple[Slips, Trial]] = []  # with the first input that speaks against them
    for slips in chain(candidates, _grown(problem, begun) if grow else ()) if wrong else ():
        if not reproduces(problem, slips, wrong[0]):
            continue
        against = next((t for t in (*wrong, *right) if not reproduces(problem, slips, t)), None)
        if against is None:
            yield slips
        elif len(slips) == 1 and len(begun) < MOST_BEGUN:  # three would fit too much by chance
            begun.append((slips, against))


def _returned(trials: list[Trial]) -> tuple[list[Trial], list[Trial]]:
    """Where the answer returned something wrong (slips differ most there), and something right."""
    sides: tuple[list[Trial], list[Trial]] = [], []
    for trial in trials:
        if isinstance(trial.outcome, Returned):
            sides[trial.difference is None or trial.only_float_width].append(trial)
    return sides


def _grown(problem: Problem, begun: list[tuple[Slips, Trial]]) -> Iterator[Slips]:
    """One slip more, for each of those that fit some inputs: it has to fit the first open one."""
    for slips, trial in begun:  # which grows while this runs
        for more in problem.singles:
            if disjoint(slips + more) and reproduces(problem, slips + more, trial):
                yield slips + more


def reproduces(problem: Problem, slips: Slips, trial: Trial) -> bool:
    """Whether these slips give what the answer gave, or raise where it raised."""
    try:
        result = problem.result_on(trial.case, slips)
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
    """Whether all numbers are the same: several slips would give them by chance."""
    values = [t.outcome.value for t in trials if isinstance(t.outcome, Returned)]
    floats = [plain(x) and x.is_floating_point() for x in (*values, trials[0].expected)]
    if len(values) < 2 or not all(floats):
        return False
    return len(torch.cat([v.detach().flatten() for v in values]).unique()) == 1
