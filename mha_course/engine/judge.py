"""Judges an answer: runs it on every input, explains what is wrong, and asks on where nothing is.

An `Attempt` goes through NAMERS one by one, and the report is what the first of them says that
explains it. Where all values are right it goes through ASKED, and the report holds all findings.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from mha_course.engine import beyond, differs, errors, places, rules, safely, search
from mha_course.engine.attempt import Attempt, Explanation, Namer, Trial
from mha_course.engine.cells_run import stale
from mha_course.engine.compare import allowed, close_cells
from mha_course.engine.gradients import CUT_OFF, DRAWN, gradient
from mha_course.engine.problem import Bound, Problem
from mha_course.engine.report import Finding, Picture, Report, picture
from mha_course.engine.safely import Outcome, Raised, Returned, codes_of, on_the_cpu, run
from mha_course.engine.source import Source

NAMERS: tuple[Namer, ...] = (
    rules.three_dots,  # what the stub left open
    rules.kept_nothing,  # a line without `x =` in front, and all is right with it
    differs.another_type,  # right values of another dtype, or numpy's
    search.one_slip,  # a known slip, on every input
    rules.in_the_lines,  # a name of another cell, a stub that is called, a result thrown away
    rules.arguments_exchanged,
    places.one_place,  # one change of the learner's own code, and all is right
    search.several_slips,
    search.slip_in_part,  # a known slip, on some inputs
    rules.its_error,
    differs.what_differs,
)
ASKED: tuple[Callable[[Attempt], Iterator[Finding]], ...] = (
    beyond.other_dtypes,
    beyond.other_device,
    gradient,
    beyond.further,
)


def judge(problem: Problem, answer: Any) -> Report:
    """Never raises, and leaves no trace."""
    with safely.undisturbed() as printed:
        try:
            report = _judged(problem, answer)
        except (Exception, SystemExit, GeneratorExit) as error:  # what it gave raises when compared
            report = Report(problem.name, False, (_unjudged(error),))
    if printed.getvalue().strip() and report.passed is not None:
        report = replace(report, notes=(*report.notes, "(What it printed was left out here.)"))
    return report


def _judged(problem: Problem, answer: Any) -> Report:
    if finding := stale(answer):
        return Report(problem.name, None, (finding,))
    bound = _bound(problem, answer)
    attempt = bound if isinstance(bound, Report) else _attempted(problem, answer, bound)
    if isinstance(attempt, Report):
        return attempt
    writes = any(isinstance(t.outcome, Returned) and t.outcome.changed for t in attempt.trials)
    if explanation := rules.chance(attempt) or (_explained(attempt) if attempt.wrong else None):
        return _with_writes(attempt, _failed(attempt, explanation), writes)
    by_key: dict[str, Finding] = {}
    for finding in (f for ask in ASKED for f in ask(attempt)):
        by_key.setdefault(finding.key, finding)
    asked = (finding for key, finding in by_key.items() if key not in UNASKED)
    findings = tuple(sorted(asked, key=lambda f: f.key == "fixed_dtype"))  # that one last
    notes: tuple[str, ...] = ()
    if not findings:
        elsewhere = [UNASKED_NOTE.format(f"{f.sentence} {f.asks}") for f in by_key.values()]
        notes = (*elsewhere[:1], *_remarks(attempt, answer))
    elif not by_key.keys().isdisjoint(OF_NUMPY) and (finding := attempt.source.by_numpy()):
        findings = (finding, *(f for f in findings if f.key not in (*OF_NUMPY, "fixed_dtype")))
    report = Report(problem.name, not findings, findings, notes, checked=len(attempt.trials))
    return _with_writes(attempt, report, writes)


# What shows on another device, in half precision or of a picture alone: no exercise asks for these.
UNASKED = ("fixed_device", "error:numpy_lacks_dtype", DRAWN, beyond.IN_HALF)
UNASKED_NOTE = (
    "The exercise does not ask for it, but on another device, in half precision or in training: {}"
)
OF_NUMPY = (*UNASKED, *CUT_OFF)  # what comes of leaving torch for numpy


def _bound(problem: Problem, answer: Any) -> Bound | Report:
    """The answer as a function of a case's inputs; a report where there is nothing to run."""
    if not callable(answer):
        what = safely.safe_text(type(answer).__name__, str)
        finding = Finding(
            "not_a_function",
            f"The check got an object of type {what} instead of your code.",
            f"Does it say `check.{problem.name}({problem.name})`, without calling it?",
        )
        return Report(problem.name, False, (finding,))
    if _is_the_packages(problem, answer):
        return Report(problem.name, None, notes=(PACKAGES.format(problem.name),))
    bound = problem.bind(answer) if problem.bind else Bound(answer, problem.every_case)
    if isinstance(bound, Bound):
        return bound
    return Report(problem.name, False if bound else None, (bound,) if bound else ())


def _attempted(problem: Problem, answer: Any, bound: Bound) -> Attempt | Report:
    """What the answer does on every input; a report where it does nothing, or is interrupted."""
    attempt = Attempt(problem, bound, Source(answer), codes_of(answer), [])
    for case in bound.cases:
        outcome = on_the_cpu(run(bound.answer, case.inputs, attempt.codes), case.inputs)
        if not attempt.trials and _is_nothing(outcome) and not _something_later(attempt):
            if problem.bind is None and attempt.source.ends_in_work():
                return Report(problem.name, False, (NO_RETURN,))
            return Report(problem.name, None)
        if isinstance(outcome, Raised) and isinstance(outcome.error, KeyboardInterrupt):
            return Report(problem.name, False, (errors.explain(outcome),))
        attempt.trials.append(Trial(case, problem.result_on(case), outcome))
    return attempt


def _explained(attempt: Attempt) -> Explanation:
    """What the first namer says that knows; and a line beside it whose result is not kept."""
    explanation = next(filter(None, (namer(attempt) for namer in NAMERS)))
    findings, line = explanation.findings, attempt.source.nothing_kept()
    if line is None or any(f.rest_right or f.key in NAMES_A_LINE for f in findings):
        return explanation
    return explanation._replace(findings=(*findings, attempt.source.thrown_away(line)))


NAMES_A_LINE = ("thrown_away", "three_dots")  # findings that do


def _failed(attempt: Attempt, explanation: Explanation) -> Report:
    name, notes = attempt.problem.name, tuple(filter(None, explanation.notes))
    if not explanation.shows or explanation.findings[0].key.startswith("error:"):
        return Report(name, False, explanation.findings, notes)
    where = f"It shows on {attempt.shown.case.words}."
    return Report(name, False, explanation.findings, notes, _tables(attempt), where)


def _tables(attempt: Attempt) -> Picture | None:
    differs = attempt.shown.difference
    if differs is None or differs.kind not in ("values", "nan"):
        return None
    yours, expected = differs.yours, differs.expected
    if not isinstance(expected, Tensor) or expected.ndim == 0:
        return None
    cells = close_cells(yours, expected, allowed(expected.dtype, attempt.shown.case.tolerance))
    return picture(yours, expected, ~cells, attempt.problem.results[differs.part].name)


def _with_writes(attempt: Attempt, report: Report, writes: bool) -> Report:
    """That it writes into its inputs: a note, or where the exercise forbids it a finding."""
    if not writes:
        return report
    if not attempt.problem.keeps_inputs:
        return replace(report, notes=(*report.notes, WRITES))
    findings = (*(replace(f, rest_right=False) for f in report.findings), KEPT)
    return replace(report, passed=False, findings=findings)


WRITES = "It writes into its input: whoever calls it finds the tensor changed."
KEPT = Finding(
    "writes_into_input",
    WRITES,
    "Which line changes a tensor in place, and how could it work on one of its own?",
)


def _remarks(attempt: Attempt, answer: Any) -> Iterator[str]:
    """What is worth knowing of a right answer."""
    problem, inner = attempt.problem, getattr(answer, "func", None)  # of a partial
    names = problem.ready_made or (problem.name,)
    called = names if _is_the_packages(problem, inner) else attempt.source.calls(names)
    if called:
        does = "does" if len(called) == 1 else "do"
        listed = " and ".join(f"`{name}`" for name in called)
        yield f"It calls {listed}, which {does} what you were to write: what would yours look like?"
    if problem.remark and (remark := problem.remark(attempt)):
        yield remark


def _unjudged(error: BaseException) -> Finding:
    return Finding(
        "unjudged",
        f"The check could not judge this answer: looking at what it returns stops with "
        f"{type(error).__name__}: {safely.safe_text(error, str)}",
        "Does it return plain tensors, as the exercise asks?",
    )


NO_RETURN = Finding(
    "no_return",
    "Your code computes something, but returns nothing: a function without `return` gives `None`.",
    "Which of your values should the caller get?",
)


PACKAGES = (
    "`{}` is the package's own here, from an import: did you run the cell with yours, and did it "
    "end without an error?"
)


def _is_the_packages(problem: Problem, answer: Any) -> bool:
    """What an import has left where the learner's cell did not run is no answer."""
    home = safely.safe_text(getattr(answer, "__module__", ""), str)
    return (
        home.startswith(("mha_lesson.", "mha_course."))
        and getattr(answer, "__name__", "") == problem.name
    )


def _something_later(attempt: Attempt) -> bool:
    """Whether other inputs get a result: then it was attempted."""
    bound, codes = attempt.bound, attempt.codes
    later = (run(bound.answer, case.inputs, codes) for case in bound.cases[1:])
    return any(isinstance(outcome, Returned) and not _is_nothing(outcome) for outcome in later)


def _is_nothing(outcome: Outcome) -> bool:
    if isinstance(outcome, Raised):
        return outcome.not_written
    return outcome.value is None or outcome.value is ...
