"""The verdicts of notebook 04, recomputed with other seeds and sizes."""

import math

import pytest
import torch
from torch import Tensor

SEEDS = [1, 2, 3]


def scores_and_mask(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Random scores, and a random mask that leaves every row something."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=draw) < 0.5
    mask[..., 0] = False
    return torch.randn(shape, generator=draw), mask


def before(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1)


def afterwards(scores: Tensor, mask: Tensor) -> Tensor:
    kept = scores.softmax(dim=-1) * ~mask
    return kept / kept.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_masking_afterwards_is_the_same_until_a_blocked_score_towers(seed):
    scores, mask = scores_and_mask(seed, 7, 11)
    mask[:, 5] = True
    assert torch.allclose(afterwards(scores, mask), before(scores, mask), atol=1e-6)
    scores[:, 5] += 200.0
    assert afterwards(scores, mask).isnan().all()
    assert before(scores, mask).isfinite().all()
    assert not before(scores, mask)[mask].any()


@pytest.mark.parametrize("mend", [Tensor.nan_to_num, lambda w: w.where(~w.isnan(), 0.0)])
def test_mended_weights_leave_nan_on_the_way_back_where_minus_infinity_was_added(mend):
    everywhere = torch.ones(5, dtype=torch.bool)
    for block, lost in (
        (lambda row: row - math.inf, True),
        (lambda row: row.masked_fill(everywhere, -math.inf), False),
    ):
        row = torch.randn(5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        mended = mend(block(row).softmax(dim=-1))
        assert not mended.any()
        mended[0].backward()
        assert row.grad.isnan().all() if lost else not row.grad.any()
