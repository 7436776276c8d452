"""What a picture says: values, labels, colours and words, without any drawing.

A `Scene` is rows of panels: `Heatmap`, `Words`, `Bars`, `Curve`, `Walk`, `Tiles`, `Table`,
`Diagram`.
`figures` draws it on paper, `live` in the browser; both take words, colours, ticks and limits from
here, so they agree.
Values may be lists, numpy arrays or torch tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from dataclasses import fields as fields_of
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from mha_lesson.refusals import (
    MOST,
    is_whole,
    listed,
    listed_ints,
    require_bool,
    require_kind,
    require_one_of,
    require_positive,
    require_positive_int,
    require_text,
    require_whole,
    say,
)

__all__ = [
    "Bars", "Box", "Curve", "Diagram", "Heatmap", "Panel", "Scene", "Stack", "Table", "Tiles",
    "Walk", "Words", "head_colour", "number", "scene_of",
]  # fmt: skip

# Okabe and Ito's colours (2008), with black as a grey that shows on light and dark pages.
HEADS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#808080",
)  # fmt: skip
# What a vector is for: query, key, value, or what a layer puts out (and takes in). They can be told
# from each other and from the heads' colours by every eye, and are dark enough for text.
ROLES = {"query": "#962FEF", "key": "#89561B", "value": "#346875", "output": "#C627A7"}
INK = "#787878"  # equal contrast (4.3 : 1) on a white page and on a #111 one
PLATE = "#F3F5F8"  # cells that carry numbers lie on this, so that the numbers can be read anywhere
HIGH, LOW = "#2878CC", "#CF5A08"  # the far ends of the maps: more and less than zero
RAMP = 256
FLOAT32_END = float(np.finfo(np.float32).max)  # a browser gets the cells in float32
ENDS = ("[CLS]", "[SEP]")  # around a sentence: much is parked there, and little is said by it
TILE, WRONG = "#D3D7DC", "#111111"  # a cell of no head; the dashes around a cell in a wrong place
RIBBON, RIBBON_FAR = 0.75, 0.18  # opacity of those that one looks at, and of the others
FAINT = 0.04  # a weight below it has no ribbon
ROWS_LARGEST = "row’s largest"  # at the end of a colour bar, where each row has its own


def head_colour(head: int) -> str:
    """The colour of head `head` in every picture, as "#rrggbb".

    Heads 8 to 15 take the eight colours again, hollow or dashed; a head's number is printed too.
    """
    require_whole("head", head, 0, MOST)
    return HEADS[head % len(HEADS)]


def rgb(colour: str) -> tuple[int, int, int]:
    """(red, green, blue) from 0 to 255 of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _ramp(top: str) -> np.ndarray:
    """(256, 4) uint8 RGBA: from a faint tint of the page to `top`.

    Opacity carries the value: zero looks empty on a light and on a dark page alike, and lightness
    changes evenly on both.
    """
    t = np.linspace(0, 1, RAMP)[:, None]
    table = np.full((RAMP, 4), 255.0)
    table[:, :3] = np.asarray(rgb(INK)) * (1 - t) ** 6 + np.asarray(rgb(top)) * (1 - (1 - t) ** 6)
    table[:, 3:] = 255 * (0.09 + 0.91 * t)
    return table.round().astype(np.uint8)


SEQUENTIAL = _ramp(HIGH)


def _signed(top: str, low: str = INK) -> np.ndarray:
    """(256, 4) uint8 RGBA: from `low` far below zero to `top` far above it."""
    return np.concatenate([_ramp(low)[:0:-2], _ramp(top)[::2]])[-RAMP:]


DIVERGING = _signed(HIGH, LOW)
MAPS = {
    "sequential": SEQUENTIAL,
    "diverging": DIVERGING,
    **{role: _signed(colour) for role, colour in ROLES.items()},  # below zero: grey
    **{f"head {i}": _signed(colour) for i, colour in enumerate(HEADS)},
}


def on_plate(table: np.ndarray) -> np.ndarray:
    """A map of RGBA as the opaque colours it has on the plate, for cells that carry numbers."""
    alpha = table[:, 3:] / 255.0
    solid = table[:, :3] * alpha + np.asarray(rgb(PLATE)) * (1 - alpha)
    return np.concatenate([solid, np.full_like(alpha, 255)], axis=1).round().astype(np.uint8)


def luminance(colour: str | Sequence[Any]) -> float:
    """Relative luminance as WCAG 2 defines it, 0 (black) to 1 (white)."""
    parts = np.asarray(rgb(colour) if isinstance(colour, str) else colour[:3]) / 255.0
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def contrast(one: str | Sequence[Any], other: str | Sequence[Any]) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def text_on(paper: str | Sequence[Any]) -> str:
    """Black or white, whichever reads better on `paper`: at least 4.5 : 1."""
    return "#000000" if luminance(paper) > 0.179 else "#FFFFFF"


def _fixed(value: float, decimals: int) -> str:
    """`value` with so many decimals, halves away from zero (as JavaScript's toFixed does)."""
    step = Decimal(1).scaleb(-decimals)
    return str(Decimal(float(value)).quantize(step, ROUND_HALF_UP))


def number(value: float, decimals: int | None = None) -> str:
    """`value` as both renderers write it: ".85", "1.00", "12.3", "10k", "10.2k", "−∞", "NaN".

    Without `decimals`: whole numbers as they are, otherwise about three significant digits.
    """
    value = _as_float(value)
    if decimals is not None:
        require_whole("decimals", decimals, 0, 15)
        decimals = int(decimals)
    return _said(value, decimals)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except Exception as error:  # of any kind: float() asks the value itself
        raise TypeError(f"value must be a number, got {say(value)}") from error


@lru_cache(65536)
def _said(value: float, decimals: int | None) -> str:
    if math.isnan(value):
        return "NaN"
    minus, size = ("−" if value < 0 else ""), abs(value)
    if math.isinf(size):
        return minus + "∞"
    if size >= 1e15:  # a thousand T
        with localcontext(rounding=ROUND_HALF_UP):
            return minus + f"{Decimal(size):.1e}".replace("e+", "e")
    whole = size == int(size)
    if size >= 10_000 or (size >= 999.5 and not whole):
        for unit in ("", "k", "M", "G", "T"):
            text = _fixed(size, 1 if size < 99.95 and unit else 0)
            if float(text) < 1000 or unit == "T":
                return minus + (text.removesuffix(".0") if float(text) == size else text) + unit
            size /= 1000
    if decimals is None:
        if whole:
            return minus + str(int(size))
        if size < 0.001:
            return minus + f"{size:.1e}".replace("e-0", "e−").replace("e-", "e−")
        decimals = 3 if size < 0.1 else 2 if size < 10 else 1 if size < 99.95 else 0
    text = _fixed(size, decimals)
    if float(text) == 0:
        minus = ""
    return minus + (text[1:] if text.startswith("0.") else text)


def ticks(low: float, high: float, log: bool = False, most: int = 5) -> tuple[float, ...]:
    """At most about `most` round positions from `low` to `high`."""
    if log:
        for base in (10.0, 2.0):
            first = math.ceil(math.log(low, base) - 1e-9)
            last = math.floor(math.log(high, base) + 1e-9)
            if last - first >= 2:
                break
        every = max(1, math.ceil((last - first + 1) / most))
        return tuple(base**e for e in range(first, last + 1, every)) or (low, high)
    if high <= low:
        return (low,)
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    if count < 2:  # no two round positions: then the ends
        return (low, high)
    return tuple(round((first + i) * step, 12) for i in range(count))


def _array(value: Any, name: str, ndims: tuple[int, ...], dtype: type = float) -> np.ndarray:
    """`value` (array, nested lists or a torch tensor) as a new numpy array of an allowed rank."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            value = value.double() if value.is_floating_point() else value
            value = value.numpy()
        if np.iscomplexobj(value):
            raise TypeError("complex numbers have no order")
        array: np.ndarray = np.array(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        got = type(value).__name__
        raise TypeError(f"{name} must be numbers in an array, got {got}") from error
    if array.ndim not in ndims:
        ranks = " or ".join(map(str, ndims))
        raise ValueError(f"{name} must have {ranks} axes, got shape {array.shape}")
    return array


def _labels(labels: Iterable[Any] | None, name: str, n: int) -> tuple[str, ...]:
    """`labels` as `n` strings; 0, 1, 2 … where there are none."""
    out = tuple(map(_word, range(n) if labels is None else listed(name, labels, "labels")))
    if len(out) != n:
        raise ValueError(f"{name} must be {n} labels, one for each, got {len(out)}")
    return out


def _word(x: Any) -> str:
    """A label as text that can be drawn and stored, whatever it is."""
    try:
        return str(x).encode(errors="replace").decode()
    except Exception:  # it breaks when it is asked, or is nested too deep
        return "?"


def _heads(heads: Any, n: int, each: str) -> tuple[int | None, ...]:
    """One head, or None, for each of n bars or lines."""
    out = [None] * n if heads is None else listed("heads", heads)
    if len(out) != n:
        raise ValueError(f"heads must have {n} entries, one for each {each}, got {len(out)}")
    if not all(head is None or is_whole(head, 0, MOST) for head in out):
        raise ValueError(f"heads must be 0, 1, 2, … or None, got {say(out)}")
    return tuple(out)


def _roles(roles: Any, n: int, each: str) -> tuple[str, ...]:
    """One role, or "", for each of n bars or series."""
    out = [""] * n if roles is None else [role or "" for role in listed("roles", roles)]
    if len(out) != n:
        raise ValueError(f"roles must have {n} entries, one for each {each}, got {len(out)}")
    for i, role in enumerate(out):
        require_one_of(f"roles[{i}]", role, ("", *ROLES))
    return tuple(out)


def _range(limits: Any, name: str = "limits") -> tuple[float, float]:
    ends = _array(limits, name, (1,))
    if ends.shape != (2,) or not np.isfinite(ends[1] - ends[0]) or ends[0] >= ends[1]:
        raise ValueError(f"{name} must be two finite numbers, low < high, got {say(limits)}")
    return float(ends[0]), float(ends[1])


def _own_range(values: np.ndarray) -> tuple[float, float]:
    """From 0 (or below, if values are) to the largest finite value."""
    finite = values[np.isfinite(values)]
    low = min(0.0, float(finite.min())) if finite.size else 0.0
    high = max(0.0, float(finite.max())) if finite.size else 1.0
    return (low, high) if high > low else (low, low + 1.0)


@cache
def _plain_fields(kind: Any) -> list[tuple[str, str, bool]]:
    """Name, kind and whether it may be None, of the fields that `_fitted` looks at."""
    told = [(field.name, str(field.type)) for field in fields_of(kind)]
    plain = [(name, said.removesuffix(" | None"), said.endswith(" | None")) for name, said in told]
    return [(name, kind, free) for name, kind, free in plain if kind in _PLAIN]


_PLAIN = ("str", "bool", "int", "float")


def _fitted(name: str, kind: str, value: Any) -> Any:
    """What a plain field is given, if it is of this kind; the others are looked at one by one."""
    if kind == "str":
        require_text(**{name: value})
    elif kind == "bool":
        require_bool(name, value)
    elif kind == "int":
        require_whole(name, value, 0, MOST)
        return int(value)  # JSON knows no NumPy
    elif kind == "float":
        value = float(_array(value, name, (0,)))
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {say(value)}")
    return value


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

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, plain, free in _plain_fields(kind):
            value = getattr(self, name)
            if value is None and free:
                continue
            fitted = _fitted(name, plain, value)
            if fitted is not value:  # a picture has dozens of panels, and a page thousands of them
                self._set(**{name: fitted})
        require_positive("wide", self.wide)
        self._check()
        if not self.alt:
            self._set(alt=f"{self.title}: {self._describe()}" if self.title else self._describe())

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        raise NotImplementedError

    def _describe(self) -> str:
        raise NotImplementedError

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        """The `n` most telling values as (where, text); nothing where a panel has no such thing."""
        return []


@dataclass(frozen=True, eq=False)
class Heatmap(Panel):
    """A matrix as coloured cells, for example attention weights: row = query, column = key.

    `blocked` (bool, True = blocked) cells are hatched and carry no value. `limits` None means the
    panel's own range; `per_row` stretches the colours up to each row's own largest instead.
    `marks` are (row, column) cells to frame. `numbers` None writes values where they fit.
    A `mask` is of bools: True is hatched, False empty. A map that `picks` (control, position) moves
    an explorer's control there when it is pressed; the one that is `picked` is framed.
    """

    values: Any
    rows: Any = None
    columns: Any = None
    _: KW_ONLY
    blocked: Any = None
    limits: Any = None
    per_row: bool = False
    colours: Any = None
    row_name: str = "query"
    column_name: str = "key"
    quantity: str = "weight"
    marks: Sequence[tuple[int, int]] = ()
    numbers: bool | None = None
    decimals: int | None = None
    mask: bool = False
    picks: tuple[str, int] | None = None
    picked: bool = False

    kind: ClassVar[str] = "heatmap"

    def _check(self) -> None:
        values = _array(self.values, "values", (2,))
        if 0 in values.shape:
            raise ValueError(f"values must have at least one cell, got shape {values.shape}")
        blocked = (values == 1) if self.mask else np.zeros(values.shape, bool)
        if self.mask and (self.blocked is not None or not np.isin(values, (0, 1)).all()):
            raise ValueError("values of a mask must be True and False, without blocked cells")
        if self.blocked is not None:
            blocked = _array(self.blocked, "blocked", (2,), bool)
            if blocked.shape != values.shape:
                raise ValueError(
                    f"blocked must have the shape of values {values.shape}, got {blocked.shape}"
                )
        seen = values[~blocked]
        if (np.isfinite(seen) & (np.abs(seen) > FLOAT32_END)).any():
            raise ValueError(f"values must lie within ±{FLOAT32_END:.1e}, or be infinite")
        limits = None if self.limits is None else _range(self.limits)
        colours = self.colours
        if colours is None:  # 0 is the pale middle wherever values may lie on both sides of it
            below = (seen < 0).any() or (limits is not None and limits[0] < 0)
            colours = "diverging" if below else "sequential"
        if not (isinstance(colours, str) and colours in MAPS):
            raise ValueError(f"colours must be one of {', '.join(MAPS)}, got {say(colours)}")
        if limits is None:
            limits = _own_range(seen)
            if colours != "sequential":
                far = max(-limits[0], limits[1])
                limits = (-far, far)
        last = [n - 1 for n in values.shape]
        marks = tuple(
            tuple(listed_ints(f"marks[{i}]", cell))
            for i, cell in enumerate(listed("marks", self.marks, "(row, column) cells"))
        )
        if not all(len(m) == 2 and all(map(is_whole, m, (0, 0), last)) for m in marks):
            raise ValueError(f"marks must be cells of a {values.shape} matrix, got {say(marks)}")
        decimals = self.decimals
        if decimals is None and max(abs(limits[0]), abs(limits[1])) <= 1 and (seen % 1 != 0).any():
            decimals = 2
        self._set(
            values=values, blocked=blocked, limits=limits, colours=colours, marks=marks,
            numbers=False if self.mask else self.numbers,
            rows=_labels(self.rows, "rows", values.shape[0]),
            columns=_labels(self.columns, "columns", values.shape[1]), decimals=decimals,
        )  # fmt: skip

    @property
    def by_row(self) -> bool:
        """Whether a reader may let each row's colours run from 0 up to its own largest."""
        return self.colours == "sequential" and self.limits[0] == 0 and not self.per_row

    def ends(self) -> tuple[str, str]:
        """What stands at the two ends of its colour bar."""
        if self.per_row:
            return "0" if self.colours == "sequential" else f"−{ROWS_LARGEST}", ROWS_LARGEST
        low, high = (number(v, None if v.is_integer() else self.decimals) for v in self.limits)
        return low, high

    def text(self, row: int, column: int) -> str:
        """What cell (row, column) says: "it → creek = .85"."""
        require_whole("row", row, 0, len(self.rows) - 1)
        require_whole("column", column, 0, len(self.columns) - 1)
        value = "blocked" if self.blocked[row, column] else self._number(self.values[row, column])
        if self.mask:
            value = str(bool(self.values[row, column]))
        return f"{self.rows[row]} → {self.columns[column]} = {value}"

    def _number(self, value: float) -> str:
        return number(value, self.decimals)

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        """The largest values; between words, where a sentence stands between [CLS] and [SEP]."""
        require_whole("n", n, 0, MOST)
        if self.mask:
            return []
        keep = ~self.blocked & np.isfinite(self.values)
        if self._between_words:
            keep &= np.array([word not in ENDS for word in self.rows])[:, None]
            keep &= np.array([word not in ENDS for word in self.columns])
        flat = np.where(keep, np.abs(self.values), -1.0).ravel()
        order = [flat.argmax()] if n == 1 else np.argsort(-flat, kind="stable")[:n]
        cells = [divmod(int(i), self.values.shape[1]) for i in order if flat[i] >= 0]
        return [
            (f"{self.rows[r]} → {self.columns[c]}", self._number(self.values[r, c]))
            for r, c in cells
        ]

    @cached_property
    def _between_words(self) -> bool:
        """Whether words look at words, and at the marks around them."""
        both = (set(self.rows), set(self.columns))
        return all(names & set(ENDS) and names - set(ENDS) for names in both)

    def _describe(self) -> str:
        n_rows, n_columns = self.values.shape
        what = "mask" if self.mask else "heatmap"
        words = [f"{what} of {n_rows} × {n_columns}, {self.row_name} → {self.column_name}"]
        if top := self.largest(1):
            between = " between words" * self._between_words
            words.append(f"largest {self.quantity}{between} {top[0][1]}: {top[0][0]}")
        if self.mask:
            words.append(f"{int(self.values.sum())} True")
        elif self.blocked.any():
            words.append(f"{int(self.blocked.sum())} blocked")
        if np.isnan(self.values[~self.blocked]).any():
            words.append(f"{int(np.isnan(self.values[~self.blocked]).sum())} NaN")
        return "; ".join(words)


@dataclass(frozen=True, eq=False)
class Words(Panel):
    """A map of weights as ribbons from each query's word, left, to the keys' words, right.

    A ribbon is as wide as its weight; weights below `FAINT` have none. Those of query `row` stand
    out, until the reader points at another word.
    """

    weights: Any
    _: KW_ONLY
    row: int | None = None

    kind: ClassVar[str] = "words"

    def _check(self) -> None:
        require_kind("weights", self.weights, Heatmap)
        values = self.weights.values
        if not (values[np.isfinite(values)] >= 0).all() or (values > 1).any():
            raise ValueError("weights must lie between 0 and 1")
        if self.row is not None:
            require_whole("row", self.row, 0, len(values) - 1)

    @property
    def ribbons(self) -> list[tuple[int, int, float]]:
        """(row, column, weight) of each ribbon, the strong ones last."""
        seen = np.where(self.weights.blocked, 0, np.nan_to_num(self.weights.values))
        places = [divmod(int(i), seen.shape[1]) for i in np.argsort(seen, axis=None, kind="stable")]
        return [(r, c, float(seen[r, c])) for r, c in places if seen[r, c] >= FAINT]

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        return self.weights.largest(n)

    def _describe(self) -> str:
        return f"ribbons between words: {self.weights._describe()}"


@dataclass(frozen=True, eq=False)
class Bars(Panel):
    """One bar for each label, or several series of them side by side.

    `values` is (n,) or (series, n). `heads` gives a head (its colour) to each bar of one series, or
    to each of several series; `roles` does the same with names of `ROLES`. `reference` is a
    (value, name) line across, where the axis has a place for it, `name` what is measured.
    """

    values: Any
    labels: Any = None
    _: KW_ONLY
    series: Any = None
    heads: Any = None
    roles: Any = None
    limits: Any = None
    log: bool = False
    name: str = ""
    reference: tuple[float, str] | None = None
    decimals: int | None = None

    kind: ClassVar[str] = "bars"

    def _check(self) -> None:
        values = np.atleast_2d(_array(self.values, "values", (1, 2)))
        if 0 in values.shape:
            raise ValueError("values must have at least one bar, got none")
        series = _labels(self.series, "series", len(values)) if self.series is not None else ()
        if len(values) > 1 and not series:
            raise ValueError(f"series must name the {len(values)} rows of values, got None")
        n = values.shape[1] if len(values) == 1 else len(values)
        each = "bar" if len(values) == 1 else "series"
        heads, roles = _heads(self.heads, n, each), _roles(self.roles, n, each)
        limits = _curve_limits(self.limits, values, self.log, zero=True)
        decimals = self.decimals
        if decimals is None and not self.log:
            decimals = _decimals(values, limits)
        reference = None
        if self.reference is not None:
            level, *name = listed("reference", self.reference, "a value and a name") or [None]
            if len(name) != 1:
                raise ValueError(f"reference must be (value, name), got {say(self.reference)}")
            reference = float(_array(level, "reference[0]", (0,))), _word(name[0])
        self._set(
            values=values, series=series, heads=heads, roles=roles, limits=limits,
            decimals=decimals, reference=reference,
            labels=_labels(self.labels, "labels", values.shape[1]),
        )  # fmt: skip

    def text(self, series: int, bar: int) -> str:
        """What a bar says: "jumped = .85", with its series where there are several."""
        require_whole("series", series, 0, len(self.values) - 1)
        require_whole("bar", bar, 0, len(self.labels) - 1)
        of = f", {self.series[series]}" if self.series else ""
        return f"{self.labels[bar]}{of} = {self.written(self.values[series, bar])}"

    def written(self, value: float, fewer: int = 0) -> str:
        """What stands at a bar: a whole count has no decimals, a share always has; or `fewer`."""
        value = _as_float(value)
        require_whole("fewer", fewer, 0, self.decimals or 0)
        counts = value % 1 == 0 and max(map(abs, self.limits)) > 1
        return number(value, None if counts or self.decimals is None else self.decimals - fewer)

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        require_whole("n", n, 0, MOST)
        flat = np.nan_to_num(np.abs(self.values), nan=-1.0).ravel()
        out = []
        for i in np.argsort(-flat, kind="stable")[:n]:
            where, value = self.text(*divmod(int(i), self.values.shape[1])).rsplit(" = ", 1)
            out.append((where, value))
        return out

    def _describe(self) -> str:
        n = self.values.shape[1]
        top = self.largest(1)[0]
        of = f" of {self.name}" if self.name else ""
        return f"{n} bars{of}; largest {top[1]}: {top[0]}"


def _decimals(values: np.ndarray, limits: tuple[float, float]) -> int | None:
    """As many decimals for all bars as the longest needs for three digits, and shares two."""
    finite = np.abs(values[np.isfinite(values)])
    top = float(finite.max(initial=0.0))
    share = max(map(abs, limits)) <= 1
    if (finite % 1 == 0).all():
        return 2 if share else None
    if share and top >= 0.095:
        return 2
    return min(6, max(0, 2 - math.floor(math.log10(top))))


def _curve_limits(limits: Any, values: np.ndarray, log: bool, zero: bool) -> tuple[float, float]:
    if limits is None:
        if log:
            good = values[np.isfinite(values) & (values > 0)]
            if not good.size:
                raise ValueError("a logarithmic axis needs positive values, got none")
            limits = (good.min() / 1.5, good.max() * 1.5)
        elif zero:
            limits = _own_range(values)
        else:
            good = values[np.isfinite(values)]
            limits = (good.min(), good.max()) if good.size else (0, 1)
            limits = limits if limits[0] < limits[1] else (limits[0] - 0.5, limits[0] + 0.5)
    low, high = _range(limits)
    if log and low <= 0:
        raise ValueError(f"limits of a logarithmic axis must be positive, got {limits!r}")
    return low, high


@dataclass(frozen=True, eq=False)
class Curve(Panel):
    """Named lines over one x. NaN leaves a gap. Lines named in `dashed` are predictions or guides.

    `marker` is the x of now: a rule, and each line's value there. `heads` colours the lines.
    """

    x: Any
    lines: Mapping[str, Any]
    _: KW_ONLY
    heads: Any = None
    dashed: Sequence[str] = ()
    marker: float | None = None
    log_x: bool = False
    log_y: bool = False
    limits: Any = None
    x_name: str = ""
    y_name: str = ""
    decimals: int | None = None

    kind: ClassVar[str] = "curve"

    def _check(self) -> None:
        x = _array(self.x, "x", (1,))
        if not x.size or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
            raise ValueError(f"x must be finite and increasing, got {self.x!r}")
        if self.log_x and x[0] <= 0:
            raise ValueError(f"x must be positive on a logarithmic axis, got {x[0]}")
        require_kind("lines", self.lines, Mapping)
        if not self.lines:
            raise ValueError("lines must hold at least one line, got none")
        lines = {_word(k): _array(v, f"lines[{say(k)}]", (1,)) for k, v in self.lines.items()}
        for name, y in lines.items():
            if y.shape != x.shape:
                raise ValueError(f"lines[{name!r}] must have {x.size} values, got {y.size}")
        heads = _heads(self.heads, len(lines), "line")
        dashed = tuple(map(_word, listed("dashed", self.dashed, "names of lines")))
        if unknown := set(dashed) - lines.keys():
            raise ValueError(f"dashed must name lines among {list(lines)}, got {say(unknown)}")
        stacked = np.stack(list(lines.values()))
        limits = _curve_limits(self.limits, stacked, self.log_y, zero=not self.log_y)
        self._set(x=x, lines=lines, heads=heads, limits=limits, dashed=dashed)

    @property
    def x_limits(self) -> tuple[float, float]:
        """The ends of the x axis."""
        first, last = float(self.x[0]), float(self.x[-1])
        if first < last:
            return first, last
        return (first / 2, first * 2) if self.log_x else (first - 0.5, first + 0.5)

    def now(self) -> int:
        """The index of x nearest to the marker, or of the last x."""
        if self.marker is None:
            return len(self.x) - 1
        return int(np.argmin(np.abs(self.x - self.marker)))

    @cached_property
    def said(self) -> list[list[str]]:
        """What every point of every line says: a layout is tried in several sizes."""
        return [[self.text(i, k) for k in range(len(self.x))] for i in range(len(self.lines))]

    def text(self, line: int, index: int) -> str:
        """What a point says: "measured at T = 512: 3.2"."""
        require_whole("line", line, 0, len(self.lines) - 1)
        require_whole("index", index, 0, len(self.x) - 1)
        name = list(self.lines)[line]
        at = f"{self.x_name} = " if self.x_name else "x = "
        return (
            f"{name} at {at}{number(self.x[index])}: "
            f"{number(self.lines[name][index], self.decimals)}"
        )

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        """Where each line is now: all of them, whatever `n`."""
        require_whole("n", n, 0, MOST)
        said = (self.text(i, self.now()).rsplit(": ", 1) for i in range(len(self.lines)))
        return [(where, value) for where, value in said]

    def _describe(self) -> str:
        over = f" over {self.x_name}" if self.x_name else ""
        what = f" of {self.y_name}" if self.y_name else ""
        now = "; ".join(self.text(i, self.now()) for i in range(min(4, len(self.lines))))
        return f"{len(self.lines)} curve{'s' * (len(self.lines) > 1)}{what}{over}; {now}"


@dataclass(frozen=True, eq=False)
class Walk(Panel):
    """Arrows in a plane, each from the tip of the one before, and a dashed one: their sum.

    `steps` is (n, 2), the arrow of head 0 first. `frame` is (left, right, lowest, highest): what
    of the plane is shown.
    """

    steps: Any
    frame: Any
    _: KW_ONLY
    x_name: str = ""

    kind: ClassVar[str] = "walk"

    def _check(self) -> None:
        steps, frame = _array(self.steps, "steps", (2,)), _array(self.frame, "frame", (1,))
        if steps.shape[1] != 2 or not len(steps) or not np.isfinite(steps).all():
            raise ValueError(f"steps must be finite and of shape (n, 2), got {steps.shape}")
        if frame.shape != (4,):
            raise ValueError(f"frame must be four numbers, got {len(frame)}")
        sides = [_range(frame[:2], "frame[:2]"), _range(frame[2:], "frame[2:]")]
        self._set(steps=steps, frame=tuple(end for side in sides for end in side))

    def corners(self) -> np.ndarray:
        """(n + 1, 2): where the arrows begin and end."""
        return np.concatenate([np.zeros((1, 2)), self.steps.cumsum(axis=0)])

    def text(self, step: int) -> str:
        """What an arrow says: "head 3: 1.03 along, .94 down"."""
        require_whole("step", step, 0, len(self.steps) - 1)
        along, up = self.steps[step]
        side = "up" if up >= 0 else "down"
        return f"head {step}: {number(along, 2)} along, {number(abs(up), 2)} {side}"

    def largest(self, n: int = 3) -> list[tuple[str, str]]:
        require_whole("n", n, 0, MOST)
        order = np.argsort(-np.linalg.norm(self.steps, axis=1), kind="stable")[:n]
        return [(where, value) for i in order for where, value in [self.text(int(i)).split(": ")]]

    def _describe(self) -> str:
        along, up = self.corners()[-1]
        return f"{len(self.steps)} arrows, tip to tail, to ({number(along, 2)}, {number(up, 2)})"


@dataclass(frozen=True, eq=False)
class Tiles(Panel):
    """Cells of memory or of a tensor: a strip or a grid of labelled, coloured cells.

    `labels` is (rows, columns) of text, or one row; None leaves a hole. `heads` colours each cell
    (-1 or None: no colour). Cells of one number in `links`, in any panel of the scene, light up
    together. `says` is what a cell reads when it is pointed at; `wrong` cells (True) are marked as
    faulty. A thin gap follows every `break_rows` rows and `break_columns` columns. `path` is the
    order in which the cells of a strip are read. `copied` cells come from the tiles drawn before.
    """

    labels: Any
    _: KW_ONLY
    heads: Any = None
    links: Any = None
    says: Any = None
    wrong: Any = None
    rows: Any = None
    columns: Any = None
    row_name: str = ""
    column_name: str = ""
    break_rows: int = 0
    break_columns: int = 0
    path: Sequence[int] = ()
    copied: bool = False

    kind: ClassVar[str] = "tiles"

    def _check(self) -> None:
        labels = _grid(self.labels, "labels")
        shape = (len(labels), len(labels[0]))
        if not shape[1]:
            raise ValueError("labels must have at least one cell, got none")

        def given(name: str, default: Any) -> list[list[Any]]:
            grid = getattr(self, name)
            if grid is None:
                return [[default] * shape[1]] * shape[0]
            grid = _grid(grid, name)
            if (len(grid), len(grid[0])) != shape:
                got = (len(grid), len(grid[0]))
                raise ValueError(f"{name} must have the shape of labels {shape}, got {got}")
            return [[default if cell is None else cell for cell in row] for row in grid]

        path = tuple(listed_ints("path", self.path))
        if path and (shape[0] > 1 or not all(is_whole(c, 0, shape[1] - 1) for c in path)):
            raise ValueError(f"path must be cells of one row of {shape[1]}, got {say(path)}")
        words = tuple(tuple(None if c is None else _word(c) for c in row) for row in labels)
        says = words if self.says is None else given("says", "")
        self._set(
            labels=words,
            path=path,
            says=tuple(tuple("" if c is None else _word(c) for c in row) for row in says),
            heads=_array(given("heads", -1), "heads", (2,), int),
            links=_array(given("links", -1), "links", (2,), int),
            wrong=_array(given("wrong", False), "wrong", (2,), bool),
            rows=() if self.rows is None else _labels(self.rows, "rows", shape[0]),
            columns=() if self.columns is None else _labels(self.columns, "columns", shape[1]),
        )

    def text(self, row: int, column: int) -> str:
        """What cell (row, column) reads."""
        require_whole("row", row, 0, len(self.labels) - 1)
        require_whole("column", column, 0, len(self.labels[0]) - 1)
        return self.says[row][column]

    def _describe(self) -> str:
        n_rows, n_columns = len(self.labels), len(self.labels[0])
        cells = [c for row in self.labels for c in row if c is not None]
        shown = ", ".join(cells[:6]) + (" …" if len(cells) > 6 else "")
        size = f"{n_columns} cells in a row" if n_rows == 1 else f"{n_rows} × {n_columns} cells"
        faulty = f"; {int(self.wrong.sum())} in the wrong place" if self.wrong.any() else ""
        return f"{size}: {shown}{faulty}"


def _grid(cells: Any, name: str) -> list[list[Any]]:
    """`cells` as a list of rows of equal length; one flat row becomes a list of one row."""
    if hasattr(cells, "tolist"):
        cells = cells.tolist()
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(f"{name} must be rows of cells, got {say(cells)}")
    rows = list(cells)
    if rows and (isinstance(rows[0], str) or not isinstance(rows[0], Iterable)):
        rows = [rows]
    rows = [listed(f"{name}[{i}]", row, "cells") for i, row in enumerate(rows)]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(f"{name} must be rows of equal length, got {[len(row) for row in rows]}")
    return rows


@dataclass(frozen=True, eq=False)
class Table(Panel):
    """A few rows of words and numbers, already written as text. `strong` rows are emphasised."""

    rows: Sequence[Sequence[Any]]
    header: Sequence[Any] = ()
    _: KW_ONLY
    strong: Sequence[int] = ()

    kind: ClassVar[str] = "table"

    def _check(self) -> None:
        rows = tuple(
            tuple(map(_word, listed(f"rows[{i}]", row, "cells")))
            for i, row in enumerate(listed("rows", self.rows, "rows"))
        )
        header = tuple(map(_word, listed("header", self.header, "cells")))
        widths = {len(row) for row in (*rows, *([header] if header else []))}
        if len(widths) != 1 or 0 in widths:
            raise ValueError(f"rows and header must have equal lengths, got {sorted(widths)}")
        self._set(rows=rows, header=header, strong=tuple(listed_ints("strong", self.strong)))

    def _describe(self) -> str:
        return "; ".join(", ".join(row) for row in self.rows[:6])


@dataclass(frozen=True, eq=False)
class Stack(Panel):
    """Rows of panels that take the place of one panel in a row."""

    panels: Any

    kind: ClassVar[str] = "stack"

    def _check(self) -> None:
        rows = tuple(tuple(_several(row)) for row in _several(self.panels))
        if not rows or not all(rows) or not all(isinstance(p, Panel) for row in rows for p in row):
            raise TypeError("panels must be a list of rows of panels")
        self._set(panels=rows)

    def _describe(self) -> str:
        return _kinds(_flat(self.panels))


@dataclass(frozen=True)
class Box:
    """A box of a diagram: its place in the grid, what it does, and the shape that leaves it.

    It is `span` columns wide, and drawn `heads` times behind itself where each head has its own.
    `role`, one of `ROLES`, is what it makes: a square in the box, and the arrows from it, say so.
    """

    row: float
    column: float
    text: str
    shape: str = ""
    span: float = 1.0
    heads: int = 0
    role: str = ""

    def __post_init__(self) -> None:
        require_text(text=self.text, shape=self.shape)
        require_one_of("role", self.role, ("", *ROLES))
        require_whole("heads", self.heads, 0, len(HEADS))
        for name in ("row", "column", "span"):
            value = float(_array(getattr(self, name), name, (0,)))
            if not 0 <= value <= 100:
                raise ValueError(f"{name} must be 0 to 100, got {say(value)}")
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Diagram(Panel):
    """Boxes in a grid, rows downwards, and arrows that go straight down from one to another.

    `boxes` are named; `arrows` are pairs of names. Pairs in `around` are drawn dashed, round the
    left side. `notes` stand at the right of their rows.
    """

    boxes: Any
    arrows: Any = ()
    _: KW_ONLY
    around: Any = ()
    notes: Any = ()

    kind: ClassVar[str] = "diagram"

    def _check(self) -> None:
        if not isinstance(self.boxes, Mapping) or not self.boxes:
            raise TypeError(f"boxes must be named boxes, at least one, got {say(self.boxes)}")
        for name, box in self.boxes.items():
            require_kind(f"boxes[{name!r}]", box, Box)
        for name in ("arrows", "around"):
            pairs = tuple(
                tuple(listed(f"{name}[{i}]", pair, "two names"))
                for i, pair in enumerate(listed(name, getattr(self, name), "pairs of names"))
            )
            for pair in pairs:
                if len(pair) != 2 or not all(isinstance(n, str) and n in self.boxes for n in pair):
                    raise ValueError(f"{name} must be pairs of the boxes' names, got {say(pair)}")
            self._set(**{name: pairs})
        for pair in self.arrows:
            upper, lower = (self.boxes[name] for name in pair)
            if self._meet(*pair) is None or upper.row >= lower.row:
                raise ValueError(f"an arrow must lead straight down, got {say(pair)}")
        notes = tuple(map(_word, listed("notes", self.notes, "notes")))
        self._set(boxes=dict(self.boxes), notes=notes)

    def _meet(self, upper: str, lower: str) -> float | None:
        """The column in which an arrow between two boxes runs, if both reach so far."""
        pair = self.boxes[upper], self.boxes[lower]
        middles = {box.column + box.span / 2 for box in pair}
        inside = [m for m in middles if all(b.column < m < b.column + b.span for b in pair)]
        return max(
            inside, key=lambda m: sum(m == b.column + b.span / 2 for b in pair), default=None
        )

    def _describe(self) -> str:
        steps = sorted(self.boxes.values(), key=lambda box: (box.row, box.column))
        said = (f"{box.text} {box.shape}".strip() for box in steps)
        return f"{len(steps)} boxes, from top to bottom: {', '.join(said)}"


@dataclass(frozen=True, eq=False)
class Scene:
    """Panels in rows, with a title, one sentence that says what they show, and words for them all.

    `panels` is one panel, a flat list (`columns` to a row) or a list of rows.
    """

    panels: Any
    _: KW_ONLY
    columns: int | None = None
    title: str = ""
    caption: str = ""
    alt: str = ""

    def __post_init__(self) -> None:
        require_text(title=self.title, caption=self.caption, alt=self.alt)
        if self.columns is not None:
            require_positive_int("columns", self.columns)
        one = isinstance(self.panels, Panel)
        given: list[Any] = [self.panels] if one else _several(self.panels)
        if given and all(isinstance(p, Panel) for p in given):
            width = min(len(given), self.columns or 4) or 1
            width = math.ceil(len(given) / math.ceil(len(given) / width)) or 1  # 3 + 3, not 4 + 2
            given = [given[i : i + width] for i in range(0, len(given), width)]
        rows = tuple(tuple(_several(row)) for row in given)
        if not rows or not all(rows) or not all(isinstance(p, Panel) for row in rows for p in row):
            raise TypeError("panels must be a panel, a list of panels or a list of rows of panels")
        alt = self.alt
        if not alt:
            flat = _flat(rows)
            seen = flat[0].alt if len(flat) == 1 else _kinds(flat)
            alt = f"{self.title}: {seen}" if self.title and self.title != seen else seen
            alt = f"{alt.rstrip('.')}."
        for name, value in (("panels", rows), ("alt", alt)):
            object.__setattr__(self, name, value)

    def flat(self) -> list[Panel]:
        """Every panel, row by row."""
        return _flat(self.panels)

    def text(self) -> list[tuple[str, str, str]]:
        """The most telling values in words: (panel, where, value)."""
        n = 3 if len(self.flat()) > 2 else 5
        return [(p.title, where, said) for p in self.flat() for where, said in p.largest(n)]


_KINDS = {
    "heatmap": "heatmap", "bars": "bar chart", "curve": "line chart", "tiles": "cell grid",
    "table": "table", "diagram": "diagram", "words": "sentence with ribbons",
    "walk": "walk of arrows", "flow": "flow",
}  # fmt: skip


def _flat(rows: Iterable[Iterable[Panel]]) -> list[Panel]:
    """Every panel in rows, those in stacks included."""
    out: list[Panel] = []
    for row in rows:
        for panel in row:
            out += _flat(panel.panels) if isinstance(panel, Stack) else [panel]
    return out


def _kinds(panels: Sequence[Panel]) -> str:
    """What is seen, in one sentence: "2 heatmaps and 1 table: head 0; head 1; links"."""
    kinds = [_KINDS[panel.kind] for panel in panels]
    said = [f"{kinds.count(k)} {k}{'s' * (kinds.count(k) > 1)}" for k in dict.fromkeys(kinds)]
    counts = " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))
    titles = list(dict.fromkeys(panel.title for panel in panels if panel.title))
    shown = [*titles[:3], "…", titles[-1]] if len(titles) > 5 else titles
    return f"{counts}: {'; '.join(shown)}" if shown else counts


def _several(panels: Any) -> list[Any]:
    return list(panels) if isinstance(panels, list | tuple) else []


def shares(panel: Heatmap) -> np.ndarray:
    """Where each value lies in its map: (rows, columns) of indices 0 to 255, ends clipped."""
    low, high = panel.limits
    if panel.per_row:
        seen = np.where(panel.blocked | ~np.isfinite(panel.values), np.nan, panel.values)
        top = np.nan_to_num(np.fmax.reduce(np.abs(seen), axis=1), nan=1.0)[:, None]
        top = np.where(top > 0, top, 1.0)
        low, high = (0 * top if panel.colours == "sequential" else -top), top
    with np.errstate(invalid="ignore"):
        share = np.clip((panel.values - low) / (high - low), 0, 1)
    return np.nan_to_num(share * (RAMP - 1)).round().astype(int)


def scene_of(thing: Any) -> Scene:
    """`thing` as a scene: a scene itself, a panel, or panels."""
    return thing if isinstance(thing, Scene) else Scene(thing)
