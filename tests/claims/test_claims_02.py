"""Notebook 02: what its cards and sentences assert, on other seeds and sizes."""

from itertools import combinations

import pytest
import torch
from torch import nn

from mha_lesson import MultiHeadAttention, split_heads, text

SEEDS = (21, 22, 23)
# That parameters do not depend on h: test_explore.py; the keys' bias: test_claims_06.py.


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def own(scores):
    return int((scores.argmax(dim=-1) == torch.arange(len(scores))).sum())


def test_a_token_looks_at_itself_without_projections_and_hardly_with_them():
    creek = text.sentence()
    X = creek.hidden
    assert own(X @ X.T) == 17
    share = sum(own(head) for head in creek.weights) / (12 * 17)
    assert 0.06 < share < 0.08
    longer = X.clone()
    longer[creek.tokens.index("dog")] *= 4
    assert own(longer @ longer.T) == 12


@pytest.mark.parametrize("seed", SEEDS)
def test_two_matrices_end_it_without_training_and_one_does_not(seed):
    X = text.sentence().hidden

    def share(W_q, W_k):
        q, k = (split_heads((X @ W.T)[None], 12)[0] for W in (W_q, W_k))
        return sum(own(head) for head in q @ k.mT) / (12 * 17)

    W_q, W_k = rows(seed, 384, 384), rows(seed + 1, 384, 384)
    assert share(W_q, W_k) < 0.13  # one of 17 by chance
    assert share(W_q, W_q) > 0.95 and share(W_k, W_k) > 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_that_a_token_prefers_itself_is_no_law_without_projections_either(seed):
    X = rows(seed, 11, 7)
    X[3] *= 10
    assert own(X @ X.T) < 11


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("h", "d_k"), [(2, 3), (3, 5), (5, 7)])
def test_every_head_reads_every_number_of_a_token(seed, h, d_k):
    torch.manual_seed(seed)
    d_model = h * d_k
    mha = MultiHeadAttention(d_model, h)
    W_q = mha.w_qkv.weight[:d_model].detach()
    x = rows(seed, 1, 3, d_model)
    for number in range(d_model):
        nudged = x.clone()
        nudged[0, 1, number] += 1.0
        moved = split_heads((nudged - x) @ W_q.T, h)[0].abs().amax(dim=-1)  # (h, T)
        assert (moved[:, 1] > 0).all() and (moved[:, [0, 2]] == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("T", "d_model"), [(7, 11), (13, 29)])
def test_one_head_sends_two_tokens_to_a_third(seed, T, d_model):
    X = rows(seed, T, d_model).double()
    wanted = torch.zeros(T, 2, dtype=torch.float64)
    wanted[[1, 4], 0] = wanted[2, 1] = 1.0
    w_q, w_k = (torch.linalg.pinv(X) @ wanted).T
    weights = (6 * torch.outer(X @ w_q, X @ w_k)).softmax(dim=-1)
    assert weights[[1, 4], 2].min() > 0.95
    others = [t for t in range(T) if t not in (1, 4)]
    assert torch.allclose(weights[others], torch.full_like(weights[others], 1 / T), atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_query_and_key_can_be_wished_for_while_tokens_are_fewer_than_dimensions(seed):
    for T, least, most in ((17, 5.9, 6.1), (384, 5.9, 6.1), (800, 0.8, 2.2), (2000, 0.1, 0.4)):
        X = rows(seed, T, 384)
        w_q, w_k = (torch.linalg.pinv(X) @ torch.eye(T)[:, :2]).T
        assert least < 6 * (X[0] @ w_q) * (X[1] @ w_k) < most


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
    first = text.sentence().w_q[:32]
    assert min(largest_cosines([first, first])) > 0.999  # nothing in the cut forbids it
    apart = largest_cosines(torch.eye(384).split(32))  # what right angles would look like
    assert max(apart) < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_queries_and_keys_meet_in_one_matrix_of_rank_d_k(seed):
    X, W_q, W_k = (rows(seed + i, *s).double() for i, s in enumerate([(5, 17), (3, 17), (3, 17)]))
    M = W_q.T @ W_k
    assert torch.allclose(X @ M @ X.T, (X @ W_q.T) @ (X @ W_k.T).T)
    assert int(torch.linalg.matrix_rank(M)) == 3
    change = rows(seed + 9, 3, 3).double()  # other projections, the same head
    other_q, other_k = change.T @ W_q, torch.linalg.inv(change) @ W_k
    assert torch.allclose(other_q.T @ other_k, M) and not torch.allclose(other_q, W_q)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("h", "d_k"), [(2, 3), (3, 5), (5, 7)])
def test_one_fused_projection_is_three_in_the_order_of_its_rows(seed, h, d_k):
    d = h * d_k
    X, *three = (rows(seed + i, *s) for i, s in enumerate([(11, d), (d, d), (d, d), (d, d)]))
    for got, W in zip((X @ torch.cat(three).T).chunk(3, dim=-1), three, strict=True):
        assert torch.allclose(got, X @ W.T, atol=1e-4)
    per_head = torch.cat([W.split(d_k)[head] for head in range(h) for W in three])
    misread = (X @ per_head.T).chunk(3, dim=-1)[0]
    assert misread.shape == X.shape and (misread - X @ three[0].T).abs().max() > 0.5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("T_q", "T_k"), [(5, 7), (7, 5), (11, 3)])
def test_the_published_class_is_self_attention_or_crashes(seed, T_q, T_k):
    torch.manual_seed(seed)
    fused, h = nn.Linear(6, 18), 2

    def published(query, key, value):
        q, k, v = fused(query).chunk(3, dim=-1)
        return q.view(len(query), h, 3), k.view(len(key), h, 3), v.view(len(value), h, 3)

    x, same_length, other_length = (rows(seed + i, T, 6) for i, T in enumerate((T_q, T_q, T_k)))
    for a, b in zip(published(x, x, x), published(x, same_length, same_length), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        published(x, other_length, other_length)
    mha = MultiHeadAttention(6, 2)
    assert (mha(x, x) - mha(x, same_length)).abs().max() > 0.01
    assert mha(x, other_length).shape == (T_q, 6)
