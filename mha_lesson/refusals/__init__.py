"""What is refused, in sentences that name the argument, what was expected and what came.

A `require_…` function makes a few comparisons, and builds the sentence only for an error. Where
sizes may be NumPy's it returns them as Python's own; `listed` returns the entries as a list.
"""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real  # NumPy's numbers, too
from typing import Any

import torch
from torch import Tensor

FLOATS = frozenset((torch.float64, torch.float32, torch.float16, torch.bfloat16))
IDS = frozenset((torch.int64, torch.int32))  # what nn.Embedding takes
MOST = 2**31 - 1  # of any size: products of several must fit in 64 bits, or no memory holds them


def describe(x: Any) -> str:
    """What came, in a few words: shape, dtype and device of a tensor, else the type and value."""
    if isinstance(x, Tensor):
        if x.is_nested or x.layout != torch.strided:
            kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
            return f"a {kind} tensor of {x.dtype} on {x.device}"
        return f"a {x.dtype} tensor of shape {tuple(x.shape)} on {x.device}"
    return f"{type(x).__name__} {say(x)}"


def say(x: Any) -> str:
    """A value as Python writes it, on one line and not too long."""
    if isinstance(x, Tensor):
        return describe(x)
    try:
        text = " ".join(repr(x).split())
    except Exception:  # it breaks when it is asked, or is nested too deep
        return "(not to be shown)"
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------- numbers


_WHOLE = (int, Integral)  # Python's own first: they are found faster
_NUMBER = (float, int, Real)


def _is_a(kind: tuple[type, ...], value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # True counts as 1 elsewhere


def is_whole(value: Any, low: int, high: int) -> bool:
    """Whether `value` is an integer from `low` to `high`."""
    return _is_a(_WHOLE, value) and low <= value <= high


def require_whole(name: str, value: Any, low: int, high: int) -> None:
    if not is_whole(value, low, high):
        raise ValueError(f"{name} must be a whole number from {low} to {high}; got {say(value)}.")


def require_seed(value: Any) -> None:
    require_whole("seed", value, 0, 2**63 - 1)


def require_positive_int(name: str, value: Any) -> None:
    if not _is_a(_WHOLE, value):
        raise TypeError(f"{name} must be a positive integer; got {describe(value)}.")
    if value < 1:
        raise ValueError(f"{name} must be a positive integer; got {say(value)}.")
    if value > MOST:
        raise ValueError(f"{name} must be at most {MOST}; got {say(value)}.")


def require_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        require_positive_int(name, value)


def require_positive(name: str, value: Any) -> None:
    """A finite number above 0."""
    fits = _is_a(_NUMBER, value) and 0 < value < math.inf
    if not fits or (isinstance(value, int) and value > 2**1000):  # which is no float
        raise ValueError(f"{name} must be a positive, finite number; got {say(value)}.")


def require_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {describe(value)}.")


def require_probability(name: str, value: Any) -> None:
    """0 ≤ value < 1: dropping everything leaves nothing to scale up again."""
    if not _is_a(_NUMBER, value):
        raise TypeError(f"{name} must be a number in [0, 1); got {describe(value)}.")
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be a number in [0, 1); got {say(value)}.")


# ---------------------------------------------------------------- words, choices, lists


def require_text(**texts: Any) -> None:
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string; got {describe(value)}.")
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"{name} must be text without lone surrogates; got {say(value)}.")


def require_kind(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}; got {describe(value)}.")


def require_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function; got {describe(value)}.")


def require_one_of(name: str, value: Any, options: Sequence[Any]) -> None:
    """One of several numbers or words."""
    if not ((isinstance(value, str) or _is_a(_WHOLE, value)) and value in options):
        raise ValueError(f"{name} must be one of {', '.join(map(str, options))}; got {say(value)}.")


def listed(name: str, values: Any, entries: str = "entries") -> list[Any]:
    """The entries of a list, tuple, array or anything else that is no single string."""
    if hasattr(values, "tolist"):
        values = values.tolist()  # a tensor's numbers, or an array's
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {entries}; got {describe(values)}.")
    return list(values)


def listed_ints(name: str, values: Any, low: int = -MOST, high: int = MOST) -> list[int]:
    entries = listed(name, values, "whole numbers")
    for i, value in enumerate(entries):
        require_whole(f"{name}[{i}]", value, low, high)
    return [int(value) for value in entries]


def listed_texts(name: str, values: Any) -> list[str]:
    entries = listed(name, values, "strings")
    for i, value in enumerate(entries):
        require_text(**{f"{name}[{i}]": value})
    return entries


# ---------------------------------------------------------------- sizes and tensors


def require_tensor(name: str, x: Any, axes: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {axes}; got {describe(x)}.")
    if x.is_nested or x.layout != torch.strided:
        raise TypeError(
            f"{name} must be a dense tensor of shape {axes}, padded where lengths differ; "
            f"got {describe(x)}."
        )


def require_axes(name: str, x: Any, n_axes: int, axes: str) -> None:
    require_tensor(name, x, axes)
    if x.ndim != n_axes:
        many = "one axis" if n_axes == 1 else f"{n_axes} axes"
        raise ValueError(f"{name} must have {many}, {axes}; got {describe(x)}.")


def require_floats(name: str, x: Any, axes: str) -> None:
    require_tensor(name, x, axes)
    if x.dtype not in FLOATS:
        raise TypeError(f"{name} must be a floating-point tensor; got {describe(x)}.")


def require_ids(name: str, ids: Any, n_axes: int, axes: str, n_ids: int) -> None:
    """Integers from 0 to n_ids - 1."""
    require_axes(name, ids, n_axes, axes)
    if ids.dtype not in IDS:
        raise TypeError(f"{name} must be integers, int64 or int32; got {describe(ids)}.")
    if ids.is_meta or not ids.numel():
        return
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= n_ids:
        raise ValueError(f"{name} must lie between 0 and {n_ids - 1}; got {low} to {high}.")


def require_device(name: str, device: Any) -> None:
    """A device that this machine has, or None."""
    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except Exception as error:  # its kind depends on the device that is missing
        raise ValueError(f"{name} must be a device of this machine; got {say(device)}.") from error
