"""Unusual answers that are right."""

# As learners type: long lines, `l`, zip.

import itertools
import math
from functools import reduce

import torch
import torch.nn.functional as F
from answers import right
from einops import einsum as eins
from einops import rearrange
from einops import reduce as ereduce
from torch import nn


# ------------------------------------------------------------------ 1
@right("attention_scores")
def fourth_roots(Q, K):
    s = Q.shape[-1] ** -0.25
    return (Q * s) @ (K * s).mT


@right("attention_scores")
def with_linear_algebra(query, key):
    return (
        torch.linalg.vecdot(query.unsqueeze(-2), key.unsqueeze(-3))
        / torch.sqrt(torch.tensor(query.shape[-1])).item()
    )


@right("attention_scores")
def cosine_of_sum(a, b):
    return (b @ a.movedim(-1, -2)).swapaxes(-1, -2) * math.exp(-0.5 * math.log(a.size(-1)))


@right("attention_scores")
def key_by_key(Q, K):
    root = math.sqrt(Q.shape[-1])
    return torch.stack([(Q * k.unsqueeze(-2)).sum(-1) / root for k in K.unbind(-2)], dim=-1)


# ------------------------------------------------------------------ 2
@right("attention")
def by_sdpa_twice(Q, K, V):
    eye = torch.eye(K.shape[-2], dtype=K.dtype, device=K.device).expand(*K.shape[:-2], -1, -1)
    w = F.scaled_dot_product_attention(Q, K, eye)
    return torch.matmul(w, V), w


@right("attention")
def by_logsumexp(Q, K, V):
    s = torch.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    s = s - s.amax(-1, keepdim=True)
    w = (s - torch.logsumexp(s, -1, keepdim=True)).exp()
    return [w @ V, w]


@right("attention")
def by_softmin(Q, K, V):
    w = F.softmin(-(Q @ K.mT) / math.sqrt(K.shape[-1]), dim=-1)
    return torch.einsum("...ij,...jv->...iv", w, V), w


@right("attention")
def transposed_all_the_way(Q, K, V):
    wt = (K @ Q.mT / math.sqrt(Q.shape[-1])).softmax(dim=-2)
    return (V.mT @ wt).mT, wt.mT


# ------------------------------------------------------------------ 3
@right("project_qkv")
def three_products(X, W):
    return [X @ w.T for w in W.view(3, -1, W.shape[1])]


@right("project_qkv")
def from_the_left(X, W):
    y = (W @ X.mT).mT
    d = W.shape[1]
    return y[..., :d], y[..., d:-d], y[..., -d:]


@right("project_qkv")
def einsum_three(X, W):
    return tuple(torch.einsum("btc,noc->nbto", X, W.reshape(3, -1, W.size(-1))))


# ------------------------------------------------------------------ 4
@right("count_parameters")
def on_meta(d_model, n_heads, d_k):
    a = torch.empty(3 * n_heads * d_k, d_model, device="meta")
    return a.numel() + torch.empty(d_model, n_heads * d_k, device="meta").numel()


@right("count_parameters")
def shifted(d, h, k):
    return (d * h * k) << 2


# ------------------------------------------------------------------ 5
@right("split_heads")
def features_first(x, n_heads):
    B, T, D = x.shape
    return x.mT.reshape(B, n_heads, D // n_heads, T).mT


@right("split_heads")
def gathered(x, n_heads):
    index = torch.arange(x.shape[-1], device=x.device).view(n_heads, -1)
    return x[:, :, index].permute(0, 2, 1, 3)


@right("split_heads")
def tensor_split_stack(x, n_heads):
    return torch.stack(x.tensor_split(n_heads, dim=2), dim=-3)


@right("split_heads")
def unfolded(x, n_heads):
    d = x.size(-1) // n_heads
    return x.unfold(-1, d, d).swapdims(1, 2)


@right("split_heads")
def einops_repeat_free(x, n_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def assigned(x, n_heads):
    B, T, D = x.shape
    out = x.new_empty(B, n_heads, T, D // n_heads)
    for c in range(D):
        out[:, c // out.shape[-1], :, c % out.shape[-1]] = x[:, :, c]
    return out


# ------------------------------------------------------------------ 6
@right("merge_heads")
def cat_unbound(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def flatten_moved(x):
    return x.movedim(1, 2).flatten(start_dim=2)


@right("merge_heads")
def hstack_all(x):
    return torch.stack([torch.hstack(list(one)) for one in x])


@right("merge_heads")
def by_fold(x):
    return reduce(lambda a, b: torch.concat((a, b), -1), x.swapaxes(0, 1))


@right("merge_heads")
def through_features(x):
    B, h, T, d = x.shape
    return x.transpose(2, 3).reshape(B, h * d, T).mT


# ------------------------------------------------------------------ 7
@right("causal_mask")
def not_tril(T):
    return ~torch.tril(torch.ones(T, T, dtype=torch.bool))


@right("causal_mask")
def cumulative(n):
    return torch.eye(n).cumsum(1).roll(1, 1).bool() & torch.ones(n, n).triu(1).bool()


@right("causal_mask")
def from_lists(T):
    return torch.tensor([[False] * (i + 1) + [True] * (T - i - 1) for i in range(T)])


# ------------------------------------------------------------------ 8
@right("padding_mask")
def comparing_a_sum(lengths, T):
    ones = torch.ones(len(lengths), 1, 1, T, device=lengths.device, dtype=torch.int64)
    return ones.cumsum(-1) > lengths.reshape(-1, 1, 1, 1)


@right("padding_mask")
def row_by_row(lengths, T):
    return torch.stack([torch.arange(T, device=lengths.device).ge(n) for n in lengths]).unflatten(
        0, (-1, 1, 1)
    )


@right("padding_mask")
def by_less(lengths, T):
    return torch.lt(lengths[:, None, None, None] - 1, torch.arange(T, device=lengths.device))


# ------------------------------------------------------------------ 9
@right("masked_softmax")
def filled_then_mended(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0.0)


@right("masked_softmax")
def smallest_then_zeroed(scores, mask):
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1) * ~mask


@right("masked_softmax")
def where_everywhere(scores, mask):
    low = torch.where(mask, -torch.inf, scores)
    top = low.amax(-1, keepdim=True).detach()
    top = torch.where(top.isinf(), 0.0, top)
    e = torch.exp(low - top)
    z = e.sum(-1, keepdim=True)
    return torch.where(z > 0, e / torch.where(z > 0, z, 1.0), 0.0).to(scores.dtype)


@right("masked_softmax")
def one_more_key(scores, mask):
    """A key that only an empty row may look at; its column is cut off again."""
    mask = mask.expand(scores.shape)
    extra = torch.zeros_like(scores[..., :1])
    s = torch.cat((scores, extra), -1)
    m = torch.cat((mask, ~mask.all(-1, keepdim=True)), -1)
    return s.masked_fill(m, float("-inf")).softmax(-1)[..., :-1]


@right("masked_softmax")
def in_blocks_of_rows(scores, mask):
    flat, m = (
        scores.reshape(-1, scores.shape[-1]),
        mask.expand(scores.shape).reshape(-1, scores.shape[-1]),
    )
    rows = []
    for s, blocked in zip(flat, m):
        if blocked.all():
            rows.append(torch.zeros_like(s) + 0 * s)
        else:
            rows.append(s.masked_fill(blocked, -math.inf).softmax(0))
    return torch.stack(rows).reshape(scores.shape)


# ------------------------------------------------------------------ 10
@right("sum_of_head_writes")
def einops_einsum(heads, W_o):
    return eins(
        heads, rearrange(W_o, "m (h d) -> m h d", h=heads.shape[1]), "b h t d, m h d -> b t m"
    )


@right("sum_of_head_writes")
def accumulated(heads, W_o):
    B, h, T, d = heads.shape
    out = heads.new_zeros(B, T, len(W_o))
    for i, head in enumerate(heads.unbind(1)):
        out += F.linear(head, W_o.narrow(1, i * d, d))
    return out


@right("sum_of_head_writes")
def summed_after_matmul(heads, W_o):
    slabs = W_o.T.unflatten(0, (heads.shape[1], heads.shape[3]))
    return ereduce(heads @ slabs, "b h t m -> b t m", "sum")


# ------------------------------------------------------------------ 11
@right("MultiHeadAttention")
class WithSdpa(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in "qkvo")

    def forward(self, x, mask=None):
        q, k, v = (
            rearrange(w(x), "b t (h d) -> b h t d", h=self.h)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            empty = mask.all(-1, keepdim=True)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | empty)
            y = y.masked_fill(empty, 0.0)
        return self.w_o(rearrange(y, "b h t d -> b t (h d)"))


@right("MultiHeadAttention")
class HeadByHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        if mask is None:
            mask = x.new_zeros(1, dtype=torch.bool)
        mask = mask.expand(B, self.n_heads, T, T)
        out = self.w_o.bias.expand(B, T, D)
        d = D // self.n_heads
        for i in range(self.n_heads):
            cols = slice(i * d, (i + 1) * d)
            q, k, v = (F.linear(x, w.weight[cols]) for w in (self.w_q, self.w_k, self.w_v))
            s = torch.baddbmm(
                torch.zeros((), dtype=x.dtype, device=x.device), q, k.mT, beta=0, alpha=d**-0.5
            )
            w = s.masked_fill(mask[:, i], -math.inf).softmax(-1).nan_to_num(0.0)
            out = out + F.linear(w @ v, self.w_o.weight[:, cols])
        return out


@right("MultiHeadAttention")
class FoldedBatch(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.add_module(name, nn.Linear(size, size))

    def forward(self, inputs, blocked=None):
        n, t, size = inputs.shape
        fold = [
            m(inputs)
            .unfold(-1, size // self.heads, size // self.heads)
            .permute(0, 2, 1, 3)
            .flatten(0, 1)
            for m in (self.w_q, self.w_k, self.w_v)
        ]
        scores = torch.bmm(fold[0], fold[1].transpose(1, 2)) / math.sqrt(size // self.heads)
        if blocked is None:
            weights = scores.softmax(-1)
        else:
            blocked = blocked.expand(n, self.heads, t, t).flatten(0, 1)
            weights = (
                scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(-1) * ~blocked
            )
        context = torch.bmm(weights, fold[2]).unflatten(0, (n, self.heads))
        return self.w_o(torch.cat(context.unbind(1), -1))


# ------------------------------------------------------------------ 12
@right("next_token_loss")
def by_logsumexp_and_gather(logits, tokens):
    lg = logits[:, :-1].double()
    own = lg.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return (lg.logsumexp(-1) - own).mean().to(logits.dtype)


@right("next_token_loss")
def ignoring_the_last(logits, tokens):
    answers = torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], -100)), 1)
    return F.cross_entropy(logits.transpose(1, 2), answers)


@right("next_token_loss")
def step_by_step(logits, tokens):
    T = tokens.shape[1]
    return sum(F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(T - 1)) / (T - 1)


@right("next_token_loss")
def by_one_hot(logits, tokens):
    hot = F.one_hot(tokens[:, 1:], logits.size(-1)).to(logits.dtype)
    return -(hot * logits[:, :-1].log_softmax(-1)).sum(-1).mean()


# ------------------------------------------------------------------ 13
@right("previous_token_score")
def by_index(weights):
    i = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, i, i - 1].mean(1)


@right("previous_token_score")
def by_trace(weights):
    return torch.einsum("hii->h", weights[:, 1:, :-1]) / (weights.shape[1] - 1)


@right("previous_token_score")
def by_shifted_eye(w):
    T = w.size(-1)
    eye = torch.ones(T - 1, dtype=w.dtype, device=w.device).diag(-1)
    return (w * eye).sum((1, 2)).div(T - 1)


# ------------------------------------------------------------------ 14
@right("count_flops")
def factored(T, d_model, n_heads):
    return 4 * T * d_model * (2 * d_model + T)


@right("count_flops")
def six_products(T, d, h):
    shapes = [(T, d, d)] * 4 + [(T, d // h, T)] * h + [(T, T, d // h)] * h
    return 2 * sum(map(math.prod, shapes))


# ------------------------------------------------------------------ 15
@right("blockwise_attention")
def by_logaddexp(Q, K, V, block):
    dtype = V.dtype
    Q, K, V = Q.double(), K.double(), V.double()
    lse = torch.full_like(Q[:, 0], -math.inf)
    out = Q.new_zeros(Q.shape[0], V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        s = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.logaddexp(lse, s.logsumexp(1))
        out = out * (lse - new).exp()[:, None] + (s - new[:, None]).exp() @ v
        lse = new
    return out.to(dtype)


@right("blockwise_attention")
def in_two_passes(Q, K, V, block):
    Q = Q / Q.shape[1] ** 0.5
    top = reduce(torch.maximum, ((Q @ k.mT).amax(1, keepdim=True) for k in K.split(block)))
    num, den = 0, 0
    for k, v in zip(K.split(block), V.split(block)):
        e = torch.exp(Q @ k.mT - top)
        num, den = num + e @ v, den + e.sum(1, keepdim=True)
    return num / den


@right("blockwise_attention")
def one_column_more(Q, K, V, block):
    """A column of ones among the values carries the sum along."""
    V1 = torch.cat((V, torch.ones_like(V[:, :1])), 1)
    m, acc = None, None
    for i in itertools.count(0, block):
        if i >= K.shape[0]:
            return acc[:, :-1] / acc[:, -1:]
        s = torch.einsum("qd,kd->qk", Q, K[i : i + block]) * Q.shape[1] ** -0.5
        top = s.max(1, keepdim=True).values
        if m is None:
            m, acc = top, (s - top).exp() @ V1[i : i + block]
        else:
            new = torch.maximum(m, top)
            acc = acc * (m - new).exp() + (s - new).exp() @ V1[i : i + block]
            m = new


# ------------------------------------------------------------------ 16
@right("rotate")
def halves_as_complex(x, positions):
    a, b = x.double().chunk(2, -1)
    speeds = torch.exp(
        -math.log(1e4)
        * torch.arange(a.shape[-1], device=x.device, dtype=torch.float64)
        / a.shape[-1]
    )
    z = torch.complex(a, b) * torch.exp(1j * (positions[:, None] * speeds))
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


@right("rotate")
def llama_style(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d))
    emb = torch.outer(positions.double(), inv_freq).repeat(1, 2)
    turned = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)
    return (x * emb.cos() + turned * emb.sin()).to(x.dtype)


@right("rotate")
def pair_by_pair(x, positions):
    d = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(d // 2):
        angle = positions.double() * 10000.0 ** (-2 * i / d)
        R = torch.stack(
            (
                torch.stack((angle.cos(), -angle.sin()), -1),
                torch.stack((angle.sin(), angle.cos()), -1),
            ),
            -2,
        )
        pair = x[..., [i, i + d // 2]].double()
        out[..., [i, i + d // 2]] = (R @ pair[..., None])[..., 0].to(x.dtype)
    return out


# ------------------------------------------------------------------ 17
@right("cached_attention")
def token_by_token(q, k, v, cache):
    keys, values = cache if cache is not None else (k[:, :, :0], v[:, :, :0])
    out = []
    for t in range(q.shape[2]):
        keys, values = (
            torch.cat((keys, k[:, :, t : t + 1]), 2),
            torch.cat((values, v[:, :, t : t + 1]), 2),
        )
        out.append(F.scaled_dot_product_attention(q[:, :, t : t + 1], keys, values))
    return torch.cat(out, 2), [keys, values]


@right("cached_attention")
def bottom_right(q, k, v, cache):
    all_k, all_v = (
        (k, v) if cache is None else map(lambda pair: torch.cat(pair, -2), zip(cache, (k, v)))
    )
    n, m = q.size(-2), all_k.size(-2)
    visible = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, all_k, all_v, attn_mask=visible), (all_k, all_v)


# ------------------------------------------------------------------ 18
@right("grouped_scores")
def by_groups(q, k):
    qg = rearrange(q, "b (g n) t d -> b g (n t) d", g=k.shape[1])
    return rearrange(qg @ k.mT / q.shape[-1] ** 0.5, "b g (n t) k -> b (g n) t k", t=q.shape[2])


@right("grouped_scores")
def by_expand(q, k):
    B, g, T, d = k.shape
    k = k[:, :, None].expand(B, g, q.shape[1] // g, T, d).flatten(1, 2)
    return torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(d))


@right("grouped_scores")
def by_lookup(q, k):
    n = q.size(1) // k.size(1)
    return torch.stack([q[:, i] @ k[:, i // n].mT for i in range(q.size(1))], 1) * q.size(3) ** -0.5


# ------------------------------------------------------------------ 19
@right("cached_mask")
def triangles(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    return (
        ones.triu(n_cached + 1)
        if window is None
        else ones.triu(n_cached + 1) | ones.tril(n_cached - window)
    )


@right("cached_mask")
def last_rows_of_the_square(n_new, n_cached, window):
    n = n_new + n_cached
    d = torch.arange(n).view(-1, 1) - torch.arange(n)
    return ~((d >= 0) & (d < (window or n + 1)))[n_cached:]


@right("cached_mask")
def row_lists(n_new, n_cached, window):
    n = n_cached + n_new
    rows = []
    for at in range(n_cached, n):
        first = 0 if window is None else max(0, at - window + 1)
        rows.append([True] * first + [False] * (at - first + 1) + [True] * (n - at - 1))
    return torch.tensor(rows)


# ------------------------------------------------------------------ silence and solved
@right("silence")
def by_factor(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device).ne(i).to(heads.dtype)
    return torch.einsum("bhtd,h->bhtd", heads, keep)


@right("silence")
def by_index_fill(heads, i):
    return heads.index_fill(1, torch.tensor([i], device=heads.device), 0.0)


@right("solved")
def by_sign(weights, query, right, wrong):
    return torch.sub(weights[:, query, right], weights[:, query, wrong]).sign() == 1


@right("solved")
def by_tensor_of_bools(weights, query, right, wrong):
    return torch.stack([w[query, wrong] < w[query, right] for w in weights])
