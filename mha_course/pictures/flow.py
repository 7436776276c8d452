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
from mha_course.pictures.marks import Drawing, Path, Rect, Text, arrow, text_width
from mha_course.pictures.panel import FOLDED, Panel, Piece, Texts

SQUARES = ("products", "scores", "masked", "weights")  # (T, T) each
ROLE = {
    "x": "output",
    "q": "query",
    "k": "key",
    "v": "value",
    "context": "value",
    "concat": "value",
    "output": "output",
}
TITLE = 18.0  # the height of a block's title
SIDES = (*range(16, 1, -1), 1.5, 1.0, 0.5)  # of a cell of a (T, T) block
MODEL = 384.0  # the most that a matrix of d_model columns may take
NUMBER = 36.0, 54.0  # a cell that shows its number is at least, and at most, so wide
LEGIBLE = 20.0  # and so high
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
        arrays = {
            name: None if v is None else np.asarray(v, np.float32)
            for name in ("w_o", "writes", "bias")
            for v in [getattr(self, name)]
        }
        words = {"shown": tuple(self.shown), "words": tuple(self.words)}
        self._set(blocks=dict(self.blocks), **words, **arrays)

    def table(self) -> Texts:
        shown = [self.blocks[name] for name in self.shown]
        said = [[block.title, block._describe().split(", ", 1)[1]] for block in shown]
        return ["block", "what it shows"], said

    def _describe(self) -> str:
        names = [self.blocks[name].title for name in self.shown]
        return "the computation from left to right, as far as " + names[-1]

    def sent(self, put: Any) -> dict[str, Any]:
        """What the browser needs beside the marks, to say what made a number."""
        return {
            "blocks": list(self.shown),
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
        at = {name: Placed(block, thin, high) for name, block in blocks.items()}
        for name in squares:
            at[name].wide = wide
        at["k"].wide, at["k"].high = wide, low
        drawing = Drawing(width=page)
        above = _sentence(drawing, self, page, keys=high < LEGIBLE) + TITLE
        (_below if piece.narrow else _beside)(at, squares, above, page)
        if "x" in at:
            x, v, left = at["x"], at["v"], max(at["k"].right, at["k"].x + at["k"].title - 30)
            n, x.y = x.block.values.shape[1], above
            x.wide = min(_column(x.block), (page - 4 if piece.narrow else v.x - left - 80) / n)
            x.high = _deep(T) if piece.narrow else high
            x.x = 0.0 if piece.narrow else round((left + v.x - x.width) / 2)
            (_down if piece.narrow else _projections)(drawing, self, at)
        drawing.height = at["context"].bottom + NAMED
        if "output" in at:
            _after(drawing, self, at)
        for name, placed in at.items():
            _block(drawing, name, placed, name in self.shown)
        for one, then in pairwise(at[name] for name in squares):
            if then.y == one.y:
                middle = (one.right + then.x) / 2
                route = [(middle - 7, one.across), (middle + 7, one.across)]
            else:
                down = max(one.x, then.x) + one.width / 2
                route = [(down, one.bottom + 3), (down, one.bottom + 15)]
            arrow(drawing, route, INK)
        return drawing


@dataclass
class Placed:
    """A block where it stands: the size of a cell, and the corner of the first one."""

    block: Heatmap
    wide: float
    high: float
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return self.block.values.shape[1] * self.wide

    @property
    def height(self) -> float:
        return self.block.values.shape[0] * self.high

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def across(self) -> float:
        return self.y + self.height / 2

    @property
    def title(self) -> float:
        """The width of the title and of the square before it."""
        return 15 + text_width(self.block.title)


Blocks = dict[str, Placed]


def _beside(at: Blocks, squares: list[str], above: float, page: float) -> None:
    """All squares in one row."""
    q, k, v, context = (at[name] for name in ("q", "k", "v", "context"))
    n, width = len(squares), at["weights"].width
    gap = min(GAP, (page - q.width - v.width - n * width) / (n + 1))
    for i, name in enumerate(squares):
        at[name].x = q.width + gap + i * (width + gap)
    k.x, v.x = at[squares[0]].x, at[squares[-1]].right + gap
    context.x = v.x
    middle = above + max(k.height, v.height)  # where K and V end
    for name in ("q", "context", *squares):
        at[name].y = middle + (18 if "x" in at else 6) + TITLE
    k.y, v.y = middle - k.height, middle - v.height


def _below(at: Blocks, squares: list[str], above: float, page: float) -> None:
    """Q Kᵀ, the scores, and the mean of V, one below the other."""
    q, k, v, products, scores = (at[name] for name in ("q", "k", "v", "products", "scores"))
    masked = at.get("masked", scores)
    T, down = len(q.block.values), v.height + NAMED + TITLE
    products.x = k.x = q.width + SPACE
    v.x = at["context"].x = scores.width + SPACE
    k.y = above + (T * _deep(T) + 40 + TITLE if "x" in at else 0)
    q.y = products.y = k.bottom + 6 + TITLE
    scores.y = masked.y = q.y + down
    v.y = scores.y
    if masked is not scores:
        masked.x, v.y = v.x, scores.y + down
    at["weights"].y = at["context"].y = v.y + down


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
    highest = 222.0 if "output" in panel.blocks else 310.0  # of the two bands
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
    """The height of a cell of a block as wide as d_model, where space is short."""
    return 3.0 if T > 8 else 16.0


def _numbered(block: Heatmap) -> bool:
    """Whether its cells show their numbers where they are large enough."""
    return block.numbers is not False


def _column(block: Heatmap) -> float:
    """The width of a column of a matrix that has d_model of them."""
    return min(12.0, MODEL / block.values.shape[1])


def _block(drawing: Drawing, name: str, placed: Placed, shown: bool) -> None:
    x, y, block = placed.x, placed.y, placed.block
    title, left = y - TITLE / 2 - 1, x
    if name in ROLE:
        drawing.add(Rect(x, title - 5, 10, 10, ROLES[ROLE[name]]))
        left += 15
    drawing.add(Text(left, title, block.title, bold=shown))
    if shown:
        numbers = min(placed.wide, placed.high) >= LEGIBLE and _numbered(block)
        drawing.add(HeatmapCells(x, y, placed.wide, placed.high, block, numbers))
    else:
        right, bottom = placed.right, placed.bottom
        corners = ((x, y), (right, y), (right, bottom), (x, bottom), (x, y))
        drawing.add(Path(corners, INK, dashed=True, width=1.0))


def _sentence(drawing: Drawing, panel: Flow, page: float, keys: bool) -> float:
    """The tokens in lines, and how high they are; `live` lights up those of a number. Beside the
    last ones, or below, comes the colour bar of the step's block, if `keys`.
    """
    widths = [text_width(word) for word in panel.words]
    bars = {name: block.colour_bar(False, 60.0) for name, block in panel.blocks.items()}
    start = page - max(bar.width for bar in bars.values())  # one place for every step
    space = max(7.0, min(14.0, (start - 24 - sum(widths)) / max(1, len(widths))))
    left, middle = 0.0, 10.0
    for word, width in zip(panel.words, widths, strict=True):
        if left and left + width > page:
            left, middle = 0.0, middle + 20
        drawing.add(Text(left, middle, word))
        left += width + space
    if keys:
        middle += 20 * (start < left)
        drawing.paste(bars[panel.shown[-1]], max(0.0, start), middle - 10)
    return middle + 14


def _projections(drawing: Drawing, panel: Flow, at: Blocks) -> None:
    """Arrows from X to Q, K and V, in their colours; what each makes is cut into heads, not X."""
    x, q = at["x"], at["q"]
    for name, start, end in (("k", x.x - 6, at["k"].right + 8), ("v", x.right + 6, at["v"].x - 8)):
        target, middle = at[name], (start + end) / 2
        drawing.add(Text(middle, x.across - 10, f"W^{name.upper()}", align="center"))
        if panel.cut:
            _heads(drawing, panel, middle - SLICES / 2, x.across + 5, SLICES)
        route = [(start, x.across), (end, x.across)]
        if target.y > x.across:  # a low block: from above
            route[1:] = [(target.middle, x.across), (target.middle, target.y - TITLE)]
        arrow(drawing, route, ROLES[ROLE[name]])
    down, lane = x.x + 14, q.y - TITLE
    turn = lane - 8
    route = [(down, min(x.bottom + 2, turn - 3)), (down, turn), (q.middle, turn)]
    arrow(drawing, [*route, (q.middle, lane + 1)], ROLES["query"])
    drawing.add(Text(q.middle + 10, turn - 9, "W^Q"))
    if panel.cut:
        _heads(drawing, panel, q.middle + 46, turn - 13, SLICES)


def _down(drawing: Drawing, panel: Flow, at: Blocks) -> None:
    """The same on a narrow page, where Q, K and V stand below X."""
    q, k, v, top = at["q"], at["k"], at["v"], at["x"].bottom + 3
    ends = {
        "q": [(q.middle, q.y - TITLE)],
        "k": [(k.middle, k.y - TITLE)],
        "v": [(drawing.width - 6, v.across), (v.right + 6, v.across)],
    }
    for name, route in ends.items():
        (start, _), (to, level) = route[0], route[-1]
        arrow(drawing, [(start, top), *route], ROLES[ROLE[name]])
        left, middle = (to + 12, level - 10) if name == "v" else (start + 8, top + 12)
        drawing.add(Text(left, middle, f"W^{name.upper()}"))
        if panel.cut:
            _heads(drawing, panel, left, middle + 10, SLICES)


def _after(drawing: Drawing, panel: Flow, at: Blocks) -> None:
    """The heads side by side, and what W^O makes of them."""
    concat, output, context, page = at["concat"], at["output"], at["context"], drawing.width
    T = len(context.block.values)
    deep = 3.0 if T > 8 else at["weights"].high
    most = page - 4 if page < FOLDED else (page - 80) / 2
    for placed in (concat, output):
        placed.y, placed.high = context.bottom + NAMED + 4 + TITLE, deep
        placed.wide = min(_column(placed.block), most / placed.block.values.shape[1])
        if _numbered(placed.block):
            placed.wide, placed.high = at["weights"].wide, at["weights"].high
    output.x = page - max(output.title, output.width)
    middle, end = concat.y + T * deep / 2, concat.y + T * deep
    if output.x - concat.width >= SPACE:
        drawing.add(Text((concat.width + output.x) / 2, middle - 9, "W^O", align="center"))
        route = [(concat.width + 8, middle + 4), (output.x - 8, middle + 4)]
    else:
        output.x, output.y = 0.0, end + 44 + TITLE
        drawing.add(Text(28, end + 30, "W^O"))
        route = [(20, end + 17), (20, output.y - TITLE)]
    arrow(drawing, route, INK)
    _heads(drawing, panel, 0.0, end + 4, concat.width)
    head, down, turn = panel.head or 0, context.middle, context.bottom + NAMED - 6
    slab = (head + 0.5) * concat.width / panel.n_heads
    route = [(down, context.bottom + 3), (down, turn), (slab, turn), (slab, concat.y - TITLE + 1)]
    arrow(drawing, route, head_colour(head))
    drawing.height = output.y + T * deep + 14


def _heads(drawing: Drawing, panel: Flow, x: float, y: float, width: float) -> None:
    """How the columns are cut into heads: the one that is seen is filled."""
    each = width / panel.n_heads
    for i in range(panel.n_heads):
        chosen = i == panel.head
        height = 8.0 if chosen else 3.0
        drawing.add(Rect(x + i * each + 0.5, y, each - 1, height, head_colour(i)))
