"""What differs, where no slip and no place explains it: type, shape, dtype, numbers; and how."""

from collections.abc import Iterator
from dataclasses import replace
from math import isclose
from typing import Any

import torch
from torch import Tensor

from mha_course.engine import errors, relations
from mha_course.engine.attempt import Attempt, Explanation, Trial, where_right
from mha_course.engine.compare import Difference, letters_of_all, same
from mha_course.engine.first_wrong import first_wrong
from mha_course.engine.problem import Problem
from mha_course.engine.report import Finding, number
from mha_course.engine.safely import Returned
from mha_course.engine.watch import where_nan

ONE_DEVICE = Finding(
    errors.FIXED_DEVICE,
    "It makes its result on a fixed device: with inputs on another one (a GPU, say) the "
    "result does not follow them.",
    "Which tensor do you create yourself, and how could it follow the device of the input?",
)


def another_type(attempt: Attempt) -> Explanation | None:
    """Right values in another floating dtype, or arrays of numpy's: that comes before all else."""
    first, differs = attempt.wrong[0].difference, attempt.shown.difference
    assert first is not None and differs is not None
    if all(t.only_float_width for t in attempt.wrong):
        part = part_of(attempt.problem, first)
        finding = _made_as_float32(attempt, part, first) or wrong_dtype(part, first)
        return Explanation((finding,), shows=False)
    if not attempt.stops and differs.kind == "type" and type(differs.yours).__name__ == "ndarray":
        return Explanation((_of_type(attempt, differs),), (where_right(attempt),))
    return None


def _made_as_float32(attempt: Attempt, part: str, differs: Difference) -> Finding | None:
    node = attempt.source.made_without_dtype()
    if node is None or differs.yours.dtype != torch.float32:
        return None
    want = str(differs.expected.dtype).removeprefix("torch.")
    return Finding(
        "fixed_dtype",
        f"Line {node.lineno}, `{attempt.source.line(node)}`, says no dtype, and so makes float32 "
        f"numbers: {part.lower()} has dtype float32 for {want} input.",
        "How can the new tensor take its dtype from the input?",
    )


def _in_the_inputs_dtype(attempt: Attempt) -> Attempt | None:
    """The same with its numbers in the right floating dtype, where that is another one."""
    trials = [t for t in attempt.trials if isinstance(t.outcome, Returned)]
    if not (differs := attempt.shown.difference) or differs.kind != "dtype":
        return None
    whole = all(isinstance(t.outcome.value, Tensor) for t in trials)  # type: ignore[union-attr]
    if not whole or not all(x.is_floating_point() for x in (differs.yours, differs.expected)):
        return None
    cast = [
        replace(t, outcome=Returned(t.outcome.value.to(t.expected.dtype)))  # type: ignore[union-attr]
        for t in trials
    ]
    return replace(attempt, trials=cast)


BY_HAND = (
    "Compute one of the marked cells by hand: which numbers should go into it?",
    "Go along a row with marks: where should its first True stand, and its last?",
)
MOVED = "relation:moved_axes"  # explains the whole result: no experiment adds to it


def what_differs(attempt: Attempt) -> Explanation:
    """The last resort: what is wrong with the result, and what it depends on."""
    if (
        (cast := _in_the_inputs_dtype(attempt))
        and cast.wrong
        and (first := attempt.shown.difference)
    ):
        explanation = what_differs(cast)
        width = wrong_dtype(part_of(attempt.problem, first), first)
        return explanation._replace(findings=(*explanation.findings, width))
    finding = _what_differs(attempt)
    if finding.key == "nan":
        case = next(t.case for t in attempt.wrong if t.difference and t.difference.kind == "nan")
        if words := where_nan(attempt, case):
            asks = "Which numbers enter that line, and on which input?"
            finding = Finding("nan_made", f"{finding.does} {words}", asks)
    elif finding.key != MOVED:
        if place := finding.key != "more_than_asked" and first_wrong(attempt):
            finding = replace(finding, does=f"{finding.does} {place.does}", asks=place.asks)
        if name := _given_back(attempt):
            does = f"{finding.does} What comes back is `{name}`, as it came in."
            asks = place.asks if place else "What should become of it first?"
            finding = replace(finding, key="given_back", does=does, asks=asks)
        elif seen := relations.experiment(attempt, attempt.wrong):
            asks = place.asks if place else seen.asks
            finding = replace(seen, does=f"{finding.does} {seen.does}", asks=asks)
    notes = []
    if n := len(attempt.raised):
        stops = f"On {n} of the {len(attempt.trials)} inputs tried it stops with an error."
        notes.append(f"{stops} {attempt.first_error.does}")
    return Explanation((finding,), (*notes, where_right(attempt)))


def _given_back(attempt: Attempt) -> str:
    """The argument that comes back as it was, on every input; empty where none does."""
    for i, name in enumerate(attempt.problem.arguments):
        given = [t.case.inputs[i] for t in attempt.wrong]
        back = (t.gives(x) for t, x in zip(attempt.wrong, given, strict=True))
        if all(isinstance(x, Tensor) for x in given) and all(back):
            return name
    return ""


def _what_differs(attempt: Attempt) -> Finding:
    problem, trial, wrong = attempt.problem, attempt.shown, attempt.wrong
    differs = trial.difference
    assert differs is not None
    part = part_of(problem, differs)
    if differs.kind == "count":
        n = len(differs.yours)
        return Finding(
            "result_count",
            f"Your code returns {n} {'thing' if n == 1 else 'things'} instead of "
            f"{len(differs.expected)}: {', '.join(problem.gives)}.",
            "What does the exercise ask for, in which order?",
        )
    if differs.kind == "type":
        return _of_type(attempt, differs)
    if isinstance(differs.expected, int):
        return _other_count(attempt, differs)
    if differs.kind == "dtype":
        return wrong_dtype(part, differs)
    if differs.kind == "nan":
        return Finding(
            "nan", f"{part} has NaN in it.", "Which line divides 0 by 0, or subtracts ∞ from ∞?"
        )
    here = (differs.yours, differs.expected, trial.case.sizes)
    relation = relations.relate([here, *_alike(differs, wrong, "values", "shape")])
    told = (
        (relation.key, f" {relation.does}", relation.asks) if relation else (differs.kind, "", "")
    )
    key, does, asks = told
    if differs.kind == "shape":
        alike = [here, *_alike(differs, wrong, "shape")]
        have = letters_of_all([(tuple(yours.shape), sizes) for yours, _, sizes in alike])
        shapes, asked = {yours.shape for yours, _, _ in alike}, {x.shape for _, x, _ in alike}
        fixed = len(alike) > len(wrong) and len(shapes) == 1 < len(asked) and differs.yours.ndim > 0
        return Finding(
            key,
            f"{part} {_shape_words(have, differs.yours)}{' on every input' * fixed}, but it "
            f"should be {problem.results[differs.part].shape} = {tuple(differs.expected.shape)}."
            f"{does}",
            "In whose place does each of these numbers stand?"
            if fixed
            else "Which line changes the shape, and which axis goes wrong there?",
        )
    if differs.expected.ndim == 0:
        given, right = number(float(differs.yours)), number(float(differs.expected))
        does = f"Your code gives {given}; the right number is {right}.{does}"
        return Finding(key, does, "Take the smallest input: which terms go into the sum?")
    shape = problem.results[differs.part].shape
    return Finding(
        key,
        f"{part} has the right shape, {shape}, but the wrong numbers.{does}",
        asks or BY_HAND[differs.expected.dtype == torch.bool],
    )


def _other_count(attempt: Attempt, differs: Difference) -> Finding:
    wrong = attempt.wrong
    numbers = [
        (t.outcome.value, t.expected, t.case.sizes)
        for t in wrong
        if isinstance(t.outcome, Returned) and type(t.outcome.value) is int
    ]
    does = f"Your code gives {differs.yours}; the right number is {differs.expected}."
    if len(numbers) == len(wrong) and all(
        isclose(n, right, rel_tol=1e-6) for n, right, _ in numbers
    ):
        does += " All but the last digits are right: a float on the way holds no more of them."
        return Finding("rounded", does, "Which of your numbers could stay whole?")
    asks = "What does each of its terms count, and which terms should there be?"
    relation = relations.relate_numbers(numbers) if len(numbers) == len(wrong) > 2 else None
    if relation := relation or relations.doubled(attempt, attempt.shown):
        return replace(relation, does=f"{does} {relation.does}", asks=relation.asks or asks)
    return Finding("values", does, asks)


def _shape_words(letters: str, x: Tensor) -> str:
    if x.ndim == 0:
        return "is a single number, of shape ()"
    shape = str(tuple(x.shape))
    return f"has shape {letters}" + (f" = {shape}" if shape != letters else "")


def _alike(differs: Difference, wrong: list[Trial], *kinds: str) -> Iterator[relations.Sample]:
    """All inputs on which the same thing differs, in one of these ways."""
    for trial in wrong:
        other = trial.difference
        if other and other.kind in kinds and other.part == differs.part:
            yield other.yours, other.expected, trial.case.sizes


def part_of(problem: Problem, differs: Difference) -> str:
    """Which of the results it is, as the beginning of a sentence."""
    return (
        "Your result" if len(problem.gives) == 1 else f"Your {problem.results[differs.part].short}"
    )


def kind_of(x: Any) -> str:
    """What something is, in words."""
    name = type(x).__name__
    have = _TYPES.get(name, f"an object of type {name}")
    return f"{have} of {len(x)}" if name in ("list", "tuple") and x else have


def _of_type(attempt: Attempt, differs: Difference) -> Finding:
    return _more_than_asked(attempt) or _wrong_type(attempt.problem, differs)


def _more_than_asked(attempt: Attempt) -> Finding | None:
    """Several results, one of which is what is asked for."""
    wrong = attempt.wrong
    values = [t.outcome.value for t in wrong if isinstance(t.outcome, Returned)]
    if len(values) < len(wrong) or not all(isinstance(v, (tuple, list)) for v in values):
        return None
    for i, parts in enumerate(zip(*values, strict=False)):
        pairs = zip(parts, wrong, strict=True)
        if all(same(part, t.expected, t.case.tolerance) for part, t in pairs):
            nth = {0: "first", 1: "second"}.get(i, f"{i + 1}th")
            return Finding(
                "more_than_asked",
                f"Your code returns {kind_of(values[0])}. The {nth} of them is right, and is all "
                f"that is asked for: {attempt.problem.gives[0]}.",
                "What does your last line return?",
            )
    return None


def _wrong_type(problem: Problem, differs: Difference) -> Finding:
    name, have = type(differs.yours).__name__, kind_of(differs.yours)
    want = "one tensor" if isinstance(differs.expected, Tensor) else "an int"
    if isinstance(differs.yours, Tensor) and isinstance(differs.expected, Tensor):
        if differs.yours.device.type != "cpu":
            return ONE_DEVICE
        have, want = "a tensor that is sparse, complex or otherwise special", "a plain one"
    if isinstance(differs.expected, tuple):
        want = f"{len(differs.expected)} results: {', '.join(problem.gives)}"
    whole = len(problem.gives) == 1 or isinstance(differs.expected, tuple)
    part = part_of(problem, differs)
    does = "Your code returns" if whole else f"{part} {'are' if part.endswith('s') else 'is'}"
    return Finding(
        f"returns_{name}",
        f"{does} {have}, but it should be {want}.",
        "What does your last line return?",
    )


_TYPES = {
    "Tensor": "one tensor",
    "ndarray": "a numpy array",
    "Size": "a shape (`torch.Size`)",
    "builtin_function_or_method": "a method that was not called (round brackets are missing)",
    "method": "a method that was not called (round brackets are missing)",
    "type": "a class",
    "bool": "True or False",
    "NoneType": "`None` on this input",
    "dict": "a dictionary",
    "list": "a list",
    "tuple": "a tuple",
    "float": "a float",
    "int": "a Python int",
    "float64": "a number of numpy's (`np.float64`)",
    "int64": "a number of numpy's (`np.int64`), which ends at 2⁶³",
    "str": "text",
    "generator": "a generator (`yield` instead of `return`)",
    "coroutine": "a coroutine (`async def` instead of `def`)",
}


def wrong_dtype(part: str, differs: Difference) -> Finding:
    have, want = (str(t.dtype).removeprefix("torch.") for t in (differs.yours, differs.expected))
    if want == "bool":
        return Finding(
            "not_bool",
            f"{part} has dtype {have}, but it should be bool, True and False: `~`, `|` and "
            "`masked_fill` need that.",
            "What gives True and False instead of numbers?",
        )
    return Finding(
        "fixed_dtype",
        f"{part} has dtype {have} for {want} input: somewhere a dtype is fixed instead of "
        "following the input.",
        "Which tensor do you create or convert yourself?",
    )
