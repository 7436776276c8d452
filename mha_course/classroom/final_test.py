"""A final test for a class: a notebook, the same on paper, and the key apart.

    mha-lesson test --notebooks 01-06 --seed 7

It writes a new folder, and so nothing over anything. Exercises come in another layout than the
course's, and questions from the bank, without those that the notebooks answer at their ends. The
same seed gives the same test. What is handed in is judged by `mha-lesson classroom`, as far as it
is code; for the rest the key says what a full answer holds.
"""

import argparse
import inspect
import random
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode, v4

from mha_course.base.disk import NOTEBOOKS, free_path, write_whole
from mha_course.base.numerals import counted
from mha_course.collection.bank import Question, bank
from mha_course.exercises import Exercise, variants_solved
from mha_course.exercises.variants import VARIANTS
from mha_course.pages.paper import printed
from mha_course.practice import asked
from mha_lesson.refusals import say

BOOKS = sorted(path.name[:2] for path in NOTEBOOKS.glob("[0-9]*.ipynb"))
MOST_EXERCISES, MOST_QUESTIONS = 3, 9
FOR_CODE = 5  # points; an answer in words gives one for each thing that it must hold
HEAD = """# {title}

Write your answers into this notebook: code in place of the dots, the rest below each question.
No notebook of the course, and no check, is at hand. {points}."""
SETUP = "import math\n\nimport torch\nimport torch.nn.functional as F"
ANSWER = "*Your answer:*"
ROOM = "<br>" * 7  # on paper


class Part(NamedTuple):
    """What is asked, for how many points; a stub where code is asked for; what the key says."""

    points: int
    asks: str
    stub: str
    answer: str

    def headed(self, number: int) -> str:
        """What is asked, below its number and its points."""
        return f"## {number} · {counted(self.points, 'point')}\n\n{self.asks}"


def books(text: str) -> list[str]:
    """The numbers of "04", or of all from "01-06".

    Raises:
        ValueError: they are no notebooks of the course.
    """
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first in BOOKS and last in BOOKS and first <= last):
        raise ValueError(
            f"--notebooks takes one, as in 04, or from one to another, as in 01-06; got {text}."
        )
    return BOOKS[BOOKS.index(first) : BOOKS.index(last) + 1]


def chosen(numbers: Collection[str], seed: int) -> tuple[list[Exercise], list[Question]]:
    """Exercises and questions of these notebooks, each in the order of the course."""
    draw = random.Random(seed)
    layouts = [some for some in VARIANTS.values() if some[0].notebook in numbers]
    some = sorted(draw.sample(range(len(layouts)), min(MOST_EXERCISES, len(layouts))))
    exercises = [draw.choice(layouts[i]) for i in some]
    unseen = [question for question in bank().values() if not question.aloud]
    piles = [[q for q in unseen if q.notebook == book] for book in numbers]
    turns = zip_longest(*(draw.sample(pile, len(pile)) for pile in piles))
    dealt = [question for turn in turns for question in turn if question][:MOST_QUESTIONS]
    return exercises, [question for question in unseen if question in dealt]


def parts(exercises: Sequence[Exercise], questions: Sequence[Question]) -> Iterator[Part]:
    for exercise in exercises:
        stub = f"def {exercise.name}({', '.join(exercise.arguments)}):\n    ..."
        answer = inspect.getsource(getattr(variants_solved, exercise.name))
        words = f"Write `{exercise.name}`.\n\n{inspect.getdoc(exercise.in_steps)}"
        yield Part(FOR_CODE, words, stub, f"```python\n{answer}```")
    for question in questions:
        right = f"**{question.right}.** " if question.right else ""
        holds = "".join(f"\n- {point}" for point in question.must)
        where = f"(Notebook {int(question.notebook)}, *{question.at}*)"
        key = asked.formulas(f"{right}{question.answer} {where}\n{holds}")
        points = len(question.must) if question.kind == "say" else 1
        yield Part(points, asked.asks(question), "", key)


def test(title: str, some: Sequence[Part]) -> NotebookNode:
    points = counted(sum(part.points for part in some), "point")
    cells = [v4.new_markdown_cell(HEAD.format(title=title, points=points))]
    cells.append(v4.new_code_cell(SETUP))
    for number, part in enumerate(some, 1):
        cells.append(v4.new_markdown_cell(part.headed(number)))
        cells.append(v4.new_code_cell(part.stub) if part.stub else v4.new_markdown_cell(ANSWER))
    return notebook(cells)


def on_paper(paper: NotebookNode) -> NotebookNode:
    """With room to write."""
    for cell in paper.cells:
        if cell.source == ANSWER:
            cell.source = ROOM
        elif cell.cell_type == "code" and cell.source != SETUP:
            cell.source = cell.source.replace("...", "\n" * 8 + "    #")
    return paper


def key(title: str, some: Sequence[Part]) -> NotebookNode:
    texts = [f"{part.headed(number)}\n\n{part.answer}" for number, part in enumerate(some, 1)]
    return notebook([v4.new_markdown_cell(text) for text in (f"# {title}: the key", *texts)])


def notebook(cells: list[NotebookNode]) -> NotebookNode:
    for i, cell in enumerate(cells):
        cell.id = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def write(numbers: Sequence[str], seed: int, out: Path) -> tuple[Path, list[Exercise]]:
    """Writes test, paper and key into a new folder; gives it, and the exercises."""
    exercises, questions = chosen(numbers, seed)
    first, last = numbers[0], numbers[-1]
    span = f"notebooks {first} to {last}" if first != last else f"notebook {first}"
    title, some = f"Final test on {span} (seed {seed})", [*parts(exercises, questions)]
    folder = free_path(out / f"final_test{seed}")
    folder.mkdir(parents=True)
    notebook = test(title, some)
    files = {
        f"{folder.name}.ipynb": nbformat.writes(notebook) + "\n",
        f"{folder.name}.html": printed(on_paper(notebook), title),
        f"{folder.name}_key.html": printed(key(title, some), f"{title}: the key"),
    }
    for name, text in files.items():
        write_whole(folder / name, text.encode())
    return folder, exercises


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="mha-lesson test",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--notebooks", default="01-06", help="one, 04, or from one to another")
    parser.add_argument("--seed", default="0", help="a whole number: another one, another test")
    parser.add_argument("--out", type=Path, default=Path(), help="where the new folder goes")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"\d{1,9}", options.seed):
        raise ValueError(f"--seed takes a whole number from 0 on; got {say(options.seed)}.")
    folder, exercises = write(books(options.notebooks), int(options.seed), options.out)
    print(f"Written: {folder}: the test (.ipynb), the same on paper (.html), the key (_key.html).")
    if exercises:
        names = ",".join(exercise.name for exercise in exercises)
        print(f"What is handed in: mha-lesson classroom FOLDER --assigned {names}")
