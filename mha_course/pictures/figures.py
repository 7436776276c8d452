"""Scenes as still pictures, drawn with matplotlib: for notebooks without a kernel, and for paper.

A picture lies on a white card with dark ink and a thin border, so one serves the light and the
dark theme. The bytes depend on the panels alone.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from functools import singledispatch
from html import escape
from itertools import chain
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, PathPatch, Polygon, Rectangle
from matplotlib.path import Path as Line
from PIL import Image

from mha_course.base.prose import scripts
from mha_course.pictures import colours, marks
from mha_course.pictures.colours import MAPS, head_colour, text_on
from mha_course.pictures.heatmap import HeatmapCells
from mha_course.pictures.layout import draw
from mha_course.pictures.marks import Cells, ColourBar, Dot, Drawing, Path, Rect, Text
from mha_course.pictures.scene import Scene, scene_of
from mha_course.pictures.table import Table
from mha_course.pictures.tiles import TileCells
from mha_course.pictures.walk import Arrows
from mha_course.pictures.words import Ribbons, Words

__all__ = ["html", "png", "show"]

PIXELS_PER_INCH = 96  # CSS
DENSITY = 2  # image pixels for each CSS pixel: crisp on dense screens
STEP, GREY_STEP = 17, 25.5  # between the colours along edges, of 255
FINE = 4.0  # narrower cells have 32 colours, not 256: a third of the bytes, and no eye sees it
MARGIN = 12  # CSS pixels around the drawing
CARD, INK, EDGE = "#FFFFFF", "#2B2B2B", "#C9CDD2"
MOST_ROWS = 40  # of a picture's tables, before they are told panel by panel
# JupyterLab says on its page whether it is dark; it would align tables at the right.
DIMMED = "<style>[data-jp-theme-light=false] figure>img{filter:brightness(.8)}</style>"
LEFT = "<style>:is(figure>table,figure+details) *{text-align:left!important}</style>"


class Still:
    """What `show` puts under a cell: a picture and its caption; in words where there is no HTML."""

    def __init__(self, thing: Any) -> None:
        self.scene = scene_of(thing)

    def __repr__(self) -> str:
        return self.scene.alt

    def _repr_html_(self) -> str:
        return html(self.scene)


def show(thing: Any) -> Still:
    """A panel, panels or a scene, as the last line of a cell."""
    return Still(thing)


def html(thing: Any, height: float = math.inf) -> str:
    """A `<figure>` with the picture inside, alt text and caption; nothing to fetch.

    Tables alone are tables of HTML. `height` is what the picture may take, where it can.
    """
    scene = scene_of(thing)
    tables = [panel for panel in scene.flat() if isinstance(panel, Table)]
    if len(tables) == len(scene.flat()):
        html = "".join(_table(t.title, *t.table(), t.strong) for t in tables)
        return f'<figure style="margin:0.6em 0">{LEFT}{html}{_caption(scene)}</figure>'
    drawing = draw(scene, height=height)
    # WebP, lossless: every browser shows it, and it takes two thirds of PNG's bytes. The quality is
    # the effort: with 100 the file is 1.5% smaller, and takes twice as long to write.
    image = _bytes(drawing, "webp", lossless=True, quality=90, method=4)
    source = base64.b64encode(image).decode()
    return (
        f'<figure style="margin:0.6em 0">{DIMMED}<img src="data:image/webp;base64,{source}" '
        f'alt="{escape(scene.alt)}" width="{_size(drawing)[0]}" '
        f'style="max-width:100%;height:auto">{_caption(scene)}</figure>{_numbers(scene)}'
    )


def _numbers(scene: Scene) -> str:
    """A folded table for each panel; where that would be long, one with a row for each."""
    panels = scene.flat()
    tabled = [p for p in panels if not (isinstance(p, Words) and p.weights in panels)]
    tables = [(p.title, *p.table()) for p in tabled]
    if sum(len(rows) for _, _, rows in tables) > MOST_ROWS:
        alts = [
            (p.title, p.peak[1] if p.peak else p.alt.split(": ", 1)[1]) for p in tabled if p.title
        ]
        tables = [("", ("panel", "what it shows"), alts)]
    html = "".join(_table(*table) for table in tables if table[2])
    return f"<details><summary>Its numbers</summary>{LEFT}{html}</details>" if html else ""


def _table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    strong: Sequence[int] = (),
) -> str:
    def row(cells: Sequence[str], tag: str, bold: bool = False) -> str:
        first, *rest = map(escape, cells)
        written = "".join(f"<{tag}>{cell}</{tag}>" for cell in rest)
        return f"<tr{' style=font-weight:bold' * bold}><th>{first}</th>{written}</tr>"

    caption = f"<caption>{escape(title)}</caption>" * bool(title)
    head = f"<thead>{row(header, 'th')}</thead>" if header else ""
    body = "".join(row(cells, "td", i in strong) for i, cells in enumerate(rows))
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"


def _caption(scene: Scene) -> str:
    return f"<figcaption>{escape(scene.caption)}</figcaption>" if scene.caption else ""


def png(thing: Any) -> bytes:
    """The picture as PNG, at two image pixels for each CSS pixel."""
    return _bytes(draw(scene_of(thing)), "png", optimize=True)


def _size(drawing: Drawing) -> tuple[int, int]:
    """Width and height in CSS pixels, whole ones: a part of one would cost the frame a line."""
    return math.ceil(drawing.width + 2 * MARGIN), math.ceil(drawing.height + 2 * MARGIN)


def _bytes(drawing: Drawing, kind: str, **options: Any) -> bytes:
    width, height = _size(drawing)
    figure = Figure(
        figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH),
        dpi=PIXELS_PER_INCH * DENSITY,
        facecolor=CARD,
        edgecolor=EDGE,
        linewidth=_points(1),
    )
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, width - MARGIN)
    axes.set_ylim(height - MARGIN, -MARGIN)
    settings: Any = {"font.family": "DejaVu Sans", "hatch.linewidth": 0.7, "text.parse_math": False}
    with matplotlib.rc_context(settings):
        for mark in drawing.marks:
            _draw(mark, axes)
        for artist in axes.get_children():  # one above the other in the order of the marks
            artist.set_zorder(1)
        canvas.draw()
    buffer = io.BytesIO()
    image = _few_edges(np.asarray(canvas.buffer_rgba()))
    if kind == "png" and image.getcolors(256):  # WebP finds a palette by itself
        image = image.quantize(dither=Image.Dither.NONE)
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _few_edges(pixels: np.ndarray) -> Image.Image:
    """The picture with fewer colours along letters and lines, which would be a third of the bytes.

    Areas, from 2 × 2 pixels of one colour on, keep theirs.
    """
    packed = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]
    beside = packed[:, 1:] == packed[:, :-1]
    even = beside[1:] & beside[:-1] & (packed[1:, 1:] == packed[:-1, 1:])
    edge = np.ones(packed.shape, bool)
    for corner in (edge[:-1, :-1], edge[:-1, 1:], edge[1:, :-1], edge[1:, 1:]):
        corner &= ~even
    seen = pixels[..., :3].copy()
    along = seen[edge]  # (n, 3)
    grey = np.ptp(along, axis=1, keepdims=True) < STEP
    seen[edge] = np.where(grey, _stepped(GREY_STEP)[along], _stepped(STEP)[along])
    return Image.fromarray(seen)


def _stepped(step: float) -> np.ndarray:
    """(256,) uint8: the nearest multiple of `step` to each level of a colour."""
    return ((np.arange(256) / step).round() * step).astype(np.uint8)


def _points(pixels: float) -> float:
    return pixels * 72 / PIXELS_PER_INCH


@singledispatch
def _draw(mark: Any, axes: Axes) -> None:
    raise TypeError(f"no way to draw a {type(mark).__name__}")


@_draw.register
def _(mark: Text, axes: Axes) -> None:
    pieces = scripts(mark.text)
    if len(pieces) > 1:
        return _scripted(mark, pieces, axes)
    hanging = mark.turned and mark.align == "right"
    axes.text(
        mark.x,
        mark.y,
        mark.text,
        fontsize=_points(mark.size),
        color=INK,
        weight="bold" if mark.bold else "normal",
        ha="center" if hanging else mark.align,
        va="top" if hanging else "center_baseline" if not mark.turned else "center",
        rotation=90 if mark.turned else 0,
    )


def _scripted(mark: Text, pieces: Sequence[tuple[str, str]], axes: Axes) -> None:
    """A text piece by piece, each on from the one before."""
    weight = "bold" if mark.bold else "normal"
    sizes = [mark.size * (marks.SCRIPT_SIZE if sign else 1) for _, sign in pieces]
    fonts = [FontProperties(family="DejaVu Sans", size=_points(s), weight=weight) for s in sizes]
    canvas: Any = axes.figure.canvas
    measure = canvas.get_renderer().get_text_width_height_descent
    wide = [
        measure(text, font, False)[0] / DENSITY
        for (text, _), font in zip(pieces, fonts, strict=True)
    ]
    before = {"left": 0.0, "center": 0.5, "right": 1.0}[mark.align] * sum(wide)
    for (text, sign), font, width in zip(pieces, fonts, wide, strict=True):
        down = marks.SHIFTS.get(sign, 0.0) * mark.size
        level = mark.x - before, mark.y + down
        x, y = (mark.x + down, mark.y + before) if mark.turned else level
        turn: Any = {"rotation": 90 if mark.turned else 0, "rotation_mode": "anchor"}
        axes.text(x, y, text, fontproperties=font, color=INK, va="center_baseline", **turn)
        before -= width


@_draw.register
def _(mark: Rect, axes: Axes) -> None:
    corner, size = (mark.x, mark.y), (mark.width, mark.height)
    if mark.hollow:
        _frame(axes, corner, size, mark.colour, 3, within=1.5)
    else:
        axes.add_patch(Rectangle(corner, *size, fc=mark.colour, lw=0))


def _frame(
    axes: Axes, corner: Any, size: Any, colour: str, width: float, within: float = 0, **style: Any
) -> None:
    """The edge of a rectangle, so many pixels wide."""
    (x, y), (w, h) = [v + within for v in corner], [v - 2 * within for v in size]
    axes.add_patch(Rectangle((x, y), w, h, fc="none", ec=colour, lw=_points(width), **style))


def _write_in(axes: Axes, mark: Cells, corner: Any, text: str, colour: str) -> None:
    """A text in the middle of a cell."""
    x, y = corner[0] + (mark.width - mark.gap) / 2, corner[1] + (mark.height - mark.gap) / 2
    axes.text(
        x, y, text, fontsize=_points(marks.SIZE), color=colour, ha="center", va="center_baseline"
    )


@_draw.register
def _(mark: Path, axes: Axes) -> None:
    if mark.filled:
        axes.add_patch(Polygon(mark.points, fc=mark.colour, lw=0))
        return
    axes.plot(
        *np.array(mark.points).T,
        color=mark.colour or INK,
        alpha=1 if mark.colour else 0.6 if mark.dashed else 0.28,
        lw=_points(mark.width),
        ls=(3.5 * (mark.dashed - 1), (4, 3)) if mark.dashed else "-",
        solid_capstyle="round" if mark.colour else "butt",
    )


@_draw.register
def _(mark: Dot, axes: Axes) -> None:
    if mark.radius:
        axes.add_patch(Circle((mark.x, mark.y), mark.radius, fc=mark.colour, lw=0))


@_draw.register
def _(mark: ColourBar, axes: Axes) -> None:
    ramp = MAPS[mark.colours][:: 256 // 64] / 255
    step = mark.width / len(ramp)
    corners = np.array([(mark.x + i * step, mark.y) for i in range(len(ramp))])
    axes.add_collection(_boxes(corners, step, mark.height, facecolors=ramp, antialiased=False))
    if len(colours.ENDS[mark.colours]) > 1:  # as in the cells below zero: their sign, in grey too
        half = np.array([(mark.x, mark.y + (mark.height - 1) / 2)])
        axes.add_collection(_boxes(half, mark.width / 2, 1, facecolors=CARD, antialiased=False))
    _draw(mark.label(), axes)


@_draw.register
def _(mark: Ribbons, axes: Axes) -> None:
    x, middle, right = mark.x, mark.x + mark.width / 2, mark.x + mark.width
    for row, column, weight in mark.panel.ribbons:
        start, end = mark.ends(row, column)
        curve = Line([(x, start), (middle, start), (middle, end), (right, end)], [1, 4, 4, 4])
        strong = mark.panel.row is None or row == mark.panel.row
        wide = _points(weight * (mark.pitch - 2))
        alpha = colours.RIBBON if strong else colours.RIBBON_FAR
        axes.add_patch(PathPatch(curve, fc="none", ec=mark.colour, lw=wide, alpha=alpha))


@_draw.register
def _(mark: Arrows, axes: Axes) -> None:
    for part in (*chain(*mark.parts()), *mark.numbers()):
        _draw(part, axes)


@_draw.register
def _(mark: HeatmapCells, axes: Axes) -> None:
    panel, gap = mark.panel, mark.gap
    table = MAPS[panel.colours]
    table = colours.on_plate(table) if mark.numbers else table
    levels, size = panel.levels(), (mark.width - gap, mark.height - gap)
    if mark.width < FINE:
        levels = levels // 8 * 8 + 4
    n_rows, n_columns = levels.shape
    x, y = [mark.at(0, c)[0] for c in range(n_columns)], [mark.at(r, 0)[1] for r in range(n_rows)]
    corners = np.stack(np.meshgrid(x, y), axis=-1)  # (rows, columns, 2)
    unknown, blocked = np.isnan(panel.values), panel.blocked
    framed = ~blocked & (unknown | panel.mask)
    opened = ~blocked & ~framed
    for corner in corners[framed]:
        _frame(axes, corner, size, INK, 0.8)
    if opened.any():
        inks = table[levels[opened]] / 255
        axes.add_collection(_boxes(corners[opened], *size, facecolors=inks, antialiased=gap > 0))
    struck = not mark.numbers and size[1] >= marks.STRUCK
    if struck and (below := opened & (panel.values < 0)).any():
        through = corners[below] + (0, (size[1] - 1) / 2)
        axes.add_collection(_boxes(through, size[0], 1, facecolors=CARD, antialiased=False))
    if blocked.any():
        hatched = _boxes(corners[blocked], *size, facecolors="none", edgecolors=INK + "98")
        hatched.set_hatch("//////")
        axes.add_collection(hatched)
    for r, c in np.argwhere(~blocked & (mark.numbers | (unknown & (mark.width >= 24)))):
        on_colour = mark.numbers and not unknown[r, c]
        colour = text_on(tuple(table[levels[r, c]][:3])) if on_colour else INK
        _write_in(axes, mark, corners[r, c], panel._number(panel.values[r, c]), colour)
    for r, c in panel.marks:
        for wide, colour in ((4, CARD), (2, INK)):
            _frame(axes, mark.at(r, c), size, colour, wide)


def _boxes(corners: np.ndarray, width: float, height: float, **style: Any) -> PolyCollection:
    """Boxes of one size, of which the top left corners (n, 2) are given."""
    sides = np.array([(0, 0), (width, 0), (width, height), (0, height)])
    around: Any = corners[:, None] + sides  # (n, 4, 2)
    return PolyCollection(around, lw=0, **style)


@_draw.register
def _(mark: TileCells, axes: Axes) -> None:
    panel, size = mark.panel, (mark.width - mark.gap, mark.height - mark.gap)
    for r, row in enumerate(panel.labels):
        for c, text in enumerate(row):
            if text is None:
                continue
            corner, head = mark.at(r, c), int(panel.heads[r, c])
            fill = head_colour(head) if head >= 0 else colours.TILE
            axes.add_patch(Rectangle(corner, *size, fc=fill, lw=0))
            if panel.wrong[r, c]:
                _frame(axes, corner, size, colours.WRONG, 1.6, within=0.8, ls=(0, (2, 1.5)))
            if text and mark.numbers:
                _write_in(axes, mark, corner, text, text_on(fill))
