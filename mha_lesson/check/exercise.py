"""What an exercise is: the right answer in steps, inputs to try it on, and slips of its steps.

A step is a keyword-only argument of the right answer, and its default is the right way to do it.
A slip is another way: one small function and one sentence. Slips of different steps combine.

    @exercise(1, "01", cases=queries_and_keys, gives=("scores (..., T_q, T_k)",))
    def attention_scores(Q, K, *, product=every_query_with_every_key, scale=by_root_d_k):
        return scale(product(Q, K), Q, K)

    @attention_scores.slip("scale", "The scores are divided by d_k.", "How large do they get?")
    def by_d_k(scores, Q, K):
        return scores / Q.shape[-1]
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import torch

MAX_COMBINATIONS = 1500  # of two slips, and of three: a search has to end within half a second
COMMON = 6  # slips of a step that are tried in threes
WHOLE = "whole"  # the site of a slip that replaces the right answer as a whole


@dataclass(frozen=True)
class Finding:
    """One thing that an answer does: a key for statistics, what it did, and a pointer."""

    key: str
    does: str
    asks: str = ""


@dataclass(frozen=True, eq=False)
class Slip(Finding):
    """A finding that can be run: `steps` in place of the right ones at their sites.

    One without words is no mistake: another right way, which other slips may meet.
    """

    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    __eq__ = object.__eq__  # two slips may share their words, and differ in their steps
    __hash__ = object.__hash__

    @cached_property
    def sites(self) -> frozenset[str]:
        return frozenset(self.steps)


@dataclass(frozen=True)
class Case:
    """One input to try an answer on.

    Attributes:
        inputs: the positional arguments.
        sizes: the axis letters and their sizes, to speak about shapes in the letters of the course.
        note: what is special about it, as the end of a sentence: "where K is not contiguous".
        tolerance: how far an answer may deviate at least; the dtype may allow it more.
        wide: numbers too large for half precision, so not tried there.
    """

    inputs: tuple[Any, ...]
    sizes: Mapping[str, int]
    note: str = ""
    tolerance: float = 0.0
    wide: bool = False


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
        gradient: "full" where a gradient has to get through to every input, "some" where one has
            to be there, None where nothing can be learnt.
    """

    right: Callable[..., Any]
    number: int
    notebook: str
    cases: Callable[..., Iterable[Case]]
    gives: tuple[str, ...]
    further: tuple[Callable[..., Finding | None], ...] = ()
    bind: Callable[[Any], Any] | None = None
    gradient: str | None = "full"
    slips: list[Slip] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.right.__name__

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.right).parameters.values()
        return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def sites(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.right).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def slip(
        self,
        site: str,
        does: str,
        asks: str = "",
        *,
        key: str = "",
        also: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a function as another way to do the step `site` (or `WHOLE`).

        Args:
            site: the step, a keyword-only argument of the right answer.
            does, asks: what the code does, and a question or pointer; never the solution.
            key: for statistics; the function's name if empty. Two ways to make one and the
                same mistake share key and words.
            also: other steps that go with it.
        """

        def register(step: Callable[..., Any]) -> Callable[..., Any]:
            slip = Slip(key or step.__name__, does, asks, {site: step, **(also or {})})
            taken = any(s.key == slip.key and s.does != slip.does for s in self.slips)
            if taken or slip.sites - {WHOLE, *self.sites}:
                raise ValueError(
                    f"{self.name}: a slip has a key of its own (or the words of its namesake), and "
                    f"its steps are among {', '.join(self.sites)}; got {slip.key} at "
                    f"{', '.join(slip.sites)}."
                )
            self.slips.append(slip)
            return step

        return register

    def also_right(
        self, site: str, key: str = ""
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers another right way to do a step, which slips of other steps may meet."""
        return self.slip(site, "", key=key)

    def adopt(self, other: "Exercise", *sites: str) -> None:
        """Takes over another exercise's slips of steps that both have."""
        self.slips.extend(s for s in other.slips if s.sites <= set(sites))

    def variant(self, slips: Iterable[Slip], inputs: tuple[Any, ...]) -> Any:
        """The answer of somebody who makes exactly these slips."""
        with torch.no_grad():
            steps = {site: step for slip in slips for site, step in slip.steps.items()}
            if whole := steps.get(WHOLE):
                return whole(*inputs)
            return self.right(*inputs, **steps)

    @cached_property
    def singles(self) -> list[tuple[Slip, ...]]:
        return [(slip,) for slip in self.slips if slip.does]

    @cached_property
    def pairs(self) -> list[tuple[Slip, ...]]:
        return self._together(2, MAX_COMBINATIONS)

    @cached_property
    def triples(self) -> list[tuple[Slip, ...]]:
        return self._together(3, COMMON)

    def _together(self, n: int, common: int) -> list[tuple[Slip, ...]]:
        """Combinations of n slips at different steps, of the first `common` ones at each step.

        What is listed first at its step is the common slip there, and is tried first.
        """
        rank: dict[Slip, int] = {}
        seen: Counter[str] = Counter()
        for slip in self.slips:
            site = next(iter(slip.steps))
            if site != WHOLE and seen[site] < common:
                rank[slip] = seen[site]
                seen[site] += bool(slip.does)
        found = [c for c in combinations(rank, n) if _apart(c)]
        return sorted(found, key=lambda c: sum(rank[s] for s in c))[:MAX_COMBINATIONS]


def _apart(slips: tuple[Slip, ...]) -> bool:
    return all(a.sites.isdisjoint(b.sites) for a, b in combinations(slips, 2))


def exercise(
    number: int,
    notebook: str,
    *,
    cases: Callable[..., Iterable[Case]],
    gives: tuple[str, ...],
    further: tuple[Callable[..., Finding | None], ...] = (),
    bind: Callable[[Any], Any] | None = None,
    gradient: str | None = "full",
) -> Callable[[Callable[..., Any]], Exercise]:
    """Makes an exercise out of its right answer."""
    return lambda right: Exercise(right, number, notebook, cases, gives, further, bind, gradient)
