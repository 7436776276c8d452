"""Where the panels of a picture stand: a scene in, marks at CSS pixels out.

No text is smaller than 12 px (9 pt), but for what `scripts` raises or lowers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from mha_course.pictures.boxes import diagram, table, tiles
from mha_course.pictures.fields import Panel
from mha_course.pictures.marks import BODY, Drawing, short, text_width, widest_of
from mha_course.pictures.panels import Bars, Curve, Heatmap, Scene, Stack, Table, Tiles
from mha_course.pictures.plots import (
    FOLDED,
    Piece,
    Sizes,
    bars,
    cell_size,
    colour_bar,
    crowd,
    curve,
    heatmap,
    numbered,
    seen_of,
    walk,
    words,
)
from mha_lesson.refusals import MOST

WIDTH = 860  # fits the output of a notebook cell on a laptop
ROOMS = (WIDTH, 620, 310)  # widths that a saved page is laid out for: a laptop, a tablet, a phone
SCREEN = 420  # with controls and sentence it takes 560 px of a laptop's screen


_SIZES = (
    Sizes(27, 160, 20, 24), Sizes(22, 130, 18, 22), Sizes(18, 115, 16, 20),
    Sizes(15, 104, 14, 19), Sizes(13, 96, 12, 18), Sizes(11.5, 88, 12, 18),
    Sizes(10, 80, 10, 17), Sizes(8, 72, 8, 17), Sizes(6, 64, 8, 17),
)  # fmt: skip


_Most = tuple[int, int]  # panels in a row: with plots among them, and of heatmaps alone
_ALL: _Most = (MOST, MOST)


def draw(scene: Scene, width: float = WIDTH, height: float = math.inf) -> Drawing:
    """Lays the panels out in rows no wider than `width`, one colour bar where all share a scale.

    Cells and plots shrink until the drawing is no higher than `height`, if they can.
    """
    frames = tuple(tuple(map(_frame, row)) for row in scene.panels)
    key = frames, _alike(scene.panels)
    return _draw_scene(scene, width, *_fitting(_Framed(key, scene), width, height))


@lru_cache(4096)
def _fitting(framed: _Framed, width: float, height: float) -> tuple[Sizes, _Most]:
    """The largest sizes, and the most panels in a row, with which a scene fits."""
    scene: Scene = framed.thing
    if width < FOLDED:
        maps = range(max(1, int(width / 150)), 0, -1)
        plots = range(max(1, int(width / 190)), 0, -1)
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
        named = widest_of([short(label) for label in panel.rows])
        return panel.values.shape, bool(panel.blocked.any()), numbered(panel, math.inf), named
    if isinstance(panel, Bars):
        low = panel.values[panel.values < 0].tobytes()  # numbers hang below such bars
        level, name = panel.reference or (None, None)
        said = [crowd(panel, fewer)[1:] for fewer in range(2 if panel.decimals else 1)]
        heads = tuple(head is None for head in panel.heads)
        guide = name, level if low else None
        return panel.values.shape, low, tuple(said), heads, guide
    if isinstance(panel, Curve):  # a name stands where its line ends
        return tuple((name, *line[seen_of(panel, line)][-1:]) for name, line in panel.lines.items())
    if isinstance(panel, Table):
        return len(panel.rows), *(
            widest_of(column, BODY) for column in zip(*panel.rows, strict=True)
        )
    if isinstance(panel, Tiles):
        words = [text for row in panel.labels for text in row if text]
        return len(panel.labels), len(panel.labels[0]), widest_of(words, BODY)
    if isinstance(panel, Stack):
        return tuple(tuple(map(_frame, row)) for row in panel.panels), _alike(panel.panels)
    return None


def _alike(panels: Sequence[Sequence[Panel]]) -> Hashable:
    """Which heatmaps name their rows alike: neighbours that do share the labels."""
    names: dict[tuple[str, ...], int] = {}
    maps = [panel for row in panels for panel in row if isinstance(panel, Heatmap)]
    return tuple(names.setdefault(panel.rows, len(names)) for panel in maps)


def _draw_scene(scene: Scene, width: float, sizes: Sizes, most: _Most) -> Drawing:
    drawing = Drawing()
    top = 0.0
    bar = shared_bar(scene)
    shared = bar is not None and len(scene.flat()) > 1
    rows = [part for row in scene.panels for part in _folded(row, most)]
    order = {id(panel): i for i, panel in enumerate(scene.flat())}
    if bar is not None and shared:
        first = next(i for i, row in enumerate(rows) if _with_maps(row))
        if first:
            drawing.paste(_draw_rows(rows[:first], width, width, sizes, False, order), 0, top)
            top, rows = drawing.height + sizes.gap, rows[first:]
        key = colour_bar(bar, any(p.blocked.any() for p in _maps(scene)))
        drawing.paste(key, 0, top)
        top += 34
    drawing.paste(_draw_rows(rows, width, width, sizes, not shared, order), 0, top)
    drawing.width = max(drawing.width, drawing.edge)
    return drawing


def _draw_rows(
    panels: Sequence[tuple[Panel, ...]],
    width: float,
    page: float,
    sizes: Sizes,
    bars: bool,
    order: Mapping[int, int],
) -> Drawing:
    """Rows of panels, aligned in columns where rows are alike; `order` numbers the panels."""
    drawing, top = Drawing(), 0.0
    for grid in _grids(panels, alone=width < FOLDED):
        pieces = [
            [
                Piece(
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
    if most != _ALL and any(isinstance(panel, Bars) for panel in row):
        fits = min(fits, 2)  # else the numbers at the bars are shortened
    each = math.ceil(len(row) / math.ceil(len(row) / fits))
    return [row[i : i + each] for i in range(0, len(row), each)]


def shared_bar(scene: Scene) -> Heatmap | None:
    """One heatmap for all, where all heatmaps of a scene share scale and quantity."""
    maps = _maps(scene)
    scales = {(p.limits, p.colours, p.quantity) for p in maps}
    return maps[0] if len(scales) == 1 else None


def _same(panel: Panel, other: Panel, axis: str) -> bool:
    """Do the labels of another heatmap serve this one too?"""
    if not (isinstance(panel, Heatmap) and isinstance(other, Heatmap)):
        return False
    name = "row_name" if axis == "rows" else "column_name"
    return getattr(panel, axis) == getattr(other, axis) and (
        getattr(panel, name) == getattr(other, name)
    )


def _fit(grid: list[list[Piece]], width: float) -> tuple[list[list[Drawing]], list[float]]:
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
    grid: list[list[Piece]] = framed.thing
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


def _columns(grid: list[list[Piece]]) -> list[list[Piece]]:
    return [[row[c] for row in grid if c < len(row)] for c in range(max(len(row) for row in grid))]


def _gaps(grid: list[list[Piece]]) -> list[float]:
    return [0.0, *(max(p.gap for p in column) for column in _columns(grid)[1:])]


def _drawn(
    grid: list[list[Piece]], shares: Sequence[float]
) -> tuple[list[list[Drawing]], list[float]]:
    """The drawings with so much room for each column, and how wide the columns are."""
    for row in grid:
        _align(row, shares)
    made = [
        [_DRAW[p.panel.kind](p.panel, p, s) for p, s in zip(row, shares, strict=False)]
        for row in grid
    ]
    return made, [max(row[c].width for row in made if c < len(row)) for c in range(len(shares))]


def _align(row: list[Piece], shares: Sequence[float]) -> None:
    """Heatmaps of as many rows, side by side, have rows of one height."""
    maps = [
        (piece, len(piece.panel.values), share)
        for piece, share in zip(row, shares, strict=False)
        if isinstance(piece.panel, Heatmap)
    ]
    for piece, _, _ in maps:
        piece.cell = 0.0
    heights = [(rows, cell_size(piece, share)[1]) for piece, rows, share in maps]
    for piece, rows, _ in maps:
        piece.cell = max(height for n, height in heights if n == rows)


def _stack(panel: Stack, piece: Piece, room: float) -> Drawing:
    return _draw_rows(panel.panels, room, piece.page, piece.sizes, False, piece.order)


_DRAW: dict[str, Callable[..., Drawing]] = {
    "heatmap": heatmap, "bars": bars, "curve": curve, "tiles": tiles, "table": table,
    "diagram": diagram, "stack": _stack, "words": words,
    "walk": walk,
}  # fmt: skip
