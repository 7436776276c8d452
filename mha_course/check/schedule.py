"""When an exercise is asked for again: at growing intervals, as long as it is known by heart.

The rule is that of Leitner's boxes (S. Leitner, So lernt man lernen, 1972): what is known moves a
box further and waits longer, what is not goes back to the first and comes again the next day. That
a box doubles the wait, and that an answer mended after a message stays in its box, is ours.
"""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from itertools import groupby
from typing import NamedTuple

from mha_course.check.journal import Attempt

FARTHEST = 6  # boxes: the longest wait is 64 days


class Due(NamedTuple):
    """An exercise, and the day from which it is due.

    `box` counts how often it was known in a row; `sittings`, the days on which practice asked for
    it; `known`, those of them on which the first try was right; `slips` are the last day's.
    """

    name: str
    day: date
    box: int = 0
    sittings: int = 0
    known: int = 0
    slips: tuple[str, ...] = ()


def due(attempts: Iterable[Attempt], states: Mapping[str, str], course: list[str]) -> list[Due]:
    """What has been met, what comes first in front; of the course's order where nothing decides.

    First what was never solved in practice, then what is due longest. Of two that are due on one
    day the one comes first in which a slip was made.
    """
    tried = list(attempts)
    met = [n for n in course if n in states or any(a.name == n for a in tried)]
    every = [_due(name, [a for a in tried if a.name == name]) for name in met]
    return sorted(every, key=lambda d: (d.box > 0, d.day, not d.slips))  # else in course order


def _due(name: str, attempts: list[Attempt]) -> Due:
    one = Due(name, date.min)
    for day, of_day in groupby(attempts, lambda attempt: attempt.day):
        tried = [*of_day]
        box, asked = one.box, [attempt.passed for attempt in tried if attempt.asked]
        if asked:
            box = min(box + 1, FARTHEST) if asked[0] else box * any(asked)
        known, slips = one.known + any(asked[:1]), dict.fromkeys(s for a in tried for s in a.slips)
        due_on = day + timedelta(days=2**box)
        one = Due(name, due_on, box, one.sittings + bool(asked), known, tuple(slips))
    return one
