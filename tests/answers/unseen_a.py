"""Wrong answers of careful beginners, written without a look at the catalogue of slips."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import wrong

# What cells of the notebooks have left in the learner's kernel.
d_k = 2
n_heads = 12
T = 128


# 1 attention_scores


@wrong("attention_scores", "turns all axes of K round with K.T")
def scores_with_dot_T(Q, K):
    return Q @ K.T / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "divides by the root of the number of keys, not of d_k")
def scores_root_of_keys(Q, K):
    number_of_keys = K.shape[-2]
    return Q @ K.transpose(-2, -1) / math.sqrt(number_of_keys)


@wrong("attention_scores", "multiplies keys by queries, so rows are keys")
def scores_keys_first(Q, K):
    scores = K @ Q.transpose(-2, -1)
    return scores / math.sqrt(K.shape[-1])


@wrong("attention_scores", "divides the queries and then the scores again by the root")
def scores_scaled_twice(Q, K):
    scale = math.sqrt(Q.shape[-1])
    Q = Q / scale
    scores = Q @ K.transpose(-2, -1)
    return scores / scale


@wrong("attention_scores", "uses the d_k that a cell of the notebook left behind")
def scores_global_d_k(Q, K):
    scores = Q @ K.transpose(-2, -1)
    return scores / math.sqrt(d_k)


# 2 attention


@wrong("attention", "takes the softmax over the queries")
def attention_softmax_over_queries(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(dim=-2)
    return weights @ V, weights


@wrong("attention", "gives the weights first and the output second")
def attention_pair_exchanged(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(dim=-1)
    output = weights @ V
    return weights, output


@wrong("attention", "divides by the root after the softmax")
def attention_scale_after_softmax(Q, K, V):
    scores = Q @ K.transpose(-2, -1)
    weights = scores.softmax(dim=-1) / math.sqrt(Q.shape[-1])
    return weights @ V, weights


@wrong("attention", "gives the scores where the weights should be")
def attention_gives_scores(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return scores.softmax(dim=-1) @ V, scores


@wrong("attention", "gives the output only")
def attention_output_only(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return scores.softmax(dim=-1) @ V


@wrong("attention", "forgets the scale and takes the softmax over the queries")
def attention_no_scale_wrong_axis(Q, K, V):
    weights = torch.softmax(Q @ K.transpose(-2, -1), dim=-2)
    return weights @ V, weights


# 3 project_qkv


@wrong("project_qkv", "multiplies by the matrix without turning it")
def project_without_transpose(X, W_qkv):
    return (X @ W_qkv).chunk(3, dim=-1)


@wrong("project_qkv", "cuts along the tokens and not along the last axis")
def project_chunk_tokens(X, W_qkv):
    return (X @ W_qkv.T).chunk(3, dim=1)


@wrong("project_qkv", "takes the first third for K and the second for Q")
def project_k_first(X, W_qkv):
    K, Q, V = (X @ W_qkv.T).chunk(3, dim=-1)
    return Q, K, V


@wrong("project_qkv", "takes every third column for Q, as if the rows were dealt in turn")
def project_every_third(X, W_qkv):
    both = X @ W_qkv.T
    return both[..., 0::3], both[..., 1::3], both[..., 2::3]


# 4 count_parameters


@wrong("count_parameters", "counts 4 d_model² as if d_k were tied to d_model / n_heads")
def parameters_tied(d_model, n_heads, d_k):
    return 4 * d_model * d_model


@wrong("count_parameters", "counts W_q, W_k and W_v and leaves W_o out")
def parameters_three_matrices(d_model, n_heads, d_k):
    one_head = 3 * d_model * d_k
    return n_heads * one_head


@wrong("count_parameters", "counts the three matrices of each head and a square W_o of d_model²")
def parameters_square_output(d_model, n_heads, d_k):
    heads = n_heads * 3 * d_model * d_k
    output = d_model * d_model
    return heads + output


@wrong("count_parameters", "counts a bias for each row of the three and of W_o")
def parameters_with_biases(d_model, n_heads, d_k):
    width = n_heads * d_k
    return 3 * (d_model * width + width) + width * d_model + d_model


# 5 split_heads


@wrong("split_heads", "reshapes straight to (B, n_heads, T, d_k)")
def split_straight(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, T, d_model // n_heads)


@wrong("split_heads", "cuts the axis but does not exchange tokens and heads")
def split_no_permute(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads)


@wrong("split_heads", "cuts the last axis the other way round, so heads are interleaved")
def split_interleaved(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, d_model // n_heads, n_heads).permute(0, 3, 1, 2)


@wrong("split_heads", "takes the d_k for the number of heads: gives (B, d_k, T, n_heads)")
def split_sizes_exchanged(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    return x.reshape(B, T, d_k, n_heads).permute(0, 2, 1, 3)


# 6 merge_heads


@wrong("merge_heads", "reshapes without exchanging heads and tokens first")
def merge_reshape_only(x):
    B, n_heads, T, d_k = x.shape
    return x.reshape(B, T, n_heads * d_k)


@wrong("merge_heads", "uses view after the permutation, which a contiguous x does not allow")
def merge_view(x):
    B, n_heads, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).view(B, T, n_heads * d_k)


@wrong("merge_heads", "puts d_k before the heads, so that heads are interleaved")
def merge_interleaved(x):
    B, n_heads, T, d_k = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, n_heads * d_k)


@wrong("merge_heads", "adds the heads up where they should stand side by side")
def merge_sum(x):
    return x.sum(dim=1)


# 7 causal_mask


@wrong("causal_mask", "blocks the diagonal, too")
def causal_with_diagonal(T):
    return torch.ones(T, T, dtype=torch.bool).triu()


@wrong("causal_mask", "marks what may be seen: True below and on the diagonal")
def causal_true_keeps(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


@wrong("causal_mask", "gives floats of 0 and 1")
def causal_floats(T):
    return torch.ones(T, T).triu(diagonal=1)


@wrong("causal_mask", "blocks the past and leaves the future open")
def causal_blocks_past(T):
    position = torch.arange(T)
    return position[:, None] > position[None, :]


# 8 padding_mask


@wrong("padding_mask", "gives (B, T), without the two axes of size 1")
def padding_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths[:, None]


@wrong("padding_mask", "is True at the real tokens")
def padding_true_real(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions < lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "uses > and so leaves the first padding key open")
def padding_one_late(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "makes the positions on the CPU, wherever the lengths are")
def padding_on_cpu(lengths, T):
    positions = torch.arange(T)
    return (positions >= lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "puts the padding on the query axis: (B, 1, T, 1)")
def padding_queries(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions >= lengths[:, None])[:, None, :, None]


# 9 masked_softmax


@wrong("masked_softmax", "fills −∞ and takes the softmax, so an empty row is NaN")
def softmax_nan(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(dim=-1)


@wrong("masked_softmax", "fills −1e9, so an empty row gets equal shares")
def softmax_finite(scores, mask):
    return scores.masked_fill(mask, -1e9).softmax(dim=-1)


@wrong("masked_softmax", "zeroes the blocked weights after the softmax, rows do not add up to one")
def softmax_then_zero(scores, mask):
    weights = scores.softmax(dim=-1)
    return weights.masked_fill(mask, 0.0)


@wrong("masked_softmax", "sets blocked scores to 0, which still get a share")
def softmax_zero_scores(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    return scores.masked_fill(mask, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("masked_softmax", "reads the mask the other way: True = keep")
def softmax_mask_inverted(scores, mask):
    mask = ~mask
    empty = mask.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


@wrong("masked_softmax", "adds −∞ and mends the NaN afterwards, so the gradient is NaN")
def softmax_mended_late(scores, mask):
    blocked = torch.zeros_like(scores).masked_fill(mask, -math.inf)
    return (scores + blocked).softmax(dim=-1).nan_to_num()


@wrong("masked_softmax", "looks for empty columns: mask.all over the queries' axis")
def softmax_empty_columns(scores, mask):
    empty = mask.all(dim=-2, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


# 10 sum_of_head_writes


@wrong("sum_of_head_writes", "cuts W_o into rows and not into columns")
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    total = 0
    for i in range(heads.shape[1]):
        slab = W_o[i * d_k : (i + 1) * d_k, :]
        total = total + heads[:, i] @ slab
    return total


@wrong("sum_of_head_writes", "forgets += in the loop: only the last head's write is left")
def writes_last_only(heads, W_o):
    d_k = heads.shape[-1]
    for i in range(heads.shape[1]):
        slab = W_o[:, i * d_k : (i + 1) * d_k]
        total = heads[:, i] @ slab.T
    return total


@wrong("sum_of_head_writes", "does not turn the slab, heads @ slab")
def writes_slab_not_turned(heads, W_o):
    d_k = heads.shape[-1]
    slabs = W_o.split(d_k, dim=1)
    return sum(heads[:, i] @ slab for i, slab in enumerate(slabs))


@wrong("sum_of_head_writes", "returns inside the loop, after the first head")
def writes_return_in_loop(heads, W_o):
    d_k = heads.shape[-1]
    total = 0
    for i in range(heads.shape[1]):
        total = total + heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
        return total


# 11 MultiHeadAttention


def _split(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads).permute(0, 2, 1, 3)


def _merge(x):
    B, n_heads, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, n_heads * d_k)


def _attend(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        empty = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
        return weights.masked_fill(empty, 0.0) @ v
    return scores.softmax(dim=-1) @ v


class _Parts(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)


@wrong("MultiHeadAttention", "never applies w_o")
class WithoutOutput(_Parts):
    def forward(self, x, mask=None):
        q, k, v = (_split(w(x), self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        return _merge(_attend(q, k, v, mask))


@wrong("MultiHeadAttention", "a query whose every key is blocked becomes NaN")
class EmptyRowsNaN(_Parts):
    def forward(self, x, mask=None):
        q, k, v = (_split(w(x), self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.w_o(_merge(scores.softmax(dim=-1) @ v))


@wrong("MultiHeadAttention", "divides by the root of d_model and not of d_k")
class ScaledByModel(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q = _split(self.w_q(x), self.n_heads)
        k = _split(self.w_k(x), self.n_heads)
        v = _split(self.w_v(x), self.n_heads)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        if mask is None:
            mask = torch.zeros(1, 1, dtype=torch.bool, device=x.device)
        empty = mask.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
        return self.w_o(_merge(weights.masked_fill(empty, 0.0) @ v))


@wrong("MultiHeadAttention", "names its layers W_q, W_k, W_v, W_o")
class CapitalNames(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (_split(w(x), self.n_heads) for w in (self.W_q, self.W_k, self.W_v))
        return self.W_o(_merge(_attend(q, k, v, mask)))


@wrong("MultiHeadAttention", "merges the heads without exchanging heads and tokens")
class MergedWithoutPermute(_Parts):
    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (_split(w(x), self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        context = _attend(q, k, v, mask)
        return self.w_o(context.reshape(B, T, d_model))


@wrong("MultiHeadAttention", "does not look at the mask at all")
class IgnoresMask(_Parts):
    def forward(self, x, mask=None):
        q, k, v = (_split(w(x), self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        return self.w_o(_merge(_attend(q, k, v, None)))


@wrong("MultiHeadAttention", "one and the same layer for queries, keys and values")
class OneLayerForThree(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        layer = nn.Linear(d_model, d_model)
        self.w_q = layer
        self.w_k = layer
        self.w_v = layer
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (_split(w(x), self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        return self.w_o(_merge(_attend(q, k, v, mask)))


@wrong("MultiHeadAttention", "no scale, and the heads are never split: one wide head")
class OneWideHead(_Parts):
    def forward(self, x, mask=None):
        q, k, v = self.w_q(x)[:, None], self.w_k(x)[:, None], self.w_v(x)[:, None]
        scores = q @ k.transpose(-2, -1)
        if mask is not None:
            empty = mask.all(dim=-1, keepdim=True)
            weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1)
            weights = weights.masked_fill(empty, 0.0)
        else:
            weights = scores.softmax(dim=-1)
        return self.w_o((weights @ v)[:, 0])


# 12 next_token_loss


@wrong("next_token_loss", "compares each prediction with the token at its own position")
def loss_not_shifted(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


@wrong("next_token_loss", "shifts the wrong way: predicts the token before")
def loss_shifted_back(logits, tokens):
    predictions, answers = logits[:, 1:], tokens[:, :-1]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


@wrong("next_token_loss", "adds up the losses and takes no mean")
def loss_summed(logits, tokens):
    predictions, answers = logits[:, :-1], tokens[:, 1:]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten(), reduction="sum")


@wrong("next_token_loss", "takes a softmax before cross_entropy takes its own")
def loss_two_softmaxes(logits, tokens):
    predictions, answers = logits[:, :-1].softmax(dim=-1), tokens[:, 1:]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


@wrong("next_token_loss", "reshapes to (B, V, T−1) where the axes should be exchanged")
def loss_reshaped_classes(logits, tokens):
    predictions, answers = logits[:, :-1], tokens[:, 1:]
    B, n, V = predictions.shape
    return F.cross_entropy(predictions.reshape(B, V, n), answers)


@wrong("next_token_loss", "forgets the minus: gives the mean log probability")
def loss_sign(logits, tokens):
    log_p = logits[:, :-1].log_softmax(dim=-1)
    return log_p.gather(-1, tokens[:, 1:, None]).mean()


@wrong("next_token_loss", "cuts the sequences (axis 0) and not the positions (axis 1)")
def loss_cuts_batch(logits, tokens):
    predictions, answers = logits[:-1], tokens[1:]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten())


# 13 previous_token_score


@wrong("previous_token_score", "takes the diagonal above: the token just after")
def previous_next(weights):
    return weights.diagonal(offset=1, dim1=-2, dim2=-1).mean(dim=-1)


@wrong("previous_token_score", "divides the sum by T and not by T − 1")
def previous_over_T(weights):
    T = weights.shape[-1]
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).sum(dim=-1) / T


@wrong("previous_token_score", "takes the main diagonal: weight on the token itself")
def previous_self(weights):
    return weights.diagonal(dim1=-2, dim2=-1).mean(dim=-1)


@wrong("previous_token_score", "gives one mean over all heads")
def previous_one_number(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean()


# 14 count_flops


@wrong("count_flops", "counts a multiply-add as one operation")
def flops_multiply_add_one(T, d_model, n_heads):
    d_k = d_model // n_heads
    return 4 * T * d_model * d_model + 2 * n_heads * T * T * d_k


@wrong("count_flops", "counts three projections and forgets the fourth")
def flops_three_projections(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 3 * 2 * T * d_model * d_model
    products = 2 * n_heads * 2 * T * T * d_k
    return projections + products


@wrong("count_flops", "divides with / and gives a float")
def flops_float(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model**2 + n_heads * 4 * T * T * d_k


@wrong("count_flops", "counts only the scores and forgets the product with the values")
def flops_one_product(T, d_model, n_heads):
    d_k = d_model // n_heads
    projections = 4 * 2 * T * d_model * d_model
    scores = n_heads * 2 * T * d_k * T
    return projections + scores


# 15 blockwise_attention


@wrong("blockwise_attention", "takes a softmax in each block and adds the results")
def blockwise_softmax_each(Q, K, V, block):
    out = 0
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])
        out = out + scores.softmax(dim=-1) @ V[i : i + block]
    return out


@wrong("blockwise_attention", "keeps no maximum: exp of large scores overflows")
def blockwise_no_maximum(Q, K, V, block):
    total, mix = 0, 0
    for i in range(0, len(K), block):
        e = (Q @ K[i : i + block].T / math.sqrt(Q.shape[-1])).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "does not shrink the mix when the maximum grows, only the sum")
def blockwise_mix_not_shrunk(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        e = (scores - larger).exp()
        total = total * (m - larger).exp() + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[i : i + block]
        m = larger
    return mix / total


@wrong("blockwise_attention", "leaves out the last, shorter block")
def blockwise_drops_rest(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    mix = Q.new_zeros(len(Q), V.shape[-1])
    for b in range(len(K) // block):
        rows = slice(b * block, (b + 1) * block)
        scores = Q @ K[rows].T / Q.shape[-1] ** 0.5
        larger = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - larger).exp(), (scores - larger).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        mix = mix * shrink + e @ V[rows]
        m = larger
    return mix / total


@wrong("blockwise_attention", "forgets to divide by the sum at the end")
def blockwise_not_divided(Q, K, V, block):
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
    return mix


@wrong("blockwise_attention", "no scale, and the maximum is never updated after the first block")
def blockwise_no_scale_old_maximum(Q, K, V, block):
    m = (Q @ K[:block].T).amax(dim=1, keepdim=True)
    total, mix = 0, 0
    for i in range(0, len(K), block):
        e = (Q @ K[i : i + block].T - m).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[i : i + block]
    return mix / total


# 16 rotate


@wrong("rotate", "turns the other way: the sign of the sine is exchanged")
def rotate_backwards(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos + b * sin, -a * sin + b * cos), dim=-1)


@wrong("rotate", "base^(−i/d_k): the 2 in the exponent is missing")
def rotate_exponent(x, positions):
    d = x.shape[-1]
    i = torch.arange(d // 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "counts places 0, 1, 2, … itself and does not look at positions")
def rotate_own_positions(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    place = torch.arange(x.shape[-2], device=x.device)
    angle = place[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "leaves cosine and sine in float64, so the result is float64, too")
def rotate_float64(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device).double()
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


# 17 cached_attention


@wrong("cached_attention", "triu(1): the mask counts from the top left and hides old keys")
def cached_top_left(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "no mask: new tokens see later new ones")
def cached_no_mask(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ v, (k, v)


@wrong("cached_attention", "gives back only the new keys and values as the cache")
def cached_only_new(q, k, v, cache):
    K, V = k, v
    if cache is not None:
        K, V = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], K.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ K.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ V, (k, v)


@wrong("cached_attention", "does not think of the first call, where the cache is None")
def cached_none_forgotten(q, k, v, cache):
    k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "diagonal one too late: each new token sees the next one")
def cached_one_ahead(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 2)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


@wrong("cached_attention", "puts the new before the old, and forgets the scale")
def cached_new_first_no_scale(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((k, cache[0]), dim=2), torch.cat((v, cache[1]), dim=2)
    n_new, n_all = q.shape[2], k.shape[2]
    blocked = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device)
    blocked = blocked.triu(n_all - n_new + 1)
    scores = q @ k.mT
    weights = scores.masked_fill(blocked, float("-inf")).softmax(dim=-1)
    return weights @ v, (k, v)


# 18 grouped_scores


@wrong("grouped_scores", "repeats the keys as a whole: head i looks with key head i mod h_kv")
def grouped_repeat(q, k):
    k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "forgets to divide by the root of d_k")
def grouped_no_scale(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.mT


@wrong("grouped_scores", "repeats along the keys' positions and not along the heads")
def grouped_repeats_positions(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=2)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("grouped_scores", "repeats each key head h_kv times, not h / h_kv times")
def grouped_wrong_count(q, k):
    k = k.repeat_interleave(k.shape[1], dim=1)
    return q @ k.mT / q.shape[-1] ** 0.5


# 19 cached_mask


@wrong("cached_mask", "counts the queries from 0 and not from n_cached")
def mask_queries_from_zero(n_new, n_cached, window):
    query = torch.arange(n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (query - key >= window)


@wrong("cached_mask", "blocks more than `window` back with >, so it sees one too many")
def mask_window_one_more(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked | (query - key > window)


@wrong("cached_mask", "does not think of window=None")
def mask_none_forgotten(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return (key > query) | (query - key >= window)


@wrong("cached_mask", "gives what may be seen: True = keep")
def mask_keeps(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    visible = key <= query
    return visible if window is None else visible & (query - key < window)


@wrong("cached_mask", "joins the two conditions with & and so blocks nothing with a window")
def mask_and(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key > query
    return blocked if window is None else blocked & (query - key >= window)


@wrong("cached_mask", "ignores the window")
def mask_no_window(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    return key > query


# 12b silence


@wrong("silence", "sets the head to zero in the caller's own tensor")
def silence_in_place(heads, i):
    heads[:, i] = 0
    return heads


@wrong("silence", "silences token i and not head i")
def silence_token(heads, i):
    quiet = heads.clone()
    quiet[:, :, i] = 0
    return quiet


@wrong("silence", "silences sequence i of the batch")
def silence_sequence(heads, i):
    quiet = heads.clone()
    quiet[i] = 0
    return quiet


@wrong("silence", "leaves only head i and silences the others")
def silence_the_others(heads, i):
    quiet = torch.zeros_like(heads)
    quiet[:, i] = heads[:, i]
    return quiet


# 13b solved


@wrong("solved", "counts a tie as solved")
def solved_tie(weights, query, right, wrong):
    return weights[:, query, right] >= weights[:, query, wrong]


@wrong("solved", "looks at the column of the query: who looks at it")
def solved_column(weights, query, right, wrong):
    return weights[:, right, query] > weights[:, wrong, query]


@wrong("solved", "gives the difference of the weights")
def solved_difference(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong]


@wrong("solved", "asks whether the right key gets the most of all")
def solved_argmax(weights, query, right, wrong):
    return weights[:, query].argmax(dim=-1) == right
