"""Wrong answers of a mixed class: two slips at once, one size only, leftovers, long loops, one-liners."""

# As learners type: long lines, `l`, zip.
# ruff: noqa: E501

import functools
import math
from functools import reduce

import torch
import torch.nn.functional as F
from answers import wrong
from einops import rearrange, repeat
from torch import einsum, nn


# ------------------------------------------------------------------ 1 attention_scores
@wrong("attention_scores", "two mistakes: K.T turns all axes, and the scale is d_k, not its root")
def s3_t_and_d_k(Q, K):
    return (Q @ K.T) / K.shape[-1]


@wrong(
    "attention_scores",
    "two mistakes: the result is (..., T_k, T_q), keys by queries, and it is not scaled",
)
def s3_keys_by_queries(Q, K):
    return K @ Q.mT


@wrong("attention_scores", "a softmax that was not asked for: gives weights, not scores")
def s3_softmaxed(Q, K):
    return F.softmax(einsum("...ie,...je->...ij", Q, K) * Q.shape[-1] ** -0.5, dim=-1)


@wrong(
    "attention_scores",
    "one wrong letter in the einsum: e is summed in each factor alone, so every score is a product of sums",
)
def s3_einsum_letter(Q, K):
    return torch.einsum("...ie,...jf->...ij", Q, K) / math.sqrt(Q.shape[-1])


@wrong(
    "attention_scores",
    "the loop over the keys runs to T_q: right only when there are as many keys as queries",
    slips=("one_place",),
)
def s3_loop_t_q(Q, K):
    columns = []
    for j in range(Q.shape[-2]):
        columns.append((Q * K[..., j : j + 1, :]).sum(-1))
    return torch.stack(columns, dim=-1) / Q.shape[-1] ** 0.5


@wrong("attention_scores", "the root is cut to an integer, right only where d_k is a square number")
def s3_floored_root(Q, K):
    root = int(math.sqrt(Q.shape[-1]))
    return Q.matmul(K.transpose(-2, -1)) / root


@wrong("attention_scores", "the exponent is 1/2 without brackets: divides by d_k and then by 2")
def s3_precedence(Q, K):
    d = Q.shape[-1]
    return torch.einsum("...qd, ...kd -> ...qk", Q, K) / d**1 / 2


# ------------------------------------------------------------------ 2 attention
@wrong("attention", "two mistakes: softmax over the queries, and no scaling")
def a3_dim_and_scale(Q, K, V):
    W = (Q @ K.transpose(-1, -2)).softmax(dim=-2)
    return W @ V, W


@wrong(
    "attention", "two mistakes: results in the wrong order, and divided by d_k instead of its root"
)
def a3_order_and_scale(Q, K, V):
    w = torch.softmax(torch.einsum("...id,...jd->...ij", Q, K) / Q.size(-1), -1)
    return w, torch.einsum("...ij,...jv->...iv", w, V)


@wrong("attention", "softmax twice: the weights go through it again before they meet V")
def a3_twice(Q, K, V):
    w = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)
    return w.softmax(-1) @ V, w


@wrong("attention", "normalises by dividing by the sum of the scores: no exponential")
def a3_no_exp(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    w = s / s.sum(dim=-1, keepdim=True)
    return w @ V, w


@wrong("attention", "log_softmax instead of softmax")
def a3_log(Q, K, V):
    w = F.log_softmax(Q @ K.mT / Q.shape[-1] ** 0.5, dim=-1)
    return w @ V, w


@wrong(
    "attention",
    "the einsum lets j of the weights meet i of the values: the weights are transposed (raises unless T_q = T_k)",
)
def a3_letter(Q, K, V):
    w = einsum("...id,...jd->...ij", Q, K).div(Q.shape[-1] ** 0.5).softmax(-1)
    return einsum("...ij,...iv->...jv", w, V), w


@wrong(
    "attention",
    "a loop over the queries that takes Q[i]: the first axis, right only for plain matrices",
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
    "softmax with dim=1, a leftover from three axes: the wrong axis or queries when there are others (right only for plain matrices)",
)
def a3_dim_1(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    weights = scores.softmax(dim=1)
    return weights @ V, weights


# ------------------------------------------------------------------ 3 project_qkv
@wrong(
    "project_qkv",
    "two mistakes: cut along the tokens instead of the features, and the three pieces are given in reverse order",
)
def p3_tokens_reversed(X, W):
    return tuple(reversed((X @ W.T).chunk(3, dim=1)))


@wrong("project_qkv", "K is given twice: the third slice starts at d_model again")
def p3_slice(X, W_qkv):
    d = X.shape[2]
    Y = torch.einsum("btc,oc->bto", X, W_qkv)
    return Y[:, :, :d], Y[:, :, d : 2 * d], Y[:, :, d : d + d]


@wrong(
    "project_qkv",
    "einsum letters: W_qkv.view(3, d, d) is summed over its rows, so that each matrix is transposed",
)
def p3_letters(X, W_qkv):
    d = X.shape[-1]
    q, k, v = einsum("btc,pco->pbto", X, W_qkv.reshape(3, d, d))
    return q, k, v


@wrong(
    "project_qkv",
    "rearranged rightly to (B, 3, T, d_model), but unbound along the tokens (dim=2) instead of the three (dim=1): T pieces",
)
def p3_unbind(X, W_qkv):
    y = rearrange(X @ W_qkv.T, "b t (n d) -> b n t d", n=3)
    return y.unbind(2)


@wrong(
    "project_qkv",
    "works only when the batch is 1: the first sequence is taken and repeated for all",
)
def p3_first_sequence(X, W_qkv):
    q, k, v = (X[0] @ W_qkv.T).chunk(3, -1)
    return [m.expand(len(X), -1, -1) for m in (q, k, v)]


# ------------------------------------------------------------------ 4 count_parameters
@wrong("count_parameters", "two mistakes: W_o left out, and biases of q, k, v counted")
def c3_bias_no_o(d_model, n_heads, d_k):
    return 3 * (d_model * n_heads * d_k + n_heads * d_k)


@wrong("count_parameters", "adds where it should multiply: d_model + n_heads * d_k")
def c3_plus(d_model, n_heads, d_k):
    shapes = [(d_model, n_heads * d_k)] * 3 + [(n_heads * d_k, d_model)]
    return sum(sum(shape) for shape in shapes)


@wrong("count_parameters", "W_o is counted once for each head: n_heads times too often")
def c3_wo_per_head(d_model, n_heads, d_k):
    total = 0
    for _ in range(n_heads):
        total += 3 * d_model * d_k
        total += n_heads * d_k * d_model
    return total


@wrong("count_parameters", "a float, from a detour over d_model / d_model")
def c3_float(d_model, n_heads, d_k):
    return 4 * d_model**2 * (n_heads * d_k / d_model)


# ------------------------------------------------------------------ 5 split_heads
@wrong("split_heads", "two mistakes: cut as (d_k, n_heads), and not permuted but viewed into shape")
def h3_cut_and_view(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    return x.reshape(B, T, d_k, n_heads).transpose(2, 3).reshape(B, n_heads, T, d_k)


@wrong(
    "split_heads",
    "two mistakes: the heads are in reverse order and the axes not exchanged, (B, T, n_heads, d_k)",
)
def h3_reverse(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).flip(2)


@wrong(
    "split_heads", "the einops pattern has t and h exchanged in the result: (B, T, n_heads, d_k)"
)
def h3_pattern(x, n_heads):
    return rearrange(x, "b t (h d) -> b t h d", h=n_heads)


@wrong(
    "split_heads",
    "the pattern cuts the tokens instead of the features: (t h) (raises unless T is a multiple of n_heads)",
)
def h3_pattern_tokens(x, n_heads):
    return rearrange(x, "b (t h) d -> b h t d", h=n_heads)


@wrong(
    "split_heads",
    "loops over single numbers, with i * n_heads + j (wrapped round) where i * d_k + j belongs: right only where d_k = n_heads or with one head",
)
def h3_loops(x, n_heads):
    B, T, D = x.shape
    d_k = D // n_heads
    out = torch.zeros(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for head in range(n_heads):
        for feature in range(d_k):
            out[:, head, :, feature] = x[:, :, (head * n_heads + feature) % D]
    return out


@wrong("split_heads", "only the first sequence of the batch is split; the others repeat it")
def h3_first_only(x, n_heads):
    one = x[0].reshape(x.shape[1], n_heads, -1).transpose(0, 1)
    return one.expand(x.shape[0], *one.shape)


@wrong(
    "split_heads",
    "strided slices: head i gets every n_heads-th feature from i on, not d_k neighbours",
)
def h3_listcomp(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., h : h + n_heads * d_k : n_heads] for h in range(n_heads)], dim=1)


@wrong("split_heads", "forgets the batch: works on (T, d_model) only (raises for three axes)")
def h3_no_batch(x, n_heads):
    T, d_model = x.shape
    return x.view(T, n_heads, d_model // n_heads).permute(1, 0, 2)


@wrong(
    "split_heads",
    "swapaxes(0, 1) instead of (1, 2) after the right cut: batch and time change places",
)
def h3_swapaxes(x, n_heads):
    b, t, c = x.shape
    x = x.reshape((b, t, n_heads, c // n_heads))
    return x.swapaxes(0, 1)


# ------------------------------------------------------------------ 6 merge_heads
@wrong(
    "merge_heads",
    "two mistakes: heads and tokens not exchanged, and the result keeps a fourth axis of size 1",
    slips=("not_permuted_back", "an_axis_left"),
)
def m3_two(x):
    B, h, T, d = x.shape
    return x.reshape(B, T, 1, h * d)


@wrong(
    "merge_heads",
    "two mistakes: heads in reverse order, and laid side by side along the tokens",
    slips=("merged_in_reverse", "heads_below_each_other"),
)
def m3_reverse_tokens(x):
    return torch.cat(list(x.flip(1).unbind(1)), dim=1)


@wrong("merge_heads", "the einops pattern merges (t d) instead of (h d): (B, n_heads, T * d_k)")
def m3_pattern(x):
    return rearrange(x, "b h t d -> b h (t d)")


@wrong(
    "merge_heads",
    "the pattern has the letters t and h exchanged on the left: reads (B, n_heads, T, d_k) as (B, T, n_heads, d_k)",
)
def m3_letters(x):
    return rearrange(x, "b t h d -> b t (h d)")


@wrong("merge_heads", "permutes twice: back to (B, n_heads, T, d_k) before the reshape")
def m3_twice(x):
    B, h, T, d = x.shape
    return x.permute(0, 2, 1, 3).transpose(1, 2).reshape(B, T, -1)


@wrong("merge_heads", "a reduce that cats along dim=-2, the tokens")
def m3_reduce(x):
    return reduce(lambda a, b: torch.cat((a, b), dim=-2), (x[:, i] for i in range(x.size(1))))


@wrong(
    "merge_heads",
    "fills columns head * T + feature instead of head * d_k + feature: right only where T = d_k (else raises or overwrites)",
)
def m3_columns(x):
    B, h, T, d = x.shape
    out = torch.zeros(B, T, h * d, dtype=x.dtype, device=x.device)
    for i in range(h):
        for j in range(d):
            out[:, :, (i * T + j) % (h * d)] = x[:, i, :, j]
    return out


@wrong(
    "merge_heads",
    "a leftover of split_heads: the axes are exchanged, but heads and features are not merged, (B, T, n_heads, d_k)",
)
def m3_leftover(x):
    B, n_heads, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, n_heads, d_k)


# ------------------------------------------------------------------ 7 causal_mask
@wrong(
    "causal_mask",
    "two mistakes: the diagonal is blocked, and the dtype is int64",
    slips=("diagonal_blocked", "as_integers"),
)
def k3_int_diag(T):
    i = torch.arange(T)
    return (i[None, :] >= i[:, None]).long()


@wrong("causal_mask", "two mistakes: the past is blocked, together with the token itself")
def k3_past_and_self(T):
    return torch.ones(T, T).tril().bool()


@wrong("causal_mask", "diagonal=2: the next token is visible")
def k3_diagonal_2(T):
    return torch.ones((T, T), dtype=torch.bool).triu(diagonal=2)


@wrong("causal_mask", "a list of lists, not a tensor")
def k3_lists(T):
    return [[key > query for key in range(T)] for query in range(T)]


@wrong("causal_mask", "the mask is one too large, (T + 1, T + 1)")
def k3_larger(T):
    n = T + 1
    return torch.arange(n).unsqueeze(0) > torch.arange(n).unsqueeze(1)


# ------------------------------------------------------------------ 8 padding_mask
@wrong(
    "padding_mask",
    "two mistakes: polarity turned round, and off by one: True at the real tokens and the first padding key (position <= length)",
)
def d3_polarity_off(lengths, T):
    return torch.arange(T, device=lengths.device).le(lengths[:, None])[:, None, None]


@wrong(
    "padding_mask",
    "two mistakes: (B, 1, T) has an axis too few, and the first padding key stays open",
)
def d3_axis_off(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None] + 1).unsqueeze(1)


@wrong("padding_mask", "expanded to (B, 1, T, T)")
def d3_expanded(lengths, T):
    m = torch.arange(T, device=lengths.device) >= lengths[:, None]
    return repeat(m, "b k -> b 1 q k", q=T)


@wrong("padding_mask", "a loop that starts the padding at length - 1")
def d3_loop(lengths, T):
    rows = []
    for n in lengths:
        n = int(n)
        row = [k >= n - 1 for k in range(T)]
        rows.append(row)
    return torch.tensor(rows, device=lengths.device)[:, None, None, :]


@wrong("padding_mask", "stops at the first sequence: only lengths[0] counts, for all")
def d3_first_length(lengths, T):
    row = torch.arange(T, device=lengths.device) >= lengths[0]
    return row.expand(len(lengths), 1, 1, T)


# ------------------------------------------------------------------ 9 masked_softmax
@wrong("masked_softmax", "two mistakes: softmax over the queries, and a blocked row is left NaN")
def w3_dim_nan(scores, mask):
    return torch.where(
        mask, torch.tensor(-math.inf, dtype=scores.dtype, device=scores.device), scores
    ).softmax(-2)


@wrong(
    "masked_softmax",
    "two mistakes: mask turned round, and zeroed after the softmax without normalising again",
)
def w3_inverted_after(scores, mask):
    return scores.softmax(-1) * mask


@wrong(
    "masked_softmax",
    "two mistakes: fills with 0 instead of -inf, and zeroes blocked weights afterwards without normalising",
    slips=("zero_scores_zeroed",),
)
def w3_zero_fill_after(scores, mask):
    w = scores.masked_fill(mask, 0.0).softmax(-1)
    return w.masked_fill(mask, 0.0)


@wrong(
    "masked_softmax",
    "two mistakes: the fill is -100, far from enough beside large scores, and an empty row gets equal weights",
    slips=("added_1e4",),
)
def w3_minus_100(scores, mask):
    return F.softmax(torch.where(mask, scores - 100.0, scores), dim=-1)


@wrong(
    "masked_softmax", "right while no row is empty; an empty row falls back to an unmasked softmax"
)
def w3_empty_unmasked(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -math.inf).softmax(-1)


@wrong(
    "masked_softmax",
    "only a mask that is True everywhere is recognised as empty: single empty rows stay NaN",
)
def w3_whole_tensor(scores, mask):
    if mask.all():
        return torch.zeros_like(scores) * scores
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1)


@wrong(
    "masked_softmax",
    "an empty *column* is looked for (dim=-2): wrong rows or keys are zeroed, empty rows stay NaN",
)
def w3_columns(scores, mask):
    mask = mask.expand_as(scores)
    nobody = mask.all(dim=-2, keepdim=True)
    w = scores.masked_fill(mask & ~nobody, -math.inf).softmax(dim=-1)
    return w.masked_fill(nobody, 0.0)


@wrong(
    "masked_softmax",
    "loops over the first axis as if there were only two and no broadcasting: raises for batches and for masks of another shape",
)
def w3_loop(scores, mask):
    out = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        keep = ~mask[i]
        if keep.any():
            out[i, keep] = scores[i, keep].softmax(dim=0)
    return out


@wrong(
    "masked_softmax",
    "adds 1e-3 to the denominator, so that rows do not quite add up to one",
    slips=("coarse",),
)
def w3_epsilon(scores, mask):
    top = scores.masked_fill(mask, -torch.finfo(scores.dtype).max).amax(-1, keepdim=True)
    e = torch.where(mask, 0.0, (scores - top).masked_fill(mask, 0.0).exp()).to(scores.dtype)
    return e / (e.sum(-1, keepdim=True) + 1e-3)


@wrong(
    "masked_softmax",
    "-inf is added and the NaN of an empty row is replaced by where afterwards: its gradient is NaN",
)
def w3_where_after(scores, mask):
    bias = torch.zeros_like(scores).masked_fill(mask, -math.inf)
    w = (scores + bias).softmax(-1)
    return torch.where(mask.all(-1, keepdim=True), torch.zeros_like(w), w)


# ------------------------------------------------------------------ 10 sum_of_head_writes
@wrong(
    "sum_of_head_writes",
    "two mistakes: the slabs come in reverse order, and the sum is divided by the number of heads",
)
def o3_reverse_mean(heads, W_o):
    slabs = W_o.split(heads.shape[-1], dim=1)[::-1]
    return sum(h @ s.T for h, s in zip(heads.unbind(1), slabs)) / heads.shape[1]


@wrong(
    "sum_of_head_writes",
    "two mistakes: only the last head's write, and by a slab that starts at i instead of i * d_k",
)
def o3_last_offset(heads, W_o):
    d_k = heads.shape[-1]
    for i in range(heads.size(1)):
        write = heads[:, i] @ W_o[:, i : i + d_k].T
    return write


@wrong(
    "sum_of_head_writes",
    "einsum: h is missing in the second factor's place, so the same sum of slabs meets every head",
)
def o3_letter(heads, W_o):
    slabs = rearrange(W_o, "m (h d) -> h m d", h=heads.shape[1])
    return einsum("bhtd,gmd->btm", heads, slabs)


@wrong("sum_of_head_writes", "the pattern is (d h): each head gets every h-th column")
def o3_pattern(heads, W_o):
    return einsum(
        "b h t d, m h d -> b t m", heads, rearrange(W_o, "m (d h) -> m h d", h=heads.shape[1])
    )


@wrong("sum_of_head_writes", "a product of the writes instead of a sum (reduce with mul)")
def o3_mul(heads, W_o):
    writes = [head @ slab.T for head, slab in zip(heads.unbind(1), W_o.chunk(heads.shape[1], 1))]
    return reduce(torch.mul, writes)


# ------------------------------------------------------------------ 11 MultiHeadAttention
@wrong(
    "MultiHeadAttention",
    "two mistakes: no scaling, and a wholly blocked row is NaN",
    slips=("no_scale", "blocked_rows_left"),
)
class M3NoScaleNaN(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        q, k, v = [
            rearrange(w(x), "b t (h d) -> b h t d", h=self.n_heads)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        scores = einsum("bhid,bhjd->bhij", q, k)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        out = einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
        return self.w_o(rearrange(out, "b h t d -> b t (h d)"))


@wrong(
    "MultiHeadAttention", "two mistakes: the mask is turned round, and the heads are cut as (d h)"
)
class M3InvertedInterleaved(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q = rearrange(self.w_q(x), "b t (d h) -> b h t d", h=self.n_heads)
        k = rearrange(self.w_k(x), "b t (d h) -> b h t d", h=self.n_heads)
        v = rearrange(self.w_v(x), "b t (d h) -> b h t d", h=self.n_heads)
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask, -math.inf)
        y = s.softmax(-1).nan_to_num(0.0) @ v
        return self.w_o(rearrange(y, "b h t d -> b t (h d)"))


@wrong(
    "MultiHeadAttention",
    "heads cut as (d h) and merged as (h d): every head works on every h-th feature, and w_o meets them in another order",
)
class M3PatternMismatch(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None):
        q, k, v = (
            rearrange(f(x), "b t (d h) -> b h t d", h=self.h)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        empty = mask.all(-1, True)
        w = s.masked_fill(mask & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)
        return self.w_o(rearrange(w @ v, "b h t d -> b t (h d)"))


@wrong(
    "MultiHeadAttention",
    "a loop over heads with a slice that forgets the factor d_k for the keys: q[i * d_k:…] meets k[i:…]",
    slips=("split_overlapping_k",),
)
class M3LoopSlip(nn.Module):
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
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if mask is None:
            mask = torch.zeros(1, 1, T, T, dtype=torch.bool, device=x.device)
        mask = mask.expand(B, self.n_heads, T, T)
        contexts = []
        for i in range(self.n_heads):
            qi = q[..., i * self.d_k : (i + 1) * self.d_k]
            ki = k[..., i : i + self.d_k]
            vi = v[..., i * self.d_k : (i + 1) * self.d_k]
            s = qi @ ki.transpose(1, 2) / math.sqrt(self.d_k)
            w = s.masked_fill(mask[:, i], -math.inf).softmax(-1).nan_to_num(0.0)
            contexts.append(w @ vi)
        return self.w_o(torch.cat(contexts, dim=-1))


@wrong("MultiHeadAttention", "softmax over the heads (dim=1)", slips=("one_place",))
class M3SoftmaxHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        d_k = D // self.n_heads
        q, k, v = (
            w(x).view(B, T, self.n_heads, d_k).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(d_k)
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        w = s.softmax(dim=1).nan_to_num(0.0)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, D))


@wrong(
    "MultiHeadAttention",
    "two mistakes: values are not projected (w_v unused), and the weights of blocked keys are zeroed after the softmax only",
    slips=("made_by_qkx", "zeroed_after"),
)
class M3NoValuesLateMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def _heads(self, y):
        return y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self._heads(self.w_q(x)), self._heads(self.w_k(x)), self._heads(x)
        w = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        if mask is not None:
            w = w.masked_fill(mask, 0.0)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@wrong(
    "MultiHeadAttention",
    "the layers are kept in a plain list and only aliased in forward: no w_q, w_k, w_v, w_o are there",
)
class M3PlainList(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.layers = [nn.Linear(d_model, d_model) for _ in range(4)]

    def forward(self, x, mask=None):
        w_q, w_k, w_v, w_o = self.layers
        q, k, v = (w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = s if mask is None else s.masked_fill(mask, -math.inf)
        return w_o((s.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2))


@wrong(
    "MultiHeadAttention",
    "a wholly blocked row is handled only after w_o: where head 0 is blocked the output row is zero, without w_o's bias, and blocked rows of the other heads keep unmasked weights",
)
class M3ZeroedOutput(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (
            f(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is None:
            return self.w_o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
        m = mask.expand(B, self.n_heads, T, T)
        dead = m.all(-1, keepdim=True)
        w = s.masked_fill(m & ~dead, -math.inf).softmax(-1)
        y = self.w_o((w @ v).transpose(1, 2).reshape(B, T, D))
        return y.masked_fill(dead[:, 0], 0.0)


# ------------------------------------------------------------------ 12 next_token_loss
@wrong("next_token_loss", "two mistakes: no shift, and a sum instead of a mean")
def l3_noshift_sum(logits, tokens):
    logp = logits.log_softmax(-1)
    return -logp.gather(-1, tokens.unsqueeze(-1)).sum()


@wrong("next_token_loss", "two mistakes: shifted by two, and softmax before cross_entropy")
def l3_two_and_softmax(logits, tokens):
    p, a = logits[:, :-2].softmax(-1), tokens[:, 2:]
    if a.numel() == 0:
        return logits.sum() * 0
    return F.cross_entropy(p.flatten(0, 1), a.flatten())


@wrong("next_token_loss", "two mistakes: the softmax runs over time (dim=1), and the sign is lost")
def l3_dim_sign(logits, tokens):
    logp = F.log_softmax(logits[:, :-1], dim=1)
    return torch.take_along_dim(logp, tokens[:, 1:, None], dim=-1).mean()


@wrong("next_token_loss", "the loop divides by T instead of T - 1")
def l3_loop_t(logits, tokens):
    B, T, V = logits.shape
    loss = 0
    for t in range(T - 1):
        loss = loss + F.cross_entropy(logits[:, t], tokens[:, t + 1])
    return loss / T


@wrong("next_token_loss", "the loop over time ends one too early: the last prediction is left out")
def l3_loop_early(logits, tokens):
    losses = [F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(logits.shape[1] - 2)]
    return torch.stack(losses).mean() if losses else logits.new_zeros(())


@wrong(
    "next_token_loss",
    "the rows are flattened time first, the answers batch first: right only for a batch of one",
)
def l3_flatten_order(logits, tokens):
    p = rearrange(logits[:, :-1], "b t v -> (t b) v")
    a = rearrange(tokens[:, 1:], "b t -> (b t)")
    return F.cross_entropy(p, a)


@wrong(
    "next_token_loss",
    "reshape(-1, V, T) instead of a transpose to bring the classes into the second axis: numbers are mixed",
)
def l3_reshape(logits, tokens):
    B, T, V = logits.shape
    p = logits[:, :-1].reshape(B, V, T - 1)
    return F.cross_entropy(p, tokens[:, 1:])


@wrong("next_token_loss", "mean over all V classes of the one-hot product: V times too small")
def l3_one_hot(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logp.dtype)
    return -(hot * logp).mean()


@wrong(
    "next_token_loss",
    "mean squared error between probabilities and one-hot answers, not cross-entropy",
)
def l3_mse(logits, tokens):
    hot = F.one_hot(tokens[:, 1:], logits.size(-1)).to(logits.dtype)
    return F.mse_loss(logits[:, :-1].softmax(-1), hot)


@wrong("next_token_loss", "takes only the first sequence of the batch")
def l3_first_sequence(logits, tokens):
    return F.cross_entropy(logits[0, :-1], tokens[0, 1:])


# ------------------------------------------------------------------ 13 previous_token_score
@wrong("previous_token_score", "two mistakes: the token after, not before, and divided by T")
def v3_next_t(weights):
    return torch.stack([w.diagonal(1).sum() / w.shape[-1] for w in weights])


@wrong("previous_token_score", "two mistakes: two tokens back, and a sum (0 for T = 2)")
def v3_two_back(weights):
    return weights.diagonal(-2, 1, 2).sum(-1)


@wrong(
    "previous_token_score",
    "tril(-1) keeps all earlier tokens: mean weight given to any of the past",
)
def v3_tril(weights):
    T = weights.shape[-1]
    return weights.tril(-1).sum((-2, -1)) / (T - 1)


@wrong(
    "previous_token_score",
    "einsum 'hii->h' after cutting both the first row and the first column: the tokens themselves, without token 0",
)
def v3_einsum(weights):
    inner = weights[:, 1:, 1:]
    return einsum("hii->h", inner) / inner.shape[-1]


@wrong("previous_token_score", "maximum instead of the mean")
def v3_max(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).amax(dim=-1)


# ------------------------------------------------------------------ 14 count_flops
@wrong("count_flops", "two mistakes: a multiply-add as 1 in the products, and three projections")
def f3_two(T, d_model, n_heads):
    return 3 * 2 * T * d_model * d_model + 2 * T * T * d_model


@wrong(
    "count_flops",
    "two mistakes: T is not squared, and n_heads remains in the products",
    slips=("one_place",),
)
def f3_t(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * n_heads * T * d_model


@wrong("count_flops", "the projections without T: parameters, not operations")
def f3_parameters(T, d_model, n_heads):
    projections = 2 * 4 * d_model * d_model
    products = 2 * 2 * T**2 * d_model
    return projections + products


@wrong(
    "count_flops",
    "projections of d_model by d_k for one head only: n_heads forgotten in all of them",
)
def f3_d_k(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * 2 * T * d_model * d_k
    return proj + n_heads * (2 * T * d_k * T) * 2


# ------------------------------------------------------------------ 15 blockwise_attention
@wrong("blockwise_attention", "two mistakes: no scaling, and the final division is missing")
def b3_two(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T
        new = torch.maximum(m, s.amax(1, keepdim=True))
        mix, m = mix * (m - new).exp() + (s - new).exp() @ V[i : i + block], new
    return mix


@wrong(
    "blockwise_attention",
    "two mistakes: mix is not shrunk when the maximum grows, and the rest of a division by block is dropped",
)
def b3_two_more(Q, K, V, block):
    n = max(len(K) // block, 1)
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for b in range(n):
        rows = slice(b * block, (b + 1) * block)
        s = Q @ K[rows].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e = (s - new).exp()
        total = total * (m - new).exp() + e.sum(1, keepdim=True)
        mix = mix + e @ V[rows]
        m = new
    return mix / total


@wrong(
    "blockwise_attention",
    "two mistakes: no running maximum at all (overflow), and the values are always the first rows of V, not those of the block",
)
def b3_rows(Q, K, V, block):
    num, den = 0.0, 0.0
    for i in range(0, len(K), block):
        e = (Q @ K[i : i + block].T / Q.shape[1] ** 0.5).exp()
        num = num + e @ V[: e.shape[1]]
        den = den + e.sum(-1, keepdim=True)
    return num / den


@wrong(
    "blockwise_attention",
    "blocks start at every key (step 1), so that keys are counted several times: right only for block 1 (or a single key)",
    slips=("overlapping_all",),
)
def b3_step(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for i in range(len(K)):
        s = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        c, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * c + e.sum(1, keepdim=True), mix * c + e @ V[i : i + block], new
    return mix / total


@wrong(
    "blockwise_attention",
    "the running maximum is the last block's, not the larger of both: overflows or underflows once an earlier block was larger",
    slips=("smallest",),
)
def b3_last_maximum(Q, K, V, block):
    m = None
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[-1])
        new = s.max(1, keepdim=True).values
        e = torch.exp(s - new)
        if m is None:
            total, mix = e.sum(1, keepdim=True), e @ v
        else:
            c = torch.exp(m - new)
            total, mix = total * c + e.sum(1, keepdim=True), mix * c + e @ v
        m = new
    return mix / total


@wrong(
    "blockwise_attention",
    "divides by the running total in every step and not only at the end",
    slips=("divided_inside",),
)
def b3_divides_each(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = (mix * shrink + e @ V[i : i + block]) / total
        m = larger
    return mix


@wrong("blockwise_attention", "the first block is skipped: range starts at block")
def b3_first_skipped(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(block, len(K), block):
        s = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, s.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (s - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[i : i + block]
        m = larger
    return mix / total


@wrong(
    "blockwise_attention",
    "a fold over blocks that adds the logsumexps with max instead of logaddexp",
)
def b3_fold(Q, K, V, block):
    def part(i):
        s = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        return s.logsumexp(1, keepdim=True), s.softmax(1) @ V[i : i + block]

    def join(a, b):
        z = torch.maximum(a[0], b[0])
        return z, a[1] * (a[0] - z).exp() + b[1] * (b[0] - z).exp()

    return functools.reduce(join, map(part, range(0, len(K), block)))[1]


# ------------------------------------------------------------------ 16 rotate
@wrong("rotate", "two mistakes: turns backwards, and the exponent lacks the factor 2")
def r3_two(x, positions):
    d = x.shape[-1]
    speeds = 10_000.0 ** (-torch.arange(d // 2, device=x.device, dtype=torch.float64) / d)
    ang = einsum("t,i->ti", positions.double(), speeds)
    a, b = x.chunk(2, -1)
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    return torch.cat((a * c + b * s, b * c - a * s), -1)


@wrong("rotate", "two mistakes: neighbours are paired, and positions count from 1")
def r3_pairs_one(x, positions):
    d = x.shape[-1]
    f = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    ang = (positions + 1)[:, None] * f
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = rearrange(x, "... (i two) -> two ... i", two=2)
    return rearrange([a * c - b * s, a * s + b * c], "two ... i -> ... (i two)")


@wrong("rotate", "two mistakes: base 1,000, and the halves change places in the result")
def r3_base_halves(x, positions):
    h = x.shape[-1] // 2
    ang = positions[:, None] * 1000.0 ** (
        -torch.arange(h, device=x.device, dtype=torch.float64) / h
    )
    a, b = x[..., :h], x[..., h:]
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    return torch.cat((a * s + b * c, a * c - b * s), -1)


@wrong(
    "rotate",
    "adds sines and cosines to x like a position encoding: no rotation (leftover of the section before)",
)
def r3_adds(x, positions):
    h = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (
        -torch.arange(h, device=x.device, dtype=torch.float64) / h
    )
    return x + torch.cat((ang.sin(), ang.cos()), -1).to(x.dtype)


@wrong(
    "rotate", "integer division: 2 * i // d_k is 0 for all i, so every pair turns at the same speed"
)
def r3_floor(x, positions):
    d = x.shape[-1]
    i = torch.arange(d // 2, device=x.device)
    ang = positions[:, None] * 10_000.0 ** (-(2 * i // d).double())
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.tensor_split(2, dim=-1)
    return torch.cat((a * c - b * s, a * s + b * c), -1)


@wrong(
    "rotate",
    "a loop that pairs i with d_k - 1 - i instead of i + d_k/2 (right only for d_k = 2)",
    slips=("from_both_ends",),
)
def r3_mirror(x, positions):
    d = x.shape[-1]
    out = [None] * d
    for i in range(d // 2):
        ang = positions.double() * 10_000.0 ** (-2 * i / d)
        c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
        a, b = x[..., i], x[..., d - 1 - i]
        out[i] = a * c - b * s
        out[d - 1 - i] = a * s + b * c
    return torch.stack(out, dim=-1)


@wrong(
    "rotate", "complex numbers from the halves, rightly, but times exp(-i angle): turns backwards"
)
def r3_conjugate(x, positions):
    h = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (
        -torch.arange(h, device=x.device, dtype=torch.float64) / h
    )
    z = torch.complex(x[..., :h].double(), x[..., h:].double()) * torch.exp(-1j * ang)
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


@wrong("rotate", "degrees: the angle is turned by deg2rad although it is already in radians")
def r3_degrees(x, positions):
    h = x.shape[-1] // 2
    ang = torch.deg2rad(
        positions[:, None]
        * 10_000.0 ** (-torch.arange(h, device=x.device, dtype=torch.float64) / h)
    )
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


# ------------------------------------------------------------------ 17 cached_attention
@wrong("cached_attention", "two mistakes: no scaling, and the triangle hangs at the top left")
def t3_scale_top_left(q, k, v, cache):
    if cache is not None:
        k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v)))
    s = einsum("bhqd,bhkd->bhqk", q, k)
    i, j = torch.arange(s.shape[2], device=q.device), torch.arange(s.shape[3], device=q.device)
    w = s.masked_fill(j > i[:, None], -math.inf).softmax(-1)
    return einsum("bhqk,bhkd->bhqd", w, v), (k, v)


@wrong("cached_attention", "two mistakes: no mask, and the cache given back is (v, k)")
def t3_nomask_order(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    return F.scaled_dot_product_attention(q, k, v), (v, k)


@wrong(
    "cached_attention",
    "two mistakes: the old cache is given back, not the longer one, and softmax runs over the queries",
)
def t3_old_cache_dim(q, k, v, cache):
    old = cache
    if cache is not None:
        k, v = torch.cat([cache[0], k], -2), torch.cat([cache[1], v], -2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    w = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, -math.inf).softmax(-2).nan_to_num(0.0)
    return w @ v, old if old is not None else (k, v)


@wrong(
    "cached_attention",
    "the offset is T_new instead of T_old: right only when as many are new as are cached",
    slips=("from_the_other_end",),
)
def t3_offset(q, k, v, cache):
    n = q.shape[2]
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    offset = 0 if cache is None else n
    query = torch.arange(n, device=q.device)[:, None] + offset
    blocked = torch.arange(k.shape[2], device=q.device) > query
    w = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong(
    "cached_attention",
    "the cached values are used twice: k is cat from the cache's values (index 1 for both)",
)
def t3_index(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[1], k), dim=2)
        v = torch.cat((cache[1], v), dim=2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (k, v)


@wrong(
    "cached_attention",
    "loops token by token, but appends each token's key after its query has looked: a token does not see itself (and the very first one sees nothing and gets zeros)",
)
def t3_append_late(q, k, v, cache):
    keys = k[:, :, :0] if cache is None else cache[0]
    values = v[:, :, :0] if cache is None else cache[1]
    out = []
    for t in range(q.shape[2]):
        s = q[:, :, t : t + 1] @ keys.mT / math.sqrt(q.shape[-1])
        out.append(s.softmax(-1) @ values)
        keys = torch.cat((keys, k[:, :, t : t + 1]), 2)
        values = torch.cat((values, v[:, :, t : t + 1]), 2)
    return torch.cat(out, 2), (keys, values)


@wrong(
    "cached_attention",
    "the mask blocks the cache: ones are padded on the left of the triangle instead of zeros",
)
def t3_pad_ones(q, k, v, cache):
    n = q.shape[2]
    blocked = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    if cache is not None:
        blocked = F.pad(blocked, (cache[0].shape[2], 0), value=True)
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    w = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong(
    "cached_attention",
    "True means visible to SDPA: the mask of blocked keys is handed over as it is",
)
def t3_sdpa_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


# ------------------------------------------------------------------ 18 grouped_scores
@wrong("grouped_scores", "two mistakes: repeat instead of repeat_interleave, and no scaling")
def g3_two(q, k):
    return q @ repeat(k, "b g t d -> b (n g) t d", n=q.shape[1] // k.shape[1]).mT


@wrong("grouped_scores", "two mistakes: keys by queries, (B, h, T_k, T_q), and divided by d_k")
def g3_two_more(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return einsum("bhqd,bhkd->bhkq", q, k) / q.shape[-1]


@wrong(
    "grouped_scores", "the pattern cuts the query heads as (n g) instead of (g n): strided groups"
)
def g3_pattern(q, k):
    g = k.shape[1]
    s = einsum("bngqd,bgkd->bngqk", rearrange(q, "b (n g) t d -> b n g t d", g=g), k)
    return rearrange(s, "b n g q k -> b (n g) q k") / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "cut rightly, put together as (n g): the query heads of the result are in another order",
    slips=("groups_put_back_wrongly",),
)
def g3_order(q, k):
    qg = rearrange(q, "b (g n) t d -> b g n t d", g=k.shape[1])
    s = einsum("bgnqd,bgkd->bgnqk", qg, k) * q.shape[-1] ** -0.5
    return rearrange(s, "b g n q k -> b (n g) q k")


@wrong("grouped_scores", "one letter: the key heads get a letter of their own and are summed over")
def g3_letter(q, k):
    return einsum("bhqd,bgkd->bhqk", q, k) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "loops over key heads and takes query heads g to g + n instead of g * n to (g + 1) * n",
)
def g3_loop(q, k):
    n = q.shape[1] // k.shape[1]
    parts = []
    for g in range(k.shape[1]):
        parts.append(q[:, g : g + n] @ k[:, g : g + 1].mT)
    return torch.cat(parts, dim=1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "the softmax is added: weights, not scores")
def g3_softmax(q, k):
    index = torch.arange(q.shape[1], device=q.device) // (q.shape[1] // k.shape[1])
    return (q @ k[:, index].mT / q.shape[-1] ** 0.5).softmax(-1)


@wrong(
    "grouped_scores",
    "modulus by the size of a group: head i looks with key head i % (h / h_kv), which may not even exist (raises)",
)
def g3_modulus(q, k):
    n = q.shape[1] // k.shape[1]
    index = torch.tensor([i % n for i in range(q.shape[1])], device=q.device)
    return q @ k[:, index].mT / math.sqrt(q.shape[-1])


# ------------------------------------------------------------------ 19 cached_mask
@wrong(
    "cached_mask",
    "two mistakes: the token itself is blocked, and the window is one too wide",
    slips=("one_too_early",),
)
def n3_two(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_new + n_cached)
    blocked = k >= q
    if window is not None:
        blocked |= q - k > window
    return blocked


@wrong("cached_mask", "two mistakes: queries counted from 0, and True = visible")
def n3_two_more(n_new, n_cached, window):
    rel = torch.arange(n_new)[:, None] - torch.arange(n_cached + n_new)[None]
    ok = rel >= 0
    return ok if window is None else ok & (rel < window)


@wrong(
    "cached_mask",
    "two mistakes: the future is open, and the window one too narrow",
    slips=("nothing", "one_too_narrow"),
)
def n3_future_narrow(n_new, n_cached, window):
    w = window or n_new + n_cached + 1
    rows = [[(n_cached + i) - j >= w - 1 for j in range(n_cached + n_new)] for i in range(n_new)]
    return torch.tensor(rows).view(n_new, n_cached + n_new)


@wrong("cached_mask", "the last rows of a square mask are right, but the first rows are taken")
def n3_first_rows(n_new, n_cached, window):
    n = n_new + n_cached
    i = torch.arange(n)
    d = i[:, None] - i
    m = d < 0
    if window is not None:
        m = m | (d >= window)
    return m[:n_new]


@wrong("cached_mask", "query positions start at n_cached + 1: the next token is visible")
def n3_off_by_one(n_new, n_cached, window):
    q = torch.arange(1, n_new + 1).add(n_cached).view(-1, 1)
    k = torch.arange(n_cached + n_new).view(1, -1)
    return (k > q) if window is None else (k > q).logical_or(q - k >= window)


@wrong(
    "cached_mask",
    "distances taken as key - query in the window: never >= window in the past, so nothing of the past is blocked",
)
def n3_sign(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)
    m = k > q
    if window is not None:
        m = m | (k - q >= window)
    return m


@wrong(
    "cached_mask",
    "a loop that blocks from 0 up to window instead of up to query - window: the wrong end",
    slips=("front_blocked",),
)
def n3_loop(n_new, n_cached, window):
    m = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        here = n_cached + i
        m[i, here + 1 :] = True
        if window is not None:
            m[i, : max(0, min(window, here))] = True
    return m


@wrong("cached_mask", "window None is treated as a window of 1: only the token itself is open")
def n3_none_is_one(n_new, n_cached, window):
    window = window or 1
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return (d < 0) | (d >= window)


@wrong("cached_mask", "floats: zeros and ones")
def n3_float(n_new, n_cached, window):
    m = torch.ones(n_new, n_cached + n_new).triu(n_cached + 1)
    if window is not None:
        m = m + torch.ones(n_new, n_cached + n_new).tril(n_cached - window)
    return m


# ------------------------------------------------------------------ silence
@wrong(
    "silence", "two mistakes: the caller's tensor is changed, and it is sequence i that is silenced"
)
def q3_two(heads, i):
    heads[i % heads.shape[0]] = 0
    return heads


@wrong("silence", "head i - 1 is silenced: counts heads from 1")
def q3_from_one(heads, i):
    quiet = heads.clone()
    quiet[:, i - 1] = 0
    return quiet


@wrong("silence", "all heads from i on are silenced (a slice without an end)")
def q3_slice(heads, i):
    return torch.cat((heads[:, :i], torch.zeros_like(heads[:, i:])), dim=1)


@wrong(
    "silence",
    "gives the silenced head alone, (B, T, d_k): indexing after clone() instead of assigning",
)
def q3_indexed(heads, i):
    return heads.clone()[:, i].zero_()


@wrong(
    "silence",
    "the mask of the heads is laid along the last axis: feature i of all heads is zeroed (raises where d_k is not h)",
)
def q3_axis(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i
    return heads * keep


# ------------------------------------------------------------------ solved
@wrong("solved", "two mistakes: a tie counts, and right and wrong are exchanged")
def z3_two(weights, query, right, wrong):
    return weights[:, query, right] <= weights[:, query, wrong]


@wrong(
    "solved",
    "two mistakes: rows and columns exchanged, and int64 instead of bool",
    slips=("column", "as_integers"),
)
def z3_two_more(weights, query, right, wrong):
    return (weights[:, right, query] > weights[:, wrong, query]).long()


@wrong(
    "solved",
    "compares the whole rows of the right and wrong tokens: (n_heads, T)",
    slips=("rows_compared",),
)
def z3_rows(weights, query, right, wrong):
    return weights[:, right] > weights[:, wrong]


@wrong("solved", "the query is left out: the two columns are summed over all queries")
def z3_all_queries(weights, query, right, wrong):
    total = weights.sum(dim=1)
    return total[:, right] > total[:, wrong]


@wrong("solved", "more than half, not more than the other")
def z3_half(weights, query, right, wrong):
    a, b = weights[:, query, right], weights[:, query, wrong]
    return a > 0.5


# ------------------------------------------------------------------ more with two slips
@wrong(
    "split_heads",
    "two mistakes: views straight to (B, n_heads, T, d_k), and then exchanges heads and tokens: (B, T, n_heads, d_k)",
    slips=("one_place",),
)
def h3_view_then_permute(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, T, d_model // n_heads).transpose(1, 2)


@wrong("merge_heads", "two mistakes: heads in reverse order, and heads interleaved with features")
def m3_reverse_interleaved(x):
    return rearrange(x.flip(1), "b h t d -> b t (d h)")


@wrong("masked_softmax", "two mistakes: softmax over the queries, and the mask turned round")
def w3_dim_inverted(scores, mask):
    visible = mask
    return scores.masked_fill(~visible, -math.inf).softmax(-2).nan_to_num(0.0)


@wrong(
    "masked_softmax",
    "two mistakes: blocked keys are filled with 0, and an empty row is found by any(): all rows with a blocked key are zeros",
)
def w3_zero_any(scores, mask):
    some = mask.any(-1, keepdim=True)
    return scores.masked_fill(mask, 0.0).softmax(-1).masked_fill(some, 0.0)


@wrong(
    "attention",
    "two mistakes: the root of d_v instead of d_k, and the weights given are the scores",
)
def a3_dv_scores(Q, K, V):
    s = einsum("...id,...jd->...ij", Q, K) / V.shape[-1] ** 0.5
    return s.softmax(-1) @ V, s


@wrong(
    "MultiHeadAttention",
    "two mistakes: scaled by the root of d_model, and merged without transposing back",
)
class M3ScaleMerge(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / D**0.5
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        return self.w_o((s.softmax(-1).nan_to_num(0.0) @ v).reshape(B, T, D))


@wrong("MultiHeadAttention", "two mistakes: w_o is not applied, and the mask is ignored")
class M3NoOutNoMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            rearrange(w(x), "b t (h d) -> b h t d", h=self.n_heads)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        return rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)")


@wrong("next_token_loss", "two mistakes: shifted the wrong way, and summed")
def l3_backwards_sum(logits, tokens):
    return F.cross_entropy(logits[:, 1:].transpose(1, 2), tokens[:, :-1], reduction="sum")


@wrong("next_token_loss", "two mistakes: token 0 is ignored, and a label smoothing of 0.1")
def l3_ignore_smooth(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], ignore_index=0, label_smoothing=0.1)


@wrong(
    "grouped_scores",
    "two mistakes: strided groups (head i with key head i % h_kv), and a softmax on top",
)
def g3_strided_softmax(q, k):
    k = torch.cat([k] * (q.shape[1] // k.shape[1]), dim=1)
    return F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)


@wrong(
    "cached_attention",
    "two mistakes: the new keys and values are put before the old ones, and nothing is masked",
)
def t3_first_nomask(q, k, v, cache):
    for_cache = (
        (k, v) if cache is None else (torch.cat((k, cache[0]), 2), torch.cat((v, cache[1]), 2))
    )
    return F.scaled_dot_product_attention(q, *for_cache), for_cache


@wrong(
    "cached_mask",
    "two mistakes: & instead of | joins future and window, and the mask is transposed",
)
def n3_and_transposed(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)
    k = torch.arange(n_cached + n_new)[:, None]
    m = k > q
    if window is not None:
        m = m & (q - k >= window)
    return m
