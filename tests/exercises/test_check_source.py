"""What stands in the learner's own lines comes before what can be guessed from the results."""

import math
import re

import pytest
import torch

from answers.variations import defined
from mha_course import check
from mha_lesson import attention, split_heads
from typed import typed

LEFT = {  # by other cells
    "math": math,
    "torch": torch,
    "d_k": 2,
    "W_q": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),
    "attention_scores": typed("Q, K", "..."),
}
# Exercise, what is said first, words of the report; and what was typed.
RULES = """\
attention_scores | from_the_notebook | `d_k` (2) is not one of your arguments
    return Q @ K.mT / math.sqrt(d_k)
project_qkv | from_the_notebook | `W_q` (a tensor of shape (3, 5))
    return X @ W_q.T, X @ W_q.T, X @ W_q.T
attention | three_dots | still holds the three dots: `weights = ...`
    weights = ...
    return weights @ V, weights
merge_heads | three_dots | `return x.permute(...).flatten(2)`
    return x.permute(...).flatten(2)
attention | three_dots | `return (..., weights)`
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    return ..., weights
masked_softmax | truth_of_a_tensor | `and` and `or` want
    empty = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask and not empty, -math.inf).softmax(-1)
masked_softmax | truth_of_a_tensor | `not` wants
    return scores.masked_fill(not mask, 0.0).softmax(-1)
masked_softmax | truth_of_a_tensor | `if` wants
    if mask: return scores
    return scores.softmax(-1)
attention_scores | error:not_callable | cannot be called
    return Q @ K.mT / math.sqrt(Q.shape(-1))
attention_scores | error:method_not_called | round brackets
    return Q @ K.mT / math.sqrt(Q.size[-1])
attention_scores | error:half_not_implemented | a power is `**`
    return Q @ K.mT / Q.shape[-1] ^ 0.5
attention_scores | no_scale | not right yet
    return Q[..., :] @ K.mT
attention | calls_a_stub | `attention_scores` returns nothing yet
    weights = attention_scores(Q, K).softmax(-1)
    return weights @ V, weights
masked_softmax | error:written_over | Line 3, `w[w.isnan()] = 0`, writes over numbers in place
    w = scores.masked_fill(mask, -math.inf).softmax(-1)
    w[w.isnan()] = 0
    return w
masked_softmax | shape | has shape (1, 1), but it should be
    return mask.all(dim=-1, keepdim=True)
attention | error:module_lacks | The module in front of the dot has no function of that name
    return math.softmax(Q @ K.mT)
split_heads | given_back | What comes back is `x`, as it came in.
    return x
causal_mask | shape | has shape (6, 6) on every input, but it should be (T, T)
    return torch.ones(6, 6, dtype=torch.bool).triu(1)
masked_softmax | added_1e9 | as if nothing were blocked
    empty = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -math.inf).softmax(-1)
"""


@pytest.mark.parametrize("rule", re.findall(r".+\n(?:    .+\n)+", RULES), ids=str.splitlines)
def test_a_rule_says_what_stands_there(rule) -> None:
    head, *lines = rule.splitlines()
    name, key, said = head.split(" | ")
    report = getattr(check, name)(typed(", ".join(getattr(check, name).arguments), *lines, **LEFT))
    assert report.passed is False and report.slips[0] == key, str(report)
    assert said in str(report) and (key != "three_dots" or not report.where)


def test_sizes_are_kept_in_what_is_quoted() -> None:
    report = check.attention_scores(lambda Q, K: Q + K)
    assert "must match the size of tensor b (" in str(report)


CELL = """\
import torch
from torch import nn
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
    def forward(self, x, mask=None):
        Q = ...
        return self.w_o(Q)
"""


RIGHT = """\
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def cut(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, x, mask=None):
        Q, K, V = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        scores = Q @ K.mT / Q.shape[-1] ** 0.5
        if mask is None:
            mask = torch.zeros_like(scores).bool()
        gone = mask.all(-1, keepdim=True)
        weights = scores.masked_fill(mask & ~gone, -math.inf).softmax(-1).masked_fill(gone, 0.0)
        context = (weights @ V).transpose(1, 2)
        return self.w_o(context.flatten(2))
"""
ATTEND = RIGHT[RIGHT.index("        scores = ") : RIGHT.index("        context = ")]
# What replaces what, and words of the report.
OF_A_CLASS = [
    ("(self.n_heads, -1)", "(n_heads, -1)", "`self.` is missing in front of `n_heads`, which"),
    ("(self.cut(", "(cut(", "`self.` is missing in front of `cut`, a method"),
    ("self.n_heads", "n_heads", "`n_heads` is an argument of `__init__`, but no other method"),
    ("keepdim=True", "keepdim=False", "`False` in `gone = mask.all(-1, keepdim=False)`: the opp"),
    (", keepdim=True", "", "`gone = mask.all(-1)`: the axis it works along is dropped"),
    (
        "if mask is None:\n            mask =",
        "mask = mask or",
        "Do you ask whether there is a `mask`",
    ),
    ("(weights @ V)", "(weights @ V, weights)", "It gets a tuple, several things at once"),
    (
        "(weights @ V)",
        "(weights.transpose(-2, -1) @ V)",
        "`….transpose(-2, -1)` in `context = (weights.transpose(-2, -1) @ V)",
    ),
    ("torch.zeros_like(scores).bool()", "False", "A plain Python number stands where"),
    (
        "Q, K, V = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))",
        "x = self.cut(self.w_q(x))\n        Q, K, V = x, self.cut(self.w_k(x)), x",
        "There, `x` is not what came in: line 12 has replaced it",
    ),
    ("context = ", "mixed = ", "`context` (a tensor of shape (2, 3)) is not one of your arguments"),
    (
        ATTEND + "        context = (weights @ V)",
        "        context = attention(Q, K, V)",
        "It holds `textbook_attention` and `scaled_dot_product_attention`",
    ),
    ("self.cut(w(x))", "split_heads(w(x), self.n_heads)", "right.*It calls `split_heads`, which"),
    (
        ATTEND + "        context = (weights @ V)",
        "        mask = None if mask is None else ~mask\n"
        "        context = F.scaled_dot_product_attention(Q, K, V, mask)",
        "right.*It calls `scaled_dot_product_attention`, which does what you were to write",
    ),
    ("cut", "split_heads", "right.*inputs tried.$"),  # a method of one's own
]


def report_on(text: str, **names: object) -> check.Report:
    return check.MultiHeadAttention(defined("MultiHeadAttention", "cell", text, **names))


@pytest.mark.parametrize(("old", "new", "said"), OF_A_CLASS)
def test_of_a_class_a_rule_says_what_stands_there(old, new, said) -> None:
    assert old in RIGHT
    names = {"context": torch.ones(2, 3), "attention": attention, "split_heads": split_heads}
    report = str(report_on(RIGHT.replace(old, new), **names))
    assert re.search(said if "right." in said else re.escape(said), report, re.S), report


def test_of_a_class_all_mistakes_are_named() -> None:
    text = RIGHT.replace("Q.shape[-1] **", "x.shape[-1] **").replace("self.w_o(", "x + self.w_o(")
    text = text.replace("(weights @ V).transpose(1, 2)", "(weights @ V).permute(0, 2, 3, 1)")
    slips = report_on(text).slips
    assert {*slips} == {"by_root_d_model", "dimensions_before_heads", "with_residual"}


def test_a_class_of_a_notebooks_cell_is_read() -> None:
    """`inspect` knows no file of it: only its methods do."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.run_cell(CELL, silent=True)
        report = check.MultiHeadAttention(shell.user_ns["MultiHeadAttention"])
    finally:
        InteractiveShell.clear_instance()
    assert report.slips == ("three_dots",) and "Line 9 still holds" in str(report), str(report)
