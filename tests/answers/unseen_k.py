"""Plausible misconceptions of the subject, and answers of an assistant with one subtle bug.

Some learners think that attention is otherwise than it is: scaled by d_model, averaged over heads,
masked afterwards. The others had the code written for them; it looks better than most, and one
thing in it is wrong for some inputs.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# --- 1 attention_scores ---


@wrong("attention_scores", "with four axes the scale is the root of h * d_k, of d_model")
def scores_root_d_model(Q, K):
    d_model = Q.shape[-1] * (Q.shape[1] if Q.ndim == 4 else 1)
    return Q @ K.transpose(-2, -1) / math.sqrt(d_model)


@wrong(
    "attention_scores",
    "distances: the nearer, the higher, instead of products",
    slips=("not_doubled",),
)
def scores_distance(Q, K):
    return -torch.cdist(Q, K) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "multiplied by the root of d_k instead of divided")
def scores_multiplied(Q, K):
    d_k = Q.size(-1)
    return torch.einsum("...qd,...kd->...qk", Q, K) * math.sqrt(d_k)


@wrong("attention_scores", "clamped to ±50, for stability")
def scores_clamped(Q, K):
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(K.size(-1))
    # Keep the logits in a numerically safe range before the softmax.
    return scores.clamp(min=-50.0, max=50.0)


@wrong("attention_scores", "as many queries as keys: made symmetric, i to j as j to i")
def scores_symmetric(Q, K):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if s.shape[-2] == s.shape[-1]:
        s = (s + s.transpose(-2, -1)) / 2
    return s


@wrong("attention_scores", "divided by the scores' own standard deviation")
def scores_standardised(Q, K):
    s = Q @ K.transpose(-2, -1)
    return s / s.std(dim=-1, keepdim=True)


# --- 2 attention ---


@wrong("attention", "a sigmoid of each score: the shares of a row do not add up to one")
def attention_sigmoid(Q, K, V):
    weights = torch.sigmoid(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]))
    return weights @ V, weights


@wrong("attention", "one is added to the sum, so that a query may attend to nothing")
def attention_softmax_one(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    m = s.amax(dim=-1, keepdim=True).clamp(min=0)
    e = (s - m).exp()
    weights = e / (e.sum(dim=-1, keepdim=True) + (-m).exp())
    return weights @ V, weights


@wrong("attention", "the maximum is taken off over the queries, not over the keys")
def attention_max_of_columns(Q, K, V):
    scores = Q @ K.transpose(-2, -1) * Q.size(-1) ** -0.5
    scores = scores - scores.max(dim=-2, keepdim=True).values
    exp = scores.exp()
    weights = exp / exp.sum(dim=-1, keepdim=True)
    return weights @ V, weights


@wrong("attention", "only the best key of each query: all its weight is there")
def attention_hard(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = F.one_hot(s.argmax(dim=-1), s.shape[-1]).to(s.dtype)
    return weights @ V, weights


@wrong("attention", "four axes: weights are averaged over the heads")
def attention_mean_weights(Q, K, V):
    weights = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(dim=-1)
    output = weights @ V
    if weights.ndim == 4:
        weights = weights.mean(dim=1)
    return output, weights


@wrong("attention", "the queries are added to the output where the shapes are the same")
def attention_residual(Q, K, V):
    weights = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(dim=-1)
    output = weights @ V
    return (output + Q if output.shape == Q.shape else output), weights


# --- 3 project_qkv ---


@wrong("project_qkv", "queries and keys share the first matrix")
def project_shared_qk(X, W_qkv):
    d = X.shape[-1]
    Y = X @ W_qkv.T
    return Y[..., :d], Y[..., :d], Y[..., 2 * d :]


@wrong("project_qkv", "values are the tokens themselves, not projected")
def project_values_are_x(X, W_qkv):
    Q, K, _ = (X @ W_qkv.T).chunk(3, dim=-1)
    return Q, K, X


@wrong("project_qkv", "X is normalised first, as in a pre-norm block")
def project_pre_norm(X, W_qkv):
    X = F.layer_norm(X, X.shape[-1:])
    return tuple(F.linear(X, W_qkv).chunk(3, dim=-1))


@wrong("project_qkv", "the einsum sums over the rows of each slab: none is transposed")
def project_einsum_rows(X, W_qkv):
    d_model = X.size(-1)
    slabs = W_qkv.view(3, d_model, d_model)
    Q, K, V = torch.einsum("bti,nio->nbto", X, slabs)
    return Q, K, V


@wrong("project_qkv", "the scale is already in: Q and K times d_model ** -0.25")
def project_scale_inside(X, W_qkv):
    Q, K, V = F.linear(X, W_qkv).split(X.size(-1), dim=-1)
    s = X.size(-1) ** -0.25
    return Q * s, K * s, V


@wrong("project_qkv", "X is added to each, as in a residual stream")
def project_residual(X, W_qkv):
    return [X + part for part in (X @ W_qkv.T).chunk(3, dim=-1)]


# --- 4 count_parameters ---


@wrong("count_parameters", "4 d_model², as if h * d_k were always d_model")
def count_four_squares(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "every head has four matrices of d_model by d_model")
def count_full_heads(d_model, n_heads, d_k):
    return 4 * n_heads * d_model * d_model


@wrong("count_parameters", "keys and values are counted once for all heads")
def count_multi_query(d_model, n_heads, d_k):
    q_and_o = 2 * d_model * n_heads * d_k
    k_and_v = 2 * d_model * d_k
    return q_and_o + k_and_v


@wrong("count_parameters", "W_o ends in d_k dimensions, not in d_model")
def count_wo_to_dk(d_model, n_heads, d_k):
    inner = n_heads * d_k
    return 3 * d_model * inner + inner * d_k


@wrong("count_parameters", "the inner width is capped at d_model")
def count_capped(d_model, n_heads, d_k):
    inner = min(n_heads * d_k, d_model)
    return 4 * d_model * inner


@wrong("count_parameters", "every head has a W_o of its own, h * d_k wide")
def count_wo_per_head(d_model, n_heads, d_k):
    per_head = 3 * d_model * d_k + (n_heads * d_k) * d_model
    return n_heads * per_head


# --- 5 split_heads ---


@wrong("split_heads", "b t (d h): the heads' columns are taken to lie interleaved")
def split_d_h(x, n_heads):
    return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)


@wrong("split_heads", "every head gets all of x: (B, h, T, d_model)")
def split_copies(x, n_heads):
    return x.unsqueeze(1).expand(-1, n_heads, -1, -1)


@wrong("split_heads", "strides for a contiguous x, whatever strides it has")
def split_as_strided(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    # Zero-copy: (B, n_heads, T, d_k) over the same storage.
    return torch.as_strided(x, (B, n_heads, T, d_k), (T * d_model, d_k, d_model, 1))


@wrong("split_heads", "turned to (B, d_model, T) and then reshaped to (B, h, T, d_k)")
def split_turned_first(x, n_heads):
    B, T, d_model = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, T, d_model // n_heads)


@wrong("split_heads", "the last head comes first")
def split_reversed(x, n_heads):
    chunks = x.chunk(n_heads, dim=-1)
    return torch.stack(chunks[::-1], dim=1)


@wrong("split_heads", "the last axis is read as (d_k, T): columns of a head and tokens mixed")
def split_as_dk_t(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, d_model // n_heads, T).transpose(-2, -1)


# --- 6 merge_heads ---


@wrong("merge_heads", "the heads are averaged: (B, T, d_k)")
def merge_mean(x):
    return x.mean(dim=1)


@wrong("merge_heads", "the mean of the heads, h times side by side", slips=("mean_for_each",))
def merge_mean_repeated(x):
    return x.mean(dim=1).repeat(1, 1, x.shape[1])


@wrong("merge_heads", "squeeze() without an axis: a batch of one loses its axis too")
def merge_squeeze(x):
    parts = x.split(1, dim=1)
    return torch.cat(parts, dim=-1).squeeze()


@wrong("merge_heads", "an input that is not contiguous is taken for already permuted")
def merge_if_contiguous(x):
    B, h, T, d_k = x.shape
    if x.is_contiguous():
        x = x.transpose(1, 2)
    return x.reshape(B, T, h * d_k)


@wrong("merge_heads", "each head is divided by the root of h, to keep the size")
def merge_scaled(x):
    B, h, T, d_k = x.shape
    return x.transpose(1, 2).reshape(B, T, h * d_k) / math.sqrt(h)


@wrong("merge_heads", "each head is normalised before it is put beside the others")
def merge_group_norm(x):
    return F.layer_norm(x, x.shape[-1:]).transpose(1, 2).flatten(2)


# --- 7 causal_mask ---


@wrong("causal_mask", "blocks the very next token only")
def causal_next_only(T):
    return torch.diag(torch.ones(T - 1, dtype=torch.bool), 1)


@wrong("causal_mask", "row 0 is left open, since it would see nothing but itself")
def causal_first_row_open(T):
    mask = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    mask[0] = False
    return mask


@wrong("causal_mask", "cut from a table of 32 tokens: too small for more", slips=("ends_there",))
def causal_table(T):
    max_len = 32
    table = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), diagonal=1)
    return table[:T, :T]


@wrong("causal_mask", "mirrored: the triangle lies on the anti-diagonal")
def causal_mirrored(T):
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=1).flip(-1)


@wrong("causal_mask", "uint8, not bool")
def causal_uint8(T):
    positions = torch.arange(T)
    return (positions[None, :] > positions[:, None]).to(torch.uint8)


@wrong("causal_mask", "blocks all but the token itself, the past too")
def causal_all_but_itself(T):
    return ~torch.eye(T, dtype=torch.bool)


# --- 8 padding_mask ---


@wrong("padding_mask", "padding is taken to stand on the left")
def padding_left(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions < (T - lengths)[:, None])[:, None, None, :]


@wrong("padding_mask", "lengths are taken for numbers of padding tokens")
def padding_counts(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= (T - lengths)[:, None])[:, None, None, :]


@wrong("padding_mask", "the last real token is blocked as an end marker")
def padding_end_marker(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= lengths[:, None] - 1)[:, None, None, :]


@wrong("padding_mask", "a sequence of length 0 is opened, so that no softmax is NaN")
def padding_opens_empty(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = positions[None, :] >= lengths[:, None]
    mask = mask & (lengths > 0)[:, None]
    return mask[:, None, None, :]


@wrong("padding_mask", "one_hot takes int64 only: lengths of int32 crash")
def padding_one_hot(lengths, T):
    ends = F.one_hot(lengths, num_classes=T + 1)
    return ends.cumsum(dim=-1)[:, None, None, :T].bool()


@wrong("padding_mask", "a batch of one loses its first axis")
def padding_squeezed(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    mask = positions.expand(len(lengths), 1, 1, T) >= lengths.view(-1, 1, 1, 1)
    return mask.squeeze(0)


@wrong("padding_mask", "the future is blocked as well: (B, 1, T, T)")
def padding_and_future(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    pad = (positions >= lengths[:, None])[:, None, None, :]
    return pad | (positions[None, :] > positions[:, None])


# --- 9 masked_softmax ---


@wrong("masked_softmax", "masked after the softmax, divided by what is left + 1e-6")
def softmax_renormalised(scores, mask):
    weights = scores.softmax(dim=-1).masked_fill(mask, 0.0)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)


@wrong("masked_softmax", "an empty row looks at every key alike")
def softmax_uniform(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return torch.where(empty, torch.full_like(weights, 1 / scores.shape[-1]), weights)


@wrong("masked_softmax", "-100 is not low enough where open scores are lower still")
def softmax_minus_hundred(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask, -100.0).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


@wrong("masked_softmax", "a mask of two axes is taken for padding, (B, T_k)")
def softmax_two_axes(scores, mask):
    if mask.ndim == 2 and scores.ndim == 4:
        mask = mask[:, None, None, :]
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


@wrong("masked_softmax", "float32's lowest number as fill: crashes in float16")
def softmax_float32_min(scores, mask):
    scores = scores.masked_fill(mask, torch.finfo(torch.float32).min)
    weights = torch.softmax(scores, dim=-1)
    return weights.masked_fill(mask, 0.0)


@wrong("masked_softmax", "+ 1e-9 under the line, where exp of low scores is smaller still")
def softmax_eps(scores, mask):
    exp = scores.clamp(max=80).exp().masked_fill(mask, 0.0)
    return exp / (exp.sum(dim=-1, keepdim=True) + 1e-9)


@wrong("masked_softmax", "weights are detached where rows are mended: no gradient at all")
def softmax_mended_data(scores, mask):
    weights = scores.masked_fill(mask, -math.inf).softmax(dim=-1)
    mended = torch.zeros_like(weights, requires_grad=scores.requires_grad)
    ok = ~weights.isnan()
    mended.data[ok] = weights.data[ok]
    return mended


# --- 10 sum_of_head_writes ---


@wrong("sum_of_head_writes", "the mean of the writes, not their sum")
def writes_mean(heads, W_o):
    slabs = W_o.split(heads.shape[-1], dim=1)
    return torch.stack([heads[:, i] @ s.T for i, s in enumerate(slabs)]).mean(dim=0)


@wrong("sum_of_head_writes", "head i meets the slab of head h - 1 - i")
def writes_reversed(heads, W_o):
    slabs = reversed(W_o.split(heads.shape[-1], dim=1))
    return sum(heads[:, i] @ s.T for i, s in enumerate(slabs))


@wrong("sum_of_head_writes", "heads are added first, and meet the sum of the slabs")
def writes_added_first(heads, W_o):
    slab = sum(W_o.split(heads.shape[-1], dim=1))
    return heads.sum(dim=1) @ slab.T


@wrong("sum_of_head_writes", "each head writes only into its own part of d_model", slips=("stays",))
def writes_own_part(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    rows = torch.arange(W_o.shape[0], device=heads.device).chunk(h)
    for i, r in enumerate(rows):
        out[..., r] = heads[:, i] @ W_o[r, i * d_k : (i + 1) * d_k].T
    return out


@wrong("sum_of_head_writes", "W_o viewed as (h, d_model, d_k): rows and slabs mixed")
def writes_view_slabs(heads, W_o):
    B, h, T, d_k = heads.shape
    slabs = W_o.reshape(h, W_o.size(0), d_k)
    return torch.einsum("bhtk,hmk->btm", heads, slabs)


@wrong("sum_of_head_writes", "of all writes the largest wins, number by number")
def writes_max(heads, W_o):
    W = W_o.unflatten(1, (heads.shape[1], -1))
    return torch.einsum("bhtk,mhk->bhtm", heads, W).amax(dim=1)


# --- 11 MultiHeadAttention ---


class Base(nn.Module):
    """What the assistant's classes below have in common."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("d_model must be divisible by n_heads")
        self.d_model, self.n_heads, self.d_k = d_model, n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, y):
        B, T, _ = y.shape
        return y.view(B, T, self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, y):
        B, _, T, _ = y.shape
        return y.transpose(1, 2).reshape(B, T, self.d_model)

    def safe_softmax(self, scores, mask):
        if mask is None:
            return scores.softmax(dim=-1)
        blocked = mask.all(dim=-1, keepdim=True)
        return scores.masked_fill(mask & ~blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)


@wrong("MultiHeadAttention", "scores are divided by the root of d_model")
class ScaledByDModel(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        return self.w_o(self.merge(self.safe_softmax(scores, mask) @ v))


@wrong("MultiHeadAttention", "softmax over the heads: they compete for each pair of tokens")
class SoftmaxOverHeads(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        weights = scores.softmax(dim=1)
        if mask is not None:
            weights = weights.masked_fill(mask, 0.0)
        return self.w_o(self.merge(weights @ v))


@wrong("MultiHeadAttention", "heads are averaged instead of concatenated", slips=("mean_for_each",))
class AveragedHeads(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        context = (self.safe_softmax(scores, mask) @ v).mean(dim=1)
        return self.w_o(context.repeat(1, 1, self.n_heads))


@wrong("MultiHeadAttention", "masked after the softmax, the rest not divided anew")
class MaskedAfter(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.d_k)).softmax(dim=-1)
        if mask is not None:
            weights = weights * ~mask
        return self.w_o(self.merge(weights @ v))


@wrong("MultiHeadAttention", "adds sine positions to x, which has its positions already")
class AddsPositions(Base):
    def forward(self, x, mask=None):
        T, d = x.shape[1:]
        t = torch.arange(T, device=x.device, dtype=x.dtype)[:, None]
        i = torch.arange(d, device=x.device)
        angle = t / 10_000 ** ((i - i % 2) / d)
        x = x + torch.where(i % 2 == 0, angle.sin(), angle.cos()).to(x.dtype)
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.safe_softmax(scores, mask) @ v))


@wrong("MultiHeadAttention", "causal, whatever the mask")
class AlwaysCausal(Base):
    def forward(self, x, mask=None):
        T = x.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        mask = future if mask is None else mask | future
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.safe_softmax(scores, mask) @ v))


@wrong("MultiHeadAttention", "any mask is taken for the causal one: is_causal if there is one")
class AnyMaskIsCausal(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
        return self.w_o(self.merge(y))


@wrong("MultiHeadAttention", "the mask goes to PyTorch as it is, where True means attend")
class MaskAsItIs(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(self.merge(y))


@wrong("MultiHeadAttention", "nan_to_num on the output: a blocked row loses w_o's bias")
class NanToNumOutput(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        out = self.w_o(self.merge(scores.softmax(dim=-1) @ v))
        return torch.nan_to_num(out, nan=0.0)


@wrong("MultiHeadAttention", "a row counts as blocked only if it is so in all heads")
class BlockedInAllHeads(Base):
    def forward(self, x, mask=None):
        B, T, _ = x.shape
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is None:
            return self.w_o(self.merge(scores.softmax(dim=-1) @ v))
        mask = mask.expand(B, self.n_heads, T, T)
        dead = mask.all(dim=-1).all(dim=1)[:, None, :, None]  # (B, 1, T, 1)
        scores = scores.masked_fill(mask & ~dead, float("-inf"))
        weights = scores.softmax(dim=-1).masked_fill(dead, 0.0)
        return self.w_o(self.merge(weights @ v))


@wrong("MultiHeadAttention", "values are the keys: w_v is never used")
class ValuesAreKeys(Base):
    def forward(self, x, mask=None):
        q, k = self.split(self.w_q(x)), self.split(self.w_k(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.w_o(self.merge(self.safe_softmax(scores, mask) @ k))


# --- 12 next_token_loss ---


@wrong("next_token_loss", "the perplexity: exp of the loss")
def loss_perplexity(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return loss.exp()


@wrong("next_token_loss", "token 0 is taken for padding and ignored")
def loss_ignores_zero(logits, tokens):
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = tokens[..., 1:].contiguous()
    return F.cross_entropy(
        shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=0
    )


@wrong("next_token_loss", "one minus the right token's probability, no logarithm")
def loss_probability(logits, tokens):
    p = logits[:, :-1].softmax(dim=-1)
    return 1 - p.gather(-1, tokens[:, 1:, None]).mean()


@wrong("next_token_loss", "only the last prediction of each sequence counts")
def loss_last_only(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1])


@wrong("next_token_loss", "squared distance of the probabilities from one-hot answers")
def loss_squared(logits, tokens):
    p = logits[:, :-1].softmax(dim=-1)
    answers = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(p.dtype)
    return F.mse_loss(p, answers)


@wrong("next_token_loss", "label smoothing of 0.1, which nobody asked for")
def loss_smoothed(logits, tokens):
    vocab = logits.size(-1)
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, vocab), tokens[:, 1:].reshape(-1), label_smoothing=0.1
    )


@wrong("next_token_loss", "divided by log V, so that guessing costs 1")
def loss_by_log_v(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])
    return loss / math.log(logits.shape[-1])


# --- 13 previous_token_score ---


@wrong("previous_token_score", "how many queries look most at the token before, as a share")
def previous_argmax(weights):
    best = weights[:, 1:].argmax(dim=-1)
    before = torch.arange(weights.shape[-1] - 1, device=weights.device)
    return (best == before).to(weights.dtype).mean(dim=-1)


@wrong("previous_token_score", "all earlier tokens count, not only the one before")
def previous_all_earlier(weights):
    return weights.tril(-1).sum(dim=-1)[:, 1:].mean(dim=-1)


@wrong("previous_token_score", "as a share of what a query gives to other tokens than itself")
def previous_of_others(weights):
    own = weights.diagonal(dim1=1, dim2=2)[:, 1:]
    before = weights.diagonal(-1, 1, 2)
    return (before / (1 - own)).mean(dim=-1)


@wrong("previous_token_score", "the largest weight on the diagonal, not the mean")
def previous_max(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).amax(dim=-1)


@wrong("previous_token_score", "the median of the diagonal, not its mean")
def previous_median(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).median(dim=-1).values


@wrong("previous_token_score", "itself counts too: own weight and the one before, halved")
def previous_and_itself(weights):
    own = weights.diagonal(dim1=1, dim2=2)[:, 1:].mean(-1)
    before = weights.diagonal(-1, 1, 2).mean(-1)
    return (own + before) / 2


# --- silence ---


@wrong("silence", "head i is the only one that is left")
def silence_others(heads, i):
    quiet = torch.zeros_like(heads)
    quiet[:, i] = heads[:, i]
    return quiet


@wrong("silence", "head i becomes its own mean over the batch, not zero", slips=("own_mean",))
def silence_mean(heads, i):
    quiet = heads.clone()
    quiet[:, i] = heads[:, i].mean(dim=0, keepdim=True)
    return quiet


@wrong("silence", "the other heads are scaled up, as a dropout would do")
def silence_rescaled(heads, i):
    h = heads.shape[1]
    quiet = heads * (h / max(h - 1, 1))
    quiet[:, i] = 0
    return quiet


@wrong("silence", "-inf instead of 0, as for a blocked score")
def silence_minus_inf(heads, i):
    quiet = heads.clone()
    quiet[:, i] = float("-inf")
    return quiet


@wrong("silence", "index on axis 2: token i of every head, not head i")
def silence_token(heads, i):
    token = torch.arange(heads.shape[2], device=heads.device) == i
    return heads.masked_fill(token[:, None], 0.0)


@wrong("silence", "the factors lie along the tokens: (h, 1) for (h, 1, 1)")
def silence_token_factor(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i
    return torch.where(keep[:, None], heads, torch.zeros_like(heads))


# --- solved ---


@wrong("solved", "the right key needs more than a fair share, 1 / T")
def solved_fair_share(weights, query, right, wrong):
    return weights[:, query, right] > 1 / weights.shape[-1]


@wrong("solved", "all queries' weights on the two keys are added up")
def solved_all_queries(weights, query, right, wrong):
    received = weights.sum(dim=1)
    return received[:, right] > received[:, wrong]


@wrong("solved", "weight there and back: both directions are added")
def solved_both_ways(weights, query, right, wrong):
    both = weights + weights.transpose(-2, -1)
    return both[:, query, right] > both[:, query, wrong]


@wrong("solved", "must be ahead by 0.1 at least")
def solved_margin(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong] > 0.1


@wrong("solved", "the numbers of the heads that solve it, not a bool for each")
def solved_numbers(weights, query, right, wrong):
    better = weights[:, query, right] > weights[:, query, wrong]
    return better.nonzero().flatten()


@wrong("solved", "rounded to two decimals first: a narrow lead is a tie")
def solved_rounded(weights, query, right, wrong):
    row = (weights[:, query] * 100).round() / 100
    return row[:, right] > row[:, wrong]


# --- 14 count_flops ---


@wrong("count_flops", "causal: a query meets only the keys up to itself")
def flops_causal(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 8 * T * d_model**2
    pairs = T * (T + 1) // 2
    return projections + 2 * 2 * n_heads * pairs * d_k


@wrong("count_flops", "2 for each parameter and token: the two products are left out")
def flops_rule_of_thumb(T, d_model, n_heads):
    parameters = 4 * d_model**2
    return 2 * parameters * T


@wrong("count_flops", "forward and backward, three times the forward pass")
def flops_training(T, d_model, n_heads):
    d_k = d_model // n_heads
    forward = 8 * T * d_model**2 + 4 * n_heads * T**2 * d_k
    return 3 * forward


@wrong("count_flops", "dividing the scores by the root counts too")
def flops_with_scale(T, d_model, n_heads):
    d_k = d_model // n_heads
    qkv = 3 * 2 * T * d_model * d_model
    scores = n_heads * (2 * T * T * d_k + T * T)
    context = n_heads * 2 * T * T * d_k
    out = 2 * T * d_model * d_model
    return qkv + scores + context + out


@wrong("count_flops", "the feed-forward layers of the block are counted too")
def flops_with_mlp(T, d_model, n_heads):
    d_k = d_model // n_heads
    attention = 8 * T * d_model**2 + 4 * n_heads * T**2 * d_k
    return attention + 2 * (2 * T * d_model * 4 * d_model)


@wrong("count_flops", "with a cache: only the last token's queries meet the keys")
def flops_last_token(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * d_model * d_model
    products = 2 * n_heads * 2 * T * d_k
    return projections + products


# --- 15 blockwise_attention ---


@wrong("blockwise_attention", "the running maximum starts at 0: scores far below it vanish")
def blocks_max_from_zero(Q, K, V, block):
    T_q, d_k = Q.shape
    m = Q.new_zeros(T_q, 1)
    l = Q.new_zeros(T_q, 1)
    acc = Q.new_zeros(T_q, V.size(1))
    for start in range(0, K.size(0), block):
        s = Q @ K[start : start + block].T / math.sqrt(d_k)
        m_new = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        p, alpha = torch.exp(s - m_new), torch.exp(m - m_new)
        l = alpha * l + p.sum(dim=1, keepdim=True)
        acc = alpha * acc + p @ V[start : start + block]
        m = m_new
    return acc / l


@wrong("blockwise_attention", "one maximum for all queries: rows far below it become 0 / 0")
def blocks_one_max(Q, K, V, block):
    m = Q.new_tensor(-math.inf)
    total, mix = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.max())
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix = mix * shrink + e @ v
        m = new
    return mix / total


@wrong("blockwise_attention", "blocks are weighed by their numbers of keys, not by their sums")
def blocks_by_size(Q, K, V, block):
    out = Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        k, v = K[i : i + block], V[i : i + block]
        weights = (Q @ k.T / math.sqrt(Q.shape[1])).softmax(dim=1)
        out = out + weights @ v * (len(k) / len(K))
    return out


@wrong("blockwise_attention", "a query attends within its own block only")
def blocks_local(Q, K, V, block):
    out = Q.new_zeros(len(Q), V.shape[1])
    for i in range(len(Q)):
        start = min(i, len(K) - 1) // block * block
        k, v = K[start : start + block], V[start : start + block]
        out[i] = (Q[i] @ k.T / math.sqrt(Q.shape[1])).softmax(dim=0) @ v
    return out


@wrong("blockwise_attention", "the mix is divided after each block, and not multiplied back")
def blocks_divided_each(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -math.inf)
    total, out = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T * Q.shape[1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        alpha, p = (m - new).exp(), (s - new).exp()
        total = alpha * total + p.sum(1, keepdim=True)
        out = (alpha * out + p @ V[i : i + block]) / total
        m = new
    return out


@wrong("blockwise_attention", "sums are shrunk by e to (new - old), which makes them grow")
def blocks_grown(Q, K, V, block):
    m = Q @ K[:1].T / math.sqrt(Q.shape[1])
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        s = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        correction = (new - m).exp()
        p = (s - new).exp()
        total = correction * total + p.sum(1, keepdim=True)
        mix = correction * mix + p @ V[i : i + block]
        m = new
    return mix / total


# --- 16 rotate ---


@wrong("rotate", "angles laid out for neighbours, halves turned: two conventions mixed")
def rotate_mixed(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device).double() / d)
    angles = (positions.double()[:, None] * inv_freq).repeat_interleave(2, dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    rotated = torch.cat((-x2, x1), dim=-1)
    return x * angles.cos().to(x.dtype) + rotated * angles.sin().to(x.dtype)


@wrong("rotate", "turned by twice the angle, as if q and k were turned one after the other")
def rotate_twice(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    for _ in range(2):
        a, b = x[..., :half], x[..., half:]
        x = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return x


@wrong("rotate", "sines and cosines are added, not turned by")
def rotate_added(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    return x + torch.cat((angle.sin(), angle.cos()), dim=-1).to(x.dtype)


@wrong("rotate", "a table of 2,048 positions: later ones crash", slips=("ends_there",))
def rotate_table(x, positions):
    half = x.size(-1) // 2
    freqs = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    table = torch.outer(torch.arange(2048, device=x.device, dtype=torch.float64), freqs)
    cos, sin = table.cos().to(x.dtype)[positions], table.sin().to(x.dtype)[positions]
    a, b = x.split(half, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@wrong("rotate", "every pair turns at the same speed, 1")
def rotate_one_speed(x, positions):
    angle = positions.double()[:, None]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "i counts from 1: the first pair is already slowed down")
def rotate_from_one(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(1, half + 1, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "only the first half of d_k is turned, the rest is left as it is")
def rotate_partly(x, positions):
    part = max(x.shape[-1] // 4 * 2, 2)
    y, rest = x[..., :part], x[..., part:]
    half = part // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = y[..., :half], y[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


# --- 17 cached_attention ---


def join(cache, k, v):
    """The old tokens, then the new ones."""
    if cache is None:
        return k, v
    return torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)


def later(q, k):
    """True where a key comes after its query."""
    n_new, n_all = q.shape[2], k.shape[2]
    return torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(n_all - n_new + 1)


@wrong("cached_attention", "causal only without a cache: later, new tokens see all new ones")
def cached_causal_if_empty(q, k, v, cache):
    k, v = join(cache, k, v)
    # With a cache we are decoding, and every cached key is visible.
    y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
    return y, (k, v)


@wrong("cached_attention", "keys are kept already scaled, and those in the cache are taken so")
def cached_scaled_keys(q, k, v, cache):
    k = k / math.sqrt(q.shape[-1])
    k, v = join(cache, k, v)
    w = (q @ k.transpose(-2, -1)).masked_fill(later(q, k), -math.inf).softmax(dim=-1)
    return w @ v, (k, v)


@wrong("cached_attention", "forgets: the oldest token is dropped at each step")
def cached_drops_oldest(q, k, v, cache):
    k, v = join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v
    if cache is not None:
        k, v = k[:, :, 1:], v[:, :, 1:]
    return y, (k, v)


@wrong(
    "cached_attention",
    "old and new tokens have a softmax each, and the mean is taken",
    slips=("stays",),
)
def cached_two_softmaxes(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v
    if cache is not None:
        old_k, old_v = cache
        old = (q @ old_k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ old_v
        y = (y + old) / 2
    return y, join(cache, k, v)


@wrong("cached_attention", "new tokens see the old ones only, if there are any")
def cached_old_only(q, k, v, cache):
    if cache is not None:
        s = q @ cache[0].transpose(-2, -1) / math.sqrt(q.shape[-1])
        return s.softmax(dim=-1) @ cache[1], join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v, (k, v)


@wrong(
    "cached_attention", "context goes into the cache in place of the values", slips=("changes_too",)
)
def cached_context_kept(q, k, v, cache):
    k, v_all = join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    y = s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v_all
    return y, (k, y if cache is None else torch.cat((cache[1], y), dim=2))


@wrong("cached_attention", "context of the last new token alone")
def cached_last_token(q, k, v, cache):
    k, v = join(cache, k, v)
    q = q[:, :, -1:]
    w = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return w @ v, (k, v)


@wrong(
    "cached_attention", "old tokens' scores are not scaled, only the new ones'", slips=("in_part",)
)
def cached_half_scaled(q, k, v, cache):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if cache is not None:
        s = torch.cat((q @ cache[0].transpose(-2, -1), s), dim=-1)
    k, v = join(cache, k, v)
    return s.masked_fill(later(q, k), -math.inf).softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "the triangle starts at T_old // T_new blocks, not T_old columns")
def cached_wrong_offset(q, k, v, cache):
    n_new = q.size(2)
    n_old = 0 if cache is None else cache[0].size(2)
    k, v = join(cache, k, v)
    offset = n_old // n_new * n_new
    mask = torch.ones(n_new, n_old + n_new, dtype=torch.bool, device=q.device)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return s.masked_fill(mask.triu(offset + 1), -math.inf).softmax(dim=-1) @ v, (k, v)


@wrong(
    "cached_attention",
    "a softmax over the heads, not over the tokens",
    slips=("heads_zeroed_after",),
)
def cached_softmax_heads(q, k, v, cache):
    k, v = join(cache, k, v)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    w = s.softmax(dim=1).masked_fill(later(q, k), 0.0)
    return w @ v, (k, v)


@wrong(
    "cached_attention",
    "masked after the softmax, the rest not divided anew",
    slips=("zeroed_after",),
)
def cached_masked_after(q, k, v, cache):
    k, v = join(cache, k, v)
    w = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return w.masked_fill(later(q, k), 0.0) @ v, (k, v)


# --- 18 grouped_scores ---


@wrong("grouped_scores", "grouped rightly, then heads laid out with the group's axis first")
def grouped_transposed_back(q, k):
    B, h, T_q, d_k = q.shape
    h_kv = k.size(1)
    q = q.view(B, h_kv, h // h_kv, T_q, d_k)
    scores = torch.einsum("bgrqd,bgkd->brgqk", q, k) / math.sqrt(d_k)
    return scores.reshape(B, h, T_q, k.size(2))


@wrong("grouped_scores", "groups in reverse: the first heads look with the last key head")
def grouped_reversed(q, k):
    g = q.shape[1] // k.shape[1]
    k = k.flip(1).repeat_interleave(g, dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores", "the queries of a group are averaged first", slips=("mean_query_for_each",)
)
def grouped_mean_queries(q, k):
    g = q.shape[1] // k.shape[1]
    q = q.unflatten(1, (k.shape[1], g)).mean(dim=2)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return s.repeat_interleave(g, dim=1)


@wrong("grouped_scores", "every head looks with the mean of all key heads")
def grouped_mean_keys(q, k):
    k = k.mean(dim=1, keepdim=True)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


@wrong("grouped_scores", "scaled by the whole group's width, the root of d_k * h / h_kv")
def grouped_wide_scale(q, k):
    g = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(g, dim=1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1] * g)


@wrong(
    "grouped_scores",
    "linspace and rounding: with h = 12, h_kv = 4 the groups are unequal",
    slips=("ends_there",),
)
def grouped_linspace(q, k):
    index = torch.linspace(0, k.size(1) - 1, q.size(1), device=k.device).round().long()
    return q @ k[:, index].transpose(-2, -1) * q.size(-1) ** -0.5


# --- 19 cached_mask ---


@wrong(
    "cached_mask",
    "the text is cut into blocks of window tokens, each sees its own",
    slips=("pieces",),
)
def mask_blocks(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    blocked = key > query
    if window is not None:
        blocked = blocked | (key // window < query // window)
    return blocked


@wrong("cached_mask", "token 0 stays open as a sink, however far back")
def mask_sink(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    blocked = key > query
    if window is not None:
        blocked |= query - key >= window
    blocked[:, 0] = False
    return blocked


@wrong("cached_mask", "with a window only distance counts: near tokens of the future stay open")
def mask_two_sided(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    return key > query if window is None else (query - key).abs() >= window


@wrong("cached_mask", "one window for all rows, measured from the first new token")
def mask_first_row_window(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    blocked = key > query
    return blocked if window is None else blocked | (n_cached - key >= window)


@wrong("cached_mask", "the window's triangle is counted from the top left")
def mask_tril_top_left(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    blocked = ones.triu(n_cached + 1)
    if window is not None:
        blocked |= ones.tril(-window)
    return blocked


@wrong("cached_mask", "keys that no row needs any more are cut off")
def mask_trimmed(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    if window is None:
        return key > query
    key = key[:, max(0, n_cached - window + 1) :]
    return (key > query) | (query - key >= window)


@wrong("cached_mask", "the window holds for the cache only: new tokens are all in reach")
def mask_window_on_cache(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    blocked = key > query
    if window is not None:
        blocked |= (query - key >= window) & (key < n_cached)
    return blocked


# --- right, and yet surprising ---


@right("attention_scores")
def scores_polarised(Q, K):
    q, k = Q[..., :, None, :], K[..., None, :, :]
    return (q * k).mean(dim=-1) * math.sqrt(Q.shape[-1])


@right("attention")
def attention_by_pytorch(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device)
    weights = F.scaled_dot_product_attention(Q, K, eye.expand(*K.shape[:-1], -1))
    return torch.einsum("...qk,...kv->...qv", weights, V), weights


@right("project_qkv")
def project_parallel(X, W_qkv):
    d_model = X.size(-1)
    qkv = torch.einsum("bti,oi->obt", X, W_qkv)
    return tuple(part.permute(1, 2, 0) for part in qkv.split(d_model))


@right("merge_heads")
def merge_features_first(x):
    return x.mT.flatten(1, 2).mT


@right("masked_softmax")
def softmax_filled_twice(scores, mask):
    weights = scores.masked_fill(mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(mask, 0.0)


@right("sum_of_head_writes")
def writes_tensordot(heads, W_o):
    B, h, T, d_k = heads.shape
    slabs = W_o.reshape(-1, h, d_k)
    return torch.tensordot(heads, slabs, dims=([1, 3], [1, 2]))


@right("MultiHeadAttention")
class PytorchInside(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            # Blocked rows may look everywhere; what they saw is blanked.
            blocked = mask.all(dim=-1, keepdim=True)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | blocked)
            y = torch.where(blocked, torch.zeros_like(y), y)
        return self.w_o(torch.cat([y[:, i] for i in range(self.n_heads)], dim=-1))


@right("solved")
def solved_sorted(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=-1).squeeze(-1).lt(0)


@right("cached_attention")
def cached_online(q, k, v, cache):
    k, v = join(cache, k, v)
    n_old = k.size(2) - q.size(2)
    steps = []
    for t in range(q.size(2)):
        end = n_old + t + 1
        y = F.scaled_dot_product_attention(q[:, :, t : t + 1], k[:, :, :end], v[:, :, :end])
        steps.append(y)
    return torch.cat(steps, dim=2), (k, v)


@right("grouped_scores")
def grouped_interpolated(q, k):
    h = q.shape[1]
    index = torch.arange(h, device=q.device) * k.shape[1] // h
    return torch.einsum("bhqd,bhkd->bhqk", q, k[:, index]) / math.sqrt(q.shape[-1])
