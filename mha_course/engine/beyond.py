"""Asked of an answer once its values are right: other dtypes, another device, more inputs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_course.engine import errors
from mha_course.engine.attempt import Attempt, Trial
from mha_course.engine.device import OtherDevice, flat
from mha_course.engine.differs import ONE_DEVICE, part_of, wrong_dtype
from mha_course.engine.places import one_place
from mha_course.engine.problem import Case, Problem
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, on_the_cpu, run, tensors
from mha_course.engine.watch import leaves_float64

HALF = (torch.float16, torch.bfloat16)
IN_HALF = "in_half"  # the key of what shows there alone
OTHER_DTYPES = (torch.float32, *HALF)


def other_dtypes(attempt: Attempt) -> Iterator[Finding]:
    """The usual dtypes first."""
    for dtype in OTHER_DTYPES:
        if finding := _in_dtype(attempt, dtype):
            unasked = dtype in HALF and not attempt.problem.half
            yield replace(finding, key=IN_HALF) if unasked else finding


def _in_dtype(attempt: Attempt, dtype: torch.dtype) -> Finding | None:
    trials: list[Trial] = []
    for case in attempt.bound.cases:
        if (case.wide and dtype in HALF) or not any(_is_floating(x) for x in case.inputs):
            continue
        rounded, expected = _rounded(attempt.problem, case, dtype)
        outcome = run(attempt.bound.answer, rounded.inputs, attempt.codes)
        # What this PyTorch lacks in half precision is no mistake of a learner's.
        if not (isinstance(outcome, Raised) and "not implemented for" in outcome.message):
            trials.append(Trial(rounded, expected, outcome))
    there = replace(attempt, trials=trials)
    if not there.wrong:
        return None
    finding = _dtype_finding(there, dtype)
    if finding.key != "low_precision":
        return finding
    if place := one_place(there):
        (there_only,) = place.findings
        return replace(finding, key=there_only.key, does=f"{finding.does} {there_only.does}")
    case = there.wrong[0].case
    exact = replace(case, inputs=tuple(at(x, torch.float64) for x in case.inputs))
    words = leaves_float64(there, exact, case)
    if not words:
        return finding
    asks = "How large are the numbers up to that line, and how many digits does the dtype hold?"
    return Finding("precision_lost", f"{finding.does} {words}", asks)


def at(x: Any, dtype: torch.dtype) -> Any:
    """The same in another dtype, where it has a floating one."""
    return x.to(dtype) if _is_floating(x) else x


def _is_floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else hasattr(x, "to")


def _rounded(problem: Problem, case: Case, dtype: torch.dtype) -> tuple[Case, Any]:
    """A case in another dtype, and what is right there."""
    known, key = case.memory, (problem, dtype)
    if key not in known:
        inputs = tuple(at(x, dtype) for x in case.inputs)
        right = problem.result_of((), tuple(at(x, torch.float64) for x in inputs))
        whole = isinstance(right, Tensor)
        expected = at(right, dtype) if whole else tuple(at(part, dtype) for part in right)
        known[key] = replace(case, inputs=inputs), expected
    return known[key]


def _dtype_finding(attempt: Attempt, dtype: torch.dtype) -> Finding:
    trial, name = attempt.wrong[0], str(dtype).removeprefix("torch.")
    differs = trial.difference
    assert differs is not None
    if isinstance(trial.outcome, Raised):
        return errors.explain(trial.outcome, f"for {name} input; float64 works")
    part = part_of(attempt.problem, differs)
    if differs.kind == "dtype":
        return wrong_dtype(part, differs)
    what = "NaN" if differs.kind == "nan" else "wrong values"
    return Finding(
        "low_precision",
        f"In float64 everything is right; for {name} input {part.lower()} has {what}.",
        "Which number of yours is too large, or too small, for this dtype?",
    )


def other_device(attempt: Attempt) -> Iterator[Finding]:
    """Every input is tried: a mask or a cache has lines of its own."""
    for case in attempt.bound.cases:
        given = [x for part in case.inputs for x in tensors(part)]
        if not given:
            continue
        with OtherDevice(given) as device:
            outcome = run(attempt.bound.answer, case.inputs, attempt.codes)
        if isinstance(outcome, Raised):
            finding = errors.explain(outcome)
            if finding.key == errors.FIXED_DEVICE:
                yield finding
                return
        elif any(device.lacks(x) for x in flat(outcome.value)):
            yield ONE_DEVICE
            return


# --- what an exercise asks itself ----------------------------------------------------------------


def further(attempt: Attempt) -> Iterator[Finding]:
    """What the exercise itself asks for beyond values, and the cases that come last."""
    problem, bound = attempt.problem, attempt.bound
    yield from filter(None, (ask(bound.answer, bound.cases) for ask in problem.further))
    last = (case for case in bound.every_case if case.asks)
    yield from filter(None, (right_too(problem, bound.answer, case) for case in last))


def right_too(problem: Problem, answer: Callable[..., Any], case: Case) -> Finding | None:
    """What is wrong on one more case."""
    outcome = on_the_cpu(run(answer, case.inputs, set()), case.inputs)
    if Trial(case, problem.result_on(case), outcome).difference is None:
        return None
    does = "stops with an error" if isinstance(outcome, Raised) else "gives something wrong"
    where = f"{case.note[0].upper()}{case.note[1:]}"
    does = f"{where} your code {does}; its values on the usual inputs are right."
    return Finding("ends_there", does, case.asks)
