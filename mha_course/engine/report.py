"""What a check says: a few sentences, and where it helps two tables side by side."""

from dataclasses import dataclass, field
from html import escape

import torch
from torch import Tensor

from mha_course.base.prose import emphasised


@dataclass(frozen=True)
class Finding:
    """One thing that an answer does.

    Attributes:
        key: its name, by which rules, tests and a teacher's report know it.
        does: what it did, a sentence.
        asks: a question that points the way.
        rest_right: whether nothing else keeps the values from being right.
        only_on: on how many of the inputs that go wrong it is all that is wrong, and how many these
            are, where that is not all.
    """

    key: str
    does: str
    asks: str = ""
    rest_right: bool = False
    only_on: tuple[int, int] | None = None

    @property
    def sentence(self) -> str:
        """What it did, and how far that reaches."""
        partly = PARTLY.format(*self.only_on) if self.only_on else ""
        return self.does + REST_RIGHT * self.rest_right + partly


REST_RIGHT = " Apart from that, all values are right."
PARTLY = (
    " Your result is exactly that on {} of the {} inputs that go wrong, and something else "
    "on the rest."
)


MAX_CELLS = 8  # rows and columns of a table that are shown


@dataclass(frozen=True)
class Picture:
    """Expected and yours as tables of words, the cells that differ marked."""

    title: str
    expected: list[list[str]]
    yours: list[list[str]]
    differs: list[list[bool]]
    legend: str = ""

    def __str__(self) -> str:
        pairs = zip(self.yours, self.differs, strict=True)
        marked = [[y + "*" * d for y, d in zip(*row, strict=True)] for row in pairs]
        left, right = _grid("expected", self.expected), _grid("yours (* differs)", marked)
        lines = [self.title, *(f"  {a}   {b}".rstrip() for a, b in zip(left, right, strict=True))]
        return "\n".join(lines + [self.legend] * bool(self.legend))

    def _repr_html_(self) -> str:
        plain = [[False] * len(row) for row in self.differs]
        tables = _table("expected", self.expected, plain) + _table(
            "yours (differing cells framed)", self.yours, self.differs
        )
        legend = f"<div>{escape(self.legend)}</div>" if self.legend else ""
        return (
            f'<div style="margin-top:.6em">{escape(self.title)}</div>'
            f'<div style="display:flex;flex-wrap:wrap;gap:2em">{tables}</div>{legend}'
        )


def _grid(head: str, rows: list[list[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [" ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    width = max(len(head), *map(len, lines))
    return [line.ljust(width) for line in (head, *lines)]


def _table(head: str, rows: list[list[str]], marks: list[list[bool]]) -> str:
    body = ""
    for row, row_marks in zip(rows, marks, strict=True):
        body += "<tr>"
        for cell, marked in zip(row, row_marks, strict=True):
            style = "padding:.1em .5em;text-align:right;font-variant-numeric:tabular-nums;"
            style += "font-weight:bold;border:2px solid " if marked else "border:2px solid "
            style += "#D55E00" if marked else "transparent"
            body += f'<td style="{style}">{escape(cell)}</td>'
        body += "</tr>"
    return (
        f'<table style="border-collapse:separate;margin:.3em 0"><caption style="text-align:left;'
        f'white-space:nowrap">{escape(head)}</caption><tbody>{body}</tbody></table>'
    )


def picture(yours: Tensor, expected: Tensor, differs: Tensor, name: str) -> Picture:
    """The first two-axes slice in which the two differ."""
    title, yours, expected = name, yours.detach(), expected.detach()
    while expected.ndim > 2:
        first = int(differs.flatten(1).any(1).nonzero()[0]) if differs.any() else 0
        title += f"[{first}]"
        yours, expected, differs = yours[first], expected[first], differs[first]
    if expected.ndim < 2:
        yours, expected, differs = (t.reshape(1, -1) for t in (yours, expected, differs))
    window = (slice(MAX_CELLS), slice(MAX_CELLS))
    if differs.any() and not differs[window].any():  # show where it differs
        row, column = (int(i) for i in differs.nonzero()[0])
        window = (slice(max(0, row - 3), row + 5), slice(max(0, column - 3), column + 5))
    shown = expected[window]
    cut = "" if shown.shape == expected.shape else ", a part of it"
    return Picture(
        f"{title}{cut}:",
        _cells(shown),
        _cells(yours[window]),
        differs[window].tolist(),
        "■ True, · False" if expected.dtype == torch.bool else "",
    )


def _cells(table: Tensor) -> list[list[str]]:
    if table.dtype == torch.bool:
        return [["■" if cell else "·" for cell in row] for row in table.tolist()]
    return [[number(cell) for cell in row] for row in table.tolist()]


def number(x: float) -> str:
    """Four digits at most, no negative zero."""
    return f"{x:.4g}" if abs(x) >= 1e-4 or x != x else "0"


SEVERAL = "Several things at once:"


@dataclass(frozen=True)
class Report:
    """The outcome of a check.

    Attributes:
        name: the exercise.
        passed: True, False, or None where nothing was attempted yet.
        findings: what the answer does, most telling first; empty unless it failed.
        notes: what is worth knowing though it does not decide.
        picture: expected and yours, where it helps.
        where: on which input it shows.
    """

    name: str
    passed: bool | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    picture: Picture | None = None
    where: str = ""
    checked: int = field(default=0, compare=False)

    @property
    def slips(self) -> tuple[str, ...]:
        """The keys of the findings."""
        return tuple(finding.key for finding in self.findings)

    @property
    def verdict(self) -> str:
        if self.passed is None:
            return "not judged" if self.findings else "not attempted yet"
        return "right" if self.passed else "not right yet"

    @property
    def _paragraphs(self) -> list[str]:
        if self.passed:
            on = f"all {self.checked} inputs" if self.checked > 1 else "the input"
            tried = f"It gives what it should on {on} tried."
            return [*[tried] * bool(self.checked), *self.notes]
        if len(self.findings) == 1:
            finding = self.findings[0]
            lines = [finding.sentence, self.where, finding.asks]
        else:
            stops = {key.startswith("error:") for key in self.slips}
            head = "What it returns, and where it stops:" if len(stops) > 1 else SEVERAL
            lines = [head] if self.findings else []
            lines += [f"{i}. {f.sentence} {f.asks}".strip() for i, f in enumerate(self.findings, 1)]
            lines.append(self.where.replace("It shows on", "Some of it shows on"))
        return [line for line in (*lines, *self.notes) if line]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.verdict}.", *self._paragraphs]
        return "\n".join(lines + [str(self.picture)] * bool(self.picture))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sign, colour = {True: ("✓", "#009E73"), False: ("✗", "#D55E00"), None: ("○", "#999999")}[
            self.passed
        ]
        paragraphs = "".join(
            f'<p style="margin:.3em 0">{_code(line)}</p>' for line in self._paragraphs
        )
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:.4em 1em;'
            f'max-width:60em"><strong>{sign} {escape(self.name)}: {self.verdict}</strong>'
            f"{paragraphs}{self.picture._repr_html_() if self.picture else ''}</div>"
        )


def _code(text: str) -> str:
    """Escapes, and sets `what stands between backticks` as code and *this* as emphasis."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(
        f"<code>{part}</code>" if i % 2 else emphasised(part) for i, part in enumerate(parts)
    )
