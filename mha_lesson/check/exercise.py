"""What an exercise is: the right answer in steps, inputs to try it on, and slips of its steps.

A step is a keyword-only argument of the right answer, and its default is the right way to do it.
A slip is another way: one small function and one sentence. Slips of different steps combine.

    @exercise(1, "01", cases=pairs_of_vectors)
    def attention_scores(Q, K, *, turn=last_two_axes, scale=by_root_d_k):
        return scale(Q @ turn(K), Q, K)

    @attention_scores.slip("scale", "Your scores are divided by d_k.", "How large do they get?")
    def by_d_k(scores, Q, K):
        return scores / Q.shape[-1]
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

MAX_COMBINATIONS = 2000  # of two slips, and of three: a search has to end within half a second
WHOLE = "whole"  # the site of a slip that replaces the right answer as a whole


@dataclass(frozen=True)
class Finding:
    """One thing that an answer does: a key for statistics, what it did, and a pointer."""

    key: str
    does: str
    asks: str = ""


@dataclass(frozen=True)
class Slip(Finding):
    """A finding that can be run: `step` in place of the right one at `site`."""

    site: str = WHOLE
    step: Callable[..., Any] = field(default=lambda *inputs: None, compare=False)


@dataclass(frozen=True)
class Case:
    """One input to try an answer on.

    Attributes:
        inputs: the positional arguments.
        sizes: the axis letters and their sizes, to speak about shapes in the letters of the course.
        note: what is special about it, as the end of a sentence: "where K is not contiguous".
        tolerance: how many times more than usual the answer may deviate.
    """

    inputs: tuple[Any, ...]
    sizes: Mapping[str, int]
    note: str = ""
    tolerance: float = 1.0


@dataclass(frozen=True)
class Bound:
    """What the learner wrote, as a function of a case's inputs, and the cases to try it on."""

    answer: Callable[..., Any]
    cases: list[Case]


@dataclass
class Exercise:
    """The right answer, the inputs it is judged on, and the slips that are known.

    Attributes:
        right: the right answer; its keyword-only arguments are the steps.
        number, notebook: its place in the series.
        cases: makes the float64 inputs, on which wrong answers are told apart.
        gives: names of what comes back, with shapes; several where a tuple comes back.
        further: makes checks beyond values on float64: `judge(answer) -> Finding | None`.
        bind: turns what the learner wrote into a function of a case's inputs; by default itself.
    """

    right: Callable[..., Any]
    number: int
    notebook: str
    cases: Callable[..., Iterable[Case]]
    gives: tuple[str, ...]
    further: tuple[Callable[..., Finding | None], ...] = ()
    bind: Callable[[Any], Any] | None = None
    slips: list[Slip] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.right.__name__

    @cached_property
    def sites(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.right).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def slip(
        self, site: str, does: str, asks: str = "", *, key: str = ""
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a function as another way to do the step `site` (or `WHOLE`)."""
        if site != WHOLE and site not in self.sites:
            raise ValueError(f"{self.name} has no step {site!r}; it has {', '.join(self.sites)}.")

        def register(step: Callable[..., Any]) -> Callable[..., Any]:
            name = key or step.__name__
            if any(known.key == name for known in self.slips):
                raise ValueError(f"{self.name} knows a slip {name!r} already.")
            self.slips.append(Slip(name, does, asks, site, step))
            return step

        return register

    def adopt(self, other: "Exercise", *sites: str) -> None:
        """Takes over another exercise's slips of steps that both have."""
        self.slips.extend(s for s in other.slips if s.site in sites)

    def variant(self, slips: Iterable[Slip], inputs: tuple[Any, ...]) -> Any:
        """The answer of somebody who makes exactly these slips."""
        steps = {}
        for slip in slips:
            if slip.site == WHOLE:
                return slip.step(*inputs)
            steps[slip.site] = slip.step
        return self.right(*inputs, **steps)

    @cached_property
    def singles(self) -> list[tuple[Slip, ...]]:
        return [(slip,) for slip in self.slips]

    @cached_property
    def pairs(self) -> list[tuple[Slip, ...]]:
        return self._together(2)

    @cached_property
    def triples(self) -> list[tuple[Slip, ...]]:
        return self._together(3)

    def _together(self, n: int) -> list[tuple[Slip, ...]]:
        """Combinations of n slips at n different steps, the common ones first.

        What is listed first at its step is the common slip there.
        """
        rank = {
            slip: i
            for site in self.sites
            for i, slip in enumerate(s for s in self.slips if s.site == site)
        }
        found = [c for c in combinations(rank, n) if len({s.site for s in c}) == n]
        return sorted(found, key=lambda c: sum(rank[s] for s in c))[:MAX_COMBINATIONS]


def exercise(
    number: int,
    notebook: str,
    *,
    cases: Callable[..., Iterable[Case]],
    gives: tuple[str, ...],
    further: tuple[Callable[..., Finding | None], ...] = (),
    bind: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], Exercise]:
    """Makes an exercise out of its right answer."""
    return lambda right: Exercise(right, number, notebook, cases, gives, further, bind)
