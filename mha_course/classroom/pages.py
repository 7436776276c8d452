"""What the teacher reads: tables for a spreadsheet, a page of the class and one a learner."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any

from jinja2 import Environment

from mha_course.base.disk import write_whole
from mha_course.base.numerals import counted
from mha_course.classroom.files import Roster
from mha_course.classroom.grading import ALL, DONE, EXERCISES, MISSING, OPEN, TRIED, UNKNOWN, Row
from mha_course.classroom.review import looks, slips
from mha_course.classroom.sandbox import warning
from mha_course.collection.questions import questions
from mha_course.pages.worksheets import templates

SHOWN = {  # state → its sign, what it means, and what its learner is told
    DONE: (
        "✓",
        "solved: judged anew, values compared; the answer stands behind the sign",
        "solved",
    ),
    TRIED: ("✗", "tried, not right yet", "not right yet"),
    OPEN: ("·", "open: handed in, not attempted", "still open"),
    UNKNOWN: ("?", "no verdict: look at it; the reason stands with it", "has to be looked at"),
    MISSING: ("–", "not handed in", "not handed in"),
}
SIGNS, MEANS, TO_LEARNERS = ({state: row[i] for state, row in SHOWN.items()} for i in range(3))
MOST_GROUPS = 8  # that a terminal names; the page has all
LABELS = {n: n for n in ALL} | {e.name: f"{e.number} {e.name}" for e in EXERCISES if e.number}
Marks = Sequence[tuple[float | None, int]]  # of a test, by question: the points, and the most


def guesses(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Question -> choice -> how many learners opened it first; without their names."""
    guessed = [{n: c for s in row.submissions for n, c in s.guesses.items()} for row in rows]
    counts = {
        name: {label: sum(one.get(name) == label for one in guessed) for label in question.choices}
        for name, question in questions().items()
    }
    return {name: count for name, count in counts.items() if any(count.values())}


def save(rows: list[Row], out: Path, roster: Roster | None = None) -> None:
    """Writes the tables and pages into the folder `out`."""
    names = hand_back(rows, out, {})
    asked, books = rows[0].names, rows[0].books
    per_book = [f"{book} (of {len(names)})" for book, names in books.items()]
    solved, answers, handed_in = list[list[object]](), list[list[object]](), list[list[object]]()
    for r in rows:
        who, rest = r.learner.name, [r.done, sandbox([r]), "; ".join(r.notes)]
        solved.append([who, *map(r.state, asked), *r.points.values(), *rest])
        for name in asked:
            if (best := r.best(name)) and name in best.code:
                said = " ".join(best.slips.get(name, [])), best.words.get(name, "")
                answers.append([who, name, r.state(name), *said, best.code[name], best.file])
        for s in r.submissions:
            handed_in.append([who, s.file, s.notebook, s.seconds, s.sandbox, s.note])
        handed_in += [[who, file, "", "", "", why] for file, why in r.learner.others]
    table(out / "solved.csv", ["learner", *asked, *per_book, "all", "sandbox", "notes"], solved)
    head = ["learner", "exercise", "state", "slips", "what the check said", "answer", "file"]
    table(out / "answers.csv", head, answers)
    head = ["learner", "file", "notebook", "seconds", "sandbox", "note"]
    table(out / "handed_in.csv", head, handed_in)
    head = ["exercise", "slip", "what the code does", "a question", "learners", "who"]
    who_by = [(s, [len(s.answers), "; ".join(s.answers)]) for s in slips(rows)]
    lines = [[s.exercise, s.key, s.does, s.asks, *count] for s, count in who_by]
    table(out / "slips.csv", head, lines)
    opened = [(name, pair) for name, count in guesses(rows).items() for pair in count.items()]
    lines = [[name, questions()[name].asks, *pair] for name, pair in opened]
    table(out / "guesses.csv", ["question", "asked", "choice", "learners"], lines)
    most = {name: len(books[name[:2]]) for name in per_book}
    points(out, roster, most, {r.learner.name: [*map(float, r.points.values())] for r in rows})
    page(out / "index.html", **_of_class(rows, names))


def hand_back(rows: Sequence[Row], out: Path, marks: Mapping[str, Marks]) -> dict[str, str]:
    """Writes a page for each learner, with the points of a test; gives the pages' names."""
    (out / "learners").mkdir(parents=True, exist_ok=True)
    names = page_names(rows)
    for old in (out / "learners").glob("*.html"):
        if old.name not in names.values():
            old.unlink()  # of somebody who has left the roster
    for row in rows:
        marked = marks.get(row.learner.name)
        page(out / "learners" / names[row.learner.name], **_of_learner(row), marks=marked)
    return names


def points(
    out: Path, roster: Roster | None, most: dict[str, int], of: Mapping[str, Sequence[float | None]]
) -> None:
    """`points.csv`: the roster's own columns, then these, and their sum where none is missing.

    Canvas takes the columns of its own export, in their order, and below them the most points of
    each; Moodle's worksheet wants the sum under Grade.
    """
    roster = roster or Roster()
    head, lines = [*roster.head, *most, "all"], []
    if roster.most:
        lines.append([*_wide(roster.most, roster), *most.values(), sum(most.values())])
    for name, parts in of.items():
        whole = "" if None in parts else number(sum(filter(None, parts)))
        own = _wide(roster.cells.get(name, [str(no_formula(name))]), roster)
        if {"Identifier", "Grade"} <= {*roster.head}:
            own[roster.head.index("Grade")] = whole
        lines.append([*own, *map(number, parts), whole])
    table(out / "points.csv", head, lines, to_read=False)


def _wide(cells: list[str], roster: Roster) -> list[str]:
    return (cells + [""] * len(roster.head))[: len(roster.head)]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def sandbox(rows: list[Row]) -> str:
    """Which sandboxes the submissions ran in when they were judged."""
    return ", ".join(sorted({s.sandbox for r in rows for s in r.submissions if s.sandbox}))


def table(
    path: Path, head: list[str], lines: Iterable[Sequence[object]], *, to_read: bool = True
) -> None:
    """Writes a CSV: for somebody's spreadsheet, or (not `to_read`) for the system that takes it."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)  # also where ; separates
    writer.writerow(head)
    writer.writerows([no_formula(cell) for cell in line] if to_read else line for line in lines)
    # Spreadsheets look for the mark at the beginning; Canvas stumbles over it.
    write_whole(path, file.getvalue().encode("utf-8-sig" if to_read else "utf-8"))


def no_formula(cell: object) -> object:
    """A spreadsheet must not take what a learner wrote for a formula."""
    first = unicodedata.normalize("NFKC", cell).lstrip()[:1] if isinstance(cell, str) else ""
    formula = first != "" and first in "=+-@|%"  # also those of full width
    return f"'{cell}" if formula else cell


def page_names(rows: Sequence[Row]) -> dict[str, str]:
    """A file name for each learner, fit for every system."""
    pages: dict[str, str] = {}
    for n, row in enumerate(rows):
        page = re.sub(r"[^\w-]+", "_", row.learner.name)[:60] or "_"
        taken = f"{page}.html".casefold() in map(str.casefold, pages.values())
        pages[row.learner.name] = f"{page}~{n}.html" if taken else f"{page}.html"
    return pages


def words(rows: list[Row]) -> str:
    """The report in a terminal."""
    width = max(len(row.learner.name) + 2 * row.new for row in rows)
    asked = rows[0].names
    course = sections()  # else numbered as in the test
    numbers = [LABELS[n][:2].strip() if n in course else str(i) for i, n in enumerate(asked, 1)]

    def line(name: str, cells: Iterable[str]) -> str:
        marks = " ".join(
            f"{cell:>{max(2, len(n))}}" for cell, n in zip(cells, numbers, strict=True)
        )
        return f"{name:{width}}  {marks}"

    lines = [_handed_in(rows)]
    if found := looks(rows):
        lines += ["", f"Look at {sum(len(look.answers) for look in found)}:"]
        for look in found:
            what = LABELS.get(look.exercise, "files")
            why = shorten(look.why.partition("\n")[0], 120, placeholder=" …")
            lines.append(f"  {what}: {why} ({_some(look.answers)})")
    if groups := slips(rows):
        lines += ["", "Teach again:"]
        lines += [
            f"  {counted(len(s.answers), 'learner')}, {LABELS[s.exercise]}: {s.does}"
            for s in groups[:MOST_GROUPS]
        ]
        if more := groups[MOST_GROUPS:]:
            lines.append(f"  and {counted(len(more), 'group')} more, in index.html")
    lines += ["", line("", numbers)]
    lines += [line(r.learner.name + " *" * r.new, (SIGNS[r.state(n)] for n in asked)) for r in rows]
    lines += ["", "  * judged now, the others before"] if any(r.new for r in rows) else [""]
    lines += [*(f"  {SIGNS[state]} {means}" for state, means in MEANS.items())]
    return "\n".join(lines)


def _some(names: Iterable[str]) -> str:
    first, more = [*names][:4], [*names][4:]
    return "; ".join(first) + (f" and {len(more)} more" if more else "")  # "Lovelace, Ada" is one


def _handed_in(rows: list[Row]) -> str:
    """How many there are, and who handed in nothing."""
    nothing = [r.learner.name for r in rows if not r.submissions and not r.learner.others]
    files = sum(len(r.submissions) for r in rows)
    who = f"; nothing from {len(nothing)} ({_some(nothing)})" if nothing else ""
    return f"{counted(len(rows), 'learner')}, {counted(files, 'notebook')}{who}"


# --- pages ---------------------------------------------------------------------------------------


def page(path: Path, **given: Any) -> None:
    """Writes a page by the template of its name, or of its folder's."""
    name = path.parent.name if path.parent.name == "learners" else path.stem
    text = _templates().get_template(f"{name}.html.j2").render(**given)
    write_whole(path, text.encode("utf-8"))


def _of_class(rows: list[Row], files: dict[str, str]) -> dict[str, Any]:
    """Learners × exercises, what the class gets wrong, and what was handed in."""
    return {
        "title": "Who solved what",
        "rows": rows,
        "files": files,
        "slips": slips(rows),
        "guesses": guesses(rows),
        "looks": looks(rows),
        "reread": sections(),
        "handed_in": _handed_in(rows),
        "questions": questions(),
        "asked": rows[0].names,
        "sandbox": sandbox(rows),
        "warning": warning(),
        "solved_by": [sum(r.state(n) == DONE for r in rows) for n in rows[0].names],
    }


def _of_learner(row: Row) -> dict[str, Any]:
    """To hand back: what was solved, what the check said, and which section to reread."""
    return {
        "title": f"Exercises: {row.learner.name}",
        "row": row,
        "reread": sections(),
        "missing": [LABELS[name] for name in row.names if row.state(name) == MISSING],
    }


@cache
def _templates() -> Environment:
    environment: Any = templates(Path(__file__).with_name("templates"))
    environment.filters["some"] = _some
    environment.filters["class"] = lambda state: "unknown" if state == UNKNOWN else state
    named = {"SIGNS": SIGNS, "MEANS": MEANS, "TO_LEARNERS": TO_LEARNERS, "LABELS": LABELS}
    environment.globals |= named
    return environment


def sections() -> dict[str, tuple[str, str]]:
    """Exercise -> (notebook, heading) to reread."""
    return {e.name: (e.notebook, e.reread) for e in EXERCISES}
