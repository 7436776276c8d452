"""cached_attention (17): right in many styles, and wrong."""

import math
import numpy as np
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "cached_attention"


def token_by_token(q, k, v, cache):
    keys, values = cache if cache is not None else (k[:, :, :0], v[:, :, :0])
    out = []
    for t in range(q.shape[2]):
        keys, values = (
            torch.cat((keys, k[:, :, t : t + 1]), 2),
            torch.cat((values, v[:, :, t : t + 1]), 2),
        )
        out.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], keys, values))
    return torch.cat(out, 2), [keys, values]


def bottom_right(q, k, v, cache):
    all_k, all_v = (
        (k, v) if cache is None else map(lambda pair: torch.cat(pair, -2), zip(cache, (k, v)))
    )
    n, m = q.size(-2), all_k.size(-2)
    visible = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, all_k, all_v, attn_mask=visible), (all_k, all_v)


def by_the_book(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


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


@slips("error:cat_axes")
def cached_cat_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=1)
        v = torch.cat((cache[1], v), dim=1)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.triu(torch.ones(n, m, device=q.device), m - n + 1).bool()
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@slips("error:none_used")
def cached_none_forgotten(q, k, v, cache):
    k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@slips("only_context")
def context_only(q, k, v, cache):
    return by_the_book(q, k, v, cache)[0]


@slips("error:matrix_shapes")
def values_not_appended(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k = torch.cat((past_k, k), dim=-2)
    L, S = q.size(-2), k.size(-2)
    mask = torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1)
    w = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(mask, -math.inf).softmax(-1)
    return w @ v, (k, v)


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


@slips("no_mask", "keys_and_values_exchanged")
def t3_nomask_order(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    return F.scaled_dot_product_attention(q, k, v), (v, k)


@slips("one_place")
def t3_sdpa_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


@slips("one_place")
def cached_mask_as_keep(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


@slips("cache_not_a_pair")
def flat_triple(q, k, v, cache):
    context, (k, v) = by_the_book(q, k, v, cache)
    return context, k, v


@slips("old_cache_changed")
def writes_into_the_cache(q, k, v, cache):
    result = by_the_book(q, k, v, cache)
    if cache is not None:
        cache[0].zero_()
    return result


@slips("truth_of_a_tensor")
def cached_truth(q, k, v, cache):
    if cache and cache[0]:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@slips("gradient_stops")
def cached_detached(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0].detach(), k), 2)
        v = torch.cat((cache[1].detach(), v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@slips("cache_in_one")
def cached_packed(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, -1) @ v, torch.cat((k, v), dim=-1)


@slips("error:written_into")
def cached_assign(q, k, v, cache):
    if cache is None:
        cache = [k, v]
    else:
        cache[0] = torch.cat((cache[0], k), 2)
        cache[1] = torch.cat((cache[1], v), 2)
    k, v = cache
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (cache[0], cache[1])


_STORE = {}


@slips("remembers")
def cached_global(q, k, v, cache):
    key = (q.shape[0], q.shape[1], q.shape[3], q.dtype)
    if key in _STORE:
        k, v = torch.cat((_STORE[key][0], k), 2), torch.cat((_STORE[key][1], v), 2)
    _STORE[key] = (k.detach(), v.detach())
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (k, v)


@slips("error:broadcast_shapes")
def cached_bthd(q, k, v, cache):
    old = 0 if cache is None else cache[0].shape[1]
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    at = torch.arange(q.shape[1], device=q.device)[:, None] + old
    future = torch.arange(k.shape[2], device=q.device) > at
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(future, -math.inf)
    return s.softmax(-1) @ v, (k, v)


@slips("not_as_asked")
def cached_dict(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, {"k": k, "v": v}


@slips("error:error_RuntimeError", "old_cache_changed")
def cached_data_replaced(q, k, v, cache):
    if cache is not None:
        cache[0].data = torch.cat((cache[0], k), dim=2)
        cache[1].data = torch.cat((cache[1], v), dim=2)
        k, v = cache
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@slips("thrown_away")
def cached_two_slips(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT
    scores.masked_fill(blocked, float("-inf"))
    return scores.softmax(dim=-1) @ v, (k, v)


@slips("changes_too")
def cached_context_kept(q, k, v, cache):
    k, v_all = _join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(_later(q, k), -math.inf).softmax(dim=-1) @ v_all
    return y, (k, y if cache is None else torch.cat((cache[1], y), dim=2))


@slips("values")
def cached_half_scaled(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if cache is not None:
        s = torch.cat((q @ cache[0].transpose(-2, -1), s), dim=-1)
    k, v = _join(cache, k, v)
    return s.masked_fill(_later(q, k), -math.inf).softmax(dim=-1) @ v, (k, v)


@slips("returns_NoneType")
def cached_early_none(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), None
    k = torch.cat([cache[0], k], dim=2)
    v = torch.cat([cache[1], v], dim=2)
    keep = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device)
    keep = keep.tril(k.size(2) - q.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@slips("error:dtype_mix", "fixed_device")
def cached_float_mask(q, k, v, cache):
    n_old = 0
    if cache is not None:
        n_old = cache[0].shape[2]
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    bias = torch.triu(torch.full((q.shape[2], k.shape[2]), float("-inf")), diagonal=n_old + 1)
    w = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, dim=-1)
    return w @ v, (k, v)


@slips("ends_there")
def views_its_keys(q, k, v, cache):
    B, h, n, d = q.shape
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    m = k.shape[2]
    s = torch.bmm(q.reshape(B * h, n, d), k.view(B * h, m, d).mT) / math.sqrt(d)
    _later = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    w = s.masked_fill(_later, -math.inf).softmax(-1)
    return torch.bmm(w, v.view(B * h, m, d)).view(B, h, n, d), (k, v)


@slips("fixed_device")
def mask_of_the_cpu_at_first(q, k, v, cache):
    n = q.shape[2]
    if cache is None:
        _later = torch.ones(n, n, dtype=torch.bool).triu(1)
    else:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        m = k.shape[2]
        _later = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return s.masked_fill(_later, -math.inf).softmax(-1) @ v, (k, v)
