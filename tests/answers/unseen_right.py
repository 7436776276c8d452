"""Unusual but right answers, written without a look at the checks."""

import math

import torch
import torch.nn.functional as F
from einops import einsum as named_einsum
from einops import rearrange, reduce
from torch import nn

from answers import right


@right("attention_scores")
def scores_sum_of_products(Q, K):
    return (Q[..., :, None, :] * K[..., None, :, :]).sum(dim=-1) / math.sqrt(Q.shape[-1])


@right("attention_scores")
def scores_fourth_roots(Q, K):
    root = Q.shape[-1] ** 0.25
    return (Q / root) @ (K / root).mT


@right("attention_scores")
def scores_by_columns(Q, K):
    columns = [(Q * key[..., None, :]).sum(-1) for key in K.unbind(dim=-2)]
    return torch.stack(columns, dim=-1).div(Q.size(-1) ** 0.5)


@right("attention")
def attention_identity_values(Q, K, V):
    n = K.shape[-2]
    one = torch.eye(n, dtype=K.dtype, device=K.device).expand(*K.shape[:-1], n)
    weights = F.scaled_dot_product_attention(Q, K, one)
    return weights @ V, weights


@right("attention")
def attention_log_space(Q, K, V):
    scores = torch.matmul(Q, K.transpose(-1, -2)) * Q.shape[-1] ** -0.5
    weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
    return [named_einsum(weights, V, "... q k, ... k d -> ... q d"), weights]


@right("project_qkv")
def project_unflatten(X, W_qkv):
    return F.linear(X, W_qkv).unflatten(-1, (3, -1)).unbind(dim=-2)


@right("project_qkv")
def project_three_products(X, W_qkv):
    d_model = X.size(2)
    return [torch.einsum("btd,od->bto", X, W) for W in W_qkv.split(d_model)]


@right("count_parameters")
def parameters_of_layers(d_model, n_heads, d_k):
    inner = n_heads * d_k
    into = [torch.empty(inner, d_model, device="meta") for _ in "qkv"]
    return sum(w.numel() for w in [*into, torch.empty(d_model, inner, device="meta")])


@right("split_heads")
def split_stack_of_slices(x, n_heads):
    width = x.shape[2] // n_heads
    return torch.stack([x[:, :, i * width : (i + 1) * width] for i in range(n_heads)], dim=1)


@right("split_heads")
def split_named(x, n_heads):
    return rearrange(x, "batch token (head dim) -> batch head token dim", head=n_heads)


@right("merge_heads")
def merge_hstack(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def merge_into_empty(x):
    B, h, T, d_k = x.shape
    out = x.new_empty(B, T, h, d_k)
    for i in range(h):
        out[:, :, i] = x[:, i]
    return out.flatten(start_dim=2)


@right("causal_mask")
def causal_lists(T):
    return torch.tensor([[key > query for key in range(T)] for query in range(T)])


@right("causal_mask")
def causal_cumulative(T):
    return torch.eye(T).cumsum(dim=1).sub(torch.eye(T)).bool()


@right("padding_mask")
def padding_cumulative(lengths, T):
    ones = torch.ones(len(lengths), T, dtype=torch.int64, device=lengths.device)
    return (ones.cumsum(dim=1) > lengths.unsqueeze(1)).view(-1, 1, 1, T)


@right("padding_mask")
def padding_not_less(lengths, T):
    real = torch.arange(T).to(lengths.device).expand(len(lengths), T) < lengths.reshape(-1, 1)
    return rearrange(~real, "b t -> b 1 1 t")


@right("masked_softmax")
def softmax_where_twice(scores, mask):
    mask = mask.expand_as(scores)
    safe = torch.where(mask, torch.finfo(scores.dtype).min, scores)
    return torch.where(mask, 0.0, safe.softmax(dim=-1))


@right("masked_softmax")
def softmax_by_exp(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    top = scores.masked_fill(mask, lowest).amax(dim=-1, keepdim=True).detach()
    e = (scores - top).masked_fill(mask, -math.inf).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@right("masked_softmax")
def softmax_one_more_key(scores, mask):
    mask = mask.expand_as(scores)
    empty = mask.all(dim=-1, keepdim=True)
    filled = scores.masked_fill(mask, -math.inf)
    sink = torch.zeros_like(scores[..., :1]).masked_fill(~empty, -math.inf)
    return torch.cat((filled, sink), dim=-1).softmax(dim=-1)[..., :-1]


@right("sum_of_head_writes")
def writes_plain(heads, W_o):
    return F.linear(heads.transpose(1, 2).flatten(2), W_o)


@right("sum_of_head_writes")
def writes_named(heads, W_o):
    slabs = rearrange(W_o, "m (h d) -> h m d", h=heads.shape[1])
    return reduce(
        named_einsum(heads, slabs, "b h t d, h m d -> b h t m"), "b h t m -> b t m", "sum"
    )


class _Projections(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in "qkvo")


@right("MultiHeadAttention")
class HeadByHead(_Projections):
    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        d_k = d_model // self.n_heads
        if mask is None:
            mask = torch.zeros(1, dtype=torch.bool, device=x.device)
        mask = mask.expand(B, self.n_heads, T, T)
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        contexts = []
        for i in range(self.n_heads):
            part = slice(i * d_k, (i + 1) * d_k)
            scores = torch.bmm(q[..., part], k[..., part].mT) * d_k**-0.5
            contexts.append(torch.bmm(softmax_where_twice(scores, mask[:, i]), v[..., part]))
        return self.w_o(torch.cat(contexts, dim=-1))


@right("MultiHeadAttention")
class WithFusedCore(_Projections):
    def forward(self, x, mask=None):
        q, k, v = (
            rearrange(w(x), "b t (h d) -> b h t d", h=self.n_heads)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        if mask is None:
            context = F.scaled_dot_product_attention(q, k, v)
        else:
            mask = mask.expand(*q.shape[:3], k.shape[2])
            empty = mask.all(dim=-1, keepdim=True)
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | empty)
            context = context.masked_fill(empty, 0)
        return self.w_o(rearrange(context, "b h t d -> b t (h d)"))


@right("MultiHeadAttention")
class WithoutBiases(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        for name in ("w_o", "w_v", "w_k", "w_q"):
            setattr(self, name, nn.Linear(width, width, bias=False))
        self.count = count

    def forward(self, x, mask=None):
        q, k, v = (
            torch.stack(layer(x).chunk(self.count, dim=-1), dim=1)
            for layer in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = scores.softmax(dim=-1) if mask is None else softmax_by_exp(scores, mask)
        writes = (weights @ v).unbind(dim=1)
        return sum(
            F.linear(a, s)
            for a, s in zip(writes, self.w_o.weight.chunk(self.count, 1), strict=True)
        )


@right("next_token_loss")
def loss_logsumexp(logits, tokens):
    predictions, answers = logits[:, :-1], tokens[:, 1:].unsqueeze(-1)
    given = predictions.gather(-1, answers).squeeze(-1)
    return (predictions.logsumexp(dim=-1) - given).mean()


@right("next_token_loss")
def loss_one_hot(logits, tokens):
    answers = F.one_hot(tokens, logits.shape[-1])[:, 1:]
    log_p = logits.log_softmax(dim=-1)[:, :-1]
    return -torch.where(answers == 1, log_p, 0.0).sum(dim=-1).mean()


@right("next_token_loss")
def loss_marked(logits, tokens):
    answers = F.pad(tokens[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.mT, answers)


@right("previous_token_score")
def previous_trace(weights):
    T = weights.size(-1)
    return torch.stack([head[1:, :-1].trace() / (T - 1) for head in weights])


@right("previous_token_score")
def previous_gather(weights):
    query = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, query, query - 1].mean(dim=1)


@right("count_flops")
def flops_sum_of_products(T, d_model, n_heads):
    def product(n, m, p):
        return 2 * n * m * p

    d_k = d_model // n_heads
    each = product(T, d_k, T) + product(T, T, d_k) + 3 * product(T, d_model, d_k)
    return n_heads * each + product(T, n_heads * d_k, d_model)


@right("blockwise_attention")
def blockwise_log_weights(Q, K, V, block):
    log_total, out = None, None
    for k, v in zip(K.split(block), V.split(block), strict=True):
        scores = Q @ k.mT / Q.shape[-1] ** 0.5
        here = scores.logsumexp(dim=-1, keepdim=True)
        part = (scores - here).exp() @ v
        if out is None:
            log_total, out = here, part
            continue
        joint = torch.logaddexp(log_total, here)
        out = out * (log_total - joint).exp() + part * (here - joint).exp()
        log_total = joint
    return out


@right("blockwise_attention")
def blockwise_two_passes(Q, K, V, block):
    starts = range(0, K.shape[0], block)
    q = Q * Q.shape[-1] ** -0.5
    top = torch.stack([(q @ K[i : i + block].T).amax(dim=1) for i in starts[:1]])[0]
    for i in starts[1:]:
        top = torch.maximum(top, (q @ K[i : i + block].T).amax(dim=1))
    total, mix = 0, 0
    for i in starts:
        e = (q @ K[i : i + block].T - top[:, None]).exp()
        total, mix = total + e.sum(dim=1), mix + e @ V[i : i + block]
    return mix / total[:, None]


@right("rotate")
def rotate_as_complex(x, positions):
    half = x.shape[-1] // 2
    a, b = x.double().chunk(2, dim=-1)
    speed = 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    turn = torch.polar(torch.ones_like(speed), positions[:, None] * speed)
    z = torch.complex(a.contiguous(), b.contiguous()) * turn
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


@right("rotate")
def rotate_pair_by_pair(x, positions):
    d_k = x.shape[-1]
    first, second = [], []
    for i in range(d_k // 2):
        angle = positions.double() * 10_000.0 ** (-2 * i / d_k)
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first.append(x[..., i] * c - x[..., i + d_k // 2] * s)
        second.append(x[..., i] * s + x[..., i + d_k // 2] * c)
    return torch.stack(first + second, dim=-1)


@right("cached_attention")
def cached_token_by_token(q, k, v, cache):
    if cache is None:
        cache = (k[:, :, :0], v[:, :, :0])
    rows, (K, V) = [], cache
    for t in range(q.shape[2]):
        K = torch.cat((K, k[:, :, t : t + 1]), dim=-2)
        V = torch.cat((V, v[:, :, t : t + 1]), dim=-2)
        rows.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], K, V))
    return torch.cat(rows, dim=-2), (K, V)


@right("cached_attention")
def cached_by_positions(q, k, v, cache):
    n_old = 0 if cache is None else cache[0].shape[2]
    if n_old:
        k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v), strict=True))
    key = torch.arange(k.shape[2], device=q.device)
    query = torch.arange(q.shape[2], device=q.device) + n_old
    keep = key <= query[:, None]
    return [F.scaled_dot_product_attention(q, k, v, attn_mask=keep), [k, v]]


@right("grouped_scores")
def grouped_by_views(q, k):
    q = q.unflatten(1, (k.shape[1], -1))
    return (q @ k.unsqueeze(2).mT / math.sqrt(q.shape[-1])).flatten(1, 2)


@right("grouped_scores")
def grouped_by_index(q, k):
    owner = [i // (q.shape[1] // k.shape[1]) for i in range(q.shape[1])]
    return named_einsum(q, k[:, owner], "b h i d, b h j d -> b h i j") * q.shape[-1] ** -0.5


@right("cached_mask")
def mask_band(n_new, n_cached, window):
    keep = torch.ones(n_new, n_cached + n_new, dtype=torch.bool).tril(n_cached)
    if window is not None:
        keep = keep.triu(n_cached - window + 1)
    return keep.logical_not()


@right("cached_mask")
def mask_python(n_new, n_cached, window):
    reach = math.inf if window is None else window
    rows = range(n_cached, n_cached + n_new)
    return torch.tensor([[not 0 <= i - j < reach for j in range(n_cached + n_new)] for i in rows])


@right("silence")
def silence_where(heads, i):
    here = torch.arange(heads.shape[1], device=heads.device).view(-1, 1, 1) == i
    return torch.where(here, 0.0, heads)


@right("silence")
def silence_from_parts(heads, i):
    parts = list(heads.unbind(dim=1))
    parts[i] = torch.zeros_like(parts[i])
    return torch.stack(parts, dim=1)


@right("solved")
def solved_by_sign(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=1).squeeze(1).signbit()


@right("solved")
def solved_loop(weights, query, right, wrong):
    return torch.stack([head[query, right].gt(head[query, wrong]) for head in weights])
