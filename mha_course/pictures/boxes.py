"""How tiles, tables and diagrams draw themselves in the room that they are given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mha_course.pictures.colours import INK, ROLES, head_colour
from mha_course.pictures.marks import (
    BODY,
    LETTER,
    Cells,
    Drawing,
    Path,
    Rect,
    Text,
    arrow,
    breaks_before,
    text_width,
    widest_of,
)
from mha_course.pictures.panels import Box, Diagram, Table, Tiles
from mha_course.pictures.plots import Piece, column_labels, name_rows, whole, write_title


def tiles(panel: Tiles, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    top, left = write_title(drawing, panel), piece.left
    n_rows, n_columns = len(panel.labels), len(panel.labels[0])
    wanted = widest_of([t for row in panel.labels for t in row if t], BODY) + 12
    breaks = breaks_before(n_columns - 1, panel.break_columns)
    longest = max(len(text or "") for row in panel.labels for text in row)
    legible, most = math.ceil(LETTER * longest) + 4.0, (piece.page - left - breaks) / n_columns
    along = piece.narrow and legible < 2.4 * most  # rather moved along than without its letters
    least = legible if along else 3.0
    width = whole(max(3.0, least, min(max(28.0, wanted), (room - breaks) / n_columns)))
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
    named = name_rows(drawing, panel.row_name, top, bottom)
    if panel.columns:
        bottom = column_labels(
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


def table(panel: Table, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = write_title(drawing, panel)
    columns = list(zip(*([panel.header] if panel.header else []), *panel.rows, strict=True))
    bold = 1.12 if panel.strong else 1.0  # which row it is may change
    widths = [
        max(1.12 * text_width(column[0], BODY), bold * widest_of(column[1:], BODY)) + 18
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


def diagram(panel: Diagram, piece: Piece, room: float) -> Drawing:
    drawing = Drawing()
    top = write_title(drawing, panel) + 4
    height, pitch, deep = 42.0, 62.0, 3.0  # of a box, from row to row, from head to head
    boxes = panel.boxes.values()
    side = 24.0 + 14 * len(panel.around) if panel.around else 0.0
    notes = widest_of(panel.notes) + 30 if panel.notes else 0.0
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
        x = side + panel.meet(upper, lower) * width
        above, below = panel.boxes[upper], panel.boxes[lower]
        start = frame(above)[1] + height
        end = frame(below)[1] - deep * max(0, below.heads - 1)
        arrow(drawing, ((x, start), (x, end)), ROLES.get(above.role, INK))
    for i, (upper, lower) in enumerate(panel.around):
        (x, y, _), (x2, y2, _) = frame(panel.boxes[upper]), frame(panel.boxes[lower])
        left = side - 20.0 - 14 * i
        points = ((x, y), (left, y), (left, y2), (x2, y2))
        way = tuple((px, py + height / 2) for px, py in points)
        arrow(drawing, way, ROLES.get(panel.boxes[upper].role, INK), dashed=True)
    return drawing
