"""When an exercise is asked for again: at growing intervals, as long as it is known by heart.

The rule is that of Leitner's boxes (S. Leitner, So lernt man lernen, 1972): what is known moves a
box further and waits longer, what is not goes back to the first and comes again the next day. That
a box doubles the wait, and that an answer mended after a message stays in its box, is ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby

from mha_course.check.journal import Attempt

FARTHEST = 6  # boxes: the longest wait is 64 days


@dataclass(frozen=True)
class Due:
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
    known: dict[str, list[Attempt]] = {name: [] for name in course if name in states}
    for attempt in attempts:
        if attempt.name in course:
            known.setdefault(attempt.name, []).append(attempt)
    found = [_due(name, tried) for name, tried in known.items()]
    return sorted(found, key=lambda d: (d.box > 0, d.day, not d.slips, course.index(d.name)))


def _due(name: str, attempts: list[Attempt]) -> Due:
    box = sittings = known = 0
    days = [(day, [*tried]) for day, tried in groupby(attempts, lambda attempt: attempt.day)]
    for _, tried in days:
        asked = [attempt for attempt in tried if attempt.asked]
        if not asked:
            continue
        sittings += 1
        if asked[0].passed:
            known += 1
            box = min(box + 1, FARTHEST)
        elif not any(attempt.passed for attempt in asked):
            box = 0
    if not days:
        return Due(name, date.min)
    last, tried = days[-1]
    slips = tuple(dict.fromkeys(slip for attempt in tried for slip in attempt.slips))
    return Due(name, last + timedelta(days=2**box), box, sittings, known, slips)
