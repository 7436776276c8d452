"""The questions of the course: `questions.toml`, read for all who ask them or look at guesses."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mha_course.base.notebook import paths
from mha_course.base.prose import prose

SOURCE = Path(__file__).with_suffix(".toml")
SAFE = "?/:@!$&'()*+,;="  # in an anchor, as Jupyter writes it


@dataclass(frozen=True)
class Choice:
    """The answer to whoever chooses it, and the notebook and heading that explain it."""

    says: str
    notebook: str
    heading: str

    @classmethod
    def read(cls, says: str, where: str) -> "Choice":
        """As both files have it: `where` is the number of a notebook, and a heading there."""
        return cls(says, *where.split(maxsplit=1))

    def answer(self, right: bool) -> str:
        """What is said to whoever chose it, as HTML."""
        verdict = "Right." if right else "Not so."
        return f"<p><strong>{verdict}</strong> {prose(self.says)} → {self.link()}</p>"

    def link(self) -> str:
        """To the heading that explains it; its anchor is that of Jupyter and nbconvert."""
        anchor = self.heading.replace("`", "").replace(" ", "-")
        to = f"{paths()[self.notebook].name}#{escape(quote(anchor, safe=SAFE))}"
        number = int(self.notebook)
        return f'<a href="{to}">notebook {number}, <em>{prose(self.heading)}</em></a>'


@dataclass(frozen=True)
class Question:
    """What is asked, what to do with the picture, and the choices in their order."""

    asks: str
    look: str
    choices: Mapping[str, Choice]


@cache
def questions() -> dict[str, Question]:
    """All of the course by their names, in its order."""
    entries = tomllib.loads(SOURCE.read_text("utf-8"))["question"]
    return {name: _question(**entry) for name, entry in entries.items()}


def _question(asks: str, look: str, choices: dict[str, list[str]]) -> Question:
    return Question(asks, look, {label: Choice.read(*about) for label, about in choices.items()})


def known_guesses(guesses: Any) -> dict[str, str]:
    """The guesses that name a question of the course and one of its choices."""
    if not isinstance(guesses, dict):
        return {}
    known = questions()
    return {n: c for n, c in guesses.items() if n in known and c in [*known[n].choices]}
