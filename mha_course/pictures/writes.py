"""A prompt, what its last word takes from the others, and the model's next word without it.

In the browser `writes.js` makes words, ribbons and bars of the page itself; here is what it gets,
and the same picture on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from mha_course.pictures.colours import HIGH
from mha_course.pictures.heatmap import Heatmap
from mha_course.pictures.labels import write_title
from mha_course.pictures.marks import PLAIN, Drawing, Path, Rect, Text, curve, text_width
from mha_course.pictures.panel import Panel, Piece, Texts
from mha_lesson.refusals import require_kind

LARGE, LINE = 24, 38  # the prompt's type, and from one of its lines to the next
FALL = 120.0  # how far a ribbon falls
FULL = 220.0  # how wide all of a row's weight is
LATE = slice(20, 30)  # the layers whose ribbons are drawn together


@dataclass(frozen=True, eq=False)
class Writes(Panel):
    """What SmolLM2-135M says after a prompt, and after it without what its last piece takes.

    Attributes:
        about: pieces, text, answer and the likeliest next words, as data/make_writes.py says.
        arrays: name → numbers; weights: (n_layers, h, T), what the last piece takes.
        prompts: the texts that can be chosen.
        begin: another text, to be asked of a kernel at once.
    """

    about: Any
    arrays: Any
    _: KW_ONLY
    prompts: Sequence[str] = ()
    begin: str = ""

    looks: ClassVar[str] = "prompt with ribbons to its next word"
    sizeless = frozenset({"about", "arrays", "prompts", "begin"})

    def written_size(self) -> tuple[str, ...]:
        return tuple(self.about["pieces"])

    def _check(self) -> None:
        for name in ("about", "arrays"):
            require_kind(name, getattr(self, name), Mapping)

    @property
    def shares(self) -> np.ndarray:
        """(T,): what the last piece takes from each, over all heads of the late layers."""
        shares: np.ndarray = self.arrays["weights"][LATE].mean(axis=(0, 1))
        return shares

    def says(self) -> str:
        answer, p = self.about["before"][0]
        return f"{self.about['text']} … {answer.strip()}, {whole_percent(p)}."

    def table(self) -> Texts:
        shares = map(whole_percent, self.shares)
        return ["word", "share"], [*zip(self.about["pieces"], shares, strict=True)]

    def _describe(self) -> str:
        return f"what the last word takes, and the next word: {self.says()}"

    def map(self) -> Heatmap:
        """What the last piece takes from the telling one, in every head."""
        weights = self.arrays["weights"]
        rows, columns = (
            [f"{name} {i}" for i in range(n)]
            for name, n in zip(("head", "layer"), weights.shape[1::-1], strict=True)
        )
        return Heatmap(
            weights[..., self.about["target"]].T,
            rows,
            columns,
            limits=(0, 1),
            row_name="",
            column_name="",
            numbers=False,
            title="every head of every layer",
        )

    def sent(self, put: Callable[[Any], int]) -> dict[str, Any]:
        arrays = {name: put(values) for name, values in self.arrays.items()}
        own = {"prompts": list(self.prompts), "begin": self.begin, "arrays": arrays}
        return self.about | own

    def draw(self, piece: Piece, space: float) -> Drawing:
        drawing, page = Drawing(), piece.page
        write_title(drawing, self)
        bars = 250.0 if page >= 620 else 0.0
        room = page - bars
        words, bottom = _lines([p.strip() for p in self.about["pieces"]], room)
        for x, y, width, word in words:
            drawing.add(Text(x + width / 2, y, word, "center", size=LARGE))
        ends = self.shares * min(FULL, 0.5 * room)
        at = room / 2 - (ends.sum() + 2 * len(ends) - 2) / 2
        for (x, y, width, _), end in zip(words, ends.tolist(), strict=True):
            top, size = y + LINE / 2, min(width - 4, max(2.0, end))
            middle = at + end / 2
            at += end + 2
            edge, other = (
                curve(
                    top, bottom + FALL, x + (width + s * size) / 2, middle + s * max(2.0, end) / 2
                )
                for s in (-1, 1)
            )
            points = tuple((across, down) for down, across in (*edge, *other[::-1]))
            drawing.add(Path(points, PLAIN + "99", filled=True))
        answer = self.about["answer"].strip()
        drawing.add(Text(room / 2, bottom + FALL + 20, answer, "center", bold=True, size=LARGE))
        left, y = (room + 20, bottom) if bars else (20.0, bottom + FALL + 56)
        for i, (word, p) in enumerate(self.about["before"]):
            drawing.add(
                Text(left + 62, y + 26 * i, word.strip(), "right", bold=not i),
                Rect(left + 70, y + 26 * i - 7, max(1.0, 110 * p), 14, HIGH),
                Text(left + 76 + 110 * p, y + 26 * i, whole_percent(p)),
            )
        drawing.width = page
        drawing.height = max(bottom + FALL + 40, y + 26 * len(self.about["before"]))
        return drawing


_Placed = tuple[float, float, float, str]


def _lines(words: Sequence[str], room: float) -> tuple[list[_Placed], float]:
    """(x, y, width, word) of each, in centred lines no wider than `room`; where the last ends."""
    lines: list[list[tuple[str, float]]] = [[]]
    for word in words:
        width = text_width(word, LARGE) + 12
        if lines[-1] and sum(w for _, w in lines[-1]) + width > room:
            lines.append([])
        lines[-1].append((word, width))
    placed = []
    for i, line in enumerate(lines):
        x = (room - sum(width for _, width in line)) / 2
        for word, width in line:
            placed.append((x, LINE * (i + 0.5), width, word))
            x += width
    return placed, LINE * len(lines)


def whole_percent(p: float) -> str:
    """In words where rounding would say none or all: `writes.js` says the same."""
    return "99%" if p >= 0.995 else "under 1%" if p < 0.005 else f"{round(100 * p)}%"
