"""What a picture says: values, labels, colours and words, without any drawing.

A `Scene` is rows of panels: `Heatmap`, `Words`, `Bars`, `Curve`, `Walk`, `Tiles`, `Table`,
`Diagram`.
`figures` draws it on paper, `live` in the browser; both take words, colours, ticks and limits from
here, so they agree.
Values may be lists, numpy arrays or torch tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from mha_course.pictures.charts import Bars, Curve, Heatmap, Walk, Words
from mha_course.pictures.colours import head_colour
from mha_course.pictures.fields import Panel, array_of, grid_of, labels_of, several, text_of
from mha_course.pictures.numerals import counted, number
from mha_lesson.refusals import listed, listed_ints, require_positive_int, require_text

__all__ = [
    "Bars", "Box", "Curve", "Diagram", "Heatmap", "Panel", "Scene", "Stack", "Table", "Tiles",
    "Walk", "Words", "head_colour", "number", "scene_of",
]  # fmt: skip


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

    kind: ClassVar[str] = "tiles"

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
        return self.says[row][column]

    def _describe(self) -> str:
        n_rows, n_columns = len(self.labels), len(self.labels[0])
        cells = [c for row in self.labels for c in row if c is not None]
        shown = ", ".join(cells[:6]) + (" …" if len(cells) > 6 else "")
        size = f"{n_columns} cells in a row" if n_rows == 1 else f"{n_rows} × {n_columns} cells"
        faulty = f"; {int(self.wrong.sum())} in the wrong place" if self.wrong.any() else ""
        return f"{size}: {shown}{faulty}"


@dataclass(frozen=True, eq=False)
class Table(Panel):
    """A few rows of words and numbers, already written as text. `strong` rows are emphasised."""

    rows: Sequence[Sequence[Any]]
    header: Sequence[Any] = ()
    _: KW_ONLY
    strong: Sequence[int] = ()

    kind: ClassVar[str] = "table"

    def _check(self) -> None:
        rows = tuple(
            tuple(map(text_of, listed(f"rows[{i}]", row, "cells")))
            for i, row in enumerate(listed("rows", self.rows, "rows"))
        )
        header = tuple(map(text_of, listed("header", self.header, "cells")))
        widths = {len(row) for row in (*rows, *([header] if header else []))}
        if len(widths) != 1 or 0 in widths:
            raise ValueError(f"rows and header must have equal lengths, got {sorted(widths)}")
        self._set(rows=rows, header=header, strong=tuple(listed_ints("strong", self.strong)))

    def _describe(self) -> str:
        return "; ".join(", ".join(row) for row in self.rows[:6])


@dataclass(frozen=True, eq=False)
class Stack(Panel):
    """Rows of panels that take the place of one panel in a row."""

    panels: Any

    kind: ClassVar[str] = "stack"

    def _check(self) -> None:
        self._set(panels=tuple(map(tuple, self.panels)))

    def _describe(self) -> str:
        return _kinds(_flat(self.panels))


@dataclass(frozen=True)
class Box:
    """A box of a diagram: its place in the grid, what it does, and the shape that leaves it.

    It is `span` columns wide, and drawn `heads` times behind itself where each head has its own.
    `role`, one of `ROLES`, is what it makes: a square in the box, and the arrows from it, say so.
    """

    row: float
    column: float
    text: str
    shape: str = ""
    span: float = 1.0
    heads: int = 0
    role: str = ""


@dataclass(frozen=True, eq=False)
class Diagram(Panel):
    """Boxes in a grid, rows downwards, and arrows that go straight down from one to another.

    `boxes` are named; `arrows` are pairs of names. Pairs in `around` are drawn dashed, round the
    left side. `notes` stand at the right of their rows.
    """

    boxes: Mapping[str, Box]
    arrows: Sequence[tuple[str, str]] = ()
    _: KW_ONLY
    around: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()

    kind: ClassVar[str] = "diagram"

    def meet(self, upper: str, lower: str) -> float:
        """The column in which an arrow between two boxes, one above the other, runs."""
        pair = self.boxes[upper], self.boxes[lower]
        middles = {box.column + box.span / 2 for box in pair}
        inside = [m for m in middles if all(b.column < m < b.column + b.span for b in pair)]
        return max(inside, key=lambda m: sum(m == b.column + b.span / 2 for b in pair))

    def _describe(self) -> str:
        steps = sorted(self.boxes.values(), key=lambda box: (box.row, box.column))
        said = (f"{box.text} {box.shape}".strip() for box in steps)
        return f"{len(steps)} boxes, from top to bottom: {', '.join(said)}"


@dataclass(frozen=True, eq=False)
class Scene:
    """Panels in rows, one sentence that says what they show, and words for them all.

    `panels` is one panel, a flat list (`columns` to a row) or a list of rows.
    """

    panels: Any
    _: KW_ONLY
    columns: int | None = None
    caption: str = ""
    alt: str = ""

    def __post_init__(self) -> None:
        require_text(caption=self.caption, alt=self.alt)
        if self.columns is not None:
            require_positive_int("columns", self.columns)
        one = isinstance(self.panels, Panel)
        given: list[Any] = [self.panels] if one else several(self.panels)
        if given and all(isinstance(p, Panel) for p in given):
            width = min(len(given), self.columns or 4) or 1
            width = math.ceil(len(given) / math.ceil(len(given) / width)) or 1  # 3 + 3, not 4 + 2
            given = [given[i : i + width] for i in range(0, len(given), width)]
        rows = tuple(tuple(several(row)) for row in given)
        if not rows or not all(rows) or not all(isinstance(p, Panel) for row in rows for p in row):
            raise TypeError("panels must be a panel, a list of panels or a list of rows of panels")
        alt = self.alt
        if not alt:
            flat = _flat(rows)
            seen = flat[0].alt if len(flat) == 1 else _kinds(flat)
            alt = f"{seen.rstrip('.')}."
        for name, value in (("panels", rows), ("alt", alt)):
            object.__setattr__(self, name, value)

    def flat(self) -> list[Panel]:
        """Every panel, row by row."""
        return _flat(self.panels)

    def text(self) -> list[tuple[str, str, str]]:
        """The most telling values in words: (panel, where, value)."""
        n = 3 if len(self.flat()) > 2 else 5
        return [(p.title, where, said) for p in self.flat() for where, said in p.largest(n)]


_KINDS = {
    "heatmap": "heatmap", "bars": "bar chart", "curve": "line chart", "tiles": "cell grid",
    "table": "table", "diagram": "diagram", "words": "sentence with ribbons",
    "walk": "walk of arrows", "flow": "flow",
}  # fmt: skip


def _flat(rows: Iterable[Iterable[Panel]]) -> list[Panel]:
    """Every panel in rows, those in stacks included."""
    out: list[Panel] = []
    for row in rows:
        for panel in row:
            out += _flat(panel.panels) if isinstance(panel, Stack) else [panel]
    return out


def _kinds(panels: Sequence[Panel]) -> str:
    """What is seen, in one sentence: "2 heatmaps and 1 table: head 0; head 1; links"."""
    kinds = [_KINDS[panel.kind] for panel in panels]
    said = [counted(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
    counts = " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))
    titles = list(dict.fromkeys(panel.title for panel in panels if panel.title))
    shown = [*titles[:3], "…", titles[-1]] if len(titles) > 5 else titles
    return f"{counts}: {'; '.join(shown)}" if shown else counts


def scene_of(thing: Any) -> Scene:
    """`thing` as a scene: a scene itself, a panel, or panels."""
    return thing if isinstance(thing, Scene) else Scene(thing)
