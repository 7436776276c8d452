"""When an exercise is asked for again: at growing intervals, as long as it is known by heart.

The rule is that of Leitner's boxes (S. Leitner, So lernt man lernen, 1972): what is known moves on
by a box and waits longer, what is not returns to the first, and the next day. That each box doubles
the wait, and that an answer mended after a message keeps its box, are ours.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from itertools import groupby
from typing import NamedTuple

from mha_course.practice.journal import Attempt

FARTHEST = 6  # boxes: the longest wait is 64 days


class Due(NamedTuple):
    """An exercise, and the day from which it is due."""

    name: str
    day: date
    box: int = 0  # how often it was known in a row
    sittings: int = 0  # days on which practice asked for it
    known: int = 0  # those of them on which the first try was right
    slipped: bool = False  # on the last day


def due(attempts: list[Attempt], states: Mapping[str, str], course: list[str]) -> list[Due]:
    """What of `course`, exercises or questions, was tried or solved: first what never was known in
    practice, then what is due longest; of two that are due on one day first the one with a slip."""
    tries = {name: [a for a in attempts if a.name == name] for name in course}
    met = [_due(name, tried) for name, tried in tries.items() if tried or name in states]
    return sorted(met, key=lambda d: (d.box > 0, d.day, not d.slipped))  # else in course order


def _due(name: str, attempts: list[Attempt]) -> Due:
    box = sittings = known = 0
    for _, of_day in groupby((a for a in attempts if a.asked), lambda attempt: attempt.day):
        first, *more = [attempt.passed for attempt in of_day]
        box = min(box + 1, FARTHEST) if first else box * any(more)
        sittings, known = sittings + 1, known + first
    day = attempts[-1].day + timedelta(days=2**box) if attempts else date.min
    slipped = any(a.slips for a in attempts if a.day == attempts[-1].day)
    return Due(name, day, box, sittings, known, slipped)
