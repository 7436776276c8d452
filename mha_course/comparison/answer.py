"""What `compare` answers, in words."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug
from mha_course.comparison.mask_trials import OWN

KEYS = Bug("scale_n_keys", "scale", "The scores are divided by the root of the number of keys.",
           (), "", False, [("math.sqrt(d_k)", "math.sqrt(T)")])  # fmt: skip
MEANT = {  # kind of mistake → where it is none
    "scale": "If the scale stands elsewhere on purpose (in the initialisation, in a norm, in a "
    "factor that is learned), it is a choice, not a mistake.",
    "layer missing": "If W^O is in another module, let `call` apply both.",
    "batch axis": "If the module wants tokens first, as nn.MultiheadAttention does without "
    "batch_first, let `call` turn the axes: x.transpose(0, 1), and back.",
    "fused order": "If the weights are stored head by head, it is a choice, not a mistake.",
    "mask convention": "If True means “keep” in this module, let `call` give ~mask.",
    "heads": "If one head is meant, say n_heads=1.",
}


@dataclass(frozen=True)
class Comparison:
    """What came out; `str` puts it into words.

    Attributes:
        found: "right" where all that was tried agrees, every mask of the signature included; the
            name of a mistake, or of several, "a, b"; "not_causal" or "causal" where the other is
            demanded; "partly" where only some of it agrees; "drawn" where two runs in evaluation
            differ; "" where nothing fits.
        digits: to how many digits outputs agree with that.
        causal: whether it agrees with a causal mask.
        below: the score from which on they do not; ∞ where all scores agree that were tried.
        masks: the masks that it takes, each with its convention and its axes.
        seen: what else came out, what was tried and what was not, in sentences.
    """

    found: str = ""
    digits: int = 0
    causal: bool = False
    below: float = math.inf
    masks: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    def __str__(self) -> str:
        is_ = "Causal" if self.causal else "Not causal"
        masks = f", takes {' and '.join(self.masks)}" if self.masks else ", takes no mask"
        what = "multi-head attention" + " with a causal mask" * self.causal
        below = f" below scores of {self.below:,.0f}" * (self.below < math.inf)
        first = {
            "": f"Neither {what} nor one of the published mistakes gives these outputs.",
            "right": f"{is_}{masks}. Right: multi-head attention, to {self.digits} digits{below}.",
            "partly": f"{is_}{masks}. A part of what was tried agrees with multi-head attention, "
            "or with a mistake, and a part does not:",
            "mask_untried": f"{is_}. Multi-head attention in all that was tried, but *right* would "
            "say too much:",
            "drawn": "Two runs of the same input differ in evaluation.",
            "not_causal": f"It is not causal{masks}, and causal was demanded. Beside that it is "
            "multi-head attention:",
            "causal": f"It is causal{masks}, and was to be not causal. Beside that it is "
            "multi-head attention:",
        }.get(self.found)
        if first is None:
            names = self.found.split(", ")
            points = f"{len(names)} point{'s' * (len(names) > 1)}"
            first = f"Its outputs are those of {what}, changed in {points}:"
            first = "\n".join([first, *map(_described, names)])
        return "\n".join([first, *(f"- {note}" for note in self.seen)])


def _described(name: str) -> str:
    if name in OWN:
        return OWN[name]
    bug = KEYS if name == KEYS.name else shipped.bug(name)
    mended = ", before it was mended" * bug.mended
    thread = f"\nSo did {bug.threads[0]}{mended}: {bug.summary}" if bug.threads else ""
    return f"{bug.does}{thread}\n{MEANT.get(bug.kind, 'If it is meant, it is not a mistake.')}"


def sizes_in_words(sizes: Iterable[tuple[int, ...]]) -> str:
    """For every number of sequences its lengths."""
    lengths: dict[int, set[int]] = {}
    for B, T in sizes:
        lengths.setdefault(B, set()).add(T)
    each = [f"{B} × {', '.join(map(str, sorted(Ts)))}" for B, Ts in sorted(lengths.items())]
    return "; ".join(each)
