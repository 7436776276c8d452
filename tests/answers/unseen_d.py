"""Two mistakes at once, leftovers, names of the notebook; written without a look at the slips."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import wrong

# What cells of the notebooks have left in the learner's kernel.
torch_generator = torch.Generator().manual_seed(0)
X = torch.randn(17, 6, generator=torch_generator)
Q = K = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
lengths = torch.tensor([6, 4, 1])
causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
h, d_k = 12, 32


@wrong("attention_scores", "uses the notebook's Q and K, since the parameters are named q and k")
def scores_notebook_names(q, k):
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "keys first, and no scale")
def scores_keys_first_no_scale(Q, K):
    return K @ Q.transpose(-2, -1)


@wrong("attention_scores", "leaves the stub's ... in the line of the scale: scores / ...")
def scores_ellipsis(Q, K):
    scale = ...
    return Q @ K.transpose(-2, -1) / scale


@wrong("attention", "no scale, and the weights stand first in the pair")
def attention_no_scale_exchanged(Q, K, V):
    weights = (Q @ K.transpose(-2, -1)).softmax(dim=-1)
    return weights, weights @ V


@wrong("attention", "softmax over the queries, and the scores are given for the weights")
def attention_axis_and_scores(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return scores.softmax(dim=-2) @ V, scores


@wrong("project_qkv", "no transpose, and chunks along the tokens: W @ X.T")
def project_turned_and_tokens(X, W_qkv):
    return (W_qkv @ X.transpose(1, 2)).chunk(3, dim=1)


@wrong("project_qkv", "every third column, and the order K, Q, V")
def project_third_and_order(X, W_qkv):
    both = X @ W_qkv.T
    return both[..., 1::3], both[..., 0::3], both[..., 2::3]


@wrong("count_parameters", "leaves out W_o, and counts one head only")
def parameters_one_head_no_output(d_model, n_heads, d_k):
    return 3 * d_model * d_k


@wrong("count_parameters", "uses the notebook's d_model of 384")
def parameters_384(d_model, n_heads, d_k):
    return 4 * 384 * n_heads * d_k


@wrong("split_heads", "interleaved heads, and tokens and heads not exchanged")
def split_interleaved_no_permute(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, d_model // n_heads, n_heads).transpose(-1, -2)


@wrong("split_heads", "splits into the notebook's twelve heads, whatever n_heads is")
def split_twelve(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, h, d_model // h).permute(0, 2, 1, 3)


@wrong("merge_heads", "interleaves the heads, and in reverse order")
def merge_interleaved_reversed(x):
    return x.flip(1).permute(0, 2, 3, 1).flatten(2)


@wrong("causal_mask", "True = keep, and the diagonal is not kept")
def causal_keep_no_diagonal(T):
    return torch.ones(T, T, dtype=torch.bool).tril(-1)


@wrong("causal_mask", "gives the notebook's mask of six words")
def causal_of_notebook(T):
    return causal


@wrong("padding_mask", "True at real tokens, and only (B, T)")
def padding_real_two_axes(lengths, T):
    return torch.arange(T, device=lengths.device) < lengths[:, None]


@wrong("padding_mask", "one off, and on the query axis")
def padding_off_and_queries(lengths, T):
    positions = torch.arange(T, device=lengths.device)
    return (positions > lengths[:, None])[:, None, :, None]


@wrong("padding_mask", "uses the lengths of the notebook's cell")
def padding_notebook_lengths(sizes, T):
    return (torch.arange(T) >= lengths[:, None])[:, None, None, :]


@wrong("masked_softmax", "True = keep, and NaN for a row that keeps nothing")
def softmax_keep_and_nan(scores, mask):
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


@wrong("masked_softmax", "over the queries, and a finite −1e4 for −∞")
def softmax_queries_finite(scores, mask):
    return scores.masked_fill(mask, -1e4).softmax(dim=-2)


@wrong("masked_softmax", "the masked_fill is thrown away; only empty rows become zeros")
def softmax_fill_thrown_away(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    scores.masked_fill(mask & ~empty, -math.inf)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("masked_softmax", "weights zeroed after the softmax, and the mask read as keep")
def softmax_after_and_keep(scores, mask):
    return scores.softmax(dim=-1) * mask


@wrong("sum_of_head_writes", "interleaved columns, and the last head is left out")
def writes_interleaved_short(heads, W_o):
    n = heads.shape[1]
    total = torch.zeros_like(heads[:, 0] @ W_o[:, 0::n].T)
    for i in range(n - 1):
        total = total + heads[:, i] @ W_o[:, i::n].T
    return total


@wrong("sum_of_head_writes", "a mean over heads, and a view without the exchange of the axes")
def writes_mean_reshaped(heads, W_o):
    B, n, T, d = heads.shape
    return heads.reshape(B, T, n * d) @ W_o.T / n


class _Four(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, d_model = x.shape
        return x.reshape(B, T, self.n_heads, d_model // self.n_heads).permute(0, 2, 1, 3)

    def weights(self, scores, mask):
        if mask is None:
            return scores.softmax(dim=-1)
        empty = mask.all(dim=-1, keepdim=True)
        return scores.masked_fill(mask & ~empty, -math.inf).softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("MultiHeadAttention", "no scale, and no output projection")
class NoScaleNoOutput(_Four):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        context = self.weights(q @ k.mT, mask) @ v
        return context.transpose(1, 2).flatten(2)


@wrong("MultiHeadAttention", "True = keep, and divides by the root of d_model")
class KeepAndModelScale(_Four):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(x.shape[-1])
        context = self.weights(scores, None if mask is None else ~mask) @ v
        return self.w_o(context.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "x itself for the queries: w_q is there and is not used")
class QueriesUnprojected(_Four):
    def forward(self, x, mask=None):
        q, k, v = self.split(x), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        context = self.weights(scores, mask) @ v
        return self.w_o(context.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "softmax over queries, a finite fill, heads merged without permute")
class AxisAndMerge(_Four):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        return self.w_o((scores.softmax(dim=-2) @ v).reshape(x.shape))


@wrong("MultiHeadAttention", "a relu after w_o, which nobody asked for")
class ReluAtTheEnd(_Four):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        context = self.weights(q @ k.mT / math.sqrt(q.shape[-1]), mask) @ v
        return F.relu(self.w_o(context.transpose(1, 2).flatten(2)))


@wrong("MultiHeadAttention", "w_v takes the keys and not x: w_v(w_k(x))")
class ValuesOfKeys(_Four):
    def forward(self, x, mask=None):
        q = self.w_q(x)
        k = self.w_k(x)
        v = self.w_v(k)
        q, k, v = self.split(q), self.split(k), self.split(v)
        context = self.weights(q @ k.mT / math.sqrt(q.shape[-1]), mask) @ v
        return self.w_o(context.transpose(1, 2).flatten(2))


@wrong("next_token_loss", "not shifted, and summed")
def loss_not_shifted_summed(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="sum")


@wrong("next_token_loss", "shifted back, and a softmax before cross_entropy")
def loss_back_and_softmax(logits, tokens):
    p = logits.softmax(dim=-1)[:, 1:]
    return F.cross_entropy(p.flatten(0, 1), tokens[:, :-1].flatten())


@wrong("next_token_loss", "only the last prediction counts")
def loss_last_only(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1])


@wrong("next_token_loss", "log_softmax over the positions, not over the V classes")
def loss_softmax_positions(logits, tokens):
    log_p = logits.log_softmax(dim=1)[:, :-1]
    return -log_p.gather(-1, tokens[:, 1:, None]).mean()


@wrong("previous_token_score", "the token after, and the sum divided by T")
def previous_next_over_T(weights):
    return weights.diagonal(1, -2, -1).sum(-1) / weights.shape[-1]


@wrong("previous_token_score", "the largest in place of the mean")
def previous_largest(weights):
    return weights.diagonal(-1, -2, -1).amax(-1)


@wrong("count_flops", "multiply-add as one, and only three projections")
def flops_one_and_three(T, d_model, n_heads):
    return 3 * T * d_model**2 + 2 * T * T * d_model


@wrong("count_flops", "the notebook's h of 12 for the heads, and d_model // n_heads for d_k")
def flops_notebook_h(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * h * T * T * (d_model // n_heads)


@wrong("blockwise_attention", "no maximum, and no scale")
def blockwise_no_maximum_no_scale(Q, K, V, block):
    total, mix = 0, 0
    for i in range(0, len(K), block):
        e = (Q @ K[i : i + block].T).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix + e @ V[i : i + block]
    return mix / total


@wrong("blockwise_attention", "the sum is not shrunk, and the last, shorter block is left out")
def blockwise_sum_and_rest(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for b in range(len(K) // block):
        part = slice(b * block, (b + 1) * block)
        scores = Q @ K[part].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        e = (scores - new).exp()
        total = total + e.sum(dim=1, keepdim=True)
        mix = mix * (m - new).exp() + e @ V[part]
        m = new
    return mix / total


@wrong("blockwise_attention", "the last block alone is divided by the sum: brackets")
def blockwise_brackets(Q, K, V, block):
    m = torch.full_like(Q[:, :1], -torch.inf)
    total, mix = torch.zeros_like(m), Q.new_zeros(len(Q), V.shape[1])
    for i in range(0, len(K), block):
        scores = Q @ K[i : i + block].T / math.sqrt(Q.shape[1])
        new = torch.maximum(m, scores.amax(dim=1, keepdim=True))
        shrink, e = (m - new).exp(), (scores - new).exp()
        total = total * shrink + e.sum(dim=1, keepdim=True)
        last = e @ V[i : i + block]
        before, mix = mix * shrink, mix * shrink + last
        m = new
    return before + last / total


@wrong("rotate", "neighbours for pairs, and turned the other way")
def rotate_neighbours_back(x, positions):
    d = x.shape[-1]
    speed = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    angle = positions[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos + b * sin, b * cos - a * sin), dim=-1).flatten(-2)


@wrong("rotate", "positions count from 1")
def rotate_from_one(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device).double()
    angle = (positions[:, None] + 1) * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("rotate", "base 100, as the notebook's writer has it, and sine and cosine exchanged")
def rotate_base_and_sine(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device).double()
    angle = positions[:, None] * 100.0 ** (-i / half)
    sin, cos = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@wrong("cached_attention", "no mask, and the cache it gives is the old one")
def cached_no_mask_old_cache(q, k, v, cache):
    K, V = k, v
    if cache is not None:
        K, V = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    scores = q @ K.mT / q.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ V, cache if cache is not None else (k, v)


@wrong("cached_attention", "hands the mask of the future to a function where True = keep")
def cached_mask_as_keep(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    n, m = q.shape[2], k.shape[2]
    blocked = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked), (k, v)


@wrong("cached_attention", "the new tokens see only the cache, not one another")
def cached_cache_only(q, k, v, cache):
    if cache is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)
    context = F.scaled_dot_product_attention(q, cache[0], cache[1])
    return context, (torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2))


@wrong("grouped_scores", "no scale, and the keys repeated as a whole")
def grouped_no_scale_repeat(q, k):
    return q @ k.repeat(1, q.shape[1] // k.shape[1], 1, 1).mT


@wrong("grouped_scores", "reverse: query head 0 looks with the last key head")
def grouped_reversed(q, k):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).flip(1)
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("cached_mask", "True = keep, and one key too many in the window")
def mask_keep_and_window(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    seen = key <= query
    return seen if window is None else seen & (query - key <= window)


@wrong("cached_mask", "blocks the token itself, too")
def mask_itself(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)
    blocked = key >= query
    return blocked if window is None else blocked | (query - key >= window)


@wrong("silence", "in place, and on the tokens' axis")
def silence_in_place_tokens(heads, i):
    heads[:, :, i] = 0
    return heads


@wrong("solved", "column of the query, and a tie counts")
def solved_column_tie(weights, query, right, wrong):
    return weights[:, right, query] >= weights[:, wrong, query]


@wrong("solved", "`and`: asks for the truth of all heads at once")
def solved_and(weights, query, right, wrong):
    best = weights[:, query].max(dim=-1).values
    return weights[:, query, right] == best and weights[:, query, wrong] < best
