"""A final test that was handed in: all answers to a question below each other, beside its key.

Code is worth what its check found, and a bare number or choice what the key says; words, what the
teacher types into the page, or into the table that it saves. Equal answers are one, and whose they
are is folded.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mha_course.base.disk import free_path
from mha_course.base.numerals import counted
from mha_course.classroom.files import Roster, age, table_in
from mha_course.classroom.final_test import A_STEP, Part
from mha_course.classroom.grading import ALL, DONE, OPEN, TRIED, Row, Submission
from mha_course.classroom.pages import hand_back, no_formula, number, page, points, table
from mha_lesson.refusals import say

FILE = "words.csv"
BARE = re.compile(r"[(*_ ]*([-−]?\d*(?:,\d{3})*[.,]?\d+)[)*_. ]*")  # a number, and nothing else
HINT = re.compile(r"(\**)Your answer:(?:\1|(.*)\1\s*$)", re.S)  # some type inside its stars
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(?:[.,]\d{3})+")  # 4,000, or 4.000 as many languages part it
Key = tuple[str, ...]
HEAD = ["question", "learner", "answer", "of", "by the check", "points"]


class Answer(NamedTuple):
    """What a learner wrote below a question; points are None where nobody has said how many."""

    question: int
    learner: str
    text: str
    by_check: float | None
    says: str
    typed: float | None

    @property
    def points(self) -> float | None:
        return self.by_check if self.typed is None else self.typed


def below(texts: Sequence[str], test: Sequence[Part]) -> list[str]:
    """What stands below each question in the cells of a notebook, or behind it in its own cell."""
    found, at = [""] * len(test), -1
    for text in texts:
        for i, part in enumerate(test):
            if part.asks in text:
                at, text = i, text.partition(part.asks)[2].replace(part.listed, "")
        if at >= 0:
            found[at] += HINT.sub(r"\2", f"\n\n{text}").rstrip()
    return [text.strip() for text in found]


def answers(rows: Sequence[Row], test: Sequence[Part], typed: dict[Key, float]) -> list[Answer]:
    """Those of all who handed in, by question, with the points that somebody has typed."""
    made = []
    for row in (row for row in rows if row.submissions):
        when = {h.file: n for n, h in enumerate(sorted(row.learner.notebooks, key=age))}
        versions = sorted(row.submissions, key=lambda s: when.get(s.file, 0))
        texts = [below(submission.texts, test) for submission in versions]
        asked = "\n".join(text for submission in row.submissions for text in submission.texts)
        heads = [part.cell(n).removesuffix(part.listed).rstrip() for n, part in enumerate(test, 1)]
        if 2 * sum(head in asked for head in heads) < len(test):
            continue  # another test, or a file that cannot be read: no 0 without a look
        for n, part in enumerate(test, 1):
            given, unsaid = [some[n - 1] for some in texts], ("", part.stub)
            text = next((one for one in reversed(given) if one not in unsaid), given[-1])
            by_check, says = _bare(text, part) if text not in unsaid else 0.0, ""
            best = row.best(part.name)  # else it may stand there under another name
            if best and best.states[part.name] != OPEN:
                text, says = best.code.get(part.name, ""), best.words.get(part.name, "")
                by_check = _judged(best, part)
            if not by_check and heads[n - 1] not in asked:
                by_check = None
            known = typed.get(_key(n, row.learner.name, text))
            made.append(Answer(n, row.learner.name, text, by_check, says, known))
    return sorted(made, key=lambda answer: answer.question)


def _judged(best: Submission, part: Part) -> float | None:
    """What code is worth: less for each step that its check names as wrong."""
    state, slips = best.states[part.name], {slip.key for slip in ALL[part.name].slips}
    if state == DONE:
        return float(part.points)
    if state == TRIED and (named := best.slips.get(part.name)) and {*named} <= slips:
        return float(max(0, part.points - A_STEP * len(named)))
    return None


def _bare(text: str, part: Part) -> float | None:
    """What a choice or a number is worth, where the answer is no more; a comma may be a point."""
    if not part.right or not (said := BARE.fullmatch(text)):
        return None
    if part.choices:
        right = said[1].isdecimal() and part.choices.index(part.right) + 1 == int(said[1])
    else:
        written, number = said[1].replace("−", "-"), float(part.right)
        readings = {written.replace(",", ".")}
        if THOUSANDS.fullmatch(written):
            readings.add(re.sub("[.,]", "", written))
        numbers = [float(reading) for reading in readings if reading.count(".") < 2]
        near, nearly = (0, 0) if number.is_integer() else (1e-3, 0.05)
        right = any(math.isclose(n, number, rel_tol=near) for n in numbers)
        if not right and any(math.isclose(n, number, rel_tol=nearly) for n in numbers):
            return None  # to two digits, perhaps
    return float(part.points * right)


def _key(*cells: object) -> Key:
    """A question, a learner and an answer, however a spreadsheet has broken its lines."""
    return tuple(" ".join(str(no_formula(cell)).split()) for cell in cells)


def typed_in(out: Path, test: Sequence[Part]) -> dict[Key, float]:
    """The points that somebody has typed into the table in this folder, if it is there.

    Raises:
        ValueError: it is no such table, or these are no points.
    """
    path = out / FILE
    head, *lines = (table_in(path) if path.exists() else []) or [HEAD]
    if head != HEAD or any(len(line) != len(HEAD) for line in lines):
        raise ValueError(f"{path} should have the columns {', '.join(HEAD)}; got {say(head)}.")
    found, of = {}, {str(n): part.points for n, part in enumerate(test, 1)}
    for n, who, text, *_, said in (line for line in lines if line[-1].strip()):
        value = float(said.replace(",", ".")) if re.fullmatch(r" *\d+([.,]\d+)? *", said) else -1
        if not (most := of.get(n, 0)) >= value >= 0:
            got = f"got {say(said)} ({who})"
            raise ValueError(f"{path}: question {n} gives 0 to {most} points; {got}.")
        found[_key(n, who, text)] = value
    return found


def save(
    rows: Sequence[Row], test: Sequence[Part], typed: dict[Key, float], out: Path, roster: Roster
) -> str:
    """Writes the page, its table, and `points.csv`; says what is still to be done."""
    found = answers(rows, test, typed)
    todo = []
    if left := sum(answer.points is None for answer in found):
        todo = [f"{counted(left, 'answer')} still without points: {out / 'words.html'}"]
    if typed.keys() - {_key(*answer[:3]) for answer in found}:
        kept = (out / FILE).rename(free_path(out / FILE))
        why = "a spreadsheet rewrites 1/8 and √: type these on the page"
        todo.append(f"Points that were typed for answers which are not there now ({why}): {kept}")
    unasked = {answer.learner for answer in found if not answer.text and answer.by_check is None}
    marked = {answer.learner for answer in found} - unasked
    if left_out := [r.learner.name for r in rows if r.submissions and r.learner.name not in marked]:
        why = "Another test, not all of its questions, or not readable"
        todo.append(f"{why}; no points there, look: {'; '.join(left_out)}")
    lines = [
        [*a[:3], test[a.question - 1].points, number(a.by_check), number(a.typed)] for a in found
    ]
    table(out / FILE, HEAD, lines)
    equal: dict[tuple[int, str], list[Answer]] = {}
    for answer in found:
        equal.setdefault((answer.question, answer.text), []).append(answer)
    places = {key: i for i, key in enumerate(equal)}
    placed = [[*line, places[a.question, a.text]] for line, a in zip(lines, found, strict=True)]
    given = {"title": "Answers by question", "test": test, "head": HEAD, "rows": placed}
    last = todo[-1] if left_out else ""
    page(out / "words.html", **given, left_out=last, groups=[*enumerate(equal.values())])
    of = {r.learner.name: [a.points for a in found if a.learner == r.learner.name] for r in rows}
    columns = {f"question {n}": part.points for n, part in enumerate(test, 1)}
    marks = {name: [*zip(parts, columns.values(), strict=False)] for name, parts in of.items()}
    hand_back(rows, out, marks)
    points(out, roster, columns, {name: parts or [None] * len(test) for name, parts in of.items()})
    return "\n".join(todo)
