"""Exercise 20: a learner's tests, tried on right classes and on published mistakes."""

import gc
import inspect
import re
import sys
import time
import traceback

import pytest
import torch
from torch import nn

import notebooks
from answers import the_tests
from mha_course import check, compare
from mha_course.collection.shipped import bugs, draw, right, with_same_weights
from mha_course.engine import looking
from mha_course.engine.safely import Raised
from mha_course.exercises import nb12
from mha_course.exercises.nb12_styles import KeysByQueries
from mha_lesson import causal_mask, padding_mask

B, T, D, H = 3, 5, 14, 2
OF_THE_CLASS = [bug for bug in bugs().values() if bug.base == "Attention"]


def inputs():
    x = draw(B, T, D, seed=1)
    masks = [None, causal_mask(T), padding_mask(torch.tensor([5, 3, 2]))]
    return [(x, mask) for mask in masks] + [(1e6 * x, masks[2])]


def test_the_notebooks_excerpts_are_lines_of_what_they_stand_for():
    """B is the right one in odd clothes."""
    [path] = notebooks.paths("12")
    told = "".join(c.source for c in notebooks.read(path).cells if c.id.startswith("excerpts"))
    sources = {
        "A": bugs()["scale_d_model"].source,
        "B": inspect.getsource(KeysByQueries),
        "C": bugs()["merged_unmoved"].source,
        "D": bugs()["mask_tiled"].source,
        "E": bugs()["dropout_in_evaluation"].source,
        "F": bugs()["softmax_over_queries"].source,
    }
    shown = dict(re.findall(r"\*\*(\w)\*\*\n```python\n(.+?)\n```", told, re.S))
    assert shown.keys() == sources.keys()
    for letter, lines in shown.items():
        assert {*lines.splitlines()} <= {*map(str.strip, sources[letter].splitlines())}, letter


@pytest.mark.parametrize("style", nb12.STYLES, ids=lambda cls: cls.__name__)
def test_right_classes_of_every_style_are_right(style):
    """Beside the package's own: on masks, blocked rows, large scores and float32."""
    torch.manual_seed(7)
    odd = style(D, H).double()
    with_biases = right()(D, H).double()
    with torch.no_grad():
        for part in ("weight", "bias"):
            for name in ("w_q", "w_k", "w_v", "w_o"):
                own = getattr(getattr(odd, name), part)
                getattr(getattr(with_biases, name), part).copy_(0.0 if own is None else own)
    blocked = torch.ones(T, T, dtype=torch.bool)
    for x, mask in [*inputs(), (inputs()[0][0], blocked)]:
        torch.testing.assert_close(odd(x, mask), with_biases(x, mask))
    torch.testing.assert_close(odd.float()(x.float()), with_biases.float()(x.float()))


def test_a_loose_end_is_said_with_its_question_and_its_level():
    def no_padding(Attention):
        module, x = Attention(12, 3).double(), draw(2, 5, 12, seed=1)
        torch.testing.assert_close(module(x), with_same_weights(right(), biased(module), 12, 3)(x))

    def biased(module):
        for layer in (module.w_q, module.w_k, module.w_v, module.w_o):
            layer.bias = nn.Parameter(torch.zeros(12)) if layer.bias is None else layer.bias
        return module

    report = check.test_attention(no_padding)
    assert "accuse 0 of 10 right classes and catch 23 of 32" in str(report)
    [bug] = [bug for bug in OF_THE_CLASS if f"missed:{bug.name}" in report.slips]
    assert bug.does in str(report) and str(report).endswith("?")
    assert {slip.key for slip in check.test_attention.slips} > set(report.slips)


def test_tests_that_fail_every_class_are_named_with_their_error():
    def on_a_device(Attention):
        raise AssertionError("Torch not compiled with CUDA enabled")

    report = str(check.test_attention(on_a_device))
    assert "accuse 10 of 10 right classes" in report and "They accuse every class" in report
    assert "“Torch not compiled with CUDA enabled”" in report


def test_only_a_failed_assertion_accuses():
    outcomes = (Raised(AssertionError()), Raised(ValueError()), Raised(SystemExit()), None)
    assert [nb12._accuses(outcome) for outcome in outcomes] == [True, False, False, False]


def replaced(owner, name):
    """Tests that leave a spy behind."""

    def poisoning(Attention):
        old = getattr(owner(Attention), name)
        setattr(owner(Attention), name, lambda *a, **k: old(*a, **k))
        the_tests.beside_a_reference(Attention)

    return poisoning


def hooked(Attention):
    nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 1)


def test_what_tests_leave_behind_is_undone_and_reported():
    """One after the other: what is not undone is told of the last, which leaves nothing."""
    for poisoning in (
        replaced(lambda Attention: Attention.__mro__[1], "forward"),
        replaced(lambda Attention: nn.Linear, "forward"),
        replaced(lambda _: torch.Tensor, "softmax"),
        replaced(lambda _: nn.functional, "scaled_dot_product_attention"),
        hooked,
    ):
        assert check.test_attention(poisoning).slips == ("changes_the_class",)
    assert check.test_attention(the_tests.beside_a_reference).passed


def test_classes_differ_in_nothing_but_their_results(monkeypatch):
    monkeypatch.setattr(looking, "AUDITED", set())
    tried, looks, inner = [], set(), nb12._result_of
    monkeypatch.setattr(
        nb12, "_result_of", lambda a, cls, *rest: tried.append(cls) or inner(a, cls, *rest)
    )

    def peeking(Attention):
        forward = Attention(12, 3).forward.__func__
        code = getattr(forward, "".join(("__co", "de__")))
        names = [f"{c.__module__} {c.__qualname__} {c.__doc__}" for c in Attention.__mro__]
        looks.add(
            (
                *names,
                forward.__module__,
                forward.__qualname__,
                forward.__doc__,
                code.co_filename,
                code.co_name,
                code.co_qualname,
                code.co_firstlineno,
                code.co_code,
                code.co_consts[:1],
                *vars(Attention),
                *map(str, frames_of_the_judge(Attention)),
            )
        )

    orders = []
    for _ in range(2):
        tried.clear()
        assert not check.test_attention(peeking).passed
        orders.append([*tried])
    assert len(looks) == 1
    assert orders[0] != orders[1], "counting calls tells nothing"
    assert {orders[0].count(cls) for cls in orders[0]} == {nb12.SEEDS}


def test_what_hangs_is_stopped_by_the_processors_time(monkeypatch):
    monkeypatch.setattr(nb12, "SECONDS", 0.3)

    def hanging(Attention):
        Attention(12, 3)
        while True:
            pass

    def waiting(Attention):  # on a busy machine a second's work may take four
        time.sleep(0.5)
        the_tests.beside_a_reference(Attention)

    assert check.test_attention(hanging).slips == ("hangs",)
    result = nb12._result_of(waiting, right(), 0, set())
    assert result.raised is None and result.built


def called(owner, *parts):
    """What an object holds under a name that is put together at run time."""
    return getattr(owner, "".join(parts))


def from_inside(look):
    """Looks from within `forward`, where a layer of one's own runs."""

    class Own(nn.Module):
        def forward(self, x):
            return look() and x

    def tests(Attention):
        module = Attention(12, 3)
        module.w_q = Own()
        module(torch.randn(2, 5, 12))

    return tests


def of_an_error():
    try:
        raise ValueError
    except ValueError as error:
        return called(error.__traceback__, "tb_", "frame")


def generated():
    yield


PEEKING = {
    "code": lambda Attention: Attention.forward.__code__ == right().forward.__code__,
    "frame": lambda Attention: sys._getframe(1).f_locals["index"],
    "graph": lambda Attention: Attention(12, 3)(torch.randn(2, 5, 12)).grad_fn,
    "code, its name hidden": lambda Attention: called(Attention.forward, "__co", "de__"),
    "frames of all threads": lambda Attention: called(sys, "_current", "_frames")(),
    "objects": lambda Attention: called(gc, "get_", "objects")(),
    "frame inside": from_inside(lambda: called(sys, "_get", "frame")()),
    "stack inside": from_inside(lambda: inspect.stack()),
    "stack as text inside": from_inside(lambda: traceback.extract_stack()),
    "an error's frame inside": from_inside(of_an_error),
    "a generator's frame": lambda Attention: called(generated(), "gi_", "frame"),
    "in a string": lambda Attention: exec("import sys; getattr(sys, '_get' + 'frame')()", {}),
}


@pytest.mark.parametrize("peeking", PEEKING.values(), ids=PEEKING)
def test_tests_that_look_at_code_or_frames_are_told_so(peeking):
    assert check.test_attention(peeking).slips == ("peeks",)


def spied(owner, name):
    """Tests that accuse what a spy in the judge's place, gone at the end, does not know."""

    def tests(Attention):
        inner, seen = getattr(owner, name), []
        setattr(owner, name, lambda *args: seen.append(args) or inner(*args))
        try:
            Attention(12, 3)(torch.randn(2, 5, 12))
        finally:
            setattr(owner, name, inner)
        assert seen

    return tests


@pytest.mark.parametrize("spy", [spied(nb12, "_compute"), spied(right(), "forward")])
def test_what_the_judge_calls_cannot_be_replaced(spy):
    assert "catch 32 of 32" in str(report := check.test_attention(spy)) and not report.passed


def frames_of_the_judge(Attention):
    frame, seen = getattr(sys, "".join(("_get", "frame")))(), []
    while frame is not None:
        held = getattr(frame, "".join(("f_lo", "cals")))
        seen += [type(v).__name__ for v in held.values() if isinstance(v, (int, type))]
        frame = getattr(frame, "".join(("f_", "back")))
    return seen


def test_no_line_of_the_judge_is_blamed_on_the_learner():
    def with_identities(Attention):
        module = Attention(12, 3)
        module.w_q = module.w_k = nn.Identity()
        x = torch.randn(2, 5, 12)
        torch.testing.assert_close(module(x), module(x))

    def in_another_dtype(Attention):
        torch.set_default_dtype(torch.float64)
        the_tests.beside_a_reference(Attention)

    report = check.test_attention(with_identities)
    assert "accuse 0 of 10 right classes" in str(report)
    assert check.test_attention(in_another_dtype).passed
    assert torch.get_default_dtype() == torch.float32


def test_what_does_nothing_is_no_attempt_and_what_is_slow_ends(monkeypatch):
    assert check.test_attention(lambda Attention: None).passed is None
    monkeypatch.setattr(nb12, "ALL_SECONDS", 0.1)
    slow = check.test_attention(lambda Attention: time.sleep(0.06))
    assert slow.slips == ("slow",)


@pytest.mark.long
@pytest.mark.parametrize("style", nb12.STYLES, ids=lambda cls: cls.__name__)
def test_compare_accuses_no_style(style):
    """So that its five lines, handed in as an answer, reach the second level."""
    assert compare(style(12, 3), causal=False, true_means="blocked").found == "right"
