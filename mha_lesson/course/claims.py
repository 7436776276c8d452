"""A claim that tutorials repeat, put to the test: what was said, whether it holds, the figures."""

from dataclasses import dataclass
from html import escape

from mha_lesson.refusals import require_text, say


@dataclass(frozen=True)
class Claim:
    """One verdict, shown by Jupyter as a card; `str(claim)` says the same in plain words.

    Attributes:
        text: the claim, in the words in which it is usually made.
        holds: the outcome of the test, computed in the notebook.
        verdict: what is true, in a sentence.
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
        return "holds" if self.holds else "does not hold"

    def __str__(self) -> str:
        return f"Claim: {self.text}\nIt {self.word}: {self.verdict}\nMeasured: {self.measured}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = "#009E73" if self.holds else "#D55E00"
        sign = "✓" if self.holds else "✗"
        return (
            f'<div style="border-left:4px solid {colour};padding:.4em 1em;max-width:48em">'
            f"<p style='margin:.2em 0'><em>“{escape(self.text)}”</em></p>"
            f"<p style='margin:.2em 0'><strong>{sign} It {self.word}:</strong> "
            f"{escape(self.verdict)}</p>"
            f"<p style='margin:.2em 0'>Measured: {escape(self.measured)}</p></div>"
        )
