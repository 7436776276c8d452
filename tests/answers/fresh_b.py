"""Wrong answers of engineers who know other conventions, libraries and habits."""

# As learners type: long lines, `l`, zip.
# ruff: noqa: E501

import math

import torch
import torch.nn.functional as F
from answers import wrong
from torch import nn


# ------------------------------------------------------------------ 1 attention_scores
@wrong(
    "attention_scores",
    "torch.bmm takes only three axes: raises for plain matrices and for batch and heads",
)
def bmm_scores(query, key):
    return torch.bmm(query, key.transpose(1, 2)).div_(math.sqrt(query.size(-1)))


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
    "computes in float32 and leaves the result there: the dtype is not the input's",
)
def upcast_scores(Q, K):
    Q, K = Q.float(), K.float()
    return torch.matmul(Q, K.transpose(-2, -1)) * (Q.shape[-1] ** -0.5)


@wrong("attention_scores", "scale fixed at 1/8, which is right only for d_k = 64")
def scale_of_64(Q, K):
    SCALE = 0.125  # 64 ** -0.5
    return (Q * SCALE) @ K.mT


@wrong(
    "attention_scores",
    "the query alone is scaled by the fourth root; the key is not",
    slips=("by_fourth_root",),
)
def fourth_root_once(Q, K):
    s = Q.shape[-1] ** -0.25
    return (Q * s) @ K.transpose(-1, -2)


@wrong(
    "attention_scores",
    "reshapes K to (..., d_k, T_k) instead of transposing it: the numbers land elsewhere",
)
def view_as_transpose(Q, K):
    *lead, T, d = K.shape
    return Q.matmul(K.reshape(*lead, d, T)) / math.sqrt(d)


@wrong(
    "attention_scores",
    "cosine similarity: queries and keys are normalised first, and no root of d_k",
)
def cosine_scores(Q, K):
    return F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT


# ------------------------------------------------------------------ 2 attention
@wrong(
    "attention",
    "F.scaled_dot_product_attention gives the output only; None stands for the weights",
    slips=("returns_NoneType",),
)
def sdpa_no_weights(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V), None


@wrong("attention", "is causal by default: later keys are masked")
def always_causal(q, k, v):
    L, S = q.size(-2), k.size(-2)
    bias = torch.zeros(L, S, dtype=q.dtype, device=q.device)
    bias.masked_fill_(torch.ones(L, S, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    w = torch.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5 + bias, dim=-1)
    return w @ v, w


@wrong("attention", "exp over sum without subtracting the maximum: overflows for large scores")
def naive_exp(Q, K, V):
    e = torch.exp(torch.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5)
    w = e / e.sum(-1, keepdim=True)
    return w @ V, w


@wrong(
    "attention",
    "subtracts the maximum of the whole tensor, not of the row: rows far below it underflow to 0/0",
)
def global_max(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    e = (s - s.max()).exp()
    w = e / e.sum(dim=-1, keepdim=True)
    return torch.matmul(w, V), w


@wrong("attention", "dropout of a tenth on the weights, always active")
def with_dropout(Q, K, V):
    w = F.softmax(torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(K.size(-1)), dim=-1)
    w = F.dropout(w, 0.1)
    return torch.matmul(w, V), w


@wrong(
    "attention",
    "softmax in float32 as in HF, but never cast back: raises or gives another dtype unless the input is float32",
)
def softmax_in_float32(query, key, value):
    attn = torch.matmul(query, key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    attn = nn.functional.softmax(attn, dim=-1, dtype=torch.float32)
    return torch.matmul(attn, value), attn


@wrong(
    "attention",
    "the weights given are averaged over the first axis, as nn.MultiheadAttention averages over heads",
)
def averaged_weights(Q, K, V):
    weights = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)
    out = weights @ V
    return out, weights.mean(0)


@wrong(
    "attention",
    "quiet softmax: one is added to the denominator (softmax1), so the weights do not add up to one",
    slips=("one_place",),
)
def softmax_one(Q, K, V):
    s = Q @ K.mT / math.sqrt(Q.shape[-1])
    m = s.amax(-1, keepdim=True).clamp(min=0)
    e = (s - m).exp()
    w = e / (e.sum(-1, keepdim=True) + (-m).exp())
    return w @ V, w


# ------------------------------------------------------------------ 3 project_qkv
@wrong(
    "project_qkv", "GPT-2's Conv1D layout (in, out): the weight is reshaped to it, not transposed"
)
def conv1d_layout(hidden_states, c_attn):
    d = hidden_states.size(-1)
    return hidden_states.matmul(c_attn.reshape(d, 3 * d)).split(d, dim=2)


@wrong(
    "project_qkv",
    "takes the rows as interleaved q, k, v triples (GPT-NeoX style) and not as three blocks",
)
def neox_layout(X, W):
    B, T, d = X.shape
    q, k, v = F.linear(X, W).view(B, T, d, 3).unbind(-1)
    return q, k, v


@wrong("project_qkv", "order K, Q, V: the first two are exchanged")
def k_first(X, W_qkv):
    d = W_qkv.size(1)
    k, q, v = F.linear(X, W_qkv).split(d, -1)
    return q, k, v


@wrong(
    "project_qkv",
    "W_qkv is cut along its second axis (in) instead of its first (out): raises unless by chance",
)
def weight_cut_in(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3, dim=1)
    return tuple(F.linear(X, w) for w in (W_q, W_k, W_v))


@wrong("project_qkv", "scales q by the root of d_model on the way, as some implementations do")
def prescaled_q(X, W_qkv):
    q, k, v = (X @ W_qkv.mT).tensor_split(3, dim=-1)
    return q / math.sqrt(q.shape[-1]), k, v


@wrong("project_qkv", "gives time first, (T, B, d_model)", slips=("one_place",))
def time_first(X, W_qkv):
    return F.linear(X.transpose(0, 1), W_qkv).chunk(3, dim=-1)


# ------------------------------------------------------------------ 4 count_parameters
@wrong("count_parameters", "ties d_k to d_model // n_heads although it is free")
def tied(d_model, n_heads, d_k):
    d_k = d_model // n_heads
    return 4 * d_model * n_heads * d_k


@wrong("count_parameters", "multi-query: keys and values are counted for one head only")
def multi_query(d_model, n_heads, d_k):
    q = d_model * n_heads * d_k
    kv = 2 * d_model * d_k
    return q + kv + n_heads * d_k * d_model


@wrong(
    "count_parameters",
    "bytes in float32, not parameters: four times too many",
    slips=("in_bytes",),
)
def in_bytes(d_model, n_heads, d_k):
    return 4 * (4 * d_model * n_heads * d_k)


@wrong("count_parameters", "biases of all four layers are added")
def with_biases(d_model, n_heads, d_k):
    inner = n_heads * d_k
    return sum([3 * (d_model + 1) * inner, (inner + 1) * d_model])


@wrong("count_parameters", "W_o is taken as d_model by d_model")
def square_w_o(d_model, n_heads, d_k):
    return 3 * d_model * (n_heads * d_k) + d_model**2


# ------------------------------------------------------------------ 5 split_heads
@wrong(
    "split_heads",
    "rearrange with (d h): head after feature, so heads take every n_heads-th feature",
)
def rearrange_d_h(x, n_heads):
    from einops import rearrange

    return rearrange(x, "b t (d h) -> b h t d", h=n_heads)


@wrong("split_heads", "fairseq's layout: batch and heads in one axis, (B * n_heads, T, d_k)")
def fairseq_fold(x, n_heads):
    bsz, tgt_len, embed = x.size()
    return (
        x.view(bsz, tgt_len, n_heads, embed // n_heads)
        .transpose(1, 2)
        .reshape(bsz * n_heads, tgt_len, -1)
    )


@wrong("split_heads", "the keys' layout of GPT-1: (B, n_heads, d_k, T)")
def gpt_keys(x, n_heads):
    new_shape = x.size()[:-1] + (n_heads, x.size(-1) // n_heads)
    return x.view(*new_shape).permute(0, 2, 3, 1)


@wrong(
    "split_heads",
    "as_strided with the strides of a contiguous tensor: wrong for non-contiguous input",
    slips=("hangs_on_memory",),
)
def strided(x, n_heads):
    B, T, D = x.shape
    d = D // n_heads
    return torch.as_strided(x, (B, n_heads, T, d), (T * D, d, D, 1))


@wrong("split_heads", "d_k is fixed at 64")
def fixed_64(x, n_heads):
    return x.reshape(x.size(0), -1, n_heads, 64).transpose(1, 2)


@wrong(
    "split_heads",
    "treats x as time first, (T, B, d_model): the result has batch and time exchanged",
)
def seq_first(x, n_heads):
    T, B, D = x.shape
    return x.reshape(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)


@wrong(
    "split_heads",
    "heads stacked after the tokens, (B, T, n_heads, d_k), as flash-attention wants them",
)
def flash_layout(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=2)


@wrong(
    "split_heads",
    "squeeze takes away every axis of size 1: the batch of one, a single head, a single token",
    slips=("one_place",),
)
def squeezed(x, n_heads):
    B, T, D = x.shape
    return x.unflatten(-1, (n_heads, D // n_heads)).transpose(1, 2).squeeze()


@wrong(
    "split_heads",
    "n_heads is taken for the width of a head: d_model // n_heads heads of n_heads features",
)
def width_for_count(x, n_heads):
    return x.unflatten(2, (-1, n_heads)).movedim(2, 1)


# ------------------------------------------------------------------ 6 merge_heads
@wrong("merge_heads", "rearrange with (d h): the features of the heads interleaved")
def rearrange_back(x):
    import einops

    return einops.rearrange(x, "b h t d -> b t (d h)")


@wrong("merge_heads", "time first: (T, B, n_heads * d_k)")
def merge_time_first(x):
    B, H, T, D = x.shape
    return x.permute(2, 0, 1, 3).reshape(T, B, H * D)


@wrong("merge_heads", "folds batch and time into one axis: (B * T, n_heads * d_k)")
def merge_two_axes(x):
    return x.transpose(1, 2).flatten(2).flatten(0, 1)


@wrong(
    "merge_heads",
    "as_strided over the memory as if x were a transposed view of (B, T, h, d): wrong for contiguous input",
    slips=("hangs_on_memory",),
)
def memory_assumed(x):
    B, h, T, d = x.shape
    return x.as_strided((B, T, h * d), (T * h * d, h * d, 1))


@wrong("merge_heads", "contiguous() comes before the transpose and not after it: view raises")
def contiguous_too_early(x):
    new_shape = (x.size(0), x.size(2), x.size(1) * x.size(3))
    return x.contiguous().transpose(1, 2).view(new_shape)


@wrong(
    "merge_heads",
    "expects (B, T, h, d), GPT-2's layout, and just flattens the last two axes: (B, n_heads, T * d_k)",
)
def already_transposed(x):
    return x.reshape(*x.shape[:-2], -1)


@wrong(
    "merge_heads",
    "swaps heads and features before the flattening: (B, T, d_k * n_heads) with heads innermost",
)
def heads_innermost(x):
    return x.movedim(1, -1).flatten(-2)


@wrong("merge_heads", "the batch axis is squeezed away when it is 1")
def no_batch_of_one(x):
    return torch.cat(x.unbind(1), dim=-1).squeeze(0)


@wrong("merge_heads", "max-pools over the heads")
def pooled(x):
    return x.amax(dim=1)


# ------------------------------------------------------------------ 7 causal_mask
@wrong("causal_mask", "GPT-2's buffer: lower triangle, True = visible")
def gpt2_bias(T):
    return torch.tril(torch.ones((T, T), dtype=torch.bool))


@wrong("causal_mask", "additive float mask with -inf, as nn.Transformer makes it")
def additive(T):
    return nn.Transformer.generate_square_subsequent_mask(T)


@wrong("causal_mask", "with batch and head axes: (1, 1, T, T)")
def four_axes(T):
    return torch.ones(T, T).triu(1).bool().view(1, 1, T, T)


@wrong("causal_mask", "uint8, the mask dtype of old PyTorch")
def byte_mask(T):
    return torch.triu(torch.ones(T, T, dtype=torch.uint8), diagonal=1)


@wrong(
    "causal_mask",
    "rows and columns exchanged: queries compared with later queries, so the past is blocked",
)
def exchanged(T):
    i, j = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="xy")
    return i < j


# ------------------------------------------------------------------ 8 padding_mask
@wrong(
    "padding_mask",
    "HF's attention_mask: 1 for real tokens, int64, (B, T)",
    slips=("tokens_marked", "no_axes_for_heads", "as_integers"),
)
def hf_mask(lengths, T):
    return (
        torch.arange(T, device=lengths.device).expand(len(lengths), T) < lengths.unsqueeze(1)
    ).long()


@wrong("padding_mask", "the positions are made on the CPU: fails for lengths on another device")
def cpu_positions(lengths, T):
    return (torch.arange(T, device="cpu")[None] >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "the width is the longest length, not T")
def longest(lengths, T):
    pos = torch.arange(int(lengths.max()), device=lengths.device)
    return (pos >= lengths.view(-1, 1))[:, None, None, :]


@wrong(
    "padding_mask",
    "one_hot and cumsum: raises for int32 lengths, since one_hot wants int64",
    slips=("error:target_dtype",),
)
def one_hot_cumsum(lengths, T):
    return F.one_hot(lengths, T + 1).cumsum(-1)[:, :T].bool()[:, None, None]


@wrong(
    "padding_mask", "a slice from -(T - n): for a full sequence that is -0 and blocks everything"
)
def minus_zero(lengths, T):
    mask = torch.zeros((lengths.numel(), 1, 1, T), dtype=torch.bool, device=lengths.device)
    for row, n in zip(mask, lengths.tolist()):
        row[..., -(T - n) :] = True
    return mask


@wrong("padding_mask", "left padding: the padding is taken to stand before the tokens")
def left_padded(lengths, T):
    n_pad = T - lengths
    return (torch.arange(T, device=lengths.device) < n_pad[:, None]).view(-1, 1, 1, T)


@wrong("padding_mask", "blocks padding queries instead of keys: (B, 1, T, 1)")
def padding_queries(lengths, T):
    return (torch.arange(T, device=lengths.device)[:, None] >= lengths[:, None, None])[:, None]


# ------------------------------------------------------------------ 9 masked_softmax
@wrong("masked_softmax", "finfo.min leaves an empty row with equal weights")
def finfo_min(scores, mask):
    return F.softmax(scores.masked_fill(mask, torch.finfo(scores.dtype).min), dim=-1)


@wrong(
    "masked_softmax",
    "fills with -1e4: as large as scores may be, so that blocked keys get weight among very negative scores; an empty row is zeroed",
)
def minus_1e4(scores, mask):
    w = scores.masked_fill(mask, -10000.0).softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0.0)


@wrong(
    "masked_softmax",
    "GPT-2's arithmetic: w * visible - 1e10 * blocked; empty rows get equal weights and half precision overflows",
)
def gpt2_arithmetic(w, b):
    b = (~b).to(w.dtype)
    w = w * b + -1e10 * (1 - b)
    return nn.Softmax(dim=-1)(w)


@wrong(
    "masked_softmax",
    "renormalises after an unmasked softmax: where a blocked score is far above, the others have already underflowed",
)
def renormalised(scores, mask):
    w = torch.softmax(scores, -1) * ~mask
    return w / w.sum(-1, keepdim=True).clamp_min(1e-12)


@wrong("masked_softmax", "mask times -inf: 0 * -inf is NaN at every open key")
def times_minus_inf(scores, mask):
    return torch.softmax(scores + mask.to(scores.dtype) * float("-inf"), dim=-1)


@wrong("masked_softmax", "reads the mask the SDPA way: True = may be looked at")
def sdpa_polarity(scores, mask):
    empty = ~mask.any(-1, keepdim=True)
    filled = scores.masked_fill(~mask & ~empty, float("-inf"))
    return torch.where(empty, 0.0, filled.softmax(-1)).to(scores.dtype)


@wrong("masked_softmax", "softmax in float32, never cast back: the dtype is not the input's")
def float32_softmax(scores, mask):
    empty = mask.all(-1, keepdim=True)
    w = scores.masked_fill(mask & ~empty, -torch.inf).softmax(-1, dtype=torch.float32)
    return w.masked_fill(empty, 0)


@wrong("masked_softmax", "exp without subtracting a maximum: overflows for large scores")
def exp_no_max(scores, mask):
    e = scores.exp().masked_fill(mask, 0)
    z = e.sum(-1, keepdim=True)
    return e / torch.where(z == 0, torch.ones_like(z), z)


@wrong(
    "masked_softmax",
    "NaNs are replaced in place under no_grad and the weights are detached: no gradient gets through",
)
def no_gradient(scores, mask):
    with torch.no_grad():
        return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong(
    "masked_softmax",
    "the maximum that is subtracted includes blocked keys: open keys far below underflow to zeros",
    slips=("renormalised_cleared",),
)
def max_of_all(scores, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp() * ~mask
    total = e.sum(-1, keepdim=True)
    return e / (total + (total == 0))


# ------------------------------------------------------------------ 10 sum_of_head_writes
@wrong("sum_of_head_writes", "W_o is taken in the layout (in, out): viewed as (h, d_k, d_model)")
def in_out_layout(heads, W_o):
    h, d_k = heads.shape[1], heads.shape[-1]
    return torch.einsum("bhtk,hkm->btm", heads, W_o.reshape(h, d_k, -1))


@wrong("sum_of_head_writes", "W_o viewed as (d_model, d_k, h): each head gets every h-th column")
def every_hth_column(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,mdh->btm", heads, W_o.reshape(-1, d, h))


@wrong("sum_of_head_writes", "the heads' axis is kept: each head's write, not their sum")
def writes_not_summed(heads, W_o):
    slabs = W_o.unflatten(1, (heads.shape[1], -1))
    return torch.einsum("bhtd,mhd->bhtm", heads, slabs)


@wrong(
    "sum_of_head_writes",
    "sums the contexts first and multiplies by the sum of the slabs: cross terms of head i with slab j",
)
def cross_terms(heads, W_o):
    return heads.sum(1) @ W_o.unflatten(1, (heads.shape[1], -1)).sum(1).T


@wrong("sum_of_head_writes", "the accumulator is float32: dtype of other inputs is lost")
def float_accumulator(heads, W_o):
    B, h, T, d = heads.shape
    acc = torch.zeros(B, T, W_o.size(0), device=heads.device)
    for i, slab in enumerate(W_o.split(d, dim=1)):
        acc = acc + F.linear(heads[:, i].float(), slab.float())
    return acc


# ------------------------------------------------------------------ 11 MultiHeadAttention
class _Base(nn.Module):
    """What all of these share: an engineer's template."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model, self.n_heads, self.d_k = d_model, n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)


@wrong(
    "MultiHeadAttention",
    "hands the mask to SDPA as it is, whose True means visible: the polarity is turned round",
)
class SdpaPolarity(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong(
    "MultiHeadAttention",
    "finfo.min for blocked keys: a wholly blocked row looks at all keys equally instead of giving a zero context",
)
class FinfoMin(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.scale = (d_model // n_heads) ** -0.5
        self.w_q, self.w_k, self.w_v, self.w_o = [
            nn.Linear(d_model, d_model, bias=False) for _ in range(4)
        ]

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        q, k, v = [
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        att = (q * self.scale) @ k.transpose(-2, -1)
        if mask is not None:
            att = att.masked_fill(mask, torch.finfo(att.dtype).min)
        y = att.softmax(dim=-1) @ v
        return self.w_o(y.transpose(1, 2).contiguous().view(B, T, -1))


@wrong("MultiHeadAttention", "dropout on the weights, active as the module is after construction")
class AttentionDropout(_Base):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.attn_dropout = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        B, T, C = x.size()
        k = self.w_k(x).view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2)
        q = self.w_q(x).view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        att = F.softmax(att, dim=-1).nan_to_num(0.0)
        att = self.attn_dropout(att)
        y = att @ v
        return self.w_o(y.transpose(1, 2).contiguous().view(B, T, C))


@wrong("MultiHeadAttention", "always causal, like a decoder, on top of the mask")
class DecoderOnly(_Base):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            f(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT / math.sqrt(self.d_k)
        blocked = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        if mask is not None:
            blocked = blocked | mask
        w = s.masked_fill(blocked, -math.inf).softmax(-1).nan_to_num(0.0)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "one fused w_qkv: the layers w_q, w_k and w_v are missing")
class Fused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_qkv = nn.Linear(d_model, 3 * d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = self.w_qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        return self.w_o((s.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "adds the input: a residual connection that was not asked for")
class Residual(_Base):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            f(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        allowed = None if mask is None else ~mask.expand(B, self.n_heads, T, T)
        s = q @ k.mT * self.d_k**-0.5
        if allowed is not None:
            s = s.masked_fill(~allowed, -math.inf)
        w = s.softmax(-1).nan_to_num(0.0)
        return x + self.w_o((w @ v).transpose(1, 2).reshape(B, T, C))


@wrong(
    "MultiHeadAttention",
    "nan_to_num comes after w_o: a wholly blocked row is all zeros, without w_o's bias",
)
class MendedTooLate(_Base):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            f(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.transpose(-1, -2) / math.sqrt(self.d_k)
        if mask is not None:
            s = torch.where(mask, torch.full((), -math.inf, dtype=s.dtype, device=s.device), s)
        y = self.w_o((s.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, T, C))
        return torch.nan_to_num(y)


@wrong(
    "MultiHeadAttention",
    "works in (B, T, h, d) and never transposes: the heads of one token attend to each other",
)
class HeadsAttendHeads(_Base):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        shape = (B, T, self.n_heads, self.d_k)
        q, k, v = self.w_q(x).view(shape), self.w_k(x).view(shape), self.w_v(x).view(shape)
        s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None and mask.shape == s.shape:
            s = s.masked_fill(mask, -math.inf)
        return self.w_o((s.softmax(-1) @ v).reshape(B, T, C))


@wrong(
    "MultiHeadAttention",
    "always unsqueezes the mask at axis 1, so that a mask with four axes raises or gives five axes",
    slips=("one_place",),
)
class AlwaysUnsqueezes(_Base):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            f(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = torch.matmul(q, k.mT).div(self.d_k**0.5)
        if mask is not None:
            s = s.masked_fill(mask.unsqueeze(1), -math.inf)
        return self.w_o((s.softmax(-1).nan_to_num() @ v).transpose(1, 2).contiguous().view(B, T, C))


@wrong("MultiHeadAttention", "tied weights: the queries serve as keys too, and w_k is never used")
class TiedLayers(_Base):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.w_v = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        qk = self.w_q(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, self.d_k).transpose(1, 2)
        s = qk @ qk.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        y = s.softmax(-1).nan_to_num(0.0) @ v
        return self.w_o(y.transpose(1, 2).reshape(B, T, C))


# ------------------------------------------------------------------ 12 next_token_loss
@wrong("next_token_loss", "token 0 is taken for padding and ignored")
def ignores_zero(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


@wrong("next_token_loss", "view on a sliced, non-contiguous tensor (raises for a batch above 1)")
def view_of_slice(lm_logits, labels):
    shift_logits = lm_logits[..., :-1, :]
    shift_labels = labels[..., 1:]
    return nn.CrossEntropyLoss()(
        shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1)
    )


@wrong(
    "next_token_loss",
    "the loss is computed in float32 and stays there: the dtype is not the input's",
)
def hf_float(logits, labels):
    logits = logits.float()
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])


@wrong("next_token_loss", "torch.roll: the last position has to predict the first token")
def rolled(logits, tokens):
    return F.cross_entropy(logits.mT, tokens.roll(-1, dims=1))


@wrong("next_token_loss", "log of softmax: -inf for large logits")
def log_of_softmax(logits, tokens):
    p = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:].unsqueeze(-1))
    return -p.log().mean()


@wrong("next_token_loss", "label smoothing of 0.1")
def smoothed(logits, tokens):
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, logits.size(-1)), tokens[:, 1:].reshape(-1), label_smoothing=0.1
    )


@wrong("next_token_loss", "sum over time, mean over the batch only")
def sum_per_sequence(logits, tokens):
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return nll.sum(1).mean()


@wrong("next_token_loss", "one loss per sequence, (B,), not a scalar")
def per_sequence(logits, tokens):
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return nll.mean(dim=1)


@wrong("next_token_loss", "bits: divided by ln 2")
def bits(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits[:, : T - 1].reshape(-1, V), tokens[:, 1:].reshape(-1)) / math.log(
        2
    )


@wrong("next_token_loss", "gives the perplexity: the exponential of the loss")
def perplexity(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:])
    return torch.exp(loss)


@wrong("next_token_loss", "nll_loss on raw logits: no log-softmax")
def nll_of_logits(logits, tokens):
    return F.nll_loss(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


# ------------------------------------------------------------------ 13 previous_token_score
@wrong(
    "previous_token_score",
    "index arange - 1 wraps round: row 0 contributes its weight for the last token, and T cells are averaged",
)
def wraps_round(weights):
    i = torch.arange(weights.size(-1), device=weights.device)
    return weights[:, i, i - 1].mean(-1)


@wrong(
    "previous_token_score",
    "mean of the whole sub-block [1:, :-1], not of its diagonal",
    slips=("mean_of_a_block",),
)
def whole_block(weights):
    return weights[:, 1:, :-1].mean(dim=(-2, -1))


@wrong(
    "previous_token_score",
    "the share of queries whose largest weight is the previous token, not the mean weight",
)
def argmax_share(attn):
    T = attn.shape[-1]
    want = torch.arange(T - 1, device=attn.device)
    return (attn[:, 1:].argmax(-1) == want).to(attn.dtype).mean(-1)


@wrong("previous_token_score", "average taken over heads: one number per token")
def per_token(weights):
    return torch.diagonal(weights, offset=-1, dim1=-2, dim2=-1).mean(0)


# ------------------------------------------------------------------ 14 count_flops
@wrong("count_flops", "the causal half: the attention products are halved")
def causal_half(T, d_model, n_heads):
    return 8 * T * d_model**2 + 2 * T * T * d_model


@wrong("count_flops", "softmax is counted as well (about five operations for each score)")
def with_softmax(T, d_model, n_heads):
    return 8 * T * d_model * d_model + 4 * T * T * d_model + 5 * n_heads * T * T


@wrong("count_flops", "training: forward and backward, three times too many")
def training_flops(T, d_model, n_heads):
    forward = 2 * (4 * T * d_model * d_model + 2 * T * T * d_model)
    return 3 * forward


@wrong("count_flops", "the attention products of one head only: n_heads left out")
def one_head_only(T, d_model, n_heads):
    head_dim = d_model // n_heads
    qkvo = 4 * (2 * T * d_model * d_model)
    return qkvo + 2 * (2 * T * T * head_dim)


@wrong("count_flops", "exact sums: n - 1 additions for each product instead of a multiply-add as 2")
def exact_additions(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * T * d_model * (2 * d_model - 1)
    return proj + n_heads * T * T * (2 * d_k - 1) + n_heads * T * d_k * (2 * T - 1)


# ------------------------------------------------------------------ 15 blockwise_attention
@wrong(
    "blockwise_attention",
    "the running maximum starts at 0: where all scores are far below, everything underflows to 0/0",
)
def starts_at_zero(Q, K, V, block):
    m = Q.new_zeros(Q.size(0), 1)
    l = Q.new_zeros(Q.size(0), 1)
    acc = Q.new_zeros(Q.size(0), V.size(1))
    for kb, vb in zip(K.split(block), V.split(block)):
        s = Q @ kb.T * Q.size(-1) ** -0.5
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        alpha = torch.exp(m - m_new)
        p = torch.exp(s - m_new)
        l = l * alpha + p.sum(-1, keepdim=True)
        acc = acc * alpha + p @ vb
        m = m_new
    return acc / l


@wrong("blockwise_attention", "one maximum for all queries: rows far below it underflow")
def shared_maximum(Q, K, V, block):
    m, l, o = -math.inf, Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[1])
    for j in range(0, K.shape[0], block):
        s = Q @ K[j : j + block].mT / math.sqrt(Q.shape[1])
        new = max(m, s.max().item())
        a, p = math.exp(m - new), (s - new).exp()
        l, o, m = l * a + p.sum(1, keepdim=True), o * a + p @ V[j : j + block], new
    return o / l


@wrong(
    "blockwise_attention",
    "the last block is padded with zero keys, which get a score of 0 and so a weight",
    slips=("padded_with_zeros",),
)
def zero_padded(Q, K, V, block):
    pad = -K.size(0) % block
    K, V = F.pad(K, (0, 0, 0, pad)), F.pad(V, (0, 0, 0, pad))
    m = Q.new_full((Q.size(0), 1), -math.inf)
    l, acc = torch.zeros_like(m), Q.new_zeros(Q.size(0), V.size(1))
    for kb, vb in zip(K.view(-1, block, K.size(1)), V.view(-1, block, V.size(1))):
        s = Q @ kb.T / math.sqrt(Q.size(1))
        n = torch.maximum(m, s.amax(1, keepdim=True))
        p, c = (s - n).exp(), (m - n).exp()
        l, acc, m = l * c + p.sum(1, keepdim=True), acc * c + p @ vb, n
    return acc / l


@wrong(
    "blockwise_attention",
    "block is taken as the number of blocks (chunk): with few of them far more than (T_q, block) scores are held",
)
def number_of_blocks(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[-1])
    for k, v in zip(K.chunk(block), V.chunk(block)):
        s = Q @ k.T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, s.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (s - larger).exp()
        total, mix, m = total * shrink + e.sum(1, keepdim=True), mix * shrink + e @ v, larger
    return mix / total


@wrong(
    "blockwise_attention",
    "the blocks of scores are collected in a list and joined: in the end all scores are held",
)
def collected(Q, K, V, block):
    s = torch.cat([Q @ kb.T for kb in K.split(block)], dim=1) / math.sqrt(Q.size(-1))
    return s.softmax(-1) @ V


@wrong(
    "blockwise_attention",
    "the accumulators are float32: another dtype for other inputs (raises or changes it)",
)
def float32_accumulators(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), float("-inf"), device=Q.device)
    l = torch.zeros(Q.shape[0], 1, device=Q.device)
    acc = torch.zeros(Q.shape[0], V.shape[1], device=Q.device)
    for i in range(0, K.shape[0], block):
        s = (Q.float() @ K[i : i + block].float().T) / math.sqrt(Q.shape[1])
        n = torch.maximum(m, s.max(dim=1, keepdim=True)[0])
        p, a = torch.exp(s - n), torch.exp(m - n)
        l = l * a + p.sum(1, keepdim=True)
        acc = acc * a + p @ V[i : i + block].float()
        m = n
    return acc / l


@wrong(
    "blockwise_attention",
    "the new block is weighed against its own maximum, not the running one; only the old part is rescaled",
)
def own_maximum(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    l, acc = torch.zeros_like(m), Q.new_zeros(len(Q), V.size(1))
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.size(1))
        mb = s.amax(1, keepdim=True)
        p = torch.exp(s - mb)
        new = torch.maximum(m, mb)
        l = l * torch.exp(m - new) + p.sum(1, keepdim=True)
        acc = acc * torch.exp(m - new) + p @ V[i : i + block]
        m = new
    return acc / l


@wrong(
    "blockwise_attention",
    "each block's normalised output is weighed by its sum of exponentials without a common maximum: overflows",
)
def merged_by_sums(Q, K, V, block):
    num, den = 0, 0
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.size(1))
        z = s.logsumexp(1, keepdim=True).exp()
        num, den = num + z * (s.softmax(1) @ V[i : i + block]), den + z
    return num / den


@wrong(
    "blockwise_attention",
    "the rescaling factor is turned round: exp(new - old) instead of exp(old - new), guarded at the first block",
    slips=("one_place",),
)
def factor_inverted(Q, K, V, block):
    state = None
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.size(1))
        mb = s.amax(1, keepdim=True)
        if state is None:
            p = (s - mb).exp()
            state = mb, p.sum(1, keepdim=True), p @ v
            continue
        m, l, acc = state
        new = torch.maximum(m, mb)
        p, f = (s - new).exp(), (new - m).exp()
        state = new, l * f + p.sum(1, keepdim=True), acc * f + p @ v
    return state[2] / state[1]


# ------------------------------------------------------------------ 16 rotate
@wrong("rotate", "GPT-J's interleaved pairs (2i, 2i + 1) by complex numbers, put back interleaved")
def complex_pairs(x, positions):
    d = x.shape[-1]
    f = 10000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    turn = torch.polar(torch.ones_like(f).expand(len(positions), -1), positions[:, None] * f)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * turn).flatten(-2).to(x.dtype)


@wrong("rotate", "positions start at 1: one is added to each")
def from_one(x, positions):
    h = x.size(-1) // 2
    inv = 1.0 / 10000 ** (torch.arange(h, device=x.device).double() / h)
    ang = torch.outer(positions.double() + 1, inv)
    c, s = ang.cos().to(x), ang.sin().to(x)
    u, v = x.split(h, -1)
    return torch.cat([u * c - v * s, v * c + u * s], -1)


@wrong(
    "rotate", "the positions are cast to x's dtype: half precision cannot hold them, nor the angles"
)
def positions_in_dtype(x, positions):
    d = x.shape[-1]
    inv_freq = (1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device).double() / d)).to(x.dtype)
    freqs = positions.to(x.dtype)[:, None] * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * emb.cos() + half * emb.sin()


@wrong("rotate", "the tables stay float64 and lift the result to float64: not x's dtype")
def float64_result(x, positions):
    d = x.shape[-1]
    inv_freq = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    emb = (positions[:, None] * inv_freq).repeat(1, 2)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * emb.cos() + half * emb.sin()


@wrong("rotate", "rotate_half without the minus: a reflection, not a rotation")
def no_minus(x, positions):
    d = x.shape[-1]
    inv_freq = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    emb = torch.cat([positions[:, None] * inv_freq] * 2, -1)
    x1, x2 = x.chunk(2, -1)
    return x * emb.cos().to(x.dtype) + torch.cat((x2, x1), -1) * emb.sin().to(x.dtype)


@wrong(
    "rotate",
    "halves are paired right, but the angles are repeat_interleaved (GPT-J) so that each half gets other speeds",
    slips=("mixed_layouts",),
)
def mixed_layouts(x, positions):
    d = x.shape[-1]
    inv_freq = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    emb = (positions[:, None] * inv_freq).repeat_interleave(2, -1)
    cos, sin = emb.cos().to(x.dtype), emb.sin().to(x.dtype)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * cos + half * sin


@wrong(
    "rotate",
    "expects (B, T, h, d): the tables get a heads axis before the last, so positions run along the wrong axis or raise",
)
def other_layout(x, positions):
    h = x.size(-1) // 2
    inv = 10000.0 ** (-torch.arange(h, device=x.device, dtype=torch.float64) / h)
    ang = (positions[:, None] * inv)[:, None, :]
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


@wrong("rotate", "base 500,000 as in Llama 3 instead of 10,000", slips=("base_of_another",))
def llama3_base(x, positions):
    h = x.size(-1) // 2
    inv = 5e5 ** (-torch.arange(h, device=x.device, dtype=torch.float64) / h)
    ang = positions[:, None] * inv
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


@wrong("rotate", "the speeds are made without a device: fails for x on another device")
def speeds_on_cpu(x, positions):
    h = x.size(-1) // 2
    inv = 10000.0 ** (-torch.arange(h, device="cpu", dtype=torch.float64) / h)
    ang = positions[:, None] * inv
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


# ------------------------------------------------------------------ 17 cached_attention
@wrong(
    "cached_attention",
    "SDPA with is_causal: its triangle hangs at the top left, wrong as soon as there is a cache",
)
def sdpa_is_causal(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], -2), torch.cat([cache[1], v], -2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong(
    "cached_attention",
    "causal only without a cache: several new tokens after a cache see each other's future",
)
def causal_in_prefill_only(q, k, v, cache):
    prefill = cache is None
    if not prefill:
        k, v = torch.cat([cache[0], k], -2), torch.cat([cache[1], v], -2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=prefill), (k, v)


@wrong(
    "cached_attention",
    "written for one new token at a time: no mask when there is a cache, and only the last query's context",
)
def decode_step_only(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=2)
        v = torch.cat((cache[1], v), dim=2)
    w = torch.softmax(q[:, :, -1:] @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return w @ v, (k, v)


@wrong(
    "cached_attention", "(B, T, h, d) habit: concatenates along axis 1 and measures lengths there"
)
def bthd(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
    L, S = q.size(1), k.size(1)
    mask = torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1)
    s = torch.einsum("blhd,bshd->bhls", q, k) / math.sqrt(q.size(-1))
    w = s.masked_fill(mask, -math.inf).softmax(-1)
    return torch.einsum("bhls,bshd->blhd", w, v), (k, v)


@wrong(
    "cached_attention",
    "the values are not appended: only the keys of the cache grow (raises, or wrong)",
)
def values_not_appended(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k = torch.cat((past_k, k), dim=-2)
    L, S = q.size(-2), k.size(-2)
    mask = torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1)
    w = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(mask, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong(
    "cached_attention",
    "the cache holds keys already divided by the root of d_k: what is given back is not k, and old keys, which come unscaled, are never divided",
)
def cached_scaled(q, k, v, cache):
    k = k / math.sqrt(q.size(-1))
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    L, S = q.size(2), k.size(2)
    w = (
        (q @ k.mT)
        .masked_fill(torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1), -math.inf)
        .softmax(-1)
    )
    return w @ v, (k, v)


@wrong("cached_attention", "attends over the new tokens only; the cache is grown but not used")
def cache_unused(q, k, v, cache):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    return y, (k, v)


@wrong(
    "cached_attention",
    "the cache is one stacked tensor, cat along the wrong axis of it: gives a tensor (2, B, h, T, d) and axes are shifted by one",
)
def stacked_cache(q, k, v, cache):
    kv = torch.stack((k, v))
    if cache is not None:
        kv = torch.cat((torch.stack(cache), kv), dim=2)
    k, v = kv
    L, S = q.size(2), k.size(2)
    w = (
        (q @ k.mT / math.sqrt(q.size(-1)))
        .masked_fill(torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1), -math.inf)
        .softmax(-1)
    )
    return w @ v, (k, v)


@wrong(
    "cached_attention",
    "a rolling buffer: the oldest keys and values are dropped, so that no more are kept than there were old ones (or new ones, where these are more)",
)
def rolling_cache(q, k, v, cache):
    if cache is not None:
        n = cache[0].size(2)
        k = torch.cat((cache[0], k), 2)[:, :, -max(n, k.size(2)) :]
        v = torch.cat((cache[1], v), 2)[:, :, -max(n, v.size(2)) :]
    L, S = q.size(2), k.size(2)
    w = (
        (q @ k.mT / math.sqrt(q.size(-1)))
        .masked_fill(torch.ones(L, S, dtype=torch.bool, device=q.device).triu(S - L + 1), -math.inf)
        .softmax(-1)
    )
    return w @ v, (k, v)


# ------------------------------------------------------------------ 18 grouped_scores
@wrong(
    "grouped_scores",
    "expand puts the copies before the key heads: head i looks with key head i % h_kv",
)
def expand_in_front(q, k):
    B, h, Tq, d = q.shape
    _, g, Tk, _ = k.shape
    k = k[:, None].expand(B, h // g, g, Tk, d).reshape(B, h, Tk, d)
    return q @ k.mT * d**-0.5


@wrong(
    "grouped_scores", "q is viewed as (B, h/h_kv, h_kv, …): the groups are strided, not adjacent"
)
def strided_groups(q, k):
    g = k.shape[1]
    s = torch.einsum("bghqd,bhkd->bghqk", q.unflatten(1, (-1, g)), k)
    return s.flatten(1, 2) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "the queries of a group are averaged: only h_kv heads of scores")
def queries_averaged(q, k):
    return q.unflatten(1, (k.size(1), -1)).mean(2) @ k.mT / math.sqrt(q.size(-1))


@wrong("grouped_scores", "the group axis is left in: (B, h_kv, h/h_kv, T_q, T_k)")
def five_axes(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return q @ k.unsqueeze(2).mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "divides by the root of the model width h * d_k instead of d_k")
def scale_by_model(q, k):
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    return q @ k.mT / math.sqrt(q.size(1) * q.size(-1))


@wrong("grouped_scores", "multi-query only: every head looks with key head 0")
def key_head_zero(q, k):
    return q @ k[:, :1].mT / math.sqrt(q.size(-1))


@wrong("grouped_scores", "repeats the keys' tokens instead of the heads (dim=2)")
def tokens_repeated(q, k):
    n_rep = q.shape[1] // k.shape[1]
    k = torch.repeat_interleave(k, n_rep, dim=2).reshape(q.shape[0], q.shape[1], k.shape[2], -1)
    return torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "(B, T, h, d) habit: the heads are counted and repeated in axis 2, which holds the tokens",
)
def repeat_kv_bthd(q, k):
    n_rep = max(q.shape[2] // k.shape[2], 1)
    k = k.repeat_interleave(n_rep, dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])


# ------------------------------------------------------------------ 19 cached_mask
@wrong("cached_mask", "True = visible, as SDPA wants it")
def visible(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)[None]
    ok = k <= q
    if window is not None:
        ok &= q - k < window
    return ok


@wrong("cached_mask", "additive float mask with -inf")
def additive_cached(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    bad = d < 0 if window is None else (d < 0) | (d >= window)
    return torch.zeros(bad.shape).masked_fill(bad, -math.inf)


@wrong("cached_mask", "tril's diagonal is one too far: the window is one too narrow")
def narrow(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    m = ones.triu(n_cached + 1)
    return m if window is None else m | ones.tril(n_cached - window + 1)


@wrong(
    "cached_mask",
    "the window's tril has no offset for the cache: old keys inside the text stay open",
)
def tril_no_offset(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    m = ones.triu(n_cached + 1)
    if window is not None:
        m = m | ones.tril(-window)
    return m


@wrong("cached_mask", "batch and head axes in front: (1, 1, n_new, n_all)")
def broadcastable(n_new, n_cached, window):
    rel = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    m = rel < 0
    if window:
        m |= rel >= window
    return m[None, None]


@wrong(
    "cached_mask",
    "the window limits the number of cached columns for all rows alike, counted from the first new token",
)
def same_for_all_rows(n_new, n_cached, window):
    m = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).triu(n_cached + 1)
    if window is not None and n_cached - window + 1 > 0:
        m[:, : n_cached - window + 1] = True
    return m


@wrong(
    "cached_mask",
    "the window is symmetrical (abs): the future inside the window is open",
    slips=("symmetric",),
)
def symmetrical(n_new, n_cached, window):
    rel = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    if window is None:
        return rel < 0
    return rel.abs() >= window


@wrong(
    "cached_mask",
    "the cache is never blocked: the window is applied to the new columns only",
    slips=("among_new_only",),
)
def cache_always_open(n_new, n_cached, window):
    i = torch.arange(n_new)
    rel = i[:, None] - i
    new = rel < 0 if window is None else (rel < 0) | (rel >= window)
    return torch.cat([torch.zeros(n_new, n_cached, dtype=torch.bool), new], dim=1)


# ------------------------------------------------------------------ silence
@wrong("silence", "detach shares the memory: the caller's tensor is changed all the same")
def detach_is_no_copy(heads, i):
    quiet = heads.detach()
    quiet[:, i].zero_()
    return quiet


@wrong("silence", "(B, T, h, d) habit: zeroes axis 2, the token i")
def silence_token(heads, i):
    out = heads.clone()
    out[:, :, min(i, heads.shape[2] - 1)] = 0
    return out


@wrong("silence", "a shallow copy of a slice (view): the caller's tensor is changed")
def sliced_copy(heads, i):
    out = heads[:]
    out[:, i] = 0.0
    return out


@wrong(
    "silence",
    "the head is replaced by its mean over tokens, not by zeros (mean ablation)",
    slips=("own_mean",),
)
def mean_ablation(heads, i):
    out = heads.clone()
    out[:, i] = heads[:, i].mean(dim=1, keepdim=True)
    return out


@wrong("silence", "rescales the other heads like dropout, by h / (h - 1)")
def like_dropout(heads, i):
    h = heads.shape[1]
    keep = torch.ones(h, dtype=heads.dtype, device=heads.device)
    keep[i] = 0
    return heads * keep.view(1, h, 1, 1) * (h / max(h - 1, 1))


# ------------------------------------------------------------------ solved
@wrong(
    "solved",
    "weights is taken as (query, key, head): the heads' axis is the last",
    slips=("heads_forgotten",),
)
def heads_last(weights, query, right, wrong):
    return weights[query, right] > weights[query, wrong]


@wrong("solved", "floats 0 and 1 instead of bool")
def as_float(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).float()


@wrong("solved", "the number of heads that solve it, not a bool for each")
def how_many(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).sum()


@wrong("solved", "keeps an axis: (n_heads, 1)")
def keeps_axis(weights, query, right, wrong):
    row = weights[:, query]
    return row[:, right : right + 1] > row[:, wrong : wrong + 1]


@wrong(
    "solved",
    "isclose guards against ties with a tolerance, so that a small lead is a no",
    slips=("one_place",),
)
def with_tolerance(weights, query, right, wrong):
    a, b = weights[:, query, right], weights[:, query, wrong]
    return (a > b) & ~torch.isclose(a, b, atol=0.1)
