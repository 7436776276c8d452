"""What `decoding` refuses, in sentences that name the argument, what was expected and what came."""

from typing import Any

import torch
from torch import Tensor

from mha_lesson.execution import plain_weight
from mha_lesson.refusals import (
    IDS,
    describe,
    require_axes,
    require_bool,
    require_floats,
    require_kind,
    require_positive,
    require_sizes,
)
from mha_lesson.refusals.of_attention import require_layer_sizes, require_mask, require_tokens_for


def _require_even(name: str, size: int) -> None:
    if size % 2 or size == 0:
        raise ValueError(
            f"{name} must be even and above 0, since dimensions turn in pairs; got {size}."
        )


def require_rotation(x: Any, positions: Any, base: Any) -> None:
    """x (…, T, d_k) of floats, d_k even; positions (T,) integers on its device; base above 0."""
    axes = "(..., T, d_k)"
    require_floats("x", x, axes)
    if x.ndim < 2:
        raise ValueError(f"x must have two axes or more, {axes}; got {describe(x)}.")
    _require_even("d_k, the last axis of x,", x.shape[-1])
    require_axes("positions", positions, 1, "(T,)")
    if positions.dtype not in IDS:
        raise TypeError(f"positions must be integers, int64 or int32; got {describe(positions)}.")
    if positions.shape[0] != x.shape[-2]:  # len would fix T in an export
        raise ValueError(
            f"positions must hold one integer for each of the T = {x.shape[-2]} rows of x; "
            f"got {describe(positions)}."
        )
    if positions.device != x.device:
        raise ValueError(
            f"positions must be on the device of x, {x.device}; got {describe(positions)}."
        )
    require_positive("base", base)


def require_layer(
    d_model: Any, n_heads: Any, n_kv_heads: Any, d_k: Any, bias: Any, rope_base: Any, window: Any
) -> tuple[int, int, int]:
    """Sizes that fit each other, and options; d_model, h and d_k as Python's own numbers."""
    require_sizes(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ValueError(
            f"n_heads must be a multiple of n_kv_heads, so that every head of keys and values "
            f"serves as many query heads; got n_heads = {n_heads} and n_kv_heads = {n_kv_heads}."
        )
    sizes = require_layer_sizes(d_model, n_heads, d_k, bias)
    if rope_base is not None:
        require_positive("rope_base", rope_base)
        _require_even("d_k", sizes[2])
    if window is not None:
        require_sizes(window=window)
    return sizes


def require_step(
    layer: Any, x: Any, cache: Any, mask: Any, return_weights: Any, kind: type
) -> None:
    """x (B, T_new, d_model) for this layer; a cache (of this kind) and a mask, or None of them."""
    require_axes("x", x, 3, "(B, T_new, d_model)")
    require_tokens_for(plain_weight(layer.w_qkv), layer.d_model, "x", x)
    if cache is not None:
        require_kind("cache", cache, kind)
        now = backward_pass()
        if cache.length and now not in (-1, cache.backward):
            raise ValueError(
                f"cache must be None in a backward pass, or have been begun there; this one holds "
                f"{cache.length} tokens from before, and a layer that torch.utils.checkpoint runs "
                f"again would add its own a second time."
            )
    require_bool("return_weights", return_weights)
    if mask is not None:
        B, n_new, _ = x.shape
        n_all = n_new + (0 if cache is None else cache.length)
        require_mask(mask, x, (B, layer.n_heads, n_new, n_all))


def backward_pass() -> int:
    """The number of the backward pass that is running, or −1."""
    return -1 if torch.compiler.is_compiling() else torch._C._current_graph_task_id()


def require_same_layer(first: Any, layer: Any, held: Tensor, new: Tensor) -> None:
    """The cache's keys (B, h_kv, T_held, d_k) and the new ones fit, but for their lengths; and the
    layer is the first that used it, if that is known."""
    if held.dtype != new.dtype:
        raise TypeError(f"x must have the dtype of the cache: {_two(held, new)}")
    if held.device != new.device:
        raise ValueError(f"x must be on the device of the cache: {_two(held, new)}")
    if (*held.shape[:2], held.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(
            f"x and cache must agree in B, n_kv_heads and d_k; does the cache belong to another "
            f"layer or batch? {_two(held, new)}"
        )
    if first is not None and first is not layer:
        raise ValueError(
            "cache must be used by one layer, the first that used it; got the cache of another "
            "layer. KVCache.for_layers(model) makes one for each."
        )


def _two(held: Tensor, new: Tensor) -> str:
    return f"its keys are {describe(held)}, the new ones {describe(new)}."
