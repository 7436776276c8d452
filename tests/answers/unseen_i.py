"""Learners at home in numpy and in loops, and learners who come from another tutorial.

The first know arrays well and torch hardly: axes by habit, slices, copies, dtypes that numpy would
have chosen. The others have other conventions in their fingers: sequence first, packed q, k, v,
True means attend, weights as keys by queries.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "** 1 / 2 is not a root: divides by d_k and then by 2")
def scores_power_one_half(Q, K):
    return Q @ K.swapaxes(-1, -2) / Q.shape[-1] ** 1 / 2


@wrong("attention_scores", "computed in numpy, so no gradient gets through")
def scores_numpy(Q, K):
    q, k = Q.detach().numpy(), K.detach().numpy()
    s = np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1])
    return torch.from_numpy(s.astype(q.dtype))


@wrong(
    "attention_scores",
    "torch.inner pairs every batch element with every other",
    slips=("relation:crossed",),
)
def scores_inner(Q, K):
    return torch.inner(Q, K) / math.sqrt(K.shape[-1])


@wrong("attention_scores", "tokens are taken to be columns: Q transposed times K")
def scores_columns(Q, K):
    d_k = Q.shape[-1]
    return (Q.swapaxes(-1, -2) @ K) / np.sqrt(d_k)


@wrong("attention_scores", "the array it fills is float32, whatever the input's dtype")
def scores_filled_array(Q, K):
    S = torch.zeros(*Q.shape[:-1], K.shape[-2])
    for i in range(Q.shape[-2]):
        for j in range(K.shape[-2]):
            S[..., i, j] = (Q[..., i, :] * K[..., j, :]).sum(axis=-1)
    return S / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "einsum for sequence first, (T, B, d_k), with three axes only")
def scores_seq_first(Q, K):
    s = torch.einsum("qbd,kbd->bqk", Q, K)
    return s * Q.size(-1) ** -0.5


@wrong("attention_scores", "the root of d_k is cut to a whole number")
def scores_int_root(Q, K):
    scale = int(np.sqrt(Q.shape[-1]))
    return torch.matmul(Q, K.transpose(-1, -2)) / scale


# --- 2 attention ---


@wrong("attention", "softmax by hand without taking the maximum off: overflows")
def attention_bare_exp(Q, K, V):
    e = torch.exp(Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1]))
    w = e / e.sum(axis=-1, keepdims=True)
    return w @ V, w


@wrong("attention", "divides by the sum of the whole array, not of each row")
def attention_whole_sum(Q, K, V):
    s = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    e = torch.exp(s - s.max())
    w = e / e.sum()
    return w @ V, w


@wrong(
    "attention", "rows are stacked at axis 0, before the batch axes", slips=("relation:moved_axes",)
)
def attention_stack_rows(Q, K, V):
    outs, rows = [], []
    for i in range(Q.shape[-2]):
        q = Q[..., i : i + 1, :]
        w = torch.softmax(q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]), dim=-1)
        rows.append(w[..., 0, :])
        outs.append((w @ V)[..., 0, :])
    return torch.stack(outs), torch.stack(rows)


@wrong("attention", "weights are given as (T_k, T_q), keys by queries")
def attention_keys_by_queries(Q, K, V):
    s = K @ Q.transpose(-2, -1) / Q.shape[-1] ** 0.5
    w = s.softmax(dim=-2)
    return w.transpose(-2, -1) @ V, w


@wrong("attention", "softmax along axis 0, the first one there is")
def attention_axis_zero(Q, K, V):
    s = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    w = torch.softmax(s, 0)
    return torch.matmul(w, V), w


@wrong("attention", "gives the scores in place of the weights")
def attention_gives_scores(Q, K, V):
    s = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    return s.softmax(-1) @ V, s


# --- 3 project_qkv ---


@wrong("project_qkv", "W_qkv is reshaped to (in, out) instead of transposed")
def project_reshaped_w(X, W_qkv):
    d = X.shape[-1]
    Y = X @ W_qkv.reshape(d, 3 * d)
    return Y[..., :d], Y[..., d : 2 * d], Y[..., 2 * d :]


@wrong("project_qkv", "takes q, k, v in turn, every third column")
def project_interleaved(X, W_qkv):
    Y = X @ W_qkv.T
    return Y[..., 0::3], Y[..., 1::3], Y[..., 2::3]


@wrong("project_qkv", "split(3) cuts pieces of 3 columns, not 3 pieces")
def project_split_three(X, W_qkv):
    return torch.split(X @ W_qkv.T, 3, dim=-1)[:3]


@wrong("project_qkv", "reshape to (3, B, T, d_model): the packed axis is the last, not the first")
def project_packed_first(X, W_qkv):
    B, T, d = X.shape
    q, k, v = (X @ W_qkv.T).reshape(3, B, T, d)
    return q, k, v


@wrong("project_qkv", "the packed rows are read as K, Q, V")
def project_kqv(X, W_qkv):
    k, q, v = F.linear(X, W_qkv).chunk(3, dim=-1)
    return q, k, v


@wrong("project_qkv", "cuts along axis 1, the tokens")
def project_chunk_tokens(X, W_qkv):
    Y = torch.einsum("btd,ed->bte", X, W_qkv)
    q, k, v = torch.chunk(Y, 3, dim=1)
    return q, k, v


# --- 4 count_parameters ---


@wrong("count_parameters", "counts in an array of floats and gives a float")
def count_array(d_model, n_heads, d_k):
    sizes = np.zeros(4)
    sizes[:3] = d_model * n_heads * d_k
    sizes[3] = n_heads * d_k * d_model
    return sizes.sum()


@wrong("count_parameters", "d_k is replaced by d_model // n_heads")
def count_own_dk(d_model, n_heads, d_k):
    d_k = d_model // n_heads
    return 4 * d_model * n_heads * d_k


@wrong("count_parameters", "W_o is taken to be (d_model, d_model)")
def count_square_wo(d_model, n_heads, d_k):
    total = 0
    for _ in range(n_heads):
        total += 3 * d_model * d_k
    return total + d_model * d_model


@wrong("count_parameters", "W_o is counted for one head only")
def count_narrow_wo(d_model, n_heads, d_k):
    w_qkv = np.empty((3, n_heads, d_model, d_k)).size
    w_o = np.empty((d_k, d_model)).size
    return w_qkv + w_o


@wrong("count_parameters", "biases are counted too")
def count_with_bias(d_model, n_heads, d_k):
    width = n_heads * d_k
    layers = [nn.Linear(d_model, width) for _ in range(3)] + [nn.Linear(width, d_model)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


@wrong("count_parameters", "adds the two sides of a matrix instead of multiplying them")
def count_sum_of_sides(d_model, n_heads, d_k):
    shapes = [(n_heads * d_k, d_model)] * 3 + [(d_model, n_heads * d_k)]
    return int(np.sum(shapes))


# --- 5 split_heads ---


@wrong(
    "split_heads",
    "numpy's transpose with four axes, which torch does not know",
    slips=("error:numpy_transpose",),
)
def split_numpy_transpose(x, n_heads):
    B, T, d = x.shape
    return x.reshape(B, T, n_heads, d // n_heads).transpose(0, 2, 1, 3)


@wrong("split_heads", "reshapes straight to (B, h, T, d_k)")
def split_reshape_only(x, n_heads):
    B, T, d = x.shape
    return x.reshape((B, n_heads, T, -1))


@wrong("split_heads", "stacks the heads at axis 0: (h, B, T, d_k)")
def split_stack_zero(x, n_heads):
    parts = torch.chunk(x, n_heads, dim=-1)
    return torch.stack(parts)


@wrong("split_heads", "head i starts at column i * h")
def split_wrong_start(x, n_heads):
    B, T, d = x.shape
    d_k = d // n_heads
    out = x.new_zeros(B, n_heads, T, d_k)
    for i in range(n_heads):
        out[:, i] = x[:, :, i * n_heads : i * n_heads + d_k]
    return out


@wrong("split_heads", "batch and heads in one axis: (B * h, T, d_k)")
def split_folded(x, n_heads):
    B, T, d = x.shape
    x = x.reshape(B, T, n_heads, d // n_heads)
    return x.permute(0, 2, 1, 3).reshape(B * n_heads, T, d // n_heads)


@wrong("split_heads", "takes x as sequence first: gives (T, h, B, d_k)")
def split_seq_first(x, n_heads):
    T, B, d = x.shape
    return x.reshape(T, B, n_heads, d // n_heads).permute(1, 2, 0, 3)


# --- 6 merge_heads ---


@wrong("merge_heads", "reshapes without moving an axis")
def merge_reshape_only(x):
    B, h, T, d_k = x.shape
    return x.reshape(B, T, h * d_k)


@wrong("merge_heads", "concatenates the sequences of the batch, not the heads")
def merge_cat_batch(x):
    return torch.cat(list(x), dim=-1)


@wrong("merge_heads", "each head is put before the others: head 0 comes last")
def merge_prepends(x):
    out = x[:, 0]
    for i in range(1, x.shape[1]):
        out = torch.cat([x[:, i], out], axis=-1)
    return out


@wrong("merge_heads", "np.transpose of all axes turned round before the reshape")
def merge_all_axes(x):
    B, h, T, d_k = x.shape
    return x.permute(3, 2, 1, 0).reshape(B, T, h * d_k)


@wrong("merge_heads", "h after d_k: the heads' columns lie interleaved")
def merge_interleaved(x):
    B, h, T, d_k = x.shape
    rows = [[x[b, :, t].T.reshape(-1) for t in range(T)] for b in range(B)]
    return torch.stack([torch.stack(row) for row in rows])


@wrong("merge_heads", "heads are put one below the other: (B, h * T, d_k)")
def merge_along_tokens(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=1)


# --- 7 causal_mask ---


@wrong("causal_mask", "True means attend: True where the key is not later")
def causal_attend(T):
    return torch.tril(torch.ones((T, T), dtype=torch.bool))


@wrong("causal_mask", "a numpy array, not a tensor")
def causal_numpy(T):
    return np.triu(np.ones((T, T), dtype=bool), k=1)


@wrong("causal_mask", "indices the wrong way round: the past is blocked")
def causal_rows_later(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(T):
            m[i, j] = i > j
    return m


@wrong("causal_mask", "slice from i: a token may not look at itself")
def causal_slice_self(T):
    m = torch.zeros(T, T).bool()
    for i in range(T):
        m[i, i:] = True
    return m


@wrong("causal_mask", "minus infinity and 0 to add, not a bool mask")
def causal_additive(T):
    return torch.triu(torch.full((T, T), float("-inf")), diagonal=1)


@wrong("causal_mask", "the tutorial's buffer: shape (1, 1, T, T)")
def causal_buffer(T):
    bias = torch.tril(torch.ones(T, T)).view(1, 1, T, T)
    return bias == 0


# --- 8 padding_mask ---


@wrong("padding_mask", "goes through numpy: works on the CPU only")
def padding_numpy(lengths, T):
    pos = np.arange(T)
    m = pos[None, :] >= lengths.numpy()[:, None]
    return torch.from_numpy(m)[:, None, None, :]


@wrong("padding_mask", "True at the real tokens")
def padding_attend(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos[None, :] < lengths[:, None]).unsqueeze(1).unsqueeze(1)


@wrong("padding_mask", "queries are blocked instead of keys: (B, 1, T, 1)")
def padding_query_axis(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos >= lengths[:, None])[:, None, :, None]


@wrong("padding_mask", "each slice starts one late: the first padding key stays open")
def padding_slice_late(lengths, T):
    m = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths):
        m[b, :, :, n + 1 :] = True
    return m


@wrong("padding_mask", "padding queries are blocked too: (B, 1, T, T)")
def padding_both(lengths, T):
    real = torch.arange(T, device=lengths.device)[None] < lengths[:, None]
    attend = real[:, :, None] & real[:, None, :]
    return ~attend[:, None]


@wrong("padding_mask", "counts from the end: with length n, n keys are blocked there")
def padding_negative_slice(lengths, T):
    m = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for b, n in enumerate(lengths.tolist()):
        m[b, 0, 0, -n:] = True
    return m


# --- 9 masked_softmax ---


@wrong("masked_softmax", "blocked scores are multiplied by 0, which is no small score")
def softmax_times_zero(scores, mask):
    return torch.softmax(scores * ~mask, dim=-1)


@wrong("masked_softmax", "True means attend: blocks all that should stay open")
def softmax_attend(scores, mask):
    w = scores.masked_fill(mask == 0, float("-inf")).softmax(dim=-1)
    return torch.nan_to_num(w)


@wrong("masked_softmax", "np.where with -1e9: an empty row spreads evenly")
def softmax_minus_billion(scores, mask):
    s = torch.where(mask, torch.tensor(-1e9, dtype=scores.dtype), scores)
    e = torch.exp(s - s.amax(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@wrong("masked_softmax", "row by row with a mask of full shape only; others do not fit")
def softmax_row_loop(scores, mask):
    rows, m = scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1])
    out = torch.zeros_like(rows)
    for i in range(len(rows)):
        out[i, ~m[i]] = torch.softmax(rows[i, ~m[i]], dim=0)
    return out.reshape(scores.shape)


@wrong("masked_softmax", "blocked weights are zeroed, the rows no longer add up to one")
def softmax_zero_after(scores, mask):
    w = torch.softmax(scores, dim=-1).clone()
    w[mask.expand_as(w)] = 0
    return w


@wrong("masked_softmax", "minus infinity is added: the gradient of an empty row is NaN")
def softmax_added_inf(scores, mask):
    bias = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -np.inf)
    w = torch.softmax(scores + bias, dim=-1)
    return torch.where(torch.isnan(w), torch.zeros_like(w), w)


@wrong("masked_softmax", "takes the maximum off over blocked keys too: open ones underflow")
def softmax_max_of_all(scores, mask):
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * ~mask
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "takes rows of W_o instead of columns")
def writes_rows(heads, W_o):
    B, h, T, d_k = heads.shape
    out = 0
    for i in range(h):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k]
    return out


@wrong("sum_of_head_writes", "= for +=: only the last head is left")
def writes_last_only(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    for i in range(h):
        out[:] = heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@wrong("sum_of_head_writes", "head i gets every h-th column of W_o")
def writes_strided(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].T for i in range(h))


@wrong("sum_of_head_writes", "sums over the batch instead of the heads")
def writes_sum_batch(heads, W_o):
    d_k = heads.shape[-1]
    parts = [heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T for i in range(heads.shape[1])]
    return torch.stack(parts).sum(axis=1)


@wrong("sum_of_head_writes", "W_o is reshaped to (h, d_k, d_model) as if it were (in, out)")
def writes_in_out(heads, W_o):
    B, h, T, d_k = heads.shape
    slabs = W_o.reshape(h, d_k, -1)
    return torch.einsum("bhtk,hkd->btd", heads, slabs)


@wrong("sum_of_head_writes", "the running sum is float32, whatever the input's dtype")
def writes_float32(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros((B, T, W_o.shape[0]))
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "True means attend: what is False gets -inf")
class AttendMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q = self.w_q(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.d_k))
        if mask is not None:
            att = att.masked_fill(mask == 0, -1e9)
        att = F.softmax(att, dim=-1)
        if mask is not None:
            att = att * mask.any(dim=-1, keepdim=True)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.w_o(y)


@wrong("MultiHeadAttention", "q, k and v in one packed layer c_attn; no w_q, w_k, w_v")
class PackedLayer(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_head = n_heads
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        if mask is not None:
            empty = mask.all(-1, keepdim=True)
            att = att.masked_fill(mask & ~empty, float("-inf")).softmax(-1)
            att = att.masked_fill(empty, 0.0)
        else:
            att = att.softmax(-1)
        return self.w_o((att @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "the mask is transposed: keys by queries")
class TransposedMask(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        q, k, v = (
            lin(x).reshape(B, T, self.n_heads, -1).permute(0, 2, 1, 3)
            for lin in (self.w_q, self.w_k, self.w_v)
        )
        s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(d // self.n_heads)
        if mask is not None:
            mask = mask.transpose(-2, -1)
            empty = mask.all(-1, keepdim=True)
            w = s.masked_fill(mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0.0)
        else:
            w = s.softmax(-1)
        return self.w_o((w @ v).permute(0, 2, 1, 3).reshape(B, T, d))


@wrong("MultiHeadAttention", "loops over heads with a mask of four axes on scores of three")
class LoopMaskAxes(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        Q, K, V = self.w_q(x), self.w_k(x), self.w_v(x)
        outs = []
        for i in range(self.n_heads):
            cols = slice(i * self.d_k, (i + 1) * self.d_k)
            s = Q[..., cols] @ K[..., cols].transpose(1, 2) / math.sqrt(self.d_k)
            if mask is not None:
                empty = mask.all(axis=-1, keepdims=True)
                w = s.masked_fill(mask & ~empty, -np.inf).softmax(-1).masked_fill(empty, 0.0)
            else:
                w = s.softmax(-1)
            outs.append(w @ V[..., cols])
        return self.w_o(torch.cat(outs, dim=-1))


@wrong("MultiHeadAttention", "takes x as sequence first, (T, B, d_model): attends over the batch")
class SequenceFirst(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        T, B, d = x.shape
        d_k = d // self.n_heads
        q = self.w_q(x).view(T, B * self.n_heads, d_k).transpose(0, 1)
        k = self.w_k(x).view(T, B * self.n_heads, d_k).transpose(0, 1)
        v = self.w_v(x).view(T, B * self.n_heads, d_k).transpose(0, 1)
        s = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d_k)
        if mask is not None:
            s = s.masked_fill(mask, -1e30)
        w = torch.softmax(s, dim=-1)
        out = torch.bmm(w, v).transpose(0, 1).reshape(T, B, d)
        return self.w_o(out)


@wrong("MultiHeadAttention", "heads are fetched as arrays: no gradient reaches w_q, w_k, w_v, x")
class NumpyHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        h = self.n_heads
        split = [
            w(x).detach().numpy().reshape(B, T, h, d // h).transpose(0, 2, 1, 3)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        q, k, v = split
        s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.array(d // h, dtype=q.dtype))
        m = np.zeros_like(s, dtype=bool)
        if mask is not None:
            m = np.broadcast_to(mask.numpy(), s.shape)
        top = np.where(m, -1e30, s).max(axis=-1, keepdims=True).astype(s.dtype)
        e = np.where(m, 0, np.exp(np.minimum(s - top, 0)))
        w = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-30)
        out = (w @ v).transpose(0, 2, 1, 3).reshape(B, T, d).astype(s.dtype)
        return self.w_o(torch.from_numpy(out))


@wrong("MultiHeadAttention", "reshapes straight to (B, h, T, d_k) and straight back")
class ReshapeThereAndBack(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        shape = (B, self.n_heads, T, d // self.n_heads)
        q, k, v = [w(x).reshape(shape) for w in (self.w_q, self.w_k, self.w_v)]
        s = q @ k.swapaxes(2, 3) / math.sqrt(shape[-1])
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        empty = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0)
        return self.w_o((w @ v).reshape(B, T, d))


@wrong("MultiHeadAttention", "the layers are named wq, wk, wv, wo")
class OtherNames(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        empty = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0)
        return self.wo((w @ v).transpose(1, 2).reshape(B, T, d))


@wrong(
    "MultiHeadAttention",
    "gives a pair, the output and the weights, as nn.MultiheadAttention",
    slips=("more_than_asked",),
)
class GivesPair(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.zeros_like(s, dtype=torch.bool)
        empty = mask.all(-1, keepdim=True)
        w = s.masked_fill(mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, d)), w.mean(dim=1)


@wrong("MultiHeadAttention", "a loop over heads takes every h-th column for a head")
class StridedHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d = x.shape
        Q, K, V = self.w_q(x), self.w_k(x), self.w_v(x)
        if mask is None:
            mask = torch.zeros(1, 1, T, T, dtype=torch.bool, device=x.device)
        m = mask.broadcast_to(B, self.h, T, T)
        z = []
        for i in range(self.h):
            q, k, v = Q[:, :, i :: self.h], K[:, :, i :: self.h], V[:, :, i :: self.h]
            s = q @ k.swapaxes(1, 2) / math.sqrt(d // self.h)
            empty = m[:, i].all(dim=-1, keepdim=True)
            w = s.masked_fill(m[:, i] & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0)
            z.append(w @ v)
        return self.w_o(torch.cat(z, dim=-1))


@wrong("MultiHeadAttention", "np.where with -1e9: a blocked row gets the mean of all values")
class WhereMinusBillion(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def heads(self, y):
        return y.unflatten(-1, (self.n_heads, self.d_k)).swapaxes(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self.heads(self.w_q(x)), self.heads(self.w_k(x)), self.heads(self.w_v(x))
        s = q @ k.swapaxes(2, 3) / np.sqrt(self.d_k)
        if mask is not None:
            s = torch.where(mask, -1e9, s)
        w = torch.softmax(s, axis=-1)
        return self.w_o((w @ v).swapaxes(1, 2).flatten(2))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "divides by B * T, though each row has T - 1 predictions")
def loss_loop_bt(logits, tokens):
    logp = torch.log_softmax(logits, dim=-1)
    B, T = tokens.shape
    total = 0.0
    for b in range(B):
        for t in range(T - 1):
            total = total - logp[b, t, tokens[b, t + 1]]
    return total / (B * T)


@wrong("next_token_loss", "np.roll for the shift: the last position must predict the first token")
def loss_rolled(logits, tokens):
    target = torch.roll(tokens, shifts=-1, dims=1)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


@wrong("next_token_loss", "reshape to (B, V, T - 1) for the class axis, where it must be moved")
def loss_reshaped_classes(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits[:, :-1].reshape(B, V, T - 1), tokens[:, 1:])


@wrong("next_token_loss", "log of exp over its sum by hand: overflows with large logits")
def loss_bare_exp(logits, tokens):
    p = torch.exp(logits[:, :-1])
    p = p / p.sum(axis=-1, keepdims=True)
    rows, cols = np.indices(tokens[:, 1:].shape)
    return -torch.log(p[rows, cols, tokens[:, 1:]]).mean()


@wrong("next_token_loss", "sums over the tokens and averages over the batch only")
def loss_sum_tokens(logits, tokens):
    logp = logits[:, :-1].log_softmax(dim=-1)
    picked = torch.take_along_dim(logp, tokens[:, 1:, None], dim=-1)[..., 0]
    return -picked.sum(axis=1).mean()


@wrong("next_token_loss", "log2 instead of the natural logarithm")
def loss_log2(logits, tokens):
    p = torch.softmax(logits[:, :-1], dim=-1)
    picked = p.gather(2, tokens[:, 1:].unsqueeze(2))
    return -picked.log2().mean()


# --- 13 previous_token_score ---


@wrong("previous_token_score", "row 0 counts with index -1, its last key, and T rows are averaged")
def previous_wraps(weights):
    T = weights.shape[-1]
    i = np.arange(T)
    return weights[:, i, i - 1].mean(axis=-1)


@wrong("previous_token_score", "the mean of the whole block [1:, :-1], not of its diagonal")
def previous_block_mean(weights):
    return weights[:, 1:, :-1].mean(axis=(1, 2))


@wrong("previous_token_score", "diagonal takes axes 0 and 1, heads and queries")
def previous_default_axes(weights):
    return torch.diagonal(weights, -1).mean(axis=-1)


@wrong("previous_token_score", "fetches numbers into a new tensor: always float32, no gradient")
def previous_items(weights):
    h, T, _ = weights.shape
    scores = []
    for n in range(h):
        scores.append(np.mean([weights[n, t, t - 1].item() for t in range(1, T)]))
    return torch.tensor([float(s) for s in scores])


@wrong("previous_token_score", "weights are read as keys by queries: the next token's share")
def previous_transposed(weights):
    T = weights.shape[-1]
    return sum(weights[:, t - 1, t] for t in range(1, T)) / (T - 1)


@wrong("previous_token_score", "divides by T instead of T - 1")
def previous_trace(weights):
    T = weights.shape[-1]
    return torch.stack([torch.trace(w[1:, :-1]) for w in weights]) / T


# --- silence ---


@wrong("silence", "a slice is a view, no copy: the input is changed")
def silence_slice_copy(heads, i):
    quiet = heads[:]
    quiet[:, i] = 0
    return quiet


@wrong("silence", "gives a numpy array")
def silence_numpy(heads, i):
    quiet = heads.numpy().copy()
    quiet[:, i] = 0
    return quiet


@wrong("silence", "np.delete: the head is taken away, one is missing")
def silence_delete(heads, i):
    keep = [n for n in range(heads.shape[1]) if n != i]
    return heads[:, keep]


@wrong("silence", "a factor for each head that is laid along the last axis")
def silence_last_axis(heads, i):
    factor = heads.new_ones(heads.shape[1])
    factor[i] = 0
    return heads * factor


@wrong("silence", "index on axis 0: sequence i is silenced, not head i")
def silence_first_axis(heads, i):
    quiet = heads.clone()
    quiet[i, ...] = 0.0
    return quiet


@wrong(
    "silence", "heads are put first and left there: (h, B, T, d_k)", slips=("relation:moved_axes",)
)
def silence_heads_first(heads, i):
    quiet = heads.swapaxes(0, 1).clone()
    quiet[i] = 0
    return quiet


# --- solved ---


@wrong("solved", "asks whether the right key has the largest weight of all")
def solved_argmax(weights, query, right, wrong):
    return weights[:, query].argmax(axis=-1) == right


@wrong("solved", "weights are read as keys by queries")
def solved_transposed(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", "np.sign of the difference: numbers, not bool")
def solved_sign(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong])


@wrong("solved", "first index taken for the query: that is a head")
def solved_query_first(weights, query, right, wrong):
    return weights[query, :, right] > weights[query, :, wrong]


@wrong("solved", "a tie counts as a yes")
def solved_not_less(weights, query, right, wrong):
    return ~(weights[:, query, right] < weights[:, query, wrong])


@wrong("solved", "one answer for all heads together")
def solved_all(weights, query, right, wrong):
    return torch.all(weights[:, query, right] > weights[:, query, wrong])


# --- 14 count_flops ---


@wrong("count_flops", "a multiply-add counted as 1")
def flops_macs(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 4 * T * d_model**2 + n_heads * (T * d_k * T + T * T * d_k)


@wrong("count_flops", "divides with / and gives a float")
def flops_true_division(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model**2 + 4 * n_heads * T**2 * d_k


@wrong("count_flops", "three projections: the output's is left out")
def flops_packed_only(T, d_model, n_heads):
    packed = 2 * T * d_model * 3 * d_model
    return packed + 4 * T * T * d_model


@wrong("count_flops", "each head's products are d_model wide")
def flops_wide_heads(T, d_model, n_heads):
    total = 0
    for _ in range(4):
        total += 2 * T * d_model * d_model
    for _ in range(n_heads):
        total += 2 * T * T * d_model + 2 * T * T * d_model
    return total


@wrong("count_flops", "n * m * (2p - 1): one addition fewer for each number")
def flops_exact_adds(T, d_model, n_heads):
    def matmul(n, p, m):
        return n * m * (2 * p - 1)

    d_k = d_model // n_heads
    projections = 4 * matmul(T, d_model, d_model)
    return projections + n_heads * (matmul(T, d_k, T) + matmul(T, T, d_k))


@wrong("count_flops", "T instead of T * T in the two products of attention")
def flops_one_t(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 2 * 4 * T * d_model * d_model + 2 * 2 * n_heads * T * d_k


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "len(K) // block blocks: the keys that are left over drop out")
def blocks_whole_only(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -1e30)
    den, num = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for n in range(max(len(K) // block, 1)):
        i = n * block
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e, c = torch.exp(s - new), torch.exp(m - new)
        den, num, m = den * c + e.sum(1, keepdim=True), num * c + e @ V[i : i + block], new
    return num / den


@wrong("blockwise_attention", "np.array_split's idea: block is the number of blocks")
def blocks_as_number(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -1e30)
    den, num = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.chunk(block), V.chunk(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e, c = torch.exp(s - new), torch.exp(m - new)
        den, num, m = den * c + e.sum(1, keepdim=True), num * c + e @ v, new
    return num / den


@wrong("blockwise_attention", "cuts the queries into blocks: each holds the scores of all keys")
def blocks_of_queries(Q, K, V, block):
    out = []
    for i in range(0, len(Q), block):
        s = Q[i : i + block] @ K.T / math.sqrt(Q.shape[1])
        out.append(torch.softmax(s, dim=1) @ V)
    return torch.cat(out)


@wrong("blockwise_attention", "a softmax of each block, and the mean of the blocks")
def blocks_mean(Q, K, V, block):
    parts = []
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        parts.append(torch.softmax(s, dim=1) @ V[i : i + block])
    return torch.stack(parts).mean(axis=0)


@wrong("blockwise_attention", "no maximum taken off: exp overflows for large scores")
def blocks_bare_exp(Q, K, V, block):
    num, den = 0, 0
    for i in range(0, len(K), block):
        e = torch.exp(Q @ K[i : i + block].T / math.sqrt(Q.shape[1]))
        num = num + e @ V[i : i + block]
        den = den + e.sum(axis=1, keepdims=True)
    return num / den


@wrong("blockwise_attention", "running sum and mix are float32, whatever the input's dtype")
def blocks_float32(Q, K, V, block):
    m = torch.full((len(Q), 1), -1e30)
    den, num = torch.zeros(len(Q), 1), torch.zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        s = (Q @ K[i : i + block].T / math.sqrt(Q.shape[1])).float()
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e, c = torch.exp(s - new), torch.exp(m - new)
        den = den * c + e.sum(1, keepdim=True)
        num = num * c + e @ V[i : i + block].float()
        m = new
    return num / den


# --- 16 rotate ---


@wrong("rotate", "angles in float64 turn the result into float64")
def rotate_float64(x, positions):
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-np.arange(half) / half)
    angle = torch.from_numpy(np.outer(positions.numpy(), speed))
    a, b = x[..., :half], x[..., half:]
    c, s = torch.cos(angle), torch.sin(angle)
    return torch.cat((a * c - b * s, a * s + b * c), dim=-1)


@wrong("rotate", "pairs neighbours, 2i with 2i + 1, as complex numbers")
def rotate_complex_pairs(x, positions):
    d = x.shape[-1]
    speed = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device).double() / d)
    angle = positions[:, None].double() * speed
    z = torch.view_as_complex(x.double().reshape(*x.shape[:-1], d // 2, 2).contiguous())
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


@wrong("rotate", "np.arange(T) in place of the positions it was given")
def rotate_own_positions(x, positions):
    T, d = x.shape[-2:]
    half = d // 2
    speed = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = torch.arange(T, device=x.device)[:, None] * speed
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * c - b * s, a * s + b * c), dim=-1)


@wrong("rotate", "turns the other way: rows of the rotation matrix swapped")
def rotate_clockwise(x, positions):
    half = x.shape[-1] // 2
    out = torch.empty_like(x)
    for i in range(half):
        angle = positions.double() * 10000.0 ** (-2 * i / x.shape[-1])
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        out[..., i] = x[..., i] * c + x[..., i + half] * s
        out[..., i + half] = x[..., i + half] * c - x[..., i] * s
    return out


@wrong("rotate", "fills in place: the second line already reads the turned number")
def rotate_overwritten(x, positions):
    half = x.shape[-1] // 2
    out = x.clone()
    for i in range(half):
        angle = positions.double() * 10000.0 ** (-2 * i / x.shape[-1])
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        out[..., i] = out[..., i] * c - out[..., i + half] * s
        out[..., i + half] = out[..., i] * s + out[..., i + half] * c
    return out


@wrong("rotate", "np.interleave: the turned halves lie in turn, not one after the other")
def rotate_stacked_last(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10000.0 ** (-i / half)
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2)


# --- 17 cached_attention ---


@wrong("cached_attention", "new keys and values are put before the old ones")
def cached_new_first(q, k, v, cache):
    if cache is not None:
        k = torch.cat([k, cache[0]], axis=2)
        v = torch.cat([v, cache[1]], axis=2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, dim=-1) @ v, (k, v)


@wrong("cached_attention", "no mask: a new token sees the new ones after it")
def cached_no_mask(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "each new token sees the cache and itself, no other new token")
def cached_each_alone(q, k, v, cache):
    out = []
    for t in range(q.shape[2]):
        kt, vt = k[:, :, t : t + 1], v[:, :, t : t + 1]
        if cache is not None:
            kt, vt = torch.cat((cache[0], kt), 2), torch.cat((cache[1], vt), 2)
        s = q[:, :, t : t + 1] @ kt.swapaxes(2, 3) / math.sqrt(q.shape[-1])
        out.append(torch.softmax(s, -1) @ vt)
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    return torch.cat(out, 2), (k, v)


@wrong("cached_attention", "loop slices up to t, itself left out")
def cached_slice_short(q, k, v, cache):
    n_old = 0
    if cache is not None:
        n_old = cache[0].shape[2]
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    out = []
    for t in range(q.shape[2]):
        seen = max(n_old + t, 1)
        s = q[:, :, t : t + 1] @ k[:, :, :seen].swapaxes(2, 3) / math.sqrt(q.shape[-1])
        out.append(torch.softmax(s, -1) @ v[:, :, :seen])
    return torch.cat(out, 2), (k, v)


@wrong("cached_attention", "triu counts from the top left: old tokens are blocked")
def cached_np_triu(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    blocked = torch.from_numpy(np.triu(np.ones((q.shape[2], k.shape[2]), dtype=bool), 1))
    s = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    s = s.masked_fill(blocked.to(q.device), -np.inf)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "the longer cache holds the new tokens only")
def cached_returns_new(q, k, v, cache):
    n_old = 0 if cache is None else cache[0].shape[2]
    K = k if cache is None else torch.cat((cache[0], k), 2)
    V = v if cache is None else torch.cat((cache[1], v), 2)
    blocked = torch.ones(q.shape[2], K.shape[2], dtype=torch.bool, device=q.device)
    s = q @ K.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    s = s.masked_fill(blocked.triu(n_old + 1), -np.inf)
    return torch.softmax(s, -1) @ V, (k, v)


@wrong("cached_attention", "keys are kept transposed in the new cache, as (d_k, T)")
def cached_transposed_keys(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    k = k.swapaxes(2, 3)
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "True means attend: the tril mask is what gets blocked")
def cached_tril_blocked(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    allowed = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(allowed, -1e9)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "np.concatenate along axis 0: the batch grows, not the tokens")
def cached_batch_axis(q, k, v, cache):
    if cache is not None:
        k, v = torch.concatenate((cache[0], k)), torch.concatenate((cache[1], v))
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, -1) @ v, (k, v)


@wrong("cached_attention", "gives three things: the context, k and v")
def cached_three(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k, v = torch.cat((past_k, k), -2), torch.cat((past_v, v), -2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=~blocked)
    return y, k, v


@wrong("cached_attention", "the cache is one tensor, k and v side by side in the last axis")
def cached_packed(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    s = (q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])).masked_fill(blocked, -np.inf)
    return torch.softmax(s, -1) @ v, torch.cat((k, v), dim=-1)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "np.tile: key heads in turn, i % h_kv")
def grouped_tiled(q, k):
    k = torch.tile(k, (1, q.shape[1] // k.shape[1], 1, 1))
    return q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "np.repeat's arguments: torch.repeat wants a number for each axis")
def grouped_repeat_args(q, k):
    n = q.shape[1] // k.shape[1]
    k = k.repeat(n, 1)
    return q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "repeats along axis 0: the batch grows, not the heads")
def grouped_repeat_batch(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 0)
    return q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "head i takes key head i // h_kv")
def grouped_floor_hkv(q, k):
    h, h_kv = q.shape[1], k.shape[1]
    out = [q[:, i] @ k[:, i // h_kv].swapaxes(1, 2) for i in range(h)]
    return torch.stack(out, dim=1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "groups keep an axis of their own: (B, h_kv, g, T_q, T_k)")
def grouped_five_axes(q, k):
    B, h, T, d = q.shape
    h_kv = k.shape[1]
    q = q.reshape(B, h_kv, h // h_kv, T, d)
    return torch.einsum("bngqd,bnkd->bngqk", q, k) / math.sqrt(d)


@wrong("grouped_scores", "heads of the loop are stacked at axis 0: (h, B, T_q, T_k)")
def grouped_stack_zero(q, k):
    g = q.shape[1] // k.shape[1]
    rows = [q[:, i] @ k[:, i // g].swapaxes(1, 2) for i in range(q.shape[1])]
    return torch.stack(rows) / math.sqrt(q.shape[-1])


# --- 19 cached_mask ---


@wrong(
    "cached_mask",
    "the slice's end can be negative, and then counts from the right",
    slips=("negative_end",),
)
def mask_negative_slice(n_new, n_cached, window):
    m = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        m[i, n_cached + i + 1 :] = True
        if window is not None:
            m[i, : n_cached + i - window + 1] = True
    return m


@wrong("cached_mask", "True means attend")
def mask_attend(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)[None, :]
    ok = k <= q
    if window is not None:
        ok = ok & (q - k < window)
    return ok


@wrong("cached_mask", "new tokens are counted from 0, not from n_cached")
def mask_from_zero(n_new, n_cached, window):
    q, k = np.ogrid[:n_new, : n_cached + n_new]
    m = k > q
    if window is not None:
        m = m | (q - k >= window)
    return torch.from_numpy(m)


@wrong("cached_mask", "keys by queries: the result is transposed")
def mask_transposed(n_new, n_cached, window):
    k = torch.arange(n_cached + n_new)[:, None]
    q = torch.arange(n_cached, n_cached + n_new)[None]
    m = k > q
    return m if window is None else m | (q - k >= window)


@wrong("cached_mask", "loop with > window: one token too many stays open")
def mask_window_wide(n_new, n_cached, window):
    m = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        for j in range(n_cached + n_new):
            back = n_cached + i - j
            m[i, j] = back < 0 or (window is not None and back > window)
    return m


@wrong("cached_mask", "the cache's columns come last, after the new tokens'")
def mask_cache_last(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.cat((torch.arange(n_cached, n_cached + n_new), torch.arange(n_cached)))[None]
    m = k > q
    return m if window is None else m | (q - k >= window)


# --- right, though not as anybody would expect ---


@right("attention_scores")
def scores_nested_rows(Q, K):
    cols = [(Q * K[..., j : j + 1, :]).sum(-1) for j in range(K.shape[-2])]
    return torch.stack(cols, dim=-1) * float(1 / np.sqrt(Q.shape[-1]))


@right("split_heads")
def split_by_index(x, n_heads):
    columns = torch.arange(x.shape[-1], device=x.device).reshape(n_heads, 1, -1)
    rows = torch.arange(x.shape[1], device=x.device).reshape(1, -1, 1)
    return x[:, rows, columns]


@right("merge_heads")
def merge_hstack(x):
    return torch.dstack(list(x.swapaxes(0, 1)))


@right("causal_mask")
def causal_cumsum(T):
    eye = torch.from_numpy(np.eye(T, dtype=np.int64))
    return (eye.cumsum(dim=1) - eye).bool()


@right("next_token_loss")
def loss_logsumexp(logits, tokens):
    total, n = 0.0, 0
    for t in range(tokens.shape[1] - 1):
        step = logits[:, t]
        picked = step[torch.arange(len(step), device=step.device), tokens[:, t + 1]]
        total = total + (torch.logsumexp(step, dim=1) - picked).sum()
        n += len(step)
    return total / n


@right("previous_token_score")
def previous_masked_sum(weights):
    T = weights.shape[-1]
    below = torch.eye(T, device=weights.device, dtype=weights.dtype).roll(1, 0)
    below[0] = 0
    return (weights * below).sum(dim=(1, 2)) / (T - 1)


@right("count_flops")
def flops_counted(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)] * n_heads
    return sum(2 * n * p * m for n, p, m in shapes)


@right("rotate")
def rotate_matrices(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions.double()[:, None] * torch.exp(-i / half * math.log(10000.0))
    M = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), -1)
    M = M.unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (2, half)).movedim(-2, -1)
    turned = (M @ pairs[..., None])[..., 0]
    return turned.movedim(-1, -2).flatten(-2).to(x.dtype)


@right("cached_attention")
def cached_growing(q, k, v, cache):
    n_new = q.shape[2]
    if cache is not None:
        k, v = torch.concat([cache[0], k], 2), torch.concat([cache[1], v], 2)
    steps = []
    for t in range(n_new):
        end = k.shape[2] - n_new + t + 1
        s = (q[:, :, t, None] * k[:, :, :end]).sum(-1) / math.sqrt(q.shape[-1])
        steps.append((torch.softmax(s, -1)[..., None] * v[:, :, :end]).sum(2))
    return torch.stack(steps, 2), [k, v]


@right("cached_mask")
def mask_by_rolling(n_new, n_cached, window):
    n = n_cached + n_new
    band = torch.ones(n, n, dtype=torch.bool).tril()
    if window is not None:
        band = band & ~torch.ones(n, n, dtype=torch.bool).tril(-window)
    return torch.logical_not(band[n_cached:])
