"""A map of weights as ribbons between words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from mha_course.pictures.colours import head_colour
from mha_course.pictures.heatmap import Heatmap, values_sent
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import PLAIN, Drawing, OwnMark, Text, short, text_width, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import require_kind, require_whole

FAINT = 0.04  # a weight below it has no ribbon


@dataclass(frozen=True, eq=False)
class Words(Panel):
    """A map of weights as ribbons from each query's word, left, to the keys' words, right.

    A ribbon is as wide as its weight; weights below `FAINT` have none. Those of query `row` stand
    out, until the reader points at another word.
    """

    weights: Any
    _: KW_ONLY
    row: int | None = None

    looks: ClassVar[str] = "sentence with ribbons"
    sizeless = frozenset({"row"})

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
        cells = [divmod(int(i), seen.shape[1]) for i in np.argsort(seen, axis=None, kind="stable")]
        return [(r, c, float(seen[r, c])) for r, c in cells if seen[r, c] >= FAINT]

    def table(self) -> Texts:
        return self.weights.table()

    def _describe(self) -> str:
        return f"ribbons between words: {self.weights._describe()}"

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing, weights = Drawing(), self.weights
        top = self.above(piece) if write_title(drawing, self) else 0.0
        sides = [[short(t) for t in labels] for labels in (weights.rows, weights.columns)]
        named = max(text_width(name) for name in (weights.row_name, weights.column_name))
        margin = math.ceil(max(named, widest_of([*sides[0], *sides[1]]))) + 8.0
        pitch = min(22.0, max(piece.sizes.cell, 6.0))
        width = max(60.0, min(170.0, space - 2 * margin))
        drawing.add(Ribbons(margin, top, width, pitch, self, margin))
        every = math.ceil(11.5 / pitch)
        ends = (margin - 7, "right"), (margin + width + 7, "left")
        for labels, (x, align) in zip(sides, ends, strict=True):
            drawing.add(
                *(
                    Text(x, top + (i + 0.5) * pitch, label, align=align)
                    for i, label in enumerate(labels)
                    if i % every == 0 and label
                )
            )
        bottom = top + pitch * max(map(len, sides))
        names = (weights.row_name, "right"), (weights.column_name, "left")
        for (name, align), (x, _) in zip(names, ends, strict=True):
            drawing.add(Text(x, bottom + 12, name, align))
        drawing.width, drawing.height = max(drawing.width, 2 * margin + width), bottom + 22
        return drawing


@dataclass(frozen=True, eq=False)
class Ribbons(OwnMark):
    """The ribbons of words, between x and x + width; one word every `pitch`."""

    width: float
    pitch: float
    panel: Words
    margin: float  # that the words take on either side

    @property
    def colour(self) -> str:
        return PLAIN if self.panel.head is None else head_colour(self.panel.head)

    def ends(self, row: int, column: int) -> tuple[float, float]:
        """The y of a ribbon's two ends."""
        return self.y + (row + 0.5) * self.pitch, self.y + (column + 0.5) * self.pitch

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        return {
            "kind": "ribbons",
            "x": self.x,
            "y": self.y,
            "w": self.width,
            "h": self.pitch,
            "margin": self.margin,
            "colour": self.colour,
            "row": self.panel.row,
            **values_sent(self.panel.weights, put),
            "title": self.panel.title,
        }
