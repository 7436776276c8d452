"""Cells of memory or of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

from mha_course.pictures.colours import INK
from mha_course.pictures.fields import array_of, grid_of, labels_of, text_of
from mha_course.pictures.labels import column_labels, name_rows, write_title
from mha_course.pictures.marks import Cells, Drawing, Path, Text, whole_pixels, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts

SENT = """
    labels says rows columns row_name column_name break_rows break_columns copied title
"""
BREAK, LETTER = 8.0, 7.6  # the gap between blocks of tiles; the width of a letter in a tile


@dataclass(frozen=True, eq=False)
class Tiles(Panel):
    """Cells of memory or of a tensor: a strip or a grid of labelled, coloured cells.

    `labels` is (rows, columns) of text, or one row; None leaves a hole. `heads` colours each cell
    (-1 or None: no colour). Cells of one number in `links`, in any panel of the scene, light up
    together. `says` is what a cell reads when it is pointed at; `wrong` cells (True) are marked as
    faulty. A thin gap follows every `break_rows` rows and `break_columns` columns. `path` is the
    order in which the cells of a strip are read. `copied` cells come from the tiles drawn before.
    """

    labels: Any
    _: KW_ONLY
    heads: Any = None
    links: Any = None
    says: Any = None
    wrong: Any = None
    rows: Any = None
    columns: Any = None
    row_name: str = ""
    column_name: str = ""
    break_rows: int = 0
    break_columns: int = 0
    path: Sequence[int] = ()
    copied: bool = False

    looks: ClassVar[str] = "cell grid"
    sizeless = frozenset({"labels", "heads", "links", "says", "wrong"})
    aligned = False  # cells have a width of their own

    def _check(self) -> None:
        labels = grid_of(self.labels, "labels")
        shape = (len(labels), len(labels[0]))
        if not shape[1]:
            raise ValueError("labels must have at least one cell, got none")

        def given(name: str, default: Any) -> list[list[Any]]:
            grid = getattr(self, name)
            if grid is None:
                return [[default] * shape[1]] * shape[0]
            grid = grid_of(grid, name)
            if (len(grid), len(grid[0])) != shape:
                got = (len(grid), len(grid[0]))
                raise ValueError(f"{name} must have the shape of labels {shape}, got {got}")
            return [[default if cell is None else cell for cell in row] for row in grid]

        words = tuple(tuple(None if c is None else text_of(c) for c in row) for row in labels)
        says = words if self.says is None else given("says", "")
        self._set(
            labels=words,
            path=tuple(self.path),
            says=tuple(tuple("" if c is None else text_of(c) for c in row) for row in says),
            heads=array_of(given("heads", -1), "heads", (2,), int),
            links=array_of(given("links", -1), "links", (2,), int),
            wrong=array_of(given("wrong", False), "wrong", (2,), bool),
            rows=() if self.rows is None else labels_of(self.rows, "rows", shape[0]),
            columns=() if self.columns is None else labels_of(self.columns, "columns", shape[1]),
        )

    def text(self, row: int, column: int) -> str:
        """What cell (row, column) reads."""
        says = self.says[row][column]
        return f"{says}; in the wrong place" if self.wrong[row, column] else says

    def table(self) -> Texts:
        names = self.rows or [str(r) for r in range(len(self.labels))]
        columns = self.columns or [str(c) for c in range(len(self.labels[0]))]
        cells = [
            [f"{text or ''}{' (wrong)' * bool(self.wrong[r, c])}" for c, text in enumerate(row)]
            for r, row in enumerate(self.labels)
        ]
        return ["", *columns], [[name, *row] for name, row in zip(names, cells, strict=True)]

    def _describe(self) -> str:
        n_rows, n_columns = len(self.labels), len(self.labels[0])
        cells = [*dict.fromkeys(c for row in self.labels for c in row if c is not None)]
        shown = ", ".join(cells[:6]) + (" …" if len(cells) > 6 else "")
        size = f"{n_columns} cells in a row" if n_rows == 1 else f"{n_rows} × {n_columns} cells"
        faulty = f"; {int(self.wrong.sum())} in the wrong place" if self.wrong.any() else ""
        return f"{size}: {shown}{faulty}"

    def written_size(self) -> Hashable:
        words = [text for row in self.labels for text in row if text]
        return len(self.labels), len(self.labels[0]), widest_of(words)

    def sides(self, piece: Piece) -> tuple[float, float]:
        labels = math.ceil(widest_of(self.rows)) + 10.0 if self.rows else 0.0
        return labels + (20 if self.row_name else 0), 0.0

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        top, left = write_title(drawing, self), piece.left
        n_rows, n_columns = len(self.labels), len(self.labels[0])
        wanted = widest_of([t for row in self.labels for t in row if t]) + 12
        breaks = _breaks_before(n_columns - 1, self.break_columns)
        longest = max(len(text or "") for row in self.labels for text in row)
        legible, most = math.ceil(LETTER * longest) + 4.0, (piece.page - left - breaks) / n_columns
        along = piece.narrow and legible < 2.4 * most  # rather moved along than without its letters
        least = legible if along else 3.0
        width = whole_pixels(max(3.0, least, min(max(28.0, wanted), (space - breaks) / n_columns)))
        height = min(26.0 if n_rows <= 16 else 16.0, max(piece.sizes.cell, 13.0))
        if self.path:
            top += 20
        cells = TileCells(left, top, width, height, self, numbers=width >= legible)  # all, or none
        drawing.add(cells)
        if self.path:
            drawing.add(Path(tuple(_hops(self.path, left, top, width)), INK, width=1.5))
        for i, label in enumerate(self.rows):
            drawing.add(Text(left - 7, cells.at(i, 0)[1] + height / 2, label, align="right"))
        right, last = cells.at(n_rows - 1, n_columns - 1)
        right, bottom = right + width, last + height
        named = name_rows(drawing, self.row_name, top, bottom)
        if self.columns:
            bottom = column_labels(
                drawing, self.columns, left, bottom, width, lambda i: cells.at(0, i)[0] + width / 2
            )
        if self.column_name:
            drawing.add(Text((left + right) / 2, bottom + 12, self.column_name, "center"))
            bottom += 24
        drawing.width, drawing.height = max(drawing.width, right), max(bottom, named)
        return drawing


@dataclass(frozen=True, eq=False)
class TileCells(Cells):
    """The cells of tiles, with their letters where `numbers` says so."""

    panel: Tiles
    numbers: bool = False

    @property
    def gap(self) -> float:
        return 2.0 if self.width >= 8 else 0.5

    def at(self, row: int, column: int) -> tuple[float, float]:
        x, y = super().at(row, column)
        x += _breaks_before(column, self.panel.break_columns)
        return x, y + _breaks_before(row, self.panel.break_rows)

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        panel = self.panel
        grids = {
            name: tuple(map(tuple, getattr(panel, name).astype(int).tolist()))
            for name in ("heads", "links", "wrong")
        }
        words = {name: getattr(panel, name) for name in SENT.split()}
        return {"kind": "tiles", **self.grid(), "numbers": self.numbers, **words, **grids}


def _breaks_before(index: int, every: int) -> float:
    """The gaps between blocks before cell `index`."""
    return BREAK * (index // every) if every else 0.0


def _hops(path: Sequence[int], left: float, top: float, width: float) -> Iterator[tuple]:
    """The path along a strip above its cells: level to the next one, in an arc to any other, with
    a tip; as many points for each, so that one path can become another.
    """
    for here, there in pairwise(path):
        lift = 0.0 if there == here + 1 else min(16.0, 4.0 + 1.5 * abs(there - here))
        for i in range(9):
            share = i / 8
            x = left + (here + (there - here) * share + 0.5) * width
            yield x, top - 3 - 4 * lift * share * (1 - share)
        along, down = (there - here) * width, 4 * lift  # at its end
        size = 5 / math.hypot(along, down) if lift else 0.0
        for turn in (-0.7, 0.7):
            yield x - size * (along - turn * down), top - 3 - size * (down + turn * along)
            yield x, top - 3.0
