"""Panels of measured values: maps, ribbons between words, bars, lines, arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mha_course.pictures.colours import MAPS, RAMP
from mha_course.pictures.fields import (
    Panel,
    array_of,
    heads_of,
    labels_of,
    own_range,
    range_of,
    text_of,
)
from mha_course.pictures.numerals import counted, number
from mha_lesson.refusals import is_whole, listed, listed_ints, require_kind, require_whole, say

FLOAT32_END = float(np.finfo(np.float32).max)  # a browser gets the cells in float32
ENDS = ("[CLS]", "[SEP]")  # around a sentence: much is parked there, and little is said by it
FAINT = 0.04  # a weight below it has no ribbon


@dataclass(frozen=True, eq=False)
class Heatmap(Panel):
    """A matrix as coloured cells, for example attention weights: row = query, column = key.

    `blocked` (bool, True = blocked) cells are hatched and carry no value. `limits` None means the
    panel's own range. `marks` are (row, column) cells to frame. `numbers` None writes values where
    they fit. A `mask` is of bools: True is hatched, False empty. A map that `picks` (control,
    position) moves an explorer's control there when it is pressed; the one that is `picked` is
    framed.
    """

    values: Any
    rows: Any = None
    columns: Any = None
    _: KW_ONLY
    blocked: Any = None
    limits: Any = None
    colours: Any = None
    row_name: str = "query"
    column_name: str = "key"
    quantity: str = "weight"
    marks: Sequence[tuple[int, int]] = ()
    numbers: bool | None = None
    decimals: int | None = None
    mask: bool = False
    picks: tuple[str, int] | None = None
    picked: bool = False

    kind: ClassVar[str] = "heatmap"

    def _check(self) -> None:
        values = array_of(self.values, "values", (2,))
        if 0 in values.shape:
            raise ValueError(f"values must have at least one cell, got shape {values.shape}")
        blocked = (values == 1) if self.mask else np.zeros(values.shape, bool)
        if self.mask and (self.blocked is not None or not np.isin(values, (0, 1)).all()):
            raise ValueError("values of a mask must be True and False, without blocked cells")
        if self.blocked is not None:
            blocked = array_of(self.blocked, "blocked", (2,), bool)
            if blocked.shape != values.shape:
                raise ValueError(
                    f"blocked must have the shape of values {values.shape}, got {blocked.shape}"
                )
        seen = values[~blocked]
        if (np.isfinite(seen) & (np.abs(seen) > FLOAT32_END)).any():
            raise ValueError(f"values must lie within ±{FLOAT32_END:.1e}, or be infinite")
        limits = None if self.limits is None else range_of(self.limits)
        colours = self.colours
        if colours is None:  # 0 is the pale middle wherever values may lie on both sides of it
            below = (seen < 0).any() or (limits is not None and limits[0] < 0)
            colours = "diverging" if below else "sequential"
        if not (isinstance(colours, str) and colours in MAPS):
            raise ValueError(f"colours must be one of {', '.join(MAPS)}, got {say(colours)}")
        if limits is None:
            limits = own_range(seen)
            if colours != "sequential":
                far = max(-limits[0], limits[1])
                limits = (-far, far)
        last = [n - 1 for n in values.shape]
        marks = tuple(
            tuple(listed_ints(f"marks[{i}]", cell))
            for i, cell in enumerate(listed("marks", self.marks, "(row, column) cells"))
        )
        if not all(len(m) == 2 and all(map(is_whole, m, (0, 0), last)) for m in marks):
            raise ValueError(f"marks must be cells of a {values.shape} matrix, got {say(marks)}")
        decimals = self.decimals
        if decimals is None and max(abs(limits[0]), abs(limits[1])) <= 1 and (seen % 1 != 0).any():
            decimals = 2
        self._set(
            values=values, blocked=blocked, limits=limits, colours=colours, marks=marks,
            numbers=False if self.mask else self.numbers,
            rows=labels_of(self.rows, "rows", values.shape[0]),
            columns=labels_of(self.columns, "columns", values.shape[1]), decimals=decimals,
        )  # fmt: skip

    @property
    def by_row(self) -> bool:
        """Whether a reader may let each row's colours run from 0 up to its own largest."""
        return self.colours == "sequential" and self.limits[0] == 0

    def ends(self) -> tuple[str, str]:
        """What stands at the two ends of its colour bar."""
        low, high = (number(v, None if v.is_integer() else self.decimals) for v in self.limits)
        return low, high

    def text(self, row: int, column: int) -> str:
        """What cell (row, column) says: "it → creek = .85"."""
        value = "blocked" if self.blocked[row, column] else self._number(self.values[row, column])
        if self.mask:
            value = str(bool(self.values[row, column]))
        return f"{self.rows[row]} → {self.columns[column]} = {value}"

    def _number(self, value: float) -> str:
        return number(value, self.decimals)

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        """The largest values; between words, where a sentence stands between [CLS] and [SEP]."""
        if self.mask:
            return []
        keep = ~self.blocked & np.isfinite(self.values)
        if self._between_words:
            keep &= np.array([word not in ENDS for word in self.rows])[:, None]
            keep &= np.array([word not in ENDS for word in self.columns])
        flat = np.where(keep, np.abs(self.values), -1.0).ravel()
        order = [flat.argmax()] if n == 1 else np.argsort(-flat, kind="stable")[:n]
        cells = [divmod(int(i), self.values.shape[1]) for i in order if flat[i] >= 0]
        return [
            (f"{self.rows[r]} → {self.columns[c]}", self._number(self.values[r, c]))
            for r, c in cells
        ]

    @cached_property
    def _between_words(self) -> bool:
        """Whether words look at words, and at the marks around them."""
        both = (set(self.rows), set(self.columns))
        return all(names & set(ENDS) and names - set(ENDS) for names in both)

    def _describe(self) -> str:
        n_rows, n_columns = self.values.shape
        what = "mask" if self.mask else "heatmap"
        words = [f"{what} of {n_rows} × {n_columns}, {self.row_name} → {self.column_name}"]
        if top := self.largest(1):
            between = " between words" * self._between_words
            words.append(f"largest {self.quantity}{between} {top[0][1]}: {top[0][0]}")
        if self.mask:
            words.append(f"{int(self.values.sum())} True")
        elif self.blocked.any():
            words.append(f"{int(self.blocked.sum())} blocked")
        if np.isnan(self.values[~self.blocked]).any():
            words.append(f"{int(np.isnan(self.values[~self.blocked]).sum())} NaN")
        return "; ".join(words)


@dataclass(frozen=True, eq=False)
class Words(Panel):
    """A map of weights as ribbons from each query's word, left, to the keys' words, right.

    A ribbon is as wide as its weight; weights below `FAINT` have none. Those of query `row` stand
    out, until the reader points at another word.
    """

    weights: Any
    _: KW_ONLY
    row: int | None = None

    kind: ClassVar[str] = "words"

    def _check(self) -> None:
        require_kind("weights", self.weights, Heatmap)
        values = self.weights.values
        if not (values[np.isfinite(values)] >= 0).all() or (values > 1).any():
            raise ValueError("weights must lie between 0 and 1")
        if self.row is not None:
            require_whole("row", self.row, 0, len(values) - 1)

    @property
    def ribbons(self) -> list[tuple[int, int, float]]:
        """(row, column, weight) of each ribbon, the strong ones last."""
        seen = np.where(self.weights.blocked, 0, np.nan_to_num(self.weights.values))
        places = [divmod(int(i), seen.shape[1]) for i in np.argsort(seen, axis=None, kind="stable")]
        return [(r, c, float(seen[r, c])) for r, c in places if seen[r, c] >= FAINT]

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        return self.weights.largest(n)

    def _describe(self) -> str:
        return f"ribbons between words: {self.weights._describe()}"


@dataclass(frozen=True, eq=False)
class Bars(Panel):
    """One bar for each label, or several series of them side by side.

    `values` is (n,) or (series, n). `heads` gives a head (its colour) to each bar of one series, or
    to each of several series; `roles` does the same with names of `ROLES`. `reference` is a
    (value, name) line across, where the axis has a place for it, `name` what is measured.
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

    kind: ClassVar[str] = "bars"

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
        limits = _curve_limits(self.limits, values, self.log, zero=True)
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
            values=values, series=series, heads=heads, roles=roles, limits=limits,
            decimals=decimals, reference=reference,
            labels=labels_of(self.labels, "labels", values.shape[1]),
        )  # fmt: skip

    def text(self, series: int, bar: int) -> str:
        """What a bar says: "jumped = .85", with its series where there are several."""
        of = f", {self.series[series]}" if self.series else ""
        return f"{self.labels[bar]}{of} = {self.written(self.values[series, bar])}"

    def written(self, value: float, fewer: int = 0) -> str:
        """What stands at a bar: a whole count has no decimals, a share always has; or `fewer`."""
        counts = value % 1 == 0 and max(map(abs, self.limits)) > 1
        return number(value, None if counts or self.decimals is None else self.decimals - fewer)

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        flat = np.nan_to_num(np.abs(self.values), nan=-1.0).ravel()
        out = []
        for i in np.argsort(-flat, kind="stable")[:n]:
            where, value = self.text(*divmod(int(i), self.values.shape[1])).rsplit(" = ", 1)
            out.append((where, value))
        return out

    def _describe(self) -> str:
        n = self.values.shape[1]
        top = self.largest(1)[0]
        of = f" of {self.name}" if self.name else ""
        return f"{n} bars{of}; largest {top[1]}: {top[0]}"


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


def _curve_limits(limits: Any, values: np.ndarray, log: bool, zero: bool) -> tuple[float, float]:
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

    kind: ClassVar[str] = "curve"

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
        limits = _curve_limits(self.limits, stacked, self.log_y, zero=not self.log_y)
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
    def said(self) -> list[list[str]]:
        """What every point of every line says: a layout is tried in several sizes."""
        return [[self.text(i, k) for k in range(len(self.x))] for i in range(len(self.lines))]

    def text(self, line: int, index: int) -> str:
        """What a point says: "measured at T = 512: 3.2"."""
        name = list(self.lines)[line]
        at = f"{self.x_name} = " if self.x_name else "x = "
        return f"{name} at {at}{number(self.x[index])}: {number(self.lines[name][index])}"

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        """Where each line is now: all of them, whatever `n`."""
        said = (self.text(i, self.now()).rsplit(": ", 1) for i in range(len(self.lines)))
        return [(where, value) for where, value in said]

    def _describe(self) -> str:
        over = f" over {self.x_name}" if self.x_name else ""
        what = f" of {self.y_name}" if self.y_name else ""
        now = "; ".join(self.text(i, self.now()) for i in range(min(4, len(self.lines))))
        return f"{counted(len(self.lines), 'curve')}{what}{over}; {now}"


@dataclass(frozen=True, eq=False)
class Walk(Panel):
    """Numbered arrows in a plane, each from the tip of the one before; one is dashed: their sum.

    `steps` is (n, 2), the arrow of head 0 first. `frame` is (left, right, lowest, highest): what
    of the plane is shown.
    """

    steps: Any
    frame: Any
    _: KW_ONLY
    x_name: str = ""

    kind: ClassVar[str] = "walk"

    def _check(self) -> None:
        self._set(steps=array_of(self.steps, "steps", (2,)))

    def corners(self) -> np.ndarray:
        """(n + 1, 2): where the arrows begin and end."""
        return np.concatenate([np.zeros((1, 2)), self.steps.cumsum(axis=0)])

    def text(self, step: int) -> str:
        """What an arrow says: "head 3: 1.03 along, .94 down"."""
        along, up = self.steps[step]
        side = "up" if up >= 0 else "down"
        return f"head {step}: {number(along, 2)} along, {number(abs(up), 2)} {side}"

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        order = np.argsort(-np.linalg.norm(self.steps, axis=1), kind="stable")[:n]
        return [(where, value) for i in order for where, value in [self.text(int(i)).split(": ")]]

    def _describe(self) -> str:
        along, up = self.corners()[-1]
        return f"{len(self.steps)} arrows, tip to tail, to ({number(along, 2)}, {number(up, 2)})"


def shares(panel: Heatmap) -> np.ndarray:
    """Where each value lies in its map: (rows, columns) of indices 0 to 255, ends clipped."""
    low, high = panel.limits
    with np.errstate(invalid="ignore"):
        share = np.clip((panel.values - low) / (high - low), 0, 1)
    return np.nan_to_num(share * (RAMP - 1)).round().astype(int)
