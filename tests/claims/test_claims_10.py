"""Notebook 10: what is said of rotation beside its verdicts."""

import pytest
import torch

from mha_course import runs
from mha_course.collection.shipped import draw
from mha_lesson import rotate


@pytest.mark.parametrize(
    "row", [torch.ones(1, 64).double(), draw(1, 64, seed=2), draw(1, 64, seed=3)]
)
def test_equal_rows_score_less_for_a_thousand_places_and_in_the_end_about_zero(row):
    at = torch.arange(100_000)
    scores = (rotate(row, at[:1]) @ rotate(row.expand(len(at), 64), at).T)[0] / row.square().sum()
    near, far, farther, _, end = scores.split([10, 90, 900, 4000, 95_000])
    assert near.mean() > far.mean() > farther.mean() > 0.1 > 0.02 > abs(end.mean())
    assert (far.diff() > 0).any() and end.max() > 0.3


@pytest.mark.parametrize(("d_k", "base"), [(8, 10_000.0), (12, 10_000.0), (12, 100.0)])
def test_with_few_dimensions_equal_rows_score_high_again_with_either_base(d_k, base):
    row, at = torch.ones(1, d_k, dtype=torch.float64), torch.arange(3000)
    scores = (rotate(row, at[:1], base) @ rotate(row.expand(3000, d_k), at, base).T)[0] / d_k
    assert scores[1000:].max() > 0.7 > scores[20:60].mean()


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


@torch.no_grad()
def test_as_many_keys_raise_the_loss_where_they_are_far_and_not_where_they_are_near():
    writer, place = runs.load("writer").model.cpu(), torch.arange(160)
    windows = runs.novel_ids()[1][-20 * 160 :].view(20, 160)  # not the notebook's
    back, attend = place[:, None] - place, writer.attention.forward

    def rise(blocked):
        writer.attention.forward = lambda x, cache: attend(x, cache, mask=blocked)
        chances = writer(windows).log_softmax(dim=-1)
        losses = -chances[:, :-1].gather(-1, windows[:, 1:, None])
        return (losses[:, 100:].mean() - losses[:, :48].mean()).item()

    near, far = rise(back >= 48), rise((back >= 30) & (place >= 18))
    assert near < 0.1 < 0.25 < far < rise(back >= 160)
