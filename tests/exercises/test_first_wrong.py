"""Where no slip fits, the check says up to where all is right, and where it first goes wrong."""

import pytest
import torch

from answers.variations import defined
from mha_course import check
from typed import typed

CLASS = """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, D = x.shape
        h, d_k = self.h, D // self.h
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
"""
HEADS = "q, k, v = (y.view(B, T, h, d_k).transpose(1, 2) for y in (q, k, v))\n"
JOIN = "return self.w_o(context.transpose(1, 2).reshape(B, T, D))\n"
# what follows line 10, the projections -> what is right, where, and the first wrong line
TRIES = {
    "one head": (
        "weights = (q @ k.mT / math.sqrt(D)).softmax(-1)\nreturn self.w_o(weights @ v)\n",
        "queries, keys and values are right (line 10); "
        "heads should come next, and no line makes them",
        11,
    ),
    "channels first": (
        "".join(f"{y} = {y}.view(B, T, h, d_k).permute(0, 2, 3, 1)\n" for y in "qkv")
        + "context = (q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v\n"
        + "return self.w_o(context.permute(0, 3, 1, 2).reshape(B, T, D))\n",
        "heads are right (line 13), in another order of axes; "
        "dot products should come next, and no line makes them",
        14,
    ),
    "heads summed": (
        "out = 0\nfor s in (slice(i, i + d_k) for i in range(0, D, d_k)):\n"
        "    weights = (q[..., s] @ k[..., s].mT / math.sqrt(d_k)).softmax(-1)\n"
        "    out = out + weights @ v\nreturn self.w_o(out)\n",
        "weights are right (line 13); context should come next, and no line makes it",
        14,
    ),
    "the scale and w_o left out": (
        HEADS + "scores = q @ k.mT\nweights = scores.softmax(-1)\n"
        "return (weights @ v).transpose(1, 2).reshape(B, T, D)\n",
        "dot products are right (line 12); scores should come next, and no line makes them",
        13,
    ),
    "a mean of heads, whose weights one line makes twice": (
        "out = 0\nfor s in (slice(i, i + d_k) for i in range(0, D, d_k)):\n"
        "    scores = q[..., s] @ k[..., s].mT / math.sqrt(d_k)\n"
        "    weights = scores.softmax(-1).nan_to_num(0)\n"
        "    out = out + weights @ v / h\nreturn self.w_o(out)\n",
        "weights are right (line 14); context should come next, and no line makes it",
        15,
    ),
    "written through slabs, without the bias": (
        HEADS + "context = (q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v\n"
        "slabs = self.w_o.weight.view(D, h, d_k)\n"
        "return sum(context[:, i] @ slabs[:, i].T for i in range(h))\n",
        "context is right (line 12); your joined heads are not",
        14,
    ),
    "two at once": (
        HEADS + "scores = q @ k.mT / math.sqrt(d_k)\nweights = scores.softmax(-2)\n"
        "return (weights @ v).transpose(1, 2).reshape(B, T, D)\n",
        "scores are right (line 12); your weights are not",
        13,
    ),
    "d_k before h, on three lines": (
        "".join(f"{y} = {y}.view(B, T, d_k, h).transpose(1, 2)\n" for y in "qkv")
        + "context = (q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v\n"
        + JOIN,
        "queries, keys and values are right (line 10); your heads are not",
        11,
    ),
    "cut by view alone, and no w_o": (
        "".join(f"{y} = {y}.view(B, h, T, d_k)\n" for y in "qkv")
        + "context = (q @ k.mT / math.sqrt(d_k)).softmax(-2) @ v\n"
        + "return context.transpose(1, 2).reshape(B, T, D)\n",
        "queries, keys and values are right (line 10); your heads are not",
        11,
    ),
    "joined as they lie": (
        HEADS + "scores = q @ k.mT / math.sqrt(d_k)\nif mask is not None:\n"
        "    scores = scores.masked_fill(~mask, -math.inf)\n"
        "context = scores.softmax(-1) @ v\nreturn self.w_o(context.reshape(B, T, D))\n",
        "context is right (line 15); your joined heads are not",
        16,
    ),
    "values changed": (
        HEADS + "weights = (q @ k.mT / math.sqrt(d_k)).softmax(-1)\n"
        "context = weights @ v.relu().sqrt()\n" + JOIN,
        "weights are right (line 12); your context is not",
        13,
    ),
}


def said_of(name, lines):
    code = CLASS + "".join(f"        {line}\n" for line in lines.splitlines())
    return str(check.MultiHeadAttention(defined("MultiHeadAttention", name, code)))


@pytest.mark.parametrize("name", TRIES)
def test_the_last_right_step_and_the_first_wrong_line_are_named(name):
    lines, right, wrong = TRIES[name]
    report = said_of(name, lines)
    assert f"Your {right}: the first wrong numbers come in line {wrong}, `" in report
    assert f"What goes into line {wrong}, and what should come out?" in report


def test_beside_an_error_turned_axes_are_named():
    turned = HEADS.replace("transpose(1, 2)", "permute(0, 2, 3, 1)")
    lines = "scores = q @ k.mT\nmask = torch.zeros(T, T).bool() if mask is None else mask\n"
    report = said_of("turned", f"{turned}{lines}scores = scores.masked_fill(mask, 0)\nreturn v\n")
    assert "Your heads are right (line 11), in another order of axes." in report


def test_what_a_loop_makes_sequence_by_sequence_is_made():
    line = "q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)"
    loop = f"for x in x:\n            {line}\n            outs.append((q @ k.mT).softmax(-1) @ v)"
    code = CLASS.replace(line, f"outs = []\n        {loop}\n        return torch.stack(outs)")
    report = str(check.MultiHeadAttention(defined("MultiHeadAttention", "by sequence", code)))
    assert "Your queries, keys and values are right (line 12); heads should come next" in report
    assert "the first wrong numbers come in line 13" in report


def test_what_is_still_to_come_is_named():
    lines = HEADS + "weights = (q @ k.mT / math.sqrt(d_k)).softmax(-1)\nreturn x\n"
    report = said_of("unfinished", lines)
    assert "weights are right (line 12); context should come next, and no line makes it." in report


def test_low_enough_is_blocked_and_an_empty_buffer_is_not_wrong():
    lines = "low = scores.masked_fill(mask, -1e9)", "out = torch.zeros_like(scores)"
    rest = "out += low.softmax(-2).sqrt()", "return out"
    report = str(check.masked_softmax(typed("scores, mask", *lines, *rest, torch=torch)))
    right = "Your masked scores are right (line 2); your weights are not"
    assert f"{right}: the first wrong numbers come in line 4" in report


def test_nothing_is_said_where_no_line_is_seen():
    """Of a whole in one call, the numbers say all that there is."""
    report = str(check.attention(lambda Q, K, V: (Q.sin(), K.cos())))
    assert not check.attention(lambda Q, K, V: (Q.sin(), K.cos())).passed
    assert "first wrong numbers" not in report
