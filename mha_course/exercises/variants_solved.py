"""A right answer to each exercise in another layout, for a teacher's key."""

import math

import torch
import torch.nn.functional as F


def scores_tokens_first(Q, K):
    return (Q.transpose(0, 1) @ K.permute(1, 2, 0)) / math.sqrt(Q.shape[-1])


def attention_from_fused(X, W_qkv):
    d = X.shape[-1]
    q, k, v = X @ W_qkv[:d].T, X @ W_qkv[d : 2 * d].T, X @ W_qkv[2 * d :].T
    return F.softmax(q @ k.transpose(1, 2) / d**0.5, dim=-1) @ v


def project_head_by_head(X, W_qkv, n_heads):
    B, T, D = X.shape
    y = (X @ W_qkv.T).reshape(B, T, n_heads, 3, D // n_heads).transpose(1, 2)
    return y[..., 0, :], y[..., 1, :], y[..., 2, :]


def split_tokens_first(x, n_heads):
    T, B, D = x.shape
    return x.view(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)


def merge_tokens_first(x):
    B, h, T, d_k = x.shape
    return x.permute(2, 0, 1, 3).reshape(T, B, h * d_k)


def causal_keep(T):
    return torch.tril(torch.ones(T, T, dtype=torch.bool))


def padding_from_ids(tokens, pad):
    return (tokens == pad)[:, None, None]


def softmax_of_kept(scores, keep):
    empty = ~keep.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~keep & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def write_of_one_head(heads, W_o, i):
    d_k = heads.shape[-1]
    return heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T


def all_heads_at_once(x, W_q, W_k, W_v, W_o, n_heads):
    B, T, D = x.shape
    q, k, v = ((x @ W.T).view(B, T, n_heads, -1).transpose(1, 2) for W in (W_q, W_k, W_v))
    weights = (q @ k.mT / math.sqrt(D // n_heads)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, D) @ W_o.T


def loss_without_padding(logits, tokens, lengths):
    losses = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
    return losses[real].mean()


def rotate_neighbours(x, positions):
    d_k = x.shape[-1]
    pairs = torch.arange(0, d_k, 2, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (-pairs / d_k)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def spread_keys(k, h):
    return k.repeat_interleave(h // k.shape[1], 1)
