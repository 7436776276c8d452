# SPDX-License-Identifier: MIT
"""Multi-head attention, the subject of the course. To be read from the top:

1. `textbook_attention`, the formula line by line, in nothing but PyTorch;
2. `scaled_dot_product_attention`, the same for everyday use, with the weights or without;
3. `split_heads` and `merge_heads`, by which all heads are computed at once;
4. `MultiHeadAttention`, the module: its `forward` is project, split, attend, merge, W^O.

Around it stand `masks`; `refusals` of what does not fit; `execution`, for types, precision and
speed; `conversion` of other classes' parameters; `decoding`, grouped heads with a cache.

Axis letters, here and everywhere: B sequences in a batch, T tokens (T_q queries, T_k keys),
h heads of d_k dimensions each, d_model dimensions of a token. *Weights* are what a softmax gives,
(…, T_q, T_k); what is learned are *parameters*.

Source: Vaswani et al. (2017), Attention Is All You Need, section 3.2.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lesson import execution
from mha_lesson.conversion import Convertible
from mha_lesson.masks import as_bias, opened, with_future, zeroed
from mha_lesson.refusals import of_attention as refusals

Q = Float[Tensor, "*batch T_q d_k"]
K = Float[Tensor, "*batch T_k d_k"]
V = Float[Tensor, "*batch T_k d_v"]
Context = Float[Tensor, "*batch T_q d_v"]
Weights = Float[Tensor, "*batch T_q T_k"]
M = Bool[Tensor, "..."]  # a mask, True = blocked

# 1. The formula


def textbook_attention(q: Q, k: K, v: V, mask: M) -> tuple[Context, Weights]:
    """softmax(Q Kᵀ / √d_k) V, as it is written; `mask` is True where blocked.

    A score is a sum of d_k products: if they are independent and have variance 1, its
    variance is d_k. Dividing by √d_k makes it 1 again: large scores leave the softmax
    hardly a gradient. A softmax over no key is NaN: such a row sees all and becomes 0.
    """
    blocked_rows = mask.all(dim=-1, keepdim=True)  # (…, T_q, 1): queries without a key
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (…, T_q, T_k)
    scores = scores.masked_fill(mask & ~blocked_rows, -math.inf)  # (…, T_q, T_k)
    weights = scores.softmax(dim=-1)  # (…, T_q, T_k), every row adds up to 1
    weights = weights.masked_fill(blocked_rows, 0.0)  # (…, T_q, T_k), these rows to 0
    return weights @ v, weights  # (…, T_q, d_v)


# 2. The same for everyday use


@execution.called_as(execution.AttentionCall)  # types for checkers: a tensor, or two
def scaled_dot_product_attention(
    query: Q,
    key: K,
    value: V,
    mask: M | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Context | tuple[Context, Weights]:
    """softmax(Q Kᵀ / √d_k) V: every query takes a weighted mean of the values.

    Args:
        query: Q, (…, T_q, d_k); the axes before are none, (B,) or (B, h).
        key: K, (…, T_k, d_k).
        value: V, (…, T_k, d_v).
        mask: bool, True = blocked, of shape (T_q, T_k), (B, T_q, T_k), or four axes
            broadcastable to (B, h, T_q, T_k).
        causal: also block every key after the query's own position (T_q = T_k).
        dropout: how probably a weight is set to 0, in [0, 1); the others are scaled up.
        return_weights: also return the weights, at the price of holding T_q × T_k numbers.

    Returns:
        The context (…, T_q, d_v), and with `return_weights` the weights used, (…, T_q, T_k).
        A query whose every key is blocked has zeros in both. A NaN in a key makes the rows NaN
        whose mask blocks it, too (NaN + −∞ is NaN); the textbook's lines overwrite that score.

    Raises:
        TypeError, ValueError: an argument does not fit; the sentence says which and why.
    """
    refusals.require_attention_call(query, key, value, mask, causal, dropout, return_weights)
    context, weights = attend(query, key, value, mask, causal, float(dropout), return_weights)
    return context if weights is None else (context, weights)


def attend(
    q: Q, k: K, v: V, mask: M | None, causal: bool, dropout: float, return_weights: bool
) -> tuple[Context, Weights | None]:
    """The context, and the weights if they are asked for, of inputs that fit."""
    if causal and (return_weights or mask is not None):  # else the kernel blocks
        mask, causal = with_future(mask, k), False
    mask, blocked_rows = opened(mask, q.ndim)  # rows without a key see all, then are 0
    if return_weights:
        weights = execution.in_full_precision(attention_weights, q, k, mask)
        weights = zeroed(weights, blocked_rows)
        weights = F.dropout(weights, dropout) if dropout else weights
        context = weights @ v
    else:  # PyTorch's kernel, whose True means keep: it gets −∞ where blocked
        weights, bias = None, as_bias(mask, q.dtype)
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal
        )
    return zeroed(context, blocked_rows), weights  # 0 · NaN is NaN: the context, too


def attention_weights(q: Q, k: K, mask: M | None) -> Weights:
    """softmax(Q Kᵀ / √d_k); the mask must leave every row a key."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (…, T_q, T_k)
    bias = as_bias(mask, scores.dtype)  # −∞ where blocked
    return (scores if bias is None else scores + bias).softmax(dim=-1)


# 3. All heads at once


def split_heads(x: Float[Tensor, "B T width"], n_heads: int) -> Float[Tensor, "B {n_heads} T d_k"]:
    """Cuts the last axis into h heads and moves them before the tokens, without a copy.

    In x, (B, T, h·d_k), the heads lie side by side, head 0 first. Of the view, (B, h, T, d_k), a
    product takes the last two axes, so each head by itself.

    Raises:
        TypeError, ValueError: `x` does not have three axes, or h does not divide the last one.
    """
    refusals.require_split(x, n_heads)
    B, T, width = x.shape
    return x.view(B, T, n_heads, width // n_heads).permute(0, 2, 1, 3)


def merge_heads(x: Float[Tensor, "B h T d_k"]) -> Float[Tensor, "B T h*d_k"]:
    """Undoes `split_heads`: copies the heads side by side, the paper's concatenation.

    Raises:
        TypeError, ValueError: `x` does not have four axes.
    """
    refusals.require_heads(x)
    return x.permute(0, 2, 1, 3).flatten(2)  # (B, T, h, d_k) -> (B, T, h·d_k)


# 4. The module


class MultiHeadAttention(Convertible):
    """Concat(head_1, …, head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Head by head (here without biases and dropout); `forward` computes all heads at once:

        heads = [textbook_attention(x @ W_q[i], x @ W_k[i], x @ W_v[i], mask)[0] for i in range(h)]
        output = torch.cat(heads, dim=-1) @ W_o

    How it is called (`mha(query, key, value)` may get other tokens for each role):

        mha = MultiHeadAttention(512, 8)  # one layer, w_qkv, holds W^Q, W^K, W^V of all heads
        output = mha(x)  # self-attention: (B, T, 512) gives (B, T, 512)
        output = mha(x, causal=True)  # the same, where no token sees a later one
        output, weights = mha(x, memory, return_weights=True)  # cross-attention

    Attributes:
        w_qkv: nn.Linear d_model → 3·h·d_k, which gives q, then k, then v, head 0 first in each.
        w_o: nn.Linear h·d_k → d_model, the paper's W^O, transposed as in every nn.Linear.
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

        So with h·d_k = d_model, scores of independent tokens of variance 1 have variance 1.
        Small models end at a lower loss from `nn.Linear`'s smaller start (tools/BENCHMARKS.md).

        Args:
            d_model: dimensions of a token, in and out.
            n_heads: h.
            d_k: dimensions of a head; d_model / n_heads if None, else free.
            bias: whether the projections add a bias.
            dropout: the share of attention weights dropped in training, in [0, 1).
            device, dtype: of the parameters; PyTorch's defaults if None.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        super().__init__()
        sizes = refusals.require_module(d_model, n_heads, d_k, bias, dropout, device, dtype)
        d_model, n_heads, d_k = sizes
        self.d_model, self.n_heads, self.d_k, self.dropout = d_model, n_heads, d_k, float(dropout)
        self.w_qkv = nn.Linear(d_model, 3 * n_heads * d_k, bias, device, dtype)
        self.w_o = nn.Linear(n_heads * d_k, d_model, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters afresh; biases become 0."""
        for weight in (*self.w_qkv.weight.chunk(3), self.w_o.weight):
            nn.init.xavier_uniform_(weight)
        if self.w_o.bias is not None:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    __call__: execution.ModuleCall  # for type checkers: nn.Module's own would give Any

    def forward(
        self,
        query: Float[Tensor, "*B T_q d_model"],
        key: Float[Tensor, "*B T_k d_model"] | None = None,
        value: Float[Tensor, "*B T_k d_model"] | None = None,
        mask: M | None = None,
        *,
        causal: bool = False,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "*B T_q d_model"]
        | tuple[Float[Tensor, "*B T_q d_model"], Float[Tensor, "*B h T_q T_k"]]
    ):
        """Gives every token of `query`, head by head, a weighted mean of the projected `value`.

        Args:
            query: (B, T_q, d_model), or (T_q, d_model) for one sequence.
            key: (B, T_k, d_model); `query` if None.
            value: (B, T_k, d_model); `key` if None.
            mask: as in `scaled_dot_product_attention`: two axes are always (T_q, T_k), three
                (B, T_q, T_k). Padding has four, (B, 1, 1, T_k), as `padding_mask` makes them.
            causal: also block every key after the query's own position (T_q = T_k).
            return_weights: also return every head's weights, not averaged. Only this path has
                second and forward-mode derivatives (a gradient penalty, jvp), not the fused one.

        Returns:
            (B, T_q, d_model), with `return_weights` also (B, h, T_q, T_k); no B if query has none.

        Raises:
            TypeError, ValueError: an argument does not fit; the sentence says which and why.
        """
        key = query if key is None else key
        value = key if value is None else value
        refusals.require_module_call(self, query, key, value, mask, causal, return_weights)

        q, k, v = self._project(*execution.as_batch(query, key, value))  # (B, h, T, d_k) each
        dropout = self.dropout if self.training else 0.0
        context, weights = attend(q, k, v, mask, causal, dropout, return_weights)
        del q, k, v  # without a gradient their memory is free before W^O asks for more
        context = merge_heads(context)  # (B, h, T_q, d_k) -> (B, T_q, h·d_k)
        output = self.w_o(context)  # (B, T_q, d_model)
        execution.require_output("w_o", output, context, self.d_model)

        if query.ndim == 2:
            output = output.squeeze(0)
            weights = None if weights is None else weights.squeeze(0)
        return output if weights is None else (output, weights)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Q, K and V, (B, h, T, d_k) each, of tokens (B, T, d_model)."""
        h, width = self.n_heads, self.n_heads * self.d_k
        if query is key is value:  # one product gives all three
            qkv = self.w_qkv(query)  # (B, T, 3·h·d_k)
            execution.require_output("w_qkv", qkv, query, 3 * width)
            heads = split_heads(qkv, 3 * h)  # (B, 3·h, T, d_k): those of q, of k, of v
            return heads.chunk(3, dim=1)
        W_q, W_k, W_v = execution.thirds_of(self.w_qkv, width)  # each as a layer of its own
        projected = W_q(query), W_k(key), W_v(value)  # (B, T, h·d_k) each
        return tuple(split_heads(x, h) for x in projected)

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, d_k={self.d_k}"
        return sizes + (f", dropout={self.dropout}" if self.dropout else "")
