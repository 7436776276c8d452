"""Right answers to the exercises in another layout, in two styles each."""

import torch
import torch.nn.functional as F


def scores_of(Q, K):
    return torch.einsum(Q, [0, 1, 2], K, [3, 1, 2], [1, 0, 3]) / Q.shape[2] ** 0.5


def scores_of_2(Q, K):
    return torch.einsum("ibd,jbd->bij", Q / Q.shape[-1] ** 0.5, K)


def fused(X, W_qkv):
    d = X.shape[-1]
    q, k, v = X @ W_qkv[:d].T, X @ W_qkv[d : 2 * d].T, X @ W_qkv[2 * d :].T
    return F.softmax(q @ k.transpose(1, 2) / d**0.5, dim=-1) @ v


def fused_2(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(-1, (3, -1)).unbind(2)
    return F.scaled_dot_product_attention(q, k, v)


def head_by_head(X, W_qkv, n_heads):
    B, T, D = X.shape
    y = (X @ W_qkv.T).reshape(B, T, n_heads, 3, D // n_heads).transpose(1, 2)
    return y[..., 0, :], y[..., 1, :], y[..., 2, :]


def head_by_head_2(X, W_qkv, n_heads):
    each = [X @ w.T for w in W_qkv.chunk(3 * n_heads)]
    return tuple(torch.stack(each[i::3], 1) for i in range(3))


def split_first(x, n_heads):
    T, B, D = x.shape
    return x.view(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)


def split_first_2(x, n_heads):
    return torch.stack(x.transpose(0, 1).chunk(n_heads, -1), 1)


def merge_first(x):
    B, h, T, d_k = x.shape
    return x.permute(2, 0, 1, 3).reshape(T, B, h * d_k)


def merge_first_2(x):
    return torch.cat(x.unbind(1), -1).transpose(0, 1)


def keep(T):
    return torch.tril(torch.ones(T, T, dtype=torch.bool))


def keep_2(T):
    return torch.arange(T)[None] <= torch.arange(T)[:, None]


def from_ids(tokens, pad):
    return (tokens == pad)[:, None, None]


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


def one_write(heads, W_o, i):
    d_k = heads.shape[-1]
    return heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T


def one_write_2(heads, W_o, i):
    return F.linear(heads[:, i], W_o.chunk(heads.shape[1], dim=1)[i])


def real_loss(logits, tokens, lengths):
    losses = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
    return losses[real].mean()


def real_loss_2(logits, tokens, lengths):
    parts = [
        F.cross_entropy(row[: n - 1], ids[1:n], reduction="sum")
        for row, ids, n in zip(logits, tokens, lengths.tolist(), strict=True)
    ]
    return torch.stack(parts).sum() / (lengths - 1).sum()


def neighbours(x, positions):
    d_k = x.shape[-1]
    pairs = torch.arange(0, d_k, 2, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (-pairs / d_k)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def spread(k, h):
    return k.repeat_interleave(h // k.shape[1], 1)


def spread_2(k, h):
    B, h_kv, T, d_k = k.shape
    return k[:, :, None].expand(B, h_kv, h // h_kv, T, d_k).reshape(B, h, T, d_k)


RIGHT = {
    "scores_tokens_first": (scores_of, scores_of_2),
    "attention_from_fused": (fused, fused_2),
    "project_head_by_head": (head_by_head, head_by_head_2),
    "split_tokens_first": (split_first, split_first_2),
    "merge_tokens_first": (merge_first, merge_first_2),
    "causal_keep": (keep, keep_2),
    "padding_from_ids": (from_ids, from_ids_2),
    "softmax_of_kept": (kept, kept_2),
    "write_of_one_head": (one_write, one_write_2),
    "loss_without_padding": (real_loss, real_loss_2),
    "rotate_neighbours": (neighbours,),
    "spread_keys": (spread, spread_2),
}
