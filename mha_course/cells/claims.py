"""A claim that tutorials repeat, put to the test: what was said, whether it holds, the figures."""

import re
from dataclasses import dataclass

from mha_course.base.prose import prose
from mha_lesson.refusals import require_text, say

QUOTED = re.compile(r": [“\"']")  # whose claim it is stands before, the claim itself is in quotes
GUESS = "Your guess: does it hold in general? The verdict is inside."


@dataclass(frozen=True)
class Claim:
    """One verdict, shown by Jupyter as a card: the claim, and folded below it the verdict.

    `str(claim)` says the same in plain words.

    Attributes:
        text: whose claim it is, and the claim in the words in which it is usually made:
            "Many tutorials: “…”". Without a colon and a quotation the whole text is quoted.
        holds: the outcome of the test, computed in the notebook.
        verdict: what is true, in a sentence that can be read by itself.
        measured: the figures behind it.
    """

    text: str
    holds: bool
    verdict: str
    measured: str

    def __post_init__(self) -> None:
        if not isinstance(self.holds, bool):
            raise TypeError(f"holds must be True or False; got {say(self.holds)}.")
        require_text(text=self.text, verdict=self.verdict, measured=self.measured)

    @property
    def word(self) -> str:
        return "It holds" if self.holds else "Not in general"

    def __str__(self) -> str:
        return f"Claim: {self.text}\n{self.word}: {self.verdict}\nMeasured: {self.measured}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = "#009E73" if self.holds else "#D55E00"
        quoted = self.text if QUOTED.search(self.text) else f"“{self.text}”"
        return (
            '<div style="border:1px solid #808080;padding:.4em 1em;max-width:48em">'
            f"<p style='margin:.2em 0'><em>{prose(quoted)}</em></p>"
            f"<details style='margin:.3em 0'><summary style='cursor:pointer'>{GUESS}</summary>"
            f"<div style='border-left:4px solid {colour};padding-left:.8em;margin:.4em 0'>"
            f"<p style='margin:.2em 0'><strong>{self.word}:</strong> {prose(self.verdict)}</p>"
            f"<p style='margin:.2em 0'>Measured: {prose(self.measured)}</p></div></details></div>"
        )
