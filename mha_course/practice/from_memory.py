"""From memory: a notebook with up to three exercises that are due, some in another layout.

`check.practice()` writes it, and its cells call `check.practice.split_heads(split_heads)`. What was
got wrong the last time is only named after the answer.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import cache, partial
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from mha_course.base.disk import free_path, write_whole
from mha_course.base.notebook import Asked, course, exercises, source
from mha_course.base.numerals import counted
from mha_course.collection.bank import Question
from mha_course.engine.judge import judge
from mha_course.engine.problem import Problem
from mha_course.engine.report import Report
from mha_course.practice import asked as asked_of
from mha_course.practice import journal
from mha_course.practice.journal import Attempt
from mha_course.practice.schedule import Due, due

CLASS = "MultiHeadAttention"
BUILT_UP = [f"{n:02}" for n in range(7)]  # each of these notebooks is read after those before it
MOST = 3  # exercises in one sitting
MINUTES = 30  # that these took the first time; from memory it is about half
BEGIN = """# From memory

Write each answer without looking it up. Hints are folded below the question. Each time that
you know something at the first try, the wait until it returns doubles; what you do not know
returns tomorrow. A file in which nothing was written is cleared away after its day."""
NOTHING = (
    "Nothing is due: practice asks for what you have met, and no exercise was tried yet in your "
    "notebooks. Begin with notebook 1, and come back tomorrow."
)
AS_IN_THE_COURSE = "*The hints speak of the exercise as the course has it.*"
WHOLE_CLASS = """# The whole class, from an empty page

Twenty minutes, from memory. The first cell starts a clock that you need not look at."""
SETUP = """import math

import torch
import torch.nn.functional as F
from torch import nn

from mha_course import check

check.practice.begin()"""

# What the statement of an exercise says is imported.
IMPORTS = {"WritingAttention": "from mha_lesson import merge_heads, rotate, split_heads\n\n\n"}


class Written(NamedTuple):
    """The notebook that was written, shown by Jupyter as a link."""

    path: Path

    def __repr__(self) -> str:
        return f"Written: {self.path}"

    def _repr_html_(self) -> str:
        return f'<a href="{self.path.name}">{self.path.name}</a> lies beside your notebooks.'


class Nothing(NamedTuple):
    """That there is nothing to practise yet, or today."""

    next: Due | None

    def __repr__(self) -> str:
        if self.next is None:
            return NOTHING
        return f"Nothing is due today. {self.next.name} comes back on {_named(self.next.day)}."


def clear_away(folder: Path, day: date) -> None:
    """Removes practice files of earlier days in which nobody has written anything."""
    for path in folder.glob("practice_????-??-??*.ipynb"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            notebook = json.loads(path.read_text(encoding="utf-8"))
            untouched = notebook["metadata"]["practice"] == fingerprint(notebook["cells"])
            if untouched and date.fromisoformat(path.name[9:19]) < day:
                path.unlink()


def fingerprint(cells: list[dict[str, Any]]) -> int:
    """Of all that can be written into a notebook's cells."""
    return crc32(repr(["".join(cell["source"]) for cell in cells]).encode())


class Practice:
    """Asks for these exercises from memory; `variants` are other forms of them, by their names."""

    def __init__(
        self, exercises: Sequence[Problem], variants: Mapping[str, Sequence[Problem]]
    ) -> None:
        self.exercises = {e.name: e for e in exercises}
        self.variants = variants
        self.begun: float | None = None
        for exercise in exercises:
            for problem in (exercise, *variants.get(exercise.name, ())):
                setattr(self, problem.name, partial(self._judged, exercise.name, problem))

    def __call__(self, *, whole_class: bool = False) -> "Written | Nothing":
        """Writes a notebook with what is due into the learner's folder, and never over another.

        With `whole_class` it asks for the class of exercise 11 alone, from an empty page. Where
        nothing was met yet, or is due, there is nothing to ask, and no file.
        """
        here, day = journal.folder(), journal.today()
        clear_away(here, day)
        if not whole_class and not (self.due() and (self.chosen(day) or self.questions(day))):
            return Nothing(min(self.due(), key=lambda one: one.day, default=None))
        if not (here / journal.FILE).exists():
            journal.table([], keep=True)  # practice needs to know what was solved when
        notebook = self.notebook([Due(CLASS, day)] if whole_class else self.chosen(day), day)
        path = free_path(here / f"practice_{day}.ipynb")
        write_whole(path, (json.dumps(notebook, ensure_ascii=False, indent=1) + "\n").encode())
        return Written(path)

    def __getattr__(self, name: str) -> Any:
        asked = ", ".join(n for n, held in vars(self).items() if callable(held))
        raise AttributeError(f"practice asks for {asked}; got {name}.")

    def begin(self) -> None:
        """Starts the clock of a sitting."""
        self.begun = time.monotonic()

    def answer(self, name: str, answer: Any = ...) -> asked_of.Said:
        """Judges the answer to a question, and notes whether it was known."""
        return asked_of.answered(name, answer)

    def due(self) -> list[Due]:
        return due(journal.attempts(), journal.states(), [*self.exercises])

    def chosen(self, day: date) -> list[Due]:
        """At most three that are due and fit into a sitting; the class fills one alone."""
        chosen: list[Due] = []
        for one in (d for d in self.due() if d.day <= day):
            names = [c.name for c in (*chosen, one)]
            minutes = sum(statements()[name].minutes for name in names)
            apart = {self.exercises[name].part_of for name in names}.isdisjoint(names)
            if len(chosen) < MOST and minutes <= MINUTES and apart:
                chosen.append(one)
        return chosen

    def questions(self, day: date) -> list[Question]:
        """Of the notebooks with an exercise that was tried, and of those that lead up to them."""
        met = {self.exercises[name].notebook for name in journal.states() if name in self.exercises}
        last = max(met.intersection(BUILT_UP), default="00")
        return asked_of.chosen(day, met.union(b for b in BUILT_UP if b <= last), MOST)

    def in_its_layout(self, one: Due) -> Problem:
        """The exercise itself until it is known, then its variants in turn."""
        layouts = [self.exercises[one.name], *self.variants.get(one.name, ())]
        return layouts[one.known % len(layouts)]

    def _judged(self, name: str, problem: Problem, answer: Any) -> Report:
        report = judge(problem, answer)
        past = [a for a in journal.attempts() if a.name == name]
        minutes = 0 if self.begun is None else round((time.monotonic() - self.begun) / 60)
        journal.remember(report, name, minutes)
        return replace(report, notes=(*report.notes, *_since(problem, report, past, minutes)))

    def notebook(self, chosen: list[Due], day: date) -> dict[str, Any]:
        whole = [self.in_its_layout(one).name for one in chosen] == [CLASS]
        cells = [_cell(WHOLE_CLASS if whole else BEGIN), _cell(SETUP, "code")]
        for one in chosen:
            problem, asked = self.in_its_layout(one), statements()[one.name]
            title, says, hints, stub = asked.heading, asked.says, asked.hints, source(asked.stub)
            if problem.name != one.name:
                title = f"{title.partition(': ')[2]}, in another form"
                says = getdoc(problem.in_steps) or ""
                hints = [*hints, AS_IN_THE_COURSE] if hints else []
                stub = f"def {problem.name}({', '.join(problem.arguments)}):\n    ..."
            text = "\n\n".join([f"## {title}", says, *hints])
            stub = IMPORTS.get(one.name, "") + stub
            calls = f"check.practice.{problem.name}({problem.name})"
            cells += [_cell(text), _cell(stub, "code"), _cell(calls, "code")]
        if not whole:
            cells += [_cell("## Questions")]
            for text, code in asked_of.cells(self.questions(day)):
                cells += [_cell(text), _cell(code, "code")]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        kept = {"kernelspec": kernel, "practice": fingerprint(cells)}
        head = {"metadata": kept, "nbformat": 4, "nbformat_minor": 5}
        return {"cells": [{**cell, "id": f"cell-{i}"} for i, cell in enumerate(cells)], **head}


def _since(problem: Problem, report: Report, past: list[Attempt], minutes: int) -> Iterator[str]:
    """What has changed since the last day on which it was tried."""
    today = {key for a in past if a.day == journal.today() for key in a.slips}
    past = [a for a in past if a.day < journal.today()]
    last = past[-1] if past else Attempt(journal.today(), problem.name, False)
    on = _named(last.day)
    keys = dict.fromkeys(key for a in past if a.day == last.day for key in a.slips)
    if keys.keys() & {*report.slips}:
        yield f"The same as on {on}."
    if report.passed:
        does = {slip.key: slip.does for slip in problem.slips}
        for key in filter(does.get, keys):
            yield f"On {on} it was: “{does[key]}” {'Mended now' if key in today else 'Not today'}."
    if minutes and report.passed and problem.name == CLASS:
        before = f", and {last.minutes} on {on}" if last.minutes else ""
        yield f"It took {counted(minutes, 'minute')}{before}."


def _named(day: date) -> str:
    return f"{day:%A}, {day.day} {day:%B}"


@cache
def statements() -> dict[str, Asked]:
    """What each exercise asks, by its name."""
    return {asked.name: asked for cells in course().values() for asked in exercises(cells)}


def _cell(source: str, kind: str = "markdown") -> dict[str, Any]:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **code, "source": source}
