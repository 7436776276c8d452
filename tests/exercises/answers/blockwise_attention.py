"""blockwise_attention (15): right in many styles, and wrong."""

import functools
import itertools
import math
import torch

from answers import slips

EXERCISE = "blockwise_attention"


def by_logaddexp(Q, K, V, block):
    dtype = V.dtype
    Q, K, V = Q.double(), K.double(), V.double()
    lse = torch.full_like(Q[:, 0], -math.inf)
    out = Q.new_zeros(Q.shape[0], V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.logaddexp(lse, s.logsumexp(1))
        out = out * (lse - new).exp()[:, None] + (s - new[:, None]).exp() @ v
        lse = new
    return out.to(dtype)


def in_two_passes(Q, K, V, block):
    Q = Q / Q.shape[1] ** 0.5
    top = functools.reduce(
        torch.maximum, ((Q @ k.mT).amax(1, keepdim=True) for k in K.split(block))
    )
    num, den = 0, 0
    for k, v in zip(K.split(block), V.split(block)):
        e = torch.exp(Q @ k.mT - top)
        num, den = num + e @ v, den + e.sum(1, keepdim=True)
    return num / den


def one_column_more(Q, K, V, block):
    """A column of ones among the values carries the sum along."""
    V1 = torch.cat((V, torch.ones_like(V[:, :1])), 1)
    m, acc = None, None
    for i in itertools.count(0, block):
        if i >= K.shape[0]:
            return acc[:, :-1] / acc[:, -1:]
        s = torch.einsum("qd,kd->qk", Q, K[i : i + block]) * Q.shape[1] ** -0.5
        top = s.max(1, keepdim=True).values
        if m is None:
            m, acc = top, (s - top).exp() @ V1[i : i + block]
        else:
            new = torch.maximum(m, top)
            acc = acc * (m - new).exp() + (s - new).exp() @ V1[i : i + block]
            m = new


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


def two_passes(Q, K, V, block):
    def scores(i):
        return Q @ K[i : i + block].T / math.sqrt(Q.shape[1])

    starts = range(0, len(K), block)
    m = scores(0).amax(1, keepdim=True)
    for i in starts:
        m = torch.maximum(m, scores(i).amax(1, keepdim=True))
    total = sum((scores(i) - m).exp().sum(1, keepdim=True) for i in starts)
    return sum((scores(i) - m).exp() @ V[i : i + block] for i in starts) / total


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


def block_two_passes(Q, K, V, block):
    blocks = list(zip(torch.split(K, block), torch.split(V, block)))
    scale = 1 / math.sqrt(Q.shape[-1])
    top = None
    for k, _ in blocks:
        here = (Q @ k.t() * scale).max(dim=1).values
        top = here if top is None else torch.max(top, here)
    total, mix = 0, 0
    for k, v in blocks:
        e = torch.exp(Q @ k.t() * scale - top.unsqueeze(1))
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ v
    return mix / total


def block_column_of_ones(Q, K, V, block):
    V1 = torch.cat((V, V.new_ones(len(V), 1)), dim=1)
    acc = Q.new_zeros(len(Q), V1.shape[1])
    m = torch.full_like(Q[:, :1], torch.finfo(Q.dtype).min)
    start = 0
    while start < len(K):
        s = (Q @ K[start : start + block].T).mul(Q.shape[-1] ** -0.5)
        new = torch.maximum(m, s.amax(1, keepdim=True))
        acc = acc * (m - new).exp() + (s - new).exp() @ V1[start : start + block]
        m = new
        start += block
    return acc[:, :-1] / acc[:, -1:]


def blockwise_three_passes(Q, K, V, block):
    q = Q / math.sqrt(Q.shape[-1])
    top = torch.full_like(q[:, :1], -torch.inf)
    for k in K.split(block):
        top = torch.maximum(top, (q @ k.T).amax(dim=1, keepdim=True))
    Z = sum(torch.exp(q @ k.T - top).sum(1, keepdim=True) for k in K.split(block))
    pairs = zip(K.split(block), V.split(block))
    return sum(torch.exp(q @ k.T - top) / Z @ v for k, v in pairs)


def _running(Q, K, V, block):
    largest = Q.new_full((len(Q), 1), -math.inf)
    total, output = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[-1])
    for k, v in zip(K.split(block), V.split(block)):
        S = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(largest, S.amax(1, keepdim=True))
        fade, P = (largest - new).exp(), (S - new).exp()
        total, output, largest = total * fade + P.sum(1, keepdim=True), output * fade + P @ v, new
    return output / total


def query_by_query(Q, K, V, block):
    return torch.cat([_running(q[None], K, V, block) for q in Q])


def blocks_of_indices(Q, K, V, block):
    largest = torch.full_like(Q[:, :1], -torch.inf)
    total, output = torch.zeros_like(largest), Q.new_zeros(len(Q), V.shape[1])
    for here in torch.arange(len(K), device=Q.device).split(block):
        S = Q @ K[here].T / Q.shape[-1] ** 0.5
        new = torch.maximum(largest, S.amax(1, keepdim=True))
        fade, P = (largest - new).exp(), (S - new).exp()
        total, output = total * fade + P.sum(1, keepdim=True), output * fade + P @ V[here]
        largest = new
    return output / total


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


def blockwise_log_weights(Q, K, V, block):
    log_total, out = None, None
    for k, v in zip(K.split(block), V.split(block), strict=True):
        scores = Q @ k.mT / Q.shape[-1] ** 0.5
        here = scores.logsumexp(dim=-1, keepdim=True)
        part = (scores - here).exp() @ v
        if out is None:
            log_total, out = here, part
            continue
        joint = torch.logaddexp(log_total, here)
        out = out * (log_total - joint).exp() + part * (here - joint).exp()
        log_total = joint
    return out


@slips("holds_all_scores")
def plain(Q, K, V, block):
    return (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1) @ V


@slips("error:broadcast_shapes")
def block_sum_keepdim(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = Q.new_zeros(len(Q)), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@slips("fixed_dtype")
def block_float32_out(Q, K, V, block):
    out = torch.empty(Q.shape[0], V.shape[1])
    m = Q.new_full((Q.shape[0], 1), -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        f, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * f + e.sum(-1, keepdim=True), mix * f + e @ V[i : i + block], new
    out[:] = mix / total
    return out


@slips("one_place")
def block_until_queries(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(Q), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@slips("relation:row_factors")
def b3_fold(Q, K, V, block):
    def part(i):
        s = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        return s.logsumexp(1, keepdim=True), s.softmax(1) @ V[i : i + block]

    def join(a, b):
        z = torch.maximum(a[0], b[0])
        return z, a[1] * (a[0] - z).exp() + b[1] * (b[0] - z).exp()

    return functools.reduce(join, map(part, range(0, len(K), block)))[1]


@slips("sum_not_rescaled", "not_scaled")
def two_at_once(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, fade = (s - new).exp(), (m - new).exp()
        total, out, m = total + p.sum(-1, keepdim=True), out * fade + p @ v, new
    return out / total


@slips("last_dropped", "not_above", "error:division_by_zero")
def block_drops_rest(Q, K, V, block):
    total, mix = 0, 0
    for b in range(len(K) // block):
        rows = slice(b * block, (b + 1) * block)
        e = torch.exp(Q @ K[rows].T / math.sqrt(Q.shape[1]))
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[rows]
    return mix / total


@slips("error:float_mask_overflow", "holds_all_scores")
def blocks_as_number(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -1e30)
    den, num = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.chunk(block), V.chunk(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e, c = torch.exp(s - new), torch.exp(m - new)
        den, num, m = den * c + e.sum(1, keepdim=True), num * c + e @ v, new
    return num / den


@slips("values")
def blocks_by_size(Q, K, V, block):
    out = Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        k, v = K[i : i + block], V[i : i + block]
        weights = (Q @ k.T / math.sqrt(Q.shape[1])).softmax(dim=1)
        out = out + weights @ v * (len(k) / len(K))
    return out


@slips("both_upside_down", "not_divided")
def block_inverted(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), float("-inf"))
    l, o = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        m_new = torch.maximum(m, s.amax(1, keepdim=True))
        p = torch.exp(s - m_new)
        scale = torch.exp(m_new - m) if i else 1.0
        l = l * scale + p.sum(1, keepdim=True)
        o = o * scale + p @ V[i : i + block]
        m = m_new
    return o


@slips("one_short", "error:nothing_to_reduce")
def blockwise_end_early(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), -1e30, dtype=Q.dtype, device=Q.device)
    l, o = 0.0, 0.0
    for lo in range(0, K.shape[0], block):
        hi = min(lo + block, K.shape[0]) - 1
        s = Q @ K[lo:hi].T / math.sqrt(Q.shape[1])
        mn = torch.maximum(m, s.max(1, keepdim=True).values)
        r = torch.exp(m - mn)
        p = torch.exp(s - mn)
        l = l * r + p.sum(1, keepdim=True)
        o = o * r + p @ V[lo:hi]
        m = mn
    return o / l


@slips("gradient_stops")
def blocks_of_detached_scores(Q, K, V, block):
    top, total, out = Q.new_full((len(Q), 1), -math.inf), Q.new_zeros(len(Q), 1), 0
    for start in range(0, len(K), block):
        s = (Q @ K[start : start + block].T / math.sqrt(Q.shape[1])).detach()
        new = torch.maximum(top, s.amax(1, keepdim=True))
        e = (s - new).exp()
        keep = (top - new).exp()
        total, out = total * keep + e.sum(1, keepdim=True), out * keep + e @ V[start:][:block]
        top = new
    return out / total


@slips("ends_there")
def maximum_from_minus_1e4(Q, K, V, block):
    m, total = Q.new_full((len(Q), 1), -1e4), Q.new_zeros(len(Q), 1)
    out = Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        fade, e = (m - new).exp(), (s - new).exp()
        total, out, m = total * fade + e.sum(1, keepdim=True), out * fade + e @ v, new
    return out / total
