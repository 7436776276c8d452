"""What the claims of notebook 09 assert, for other sizes, seeds and number formats.

Nothing here is timed: the one claim about time says only what its own machine measured.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import notebooks
from mha_course import cost
from mha_lesson import scaled_dot_product_attention

CPU = torch.device("cpu")
# As many operations for every h: test_explore_words.py. Both paths one result: test_attention.py.


@pytest.mark.parametrize("d_model", [96, 768, 4096])
def test_twice_the_tokens_four_times_the_cost(d_model):
    def growth(T: int) -> float:
        once, twice = (sum(cost.flops(t, d_model, 1).values()) for t in (T, 2 * T))
        return twice / once

    assert growth(d_model // 24) < 2.1
    assert growth(2 * d_model) == pytest.approx(3)
    assert growth(50 * d_model) > 3.9


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
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, torch.ones(2 * q.shape[-2:-1], dtype=torch.bool)
        ),
    ],
    ids=["dropout", "the package's dropout", "three axes", "d_v other than d_k", "a bool mask"],
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


@pytest.mark.parametrize(("dtype", "gap"), [(torch.float32, 0), (torch.bfloat16, 0.5)])
def test_one_key_at_a_time_bfloat16_stops_counting_at_256(dtype, gap):
    Q, K, V = torch.zeros(3, 2048, 8, dtype=dtype)
    V[1024:] = 1  # a half for each query
    assert (blockwise()(Q[:1], K, V, 1) - 0.5).abs().max() == gap
