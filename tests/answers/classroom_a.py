"""Answers as a first class might type them; written without sight of the catalogue of slips."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from answers import right, wrong

# ---------------------------------------------------------------- 1 attention_scores


@right("attention_scores")
def matmul_sqrt(Q, K):
    return torch.matmul(Q, K.transpose(-1, -2)) / math.sqrt(Q.size(-1))


@right("attention_scores")
def einsum_scores(q, k):
    return torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5


@right("attention_scores")
def scale_query_first(Q, K):
    Q = Q / Q.shape[-1] ** 0.5
    return Q @ K.mT


@right("attention_scores")
def tensor_root(Q, K):
    d = torch.tensor(Q.shape[-1])
    return Q @ K.transpose(-2, -1) / torch.sqrt(d).to(Q.device, Q.dtype)


@right("attention_scores")
def broadcast_and_sum(Q, K):
    return (Q.unsqueeze(-2) * K.unsqueeze(-3)).sum(-1) / math.sqrt(K.shape[-1])


@wrong("attention_scores", "forgets the scale")
def plain_product(Q, K):
    return Q @ K.transpose(-2, -1)


@wrong("attention_scores", "uses .T, which reverses all axes")
def dot_t(Q, K):
    return Q @ K.T / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "divides by d_k instead of its root")
def by_dk(Q, K):
    return Q @ K.transpose(-2, -1) / Q.shape[-1]


@wrong("attention_scores", "divides by the root of the number of keys")
def root_of_keys(Q, K):
    return torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(K.size(-2))


@wrong("attention_scores", "softmax is already applied")
def softmaxed(Q, K):
    return F.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1)


@wrong("attention_scores", "rows belong to keys: K Q^T")
def keys_first(Q, K):
    return K @ Q.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "multiplies by the root")
def times_root(Q, K):
    return (Q @ K.transpose(-2, -1)) * math.sqrt(Q.shape[-1])


@wrong("attention_scores", "precedence: d_k ** 1/2 is d_k / 2")
def half_power(Q, K):
    return Q @ K.transpose(-2, -1) / Q.shape[-1] ** 1 / 2


@wrong("attention_scores", "a fixed d_k of 64")
def fixed_64(Q, K):
    return Q @ K.transpose(-2, -1) / 8


@wrong("attention_scores", "the root of d_k on a fixed device and dtype: float32 result")
def to_float32(Q, K):
    return (Q.float() @ K.float().transpose(-2, -1)) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "scaled twice, in q and in the scores")
def scaled_twice(Q, K):
    Q = Q / math.sqrt(Q.shape[-1])
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "elementwise product")
def elementwise(Q, K):
    return Q * K / math.sqrt(Q.shape[-1])


@wrong("attention_scores", "transposes axes 0 and 1 and forgets the scale")
def axes_0_1_unscaled(Q, K):
    return Q @ K.transpose(0, 1)


# ---------------------------------------------------------------- 2 attention


@right("attention")
def by_the_book(Q, K, V):
    d_k = Q.size(-1)
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(d_k)
    p_attn = F.softmax(scores, dim=-1)
    return torch.matmul(p_attn, V), p_attn


@right("attention")
def list_returned(Q, K, V):
    w = torch.softmax(Q @ K.mT * Q.shape[-1] ** -0.5, -1)
    return [w @ V, w]


@right("attention")
def einsum_attention(q, k, v):
    s = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    a = s.softmax(dim=-1)
    return torch.einsum("...qk,...kv->...qv", a, v), a


@right("attention")
def with_sdpa(Q, K, V):
    weights = (Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V), weights


@right("attention")
def exp_by_hand(Q, K, V):
    s = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    w = e / e.sum(dim=-1, keepdim=True)
    return w @ V, w


@wrong("attention", "softmax over queries (dim=-2)")
def softmax_queries(Q, K, V):
    w = F.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-2)
    return w @ V, w


@wrong("attention", "softmax over axis 1")
def softmax_dim1(Q, K, V):
    w = F.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=1)
    return w @ V, w


@wrong("attention", "softmax over axis 0")
def softmax_dim0(Q, K, V):
    w = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(0)
    return w @ V, w


@wrong("attention", "returns weights first")
def swapped_returns(Q, K, V):
    w = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)
    return w, w @ V


@wrong("attention", "returns the output only")
def output_only(Q, K, V):
    w = (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)
    return w @ V


@wrong("attention", "returns scores instead of weights")
def returns_scores(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return s.softmax(-1) @ V, s


@wrong("attention", "never takes the softmax")
def no_softmax(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return s @ V, s


@wrong("attention", "no scale")
def unscaled_attention(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-1)
    return torch.matmul(w, V), w


@wrong("attention", "scales after the softmax")
def scale_late(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-1) / math.sqrt(Q.shape[-1])
    return w @ V, w


@wrong("attention", "multiplies the keys instead of the values")
def keys_as_values(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1)
    return w @ K, w


@wrong("attention", "divides by root of V's width")
def root_of_dv(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(V.shape[-1]), dim=-1)
    return w @ V, w


@wrong("attention", "no scale and softmax over queries")
def two_mistakes(Q, K, V):
    w = torch.softmax(Q @ K.transpose(-2, -1), dim=-2)
    return w @ V, w


@wrong("attention", "log-softmax")
def log_softmaxed(Q, K, V):
    w = F.log_softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1)
    return w @ V, w


@wrong("attention", "dropout left in")
def with_dropout(Q, K, V):
    w = F.dropout(torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]), dim=-1), 0.1)
    return w @ V, w


@wrong("attention", "a causal mask that nobody asked for")
def causal_unasked(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))
    w = s.softmax(-1)
    return w @ V, w


@wrong("attention", "exp without subtracting the maximum overflows for large scores")
def naive_exp(Q, K, V):
    e = torch.exp(Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1]))
    w = e / e.sum(-1, keepdim=True)
    return w @ V, w


@wrong("attention", "hard argmax instead of softmax")
def hard_max(Q, K, V):
    s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    w = F.one_hot(s.argmax(-1), s.shape[-1]).to(V.dtype)
    return w @ V, w


# ---------------------------------------------------------------- 3 project_qkv


@right("project_qkv")
def chunked(X, W):
    return (X @ W.T).chunk(3, dim=-1)


@right("project_qkv")
def linear_split(X, W_qkv):
    return F.linear(X, W_qkv).split(X.shape[-1], dim=-1)


@right("project_qkv")
def three_products(X, W_qkv):
    W_q, W_k, W_v = W_qkv.chunk(3, dim=0)
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@right("project_qkv")
def sliced(X, W_qkv):
    d = X.shape[2]
    out = torch.einsum("btd,ed->bte", X, W_qkv)
    return out[..., :d], out[..., d : 2 * d], out[..., 2 * d :]


@wrong("project_qkv", "weight not transposed within the chunks")
def not_transposed(X, W_qkv):
    a, b, c = W_qkv.chunk(3, dim=0)
    return X @ a, X @ b, X @ c


@wrong("project_qkv", "the order is K, Q, V")
def order_kqv(X, W_qkv):
    k, q, v = (X @ W_qkv.T).chunk(3, dim=-1)
    return q, k, v


@wrong("project_qkv", "the order is V, K, Q")
def order_vkq(X, W_qkv):
    v, k, q = (X @ W_qkv.T).chunk(3, dim=-1)
    return q, k, v


@wrong("project_qkv", "chunks the tokens instead of the features")
def chunk_tokens(X, W_qkv):
    return (X @ W_qkv.T).chunk(3, dim=1)


@wrong("project_qkv", "chunks the batch")
def chunk_batch(X, W_qkv):
    return (X @ W_qkv.T).chunk(3)


@wrong("project_qkv", "reads the features as interleaved: q k v q k v")
def interleaved(X, W_qkv):
    out = X @ W_qkv.T
    return out[..., 0::3], out[..., 1::3], out[..., 2::3]


@wrong("project_qkv", "views as (B, T, d, 3)")
def view_d3(X, W_qkv):
    B, T, d = X.shape
    out = (X @ W_qkv.T).view(B, T, d, 3)
    return out[..., 0], out[..., 1], out[..., 2]


@wrong("project_qkv", "three times the same")
def all_q(X, W_qkv):
    q = (X @ W_qkv.T)[..., : X.shape[-1]]
    return q, q, q


@wrong("project_qkv", "returns one stacked tensor, not split")
def unsplit(X, W_qkv):
    return X @ W_qkv.T


@wrong("project_qkv", "the matrix reshaped instead of transposed")
def reshaped_weight(X, W_qkv):
    d = X.shape[-1]
    return (X @ W_qkv.reshape(d, 3 * d)).chunk(3, -1)


@wrong("project_qkv", "q is scaled already")
def scaled_q(X, W_qkv):
    q, k, v = (X @ W_qkv.T).chunk(3, -1)
    return q / math.sqrt(q.shape[-1]), k, v


# ---------------------------------------------------------------- 4 count_parameters


@right("count_parameters")
def four_terms(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + n_heads * d_k * d_model


@right("count_parameters")
def from_modules(d_model, n_heads, d_k):
    layers = [nn.Linear(d_model, n_heads * d_k, bias=False) for _ in range(3)]
    layers.append(nn.Linear(n_heads * d_k, d_model, bias=False))
    return sum(p.numel() for layer in layers for p in layer.parameters())


@wrong("count_parameters", "d_k taken as d_model / n_heads")
def four_squares(d_model, n_heads, d_k):
    return 4 * d_model**2


@wrong("count_parameters", "forgets W_o")
def without_wo(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k


@wrong("count_parameters", "counts biases")
def with_biases(d_model, n_heads, d_k):
    return 4 * d_model * n_heads * d_k + 3 * n_heads * d_k + d_model


@wrong("count_parameters", "forgets the heads")
def one_head_only(d_model, n_heads, d_k):
    return 4 * d_model * d_k


@wrong("count_parameters", "W_o is d_model x d_model")
def square_wo(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + d_model * d_model


@wrong("count_parameters", "gives a float")
def float_count(d_model, n_heads, d_k):
    return 4.0 * d_model * n_heads * d_k


@wrong("count_parameters", "gives a float by dividing")
def float_division(d_model, n_heads, d_k):
    return 8 * d_model * n_heads * d_k / 2


@wrong("count_parameters", "every head has a W_o of its own of full width")
def wo_per_head(d_model, n_heads, d_k):
    return 3 * d_model * n_heads * d_k + n_heads * d_model * d_model


@wrong("count_parameters", "only one projection is counted")
def one_matrix(d_model, n_heads, d_k):
    return d_model * n_heads * d_k


@wrong("count_parameters", "returns a tensor")
def a_tensor(d_model, n_heads, d_k):
    return torch.tensor(4 * d_model * n_heads * d_k)


# ---------------------------------------------------------------- 5 split_heads


@right("split_heads")
def view_transpose(x, n_heads):
    B, T, D = x.size()
    return x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)


@right("split_heads")
def stack_chunks(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


@right("split_heads")
def unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(0, 2, 1, 3).contiguous()


@right("split_heads")
def einops_split(x, n_heads):
    from einops import rearrange

    return rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def loop_fill(x, n_heads):
    B, T, D = x.shape
    d = D // n_heads
    out = x.new_empty(B, n_heads, T, d)
    for i in range(n_heads):
        out[:, i] = x[:, :, i * d : (i + 1) * d]
    return out


@wrong("split_heads", "view straight to (B, h, T, d_k)")
def direct_view(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, n_heads, T, D // n_heads)


@wrong("split_heads", "forgets to permute: (B, T, h, d_k)")
def no_permute(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, D // n_heads)


@wrong("split_heads", "d_k and h exchanged in the view")
def exchanged(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // n_heads, n_heads).permute(0, 3, 1, 2)


@wrong("split_heads", "permutes to (B, h, d_k, T)")
def last_axes_exchanged(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, D // n_heads).permute(0, 2, 3, 1)


@wrong("split_heads", "heads in front of the batch")
def heads_first(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, D // n_heads).permute(2, 0, 1, 3)


@wrong("split_heads", "transposes before the reshape, which mixes tokens")
def transpose_then_reshape(x, n_heads):
    B, T, D = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, D // n_heads, T).reshape(B, n_heads, T, -1)


@wrong("split_heads", "splits into tokens: chunk on the token axis")
def chunk_time(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // n_heads, n_heads).transpose(1, 2)


@wrong("split_heads", "view fails on a non-contiguous input")
def needs_contiguous(x, n_heads):
    B, T, D = x.shape
    return x.view(B * T, n_heads, D // n_heads).view(B, T, n_heads, -1).transpose(1, 2)


@wrong("split_heads", "gives a list of heads instead of a tensor")
def a_list(x, n_heads):
    return list(x.chunk(n_heads, dim=-1))


@wrong("split_heads", "the heads come out in reverse order")
def reversed_heads(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1)[::-1], dim=1)


@wrong("split_heads", "merges batch and heads: (B*h, T, d_k)")
def folded_batch(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, -1).transpose(1, 2).reshape(B * n_heads, T, -1)


@wrong("split_heads", "every head gets the first columns")
def same_columns(x, n_heads):
    d = x.shape[-1] // n_heads
    return torch.stack([x[..., :d]] * n_heads, dim=1)


@wrong("split_heads", "takes n_heads as d_k")
def n_heads_as_dk(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // n_heads, n_heads).permute(0, 2, 1, 3)


# ---------------------------------------------------------------- 6 merge_heads


@right("merge_heads")
def transpose_reshape(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


@right("merge_heads")
def cat_heads(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


@right("merge_heads")
def contiguous_view(x):
    b, h, t, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, t, -1)


@right("merge_heads")
def flatten_last(x):
    return x.transpose(1, 2).flatten(2)


@wrong("merge_heads", "reshape without permuting back")
def no_permute_back(x):
    B, H, T, D = x.shape
    return x.reshape(B, T, H * D)


@wrong("merge_heads", "view after permute crashes")
def view_crash(x):
    B, H, T, D = x.shape
    return x.permute(0, 2, 1, 3).view(B, T, H * D)


@wrong("merge_heads", "interleaves the heads: d_k before h")
def interleaved_heads(x):
    B, H, T, D = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, H * D)


@wrong("merge_heads", "adds the heads")
def summed(x):
    return x.sum(1)


@wrong("merge_heads", "averages the heads")
def averaged(x):
    return x.mean(dim=1)


@wrong("merge_heads", "stops after the permute")
def still_four_axes(x):
    return x.permute(0, 2, 1, 3)


@wrong("merge_heads", "transposes the wrong axes")
def wrong_axes(x):
    B, H, T, D = x.shape
    return x.transpose(2, 3).reshape(B, T, H * D)


@wrong("merge_heads", "heads concatenated along the tokens")
def along_tokens(x):
    return torch.cat(list(x.unbind(1)), dim=1)


@wrong("merge_heads", "last head first")
def last_first(x):
    return torch.cat(list(x.unbind(1))[::-1], dim=-1)


@wrong("merge_heads", "only the first head")
def first_only(x):
    return x[:, 0]


# ---------------------------------------------------------------- 7 causal_mask


@right("causal_mask")
def triu_one(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


@right("causal_mask")
def compare(T):
    i = torch.arange(T)
    return i[None, :] > i[:, None]


@right("causal_mask")
def not_tril(T):
    return ~torch.tril(torch.ones(T, T, dtype=torch.bool))


@right("causal_mask")
def loops(T):
    m = torch.zeros(T, T, dtype=torch.bool)
    for i in range(T):
        for j in range(i + 1, T):
            m[i, j] = True
    return m


@wrong("causal_mask", "blocks the diagonal too")
def with_diagonal(T):
    return torch.ones(T, T, dtype=torch.bool).triu()


@wrong("causal_mask", "True = keep")
def keep_convention(T):
    return torch.tril(torch.ones(T, T)).bool()


@wrong("causal_mask", "a float mask")
def floats(T):
    return torch.triu(torch.ones(T, T), diagonal=1)


@wrong("causal_mask", "an additive mask of -inf")
def additive(T):
    return torch.full((T, T), float("-inf")).triu(1)


@wrong("causal_mask", "blocks the past")
def past(T):
    return torch.ones(T, T, dtype=torch.bool).tril(-1)


@wrong("causal_mask", "one step too late")
def off_by_one(T):
    return torch.ones(T, T, dtype=torch.bool).triu(2)


@wrong("causal_mask", "all False")
def nothing(T):
    return torch.zeros(T, T, dtype=torch.bool)


@wrong("causal_mask", "has extra axes (1, 1, T, T)")
def four_axes(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)[None, None]


@wrong("causal_mask", "integers")
def integers(T):
    return torch.ones(T, T, dtype=torch.long).triu(1)


# ---------------------------------------------------------------- 8 padding_mask


@right("padding_mask")
def arange_compare(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None]


@right("padding_mask")
def view_compare(lengths, T):
    pos = torch.arange(T, device=lengths.device).view(1, 1, 1, T)
    return pos >= lengths.view(-1, 1, 1, 1)


@right("padding_mask")
def expanded(lengths, T):
    idx = torch.arange(T, device=lengths.device).expand(len(lengths), T)
    return ~(idx < lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(2)


@wrong("padding_mask", "True at real tokens")
def real_tokens(lengths, T):
    return (torch.arange(T, device=lengths.device) < lengths[:, None])[:, None, None]


@wrong("padding_mask", "off by one: >")
def strictly_greater(lengths, T):
    return (torch.arange(T, device=lengths.device) > lengths[:, None])[:, None, None]


@wrong("padding_mask", "shape (B, T)")
def two_axes(lengths, T):
    return torch.arange(T, device=lengths.device) >= lengths[:, None]


@wrong("padding_mask", "shape (B, 1, T, 1): blocks queries")
def query_axis(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, :, None]


@wrong("padding_mask", "shape (B, T, 1, 1)")
def tokens_second(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, :, None, None]


@wrong("padding_mask", "padding is taken to be in front")
def left_padding(lengths, T):
    return (torch.arange(T, device=lengths.device) < (T - lengths)[:, None])[:, None, None]


@wrong("padding_mask", "made on the CPU whatever the device of lengths")
def on_cpu(lengths, T):
    mask = torch.zeros(len(lengths), 1, 1, T, dtype=torch.bool, device="cpu")
    return mask | (torch.arange(T) >= lengths[:, None].cpu())[:, None, None]


@wrong("padding_mask", "a float mask")
def float_padding(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None, None].float()


@wrong("padding_mask", "positions from 1")
def from_one(lengths, T):
    return (torch.arange(1, T + 1, device=lengths.device) >= lengths[:, None])[:, None, None]


@wrong("padding_mask", "shape (B, 1, T)")
def three_axes(lengths, T):
    return (torch.arange(T, device=lengths.device) >= lengths[:, None])[:, None]


# ---------------------------------------------------------------- 9 masked_softmax


@right("masked_softmax")
def fill_and_zero(scores, mask):
    dead = mask.all(-1, keepdim=True)
    s = scores.masked_fill(mask & ~dead, float("-inf"))
    return s.softmax(-1).masked_fill(dead, 0.0)


@right("masked_softmax")
def exp_and_clamp(scores, mask):
    s = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    s = s - s.amax(-1, keepdim=True)
    e = s.exp().masked_fill(mask, 0)
    return e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


@right("masked_softmax")
def finite_then_blank(scores, mask):
    w = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)
    return w.masked_fill(mask, 0.0)


@wrong("masked_softmax", "-inf: a blocked row is NaN")
def nan_rows(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-1)


@wrong("masked_softmax", "finite fill: a blocked row is uniform")
def uniform_rows(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)


@wrong("masked_softmax", "-1e9 overflows in float16 and leaves blocked rows uniform")
def minus_1e9(scores, mask):
    return scores.masked_fill(mask, -1e9).softmax(-1)


@right("masked_softmax")  # the gradient is clean, too: masked_fill passes none to what it filled
def nan_to_num(scores, mask):
    return torch.nan_to_num(scores.masked_fill(mask, float("-inf")).softmax(-1))


@wrong("masked_softmax", "True read as keep")
def keeps_true(scores, mask):
    return scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)


@wrong("masked_softmax", "masks after the softmax without renormalising")
def mask_after(scores, mask):
    return scores.softmax(-1).masked_fill(mask, 0.0)


@wrong("masked_softmax", "zeroes the scores instead of -inf")
def zero_scores(scores, mask):
    return scores.masked_fill(mask, 0.0).softmax(-1)


@wrong("masked_softmax", "multiplies the scores by the mask")
def times_mask(scores, mask):
    return (scores * (~mask)).softmax(-1)


@wrong("masked_softmax", "softmax over queries")
def over_queries(scores, mask):
    dead = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask & ~dead, float("-inf")).softmax(-2).masked_fill(dead, 0.0)


@wrong("masked_softmax", "ignores the mask")
def ignores(scores, mask):
    return scores.softmax(-1)


@wrong("masked_softmax", "adds the bool mask to the scores")
def adds(scores, mask):
    return (scores + mask).softmax(-1)


@wrong("masked_softmax", "no maximum subtracted: overflow at 1e4")
def overflow(scores, mask):
    e = scores.exp().masked_fill(mask, 0.0)
    return e / e.sum(-1, keepdim=True).clamp(min=1e-9)


@wrong("masked_softmax", "-100 is not enough for scores of 1e4")
def minus_100(scores, mask):
    return scores.masked_fill(mask, -100.0).softmax(-1).masked_fill(mask.all(-1, keepdim=True), 0.0)


@wrong("masked_softmax", "zeroes a blocked row only if the whole matrix is blocked")
def all_of_all(scores, mask):
    w = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return torch.zeros_like(w) if mask.all() else w


# ---------------------------------------------------------------- 10 sum_of_head_writes


@right("sum_of_head_writes")
def loop_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h))


@right("sum_of_head_writes")
def einsum_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,ohd->bto", heads, W_o.reshape(-1, h, d))


@right("sum_of_head_writes")
def concat_after_all(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o.T


@wrong("sum_of_head_writes", "takes rows of W_o")
def row_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o.T.reshape(h, -1, d)[i].T for i in range(h))


@wrong("sum_of_head_writes", "averages the writes")
def mean_writes(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h)) / h


@wrong("sum_of_head_writes", "only the last head remains")
def last_head(heads, W_o):
    B, h, T, d = heads.shape
    for i in range(h):
        out = heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "every head uses the first slab")
def first_slab(heads, W_o):
    d = heads.shape[-1]
    return sum(heads[:, i] @ W_o[:, :d].T for i in range(heads.shape[1]))


@wrong("sum_of_head_writes", "interleaved slabs")
def strided_slabs(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].T for i in range(h))


@wrong("sum_of_head_writes", "forgets to sum: (B, h, T, d_model)")
def not_summed(heads, W_o):
    B, h, T, d = heads.shape
    return torch.stack([heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h)], 1)


@wrong("sum_of_head_writes", "sums the heads first")
def heads_summed_first(heads, W_o):
    d = heads.shape[-1]
    return heads.sum(1) @ W_o[:, :d].T


@wrong("sum_of_head_writes", "reshape instead of transpose before the product")
def reshaped(heads, W_o):
    B, h, T, d = heads.shape
    return heads.reshape(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "W_o not transposed")
def untransposed(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o


@wrong("sum_of_head_writes", "skips head 0")
def skips_first(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(1, h))
