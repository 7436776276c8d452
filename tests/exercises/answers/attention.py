"""attention (2): right in many styles, and wrong."""

import math

import einops
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad

from answers import slips

EXERCISE = "attention"


def exp_by_hand(Q, K, V):
    s = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    w = e / e.sum(dim=-1, keepdim=True)
    return w @ V, w


def attention_in_float32(Q, K, V):
    scores = (Q.double() @ K.double().mT) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(dim=-1)
    return (weights @ V.double()).to(Q.dtype), weights.to(Q.dtype)


def attention_query_by_query(Q, K, V):
    outs, rows = [], []
    for i in range(Q.shape[-2]):
        q = Q[..., i : i + 1, :]
        w = torch.softmax((q * K).sum(-1) / math.sqrt(K.shape[-1]), -1)
        rows.append(w)
        outs.append((w.unsqueeze(-1) * V).sum(-2))
    return torch.stack(outs, -2), torch.stack(rows, -2)


def attention_of_the_package(Q, K, V):
    from mha_lesson import scaled_dot_product_attention

    return scaled_dot_product_attention(Q, K, V, return_weights=True)


def by_sdpa_twice(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-2], -1, -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return torch.matmul(w, V), w


def by_logsumexp(Q, K, V):
    s = torch.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    s = s - s.amax(-1, keepdim=True)
    w = (s - torch.logsumexp(s, -1, keepdim=True)).exp()
    return [w @ V, w]


def with_an_identity_for_weights(Q, K, V):
    both = torch.cat([V, torch.eye(K.shape[-2]).to(V).expand(*V.shape[:-1], -1)], -1)
    out = F.scaled_dot_product_attention(Q, K, both)
    return out.split([V.shape[-1], K.shape[-2]], -1)


class CallableClass:
    """Called like a function; here the check gets its instance."""

    def __new__(cls, Q, K, V):
        w = F.softmax(einops.einsum(Q, K, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5, -1)
        return w @ V, w


def attention_two_temporaries(Q, K, V):
    scores = torch.empty(0)
    scores = (Q / Q.shape[-1] ** 0.25) @ (K / K.shape[-1] ** 0.25).mT
    weights = torch.log_softmax(scores, -1)
    weights = weights.exp()
    return [weights.matmul(V), weights]


def weights_as_a_gradient(Q, K, V):
    S = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    A = grad(lambda s: s.logsumexp(-1).sum())(S)
    return A @ V, A


@slips("thrown_away")
def attention_softmax_lost(Q, K, V):
    d_k = Q.shape[-1]
    weights = Q @ K.transpose(-2, -1) / math.sqrt(d_k)
    weights.softmax(dim=-1)
    output = weights @ V
    return output, weights


@slips("error:dtype_mix")
def softmax_in_float32(query, key, value):
    attn = torch.matmul(query, key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    attn = nn.functional.softmax(attn, dim=-1, dtype=torch.float32)
    return torch.matmul(attn, value), attn


@slips("single_matrices")
def a3_loop_first_axis(Q, K, V):
    rows, weights = [], []
    for i in range(Q.shape[0]):
        s = K @ Q[i] / math.sqrt(K.shape[-1])
        e = torch.exp(s - s.max())
        w = e / e.sum()
        weights.append(w)
        rows.append(w @ V)
    return torch.stack(rows), torch.stack(weights)


@slips("by_numpy")
def attention_numpy(Q, K, V):
    q, k, v = (x.detach().numpy() for x in (Q, K, V))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return torch.from_numpy(weights @ v), torch.from_numpy(weights)


@slips("arguments_exchanged")
def attention_value_key_query(value, key, query):
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    weights = scores.softmax(-1)
    return weights @ value, weights


@slips("error:two_axes_only")
def attention_batch_loop(Q, K, V):
    outs, ws = [], []
    for q, k, v in zip(Q, K, V):
        w = torch.softmax(q.mm(k.t()) / math.sqrt(q.shape[1]), dim=1)
        outs.append(w.mm(v))
        ws.append(w)
    return torch.stack(outs), torch.stack(ws)


@slips("relation:moved_axes")
def attention_stack_rows(Q, K, V):
    outs, rows = [], []
    for i in range(Q.shape[-2]):
        q = Q[..., i : i + 1, :]
        w = torch.softmax(q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]), dim=-1)
        rows.append(w[..., 0, :])
        outs.append((w @ V)[..., 0, :])
    return torch.stack(outs), torch.stack(rows)
