"""Say it first: questions to be answered aloud, each with an answer folded below it."""

from dataclasses import dataclass

from mha_course.base.prose import prose
from mha_course.collection.bank import Question, bank
from mha_lesson.refusals import say

HOW = "Say each answer aloud, in your own words, before you open it."


def say_first(*names: str) -> "SayFirst":
    """The questions of the bank with these names, such as "01.why_root".

    Raises:
        ValueError: there is no such question.
    """
    for name in names:
        if name not in bank():
            raise ValueError(f"{say(name)} is no question of the bank; see questions.toml.")
    return SayFirst(tuple(bank()[name] for name in names))


@dataclass(frozen=True)
class SayFirst:
    """Shown by Jupyter as a list of questions; `str` leaves the answers out."""

    questions: tuple[Question, ...]

    def __str__(self) -> str:
        return "\n".join([HOW, *(f"{i}. {q.asks}" for i, q in enumerate(self.questions, 1))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li style='margin:.6em 0'>{asked(q)}</li>" for q in self.questions)
        return f'<div style="max-width:48em;line-height:1.5"><p>{HOW}</p><ol>{items}</ol></div>'


def asked(question: Question) -> str:
    """A question as HTML, its choices, and folded the answer with what a full one holds."""
    choices = "".join(f"<li>{prose(choice)}</li>" for choice in question.choices)
    must = "; ".join(map(prose, question.must))
    return (
        f"{prose(question.asks)}{f'<ul>{choices}</ul>' if choices else ''}"
        "<details style='margin:.3em 0'><summary style='cursor:pointer;min-height:24px'>An answer"
        f"</summary><p>{prose(question.answer)}</p><p><small>A full answer holds: {must}."
        "</small></p></details>"
    )
