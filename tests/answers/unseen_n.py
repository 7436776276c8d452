"""What a class of sixty handed in: students of physics, linguistics and computing, and others.

Formulas written as loops and outer products, examples of the notebook adapted, habits of numpy and
of other frameworks, one thing mended and another broken, and what was tried on one tiny input only.
"""

import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import einsum, rearrange, reduce, repeat
from answers import right, wrong


# --- 1 attention_scores ---


@wrong("attention_scores", "written for matrices only, and always float32")
def scores_double_loop(Q, K):
    n, d = Q.shape
    m, _ = K.shape
    S = torch.empty(n, m)
    for i in range(n):
        for j in range(m):
            S[i, j] = sum(Q[i, c] * K[j, c] for c in range(d)) / math.sqrt(d)
    return S


@wrong("attention_scores", "scales by the root of the number of keys")
def scores_by_number_of_keys(Q, K):
    scores = torch.matmul(Q, K.transpose(-2, -1))
    return scores / scores.size(-1) ** 0.5


@wrong("attention_scores", "the fourth root is divided out of Q only, not out of K")
def scores_fourth_root_half(Q, K):
    d_k = Q.shape[-1]
    c = d_k**-0.25
    Q = Q * c
    return torch.einsum("...qd,...kd->...qk", Q, K)


@wrong("attention_scores", "gives cosines: vectors are normalised instead of scaled")
def scores_as_cosines(Q, K):
    return F.cosine_similarity(Q.unsqueeze(-2), K.unsqueeze(-3), dim=-1)


@wrong("attention_scores", "takes d_k from the wrong axis, and swaps queries with keys")
def scores_keys_by_queries(Q, K):
    *_, d_k, _n = K.shape
    return torch.einsum("...id,...jd->...ij", K, Q) / math.sqrt(d_k)


@right("attention_scores")
def scores_mean_times_root(Q, K):
    prod = Q[..., :, None, :] * K[..., None, :, :]
    return prod.mean(-1) * math.sqrt(Q.shape[-1])


# --- 2 attention ---


@wrong("attention", "subtracts the maximum of the whole tensor, so low rows underflow to 0/0")
def attention_global_max(Q, K, V):
    s = Q @ K.mT / math.sqrt(K.shape[-1])
    e = torch.exp(s - s.max())
    w = e / e.sum(dim=-1, keepdim=True)
    return w @ V, w


@wrong("attention", "softmax over axis 1, which is the keys only without a batch")
def attention_axis_one(Q, K, V):
    d_k = Q.size(-1)
    scores = torch.matmul(Q, K.transpose(-2, -1)) / d_k**0.5
    weights = F.softmax(scores, dim=1)
    return torch.matmul(weights, V), weights


@wrong("attention", "divides by the root after the softmax")
def attention_scale_late(Q, K, V):
    w = torch.softmax(Q @ K.mT, dim=-1) / math.sqrt(Q.shape[-1])
    return (w @ V, w)


@wrong("attention", "gives the scores before the softmax as weights")
def attention_sdpa_and_scores(Q, K, V):
    out = F.scaled_dot_product_attention(Q, K, V)
    weights = torch.einsum("...qd,...kd->...qk", Q, K) * Q.shape[-1] ** -0.5
    return out, weights


@wrong("attention", "the sum lacks keepdim, so rows are divided by other rows' sums")
def attention_sum_no_keepdim(Q, K, V):
    s = Q @ K.mT / Q.shape[-1] ** 0.5
    s = s - s.max(-1, keepdim=True).values
    num = torch.exp(s)
    w = num / num.sum(-1)
    return w @ V, w


@wrong("attention", "the output is made as wide as Q, so d_v must be d_k")
def attention_filled_by_rows(Q, K, V):
    w = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    out = torch.zeros_like(Q)
    for i in range(Q.shape[-2]):
        out[..., i, :] = (w[..., i, :, None] * V).sum(-2)
    return out, w


@wrong("attention", "leaves dropout on the weights")
def attention_with_dropout(Q, K, V):
    attn = Q @ K.transpose(-1, -2)
    attn = attn / math.sqrt(Q.size(-1))
    attn = F.dropout(F.softmax(attn, dim=-1), p=0.1)
    return attn @ V, attn


@wrong("attention", "scales by the root of d_v, and returns weights before output")
def attention_dv_swapped(Q, K, V):
    scale = V.shape[-1] ** -0.5
    w = torch.softmax(scale * (Q @ K.mT), -1)
    return w, w @ V


@wrong("attention", "blocks the future, and returns the output alone")
def attention_gpt_style(Q, K, V):
    n, m = Q.shape[-2], K.shape[-2]
    att = (Q @ K.mT) * (1.0 / math.sqrt(K.size(-1)))
    bias = torch.tril(torch.ones(n, m, device=Q.device))
    att = att.masked_fill(bias == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    return att @ V


@right("attention")
def attention_through_identity(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-1], -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return [torch.einsum("...qk,...kv->...qv", w, V), w]


# --- 3 project_qkv ---


@wrong("project_qkv", "reshapes W to (d, 3d) instead of transposing it")
def project_reshaped_W(X, W_qkv):
    d = X.shape[-1]
    Y = X @ W_qkv.reshape(d, 3 * d)
    return Y[..., :d], Y[..., d : 2 * d], Y[..., 2 * d :]


@wrong("project_qkv", "multiplies by W without the transpose, which does not fit")
def project_no_transpose(X, W_qkv):
    QKV = torch.matmul(X, W_qkv)
    Q, K, V = torch.chunk(QKV, 3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "cuts the product with chunk on axis 0, the batch")
def project_chunk_batch(X, W_qkv):
    return F.linear(X, W_qkv).chunk(3)


@wrong("project_qkv", "views the product as (3, B, T, d), mixing tokens with parts")
def project_view_three_first(X, W_qkv):
    B, T, d = X.shape
    qkv = torch.einsum("bti,oi->bto", X, W_qkv)
    qkv = qkv.reshape(3, B, T, d)
    return qkv[0], qkv[1], qkv[2]


@wrong("project_qkv", "takes every third row as Q, K, V")
def project_strided_rows(X, W_qkv):
    W_q, W_k, W_v = W_qkv[0::3], W_qkv[1::3], W_qkv[2::3]
    return tuple(X @ W.T for W in (W_q, W_k, W_v))


@wrong("project_qkv", "the slice of V stops one before the end")
def project_v_short(X, W_qkv):
    d = W_qkv.shape[1]
    Y = X @ W_qkv.mT
    Q = Y[:, :, 0:d]
    K = Y[:, :, d : 2 * d]
    V = Y[:, :, 2 * d : -1]
    return (Q, K, V)


@wrong("project_qkv", "Linear adds a random bias, and its float32 bias clashes with other dtypes")
def project_with_linear(X, W_qkv):
    out_features, in_features = W_qkv.shape
    lin = nn.Linear(in_features, out_features)
    lin.weight = nn.Parameter(W_qkv)
    return torch.tensor_split(lin(X), 3, dim=2)


@wrong("project_qkv", "the queries come already divided by the root of d_model")
def project_scaled_queries(X, W_qkv):
    d = X.shape[-1]
    Wq, Wk, Wv = W_qkv.view(3, d, d)
    return X @ Wq.T / math.sqrt(d), X @ Wk.T, X @ Wv.T


@wrong("project_qkv", "each part lacks the transpose, and keys and values are swapped")
def project_parts_plain(X, W_qkv):
    d = X.shape[2]
    Q = X @ W_qkv[:d]
    V = X @ W_qkv[d : 2 * d]
    K = X @ W_qkv[2 * d :]
    return Q, K, V


@right("project_qkv")
def project_by_bmm(X, W_qkv):
    W = rearrange(W_qkv, "(s o) i -> s i o", s=3)
    return tuple(torch.einsum("bti,sio->sbto", X, W))


# --- 4 count_parameters ---


@wrong("count_parameters", "assumes h * d_k = d_model")
def params_square(d_model, n_heads, d_k):
    d_k = d_model // n_heads
    return 4 * d_model * n_heads * d_k


@wrong("count_parameters", "counts W_o as d_model by d_model")
def params_square_wo(d_model, n_heads, d_k):
    per_head = 3 * d_model * d_k
    return n_heads * per_head + d_model**2


@wrong("count_parameters", "counts one d_k-wide W_o for all heads together")
def params_thin_wo(d_model, n_heads, d_k):
    w_q = w_k = w_v = n_heads * d_model * d_k
    w_o = d_k * d_model
    return w_q + w_k + w_v + w_o


@wrong("count_parameters", "counts the biases too")
def params_module(d_model, n_heads, d_k):
    inner = n_heads * d_k
    layers = [nn.Linear(d_model, inner) for _ in "qkv"] + [nn.Linear(inner, d_model)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


@wrong("count_parameters", "counts a single head, and leaves out W_o")
def params_one_head(d_model, n_heads, d_k):
    return sum(d_model * d_k for W in ("W_q", "W_k", "W_v"))


# --- 5 split_heads ---


@wrong("split_heads", "heads take every h-th dimension instead of a contiguous stretch")
def split_einops_order(x, n_heads):
    return rearrange(x, "b t (d h) -> b h t d", h=n_heads)


@wrong("split_heads", "views straight to (B, h, T, d_k), mixing positions")
def split_direct(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, T, d_model // n_heads)


@wrong("split_heads", "slices begin at i instead of i * d_k, so heads overlap")
def split_overlapping(x, n_heads):
    d_k = x.shape[-1] // n_heads
    heads = []
    for i in range(n_heads):
        heads.append(x[:, :, i : i + d_k])
    return torch.stack(heads, dim=1)


@wrong("split_heads", "stacks the heads in front of the batch")
def split_stacked_first(x, n_heads):
    return torch.stack(torch.chunk(x, n_heads, dim=-1))


@wrong("split_heads", "split takes a width: pieces h wide instead of h pieces")
def split_width_h(x, n_heads):
    pieces = x.split(n_heads, dim=-1)
    return torch.stack(pieces, dim=1)


@wrong("split_heads", "gives d_k before T, as if for the transposed keys")
def split_keys_transposed(x, n_heads):
    B, T, D = x.shape
    return x.unflatten(-1, (n_heads, D // n_heads)).permute(0, 2, 3, 1)


@wrong("split_heads", "views over B*T, which fails on a non-contiguous x")
def split_flat_view(x, n_heads):
    B, T, d = x.shape
    y = x.view(B * T, n_heads, d // n_heads)
    y = y.view(B, T, n_heads, -1)
    return y.swapaxes(1, 2)


@wrong("split_heads", "takes every h-th dimension, and leaves the heads after T")
def split_strided_unmoved(x, n_heads):
    parts = [x[..., i::n_heads] for i in range(n_heads)]
    return torch.stack(parts, dim=2)


@wrong("split_heads", "swaps T and d_model, then reshapes without swapping back")
def split_after_swap(x, n_heads):
    B, T, d = x.shape
    xt = x.transpose(1, 2)
    return xt.reshape(B, n_heads, T, d // n_heads)


# --- 6 merge_heads ---


@wrong("merge_heads", "reads the axes as (B, T, h, d_k), so heads end up as time")
def merge_misread_axes(x):
    B, T, H, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


@wrong("merge_heads", "view after a transpose fails for want of contiguous()")
def merge_view_crash(x):
    b, h, t, d = x.size()
    x = x.transpose(1, 2)
    return x.view(b, t, h * d)


@wrong("merge_heads", "heads are interleaved dimension by dimension")
def merge_moveaxis_last(x):
    y = torch.moveaxis(x, 1, -1)
    return y.reshape(*y.shape[:2], -1)


@wrong("merge_heads", "averages the heads instead of laying them side by side")
def merge_by_mean(x):
    return reduce(x, "b h t d -> b t d", "mean")


@wrong("merge_heads", "concatenates the heads along time")
def merge_cat_time(x):
    heads = [x[:, i] for i in range(x.shape[1])]
    return torch.cat(heads, dim=1)


@wrong("merge_heads", "squeeze also drops a batch or a length of 1")
def merge_squeezed(x):
    heads = x.split(1, dim=1)
    return torch.cat(heads, dim=-1).squeeze()


@wrong("merge_heads", "flattens T along with the heads")
def merge_flatten_one(x):
    return x.permute(0, 2, 1, 3).flatten(1)


@wrong("merge_heads", "writes at i instead of i * d_k, and always float32")
def merge_overwriting(x):
    B, H, T, d = x.shape
    out = torch.zeros(B, T, H * d)
    for i in range(H):
        out[:, :, i : i + d] = x[:, i]
    return out


@wrong("merge_heads", "reshapes without moving the heads, and fixes the batch at 1")
def merge_one_sentence(x):
    _, h, T, d_k = x.shape
    return x.contiguous().view(1, T, h * d_k)


@right("merge_heads")
def merge_by_unbind(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


# --- 7 causal_mask ---


@wrong("causal_mask", "True where looking is allowed")
def causal_allowed(T):
    return torch.tril(torch.ones((T, T), dtype=torch.bool))


@wrong("causal_mask", "blocks the past: row and column are confused")
def causal_literal_past(T):
    M = [[i > j for j in range(T)] for i in range(T)]
    return torch.tensor(M)


@wrong("causal_mask", "blocks the token itself as well")
def causal_jax_style(T):
    idx = torch.arange(T)
    return idx[None, :] >= idx[:, None]


@wrong("causal_mask", "blocks only the very next token")
def causal_next_only(T):
    mask = torch.zeros(T, T, dtype=torch.bool)
    for t in range(T - 1):
        mask[t, t + 1] = True
    return mask


@wrong("causal_mask", "gives floats with -inf, and adds two axes in front")
def causal_additive(T):
    m = torch.full((T, T), float("-inf"))
    return torch.triu(m, diagonal=1)[None, None, :, :]


# --- 8 padding_mask ---


@wrong("padding_mask", "blocks the last `length` keys instead of those after the length")
def padding_from_end(lengths, T):
    B = len(lengths)
    mask = torch.zeros(B, 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b in range(B):
        mask[b, :, :, -int(lengths[b]) :] = True
    return mask


@wrong("padding_mask", "the first padding key stays open")
def padding_strictly_more(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return repeat(pos, "t -> b 1 1 t", b=len(lengths)) > lengths.view(-1, 1, 1, 1)


@wrong("padding_mask", "True at real tokens, and put on the query axis")
def padding_on_queries(lengths, T):
    ok = torch.arange(T, device=lengths.device).expand(len(lengths), T) < lengths.unsqueeze(1)
    return ok[:, None, :, None]


@wrong("padding_mask", "takes the positions as a fixed CPU tensor, and gives shape (B, T)")
def padding_two_axes(lengths, T):
    positions = torch.from_numpy(np.arange(T))
    return positions.unsqueeze(0) >= lengths.unsqueeze(-1)


@wrong("padding_mask", "indexes by token: blocks one key per sequence, the one at the length")
def padding_one_hot(lengths, T):
    rows = F.one_hot(lengths.long(), T + 1)[:, :T]
    return rows.bool()[:, None, None, :]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "a finite -1e9, so a fully blocked row becomes uniform")
def msoftmax_minus_1e9(scores, mask):
    scores = torch.where(mask, torch.full_like(scores, -1e9), scores)
    return torch.softmax(scores, dim=-1)


@wrong("masked_softmax", "fully blocked rows are left as NaN")
def msoftmax_where_inf(scores, mask):
    neg = torch.tensor(-math.inf, dtype=scores.dtype, device=scores.device)
    return F.softmax(torch.where(mask, neg, scores), dim=-1)


@wrong("masked_softmax", "rows with any blocked key are emptied, not only fully blocked ones")
def msoftmax_any(scores, mask):
    w = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
    empty = mask.any(dim=-1, keepdim=True)
    return torch.where(empty, torch.zeros_like(w), w)


@wrong("masked_softmax", "zeroes weights after the softmax without renormalising")
def msoftmax_zero_after(scores, mask):
    p = torch.softmax(scores, -1)
    return p * mask.logical_not()


@wrong("masked_softmax", "renormalises after the softmax, where open weights may have underflowed")
def msoftmax_renormalised(scores, mask):
    p = torch.softmax(scores, dim=-1)
    p = p.masked_fill(mask, 0.0)
    total = p.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, p / total.clamp(min=1e-9), torch.zeros_like(p))


@wrong("masked_softmax", "sets blocked scores to 0, which still weighs e^0")
def msoftmax_score_zero(scores, mask):
    w = F.softmax(scores * (~mask), dim=-1)
    return w.masked_fill(mask.all(dim=-1, keepdim=True), 0)


@wrong("masked_softmax", "adds -inf and cleans the NaN afterwards, so gradients are NaN")
def msoftmax_added_inf(scores, mask):
    penalty = torch.zeros_like(scores).masked_fill(mask, -torch.inf)
    return torch.nan_to_num(torch.softmax(scores + penalty, dim=-1), nan=0.0)


@wrong("masked_softmax", "takes True as allowed, and leaves NaN where nothing is blocked")
def msoftmax_tf_mask(scores, mask):
    x = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(x, dim=-1)


@wrong("masked_softmax", "exp without subtracting the maximum, and adds eps under the fraction")
def msoftmax_formula(scores, mask):
    E = torch.exp(scores) * (1 - mask.to(scores.dtype))
    Z = E.sum(-1, keepdim=True)
    return E / (Z + 1e-3)


@right("masked_softmax")
def msoftmax_nan_to_num(scores, mask):
    s = torch.where(mask, -torch.inf, scores)
    return s.softmax(-1).nan_to_num(0.0)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "cuts W_o into rows instead of columns")
def writes_rows(heads, W_o):
    B, h, T, d_k = heads.shape
    total = 0
    for i in range(h):
        total = total + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k, :]
    return total


@wrong("sum_of_head_writes", "reshapes W_o to (h, d_k, d_model) without transposing")
def writes_reshaped(heads, W_o):
    h, d_k = heads.shape[1], heads.shape[3]
    W = W_o.reshape(h, d_k, -1)
    return torch.einsum("bhtd,hdm->btm", heads, W)


@wrong("sum_of_head_writes", "sums heads and matrices separately before multiplying")
def writes_distributed(heads, W_o):
    d_k = heads.shape[-1]
    blocks = torch.stack(W_o.split(d_k, dim=1))
    return heads.sum(1) @ blocks.sum(0).T


@wrong("sum_of_head_writes", "overwrites the result, so only the last head writes")
def writes_last_only(heads, W_o):
    n, d_k = heads.size(1), heads.size(3)
    for i, head in enumerate(heads.unbind(1)):
        W_i = W_o[:, i * d_k : (i + 1) * d_k]
        out = head @ W_i.T
    return out


@wrong("sum_of_head_writes", "averages over heads, and gives head i every h-th column")
def writes_mean_strided(heads, W_o):
    h = heads.shape[1]
    writes = [heads[:, i] @ W_o[:, i::h].T for i in range(h)]
    return torch.stack(writes).mean(0)


@right("sum_of_head_writes")
def writes_broadcast(heads, W_o):
    W = rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return sum((heads @ W).unbind(1))


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "-1e9 makes a fully blocked query average all values")
class MHAMinus1e9(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        for n in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, n, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        q, k, v = (
            rearrange(w(x), "b t (h d) -> b h t d", h=self.n_heads)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / self.d_k**0.5
        if mask is not None:
            s = s.masked_fill(mask, -1e9)
        return self.w_o(rearrange(s.softmax(-1) @ v, "b h t d -> b t (h d)"))


@wrong("MultiHeadAttention", "the truth value of a mask tensor is ambiguous in `if mask`")
class MHAIfMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape

        def split(y):
            return y.view(B, T, self.h, D // self.h).transpose(1, 2)

        q, k, v = split(self.w_q(x)), split(self.w_k(x)), split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.h)
        if mask:
            scores = scores.masked_fill(mask, float("-inf"))
        a = torch.nan_to_num(torch.softmax(scores, dim=-1))
        return self.w_o((a @ v).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "scaled_dot_product_attention takes True as allowed; it is not turned")
class MHASdpaTurned(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = [
            f(x).unflatten(-1, (self.n, -1)).transpose(1, 2) for f in (self.w_q, self.w_k, self.w_v)
        ]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "repairs NaN after w_o, so a blocked query gives zeros, not the bias")
class MHANanAfterOutput(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.dim = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q = self.w_q(x).reshape(b, t, self.heads, self.dim).permute(0, 2, 1, 3)
        k = self.w_k(x).reshape(b, t, self.heads, self.dim).permute(0, 2, 3, 1)
        v = self.w_v(x).reshape(b, t, self.heads, self.dim).permute(0, 2, 1, 3)
        att = q @ k / math.sqrt(self.dim)
        if mask is not None:
            att = att.masked_fill(mask, -math.inf)
        ctx = torch.softmax(att, -1) @ v
        ctx = ctx.permute(0, 2, 1, 3).reshape(b, t, -1)
        return torch.nan_to_num(self.w_o(ctx))


@wrong("MultiHeadAttention", "the keys are projected with w_q")
class MHAKeysFromQ(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        d_k = x.shape[-1] // self.n_heads
        Q = torch.stack(self.w_q(x).split(d_k, -1), 1)
        K = torch.stack(self.w_q(x).split(d_k, -1), 1)
        V = torch.stack(self.w_v(x).split(d_k, -1), 1)
        A = Q @ K.mT / d_k**0.5
        if mask is not None:
            empty = mask.all(-1, keepdim=True)
            A = A.masked_fill(mask, -1e30).softmax(-1).masked_fill(empty, 0.0)
        else:
            A = A.softmax(-1)
        return self.w_o(torch.cat((A @ V).unbind(1), -1))


@wrong("MultiHeadAttention", "dropout is active after construction")
class MHADropout(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        assert d_model % n_heads == 0
        self.d_k, self.h = d_model // n_heads, n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x, mask=None):
        n = x.size(0)
        q, k, v = [
            l(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
            for l in (self.w_q, self.w_k, self.w_v)
        ]
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        p = self.dropout(scores.softmax(dim=-1).nan_to_num(0.0))
        y = torch.matmul(p, v).transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.w_o(y)


@wrong("MultiHeadAttention", "softmax runs over the heads")
class MHASoftmaxHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        pat = "b t (h d) -> b h t d"
        q = rearrange(self.w_q(x), pat, h=self.h)
        k = rearrange(self.w_k(x), pat, h=self.h)
        v = rearrange(self.w_v(x), pat, h=self.h)
        a = einsum(q, k, "b h i d, b h j d -> b h i j") / self.d**0.5
        if mask is not None:
            a = a.masked_fill(mask, -math.inf)
        a = torch.softmax(a, dim=1).nan_to_num()
        z = einsum(a, v, "b h i j, b h j d -> b h i d")
        return self.w_o(rearrange(z, "b h t d -> b t (h d)"))


@wrong("MultiHeadAttention", "scales by the root of d_model, and merges without moving heads")
class MHAFullScale(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=True)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q = self.w_q(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        w = q @ k.transpose(-1, -2) * self.d_model**-0.5
        if mask is not None:
            w = w.masked_fill(mask, -torch.inf)
        w = torch.nan_to_num(w.softmax(-1))
        return self.w_o((w @ v).reshape(B, T, C))


@wrong("MultiHeadAttention", "always adds an axis to the mask, and leaves NaN in blocked rows")
class MHAMaskUnsqueezed(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, y):
        return y.unflatten(2, (self.n_heads, y.shape[2] // self.n_heads)).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = map(self.heads, (self.w_q(x), self.w_k(x), self.w_v(x)))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            mask = mask.unsqueeze(1)
            scores = scores.masked_fill(mask, float("-inf"))
        out = torch.softmax(scores, -1) @ v
        return self.w_o(out.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "the context is returned without w_o")
class MHANoOutput(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.nh = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        q, k, v = (
            f(x).view(B, T, self.nh, D // self.nh).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = (q @ k.mT / (D // self.nh) ** 0.5).masked_fill(mask, -torch.inf)
        w = torch.nan_to_num(s.softmax(-1))
        context = torch.einsum("bhqk,bhkd->bqhd", w, v)
        return context.flatten(2)


@right("MultiHeadAttention")
class MHAHeadByHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        if mask is None:
            mask = torch.zeros((), dtype=torch.bool, device=x.device)
        mask = mask.broadcast_to(B, self.n_heads, T, T)
        out = []
        for i in range(self.n_heads):
            part = slice(i * self.d_k, (i + 1) * self.d_k)
            q, k, v = self.w_q(x)[..., part], self.w_k(x)[..., part], self.w_v(x)[..., part]
            s = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.d_k)
            s = torch.where(mask[:, i], torch.full_like(s, -torch.inf), s)
            out.append(torch.bmm(s.softmax(-1).nan_to_num(0.0), v))
        return self.w_o(torch.cat(out, dim=2))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "flattens before shifting, so sequences run into each other")
def loss_flat_shift(logits, tokens):
    V = logits.shape[-1]
    flat = logits.reshape(-1, V)
    y = tokens.reshape(-1)
    return F.cross_entropy(flat[:-1], y[1:])


@wrong("next_token_loss", "rolls the tokens, so the last position is to predict the first token")
def loss_rolled(logits, tokens):
    targets = torch.roll(tokens, shifts=-1, dims=1)
    return F.cross_entropy(logits.transpose(1, 2), targets)


@wrong("next_token_loss", "feeds probabilities to cross_entropy, which takes logits")
def loss_double_softmax(logits, tokens):
    probs = logits.softmax(dim=-1)[:, :-1]
    return nn.CrossEntropyLoss()(probs.flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss", "reshapes to (B, V, T-1) instead of transposing")
def loss_reshaped_classes(logits, tokens):
    B, T, V = logits.shape
    pred = logits[:, :-1].reshape(B, V, T - 1)
    return F.cross_entropy(pred, tokens[:, 1:])


@wrong("next_token_loss", "ignores token 0 as if it were padding")
def loss_skip_zero(logits, tokens):
    lp = logits[:, :-1].log_softmax(-1)
    tgt = tokens[:, 1:]
    nll = -lp.gather(-1, tgt.unsqueeze(-1)).squeeze(-1)
    keep = (tgt != 0).to(nll.dtype)
    return (nll * keep).sum() / keep.sum().clamp(min=1)


@wrong("next_token_loss", "gives bits instead of nats")
def loss_in_bits(logits, tokens):
    p = torch.log_softmax(logits, -1) / math.log(2)
    H = 0.0
    B, T = tokens.shape
    for b in range(B):
        for t in range(1, T):
            H = H - p[b, t - 1, tokens[b, t]]
    return H / (B * (T - 1))


@wrong("next_token_loss", "divides by T instead of T - 1")
def loss_mean_over_T(logits, tokens):
    B, T = tokens.shape
    total = 0
    for t in range(T - 1):
        total += F.cross_entropy(logits[:, t], tokens[:, t + 1])
    return total / T


@wrong("next_token_loss", "shifts logits instead of tokens, and sums over time")
def loss_backwards_sum(logits, tokens):
    B = logits.size(0)
    pred = logits[:, 1:].reshape(-1, logits.size(-1))
    past = tokens[:, :-1].reshape(-1)
    return F.cross_entropy(pred, past, reduction="sum") / B


@wrong("next_token_loss", "log_softmax runs over time, and the minus sign is missing")
def loss_time_softmax(logits, tokens):
    logp = F.log_softmax(logits[:, :-1], dim=1)
    picked = torch.take_along_dim(logp, tokens[:, 1:, None], dim=-1)
    return picked.mean()


@right("next_token_loss")
def loss_by_one_hot(logits, tokens):
    z = logits[:, :-1]
    hot = F.one_hot(tokens[:, 1:], z.shape[-1]).bool()
    return -z.log_softmax(-1)[hot].mean()


# --- 13 previous_token_score ---


@wrong("previous_token_score", "query 0 counts too, looking at the last key by index -1")
def prev_wraps_around(weights):
    T = weights.shape[-1]
    i = torch.arange(T, device=weights.device)
    return weights[:, i, i - 1].mean(-1)


@wrong("previous_token_score", "takes the diagonal over heads and queries, the default axes")
def prev_default_axes(weights):
    return torch.diagonal(weights, offset=-1).mean(dim=-1)


@wrong("previous_token_score", "leaves out the last query")
def prev_without_last(weights):
    n_heads, T, _ = weights.shape
    total = torch.zeros(n_heads, dtype=weights.dtype, device=weights.device)
    for t in range(1, T - 1):
        total += weights[:, t, t - 1]
    return total / (T - 2)


@wrong("previous_token_score", "counts how often the previous token has the largest weight")
def prev_argmax_share(weights):
    best = weights.argmax(dim=-1)[:, 1:]
    prev = torch.arange(weights.shape[-1] - 1, device=weights.device)
    return (best == prev).to(weights.dtype).mean(dim=-1)


@wrong("previous_token_score", "reads the diagonal of the next token, and averages over heads too")
def prev_trace_next(weights):
    T = weights.size(-1)
    scores = [torch.trace(w[:-1, 1:]) / (T - 1) for w in weights]
    return torch.stack(scores).mean()


# --- 14 count_flops ---


@wrong("count_flops", "counts a multiply-add as one operation")
def flops_macs(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * T * d_model * d_model
    attn = n_heads * (T * d_k * T + T * T * d_k)
    return proj + attn


@wrong("count_flops", "takes the full d_model in each head's products")
def flops_full_width_heads(T, d_model, n_heads):
    projections = 4 * 2 * T * d_model**2
    per_head = 2 * (2 * T * T * d_model)
    return projections + n_heads * per_head


@wrong("count_flops", "returns a float through the true division")
def flops_float_dk(T, d_model, n_heads):
    d_k = d_model / n_heads
    qkv = 3 * 2 * T * d_model * d_k * n_heads
    att = 2 * 2 * T**2 * d_k * n_heads
    return qkv + att + 2 * T * d_model**2


@wrong("count_flops", "adds the softmax and the scaling")
def flops_with_softmax(T, d_model, n_heads):
    dk = d_model // n_heads
    total = 8 * T * d_model * d_model
    for _ in range(n_heads):
        total += 2 * T * T * dk
        total += T * T + 3 * T * T
        total += 2 * T * T * dk
    return total


@wrong("count_flops", "leaves out the output projection, and halves attention for causality")
def flops_three_projections(T, d_model, n_heads):
    linear = 3 * (2 * T * d_model * d_model)
    pairs = T * (T + 1) // 2
    return linear + 2 * 2 * pairs * d_model


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "drops the last block when it is not full")
def blockwise_floor(Q, K, V, block):
    scale = Q.shape[-1] ** -0.5
    m = torch.full_like(Q[:, :1], -torch.inf)
    den = torch.zeros_like(m)
    num = torch.zeros(len(Q), V.shape[1], dtype=Q.dtype, device=Q.device)
    for b in range(max(1, K.shape[0] // block)):
        k = K[b * block : (b + 1) * block]
        v = V[b * block : (b + 1) * block]
        s = Q @ k.T * scale
        m_new = torch.maximum(m, s.amax(1, keepdim=True))
        c = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        den, num, m = den * c + p.sum(1, keepdim=True), num * c + p @ v, m_new
    return num / den


@wrong("blockwise_attention", "a softmax per block, averaged over blocks")
def blockwise_mean_of_blocks(Q, K, V, block):
    outs = []
    for k, v in zip(K.split(block), V.split(block)):
        w = torch.softmax(Q @ k.mT / math.sqrt(Q.shape[-1]), dim=-1)
        outs.append(w @ v)
    return torch.stack(outs).mean(0)


@wrong("blockwise_attention", "the sums so far are not rescaled when the maximum rises")
def blockwise_no_rescale(Q, K, V, block):
    T_q, d = Q.shape
    m = torch.full((T_q, 1), -math.inf, dtype=Q.dtype, device=Q.device)
    top, bottom = 0, 0
    for start in range(0, K.shape[0], block):
        s = Q @ K[start : start + block].T / math.sqrt(d)
        m = torch.maximum(m, s.max(dim=1, keepdim=True)[0])
        e = torch.exp(s - m)
        top = top + e @ V[start : start + block]
        bottom = bottom + e.sum(dim=1, keepdim=True)
    return top / bottom


@wrong("blockwise_attention", "sums exponentials without a running maximum and overflows")
def blockwise_plain_sums(Q, K, V, block):
    Z = Q.new_zeros(Q.shape[0], 1)
    O = Q.new_zeros(Q.shape[0], V.shape[1])
    for j in range(0, len(K), block):
        A = torch.exp(torch.einsum("qd,kd->qk", Q, K[j : j + block]) / Q.shape[1] ** 0.5)
        Z += A.sum(1, keepdim=True)
        O += torch.einsum("qk,kv->qv", A, V[j : j + block])
    return O / Z


@wrong("blockwise_attention", "computes all scores first and only then goes by blocks")
def blockwise_scores_first(Q, K, V, block):
    S = Q @ K.T / math.sqrt(K.shape[1])
    P = torch.softmax(S, dim=1)
    out = 0
    for a in range(0, K.shape[0], block):
        out = out + P[:, a : a + block] @ V[a : a + block]
    return out


@wrong("blockwise_attention", "the running maximum starts at 0, so very low scores all underflow")
def blockwise_max_from_zero(Q, K, V, block):
    n, d_k = Q.shape
    running_max = Q.new_zeros(n)
    running_sum = Q.new_zeros(n)
    acc = Q.new_zeros(n, V.size(-1))
    for i in range(0, K.size(0), block):
        s = (Q @ K[i : i + block].t()) / d_k**0.5
        new_max = torch.max(running_max, s.max(-1).values)
        alpha = torch.exp(running_max - new_max)
        p = torch.exp(s - new_max[:, None])
        running_sum = running_sum * alpha + p.sum(-1)
        acc = acc * alpha[:, None] + p @ V[i : i + block]
        running_max = new_max
    return acc / running_sum[:, None]


@wrong("blockwise_attention", "pads the last block with zero keys that take weight")
def blockwise_zero_padded(Q, K, V, block):
    extra = -len(K) % block
    K = F.pad(K, (0, 0, 0, extra))
    V = F.pad(V, (0, 0, 0, extra))
    Ks, Vs = K.view(-1, block, K.shape[-1]), V.view(-1, block, V.shape[-1])
    lse, out = None, None
    for k, v in zip(Ks, Vs):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        l = s.logsumexp(-1, keepdim=True)
        o = s.softmax(-1) @ v
        if lse is None:
            lse, out = l, o
        else:
            new = torch.logaddexp(lse, l)
            out = out * (lse - new).exp() + o * (l - new).exp()
            lse = new
    return out


@wrong("blockwise_attention", "the block ends one key early, so every block lacks its last key")
def blockwise_end_early(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), -1e30, dtype=Q.dtype, device=Q.device)
    l, o = 0.0, 0.0
    for lo in range(0, K.shape[0], block):
        hi = min(lo + block, K.shape[0]) - 1
        s = Q @ K[lo:hi].T / math.sqrt(Q.shape[1])
        mn = torch.maximum(m, s.max(1, keepdim=True).values)
        r = torch.exp(m - mn)
        p = torch.exp(s - mn)
        l = l * r + p.sum(1, keepdim=True)
        o = o * r + p @ V[lo:hi]
        m = mn
    return o / l


@wrong("blockwise_attention", "rescales only the sum of weights, and forgets the root of d_k")
def blockwise_half_rescaled(Q, K, V, block):
    m = torch.full((len(Q), 1), -torch.inf, dtype=Q.dtype, device=Q.device)
    s = torch.zeros_like(m)
    o = torch.zeros(len(Q), V.shape[-1], dtype=V.dtype, device=V.device)
    for Kb, Vb in zip(torch.split(K, block), torch.split(V, block)):
        x = Q @ Kb.T
        m2 = torch.maximum(m, x.amax(-1, keepdim=True))
        e = (x - m2).exp()
        s = s * (m - m2).exp() + e.sum(-1, keepdim=True)
        o = o + e @ Vb
        m = m2
    return o / s


@right("blockwise_attention")
def blockwise_three_passes(Q, K, V, block):
    q = Q / math.sqrt(Q.shape[-1])
    top = torch.full_like(q[:, :1], -torch.inf)
    for k in K.split(block):
        top = torch.maximum(top, (q @ k.T).amax(dim=1, keepdim=True))
    Z = sum(torch.exp(q @ k.T - top).sum(1, keepdim=True) for k in K.split(block))
    pairs = zip(K.split(block), V.split(block))
    return sum(torch.exp(q @ k.T - top) / Z @ v for k, v in pairs)


# --- 16 rotate ---


@wrong("rotate", "turns neighbouring dimensions instead of i with i + d_k/2")
def rotate_neighbours(x, positions):
    d = x.shape[-1]
    f = 10000 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    ang = positions.double()[:, None] * f
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)


@wrong("rotate", "the exponent lacks its factor 2")
def rotate_slow_exponent(x, positions):
    d_k = x.size(-1)
    i = torch.arange(d_k // 2, device=x.device, dtype=torch.float32)
    theta = torch.exp(-i * math.log(10000.0) / d_k)
    angle = torch.outer(positions.float(), theta)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1)


@wrong("rotate", "the factor 2 is taken twice: arange steps by 2 and i is doubled")
def rotate_twice_two(x, positions):
    d = x.shape[-1]
    i = torch.arange(0, d, 2, device=x.device, dtype=torch.float64)
    freq = 1.0 / 10000 ** (2 * i / d)
    a = positions[:, None].to(torch.float64) * freq[None]
    a = torch.cat([a, a], -1)
    half = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
    return (x * a.cos() + half * a.sin()).to(x.dtype)


@wrong("rotate", "the swapped half keeps its sign, so it is no rotation")
def rotate_rolled(x, positions):
    h = x.shape[-1] // 2
    inv = 10000.0 ** (-torch.arange(h, dtype=torch.float64, device=x.device) / h)
    phi = torch.einsum("t,i->ti", positions.double(), inv).tile(1, 2)
    return (x * phi.cos() + x.roll(h, dims=-1) * phi.sin()).to(x.dtype)


@wrong("rotate", "takes 0..T-1 instead of the given positions")
def rotate_own_positions(x, positions):
    T, d = x.shape[-2:]
    t = torch.arange(T, device=x.device).double()
    w = 10000.0 ** (-2 * torch.arange(d // 2, device=x.device).double() / d)
    A = t[:, None] * w[None, :]
    u, v = x[..., : d // 2].double(), x[..., d // 2 :].double()
    R = torch.cat((u * A.cos() - v * A.sin(), u * A.sin() + v * A.cos()), dim=-1)
    return R.type_as(x)


@wrong("rotate", "computes the angles in the dtype of x, too coarse in half precision")
def rotate_coarse_angles(x, positions):
    h = x.shape[-1] // 2
    i = torch.arange(h, device=x.device, dtype=x.dtype)
    angle = positions.to(x.dtype)[:, None] * (10000.0 ** (-i / h))
    c, s = angle.cos(), angle.sin()
    a, b = x[..., :h], x[..., h:]
    return torch.cat([a * c - b * s, b * c + a * s], dim=-1)


@wrong("rotate", "the halves are turned rightly but put back interleaved")
def rotate_stacked_back(x, positions):
    a, b = x.double().chunk(2, -1)
    n = a.shape[-1]
    th = positions.double()[:, None] / 10000 ** (torch.arange(n, device=x.device).double() / n)
    z = torch.stack([a * th.cos() - b * th.sin(), a * th.sin() + b * th.cos()], dim=-1)
    return z.reshape(x.shape).to(x.dtype)


@wrong("rotate", "turns the second half with the new first half, and overwrites x")
def rotate_in_place(x, positions):
    h = x.shape[-1] // 2
    om = 10000.0 ** (-torch.arange(h, device=x.device).double() / h)
    ph = positions.double()[:, None] * om
    c, s = ph.cos().to(x.dtype), ph.sin().to(x.dtype)
    x[..., :h] = x[..., :h] * c - x[..., h:] * s
    x[..., h:] = x[..., :h] * s + x[..., h:] * c
    return x


@wrong("rotate", "turns the other way, and counts positions from 1")
def rotate_clockwise(x, positions):
    d = x.shape[-1]
    a, b = torch.tensor_split(x.double(), 2, dim=-1)
    k = torch.arange(d // 2, device=x.device).double()
    ang = (positions.double() + 1).unsqueeze(-1) * 10000.0 ** (-2 * k / d)
    out = torch.cat([a * ang.cos() + b * ang.sin(), b * ang.cos() - a * ang.sin()], -1)
    return out.to(x.dtype)


@right("rotate")
def rotate_complex(x, positions):
    h = x.shape[-1] // 2
    z = torch.complex(x[..., :h].double(), x[..., h:].double())
    e = torch.arange(h, dtype=torch.float64, device=x.device) / h
    phase = positions.double()[:, None] * torch.exp(-e * math.log(10000.0))
    z = z * torch.polar(torch.ones_like(phase), phase)
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


# --- 17 cached_attention ---


@wrong("cached_attention", "is_causal counts from the first key, so new tokens miss the later ones")
def cached_is_causal(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=-2)
        v = torch.cat([cache[1], v], dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("cached_attention", "once there is a cache nothing is blocked among the new tokens")
def cached_mask_only_first(q, k, v, cache):
    n = q.shape[2]
    scale = q.shape[-1] ** -0.5
    if cache is None:
        future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
        s = (q @ k.mT * scale).masked_fill(future, -torch.inf)
        return s.softmax(-1) @ v, (k, v)
    old_k, old_v = cache
    k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
    return (q @ k.mT * scale).softmax(-1) @ v, (k, v)


@wrong("cached_attention", "appends the old tokens behind the new ones")
def cached_new_in_front(q, k, v, cache):
    if cache is not None:
        ck, cv = cache
        k = torch.cat((k, ck), dim=2)
        v = torch.cat((v, cv), dim=2)
    n, m = q.size(2), k.size(2)
    blocked = torch.ones(n, m, device=q.device).triu(m - n + 1).bool()
    s = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(3))
    w = F.softmax(s.masked_fill(blocked, float("-inf")), dim=-1)
    return torch.matmul(w, v), (k, v)


@wrong("cached_attention", "hands on only the new keys and values as cache")
def cached_forgets_old(q, k, v, cache):
    K, V = (k, v) if cache is None else (torch.cat((c, n), 2) for c, n in zip(cache, (k, v)))
    T_new, T = q.shape[2], K.shape[2]
    i = torch.arange(T - T_new, T, device=q.device)[:, None]
    j = torch.arange(T, device=q.device)[None, :]
    s = torch.einsum("bhqd,bhkd->bhqk", q, K) / math.sqrt(q.shape[-1])
    w = torch.where(j > i, -torch.inf, s).softmax(-1)
    return w @ V, (k, v)


@wrong("cached_attention", "assigns into the cache, which is a tuple")
def cached_assigns(q, k, v, cache):
    if cache is None:
        cache = (k, v)
    else:
        cache[0] = torch.cat([cache[0], k], dim=2)
        cache[1] = torch.cat([cache[1], v], dim=2)
    K, V = cache
    off = K.shape[2] - q.shape[2]
    mask = torch.triu(torch.ones(q.shape[2], K.shape[2], device=q.device), off + 1) == 1
    att = (q @ K.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(mask, -math.inf)
    return att.softmax(dim=-1) @ V, cache


@wrong("cached_attention", "the band starts one too early and blocks the token itself")
def cached_blocks_self(q, k, v, cache):
    past = 0 if cache is None else cache[0].shape[2]
    if past:
        k = torch.cat((cache[0], k), dim=2)
        v = torch.cat((cache[1], v), dim=2)
    n = q.shape[2]
    rows = torch.arange(n, device=q.device) + past
    cols = torch.arange(n + past, device=q.device)
    mask = cols[None, :] >= rows[:, None]
    s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(mask, torch.finfo(q.dtype).min)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "new keys, not new values, are appended to the cached values")
def cached_copy_paste(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k = torch.cat([past_k, k], dim=2)
        v = torch.cat([past_v, k[:, :, past_v.shape[2] :]], dim=2)
    L, S = q.shape[-2], k.shape[-2]
    ok = torch.ones(L, S, dtype=torch.bool, device=q.device).tril(S - L)
    ctx = F.scaled_dot_product_attention(q, k, v, attn_mask=ok)
    return ctx, (k, v)


@wrong("cached_attention", "blocks nothing, and merges the heads of the context")
def cached_merged_open(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    w = torch.softmax(einsum(q, k, "b h i d, b h j d -> b h i j") / q.shape[-1] ** 0.5, -1)
    out = einsum(w, v, "b h i j, b h j d -> b h i d")
    return rearrange(out, "b h t d -> b t (h d)"), (k, v)


@wrong("cached_attention", "attends to the new tokens only, and scales by the root of T_new")
def cached_unused_cache(q, k, v, cache):
    n = k.shape[2]
    new_cache = (
        (k, v) if cache is None else tuple(map(lambda p: torch.cat(p, 2), zip(cache, (k, v))))
    )
    s = q @ k.transpose(-2, -1) / math.sqrt(n)
    s = s + torch.full((n, n), -torch.inf, dtype=s.dtype, device=s.device).triu(1)
    return s.softmax(-1) @ v, new_cache


# --- 18 grouped_scores ---


@wrong("grouped_scores", "repeats the key heads in turn: head i looks with i mod h_kv")
def grouped_tiled(q, k):
    g = q.shape[1] // k.shape[1]
    k = k.repeat(1, g, 1, 1)
    return q @ k.mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "expands the key heads, which only works for one of them")
def grouped_expand(q, k):
    B, h, T_q, d_k = q.shape
    k = k.expand(B, h, k.shape[2], d_k)
    return torch.einsum("bhqd,bhkd->bhqk", q, k) / d_k**0.5


@wrong("grouped_scores", "divides the head number by h_kv instead of by the group size")
def grouped_wrong_divisor(q, k):
    B, h, T_q, d_k = q.shape
    h_kv = k.shape[1]
    S = [q[:, i] @ k[:, i // h_kv].mT / math.sqrt(d_k) for i in range(h)]
    return torch.stack(S, dim=1)


@wrong("grouped_scores", "averages the queries of a group, giving h_kv heads")
def grouped_mean_queries(q, k):
    q = q.unflatten(1, (k.shape[1], -1)).mean(dim=2)
    return torch.matmul(q, k.mT) * q.shape[-1] ** -0.5


@wrong("grouped_scores", "leaves groups and heads in two axes")
def grouped_five_axes(q, k):
    qg = rearrange(q, "b (g r) t d -> b g r t d", g=k.shape[1])
    s = einsum(qg, k, "b g r i d, b g j d -> b g r i j")
    return s / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "the heads come out in the order of the place within the group")
def grouped_axes_swapped(q, k):
    B, h, T_q, d_k = q.shape
    qg = q.reshape(B, k.shape[1], -1, T_q, d_k)
    s = torch.einsum("bgrqd,bgkd->brgqk", qg, k) / d_k**0.5
    return s.reshape(B, h, T_q, -1)


@wrong("grouped_scores", "every query head looks with key head 0")
def grouped_first_only(q, k):
    d_k = q.shape[-1]
    scores = q.new_zeros(*q.shape[:3], k.shape[2])
    for i in range(q.shape[1]):
        scores[:, i] = q[:, i] @ k[:, i // q.shape[1]].transpose(1, 2)
    return scores / math.sqrt(d_k)


@wrong("grouped_scores", "views q with the group size first, and forgets to scale")
def grouped_view_reversed(q, k):
    B, h, T, d = q.shape
    h_kv = k.shape[1]
    q = q.reshape(B, h // h_kv, h_kv, T, d)
    return (q @ k.unsqueeze(1).transpose(-1, -2)).flatten(1, 2)


@wrong("grouped_scores", "scales by the root of h * d_k, and gives the softmax of the scores")
def grouped_weights(q, k):
    h, d_k = q.shape[1], q.shape[3]
    k = k.repeat_interleave(h // k.shape[1], dim=1)
    return F.softmax(q @ k.mT / (h * d_k) ** 0.5, dim=-1)


@right("grouped_scores")
def grouped_long_queries(q, k):
    B, h, T, d = q.shape
    s = q.reshape(B, k.shape[1], -1, d) @ k.mT
    return s.reshape(B, h, T, k.shape[2]) / math.sqrt(d)


# --- 19 cached_mask ---


@wrong("cached_mask", "compares with window even when it is None")
def cmask_none_compared(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new).unsqueeze(1)
    k = torch.arange(n_cached + n_new).unsqueeze(0)
    dist = q - k
    return (dist < 0) | (dist >= window)


@wrong("cached_mask", "the token exactly `window` back stays open")
def cmask_one_too_far(n_new, n_cached, window):
    total = n_cached + n_new
    rows = []
    for i in range(n_cached, total):
        rows.append([j > i or (window is not None and i - j > window) for j in range(total)])
    return torch.tensor(rows, dtype=torch.bool)


@wrong("cached_mask", "numbers the new queries from 0, forgetting the cached ones")
def cmask_no_offset(n_new, n_cached, window):
    m = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).triu(1)
    if window:
        m |= torch.ones_like(m).tril(-window)
    return m


@wrong("cached_mask", "with a window only the distance counts, so near future tokens are open")
def cmask_absolute_distance(n_new, n_cached, window):
    total = n_cached + n_new
    gap = torch.arange(n_cached, total)[:, None] - torch.arange(total)[None, :]
    if window is None:
        return gap < 0
    return gap.abs() >= window


@wrong("cached_mask", "True where looking is allowed, and the window is measured from the end")
def cmask_allowed_from_end(n_new, n_cached, window):
    n = n_cached + n_new
    allowed = torch.tril(torch.ones(n_new, n, dtype=torch.bool), diagonal=n_cached)
    if window is not None:
        allowed[:, : max(n - window, 0)] = False
    return allowed


@right("cached_mask")
def cmask_tail_of_square(n_new, n_cached, window):
    n = n_cached + n_new
    band = torch.ones(n, n, dtype=torch.bool).tril()
    if window is not None:
        band = band.triu(1 - window)
    return ~band[n_cached:]
