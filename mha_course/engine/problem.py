"""A problem: the right answer in steps, inputs to try it on, and slips of its steps.

A step is a keyword-only argument of the right answer. The right way to do it is its default, or
what the step's block returns. A slip is another way: an expression, and below it the words. Slips
of different steps combine.

    @exercise(1, "01", make_cases=queries_and_keys, gives=("scores (..., T_q, T_k)",))
    def attention_scores(Q, K, *, product, scale, finish=unchanged):
        return finish(scale(product(Q, K), Q, K))

    @attention_scores.step
    def scale(scores, Q, K):
        by_d_k = scores / Q.shape[-1]
        "The scores are divided by d_k. | How large do they get?"
        return scores / math.sqrt(Q.shape[-1])
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any, NamedTuple

import torch

from mha_course.engine.blocks import ways
from mha_course.engine.report import Finding

MOST_PAIRS = 1700  # all pairs that people made are among these
WHOLE = "whole"  # the site of a slip that replaces the right answer as a whole
Step = Callable[..., Any]
HOMES: dict[str, str] = {}  # of each exercise's stub, its notebook


@dataclass(frozen=True, eq=False)
class Slip(Finding):
    """A finding that can be run: `steps` in place of the right ones at their sites.

    One without words is no mistake: another right way, which other slips may meet.
    """

    steps: Mapping[str, Step] = field(default_factory=dict)

    __eq__ = object.__eq__  # two slips may share their words, and differ in their steps
    __hash__ = object.__hash__

    @property
    def is_mistake(self) -> bool:
        return bool(self.does)

    @cached_property
    def sites(self) -> frozenset[str]:
        return frozenset(self.steps)


Slips = tuple[Slip, ...]


def disjoint(slips: Slips) -> bool:
    """Whether no two of them are slips of the same step."""
    return all(a.sites.isdisjoint(b.sites) for a, b in combinations(slips, 2))


class StepRaised(Exception):
    """In place of a step's own error, whose traceback would keep every frame."""


class Memory(dict[tuple[Any, ...], Any]):
    """What has been computed on a case's inputs: answers with other slips share most steps."""

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self:
            try:
                self[key] = make()
            except Exception:
                self[key] = StepRaised
        if self[key] is StepRaised:
            raise StepRaised
        return self[key]

    def step(self, step: Step, *inputs: Any) -> Any:
        """What a step gives, computed once for the same inputs."""
        key = (step, *map(id, inputs))
        self[(*key, "given")] = inputs  # held, though it may raise: no id comes twice
        return self.remembered(key, lambda: step(*inputs))


@dataclass(frozen=True)
class Case:
    """One input to try an answer on.

    Attributes:
        inputs: the positional arguments.
        sizes: the axis letters and their sizes, to speak about shapes in the letters of the course.
        note: what is special about it, as the end of a sentence: "where K is not contiguous".
        tolerance: how far an answer may deviate at least; the dtype may allow it more.
        wide: numbers too large for half precision, so not tried there.
        asks: a question; a case that has one is tried last, of an answer that is right elsewhere.
    """

    inputs: tuple[Any, ...]
    sizes: Mapping[str, int]
    note: str = ""
    tolerance: float = 0.0
    wide: bool = False
    asks: str = ""
    memory: Memory = field(default_factory=Memory, init=False, repr=False, compare=False)

    @property
    def words(self) -> str:
        """Its sizes, and what is special about it."""
        sizes = [f"{letter} = {n}" for letter, n in self.sizes.items()]
        return ", ".join([*sizes, self.note] if self.note else sizes)


@dataclass(frozen=True)
class Bound:
    """What the learner wrote, as a function of a case's inputs, and all cases to try it on.

    `rebind` makes such a function of another version of what was written.
    """

    answer: Callable[..., Any]
    every_case: list[Case]
    rebind: Callable[[Any], Callable[..., Any]] = lambda version: version

    @property
    def cases(self) -> list[Case]:
        return _usual(self.every_case)


def _usual(cases: list[Case]) -> list[Case]:
    return [case for case in cases if not case.asks]


class Result(NamedTuple):
    """One of the things that an answer gives: its name, and its axes in letters."""

    name: str
    axes: tuple[str, ...]

    @property
    def short(self) -> str:
        return self.name.removeprefix("the ")

    @property
    def shape(self) -> str:
        return f"({', '.join(self.axes)}{',' * (len(self.axes) == 1)})"


def _result(words: str) -> Result:
    name, _, axes = words.partition(" (")
    return Result(name, tuple(a for a in axes.rstrip(",)").split(", ") if a))


@dataclass(eq=False)
class Problem:
    """The right answer, the inputs it is tried on, and the slips that are known.

    Attributes:
        in_steps: the right answer; its keyword-only arguments are the steps.
        number, notebook: its place in the series.
        make_cases: makes the float64 inputs, on which wrong answers are told apart.
        gives: names of what comes back, with shapes; several where a tuple comes back.
        further: makes checks beyond values on float64: `ask(answer, cases) -> Finding | None`.
        bind: turns what the learner wrote into a function of a case's inputs; by default itself.
        gradient: whether one has to get through to every input; False where nothing can be learnt.
        trials_by_part: takes trials apart where the answer shows what it has got in between: gives
            (a problem for a part, its trials), so that slips of several parts are found.
        stages: in order, the steps whose results a learner's lines make, too, and what these are;
            ">step" is what a step is given first.
        ready_made: functions that do all of it, or a part; a right answer that calls it hears so.
        remark: what else is worth saying of a right answer: `remark(attempt) -> str`.
        reread: the heading in its notebook where what it asks for is explained.
        part_of: an exercise whose answer holds this one's: practice asks for one of the two.
        keeps_inputs: where an answer that writes into its inputs is wrong, and not only told so.
        half: whether it asks for float16 and bfloat16; else what shows there alone is only told.
    """

    in_steps: Step
    number: int
    notebook: str
    make_cases: Callable[..., Iterable[Case]]
    gives: tuple[str, ...]
    further: tuple[Callable[..., Finding | None], ...] = ()
    bind: Callable[[Any], Any] | None = None
    gradient: bool = True
    keeps_inputs: bool = False
    half: bool = False
    stages: Mapping[str, str] = field(default_factory=dict)
    ready_made: tuple[str, ...] = ()
    remark: Callable[..., str] | None = None
    reread: str = ""
    part_of: str = ""
    trials_by_part: Callable[..., Any] | None = None
    _made: dict[Any, list[Case]] = field(default_factory=dict, repr=False)
    _known: list[Slip] = field(default_factory=list, repr=False)
    _blocks_to_read: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _paired: tuple[int, list[Slips]] = field(default=(-1, []), repr=False)

    @property
    def name(self) -> str:
        return self.in_steps.__name__

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of what an answer is given."""
        parameters = inspect.signature(self.in_steps).parameters.values()
        return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def sites(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.in_steps).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    @cached_property
    def _steps(self) -> dict[str, Step]:
        return dict(getattr(self.in_steps, "__kwdefaults__", None) or {})

    @property
    def steps(self) -> dict[str, Step]:
        """The right way to do each step."""
        _ = self.slips  # their blocks return it
        return self._steps

    def right(self, *inputs: Any, **instead: Step) -> Any:
        """The right answer, or one with other steps instead of the right ones."""
        return self.in_steps(*inputs, **self.steps | instead)

    @cached_property
    def results(self) -> tuple[Result, ...]:
        return tuple(map(_result, self.gives))

    @property
    def cases(self) -> list[Case]:
        return _usual(self.every_case)

    @property
    def every_case(self) -> list[Case]:
        """Made once; answers get copies of what is in them."""
        if self.make_cases not in self._made:
            self._made[self.make_cases] = list(self.make_cases())
        return self._made[self.make_cases]

    # --- the catalogue ---------------------------------------------------------------------------

    @property
    def slips(self) -> list[Slip]:
        """What is known; those of the package are read when they are first asked for."""
        while self._blocks_to_read:
            self._blocks_to_read.pop(0)()
        return self._known

    def step(self, block: Any = None, *, at: str = "", **also: Any) -> Any:
        """Registers slips of a step.

        Args:
            block: the function whose statements are the slips (see `blocks`), or the ways
                themselves, (key, what it does, a question, the function), as `families` makes them.
            at: the step, if the function has another name; `WHOLE` for the answer as a whole.
            also: other steps that go with them; a tuple of several if each is a way of its own,
                with None for the right step.
        """
        if block is None:
            return partial(self.step, at=at, **also)
        site = at or block.__name__
        self._blocks_to_read.append(lambda: self._read(block, site, also))
        if callable(block) and not block.__module__.startswith(__name__.rpartition(".engine.")[0]):
            _ = self.slips  # a teacher's: now, with its errors
        return block

    def _read(self, block: Any, site: str, also: Mapping[str, Any]) -> None:
        choices = [x if isinstance(x, tuple) else (x,) for x in also.values()]
        given = ways(block, {s.key: s for s in self._known}) if callable(block) else block
        from_a_cell = getattr(block, "__module__", "") == "__main__"
        for key, does, asks, way in given:
            if not key:
                self._steps.setdefault(site, way)
                continue
            if from_a_cell:  # a cell that runs again replaces its slips
                self._known[:] = [s for s in self._known if s.key != key]
            for chosen in product(*choices):
                more = {s: x for s, x in zip(also, chosen, strict=True) if x is not None}
                self._add(Slip(key, does, asks, steps={site: way, **more}))

    def adopt(self, other: "Problem", *sites: str, but: tuple[str, ...] = ()) -> None:
        """Takes over another problem's steps and their slips."""

        def take() -> None:
            self._steps.update({site: other.steps[site] for site in sites} | self._steps)
            fitting = [s for s in other.slips if s.sites <= set(sites) and s.key not in but]
            self._known.extend(fitting)

        self._blocks_to_read.append(take)

    def _add(self, slip: Slip) -> None:
        taken = any(s.key == slip.key and s.does != slip.does for s in self._known)
        if taken or slip.sites - {WHOLE, *self.sites}:
            raise ValueError(
                f"{self.name}: a slip has a key of its own (or the words of its namesake), and "
                f"its steps are among {', '.join(self.sites)}; got {slip.key} at "
                f"{', '.join(slip.sites)}."
            )
        self._known.append(slip)

    # --- running it ------------------------------------------------------------------------------

    def result_of(
        self, slips: Iterable[Slip], inputs: tuple[Any, ...], memory: Memory | None = None
    ) -> Any:
        """The answer of somebody who makes exactly these slips, at different steps."""
        steps = dict(self.steps)
        steps |= {site: step for slip in slips for site, step in slip.steps.items()}
        if memory is not None:
            steps = {site: partial(memory.step, step) for site, step in steps.items()}
        with torch.no_grad():
            if whole := steps.get(WHOLE):
                return whole(*inputs)
            return self.right(*inputs, **steps)

    def result_on(self, case: Case, slips: Slips = ()) -> Any:
        """The same on a case's inputs, computed once."""
        known, key = case.memory, (self, *slips)
        if slips:
            return known.remembered(key, lambda: self.result_of(slips, case.inputs, known))
        if key not in known:
            known[key] = self.result_of((), case.inputs)  # with errors of its own
        return known[key]

    @property
    def singles(self) -> list[Slips]:
        return [(slip,) for slip in self.slips if slip.is_mistake]

    @property
    def pairs(self) -> list[Slips]:
        """Two slips at different steps; what is listed first at its step is common, and first."""
        if self._paired[0] != len(self.slips):
            rank: dict[Slip, int] = {}
            seen: Counter[str] = Counter()
            for slip in self.slips:
                site = next(iter(slip.steps))
                if site != WHOLE:
                    rank[slip] = seen[site]
                    seen[site] += slip.is_mistake
            disjoint_ones = filter(disjoint, combinations(rank, 2))
            ordered: list[Slips] = sorted(
                disjoint_ones, key=lambda pair: sum(rank[slip] for slip in pair)
            )
            self._paired = len(self.slips), ordered[:MOST_PAIRS]
        return self._paired[1]
