"""The verdicts of notebook 14, with other pages, rows and prompts than the notebook's."""

import random
from functools import cache

import pytest

from mha_course.collection import breaks, experiments, opened
from mha_course.collection.opened import Change, changed, loss, pages, silenced
from mha_lesson import smollm
from mha_lesson.weights import WeightsMissing


@cache
def published() -> smollm.SmolLM:
    return smollm.load()


@cache
def model() -> smollm.SmolLM:
    return opened.opened(published())


def is_there() -> bool:
    try:
        return bool(smollm.PACKAGE.path(smollm.FILE))
    except WeightsMissing:
        return False


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not is_there(), reason="the weights of the writing model are not there"),
]


def page_loss(change: Change, seed: int) -> float:
    return loss(changed(model(), change), pages(model(), [seed], 192)).item()


def test_five_heads_copy_and_five_others_do_not():
    scores = experiments.copy_scores(model(), (21, 22)).mean(dim=0).flatten()
    best = [experiments.HEADS[i] for i in scores.argsort(descending=True).tolist()]
    ids, page = experiments.rows_twice([23, 25]), pages(model(), [26], 192)

    def again(heads, ids=ids):
        return loss(changed(model(), silenced(heads)), ids, 65).mean().item()

    near = [head for head in best[20:] if head[0] in {layer for layer, _ in best[:5]}]
    whole, others = again([]), random.Random(24).sample(near, 5)
    assert 2 * (again(others) - whole) < 4
    for heads in (best[:5], [(16, 0)]):  # that one looks at the piece before; the five rest on it
        assert again(heads) - whole > 4 and abs(again(heads, page) - again([], page)) < 0.2


def test_a_window_needs_the_first_piece_and_blocking_it_costs_nothing():
    whole, window = page_loss(Change(), 41), page_loss(Change(opened.window(64)), 41)
    assert page_loss(Change(opened.window(64, 0)), 41) - whole < (window - whole) / 3
    assert abs(page_loss(Change(opened.without_first), 41) - whole) < 0.1
    shares = experiments._weights(model())[12:, 0, :, 64:].mean(dim=(0, 1, 2))
    assert int(shares.argmax()) == 1 and shares[1] > 0.3  # the next one has taken its place


def test_four_bits_cost_little_and_two_a_lot():
    whole = page_loss(Change(), 42)
    assert page_loss(Change(rounded=opened.by_dimension(4)), 42) - whole < 0.15
    assert page_loss(Change(rounded=opened.by_token(2)), 42) - whole > 0.5


@pytest.mark.parametrize(("country", "capital"), [("Sweden", "Stockholm"), ("Poland", "Warsaw")])
def test_the_widest_ribbon_is_the_first_and_the_country_comes_second(country, capital):
    one = experiments.fact(model(), f"The capital of {country} is", capital)
    first, *others = one["weights"]
    at = 1 + max(range(len(others)), key=others.__getitem__)
    assert first > max(others) and one["pieces"][at] == f" {country}"


def test_a_tenth_costs_less_than_a_tenth_drawn_and_half_of_the_heads_cannot_go():
    order = [tuple(head) for head in experiments.measured("going")["order"]]
    ids = pages(model(), [43, 44], 192)

    def after(heads):
        return loss(changed(model(), silenced(heads)), ids).mean().item()

    drawn = [random.Random(seed).sample(experiments.HEADS, 27) for seed in (45, 46, 47)]
    assert after(order[:27]) < min(after(heads) for heads in drawn)
    assert after(order[:135]) - after([]) > 0.5


def test_one_mistake_is_too_good_one_hides_and_one_fails():
    ids = pages(model(), [44], 192)
    better, whole, hidden, failed = (
        loss(breaks.broken(published(), opened.Opened, name), ids).item()
        for name in ("no mask", "as written", "base 10,000", "no scale")
    )
    assert better < whole < hidden < whole + 1 < failed
