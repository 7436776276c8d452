"""The machinery of the checks: nothing escapes, nothing is left behind, and the words are plain."""

import gc
import json
import random
import sys
import warnings
import weakref
from functools import partial, wraps
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.engine import safely
from mha_course.engine.device import DEVICE, OtherDevice
from mha_course.engine.errors import explain
from mha_course.engine.judge import judge
from mha_course.engine.problem import MOST_PAIRS, WHOLE, Bound, Case, Memory, Problem, StepRaised
from mha_course.engine.report import Finding, Report
from mha_course.engine.safely import Raised, Returned, codes_of, fresh, run, safe_text, seed
from typed import typed

TOY = partial(Problem, number=0, notebook="00")


def right(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    return right(x, n_heads)


def _wholes() -> list[Case]:
    """Sequences whose vectors are cut into heads."""
    sizes = [{"B": B, "T": T, "h": h, "d_k": d} for B, T, h, d in ((2, 5, 3, 7), (3, 7, 2, 5))]
    shapes = [(s["B"], s["T"], s["h"] * s["d_k"]) for s in sizes]
    return [
        Case((torch.rand(*shape, dtype=torch.float64), s["h"]), s)
        for shape, s in zip(shapes, sizes, strict=True)
    ]


SPLIT = TOY(split_heads, make_cases=_wholes, gives=("heads (B, h, T, d_k)",))


# --- not attempted yet ---------------------------------------------------------------------------


STUBS = (
    ["..."],
    ["return ..."],
    ['raise NotImplementedError("your turn")'],
    ["d_k = x.shape", "..."],
    ["pass"],
    ['"What it should do."'],
    ["y = x", "y"],
    ["return None"],
)
SOURCELESS = eval("lambda x, n_heads: None")


@pytest.mark.parametrize("stub", [*(typed("x, n_heads", *s) for s in STUBS), SOURCELESS])
def test_a_stub_is_not_attempted_yet(stub: Any) -> None:
    report = judge(SPLIT, stub)
    assert report.passed is None and report.slips == ()
    assert str(report) == repr(report) == "split_heads: not attempted yet."


# --- nothing escapes -----------------------------------------------------------------------------


class Evil:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        raise RuntimeError("no comparing")

    def __repr__(self) -> str:
        raise RuntimeError("no looking")


class BadError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def _raise(error: BaseException) -> Any:
    def answer(x: Any, n_heads: Any) -> Any:
        raise error

    return answer


def _endless(x: Any, n_heads: Any) -> Any:
    return _endless(x, n_heads)


@pytest.mark.parametrize(
    "answer",
    [
        *map(
            _raise, (SystemExit(), KeyboardInterrupt(), MemoryError(), BadError(), StopIteration())
        ),
        _endless,
        lambda x, h: Evil(),
        lambda x, h: [Evil()],
        lambda x, h: "text",
        lambda x, h: right(x, h).to(torch.complex64),
        lambda x, h: torch.empty(0),
        lambda x, h: x.resize_(1),
        lambda: None,
        lambda x, h, more: None,
        3,
        None,
        "split_heads",
        int,
    ],
)
def test_whatever_happens_a_check_reports(answer: Any) -> None:
    report = judge(SPLIT, answer)
    assert report.passed is False and report.findings
    assert "unjudged" not in report.slips
    assert str(report) and report._repr_html_()


def test_prints_and_warnings_stay_inside(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        print("a line per call")
        print("an error", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return right(x, n_heads)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = judge(SPLIT, answer)
    assert report.passed and "printed" in str(report)
    assert capsys.readouterr() == ("", "")


def _states() -> list[Any]:
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_device(),
        torch.overrides._get_current_function_mode_stack(),  # which slow every call
        vars(torch._GLOBAL_DEVICE_CONTEXT).copy(),  # a None in it: an error before PyTorch 2.10
        gc.isenabled(),
    ]


def test_no_trace_in_the_global_state() -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        torch.rand(3), np.random.rand(), random.random()
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        torch.set_default_device("cpu")
        return right(x, n_heads)

    before = _states()
    report = judge(SPLIT, answer)
    assert _states() == before
    assert report.slips == ("by_numpy",)


def test_a_long_search_leaves_no_rubbish_behind() -> None:
    def never_heard_of(x: Tensor, n_heads: int) -> Tensor:
        rows = [row if n_heads else row.view(7, -1) for row in x]
        return torch.stack(rows).unflatten(-1, (-1, n_heads)).flip(0).sin().mT

    assert judge(SPLIT, never_heard_of).passed is False
    gc.collect()
    gc.disable()
    try:
        assert judge(SPLIT, never_heard_of).passed is False
        # Errors that keep their frames leave 8,000; pytest's checked annotations leave 300.
        assert gc.collect() < 1000
    finally:
        gc.enable()


def test_a_report_says_the_same_every_time() -> None:
    def answer(x: Tensor, n_heads: int) -> Tensor:
        return torch.tanh(right(x, n_heads))

    first, second = judge(SPLIT, answer), judge(SPLIT, answer)
    assert str(first) == str(second) and first._repr_html_() == second._repr_html_()
    assert " at 0x" not in str(first)


# --- dtypes and devices --------------------------------------------------------------------------


def test_another_device_knows_its_tensors_and_refuses_others() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    with OtherDevice([x]) as there:
        assert x.device == DEVICE and y.device.type == "cpu"
        for moved in (
            x + 1,
            x.T,
            x[0],
            x.new_zeros(2),
            torch.zeros(2, device=x.device),
            y.to(x),
            y.to(x.device),
        ):
            assert there.has(moved)
        assert not y.to(x.device).is_meta  # it keeps its numbers
        n = x[0, 0].long()
        for stayed in (
            *(torch.zeros(2), x.cpu(), x.to("cpu"), torch.tensor([1.0, x[0, 0].item()])),
            *(torch.zeros(n), y[n], F.pad(y, (0, n)), torch.zeros(2).fill_(x[0, 0]), y.triu(n)),
        ):
            assert not there.has(stayed)
        assert there.has(nn.Linear(3, 2, device=x.device)(x))
        for mixed in (
            lambda: x + y,
            lambda: x @ y.T,
            lambda: x.masked_fill(y > 0, 0.0),
            lambda: y[x > 0],
            lambda: torch.einsum("ij,ij->i", x, y),
            lambda: x.numpy(),
            lambda: y * x.sum(),
            lambda: torch.arange(3) >= n,
            lambda: torch.zeros(1) + x[0, 0],
        ):
            with pytest.raises((RuntimeError, TypeError), match="device"):
                mixed()
        for joined in (x / torch.tensor(3.0), x[0, 0] + torch.tensor(3.0)):
            assert there.has(joined)  # a single number of the CPU's may join
        assert there.has(torch.as_tensor(x[0, 0]))


# --- slips, alone and together -------------------------------------------------------------------


def _toy() -> Problem:
    """x + 1 and then times 2, with ways to do each step, the common ones first."""

    @partial(TOY, make_cases=lambda: [], gives=("y",))
    def toy(x: Any, *, add: Any = lambda x: x + 1, twice: Any = lambda y: 2 * y) -> Any:
        return twice(add(x))

    toy.step(
        [
            ("add_2", "Adds 2.", "", lambda x: x + 2),
            ("other_way", "", "", lambda x: 1 + x),
            ("add_3", "Adds 3.", "", lambda x: x + 3),
        ],
        at="add",
    )
    three_times = ("times_3", "Three times.", "", lambda y: 3 * y)
    toy.step([three_times, ("times_1", "Not at all.", "", lambda y: y)], at="twice")
    toy.step([("both", "Both.", "", lambda x: x + 7)], at="add", twice=lambda y: 7 * y)
    toy.step([("zero", "Nothing.", "", lambda x: 0)], at=WHOLE)
    return toy


def test_a_step_that_raises_holds_what_it_was_given() -> None:
    """Else something else may come to lie at its address, and be taken for it."""
    memory, given = Memory(), Evil()
    seen = weakref.ref(given)
    with pytest.raises(StepRaised):
        memory.step(len, given)
    del given
    assert seen() is not None


def test_a_variant_cannot_learn() -> None:
    assert not _toy().result_of((), (torch.ones(2, requires_grad=True),)).requires_grad


def test_pairs_begin_with_common_slips_and_never_share_a_step() -> None:
    toy = _toy()
    assert [[s.key for s in c] for c in toy.singles] == [
        ["add_2"],
        ["add_3"],
        ["times_3"],
        ["times_1"],
        ["both"],
        ["zero"],
    ]
    assert [{s.key for s in pair} for pair in toy.pairs] == [
        {"add_2", "times_3"},
        {"add_2", "times_1"},
        {"other_way", "times_3"},
        {"add_3", "times_3"},
        {"other_way", "times_1"},
        {"add_3", "times_1"},
    ]


def test_pairs_are_many_and_not_too_many() -> None:
    def three(x: Any, *, a: Any = None, b: Any = None, c: Any = None) -> Any: ...

    many = partial(TOY, make_cases=lambda: [], gives=("y",))(three)
    for site, i in product("abc", range(46)):
        many.step([(f"{site}{i}", f"{site} {i}.", "", print)], at=site)
    assert len(many.pairs) == MOST_PAIRS
    assert {s.key for s in many.pairs[0]} == {"a0", "b0"}
    for a, b in many.pairs:
        assert a.sites.isdisjoint(b.sites)


def test_equal_numbers_are_not_taken_for_two_slips() -> None:
    @partial(TOY, make_cases=_tokens, gives=("y (B, T)",))
    def affine(x: Any, *, add: Any = lambda x: x + 1, twice: Any = lambda y: 2 * y) -> Any:
        return twice(add(x))

    affine.step([("ones", "All are 1.", "", torch.ones_like)], at="add")
    affine.step([("less", "One less.", "", lambda y: y - 1)], at="twice")
    assert judge(affine, torch.zeros_like).slips == ("stays",)


def test_a_wrong_registration_says_what_is_wrong() -> None:
    toy = _toy()
    toy.step([("add_2", "Other words.", "", print)], at="twice")
    with pytest.raises(ValueError, match=r"toy: .*among add, twice; got add_2 at twice\."):
        _ = toy.slips
    toy.step([("add_2", "Adds 2.", "", print)], at="twice")  # one mistake, two ways
    _ = toy.slips
    toy.step([("other", "No such step.", "", print)], at="halve")
    with pytest.raises(ValueError, match=r"got other at halve\.$"):
        _ = toy.slips


# --- how an answer is judged ---------------------------------------------------------------------


def _tokens() -> list[Case]:
    generator = torch.Generator().manual_seed(0)
    sizes = [{"B": 2, "T": 5}, {"B": 3, "T": 7}]
    shapes = [tuple(s.values()) for s in sizes]
    inputs = [torch.rand(*s, generator=generator, dtype=torch.float64) + 0.1 for s in shapes]
    notes = ("", "with B = 3")
    return [Case((x,), s, note) for x, s, note in zip(inputs, sizes, notes, strict=True)]


def _wide() -> list[Case]:
    return [*_tokens(), Case((torch.full((2, 3), 1e5).double(),), {"B": 2, "T": 3}, wide=True)]


def _doubled(**more: Any) -> Problem:
    @partial(TOY, **{"make_cases": _tokens, "gives": ("doubled (B, T)",), **more})
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    return doubled


def test_an_interrupt_ends_the_check_at_once() -> None:
    calls = []

    def answer(x: Tensor) -> Tensor:
        calls.append(x)
        raise KeyboardInterrupt

    assert judge(_doubled(), answer).slips == ("error:interrupted",)
    assert len(calls) == 1


def test_an_interrupt_in_the_second_call_is_not_taken_for_chance() -> None:
    seen: list[Tensor] = []

    def impatient(x: Tensor) -> Tensor:
        if any(torch.equal(x, one) for one in seen):
            raise KeyboardInterrupt
        seen.append(x)
        return 2 * x

    assert judge(_doubled(), impatient).slips == ("error:interrupted",)
    assert len(seen) == 2  # both cases went well; the interrupt came in the call after them


@pytest.mark.parametrize(
    ("x", "name"), [(3, "int"), (None, "NoneType"), (torch.ones(3), "Tensor"), (Evil(), "Evil")]
)
def test_what_is_no_function_is_named(x: Any, name: str) -> None:
    report = judge(_doubled(), x)
    assert report.passed is False and report.slips == ("not_a_function",)
    assert f"an object of type {name} instead of your code" in str(report)
    assert "`check.doubled(doubled)`" in str(report)


def test_where_the_check_itself_fails_it_says_so() -> None:
    def breaks(answer: Any, cases: Any) -> None:
        raise LookupError("no words")

    report = judge(_doubled(further=(breaks,)), lambda x: 2 * x)
    assert report.passed is False and report.slips == ("unjudged",) and report.name == "doubled"
    assert "stops with LookupError: no words" in str(report)


def test_what_it_printed_is_mentioned_only_where_something_was_attempted() -> None:
    def answer(x: Tensor) -> Tensor:
        print("here")
        return x

    def stub(x: Tensor) -> None:
        print("here")
        raise NotImplementedError

    assert judge(_doubled(), answer).notes == ("(What it printed was left out here.)",)
    assert judge(_doubled(), lambda x: print(" ") or x).notes == ()
    assert judge(_doubled(), stub).notes == ()


def test_of_what_is_printed_without_end_the_beginning_is_kept() -> None:
    with safely.undisturbed() as printed:
        for text in ("a" * 300, "b" * 10**6, "c"):
            assert sys.stdout.write(text) == len(text)
    assert printed.getvalue() == "a" * 300 + "b" * 700


def test_a_report_has_all_notes() -> None:
    def answer(x: Tensor) -> Tensor:
        print("here")
        return x.mul_(2)

    report = judge(_doubled(), answer)
    assert report.passed and len(report.notes) == 2 and "writes into its input" in report.notes[0]
    assert judge(_doubled(), lambda x: x.mul_(2) + (x.shape[0] == 3)).notes[-1] == report.notes[0]


def test_further_findings_are_all_reported_once() -> None:
    twice = Finding("once", "Told once.")
    further = (lambda a, c: twice, lambda a, c: None, lambda a, c: twice, lambda a, c: OTHER)
    report = judge(_doubled(further=further), lambda x: 2 * x)
    assert report.passed is False and report.findings == (twice, OTHER)
    assert judge(_doubled(further=further), lambda x: 3 * x).slips == ("relation:factor",)


OTHER = Finding("other", "Another thing.")


def test_an_exercise_may_bind_what_the_learner_wrote() -> None:
    def bind(answer: Any) -> Any:
        if answer is int:
            return OTHER
        return None if answer is str else Bound(lambda x: answer()(x), _tokens()[:1])

    bound = _doubled(bind=bind)
    assert judge(bound, int).findings == (OTHER,) and judge(bound, int).passed is False
    assert judge(bound, str).passed is None
    report = judge(bound, lambda: lambda x: 2 * x)
    assert report.passed and report.checked == 1
    assert judge(bound, lambda: lambda x: None).passed is None


@pytest.mark.parametrize(
    "line",
    [
        "y = x",
        "x += 1",
        "y: Tensor = x",
        "for _ in x: pass",
        "with torch.no_grad(): pass",
        "x.double()",
    ],
)
def test_a_last_line_that_does_something_lacks_a_return(line: str) -> None:
    answer = typed("x", line, torch=torch)
    assert judge(_doubled(), answer).slips == ("no_return",)
    assert judge(_doubled(bind=lambda a: Bound(a, _tokens())), answer).passed is None


def test_chance_that_makes_no_result_wrong_is_still_chance() -> None:
    report = judge(_doubled(), lambda x: 2 * x + 1e-3 * torch.empty(()).uniform_())
    assert report.passed is False and report.slips == ("random",)
    fresh = judge(_doubled(), lambda x: 2 * x + 1e-3 * torch.rand(()))
    assert fresh.slips == ("fresh_weights",)
    for answer in (  # by another name, and by none that a seed sets
        lambda x: x + random.random(),
        lambda x: x + x.clone().uniform_(),
        lambda x: x + random.SystemRandom().random(),
    ):
        assert judge(_doubled(), answer).slips == ("random",)
    calls: list[int] = []

    def counts(x: Tensor) -> Tensor:
        calls.append(1)
        return 2 * x + len(calls)

    assert judge(_doubled(), counts).slips == ("remembers",)
    calls.clear()

    def stops_later(x: Tensor) -> Tensor:
        calls.append(1)
        return 2 * x if len(calls) < 3 else _stop()

    assert judge(_doubled(), stops_later).slips == ("remembers",)
    assert judge(_doubled(), lambda x: (2 * x).to_sparse()).slips == ("returns_Tensor",)


def _stop() -> Any:
    raise RuntimeError("enough")


@pytest.mark.parametrize(
    ("answer", "key", "words"),
    [
        (lambda x: 2 * x.double(), "fixed_dtype", "has dtype float64 for float32 input"),
        (
            lambda x: (2 * x).half() if x.dtype == torch.bfloat16 else 2 * x,
            "fixed_dtype",
            "has dtype float16 for bfloat16 input",
        ),
        (
            lambda x: x * 2e5 / 1e5,
            "precision_lost",
            "for float16 input your result has wrong values",
        ),
        (lambda x: 2 * x + 1e5 * x - 1e5 * x, "precision_lost", "for float32 input your result"),
        (
            lambda x: 2 * x + (x * 1e9 - x * 1e9),
            "precision_lost",
            "for float16 input your result has NaN",
        ),
        (
            lambda x: 2 * x if x.dtype != torch.float16 else _stop(),
            "error:error_RuntimeError",
            '(for float16 input; float64 works): `raise RuntimeError("enough")`. enough',
        ),
    ],
)
def test_other_dtypes_are_tried(answer: Any, key: str, words: str) -> None:
    report, unasked = judge(_doubled(half=True), answer), judge(_doubled(), answer)
    assert report.passed is False and report.slips[-1] == key and words in str(report)
    assert unasked.passed is ("float32 input" not in words) and words in str(unasked)


def test_a_fixed_dtype_is_told_after_what_else_is_wrong() -> None:
    report = judge(_doubled(), lambda x: (2 * x.detach()).double())
    assert report.slips == ("no_gradient", "fixed_dtype")


def test_an_operation_that_torch_has_in_float64_only_is_no_mistake() -> None:
    def far(x: Tensor) -> Tensor:
        return 2 * x + 0 * torch.cdist(x[None], x[None]).sum()  # not there for float16

    assert judge(_doubled(), far).passed
    wide = judge(_doubled(), lambda x: far(x) if x.dtype == torch.half else 2 * x.double())
    assert wide.slips == ("fixed_dtype",)


def test_large_numbers_are_tried_in_the_dtypes_that_hold_them() -> None:
    assert judge(_doubled(make_cases=_wide), lambda x: 2 * x).passed
    stops = judge(
        _doubled(make_cases=_wide),
        lambda x: _stop() if x.dtype == torch.float32 and (x > 9e4).any() else 2 * x,
    )
    assert stops.slips == ("error:error_RuntimeError",)


def test_inputs_after_a_large_one_are_tried_too() -> None:
    exercise = _doubled(make_cases=lambda: _wide()[::-1], half=True)
    report = judge(exercise, lambda x: _stop() if x.dtype == torch.float16 else 2 * x)
    assert report.slips == ("error:error_RuntimeError",)


def test_several_results_keep_their_kinds_in_every_dtype() -> None:
    @partial(TOY, make_cases=_tokens, gives=("doubled (B, T)", "large (B, T)"))
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * x, x > 0.5

    assert judge(both, lambda x: [x + x, x > 0.5]).passed
    assert judge(both, lambda x: (x + x, (x > 0.5).to(x.dtype))).slips == ("not_bool",)


class _Box:
    """An input that is no tensor, and has some."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def to(self, dtype: torch.dtype) -> "_Box":
        return _Box(self.weight.to(dtype))

    def tensors(self) -> list[Tensor]:
        return [self.weight]


def test_what_holds_tensors_is_tried_like_a_tensor() -> None:
    @partial(
        TOY,
        make_cases=lambda: [Case((_Box(torch.ones(3).double()),), {"d": 3})],
        gives=("w (d)"),
    )
    def unpacked(box: _Box) -> Tensor:
        return 2 * box.weight

    seen = []
    assert judge(unpacked, lambda box: seen.append(box.weight.dtype) or box.weight * 2).passed
    assert set(seen) == {torch.float64, torch.float32, torch.float16, torch.bfloat16}
    ones = judge(unpacked, lambda box: box.weight + torch.ones(3, dtype=box.weight.dtype))
    assert ones.passed and _asked_elsewhere(ones)


def _asked_elsewhere(report: Report) -> bool:
    """Whether a remark speaks of another device, which no exercise asks for."""
    return any("another device" in note for note in report.notes)


@pytest.mark.parametrize(
    ("answer", "fixed"),
    [
        (lambda x: 2 * x + torch.zeros(x.shape, dtype=x.dtype), True),
        (lambda x: 2 * x + torch.zeros(x.shape, dtype=x.dtype, device=x.device), False),
        (lambda x: 2 * x if x.device.type == "cpu" else _stop(), False),
    ],
)
def test_a_fixed_device_is_a_remark(answer: Any, fixed: bool) -> None:
    report = judge(_doubled(), answer)
    assert report.passed and _asked_elsewhere(report) is fixed


def test_beside_another_fault_a_fixed_device_is_not_named() -> None:
    report = judge(_doubled(), lambda x: torch.tensor((2 * x).tolist(), dtype=x.dtype))
    assert report.slips[:1] == ("no_gradient",) and "fixed_device" not in report.slips


# --- running what a learner wrote ----------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(3, 5),
        torch.rand(5, 3).T,
        torch.rand(6, 5)[::2],
        torch.rand(3, 1).expand(3, 5),
        torch.rand(3, 2)[:, :1].expand(3, 5),
        torch.arange(6).view(2, 3)[:, ::2],
        torch.tensor(True),
    ],
)
def test_a_copy_is_equal_and_independent(x: Tensor) -> None:
    before, copy = x.clone(), fresh(x)
    assert torch.equal(copy, x) and copy.dtype == x.dtype
    assert 0 in x.stride() or copy.stride() == x.stride()
    copy.zero_()
    assert torch.equal(x, before)


def test_a_change_of_any_input_is_noticed() -> None:
    x, y = torch.rand(3, 5), torch.rand(3, 5)
    before = x.clone(), y.clone()
    for change, changed in (
        (lambda x, y, n: None, False),
        (lambda x, y, n: y.add_(1), True),
        (lambda x, y, n: x.add_(1), True),
    ):
        outcome = run(change, (x, y, 3), set())
        assert isinstance(outcome, Returned) and outcome.changed is changed
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


class _Callable:
    def __call__(self, x: Any) -> Any:
        return self.helper(x)

    def helper(self, x: Any) -> Any:
        return _helper(x)

    @staticmethod
    def static(x: Any) -> Any:
        return _helper(x)


def _helper(x: Any) -> Any:
    raise LookupError("here")


@wraps(_helper)
def _wrapped(x: Any) -> Any:
    return _helper(x)


_HERE = _helper.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    "answer",
    [
        _helper,
        _wrapped,
        _Callable(),
        _Callable().helper,
        partial(_helper),
        _Callable.static,
    ],
)
def test_the_innermost_line_of_the_learner_is_found(answer: Any) -> None:
    outcome = run(answer, (3,), codes_of(answer))
    assert isinstance(outcome, Raised) and outcome.kind == "LookupError"
    assert (outcome.number, outcome.source) == (_HERE, 'raise LookupError("here")')
    assert outcome.message == "here"


def test_no_line_is_named_where_the_learner_wrote_none() -> None:
    outcome = run(_helper, (3,), {json.dumps.__code__})
    assert isinstance(outcome, Raised) and (outcome.number, outcome.source) == (None, "")
    outcome = run(lambda x: x.view(7), (torch.ones(2),), codes_of(len))
    assert isinstance(outcome, Raised) and outcome.number is None


def test_the_code_of_a_class_is_that_of_its_methods() -> None:
    class Base:
        def first(self) -> None: ...

    class Own(Base, nn.Module):
        size = 3

        def second(self) -> None: ...

    assert codes_of(Own) == {Base.first.__code__, Own.second.__code__}
    assert codes_of(nn.Linear) == set() == codes_of(len)


def test_text_of_anything_is_short_and_never_fails() -> None:
    assert safe_text(Evil()) == "an object of type Evil"
    assert safe_text(BadError(), str) == "an object of type BadError" and safe_text("a") == "'a'"
    assert safe_text("a" * 200, str) == "a" * 200
    assert safe_text("It is so. It is, i.e. " + "a" * 200, str) == "It is so."
    assert safe_text("a" * 201, str) == "a" * 199 + "…" and safe_text("abc", str, 2) == "a…"


def test_one_seed_for_every_source_of_chance() -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    seed(3)
    first = draw()
    assert len(set(first)) == 3
    seed(4)
    other = draw()
    seed(3)
    assert draw() == first and not set(first) & set(other)


@pytest.mark.parametrize(
    "message",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "PyTorch is not linked with support for mps devices",
    ],
)
def test_a_missing_gpu_is_a_fixed_device_whatever_the_build_of_torch(message: str) -> None:
    assert explain(Raised(RuntimeError(message))).key == "fixed_device"


@pytest.mark.parametrize(
    ("fill", "row"), [(torch.inf, "a row that holds +∞"), (-torch.inf, "a row of nothing but −∞")]
)
def test_nan_of_a_softmax_is_told_by_what_its_row_holds(fill: float, row: str) -> None:
    def filled(x: Tensor) -> Tensor:
        return x.masked_fill(x > 0, fill).softmax(-1)

    assert f"takes the softmax of {row}." in str(judge(_doubled(), filled))
