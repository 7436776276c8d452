"""The verdicts of notebook 07's claim cards, recomputed: on the runs that are stored, which
test_runs.py makes anew, and with other seeds where a verdict speaks of them.
"""

import copy

import pytest
import torch
import torch.nn.functional as F

from mha_course import runs
from mha_lesson.models import LanguageModel, RepeatModel, TwoSidesModel
from mha_lesson.tasks import both_sides, letter_batches, repeat_batches
from mha_lesson.training import (
    predict_next,
    side_accuracy,
    silence_head,
    train,
    two_sides_runs,
)

LETTERS = next(letter_batches(300, seed=98))


@pytest.mark.long
def test_where_one_head_shares_itself_both_readers_put_the_same_letter_first():
    """Elsewhere it has given one side up; the lost reader names the other letter all the same."""
    answers, i = both_sides(LETTERS), torch.arange(1, 11)
    n_shared = 0
    for model in (run.model for run in two_sides_runs(1, [21, 22])):
        with torch.no_grad():
            scores = model(LETTERS)[:, 1:-1]
        right = (scores.argmax(-1) == answers).float().mean((0, 1))
        lost = int(right.argmin())
        assert right.max() > 0.97 and side_accuracy(model, LETTERS).both < 0.1
        weights = model.weights()[0]
        shared = torch.minimum(weights[i, i - 1], weights[i, i + 1]) > 0.3  # by position
        for at in range(10):
            differ = answers[:, at, 0] != answers[:, at, 1]
            own, neighbours = scores[differ, at, lost], answers[differ, at]
            assert (own.argmax(-1) == neighbours[:, 1 - lost]).float().mean() > 0.9
            if shared[at]:
                n_shared += 1
                best, same = scores[differ, at].topk(2).indices, neighbours[:, [1 - lost, lost]]
                assert (best == same[:, None]).all(-1).float().mean() > 0.97
                assert 0.6 < F.cross_entropy(own, neighbours[:, lost]) < 1.73
    assert n_shared > 10 and not shared.all()


@pytest.mark.long
def test_a_rare_run_gives_a_side_up_and_its_reader_guesses():
    [run] = two_sides_runs(1, [14])
    answers = both_sides(LETTERS)
    with torch.no_grad():
        scores = run.model(LETTERS)[:, 1:-1]
    lost = int((scores.argmax(-1) == answers).float().mean((0, 1)).argmin())
    named_other = scores[..., lost, :].argmax(-1) == answers[..., 1 - lost]
    assert named_other.float().mean() < 0.2
    assert side_accuracy(run.model, LETTERS).both < 0.12


@torch.no_grad()
def test_the_four_rows_of_the_proof():
    """The sums of leads are a·G and (a − b)·G in any model with one head, trained or not."""
    torch.manual_seed(7)
    x, y, z = 11, 3, 6
    others = torch.tensor([i for i in range(16) if i not in (x, y, z)])
    trained = [runs.load(f"two sides, h = 1, seed {seed}").model for seed in (1, 2, 7)]
    for model in (*trained, TwoSidesModel(1)):
        model = copy.deepcopy(model).double()
        n_wrong = []
        for at in (1, 4, 10):
            wrong = 0
            shares = model.weights()[0, at, [at - 1, at + 1]]
            for side in (0, 1):
                pairs = [(x, z), (y, z), (x, y), (y, x)]
                if side:
                    pairs[:2] = [(z, x), (z, y)]
                rows = others[torch.randperm(13)[:12]].repeat(4, 1)
                rows[:, [at - 1, at + 1]] = torch.tensor(pairs)
                right = rows[:, at + (1 if side else -1)]
                scores = model(rows)[range(4), at, side]
                lead = scores[range(4), right] - scores[range(4), x + y - right]
                s = model(torch.arange(16)[:, None].expand(16, 12))[:, at, side]
                G = s[x, x] + s[y, y] - s[x, y] - s[y, x]
                own, other = shares[side], shares[1 - side]
                torch.testing.assert_close(lead[0] + lead[1], own * G)
                torch.testing.assert_close(lead[2] + lead[3], (own - other) * G)
                wrong += int((lead <= 0).sum())
            n_wrong.append(wrong)
        assert min(n_wrong) >= 1


# With seed 32 both heads look to the same side at two of the ten places: the worst of 36 seeds.
@pytest.mark.long
@pytest.mark.parametrize(("n_heads", "least"), [(4, 0.99), (2, 0.75)])
def test_two_and_more_heads_learn_both_but_for_a_place_or_two(n_heads, least):
    [run] = two_sides_runs(n_heads, [32])
    assert side_accuracy(run.model, LETTERS).both > least


@pytest.mark.parametrize(("seed", "heads"), [(1, (1, 2, 5)), (2, (0, 2, 3))])
def test_three_of_the_heads_that_can_be_spared_can_go_together(seed, heads):
    quiet = runs.load(f"two sides, h = 8, seed {seed}").model
    for head in heads:
        quiet = silence_head(quiet, head)
    assert side_accuracy(quiet, LETTERS).both > 0.98


def test_from_a_narrow_start_the_repeat_task_takes_longer_still():
    def narrow():
        model = RepeatModel()
        model.attention.w_qkv.reset_parameters()
        model.attention.w_o.reset_parameters()
        return model

    plan = runs._repeat(4, 1)._replace(fresh=narrow, learning_rate=1e-3)
    assert 1.3 < plan.carry_out("").losses[-1] < 1.9


def left_share(kind, d_k, seed, narrow=False, rate=5e-3):
    def fresh():
        model = kind(1, d_model=d_k)
        for layer in (model.attention.w_qkv, model.attention.w_o) if narrow else ():
            layer.reset_parameters()
        return model

    plan = runs._two_sides(1, seed, (0,), 200)._replace(fresh=fresh, learning_rate=rate)
    return side_accuracy(plan.carry_out("").model, LETTERS).left


@torch.no_grad()
def test_queries_as_much_longer_as_the_root_undo_it():
    model = runs.WithoutRoot(1, d_model=16)
    q, k = model.attention.w_qkv(model.position_embedding.weight).chunk(3, dim=-1)[:2]
    letters = LETTERS[:5]
    v = model.attention.w_qkv(model.letter_embedding(letters)).chunk(3, dim=-1)[2]
    gathered = model.attention.w_o((q @ k.T).softmax(-1) @ v)
    torch.testing.assert_close(model(letters)[:, :, 0], model.read_left(gathered))


@pytest.mark.long
@pytest.mark.parametrize("rate", [5e-3, 5e-4])
def test_without_the_root_a_large_head_learns_less_than_half_at_other_rates_too(rate):
    shares = [left_share(runs.WithoutRoot, 128, seed, rate=rate) for seed in (4, 5, 7)]
    assert sum(shares) / 3 < 0.4


@pytest.mark.long
def test_a_larger_head_needs_the_root_and_a_lower_rate():
    with_it = [left_share(TwoSidesModel, 256, 52, rate=rate) for rate in (5e-3, 1e-3)]
    assert with_it[0] < 0.6 < 0.9 < with_it[1] and left_share(runs.WithoutRoot, 256, 52) < 0.5


@pytest.mark.long
def test_a_narrow_start_does_not_replace_the_root():
    """Of seeds 0 to 19 the share is .06 to .6, and .25 in the mean."""
    shares = [left_share(runs.WithoutRoot, 128, seed, narrow=True) for seed in range(10, 15)]
    assert sum(shares) / 5 < 0.5 < 0.9 < left_share(TwoSidesModel, 128, 10, narrow=True)


def test_a_part_of_zeros_stays_out_of_the_training():
    torch.manual_seed(0)
    whole = LanguageModel(7, 5, 6, 3)
    for part in ("attention", "feed_forward"):
        model = copy.deepcopy(whole)
        for parameter in getattr(model, part).parameters():
            parameter.data.zero_()
        train(model, repeat_batches(3, 5, 7), predict_next, n_steps=5, learning_rate=1e-2)
        trained = dict(getattr(model, part).named_parameters())
        last = "w_o.bias" if part == "attention" else "2.bias"
        assert all((p == 0).all() for name, p in trained.items() if name != last)
        assert (trained[last] != 0).any()
