"""Right answers in unusual clothes, and a few wrong ones: a third hand."""

import functools
import math
import operator

import einops
import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong

# --- right ---------------------------------------------------------------------------------------


@right("attention_scores")
def with_baddbmm(Q, K):
    q, k = Q.reshape(-1, *Q.shape[-2:]), K.reshape(-1, *K.shape[-2:])
    zeros = torch.zeros(1, 1, 1, dtype=Q.dtype, device=Q.device)
    out = torch.baddbmm(zeros, q, k.mT, beta=0, alpha=Q.shape[-1] ** -0.5)
    return out.view(*Q.shape[:-1], K.shape[-2])


@right("attention_scores")
def with_vmap(Q, K):
    one = lambda q, k: torch.mv(k, q) / math.sqrt(q.shape[0])
    rows = torch.vmap(one, in_dims=(0, None))
    for _ in range(Q.ndim - 2):
        rows = torch.vmap(rows)
    return rows(Q, K)


@right("attention_scores")
def scripted(Q, K):
    return _scripted(Q, K)


@torch.jit.script
def _scripted(Q, K):
    return torch.matmul(Q, K.transpose(-2, -1)) / float(Q.size(-1)) ** 0.5


@right("attention_scores")
def with_a_device_context(Q, K):
    with torch.device(Q.device):
        root = torch.full((1,), float(K.shape[-1]), dtype=Q.dtype).sqrt()
    return Q @ K.mT / root


@right("attention_scores")
def with_a_scale_tensor(Q, K):
    return torch.mul(Q @ K.mT, torch.tensor(Q.shape[-1], dtype=Q.dtype, device=Q.device).rsqrt())


@wrong("attention_scores", "right values, cut off from their gradient", slips=("no_gradient",))
@torch.no_grad()
def without_gradients(Q, K):
    return torch.einsum("...ij,...kj->...ik", [Q, K]) / K.shape[-1] ** 0.5


@wrong("attention_scores", "an operation of its own without a way back", slips=("no_gradient",))
def through_autograd(Q, K):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a @ b.mT / a.shape[-1] ** 0.5

        @staticmethod
        def backward(ctx, g):
            return None, None

    return Product.apply(Q, K)


@right("attention")
def with_an_identity_for_weights(Q, K, V):
    both = torch.cat([V, torch.eye(K.shape[-2]).to(V).expand(*V.shape[:-1], -1)], -1)
    out = F.scaled_dot_product_attention(Q, K, both)
    return out.split([V.shape[-1], K.shape[-2]], -1)


@right("attention")
class CallableClass:
    """Called like a function; here the check gets its instance."""

    def __new__(cls, Q, K, V):
        w = F.softmax(einops.einsum(Q, K, "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5, -1)
        return w @ V, w


@right("attention")
def softmax_in_full_precision(Q, K, V):
    w = F.softmax(Q @ K.mT / K.size(-1) ** 0.5, dim=-1, dtype=torch.float32).type_as(Q)
    return torch.matmul(w, V), w


@right("project_qkv")
def with_conv(X, W):
    y = F.conv1d(X.mT, W[:, :, None]).mT
    return torch.split(y, [X.shape[-1]] * 3, dim=-1)


@right("project_qkv")
def with_fresh_layers(X, W):
    outs = []
    for block in W.chunk(3):
        layer = nn.Linear(X.shape[-1], X.shape[-1], bias=False).to(X.device, X.dtype)
        with torch.no_grad():
            layer.weight.copy_(block)
        outs.append(layer(X))
    return outs


@right("project_qkv")
def with_unflatten(X, W):
    return W.unflatten(0, (3, -1)).matmul(X.mT[:, None]).mT.unbind(1)


@right("count_parameters")
def with_reduce(d, h, k):
    return functools.reduce(operator.mul, (4, d, h, k))


@right("count_parameters")
def with_int(d, h, k):
    return int(4.0 * d * h * k)


@right("split_heads")
def with_as_strided(x, h):
    x = x.contiguous()
    B, T, D = x.shape
    return x.as_strided((B, h, T, D // h), (T * D, D // h, D, 1))


@right("split_heads")
def with_vmap_over_the_batch(x, h):
    return torch.vmap(lambda one: one.view(one.shape[0], h, -1).transpose(0, 1))(x)


@right("split_heads")
def with_hsplit(x, h):
    heads = torch.tensor_split(x, h, dim=-1)
    return torch.cat([head.unsqueeze(1) for head in heads], dim=1)


@right("split_heads")
def with_gather(x, h):
    B, T, D = x.shape
    index = torch.arange(D, device=x.device).view(h, D // h)
    return x[:, :, index].permute(0, 2, 1, 3)


@right("split_heads")
def with_swapaxes(x, n_heads):
    return x.unflatten(2, [n_heads, x.size(2) // n_heads]).swapaxes(1, 2).clone()


@right("merge_heads")
def with_movedim(x):
    return x.movedim(1, 2).flatten(start_dim=2)


@right("merge_heads")
def with_hstack(x):
    return torch.stack([torch.hstack(list(sequence)) for sequence in x])


@right("merge_heads")
def with_einops_reduce(x):
    return einops.pack([head for head in x.unbind(1)], "b t *")[0]


@right("merge_heads")
def by_writing(x):
    B, h, T, d = x.shape
    out = x.new_empty((B, T, h * d))
    for i in range(h):
        out[..., i * d : (i + 1) * d].copy_(x[:, i])
    return out


@right("causal_mask")
def with_indices(T):
    mask = torch.zeros((T, T), dtype=torch.bool)
    rows, columns = torch.triu_indices(T, T, offset=1)
    mask[rows, columns] = True
    return mask


@right("causal_mask")
def with_cumsum(T):
    return torch.eye(T).cumsum(0).logical_not()


@right("causal_mask")
def of_the_package(T):
    from mha_lesson import causal_mask

    return causal_mask(T)


@right("causal_mask")
def from_the_transformer(T):
    return nn.Transformer.generate_square_subsequent_mask(T).isinf()


@right("padding_mask")
def with_scatter(lengths, T):
    positions = torch.arange(T, dtype=lengths.dtype, device=lengths.device)
    return einops.rearrange(positions.ge(lengths.unsqueeze(-1)), "b t -> b 1 1 t")


@right("padding_mask")
def from_python(lengths, T):
    rows = [[[[t >= n for t in range(T)]]] for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool, device=lengths.device)


@right("padding_mask")
def with_expand(lengths, T):
    index = torch.ones_like(lengths)[:, None].expand(-1, T).cumsum(1) - 1
    return index.ge(lengths[:, None])[:, None, None]


@right("padding_mask")
def of_the_package_too(lengths, T):
    from mha_lesson import padding_mask

    return padding_mask(lengths, T)


@right("masked_softmax")
def with_where(scores, mask):
    w = torch.where(mask, float("-inf"), scores).softmax(dim=-1)
    return torch.where(mask.all(dim=-1, keepdim=True), 0.0, w).to(scores.dtype)


@right("masked_softmax")
def in_place(scores, mask):
    scores.masked_fill_(mask, float("-inf"))
    return torch.nan_to_num(F.softmax(scores, -1), nan=0.0)


@right("masked_softmax")
def with_a_sentinel(scores, mask):
    # an extra key that everybody may see, so far below that it only matters where it is alone
    low = torch.full_like(scores[..., :1], torch.finfo(scores.dtype).min)
    x = torch.cat([scores.masked_fill(mask, float("-inf")), low], -1)
    return x.softmax(-1)[..., :-1]


@right("masked_softmax")
def in_double(scores, mask):
    x = scores.double().masked_fill(mask, -math.inf)
    x = x - x.amax(-1, keepdim=True).clamp(min=-1e300)
    e = x.exp()
    return (e / e.sum(-1, keepdim=True).clamp(min=1e-300)).to(scores.dtype)


@right("sum_of_head_writes")
def with_tensordot(heads, W_o):
    B, h, T, d = heads.shape
    return torch.tensordot(heads, W_o.view(-1, h, d), dims=([1, 3], [1, 2]))


@right("sum_of_head_writes")
def with_padding_instead_of_slabs(heads, W_o):
    B, h, T, d = heads.shape
    out = None
    for i in range(h):
        wide = F.pad(heads[:, i], (i * d, (h - 1 - i) * d))
        write = F.linear(wide, W_o)
        out = write if out is None else out + write
    return out


@right("MultiHeadAttention")
class OverTorch(nn.Module):
    """PyTorch's own function, with the weights of the four layers."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, D = x.shape
        blocked = None
        if mask is not None:
            full = mask.expand(B, self.h, T, T)
            if full.all(-1).any():
                return self.by_hand(x, full)
            blocked = full.reshape(B * self.h, T, T)
        out, _ = F.multi_head_attention_forward(
            x.transpose(0, 1),
            x.transpose(0, 1),
            x.transpose(0, 1),
            D,
            self.h,
            torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight]),
            torch.cat([self.w_q.bias, self.w_k.bias, self.w_v.bias]),
            None,
            None,
            False,
            0.0,
            self.w_o.weight,
            self.w_o.bias,
            attn_mask=blocked,
        )
        return out.transpose(0, 1)

    def by_hand(self, x, mask):
        outs = []
        for q, k, v, m in zip(
            self.w_q(x).chunk(self.h, -1),
            self.w_k(x).chunk(self.h, -1),
            self.w_v(x).chunk(self.h, -1),
            mask.unbind(1),
            strict=True,
        ):
            s = torch.baddbmm(torch.zeros_like(q[:, :, :1] * k[:, None, :, 0]), q, k.mT)
            w = (s / q.shape[-1] ** 0.5).masked_fill(m, -math.inf).softmax(-1)
            outs.append(w.nan_to_num() @ v)
        return self.w_o(torch.cat(outs, -1))


@right("MultiHeadAttention")
class WithBuffers(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=True)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model)
        self.register_buffer("root", torch.tensor(math.sqrt(d_model // n_heads)))
        nn.init.constant_(self.w_o.bias, 0.5)

    def forward(self, x, mask=None):
        q, k, v = (
            torch.stack(w(x).chunk(self.n_heads, -1), 1) for w in (self.w_q, self.w_k, self.w_v)
        )
        s = torch.einsum("bhid,bhjd->bhij", q, k) / self.root
        if mask is None:
            mask = torch.zeros(1, dtype=torch.bool, device=x.device)
        dead = mask.all(-1, keepdim=True) if mask.ndim > 1 else mask
        w = s.masked_fill(mask, torch.finfo(s.dtype).min).softmax(-1).masked_fill(dead, 0)
        return self.w_o(torch.cat(torch.einsum("bhij,bhjd->bhid", w, v).unbind(1), -1))


@right("next_token_loss")
def with_a_distribution(logits, tokens):
    predicted = torch.distributions.Categorical(logits=logits[:, :-1])
    return -predicted.log_prob(tokens[:, 1:]).mean()


@right("next_token_loss")
def with_ignored_last(logits, tokens):
    targets = tokens.long().roll(-1, dims=1)
    targets[:, -1] = -100
    return F.cross_entropy(logits.permute(0, 2, 1), targets)


@right("next_token_loss")
def with_take_along(logits, tokens):
    logs = logits - logits.logsumexp(-1, keepdim=True)
    hit = torch.take_along_dim(logs[:, :-1], tokens[:, 1:, None].long(), dim=-1)
    return hit.mean().neg()


@right("next_token_loss")
def summed_and_divided(logits, tokens):
    B, T, V = logits.shape
    x, y = logits[:, : T - 1].reshape(-1, V), tokens[:, 1:].reshape(-1).to(torch.long)
    return F.nll_loss(F.log_softmax(x, dim=1), y, reduction="sum") / (B * (T - 1))


@right("previous_token_score")
def with_a_shifted_identity(weights):
    T = weights.shape[-1]
    where = torch.diag_embed(torch.ones(T - 1), offset=-1).to(weights)
    return (weights * where).sum((-2, -1)) / (T - 1)


@right("previous_token_score")
def with_diag_of_each(weights):
    return torch.stack([torch.diag(w, -1).mean() for w in weights])


@right("previous_token_score")
def with_gathering(weights):
    T = weights.size(-1)
    index = torch.arange(T - 1, device=weights.device).view(1, -1, 1).expand(len(weights), -1, 1)
    return weights[:, 1:].gather(-1, index).squeeze(-1).mean(-1)


@right("count_flops")
def with_a_helper(T, d, h):
    projection, score = 2 * T * d * d, 2 * T * T * (d // h)
    return sum([projection] * 4) + sum(score + score for _ in range(h))


# --- wrong ---------------------------------------------------------------------------------------


@wrong("attention", "no scale, V forgotten")
def p1(Q, K, V):
    w = F.softmax(Q @ K.mT, -1)
    return w, w


@wrong("attention", "transposed weights returned, no scale")
def p2(Q, K, V):
    w = F.softmax(Q @ K.mT, -1)
    return w @ V, w.mT


@wrong("attention", "scores are scaled by √d_k twice and softmax over axis 0")
def p3(Q, K, V):
    s = (Q / Q.shape[-1] ** 0.5) @ (K / K.shape[-1] ** 0.5).mT
    w = s.softmax(0)
    return w @ V, w


@wrong("attention", "only the first query attends")
def p4(Q, K, V):
    w = F.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1)
    w = w[..., :1, :].expand_as(w)
    return w @ V, w


@wrong("attention", "weights are detached from a float32 copy")
def p5(Q, K, V):
    w = torch.zeros(*Q.shape[:-1], K.shape[-2])
    w[...] = F.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1)
    return w.to(V.dtype) @ V, w


@wrong("split_heads", "one axis of B·T")
def p6(x, h):
    B, T, D = x.shape
    return x.reshape(B * T, h, D // h).transpose(0, 1)


@wrong("split_heads", "splits and adds a new axis in front of everything")
def p7(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)[None]


@wrong("split_heads", "tokens reversed")
def p8(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2).flip(2)


@wrong("merge_heads", "adds the heads and repeats")
def p9(x):
    return x.sum(1).repeat(1, 1, x.shape[1])


@wrong("merge_heads", "view in the first place")
def p10(x):
    B, h, T, d = x.shape
    return x.contiguous().view(B, T, h * d)


@wrong("causal_mask", "the upper triangle with the diagonal, keeping")
def p11(T):
    return torch.ones(T, T).tril(-1).bool()


@wrong("causal_mask", "numpy")
def p12(T):
    import numpy as np

    return np.triu(np.ones((T, T)), 1).astype(bool)


@wrong("padding_mask", "token 0 is padding")
def p13(lengths, T):
    return (lengths == 0)[:, None, None, None].expand(-1, 1, 1, T)


@wrong("padding_mask", "keeps, integers")
def p14(lengths, T):
    return (torch.arange(T, device=lengths.device) < lengths[:, None])[:, None, None].int()


@wrong("masked_softmax", "True means keep, and what is left NaN")
def p15(scores, mask):
    return F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


@wrong("masked_softmax", "subtracts the mask times a thousand")
def p16(scores, mask):
    return F.softmax(scores - 1000 * mask, -1)


@wrong("masked_softmax", "zero scores, then zero weights")
def p17(scores, mask):
    return F.softmax(scores * (~mask), -1) * (~mask)


@wrong("masked_softmax", "divides by the sum over queries")
def p18(scores, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0)
    return e / e.sum(-2, keepdim=True).clamp(min=1e-12)


@wrong("masked_softmax", "the maximum is taken before masking, so rows die")
def p19(scores, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(mask, 0)
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / total.clamp(min=1e-30), 0.0)


@wrong("masked_softmax", "every row sums to 1 over what is open, blocked rows to 1/T")
def p20(scores, mask):
    x = scores.masked_fill(mask, float("-inf"))
    x = x.masked_fill(mask.all(-1, keepdim=True), 0)
    return x.softmax(-1)


@wrong("sum_of_head_writes", "slabs in reverse")
def p21(heads, W_o):
    slabs = W_o.chunk(heads.shape[1], 1)[::-1]
    return sum(x @ w.T for x, w in zip(heads.unbind(1), slabs, strict=True))


@wrong("sum_of_head_writes", "adds W_o's mean")
def p22(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o.T + W_o.mean()


@wrong("next_token_loss", "mean of sums per sequence")
def p23(logits, tokens):
    x, y = logits[:, :-1].mT, tokens[:, 1:].long()
    return F.cross_entropy(x, y, reduction="none").sum(-1).mean()


@wrong("next_token_loss", "shift by two, sum")
def p24(logits, tokens):
    x, y = logits[:, :-2].mT, tokens[:, 2:].long()
    return F.cross_entropy(x, y, reduction="sum")


@wrong("next_token_loss", "softmax over time")
def p25(logits, tokens):
    logs = logits[:, :-1].log_softmax(1)
    return -logs.gather(-1, tokens[:, 1:, None].long()).mean()


@wrong("next_token_loss", "binary cross-entropy")
def p26(logits, tokens):
    y = F.one_hot(tokens[:, 1:].long(), logits.shape[-1]).to(logits)
    return F.binary_cross_entropy_with_logits(logits[:, :-1], y)


@wrong("next_token_loss", "argmax of the logits against the tokens")
def p27(logits, tokens):
    guess = logits[:, :-1].argmax(-1)
    return (guess - tokens[:, 1:]).to(logits.dtype).pow(2).mean()


@wrong("previous_token_score", "first row counted as zero")
def p28(weights):
    return F.pad(weights.diagonal(-1, 1, 2), (1, 0)).mean(-1)


@wrong("previous_token_score", "transposed and summed")
def p29(weights):
    return weights.mT.diagonal(-1, 1, 2).sum(-1)


@wrong("previous_token_score", "two before")
def p30(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 2] for t in range(2, T)]).mean(0)


@wrong("count_flops", "backward as well")
def p31(T, d, h):
    return 3 * (8 * T * d**2 + 4 * T**2 * d)


@wrong("count_flops", "projections only for q, k, v; attention once; multiply-add as 1")
def p32(T, d, h):
    return 3 * T * d * d + T * T * d


@wrong("count_parameters", "W_o per head, biases")
def p33(d, h, k):
    return 3 * h * (d * k + k) + k * d + d


@right("MultiHeadAttention")
class KeepsItsWeights(nn.Module):
    """Stores the last attention weights, as one does to plot them."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.attention_weights = None

    def forward(self, x, mask=None):
        q, k, v = (
            einops.rearrange(layer(x), "b t (h d) -> b h t d", h=self.n_heads)
            for layer in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        self.attention_weights = scores.softmax(-1).nan_to_num(0.0)
        return self.w_o(einops.rearrange(self.attention_weights @ v, "b h t d -> b t (h d)"))


@wrong("split_heads", "moves to a GPU", slips=("fixed_device",))
def p34(x, h):
    return x.cuda().unflatten(-1, (h, -1)).transpose(1, 2)
