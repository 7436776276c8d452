"""Notebook 02: what its cards and sentences assert, on other seeds and sizes."""

from itertools import combinations

import pytest
import torch

from mha_lesson import split_heads, text

SEEDS = (21, 22, 23)
# That parameters do not depend on h: test_explore.py.


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def own(scores):
    return int((scores.argmax(dim=-1) == torch.arange(len(scores))).sum())


def test_without_projections_a_vector_four_times_as_long_is_preferred():
    longer = text.sentence().hidden.clone()
    longer[text.sentence().tokens.index("dog")] *= 4
    assert own(longer @ longer.T) == 12


@pytest.mark.parametrize("seed", SEEDS)
def test_two_matrices_end_it_without_training_and_one_only_in_narrow_heads(seed):
    X = text.sentence().hidden

    def share(W_q, W_k):
        q, k = (split_heads((X @ W.T)[None], 12)[0] for W in (W_q, W_k))
        return sum(own(head) for head in q @ k.mT) / (12 * 17)

    W_q, W_k = rows(seed, 384, 384), rows(seed + 1, 384, 384)
    assert share(W_q, W_k) < 0.13  # one of 17 by chance
    assert share(W_q, W_q) > 0.95 and share(W_k, W_k) > 0.95
    assert share(W_q[:48], W_q[:48]) < 0.5, "in heads of 4 numbers"


def test_no_row_of_shares_holds_what_three_heads_take():
    creek = text.sentence()
    it = creek.tokens.index("it")
    taken = [
        creek.weights[head, it, creek.tokens.index(word)].item()
        for head, word in ((1, "creek"), (10, "dog"), (8, "over"))
    ]
    assert [f"{share:.2f}" for share in taken] == ["0.85", "0.55", "0.46"] and sum(taken) > 1
    for head, word in ((1, "creek"), (10, "dog"), (8, "over")):
        assert creek.tokens[creek.weights[head, it].argmax()] == word


def largest_cosines(matrices):
    bases = [torch.linalg.qr(W.T)[0] for W in matrices]
    return [torch.linalg.svdvals(a.T @ b)[0].item() for a, b in combinations(bases, 2)]


@pytest.mark.parametrize("seed", SEEDS)
def test_heads_share_directions_more_than_chance(seed):
    learned = largest_cosines(text.sentence().w_q.split(32))
    chance = largest_cosines(rows(seed, 384, 384).split(32))
    assert len(learned) == len(chance) == 66
    assert sum(learned) / 66 > 0.75 > 0.65 > max(chance) > 0.5
    order = torch.randperm(384, generator=torch.Generator().manual_seed(seed))
    dealt = largest_cosines(text.sentence().w_q[order].split(32))
    assert sum(learned) > 1.1 * sum(dealt) and max(learned) > max(dealt) + 0.1
    assert max(learned) < 0.99  # and yet no direction is shared outright
    apart = largest_cosines(torch.eye(384).split(32))  # what right angles would look like
    assert max(apart) < 1e-6
