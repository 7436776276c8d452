"""What a writing model changes in the taught class: rotated positions, shared keys, a cache.

Axis letters as in `attention`; h_kv heads of keys and values, each shared by g = h / h_kv query
heads; T_new tokens arrive, and T_held tokens are in the cache already.

Sources: Su et al. (2021), RoFormer; Shazeer (2019), Fast Transformer Decoding; Ainslie et al.
(2023), GQA; Beltagy et al. (2020), Longformer (the window).
"""

from copy import copy
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from mha_lesson.attention import attend, merge_heads, plain_weight, project
from mha_lesson.refusals import require_ids
from mha_lesson.refusals.of_attention import require_output
from mha_lesson.refusals.of_decoding import (
    require_layer,
    require_rotation,
    require_same_layer,
    require_step,
)


def rotate(
    x: Float[Tensor, "*axes T d_k"], positions: Integer[Tensor, " T"], base: float = 10_000.0
) -> Float[Tensor, "*axes T d_k"]:
    """Turns dimension i with dimension i + d_k/2, by the angle position · base^(−2i/d_k).

    A product of two rotated rows depends on their positions only through the distance.

    Args:
        x: queries or keys, (…, T, d_k), d_k even.
        positions: (T,) integers, where each token stands.
        base: of the angles, above 0: pair 0 turns by 1 radian a token, the last by
            base^(2/d_k) / base.

    Returns:
        (…, T, d_k), with the length of every row as it was.

    Raises:
        TypeError, ValueError: an argument does not fit; the sentence says which and why.
    """
    require_rotation(x, positions, base)
    half = x.shape[-1] // 2
    # In float64, rounded once: in float32 angles near 1,000,000 are off by up to 0.06 rad.
    speed = float(base) ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = positions[:, None] * speed  # (T, d_k/2)
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(wide), angle.sin().to(wide)
    first, second = x.chunk(2, dim=-1)  # (…, T, d_k/2) each
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.cat(turned, dim=-1).to(x.dtype)


class KVCache:
    """The keys and values of one layer, of the tokens so far; it starts empty.

    Attributes:
        length: how many tokens it has seen: the position of the next one.
        keys, values: (B, h_kv, T_held, d_k), or None while it is empty. T_held is `length`, or at
            most window − 1 where the layer has a window: older tokens are dropped after use.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the keys and values held: 2 · B · h_kv · T_held · d_k · bytes a number."""
        return 0 if self.keys is None else 2 * self.keys.numel() * self.keys.element_size()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With memory of its own; gradients go back through it to the same tokens."""
        copied = copy(self)
        if self.keys is not None and self.values is not None:
            copied.keys, copied.values = self.keys.clone(), self.values.clone()
        return copied

    def reorder(self, index: Integer[Tensor, " B_new"]) -> None:
        """Goes on with these sequences of the batch, in this order: some twice, some no longer.

        Raises:
            TypeError, ValueError: `index` is not (B_new,) integers from 0 to B − 1, or the cache
                is empty.
        """
        if self.keys is None or self.values is None:
            raise ValueError("reorder needs a cache that holds something; this one is empty.")
        require_ids("index", index, 1, "(B_new,)", len(self.keys))
        index = index.to(self.keys.device)
        self.keys, self.values = self.keys[index], self.values[index]

    def joined(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What is held, with the new tokens behind it; the cache stays as it is."""
        if self.keys is None or self.values is None:
            return keys, values
        require_same_layer(self.keys, keys)
        return torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2)

    def hold(self, keys: Tensor, values: Tensor, n_new: int, window: int | None) -> None:
        """Keeps what the next token may look at, itself not counted, in memory of its own."""
        if window is not None:
            end = keys.shape[2]  # a slice would fix it in an export
            last = torch.arange(end - torch.sym_min(end, window - 1), end, device=keys.device)
            keys, values = keys.index_select(2, last), values.index_select(2, last)
        elif self.keys is None:
            keys, values = (x.clone(memory_format=torch.contiguous_format) for x in (keys, values))
        self.keys, self.values = keys, values
        self.length += n_new


class GroupedQueryAttention(nn.Module):
    """Causal self-attention with h query heads over h_kv heads of keys and values.

    h_kv = h is multi-head attention, h_kv = 1 multi-query attention. Query head i uses the
    keys and values of head i // (h / h_kv).

    Attributes:
        w_qkv: nn.Linear d_model → (h + 2·h_kv)·d_k; rows q, then k, then v, head 0 first in each.
        w_o: nn.Linear h·d_k → d_model.
        d_model, n_heads, n_kv_heads, d_k: the sizes; rope_base, window: as given.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        *,
        d_k: int | None = None,
        bias: bool = False,
        rope_base: float | None = None,
        window: int | None = None,
    ) -> None:
        """Draws the weights of q, k, v and W^O by Glorot's rule, one by one; biases are 0.

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            n_kv_heads: h_kv, a divisor of h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            rope_base: queries and keys are rotated with this base; not at all if None.
            window: a token looks at itself and at the window − 1 tokens before it; at all if None.

        Raises:
            TypeError, ValueError: a size is not a positive integer, or one does not divide another.
        """
        super().__init__()
        require_layer(d_model, n_heads, n_kv_heads, d_k, bias, rope_base, window)
        d_k = d_model // n_heads if d_k is None else d_k
        # torch wants Python's own numbers
        d_model, n_heads, n_kv_heads, d_k = map(int, (d_model, n_heads, n_kv_heads, d_k))
        self.d_model, self.n_heads, self.n_kv_heads, self.d_k = d_model, n_heads, n_kv_heads, d_k
        self.rope_base = None if rope_base is None else float(rope_base)
        self.window = None if window is None else int(window)
        self.parts = (n_heads * d_k, n_kv_heads * d_k, n_kv_heads * d_k)  # rows of q, k and v
        self.w_qkv = nn.Linear(d_model, sum(self.parts), bias=bias)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights afresh."""
        for weight in (*self.w_qkv.weight.split(self.parts), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    def forward(
        self,
        x: Float[Tensor, "B T_new d_model"],
        cache: KVCache | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "B T_new d_model"]
        | tuple[Float[Tensor, "B T_new d_model"], Float[Tensor, "B h T_new T_k"]]
    ):
        """Lets each new token gather from itself, the new ones before it and those in the cache.

        Args:
            x: (B, T_new, d_model), the tokens after those that the cache has seen.
            cache: holds the tokens so far and takes the new ones; None: there are none, none stay.
            mask: bool, True = blocked, beside the future and what the window leaves out: of shape
                (T_new, T_all), (B, T_new, T_all), or four axes broadcastable to
                (B, h, T_new, T_all), where T_all = cache.length + T_new. It hides left padding.
            return_weights: also return the weights of every query head.

        Returns:
            (B, T_new, d_model), and with `return_weights` the weights (B, h, T_new, T_k) over the
            T_k tokens held or new. A token that may look at nothing has a zero context.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why, and
                the cache is as it was.
        """
        weight, sizes = plain_weight(self.w_qkv), (self.d_model, self.n_heads)
        require_step(x, cache, mask, return_weights, weight, sizes, KVCache)
        n_seen = 0 if cache is None else cache.length
        n_new, h, h_kv = x.shape[1], self.n_heads, self.n_kv_heads

        heads = project(self.w_qkv, x, h + 2 * h_kv, self.d_k, weight)
        q, k, v = heads.split((h, h_kv, h_kv), dim=1)
        if self.rope_base is not None:
            positions = torch.arange(n_seen, n_seen + n_new, device=x.device)
            q, k = rotate(q, positions, self.rope_base), rotate(k, positions, self.rope_base)
        if cache is not None:
            k, v = cache.joined(k, v)  # (B, h_kv, T_k, d_k)
        n_keys = k.shape[2]

        blocked = None if mask is None else _four_axes(mask, n_keys)
        causal = False
        if 1 < n_new == n_keys and _window_hides_nothing(n_new, self.window):
            causal = True  # not the condition itself, which is no bool while it is traced
        elif n_new > 1:  # a single new token may look at all that is held
            beyond = _out_of_reach(n_new, n_keys - n_new, self.window, x.device)
            blocked = beyond if blocked is None else blocked | beyond
        context, weights = _attend_in_groups(q, k, v, blocked, causal, return_weights)
        output = self.w_o(merge_heads(context))
        require_output(output)
        if cache is not None:
            cache.hold(k, v, n_new, self.window)
        return output if weights is None else (output, weights)

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}"
        more = {"d_k": self.d_k, "rope_base": self.rope_base, "window": self.window}
        return ", ".join((sizes, *(f"{k}={v}" for k, v in more.items() if v is not None)))


def _window_hides_nothing(n_tokens: int, window: int | None) -> bool:
    """Whether the window blocks no earlier token. False where lengths are symbols, so that one
    graph serves any length."""
    known = type(n_tokens) is int and not torch.compiler.is_compiling()
    return window is None or (known and n_tokens <= window)


def _out_of_reach(
    n_new: int, n_held: int, window: int | None, device: torch.device
) -> Bool[Tensor, "1 1 T_new T_k"]:
    """True at the future, and at what lies `window` or more tokens back."""
    query = torch.arange(n_held, n_held + n_new, device=device)[:, None]
    key = torch.arange(n_held + n_new, device=device)
    beyond = key > query if window is None else (key > query) | (query - key >= window)
    return beyond[None, None]


def _four_axes(mask: Bool[Tensor, "..."], n_keys: int) -> Bool[Tensor, "_ _ _ _"]:
    """A mask over all tokens, cut to those held or new; axes for B and the heads if need be."""
    mask = mask if mask.shape[-1] == 1 else mask[..., mask.shape[-1] - n_keys :]
    while mask.ndim < 4:
        mask = mask.unsqueeze(-3)
    return mask


def _attend_in_groups(
    q: Float[Tensor, "B h T_new d_k"],
    k: Float[Tensor, "B h_kv T_k d_k"],
    v: Float[Tensor, "B h_kv T_k d_k"],
    mask: Bool[Tensor, "_ _ _ _"] | None,
    causal: bool,
    return_weights: bool,
) -> tuple[Float[Tensor, "B h T_new d_k"], Float[Tensor, "B h T_new T_k"] | None]:
    """Attention of the g = h / h_kv query heads of a group over one and the same k and v."""
    (B, h, n_new, d_k), (_, h_kv, n_keys, _) = q.shape, k.shape
    g = h // h_kv
    if n_new == 1:  # the heads of a group are g queries: k and v are read once for all of them
        q = q.reshape(B, h_kv, g, d_k)
        if mask is not None and mask.shape[1] > 1:
            mask = mask.reshape(-1, h_kv, g, mask.shape[-1])
    elif g > 1:  # a group is a sequence of its own
        q = q.reshape(B * h_kv, g, n_new, d_k)
        k, v = (x.reshape(B * h_kv, 1, n_keys, d_k).expand(-1, g, -1, -1) for x in (k, v))
        if mask is not None and mask.shape[1] > 1:
            mask = mask.expand(B, -1, -1, -1).reshape(B * h_kv, g, *mask.shape[2:])
        elif mask is not None and len(mask) > 1:
            mask = mask.repeat_interleave(h_kv, dim=0)
    context, weights = attend(q, k, v, mask, causal, 0.0, return_weights)
    weights = None if weights is None else weights.reshape(B, h, n_new, n_keys)
    return context.reshape(B, h, n_new, d_k), weights
