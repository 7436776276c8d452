"""The whole module as one picture; `python -m mha_course.pictures.module FILE` writes it as PNG."""

import sys
from pathlib import Path

from mha_course.pictures import figures
from mha_course.pictures.panels import Box, Diagram, Scene

SHOWN = 4  # heads that are drawn


def scene() -> Scene:
    """Boxes, arrows and shapes of `MultiHeadAttention`, from its inputs to its output."""
    boxes = {
        "query": Box(0, 0, "query", "(B, T_q, d_model)", role="output"),
        "memory": Box(0, 1, "key and value", "(B, T_k, d_model)", span=2, role="output"),
        "w_q": Box(1, 0, "W^Q", "(B, T_q, h·d_k)", role="query"),
        "w_k": Box(1, 1, "W^K", "(B, T_k, h·d_k)", role="key"),
        "w_v": Box(1, 2, "W^V", "(B, T_k, h·d_k)", role="value"),
        "q": Box(2, 0, "Q", "(B, h, T_q, d_k)", heads=SHOWN, role="query"),
        "k": Box(2, 1, "K", "(B, h, T_k, d_k)", heads=SHOWN, role="key"),
        "v": Box(2, 2, "V", "(B, h, T_k, d_k)", heads=SHOWN, role="value"),
        "scores": Box(3, 0, "Q Kᵀ / √d_k", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "mask": Box(4, 0, "mask: −∞ where True", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "softmax": Box(5, 0, "softmax over the keys", "(B, h, T_q, T_k)", span=2, heads=SHOWN),
        "context": Box(6, 0, "weights · V", "(B, h, T_q, d_k)", span=3, heads=SHOWN, role="value"),
        "merge": Box(7, 0, "side by side", "(B, T_q, h·d_k)", span=3, role="value"),
        "w_o": Box(8, 0, "W^O", "(B, T_q, d_model)", span=3, role="output"),
        "sum": Box(9, 0, "query + output", "(B, T_q, d_model)", span=3, role="output"),
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
        Diagram(boxes, arrows, around=[("query", "sum")], notes=notes),
        caption="Squares and arrows: queries, keys, values (also mixed), or what layers take in "
        "and put out. Coloured frames: every head has its own. Dashed: what a model does around "
        "it.",
        alt="The whole module as boxes with their shapes: query, key and value are projected, "
        "split into heads, compared, masked, turned into weights and mixed; the heads, side by "
        "side, go through W^O, and the query is added.",
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(figures.png(scene()))
