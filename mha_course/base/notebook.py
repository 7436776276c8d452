"""The one reader of notebooks: what a cell is, headings, folds, exercises and their solutions.

Cells are those of a notebook's `cells`, as JSON or as nbformat reads them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mha_course.base.disk import NOTEBOOKS

SECOND = "second-reading"  # the tag of a heading whose section is folded
HEADING = re.compile(r"(#+) (.*)")
FOLDED = re.compile(r"<details[^>]*>\s*<summary>(.*?)</summary>.*?</details>", re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
STATED = re.compile(r"^\*\w+, (\d+) minutes?\.\* *", re.M)
EXPLORER = re.compile(r"^explore\.\w+\(", re.M)  # a cell that shows a moving picture


@cache
def paths() -> dict[str, Path]:
    """The course's notebooks by their numbers, "00" first."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}


@cache
def course() -> dict[str, list[dict[str, Any]]]:
    """The cells of every notebook, by its number."""
    return {
        book: json.loads(path.read_text(encoding="utf-8"))["cells"]
        for book, path in paths().items()
    }


def tagged(cell: Any, *tags: str) -> bool:
    """Whether a cell has one of these tags."""
    return bool({*tags} & {*cell["metadata"].get("tags", ())})


def source(cell: Any) -> str:
    return "".join(cell["source"])


def heading(cell: Any) -> tuple[int, str]:
    """Level and words of the heading with which a text begins; (0, "") of all other cells."""
    found = HEADING.match(source(cell)) if cell["cell_type"] == "markdown" else None
    return (len(found[1]), found[2].strip()) if found else (0, "")


def headings(cells: Iterable[Any]) -> list[str]:
    """The words of all of them, of those inside of texts, too."""
    texts = (source(cell) for cell in cells if cell["cell_type"] == "markdown")
    return [words.strip() for text in texts for words in re.findall(r"^#+ (.*)", text, re.M)]


def second_readings(cells: Iterable[Any]) -> list[list[Any]]:
    """The cells of every section that is folded when a notebook is opened, its heading first.

    Such a section ends at the next heading of its level or above.
    """
    found: list[list[Any]] = []
    within = 0  # level of the second reading that is open; 0 where none is
    for cell in cells:
        level, _ = heading(cell)
        if level and level <= (within or 6):
            within = level if tagged(cell, SECOND) else 0
            found += [[]] if within else []
        if within:
            found[-1].append(cell)
    return found


def open_thread(cells: Iterable[Any]) -> list[Any]:
    """All cells but those of second readings."""
    cells = [*cells]
    folded = {id(cell) for section in second_readings(cells) for cell in section}
    return [cell for cell in cells if id(cell) not in folded]


def folds(text: str, *labels: str) -> list[str]:
    """The folded parts of a text, in which one unfolds a hint or a solution; with these labels."""
    return [found[0] for found in FOLDED.finditer(text) if found[1].startswith(labels or "")]


def without_folds(text: str, *labels: str, instead: str = "") -> str:
    return FOLDED.sub(lambda m: instead if m[1].startswith(labels or "") else m[0], text)


def python_in(text: str) -> list[str]:
    """The code of its fenced blocks."""
    return PYTHON.findall(text)


def stated_minutes(text: str) -> int:
    """What a text says that its exercises take: "*Medium, 10 minutes.*"."""
    return sum(map(int, STATED.findall(text)))


class Asked(NamedTuple):
    """An exercise as its notebook has it: all between its heading and its stub."""

    heading: str
    says: str  # without what is folded
    hints: list[str]
    solution: str  # its code
    minutes: int
    stub: Any  # a cell

    @property
    def name(self) -> str:
        """What is to be defined, as `check` knows it."""
        return source(self.stub).partition("(")[0].split()[-1]


def exercises(cells: Iterable[Any]) -> Iterator[Asked]:
    """Each code cell that is tagged so, with the text above it."""
    text = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = source(cell) if heading(cell)[0] else f"{text}\n\n{source(cell)}"
        elif tagged(cell, "exercise"):
            title, _, says = text.partition("\n")
            code = [block for fold in folds(says, "Solution") for block in python_in(fold)]
            yield Asked(
                title.lstrip("# "),
                STATED.sub("", without_folds(says)).strip(),
                folds(says, "Hint"),
                "".join(code).rstrip("\n"),
                stated_minutes(says),
                cell,
            )
