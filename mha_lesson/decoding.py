"""The layer of a writing model: the taught class with shared keys, rotated positions and a cache.

Axis letters as in `attention`; h_kv heads of keys and values, each shared by g = h / h_kv query
heads; T_new tokens arrive, and T_held tokens are in the cache already.

Sources: Shazeer (2019), Fast Transformer Decoding; Ainslie et al. (2023), GQA; Beltagy et al.
(2020), Longformer (the window).
"""

from typing import Literal, Protocol, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lesson.attention import attend, merge_heads, split_heads
from mha_lesson.cache import KVCache, TakesCache
from mha_lesson.execution import is_traced, require_output
from mha_lesson.masks import fit_axes, out_of_reach
from mha_lesson.refusals.of_attention import require_groups, require_module, require_step
from mha_lesson.rotation import angles, turned


class LayerCall(Protocol):
    @overload
    def __call__(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip


class GroupedQueryAttention(TakesCache):
    """Causal self-attention with h query heads over h_kv heads of keys and values.

    h_kv = h is multi-head attention, h_kv = 1 multi-query attention. Query head i uses the
    keys and values of head i // (h / h_kv).

    Attributes:
        w_qkv: nn.Linear d_model → (h + 2·h_kv)·d_k, which gives q, then k, then v, head 0 first.
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draws the parameters of q, k, v and W^O by Glorot's rule, one by one; biases are 0.

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            n_kv_heads: h_kv, a divisor of h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            rope_base: queries and keys are rotated with this base; they are not if None.
            window: a token looks at itself and at the window − 1 tokens before it; at all of
                them if None. Steps with a cache get cheaper; a prompt of T tokens still costs T².
            device, dtype: of the parameters; PyTorch's defaults if None.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        super().__init__()
        d_model, n_heads, d_k = require_module(d_model, n_heads, d_k, bias, 0.0, device, dtype)
        n_kv_heads = require_groups(n_heads, n_kv_heads, d_k, rope_base, window)
        self.d_model, self.n_heads, self.n_kv_heads, self.d_k = d_model, n_heads, n_kv_heads, d_k
        self.rope_base = None if rope_base is None else float(rope_base)
        self.window = None if window is None else int(window)
        self.parts = (n_heads * d_k, n_kv_heads * d_k, n_kv_heads * d_k)  # rows of q, k and v
        self.w_qkv = nn.Linear(d_model, sum(self.parts), bias, device, dtype)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters afresh."""
        for weight in (*self.w_qkv.weight.split(self.parts), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    __call__: LayerCall  # for type checkers: nn.Module's own would give Any

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
        require_step(self, x, cache, mask, return_weights, KVCache)
        n_seen = 0 if cache is None else cache.length
        n_new, h, h_kv = x.shape[1], self.n_heads, self.n_kv_heads

        qkv = self.w_qkv(x)  # (B, T_new, (h + 2·h_kv)·d_k)
        require_output("w_qkv", qkv, x, sum(self.parts))
        heads = split_heads(qkv, h + 2 * h_kv)  # of queries, keys and values
        q, k, v = heads.split((h, h_kv, h_kv), dim=1)
        if self.rope_base is not None:
            cos, sin = angles(n_seen, n_new, self.rope_base, heads)
            q, k = turned(heads[:, : h + h_kv], cos, sin).split((h, h_kv), dim=1)
        if cache is not None:
            k, v = cache.joined(self, k, v, self.window)  # (B, h_kv, T_k, d_k)
        n_keys = k.shape[2]

        blocked = None if mask is None else fit_axes(mask, 4)
        if blocked is not None and blocked.shape[-1] > 1:
            blocked = blocked[..., blocked.shape[-1] - n_keys :]  # the others were dropped
        causal = False
        if 1 < n_new == n_keys and _window_hides_nothing(n_new, self.window):
            causal = True  # not the condition itself, which is no bool while it is traced
        elif n_new > 1:  # a single new token may look at all that is held
            beyond = out_of_reach(n_new, n_keys - n_new, self.window, x.device)
            blocked = beyond[None, None] if blocked is None else blocked | beyond
        context, weights = _attend_in_groups(q, k, v, blocked, causal, return_weights)
        context = merge_heads(context)
        output = self.w_o(context)  # (B, T_new, d_model)
        require_output("w_o", output, context, self.d_model)
        if cache is not None:
            cache.hold(self, k, v, n_new, self.window)
        return output if weights is None else (output, weights)

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}"
        more = {"d_k": self.d_k, "rope_base": self.rope_base, "window": self.window}
        return ", ".join((sizes, *(f"{k}={v}" for k, v in more.items() if v is not None)))


def _window_hides_nothing(n_tokens: int, window: int | None) -> bool:
    """Whether the window blocks no earlier token. False where lengths are symbols, so that one
    graph serves any length."""
    known = type(n_tokens) is int and not is_traced()
    return window is None or (known and n_tokens <= window)


def _attend_in_groups(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, return_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Attention of q (B, h, T_new, d_k) over k and v (B, h_kv, T_k, d_k): g = h / h_kv query heads,
    a group, share one head of keys and values."""
    (B, h, n_new, d_k), (_, h_kv, n_keys, _) = q.shape, k.shape
    g = h // h_kv
    if n_new == 1:  # the heads of a group are g queries: k and v are read once for all of them
        q = q.reshape(B, h_kv, g, d_k)
        if mask is not None and mask.shape[1] > 1:
            mask = mask.reshape(mask.shape[0], h_kv, g, mask.shape[-1])
    elif g > 1:  # a group is a sequence of its own
        q = q.reshape(B * h_kv, g, n_new, d_k)
        k, v = (x.reshape(B * h_kv, 1, n_keys, d_k).expand(-1, g, -1, -1) for x in (k, v))
        if mask is not None and mask.shape[1] > 1:
            mask = mask.expand(B, -1, -1, -1).reshape(B * h_kv, g, *mask.shape[2:])
        elif mask is not None and mask.shape[0] > 1:  # `len` would fix B in a graph
            mask = mask.repeat_interleave(h_kv, dim=0)
    context, weights = attend(q, k, v, mask, causal, 0.0, return_weights)
    weights = None if weights is None else weights.reshape(B, h, n_new, n_keys)
    return context.reshape(B, h, n_new, d_k), weights
