"""Right answers to the exercises in another layout, besides the package's, in other styles."""

import runpy
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from mha_course.exercises import variants_solved

# Run anew: what is imported from the package counts as nobody's answer.
solved = SimpleNamespace(**runpy.run_path(variants_solved.__file__))


def scores_of(Q, K):
    return torch.einsum(Q, [0, 1, 2], K, [3, 1, 2], [1, 0, 3]) / Q.shape[2] ** 0.5


def scores_of_2(Q, K):
    return torch.einsum("ibd,jbd->bij", Q / Q.shape[-1] ** 0.5, K)


def fused_2(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(-1, (3, -1)).unbind(2)
    return F.scaled_dot_product_attention(q, k, v)


def head_by_head_2(X, W_qkv, n_heads):
    each = [X @ w.T for w in W_qkv.chunk(3 * n_heads)]
    return tuple(torch.stack(each[i::3], 1) for i in range(3))


def split_first_2(x, n_heads):
    return torch.stack(x.transpose(0, 1).chunk(n_heads, -1), 1)


def merge_first_2(x):
    return torch.cat(x.unbind(1), -1).transpose(0, 1)


def keep_2(T):
    return torch.arange(T)[None] <= torch.arange(T)[:, None]


def from_ids_2(tokens, pad):
    return tokens.eq(pad).view(tokens.shape[0], 1, 1, -1)


def kept(scores, keep):
    low = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~keep, low).softmax(-1)
    return weights * keep


def kept_2(scores, keep):
    alive = keep.any(-1, keepdim=True)
    filled = torch.where(keep | ~alive, scores, -torch.inf)
    return torch.where(alive & keep, filled.softmax(-1), 0.0)


def one_write_2(heads, W_o, i):
    return F.linear(heads[:, i], W_o.chunk(heads.shape[1], dim=1)[i])


def at_once_2(x, W_q, W_k, W_v, W_o, n_heads):
    heads = []
    for q, k, v in zip(*(W.chunk(n_heads) for W in (W_q, W_k, W_v)), strict=True):
        heads.append(F.scaled_dot_product_attention(x @ q.T, x @ k.T, x @ v.T))
    return F.linear(torch.cat(heads, -1), W_o)


def real_loss_2(logits, tokens, lengths):
    parts = [
        F.cross_entropy(row[: n - 1], ids[1:n], reduction="sum")
        for row, ids, n in zip(logits, tokens, lengths.tolist(), strict=True)
    ]
    return torch.stack(parts).sum() / (lengths - 1).sum()


def spread_2(k, h):
    B, h_kv, T, d_k = k.shape
    return k[:, :, None].expand(B, h_kv, h // h_kv, T, d_k).reshape(B, h, T, d_k)


RIGHT = {
    "scores_tokens_first": (solved.scores_tokens_first, scores_of, scores_of_2),
    "attention_from_fused": (solved.attention_from_fused, fused_2),
    "project_head_by_head": (solved.project_head_by_head, head_by_head_2),
    "split_tokens_first": (solved.split_tokens_first, split_first_2),
    "merge_tokens_first": (solved.merge_tokens_first, merge_first_2),
    "causal_keep": (solved.causal_keep, keep_2),
    "padding_from_ids": (solved.padding_from_ids, from_ids_2),
    "softmax_of_kept": (solved.softmax_of_kept, kept, kept_2),
    "write_of_one_head": (solved.write_of_one_head, one_write_2),
    "all_heads_at_once": (solved.all_heads_at_once, at_once_2),
    "loss_without_padding": (solved.loss_without_padding, real_loss_2),
    "rotate_neighbours": (solved.rotate_neighbours,),
    "spread_keys": (solved.spread_keys, spread_2),
}
