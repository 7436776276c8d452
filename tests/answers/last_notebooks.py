"""Exercises 16 to 19: rotated positions, a cache, shared keys, and the mask of a cache."""

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat

from answers import right, wrong

# --- rotate --------------------------------------------------------------------------------------


@right("rotate")
def in_halves(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@right("rotate")
def by_rotating_half(x, positions):
    d_k = x.shape[-1]
    speed = 1.0 / 10_000 ** (torch.arange(0, d_k, 2, device=x.device).float() / d_k)
    angle = torch.outer(positions.float(), speed)
    angle = torch.cat((angle, angle), dim=-1)
    first, second = x.chunk(2, dim=-1)
    turned = x.float() * angle.cos() + torch.cat((-second, first), dim=-1).float() * angle.sin()
    return turned.to(x.dtype) if x.dtype != torch.float64 else in_halves(x, positions)


@right("rotate")
def with_complex_numbers(x, positions):
    wide = x.double()
    a, b = wide.chunk(2, dim=-1)
    i = torch.arange(a.shape[-1], device=x.device).double()
    angle = positions.double()[:, None] * torch.exp(-math.log(10_000) * 2 * i / x.shape[-1])
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


@right("rotate")
def pair_by_pair(x, positions):
    out = x.clone()
    half = x.shape[-1] // 2
    for i in range(half):
        angle = positions.double() / 10_000 ** (i / half)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        out[..., i] = x[..., i] * cos - x[..., i + half] * sin
        out[..., i + half] = x[..., i] * sin + x[..., i + half] * cos
    return out


@wrong("rotate", "turns neighbours", slips=("neighbours",))
def other_layout(x, positions):
    d_k = x.shape[-1]
    speed = 10_000.0 ** (-torch.arange(0, d_k, 2, device=x.device) / d_k)
    angle = positions[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


@wrong("rotate", "ignores the positions", slips=("own_count",))
def counts_by_itself(x, positions):
    return in_halves(x, torch.arange(x.shape[-2], device=x.device))


@wrong("rotate", "turns the other way", slips=("other_sign",))
def the_other_way(x, positions):
    return in_halves(x, -positions)


@wrong("rotate", "computes the angle in half precision", slips=("precision_lost",))
def angle_in_x_dtype(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=x.dtype)
    angle = positions[:, None].to(x.dtype) * 10_000.0 ** (-i / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


@wrong("rotate", "neighbours, and positions counted from 1", slips=None)
def two_mistakes_in_turning(x, positions):
    return other_layout(x, positions + 1)


# --- cached_attention ----------------------------------------------------------------------------


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


@wrong("cached_attention", "mask not moved by the cache's length", slips=("not_offset",))
def mask_from_the_top_left(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    blocked = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, float("-inf"))
    return scores.softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "no mask", slips=("no_mask",))
def forgets_the_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "gives the old cache back", slips=("old_cache",))
def gives_the_old_cache(q, k, v, cache):
    context, longer = by_the_book(q, k, v, cache)
    return context, longer if cache is None else cache


@wrong("cached_attention", "a flat triple", slips=("cache_not_a_pair",))
def flat_triple(q, k, v, cache):
    context, (k, v) = by_the_book(q, k, v, cache)
    return context, k, v


@wrong("cached_attention", "only the context", slips=("only_context",))
def context_only(q, k, v, cache):
    return by_the_book(q, k, v, cache)[0]


@wrong("cached_attention", "writes into the old cache", slips=("old_cache_changed",))
def writes_into_the_cache(q, k, v, cache):
    result = by_the_book(q, k, v, cache)
    if cache is not None:
        cache[0].zero_()
    return result


@wrong("cached_attention", "cache unused, nothing remembered", slips=None)
def no_cache_at_all(q, k, v, cache):
    return by_the_book(q, k, v, None)


# --- grouped_scores ------------------------------------------------------------------------------


@right("grouped_scores")
def repeated_on_the_spot(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@right("grouped_scores")
def groups_as_an_axis(q, k):
    q = rearrange(q, "b (kv g) t d -> b kv g t d", kv=k.shape[1])
    scores = einsum(q, k, "b kv g q d, b kv k d -> b kv g q k") / math.sqrt(q.shape[-1])
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


@wrong("grouped_scores", "dealt out in turn", slips=("dealt_out",))
def tiled(q, k):
    k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "i // h_kv", slips=("by_number_of_groups",))
def divided_by_h_kv(q, k):
    heads = [q[:, i] @ k[:, i // k.shape[1] % k.shape[1]].mT for i in range(q.shape[1])]
    return torch.stack(heads, 1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "no scale")
def no_root(q, k):
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT


@wrong("grouped_scores", "groups stay apart", slips=("groups_left_apart",))
def five_axes(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return q @ k.unsqueeze(2).mT / q.shape[-1] ** 0.5


# --- cached_mask ---------------------------------------------------------------------------------


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


@wrong("cached_mask", "not moved by the cache", slips=("not_offset",))
def from_the_top_left(n_new, n_cached, window):
    n = n_cached + n_new
    blocked = torch.ones(n_new, n, dtype=torch.bool).triu(1)
    return blocked if window is None else blocked | torch.ones(n_new, n).tril(-window).bool()


@wrong("cached_mask", "one token too many in the window", slips=("one_too_wide",))
def window_too_wide(n_new, n_cached, window):
    return two_comparisons(n_new, n_cached, None if window is None else window + 1)


@wrong("cached_mask", "window ignored", slips=("window_ignored",))
def no_window(n_new, n_cached, window):
    return two_comparisons(n_new, n_cached, None)


@wrong("cached_mask", "True = keep", slips=("inverted",))
def keep_mask(n_new, n_cached, window):
    return ~two_comparisons(n_new, n_cached, window)


@wrong("cached_mask", "all rows", slips=("all_rows",))
def rows_for_all(n_new, n_cached, window):
    return two_comparisons(n_new + n_cached, 0, window)


@wrong("cached_mask", "not moved, and the window too wide", slips=None)
def two_mistakes_in_the_mask(n_new, n_cached, window):
    n = n_cached + n_new
    blocked = torch.ones(n_new, n, dtype=torch.bool).triu(1)
    return blocked if window is None else blocked | torch.ones(n_new, n).tril(-window - 1).bool()
