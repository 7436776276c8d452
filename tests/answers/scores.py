"""Scores and attention (exercises 1 and 2): right in many styles, and wrong."""

from torch import nn
from torch.func import grad
from torch.func import vmap
import einops
import math
import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


# attention_scores


@right("attention_scores")
def matmul_sqrt(Q, K):
    return torch.matmul(Q, K.transpose(-1, -2)) / math.sqrt(Q.size(-1))


@right("attention_scores")
def einsum_scores(q, k):
    return torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5


@right("attention_scores")
def scale_query_first(Q, K):
    Q = Q / Q.shape[-1] ** 0.5
    return Q @ K.mT


@right("attention_scores")
def tensor_root(Q, K):
    d = torch.tensor(Q.shape[-1])
    return Q @ K.transpose(-2, -1) / torch.sqrt(d).to(Q.device, Q.dtype)


@right("attention_scores")
def broadcast_and_sum(Q, K):
    return (Q.unsqueeze(-2) * K.unsqueeze(-3)).sum(-1) / math.sqrt(K.shape[-1])


@right("attention_scores")
def textbook(Q, K):
    d_k = Q.size(-1)
    return torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(d_k)


@right("attention_scores")
def root_as_a_tensor(q, k):
    d_k = torch.tensor(k.shape[-1])
    return q @ k.transpose(-1, -2) / torch.sqrt(d_k)


@right("attention_scores")
def with_einsum(query, key):
    return torch.einsum("...qd,...kd->...qk", query, key) * query.shape[-1] ** -0.5


@right("attention_scores")
def with_einops(query, key):
    scale = key.shape[-1] ** 0.5
    return einops.einsum(query, key, "... q d, ... k d -> ... q k") / scale


@right("attention_scores")
def scaled_beforehand(Q, K):
    root = Q.shape[-1] ** 0.25
    return (Q / root) @ (K / root).mT


@right("attention_scores")
def in_place_scale(Q, K):
    s = Q @ K.swapaxes(-1, -2)
    s /= np.sqrt(K.shape[-1])
    return s


@right("attention_scores")
def writes_into_its_input(Q, K):
    Q /= math.sqrt(Q.shape[-1])
    return Q @ K.mT


@right("attention_scores")
def row_by_row(Q, K):
    out = Q.new_zeros(*Q.shape[:-1], K.shape[-2])
    for i in range(Q.shape[-2]):
        for j in range(K.shape[-2]):
            out[..., i, j] = (Q[..., i, :] * K[..., j, :]).sum(-1)
    return out / math.sqrt(Q.shape[-1])


@right("attention_scores")
def by_broadcasting(Q, K):
    products = Q.unsqueeze(-2) * K.unsqueeze(-3)
    return products.sum(dim=-1).div(Q.shape[-1] ** 0.5)


@right("attention_scores")
def prints_a_lot(Q, K):
    print("shapes", Q.shape, K.shape)
    scores = Q @ K.transpose(-1, -2)
    print(scores)
    return scores / K.shape[-1] ** 0.5


@right("attention_scores")
def with_lists(Q, K):
    if Q.dim() > 2:
        return torch.stack([with_lists(q, k) for q, k in zip(Q, K, strict=True)])
    rows = [torch.stack([q.dot(k) / math.sqrt(len(q)) for k in K]) for q in Q]
    return torch.stack(rows)


@right("attention_scores")
def fourth_roots(Q, K):
    s = Q.shape[-1] ** -0.25
    return (Q * s) @ (K * s).mT


@right("attention_scores")
def with_linear_algebra(query, key):
    return (
        torch.linalg.vecdot(query.unsqueeze(-2), key.unsqueeze(-3))
        / torch.sqrt(torch.tensor(query.shape[-1])).item()
    )


@right("attention_scores")
def cosine_of_sum(a, b):
    return (b @ a.movedim(-1, -2)).swapaxes(-1, -2) * math.exp(-0.5 * math.log(a.size(-1)))


@right("attention_scores")
def key_by_key(Q, K):
    root = math.sqrt(Q.shape[-1])
    return torch.stack([(Q * k.unsqueeze(-2)).sum(-1) / root for k in K.unbind(-2)], dim=-1)


@right("attention_scores")
def with_baddbmm(Q, K):
    q, k = Q.reshape(-1, *Q.shape[-2:]), K.reshape(-1, *K.shape[-2:])
    zeros = torch.zeros(1, 1, 1, dtype=Q.dtype, device=Q.device)
    out = torch.baddbmm(zeros, q, k.mT, beta=0, alpha=Q.shape[-1] ** -0.5)
    return out.view(*Q.shape[:-1], K.shape[-2])


@right("attention_scores")
def with_vmap(Q, K):
    one = lambda q, k: torch.mv(k, q) / math.sqrt(q.shape[0])
    rows = torch.vmap(one, in_dims=(0, None))
    for _ in range(Q.ndim - 2):
        rows = torch.vmap(rows)
    return rows(Q, K)


@torch.jit.script
def _scripted(Q, K):
    return torch.matmul(Q, K.transpose(-2, -1)) / float(Q.size(-1)) ** 0.5


@right("attention_scores")
def scripted(Q, K):
    return _scripted(Q, K)


@right("attention_scores")
def with_a_device_context(Q, K):
    with torch.device(Q.device):
        root = torch.full((1,), float(K.shape[-1]), dtype=Q.dtype).sqrt()
    return Q @ K.mT / root


@right("attention_scores")
def with_a_scale_tensor(Q, K):
    return torch.mul(Q @ K.mT, torch.tensor(Q.shape[-1], dtype=Q.dtype, device=Q.device).rsqrt())


@right("attention_scores")
def scores_in_place(q, k):
    q /= q.shape[-1] ** 0.5
    return q @ k.mT


@right("attention_scores")
def scores_by_cdist(Q, K):
    """Dot products out of squared lengths: (|q + k|² − |q − k|²) / 4."""
    q, k = Q.unsqueeze(-2), K.unsqueeze(-3)
    return ((q + k).square().sum(-1) - (q - k).square().sum(-1)) / (4 * Q.shape[-1] ** 0.5)


@right("attention_scores")
def scores_tensordot(Q, K):
    one = torch.matmul(Q.div(math.pow(Q.shape[-1], 0.5)), K.movedim(-1, -2))
    return one.clone()


@right("attention_scores")
def scores_fourth_roots(Q, K):
    r = Q.shape[-1] ** 0.25
    return (Q / r) @ (K / r).transpose(-2, -1)


@right("attention_scores")
def scores_einsum(Q, K):
    scale = torch.rsqrt(torch.tensor(float(Q.shape[-1]), dtype=Q.dtype, device=Q.device))
    return torch.einsum("...td,...sd->...ts", Q * scale, K)


@right("attention_scores")
def scores_linear_map(Q, K):
    return torch.sum(Q.unsqueeze(-2) * K.unsqueeze(-3), dim=-1).div(Q.shape[-1] ** 0.5)


@right("attention_scores")
def scores_nested_rows(Q, K):
    cols = [(Q * K[..., j : j + 1, :]).sum(-1) for j in range(K.shape[-2])]
    return torch.stack(cols, dim=-1) * float(1 / np.sqrt(Q.shape[-1]))


@right("attention_scores")
def scores_in_place_2(Q, K):
    Q /= math.sqrt(Q.shape[-1])
    return Q @ K.mT


@right("attention_scores")
def scores_polarised(Q, K):
    q, k = Q[..., :, None, :], K[..., None, :, :]
    return (q * k).mean(dim=-1) * math.sqrt(Q.shape[-1])


@right("attention_scores")
def scores_scaled_both(Q, K):
    root4 = Q.shape[-1] ** 0.25
    return (Q / root4) @ (K / root4).mT


@right("attention_scores")
def scores_keys_first(Q, K):
    return (K @ Q.mT).mT.div(math.sqrt(K.size(-1)))


@right("attention_scores")
def scores_mean_times_root(Q, K):
    prod = Q[..., :, None, :] * K[..., None, :, :]
    return prod.mean(-1) * math.sqrt(Q.shape[-1])


@right("attention_scores")
def scores_by_vmap(Q, K):
    scores = lambda q, k: q @ k.T
    for _ in range(Q.ndim - 2):
        scores = vmap(scores)
    return scores(Q, K) / math.sqrt(Q.shape[-1])


@right("attention_scores")
def scores_sum_of_products(Q, K):
    return (Q[..., :, None, :] * K[..., None, :, :]).sum(dim=-1) / math.sqrt(Q.shape[-1])


@right("attention_scores")
def scores_fourth_roots_2(Q, K):
    root = Q.shape[-1] ** 0.25
    return (Q / root) @ (K / root).mT


@right("attention_scores")
def scores_by_columns(Q, K):
    columns = [(Q * key[..., None, :]).sum(-1) for key in K.unbind(dim=-2)]
    return torch.stack(columns, dim=-1).div(Q.size(-1) ** 0.5)


@wrong("attention_scores", "a float32 detour stays float32", slips=("fixed_dtype",))
def a_float_detour_stays_float(Q, K):
    return Q.float() @ K.float().mT / math.sqrt(Q.shape[-1])


@wrong(
    "attention_scores",
    "transposes axes 0 and 1 and forgets the scale",
    slips=("no_scale", "first_axes_exchanged"),
)
def axes_0_1_unscaled(Q, K):
    return Q @ K.transpose(0, 1)


@wrong("attention_scores", "root of a half d_k", slips=("one_place",))
def root_of_a_half_d(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1] / 2)


@wrong(
    "attention_scores",
    "one wrong letter in the einsum: e is summed in each factor alone, so every score is a product of sums",
    slips=("one_place",),
)
def s3_einsum_letter(Q, K):
    return torch.einsum("...ie,...jf->...ij", Q, K) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "floor division", slips=("one_place",))
def scores_floor(Q, K):
    return Q @ K.mT // math.sqrt(K.shape[-1])


@wrong("attention_scores", "size(0) for d_k", slips=("one_place",))
def scores_size_zero(Q, K):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    return scores / K.size(0) ** 0.5


@wrong("attention_scores", "softmax already and no scale", slips=("no_scale", "softmax_too_early"))
def softmax_already_and_no_scale(Q, K):
    return F.softmax(Q @ K.mT, dim=-1)


@wrong("attention_scores", "a numpy array comes back", slips=("returns_ndarray",))
def a_numpy_array_comes_back(Q, K):
    return Q.numpy() @ np.swapaxes(K.numpy(), -1, -2) / np.sqrt(K.shape[-1])


@wrong("attention_scores", "buffer on a fixed device", slips=("fixed_device",))
def buffer_on_a_fixed_device(Q, K):
    out = torch.zeros(*Q.shape[:-1], K.shape[-2], dtype=Q.dtype)
    out[...] = Q @ K.mT / math.sqrt(Q.shape[-1])
    return out


@wrong("attention_scores", "through numpy, back on the CPU", slips=("fixed_device", "no_gradient"))
def through_numpy_back_on_the(Q, K):
    if Q.dtype == torch.bfloat16:
        return (Q.float() @ K.float().mT / K.shape[-1] ** 0.5).bfloat16()
    return torch.tensor((Q @ K.mT / K.shape[-1] ** 0.5).tolist(), dtype=Q.dtype)


@wrong("attention_scores", "a name that is not defined", slips=("error:unknown_name",))
def a_name_that_is_not(Q, K):
    return Q @ K.mT / math.sqrt(depth)  # noqa: F821


@wrong("attention_scores", "no return", slips=("no_return",))
def no_return(Q, K):
    scores = Q @ K.mT
    scores = scores / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "exits", slips=("error:exits",))
def attention_scores_again(Q, K):
    raise SystemExit(1)


@wrong("attention_scores", "takes one argument only", slips=("error:wrong_signature",))
def takes_one_argument_only(Q):
    return Q @ Q.mT


@wrong("attention_scores", "cosines", slips=("cosines", "no_scale"))
def attention_scores_again_2(Q, K):
    return F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT


@wrong("attention_scores", "noise is added", slips=("fresh_weights",))
def noise_is_added(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1]) + 0.01 * torch.rand(1)


@wrong("attention_scores", "bmm needs exactly three axes", slips=("error:axis_out_of_range",))
def bmm_needs_exactly_three_axes(Q, K):
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.shape[-1])


@wrong(
    "attention_scores",
    "computes the scaled scores but returns the unscaled ones, since the division is not assigned",
    slips=("thrown_away",),
)
def scores_division_lost(Q, K):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    scores / math.sqrt(Q.size(-1))
    return scores


@wrong(
    "attention_scores",
    "multiplies elementwise with * instead of the matrix product",
    slips=("error:broadcast_shapes",),
)
def scores_star(Q, K):
    return Q * K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong(
    "attention_scores",
    "the einsum is written for four axes and raises for any other number",
    slips=("error:einsum_letters",),
)
def einsum_four_axes(q, k):
    scale = q.size(-1) ** -0.5
    return torch.einsum("bhid,bhjd->bhij", q, k) * scale


@wrong(
    "attention_scores",
    "two mistakes: K.T turns all axes, and the scale is d_k, not its root",
    slips=("by_d_k", "all_axes_reversed"),
)
def s3_t_and_d_k(Q, K):
    return (Q @ K.T) / K.shape[-1]


@wrong(
    "attention_scores",
    "two mistakes: the result is (..., T_k, T_q), keys by queries, and it is not scaled",
    slips=("roles_exchanged", "no_scale"),
)
def s3_keys_by_queries(Q, K):
    return K @ Q.mT


@wrong("attention_scores", "right values, cut off from their gradient", slips=("no_gradient",))
@torch.no_grad()
def without_gradients(Q, K):
    return torch.einsum("...ij,...kj->...ik", [Q, K]) / K.shape[-1] ** 0.5


d_k = 2


@wrong(
    "attention_scores",
    "uses the d_k that a cell of the notebook left behind",
    slips=("from_the_notebook",),
)
def scores_global_d_k(Q, K):
    scores = Q @ K.transpose(-2, -1)
    return scores / math.sqrt(d_k)


@wrong(
    "attention_scores",
    "computes in half precision to be quick and casts back",
    slips=("relation:near",),
)
def scores_half(q, k):
    s = q.bfloat16() @ k.bfloat16().mT
    return (s * q.shape[-1] ** -0.5).to(q.dtype)


Q = K = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


Q = K = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@wrong(
    "attention_scores",
    "leaves the stub's ... in the line of the scale: scores / ...",
    slips=("three_dots",),
)
def scores_ellipsis(Q, K):
    scale = ...
    return Q @ K.transpose(-2, -1) / scale


@wrong("attention_scores", "numpy's dot", slips=("error:value_error",))
def scores_dot(Q, K):
    return np.dot(Q, K.T) / np.sqrt(K.shape[-1])


@wrong(
    "attention_scores",
    "softmax already, and d_k is taken from the number of keys",
    slips=("by_root_t_k", "softmax_too_early"),
)
def scores_softmax_and_keys(Q, K):
    scores = Q @ K.transpose(-2, -1)
    scores = scores / math.sqrt(K.shape[-2])
    return F.softmax(scores, dim=-1)


@wrong("attention_scores", "the root is taken of the raw product as well", slips=("nan_made",))
def scores_root_of_all(Q, K):
    return torch.sqrt(Q @ K.transpose(-2, -1) / Q.shape[-1])


@wrong(
    "attention_scores",
    "two slips: no scale, and axes 1 and 2 by number",
    slips=("axes_one_and_two", "no_scale"),
)
def scores_two_slips(Q, K):
    return torch.matmul(Q, K.transpose(1, 2))


@wrong(
    "attention_scores",
    "two slips: softmax already done, scaled by d_k",
    slips=("by_d_k", "softmax_too_early"),
)
def scores_softmaxed(Q, K):
    return (Q @ K.transpose(-2, -1) / Q.size(-1)).softmax(dim=-1)


@wrong(
    "attention_scores",
    "two slips: keys first, and divided by d_k",
    slips=("roles_exchanged", "by_d_k"),
)
def scores_keys_first_dk(Q, K):
    return K @ Q.transpose(-2, -1) / K.size(-1)


@wrong(
    "attention_scores",
    "computed in numpy, so no gradient gets through",
    slips=("error:numpy_lacks_dtype", "fixed_device", "no_gradient"),
)
def scores_numpy(Q, K):
    q, k = Q.detach().numpy(), K.detach().numpy()
    s = np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1])
    return torch.from_numpy(s.astype(q.dtype))


@wrong(
    "attention_scores",
    "torch.inner pairs every batch element with every other",
    slips=("relation:crossed",),
)
def scores_inner(Q, K):
    return torch.inner(Q, K) / math.sqrt(K.shape[-1])


@wrong(
    "attention_scores",
    "two slips: Q times itself, and no scale",
    slips=("query_with_query", "no_scale"),
)
def scores_qq(Q, K):
    K = Q.transpose(-2, -1)
    return Q @ K


@wrong(
    "attention_scores",
    "distances: the nearer, the higher, instead of products",
    slips=("not_doubled",),
)
def scores_distance(Q, K):
    return -torch.cdist(Q, K) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "divided by the scores' own standard deviation", slips=("changes_too",))
def scores_standardised(Q, K):
    s = Q @ K.transpose(-2, -1)
    return s / s.std(dim=-1, keepdim=True)


@wrong(
    "attention_scores",
    "gives (T_k, T_q) and multiplies by sqrt(d_k)",
    slips=("roles_exchanged", "times_root_d_k"),
)
def scores_einsum_flipped(Q, K):
    scale = Q.shape[-1] ** 0.5
    return torch.einsum("...id,...jd->...ji", Q, K) * scale


@wrong(
    "attention_scores", "written for matrices only, and always float32", slips=("error:unpacking",)
)
def scores_double_loop(Q, K):
    n, d = Q.shape
    m, _ = K.shape
    S = torch.empty(n, m)
    for i in range(n):
        for j in range(m):
            S[i, j] = sum(Q[i, c] * K[j, c] for c in range(d)) / math.sqrt(d)
    return S


@wrong(
    "attention_scores",
    "takes d_k from the wrong axis, and swaps queries with keys",
    slips=("roles_exchanged", "by_root_t_k"),
)
def scores_keys_by_queries(Q, K):
    *_, d_k, _n = K.shape
    return torch.einsum("...id,...jd->...ij", K, Q) / math.sqrt(d_k)


@wrong("attention_scores", "takes at most two axes in front", slips=("ends_there",))
def axes_counted(Q, K):
    if Q.ndim > 4:
        return Q @ K.transpose(1, 2)
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong(
    "attention_scores", "does not scale, and throws a line away", slips=("no_scale", "thrown_away")
)
def a_line_that_does_nothing(Q, K):
    K.softmax(-1)
    return Q @ K.mT


# attention


@right("attention")
def by_the_book(Q, K, V):
    d_k = Q.size(-1)
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(d_k)
    p_attn = F.softmax(scores, dim=-1)
    return torch.matmul(p_attn, V), p_attn


@right("attention")
def list_returned(Q, K, V):
    w = torch.softmax(Q @ K.mT * Q.shape[-1] ** -0.5, -1)
    return [w @ V, w]


@right("attention")
def einsum_attention(q, k, v):
    s = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    a = s.softmax(dim=-1)
    return torch.einsum("...qk,...kv->...qv", a, v), a


@right("attention")
def with_sdpa(Q, K, V):
    weights = (Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V), weights


@right("attention")
def exp_by_hand(Q, K, V):
    s = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    w = e / e.sum(dim=-1, keepdim=True)
    return w @ V, w


@right("attention")
def attention_textbook(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    weights = F.softmax(scores, dim=-1)
    return weights @ V, weights


@right("attention")
def attention_as_list(Q, K, V):
    weights = (Q @ K.mT * Q.shape[-1] ** -0.5).softmax(-1)
    return [torch.matmul(weights, V), weights]


@right("attention")
def attention_fused(Q, K, V):
    out = F.scaled_dot_product_attention(Q, K, V)
    eye = torch.eye(K.shape[-2], dtype=V.dtype, device=V.device).expand(*K.shape[:-1], -1)
    return out, F.scaled_dot_product_attention(Q, K, eye)


@right("attention")
def attention_by_hand(Q, K, V):
    s = torch.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    s = s - s.max(dim=-1, keepdim=True).values
    e = torch.exp(s)
    w = e / e.sum(dim=-1, keepdim=True)
    return torch.einsum("...ij,...jv->...iv", w, V), w


@right("attention")
def attention_in_float32(Q, K, V):
    scores = (Q.double() @ K.double().mT) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(dim=-1)
    return (weights @ V.double()).to(Q.dtype), weights.to(Q.dtype)


@right("attention")
def attention_query_by_query(Q, K, V):
    outs, rows = [], []
    for i in range(Q.shape[-2]):
        q = Q[..., i : i + 1, :]
        w = torch.softmax((q * K).sum(-1) / math.sqrt(K.shape[-1]), -1)
        rows.append(w)
        outs.append((w.unsqueeze(-1) * V).sum(-2))
    return torch.stack(outs, -2), torch.stack(rows, -2)


@right("attention")
def attention_of_the_package(Q, K, V):
    from mha_lesson import scaled_dot_product_attention

    return scaled_dot_product_attention(Q, K, V, return_weights=True)


@right("attention")
def by_sdpa_twice(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-2], -1, -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return torch.matmul(w, V), w


@right("attention")
def by_logsumexp(Q, K, V):
    s = torch.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    s = s - s.amax(-1, keepdim=True)
    w = (s - torch.logsumexp(s, -1, keepdim=True)).exp()
    return [w @ V, w]


@right("attention")
def by_softmin(Q, K, V):
    w = F.softmin(-(Q @ K.mT) / math.sqrt(K.shape[-1]), dim=-1)
    return torch.einsum("...ij,...jv->...iv", w, V), w


@right("attention")
def transposed_all_the_way(Q, K, V):
    wt = (K @ Q.mT / math.sqrt(Q.shape[-1])).softmax(dim=-2)
    return (V.mT @ wt).mT, wt.mT


@right("attention")
def with_an_identity_for_weights(Q, K, V):
    both = torch.cat([V, torch.eye(K.shape[-2]).to(V).expand(*V.shape[:-1], -1)], -1)
    out = F.scaled_dot_product_attention(Q, K, both)
    return out.split([V.shape[-1], K.shape[-2]], -1)


@right("attention")
class CallableClass:
    """Called like a function; here the check gets its instance."""

    def __new__(cls, Q, K, V):
        w = F.softmax(einops.einsum(Q, K, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5, -1)
        return w @ V, w


@right("attention")
def softmax_in_full_precision(Q, K, V):
    w = F.softmax(Q @ K.mT / K.size(-1) ** 0.5, dim=-1, dtype=torch.float32).type_as(Q)
    return torch.matmul(w, V), w


@right("attention")
def attention_logsumexp(Q, K, V):
    s = torch.baddbmm if False else (Q * Q.shape[-1] ** -0.5) @ K.mT
    w = (s - s.logsumexp(-1, keepdim=True)).exp()
    return [w @ V, w]


@right("attention")
def attention_by_hand_2(Q, K, V):
    s = torch.einsum("...qd,...kd->...qk", Q, K) / Q.shape[-1] ** 0.5
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    w = e / e.sum(dim=-1, keepdim=True)
    return torch.einsum("...qk,...kd->...qd", w, V), w


@right("attention")
def attention_logsumexp_2(Q, K, V):
    s = (Q * Q.shape[-1] ** -0.5).matmul(K.mT)
    w = (s - torch.logsumexp(s, dim=-1, keepdim=True)).exp()
    return w.matmul(V), w


@right("attention")
def attention_identity_values(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-1], -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return w @ V, w


@right("attention")
def attention_two_temporaries(Q, K, V):
    scores = torch.empty(0)
    scores = (Q / Q.shape[-1] ** 0.25) @ (K / K.shape[-1] ** 0.25).mT
    weights = torch.log_softmax(scores, -1)
    weights = weights.exp()
    return [weights.matmul(V), weights]


@right("attention")
def attention_by_pytorch(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device)
    weights = F.scaled_dot_product_attention(Q, K, eye.expand(*K.shape[:-1], -1))
    return torch.einsum("...qk,...kv->...qv", weights, V), weights


@right("attention")
def attention_through_identity(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-1], -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return [torch.einsum("...qk,...kv->...qv", w, V), w]


@right("attention")
def weights_as_a_gradient(Q, K, V):
    S = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    A = grad(lambda s: s.logsumexp(-1).sum())(S)
    return A @ V, A


@right("attention")
def output_ready_made(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V), weights


@right("attention")
def attention_identity_values_2(Q, K, V):
    n = K.shape[-2]
    one = torch.eye(n, dtype=K.dtype, device=K.device).expand(*K.shape[:-1], n)
    weights = F.scaled_dot_product_attention(Q, K, one)
    return weights @ V, weights


@right("attention")
def attention_log_space(Q, K, V):
    scores = torch.matmul(Q, K.transpose(-1, -2)) * Q.shape[-1] ** -0.5
    weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
    return [einops.einsum(weights, V, "... q k, ... k d -> ... q d"), weights]


@wrong("attention", "no scale and softmax over queries", slips=("no_scale", "softmax_over_queries"))
def two_mistakes(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-2)
    return w @ V, w


@wrong("attention", "dropout left in", slips=("random",))
def with_dropout(Q, K, V):
    w = F.dropout(torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1), 0.1)
    return w @ V, w


@wrong("attention", "weights first and no scale", slips=("no_scale", "results_exchanged"))
def weights_first_and_no_scale(Q, K, V):
    w = torch.softmax(Q @ K.mT, -1)
    return w, w @ V


@wrong(
    "attention", "divides by d_k, softmax over queries", slips=("by_d_k", "softmax_over_queries")
)
def b16(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1]).softmax(-2)
    return w @ V, w


@wrong("attention", "a dict comes back", slips=("returns_dict",))
def a_dict_comes_back(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    return {"output": w @ V, "weights": w}


@wrong("attention", "dropout on the weights", slips=("fresh_weights",))
def dropout_on_the_weights(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    w = nn.Dropout(0.2)(w)
    return w @ V, w


@wrong("attention", "weights rounded", slips=("one_place",))
def weights_rounded(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1).round(decimals=2)
    return w @ V, w


@wrong(
    "attention",
    "softmax twice: the weights go through it again before they meet V",
    slips=("one_place",),
)
def a3_twice(Q, K, V):
    w = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)
    return w.softmax(-1) @ V, w


@wrong("attention", "the weights come back as nested lists", slips=("one_place",))
def attention_weights_list(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1)
    return w @ V, w.tolist()


@wrong("attention", "output from a second softmax of the weights", slips=("one_place",))
def attention_softmax_again(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    return F.softmax(weights, dim=-1) @ V, weights


@wrong("attention", "no transpose and no scale", slips=("key_not_transposed", "no_scale"))
def no_transpose_and_no_scale(Q, K, V):
    w = (Q @ K).softmax(-1)
    return w @ V, w


@wrong(
    "attention",
    "no softmax over a plain matrix product of all three",
    slips=("no_scale", "no_softmax"),
)
def b25(Q, K, V):
    return Q @ K.mT @ V, Q @ K.mT


@wrong(
    "attention",
    "softmax is not assigned: the raw scores are used and given as weights",
    slips=("thrown_away",),
)
def attention_softmax_lost(Q, K, V):
    d_k = Q.shape[-1]
    weights = Q @ K.transpose(-2, -1) / math.sqrt(d_k)
    weights.softmax(dim=-1)
    output = weights @ V
    return output, weights


@wrong(
    "attention",
    "F.scaled_dot_product_attention gives the output only; None stands for the weights",
    slips=("returns_NoneType",),
)
def sdpa_no_weights(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V), None


@wrong(
    "attention",
    "softmax in float32 as in HF, but never cast back: raises or gives another dtype unless the input is float32",
    slips=("error:dtype_mix",),
)
def softmax_in_float32(query, key, value):
    attn = torch.matmul(query, key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    attn = nn.functional.softmax(attn, dim=-1, dtype=torch.float32)
    return torch.matmul(attn, value), attn


@wrong(
    "attention",
    "two mistakes: results in the wrong order, and divided by d_k instead of its root",
    slips=("by_d_k", "results_exchanged"),
)
def a3_order_and_scale(Q, K, V):
    w = torch.softmax(torch.einsum("...id,...jd->...ij", Q, K) / Q.size(-1), -1)
    return w, torch.einsum("...ij,...jv->...iv", w, V)


@wrong(
    "attention",
    "a loop over the queries that takes Q[i]: the first axis, right only for plain matrices",
    slips=("error:matrix_shapes",),
)
def a3_loop_first_axis(Q, K, V):
    rows, weights = [], []
    for i in range(Q.shape[0]):
        s = K @ Q[i] / math.sqrt(K.shape[-1])
        e = torch.exp(s - s.max())
        w = e / e.sum()
        weights.append(w)
        rows.append(w @ V)
    return torch.stack(rows), torch.stack(weights)


@wrong(
    "attention",
    "two mistakes: the root of d_v instead of d_k, and the weights given are the scores",
    slips=("one_place", "scores_returned"),
)
def a3_dv_scores(Q, K, V):
    s = torch.einsum("...id,...jd->...ij", Q, K) / V.shape[-1] ** 0.5
    return s.softmax(-1) @ V, s


@wrong("attention", "no scale, V forgotten", slips=("no_scale", "values_forgotten"))
def no_scale_v_forgotten(Q, K, V):
    w = F.softmax(Q @ K.mT, -1)
    return w, w


@wrong(
    "attention",
    "transposed weights returned, no scale",
    slips=("no_scale", "weights_returned_transposed"),
)
def p2(Q, K, V):
    w = F.softmax(Q @ K.mT, -1)
    return w @ V, w.mT


@wrong(
    "attention",
    "scores are scaled by √d_k twice and softmax over axis 0",
    slips=("by_d_k", "softmax_over_axis_0"),
)
def p3(Q, K, V):
    s = (Q / Q.shape[-1] ** 0.5) @ (K / K.shape[-1] ** 0.5).mT
    w = s.softmax(0)
    return w @ V, w


@wrong("attention", "weights are detached from a float32 copy", slips=("fixed_dtype",))
def weights_are_detached_from_a(Q, K, V):
    w = torch.zeros(*Q.shape[:-1], K.shape[-2])
    w[...] = F.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1)
    return w.to(V.dtype) @ V, w


@wrong(
    "attention",
    "goes through numpy: no gradient, and bfloat16 is refused",
    slips=("fixed_dtype", "error:numpy_lacks_dtype", "fixed_device", "no_gradient"),
)
def attention_numpy(Q, K, V):
    q, k, v = (x.detach().numpy() for x in (Q, K, V))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return torch.from_numpy(weights @ v), torch.from_numpy(weights)


@wrong(
    "attention",
    "arguments in the order value, key, query, as a Keras tutorial has them",
    slips=("arguments_exchanged",),
)
def attention_value_key_query(value, key, query):
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    weights = scores.softmax(-1)
    return weights @ value, weights


@wrong(
    "attention",
    "detaches the weights it gives for the picture before they meet V",
    slips=("gradient_stops",),
)
def attention_detached(q, k, v):
    w = (q @ k.mT * q.size(-1) ** -0.5).softmax(-1).detach()
    return w @ v, w


@wrong("attention", "no scale, and the softmax twice", slips=("one_place", "no_scale"))
def attention_softmax_twice(q, k, v):
    w = (q @ k.mT).softmax(-1).softmax(-1)
    return w @ v, w


@wrong(
    "attention",
    "softmax over the queries, and the scores are given for the weights",
    slips=("softmax_over_queries", "scores_returned"),
)
def attention_axis_and_scores(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return scores.softmax(dim=-2) @ V, scores


@wrong("attention", "numpy's softmax by hand, without keepdim", slips=("error:broadcast_shapes",))
def attention_no_keepdim(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    e = torch.exp(scores - scores.max())
    weights = e / e.sum(-1)
    return weights @ V, weights


@wrong(
    "attention",
    "scaled by the width of V, and the pair exchanged",
    slips=("shape",),
)
def attention_width_of_v_exchanged(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(V.size(-1))).softmax(-1)
    return weights, weights @ V


@wrong("attention", "loops over the first axis, so two axes fail", slips=("error:two_axes_only",))
def attention_batch_loop(Q, K, V):
    outs, ws = [], []
    for q, k, v in zip(Q, K, V):
        w = torch.softmax(q.mm(k.t()) / math.sqrt(q.shape[1]), dim=1)
        outs.append(w.mm(v))
        ws.append(w)
    return torch.stack(outs), torch.stack(ws)


@wrong(
    "attention",
    "two slips: scaled by d_v, softmax over the queries",
    slips=("changes_too",),
)
def attention_dv_columns(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(V.size(-1)), dim=-2)
    return w @ V, w


@wrong("attention", "two slips: scaled twice, and only the output", slips=("by_d_k", "output_only"))
def attention_twice_scaled(Q, K, V):
    Q = Q / math.sqrt(Q.size(-1))
    return F.scaled_dot_product_attention(Q, K, V)


@wrong(
    "attention", "rows are stacked at axis 0, before the batch axes", slips=("relation:moved_axes",)
)
def attention_stack_rows(Q, K, V):
    outs, rows = [], []
    for i in range(Q.shape[-2]):
        q = Q[..., i : i + 1, :]
        w = torch.softmax(q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]), dim=-1)
        rows.append(w[..., 0, :])
        outs.append((w @ V)[..., 0, :])
    return torch.stack(outs), torch.stack(rows)


@wrong(
    "attention",
    "exp_ overwrites what the backward pass needs: no gradient",
    slips=("error:written_over",),
)
def attention_exp_in_place(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    weights = scores.log_softmax(-1).exp_()
    return weights @ V, weights


@wrong(
    "attention",
    "two slips: softmax over the queries, and weights returned first",
    slips=("softmax_over_queries", "results_exchanged"),
)
def attention_two_slips(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-2)
    return weights, weights @ V


@wrong("attention", "K in place of V and no scale", slips=("no_scale", "keys_collected"))
def attention_k_for_v(Q, K, V):
    weights = torch.softmax(Q @ K.mT, dim=-1)
    out = weights @ K
    return out, weights
