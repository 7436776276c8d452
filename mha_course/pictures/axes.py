"""Axes, their ends and their ticks, legends and colours: what bars and curves share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mha_course.base.numerals import number, ticks
from mha_course.pictures.colours import head_colour
from mha_course.pictures.fields import own_range, range_of
from mha_course.pictures.labels import name_rows
from mha_course.pictures.marks import PLAIN, Drawing, Path, Rect, Text, text_width

OTHERS = (PLAIN, "#CF5A08", "#009E73", "#CC79A7", "#808080", "#BE8B11", "#549AC9", "#8A6D00")


def limits_of(limits: Any, values: np.ndarray, log: bool, zero: bool) -> tuple[float, float]:
    if limits is None:
        if log:
            good = values[np.isfinite(values) & (values > 0)]
            if not good.size:
                raise ValueError("a logarithmic axis needs positive values, got none")
            limits = (good.min() / 1.5, good.max() * 1.5)
        elif zero:
            limits = own_range(values)
        else:
            good = values[np.isfinite(values)]
            limits = (good.min(), good.max()) if good.size else (0, 1)
            limits = limits if limits[0] < limits[1] else (limits[0] - 0.5, limits[0] + 0.5)
    low, high = range_of(limits)
    if log and low <= 0:
        raise ValueError(f"limits of a logarithmic axis must be positive, got {limits!r}")
    return low, high


@lru_cache(512)
def scale_of(limits: tuple[float, float], log: bool) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The ticks of an axis and what they say: one number of decimals, but 0 is "0"."""
    at = ticks(*limits, log)
    decimals = None
    if not log and any(t % 1 for t in at):
        decimals = next((d for d in (1, 2, 3, 4) if all(round(t, d) == t for t in at)), None)
    return at, tuple(number(t, decimals if t else None) for t in at)


def y_axis(
    drawing: Drawing,
    scale: tuple[Sequence[float], Sequence[str]],
    y: Callable[[float], float],
    span: tuple[float, float],
    name: str,
    height: tuple[float, float],
) -> None:
    free = math.inf
    for tick, label in zip(*scale, strict=True):
        drawing.add(Path(((span[0], y(tick)), (span[1], y(tick))), width=1))
        if y(tick) <= free:  # from below; a low plot leaves some out
            drawing.add(Text(span[0] - 8, y(tick), label, align="right"))
            free = y(tick) - 12
    drawing.height = max(drawing.height, name_rows(drawing, name, *height))


def share_of(low: float, high: float, log: bool) -> Callable[[float], float]:
    """From a value to where it lies between low and high: 0 to 1."""
    start, end = (math.log(low), math.log(high)) if log else (low, high)

    def share(value: float) -> float:
        value = min(max(value, low), high)
        return ((math.log(value) if log else value) - start) / (end - start)

    return share


def series_colours(heads: Sequence[int | None]) -> list[str]:
    return [
        OTHERS[i % len(OTHERS)] if head is None else head_colour(head)
        for i, head in enumerate(heads)
    ]


def legend(
    drawing: Drawing,
    names: Sequence[str],
    colours: Sequence[str],
    top: float,
    space: float,
    dashed: Sequence[bool] = (),
) -> float:
    """Names beside their colours, those of lines beside a line; gives the y below."""
    x, beside = 0.0, 30 if dashed else 18
    for i, (name, colour) in enumerate(zip(names, colours, strict=True)):
        wide = beside + text_width(name)
        if x and x + wide > space:
            x, top = 0.0, top + 18
        if dashed:
            drawing.add(Path(((x, top + 10), (x + 22, top + 10)), colour, dashed=dashed[i]))
        else:
            drawing.add(Rect(x, top + 4, 12, 12, colour))
        drawing.add(Text(x + beside, top + 10, name))
        drawing.width = max(drawing.width, x + wide)
        x += wide + 16
    return top + 24
