"""A page for each session of each plan: what it is for, its clock, what one asks, what to drop.

It is computed from the plans in TEACHING and the notebooks, by the formula of `minutes`.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from math import floor
from typing import NamedTuple

from nbformat import NotebookNode

import minutes
import notebooks
from mha_course.base.notebook import EXPLORER, heading, stated_minutes, tagged
from mha_course.pages.worksheets import page

SPARE = 10  # minutes for what a class asks by itself
PLAN = re.compile(r"### ([^\n]*?(\d+) minutes)\n(.*?)(?=\n##)", re.S)
ROW = re.compile(r"^\| (\d+) \| ([^|]*\d\d\b[^|]*) \| \d+ \| [^|]* \| ([^|]*) \|$", re.M)
ABLE = re.compile(r"^By the end .*$", re.M)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
SAID = "Say it first"


class Section(NamedTuple):
    book: str
    name: str
    minutes: float
    does: str
    exercise: int  # minutes that are stated


class Lesson(NamedTuple):
    """One session; `drops` are what can go, and the minutes it gives, until ten are spare."""

    number: str
    parts: str
    able: list[str]
    clock: list[tuple[int, Section]]
    asks: list[tuple[int, list[list[str]]]]
    spare: int
    drops: list[tuple[str, int]]
    question: str

    @property
    def rows(self) -> Iterator[tuple[str, str, list[tuple[int, str]]]]:
        """The clock, with what is done in the same way one after another in one row."""
        for (book, does), some in groupby(self.clock, lambda row: (row[1].book, row[1].does)):
            yield book, does, [(at, section.name) for at, section in some]


def plans(guide: str) -> Iterator[tuple[str, str, list[Lesson]]]:
    """(title, what stands before its table, lessons) of each plan of the guide."""
    books = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
    asked = {part[:2]: minutes.QUESTION_TABLE.findall(part) for part in guide.split("### ")}
    for title, length, plan in PLAN.findall(guide):
        whole = title.startswith("Everything")
        before = LINK.sub(r"\1", plan.partition("\n|")[0].strip())
        made = [_lesson(row, int(length), whole, books, asked) for row in ROW.findall(plan)]
        yield title, before, made


def _lesson(
    row: tuple, length: int, whole: bool, books: minutes.Books, asked: dict[str, minutes.Asked]
) -> Lesson:
    number, parts, question = row
    clock, able, asks = [], [], []
    if parts.startswith("from memory"):
        recall = Section("", "Three exercises from memory", minutes.RECALL, "", 0)
        clock.append((minutes.OPENING, recall))
    starts, end = minutes.clock(parts, books, asked, whole)
    for now, (book, *rest), cells in starts:
        if not book:
            clock.append((round(now), Section("", "Break", minutes.BREAK, "", 0)))
            continue
        goes_on = f"You go on with “{rest[0]}”. " if rest[0] else ""
        then = ABLE.search(books[book].cells[0].source)[0]
        if books[book].cells[-1] not in cells:
            then = then.replace("the end", "the end of the notebook, which comes later,", 1)
        able.append(goes_on + then)
        for section, part in _sections(book, cells, asked[book]):
            clock.append((round(now), section))
            for _, rows in minutes.aloud(part, asked[book]):
                asks.append((round(now), [r.strip("| ").split(" | ") for r in rows.splitlines()]))
            now += section.minutes
    spare, drops = floor(length - end), []
    could = [*_droppable([section for _, section in clock if section.book], asks)]
    while could and (lacks := SPARE - spare - sum(gives for _, gives in drops)) > 0:
        # The smallest that is enough, or else the largest.
        best = min(could, key=lambda drop: (drop[1] < lacks, abs(drop[1] - lacks)))
        could.remove(best)
        drops.append(best)
    parts = re.sub(r"\*([^*]+)\*", r"“\1”", parts)
    return Lesson(number, parts, able, clock, asks, spare, drops, question)


def _sections(
    book: str, cells: list[NotebookNode], asked: minutes.Asked
) -> Iterator[tuple[Section, list[NotebookNode]]]:
    starts = [i for i, cell in enumerate(cells) if i == 0 or heading(cell)[0]]
    for at, end in zip(starts, [*starts[1:], len(cells)], strict=True):
        part = cells[at:end]
        code = [cell for cell in part if cell.cell_type == "code"]
        texts = "\n".join(cell.source for cell in part if cell.cell_type == "markdown")
        exercise = stated_minutes(texts) if any(tagged(c, "exercise") for c in code) else 0
        does = {
            "guess": any(tagged(cell, "prediction") for cell in code),
            "move": any(EXPLORER.search(cell.source) for cell in code),
            f"write, {exercise} minutes": exercise,
            "test a claim": any(tagged(cell, "claim") for cell in code),
            "say aloud": heading(part[0])[1] == SAID,
        }
        level, name = heading(part[0])
        name = "the title, and its question" if level == 1 else name
        words = ", ".join(word for word, there in does.items() if there) or "read and run"
        yield Section(book, name, minutes.in_class(part, asked), words, exercise), part


def _droppable(sections: list[Section], asks: list) -> Iterator[tuple[str, int]]:
    """What can go, and the whole minutes that it gives."""
    if said := [section for section in sections if section.name == SAID]:
        yield f"{SAID}: at home", floor(sum(section.minutes for section in said))
    if aloud := sum(len(rows) for *_, rows in asks):
        yield "the questions aloud: each guesses in the boxes", floor(minutes.ALOUD * aloud)
    for section in sections:
        if section.exercise:
            yield f"“{section.name}” is begun in class, and finished at home", section.exercise // 2
        elif section.name not in (SAID, "What you now know"):
            yield f"“{section.name}”: the verdict or the picture alone", floor(section.minutes / 2)


def written(guide: str) -> Iterator[tuple[str, str]]:
    """(name of a file, page) for each plan."""
    for title, before, lessons in plans(guide):
        name, given = re.sub(r"\W+", "_", title.lower()), {"title": title, "before": before}
        yield name, page("lessons.html.j2", **given, lessons=lessons, needed=SPARE)
