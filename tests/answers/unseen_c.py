"""Wrong answers of experts in a hurry, written without a look at the catalogue of slips."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import einsum, nn

from answers import right, wrong


# 1 attention_scores


@wrong("attention_scores", "precedence: d_k ** −1 / 2 is half of 1/d_k and not the inverse root")
def scores_precedence(q, k):
    return q @ k.mT * q.shape[-1] ** -1 / 2


@right("attention_scores")  # the exercise is about the values; the check adds a remark
def scores_in_place(q, k):
    q /= q.shape[-1] ** 0.5
    return q @ k.mT


@wrong("attention_scores", "multiplies by the root and does not divide")
def scores_times_root(q, k):
    return einsum("...id,...jd->...ij", q, k) * math.sqrt(k.size(-1))


@wrong("attention_scores", "computes in half precision to be quick and casts back")
def scores_half(q, k):
    s = q.bfloat16() @ k.bfloat16().mT
    return (s * q.shape[-1] ** -0.5).to(q.dtype)


@wrong("attention_scores", "takes T_q, shape[-2], for d_k")
def scores_shape_minus_two(q, k):
    return (q @ k.mT) / q.shape[-2] ** 0.5


# 2 attention


@wrong("attention", "einsum sums over the queries: weights are turned before they meet V")
def attention_weights_turned(q, k, v):
    w = (q @ k.mT * q.size(-1) ** -0.5).softmax(-1)
    return einsum("...ij,...id->...jd", w, v), w


@wrong("attention", "blocks the future, though nobody asked for a causal mask")
def attention_causal(q, k, v):
    s = q @ k.mT * q.size(-1) ** -0.5
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    w = s.softmax(-1)
    return w @ v, w


@wrong("attention", "detaches the weights it gives for the picture before they meet V")
def attention_detached(q, k, v):
    w = (q @ k.mT * q.size(-1) ** -0.5).softmax(-1).detach()
    return w @ v, w


@wrong("attention", "log_softmax in place of softmax")
def attention_log_softmax(q, k, v):
    w = F.log_softmax(q @ k.mT * q.size(-1) ** -0.5, -1)
    return w @ v, w


@wrong("attention", "weights of another softmax than the output: unscaled ones are given back")
def attention_two_softmaxes(q, k, v):
    s = q @ k.mT
    return F.scaled_dot_product_attention(q, k, v), s.softmax(-1)


@wrong("attention", "no scale, and the softmax twice")
def attention_softmax_twice(q, k, v):
    w = (q @ k.mT).softmax(-1).softmax(-1)
    return w @ v, w


# 3 project_qkv


@wrong("project_qkv", "chunks W along the wrong axis, before a product with its thirds")
def project_chunk_columns(X, W):
    d = X.shape[-1]
    return tuple(X @ w.reshape(d, d) for w in W.chunk(3, dim=1))


@wrong("project_qkv", "reads the last axis as (d_model, 3): q, k, v in turn")
def project_rearranged(X, W):
    return rearrange(F.linear(X, W), "b t (d three) -> three b t d", three=3).unbind(0)


@wrong("project_qkv", "slices the second third for V as well: V is K")
def project_value_is_key(X, W):
    y, d = X @ W.T, X.shape[-1]
    return y[..., :d], y[..., d : 2 * d], y[..., d : 2 * d]


@wrong("project_qkv", "multiplies with each third unturned: X @ W_q and not X @ W_q.T")
def project_thirds_unturned(X, W):
    return tuple(X @ w for w in W.chunk(3))


@wrong("project_qkv", "F.linear with the three thirds added up: Q, K and V are the same")
def project_same_three(X, W):
    y = F.linear(X, W.unflatten(0, (3, -1)).sum(0))
    return y, y, y


# 4 count_parameters


@wrong("count_parameters", "W_o goes from d_model to h · d_k and is counted twice")
def parameters_five(d_model, h, d_k):
    return 5 * d_model * h * d_k


@wrong("count_parameters", "+ for × in a hurry: 4 · d_model + h · d_k")
def parameters_plus(d_model, h, d_k):
    return 4 * d_model + h * d_k


@wrong("count_parameters", "takes W_q, W_k, W_v for (h d_k, h d_k): counts (h · d_k)²")
def parameters_inner_square(d_model, h, d_k):
    inner = h * d_k
    return 4 * inner**2


@wrong("count_parameters", "counts an nn.MultiheadAttention of d_model, with its biases")
def parameters_of_torch(d_model, h, d_k):
    layer = nn.MultiheadAttention(d_model, h if d_model % h == 0 else 1)
    return sum(p.numel() for p in layer.parameters())


# 5 split_heads


@wrong("split_heads", "rearrange with (d h) and so interleaves the heads")
def split_einops_order(x, n_heads):
    return rearrange(x, "b t (d h) -> b h t d", h=n_heads)


@wrong("split_heads", "unflatten with a swapped pair and transpose(1, −1)")
def split_transpose_last(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, -1)


@wrong("split_heads", "chunk into pieces of n_heads columns: d_k and n_heads exchanged")
def split_by_width(x, n_heads):
    return torch.stack(x.split(n_heads, dim=-1), dim=1)


@wrong("split_heads", "view(-1, …) folds batch and tokens: fails where x is not contiguous")
def split_view_fold(x, n_heads):
    B, T, D = x.shape
    return x.view(-1, D).view(B, T, n_heads, -1).transpose(1, 2)


@wrong("split_heads", "heads in reverse order")
def split_reversed(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2).flip(1)


# 6 merge_heads


@wrong("merge_heads", "flatten(1, 2) of the heads and tokens")
def merge_flatten_first(x):
    return x.flatten(1, 2)


@wrong("merge_heads", "flatten(2) without the transpose: gives (B, h, T · d_k)")
def merge_flatten_last(x):
    return x.flatten(2)


@wrong("merge_heads", "rearrange with (d h) on the right")
def merge_einops_order(x):
    return rearrange(x, "b h t d -> b t (d h)")


@wrong("merge_heads", "squeezes, so a batch of one loses its axis")
def merge_squeezed(x):
    return x.transpose(1, 2).flatten(2).squeeze(0)


# 7 causal_mask


@wrong("causal_mask", "arange >= arange, so the diagonal is blocked")
def causal_ge(T):
    i = torch.arange(T)
    return i >= i[:, None]


@wrong("causal_mask", "~tril(−1): the same off-by-one, by the other triangle")
def causal_not_tril(T):
    return ~torch.ones(T, T).bool().tril(-1)


@wrong("causal_mask", "diagonal=2: each token sees the next one")
def causal_two(T):
    return torch.ones(T, T, dtype=torch.bool).triu(2)


@wrong("causal_mask", "uint8 in place of bool")
def causal_uint8(T):
    return torch.ones(T, T, dtype=torch.uint8).triu(1)


@wrong("causal_mask", "caches masks for T ≤ 4 only: larger ones are cut at 4 × 4")
def causal_cut(T):
    return torch.ones(4, 4, dtype=torch.bool).triu(1)[:T, :T]


# 8 padding_mask


@wrong("padding_mask", "lengths − 1: blocks the last real token, too")
def padding_one_early(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None] - 1)[:, None, None]


@wrong("padding_mask", "clamps lengths at 1 against empty rows: a length of 0 keeps one key")
def padding_clamped(lengths, T):
    lengths = lengths.clamp(min=1)
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "pads on the left: the real tokens are the last ones")
def padding_left(lengths, T):
    return (torch.arange(T, device=lengths.device) < T - lengths[:, None])[:, None, None]


@wrong("padding_mask", "forgets [:, None] at lengths: they lie along the tokens")
def padding_not_broadcast(lengths, T):
    return (torch.arange(T, device=lengths.device)[None] >= lengths)[:, None, None]


@wrong("padding_mask", "[None, None]: gives (1, 1, B, T)")
def padding_axes_in_front(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[None, None]


# 9 masked_softmax


@right("masked_softmax")
def softmax_in_place(s, m):
    empty = m.all(-1, keepdim=True)
    s[(m & ~empty).expand_as(s)] = -math.inf
    return s.softmax(-1).masked_fill(empty, 0)


@wrong("masked_softmax", "mask.any for mask.all: rows with any blocked key become zeros")
def softmax_any(s, m):
    empty = m.any(-1, keepdim=True)
    return s.masked_fill(m & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)


@wrong("masked_softmax", "takes everything along axis −2: over the queries")
def softmax_axis(s, m):
    empty = m.all(-2, keepdim=True)
    return s.masked_fill(m & ~empty, -math.inf).softmax(-2).masked_fill(m, 0)


@wrong("masked_softmax", "asks once whether everything is blocked: m.all() without an axis")
def softmax_all_once(s, m):
    if m.all():
        return torch.zeros_like(s)
    return s.masked_fill(m, -math.inf).softmax(-1)


@wrong("masked_softmax", "`not mask` for ~mask: ambiguous for more than one value")
def softmax_not(s, m):
    w = s.softmax(-1) * (not m)
    return w / w.sum(-1, keepdim=True).clamp_min(1e-12)


@wrong("masked_softmax", "softmax, zero, renormalise with a clamp: large scores underflow to 0")
def softmax_renormalised(s, m):
    w = s.softmax(-1).masked_fill(m, 0)
    return w / w.sum(-1, keepdim=True).clamp_min(1e-12)


@wrong("masked_softmax", "where on the output only, so the gradient of an empty row is NaN")
def softmax_where_after(s, m):
    w = (s + torch.where(m, -math.inf, 0.0).to(s.dtype)).softmax(-1)
    return torch.where(m, torch.zeros_like(w), w)


@wrong("masked_softmax", "under no_grad, so no gradient gets through")
@torch.no_grad()
def softmax_no_grad(s, m):
    empty = m.all(-1, keepdim=True)
    return s.masked_fill(m & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)


# 10 sum_of_head_writes


@wrong("sum_of_head_writes", "split(h) for split(d_k): slabs of the wrong width")
def writes_split_h(heads, W_o):
    slabs = W_o.split(heads.shape[1], dim=1)
    return sum(x @ s.T for x, s in zip(heads.unbind(1), slabs, strict=False))


@wrong("sum_of_head_writes", "enumerate over the batch and not over the heads")
def writes_over_batch(heads, W_o):
    slabs = W_o.split(heads.shape[-1], dim=1)
    return sum(heads[i] @ slab.T for i, slab in enumerate(slabs))


@wrong("sum_of_head_writes", "reshape without the transpose and then one product with W_o")
def writes_reshaped(heads, W_o):
    B, h, T, d = heads.shape
    return heads.reshape(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "adds the heads first and uses the first slab for all")
def writes_first_slab(heads, W_o):
    return heads.sum(1) @ W_o[:, : heads.shape[-1]].T


@wrong("sum_of_head_writes", "accumulates into a float32 tensor on the CPU")
def writes_float32(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(h):
        out += (heads[:, i] @ W_o[:, i * d : (i + 1) * d].T).float()
    return out


@wrong("sum_of_head_writes", "adds the heads, adds the slabs, and multiplies the two sums")
def writes_sums_multiplied(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    return heads.sum(1) @ W_o.unflatten(1, (h, d)).sum(1).T


# 11 MultiHeadAttention


class _Base(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def cut(self, y):
        return rearrange(y, "b t (h d) -> b h t d", h=self.h)

    def join(self, y):
        return rearrange(y, "b h t d -> b t (h d)")

    def core(self, q, k, v, mask):
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v)
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
        empty = mask.all(-1, keepdim=True)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | empty)
        return y.masked_fill(empty, 0)


@wrong("MultiHeadAttention", "k and v exchanged: scores from the values, a mean of the keys")
class KeysAndValuesExchanged(_Base):
    def forward(self, x, mask=None):
        q, v, k = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        return self.w_o(self.join(self.core(q, k, v, mask)))


@wrong("MultiHeadAttention", "returns in an `if mask is not None`: without a mask it gives None")
class NoneWithoutMask(_Base):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        if mask is not None:
            return self.w_o(self.join(self.core(q, k, v, mask)))


@wrong("MultiHeadAttention", "`if mask:` asks a tensor for one truth value")
class TruthOfMask(_Base):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        keep = ~mask if mask else None
        return self.w_o(self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=keep)))


@wrong("MultiHeadAttention", "the result of masked_fill is thrown away: nothing is blocked")
class MaskThrownAway(_Base):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        s = q @ k.mT * self.d_k**-0.5
        if mask is not None:
            s.masked_fill(mask, -math.inf)
        return self.w_o(self.join(s.softmax(-1) @ v))


@wrong("MultiHeadAttention", "zero output rows, not w_o's bias, for a query that sees nothing")
class OutputRowZeroed(_Base):
    def forward(self, x, mask=None):
        q, k, v = (self.cut(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        y = self.w_o(self.join(self.core(q, k, v, mask)))
        if mask is not None:
            B, T, _ = x.shape
            empty = mask.expand(B, self.h, T, T).all(-1).all(1)
            y = y.masked_fill(empty[..., None], 0)
        return y


@wrong("MultiHeadAttention", "keeps its four layers in a ModuleList, as w[0] to w[3]")
class LayersInAList(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (w(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in self.w[:3])
        keep = None if mask is None else ~mask
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep).nan_to_num()
        return self.w[3](y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "makes the values under no_grad: w_v gets no gradient")
class DetachedValues(_Base):
    def forward(self, x, mask=None):
        q, k = self.cut(self.w_q(x)), self.cut(self.w_k(x))
        with torch.no_grad():
            v = self.cut(self.w_v(x))
        return self.w_o(self.join(self.core(q, k, v, mask)))


@wrong("MultiHeadAttention", "w_o is applied before the heads are joined, to the values")
class OutputOnValues(_Base):
    def forward(self, x, mask=None):
        q, k = self.cut(self.w_q(x)), self.cut(self.w_k(x))
        v = self.cut(self.w_o(self.w_v(x)))
        return self.join(self.core(q, k, v, mask))


@wrong("MultiHeadAttention", "forgets super().__init__()")
class NoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else ~mask)
        return self.w_o(y.nan_to_num().transpose(1, 2).flatten(2))


# 12 next_token_loss


@wrong("next_token_loss", "cross_entropy with the classes left in the last axis")
def loss_classes_last(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:])


@wrong("next_token_loss", "two tokens ahead: logits[:, :−2] against tokens[:, 2:]")
def loss_two_ahead(logits, tokens):
    return F.cross_entropy(logits[:, :-2].flatten(0, 1), tokens[:, 2:].flatten())


@wrong("next_token_loss", "flattens first and shifts after: predicts across sequences")
def loss_flat_then_shift(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1)[:-1], tokens.flatten()[1:])


@wrong("next_token_loss", "sum over the positions, mean over the batch")
def loss_sum_mean(logits, tokens):
    nll = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    return nll.sum(1).mean()


@wrong("next_token_loss", "the sum divided by B · T and not by B · (T − 1)")
def loss_over_B_T(logits, tokens):
    total = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="sum")
    return total / tokens.numel()


@wrong("next_token_loss", "gives a Python number, from which nothing can learn")
def loss_item(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:]).item()


@wrong("next_token_loss", "gives one loss for each prediction: no reduction")
def loss_no_reduction(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")


@wrong("next_token_loss", "−log of the softmax's mean: mean and logarithm exchanged")
def loss_log_of_mean(logits, tokens):
    p = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None])
    return -p.mean().log()


# 13 previous_token_score


@wrong("previous_token_score", "weights[:, 1:, :-1] averaged as a whole, without a diagonal")
def previous_block_mean(w):
    return w[:, 1:, :-1].mean((-2, -1))


@wrong("previous_token_score", "einsum 'hii->h' on the shifted matrix, without dividing")
def previous_sum(w):
    return einsum("hii->h", w[:, 1:, :-1])


@wrong("previous_token_score", "offset −2: the token two before")
def previous_two(w):
    return w.diagonal(-2, 1, 2).mean(-1) if w.shape[-1] > 2 else w.diagonal(-1, 1, 2).mean(-1)


@wrong("previous_token_score", "gives the diagonal, (n_heads, T − 1), and forgets the mean")
def previous_diagonal(w):
    return w.diagonal(-1, 1, 2)


# 14 count_flops


@wrong("count_flops", "d_model for d_k in each head's products: h times too many")
def flops_full_width(T, d_model, h):
    return 8 * T * d_model**2 + h * 4 * T * T * d_model


@wrong("count_flops", "divides the two products by h: counts one head only")
def flops_precedence(T, d_model, h):
    return 8 * T * d_model**2 + 4 * T * T * d_model // h


@wrong("count_flops", "8 · T² · d_model for the projections: the square on the wrong letter")
def flops_square_on_T(T, d_model, h):
    return 8 * T**2 * d_model + 4 * T**2 * d_model


@wrong("count_flops", "leaves out W_o, and one of the two products")
def flops_two_slips(T, d_model, h):
    return 3 * 2 * T * d_model**2 + 2 * T * T * d_model


# 15 blockwise_attention


@wrong("blockwise_attention", "the whole matrix of scores at once; block is not used")
def blockwise_at_once(Q, K, V, block):
    return (Q @ K.T * Q.shape[-1] ** -0.5).softmax(-1) @ V


@wrong("blockwise_attention", "collects all blocks of scores in a list before the softmax")
def blockwise_collected(Q, K, V, block):
    s = torch.cat([Q @ k.T * Q.shape[-1] ** -0.5 for k in K.split(block)], dim=1)
    return F.softmax(s, -1) @ V


@wrong("blockwise_attention", "shrink = exp(new − old): the exponent's sign is exchanged")
def blockwise_shrink_sign(Q, K, V, block):
    m = (Q @ K[:block].T * Q.shape[-1] ** -0.5).amax(1, keepdim=True)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (new - m).exp(), (s - new).exp()
        total, mix, m = total * shrink + e.sum(1, keepdim=True), mix * shrink + e @ v, new
    return mix / total


@wrong("blockwise_attention", "starts the maximum at 0, so very low scores underflow to 0 / 0")
def blockwise_maximum_from_zero(Q, K, V, block):
    m = torch.zeros_like(Q[:, :1])
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * shrink + e.sum(1, keepdim=True), mix * shrink + e @ v, new
    return mix / total


@wrong("blockwise_attention", "normalises the mix in every block and then again at the end")
def blockwise_divides_each_time(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix = (mix * shrink + e @ v) / total
        m = new
    return mix


@wrong("blockwise_attention", "chunk(block) for split(block): block chunks, not chunks of block")
def blockwise_chunk_first_only(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.chunk(block), V.chunk(block), strict=True):
        s = Q @ k.T * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total, mix, m = total * shrink + e.sum(1, keepdim=True), mix * shrink + e @ v, new
    return mix / total


@wrong("blockwise_attention", "range(0, len(Q), block): counts the queries, not the keys")
def blockwise_range_of_queries(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -math.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(Q), block):
        s = Q @ K[i : i + block].T * Q.shape[-1] ** -0.5
        new = torch.maximum(m, s.amax(1, keepdim=True))
        shrink, e = (m - new).exp(), (s - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix, m = mix * shrink + e @ V[i : i + block], new
    return mix / total


# 16 rotate


@wrong("rotate", "complex numbers on neighbours: view_as_complex, as Llama's code has it")
def rotate_complex(x, positions):
    d = x.shape[-1]
    z = torch.view_as_complex(x.double().reshape(*x.shape[:-1], d // 2, 2).contiguous())
    speed = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    turn = torch.polar(torch.ones_like(speed), positions[:, None] * speed)
    return torch.view_as_real(z * turn).flatten(-2).to(x.dtype)


@wrong("rotate", "angle in x's dtype: positions and speeds lose their digits in half precision")
def rotate_low_precision(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device).to(x.dtype) / half)
    angle = positions[:, None].to(x.dtype) * speed
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@wrong("rotate", "turned in place: the first half is overwritten before the second needs it")
def rotate_overwritten(x, positions):
    y, half = x.clone(), x.shape[-1] // 2
    angle = positions[:, None] * 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    y[..., :half] = y[..., :half] * cos - y[..., half:] * sin
    y[..., half:] = y[..., :half] * sin + y[..., half:] * cos
    return y


@wrong("rotate", "positive exponent: later pairs turn faster, and the halves are exchanged")
def rotate_positive_exponent(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10_000.0 ** (torch.arange(half, device=x.device).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    b, a = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@wrong("rotate", "cat along the tokens' axis")
def rotate_cat_axis(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -2)


# 17 cached_attention


@wrong("cached_attention", "reads the cache as (v, k)")
def cached_read_exchanged(q, k, v, cache):
    if cache is not None:
        old_v, old_k = cache
        k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "`if cache and cache[0]`: asks a tensor for one truth value")
def cached_truth(q, k, v, cache):
    if cache and cache[0]:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "the cache is detached, so no gradient reaches the old tokens")
def cached_detached(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0].detach(), k), 2)
        v = torch.cat((cache[1].detach(), v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "diagonal one too early: a new token does not see itself")
def cached_strictly_before(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n)
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(blocked, -math.inf)
    return s.softmax(-1).nan_to_num() @ v, (k, v)


@wrong("cached_attention", "forgets the values: only keys are joined, V is padded with zeros")
def cached_values_forgotten(q, k, v, cache):
    if cache is not None:
        k = torch.cat((cache[0], k), 2)
        v = torch.cat((torch.zeros_like(cache[1]), v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "mask on a fixed device, and no scale")
def cached_cpu_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    n, m = q.shape[2], k.shape[2]
    s = (q @ k.mT) + torch.full((n, m), -math.inf, device="cpu").triu(m - n + 1).to(q.dtype)
    return s.softmax(-1) @ v, (k, v)


@wrong("cached_attention", "keeps a window: drops the oldest token from the cache it gives")
def cached_drops_oldest(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    keep = keep.tril(k.shape[2] - q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k[:, :, 1:], v[:, :, 1:])


# 18 grouped_scores


@wrong("grouped_scores", "einops with (r g): query head i looks with i mod h_kv")
def grouped_einops_order(q, k):
    q = rearrange(q, "b (r g) t d -> b r g t d", g=k.shape[1])
    return rearrange(einsum("brgid,bgjd->brgij", q, k), "b r g i j -> b (r g) i j") * (
        q.shape[-1] ** -0.5
    )


@wrong("grouped_scores", "gives the groups as an axis of their own: (B, h_kv, h/h_kv, T_q, T_k)")
def grouped_five_axes(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return q @ k[:, :, None].mT * q.shape[-1] ** -0.5


@wrong("grouped_scores", "repeats the batch axis (dim 0), for lack of dim=1")
def grouped_repeats_batch(q, k):
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 0).mT * q.shape[-1] ** -0.5


@wrong("grouped_scores", "no repetition: trusts broadcasting")
def grouped_broadcast(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


@wrong(
    "grouped_scores",
    "divides by d_k and not by its root, and repeats the keys as a whole",
)
def grouped_two_slips(q, k):
    k = torch.cat([k] * (q.shape[1] // k.shape[1]), dim=1)
    return q @ k.mT / q.shape[-1]


# 19 cached_mask


@wrong("cached_mask", "counts the keys from the end")
def mask_flipped(n_new, n_cached, window):
    q = torch.arange(n_cached, n_cached + n_new)[:, None]
    k = torch.arange(n_cached + n_new).flip(0)
    m = k > q
    return m if window is None else m | (q - k >= window)


@wrong("cached_mask", "window − 1: one too few is seen")
def mask_window_minus_one(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return (d < 0) | (d >= (window or n_cached + n_new + 1) - 1)


@wrong("cached_mask", "python `or` between the two tensors")
def mask_or(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return (d < 0) or (window is not None and d >= window)


@wrong("cached_mask", "precedence: d < 0 | d >= window without brackets")
def mask_no_brackets(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    if window is None:
        return d < 0
    return d < 0 | (d >= window)


@wrong("cached_mask", "the future is forgotten when there is a window")
def mask_future_forgotten(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new)[:, None] - torch.arange(n_cached + n_new)
    return d < 0 if window is None else d >= window


@wrong("cached_mask", "measures the window among the new tokens only: every cached key is open")
def mask_window_new_only(n_new, n_cached, window):
    new = torch.ones(n_new, n_new, dtype=torch.bool)
    m = new.triu(1)
    if window is not None:
        m |= new.tril(-window)
    return torch.cat((torch.zeros(n_new, n_cached, dtype=torch.bool), m), 1)


@wrong("cached_mask", "rows and columns exchanged: (n_cached + n_new, n_new)")
def mask_turned(n_new, n_cached, window):
    d = torch.arange(n_cached, n_cached + n_new) - torch.arange(n_cached + n_new)[:, None]
    return (d < 0) if window is None else (d < 0) | (d >= window)


# 12b silence


@wrong("silence", "heads[:, i] *= 0 on a view of the input")
def silence_multiplied_in_place(heads, i):
    quiet = heads.view_as(heads)
    quiet[:, i] *= 0
    return quiet


@wrong("silence", "copies by detach().clone(): no gradient gets through")
def silence_detached(heads, i):
    quiet = heads.detach().clone()
    quiet[:, i] = 0
    return quiet


@wrong("silence", "silences all heads up to i: a slice for an index")
def silence_slice(heads, i):
    return torch.cat([torch.zeros_like(heads[:, : i + 1]), heads[:, i + 1 :]], 1)


@wrong("silence", "throws the result away: index_fill without an underscore")
def silence_thrown_away(heads, i):
    quiet = heads.clone()
    quiet.index_fill(1, torch.tensor([i], device=heads.device), 0)
    return quiet


@wrong("silence", "counts heads from 1")
def silence_from_one(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i - 1
    return heads * keep[:, None, None]


# 13b solved


@wrong("solved", "gives the names of the solved heads: their numbers, not a bool for each")
def solved_numbers(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).nonzero().flatten()


@wrong("solved", "True where the wrong one gets more")
def solved_reversed(w, q, r, x):
    return w[:, q, r] < w[:, q, x]


@wrong("solved", "any: one answer, whether some head solves it")
def solved_any(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).any()


@wrong("solved", "floats of 0 and 1 in the dtype of the weights")
def solved_floats(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).to(w.dtype)


@wrong("solved", "rounds to two digits first, so close calls become ties")
def solved_rounded(w, q, r, x):
    w = (w * 100).round()
    return w[:, q, r] > w[:, q, x]
