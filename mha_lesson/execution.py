"""How attention is called and run: types and names, what is around a layer, precision, pieces.

Behind `attention`, which holds the formula; nothing here changes it, but for rounding.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, Protocol, TypeVar, cast, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from mha_lesson.refusals import describe

SCORES_AT_ONCE = 2**18  # 1 MiB of float32: they stay in a processor's cache

# ---------------------------------------------------------------- what a call gives, and its names

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
}


def require_our_names(named: dict[str, Any]) -> None:
    for name in named:
        if name in OTHER_NAMES:
            raise TypeError(f"{name} is PyTorch's; write {OTHER_NAMES[name]}.")


class Called(nn.Module):
    """A module that says, if PyTorch's name of an argument comes, what it is here."""

    def _called(self, *args: Any, **named: Any) -> Any:
        require_our_names(named)
        return super().__call__(*args, **named)

    __call__: Callable[..., Any] = _called


Call = TypeVar("Call")


def called_as(_: type[Call]) -> Callable[[Callable[..., Any]], Call]:
    """Puts these types over a function, which says what PyTorch's names are here."""

    def around(function: Callable[..., Any]) -> Call:
        @wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            require_our_names(named)
            return function(*args, **named)

        return cast(Call, called)

    return around


# With `return_weights=True` a call gives a pair, else a tensor: only overloads can say so.


class AttentionCall(Protocol):
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


# PyTorch's own names for them; without any every layer is called, which is right, if slower.
GLOBAL_HOOKS = [v for k, v in vars(hooks).items() if k[:8] == "_global_" and k[-6:] == "_hooks"]


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
        and not any(GLOBAL_HOOKS or [True])
    )
    return weight if plain else None


def require_output(name: str, output: Any, x: Tensor, width: int) -> None:
    """Refuses a layer, put in the place of w_qkv or w_o, whose output has another shape."""
    shape = (*x.shape[:-1], width)
    if not isinstance(output, Tensor) or output.shape != shape:
        raise ValueError(f"{name} must give a tensor of shape {shape}; it gave {describe(output)}.")


def as_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One sequence (T, d_model) of each as a batch of one; what is one tensor stays one."""
    if query.ndim == 3:
        return query, key, value
    q = query.unsqueeze(0)
    k = q if key is query else key.unsqueeze(0)
    return q, k, k if value is key else value.unsqueeze(0)


def thirds_of(w_qkv: nn.Module, width: int) -> list[Callable[[Tensor], Tensor]]:
    """W^Q, W^K and W^V as functions: tokens (B, T, d_model) give (B, T, width)."""
    if isinstance(w_qkv, nn.Linear) and plain_weight(w_qkv) is not None:
        biases = (None,) * 3 if w_qkv.bias is None else w_qkv.bias.chunk(3)
        thirds = zip(w_qkv.weight.chunk(3), biases, strict=True)
        return [partial(_linear, weight, bias) for weight, bias in thirds]
    # Hooks and adapters take part only where the layer is called, as a whole.
    last: list[Tensor] = []  # tokens and what came of them: key and value may be one

    def third(i: int, x: Tensor) -> Tensor:
        if not last or last[0] is not x:
            last[:] = x, w_qkv(x)
            require_output("w_qkv", last[1], x, 3 * width)
        return last[1][..., i * width : (i + 1) * width]

    return [partial(third, i) for i in range(3)]


def _linear(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    if x.stride(0) == 0:  # one expanded sequence: projected once
        return F.linear(x[:1], weight, bias).expand(x.shape[0], -1, -1)
    return F.linear(x, weight, bias)


# ---------------------------------------------------------------- precision and pieces


def fully_blocked_rows(mask: Bool[Tensor, "..."]) -> Bool[Tensor, "..."] | None:
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


def in_full_precision(
    weights_of: Callable[..., Tensor], q: Tensor, k: Tensor, mask: Tensor | None
) -> Tensor:
    """`weights_of(q, k, mask)` in at least float32, rounded to the dtype of q.

    Many weights, without a gradient, are computed for some queries at a time: so all
    T_q × T_k weights are held, but never all scores beside them.
    """
    # Autocast off: float16 ends at 65,504, and bfloat16 has only 8 bits a score.
    device = "cpu" if q.is_cpu else q.device.type  # device.type is slow
    if device != "meta" and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return in_full_precision(weights_of, q, k, mask)
    if (
        is_traced()  # sizes may be symbols
        or q.numel() * k.shape[-2] <= SCORES_AT_ONCE * q.shape[-1]
        or (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad))
    ):
        if q.dtype.itemsize >= 4:
            return weights_of(q, k, mask)
        return weights_of(q.float(), k.float(), mask).to(q.dtype)
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.to(wide).contiguous()  # it is read again for every few queries
    n = max(1, SCORES_AT_ONCE // (math.prod(q.shape[:-2]) * k.shape[-2]))
    weights = q.new_empty((*q.shape[:-1], k.shape[-2]))
    for start in range(0, q.shape[-2], n):
        some = ..., slice(start, start + n), slice(None)
        mask_of_some = mask if mask is None or mask.shape[-2] == 1 else mask[some]
        weights[some] = weights_of(q[some].to(wide), k, mask_of_some)
    return weights
