"""Rows of words and numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from mha_course.base.numerals import counted
from mha_course.pictures.fields import text_of
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import Cell, Drawing, Path, text_width, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import listed, listed_ints


@dataclass(frozen=True, eq=False)
class Table(Panel):
    """A few rows of words and numbers, already written as text. `strong` rows are emphasised."""

    rows: Sequence[Sequence[Any]]
    header: Sequence[Any] = ()
    _: KW_ONLY
    strong: Sequence[int] = ()

    looks: ClassVar[str] = "table"
    sizeless = frozenset({"rows"})

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
        names = [name and f"{name} " for name in self.header[1:]] or [""] * len(self.rows[0])
        told = [
            ": ".join(filter(None, [first, ", ".join(map(str.__add__, names, cells))]))
            for first, *cells in self.rows[:6]
        ]
        return "; ".join([counted(len(self.rows), "row"), *told])

    def written_size(self) -> Hashable:
        return len(self.rows), *(widest_of(c) for c in zip(*self.rows, strict=True))

    def table(self) -> Texts:
        return self.header, self.rows

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        top = write_title(drawing, self)
        columns = list(zip(*([self.header] if self.header else []), *self.rows, strict=True))
        bold = 1.12 if self.strong else 1.0  # which row it is may change
        widths = [
            max(1.12 * text_width(column[0]), bold * widest_of(column[1:])) + 18
            for column in columns
        ]
        page = piece.page if piece.narrow else math.inf
        for part in _parts(widths, page):
            below = len(part) == 2 and widths[0] + widths[part[1]] - 18 > page  # not beside
            high = max(len(_lines(t, page - 12)) for t in columns[part[1]]) if below else 0
            line = piece.sizes.line * (1 + high)
            x, y = 0.0, top
            for i in part:
                y = top + (piece.sizes.line if below and i else 0.0)
                for r, text in enumerate(columns[i], -bool(self.header)):
                    strong = r < 0 or r in self.strong
                    middle = y + piece.sizes.line / 2 - 1
                    for k, words in enumerate(_lines(text, page - x) if below and i else [text]):
                        at = middle + k * piece.sizes.line
                        drawing.add(Cell(x, at, words, bold=strong, row=r, column=i))
                    y += line + 2 * (r < 0)
                x += 12.0 if below and not i else widths[i]
            if self.header:
                drawing.add(Path(((0, top + line - 1), (x - 18, top + line - 1)), width=1))
            drawing.width = max(drawing.width, min(x - 18, page) if below else x - 18)
            drawing.height, top = y, y + 12
        return drawing


def _lines(text: str, space: float) -> list[str]:
    """A text in lines that fit, in bold too."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and 1.12 * text_width(longer) > space:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _parts(widths: Sequence[float], page: float) -> list[list[int]]:
    """The columns of a table side by side as far as they fit, then the first again and more."""
    parts, free = [[0]], page - widths[0]
    for i, width in enumerate(widths[1:], 1):
        if width - 18 > free and parts[-1] != [0]:
            parts.append([0])
            free = page - widths[0]
        parts[-1].append(i)
        free -= width
    return parts
