"""Bootcamp students and readers of tutorials: hasty, half remembered, copied from old posts."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "bmm from a tutorial: three axes only")
def scores_bmm(Q, K):
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(K.size(-1))


@wrong("attention_scores", "numpy habit: gives back an array, no tensor")
def scores_numpy(Q, K):
    q, k = Q.detach().cpu().numpy(), K.detach().cpu().numpy()
    return np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(k.shape[-1])


@wrong("attention_scores", "divides by the root of the number of keys")
def scores_root_of_keys(Q, K):
    n = K.shape[-2]
    return torch.matmul(Q, K.transpose(-1, -2)) / n**0.5


@wrong("attention_scores", "swaps the first two axes of K, not the last two")
def scores_transpose_first(Q, K):
    return Q @ K.transpose(0, 1) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "the root is taken of the raw product as well", slips=("nan_made",))
def scores_root_of_all(Q, K):
    return torch.sqrt(Q @ K.transpose(-2, -1) / Q.shape[-1])


@right("attention_scores")
def scores_fourth_roots(Q, K):
    r = Q.shape[-1] ** 0.25
    return (Q / r) @ (K / r).transpose(-2, -1)


# --- 2 attention ---


@wrong("attention", "gives the output only, without the weights")
def attention_output_only(Q, K, V):
    w = F.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1)), dim=-1)
    return torch.matmul(w, V)


@wrong("attention", "softmax without dim, as in old posts: wrong axis for three")
def attention_implicit_dim(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    weights = F.softmax(scores)
    return weights @ V, weights


@wrong(
    "attention", "multiplies by V first, softmax over the result", slips=("softmax_after_values",)
)
def attention_softmax_last(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return F.softmax(scores @ V, dim=-1), scores.softmax(dim=-1)


@wrong("attention", "loops over the first axis, so two axes fail", slips=("error:two_axes_only",))
def attention_batch_loop(Q, K, V):
    outs, ws = [], []
    for q, k, v in zip(Q, K, V):
        w = torch.softmax(q.mm(k.t()) / math.sqrt(q.shape[1]), dim=1)
        outs.append(w.mm(v))
        ws.append(w)
    return torch.stack(outs), torch.stack(ws)


@wrong("attention", "the weights come back as nested lists")
def attention_weights_list(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1)
    return w @ V, w.tolist()


@right("attention")
def attention_by_hand(Q, K, V):
    s = torch.einsum("...qd,...kd->...qk", Q, K) / Q.shape[-1] ** 0.5
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    w = e / e.sum(dim=-1, keepdim=True)
    return torch.einsum("...qk,...kd->...qd", w, V), w


# --- 3 project_qkv ---


@wrong("project_qkv", "forgets to transpose W_qkv")
def project_no_transpose(X, W_qkv):
    return (X @ W_qkv).chunk(3, dim=-1)


@wrong("project_qkv", "makes a new nn.Linear with random weights")
def project_new_layer(X, W_qkv):
    d = X.shape[-1]
    layer = nn.Linear(d, 3 * d, bias=False).to(X.dtype)
    return layer(X).chunk(3, dim=-1)


@wrong("project_qkv", "takes every third number: Q, K, V interleaved")
def project_interleaved(X, W_qkv):
    B, T, d = X.shape
    out = F.linear(X, W_qkv).reshape(B, T, d, 3)
    return out[..., 0], out[..., 1], out[..., 2]


@wrong("project_qkv", "chunk without dim cuts the batch")
def project_chunk_default(X, W_qkv):
    return torch.chunk(X @ W_qkv.T, 3)


@right("project_qkv")
def project_slices(X, W_qkv):
    d = X.size(2)
    out = torch.matmul(X, W_qkv.t())
    return [out[:, :, 0:d], out[:, :, d : 2 * d], out[:, :, 2 * d :]]


# --- 4 count_parameters ---


@wrong("count_parameters", "takes every matrix for d_model by d_model")
def count_square(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "W_o is taken for a square matrix")
def count_square_out(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + d_model * d_model


@wrong("count_parameters", "counts the biases of the layers too")
def count_with_biases(d_model, n_heads, d_k):
    ins = [nn.Linear(d_model, n_heads * d_k) for _ in range(3)]
    net = nn.ModuleList(ins + [nn.Linear(n_heads * d_k, d_model)])
    return sum(p.numel() for p in net.parameters())


@wrong("count_parameters", "numpy product: an np.int64 and no int", slips=("returns_int64",))
def count_np_prod(d_model, n_heads, d_k):
    return np.prod([4, d_model, n_heads, d_k])


@right("count_parameters")
def count_layers(d_model, n_heads, d_k):
    layers = nn.ModuleDict(
        {n: nn.Linear(d_model, n_heads * d_k, bias=False) for n in ("q", "k", "v")}
    )
    layers["o"] = nn.Linear(n_heads * d_k, d_model, bias=False)
    return sum(p.numel() for p in layers.parameters())


# --- 5 split_heads ---


@wrong("split_heads", "one view straight to the final shape")
def split_one_view(x, n_heads):
    B, T, C = x.shape
    return x.view(B, n_heads, T, C // n_heads)


@wrong("split_heads", "cuts, but never moves the heads before the tokens")
def split_no_permute(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, n_heads, -1)


@wrong("split_heads", "split takes a size: pieces are n_heads wide")
def split_pieces_of_h(x, n_heads):
    return torch.stack(x.split(n_heads, dim=-1), dim=1)


@wrong("split_heads", "d_k before the heads in the cut: interleaved heads")
def split_dk_first(x, n_heads):
    B, T, C = x.shape
    return x.reshape(B, T, C // n_heads, n_heads).permute(0, 3, 1, 2)


@right("split_heads")
def split_stack(x, n_heads):
    d_k = x.shape[2] // n_heads
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(n_heads)], dim=1)


# --- 6 merge_heads ---


@wrong("merge_heads", "reshape without moving the heads back")
def merge_reshape_only(x):
    B, h, T, d = x.shape
    return x.reshape(B, T, h * d)


@wrong("merge_heads", "view on a tensor that is not contiguous: an error")
def merge_view_error(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).view(B, T, h * d)


@wrong("merge_heads", "flattens tokens into the row: (B, h, T*d_k)")
def merge_flatten(x):
    return x.flatten(2)


@wrong("merge_heads", "cat along the tokens: (B, h*T, d_k)")
def merge_cat_tokens(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=1)


@right("merge_heads")
def merge_cat_features(x):
    return torch.cat([head.squeeze(1) for head in x.split(1, dim=1)], dim=2)


# --- 7 causal_mask ---


@wrong("causal_mask", "ones of float, not of bool")
def causal_float(T):
    return torch.triu(torch.ones(T, T), diagonal=1)


@wrong("causal_mask", "keeps the lower triangle and forgets to turn it")
def causal_tril(T):
    return torch.tril(torch.ones(T, T)).bool()


@wrong("causal_mask", "diagonal not given: a token may not see itself")
def causal_diagonal_zero(T):
    return torch.triu(torch.ones((T, T), dtype=torch.bool))


@wrong("causal_mask", "Python lists, not a tensor")
def causal_lists(T):
    return [[j > i for j in range(T)] for i in range(T)]


@right("causal_mask")
def causal_by_lists(T):
    return torch.tensor([[j > i for j in range(T)] for i in range(T)])


# --- 8 padding_mask ---


@wrong("padding_mask", "stops at (B, T)")
def padding_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device)[None, :] >= lengths[:, None]


@wrong("padding_mask", "one off: the first padding key stays open")
def padding_one_off(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device=lengths.device)
    for i in range(len(lengths)):
        mask[i, :, :, lengths[i] + 1 :] = True
    return mask


@wrong("padding_mask", "thinks the padding stands on the left")
def padding_left(lengths, T):
    pos = torch.arange(T, device=lengths.device)
    return (pos < (T - lengths)[:, None]).view(-1, 1, 1, T)


@wrong("padding_mask", "True at real tokens")
def padding_keep(lengths, T):
    pos = torch.arange(T, device=lengths.device).expand(len(lengths), T)
    return (pos < lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(2)


@right("padding_mask")
def padding_cumulative(lengths, T):
    ones = torch.ones(lengths.shape[0], T, dtype=torch.long, device=lengths.device)
    return (ones.cumsum(dim=1) > lengths.unsqueeze(1))[:, None, None]


# --- 9 masked_softmax ---


@wrong("masked_softmax", "minus infinity and softmax: empty rows are NaN")
def msoftmax_plain(scores, mask):
    return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


@wrong("masked_softmax", "adds -inf, mends the output: gradients are NaN")
def msoftmax_nan_to_num(scores, mask):
    bias = torch.zeros_like(scores).masked_fill(mask, float("-inf"))
    return torch.nan_to_num(torch.softmax(scores + bias, dim=-1), 0.0)


@wrong("masked_softmax", "zeroes after the softmax, rows no longer add to one")
def msoftmax_zero_after(scores, mask):
    return scores.softmax(dim=-1) * (~mask)


@wrong("masked_softmax", "blocked scores become 0 and still get a share")
def msoftmax_zero_before(scores, mask):
    return torch.softmax(scores * (~mask).float(), dim=-1)


@wrong("masked_softmax", "-1e9 as in the annotated code: empty rows are uniform")
def msoftmax_big_negative(scores, mask):
    return torch.softmax(scores.masked_fill(mask, -1e9), dim=-1)


@right("masked_softmax")
def msoftmax_with_big_negative(scores, mask):
    low = torch.finfo(scores.dtype).min
    p = torch.softmax(torch.where(mask, torch.full_like(scores, low), scores), dim=-1)
    return p * (~mask).to(p.dtype)


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "takes rows of W_o for the heads, not columns")
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    out = 0
    for i in range(heads.shape[1]):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k, :d_k].T
    return out


@wrong("sum_of_head_writes", "= for +=: only the last head writes")
def writes_last(heads, W_o):
    d_k = heads.shape[-1]
    for i in range(heads.shape[1]):
        out = heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@right("sum_of_head_writes")
def writes_concat(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).contiguous().view(B, T, h * d) @ W_o.t()


@wrong("sum_of_head_writes", "takes the mean over heads, not the sum")
def writes_mean(heads, W_o):
    d_k = heads.shape[-1]
    outs = [heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T for i in range(heads.shape[1])]
    return torch.stack(outs).mean(dim=0)


@right("sum_of_head_writes")
def writes_plus(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype, device=heads.device)
    for i in range(h):
        out = out + F.linear(heads[:, i], W_o[:, i * d : i * d + d])
    return out


# --- 11 MultiHeadAttention ---


@wrong("MultiHeadAttention", "scales by the root of d_model")
class MhaRootModel(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model, self.h, self.d_k = d_model, n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        q = self.w_q(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        if mask is not None:
            empty = mask.all(dim=-1, keepdim=True)
            w = s.masked_fill(mask & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)
        else:
            w = s.softmax(-1)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, self.d_model))


@wrong("MultiHeadAttention", "forgets w_o at the end")
class MhaNoOut(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=x.device)
        gone = mask.expand(s.shape).all(-1, keepdim=True)
        w = s.masked_fill(mask & ~gone, float("-inf")).softmax(-1).masked_fill(gone, 0.0)
        return (w @ v).permute(0, 2, 1, 3).reshape(x.shape)


@wrong("MultiHeadAttention", "takes a mask and never looks at it")
class MhaMaskIgnored(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = [
            layer(x).view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2)
            for layer in (self.w_q, self.w_k, self.w_v)
        ]
        w = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(C // self.n_heads), dim=3)
        return self.w_o((w @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "mask == 0 is blocked, as in the annotated transformer")
class MhaMaskZero(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        nbatches = x.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin in (self.w_q, self.w_k, self.w_v)
        ]
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = scores.softmax(dim=-1)
        y = torch.matmul(p_attn, value).transpose(1, 2).contiguous()
        return self.w_o(y.view(nbatches, -1, self.h * self.d_k))


@wrong("MultiHeadAttention", "blocked rows come out as NaN")
class MhaNan(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, C = x.shape
        heads = lambda t: t.view(B, T, self.n_heads, -1).transpose(1, 2)
        q, k, v = heads(self.w_q(x)), heads(self.w_k(x)), heads(self.w_v(x))
        s = q @ k.transpose(-2, -1) / (C // self.n_heads) ** 0.5
        if mask is not None:
            s = s.masked_fill(mask, float("-inf"))
        return self.w_o((s.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "no scaling of the scores at all")
class MhaUnscaled(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q = self.w_q(x).reshape(B, T, self.n_heads, self.d_k).permute(0, 2, 1, 3)
        k = self.w_k(x).reshape(B, T, self.n_heads, self.d_k).permute(0, 2, 3, 1)
        v = self.w_v(x).reshape(B, T, self.n_heads, self.d_k).permute(0, 2, 1, 3)
        s = q @ k
        if mask is not None:
            none = mask.all(dim=-1, keepdim=True)
            s = s.masked_fill(mask & ~none, float("-inf"))
            a = s.softmax(-1).masked_fill(none, 0.0)
        else:
            a = s.softmax(-1)
        return self.w_o((a @ v).permute(0, 2, 1, 3).flatten(2))


@wrong("MultiHeadAttention", "heads are merged by a reshape without transpose")
class MhaBadMerge(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        d = C // self.n_heads
        q = self.w_q(x).view(B, T, self.n_heads, d).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, d).transpose(1, 2)
        v = self.w_v(x).view(B, T, self.n_heads, d).transpose(1, 2)
        s = q @ k.transpose(-1, -2) / math.sqrt(d)
        if mask is None:
            mask = torch.zeros_like(s).bool()
        blank = mask.all(-1, keepdim=True)
        a = s.masked_fill(mask & ~blank, -math.inf).softmax(-1).masked_fill(blank, 0.0)
        return self.w_o((a @ v).reshape(B, T, C))


@wrong("MultiHeadAttention", "copy and paste: the values come from w_k")
class MhaValuesFromK(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        d = C // self.n_heads
        q = self.w_q(x).view(B, T, self.n_heads, d).transpose(1, 2)
        k = self.w_k(x).view(B, T, self.n_heads, d).transpose(1, 2)
        v = self.w_k(x).view(B, T, self.n_heads, d).transpose(1, 2)
        s = q @ k.transpose(-1, -2) / math.sqrt(d)
        if mask is not None:
            blank = mask.all(-1, keepdim=True)
            s = s.masked_fill(mask & ~blank, -math.inf)
            a = s.softmax(-1).masked_fill(blank, 0.0)
        else:
            a = s.softmax(-1)
        return self.w_o((a @ v).transpose(1, 2).reshape(B, T, C))


@wrong("MultiHeadAttention", "returns a pair: output and weights")
class MhaPair(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        d = C // self.n_heads
        q, k, v = (
            f(x).view(B, T, self.n_heads, d).transpose(1, 2) for f in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.transpose(-1, -2) / math.sqrt(d)
        a = s.softmax(-1)
        if mask is not None:
            blank = mask.all(-1, keepdim=True)
            a = s.masked_fill(mask & ~blank, -math.inf).softmax(-1).masked_fill(blank, 0.0)
        return self.w_o((a @ v).transpose(1, 2).reshape(B, T, C)), a


@wrong("MultiHeadAttention", "n_heads is never used: one wide head")
class MhaOneHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(mask, -1e9)
        return self.w_o(s.softmax(-1) @ v)


@right("MultiHeadAttention")
class MhaLoopOverHeads(nn.Module):
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
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if mask is None:
            mask = torch.zeros(T, T, dtype=torch.bool, device=x.device)
        mask = mask.expand(B, self.n_heads, T, T)
        outs = []
        for i in range(self.n_heads):
            part = slice(i * self.d_k, (i + 1) * self.d_k)
            s = torch.bmm(q[:, :, part], k[:, :, part].transpose(1, 2)) / math.sqrt(self.d_k)
            m = mask[:, i]
            empty = m.all(dim=2, keepdim=True)
            s = s.masked_fill(m & ~empty, float("-inf"))
            w = F.softmax(s, dim=2).masked_fill(empty, 0.0)
            outs.append(torch.bmm(w, v[:, :, part]))
        return self.w_o(torch.cat(outs, dim=2))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "no shift: every position is asked for itself")
def loss_no_shift(logits, tokens):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), tokens.view(-1))


@wrong("next_token_loss", "shifts the wrong way: predicts the token before")
def loss_backwards(logits, tokens):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())


@wrong("next_token_loss", "softmax before cross_entropy, which takes its own")
def loss_double_softmax(logits, tokens):
    p = F.softmax(logits[:, :-1], dim=-1)
    return F.cross_entropy(p.reshape(-1, p.shape[-1]), tokens[:, 1:].reshape(-1))


@wrong("next_token_loss", "adds all losses up, no mean")
def loss_summed(logits, tokens):
    p = logits[:, :-1].flatten(0, 1)
    return F.cross_entropy(p, tokens[:, 1:].flatten(), reduction="sum")


@wrong("next_token_loss", "classes stay in the last axis: an error")
def loss_not_flattened(logits, tokens):
    return nn.CrossEntropyLoss()(logits[:, :-1], tokens[:, 1:])


@right("next_token_loss")
def loss_transposed(logits, tokens):
    return nn.CrossEntropyLoss()(logits[:, :-1].transpose(1, 2), tokens[:, 1:].long())


# --- silence ---


@wrong("silence", "writes into the caller's own tensor")
def silence_in_place(heads, i):
    heads[:, i] = 0
    return heads


@wrong("silence", "silences sequence i, not head i")
def silence_batch(heads, i):
    out = heads.clone()
    out[i] = 0
    return out


@wrong("silence", "cuts the head out, one head less")
def silence_removed(heads, i):
    return torch.cat([heads[:, :i], heads[:, i + 1 :]], dim=1)


@right("silence")
def silence_stack(heads, i):
    parts = list(heads.unbind(dim=1))
    parts[i] = torch.zeros_like(parts[i])
    return torch.stack(parts, dim=1)


# --- 13 previous_token_score ---


@wrong("previous_token_score", "the diagonal above: weight on the next token")
def previous_next(weights):
    return torch.diagonal(weights, offset=1, dim1=1, dim2=2).mean(-1)


@wrong("previous_token_score", "one number for all heads together")
def previous_one_number(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean()


@wrong("previous_token_score", "diagonal without axes: heads against queries")
def previous_default_axes(weights):
    return weights.diagonal(-1).mean(dim=-1)


@wrong("previous_token_score", "divides by T, though only T - 1 queries count")
def previous_over_T(weights):
    T = weights.shape[-1]
    total = 0
    for t in range(1, T):
        total = total + weights[:, t, t - 1]
    return total / T


@right("previous_token_score")
def previous_loop(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 1] for t in range(1, T)]).mean(dim=0)


# --- solved ---


@wrong("solved", "row and column mixed up: query is the last index")
def solved_column(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", "a tie counts as a yes")
def solved_tie(weights, query, right, wrong):
    return weights[:, query, right] >= weights[:, query, wrong]


@wrong("solved", "one answer for all heads")
def solved_all(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).all()


@right("solved")
def solved_loop(weights, query, right, wrong):
    return torch.tensor(
        [bool(w[query, right] > w[query, wrong]) for w in weights], device=weights.device
    )


# --- 14 count_flops ---


@wrong("count_flops", "a multiply-add counted as 1")
def flops_single(T, d_model, n_heads):
    return 4 * T * d_model * d_model + 2 * T * T * d_model


@wrong("count_flops", "forgets the product of weights and values")
def flops_no_values(T, d_model, n_heads):
    return 8 * T * d_model**2 + 2 * T * T * d_model


@wrong("count_flops", "three projections, w_o forgotten")
def flops_three(T, d_model, n_heads):
    return 3 * 2 * T * d_model**2 + 2 * 2 * T**2 * d_model


@wrong("count_flops", "a float, since d_k = d_model / n_heads")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model * d_model + 4 * T * T * n_heads * d_k


@right("count_flops")
def flops_loop(T, d_model, n_heads):
    shapes = [(T, d_model, d_model)] * 4
    for _ in range(n_heads):
        shapes += [(T, d_model // n_heads, T), (T, T, d_model // n_heads)]
    return sum(2 * n * m * p for n, m, p in shapes)


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "a softmax of its own in every block, added up")
def block_softmax_each(Q, K, V, block):
    out = 0
    for k, v in zip(K.split(block), V.split(block)):
        out = out + torch.softmax(Q @ k.T / math.sqrt(Q.shape[1]), dim=1) @ v
    return out


@wrong("blockwise_attention", "the sum shrinks, the mix does not")
def block_mix_not_shrunk(Q, K, V, block):
    m = torch.full((len(Q), 1), -math.inf, dtype=Q.dtype)
    total = torch.zeros(len(Q), 1, dtype=Q.dtype)
    mix = torch.zeros(len(Q), V.shape[1], dtype=Q.dtype)
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.max(dim=1, keepdim=True)[0])
        e = torch.exp(s - new)
        total = total * torch.exp(m - new) + e.sum(1, keepdim=True)
        mix = mix + e @ V[i : i + block]
        m = new
    return mix / total


@wrong("blockwise_attention", "makes all scores at once, then cuts them")
def block_all_scores(Q, K, V, block):
    s = torch.softmax(Q @ K.T / math.sqrt(Q.shape[1]), dim=1)
    out = 0
    for i in range(0, K.shape[0], block):
        out = out + s[:, i : i + block] @ V[i : i + block]
    return out


@wrong("blockwise_attention", "drops the last block if it is not full")
def block_drops_rest(Q, K, V, block):
    total, mix = 0, 0
    for b in range(len(K) // block):
        rows = slice(b * block, (b + 1) * block)
        e = torch.exp(Q @ K[rows].T / math.sqrt(Q.shape[1]))
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[rows]
    return mix / total


@wrong("blockwise_attention", "m is never updated: only the last block remains")
def block_m_stays(Q, K, V, block):
    m = Q.new_full((len(Q), 1), float("-inf"))
    total, mix = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / Q.shape[1] ** 0.5
        larger = torch.maximum(m, s.amax(1, keepdim=True))
        e = (s - larger).exp()
        total = total * (m - larger).exp() + e.sum(1, keepdim=True)
        mix = mix * (m - larger).exp() + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "forgets to divide by the root of d_k")
def block_unscaled(Q, K, V, block):
    m = torch.full_like(Q[:, :1], float("-inf"))
    total, mix = torch.zeros_like(m), torch.zeros_like(Q[:, :1]) * V[:1]
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T
        larger = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - larger).exp(), (s - larger).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix = mix * shrink + e @ v
        m = larger
    return mix / total


@right("blockwise_attention")
def block_two_passes(Q, K, V, block):
    blocks = list(zip(torch.split(K, block), torch.split(V, block)))
    scale = 1 / math.sqrt(Q.shape[-1])
    top = None
    for k, _ in blocks:
        here = (Q @ k.t() * scale).max(dim=1).values
        top = here if top is None else torch.max(top, here)
    total, mix = 0, 0
    for k, v in blocks:
        e = torch.exp(Q @ k.t() * scale - top.unsqueeze(1))
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ v
    return mix / total


# --- 16 rotate ---


@wrong("rotate", "pairs neighbours 0 and 1, 2 and 3, ...")
def rotate_neighbours(x, positions):
    d = x.shape[-1]
    speed = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = positions[:, None].double() * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


@wrong("rotate", "two plus signs: no rotation")
def rotate_plus(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos + b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "turns the other way round")
def rotate_clockwise(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)


@wrong("rotate", "exponent -i/d_k, the 2 is forgotten")
def rotate_exponent(x, positions):
    d = x.shape[-1]
    i = torch.arange(d // 2, dtype=torch.float64)
    angle = positions[:, None] / 10000.0 ** (i / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "takes 0, 1, 2, ... instead of the positions given")
def rotate_own_positions(x, positions):
    T, d = x.shape[-2:]
    half = d // 2
    angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@right("rotate")
def rotate_half_style(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d))
    angle = torch.outer(positions.double(), inv_freq)
    angle = torch.cat((angle, angle), dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    turned = torch.cat((-x2, x1), dim=-1)
    return (x * angle.cos() + turned * angle.sin()).to(x.dtype)


# --- 17 cached_attention ---


@wrong("cached_attention", "no causal mask among the new tokens")
def cached_no_mask(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
    return w @ v, (k, v)


@wrong("cached_attention", "the diagonal starts at the top left despite the cache")
def cached_top_left(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    mask = torch.ones(q.shape[2], k.shape[2], device=q.device).triu(1).bool()
    s = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "appends along the head axis")
def cached_cat_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), dim=1)
        v = torch.cat((cache[1], v), dim=1)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(n, m).bool().triu(m - n + 1), -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "the cache given back holds the new tokens only")
def cached_only_new(q, k, v, cache):
    K, V = k, v
    if cache is not None:
        K, V = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n, m = q.shape[2], K.shape[2]
    s = q @ K.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(n, m).bool().triu(m - n + 1), -math.inf)
    return s.softmax(-1) @ V, (k, v)


@wrong("cached_attention", "new tokens are put before the old ones")
def cached_new_first(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((k, cache[0]), dim=2), torch.cat((v, cache[1]), dim=2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(n, m).bool().triu(m - n + 1), -math.inf)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "never asks whether the cache is None")
def cached_none_crash(q, k, v, cache):
    old_k, old_v = cache
    k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
    n, m = q.shape[2], k.shape[2]
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(n, m).bool().triu(m - n + 1), -math.inf)
    return s.softmax(-1) @ v, (k, v)


@right("cached_attention")
def cached_one_by_one(q, k, v, cache):
    K, V = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    outs = []
    for t in range(q.shape[2]):
        K = torch.cat([K, k[:, :, t : t + 1]], dim=2)
        V = torch.cat([V, v[:, :, t : t + 1]], dim=2)
        s = q[:, :, t : t + 1] @ K.transpose(2, 3) / math.sqrt(q.shape[3])
        outs.append(torch.softmax(s, dim=3) @ V)
    return torch.cat(outs, dim=2), (K, V)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "repeat: key heads 0, 1, 0, 1 instead of 0, 0, 1, 1")
def grouped_repeat(q, k):
    k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "no scaling")
def grouped_unscaled(q, k):
    k = torch.repeat_interleave(k, q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-2, -1)


@wrong("grouped_scores", "hopes for broadcasting: fails unless h_kv is 1 or h")
def grouped_broadcast(q, k):
    return torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))


@wrong("grouped_scores", "repeat_interleave without dim flattens the keys")
def grouped_flat(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1])
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "throws away query heads: keeps one of each group",
    slips=("first_queries_only",),
)
def grouped_fewer_queries(q, k):
    q = q[:, :: q.shape[1] // k.shape[1]]
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@right("grouped_scores")
def grouped_loop(q, k):
    group = q.shape[1] // k.shape[1]
    rows = [q[:, i] @ k[:, i // group].transpose(1, 2) for i in range(q.shape[1])]
    return torch.stack(rows, dim=1) / math.sqrt(q.shape[-1])


# --- 19 cached_mask ---


@wrong("cached_mask", "the window is never used")
def cmask_no_window(n_new, n_cached, window):
    return torch.ones(n_new, n_cached + n_new).triu(n_cached + 1).bool()


@wrong("cached_mask", "one token too many in the window")
def cmask_window_wide(n_new, n_cached, window):
    q = torch.arange(n_new)[:, None] + n_cached
    k = torch.arange(n_cached + n_new)[None]
    mask = k > q
    if window is not None:
        mask = mask | (q - k > window)
    return mask


@wrong("cached_mask", "only the new tokens: (n_new, n_new)")
def cmask_square(n_new, n_cached, window):
    q, k = torch.arange(n_new)[:, None], torch.arange(n_new)
    mask = k > q
    if window is not None:
        mask |= q - k >= window
    return mask


@wrong("cached_mask", "fails when window is None")
def cmask_none_crash(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new)[None, :]
    return (k > q) | (k <= q - window)


@right("cached_mask")
def cmask_cells(n_new, n_cached, window):
    mask = torch.zeros(n_new, n_cached + n_new, dtype=torch.bool)
    for i in range(n_new):
        here = n_cached + i
        mask[i, here + 1 :] = True
        if window is not None:
            mask[i, : max(0, here - window + 1)] = True
    return mask
