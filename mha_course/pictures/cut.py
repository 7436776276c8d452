"""One token's ribbons in one head, and how far every last vector moves once one of them is cut.

In the browser `cut.js` draws the same marks, of these numbers or of those that it is given, and
what is seen once something is cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from mha_course.base.numerals import number
from mha_course.pictures.colours import INK, head_colour
from mha_course.pictures.fields import array_of, labels_of
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import Drawing, Path, Rect, Text, curve, short
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import MOST, require_whole

TOP, CELL, LETTER = 42.0, 22.0, 8.2  # where words begin; a head in the small map; a letter
BESIDE = 760  # from this width on the map stands beside the words
FULL = 0.5  # a bar for half of a vector's length, or more, is full
FIELD = INK + "22"
GEOMETRY = {
    "top": TOP,
    "cell": CELL,
    "beside": BESIDE,
    "full": FULL,
    "letter": LETTER,
}  # `cut.js` gets it


@dataclass(frozen=True, eq=False)
class Cut(Panel):
    """What a token takes in one head, as ribbons, and what the model loses without one.

    Attributes:
        labels: T tokens.
        text: the sentence; word: the number of the token that takes; layer: which one.
        widest: (n_layers, h): its widest ribbon to a word in every head.
        weights: (T,): its ribbons in this head.
        own: (T,): how far its last vector moves when a ribbon is cut; rescaled: the same, had the
            row been made to add up to 1 again.
        moves: (T + 2, T): how far every token's moves when a ribbon, the head, or the layer is cut.
        words: the numbers of tokens that can be chosen, in the order of the control `word`.
    """

    labels: Any
    _: KW_ONLY
    text: str
    word: int
    layer: int
    widest: Any
    weights: Any
    own: Any
    rescaled: Any
    moves: Any
    words: Sequence[int] = ()

    looks: ClassVar[str] = "sentence with ribbons to cut"
    sizeless = frozenset(
        {"weights", "own", "rescaled", "moves", "widest", "word", "text", "layer", "words"}
    )

    def _check(self) -> None:
        T = len(self.labels)
        require_whole("word", self.word, 0, T - 1)
        require_whole("layer", self.layer, 0, MOST)
        rows = {
            name: array_of(getattr(self, name), name, (1,))
            for name in ("weights", "own", "rescaled")
        }
        tables = {name: array_of(getattr(self, name), name, (2,)) for name in ("widest", "moves")}
        labels, title = labels_of(self.labels, "labels", T), f"layer {self.layer}, head {self.head}"
        self._set(labels=labels, title=title, **rows, **tables)

    def says(self) -> str:
        """What is seen, in a sentence or two: `cut.js` says the same."""
        word, top = self.labels[self.word], int(self.weights.argmax())
        return (
            f"In layer {self.layer}, head {self.head}, “{word}” takes most from "
            f"“{self.labels[top]}”: {number(self.weights[top], 2)}. How far does its last "
            "vector move without that ribbon? Guess, then cut it."
        )

    def table(self) -> Texts:
        weights = [number(weight, 2) for weight in self.weights]
        return ["from", "weight"], [*zip(self.labels, weights, strict=True)]

    def _describe(self) -> str:
        word, top = self.labels[self.word], int(self.weights.argmax())
        return (
            f"ribbons from “{word}”, the widest to “{self.labels[top]}”, "
            f"{number(self.weights[top], 2)}; and the widest in each of {self.widest.size} heads"
        )

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        """What the browser draws, and computes with."""
        arrays = ("widest", "weights", "own", "rescaled", "moves")
        return {
            "labels": list(self.labels),
            "text": self.text,
            "word": self.word,
            "layer": self.layer,
            "head": self.head,
            "words": list(self.words),
            "arrays": {name: put(getattr(self, name)) for name in arrays},
        }

    def draw(self, piece: Piece, space: float) -> Drawing:
        page, T, h = piece.page, len(self.labels), self.widest.shape[1]
        wide = page >= BESIDE
        pitch = max(15.0, min(22.0, math.floor(272 / T))) if wide else 24.0
        words = [short(label, 14 if wide else 9) for label in self.labels]
        margin = math.ceil(LETTER * max(map(len, words))) + 8.0
        beside = h * CELL + 64 if wide else 0.0  # the map with its labels
        numbers = 44.0 if page >= 480 else 0.0  # the weights'
        free = page - beside - 2 * margin - numbers - 60
        width = max(60.0, min(200.0, math.floor(0.6 * free)))
        right = margin + width
        bars = right + margin + numbers
        tall = T * pitch

        def y(j: int) -> float:
            return TOP + (j + 0.5) * pitch

        drawing = Drawing()
        write_title(drawing, self)
        heads = [(margin - 8, "takes", "right"), (right + 8, "from", "left")]
        heads += [(bars - 12, "weight", "right")] * (numbers > 0)
        heads += [(bars, "last vector moves" if page >= 480 else "moves", "left")]
        drawing.add(*(Text(x, 31, name, align=align) for x, name, align in heads))
        high = min(0.36 * tall, 136.0)  # of all weights together
        at = min(max(y(self.word) - high / 2, TOP), TOP + tall - high)
        for j, share in enumerate(self.weights.tolist()):
            a, b = at + share * high / 2, y(j)
            at += share * high
            end = min(share * high, pitch - 2)  # it ends in one word
            upper, lower = (
                curve(margin, right, a + side * share * high / 2, b + side * end / 2)
                for side in (-1, 1)
            )
            colour = head_colour(self.head or 0) + "CC"
            drawing.add(Path((*upper, *lower[::-1]), colour, filled=True))
        for j, word in enumerate(words):
            drawing.add(Text(margin - 8, y(j), word, align="right", bold=j == self.word))
            drawing.add(Text(right + 8, y(j), word))
            if numbers:
                weight = self.weights[j]
                said = number(weight, 2) if weight >= 0.005 else ""
                drawing.add(Text(bars - 12, y(j), said, align="right"))
        if wide:
            left, top = page - h * CELL - 4, 0.0
        else:
            left, top = 34.0, TOP + tall + 14
        self._map(drawing, left, top)
        drawing.width, drawing.height = page, max(TOP + tall, top + TOP + 6 * CELL + 30) + 4
        return drawing

    def _map(self, drawing: Drawing, left: float, top: float) -> None:
        """Every head as a square, as large as the widest ribbon there."""
        n_layers, h = self.widest.shape
        title = f"widest ribbon of “{self.labels[self.word]}” in each head"
        drawing.add(Text(left - 30, top + 10, title, bold=True))
        top += TOP
        drawing.add(
            Text(left - 30, top + n_layers * CELL / 2, "layer", align="center", turned=True)
        )
        drawing.add(Text(left + h * CELL / 2, top + n_layers * CELL + 30, "head", align="center"))
        colours = [head_colour(j) for j in range(h)]
        for i, row in enumerate(self.widest.tolist()):
            y = top + (i + 0.5) * CELL
            drawing.add(Text(left - 8, y, str(i), align="right"))
            for j, widest in enumerate(row):
                x, side = left + (j + 0.5) * CELL, (CELL - 4) * math.sqrt(max(0.0, widest))
                drawing.add(
                    Rect(x - CELL / 2 + 1, y - CELL / 2 + 1, CELL - 2, CELL - 2, FIELD),
                    Rect(x - side / 2, y - side / 2, side, side, colours[j]),
                )
        for j in range(h):
            y = top + n_layers * CELL + 12
            drawing.add(Text(left + (j + 0.5) * CELL, y, str(j), align="center"))
        x, y = left + (self.head or 0) * CELL, top + self.layer * CELL
        drawing.add(Rect(x - 1, y - 1, CELL + 2, CELL + 2, INK, hollow=True))
