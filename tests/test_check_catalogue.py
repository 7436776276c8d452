"""The catalogue of slips: each is a mistake, has words, is named, and combines with others."""

import random
from functools import partial
from typing import Any

import pytest
from torch import nn

from mha_lesson import check
from mha_lesson.check.compare import difference
from mha_lesson.check.exercise import Exercise, Slip
from mha_lesson.check.module import Layers

BIG = {
    "split_heads",
    "merge_heads",
    "masked_softmax",
    "attention",
    "MultiHeadAttention",
    "next_token_loss",
}
SLIPS = [(e, s) for e in check.EXERCISES for s in e.slips]
PAIRS = [(e, p) for e in check.EXERCISES for p in random.Random(0).sample(e.pairs, 12)]


def answer_with(exercise: Exercise, slips: tuple[Slip, ...]) -> Any:
    """An answer that makes exactly these slips."""
    if exercise.name != "MultiHeadAttention":
        return lambda *inputs: exercise.variant(slips, inputs)

    class Slipped(nn.Module):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__()
            self.n_heads = n_heads
            self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
            self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

        def forward(self, x: Any, mask: Any = None) -> Any:
            return exercise.variant(
                slips, (x, mask, Layers(self, self.n_heads, partial(Slipped, 1, 1)))
            )

    return Slipped


def results(exercise: Exercise, slips: tuple[Slip, ...]) -> list[Any]:
    """What these slips give on every input of the exercise; None where they raise."""
    answer = answer_with(exercise, slips)
    bound = exercise.bind(answer) if exercise.bind else None
    cases = bound.cases if bound else list(exercise.cases())
    found = []
    for case in cases:
        try:
            value = exercise.variant(slips, case.inputs)
        except Exception:
            found.append((case, None))
        else:
            found.append((case, value))
    return found


def is_right(exercise: Exercise, slips: tuple[Slip, ...]) -> bool:
    return all(
        value is not None
        and difference(value, exercise.variant((), case.inputs), case.tolerance) is None
        for case, value in results(exercise, slips)
    )


@pytest.mark.parametrize("exercise", check.EXERCISES, ids=lambda e: e.name)
def test_every_exercise_knows_enough_slips(exercise: Exercise) -> None:
    assert len(exercise.singles) >= (15 if exercise.name in BIG else 8)
    assert exercise.pairs


@pytest.mark.parametrize("exercise", check.EXERCISES, ids=lambda e: e.name)
def test_the_right_answer_passes(exercise: Exercise) -> None:
    report = getattr(check, exercise.name)(answer_with(exercise, ()))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("exercise", "slip"), SLIPS, ids=lambda x: getattr(x, "name", None) or x.key
)
def test_a_slip_is_a_mistake_unless_it_has_no_words(exercise: Exercise, slip: Slip) -> None:
    assert is_right(exercise, (slip,)) == (not slip.does)


@pytest.mark.parametrize(
    ("exercise", "slip"), SLIPS, ids=lambda x: getattr(x, "name", None) or x.key
)
def test_words_are_two_or_three_sentences_and_ask(exercise: Exercise, slip: Slip) -> None:
    if not slip.does:
        return
    assert slip.does[-1] == "." and 3 <= len(slip.does.split()) <= 60
    assert slip.asks and slip.asks[-1] in ".?" and len(slip.asks.split()) <= 45
    assert slip.does.count("`") % 2 == slip.asks.count("`") % 2 == 0


@pytest.mark.parametrize(
    ("exercise", "slip"), SLIPS, ids=lambda x: getattr(x, "name", None) or x.key
)
def test_a_slip_is_named(exercise: Exercise, slip: Slip) -> None:
    """By itself, or by another one that gives the very same results."""
    if not slip.does:
        return
    report = getattr(check, exercise.name)(answer_with(exercise, (slip,)))
    assert report.passed is False
    if slip.key not in report.slips:
        known = {s.key: s for s in exercise.slips}
        assert all(key in known or key.startswith("error:") for key in report.slips), str(report)


@pytest.mark.parametrize(
    ("exercise", "pair"),
    PAIRS,
    ids=lambda x: getattr(x, "name", None) or "+".join(s.key for s in x),
)
def test_two_slips_together_are_named(exercise: Exercise, pair: tuple[Slip, Slip]) -> None:
    if is_right(exercise, pair):
        return
    report = getattr(check, exercise.name)(answer_with(exercise, pair))
    assert report.passed is False
    known = {s.key for s in exercise.slips}
    assert all(key in known or key.startswith("error:") for key in report.slips), str(report)
