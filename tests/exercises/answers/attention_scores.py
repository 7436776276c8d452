"""attention_scores (1): right in many styles, and wrong."""

from torch.func import vmap
import einops
import math
import numpy as np
import torch

from answers import slips

EXERCISE = "attention_scores"


def matmul_sqrt(Q, K):
    return torch.matmul(Q, K.transpose(-1, -2)) / math.sqrt(Q.size(-1))


def einsum_scores(q, k):
    return torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5


def scale_query_first(Q, K):
    Q = Q / Q.shape[-1] ** 0.5
    return Q @ K.mT


def tensor_root(Q, K):
    d = torch.tensor(Q.shape[-1])
    return Q @ K.transpose(-2, -1) / torch.sqrt(d).to(Q.device, Q.dtype)


def with_einops(query, key):
    scale = key.shape[-1] ** 0.5
    return einops.einsum(query, key, "... q d, ... k d -> ... q k") / scale


def in_place_scale(Q, K):
    s = Q @ K.swapaxes(-1, -2)
    s /= np.sqrt(K.shape[-1])
    return s


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


def fourth_roots(Q, K):
    s = Q.shape[-1] ** -0.25
    return (Q * s) @ (K * s).mT


def with_linear_algebra(query, key):
    return (
        torch.linalg.vecdot(query.unsqueeze(-2), key.unsqueeze(-3))
        / torch.sqrt(torch.tensor(query.shape[-1])).item()
    )


def cosine_of_sum(a, b):
    return (b @ a.movedim(-1, -2)).swapaxes(-1, -2) * math.exp(-0.5 * math.log(a.size(-1)))


def key_by_key(Q, K):
    root = math.sqrt(Q.shape[-1])
    return torch.stack([(Q * k.unsqueeze(-2)).sum(-1) / root for k in K.unbind(-2)], dim=-1)


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


def with_a_device_context(Q, K):
    with torch.device(Q.device):
        root = torch.full((1,), float(K.shape[-1]), dtype=Q.dtype).sqrt()
    return Q @ K.mT / root


def with_a_scale_tensor(Q, K):
    return torch.mul(Q @ K.mT, torch.tensor(Q.shape[-1], dtype=Q.dtype, device=Q.device).rsqrt())


def scores_by_cdist(Q, K):
    """Dot products out of squared lengths: (|q + k|² − |q − k|²) / 4."""
    q, k = Q.unsqueeze(-2), K.unsqueeze(-3)
    return ((q + k).square().sum(-1) - (q - k).square().sum(-1)) / (4 * Q.shape[-1] ** 0.5)


def scores_tensordot(Q, K):
    one = torch.matmul(Q.div(math.pow(Q.shape[-1], 0.5)), K.movedim(-1, -2))
    return one.clone()


def scores_einsum(Q, K):
    scale = torch.rsqrt(torch.tensor(float(Q.shape[-1]), dtype=Q.dtype, device=Q.device))
    return torch.einsum("...td,...sd->...ts", Q * scale, K)


def scores_polarised(Q, K):
    q, k = Q[..., :, None, :], K[..., None, :, :]
    return (q * k).mean(dim=-1) * math.sqrt(Q.shape[-1])


def scores_mean_times_root(Q, K):
    prod = Q[..., :, None, :] * K[..., None, :, :]
    return prod.mean(-1) * math.sqrt(Q.shape[-1])


def scores_by_vmap(Q, K):
    scores = lambda q, k: q @ k.T
    for _ in range(Q.ndim - 2):
        scores = vmap(scores)
    return scores(Q, K) / math.sqrt(Q.shape[-1])


def scores_sum_of_products(Q, K):
    return (Q[..., :, None, :] * K[..., None, :, :]).sum(dim=-1) / math.sqrt(Q.shape[-1])


def scores_by_columns(Q, K):
    columns = [(Q * key[..., None, :]).sum(-1) for key in K.unbind(dim=-2)]
    return torch.stack(columns, dim=-1).div(Q.size(-1) ** 0.5)


@slips("one_place")
def root_of_a_half_d(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1] / 2)


@slips("one_place")
def s3_einsum_letter(Q, K):
    return torch.einsum("...ie,...jf->...ij", Q, K) / math.sqrt(Q.shape[-1])


@slips("returns_ndarray")
def a_numpy_array_comes_back(Q, K):
    return Q.numpy() @ np.swapaxes(K.numpy(), -1, -2) / np.sqrt(K.shape[-1])


@slips("fixed_device")
def buffer_on_a_fixed_device(Q, K):
    out = torch.zeros(*Q.shape[:-1], K.shape[-2], dtype=Q.dtype)
    out[...] = Q @ K.mT / math.sqrt(Q.shape[-1])
    return out


@slips("fixed_device", "no_gradient")
def through_numpy_back_on_the(Q, K):
    if Q.dtype == torch.bfloat16:
        return (Q.float() @ K.float().mT / K.shape[-1] ** 0.5).bfloat16()
    return torch.tensor((Q @ K.mT / K.shape[-1] ** 0.5).tolist(), dtype=Q.dtype)


@slips("error:exits")
def attention_scores_again(Q, K):
    raise SystemExit(1)


@slips("error:wrong_signature")
def takes_one_argument_only(Q):
    return Q @ Q.mT


@slips("fresh_weights")
def noise_is_added(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1]) + 0.01 * torch.rand(1)


@slips("error:axis_out_of_range")
def bmm_needs_exactly_three_axes(Q, K):
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.shape[-1])


@slips("thrown_away")
def scores_division_lost(Q, K):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    scores / math.sqrt(Q.size(-1))
    return scores


@slips("error:broadcast_shapes")
def scores_star(Q, K):
    return Q * K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@slips("error:einsum_letters")
def einsum_four_axes(q, k):
    scale = q.size(-1) ** -0.5
    return torch.einsum("bhid,bhjd->bhij", q, k) * scale


@slips("roles_exchanged", "no_scale")
def s3_keys_by_queries(Q, K):
    return K @ Q.mT


@slips("no_gradient")
@torch.no_grad()
def without_gradients(Q, K):
    return torch.einsum("...ij,...kj->...ik", [Q, K]) / K.shape[-1] ** 0.5


@slips("relation:near")
def scores_half(q, k):
    s = q.bfloat16() @ k.bfloat16().mT
    return (s * q.shape[-1] ** -0.5).to(q.dtype)


@slips("three_dots")
def scores_ellipsis(Q, K):
    scale = ...
    return Q @ K.transpose(-2, -1) / scale


@slips("error:value_error")
def scores_dot(Q, K):
    return np.dot(Q, K.T) / np.sqrt(K.shape[-1])


@slips("nan_made")
def scores_root_of_all(Q, K):
    return torch.sqrt(Q @ K.transpose(-2, -1) / Q.shape[-1])


@slips("shape")
def scores_inner(Q, K):
    return torch.inner(Q, K) / math.sqrt(K.shape[-1])


@slips("not_doubled")
def scores_distance(Q, K):
    return -torch.cdist(Q, K) / math.sqrt(Q.shape[-1])


@slips("single_matrices")
def scores_double_loop(Q, K):
    n, d = Q.shape
    m, _ = K.shape
    S = torch.empty(n, m)
    for i in range(n):
        for j in range(m):
            S[i, j] = sum(Q[i, c] * K[j, c] for c in range(d)) / math.sqrt(d)
    return S


@slips("ends_there")
def axes_counted(Q, K):
    if Q.ndim > 4:
        return Q @ K.transpose(1, 2)
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@slips("no_scale", "thrown_away")
def a_line_that_does_nothing(Q, K):
    K.softmax(-1)
    return Q @ K.mT


@slips("changes_too")
def scores_standardised(Q, K):
    s = Q @ K.transpose(-2, -1)
    return s / s.std(dim=-1, keepdim=True)
