"""Cache and shared keys (17 to 19): right in many styles, and wrong."""

from einops import rearrange
from einops import repeat
import einops
import math
import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


# cached_attention


@right("cached_attention")
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


@right("cached_attention")
def bottom_right(q, k, v, cache):
    all_k, all_v = (
        (k, v) if cache is None else map(lambda pair: torch.cat(pair, -2), zip(cache, (k, v)))
    )
    n, m = q.size(-2), all_k.size(-2)
    visible = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, all_k, all_v, attn_mask=visible), (all_k, all_v)


@right("cached_attention")
def by_the_book(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@right("cached_attention")
def with_torchs_own(q, k, v, cache):
    if cache:
        k, v = (torch.cat(pair, dim=-2) for pair in zip(cache, (k, v), strict=True))
    n_new, n_all = q.shape[-2], k.shape[-2]
    keep = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), [k, v]


@right("cached_attention")
def one_query_at_a_time(q, k, v, cache):
    n_old = 0 if cache is None else cache[0].shape[2]
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    rows = []
    for t in range(q.shape[2]):
        seen = n_old + t + 1
        scores = q[:, :, t : t + 1] @ k[:, :, :seen].transpose(2, 3) / math.sqrt(q.shape[3])
        rows.append(scores.softmax(-1) @ v[:, :, :seen])
    return torch.cat(rows, 2), (k, v)


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


@right("cached_attention")
def cached_token_by_token(q, k, v, cache):
    keys, values = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    rows = []
    for t in range(q.shape[2]):
        keys = torch.cat([keys, k[:, :, t : t + 1]], 2)
        values = torch.cat([values, v[:, :, t : t + 1]], 2)
        rows.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], keys, values))
    return torch.cat(rows, 2), (keys, values)


@right("cached_attention")
def cached_one_by_one(q, k, v, cache):
    K, V = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    outs = []
    for t in range(q.shape[2]):
        K = torch.cat([K, k[:, :, t : t + 1]], dim=2)
        V = torch.cat([V, v[:, :, t : t + 1]], dim=2)
        s = q[:, :, t : t + 1] @ K.transpose(2, 3) / math.sqrt(q.shape[3])
        outs.append(torch.softmax(s, dim=3) @ V)
    return torch.cat(outs, dim=2), (K, V)


@right("cached_attention")
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


@right("cached_attention")
def cached_fused(q, k, v, cache):
    old = 0
    if cache is not None:
        old = cache[0].shape[-2]
        k, v = (torch.cat(pair, dim=-2) for pair in zip(cache, (k, v)))
    at = torch.arange(k.shape[-2], device=q.device)
    keep = at[None, :] <= at[old:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@right("cached_attention")
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


def join(cache, k, v):
    """The old tokens, then the new ones."""
    if cache is None:
        return k, v
    return torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)


@right("cached_attention")
def cached_online(q, k, v, cache):
    k, v = join(cache, k, v)
    n_old = k.size(2) - q.size(2)
    steps = []
    for t in range(q.size(2)):
        end = n_old + t + 1
        y = F.scaled_dot_product_attention(q[:, :, t : t + 1], k[:, :, :end], v[:, :, :end])
        steps.append(y)
    return torch.cat(steps, dim=2), (k, v)


@right("cached_attention")
def cached_token_by_token_2(q, k, v, cache):
    keys, values = cache if cache is not None else (k[:, :, :0], v[:, :, :0])
    out = []
    for t in range(q.shape[2]):
        keys = torch.cat([keys, k[:, :, t : t + 1]], dim=2)
        values = torch.cat([values, v[:, :, t : t + 1]], dim=2)
        w = (q[:, :, t : t + 1] @ keys.mT / math.sqrt(q.shape[-1])).softmax(-1)
        out.append(w @ values)
    return torch.cat(out, dim=2), (keys, values)


@right("cached_attention")
def bias_of_the_lower_right(q, k, v, cache):
    from torch.nn.attention.bias import causal_lower_right

    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    bias = causal_lower_right(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), (k, v)


@right("cached_attention")
def cached_token_by_token_3(q, k, v, cache):
    if cache is None:
        cache = (k[:, :, :0], v[:, :, :0])
    rows, (K, V) = [], cache
    for t in range(q.shape[2]):
        K = torch.cat((K, k[:, :, t : t + 1]), dim=-2)
        V = torch.cat((V, v[:, :, t : t + 1]), dim=-2)
        rows.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], K, V))
    return torch.cat(rows, dim=-2), (K, V)


@right("cached_attention")
def cached_by_positions(q, k, v, cache):
    n_old = 0 if cache is None else cache[0].shape[2]
    if n_old:
        k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v), strict=True))
    key = torch.arange(k.shape[2], device=q.device)
    query = torch.arange(q.shape[2], device=q.device) + n_old
    keep = key <= query[:, None]
    return [F.scaled_dot_product_attention(q, k, v, attn_mask=keep), [k, v]]


@wrong(
    "cached_attention",
    "cats along the heads (dim=1): raises where the lengths differ",
    slips=("error:cat_axes",),
)
def cached_cat_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=1)
        v = torch.cat((cache[1], v), dim=1)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.triu(torch.ones(n, m, device=q.device), m - n + 1).bool()
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong(
    "cached_attention",
    "does not think of the first call, where the cache is None",
    slips=("error:none_used",),
)
def cached_none_forgotten(q, k, v, cache):
    k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


def by_the_book_2(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "only the context", slips=("only_context",))
def context_only(q, k, v, cache):
    return by_the_book_2(q, k, v, cache)[0]


@wrong(
    "cached_attention",
    "the values are not appended: only the keys of the cache grow (raises, or wrong)",
    slips=("error:matrix_shapes",),
)
def values_not_appended(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k = torch.cat((past_k, k), dim=-2)
    L, S = q.size(-2), k.size(-2)
    mask = torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1)
    w = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(mask, -math.inf).softmax(-1)
    return w @ v, (k, v)


def later(q, k):
    """True where a key comes after its query."""
    n_new, n_all = q.shape[2], k.shape[2]
    return torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)


@wrong(
    "cached_attention",
    "old and new tokens have a softmax each, and the mean is taken",
    slips=("stays",),
)
def cached_two_softmaxes(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v
    if cache is not None:
        old_k, old_v = cache
        old = (q @ old_k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ old_v
        y = (y + old) / 2
    return y, join(cache, k, v)


@wrong(
    "cached_attention",
    "two mistakes: no mask, and the cache given back is (v, k)",
    slips=("no_mask", "keys_and_values_exchanged"),
)
def t3_nomask_order(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    return F.scaled_dot_product_attention(q, k, v), (v, k)


@wrong(
    "cached_attention",
    "True means visible to SDPA: the mask of blocked keys is handed over as it is",
    slips=("one_place",),
)
def t3_sdpa_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


@wrong(
    "cached_attention",
    "hands the mask of the future to a function where True = keep",
    slips=("one_place",),
)
def cached_mask_as_keep(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


@wrong(
    "cached_attention",
    "forgets the values: only keys are joined, V is padded with zeros",
    slips=("one_place",),
)
def cached_values_forgotten(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), 2)
        v = torch.cat((torch.zeros_like(cache[1]), v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong(
    "cached_attention",
    "True means attend: the tril mask is what gets blocked",
    slips=("one_place",),
)
def cached_tril_blocked(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    allowed = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(allowed, -1e9)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong(
    "cached_attention",
    "two mistakes: the new keys and values are put before the old ones, and nothing is masked",
    slips=("new_before_old", "no_mask"),
)
def t3_first_nomask(q, k, v, cache):
    for_cache = (
        (k, v) if cache is None else (torch.cat((k, cache[0]), 2), torch.cat((v, cache[1]), 2))
    )
    return F.scaled_dot_product_attention(q, *for_cache), for_cache


@wrong("cached_attention", "a flat triple", slips=("cache_not_a_pair",))
def flat_triple(q, k, v, cache):
    context, (k, v) = by_the_book_2(q, k, v, cache)
    return context, k, v


@wrong("cached_attention", "writes into the old cache", slips=("old_cache_changed",))
def writes_into_the_cache(q, k, v, cache):
    result = by_the_book_2(q, k, v, cache)
    if cache is not None:
        cache[0].zero_()
    return result


@wrong(
    "cached_attention",
    "`if cache and cache[0]`: asks a tensor for one truth value",
    slips=("truth_of_a_tensor",),
)
def cached_truth(q, k, v, cache):
    if cache and cache[0]:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong(
    "cached_attention",
    "the cache is detached, so no gradient reaches the old tokens",
    slips=("gradient_stops",),
)
def cached_detached(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0].detach(), k), 2)
        v = torch.cat((cache[1].detach(), v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong(
    "cached_attention",
    "the cache is one tensor, k and v side by side in the last axis",
    slips=("cache_in_one",),
)
def cached_packed(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, -1) @ v, torch.cat((k, v), dim=-1)


@wrong("cached_attention", "assigns into the pair it was given", slips=("error:written_into",))
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


@wrong(
    "cached_attention", "keeps the cache in a global, the argument is unread", slips=("remembers",)
)
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


@wrong(
    "cached_attention",
    "takes the number of heads for the number of tokens",
    slips=("error:broadcast_shapes",),
)
def cached_bthd(q, k, v, cache):
    old = 0 if cache is None else cache[0].shape[1]
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    at = torch.arange(q.shape[1], device=q.device)[:, None] + old
    future = torch.arange(k.shape[2], device=q.device) > at
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(future, -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "the cache comes back as a dict", slips=("not_as_asked",))
def cached_dict(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, {"k": k, "v": v}


@wrong(
    "cached_attention",
    "two slips: is_causal from top left, old cache returned",
    slips=("not_offset", "old_cache"),
)
def cached_is_causal(q, k, v, cache):
    past = (k, v) if cache is None else cache
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), past


def _blocked(n, m, device):
    return torch.ones(n, m, dtype=torch.bool, device=device).triu(m - n + 1)


@wrong(
    "cached_attention",
    "two slips: mask turned round, scale by keys so far",
    slips=("one_place", "by_root_t_k"),
)
def cached_keep_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-2))
    att = att.masked_fill(~_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1).nan_to_num(0.0) @ v, (k, v)


@wrong(
    "cached_attention",
    "the caller's cache grows too: .data is replaced",
    slips=("error:error_RuntimeError", "old_cache_changed"),
)
def cached_data_replaced(q, k, v, cache):
    if cache is not None:
        cache[0].data = torch.cat((cache[0], k), dim=2)
        cache[1].data = torch.cat((cache[1], v), dim=2)
        k, v = cache
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "two slips: masked_fill not kept, and no scale", slips=("thrown_away",))
def cached_two_slips(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT
    scores.masked_fill(blocked, float("-inf"))
    return scores.softmax(dim=-1) @ v, (k, v)


@wrong(
    "cached_attention", "context goes into the cache in place of the values", slips=("changes_too",)
)
def cached_context_kept(q, k, v, cache):
    k, v_all = join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v_all
    return y, (k, y if cache is None else torch.cat((cache[1], y), dim=2))


@wrong(
    "cached_attention", "old tokens' scores are not scaled, only the new ones'", slips=("values",)
)
def cached_half_scaled(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if cache is not None:
        s = torch.cat((q @ cache[0].transpose(-2, -1), s), dim=-1)
    k, v = join(cache, k, v)
    return s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v, (k, v)


@wrong(
    "cached_attention",
    "without a cache it returns early with None instead of (k, v)",
    slips=("returns_NoneType",),
)
def cached_early_none(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), None
    k = torch.cat([cache[0], k], dim=2)
    v = torch.cat([cache[1], v], dim=2)
    keep = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device)
    keep = keep.tril(k.size(2) - q.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong(
    "cached_attention",
    "adds a float32 mask made on the CPU, which crashes in half precision",
    slips=("error:dtype_mix", "fixed_device"),
)
def cached_float_mask(q, k, v, cache):
    n_old = 0
    if cache is not None:
        n_old = cache[0].shape[2]
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    bias = torch.triu(torch.full((q.shape[2], k.shape[2]), float("-inf")), diagonal=n_old + 1)
    w = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, dim=-1)
    return w @ v, (k, v)


@wrong("cached_attention", "views keys that need not lie in one piece", slips=("ends_there",))
def views_its_keys(q, k, v, cache):
    B, h, n, d = q.shape
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    m = k.shape[2]
    s = torch.bmm(q.reshape(B * h, n, d), k.view(B * h, m, d).mT) / math.sqrt(d)
    later = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    w = s.masked_fill(later, -math.inf).softmax(-1)
    return torch.bmm(w, v.view(B * h, m, d)).view(B, h, n, d), (k, v)


@wrong("cached_attention", "a mask of the CPU's while there is no cache", slips=("fixed_device",))
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


# grouped_scores


@right("grouped_scores")
def by_groups(q, k):
    qg = rearrange(q, "b (g n) t d -> b g (n t) d", g=k.shape[1])
    return rearrange(qg @ k.mT / q.shape[-1] ** 0.5, "b g (n t) k -> b (g n) t k", t=q.shape[2])


@right("grouped_scores")
def by_expand(q, k):
    B, g, T, d = k.shape
    k = k[:, :, None].expand(B, g, q.shape[1] // g, T, d).flatten(1, 2)
    return torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(d))


@right("grouped_scores")
def by_lookup(q, k):
    n = q.size(1) // k.size(1)
    return torch.stack([q[:, i] @ k[:, i // n].mT for i in range(q.size(1))], 1) * q.size(3) ** -0.5


@right("grouped_scores")
def repeated_on_the_spot(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@right("grouped_scores")
def groups_as_an_axis(q, k):
    q = rearrange(q, "b (kv g) t d -> b kv g t d", kv=k.shape[1])
    scores = einops.einsum(q, k, "b kv g q d, b kv k d -> b kv g q k") / math.sqrt(q.shape[-1])
    return rearrange(scores, "b kv g q k -> b (kv g) q k")


@right("grouped_scores")
def repeated_by_einops(q, k):
    k = repeat(k, "b kv t d -> b (kv g) t d", g=q.shape[1] // k.shape[1])
    return torch.einsum("bhqd,bhkd->bhqk", q, k) * k.shape[-1] ** -0.5


@right("grouped_scores")
def head_by_head(q, k):
    g = q.shape[1] // k.shape[1]
    heads = [q[:, i] @ k[:, i // g].mT for i in range(q.shape[1])]
    return torch.stack(heads, 1) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def repeated(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def by_an_axis_more(q, k):
    groups = q.unflatten(1, (k.shape[1], -1))
    return (groups @ k.unsqueeze(2).mT).flatten(1, 2) / q.shape[-1] ** 0.5


@right("grouped_scores")
def grouped_by_index(q, k):
    of_head = [i * k.shape[1] // q.shape[1] for i in range(q.shape[1])]
    return q.matmul(k[:, of_head].mT).div(math.sqrt(k.shape[-1]))


@right("grouped_scores")
def grouped_loop(q, k):
    group = q.shape[1] // k.shape[1]
    rows = [q[:, i] @ k[:, i // group].transpose(1, 2) for i in range(q.shape[1])]
    return torch.stack(rows, dim=1) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def grouped_einsum(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return torch.einsum("bgrqd,bgkd->bgrqk", q * q.shape[-1] ** -0.5, k).flatten(1, 2)


@right("grouped_scores")
def grouped_fold(q, k):
    B, h, T, d = q.shape
    folded = q.reshape(B, k.shape[1], -1, d)
    return (folded @ k.transpose(-2, -1)).view(B, h, T, k.shape[2]) / math.sqrt(d)


@right("grouped_scores")
def grouped_broadcast(q, k):
    q = q.unflatten(1, (k.shape[1], -1)) / q.shape[-1] ** 0.5
    return (q @ k.unsqueeze(2).mT).flatten(1, 2)


@right("grouped_scores")
def grouped_interpolated(q, k):
    h = q.shape[1]
    index = torch.arange(h, device=q.device) * k.shape[1] // h
    return torch.einsum("bhqd,bhkd->bhqk", q, k[:, index]) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def grouped_long_queries(q, k):
    B, h, T, d = q.shape
    s = q.reshape(B, k.shape[1], -1, d) @ k.mT
    return s.reshape(B, h, T, k.shape[2]) / math.sqrt(d)


@right("grouped_scores")
def grouped_by_views(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return (q @ k.unsqueeze(2).mT / math.sqrt(q.shape[-1])).flatten(1, 2)


@right("grouped_scores")
def grouped_by_index_2(q, k):
    owner = [i // (q.shape[1] // k.shape[1]) for i in range(q.shape[1])]
    return einops.einsum(q, k[:, owner], "b h i d, b h j d -> b h i j") * q.shape[-1] ** -0.5


@wrong(
    "grouped_scores",
    "the keys are not repeated at all: raises where h_kv is neither 1 nor h",
    slips=("error:broadcast_shapes",),
)
def grouped_not_repeated(q, k):
    scores = q @ k.transpose(-2, -1)
    return scores / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "key head i // h_kv instead of i // (h / h_kv)",
    slips=("by_number_of_groups", "error:index_out_of_range"),
)
def grouped_wrong_divisor(q, k):
    i = torch.arange(q.shape[1], device=q.device) // k.shape[1]
    return q @ k[:, i].mT * q.shape[-1] ** -0.5


@wrong(
    "grouped_scores",
    "divides by the root of the model width h * d_k instead of d_k",
    slips=("one_place",),
)
def scale_by_model(q, k):
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    return q @ k.mT / math.sqrt(q.size(1) * q.size(-1))


@wrong("grouped_scores", "scales by the root of d_model = h · d_k", slips=("one_place",))
def grouped_scaled_by_model(q, k):
    k = torch.repeat_interleave(k, q.size(1) // k.size(1), dim=1)
    return q @ k.mT / math.sqrt(q.size(1) * q.size(-1))


@wrong("grouped_scores", "reverse: query head 0 looks with the last key head", slips=("one_place",))
def grouped_reversed(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).flip(1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "key heads taken from the last to the first", slips=("one_place",))
def grouped_reversed_2(q, k):
    k = k.flip(1).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


@wrong(
    "grouped_scores",
    "(B, T, h, d) habit: the heads are counted and repeated in axis 2, which holds the tokens",
    slips=("error:einsum_letters",),
)
def repeat_kv_bthd(q, k):
    n_rep = max(q.shape[2] // k.shape[2], 1)
    k = k.repeat_interleave(n_rep, dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "two mistakes: repeat instead of repeat_interleave, and no scaling",
    slips=("no_scale", "dealt_out"),
)
def g3_two(q, k):
    return q @ repeat(k, "b g t d -> b (n g) t d", n=q.shape[1] // k.shape[1]).mT


@wrong(
    "grouped_scores",
    "two mistakes: keys by queries, (B, h, T_k, T_q), and divided by d_k",
    slips=("roles_exchanged", "by_d_k"),
)
def g3_two_more(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return torch.einsum("bhqd,bhkd->bhkq", q, k) / q.shape[-1]


@wrong(
    "grouped_scores",
    "loops over key heads and takes query heads g to g + n instead of g * n to (g + 1) * n",
    slips=("stays",),
)
def g3_loop(q, k):
    n = q.shape[1] // k.shape[1]
    parts = []
    for g in range(k.shape[1]):
        parts.append(q[:, g : g + n] @ k[:, g : g + 1].mT)
    return torch.cat(parts, dim=1) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "two mistakes: strided groups (head i with key head i % h_kv), and a softmax on top",
    slips=("softmax_too_early", "dealt_out"),
)
def g3_strided_softmax(q, k):
    k = torch.cat([k] * (q.shape[1] // k.shape[1]), dim=1)
    return F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)


@wrong(
    "grouped_scores",
    "divides by d_k and not by its root, and repeats the keys as a whole",
    slips=("by_d_k", "dealt_out"),
)
def grouped_two_slips(q, k):
    k = torch.cat([k] * (q.shape[1] // k.shape[1]), dim=1)
    return q @ k.mT / q.shape[-1]


@wrong(
    "grouped_scores",
    "repeat_interleave without dim flattens the keys",
    slips=("error:axis_out_of_range",),
)
def grouped_flat(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1])
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "two slips: the mean key head, and no scale",
    slips=("no_scale", "mean_of_all"),
)
def grouped_mean_unscaled(q, k):
    return q @ k.mean(dim=1, keepdim=True).transpose(-2, -1)


@wrong(
    "grouped_scores",
    "np.repeat's arguments: torch.repeat wants a number for each axis",
    slips=("error:sizes_of_pieces",),
)
def grouped_repeat_args(q, k):
    n = q.shape[1] // k.shape[1]
    k = k.repeat(n, 1)
    return q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "repeat_interleave's result is not kept", slips=("thrown_away",))
def grouped_not_kept(q, k):
    k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong(
    "grouped_scores",
    "two slips: repeat for repeat_interleave, and the root of h as scale",
    slips=("by_root_axis_1", "dealt_out"),
)
def grouped_two_slips_2(q, k):
    B, h, T, d_k = q.shape
    k = k.repeat(1, h // k.shape[1], 1, 1)
    return q @ k.mT / math.sqrt(h)


@wrong(
    "grouped_scores",
    "linspace and rounding: with h = 12, h_kv = 4 the groups are unequal",
    slips=("ends_there",),
)
def grouped_linspace(q, k):
    index = torch.linspace(0, k.size(1) - 1, q.size(1), device=k.device).round().long()
    return q @ k[:, index].transpose(-2, -1) * q.size(-1) ** -0.5


@wrong(
    "grouped_scores",
    "every query head looks with key head 0, and d_k is read from T_q",
    slips=("by_root_t_q", "first_for_all"),
)
def grouped_first_head(q, k):
    B, h, d_k, _ = q.shape
    k = k[:, :1].expand(-1, h, -1, -1)
    return q @ k.transpose(-2, -1) / math.sqrt(d_k)


@wrong(
    "grouped_scores",
    "scales by the root of h * d_k, and gives the softmax of the scores",
    slips=("one_place", "softmax_too_early"),
)
def grouped_weights(q, k):
    h, d_k = q.shape[1], q.shape[3]
    k = k.repeat_interleave(h // k.shape[1], dim=1)
    return F.softmax(q @ k.mT / (h * d_k) ** 0.5, dim=-1)


# cached_mask


@right("cached_mask")
def triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    return (
        ones.triu(n_cached + 1)
        if window is None
        else ones.triu(n_cached + 1) | ones.tril(n_cached - window)
    )


@right("cached_mask")
def last_rows_of_the_square(n_new, n_cached, window):
    n = n_new + n_cached
    d = torch.arange(n).view(-1, 1) - torch.arange(n)
    return ~((d >= 0) & (d < (window or n + 1)))[n_cached:]


@right("cached_mask")
def row_lists(n_new, n_cached, window):
    n = n_cached + n_new
    rows = []
    for at in range(n_cached, n):
        first = 0 if window is None else max(0, at - window + 1)
        rows.append([True] * first + [False] * (at - first + 1) + [True] * (n - at - 1))
    return torch.tensor(rows)


@right("cached_mask")
def two_comparisons(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (query - key >= window)


@right("cached_mask")
def rows_of_a_square(n_new, n_cached, window):
    n = n_cached + n_new
    blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
    if window is not None:
        blocked |= torch.ones(n, n, dtype=torch.bool).tril(-window)
    return blocked[n_cached:]


@right("cached_mask")
def cell_by_cell(n_new, n_cached, window):
    rows = []
    for i in range(n_cached, n_cached + n_new):
        reach = n_cached + n_new if window is None else window
        rows.append([not (i - reach < j <= i) for j in range(n_cached + n_new)])
    return torch.tensor(rows)


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


@right("cached_mask")
def mask_by_lists(n_new, n_cached, window):
    rows = []
    for i in range(n_cached, n_cached + n_new):
        first = 0 if window is None else max(0, i - window + 1)
        rows.append([not first <= j <= i for j in range(n_cached + n_new)])
    return torch.tensor(rows)


@right("cached_mask")
def cmask_cells(n_new, n_cached, window):
    mask = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        here = n_cached + i
        mask[i, here + 1 :] = True
        if window is not None:
            mask[i, : max(0, here - window + 1)] = True
    return mask


@right("cached_mask")
def cmask_two_triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    future = ones.triu(n_cached + 1)
    return future if window is None else future | ones.tril(n_cached - window)


@right("cached_mask")
def cmask_rows_of_all(n_new, n_cached, window):
    n = n_cached + n_new
    back = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    limit = n if window is None else window
    return ((back < 0) | (back >= limit))[n_cached:]


@right("cached_mask")
def mask_by_rolling(n_new, n_cached, window):
    n = n_cached + n_new
    band = torch.ones(n, n, dtype=torch.bool).tril()
    if window is not None:
        band = band & ~torch.ones(n, n, dtype=torch.bool).tril(-window)
    return torch.logical_not(band[n_cached:])


@right("cached_mask")
def cmask_band(n_new, n_cached, window):
    total = n_cached + n_new
    band = torch.ones(total, total, dtype=torch.bool).tril()
    if window is not None:
        band = band.triu(1 - window)
    return ~band[n_cached:]


@right("cached_mask")
def cmask_tail_of_square(n_new, n_cached, window):
    n = n_cached + n_new
    band = torch.ones(n, n, dtype=torch.bool).tril()
    if window is not None:
        band = band.triu(1 - window)
    return ~band[n_cached:]


@right("cached_mask")
def mask_band(n_new, n_cached, window):
    keep = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).tril(n_cached)
    if window is not None:
        keep = keep.triu(n_cached - window + 1)
    return keep.logical_not()


@right("cached_mask")
def mask_python(n_new, n_cached, window):
    reach = math.inf if window is None else window
    rows = range(n_cached, n_cached + n_new)
    return torch.tensor([[not 0 <= i - j < reach for j in range(n_cached + n_new)] for i in rows])


@wrong(
    "cached_mask",
    "joins the two conditions with & and so blocks nothing with a window",
    slips=("one_place",),
)
def mask_and(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked & (query - key >= window)


@wrong("cached_mask", "& for |: nothing is both future and past", slips=("one_place",))
def mask_and_2(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked & (query - key >= window)


@wrong("cached_mask", "counts the keys from the end", slips=("one_place",))
def mask_flipped(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new).flip(0)
    m = k > q
    return m if window is None else m | (q - k >= window)


@wrong("cached_mask", "and instead of or", slips=("one_place",))
def mask_and_3(n_new, n_cached, window):
    i = n_cached + torch.arange(n_new)[:, None]
    j = torch.arange(n_new + n_cached)[None]
    mask = j > i
    return mask if window is None else mask & (i - j >= window)


@wrong("cached_mask", "window None is not handled (raises TypeError)", slips=("error:none_used",))
def cmask_none(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return (key > query) | (query - key >= window)


@wrong(
    "cached_mask",
    "two mistakes: queries counted from 0, and True = visible",
    slips=("not_offset", "inverted"),
)
def n3_two_more(n_new, n_cached, window):
    rel = torch.arange(n_new)[:, None] - torch.arange(n_cached + n_new)[None]
    ok = rel >= 0
    return ok if window is None else ok & (rel < window)


@wrong(
    "cached_mask",
    "two mistakes: the future is open, and the window one too narrow",
    slips=("nothing", "one_too_narrow"),
)
def n3_future_narrow(n_new, n_cached, window):
    w = window or n_new + n_cached + 1
    rows = [[(n_cached + i) - j >= w - 1 for j in range(n_cached + n_new)] for i in range(n_new)]
    return torch.tensor(rows).view(n_new, n_cached + n_new)


@wrong(
    "cached_mask",
    "two mistakes: & instead of | joins future and window, and the mask is transposed",
    slips=("one_place", "transposed"),
)
def n3_and_transposed(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)
    k = torch.arange(n_cached + n_new)[:, None]
    m = k > q
    if window is not None:
        m = m & (q - k >= window)
    return m


@wrong("cached_mask", "not moved, and the window too wide", slips=("not_offset", "one_too_wide"))
def two_mistakes_in_the_mask(n_new, n_cached, window):
    n = n_cached + n_new
    blocked = torch.ones(n_new, n, dtype=torch.bool).triu(1)
    return blocked if window is None else blocked | torch.ones(n_new, n).tril(-window - 1).bool()


@wrong("cached_mask", "python `or` between the two tensors", slips=("truth_of_a_tensor",))
def mask_or(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return (d < 0) or (window is not None and d >= window)


@wrong(
    "cached_mask",
    "True = keep, and one key too many in the window",
    slips=("inverted", "one_too_wide"),
)
def mask_keep_and_window(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    seen = key <= query
    return seen if window is None else seen & (query - key <= window)


@wrong(
    "cached_mask",
    "two slips: turned round, and the window one too wide",
    slips=("transposed", "one_too_wide"),
)
def cmask_turned_wide(n_new, n_cached, window):
    q = torch.arange(n_new) + n_cached
    k = torch.arange(n_cached + n_new)[:, None]
    blocked = k > q
    return blocked if window is None else blocked | (q - k > window)


@wrong(
    "cached_mask",
    "two slips: own position blocked, window unread",
    slips=("itself_too", "window_ignored"),
)
def cmask_own_no_window(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    return torch.arange(n_cached + n_new) >= q


@wrong("cached_mask", "has a table of 1,024 positions", slips=("ends_there",))
def a_table_of_1024(n_new, n_cached, window):
    n = n_cached + n_new
    i = torch.arange(1024)
    m = i > i[:, None]
    if window is not None:
        m = m | (i[:, None] - i >= window)
    return m[n_cached:n, :n]
