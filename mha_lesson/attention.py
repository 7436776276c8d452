"""Multi-head attention, the subject of the course. To be read from the top:

1. `textbook_attention`, the formula line by line;
2. `scaled_dot_product_attention`, the same, faster;
3. `split_heads` and `merge_heads`, by which all heads are computed at once;
4. `MultiHeadAttention`, the module, and the way to PyTorch's and back.

Axis letters, here and everywhere: B sequences in a batch, T tokens (T_q queries, T_k keys),
h heads of d_k dimensions each, d_model dimensions of a token.

Source: Vaswani et al. (2017), Attention Is All You Need, section 3.2.
"""

import math
from operator import attrgetter
from typing import Self

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lesson.attention_weights import attention_weights, fit_axes
from mha_lesson.refusals import (
    describe,
    require_axes,
    require_bool,
    require_positive_int,
    require_probability,
    say,
)
from mha_lesson.refusals.of_attention import (
    require_attention_call,
    require_copied,
    require_divisible,
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
    """softmax(Q Kᵀ / √d_k) V, as it is written; `mask` is True where blocked."""
    blocked_rows = mask.all(dim=-1, keepdim=True)  # (…, T_q, 1): queries without a key
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # (…, T_q, T_k)
    scores = scores.masked_fill(mask & ~blocked_rows, -math.inf)  # (…, T_q, T_k)
    weights = scores.softmax(dim=-1)  # (…, T_q, T_k), every row adds up to 1
    weights = weights.masked_fill(blocked_rows, 0.0)  # (…, T_q, T_k), these rows to 0
    return weights @ value, weights  # (…, T_q, d_v)


# 2. The same, faster


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
    blocked_rows = None
    if mask is not None:
        mask = fit_axes(mask, query.ndim)
        if causal:
            future = mask.new_ones(query.shape[-2], key.shape[-2]).triu(diagonal=1)
            mask, causal = mask | future, False
        # A softmax over no key is NaN: these rows attend, and are set to zero below.
        blocked_rows = mask.all(dim=-1, keepdim=True)  # (…, T_q or 1, 1)
        # A last axis of 1 blocks whole rows only; a GPU's fused kernel cannot take it.
        mask = None if mask.shape[-1] == 1 else mask & ~blocked_rows

    if return_weights:
        # Every row is read T times below: lay out each head's rows in one piece, once.
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        weights = attention_weights(query, key, mask, causal)
        if blocked_rows is not None:
            weights = weights.masked_fill(blocked_rows, 0.0)
        weights = F.dropout(weights, dropout) if dropout else weights
        context = weights @ value
    else:
        # Here, and only here, True = blocked is turned round: PyTorch's function wants
        # True = keep, and on a GPU each row of it in one piece.
        weights, keep = None, None if mask is None else ~mask.contiguous()
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal
        )
    if blocked_rows is not None:  # of weights 0, too: a value may be NaN
        context = context.masked_fill(blocked_rows, 0.0)
    return context, weights


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
    require_axes("x", x, 3, "(B, T, h*d_k)")
    require_positive_int("n_heads", n_heads)
    require_divisible(x.shape[-1], n_heads)
    return _split(x, n_heads)


def _split(x: Float[Tensor, "*B T width"], n_heads: int) -> Float[Tensor, "_ {n_heads} T d_k"]:
    B, T, width = x.shape if x.ndim == 3 else (1, *x.shape)
    return x.view(B, T, n_heads, width // n_heads).permute(0, 2, 1, 3)  # (B, h, T, d_k)


def merge_heads(x: Float[Tensor, "B h T d_k"]) -> Float[Tensor, "B T h*d_k"]:
    """Lays the heads side by side again: the concatenation of the paper, undoing `split_heads`.

    Args:
        x: (B, h, T, d_k).

    Returns:
        (B, T, h·d_k), head 0 first.

    Raises:
        TypeError, ValueError: `x` has not four axes.
    """
    require_axes("x", x, 4, "(B, h, T, d_k)")
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
    ) -> None:
        """Draws each of W^Q, W^K, W^V and W^O by Glorot's rule for that matrix; biases are 0.

        Two other starts are narrower: that of `nn.MultiheadAttention`, which applies the rule to
        the fused matrix, and that of separate `nn.Linear` layers. With one block the course's
        language model learned more from them at each of three learning rates; after 600 steps at
        the best rate it stood at 1.87 nats a character from this start, at 1.82 and 1.79 from
        those. With two blocks they led at half that rate, by less at that rate, and at twice that
        rate `nn.Linear`'s fell behind (tools/BENCHMARKS.md). This start stays, since all that
        the course has trained began with it; `nn.init` draws another in a line.

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            dropout: the share of attention weights dropped in training, in [0, 1).

        Raises:
            TypeError, ValueError: a size is not a positive integer, n_heads does not divide
                d_model while d_k is None, or dropout lies outside [0, 1).
        """
        super().__init__()
        require_positive_int("d_model", d_model)
        require_positive_int("n_heads", n_heads)
        require_bool("bias", bias)
        require_probability("dropout", dropout)
        if d_k is None:
            require_divisible(d_model, n_heads)
            d_k = d_model // n_heads
        require_positive_int("d_k", d_k)
        d_model, n_heads, d_k = int(d_model), int(n_heads), int(d_k)  # torch wants Python's own
        self.d_model, self.n_heads, self.d_k, self.dropout = d_model, n_heads, d_k, float(dropout)
        self.w_qkv = nn.Linear(d_model, 3 * n_heads * d_k, bias=bias)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights afresh."""
        for weight in (*self.w_qkv.weight.chunk(3), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

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
        weight, sizes = plain_weight(self.w_qkv), (self.d_model, self.n_heads)
        require_module_call(query, key, value, mask, causal, return_weights, weight, sizes)

        q, k, v = self._project(query, key, value, weight)  # (B, h, T, d_k) each
        dropout = self.dropout if self.training else 0.0
        context, weights = attend(q, k, v, mask, causal, dropout, return_weights)
        output = self.w_o(merge_heads(context))  # (B, T_q, d_model)
        require_output(output)

        if query.ndim == 2:
            output = output.squeeze(0)
            weights = None if weights is None else weights.squeeze(0)
        return output if weights is None else (output, weights)

    def _project(
        self, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Q, K and V, each (B, h, T, d_k)."""
        # The rows of w_qkv are 3h heads: h of queries, h of keys, h of values.
        h, layer = self.n_heads, self.w_qkv
        if query is key is value:
            return project(layer, query, 3 * h, self.d_k, weight).chunk(3, dim=1)
        if weight is None:  # the layer must be called, and gives all rows of each input
            q = project(layer, query, 3 * h, self.d_k, None)
            k = project(layer, key, 3 * h, self.d_k, None)
            v = k if value is key else project(layer, value, 3 * h, self.d_k, None)
            return q[:, :h], k[:, h : 2 * h], v[:, 2 * h :]
        # Each input needs a third of the rows.
        width, bias = h * self.d_k, layer.bias
        thirds = weight.split(width), (None,) * 3 if bias is None else bias.split(width)
        parts = zip((query, key, value), *thirds, strict=True)
        return tuple(_split(_linear(x, w, b), h) for x, w, b in parts)

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
        if not isinstance(other, nn.MultiheadAttention):
            raise TypeError(f"other must be an nn.MultiheadAttention; got {describe(other)}.")
        if other.in_proj_weight is None:
            raise ValueError(
                f"other must have one width for query, key and value; got embed_dim = "
                f"{other.embed_dim}, kdim = {other.kdim}, vdim = {other.vdim}."
            )
        if other.bias_k is not None or other.add_zero_attn:
            raise ValueError("other must be without add_bias_kv and add_zero_attn; it has one.")
        extra = other.state_dict().keys() - _OUR_NAMES.keys()
        if extra and type(other).forward is not nn.MultiheadAttention.forward:
            raise ValueError(
                f"other must have no weights but those of nn.MultiheadAttention; got one with "
                f"{say(sorted(extra))}."
            )
        has_bias = other.in_proj_bias is not None
        mha = cls(other.embed_dim, other.num_heads, bias=has_bias, dropout=other.dropout)
        mha.to(other.in_proj_weight).train(other.training)
        mha.load_state_dict(_renamed(other, {ours: name for name, ours in _OUR_NAMES.items()}))
        return mha

    def to_torch(self) -> nn.MultiheadAttention:
        """A copy as PyTorch's module (batch_first=True), otherwise as `from_torch` makes ours.

        Raises:
            ValueError: h·d_k differs from d_model, which nn.MultiheadAttention cannot have, or a
                layer was replaced, so that there is no weight to copy.
        """
        require_copied(w_qkv=self.w_qkv, w_o=self.w_o)
        if self.n_heads * self.d_k != self.d_model:
            raise ValueError(
                f"nn.MultiheadAttention needs n_heads * d_k = d_model; this module has "
                f"{self.n_heads} * {self.d_k} and d_model = {self.d_model}."
            )
        other = nn.MultiheadAttention(
            self.d_model,
            self.n_heads,
            dropout=self.dropout,
            bias=self.w_o.bias is not None,
            batch_first=True,
        )
        other.to(self.w_o.weight).train(self.training)
        other.load_state_dict(_renamed(self, _OUR_NAMES))
        return other

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, d_k={self.d_k}"
        return sizes + (f", dropout={self.dropout}" if self.dropout else "")


# PyTorch's name of a parameter → ours.
_OUR_NAMES = {
    "in_proj_weight": "w_qkv.weight",
    "in_proj_bias": "w_qkv.bias",
    "out_proj.weight": "w_o.weight",
    "out_proj.bias": "w_o.bias",
}


def _renamed(module: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """The weights in use by `module` under new names, `names` being new → own; biases if any."""
    tensors = {new: attrgetter(own)(module) for new, own in names.items()}
    return {new: x for new, x in tensors.items() if x is not None}


def plain_weight(layer: nn.Module) -> Float[Tensor, "width d_model"] | None:
    """The weight of an nn.Linear with nothing around it; None where the layer must be called.

    So it must with hooks, adapters, pruning, norms, parametrizations, quantised and offloaded
    weights. (Not with hooks on all modules at once, which only observe.)
    """
    weight = layer._parameters.get("weight")
    plain = (
        type(layer) is nn.Linear
        and type(weight) in (nn.Parameter, Tensor)
        and not layer._forward_pre_hooks
        and not layer._forward_hooks
        and not layer._backward_pre_hooks
        and not layer._backward_hooks
        and "forward" not in layer.__dict__
    )
    return weight if plain else None


def project(
    layer: nn.Module,
    x: Float[Tensor, "*B T d_model"],
    n_heads: int,
    d_k: int,
    weight: Float[Tensor, "width d_model"] | None,
) -> Float[Tensor, "_ {n_heads} T {d_k}"]:
    """Calls the layer and cuts what it gives into heads; `weight` as `plain_weight` says."""
    rows = layer(x)
    if weight is None:  # something around the layer made them
        require_rows(rows, (*x.shape[:-1], n_heads * d_k))
    return _split(rows, n_heads)


def _linear(
    x: Float[Tensor, "*B T d_model"], weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "*B T width"]:
    """A sequence expanded to a batch, such as learned queries, is projected once."""
    if x.ndim == 3 and x.stride(0) == 0:
        return F.linear(x[:1], weight, bias).expand(len(x), -1, -1)
    return F.linear(x, weight, bias)
