"""What attention refuses: one function for each public call, before anything is computed."""

from typing import Any

import torch
from torch import Tensor

from mha_lesson import refusals
from mha_lesson.execution import plain_weight
from mha_lesson.refusals import describe, say

MOST_WEIGHTS = 2**57  # of one matrix: the three of w_qkv in float64 still have 63 bits of bytes
CONVENTION = "In this package True means blocked (in F.scaled_dot_product_attention it means keep)."


def require_divisible(d_model: int, n_heads: int, name: str = "d_model") -> None:
    remainder = int(d_model) % int(n_heads)
    if remainder:
        raise ValueError(
            f"{name} must be divisible by n_heads, so that every head gets {name} / n_heads "
            f"dimensions; got {name} = {d_model} and n_heads = {n_heads}, "
            f"which leaves a remainder of {remainder}."
        )


def require_split(x: Any, n_heads: Any) -> None:
    """x (B, T, h·d_k)."""
    refusals.require_axes("x", x, 3, "(B, T, h*d_k)")
    refusals.require_positive_int("n_heads", n_heads)
    require_divisible(x.shape[-1], n_heads, "the width of x")


def require_heads(x: Any) -> None:
    refusals.require_axes("x", x, 4, "(B, h, T, d_k)")


def require_module(
    d_model: Any, n_heads: Any, d_k: Any, bias: Any, dropout: Any, device: Any, dtype: Any
) -> tuple[int, int, int]:
    """Sizes that fit each other, and options; d_model, h and d_k as Python's own numbers."""
    refusals.require_sizes(d_model=d_model, n_heads=n_heads)
    refusals.require_bool("bias", bias)
    if d_k is None:
        require_divisible(d_model, n_heads)
        d_k = d_model // n_heads
    refusals.require_sizes(d_k=d_k)
    refusals.require_probability("dropout", dropout)
    refusals.require_device("device", device)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in refusals.FLOATS):
        raise TypeError(f"dtype must be a floating-point dtype; got {describe(dtype)}.")
    d_model, n_heads, d_k = int(d_model), int(n_heads), int(d_k)
    if d_model * n_heads * d_k > MOST_WEIGHTS:
        raise ValueError(
            f"d_model * n_heads * d_k must be at most {MOST_WEIGHTS}, or no memory holds the "
            f"weights; got {d_model} * {n_heads} * {d_k}."
        )
    return d_model, n_heads, d_k


def require_attention_call(
    query: Any, key: Any, value: Any, mask: Any, causal: Any, dropout: Any, return_weights: Any
) -> None:
    """query (…, T_q, d_k), key (…, T_k, d_k), value (…, T_k, d_v) of one kind; options that fit."""
    refusals.require_floats("query", query, "(..., T_q, d_k)")
    if not 2 <= query.ndim <= 4:
        raise ValueError(f"query must have 2, 3 or 4 axes, (..., T_q, d_k); got {describe(query)}.")
    shape = query.shape
    for name, x, axes in (("key", key, "(..., T_k, d_k)"), ("value", value, "(..., T_k, d_v)")):
        if x is query:
            continue
        refusals.require_tensor(name, x, axes)
        _require_like(name, x, "query", query)
        if x.shape != shape and x.shape[:-2] != shape[:-2]:
            raise ValueError(
                f"query and {name} must agree in the axes before the last two "
                f"(batch B and heads h): {_got('query', query, name, x)}"
            )
    *batch, t_q, d_k = shape
    t_k, width = key.shape[-2:]
    if width != d_k or d_k == 0:
        raise ValueError(
            f"query and key must have one width d_k > 0, since their rows are multiplied: "
            f"{_got('query', query, 'key', key)}"
        )
    refusals.require_probability("dropout", dropout)
    scores = *(*batch, 1, 1)[:2], t_q, t_k
    _require_options(mask, causal, return_weights, (query, key, value), scores)


def require_module_call(
    layer: Any, query: Any, key: Any, value: Any, mask: Any, causal: Any, return_weights: Any
) -> None:
    """query (B, T_q, d_model), key, value (B, T_k, d_model), or all without B; options that fit."""
    weight = plain_weight(layer.w_qkv)
    for name, x, axes in (
        ("query", query, "(B, T_q, d_model)"),
        ("key", key, "(B, T_k, d_model)"),
        ("value", value, "(B, T_k, d_model)"),
    ):
        if x is query and name != "query":
            continue  # self-attention: checked already
        refusals.require_tensor(name, x, axes)
        if x.ndim not in (2, 3):
            raise ValueError(
                f"{name} must have shape {axes}, or the same without B; got {describe(x)}."
            )
        require_tokens_for(weight, layer.d_model, name, x)
        if x is not query:
            if weight is None:
                _require_like(name, x, "query", query, or_cast=True)
            if x.shape[:-2] != query.shape[:-2]:
                raise ValueError(
                    f"query and {name} must have one batch size B, or neither: "
                    f"{_got('query', query, name, x)}"
                )
    scores = query.shape[0] if query.ndim > 2 else 1, layer.n_heads, query.shape[-2], key.shape[-2]
    _require_options(mask, causal, return_weights, (query, key, value), scores)


def fitting_lengths(lengths: Any, n_tokens: Any) -> tuple[Tensor, int]:
    """lengths (B,) from 0 to n_tokens, as int64, and n_tokens, the largest of them if None."""
    wanted = "lengths must be integers, a tensor (B,) or a list with B > 0"
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths, device="cpu")  # whatever the default is
        except Exception as error:  # its kind depends on what came
            raise TypeError(f"{wanted}; got {describe(lengths)}.") from error
    refusals.require_axes("lengths", lengths, 1, "(B,)")
    if len(lengths) == 0:
        raise ValueError(f"{wanted}; got {describe(lengths)}.")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"{wanted}; got {describe(lengths)}.")
    lengths = lengths.long()  # of which torch has a maximum
    if n_tokens is None:
        n_tokens = 0 if lengths.is_meta else int(lengths.max())
        if n_tokens < 1:
            got = describe(lengths) if lengths.is_meta else say(lengths.tolist())
            raise ValueError(f"n_tokens must be given where no length is above 0; got {got}.")
    refusals.require_positive_int("n_tokens", n_tokens)
    if not lengths.is_meta and (int(lengths.min()) < 0 or int(lengths.max()) > n_tokens):
        raise ValueError(
            f"lengths must lie between 0 and n_tokens = {n_tokens}; got {lengths.tolist()}."
        )
    return lengths, int(n_tokens)


def require_tokens_for(weight: Tensor | None, d_model: int, name: str, x: Tensor) -> None:
    """Tokens (…, d_model) for projections with this `plain_weight`; without one, any floats."""
    if weight is None:
        refusals.require_floats(name, x, "(..., d_model)")
    else:
        _require_like(name, x, "this module's parameters", weight, or_cast=True)
    if x.shape[-1] != d_model:
        raise ValueError(
            f"{name} must be d_model = {d_model} wide in its last axis; got {describe(x)}."
        )


def _require_like(name: str, x: Tensor, of: str, other: Tensor, or_cast: bool = False) -> None:
    """Of the other's dtype, or one that autocast changes to it; and on its device."""
    if x.dtype != other.dtype and not (or_cast and _autocast_takes(x, other)):
        if x.dtype == torch.bool:
            raise TypeError(
                f"{name} must be a floating-point tensor; got {describe(x)}, as a mask is: "
                f"pass it as mask=…. {CONVENTION}"
            )
        raise TypeError(f"{name} must have the dtype of {of}, {other.dtype}; got {describe(x)}.")
    if not (x.is_cpu and other.is_cpu):  # asks less, on a CPU
        _require_device_of(name, x, of, other)


def _require_device_of(name: str, x: Tensor, of: str, other: Tensor) -> None:
    if x.device != other.device:
        raise ValueError(
            f"{name} must be on the device of {of}, {other.device}; got {describe(x)}."
        )


def _got(first: str, x: Tensor, second: str, y: Tensor) -> str:
    return f"got a {first} {describe(x)} and a {second} {describe(y)}."


def _autocast_takes(*tensors: Tensor) -> bool:
    """Whether they are cast to one dtype now; float64 never is, and nothing on the meta device."""
    return all(
        x.is_floating_point()
        and x.dtype != torch.float64
        and x.device.type != "meta"
        and torch.is_autocast_enabled(x.device.type)
        for x in tensors
    )


def _require_options(
    mask: Any, causal: Any, return_weights: Any, qkv: tuple[Tensor, ...], scores: tuple[int, ...]
) -> None:
    """Options for scores (B, h, T_q, T_k) of query, key and value, and a value for every key."""
    refusals.require_bool("return_weights", return_weights)
    refusals.require_bool("causal", causal)
    (query, key, value), (_, _, t_q, t_k) = qkv, scores
    if value.shape[-2] != t_k:
        raise ValueError(
            f"key and value must have one length T_k, since every key has its value: "
            f"{_got('key', key, 'value', value)}"
        )
    if causal and t_q != t_k:
        raise ValueError(
            f"causal=True needs as many queries as keys, since it counts positions in one and the "
            f"same sequence; got T_q = {t_q} and T_k = {t_k}. Pass a mask instead."
        )
    if mask is not None:
        require_mask(mask, query, scores)


def require_mask(mask: Any, query: Tensor, scores: tuple[int, ...]) -> None:
    """Bool, True = blocked: (T_q, T_k), (B, T_q, T_k), or broadcastable to (B, h, T_q, T_k)."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask must be a bool tensor; got {describe(mask)}. {CONVENTION}")
    refusals.require_tensor("mask", mask, "(B, h, T_q, T_k)")
    _require_device_of("mask", mask, "query", query)
    B, _, t_q, t_k = scores
    fits = tuple(mask.shape) in ((B, 1, 1, t_k), (t_q, t_k), (B, t_q, t_k)) or (
        mask.ndim == 4
        and all(have in (1, want) for have, want in zip(mask.shape, scores, strict=True))
    )
    if not fits:
        raise ValueError(
            f"mask must have shape (T_q, T_k) = {(t_q, t_k)}, (B, T_q, T_k) = {(B, t_q, t_k)}, "
            f"or four axes broadcastable to (B, h, T_q, T_k) = {scores}; got {describe(mask)}. "
            f"{CONVENTION}"
        )


# ---------------------------------------------------------------- rotation, cache and their layer


def _require_even(name: str, size: int) -> None:
    if size % 2 or size == 0:
        raise ValueError(
            f"{name} must be even and above 0, since dimensions turn in pairs; got {size}."
        )


def require_rotation(x: Any, positions: Any, base: Any) -> None:
    """x (…, T, d_k) of floats, d_k even; positions (T,) integers on its device; base above 0."""
    axes = "(..., T, d_k)"
    refusals.require_floats("x", x, axes)
    if x.ndim < 2:
        raise ValueError(f"x must have two axes or more, {axes}; got {describe(x)}.")
    _require_even("d_k, the last axis of x,", x.shape[-1])
    refusals.require_axes("positions", positions, 1, "(T,)")
    if positions.dtype not in refusals.IDS:
        raise TypeError(f"positions must be integers, int64 or int32; got {describe(positions)}.")
    if positions.shape[0] != x.shape[-2]:  # len would fix T in an export
        raise ValueError(
            f"positions must hold one integer for each of the T = {x.shape[-2]} rows of x; "
            f"got {describe(positions)}."
        )
    _require_device_of("positions", positions, "x", x)
    refusals.require_positive("base", base)


def require_groups(n_heads: int, n_kv_heads: Any, d_k: int, rope_base: Any, window: Any) -> int:
    """n_kv_heads, as Python's own number, a divisor of h; and options that fit."""
    refusals.require_sizes(n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ValueError(
            f"n_heads must be a multiple of n_kv_heads, so that every head of keys and values "
            f"serves as many query heads; got n_heads = {n_heads} and n_kv_heads = {n_kv_heads}."
        )
    if rope_base is not None:
        refusals.require_positive("rope_base", rope_base)
        _require_even("d_k", d_k)
    if window is not None:
        refusals.require_sizes(window=window)
    return int(n_kv_heads)


def require_step(
    layer: Any, x: Any, cache: Any, mask: Any, return_weights: Any, kind: type
) -> None:
    """x (B, T_new, d_model) for this layer; a cache (of this kind) and a mask, or None of them."""
    refusals.require_axes("x", x, 3, "(B, T_new, d_model)")
    require_tokens_for(plain_weight(layer.w_qkv), layer.d_model, "x", x)
    if cache is not None:
        refusals.require_kind("cache", cache, kind)
        now = backward_pass()
        if cache.length and now not in (-1, cache.backward):
            raise ValueError(
                f"cache must be None in a backward pass, or have been begun there; this one holds "
                f"{cache.length} tokens from before, and a layer that torch.utils.checkpoint runs "
                f"again would add its own a second time."
            )
    refusals.require_bool("return_weights", return_weights)
    if mask is not None:
        B, n_new, _ = x.shape
        n_all = n_new + (0 if cache is None else cache.length)
        require_mask(mask, x, (B, layer.n_heads, n_new, n_all))


# PyTorch's own name for it; without it, a backward pass that runs a layer again is not noticed.
_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def backward_pass() -> int:
    """The number of the backward pass that is running, or −1."""
    return -1 if torch.compiler.is_compiling() else _graph_task()


def require_same_layer(first: Any, layer: Any, held: Tensor, new: Tensor) -> None:
    """The cache's keys (B, h_kv, T_held, d_k) and the new ones fit, but for their lengths; and the
    layer is the first that used it, if that is known."""
    _require_like("x", new, "the cache", held)
    if (*held.shape[:2], held.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(
            f"x and cache must agree in B, n_kv_heads and d_k; does the cache belong to another "
            f"layer or batch? {_got('cache of keys', held, 'new key', new)}"
        )
    if first is not None and first is not layer:
        raise ValueError(
            "cache must be used by one layer, the first that used it; got the cache of another "
            "layer. KVCache.for_layers(model) makes one for each."
        )
