"""A picture: panels in rows, and words for them all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from mha_course.base.numerals import counted
from mha_course.pictures.panel import Panel
from mha_lesson.refusals import require_positive_int, require_text

LONG = 300  # letters of an alt text that describes panels one by one


@dataclass(frozen=True, eq=False)
class Scene:
    """Panels in rows, one sentence that says what they show, and words for them all.

    `panels` is one panel, a flat list (`columns` to a row) or a list of rows.
    """

    panels: Any
    _: KW_ONLY
    columns: int | None = None
    caption: str = ""
    alt: str = ""

    def __post_init__(self) -> None:
        require_text(caption=self.caption, alt=self.alt)
        if self.columns is not None:
            require_positive_int("columns", self.columns)
        one = isinstance(self.panels, Panel)
        given: list[Any] = [self.panels] if one else _listed(self.panels)
        if given and all(isinstance(p, Panel) for p in given):
            width = min(len(given), self.columns or 4) or 1
            width = math.ceil(len(given) / math.ceil(len(given) / width)) or 1  # 3 + 3, not 4 + 2
            given = [given[i : i + width] for i in range(0, len(given), width)]
        rows = tuple(tuple(_listed(row)) for row in given)
        if not rows or not all(rows) or not all(isinstance(p, Panel) for row in rows for p in row):
            raise TypeError("panels must be a panel, a list of panels or a list of rows of panels")
        alt = self.alt
        if not alt:
            alt = f"{_seen(_flat(rows)).rstrip('.')}."
        for name, value in (("panels", rows), ("alt", alt)):
            object.__setattr__(self, name, value)

    def flat(self) -> list[Panel]:
        """Every panel, row by row."""
        return _flat(self.panels)


def _listed(panels: Any) -> list[Any]:
    return list(panels) if isinstance(panels, list | tuple) else []


def _flat(rows: Iterable[Iterable[Panel]]) -> list[Panel]:
    return [one for row in rows for panel in row for one in panel.flat()]


def _seen(panels: Sequence[Panel]) -> str:
    """What each panel shows; if that is long, what all are and the largest value, or the first."""
    each = ". ".join(panel.alt.rstrip(".") for panel in panels)
    if len(each) <= LONG:
        return each
    peaks = [(*panel.peak, panel.title) for panel in panels if panel.peak]
    if not peaks:
        return f"{kinds_of(panels)}. {panels[0].alt}"
    _, words, title = max(peaks)
    return f"{kinds_of(panels)}. The {words}{f', in {title}' * bool(title)}"


def kinds_of(panels: Sequence[Panel]) -> str:
    """What is seen, in one sentence: "2 heatmaps and 1 table: head 0; head 1; links"."""
    kinds = [panel.looks for panel in panels]
    parts = [counted(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
    counts = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    titles = list(dict.fromkeys(panel.title for panel in panels if panel.title))
    shown = [*titles[:3], "…", titles[-1]] if len(titles) > 5 else titles
    return f"{counts}: {'; '.join(shown)}" if shown else counts


def scene_of(thing: Any) -> Scene:
    """`thing` as a scene: a scene itself, a panel, or panels."""
    return thing if isinstance(thing, Scene) else Scene(thing)
