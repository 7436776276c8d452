"""Students of a deep-learning course in their second week of torch, working alone.

They have just read the chapter and fill the stub in one go: the formulas are known, axes, views and
broadcasting are felt for, and the cell is run once the code looks finished.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from answers import right, wrong


# --- 1 attention_scores ---


@wrong("attention_scores", "d_k ** 1/2 is read as (d_k ** 1) / 2: divides by half of d_k")
def scores_precedence(Q, K):
    d_k = Q.shape[-1]
    root = d_k**1 / 2
    return torch.matmul(Q, K.transpose(-2, -1)) / root


@wrong("attention_scores", "divides by the root of 64, the example's d_k, whatever the input")
def scores_hard_coded(Q, K):
    d_k = 64
    return Q @ K.transpose(-1, -2) / math.sqrt(d_k)


@wrong("attention_scores", "K.T turns all axes round, so batched input does not multiply")
def scores_dot_t(Q, K):
    scores = Q @ K.T
    return scores / Q.shape[-1] ** 0.5


@wrong("attention_scores", "the einsum writes keys before queries: the scores come out transposed")
def scores_einsum_kq(Q, K):
    d_k = Q.shape[-1]
    return torch.einsum("...qd,...kd->...kq", Q, K) / d_k**0.5


@wrong("attention_scores", "leaves out the scale; also applies the softmax already")
def scores_softmaxed(Q, K):
    s = Q @ K.mT
    return F.softmax(s, dim=-1)


@right("attention_scores")
def scores_scaled_both(Q, K):
    root4 = Q.shape[-1] ** 0.25
    return (Q / root4) @ (K / root4).mT


# --- 2 attention ---


@wrong("attention", "softmax over the queries instead of the keys")
def attention_softmax_queries(Q, K, V):
    d_k = Q.shape[-1]
    scores = Q @ K.transpose(-2, -1) / math.sqrt(d_k)
    weights = torch.softmax(scores, dim=-2)
    return weights @ V, weights


@wrong("attention", "softmax over dim 1, whatever the number of axes")
def attention_softmax_dim1(Q, K, V):
    scores = torch.matmul(Q, K.mT) / Q.size(-1) ** 0.5
    attn = F.softmax(scores, dim=1)
    out = torch.matmul(attn, V)
    return out, attn


@wrong("attention", "forgets the scale")
def attention_unscaled(Q, K, V):
    w = F.softmax(Q @ K.transpose(-2, -1), -1)
    return w @ V, w


@wrong("attention", "returns the output alone, without the weights")
def attention_output_only(Q, K, V):
    scores = Q @ K.mT / math.sqrt(K.shape[-1])
    weights = scores.softmax(-1)
    return weights @ V


@wrong("attention", "returns weights first and output second")
def attention_swapped(Q, K, V):
    d_k = K.shape[-1]
    A = torch.softmax(Q @ K.mT / d_k**0.5, dim=-1)
    return A, A @ V


@wrong("attention", "returns the scores before the softmax in place of the weights")
def attention_returns_scores(Q, K, V):
    scores = Q @ K.transpose(-2, -1)
    scores = scores / math.sqrt(Q.shape[-1])
    output = F.softmax(scores, dim=-1) @ V
    return output, scores


@wrong("attention", "scales after the softmax instead of before it")
def attention_scale_late(Q, K, V):
    d_k = Q.shape[-1]
    weights = F.softmax(Q @ K.mT, dim=-1) / math.sqrt(d_k)
    return weights @ V, weights


@wrong("attention", "takes the scale from V's width d_v instead of d_k")
def attention_scale_from_v(Q, K, V):
    d = V.shape[-1]
    scores = torch.einsum("...id,...jd->...ij", Q, K) * d**-0.5
    p = scores.softmax(dim=-1)
    return torch.einsum("...ij,...jd->...id", p, V), p


@wrong("attention", "divides by d_k instead of its root; also softmax over the queries")
def attention_dk_and_axis(Q, K, V):
    dk = Q.shape[-1]
    scores = Q.matmul(K.mT) / dk
    weights = scores.softmax(dim=-2)
    return weights.matmul(V), weights


@wrong("attention", "forgets the scale; also returns weights first")
def attention_unscaled_swapped(Q, K, V):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    weights = nn.Softmax(dim=-1)(scores)
    context = torch.matmul(weights, V)
    return weights, context


# --- 3 project_qkv ---


@wrong("project_qkv", "forgets to transpose W_qkv, so the product does not fit")
def project_no_transpose(X, W_qkv):
    qkv = X @ W_qkv
    Q, K, V = qkv.chunk(3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "cuts the joined result along the tokens instead of the features")
def project_chunk_tokens(X, W_qkv):
    qkv = X @ W_qkv.T
    Q, K, V = torch.chunk(qkv, 3, dim=1)
    return Q, K, V


@wrong("project_qkv", "takes the pieces in the order K, Q, V")
def project_kqv_order(X, W_qkv):
    K, Q, V = (X @ W_qkv.T).chunk(3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "reads the rows as interleaved q, k, v triples instead of three blocks")
def project_interleaved(X, W_qkv):
    B, T, d = X.shape
    qkv = (X @ W_qkv.T).view(B, T, d, 3)
    return qkv[..., 0], qkv[..., 1], qkv[..., 2]


@wrong("project_qkv", "multiplies by the three weight blocks without transposing them")
def project_blocks_untransposed(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3)
    return X @ W_q, X @ W_k, X @ W_v


@wrong("project_qkv", "V is made with K's block of rows")
def project_v_from_k_rows(X, W_qkv):
    d = X.shape[-1]
    Q = X @ W_qkv[:d].T
    K = X @ W_qkv[d : 2 * d].T
    V = X @ W_qkv[d : 2 * d].T
    return Q, K, V


@wrong("project_qkv", "reshapes W_qkv to (d_model, 3 d_model) instead of transposing it")
def project_reshaped_weight(X, W_qkv):
    d_model = X.shape[-1]
    qkv = X @ W_qkv.reshape(d_model, 3 * d_model)
    return qkv[..., :d_model], qkv[..., d_model : 2 * d_model], qkv[..., 2 * d_model :]


@wrong("project_qkv", "splits into pieces of width 3 instead of 3 pieces, and cannot unpack")
def project_split_by_three(X, W_qkv):
    out = F.linear(X, W_qkv)
    Q, K, V = torch.split(out, 3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "reshapes to (3, B, T, d_model) instead of splitting the features")
def project_reshape_three_first(X, W_qkv):
    B, T, d_model = X.shape
    qkv = torch.matmul(X, W_qkv.t()).reshape(3, B, T, d_model)
    return qkv[0], qkv[1], qkv[2]


@wrong("project_qkv", "swaps K and V; also leaves the blocks untransposed")
def project_kv_swapped_untransposed(X, W_qkv):
    d = X.size(-1)
    Wq = W_qkv[:d]
    Wv = W_qkv[d : 2 * d]
    Wk = W_qkv[2 * d :]
    return X @ Wq, X @ Wk, X @ Wv


@right("project_qkv")
def project_einsum(X, W_qkv):
    W = W_qkv.reshape(3, -1, X.shape[-1])
    return list(torch.einsum("btm,com->cbto", X, W))


# --- 4 count_parameters ---


@wrong("count_parameters", "four square matrices: ignores n_heads and d_k")
def params_square(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "leaves out W_o")
def params_no_output(d_model, n_heads, d_k):
    per_head = 3 * d_model * d_k
    return n_heads * per_head


@wrong("count_parameters", "counts one head only for W_o")
def params_small_wo(d_model, n_heads, d_k):
    qkv = 3 * n_heads * d_model * d_k
    o = d_k * d_model
    return qkv + o


@wrong("count_parameters", "replaces d_k by d_model / n_heads; also gives a float")
def params_tied_float(d_model, n_heads, d_k):
    d_k = d_model / n_heads
    total = 0
    for _ in range(n_heads):
        total += 3 * d_model * d_k
    return total + n_heads * d_k * d_model


# --- 5 split_heads ---


@wrong("split_heads", "views straight to (B, n_heads, T, d_k) instead of transposing")
def split_direct_view(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    return x.reshape(B, n_heads, T, d_k)


@wrong("split_heads", "forgets the transpose: stays (B, T, n_heads, d_k)")
def split_no_transpose(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads)


@wrong("split_heads", "views as (d_k, n_heads), so each head gets every n_heads-th feature")
def split_strided(x, n_heads):
    B, T, D = x.shape
    x = x.view(B, T, D // n_heads, n_heads)
    return x.permute(0, 3, 1, 2)


@wrong("split_heads", "single slash gives a float d_k and view refuses it")
def split_float_dk(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model / n_heads
    return x.view(B, T, n_heads, d_k).transpose(1, 2)


@wrong("split_heads", "splits into pieces of width n_heads instead of n_heads pieces")
def split_width_n_heads(x, n_heads):
    heads = torch.split(x, n_heads, dim=-1)
    return torch.stack(heads, dim=1)


@wrong("split_heads", "stacks the heads in front of the batch axis")
def split_heads_first(x, n_heads):
    parts = x.chunk(n_heads, dim=-1)
    return torch.stack(parts)


@wrong("split_heads", "transposes first and never turns back: gives (B, n_heads, d_k, T)")
def split_dk_before_t(x, n_heads):
    B, T, d_model = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, d_model // n_heads, T)


@wrong("split_heads", "cuts the tokens into n_heads groups instead of the features")
def split_token_groups(x, n_heads):
    chunks = x.chunk(n_heads, dim=1)
    return torch.stack(chunks, dim=1)


@wrong("split_heads", "swaps axes 1 and 3 instead of 1 and 2: gives (B, d_k, n_heads, T)")
def split_transpose_1_3(x, n_heads):
    B, T, C = x.size()
    d_k = C // n_heads
    return x.reshape(B, T, n_heads, d_k).transpose(1, 3)


@wrong("split_heads", "views as (d_k, n_heads); also leaves d_k before T")
def split_strided_swapped(x, n_heads):
    B, T, d_model = x.shape
    d_k = int(d_model / n_heads)
    x = x.view(B, T, d_k, n_heads)
    return x.permute(0, 3, 2, 1)


@right("split_heads")
def split_fancy_slices(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., i * d_k : (i + 1) * d_k] for i in range(n_heads)], 1)


# --- 6 merge_heads ---


@wrong("merge_heads", "view after transpose without contiguous() raises")
def merge_view(x):
    B, h, T, d_k = x.shape
    return x.transpose(1, 2).view(B, T, h * d_k)


@wrong("merge_heads", "the transpose is thrown away, so the reshape mixes tokens and heads")
def merge_lost_transpose(x):
    B, n_heads, T, d_k = x.shape
    x.transpose(1, 2)
    return x.reshape(B, T, n_heads * d_k)


@wrong("merge_heads", "puts the heads behind d_k, so their features come out interleaved")
def merge_interleaved(x):
    B, h, T, d = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, d * h)


@wrong("merge_heads", "adds the heads up instead of laying them side by side")
def merge_sum(x):
    return x.sum(dim=1)


@wrong("merge_heads", "flattens the tokens together with the heads")
def merge_flatten_all(x):
    return x.transpose(1, 2).flatten(1)


@wrong("merge_heads", "joins the heads along the tokens: gives (B, n_heads*T, d_k)")
def merge_along_tokens(x):
    heads = [x[:, i] for i in range(x.shape[1])]
    return torch.cat(heads, dim=1)


@wrong("merge_heads", "stacks the heads as an axis of their own and never flattens it")
def merge_stacked(x):
    heads = x.unbind(dim=1)
    return torch.stack(heads, dim=2)


@wrong("merge_heads", "gives torch.cat a tensor instead of a list of heads")
def merge_cat_tensor(x):
    heads = x.transpose(0, 1)
    return torch.cat(heads, dim=-1)


@wrong("merge_heads", "transposes tokens with features instead of tokens with heads")
def merge_transpose_2_3(x):
    B, n_heads, T, d_k = x.shape
    return x.transpose(2, 3).contiguous().view(B, T, n_heads * d_k)


@wrong("merge_heads", "reads the shape as (B, T, n_heads, d_k); also does not transpose")
def merge_shape_misread(x):
    B, T, n_heads, d_k = x.shape
    return x.contiguous().view(B, T, n_heads * d_k)


@right("merge_heads")
def merge_hstack(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


# --- 7 causal_mask ---


@wrong("causal_mask", "True where attention is allowed: the meaning is turned round")
def causal_allowed(T):
    return torch.tril(torch.ones(T, T)).bool()


@wrong("causal_mask", "the diagonal is blocked too: a token cannot see itself")
def causal_with_diagonal(T):
    i = torch.arange(T)
    return i[None, :] >= i[:, None]


@wrong("causal_mask", "float instead of bool")
def causal_float(T):
    return torch.triu(torch.ones(T, T), diagonal=1)


@wrong("causal_mask", "blocks the past instead of the future; also leaves floats")
def causal_past_float(T):
    mask = torch.zeros(T, T)
    for i in range(T):
        for j in range(T):
            if j < i:
                mask[i, j] = 1
    return mask


# --- 8 padding_mask ---


@wrong("padding_mask", "True at the real tokens instead of the padding")
def padding_real(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos[None, :] < lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "> instead of >=: the first padding position stays open")
def padding_off_by_one(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    mask = pos.unsqueeze(0) > lengths.unsqueeze(1)
    return mask.unsqueeze(1).unsqueeze(1)


@wrong("padding_mask", "gives (B, T) without the two axes for heads and queries")
def padding_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths[:, None]


@wrong("padding_mask", "compares (T,) with (B,) directly, which does not broadcast")
def padding_no_axis(lengths, T):
    mask = torch.arange(T, device=lengths.device) >= lengths
    return mask[:, None, None, :]


@wrong("padding_mask", "True at the real tokens; also puts T on the query axis: (B, 1, T, 1)")
def padding_real_query_axis(lengths, T):
    B = len(lengths)
    pos = torch.arange(T, device=lengths.device).expand(B, T)
    keep = pos < lengths.view(B, 1)
    return keep.view(B, 1, T, 1)


@right("padding_mask")
def padding_cumsum(lengths, T):
    ones = torch.ones(len(lengths), T, dtype=torch.long, device=lengths.device)
    return (ones.cumsum(1) > lengths[:, None])[:, None, None]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "a fully blocked row comes out as NaN")
def masked_nan_rows(scores, mask):
    scores = scores.masked_fill(mask, float("-inf"))
    return F.softmax(scores, dim=-1)


@wrong("masked_softmax", "dtype minimum keeps fully blocked rows uniform instead of zero")
def masked_uniform_rows(scores, mask):
    low = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(mask, low), dim=-1)


@wrong("masked_softmax", "sets blocked scores to 0 before the softmax: they still get weight")
def masked_zero_scores(scores, mask):
    scores = scores * (~mask)
    return scores.softmax(-1)


@wrong("masked_softmax", "zeroes the weights after the softmax and does not renormalise")
def masked_zero_after(scores, mask):
    w = F.softmax(scores, dim=-1)
    return w.masked_fill(mask, 0.0)


@wrong("masked_softmax", "renormalises after the softmax: a huge blocked score eats the row")
def masked_renormalised(scores, mask):
    w = torch.softmax(scores, dim=-1)
    w = w.masked_fill(mask, 0)
    return w / (w.sum(dim=-1, keepdim=True) + 1e-9)


@wrong("masked_softmax", "exponentials without subtracting the maximum overflow for large scores")
def masked_raw_exp(scores, mask):
    e = torch.exp(scores) * (~mask)
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@wrong("masked_softmax", "indexes with a mask that has fewer axes than the scores")
def masked_index_assign(scores, mask):
    s = scores.clone()
    s[mask] = -torch.inf
    return torch.nan_to_num(F.softmax(s, dim=-1))


@wrong("masked_softmax", "multiplies the mask by -inf: 0 * inf makes every weight NaN, then zero")
def masked_times_inf(scores, mask):
    s = scores + mask * float("-inf")
    return torch.nan_to_num(s.softmax(-1), nan=0.0)


@wrong("masked_softmax", "zeroes each row with any blocked key instead of all keys blocked")
def masked_any_for_all(scores, mask):
    w = scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
    dead = mask.any(dim=-1, keepdim=True)
    return w.masked_fill(dead, 0.0)


@wrong("masked_softmax", "mask taken as True = allowed; also blocked rows come out as NaN")
def masked_inverted_nan(scores, mask):
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(scores, dim=-1)


@right("masked_softmax")
def masked_nan_to_num(scores, mask):
    w = torch.softmax(scores.masked_fill(mask, -torch.inf), -1)
    return torch.nan_to_num(w, nan=0.0)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "slices rows of W_o instead of columns, so the product does not fit")
def writes_row_slices(heads, W_o):
    B, h, T, d_k = heads.shape
    out = 0
    for i in range(h):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k].T
    return out


@wrong("sum_of_head_writes", "overwrites instead of adding: only the last head's write is returned")
def writes_last_head(heads, W_o):
    n_heads, d_k = heads.shape[1], heads.shape[3]
    for i in range(n_heads):
        block = W_o[:, i * d_k : (i + 1) * d_k]
        out = heads[:, i] @ block.T
    return out


@wrong("sum_of_head_writes", "every head uses the first head's columns of W_o")
def writes_first_block(heads, W_o):
    B, h, T, d_k = heads.shape
    writes = [heads[:, i] @ W_o[:, :d_k].T for i in range(h)]
    return sum(writes)


@wrong("sum_of_head_writes", "returns the writes of the heads without adding them up")
def writes_unsummed(heads, W_o):
    h, d_k = heads.size(1), heads.size(-1)
    W = W_o.reshape(-1, h, d_k)
    return torch.einsum("bhtd,mhd->bhtm", heads, W)


@wrong("sum_of_head_writes", "averages the heads; also groups W_o's columns as (d_k, n_heads)")
def writes_mean_grouped(heads, W_o):
    B, h, T, d_k = heads.shape
    W = W_o.reshape(-1, d_k, h)
    return torch.einsum("bhtd,mdh->bhtm", heads, W).mean(dim=1)


@right("sum_of_head_writes")
def writes_functional(heads, W_o):
    blocks = W_o.chunk(heads.shape[1], dim=1)
    return torch.stack([F.linear(z, w) for z, w in zip(heads.unbind(1), blocks)]).sum(0)


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "w_o is made but never applied")
class MHANoOutput(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q = self.w_q(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        w = torch.nan_to_num(scores.softmax(-1))
        return (w @ v).transpose(1, 2).reshape(B, T, D)


@wrong("MultiHeadAttention", "scales by the root of d_model instead of d_k")
class MHAScaleDModel(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.n_heads, -1).transpose(1, 2)

    def forward(self, x, mask=None):
        Q, K, V = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = Q @ K.transpose(-2, -1) / self.d_model**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1).nan_to_num()
        return self.w_o((weights @ V).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "mask taken as True = allowed; also a fully blocked query gives NaN")
class MHAMaskInverted(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0
        self.h = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.size()
        q, k, v = [
            w(x).view(B, T, self.h, self.d_k).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            att = att.masked_fill(mask == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.w_o(y)


@wrong("MultiHeadAttention", "a query whose every key is blocked gives NaN")
class MHANanRows(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = [nn.Linear(d_model, d_model) for _ in range(4)]

    def forward(self, x, mask=None):
        B, T, D = x.shape
        d_k = D // self.n_heads
        Q = self.w_q(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        K = self.w_k(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        V = self.w_v(x).reshape(B, T, self.n_heads, d_k).transpose(1, 2)
        S = Q @ K.mT / d_k**0.5
        if mask is not None:
            S = S.masked_fill(mask, -math.inf)
        return self.w_o((S.softmax(-1) @ V).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "the heads are merged without transposing back")
class MHAMergeMixed(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q = self.w_q(x).view(B, T, self.n_heads, self.d_k).permute(0, 2, 1, 3)
        k = self.w_k(x).view(B, T, self.n_heads, self.d_k).permute(0, 2, 1, 3)
        v = self.w_v(x).view(B, T, self.n_heads, self.d_k).permute(0, 2, 1, 3)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = torch.nan_to_num(F.softmax(scores, dim=-1))
        context = torch.matmul(weights, v)
        return self.w_o(context.reshape(B, T, d_model))


@wrong("MultiHeadAttention", "forgets super().__init__(), so no layer can be assigned")
class MHANoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.n_heads = n_heads

    def forward(self, x, mask=None):
        B, T, D = x.shape
        d = D // self.n_heads
        q, k, v = (f(x).view(B, T, -1, d).transpose(1, 2) for f in (self.w_q, self.w_k, self.w_v))
        s = q @ k.mT / d**0.5
        if mask is not None:
            s = s.masked_fill(mask, -torch.inf)
        return self.w_o((s.softmax(-1).nan_to_num() @ v).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "the values are made with w_k instead of w_v")
class MHAValuesFromK(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, x):
        return x.unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)

    def forward(self, x, mask=None):
        q = self.heads(self.w_q(x))
        k = self.heads(self.w_k(x))
        v = self.heads(self.w_k(x))
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        out = torch.nan_to_num(scores.softmax(-1)) @ v
        return self.w_o(out.transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "dropout on the weights is active in training mode")
class MHADropout(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        d_k = D // self.n_heads
        q, k, v = [
            w(x).view(B, T, self.n_heads, d_k).transpose(1, 2)
            for w in [self.w_q, self.w_k, self.w_v]
        ]
        scores = q @ k.mT / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        weights = self.dropout(scores.softmax(-1).nan_to_num())
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "the mask is accepted but never used")
class MHAMaskIgnored(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q = self.w_q(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        weights = F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
        out = (weights @ v).transpose(1, 2).contiguous().view(B, T, D)
        return self.w_o(out)


@wrong("MultiHeadAttention", "forgets the scale; also views straight to (B, n_heads, T, d_k)")
class MHAUnscaledViewed(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        Q = self.w_q(x).view(B, self.n_heads, T, self.d_k)
        K = self.w_k(x).view(B, self.n_heads, T, self.d_k)
        V = self.w_v(x).view(B, self.n_heads, T, self.d_k)
        scores = Q @ K.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
        return self.w_o((weights @ V).transpose(1, 2).reshape(B, T, D))


@right("MultiHeadAttention")
class MHAPerHeadLoop(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, D = x.shape
        h = self.n_heads
        if mask is None:
            mask = torch.zeros(1, dtype=torch.bool, device=x.device)
        mask = mask.expand(B, h, T, T)
        q, k, v = (w(x).chunk(h, dim=-1) for w in (self.w_q, self.w_k, self.w_v))
        outs = []
        for i in range(h):
            s = q[i] @ k[i].mT * (D // h) ** -0.5
            s = s.masked_fill(mask[:, i], -torch.inf)
            outs.append(s.softmax(-1).nan_to_num(0.0) @ v[i])
        return self.w_o(torch.cat(outs, dim=-1))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "no shift: each position is asked for its own token")
def loss_no_shift(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits.reshape(B * T, V), tokens.reshape(B * T))


@wrong("next_token_loss", "shifts the wrong way: predicts the previous token")
def loss_shift_back(logits, tokens):
    pred = logits[:, 1:].flatten(0, 1)
    target = tokens[:, :-1].flatten()
    return F.cross_entropy(pred, target)


@wrong("next_token_loss", "gives cross_entropy (B, T, V) with the classes in the wrong axis")
def loss_unflattened(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:])


@wrong("next_token_loss", "sums the losses instead of averaging them")
def loss_sum(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1), reduction="sum"
    )


@wrong("next_token_loss", "softmax before cross_entropy; also shifts the wrong way")
def loss_double_softmax(logits, tokens):
    probs = F.softmax(logits, dim=-1)
    probs = probs[:, 1:].flatten(0, 1)
    return F.cross_entropy(probs, tokens[:, :-1].flatten())


@wrong("next_token_loss", "treats token 0 as padding and leaves it out of the mean")
def loss_ignores_zero(logits, tokens):
    logits = logits[:, :-1, :]
    labels = tokens[:, 1:]
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=0)


@wrong("next_token_loss", "rolls the tokens, so the last position must predict the first token")
def loss_roll(logits, tokens):
    targets = torch.roll(tokens, shifts=-1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@wrong("next_token_loss", "log_softmax over the positions instead of the vocabulary")
def loss_softmax_positions(logits, tokens):
    logp = torch.log_softmax(logits[:, :-1], dim=1)
    picked = logp.gather(-1, tokens[:, 1:].unsqueeze(-1))
    return -picked.mean()


@wrong("next_token_loss", "slices the batch axis instead of the time axis")
def loss_slices_batch(logits, tokens):
    x = logits[:-1].flatten(0, 1)
    y = tokens[1:].flatten()
    return F.cross_entropy(x, y)


@wrong("next_token_loss", "no shift; also the minus sign is missing")
def loss_no_shift_positive(logits, tokens):
    logp = F.log_softmax(logits, dim=-1)
    picked = torch.gather(logp, 2, tokens[..., None]).squeeze(-1)
    return picked.mean()


@right("next_token_loss")
def loss_by_logsumexp(logits, tokens):
    z, t = logits[:, :-1], tokens[:, 1:, None]
    return (z.logsumexp(-1) - z.gather(2, t)[..., 0]).mean()


# --- 13 previous_token_score ---


@wrong("previous_token_score", "reads the diagonal above: the weight on the next token")
def previous_upper_diagonal(weights):
    return weights.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "the loop starts at query 0, whose key -1 is the last token")
def previous_from_zero(weights):
    T = weights.shape[-1]
    vals = torch.stack([weights[:, i, i - 1] for i in range(T)], dim=-1)
    return vals.mean(dim=-1)


@wrong("previous_token_score", "diagonal over the default axes 0 and 1: heads against queries")
def previous_default_dims(weights):
    d = torch.diagonal(weights, -1)
    return d.mean(dim=-1)


@wrong("previous_token_score", "divides by T instead of T - 1; also averages over the heads")
def previous_over_t_all_heads(weights):
    h, T, _ = weights.shape
    total = 0
    for t in range(1, T):
        total += weights[:, t, t - 1]
    return (total / T).mean()


@right("previous_token_score")
def previous_einsum(weights):
    return torch.einsum("hii->h", weights[:, 1:, :-1]) / (weights.shape[1] - 1)


# --- 14 count_flops ---


@wrong("count_flops", "counts a multiply-add as 1 instead of 2")
def flops_single(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * T * d_model * d_model
    attn = 2 * n_heads * T * T * d_k
    return proj + attn


@wrong("count_flops", "every head's product is counted with the whole d_model")
def flops_heads_too_wide(T, d_model, n_heads):
    projections = 4 * 2 * T * d_model**2
    attention = 2 * 2 * n_heads * T**2 * d_model
    return projections + attention


@wrong("count_flops", "single slash makes the answer a float")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    flops = 8 * T * d_model**2
    flops += 4 * T * T * d_k * n_heads
    return flops


@wrong("count_flops", "leaves out the output projection; also one attention product only")
def flops_two_missing(T, d_model, n_heads):
    qkv = 3 * (2 * T * d_model * d_model)
    scores = 2 * T * T * d_model
    return qkv + scores


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "the old sums are not rescaled when the maximum grows")
def blockwise_no_rescale(Q, K, V, block):
    d_k = Q.shape[-1]
    m = torch.full_like(Q[:, :1], -torch.inf)
    l = torch.zeros_like(m)
    acc = Q.new_zeros(Q.shape[0], V.shape[-1])
    for j in range(0, K.shape[0], block):
        s = Q @ K[j : j + block].T / math.sqrt(d_k)
        m = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - m)
        l = l + p.sum(-1, keepdim=True)
        acc = acc + p @ V[j : j + block]
    return acc / l


@wrong("blockwise_attention", "a softmax per block, and the blocks' outputs are averaged")
def blockwise_mean_of_blocks(Q, K, V, block):
    outs = []
    for i in range(0, len(K), block):
        k, v = K[i : i + block], V[i : i + block]
        w = F.softmax(Q @ k.T / Q.shape[-1] ** 0.5, dim=-1)
        outs.append(w @ v)
    return torch.stack(outs).mean(dim=0)


@wrong("blockwise_attention", "never divides by the running sum")
def blockwise_unnormalised(Q, K, V, block):
    T_q, d_k = Q.shape
    m = Q.new_full((T_q, 1), float("-inf"))
    l = Q.new_zeros(T_q, 1)
    out = Q.new_zeros(T_q, V.shape[1])
    for start in range(0, K.shape[0], block):
        s = Q @ K[start : start + block].T / d_k**0.5
        m_new = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        scale = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        l = l * scale + p.sum(dim=1, keepdim=True)
        out = out * scale + p @ V[start : start + block]
        m = m_new
    return out


@wrong("blockwise_attention", "the last block is dropped when block does not divide T_k")
def blockwise_drops_rest(Q, K, V, block):
    n_blocks = K.shape[0] // block
    m = torch.full((Q.shape[0], 1), -torch.inf, dtype=Q.dtype, device=Q.device)
    l, o = torch.zeros_like(m), 0
    for b in range(n_blocks):
        k = K[b * block : (b + 1) * block]
        v = V[b * block : (b + 1) * block]
        s = Q @ k.T / math.sqrt(Q.shape[1])
        m2 = torch.maximum(m, s.amax(1, keepdim=True))
        c, p = (m - m2).exp(), (s - m2).exp()
        l, o, m = l * c + p.sum(1, keepdim=True), o * c + p @ v, m2
    return o / l


@wrong("blockwise_attention", "the output is rescaled but the running sum is not")
def blockwise_sum_not_rescaled(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    out = V.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].mT / math.sqrt(Q.shape[-1])
        new_m = torch.maximum(m, s.max(-1, keepdim=True)[0])
        p = torch.exp(s - new_m)
        total += p.sum(-1, keepdim=True)
        out = out * torch.exp(m - new_m) + p @ V[i : i + block]
        m = new_m
    return out / total


@wrong("blockwise_attention", "exponentials without a maximum overflow for large scores")
def blockwise_no_max(Q, K, V, block):
    num, den = 0, 0
    for i in range(0, K.size(0), block):
        e = torch.exp(Q @ K[i : i + block].T / math.sqrt(Q.size(1)))
        num = num + e @ V[i : i + block]
        den = den + e.sum(dim=-1, keepdim=True)
    return num / den


@wrong("blockwise_attention", "forgets the scale")
def blockwise_unscaled(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    l = Q.new_zeros((len(Q), 1))
    acc = Q.new_zeros((len(Q), V.shape[-1]))
    for Kb, Vb in zip(K.split(block), V.split(block)):
        s = Q @ Kb.T
        m_new = torch.maximum(m, s.amax(dim=-1, keepdim=True))
        alpha = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        acc = alpha * acc + p @ Vb
        l = alpha * l + p.sum(-1, keepdim=True)
        m = m_new
    return acc / l


@wrong("blockwise_attention", "the sum lacks keepdim, so its (T_q,) does not fit (T_q, d_v)")
def blockwise_no_keepdim(Q, K, V, block):
    T_q, d_k = Q.shape
    m = Q.new_full((T_q,), -torch.inf)
    l = Q.new_zeros(T_q)
    o = Q.new_zeros(T_q, V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].T / math.sqrt(d_k)
        m_new = torch.maximum(m, s.amax(dim=1))
        p = torch.exp(s - m_new[:, None])
        c = torch.exp(m - m_new)
        l = c * l + p.sum(dim=1)
        o = c[:, None] * o + p @ V[i : i + block]
        m = m_new
    return o / l


@wrong("blockwise_attention", "the correction has the maxima swapped: exp(new - old)")
def blockwise_inverse_rescale(Q, K, V, block):
    scale = Q.shape[-1] ** -0.5
    s = Q @ K[:block].T * scale
    m = s.amax(-1, keepdim=True)
    p = torch.exp(s - m)
    l, o = p.sum(-1, keepdim=True), p @ V[:block]
    for i in range(block, K.shape[0], block):
        s = Q @ K[i : i + block].T * scale
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        fix = torch.exp(m_new - m)
        p = torch.exp(s - m_new)
        l = l * fix + p.sum(-1, keepdim=True)
        o = o * fix + p @ V[i : i + block]
        m = m_new
    return o / l


@wrong("blockwise_attention", "adds up the blocks' softmaxes; also divides by d_k, not its root")
def blockwise_sum_of_blocks(Q, K, V, block):
    d_k = Q.shape[1]
    out = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype, device=Q.device)
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].T / d_k
        out += torch.softmax(s, dim=-1) @ V[i : i + block]
    return out


@right("blockwise_attention")
def blockwise_logaddexp(Q, K, V, block):
    out, lse = 0, None
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.mT / Q.shape[-1] ** 0.5
        here = s.logsumexp(-1, keepdim=True)
        new = here if lse is None else torch.logaddexp(lse, here)
        old = 0 if lse is None else out * (lse - new).exp()
        out, lse = old + (s - new).exp() @ v, new
    return out


# --- 16 rotate ---


@wrong("rotate", "turns neighbours 2i and 2i+1 together instead of i and i + d_k/2")
def rotate_neighbours(x, positions):
    d_k = x.shape[-1]
    i = torch.arange(d_k // 2, device=x.device)
    theta = positions[:, None] * 10000.0 ** (-2 * i / d_k)
    cos, sin = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., 0::2] = a * cos - b * sin
    out[..., 1::2] = a * sin + b * cos
    return out


@wrong("rotate", "turns the other way: the signs of the sines are swapped")
def rotate_backwards(x, positions):
    half = x.shape[-1] // 2
    freqs = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = torch.outer(positions.double(), freqs)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], dim=-1)


@wrong("rotate", "the exponent is -i/d_k: the factor 2 is missing")
def rotate_half_exponent(x, positions):
    d = x.size(-1)
    i = torch.arange(d // 2, device=x.device, dtype=torch.float64)
    angle = positions.unsqueeze(-1) * 10000 ** (-i / d)
    c, s = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * c - x2 * s, x1 * s + x2 * c), dim=-1)


@wrong("rotate", "the exponent lacks its minus sign, so frequencies grow with i")
def rotate_growing(x, positions):
    d = x.shape[-1]
    i = torch.arange(0, d, 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None].double() * 10000 ** (i / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@wrong("rotate", "repeats each angle for neighbours but pairs i with i + d_k/2")
def rotate_mixed_layout(x, positions):
    d = x.shape[-1]
    inv = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    ang = (positions[:, None] * inv).repeat_interleave(2, dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    turned = torch.cat([-x2, x1], dim=-1)
    return x * ang.cos().to(x.dtype) + turned * ang.sin().to(x.dtype)


@wrong("rotate", "the second half is computed from an already overwritten first half")
def rotate_overwrites(x, positions):
    out = x.clone()
    h = x.shape[-1] // 2
    freq = 10000 ** (-torch.arange(h, device=x.device, dtype=torch.float64) / h)
    ang = positions[:, None] * freq
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    out[..., :h] = out[..., :h] * cos - out[..., h:] * sin
    out[..., h:] = out[..., :h] * sin + out[..., h:] * cos
    return out


@wrong("rotate", "single slash makes the half a float, which cannot slice")
def rotate_float_half(x, positions):
    d_k = x.shape[-1]
    half = d_k / 2
    i = torch.arange(half, device=x.device)
    angle = positions[:, None] * 10000 ** (-2 * i / d_k)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat(
        [x1 * angle.cos() - x2 * angle.sin(), x1 * angle.sin() + x2 * angle.cos()], dim=-1
    )


@wrong("rotate", "counts the tokens 0, 1, 2, ... instead of using the positions given")
def rotate_own_positions(x, positions):
    T, d = x.shape[-2:]
    pos = torch.arange(T, device=x.device, dtype=torch.float64)
    freq = 10000 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    theta = torch.einsum("t,f->tf", pos, freq)
    cos, sin = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    x1, x2 = x.split(d // 2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


@wrong("rotate", "lays the turned pairs side by side instead of half after half")
def rotate_stacked(x, positions):
    d = x.shape[-1]
    freq = 10000.0 ** (-2 * torch.arange(d // 2, device=x.device).double() / d)
    angle = positions[:, None] * freq[None, :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)


@wrong("rotate", "doubles i twice in the exponent; also drops the minus in front of x2")
def rotate_double_no_minus(x, positions):
    d = x.shape[-1]
    i = torch.arange(0, d, 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10000 ** (-2 * i / d)
    cos = torch.cat([angle, angle], -1).cos().to(x.dtype)
    sin = torch.cat([angle, angle], -1).sin().to(x.dtype)
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat([x2, x1], -1) * sin


@right("rotate")
def rotate_complex(x, positions):
    a, b = x.double().chunk(2, dim=-1)
    n = a.shape[-1]
    theta = positions.double()[:, None] * 1e4 ** -(torch.arange(n, device=x.device).double() / n)
    z = torch.complex(a, b) * torch.polar(torch.ones_like(theta), theta)
    return torch.cat([z.real, z.imag], dim=-1).to(x.dtype)


# --- 17 cached_attention ---


@wrong("cached_attention", "no causal mask among the new tokens")
def cached_no_mask(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "the causal mask does not allow for the cached tokens in front")
def cached_mask_unshifted(q, k, v, cache):
    if cache is not None:
        k_old, v_old = cache
        k = torch.cat((k_old, k), dim=-2)
        v = torch.cat((v_old, v), dim=-2)
    scores = q @ k.mT / q.size(-1) ** 0.5
    mask = torch.ones_like(scores, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(mask, -torch.inf).softmax(-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "joins old and new along the heads instead of the tokens")
def cached_cat_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=1)
        v = torch.cat([cache[1], v], dim=1)
    T_new, T_all = q.shape[-2], k.shape[-2]
    s = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(T_new, T_all, device=q.device).triu(T_all - T_new + 1).bool()
    s = s.masked_fill(future, float("-inf"))
    return F.softmax(s, dim=-1) @ v, (k, v)


@wrong("cached_attention", "puts the new tokens in front of the cached ones")
def cached_new_first(q, k, v, cache):
    n_old = 0
    if cache is not None:
        n_old = cache[0].shape[2]
        k = torch.cat([k, cache[0]], dim=2)
        v = torch.cat([v, cache[1]], dim=2)
    s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(n_old + 1)
    w = s.masked_fill(mask, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong("cached_attention", "gives back only the new keys and values; also has no causal mask")
def cached_returns_new(q, k, v, cache):
    if cache is None:
        K, V = k, v
    else:
        K = torch.cat([cache[0], k], dim=2)
        V = torch.cat([cache[1], v], dim=2)
    scores = q @ K.mT / q.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ V, (k, v)


@wrong("cached_attention", "unpacks the cache without asking whether it is None")
def cached_none_unpacked(q, k, v, cache):
    k_old, v_old = cache
    k = torch.cat([k_old, k], dim=2)
    v = torch.cat([v_old, v], dim=2)
    n = k_old.shape[2]
    scores = q @ k.mT / math.sqrt(k.shape[-1])
    mask = torch.triu(torch.ones_like(scores), diagonal=n + 1).bool()
    weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "builds a (T_new, T_new) mask for (T_new, T_old + T_new) scores")
def cached_square_mask(q, k, v, cache):
    if cache:
        k = torch.cat([cache[0], k], dim=-2)
        v = torch.cat([cache[1], v], dim=-2)
    T = q.shape[-2]
    mask = torch.triu(torch.ones(T, T, device=q.device), 1).bool()
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "extends the cache but attends over the new tokens only")
def cached_attends_new(q, k, v, cache):
    T = q.shape[2]
    causal = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(causal, -torch.inf)
    context = s.softmax(-1) @ v
    if cache is not None:
        k = torch.cat([cache[0], k], 2)
        v = torch.cat([cache[1], v], 2)
    return context, (k, v)


@wrong("cached_attention", "masks only when there is no cache")
def cached_causal_first_only(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)
    k = torch.cat([cache[0], k], dim=2)
    v = torch.cat([cache[1], v], dim=2)
    return F.scaled_dot_product_attention(q, k, v), (k, v)


@wrong("cached_attention", "forgets the scale; also the mask starts one key too late")
def cached_unscaled_late(q, k, v, cache):
    past = 0
    if cache is not None:
        past = cache[0].size(2)
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    rows = torch.arange(q.size(2), device=q.device) + past
    cols = torch.arange(k.size(2), device=q.device)
    scores = q @ k.mT
    scores = scores.masked_fill(cols > rows[:, None] + 1, float("-inf"))
    return scores.softmax(-1) @ v, (k, v)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "repeat tiles the key heads: head i looks with i % h_kv")
def grouped_tiled(q, k):
    g = q.shape[1] // k.shape[1]
    k = k.repeat(1, g, 1, 1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "multiplies without repeating the key heads")
def grouped_not_repeated(q, k):
    d_k = q.size(-1)
    return torch.matmul(q, k.mT) / math.sqrt(d_k)


@wrong("grouped_scores", "divides by the root of the number of keys instead of d_k")
def grouped_root_of_keys(q, k):
    g = q.size(1) // k.size(1)
    k = torch.repeat_interleave(k, g, dim=1)
    return q @ k.mT / k.size(2) ** 0.5


@wrong("grouped_scores", "leaves head groups as an axis of their own: (B, h_kv, g, T_q, T_k)")
def grouped_five_axes(q, k):
    B, h, T, d = q.shape
    q = q.reshape(B, k.shape[1], -1, T, d)
    return torch.einsum("bngqd,bnkd->bngqk", q, k) / math.sqrt(d)


@wrong("grouped_scores", "tiles the key heads; also forgets the scale")
def grouped_tiled_unscaled(q, k):
    B, h, T_q, d_k = q.shape
    h_kv = k.shape[1]
    out = [q[:, i] @ k[:, i % h_kv].mT for i in range(h)]
    return torch.stack(out, dim=1)


# --- 19 cached_mask ---


@wrong("cached_mask", "> instead of >=: the window is one token too wide")
def cmask_window_wide(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)[None, :]
    mask = k > q
    if window is not None:
        mask = mask | (q - k > window)
    return mask


@wrong("cached_mask", "`and` instead of `or`: nothing is both future and too old")
def cmask_and(n_new, n_cached, window):
    i = torch.arange(n_cached, n_cached + n_new).unsqueeze(1)
    j = torch.arange(n_cached + n_new).unsqueeze(0)
    future = j > i
    if window is None:
        return future
    old = i - j >= window
    return future & old


@wrong("cached_mask", "compares with window although it can be None")
def cmask_none(n_new, n_cached, window):
    total = n_cached + n_new
    q = torch.arange(total)[n_cached:, None]
    k = torch.arange(total)
    return (k > q) | (q - k >= window)


@wrong("cached_mask", "the queries are counted from 0; also the window is one too narrow")
def cmask_from_zero_narrow(n_new, n_cached, window):
    rows = torch.arange(n_new)[:, None]
    cols = torch.arange(n_new + n_cached)
    mask = cols > rows
    if window is not None:
        mask |= rows - cols > window - 2
    return mask
