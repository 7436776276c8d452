"""The whole module as one picture; `python -m mha_course.explore.module FILE` writes it as PNG."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from mha_course.pictures import figures
from mha_course.pictures.colours import INK, ROLES, head_colour
from mha_course.pictures.marks import Drawing, Rect, Text, arrow, text_width, widest_of
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_course.pictures.scene import Scene

HEADS = 4  # that are drawn
HEIGHT, PITCH, BEHIND = 42.0, 62.0, 3.0  # of a box, from row to row, from head to head


class Box(NamedTuple):
    """Where a box stands, what it does, the shape that leaves it, and what it makes (`ROLES`)."""

    row: int
    column: int
    text: str
    shape: str
    role: str = ""
    span: int = 1  # how many columns it takes
    heads: int = 1  # drawn one behind the other, where each head has its own


BOXES = {
    "query": Box(0, 0, "query", "(B, T_q, d_model)", "output"),
    "memory": Box(0, 1, "key and value", "(B, T_k, d_model)", "output", span=2),
    "w_q": Box(1, 0, "W^Q", "(B, T_q, h·d_k)", "query"),
    "w_k": Box(1, 1, "W^K", "(B, T_k, h·d_k)", "key"),
    "w_v": Box(1, 2, "W^V", "(B, T_k, h·d_k)", "value"),
    "q": Box(2, 0, "Q", "(B, h, T_q, d_k)", "query", heads=HEADS),
    "k": Box(2, 1, "K", "(B, h, T_k, d_k)", "key", heads=HEADS),
    "v": Box(2, 2, "V", "(B, h, T_k, d_k)", "value", heads=HEADS),
    "scores": Box(3, 0, "Q Kᵀ / √d_k", "(B, h, T_q, T_k)", span=2, heads=HEADS),
    "mask": Box(4, 0, "mask: −∞ where True", "(B, h, T_q, T_k)", span=2, heads=HEADS),
    "softmax": Box(5, 0, "softmax over the keys", "(B, h, T_q, T_k)", span=2, heads=HEADS),
    "context": Box(6, 0, "weights · V", "(B, h, T_q, d_k)", "value", span=3, heads=HEADS),
    "merge": Box(7, 0, "side by side", "(B, T_q, h·d_k)", "value", span=3),
    "w_o": Box(8, 0, "W^O", "(B, T_q, d_model)", "output", span=3),
    "sum": Box(9, 0, "query + output", "(B, T_q, d_model)", "output", span=3),
}
ARROWS = (  # from one box straight down to another, and at which column
    ("query", "w_q", 0.5),
    ("memory", "w_k", 1.5),
    ("memory", "w_v", 2.5),
    ("w_q", "q", 0.5),
    ("w_k", "k", 1.5),
    ("w_v", "v", 2.5),
    ("q", "scores", 0.5),
    ("k", "scores", 1.5),
    ("scores", "mask", 1.0),
    ("mask", "softmax", 1.0),
    ("softmax", "context", 1.0),
    ("v", "context", 2.5),
    ("context", "merge", 1.5),
    ("merge", "w_o", 1.5),
    ("w_o", "sum", 1.5),
)
NOTES = (  # beside each row
    "in self-attention all are x",
    "project (notebook 2)",
    "split into heads (3)",
    "compare (1)",
    "block (4)",
    "shares that add up to 1 (1)",
    "weighted means (1)",
    "merge (5)",
    "every head writes (5)",
    "in a model: added to x (5)",
)


@dataclass(frozen=True, eq=False)
class Module(Panel):
    """`BOXES`, with arrows downwards, a dashed one from the query around them, and notes."""

    looks: ClassVar[str] = "diagram"

    def table(self) -> Texts:
        return ["step", "shape"], [[box.text, box.shape] for box in BOXES.values()]

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing, left, top = Drawing(), 38.0, 4.0
        width = min(200.0, (space - left - widest_of(NOTES) - 30) / 3)

        def frame(box: Box) -> tuple[float, float, float]:
            x, wide = left + box.column * width + 8, box.span * width - 16
            return x, top + box.row * PITCH, wide

        for box in BOXES.values():
            x, y, wide = frame(box)
            for i in reversed(range(1, box.heads)):
                back, colour = BEHIND * i, head_colour(i)
                drawing.add(
                    Rect(x + back, y - back, wide, 1.5, colour),
                    Rect(x + back + wide - 1.5, y - back, 1.5, HEIGHT, colour),
                )
            colour, says = head_colour(0) if box.heads > 1 else INK, f"{box.text} {box.shape}"
            drawing.add(Rect(x, y, wide, HEIGHT, colour, hollow=True, says=says))
            if box.role:
                drawing.add(Rect(x + 11, y + 8, 10, 10, ROLES[box.role]))
            drawing.add(
                Text(x + wide / 2, y + 13, box.text, "center", bold=True),
                Text(x + wide / 2, y + 29, box.shape, align="center"),
            )
            drawing.height = y + HEIGHT + 6
        for row, note in enumerate(NOTES):
            x = left + 3 * width + 22
            drawing.add(Text(x, top + row * PITCH + HEIGHT / 2, note))
            drawing.width = max(drawing.width, x + text_width(note))
        for upper, lower, column in ARROWS:
            x, above, below = left + column * width, BOXES[upper], BOXES[lower]
            start, end = frame(above)[1] + HEIGHT, frame(below)[1] - BEHIND * (below.heads - 1)
            arrow(drawing, ((x, start), (x, end)), ROLES.get(above.role, INK))
        x, start, end = left + 8, top + HEIGHT / 2, frame(BOXES["sum"])[1] + HEIGHT / 2
        around = (x, start), (left - 20, start), (left - 20, end), (x, end)
        arrow(drawing, around, ROLES[BOXES["query"].role], dashed=True)
        return drawing


def scene() -> Scene:
    """Boxes, arrows and shapes of `MultiHeadAttention`, from its inputs to its output."""
    return Scene(
        Module(
            alt="The whole module as boxes with their shapes: query, key and value are "
            "projected, split into heads, compared, masked, turned into weights and mixed; "
            "the heads, side by side, go through W^O, and the input is added."
        ),
        caption="Violet: queries; brown: keys; teal: values and contexts; pink: what goes in and "
        "comes out. Coloured frames: one per head. Dashed: what a model adds around the class.",
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(figures.png(scene()))
