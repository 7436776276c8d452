"""The whole module as one picture; `python -m mha_lesson.pictures.module FILE` writes it as PNG."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mha_lesson.pictures import figures, layout
from mha_lesson.pictures.layout import Drawing, Rect
from mha_lesson.pictures.panels import ROLES, Box, Diagram, Scene

SHOWN = 4  # heads that are drawn
ROLE = {  # of the vectors that a box makes
    "w_q": "query", "q": "query", "w_k": "key", "k": "key", "w_v": "value", "v": "value",
    "context": "value", "merge": "value", "w_o": "output", "sum": "output",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Module(Diagram):
    """A diagram whose boxes wear a square in the colour of their role, where they have one."""

    kind: ClassVar[str] = "module"


def _lay_out(panel: Module, piece: Any, room: float) -> Drawing:
    drawing = layout._DRAW[Diagram.kind](panel, piece, room)
    frames = [mark for mark in drawing.marks if isinstance(mark, Rect) and mark.hollow]
    for name, frame in zip(panel.boxes, frames, strict=True):
        if name in ROLE:
            drawing.add(Rect(frame.x + 11, frame.y + 8, 10, 10, ROLES[ROLE[name]]))
    return drawing


layout._DRAW[Module.kind] = _lay_out


def scene() -> Scene:
    """Boxes, arrows and shapes of `MultiHeadAttention`, from its inputs to its output."""
    boxes = {
        "query": Box(0, 0, "query", "(B, T_q, d_model)"),
        "memory": Box(0, 1, "key and value", "(B, T_k, d_model)", span=2),
        "w_q": Box(1, 0, "W^Q", "(B, T_q, h·d_k)"),
        "w_k": Box(1, 1, "W^K", "(B, T_k, h·d_k)"),
        "w_v": Box(1, 2, "W^V", "(B, T_k, h·d_k)"),
        "q": Box(2, 0, "Q", "(B, h, T_q, d_k)", heads=SHOWN),
        "k": Box(2, 1, "K", "(B, h, T_k, d_k)", heads=SHOWN),
        "v": Box(2, 2, "V", "(B, h, T_k, d_k)", heads=SHOWN),
        "scores": Box(3, 0, "Q Kᵀ / √d_k", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "mask": Box(4, 0, "mask: −∞ where True", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "softmax": Box(5, 0, "softmax over the keys", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "context": Box(6, 0, "weights · V", "(B, h, T_q, d_k)", span=3, heads=SHOWN),
        "merge": Box(7, 0, "side by side", "(B, T_q, h·d_k)", span=3),
        "w_o": Box(8, 0, "W^O", "(B, T_q, d_model)", span=3),
        "sum": Box(9, 0, "query + output", "(B, T_q, d_model)", span=3),
    }
    arrows = [
        ("query", "w_q"), ("memory", "w_k"), ("memory", "w_v"),
        ("w_q", "q"), ("w_k", "k"), ("w_v", "v"), ("q", "scores"), ("k", "scores"),
        ("scores", "mask"), ("mask", "softmax"), ("softmax", "context"), ("v", "context"),
        ("context", "merge"), ("merge", "w_o"), ("w_o", "sum"),
    ]  # fmt: skip
    notes = [
        "in self-attention all are x", "project (notebook 2)", "split into heads (3)",
        "compare (1)", "block (4)", "shares that add up to 1 (1)", "weighted means (1)",
        "merge (5)", "every head writes (5)", "in a model: added to x (5)",
    ]  # fmt: skip
    return Scene(
        Module(boxes, arrows, around=[("query", "sum")], notes=notes),
        caption="Squares: the box makes queries, keys, values (also mixed), or outputs. "
        "Coloured frames: every head has its own. Dashed: what a model does around it.",
        alt="The whole module as boxes with their shapes: query, key and value are projected, "
        "split into heads, compared, masked, turned into weights and mixed; the heads, side by "
        "side, go through W^O, and the query is added.",
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(figures.png(scene()))
