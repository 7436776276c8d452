"""The catalogue of slips: each is a mistake, has words, is named, and combines with others."""

import sys
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

from answers.pairs import PAIRS
from mha_course import check
from mha_course.engine.attempt import Trial
from mha_course.engine.compare import difference
from mha_course.engine.judge import judge
from mha_course.engine.problem import disjoint
from mha_course.engine.safely import Raised, Returned
from mha_course.engine.search import match
from mha_course.exercises import Case, Exercise, Slip, exercise
from mha_course.exercises.nb06_layers import NAMES, Layers
from mha_course.exercises.nb12_styles import Layers as FourLayers

BIG = """
    split_heads merge_heads masked_softmax attention MultiHeadAttention next_token_loss
"""
IN_STEPS = [e for e in (*check.EXERCISES, *check.SHORT) if isinstance(e, Exercise)]
each_exercise = pytest.mark.parametrize(
    "exercise", [e for e in IN_STEPS if e.number], ids=lambda e: e.name
)
# The class's slips take seconds; test_check_answers.py judges classes that make some of them.
LONGEST = pytest.param(check.MultiHeadAttention, marks=pytest.mark.long)
every_exercise = pytest.mark.parametrize(
    "exercise",
    [LONGEST if e is check.MultiHeadAttention else e for e in IN_STEPS],
    ids=lambda e: e.name,
)


class WritingLayers(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, base: float) -> None:
        super().__init__()
        self.n_heads, self.others = n_heads, (n_kv_heads, base)
        narrow = d_model // n_heads * n_kv_heads
        for name, width in zip(NAMES, (d_model, narrow, narrow, d_model), strict=True):
            setattr(self, name, nn.Linear(d_model, width, bias=False))


def answer_with(exercise: Exercise, slips: tuple[Slip, ...]) -> Any:
    """An answer that makes exactly these slips."""
    if exercise.name == "cached_attention":  # takes and gives the cache as a pair

        def cached(q: Any, k: Any, v: Any, cache: Any) -> Any:
            found = exercise.result_of(slips, (q, k, v, *(cache or (None, None))))
            return (found[0], found[1:]) if isinstance(found, tuple) and len(found) == 3 else found

        return cached
    if exercise.name == "WritingAttention":

        class Slipped(WritingLayers):
            """Its cache is the text so far, piece by piece."""

            def forward(self, x: Any, cache: Any = ()) -> Any:
                pieces = (*cache, x)
                lengths = tuple(piece.shape[1] for piece in pieces)
                layers = Layers(self, self.n_heads, partial(Slipped, 2, 1, 1, 1.0), *self.others)
                outputs = exercise.result_of(slips, (torch.cat(pieces, 1), lengths, layers))
                return outputs[-1], pieces

        return Slipped
    if exercise.name != "MultiHeadAttention":
        return lambda *inputs: exercise.result_of(slips, inputs)

    class Slipped(FourLayers):
        def forward(self, x: Any, mask: Any = None) -> Any:
            return exercise.result_of(
                slips, (x, mask, Layers(self, self.n_heads, partial(Slipped, 1, 1)))
            )

    return Slipped


@cache
def cases_of(exercise: Exercise) -> list[Case]:
    bound = exercise.bind(answer_with(exercise, ())) if exercise.bind else None
    return bound.cases if bound else exercise.cases


@cache
def outcomes(exercise: Exercise, slips: tuple[Slip, ...]) -> list[Returned | Raised]:
    """What comes of these slips on every input."""
    return [_run(exercise, slips, case) for case in cases_of(exercise)]


def _run(exercise: Exercise, slips: tuple[Slip, ...], case: Case) -> Returned | Raised:
    try:
        return Returned(exercise.result_of(slips, case.inputs))
    except Exception as error:
        return Raised(error.with_traceback(None))


def results(exercise: Exercise, slips: tuple[Slip, ...]) -> list[Any]:
    """What these slips give on every input; None where they raise."""
    found = outcomes(exercise, slips)
    return [x.value if isinstance(x, Returned) else None for x in found]


def are_right(found: list[Any], right: list[Any], cases: list[Case]) -> bool:
    rows = zip(found, right, cases, strict=True)
    return all(x is not None and difference(x, r, c.tolerance) is None for x, r, c in rows)


@each_exercise
def test_every_exercise_knows_enough_slips(exercise: Exercise) -> None:
    assert len(exercise.singles) >= (15 if exercise.name in BIG.split() else 8)
    assert exercise.pairs


@each_exercise
def test_the_right_answer_passes_but_for_its_gradient(exercise: Exercise) -> None:
    report = judge(exercise, answer_with(exercise, ()))  # slips run under no_grad
    assert report.passed or report.slips == ("no_gradient",), str(report)


@each_exercise
def test_words_are_sentences_and_ask(exercise: Exercise) -> None:
    for slip in exercise.slips:
        if not slip.does:
            continue
        assert slip.does[-1] in ".)" and len(slip.does.split()) <= 60, slip.does
        assert slip.asks and slip.asks[-1] in ".?" and len(slip.asks.split()) <= 45, slip.asks
        assert slip.does.count("`") % 2 == slip.asks.count("`") % 2 == 0, slip.does
        assert "\n" not in slip.does + slip.asks, slip.does


@every_exercise
def test_a_slip_is_a_mistake_and_returns_somewhere(exercise: Exercise) -> None:
    cases, right = cases_of(exercise), results(exercise, ())
    for slip in exercise.slips:
        found = results(exercise, (slip,))
        assert are_right(found, right, cases) == (not slip.does), slip.key
        assert any(x is not None for x in found), f"{slip.key} always raises"


@pytest.mark.one_in(2)
@every_exercise
def test_every_slip_is_reported_as_itself(exercise: Exercise) -> None:
    """Under its own key, or a declared twin's, by its own words: values decide that alone.

    A search takes the first slip that gives what the answer gave, so that of two slips alike in
    other words the second would be told as the first. One that is right wherever it returns shows
    beside others only; alone its error tells it.
    """
    cases = cases_of(exercise)
    for (slip,) in exercise.singles:
        given = zip(cases, outcomes(exercise, (slip,)), strict=True)
        trials = [Trial(case, exercise.result_on(case), outcome) for case, outcome in given]
        found = match(exercise, trials, exercise.singles).slips
        returned = [t for t in trials if isinstance(t.outcome, Returned)]
        shows = any(t.difference for t in returned)
        assert [(s.key, s.does) for s in found] == [(slip.key, slip.does)] * shows


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_people_made_are_named(name: str) -> None:
    exercise = getattr(check, name)
    for keys in PAIRS[name]:
        of_keys = product(*([s for s in exercise.slips if s.key == key] for key in keys))
        report = judge(exercise, answer_with(exercise, next(filter(disjoint, of_keys))))
        assert set(report.slips) == set(keys), str(report)


# --- adding to it --------------------------------------------------------------------------------


def doubled(n: int) -> int:
    return 2 * n


def numbers() -> list[Case]:
    return [Case((n,), {"n": n}) for n in (2, 3, 5)]


def fresh() -> Exercise:
    @exercise(0, "00", make_cases=numbers, gives=("n",), gradient=False)
    def twice(n: int, *, double: Any = doubled, finish: Any = lambda n: n) -> int:
        return finish(double(n))

    return twice


def test_a_slip_added_after_the_first_check_works_at_once() -> None:
    twice = fresh()
    assert judge(twice, lambda n: n**2).slips == ("values",)
    assert judge(twice, lambda n: n**2 + 1).slips == ("formula",)

    @twice.step
    def double(n):
        """What is twice 3?"""
        squared = n * n  # noqa: F841
        "It squares n instead of doubling it."

    report = judge(twice, lambda n: n**2)
    assert report.slips == ("squared",) and "What is twice 3?" in str(report)

    @twice.step
    def finish(n):
        one_more = n + 1  # noqa: F841
        "It adds 1. | To what?"

    assert set(judge(twice, lambda n: n**2 + 1).slips) == {"squared", "one_more"}


def test_a_cell_that_runs_again_replaces_its_slips(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = fresh()

    def double(n):
        squared = n * n  # noqa: F841
        "It squares n. | Why?"

    double.__module__ = "__main__"
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    twice.step(double)
    twice.step(double)
    assert [s.key for s in twice.slips] == ["squared"]


def test_a_block_is_read_as_it_says() -> None:
    twice = fresh()

    @twice.step(finish=(lambda n: n, lambda n: n + 1))
    def double(n):
        """Asked by default?"""
        three = 3
        thrice = three * n  # noqa: F841
        "Three times. | Why three?"

        def none():
            "Nothing."
            return 0

        other = n * 3  # noqa: F841
        "= thrice"
        by_sum = n + n  # noqa: F841
        "right"

    assert [(s.key, s.does, s.asks) for s in twice.slips[::2]] == [
        ("thrice", "Three times.", "Why three?"),
        ("none", "Nothing.", "Asked by default?"),
        ("thrice", "Three times.", "Why three?"),
        ("by_sum", "", ""),
    ]
    assert [twice.result_of((s,), (5,)) for s in twice.slips] == [15, 16, 0, 1, 15, 16, 10, 11]
    with pytest.raises(ValueError, match="nowhere"):

        @twice.step(at="double")
        def again(n):
            lost = n  # noqa: F841
            "= nowhere"
