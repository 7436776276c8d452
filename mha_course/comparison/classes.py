"""Classes, right and wrong, with a module's own weights."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mha_course.collection.shipped import Bug
from mha_course.comparison.findings import BUGS
from mha_course.comparison.layers import Reading
from mha_course.comparison.subject import digits

RIGHT = Bug("right", "", "", (), "", True, ())
UNSEEN = {"mask convention": slice(-1), "mask moved": slice(1, None)}  # queries that have a key


def later(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(1)


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
            blocked = later(x.shape[1]) if blocked is None else later(x.shape[1]) | blocked
        return module.forward(x, blocked)

    def masked(self, x: Tensor, blocked: Tensor | None, mistake: str = "") -> Tensor:
        """What it must give of a mask, not causal by itself; or with one mistake more."""
        bug = both(self.bug, BUGS[mistake]) if mistake else self.bug
        try:
            return self._replace(bug=bug, causal=False).output(x, blocked)
        except ValueError:  # the two do not go together in one class
            return torch.full_like(x, torch.nan)

    def digits(self, x: Tensor, y: Tensor) -> float:
        """To how many digits it gives y, where a query has a key: else any fill may stand."""
        rows = UNSEEN.get(self.bug.kind * self.causal, slice(None))
        return digits(self.output(x)[:, rows], y[:, rows])

    def scores(self, x: Tensor) -> Tensor:
        heads = (self.layer(letter)(x).unflatten(-1, (self.reading.h, -1)) for letter in "qk")
        q, k = (part.transpose(1, 2) for part in heads)
        return q @ k.mT / q.shape[-1] ** 0.5


def both(one: Bug, two: Bug) -> Bug:
    """Two mistakes in one class; whether both have room shows when it is built."""
    if one is RIGHT:
        return two
    name, kind = f"{one.name}, {two.name}", f"{one.kind}, {two.kind}"
    return Bug(name, kind, "", (), "", False, [*one.changes, *two.changes])


def pairs(bugs: list[Bug]) -> Iterator[Bug]:
    """Two mistakes in one class, where both have room; one may make room for the other."""
    for one, two in combinations(bugs, 2):
        for pair in (both(one, two), both(two, one)) if one.kind != two.kind else ():
            with suppress(ValueError):
                pair.build  # noqa: B018
                yield pair
                break
