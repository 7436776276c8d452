"""What `decoding` refuses, in sentences that name the argument, what was expected and what came."""

from typing import Any

from torch import Tensor

from mha_lesson.attention_refusals import require_tokens_for
from mha_lesson.refusals import (
    FLOATS,
    IDS,
    describe,
    require_axes,
    require_kind,
    require_tensor,
)


def require_even(name: str, size: int) -> None:
    if size % 2 or size == 0:
        raise ValueError(
            f"{name} must be even and above 0, since dimensions turn in pairs; got {size}."
        )


def require_rows_to_rotate(x: Any, positions: Any) -> None:
    """x (…, T, d_k) of floats, d_k even; positions (T,) integers on its device."""
    axes = "(..., T, d_k)"
    require_tensor("x", x, axes)
    if x.dtype not in FLOATS:
        raise TypeError(f"x must be a floating-point tensor; got {describe(x)}.")
    if x.ndim < 2:
        raise ValueError(f"x must have two axes or more, {axes}; got {describe(x)}.")
    require_even("d_k, the last axis of x,", x.shape[-1])
    require_axes("positions", positions, 1, "(T,)")
    if positions.dtype not in IDS:
        raise TypeError(f"positions must be integers, int64 or int32; got {describe(positions)}.")
    if len(positions) != x.shape[-2]:
        raise ValueError(
            f"positions must hold one integer for each of the T = {x.shape[-2]} rows of x; "
            f"got {describe(positions)}."
        )
    if positions.device != x.device:
        raise ValueError(
            f"positions must be on the device of x, {x.device}; got {describe(positions)}."
        )


def require_shared_heads(n_heads: int, n_kv_heads: int) -> None:
    if n_heads % n_kv_heads:
        raise ValueError(
            f"n_heads must be a multiple of n_kv_heads, so that every head of keys and values "
            f"serves as many query heads; got n_heads = {n_heads} and n_kv_heads = {n_kv_heads}."
        )


def require_step(x: Any, cache: Any, weight: Tensor, kind: type) -> None:
    """x (B, T_new, d_model) for this layer; a cache or None."""
    require_axes("x", x, 3, "(B, T_new, d_model)")
    require_tokens_for(weight, "x", x)
    if cache is not None:
        require_kind("cache", cache, kind)


def require_same_layer(held: Tensor, new: Tensor) -> None:
    """The cache's keys (B, h_kv, T_held, d_k) and the new ones fit, but for their lengths."""
    if held.dtype != new.dtype:
        raise TypeError(f"x must have the dtype of the cache: {_two(held, new)}")
    if held.device != new.device:
        raise ValueError(f"x must be on the device of the cache: {_two(held, new)}")
    if (*held.shape[:2], held.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(
            f"x and cache must agree in B, n_kv_heads and d_k; does the cache belong to another "
            f"layer or batch? {_two(held, new)}"
        )


def _two(held: Tensor, new: Tensor) -> str:
    return f"its keys are {describe(held)}, the new ones {describe(new)}."
