"""A claim that tutorials repeat, put to the test: what was said, whether it holds, the figures."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mha_course.base.prose import prose
from mha_lesson.refusals import require_text, say

QUOTED = re.compile(r": [“\"']")  # whose claim it is stands before, the claim itself is in quotes
VERDICTS = {  # the word and its colour
    True: ("It holds", "#009E73"),
    False: ("Not in general", "#D55E00"),
    None: ("Not decided", "#0072B2"),
}
GUESS = "Your guess: does it hold in general? The verdict is inside."


@dataclass(frozen=True)
class Claim:
    """One verdict, shown by Jupyter as a card: the claim, and folded below it the verdict.

    `str(claim)` says the same in plain words.

    >>> said = "A lesson: “one head is enough”", False, "It takes two.", "0 of 5"
    >>> Claim(*said, exact="counted", tried={"runs": 5})
    Claim: A lesson: “one head is enough”
    Not in general: It takes two.
    Measured: 0 of 5; exact: counted
    Tried on: 5 runs

    Attributes:
        text: whose claim it is, and the claim in the words in which it is usually made:
            "Many tutorials: “…”". Without a colon and a quotation the whole text is quoted.
        holds: the outcome of the test, computed in the notebook. False needs a test that could
            have said True; None where it could not tell the two apart.
        verdict: what is true, in a sentence that can be read by itself.
        measured: the figures behind it; True is shown as yes, False as no.
        null: what chance alone would give, or the best of as many tries by chance.
        interval: where the figure lies, 95% of the time, or from the lowest run to the highest.
        exact: why chance plays no part, in place of null and interval: "one counterexample".
        power: the smallest effect that this would have shown; needed where holds is None.
        tried: of what it is true, from the values that the cell used: {"pages": 3} is shown as
            3 pages, {"d_k": (8, 64)} as d_k = 8, 64. What has one value was never varied.
        also: what was tried besides, once, and is not computed in the notebook.
    """

    text: str
    holds: bool | None
    verdict: str
    measured: str
    null: str = ""
    interval: str = ""
    power: str = ""
    exact: str = ""
    tried: Mapping[str, int | Iterable[object]] = field(kw_only=True)
    also: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.holds, bool | None):
            raise TypeError(f"holds must be True, False or None; got {say(self.holds)}.")
        require_text(
            text=self.text,
            verdict=self.verdict,
            measured=self.measured,
            null=self.null,
            interval=self.interval,
            power=self.power,
            exact=self.exact,
            also=self.also,
        )
        if not (isinstance(self.tried, Mapping) and self.tried):
            raise TypeError(f"tried must be a dict, name by name how many; got {say(self.tried)}.")
        for name, of in self.tried.items():
            if isinstance(of, str) or not isinstance(of, int | Iterable):
                raise TypeError(f"tried[{name!r}] must be an int or values; got {say(of)}.")
        if not self.exact and not (self.null and self.interval):
            raise ValueError(
                "exact must say why chance plays no part, or null and interval how much; "
                f"got null={self.null!r}, interval={self.interval!r}."
            )
        if self.holds is None and not self.power:
            raise ValueError(
                "power must say which effect would have been seen, since holds is None; got ''."
            )

    @staticmethod
    def span(figures: Iterable[float], places: int = 2) -> str:
        """0.41 to 0.48: from the lowest figure to the highest, once where they are the same."""
        low, *_, high = (f"{figure:.{places}f}" for figure in sorted(figures))
        return low if low == high else f"{low} to {high}"

    @property
    def word(self) -> str:
        return VERDICTS[self.holds][0]

    @property
    def figures(self) -> str:
        """All that was measured, in one line."""
        test = {
            "exact:": self.exact,
            "by chance": self.null,
            "interval": self.interval,
            "would show": self.power,
        }
        said = [f"{name} {figure}" for name, figure in test.items() if figure]
        return "; ".join([self.measured, *said]).replace("True", "yes").replace("False", "no")

    @property
    def below(self) -> dict[str, str]:
        """What stands below the verdict, line by line."""
        tried = "; ".join(
            f"{of:,} {name}" if isinstance(of, int) else f"{name} = {', '.join(map(str, of))}"
            for name, of in self.tried.items()
        )
        also = {"Also tried": self.also} if self.also else {}
        return {"Measured": self.figures, "Tried on": tried} | also

    def __str__(self) -> str:
        below = "".join(f"\n{name}: {said}" for name, said in self.below.items())
        return f"Claim: {self.text}\n{self.word}: {self.verdict}{below}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = VERDICTS[self.holds][1]
        quoted = self.text if QUOTED.search(self.text) else f"“{self.text}”"
        below = "".join(
            f"<p style='margin:.2em 0'>{name}: {prose(said)}</p>"
            for name, said in self.below.items()
        )
        return (
            '<div style="border:1px solid #808080;padding:.4em 1em;max-width:48em">'
            f"<p style='margin:.2em 0'><em>{prose(quoted)}</em></p>"
            f"<details style='margin:.3em 0'><summary style='cursor:pointer'>{GUESS}</summary>"
            f"<div style='border-left:4px solid {colour};padding-left:.8em;margin:.4em 0'>"
            f"<p style='margin:.2em 0'><strong>{self.word}:</strong> {prose(self.verdict)}</p>"
            f"{below}</div></details></div>"
        )
