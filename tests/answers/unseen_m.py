"""Engineers who do the exercises quickly, from memory.

They bring the conventions of other libraries, like `einsum` and `einops`, vectorise early, and
leave behind what copying, pasting and renaming leave, and cases at the edge.
"""

import math
import einops
import torch
import torch.nn as nn
import torch.nn.functional as F
from answers import right, wrong


# --- 1 attention_scores ---


@wrong("attention_scores", "divides by d_k instead of its root")
def scores_over_d_k(Q, K):
    return torch.einsum("...qd,...kd->...qk", Q, K) / Q.size(-1)


@wrong("attention_scores", "reads d_k from axis 1 of K, which is T_k when there is a batch axis")
def scores_size_one(Q, K):
    d_k = K.size(1)
    return Q @ K.transpose(-2, -1) / math.sqrt(d_k)


@wrong("attention_scores", "uses bmm, which crashes on anything but three axes")
def scores_bmm(Q, K):
    scale = 1.0 / math.sqrt(Q.shape[-1])
    return torch.bmm(Q, K.transpose(1, 2)) * scale


@wrong("attention_scores", "gives (T_k, T_q) and multiplies by sqrt(d_k)")
def scores_einsum_flipped(Q, K):
    scale = Q.shape[-1] ** 0.5
    return torch.einsum("...id,...jd->...ji", Q, K) * scale


# --- 2 attention ---


@wrong("attention", "returns weights and output in the wrong order")
def attention_swapped(Q, K, V):
    attn = F.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=-1)
    return attn, attn @ V


@wrong("attention", "hands sqrt(d_k) as scale to SDPA, so the output multiplies; weights are right")
def attention_sdpa_scale(Q, K, V):
    scale = math.sqrt(Q.size(-1))
    out = F.scaled_dot_product_attention(Q, K, V, scale=scale)
    weights = torch.softmax(Q @ K.transpose(-2, -1) / scale, dim=-1)
    return out, weights


@wrong("attention", "the output is causal (is_causal=True), the weights are not")
def attention_sdpa_causal(Q, K, V):
    weights = torch.softmax(Q @ K.transpose(-2, -1) * Q.size(-1) ** -0.5, dim=-1)
    out = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
    return out, weights


@wrong("attention", "returns the scores before the softmax as weights")
def attention_returns_scores(Q, K, V):
    attn = torch.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1])
    probs = attn.softmax(dim=-1)
    out = torch.einsum("...qk,...kd->...qd", probs, V)
    return out, attn


@wrong("attention", "takes d_k from V, which has d_v")
def attention_dv_scale(Q, K, V):
    d_k = V.shape[-1]
    weights = F.softmax(Q @ K.mT / d_k**0.5, dim=-1)
    return weights @ V, weights


@wrong("attention", "own softmax without subtracting the maximum overflows at large scores")
def attention_own_softmax(Q, K, V):
    e = torch.exp(Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]))
    weights = e / e.sum(-1, keepdim=True)
    return weights @ V, weights


@wrong("attention", "softmax in float32 and not back, so weights @ V crashes in other dtypes")
def attention_float_softmax(Q, K, V):
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(Q.size(-1))
    weights = F.softmax(scores, dim=-1, dtype=torch.float32)
    return torch.matmul(weights, V), weights


@wrong("attention", "leaves dropout with p=0.1 on the weights")
def attention_with_dropout(Q, K, V):
    d_k = Q.size(-1)
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(d_k)
    p_attn = F.dropout(scores.softmax(dim=-1), p=0.1)
    return torch.matmul(p_attn, V), p_attn


@wrong("attention", "softmax over the queries and no scale")
def attention_query_softmax(Q, K, V):
    weights = F.softmax(torch.einsum("...td,...sd->...ts", Q, K), dim=-2)
    return torch.einsum("...ts,...sd->...td", weights, V), weights


@wrong("attention", "K in place of V and no scale")
def attention_k_for_v(Q, K, V):
    weights = torch.softmax(Q @ K.mT, dim=-1)
    out = weights @ K
    return out, weights


# --- 3 project_qkv ---


@wrong("project_qkv", "takes the rows as interleaved q, k, v triples instead of three blocks")
def qkv_interleaved(X, W_qkv):
    B, T, d = X.shape
    qkv = F.linear(X, W_qkv).reshape(B, T, d, 3)
    return qkv.unbind(-1)


@wrong("project_qkv", "K and V are swapped by the unpacking order")
def qkv_unpacked_qvk(X, W_qkv):
    q, v, k = (X @ W_qkv.T).chunk(3, dim=-1)
    return q, k, v


@wrong("project_qkv", "slices the key block again for V")
def qkv_key_block_twice(X, W_qkv):
    d = X.shape[-1]
    W_q = W_qkv[:d]
    W_k = W_qkv[d : 2 * d]
    W_v = W_qkv[d : 2 * d]
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@wrong("project_qkv", "multiplies by the blocks without transposing them")
def qkv_no_transpose(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3, dim=0)
    return X @ W_q, X @ W_k, X @ W_v


# --- 4 count_parameters ---


@wrong("count_parameters", "assumes n_heads * d_k equals d_model")
def params_four_d_squared(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "counts W_o as square d_model by d_model")
def params_square_o(d_model, n_heads, d_k):
    d_inner = n_heads * d_k
    qkv = 3 * d_model * d_inner
    out = d_model * d_model
    return qkv + out


@wrong("count_parameters", "counts the bias of W_o, which nn.Linear has by default")
def params_by_linear(d_model, n_heads, d_k):
    inner = n_heads * d_k
    mods = [nn.Linear(d_model, inner, bias=False, device="meta") for _ in range(3)]
    mods.append(nn.Linear(inner, d_model, device="meta"))
    return sum(p.numel() for m in mods for p in m.parameters())


@wrong("count_parameters", "W_o is one d_k by d_k matrix per head")
def params_o_per_head(d_model, n_heads, d_k):
    per_head = 3 * d_model * d_k + d_k * d_k
    return n_heads * per_head


# --- 5 split_heads ---


@wrong("split_heads", "reshapes straight to (B, h, T, d_k) without a transpose")
def split_straight(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, T, d_model // n_heads)


@wrong("split_heads", "takes the head as the fast index of the last axis")
def split_heads_fast(x, n_heads):
    return einops.rearrange(x, "b t (d h) -> b h t d", h=n_heads)


@wrong("split_heads", "puts the head axis before the batch axis")
def split_head_first(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1))


@wrong("split_heads", "split() takes a chunk size, so there are d_k heads of width n_heads")
def split_chunk_size(x, n_heads):
    return torch.stack(x.split(n_heads, dim=-1), dim=1)


# --- 6 merge_heads ---


@wrong("merge_heads", "view() after transpose crashes without contiguous()")
def merge_view(x):
    B, h, T, d_k = x.shape
    return x.transpose(1, 2).view(B, T, h * d_k)


@wrong("merge_heads", "the transpose is not assigned, so the reshape mixes heads and time")
def merge_not_assigned(x):
    B, h, T, d_k = x.shape
    x.transpose(1, 2).contiguous()
    return x.reshape(B, T, h * d_k)


@wrong("merge_heads", "interleaves the heads instead of laying them side by side")
def merge_interleaved(x):
    return einops.rearrange(x, "b h t d -> b t (d h)")


@wrong("merge_heads", "flattens from axis 1, so time is merged as well")
def merge_flatten_one(x):
    return x.transpose(1, 2).flatten(1)


# --- 7 causal_mask ---


@wrong("causal_mask", "True means keep instead of blocked")
def causal_keep(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


@wrong("causal_mask", "blocks the diagonal too")
def causal_diag(T):
    i = torch.arange(T)
    return i[None, :] >= i[:, None]


@wrong("causal_mask", "gives the float mask of 0 and -inf instead of bool")
def causal_float_inf(T):
    return torch.triu(torch.full((T, T), float("-inf")), diagonal=1)


@wrong("causal_mask", "blocks the past instead of the future")
def causal_past(T):
    r = torch.arange(T)
    return r[:, None] > r[None, :]


# --- 8 padding_mask ---


@wrong("padding_mask", "True at the real keys instead of the padding")
def padding_keep(lengths, T):
    keep = torch.arange(T, device=lengths.device)[None, :] < lengths[:, None]
    return keep[:, None, None, :]


@wrong("padding_mask", "uses > so the first padding key stays open")
def padding_gt(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return einops.rearrange(pos > lengths[:, None], "b t -> b 1 1 t")


@wrong("padding_mask", "puts the time on the query axis and is off by one")
def padding_query_axis(lengths, T):
    mask = torch.arange(T, device=lengths.device)[None] > lengths.unsqueeze(1)
    return mask[:, None, :, None]


@wrong("padding_mask", "takes T from the longest sequence instead of the argument")
def padding_max_len(lengths, T):
    max_len = int(lengths.max())
    pos = torch.arange(max_len, device=lengths.device).expand(len(lengths), max_len)
    return (pos >= lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "returns (B, T), the key_padding_mask of nn.MultiheadAttention")
def padding_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device)[None, :] >= lengths[:, None]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "-1e9 crashes in float16 and makes a blocked row uniform")
def msoft_minus_1e9(scores, mask):
    scores = scores.masked_fill(mask, -1e9)
    return F.softmax(scores, dim=-1)


@wrong("masked_softmax", "reads True as keep")
def msoft_keep(scores, mask):
    s = scores.masked_fill(~mask, float("-inf"))
    return torch.nan_to_num(F.softmax(s, dim=-1))


@wrong("masked_softmax", "zeroes the blocked weights after the softmax and does not renormalise")
def msoft_no_renorm(scores, mask):
    weights = torch.softmax(scores, dim=-1)
    return weights.masked_fill(mask, 0.0)


@wrong("masked_softmax", "renormalises after the softmax; fails where a blocked score dominates")
def msoft_renorm_eps(scores, mask):
    w = scores.softmax(-1) * ~mask
    return w / (w.sum(dim=-1, keepdim=True) + 1e-9)


@wrong("masked_softmax", "adds -1e4, too little for large scores, and blocked rows are not zero")
def msoft_additive(scores, mask):
    bias = mask.to(scores.dtype) * -1e4
    return torch.softmax(scores + bias, dim=-1)


@wrong("masked_softmax", "where() with -inf gives float32, and a blocked row is NaN")
def msoft_where_bias(scores, mask):
    bias = torch.where(
        mask, torch.tensor(float("-inf"), device=mask.device), torch.tensor(0.0, device=mask.device)
    )
    return F.softmax(scores + bias, dim=-1)


@wrong("masked_softmax", "fills blocked scores with 0, not -inf; only fully blocked rows are right")
def msoft_fill_zero(scores, mask):
    w = F.softmax(scores.masked_fill(mask, 0), dim=-1)
    return w.masked_fill(mask.all(dim=-1, keepdim=True), 0)


@wrong("masked_softmax", "subtracts one maximum for all rows, so far lower rows underflow to zero")
def msoft_global_max(scores, mask):
    e = torch.exp(scores - scores.max()).masked_fill(mask, 0)
    total = e.sum(dim=-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1)


@wrong("masked_softmax", "zero rows only if the entire mask is blocked, else NaN")
def msoft_if_all(scores, mask):
    if mask.all():
        return torch.zeros_like(scores)
    return torch.softmax(scores.masked_fill(mask, -torch.inf), dim=-1)


@wrong("masked_softmax", "exponentials without subtracting the maximum overflow")
def msoft_plain_exp(scores, mask):
    e = torch.where(mask, 0, scores.exp())
    z = e.sum(dim=-1, keepdim=True)
    return e / z.masked_fill(z == 0, 1)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "slices rows of W_o and multiplies without transposing")
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    return sum(heads[:, i] @ W_o[i * d_k : (i + 1) * d_k] for i in range(heads.shape[1]))


@wrong("sum_of_head_writes", "gives head i every n_heads-th column of W_o")
def writes_strided(heads, W_o):
    n_heads = heads.shape[1]
    out = 0
    for i in range(n_heads):
        out = out + heads[:, i] @ W_o[:, i::n_heads].T
    return out


@wrong("sum_of_head_writes", "the slice has no offset: each head writes through head 0's columns")
def writes_no_offset(heads, W_o):
    B, h, T, d_k = heads.shape
    return torch.stack([heads[:, i] @ W_o[:, :d_k].T for i in range(h)]).sum(0)


@wrong("sum_of_head_writes", "averages over the heads instead of summing")
def writes_mean(heads, W_o):
    h, d_k = heads.shape[1], heads.shape[3]
    W = W_o.unflatten(1, (h, d_k))
    return torch.einsum("bhtd,mhd->bhtm", heads, W).mean(dim=1)


@wrong("sum_of_head_writes", "reshapes W_o to (h, d_k, d_model) without transposing")
def writes_reshaped(heads, W_o):
    B, h, T, d_k = heads.shape
    W = W_o.reshape(h, d_k, -1)
    return torch.einsum("bhtd,hdm->btm", heads, W)


@wrong("sum_of_head_writes", "return is inside the loop, so only head 0 writes")
def writes_return_inside(heads, W_o):
    d_k = heads.size(-1)
    out = 0
    for i in range(heads.size(1)):
        W_i = W_o[:, i * d_k : (i + 1) * d_k]
        out = out + heads[:, i] @ W_i.T
        return out


@wrong("sum_of_head_writes", "assigns instead of adding, so only the last head is left")
def writes_assigned(heads, W_o):
    d_k = heads.shape[-1]
    for i, W_i in enumerate(W_o.split(d_k, dim=1)):
        out = heads[:, i] @ W_i.T
    return out


@wrong("sum_of_head_writes", "sums up in a float32 buffer on the CPU, whatever dtype and device")
def writes_zeros_cpu(heads, W_o):
    B, n, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(n):
        out = out + F.linear(heads[:, i], W_o[:, i * d : (i + 1) * d])
    return out


@wrong("sum_of_head_writes", "reshapes without moving the head axis, so heads and time are mixed")
def writes_concat_mixed(heads, W_o):
    B, h, T, d_k = heads.shape
    return heads.reshape(B, T, h * d_k) @ W_o.T


@wrong("sum_of_head_writes", "skips head 0 and gives the others the columns of the head before")
def writes_from_one(heads, W_o):
    d_k = heads.shape[-1]
    out = heads.new_zeros(heads.shape[0], heads.shape[2], W_o.shape[0])
    for i in range(1, heads.shape[1]):
        out += heads[:, i] @ W_o[:, (i - 1) * d_k : i * d_k].mT
    return out


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "hands the mask to SDPA as is, where True means keep")
class MhaSdpaKeep(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        q, k, v = (
            w(x).view(B, T, self.h, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(out.transpose(1, 2).reshape(B, T, -1))


@wrong("MultiHeadAttention", "turns any mask into is_causal=True")
class MhaIsCausal(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None):
        split = lambda t: einops.rearrange(t, "b t (h d) -> b h t d", h=self.n_heads)
        q, k, v = split(self.w_q(x)), split(self.w_k(x)), split(self.w_v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
        return self.w_o(einops.rearrange(y, "b h t d -> b t (h d)"))


@wrong("MultiHeadAttention", "scales by sqrt(d_model) and leaves NaN in a fully blocked row")
class MhaModelScale(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            einops.rearrange(w(x), "b t (h d) -> b h t d", h=self.n_heads)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(self.d_model)
        if mask is not None:
            s = s.masked_fill(mask, float("-inf"))
        return self.w_o(einops.rearrange(s.softmax(-1) @ v, "b h t d -> b t (h d)"))


@wrong("MultiHeadAttention", "reshapes the context without moving the heads back behind time")
class MhaNoMerge(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = [
            f(x).view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        ]
        att = q @ k.mT * (C // self.n_heads) ** -0.5
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        att = torch.nan_to_num(att.softmax(-1))
        return self.w_o((att @ v).reshape(B, T, C))


@wrong("MultiHeadAttention", "-1e9 makes a fully blocked query average all values")
class MhaMinus1e9(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = [
            w(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        return self.w_o((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, T, D))


@wrong("MultiHeadAttention", "projects the values with w_k")
class MhaKeyTwice(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q = self.w_q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k = self.w_k(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        v = self.w_k(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            w = s.masked_fill(mask, -torch.inf).softmax(-1).masked_fill(mask, 0)
        else:
            w = s.softmax(-1)
        return self.w_o((w @ v).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "nan_to_num after w_o gives a blocked query 0 instead of the bias")
class MhaLateNan(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (
            w(x).view(B, T, self.h, self.d).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        att = torch.einsum("bhqd,bhkd->bhqk", q, k) / self.d**0.5
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        out = torch.einsum("bhqk,bhkd->bqhd", att.softmax(-1), v)
        return torch.nan_to_num(self.w_o(out.reshape(B, T, D)))


@wrong("MultiHeadAttention", "drops 10% of the weights in training mode")
class MhaDropout(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = [nn.Linear(d_model, d_model) for _ in range(4)]
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            m(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for m in (self.w_q, self.w_k, self.w_v)
        )
        att = q @ k.mT * q.size(-1) ** -0.5
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        att = self.drop(torch.nan_to_num(F.softmax(att, dim=-1)))
        return self.w_o((att @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "the masked scores are not assigned, so the mask does nothing")
class MhaMaskLost(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            m(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for m in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores.masked_fill(mask, float("-inf"))
        ctx = torch.softmax(scores, dim=-1) @ v
        return self.w_o(ctx.transpose(1, 2).contiguous().view(B, T, C))


@wrong("MultiHeadAttention", "wraps nn.MultiheadAttention: no w_q to w_o, and time comes first")
class MhaWrapped(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_heads)

    def forward(self, x, mask=None):
        out, _ = self.attn(x, x, x, attn_mask=mask)
        return out


@wrong("MultiHeadAttention", "`if mask` crashes when a mask is given, and nothing is scaled")
class MhaIfMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, -1).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT
        if mask:
            scores = scores.masked_fill(mask, float("-inf"))
        return self.w_o((scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "takes the heads as interleaved and returns without w_o")
class MhaInterleavedNoOut(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            w(x).view(B, T, self.d_k, self.n_heads).permute(0, 3, 1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(mask, float("-inf"))
        return (s.softmax(-1).nan_to_num(0.0) @ v).permute(0, 2, 3, 1).reshape(B, T, C)


# --- 12 next_token_loss ---


@wrong("next_token_loss", "does not shift: each position is scored on its own token")
def loss_no_shift(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits.reshape(B * T, V), tokens.reshape(B * T))


@wrong("next_token_loss", "shifts the wrong way: each position predicts the token before")
def loss_shift_back(logits, tokens):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())


@wrong("next_token_loss", "view() on the sliced tensors crashes for a batch larger than 1")
def loss_view(logits, tokens):
    shift_logits = logits[..., :-1, :]
    shift_labels = tokens[..., 1:]
    return F.cross_entropy(shift_logits.view(-1, logits.size(-1)), shift_labels.view(-1))


@wrong("next_token_loss", "treats token 0 as padding")
def loss_ignore_zero(logits, tokens):
    pred = einops.rearrange(logits[:, :-1], "b t v -> (b t) v")
    return F.cross_entropy(pred, tokens[:, 1:].flatten(), ignore_index=0)


@wrong("next_token_loss", "gives cross_entropy the softmax instead of the logits")
def loss_softmax_twice(logits, tokens):
    probs = F.softmax(logits[:, :-1], dim=-1)
    return F.cross_entropy(probs.transpose(1, 2), tokens[:, 1:])


@wrong("next_token_loss", "flattens before shifting, so one sequence predicts the next")
def loss_flat_shift(logits, tokens):
    flat_logits = logits.flatten(0, 1)
    flat_tokens = tokens.flatten()
    return F.cross_entropy(flat_logits[:-1], flat_tokens[1:])


@wrong("next_token_loss", "rolls the tokens, so the last position predicts the first token")
def loss_rolled(logits, tokens):
    targets = torch.roll(tokens, shifts=-1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@wrong("next_token_loss", "sums over the positions and averages over the batch only")
def loss_sum_over_time(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    nll = -logp.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return nll.sum(dim=1).mean()


@wrong("next_token_loss", "nll_loss on softmax probabilities that are not logged, summed")
def loss_nll_probs(logits, tokens):
    probs = torch.softmax(logits[:, :-1], dim=-1)
    return F.nll_loss(probs.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


@wrong("next_token_loss", "log of the softmax plus 1e-9 caps the loss at large logits")
def loss_log_eps(logits, tokens):
    p = logits[:, :-1].softmax(dim=-1)
    p = p.gather(2, tokens[:, 1:].unsqueeze(2))
    return -(p + 1e-9).log().mean()


# --- 13 previous_token_score ---


@wrong("previous_token_score", "reads the diagonal above, the weight on the next token")
def prev_above(weights):
    return weights.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "divides by T instead of T - 1")
def prev_over_T(weights):
    T = weights.shape[-1]
    t = torch.arange(1, T, device=weights.device)
    return weights[:, t, t - 1].sum(-1) / T


@wrong("previous_token_score", "diagonal() without dims runs over heads and queries")
def prev_default_dims(weights):
    return weights.diagonal(-1).mean(-1)


@wrong("previous_token_score", "counts how often the previous token is the argmax")
def prev_argmax(weights):
    T = weights.shape[-1]
    top = weights[:, 1:].argmax(dim=-1)
    prev = torch.arange(T - 1, device=weights.device)
    return (top == prev).to(weights.dtype).mean(dim=-1)


@wrong("previous_token_score", "sums instead of averaging and takes the diagonal above")
def prev_einsum(weights):
    return torch.einsum("hii->h", weights[:, :-1, 1:])


# --- 14 count_flops ---


@wrong("count_flops", "counts a multiply-add as 1")
def flops_macs(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * T * d_model * d_model
    attn = 2 * n_heads * T * T * d_k
    return proj + attn


@wrong("count_flops", "divides with / so the result is a float")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model**2 + 4 * n_heads * T * T * d_k


@wrong("count_flops", "multiplies the attention products by n_heads at full width")
def flops_heads_full(T, d_model, n_heads):
    projections = 4 * 2 * T * d_model * d_model
    scores = 2 * n_heads * T * T * d_model
    values = 2 * n_heads * T * T * d_model
    return projections + scores + values


@wrong("count_flops", "leaves out the output projection and the product with V")
def flops_half(T, d_model, n_heads):
    d_k = d_model // n_heads
    qkv = 2 * T * d_model * 3 * d_model
    scores = 2 * n_heads * T * d_k * T
    return qkv + scores


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "never rescales sum and output when the maximum grows")
def block_no_rescale(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), -torch.inf, dtype=Q.dtype, device=Q.device)
    l, acc = 0, 0
    for s in range(0, K.shape[0], block):
        scores = Q @ K[s : s + block].T / math.sqrt(Q.shape[1])
        m = torch.maximum(m, scores.amax(1, keepdim=True))
        p = torch.exp(scores - m)
        l = l + p.sum(1, keepdim=True)
        acc = acc + p @ V[s : s + block]
    return acc / l


@wrong("blockwise_attention", "rescales the sum but not the output")
def block_acc_stale(Q, K, V, block):
    m = Q.new_full((len(Q), 1), float("-inf"))
    l = Q.new_zeros(len(Q), 1)
    out = Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T * Q.shape[-1] ** -0.5
        m_new = torch.maximum(m, s.max(-1, keepdim=True).values)
        p = (s - m_new).exp()
        l = l * (m - m_new).exp() + p.sum(-1, keepdim=True)
        out = out + p @ v
        m = m_new
    return out / l


@wrong("blockwise_attention", "drops the last keys when block does not divide T_k")
def block_tail(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), -torch.inf)
    l, acc = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for b in range(K.shape[0] // block):
        sl = slice(b * block, (b + 1) * block)
        s = Q @ K[sl].mT / math.sqrt(Q.shape[-1])
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        c, p = torch.exp(m - m_new), torch.exp(s - m_new)
        l, acc, m = l * c + p.sum(-1, keepdim=True), acc * c + p @ V[sl], m_new
    return acc / l


@wrong("blockwise_attention", "softmax in each block by itself, then the mean over blocks")
def block_local_softmax(Q, K, V, block):
    outs = []
    for k, v in zip(K.split(block), V.split(block)):
        w = torch.softmax(Q @ k.T / math.sqrt(Q.shape[-1]), dim=-1)
        outs.append(w @ v)
    return torch.stack(outs).mean(0)


@wrong("blockwise_attention", "starts the maximum at 0, so very negative scores underflow to 0/0")
def block_zero_start(Q, K, V, block):
    T_q, d_k = Q.shape
    m = Q.new_zeros(T_q, 1)
    l = Q.new_zeros(T_q, 1)
    acc = Q.new_zeros(T_q, V.shape[-1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].T / math.sqrt(d_k)
        m_new = torch.maximum(m, s.max(dim=-1, keepdim=True)[0])
        alpha = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        l = alpha * l + p.sum(-1, keepdim=True)
        acc = alpha * acc + p @ V[i : i + block]
        m = m_new
    return acc / l


@wrong("blockwise_attention", "splits the queries, so it holds (block, T_k) scores")
def block_over_queries(Q, K, V, block):
    out = []
    for q in Q.split(block, dim=0):
        w = F.softmax(q @ K.T / math.sqrt(Q.shape[-1]), dim=-1)
        out.append(w @ V)
    return torch.cat(out, dim=0)


@wrong("blockwise_attention", "overwrites m before the correction (so it is 1), and no scale")
def block_m_overwritten(Q, K, V, block):
    m = Q.new_full((Q.shape[0],), -torch.inf)
    l = Q.new_zeros(Q.shape[0])
    acc = Q.new_zeros(Q.shape[0], V.shape[1])
    for j in range(0, K.shape[0], block):
        s = torch.einsum("qd,kd->qk", Q, K[j : j + block])
        m_new = torch.maximum(m, s.amax(dim=1))
        m = m_new
        corr = torch.exp(m - m_new)
        p = torch.exp(s - m_new[:, None])
        l = l * corr + p.sum(1)
        acc = acc * corr[:, None] + p @ V[j : j + block]
    return acc / l[:, None]


@wrong("blockwise_attention", "the output buffer is like Q, which crashes when d_v is not d_k")
def block_like_q(Q, K, V, block):
    out = torch.zeros_like(Q)
    m = torch.full_like(Q[:, :1], float("-inf"))
    l = torch.zeros_like(m)
    for k, v in zip(torch.split(K, block), torch.split(V, block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new_m = torch.max(m, s.amax(dim=1, keepdim=True))
        p, c = torch.exp(s - new_m), torch.exp(m - new_m)
        out = out * c + p @ v
        l = l * c + p.sum(dim=1, keepdim=True)
        m = new_m
    return out / l


@wrong("blockwise_attention", "sums exponentials without a maximum, so large scores overflow")
def block_no_max(Q, K, V, block):
    num, den = 0, 0
    for start in range(0, len(K), block):
        e = torch.exp(Q @ K[start : start + block].T / math.sqrt(Q.shape[-1]))
        num = num + e @ V[start : start + block]
        den = den + e.sum(-1, keepdim=True)
    return num / den


@wrong("blockwise_attention", "the correction is upside down and the final division is missing")
def block_inverted(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), float("-inf"))
    l, o = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        m_new = torch.maximum(m, s.amax(1, keepdim=True))
        p = torch.exp(s - m_new)
        scale = torch.exp(m_new - m) if i else 1.0
        l = l * scale + p.sum(1, keepdim=True)
        o = o * scale + p @ V[i : i + block]
        m = m_new
    return o


# --- 16 rotate ---


@wrong("rotate", "pairs neighbouring dimensions (interleaved)")
def rotate_interleaved(x, positions):
    d = x.shape[-1]
    inv = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    ang = positions.to(x.device)[:, None] * inv
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)


@wrong("rotate", "turns by minus the angle")
def rotate_backwards(x, positions):
    half = x.shape[-1] // 2
    freq = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    theta = torch.outer(positions.to(freq), freq)
    c, s = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    a, b = x.split(half, dim=-1)
    return torch.cat((a * c + b * s, b * c - a * s), dim=-1)


@wrong("rotate", "the exponent is i / d_k instead of 2i / d_k")
def rotate_exponent(x, positions):
    d = x.shape[-1]
    i = torch.arange(d // 2, device=x.device)
    angle = positions[:, None].double() / 10000 ** (i / d).double()
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


@wrong("rotate", "repeats each angle for neighbours but pairs the halves")
def rotate_mixed_layout(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device).double() / d)
    emb = torch.outer(positions.double(), inv_freq).repeat_interleave(2, dim=-1)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    rotated = torch.cat((-x2, x1), dim=-1)
    return x * emb.cos().to(x.dtype) + rotated * emb.sin().to(x.dtype)


@wrong("rotate", "uses 0..T-1 instead of the positions")
def rotate_arange(x, positions):
    T, d = x.shape[-2:]
    inv_freq = 10000 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    freqs = torch.arange(T, device=x.device).double()[:, None] * inv_freq
    cos, sin = torch.cos(freqs).to(x.dtype), torch.sin(freqs).to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


@wrong("rotate", "rotate_half without the minus sign")
def rotate_half_plus(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d, 2, device=x.device).double() / d))
    freqs = positions.double()[:, None] * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    return x * emb.cos().to(x.dtype) + torch.cat((x2, x1), -1) * emb.sin().to(x.dtype)


@wrong("rotate", "the angles are float32, so a half-precision input comes back as float32")
def rotate_float32_out(x, positions):
    half = x.shape[-1] // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half, device=x.device) / half)
    ang = positions[:, None].float() * freqs
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * ang.cos() - x2 * ang.sin(), x1 * ang.sin() + x2 * ang.cos()], -1)


@wrong("rotate", "complex numbers of neighbouring pairs, which also crash in half precision")
def rotate_complex(x, positions):
    d = x.shape[-1]
    freqs = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device)[: d // 2] / d)
    ang = torch.outer(positions, freqs).to(x.dtype)
    cis = torch.polar(torch.ones_like(ang), ang)
    xc = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(xc * cis).flatten(-2).to(x.dtype)


@wrong("rotate", "the second half is computed from the already turned first half")
def rotate_overwritten(x, positions):
    half = x.shape[-1] // 2
    inv = 10000 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    ang = positions[:, None] * inv
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    out = x.clone()
    a, b = out[..., :half], out[..., half:]
    out[..., :half] = a * cos - b * sin
    out[..., half:] = a * sin + b * cos
    return out


@wrong("rotate", "sine and cosine are swapped, and the frequencies start at i = 1")
def rotate_sin_cos(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(1, half + 1, device=x.device).double()
    ang = positions[:, None] * 10000 ** (-i / half)
    sin, cos = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


# --- 17 cached_attention ---


@wrong("cached_attention", "the causal mask has no offset for the cached tokens")
def cached_no_offset(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    w = s.masked_fill(mask, float("-inf")).softmax(-1)
    return w @ v, (k, v)


@wrong("cached_attention", "causal only when there is no cache")
def cached_causal_if_empty(q, k, v, cache):
    is_causal = cache is None
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=-2), torch.cat([cache[1], v], dim=-2)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return out, (k, v)


@wrong("cached_attention", "the mask opens one future token too many")
def cached_one_ahead(q, k, v, cache):
    if cache is not None:
        k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v)))
    n_new, n_all = q.size(2), k.size(2)
    future = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 2)
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.size(-1))
    w = s.masked_fill(future, -torch.inf).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", w, v), (k, v)


@wrong("cached_attention", "puts the new keys and values before the cached ones")
def cached_prepended(q, k, v, cache):
    if cache is not None:
        k_old, v_old = cache
        k = torch.cat((k, k_old), dim=2)
        v = torch.cat((v, v_old), dim=2)
    T, S = q.shape[2], k.shape[2]
    keep = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "hands back only the new keys and values as the cache")
def cached_only_new(q, k, v, cache):
    past_k, past_v = cache if cache is not None else (k[:, :, :0], v[:, :, :0])
    keys, values = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    n, t = q.shape[2], keys.shape[2]
    mask = torch.arange(t, device=q.device) > torch.arange(t - n, t, device=q.device)[:, None]
    scores = (q @ keys.mT) * q.shape[-1] ** -0.5
    ctx = scores.masked_fill(mask, float("-inf")).softmax(-1) @ values
    return ctx, (k, v)


@wrong("cached_attention", "extends the value cache with the keys")
def cached_k_for_v(q, k, v, cache):
    if cache is not None:
        pk, pv = cache
        k = torch.cat([pk, k], dim=-2)
        v = torch.cat([pv, k[:, :, pk.shape[2] :]], dim=-2)
    T, S = q.shape[-2], k.shape[-2]
    blocked = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(diagonal=S - T + 1)
    att = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(blocked, -torch.inf)
    return att.softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "without a cache it returns early with None instead of (k, v)")
def cached_early_none(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), None
    k = torch.cat([cache[0], k], dim=2)
    v = torch.cat([cache[1], v], dim=2)
    keep = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device)
    keep = keep.tril(k.size(2) - q.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "unpacks the cache without a test, so None crashes")
def cached_none_crash(q, k, v, cache):
    k_old, v_old = cache
    k, v = torch.cat([k_old, k], 2), torch.cat([v_old, v], 2)
    i = torch.arange(q.shape[2], device=q.device)[:, None] + k_old.shape[2]
    j = torch.arange(k.shape[2], device=q.device)[None]
    s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(j > i, float("-inf"))
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "adds a float32 mask made on the CPU, which crashes in half precision")
def cached_float_mask(q, k, v, cache):
    n_old = 0
    if cache is not None:
        n_old = cache[0].shape[2]
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    bias = torch.triu(torch.full((q.shape[2], k.shape[2]), float("-inf")), diagonal=n_old + 1)
    w = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, dim=-1)
    return w @ v, (k, v)


@wrong("cached_attention", "no causal mask among the new tokens, and the scale is missing")
def cached_unmasked(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=2)
        v = torch.cat((cache[1], v), dim=2)
    att = torch.einsum("bhtd,bhsd->bhts", q, k).softmax(dim=-1)
    return torch.einsum("bhts,bhsd->bhtd", att, v), (k, v)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "repeat instead of repeat_interleave: head i looks with i % h_kv")
def grouped_repeat(q, k):
    k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)
    return q @ k.mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "repeats each key head h_kv times instead of h / h_kv")
def grouped_repeat_h_kv(q, k):
    h_kv = k.shape[1]
    k = k.repeat_interleave(h_kv, dim=1)
    return torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5


@wrong("grouped_scores", "splits the query heads as (group, h_kv) and merges back the other way")
def grouped_layout(q, k):
    qg = einops.rearrange(q, "b (g n) t d -> b n g t d", n=k.shape[1])
    s = torch.einsum("bngtd,bnsd->bngts", qg, k) / q.shape[-1] ** 0.5
    return einops.rearrange(s, "b n g t s -> b (n g) t s")


@wrong("grouped_scores", "relies on broadcasting, which crashes unless h_kv is 1 or h")
def grouped_broadcast(q, k):
    return torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.size(-1))


@wrong("grouped_scores", "leaves the groups as an axis of their own, five axes in all")
def grouped_five_axes(q, k):
    B, h, T, d = q.shape
    h_kv = k.shape[1]
    q = q.reshape(B, h_kv, h // h_kv, T, d)
    return q @ k.unsqueeze(2).mT / math.sqrt(d)


@wrong("grouped_scores", "repeats along the time axis of the keys")
def grouped_time_axis(q, k):
    B, h_kv, T_k, d = k.shape
    g = q.shape[1] // h_kv
    k = k.repeat_interleave(g, dim=2).reshape(B, h_kv * g, T_k, d)
    return q @ k.transpose(2, 3) / math.sqrt(d)


@wrong("grouped_scores", "sums the query heads of a group, giving (B, h_kv, T_q, T_k)")
def grouped_einsum_summed(q, k):
    qg = q.unflatten(1, (k.shape[1], -1))
    return torch.einsum("bngqd,bnkd->bnqk", qg, k) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "every query head looks with key head 0, and d_k is read from T_q")
def grouped_first_head(q, k):
    B, h, d_k, _ = q.shape
    k = k[:, :1].expand(-1, h, -1, -1)
    return q @ k.transpose(-2, -1) / math.sqrt(d_k)


@wrong("grouped_scores", "expands on the wrong side of the key heads and does not scale")
def grouped_expand_side(q, k):
    B, n, S, d = k.shape
    rep = q.shape[1] // n
    k = k[:, None].expand(B, rep, n, S, d).reshape(B, rep * n, S, d)
    return torch.einsum("bhtd,bhsd->bhts", q, k)


@wrong("grouped_scores", "indexes the key heads with i // h_kv instead of i // (h / h_kv)")
def grouped_index(q, k):
    h, h_kv = q.shape[1], k.shape[1]
    idx = torch.arange(h, device=q.device) // h_kv
    return q @ k[:, idx].mT * q.shape[-1] ** -0.5


# --- 19 cached_mask ---


@wrong("cached_mask", "queries are numbered from 0, without the cached tokens")
def cmask_no_offset(n_new, n_cached, window):
    i = torch.arange(n_new)[:, None]
    j = torch.arange(n_cached + n_new)[None, :]
    mask = j > i
    if window is not None:
        mask |= i - j >= window
    return mask


@wrong("cached_mask", "lets one token too many into the window")
def cmask_window_gt(n_new, n_cached, window):
    dist = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    mask = dist < 0
    if window is not None:
        mask = mask | (dist > window)
    return mask


@wrong("cached_mask", "compares with window even if it is None, which crashes")
def cmask_none_crash(n_new, n_cached, window):
    total = n_cached + n_new
    q = torch.arange(n_cached, total).unsqueeze(1)
    k = torch.arange(total).unsqueeze(0)
    return (k > q) | (k <= q - window)


@wrong("cached_mask", "with a window the future is no longer blocked")
def cmask_either(n_new, n_cached, window):
    total = n_new + n_cached
    delta = torch.arange(n_cached, total)[:, None] - torch.arange(total)[None]
    if window is None:
        return delta < 0
    return delta >= window


@wrong("cached_mask", "window is accepted but never used")
def cmask_no_window(n_new, n_cached, window=None):
    return torch.ones(n_new, n_cached + n_new, dtype=torch.bool).triu(n_cached + 1)


@wrong("cached_mask", "returns all rows, also those of the cached tokens")
def cmask_square(n_new, n_cached, window):
    T = n_cached + n_new
    full = torch.ones(T, T, dtype=torch.bool)
    mask = full.triu(1)
    if window is not None:
        mask = mask | full.tril(-window)
    return mask


@wrong("cached_mask", "the window part forgets the offset that the causal part has")
def cmask_tril_offset(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    mask = torch.triu(ones, diagonal=n_cached + 1)
    if window is not None:
        mask = mask | torch.tril(ones, diagonal=-window)
    return mask


@wrong("cached_mask", "returns True for keep, with a window of one token too many")
def cmask_keep(n_new, n_cached, window):
    dist = (torch.arange(n_new)[:, None] + n_cached) - torch.arange(n_new + n_cached)[None, :]
    keep = dist >= 0
    if window is not None:
        keep &= dist <= window
    return keep


@wrong("cached_mask", "the distance is absolute, so with a window the near future is open")
def cmask_abs(n_new, n_cached, window):
    rows = torch.arange(n_new) + n_cached
    cols = torch.arange(n_new + n_cached)
    if window is not None:
        return (rows[:, None] - cols).abs() >= window
    return cols > rows[:, None]


@wrong("cached_mask", "with an empty cache it returns early, before the window is applied")
def cmask_early(n_new, n_cached, window):
    mask = torch.ones(n_new, n_new, dtype=torch.bool).triu(1)
    if n_cached == 0:
        return mask
    mask = torch.cat([torch.zeros(n_new, n_cached, dtype=torch.bool), mask], dim=1)
    if window is not None:
        d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
        mask = mask | (d >= window)
    return mask


# ---------------------------------------------------------------- unusual but right


@right("attention_scores")
def scores_keys_first(Q, K):
    return (K @ Q.mT).mT.div(math.sqrt(K.size(-1)))


@right("count_parameters")
def params_meta(d_model, n_heads, d_k):
    w = torch.empty(n_heads * d_k, d_model, device="meta")
    return 3 * w.numel() + w.T.numel()


@right("split_heads")
def split_by_index(x, n_heads):
    d_k = x.shape[-1] // n_heads
    idx = torch.arange(n_heads * d_k, device=x.device).view(n_heads, 1, d_k)
    rows = torch.arange(x.shape[1], device=x.device).view(1, -1, 1)
    return x[:, rows, idx]


@right("merge_heads")
def merge_by_cat(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("padding_mask")
def padding_cumsum(lengths, T):
    pos = torch.ones(len(lengths), T, dtype=torch.long, device=lengths.device).cumsum(1) - 1
    return torch.logical_not(pos < lengths.unsqueeze(-1)).unsqueeze(1).unsqueeze(1)


@right("masked_softmax")
def msoft_two_fills(scores, mask):
    neg = torch.finfo(scores.dtype).min
    w = F.softmax(scores.masked_fill(mask, neg), dim=-1)
    return w.masked_fill(mask, 0.0)


@right("sum_of_head_writes")
def writes_reduce(heads, W_o):
    blocks = einops.rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return einops.reduce(heads @ blocks, "b h t m -> b t m", "sum")


@right("next_token_loss")
def loss_logsumexp(logits, tokens):
    pred, target = logits[:, :-1].double(), tokens[:, 1:]
    picked = pred.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (pred.logsumexp(-1) - picked).mean().to(logits.dtype)


@right("blockwise_attention")
def block_logsumexp(Q, K, V, block):
    lse, out = None, None
    for k, v in zip(K.split(block), V.double().split(block)):
        s = (Q @ k.T / math.sqrt(Q.shape[-1])).double()
        part, z = s.softmax(-1) @ v, s.logsumexp(-1, keepdim=True)
        if out is None:
            lse, out = z, part
        else:
            new = torch.logaddexp(lse, z)
            out = out * torch.exp(lse - new) + part * torch.exp(z - new)
            lse = new
    return out.to(V.dtype)


@right("rotate")
def rotate_as_complex(x, positions):
    half = x.shape[-1] // 2
    inv = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    ang = positions.to(device=x.device, dtype=torch.float64)[:, None] * inv
    z = torch.complex(x[..., :half].double(), x[..., half:].double())
    z = z * torch.polar(torch.ones_like(ang), ang)
    return torch.cat([z.real, z.imag], dim=-1).to(x.dtype)


@right("cached_attention")
def cached_token_by_token(q, k, v, cache):
    keys, values = cache if cache is not None else (k[:, :, :0], v[:, :, :0])
    out = []
    for t in range(q.shape[2]):
        keys = torch.cat([keys, k[:, :, t : t + 1]], dim=2)
        values = torch.cat([values, v[:, :, t : t + 1]], dim=2)
        w = (q[:, :, t : t + 1] @ keys.mT / math.sqrt(q.shape[-1])).softmax(-1)
        out.append(w @ values)
    return torch.cat(out, dim=2), (keys, values)


@right("cached_mask")
def cmask_band(n_new, n_cached, window):
    total = n_cached + n_new
    band = torch.ones(total, total, dtype=torch.bool).tril()
    if window is not None:
        band = band.triu(1 - window)
    return ~band[n_cached:]
