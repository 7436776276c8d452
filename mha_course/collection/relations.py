"""For notebook 08: sentences made for two relations of words, and how two orders agree."""

from itertools import product

import torch
from torch import Tensor

NOUNS = ["bridge", "creek", "man", "boat", "girl", "road", "door", "house"]
ADJECTIVES = ["old", "cold", "tall", "small", "young", "long", "heavy", "quiet"]
VERBS = ["fell", "rose", "stayed", "returned", "disappeared", "moved", "waited", "vanished"]
BETWEEN = {
    "adjective>noun": ("little", "but lovely", "and rather dirty"),
    "verb>subject": ("there", "near us", "behind the old wall"),
}


def made_links() -> dict[str, list[tuple[str, int, int]]]:
    """Relation -> 24 of (sentence, from which word, to which), none where a fixed distance has it.

    Word 0 is [CLS].
    """
    adjectives = [
        (f"The {adjective} {between} {noun} was there.", 2, len(between.split()) + 3)
        for between, (adjective, noun) in product(
            BETWEEN["adjective>noun"], zip(ADJECTIVES, NOUNS, strict=True)
        )
    ]
    verbs = [
        (f"The {noun} {between} {verb}.", len(between.split()) + 3, 2)
        for between, (noun, verb) in product(
            BETWEEN["verb>subject"], zip(NOUNS, VERBS, strict=True)
        )
    ]
    back = [(sentence, subject, verb) for sentence, verb, subject in verbs]
    return {"adjective>noun": adjectives, "verb>subject": verbs, "subject>verb": back}


def rank_correlation(a: Tensor, b: Tensor, given: Tensor | None = None) -> float:
    """Spearman's, of vectors of one length (n,); 1 is the same order, −1 the reverse.

    With `given` of what is left of both orders once that of `given` is taken out.
    """
    a, b, *rest = (
        x.argsort().argsort().double() - (len(x) - 1) / 2 for x in (a, b, given) if x is not None
    )
    for c in rest:
        a, b = (x - (x @ c) / (c @ c) * c for x in (a, b))
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()
