"""WritingAttention (23): right in many styles, and wrong; more stand in `variations.toml`."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from answers import slips
from mha_lesson import KVCache

EXERCISE = "WritingAttention"


def _turned(x, at, base):
    half = x.shape[-1] // 2
    angle = at[:, None] * base ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class _Base(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.base = n_heads, n_kv_heads, base
        self.d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, n_kv_heads * self.d_k, bias=False)
        self.w_v = nn.Linear(d_model, n_kv_heads * self.d_k, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def heads(self, x):
        parts = (self.w_q(x), self.w_k(x), self.w_v(x))
        return [p.view(*x.shape[:2], -1, self.d_k).transpose(1, 2) for p in parts]

    def shared(self, *some):
        return [x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for x in some]

    def blocked(self, x, n_old):
        n = x.shape[1]
        return torch.ones(n, n_old + n, dtype=torch.bool, device=x.device).triu(n_old + 1)

    def attend(self, x, q, k, v):
        k, v = self.shared(k, v)
        scores = q @ k.mT / math.sqrt(self.d_k)
        scores = scores.masked_fill(self.blocked(x, k.shape[2] - x.shape[1]), -math.inf)
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def places(self, x, n_old):
        return torch.arange(n_old, n_old + x.shape[1], device=x.device)

    def turn(self, x, at):
        return _turned(x, at, self.base)

    def length(self, cache):
        return cache[0].shape[2] if cache else 0

    def joined(self, cache, k, v):
        """All keys and values, and what is kept."""
        if cache:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        return k, v, (k, v)

    def forward(self, x, cache=None):
        q, k, v = self.heads(x)
        at = self.places(x, self.length(cache))
        k, v, cache = self.joined(cache, self.turn(k, at), v)
        return self.attend(x, self.turn(q, at), k, v), cache


class AsTaught(_Base):
    pass


class WithADict(_Base):
    def length(self, cache):
        return cache["length"] if cache else 0

    def joined(self, cache, k, v):
        if cache:
            k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
        return k, v, {"k": k, "v": v, "length": k.shape[2]}


@dataclass(frozen=True)
class _Kept:
    keys: torch.Tensor
    values: torch.Tensor


class WithAnObject(_Base):
    def length(self, cache):
        return cache.keys.size(2) if cache else 0

    def joined(self, cache, k, v):
        if cache:
            k, v = torch.cat([cache.keys, k], -2), torch.cat([cache.values, v], -2)
        return k, v, _Kept(k, v)


class PackagesCacheCopied(_Base):
    def length(self, cache):
        return cache.length

    def joined(self, cache, k, v):
        n = k.shape[2]
        k, v = cache.joined(self, k, v, None)
        cache.hold(self, k, v, n, None)
        return k, v, cache

    def forward(self, x, cache=None):
        return super().forward(x, copy.deepcopy(cache) if cache else KVCache())


class PiecesInAList(_Base):
    """Every call's keys and values, one behind the other."""

    def length(self, cache):
        return sum(k.shape[2] for k, _ in cache or ())

    def joined(self, cache, k, v):
        cache = [*(cache or ()), (k, v)]
        k, v = (torch.cat([pair[i] for pair in cache], 2) for i in (0, 1))
        return k, v, cache


class RepeatedInTheCache(_Base):
    def forward(self, x, cache=None):
        q, k, v = self.heads(x)
        at = self.places(x, 0 if cache is None else cache[0].shape[2])
        q, k = _turned(q, at, self.base), _turned(k, at, self.base)
        k, v = self.shared(k, v)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        scores = (q @ k.mT / self.d_k**0.5).masked_fill(
            self.blocked(x, k.shape[2] - x.shape[1]), float("-inf")
        )
        return self.w_o(rearrange(scores.softmax(-1) @ v, "b h t d -> b t (h d)")), (k, v)


class ByTorch(_Base):
    def forward(self, x, cache=None):
        q, k, v = self.heads(x)
        at = self.places(x, 0 if cache is None else cache[0].shape[2])
        q, k = _turned(q, at, self.base), _turned(k, at, self.base)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        keep = ~self.blocked(x, k.shape[2] - x.shape[1])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)
        return self.w_o(out.transpose(1, 2).flatten(2)), (k, v)


class ByTorchWithIsCausal(_Base):
    """`is_causal` where it fits: without a cache, or for one token alone."""

    def forward(self, x, cache=None):
        q, k, v = self.heads(x)
        at = self.places(x, 0 if cache is None else cache[0].shape[2])
        q, k = _turned(q, at, self.base), _turned(k, at, self.base)
        if cache is None:
            out = F.scaled_dot_product_attention(q, *self.shared(k, v), is_causal=True)
        else:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
            keep = ~self.blocked(x, cache[0].shape[2])
            out = F.scaled_dot_product_attention(q, *self.shared(k, v), attn_mask=keep)
        return self.w_o(out.transpose(1, 2).reshape(x.shape)), (k, v)


class InGroups(_Base):
    def attend(self, x, q, k, v):
        groups = q.unflatten(1, (self.n_kv_heads, -1)) * self.d_k**-0.5
        scores = torch.einsum("bgrqd,bgkd->bgrqk", groups, k)
        scores = scores.masked_fill(self.blocked(x, k.shape[2] - x.shape[1]), -torch.inf)
        out = torch.einsum("bgrqk,bgkd->bqgrd", scores.softmax(-1), v)
        return self.w_o(out.flatten(2))


class HeadByHead(_Base):
    def attend(self, x, q, k, v):
        out, g = [], self.n_heads // self.n_kv_heads
        for i in range(self.n_heads):
            scores = q[:, i] @ k[:, i // g].transpose(1, 2) / math.sqrt(self.d_k)
            scores = scores + self.blocked(x, k.shape[2] - x.shape[1]).to(x.dtype) * -60_000
            out.append(scores.softmax(dim=-1) @ v[:, i // g])
        return self.w_o(torch.cat(out, dim=-1))


class TokenByToken(_Base):
    def forward(self, x, cache=None):
        outputs = []
        for new in x.split(1, dim=1):
            output, cache = super().forward(new, cache)
            outputs.append(output)
        return torch.cat(outputs, dim=1), cache


class Complex(_Base):
    def turn(self, x, at):
        half = self.d_k // 2
        speed = self.base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
        z = torch.complex(*x.double().chunk(2, -1)) * torch.polar(
            torch.ones(len(at), half, dtype=torch.float64, device=x.device), at[:, None] * speed
        )
        return torch.cat((z.real, z.imag), -1).to(x.dtype)


class WithATable(_Base):
    """Sines and cosines of 8,192 positions, as a buffer."""

    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__(d_model, n_heads, n_kv_heads, base)
        speed = 1.0 / base ** (torch.arange(0, self.d_k, 2).float() / self.d_k)
        angle = torch.outer(torch.arange(8192).float(), speed).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def turn(self, x, at):
        a, b = x.chunk(2, dim=-1)
        return x * self.cos[at] + torch.cat((-b, a), dim=-1) * self.sin[at]


class WithATableOfTurns(_Base):
    """Complex numbers in a buffer."""

    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__(d_model, n_heads, n_kv_heads, base)
        speed = base ** (-torch.arange(0, self.d_k, 2, dtype=torch.float64) / self.d_k)
        angle = torch.arange(2048)[:, None] * speed
        turns = torch.polar(torch.ones_like(angle), angle)
        self.register_buffer("turns", turns, persistent=False)

    def turn(self, x, at):
        z = torch.complex(*x.double().chunk(2, dim=-1)) * self.turns[at]
        return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


class BothInterleavedAfterwards(_Base):
    """Queries and keys in another order of dimensions, both alike: the products stay."""

    def turn(self, x, at):
        return rearrange(super().turn(x, at), "b h t (two d) -> b h t (d two)", two=2)


# ---------------------------------------------------------------- wrong


@slips("old_cache_changed")
class OneListForAll(PiecesInAList):
    def joined(self, cache, k, v):
        cache.append((k, v))
        k, v = (torch.cat([pair[i] for pair in cache], 2) for i in (0, 1))
        return k, v, cache

    def forward(self, x, cache=None):
        return super().forward(x, [] if cache is None else cache)


@slips("old_cache_changed")
class DictWrittenInto(WithADict):
    def joined(self, cache, k, v):
        k, v, new = super().joined(cache, k, v)
        cache.update(new)
        return k, v, cache

    def forward(self, x, cache=None):
        return super().forward(x, {} if cache is None else cache)


@slips("old_cache_changed")
class PackagesCache(PackagesCacheCopied):
    def forward(self, x, cache=None):
        return _Base.forward(self, x, KVCache() if cache is None else cache)


@slips("old_cache_changed")
class OneTableForAllTexts(_Base):
    """The cache is a length, and keys and values lie in the module."""

    def forward(self, x, cache=None):
        n_old, (q, k, v) = cache or 0, self.heads(x)
        at = self.places(x, n_old)
        q, k = _turned(q, at, self.base), _turned(k, at, self.base)
        if n_old == 0:
            self.k, self.v = (y.new_empty(*y.shape[:2], 2048, self.d_k) for y in (k, v))
        n = n_old + x.shape[1]
        self.k, self.v = self.k.clone(), self.v.clone()
        self.k[:, :, n_old:n], self.v[:, :, n_old:n] = k, v
        return self.attend(x, q, self.k[:, :, :n], self.v[:, :, :n]), n


@slips("remembers")
class KeptInTheModule(_Base):
    kept = None

    def forward(self, x, cache=None):
        output, self.kept = super().forward(x, self.kept)
        return output, self.kept


@slips("not_offset")
class CausalByTorch(_Base):
    def attend(self, x, q, k, v):
        out = F.scaled_dot_product_attention(q, *self.shared(k, v), is_causal=True)
        return self.w_o(out.transpose(1, 2).flatten(2))


@slips("mask_without_cache_only")
class CausalWithoutCacheOnly(_Base):
    def attend(self, x, q, k, v):
        first = q.shape[2] == k.shape[2]
        out = F.scaled_dot_product_attention(q, *self.shared(k, v), is_causal=first)
        return self.w_o(out.transpose(1, 2).flatten(2))


@slips("neighbours")
class Neighbours(_Base):
    def turn(self, x, at):
        speed = self.base ** (-torch.arange(0, self.d_k, 2, device=x.device) / self.d_k)
        turns = torch.exp(1j * at[:, None] * speed)
        z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) * turns
        return torch.view_as_real(z).flatten(-2).to(x.dtype)


@slips("turned_before_cut")
class TurnedBeforeCut(_Base):
    def heads(self, x):
        at = torch.arange(x.shape[1], device=x.device)
        parts = (
            _turned(self.w_q(x), at, self.base),
            _turned(self.w_k(x), at, self.base),
            self.w_v(x),
        )
        return [p.view(*x.shape[:2], -1, self.d_k).transpose(1, 2) for p in parts]

    def forward(self, x, cache=None):
        before = cache[2] if cache else x[:, :0]
        whole = torch.cat((before, x), 1)
        q, k, v = self.heads(whole)
        return self.attend(x, q[:, :, before.shape[1] :], k, v), (k, v, whole)


@slips("ends_there")
class ShortTable(WithATable):
    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__(d_model, n_heads, n_kv_heads, base)
        self.cos, self.sin = self.cos[:1024], self.sin[:1024]


@slips("ends_there")
class SmallNumber(HeadByHead):
    def attend(self, x, q, k, v):
        k, v = self.shared(k, v)
        scores = q @ k.mT / math.sqrt(self.d_k)
        scores = scores.masked_fill(self.blocked(x, k.shape[2] - x.shape[1]), -10_000)
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
