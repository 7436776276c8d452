"""Titles and labels around a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mha_course.pictures.colours import head_colour
from mha_course.pictures.marks import Drawing, Rect, Text, short, text_width, widest_of
from mha_course.pictures.panel import Panel


def write_title(drawing: Drawing, panel: Panel) -> float:
    """The title with its head's colour; gives the y below."""
    if not panel.title:
        return 0.0
    x = 0.0
    if panel.head is not None:
        drawing.add(Rect(0, 4, 12, 12, head_colour(panel.head), hollow=panel.head >= 8))
        x = 18.0
    drawing.add(Text(x, 10, panel.title, bold=True))
    drawing.width = max(drawing.width, x + 1.1 * text_width(panel.title))
    return 26.0


def name_rows(drawing: Drawing, name: str, top: float, bottom: float) -> float:
    """The turned name of an axis, in the middle, or from the top on; gives the y of its end."""
    if not name:
        return 0.0
    half = text_width(name) / 2
    middle = max((top + bottom) / 2, top + half)
    drawing.add(Text(8, middle, name, "center", turned=True))
    return middle + half


def without_name(labels: Sequence[str], name: str) -> list[str]:
    """Labels without the name of their axis, which stands beside them."""
    return [short(label.removeprefix(f"{name} ")) for label in labels]


def column_labels(
    drawing: Drawing,
    labels: Sequence[str],
    left: float,
    y: float,
    width: float,
    at: Callable[[int], float] | None = None,
) -> float:
    """Labels under columns, turned where they are too wide; gives the y below them."""
    labels = [short(t) for t in labels]
    longest = widest_of(labels)
    if not longest:
        return y
    turned = longest > width - 4 and max(map(len, labels)) > 2
    every = math.ceil((12.5 if turned else longest + 6) / width)
    for i, label in enumerate(labels):
        if i % every or not label:
            continue
        x = at(i) if at else left + (i + 0.5) * width
        if turned:
            drawing.add(Text(x, y + 7, label, align="right", turned=True))
        else:
            drawing.add(Text(x, y + 13, label, align="center"))
    return y + (longest + 10 if turned else 25)
