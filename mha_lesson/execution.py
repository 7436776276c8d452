"""How attention is run: what stands around a layer, at what precision, in which pieces.

Behind `attention`, which holds the formula; nothing here changes what comes out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules import module as hooks

SCORES_AT_ONCE = 2**18  # 1 MiB of float32: they stay in a processor's cache
Forward = TypeVar("Forward")


def called_like(forward: Forward) -> Callable[[object], Forward]:
    """Gives a module's `__call__` the types of its `forward`, which pyright misses in an alias."""
    return lambda _: forward


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
        and not hooks._has_any_global_hook()
    )
    return weight if plain else None


def thirds_of(layer: nn.Linear, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """What q's rows make of the first input, k's of the second, v's of the third."""
    biases = (None,) * 3 if layer.bias is None else layer.bias.chunk(3)
    for x, weight, bias in zip(inputs, layer.weight.chunk(3), biases, strict=True):
        if x.ndim == 3 and x.stride(0) == 0:  # one expanded sequence: projected once
            yield F.linear(x[:1], weight, bias).expand(x.shape[0], -1, -1)
        else:
            yield F.linear(x, weight, bias)


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


def in_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switches autocast off: float16 ends at 65,504, and bfloat16 has only 8 bits for a score."""
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def by_rows(
    weights_of: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    dtype: torch.dtype,
) -> Float[Tensor, "*batch T_q T_k"]:
    """`weights_of(query, key, mask)`, rounded to `dtype`.

    Where no gradient is recorded, it is called for some queries at a time: so all
    T_q × T_k weights are held, but never all scores beside them.
    """
    recorded = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    if recorded or is_traced():  # traced sizes may be symbols
        return weights_of(query, key, mask).to(dtype)
    n = max(1, SCORES_AT_ONCE // max(1, math.prod(query.shape[:-2]) * key.shape[-2]))
    queries = query.split(n, dim=-2)
    each_row = mask is not None and mask.shape[-2] > 1
    masks = mask.split(n, dim=-2) if each_row else [mask] * len(queries)
    first = weights_of(queries[0], key, masks[0])
    if len(queries) == 1:
        return first.to(dtype)
    weights = first.new_empty((*query.shape[:-1], key.shape[-2]), dtype=dtype)
    weights[..., :n, :] = first
    del first
    for i in range(1, len(queries)):
        weights[..., i * n : (i + 1) * n, :] = weights_of(queries[i], key, masks[i])
    return weights
