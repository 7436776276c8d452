"""What `compare` can find, and in which words it says so."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDS = TABLE["words"]
OWN = (Bug(n, **e, threads=(), summary="", mended=False) for n, e in TABLE["bug"].items())
BUGS = {**shipped.bugs(), **{bug.name: bug for bug in OWN}}


class Finding(NamedTuple):
    """One thing that is not as it must be.

    Attributes:
        name: of a mistake, or of what `findings.toml` says of classes.
        where: the argument, in words.
        call: the smallest call that was seen to fail, in words.
        partly: whether the argument is right in another form.
    """

    name: str
    where: str = ""
    call: str = ""
    partly: bool = False

    def __str__(self) -> str:
        at = f" ({self.where})" if self.where else ""
        bug = BUGS.get(self.name, Bug("", "", "", (), "", False, ()))
        does = TABLE["says"].get(self.name, bug.does)
        mended = ", before it was mended" * bug.mended
        thread = f"\nSo did {bug.threads[0]}{mended}: {bug.summary}" if bug.threads else ""
        meant = TABLE["meant"].get(self.name, f"If it is meant, say ignore=[{self.name!r}].")
        return f"{does}{at}{thread}\n{TABLE['meant'].get(bug.kind, meant)}"


@dataclass(frozen=True)
class Comparison:
    """What came out; `str` puts it into words.

    Attributes:
        found: "right" where all that was tried agrees, masks too; names of findings, "a, b";
            "partly" where only some of it agrees; "drawn" where two runs in evaluation differ; ""
            where nothing fits.
        digits: to how many digits outputs agree with that.
        causal: whether it agrees with a causal mask.
        below: the score from which on they do not; ∞ where all scores agree that were tried.
        masks: the masks that it takes, each with its convention and its axes.
        seen: what else came out, in sentences.
        findings: what `found` names, each with its argument and the smallest call that fails.
        tried: what was run, and what was not.
    """

    found: str = ""
    digits: int = 0
    causal: bool = False
    below: float = math.inf
    masks: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The first line: the verdict, and the argument and the smallest call that fail."""
        masks = f"takes {' and '.join(self.masks)}" if self.masks else "takes no mask"
        below = f" below scores of {self.below:,.0f}" * (self.below < math.inf)
        what = f"multi-head attention, {'not ' * (not self.causal)}causal, {masks}"
        said = {
            "": "UNKNOWN: neither multi-head attention nor a known mistake gives these outputs.",
            "right": f"RIGHT: {what}, to {self.digits} digits{below}.",
            "partly": f"PARTLY: {what}, but not in all that was tried.",
            "drawn": "WRONG drawn: two runs of the same input differ in evaluation.",
        }
        if self.found in said:
            return said[self.found]
        _, where, call, partly = self.findings[0]
        word = "UNTRIED" if self.found == "mask_untried" else "PARTLY" if partly else "WRONG"
        at = f": {where}" * bool(where) + f"; smallest call that fails: {call}" * bool(call)
        return f"{word} {self.found}{at}"

    @property
    def words(self) -> str:
        """The verdict, what to do, and what else was seen."""
        beside = f"Beside that it is multi-head attention, {'not ' * (not self.causal)}causal."
        known = [*map(str, self.findings), *[beside] * bool(self.findings)]
        return "\n".join([self.verdict, *known, *(f"- {note}" for note in self.seen)])

    def __str__(self) -> str:
        return "\n".join([self.words, *(f"- {line}" for line in self.tried)])
