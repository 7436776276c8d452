"""What the claims of notebook 09 assert, for other sizes, seeds and number formats.

Nothing here is timed: the one claim about time says only what its own machine measured.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import notebooks
from mha_course import cost
from mha_lesson import MultiHeadAttention, scaled_dot_product_attention

CPU = torch.device("cpu")
# As many operations for every h: test_explore_words.py. Both paths one result: test_attention.py.


def counted(T: int, d_model: int, n_heads: int, **options: bool) -> int:
    mha, x = MultiHeadAttention(d_model, n_heads), torch.zeros(1, T, d_model)
    with FlopCounterMode(display=False) as counter:
        mha(x, **options)
    return counter.get_total_flops()


def test_the_counter_does_not_see_the_fused_kernel_of_a_cpu():
    assert counted(37, 210, 7) == 8 * 37 * 210**2


@pytest.mark.parametrize("d_model", [96, 768, 4096])
def test_twice_the_tokens_four_times_the_cost(d_model):
    def growth(T: int) -> float:
        once, twice = (sum(cost.flops(t, d_model, 1).values()) for t in (T, 2 * T))
        return twice / once

    assert growth(d_model // 24) < 2.1
    assert growth(2 * d_model) == pytest.approx(3)
    assert growth(50 * d_model) > 3.9
    # with a feed-forward layer of four times the width beside it: even at 6 · d_model
    assert 24 * (6 * d_model) * d_model**2 == 4 * (6 * d_model) ** 2 * d_model


def growth_of_peak(call, T: int, h: int, d_k: int) -> float:
    peaks = []
    for t in (T, 2 * T):
        q, k, v = torch.zeros(3, 1, h, t, d_k)
        peaks.append(cost.peak_bytes(lambda q=q, k=k, v=v: call(q, k, v), CPU))
    return peaks[1] / peaks[0]


# From T = 768 on the fused kernel takes 256 queries at a time, not 64, and every thread its own.
@pytest.mark.parametrize(("T", "h", "d_k"), [(800, 5, 32), (1280, 3, 48)])
def test_attention_needs_memory_that_grows_with_t_squared(T, h, d_k):
    explicit = partial(cost.run_core, "explicit")
    assert growth_of_peak(explicit, T, h, d_k) == pytest.approx(4, abs=0.1)
    assert growth_of_peak(scaled_dot_product_attention, T, h, d_k) < 2.1


@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.3),
        lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout=0.3),
        lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v[..., :16]),
    ],
    ids=["dropout", "the package's dropout", "three axes", "d_v other than d_k"],
)
def test_scaled_dot_product_attention_never_holds_t_by_t(call):
    assert growth_of_peak(call, 640, 5, 32) > 3.5


# ---------------------------------------------------------------- a softmax in blocks


def blockwise():
    """The notebook's own function."""
    cells = notebooks.read(notebooks.paths("09")[0]).cells
    names = {"torch": torch}
    exec(next(cell.source for cell in cells if cell.id == "blockwise"), names)
    return names["blockwise"]


def masks(T_q: int, T_k: int):
    generator = torch.Generator().manual_seed(T_q)
    yield None
    some = torch.rand(T_q, T_k, generator=generator) < 0.5
    some[1] = True
    yield some
    start = torch.zeros(T_q, T_k, dtype=torch.bool)
    start[:, : T_k // 2] = True  # whole blocks are blocked before anything is seen
    yield start


def gap(function, size: float, dtype: torch.dtype = torch.float64) -> float:
    worst = 0.0
    for seed, (T_q, T_k, d_k, d_v) in enumerate([(5, 11, 3, 2), (7, 17, 13, 5), (3, 1, 2, 7)]):
        generator = torch.Generator().manual_seed(seed + 20)
        Q, K, V = (
            size * torch.randn(n, d, generator=generator, dtype=dtype)
            for n, d in ((T_q, d_k), (T_k, d_k), (T_k, d_v))
        )
        for mask in masks(T_q, T_k):
            keep = None if mask is None else ~mask
            right = F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=keep)[0]
            if mask is not None:
                right = right.masked_fill(mask.all(dim=1, keepdim=True), 0)
            for block in (1, 2, 3, 5, T_k, T_k + 4):
                found = function(Q, K, V, block, mask)
                found = found.nan_to_num(nan=torch.inf)
                worst = max(worst, (found - right).abs().max().item())
    return worst


@pytest.mark.parametrize("size", [0.1, 1, 30])
def test_a_softmax_needs_all_the_scores_at_once(size):
    assert gap(blockwise(), size) < 1e-10 * size
    assert gap(blockwise(), size, torch.float32) < 1e-4 * size


def test_in_blocks_memory_grows_with_t():
    function = blockwise()
    peaks = []
    for T in (700, 1400):
        Q, K, V = torch.zeros(3, T, 32)
        peaks.append(cost.peak_bytes(lambda Q=Q, K=K, V=V: function(Q, K, V, 50), CPU))
    assert peaks[1] / peaks[0] == pytest.approx(2, abs=0.1)
