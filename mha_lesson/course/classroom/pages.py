"""What the teacher reads: tables for a spreadsheet, a page of the class and one a learner."""

import csv
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mha_lesson.course.classroom.grading import (
    BY_NOTEBOOK,
    DONE,
    EXERCISES,
    MISSING,
    NAMES,
    OPEN,
    TRIED,
    UNKNOWN,
    Row,
)
from mha_lesson.course.classroom.walls import PROJECT
from mha_lesson.course.predict import questions
from mha_lesson.course.prose import prose

SIGNS = {DONE: "✓", TRIED: "✗", OPEN: "·", UNKNOWN: "!", MISSING: "–"}
MEANS = {
    DONE: "solved: so its check said when the notebook ran; the answer stands behind the sign",
    TRIED: "tried, not right yet",
    OPEN: "open: handed in, not attempted",
    UNKNOWN: "not run: handed in, and nothing could be found out",
    MISSING: "not handed in",
}
TO_LEARNERS = {
    DONE: "solved",
    TRIED: "not right yet",
    OPEN: "still open",
    UNKNOWN: "could not be run",
    MISSING: "not handed in",
}
SECTION = re.compile(r"^\| `(\w+)` \| (\d\d), \*(.+?)\* \|$", re.M)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; } caption { text-align: left; padding: .3em 0; }
th, td { border: 1px solid #767676; padding: .2em .5em; text-align: left; vertical-align: top; }
h2 { font-size: 1.25rem; } h3 { font-size: 1.05rem; } h2, h3 { margin: 1.4em 0 .4em; }
.class td { text-align: center; min-width: 1.6em; } .class tbody th { white-space: nowrap; }
.class thead th { font-weight: normal; writing-mode: vertical-rl; vertical-align: bottom; }
.done { background: #BFE5D8; } .tried { background: #F6CBB0; }
.unknown { background: #DADADA; } .missing { color: #666; }
pre { background: #f4f4f4; padding: .5em; overflow: auto; white-space: pre-wrap; }
"""
LABELS = {e.name: f"{e.number} {e.name}" if e.number else e.name for e in EXERCISES}


@dataclass(frozen=True)
class Slip:
    """A mistake that the checks named, and the answers that make it: (learner, code)."""

    exercise: str
    key: str
    does: str
    asks: str
    answers: tuple[tuple[str, str], ...]


def slips(rows: list[Row]) -> list[Slip]:
    """The class's mistakes, the most frequent first; each learner counts once."""
    made: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in rows:
        for name in NAMES:
            best = row.best(name)
            if best is None or row.state(name) != TRIED:
                continue
            for key in best.slips.get(name, []):
                made[name, key][row.learner.name] = best.code.get(name, "")
    known = {(e.name, s.key): s for e in EXERCISES for s in e.slips}
    found = [
        Slip(name, key, known[name, key].does, known[name, key].asks, tuple(who.items()))
        for (name, key), who in made.items()
        if (name, key) in known  # a submission can say anything: what no check says is left out
    ]
    return sorted(found, key=lambda s: (-len(s.answers), NAMES.index(s.exercise), s.key))


def guesses(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Question -> choice -> how many learners opened it first; without their names."""
    made = [{n: c for s in row.submissions for n, c in s.guesses.items()} for row in rows]
    counts = {
        name: {label: sum(one.get(name) == label for one in made) for label in question.choices}
        for name, question in questions().items()
    }
    return {name: count for name, count in counts.items() if any(count.values())}


def save(rows: list[Row], out: Path) -> None:
    """Writes the tables and pages into the folder `out`."""
    (out / "learners").mkdir(parents=True, exist_ok=True)
    points = [f"{book} (of {len(names)})" for book, names in BY_NOTEBOOK.items()]
    _table(out / "solved.csv", ["learner", *NAMES, *points, "all", "notes"],
           [[r.learner.name, *map(r.state, NAMES), *map(r.points, BY_NOTEBOOK), r.done,
             "; ".join(r.notes)] for r in rows]
    )  # fmt: skip
    _table(out / "slips.csv",
           ["exercise", "slip", "what the code does", "a question", "learners", "who"],
           [[s.exercise, s.key, s.does, s.asks, len(s.answers), "; ".join(n for n, _ in s.answers)]
            for s in slips(rows)]
    )  # fmt: skip
    _table(out / "answers.csv",
           ["learner", "exercise", "state", "slips", "what the check said", "answer", "file"],
           [[r.learner.name, name, r.state(name), " ".join(best.slips.get(name, [])),
             best.words.get(name, ""), best.code.get(name, ""), best.file]
            for r in rows for name in NAMES if (best := r.best(name)) and name in best.code]
    )  # fmt: skip
    _table(out / "handed_in.csv", ["learner", "file", "notebook", "seconds", "note"],
           [[r.learner.name, s.file, s.notebook, s.seconds, s.note]
            for r in rows for s in r.submissions]
           + [[r.learner.name, file, "", "", why] for r in rows for file, why in r.learner.others]
    )  # fmt: skip
    _table(out / "guesses.csv", ["question", "asked", "choice", "learners"],
           [[name, questions()[name].asks, label, n]
            for name, count in guesses(rows).items() for label, n in count.items()]
    )  # fmt: skip
    pages = _page_names(rows)
    for row in rows:
        page = _page(f"Exercises: {row.learner.name}", learner_page(row))
        (out / "learners" / pages[row.learner.name]).write_text(page, encoding="utf-8")
    page = _page("Who solved what", class_page(rows, pages))
    (out / "index.html").write_text(page, encoding="utf-8")


def _table(path: Path, head: list[str], lines: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # spreadsheets look for the mark
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([_no_formula(cell) for cell in line] for line in lines)


def _no_formula(cell: object) -> object:
    """A spreadsheet must not take what a learner wrote for a formula."""
    formula = isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@", "|", "%")
    return f"'{cell}" if formula else cell


def _page_names(rows: list[Row]) -> dict[str, str]:
    """A file name for each learner, fit for every system."""
    pages: dict[str, str] = {}
    taken: set[str] = set()
    for row in rows:
        plain = re.sub(r"[^\w-]+", "_", row.learner.name)[:60] or "_"
        names = (plain if n == 1 else f"{plain}_{n}" for n in itertools.count(1))
        page = next(name for name in names if name.casefold() not in taken)
        taken.add(page.casefold())
        pages[row.learner.name] = f"{page}.html"
    return pages


def words(rows: list[Row]) -> str:
    """The report in a terminal."""
    width = max(len(row.learner.name) for row in rows)
    numbers = [str(e.number or e.name[:2]) for e in EXERCISES]
    columns = [max(2, len(n)) for n in numbers]

    def line(name: str, cells: list[str]) -> str:
        marks = " ".join(f"{cell:>{w}}" for cell, w in zip(cells, columns, strict=True))
        return f"{name:{width}}  {marks}"

    lines = [line("", numbers)]
    lines += [line(r.learner.name, [SIGNS[r.state(n)] for n in NAMES]) for r in rows]
    lines += ["", *(f"  {SIGNS[state]} {means}" for state, means in MEANS.items())]
    notes = [f"  {r.learner.name}: {note}" for r in rows for note in r.notes]
    if notes:
        lines += ["", "Worth a look:", *notes]
    common = slips(rows)[:5]
    if common:
        lines += ["", "What the class does most often, and a question to open with:"]
    for slip in common:
        lines.append(f"  {len(slip.answers)} × {slip.exercise}: {slip.does} {slip.asks}".rstrip())
    return "\n".join(lines)


# --- pages: everything from a submission is escaped ---------------------------------------------


def class_page(rows: list[Row], pages: dict[str, str]) -> str:
    """Learners × exercises, what the class gets wrong with its code, and what was handed in."""
    heads = "".join(f'<th scope="col">{escape(LABELS[name])}</th>' for name in NAMES)
    body = ""
    for row in rows:
        link = f'<a href="learners/{pages[row.learner.name]}">{escape(row.learner.name)}</a>'
        cells = "".join(_cell(row, name, pages[row.learner.name]) for name in NAMES)
        body += f'<tr><th scope="row">{link}</th>{cells}<td>{row.done}</td></tr>'
    solved = "".join(f"<td>{sum(r.state(n) == DONE for r in rows)}</td>" for n in NAMES)
    legend = "<br>".join(f"{SIGNS[state]} {escape(means)}" for state, means in MEANS.items())
    text = (
        f'<p>{legend}</p><table class="class"><thead><tr><td></td>{heads}'
        f'<th scope="col">all</th></tr></thead><tbody>{body}<tr><th scope="row">solved by</th>'
        f"{solved}<td></td></tr></tbody></table>"
    )
    common = slips(rows)
    text += "<h2>What the class gets wrong</h2>" if common else ""
    for slip in common:
        n = len(slip.answers)
        text += (
            f"<h3>{escape(LABELS[slip.exercise])}: {n} learner{'s' * (n > 1)}</h3>"
            f"<p>{prose(slip.does)} <em>{prose(slip.asks)}</em></p>"
        )
        for learner, code in slip.answers:
            text += f"<details><summary>{escape(learner)}</summary>{_code(code)}</details>"
    text += _guessed(rows)
    lines = "".join(
        f"<tr><td>{escape(r.learner.name)}</td><td>{escape(file)}</td><td>{seconds}</td>"
        f"<td>{escape(note)}</td></tr>"
        for r in rows
        for file, seconds, note in _files(r)
    )
    return text + (
        "<h2>What was handed in</h2><table><thead><tr><th>learner</th><th>file</th>"
        f"<th>seconds</th><th>note</th></tr></thead><tbody>{lines}</tbody></table>"
    )


def _guessed(rows: list[Row]) -> str:
    """What the class predicted, question by question, with what is said to each choice."""
    text = ""
    for name, count in guesses(rows).items():
        question = questions()[name]
        lines = "".join(
            f"<tr><td>{n}</td><td>{escape(label)}</td><td>{prose(question.choices[label].says)} "
            f"({question.choices[label].notebook}, "
            f"<em>{prose(question.choices[label].heading)}</em>)</td></tr>"
            for label, n in count.items()
        )
        text += (
            f"<h3>{prose(question.asks)}</h3><table><thead><tr><th>learners</th><th>guess</th>"
            f"<th>what the course says to it</th></tr></thead><tbody>{lines}</tbody></table>"
        )
    return f"<h2>What the class predicted</h2>{text}" if text else ""


def _files(row: Row) -> list[tuple[str, str, str]]:
    ran = [(s.file, f"{s.seconds:g}", s.note) for s in row.submissions]
    rest = [(file, "", why) for file, why in row.learner.others]
    return ran + rest or [("", "", "nothing handed in")]


def learner_page(row: Row) -> str:
    """To hand back: what was solved, what the check said, and which section to reread."""
    reread = sections()
    books = [f"{book}: {row.points(book)} of {len(n)}" for book, n in BY_NOTEBOOK.items()]
    text = f"<p>{row.done} of {len(NAMES)} exercises solved. By notebook, {', '.join(books)}.</p>"
    missing = [name for name in NAMES if row.state(name) == MISSING]
    for name in NAMES:
        state, best = row.state(name), row.best(name)
        if best is None:
            continue
        text += (
            f'<h2 id="{name}">{SIGNS[state]} {escape(LABELS[name])}: '
            f'<span class="{_class(state)}">{TO_LEARNERS[state]}</span></h2>'
        )
        if state == TRIED and best.words.get(name):
            text += f"<pre>{escape(best.words[name])}</pre>"
        if state in (TRIED, OPEN) and name in reread:
            book, heading = reread[name]
            text += f"<p>To reread: notebook {book}, <em>{prose(heading)}</em>.</p>"
        if state in (TRIED, DONE) and best.code.get(name):
            text += f"<details><summary>Your answer</summary>{_code(best.code[name])}</details>"
    if missing:
        names = ", ".join(escape(LABELS[name]) for name in missing)
        text += f"<h2>Not handed in</h2><p>{names}.</p>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in row.notes)
    return text + (f"<h2>Your files</h2><ul>{notes}</ul>" if notes else "")


def sections() -> dict[str, tuple[str, str]]:
    """Exercise -> (notebook, heading) to reread, as TEACHING.md has them."""
    path = PROJECT / "notebooks/TEACHING.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {name: (book, heading) for name, book, heading in SECTION.findall(text)}


def _cell(row: Row, name: str, page: str) -> str:
    """An exercise's sign; behind it, on the learner's page, the code."""
    state = row.state(name)
    sign = SIGNS[state]
    if row.best(name):
        sign = f'<a href="learners/{page}#{name}">{sign}</a>'
    return f'<td class="{_class(state)}" title="{escape(MEANS[state])}">{sign}</td>'


def _class(state: str) -> str:
    return "unknown" if state == UNKNOWN else state


def _code(code: str) -> str:
    return f"<pre><code>{escape(code)}</code></pre>" if code else ""


def _page(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title><meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
