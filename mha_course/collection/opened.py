"""The layer of the model that writes, opened: each step can be changed, and loss and text be seen.

`Opened` is exercise 23's layer without a cache, in a few lines whose steps a `Change` replaces.
`loss`, `pages` and `choices` say what comes of it. No learner's code is asked here (`breaks`).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mha_lesson.attention import merge_heads, split_heads
from mha_lesson.rotation import rotate
from mha_lesson.smollm import N_HEADS, N_LAYERS, SmolLM
from mha_lesson.text import northanger_abbey

PAGE, FIRST = 320, 64  # tokens of a page, and the first whose loss counts
Mask = Callable[[int], Bool[Tensor, "... T T"]]
Rounding = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def future(n: int) -> Bool[Tensor, "T T"]:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def as_they_are(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return k, v


def as_it_is(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Change:
    """What one layer, or all of them, do otherwise.

    Attributes:
        blocked: the mask of T tokens, True = blocked, (T, T), or (B, 1, T, T).
        rounded: what becomes of turned keys and of values, (B, h_kv, T, d_k) each.
        after: what becomes of the weights, (B, h, T, T), after the softmax.
        gain: by which each head's context is multiplied, (h,): 0 silences it.
    """

    blocked: Mask = future
    rounded: Rounding = as_they_are
    after: Callable[[Tensor], Tensor] = as_it_is
    gain: Float[Tensor, " h"] | None = None


class Opened(nn.Module):
    """Weights of the last call stand in `weights`, (B, h, T, T)."""

    w_q: nn.Linear
    w_k: nn.Linear
    w_v: nn.Linear
    w_o: nn.Linear

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, base: float) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.base = n_heads, n_kv_heads, base
        narrow = d_model // n_heads * n_kv_heads
        widths = zip(("w_q", "w_k", "w_v", "w_o"), (d_model, narrow, narrow, d_model), strict=True)
        for name, width in widths:
            setattr(self, name, nn.Linear(d_model, width, bias=False, device="meta"))
        self.change, self.weights = Change(), torch.empty(0)

    def forward(self, x: Float[Tensor, "B T d_model"], cache: None = None) -> tuple[Tensor, None]:
        at = torch.arange(x.shape[1], device=x.device)
        q = rotate(split_heads(self.w_q(x), self.n_heads), at, self.base)
        k = rotate(split_heads(self.w_k(x), self.n_kv_heads), at, self.base)
        k, v = self.change.rounded(k, split_heads(self.w_v(x), self.n_kv_heads))
        k, v = (y.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for y in (k, v))
        blocked = self.change.blocked(len(at)).to(x.device)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(blocked, -torch.inf)
        weights = scores.softmax(dim=-1).nan_to_num(0.0)  # a row that may see nothing
        self.weights = self.change.after(weights)
        context = self.weights @ v
        if self.change.gain is not None:
            context = context * self.change.gain[:, None, None].to(x.device)
        return self.w_o(merge_heads(context)), None


def opened(model: SmolLM) -> SmolLM:
    """The model with `Opened` in all layers, as published until `changed` says otherwise."""
    return model.with_attention(Opened)


def attentions(model: SmolLM) -> list[Opened]:
    """Of an opened model, layer by layer."""
    return [cast("Opened", layer.attention) for layer in model.layers]


def changed(model: SmolLM, changes: Change | Sequence[Change]) -> SmolLM:
    """The same opened model, its layers changed: all alike, or each in its own way."""
    some = [changes] * N_LAYERS if isinstance(changes, Change) else changes
    for attention, change in zip(attentions(model), some, strict=True):
        attention.change = change
    return model


def silenced(heads: Sequence[tuple[int, int]]) -> list[Change]:
    """These heads, as (layer, head), hand nothing to W^O."""
    gains = torch.ones(N_LAYERS, N_HEADS)
    for at in heads:
        gains[at] = 0.0
    return [Change(gain=gain) for gain in gains]


# ---------------------------------------------------------------- masks and roundings


def blind(n: int) -> Bool[Tensor, "T T"]:
    """No token sees itself; the first sees nothing."""
    return torch.ones(n, n, dtype=torch.bool).triu(0)


def nothing(n: int) -> Bool[Tensor, "T T"]:
    return torch.zeros(n, n, dtype=torch.bool)


def without_first(n: int) -> Bool[Tensor, "T T"]:
    """The first token is blocked for all others."""
    mask = future(n)
    mask[1:, 0] = True
    return mask


def window(width: int, kept: int | None = None) -> Mask:
    """Itself and width − 1 tokens back; beside them token number `kept`, for all that follow it."""

    def blocked(n: int) -> Bool[Tensor, "T T"]:
        mask = future(n) | torch.ones(n, n, dtype=torch.bool).tril(-width)
        if kept is not None:
            mask[kept:, kept] = False
        return mask

    return blocked


def to_bits(x: Tensor, bits: int, dim: int) -> Tensor:
    """Each row along `dim` in 2^bits values, evenly from its least number to its greatest."""
    least, greatest = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    step = ((greatest - least) / (2**bits - 1)).clamp(min=1e-12)
    return ((x - least) / step).round() * step + least


def by_token(bits: int) -> Rounding:
    """The d_k numbers of a token's key share a scale, and those of its value."""
    return lambda k, v: (to_bits(k, bits, -1), to_bits(v, bits, -1))


def by_dimension(bits: int, group: int = 64) -> Rounding:
    """Of keys, the numbers of 64 tokens in one dimension share a scale; values by token.

    Source: Liu et al. (2024), KIVI.
    """

    def rounded(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        pieces = [to_bits(piece, bits, -2) for piece in k.split(group, dim=-2)]
        return torch.cat(pieces, dim=-2), to_bits(v, bits, -1)

    return rounded


# ---------------------------------------------------------------- what comes of it


def pages(model: SmolLM, seeds: Sequence[int], n_tokens: int = PAGE) -> Int[Tensor, "B T"]:
    """Pages of the novel, each from a paragraph that its seed draws."""
    novel = northanger_abbey()
    starts = [i + 2 for i in range(len(novel) - 4000) if novel[i : i + 2] == "\n\n"]
    texts = [novel[at : at + 3000] for at in (random.Random(s).choice(starts) for s in seeds)]
    return torch.cat([model.encode(text)[:, :n_tokens] for text in texts])


def loss(model: SmolLM, ids: Int[Tensor, "B T"], first: int = FIRST) -> Float[Tensor, " B"]:
    """The mean loss of the tokens from `first` on, of each text; a gain may have a gradient."""
    scores = model(ids)[:, first - 1 : -1].transpose(1, 2)
    return F.cross_entropy(scores, ids[:, first:], reduction="none").mean(dim=-1)
