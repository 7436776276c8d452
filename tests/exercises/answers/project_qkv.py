"""project_qkv (3): right in many styles, and wrong."""

from einops import rearrange
from torch import nn
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "project_qkv"


def chunked(X, W):
    return (X @ W.T).chunk(3, dim=-1)


def three_products_2(X, W_qkv):
    d = X.shape[-1]
    W_q, W_k, W_v = W_qkv[:d], W_qkv[d : 2 * d], W_qkv[2 * d :]
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


def viewed_and_unbound(X, W):
    B, T, D = X.shape
    return torch.einsum("btd,ed->bte", X, W).reshape(B, T, 3, D).unbind(2)


def einops_right(X, W):
    q, k, v = rearrange(X @ W.mT, "b t (three d) -> three b t d", three=3)
    return q, k, v


def a_real_layer(X, W):
    layer = nn.Linear(W.shape[1], W.shape[0], bias=False, device=X.device, dtype=X.dtype)
    layer.weight = nn.Parameter(W)
    return torch.tensor_split(layer(X), 3, dim=2)


def three_products_3(X, W):
    return [X @ w.T for w in W.view(3, -1, W.shape[1])]


def einsum_three(X, W):
    return tuple(torch.einsum("btc,noc->nbto", X, W.reshape(3, -1, W.size(-1))))


def with_conv(X, W):
    y = F.conv1d(X.mT, W[:, :, None]).mT
    return torch.split(y, [X.shape[-1]] * 3, dim=-1)


def with_fresh_layers(X, W):
    outs = []
    for block in W.chunk(3):
        layer = nn.Linear(X.shape[-1], X.shape[-1], bias=False).to(X.device, X.dtype)
        with torch.no_grad():
            layer.weight.copy_(block)
        outs.append(layer(X))
    return outs


def with_unflatten(X, W):
    return W.unflatten(0, (3, -1)).matmul(X.mT[:, None]).mT.unbind(1)


def project_slices(X, W_qkv):
    d = X.size(2)
    out = torch.matmul(X, W_qkv.t())
    return [out[:, :, 0:d], out[:, :, d : 2 * d], out[:, :, 2 * d :]]


def project_unflatten(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(2, (3, -1)).unbind(dim=2)
    return q, k, v


def project_parallel(X, W_qkv):
    d_model = X.size(-1)
    qkv = torch.einsum("bti,oi->obt", X, W_qkv)
    return tuple(part.permute(1, 2, 0) for part in qkv.split(d_model))


def project_by_bmm(X, W_qkv):
    W = rearrange(W_qkv, "(s o) i -> s i o", s=3)
    return tuple(torch.einsum("bti,sio->sbto", X, W))


@slips("results_102", "weight_reshaped")
def reshaped_weight_order_k_q(X, W):
    Q, K, V = (X @ W.reshape(W.shape[1], -1)).chunk(3, -1)
    return K, Q, V


@slips("one_place")
def drops_the_batch(X, W):
    return (X[0] @ W.T).chunk(3, -1)


@slips("one_place")
def project_residual(X, W_qkv):
    return [X + part for part in (X @ W_qkv.T).chunk(3, dim=-1)]


@slips("error:shape_for_view")
def project_chunk_columns(X, W):
    d = X.shape[-1]
    return tuple(X @ w.reshape(d, d) for w in W.chunk(3, dim=1))


@slips("changes_too")
def project_same_three(X, W):
    y = F.linear(X, W.unflatten(0, (3, -1)).sum(0))
    return y, y, y


@slips("thrown_away")
def project_uncut(X, W_qkv):
    qkv = X @ W_qkv.T
    qkv.chunk(3, dim=-1)
    return qkv
