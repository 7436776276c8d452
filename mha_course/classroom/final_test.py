"""A final test for a class: a notebook and the same on paper, to hand out; the key apart.

    mha-lesson test --notebooks 01-06 [--bank MINE.toml]

It writes two new folders, and so nothing over anything. Exercises come in another layout than the
course's, and questions that no notebook, worksheet or practice asks. Only the teacher learns the
seed: whoever has it, and this package, can make the key. Who has the package can also read every
question and answer of it, with every layout; a file of your own is what nobody has seen, and a
machine without the package tells nothing. `mha-lesson classroom FOLDER --test KEY` gathers what is
handed in: code is judged, and words stand beside the key, question by question.
"""

import argparse
import inspect
import json
import random
import re
import secrets
import shlex
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode, v4

from mha_course.base.disk import free_path, plainly, write_whole
from mha_course.base.notebook import paths
from mha_course.base.numerals import counted, listed
from mha_course.collection.bank import EXAM, Question, bank
from mha_course.exercises import Exercise, variants_solved
from mha_course.exercises.variants import VARIANTS
from mha_course.pages.worksheets import page
from mha_course.practice import asked
from mha_course.practice.from_memory import CLASS
from mha_lesson.refusals import say

BOOKS = [*paths()]
MOST_EXERCISES, MOST_QUESTIONS = 3, 9
FOR_CODE, A_STEP = 5, 2  # points for code, and what a step costs that the check names as wrong
HEAD = """# {title}

Write your answers into this notebook: code in place of the dots, the rest below each question.
No notebook of the course, and no check, is at hand. {worth}"""
ON_PAPER = "Write your answers on these sheets; code need not run. {}"
WORTH = "{}; code that is wrong in one step earns points, too."
STEPS = (
    f"Code: {FOR_CODE} points, and {A_STEP} less for each step that the check names as wrong; what "
    "it cannot name, you judge. A number or a choice: one point, given where it stands alone. "
    "Words: one for each thing that the answer holds."
)
SETUP = "import math\n\nimport torch\nimport torch.nn.functional as F"
ANSWER = "*Your answer:*"
KEY = "key.json"  # beside key.html, for `mha-lesson classroom --test`


class Part(NamedTuple):
    """What is asked, for how many points, and what the key says.

    `name` and `stub` are those of an exercise, where code is asked for; `right` is the right one of
    the choices, or the right number.
    """

    points: int
    asks: str
    answer: str
    name: str = ""
    stub: str = ""
    choices: tuple[str, ...] = ()
    right: str = ""

    @property
    def listed(self) -> str:
        """The choices as a notebook's cell has them."""
        lines = [f"{i}. {choice}" for i, choice in enumerate(self.choices, 1)]
        return asked.formulas("\n".join(lines))

    def cell(self, number: int) -> str:
        """As a notebook's cell asks it."""
        head = f"## {number} · {counted(self.points, 'point')}"
        return f"{head}\n\n{self.asks}\n\n{self.listed}".rstrip()


def books(text: str) -> list[str]:
    return listed("--notebooks", text, {int(book): book for book in BOOKS}, BOOKS)


def chosen(
    numbers: Collection[str], seed: int, own: Path | None = None
) -> tuple[list[Exercise], list[Question]]:
    """Exercises and questions of these notebooks, each in the order of the course; of 06 the class
    of exercise 11, as a function.

    Raises:
        ValueError: `own`, a file of further questions, cannot be read as one.
    """
    draw = random.Random(seed)
    layouts = {n: some for n, some in VARIANTS.items() if some[0].notebook in numbers}
    names = sorted(draw.sample([*layouts], len(layouts)), key=lambda name: name != CLASS)
    some = [layouts[name] for name in layouts if name in names[:MOST_EXERCISES]]
    exercises = [draw.choice(variants) for variants in some]
    try:
        banks = [[*bank(path).values()] for path in (own, EXAM) if path]
        for question in banks[0]:
            if question.notebook not in BOOKS or (question.kind == "say" and not question.must):
                raise ValueError(f"{question.name} needs a notebook's number, and `must`.")
    except UnicodeDecodeError as error:
        raise ValueError(f"--bank takes a file in UTF-8; save {own} as that.") from error
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"--bank takes a file like {EXAM}; {own}: {plainly(error)}") from error
    dealt = list[Question]()
    for unseen in banks:  # a teacher's own first
        piles = [[q for q in unseen if q.notebook == book] for book in numbers]
        turns = zip_longest(*(draw.sample(pile, len(pile)) for pile in piles))
        dealt += [question for turn in turns for question in turn if question]
    return exercises, sorted(dealt[:MOST_QUESTIONS], key=lambda question: question.notebook)


def parts(exercises: Sequence[Exercise], questions: Sequence[Question]) -> Iterator[Part]:
    for exercise in exercises:
        stub = f"def {exercise.name}({', '.join(exercise.arguments)}):\n    ..."
        answer = inspect.getsource(getattr(variants_solved, exercise.name))
        words = f"Write `{exercise.name}`.\n\n{inspect.getdoc(exercise.in_steps)}"
        yield Part(FOR_CODE, words, f"```python\n{answer}```", exercise.name, stub)
    for question in questions:
        right = question.right or ("" if question.number is None else str(question.number))
        bold = f"**{right}.** " if right else ""  # what the answers are judged by
        holds = "".join(f"\n- {point}" for point in question.must)
        where = f"(Notebook {int(question.notebook)}, *{question.at}*)"
        key = asked.formulas(f"{bold}{question.answer} {where}\n{holds}")
        points = len(question.must) if question.kind == "say" else 1
        text, choices = asked.formulas(question.asks), tuple(question.choices)
        yield Part(points, text, key, choices=choices, right=right)


def read_key(folder: Path) -> list[Part]:
    """The parts of a test, from the folder of its key.

    Raises:
        ValueError: no key lies there.
    """
    try:
        said = json.loads((folder / KEY).read_text(encoding="utf-8"))
        return [Part(**part) for part in said]
    except (OSError, ValueError, TypeError) as error:
        wanted = f"the folder of a test's key, in which {KEY} is as it was written"
        raise ValueError(f"--test takes {wanted}; got {folder}.") from error


def test(title: str, some: Sequence[Part], worth: str) -> NotebookNode:
    cells = [v4.new_markdown_cell(HEAD.format(title=title, worth=worth))]
    cells.append(v4.new_code_cell(SETUP))
    for number, part in enumerate(some, 1):
        cells.append(v4.new_markdown_cell(part.cell(number)))
        cells.append(v4.new_code_cell(part.stub) if part.stub else v4.new_markdown_cell(ANSWER))
    for i, cell in enumerate(cells):
        cell.id = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def write(
    numbers: Sequence[str], seed: int, out: Path, own: Path | None = None
) -> tuple[Path, Path]:
    """Writes test and paper into a new folder, the key into another; gives both."""
    exercises, questions = chosen(numbers, seed, own)
    which = f"notebook{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
    title, some = f"Final test on {which}", [*parts(exercises, questions)]
    if not some:
        raise ValueError(f"--notebooks needs one that a test can ask about; got {which}.")
    worth = WORTH.format(counted(sum(part.points for part in some), "point"))
    folder = free_path(out / "final_test")
    secret = free_path(out / f"{folder.name}_key")
    printed = partial(page, "test.html.j2", parts=some)
    files = {
        folder / "final_test.ipynb": nbformat.writes(test(title, some, worth)) + "\n",
        folder / "final_test.html": printed(title=title, intro=ON_PAPER.format(worth)),
        secret / "key.html": printed(title=f"{title}: the key, seed {seed}", intro=STEPS, key=True),
        secret / KEY: json.dumps([part._asdict() for part in some], indent=1),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return folder, secret


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="mha-lesson test",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--notebooks", default="01-06", help="a list: 1-6,11")
    parser.add_argument("--seed", help="a whole number, for the same test again; else one is drawn")
    parser.add_argument("--bank", type=Path, help=f"questions of your own, written as in {EXAM}")
    parser.add_argument("--out", type=Path, default=Path(), help="where the new folder goes")
    options = parser.parse_args(arguments)
    seed = options.seed or str(secrets.randbelow(10**9))
    if not re.fullmatch(r"\d{1,9}", seed):
        raise ValueError(f"--seed takes a whole number of up to nine digits; got {say(seed)}.")
    numbers = books(options.notebooks)
    if options.out.is_file():
        raise ValueError(f"--out takes a folder; got {options.out}.")
    folder, key = write(numbers, int(seed), options.out, options.bank)
    print(f"Written: {folder}, to hand out: the test as a notebook, and on paper (.html).")
    print(f"For you alone: {key}, and the seed, {seed}, from which it can be made again.")
    ours = sum(question.notebook in numbers for question in bank(EXAM).values())
    if options.bank:
        own = [question.notebook in numbers for question in bank(options.bank).values()]
        print(f"Asked of your {counted(len(own), 'question')}: {min(sum(own), MOST_QUESTIONS)}.")
        ours += sum(own)
    code = sum(some[0].notebook in numbers for some in VARIANTS.values())
    drawn = f"{min(code, MOST_EXERCISES)} of {counted(code, 'exercise')} and "
    drawn += f"{min(ours, MOST_QUESTIONS)} of {counted(ours, 'question')}"
    print(f"Drawn: {drawn}; another seed draws from the same.")
    print(f"What is handed in: mha-lesson classroom FOLDER --test {shlex.quote(str(key))}")
