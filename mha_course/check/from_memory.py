"""From memory: a notebook with three exercises that are due, some of them in another layout.

`check.practice()` writes it, and its cells call `check.practice.split_heads(split_heads)`. What was
got wrong the last time is only named after the answer.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple

from mha_course.check import journal
from mha_course.check.engine.judge import judge
from mha_course.check.engine.report import Report
from mha_course.check.exercises import Exercise
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.schedule import Due, due
from mha_course.disk import NOTEBOOKS, free_path, write_whole
from mha_course.pictures.numerals import counted

CLASS = "MultiHeadAttention"
MOST = 3  # exercises in one sitting
MIX = 7  # neighbours in the course are seven apart
MINUTES = 30  # that these took the first time; from memory it is about half
SHORT_WAY = "06"  # the last notebook that it needs
FOLDED = re.compile(r"<details.*?</details>\n?", re.S)
TAKES = re.compile(r"\*\w+, (\d+) minutes\.\* *")
# Predictions that need no picture to be understood, as a stored output shows them.
ALONE = {
    "scaling_order", "scaling_spread", "projections_tied", "projections_products",
    "projections_one", "memory_moves", "memory_stride", "masks_keep",
}  # fmt: skip
BOX = re.compile(r"<p>\d+\. (.*?)</p><div>(<details name=\"(\w+)\">.*?)</div>", re.S)
LOOK = re.compile(r"(</summary>)<p>.*?<summary>I have looked</summary>(.*?)</details>", re.S)
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


@dataclass(frozen=True, repr=False)
class Written:
    """The notebook that was written, shown by Jupyter as a link."""

    path: Path

    def __repr__(self) -> str:
        return f"Written: {self.path}"

    def _repr_html_(self) -> str:
        return f'<a href="{self.path.name}">{self.path.name}</a> lies beside your notebooks.'


class Practice:
    def __init__(self, exercises: list[Exercise]) -> None:
        self.exercises = {e.name: e for e in exercises}
        self.asked = self.exercises | {v.name: v for some in VARIANTS.values() for v in some}
        self.begun: float | None = None

    def __call__(self, *, whole_class: bool = False) -> Written:
        """Writes a notebook with what is due into the learner's folder, and never over another.

        With `whole_class` it asks for the class of exercise 11 alone, from an empty page.
        """
        here, day = journal.folder(), journal.today()
        if not (here / journal.FILE).exists():
            journal.table([], keep=True)  # practice needs to know what was solved when
        of_class = [d for d in self.due() if d.name == CLASS] or [Due(CLASS, day)]
        notebook = self.notebook(of_class if whole_class else self.chosen(day), day)
        path = free_path(here / f"practice_{day}.ipynb")
        write_whole(path, (json.dumps(notebook, ensure_ascii=False, indent=1) + "\n").encode())
        return Written(path)

    def __getattr__(self, name: str) -> Callable[[Any], Report]:
        asked = self.__dict__.get("asked", {})
        if name not in asked:
            raise AttributeError(f"practice asks for {', '.join(asked)}; got {name}.")
        return partial(self._judged, asked[name])

    def __dir__(self) -> list[str]:
        return ["begin", "chosen", "due", *self.asked]

    def begin(self) -> None:
        """Starts the clock of a sitting."""
        self.begun = time.monotonic()

    def due(self) -> list[Due]:
        return due(journal.attempts(), journal.states(), [*self.exercises])

    def chosen(self, day: date) -> list[Due]:
        """At most three that fit into a sitting; the class alone, if it comes first."""
        met = {d.name: d for d in self.due()}
        short = [e.name for e in self.exercises.values() if e.notebook <= SHORT_WAY]
        ordered = [d for d in met.values() if d.day <= day]
        ordered += [Due(name, day) for name in short if name not in met]
        ordered += [d for d in met.values() if d.day > day]
        if ordered[0].name == CLASS:
            return ordered[:1]
        chosen: list[Due] = []
        for one in ordered:
            minutes = sum(statements()[c.name].minutes for c in (*chosen, one))
            if len(chosen) < MOST and minutes <= MINUTES and one.name != CLASS:
                chosen.append(one)
        return chosen

    def in_its_layout(self, one: Due) -> Exercise:
        """The exercise itself until it is known, then its variants in turn."""
        layouts = [self.exercises[one.name], *VARIANTS.get(one.name, ())]
        return layouts[one.known % len(layouts)]

    def _judged(self, problem: Exercise, answer: Any) -> Report:
        name = next(e.name for e in self.exercises.values() if e.number == problem.number)
        report = judge(problem, answer)
        if report.passed is None:
            return report
        past = [a for a in journal.attempts() if a.name == name and a.day < journal.today()]
        minutes = 0 if self.begun is None else round((time.monotonic() - self.begun) / 60)
        journal.remember(report, name, minutes)
        timed = minutes if name == CLASS and report.passed else 0
        return replace(report, notes=(*report.notes, *_since(problem, report, past, timed)))

    def notebook(self, chosen: list[Due], day: date) -> dict[str, Any]:
        whole = [one.name for one in chosen] == [CLASS]
        cells = [_text(WHOLE_CLASS if whole else BEGIN), _code(SETUP)]
        for one in chosen:
            problem, asked = self.in_its_layout(one), statements()[one.name]
            if problem.name != one.name:  # the hints speak of the exercise itself
                title = problem.name.replace("_", " ").capitalize()
                stub = f"def {problem.name}({', '.join(problem.arguments)}):\n    ..."
                asked = Asked(f"## {title}\n\n{getdoc(problem.right)}", "", stub, 0)
            cells += [_text(text) for text in (asked.text, asked.hints) if text]
            cells += [_code(asked.stub), _code(f"check.practice.{problem.name}({problem.name})")]
        if not whole:
            solving = journal.states().keys() & self.exercises.keys()
            begun = frozenset(self.exercises[name].notebook for name in solving)
            cells += map(_text, ["## Three questions", *questions(day, begun)])
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        return {
            "cells": [{**cell, "id": f"cell-{i}"} for i, cell in enumerate(cells)],
            "metadata": {"kernelspec": kernel},
            **{"nbformat": 4, "nbformat_minor": 5},
        }


def _since(
    problem: Exercise, report: Report, past: list[journal.Attempt], minutes: int
) -> list[str]:
    """What has changed since the last day on which it was tried."""
    took = f"It took {counted(minutes, 'minute')}"
    if not past:
        return [f"{took}."] * bool(minutes)
    last = past[-1]
    on = f"{last.day:%A}, {last.day.day} {last.day:%B}"
    keys = dict.fromkeys(key for a in past if a.day == last.day for key in a.slips)
    notes = [f"The same as on {on}."] * bool(keys.keys() & {*report.slips})
    if report.passed:
        does = {slip.key: slip.does for slip in problem.slips}
        notes += [f"On {on} it was: “{does[key]}” Not today." for key in keys if key in does]
    before = f", and {last.minutes} on {on}" if last.minutes else ""
    return [*notes, f"{took}{before}."] if minutes else notes


# --- read from the course's notebooks -------------------------------------------------------------


class Asked(NamedTuple):
    """An exercise as its notebook has it, and the minutes that it took the first time."""

    text: str
    hints: str
    stub: str
    minutes: int


@cache
def _cells() -> list[tuple[str, Any]]:
    """(number of the notebook, cell) for all of them."""
    paths = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    books = [(path.name[:2], json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    return [(number, cell) for number, book in books for cell in book["cells"]]


@cache
def statements() -> dict[str, Asked]:
    """What each exercise asks, by its name: from its heading to its stub."""
    asked, text = {}, ""
    for _, cell in _cells():
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = source if source.startswith("#") else f"{text}\n\n{source}"
        elif "exercise" in cell["metadata"].get("tags", ()):
            hints = [fold for fold in FOLDED.findall(text) if "<summary>Hint" in fold]
            if name := re.match(r"(?:def|class) (\w+)", source):
                takes = TAKES.search(text)
                plain = re.sub(r"^#+", "##", TAKES.sub("", FOLDED.sub("", text)).strip())
                minutes = int(takes[1]) if takes else 10
                asked[name[1]] = Asked(plain, "".join(hints).strip(), source, minutes)
    return asked


def questions(day: date, begun: frozenset[str]) -> list[str]:
    """Three predictions and claims of the notebooks begun, with the answers that these computed.

    Every day others, until all have been asked; from the whole short way where none of it is begun.
    """
    asked, first = _questions(begun) or _questions(frozenset()), day.toordinal() * MOST
    return [f"**{i + 1}.** {asked[(first + i) % len(asked)]}" for i in range(MOST)]


@cache
def _questions(begun: frozenset[str]) -> list[str]:
    asked = []
    for number, cell in _cells():
        met = number <= SHORT_WAY and (number in begun or not begun)
        tags = cell["metadata"].get("tags", ()) if met else ()
        for output in cell.get("outputs", ()):
            html = "".join(output.get("data", {}).get("text/html", ""))
            if "prediction" in tags:
                folded = BOX.findall(LOOK.sub(r"\1\2", html))
                asked += [f"{text}\n\n{folds}" for text, folds, name in folded if name in ALONE]
            elif "claim" in tags and html:
                asked.append("A claim.\n\n" + re.sub(r" style=(['\"]).*?\1", "", html))
    return [asked[i] for start in range(MIX) for i in range(start, len(asked), MIX)]


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    empty = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": {}, **empty, "source": source}
