"""Hasty engineers: they know what they want and edit the wrong line.

Off by one axis, a variable reused, a result not kept, a return one level too deep, code left from
debugging, tensors changed in place, and now and then two slips at once.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "the division's result is not kept: no scale")
def scores_not_kept(Q, K):
    scores = Q @ K.transpose(-2, -1)
    scores.div(math.sqrt(Q.shape[-1]))
    return scores


@wrong("attention_scores", "divides by 8, the root of 64, whatever d_k is")
def scores_hard_coded(Q, K):
    scale = 64**-0.5
    return (Q @ K.mT) * scale


@right("attention_scores")
def scores_in_place(Q, K):
    Q /= math.sqrt(Q.shape[-1])
    return Q @ K.mT


@wrong("attention_scores", "both Q and K are divided by the root: scaled by d_k in the end")
def scores_scaled_twice(Q, K):
    r = math.sqrt(Q.shape[-1])
    Q = Q / r
    K = K / r
    return Q @ K.mT


@wrong("attention_scores", "scaled by the number of keys, shape[-2], not by d_k")
def scores_shape_minus_two(Q, K):
    return Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-2])


@wrong("attention_scores", "detached for printing, and returned like that")
def scores_left_detach(Q, K):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    scores = scores.detach()
    # print(scores[0])
    return scores


@wrong("attention_scores", "two slips: Q times itself, and no scale")
def scores_qq(Q, K):
    K = Q.transpose(-2, -1)
    return Q @ K


# --- 2 attention ---


@wrong(
    "attention", "V is overwritten by the output, which is returned twice", slips=("output_twice",)
)
def attention_same_twice(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    weights = V = scores.softmax(dim=-1) @ V
    return V, weights


@wrong("attention", "output from a second softmax of the weights")
def attention_softmax_again(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    return F.softmax(weights, dim=-1) @ V, weights


@wrong("attention", "with matrices it returns early, the output alone")
def attention_early_return(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    if Q.ndim == 2:
        return weights @ V
    return weights @ V, weights


@wrong("attention", "a dropout of 0.1 is left in")
def attention_left_dropout(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    weights = F.dropout(weights, 0.1)
    return weights @ V, weights


@wrong("attention", "weights rounded to two decimals for printing")
def attention_rounded(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    output = weights @ V
    weights = weights.round(decimals=2)
    return output, weights


@wrong(
    "attention",
    "exp_ overwrites what the backward pass needs: no gradient",
    slips=("error:written_over",),
)
def attention_exp_in_place(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    weights = scores.log_softmax(-1).exp_()
    return weights @ V, weights


@wrong("attention", "two slips: softmax over the queries, and weights returned first")
def attention_two_slips(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-2)
    return weights, weights @ V


@wrong("attention", "the scale is the root of V's width")
def attention_dv(Q, K, V):
    d_k = V.shape[-1]
    weights = torch.softmax(Q @ K.mT / d_k**0.5, dim=-1)
    return weights @ V, weights


# --- 3 project_qkv ---


@wrong("project_qkv", "copied line: V is cut where K is")
def project_copied_slice(X, W_qkv):
    d = X.shape[-1]
    out = X @ W_qkv.T
    Q = out[..., :d]
    K = out[..., d : 2 * d]
    V = out[..., d : 2 * d]
    return Q, K, V


@wrong("project_qkv", "cuts at multiples of T, X.shape[1], not of d_model")
def project_cut_at_t(X, W_qkv):
    d = X.shape[1]
    out = X @ W_qkv.T
    return out[..., :d], out[..., d : 2 * d], out[..., 2 * d :]


@wrong(
    "project_qkv",
    "X is overwritten: keys come from queries, values from keys",
    slips=("one_from_another",),
)
def project_chained(X, W_qkv):
    out = []
    for W in W_qkv.chunk(3):
        X = X @ W.T
        out.append(X)
    return tuple(out)


@wrong("project_qkv", "inserts at the front: V, K, Q")
def project_insert_front(X, W_qkv):
    parts = []
    for part in (X @ W_qkv.T).chunk(3, -1):
        parts.insert(0, part)
    return parts


@wrong("project_qkv", "returns all three side by side, uncut")
def project_uncut(X, W_qkv):
    qkv = X @ W_qkv.T
    qkv.chunk(3, dim=-1)
    return qkv


@wrong("project_qkv", "Q is already divided by the root of d_model")
def project_scaled_q(X, W_qkv):
    Q, K, V = F.linear(X, W_qkv).chunk(3, dim=-1)
    Q = Q * X.shape[-1] ** -0.5
    return Q, K, V


# --- 4 count_parameters ---


@wrong("count_parameters", "= for +=: only W_o is counted")
def count_overwritten(d_model, n_heads, d_k):
    total = 0
    width = n_heads * d_k
    for rows, cols in [(width, d_model), (width, d_model), (width, d_model), (d_model, width)]:
        total = rows * cols
    return total


@wrong("count_parameters", "brackets missing: d_model * n_heads + d_k for W_o")
def count_no_brackets(d_model, n_heads, d_k):
    w_qkv = 3 * d_model * (n_heads * d_k)
    w_o = d_model * n_heads + d_k
    return w_qkv + w_o


@wrong("count_parameters", "^ is no power but an exclusive or, and d_k is free no longer")
def count_xor(d_model, n_heads, d_k):
    d_k = d_model // n_heads
    return 4 * d_model ^ 2


@wrong("count_parameters", "leaves the heads out of all four matrices")
def count_one_head(d_model, n_heads, d_k):
    return 3 * d_model * d_k + d_k * d_model


@wrong("count_parameters", "multiplies by the heads twice")
def count_heads_twice(d_model, n_heads, d_k):
    width = n_heads * d_k
    per_head = 4 * d_model * width
    return n_heads * per_head


@wrong("count_parameters", "two slips: W_o left out, and / gives a float")
def count_float_three(d_model, n_heads, d_k):
    four = 4 * d_model * n_heads * d_k
    return four * 3 / 4


# --- 5 split_heads ---


@wrong("split_heads", "the permuted tensor is not kept: (B, T, h, d_k)")
def split_not_kept(x, n_heads):
    B, T, d_model = x.shape
    x = x.view(B, T, n_heads, d_model // n_heads)
    x.permute(0, 2, 1, 3)
    return x


@wrong("split_heads", "one head: returned early, with three axes")
def split_early_return(x, n_heads):
    if n_heads == 1:
        return x
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).transpose(1, 2)


@wrong("split_heads", "axes 2 and 1 for 1 and 2 in the sizes: gives (B, d_k, T, h)")
def split_swapped_sizes(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    return x.reshape(B, T, d_k, n_heads).permute(0, 2, 1, 3)


@wrong("split_heads", "permute(0, 2, 3, 1): keys turned already, (B, h, d_k, T)")
def split_turned(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, -1).permute(0, 2, 3, 1)


@wrong("split_heads", "left from debugging: only the first sequence")
def split_first_sequence(x, n_heads):
    x = x[:1]
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).transpose(1, 2)


@wrong("split_heads", "transpose(0, 1): (T, B, h, d_k)")
def split_off_by_one_axis(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).transpose(0, 1)


# --- 6 merge_heads ---


@wrong("merge_heads", "range(n_heads - 1): the last head is missing")
def merge_last_missing(x):
    B, n_heads, T, d_k = x.shape
    return torch.cat([x[:, i] for i in range(max(n_heads - 1, 1))], dim=-1)


@right("merge_heads")
def merge_in_place(x):
    x.transpose_(1, 2)
    return x.flatten(2)


@wrong("merge_heads", "shape unpacked as B, T, h: T and h changed round, (B, h, T * d_k)")
def merge_unpacked_wrong(x):
    B, T, n_heads, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, n_heads * d_k)


@wrong("merge_heads", "adds the heads up: (B, T, d_k)")
def merge_added(x):
    out = torch.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        out = out + x[:, i]
    return out


@wrong("merge_heads", "the transpose is not kept before the reshape")
def merge_not_kept(x):
    B, n_heads, T, d_k = x.shape
    y = x.contiguous()
    y.transpose(1, 2)
    return y.view(B, T, n_heads * d_k)


@wrong("merge_heads", "the same head each time: x[:, 0] for x[:, i]", slips=("same_head",))
def merge_same_head(x):
    return torch.cat([x[:, 0] for i in range(x.shape[1])], dim=-1)


# --- 7 causal_mask ---


@wrong("causal_mask", "triu's result is not kept: everything is blocked")
def causal_not_kept(T):
    mask = torch.ones(T, T, dtype=torch.bool)
    mask.triu(diagonal=1)
    return mask


@wrong("causal_mask", "return inside the loop: only row 0 is filled")
def causal_early_return(T):
    mask = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        mask[i, i + 1 :] = True
        return mask


@wrong("causal_mask", "the slice ends at -1: the last key stays open")
def causal_slice_end(T):
    mask = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        mask[i, i + 1 : -1] = True
    return mask


@wrong("causal_mask", "diagonal=2: the next token stays open")
def causal_two(T):
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=2)


@wrong("causal_mask", "diagonal=-1: itself and the token before are blocked too")
def causal_minus_one(T):
    return torch.ones(T, T).triu(diagonal=-1).bool()


@wrong("causal_mask", "hard-coded for the sentence of five tokens")
def causal_five(T):
    T = 5
    i = torch.arange(T)
    return i[None, :] > i[:, None]


@wrong("causal_mask", "two slips: the past is blocked, and as ints")
def causal_two_slips(T):
    return torch.ones(T, T, dtype=torch.int).tril(-1)


# --- 8 padding_mask ---


@wrong("padding_mask", "> for >=: the first padding key stays open")
def padding_greater(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, None]


@wrong("padding_mask", "T is overwritten by the longest length")
def padding_longest(lengths, T):
    T = int(lengths.max())
    positions = torch.arange(T, device=lengths.device)
    return (positions >= lengths.view(-1, 1, 1, 1)).view(len(lengths), 1, 1, T)


@wrong("padding_mask", "None where no sequence is padded", slips=("ends_there",))
def padding_none(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = (positions >= lengths[:, None])[:, None, None, :]
    return mask if mask.any() else None


@wrong("padding_mask", "new axes in front: (1, 1, B, T)")
def padding_axes_in_front(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= lengths[:, None])[None, None]


@right("padding_mask")
def padding_in_place(lengths, T):
    lengths -= 1
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "two slips: no device, and True at the real tokens")
def padding_two_slips(lengths, T):
    positions = torch.arange(T).to("cpu")
    return (positions < lengths.cpu()[:, None])[:, None, None, :]


@wrong("padding_mask", "lengths[0] for every sequence")
def padding_first_length(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    rows = [positions >= lengths[0] for n in lengths]
    return torch.stack(rows)[:, None, None]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "masked_fill's result is not kept: nothing is blocked but empty rows")
def softmax_not_kept(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    scores.masked_fill(mask & ~empty, -math.inf)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


@right("masked_softmax")
def softmax_in_place(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    scores.masked_fill_(mask & ~empty, -math.inf)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("masked_softmax", "asks whether the whole mask is blocked, not each row: NaN")
def softmax_whole_mask(scores, mask):
    if mask.all():
        return torch.zeros_like(scores)
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1)


@wrong("masked_softmax", "any for all: a row with one blocked key is all zeros")
def softmax_any(scores, mask):
    empty = mask.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


@wrong(
    "masked_softmax", "opens key 0 in every row, so that no row is empty", slips=("first_key_open",)
)
def softmax_opens_first(scores, mask):
    mask = mask.clone()
    mask[..., 0] = False
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1)


@wrong(
    "masked_softmax",
    "two slips: & empty for & ~empty, so NaN where empty, else no mask",
    slips=("only_blocked_rows",),
)
def softmax_and_empty(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & empty, -math.inf).softmax(dim=-1)


@wrong("masked_softmax", "softmax over axis -2, the queries")
def softmax_axis_queries(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -1e30).softmax(dim=-2)
    return weights.masked_fill(mask, 0.0)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "return inside the loop: only head 0 writes")
def writes_early_return(heads, W_o):
    B, h, T, d_k = heads.shape
    out = 0
    for i in range(h):
        out = out + heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
        return out


@wrong("sum_of_head_writes", "every head meets the first slab")
def writes_first_slab(heads, W_o):
    B, h, T, d_k = heads.shape
    out = 0
    for i in range(h):
        slab = W_o[:, :d_k]
        out = out + heads[:, i] @ slab.T
    return out


@wrong("sum_of_head_writes", "starts with head 0 and adds it once more", slips=("first_twice",))
def writes_zero_twice(heads, W_o):
    d_k = heads.shape[-1]
    slabs = W_o.split(d_k, dim=1)
    out = heads[:, 0] @ slabs[0].T
    for i, slab in enumerate(slabs):
        out = out + heads[:, i] @ slab.T
    return out


@wrong("sum_of_head_writes", "heads[i] for heads[:, i]: index on the batch")
def writes_batch_index(heads, W_o):
    d_k = heads.shape[-1]
    return sum(heads[i] @ slab.T for i, slab in enumerate(W_o.split(d_k, dim=1)))


@wrong("sum_of_head_writes", "slabs as wide as T, not as d_k")
def writes_wide_as_t(heads, W_o):
    B, h, d_k, T = heads.shape
    out = 0
    for i in range(h):
        out = out + heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@wrong("sum_of_head_writes", "two slips: the last head left out, and divided by h")
def writes_two_slips(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    for i in range(h - 1):
        out = out + torch.einsum("btk,mk->btm", heads[:, i], W_o[:, i * d_k : (i + 1) * d_k])
    return out / h


@wrong("sum_of_head_writes", "a leftover relu cuts the negatives of every head's write")
def writes_left_relu(heads, W_o):
    W = W_o.unflatten(1, (heads.shape[1], -1))
    writes = torch.einsum("bhtk,mhk->bhtm", heads, W)
    return F.relu(writes).sum(dim=1)


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "copied line: keys are made by w_q, and w_k is never used")
class KeysByWq(nn.Module):
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
        q = self.w_q(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        k = self.w_q(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            dead = mask.all(dim=-1, keepdim=True)
            scores = scores.masked_fill(mask & ~dead, -math.inf)
            weights = scores.softmax(-1).masked_fill(dead, 0.0)
        else:
            weights = scores.softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "without a mask it returns before w_o")
class EarlyReturnNoMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, y):
        B, T, d = y.shape
        return y.view(B, T, self.n_heads, d // self.n_heads).transpose(1, 2)

    def merge(self, y):
        return y.transpose(1, 2).flatten(2)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is None:
            return self.merge(scores.softmax(-1) @ v)
        dead = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1)
        return self.w_o(self.merge(weights.masked_fill(dead, 0.0) @ v))


@right("MultiHeadAttention")
class MaskInPlace(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        blocked_rows = mask.all(dim=-1, keepdim=True)
        mask &= ~blocked_rows
        weights = scores.masked_fill(mask, -math.inf).softmax(-1).masked_fill(blocked_rows, 0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "a dropout of 0.1 on the weights, at work in training mode")
class LeftDropout(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.dropout = nn.Dropout(dropout)
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is None:
            mask = scores.new_zeros(1, dtype=torch.bool)
        dead = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0)
        weights = self.dropout(weights)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "keeps the first mask it was given, and uses it ever after")
class KeepsFirstMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.mask = None
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        if self.mask is None:
            if mask is None:
                mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
            self.mask = mask
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        dead = self.mask.all(dim=-1, keepdim=True)
        scores = scores.masked_fill(self.mask & ~dead, -math.inf)
        weights = scores.softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "adds x to the result, left from the block around it")
class LeftResidual(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            dead = mask.all(dim=-1, keepdim=True)
            scores = scores.masked_fill(mask & ~dead, -math.inf)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(dead, 0.0)
        return x + self.w_o((weights @ v).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "super().__init__() was deleted with another line")
class NoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "the scale's result is not kept")
class ScaleNotKept(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT
        scores / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.zeros_like(scores, dtype=torch.bool)
        dead = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "v is cut like q and k but not transposed")
class ValuesNotTransposed(nn.Module):
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
        q = self.w_q(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, self.n_heads, T, self.d_k)
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        dead = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "two slips: NaN for a blocked row, and merged without a transpose")
class TwoSlips(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.w_o((scores.softmax(-1) @ v).reshape(B, T, d_model))


@wrong("MultiHeadAttention", "the mask is only looked at in eval mode")
class MaskInEvalOnly(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is None or self.training:
            mask = torch.zeros_like(scores, dtype=torch.bool)
        dead = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0)
        return self.w_o((weights @ v).transpose(1, 2).reshape(B, T, d_model))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "the colons changed round: predicts the token before")
def loss_previous(logits, tokens):
    predictions, answers = logits[:, 1:], tokens[:, :-1]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


@wrong("next_token_loss", "cuts the batch, [:-1] and [1:], instead of the tokens")
def loss_shifted_batch(logits, tokens):
    return F.cross_entropy(logits[:-1].flatten(0, 1), tokens[1:].flatten())


@wrong("next_token_loss", "return inside the loop: the loss of the first sequence")
def loss_first_sequence(logits, tokens):
    total = 0
    for row, ids in zip(logits, tokens):
        total = total + F.cross_entropy(row[:-1], ids[1:])
        return total / 1


@wrong("next_token_loss", "item() is left in: a Python float, without a gradient")
def loss_item(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return loss.item()


@wrong("next_token_loss", "both cut at the end: each position predicts its own token")
def loss_both_cut(logits, tokens):
    logits, tokens = logits[:, :-1], tokens[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


@wrong("next_token_loss", "two slips: softmax before cross_entropy, and summed")
def loss_two_slips(logits, tokens):
    p = logits[:, :-1].softmax(-1)
    return F.cross_entropy(p.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


@wrong("next_token_loss", "shifted by two: [:-2] against [2:]")
def loss_two_ahead(logits, tokens):
    logits = logits[:, :-1]
    tokens = tokens[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


# --- 13 previous_token_score ---


@wrong("previous_token_score", "offset=-2: the token two before")
def previous_two(weights):
    return weights.diagonal(offset=-2, dim1=-2, dim2=-1).mean(dim=-1)


@wrong("previous_token_score", "mean over the heads: one number for each query")
def previous_mean_heads(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=0)


@right("previous_token_score")
def previous_in_place(weights):
    weights[:, 0] = 0
    return weights.diagonal(offset=-1, dim1=1, dim2=2).mean(-1)


@wrong("previous_token_score", "sum, not mean")
def previous_sum(weights):
    diag = torch.stack([w.diagonal(-1) for w in weights])
    return diag.sum(-1)


@wrong("previous_token_score", "range(1, T - 1): the last query is left out")
def previous_last_missing(weights):
    h, T, _ = weights.shape
    total = torch.zeros_like(weights[:, 0, 0])
    for t in range(1, T - 1):
        total = total + weights[:, t, t - 1]
    return total / (T - 1)


@wrong("previous_token_score", "two slips: the main diagonal, and the mean of all heads")
def previous_two_slips(weights):
    return weights.diagonal(dim1=-2, dim2=-1).mean()


# --- silence ---


@wrong("silence", "the clone is returned, the original is zeroed")
def silence_wrong_variable(heads, i):
    quiet = heads.clone()
    heads[:, i] = 0
    return quiet


@wrong("silence", "i: for i: all heads from i on are silent")
def silence_slice(heads, i):
    quiet = heads.clone()
    quiet[:, i:] = 0
    return quiet


@wrong("silence", "index on the last axis: dimension i of every head")
def silence_dimension(heads, i):
    quiet = heads.clone()
    quiet[..., i] = 0
    return quiet


@wrong("silence", "i - 1: the head before is silenced")
def silence_before(heads, i):
    quiet = heads.clone()
    quiet[:, i - 1] = 0
    return quiet


@wrong("silence", "gives the silent head alone")
def silence_head_alone(heads, i):
    quiet = heads.clone()
    quiet = quiet[:, i]
    quiet[:] = 0
    return quiet


@wrong("silence", "two slips: mul_ in place, and by 0.1")
def silence_two_slips(heads, i):
    heads[:, i].mul_(0.1)
    return heads


# --- solved ---


@wrong("solved", "< for >")
def solved_less(weights, query, right, wrong):
    return weights[:, query, right] < weights[:, query, wrong]


@wrong("solved", "copied line: the wrong key's weight is read in row right")
def solved_copied_row(weights, query, right, wrong):
    a = weights[:, query, right]
    b = weights[:, right, wrong]
    return a > b


@wrong("solved", "row before: query - 1")
def solved_row_before(weights, query, right, wrong):
    row = weights[:, query - 1]
    return row[:, right] > row[:, wrong]


@wrong("solved", "return inside the loop: the answer of head 0 alone")
def solved_first_head(weights, query, right, wrong):
    answers = []
    for head in weights:
        answers.append(head[query, right] > head[query, wrong])
        return torch.stack(answers)


@wrong("solved", "counts the heads that solve it")
def solved_count(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).sum()


@wrong("solved", "two slips: >= for >, and as floats")
def solved_two_slips(weights, query, right, wrong):
    return (weights[:, query, right] >= weights[:, query, wrong]).float()


# --- 14 count_flops ---


@wrong("count_flops", "the second product of attention is left out")
def flops_one_product(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * T * d_model * d_model
    scores = n_heads * 2 * T * T * d_k
    context = n_heads * 2 * T * T * d_k
    return projections + scores


@wrong("count_flops", "T and d_k changed round in the products")
def flops_t_dk(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * T * d_model * d_model
    products = 2 * n_heads * 2 * T * d_k * d_k
    return projections + products


@wrong("count_flops", "the projections are multiplied by n_heads")
def flops_projections_per_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = n_heads * 4 * 2 * T * d_model * d_model
    products = 2 * n_heads * 2 * T * T * d_k
    return projections + products


@wrong("count_flops", "the products of one head only")
def flops_one_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    total = 8 * T * d_model**2
    total += 2 * T * T * d_k
    total += 2 * T * T * d_k
    return total


@wrong("count_flops", "two slips: 1 for a multiply-add, and / gives a float")
def flops_two_slips(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 4 * T * d_model * d_model + 2 * n_heads * T * T * d_k


@wrong("count_flops", "the softmax is counted too, 5 for each score")
def flops_with_softmax(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * T * d_model * d_model
    products = 2 * n_heads * 2 * T * T * d_k
    softmax = 5 * n_heads * T * T
    return projections + products + softmax


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "out=m: the old maximum is gone before the shrink is computed")
def blocks_out_m(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -1e30)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True), out=m)
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "the first block's values each time")
def blocks_first_values(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[: e.shape[1]]
        m = larger
    return mix / total


@wrong("blockwise_attention", "return inside the loop: the first block only")
def blocks_early_return(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
        m = larger
        return mix / total


@wrong("blockwise_attention", "m is never updated: stays at -1e4, so exp overflows")
def blocks_m_stays(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -1e4)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        e = (scores - m).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "the mix is shrunk, the total is not")
def blocks_total_not_shrunk(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total += e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
        m = larger
    return mix / total


@wrong("blockwise_attention", "two slips: no scale, and the last key of each block left out")
def blocks_two_slips(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -1e30)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        j = max(i + block - 1, i + 1)
        scores = Q @ K[i:j].T
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i:j]
        m = larger
    return mix / total


# --- 16 rotate ---


@right("rotate")
def rotate_in_place(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half].clone(), x[..., half:].clone()
    x[..., :half] = a * cos - b * sin
    x[..., half:] = a * sin + b * cos
    return x


@wrong("rotate", "i / d_k for 2i / d_k: the speeds fall half as fast")
def rotate_slow_fall(x, positions):
    d_k = x.shape[-1]
    i = torch.arange(d_k // 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / d_k)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "angles in x's dtype: in half precision off by more than a turn")
def rotate_half_precision(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device).to(x.dtype)
    angle = positions[:, None].to(x.dtype) * 10_000.0 ** (-i / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "base 1,000, a zero too few")
def rotate_base(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 1_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "the second half comes first in the cat")
def rotate_halves_swapped(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * sin + b * cos, a * cos - b * sin), dim=-1)


@wrong("rotate", "two slips: minus left out of the exponent, and sin for cos in the second half")
def rotate_two_slips(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * sin), dim=-1)


@wrong("rotate", "degrees, not radians")
def rotate_degrees(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = torch.deg2rad(positions[:, None] * 10_000.0 ** (-i / half))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


# --- 17 cached_attention ---


@wrong("cached_attention", "copied line: the old keys stand before the new values")
def cached_copied_line(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=2)
        v = torch.cat((cache[0], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "returns the cache it was given")
def cached_old_returned(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    else:
        cache = (k, v)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, cache


@wrong("cached_attention", "the caller's cache grows too: .data is replaced")
def cached_data_replaced(q, k, v, cache):
    if cache is not None:
        cache[0].data = torch.cat((cache[0], k), dim=2)
        cache[1].data = torch.cat((cache[1], v), dim=2)
        k, v = cache
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "diagonal without + 1: a new token may not see itself")
def cached_diagonal(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "without a cache it returns early, and without a mask")
def cached_first_call(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v), (k, v)
    k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    keep = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "is_causal=True, which counts from the top left")
def cached_is_causal(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=-2), torch.cat((cache[1], v), dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("cached_attention", "queries go through the cache as well: context of all tokens")
def cached_queries_too(q, k, v, cache):
    if cache is not None:
        q = torch.cat((cache[0], q), dim=2)
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n = k.shape[2]
    blocked = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "one new token: the cache is used but does not grow")
def cached_single_token(q, k, v, cache):
    new = (k, v)
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        new = (k, v) if q.shape[2] > 1 else cache
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v, new


@wrong("cached_attention", "the cache comes back as (v, k)")
def cached_vk(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    context = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v
    return context, (v, k)


@wrong("cached_attention", "left from a test: only the last 4 tokens are kept")
def cached_last_four(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    context = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1) @ v
    return context, (k[:, :, -4:], v[:, :, -4:])


@wrong("cached_attention", "two slips: masked_fill not kept, and no scale")
def cached_two_slips(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)
    scores = q @ k.mT
    scores.masked_fill(blocked, float("-inf"))
    return scores.softmax(dim=-1) @ v, (k, v)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "h_kv // h for h // h_kv: 0 copies, so no heads are left")
def grouped_upside_down(q, k):
    k = k.repeat_interleave(k.shape[1] // q.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "repeat_interleave's result is not kept")
def grouped_not_kept(q, k):
    k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "dim=2: the keys are repeated, not the heads")
def grouped_dim_two(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=2)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "as many key heads as heads: returned early, without the scale")
def grouped_early_return(q, k):
    if q.shape[1] == k.shape[1]:
        return q @ k.mT
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "all query heads look with key head 0")
def grouped_first_head(q, k):
    g = q.shape[1] // k.shape[1]
    k = k[:, :1].repeat_interleave(g * k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "two slips: repeat for repeat_interleave, and the root of h as scale")
def grouped_two_slips(q, k):
    B, h, T, d_k = q.shape
    k = k.repeat(1, h // k.shape[1], 1, 1)
    return q @ k.mT / math.sqrt(h)


# --- 19 cached_mask ---


@wrong("cached_mask", "key - query for query - key: the window lies in the future")
def mask_sign(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (key - query >= window)


@wrong("cached_mask", "& for |: nothing is both future and past")
def mask_and(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked & (query - key >= window)


@wrong("cached_mask", "with a window it returns early: the future stays open")
def mask_early_return(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    if window is not None:
        return query - key >= window
    return key > query


@wrong("cached_mask", "a row for every token, cached ones too")
def mask_square(n_new, n_cached, window):
    place = torch.arange(n_cached + n_new)
    query, key = place[:, None], place[None, :]
    blocked = key > query
    if window is not None:
        blocked |= query - key >= window
    return blocked


@wrong("cached_mask", "places of the new tokens start one too late")
def mask_one_late(n_new, n_cached, window):
    query = torch.arange(n_cached + 1, n_cached + n_new + 1)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (query - key >= window)


@wrong("cached_mask", "window None is not asked for: crashes")
def mask_none_crashes(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return (key > query) | (query - key >= window)


@wrong("cached_mask", "two slips: a token may not see itself, and the window is one wider")
def mask_two_slips(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key >= query
    return blocked if window is None else blocked | (query - key > window)


# --- right, though hastily written ---


@right("attention")
def attention_two_temporaries(Q, K, V):
    scores = torch.empty(0)
    scores = (Q / Q.shape[-1] ** 0.25) @ (K / K.shape[-1] ** 0.25).mT
    weights = torch.log_softmax(scores, -1)
    weights = weights.exp()
    return [weights.matmul(V), weights]


@right("split_heads")
def split_unfold(x, n_heads):
    d_k = x.size(-1) // n_heads
    return x.unfold(-1, d_k, d_k).swapdims(1, 2)


@right("padding_mask")
def padding_not_real(lengths, T):
    real = torch.arange(1, T + 1, device=lengths.device) <= lengths.reshape(-1, 1, 1, 1)
    real.logical_not_()
    return real


@right("masked_softmax")
def softmax_in_pieces(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    s = scores.where(~mask, lowest)
    w = s.softmax(-1)
    return w * (~mask).to(w.dtype)


@right("sum_of_head_writes")
def writes_backwards(heads, W_o):
    d_k, h = heads.shape[-1], heads.shape[1]
    out = None
    for i in reversed(range(h)):
        write = F.linear(heads[:, i], W_o[:, d_k * i :][:, :d_k])
        out = write if out is None else write.add_(out)
    return out


@right("MultiHeadAttention")
class OneLineEach(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        for name in "qkvo":
            self.add_module(f"w_{name}", nn.Linear(d_model, d_model, bias=name != "k"))
        self.shape = (n_heads, d_model // n_heads)

    def forward(self, x, mask=None):
        projections = self.w_q, self.w_k, self.w_v
        q, k, v = (m(x).unflatten(-1, self.shape).transpose(1, 2) for m in projections)
        s = q @ k.mT * self.shape[1] ** -0.5
        b = torch.zeros_like(s, dtype=torch.bool) if mask is None else mask.expand_as(s)
        w = s.where(~b, torch.finfo(s.dtype).min).softmax(-1).where(~b, 0.0)
        return self.w_o(torch.cat((w @ v).unbind(1), -1))


@right("next_token_loss")
def loss_ignored_last(logits, tokens):
    answers = F.pad(tokens[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.mT, answers)


@right("silence")
def silence_scatter(heads, i):
    return torch.select_scatter(heads, torch.zeros_like(heads[:, i]), 1, i)


@right("blockwise_attention")
def blocks_logsumexp(Q, K, V, block):
    out, lse = None, None
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / Q.shape[-1] ** 0.5
        here = s.logsumexp(1, keepdim=True)
        part = s.softmax(1) @ v
        if out is None:
            out, lse = part, here
            continue
        both = torch.logaddexp(lse, here)
        out = out * (lse - both).exp() + part * (here - both).exp()
        lse = both
    return out


@right("grouped_scores")
def grouped_broadcast(q, k):
    q = q.unflatten(1, (k.shape[1], -1)) / q.shape[-1] ** 0.5
    return (q @ k.unsqueeze(2).mT).flatten(1, 2)
