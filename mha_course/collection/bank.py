"""The bank: questions on what the course says, for notebooks, for practice and for a final test.

`bank.toml` holds them, by notebook, and `exam.toml` those that only a final test asks. Which has a
right answer that can be computed, and that it is the one that stands there, the tests say.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mha_course.collection.questions import Choice

SOURCE = Path(__file__).with_suffix(".toml")
EXAM = SOURCE.with_name("exam.toml")


@dataclass(frozen=True)
class Question:
    """One question; `kind` is "choose", "number" or "say"."""

    name: str  # of the notebook and itself: "01.why_root"
    at: str  # the heading where it is answered
    level: int
    asks: str
    answer: str
    must: tuple[str, ...]
    right: str = ""
    wrong: Mapping[str, Choice] = field(default_factory=dict, hash=False)  # mistakes: what is true
    number: float | None = None
    computed: str = ""
    aloud: bool = False
    often: tuple[str, ...] = ()

    @property
    def notebook(self) -> str:
        return self.name[:2]

    @property
    def kind(self) -> str:
        return "choose" if self.right else "say" if self.number is None else "number"

    @property
    def choices(self) -> tuple[str, ...]:
        """All choices, in an order of their own: the right one has no place of its own."""
        return tuple(sorted((self.right, *self.wrong))) if self.right else ()


@cache
def bank(source: Path = SOURCE) -> Mapping[str, Question]:
    """All questions of a file by their names, notebook by notebook."""
    books = tomllib.loads(source.read_text(encoding="utf-8"))
    return {
        f"{book}.{name}": _question(f"{book}.{name}", **entry)
        for book, some in books.items()
        for name, entry in some.items()
    }


def _question(name: str, **entry: Any) -> Question:
    wrong = {label: Choice.read(*about) for label, *about in entry.pop("wrong", ())}
    lists = {key: tuple(entry.pop(key, ())) for key in ("must", "often")}
    parts: dict[str, Any] = entry | lists
    return Question(name, wrong=wrong, **parts)
