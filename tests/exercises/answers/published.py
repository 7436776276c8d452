"""The mistakes of mha_course/collection/shipped.toml that an exercise can contain, put into it.

Two names stand beside each other: that of the published mistake, in a whole class (such as
`scale_forgotten`), and that of the slip which a check names in one step (`no_scale`).
"""

import math

import torch
import torch.nn.functional as F

from answers import Answer
from mha_course.collection.shipped import bug

ANSWERS = []  # of all exercises


def published(exercise, name, *slips):
    """An answer with a published mistake, and the slips to be named; right where there are none."""

    def add(answer):
        id = f"{exercise}-published_{name}"
        ANSWERS.append(Answer(exercise, not slips, answer, id, slips))
        return answer

    return add


# attention_scores


@published("attention_scores", "scale_forgotten", "no_scale")
def scale_forgotten_in_attention_scores(Q, K):
    return Q @ K.transpose(-2, -1)


@published("attention_scores", "scale_upside_down", "times_root_d_k")
def scale_upside_down_in_attention_scores(Q, K):
    scale = Q.shape[-1] ** -0.5
    return Q @ K.transpose(-2, -1) / scale


@published("attention_scores", "scale_twice", "by_d_k")
def scale_twice_in_attention_scores(Q, K):
    Q = Q / math.sqrt(Q.shape[-1])
    return Q @ K.mT / math.sqrt(Q.shape[-1])


# attention


@published("attention", "softmax_over_queries", "softmax_over_queries")
def softmax_over_queries_in_attention(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    weights = torch.softmax(scores, dim=-2)
    return weights @ V, weights


@published("attention", "softmax_over_heads", "softmax_over_axis_1")
def softmax_over_heads_in_attention(Q, K, V):
    weights = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=1)
    return weights @ V, weights


@published("attention", "softmax_over_batch", "softmax_over_axis_0")
def softmax_over_batch_in_attention(Q, K, V):
    weights = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), 0)
    return weights @ V, weights


@published("attention", "scale_forgotten", "no_scale")
def scale_forgotten_in_attention(Q, K, V):
    weights = F.softmax(torch.matmul(Q, K.mT), dim=-1)
    return torch.matmul(weights, V), weights


@published("attention", "scale_twice", "by_d_k")
def scale_twice_in_attention(Q, K, V):
    q = Q * Q.shape[-1] ** -0.5
    out = F.scaled_dot_product_attention(q, K, V)
    return out, torch.softmax(q @ K.mT / Q.shape[-1] ** 0.5, -1)


@published("attention", "dropout_in_evaluation", "random")
def dropout_in_evaluation_in_attention(Q, K, V):
    weights = F.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=-1)
    weights = F.dropout(weights, 0.1)
    return weights @ V, weights


# project_qkv


@published("project_qkv", "values_of_keys", "values_of_keys")
def values_of_keys_in_project_qkv(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3)
    Q = X @ W_q.T
    X = K = X @ W_k.T
    V = X @ W_v.T
    return Q, K, V


@published("project_qkv", "fused_rows_by_head", "dealt_like_cards")
def fused_rows_by_head_in_project_qkv(X, W_qkv):
    B, T, d_model = X.shape
    fused = X @ W_qkv.T
    q, k, v = fused.view(B, T, d_model, 3).unbind(-1)
    return q, k, v


# split_heads


@published("split_heads", "split_by_view", "view_only")
def split_by_view_in_split_heads(x, n_heads):
    B, T, d_model = x.shape
    return x.contiguous().view(B, n_heads, T, d_model // n_heads)


# merge_heads


@published("merge_heads", "merged_unmoved", "not_permuted_back")
def merged_unmoved_in_merge_heads(x):
    B, h, T, d_k = x.shape
    return x.contiguous().view(B, T, h * d_k)


@published("merge_heads", "merged_as_heads_first", "heads_for_batch")
def merged_as_heads_first_in_merge_heads(x):
    B, h, T, d_k = x.shape
    x = x.reshape(h, B, T, d_k)
    return x.permute(1, 2, 0, 3).reshape(B, T, h * d_k)


# causal_mask


@published("causal_mask", "mask_inverted", "keep_mask")
def mask_inverted_in_causal_mask(T):
    return torch.tril(torch.ones(T, T)).bool()


@published("causal_mask", "mask_along_queries", "past_blocked")
def mask_along_queries_in_causal_mask(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool().T


# padding_mask


@published("padding_mask", "mask_inverted", "tokens_marked")
def mask_inverted_in_padding_mask(lengths, T):
    return (torch.arange(T, device=lengths.device)[None] < lengths[:, None])[:, None, None]


@published("padding_mask", "mask_along_queries", "queries_blocked")
def mask_along_queries_in_padding_mask(lengths, T):
    pad = torch.arange(T, device=lengths.device) >= lengths.unsqueeze(1)
    return pad.unsqueeze(1).unsqueeze(3)


@published("padding_mask", "mask_of_the_first", "first_length_for_all")
def mask_of_the_first_in_padding_mask(lengths, T):
    pad = torch.arange(T, device=lengths.device) >= lengths[0]
    return pad[None, None, None].repeat(len(lengths), 1, 1, 1)


# masked_softmax


@published("masked_softmax", "mask_inverted", "true_means_keep")
def mask_inverted_in_masked_softmax(scores, mask):
    scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(mask == 0, 0.0)


@published("masked_softmax", "mask_after_softmax", "zeroed_after")
def mask_after_softmax_in_masked_softmax(scores, mask):
    weights = scores.softmax(dim=-1)
    return weights * ~mask


@published("masked_softmax", "scores_times_mask", "zero_scores")
def scores_times_mask_in_masked_softmax(scores, mask):
    scores = scores * (~mask).to(scores.dtype)
    return scores.softmax(dim=-1)


@published("masked_softmax", "fill_tiny", "zero_scores")
def fill_tiny_in_masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(mask, 1e-9), dim=-1)


@published("masked_softmax", "fill_too_high", "too_high")
def fill_too_high_in_masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(mask, -1e4), dim=-1)


@published("masked_softmax", "mask_of_the_first", "mask_of_sequence_0")
def mask_of_the_first_in_masked_softmax(scores, mask):
    mask = mask.expand(scores.shape)[:1]
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(mask, 0.0)


@published("masked_softmax", "softmax_over_queries", "softmax_over_queries")
def softmax_over_queries_in_masked_softmax(scores, mask):
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-2).masked_fill(mask, 0.0)


@published("masked_softmax", "softmax_over_heads", "softmax_over_axis_1")
def softmax_over_heads_in_masked_softmax(scores, mask):
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=1).masked_fill(mask, 0.0)


# sum_of_head_writes


@published("sum_of_head_writes", "no_w_o", "only_concatenated")
def no_w_o_in_sum_of_head_writes(heads, W_o):
    B, h, T, d_k = heads.shape
    return heads.transpose(1, 2).reshape(B, T, h * d_k)


@published("sum_of_head_writes", "merged_unmoved", "torn_apart")
def merged_unmoved_in_sum_of_head_writes(heads, W_o):
    B, h, T, d_k = heads.shape
    return heads.reshape(B, T, h * d_k) @ W_o.T


# rotate


@published("rotate", "rotated_from_zero", "own_count")
def rotated_from_zero_in_rotate(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@published("rotate", "layouts_mixed", "layouts_mixed")
def layouts_mixed_in_rotate(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = positions[:, None] * speed
    angle = torch.cat((angle, angle), dim=-1).to(x.dtype)
    beside = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * angle.cos() + beside * angle.sin()


# cached_attention


@published("cached_attention", "causal_from_the_left", "not_offset")
def causal_from_the_left_in_cached_attention(q, k, v, cache=None):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@published("cached_attention", "prompt_unmasked", "mask_without_cache_only")
def prompt_unmasked_in_cached_attention(q, k, v, cache=None):
    first = cache is None
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=first), (k, v)


@published("cached_attention", "scale_twice", "by_d_k")
def scale_twice_in_cached_attention(q, k, v, cache=None):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    seen = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    q = q / math.sqrt(q.shape[-1])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen), (k, v)


# grouped_scores


@published("grouped_scores", "shared_keys_tiled", "dealt_out")
def shared_keys_tiled_in_grouped_scores(q, k):
    k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)
    return q @ k.mT / math.sqrt(q.shape[-1])


@published("grouped_scores", "scale_forgotten", "no_scale")
def scale_forgotten_in_grouped_scores(q, k):
    k = torch.repeat_interleave(k, q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT


# cached_mask


@published("cached_mask", "window_one_more", "one_too_wide")
def window_one_more_in_cached_mask(n_new, n_cached, window):
    distance = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance > window
    return mask


@published("cached_mask", "causal_from_the_left", "not_offset")
def causal_from_the_left_in_cached_mask(n_new, n_cached, window):
    distance = torch.arange(n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance >= window
    return mask


@published("cached_mask", "prompt_unmasked", "open_with_cache")
def prompt_unmasked_in_cached_mask(n_new, n_cached, window):
    distance = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = distance < 0
    if window is not None:
        mask |= distance >= window
    return mask if n_cached == 0 else torch.zeros_like(mask)


# MultiHeadAttention: the class of shipped.py with the mistake in it

for name, slips in {
    "scale_d_model": ("by_root_d_model",),
    "scale_n_heads": ("by_root_h",),
    "scale_upside_down": ("times_root_d_k",),
    "scale_forgotten": ("no_scale",),
    "scale_twice": ("by_d_k",),
    "softmax_over_queries": ("softmax_over_queries",),
    "softmax_over_heads": ("softmax_over_axis_1",),
    "softmax_over_batch": ("softmax_over_axis_0",),
    "split_by_view": ("split_by_view", "not_permuted_back"),
    "merged_unmoved": ("not_permuted_back",),
    "merged_as_heads_first": ("heads_for_batch",),
    "over_the_batch": ("tokens_first",),
    "mask_dropped": ("mask_ignored",),
    "mask_inverted": ("true_means_keep",),
    "mask_after_softmax": ("zeroed_after",),
    "scores_times_mask": ("zero_scores",),
    "fill_tiny": ("zero_scores",),
    "fill_too_high": ("blocked_rows_uniform",),
    "mask_tiled": ("masks_tiled",),
    "mask_of_the_first": ("mask_of_sequence_0",),
    "mask_along_queries": ("mask_turned",),
    "no_w_o": ("without_w_o",),
    "one_projection_for_all_heads": ("pieces_projected",),
    "values_of_keys": ("values_of_keys",),
    "fused_rows_by_head": ("thirds_of_each_head",),
    "dropout_in_evaluation": ("random",),
    "w_k_for_values": ("made_by_qkk",),
    "dropout_on_scores": ("random",),
}.items():
    published("MultiHeadAttention", name, *slips)(bug(name).build)


# reported, and no mistake


@published("attention_scores", "query_scaled")
def query_scaled(Q, K):
    return (Q / math.sqrt(Q.shape[-1])) @ K.mT


@published("attention", "fourth_root")
def fourth_root(Q, K, V):
    scale = Q.shape[-1] ** -0.25
    weights = torch.softmax((Q * scale) @ (K * scale).mT, dim=-1)
    return weights @ V, weights
