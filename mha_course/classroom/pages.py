"""What the teacher reads: tables for a spreadsheet, a page of the class and one a learner."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from mha_course.base.disk import write_whole
from mha_course.base.numerals import counted
from mha_course.base.prose import prose
from mha_course.classroom.grading import ALL, DONE, EXERCISES, MISSING, OPEN, TRIED, UNKNOWN, Row
from mha_course.classroom.review import looks, slips
from mha_course.classroom.sandbox import warning
from mha_course.collection.questions import questions

SHOWN = {  # state → its sign, what it means, and what its learner is told
    DONE: (
        "✓",
        "solved: judged anew, and the values compared; the answer stands behind the sign",
        "solved",
    ),
    TRIED: ("✗", "tried, not right yet", "not right yet"),
    OPEN: ("·", "open: handed in, not attempted", "still open"),
    UNKNOWN: (
        "?",
        "no verdict: somebody has to look at it; the reason stands with it",
        "has to be looked at",
    ),
    MISSING: ("–", "not handed in", "not handed in"),
}
SIGNS, MEANS, TO_LEARNERS = ({state: row[i] for state, row in SHOWN.items()} for i in range(3))
MOST_GROUPS = 8  # that a terminal names; the page has all
LABELS = {e.name: f"{e.number} {e.name}" if e.number else e.name for e in ALL.values()}


def guesses(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Question -> choice -> how many learners opened it first; without their names."""
    guessed = [{n: c for s in row.submissions for n, c in s.guesses.items()} for row in rows]
    counts = {
        name: {label: sum(one.get(name) == label for one in guessed) for label in question.choices}
        for name, question in questions().items()
    }
    return {name: count for name, count in counts.items() if any(count.values())}


def save(rows: list[Row], out: Path) -> None:
    """Writes the tables and pages into the folder `out`."""
    (out / "learners").mkdir(parents=True, exist_ok=True)
    asked, books = rows[0].names, rows[0].books
    points = [f"{book} (of {len(names)})" for book, names in books.items()]
    _table(
        out / "solved.csv",
        ["learner", *asked, *points, "all", "sandbox", "notes"],
        (
            [
                r.learner.name,
                *map(r.state, asked),
                *r.points.values(),
                r.done,
                sandbox([r]),
                "; ".join(r.notes),
            ]
            for r in rows
        ),
    )
    columns = max((list(r.learner.listed) for r in rows), key=len) or ["learner"]
    listed = [{columns[0]: r.learner.name} | r.learner.listed for r in rows]
    _table(
        out / "points.csv",
        [*columns, *points, "all"],
        (
            [*(of_one.get(c, "") for c in columns), *r.points.values(), r.done]
            for r, of_one in zip(rows, listed, strict=True)
        ),
    )
    _table(
        out / "slips.csv",
        ["exercise", "slip", "what the code does", "a question", "learners", "who"],
        (
            [s.exercise, s.key, s.does, s.asks, len(s.answers), "; ".join(s.answers)]
            for s in slips(rows)
        ),
    )
    _table(
        out / "answers.csv",
        ["learner", "exercise", "state", "slips", "what the check said", "answer", "file"],
        (
            [
                r.learner.name,
                name,
                r.state(name),
                " ".join(best.slips.get(name, [])),
                best.words.get(name, ""),
                best.code[name],
                best.file,
            ]
            for r in rows
            for name in asked
            if (best := r.best(name)) and name in best.code
        ),
    )
    _table(
        out / "handed_in.csv",
        ["learner", "file", "notebook", "seconds", "sandbox", "note"],
        [
            [r.learner.name, s.file, s.notebook, s.seconds, s.sandbox, s.note]
            for r in rows
            for s in r.submissions
        ]
        + [[r.learner.name, f, "", "", "", why] for r in rows for f, why in r.learner.others],
    )
    _table(
        out / "guesses.csv",
        ["question", "asked", "choice", "learners"],
        (
            [name, questions()[name].asks, label, n]
            for name, count in guesses(rows).items()
            for label, n in count.items()
        ),
    )
    pages = page_names(rows)
    for page in (out / "learners").glob("*.html"):
        if page.name not in pages.values():
            page.unlink()  # of somebody who has left the roster
    for row in rows:
        _write(out / "learners" / pages[row.learner.name], learner_page(row))
    _write(out / "index.html", class_page(rows, pages))


def _write(path: Path, text: str) -> None:
    write_whole(path, text.encode("utf-8"))


def sandbox(rows: list[Row]) -> str:
    """Which sandboxes the submissions ran in when they were judged."""
    return ", ".join(sorted({s.sandbox for r in rows for s in r.submissions if s.sandbox}))


def _table(path: Path, head: list[str], lines: Iterable[list[object]]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)  # also where ; separates
    writer.writerow(head)
    writer.writerows([_no_formula(cell) for cell in line] for line in lines)
    write_whole(path, file.getvalue().encode("utf-8-sig"))  # spreadsheets look for the mark


def _no_formula(cell: object) -> object:
    """A spreadsheet must not take what a learner wrote for a formula."""
    first = unicodedata.normalize("NFKC", cell).lstrip()[:1] if isinstance(cell, str) else ""
    formula = first != "" and first in "=+-@|%"  # also those of full width
    return f"'{cell}" if formula else cell


def page_names(rows: list[Row]) -> dict[str, str]:
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
    numbers = [str(e.number or e.name[:2]) for e in ALL.values() if e.name in asked]

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
            lines.append(f"  {what}: {_first(look.why)} ({_some(look.answers)})")
    if groups := slips(rows):
        lines += ["", "Teach again:"]
        lines += [
            f"  {counted(len(s.answers), 'learner')}, {LABELS[s.exercise]}: {s.does}"
            for s in groups[:MOST_GROUPS]
        ]
        if more := groups[MOST_GROUPS:]:
            lines.append(f"  and {len(more)} groups more, in index.html")
    lines += ["", line("", numbers)]
    lines += [line(r.learner.name + " *" * r.new, (SIGNS[r.state(n)] for n in asked)) for r in rows]
    lines += ["", "  * judged now, the others before"] if any(r.new for r in rows) else [""]
    lines += [*(f"  {SIGNS[state]} {means}" for state, means in MEANS.items())]
    return "\n".join(lines)


def _first(text: str) -> str:
    """The first sentence of a reason."""
    return shorten(text.splitlines()[0], 120, placeholder=" …") if text else ""


def _some(names: Iterable[str]) -> str:
    first, more = [*names][:4], [*names][4:]
    return ", ".join(first) + (f" and {len(more)} more" if more else "")


def _handed_in(rows: list[Row]) -> str:
    """How many there are, and who handed in nothing."""
    nothing = [r.learner.name for r in rows if not r.submissions and not r.learner.others]
    files = sum(len(r.submissions) for r in rows)
    who = f"; nothing from {len(nothing)} ({_some(nothing)})" if nothing else ""
    return f"{counted(len(rows), 'learner')}, {counted(files, 'notebook')}{who}"


# --- pages ---------------------------------------------------------------------------------------


def class_page(rows: list[Row], files: dict[str, str]) -> str:
    """Learners × exercises, what the class gets wrong, and what was handed in."""
    return (
        _templates()
        .get_template("class.html.j2")
        .render(
            title="Who solved what",
            rows=rows,
            files=files,
            slips=slips(rows),
            guesses=guesses(rows),
            looks=looks(rows),
            reread=sections(),
            handed_in=_handed_in(rows),
            questions=questions(),
            asked=rows[0].names,
            sandbox=sandbox(rows),
            warning=warning(),
            solved_by=[sum(r.state(n) == DONE for r in rows) for n in rows[0].names],
        )
    )


def learner_page(row: Row) -> str:
    """To hand back: what was solved, what the check said, and which section to reread."""
    return (
        _templates()
        .get_template("learner.html.j2")
        .render(
            title=f"Exercises: {row.learner.name}",
            row=row,
            reread=sections(),
            missing=[LABELS[name] for name in row.names if row.state(name) == MISSING],
        )
    )


@cache
def _templates() -> Environment:
    """All that a submission said is escaped, wherever it is put."""
    environment: Any = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = lambda text: Markup(prose(text))
    environment.filters["some"] = _some
    environment.filters["class"] = lambda state: "unknown" if state == UNKNOWN else state
    named = {"SIGNS": SIGNS, "MEANS": MEANS, "TO_LEARNERS": TO_LEARNERS, "LABELS": LABELS}
    environment.globals |= named
    return environment


def sections() -> dict[str, tuple[str, str]]:
    """Exercise -> (notebook, heading) to reread."""
    return {e.name: (e.notebook, e.reread) for e in EXERCISES}
