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


def layer(x: Tensor, mask: Tensor) -> Tensor:
    return before(x @ x.mT / math.sqrt(x.shape[-1]), mask) @ x


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("T", "n_words", "d"), [(3, 2, 5), (7, 3, 11), (13, 12, 2)])
def test_in_training_one_layer_is_enough_and_the_loss_does_not_tell(T, n_words, d, seed):
    draw = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(T, d, generator=draw), torch.randn(d, d, generator=draw)
    is_pad = torch.arange(T) >= n_words
    keys_only = is_pad.expand(T, T)
    for mask, lost in ((keys_only, False), (keys_only | is_pad[:, None], True)):
        weight = weight.detach().requires_grad_()
        loss = layer(x @ weight, mask)[:n_words].square().mean()
        loss.backward()
        assert loss.isfinite()
        assert weight.grad.isnan().all() if lost else weight.grad.isfinite().all()


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_minus_a_billion_blocks_exactly_in_bfloat16_too_and_shares_out_an_empty_row(dtype, seed):
    scores, mask = scores_and_mask(seed, 5, 8)
    mask[2] = True
    weights = scores.to(dtype).masked_fill(mask, -1e9).softmax(dim=-1)
    empty = mask.all(dim=-1)
    assert not weights[~empty][mask[~empty]].any()
    assert (weights[2] == 1 / 8).all()  # of everything that was blocked
    assert before(scores.to(dtype), mask)[2].isnan().all()
