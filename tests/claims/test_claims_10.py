"""The verdicts of notebook 10, with other seeds and sizes than the notebook's."""

import pytest
import torch

from mha_course.collection.shipped import draw
from mha_lesson import MultiHeadAttention, rotate

SEEDS = (11, 12, 13)


def shuffled(n, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order if (order != torch.arange(n)).any() else order.roll(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shuffled_text_gives_the_shuffled_output_unless_a_mask_is_causal(seed):
    torch.manual_seed(seed)
    mha, x = MultiHeadAttention(21, 3).double(), draw(11, 21, seed=seed)
    order = shuffled(11, seed)
    assert (mha(x[order]) - mha(x)[order]).abs().max() < 1e-12
    assert (mha(x[order], causal=True) - mha(x, causal=True)[order]).abs().max() > 0.01


@pytest.mark.parametrize("distance", [0, 1, 3, 17, 31])
def test_a_query_can_score_highest_at_any_distance(distance):
    row, here = draw(1, 48, seed=distance), torch.tensor([40])
    back = rotate(row.expand(41, 48), torch.arange(41))
    query = rotate(rotate(row, torch.tensor([-distance])), here)
    assert 40 - (query @ back.T)[0].argmax() == distance


def test_equal_rows_score_less_far_apart_with_ripples():
    row = torch.ones(1, 32, dtype=torch.float64)
    at = torch.arange(200)
    scores = (rotate(row, at[:1]) @ rotate(row.expand(200, 32), at).T)[0]
    assert scores[:10].mean() > scores[60:100].mean() > 0.3 * scores[0] and scores[0] == 32
    assert (scores.diff() > 0).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_rotated_values_carry_the_absolute_place_unless_the_output_is_turned_back(seed):
    q, k, v = draw(3, 9, 14, seed=seed)

    def context(shift, turn_values, turn_back=False):
        at = torch.arange(9) + shift
        weights = (rotate(q, at) @ rotate(k, at).T / 14**0.5).softmax(dim=-1)
        out = weights @ (rotate(v, at) if turn_values else v)
        return rotate(out, -at) if turn_back else out

    assert (context(23, False) - context(0, False)).abs().max() < 1e-9
    assert (context(23, True) - context(0, True)).abs().max() > 0.01
    assert (context(23, True, True) - context(0, True, True)).abs().max() < 1e-9


@pytest.mark.parametrize("d_k", [4, 10, 26])
def test_the_two_layouts_differ_by_the_order_of_dimensions_only(d_k):
    q, k = draw(2, 7, d_k, seed=d_k)
    at, order = torch.arange(7), torch.arange(d_k).view(2, -1).T.flatten()
    speed = 10_000.0 ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    turn = torch.polar(torch.ones(7, d_k // 2, dtype=torch.float64), at[:, None] * speed)

    def neighbours(x):
        return torch.view_as_real(torch.view_as_complex(x.reshape(7, -1, 2)) * turn).flatten(1)

    assert (rotate(q, at)[:, order] - neighbours(q[:, order])).abs().max() < 1e-12
    here, there = rotate(q, at) @ rotate(k, at).T, neighbours(q) @ neighbours(k).T
    assert (here - there).abs().max() > 0.01
