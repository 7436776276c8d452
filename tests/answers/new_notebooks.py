"""Answers to exercise 15 and to the two short ones."""

import math

import torch
import torch.nn.functional as F
from answers import right, wrong


@right("blockwise_attention")
def as_in_the_paper(Q, K, V, block):
    m = torch.full((len(Q), 1), -math.inf, dtype=Q.dtype, device=Q.device)
    total = torch.zeros_like(m)
    out = torch.zeros(len(Q), V.shape[1], dtype=Q.dtype, device=Q.device)
    for start in range(0, len(K), block):
        k, v = K[start : start + block], V[start : start + block]
        scores = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, scores.max(-1, keepdim=True).values)
        p = torch.exp(scores - new)
        fade = torch.exp(m - new)
        total = total * fade + p.sum(-1, keepdim=True)
        out = out * fade + p @ v
        m = new
    return out / total


@right("blockwise_attention")
def in_place(Q, K, V, block):
    m = Q.new_full((Q.shape[0],), float("-inf"))
    total, out = Q.new_zeros(Q.shape[0]), Q.new_zeros(Q.shape[0], V.shape[-1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1))
        fade = (m - new).exp()
        p = (s - new[:, None]).exp()
        total.mul_(fade).add_(p.sum(-1))
        out.mul_(fade[:, None]).add_(p @ v)
        m = new
    return out / total[:, None]


@right("blockwise_attention")
def with_logsumexp(Q, K, V, block):
    out, log = None, None
    for start in range(0, K.size(0), block):
        s = Q @ K[start : start + block].T / Q.size(-1) ** 0.5
        part, own = s.softmax(-1) @ V[start : start + block], s.logsumexp(-1, keepdim=True)
        if out is None:
            out, log = part, own
        else:
            both = torch.logaddexp(log, own)
            out, log = out * (log - both).exp() + part * (own - both).exp(), both
    return out


@right("blockwise_attention")
def two_passes(Q, K, V, block):
    def scores(i):
        return Q @ K[i : i + block].T / math.sqrt(Q.shape[1])

    starts = range(0, len(K), block)
    m = scores(0).amax(1, keepdim=True)
    for i in starts:
        m = torch.maximum(m, scores(i).amax(1, keepdim=True))
    total = sum((scores(i) - m).exp().sum(1, keepdim=True) for i in starts)
    return sum((scores(i) - m).exp() @ V[i : i + block] for i in starts) / total


@right("blockwise_attention")
def one_query_at_a_time(Q, K, V, block):
    rows = []
    for q in Q:
        m, total, out = -math.inf, 0.0, torch.zeros_like(V[0])
        for i in range(0, len(K), block):
            s = K[i : i + block] @ q / math.sqrt(len(q))
            new = torch.maximum(s.max(), torch.as_tensor(m, dtype=s.dtype, device=s.device))
            p, fade = (s - new).exp(), (m - new).exp()
            total, out, m = total * fade + p.sum(), out * fade + p @ V[i : i + block], new
        rows.append(out / total)
    return torch.stack(rows)


@wrong("blockwise_attention", "all scores at once", slips=("holds_all_scores",))
def plain(Q, K, V, block):
    return (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1) @ V


@wrong("blockwise_attention", "PyTorch's own, all at once", slips=("holds_all_scores",))
def by_torch(Q, K, V, block):
    return F.scaled_dot_product_attention(Q, K, V)


@wrong("blockwise_attention", "blocks, kept and joined", slips=("holds_all_scores",))
def kept_and_joined(Q, K, V, block):
    parts = [Q @ k.T / math.sqrt(Q.shape[-1]) for k in K.split(block)]
    return torch.cat(parts, -1).softmax(-1) @ V


@wrong("blockwise_attention", "all blocks kept in a list", slips=("holds_all_scores",))
def kept_in_a_list(Q, K, V, block):
    parts = [Q @ k.T / math.sqrt(Q.shape[-1]) for k in K.split(block)]
    m = torch.stack([p.amax(-1) for p in parts]).amax(0)[:, None]
    powers = [(p - m).exp() for p in parts]
    total = sum(p.sum(-1, keepdim=True) for p in powers)
    return sum(p @ v for p, v in zip(powers, V.split(block), strict=True)) / total


@wrong("blockwise_attention", "old output not rescaled", slips=("output_not_rescaled",))
def output_kept(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = (s - new).exp()
        total, out, m = total * (m - new).exp() + p.sum(-1, keepdim=True), out + p @ v, new
    return out / total


@wrong("blockwise_attention", "neither rescaled", slips=("neither_rescaled",))
def nothing_rescaled(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        m = torch.maximum(m, s.amax(-1, keepdim=True))
        p = (s - m).exp()
        total, out = total + p.sum(-1, keepdim=True), out + p @ v
    return out / total


@wrong("blockwise_attention", "no maximum", slips=("not_above",))
def unguarded(Q, K, V, block):
    total, out = 0, 0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        p = (Q @ k.T / math.sqrt(Q.shape[-1])).exp()
        total, out = total + p.sum(-1, keepdim=True), out + p @ v
    return out / total


@wrong("blockwise_attention", "last short block dropped", slips=("last_dropped",))
def whole_blocks_only(Q, K, V, block):
    n = len(K) // block * block
    return as_in_the_paper(Q, K[:n], V[:n], block)


@wrong("blockwise_attention", "a softmax for each block", slips=("blocks_averaged",))
def block_softmax(Q, K, V, block):
    parts = zip(K.split(block), V.split(block), strict=True)
    outs = [(Q @ k.T / math.sqrt(Q.shape[-1])).softmax(-1) @ v for k, v in parts]
    return sum(outs) / len(outs)


@wrong("blockwise_attention", "the maximum begins at 0", slips=("from_zero",))
def zero_maximum(Q, K, V, block):
    m = Q.new_zeros(len(Q), 1)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, fade = (s - new).exp(), (m - new).exp()
        total, out, m = total * fade + p.sum(-1, keepdim=True), out * fade + p @ v, new
    return out / total


@wrong(
    "blockwise_attention",
    "no scale, and the old sum not rescaled",
    slips=("not_scaled", "sum_not_rescaled"),
)
def two_at_once(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, fade = (s - new).exp(), (m - new).exp()
        total, out, m = total + p.sum(-1, keepdim=True), out * fade + p @ v, new
    return out / total


@right("silence")
def cloned(heads, i):
    out = heads.clone()
    out[:, i] = 0
    return out


@right("silence")
def by_a_mask(heads, i):
    keep = torch.ones(heads.shape[1], dtype=heads.dtype, device=heads.device)
    keep[i] = 0
    return heads * keep[:, None, None]


@right("silence")
def joined_anew(heads, i):
    return torch.cat([heads[:, :i], torch.zeros_like(heads[:, i : i + 1]), heads[:, i + 1 :]], 1)


@wrong("silence", "in place", slips=("writes_into_input",))
def in_place_zero(heads, i):
    heads[:, i] = 0
    return heads


@wrong("silence", "a sequence instead of a head", slips=("sequence_silenced",))
def first_axis(heads, i):
    out = heads.clone()
    out[min(i, len(out) - 1)] = 0
    return out


@right("solved")
def compared(weights, query, right, wrong):
    return weights[:, query, right] > weights[:, query, wrong]


@right("solved")
def one_head_at_a_time(A, q, r, w):
    return torch.tensor([bool(a[q, r] > a[q, w]) for a in A], device=A.device)


@wrong("solved", "ties count", slips=("ties_too",))
def at_least(weights, query, right, wrong):
    return weights[:, query, right] >= weights[:, query, wrong]


@wrong("solved", "columns read for rows", slips=("column",))
def columns(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", "one verdict for all heads", slips=("all_heads",))
def one_verdict(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).all()
