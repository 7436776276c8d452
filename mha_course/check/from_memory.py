"""From memory: a notebook with three exercises that are due, some of them in another dress.

`check.practice()` writes it, and its cells call `check.practice.split_heads(split_heads)`. What was
got wrong the last time is only said after the answer.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

from mha_course.check import journal
from mha_course.check.engine.judge import judge
from mha_course.check.engine.report import Report
from mha_course.check.exercise import Exercise
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.schedule import Due, due
from mha_course.disk import NOTEBOOKS, free_path, write_whole
from mha_course.pictures.numerals import counted

CLASS = "MultiHeadAttention"
MOST = 3  # exercises in one sitting
MIX = 7  # neighbours in the course are seven places apart
MINUTES = 30  # that these took the first time; from memory it is about half
SHORT_WAY = "06"  # the last notebook that it needs
FOLDED = re.compile(r"<details.*?</details>\n?", re.S)
TAKES = re.compile(r"\*\w+, (\d+) minutes\.\* *")
# Predictions that need no picture to be understood.
ALONE = (
    "scaling_order", "scaling_spread", "projections_tied", "projections_products",
    "projections_one", "memory_moves", "memory_stride", "masks_keep",
)  # fmt: skip
BOX = re.compile(r"<p>\d+\. (.*?)</p><div>(<details name=\"(\w+)\">.*?)</div>", re.S)
CHOICE = re.compile(
    r"<summary>([^<]*)</summary><p>.*?<summary>I have looked</summary>(.*?)</details></details>",
    re.S,
)
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


@dataclass(frozen=True)
class Asked:
    """An exercise as its notebook has it: what it asks, the hints, the stub."""

    says: str
    hints: str
    stub: str
    minutes: int  # that it took the first time


@dataclass(frozen=True)
class Written:
    """The notebook that was written, shown by Jupyter as a link."""

    path: Path

    def __str__(self) -> str:
        return f"Written: {self.path}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f'<a href="{self.path.name}">{self.path.name}</a> lies beside your notebooks.'


class Practice:
    def __init__(self, exercises: list[Exercise]) -> None:
        self.exercises = {e.name: e for e in exercises}
        self.of = {v.name: name for name, found in VARIANTS.items() for v in found}
        self.asked = self.exercises | {v.name: v for vs in VARIANTS.values() for v in vs}
        self.begun: float | None = None

    def __call__(self, *, whole_class: bool = False) -> Written:
        """Writes a notebook with what is due into the learner's folder, and never over another.

        With `whole_class` it asks for the class of exercise 11 alone, from an empty page.
        """
        here, day = journal.place(), journal.today()
        if not (here / journal.FILE).exists():
            journal.table([], keep=True)  # practice needs to know what was solved when
        chosen = [self._of_the_class()] if whole_class else self.chosen(day)
        content = json.dumps(self.notebook(chosen, day), ensure_ascii=False, indent=1) + "\n"
        path = free_path(here / f"practice_{day}.ipynb")
        write_whole(path, content.encode())
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

    # --- what is asked ---------------------------------------------------------------------------

    def due(self) -> list[Due]:
        return due(journal.attempts(), journal.states(), [*self.exercises])

    def chosen(self, day: date) -> list[Due]:
        """At most three that fit into a sitting; the class alone, if it comes first."""
        ready = self.due()
        met = {d.name for d in ready}
        short = [e.name for e in self.exercises.values() if e.notebook <= SHORT_WAY]
        first = [d for d in ready if d.day <= day]
        first += [Due(name, day) for name in short if name not in met]
        first += [d for d in ready if d.day > day]
        if first[0].name == CLASS:
            return first[:1]
        chosen: list[Due] = []
        minutes = 0
        for one in first:
            more = statements()[one.name].minutes
            if len(chosen) < MOST and minutes + more <= MINUTES and one.name != CLASS:
                chosen.append(one)
                minutes += more
        return chosen

    def _of_the_class(self) -> Due:
        return next((d for d in self.due() if d.name == CLASS), Due(CLASS, journal.today()))

    def dressed(self, one: Due) -> Exercise:
        """The exercise itself until it is known, then its variants in turn."""
        dresses = [self.exercises[one.name], *VARIANTS.get(one.name, ())]
        return dresses[one.known % len(dresses)]

    # --- what is said ----------------------------------------------------------------------------

    def _judged(self, problem: Exercise, answer: Any) -> Report:
        name = self.of.get(problem.name, problem.name)
        report = judge(problem, answer)
        if report.passed is None:
            return report
        past = [a for a in journal.attempts() if a.name == name]
        took = 0 if self.begun is None else round((time.monotonic() - self.begun) / 60)
        journal.remember(report, name, took)
        timed = took if name == CLASS and report.passed else 0
        notes = _since(problem, report, past, timed)
        return replace(report, notes=(*report.notes, *notes))

    # --- the notebook ----------------------------------------------------------------------------

    def notebook(self, chosen: list[Due], day: date) -> dict[str, Any]:
        whole = [one.name for one in chosen] == [CLASS]
        cells = [_text(WHOLE_CLASS if whole else BEGIN), _code(SETUP)]
        for one in chosen:
            problem, known = self.dressed(one), statements()[one.name]
            said, hints, stub = known.says, known.hints, known.stub
            if problem.name != one.name:
                title = problem.name.replace("_", " ").capitalize()
                said = f"## {title}\n\n{_words(problem.right.__doc__)}"
                hints = ""  # they speak of the exercise as it was
                stub = f"def {problem.name}({', '.join(problem.arguments)}):\n    ..."
            cells += [_text(said), *[_text(hints)] * bool(hints)]
            cells += [_code(stub), _code(f"check.practice.{problem.name}({problem.name})")]
        if not whole:
            cells += map(_text, ["## Three questions", *questions(day)])
        for i, cell in enumerate(cells):
            cell["id"] = f"cell-{i}"
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        form = {"nbformat": 4, "nbformat_minor": 5}
        return {"cells": cells, "metadata": {"kernelspec": kernel}, **form}


def _since(problem: Exercise, report: Report, past: list[journal.Attempt], took: int) -> list[str]:
    """What has changed since the last day on which it was tried."""
    before = [a for a in past if a.day < journal.today()]
    if not before:
        return [f"It took {counted(took, 'minute')}."] * bool(took)
    day = before[-1].day
    on = f"{day:%A}, {day.day} {day:%B}"
    known = {slip.key: slip.does for slip in problem.slips}
    slips = dict.fromkeys(s for a in before if a.day == day for s in a.slips)
    told = [f"The same as on {on}."] if slips.keys() & {*report.slips} else []
    if report.passed:
        told = [f"On {on} it was: “{known[s]}” Not today." for s in slips if s in known]
    if took:
        last = before[-1].minutes
        told.append(
            f"It took {counted(took, 'minute')}" + (f", and {last} on {on}." if last else ".")
        )
    return told


# --- read from the course's notebooks -------------------------------------------------------------


@cache
def _cells(last: str = "99") -> list[dict[str, Any]]:
    """Of all notebooks up to this number."""
    found: list[dict[str, Any]] = []
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        if path.name[:2] > last:
            break
        found += json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


@cache
def statements() -> dict[str, Asked]:
    """What each exercise asks, by its name: from its heading to its stub."""
    found, says = {}, ""
    for cell in _cells():
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            says = source if source.startswith("#") else f"{says}\n\n{source}"
        elif "exercise" in cell["metadata"].get("tags", ()):
            name = re.match(r"(?:def|class) (\w+)", source)
            hints = [fold for fold in FOLDED.findall(says) if "<summary>Hint" in fold]
            if name:
                takes = TAKES.search(says)
                plain = TAKES.sub("", FOLDED.sub("", says)).strip()
                plain = re.sub(r"^#+", "##", plain)
                minutes = int(takes[1]) if takes else 10
                found[name[1]] = Asked(plain, "".join(hints).strip(), source, minutes)
    return found


def questions(day: date) -> list[str]:
    """Three of the course's predictions and claims, with the answers that its notebooks computed.

    Every day others, until all have been asked.
    """
    asked = _questions()
    first = day.toordinal() * MOST
    return [f"**{i + 1}.** {asked[(first + i) % len(asked)]}" for i in range(MOST)]


@cache
def _questions() -> list[str]:
    found = []
    for cell in _cells(last=SHORT_WAY):  # what comes later speaks of models and runs of its own
        tags = cell["metadata"].get("tags", ())
        for output in cell.get("outputs", ()):
            html = "".join(output.get("data", {}).get("text/html", ""))
            if "prediction" in tags:
                boxes = BOX.findall(html)
                found += [_asked(says, box) for says, box, name in boxes if name in ALONE]
            elif "claim" in tags and html:
                found.append("A claim.\n\n" + re.sub(r" style=(['\"]).*?\1", "", html))
    return [found[i] for start in range(MIX) for i in range(start, len(found), MIX)]


def _asked(says: str, choices: str) -> str:
    folded = "".join(
        f"<details><summary>{label}</summary>{answer}</details>"
        for label, answer in CHOICE.findall(choices)
    )
    return f"{says}\n\n{folded}"


def _words(doc: str | None) -> str:
    return " ".join((doc or "").split())


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    empty = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": {}, **empty, "source": source}
