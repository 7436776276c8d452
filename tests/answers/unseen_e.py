"""As seven kinds of learners would write: tutorials, numpy, Keras, haste, one subtle slip, two at
once, unusual but right. Written without a look at the other answers or at the slips.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong

# --- 1 attention_scores ---------------------------------------------------------------------------


@wrong("attention_scores", "bmm from a tutorial: three axes only")
def scores_bmm(Q, K):
    d_k = Q.size(-1)
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(d_k)


@wrong("attention_scores", "numpy throughout: an array comes back")
def scores_numpy(Q, K):
    q, k = np.asarray(Q), np.asarray(K)
    return np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1])


@wrong("attention_scores", "numpy's dot")
def scores_dot(Q, K):
    return np.dot(Q, K.T) / np.sqrt(K.shape[-1])


@wrong("attention_scores", "size(0) for d_k")
def scores_size_zero(Q, K):
    scores = torch.matmul(Q, K.transpose(-1, -2))
    return scores / K.size(0) ** 0.5


@wrong("attention_scores", "one over the inverse root: multiplied")
def scores_double_inverse(Q, K):
    scale = 1.0 / Q.size(-1) ** -0.5
    return torch.einsum("...qd,...kd->...qk", Q, K) * scale


@wrong("attention_scores", "floor division")
def scores_floor(Q, K):
    return Q @ K.mT // math.sqrt(K.shape[-1])


@wrong("attention_scores", "float() at the end")
def scores_float(Q, K):
    return (Q @ K.mT / math.sqrt(K.shape[-1])).float()


@wrong("attention_scores", "softmax already, and d_k is taken from the number of keys")
def scores_softmax_and_keys(Q, K):
    scores = Q @ K.transpose(-2, -1)
    scores = scores / math.sqrt(K.shape[-2])
    return F.softmax(scores, dim=-1)


@wrong("attention_scores", "cosine similarity, still divided by the root")
def scores_cosine(Q, K):
    q = F.normalize(Q, dim=-1)
    k = F.normalize(K, dim=-1)
    return (q @ k.mT) / math.sqrt(Q.shape[-1])


# --- 2 attention ----------------------------------------------------------------------------------


@wrong("attention", "dropout on the weights, as in a tutorial")
def attention_dropout(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    p_attn = F.dropout(scores.softmax(dim=-1), 0.1)
    return p_attn @ V, p_attn


@wrong("attention", "the output alone")
def attention_output_only(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V)


@wrong("attention", "numpy's softmax by hand, without keepdim")
def attention_no_keepdim(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    e = torch.exp(scores - scores.max())
    weights = e / e.sum(-1)
    return weights @ V, weights


@wrong("attention", "softmax without dim")
def attention_implicit_dim(Q, K, V):
    weights = F.softmax(Q @ K.mT / math.sqrt(Q.size(-1)))
    return weights @ V, weights


@wrong("attention", "PyTorch's output beside weights that were never scaled")
def attention_weights_unscaled(Q, K, V):
    out = F.scaled_dot_product_attention(Q, K, V)
    weights = torch.softmax(Q @ K.mT, dim=-1)
    return out, weights


@wrong("attention", "Keras passes (query, value, key)")
def attention_keras_order(query, value, key):
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    weights = scores.softmax(-1)
    return weights @ value, weights


@wrong("attention", "exp without taking the maximum off")
def attention_raw_exp(Q, K, V):
    e = (Q @ K.mT / math.sqrt(Q.size(-1))).exp()
    weights = e / e.sum(-1, keepdim=True)
    return weights @ V, weights


@wrong("attention", "causal from a GPT tutorial")
def attention_causal(Q, K, V):
    scores = Q @ K.mT / math.sqrt(Q.size(-1))
    future = torch.ones_like(scores).triu(1).bool()
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    return weights @ V, weights


@wrong("attention", "scaled by the width of V, and the pair exchanged")
def attention_width_of_v_exchanged(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(V.size(-1))).softmax(-1)
    return weights, weights @ V


# --- 3 project_qkv --------------------------------------------------------------------------------


@wrong("project_qkv", "chunks along the batch")
def project_chunk_batch(X, W_qkv):
    q, k, v = (X @ W_qkv.T).chunk(3)
    return q, k, v


@wrong("project_qkv", "split(3): pieces of three columns")
def project_split_three(X, W_qkv):
    return (X @ W_qkv.T).split(3, dim=-1)


@wrong("project_qkv", "reshape to (…, d, 3): interleaved")
def project_interleaved(X, W_qkv):
    B, T, d = X.shape
    qkv = (X @ W_qkv.T).reshape(B, T, d, 3)
    return qkv[..., 0], qkv[..., 1], qkv[..., 2]


@wrong("project_qkv", "splits W by T")
def project_split_tokens(X, W_qkv):
    W_q, W_k, W_v = W_qkv.split(X.shape[1])
    return F.linear(X, W_q), F.linear(X, W_k), F.linear(X, W_v)


@wrong("project_qkv", "nn.Linear with the weight set and a random bias left")
def project_layer_with_bias(X, W_qkv):
    d = X.shape[-1]
    layer = nn.Linear(d, 3 * d)
    layer.weight = nn.Parameter(W_qkv)
    return layer(X).chunk(3, dim=-1)


@wrong("project_qkv", "a stacked tensor instead of three")
def project_stacked(X, W_qkv):
    B, T, d = X.shape
    return (X @ W_qkv.mT).view(B, T, 3, d).permute(2, 0, 1, 3)


@wrong("project_qkv", "names them v, k, q and gives q, k, v")
def project_reversed(X, W_qkv):
    v, k, q = F.linear(X, W_qkv).chunk(3, dim=-1)
    return q, k, v


@wrong("project_qkv", "each block is not transposed, and the last two are exchanged")
def project_blocks_untransposed(X, W_qkv):
    d = X.size(-1)
    Q = X @ W_qkv[:d]
    V = X @ W_qkv[d : 2 * d]
    K = X @ W_qkv[2 * d :]
    return Q, K, V


# --- 4 count_parameters ---------------------------------------------------------------------------


@wrong("count_parameters", "four square matrices")
def parameters_square(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "W_o is d_model × d_model")
def parameters_square_output(d_model, n_heads, d_k):
    qkv = 3 * d_model * (n_heads * d_k)
    out = d_model * d_model
    return qkv + out


@wrong("count_parameters", "W_o for one head only")
def parameters_output_of_one_head(d_model, n_heads, d_k):
    per_head = 3 * d_model * d_k
    return n_heads * per_head + d_k * d_model


@wrong("count_parameters", "asks PyTorch, which ties d_k")
def parameters_from_torch(d_model, n_heads, d_k):
    mha = nn.MultiheadAttention(d_model, n_heads, bias=False)
    return sum(p.numel() for p in mha.parameters())


@wrong("count_parameters", "layers with their biases")
def parameters_with_biases(d_model, n_heads, d_k):
    inner = n_heads * d_k
    layers = [nn.Linear(d_model, inner) for _ in range(3)] + [nn.Linear(inner, d_model)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


@wrong("count_parameters", "three matrices, and the heads twice")
def parameters_three_and_heads_twice(d_model, n_heads, d_k):
    return n_heads * 3 * d_model * n_heads * d_k


@wrong("count_parameters", "numpy's number, as a float")
def parameters_numpy(d_model, n_heads, d_k):
    sizes = np.array([d_model, n_heads, d_k], dtype=float)
    return 4 * np.prod(sizes)


@wrong("count_parameters", "adds where it multiplies")
def parameters_sum(d_model, n_heads, d_k):
    return 4 * d_model * (n_heads + d_k)


# --- 5 split_heads --------------------------------------------------------------------------------


@wrong("split_heads", "straight into (B, h, T, d_k)")
def split_straight(x, n_heads):
    batch_size, seq_len, d_model = x.size()
    return x.reshape(batch_size, n_heads, seq_len, d_model // n_heads)


@wrong("split_heads", "the head's axis last, then brought forward")
def split_heads_last(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // n_heads, n_heads).permute(0, 3, 1, 2)


@wrong("split_heads", "Keras' perm, one place on")
def split_perm(x, n_heads):
    B, T, D = x.shape
    return torch.permute(x.reshape(B, T, n_heads, -1), (0, 2, 3, 1))


@wrong("split_heads", "stacked in front")
def split_stack_front(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1))


@wrong("split_heads", "split by n_heads, not into n_heads")
def split_by_number(x, n_heads):
    return torch.stack(torch.split(x, n_heads, dim=-1), dim=1)


@wrong("split_heads", "a list of heads")
def split_list(x, n_heads):
    d = x.shape[-1] // n_heads
    return [x[..., i * d : (i + 1) * d] for i in range(n_heads)]


@wrong("split_heads", "a loop that steps by one column")
def split_step_one(x, n_heads):
    d = x.shape[-1] // n_heads
    return torch.stack([x[..., i : i + d] for i in range(n_heads)], dim=1)


@wrong("split_heads", "view, which needs contiguous memory")
def split_view(x, n_heads):
    B, T, D = x.shape
    return x.view(B * T, n_heads, D // n_heads).view(B, T, n_heads, -1).transpose(1, 2)


@wrong("split_heads", "in the order of the columns, and tokens exchanged with heads")
def split_two_at_once(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // n_heads, n_heads).transpose(2, 3)


# --- 6 merge_heads --------------------------------------------------------------------------------


@wrong("merge_heads", "no transpose")
def merge_no_transpose(x):
    B, h, T, d = x.shape
    return x.reshape(B, T, h * d)


@wrong("merge_heads", "transposed and then view")
def merge_view(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).view(B, T, h * d)


@wrong("merge_heads", "columns of the heads take turns")
def merge_turns(x):
    B, h, T, d = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, d * h)


@wrong("merge_heads", "adds the heads up")
def merge_sum(x):
    return x.sum(dim=1)


@wrong("merge_heads", "flattens heads and tokens")
def merge_flatten(x):
    return x.flatten(1, 2)


@wrong("merge_heads", "the last head is left out")
def merge_without_last(x):
    heads = [x[:, i] for i in range(x.shape[1] - 1)]
    return torch.cat(heads, dim=-1)


@wrong("merge_heads", "squeeze at the end")
def merge_squeeze(x):
    return x.transpose(1, 2).flatten(-2).squeeze()


@wrong("merge_heads", "batch and tokens exchanged, heads in reverse")
def merge_reverse_and_batch(x):
    return x.flip(1).permute(2, 0, 1, 3).flatten(2)


@wrong("merge_heads", "numpy's concatenate along the wrong axis")
def merge_concatenate(x):
    return torch.concatenate([x[:, i] for i in range(x.shape[1])], axis=1)


# --- 7 causal_mask --------------------------------------------------------------------------------


@wrong("causal_mask", "what may be seen, as in Keras")
def causal_keras(T):
    i = torch.arange(T)[:, None]
    j = torch.arange(T)
    return i >= j


@wrong("causal_mask", "the token itself is blocked")
def causal_with_itself(T):
    return torch.triu(torch.ones(T, T, dtype=torch.bool))


@wrong("causal_mask", "floats of a tutorial")
def causal_tutorial(T):
    return torch.triu(torch.ones((1, T, T)), diagonal=1)


@wrong("causal_mask", "numpy's")
def causal_numpy(T):
    return np.triu(np.ones((T, T), dtype=bool), k=1)


@wrong("causal_mask", "PyTorch's own, to be added")
def causal_transformer(T):
    return nn.Transformer.generate_square_subsequent_mask(T)


@wrong("causal_mask", "loops over the past")
def causal_loops(T):
    mask = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(i):
            mask[i, j] = True
    return mask


@wrong("causal_mask", "both aranges lie in the same axis")
def causal_same_axis(T):
    queries = torch.arange(T).unsqueeze(0)
    keys = torch.arange(T).unsqueeze(0)
    return keys > queries


@wrong("causal_mask", "the next token may still be seen, and the mask says visible")
def causal_next_and_visible(T):
    return torch.ones(T, T).tril(1).bool()


# --- 8 padding_mask -------------------------------------------------------------------------------


@wrong("padding_mask", "the real keys")
def padding_real(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions[None, :] < lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "one too far")
def padding_one_too_far(lengths, T):
    return (torch.arange(T) > lengths.unsqueeze(1))[:, None, None]


@wrong("padding_mask", "no axes to broadcast over")
def padding_two_axes(lengths, T):
    return torch.arange(T)[None] >= lengths[:, None]


@wrong("padding_mask", "as wide as the longest")
def padding_longest(lengths, T):
    n = int(lengths.max())
    return (torch.arange(n) >= lengths[:, None]).view(-1, 1, 1, n)


@wrong("padding_mask", "for queries")
def padding_queries(lengths, T):
    mask = torch.arange(T)[None, :] >= lengths[:, None]
    return mask[:, None, :, None]


@wrong("padding_mask", "a loop that marks the wrong side, from a float mask")
def padding_loop_float(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T)
    for i, n in enumerate(lengths):
        mask[i, ..., :n] = 1
    return mask


@wrong("padding_mask", "negative slices: wrong where nothing is padded")
def padding_negative_slice(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool)
    for i, n in enumerate(lengths.tolist()):
        mask[i, :, :, -(T - n) :] = True
    return mask


@wrong("padding_mask", "lengths without their own axis")
def padding_no_axis(lengths, T):
    return (torch.arange(T) >= lengths)[:, None, None]


# --- 9 masked_softmax -----------------------------------------------------------------------------


@wrong("masked_softmax", "minus infinity and nothing else")
def masked_plain(scores, mask):
    return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


@wrong("masked_softmax", "minus a billion: an empty row shares out evenly")
def masked_billion(scores, mask):
    return F.softmax(scores.masked_fill(mask, -1e9), dim=-1)


@wrong("masked_softmax", "zeroed after the softmax")
def masked_after(scores, mask):
    return torch.softmax(scores, dim=-1) * ~mask


@right("masked_softmax")
def masked_nan_to_num(scores, mask):
    w = scores.masked_fill(mask, -torch.inf).softmax(-1)
    return torch.nan_to_num(w, nan=0.0)


@wrong("masked_softmax", "adds the mask times a billion: float32 for half precision")
def masked_added(scores, mask):
    scores = scores + mask * -1e9
    w = scores.softmax(-1)
    return w.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("masked_softmax", "one maximum for the whole tensor")
def masked_global_max(scores, mask):
    e = torch.exp(scores - scores.max()) * ~mask
    return e / e.sum(-1, keepdim=True).clamp(min=1e-9)


@wrong("masked_softmax", "fills zero, so exp gives one")
def masked_zero_scores(scores, mask):
    return scores.masked_fill(mask, 0.0).softmax(dim=-1)


@wrong("masked_softmax", "the mask the other way round, and NaN made zero")
def masked_other_way(scores, mask):
    w = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return w.nan_to_num(0.0)


@wrong("masked_softmax", "over the queries, and empty rows share")
def masked_queries(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(dim=-2)


# --- 10 sum_of_head_writes ------------------------------------------------------------------------


@wrong("sum_of_head_writes", "rows of W_o instead of columns")
def writes_rows(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[i * d : (i + 1) * d] for i in range(h))


@wrong("sum_of_head_writes", "mean of the writes")
def writes_mean(heads, W_o):
    blocks = W_o.chunk(heads.shape[1], dim=1)
    return torch.stack([heads[:, i] @ b.T for i, b in enumerate(blocks)]).mean(0)


@wrong("sum_of_head_writes", "never summed")
def writes_stacked(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    W = W_o.view(-1, h, d)
    return torch.einsum("bhtd,mhd->bhtm", heads, W)


@wrong("sum_of_head_writes", "only the last head is kept")
def writes_last(heads, W_o):
    B, h, T, d = heads.shape
    for i in range(h):
        out = heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "columns taken in turns")
def writes_turns(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,mdh->btm", heads, W_o.view(-1, d, h))


@wrong("sum_of_head_writes", "float32 zeros to add to")
def writes_float32(heads, W_o):
    B, h, T, d = heads.shape
    total = torch.zeros(B, T, W_o.shape[0])
    for i in range(h):
        total += heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return total


@wrong("sum_of_head_writes", "reshaped without a transpose")
def writes_reshaped(heads, W_o):
    B, h, T, d = heads.shape
    return heads.reshape(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "loops over the batch, thinking of heads")
def writes_batch_loop(heads, W_o):
    d = heads.shape[-1]
    out = 0
    for i, head in enumerate(heads):
        out = out + head @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "first head left out, and the mean of the rest")
def writes_first_and_mean(heads, W_o):
    B, h, T, d = heads.shape
    out = 0
    for i in range(1, h):
        out = out + heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out / h


# --- 11 MultiHeadAttention ------------------------------------------------------------------------


class Layered(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, x):
        B, h, T, d = x.shape
        return x.transpose(1, 2).reshape(B, T, h * d)


def zero_rows(scores, mask):
    if mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(mask, 0.0)


@wrong("MultiHeadAttention", "a tutorial's `mask == 0`")
class TutorialMask(Layered):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.w_o(self.merge(scores.softmax(-1) @ v))


@wrong("MultiHeadAttention", "NaN where a row is empty")
class EmptyRows(Layered):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / self.d_k**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return self.w_o(self.merge(torch.softmax(scores, dim=-1) @ v))


@wrong("MultiHeadAttention", "merged by a view without a transpose")
class MergedStraight(Layered):
    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        w = zero_rows(q @ k.mT / math.sqrt(self.d_k), mask)
        return self.w_o((w @ v).reshape(B, T, D))


@wrong("MultiHeadAttention", "w_o is never used")
class NoOutputLayer(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        return self.merge(zero_rows(q @ k.mT / math.sqrt(self.d_k), mask) @ v)


@wrong("MultiHeadAttention", "other names for the layers, as in Keras")
class KerasNames(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        w = zero_rows(q @ k.mT / math.sqrt(q.shape[-1]), mask)
        return self.out((w @ v).transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "gives the weights, too")
class GivesWeights(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        w = zero_rows(q @ k.mT / math.sqrt(self.d_k), mask)
        return self.w_o(self.merge(w @ v)), w


@wrong("MultiHeadAttention", "PyTorch's True means: may be seen")
class TorchMask(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(self.merge(out))


@wrong("MultiHeadAttention", "d_model in the scale")
class ScaledByModel(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        w = zero_rows(q @ k.mT / math.sqrt(x.shape[-1]), mask)
        return self.w_o(self.merge(w @ v))


@wrong("MultiHeadAttention", "always causal")
class AlwaysCausal(Layered):
    def forward(self, x, mask=None):
        T = x.shape[1]
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        mask = future if mask is None else mask | future
        return self.w_o(self.merge(zero_rows(q @ k.mT / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "no scale, and values made by w_k")
class NoScaleKeysForValues(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_k(x)))
        return self.w_o(self.merge(zero_rows(q @ k.mT, mask) @ v))


@wrong("MultiHeadAttention", "one mask for all heads: the first")
class FirstMask(Layered):
    def forward(self, x, mask=None):
        if mask is not None and mask.dim() == 4:
            mask = mask[:, :1]
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        return self.w_o(self.merge(zero_rows(q @ k.mT / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "forgets super().__init__()")
class NoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return self.w_o(x)


@wrong("MultiHeadAttention", "heads split straight, scores over the heads")
class SplitStraight(Layered):
    def split(self, x):
        B, T, D = x.shape
        return x.reshape(B, self.n_heads, T, self.d_k)

    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        return self.w_o(self.merge(zero_rows(q @ k.mT / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "the heads are never split, and the scale is of d_k")
class OneHead(Layered):
    def forward(self, x, mask=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        return self.w_o(scores.softmax(-1) @ v)


@wrong("MultiHeadAttention", "residual added, and no mask of any kind")
class Residual(Layered):
    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.w_q(x), self.w_k(x), self.w_v(x)))
        w = (q @ k.mT / math.sqrt(self.d_k)).softmax(-1)
        return x + self.w_o(self.merge(w @ v))


# --- 12 next_token_loss ---------------------------------------------------------------------------


@wrong("next_token_loss", "no shift")
def loss_no_shift(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


@wrong("next_token_loss", "shifted the other way")
def loss_backwards(logits, tokens):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())


@wrong("next_token_loss", "sum of all")
def loss_sum(logits, tokens):
    V = logits.size(-1)
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1), reduction="sum"
    )


@wrong("next_token_loss", "softmax before the cross-entropy")
def loss_softmax_first(logits, tokens):
    probs = F.softmax(logits, dim=-1)
    return F.cross_entropy(probs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss", "token 0 taken for padding")
def loss_ignores_zero(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


@wrong("next_token_loss", "flattened first, shifted after")
def loss_flat_first(logits, tokens):
    flat, labels = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)
    return F.cross_entropy(flat[:-1], labels[1:])


@wrong("next_token_loss", "the sign is lost, in numpy's way")
def loss_no_sign(logits, tokens):
    logp = logits.log_softmax(-1)[:, :-1]
    picked = logp.gather(-1, tokens[:, 1:, None])[..., 0]
    return picked.mean()


@wrong("next_token_loss", "exp of the loss")
def loss_perplexity(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).exp()


@wrong("next_token_loss", "the classes stay last")
def loss_classes_last(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:])


@wrong("next_token_loss", "no shift, and softmax twice")
def loss_no_shift_softmax(logits, tokens):
    p = logits.softmax(-1)
    return nn.CrossEntropyLoss()(p.transpose(1, 2), tokens)


@wrong("next_token_loss", "log of base 2")
def loss_bits(logits, tokens):
    p = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:].unsqueeze(-1))
    return -torch.log2(p).mean()


# --- 13 previous_token_score ----------------------------------------------------------------------


@wrong("previous_token_score", "the diagonal above")
def previous_above(weights):
    return weights.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "divided by T")
def previous_by_T(weights):
    return weights.diagonal(-1, 1, 2).sum(-1) / weights.shape[-1]


@wrong("previous_token_score", "diagonal over the first two axes")
def previous_first_axes(weights):
    return weights.diagonal(-1).mean(-1)


@wrong("previous_token_score", "token 0 looks at the last")
def previous_wraps(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 1] for t in range(T)], -1).mean(-1)


@wrong("previous_token_score", "one number for all heads")
def previous_all_heads(weights):
    return torch.diagonal(weights, offset=-1, dim1=1, dim2=2).mean()


@wrong("previous_token_score", "how often the previous token gets most")
def previous_argmax(weights):
    T = weights.shape[-1]
    best = weights[:, 1:].argmax(-1)
    return (best == torch.arange(T - 1)).to(weights.dtype).mean(-1)


@wrong("previous_token_score", "the block below the first row, averaged")
def previous_block(weights):
    return weights[:, 1:, :-1].mean(dim=(1, 2))


@wrong("previous_token_score", "diagonal above, and summed")
def previous_above_sum(weights):
    return torch.stack([w.diag(1).sum() for w in weights])


@wrong("previous_token_score", "numpy's trace, divided by T")
def previous_trace(weights):
    w = weights.numpy()
    return torch.from_numpy(np.trace(w, offset=-1, axis1=1, axis2=2) / w.shape[1])


# --- 14 count_flops -------------------------------------------------------------------------------


@wrong("count_flops", "multiply-adds count once")
def flops_macs(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 4 * T * d_model * d_model + 2 * n_heads * T * T * d_k


@wrong("count_flops", "three projections")
def flops_three(T, d_model, n_heads):
    return 2 * 3 * T * d_model**2 + 2 * 2 * T**2 * d_model


@wrong("count_flops", "the scores only, not the mixing")
def flops_one_product(T, d_model, n_heads):
    return 8 * T * d_model**2 + 2 * T * T * d_model


@wrong("count_flops", "one head's products")
def flops_one_head(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * (2 * T * d_model * d_model)
    products = 2 * (2 * T * T * d_k)
    return projections + products


@wrong("count_flops", "the softmax counted, too")
def flops_softmax(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T * T * d_model + n_heads * T * T


@wrong("count_flops", "a float by true division")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model**2 + n_heads * 4 * T * T * d_k


@wrong("count_flops", "multiply-adds once, and no output projection")
def flops_macs_three(T, d_model, n_heads):
    return 3 * T * d_model * d_model + 2 * T * T * d_model


@wrong("count_flops", "projections of d_model × d_k, once instead of per head")
def flops_narrow(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 2 * (4 * T * d_model * d_k + 2 * n_heads * T * T * d_k)


@wrong("count_flops", "the causal half")
def flops_causal(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * (T * (T + 1) // 2) * d_model


# --- 15 blockwise_attention -----------------------------------------------------------------------


@wrong("blockwise_attention", "all scores at once")
def blockwise_not(Q, K, V, block):
    scores = Q @ K.T / math.sqrt(Q.shape[-1])
    return scores.softmax(-1) @ V


@wrong("blockwise_attention", "a softmax of each block, averaged")
def blockwise_average(Q, K, V, block):
    parts = []
    for k, v in zip(K.split(block), V.split(block), strict=True):
        parts.append((Q @ k.T / math.sqrt(Q.shape[-1])).softmax(-1) @ v)
    return torch.stack(parts).mean(0)


@wrong("blockwise_attention", "the last, shorter block is lost")
def blockwise_lost_rest(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), -math.inf, dtype=Q.dtype)
    total = torch.zeros_like(m)
    out = torch.zeros(Q.shape[0], V.shape[1], dtype=Q.dtype)
    for i in range(max(1, K.shape[0] // block)):
        k, v = K[i * block : (i + 1) * block], V[i * block : (i + 1) * block]
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.max(-1, keepdim=True).values)
        p = torch.exp(s - new)
        total = total * torch.exp(m - new) + p.sum(-1, keepdim=True)
        out = out * torch.exp(m - new) + p @ v
        m = new
    return out / total


@wrong("blockwise_attention", "the sum is not rescaled")
def blockwise_sum_not_rescaled(Q, K, V, block):
    m = torch.full((Q.shape[0], 1), float("-inf"), dtype=Q.dtype, device=Q.device)
    denominator, out = 0, 0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.mT * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        fix, p = (m - new).exp(), (s - new).exp()
        denominator = denominator + p.sum(-1, keepdim=True)
        out = out * fix + p @ v
        m = new
    return out / denominator


@wrong("blockwise_attention", "the correction is upside down")
def blockwise_upside_down(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -1e30)
    total = Q.new_zeros(len(Q), 1)
    o = Q.new_zeros(len(Q), V.shape[-1])
    for start in range(0, len(K), block):
        s = Q @ K[start : start + block].T / math.sqrt(K.shape[-1])
        top = torch.maximum(m, s.amax(1, keepdim=True))
        c = torch.exp((m - top).clamp(min=-50)) if start == 0 else torch.exp(top - m)
        p = torch.exp(s - top)
        total, o, m = total * c + p.sum(1, keepdim=True), o * c + p @ V[start : start + block], top
    return o / total


@wrong("blockwise_attention", "no maximum at all")
def blockwise_no_maximum(Q, K, V, block):
    top, bottom = 0, 0
    for start in range(0, len(K), block):
        e = torch.exp(Q @ K[start : start + block].T / math.sqrt(Q.shape[-1]))
        top = top + e @ V[start : start + block]
        bottom = bottom + e.sum(-1, keepdim=True)
    return top / bottom


@wrong("blockwise_attention", "blocks of queries")
def blockwise_queries(Q, K, V, block):
    return torch.cat([(q @ K.T / math.sqrt(Q.shape[-1])).softmax(-1) @ V for q in Q.split(block)])


@wrong("blockwise_attention", "the running maximum begins at zero")
def blockwise_zero_maximum(Q, K, V, block):
    m = Q.new_zeros(len(Q), 1)
    total, out = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        m_new = torch.maximum(m, s.max(dim=1, keepdim=True)[0])
        p = torch.exp(s - m_new)
        total = total * torch.exp(m - m_new) + p.sum(dim=1, keepdim=True)
        out = out * torch.exp(m - m_new) + p @ V[i : i + block]
        m = m_new
    return out / total


@wrong("blockwise_attention", "no scale, and only the output is rescaled")
def blockwise_no_scale_sum(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    total, out = 0, 0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T
        new = torch.maximum(m, s.max(1, keepdim=True).values)
        p = torch.exp(s - new)
        out = out * torch.exp(m - new) + p @ v
        total = total + p.sum(1, keepdim=True)
        m = new
    return out / total


# --- 16 rotate ------------------------------------------------------------------------------------


def angles(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    return positions[:, None].double() * base ** (-i / half)


@wrong("rotate", "neighbours are pairs, as complex numbers")
def rotate_complex(x, positions):
    z = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2).contiguous())
    turned = z * torch.polar(torch.ones_like(angles(x, positions)), angles(x, positions))
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


@wrong("rotate", "turns the other way")
def rotate_other_way(x, positions):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles(x, positions).cos().to(x.dtype), angles(x, positions).sin().to(x.dtype)
    return torch.cat([a * cos + b * sin, b * cos - a * sin], dim=-1)


@wrong("rotate", "the exponent goes to half only")
def rotate_exponent(x, positions):
    d = x.shape[-1]
    theta = positions[:, None] / 10_000 ** (torch.arange(d // 2, device=x.device) / d)
    cos, sin = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@wrong("rotate", "angles of neighbours for halves")
def rotate_repeat_interleave(x, positions):
    t = angles(x, positions).repeat_interleave(2, dim=-1)
    a, b = x.chunk(2, dim=-1)
    rotated = torch.cat([-b, a], dim=-1)
    return x * t.cos().to(x.dtype) + rotated * t.sin().to(x.dtype)


@wrong("rotate", "positions are counted anew")
def rotate_counts(x, positions):
    T = x.shape[-2]
    t = angles(x, torch.arange(T, device=x.device))
    a, b = x.chunk(2, dim=-1)
    c, s = t.cos().to(x.dtype), t.sin().to(x.dtype)
    return torch.cat([a * c - b * s, a * s + b * c], dim=-1)


@wrong("rotate", "adds sines and cosines, as in the first paper")
def rotate_adds(x, positions):
    t = angles(x, positions)
    return x + torch.cat([t.sin(), t.cos()], dim=-1).to(x.dtype)


@wrong("rotate", "the halves come back exchanged")
def rotate_halves_exchanged(x, positions):
    t = angles(x, positions)
    a, b = x.chunk(2, dim=-1)
    c, s = t.cos().to(x.dtype), t.sin().to(x.dtype)
    return torch.cat([a * s + b * c, a * c - b * s], dim=-1)


@wrong("rotate", "frequencies grow, and the sign is lost")
def rotate_grow_and_sign(x, positions):
    half = x.shape[-1] // 2
    freq = 10_000 ** (torch.arange(half, dtype=torch.float64, device=x.device) / half)
    t = positions[:, None] * freq
    a, b = x[..., :half], x[..., half:]
    c, s = t.cos().to(x.dtype), t.sin().to(x.dtype)
    return torch.cat([a * c + b * s, a * s + b * c], dim=-1)


@wrong("rotate", "the base is 1000")
def rotate_base(x, positions):
    t = angles(x, positions, base=1_000.0)
    a, b = x.chunk(2, dim=-1)
    c, s = t.cos().to(x.dtype), t.sin().to(x.dtype)
    return torch.cat([a * c - b * s, a * s + b * c], dim=-1)


# --- 17 cached_attention --------------------------------------------------------------------------


def longer(k, v, cache):
    if cache is None:
        return k, v
    return torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)


@wrong("cached_attention", "nothing is masked")
def cached_no_mask(q, k, v, cache):
    k, v = longer(k, v, cache)
    return F.scaled_dot_product_attention(q, k, v), (k, v)


@wrong("cached_attention", "is_causal, which begins at the first key")
def cached_is_causal(q, k, v, cache):
    k, v = longer(k, v, cache)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("cached_attention", "joined along the heads")
def cached_heads(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=1)
        v = torch.cat([cache[1], v], dim=1)
    T_new, T_all = q.shape[2], k.shape[2]
    future = torch.ones(T_new, T_all, dtype=torch.bool, device=q.device).triu(T_all - T_new + 1)
    w = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong("cached_attention", "the new ones stand in front")
def cached_new_first(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([k, cache[0]], 2), torch.cat([v, cache[1]], 2)
    n, m = q.shape[2], k.shape[2]
    future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    w = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
    return w @ v, (k, v)


@wrong("cached_attention", "the cache that comes back holds the new tokens only")
def cached_only_new(q, k, v, cache):
    keys, values = longer(k, v, cache)
    n, m = q.shape[2], keys.shape[2]
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen), (k, v)


@wrong("cached_attention", "three results in a row")
def cached_three(q, k, v, cache):
    k, v = longer(k, v, cache)
    n, m = q.shape[2], k.shape[2]
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen), k, v


@wrong("cached_attention", "None was not thought of")
def cached_no_none(q, k, v, cache):
    k = torch.cat([cache[0], k], dim=-2)
    v = torch.cat([cache[1], v], dim=-2)
    n, m = q.shape[2], k.shape[2]
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen), (k, v)


@wrong("cached_attention", "the mask forgets the cache, and there is no scale")
def cached_triu_no_scale(q, k, v, cache):
    k, v = longer(k, v, cache)
    scores = q @ k.transpose(-2, -1)
    future = torch.triu(torch.ones_like(scores), diagonal=1).bool()
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v, (k, v)


@wrong("cached_attention", "values are joined to the old keys")
def cached_keys_for_values(q, k, v, cache):
    if cache is not None:
        past_k, past_v = cache
        k = torch.cat((past_k, k), dim=-2)
        v = torch.cat((past_k, v), dim=-2)
    n, m = q.shape[2], k.shape[2]
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen), (k, v)


@wrong("cached_attention", "one token of the future is seen, and the cache is a stack")
def cached_off_by_one_stack(q, k, v, cache):
    k, v = longer(k, v, cache)
    n, m = q.shape[2], k.shape[2]
    future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 2)
    w = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
    return w @ v, torch.stack([k, v])


# --- 18 grouped_scores ----------------------------------------------------------------------------


@wrong("grouped_scores", "tiled")
def grouped_tiled(q, k):
    g = q.shape[1] // k.shape[1]
    return q @ k.repeat(1, g, 1, 1).mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "each key head h_kv times")
def grouped_times_kv(q, k):
    return q @ k.repeat_interleave(k.shape[1], dim=1).mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "repeated along the batch")
def grouped_batch(q, k):
    g = q.shape[1] // k.shape[1]
    return q @ k.repeat_interleave(g, dim=0).mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "five axes come back")
def grouped_five(q, k):
    B, h, T, d = q.shape
    q = q.view(B, k.shape[1], -1, T, d)
    return q @ k[:, :, None].mT / math.sqrt(d)


@wrong("grouped_scores", "the first key head serves all")
def grouped_first(q, k):
    return q @ k[:, :1].mT / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "no groups: as in attention_scores")
def grouped_plain(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "tiled, and divided by d_k")
def grouped_tiled_by_d(q, k):
    g = q.shape[1] // k.shape[1]
    return torch.einsum("bhqd,bhkd->bhqk", q, torch.cat([k] * g, dim=1)) / q.shape[-1]


@wrong("grouped_scores", "view with the axes of the group exchanged")
def grouped_group_first(q, k):
    B, h, T, d = q.shape
    h_kv = k.shape[1]
    q = q.reshape(B, h // h_kv, h_kv, T, d)
    return torch.einsum("bgntd,bnsd->bgnts", q, k).reshape(B, h, T, -1) * d**-0.5


# --- 19 cached_mask -------------------------------------------------------------------------------


@wrong("cached_mask", "the cache does not shift the queries")
def mask_no_shift(n_new, n_cached, window):
    i = torch.arange(n_new)[:, None]
    j = torch.arange(n_cached + n_new)[None, :]
    mask = j > i
    if window is not None:
        mask |= i - j >= window
    return mask


@wrong("cached_mask", "one more token in the window")
def mask_one_more(n_new, n_cached, window):
    i = torch.arange(n_new)[:, None] + n_cached
    j = torch.arange(n_cached + n_new)[None, :]
    mask = j > i
    if window is not None:
        mask = mask | (j < i - window)
    return mask


@wrong("cached_mask", "None is compared")
def mask_none(n_new, n_cached, window):
    i = n_cached + torch.arange(n_new).unsqueeze(-1)
    j = torch.arange(n_new + n_cached)
    return (j > i) | (i - j >= window)


@wrong("cached_mask", "the window only")
def mask_window_only(n_new, n_cached, window):
    i = n_cached + torch.arange(n_new).unsqueeze(-1)
    j = torch.arange(n_new + n_cached)
    if window is None:
        return j > i
    return i - j >= window


@wrong("cached_mask", "and instead of or")
def mask_and(n_new, n_cached, window):
    i = n_cached + torch.arange(n_new)[:, None]
    j = torch.arange(n_new + n_cached)[None]
    mask = j > i
    return mask if window is None else mask & (i - j >= window)


@wrong("cached_mask", "new tokens only")
def mask_new_only(n_new, n_cached, window):
    mask = torch.ones(n_new, n_new, dtype=torch.bool).triu(1)
    if window is not None:
        mask |= torch.ones(n_new, n_new, dtype=torch.bool).tril(-window)
    return mask


@wrong("cached_mask", "what may be seen, and the window one too narrow")
def mask_visible_narrow(n_new, n_cached, window):
    i = n_cached + torch.arange(n_new)[:, None]
    j = torch.arange(n_new + n_cached)[None]
    seen = j <= i
    if window is not None:
        seen &= i - j < window - 1
    return seen


@wrong("cached_mask", "a window that is counted from the end of the row")
def mask_from_the_end(n_new, n_cached, window):
    total = n_cached + n_new
    mask = torch.ones(n_new, total, dtype=torch.bool).triu(n_cached + 1)
    if window is not None:
        mask[:, : max(0, total - window)] = True
    return mask


# --- the short ones -------------------------------------------------------------------------------


@wrong("silence", "in place")
def silence_in_place(heads, i):
    heads[:, i] = 0
    return heads


@wrong("silence", "the sequence, in numpy's way")
def silence_sequence(heads, i):
    out = heads.clone()
    out[i] = 0
    return out


@wrong("silence", "deleted")
def silence_deleted(heads, i):
    keep = [j for j in range(heads.shape[1]) if j != i]
    return heads[:, keep]


@wrong("silence", "halved, not silenced")
def silence_halved(heads, i):
    out = heads.clone()
    out[:, i] *= 0.5
    return out


@wrong("silence", "minus infinity")
def silence_minus_infinity(heads, i):
    out = heads.clone()
    out[:, i] = float("-inf")
    return out


@wrong("silence", "a factor for head i of the wrong axis, and head 0 as well")
def silence_two(heads, i):
    keep = torch.ones_like(heads)
    keep[:, :, i - 1] = 0
    return heads * keep


@wrong("solved", "keys and queries exchanged")
def solved_exchanged(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", "the first axis taken for the query")
def solved_first_axis(weights, query, right, wrong):
    return weights[query, :, right] > weights[query, :, wrong]


@wrong("solved", "Python's list of bools")
def solved_list(weights, query, right, wrong):
    return [bool(w[query, right] > w[query, wrong]) for w in weights]


@wrong("solved", "the share of heads")
def solved_share(weights, query, right, wrong):
    row = weights[:, query]
    return (row[:, right] > row[:, wrong]).float().mean()


@wrong("solved", "argmax of the row")
def solved_argmax(weights, query, right, wrong):
    return weights[:, query, :].argmax(dim=-1) == right


@wrong("solved", "twice as much is asked for")
def solved_twice(weights, query, right, wrong):
    return weights[:, query, right] > 2 * weights[:, query, wrong]


# --- unusual, and right ---------------------------------------------------------------------------


@right("attention_scores")
def scores_by_cdist(Q, K):
    """Dot products out of squared lengths: (|q + k|² − |q − k|²) / 4."""
    q, k = Q.unsqueeze(-2), K.unsqueeze(-3)
    return ((q + k).square().sum(-1) - (q - k).square().sum(-1)) / (4 * Q.shape[-1] ** 0.5)


@right("attention_scores")
def scores_tensordot(Q, K):
    one = torch.matmul(Q.div(math.pow(Q.shape[-1], 0.5)), K.movedim(-1, -2))
    return one.clone()


@right("attention")
def attention_logsumexp(Q, K, V):
    s = torch.baddbmm if False else (Q * Q.shape[-1] ** -0.5) @ K.mT
    w = (s - s.logsumexp(-1, keepdim=True)).exp()
    return [w @ V, w]


@right("project_qkv")
def project_by_unflatten(X, W_qkv):
    return tuple(torch.einsum("btd,ked->kbte", X, W_qkv.unflatten(0, (3, -1))))


@right("count_parameters")
def parameters_by_shapes(d_model, n_heads, d_k):
    shapes = [(n_heads * d_k, d_model)] * 3 + [(d_model, n_heads * d_k)]
    return sum(math.prod(s) for s in shapes)


@right("split_heads")
def split_by_gather(x, n_heads):
    columns = torch.arange(x.shape[-1], device=x.device).view(n_heads, -1)
    return x[..., columns].movedim(-2, 1)


@right("merge_heads")
def merge_by_hstack(x):
    return torch.stack([torch.hstack(list(sequence)) for sequence in x])


@right("causal_mask")
def causal_by_cumsum(T):
    return ~torch.eye(T).cumsum(dim=1).T.bool()


@right("padding_mask")
def padding_by_lists(lengths, T):
    rows = [[[[t >= n for t in range(T)]]] for n in lengths.tolist()]
    return torch.tensor(rows, device=lengths.device).view(len(rows), 1, 1, T)


@right("masked_softmax")
def masked_by_where(scores, mask):
    low = torch.where(mask, torch.finfo(scores.dtype).min, scores)
    e = torch.where(mask, 0.0, (low - low.amax(-1, keepdim=True)).exp())
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total > 0, total, 1.0)


@right("sum_of_head_writes")
def writes_tensordot(heads, W_o):
    W = W_o.T.reshape(heads.shape[1], heads.shape[3], -1)
    return torch.tensordot(heads, W, dims=([1, 3], [0, 1]))


@right("MultiHeadAttention")
class ByHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.add_module(name, nn.Linear(d_model, d_model, bias=name == "w_o"))
        self.parts = [
            slice(i * d_model // n_heads, (i + 1) * d_model // n_heads) for i in range(n_heads)
        ]

    def forward(self, x, mask=None):
        h = len(self.parts)
        B, T, _ = x.shape
        if mask is not None:
            mask = mask.expand(B, h, T, T)
        Q, K, V = self.w_q(x), self.w_k(x), self.w_v(x)
        contexts = []
        for i, part in enumerate(self.parts):
            s = Q[..., part] @ K[..., part].mT * Q[..., part].shape[-1] ** -0.5
            contexts.append(zero_rows(s, None if mask is None else mask[:, i]) @ V[..., part])
        return self.w_o(torch.cat(contexts, -1))


@right("next_token_loss")
def loss_by_onehot(logits, tokens):
    logp = logits.narrow(1, 0, logits.shape[1] - 1).log_softmax(-1)
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logp.dtype)
    return -(logp * hot).sum((-1, -2)).mean() / (logits.shape[1] - 1)


@right("previous_token_score")
def previous_by_einsum(weights):
    below = weights[:, 1:, :-1]
    return torch.einsum("hii->h", below) / below.shape[-1]


@right("count_flops")
def flops_by_products(T, d_model, n_heads):
    def product(n, m, k):
        return 2 * n * m * k

    d_k = d_model // n_heads
    one_head = product(T, d_k, T) + product(T, T, d_k)
    return 4 * product(T, d_model, d_model) + n_heads * one_head


@wrong("blockwise_attention", "keeps a maximum of every block: with a block of 1, all scores")
def blockwise_all_maxima(Q, K, V, block):
    scale = Q.shape[-1] ** -0.5
    top = torch.stack([(Q @ k.T * scale).amax(-1) for k in K.split(block)]).amax(0)[:, None]
    above = below = 0.0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        e = torch.exp(Q @ k.T * scale - top)
        above, below = above + e @ v, below + e.sum(-1, keepdim=True)
    return above / below


@right("blockwise_attention")
def blockwise_two_passes(Q, K, V, block):
    scale = Q.shape[-1] ** -0.5
    top = Q.new_full((len(Q), 1), -math.inf)
    for k in K.split(block):
        top = torch.maximum(top, (Q @ k.T * scale).amax(-1, keepdim=True))
    above = below = 0.0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        e = torch.exp(Q @ k.T * scale - top)
        above, below = above + e @ v, below + e.sum(-1, keepdim=True)
    return above / below


@right("rotate")
def rotate_by_matrix(x, positions):
    half = x.shape[-1] // 2
    t = angles(x, positions)
    c, s = torch.diag_embed(t.cos()), torch.diag_embed(t.sin())
    R = torch.cat([torch.cat([c, -s], -1), torch.cat([s, c], -1)], -2).to(x.dtype)
    return (R @ x[..., None])[..., 0]


@right("cached_attention")
def cached_token_by_token(q, k, v, cache):
    keys, values = (k[:, :, :0], v[:, :, :0]) if cache is None else cache
    rows = []
    for t in range(q.shape[2]):
        keys = torch.cat([keys, k[:, :, t : t + 1]], 2)
        values = torch.cat([values, v[:, :, t : t + 1]], 2)
        rows.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], keys, values))
    return torch.cat(rows, 2), (keys, values)


@right("grouped_scores")
def grouped_by_index(q, k):
    of_head = [i * k.shape[1] // q.shape[1] for i in range(q.shape[1])]
    return q.matmul(k[:, of_head].mT).div(math.sqrt(k.shape[-1]))


@right("cached_mask")
def mask_by_lists(n_new, n_cached, window):
    rows = []
    for i in range(n_cached, n_cached + n_new):
        first = 0 if window is None else max(0, i - window + 1)
        rows.append([not first <= j <= i for j in range(n_cached + n_new)])
    return torch.tensor(rows)


@right("silence")
def silence_by_onehot(heads, i):
    keep = 1 - F.one_hot(torch.tensor(i, device=heads.device), heads.shape[1])
    return heads * keep.to(heads.dtype)[:, None, None]


@right("solved")
def solved_by_sign(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=1).squeeze(1).signbit()
