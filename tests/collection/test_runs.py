"""Stored runs, read and trained anew; `…_facts` are what the notebooks say, true or not."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from mha_course import runs, shipped
from mha_lesson.models import bigram_log_probabilities
from mha_lesson.tasks import letter_batches, repeat_batches
from mha_lesson.training import (
    Run,
    predict_next,
    side_accuracy,
    silence_head,
    weight_by_offset,
)

LETTERS = next(letter_batches(500, seed=99))
ROWS = next(repeat_batches(500, seed=1))


@torch.no_grad()
def repeat_facts(run: Run) -> list[bool]:
    right = run.model(ROWS)[:, :-1].argmax(dim=-1) == ROWS[:, 1:]
    return [right.float().mean().item() > 0.95, predict_next(run.model, ROWS).item() < 0.4]


def sides_facts(run: Run) -> list[bool]:
    """Which of the two letters one head loses may hang on the last digits."""
    left, right, both = side_accuracy(run.model, LETTERS)
    return [both > 0.99, both < 0.1, max(left, right) > 0.9]


def one_side_facts(run: Run) -> list[bool]:
    return [share > 0.99 for share in side_accuracy(run.model, LETTERS)[:2]]


@torch.no_grad()
def language_facts(run: Run) -> list[bool]:
    learn, unseen = runs.novel_ids()
    windows = unseen[: len(unseen) // 48 * 48].view(-1, 48)
    table = bigram_log_probabilities(learn, len(runs.alphabet()))
    gain = -table[windows[:, :-1], windows[:, 1:]].mean() - predict_next(run.model, windows)
    return [gain.item() > least for least in (0.07, 0.25, 0.48)]


def shipped_facts(run: Run) -> list[bool]:
    reported, honest = runs.reported_and_honest(run.model)
    return [reported < 0.4 and honest > 8, 1.6 < reported < 1.9 and 1.6 < honest < 1.9]


RUN_FACTS = {
    "shipped": shipped_facts,
    "repeat": repeat_facts,
    "two sides, h": sides_facts,
    "two sides, twice": sides_facts,
    "two sides, only": one_side_facts,
    "language": language_facts,
    "writer": language_facts,
}


@pytest.mark.long  # notebook 12 makes one anew
@pytest.mark.parametrize("name", runs.PLANS)
def test_every_stored_run_is_made_anew(name):
    [facts] = [facts for beginning, facts in RUN_FACTS.items() if name.startswith(beginning)]
    kept, made = runs.load(name), runs.load(name, live=True)
    assert kept.finished and made.finished
    assert kept.losses[:10] == pytest.approx(made.losses[:10], abs=5e-3)
    assert facts(kept) == facts(made)


def root_facts(lefts: torch.Tensor) -> list[bool]:
    with_root, without = lefts.mean(dim=-1)
    return [*(with_root > 0.9).tolist(), *(without > 0.5).tolist()]


def shared_keys_facts(losses: torch.Tensor) -> list[bool]:
    """The single head is the worst, by several times what sharing costs."""
    own, pairs, one_key, one_head = losses.mean(dim=-1).tolist()
    return [one_key - own < 0.1, pairs - own < 0.1, one_head - own > 2 * (one_key - own)]


def head_count_facts(losses: torch.Tensor) -> list[bool]:
    mean = losses.mean(dim=-1)
    return [mean.argmax().item() == 0, bool((mean[2:] - mean[2:].min() < 0.08).all())]


def parts_facts(losses: torch.Tensor) -> list[bool]:
    """From every seed: what pays is attention that is learned."""
    whole, uniform, no_attention, no_feed_forward, swapped = losses
    gains = (
        no_attention - whole > 0.4,
        no_attention - no_feed_forward > 0.1,
        uniform - whole > 0.2,
        swapped > no_attention,
    )
    return [bool(gain.all()) for gain in gains]


def draws_facts(ends: torch.Tensor) -> list[bool]:
    """The wide draw ends higher from every seed at two rates, and at the best rate of each."""
    low, high = ends
    narrow, wide = ends.mean(dim=-1).amin(dim=-1)
    return [bool((high.amin(dim=-1) > low.amax(dim=-1))[:2].all()), bool(wide - narrow > 0.08)]


TOO_GOOD = """
    softmax_over_queries mask_after_softmax merged_unmoved scores_times_mask fill_tiny
    mask_inverted mask_along_queries mask_dropped
"""
FAILED = """
    softmax_over_heads softmax_over_batch scale_upside_down merged_as_heads_first over_the_batch
"""
NEAREST = """
    right scale_d_model merged_unmoved softmax_over_batch one_projection_for_all_heads
"""  # to the next fate


def fates_facts(ends: torch.Tensor) -> list[bool]:
    """Three fates, from every start: too good, hidden and failed."""
    reported, honest, _ = (dict(zip(runs.TRAINED, part, strict=True)) for part in ends.unbind(1))
    right = reported["right"]
    hidden = reported.keys() - {*TOO_GOOD.split(), *FAILED.split(), "right"}
    return [
        len(hidden) == 10,
        all((reported[name] < right.min() - 0.3).all() for name in TOO_GOOD.split()),
        all((reported[name] > right.max() + 0.3).all() for name in FAILED.split()),
        all(((reported[name] - right).abs() < 0.25).all() for name in hidden),
        all((honest[name] > honest["right"].max() + 0.3).all() for name in TOO_GOOD.split()),
        bool((reported["scale_d_model"] - right).mean().abs() < 0.05),
    ]


def glorot_facts(ends: torch.Tensor) -> list[bool]:
    """From a larger start the right class ends higher, and a forgotten root no longer hides."""
    reported = dict(zip(runs.TRAINED, ends[:, 0], strict=True))
    linear = runs.table("fates")[0, 0, : ends.shape[-1]]
    return [
        bool((reported["right"] - linear > 0.08).all()),
        all((reported[name] < reported["right"].min() - 0.3).all() for name in TOO_GOOD.split()),
        bool((reported["scale_forgotten"] > reported["right"].max() + 0.2).all()),
    ]


def two_fates_facts(ends: torch.Tensor) -> list[bool]:
    return [
        bool(((ends[0] - runs.table("fates")[0])[0] > 0.08).all()),
        bool((ends[1, 0] - ends[0, 0]).mean().abs() < 0.05),
    ]


def curve_facts(points: torch.Tensor) -> list[bool]:
    """The charts' lines end apart, and those of the two that hide lie on each other."""
    right, scale, queries, heads = points[:, 0].unbind()
    apart = queries[-1] < 0.4 < 1.6 < right[-1] < 1.9 < heads[-1]
    return [bool(apart), bool((right - scale)[5:].abs().max() < 0.1), bool(points[2, 1, -1] > 8)]


def places_facts(losses: torch.Tensor) -> list[bool]:
    """Turned, the loss rises where no distance was learned: not with a window, not untrained."""
    rise = losses[..., 2:].mean(dim=-1) - losses[..., 0]
    turned, none = rise[1:], rise[0]
    return [
        bool(
            (turned[:, 0] > 0.5).all() and (losses[1:, 0, :, 1] > losses[1:, 0, :, 0] + 0.1).all()
        ),
        bool((turned[:, 1:] < 0.05).all() and (none < 0.05).all()),
        bool((losses[1:, 2] < losses[1:, 1].amax(dim=1, keepdim=True)).all()),
    ]


def norms_facts(figures: torch.Tensor) -> list[bool]:
    """Three times the best rate costs much without norms, and nothing with them."""
    (plain, normed), (peaked, spread) = figures
    means = figures[0].mean(dim=-1)
    (_, best, triple, *_), (_, normed_best, normed_triple, *_) = means.tolist()
    return [
        means[0].argmin().item() == 1 and triple - best > 0.06 > 0.05 > normed_triple - normed_best,
        bool((plain - normed)[2].min() > 0.03 and (figures[0, :, 4] > 2.9).all()),
        bool((peaked[2:] > 0.9).all() and (spread < peaked).all()),
    ]


TABLE_FACTS = {
    "unseen places": places_facts,
    "normed queries and keys": norms_facts,
    "fates": fates_facts,
    "fates, Glorot's draw": glorot_facts,
    "two fates, Glorot's draw": two_fates_facts,
    "fates on the way": curve_facts,
    "language, parts": parts_facts,
    "two draws": draws_facts,
    "root": root_facts,
    "shared keys": shared_keys_facts,
    "number of heads": head_count_facts,
}


@pytest.mark.parametrize("name", runs.TABLES)
def test_a_table_says_what_the_notebooks_say(name):
    facts = TABLE_FACTS[name](runs.table(name))
    assert facts == [True, True, True, False] if name == "root" else all(facts)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    sorted(name for name in runs.TABLES if not name.startswith("fates,") and name != "fates"),
)
def test_every_table_is_made_anew(name):
    kept, made = runs.table(name), runs.TABLES[name]()
    assert kept.shape == made.shape
    assert TABLE_FACTS[name](kept) == TABLE_FACTS[name](made)


@pytest.mark.long
@pytest.mark.parametrize("name", ["unseen places", "normed queries and keys"])
def test_other_seeds_say_the_same(name):
    assert all(TABLE_FACTS[name](runs.TABLES[name](seeds=range(5, 7))))


@pytest.mark.long
def test_the_fates_are_made_anew():
    """One start of every mistake, and all five where another fate is nearest."""
    ends = runs.table("fates").clone()
    ends[:, :, 2:3] = runs.fates(seeds=[2])
    nearest = NEAREST.split()
    ends[[runs.TRAINED.index(name) for name in nearest]] = runs.fates(nearest)
    assert all(fates_facts(ends))
    glorot = runs.table("fates, Glorot's draw").clone()
    again = [runs.TRAINED.index(name) for name in ("right", "scale_forgotten")]
    glorot[again, :, :1] = runs.fates(("right", "scale_forgotten"), [0], glorot=True)
    assert all(glorot_facts(glorot))


@pytest.mark.parametrize("name", runs.RIGHT_HERE)
def test_what_is_not_trained_is_the_right_class_here(name):
    right, wrong = runs.load("shipped, right").model, runs.with_mistake(name)()
    wrong.load_state_dict(right.state_dict())
    windows = runs.novel_ids()[1][: 24 * 48].view(24, 48)
    assert torch.equal(right(windows), wrong.to(right.attention.attention.w_q.weight)(windows))


def test_what_is_made_can_be_stored(monkeypatch):
    monkeypatch.setattr(runs, "PLANS", {})
    monkeypatch.setattr(runs, "TABLES", {"turned": lambda: torch.arange(6.0).view(2, 3).mT})
    kept = load(save(runs.all_tensors()))
    assert torch.equal(kept["turned"], runs.TABLES["turned"]())


def test_reading_a_run_leaves_no_trace_in_the_random_state():
    state = torch.random.get_rng_state()
    runs.load("repeat, h = 4, seed 0")
    assert torch.equal(state, torch.random.get_rng_state())


def test_weights_are_those_that_were_stored():
    first, again = (runs.load("two sides, h = 2, seed 1").model for _ in range(2))
    first.read_left.weight.data.zero_()
    assert again.read_left.weight.abs().sum() > 0, "a copy for each"


def broken_at(old: str) -> str:
    return replace(shipped.bug("scale_twice"), changes=[(old, "")]).source


@pytest.mark.plain
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: runs.load("two sides"), "name must be one of"),
        (lambda: runs.table("writer"), "name must be one of"),
        (lambda: runs.load("writer", live=1), "live"),
        (lambda: runs.load("writer", live=True, n_steps=0), "n_steps"),
        (lambda: runs.load("writer", n_steps=7), "n_steps must be None"),
        *((lambda old=old: broken_at(old), "must stand once") for old in ("no such line", "self")),
    ],
)
def test_refusals(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_one_head_cannot_and_two_can():
    """Two seeds each, made anew above. One side lost leaves .06 of it right."""
    kept = {h: [runs.load(f"two sides, h = {h}, seed {s}") for s in (1, 2)] for h in (1, 2)}
    for run in kept[1]:
        left, right, both = side_accuracy(run.model, LETTERS)
        assert both < 0.1
        assert max(left, right) > 0.9 and min(left, right) < 0.15
    for run in kept[2]:
        assert side_accuracy(run.model, LETTERS).both > 0.99
        looks = weight_by_offset(run.model.weights(), (-1, 1))  # (head, side)
        to_left, to_right = looks.argmax(dim=0).tolist()
        assert {to_left, to_right} == {0, 1} and looks.max(dim=0).values.min() > 0.9
        deaf_left = side_accuracy(silence_head(run.model, to_left), LETTERS)
        deaf_right = side_accuracy(silence_head(run.model, to_right), LETTERS)
        assert deaf_left.right > 0.99 and deaf_left.left < 0.15
        assert deaf_right.left > 0.99 and deaf_right.right < 0.15
