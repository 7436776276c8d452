"""MultiHeadAttention (11): right in many styles, and wrong."""

import math

import einops
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from answers import slips

EXERCISE = "MultiHeadAttention"


class _Base(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def heads(self, x):
        return [self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v)]

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.n_heads, self.d_k).transpose(1, 2)

    def merge(self, x):
        B, _, T, _ = x.shape
        return x.transpose(1, 2).reshape(B, T, self.n_heads * self.d_k)

    def scale(self, scores):
        return scores / math.sqrt(self.d_k)

    def weights(self, scores, mask):
        if mask is not None:
            dead = mask.all(-1, keepdim=True)
            scores = scores.masked_fill(mask & ~dead, float("-inf"))
            return scores.softmax(-1).masked_fill(dead, 0.0)
        return scores.softmax(-1)

    def forward(self, x, mask=None):
        q, k, v = self.heads(x)
        w = self.weights(self.scale(q @ k.transpose(-2, -1)), mask)
        return self.w_o(self.merge(w @ v))


class Explicit(_Base):
    pass


class WithSdpa(_Base):
    def forward(self, x, mask=None):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        keep = None if mask is None else ~mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        if mask is not None:
            out = out.masked_fill(mask.all(-1, keepdim=True), 0.0)
        return self.w_o(self.merge(out))


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


class Fused(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = False):
        super().__init__()
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))
            nn.init.xavier_uniform_(getattr(self, name).weight)
        self.h = n_heads

    def forward(self, x, mask=None):
        q, k, v = (
            einops.rearrange(w(x), "b t (h d) -> b h t d", h=self.h)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        keep = None if mask is None else ~mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.w_o(einops.rearrange(out, "b h t d -> b t (h d)"))


class OverTorch(_Base):
    """PyTorch's own function, with the weights of the four layers."""

    def forward(self, x, mask=None):
        B, T, D = x.shape
        blocked = None
        if mask is not None:
            full = mask.expand(B, self.n_heads, T, T)
            if full.all(-1).any():
                return self.by_hand(x, full)
            blocked = full.reshape(B * self.n_heads, T, T)
        out, _ = F.multi_head_attention_forward(
            x.transpose(0, 1),
            x.transpose(0, 1),
            x.transpose(0, 1),
            D,
            self.n_heads,
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
            self.w_q(x).chunk(self.n_heads, -1),
            self.w_k(x).chunk(self.n_heads, -1),
            self.w_v(x).chunk(self.n_heads, -1),
            mask.unbind(1),
            strict=True,
        ):
            s = torch.baddbmm(torch.zeros_like(q[:, :, :1] * k[:, None, :, 0]), q, k.mT)
            w = (s / q.shape[-1] ** 0.5).masked_fill(m, -math.inf).softmax(-1)
            outs.append(w.nan_to_num() @ v)
        return self.w_o(torch.cat(outs, -1))


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


class MHAHeadByHead(_Base):
    def forward(self, x, mask=None):
        B, T, _ = x.shape
        if mask is None:
            mask = torch.zeros((), dtype=torch.bool, device=x.device)
        mask = mask.broadcast_to(B, self.n_heads, T, T)
        out = []
        for i in range(self.n_heads):
            part = slice(i * self.d_k, (i + 1) * self.d_k)
            q, k, v = self.w_q(x)[..., part], self.w_k(x)[..., part], self.w_v(x)[..., part]
            s = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.d_k)
            s = torch.where(mask[:, i], torch.full_like(s, -torch.inf), s)
            out.append(torch.bmm(s.softmax(-1).nan_to_num(0.0), v))
        return self.w_o(torch.cat(out, dim=2))


def _softmax_by_exp(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    top = scores.masked_fill(mask, lowest).amax(dim=-1, keepdim=True).detach()
    e = (scores - top).masked_fill(mask, -math.inf).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


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
        weights = scores.softmax(dim=-1) if mask is None else _softmax_by_exp(scores, mask)
        writes = (weights @ v).unbind(dim=1)
        return sum(
            F.linear(a, s)
            for a, s in zip(writes, self.w_o.weight.chunk(self.count, 1), strict=True)
        )


class _OwnLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(width, width)),
            nn.Parameter(torch.randn(width)),
        )

    def forward(self, x):
        return x @ self.weight + self.bias


class _Adapted(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)
        self.down, self.up = (nn.Parameter(torch.randn(*s)) for s in ((width, 2), (2, width)))

    def forward(self, x):
        return super().forward(x) + x @ self.down @ self.up


class OfOwnLayers(_Base):
    layer = _OwnLayer

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.w_q, self.w_k, self.w_v, self.w_o = (self.layer(d_model) for _ in range(4))


class OfAdaptedLayers(OfOwnLayers):
    layer = _Adapted


@slips("by_root_d_model")
class OfOwnLayersByRootDModel(OfOwnLayers):
    def scale(self, scores):
        return scores / math.sqrt(len(self.w_q.weight))


@slips("own_layer")
class OfLayersWithATanh(OfOwnLayers):
    class layer(_OwnLayer):
        def forward(self, x):
            return super().forward(x).tanh()


@slips("shape")
class LoopMaskAxes(_Base):
    def forward(self, x, mask=None):
        Q, K, V = self.w_q(x), self.w_k(x), self.w_v(x)
        outs = []
        for i in range(self.n_heads):
            cols = slice(i * self.d_k, (i + 1) * self.d_k)
            s = Q[..., cols] @ K[..., cols].transpose(1, 2) / math.sqrt(self.d_k)
            if mask is not None:
                empty = mask.all(axis=-1, keepdims=True)
                w = s.masked_fill(mask & ~empty, -np.inf).softmax(-1).masked_fill(empty, 0.0)
            else:
                w = s.softmax(-1)
            outs.append(w @ V[..., cols])
        return self.w_o(torch.cat(outs, dim=-1))


@slips("by_numpy", "one_place")
class NumpyHeads(_Base):
    def forward(self, x, mask=None):
        B, T, d = x.shape
        h = self.n_heads
        split = [
            w(x).detach().numpy().reshape(B, T, h, d // h).transpose(0, 2, 1, 3)
            for w in (self.w_q, self.w_k, self.w_v)
        ]
        q, k, v = split
        s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.array(d // h, dtype=q.dtype))
        m = np.zeros_like(s, dtype=bool)
        if mask is not None:
            m = np.broadcast_to(mask.numpy(), s.shape)
        top = np.where(m, -1e30, s).max(axis=-1, keepdims=True).astype(s.dtype)
        e = np.where(m, 0, np.exp(np.minimum(s - top, 0)))
        w = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-30)
        out = (w @ v).transpose(0, 2, 1, 3).reshape(B, T, d).astype(s.dtype)
        return self.w_o(torch.from_numpy(out))
