"""Notebook 01: what hangs on the start of a layer, and what its explorer shows."""

import math

import pytest
import torch
from torch import nn

from mha_course.explore import n01_scaling
from mha_lesson import MultiHeadAttention

SEEDS = (11, 12, 13)


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
