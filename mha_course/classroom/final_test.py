"""A final test for a class: a notebook and the same on paper, to hand out; the key apart.

    mha-lesson test --notebooks 01-06 [--bank MINE.toml]

It writes two new folders, and so nothing over anything. Exercises come in another layout than the
course's, and questions that no notebook, worksheet or practice asks. Only the teacher learns the
seed: whoever has it, and this package, can make the key. Who has the package can also read every
question and answer of it; a file of your own is what nobody has seen. What is handed in is judged
by `mha-lesson classroom`, as far as it is code; for the rest the key says what a full answer holds.
"""

import argparse
import inspect
import random
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode, v4

from mha_course.base.disk import free_path, write_whole
from mha_course.base.notebook import paths
from mha_course.base.numerals import counted
from mha_course.collection.bank import EXAM, Question, bank
from mha_course.exercises import Exercise, variants_solved
from mha_course.exercises.variants import VARIANTS
from mha_course.pages.paper import printed
from mha_course.practice import asked
from mha_lesson.refusals import say

BOOKS = [*paths()]
MOST_EXERCISES, MOST_QUESTIONS = 3, 9
FOR_CODE = 5  # points; an answer in words gives one for each thing that it must hold
HEAD = """# {title}

Write your answers into this notebook: code in place of the dots, the rest below each question.
No notebook of the course, and no check, is at hand. {points}."""
ON_PAPER = "Write your answers on these sheets.\n\nName: " + "_" * 40
SETUP = "import math\n\nimport torch\nimport torch.nn.functional as F"
ANSWER = "*Your answer:*"
LINE = '<div style="height: 2.2em; border-bottom: 1px solid #999"></div>'


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


def chosen(
    numbers: Collection[str], seed: int, own: Path | None = None
) -> tuple[list[Exercise], list[Question]]:
    """Exercises and questions of these notebooks, each in the order of the course.

    Raises:
        ValueError: `own`, a file of further questions, cannot be read as one.
    """
    draw = random.Random(seed)
    layouts = [some for some in VARIANTS.values() if some[0].notebook in numbers]
    some = sorted(draw.sample(range(len(layouts)), min(MOST_EXERCISES, len(layouts))))
    exercises = [draw.choice(layouts[i]) for i in some]
    try:
        unseen = [*bank(EXAM).values(), *(bank(own).values() if own else ())]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"--bank takes a file like {EXAM}; {own}: {error}") from error
    unseen.sort(key=lambda question: question.notebook)
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
    """With a line for the name, and room to write."""
    for cell in paper.cells:
        cell.source = re.sub(r"Write your answers into(.|\n)*? at hand\.", ON_PAPER, cell.source)
        if cell.source == ANSWER:
            cell.source = LINE * 4
        elif cell.cell_type == "code":
            cell.source = cell.source.replace("...", "\n" * 8 + "\N{NO-BREAK SPACE}")
    return paper


def key(title: str, some: Sequence[Part]) -> NotebookNode:
    texts = [f"{part.headed(number)}\n\n{part.answer}" for number, part in enumerate(some, 1)]
    return notebook([v4.new_markdown_cell(text) for text in (f"# {title}: the key", *texts)])


def notebook(cells: list[NotebookNode]) -> NotebookNode:
    for i, cell in enumerate(cells):
        cell.id = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def write(
    numbers: Sequence[str], seed: int, out: Path, own: Path | None = None
) -> tuple[Path, list[Exercise]]:
    """Writes test and paper into a new folder, the key beside it; gives it, and the exercises."""
    exercises, questions = chosen(numbers, seed, own)
    first, last = numbers[0], numbers[-1]
    span = f"notebooks {first} to {last}" if first != last else f"notebook {first}"
    title, some = f"Final test on {span}", [*parts(exercises, questions)]
    folder = free_path(out / "final_test")
    notebook, named = test(title, some), f"{title}, seed {seed}"
    files = {
        folder / "final_test.ipynb": nbformat.writes(notebook) + "\n",
        folder / "final_test.html": printed(on_paper(notebook), title),
        free_path(out / f"{folder.name}_key") / "key.html": printed(key(named, some), named),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return folder, exercises


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="mha-lesson test",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--notebooks", default="01-06", help="one, 04, or from one to another")
    parser.add_argument("--seed", help="a whole number, for the same test again; else one is drawn")
    parser.add_argument("--bank", type=Path, help=f"questions of your own, written as in {EXAM}")
    parser.add_argument("--out", type=Path, default=Path(), help="where the new folder goes")
    options = parser.parse_args(arguments)
    seed = options.seed or str(secrets.randbelow(10**9))
    if not re.fullmatch(r"\d{1,9}", seed):
        raise ValueError(f"--seed takes a whole number from 0 on; got {say(seed)}.")
    folder, exercises = write(books(options.notebooks), int(seed), options.out, options.bank)
    print(f"Written: {folder}, to hand out: the test as a notebook, and on paper (.html).")
    print(f"For you alone: {folder}_key, and the seed, {seed}, from which it can be made again.")
    if exercises:
        names = ",".join(exercise.name for exercise in exercises)
        print(f"What is handed in: mha-lesson classroom FOLDER --assigned {names}")
