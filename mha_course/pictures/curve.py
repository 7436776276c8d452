"""Lines over one x."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mha_course.base.numerals import counted, number, ticks
from mha_course.pictures.axes import legend, limits_of, scale_of, series_colours, share_of, y_axis
from mha_course.pictures.fields import array_of, heads_of, text_of
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import Dot, Drawing, Path, Text, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import listed, require_kind, say

POINTS = 9  # of a line, at most, in a page's table


@dataclass(frozen=True, eq=False)
class Curve(Panel):
    """Named lines over one x. NaN leaves a gap. Lines named in `dashed` are predictions or guides.

    `marker` is the x of now: a rule, and each line's value there. `heads` colours the lines.
    """

    x: Any
    lines: Mapping[str, Any]
    _: KW_ONLY
    heads: Any = None
    dashed: Sequence[str] = ()
    marker: float | None = None
    log_x: bool = False
    log_y: bool = False
    limits: Any = None
    x_name: str = ""
    y_name: str = ""

    looks: ClassVar[str] = "line chart"
    sizeless = frozenset({"marker", "lines"})

    def _check(self) -> None:
        x = array_of(self.x, "x", (1,))
        if not x.size or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
            raise ValueError(f"x must be finite and increasing, got {self.x!r}")
        if self.log_x and x[0] <= 0:
            raise ValueError(f"x must be positive on a logarithmic axis, got {x[0]}")
        require_kind("lines", self.lines, Mapping)
        if not self.lines:
            raise ValueError("lines must hold at least one line, got none")
        lines = {text_of(k): array_of(v, f"lines[{say(k)}]", (1,)) for k, v in self.lines.items()}
        for name, y in lines.items():
            if y.shape != x.shape:
                raise ValueError(f"lines[{name!r}] must have {x.size} values, got {y.size}")
        heads = heads_of(self.heads, len(lines), "line")
        dashed = tuple(map(text_of, listed("dashed", self.dashed, "names of lines")))
        if unknown := set(dashed) - lines.keys():
            raise ValueError(f"dashed must name lines among {list(lines)}, got {say(unknown)}")
        stacked = np.stack(list(lines.values()))
        limits = limits_of(self.limits, stacked, self.log_y, zero=not self.log_y)
        self._set(x=x, lines=lines, heads=heads, limits=limits, dashed=dashed)

    @property
    def x_limits(self) -> tuple[float, float]:
        """The ends of the x axis."""
        first, last = float(self.x[0]), float(self.x[-1])
        if first < last:
            return first, last
        return (first / 2, first * 2) if self.log_x else (first - 0.5, first + 0.5)

    def now(self) -> int:
        """The index of x nearest to the marker, or of the last x."""
        if self.marker is None:
            return len(self.x) - 1
        return int(np.argmin(np.abs(self.x - self.marker)))

    @cached_property
    def texts(self) -> list[list[str]]:
        """What every point of every line says; kept, since a layout is tried in several sizes."""
        return [[self.text(i, k) for k in range(len(self.x))] for i in range(len(self.lines))]

    def text(self, line: int, index: int) -> str:
        """What a point says: "measured at T = 512: 3.2"."""
        name = list(self.lines)[line]
        at = f"{self.x_name} = " if self.x_name else "x = "
        return f"{name} at {at}{number(self.x[index])}: {number(self.lines[name][index])}"

    def table(self) -> Texts:
        at = np.unique(
            np.linspace(0, len(self.x) - 1, min(len(self.x), POINTS)).round().astype(int)
        )
        lines = self.lines.values()
        some = sorted({*at.tolist(), self.now()})
        rows = [[number(self.x[k]), *(number(y[k]) for y in lines)] for k in some]
        return [self.x_name, *self.lines], rows

    def _describe(self) -> str:
        over = f" over {self.x_name}" if self.x_name else ""
        what = f" of {self.y_name}" if self.y_name else ""
        now = "; ".join(self.text(i, self.now()) for i in range(min(4, len(self.lines))))
        return f"{counted(len(self.lines), 'curve')}{what}{over}; {now}"

    def _drawable(self, values: np.ndarray) -> np.ndarray:
        """Which points of a line can be drawn."""
        return np.isfinite(values) & ((values > 0) | (not self.log_y))

    def written_size(self) -> Hashable:  # a name stands where its line ends
        return tuple((name, *y[self._drawable(y)][-1:]) for name, y in self.lines.items())

    def sides(self, piece: Piece) -> tuple[float, float]:
        beside = len(self.lines) > 1 and not piece.narrow
        names = widest_of(list(self.lines)) + 26 if beside else 14.0
        axis = widest_of(scale_of(self.limits, self.log_y)[1])
        return axis + 12 + (20 if self.y_name else 0), names

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        top = write_title(drawing, self) + 8
        low, high = self.limits
        x_low, x_high = self.x_limits
        left, colours = piece.left, series_colours(self.heads)
        if len(self.lines) > 1 and piece.narrow:
            dashed = [name in self.dashed for name in self.lines]
            top = legend(drawing, [*self.lines], colours, top - 8, left + space, dashed) + 6
        right, bottom = left + max(100.0, min(520.0, space)), top + piece.sizes.plot + 30

        along, up = share_of(x_low, x_high, self.log_x), share_of(low, high, self.log_y)

        def x(value: float) -> float:
            return left + (right - left) * along(value)

        def y(value: float) -> float:
            return bottom - (bottom - top) * up(value)

        scale = scale_of(self.limits, self.log_y)
        y_axis(drawing, scale, y, (left, right), self.y_name, (top, bottom))
        most = max(2, min(6, int((right - left) / 64)))
        sparse = self.log_x and len(self.x) <= most + 1
        for tick in self.x if sparse else ticks(x_low, x_high, self.log_x, most):
            drawing.add(Path(((x(tick), bottom), (x(tick), bottom + 5)), width=1))
            drawing.add(Text(x(tick), bottom + 16, number(tick), align="center"))
        if self.x_name:
            drawing.add(Text((left + right) / 2, bottom + 37, self.x_name, "center"))
        if self.marker is not None:
            here = x(self.marker)
            drawing.add(Path(((here, top), (here, bottom)), dashed=True, width=1.5))
        ends, now = [], self.now()
        for i, (name, values) in enumerate(self.lines.items()):
            hollow = name in self.dashed or (self.heads[i] or 0) >= 8
            seen = np.flatnonzero(self._drawable(values))
            for run in np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1):
                points = tuple((x(self.x[k]), y(values[k])) for k in run)
                if len(points) > 1:
                    turn = 1 + i % 2 if hollow else 0
                    drawing.add(Path(points, colours[i], dashed=turn))
            every = math.ceil(len(seen) / 64)  # more dots would lie on each other
            for k in seen:
                big = k == now and self.marker is not None
                if k % every and not big:
                    continue
                size = 4.5 if big else 2.5 if len(seen) <= 24 and not hollow else 0.0
                spot = Dot(x(self.x[k]), y(values[k]), colours[i], size, self.texts[i][k])
                drawing.add(spot)
            if len(seen):
                ends.append((y(values[seen[-1]]), name, colours[i]))
        if len(self.lines) > 1 and not piece.narrow:
            free = top - 23
            for i, (end, name, colour) in enumerate(sorted(ends)):
                lowest = bottom - 15 * (len(ends) - 1 - i)  # above the numbers of the axis below
                free = max(min(end, lowest), free + 15)
                hollow = name in self.dashed
                swatch = Path(((right + 6, end), (right + 18, free)), colour, dashed=hollow)
                drawing.add(swatch, Text(right + 22, free, name))
            drawing.height = max(drawing.height, free + 8)
        drawing.width = max(drawing.width, right + piece.right)
        drawing.height = max(drawing.height, bottom + (46 if self.x_name else 26))
        return drawing
