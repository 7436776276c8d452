"""Strong students with one subtle slip or two at once, and assistants that quote from memory."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "QK-norm: queries and keys are made unit length first")
def scores_qk_norm(Q, K):
    q, k = F.normalize(Q, dim=-1), F.normalize(K, dim=-1)
    return q @ k.transpose(-2, -1) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "K.size(1) is d_k with two axes only")
def scores_size_one(Q, K):
    return Q @ K.transpose(-2, -1) * (1.0 / math.sqrt(K.size(1)))


@wrong("attention_scores", "takes the row's maximum off, as a softmax does inside")
def scores_minus_max(Q, K):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    return s - s.amax(dim=-1, keepdim=True)


@wrong("attention_scores", "two slips: no scale, and axes 1 and 2 by number")
def scores_two_slips(Q, K):
    return torch.matmul(Q, K.transpose(1, 2))


@wrong("attention_scores", "two slips: softmax already done, scaled by d_k")
def scores_softmaxed(Q, K):
    return (Q @ K.transpose(-2, -1) / Q.size(-1)).softmax(dim=-1)


@wrong("attention_scores", "two slips: keys first, and divided by d_k")
def scores_keys_first_dk(Q, K):
    return K @ Q.transpose(-2, -1) / K.size(-1)


@right("attention_scores")
def scores_linear_map(Q, K):
    return torch.sum(Q.unsqueeze(-2) * K.unsqueeze(-3), dim=-1).div(Q.shape[-1] ** 0.5)


# --- 2 attention ---


@wrong("attention", "causal, though nobody asked for a mask")
def attention_causal(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    future = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
    w = s.masked_fill(future, float("-inf")).softmax(dim=-1)
    return w @ V, w


@wrong("attention", "log_softmax for softmax")
def attention_log(Q, K, V):
    w = F.log_softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1)), dim=-1)
    return w @ V, w


@wrong("attention", "gives the scores where the weights are asked for")
def attention_gives_scores(Q, K, V):
    att = Q @ K.transpose(-2, -1) / math.sqrt(K.size(-1))
    y = F.softmax(att, dim=-1) @ V
    return y, att


@wrong("attention", "output by the fused call, weights without the scale")
def attention_weights_unscaled(Q, K, V):
    y = F.scaled_dot_product_attention(Q, K, V)
    return y, torch.softmax(Q @ K.transpose(-2, -1), dim=-1)


@wrong("attention", "two slips: unscaled, and the pair the wrong way round")
def attention_unscaled_swapped(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-1)
    return w, w @ V


@wrong("attention", "two slips: scaled by d_v, softmax over the queries")
def attention_dv_columns(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(V.size(-1)), dim=-2)
    return w @ V, w


@wrong("attention", "scaled by the width of the values")
def attention_root_dv(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(V.size(-1)), dim=-1)
    return w @ V, w


@wrong("attention", "two slips: no scale, and weights handed out transposed")
def attention_unscaled_turned(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-1)
    return w @ V, w.transpose(-2, -1)


@wrong("attention", "two slips: scaled twice, and only the output")
def attention_twice_scaled(Q, K, V):
    Q = Q / math.sqrt(Q.size(-1))
    return F.scaled_dot_product_attention(Q, K, V)


@right("attention")
def attention_identity_values(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-1], -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return w @ V, w


# --- 3 project_qkv ---


@wrong("project_qkv", "split(3): pieces three wide, not three pieces")
def project_split_three(X, W_qkv):
    return F.linear(X, W_qkv).split(3, dim=-1)


@wrong("project_qkv", "view to (3, B, T, d_model): rows of other tokens")
def project_view_front(X, W_qkv):
    B, T, C = X.shape
    q, k, v = F.linear(X, W_qkv).view(3, B, T, C)
    return q, k, v


@wrong("project_qkv", "two slips: blocks not transposed, K and V exchanged")
def project_two_slips(X, W_qkv):
    wq, wk, wv = W_qkv.chunk(3, dim=0)
    q, k, v = (X @ torch.cat((wq, wk, wv), dim=1)).chunk(3, dim=2)
    return q, v, k


@wrong(
    "project_qkv",
    "cuts the W rows right, but the tokens of the result",
    slips=("thirds_as_tokens",),
)
def project_split_tokens(X, W_qkv):
    B, T, C = X.size()
    q, k, v = F.linear(X, W_qkv).view(B, 3 * T, C).chunk(3, dim=1)
    return q, k, v


@wrong("project_qkv", "two slips: interleaved, and order K, V, Q")
def project_interleaved_order(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(-1, (-1, 3)).unbind(-1)
    return k, v, q


@right("project_qkv")
def project_unflatten(X, W_qkv):
    q, k, v = F.linear(X, W_qkv).unflatten(2, (3, -1)).unbind(dim=2)
    return q, k, v


# --- 4 count_parameters ---


@wrong("count_parameters", "W_o is taken to come from one head")
def count_out_one_head(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + d_k * d_model


@wrong("count_parameters", "W_o is forgotten")
def count_three(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k


@wrong("count_parameters", "two slips: square matrices, and biases")
def count_square_bias(d_model, n_heads, d_k):
    return 4 * d_model * (d_model + 1)


@wrong("count_parameters", "two slips: no W_o, and biases of the others")
def count_three_bias(d_model, n_heads, d_k):
    return 3 * (d_model + 1) * n_heads * d_k


@wrong("count_parameters", "a float, by way of a ratio")
def count_ratio(d_model, n_heads, d_k):
    return 4 * d_model**2 * (n_heads * d_k / d_model)


@wrong("count_parameters", "two slips: square matrices, and three of them")
def count_three_square(d_model, n_heads, d_k):
    return 3 * d_model**2


@wrong("count_parameters", "two slips: one head's width, and W_o square")
def count_one_head_square(d_model, n_heads, d_k):
    return 3 * d_model * d_k + d_model**2


@right("count_parameters")
def count_per_head(d_model, n_heads, d_k):
    per_head = 3 * d_k * d_model + d_model * d_k
    return sum(per_head for _ in range(n_heads))


# --- 5 split_heads ---


@wrong("split_heads", "tokens last, (B, h, d_k, T), as keys are in some code")
def split_keys_style(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, n_heads, C // n_heads).permute(0, 2, 3, 1)


@wrong("split_heads", "two slips: interleaved, and heads behind the tokens")
def split_two_slips(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, C // n_heads, n_heads).transpose(2, 3)


@wrong("split_heads", "heads before the batch: (h, B, T, d_k)")
def split_heads_front(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1))


@wrong("split_heads", "pieces glued along the batch, then viewed as (B, h)")
def split_cat_batch(x, n_heads):
    B, T, C = x.shape
    return torch.cat(x.chunk(n_heads, dim=-1), dim=0).view(B, n_heads, T, C // n_heads)


@wrong("split_heads", "turns tokens and features round before the view")
def split_turned(x, n_heads):
    B, T, C = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, T, C // n_heads)


@wrong("split_heads", "two slips: heads in front, and d_k before T")
def split_front_turned(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, n_heads, C // n_heads).permute(2, 0, 3, 1)


@wrong("split_heads", "two slips: view to (B, h, T, d_k), then a transpose")
def split_view_transpose(x, n_heads):
    B, T, C = x.size()
    return x.view(B, n_heads, T, C // n_heads).transpose(1, 2)


@right("split_heads")
def split_cat_tokens(x, n_heads):
    B, T, C = x.shape
    return torch.cat(x.chunk(n_heads, dim=-1), dim=1).view(B, n_heads, T, C // n_heads)


# --- 6 merge_heads ---


@wrong("merge_heads", "B and T exchanged in the last reshape")
def merge_shape_swapped(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).contiguous().reshape(T, B, h * d)


@wrong("merge_heads", "cat over a tensor walks along the batch")
def merge_cat_batch(x):
    return torch.cat(list(x), dim=-1)


@wrong("merge_heads", "last head first")
def merge_reversed(x):
    return torch.cat(x.unbind(1)[::-1], dim=-1)


@wrong("merge_heads", "exchanges heads with d_k instead of with tokens")
def merge_axes_one_three(x):
    B, h, T, d = x.shape
    return x.transpose(1, 3).reshape(B, T, h * d)


@wrong("merge_heads", "two slips: interleaved, and (T, B, ...) order")
def merge_two_slips(x):
    return x.permute(2, 0, 3, 1).flatten(2)


@wrong("merge_heads", "two slips: last head first, and tokens in front")
def merge_reversed_seq(x):
    return x.flip(1).permute(2, 0, 1, 3).flatten(2)


@right("merge_heads")
def merge_fill(x):
    B, h, T, d = x.shape
    out = x.new_empty(B, T, h, d)
    out[:] = x.transpose(1, 2)
    return out.view(B, T, -1)


# --- 7 causal_mask ---


@wrong("causal_mask", "two slips: floats, and the diagonal blocked")
def causal_two_slips(T):
    return torch.triu(torch.ones(T, T))


@wrong("causal_mask", "nanoGPT's buffer: four axes, floats, 1 = keep")
def causal_nanogpt(T):
    return torch.tril(torch.ones(T, T)).view(1, 1, T, T)


@wrong("causal_mask", "diagonal 2: the next token stays open")
def causal_one_ahead(T):
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=2)


@wrong("causal_mask", "one key too many: (T, T + 1)")
def causal_extra_key(T):
    return torch.arange(T + 1)[None, :] > torch.arange(T)[:, None]


@wrong("causal_mask", "two slips: True = keep, and the next token kept too")
def causal_keep_next(T):
    return torch.ones(T, T).tril(1) == 1


@wrong("causal_mask", "two slips: additive with -1e9, and the diagonal shut")
def causal_additive_diag(T):
    return torch.full((T, T), -1e9).triu(0)


@right("causal_mask")
def causal_not_tril(T):
    return ~torch.tril(torch.ones((T, T), dtype=torch.bool))


# --- 8 padding_mask ---


@wrong("padding_mask", "on the query axis: (B, 1, T, 1)")
def padding_query_axis(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos >= lengths[:, None])[:, None, :, None]


@wrong("padding_mask", "two slips: True = real, and (B, T)")
def padding_hf(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return pos[None, :] < lengths[:, None]


@wrong("padding_mask", "an extended float mask, 0 and the lowest number")
def padding_extended(lengths, T):
    keep = torch.arange(T, device=lengths.device) < lengths[:, None]
    return (1.0 - keep[:, None, None, :].float()) * torch.finfo(torch.float32).min


@wrong("padding_mask", "== marks the first padding key only")
def padding_equal(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos == lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "two slips: > for >=, and one axis of 1 short")
def padding_two_slips(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos > lengths[:, None])[:, None, :]


@wrong("padding_mask", "two slips: on the query axis, and counted from 1")
def padding_query_from_one(lengths, T):
    pos = torch.arange(1, T + 1, device=lengths.device)
    return (pos >= lengths[:, None]).view(-1, 1, T, 1)


@wrong("padding_mask", "two slips: floats, and True = real")
def padding_float_keep(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos < lengths[:, None]).float()[:, None, None]


@right("padding_mask")
def padding_scatter(lengths, T):
    at = torch.zeros(lengths.shape[0], T + 1, dtype=torch.int64, device=lengths.device)
    at = at.scatter(1, lengths.long()[:, None], 1).cumsum(1)[:, :T]
    return at.bool()[:, None, None, :]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "any for all: rows with one blocked key go to zero")
def msoftmax_any(scores, mask):
    empty = mask.any(dim=-1, keepdim=True)
    w = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return w.masked_fill(empty, 0.0)


@wrong("masked_softmax", "keepdim forgotten in the empty rows")
def msoftmax_keepdim(scores, mask):
    empty = mask.all(dim=-1)
    w = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return w.masked_fill(empty, 0.0)


@wrong("masked_softmax", "NaN times zero is still NaN")
def msoftmax_times_zero(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1) * ~empty * (~mask)


@wrong("masked_softmax", "renormalises, and divides 0 by 0 in empty rows")
def msoftmax_renormalise(scores, mask):
    w = scores.softmax(dim=-1) * ~mask
    return w / w.sum(dim=-1, keepdim=True)


@wrong("masked_softmax", "softmax-off-by-one: 1 added to the divisor", slips=("one_added",))
def msoftmax_quiet(scores, mask):
    s = scores.masked_fill(mask, -math.inf)
    m = s.amax(-1, keepdim=True).clamp(min=0.0)
    e = (s - m).exp()
    return e / ((-m).exp() + e.sum(-1, keepdim=True))


@wrong("masked_softmax", "two slips: over the queries, and NaN kept")
def msoftmax_two_slips(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(dim=-2)


@wrong("masked_softmax", "right numbers under no_grad: no gradient at all")
def msoftmax_no_grad(scores, mask):
    with torch.no_grad():
        empty = mask.all(dim=-1, keepdim=True)
        w = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
        return w.masked_fill(empty, 0.0)


@wrong("masked_softmax", "a fill of -5 leaves blocked keys a small share", slips=("too_high",))
def msoftmax_small_fill(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask, -5.0).softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("masked_softmax", "two slips: blocked scores 0, then wiped afterwards")
def msoftmax_zero_both(scores, mask):
    return (scores * ~mask).softmax(dim=-1) * ~mask


@wrong("masked_softmax", "two slips: True read as keep, empty rows uniform")
def msoftmax_keep_uniform(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1)


@right("masked_softmax")
def msoftmax_stable_exp(scores, mask):
    s = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    e = (s - s.amax(-1, keepdim=True).detach()).exp().masked_fill(mask, 0.0)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


# --- 10 sum_of_head_writes ---


@wrong(
    "sum_of_head_writes",
    "two slips: head 0 left out, slabs one too early",
    slips=("shifted_by_one",),
)
def writes_shifted(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    out = heads.new_zeros(heads.shape[0], heads.shape[2], W_o.shape[0])
    for i in range(1, h):
        out += heads[:, i] @ W_o[:, (i - 1) * d : i * d].T
    return out


@wrong("sum_of_head_writes", "cuts W_o along its outputs (dim 0)")
def writes_chunk_rows(heads, W_o):
    slabs = W_o.chunk(heads.shape[1], dim=0)
    return sum(heads[:, i] @ s.T for i, s in enumerate(slabs))


@wrong("sum_of_head_writes", "the loop ends before the last head")
def writes_all_but_last(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    out = heads.new_zeros(heads.shape[0], heads.shape[2], W_o.shape[0])
    for i in range(h - 1):
        out += heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "two slips: strided columns, and the mean")
def writes_strided_mean(heads, W_o):
    h = heads.shape[1]
    return torch.stack([heads[:, i] @ W_o[:, i::h].T for i in range(h)]).mean(0)


@wrong("sum_of_head_writes", "divides by the root of the number of heads")
def writes_scaled(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    out = torch.einsum("bhtd,mhd->btm", heads, W_o.view(-1, h, d))
    return out / math.sqrt(h)


@wrong("sum_of_head_writes", "slab 0 for every head")
def writes_first_slab(heads, W_o):
    d = heads.shape[-1]
    return sum(heads[:, i] @ W_o[:, :d].T for i in range(heads.shape[1]))


@wrong("sum_of_head_writes", "two slips: every head's slab is 0, and the mean")
def writes_first_mean(heads, W_o):
    return heads.mean(dim=1) @ W_o[:, : heads.shape[-1]].T


@right("sum_of_head_writes")
def writes_matmul(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    slabs = W_o.T.reshape(h, d, W_o.shape[0])
    return torch.matmul(heads, slabs).sum(dim=1)


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "keys viewed to (d_k, T) instead of transposed")
class MhaKeysViewed(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, v = self.heads(self.w_q(x)), self.heads(self.w_v(x))
        k = self.heads(self.w_k(x)).reshape(B, self.n_heads, self.d_k, T)
        return self.w_o(self.merge(self.weights(q @ k / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "a row is blank only if every head blocks it", slips=("one_place",))
class MhaBlankIfAllHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        mask = mask.expand_as(s)
        dead = mask.all(-1, keepdim=True).all(1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o(self.merge(w @ v))


@wrong("MultiHeadAttention", "adds the residual: x + output")
class MhaResidual(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return x + self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "normalises x first, a pre-norm block from memory")
class MhaPreNorm(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        x = F.layer_norm(x, x.shape[-1:])
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "two slips: root of h as scale, NaN in blocked rows")
class MhaRootHeadsNan(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.n_heads)
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        return self.w_o(self.merge(s.softmax(-1) @ v))


@wrong("MultiHeadAttention", "k @ q: keys take the place of queries")
class MhaRolesSwapped(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = k @ q.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "softmax over the queries")
class MhaSoftmaxQueries(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(mask, torch.finfo(s.dtype).min)
        w = s.softmax(-2)
        if mask is not None:
            w = w.masked_fill(mask, 0.0)
        return self.w_o(self.merge(w @ v))


@wrong("MultiHeadAttention", "unsqueezes every mask, also one of four axes")
class MhaMaskUnsqueeze(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "output mended by nan_to_num, gradient NaN", slips=("nan_gradient",))
class MhaNanGradient(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            bias = torch.zeros(mask.shape, dtype=s.dtype, device=s.device)
            s = s + bias.masked_fill(mask, -math.inf)
        return self.w_o(self.merge(s.softmax(-1).nan_to_num(0.0) @ v))


@wrong("MultiHeadAttention", "keys and values of one head for all (MQA)")
class MhaMultiQuery(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, self.d_k)
        self.w_v = nn.Linear(d_model, self.d_k)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.w_k(x)[:, None], self.w_v(x)[:, None]
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "heads interleaved, both on the way in and out")
class MhaInterleaved(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.d_k, self.n_heads).permute(0, 3, 1, 2)

    def merge(self, t):
        return t.permute(0, 2, 3, 1).flatten(2)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong(
    "MultiHeadAttention",
    "two slips: no w_o, heads merged in reverse order",
    slips=(
        "merged_in_reverse",
        "without_w_o",
    ),
)
class MhaReversedNoOut(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.merge((self.weights(s, mask) @ v).flip(1))


@wrong("MultiHeadAttention", "two slips: split by one view, no scale")
class MhaViewUnscaled(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def heads(self, t):
        return t.reshape(t.shape[0], self.n_heads, t.shape[1], self.d_k)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1)
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "split by one view and merged by one: consistent")
class MhaViewBothWays(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def heads(self, t):
        return t.reshape(t.shape[0], self.n_heads, t.shape[1], self.d_k)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o((self.weights(s, mask) @ v).reshape(x.shape))


@wrong(
    "MultiHeadAttention",
    "keeps a row's own token open in blocked rows",
    slips=("own_key_for_blocked_rows",),
)
class MhaOpenSelf(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        T = x.shape[1]
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            own = torch.eye(T, dtype=torch.bool, device=x.device)
            dead = mask.all(-1, keepdim=True)
            s = s.masked_fill(mask & ~(dead & own), -math.inf)
        return self.w_o(self.merge(s.softmax(-1) @ v))


@wrong("MultiHeadAttention", "two slips: no scale, and True read as keep")
class MhaUnscaledKeep(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1)
        return self.w_o(self.merge(self.weights(s, None if mask is None else ~mask) @ v))


@wrong("MultiHeadAttention", "two slips: values from w_q, and no w_o")
class MhaValuesFromQ(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_q(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.merge(self.weights(s, mask) @ v)


@wrong("MultiHeadAttention", "two slips: a pair comes back, weights averaged")
class MhaPairAveraged(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        w = self.weights(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), mask).mean(1, keepdim=True)
        return self.w_o(self.merge(w @ v)), w.squeeze(1)


@wrong("MultiHeadAttention", "weights averaged over the heads before the values")
class MhaAveraged(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        w = self.weights(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), mask).mean(1, keepdim=True)
        return self.w_o(self.merge(w @ v))


@wrong(
    "MultiHeadAttention",
    "two slips: softmax over queries, divided by d_k",
    slips=(
        "by_d_k",
        "softmax_over_queries",
        "blocked_rows_uniform",
    ),
)
class MhaQueriesDk(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / self.d_k
        if mask is not None:
            s = s.masked_fill(mask, -1e9)
        return self.w_o(self.merge(s.softmax(-2) @ v))


@wrong("MultiHeadAttention", "two slips: heads merged without transpose, and a residual")
class MhaMergeResidual(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return x + self.w_o((self.weights(s, mask) @ v).reshape(x.shape))


@wrong("MultiHeadAttention", "divides by d_k, no root")
class MhaOverDk(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / self.d_k
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong(
    "MultiHeadAttention",
    "only the first of the batch's masks is used",
    slips=("first_mask_for_all",),
)
class MhaFirstMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def weights(self, s, mask):
        if mask is None:
            return s.softmax(dim=-1)
        dead = mask.all(dim=-1, keepdim=True)
        return s.masked_fill(mask & ~dead, -math.inf).softmax(dim=-1).masked_fill(dead, 0.0)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None and mask.ndim == 4:
            mask = mask[:1, :1]
        return self.w_o(self.merge(self.weights(s, mask) @ v))


@wrong("MultiHeadAttention", "two slips: QK-norm, and blocked weights not refilled")
class MhaQkNorm(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        w = (q @ k.transpose(-2, -1) / math.sqrt(self.d_k)).softmax(dim=-1)
        if mask is not None:
            w = w.masked_fill(mask, 0.0)
        return self.w_o(self.merge(w @ v))


@right("MultiHeadAttention")
class MhaFusedCall(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        if mask is None:
            return self.w_o(self.merge(F.scaled_dot_product_attention(q, k, v)))
        mask = mask.expand(x.shape[0], self.n_heads, x.shape[1], x.shape[1])
        dead = mask.all(-1, keepdim=True)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | dead)
        return self.w_o(self.merge(y.masked_fill(dead, 0.0)))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "two slips: no shift, and a sum")
def loss_two_slips(logits, tokens):
    return F.cross_entropy(logits.transpose(1, 2), tokens, reduction="sum")


@wrong("next_token_loss", "token 0 is left out as if it were padding")
def loss_ignore_zero(logits, tokens):
    shift = logits[..., :-1, :].contiguous().view(-1, logits.size(-1))
    return F.cross_entropy(shift, tokens[..., 1:].contiguous().view(-1), ignore_index=0)


@wrong("next_token_loss", "label smoothing of 0.1")
def loss_smoothed(logits, tokens):
    shift = logits[:, :-1].reshape(-1, logits.size(-1))
    return F.cross_entropy(shift, tokens[:, 1:].reshape(-1), label_smoothing=0.1)


@wrong("next_token_loss", "last dropped from both: asked for its own token")
def loss_both_first(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, :-1].flatten())


@wrong("next_token_loss", "sum over tokens, mean over sequences")
def loss_per_sequence(logits, tokens):
    ce = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    return ce.sum(dim=1).mean()


@wrong("next_token_loss", "perplexity instead of the loss")
def loss_perplexity(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:]).exp()


@wrong("next_token_loss", "a loss for each prediction, mean forgotten")
def loss_unreduced(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")


@wrong("next_token_loss", "two slips: shifted backwards, and bits")
def loss_backwards_bits(logits, tokens):
    return F.cross_entropy(logits[:, 1:].mT, tokens[:, :-1]) / math.log(2)


@wrong("next_token_loss", "two slips: shifted by two, and ignores token 0")
def loss_two_ahead(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens.roll(-2, 1)[:, :-1], ignore_index=0)


@right("next_token_loss")
def loss_logsumexp(logits, tokens):
    here, answers = logits[:, :-1], tokens[:, 1:].long()
    hit = torch.take_along_dim(here, answers.unsqueeze(-1), dim=-1).squeeze(-1)
    return (here.logsumexp(dim=-1) - hit).mean()


# --- silence ---


@wrong("silence", "head i and all after it")
def silence_from_i(heads, i):
    quiet = heads.clone()
    quiet[:, i:] = 0
    return quiet


@wrong("silence", "mean-ablation: the head's mean over tokens, not zero")
def silence_mean(heads, i):
    quiet = heads.clone()
    quiet[:, i] = heads[:, i].mean(dim=1, keepdim=True)
    return quiet


@wrong("silence", "two slips: in place, and the batch axis")
def silence_two_slips(heads, i):
    heads[i] = 0
    return heads


@wrong("silence", "scales the other heads up, as dropout would")
def silence_rescaled(heads, i):
    h = heads.shape[1]
    keep = torch.ones(h, dtype=heads.dtype, device=heads.device)
    keep[i] = 0
    return heads.masked_fill(keep[:, None, None] == 0, 0.0) * (h / max(h - 1, 1))


@wrong("silence", "dimension i of every head")
def silence_feature(heads, i):
    quiet = heads.clone()
    quiet[..., i] = 0
    return quiet


@wrong("silence", "two slips: the token axis, and in place")
def silence_token_in_place(heads, i):
    heads[:, :, i] = 0
    return heads


@wrong("silence", "two slips: keeps only head i, and drops the head axis", slips=("head_alone",))
def silence_only(heads, i):
    return heads[:, i].clone()


@right("silence")
def silence_index_fill(heads, i):
    return heads.index_fill(1, torch.tensor([i], device=heads.device), 0.0)


# --- 13 previous_token_score ---


@wrong("previous_token_score", "leaves out query 1")
def previous_skips_one(weights):
    return weights[:, 2:, 1:].diagonal(dim1=1, dim2=2).mean(dim=-1)


@wrong("previous_token_score", "median for mean", slips=("median",))
def previous_median(weights):
    return weights.diagonal(-1, 1, 2).median(dim=-1).values


@wrong("previous_token_score", "two slips: the next token, and a sum")
def previous_two_slips(weights):
    return weights.diagonal(1, 1, 2).sum(-1)


@wrong("previous_token_score", "offset -2: two tokens back")
def previous_two_back(weights):
    return weights.diagonal(offset=-2, dim1=-2, dim2=-1).mean(dim=-1)


@wrong("previous_token_score", "all earlier tokens, not just the one before")
def previous_all_earlier(weights):
    return weights.tril(-1).sum(-1)[:, 1:].mean(-1)


@wrong("previous_token_score", "two slips: two tokens back, and a sum")
def previous_two_back_sum(weights):
    return weights.diagonal(-2, 1, 2).sum(-1)


@wrong("previous_token_score", "two slips: own token, and over the heads")
def previous_own_over_heads(weights):
    return weights.diagonal(0, 1, 2).mean(0)


@right("previous_token_score")
def previous_trace(weights):
    shifted = weights[:, 1:, :-1]
    return torch.einsum("htt->h", shifted) / shifted.shape[-1]


# --- solved ---


@wrong("solved", "a list index: (n_heads, 1)")
def solved_list_index(weights, query, right, wrong):
    return weights[:, query, [right]] > weights[:, query, [wrong]]


@wrong("solved", "two slips: ties count, and a list of bools")
def solved_two_slips(weights, query, right, wrong):
    return [bool(w[query, right] >= w[query, wrong]) for w in weights]


@wrong("solved", "asks for more than a half of the row")
def solved_half(weights, query, right, wrong):
    return weights[:, query, right] > 0.5


@wrong("solved", "two slips: query last, and compared the wrong way")
def solved_column_less(weights, query, right, wrong):
    return weights[:, right, query] < weights[:, wrong, query]


@wrong("solved", "the difference itself, not whether it is positive")
def solved_difference(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong]


@wrong("solved", "two slips: compared the wrong way, ties count")
def solved_not(weights, query, right, wrong):
    return ~(weights[:, query, right] > weights[:, query, wrong])


@wrong("solved", "two slips: majority of heads, and a Python bool")
def solved_majority(weights, query, right, wrong):
    return bool((weights[:, query, right] > weights[:, query, wrong]).float().mean() > 0.5)


@right("solved")
def solved_sign(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong]).eq(1)


# --- 14 count_flops ---


@wrong("count_flops", "the projections lack the factor 2, the products have it")
def flops_projections_single(T, d_model, n_heads):
    return 4 * T * d_model**2 + 4 * T**2 * d_model


@wrong("count_flops", "projections of one head's width")
def flops_narrow_projections(T, d_model, n_heads):
    return 8 * T * d_model * (d_model // n_heads) + 4 * T * T * d_model


@wrong("count_flops", "two slips: three projections, and a float")
def flops_two_slips(T, d_model, n_heads):
    return 6 * T * d_model**2 + 4 * T**2 * n_heads * (d_model / n_heads)


@wrong("count_flops", "linear in T: the scores counted for one query")
def flops_linear(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T * d_model


@wrong("count_flops", "only the pairs that a causal mask leaves")
def flops_causal(T, d_model, n_heads):
    pairs = T * (T + 1) // 2
    return 8 * T * d_model**2 + 4 * pairs * d_model


@wrong("count_flops", "two slips: a multiply-add as 1, and no w_o")
def flops_single_three(T, d_model, n_heads):
    return 3 * T * d_model**2 + 2 * T**2 * d_model


@wrong("count_flops", "two slips: T^2 in the projections, T in the products")
def flops_powers(T, d_model, n_heads):
    return 8 * T**2 * d_model + 4 * T * d_model**2


@right("count_flops")
def flops_per_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    head = 3 * (2 * T * d_model * d_k) + 2 * (2 * T * T * d_k) + 2 * T * d_k * d_model
    return n_heads * head


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "the mix shrinks, the sum does not")
def block_total_not_shrunk(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@wrong("blockwise_attention", "m is overwritten before the old one is used")
def block_m_too_early(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        m = new
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "keepdim forgotten in the sum")
def block_sum_keepdim(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = Q.new_zeros(len(Q)), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@wrong(
    "blockwise_attention", "block sums with different maxima are added up", slips=("maxima_apart",)
)
def block_maxima_apart(Q, K, V, block):
    total, mix = 0.0, 0.0
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        e = (s - s.amax(1, keepdim=True)).exp()
        total, mix = total + e.sum(1, keepdim=True), mix + e @ v
    return mix / total


@wrong("blockwise_attention", "two slips: no scale, mix not shrunk")
def block_two_slips(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e = (s - new).exp()
        total = total * (m - new).exp() + e.sum(1, keepdim=True)
        mix, m = mix + e @ V[i : i + block], new
    return mix / total


@wrong(
    "blockwise_attention",
    "divides after every block, not once at the end",
    slips=("divided_inside",),
)
def block_divides_inside(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        out, m = (out * shrink + e @ V[i : i + block]) / total, new
    return out


@wrong("blockwise_attention", "the loop runs to the number of queries")
def block_until_queries(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(Q), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@wrong("blockwise_attention", "chunk(block): so many blocks, not so wide ones")
def block_chunks(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for k, v in zip(K.chunk(block), V.chunk(block)):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ v, new
    return mix / total


@wrong("blockwise_attention", "gives the mix without the division")
def block_not_divided(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        mix, m = mix * (m - new).exp() + (s - new).exp() @ v, new
    return mix


@wrong("blockwise_attention", "two slips: divided by d_k, last rest dropped")
def block_dk_no_rest(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K) - len(K) % block, block):
        s = Q @ K[i : i + block].T / Q.shape[-1]
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@wrong("blockwise_attention", "two slips: sum not shrunk, no scale")
def block_total_unscaled(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


@wrong("blockwise_attention", "two slips: neither division nor scale")
def block_raw_mix(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix


@right("blockwise_attention")
def block_column_of_ones(Q, K, V, block):
    V1 = torch.cat((V, V.new_ones(len(V), 1)), dim=1)
    acc = Q.new_zeros(len(Q), V1.shape[1])
    m = torch.full_like(Q[:, :1], torch.finfo(Q.dtype).min)
    start = 0
    while start < len(K):
        s = (Q @ K[start : start + block].T).mul(Q.shape[-1] ** -0.5)
        new = torch.maximum(m, s.amax(1, keepdim=True))
        acc = acc * (m - new).exp() + (s - new).exp() @ V1[start : start + block]
        m = new
        start += block
    return acc[:, :-1] / acc[:, -1:]


# --- 16 rotate ---


@wrong("rotate", "exponent -i / (half - 1): speeds reach the end exactly")
def rotate_linspace(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half).double() / max(half - 1, 1))
    ang = positions[:, None] * speed
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "two slips: neighbours are paired, and turned backwards")
def rotate_two_slips(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos + b * sin, b * cos - a * sin), dim=-1).flatten(-2)


@wrong("rotate", "the two halves come out in each other's place")
def rotate_halves_swapped(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * sin + b * cos, a * cos - b * sin), dim=-1)


@wrong("rotate", "GPT-J's doubled angles with Llama's rotate_half")
def rotate_mixed_styles(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    ang = ang.repeat_interleave(2, dim=-1)
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * ang.cos().to(x.dtype) + turned * ang.sin().to(x.dtype)


@wrong(
    "rotate",
    "two slips: Llama 3's base 500,000, and 2i over 2 d_k",
    slips=("another_base_and_half",),
)
def rotate_llama_base(x, positions):
    d = x.shape[-1]
    ang = positions[:, None] * 500_000.0 ** (-torch.arange(d // 2).double() / d)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "speeds from slow to fast")
def rotate_speeds_reversed(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half).flip(0)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "the new first half is used for the second")
def rotate_overwritten(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    a = a * cos - b * sin
    b = a * sin + b * cos
    return torch.cat((a, b), dim=-1)


@wrong("rotate", "two slips: base 1,000, and turned backwards")
def rotate_base_backwards(x, positions):
    half = x.shape[-1] // 2
    ang = -positions[:, None] * 1_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "two slips: positions from 1, halves exchanged at the end")
def rotate_from_one_swapped(x, positions):
    half = x.shape[-1] // 2
    ang = (positions + 1)[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * sin + b * cos, a * cos - b * sin), dim=-1)


@wrong("rotate", "positions are counted from 1")
def rotate_from_one(x, positions):
    half = x.shape[-1] // 2
    ang = (positions + 1)[:, None] * 10_000.0 ** (-torch.arange(half).double() / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@right("rotate")
def rotate_matrices(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    ang = positions.double()[:, None] / 10_000.0 ** (2 * i / x.shape[-1])
    turn = torch.stack((ang.cos(), -ang.sin(), ang.sin(), ang.cos()), -1).unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (2, half))
    return torch.einsum("tirc,...tci->...tri", turn, pairs).flatten(-2).to(x.dtype)


# --- 17 cached_attention ---


def _blocked(n, m, device):
    return torch.ones(n, m, dtype=torch.bool, device=device).triu(m - n + 1)


@wrong("cached_attention", "diagonal one too far right: one future token is open")
def cached_one_ahead(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    n, m = q.size(-2), k.size(-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    att = att.masked_fill(torch.ones(n, m, device=q.device).triu(m - n + 2) == 1, -math.inf)
    return F.softmax(att, dim=-1) @ v, (k, v)


@wrong("cached_attention", "two slips: is_causal from top left, old cache returned")
def cached_is_causal(q, k, v, cache):
    past = (k, v) if cache is None else cache
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), past


@wrong("cached_attention", "no mask on the first call", slips=("mask_with_cache_only",))
def cached_prefill_open(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v), (k, v)
    k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "a mask on the first call only, as for single steps")
def cached_step_open(q, k, v, cache):
    causal = cache is None
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal), (k, v)


@wrong("cached_attention", "the cache keeps the last eight tokens only", slips=("cut_to_8",))
def cached_cropped(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (k[..., -8:, :], v[..., -8:, :])


@wrong("cached_attention", "the new keys are appended to the old values")
def cached_keys_as_values(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], k), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "context of the last new token only")
def cached_last_only(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q[..., -1:, :] @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    return att.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "two slips: unscaled, and (v, k) handed back")
def cached_two_slips(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1)
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (v, k)


@wrong("cached_attention", "the context is added to what the values were")
def cached_residual(q, k, v, cache):
    new_v = v
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return new_v + att.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "two slips: mask turned round, scale by keys so far")
def cached_keep_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-2))
    att = att.masked_fill(~_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1).nan_to_num(0.0) @ v, (k, v)


@wrong("cached_attention", "two slips: no mask, and the pair as (v, k)")
def cached_open_swapped(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    return F.scaled_dot_product_attention(q, k, v), (v, k)


@wrong("cached_attention", "two slips: new before old, and no scale")
def cached_first_unscaled(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((k, cache[0]), dim=-2), torch.cat((v, cache[1]), dim=-2)
    att = q @ k.transpose(-2, -1)
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "two slips: divided by d_k, queries cached as well")
def cached_triple(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    att = q @ k.transpose(-2, -1) / q.size(-1)
    att = att.masked_fill(_blocked(q.size(-2), k.size(-2), q.device), -math.inf)
    return att.softmax(-1) @ v, (q, k, v)


@right("cached_attention")
def cached_fused(q, k, v, cache):
    old = 0
    if cache is not None:
        old = cache[0].shape[-2]
        k, v = (torch.cat(pair, dim=-2) for pair in zip(cache, (k, v)))
    at = torch.arange(k.shape[-2], device=q.device)
    keep = at[None, :] <= at[old:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "two slips: repeat for repeat_interleave, no scale")
def grouped_two_slips(q, k):
    return q @ k.repeat(1, q.shape[1] // k.shape[1], 1, 1).transpose(-2, -1)


@wrong(
    "grouped_scores", "repeat_kv with the new axis behind the tokens", slips=("tokens_repeated",)
)
def grouped_expand_tokens(q, k):
    B, g, T, d = k.shape
    n = q.shape[1] // g
    k = k[:, :, :, None, :].expand(B, g, T, n, d).reshape(B, g * n, T, d)
    return q @ k.transpose(-2, -1) / math.sqrt(d)


@wrong("grouped_scores", "repeats every key head h_kv times")
def grouped_repeats_hkv(q, k):
    k = k.repeat_interleave(k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


@wrong("grouped_scores", "means the queries of a group: (B, h_kv, T_q, T_k)")
def grouped_mean_queries(q, k):
    q = q.unflatten(1, (k.shape[1], -1)).mean(dim=2)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


@wrong("grouped_scores", "two slips: group in the wrong order, scaled by d_k")
def grouped_order_and_scale(q, k):
    n = q.shape[1] // k.shape[1]
    k = k.unsqueeze(1).expand(-1, n, -1, -1, -1).flatten(1, 2)
    return q @ k.transpose(-2, -1) / q.size(-1)


@wrong("grouped_scores", "folded for one product, unfolded in the wrong order")
def grouped_unfold(q, k):
    B, h, T, d = q.shape
    g = k.shape[1]
    s = q.reshape(B, g, h // g * T, d) @ k.transpose(-2, -1) / math.sqrt(d)
    return s.view(B, g, T, h // g, -1).transpose(2, 3).reshape(B, h, T, -1)


@wrong("grouped_scores", "key heads taken from the last to the first")
def grouped_reversed(q, k):
    k = k.flip(1).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


@wrong("grouped_scores", "two slips: the mean key head, and no scale")
def grouped_mean_unscaled(q, k):
    return q @ k.mean(dim=1, keepdim=True).transpose(-2, -1)


@wrong("grouped_scores", "two slips: keys first, and a scale by d_k")
def grouped_keys_first(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return k @ q.transpose(-2, -1) / q.size(-1)


@right("grouped_scores")
def grouped_fold(q, k):
    B, h, T, d = q.shape
    folded = q.reshape(B, k.shape[1], -1, d)
    return (folded @ k.transpose(-2, -1)).view(B, h, T, k.shape[2]) / math.sqrt(d)


# --- 19 cached_mask ---


@wrong("cached_mask", "two slips: window one too wide, True = may look")
def cmask_two_slips(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)
    keep = k <= q
    return keep if window is None else keep & (q - k <= window)


@wrong("cached_mask", "window one too narrow")
def cmask_window_narrow(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)
    blocked = k > q
    return blocked if window is None else blocked | (q - k >= window - 1)


@wrong("cached_mask", "turned round: (n_cached + n_new, n_new)")
def cmask_turned(n_new, n_cached, window):
    q = torch.arange(n_new) + n_cached
    k = torch.arange(n_cached + n_new)[:, None]
    blocked = k > q
    return blocked if window is None else blocked | (q - k >= window)


@wrong("cached_mask", "the window hangs on the last token for every query")
def cmask_window_at_end(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)
    blocked = k > q
    return blocked if window is None else blocked | (k < n_cached + n_new - window)


@wrong("cached_mask", "None is read as a window of 0: everything blocked", slips=("none_is_zero",))
def cmask_none_is_zero(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)
    return (k > q) | (q - k >= int(window or 0))


@wrong("cached_mask", "queries counted from 0, as if nothing were cached")
def cmask_queries_from_zero(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None]
    k = torch.arange(n_cached + n_new)
    blocked = k > q
    return blocked if window is None else blocked | (q - k >= window)


@wrong("cached_mask", "cached keys never leave the window")
def cmask_cached_stay(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None]
    k = torch.arange(n_new)
    new = k > q
    if window is not None:
        new = new | (q - k >= window)
    return torch.cat((torch.zeros(n_new, n_cached, dtype=torch.bool), new), dim=1)


@wrong("cached_mask", "two slips: turned round, and the window one too wide")
def cmask_turned_wide(n_new, n_cached, window):
    q = torch.arange(n_new) + n_cached
    k = torch.arange(n_cached + n_new)[:, None]
    blocked = k > q
    return blocked if window is None else blocked | (q - k > window)


@wrong("cached_mask", "two slips: own position blocked, window unread")
def cmask_own_no_window(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    return torch.arange(n_cached + n_new) >= q


@right("cached_mask")
def cmask_rows_of_all(n_new, n_cached, window):
    n = n_cached + n_new
    back = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    limit = n if window is None else window
    return ((back < 0) | (back >= limit))[n_cached:]
