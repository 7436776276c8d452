"""The verdicts of notebook 07's claim cards, recomputed with other seeds and other sizes."""

import copy

import pytest
import torch
import torch.nn.functional as F

from mha_lesson.models import LanguageModel, RepeatModel, TwoSidesModel, bigram_log_probabilities
from mha_lesson.tasks import both_sides, letter_batches, repeat_batches, text_batches
from mha_lesson.text import northanger_abbey
from mha_lesson.training import (
    predict_next,
    side_accuracy,
    silence_head,
    train,
    two_sides_loss,
    two_sides_runs,
    with_uniform_attention,
)

LETTERS = next(letter_batches(300, seed=98))


def repeat_run(n_heads, seed, learning_rate=3e-3):
    torch.manual_seed(seed)
    model = RepeatModel(n_heads=n_heads)
    fresh = copy.deepcopy(model)
    settings = {"n_steps": 96, "learning_rate": learning_rate, "decay": False}
    return fresh, train(model, repeat_batches(seed=seed), predict_next, **settings)


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12])
def test_three_epochs_are_enough_at_one_rate_and_not_at_the_other(seed):
    _, fast = repeat_run(4, seed)
    _, slow = repeat_run(4, seed, learning_rate=1e-3)
    for run in (fast, slow):
        assert 4 < run.losses[0] < 5
    assert fast.losses[95] < 0.1 and slow.losses[95] > 0.6


@pytest.mark.long
@pytest.mark.parametrize(("n_heads", "seed"), [(2, 13), (4, 14), (8, 15)])
@torch.no_grad()
def test_uniform_weights_leave_the_answers_and_patterns_appear_all_the_same(n_heads, seed):
    with torch.enable_grad():
        fresh, run = repeat_run(n_heads, seed)
    ids = next(repeat_batches(211, seed=seed + 1))
    uniform = with_uniform_attention(run.model)
    for model in (run.model, uniform):
        named = model(ids)[:, :-1].argmax(dim=-1)
        assert (named == ids[:, 1:]).float().mean() > 0.95
    before, after = predict_next(run.model, ids), predict_next(uniform, ids)
    assert 1.5 * before < after < 1
    never, settings = with_uniform_attention(fresh), {"n_steps": 96, "learning_rate": 3e-3}
    with torch.enable_grad():
        train(never, repeat_batches(seed=seed), predict_next, decay=False, **settings)
    assert predict_next(never, ids) < 1.6 * before, "trained so from the start: nothing is missed"
    even = uniform.weights(ids)
    moved = [(m.weights(ids) - even).abs().sum(-1).mean() / 2 for m in (fresh, run.model)]
    assert moved[0] + 0.05 < moved[1]


@pytest.fixture(scope="module")
def one_head():
    return [run.model for run in two_sides_runs(1, [21, 22])]


@pytest.mark.long
def test_where_one_head_shares_itself_it_knows_both_letters_and_not_their_order(one_head):
    """Elsewhere it has given one side up; the lost reader names the other letter all the same."""
    answers, i = both_sides(LETTERS), torch.arange(1, 11)
    n_shared = 0
    for model in one_head:
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
                best = own.topk(2).indices.sort(-1).values
                assert (best == neighbours.sort(-1).values).all(-1).float().mean() > 0.97
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
def test_the_four_rows_of_the_proof(one_head):
    """The sums of leads are a·G and (a − b)·G in any model with one head, trained or not."""
    torch.manual_seed(7)
    x, y, z = 11, 3, 6
    others = torch.tensor([i for i in range(16) if i not in (x, y, z)])
    for model in (*one_head, TwoSidesModel(1)):
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
@pytest.mark.parametrize(
    ("n_heads", "seed", "least"), [(2, 23, 0.99), (4, 23, 0.99), (4, 32, 0.99), (2, 32, 0.75)]
)
def test_two_and_more_heads_learn_both_but_for_a_place_or_two(n_heads, seed, least):
    [run] = two_sides_runs(n_heads, [seed])
    assert side_accuracy(run.model, LETTERS).both > least


@pytest.mark.long
def test_heads_that_can_be_spared_alone_are_missed_together():
    [run] = two_sides_runs(8, [1])
    alone = [side_accuracy(silence_head(run.model, i), LETTERS).both for i in range(8)]
    spared = [i for i in range(8) if alone[i] > 0.98]
    assert len(spared) > 4
    quiet = run.model
    for head in spared:
        quiet = silence_head(quiet, head)
    assert side_accuracy(quiet, LETTERS).both < 0.9


class WithoutRoot(TwoSidesModel):
    def forward(self, letters):
        B, root = len(letters), self.attention.d_k**0.5
        places = self.position_embedding.weight
        queries, keys = (x.expand(B, -1, -1) for x in (places * root, places))
        gathered = self.attention(queries, keys, self.letter_embedding(letters))
        return torch.stack([self.read_left(gathered), self.read_right(gathered)], dim=2)


def left_share(kind, d_k, seed, narrow=False):
    torch.manual_seed(seed)
    model = kind(1, d_model=d_k)
    for layer in (model.attention.w_qkv, model.attention.w_o) if narrow else ():
        layer.reset_parameters()
    train(
        model,
        letter_batches(seed=seed),
        lambda model, letters: two_sides_loss(model, letters, [0]),
        n_steps=200,
        learning_rate=5e-3,
    )
    return side_accuracy(model, LETTERS).left


@torch.no_grad()
def test_queries_as_much_longer_as_the_root_undo_it():
    model = WithoutRoot(1, d_model=16)
    q, k = model.attention.w_qkv(model.position_embedding.weight).chunk(3, dim=-1)[:2]
    letters = LETTERS[:5]
    v = model.attention.w_qkv(model.letter_embedding(letters)).chunk(3, dim=-1)[2]
    gathered = model.attention.w_o((q @ k.T).softmax(-1) @ v)
    torch.testing.assert_close(model(letters)[:, :, 0], model.read_left(gathered))


@pytest.mark.long
def test_whether_the_root_is_needed_depends_on_d_k():
    seeds = (4, 5, 7)
    mean = {
        (kind, d_k): sum(left_share(kind, d_k, seed) for seed in seeds) / 3
        for kind in (TwoSidesModel, WithoutRoot)
        for d_k in (16, 128)
    }
    assert min(mean[TwoSidesModel, d_k] for d_k in (16, 128)) > 0.9
    assert mean[WithoutRoot, 16] > 0.5 > 0.3 > mean[WithoutRoot, 128]


@pytest.mark.long
def test_a_narrow_start_does_not_replace_the_root():
    """Of seeds 0 to 19 the share is .06 to .6, and .25 in the mean."""
    shares = [left_share(WithoutRoot, 128, seed, narrow=True) for seed in range(10, 15)]
    assert sum(shares) / 5 < 0.5 < 0.9 < left_share(TwoSidesModel, 128, 10, narrow=True)


def without(model, part):
    model = copy.deepcopy(model)
    for parameter in getattr(model, part).parameters():
        parameter.data.zero_()
    return model


def test_a_part_of_zeros_stays_out_of_the_training():
    torch.manual_seed(0)
    whole = LanguageModel(7, 5, 6, 3)
    for part in ("attention", "feed_forward"):
        model = without(whole, part)
        train(model, repeat_batches(3, 5, 7), predict_next, n_steps=5, learning_rate=1e-2)
        trained = dict(getattr(model, part).named_parameters())
        last = "w_o.bias" if part == "attention" else "2.bias"
        assert all((p == 0).all() for name, p in trained.items() if name != last)
        assert (trained[last] != 0).any()


@pytest.mark.long
def test_what_each_part_of_the_language_model_is_worth():
    novel = northanger_abbey()
    alphabet = sorted(set(novel))
    ids = torch.tensor([alphabet.index(c) for c in novel])
    cut = len(ids) * 9 // 10
    windows = ids[cut:][: (len(ids) - cut) // 48 * 48].view(-1, 48)
    table = bigram_log_probabilities(ids[:cut], len(alphabet))
    pairs = -table[windows[:, :-1], windows[:, 1:]].mean().item()
    torch.manual_seed(5)
    fresh = LanguageModel(len(alphabet))
    variants = {
        "whole": copy.deepcopy(fresh),
        "uniform": with_uniform_attention(fresh),
        "no attention": without(fresh, "attention"),
        "no feed-forward": without(fresh, "feed_forward"),
    }
    gain = {}
    for name, model in variants.items():
        batches = text_batches(ids[:cut], 24, 48, seed=5)
        train(model, batches, predict_next, n_steps=600, learning_rate=6e-3)
        with torch.no_grad():
            gain[name] = pairs - predict_next(model, windows).item()
            if name == "whole":
                swapped = with_uniform_attention(model)
                gain["swapped"] = pairs - predict_next(swapped, windows).item()
    assert gain["whole"] > 0.4 and gain["whole"] > gain["no feed-forward"] + 0.1
    assert 0.1 < gain["uniform"] < gain["whole"] / 2
    assert abs(gain["no attention"]) < 0.1
    assert gain["no feed-forward"] > 0.1 and gain["swapped"] < 0
