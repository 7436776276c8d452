"""The whole computation as one picture: blocks of real cells, placed so that products can be read.

A matrix product stands as on paper: the left factor at the left of the result, the right factor
above it, so that the row and the column that make a number cross at it.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mha_course.pictures.colours import INK, ROLES, head_colour
from mha_course.pictures.heatmap import Heatmap, HeatmapCells
from mha_course.pictures.marks import BODY, Drawing, Path, Rect, Text, arrow, text_width
from mha_course.pictures.panel import FOLDED, Panel, Piece

__all__ = ["Flow"]

SQUARES = ("products", "scores", "masked", "weights")  # (T, T) each
ROLE = {"x": "output", "q": "query", "k": "key", "v": "value", "context": "value",
        "concat": "value", "output": "output"}  # fmt: skip
SIGNS = "grey: below 0"
LINE, TITLE = 24.0, 18.0  # heights of the sentence and of a block's title
SIDES = (*range(16, 1, -1), 1.5, 1.0, 0.5)  # of a cell of a (T, T) block
MODEL = 384.0  # the most that a matrix of d_model columns may take
NUMBER = 36.0, 54.0  # a cell that shows its number is at least, and at most, so wide
GAP = 80.0  # at most, between two blocks
SPACE = 30.0  # at least, between two blocks
NAMED = 16.0  # below a block: `live` names the column there that is looked at
SLICES = 36.0  # the heads' colours beside W^Q, W^K and W^V


@dataclass(frozen=True, eq=False)
class Flow(Panel):
    """All steps of attention, in one head, as far as they have been taken.

    Attributes:
        blocks: name -> `Heatmap`, all that the computation has, in its order: "x", "q", "k" (drawn
            transposed), "v", "products", "scores", "masked", "weights", "context", "concat" and
            "output"; "x", "masked", "concat" and "output" may be missing.
        shown: the names of those whose numbers are there; of the others stands the frame.
        words: T labels, the tokens.
        n_heads: h; `head` is the one that is seen.
        cut: whether it is drawn that what W^Q, W^K and W^V make is cut into heads.
        pick: (query, key) of the numbers that are explained at first.
        by_hand: whether the numbers of Q, K and V may be moved.
        w_o: (h·d_k, d_model), what then makes "output" of "concat", or None.
        writes: (h, T, d_model), what every head adds to "output", and `bias` (d_model,).
    """

    blocks: Any
    _: KW_ONLY
    shown: Any
    words: Any
    n_heads: int = 1
    cut: bool = False
    pick: Any = (0, 0)
    by_hand: bool = False
    w_o: Any = None
    writes: Any = None
    bias: Any = None

    looks: ClassVar[str] = "flow"
    sizeless = frozenset({"shown", "pick", "by_hand", "writes", "bias"})

    def _check(self) -> None:
        made = {name: None if v is None else np.asarray(v, np.float32)
                for name in ("w_o", "writes", "bias") for v in [getattr(self, name)]}  # fmt: skip
        words = {"shown": tuple(self.shown), "words": tuple(self.words)}
        self._set(blocks=dict(self.blocks), **words, **made)

    def _describe(self) -> str:
        names = [self.blocks[name].title for name in self.shown]
        return "the computation from left to right, as far as " + names[-1]

    def sent(self, put: Any) -> dict[str, Any]:
        """What the browser needs beside the marks, to say what made a number."""
        return {
            "blocks": list(self.shown),
            "last": self.shown[-1],
            "words": list(self.words),
            "head": self.head,
            "n_heads": self.n_heads,
            "d_k": self.blocks["q"].values.shape[1],
            "pick": list(self.pick),
            "by_hand": self.by_hand,
            "w_o": None if self.w_o is None else self.w_o.ravel().tolist(),
            "writes": None if self.writes is None else put(self.writes),
            "bias": None if self.bias is None else put(self.bias),
        }

    def draw(self, piece: Piece, space: float) -> Drawing:
        """Three bands: what is above a product; the products; what comes after the heads. On a
        narrow page the products stand one below the other.
        """
        blocks, page = self.blocks, piece.page
        T, d_k = blocks["q"].values.shape
        squares = [name for name in SQUARES if name in blocks]
        (wide, high), (thin, low) = _cells(T, d_k, len(squares), self, page)
        size = dict.fromkeys(squares, (wide, high)) | {
            "q": (thin, high), "k": (wide, low), "v": (thin, high), "context": (thin, high),
        }  # fmt: skip
        drawing = Drawing(width=page)
        above = _sentence(drawing, self, page) + TITLE
        place = _below if piece.narrow else _beside
        x, y = place(self, squares, size, above, page)
        if "x" in blocks:
            n = blocks["x"].values.shape[1]
            left = x["k"] + max(T * wide, _title(blocks["k"]) - 30)
            room = page - 4 if piece.narrow else x["v"] - left - 80
            column = min(_column(blocks["x"]), room / n)
            x["x"] = 0.0 if piece.narrow else round((left + x["v"] - column * n) / 2)
            y["x"], size["x"] = above, (column, _deep(T) if piece.narrow else high)
            (_down if piece.narrow else _projections)(drawing, self, x, y, size)
        end = y["context"] + T * high
        drawing.height = end + NAMED
        if "output" in blocks:
            _after(drawing, self, x, y, size, end)
        for name, block in blocks.items():
            _block(drawing, name, block, (x[name], y[name]), size[name], name in self.shown)
        for name, then in pairwise(squares):
            across = y[name] + T * high / 2
            start, tip = x[name] + T * wide, x[then]
            if y[then] == y[name]:
                middle = (start + tip) / 2
                arrow(drawing, [(middle - 7, across), (middle + 7, across)], INK)
            else:
                foot = y[name] + T * high + 3
                down = max(x[name], tip) + T * wide / 2
                arrow(drawing, [(down, foot), (down, foot + 12)], INK)
        return drawing


Places = tuple[dict[str, float], dict[str, float]]  # x and y of each block
Size = dict[str, tuple[float, float]]  # width and height of a cell of each block


def _beside(panel: Flow, squares: list[str], size: Size, above: float, page: float) -> Places:
    """All squares in one row."""
    T, d_k = panel.blocks["q"].values.shape
    (wide, high), (thin, _) = size["weights"], size["q"]
    gap = min(GAP, (page - 2 * d_k * thin - len(squares) * T * wide) / (len(squares) + 1))
    x = {"q": 0.0}
    for i, name in enumerate(squares):
        x[name] = d_k * thin + gap + i * (T * wide + gap)
    x["k"] = x[squares[0]]
    x["v"] = x["context"] = x[squares[-1]] + T * wide + gap
    middle = above + max(d_k * size["k"][1], T * high)  # where K and V end
    top = middle + (18 if "x" in panel.blocks else 6) + TITLE
    y = dict.fromkeys(["q", "context", *squares], top)
    y["k"], y["v"] = middle - d_k * size["k"][1], middle - T * high
    return x, y


def _below(panel: Flow, squares: list[str], size: Size, above: float, page: float) -> Places:
    """Q Kᵀ, the scores, and the mean of V, one below the other."""
    T, d_k = panel.blocks["q"].values.shape
    (wide, high), (thin, _) = size["weights"], size["q"]
    x = dict.fromkeys(["q", "scores", "weights"], 0.0)
    x["products"] = x["k"] = d_k * thin + SPACE
    x["masked"] = x["v"] = x["context"] = T * wide + SPACE
    down = T * high + NAMED + TITLE
    y = {"k": above + (T * _deep(T) + 40 + TITLE if "x" in panel.blocks else 0)}
    y["q"] = y["products"] = y["k"] + d_k * size["k"][1] + 6 + TITLE
    y["scores"] = y["masked"] = y["q"] + down
    y["v"] = y["scores"] + down * ("masked" in squares)
    y["weights"] = y["context"] = y["v"] + down
    return x, y


def _cells(
    T: int, d_k: int, n_squares: int, panel: Flow, page: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(width, height) of a cell of a (T, T) block; width and height along d_k."""
    narrow = page < FOLDED
    each = (page - SPACE * (n_squares + 1)) / (2 * d_k + n_squares * T)
    if narrow:
        each = (page - SPACE - 14) / (T + max(d_k, T))
    if each >= NUMBER[0]:
        cell = min(NUMBER[1], math.floor(each)), 0.63 * min(NUMBER[1], math.floor(each))
        return cell, cell
    if narrow:
        side = max(0.5, min(9.0, (page - SPACE - 14) // (T + max(0.45 * d_k, T))))
        thin = max(0.5, round(side * 0.45))
        return (side, side), (thin, thin)
    highest = 250.0 if "output" in panel.blocks else 310.0  # of the two bands
    model = MODEL + 80 if "x" in panel.blocks else 0.0  # X and its arrows, between K and V
    for side, beside in [(s, model) for s in SIDES if s >= 5] + [(s, 0.0) for s in SIDES]:
        thin = max(0.5, round(side * 0.45))
        width = 2 * d_k * thin + n_squares * T * side
        gap = min(GAP, (page - width) / (n_squares + 1))
        free = (n_squares - 1) * T * side + n_squares * gap
        height = max(d_k * thin, T * side) + T * side
        if gap >= SPACE and height <= highest and free >= beside:
            break
    return (side, side), (thin, thin)


def _deep(T: int) -> float:
    """The height of a cell of a block as wide as d_model, where there is little room."""
    return 3.0 if T > 8 else 16.0


def _title(block: Heatmap) -> float:
    """The width of a block's title and of the square before it."""
    return 15 + text_width(block.title, BODY)


def _numbered(block: Heatmap) -> bool:
    """Whether its cells show their numbers where they are large enough."""
    return block.numbers is not False


def _column(block: Heatmap) -> float:
    """The width of a column of a matrix that has d_model of them."""
    return min(12.0, MODEL / block.values.shape[1])


def _block(
    drawing: Drawing,
    name: str,
    block: Heatmap,
    at: tuple[float, float],
    cell: tuple[float, float],
    shown: bool,
) -> None:
    x, y = at
    rows, columns = block.values.shape
    width, height = columns * cell[0], rows * cell[1]
    title = y - TITLE / 2 - 1
    left = x
    if name in ROLE:
        drawing.add(Rect(x, title - 5, 10, 10, ROLES[ROLE[name]]))
        left += 15
    drawing.add(Text(left, title, block.title, bold=shown))
    if shown:
        numbers = min(cell) >= 20 and _numbered(block)
        drawing.add(HeatmapCells(x, y, *cell, block, numbers))
    else:
        corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))
        drawing.add(Path(corners, INK, dashed=True, width=1.0))


def _sentence(drawing: Drawing, panel: Flow, page: float) -> float:
    """The tokens in lines, and how high they are; `live` lights up those of a number."""
    widths = [text_width(word) for word in panel.words]
    space = max(7.0, min(14.0, (page - sum(widths)) / max(1, len(widths))))
    left, middle = 0.0, 10.0
    for word, width in zip(panel.words, widths, strict=True):
        if left and left + width > page:
            left, middle = 0.0, middle + 20
        drawing.add(Text(left, middle, word))
        left += width + space
    if left + text_width(SIGNS) < page:
        drawing.add(Text(page, middle, SIGNS, align="right"))
    return middle + 14


def _projections(
    drawing: Drawing,
    panel: Flow,
    x: dict[str, float],
    y: dict[str, float],
    size: Size,
) -> None:
    """Arrows from X to Q, K and V, in their colours; what each makes is cut into heads, not X."""
    T, width = panel.blocks["x"].values.shape
    left, right = x["x"], x["x"] + width * size["x"][0]
    across = y["x"] + T * size["x"][1] / 2
    for name, start, end in (
        ("k", left - 6, x["k"] + T * size["k"][0] + 8),
        ("v", right + 6, x["v"] - 8),
    ):
        drawing.add(Text((start + end) / 2, across - 10, f"W^{name.upper()}", align="center"))
        if panel.cut:
            _heads(drawing, panel, (start + end - SLICES) / 2, across + 5, SLICES)
        route = [(start, across), (end, across)]
        if y[name] > across:  # a low block: from above
            middle = x[name] + panel.blocks[name].values.shape[1] * size[name][0] / 2
            route[1:] = [(middle, across), (middle, y[name] - TITLE)]
        arrow(drawing, route, ROLES[ROLE[name]])
    down, at = left + 14, panel.blocks["q"].values.shape[1] * size["q"][0] / 2
    start = y["x"] + T * size["x"][1] + 2
    lane = y["q"] - TITLE
    turn = lane - 8
    route = [(down, min(start, turn - 3)), (down, turn), (at, turn), (at, lane + 1)]
    arrow(drawing, route, ROLES["query"])
    drawing.add(Text(at + 10, turn - 9, "W^Q"))
    if panel.cut:
        _heads(drawing, panel, at + 46, turn - 13, SLICES)


def _down(
    drawing: Drawing, panel: Flow, x: dict[str, float], y: dict[str, float], size: Size
) -> None:
    """The same on a narrow page, where Q, K and V stand below X."""
    T, d_k = panel.blocks["q"].values.shape
    top, edge = y["x"] + T * size["x"][1] + 3, drawing.width - 6
    across = y["v"] + T * size["v"][1] / 2
    ends = {
        "q": [(d_k * size["q"][0] / 2, y["q"] - TITLE)],
        "k": [(x["k"] + T * size["k"][0] / 2, y["k"] - TITLE)],
        "v": [(edge, across), (x["v"] + d_k * size["v"][0] + 6, across)],
    }
    for name, route in ends.items():
        (at, _), (to, level) = route[0], route[-1]
        arrow(drawing, [(at, top), *route], ROLES[ROLE[name]])
        left, middle = (to + 12, level - 10) if name == "v" else (at + 8, top + 12)
        drawing.add(Text(left, middle, f"W^{name.upper()}"))
        if panel.cut:
            _heads(drawing, panel, left, middle + 10, SLICES)


def _after(
    drawing: Drawing,
    panel: Flow,
    x: dict[str, float],
    y: dict[str, float],
    size: Size,
    end: float,
) -> None:
    """The heads side by side, and what W^O makes of them; `end` is where the products end."""
    concat, output = panel.blocks["concat"], panel.blocks["output"]
    T, n = concat.values.shape
    deep = 3.0 if T > 8 else size["weights"][1]
    below = end + NAMED + 4 + TITLE
    room = drawing.width - 4 if drawing.width < FOLDED else (drawing.width - 80) / 2
    for name, block in (("concat", concat), ("output", output)):
        column = min(_column(block), room / block.values.shape[1])
        size[name] = size["weights"] if _numbered(block) else (column, deep)
    y["concat"] = y["output"] = below
    width = n * size["concat"][0]
    x["concat"] = 0.0
    x["output"] = drawing.width - max(_title(output), size["output"][0] * output.values.shape[1])
    middle = below + T * deep / 2
    if x["output"] - width >= SPACE:
        drawing.add(Text((width + x["output"]) / 2, middle - 9, "W^O", align="center"))
        arrow(drawing, [(width + 8, middle + 4), (x["output"] - 8, middle + 4)], INK)
    else:
        x["output"], y["output"] = 0.0, below + T * deep + 44 + TITLE
        drawing.add(Text(28, below + T * deep + 30, "W^O"))
        arrow(drawing, [(20, below + T * deep + 17), (20, y["output"] - TITLE)], INK)
    _heads(drawing, panel, 0.0, below + T * deep + 4, width)
    head = panel.head or 0
    down = x["context"] + panel.blocks["context"].values.shape[1] * size["context"][0] / 2
    at = (head + 0.5) * width / panel.n_heads
    turn = end + NAMED - 6
    route = [(down, end + 3), (down, turn), (at, turn), (at, below - TITLE + 1)]
    arrow(drawing, route, head_colour(head))
    drawing.height = y["output"] + T * deep + 14


def _heads(drawing: Drawing, panel: Flow, x: float, y: float, width: float) -> None:
    """How the columns are cut into heads: the one that is seen is filled."""
    each = width / panel.n_heads
    for i in range(panel.n_heads):
        chosen = i == panel.head
        height = 8.0 if chosen else 3.0
        drawing.add(Rect(x + i * each + 0.5, y, each - 1, height, head_colour(i)))
