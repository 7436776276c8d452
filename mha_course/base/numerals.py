"""Numbers as both renderers write them and readers type them; round positions on an axis."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache


def _fixed(value: float, decimals: int) -> str:
    """`value` with so many decimals, halves away from zero (as JavaScript's toFixed does)."""
    step = Decimal(1).scaleb(-decimals)
    return str(Decimal(float(value)).quantize(step, ROUND_HALF_UP))


def number(value: float, decimals: int | None = None) -> str:
    """`value` as both renderers write it: ".85", "1.00", "12.3", "10k", "10.2k", "−∞", "NaN".

    Without `decimals`: whole numbers as they are, otherwise about three significant digits.
    """
    return _said(float(value), decimals)


def counted(n: int, what: str) -> str:
    """ "1 head", "12 heads", "8,192 tokens"."""
    return f"{n:,} {what}{'s' * (n != 1)}"


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


def axis_end(value: float) -> float:
    """1, 2 or 5 times a power of ten, the next from `value` on: an axis that seldom changes."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


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


def listed(option: str, text: str, numbers: Mapping[int, str], named: Sequence[str]) -> list[str]:
    """What a list like "1-6, 11" asks for, also by `named`, and in that order.

    Raises:
        ValueError: a word of it, or one of its numbers, stands for nothing.
    """
    asked = set[str]()
    for word in re.split(r"[,;\s]+", text.strip(",; \t\r\n")):
        ends = [*map(int, word.split("-"))] if re.fullmatch(r"\d{1,3}(-\d{1,3})?", word) else []
        span = range(ends[0], ends[-1] + 1) if ends else ()
        found = {numbers.get(number, "") for number in span} or {word}
        if not found <= {*named}:
            takes = f"{option} takes a list, as in 1-6,11 or {named[0]}"
            raise ValueError(f"{takes}; got {word or 'nothing'}.")
        asked |= found
    return [name for name in named if name in asked]
