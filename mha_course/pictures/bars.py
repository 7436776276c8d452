"""Bars: one for each label, or several series of them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mha_course.base.numerals import number
from mha_course.pictures.axes import legend, limits_of, scale_of, series_colours, share_of, y_axis
from mha_course.pictures.colours import LOW, ROLES
from mha_course.pictures.fields import array_of, heads_of, labels_of, text_of
from mha_course.pictures.labels import column_labels, write_title
from mha_course.pictures.marks import PLAIN, Drawing, Path, Rect, Text, short, text_width, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import listed, say


@dataclass(frozen=True, eq=False)
class Bars(Panel):
    """One bar for each label, or several series of them side by side.

    `values` is (n,) or (series, n). `heads` gives a head (its colour) to each bar of one series, or
    to each of several series; `roles` does the same with names of `ROLES`. `reference` is a
    (value, name) line across, where the axis reaches it, `name` what is measured.
    `steady` bars stay where they are when the limits change.
    """

    values: Any
    labels: Any = None
    _: KW_ONLY
    series: Any = None
    heads: Any = None
    roles: Any = None
    limits: Any = None
    log: bool = False
    name: str = ""
    reference: tuple[float, str] | None = None
    decimals: int | None = None
    steady: bool = False

    looks: ClassVar[str] = "bar chart"
    sizeless = frozenset({"values", "heads", "roles", "reference"})
    most_in_row = 2  # else the numbers at the bars are shortened

    def _check(self) -> None:
        values = np.atleast_2d(array_of(self.values, "values", (1, 2)))
        if 0 in values.shape:
            raise ValueError("values must have at least one bar, got none")
        series = labels_of(self.series, "series", len(values)) if self.series is not None else ()
        if len(values) > 1 and not series:
            raise ValueError(f"series must name the {len(values)} rows of values, got None")
        n = values.shape[1] if len(values) == 1 else len(values)
        each = "bar" if len(values) == 1 else "series"
        heads = heads_of(self.heads, n, each)
        roles = tuple(role or "" for role in self.roles or [""] * n)
        limits = limits_of(self.limits, values, self.log, zero=True)
        decimals = self.decimals
        if decimals is None and not self.log:
            decimals = _decimals(values, limits)
        reference = None
        if self.reference is not None:
            level, *name = listed("reference", self.reference, "a value and a name") or [None]
            if len(name) != 1:
                raise ValueError(f"reference must be (value, name), got {say(self.reference)}")
            reference = float(array_of(level, "reference[0]", (0,))), text_of(name[0])
        self._set(
            values=values,
            series=series,
            heads=heads,
            roles=roles,
            limits=limits,
            decimals=decimals,
            reference=reference,
            labels=labels_of(self.labels, "labels", values.shape[1]),
        )

    def text(self, series: int, bar: int) -> str:
        """What a bar says: "jumped = .85", with its series where there are several."""
        of_series = f", {self.series[series]}" if self.series else ""
        return f"{self.labels[bar]}{of_series} = {self.written(self.values[series, bar])}"

    def written(self, value: float, fewer: int = 0) -> str:
        """What stands at a bar: a whole count has no decimals, a share always has; or `fewer`."""
        counts = value % 1 == 0 and max(map(abs, self.limits)) > 1
        return number(value, None if counts or self.decimals is None else self.decimals - fewer)

    def table(self) -> Texts:
        rows = [
            [label, *map(self.written, values)]
            for label, values in zip(self.labels, self.values.T, strict=True)
        ]
        return ["", *(self.series or [self.name or "value"])], rows

    def _describe(self) -> str:
        n = self.values.shape[1]
        top = int(np.nan_to_num(np.abs(self.values), nan=-1.0).argmax())
        where, value = self.text(*divmod(top, n)).rsplit(" = ", 1)
        of_name = f" of {self.name}" if self.name else ""
        return f"{n} bars{of_name}; largest {value}: {where}"

    def written_size(self) -> Hashable:
        low = self.values[self.values < 0].tobytes()  # numbers hang below such bars
        level, name = self.reference or (None, None)
        widths = tuple(self._texts_at_bars(fewer)[1:] for fewer in range(2 if self.decimals else 1))
        heads = tuple(head is None for head in self.heads)
        return self.values.shape, low, widths, heads, (name, level if low else None)

    def sides(self, piece: Piece) -> tuple[float, float]:
        side = text_width(self.reference[1]) + 8 if self.reference else 0.0
        axis = widest_of(scale_of(self.limits, self.log)[1])
        if self.steady:
            axis = max(axis, text_width("−500"))
        return axis + 12 + (20 if self.name else 0), side

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        n_series, n = self.values.shape
        low, high = self.limits
        top = write_title(drawing, self)
        colours = series_colours(self.heads)
        if n_series == 1 and all(head is None for head in self.heads):
            colours = [PLAIN] * n
        colours = [ROLES.get(role, c) for role, c in zip(self.roles, colours, strict=True)]
        if n_series > 1:
            top = legend(drawing, self.series, colours, top, piece.left + space)
        left, tall = piece.left, piece.sizes.plot
        each = space / n / n_series * (0.76 if n_series > 1 else 1)
        texts, widest, _ = self._numbers(each)
        wanted = max(56.0, n_series * (widest + 5) / 0.76 if n_series > 1 else widest + 6)
        slot = min(max(wanted, widest_of([short(t) for t in self.labels]) + 8), space / n)
        bar = min(44.0 * n_series, slot * 0.76) / n_series
        pitch = slot if n_series == 1 else bar  # from number to number
        turned = self._numbers(pitch)[2]
        farthest = [number(v, self.decimals if abs(v) < 10 else 0) for v in self.limits]
        deepest = widest_of(farthest)  # so that nothing jumps
        deep = max(widest, deepest) if turned else 10.0  # of a number
        top += deep + 8
        bottom = top + tall
        right = left + n * slot

        up = share_of(low, high, self.log)

        def y(value: float) -> float:
            return bottom - tall * up(value)

        y_axis(drawing, scale_of(self.limits, self.log), y, (left, right), self.name, (top, bottom))
        level = None  # a logarithmic axis has no 0; the space for the name is kept
        if self.reference and (self.reference[0] > 0 or not self.log):
            level = y(self.reference[0])
        numbers = []
        for i in range(n):
            for s in range(n_series):
                value = float(self.values[s, i])
                if math.isnan(value):
                    continue
                x = left + (i + 0.5) * slot + (s - n_series / 2) * bar
                ends = sorted((y(value), y(low if self.log else max(low, 0.0))))
                colour, says = colours[s if n_series > 1 else i], self.text(s, i)
                drawing.add(Rect(x, ends[0], bar - 1, max(ends[1] - ends[0], 1), colour, says=says))
                over = ends[0] - 4 - deep / 2 if value >= 0 else ends[1] + 4 + deep / 2
                if level is not None and abs(over - level) < deep / 2 + 4:
                    over = level - 4 - deep / 2
                if not turned or pitch >= (12 if n_series == 1 else 11):
                    numbers.append(
                        Text(x + bar / 2, over, texts[s][i], align="center", turned=turned)
                    )
        if self.reference and level is not None:  # above the bars: there one compares
            drawing.add(Path(((left, level), (right, level)), LOW, dashed=True, width=1.5))
            drawing.add(Text(right + 6, level, self.reference[1]))
        drawing.add(*numbers)
        reach = [t.x + text_width(t.text) / 2 for t in numbers if not t.turned]
        drawing.width = max(drawing.width, *reach, 0.0)
        under = max((t.y + deep / 2 for t in numbers), default=0.0) - 2
        bottom = column_labels(drawing, self.labels, left, max(bottom, under), slot)
        drawing.height = max(drawing.height, bottom)
        drawing.width = max(drawing.width, right + piece.right)
        return drawing

    def _numbers(self, pitch: float) -> tuple[list[list[str]], float, bool]:
        """The numbers at bars that are `pitch` apart, with one decimal less where that makes them
        fit; the width of the widest; and whether it is too wide.
        """
        texts, widest, level = self._texts_at_bars()
        if self.decimals is not None and self.decimals > 1 and _too_wide(widest, level, pitch):
            shorter = self._texts_at_bars(1)
            if not _too_wide(*shorter[1:], pitch):
                texts, widest, level = shorter
        return texts, widest, _too_wide(widest, level, pitch)

    def _texts_at_bars(self, fewer: int = 0) -> tuple[list[list[str]], float, float]:
        """The numbers at the bars, the width of the widest, and the largest mean width of two
        neighbours at about one height.
        """
        texts = [[self.written(v, fewer) for v in row] for row in self.values]
        widths = [text_width(text) for numbers in zip(*texts, strict=True) for text in numbers]
        (low, high), values = self.limits, self.values.T.ravel().tolist()
        up = share_of(low, high, self.log)
        level = [
            (widths[i] + widths[i + 1]) / 2
            for i, (a, b) in enumerate(pairwise(values))
            if (a < 0) == (b < 0) and abs(up(a) - up(b)) < 0.25
        ]
        return texts, max(widths), max(level, default=0.0)


def _decimals(values: np.ndarray, limits: tuple[float, float]) -> int | None:
    """As many decimals for all bars as the longest needs for three digits, and shares two."""
    finite = np.abs(values[np.isfinite(values)])
    top = float(finite.max(initial=0.0))
    share = max(map(abs, limits)) <= 1
    if (finite % 1 == 0).all():
        return 2 if share else None
    if share and top >= 0.095:
        return 2
    return min(6, max(0, 2 - math.floor(math.log10(top))))


def _too_wide(widest: float, level: float, pitch: float) -> bool:
    """Whether numbers lie on the bar beside their own, or on each other."""
    return widest > 1.2 * pitch or level + 1 > pitch
