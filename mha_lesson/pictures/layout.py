"""Where everything in a picture stands: a scene in, marks at CSS pixels out.

Both renderers draw these few kinds of marks and nothing else, so paper and screen agree.
No text is smaller than 12 px (9 pt), but for what `scripts` raises or lowers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from mha_lesson.pictures.panels import (
    INK,
    LOW,
    ROLES,
    ROWS_LARGEST,
    Bars,
    Box,
    Curve,
    Diagram,
    Heatmap,
    Panel,
    Scene,
    Stack,
    Table,
    Tiles,
    Walk,
    Words,
    head_colour,
    number,
    ticks,
)
from mha_lesson.refusals import MOST, require_kind, require_positive

WIDTH = 860  # fits the output of a notebook cell on a laptop
ROOMS = (WIDTH, 620, 310)  # widths that a saved page is laid out for: a laptop, a tablet, a phone
SCREEN = 420  # with controls and sentence it takes 560 px of a laptop's screen
PHONE = 400  # here two maps stand side by side
FOLDED = 700  # a narrower page stacks panels and is scrolled: no limit to its height
SMALL, BODY, TITLE = 12, 13, 15
GAP = 28
BAR = 110.0  # a colour bar
BREAK, LETTER = 8.0, 7.4  # the gap between blocks of tiles; the width of a letter in a tile
PLAIN = "#2878CC"  # bars and lines that belong to no head
PLAINS = (PLAIN, "#CF5A08", "#009E73", "#CC79A7", "#808080", "#E69F00", "#56B4E9", "#8A6D00")


@dataclass(frozen=True)
class Text:
    x: float
    y: float  # of its middle; of its top where it is turned and not centred
    text: str
    size: int = SMALL
    align: str = "left"  # left, center, right
    turned: bool = False  # a quarter turn, read from below
    bold: bool = False


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; one that says something can be pointed at."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    hollow: bool = False
    says: str = ""
    panel: int = 0  # which panel of the scene it belongs to


@dataclass(frozen=True)
class Path:
    points: tuple[tuple[float, float], ...]
    colour: str = ""  # "" is the colour of text, faint
    dashed: bool = False
    width: float = 2.0


@dataclass(frozen=True)
class Dot:
    """A point of a curve, that says something."""

    x: float
    y: float
    colour: str
    radius: float = 0.0  # 0: to point at, not to be seen
    says: str = ""
    panel: int = 0


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a heatmap or of tiles, from (x, y) on."""

    x: float
    y: float
    width: float  # of one cell
    height: float
    panel: Heatmap | Tiles
    numbers: bool = False  # or the letters of tiles
    key: bool = False  # says what hatching means; not to be pointed at

    @property
    def gap(self) -> float:
        """The room between two cells."""
        if isinstance(self.panel, Tiles):
            return 2.0 if self.width >= 8 else 0.5
        return 1.0 if min(self.width, self.height) >= 8 else 0.0

    def at(self, row: int, column: int) -> tuple[float, float]:
        """The top left corner of a cell, breaks between blocks included."""
        tiles = self.panel if isinstance(self.panel, Tiles) else None
        return (
            self.x + column * self.width + _breaks(column, tiles.break_columns if tiles else 0),
            self.y + row * self.height + _breaks(row, tiles.break_rows if tiles else 0),
        )


@dataclass(frozen=True, eq=False)
class Ribbons:
    """The ribbons of words, between x and x + width; one word every `pitch`."""

    x: float
    y: float
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


@dataclass(frozen=True, eq=False)
class Arrows:
    """The arrows of a walk; its plane's (0, 0) is at (x, y)."""

    x: float
    y: float
    unit: float  # pixels
    panel: Walk

    def parts(self) -> Iterator[tuple[Path, Path]]:
        """Each arrow and its tip, the dashed sum first; of no length, still as many."""
        corners = [(self.x + a * self.unit, self.y - b * self.unit)
                   for a, b in self.panel.corners().tolist()]  # fmt: skip
        yield _arrowhead((corners[0], corners[-1]), INK, dashed=True)
        for i, line in enumerate(pairwise(corners)):
            yield _arrowhead(line, head_colour(i), dashed=i >= 8)


@dataclass(frozen=True)
class ColourBar:
    x: float
    y: float
    width: float
    height: float
    colours: str
    end: str  # what stands at its right end
    by_row: str = ""  # what stands there once the reader lets each row end at its own largest

    def label(self) -> Text:
        """What stands at its right end, as a mark of its own."""
        return Text(self.x + self.width + 8, self.y + self.height / 2, self.end)


Mark = Text | Rect | Path | Dot | Cells | Ribbons | Arrows | ColourBar


@dataclass(eq=False)
class Drawing:
    """Marks and other drawings, and the room they need."""

    width: float = 0.0
    height: float = 0.0
    edge: float = 0.0  # where turned texts end, which need no room of their own
    parts: list[Mark | _Pasted] = field(default_factory=list)

    @property
    def marks(self) -> list[Mark]:
        """All marks, at their places."""
        marks: list[Mark] = []
        self._place(marks, 0.0, 0.0, None)
        return marks

    def add(self, *marks: Mark) -> None:
        self.parts.extend(marks)
        for mark in marks:
            if isinstance(mark, Text) and mark.turned:
                self.edge = max(self.edge, mark.x + SMALL / 2)

    def paste(self, other: Drawing, x: float, y: float, panel: int | None = None) -> None:
        self.parts.append(_Pasted(other, x, y, panel))
        self.width = max(self.width, x + other.width)
        self.height = max(self.height, y + other.height)
        self.edge = max(self.edge, x + other.edge)

    def _place(self, marks: list[Mark], dx: float, dy: float, panel: int | None) -> None:
        for part in self.parts:
            if isinstance(part, _Pasted):
                number = part.panel if panel is None else panel
                part.drawing._place(marks, dx + part.x, dy + part.y, number)
            else:
                marks.append(_moved(part, dx, dy, panel))


@dataclass(frozen=True, eq=False)
class _Pasted:
    """A drawing within another one, moved; `panel` numbers its marks."""

    drawing: Drawing
    x: float
    y: float
    panel: int | None


def _moved(mark: Mark, dx: float, dy: float, panel: int | None) -> Mark:
    kind = type(mark)
    moved = object.__new__(kind)  # not dataclasses.replace: a state is made of hundreds of marks
    parts = vars(moved)
    parts.update(vars(mark))
    if isinstance(mark, Path):
        parts["points"] = tuple([(x + dx, y + dy) for x, y in mark.points])
    else:
        parts["x"], parts["y"] = mark.x + dx, mark.y + dy
    if panel is not None and kind in (Rect, Dot):
        parts["panel"] = panel
    return moved


def _breaks(index: int, every: int) -> float:
    """The room that breaks between blocks have taken before cell `index`."""
    return BREAK * (index // every) if every else 0.0


_EMS = {c: 0.38 for c in "iljtfrI.,:;'|!()[] ·"} | {c: 0.92 for c in "mwMW@%→−+="}


@lru_cache(4096)
def text_width(text: str, size: int = SMALL) -> float:
    """About the width of a text, on the generous side, whatever the font."""
    return size * sum(
        (SCRIPT_SIZE if sign else 1.0) * _EMS.get(c, 0.72 if c.isupper() else 0.62)
        for part, sign in scripts(text)
        for c in part
    )


# The Q of W^Q is raised, the k of d_k lowered; both renderers split their texts with these.
SPLIT = "(?<=(?<![A-Za-z0-9_])[A-Za-z])([\\^_])([A-Z]|model|kv|[qkvo])(?![A-Za-z0-9_])"
CODE = r"[a-z]\("  # a text with a call in it stays as it is
SHIFTS = {"^": -0.34, "_": 0.22}  # how far down their middle lies, in sizes of the text
SCRIPT_SIZE = 0.8


def scripts(text: str) -> list[tuple[str, str]]:
    """Pieces of a text, each with "^" if it is raised, "_" if it is lowered, or ""."""
    # Between the pieces of plain text stand the sign and what it raises or lowers.
    parts = [text] if re.search(CODE, text) else re.split(SPLIT, text)
    return [
        (part, parts[i - 1] if i % 3 == 2 else "")
        for i, part in enumerate(parts)
        if part and i % 3 != 1
    ]


def _widest(texts: Sequence[str], size: int = SMALL) -> float:
    return max((text_width(t, size) for t in texts), default=0.0)


def _short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True)
class _Sizes:
    """How large things may be at most: a cell, the height of a plot, the room between rows."""

    cell: float
    plot: float
    gap: float
    line: float  # of a table


_SIZES = (
    _Sizes(27, 160, 20, 24), _Sizes(22, 130, 18, 22), _Sizes(18, 115, 16, 20),
    _Sizes(15, 104, 14, 19), _Sizes(13, 96, 12, 18), _Sizes(11.5, 88, 12, 18),
    _Sizes(10, 80, 10, 17), _Sizes(8, 72, 8, 17), _Sizes(6, 64, 8, 17),
)  # fmt: skip


_Most = tuple[int, int]  # panels in a row: with plots among them, and of heatmaps alone
_ALL: _Most = (MOST, MOST)


def draw(scene: Scene, width: float = WIDTH, height: float = math.inf) -> Drawing:
    """Lays the panels out in rows no wider than `width`, one colour bar where all share a scale.

    Cells and plots shrink until the drawing is no higher than `height`, if they can.
    """
    require_kind("scene", scene, Scene)
    require_positive("width", width)
    frames = tuple(tuple(map(_frame, row)) for row in scene.panels)
    key = scene.title, frames, _alike(scene.panels)
    return _draw_scene(scene, width, *_fitting(_Framed(key, scene), width, height))


@lru_cache(4096)
def _fitting(framed: _Framed, width: float, height: float) -> tuple[_Sizes, _Most]:
    """The largest sizes, and the most panels in a row, with which a scene fits."""
    scene: Scene = framed.thing
    if width < FOLDED:
        maps = range(max(1, int(width / 150)), 0, -1)
        plots = range(max(1, int(width / 210)), 0, -1)
        for most in itertools.product(plots, maps):
            if most == (1, 1) or _draw_scene(scene, width, _SIZES[0], most).width <= width:
                return _SIZES[0], most
    if _draw_scene(scene, width, _SIZES[0], _ALL).height <= height:
        return _SIZES[0], _ALL
    low, high = 1, len(_SIZES) - 1  # the first of the sizes that fits, or the last one
    while low < high:
        middle = (low + high) // 2
        fits = _draw_scene(scene, width, _SIZES[middle], _ALL).height <= height
        low, high = (low, middle) if fits else (middle + 1, high)
    return _SIZES[low], _ALL


@dataclass(frozen=True)
class _Framed:
    """Something to be measured: all that have the same key take the same room."""

    key: Hashable
    thing: Any = field(compare=False)


# What of a panel takes no room. Of values only their number does, and how wide they are written.
_ROOMLESS = {
    "heatmap": {"values", "rows", "blocked", "marks", "picks", "picked"},
    "words": {"row"},
    "bars": {"values", "heads", "roles", "reference"},
    "curve": {"marker", "lines"},
    "tiles": {"labels", "heads", "links", "says", "wrong"},
    "walk": {"steps"},
    "stack": {"panels"},
    "table": {"rows"},
    "flow": {"shown", "pick", "by_hand", "writes", "bias"},
}
_FRAMES: WeakKeyDictionary[Panel, Hashable] = WeakKeyDictionary()


def _frame(panel: Panel) -> Hashable:
    """All that the room of a panel depends on; the panel itself where nobody has said what."""
    if panel.kind not in _ROOMLESS:
        return panel
    if panel not in _FRAMES:
        without = _ROOMLESS[panel.kind] | {"alt", "title", "head"}
        parts = [_fixed(getattr(panel, f.name)) for f in fields_of(panel) if f.name not in without]
        title = text_width(panel.title, BODY), panel.head is None
        _FRAMES[panel] = panel.kind, title, *parts, _written(panel)
    return _FRAMES[panel]


def _fixed(value: Any) -> Hashable:
    if isinstance(value, Panel):
        return _frame(value)
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((name, _fixed(v)) for name, v in value.items())
    return value


def _written(panel: Panel) -> Hashable:
    """The room of what a panel holds: how many cells, how wide their numbers or words."""
    if isinstance(panel, Heatmap):
        named = _widest([_short(label) for label in panel.rows])
        return panel.values.shape, bool(panel.blocked.any()), _numbered(panel, math.inf), named
    if isinstance(panel, Bars):
        low = panel.values[panel.values < 0].tobytes()  # numbers hang below such bars
        level, name = panel.reference or (None, None)
        said = [_crowd(panel, fewer)[1:] for fewer in range(2 if panel.decimals else 1)]
        heads = tuple(head is None for head in panel.heads)
        guide = name, level if low else None
        return panel.values.shape, low, tuple(said), heads, guide
    if isinstance(panel, Curve):  # a name stands where its line ends
        return tuple((name, *line[_seen(panel, line)][-1:]) for name, line in panel.lines.items())
    if isinstance(panel, Table):
        return len(panel.rows), *(_widest(column, BODY) for column in zip(*panel.rows, strict=True))
    if isinstance(panel, Tiles):
        words = [text for row in panel.labels for text in row if text]
        return len(panel.labels), len(panel.labels[0]), _widest(words, BODY)
    if isinstance(panel, Stack):
        return tuple(tuple(map(_frame, row)) for row in panel.panels), _alike(panel.panels)
    return None


def _alike(panels: Sequence[Sequence[Panel]]) -> Hashable:
    """Which heatmaps name their rows alike: neighbours that do share the labels."""
    names: dict[tuple[str, ...], int] = {}
    maps = [panel for row in panels for panel in row if isinstance(panel, Heatmap)]
    return tuple(names.setdefault(panel.rows, len(names)) for panel in maps)


def _draw_scene(scene: Scene, width: float, sizes: _Sizes, most: _Most) -> Drawing:
    drawing = Drawing()
    top = 0.0
    bar = shared_bar(scene)
    if scene.title:
        drawing.add(Text(0, 11, scene.title, TITLE, bold=True))
        drawing.width = 1.1 * text_width(scene.title, TITLE)
        top = 34
    shared = bar is not None and len(scene.flat()) > 1
    rows = [part for row in scene.panels for part in _folded(row, most)]
    order = {id(panel): i for i, panel in enumerate(scene.flat())}
    if bar is not None and shared:
        first = next(i for i, row in enumerate(rows) if _with_maps(row))
        if first:
            drawing.paste(_draw_rows(rows[:first], width, width, sizes, False, order), 0, top)
            top, rows = drawing.height + sizes.gap, rows[first:]
        key = _colour_bar(bar, any(p.blocked.any() for p in _maps(scene)))
        beside = drawing.width + GAP if scene.title and not first else 0
        if beside and beside + key.width <= width:
            drawing.paste(key, beside, 0)
        else:
            drawing.paste(key, 0, top)
            top += 32 if beside else 34
    drawing.paste(_draw_rows(rows, width, width, sizes, not shared, order), 0, top)
    drawing.width = max(drawing.width, drawing.edge)
    return drawing


def _draw_rows(
    panels: Sequence[tuple[Panel, ...]],
    width: float,
    page: float,
    sizes: _Sizes,
    bars: bool,
    order: Mapping[int, int],
) -> Drawing:
    """Rows of panels, aligned in columns where rows are alike; `order` numbers the panels."""
    drawing, top = Drawing(), 0.0
    for grid in _grids(panels, alone=width < FOLDED):
        pieces = [
            [
                _Piece(
                    panel,
                    rows=not panel.bare and not (c and _same(panel, row[c - 1], "rows")),
                    columns=not panel.bare
                    and not (r + 1 < len(grid) and c < len(grid[r + 1])
                             and _same(panel, grid[r + 1][c], "columns")),
                    bar=bars,
                    page=page,
                    sizes=sizes,
                    order=order,
                )
                for c, panel in enumerate(row)
            ]
            for r, row in enumerate(grid)
        ]  # fmt: skip
        drawn, lefts = _fit(pieces, width)
        for row, ones in zip(pieces, drawn, strict=True):
            top += sizes.gap if drawing.parts else 0
            heads = max(piece.title for piece in row)
            for piece, one, x in zip(row, ones, lefts, strict=False):
                y = round(top + heads - piece.title)
                drawing.paste(one, x, y, order.get(id(piece.panel)))
            top = drawing.height
    return drawing


def _grids(rows: Sequence[tuple[Panel, ...]], alone: bool) -> list[list[tuple[Panel, ...]]]:
    """Runs of rows that stand in columns: as many panels in each, the last of heatmaps fewer.

    On a narrow page a plot stands `alone`: no other one's labels take its room.
    """
    grids: list[list[tuple[Panel, ...]]] = []
    for row in rows:
        before = grids[-1][-1] if grids else ()
        maps = all(isinstance(panel, Heatmap) for panel in (*before, *row))
        cells = any(isinstance(panel, Tiles) for panel in row)  # of their own width
        cells |= alone and len(row) == 1 and not maps
        fits = (len(row) == len(before) and not cells) or (maps and len(row) < len(before))
        if grids and fits and len({*map(len, grids[-1])}) == 1:
            grids[-1].append(row)
        else:
            grids.append([row])
    return grids


def _with_maps(row: tuple[Panel, ...]) -> bool:
    return any(
        isinstance(p, Heatmap) or (isinstance(p, Stack) and any(map(_with_maps, p.panels)))
        for p in row
    )


def _maps(scene: Scene) -> list[Heatmap]:
    return [p for p in scene.flat() if isinstance(p, Heatmap) and not p.mask]


def _folded(row: tuple[Panel, ...], most: _Most) -> list[tuple[Panel, ...]]:
    """A row as it is, or as several of at most so many panels, where the page is narrow."""
    fits = most[all(isinstance(panel, Heatmap) for panel in row)]
    each = math.ceil(len(row) / math.ceil(len(row) / fits))
    return [row[i : i + each] for i in range(0, len(row), each)]


def shared_bar(scene: Scene) -> Heatmap | None:
    """One heatmap for all, where all heatmaps of a scene share scale and quantity."""
    maps = _maps(scene)
    scales = {(p.limits, p.colours, p.quantity, p.per_row) for p in maps}
    return maps[0] if len(scales) == 1 else None


def _same(panel: Panel, other: Panel, axis: str) -> bool:
    """Do the labels of another heatmap serve this one too?"""
    if not (isinstance(panel, Heatmap) and isinstance(other, Heatmap)):
        return False
    name = "row_name" if axis == "rows" else "column_name"
    return getattr(panel, axis) == getattr(other, axis) and (
        getattr(panel, name) == getattr(other, name)
    )


@dataclass(eq=False)
class _Piece:
    """A panel to be drawn: with its own labels and colour bar, or served by a neighbour's."""

    panel: Panel
    rows: bool
    columns: bool
    bar: bool
    page: float  # how wide the whole page is
    sizes: _Sizes
    order: Mapping[int, int]  # a panel's number in the scene, by its id
    left: float = 0.0  # what labels take beside the plot, the same in a column of panels
    right: float = 0.0
    cell: float = 0.0  # the height of a cell, where neighbours have given it

    @property
    def narrow(self) -> bool:
        return self.page < FOLDED

    @property
    def title(self) -> float:
        """The height of what stands above the plot."""
        p = self.panel
        if isinstance(p, Stack):
            return max(replace(self, panel=one).title for one in p.panels[0])
        own_bar = isinstance(p, Heatmap) and (self.bar or p.mask) and not _numbers_only(p)
        return (22.0 if p.bare else 26.0) * bool(p.title) + 26.0 * own_bar

    @property
    def sides(self) -> tuple[float, float]:
        """The width that labels take at the left and at the right of the plot."""
        p = self.panel
        if isinstance(p, Heatmap):
            if not self.rows:
                return 0.0, 0.0
            labels = _widest(_bare(p.rows, p.row_name))
            return math.ceil(labels) + 10.0 + (20 if p.row_name else 0), 0.0
        if isinstance(p, Bars):
            side = text_width(p.reference[1]) + 8 if p.reference else 0.0
            return _widest(_scale(p.limits, p.log)[1]) + 12 + (20 if p.name else 0), side
        if isinstance(p, Curve):
            beside = len(p.lines) > 1 and not self.narrow
            names = _widest(list(p.lines)) + 26 if beside else 14.0
            return _widest(_scale(p.limits, p.log_y)[1]) + 12 + (20 if p.y_name else 0), names
        if isinstance(p, Tiles):
            labels = math.ceil(_widest(p.rows)) + 10.0 if p.rows else 0.0
            return labels + (20 if p.row_name else 0), 0.0
        return 0.0, 0.0

    @property
    def gap(self) -> float:
        """The room before it, in a row of panels."""
        return 12.0 if isinstance(self.panel, Heatmap) and not self.rows else GAP

    def draw(self, room: float) -> Drawing:
        """The panel, its plot at most `room` wide."""
        return _DRAW[self.panel.kind](self.panel, self, room)


@lru_cache(512)
def _scale(limits: tuple[float, float], log: bool) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The ticks of an axis and what they say: one number of decimals, but 0 is "0"."""
    at = ticks(*limits, log)
    decimals = None
    if not log and any(t % 1 for t in at):
        decimals = next((d for d in (1, 2, 3, 4) if all(round(t, d) == t for t in at)), None)
    return at, tuple(number(t, decimals if t else None) for t in at)


def _fit(grid: list[list[_Piece]], width: float) -> tuple[list[list[Drawing]], list[float]]:
    """Shares the width among the columns; gives the drawings and the left end of each column."""
    for column in _columns(grid):
        left, right = (max(side) for side in zip(*(p.sides for p in column), strict=True))
        for piece in column:
            piece.left, piece.right = left, right
    key = tuple(
        tuple((_frame(p.panel), p.rows, p.columns, p.bar, p.page, p.sizes) for p in row)
        for row in grid
    )
    made, widths = _drawn(grid, _shares(_Framed(key, grid), width))
    lefts = [0.0]
    for w, gap in zip(widths, _gaps(grid)[1:], strict=False):
        lefts.append(float(round(lefts[-1] + w + gap)))
    return made, lefts


@lru_cache(16384)
def _shares(framed: _Framed, width: float) -> tuple[float, ...]:
    """The room for the plots of each column, by the panels' `wide`; what one does not need goes to
    the others.
    """
    grid: list[list[_Piece]] = framed.thing
    columns, gaps = _columns(grid), _gaps(grid)
    sides = [column[0].left + column[0].right for column in columns]
    room = width - sum(gaps) - sum(sides) - 4  # labels under the last cells may be wider
    weights = [max(p.panel.wide for p in column) for column in columns]
    shares = [max(24.0, room * w / sum(weights)) for w in weights]
    _, widths = _drawn(grid, shares)
    hungry = [w - b > s - 12 for w, b, s in zip(widths, sides, shares, strict=True)]
    slack = width - sum(gaps) - sum(widths)
    if slack > 24 and any(hungry) and not all(hungry):
        more = slack / sum(w for w, h in zip(weights, hungry, strict=True) if h)
        fed = [s + more * w * h for s, w, h in zip(shares, weights, hungry, strict=True)]
        _, wider = _drawn(grid, fed)
        if sum(gaps) + sum(wider) <= width:  # else labels and titles took more than their share
            shares, widths = fed, wider
    over = sum(gaps) + sum(widths) - width
    if 0 < over < max(shares) - 60:  # labels and titles took it: the widest plot gives it back
        widest = shares.index(max(shares))
        shares[widest] = min(shares[widest], widths[widest] - sides[widest]) - over - 1
    return tuple(shares)


def _columns(grid: list[list[_Piece]]) -> list[list[_Piece]]:
    return [[row[c] for row in grid if c < len(row)] for c in range(max(len(row) for row in grid))]


def _gaps(grid: list[list[_Piece]]) -> list[float]:
    return [0.0, *(max(p.gap for p in column) for column in _columns(grid)[1:])]


def _drawn(
    grid: list[list[_Piece]], shares: Sequence[float]
) -> tuple[list[list[Drawing]], list[float]]:
    """The drawings with so much room for each column, and how wide the columns are."""
    for row in grid:
        _align(row, shares)
    made = [[p.draw(s) for p, s in zip(row, shares, strict=False)] for row in grid]
    return made, [max(row[c].width for row in made if c < len(row)) for c in range(len(shares))]


def _align(row: list[_Piece], shares: Sequence[float]) -> None:
    """Heatmaps of as many rows, side by side, have rows of one height."""
    maps = [
        (piece, len(piece.panel.values), share)
        for piece, share in zip(row, shares, strict=False)
        if isinstance(piece.panel, Heatmap)
    ]
    for piece, _, _ in maps:
        piece.cell = 0.0
    heights = [(rows, _cell_size(piece, share)[1]) for piece, rows, share in maps]
    for piece, rows, _ in maps:
        piece.cell = max(height for n, height in heights if n == rows)


def _title(drawing: Drawing, panel: Panel) -> float:
    """The title with its head's colour; gives the y below."""
    if not panel.title:
        return 0.0
    x = 0.0
    if panel.head is not None:
        drawing.add(Rect(0, 4, 12, 12, head_colour(panel.head), hollow=panel.head >= 8))
        x = 18.0
    drawing.add(Text(x, 10, panel.title, BODY, bold=True))
    drawing.width = max(drawing.width, x + 1.1 * text_width(panel.title, BODY))
    return 26.0


def _numbers_only(panel: Heatmap) -> bool:
    """Every cell says its value: no colour bar needed."""
    return panel.numbers is not False and panel.values.size <= 64


@cache
def _boxes(*names: tuple[str, bool]) -> Drawing:
    """A key of cells: hatched ones (True) and empty ones, with their names."""
    drawing, x = Drawing(height=20), 0.0
    for name, hatched in names:
        key = Heatmap([[hatched]], mask=True, numbers=False, alt=name)
        drawing.add(Cells(x, 4, 12, 12, key, key=True), Text(x + 20, 10, name))
        drawing.width = x + 20 + text_width(name)
        x = drawing.width + 14
    return drawing


def _colour_bar(panel: Heatmap, blocked: bool, length: float = BAR) -> Drawing:
    drawing = Drawing(height=20)
    start, end = panel.ends()
    x = 0.0
    for label in (panel.quantity, start):
        drawing.add(Text(x, 10, label))
        x += text_width(label) + 8
    by_row = ROWS_LARGEST if panel.by_row else ""
    drawing.add(ColourBar(x, 4, length, 12, panel.colours, end, by_row))
    drawing.width = x + length + 8 + text_width(end)
    if blocked:
        drawing.paste(_boxes(("blocked", True)), drawing.width + 18, 0)
    return drawing


def _half(size: float) -> float:
    """A cell's size in whole pixels, or half ones where it is small: its edges are sharp."""
    return float(math.floor(size)) if size >= 8 else max(1.0, math.floor(size * 2) / 2)


def _numbered(panel: Heatmap, room: float) -> float:
    """The width that a cell needs for its number, or 0 where none is written."""
    numbers = panel.values.size <= 64 if panel.numbers is None else panel.numbers
    if not numbers:
        return 0.0
    words = [panel._number(v) for v in panel.values[~panel.blocked]]
    said = _widest([*words, "1.00"])  # the widest weight, lest the cells change with the values
    return said if room / panel.values.shape[1] >= said + 6 else 0.0


def _cell_size(piece: _Piece, room: float) -> tuple[float, float]:
    panel, most = piece.panel, piece.sizes.cell
    assert isinstance(panel, Heatmap)
    n_rows, n_columns = panel.values.shape
    said = _numbered(panel, room)
    width = _half(min(max(46.0, said + 14) if said else 27.0, room / n_columns))
    if said:
        return width, 32.0 if most >= 27 else max(most, 16.0)
    if panel.bare:  # a thumbnail of a size that hardly depends on its number of cells
        width = _half(min(room / n_columns, 3.6 * most / n_columns))
        return width, width
    low = 15.0 if n_rows <= 8 else 11.5 if piece.rows else 0.0  # so high that labels fit
    if piece.page < PHONE and room < piece.page / 2:  # rather fewer labels than a long way down
        low = 0.0
    height = piece.cell or min(max(width, low), most)
    return min(width, _half(1.7 * height)), height


def _heatmap(panel: Heatmap, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    n_rows, n_columns = panel.values.shape
    top, left = _title(drawing, panel), piece.left
    if piece.title > top:
        key = _boxes(("True", True), ("False", False)) if panel.mask else None
        length = 44.0 if piece.narrow else BAR
        drawing.paste(key or _colour_bar(panel, bool(panel.blocked.any()), length), 0, top)
    top = piece.title
    width, height = _cell_size(piece, room)
    drawing.add(Cells(left, top, width, height, panel, _numbered(panel, room) > 0))
    right, bottom = left + n_columns * width, top + n_rows * height
    if panel.picked:  # within the 2 pixels that a canvas has beside its picture
        x, y, end = left - 0.7, top - 3, right + 0.7
        frame = ((x, y), (end, y), (end, bottom + 2), (x, bottom + 2), (x, y))
        drawing.add(Path(frame, LOW, width=2.5))
    named = 0.0
    if piece.rows:
        every = math.ceil(11.5 / height)
        drawing.add(
            *(
                Text(left - 7, top + (i + 0.5) * height, label, align="right")
                for i, label in enumerate(_bare(panel.rows, panel.row_name))
                if i % every == 0 and label
            )
        )
        named = _name_rows(drawing, panel.row_name, top, bottom)
    if piece.columns:
        middle = left + n_columns * width / 2
        labels = _bare(panel.columns, panel.column_name)
        bottom = _column_labels(drawing, labels, left, bottom, width)
        if panel.column_name:
            drawing.add(Text(middle, bottom + 10, panel.column_name, BODY, "center"))
            half = text_width(panel.column_name, BODY) / 2
            right = max(right, middle + half)
            bottom += 20
    drawing.width, drawing.height = max(right, drawing.width), max(bottom, named)
    return drawing


def _words(panel: Words, piece: _Piece, room: float) -> Drawing:
    drawing, weights = Drawing(), panel.weights
    top = piece.title if _title(drawing, panel) else 0.0
    sides = [[_short(t) for t in labels] for labels in (weights.rows, weights.columns)]
    named = max(text_width(name, BODY) for name in (weights.row_name, weights.column_name))
    margin = math.ceil(max(named, _widest([*sides[0], *sides[1]]))) + 8.0
    pitch = min(22.0, max(piece.sizes.cell, 6.0))
    width = max(60.0, min(170.0, room - 2 * margin))
    drawing.add(Ribbons(margin, top, width, pitch, panel, margin))
    every = math.ceil(11.5 / pitch)
    places = (margin - 7, "right"), (margin + width + 7, "left")
    for labels, (x, align) in zip(sides, places, strict=True):
        drawing.add(*(
            Text(x, top + (i + 0.5) * pitch, label, align=align)
            for i, label in enumerate(labels) if i % every == 0 and label
        ))  # fmt: skip
    bottom = top + pitch * max(map(len, sides))
    names = (weights.row_name, "right"), (weights.column_name, "left")
    for (name, align), (x, _) in zip(names, places, strict=True):
        drawing.add(Text(x, bottom + 12, name, BODY, align))
    drawing.width, drawing.height = max(drawing.width, 2 * margin + width), bottom + 22
    return drawing


def _name_rows(drawing: Drawing, name: str, top: float, bottom: float) -> float:
    """The turned name of an axis, in the middle, or from the top on; gives the y of its end."""
    if not name:
        return 0.0
    half = text_width(name, BODY) / 2
    middle = max((top + bottom) / 2, top + half)
    drawing.add(_turned(name, 8, middle))
    return middle + half


def _bare(labels: Sequence[str], name: str) -> list[str]:
    """Labels without the name of their axis, which stands beside them."""
    return [_short(label.removeprefix(f"{name} ")) for label in labels]


def _turned(text: str, x: float, y: float) -> Text:
    return Text(x, y, text, BODY, "center", turned=True)


def _column_labels(
    drawing: Drawing,
    labels: Sequence[str],
    left: float,
    y: float,
    width: float,
    at: Callable[[int], float] | None = None,
) -> float:
    """Labels under columns, turned where they are too wide; gives the y below them."""
    labels = [_short(t) for t in labels]
    longest = _widest(labels)
    if not longest:
        return y
    turned = longest > width - 4 and max(map(len, labels)) > 2
    every = math.ceil((12.5 if turned else longest + 6) / width)
    for i, label in enumerate(labels):
        if i % every or not label:
            continue
        x = at(i) if at else left + (i + 0.5) * width
        if turned:
            drawing.add(Text(x, y + 7, label, align="right", turned=True))
        else:
            drawing.add(Text(x, y + 13, label, align="center"))
    return y + (longest + 10 if turned else 25)


def _y_axis(
    drawing: Drawing,
    scale: tuple[Sequence[float], Sequence[str]],
    y: Callable[[float], float],
    span: tuple[float, float],
    name: str,
    height: tuple[float, float],
) -> None:
    free = math.inf
    for tick, said in zip(*scale, strict=True):
        drawing.add(Path(((span[0], y(tick)), (span[1], y(tick))), width=1))
        if y(tick) <= free:  # from below; a low plot leaves some out
            drawing.add(Text(span[0] - 8, y(tick), said, align="right"))
            free = y(tick) - 12
    drawing.height = max(drawing.height, _name_rows(drawing, name, *height))


def _share(low: float, high: float, log: bool) -> Callable[[float], float]:
    """From a value to where it lies between low and high: 0 to 1."""
    start, end = (math.log(low), math.log(high)) if log else (low, high)

    def share(value: float) -> float:
        value = min(max(value, low), high)
        return ((math.log(value) if log else value) - start) / (end - start)

    return share


def _colours(heads: Sequence[int | None]) -> list[str]:
    return [
        PLAINS[i % len(PLAINS)] if head is None else head_colour(head)
        for i, head in enumerate(heads)
    ]


def _bars(panel: Bars, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    n_series, n = panel.values.shape
    low, high = panel.limits
    top = _title(drawing, panel)
    colours = _colours(panel.heads)
    if n_series == 1 and all(head is None for head in panel.heads):
        colours = [PLAIN] * n
    colours = [ROLES.get(role, c) for role, c in zip(panel.roles, colours, strict=True)]
    if n_series > 1:
        top = _legend(drawing, panel.series, colours, top, piece.left + room)
    left, tall = piece.left, piece.sizes.plot
    each = room / n / n_series * (0.76 if n_series > 1 else 1)
    said, widest, _ = _bar_numbers(panel, each)
    wanted = max(56.0, n_series * (widest + 5) / 0.76 if n_series > 1 else widest + 6)
    slot = min(max(wanted, _widest([_short(t) for t in panel.labels]) + 8), room / n)
    bar = min(44.0 * n_series, slot * 0.76) / n_series
    pitch = slot if n_series == 1 else bar  # from number to number
    turned = _bar_numbers(panel, pitch)[2]
    farthest = [number(v, panel.decimals if abs(v) < 10 else 0) for v in panel.limits]
    deepest = _widest(farthest)  # so that nothing jumps
    deep = max(widest, deepest) if turned else 10.0  # of a number
    top += deep + 8
    bottom = top + tall
    right = left + n * slot

    up = _share(low, high, panel.log)

    def y(value: float) -> float:
        return bottom - tall * up(value)

    _y_axis(drawing, _scale(panel.limits, panel.log), y, (left, right), panel.name, (top, bottom))
    level = None  # 0 has no place on a logarithmic axis: the room for the name is kept
    if panel.reference and (panel.reference[0] > 0 or not panel.log):
        level = y(panel.reference[0])
    numbers = []
    for i in range(n):
        for s in range(n_series):
            value = float(panel.values[s, i])
            if math.isnan(value):
                continue
            x = left + (i + 0.5) * slot + (s - n_series / 2) * bar
            ends = sorted((y(value), y(low if panel.log else max(low, 0.0))))
            colour, says = colours[s if n_series > 1 else i], panel.text(s, i)
            drawing.add(Rect(x, ends[0], bar - 1, max(ends[1] - ends[0], 1), colour, says=says))
            over = ends[0] - 4 - deep / 2 if value >= 0 else ends[1] + 4 + deep / 2
            if level is not None and abs(over - level) < deep / 2 + 4:
                over = level - 4 - deep / 2
            if not turned or pitch >= (12 if n_series == 1 else 11):
                numbers.append(Text(x + bar / 2, over, said[s][i], align="center", turned=turned))
    if panel.reference and level is not None:  # above the bars: there one compares
        drawing.add(Path(((left, level), (right, level)), LOW, dashed=True, width=1.5))
        drawing.add(Text(right + 6, level, panel.reference[1]))
    drawing.add(*numbers)
    reach = [t.x + text_width(t.text) / 2 for t in numbers if not t.turned]
    drawing.width = max(drawing.width, *reach, 0.0)
    under = max((t.y + deep / 2 for t in numbers), default=0.0) - 2
    bottom = _column_labels(drawing, panel.labels, left, max(bottom, under), slot)
    drawing.height = max(drawing.height, bottom)
    drawing.width = max(drawing.width, right + piece.right)
    return drawing


def _bar_numbers(panel: Bars, pitch: float) -> tuple[list[list[str]], float, bool]:
    """What stands at bars, one every `pitch`, with one decimal less where that makes it fit; the
    widest of it; and whether it is too wide.
    """
    said, widest, level = _crowd(panel)
    if panel.decimals is not None and panel.decimals > 1 and _too_wide(widest, level, pitch):
        shorter = _crowd(panel, 1)
        if not _too_wide(*shorter[1:], pitch):
            said, widest, level = shorter
    return said, widest, _too_wide(widest, level, pitch)


def _too_wide(widest: float, level: float, pitch: float) -> bool:
    """Whether numbers lie on the bar beside their own, or on each other."""
    return widest > 1.2 * pitch or level + 1 > pitch


def _crowd(panel: Bars, fewer: int = 0) -> tuple[list[list[str]], float, float]:
    """What stands at the bars, the widest of it, and the widest mean of two neighbours at about
    one height.
    """
    said = [[panel.written(v, fewer) for v in row] for row in panel.values]
    widths = [text_width(text) for numbers in zip(*said, strict=True) for text in numbers]
    (low, high), values = panel.limits, panel.values.T.ravel().tolist()
    up = _share(low, high, panel.log)
    level = [
        (widths[i] + widths[i + 1]) / 2
        for i, (a, b) in enumerate(pairwise(values))
        if (a < 0) == (b < 0) and abs(up(a) - up(b)) < 0.25
    ]
    return said, max(widths), max(level, default=0.0)


def _legend(
    drawing: Drawing,
    names: Sequence[str],
    colours: Sequence[str],
    top: float,
    room: float,
    dashed: Sequence[bool] = (),
) -> float:
    """Names beside their colours, those of lines beside a line; gives the y below."""
    x, beside = 0.0, 30 if dashed else 18
    for i, (name, colour) in enumerate(zip(names, colours, strict=True)):
        wide = beside + text_width(name)
        if x and x + wide > room:
            x, top = 0.0, top + 18
        if dashed:
            drawing.add(Path(((x, top + 10), (x + 22, top + 10)), colour, dashed=dashed[i]))
        else:
            drawing.add(Rect(x, top + 4, 12, 12, colour))
        drawing.add(Text(x + beside, top + 10, name))
        drawing.width = max(drawing.width, x + wide)
        x += wide + 16
    return top + 24


def _curve(panel: Curve, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = _title(drawing, panel) + 8
    low, high = panel.limits
    x_low, x_high = panel.x_limits
    left, colours = piece.left, _colours(panel.heads)
    if len(panel.lines) > 1 and piece.narrow:
        dashed = [name in panel.dashed for name in panel.lines]
        top = _legend(drawing, [*panel.lines], colours, top - 8, left + room, dashed) + 6
    right, bottom = left + max(100.0, min(520.0, room)), top + piece.sizes.plot + 30

    along, up = _share(x_low, x_high, panel.log_x), _share(low, high, panel.log_y)

    def x(value: float) -> float:
        return left + (right - left) * along(value)

    def y(value: float) -> float:
        return bottom - (bottom - top) * up(value)

    scale = _scale(panel.limits, panel.log_y)
    _y_axis(drawing, scale, y, (left, right), panel.y_name, (top, bottom))
    most = max(2, min(6, int((right - left) / 64)))
    sparse = panel.log_x and len(panel.x) <= most + 1
    for tick in panel.x if sparse else ticks(x_low, x_high, panel.log_x, most):
        drawing.add(Path(((x(tick), bottom), (x(tick), bottom + 5)), width=1))
        drawing.add(Text(x(tick), bottom + 16, number(tick), align="center"))
    if panel.x_name:
        drawing.add(Text((left + right) / 2, bottom + 37, panel.x_name, BODY, "center"))
    if panel.marker is not None:
        here = x(panel.marker)
        drawing.add(Path(((here, top), (here, bottom)), dashed=True, width=1.5))
    ends, now = [], panel.now()
    for i, (name, values) in enumerate(panel.lines.items()):
        hollow = name in panel.dashed or (panel.heads[i] or 0) >= 8
        seen = np.flatnonzero(_seen(panel, values))
        for run in np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1):
            points = tuple((x(panel.x[k]), y(values[k])) for k in run)
            if len(points) > 1:
                drawing.add(Path(points, colours[i], dashed=hollow))
        every = math.ceil(len(seen) / 64)  # more could not be told apart
        for k in seen:
            big = k == now and panel.marker is not None
            if k % every and not big:
                continue
            size = 4.5 if big else 2.5 if len(seen) <= 24 and not hollow else 0.0
            spot = Dot(x(panel.x[k]), y(values[k]), colours[i], size, panel.said[i][k])
            drawing.add(spot)
        if len(seen):
            ends.append((y(values[seen[-1]]), name, colours[i]))
    if len(panel.lines) > 1 and not piece.narrow:
        free = top - 23
        for i, (end, name, colour) in enumerate(sorted(ends)):
            lowest = bottom - 15 * (len(ends) - 1 - i)  # above the numbers of the axis below
            free = max(min(end, lowest), free + 15)
            hollow = name in panel.dashed
            swatch = Path(((right + 6, free), (right + 18, free)), colour, dashed=hollow)
            drawing.add(swatch, Text(right + 22, free, name))
        drawing.height = max(drawing.height, free + 8)
    drawing.width = max(drawing.width, right + piece.right)
    drawing.height = max(drawing.height, bottom + (46 if panel.x_name else 26))
    return drawing


def _seen(panel: Curve, values: np.ndarray) -> np.ndarray:
    """Which points of a line can be drawn."""
    return np.isfinite(values) & ((values > 0) | (not panel.log_y))


def _walk(panel: Walk, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = _title(drawing, panel) + 4
    x0, x1, y0, y1 = panel.frame
    unit = min(room / (x1 - x0), 2 * piece.sizes.plot / (y1 - y0))  # pixels, on both axes

    x, y, bottom = -x0 * unit, top + y1 * unit, top + (y1 - y0) * unit
    width = (x1 - x0) * unit
    drawing.add(Path(((0, y), (width, y)), width=1), Path(((x, top), (x, bottom)), width=1))
    drawing.add(Arrows(x, y, unit, panel))
    if panel.x_name:
        drawing.add(Text(0, bottom + 12, panel.x_name))
        drawing.width = text_width(panel.x_name)
    drawing.width, drawing.height = max(drawing.width, width), bottom + 22
    return drawing


def _arrowhead(
    line: tuple[tuple[float, float], ...], colour: str, dashed: bool
) -> tuple[Path, Path]:
    (x0, y0), (x, y) = line
    far = math.hypot(x - x0, y - y0)
    size = min(7.0, far) / (far or 1.0)
    back = [((x0 - x) * size, (y0 - y) * size)]
    wings = [(x + a * c - b * s, y + a * s + b * c) for a, b in back
             for c, s in ((0.87, 0.5), (0.87, -0.5))]  # fmt: skip
    tip = Path((wings[0], (x, y), wings[1]), colour, width=2.5)
    return Path(line, colour, dashed=dashed, width=2.5), tip


def _tiles(panel: Tiles, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    top, left = _title(drawing, panel), piece.left
    n_rows, n_columns = len(panel.labels), len(panel.labels[0])
    wanted = _widest([t for row in panel.labels for t in row if t], BODY) + 12
    breaks = _breaks(n_columns - 1, panel.break_columns)
    longest = max(len(text or "") for row in panel.labels for text in row)
    legible, most = math.ceil(LETTER * longest) + 4.0, (piece.page - left - breaks) / n_columns
    along = piece.narrow and legible < 2.4 * most  # rather moved along than without its letters
    least = legible if along else 3.0
    width = _half(max(3.0, least, min(max(28.0, wanted), (room - breaks) / n_columns)))
    height = min(26.0 if n_rows <= 16 else 16.0, max(piece.sizes.cell, 13.0))
    if panel.path:
        top += 20
    cells = Cells(left, top, width, height, panel, numbers=width >= legible)  # all, or none
    drawing.add(cells)
    if panel.path:
        drawing.add(Path(tuple(_hops(panel.path, left, top, width)), INK, width=1.5))
    for i, label in enumerate(panel.rows):
        drawing.add(Text(left - 7, cells.at(i, 0)[1] + height / 2, label, align="right"))
    right, last = cells.at(n_rows - 1, n_columns - 1)
    right, bottom = right + width, last + height
    named = _name_rows(drawing, panel.row_name, top, bottom)
    if panel.columns:
        bottom = _column_labels(
            drawing, panel.columns, left, bottom, width, lambda i: cells.at(0, i)[0] + width / 2
        )
    if panel.column_name:
        drawing.add(Text((left + right) / 2, bottom + 12, panel.column_name, BODY, "center"))
        bottom += 24
    drawing.width, drawing.height = max(drawing.width, right), max(bottom, named)
    return drawing


def _hops(path: Sequence[int], left: float, top: float, width: float) -> Iterator[tuple]:
    """The way along a strip above its cells: level to the next one, in an arc to any other."""
    for here, there in pairwise(path):
        lift = 0.0 if there == here + 1 else min(16.0, 4.0 + 1.5 * abs(there - here))
        for i in range(9):
            share = i / 8
            x = left + (here + (there - here) * share + 0.5) * width
            yield x, top - 3 - 4 * lift * share * (1 - share)


def _stack(panel: Stack, piece: _Piece, room: float) -> Drawing:
    return _draw_rows(panel.panels, room, piece.page, piece.sizes, False, piece.order)


def _table(panel: Table, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = _title(drawing, panel)
    columns = list(zip(*([panel.header] if panel.header else []), *panel.rows, strict=True))
    bold = 1.12 if panel.strong else 1.0  # which row it is may change
    widths = [
        max(1.12 * text_width(column[0], BODY), bold * _widest(column[1:], BODY)) + 18
        for column in columns
    ]
    page = piece.page if piece.narrow else math.inf
    for part in _parts(widths, page):
        below = len(part) == 2 and widths[0] + widths[part[1]] - 18 > page  # its line, not beside
        line = piece.sizes.line * (1 + below)
        x, y = 0.0, top
        for i in part:
            y = top + (piece.sizes.line if below and i else 0.0)
            for r, text in enumerate(columns[i], -bool(panel.header)):
                strong = r < 0 or r in panel.strong
                drawing.add(Text(x, y + piece.sizes.line / 2 - 1, text, BODY, bold=strong))
                y += line + 2 * (r < 0)
            x += 12.0 if below and not i else widths[i]
        if panel.header:
            drawing.add(Path(((0, top + line - 1), (x - 18, top + line - 1)), width=1))
        drawing.width = max(drawing.width, x - 18)
        drawing.height, top = y, y + 12
    return drawing


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


def _diagram(panel: Diagram, piece: _Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = _title(drawing, panel) + 4
    height, pitch, deep = 42.0, 62.0, 3.0  # of a box, from row to row, from head to head
    boxes = panel.boxes.values()
    side = 24.0 + 14 * len(panel.around) if panel.around else 0.0
    notes = _widest(panel.notes) + 30 if panel.notes else 0.0
    n_columns = max(box.column + box.span for box in boxes)
    width = min(200.0, (room - side - notes) / n_columns)

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
        drawing.add(Rect(x, y, wide, height, colour, hollow=True, says=f"{box.text} {box.shape}"))
        if box.role:
            drawing.add(Rect(x + 11, y + 8, 10, 10, ROLES[box.role]))
        middle = x + wide / 2
        line = y + (height / 2 if not box.shape else 13)
        drawing.add(Text(middle, line, box.text, BODY, "center", bold=True))
        if box.shape:
            drawing.add(Text(middle, y + 29, box.shape, align="center"))
        drawing.width = max(drawing.width, x + wide + deep * box.heads)
        drawing.height = max(drawing.height, y + height + 6)
    for i, note in enumerate(panel.notes):
        x = side + n_columns * width + 22
        drawing.add(Text(x, top + i * pitch + height / 2, note))
        drawing.width = max(drawing.width, x + text_width(note))
    for upper, lower in panel.arrows:
        x = side + (panel._meet(upper, lower) or 0.0) * width
        above, below = panel.boxes[upper], panel.boxes[lower]
        start = frame(above)[1] + height
        end = frame(below)[1] - deep * max(0, below.heads - 1)
        _arrow(drawing, ((x, start), (x, end)), above.role)
    for i, (upper, lower) in enumerate(panel.around):
        (x, y, _), (x2, y2, _) = frame(panel.boxes[upper]), frame(panel.boxes[lower])
        left = side - 20.0 - 14 * i
        points = ((x, y), (left, y), (left, y2), (x2, y2))
        way = tuple((px, py + height / 2) for px, py in points)
        _arrow(drawing, way, panel.boxes[upper].role, dashed=True)
    return drawing


def _arrow(
    drawing: Drawing, points: tuple[tuple[float, float], ...], role: str, dashed: bool = False
) -> None:
    """An arrow in the colour of what it carries."""
    colour = ROLES.get(role, INK)
    (_, y0), (x, y) = points[-2:]
    drawing.add(Path(points, colour, dashed=dashed, width=1.5))
    dx, dy = (5.0, 0.0) if y == y0 else (0.0, 5.0)
    for turn in (-0.7, 0.7):
        drawing.add(Path(((x - dx + turn * dy, y - dy + turn * dx), (x, y)), colour, width=1.5))


_DRAW: dict[str, Callable[..., Drawing]] = {
    "heatmap": _heatmap, "bars": _bars, "curve": _curve, "tiles": _tiles, "table": _table,
    "diagram": _diagram, "stack": _stack, "words": _words,
    "walk": _walk,
}  # fmt: skip
