"""The first screen of a teacher: answers to look at, and what to teach again."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mha_course.classroom.grading import ALL, DONE, OPEN, TRIED, UNKNOWN, Row
from mha_course.classroom.reading import solutions
from mha_course.classroom.signs import skeleton

OTHERS = "others"  # the key of what no slip of a check names
OTHERS_DO = "Other mistakes, each of its own kind: read what the check said."
ALIKE = "The same code, names and comments aside; all keep their ✓."
ALIKE_SOLUTION = "The course's folded solution, names and comments aside; all keep their ✓."
SHOWS_RIGHT = (
    "It shows ✓, and judged anew it is not right. Honest reasons: the answer was edited after its "
    "check, it needs what another cell had left in memory, or the course was an older one."
)
PATCHED = "It changes the check, or reaches into it: what it shows counts for nothing."
EQUAL = "The same file, byte for byte, with answers in it."


@dataclass
class Look:
    """Answers, or files, that somebody has to read: why, and learner → code."""

    exercise: str  # empty for a file
    why: str
    answers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Slip:
    """A mistake that the checks named, and the answers that make it: learner → code."""

    exercise: str
    key: str
    does: str
    asks: str
    answers: dict[str, str]

    @property
    def shared(self) -> bool:
        """Whether it is for the whole class: named, and of several learners."""
        return self.key != OTHERS and len(self.answers) > 1

    @property
    def shortest(self) -> str:
        """The one to show, without its learner's name."""
        return min(filter(None, self.answers.values()), key=len, default="")


def looks(rows: list[Row]) -> list[Look]:
    """What has no verdict, then what is alike, by exercise and reason, in the course's order."""
    found: dict[tuple[str, str], Look] = {}
    for exercise, why, learner, code in _unclear(rows):
        found.setdefault((exercise, why), Look(exercise, why)).answers[learner] = code
    order = ("", *ALL)
    unclear = sorted(found.values(), key=lambda look: order.index(look.exercise))
    alike = [*_equal(rows), *_alike(rows)]
    return unclear + sorted(alike, key=lambda look: order.index(look.exercise))


def _unclear(rows: list[Row]) -> Iterator[tuple[str, str, str, str]]:
    for row in rows:
        for submission in row.submissions:
            if submission.trouble:
                yield "", submission.trouble, row.learner.name, submission.file
            if submission.patches:
                yield "", PATCHED, row.learner.name, f"{submission.file}\n\n{submission.patches}"
        for file, why in row.learner.others:
            if "counts" not in why and why != "not assigned":
                yield "", why, row.learner.name, file
        for name in row.names:
            best = row.best(name)
            if best and best.states[name] == UNKNOWN and not best.trouble:
                yield name, best.words.get(name, ""), row.learner.name, best.code.get(name, "")
            if best and best.states[name] in (TRIED, OPEN) and (shown := best.shows.get(name)):
                judged = best.words.get(name, "")
                both = f"{best.code.get(name, '')}\n\nShown:\n{shown}\n\nJudged:\n{judged}"
                yield name, SHOWS_RIGHT, row.learner.name, both


def _equal(rows: list[Row]) -> Iterator[Look]:
    """Files that several learners handed in; one that nobody has worked in is the course's."""
    same: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        for submission in row.submissions:
            if {DONE, TRIED} & {*submission.states.values()}:
                same[submission.digest][row.learner.name] = submission.file
    return (Look("", EQUAL, files) for digest, files in same.items() if digest and len(files) > 1)


def _alike(rows: list[Row]) -> Iterator[Look]:
    """Right answers that are long, and one another's but for names and comments."""
    same: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in rows:
        for name in row.names:
            best = row.best(name)
            if best and best.states[name] == DONE and (code := skeleton(best.code.get(name, ""))):
                same[name, code][row.learner.name] = best.code[name]
    published = {skeleton(code) for code in solutions()}
    for (name, code), answers in same.items():
        if len(answers) > 1:
            yield Look(name, ALIKE_SOLUTION if code in published else ALIKE, answers)


def slips(rows: list[Row]) -> list[Slip]:
    """Every ✗ of the class in a group, the most frequent first, those without a name last.

    A learner counts once in each.
    """
    # A submission can say anything: what no check says is left out.
    known = {(e.name, s.key): (s.does, s.asks) for e in ALL.values() for s in e.slips}
    by_slip: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in rows:
        for name in row.names:
            best = row.best(name)
            if best and best.states[name] == TRIED:
                keys = [key for key in best.slips.get(name, []) if (name, key) in known]
                for key in keys or [OTHERS]:
                    by_slip[name, key][row.learner.name] = best.code.get(name, "")
    order = [*ALL]
    groups = [
        Slip(*pair, *known.get(pair, (OTHERS_DO, "")), answers) for pair, answers in by_slip.items()
    ]
    return sorted(
        groups, key=lambda s: (s.key == OTHERS, -len(s.answers), order.index(s.exercise), s.key)
    )
