"""Where the panels of a picture stand: a scene in, marks at CSS pixels out.

No text is smaller than a caption, but for what `scripts` raises or lowers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from mha_course.pictures.heatmap import Heatmap
from mha_course.pictures.marks import Drawing
from mha_course.pictures.panel import FOLDED, Panel, Piece, Sizes
from mha_course.pictures.scene import Scene
from mha_lesson.refusals import MOST

WIDTH = 860  # fits the output of a notebook cell on a laptop
WIDTHS = (WIDTH, 620, 310)  # a saved page is laid out for: a laptop, a tablet, a phone
SCREEN = 404  # with headline, controls and sentence it takes 560 px of a laptop's screen


_SIZES = (
    Sizes(27, 160, 20, 24),
    Sizes(22, 130, 18, 22),
    Sizes(18, 115, 16, 20),
    Sizes(15, 104, 14, 19),
    Sizes(13, 96, 12, 18),
    Sizes(11.5, 88, 12, 18),
    Sizes(10, 80, 10, 17),
    Sizes(8, 72, 8, 17),
    Sizes(6, 64, 8, 17),
    Sizes(6, 56, 6, 16),
)


_Most = tuple[int, int]  # panels in a row: with plots among them, and of heatmaps alone
_ALL: _Most = (MOST, MOST)


def draw(scene: Scene, width: float = WIDTH, height: float = math.inf) -> Drawing:
    """Lays the panels out in rows no wider than `width`, one colour bar where all share a scale.

    Cells and plots shrink until the drawing is no higher than `height`, if they can.
    """
    return _draw_scene(scene, width, *_fitting(_sized(scene), width, height))


def size(scene: Scene, width: float = WIDTH, height: float = math.inf) -> tuple[float, float]:
    """How wide and how high `draw` makes it."""
    return _size(_sized(scene), width, height)


@lru_cache(4096)
def _size(sized: _Sized, width: float, height: float) -> tuple[float, float]:
    drawn = draw(sized.thing, width, height)
    return drawn.width, drawn.height


@lru_cache(4096)
def _fitting(sized: _Sized, width: float, height: float) -> tuple[Sizes, _Most]:
    """The largest sizes, and the most panels in a row, with which a scene fits."""
    scene: Scene = sized.thing
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
class _Sized:
    """Something to be measured: all that have the same key take the same space."""

    key: Hashable
    thing: Any = field(compare=False)


def _sized(scene: Scene) -> _Sized:
    keys = tuple(tuple(panel.size_key for panel in row) for row in scene.panels)
    return _Sized((keys, same_row_labels(scene.panels)), scene)


def same_row_labels(panels: Sequence[Sequence[Panel]]) -> Hashable:
    """Which panels have the same row labels: neighbours that do show them once."""
    numbers: dict[Hashable, int] = {}
    labels = [panel.axis_labels("rows") for row in panels for panel in row]
    return tuple(numbers.setdefault(rows, len(numbers)) for rows in labels if rows is not None)


def _draw_scene(scene: Scene, width: float, sizes: Sizes, most: _Most) -> Drawing:
    drawing = Drawing()
    top = 0.0
    bar = shared_bar(scene)
    shared = bar is not None and len(scene.flat()) > 1
    rows = [part for row in scene.panels for part in _folded(row, most)]
    order = {id(panel): i for i, panel in enumerate(scene.flat())}
    if bar is not None and shared:
        first = next(
            i
            for i, row in enumerate(rows)
            if any(p.cell_rows for panel in row for p in panel.flat())
        )
        if first:
            drawing.paste(draw_rows(rows[:first], width, width, sizes, False, order), 0, top)
            top, rows = drawing.height + sizes.gap, rows[first:]
        key = bar.colour_bar(any(p.blocked.any() for p in _scaled(scene)))
        drawing.paste(key, 0, top)
        top += 34
    drawing.paste(draw_rows(rows, width, width, sizes, not shared, order), 0, top)
    drawing.width = max(drawing.width, drawing.edge)
    return drawing


def draw_rows(
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
                    and not (
                        r + 1 < len(grid)
                        and c < len(grid[r + 1])
                        and _same(panel, grid[r + 1][c], "columns")
                    ),
                    bar=bars,
                    page=page,
                    sizes=sizes,
                    order=order,
                )
                for c, panel in enumerate(row)
            ]
            for r, row in enumerate(grid)
        ]
        drawn, lefts = _fit(pieces, width)
        for row, ones in zip(pieces, drawn, strict=True):
            top += sizes.gap if drawing.parts else 0
            above = max(piece.panel.above(piece) for piece in row)
            for piece, one, x in zip(row, ones, lefts, strict=False):
                y = round(top + above - piece.panel.above(piece))
                drawing.paste(one, x, y, order.get(id(piece.panel)))
            top = drawing.height
    return drawing


def _grids(rows: Sequence[tuple[Panel, ...]], alone: bool) -> list[list[tuple[Panel, ...]]]:
    """Runs of rows that stand in columns: as many panels in each, the last of heatmaps fewer.

    On a narrow page a plot stands `alone`: no other one's labels take its space.
    """
    grids: list[list[tuple[Panel, ...]]] = []
    for row in rows:
        before = grids[-1][-1] if grids else ()
        maps = all(panel.cell_rows for panel in (*before, *row))
        free = not all(panel.aligned for panel in row) or (alone and len(row) == 1 and not maps)
        fits = (len(row) == len(before) and not free) or (maps and len(row) < len(before))
        if grids and fits and len({*map(len, grids[-1])}) == 1:
            grids[-1].append(row)
        else:
            grids.append([row])
    return grids


def _scaled(scene: Scene) -> list[Heatmap]:
    return [p for p in scene.flat() if isinstance(p, Heatmap) and not p.mask]


def _folded(row: tuple[Panel, ...], most: _Most) -> list[tuple[Panel, ...]]:
    """A row as it is, or as several of at most so many panels, where the page is narrow."""
    fits = most[all(panel.cell_rows for panel in row)]
    if most != _ALL:
        fits = min(fits, *(panel.most_in_row for panel in row))
    each = math.ceil(len(row) / math.ceil(len(row) / fits))
    return [row[i : i + each] for i in range(0, len(row), each)]


def shared_bar(scene: Scene) -> Heatmap | None:
    """One heatmap for all, where all heatmaps of a scene share scale and quantity."""
    maps = _scaled(scene)
    scales = {(p.limits, p.colours, p.quantity) for p in maps}
    return maps[0] if len(scales) == 1 else None


def _same(panel: Panel, other: Panel, axis: Literal["rows", "columns"]) -> bool:
    """Whether the labels of another panel serve this one too."""
    labels = panel.axis_labels(axis)
    return labels is not None and labels == other.axis_labels(axis)


def _fit(grid: list[list[Piece]], width: float) -> tuple[list[list[Drawing]], list[float]]:
    """Shares the width among the columns; gives the drawings and the left end of each column."""
    for column in _columns(grid):
        left, right = (max(side) for side in zip(*(p.panel.sides(p) for p in column), strict=True))
        for piece in column:
            piece.left, piece.right = left, right
    key = tuple(
        tuple((p.panel.size_key, p.rows, p.columns, p.bar, p.page, p.sizes) for p in row)
        for row in grid
    )
    drawings, widths = _drawn(grid, _shares(_Sized(key, grid), width))
    lefts = [0.0]
    for w, gap in zip(widths, _gaps(grid)[1:], strict=False):
        lefts.append(float(round(lefts[-1] + w + gap)))
    return drawings, lefts


@lru_cache(16384)
def _shares(sized: _Sized, width: float) -> tuple[float, ...]:
    """The width of each column's plots, by the panels' `wide`; what is left goes to full ones."""
    grid: list[list[Piece]] = sized.thing
    columns, gaps = _columns(grid), _gaps(grid)
    sides = [column[0].left + column[0].right for column in columns]
    space = width - sum(gaps) - sum(sides) - 4  # labels under the last cells may be wider
    weights = [max(p.panel.wide for p in column) for column in columns]
    shares = [max(24.0, space * w / sum(weights)) for w in weights]
    _, widths = _drawn(grid, shares)
    full = [w - b > s - 12 for w, b, s in zip(widths, sides, shares, strict=True)]
    slack = width - sum(gaps) - sum(widths)
    if slack > 24 and any(full) and not all(full):
        more = slack / sum(w for w, f in zip(weights, full, strict=True) if f)
        larger = [s + more * w * f for s, w, f in zip(shares, weights, full, strict=True)]
        _, wider = _drawn(grid, larger)
        if sum(gaps) + sum(wider) <= width:  # else labels and titles need too much
            shares, widths = larger, wider
    over = sum(gaps) + sum(widths) - width
    if 0 < over < max(shares) - 60:  # for labels and titles: the widest plot gets narrower
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
    """The drawings with so much space for each column, and how wide the columns are."""
    for row in grid:
        _align(row, shares)
    drawings = [[p.panel.draw(p, s) for p, s in zip(row, shares, strict=False)] for row in grid]
    return drawings, [
        max(row[c].width for row in drawings if c < len(row)) for c in range(len(shares))
    ]


def _align(row: list[Piece], shares: Sequence[float]) -> None:
    """Heatmaps of as many rows, side by side, have rows of one height."""
    for piece in row:
        piece.cell = 0.0
    sized = [(p, p.panel.cell_height(p, share)) for p, share in zip(row, shares, strict=False)]
    for piece in row:
        rows = piece.panel.cell_rows
        piece.cell = max((h for p, h in sized if p.panel.cell_rows == rows), default=0.0)
