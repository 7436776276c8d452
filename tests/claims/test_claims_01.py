"""Notebook 01: what its cards and sentences assert, on other seeds and sizes."""

import math

import pytest
import torch
from torch import nn

from mha_course.explore import n01_scaling
from mha_lesson import MultiHeadAttention

SEEDS = (11, 12, 13)
# That attention knows no order, and with a causal mask it does: test_claims_10.py.


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scores_of(seed, n, d_k, n_keys=10):
    return (rows(seed, n, 1, d_k) @ rows(seed + 1000, n, n_keys, d_k).mT).squeeze(1)


def example():
    Q = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    return Q @ Q.T


def test_the_third_token_takes_half_from_one_value():
    weights = (example() / math.sqrt(2)).softmax(dim=-1)[2]
    assert 0.50 < weights.max() < 0.51
    V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]], dtype=torch.float64)
    assert torch.allclose(weights @ V, V.mean(dim=0))  # it only looks like a plain mean
    V[2] = torch.tensor([8.0, 1.0])
    assert not torch.allclose(weights @ V, V.mean(dim=0), atol=0.3)
    unscaled = example().softmax(dim=-1)[2].tolist()
    assert unscaled == pytest.approx([0.212, 0.212, 0.576], abs=5e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("d_k", [7, 61, 509, 4093])
def test_the_spread_of_dot_products_is_the_root_of_d_k(seed, d_k):
    products = (rows(seed, 4000, d_k) * rows(seed + 1000, 4000, d_k)).sum(dim=-1)
    assert products.std().item() / math.sqrt(d_k) == pytest.approx(1, abs=0.1)
    assert products.std().item() / d_k < 0.9  # not d_k


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_unscaled_the_largest_weight_comes_near_one_gradually(seed):
    def largest(d_k, n_keys=10):
        return scores_of(seed, 1000, d_k, n_keys).softmax(dim=-1).amax(dim=-1)

    at_8, at_64, at_512, at_4096 = (largest(d).mean().item() for d in (8, 64, 512, 4096))
    rows_at_64, of_two, of_many = largest(64), largest(64, 2).mean(), largest(64, 100).mean()
    assert of_two > 0.94 > at_64 > of_many
    assert 0.44 < (rows_at_64 > 0.95).float().mean() < 0.56, "half of the rows have such a key"
    assert 0.55 < at_8 < 0.67 and 0.81 < at_64 < 0.9
    assert 0.935 < at_512 < 0.97 and at_4096 > 0.96  # four deviations of .004 around .952


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("d_k", [8, 61, 509, 4093])
def test_scaled_the_largest_weight_is_above_030_in_four_rows_of_ten_at_any_d_k(seed, d_k):
    largest = (scores_of(seed, 1000, d_k) / math.sqrt(d_k)).softmax(dim=-1).amax(dim=-1)
    assert 0.28 < largest.mean() < 0.36
    assert 0.3 < (largest > 0.30).float().mean() < 0.6  # six deviations of .016 around .47


@pytest.mark.parametrize("seed", SEEDS)
def test_unscaled_most_rows_are_stuck_and_scaled_none(seed):
    raw = scores_of(seed, 2000, 512)
    p, q = raw.softmax(dim=-1), (raw / math.sqrt(512)).softmax(dim=-1)
    stuck = ((p * (1 - p)).sum(dim=-1) < 0.01).float().mean().item()
    assert stuck == pytest.approx(0.68, abs=0.065)
    assert (p * (1 - p)).sum(dim=-1).median() < 0.001
    scaled = (q * (1 - q)).sum(dim=-1)
    assert scaled.median() > 0.79 and scaled.min() > 0.05
    # through the other rows the gradient still comes
    assert ((p * (1 - p)).sum(dim=-1) > 0.1).float().mean() > 0.1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("d_model", "h"), [(512, 8), (512, 1)])
def test_how_many_rows_of_a_fresh_layer_are_stuck_depends_on_its_start(seed, d_model, h):
    torch.manual_seed(seed)
    d_k, x = d_model // h, rows(seed, 100, 10, d_model)
    makers = nn.Linear(d_model, 2 * d_model), MultiHeadAttention(d_model, h).w_qkv

    def stuck(layer, divisor):
        made = layer(x)[..., : 2 * d_model].detach()
        q, k = made.unflatten(-1, (2 * h, d_k)).transpose(1, 2).chunk(2, dim=1)
        p = (q @ k.mT / divisor).softmax(dim=-1)
        return ((p * (1 - p)).sum(dim=-1) < 0.01).float().mean().item()

    linear, ours = (stuck(layer, 1) for layer in makers)
    if h == 8:
        assert linear < 0.02 and 0.2 < ours < 0.4
    else:  # with a larger d_k it comes back
        assert 0.15 < linear < 0.35 and 0.6 < ours < 0.75
    assert all(stuck(layer, math.sqrt(d_k)) == 0 for layer in makers)


def test_the_answer_about_the_explorer():
    raw = {d: n01_scaling.scene(d).flat()[1].values.max() for d in n01_scaling.SIZES}
    scaled = [n01_scaling.scene(d, True).flat()[1].values.max() for d in n01_scaling.SIZES]
    assert min(d for d, w in raw.items() if w > 0.9) == 32
    assert f"{raw[32]:.3f}" == "0.999" and raw[128] < raw[64] < raw[32]
    assert (f"{min(scaled):.2f}", f"{max(scaled):.2f}") == ("0.16", "0.53")
