"""Exercise 20: tests for an attention class."""

import math
import time

import torch
import torch.nn.functional as F

from answers import slips
from mha_lesson import causal_mask, padding_mask

EXERCISE = "test_attention"
close = torch.testing.assert_close


def _inputs(size=1.0):
    return size * torch.randn(2, 5, 12, dtype=torch.float64), padding_mask([5, 3]) | causal_mask(5)


def _by_hand(module, x, mask):
    layers = module.w_q, module.w_k, module.w_v
    q, k, v = (w(x).unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for w in layers)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf)
    return module.w_o((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


def beside_a_reference(Attention):
    module = Attention(12, 3).double()
    for training in (True, False):
        module.train(training)
        for size in (1, 1000):
            x, mask = _inputs(size)
            close(module(x, mask), _by_hand(module, x, mask))
            close(module(x), _by_hand(module, x, torch.zeros(5, 5) > 0))


def by_properties(Attention):
    """Without a formula: everything but wrong scales is caught."""
    module = Attention(12, 3).double()
    layers = module.w_q, module.w_k, module.w_v, module.w_o
    for training in (True, False):
        module.train(training)
        for size in (1, 1000):
            x, mask = _inputs(size)
            future, padding = x.clone(), x.clone()
            future[:, -1] += 1
            padding[1, 3:] *= -3
            close(module(x, causal_mask(5))[:, :-1], module(future, causal_mask(5))[:, :-1])
            close(module(x, mask)[1, :3], module(padding, mask)[1, :3])
            close(module(x, mask)[0], module(x[:1], mask[:1])[0])
    x, mask = _inputs()
    close(module(x)[:, [3, 1, 2, 0, 4]], module(x[:, [3, 1, 2, 0, 4]]))
    apart = Attention(12, 3).double()
    with torch.no_grad():  # what the first head passes on, the others' queries do not touch
        apart.w_v.weight[4:] = 0
        before = apart(x)
        apart.w_q.weight[4:] += 1
        close(apart(x), before)
    with torch.no_grad():
        layers[1].weight.zero_()  # no key is like another: shares are equal
        if layers[1].bias is not None:
            layers[1].bias.zero_()
        close(module(x), layers[3](layers[2](x)).mean(1, keepdim=True).expand_as(x))
        open_keys = (~mask).double().squeeze(1)
        mean = open_keys @ layers[2](x) / open_keys.sum(-1, keepdim=True)
        close(module(x, mask), layers[3](mean))


@slips("missed:fill_too_high")
def of_ordinary_size(Attention):
    module = Attention(12, 3).double().eval()
    x, mask = _inputs()
    close(module(x, mask), _by_hand(module, x, mask))
    close(module(x), _by_hand(module, x, torch.zeros(5, 5) > 0))


@slips("other_error")
def leaving_python(Attention):
    try:
        beside_a_reference(Attention)
    except AssertionError:
        raise SystemExit(1) from None


@slips("missed:scale_d_model")
def one_head_as_wide_as_four(Attention):
    """What leaves out only scales, and has a reference, can find these as well."""
    module = Attention(16, 4).double()
    _beside_a_reference_of(module)
    by_properties(Attention)


def _beside_a_reference_of(module):
    x = torch.zeros(1, 3, 16, dtype=torch.float64)
    q, k, v = (w(x)[:, None] for w in (module.w_q, module.w_k, module.w_v))
    F.scaled_dot_product_attention(q, k, v)


@slips("hangs")
def hanging(Attention):
    Attention(12, 3)
    while True:
        time.sleep(0.01)


@slips("by_chance")
def by_chance(Attention):
    module, (x, mask) = Attention(12, 3).double(), _inputs()
    assert torch.rand(()) < 0.6
    close(module(x, mask), _by_hand(module, x, mask))


@slips("changes_the_class")
def changed(Attention):
    Attention.forward = lambda self, x, mask=None: _by_hand(self, x, mask)
    by_properties(Attention)


@slips("accuses")
def to_the_last_bit(Attention):
    module, (x, mask) = Attention(12, 3).double(), _inputs()
    assert torch.equal(module(x, mask), _by_hand(module, x, mask))


@slips("error:truth_of_a_tensor")
def that_stops(Attention):
    module, (x, mask) = Attention(12, 3).double(), _inputs()
    assert module(x, mask) == _by_hand(module, x, mask)


@slips("missed:softmax_over_queries")
def asking_for_a_shape(Attention):
    module, (x, mask) = Attention(12, 3).double(), _inputs()
    assert module(x, mask).shape == x.shape


@slips("error:wrong_argument")
def with_other_arguments(Attention):
    Attention(12, n_heads=3, bias=True)


@slips("returns")
def giving_back(Attention):
    module, (x, mask) = Attention(12, 3).double(), _inputs()
    return torch.allclose(module(x, mask), _by_hand(module, x, mask))


@slips("builds_none")
def in_a_function_that_nobody_calls(Attention):
    def close_to_by_hand():
        module, (x, mask) = Attention(12, 3).double(), _inputs()
        close(module(x, mask), _by_hand(module, x, mask))


@slips("no_bias")
def writing_to_a_bias(Attention):
    Attention(12, 3).w_q.bias.data.zero_()


@slips("accuses")
def accusing_all(Attention):
    assert Attention is None
