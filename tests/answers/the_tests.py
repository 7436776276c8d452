"""Exercise 20: tests for an attention class."""

import math
import time

import torch
import torch.nn.functional as F

from answers import Answer
from mha_lesson import causal_mask, padding_mask

close = torch.testing.assert_close
ANSWERS = []


def right(exercise):
    return wrong(exercise, "", ())


def wrong(exercise, what, slips):
    def add(answer):
        id = f"{exercise}-{answer.__name__}"
        ANSWERS.append(Answer(exercise, not slips, answer, id, slips))
        return answer

    return add


def inputs(size=1.0):
    return size * torch.randn(2, 5, 12, dtype=torch.float64), padding_mask([5, 3]) | causal_mask(5)


def by_hand(module, x, mask):
    layers = module.w_q, module.w_k, module.w_v
    q, k, v = (w(x).unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for w in layers)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf)
    return module.w_o((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


@right("test_attention")
def beside_a_reference(Attention):
    module = Attention(12, 3).double()
    for training in (True, False):
        module.train(training)
        for size in (1, 1000):
            x, mask = inputs(size)
            close(module(x, mask), by_hand(module, x, mask))
            close(module(x), by_hand(module, x, torch.zeros(5, 5) > 0))


@right("test_attention")
def by_properties(Attention):
    """Without a formula: everything but wrong scales is caught."""
    module = Attention(12, 3).double()
    layers = module.w_q, module.w_k, module.w_v, module.w_o
    for training in (True, False):
        module.train(training)
        for size in (1, 1000):
            x, mask = inputs(size)
            future, padding = x.clone(), x.clone()
            future[:, -1] += 1
            padding[1, 3:] *= -3
            close(module(x, causal_mask(5))[:, :-1], module(future, causal_mask(5))[:, :-1])
            close(module(x, mask)[1, :3], module(padding, mask)[1, :3])
            close(module(x, mask)[0], module(x[:1], mask[:1])[0])
    x, mask = inputs()
    close(module(x)[:, [3, 1, 2, 0, 4]], module(x[:, [3, 1, 2, 0, 4]]))
    with torch.no_grad():
        layers[1].weight.zero_()  # no key is like another: shares are equal
        if layers[1].bias is not None:
            layers[1].bias.zero_()
        close(module(x), layers[3](layers[2](x)).mean(1, keepdim=True).expand_as(x))
        open_keys = (~mask).double().squeeze(1)
        mean = open_keys @ layers[2](x) / open_keys.sum(-1, keepdim=True)
        close(module(x, mask), layers[3](mean))


@wrong("test_attention", "in one of the two modes", ("missed:mask_dropped_in_training",))
def in_evaluation_only(Attention):
    module = Attention(12, 3).double().eval()
    x, mask = inputs(1000)
    close(module(x, mask), by_hand(module, x, mask))
    close(module(x / 1000), by_hand(module, x / 1000, torch.zeros(5, 5) > 0))


@wrong("test_attention", "with a ready-made attention nothing is left", ("missed:scale_d_model",))
def one_head_as_wide_as_four(Attention):
    """What leaves out only scales, and has a reference, can find these as well."""
    module = Attention(16, 4).double()
    beside_a_reference_of(module)
    by_properties(Attention)


def beside_a_reference_of(module):
    x = torch.zeros(1, 3, 16, dtype=torch.float64)
    q, k, v = (w(x)[:, None] for w in (module.w_q, module.w_k, module.w_v))
    F.scaled_dot_product_attention(q, k, v)


@wrong("test_attention", "a loop without end", ("hangs",))
def hanging(Attention):
    Attention(12, 3)
    while True:
        time.sleep(0.01)


@wrong("test_attention", "noise larger than the tolerance now and then", ("by_chance",))
def by_chance(Attention):
    module, (x, mask) = Attention(12, 3).double(), inputs()
    assert torch.rand(()) < 0.6
    close(module(x, mask), by_hand(module, x, mask))


@wrong("test_attention", "the class has another forward afterwards", ("changes_the_class",))
def changed(Attention):
    Attention.forward = lambda self, x, mask=None: by_hand(self, x, mask)
    by_properties(Attention)


@wrong("test_attention", "to the last bit", ("accuses",))
def to_the_last_bit(Attention):
    module, (x, mask) = Attention(12, 3).double(), inputs()
    assert torch.equal(module(x, mask), by_hand(module, x, mask))


@wrong("test_attention", "stops with every class", ("error:truth_of_a_tensor",))
def that_stops(Attention):
    module, (x, mask) = Attention(12, 3).double(), inputs()
    assert module(x, mask) == by_hand(module, x, mask)


@wrong("test_attention", "asks for nothing", ("missed:softmax_over_queries",))
def asking_for_a_shape(Attention):
    module, (x, mask) = Attention(12, 3).double(), inputs()
    assert module(x, mask).shape == x.shape


@wrong("test_attention", "other arguments than the class has", ("error:wrong_argument",))
def with_other_arguments(Attention):
    Attention(12, n_heads=3, bias=True)


@wrong("test_attention", "a verdict that is given back", ("returns",))
def giving_back(Attention):
    module, (x, mask) = Attention(12, 3).double(), inputs()
    return torch.allclose(module(x, mask), by_hand(module, x, mask))


@wrong("test_attention", "a layer's bias is written to", ("no_bias",))
def writing_to_a_bias(Attention):
    Attention(12, 3).w_q.bias.data.zero_()


@wrong("test_attention", "accuses whatever comes", ("accuses",))
def accusing_all(Attention):
    assert Attention is None
