"""What attention refuses: one function for each public call, before anything is computed."""

from typing import Any

import torch
from torch import Tensor

from mha_lesson.execution import plain_weight
from mha_lesson.refusals import (
    describe,
    require_bool,
    require_floats,
    require_positive_int,
    require_probability,
    require_sizes,
    require_tensor,
    say,
)

CONVENTION = "In this package True means blocked (in F.scaled_dot_product_attention it means keep)."


def require_divisible(d_model: int, n_heads: int) -> None:
    remainder = int(d_model) % int(n_heads)
    if remainder:
        raise ValueError(
            f"d_model must be divisible by n_heads, so that every head gets d_model / n_heads "
            f"dimensions; got d_model = {d_model} and n_heads = {n_heads}, "
            f"which leaves a remainder of {remainder}."
        )


def require_layer_sizes(d_model: Any, n_heads: Any, d_k: Any, bias: Any) -> tuple[int, int, int]:
    """d_model, h and d_k as Python's own numbers, which torch wants."""
    require_sizes(d_model=d_model, n_heads=n_heads)
    require_bool("bias", bias)
    if d_k is None:
        require_divisible(d_model, n_heads)
        d_k = d_model // n_heads
    require_sizes(d_k=d_k)
    return int(d_model), int(n_heads), int(d_k)


def require_attention_call(
    query: Any, key: Any, value: Any, mask: Any, causal: Any, dropout: Any, return_weights: Any
) -> None:
    """query (…, T_q, d_k), key (…, T_k, d_k), value (…, T_k, d_v) of one kind; options that fit."""
    require_floats("query", query, "(..., T_q, d_k)")
    if not 2 <= query.ndim <= 4:
        raise ValueError(f"query must have 2, 3 or 4 axes, (..., T_q, d_k); got {describe(query)}.")
    *batch, t_q, d_k = query.shape
    for name, x, axes in (("key", key, "(..., T_k, d_k)"), ("value", value, "(..., T_k, d_v)")):
        if x is query:
            continue
        require_tensor(name, x, axes)
        if x.ndim != query.ndim:
            raise ValueError(f"{name} must have as many axes as query: {_got(query, name, x)}")
        _require_alike(query, name, x)
        if [*x.shape[:-2]] != batch:
            raise ValueError(
                f"query and {name} must agree in the axes before the last two "
                f"(batch B and heads h): {_got(query, name, x)}"
            )
    t_k, width = key.shape[-2:]
    if d_k != width or d_k == 0:
        raise ValueError(
            f"query and key must have one width d_k > 0, since their rows are multiplied: "
            f"{_got(query, 'key', key)}"
        )
    _require_one_length(key, value)
    require_probability("dropout", dropout)
    B, h, *_ = *batch, 1, 1
    _require_options(mask, causal, return_weights, query, (B, h, t_q, t_k))


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
        require_tensor(name, x, axes)
        if x.ndim not in (2, 3):
            raise ValueError(
                f"{name} must have shape {axes}, or the same without B; got {describe(x)}."
            )
        require_tokens_for(weight, layer.d_model, name, x)
        if weight is None and not _autocast_takes(query, x):
            _require_alike(query, name, x)
        if x is not query and x.shape[:-2] != query.shape[:-2]:
            raise ValueError(
                f"query and {name} must have one batch size B, or neither: {_got(query, name, x)}"
            )
    _require_one_length(key, value)
    B = query.shape[0] if query.ndim > 2 else 1
    scores = (B, layer.n_heads, query.shape[-2], key.shape[-2])
    _require_options(mask, causal, return_weights, query, scores)


def whole_lengths(lengths: Any) -> Tensor:
    """lengths (B,) of integers, as int64, of which torch has a maximum."""
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths, device="cpu")  # whatever the default is
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise TypeError(
                f"lengths must be integers, a tensor (B,) or a list; got {describe(lengths)}."
            ) from error
    require_tensor("lengths", lengths, "(B,)")
    if lengths.ndim != 1 or len(lengths) == 0:
        raise ValueError(f"lengths must have shape (B,) with B > 0; got {describe(lengths)}.")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers; got {describe(lengths)}.")
    return lengths.long()


def require_longest(lengths: Tensor) -> None:
    """Lengths whose largest can be the number of tokens."""
    if lengths.is_meta:
        raise ValueError("n_tokens must be given where lengths has no values (meta device).")
    if int(lengths.max()) < 1:
        raise ValueError(
            f"n_tokens must be given where no length is above 0; got {say(lengths.tolist())}."
        )


def require_lengths(lengths: Tensor, n_tokens: Any) -> None:
    """Lengths from 0 to n_tokens."""
    require_positive_int("n_tokens", n_tokens)
    if not lengths.is_meta and (int(lengths.min()) < 0 or int(lengths.max()) > n_tokens):
        raise ValueError(
            f"lengths must lie between 0 and n_tokens = {n_tokens}; got {lengths.tolist()}."
        )


def require_tokens_for(weight: Tensor | None, d_model: int, name: str, x: Tensor) -> None:
    """Tokens (…, d_model) for projections with this `plain_weight`; without one, any floats."""
    if x.shape[-1] != d_model:
        raise ValueError(
            f"{name} must be d_model = {d_model} wide in its last axis; got {describe(x)}."
        )
    if weight is None:
        return require_floats(name, x, "(..., d_model)")
    if x.dtype != weight.dtype and not _autocast_takes(x, weight):
        raise TypeError(
            f"{name} must have the dtype of this module's weights, {weight.dtype}; "
            f"got {describe(x)}."
        )
    if not (x.is_cpu and weight.is_cpu) and x.device != weight.device:
        raise ValueError(
            f"{name} must be on the device of this module's weights, {weight.device}; "
            f"got {describe(x)}."
        )


def require_rows(rows: Any, shape: tuple[int, ...]) -> None:
    """The result of w_qkv, or of what replaces it."""
    if not isinstance(rows, Tensor) or rows.shape != shape:
        raise ValueError(f"w_qkv must give a tensor of shape {shape}; it gave {describe(rows)}.")


def require_output(output: Any) -> None:
    """The result of w_o, or of what replaces it."""
    if not isinstance(output, Tensor):
        raise ValueError(f"w_o must give a tensor (B, T, d_model); it gave {describe(output)}.")


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
    mask: Any, causal: Any, return_weights: Any, query: Tensor, scores: tuple[int, ...]
) -> None:
    """The options, for scores of shape (B, h, T_q, T_k)."""
    require_bool("return_weights", return_weights)
    require_bool("causal", causal)
    t_q, t_k = scores[2:]
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
    require_tensor("mask", mask, "(B, h, T_q, T_k)")
    if not (mask.is_cpu and query.is_cpu) and mask.device != query.device:
        raise ValueError(
            f"mask must be on the device of query, {query.device}; got {describe(mask)}."
        )
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


def _require_one_length(key: Tensor, value: Tensor) -> None:
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"key and value must have one length T_k, since every key has its value: "
            f"got a key {describe(key)} and a value {describe(value)}."
        )


def _require_alike(query: Tensor, name: str, x: Tensor) -> None:
    if x.dtype != query.dtype:
        raise TypeError(f"query and {name} must share one dtype: {_got(query, name, x)}")
    if not (x.is_cpu and query.is_cpu) and x.device != query.device:  # asks less, on a CPU
        raise ValueError(f"query and {name} must be on one device: {_got(query, name, x)}")


def _got(query: Tensor, name: str, x: Tensor) -> str:
    return f"got a query {describe(query)} and a {name} {describe(x)}."
