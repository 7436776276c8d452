"""Judges an answer, and names what a wrong one does.

First the answer runs on every float64 input. Where it differs from the right one, the known slips
run on the same inputs, alone and in combinations, until one reproduces what the answer gave
(Brown & Burton, 1978). Right values are then tried in other dtypes and on another device.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check import errors, journal, relations
from mha_lesson.check.compare import (
    Difference,
    allowed,
    close_cells,
    difference,
    in_letters,
    same,
)
from mha_lesson.check.elsewhere import Elsewhere, flat
from mha_lesson.check.exercise import Bound, Case, Exercise, Finding, Slip
from mha_lesson.check.report import Picture, Report, number, picture
from mha_lesson.check.safely import (
    Outcome,
    Raised,
    Returned,
    codes_of,
    run,
    safe_text,
    seed,
    undisturbed,
)

MAX_SAMPLES = 6  # inputs on which a relation has to hold
HALF = (torch.bfloat16, torch.float16)
OTHER_DTYPES = (torch.float32, *HALF)


@dataclass(frozen=True)
class Trial:
    """One case, the right result, and what the answer did."""

    case: Case
    expected: Any
    outcome: Outcome

    @property
    def difference(self) -> Difference | None:
        if isinstance(self.outcome, Raised):
            return Difference("raised", self.outcome, self.expected)
        try:
            return difference(self.outcome.value, self.expected, self.case.tolerance)
        except Exception:  # an object that only looks like a tensor
            return Difference("type", self.outcome.value, self.expected)


def check(exercise: Exercise, answer: Any) -> Report:
    """Judges `answer`; never raises, and leaves no trace but the learner's progress."""
    with undisturbed() as printed:
        try:
            report = _judge(exercise, answer)
        except Exception as error:  # an object that breaks when it is looked at
            report = Report(exercise.name, False, (_unjudged(error),))
    if printed.getvalue().strip() and report.passed is not None:
        report = replace(report, notes=(*report.notes, "(What it printed was left out here.)"))
    journal.remember(report)
    return report


def _unjudged(error: Exception) -> Finding:
    return Finding(
        "unjudged",
        f"The check could not judge this answer: looking at what it returns stops with "
        f"{type(error).__name__}: {safe_text(error, str)}",
        "Does it return plain tensors, as the stub promises?",
    )


def _judge(exercise: Exercise, answer: Any) -> Report:
    if not callable(answer):
        what = safe_text(type(answer).__name__, str)
        finding = Finding(
            "not_a_function",
            f"The check got an object of type {what} instead of your code.",
            f"Does it say `check.{exercise.name}({exercise.name})`, without calling it?",
        )
        return Report(exercise.name, False, (finding,))
    bound = _bind(exercise, answer)
    if not isinstance(bound, Bound):
        return Report(exercise.name, False, (bound,)) if bound else _untouched(exercise)
    codes = codes_of(answer)
    trials: list[Trial] = []
    for case in bound.cases:
        outcome = run(bound.answer, case.inputs, codes)
        if not trials and _nothing_there(outcome):
            forgotten = exercise.bind is None and _computes_something(answer)
            return Report(exercise.name, False, (NO_RETURN,)) if forgotten else _untouched(exercise)
        if isinstance(outcome, Raised) and isinstance(outcome.error, KeyboardInterrupt):
            return Report(exercise.name, False, (errors.explain(outcome),))
        trials.append(Trial(case, exercise.variant((), case.inputs), outcome))
    report = _on_values(exercise, trials, _random(bound.answer, trials[0], codes))
    if report.passed:
        findings = {f.key: f for f in _beyond_values(exercise, bound, codes) if f is not None}
        report = replace(report, passed=not findings, findings=tuple(findings.values()))
    if any(isinstance(t.outcome, Returned) and t.outcome.changed for t in trials):
        report = replace(report, notes=(*report.notes, WRITES))
    return report


def _bind(exercise: Exercise, answer: Any) -> Bound | Finding | None:
    """The answer as a function with its cases; a finding if that fails, None for a stub."""
    if exercise.bind is None:
        return Bound(answer, list(exercise.cases()))
    return exercise.bind(answer)


def _beyond_values(exercise: Exercise, bound: Bound, codes: set[Any]) -> Iterator[Finding | None]:
    """What an answer with right values in float64 may still do."""
    for dtype in OTHER_DTYPES:
        yield _in_dtype(exercise, bound, dtype, codes)
    yield _on_other_device(bound, codes)
    for judge in exercise.further:
        yield judge(bound.answer, bound.cases)


WRITES = "It also writes into its input: whoever calls it finds the tensor changed."


def _untouched(exercise: Exercise) -> Report:
    return Report(exercise.name, None)


NO_RETURN = Finding(
    "no_return",
    "Your code computes something, and then returns nothing: a function without `return` gives "
    "`None`.",
    "Which of your values should the caller get?",
)


def _nothing_there(outcome: Outcome) -> bool:
    if isinstance(outcome, Raised):
        return isinstance(outcome.error, NotImplementedError)
    return outcome.value is None or outcome.value is ...


def _computes_something(answer: Any) -> bool:
    """Whether a function that returns None ends in a real statement: then `return` is missing."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    if not functions:
        return False
    last = functions[0].body[-1]
    if isinstance(last, ast.Expr):
        return isinstance(last.value, ast.Call)
    return isinstance(last, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.With))


# --- naming --------------------------------------------------------------------------------------


def _on_values(exercise: Exercise, trials: list[Trial], random: Finding | None) -> Report:
    """Whether the values are right in float64, and if not, what the answer does."""
    name = exercise.name
    wrong = [t for t in trials if t.difference is not None]
    if random is not None:
        return Report(name, False, (random,))
    if not wrong:
        return Report(name, True, checked=len(trials))
    shown = _most_telling(wrong)
    dtypes = tuple(d for t in wrong if (d := t.difference) and _only_float_width(d, t))
    if len(dtypes) == len(wrong):
        return Report(name, False, (_wrong_dtype(_part(exercise, dtypes[0]), dtypes[0]),))
    crashed = [t for t in wrong if isinstance(t.outcome, Raised)]
    diagnosis = diagnose(exercise, trials)
    if diagnosis.slips:
        findings: tuple[Finding, ...] = diagnosis.slips
        if not all(_reproduces(exercise, diagnosis.slips, t) for t in crashed):
            findings = (*findings, _explain_crash(crashed[0], trials))
        notes = () if diagnosis.complete or crashed else (MORE,)
        return Report(name, False, findings, notes, _picture(exercise, shown), _where(shown))
    if isinstance(shown.outcome, Raised) or len(crashed) > len(trials) / 2:
        return Report(name, False, (_explain_crash(crashed[0], trials),))
    finding = _unnamed(exercise, shown, wrong)
    return Report(name, False, (finding,), (), _picture(exercise, shown), _where(shown))


MORE = "This explains many of the inputs tried, not all: there is something else as well."


def _only_float_width(found: Difference, trial: Trial) -> bool:
    """Right values in another floating dtype."""
    if found.kind != "dtype" or not found.yours.is_floating_point():
        return False
    assert isinstance(trial.outcome, Returned)
    return same(trial.outcome.value, trial.expected, trial.case.tolerance)


def _most_telling(wrong: list[Trial]) -> Trial:
    """A result before an error, and the smallest input first, but one that tells axes apart."""

    def size(trial: Trial) -> tuple[bool, bool, int]:
        tensors = [x for x in trial.case.inputs if isinstance(x, Tensor)]
        axes = list(trial.case.sizes.values())
        vague = 1 in axes or len(set(axes)) < len(axes)
        return isinstance(trial.outcome, Raised), vague, sum(x.numel() for x in tensors)

    return min(wrong, key=size)


def _explain_crash(trial: Trial, trials: list[Trial]) -> Finding:
    assert isinstance(trial.outcome, Raised)
    everywhere = all(isinstance(t.outcome, Raised) for t in trials)
    note = trial.case.note
    return errors.explain(trial.outcome, "" if everywhere or note[:4] != "with" else note)


def _where(trial: Trial) -> str:
    sizes = ", ".join(f"{letter} = {n}" for letter, n in trial.case.sizes.items())
    return f"It shows on {sizes}{', ' + trial.case.note if trial.case.note else ''}."


@dataclass(frozen=True)
class Diagnosis:
    """Slips that give what the answer gave: on every input, or (not `complete`) on many."""

    slips: tuple[Slip, ...] = ()
    complete: bool = True


def diagnose(exercise: Exercise, trials: list[Trial]) -> Diagnosis:
    """The fewest slips that give, on every input, what the answer gave.

    An answer that raises somewhere is matched there by slips that raise too. If there are none,
    those that fit where it returns; if there are none, those that fit on most inputs.
    """
    returned = [t for t in trials if isinstance(t.outcome, Returned)]
    returned.sort(key=lambda t: t.difference is None)  # where it is wrong, slips differ most
    if not returned or returned[0].difference is None:
        return Diagnosis()
    wrong = [t for t in returned if t.difference is not None]
    raised = [t for t in trials if isinstance(t.outcome, Raised)]
    silent: tuple[Slip, ...] = ()  # explains every value, and not the errors
    best: tuple[Slip, ...] = ()
    most = max(1, len(wrong) // 4)
    for slips in _candidates(exercise):
        if not _reproduces(exercise, slips, returned[0]):
            continue
        fits = [_reproduces(exercise, slips, t) for t in returned]
        if all(fits):
            if all(_reproduces(exercise, slips, t) for t in raised):
                return Diagnosis(_named(slips))
            silent = silent or slips
        if sum(fits[: len(wrong)]) > most:
            best, most = slips, sum(fits[: len(wrong)])
    return Diagnosis(_named(silent)) if silent else Diagnosis(_named(best), complete=False)


def _named(slips: tuple[Slip, ...]) -> tuple[Slip, ...]:
    return tuple(slip for slip in slips if slip.does)


def _candidates(exercise: Exercise) -> Iterator[tuple[Slip, ...]]:
    yield from exercise.singles
    yield from exercise.pairs
    yield from exercise.triples


def _reproduces(exercise: Exercise, slips: tuple[Slip, ...], trial: Trial) -> bool:
    """Whether these slips give what the answer gave, or raise where it raised."""
    outcome = trial.outcome
    try:
        result = exercise.variant(slips, trial.case.inputs)
    except Exception:
        return isinstance(outcome, Raised)
    return isinstance(outcome, Returned) and same(outcome.value, result, trial.case.tolerance)


def _unnamed(exercise: Exercise, trial: Trial, wrong: list[Trial]) -> Finding:
    """No slip fits: what differs, and how the result relates to the right one."""
    found = trial.difference
    assert found is not None
    part = _part(exercise, found)
    if found.kind == "count":
        return Finding(
            "result_count",
            f"Your code returns {len(found.yours)} things instead of {len(found.expected)}: "
            f"{', '.join(exercise.gives)}.",
            "What does the stub promise, in which order?",
        )
    if found.kind == "type":
        return _wrong_type(exercise, found)
    if isinstance(found.expected, int):
        numbers = [
            (t.outcome.value, t.expected, t.case.sizes)
            for t in wrong
            if isinstance(t.outcome, Returned) and type(t.outcome.value) is int
        ]
        plain = f"Your code gives {found.yours}, and the right number is {found.expected}."
        relation = relations.relate_numbers(numbers) if len(numbers) == len(wrong) > 2 else None
        if relation is None:
            return Finding("values", plain)
        return replace(relation, does=f"{plain} {relation.does}")
    sizes = trial.case.sizes
    have = in_letters(tuple(found.yours.shape), sizes)
    want = _promised(exercise, found)
    if found.kind == "dtype":
        return _wrong_dtype(part, found)
    if found.kind == "nan":
        return Finding(
            "nan", f"{part} has NaN in it.", "Which line divides 0 by 0, or subtracts ∞ from ∞?"
        )
    relation = relations.relate([(found.yours, found.expected, sizes), *_alike(found, wrong)])
    does = relation.does if relation else ""
    if found.kind == "shape":
        does = (
            f"{part} {_shape_words(have, found.yours)}, and it should be {want} = "
            f"{tuple(found.expected.shape)}. {does}".strip()
        )
        asks = "Which line changes the shape, and which axis goes astray there?"
        return Finding(relation.key if relation else "shape", does, asks)
    if found.expected.ndim == 0:
        mine, right = number(float(found.yours)), number(float(found.expected))
        relation = relation or Finding("values", "")
        does = f"Your code gives {mine}, and the right number is {right}. {relation.does}".strip()
        return Finding(relation.key, does, "Take the smallest input: which terms go into the sum?")
    lead = f"{part} has the right shape, {want}, and other numbers."
    asks = "Follow one of the framed cells by hand: from which numbers should it come?"
    return Finding(relation.key if relation else "values", f"{lead} {does}".strip(), asks)


def _shape_words(letters: str, x: Tensor) -> str:
    if x.ndim == 0:
        return "is a single number, of shape ()"
    shape = str(tuple(x.shape))
    return f"has shape {letters}" + (f" = {shape}" if shape != letters else "")


def _alike(found: Difference, wrong: list[Trial]) -> Iterator[relations.Sample]:
    """Other inputs on which the same thing differs in the same way."""
    for trial in wrong[:MAX_SAMPLES]:
        other = trial.difference
        if other and (other.kind, other.part) == (found.kind, found.part):
            yield other.yours, other.expected, trial.case.sizes


def _promised(exercise: Exercise, found: Difference) -> str:
    """The shape that the stub promises, in letters."""
    _, _, shape = exercise.gives[found.part].partition(" ")
    return shape


def _part(exercise: Exercise, found: Difference) -> str:
    if len(exercise.gives) == 1:
        return "Your result"
    return f"Your {exercise.gives[found.part].split(' (')[0]}"


def _wrong_type(exercise: Exercise, found: Difference) -> Finding:
    name = type(found.yours).__name__
    have = _TYPES.get(name, f"an object of type {name}")
    want = "one tensor" if isinstance(found.expected, Tensor) else "an int"
    if isinstance(found.yours, Tensor) and isinstance(found.expected, Tensor):
        if found.yours.device.type != "cpu":
            return FIXED_DEVICE
        have, want = "a tensor that is sparse, complex or otherwise special", "a plain one"
    if isinstance(found.expected, tuple):
        want = f"{len(found.expected)} results: {', '.join(exercise.gives)}"
    return Finding(
        f"returns_{name}",
        f"Your code returns {have}, and it should be {want}.",
        "What does your last line return?",
    )


_TYPES = {
    "Tensor": "one tensor",
    "ndarray": "a numpy array",
    "NoneType": "nothing (`None`) on this input",
    "dict": "a dictionary",
    "list": "a list",
    "tuple": "a tuple",
    "float": "a float",
    "int": "a Python int",
    "str": "text",
    "generator": "a generator (`yield` instead of `return`)",
    "coroutine": "a coroutine (`async def` instead of `def`)",
}


def _wrong_dtype(part: str, found: Difference) -> Finding:
    have, want = (str(t.dtype).removeprefix("torch.") for t in (found.yours, found.expected))
    if want == "bool":
        return Finding(
            "not_bool",
            f"{part} has dtype {have}, and a mask should be bool: `~`, `|` and `masked_fill` "
            "all count on it.",
            "What gives True and False instead of numbers?",
        )
    return Finding(
        "fixed_dtype",
        f"{part} has dtype {have} for {want} input: somewhere a dtype is fixed instead of "
        "following the input.",
        "Which tensor do you create or convert yourself?",
    )


def _picture(exercise: Exercise, trial: Trial) -> Picture | None:
    found = trial.difference
    if found is None or found.kind not in ("values", "nan"):
        return None
    if not isinstance(found.expected, Tensor) or found.expected.ndim == 0:
        return None
    limit = allowed(found.expected.dtype, trial.case.tolerance)
    cells = close_cells(found.yours, found.expected, limit)
    name = exercise.gives[found.part].split(" (")[0]
    return picture(found.yours, found.expected, ~cells, name)


# --- beyond float64 on one device ----------------------------------------------------------------


def _random(answer: Callable[..., Any], trial: Trial, codes: set[Any]) -> Finding | None:
    """Whether the answer gives something else when it is called again."""
    if isinstance(trial.outcome, Raised):
        return None
    seed(1)
    again = run(answer, trial.case.inputs, codes)
    first = trial.outcome.value
    if not same(first, first):
        return None  # nothing that can be compared
    if isinstance(again, Returned) and same(again.value, first):
        return None
    return Finding(
        "random",
        "Your code gives another result each time it is called on the same input.",
        "Where does chance come in: is there a dropout, or a fresh random tensor?",
    )


def at(x: Any, dtype: torch.dtype) -> Any:
    """The same in another dtype, where it has a floating one."""
    return x.to(dtype) if _is_floating(x) else x


def _in_dtype(
    exercise: Exercise, bound: Bound, dtype: torch.dtype, codes: set[Any]
) -> Finding | None:
    for case in bound.cases:
        if (case.wide and dtype in HALF) or not any(_is_floating(x) for x in case.inputs):
            continue
        inputs = tuple(at(x, dtype) for x in case.inputs)
        right = exercise.variant((), tuple(at(x, torch.float64) for x in inputs))
        parts = right if isinstance(right, tuple) else (right,)
        parts = tuple(p.to(dtype) if p.is_floating_point() else p for p in parts)
        expected = parts if isinstance(right, tuple) else parts[0]
        trial = Trial(case, expected, run(bound.answer, inputs, codes))
        if trial.difference is not None:
            return _dtype_finding(exercise, trial, dtype)
    return None


def _is_floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else hasattr(x, "to")


def _dtype_finding(exercise: Exercise, trial: Trial, dtype: torch.dtype) -> Finding:
    found, name = trial.difference, str(dtype).removeprefix("torch.")
    assert found is not None
    if isinstance(trial.outcome, Raised):
        return errors.explain(trial.outcome, f"for {name} input; float64 goes well")
    if found.kind == "dtype":
        return _wrong_dtype(_part(exercise, found), found)
    what = "NaN" if found.kind == "nan" else "other values"
    return Finding(
        "low_precision",
        f"In float64 all is right; for {name} input {_part(exercise, found).lower()} has {what}.",
        "Which number of yours is too large, or too small, for this dtype?",
    )


FIXED_DEVICE = Finding(
    errors.DEVICE,
    "It makes its result on a fixed device: with inputs on another one (a GPU, say) the "
    "result does not follow them.",
    "Which tensor do you create yourself, and how could it follow the device of the input?",
)


def _on_other_device(bound: Bound, codes: set[Any]) -> Finding | None:
    case = bound.cases[0]
    mine = [x for part in case.inputs for x in _tensors(part)]
    if not mine:
        return None
    with Elsewhere(mine) as device:
        outcome = run(bound.answer, case.inputs, codes)
    if isinstance(outcome, Raised):
        finding = errors.explain(outcome)
        return finding if finding.key == errors.DEVICE else None
    return FIXED_DEVICE if any(device.lacks(x) for x in flat(outcome.value)) else None


def _tensors(x: Any) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    return list(x.tensors()) if hasattr(x, "tensors") else []
