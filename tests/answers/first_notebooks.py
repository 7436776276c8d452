"""Exercises 1 to 4, in one hand: short functions, mostly methods of tensors."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import nn

from answers import right, wrong

# --- attention_scores ----------------------------------------------------------------------------


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
    return einsum(query, key, "... q d, ... k d -> ... q k") / scale


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


@wrong("attention_scores", "no scale", slips=("no_scale",))
def a1(Q, K):
    return Q @ K.transpose(-2, -1)


@wrong("attention_scores", "divides by d_k", slips=("by_d_k",))
def a2(Q, K):
    d_k = Q.shape[-1]
    return (Q @ K.transpose(-2, -1)) / d_k


@wrong("attention_scores", "multiplies by the root", slips=("times_root_d_k",))
def a3(Q, K):
    return Q @ K.mT * math.sqrt(Q.shape[-1])


@wrong("attention_scores", "forgets the transpose", slips=("key_not_transposed",))
def a4(Q, K):
    return torch.matmul(Q, K) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "K.T on batches", slips=("all_axes_reversed",))
def a5(Q, K):
    return Q @ K.T / math.sqrt(Q.size(-1))


@wrong("attention_scores", "transposes axes 0 and 1", slips=("first_axes_exchanged",))
def a6(Q, K):
    return Q @ K.transpose(0, 1) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "transposes axes 1 and 2", slips=("axes_one_and_two",))
def a7(Q, K):
    return Q @ K.transpose(1, 2) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "root of the number of keys", slips=("by_root_t_k",))
def a8(Q, K):
    return Q @ K.mT / K.shape[-2] ** 0.5


@wrong("attention_scores", "root of the number of queries", slips=("by_root_t_q",))
def a9(Q, K):
    return Q @ K.mT / Q.shape[-2] ** 0.5


@wrong("attention_scores", "** binds before /", slips=("precedence_two",))
def a10(Q, K):
    d_k = Q.shape[-1]
    return Q @ K.mT / d_k**1 / 2


@wrong("attention_scores", "root of a half d_k")
def a11(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1] / 2)


@wrong("attention_scores", "softmax already", slips=("softmax_too_early",))
def a12(Q, K):
    return F.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=-1)


@wrong("attention_scores", "softmax already and no scale", slips=("no_scale", "softmax_too_early"))
def a13(Q, K):
    return F.softmax(Q @ K.mT, dim=-1)


@wrong("attention_scores", "K Q^T", slips=("roles_exchanged",))
def a14(Q, K):
    return K @ Q.mT / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "Q Q^T", slips=("query_with_query",))
def a15(Q, K):
    return Q @ Q.mT / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "scale on both Q and K", slips=("by_d_k",))
def a16(Q, K):
    root = math.sqrt(Q.shape[-1])
    return (Q / root) @ (K / root).mT


@wrong("attention_scores", "a numpy array comes back")
def a17(Q, K):
    return Q.numpy() @ np.swapaxes(K.numpy(), -1, -2) / np.sqrt(K.shape[-1])


@wrong("attention_scores", "a float32 detour stays float32", slips=("fixed_dtype",))
def a18(Q, K):
    return Q.float() @ K.float().mT / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "buffer on a fixed device and of a fixed dtype")
def a19(Q, K):
    out = torch.zeros(*Q.shape[:-1], K.shape[-2])
    out[...] = Q @ K.mT / math.sqrt(Q.shape[-1])
    return out


@wrong("attention_scores", "buffer on a fixed device", slips=("fixed_device",))
def a20(Q, K):
    out = torch.zeros(*Q.shape[:-1], K.shape[-2], dtype=Q.dtype)
    out[...] = Q @ K.mT / math.sqrt(Q.shape[-1])
    return out


@wrong("attention_scores", "through numpy, back on the CPU", slips=("fixed_device", "no_gradient"))
def a21(Q, K):
    if Q.dtype == torch.bfloat16:
        return (Q.float() @ K.float().mT / K.shape[-1] ** 0.5).bfloat16()
    return torch.tensor((Q @ K.mT / K.shape[-1] ** 0.5).tolist(), dtype=Q.dtype)


@wrong("attention_scores", "a name that is not defined", slips=("error:unknown_name",))
def a22(Q, K):
    return Q @ K.mT / math.sqrt(d_k)  # noqa: F821


@wrong("attention_scores", "no return", slips=("no_return",))
def a23(Q, K):
    scores = Q @ K.mT
    scores = scores / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "exits")
def a24(Q, K):
    raise SystemExit(1)


@wrong("attention_scores", "takes one argument only", slips=("error:wrong_signature",))
def a25(Q):
    return Q @ Q.mT


@wrong("attention_scores", "transposed result", slips=("roles_exchanged",))
def a26(Q, K):
    return (Q @ K.mT / math.sqrt(Q.shape[-1])).mT


@wrong("attention_scores", "cosines", slips=("cosines", "no_scale"))
def a27(Q, K):
    return F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT


@wrong("attention_scores", "noise is added")
def a28(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1]) + 0.01 * torch.rand(1)


@wrong("attention_scores", "bmm needs exactly three axes")
def a29(Q, K):
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.shape[-1])


# --- attention -----------------------------------------------------------------------------------


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


@wrong("attention", "weights first", slips=("results_exchanged",))
def b1(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1)
    return w, w @ V


@wrong("attention", "scores instead of weights", slips=("scores_returned",))
def b2(Q, K, V):
    s = Q @ K.mT / math.sqrt(Q.shape[-1])
    return torch.softmax(s, -1) @ V, s


@wrong("attention", "only the output", slips=("output_only",))
def b3(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V)


@wrong("attention", "softmax over the queries", slips=("softmax_over_queries",))
def b4(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -2)
    return w @ V, w


@wrong("attention", "softmax over axis 1", slips=("softmax_over_axis_1",))
def b5(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=1)
    return w @ V, w


@wrong("attention", "softmax without an axis", slips=("softmax_without_axis",))
def b6(Q, K, V):
    w = F.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]))
    return w @ V, w


@wrong("attention", "no softmax", slips=("no_softmax",))
def b7(Q, K, V):
    w = Q @ K.mT / math.sqrt(Q.shape[-1])
    return w @ V, w


@wrong("attention", "no scale", slips=("no_scale",))
def b8(Q, K, V):
    w = torch.softmax(Q @ K.mT, -1)
    return w @ V, w


@wrong("attention", "scale after the softmax", slips=("scaled_after_softmax",))
def b9(Q, K, V):
    w = torch.softmax(Q @ K.mT, -1) / math.sqrt(Q.shape[-1])
    return w @ V, w


@wrong("attention", "exp without subtracting the maximum", slips=("naive_exponentials",))
def b10(Q, K, V):
    e = torch.exp(Q @ K.mT / math.sqrt(Q.shape[-1]))
    w = e / e.sum(-1, keepdim=True)
    return w @ V, w


@wrong("attention", "forgets V", slips=("values_forgotten",))
def b11(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1)
    return w, w


@wrong("attention", "collects keys", slips=("keys_collected",))
def b12(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1)
    return w @ K, w


@wrong("attention", "weights transposed in the product", slips=("weights_transposed",))
def b13(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1)
    return w.mT @ V, w


@wrong("attention", "root of d_v", slips=None)
def b14(Q, K, V):
    w = torch.softmax(Q @ K.mT / math.sqrt(V.shape[-1]), -1)
    return w @ V, w


@wrong("attention", "weights first and no scale", slips=("no_scale", "results_exchanged"))
def b15(Q, K, V):
    w = torch.softmax(Q @ K.mT, -1)
    return w, w @ V


@wrong(
    "attention",
    "divides by d_k, softmax over queries",
    slips=("by_d_k", "softmax_over_queries"),
)
def b16(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1]).softmax(-2)
    return w @ V, w


@wrong("attention", "mixes by scores, returns weights", slips=("scores_mix_values",))
def b17(Q, K, V):
    s = Q @ K.mT / Q.shape[-1] ** 0.5
    w = s.softmax(-1)
    return s @ V, w


@wrong("attention", "log_softmax", slips=("log_softmax",))
def b18(Q, K, V):
    w = F.log_softmax(Q @ K.mT / Q.shape[-1] ** 0.5, dim=-1)
    return w @ V, w


@wrong("attention", "subtracts the global maximum", slips=("global_maximum",))
def b19(Q, K, V):
    s = Q @ K.mT / Q.shape[-1] ** 0.5
    e = (s - s.max()).exp()
    w = e / e.sum(-1, keepdim=True)
    return w @ V, w


@wrong("attention", "a dict comes back")
def b20(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    return {"output": w @ V, "weights": w}


@wrong("attention", "dropout on the weights", slips=("fresh_weights",))
def b21(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    w = nn.Dropout(0.2)(w)
    return w @ V, w


@wrong("attention", "V transposed")
def b22(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    return w @ V.mT, w


@wrong("attention", "weights rounded")
def b23(Q, K, V):
    w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1).round(decimals=2)
    return w @ V, w


@wrong("attention", "no transpose and no scale", slips=("key_not_transposed", "no_scale"))
def b24(Q, K, V):
    w = (Q @ K).softmax(-1)
    return w @ V, w


@wrong("attention", "no softmax over a plain matrix product of all three")
def b25(Q, K, V):
    return Q @ K.mT @ V, Q @ K.mT


# --- project_qkv ---------------------------------------------------------------------------------


@right("project_qkv")
def chunked(X, W):
    return (X @ W.T).chunk(3, dim=-1)


@right("project_qkv")
def three_products(X, W_qkv):
    d = X.shape[-1]
    W_q, W_k, W_v = W_qkv[:d], W_qkv[d : 2 * d], W_qkv[2 * d :]
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@right("project_qkv")
def functional_linear(X, W_qkv):
    Q, K, V = F.linear(X, W_qkv).split(X.size(-1), dim=-1)
    return [Q, K, V]


@right("project_qkv")
def viewed_and_unbound(X, W):
    B, T, D = X.shape
    return torch.einsum("btd,ed->bte", X, W).reshape(B, T, 3, D).unbind(2)


@right("project_qkv")
def einops_right(X, W):
    q, k, v = rearrange(X @ W.mT, "b t (three d) -> three b t d", three=3)
    return q, k, v


@right("project_qkv")
def a_real_layer(X, W):
    layer = nn.Linear(W.shape[1], W.shape[0], bias=False, device=X.device, dtype=X.dtype)
    layer.weight = nn.Parameter(W)
    return torch.tensor_split(layer(X), 3, dim=2)


@right("project_qkv")
def transposed_blocks(X, W):
    return tuple((block @ X.mT).mT for block in W.chunk(3))


@wrong("project_qkv", "order K, Q, V", slips=("results_102",))
def c1(X, W):
    K, Q, V = (X @ W.T).chunk(3, -1)
    return Q, K, V


@wrong("project_qkv", "order V, K, Q", slips=("results_210",))
def c2(X, W):
    return tuple(reversed((X @ W.T).chunk(3, -1)))


@wrong("project_qkv", "cuts through tokens", slips=("cut_through_tokens",))
def c3(X, W):
    return (X @ W.T).chunk(3, dim=1)


@wrong("project_qkv", "cuts through the batch")
def c4(X, W):
    return (X @ W.T).chunk(3)


@wrong("project_qkv", "no transpose", slips=("error:matrix_shapes",))
def c5(X, W):
    return (X @ W).chunk(3, -1)


@wrong("project_qkv", "blocks not transposed", slips=("blocks_not_transposed",))
def c6(X, W):
    a, b, c = W.chunk(3)
    return X @ a, X @ b, X @ c


@wrong("project_qkv", "columns dealt out", slips=("dealt_like_cards",))
def c7(X, W):
    Y = X @ W.T
    return Y[..., ::3], Y[..., 1::3], Y[..., 2::3]


@wrong("project_qkv", "view to (B, T, d, 3)", slips=("dealt_like_cards",))
def c8(X, W):
    B, T, D = X.shape
    return (X @ W.T).view(B, T, D, 3).unbind(-1)


@wrong("project_qkv", "view to (3, B, T, d)", slips=("cut_in_memory_order",))
def c9(X, W):
    B, T, D = X.shape
    q, k, v = (X @ W.T).view(3, B, T, D)
    return q, k, v


@wrong("project_qkv", "not cut", slips=("not_cut",))
def c10(X, W):
    return X @ W.T


@wrong("project_qkv", "the same third three times", slips=("results_000",))
def c11(X, W):
    d = X.shape[-1]
    Q = X @ W[:d].T
    K = X @ W[:d].T
    V = X @ W[:d].T
    return Q, K, V


@wrong("project_qkv", "weight reshaped instead of transposed", slips=("weight_reshaped",))
def c12(X, W):
    return (X @ W.reshape(W.shape[1], -1)).chunk(3, -1)


@wrong("project_qkv", "reshaped weight, order K Q V", slips=("results_102", "weight_reshaped"))
def c13(X, W):
    Q, K, V = (X @ W.reshape(W.shape[1], -1)).chunk(3, -1)
    return K, Q, V


@wrong("project_qkv", "a fresh random layer", slips=("fresh_weights",))
def c14(X, W):
    layer = nn.Linear(X.shape[-1], 3 * X.shape[-1], bias=False).to(X)
    return layer(X).chunk(3, -1)


@wrong("project_qkv", "scales Q by the root as well")
def c15(X, W):
    Q, K, V = (X @ W.T).chunk(3, -1)
    return Q / math.sqrt(X.shape[-1]), K, V


@wrong("project_qkv", "drops the batch")
def c16(X, W):
    return (X[0] @ W.T).chunk(3, -1)


@wrong("project_qkv", "too many to unpack", slips=("error:unpacking",))
def c17(X, W):
    Q, K, V = X @ W.T
    return Q, K, V


@wrong("project_qkv", "values are not projected", slips=("values_not_projected",))
def c18(X, W):
    d = X.shape[2]
    return X @ W[:d].T, X @ W[d : 2 * d].T, X


# --- count_parameters ----------------------------------------------------------------------------


@right("count_parameters")
def four(d_model, n_heads, d_k):
    return 4 * d_model * n_heads * d_k


@right("count_parameters")
def per_head(d, h, k):
    return sum(3 * d * k for _ in range(h)) + (h * k) * d


@right("count_parameters")
def by_building(d, h, k):
    layers = [nn.Linear(d, h * k, bias=False) for _ in range(3)] + [nn.Linear(h * k, d, bias=False)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


@right("count_parameters")
def by_integer_division(d, h, k):
    return 8 * d * h * k // 2


@wrong("count_parameters", "4 d²")
def d1(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "W_o forgotten", slips=("two_projections",))
def d2(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k


@wrong("count_parameters", "W_o square", slips=("square_outward",))
def d3(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + d_model * d_model


@wrong("count_parameters", "h forgotten", slips=("one_head",))
def d4(d_model, n_heads, d_k):
    return 4 * d_model * d_k


@wrong("count_parameters", "biases counted", slips=("biases_in",))
def d5(d, h, k):
    mats = 4 * d * h * k
    return mats + 3 * h * k + d


@wrong("count_parameters", "a float", slips=("as_float",))
def d6(d, h, k):
    return 8 * d * h * k / 2


@wrong("count_parameters", "d_k ignored")
def d7(d, h, k):
    k = d // h
    return 4 * d * h * k


@wrong("count_parameters", "full width for every head")
def d8(d, h, k):
    return 3 * h * d * d + d * d


@wrong("count_parameters", "W_o for one head", slips=("one_head_outward",))
def d9(d, h, k):
    return h * 3 * d * k + k * d


@wrong("count_parameters", "a tensor", slips=("as_tensor",))
def d10(d, h, k):
    return torch.tensor(4 * d * h * k)


@wrong("count_parameters", "W_o forgotten, and a float", slips=None)
def d11(d, h, k):
    return 3.0 * d * h * k


@wrong("count_parameters", "adds 7")
def d12(d, h, k):
    return 4 * d * h * k + 7


@wrong("count_parameters", "biases of nn.Linear come in", slips=("biases_in",))
def d13(d, h, k):
    layers = nn.ModuleList([nn.Linear(d, h * k) for _ in range(3)] + [nn.Linear(h * k, d)])
    return sum(p.numel() for p in layers.parameters())


@wrong("count_parameters", "exchanged roles: d_k squared")
def d14(d, h, k):
    return 4 * h * k * k
