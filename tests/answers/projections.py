"""Projections and their parameters (3 and 4): right in many styles, and wrong."""

from einops import rearrange
from torch import nn
import functools
import math
import numpy as np
import operator
import torch
import torch.nn.functional as F

from answers import right, wrong


# project_qkv


@right("project_qkv")
def chunked(X, W):
    return (X @ W.T).chunk(3, dim=-1)


@right("project_qkv")
def linear_split(X, W_qkv):
    return F.linear(X, W_qkv).split(X.shape[-1], dim=-1)


@right("project_qkv")
def three_products(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3, dim=0)
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@right("project_qkv")
def sliced(X, W_qkv):
    d = X.shape[2]
    out = torch.einsum("btd,ed->bte", X, W_qkv)
    return out[..., :d], out[..., d : 2 * d], out[..., 2 * d :]


@right("project_qkv")
def chunked_2(X, W):
    return (X @ W.T).chunk(3, dim=-1)


@right("project_qkv")
def three_products_2(X, W_qkv):
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


@right("project_qkv")
def three_products_3(X, W):
    return [X @ w.T for w in W.view(3, -1, W.shape[1])]


@right("project_qkv")
def from_the_left(X, W):
    y = (W @ X.mT).mT
    d = W.shape[1]
    return y[..., :d], y[..., d:-d], y[..., -d:]


@right("project_qkv")
def einsum_three(X, W):
    return tuple(torch.einsum("btc,noc->nbto", X, W.reshape(3, -1, W.size(-1))))


@right("project_qkv")
def with_conv(X, W):
    y = F.conv1d(X.mT, W[:, :, None]).mT
    return torch.split(y, [X.shape[-1]] * 3, dim=-1)


@right("project_qkv")
def with_fresh_layers(X, W):
    outs = []
    for block in W.chunk(3):
        layer = nn.Linear(X.shape[-1], X.shape[-1], bias=False).to(X.device, X.dtype)
        with torch.no_grad():
            layer.weight.copy_(block)
        outs.append(layer(X))
    return outs


@right("project_qkv")
def with_unflatten(X, W):
    return W.unflatten(0, (3, -1)).matmul(X.mT[:, None]).mT.unbind(1)


@right("project_qkv")
def project_by_unflatten(X, W_qkv):
    return tuple(torch.einsum("btd,ked->kbte", X, W_qkv.unflatten(0, (3, -1))))


@right("project_qkv")
def project_slices(X, W_qkv):
    d = X.size(2)
    out = torch.matmul(X, W_qkv.t())
    return [out[:, :, 0:d], out[:, :, d : 2 * d], out[:, :, 2 * d :]]


@right("project_qkv")
def project_three(X, W_qkv):
    wq, wk, wv = W_qkv.split(X.shape[-1])
    return X @ wq.mT, X @ wk.mT, X @ wv.mT


@right("project_qkv")
def project_einsum(X, W_qkv):
    d = X.shape[-1]
    return tuple(torch.einsum("btd,ned->nbte", X, W_qkv.reshape(3, d, d)))


@right("project_qkv")
def project_unflatten(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(2, (3, -1)).unbind(dim=2)
    return q, k, v


@right("project_qkv")
def project_parallel(X, W_qkv):
    d_model = X.size(-1)
    qkv = torch.einsum("bti,oi->obt", X, W_qkv)
    return tuple(part.permute(1, 2, 0) for part in qkv.split(d_model))


@right("project_qkv")
def project_einsum_2(X, W_qkv):
    W = W_qkv.reshape(3, -1, X.shape[-1])
    return list(torch.einsum("btm,com->cbto", X, W))


@right("project_qkv")
def project_by_bmm(X, W_qkv):
    W = rearrange(W_qkv, "(s o) i -> s i o", s=3)
    return tuple(torch.einsum("bti,sio->sbto", X, W))


@right("project_qkv")
def project_unflatten_2(X, W_qkv):
    return F.linear(X, W_qkv).unflatten(-1, (3, -1)).unbind(dim=-2)


@right("project_qkv")
def project_three_products(X, W_qkv):
    d_model = X.size(2)
    return [torch.einsum("btd,od->bto", X, W) for W in W_qkv.split(d_model)]


@wrong("project_qkv", "no transpose", slips=("error:matrix_shapes",))
def no_transpose(X, W):
    return (X @ W).chunk(3, -1)


@wrong("project_qkv", "reshaped weight, order K Q V", slips=("results_102", "weight_reshaped"))
def reshaped_weight_order_k_q(X, W):
    Q, K, V = (X @ W.reshape(W.shape[1], -1)).chunk(3, -1)
    return K, Q, V


@wrong("project_qkv", "a fresh random layer", slips=("fresh_weights",))
def a_fresh_random_layer(X, W):
    layer = nn.Linear(X.shape[-1], 3 * X.shape[-1], bias=False).to(X)
    return layer(X).chunk(3, -1)


@wrong("project_qkv", "gives time first, (T, B, d_model)", slips=("one_place",))
def time_first(X, W_qkv):
    return F.linear(X.transpose(0, 1), W_qkv).chunk(3, dim=-1)


@wrong("project_qkv", "drops the batch", slips=("one_place",))
def drops_the_batch(X, W):
    return (X[0] @ W.T).chunk(3, -1)


@wrong("project_qkv", "X is added to each, as in a residual stream", slips=("one_place",))
def project_residual(X, W_qkv):
    return [X + part for part in (X @ W_qkv.T).chunk(3, dim=-1)]


@wrong(
    "project_qkv",
    "rearranged rightly to (B, 3, T, d_model), but unbound along the tokens (dim=2) instead of the three (dim=1): T pieces",
    slips=("one_place",),
)
def p3_unbind(X, W_qkv):
    y = rearrange(X @ W_qkv.T, "b t (n d) -> b n t d", n=3)
    return y.unbind(2)


@wrong("project_qkv", "too many to unpack", slips=("error:unpacking",))
def too_many_to_unpack(X, W):
    Q, K, V = X @ W.T
    return Q, K, V


@wrong(
    "project_qkv",
    "two mistakes: cut along the tokens instead of the features, and the three pieces are given in reverse order",
    slips=("one_place", "results_210"),
)
def p3_tokens_reversed(X, W):
    return tuple(reversed((X @ W.T).chunk(3, dim=1)))


@wrong(
    "project_qkv",
    "chunks W along the wrong axis, before a product with its thirds",
    slips=("error:shape_for_view",),
)
def project_chunk_columns(X, W):
    d = X.shape[-1]
    return tuple(X @ w.reshape(d, d) for w in W.chunk(3, dim=1))


@wrong(
    "project_qkv",
    "F.linear with the three thirds added up: Q, K and V are the same",
    slips=("changes_too",),
)
def project_same_three(X, W):
    y = F.linear(X, W.unflatten(0, (3, -1)).sum(0))
    return y, y, y


torch_generator = torch.Generator().manual_seed(0)


X = torch.randn(17, 6, generator=torch_generator)


@wrong(
    "project_qkv",
    "every third column, and the order K, Q, V",
    slips=("dealt_like_cards", "results_102"),
)
def project_third_and_order(X, W_qkv):
    both = X @ W_qkv.T
    return both[..., 1::3], both[..., 0::3], both[..., 2::3]


@wrong("project_qkv", "chunks along the batch", slips=("cut_through_batch", "error:unpacking"))
def project_chunk_batch(X, W_qkv):
    q, k, v = (X @ W_qkv.T).chunk(3)
    return q, k, v


@wrong(
    "project_qkv",
    "two slips: blocks not transposed, K and V exchanged",
    slips=("results_021", "blocks_not_transposed"),
)
def project_two_slips(X, W_qkv):
    wq, wk, wv = W_qkv.chunk(3, dim=0)
    q, k, v = (X @ torch.cat((wq, wk, wv), dim=1)).chunk(3, dim=2)
    return q, v, k


@wrong(
    "project_qkv",
    "two slips: interleaved, and order K, V, Q",
    slips=("dealt_like_cards", "results_120"),
)
def project_interleaved_order(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(-1, (-1, 3)).unbind(-1)
    return k, v, q


@wrong("project_qkv", "split(3) cuts pieces of 3 columns, not 3 pieces", slips=("shape",))
def project_split_three(X, W_qkv):
    return torch.split(X @ W_qkv.T, 3, dim=-1)[:3]


@wrong(
    "project_qkv", "cuts along axis 1, the tokens", slips=("cut_through_tokens", "error:unpacking")
)
def project_chunk_tokens(X, W_qkv):
    Y = torch.einsum("btd,ed->bte", X, W_qkv)
    q, k, v = torch.chunk(Y, 3, dim=1)
    return q, k, v


@wrong("project_qkv", "returns all three side by side, uncut", slips=("thrown_away",))
def project_uncut(X, W_qkv):
    qkv = X @ W_qkv.T
    qkv.chunk(3, dim=-1)
    return qkv


# count_parameters


@right("count_parameters")
def four_terms(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + n_heads * d_k * d_model


@right("count_parameters")
def from_modules(d_model, n_heads, d_k):
    layers = [nn.Linear(d_model, n_heads * d_k, bias=False) for _ in range(3)]
    layers.append(nn.Linear(n_heads * d_k, d_model, bias=False))
    return sum(p.numel() for layer in layers for p in layer.parameters())


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


@right("count_parameters")
def on_meta(d_model, n_heads, d_k):
    a = torch.empty(3 * n_heads * d_k, d_model, device="meta")
    return a.numel() + torch.empty(d_model, n_heads * d_k, device="meta").numel()


@right("count_parameters")
def shifted(d, h, k):
    return (d * h * k) << 2


@right("count_parameters")
def with_reduce(d, h, k):
    return functools.reduce(operator.mul, (4, d, h, k))


@right("count_parameters")
def with_int(d, h, k):
    return int(4.0 * d * h * k)


@right("count_parameters")
def parameters_by_shapes(d_model, n_heads, d_k):
    shapes = [(n_heads * d_k, d_model)] * 3 + [(d_model, n_heads * d_k)]
    return sum(math.prod(s) for s in shapes)


@right("count_parameters")
def count_layers(d_model, n_heads, d_k):
    layers = nn.ModuleDict(
        {n: nn.Linear(d_model, n_heads * d_k, bias=False) for n in ("q", "k", "v")}
    )
    layers["o"] = nn.Linear(n_heads * d_k, d_model, bias=False)
    return sum(p.numel() for p in layers.parameters())


@right("count_parameters")
def count_meta(d_model, n_heads, d_k):
    wide = n_heads * d_k
    with torch.device("meta"):
        shapes = torch.empty(3 * wide, d_model), torch.empty(d_model, wide)
    return sum(math.prod(s.shape) for s in shapes)


@right("count_parameters")
def count_per_head(d_model, n_heads, d_k):
    per_head = 3 * d_k * d_model + d_model * d_k
    return sum(per_head for _ in range(n_heads))


@right("count_parameters")
def params_meta(d_model, n_heads, d_k):
    w = torch.empty(n_heads * d_k, d_model, device="meta")
    return 3 * w.numel() + w.T.numel()


@right("count_parameters")
def parameters_of_layers(d_model, n_heads, d_k):
    inner = n_heads * d_k
    into = [torch.empty(inner, d_model, device="meta") for _ in "qkv"]
    return sum(w.numel() for w in [*into, torch.empty(d_model, inner, device="meta")])


@wrong(
    "count_parameters", "full width for every head", slips=("full_width_heads", "square_outward")
)
def d8(d, h, k):
    return 3 * h * d * d + d * d


@wrong("count_parameters", "W_o forgotten, and a float", slips=("two_projections", "as_float"))
def w_o_forgotten_and_a(d, h, k):
    return 3.0 * d * h * k


@wrong("count_parameters", "adds 7", slips=("one_place",))
def count_parameters_again(d, h, k):
    return 4 * d * h * k + 7


@wrong("count_parameters", "exchanged roles: d_k squared", slips=("one_place",))
def exchanged_roles_d_k_squared(d, h, k):
    return 4 * h * k * k


@wrong("count_parameters", "adds the feed-forward layer of 8 d_model²", slips=("one_place",))
def parameters_with_ffn(d_model, n_heads, d_k):
    return 4 * d_model * n_heads * d_k + 8 * d_model**2


@wrong(
    "count_parameters",
    "W_o goes from d_model to h · d_k and is counted twice",
    slips=("one_place",),
)
def parameters_five(d_model, h, d_k):
    return 5 * d_model * h * d_k


@wrong("count_parameters", "12 d_model², the rule of thumb for a block", slips=("formula",))
def parameters_rule_of_thumb(d_model, n_heads, d_k):
    return 12 * d_model**2


@wrong(
    "count_parameters",
    "two mistakes: W_o left out, and biases of q, k, v counted",
    slips=("two_projections", "inward_biases_in"),
)
def c3_bias_no_o(d_model, n_heads, d_k):
    return 3 * (d_model * n_heads * d_k + n_heads * d_k)


@wrong("count_parameters", "W_o per head, biases", slips=("one_head_outward", "biases_in"))
def w_o_per_head_biases(d, h, k):
    return 3 * h * (d * k + k) + k * d + d


@wrong(
    "count_parameters",
    "divides d_model by the heads and ignores the given d_k; a float",
    slips=("returns_float",),
)
def parameters_head_dim_float(d_model, n_heads, d_k):
    head_dim = d_model / n_heads
    return 3 * n_heads * d_model * head_dim + d_model * d_model


@wrong(
    "count_parameters",
    "takes W_q, W_k, W_v for (h d_k, h d_k): counts (h · d_k)²",
    slips=("from_heads_to_heads", "outward_to_heads"),
)
def parameters_inner_square(d_model, h, d_k):
    inner = h * d_k
    return 4 * inner**2


@wrong(
    "count_parameters",
    "counts a single head, and leaves out W_o",
    slips=("one_head_inward", "two_projections"),
)
def params_one_head(d_model, n_heads, d_k):
    return sum(d_model * d_k for W in ("W_q", "W_k", "W_v"))


@wrong(
    "count_parameters", "asks PyTorch, which ties d_k", slips=("square_all", "error:own_assertion")
)
def parameters_from_torch(d_model, n_heads, d_k):
    mha = nn.MultiheadAttention(d_model, n_heads, bias=False)
    return sum(p.numel() for p in mha.parameters())


@wrong("count_parameters", "numpy's number, as a float", slips=("returns_float64",))
def parameters_numpy(d_model, n_heads, d_k):
    sizes = np.array([d_model, n_heads, d_k], dtype=float)
    return 4 * np.prod(sizes)


@wrong("count_parameters", "numpy product: an np.int64 and no int", slips=("returns_int64",))
def count_np_prod(d_model, n_heads, d_k):
    return np.prod([4, d_model, n_heads, d_k])


@wrong(
    "count_parameters",
    "two slips: square matrices, and three of them",
    slips=("square_inward", "two_projections"),
)
def count_three_square(d_model, n_heads, d_k):
    return 3 * d_model**2


@wrong(
    "count_parameters",
    "two slips: one head's width, and W_o square",
    slips=("one_head_inward", "square_outward"),
)
def count_one_head_square(d_model, n_heads, d_k):
    return 3 * d_model * d_k + d_model**2


@wrong(
    "count_parameters",
    "counts the bias of W_o, which nn.Linear has by default",
    slips=("relation:gap",),
)
def params_by_linear(d_model, n_heads, d_k):
    inner = n_heads * d_k
    mods = [nn.Linear(d_model, inner, bias=False, device="meta") for _ in range(3)]
    mods.append(nn.Linear(inner, d_model, device="meta"))
    return sum(p.numel() for m in mods for p in m.parameters())


@wrong("count_parameters", "a ratio of the widths, cut to a whole number", slips=("ends_there",))
def by_a_ratio(d_model, n_heads, d_k):
    return int(4 * d_model**2 * (n_heads * d_k / d_model))
