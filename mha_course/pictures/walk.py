"""Arrows in a plane, each from the tip of the one before."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mha_course.base.numerals import number
from mha_course.pictures.colours import INK, head_colour
from mha_course.pictures.fields import array_of
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import Drawing, OwnMark, Path, Text, text_width
from mha_course.pictures.panel import Panel, Piece, Texts


@dataclass(frozen=True, eq=False)
class Walk(Panel):
    """Numbered arrows in a plane, each from the tip of the one before; one is dashed: their sum.

    `steps` is (n, 2), the arrow of head 0 first. `frame` is (left, right, lowest, highest): what
    of the plane is shown. Arrow i moves the control `picks`_i, if any.
    """

    steps: Any
    frame: Any
    _: KW_ONLY
    x_name: str = ""
    picks: str = ""

    looks: ClassVar[str] = "walk of arrows"
    sizeless = frozenset({"steps"})

    def _check(self) -> None:
        self._set(steps=array_of(self.steps, "steps", (2,)))

    def corners(self) -> np.ndarray:
        """(n + 1, 2): where the arrows begin and end."""
        return np.concatenate([np.zeros((1, 2)), self.steps.cumsum(axis=0)])

    def text(self, step: int) -> str:
        """What an arrow says: "head 3: 1.03 along, .94 down"."""
        along, up = self.steps[step]
        side = "up" if up >= 0 else "down"
        return f"head {step}: {number(along, 2)} along, {number(abs(up), 2)} {side}"

    def table(self) -> Texts:
        return ["", "arrow"], [self.text(i).split(": ") for i in range(len(self.steps))]

    def _describe(self) -> str:
        along, up = self.corners()[-1]
        return f"{len(self.steps)} arrows, tip to tail, to ({number(along, 2)}, {number(up, 2)})"

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing = Drawing()
        top = write_title(drawing, self) + 4
        x0, x1, y0, y1 = self.frame
        unit = min(space / (x1 - x0), 2 * piece.sizes.plot / (y1 - y0))  # pixels, on both axes

        x, y, bottom = -x0 * unit, top + y1 * unit, top + (y1 - y0) * unit
        width = (x1 - x0) * unit
        drawing.add(Path(((0, y), (width, y)), width=1), Path(((x, top), (x, bottom)), width=1))
        drawing.add(Arrows(x, y, unit, self))
        if self.x_name:
            drawing.add(Text(0, bottom + 12, self.x_name))
            drawing.width = text_width(self.x_name)
        drawing.width, drawing.height = max(drawing.width, width), bottom + 22
        return drawing


@dataclass(frozen=True, eq=False)
class Arrows(OwnMark):
    """The arrows of a walk; its plane's (0, 0) is at (x, y)."""

    unit: float  # pixels
    panel: Walk

    @property
    def _corners(self) -> list[tuple[float, float]]:
        return [
            (self.x + a * self.unit, self.y - b * self.unit)
            for a, b in self.panel.corners().tolist()
        ]

    def parts(self) -> Iterator[tuple[Path, Path]]:
        """Each arrow and its tip, the dashed sum first; of no length, still as many."""
        corners = self._corners
        yield _with_tip((corners[0], corners[-1]), INK, dashed=True)
        for i, line in enumerate(pairwise(corners)):
            yield _with_tip(line, head_colour(i), dashed=False)

    def numbers(self) -> Iterator[Text]:
        """The head's number beside each arrow, away from the sum; near a short one where most is
        free. One of no length has none.
        """
        corners = [complex(*corner) for corner in self._corners]
        lines = [(corners[0], corners[-1]), *pairwise(corners)]
        arrows = sorted(enumerate(lines[1:]), key=lambda one: abs(one[1][1] - one[1][0]) < 24)
        for i, (a, b) in arrows:
            middle, far = (a + b) / 2, abs(b - a)
            if far >= 24:
                at = middle - 1j * (b - a) * math.copysign(11 / far, self.y - middle.imag)
            elif far >= 1:
                at = max(
                    (
                        middle + size * cmath.rect(1, turn * math.pi / 6)
                        for size in (11, 15, 20)
                        for turn in range(12)
                    ),
                    key=lambda spot: min(12.0, *(_between(spot, *line) for line in lines)),
                )
            else:
                continue
            lines.append((at - 6, at + 6))  # no other number comes here
            yield Text(at.real, at.imag, str(i), align="center")

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        picks = (self.panel.picks, None) if self.panel.picks else None
        at = {"kind": "arrows", "x": self.x, "y": self.y, "unit": self.unit, "picks": picks}
        return {**at, "steps": put(self.panel.steps), "title": self.panel.title}


def _between(spot: complex, start: complex, end: complex) -> float:
    """How far a point is from a line."""
    way = end - start
    share = ((spot - start) * way.conjugate()).real / (abs(way) ** 2 or 1.0)
    return abs(spot - start - min(max(share, 0.0), 1.0) * way)


def _with_tip(
    line: tuple[tuple[float, float], ...], colour: str, dashed: bool
) -> tuple[Path, Path]:
    (x0, y0), (x, y) = line
    far = math.hypot(x - x0, y - y0)
    size = min(7.0, far) / (far or 1.0)
    back = [((x0 - x) * size, (y0 - y) * size)]
    wings = [
        (x + a * c - b * s, y + a * s + b * c)
        for a, b in back
        for c, s in ((0.87, 0.5), (0.87, -0.5))
    ]
    tip = Path((wings[0], (x, y), wings[1]), colour, width=2.5)
    return Path(line, colour, dashed=dashed, width=2.5), tip
