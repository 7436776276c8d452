"""Wrong answers of beginners: misread axes, forgotten lines, misused functions, errors that raise."""

# As learners type: long lines, `l`, zip.
# ruff: noqa: E501, B007

import math

import numpy as np
import torch
import torch.nn.functional as F
from answers import wrong
from torch import nn


# ------------------------------------------------------------------ 1 attention_scores
@wrong("attention_scores", "K.T turns all axes round, which is right only for matrices")
def scores_capital_t(Q, K):
    d_k = Q.shape[-1]
    return Q @ K.T / d_k**0.5


@wrong(
    "attention_scores",
    "computes the scaled scores but returns the unscaled ones, since the division is not assigned",
)
def scores_division_lost(Q, K):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    scores / math.sqrt(Q.size(-1))
    return scores


@wrong(
    "attention_scores",
    "transposes the query instead of the key: a d_k by d_k product (raises if T_q is not T_k)",
)
def scores_q_transposed(Q, K):
    qt = torch.transpose(Q, -2, -1)
    result = torch.matmul(qt, K)
    return result / np.sqrt(K.shape[-1])


@wrong("attention_scores", "divides by the root of the number of keys, not by the root of d_k")
def scores_root_of_tokens(Q, K):
    # second last dimension?
    n = K.size(-2)
    s = Q @ K.transpose(-2, -1)
    return s / math.sqrt(n)


@wrong(
    "attention_scores",
    "multiplies elementwise with * instead of the matrix product",
    slips=("error:broadcast_shapes",),
)
def scores_star(Q, K):
    return Q * K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "len(Q) is the length of the first axis, not d_k")
def scores_len(Q, K):
    scores = Q @ K.mT
    scores = scores / len(Q) ** 0.5
    return scores


@wrong(
    "attention_scores",
    "transposes axes 1 and 2, which for inputs without exactly one leading axis are the wrong ones or do not exist",
)
def scores_axes_1_2(Q, K):
    d_k = K.shape[-1]
    K = K.transpose(1, 2)
    scores = torch.matmul(Q, K)
    return scores / math.sqrt(d_k)


# ------------------------------------------------------------------ 2 attention
@wrong("attention", "softmax over the queries (dim=-2) instead of the keys")
def attention_softmax_rows(Q, K, V):
    scores = (Q @ K.transpose(-2, -1)) / math.sqrt(Q.shape[-1])
    weights = torch.softmax(scores, dim=-2)
    return weights @ V, weights


@wrong("attention", "gives weights first and output second")
def attention_swapped_results(Q, K, V):
    a = F.softmax(Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-1]), dim=-1)
    out = a @ V
    return a, out


@wrong("attention", "gives only the output and leaves the weights out")
def attention_only_output(Q, K, V):
    scores = Q @ K.transpose(-2, -1)
    scores = scores / (Q.shape[-1] ** 0.5)
    return torch.matmul(scores.softmax(-1), V)


@wrong("attention", "the scaling by the root of d_k is forgotten")
def attention_no_scale(Q, K, V):
    scores = torch.matmul(Q, K.transpose(-2, -1))
    p_attn = F.softmax(scores, dim=-1)
    return torch.matmul(p_attn, V), p_attn


@wrong("attention", "softmax is not assigned: the raw scores are used and given as weights")
def attention_softmax_lost(Q, K, V):
    d_k = Q.shape[-1]
    weights = Q @ K.transpose(-2, -1) / math.sqrt(d_k)
    weights.softmax(dim=-1)
    output = weights @ V
    return output, weights


@wrong("attention", "takes the root of the width of the values, not of the keys")
def attention_root_of_d_v(Q, K, V):
    d = V.shape[-1]
    weights = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(d), -1)
    return weights @ V, weights


@wrong("attention", "the weights given back are the scores before the softmax")
def attention_scores_as_weights(Q, K, V):
    weights = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    output = weights.softmax(dim=-1) @ V
    return output, weights


@wrong("attention", "scales after the softmax instead of before it")
def attention_scale_late(Q, K, V):
    weights = torch.softmax(Q @ K.transpose(-2, -1), dim=-1)
    weights = weights / math.sqrt(Q.shape[-1])
    return weights @ V, weights


@wrong("attention", "mixes the keys instead of the values")
def attention_of_keys(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(dim=-1)
    output = weights @ K
    return output, weights


# ------------------------------------------------------------------ 3 project_qkv
@wrong("project_qkv", "does not transpose W_qkv (raises a shape error)")
def project_no_transpose(X, W_qkv):
    QKV = X @ W_qkv
    Q, K, V = QKV.chunk(3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "chunk(3) without dim cuts the batch")
def project_chunk_batch(X, W_qkv):
    qkv = X @ W_qkv.T
    return qkv.chunk(3)


@wrong("project_qkv", "cuts along the tokens (dim=1) instead of the features", slips=("one_place",))
def project_chunk_tokens(X, W_qkv):
    out = torch.matmul(X, W_qkv.transpose(0, 1))
    q, k, v = torch.tensor_split(out, 3, dim=1)
    return q, k, v


@wrong("project_qkv", "split(3) makes pieces of size 3, not three pieces")
def project_split_3(X, W_qkv):
    QKV = X @ W_qkv.T
    return torch.split(QKV, 3, dim=-1)


@wrong("project_qkv", "takes every third column as q, k, v instead of three blocks")
def project_every_third(X, W_qkv):
    y = X @ W_qkv.t()
    return y[..., 0::3], y[..., 1::3], y[..., 2::3]


# ------------------------------------------------------------------ 4 count_parameters
@wrong("count_parameters", "counts three matrices and forgets W_o")
def count_three(d_model, n_heads, d_k):
    return 3 * d_model * d_k * n_heads


@wrong("count_parameters", "ignores d_k and counts four matrices of d_model by d_model")
def count_d_model_squared(d_model, n_heads, d_k):
    W_q = d_model * d_model
    W_k = d_model * d_model
    W_v = d_model * d_model
    W_o = d_model * d_model
    return W_q + W_k + W_v + W_o


@wrong("count_parameters", "W_o is counted for one head only (d_k by d_model)")
def count_wo_one_head(d_model, n_heads, d_k):
    qkv = 3 * n_heads * d_model * d_k
    o = d_k * d_model
    return qkv + o


@wrong("count_parameters", "the number of heads is left out of q, k and v")
def count_no_heads(d_model, n_heads, d_k):
    one_head = d_model * d_k
    w_o = (n_heads * d_k) * d_model
    return one_head + one_head + one_head + w_o


@wrong("count_parameters", "builds four nn.Linear and counts their biases as well")
def count_with_linears(d_model, n_heads, d_k):
    layers = [
        nn.Linear(d_model, n_heads * d_k),
        nn.Linear(d_model, n_heads * d_k),
        nn.Linear(d_model, n_heads * d_k),
        nn.Linear(n_heads * d_k, d_model),
    ]
    n = 0
    for layer in layers:
        for p in layer.parameters():
            n += p.numel()
    return n


# ------------------------------------------------------------------ 5 split_heads
@wrong("split_heads", "views straight to (B, n_heads, T, d_k), which mixes tokens and heads")
def split_direct_view(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    x = x.reshape(B, n_heads, T, d_k)
    return x


@wrong("split_heads", "forgets to change the axes: gives (B, T, n_heads, d_k)")
def split_no_permute(x, n_heads):
    b, t, d = x.size()
    return x.reshape(b, t, n_heads, d // n_heads)


@wrong("split_heads", "the transpose is not assigned, so the result is still (B, T, n_heads, d_k)")
def split_transpose_lost(x, n_heads):
    B, T, D = x.shape
    heads = x.reshape(B, T, n_heads, D // n_heads)
    heads.transpose(1, 2)
    return heads


@wrong(
    "split_heads",
    "views with d_k and n_heads exchanged, so that a head gets every n_heads-th feature, then permutes to the right shape",
)
def split_interleaved(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    x = x.reshape(B, T, d_k, n_heads)
    return x.permute(0, 3, 1, 2)


@wrong("split_heads", "divides with / so that the size is a float (raises TypeError)")
def split_float_size(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model / n_heads
    return x.view(B, T, n_heads, d_k).permute(0, 2, 1, 3)


@wrong(
    "split_heads",
    "permutes to (B, T, d_k, n_heads) order: axes 2 and 3 exchanged instead of 1 and 2",
)
def split_wrong_axes(x, n_heads):
    B, T, d_model = x.shape
    x = x.reshape(B, T, n_heads, d_model // n_heads)
    return x.transpose(2, 3)


@wrong("split_heads", "chunk along the batch axis, stacked (the dim is forgotten)")
def split_chunk_no_dim(x, n_heads):
    parts = torch.chunk(x, n_heads)
    return torch.stack(parts, dim=1)


@wrong("split_heads", "stacks the heads in the first axis: (n_heads, B, T, d_k)")
def split_stack_front(x, n_heads):
    d_k = x.shape[2] // n_heads
    heads = []
    for i in range(n_heads):
        heads.append(x[:, :, i * d_k : (i + 1) * d_k])
    return torch.stack(heads)


@wrong("split_heads", "split(n_heads) makes pieces of width n_heads, not n_heads pieces")
def split_by_width(x, n_heads):
    pieces = x.split(n_heads, dim=-1)
    return torch.stack(pieces, dim=1)


@wrong("split_heads", "slices overlap: head i starts at i and not at i * d_k")
def split_overlap(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    out = torch.zeros(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for i in range(n_heads):
        out[:, i] = x[:, :, i : i + d_k]
    return out


# ------------------------------------------------------------------ 6 merge_heads
@wrong("merge_heads", "reshapes without bringing token and head together first")
def merge_direct(x):
    B, n_heads, T, d_k = x.shape
    return x.reshape(B, T, n_heads * d_k)


@wrong("merge_heads", "view after transpose, without contiguous (raises for most inputs)")
def merge_view_raises(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).view(B, T, h * d)


@wrong(
    "merge_heads",
    "transposes heads with features: the row holds the features of all heads interleaved",
)
def merge_interleaved(x):
    B, h, T, d_k = x.shape
    x = x.permute(0, 2, 3, 1)
    x = x.contiguous()
    return x.view(B, T, h * d_k)


@wrong("merge_heads", "adds the heads up instead of laying them side by side")
def merge_sum(x):
    return x.sum(dim=1)


@wrong("merge_heads", "takes the mean over the heads")
def merge_mean(x):
    merged = torch.mean(x, 1)
    return merged


@wrong("merge_heads", "cats the heads along the tokens: (B, n_heads * T, d_k)")
def merge_cat_tokens(x):
    heads = [x[:, i] for i in range(x.shape[1])]
    return torch.cat(heads, dim=1)


@wrong("merge_heads", "flattens axes 1 and 2 after no permutation: (B, n_heads * T, d_k)")
def merge_flatten(x):
    return x.flatten(1, 2)


@wrong("merge_heads", "permute is not assigned before the reshape")
def merge_permute_lost(x):
    B, n_heads, T, d_k = x.shape
    x.permute(0, 2, 1, 3)
    x = x.reshape(B, T, n_heads * d_k)
    return x


@wrong("merge_heads", "head order is turned round: the last head comes first")
def merge_prepend(x):
    result = x[:, 0]
    for i in range(1, x.shape[1]):
        result = torch.cat([x[:, i], result], dim=-1)
    return result


@wrong("merge_heads", "the last head is left out (range ends one too early)", slips=("one_place",))
def merge_loses_last(x):
    pieces = []
    for head in range(x.shape[1] - 1):
        pieces.append(x[:, head, :, :])
    pieces = pieces or [x[:, 0, :, :0]]
    return torch.cat(pieces, dim=2)


# ------------------------------------------------------------------ 7 causal_mask
@wrong("causal_mask", "blocks the diagonal too: a token may not look at itself")
def causal_with_diagonal(T):
    mask = torch.ones(T, T).triu()
    return mask == 1


@wrong("causal_mask", "blocks the past: lower triangle below the diagonal")
def causal_past(T):
    return torch.tril(torch.ones(T, T, dtype=torch.bool), diagonal=-1)


@wrong("causal_mask", "gives floats 0 and 1 instead of bool")
def causal_float(T):
    return torch.triu(torch.ones(T, T), diagonal=1)


@wrong("causal_mask", "zeros instead of ones: nothing is blocked")
def causal_zeros(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    return torch.triu(m, diagonal=1)


@wrong("causal_mask", "fills only one cell of each row: the next token, not all later ones")
def causal_next_only(T):
    mask = torch.zeros(T, T).bool()
    for i in range(T - 1):
        mask[i, i + 1] = True
    return mask


@wrong("causal_mask", "a numpy array, not a tensor")
def causal_numpy(T):
    return np.triu(np.ones((T, T), dtype=bool), k=1)


# ------------------------------------------------------------------ 8 padding_mask
@wrong("padding_mask", "gives (B, T) and forgets the two axes of size 1")
def padding_two_axes(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return positions[None, :] >= lengths[:, None]


@wrong("padding_mask", "> instead of >=: the first padding key stays open")
def padding_off_by_one(lengths, T):
    pos = torch.arange(T).to(lengths.device)
    mask = pos > lengths.unsqueeze(1)
    return mask.unsqueeze(1).unsqueeze(1)


@wrong("padding_mask", "True at the real tokens instead of the padding")
def padding_inverted(lengths, T):
    mask = torch.arange(T, device=lengths.device) < lengths[:, None]
    return mask[:, None, None, :]


@wrong("padding_mask", "fills from the start of the row: the first `length` keys are blocked")
def padding_wrong_end(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b in range(len(lengths)):
        mask[b, 0, 0, : lengths[b]] = True
    return mask


@wrong("padding_mask", "the axes of size 1 are in front: (1, 1, B, T)")
def padding_axes_in_front(lengths, T):
    mask = torch.arange(T, device=lengths.device).unsqueeze(0) >= lengths.unsqueeze(1)
    return mask[None, None]


@wrong(
    "padding_mask",
    "compares T positions with B lengths without a new axis (raises, or compares pairwise where B = T)",
)
def padding_no_broadcast(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = positions >= lengths
    return mask[:, None, None, :]


# ------------------------------------------------------------------ 9 masked_softmax
@wrong("masked_softmax", "plain -inf and softmax: empty rows become NaN")
def masked_plain(scores, mask):
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1)


@wrong("masked_softmax", "masked_fill is not assigned: nothing is blocked")
def masked_fill_lost(scores, mask):
    scores.masked_fill(mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights


@wrong(
    "masked_softmax",
    "sets blocked weights to zero after the softmax without normalising again: the rows do not add up to one",
)
def masked_after(scores, mask):
    weights = F.softmax(scores, dim=-1)
    weights = weights.masked_fill(mask, 0)
    return weights


@wrong("masked_softmax", "fills with 0 before the softmax: a blocked key still gets weight exp(0)")
def masked_zero_fill(scores, mask):
    s = scores.masked_fill(mask, 0.0)
    return s.softmax(-1)


@wrong(
    "masked_softmax",
    "-1e9 without treating empty rows: they get equal weights instead of zeros (and half precision overflows)",
)
def masked_minus_1e9(scores, mask):
    scores = scores.masked_fill(mask, -1e9)
    return F.softmax(scores, dim=-1)


@wrong(
    "masked_softmax",
    "-inf is added to the scores and nan_to_num mends only the output: the gradient of an empty row is NaN",
)
def masked_nan_to_num_added(scores, mask):
    blocked = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    blocked[mask] = -float("inf")
    weights = torch.softmax(scores + blocked, dim=-1)
    return torch.nan_to_num(weights)


@wrong("masked_softmax", "the mask is turned round: open keys are blocked and blocked ones open")
def masked_inverted(scores, mask):
    scores = scores.masked_fill(mask == 0, float("-inf"))
    w = torch.softmax(scores, dim=-1)
    return torch.where(torch.isnan(w), torch.zeros_like(w), w)


@wrong(
    "masked_softmax",
    "torch.where has its two branches exchanged: the open scores become -inf; then nan_to_num",
)
def masked_where_swapped(scores, mask):
    minus = torch.full_like(scores, -torch.inf)
    s = torch.where(mask, scores, minus)
    return s.softmax(-1).nan_to_num(0.0)


@wrong("masked_softmax", "softmax runs over the queries (dim=-2)", slips=("one_place",))
def masked_dim(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    s = scores.masked_fill(mask & ~empty, -math.inf)
    w = s.softmax(dim=-2)
    return w.masked_fill(empty, 0.0)


@wrong(
    "masked_softmax",
    "indexes with the mask, which must have the scores' full shape: raises for a mask that only broadcasts; empty rows stay NaN",
)
def masked_index(scores, mask):
    s = scores.clone()
    s[mask] = float("-inf")
    return s.softmax(dim=-1)


@wrong(
    "masked_softmax",
    "an empty row is recognised by any() instead of all(): every row with a blocked key becomes zeros",
)
def masked_any(scores, mask):
    empty = mask.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


# ------------------------------------------------------------------ 10 sum_of_head_writes
@wrong(
    "sum_of_head_writes",
    "takes rows of W_o for the slabs instead of columns (raises, or gives another width)",
)
def writes_rows(heads, W_o):
    B, h, T, d_k = heads.shape
    out = 0
    for i in range(h):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k].T
    return out


@wrong("sum_of_head_writes", "= instead of +=: only the last head's write is given")
def writes_last(heads, W_o):
    d_k = heads.shape[-1]
    for i in range(heads.shape[1]):
        slab = W_o[:, i * d_k : (i + 1) * d_k]
        total = heads[:, i] @ slab.T
    return total


@wrong("sum_of_head_writes", "every head uses the first slab of W_o")
def writes_first_slab(heads, W_o):
    d_k = heads.shape[3]
    total = torch.zeros(
        heads.shape[0], heads.shape[2], W_o.shape[0], dtype=heads.dtype, device=heads.device
    )
    for i in range(heads.shape[1]):
        total += heads[:, i] @ W_o[:, :d_k].T
    return total


@wrong("sum_of_head_writes", "the return stands inside the loop: only the first head is written")
def writes_return_in_loop(heads, W_o):
    d_k = heads.shape[-1]
    total = 0
    for i in range(heads.shape[1]):
        total = total + heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
        return total


@wrong("sum_of_head_writes", "divides the sum by the number of heads: a mean")
def writes_mean(heads, W_o):
    slabs = W_o.chunk(heads.shape[1], dim=1)
    writes = []
    for i, slab in enumerate(slabs):
        writes.append(heads[:, i] @ slab.T)
    return torch.stack(writes).mean(dim=0)


# ------------------------------------------------------------------ 11 MultiHeadAttention
@wrong(
    "MultiHeadAttention",
    "super().__init__() is missing: the first layer cannot be assigned (raises)",
)
class NoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return self.w_o(x)


@wrong("MultiHeadAttention", "w_o is never applied: gives the merged contexts")
class NoOutputProjection(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        d_k = d_model // self.n_heads
        q = self.w_q(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        k = self.w_k(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        v = self.w_v(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_k)
        if mask is None:
            mask = torch.zeros_like(scores).bool()
        empty = mask.all(-1, keepdim=True)
        w = scores.masked_fill(mask & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)
        return (w @ v).transpose(1, 2).reshape(B, T, d_model)


@wrong(
    "MultiHeadAttention",
    "empty rows become NaN: -inf and softmax with nothing done about rows that are wholly blocked",
)
class NaNForEmptyRows(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def forward(self, x, mask=None):
        q = self.split(self.w_q(x))
        k = self.split(self.w_k(x))
        v = self.split(self.w_v(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = torch.matmul(weights, v)
        out = out.transpose(1, 2).contiguous().view(x.shape[0], x.shape[1], self.d_model)
        return self.w_o(out)


@wrong("MultiHeadAttention", "the mask is never used")
class MaskForgotten(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        Q = self.w_q(x).reshape(B, T, self.h, -1).permute(0, 2, 1, 3)
        K = self.w_k(x).reshape(B, T, self.h, -1).permute(0, 2, 1, 3)
        V = self.w_v(x).reshape(B, T, self.h, -1).permute(0, 2, 1, 3)
        A = torch.softmax(Q @ K.transpose(2, 3) / Q.shape[-1] ** 0.5, dim=3)
        Z = A @ V
        return self.w_o(Z.permute(0, 2, 1, 3).reshape(B, T, D))


@wrong("MultiHeadAttention", "scales by the root of d_model instead of d_k")
class ScaledByDModel(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, d_model = x.shape

        def cut(y):
            return y.reshape(B, T, self.n_heads, d_model // self.n_heads).transpose(1, 2)

        q, k, v = cut(self.w_q(x)), cut(self.w_k(x)), cut(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_model)
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        rows = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~rows, -math.inf).softmax(dim=-1)
        weights = weights.masked_fill(rows, 0.0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "queries come from w_k as well (a copied line not changed)")
class CopiedLine(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        d_k = d_model // self.n_heads
        q = self.w_k(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        k = self.w_k(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        v = self.w_v(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_k)
        if mask is not None:
            blocked_rows = mask.all(dim=-1, keepdim=True)
            scores = scores.masked_fill(mask & ~blocked_rows, -math.inf)
            weights = scores.softmax(dim=-1).masked_fill(blocked_rows, 0.0)
        else:
            weights = scores.softmax(dim=-1)
        context = (weights @ v).transpose(1, 2)
        return self.w_o(context.reshape(B, T, d_model))


@wrong(
    "MultiHeadAttention",
    "the heads are merged without transposing back: tokens and heads are mixed",
)
class MergedWithoutTranspose(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        d_k = d_model // self.n_heads
        heads = []
        for w in [self.w_q, self.w_k, self.w_v]:
            heads.append(w(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2))
        q, k, v = heads
        scores = q @ k.mT / math.sqrt(d_k)
        if mask is None:
            mask = torch.zeros_like(scores, dtype=torch.bool)
        nothing = mask.all(dim=-1, keepdim=True)
        weights = (
            scores.masked_fill(mask & ~nothing, -math.inf).softmax(dim=-1).masked_fill(nothing, 0.0)
        )
        context = weights @ v
        return self.w_o(context.reshape(B, T, d_model))


@wrong(
    "MultiHeadAttention",
    "a single attention over all of d_model: the heads are never split (a mask with a heads axis gives a fourth axis or raises); besides, -1e9 leaves a wholly blocked row with equal weights",
)
class OneBigHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q = self.w_q(x)
        k = self.w_k(x)
        v = self.w_v(x)
        scores = q @ k.transpose(1, 2) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        return self.w_o(scores.softmax(dim=-1) @ v)


@wrong("MultiHeadAttention", "self is forgotten before w_o in forward (raises NameError)")
class SelfForgotten(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        d_k = d_model // self.n_heads
        q = self.w_q(x).view(B, T, self.n_heads, d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, d_k).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        context = (scores.softmax(dim=-1).nan_to_num(0.0) @ v).transpose(1, 2)
        return w_o(context.reshape(B, T, d_model))  # noqa: F821


# ------------------------------------------------------------------ 12 next_token_loss
@wrong("next_token_loss", "no shift: each position is compared with its own token")
def loss_no_shift(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits.reshape(B * T, V), tokens.reshape(B * T))


@wrong("next_token_loss", "shifts the wrong way: position i is compared with the token before it")
def loss_previous(logits, tokens):
    predictions = logits[:, 1:]
    answers = tokens[:, :-1]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


@wrong("next_token_loss", "sum instead of mean")
def loss_sum(logits, tokens):
    p, a = logits[:, :-1, :], tokens[:, 1:]
    return F.cross_entropy(p.flatten(0, 1), a.flatten(), reduction="sum")


@wrong("next_token_loss", "softmax before cross_entropy, which does a log-softmax of its own")
def loss_double_softmax(logits, tokens):
    probs = torch.softmax(logits, dim=-1)[:, :-1]
    return F.cross_entropy(probs.flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss", "the slices cut the batch axis instead of the time axis")
def loss_slices_batch(logits, tokens):
    predictions = logits[:-1]
    answers = tokens[1:]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


@wrong(
    "next_token_loss",
    "cross_entropy is given (B, T, V) although it wants the classes in the second axis (raises, or mixes axes)",
)
def loss_classes_last(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:])


@wrong(
    "next_token_loss",
    "the logits are not cut, so there are more predictions than answers (raises)",
    slips=("error:loss_counts",),
)
def loss_forgot_logits(logits, tokens):
    target = tokens[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), target)


@wrong("next_token_loss", "the minus sign is forgotten: the mean log-probability")
def loss_sign(logits, tokens):
    logp = torch.log_softmax(logits[:, :-1], dim=-1)
    picked = logp.gather(2, tokens[:, 1:, None])
    return picked.mean()


@wrong(
    "next_token_loss",
    "the last token is dropped from both: predictions and answers are cut alike and stay unshifted",
)
def loss_both_cut(logits, tokens):
    logits = logits[:, :-1]
    tokens = tokens[:, :-1]
    loss = nn.CrossEntropyLoss()
    return loss(logits.flatten(0, 1), tokens.flatten())


# ------------------------------------------------------------------ 13 previous_token_score
@wrong("previous_token_score", "the main diagonal: the weight tokens give to themselves")
def previous_self(weights):
    return weights.diagonal(dim1=-2, dim2=-1).mean(dim=-1)


@wrong("previous_token_score", "offset=1: the weight given to the next token")
def previous_next(weights):
    return torch.diagonal(weights, offset=1, dim1=1, dim2=2).mean(-1)


@wrong("previous_token_score", "diagonal of axes 0 and 1 (the dims are forgotten)")
def previous_default_dims(weights):
    return weights.diagonal(offset=-1).mean(dim=-1)


@wrong("previous_token_score", "divides by T, though there are only T - 1 such cells")
def previous_divides_by_t(weights):
    h, T, _ = weights.shape
    scores = torch.zeros(h, dtype=weights.dtype, device=weights.device)
    for i in range(1, T):
        scores += weights[:, i, i - 1]
    return scores / T


@wrong("previous_token_score", "sums and never divides")
def previous_sum(weights):
    n_heads, T, T2 = weights.shape
    result = []
    for head in range(n_heads):
        s = 0
        for t in range(1, T):
            s = s + weights[head, t, t - 1]
        result.append(s)
    return torch.stack(result)


@wrong("previous_token_score", "mean over all heads too: one number")
def previous_one_number(weights):
    d = torch.diagonal(weights, -1, 1, 2)
    return d.mean()


# ------------------------------------------------------------------ 14 count_flops
@wrong("count_flops", "a multiply-add counted as 1: half of the operations")
def flops_half(T, d_model, n_heads):
    projections = 4 * T * d_model * d_model
    attention = 2 * T * T * d_model
    return projections + attention


@wrong("count_flops", "only one of the two attention products is counted")
def flops_one_product(T, d_model, n_heads):
    proj = 4 * 2 * T * d_model**2
    qk = 2 * T * T * d_model
    return proj + qk


@wrong("count_flops", "n_heads times d_model in the products: d_model is used where d_k belongs")
def flops_heads_times_d_model(T, d_model, n_heads):
    projections = 8 * T * d_model**2
    products = n_heads * 4 * T**2 * d_model
    return projections + products


@wrong("count_flops", "only three projections (w_o forgotten)")
def flops_three_projections(T, d_model, n_heads):
    d_k = d_model // n_heads
    total = 0
    for w in ["q", "k", "v"]:
        total += 2 * T * d_model * d_model
    total += n_heads * 2 * T * T * d_k
    total += n_heads * 2 * T * T * d_k
    return total


@wrong("count_flops", "a float, since d_k comes from /")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 4 * 2 * T * d_model * d_model + 2 * n_heads * 2 * T * T * d_k


# ------------------------------------------------------------------ 15 blockwise_attention
@wrong("blockwise_attention", "ignores block and computes all scores at once")
def block_ignored(Q, K, V, block):
    return torch.softmax(Q @ K.T / math.sqrt(Q.shape[1]), dim=1) @ V


@wrong(
    "blockwise_attention",
    "softmax within each block, the results added: the blocks are never normalised against each other",
)
def block_sum_of_softmaxes(Q, K, V, block):
    out = 0
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        out = out + s.softmax(dim=1) @ V[i : i + block]
    return out


@wrong("blockwise_attention", "the old sum is not shrunk when the maximum grows (mix is)")
def block_total_not_shrunk(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
        m = larger
    return mix / total


@wrong("blockwise_attention", "no maximum is subtracted: exp overflows for large scores")
def block_no_max(Q, K, V, block):
    top = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype, device=Q.device)
    bottom = torch.zeros(Q.shape[0], 1, dtype=Q.dtype, device=Q.device)
    for i in range(0, K.shape[0], block):
        e = torch.exp(Q @ K[i : i + block].T / math.sqrt(Q.shape[1]))
        top = top + e @ V[i : i + block]
        bottom = bottom + e.sum(1, keepdim=True)
    return top / bottom


@wrong("blockwise_attention", "the last, shorter block is left out when block does not divide T_k")
def block_drops_rest(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), -math.inf, dtype=Q.dtype, device=Q.device)
    total = torch.zeros_like(m)
    mix = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype, device=Q.device)
    for b in range(K.shape[0] // block):
        k = K[b * block : (b + 1) * block]
        v = V[b * block : (b + 1) * block]
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        old = torch.exp(m - new)
        e = torch.exp(s - new)
        total = total * old + e.sum(dim=1, keepdim=True)
        mix = mix * old + e @ v
        m = new
    return mix / total


@wrong("blockwise_attention", "m is not updated at the end of the loop", slips=("last_only",))
def block_m_stays(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype, device=Q.device)
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink = (m - larger).exp()
        e = (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "returns mix without the division by the total")
def block_no_division(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    mix = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype, device=Q.device)
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        mix = mix * (m - larger).exp() + (scores - larger).exp() @ V[i : i + block]
        m = larger
    return mix


@wrong("blockwise_attention", "the scores are not scaled by the root of d_k")
def block_no_scale(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for keys, values in zip(K.split(block), V.split(block)):
        scores = Q @ keys.T
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ values
        m = larger
    return mix / total


@wrong(
    "blockwise_attention",
    "keepdim is forgotten in the maximum: (T_q,) meets (T_q, 1) and broadcasts to (T_q, T_q)",
)
def block_keepdim(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
        m = larger
    return mix / total


@wrong(
    "blockwise_attention",
    "blocks of queries instead of keys: each block of queries still holds scores with all the keys",
)
def block_of_queries(Q, K, V, block):
    out = []
    for i in range(0, len(Q), block):
        s = Q[i : i + block] @ K.T / math.sqrt(K.shape[1])
        out.append(s.softmax(-1) @ V)
    return torch.cat(out)


# ------------------------------------------------------------------ 16 rotate
@wrong("rotate", "turns the other way: the signs of the two sines are exchanged")
def rotate_backwards(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)


@wrong(
    "rotate",
    "pairs neighbours (2i, 2i + 1) instead of i and i + d_k/2, and puts the results back as halves",
)
def rotate_even_odd(x, positions):
    half = x.shape[-1] // 2
    speeds = 10000 ** (-torch.arange(half, device=x.device).double() / half)
    angle = positions.unsqueeze(1) * speeds
    cos = torch.cos(angle).to(x.dtype)
    sin = torch.sin(angle).to(x.dtype)
    even = x[..., 0::2]
    odd = x[..., 1::2]
    return torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)


@wrong("rotate", "the exponent is -i/d_k instead of -2i/d_k")
def rotate_exponent(x, positions):
    d_k = x.shape[-1]
    half = d_k // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    theta = 10000.0 ** (-i / d_k)
    angle = positions[:, None] * theta[None, :]
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1 = x[..., :half]
    x2 = x[..., half:]
    return torch.cat([x1 * c - x2 * s, x1 * s + x2 * c], -1)


@wrong("rotate", "the exponent has no minus: the speeds grow instead of falling")
def rotate_plus(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "second half: a is already overwritten when b's new value is computed from it")
def rotate_overwritten(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    a = a * cos - b * sin
    b = a * sin + b * cos
    return torch.cat((a, b), dim=-1)


@wrong("rotate", "ignores positions and counts 0, 1, 2, … itself")
def rotate_own_positions(x, positions):
    T, d = x.shape[-2], x.shape[-1]
    half = d // 2
    pos = torch.arange(T, device=x.device, dtype=torch.float64)
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = torch.outer(pos, 10_000.0 ** (-2 * i / d))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong(
    "rotate",
    "positions without a new axis: (T,) times (d_k/2,) raises, or pairs token i with speed i",
)
def rotate_no_new_axis(x, positions):
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angle = positions * speeds
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "stacks the two halves instead of laying them side by side: an axis too many")
def rotate_stack(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)


# ------------------------------------------------------------------ 17 cached_attention
@wrong("cached_attention", "no mask: the new tokens see later new tokens")
def cached_no_mask(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=2)
        v = torch.cat((cache[1], v), dim=2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(dim=-1) @ v, (k, v)


@wrong(
    "cached_attention",
    "triu with diagonal 1 although there are old keys: the mask hangs at the top left, so a new token sees only the first old ones",
)
def cached_top_left(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    blocked = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "the cache given back holds only the new keys and values")
def cached_returns_new_only(q, k, v, cache):
    if cache is None:
        keys, values = k, v
    else:
        keys = torch.cat([cache[0], k], dim=2)
        values = torch.cat([cache[1], v], dim=2)
    n = q.shape[2]
    mask = torch.ones(n, keys.shape[2], dtype=torch.bool, device=q.device).triu(
        keys.shape[2] - n + 1
    )
    scores = (q @ keys.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(mask, -torch.inf)
    return scores.softmax(-1) @ values, (k, v)


@wrong("cached_attention", "the new keys and values stand before the old ones")
def cached_new_first(q, k, v, cache):
    if cache is not None:
        old_k, old_v = cache
        k = torch.cat((k, old_k), dim=2)
        v = torch.cat((v, old_v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong(
    "cached_attention",
    "cats along the heads (dim=1): raises where the lengths differ",
    slips=("error:cat_axes",),
)
def cached_cat_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=1)
        v = torch.cat((cache[1], v), dim=1)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.triu(torch.ones(n, m, device=q.device), m - n + 1).bool()
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "does not handle cache = None (raises)")
def cached_none_forgotten(q, k, v, cache):
    old_k, old_v = cache
    k = torch.cat((old_k, k), dim=-2)
    v = torch.cat((old_v, v), dim=-2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "the diagonal starts one too far left: a token may not look at itself")
def cached_not_self(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "gives the context alone, without the cache")
def cached_context_only(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v


# ------------------------------------------------------------------ 18 grouped_scores
@wrong("grouped_scores", "repeat instead of repeat_interleave: head i looks with key head i % h_kv")
def grouped_repeat(q, k):
    n = q.shape[1] // k.shape[1]
    k = k.repeat(1, n, 1, 1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "the keys are not repeated at all: raises where h_kv is neither 1 nor h")
def grouped_not_repeated(q, k):
    scores = q @ k.transpose(-2, -1)
    return scores / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "repeats along the batch axis (dim=0)")
def grouped_repeat_batch(q, k):
    groups = q.shape[1] // k.shape[1]
    k = torch.repeat_interleave(k, groups, dim=0)
    return torch.matmul(q, k.transpose(2, 3)) / math.sqrt(k.shape[-1])


@wrong(
    "grouped_scores", "repeats h_kv times instead of h / h_kv times (right only where these agree)"
)
def grouped_wrong_count(q, k):
    h_kv = k.shape[1]
    k = k.repeat_interleave(h_kv, dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "the scaling is forgotten")
def grouped_no_scale(q, k):
    out = []
    share = q.shape[1] // k.shape[1]
    for i in range(q.shape[1]):
        out.append(q[:, i] @ k[:, i // share].transpose(1, 2))
    return torch.stack(out, dim=1)


@wrong(
    "grouped_scores",
    "head i looks with key head i // h_kv instead of i // (h / h_kv): wrong key heads, or an index out of range (raises)",
)
def grouped_index(q, k):
    h_kv = k.shape[1]
    scores = []
    for i in range(q.shape[1]):
        key = k[:, i // h_kv]
        scores.append(q[:, i] @ key.transpose(-1, -2) / math.sqrt(q.shape[-1]))
    return torch.stack(scores, 1)


@wrong("grouped_scores", "the results are stacked in front: (h, B, T_q, T_k)")
def grouped_stack_front(q, k):
    g = q.shape[1] // k.shape[1]
    scores = []
    for i in range(q.shape[1]):
        scores.append(q[:, i] @ k[:, i // g].mT / q.shape[-1] ** 0.5)
    return torch.stack(scores)


# ------------------------------------------------------------------ 19 cached_mask
@wrong("cached_mask", "> instead of >=: the window is one too wide")
def cmask_window_wide(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    if window is not None:
        blocked = blocked | (query - key > window)
    return blocked


@wrong("cached_mask", "queries are numbered from 0, as if nothing were cached")
def cmask_from_zero(n_new, n_cached, window):
    query = torch.arange(n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    blocked = key > query
    if window is None:
        return blocked
    return blocked | (query - key >= window)


@wrong(
    "cached_mask",
    "& instead of |: future and too far back at once is never true, so with a window nothing is blocked",
    slips=("one_place",),
)
def cmask_and(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new).unsqueeze(1)
    k = torch.arange(n_cached + n_new).unsqueeze(0)
    future = k > q
    if window is None:
        return future
    return future & (q - k >= window)


@wrong("cached_mask", "the window is ignored")
def cmask_no_window(n_new, n_cached, window):
    mask = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    return mask.triu(n_cached + 1)


@wrong("cached_mask", "window None is not handled (raises TypeError)")
def cmask_none(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return (key > query) | (query - key >= window)


@wrong("cached_mask", "the mask is (n_new, n_new): the cached columns are missing")
def cmask_square(n_new, n_cached, window):
    i = torch.arange(n_new)
    dist = i[:, None] - i[None, :]
    blocked = dist < 0
    if window is not None:
        blocked = blocked | (dist >= window)
    return blocked


@wrong("cached_mask", "the future is left open: only what lies too far back is blocked")
def cmask_future_open(n_new, n_cached, window):
    total = n_cached + n_new
    mask = torch.zeros(n_new, total, dtype=torch.bool)
    if window is None:
        return mask
    for i in range(n_new):
        for j in range(total):
            if n_cached + i - j >= window:
                mask[i, j] = True
    return mask


@wrong("cached_mask", "axes exchanged: (n_cached + n_new, n_new)")
def cmask_transposed(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)
    key = torch.arange(n_cached + n_new)[:, None]
    blocked = key > query
    return blocked if window is None else blocked | (query - key >= window)


# ------------------------------------------------------------------ silence
@wrong("silence", "no clone: the caller's own tensor is changed")
def silence_in_place(heads, i):
    heads[:, i] = 0
    return heads


@wrong("silence", "indexes the first axis: silences sequence i instead of head i")
def silence_batch(heads, i):
    quiet = heads.clone()
    quiet[i] = 0
    return quiet


@wrong("silence", "silences all heads but i (mask the wrong way round)")
def silence_others(heads, i):
    result = torch.zeros_like(heads)
    result[:, i] = heads[:, i]
    return result


@wrong("silence", "removes head i instead of zeroing it: one head fewer")
def silence_removed(heads, i):
    return torch.cat([heads[:, :i], heads[:, i + 1 :]], dim=1)


# ------------------------------------------------------------------ solved
@wrong("solved", "query and key axes exchanged: reads the column of the query")
def solved_column(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", ">= counts a tie as a yes")
def solved_tie(weights, query, right, wrong):
    a = weights[:, query, right]
    b = weights[:, query, wrong]
    return a >= b


@wrong("solved", "gives the difference of the two weights, not a bool")
def solved_difference(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong]


@wrong("solved", "all() makes one bool of all the heads")
def solved_all(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).all()


@wrong(
    "solved",
    "right only when the key has the largest weight of the whole row, not merely more than the wrong one",
)
def solved_argmax(weights, query, right, wrong):
    return weights[:, query].argmax(dim=-1) == right
