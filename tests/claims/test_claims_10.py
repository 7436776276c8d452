"""Notebook 10: what is said of rotation beside its verdicts."""

import pytest
import torch

from mha_course.collection.shipped import draw
from mha_lesson import rotate


def test_equal_rows_score_less_far_apart_with_ripples():
    row = torch.ones(1, 32, dtype=torch.float64)
    at = torch.arange(200)
    scores = (rotate(row, at[:1]) @ rotate(row.expand(200, 32), at).T)[0]
    assert scores[:10].mean() > scores[60:100].mean() > 0.3 * scores[0] and scores[0] == 32
    assert (scores.diff() > 0).any()


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
