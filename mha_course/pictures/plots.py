"""How maps, ribbons, bars, lines and arrows draw themselves in the room that they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np

from mha_course.pictures.colours import LOW, ROLES, head_colour
from mha_course.pictures.fields import Panel
from mha_course.pictures.marks import (
    BODY,
    PLAIN,
    Arrows,
    Cells,
    ColourBar,
    Dot,
    Drawing,
    Path,
    Rect,
    Ribbons,
    Text,
    short,
    text_width,
    widest_of,
)
from mha_course.pictures.numerals import number, ticks
from mha_course.pictures.panels import Bars, Curve, Heatmap, Stack, Tiles, Walk, Words

FOLDED = 700  # a narrower page stacks panels and is scrolled: no limit to its height
PHONE = 400  # here two maps stand side by side
GAP = 28
BAR = 110.0  # a colour bar
PLAINS = (PLAIN, "#CF5A08", "#009E73", "#CC79A7", "#808080", "#E69F00", "#56B4E9", "#8A6D00")


@dataclass(frozen=True)
class Sizes:
    """How large things may be at most: a cell, the height of a plot, the room between rows."""

    cell: float
    plot: float
    gap: float
    line: float  # of a table


@dataclass(eq=False)
class Piece:
    """A panel to be drawn: with its own labels and colour bar, or served by a neighbour's."""

    panel: Panel
    rows: bool
    columns: bool
    bar: bool
    page: float  # how wide the whole page is
    sizes: Sizes
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
        own_bar = isinstance(p, Heatmap) and (self.bar or p.mask) and not numbers_only(p)
        return (22.0 if p.bare else 26.0) * bool(p.title) + 26.0 * own_bar

    @property
    def sides(self) -> tuple[float, float]:
        """The width that labels take at the left and at the right of the plot."""
        p = self.panel
        if isinstance(p, Heatmap):
            if not self.rows:
                return 0.0, 0.0
            labels = widest_of(bare(p.rows, p.row_name))
            return math.ceil(labels) + 10.0 + (20 if p.row_name else 0), 0.0
        if isinstance(p, Bars):
            side = text_width(p.reference[1]) + 8 if p.reference else 0.0
            return widest_of(scale_of(p.limits, p.log)[1]) + 12 + (20 if p.name else 0), side
        if isinstance(p, Curve):
            beside = len(p.lines) > 1 and not self.narrow
            names = widest_of(list(p.lines)) + 26 if beside else 14.0
            return widest_of(scale_of(p.limits, p.log_y)[1]) + 12 + (20 if p.y_name else 0), names
        if isinstance(p, Tiles):
            labels = math.ceil(widest_of(p.rows)) + 10.0 if p.rows else 0.0
            return labels + (20 if p.row_name else 0), 0.0
        return 0.0, 0.0

    @property
    def gap(self) -> float:
        """The room before it, in a row of panels."""
        return 12.0 if isinstance(self.panel, Heatmap) and not self.rows else GAP


@lru_cache(512)
def scale_of(limits: tuple[float, float], log: bool) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The ticks of an axis and what they say: one number of decimals, but 0 is "0"."""
    at = ticks(*limits, log)
    decimals = None
    if not log and any(t % 1 for t in at):
        decimals = next((d for d in (1, 2, 3, 4) if all(round(t, d) == t for t in at)), None)
    return at, tuple(number(t, decimals if t else None) for t in at)


def write_title(drawing: Drawing, panel: Panel) -> float:
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


def numbers_only(panel: Heatmap) -> bool:
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


def colour_bar(panel: Heatmap, blocked: bool, length: float = BAR) -> Drawing:
    drawing = Drawing(height=20)
    start, end = panel.ends()
    x = 0.0
    for label in (panel.quantity, start):
        drawing.add(Text(x, 10, label))
        x += text_width(label) + 8
    by_row = "row’s largest" if panel.by_row else ""
    drawing.add(ColourBar(x, 4, length, 12, panel.colours, end, by_row))
    drawing.width = x + length + 8 + text_width(end)
    if blocked:
        drawing.paste(_boxes(("blocked", True)), drawing.width + 18, 0)
    return drawing


def whole(size: float) -> float:
    """A cell's size in whole pixels, or half ones where it is small: its edges are sharp."""
    return float(math.floor(size)) if size >= 8 else max(1.0, math.floor(size * 2) / 2)


def numbered(panel: Heatmap, room: float) -> float:
    """The width that a cell needs for its number, or 0 where none is written."""
    numbers = panel.values.size <= 64 if panel.numbers is None else panel.numbers
    if not numbers:
        return 0.0
    words = [panel._number(v) for v in panel.values[~panel.blocked]]
    said = widest_of([*words, "1.00"])  # the widest weight, lest the cells change with the values
    return said if room / panel.values.shape[1] >= said + 6 else 0.0


def cell_size(piece: Piece, room: float) -> tuple[float, float]:
    panel, most = piece.panel, piece.sizes.cell
    assert isinstance(panel, Heatmap)
    n_rows, n_columns = panel.values.shape
    said = numbered(panel, room)
    width = whole(min(max(46.0, said + 14) if said else 27.0, room / n_columns))
    if said:
        return width, 32.0 if most >= 27 else max(most, 16.0)
    if panel.bare:  # a thumbnail of a size that hardly depends on its number of cells
        width = whole(min(room / n_columns, 3.6 * most / n_columns))
        return width, width
    low = 15.0 if n_rows <= 8 else 11.5 if piece.rows else 0.0  # so high that labels fit
    if piece.page < PHONE and room < piece.page / 2:  # rather fewer labels than a long way down
        low = 0.0
    height = piece.cell or min(max(width, low), most)
    return min(width, whole(1.7 * height)), height


def heatmap(panel: Heatmap, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    n_rows, n_columns = panel.values.shape
    top, left = write_title(drawing, panel), piece.left
    if piece.title > top:
        key = _boxes(("True", True), ("False", False)) if panel.mask else None
        length = 44.0 if piece.narrow else BAR
        drawing.paste(key or colour_bar(panel, bool(panel.blocked.any()), length), 0, top)
    top = piece.title
    width, height = cell_size(piece, room)
    drawing.add(Cells(left, top, width, height, panel, numbered(panel, room) > 0))
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
                for i, label in enumerate(bare(panel.rows, panel.row_name))
                if i % every == 0 and label
            )
        )
        named = name_rows(drawing, panel.row_name, top, bottom)
    if piece.columns:
        middle = left + n_columns * width / 2
        labels = bare(panel.columns, panel.column_name)
        bottom = column_labels(drawing, labels, left, bottom, width)
        if panel.column_name:
            drawing.add(Text(middle, bottom + 10, panel.column_name, BODY, "center"))
            half = text_width(panel.column_name, BODY) / 2
            right = max(right, middle + half)
            bottom += 20
    drawing.width, drawing.height = max(right, drawing.width), max(bottom, named)
    return drawing


def words(panel: Words, piece: Piece, room: float) -> Drawing:
    drawing, weights = Drawing(), panel.weights
    top = piece.title if write_title(drawing, panel) else 0.0
    sides = [[short(t) for t in labels] for labels in (weights.rows, weights.columns)]
    named = max(text_width(name, BODY) for name in (weights.row_name, weights.column_name))
    margin = math.ceil(max(named, widest_of([*sides[0], *sides[1]]))) + 8.0
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


def name_rows(drawing: Drawing, name: str, top: float, bottom: float) -> float:
    """The turned name of an axis, in the middle, or from the top on; gives the y of its end."""
    if not name:
        return 0.0
    half = text_width(name, BODY) / 2
    middle = max((top + bottom) / 2, top + half)
    drawing.add(_turned(name, 8, middle))
    return middle + half


def bare(labels: Sequence[str], name: str) -> list[str]:
    """Labels without the name of their axis, which stands beside them."""
    return [short(label.removeprefix(f"{name} ")) for label in labels]


def _turned(text: str, x: float, y: float) -> Text:
    return Text(x, y, text, BODY, "center", turned=True)


def column_labels(
    drawing: Drawing,
    labels: Sequence[str],
    left: float,
    y: float,
    width: float,
    at: Callable[[int], float] | None = None,
) -> float:
    """Labels under columns, turned where they are too wide; gives the y below them."""
    labels = [short(t) for t in labels]
    longest = widest_of(labels)
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
    drawing.height = max(drawing.height, name_rows(drawing, name, *height))


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


def bars(panel: Bars, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    n_series, n = panel.values.shape
    low, high = panel.limits
    top = write_title(drawing, panel)
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
    slot = min(max(wanted, widest_of([short(t) for t in panel.labels]) + 8), room / n)
    bar = min(44.0 * n_series, slot * 0.76) / n_series
    pitch = slot if n_series == 1 else bar  # from number to number
    turned = _bar_numbers(panel, pitch)[2]
    farthest = [number(v, panel.decimals if abs(v) < 10 else 0) for v in panel.limits]
    deepest = widest_of(farthest)  # so that nothing jumps
    deep = max(widest, deepest) if turned else 10.0  # of a number
    top += deep + 8
    bottom = top + tall
    right = left + n * slot

    up = _share(low, high, panel.log)

    def y(value: float) -> float:
        return bottom - tall * up(value)

    _y_axis(drawing, scale_of(panel.limits, panel.log), y, (left, right), panel.name, (top, bottom))
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
    bottom = column_labels(drawing, panel.labels, left, max(bottom, under), slot)
    drawing.height = max(drawing.height, bottom)
    drawing.width = max(drawing.width, right + piece.right)
    return drawing


def _bar_numbers(panel: Bars, pitch: float) -> tuple[list[list[str]], float, bool]:
    """What stands at bars, one every `pitch`, with one decimal less where that makes it fit; the
    widest of it; and whether it is too wide.
    """
    said, widest, level = crowd(panel)
    if panel.decimals is not None and panel.decimals > 1 and _too_wide(widest, level, pitch):
        shorter = crowd(panel, 1)
        if not _too_wide(*shorter[1:], pitch):
            said, widest, level = shorter
    return said, widest, _too_wide(widest, level, pitch)


def _too_wide(widest: float, level: float, pitch: float) -> bool:
    """Whether numbers lie on the bar beside their own, or on each other."""
    return widest > 1.2 * pitch or level + 1 > pitch


def crowd(panel: Bars, fewer: int = 0) -> tuple[list[list[str]], float, float]:
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


def curve(panel: Curve, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = write_title(drawing, panel) + 8
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

    scale = scale_of(panel.limits, panel.log_y)
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
        seen = np.flatnonzero(seen_of(panel, values))
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


def seen_of(panel: Curve, values: np.ndarray) -> np.ndarray:
    """Which points of a line can be drawn."""
    return np.isfinite(values) & ((values > 0) | (not panel.log_y))


def walk(panel: Walk, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = write_title(drawing, panel) + 4
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
