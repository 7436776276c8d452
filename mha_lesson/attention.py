"""Multi-head attention, the subject of the course. To be read from the top:

1. `textbook_attention`, the formula line by line;
2. `scaled_dot_product_attention`, the same for everyday use, and its two ways: `explicit_attention`
   writes every weight out, `fused_attention` leaves them to PyTorch's kernel;
3. `split_heads` and `merge_heads`, by which all heads are computed at once;
4. `MultiHeadAttention`, the module.

Masks are made in `masks`, and what does not fit is refused in `refusals`. What serves speed and
adapters stands in `execution`, weights of other classes in `conversion`, and what a writing model
adds in `decoding`: shared keys (GQA), rotated positions, a cache.

Axis letters, here and everywhere: B sequences in a batch, T tokens (T_q queries, T_k keys),
h heads of d_k dimensions each, d_model dimensions of a token.

Source: Vaswani et al. (2017), Attention Is All You Need, section 3.2.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mha_lesson import conversion, execution, refusals
from mha_lesson.execution import by_rows, in_full_precision, keyless_rows, plain_weight, thirds_of
from mha_lesson.masks import as_bias, fit_axes, out_of_reach
from mha_lesson.refusals.of_attention import (
    require_attention_call,
    require_divisible,
    require_layer_sizes,
    require_module_call,
    require_output,
    require_rows,
)

# 1. The formula


def textbook_attention(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    value: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "..."],
) -> tuple[Float[Tensor, "*batch T_q d_v"], Float[Tensor, "*batch T_q T_k"]]:
    """softmax(Q Kᵀ / √d_k) V, as it is written; `mask` is True where blocked.

    A score is a sum of d_k products. If each has variance 1, the sum has variance d_k.
    Dividing by √d_k makes it 1 again: large scores leave the softmax hardly a gradient.
    """
    blocked_rows = mask.all(dim=-1, keepdim=True)  # (…, T_q, 1): queries without a key
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # (…, T_q, T_k)
    scores = scores.masked_fill(mask & ~blocked_rows, -math.inf)  # (…, T_q, T_k)
    weights = scores.softmax(dim=-1)  # (…, T_q, T_k), every row adds up to 1
    weights = weights.masked_fill(blocked_rows, 0.0)  # (…, T_q, T_k), these rows to 0
    return weights @ value, weights  # (…, T_q, d_v)


# 2. The same for everyday use


@overload
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, dropout: float = 0.0, return_weights: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, dropout: float = 0.0, return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, dropout: float = 0.0, return_weights: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    value: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> (
    Float[Tensor, "*batch T_q d_v"]
    | tuple[Float[Tensor, "*batch T_q d_v"], Float[Tensor, "*batch T_q T_k"]]
):
    """softmax(Q Kᵀ / √d_k) V: every query takes a weighted mean of the values.

    Args:
        query: Q, (…, T_q, d_k); the axes before are none, (B,) or (B, h).
        key: K, (…, T_k, d_k).
        value: V, (…, T_k, d_v).
        mask: bool, True = blocked, of shape (T_q, T_k), (B, T_q, T_k), or four axes
            broadcastable to (B, h, T_q, T_k).
        causal: also block every key after the query's own position (T_q = T_k).
        dropout: the share of weights set to zero, in [0, 1); the others are scaled up.
        return_weights: also return the weights, at the price of holding T_q × T_k numbers.

    Returns:
        The context (…, T_q, d_v), and with `return_weights` the weights (…, T_q, T_k) by which
        the values were multiplied. A blocked row, a query whose every key is blocked, has zero
        weights and a zero context.

    Raises:
        TypeError, ValueError: an argument does not fit; the sentence says which and why.
    """
    require_attention_call(query, key, value, mask, causal, dropout, return_weights)
    context, weights = attend(query, key, value, mask, causal, float(dropout), return_weights)
    return context if weights is None else (context, weights)


def attend(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    value: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    causal: bool,
    dropout: float,
    return_weights: bool,
) -> tuple[Float[Tensor, "*batch T_q d_v"], Float[Tensor, "*batch T_q T_k"] | None]:
    """The context, and the weights or None, of inputs that have been checked."""
    weights = blocked_rows = None
    if mask is not None:
        mask = fit_axes(mask, query.ndim)
        if causal:
            mask, causal = mask | out_of_reach(key.shape[-2], device=key.device), False
        blocked_rows = keyless_rows(mask)
        if blocked_rows is not None:
            # A softmax over no key is NaN: these rows see all keys, and are 0 below.
            mask = mask & ~blocked_rows
        if mask.shape[-1] == 1:
            mask = None  # one cell a row, which blocks the whole row or nothing

    if return_weights:
        if causal:  # and no mask: each query keeps its own key
            mask = out_of_reach(key.shape[-2], device=key.device)
        context, weights = explicit_attention(
            query, key, value, mask, blocked_rows, dropout
        )  # fmt: skip
    else:
        context = fused_attention(query, key, value, mask, causal, dropout)
    if blocked_rows is not None:  # weights of 0 are not enough: 0 · NaN is NaN
        context = context.masked_fill(blocked_rows, 0.0)
    return context, weights


def explicit_attention(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    value: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    blocked_rows: Bool[Tensor, "..."] | None,
    dropout: float,
) -> tuple[Float[Tensor, "*batch T_q d_v"], Float[Tensor, "*batch T_q T_k"]]:
    """All weights, of scores in at least float32; `mask` leaves each row a key."""
    # All keys are read again for every few queries: lay them out in one piece first.
    wide = key.to(torch.promote_types(key.dtype, torch.float32)).contiguous()
    with in_full_precision(query.device):
        weights = by_rows(attention_weights, query, wide, mask, query.dtype)
    del wide
    if blocked_rows is not None:
        weights = weights.masked_fill(blocked_rows, 0.0)
    weights = F.dropout(weights, dropout) if dropout else weights
    return weights @ value, weights


def attention_weights(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    mask: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "*batch T_q T_k"]:
    """softmax(Q Kᵀ / √d_k), in the dtype of `key`."""
    root = math.sqrt(query.shape[-1])  # divides the queries, fewer numbers than scores
    scores = (query.to(key.dtype) / root) @ key.transpose(-2, -1)  # old ONNX has no .mT
    if mask is not None:
        bias = as_bias(mask, scores.dtype)
        try:
            scores += bias
        except RuntimeError:  # under vmap, where only the masks are a batch
            scores = scores + bias
    return scores.softmax(dim=-1)


def fused_attention(
    query: Float[Tensor, "*batch T_q d_k"],
    key: Float[Tensor, "*batch T_k d_k"],
    value: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "*batch T_q d_v"]:
    """PyTorch's kernel, which holds no T_q × T_k; `mask` leaves each row a key."""
    # As numbers, 0 or −∞: in a bool mask of PyTorch's, True means keep.
    bias = None if mask is None else as_bias(mask, query.dtype)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=dropout, is_causal=causal
    )


# 3. All heads at once


def split_heads(x: Float[Tensor, "B T width"], n_heads: int) -> Float[Tensor, "B {n_heads} T d_k"]:
    """Cuts the last axis into h heads and moves them before the tokens, without a copy.

    Args:
        x: (B, T, h·d_k), the heads side by side in the last axis, head 0 first.
        n_heads: h.

    Returns:
        (B, h, T, d_k), a view of the same memory.

    Raises:
        TypeError, ValueError: `x` has not three axes, or h does not divide the last one.
    """
    refusals.require_axes("x", x, 3, "(B, T, h*d_k)")
    refusals.require_positive_int("n_heads", n_heads)
    require_divisible(x.shape[-1], n_heads)
    return _split(x, n_heads)


def _split(x: Float[Tensor, "*B T width"], n_heads: int) -> Float[Tensor, "_ {n_heads} T d_k"]:
    B, T, width = x.shape if x.ndim == 3 else (1, *x.shape)  # one sequence: a batch of one
    return x.view(B, T, n_heads, width // n_heads).permute(0, 2, 1, 3)  # (B, h, T, d_k)


def heads_of(
    layer: nn.Module, x: Float[Tensor, "*B T d_model"], n_heads: int, d_k: int
) -> Float[Tensor, "_ {n_heads} T {d_k}"]:
    """What the layer makes of x, cut into heads."""
    rows = layer(x)
    require_rows(rows, (*x.shape[:-1], n_heads * d_k))
    return _split(rows, n_heads)


def merge_heads(x: Float[Tensor, "B h T d_k"]) -> Float[Tensor, "B T h*d_k"]:
    """Lays the heads side by side again: the concatenation of the paper, undoing `split_heads`.

    Args:
        x: (B, h, T, d_k).

    Returns:
        (B, T, h·d_k), head 0 first.

    Raises:
        TypeError, ValueError: `x` has not four axes.
    """
    refusals.require_axes("x", x, 4, "(B, h, T, d_k)")
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, h * d_k)


# 4. The module


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    `mha(x)` is self-attention, `mha(x, memory)` cross-attention, `mha(q, k, v)` the general case.
    The paper's W^Q, W^K and W^V of all heads are the rows of one fused layer, so that
    self-attention takes one matrix product instead of three.

    Attributes:
        w_qkv: nn.Linear d_model → 3·h·d_k; rows q, then k, then v, and head 0 first in each.
        w_o: nn.Linear h·d_k → d_model, the paper's W^O.
        n_heads, d_model, d_k: the sizes; dropout: the share of weights dropped in training.
    """

    def __init__(
        self,
        d_model: int = 512,
        n_heads: int = 8,
        *,
        d_k: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draws each of W^Q, W^K, W^V and W^O by Glorot's rule for that matrix; biases are 0.

        So tokens of variance 1 have queries, keys and scores of variance 1, as √d_k presumes. It is
        kept for that, though small models end at a lower loss from `nn.Linear`'s start, whose
        scores have variance 1/9 (tools/BENCHMARKS.md).

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            dropout: the share of attention weights dropped in training, in [0, 1).
            device, dtype: of the weights; PyTorch's defaults if None.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        super().__init__()
        d_model, n_heads, d_k = require_layer_sizes(d_model, n_heads, d_k, bias)
        refusals.require_probability("dropout", dropout)
        self.d_model, self.n_heads, self.d_k, self.dropout = d_model, n_heads, d_k, float(dropout)
        like = refusals.require_placement(device, dtype)
        self.w_qkv = nn.Linear(d_model, 3 * n_heads * d_k, bias=bias, **like)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias=bias, **like)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights afresh."""
        for weight in (*self.w_qkv.weight.chunk(3), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    @overload
    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False, return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False, return_weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip

    def forward(
        self,
        query: Float[Tensor, "*B T_q d_model"],
        key: Float[Tensor, "*B T_k d_model"] | None = None,
        value: Float[Tensor, "*B T_k d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        causal: bool = False,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "*B T_q d_model"]
        | tuple[Float[Tensor, "*B T_q d_model"], Float[Tensor, "*B h T_q T_k"]]
    ):
        """Lets every token of `query` gather from the tokens of `value`, h times side by side.

        Args:
            query: (B, T_q, d_model), or (T_q, d_model) for one sequence.
            key: (B, T_k, d_model); `query` if None.
            value: (B, T_k, d_model); `key` if None.
            mask: bool, True = blocked, of shape (T_q, T_k), (B, T_q, T_k), or four axes
                broadcastable to (B, h, T_q, T_k). The number of axes says which: two are never
                (B, T_k), even where B = T_q, and three never (h, T_q, T_k), even where h = B.
                Give padding four axes, as `padding_mask` does.
            causal: also block every key after the query's own position (T_q = T_k).
            return_weights: also return every head's weights, not averaged. Only this path has
                second and forward-mode derivatives (a gradient penalty, jvp), not the fused one.

        Returns:
            (B, T_q, d_model), and with `return_weights` the weights (B, h, T_q, T_k);
            both without B where the input had none.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        key = query if key is None else key
        value = key if value is None else value
        require_module_call(self, query, key, value, mask, causal, return_weights)

        q, k, v = self._project(query, key, value)  # (B, h, T, d_k) each
        dropout = self.dropout if self.training else 0.0
        context, weights = attend(q, k, v, mask, causal, dropout, return_weights)
        del q, k, v  # free their memory before W^O asks for more
        output = self.w_o(merge_heads(context))  # (B, T_q, d_model)
        require_output(output)

        if query.ndim == 2:
            output = output.squeeze(0)
            weights = None if weights is None else weights.squeeze(0)
        return output if weights is None else (output, weights)

    if TYPE_CHECKING:  # nn.Module's own call would give Any

        @execution.called_like(forward)
        def __call__(self) -> None: ...

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Q, K and V, each (B, h, T, d_k): the rows of w_qkv are h heads of each."""
        h = self.n_heads
        if query is key is value:
            return heads_of(self.w_qkv, query, 3 * h, self.d_k).chunk(3, dim=1)
        if plain_weight(self.w_qkv) is not None:  # each input needs a third of the rows
            thirds = thirds_of(self.w_qkv, (query, key, value))
            return tuple(_split(rows, h) for rows in thirds)
        # Hooks and adapters take part only where the layer is called, on all its rows.
        q = heads_of(self.w_qkv, query, 3 * h, self.d_k)
        k = heads_of(self.w_qkv, key, 3 * h, self.d_k)
        v = k if value is key else heads_of(self.w_qkv, value, 3 * h, self.d_k)
        return q[:, :h], k[:, h : 2 * h], v[:, 2 * h :]

    @classmethod
    def from_torch(cls, other: nn.MultiheadAttention) -> Self:
        """A copy of PyTorch's module: same weights, dtype, device and mode; its parameters learn.

        Ours is batch first, whatever `other.batch_first` says. Of pruned or parametrised weights
        the values in use are copied.

        Raises:
            TypeError: `other` is not an nn.MultiheadAttention.
            ValueError: it has what this class has not: kdim, vdim, add_bias_kv, add_zero_attn, a
                dropout of 1, or a forward of its own with weights of its own.
        """
        return conversion.from_torch(cls, other)

    def load_layout(self, state_dict: Mapping[str, Shaped[Tensor, "..."]]) -> str:
        """Loads one attention layer of another class, whatever its layout, and says which it was.

        It finds q, k and v fused (rows q, k, v; "turned" if they are columns), separate, or by
        head, under the names in use, such as `in_proj_weight`, `q_proj.weight` and
        `heads.0.W_query.weight`. A bias that is missing is 0, and causal masks are skipped.

        Raises:
            TypeError, ValueError: it is no such layer, or of other sizes; the sentence says which.
        """
        return conversion.load_layout(self, state_dict)

    def to_torch(self) -> nn.MultiheadAttention:
        """A copy as PyTorch's module (batch_first=True), otherwise as `from_torch` makes ours.

        Raises:
            ValueError: h·d_k differs from d_model, which nn.MultiheadAttention cannot have, or a
                layer was replaced, so that there is no weight to copy.
        """
        return conversion.to_torch(self)

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, d_k={self.d_k}"
        return sizes + (f", dropout={self.dropout}" if self.dropout else "")
