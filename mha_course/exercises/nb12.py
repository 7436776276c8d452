"""Exercise 20, notebook 12: tests that tell a right attention class from a wrong one.

The learner's tests are run on right classes in many styles, and on the mistakes of `shipped` that
such a class can make: in random order, and all of one make. What the tests change is put back.
"""

import ctypes
import math
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import is_
from pathlib import Path
from queue import Empty, SimpleQueue
from random import SystemRandom
from threading import Thread
from time import monotonic, process_time
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.engine import errors, looking
from mha_course.engine.report import Finding, Report
from mha_course.engine.safely import Raised, codes_of, run, safe_text, seed, undisturbed
from mha_course.exercises.nb12_styles import STYLES, Layers, WithoutBiases
from mha_course.practice import journal

SEEDS = 3  # chance differs among them
SECONDS = 10.0  # of processor time for one class: `compare` as a test takes up to two
ALL_SECONDS = 240.0  # for all of them: half of it for `compare`
WAITING = 4  # times as long by the clock, for what sleeps

MISTAKES = tuple(bug for bug in shipped.bugs().values() if bug.base == "Attention")

# ---------------------------------------------------------------- what is said of the tests

READY_MADE = {"scaled_dot_product_attention", "multi_head_attention_forward"}
READY_MADE |= {"MultiheadAttention", "MultiHeadAttention", "textbook_attention"}
BY_HAND = "scale"  # the kind that the first level may let through


def _finding(key: str, does: str, asks: str) -> Finding:
    limits = {"seconds": SECONDS, "waited": WAITING * SECONDS, "all": ALL_SECONDS, "seeds": SEEDS}
    return Finding(key, " ".join(does.split()).format(**limits), asks)


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ASKS: dict[str, str] = _TABLE["asks"]
SAID = {key: _finding(key, **words) for key, words in _TABLE["finding"].items()}
LOOKS = """
    __code__ __closure__ __globals__ _getframe _current_frames currentframe f_back f_locals
    tb_frame getsource getclosurevars get_objects get_referrers get_referents settrace
    setprofile grad_fn next_functions
"""
EXPECTED = "Are the numbers that you expect there right: does True block, or keep?"


class TooLong(BaseException):
    """Ends a test that does not end by itself."""


@dataclass(frozen=True)
class Result:
    """What a test makes of a class under one seed."""

    raised: Raised | None
    built: bool
    changed: bool
    returned: bool
    inside: bool = False  # raised by the class itself


@dataclass(frozen=True, eq=False)
class WritingTests:
    """Exercise 20, notebook 12: raise AssertionError for a wrong class, be silent for a right one.

    `check.test_attention(test_attention)` gives a report, as every check does. There are two
    levels: without a ready-made attention to compare with, all mistakes but those of the scale;
    and all of them.
    """

    name: str = "test_attention"
    number: int = 20
    notebook: str = "12"
    reread: str = "What finds them"

    @property
    def slips(self) -> list[Finding]:
        """What a report can name, for the statistics of a class."""
        return [*SAID.values(), *map(_missed, MISTAKES)]

    def __call__(self, answer: Any) -> Report:
        """Says what the tests accuse and what they let through; never raises."""
        with undisturbed():
            try:
                report = self._judge(answer)
            except TooLong:  # which came as the tests had just ended
                report = self._fail(SAID["hangs"])
            except (Exception, SystemExit, GeneratorExit) as error:
                report = self._fail(Finding("unjudged", safe_text(error, str)))
        journal.remember(report)
        return report

    def _judge(self, answer: Any) -> Report:
        if not callable(answer):
            what = type(answer).__name__
            words = f"The check got an object of type {what} instead of your function."
            return self._fail(Finding("not_a_function", words))
        names, files = _read(answer)
        if names & {*LOOKS.split()}:
            return self._fail(SAID["peeks"])
        with suppress(AssertionError):  # its first failure imports for seconds
            torch.testing.assert_close(1.0, 2.0)
        codes, right = codes_of(answer), [shipped.right(), *STYLES]
        tried = [*right, *(bug.build for bug in MISTAKES)]
        of_all: list[list[Result]] = [[] for _ in tried]
        trials = [(index, number) for index in range(len(tried)) for number in range(SEEDS)]
        SystemRandom().shuffle(trials)  # no count of calls tells right from wrong
        spent, end = process_time(), monotonic() + WAITING * ALL_SECONDS
        for index, number in trials:
            if process_time() - spent > ALL_SECONDS or monotonic() > end:
                return self._fail(SAID["slow"])
            with looking.heard(files) as looks:
                result = _result_of(answer, tried[index], number, codes)
            if looks:
                return self._fail(SAID["peeks"])
            if finding := _stops(result):
                return self._fail(finding)
            of_all[index].append(result)
        of_right, of_wrong = of_all[: len(right)], of_all[len(right) :]
        if not any(r.built or r.raised or r.returned for results in of_all for r in results):
            return self._fail(SAID["builds_none"]) if names else Report(self.name, None)
        judged = zip(right, of_right, strict=True)
        accused = [(cls, results) for cls, results in judged if any(r.raised for r in results)]
        missed = [bug for bug, results in zip(MISTAKES, of_wrong, strict=True) if not _all(results)]
        caught = len(MISTAKES) - len(missed)
        score = (
            f"Your tests accuse {len(accused)} of {len(right)} right classes and catch "
            f"{caught} of {len(MISTAKES)} published mistakes."
        )
        if accused:
            return self._fail(_accusation(score, accused, not missed))
        if not caught and any(r.returned for results in of_all for r in results):
            return self._fail(SAID["returns"], score)
        level = 2 if not missed else 1
        by_hand = all(bug.kind == BY_HAND for bug in missed)
        if missed and (not by_hand or names & READY_MADE):
            [first, *_] = sorted(missed, key=lambda bug: bug.kind == BY_HAND)
            results = of_wrong[MISTAKES.index(first)]
            others = [t.raised for t in results if t.raised]
            if len(others) == SEEDS:
                if all(t.inside for t in results):
                    return self._fail(SAID["inside_the_class"], score)
                name = next(one.kind for one in others if not _accuses(one))
                return self._fail(SAID["other_error"], score, f" ({name})")
            why = " Level 1 takes no ready-made attention." * by_hand
            return self._fail(_missed(first), f"{score}{why}")
        notes = [f"{score} That is level {level} of 2."]
        if missed:
            notes.append(f"Wrong scales are left. {ASKS[BY_HAND]}")
        return Report(self.name, True, notes=tuple(notes))

    def _fail(self, finding: Finding, before: str = "", after: str = "") -> Report:
        does = f"{before} {finding.does}{after}".lstrip()
        return Report(self.name, False, (replace(finding, does=does),))


def _result_of(answer: Any, cls: type[nn.Module], number: int, codes: set[CodeType]) -> Result:
    """The tests run in a thread of their own; this one computes what the class gives.

    So nothing that the tests can reach, neither code nor frames, says which class it is.
    """
    built: list[nn.Module] = []
    asked, raised = SimpleQueue[Any](), list[BaseException]()
    given = _given(getattr(cls, "bias", True), built, asked)
    before, put_back = dict(vars(given)), _snapshot()
    outcomes = list[Any]()

    def tests() -> None:
        torch.set_num_threads(1)  # of this thread: a forked kernel must start no others
        try:
            outcomes.append(run(answer, (given,), codes))
        except BaseException as error:  # that `TooLong` comes late
            outcomes.append(Raised(error))
        asked.put(None)

    seed(number)
    thread = Thread(target=tests, daemon=True)
    try:
        _answer_all(asked, cls, thread, raised)
    except KeyboardInterrupt as stopped:
        outcomes[:] = [Raised(stopped)]
    left = outcomes[0] if outcomes else Raised(TooLong())
    changed = put_back() or dict(vars(given)) != before
    if isinstance(left, Raised):
        return Result(left, bool(built), changed, False, any(left.error is e for e in raised))
    return Result(None, bool(built), changed, left.value is not None)


def _answer_all(
    asked: SimpleQueue[Any], cls: type[nn.Module], thread: Thread, raised: list[BaseException]
) -> None:
    """Computes `forward` for the tests until they end, or for as long as they may take."""
    spent, started = process_time() + SECONDS, monotonic()
    end = started + WAITING * SECONDS
    compute, forward = _compute, cls.forward  # as they are before the tests reach them
    thread.start()
    try:
        while True:
            request: Any = ()
            with suppress(Empty):
                request = asked.get(timeout=0.1)
            if request is None or monotonic() > 2 * end - started:  # nothing ends it
                return
            if request:
                compute(forward, raised, *request)
            if process_time() > spent or monotonic() > end:
                _stop(thread)
                spent = math.inf
    except BaseException:  # somebody stops the cell
        _stop(thread)
        raise


def _compute(
    forward: Callable[..., Any],
    raised: list[BaseException],
    out: SimpleQueue[Any],
    modes: tuple[bool, bool],
    *args: Any,
) -> None:
    with torch.set_grad_enabled(modes[0]), torch.inference_mode(modes[1]):
        try:
            out.put((forward(*args), None))
        except Exception as error:
            raised.append(error)
            out.put((None, error.with_traceback(None)))


def _stop(thread: Thread) -> None:
    """Raises `TooLong` between two of its steps of Python."""
    if thread.ident is not None:
        late = ctypes.py_object(TooLong)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), late)


def _given(with_bias: bool, built: list[nn.Module], asked: SimpleQueue[Any]) -> type[nn.Module]:
    """A new class, the same for all; its `forward` asks the judge's thread."""

    class Attention(Layers):
        bias = with_bias

        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__(d_model, n_heads)
            built.append(self)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            out = SimpleQueue[Any]()
            modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            asked.put((out, modes, self, x, mask))
            value, error = out.get()
            if error is not None:
                raise error
            return value

    for method in (Attention.__init__, Attention.forward):
        method.__qualname__ = f"Attention.{method.__name__}"  # as errors call it
    return Attention


def _snapshot() -> Callable[[], bool]:
    """What tests might replace; the function that comes back undoes it, and says if they did."""
    owners = (
        torch,
        nn,
        F,
        nn.init,
        torch.testing,
        math,
        torch.Tensor,
        nn.Module,
        nn.Linear,
        Layers,
        shipped,
        sys.modules[__name__],
        sys.modules[Layers.__module__],
    )
    before = [(owner, dict(vars(owner))) for owner in owners]
    hooks = [
        (held, dict(held))
        for name, held in vars(nn.modules.module).items()
        if name.startswith("_global_") and isinstance(held, dict)
    ]
    dtype = torch.get_default_dtype()

    def put_back() -> bool:
        changed = False
        torch.set_default_dtype(dtype)  # the next class is made as this one was
        for held, entries in hooks:
            changed |= held != entries
            held.clear()
            held.update(entries)
        for owner, names in before:
            now = dict(vars(owner))
            if now.keys() == names.keys() and all(map(is_, now.values(), names.values())):
                continue  # the usual case, quickly
            for name in names | now if isinstance(owner, type) else names:  # modules may import
                old, new = names.get(name), now.get(name)
                if old is not new and (callable(old) or callable(new)):
                    setattr(owner, name, old) if name in names else delattr(owner, name)
                    changed = True
        return changed

    return put_back


def _stops(result: Result) -> Finding | None:
    """What ends the judgement at once."""
    if result.raised and isinstance(result.raised.error, TooLong):
        return SAID["hangs"]
    if result.raised and isinstance(result.raised.error, KeyboardInterrupt):
        return errors.explain(result.raised)
    return SAID["changes_the_class"] if result.changed else None


def _accuses(raised: Raised | None) -> bool:
    return raised is not None and isinstance(raised.error, AssertionError)


def _all(results: list[Result]) -> bool:
    return all(_accuses(result.raised) for result in results)


def _accusation(
    score: str, accused: list[tuple[type[nn.Module], list[Result]]], all_wrong: bool
) -> Finding:
    firsts = [next(result.raised for result in results if result.raised) for _, results in accused]
    (cls, results), raised = accused[0], firsts[0]
    if cls is WithoutBiases and "NoneType" in raised.message:
        return SAID["no_bias"]
    if raised.kind != "AssertionError":
        return errors.explain(raised, "with a right class")
    kind = SAID["accuses"] if _all(results) else SAID["by_chance"]
    line = f" in your line {raised.number}: `{raised.source}`" if raised.source else ""
    text = raised.message.partition("\n")[0]
    line += f" (“{text}”)" * bool(text)
    if len(accused) > len(STYLES) and len({one.number for one in firsts}) == 1:
        if all_wrong and len({one.message for one in firsts}) == 1:
            where = f",{line}" * bool(line)
            return replace(kind, does=f"{score} They accuse every class{where}.")
        return replace(kind, does=f"{score} Every right class fails{line}.", asks=EXPECTED)
    style = cls.__doc__ if issubclass(cls, Layers) else "in the plainest way"
    which = "One of these is" if len(accused) > 1 else "It is"
    why = f" {kind.does}" if kind is SAID["by_chance"] else ""
    return replace(kind, does=f"{score}{why} {which} written {style}, and fails{line}.")


def _missed(bug: shipped.Bug) -> Finding:
    repository = bug.threads[0].split("#")[0]
    return Finding(
        f"missed:{bug.name}",
        f"A mistake that you let through was in {repository}: {bug.does}",
        ASKS[bug.kind],
    )


def _read(answer: Any) -> tuple[set[str], frozenset[str]]:
    """The names that the tests and the learner's own functions use, and the files of these."""
    todo, names, files = [*codes_of(answer)], set[str](), {"<string>"}
    known = getattr(answer, "__globals__", {})
    while todo:
        code = todo.pop()
        files.add(code.co_filename)
        todo += [part for part in code.co_consts if isinstance(part, CodeType)]
        said = {part for part in code.co_consts if isinstance(part, str)}
        new = {*code.co_names, *code.co_freevars, *said} - names
        names |= new
        todo += [c for name in new for c in codes_of(known.get(name))]
    return names, frozenset(files)


test_attention = WritingTests()
