"""Masks: bool, True = blocked; `|` combines them. Two for everybody, and steps of `attend`."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from mha_lesson.execution import fully_blocked_rows
from mha_lesson.refusals import require_device, require_positive_int
from mha_lesson.refusals.of_attention import fitting_lengths


def causal_mask(
    n_tokens: int, device: torch.device | str | None = None
) -> Bool[Tensor, "{n_tokens} {n_tokens}"]:
    """Blocks the future: query i may look at keys 0 … i.

    Args:
        n_tokens: T, at least 1.
        device: where the mask is made; the default device if None.

    Returns:
        bool (T, T), True = blocked: row i is a query, column j a key, blocked where j > i.

    Raises:
        TypeError, ValueError: `n_tokens` is not a positive integer, or there is no such device.

    Source: Vaswani et al. (2017), Attention Is All You Need, section 3.2.3.
    """
    require_positive_int("n_tokens", n_tokens)
    require_device("device", device)
    return out_of_reach(int(n_tokens), device=device)


def padding_mask(
    lengths: Integer[Tensor, " B"] | Sequence[int], n_tokens: int | None = None
) -> Bool[Tensor, "B 1 1 T"]:
    """Blocks the keys that are padding: of sequence b, the keys from lengths[b] on.

    Args:
        lengths: B integers from 0 to T: how many tokens of each sequence are real.
        n_tokens: T, the padded length; the largest length if None.

    Returns:
        bool (B, 1, 1, T), True = blocked, on the device of `lengths`, or for a list the default
        one. The axes of size 1 stand for heads and queries: each of them is blocked alike.

    Raises:
        TypeError: `lengths` are not integers.
        ValueError: `lengths` has another shape than (B,), or one of them is outside 0 … T.
    """
    device = lengths.device if isinstance(lengths, Tensor) else torch.empty(0).device
    lengths, n_tokens = fitting_lengths(lengths, n_tokens)
    positions = torch.arange(n_tokens, device=lengths.device)  # (T,)
    return (positions >= lengths[:, None])[:, None, None, :].to(device)  # (B, T) -> (B, 1, 1, T)


def out_of_reach(
    n_new: int, n_held: int = 0, window: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "T_new T_k"]:
    """True at the future, and at what lies `window` or more tokens back.

    T_k = n_held + n_new: the new tokens stand behind those that are held.
    """
    query = torch.arange(n_held, n_held + n_new, device=device)[:, None]
    key = torch.arange(n_held + n_new, device=device)
    future = key > query
    return future if window is None else future.logical_or_(key <= query - window)


def fit_axes(mask: Bool[Tensor, "..."], n_axes: int) -> Bool[Tensor, "..."]:
    """The mask in as many axes as the scores have: (B, T_q, T_k) becomes (B, 1, T_q, T_k)."""
    while mask.ndim < n_axes:
        mask = mask.unsqueeze(-3)  # every head, and every sequence, alike
    while mask.ndim > n_axes:
        mask = mask.squeeze(-3)  # an axis of size 1, which the scores do not have
    return mask


def with_future(
    mask: Bool[Tensor, "..."] | None, key: Float[Tensor, "*batch T d_k"]
) -> Bool[Tensor, "..."]:
    """The mask, which blocks every key after the query's own position, too."""
    future = out_of_reach(key.shape[-2], device=key.device)
    return future if mask is None else mask | future


def open_blocked_rows(
    mask: Bool[Tensor, "..."] | None, n_axes: int
) -> tuple[Bool[Tensor, "..."] | None, Bool[Tensor, "..."] | None]:
    """The mask in n_axes axes, no row fully blocked; and which rows were, (…, T_q, 1).

    A softmax over no key is NaN: such rows see all keys, and are `zeroed` afterwards.
    """
    if mask is None:
        return None, None
    mask = fit_axes(mask, n_axes)
    blocked_rows = fully_blocked_rows(mask)
    if mask.shape[-1] == 1:  # one cell a row blocks the whole row or nothing
        return None, blocked_rows
    return (mask if blocked_rows is None else mask & ~blocked_rows), blocked_rows


def zeroed(x: Float[Tensor, "*axes"], rows: Bool[Tensor, "..."] | None) -> Float[Tensor, "*axes"]:
    """`x` with zeros in these rows."""
    return x if rows is None else x.masked_fill(rows, 0.0)


def as_bias(mask: Bool[Tensor, "..."] | None, dtype: torch.dtype) -> Float[Tensor, "..."] | None:
    """0 at open cells and −∞ at blocked ones, in one piece, as a GPU's kernel needs it.

    Added to finite scores it does what masked_fill(mask, -inf) does, five times as fast.
    """
    if mask is None:
        return None
    bias = torch.zeros_like(mask, dtype=dtype, memory_format=torch.contiguous_format)
    return bias.masked_fill_(mask, -math.inf)
