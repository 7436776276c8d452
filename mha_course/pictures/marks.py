"""What a picture is drawn of: marks at CSS pixels, and about how wide a text is.

Both renderers draw these few kinds of marks and nothing else, so paper and screen agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from mha_course.pictures.colours import INK, head_colour
from mha_course.pictures.panels import Heatmap, Tiles, Walk, Words

SMALL, BODY = 12, 13
BREAK, LETTER = 8.0, 7.4  # the gap between blocks of tiles; the width of a letter in a tile
PLAIN = "#2878CC"  # bars and lines that belong to no head


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
        x, y = self.x + column * self.width, self.y + row * self.height
        if isinstance(self.panel, Tiles):
            x += breaks_before(column, self.panel.break_columns)
            y += breaks_before(row, self.panel.break_rows)
        return x, y


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

    @property
    def _corners(self) -> list[tuple[float, float]]:
        return [(self.x + a * self.unit, self.y - b * self.unit)
                for a, b in self.panel.corners().tolist()]  # fmt: skip

    def parts(self) -> Iterator[tuple[Path, Path]]:
        """Each arrow and its tip, the dashed sum first; of no length, still as many."""
        corners = self._corners
        yield arrowhead((corners[0], corners[-1]), INK, dashed=True)
        for i, line in enumerate(pairwise(corners)):
            yield arrowhead(line, head_colour(i), dashed=False)

    def numbers(self) -> Iterator[Text]:
        """The head's number beside each arrow that has room for one, rather not on the sum."""
        for i, ((a, b), (c, d)) in enumerate(pairwise(self._corners)):
            if (far := math.hypot(c - a, d - b)) >= 24:
                beside = math.copysign(11 / far, self.y - (b + d) / 2)
                x, y = (a + c) / 2 + (d - b) * beside, (b + d) / 2 - (c - a) * beside
                yield Text(x, y, str(i), align="center")


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


def breaks_before(index: int, every: int) -> float:
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


def widest_of(texts: Sequence[str], size: int = SMALL) -> float:
    return max((text_width(t, size) for t in texts), default=0.0)


def short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def arrow(
    drawing: Drawing, points: Sequence[tuple[float, float]], colour: str, dashed: bool = False
) -> None:
    """A thin line through the points, and the two strokes of its tip."""
    (x0, y0), (x, y) = points[-2:]
    drawing.add(Path(tuple(points), colour, dashed=dashed, width=1.5))
    far = math.hypot(x - x0, y - y0)
    dx, dy = 5 * (x - x0) / far, 5 * (y - y0) / far
    for turn in (-0.7, 0.7):
        drawing.add(Path(((x - dx + turn * dy, y - dy - turn * dx), (x, y)), colour, width=1.5))


def arrowhead(
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
