"""Notebook 06: what its text says of real heads, and that any right class runs in its cells."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import notebooks
from answers import all_answers
from mha_lesson import GroupedQueryAttention
from mha_lesson.text import sentence


def from_it_to_creek(q, k):
    """The weight that “it” gives to “creek”, from one head's queries and keys (T, d_k)."""
    tokens = sentence().tokens
    scores = q[tokens.index("it")] @ k.T / math.sqrt(q.shape[-1])
    return scores.softmax(dim=-1)[tokens.index("creek")].item()


def test_what_is_left_of_head_1_is_luck_of_its_partner():
    q, k, _ = sentence().heads
    left = {
        other: from_it_to_creek(
            q[[1, other]].mT.flatten(0, 1).mT, k[[1, other]].mT.flatten(0, 1).mT
        )
        for other in range(12)
        if other != 1
    }
    assert max(left, key=left.get) == 7 and round(left[7], 2) == 0.74
    share = left[0] / from_it_to_creek(q[1], k[1])
    assert min(left, key=left.get) == 0 and 0.2 < share < 0.3  # the text: a quarter


def test_ten_dimensions_of_a_head_are_any_ten():
    generator = torch.Generator().manual_seed(11)
    (_, q, *_), (_, k, *_), _ = sentence().heads
    tens = [torch.randperm(32, generator=generator)[:10] for _ in range(2000)]
    found = torch.tensor([from_it_to_creek(q[:, ten], k[:, ten]) for ten in tens])
    low, high = found.quantile(torch.tensor([0.05, 0.95])).tolist()
    assert 0.03 < low < 0.05 and 0.85 < high < 0.9  # the text: nine in ten from .04 to .87


RIGHT = [a for a in all_answers() if a.exercise == "MultiHeadAttention" and a.right]


CELLS = ("imports", "head", "version-1", "version-2", "same-code")


@pytest.mark.parametrize("answer", RIGHT, ids=lambda answer: answer.id)
def test_any_right_class_is_the_same_as_version_1(answer):
    """What notebook 06 does with the learner's class."""
    [path] = notebooks.paths("06")
    code = {cell.id: cell.source for cell in notebooks.read(path).cells}
    names = {"MultiHeadAttention": answer.function}
    for name in CELLS:
        exec(code[name], names)
        names["check"] = SimpleNamespace(MultiHeadAttention=lambda _: SimpleNamespace(passed=True))
    said = []
    for name in ("same-check", "meet-code"):
        before, _, last = code[name].rpartition("\n")
        exec(before, names)
        said.append(eval(last, names))
    assert isinstance(names["second"], answer.function)
    assert said == [True, [True, False]]


def test_the_bias_of_keys_that_are_rotated_learns():
    layer = GroupedQueryAttention(12, 3, 3, bias=True, rope_base=100.0)
    layer(torch.randn(2, 5, 12)).square().sum().backward()
    assert layer.w_qkv.bias.grad[12:24].abs().max() > 1e-3


def test_with_another_kdim_each_projection_starts_by_glorots_rule():
    layer = nn.MultiheadAttention(384, 12, kdim=64, vdim=64)
    for weight in (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight):
        assert weight.abs().max().item() == pytest.approx((6 / sum(weight.shape)) ** 0.5, rel=0.01)
