"""Rows of panels that take the place of one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from mha_course.pictures.layout import draw_rows, same_row_labels
from mha_course.pictures.marks import Drawing
from mha_course.pictures.panel import Panel, Piece
from mha_course.pictures.scene import kinds_of


@dataclass(frozen=True, eq=False)
class Stack(Panel):
    """Rows of panels that take the place of one panel in a row."""

    panels: Any

    sizeless = frozenset({"panels"})

    def _check(self) -> None:
        self._set(panels=tuple(map(tuple, self.panels)))

    def _describe(self) -> str:
        return kinds_of(self.flat())

    def flat(self) -> list[Panel]:
        return [one for row in self.panels for panel in row for one in panel.flat()]

    def written_size(self) -> Hashable:
        keys = tuple(tuple(panel.size_key for panel in row) for row in self.panels)
        return keys, same_row_labels(self.panels)

    def above(self, piece: Piece) -> float:
        return max(panel.above(replace(piece, panel=panel)) for panel in self.panels[0])

    def draw(self, piece: Piece, space: float) -> Drawing:
        return draw_rows(self.panels, space, piece.page, piece.sizes, False, piece.order)
