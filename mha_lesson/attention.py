# SPDX-License-Identifier: MIT
"""Multi-head attention, the subject of the course. To be read from the top:

1. `textbook_attention`, the formula line by line, in nothing but PyTorch;
2. `scaled_dot_product_attention`, the same for everyday use, with the weights or without;
3. `split_heads` and `merge_heads`, by which all heads are computed at once;
4. `MultiHeadAttention`, the module: its `forward` is project, split, attend, merge, W^O.

Around it stand `masks`; `refusals` of what does not fit; `execution`, for types, precision and
speed; `conversion` of other classes' parameters; `decoding`, grouped heads with a cache.
tests/lesson/test_attention.py compares it with loops in NumPy, and with PyTorch's module.

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
from mha_lesson.masks import as_bias, open_blocked_rows, with_future, zeroed
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
    variance is d_k. Dividing by √d_k makes it 1: a softmax of large scores has hardly a
    gradient. With every key blocked it is NaN: that row sees all keys, and is 0 below.
    """
    blocked_rows = mask.all(dim=-1, keepdim=True)  # (…, T_q, 1): every key is blocked
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (…, T_q, T_k)
    scores = scores.masked_fill(mask & ~blocked_rows, -math.inf)  # (…, T_q, T_k)
    weights = scores.softmax(dim=-1)  # (…, T_q, T_k), every row adds up to 1
    weights = weights.masked_fill(blocked_rows, 0.0)  # (…, T_q, T_k), these rows to 0
    return weights @ v, weights  # (…, T_q, d_v)


# 2. The same for everyday use


@execution.called_as(execution.AttentionCall)  # overloads, and hints at PyTorch's names
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
        query: Q, (…, T_q, d_k), where … is (B, h), (B,) or nothing.
        key, value: K, (…, T_k, d_k), and V, (…, T_k, d_v).
        mask: bool, True = blocked, of shape (T_q, T_k), (B, T_q, T_k), or four axes
            broadcastable to (B, h, T_q, T_k).
        causal: also block every key after the query's own position (T_q = T_k).
        dropout: the probability that a weight is set to 0, in [0, 1); the others are scaled up.
        return_weights: also return the weights: T_q × T_k numbers for each head, all in memory.

    Returns:
        The context (…, T_q, d_v), and with `return_weights` the weights after dropout,
        (…, T_q, T_k). A query whose every key is blocked has zeros in both. A NaN in a key may
        spoil even rows that block it (NaN + −∞ is NaN), unlike in the textbook's lines.

    Raises:
        TypeError, ValueError: an argument does not fit; the sentence says which and why.
    """
    refusals.require_attention_call(query, key, value, mask, causal, dropout, return_weights)
    context, weights = attend(query, key, value, mask, causal, float(dropout), return_weights)
    return context if weights is None else (context, weights)


def attend(
    q: Q, k: K, v: V, mask: M | None, causal: bool, dropout: float, return_weights: bool
) -> tuple[Context, Weights | None]:
    """The context, and the weights or None; the arguments were checked before."""
    if causal and (return_weights or mask is not None):  # else PyTorch's kernel does it
        mask, causal = with_future(mask, k), False
    mask, blocked_rows = open_blocked_rows(mask, q.ndim)  # a softmax over no key is NaN
    if return_weights:
        weights = execution.in_full_precision(attention_weights, q, k, mask)
        weights = zeroed(weights, blocked_rows)
        weights = F.dropout(weights, dropout) if dropout else weights
        context = weights @ v
    else:  # PyTorch's kernel, in whose bool masks True means keep: it gets 0 and −∞
        weights, bias = None, as_bias(mask, q.dtype)
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal
        )
    return zeroed(context, blocked_rows), weights  # the context, too: 0 · NaN is NaN


def attention_weights(q: Q, k: K, mask: M | None) -> Weights:
    """softmax(Q Kᵀ / √d_k) in few passes over T_q × T_k; each row needs an open key."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (…, T_q, T_k)
    bias = as_bias(mask, scores.dtype)  # 0, and −∞ where blocked
    return (scores if bias is None else scores + bias).softmax(dim=-1)  # (…, T_q, T_k)


# 3. All heads at once


def split_heads(x: Float[Tensor, "B T width"], n_heads: int) -> Float[Tensor, "B {n_heads} T d_k"]:
    """Cuts the last axis into h heads and moves them before the tokens, without a copy.

    In x, (B, T, h·d_k), head i is the columns from i·d_k to (i + 1)·d_k. Of the view,
    (B, h, T, d_k), `@` multiplies the last two axes, and so each head by itself.

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


class MultiHeadAttention(Convertible):  # nn.Module, with from_torch, to_torch and load_layout
    """Concat(head_1, …, head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    `forward` computes all heads at once. Head by head, it is the textbook's formula:

    >>> mha = MultiHeadAttention(d_model=12, n_heads=2, bias=False)  # d_k = 6
    >>> x, mask = torch.randn(3, 5, 12), torch.rand(5, 5) < 0.4
    >>> W_q, W_k, W_v = mha.w_qkv.weight.view(3, 2, 6, 12).mT  # (h, d_model, d_k) each
    >>> heads = [textbook_attention(x @ W_q[i], x @ W_k[i], x @ W_v[i], mask)[0] for i in range(2)]
    >>> output = torch.cat(heads, dim=-1) @ mha.w_o.weight.mT
    >>> torch.allclose(output, mha(x, mask=mask), atol=1e-6)
    True

    Other calls (`mha(query, key, value)` takes one sequence for each role):

        output = mha(x, mask=padding_mask(lengths), causal=True)  # blocks padding and later tokens
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
        for weight in (*self.w_qkv.weight.chunk(3), self.w_o.weight):  # W^Q, W^K, W^V, W^O
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
    ) -> Float[Tensor, "*B T_q d_model"] | tuple[Float[Tensor, "*B T_q d_model"], Weights]:
        """Lets every token of `query` attend to those of `key` and `value`, in all heads at once.

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

        tokens = execution.as_batch(query, key, value)  # (T, d_model) becomes (1, T, d_model)
        q, k, v = self._project(*tokens)  # (B, h, T, d_k) each
        dropout = self.dropout if self.training else 0.0
        context, weights = attend(q, k, v, mask, causal, dropout, return_weights)
        del q, k, v  # W^O can use their memory, unless a gradient needs them
        context = merge_heads(context)  # (B, h, T_q, d_k) -> (B, T_q, h·d_k)
        output = self.w_o(context)  # (B, T_q, d_model)
        execution.require_output("w_o", output, context, self.d_model)  # w_o may be replaced

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
            return split_heads(qkv, 3 * h).chunk(3, dim=1)  # the heads of q, of k and of v
        w_q, w_k, w_v = execution.thirds_of(self.w_qkv, width)  # its rows as three layers
        projected = w_q(query), w_k(key), w_v(value)  # (B, T, h·d_k) each
        return tuple(split_heads(x, h) for x in projected)

    def extra_repr(self) -> str:
        sizes = f"d_model={self.d_model}, n_heads={self.n_heads}, d_k={self.d_k}"
        return sizes + (f", dropout={self.dropout}" if self.dropout else "")
