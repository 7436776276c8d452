"""Judges an answer: by its values in float64 first, then in other dtypes and on another device."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, permutations
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check import journal
from mha_lesson.check.engine import errors
from mha_lesson.check.engine.atlarge import at_large, where_right
from mha_lesson.check.engine.compare import same
from mha_lesson.check.engine.elsewhere import Elsewhere, flat
from mha_lesson.check.engine.exercise import Bound, Case, Exercise, Slip
from mha_lesson.check.engine.experiments import experiment
from mha_lesson.check.engine.gradients import gradient
from mha_lesson.check.engine.naming import (
    ELSEWHERE,
    FIXED_DEVICE,
    PARTLY,
    Diagnosis,
    Trial,
    all_alike,
    diagnose,
    explain_crash,
    most_telling,
    part_of,
    report_on_values,
    reproduces,
    wrong_dtype,
)
from mha_lesson.check.engine.places import ALONE, one_place, one_truth_value, right_once_kept
from mha_lesson.check.engine.report import Finding, Report
from mha_lesson.check.engine.safely import (
    Outcome,
    Raised,
    Returned,
    codes_of,
    landed,
    run,
    safe_text,
    seed,
    tensors,
    undisturbed,
)
from mha_lesson.check.engine.source import Source
from mha_lesson.check.engine.stages import parting, reached, where_nan

HALF = (torch.float16, torch.bfloat16)
OTHER_DTYPES = (torch.float32, *HALF)


def check(exercise: Exercise, answer: Any) -> Report:
    """Judges `answer`; never raises, and leaves no trace but the learner's progress."""
    with undisturbed() as printed:
        try:
            report = _judge(exercise, answer)
        except (Exception, SystemExit, GeneratorExit) as error:  # it breaks when it is looked at
            report = Report(exercise.name, False, (_unjudged(error),))
    if printed.getvalue().strip() and report.passed is not None:
        report = replace(report, notes=(*report.notes, "(What it printed was left out here.)"))
    journal.remember(report)
    return report


def _unjudged(error: BaseException) -> Finding:
    return Finding(
        "unjudged",
        f"The check could not judge this answer: looking at what it returns stops with "
        f"{type(error).__name__}: {safe_text(error, str)}",
        "Does it return plain tensors, as the exercise asks?",
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
    if _is_the_packages(exercise, answer):
        return Report(exercise.name, None, notes=(PACKAGES.format(exercise.name),))
    bound = _bind(exercise, answer)
    if not isinstance(bound, Bound):
        return Report(exercise.name, False, (bound,)) if bound else _untouched(exercise)
    codes = codes_of(answer)
    trials: list[Trial] = []
    for case in bound.cases:
        outcome = landed(run(bound.answer, case.inputs, codes), case.inputs)
        if not trials and _nothing_there(outcome) and not _something_later(bound, codes):
            forgotten = exercise.bind is None and _computes_something(answer)
            return Report(exercise.name, False, (NO_RETURN,)) if forgotten else _untouched(exercise)
        if isinstance(outcome, Raised) and isinstance(outcome.error, KeyboardInterrupt):
            return Report(exercise.name, False, (errors.explain(outcome),))
        trials.append(Trial(case, exercise.on(case), outcome))
    source = Source(answer)
    if random := _random(bound.answer, trials[0], source, codes):
        diagnosis, report = Diagnosis(), Report(exercise.name, False, (random,))
    else:
        diagnosis = diagnose(exercise, trials, exercise.singles)
        report = report_on_values(exercise, trials, diagnosis)
    if report.passed is False:
        report = _seen_in_the_source(exercise, bound, source, report, trials)
        if "error:interrupted" in report.slips:
            return report
        stops = any(key.startswith("error:") for key in report.slips)
        if diagnosis.how != "complete" and (stops or not _explained(report)):
            report = _by_other_means(exercise, bound, source, report, trials, codes)
    if report.passed:
        findings: dict[str, Finding] = {}
        for found in filter(None, _beyond_values(exercise, bound, source, codes)):
            findings.setdefault(found.key, found)  # the usual dtypes first
        report = replace(report, passed=not findings, findings=tuple(findings.values()))
    if report.passed:
        remarks = _remarks(exercise, answer, bound, source)
        report = replace(report, notes=(*report.notes, *remarks))
    writes = any(isinstance(t.outcome, Returned) and t.outcome.changed for t in trials)
    if writes and exercise.keeps_inputs:
        before = (replace(f, does=f.does.replace(ALONE, "")) for f in report.findings)
        kept = (*before, Finding("writes_into_input", WRITES, KEPT))
        report = replace(report, passed=False, findings=kept)
    elif writes:
        report = replace(report, notes=(*report.notes, WRITES))
    return report


VAGUE = ("values", "shape", "nan", "result_count", "result_type", "not_bool", "formula")


# What tells a result as a whole, and needs no guess at two mistakes.
EXACT = {"relation:moved_axes", "relation:crossed", "relation:flipped_or_rolled"}
OF_SHAPES = tuple(
    f"error:{key}"
    for key in ("matrix_shapes", "broadcast_shapes", "shape_for_view", "index_out_of_range")
)


def _explained(report: Report) -> bool:
    """Whether there is a name for what it does, and not just what differs."""
    if report.slips == ("returns_ndarray",):
        return True
    vague = (key in VAGUE or key.startswith(("relation:", "returns_")) for key in report.slips)
    return not (_partly(report) or all(vague))


def _partly(report: Report) -> bool:
    """Whether what is said holds on some inputs only."""
    partly = any(finding.does.endswith(PARTLY) for finding in report.findings)
    return partly or ELSEWHERE in report.notes


def _seen_in_the_source(
    exercise: Exercise, bound: Bound, source: Source, report: Report, trials: list[Trial]
) -> Report:
    """What stands in the learner's lines comes before what can be guessed from the results."""
    keys, raised = report.slips, [t.outcome for t in trials if isinstance(t.outcome, Raised)]
    if found := source.three_dots():
        return Report(report.name, False, (found,))
    if "error:truth_of_a_tensor" in keys and (found := source.truth_of_a_tensor(raised[0].number)):
        return replace(report, findings=(found,))
    if "error:none_used" in keys and (found := source.a_stub_is_called()):
        return replace(report, findings=(found,))
    drawn = {"random", "error:dtype_mix", "error:matrix_shapes"} & set(keys)
    if drawn and exercise.bind is None and (found := source.fresh_weights(exercise.inputs)):
        return replace(report, findings=(found,), notes=())
    if node := source.nothing_kept():
        findings = (*report.findings, source.thrown_away(node))
        if not _explained(report) or right_once_kept(source, node, bound.again, trials):
            findings = (findings[-1], *report.findings[1:])
        return replace(report, findings=findings, notes=())
    if found := source.from_the_notebook():
        fixed = any(key.startswith("by_fixed") for key in keys)
        if fixed or not _explained(report) or all(k in OF_SHAPES for k in keys):
            others = () if fixed or not raised else report.findings
            return replace(report, findings=(found, *others), notes=())
    return report


def _by_other_means(
    exercise: Exercise,
    bound: Bound,
    source: Source,
    report: Report,
    trials: list[Trial],
    codes: set[Any],
) -> Report:
    """Where no slip fits: arguments in another order, one place, several slips, or how far."""
    if exercise.bind is None and (swapped := _swapped(exercise, bound, trials)):
        return Report(exercise.name, False, (swapped,))
    stops = any(key.startswith("error:") for key in report.slips)
    place = one_place(source, bound.again, trials, exercise)
    if stops and place.alone:
        return replace(report, notes=(*report.notes, place.alone.does))
    several = (place.alone,) if place.alone else _several(exercise, trials)
    known = stops or _partly(report) or EXACT & {*report.slips}
    if several := several or (() if known else place.with_slip()):
        return replace(report, findings=several, notes=())
    if exercise.tells and (told := exercise.tells(bound.answer, trials)):
        kept = report.findings if stops or _partly(report) else ()
        return replace(report, findings=(told, *kept))
    if found := at_large(bound.answer, trials):
        return replace(report, findings=(found,))
    wrong = [t for t in trials if t.difference is not None]
    if report.slips == ("nan",):
        first = next(t for t in wrong if t.difference and t.difference.kind == "nan")
        if words := where_nan(bound.answer, first.case, codes):
            (finding,) = report.findings
            asks = "Which numbers enter that line, and on which input?"
            named = Finding("nan_made", f"{finding.does} {words}", asks)
            return replace(report, findings=(named,))
    return _as_seen(exercise, bound, report, trials, codes)


IN_PART = "How do those positions come about, and how the others?"


def _as_seen(
    exercise: Exercise, bound: Bound, report: Report, trials: list[Trial], codes: set[Any]
) -> Report:
    """On which inputs it is right, what hangs on what, and how far it is right."""
    notes = [*report.notes, where_right(trials)]
    wrong = [t for t in trials if t.difference is not None]
    if not any(key.startswith("error:") for key in report.slips):
        slips = tuple(f for f in report.findings if isinstance(f, Slip))
        unexplained = [t for t in wrong if not (slips and reproduces(exercise, slips, t))]
        shown = most_telling(unexplained or wrong)
        seen = experiment(exercise, bound.answer, shown) if unexplained else None
        first = min(wrong, key=lambda t: (isinstance(t.outcome, Raised), bool(t.case.note)))
        words, in_part = reached(exercise, bound.answer, first.case, codes)
        if in_part and seen is None and not slips and first is shown:
            seen, words = Finding("in_part", words, IN_PART), ""
        if seen and slips and seen.key == "stays":
            notes.append(f"On {shown.case.words}: w{seen.does[1:]}")
        elif seen and not slips:
            does = f"{report.findings[0].does} {seen.does}"
            report = replace(report, findings=(replace(seen, does=does),))
        notes.append(words)
    return replace(report, notes=tuple(filter(None, notes)))


def _several(exercise: Exercise, trials: list[Trial]) -> tuple[Finding, ...]:
    """Slips that come together; where parts can be looked at one by one, those of each."""
    if all_alike(trials) or one_truth_value(trials[0]):
        return ()
    found: list[Finding] = []
    explained = False
    parts = list(exercise.apart(trials)) if exercise.apart else []
    for part, of_part in parts or [(exercise, trials)]:
        if all(reproduces(part, (), t) for t in of_part):
            continue
        counts = isinstance(of_part[0].expected, int)  # three terms may meet by chance
        diagnosis = diagnose(part, of_part, part.singles, grow=not counts)
        if diagnosis.how != "complete":
            candidates = chain(part.pairs, () if counts else part.triples)
            several = diagnose(part, of_part, candidates, grow=not counts)
            if diagnosis.how != "values" or several.how == "complete":  # the fewest, if as good
                diagnosis = several
        if diagnosis.how not in ("complete", "values"):
            return ()
        found += diagnosis.slips
        explained = not parts and diagnosis.how == "complete"
    if found and not explained and any(isinstance(t.outcome, Raised) for t in trials):
        found.append(explain_crash(trials))
    return tuple(found)


def _swapped(exercise: Exercise, bound: Bound, trials: list[Trial]) -> Finding | None:
    """Whether it is right once its arguments change places."""
    for order in list(permutations(range(len(exercise.inputs))))[1:]:

        def other(*inputs: Any, order: tuple[int, ...] = order) -> Any:
            return bound.answer(*(inputs[i] for i in order))

        if all(t.again(other).difference is None for t in trials):
            taken = ", ".join(exercise.inputs[i] for i in order)
            return Finding(
                "arguments_exchanged",
                f"All is right once the arguments are given in the order ({taken}): the exercise "
                f"passes them as ({', '.join(exercise.inputs)}).",
                "In which order does the first line of the stub name them?",
            )
    return None


def _bind(exercise: Exercise, answer: Any) -> Bound | Finding | None:
    """The answer as a function with its cases; a finding if that fails, None for a stub."""
    return exercise.bind(answer) if exercise.bind else Bound(answer, exercise.made)


def _beyond_values(
    exercise: Exercise, bound: Bound, source: Source, codes: set[Any]
) -> Iterator[Finding | None]:
    """What an answer with right values in float64 may still do."""
    for dtype in OTHER_DTYPES:
        yield _in_dtype(exercise, bound, source, dtype, codes)
    yield _on_other_device(bound, codes)
    yield gradient(exercise, bound, codes)
    for judge in exercise.further:
        yield judge(bound.answer, bound.cases)


def _remarks(exercise: Exercise, answer: Any, bound: Bound, source: Source) -> Iterator[str]:
    """What is worth knowing of a right answer."""
    name, inner = exercise.name, getattr(answer, "func", None)  # of a partial
    if _is_the_packages(exercise, inner) or source.calls(name := exercise.ready_made or name):
        yield f"It calls `{name}`, which does what was to be written: how would yours look?"
    if exercise.remark and (remark := exercise.remark(bound.answer, bound.cases)):
        yield remark


KEPT = "Which line changes a tensor in place, and how could it work on one of its own?"
WRITES = "It writes into its input: whoever calls it finds the tensor changed."


def _untouched(exercise: Exercise) -> Report:
    return Report(exercise.name, None)


NO_RETURN = Finding(
    "no_return",
    "Your code computes something, and then returns nothing: a function without `return` gives "
    "`None`.",
    "Which of your values should the caller get?",
)


PACKAGES = (
    "`{}` is the package's own here, as an import leaves it: was the cell with yours run, and did "
    "it end without an error?"
)


def _is_the_packages(exercise: Exercise, answer: Any) -> bool:
    """What an import has left where the learner's cell did not run is no answer."""
    home = safe_text(getattr(answer, "__module__", ""), str)
    return home.startswith("mha_lesson.") and getattr(answer, "__name__", "") == exercise.name


def _something_later(bound: Bound, codes: set[Any]) -> bool:
    """Whether other inputs get a result: then it was attempted."""
    return any(
        isinstance(later, Returned) and not _nothing_there(later)
        for later in (run(bound.answer, case.inputs, codes) for case in bound.cases[1:])
    )


def _nothing_there(outcome: Outcome) -> bool:
    if isinstance(outcome, Raised):
        return isinstance(outcome.error, NotImplementedError) and outcome.on_purpose
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


def _random(
    answer: Callable[..., Any], trial: Trial, source: Source, codes: set[Any]
) -> Finding | None:
    """Whether the answer gives something else when it is called again."""
    if isinstance(trial.outcome, Raised):
        return None

    def repeat() -> Outcome:
        seed(1)
        return landed(run(answer, trial.case.inputs, codes), trial.case.inputs)

    again = repeat()
    if isinstance(again, Raised) and again.kind == "KeyboardInterrupt":
        return errors.explain(again)
    first = trial.outcome.value
    if not same(first, first):
        return None  # nothing that can be compared
    if isinstance(again, Returned) and same(again.value, first):
        return None
    third = repeat()
    settled = (
        isinstance(again, Returned)
        and isinstance(third, Returned)
        and same(third.value, again.value)
    )  # the seed decides: it is chance
    if not settled and not source.draws():
        return Finding(
            "remembers",
            "Your code gives another result when it is called again on the same input: it keeps "
            "something from one call to the next.",
            "Where is that kept: in a name outside of the function, an attribute, a default?",
        )
    return Finding(
        "random",
        "Your code gives another result each time it is called on the same input.",
        "Where does chance come in: is there a dropout, or a fresh random tensor?",
    )


def at(x: Any, dtype: torch.dtype) -> Any:
    """The same in another dtype, where it has a floating one."""
    return x.to(dtype) if _is_floating(x) else x


def _in_dtype(
    exercise: Exercise, bound: Bound, source: Source, dtype: torch.dtype, codes: set[Any]
) -> Finding | None:
    trials: list[Trial] = []
    for case in bound.cases:
        if (case.wide and dtype in HALF) or not any(_is_floating(x) for x in case.inputs):
            continue
        rounded, expected = _rounded(exercise, case, dtype)
        trials.append(Trial(rounded, expected, run(bound.answer, rounded.inputs, codes)))
    wrong = [t for t in trials if t.difference is not None and not _torch_lacks(t.outcome)]
    if not wrong:
        return None
    finding = _dtype_finding(exercise, wrong[0], dtype)
    if finding.key != "low_precision":
        return finding
    if place := one_place(source, bound.again, trials).alone:
        does = place.does.replace(ALONE, "")
        return replace(finding, key=place.key, does=f"{finding.does} {does}")
    rounded = wrong[0].case
    exact = replace(rounded, inputs=tuple(at(x, torch.float64) for x in rounded.inputs))
    number, line = parting(bound.answer, exact, rounded, codes)
    if not line:
        return finding
    return Finding(
        "precision_lost",
        f"{finding.does} By line {number}, `{line}`, the numbers are further "
        "from those in float64 than rounding them once would bring them.",
        "How large are the numbers up to that line, and how many digits does the dtype hold?",
    )


def _rounded(exercise: Exercise, case: Case, dtype: torch.dtype) -> tuple[Case, Any]:
    """A case in another dtype, and what is right there."""
    known, given, key = case.memory.rounded, case.memory.given, (exercise, dtype)
    if dtype not in known:
        inputs = tuple(at(x, dtype) for x in case.inputs)
        if key not in given:
            given[key] = exercise.variant((), tuple(at(x, torch.float64) for x in inputs))
        right = given[key]
        whole = isinstance(right, Tensor)
        expected = at(right, dtype) if whole else tuple(at(part, dtype) for part in right)
        known[dtype] = replace(case, inputs=inputs), expected
    return known[dtype]


def _torch_lacks(outcome: Outcome) -> bool:
    """Whether this PyTorch lacks an operation in half precision: no mistake of a learner's."""
    return isinstance(outcome, Raised) and "not implemented for" in outcome.message


def _is_floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else hasattr(x, "to")


def _dtype_finding(exercise: Exercise, trial: Trial, dtype: torch.dtype) -> Finding:
    found, name = trial.difference, str(dtype).removeprefix("torch.")
    assert found is not None
    if isinstance(trial.outcome, Raised):
        return errors.explain(trial.outcome, f"for {name} input; float64 goes well")
    if found.kind == "dtype":
        return wrong_dtype(part_of(exercise, found), found)
    what = "NaN" if found.kind == "nan" else "other values"
    return Finding(
        "low_precision",
        f"In float64 all is right; for {name} input {part_of(exercise, found).lower()} has {what}.",
        "Which number of yours is too large, or too small, for this dtype?",
    )


def _on_other_device(bound: Bound, codes: set[Any]) -> Finding | None:
    """Every input is tried: a mask or a cache has lines of its own."""
    for case in bound.cases:
        mine = [x for part in case.inputs for x in tensors(part)]
        if not mine:
            continue
        with Elsewhere(mine) as device:
            outcome = run(bound.answer, case.inputs, codes)
        if isinstance(outcome, Raised):
            finding = errors.explain(outcome)
            if finding.key == errors.DEVICE:
                return finding
        elif any(device.lacks(x) for x in flat(outcome.value)):
            return FIXED_DEVICE
    return None
