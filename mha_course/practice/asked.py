"""Questions of the bank in practice: what is known by now, and how it was answered last time."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from mha_course.base.notebook import course, heading, open_thread
from mha_course.base.prose import prose
from mha_course.collection.bank import Question, bank
from mha_course.practice import journal
from mha_course.practice.journal import Attempt
from mha_course.practice.schedule import due

HOW = {
    "choose": "the number of your choice",
    "number": "the number",
    "say": "how many of its points your answer lacked (0 if it had all)",
}
TOMORROW = "It comes back tomorrow."
# √d_k, W_qᵀ; not in code
SYMBOL = re.compile(r"`[^`]*`|(√?)\b([A-Za-z])([_^])([A-Za-z]+)(ᵀ?)")


@cache
def open_headings() -> frozenset[tuple[str, str]]:
    """(notebook, heading) of what stands in an open thread."""
    return frozenset(
        (book, heading(cell)[1])
        for book, cells in course().items()
        for cell in open_thread(cells)
        if heading(cell)[0]
    )


def chosen(day: date, notebooks: Collection[str], most: int) -> list[Question]:
    """What was answered and is due, missed ones first; then new ones of these notebooks."""
    known = {
        name: question
        for name, question in bank().items()
        if question.notebook in notebooks and (question.notebook, question.at) in open_headings()
    }
    met = due(journal.attempts(), {}, [*known])
    back = [known[one.name] for one in met if one.day <= day]
    seen = {one.name for one in met}
    new = [question for name, question in known.items() if name not in seen]
    turn = day.toordinal() * 5 % len(new) if new else 0  # neighbours are about one thing
    mixed = (new[turn:] + new[:turn])[:: max(1, len(new) // most)]
    room = max(1, most - bool(new))  # for a new one, too
    return (back[:room] + sorted(mixed, key=lambda q: q.level))[:most]


def formulas(text: str) -> str:
    """A plain sentence for a text cell: √d_k as a formula."""

    def set_one(found: re.Match[str]) -> str:
        root, letter, sign, small, turned = found.groups()
        if letter is None:
            return found[0]
        small = rf"\text{{{small}}}" if len(small) > 1 else small
        symbol = f"{letter}{sign}{small}{'^T' if turned else ''}"
        return rf"$\sqrt{{{symbol}}}$" if root else f"${symbol}$"

    return SYMBOL.sub(set_one, text)


def aloud(question: Question) -> str:
    """The question as it is asked aloud; an answer and what it holds are folded."""
    points = "".join(f"\n- {point}" for point in question.must)
    return formulas(
        f"{question.asks}\n\n<details><summary>Said it aloud? An answer, and its points</summary>"
        f"\n\n{question.answer}\n{points}\n\n</details>"
    )


def asks(question: Question) -> str:
    """The question, with its choices if it has some."""
    choices = [f"{i}. {choice}" for i, choice in enumerate(question.choices, 1)]
    return formulas("\n".join([question.asks, "", *choices]).rstrip())


def text(question: Question) -> str:
    """The question as a cell of a notebook of practice."""
    asked = aloud(question) if question.kind == "say" else asks(question)
    return f"{asked}\n\n*Replace the dots by {HOW[question.kind]}.*"


@dataclass(frozen=True)
class Said:
    """What is to be said of an answer, shown by Jupyter as a line or two."""

    passed: bool | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sign = {True: "✓ ", False: "✗ ", None: "○ "}[self.passed]
        body = "".join(f"<p style='margin:.3em 0'>{prose(line)}</p>" for line in self.lines)
        return f'<div role="status" style="max-width:60em">{sign}{body}</div>'


def answered(name: str, answer: Any) -> Said:
    """Judges an answer, and notes the outcome; three dots are none."""
    question = bank().get(name)
    if question is None:
        raise ValueError(f"{name} is no question of the bank.")
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return Said(None, (f"Not answered yet: write {HOW[question.kind]}.",))
    passed, mistake = _judged(question, answer)
    journal.note(Attempt(journal.today(), name, passed, asked=name))
    lines = [mistake, question.answer] if question.kind != "say" or not passed else []
    had, of = len(question.must) - answer, len(question.must)
    if not passed and question.kind == "say" and 0 < had < of:
        return Said(None, (f"{had:.0f} of {of} points. {TOMORROW}", *lines))
    verdict = "Right." if passed else f"Not right. {TOMORROW}"
    return Said(passed, (verdict, *filter(None, lines)))


def _judged(question: Question, answer: float) -> tuple[bool, str]:
    if question.kind == "say":
        return answer == 0, ""
    if question.kind == "number":
        assert question.number is not None
        return abs(answer - question.number) <= 1e-3 * abs(question.number), ""
    choice = dict(enumerate(question.choices, 1)).get(int(answer), "")
    if choice in ("", question.right):
        return choice != "", ""
    wrong = question.choices[choice]
    return False, f"{wrong.says} (Notebook {int(wrong.notebook)}, *{wrong.heading}*)"


def cells(questions: list[Question]) -> Iterator[tuple[str, str]]:
    """(text, code) of each, for a notebook of practice."""
    for i, question in enumerate(questions, 1):
        yield f"**{i}.** {text(question)}", f'check.practice.answer("{question.name}", ...)'
