"""The questions of the course, of one form in all files; `questions.toml` holds the guesses."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
    """What is asked, and answered; `kind` is "choose", "number" or "say".

    One before a picture is a guess: `look` says what to do with the picture, and the notebook
    computes which choice is right. It has no other answer.
    """

    name: str  # in the bank of the notebook and itself: "01.why_root"
    asks: str
    look: str = ""
    choices: Mapping[str, Choice] = field(default_factory=dict, hash=False)
    at: str = ""  # the heading where it is answered
    level: int = 0
    answer: str = ""
    must: tuple[str, ...] = ()
    right: str = ""
    number: float | None = None
    computed: str = ""
    aloud: bool = False
    often: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.look or (self.at and self.level and self.answer)):
            raise ValueError(f"{self.name} lacks `at`, `level` or `answer`.")

    @property
    def notebook(self) -> str:
        return self.name[:2]

    @property
    def kind(self) -> str:
        return "choose" if self.choices else "say" if self.number is None else "number"


KNOWN = {one.name for one in fields(Question)} - {"name"} | {"wrong"}
TEXTS = {one.name for one in fields(Question) if one.type is str} & KNOWN


def read(source: Path) -> Mapping[str, Question]:
    """All questions of a file by their names, in its order.

    Raises:
        ValueError: the file is none of questions, or one of them is not written as they are.
    """
    groups = tomllib.loads(source.read_text("utf-8-sig"))
    for group, some in groups.items():
        if not isinstance(some, dict) or not all(isinstance(one, dict) for one in some.values()):
            raise ValueError(f"a question has a head such as [01.why]; got [{group}].")
    entries = {
        f"{group}.{name}".removeprefix("question."): entry
        for group, some in groups.items()
        for name, entry in some.items()
    }
    return {name: _question(name, **entry) for name, entry in entries.items()}


def _question(name: str, **entry: Any) -> Question:
    if unknown := ", ".join(sorted(entry.keys() - KNOWN)):
        raise ValueError(f"[{name}] has {unknown}; a question may have {', '.join(sorted(KNOWN))}.")
    for key in sorted(TEXTS & entry.keys()):
        if not isinstance(entry[key], str):
            raise ValueError(f"[{name}] needs a text for {key}; got {entry[key]!r}.")
    if type(number := entry.get("number", 0)) not in (int, float):
        raise ValueError(f"[{name}] needs a number such as 8 or 0.125; got {number!r}.")
    if not all(isinstance(one, list) and len(one) == 3 for one in entry.get("wrong", ())):
        raise ValueError(f'[{name}] needs wrong = [["choice", "why not", "01 a heading"], …].')
    choices = {label: Choice.read(*about) for label, about in entry.pop("choices", {}).items()}
    wrong = {label: Choice.read(*about) for label, *about in entry.pop("wrong", ())}
    if right := entry.get("right"):  # has no place of its own among the mistakes
        told = Choice(entry.get("answer", ""), name[:2], entry.get("at", ""))
        choices = dict(sorted((wrong | {right: told}).items()))
    elif wrong:
        raise ValueError(f"{name} needs `right` beside `wrong`.")
    for key in {"must", "often"} & entry.keys():
        entry[key] = (said,) if isinstance(said := entry[key], str) else (*said,)
    return Question(name, choices=choices, **entry)


@cache
def questions() -> Mapping[str, Question]:
    """All guesses of the course by their names, in its order."""
    return read(SOURCE)


def known_guesses(guesses: Any) -> dict[str, str]:
    """The guesses that name a question of the course and one of its choices."""
    if not isinstance(guesses, dict):
        return {}
    known = questions()
    return {n: c for n, c in guesses.items() if n in known and c in [*known[n].choices]}
