"""How attention is called and run: types and names, what is around a layer, precision, pieces.

Behind `attention`, which holds the formula; nothing here changes what comes out.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from mha_lesson.refusals import require_output

SCORES_AT_ONCE = 2**18  # 1 MiB of float32: they stay in a processor's cache

# ---------------------------------------------------------------- what a call gives, and its names

# With `return_weights=True` a call gives a pair, else a tensor: only overloads can say so.
Call = TypeVar("Call")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# PyTorch's name of an argument → what to write here.
OTHER_NAMES = {
    "attn_mask": "mask, bool, True = blocked (of F.scaled_dot_product_attention: mask=~attn_mask)",
    "key_padding_mask": "mask=key_padding_mask[:, None, None, :], True = blocked",
    "is_causal": "causal",
    "need_weights": "return_weights, which is False unless asked for",
    "average_attn_weights": "return_weights, and weights.mean(dim=1) of what every head gives",
    "dropout_p": "dropout",
    "scale": "query * scale * d_k**0.5: scores are divided by sqrt(d_k) here",
    "enable_gqa": "GroupedQueryAttention, or keys and values repeated for each head",
    "embed_dim": "d_model",
    "num_heads": "n_heads",
    "batch_first": "nothing, since inputs are (B, T, d_model)",
}


def in_our_words(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, which says what PyTorch's names for arguments are here."""

    @wraps(function)
    def called(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
        for name in named:
            if name in OTHER_NAMES:
                raise TypeError(f"{name} is PyTorch's; write {OTHER_NAMES[name]}.")
        return function(*args, **named)

    return called


def called_as(_: type[Call]) -> Callable[[Callable[..., Any]], Call]:
    """Puts these types over a function, `in_our_words`."""
    return cast(Any, in_our_words)


class AttentionCall(Protocol):
    """A call of `scaled_dot_product_attention`."""

    @overload
    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
        causal: bool = False, dropout: float = 0.0,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
        causal: bool = False, dropout: float = 0.0,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
        causal: bool = False, dropout: float = 0.0,
        return_weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip


class ModuleCall(Protocol):
    """A call of a `MultiHeadAttention`."""

    @overload
    def __call__(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False,
        return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        mask: Tensor | None = None, *, causal: bool = False,
        return_weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip


# ---------------------------------------------------------------- a layer and what is around it


# PyTorch's own name for it; without it every layer is called, which is right, if slower.
_any_global_hook = getattr(hooks, "_has_any_global_hook", lambda: True)


def plain_weight(layer: nn.Module) -> Float[Tensor, "width d_model"] | None:
    """The weight of an nn.Linear with nothing around it; None where the layer must be called.

    It must be called if it has hooks, an adapter, pruning, a norm or another parametrization, or
    quantised or offloaded weights, and while a hook is set on all modules.
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
        and not _any_global_hook()
    )
    return weight if plain else None


def as_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One sequence (T, d_model) of each as a batch of one; what is one tensor stays one."""
    if query.ndim == 3:
        return query, key, value
    q = query.unsqueeze(0)
    k = q if key is query else key.unsqueeze(0)
    return q, k, k if value is key else value.unsqueeze(0)


def thirds_of(
    w_qkv: nn.Module, query: Tensor, key: Tensor, value: Tensor, width: int
) -> Iterable[Float[Tensor, "B T {width}"]]:
    """What the layer makes of query (its first third), key (second), value (third)."""
    if isinstance(w_qkv, nn.Linear) and plain_weight(w_qkv) is not None:
        return _third_by_third(w_qkv, (query, key, value))
    # Hooks and adapters take part only where the layer is called, as a whole.
    q, k = w_qkv(query), w_qkv(key)
    v = k if value is key else w_qkv(value)
    for output, x in ((q, query), (k, key), (v, value)):
        require_output("w_qkv", output, x, 3 * width)
    return q[..., :width], k[..., width : 2 * width], v[..., 2 * width :]


def _third_by_third(layer: nn.Linear, inputs: Iterable[Tensor]) -> Iterator[Tensor]:
    biases = (None,) * 3 if layer.bias is None else layer.bias.chunk(3)
    for x, weight, bias in zip(inputs, layer.weight.chunk(3), biases, strict=True):
        if x.stride(0) == 0:  # one expanded sequence: projected once
            yield F.linear(x[:1], weight, bias).expand(x.shape[0], -1, -1)
        else:
            yield F.linear(x, weight, bias)


# ---------------------------------------------------------------- precision and pieces


def keyless_rows(mask: Bool[Tensor, "..."]) -> Bool[Tensor, "..."] | None:
    """(…, T_q, 1), True where every key is blocked; None where there is no such row.

    Returned in any case where looking means waiting for a GPU, or where there are no values yet.
    """
    rows = mask.all(dim=-1, keepdim=True)
    if rows.is_cpu and not is_traced():
        try:
            return rows if rows.any() else None
        except RuntimeError:  # under vmap, or without values
            pass
    return rows


def is_traced() -> bool:
    """Whether a graph is being made, for other values than those at hand."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


Weighing = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def in_full_precision_piece_by_piece(weights_of: Weighing) -> Weighing:
    """`weights_of(q, k, mask)` in at least float32, rounded to the dtype of q.

    Many weights, without a gradient, are computed for some queries at a time: so all
    T_q × T_k weights are held, but never all scores beside them.
    """

    @wraps(weights_of)
    def weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        # Autocast off: float16 ends at 65,504, and bfloat16 has only 8 bits a score.
        device = "cpu" if q.is_cpu else q.device.type  # device.type is slow
        if device != "meta" and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return weights(q, k, mask)
        if _in_one_piece(q, k):
            if q.dtype.itemsize >= 4:
                return weights_of(q, k, mask)
            return weights_of(q.float(), k.float(), mask).to(q.dtype)
        wide = torch.promote_types(q.dtype, torch.float32)
        k = k.to(wide).contiguous()  # it is read again for every few queries
        n = max(1, SCORES_AT_ONCE // (math.prod(q.shape[:-2]) * k.shape[-2]))
        result = q.new_empty((*q.shape[:-1], k.shape[-2]))
        for start in range(0, q.shape[-2], n):
            some = ..., slice(start, start + n), slice(None)
            mask_of_some = mask if mask is None or mask.shape[-2] == 1 else mask[some]
            result[some] = weights_of(q[some].to(wide), k, mask_of_some)
        return result

    return weights


def _in_one_piece(q: Tensor, k: Tensor) -> bool:
    if is_traced():  # sizes may be symbols
        return True
    if math.prod(q.shape[:-1]) * k.shape[-2] <= SCORES_AT_ONCE:
        return True
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
