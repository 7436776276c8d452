"""What a picture is drawn of: marks at CSS pixels, and about how wide a text is.

Both renderers draw these few kinds of marks, and those that a panel's own file adds, and nothing
else: paper and screen agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from mha_course.base.prose import scripts

SIZE = 13  # of a text in CSS pixels: that of the captions
_STEPS = [i / 24 for i in range(25)]
# How far along a ribbon's way each point lies, and how far down: level at both ends.
WAY = [(1.5 * t - 1.5 * t * t + t**3, 3 * t * t - 2 * t**3) for t in _STEPS]
PLAIN = "#2878CC"  # bars and lines that belong to no head
STRUCK = 7.0  # as high is a cell, at least, that a line strikes where it is below zero


@dataclass(frozen=True)
class Text:
    kind: ClassVar[str] = "text"
    x: float
    y: float  # of its middle; of its top where it is turned and not centred
    text: str
    align: str = "left"  # left, center, right
    turned: bool = False  # a quarter turn, read from below
    bold: bool = False
    size: int = SIZE


@dataclass(frozen=True)
class Cell(Text):
    """A text of a table; those of row −1 are its header."""

    row: int = 0
    column: int = 0
    panel: int = 0


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; one that says something can be pointed at."""

    kind: ClassVar[str] = "rect"
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
    kind: ClassVar[str] = "path"
    points: tuple[tuple[float, float], ...]
    colour: str = ""  # "" is the colour of text, faint
    dashed: int = 0  # 2 has its strokes where 1 has gaps: lines on each other are both seen
    width: float = 2.0
    filled: bool = False  # the area that it surrounds, not a line


@dataclass(frozen=True)
class Dot:
    """A point of a curve, that says something."""

    kind: ClassVar[str] = "dot"
    x: float
    y: float
    colour: str
    radius: float = 0.0  # 0: to point at, not to be seen
    says: str = ""
    panel: int = 0


@dataclass(frozen=True, eq=False)
class OwnMark:
    """A mark that only one kind of panel has, drawn of its values."""

    x: float
    y: float

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        """The mark as a browser takes it; `put` keeps an array and gives its number."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Cells(OwnMark):
    """A grid of cells, from (x, y) on."""

    width: float  # of one cell
    height: float

    @property
    def gap(self) -> float:
        """The gap between two cells."""
        raise NotImplementedError

    def at(self, row: int, column: int) -> tuple[float, float]:
        """The top left corner of a cell."""
        return self.x + column * self.width, self.y + row * self.height

    def grid(self) -> dict[str, float]:
        return {"x": self.x, "y": self.y, "w": self.width, "h": self.height, "gap": self.gap}


@dataclass(frozen=True)
class ColourBar:
    kind: ClassVar[str] = "bar"
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


Mark = Text | Rect | Path | Dot | ColourBar | OwnMark


@dataclass(eq=False)
class Drawing:
    """Marks and other drawings, and the space they need."""

    width: float = 0.0
    height: float = 0.0
    edge: float = 0.0  # where turned texts end, which need no space of their own
    parts: list[Mark | _Pasted] = field(default_factory=list)

    @property
    def marks(self) -> list[Mark]:
        """All marks, each at its position in the whole."""
        marks: list[Mark] = []
        self._collect(marks, 0.0, 0.0, None)
        return marks

    def add(self, *marks: Mark) -> None:
        self.parts.extend(marks)
        for mark in marks:
            if isinstance(mark, Text) and mark.turned:
                self.edge = max(self.edge, mark.x + SIZE / 2)

    def paste(self, other: Drawing, x: float, y: float, panel: int | None = None) -> None:
        self.parts.append(_Pasted(other, x, y, panel))
        self.width = max(self.width, x + other.width)
        self.height = max(self.height, y + other.height)
        self.edge = max(self.edge, x + other.edge)

    def _collect(self, marks: list[Mark], dx: float, dy: float, panel: int | None) -> None:
        for part in self.parts:
            if isinstance(part, _Pasted):
                number = part.panel if panel is None else panel
                part.drawing._collect(marks, dx + part.x, dy + part.y, number)
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
    if panel is not None and kind in (Rect, Dot, Cell):
        parts["panel"] = panel
    return moved


def whole_pixels(size: float) -> float:
    """A cell's size in whole pixels, or half ones where it is small: its edges are sharp."""
    return float(math.floor(size)) if size >= 8 else max(1.0, math.floor(size * 2) / 2)


_EMS = {c: 0.38 for c in "iljtfrI.,:;'|!()[] ·"} | {c: 0.92 for c in "mwMW@%→−+="}


@lru_cache(4096)
def text_width(text: str, size: int = SIZE) -> float:
    """About the width of a text, on the generous side, whatever the font."""
    return size * sum(
        (SCRIPT_SIZE if sign else 1.0) * _EMS.get(c, 0.72 if c.isupper() else 0.62)
        for part, sign in scripts(text)
        for c in part
    )


SHIFTS = {"^": -0.34, "_": 0.22}  # how far down their middle lies, in sizes of the text
SCRIPT_SIZE = 0.8


def widest_of(texts: Sequence[str]) -> float:
    return max(map(text_width, texts), default=0.0)


def short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def curve(left: float, right: float, a: float, b: float) -> tuple[tuple[float, float], ...]:
    """From (left, a) to (right, b) on a ribbon's way."""
    return tuple([(left + (right - left) * x, a + (b - a) * y) for x, y in WAY])


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
