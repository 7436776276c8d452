"""A matrix as coloured cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from mha_course.base.numerals import number
from mha_course.pictures.colours import INK, LOW, MAPS, RAMP
from mha_course.pictures.fields import array_of, labels_of, own_range, range_of
from mha_course.pictures.labels import column_labels, name_rows, without_name, write_title
from mha_course.pictures.marks import (
    Cells,
    ColourBar,
    Drawing,
    Path,
    Text,
    short,
    text_width,
    whole_pixels,
    widest_of,
)
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import is_whole, listed, listed_ints, say

ENDS = ("[CLS]", "[SEP]")  # tokens around a sentence, no words of it
FLOAT32_END = float(np.finfo(np.float32).max)  # a browser gets the cells in float32
PHONE = 400  # here two maps stand side by side
BAR = 110.0  # the length of a colour bar
WRITTEN = 30  # cells, at most, that are all written in a page's table


@dataclass(frozen=True, eq=False)
class Heatmap(Panel):
    """A matrix as coloured cells, for example attention weights: row = query, column = key.

    `blocked` (bool, True = blocked) cells are hatched and carry no value. `limits` None means the
    panel's own range. `marks` are (row, column) cells to frame. `numbers` None writes values where
    they fit. A `mask` is of bools: True is hatched, False empty. A map that `picks` (control,
    position) moves an explorer's control there when it is pressed; the one that is `picked` is
    framed. With None as position each row turns the box of its own name: row "head 3" head_3.
    The column that other panels are about, `stands_out`, has lines beside it.
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
    picks: tuple[str, int | None] | None = None
    picked: bool = False
    stands_out: int | None = None

    looks: ClassVar[str] = "heatmap"
    sizeless = frozenset({"values", "rows", "blocked", "marks", "picks", "picked"})

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
            values=values,
            blocked=blocked,
            limits=limits,
            colours=colours,
            marks=marks,
            numbers=False if self.mask else self.numbers,
            rows=labels_of(self.rows, "rows", values.shape[0]),
            columns=labels_of(self.columns, "columns", values.shape[1]),
            decimals=decimals,
        )

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

    def largest(self) -> tuple[str, float] | None:
        """Where its largest value is; between words, where they stand between [CLS] and [SEP]."""
        if self.mask:
            return None
        keep = ~self.blocked & np.isfinite(self.values)
        if self._between_words:
            keep &= np.array([word not in ENDS for word in self.rows])[:, None]
            keep &= np.array([word not in ENDS for word in self.columns])
        if not keep.any():
            return None
        r, c = divmod(int(np.where(keep, np.abs(self.values), -1.0).argmax()), self.values.shape[1])
        return f"{self.rows[r]} → {self.columns[c]}", float(self.values[r, c])

    def table(self) -> Texts:
        across = range(self.values.shape[1])
        if self.values.size <= WRITTEN:
            cells = [[self._cell(r, c) for c in across] for r in range(len(self.values))]
            header: Sequence[str] = self.columns
        else:
            cells = [[self._in_words(r)] for r in range(len(self.values))]
            header = ["in words" if self.mask else "largest three"]
        return ["", *header], [[name, *row] for name, row in zip(self.rows, cells, strict=True)]

    def _cell(self, row: int, column: int) -> str:
        return self.text(row, column).rsplit(" = ", 1)[1]

    def _in_words(self, row: int) -> str:
        """A row's three largest values, the lowest below zero, what is blocked (in masks: True)."""
        values = np.nan_to_num(np.where(self.blocked[row], 0, self.values[row]), nan=0.0)
        order = [c for c in np.argsort(-values, kind="stable").tolist() if values[c]]
        axis = [f"{self.column_name} " * label[:1].isdigit() + label for label in self.columns]
        told = [f"{axis[c]} {self._cell(row, c)}" for c in order]
        low = [f"lowest {told[-1]}" for c in order[3:][-1:] if values[c] < 0]
        parts = [", ".join(told[:3]), *low]
        if names := [self.columns[c] for c in np.flatnonzero(self.blocked[row])]:
            what = "True" if self.mask else "blocked"
            whole = len(names) == len(self.columns)
            parts.append(f"all {what}" if whole else f"{what}: {_spans(names)}")
        return "; ".join(filter(None, parts)) or "0"

    @cached_property
    def _between_words(self) -> bool:
        """Whether rows and columns are the words of a sentence, with `ENDS` around them."""
        both = (set(self.rows), set(self.columns))
        return all(names & set(ENDS) and names - set(ENDS) for names in both)

    @property
    def peak(self) -> tuple[float, str] | None:
        if not (top := self.largest()):
            return None
        between = " between words" * self._between_words
        where, value = top
        return abs(value), f"largest {self.quantity}{between} {self._number(value)}: {where}"

    def _describe(self) -> str:
        n_rows, n_columns = self.values.shape
        what = "mask" if self.mask else "heatmap"
        words = [f"{what} of {n_rows} × {n_columns}, {self.row_name} → {self.column_name}"]
        if peak := self.peak:
            words.append(peak[1])
        if self.mask:
            words.append(f"{int(self.values.sum())} True")
        elif self.blocked.any():
            words.append(f"{int(self.blocked.sum())} blocked")
        if np.isnan(self.values[~self.blocked]).any():
            words.append(f"{int(np.isnan(self.values[~self.blocked]).sum())} NaN")
        return "; ".join(words)

    @property
    def cell_rows(self) -> int:
        return len(self.values)

    def levels(self) -> np.ndarray:
        """Where each value lies in its map: (rows, columns) of indices 0 to 255, ends clipped."""
        low, high = self.limits
        with np.errstate(invalid="ignore"):
            share = np.clip((self.values - low) / (high - low), 0, 1)
        return np.nan_to_num(share * (RAMP - 1)).round().astype(int)

    def axis_labels(self, axis: Literal["rows", "columns"]) -> Hashable:
        return (self.rows, self.row_name) if axis == "rows" else (self.columns, self.column_name)

    def written_size(self) -> Hashable:
        named = widest_of([short(label) for label in self.rows])
        return self.values.shape, bool(self.blocked.any()), self.number_width(math.inf), named

    def above(self, piece: Piece) -> float:
        each_says = self.numbers is not False and self.values.size <= 64  # no colour bar needed
        return super().above(piece) + 26.0 * ((piece.bar or self.mask) and not each_says)

    def sides(self, piece: Piece) -> tuple[float, float]:
        if not piece.rows:
            return 0.0, 0.0
        labels = widest_of(without_name(self.rows, self.row_name))
        return math.ceil(labels) + 10.0 + (20 if self.row_name else 0), 0.0

    def cell_height(self, piece: Piece, space: float) -> float:
        return self._cell_size(piece, space)[1]

    def number_width(self, space: float) -> float:
        """The width that a cell needs for its number, or 0 where none is written."""
        numbers = self.values.size <= 64 if self.numbers is None else self.numbers
        if not numbers:
            return 0.0
        words = [self._number(v) for v in self.values[~self.blocked]]
        widest = widest_of([*words, "1.00"])  # so that cells do not change with the values
        return widest if space / self.values.shape[1] >= widest + 6 else 0.0

    def _cell_size(self, piece: Piece, space: float) -> tuple[float, float]:
        most = piece.sizes.cell
        n_rows, n_columns = self.values.shape
        number = self.number_width(space)
        width = whole_pixels(min(max(46.0, number + 14) if number else 27.0, space / n_columns))
        if number:
            return width, 32.0 if most >= 27 else max(most, 16.0)
        if self.bare:  # a thumbnail of a size that hardly depends on its number of cells
            width = whole_pixels(min(space / n_columns, 3.6 * most / n_columns))
            return width, width
        low = 15.0 if n_rows <= 8 else 11.5 if piece.rows else 0.0  # so high that labels fit
        if piece.page < PHONE and space < piece.page / 2:  # fewer labels, less to scroll
            low = 0.0
        height = piece.cell or min(max(width, low), most)
        return min(width, whole_pixels(1.7 * height)), height

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        n_rows, n_columns = self.values.shape
        top, left = write_title(drawing, self), piece.left
        if self.above(piece) > top:
            key = _key(("True", True), ("False", False)) if self.mask else None
            length = 44.0 if piece.narrow else BAR
            drawing.paste(key or self.colour_bar(bool(self.blocked.any()), length), 0, top)
        top = self.above(piece)
        width, height = self._cell_size(piece, space)
        drawing.add(HeatmapCells(left, top, width, height, self, self.number_width(space) > 0))
        right, bottom = left + n_columns * width, top + n_rows * height
        if self.picked:  # within the 2 pixels that a canvas has beside its picture
            x, y, end = left - 0.7, top - 3, right + 0.7
            frame = ((x, y), (end, y), (end, bottom + 2), (x, bottom + 2), (x, y))
            drawing.add(Path(frame, LOW, width=2.5))
        if self.stands_out is not None:
            for x in (left + (self.stands_out + at) * width - 0.5 for at in (0, 1)):
                drawing.add(Path(((x, top - 3), (x, bottom + 3)), INK))
        named = 0.0
        if piece.rows:
            every = math.ceil(11.5 / height)
            drawing.add(
                *(
                    Text(left - 7, top + (i + 0.5) * height, label, align="right")
                    for i, label in enumerate(without_name(self.rows, self.row_name))
                    if i % every == 0 and label
                )
            )
            named = name_rows(drawing, self.row_name, top, bottom)
        if piece.columns:
            middle = left + n_columns * width / 2
            labels = without_name(self.columns, self.column_name)
            bottom = column_labels(drawing, labels, left, bottom, width)
            if self.column_name:
                drawing.add(Text(middle, bottom + 10, self.column_name, "center"))
                half = text_width(self.column_name) / 2
                right = max(right, middle + half)
                bottom += 20
        drawing.width, drawing.height = max(right, drawing.width), max(bottom, named)
        return drawing

    def colour_bar(self, blocked: bool, length: float = BAR) -> Drawing:
        """Its scale, with the key of blocked cells where some are."""
        drawing = Drawing(height=20)
        start, end = self.ends()
        x = 0.0
        for label in (self.quantity, start):
            drawing.add(Text(x, 10, label))
            x += text_width(label) + 8
        by_row = "row’s largest" if self.by_row else ""
        drawing.add(ColourBar(x, 4, length, 12, self.colours, end, by_row))
        drawing.width = x + length + 8 + text_width(end)
        if blocked:
            drawing.paste(_key(("blocked", True)), drawing.width + 18, 0)
        return drawing


def _spans(names: Sequence[str]) -> str:
    """Names in a list, numbers that follow each other as "1 to 5": areas.js."""
    runs: list[list[str]] = []
    for name in names:
        if runs and runs[-1][-1].isdecimal() and name == str(int(runs[-1][-1]) + 1):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(r) for r in runs)


@cache
def _key(*names: tuple[str, bool]) -> Drawing:
    """A key of cells: hatched ones (True) and empty ones, with their names."""
    drawing, x = Drawing(height=20), 0.0
    for name, hatched in names:
        key = Heatmap([[hatched]], mask=True, numbers=False, alt=name)
        drawing.add(HeatmapCells(x, 4, 12, 12, key, key=True), Text(x + 20, 10, name))
        drawing.width = x + 20 + text_width(name)
        x = drawing.width + 14
    return drawing


@dataclass(frozen=True, eq=False)
class HeatmapCells(Cells):
    """The cells of a heatmap; those of a `key` say what hatching means and are not pointed at."""

    panel: Heatmap
    numbers: bool = False
    key: bool = False

    @property
    def gap(self) -> float:
        return 1.0 if min(self.width, self.height) >= 8 else 0.0

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        panel = self.panel
        names = "limits", "colours", "by_row", "marks", "decimals", "mask"
        return {
            "kind": "heatmap",
            **self.grid(),
            "numbers": self.numbers,
            **{name: getattr(panel, name) for name in names},
            "key": self.key,
            "shape": panel.values.shape,
            "picks": tuple(panel.picks or ()) or None,
            **values_sent(panel, put),
        }


def values_sent(panel: Heatmap, put: Callable[[Any], int]) -> dict[str, Any]:
    """Values and labels; `put` keeps an array and gives its number."""
    blocked = put(panel.blocked) if panel.blocked.any() else None
    names = "rows", "columns", "row_name", "column_name", "title"
    words = {name: getattr(panel, name) for name in names}
    return {"values": put(panel.values), "blocked": blocked, **words}
