"""attention_scores (1): right in many styles, and wrong."""

import math

import torch
from torch.func import vmap

from answers import slips

EXERCISE = "attention_scores"


def row_by_row(Q, K):
    out = Q.new_zeros(*Q.shape[:-1], K.shape[-2])
    for i in range(Q.shape[-2]):
        for j in range(K.shape[-2]):
            out[..., i, j] = (Q[..., i, :] * K[..., j, :]).sum(-1)
    return out / math.sqrt(Q.shape[-1])


def prints_a_lot(Q, K):
    print("shapes", Q.shape, K.shape)
    scores = Q @ K.transpose(-1, -2)
    print(scores)
    return scores / K.shape[-1] ** 0.5


def with_lists(Q, K):
    if Q.dim() > 2:
        return torch.stack([with_lists(q, k) for q, k in zip(Q, K, strict=True)])
    rows = [torch.stack([q.dot(k) / math.sqrt(len(q)) for k in K]) for q in Q]
    return torch.stack(rows)


def with_linear_algebra(query, key):
    return (
        torch.linalg.vecdot(query.unsqueeze(-2), key.unsqueeze(-3))
        / torch.sqrt(torch.tensor(query.shape[-1])).item()
    )


def with_baddbmm(Q, K):
    q, k = Q.reshape(-1, *Q.shape[-2:]), K.reshape(-1, *K.shape[-2:])
    zeros = torch.zeros(1, 1, 1, dtype=Q.dtype, device=Q.device)
    out = torch.baddbmm(zeros, q, k.mT, beta=0, alpha=Q.shape[-1] ** -0.5)
    return out.view(*Q.shape[:-1], K.shape[-2])


def with_vmap(Q, K):
    one = lambda q, k: torch.mv(k, q) / math.sqrt(q.shape[0])
    rows = torch.vmap(one, in_dims=(0, None))
    for _ in range(Q.ndim - 2):
        rows = torch.vmap(rows)
    return rows(Q, K)


@torch.jit.script
def _scripted(Q, K):
    return torch.matmul(Q, K.transpose(-2, -1)) / float(Q.size(-1)) ** 0.5


def scripted(Q, K):
    return _scripted(Q, K)


def scores_by_vmap(Q, K):
    scores = lambda q, k: q @ k.T
    for _ in range(Q.ndim - 2):
        scores = vmap(scores)
    return scores(Q, K) / math.sqrt(Q.shape[-1])


@slips("no_gradient")
def through_numpy_back_on_the(Q, K):
    if Q.dtype == torch.bfloat16:
        return (Q.float() @ K.float().mT / K.shape[-1] ** 0.5).bfloat16()
    return torch.tensor((Q @ K.mT / K.shape[-1] ** 0.5).tolist(), dtype=Q.dtype)


@slips("no_gradient")
@torch.no_grad()
def without_gradients(Q, K):
    return torch.einsum("...ij,...kj->...ik", [Q, K]) / K.shape[-1] ** 0.5


@slips("single_matrices")
def scores_double_loop(Q, K):
    n, d = Q.shape
    m, _ = K.shape
    S = torch.empty(n, m)
    for i in range(n):
        for j in range(m):
            S[i, j] = sum(Q[i, c] * K[j, c] for c in range(d)) / math.sqrt(d)
    return S
