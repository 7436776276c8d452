"""Boxes in a grid, and arrows between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from mha_course.pictures.colours import INK, ROLES, head_colour
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import BODY, Drawing, Rect, Text, arrow, text_width, widest_of
from mha_course.pictures.panel import Panel, Piece


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

    looks: ClassVar[str] = "diagram"

    def _check(self) -> None:
        pairs = {name: tuple(map(tuple, getattr(self, name))) for name in ("arrows", "around")}
        self._set(**pairs, notes=tuple(self.notes))

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

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        top = write_title(drawing, self) + 4
        height, pitch, deep = 42.0, 62.0, 3.0  # of a box, from row to row, from head to head
        boxes = self.boxes.values()
        side = 24.0 + 14 * len(self.around) if self.around else 0.0
        notes = widest_of(self.notes) + 30 if self.notes else 0.0
        n_columns = max(box.column + box.span for box in boxes)
        width = min(200.0, (space - side - notes) / n_columns)

        def frame(box: Box) -> tuple[float, float, float]:
            x = side + box.column * width + 8
            return x, top + box.row * pitch, box.span * width - 16

        for box in boxes:
            x, y, wide = frame(box)
            for i in reversed(range(1, box.heads)):
                drawing.add(
                    Rect(x + deep * i, y - deep * i, wide, 1.5, head_colour(i)),
                    Rect(x + deep * i + wide - 1.5, y - deep * i, 1.5, height, head_colour(i)),
                )
            colour = head_colour(0) if box.heads else INK
            drawing.add(
                Rect(x, y, wide, height, colour, hollow=True, says=f"{box.text} {box.shape}")
            )
            if box.role:
                drawing.add(Rect(x + 11, y + 8, 10, 10, ROLES[box.role]))
            middle = x + wide / 2
            line = y + (height / 2 if not box.shape else 13)
            drawing.add(Text(middle, line, box.text, BODY, "center", bold=True))
            if box.shape:
                drawing.add(Text(middle, y + 29, box.shape, align="center"))
            drawing.width = max(drawing.width, x + wide + deep * box.heads)
            drawing.height = max(drawing.height, y + height + 6)
        for i, note in enumerate(self.notes):
            x = side + n_columns * width + 22
            drawing.add(Text(x, top + i * pitch + height / 2, note))
            drawing.width = max(drawing.width, x + text_width(note))
        for upper, lower in self.arrows:
            x = side + self.meet(upper, lower) * width
            above, below = self.boxes[upper], self.boxes[lower]
            start = frame(above)[1] + height
            end = frame(below)[1] - deep * max(0, below.heads - 1)
            arrow(drawing, ((x, start), (x, end)), ROLES.get(above.role, INK))
        for i, (upper, lower) in enumerate(self.around):
            (x, y, _), (x2, y2, _) = frame(self.boxes[upper]), frame(self.boxes[lower])
            left = side - 20.0 - 14 * i
            points = ((x, y), (left, y), (left, y2), (x2, y2))
            way = tuple((px, py + height / 2) for px, py in points)
            arrow(drawing, way, ROLES.get(self.boxes[upper].role, INK), dashed=True)
        return drawing
