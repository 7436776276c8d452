"""No false verdict: answers that once passed though wrong, or failed though right."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from einops import repeat
from torch import Tensor, nn

import mha_lesson
import new_process
from answers import all_answers
from answers.the_class import Explicit as Base
from mha_course import check
from mha_course.engine.changes import KINDS
from mha_course.engine.compare import same
from mha_course.engine.device import flat
from mha_course.engine.safely import fresh


class ValuesByKeys(Base):
    """Its weights are as large as a test says."""

    std = 1.0

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__(d_model, n_heads)
        for p in self.parameters():
            nn.init.normal_(p, std=self.std)

    def heads(self, x: Tensor) -> list[Tensor]:
        Q, K, _ = super().heads(x)
        return [Q, K, K]


def test_a_slip_is_found_whatever_the_weights_were_before() -> None:
    for ValuesByKeys.std in (0.3, 0.4, 0.3):
        assert check.MultiHeadAttention(ValuesByKeys).slips == ("made_by_qkk",)


BY_VALUES = [e for e in (*check.EXERCISES, *check.SHORT) if getattr(e, "cases", ())]
LEARN = [e.name for e in BY_VALUES if e.gradient]
ANSWERS = {answer.id: answer for answer in all_answers()}
RIGHT = {a.exercise: a.function for a in ANSWERS.values() if a.right and a.exercise in LEARN}


def test_whatever_can_learn_is_asked_for_a_gradient() -> None:
    """No gradient is asked of counts, masks and truth values, nor of a score that is read off.

    Exercise 13 measures heads of a trained model: what is right to the last digit is right.
    """
    for exercise in BY_VALUES:
        first = flat([exercise.result_on(exercise.cases[0])])[0]
        learns = isinstance(first, Tensor) and first.is_floating_point()
        assert exercise.gradient == (learns and exercise.number != 13), exercise.name


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LEARN)
def test_a_gradient_gets_through(name: str) -> None:
    right = RIGHT[name]

    def without(*inputs: Any) -> Any:
        with torch.no_grad():
            return right(*inputs)

    def detached(*inputs: Any) -> Any:
        return right(*map(_cut, inputs))

    def data(first: Tensor, *inputs: Any) -> Any:
        return right(first.data, *inputs)

    judge = getattr(check, name)
    assert judge(without).slips == ("no_gradient",)
    assert judge(detached).slips == ("no_gradient",)
    alone = len([x for x in next(iter(judge.make_cases())).inputs if _cut(x) is not x]) == 1
    stops = ("no_gradient",) if alone else ("gradient_stops",)
    assert judge(data).slips == stops


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LEARN)
def test_what_an_answer_writes_over_is_no_other_answers_input(name: str) -> None:
    """Cases, and what is right for them, are made once."""
    judge = getattr(check, name)

    def writes_over(*inputs: Any) -> Any:
        found = _copied(RIGHT[name](*inputs))
        for x in flat(inputs):
            if isinstance(x, Tensor) and not x.requires_grad:
                x.zero_()
        return found

    before = [(fresh(case.inputs), judge.result_on(case)) for case in judge.cases]
    report = judge(writes_over)
    assert report.passed or report.slips in (("writes_into_input",), ("old_cache_changed",))
    for (inputs, right), case in zip(before, judge.cases, strict=True):
        pairs = zip(flat(case.inputs), flat(inputs), strict=True)
        assert all(same(now, was) for now, was in pairs if was is not None)
        assert same(judge.result_of((), case.inputs), right)
    assert judge(RIGHT[name]).passed


def _copied(x: Any) -> Any:
    return tuple(map(_copied, x)) if isinstance(x, tuple | list) else x.clone()


def _cut(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(_cut, x))
    return x.detach() if isinstance(x, Tensor) and x.is_floating_point() else x


def test_a_mended_line_passes_although_einops_remembers_the_error() -> None:
    """It finds 2 groups where it has kept what came of 2.0."""

    def divided(q: Any, k: Any) -> Any:
        k = repeat(k, "b kv t d -> b (kv g) t d", g=q.shape[1] / k.shape[1])
        return q @ k.mT / q.shape[-1] ** 0.5

    def mended(q: Any, k: Any) -> Any:
        k = repeat(k, "b kv t d -> b (kv g) t d", g=q.shape[1] // k.shape[1])
        return q @ k.mT / q.shape[-1] ** 0.5

    said = check.grouped_scores(divided)
    assert not said.passed and said.slips == ("error:integer_needed",)
    assert KINDS["operator"][0] in str(said)  # found by running it with //
    for case in check.grouped_scores.cases:
        with pytest.raises(TypeError, match="float"):
            divided(*case.inputs)  # by the learner, outside of any check
    assert check.grouped_scores(mended).passed


def test_not_implemented_is_no_attempt() -> None:
    def later(x: Any, n_heads: Any) -> Any:
        raise NotImplementedError

    def stub(x: Any, n_heads: Any) -> Any:
        return later(x, n_heads)

    assert check.split_heads(later).passed is None
    assert check.split_heads(stub).passed is None


@pytest.mark.parametrize("name", [n for n in mha_lesson.__all__ if n in check.__all__])
def test_the_packages_own_is_no_answer(name: str) -> None:
    own = getattr(mha_lesson, name)
    report = getattr(check, name)(own)
    assert report.passed is None and "the package's own" in str(report)
    if name != "MultiHeadAttention":
        assert getattr(check, name)(lambda *inputs: own(*inputs)).passed


def test_a_right_answer_that_another_function_computes_is_noted() -> None:
    ready = check.split_heads(partial(mha_lesson.split_heads))
    assert ready.passed and "It calls `split_heads`, which does" in str(ready)


class _Stub(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        ...

    def forward(self, x: Any, mask: Any = None) -> Any: ...


class _RaisingStub(_Stub):
    def __init__(self, d_model: int, n_heads: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("stub", [_Stub, _RaisingStub])
def test_a_stub_class_is_not_attempted_yet(stub: Any) -> None:
    assert check.MultiHeadAttention(stub).passed is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_check_works_in_every_gradient_mode(mode: Any) -> None:
    with mode():
        report = check.masked_softmax(
            lambda s, m: (
                (s + torch.zeros_like(s).masked_fill(m, -math.inf)).softmax(-1).nan_to_num()
            )
        )
    assert report.slips == ("nan_gradient",)


def test_a_check_imports_nothing_heavy(shared_folder) -> None:
    loaded = new_process.after(shared_folder, "check")["loaded"]
    assert not {"matplotlib", "sympy", "torch._dynamo", "ipywidgets"} & {*loaded}


@pytest.mark.parametrize(("off", "right"), [(5e-5, True), (5e-4, False)])
def test_a_gradient_may_be_off_by_a_rounding_and_not_by_ten_times_as_much(
    off: float, right: bool
) -> None:
    def scores(Q: Tensor, K: Tensor) -> Tensor:
        made = Q @ K.mT / Q.shape[-1] ** 0.5
        return made + off * (made - made.detach())

    assert check.attention_scores(scores).passed is right
