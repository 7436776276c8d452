"""cached_attention (17): right in many styles, and wrong."""

import math

import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "cached_attention"


def bottom_right(q, k, v, cache):
    all_k, all_v = (
        (k, v) if cache is None else map(lambda pair: torch.cat(pair, -2), zip(cache, (k, v)))
    )
    n, m = q.size(-2), all_k.size(-2)
    visible = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, all_k, all_v, attn_mask=visible), (all_k, all_v)


def with_torchs_own(q, k, v, cache):
    if cache:
        k, v = (torch.cat(pair, dim=-2) for pair in zip(cache, (k, v), strict=True))
    n_new, n_all = q.shape[-2], k.shape[-2]
    keep = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), [k, v]


def by_sdpa_and_a_mask(q, k, v, cache):
    old_k, old_v = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    k, v = torch.cat([old_k, k], -2), torch.cat([old_v, v], -2)
    i = torch.arange(k.shape[-2] - q.shape[-2], k.shape[-2], device=q.device)
    keep = torch.arange(k.shape[-2], device=q.device) <= i[:, None]
    return F.scaled_dot_product_attention(q, k, v, keep), [k, v]


def cached_one_by_one(q, k, v, cache):
    K, V = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    outs = []
    for t in range(q.shape[2]):
        K = torch.cat([K, k[:, :, t : t + 1]], dim=2)
        V = torch.cat([V, v[:, :, t : t + 1]], dim=2)
        s = q[:, :, t : t + 1] @ K.transpose(2, 3) / math.sqrt(q.shape[3])
        outs.append(torch.softmax(s, dim=3) @ V)
    return torch.cat(outs, dim=2), (K, V)


def cached_old_and_new(q, k, v, cache):
    n = q.shape[2]
    scale = q.shape[-1] ** -0.5
    new = q @ k.mT * scale
    tri = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    new = new.masked_fill(~tri, -math.inf)
    if cache is None:
        return new.softmax(-1) @ v, (k, v)
    old_k, old_v = cache
    w = torch.cat((q @ old_k.mT * scale, new), -1).softmax(-1)
    wo, wn = w.split([old_k.shape[2], n], dim=-1)
    return wo @ old_v + wn @ v, (torch.cat((old_k, k), 2), torch.cat((old_v, v), 2))


def cached_growing(q, k, v, cache):
    n_new = q.shape[2]
    if cache is not None:
        k, v = torch.concat([cache[0], k], 2), torch.concat([cache[1], v], 2)
    steps = []
    for t in range(n_new):
        end = k.shape[2] - n_new + t + 1
        s = (q[:, :, t, None] * k[:, :, :end]).sum(-1) / math.sqrt(q.shape[-1])
        steps.append((torch.softmax(s, -1)[..., None] * v[:, :, :end]).sum(2))
    return torch.stack(steps, 2), [k, v]


def _join(cache, k, v):
    """The old tokens, then the new ones."""
    if cache is None:
        return k, v
    return torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)


def cached_online(q, k, v, cache):
    k, v = _join(cache, k, v)
    n_old = k.size(2) - q.size(2)
    steps = []
    for t in range(q.size(2)):
        end = n_old + t + 1
        y = F.scaled_dot_product_attention(q[:, :, t : t + 1], k[:, :, :end], v[:, :, :end])
        steps.append(y)
    return torch.cat(steps, dim=2), (k, v)


def bias_of_the_lower_right(q, k, v, cache):
    from torch.nn.attention.bias import causal_lower_right

    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    bias = causal_lower_right(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), (k, v)


def _later(q, k):
    """True where a key comes after its query."""
    n_new, n_all = q.shape[2], k.shape[2]
    return torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)


@slips("stays")
def cached_two_softmaxes(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(_later(q, k), -math.inf).softmax(dim=-1) @ v
    if cache is not None:
        old_k, old_v = cache
        old = (q @ old_k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ old_v
        y = (y + old) / 2
    return y, _join(cache, k, v)
