"""What the fields of panels may hold: each is checked once, and refused in one way."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields as fields_of
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from mha_lesson.refusals import (
    MOST,
    is_whole,
    listed,
    require_bool,
    require_text,
    require_whole,
    say,
)


def array_of(value: Any, name: str, ndims: tuple[int, ...], dtype: type = float) -> np.ndarray:
    """`value` (array, nested lists or a torch tensor) as a new numpy array of an allowed rank."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            value = value.double() if value.is_floating_point() else value
            value = value.numpy()
        if np.iscomplexobj(value):
            raise TypeError("complex numbers have no order")
        array: np.ndarray = np.array(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        got = type(value).__name__
        raise TypeError(f"{name} must be numbers in an array, got {got}") from error
    if array.ndim not in ndims:
        ranks = " or ".join(map(str, ndims))
        raise ValueError(f"{name} must have {ranks} axes, got shape {array.shape}")
    return array


def labels_of(labels: Iterable[Any] | None, name: str, n: int) -> tuple[str, ...]:
    """`labels` as `n` strings; 0, 1, 2 … where there are none."""
    out = tuple(map(text_of, range(n) if labels is None else listed(name, labels, "labels")))
    if len(out) != n:
        raise ValueError(f"{name} must be {n} labels, one for each, got {len(out)}")
    return out


def text_of(x: Any) -> str:
    """A label as text that can be drawn and stored, whatever it is."""
    try:
        return str(x).encode(errors="replace").decode()
    except Exception:  # it breaks when it is asked, or is nested too deep
        return "?"


def heads_of(heads: Any, n: int, each: str) -> tuple[int | None, ...]:
    """One head, or None, for each of n bars or lines."""
    out = [None] * n if heads is None else listed("heads", heads)
    if len(out) != n:
        raise ValueError(f"heads must have {n} entries, one for each {each}, got {len(out)}")
    if not all(head is None or is_whole(head, 0, MOST) for head in out):
        raise ValueError(f"heads must be 0, 1, 2, … or None, got {say(out)}")
    return tuple(out)


def range_of(limits: Any) -> tuple[float, float]:
    ends = array_of(limits, "limits", (1,))
    if ends.shape != (2,) or not np.isfinite(ends[1] - ends[0]) or ends[0] >= ends[1]:
        raise ValueError(f"limits must be two finite numbers, low < high, got {say(limits)}")
    return float(ends[0]), float(ends[1])


def own_range(values: np.ndarray) -> tuple[float, float]:
    """From 0 (or below, if values are) to the largest finite value."""
    finite = values[np.isfinite(values)]
    low = min(0.0, float(finite.min())) if finite.size else 0.0
    high = max(0.0, float(finite.max())) if finite.size else 1.0
    return (low, high) if high > low else (low, low + 1.0)


@cache
def plain_fields(kind: Any) -> list[tuple[str, str, bool]]:
    """Name, kind and whether it may be None, of the fields that `checked` looks at."""
    typed = [(field.name, str(field.type)) for field in fields_of(kind)]
    plain = [(name, t.removesuffix(" | None"), t.endswith(" | None")) for name, t in typed]
    return [(name, kind, free) for name, kind, free in plain if kind in _PLAIN]


_PLAIN = ("str", "bool", "int", "float")


def checked(name: str, kind: str, value: Any) -> Any:
    """What a plain field is given, if it is of this kind; the others are looked at one by one."""
    if kind == "str":
        require_text(**{name: value})
    elif kind == "bool":
        require_bool(name, value)
    elif kind == "int":
        require_whole(name, value, 0, MOST)
        return int(value)  # JSON knows no NumPy
    elif kind == "float":
        value = float(array_of(value, name, (0,)))
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {say(value)}")
    return value


def grid_of(cells: Any, name: str) -> list[list[Any]]:
    """`cells` as a list of rows of equal length; one flat row becomes a list of one row."""
    if hasattr(cells, "tolist"):
        cells = cells.tolist()
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(f"{name} must be rows of cells, got {say(cells)}")
    rows = list(cells)
    if rows and (isinstance(rows[0], str) or not isinstance(rows[0], Iterable)):
        rows = [rows]
    rows = [listed(f"{name}[{i}]", row, "cells") for i, row in enumerate(rows)]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(f"{name} must be rows of equal length, got {[len(row) for row in rows]}")
    return rows
