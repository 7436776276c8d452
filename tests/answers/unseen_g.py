"""Engineers from JAX, TensorFlow, MATLAB, Rust: other conventions, dtypes, devices, in-place."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "vectors as columns: mixes features, not tokens")
def scores_columns(Q, K):
    return Q.transpose(-2, -1) @ K / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "keys first: the result is (T_k, T_q)")
def scores_keys_first(Q, K):
    return torch.einsum("...kd,...qd->...kq", K, Q) * Q.shape[-1] ** -0.5


@wrong("attention_scores", "divides by 8, the root of a head size of 64")
def scores_constant(Q, K):
    return torch.matmul(Q, K.mT) / 8.0


@wrong("attention_scores", "always gives float32, whatever came in")
def scores_float32(Q, K):
    q, k = Q.to(torch.float32), K.to(torch.float32)
    return q @ k.mT / math.sqrt(q.shape[-1])


@wrong("attention_scores", "the root is cut to a whole number")
def scores_isqrt(Q, K):
    return Q @ K.mT / math.isqrt(Q.shape[-1])


@right("attention_scores")
def scores_einsum(Q, K):
    scale = torch.rsqrt(torch.tensor(float(Q.shape[-1]), dtype=Q.dtype, device=Q.device))
    return torch.einsum("...td,...sd->...ts", Q * scale, K)


# --- 2 attention ---


@wrong("attention", "weights first, output second")
def attention_swapped(Q, K, V):
    w = torch.softmax(Q @ K.mT * Q.shape[-1] ** -0.5, dim=-1)
    return w, w @ V


@wrong("attention", "softmax over the queries, down the columns")
def attention_columns(Q, K, V):
    w = torch.softmax(Q @ K.mT * Q.shape[-1] ** -0.5, dim=-2)
    return w @ V, w


@wrong("attention", "computes in bfloat16 and casts back: two digits left")
def attention_bf16(Q, K, V):
    q, k, v = (t.to(torch.bfloat16) for t in (Q, K, V))
    w = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return (w @ v).to(Q.dtype), w.to(Q.dtype)


@wrong("attention", "hands the weights out transposed, (T_k, T_q)")
def attention_weights_turned(Q, K, V):
    w = torch.softmax(K @ Q.mT * Q.shape[-1] ** -0.5, dim=-2)
    return w.mT @ V, w


@wrong("attention", "F.dropout is on by default and drops weights")
def attention_dropout(Q, K, V):
    w = torch.softmax(Q @ K.mT * Q.shape[-1] ** -0.5, dim=-1)
    w = F.dropout(w, p=0.1)
    return w @ V, w


@right("attention")
def attention_logsumexp(Q, K, V):
    s = (Q * Q.shape[-1] ** -0.5).matmul(K.mT)
    w = (s - torch.logsumexp(s, dim=-1, keepdim=True)).exp()
    return w.matmul(V), w


# --- 3 project_qkv ---


@wrong("project_qkv", "reshapes to (in, out) where a transpose is needed")
def project_reshape(X, W_qkv):
    d = X.shape[-1]
    return torch.split(X @ W_qkv.reshape(d, 3 * d), d, dim=-1)


@right("project_qkv")
def project_three(X, W_qkv):
    wq, wk, wv = W_qkv.split(X.shape[-1])
    return X @ wq.mT, X @ wk.mT, X @ wv.mT


@wrong("project_qkv", "order K, Q, V")
def project_order(X, W_qkv):
    q, k, v = (X @ W_qkv.mT).tensor_split(3, dim=-1)
    return k, q, v


@wrong("project_qkv", "contracts the output axis of each block")
def project_einsum_axis(X, W_qkv):
    d = X.shape[-1]
    return tuple(torch.einsum("bte,ned->nbtd", X, W_qkv.view(3, d, d)).unbind(0))


@right("project_qkv")
def project_einsum(X, W_qkv):
    d = X.shape[-1]
    return tuple(torch.einsum("btd,ned->nbte", X, W_qkv.reshape(3, d, d)))


# --- 4 count_parameters ---


@wrong("count_parameters", "takes d_k for the width of all heads")
def count_one_head(d_model, n_heads, d_k):
    return d_model * d_k * 4


@wrong("count_parameters", "K and V counted as shared by all heads (MQA)")
def count_mqa(d_model, n_heads, d_k):
    return 2 * d_model * n_heads * d_k + 2 * d_model * d_k


@wrong("count_parameters", "a tensor, no int")
def count_tensor(d_model, n_heads, d_k):
    w = torch.empty(n_heads * d_k, d_model, device="meta")
    return torch.tensor([w.numel()] * 4).sum()


@wrong("count_parameters", "counts bytes of float32, not numbers")
def count_bytes(d_model, n_heads, d_k):
    return 4 * d_model * n_heads * d_k * torch.finfo(torch.float32).bits // 8


@right("count_parameters")
def count_meta(d_model, n_heads, d_k):
    wide = n_heads * d_k
    with torch.device("meta"):
        shapes = torch.empty(3 * wide, d_model), torch.empty(d_model, wide)
    return sum(math.prod(s.shape) for s in shapes)


# --- 5 split_heads ---


@wrong("split_heads", "(B * h, T, d_k), batch and heads in one axis")
def split_folded(x, n_heads):
    B, T, D = x.shape
    return x.view(B, T, n_heads, D // n_heads).transpose(1, 2).reshape(B * n_heads, T, -1)


@wrong("split_heads", "moves the heads to the very end: (B, T, d_k, h)")
def split_heads_last(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(-2, -1)


@wrong("split_heads", "head size is the constant 64")
def split_constant(x, n_heads):
    B, T, _ = x.shape
    return x.view(B, T, n_heads, 64).permute(0, 2, 1, 3)


@wrong("split_heads", "unfold with step 1: overlapping windows")
def split_unfold_step(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x.unfold(-1, d_k, 1).permute(0, 2, 1, 3)[:, :n_heads]


@wrong("split_heads", "seq-first habit: reads x as (T, B, d_model)")
def split_seq_first(x, n_heads):
    T, B, D = x.shape
    return x.view(T, B, n_heads, D // n_heads).permute(1, 2, 0, 3)


@right("split_heads")
def split_unfold(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x.unfold(-1, d_k, d_k).movedim(2, 1)


# --- 6 merge_heads ---


@wrong("merge_heads", "d_k before heads: every head's number 0 first")
def merge_interleaved(x):
    return x.permute(0, 2, 3, 1).flatten(-2)


@wrong("merge_heads", "result is seq-first, (T, B, h*d_k)")
def merge_seq_first(x):
    B, h, T, d = x.shape
    return x.permute(2, 0, 1, 3).reshape(T, B, h * d)


@wrong("merge_heads", "flattens batch and tokens too: (B*T, h*d_k)")
def merge_two_axes(x):
    B, h, T, d = x.shape
    return x.swapaxes(1, 2).reshape(-1, h * d)


@wrong("merge_heads", "adds the heads up, (B, T, d_k)")
def merge_sum(x):
    return torch.einsum("bhtd->btd", x)


@right("merge_heads")
def merge_empty(x):
    B, h, T, d = x.shape
    return torch.movedim(x, 1, 2).flatten(start_dim=-2)


# --- 7 causal_mask ---


@wrong("causal_mask", "additive mask with minus infinity")
def causal_additive(T):
    return torch.full((T, T), float("-inf")).triu(1)


@wrong("causal_mask", "rows and columns mixed up: blocks the past")
def causal_past(T):
    i = torch.arange(T)
    return i[None, :] < i[:, None]


@wrong("causal_mask", "two axes of size 1 too many")
def causal_four_axes(T):
    return torch.ones(1, 1, T, T, dtype=torch.bool).triu(1)


@wrong("causal_mask", "uint8, as bool masks were long ago")
def causal_uint8(T):
    return torch.ones(T, T, dtype=torch.uint8).triu_(1)


_LONGEST = torch.ones(1024, 1024, dtype=torch.bool).triu(1)


@wrong("causal_mask", "a buffer of 1024 that is not cut to T")
def causal_buffer(T):
    return _LONGEST


@right("causal_mask")
def causal_sub_buffer(T):
    i = torch.arange(T)
    return (i.unsqueeze(1) - i.unsqueeze(0)).lt(0)


# --- 8 padding_mask ---


@wrong("padding_mask", "positions on the CPU, whatever the device of lengths")
def padding_cpu(lengths, T):
    return (torch.arange(T, device="cpu") >= lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "as wide as the longest sequence, not T")
def padding_longest(lengths, T):
    pos = torch.arange(int(lengths.max()), device=lengths.device)
    return (pos >= lengths.view(-1, 1, 1, 1)).contiguous()


@wrong("padding_mask", "counts from 1: the last real token is blocked")
def padding_from_one(lengths, T):
    pos = torch.arange(1, T + 1, device=lengths.device)
    return (pos >= lengths[:, None]).view(-1, 1, 1, T)


@wrong("padding_mask", "repeated over the queries: (B, 1, T, T)")
def padding_square(lengths, T):
    pad = torch.arange(T, device=lengths.device) >= lengths[:, None]
    return pad[:, None, None, :].expand(-1, 1, T, T)


@wrong("padding_mask", "batch axis in the wrong place: (1, 1, B, T)")
def padding_batch_third(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[None, None]


@right("padding_mask")
def padding_searching(lengths, T):
    pos = torch.arange(T, device=lengths.device).reshape(1, 1, 1, T)
    return torch.logical_not(torch.lt(pos, lengths.reshape(-1, 1, 1, 1)))


# --- 9 masked_softmax ---


@wrong(
    "masked_softmax",
    "fills with the smallest score, which still has a share",
    slips=("lowest_score",),
)
def msoftmax_smallest(scores, mask):
    return torch.where(mask, scores.amin(), scores).softmax(-1)


@wrong("masked_softmax", "where the wrong way round: keeps what is blocked")
def msoftmax_where(scores, mask):
    s = torch.where(mask, scores, torch.full_like(scores, -1e30))
    return s.softmax(-1) * mask


@wrong("masked_softmax", "exp without taking the maximum off: overflow", slips=("naive_times",))
def msoftmax_raw_exp(scores, mask):
    e = scores.exp() * ~mask
    return e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(e.dtype).tiny)


@wrong(
    "masked_softmax",
    "an epsilon in the divisor: rows add to less than one",
    slips=("epsilon_added",),
)
def msoftmax_epsilon(scores, mask):
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * ~mask
    return e / (e.sum(-1, keepdim=True) + 1e-3)


@wrong("masked_softmax", "axis 1, as for three axes of another layout")
def msoftmax_axis(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -math.inf).softmax(1).masked_fill(mask, 0.0)


@right("masked_softmax")
def msoftmax_fill_and_mend(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1).nan_to_num(nan=0.0)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "every h-th column for a head")
def writes_strided(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].mT for i in range(h))


@wrong("sum_of_head_writes", "W_o viewed as (h, d_k, d_model): scrambled")
def writes_view(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,hdm->btm", heads, W_o.reshape(h, d, -1))


@wrong("sum_of_head_writes", "accumulates in a float32 buffer")
def writes_buffer(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d : (i + 1) * d].mT
    return out


@wrong("sum_of_head_writes", "gives the writes of all heads, not their sum")
def writes_not_summed(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return torch.einsum("bhtd,mhd->bhtm", heads, W_o.unflatten(1, (h, d)))


@right("sum_of_head_writes")
def writes_einsum(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return torch.einsum("bhtd,mhd->btm", heads, W_o.unflatten(1, (h, d)))


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "takes x for (T, B, d_model)", slips=("tokens_first",))
class MhaSeqFirst(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        T, B, D = x.shape
        q, k, v = (
            f(x).view(T, B, self.h, self.d).permute(1, 2, 0, 3)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * self.d**-0.5
        if mask is not None:
            dead = mask.all(-1, keepdim=True)
            w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0)
        else:
            w = s.softmax(-1)
        return self.w_o((w @ v).permute(2, 0, 1, 3).reshape(T, B, D))


@wrong("MultiHeadAttention", "adds mask * -1e9: a blocked row still attends")
class MhaAdditive(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.num_heads, self.depth = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split_heads(self, x, batch_size):
        return x.reshape(batch_size, -1, self.num_heads, self.depth).permute(0, 2, 1, 3)

    def forward(self, x, mask=None):
        batch_size = x.shape[0]
        q = self.split_heads(self.w_q(x), batch_size)
        k = self.split_heads(self.w_k(x), batch_size)
        v = self.split_heads(self.w_v(x), batch_size)
        logits = torch.matmul(q, k.mT) / math.sqrt(self.depth)
        if mask is not None:
            logits += mask * -1e9
        out = torch.softmax(logits, dim=-1) @ v
        out = out.permute(0, 2, 1, 3).reshape(batch_size, -1, self.num_heads * self.depth)
        return self.w_o(out)


@wrong("MultiHeadAttention", "PyTorch's fused call with True = may look")
class MhaSdpaKeep(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(y.transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "one fused layer; w_q, w_k, w_v do not exist")
class MhaFused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_qkv = nn.Linear(d_model, 3 * d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = self.w_qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            dead = mask.all(-1, keepdim=True)
            s = s.masked_fill(mask & ~dead, -math.inf)
            w = s.softmax(-1).masked_fill(dead, 0.0)
        else:
            w = s.softmax(-1)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@right("MultiHeadAttention")
class MhaNoBias(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = s.new_zeros(s.shape, dtype=torch.bool)
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "drops a tenth of the weights in training")
class MhaDropout(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((self.drop(w) @ v).transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "keeps keys and values of earlier calls", slips=("remembers",))
class MhaStateful(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.k_cache = self.v_cache = None

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        if self.k_cache is not None and self.k_cache.shape[0] == k.shape[0]:
            k = torch.cat((self.k_cache, k), dim=2)
            v = torch.cat((self.v_cache, v), dim=2)
        self.k_cache, self.v_cache = k.detach(), v.detach()
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "blanks the output of blocked rows, bias included")
class MhaBlankOutput(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        mask = mask.expand_as(s)
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1)
        y = self.w_o((w @ v).transpose(1, 2).flatten(-2))
        return y.masked_fill(dead.any(dim=1), 0.0)


@right("MultiHeadAttention")
class MhaMaskInPlace(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        dead = mask.all(-1, keepdim=True)
        mask &= ~dead
        w = s.masked_fill(mask, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "always causal, mask or no mask")
class MhaAlwaysCausal(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        T = x.shape[1]
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        mask = future if mask is None else mask | future
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return self.w_o((w @ v).transpose(1, 2).flatten(-2))


@wrong("MultiHeadAttention", "plain parameters instead of nn.Linear layers")
class MhaParameters(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            w = nn.init.xavier_uniform_(torch.empty(d_model, d_model))
            setattr(self, name, nn.Parameter(w))

    def forward(self, x, mask=None):
        q, k, v = (
            (x @ w).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        dead = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~dead, -math.inf).softmax(-1).masked_fill(dead, 0.0)
        return (w @ v).transpose(1, 2).flatten(-2) @ self.w_o


@right("MultiHeadAttention")
class MhaEinsum(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (w(x).unflatten(-1, (self.h, -1)) for w in (self.w_q, self.w_k, self.w_v))
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            s = torch.where(mask, torch.finfo(s.dtype).min, s)
        w = s.softmax(-1)
        if mask is not None:
            w = torch.where(mask, 0.0, w)
        return self.w_o(torch.einsum("bhqk,bkhd->bqhd", w, v).flatten(-2))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "nll_loss of raw logits, no log_softmax")
def loss_nll_raw(logits, tokens):
    return F.nll_loss(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss", "rolls the tokens: the last predicts the first")
def loss_roll(logits, tokens):
    answers = torch.roll(tokens, shifts=-1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


@wrong("next_token_loss", "mean over the classes too: V times too small")
def loss_one_hot_mean(logits, tokens):
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logits.dtype)
    return -(hot * logits[:, :-1].log_softmax(-1)).mean()


@wrong("next_token_loss", "reshape to (B, V, T - 1) instead of a transpose")
def loss_reshape(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits[:, :-1].reshape(B, V, T - 1), tokens[:, 1:])


@wrong("next_token_loss", "bits instead of nats")
def loss_bits(logits, tokens):
    ce = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:])
    return ce / math.log(2)


@right("next_token_loss")
def loss_gather(logits, tokens):
    logp = logits[:, :-1].log_softmax(dim=-1)
    picked = logp.gather(-1, tokens[:, 1:, None].long())
    return -picked.mean()


# --- silence ---


@wrong("silence", "zeroes token i of every head")
def silence_token(heads, i):
    out = heads.clone()
    out[:, :, i] = 0.0
    return out


@wrong("silence", "keeps head i and silences all the others")
def silence_others(heads, i):
    out = torch.zeros_like(heads)
    out[:, i] = heads[:, i]
    return out


@wrong("silence", "counts heads from 1")
def silence_from_one(heads, i):
    out = heads.clone()
    out[:, i - 1] = 0.0
    return out


@wrong("silence", "minus infinity for zero, as in a mask", slips=("one_place",))
def silence_infinity(heads, i):
    out = heads.clone()
    out[:, i] = -math.inf
    return out


@right("silence")
def silence_where(heads, i):
    hit = torch.arange(heads.shape[1], device=heads.device).view(1, -1, 1, 1) == i
    return torch.where(hit, torch.zeros_like(heads), heads)


# --- 13 previous_token_score ---


@wrong("previous_token_score", "stride T on the flat matrix: weight on token 0")
def previous_stride(weights):
    h, T, _ = weights.shape
    return weights.reshape(h, T * T)[:, T::T].mean(-1)


@wrong("previous_token_score", "mean over the heads: one number per query")
def previous_over_heads(weights):
    return weights.diagonal(-1, -2, -1).mean(0)


@wrong("previous_token_score", "keepdim: (n_heads, 1)")
def previous_keepdim(weights):
    return weights.diagonal(-1, -2, -1).mean(-1, keepdim=True)


@wrong("previous_token_score", "rolled: query 0 counts with the last token")
def previous_rolled(weights):
    return torch.roll(weights, 1, dims=2).diagonal(0, 1, 2).mean(-1)


@right("previous_token_score")
def previous_flat(weights):
    h, T, _ = weights.shape
    return weights.flatten(1)[:, T :: T + 1].mean(-1)


# --- solved ---


@wrong("solved", "0 and 1 as int32, not bool")
def solved_int(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).to(torch.int32)


@wrong("solved", "asks whether right is the largest of the whole row")
def solved_argmax(weights, query, right, wrong):
    return weights[:, query].argmax(-1) == right


@wrong("solved", "compares the wrong way round")
def solved_less(weights, query, right, wrong):
    return torch.lt(weights[:, query, right], weights[:, query, wrong])


@wrong("solved", "heads expected in the middle axis")
def solved_middle(weights, query, right, wrong):
    return weights[query, :, right] > weights[query, :, wrong]


@right("solved")
def solved_index_select(weights, query, right, wrong):
    row = weights.select(1, query)
    pair = row.index_select(1, torch.tensor([right, wrong], device=row.device))
    return pair.diff(dim=1).squeeze(1) < 0


# --- 14 count_flops ---


@wrong("count_flops", "every head as wide as d_model in the products")
def flops_wide_heads(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * n_heads * T**2 * d_model


@wrong("count_flops", "counts the softmax as well")
def flops_softmax(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 3 * n_heads * T**2


@wrong("count_flops", "three times: forward and backward")
def flops_training(T, d_model, n_heads):
    return 3 * (8 * T * d_model**2 + 4 * T**2 * d_model)


@wrong("count_flops", "the products are not summed over the heads")
def flops_one_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 8 * T * d_model**2 + 4 * T**2 * d_k


@right("count_flops")
def flops_shift(T, d_model, n_heads):
    return (T * d_model * (2 * d_model + T)) << 2


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "plain mean of the blocks' own attentions")
def block_mean(Q, K, V, block):
    outs = [
        torch.softmax(Q @ k.mT * Q.shape[-1] ** -0.5, -1) @ v
        for k, v in zip(K.split(block), V.split(block))
    ]
    return torch.stack(outs).mean(0)


@wrong("blockwise_attention", "shrinks by exp(new - old): grows instead")
def block_grow(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), -1e30)
    total, mix = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        grow, e = (new - m).exp(), (s - new).exp()
        total, mix, m = total * grow + e.sum(-1, keepdim=True), mix * grow + e @ v, new
    return mix / total


@wrong("blockwise_attention", "block ends one row early")
def block_short(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        end = min(i + block, K.shape[0]) - 1
        s = Q @ K[i:end].mT * Q.shape[-1] ** -0.5
        if s.shape[1] == 0:
            continue
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        f, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * f + e.sum(-1, keepdim=True), mix * f + e @ V[i:end], new
    return mix / total


@wrong("blockwise_attention", "the result lands in a float32 buffer")
def block_float32_out(Q, K, V, block):
    out = torch.empty(Q.shape[0], V.shape[1])
    m = Q.new_full((Q.shape[0], 1), -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        f, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * f + e.sum(-1, keepdim=True), mix * f + e @ V[i : i + block], new
    out[:] = mix / total
    return out


@wrong("blockwise_attention", "maximum starts at 0: very low scores give 0 / 0")
def block_max_from_zero(Q, K, V, block):
    m = Q.new_zeros(Q.shape[0], 1)
    total, mix = Q.new_zeros(Q.shape[0], 1), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        f, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * f + e.sum(-1, keepdim=True), mix * f + e @ V[i : i + block], new
    return mix / total


@wrong("blockwise_attention", "scales by the root of the block size", slips=("by_root_block",))
def block_root_of_block(Q, K, V, block):
    m = Q.new_full((Q.shape[0], 1), -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = Q @ K[i : i + block].mT / math.sqrt(block)
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        f, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * f + e.sum(-1, keepdim=True), mix * f + e @ V[i : i + block], new
    return mix / total


@right("blockwise_attention")
def block_logsumexp(Q, K, V, block):
    lse = torch.full_like(Q[:, :1], -math.inf)
    out = Q.new_zeros(Q.shape[0], V.shape[1])
    for i in range(0, K.shape[0], block):
        s = (Q / Q.shape[-1] ** 0.5) @ K[i : i + block].mT
        here = s.logsumexp(-1, keepdim=True)
        both = torch.logaddexp(lse, here)
        out = out * (lse - both).exp() + (s - here).exp() @ V[i : i + block] * (here - both).exp()
        lse = both
    return out


# --- 16 rotate ---


@wrong("rotate", "float64 comes back, whatever x was")
def rotate_double(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x.double().chunk(2, -1)
    return torch.cat((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1)


@wrong("rotate", "base 1,000")
def rotate_base(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 1e3 ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x.double().chunk(2, -1)
    y = torch.cat((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1)
    return y.to(x.dtype)


@wrong("rotate", "angles in x's own dtype: far too coarse in half precision")
def rotate_half_angle(x, positions):
    half = x.shape[-1] // 2
    speed = 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    ang = positions.to(x.dtype)[:, None] * speed.to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1)


@wrong("rotate", "expects (B, T, h, d_k), positions in the third axis from the end")
def rotate_bthd(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None, None] * 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@wrong("rotate", "complex numbers from the halves, but written back interleaved")
def rotate_complex_mixed(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    z = torch.complex(x[..., :half].double(), x[..., half:].double())
    z = z * torch.polar(torch.ones_like(ang), ang)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@right("rotate")
def rotate_complex(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    ang = torch.outer(positions.double(), torch.exp(-i / half * math.log(1e4)))
    z = torch.complex(x[..., :half].double(), x[..., half:].double())
    z = z * torch.polar(torch.ones_like(ang), ang)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


# --- 17 cached_attention ---


@wrong("cached_attention", "assigns into the pair it was given", slips=("error:written_into",))
def cached_assign(q, k, v, cache):
    if cache is None:
        cache = [k, v]
    else:
        cache[0] = torch.cat((cache[0], k), 2)
        cache[1] = torch.cat((cache[1], v), 2)
    k, v = cache
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (cache[0], cache[1])


_STORE = {}


@wrong(
    "cached_attention", "keeps the cache in a global, the argument is unread", slips=("remembers",)
)
def cached_global(q, k, v, cache):
    key = (q.shape[0], q.shape[1], q.shape[3], q.dtype)
    if key in _STORE:
        k, v = torch.cat((_STORE[key][0], k), 2), torch.cat((_STORE[key][1], v), 2)
    _STORE[key] = (k.detach(), v.detach())
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "takes the number of heads for the number of tokens")
def cached_bthd(q, k, v, cache):
    old = 0 if cache is None else cache[0].shape[1]
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    at = torch.arange(q.shape[1], device=q.device)[:, None] + old
    future = torch.arange(k.shape[2], device=q.device) > at
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(future, -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "the cache comes back as a dict", slips=("not_as_asked",))
def cached_dict(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, {"k": k, "v": v}


@wrong("cached_attention", "diagonal one too far left: nobody sees itself")
def cached_not_self(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n), -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "reads and writes the pair as (v, k)", slips=("pair_exchanged",))
def cached_pair_order(q, k, v, cache):
    if cache is not None:
        old_v, old_k = cache
        k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(
        torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1), -math.inf
    )
    return s.softmax(-1) @ v, (v, k)


@wrong(
    "cached_attention",
    "new tokens see the old and themselves, not each other",
    slips=("only_itself",),
)
def cached_only_self(q, k, v, cache):
    old = 0 if cache is None else cache[0].shape[2]
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n = q.shape[2]
    open_ = torch.cat((torch.ones(n, old, device=q.device), torch.eye(n, device=q.device)), 1)
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(open_ == 0, -math.inf)
    return s.softmax(-1) @ v, (k, v)


@right("cached_attention")
def cached_old_and_new(q, k, v, cache):
    n = q.shape[2]
    scale = q.shape[-1] ** -0.5
    new = q @ k.mT * scale
    tri = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    new = new.masked_fill(~tri, -math.inf)
    if cache is None:
        return new.softmax(-1) @ v, (k, v)
    old_k, old_v = cache
    w = torch.cat((q @ old_k.mT * scale, new), -1).softmax(-1)
    wo, wn = w.split([old_k.shape[2], n], dim=-1)
    return wo @ old_v + wn @ v, (torch.cat((old_k, k), 2), torch.cat((old_v, v), 2))


# --- 18 grouped_scores ---


@wrong("grouped_scores", "the group stays an axis of its own: five axes")
def grouped_five_axes(q, k):
    g = k.shape[1]
    q = q.unflatten(1, (g, -1))
    return torch.einsum("bgrqd,bgkd->bgrqk", q, k) * q.shape[-1] ** -0.5


@wrong("grouped_scores", "one mean key head for all query heads")
def grouped_mean_key(q, k):
    return q @ k.mean(1, keepdim=True).mT * q.shape[-1] ** -0.5


@wrong("grouped_scores", "ratio upside down: repeats zero times")
def grouped_ratio(q, k):
    k = k.repeat_interleave(k.shape[1] // q.shape[1], dim=1)
    return q @ k.mT * q.shape[-1] ** -0.5


@wrong("grouped_scores", "key head i // h_kv instead of i // (h / h_kv)")
def grouped_wrong_divisor(q, k):
    i = torch.arange(q.shape[1], device=q.device) // k.shape[1]
    return q @ k[:, i].mT * q.shape[-1] ** -0.5


@wrong(
    "grouped_scores", "scale by the root of heads, axis 1 for the last", slips=("by_root_axis_1",)
)
def grouped_scale_heads(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT * q.shape[1] ** -0.5


@wrong("grouped_scores", "group size 4 as a constant")
def grouped_constant(q, k):
    return q @ k.repeat_interleave(4, dim=1).mT * q.shape[-1] ** -0.5


@right("grouped_scores")
def grouped_einsum(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return torch.einsum("bgrqd,bgkd->bgrqk", q * q.shape[-1] ** -0.5, k).flatten(1, 2)


# --- 19 cached_mask ---


@wrong("cached_mask", "an additive float mask")
def cmask_additive(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)
    b = k > q
    if window is not None:
        b = b | (q - k >= window)
    return torch.zeros(b.shape).masked_fill(b, -math.inf)


@wrong("cached_mask", "window to both sides: the future is open")
def cmask_both_sides(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)
    if window is None:
        return k > q
    return (q - k).abs() >= window


@wrong("cached_mask", "query positions counted from 1")
def cmask_from_one(n_new, n_cached, window):
    q = torch.arange(1, n_new + 1)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)
    b = k > q
    return b if window is None else b | (q - k >= window)


@wrong("cached_mask", "and for or: nothing is both future and far back")
def cmask_and(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)
    b = k > q
    return b if window is None else b & (q - k >= window)


@right("cached_mask")
def cmask_two_triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    future = ones.triu(n_cached + 1)
    return future if window is None else future | ones.tril(n_cached - window)
