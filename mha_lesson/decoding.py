"""What a writing model changes in the taught class: rotated positions, shared keys, a cache.

Axis letters as in `attention`; h_kv heads of keys and values, each shared by g = h / h_kv query
heads; T_new tokens arrive, and T_held tokens are in the cache already.

Sources: Su et al. (2021), RoFormer; Shazeer (2019), Fast Transformer Decoding; Ainslie et al.
(2023), GQA; Beltagy et al. (2020), Longformer (the window).
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from mha_lesson.attention import attend, heads_of, merge_heads
from mha_lesson.execution import called_like, is_traced
from mha_lesson.masks import fit_axes, out_of_reach
from mha_lesson.refusals import require_ids, require_kind, require_placement
from mha_lesson.refusals.of_attention import require_output
from mha_lesson.refusals.of_decoding import (
    backward_pass,
    require_layer,
    require_rotation,
    require_same_layer,
    require_step,
)

# ---------------------------------------------------------------- rotated positions


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
    return _turned(x, *_cos_and_sin(positions, x.shape[-1], float(base), x.dtype))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Float[Tensor, "*axes T d_k"]:
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((second, first), dim=-1) * sin).to(x.dtype)


def _cos_and_sin(
    positions: Integer[Tensor, " T"], d_k: int, base: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "T d_k"], Float[Tensor, "T d_k"]]:
    """The factor of each dimension, and the factor of the one that it turns with.

    In float64, rounded once: in float32 angles near 1,000,000 are off by up to 0.06 rad. On the
    CPU, unless the device is known to have float64.
    """
    device = positions.device
    if device.type not in ("cpu", "cuda", "meta"):
        positions = positions.cpu()
    half = d_k // 2
    pair = torch.arange(half, device=positions.device, dtype=torch.float64)
    angle = positions[:, None] * base ** (-pair / half)  # (T, d_k/2)
    wide = torch.promote_types(dtype, torch.float32)
    cos, sin = angle.cos().to(wide), angle.sin().to(wide)
    return torch.cat((cos, cos), -1).to(device), torch.cat((-sin, sin), -1).to(device)


_PAGE = 2048  # positions whose angles are computed together and kept, for all layers alike


@lru_cache(maxsize=32)
def _page(
    number: int, d_k: int, base: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch._C._DisableFuncTorch():  # the page outlives both
        at = torch.arange(number * _PAGE, (number + 1) * _PAGE, device="cpu")
        cos, sin = _cos_and_sin(at, d_k, base, dtype)
        return cos.to(device), sin.to(device)


def _angles(n_seen: int, n_new: int, base: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """`_cos_and_sin` of the positions from n_seen on, for the rows of `like`."""
    d_k = like.shape[-1]
    # A tensor of another class has no values, or is traced: what it makes must not be kept.
    if type(like) is Tensor and not is_traced():
        number, row = divmod(n_seen, _PAGE)
        if row + n_new <= _PAGE:
            cos, sin = _page(number, d_k, base, like.dtype, like.device)
            return cos.narrow(0, row, n_new), sin.narrow(0, row, n_new)
    positions = torch.arange(n_seen, n_seen + n_new, device=like.device)
    return _cos_and_sin(positions, d_k, base, like.dtype)


# ---------------------------------------------------------------- the cache


class KVCache:
    """The keys and values of one layer, of the tokens so far; it starts empty.

    It belongs to the layer that first used it. Where no gradient is recorded it keeps memory to
    spare, so that a new token is written behind the others: for a quarter of the tokens held, or
    for 16 if that is more, but never for more than are held.

    Attributes:
        length: how many tokens it has seen: the position of the next one.
        keys, values: (B, h_kv, T_held, d_k), or None while it is empty. T_held is `length`, or at
            most window − 1 where the layer has a window: older tokens are dropped after use.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.layer: nn.Module | None = None
        self.backward = -1  # the number of the backward pass in which it was last used
        self._room: _Room | None = None

    @classmethod
    def for_layers(cls, model: nn.Module) -> list[Self]:
        """An empty cache for each GroupedQueryAttention of a model, in the model's order.

        Raises:
            TypeError: `model` is no nn.Module.
        """
        require_kind("model", model, nn.Module)
        return [cls() for part in model.modules() if isinstance(part, GroupedQueryAttention)]

    @property
    def nbytes(self) -> int:
        """The bytes of the keys and values held: 2 · B · h_kv · T_held · d_k · bytes a number."""
        return 0 if self.keys is None else 2 * self.keys.numel() * self.keys.element_size()

    def __copy__(self) -> Self:
        """Holds the same tensors, and goes on in memory of its own."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, _room=None)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With memory of its own; gradients go back through it to the same tokens."""
        twin = self.__copy__()
        twin.layer = memo.get(id(self.layer), self.layer)  # the copy, where that is copied, too
        if self.keys is not None and self.values is not None:
            twin._keep(self.keys, self.values)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """What a file holds: the tokens. Whoever reads it goes on with a layer of their own."""
        return {**self.__dict__, "layer": None, "_room": None}

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
        self.keys, self.values, self._room = self.keys[index], self.values[index], None

    def joined(
        self, layer: nn.Module, keys: Tensor, values: Tensor, window: int | None
    ) -> tuple[Tensor, Tensor]:
        """What is held, with the new tokens behind it; these do not count until `hold`."""
        if self.keys is None or self.values is None:
            return keys, values
        require_same_layer(self.layer, layer, self.keys, keys)
        n_all = self.keys.shape[2] + keys.shape[2]
        if not _recorded(self.keys, self.values, keys, values):
            room = self._room
            if room is not None and room.takes(self.keys, self.values, keys.shape[2]):
                return room.joined(keys, values)
            capacity = _with_spare(_n_kept(n_all, window))
            if n_all <= capacity:  # not where more come at once than a window keeps
                self._room = room = _Room(self.keys, self.values, capacity)
                self.keys, self.values = room.held
                return room.joined(keys, values)
        return torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2)

    def hold(
        self, layer: nn.Module, keys: Tensor, values: Tensor, n_new: int, window: int | None
    ) -> None:
        """Of what `joined` gave, keeps what the next token may look at, itself not counted."""
        n_all = keys.shape[2]
        if _recorded(keys, values) and window is not None:
            # Not a slice, which would fix the length in an export, and keep all memory alive.
            last = torch.arange(n_all - torch.sym_min(n_all, window - 1), n_all, device=keys.device)
            self._keep(keys.index_select(2, last), values.index_select(2, last), own=True)
        elif _recorded(keys, values):
            self._keep(keys, values, own=self.keys is not None)
        elif self._room is not None and self._room.pending[0] is keys:
            self.keys, self.values = self._room.hold(_n_kept(n_all, window))
        else:
            n = _n_kept(n_all, window)
            self._keep(keys.narrow(2, n_all - n, n), values.narrow(2, n_all - n, n))
        self.layer, self.backward = layer, backward_pass()
        self.length += n_new

    def _keep(self, keys: Tensor, values: Tensor, own: bool = False) -> None:
        """Holds copies of these, or themselves where they are its `own` already."""
        self._room = None
        if not _recorded(keys, values):
            self._room = _Room(keys, values, _with_spare(keys.shape[2]))
            keys, values = self._room.held
        elif not own:
            keys, values = (x.clone(memory_format=torch.contiguous_format) for x in (keys, values))
        self.keys, self.values = keys, values


class _Room:
    """Memory for keys and values, of which those from `start` to `end` are held."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        self.keys, self.values = (
            x.new_empty((*x.shape[:2], capacity, x.shape[3])) for x in (keys, values)
        )
        self.start = self.end = 0
        self.joined(keys, values)
        self.hold(keys.shape[2])

    def takes(self, keys: Tensor, values: Tensor, n_new: int) -> bool:
        """Whether these, which a cache holds, lie here still, with space for new ones behind."""
        return (
            self.held[0] is keys
            and self.held[1] is values
            and self.end + n_new <= self.keys.shape[2]
            and (torch.is_inference_mode_enabled() or not self.keys.is_inference())
        )

    def joined(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new ones behind those held: all of them, as views."""
        n_new = keys.shape[2]
        self.keys.narrow(2, self.end, n_new).copy_(keys)
        self.values.narrow(2, self.end, n_new).copy_(values)
        n_all = self.end + n_new - self.start
        keys = self.keys.narrow(2, self.start, n_all)
        self.pending = keys, self.values.narrow(2, self.start, n_all)
        return self.pending

    def hold(self, n: int) -> tuple[Tensor, Tensor]:
        """Counts what was written, and drops all but the last n."""
        n_dropped = self.pending[0].shape[2] - n
        self.end = self.start + n_dropped + n
        self.start += n_dropped
        self.held = self.pending
        if n_dropped:
            self.held = self.held[0].narrow(2, n_dropped, n), self.held[1].narrow(2, n_dropped, n)
        return self.held


def _n_kept(n_all: int, window: int | None) -> int:
    return n_all if window is None else min(n_all, window - 1)


def _with_spare(n: int) -> int:
    return n + min(n, max(16, n // 4))


def _recorded(*tensors: Tensor) -> bool:
    """Whether a gradient or a graph is recorded, which needs memory that stays as it is."""
    if is_traced():
        return True
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


# ---------------------------------------------------------------- the layer


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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draws the weights of q, k, v and W^O by Glorot's rule, one by one; biases are 0.

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            n_kv_heads: h_kv, a divisor of h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            rope_base: queries and keys are rotated with this base; they are not if None.
            window: a token looks at itself and at the window − 1 tokens before it; at all of
                them if None.
            device, dtype: of the weights; PyTorch's defaults if None.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        super().__init__()
        sizes = require_layer(d_model, n_heads, n_kv_heads, d_k, bias, rope_base, window)
        (d_model, n_heads, d_k), n_kv_heads = sizes, int(n_kv_heads)
        self.d_model, self.n_heads, self.n_kv_heads, self.d_k = d_model, n_heads, n_kv_heads, d_k
        self.rope_base = None if rope_base is None else float(rope_base)
        self.window = None if window is None else int(window)
        self.parts = (n_heads * d_k, n_kv_heads * d_k, n_kv_heads * d_k)  # rows of q, k and v
        like = require_placement(device, dtype)
        self.w_qkv = nn.Linear(d_model, sum(self.parts), bias=bias, **like)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias=bias, **like)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights afresh."""
        for weight in (*self.w_qkv.weight.split(self.parts), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    @overload
    def forward(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def forward(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def forward(
        self, x: Tensor, cache: KVCache | None = None, *, mask: Tensor | None = None,
        return_weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip

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

        heads = heads_of(self.w_qkv, x, h + 2 * h_kv, self.d_k)  # of queries, keys and values
        q, k, v = heads.split((h, h_kv, h_kv), dim=1)
        if self.rope_base is not None:
            cos, sin = _angles(n_seen, n_new, self.rope_base, heads)
            q, k = _turned(heads[:, : h + h_kv], cos, sin).split((h, h_kv), dim=1)
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
        output = self.w_o(merge_heads(context))
        require_output(output)
        if cache is not None:
            cache.hold(self, k, v, n_new, self.window)
        return output if weights is None else (output, weights)

    if TYPE_CHECKING:

        @called_like(forward)
        def __call__(self) -> None: ...

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
