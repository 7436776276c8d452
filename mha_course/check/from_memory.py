"""From memory: a notebook with three exercises that are due, some of them in another layout.

`check.practice()` writes it, and its cells call `check.practice.split_heads(split_heads)`. What was
got wrong the last time is only named after the answer.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import cache, partial
from html import escape
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple

from mha_course.base.disk import NOTEBOOKS, free_path, write_whole
from mha_course.base.numerals import counted
from mha_course.base.prose import prose
from mha_course.base.stored import tagged
from mha_course.check import journal
from mha_course.check.engine.judge import judge
from mha_course.check.engine.report import Report
from mha_course.check.exercises import Exercise
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.journal import Attempt
from mha_course.check.schedule import Due, due
from mha_course.collection.questions import questions as predictions

CLASS = "MultiHeadAttention"
MOST = 3  # exercises in one sitting
MIX = 7  # neighbours in the course are seven apart
MINUTES = 30  # that these took the first time; from memory it is about half
SHORT_WAY = "06"  # the last notebook that it needs
EXERCISE = re.compile(r"#+ (.*?)\n\n\*\w+, (\d+) minutes\.\* *(.*)", re.S)
FOLDED = re.compile(r"<details.*?</details>", re.S)
ASKED = re.compile(r"\b(\w+)=")  # the questions of a cell that calls predict
BEGIN = """# From memory

Write each answer without looking it up. Hints are folded below the question. Each time that
you solve an exercise at the first try, the wait until it returns doubles; an exercise that you do
not solve returns tomorrow."""
WHOLE_CLASS = """# The whole class, from an empty page

Twenty minutes, from memory. The first cell starts a clock that you need not look at."""
SETUP = """import math

import torch
import torch.nn.functional as F
from torch import nn

from mha_course import check

check.practice.begin()"""


class Written(NamedTuple):
    """The notebook that was written, shown by Jupyter as a link."""

    path: Path

    def __repr__(self) -> str:
        return f"Written: {self.path}"

    def _repr_html_(self) -> str:
        return f'<a href="{self.path.name}">{self.path.name}</a> lies beside your notebooks.'


class Practice:
    def __init__(self, exercises: list[Exercise]) -> None:
        self.exercises = {e.name: e for e in exercises}
        self.begun: float | None = None
        for exercise in exercises:
            for problem in (exercise, *VARIANTS.get(exercise.name, ())):
                setattr(self, problem.name, partial(self._judged, exercise.name, problem))

    def __call__(self, *, whole_class: bool = False) -> Written:
        """Writes a notebook with what is due into the learner's folder, and never over another.

        With `whole_class` it asks for the class of exercise 11 alone, from an empty page.
        """
        here, day = journal.folder(), journal.today()
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

    def due(self) -> list[Due]:
        return due(journal.attempts(), journal.states(), [*self.exercises])

    def chosen(self, day: date) -> list[Due]:
        """At most three that fit into a sitting; the class fills one, and so comes alone."""
        met = {d.name: d for d in self.due()}
        short = [e.name for e in self.exercises.values() if e.notebook <= SHORT_WAY]
        ordered = [*met.values(), *(Due(name, day) for name in short if name not in met)]
        chosen: list[Due] = []
        for one in sorted(ordered, key=lambda d: d.day > day):  # what is not due yet comes last
            minutes = sum(statements()[c.name].minutes for c in (*chosen, one))
            if len(chosen) < MOST and minutes <= MINUTES:
                chosen.append(one)
        return chosen

    def in_its_layout(self, one: Due) -> Exercise:
        """The exercise itself until it is known, then its variants in turn."""
        layouts = [self.exercises[one.name], *VARIANTS.get(one.name, ())]
        return layouts[one.known % len(layouts)]

    def _judged(self, name: str, problem: Exercise, answer: Any) -> Report:
        report = judge(problem, answer)
        past = [a for a in journal.attempts() if a.name == name and a.day < journal.today()]
        minutes = 0 if self.begun is None else round((time.monotonic() - self.begun) / 60)
        journal.remember(report, name, minutes)
        return replace(report, notes=(*report.notes, *_since(problem, report, past, minutes)))

    def notebook(self, chosen: list[Due], day: date) -> dict[str, Any]:
        whole = [one.name for one in chosen] == [CLASS]
        cells = [_cell(WHOLE_CLASS if whole else BEGIN), _cell(SETUP, "code")]
        for one in chosen:
            problem, asked = self.in_its_layout(one), statements()[one.name]
            if problem.name != one.name:  # the hints speak of the exercise itself
                title = problem.name.replace("_", " ").capitalize()
                stub = f"def {problem.name}({', '.join(problem.arguments)}):\n    ..."
                asked = Asked(f"## {title}\n\n{getdoc(problem.in_steps)}", stub, 0)
            calls = f"check.practice.{problem.name}({problem.name})"
            cells += [_cell(asked.text), _cell(asked.stub, "code"), _cell(calls, "code")]
        if not whole:
            solving = journal.states().keys() & self.exercises.keys()
            begun = frozenset(self.exercises[name].notebook for name in solving)
            cells += map(_cell, ["## Three questions", *questions(day, begun)])
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        head = {"metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        return {"cells": [{**cell, "id": f"cell-{i}"} for i, cell in enumerate(cells)], **head}


def _since(problem: Exercise, report: Report, past: list[Attempt], minutes: int) -> Iterator[str]:
    """What has changed since the last day on which it was tried."""
    last = past[-1] if past else Attempt(journal.today(), problem.name, False)
    on = f"{last.day:%A}, {last.day.day} {last.day:%B}"
    keys = dict.fromkeys(key for a in past if a.day == last.day for key in a.slips)
    if keys.keys() & {*report.slips}:
        yield f"The same as on {on}."
    if report.passed:
        does = {slip.key: slip.does for slip in problem.slips}
        yield from (f"On {on} it was: “{does[key]}” Not today." for key in keys if key in does)
    if minutes and report.passed and problem.name == CLASS:
        before = f", and {last.minutes} on {on}" if last.minutes else ""
        yield f"It took {counted(minutes, 'minute')}{before}."


class Asked(NamedTuple):
    """An exercise as its notebook has it, and the minutes that it took the first time."""

    text: str
    stub: str
    minutes: int


def _cells() -> Iterator[tuple[str, Any]]:
    """(number of the notebook, cell) for all of the course."""
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            yield path.name[:2], cell


@cache
def statements() -> dict[str, Asked]:
    """What each exercise asks, by its name: from its heading to its stub."""
    asked, text = {}, ""
    for _, cell in _cells():
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = source if source.startswith("#") else f"{text}\n\n{source}"
        elif "exercise" in cell["metadata"].get("tags", ()):
            [(heading, minutes, says)] = EXERCISE.findall(text)
            hints = [fold for fold in FOLDED.findall(says) if "<summary>Hint" in fold]
            parts = [f"## {heading}", FOLDED.sub("", says).strip(), *hints]
            _, name = source.partition("(")[0].split()
            asked[name] = Asked("\n\n".join(parts), source, int(minutes))
    return asked


def questions(day: date, begun: frozenset[str]) -> list[str]:
    """Three predictions and claims, every day others, of the notebooks begun or the short way."""
    asked, first = _questions(begun) or _questions(frozenset()), day.toordinal() * MOST
    return [f"**{i + 1}.** {asked[(first + i) % len(asked)]}" for i in range(MOST)]


def _questions(begun: frozenset[str]) -> list[str]:
    asked: list[str] = []
    alone = {name for name, question in predictions().items() if question.alone}
    for number, cell in _cells():
        if number > SHORT_WAY or (begun and number not in begun):
            continue
        if tagged(cell, "prediction"):
            named = ASKED.findall("".join(cell["source"]))
            asked += [_question(name) for name in named if name in alone]
        elif tagged(cell, "claim"):
            shown = (output.get("data", {}).get("text/html", "") for output in cell["outputs"])
            html = "".join(line for lines in shown for line in lines)
            asked.append("A claim.\n\n" + re.sub(r" style=(['\"]).*?\1", "", html))
    return [asked[i] for start in range(MIX) for i in range(start, len(asked), MIX)]


def _question(name: str) -> str:
    """A prediction with its choices, each of which opens to its answer."""
    asked = predictions()[name]
    folds = (
        f'<details name="{name}"><summary>{escape(label)}</summary>'
        f"{choice.answer(label == asked.alone)}</details>"
        for label, choice in asked.choices.items()
    )
    return f"{prose(asked.asks)}\n\n{''.join(folds)}"


def _cell(source: str, kind: str = "markdown") -> dict[str, Any]:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **code, "source": source}
