"""Right as papers and libraries have it, and wrong only where numbers or texts are large."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn as nn

from answers import right, wrong

# --- 4 and 14: counts that a float32 rounds ---


@wrong("count_flops", "counts in float32")
def counted_in_float32(T, d_model, n_heads):
    T, d = torch.tensor(float(T)), torch.tensor(float(d_model))
    return int(8 * T * d * d + 4 * T * T * d)


# --- 7, 8 and 19: tables of well-known lengths, and formats that end ---


@wrong("causal_mask", "counts positions in a byte")
def positions_in_a_byte(T):
    i = torch.arange(T).to(torch.uint8)
    return i > i[:, None]


@wrong("padding_mask", "has a table of 512 positions")
def a_table_of_512(lengths, T):
    positions = torch.arange(512, device=lengths.device)[:T]
    return (positions >= lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "counts positions in half precision")
def positions_in_half(lengths, T):
    positions = torch.arange(T, device=lengths.device).half()
    return (positions >= lengths[:, None])[:, None, None, :]


@wrong("cached_mask", "has a table of 1,024 positions")
def a_table_of_1024(n_new, n_cached, window):
    n = n_cached + n_new
    i = torch.arange(1024)
    m = i > i[:, None]
    if window is not None:
        m = m | (i[:, None] - i >= window)
    return m[n_cached:n, :n]


# --- 8: by way of the CPU and back ---


@right("padding_mask")
def by_numpy_and_back(lengths, T):
    n = lengths.numpy(force=True)
    return torch.from_numpy(np.arange(T) >= n[:, None]).to(lengths.device)[:, None, None]


@wrong("padding_mask", "by numpy, and not back")
def by_numpy_and_not_back(lengths, T):
    n = lengths.numpy(force=True)
    return torch.from_numpy(np.arange(T) >= n[:, None])[:, None, None]


@right("padding_mask")
def like_the_lengths(lengths, T):
    p = lengths.new_tensor(torch.arange(T))
    return torch.ge(p, lengths.unsqueeze(-1)).unflatten(0, (-1, 1, 1))


@right("padding_mask")
def expanded_first_and_moved_then(lengths, T):
    m = torch.zeros(len(lengths), T, dtype=torch.bool, device=lengths.device)
    p = torch.arange(T).expand_as(m).to(lengths.device)
    return (p >= lengths.unsqueeze(1)).view(-1, 1, 1, T)


@right("padding_mask")
def with_a_default_device(lengths, T):
    before = torch.get_default_device()
    torch.set_default_device(lengths.device)
    try:
        return (torch.arange(T) >= lengths[:, None])[:, None, None]
    finally:
        torch.set_default_device(before)


# --- 11 ---


@wrong("MultiHeadAttention", "leaves NaN in the gradient where exp overflows")
class OverflowsOnTheWayBack(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (
            w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(q.shape[-1])
        mask = torch.zeros_like(s, dtype=torch.bool) if mask is None else mask.expand_as(s)
        top = s.masked_fill(mask, -math.inf).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        e = (s - top).exp().masked_fill(mask, 0.0)
        t = e.sum(-1, keepdim=True)
        return self.w_o((e / t.masked_fill(t == 0, 1.0) @ v).transpose(1, 2).flatten(2))


# --- 15 ---


@right("blockwise_attention")
def with_diagonals(Q, K, V, block):
    m, l = Q.new_full((len(Q),), -math.inf), Q.new_zeros(len(Q))
    out = Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        S = Q @ k.T / math.sqrt(Q.shape[1])
        top = S.amax(1)
        P = torch.exp(S - top[:, None])
        new = torch.maximum(m, top)
        old, now = torch.exp(m - new), torch.exp(top - new)
        total = old * l + now * P.sum(1)
        out = torch.diag(1 / total) @ (torch.diag(l * old) @ out + torch.diag(now) @ P @ v)
        m, l = new, total
    return out


@right("blockwise_attention")
def column_by_column(Q, K, V, block):
    m, total = Q.new_full((len(Q), 1), -math.inf), 0.0
    columns = V.unbind(dim=1)
    sums = [Q.new_zeros(len(Q)) for _ in columns]
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(K.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        fade, e = (m - new).exp(), (s - new).exp()
        total = total * fade + e.sum(1, keepdim=True)
        sums = [a * fade[:, 0] + e @ c[i : i + block] for a, c in zip(sums, columns)]
        m = new
    return torch.stack(sums, dim=1) / total


@right("blockwise_attention")
def ones_beside_the_values(Q, K, V, block):
    d_k = K.shape[1]
    m, out = Q.new_full((len(Q), 1), -math.inf), Q.new_zeros(len(Q), V.shape[1] + 1)
    for part in torch.cat([K, V, torch.ones_like(K[:, :1])], dim=1).split(block):
        s = Q @ part[:, :d_k].T / math.sqrt(d_k)
        new = torch.maximum(m, s.amax(1, keepdim=True))
        out, m = out * (m - new).exp() + (s - new).exp() @ part[:, d_k:], new
    return out[:, :-1] / out[:, -1:]


@wrong("blockwise_attention", "keeps the scores of all keys, one by one")
def key_by_key_and_all_kept(Q, K, V, block):
    scores = [Q @ k / math.sqrt(K.shape[1]) for k in K]
    top = reduce(torch.maximum, scores)
    e = [(s - top).exp() for s in scores]
    return sum(torch.outer(w, v) for w, v in zip(e, V)) / sum(e)[:, None]


@wrong("blockwise_attention", "keeps all scores in nested lists")
def in_nested_lists(Q, K, V, block):
    scores = [[q @ k / math.sqrt(len(q)) for k in K] for q in Q]
    return torch.stack([torch.stack(row).softmax(-1) @ V for row in scores])


@wrong("blockwise_attention", "starts its maximum at −1e4")
def maximum_from_minus_1e4(Q, K, V, block):
    m, total = Q.new_full((len(Q), 1), -1e4), Q.new_zeros(len(Q), 1)
    out = Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        fade, e = (m - new).exp(), (s - new).exp()
        total, out, m = total * fade + e.sum(1, keepdim=True), out * fade + e @ v, new
    return out / total


# --- 17 ---


def cached_with(lowest, q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    new, held = q.shape[-2], k.shape[-2]
    future = torch.ones(new, held, dtype=torch.bool, device=q.device).triu(held - new + 1)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, lowest)
    return scores.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "fills in −1e4, which scores may lie below")
def cached_with_1e4(q, k, v, cache):
    return cached_with(-1e4, q, k, v, cache)


@wrong("cached_attention", "fills in −1e3")
def cached_with_1e3(q, k, v, cache):
    return cached_with(-1e3, q, k, v, cache)


# --- a short one ---


@wrong("solved", "counts a small lead as a tie")
def close_is_a_tie(weights, query, right, wrong):
    r, w = weights[:, query, right], weights[:, query, wrong]
    return (r > w) & ~torch.isclose(r, w)


@wrong("solved", "asks for a lead of a millionth")
def by_a_millionth(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong] > 1e-6
