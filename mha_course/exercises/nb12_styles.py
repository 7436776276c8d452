"""Right classes in many styles, which tests for exercise 20 must let through."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layers(nn.Module):
    """The four layers; `forward` is a matter of style."""

    bias = True

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=self.bias)
        self.w_k = nn.Linear(d_model, d_model, bias=self.bias)
        self.w_v = nn.Linear(d_model, d_model, bias=self.bias)
        self.w_o = nn.Linear(d_model, d_model, bias=self.bias)

    def heads(self, x: Tensor) -> list[Tensor]:
        """q, k and v, each (B, h, T, d_k)."""
        layers = self.w_q, self.w_k, self.w_v
        return [layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for layer in layers]

    def merged(self, context: Tensor) -> Tensor:
        return self.w_o(context.transpose(1, 2).flatten(2))


class WithoutBiases(Layers):
    """without biases, the queries scaled instead of the scores"""

    bias = False

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        return self.merged(shares(scores, mask) @ v)


class HeadByHead(Layers):
    """as a loop over heads, whose writes are added up"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        (B, T, d_model), h = x.shape, self.n_heads
        d_k, bias = d_model // h, self.w_o(torch.zeros_like(x))
        out = bias
        for i in range(h):
            own = slice(i * d_k, (i + 1) * d_k)
            q, k, v = (layer(x)[..., own] for layer in (self.w_q, self.w_k, self.w_v))
            blocked = None if mask is None else mask.expand(B, h, T, T)[:, i]
            context = torch.zeros_like(x)
            context[..., own] = shares(q @ k.mT / d_k**0.5, blocked) @ v
            out = out + self.w_o(context) - bias
        return out


class Einsum(Layers):
    """with einsum, and no axis moved"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        layers = self.w_q, self.w_k, self.w_v
        q, k, v = (layer(x).unflatten(-1, (self.n_heads, -1)) for layer in layers)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        return self.w_o(torch.einsum("bhqk,bkhd->bqhd", shares(scores, mask), v).flatten(2))


class Fused(Layers):
    """with `F.scaled_dot_product_attention`"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        if mask is None:
            return self.merged(F.scaled_dot_product_attention(q, k, v))
        none_open = mask.all(-1, keepdim=True)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask | none_open)
        return self.merged(context.masked_fill(none_open, 0.0))


class Additive(Layers):
    """with a mask that is added, and fourth roots on queries and keys"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        root = q.shape[-1] ** 0.25
        scores = (q / root) @ (k / root).mT
        if mask is None:
            return self.merged(scores.softmax(-1) @ v)
        added = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask, torch.finfo(x.dtype).min)
        weights = (scores + added).softmax(-1) * ~mask.all(-1, keepdim=True)
        return self.merged(weights @ v)


class Stacked(Layers):
    """with the three projections in one tensor"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        all_three = torch.cat([layer(x) for layer in (self.w_q, self.w_k, self.w_v)], dim=-1)
        q, k, v = all_three.unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.merged(shares(q @ k.mT / q.shape[-1] ** 0.5, mask) @ v)


class KeysByQueries(Layers):
    """with scores of keys by queries, and a softmax along the first of the two"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = k @ q.mT / q.shape[-1] ** 0.5
        if mask is None:
            return self.merged(scores.softmax(-2).mT @ v)
        mask = mask.expand(len(x), self.n_heads, *scores.shape[2:]).mT
        weights = scores.masked_fill(mask, torch.finfo(x.dtype).min).softmax(-2)
        return self.merged(weights.masked_fill(mask, 0.0).mT @ v)


class ByHand(Layers):
    """with exponentials that are masked and then divided by their sum"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        seen = torch.ones_like(scores) if mask is None else (~mask).expand_as(scores).to(x)
        largest = scores.masked_fill(seen == 0, torch.finfo(x.dtype).min).amax(-1, keepdim=True)
        parts = (scores - largest).clamp(max=0.0).exp() * seen
        return self.merged(parts / parts.sum(-1, keepdim=True).clamp(min=1e-30) @ v)


class OpenKeysOnly(Layers):
    """query by query, from the keys alone that are open to it"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        B, h, T, d_k = q.shape
        if mask is None:  # all are open
            return self.merged((q @ k.mT / d_k**0.5).softmax(-1) @ v)
        seen = (~mask).expand(B, h, T, T)
        rows = []
        for b, i, t in torch.cartesian_prod(*map(torch.arange, (B, h, T))).tolist():
            keys, values = k[b, i, seen[b, i, t]], v[b, i, seen[b, i, t]]
            rows.append((keys @ q[b, i, t] / d_k**0.5).softmax(0) @ values)
        return self.merged(torch.stack(rows).view(B, h, T, d_k))


def shares(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(mask, 0.0)


STYLES: tuple[type[nn.Module], ...] = (
    WithoutBiases,
    HeadByHead,
    Einsum,
    Fused,
    Additive,
    Stacked,
    KeysByQueries,
    ByHand,
    OpenKeysOnly,
)
