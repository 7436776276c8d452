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


def blockwise_three_passes(Q, K, V, block):
    q = Q / math.sqrt(Q.shape[-1])
    top = torch.full_like(q[:, :1], -torch.inf)
    for k in K.split(block):
        top = torch.maximum(top, (q @ k.T).amax(dim=1, keepdim=True))
    Z = sum(torch.exp(q @ k.T - top).sum(1, keepdim=True) for k in K.split(block))
    pairs = zip(K.split(block), V.split(block))
    return sum(torch.exp(q @ k.T - top) / Z @ v for k, v in pairs)


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


@slips("relation:row_factors")
def b3_fold(Q, K, V, block):
    def part(i):
        s = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        return s.logsumexp(1, keepdim=True), s.softmax(1) @ V[i : i + block]

    def join(a, b):
        z = torch.maximum(a[0], b[0])
        return z, a[1] * (a[0] - z).exp() + b[1] * (b[0] - z).exp()

    return functools.reduce(join, map(part, range(0, len(K), block)))[1]
