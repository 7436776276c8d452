"""What all kinds of panel have in common, and a panel that is to be drawn (`Piece`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from dataclasses import fields as fields_of
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from mha_course.pictures.fields import checked, plain_fields
from mha_course.pictures.marks import Drawing, text_width
from mha_lesson.refusals import MOST, require_positive

FOLDED = 700  # a narrower page stacks panels and is scrolled: no limit to its height
GAP = 28.0  # between two panels
Texts = tuple[Sequence[str], Sequence[Sequence[str]]]  # a header, and rows


@dataclass(frozen=True)
class Sizes:
    """How large things may be at most: a cell, the height of a plot, the gap between rows."""

    cell: float
    plot: float
    gap: float
    line: float  # of a table


@dataclass(frozen=True, eq=False)
class Panel:
    """What every panel has: a title, perhaps the head it belongs to, and words that describe it.

    Values and labels are given as any array or list, and kept as checked arrays and tuples.
    `wide` is its share of a row; a `bare` heatmap has no labels beside it.
    """

    _: KW_ONLY
    title: str = ""
    head: int | None = None
    alt: str = ""
    wide: float = 1.0
    bare: bool = False

    looks: ClassVar[str] = ""  # what it is called in an alt text
    sizeless: ClassVar[frozenset[str]] = frozenset()  # fields that `size_key` leaves out
    most_in_row: ClassVar[int] = MOST  # on a narrow page
    aligned: ClassVar[bool] = True  # stands in columns with the panels above and below

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, plain, free in plain_fields(kind):
            value = getattr(self, name)
            if value is None and free:
                continue
            kept = checked(name, plain, value)
            if kept is not value:  # a picture has dozens of panels, and a page thousands of them
                self._set(**{name: kept})
        require_positive("wide", self.wide)
        self._check()
        if not self.alt:
            self._set(alt=f"{self.title}: {self._describe()}" if self.title else self._describe())

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        """Looks at what is no plain field, and keeps it as arrays and tuples."""

    def _describe(self) -> str:
        raise NotImplementedError

    def table(self) -> Texts:
        """Its numbers as texts: a header, and rows that begin with their name; long ones in words.

        Nothing where it only says what another panel does.
        """
        return (), ()

    @property
    def peak(self) -> tuple[float, str] | None:
        """Its largest value, and that in words, where it is one of many alike."""
        return None

    @property
    def cell_rows(self) -> int:
        """How many rows of cells it has, which are as high as those of its neighbours."""
        return 0

    def flat(self) -> list[Panel]:
        """The panel, or those that it holds."""
        return [self]

    def draw(self, piece: Piece, space: float) -> Drawing:
        """Its marks; `space` is the width of the plot, without `sides`."""
        raise NotImplementedError

    def above(self, piece: Piece) -> float:
        """The height of what stands above the plot."""
        return (22.0 if self.bare else 26.0) * bool(self.title)

    def sides(self, piece: Piece) -> tuple[float, float]:
        """The width that labels take at the left and at the right of the plot."""
        return 0.0, 0.0

    def cell_height(self, piece: Piece, space: float) -> float:
        """How high its cells are with so much space, where it has `cell_rows`."""
        return 0.0

    def axis_labels(self, axis: Literal["rows", "columns"]) -> Hashable:
        """Labels and name of an axis: a neighbour with the same needs none. None: not shared."""
        return None

    @cached_property
    def size_key(self) -> Hashable:
        """Panels with equal keys take the same space, whatever their values."""
        left_out = self.sizeless | {"alt", "title", "head"}
        parts = [
            _hashable(getattr(self, f.name)) for f in fields_of(self) if f.name not in left_out
        ]
        title = text_width(self.title), self.head is None
        return type(self), title, *parts, self.written_size()

    def written_size(self) -> Hashable:
        """What `size_key` takes of the `sizeless` fields: how many values, how wide in print."""
        return None


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Panel):
        return value.size_key
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((name, _hashable(v)) for name, v in value.items())
    return value


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
    def gap(self) -> float:
        """The gap before it, in a row of panels."""
        return 12.0 if self.panel.cell_rows and not self.rows else GAP
