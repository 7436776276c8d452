"""The verdicts of notebook 03, recomputed with other seeds and sizes and by other means."""

import pytest
import torch
from torch import Tensor

# With one head or one token the shortcut is right: tests/explore/test_explore.py, every position.


def attend_causally(heads: Tensor) -> Tensor:
    """Causal attention of each head to itself, row by row."""
    context = torch.empty_like(heads)
    for i, rows in enumerate(heads):
        for t in range(len(rows)):
            shares = (rows[: t + 1] @ rows[t] / rows.shape[-1] ** 0.5).softmax(dim=0)
            context[i, t] = shares @ rows[: t + 1]
    return context


def hears(x: Tensor, h: int, *, view_in: bool, view_out: bool) -> Tensor:
    """bool (T, T): whether output t depends on token s, by the gradient."""
    T, width = x.shape

    def layer(x: Tensor) -> Tensor:
        cut = x.reshape(h, T, -1) if view_in else x.reshape(T, h, -1).transpose(0, 1)
        context = attend_causally(cut)
        return (context if view_out else context.transpose(0, 1)).reshape(T, width)

    slopes = torch.autograd.functional.jacobian(layer, x)  # (T, width, T, width)
    return (slopes != 0).any(dim=3).any(dim=1)


SIZES = [(2, 2, 1), (3, 2, 2), (4, 3, 1), (5, 2, 3), (5, 3, 2), (7, 4, 1)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("T", "h", "d_k"), SIZES)
def test_view_both_ways_loses_the_past_and_view_one_way_leaks_the_future(T, h, d_k, seed):
    x = torch.randn(T, h * d_k, generator=torch.Generator().manual_seed(seed)).double()
    past = torch.ones(T, T, dtype=torch.bool).tril()
    assert torch.equal(hears(x, h, view_in=False, view_out=False), past)

    both_ways = hears(x, h, view_in=True, view_out=True)
    assert not (both_ways & ~past).any(), "a token hears a later one"
    assert not both_ways[past].all(), "no token has lost any of its past"

    one_way = hears(x, h, view_in=True, view_out=False)
    assert (one_way & ~past).any(), "nothing leaks"


def test_what_the_notebook_says_of_five_tokens_and_two_heads():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(4)).double()
    both_ways = hears(x, 2, view_in=True, view_out=True)
    assert both_ways[3].tolist() == [False, False, True, True, False]
    one_way = hears(x, 2, view_in=True, view_out=False)
    assert one_way[0].tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("shape", [(6, 5), (4, 11), (10, 3)])
def test_reshape_copies_nothing_where_a_view_exists_and_contiguous_does(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5)).T
    cut = (shape[1], 2, shape[0] // 2)
    plain, copied = x.reshape(cut), x.contiguous().view(cut)
    assert torch.equal(plain, copied)
    x[0, 0] = 7.0  # who lies on the same strip changes along
    assert plain[0, 0, 0] == 7.0 and copied[0, 0, 0] != 7.0


def test_cutting_always_works_and_merging_may_not():
    x = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(6))
    for y in (x[::3], x[:, 1:5], x[..., ::5].transpose(0, 1), x.permute(2, 0, 1)[1:]):
        assert not y.is_contiguous()
        halves = y.view(*y.shape[:-1], 2, y.shape[-1] // 2)
        assert halves.data_ptr() == y.data_ptr()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.permute(1, 0, 2).view(24, 10)
