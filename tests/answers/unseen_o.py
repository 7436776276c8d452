"""What works on the inputs that are tried first: a mask, a cache, a length or a dtype further on.

And what torch.func makes, whose tensors lie where those lie that it was given.
"""

import math
import torch
import torch.nn as nn
from torch.func import grad, vmap
from answers import right, wrong

POSITIONS = torch.arange(64)


# --- 1 to 4 ---


@right("attention_scores")
def scores_by_vmap(Q, K):
    scores = lambda q, k: q @ k.T
    for _ in range(Q.ndim - 2):
        scores = vmap(scores)
    return scores(Q, K) / math.sqrt(Q.shape[-1])


@right("attention")
def weights_as_a_gradient(Q, K, V):
    S = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    A = grad(lambda s: s.logsumexp(-1).sum())(S)
    return A @ V, A


@wrong("count_parameters", "a ratio of the widths, cut to a whole number")
def by_a_ratio(d_model, n_heads, d_k):
    return int(4 * d_model**2 * (n_heads * d_k / d_model))


# --- 8 and 9 ---


@right("padding_mask")
def padding_by_vmap(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return vmap(lambda n: positions >= n)(lengths)[:, None, None]


@right("padding_mask")
def padding_by_zeros_and_ones(lengths, T):
    rows = [torch.cat([n.new_zeros(int(n)), n.new_ones(T - int(n))]) for n in lengths]
    return torch.stack(rows)[:, None, None].bool()


@wrong("padding_mask", "positions of one byte, which begin anew at 256")
def padding_of_bytes(lengths, T):
    positions = torch.arange(T, device=lengths.device).to(torch.uint8)
    return (positions >= lengths[:, None].to(torch.uint8))[:, None, None]


@wrong("padding_mask", "joins a mask of the CPU's by |")
def padding_from_two_devices(lengths, T):
    nothing = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool)
    return nothing | (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@wrong("masked_softmax", "counts blocked keys, which a mask (T_q, 1) does not show")
def counts_blocked_keys(scores, mask):
    dead = mask.sum(-1, keepdim=True) == scores.shape[-1]
    return scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)


@wrong("masked_softmax", "−1e4 for float16 only")
def low_for_half(scores, mask):
    low = -1e4 if scores.dtype == torch.float16 else -1e9
    weights = scores.masked_fill(mask, low).softmax(-1)
    return weights.masked_fill(mask.all(-1, keepdim=True), 0.0)


@wrong("masked_softmax", "cuts the gradient off where a row is blocked")
def detached_where_blocked(scores, mask):
    weights = scores.masked_fill(mask, -math.inf).softmax(-1)
    return weights.detach().nan_to_num(0.0) if mask.all(-1).any() else weights


@wrong("masked_softmax", "zeros of the CPU's where a row is blocked")
def zeros_where_blocked(scores, mask):
    dead = mask.all(-1, keepdim=True)
    weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1)
    return torch.where(dead, torch.zeros(weights.shape, dtype=weights.dtype), weights)


# --- 11 ---


class _Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (w(x).view(B, T, self.h, -1).transpose(1, 2)
                   for w in (self.w_q, self.w_k, self.w_v))  # fmt: skip
        w = self.weights(q @ k.mT / math.sqrt(D // self.h), mask)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "no gradient beside a mask")
class DetachedBesideAMask(_Heads):
    def weights(self, s, mask):
        if mask is None:
            return s.softmax(-1)
        return s.detach().masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong("MultiHeadAttention", "a bias of the CPU's beside a mask")
class BiasOfTheCpu(_Heads):
    def weights(self, s, mask):
        if mask is None:
            return s.softmax(-1)
        dead = mask.all(-1, keepdim=True)
        bias = torch.zeros(mask.shape, dtype=s.dtype)
        bias[mask & ~dead] = -math.inf
        return (s + bias).softmax(-1).masked_fill(dead, 0.0)


@wrong("MultiHeadAttention", "counts blocked keys, which a mask (1, 1, T, 1) does not show")
class CountsBlockedKeys(_Heads):
    def weights(self, s, mask):
        if mask is None:
            return s.softmax(-1)
        dead = mask.sum(-1, keepdim=True) == s.shape[-1]
        return s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)


# --- 15 to 19 ---


@wrong("blockwise_attention", "no gradient reaches Q and K")
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


_angles = {}


@wrong("rotate", "keeps the angles of a shape, whatever the positions")
def angles_by_shape(x, positions):
    half = x.shape[-1] // 2
    key = x.shape[-2], half, x.device
    if key not in _angles:
        i = torch.arange(half, device=x.device, dtype=torch.float64)
        _angles[key] = positions[:, None] * 10_000.0 ** (-i / half)
    a, b, angle = x[..., :half], x[..., half:], _angles[key]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@wrong("cached_attention", "views keys that need not lie in one piece")
def views_its_keys(q, k, v, cache):
    B, h, n, d = q.shape
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    m = k.shape[2]
    s = torch.bmm(q.reshape(B * h, n, d), k.view(B * h, m, d).mT) / math.sqrt(d)
    later = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    w = s.masked_fill(later, -math.inf).softmax(-1)
    return torch.bmm(w, v.view(B * h, m, d)).view(B, h, n, d), (k, v)


@wrong("cached_attention", "a mask of the CPU's while there is no cache")
def mask_of_the_cpu_at_first(q, k, v, cache):
    n = q.shape[2]
    if cache is None:
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
    else:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        m = k.shape[2]
        later = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return s.masked_fill(later, -math.inf).softmax(-1) @ v, (k, v)


@wrong("cached_mask", "a table of 64 positions")
def table_of_positions(n_new, n_cached, window):
    query, key = POSITIONS[n_cached : n_cached + n_new, None], POSITIONS[: n_cached + n_new]
    later = key > query
    return later if window is None else later | (query - key >= window)
