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


@right("rotate")
def turned(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = positions.to(torch.float64)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@right("rotate")
def as_in_llama(x, positions):
    d = x.shape[-1]
    inverse = 1.0 / (10000 ** (torch.arange(0, d, 2, device=x.device).float() / d))
    freqs = torch.outer(positions.float(), inverse)
    emb = torch.cat((freqs, freqs), dim=-1)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    return (x * emb.cos() + torch.cat((-x2, x1), dim=-1) * emb.sin()).to(x.dtype)


@wrong("rotate", "neighbours turn together", slips=("neighbours",))
def interleaved(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angle = positions.to(x.dtype)[:, None] * speed
    a, b = x[..., 0::2], x[..., 1::2]
    both = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
    return torch.stack(both, -1).flatten(-2)


@right("cached_attention")
def with_a_cache(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    new, length = q.shape[2], k.shape[2]
    blocked = torch.ones(new, length, dtype=torch.bool, device=q.device).triu(length - new + 1)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, -math.inf)
    return scores.softmax(-1) @ v, (k, v)


@right("cached_attention")
def by_sdpa_and_a_mask(q, k, v, cache):
    old_k, old_v = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    k, v = torch.cat([old_k, k], -2), torch.cat([old_v, v], -2)
    i = torch.arange(k.shape[-2] - q.shape[-2], k.shape[-2], device=q.device)
    keep = torch.arange(k.shape[-2], device=q.device) <= i[:, None]
    return F.scaled_dot_product_attention(q, k, v, keep), [k, v]


@wrong("cached_attention", "mask not offset", slips=("not_offset",))
def mask_from_zero(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("cached_attention", "the cache written over", slips=("old_cache_changed",))
def writes_over(q, k, v, cache):
    result = with_a_cache(q, k, v, cache)
    if cache is not None:
        cache[0].zero_()
    return result


@right("grouped_scores")
def repeated(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def by_an_axis_more(q, k):
    groups = q.unflatten(1, (k.shape[1], -1))
    return (groups @ k.unsqueeze(2).mT).flatten(1, 2) / q.shape[-1] ** 0.5


@wrong("grouped_scores", "dealt in turn", slips=("dealt_out",))
def dealt(q, k):
    return q @ k.repeat(1, q.shape[1] // k.shape[1], 1, 1).mT / math.sqrt(q.shape[-1])


@right("cached_mask")
def by_positions(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (key <= query - window)


@right("cached_mask")
def by_triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    mask = ones.triu(n_cached + 1)
    return mask if window is None else mask | ones.tril(n_cached - window)


@wrong("cached_mask", "the window one too wide", slips=("one_too_wide",))
def too_wide(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    mask = ones.triu(n_cached + 1)
    return mask if window is None else mask | ones.tril(n_cached - window - 1)
