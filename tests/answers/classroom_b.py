"""More answers of a first class: the whole module, the loss, the scorer and the counts."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from answers import right, wrong


class Base(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.h, self.d_k).transpose(1, 2)

    def merge(self, x):
        B, _, T, _ = x.shape
        return x.transpose(1, 2).reshape(B, T, self.h * self.d_k)

    def weights(self, scores, mask):
        if mask is not None:
            dead = mask.all(-1, keepdim=True)
            scores = scores.masked_fill(mask & ~dead, float("-inf"))
            return scores.softmax(-1).masked_fill(dead, 0.0)
        return scores.softmax(-1)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        w = self.weights(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), mask)
        return self.w_o(self.merge(w @ v))


# ---------------------------------------------------------------- 11 MultiHeadAttention


@right("MultiHeadAttention")
class Explicit(Base):
    pass


@right("MultiHeadAttention")
class WithSdpa(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        keep = None if mask is None else ~mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        if mask is not None:
            out = out.masked_fill(mask.all(-1, keepdim=True), 0.0)
        return self.w_o(self.merge(out))


@right("MultiHeadAttention")
class NoBias(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=False))

    def forward(self, x, mask=None):
        from einops import rearrange

        q, k, v = (
            rearrange(f(x), "b t (h d) -> b h t d", h=self.n_heads)
            for f in (self.w_q, self.w_k, self.w_v)
        )
        s = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(mask, torch.finfo(s.dtype).min)
        w = s.softmax(-1)
        if mask is not None:
            w = w.masked_fill(mask, 0.0)
        return self.w_o(rearrange(w @ v, "b h t d -> b t (h d)"))


@right("MultiHeadAttention")
class LoopOverHeads(Base):
    def forward(self, x, mask=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        outs = []
        for i in range(self.h):
            cut = slice(i * self.d_k, (i + 1) * self.d_k)
            s = q[..., cut] @ k[..., cut].mT / math.sqrt(self.d_k)
            m = None
            if mask is not None:
                full = mask.expand(x.shape[0], self.h, x.shape[1], x.shape[1])
                m = full[:, i]
            outs.append(self.weights(s, m) @ v[..., cut])
        return self.w_o(torch.cat(outs, -1))


@wrong("MultiHeadAttention", "forgets w_o")
class NoOutput(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        return self.merge(self.weights(q @ k.mT / math.sqrt(self.d_k), mask) @ v)


@wrong("MultiHeadAttention", "no scale")
class NoScale(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        return self.w_o(self.merge(self.weights(q @ k.mT, mask) @ v))


@wrong("MultiHeadAttention", "scales by the root of d_model")
class RootOfModel(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        return self.w_o(self.merge(self.weights(q @ k.mT / math.sqrt(x.shape[-1]), mask) @ v))


@wrong("MultiHeadAttention", "ignores the mask")
class Maskless(Base):
    def forward(self, x, mask=None):
        return super().forward(x, None)


@wrong("MultiHeadAttention", "reads True as keep")
class Keeps(Base):
    def forward(self, x, mask=None):
        return super().forward(x, None if mask is None else ~mask)


@wrong("MultiHeadAttention", "views straight into heads")
class DirectView(Base):
    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, self.h, T, self.d_k)


@wrong("MultiHeadAttention", "merges without permuting back")
class NoPermuteBack(Base):
    def merge(self, x):
        B, _, T, _ = x.shape
        return x.reshape(B, T, self.h * self.d_k)


@wrong("MultiHeadAttention", "NaN for a query whose keys are all blocked")
class NanRows(Base):
    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "a blocked query takes a uniform mean")
class Uniform(Base):
    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


@wrong("MultiHeadAttention", "softmax over queries")
class OverQueries(Base):
    def weights(self, scores, mask):
        if mask is not None:
            dead = mask.all(-1, keepdim=True)
            scores = scores.masked_fill(mask & ~dead, float("-inf"))
            return scores.softmax(-2).masked_fill(dead, 0.0)
        return scores.softmax(-2)


@wrong("MultiHeadAttention", "no split: one head of full width")
class OneHead(Base):
    def forward(self, x, mask=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            full = mask.expand(x.shape[0], self.h, x.shape[1], x.shape[1])
            return self.w_o(self.weights(s, full[:, 0]) @ v)
        return self.w_o(self.weights(s, None) @ v)


@wrong("MultiHeadAttention", "shares w_q for keys")
class SharedQK(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_q(x)), self.split(self.w_v(x))
        return self.w_o(self.merge(self.weights(q @ k.mT / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "dropout is active in training mode")
class Dropped(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        w = F.dropout(self.weights(q @ k.mT / math.sqrt(self.d_k), mask), 0.1, self.training)
        return self.w_o(self.merge(w @ v))


@wrong("MultiHeadAttention", "returns the weights as well")
class ReturnsTwo(Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        w = self.weights(q @ k.mT / math.sqrt(self.d_k), mask)
        return self.w_o(self.merge(w @ v)), w


@wrong("MultiHeadAttention", "adds the input (a residual nobody asked for)")
class Residual(Base):
    def forward(self, x, mask=None):
        return x + super().forward(x, mask)


@wrong("MultiHeadAttention", "forgets super().__init__()")
class NoSuper(nn.Module):
    def __init__(self, d_model, n_heads):
        self.w_q = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        return x


@wrong("MultiHeadAttention", "the names are W_q instead of w_q")
class CapitalNames(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        return self.W_o(self.W_v(x))


@wrong("MultiHeadAttention", "values are not projected")
class NoValueProjection(Base):
    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(x)
        return self.w_o(self.merge(self.weights(q @ k.mT / math.sqrt(self.d_k), mask) @ v))


@wrong("MultiHeadAttention", "zeroes the output row of a blocked query, bias included")
class ZeroRow(Base):
    def forward(self, x, mask=None):
        out = super().forward(x, mask)
        if mask is None:
            return out
        dead = mask.expand(x.shape[0], self.h, x.shape[1], x.shape[1]).all(-1).all(1)
        return out.masked_fill(dead[..., None], 0.0)


# ---------------------------------------------------------------- 12 next_token_loss


@right("next_token_loss")
def flat_cross_entropy(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1).long())


@right("next_token_loss")
def channels_second(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].long())


@right("next_token_loss")
def gathered(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    return -logp.gather(-1, tokens[:, 1:, None].long()).mean()


@wrong("next_token_loss", "no shift")
def no_shift(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long())


@wrong("next_token_loss", "shifts the wrong way")
def wrong_way(logits, tokens):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten().long())


@wrong("next_token_loss", "sums")
def summed_loss(logits, tokens):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), reduction="sum"
    )


@wrong("next_token_loss", "ignores token 0 as padding")
def ignore_zero(logits, tokens):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), ignore_index=0
    )


@wrong("next_token_loss", "softmax twice")
def softmax_twice(logits, tokens):
    p = logits[:, :-1].softmax(-1)
    return F.cross_entropy(p.flatten(0, 1), tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "nll_loss on raw logits")
def nll_on_logits(logits, tokens):
    return F.nll_loss(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long())


@wrong("next_token_loss", "unreduced")
def unreduced(logits, tokens):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), reduction="none"
    )


@wrong("next_token_loss", "rolls, so the last position predicts the first token")
def rolled(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, dims=1).flatten().long())


@wrong("next_token_loss", "reshape to (B, V, T) mixes the logits")
def reshape_bvt(logits, tokens):
    B, T, V = logits.shape
    return F.cross_entropy(logits[:, :-1].reshape(B, V, T - 1), tokens[:, 1:].long())


@wrong("next_token_loss", "only the last position")
def last_only(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1].long())


@wrong("next_token_loss", "shifted by two")
def by_two(logits, tokens):
    return F.cross_entropy(logits[:, :-2].flatten(0, 1), tokens[:, 2:].flatten().long())


@wrong("next_token_loss", "a Python float without a gradient")
def item(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long()).item()


@wrong("next_token_loss", "the sign is missing")
def no_sign(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    return logp.gather(-1, tokens[:, 1:, None].long()).mean()


@wrong("next_token_loss", "divides by T instead of T - 1")
def by_t(logits, tokens):
    B, T, V = logits.shape
    total = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), reduction="sum"
    )
    return total / (B * T)


@wrong("next_token_loss", "softmax over positions")
def over_positions(logits, tokens):
    logp = logits[:, :-1].log_softmax(1)
    return -logp.gather(-1, tokens[:, 1:, None].long()).mean()


@wrong("next_token_loss", "shifts along the batch")
def along_batch(logits, tokens):
    return F.cross_entropy(logits[:-1].flatten(0, 1), tokens[1:].flatten().long())


@wrong("next_token_loss", "label smoothing")
def smoothed(logits, tokens):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), label_smoothing=0.1
    )


@wrong("next_token_loss", "in base 2")
def bits(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long())
    return loss / math.log(2)


# ---------------------------------------------------------------- 13 previous_token_score


@right("previous_token_score")
def offset_diagonal(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


@right("previous_token_score")
def indexed(weights):
    i = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, i, i - 1].mean(dim=1)


@right("previous_token_score")
def looped(weights):
    h, T, _ = weights.shape
    return torch.stack([sum(weights[k, t, t - 1] for t in range(1, T)) / (T - 1) for k in range(h)])


@wrong("previous_token_score", "the next token")
def next_token(weights):
    return weights.diagonal(offset=1, dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "the token itself")
def itself(weights):
    return weights.diagonal(dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "divides by T")
def over_t(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).sum(-1) / weights.shape[-1]


@wrong("previous_token_score", "sum instead of mean")
def total(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).sum(-1)


@wrong("previous_token_score", "one number for all heads")
def all_heads(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean()


@wrong("previous_token_score", "diagonal over the wrong axes")
def wrong_diagonal(weights):
    return weights.diagonal(offset=-1).mean(-1)


@wrong("previous_token_score", "the largest instead of the mean")
def largest(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).amax(-1)


@wrong("previous_token_score", "two tokens back")
def two_back(weights):
    return weights.diagonal(offset=-2, dim1=-2, dim2=-1).mean(-1)


@wrong("previous_token_score", "query 0 wraps around to the last token")
def wraps(weights):
    T = weights.shape[-1]
    i = torch.arange(T, device=weights.device)
    return weights[:, i, i - 1].mean(-1)


@wrong("previous_token_score", "share of rows whose largest weight is the previous token")
def counts(weights):
    T = weights.shape[-1]
    best = weights[:, 1:].argmax(-1)
    return (best == torch.arange(T - 1, device=weights.device)).to(weights.dtype).mean(-1)


@wrong("previous_token_score", "per position, not per head")
def per_position(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(0)


# ---------------------------------------------------------------- 14 count_flops


@right("count_flops")
def by_formula(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model


@right("count_flops")
def step_by_step(T, d_model, n_heads):
    d_k = d_model // n_heads
    proj = 4 * (2 * T * d_model * d_model)
    scores = n_heads * (2 * T * d_k * T)
    mix = n_heads * (2 * T * T * d_k)
    return proj + scores + mix


@wrong("count_flops", "a multiply-add as one")
def macs(T, d_model, n_heads):
    return 4 * T * d_model**2 + 2 * T**2 * d_model


@wrong("count_flops", "forgets the output projection")
def three_projections(T, d_model, n_heads):
    return 6 * T * d_model**2 + 4 * T**2 * d_model


@wrong("count_flops", "only one of the two products")
def one_product(T, d_model, n_heads):
    return 8 * T * d_model**2 + 2 * T**2 * d_model


@wrong("count_flops", "multiplies by the heads though d_model has them already")
def heads_twice(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * n_heads * T**2 * d_model


@wrong("count_flops", "gives a float")
def float_dk(T, d_model, n_heads):
    d_k = d_model / n_heads
    return 8 * T * d_model**2 + 4 * n_heads * T**2 * d_k


@wrong("count_flops", "only attention, no projections")
def no_projections(T, d_model, n_heads):
    return 4 * T**2 * d_model


@wrong("count_flops", "only projections")
def no_attention(T, d_model, n_heads):
    return 8 * T * d_model**2


@wrong("count_flops", "one head's products only")
def one_head(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * (d_model // n_heads)


@wrong("count_flops", "T squared in the projections")
def t_squared(T, d_model, n_heads):
    return 8 * T**2 * d_model + 4 * T**2 * d_model


@wrong("count_flops", "counts the softmax as well")
def with_softmax(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 3 * n_heads * T**2


@wrong("count_flops", "products with d_model squared")
def d_squared(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T * d_model**2


@wrong("count_flops", "exact additions: 2m - 1 per sum")
def exact_additions(T, d_model, n_heads):
    d_k = d_model // n_heads
    return (
        4 * T * d_model * (2 * d_model - 1)
        + n_heads * T * T * (2 * d_k - 1)
        + n_heads * T * d_k * (2 * T - 1)
    )
