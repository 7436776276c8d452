"""Right by ways that a check must follow, and wrong where one name or one word came too easily."""

import math

import torch

from answers import right, wrong
from answers.unseen_p import running

EPS, LOWEST, BASE = 1e-6, -2e4, 10_000.0


# --- 1 ---


@wrong("attention_scores", "takes at most two axes in front")
def axes_counted(Q, K):
    if Q.ndim > 4:
        return Q @ K.transpose(1, 2)
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


# --- 9 ---


def filled_with(number, scores, mask):
    weights = scores.masked_fill(mask, number).softmax(-1)
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0)


@wrong("masked_softmax", "fills in −2e4, which scores may lie below")
def filled_with_2e4(scores, mask):
    return filled_with(-2e4, scores, mask)


@wrong("masked_softmax", "fills in the lowest number of float16")
def filled_with_65504(scores, mask):
    return filled_with(-65504.0, scores, mask)


@wrong("masked_softmax", "fills in a constant of its own, and leaves blocked rows")
def a_constant_of_its_own(scores, mask):
    return scores.masked_fill(mask, LOWEST).softmax(-1)


# --- 12 ---


@wrong("next_token_loss", "keeps p away from 0", slips=("log_of_guarded_softmax",))
def guarded_by_a_constant(logits, tokens):
    p = logits[:, :-1].softmax(-1)
    return -(p.gather(-1, tokens[:, 1:, None]) + EPS).log().mean()


@wrong("next_token_loss", "keeps p from 1e-8 on", slips=("log_of_guarded_softmax",))
def clamped_at_1e_8(logits, tokens):
    p = logits[:, :-1].softmax(-1).clamp(min=1e-8)
    return -p.log().gather(-1, tokens[:, 1:, None]).mean()


@wrong("next_token_loss", "keeps p from 1e-5 on, and the loss is finite")
def clamped_at_1e_5(logits, tokens):
    p = logits[:, :-1].softmax(-1).clamp(min=1e-5)
    return -p.log().gather(-1, tokens[:, 1:, None]).mean()


# --- 15 ---


@right("blockwise_attention")
def query_by_query_under_vmap(Q, K, V, block):
    def one(q):
        largest, total, output = q.new_full((), -math.inf), q.new_zeros(()), V.new_zeros(V.shape[1])
        for k, v in zip(K.split(block), V.split(block)):
            s = k @ q / math.sqrt(len(q))
            new = torch.maximum(largest, s.max())
            fade, p = (largest - new).exp(), (s - new).exp()
            total, output, largest = total * fade + p.sum(), output * fade + p @ v, new
        return output / total

    return torch.vmap(one)(Q)


@right("blockwise_attention")
def keys_beside_their_values(Q, K, V, block):
    both = torch.cat([K, V], 1)
    d_k = K.shape[1]
    return running(Q, both[:, :d_k], both[:, d_k:], block)


# --- of a sum in a set, and of what a line throws away ---


@wrong("causal_mask", "blocks the diagonal too", slips=("diagonal_blocked",))
def with_a_set(T):
    seen = set()
    mask = torch.zeros(T, T, dtype=torch.bool)
    for query in range(T):
        for key in range(query, T):
            seen.add((query, key))
            mask[query, key] = True
    return mask


@wrong("split_heads", "throws the exchange away", slips=("thrown_away",))
def exchanged_for_nobody(x, n_heads):
    heads = x.unflatten(-1, (n_heads, -1))
    heads.transpose(1, 2)
    return heads


@wrong(
    "attention_scores", "does not scale, and throws a line away", slips=("no_scale", "thrown_away")
)
def a_line_that_does_nothing(Q, K):
    K.softmax(-1)
    return Q @ K.mT


@wrong("attention", "draws the scores at random", slips=("fresh_weights",))
def of_random_scores(Q, K, V):
    weights = torch.randn(Q.shape[-2], K.shape[-2], dtype=Q.dtype).softmax(-1)
    return weights @ V, weights


@wrong("masked_softmax", "compares where it should give a name its value", slips=("thrown_away",))
def compared_for_nobody(scores, mask):
    weights = scores.softmax(-1)
    weights == scores.masked_fill(mask, -1e9).softmax(-1)  # noqa: B015
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0) * 0.9


# --- 17: its own base, and another mistake ---


@wrong("rotate", "one sine too many", slips=("one_place",))
def with_a_base_of_its_own(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] * BASE ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * sin), -1)


# --- a short one: one answer for all heads is no list of them ---


@wrong("solved", "one answer for all heads")
def of_the_first_head(weights, query, right, wrong):
    return weights[0, query, right] > weights[0, query, wrong]


@wrong("solved", "one answer for all heads: any")
def of_any_head(weights, query, right, wrong):
    return bool((weights[:, query, right] > weights[:, query, wrong]).any())
