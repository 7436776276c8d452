"""Classes, right and wrong, with a module's own weights; and which of them give its outputs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations, product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug
from mha_course.comparison import layers
from mha_course.comparison.findings import OWN
from mha_course.comparison.layers import Reading, Roles
from mha_course.comparison.subject import digits

RIGHT = Bug("right", "", "", (), "", True, ())
USUAL = r"|`\w+` is read as \(h, \d, d_k\) of (q, k, v|k, v|q, k)"  # what a usual reading notes
NO_MIXING = ("scale", "weights", "layer", "heads", "fused")  # kinds that let no token see another
UNSEEN = {"mask convention": slice(-1), "mask moved": slice(1, None)}  # queries that have a key
Run = tuple[Tensor, Tensor]  # an input, and the module's output


class Linear(NamedTuple):
    """PyTorch's takes longer to make than to run."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Candidate(NamedTuple):
    """A class, right or wrong, and how the module's weights are read."""

    bug: Bug
    causal: bool
    reading: Reading

    @property
    def names(self) -> list[str]:
        """Of its mistakes; none where it is right."""
        return [*self.reading.mistakes, *self.bug.name.split(", ") * (self.bug is not RIGHT)]

    def layer(self, letter: str) -> Linear:
        """W^Q, W^K, W^V or W^O as it is read."""
        rows = self.reading.rows[letter]
        return Linear(rows[:, :-1], rows[:, -1])

    def output(self, x: Tensor, blocked: Tensor | None = None) -> Tensor:
        """Its output; `blocked` beside what it blocks by itself."""
        module = object.__new__(self.bug.build)  # no mistake changes how the layers are made
        vars(module).update(n_heads=self.reading.h, training=False)
        vars(module).update({f"w_{letter}": self.layer(letter) for letter in self.reading.rows})
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            blocked = later if blocked is None else later | blocked
        return module.forward(x, blocked)

    def masked(self, x: Tensor, blocked: Tensor | None, mistake: str = "") -> Tensor:
        """What it must give of a mask, not causal by itself; or with one mistake more."""
        bug = both(self.bug, OWN.get(mistake) or shipped.bug(mistake)) if mistake else self.bug
        try:
            return self._replace(bug=bug, causal=False).output(x, blocked)
        except ValueError:  # the two do not go together in one class
            return torch.full_like(x, torch.nan)

    def digits(self, x: Tensor, y: Tensor) -> float:
        """To how many digits it gives y, where a query has a key: else any fill may stand."""
        rows = UNSEEN.get(self.bug.kind * self.causal, slice(None))
        return digits(self.output(x)[:, rows], y[:, rows])

    def largest_score(self, x: Tensor) -> float:
        heads = (self.layer(letter)(x).unflatten(-1, (self.reading.h, -1)) for letter in "qk")
        q, k = (part.transpose(1, 2) for part in heads)
        return ((q @ k.mT).abs().max() / q.shape[-1] ** 0.5).item()


def both(one: Bug, two: Bug) -> Bug:
    """Two mistakes in one class; whether both have room shows when it is built."""
    if one is RIGHT:
        return two
    name, kind = f"{one.name}, {two.name}", f"{one.kind}, {two.kind}"
    return Bug(name, kind, "", (), "", False, [*one.changes, *two.changes])


def _pairs(bugs: list[Bug]) -> Iterator[Bug]:
    """Two mistakes in one class, where both have room."""
    done: set[frozenset[str]] = set()
    for one, two in permutations(bugs, 2):  # one may make room for the other
        if one.kind != two.kind and (pair := frozenset((one.name, two.name))) not in done:
            with suppress(ValueError):
                both(one, two).build  # noqa: B018
                done.add(pair)
                yield both(one, two)


def fitting(
    module: nn.Module,
    ways: Sequence[Roles],  # to give roles to its layers, likely ones first
    heads: list[int],  # numbers of them, likely ones first
    sure: bool,  # whether the first is meant
    sees: bool,  # whether tokens see later ones
    runs: list[Run],
    same: int,  # digits that count as equal
    deep: bool,  # whether to try unlikely readings, and two mistakes at once
) -> list[Candidate]:
    """The candidates of the likeliest kind that give what the module gives."""
    singles = [b for b in shipped.bugs().values() if b.base == "Attention"]
    singles = [b for b in [*singles, *OWN.values()] if b.kind not in ("dropout", "mask dropped")]
    d_model = runs[0][0].shape[2]

    def read(roles: Roles, numbers: Iterable[int]) -> Iterator[Reading]:
        for h in numbers:
            yield from layers.readings(module, roles, h, d_model)

    def each(bugs: Iterable[Bug], readings: Iterable[Reading]) -> Iterator[Candidate]:
        for bug, reading, causal in product(bugs, readings, (False, True)):
            missing = bug.kind == "layer missing" and "w_o" not in reading.roles
            mixes = not all(kind.startswith(NO_MIXING) for kind in bug.kind.split(", "))
            shows = causal if bug.kind.startswith("mask") else mixes or causal != sees
            if shows and not missing and (bug is not RIGHT or causal != sees):
                yield Candidate(bug, causal, reading)

    def others() -> Iterator[Reading]:
        yield from read(ways[0], heads)
        for roles in ways[1:]:
            yield from (r for r in read(roles, heads[:1]) if not r.unusual)

    known = [*read(ways[0], heads[:1] if sure else heads)]
    usual = [r for r in known if re.fullmatch(USUAL, r.unusual)]
    main = (r for r in known if r.h == heads[0] and "W^O" not in r.unusual)
    likely = [each([RIGHT, *singles], usual)]
    unlikely = [  # each is made when those before have failed
        (Candidate(RIGHT, not sees, r) for r in others()),
        each(singles, main),
        each(_pairs(singles), usual),
    ]
    for stage in unlikely if deep else likely:
        fit = [c for c in stage if all(c.digits(*run) >= same for run in runs)]
        if fit:
            return fit
    return []
