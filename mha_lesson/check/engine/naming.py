"""Names what a wrong answer does.

Where it differs from the right one, the known slips run on the same inputs, alone and in
combinations, until one reproduces what the answer gave (Brown & Burton, 1978). Where none does:
what property fails, how the result relates to the right one, or what an error means.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine import errors, relations
from mha_lesson.check.engine.compare import (
    Difference,
    allowed,
    close_cells,
    difference,
    letters_of_all,
    plain,
    same,
)
from mha_lesson.check.engine.exercise import Case, Exercise, Slip, apart
from mha_lesson.check.engine.report import Finding, Picture, Report, number, picture
from mha_lesson.check.engine.safely import Outcome, Raised, Returned, run

MOST_BEGUN = 6  # explanations of the first input that are tried with one slip more


@dataclass(frozen=True)
class Trial:
    """One case, the right result, and what the answer did."""

    case: Case
    expected: Any
    outcome: Outcome
    compared: dict[int, tuple[Any, bool]] = field(  # by id: a result, and whether it fits
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def difference(self) -> Difference | None:
        if isinstance(self.outcome, Raised):
            return Difference("raised", self.outcome, self.expected)
        try:
            return difference(self.outcome.value, self.expected, self.case.tolerance)
        except Exception:  # an object that only looks like a tensor
            return Difference("type", self.outcome.value, self.expected)

    def gives(self, result: Any) -> bool:
        """Whether this is what the answer gave."""
        outcome, tolerance = self.outcome, self.case.tolerance
        return isinstance(outcome, Returned) and same(outcome.value, result, tolerance)

    def again(self, answer: Callable[..., Any]) -> "Trial":
        """The same with another answer."""
        return Trial(self.case, self.expected, run(answer, self.case.inputs, set()))


FIXED_DEVICE = Finding(
    errors.DEVICE,
    "It makes its result on a fixed device: with inputs on another one (a GPU, say) the "
    "result does not follow them.",
    "Which tensor do you create yourself, and how could it follow the device of the input?",
)


def report_on_values(exercise: Exercise, trials: list[Trial], diagnosis: "Diagnosis") -> Report:
    """Whether the values are right in float64, and if not, what the answer does."""
    name = exercise.name
    wrong = [t for t in trials if t.difference is not None]
    if not wrong:
        return Report(name, True, checked=len(trials))
    shown = most_telling(wrong)
    dtypes = tuple(d for t in wrong if (d := t.difference) and _only_float_width(d, t))
    if len(dtypes) == len(wrong):
        return Report(name, False, (wrong_dtype(part_of(exercise, dtypes[0]), dtypes[0]),))
    crashed = [t for t in wrong if isinstance(t.outcome, Raised)]
    if diagnosis.slips:
        findings: tuple[Finding, ...] = diagnosis.slips
        if diagnosis.how == "partial":
            (slip,) = diagnosis.slips
            findings = (replace(slip, does=slip.does + MORE.format(diagnosis.fits, len(wrong))),)
        if diagnosis.how != "complete" and crashed:
            findings = (*findings, explain_crash(trials))
        notes = (ELSEWHERE,) * (diagnosis.how == "where")
        if len(crashed) == len(wrong):
            notes = (explain_crash(trials).does,)
        return Report(name, False, findings, notes, _picture(exercise, shown), _where(shown))
    if isinstance(shown.outcome, Raised) or len(crashed) > len(trials) / 2:
        return Report(name, False, (explain_crash(trials),))
    finding = _unnamed(exercise, shown, wrong)
    notes = ()
    if crashed:
        stops = f"On {len(crashed)} of the {len(trials)} inputs tried it stops with an error."
        notes = (f"{stops} {explain_crash(trials).does}",)
    return Report(name, False, (finding,), notes, _picture(exercise, shown), _where(shown))


PARTLY = "on the others it is something else."
MORE = " Your result is exactly that on {} of the {} inputs that go wrong; " + PARTLY
ELSEWHERE = (
    "On every input that goes wrong your result is exactly what this gives; on the others it is "
    "right."
)


MOST = 3  # kinds of inputs that a sentence can list


def only(trials: list[Trial]) -> str:
    """On which inputs alone it goes wrong, if that can be said in short."""
    right = [t.case for t in trials if t.difference is None]
    wrong = [t.case for t in trials if t.difference is not None]
    for letter in wrong[0].sizes if right else ():
        if {c.sizes.get(letter) for c in wrong} == {1} and all(
            c.sizes.get(letter) != 1 for c in right
        ):
            return f"where {letter} = 1"
    notes = dict.fromkeys(c.note for c in wrong)
    clear = 0 < len(notes) <= MOST and notes.keys().isdisjoint({"", *(c.note for c in right)})
    return ", and ".join(notes) if right and clear else ""


def _only_float_width(found: Difference, trial: Trial) -> bool:
    """Right values in another floating dtype."""
    if found.kind != "dtype" or not found.yours.is_floating_point():
        return False
    assert isinstance(trial.outcome, Returned)
    return same(trial.outcome.value, trial.expected, trial.case.tolerance)


def most_telling(wrong: list[Trial]) -> Trial:
    """A result before an error, and the smallest input first, but one that tells axes apart."""

    def size(trial: Trial) -> tuple[bool, bool, int]:
        tensors = [x for x in trial.case.inputs if isinstance(x, Tensor)]
        axes = list(trial.case.sizes.values())
        vague = 1 in axes or len(set(axes)) < len(axes)
        return isinstance(trial.outcome, Raised), vague, sum(x.numel() for x in tensors)

    return min(wrong, key=size)


def all_alike(trials: list[Trial]) -> bool:
    """Whether all numbers are the same: several slips together meet them by chance."""
    values = [t.outcome.value for t in trials if isinstance(t.outcome, Returned)]
    if len(values) < 2 or not all(map(_floats, [*values, trials[0].expected])):
        return False
    return len(torch.cat([v.detach().flatten() for v in values]).unique()) == 1


def _floats(x: Any) -> bool:
    return plain(x) and x.is_floating_point()


def explain_crash(trials: list[Trial]) -> Finding:
    """The first error, and on which input it came, if not on all."""
    first = next(t for t in trials if isinstance(t.outcome, Raised))
    assert isinstance(first.outcome, Raised)
    everywhere = all(isinstance(t.outcome, Raised) for t in trials)
    note = first.case.note
    return errors.explain(first.outcome, "" if everywhere or note[:4] != "with" else note)


def _where(trial: Trial) -> str:
    return f"It shows on {trial.case.words}."


def _wrong_numbers(trial: Trial) -> bool:
    """More than another floating dtype."""
    found = trial.difference
    return found is not None and not _only_float_width(found, trial)


@dataclass(frozen=True)
class Diagnosis:
    """Slips, and what they give: "complete", what the answer gave on every input; "values", all
    but its errors; "partial", what it gave on `fits` of the inputs that go wrong; "where", on all
    of these, and not on the others.
    """

    slips: tuple[Slip, ...] = ()
    how: str = ""
    fits: int = 0


def diagnose(
    exercise: Exercise,
    trials: list[Trial],
    candidates: Iterable[tuple[Slip, ...]],
    grow: bool = False,
) -> Diagnosis:
    """The first of the candidates that give, on every input, what the answer gave.

    An answer that raises somewhere is matched there by slips that raise too. If there are none,
    those that fit where it returns; if there are none, one that fits on most inputs. With `grow`,
    those that fit the first input meet one slip more: the one that the first input does not show.
    """
    returned = [t for t in trials if isinstance(t.outcome, Returned)]
    returned.sort(key=_wrong_numbers, reverse=True)  # where it is wrong, slips differ most
    wrong = [t for t in returned if _wrong_numbers(t)]
    if not wrong:
        return _stops_alike(exercise, trials, candidates) if returned else Diagnosis()
    raised = [t for t in trials if isinstance(t.outcome, Raised)]
    best = Diagnosis(fits=max(1, len(wrong) // 2))
    begun: list[tuple[tuple[Slip, ...], Trial]] = []
    for slips in chain(candidates, _grown(exercise, begun) if grow else ()):
        if not reproduces(exercise, slips, returned[0]):
            continue
        told = tuple(slip for slip in slips if slip.does)
        fits = list(_fits(exercise, slips, returned, len(told) == 1))
        if all(fits):
            if all(reproduces(exercise, slips, t) for t in raised):
                return Diagnosis(told, "complete")
            if best.how != "values":
                best = Diagnosis(told, "values")
        elif len(begun) < MOST_BEGUN:
            begun.append((slips, returned[fits.index(False)]))
        # One slip, that no right result speaks against: several meet some inputs by chance.
        alone = len(told) == 1 and best.how != "values"
        if alone and all(fits[len(wrong) :]) and sum(fits[: len(wrong)]) > best.fits:
            best = Diagnosis(told, "partial", sum(fits[: len(wrong)]))
        elif alone and not (best.how or raised) and all(fits[: len(wrong)]) and only(trials):
            best = Diagnosis(told, "where", len(wrong) // 2)
    return best


def _stops_alike(
    exercise: Exercise, trials: list[Trial], candidates: Iterable[tuple[Slip, ...]]
) -> Diagnosis:
    """Slips that are right wherever the answer is, and elsewhere stop with the very same words."""
    if all(isinstance(t.outcome, Returned) for t in trials):
        return Diagnosis()
    for slips in candidates:
        if all(reproduces(exercise, slips, t) for t in trials) and all(
            _says(exercise, slips, t) for t in trials
        ):
            return Diagnosis(tuple(slip for slip in slips if slip.does), "complete")
    return Diagnosis()


def _says(exercise: Exercise, slips: tuple[Slip, ...], trial: Trial) -> bool:
    """Whether the error that these slips end in has the words of the answer's, if there is one."""
    if isinstance(trial.outcome, Returned):
        return True
    end = run(partial(exercise.variant, slips), (trial.case.inputs,), set())
    return isinstance(end, Raised) and end.message == trial.outcome.message


def _fits(
    exercise: Exercise, slips: tuple[Slip, ...], trials: list[Trial], counted: bool
) -> Iterator[bool]:
    """Whether they give each result; up to the first that they do not, unless that is counted."""
    for trial in trials:
        yield (fits := reproduces(exercise, slips, trial))
        if not (fits or counted):
            return


def _grown(
    exercise: Exercise, begun: list[tuple[tuple[Slip, ...], Trial]]
) -> Iterator[tuple[Slip, ...]]:
    """One slip more, for each of those that fit some inputs: it has to fit the first open one."""
    for slips, trial in begun:  # which grows meanwhile
        for more in exercise.singles:
            if apart(slips + more) and reproduces(exercise, slips + more, trial):
                yield slips + more


def reproduces(exercise: Exercise, slips: tuple[Slip, ...], trial: Trial) -> bool:
    """Whether these slips give what the answer gave, or raise where it raised."""
    try:
        result = exercise.on(trial.case, slips)
    except Exception:
        return isinstance(trial.outcome, Raised)
    if id(result) not in trial.compared:
        trial.compared[id(result)] = result, trial.gives(result)
    return trial.compared[id(result)][1]


def _unnamed(exercise: Exercise, trial: Trial, wrong: list[Trial]) -> Finding:
    """No slip fits: what differs, and how the result relates to the right one."""
    found = trial.difference
    assert found is not None
    part = part_of(exercise, found)
    if found.kind == "count":
        n = len(found.yours)
        return Finding(
            "result_count",
            f"Your code returns {n} {'thing' if n == 1 else 'things'} instead of "
            f"{len(found.expected)}: {', '.join(exercise.gives)}.",
            "What does the exercise ask for, in which order?",
        )
    if found.kind == "type":
        return _more_than_asked(exercise, wrong) or _wrong_type(exercise, found)
    if isinstance(found.expected, int):
        numbers = [
            (t.outcome.value, t.expected, t.case.sizes)
            for t in wrong
            if isinstance(t.outcome, Returned) and type(t.outcome.value) is int
        ]
        plain = f"Your code gives {found.yours}, and the right number is {found.expected}."
        relation = relations.relate_numbers(numbers) if len(numbers) == len(wrong) > 2 else None
        asks = "What does each of its terms count, and which should there be?"
        if relation is None:
            return Finding("values", plain, asks)
        return replace(relation, does=f"{plain} {relation.does}", asks=asks)
    sizes = trial.case.sizes
    alike = _alike(found, wrong, found.kind)
    have = letters_of_all(
        [(tuple(found.yours.shape), sizes), *((tuple(y.shape), z) for y, _, z in alike)]
    )
    want = _promised(exercise, found)
    if found.kind == "dtype":
        return wrong_dtype(part, found)
    if found.kind == "nan":
        return Finding(
            "nan", f"{part} has NaN in it.", "Which line divides 0 by 0, or subtracts ∞ from ∞?"
        )
    alike = _alike(found, wrong, "values", "shape")
    relation = relations.relate([(found.yours, found.expected, sizes), *alike])
    does = relation.does if relation else ""
    if found.kind == "shape":
        does = (
            f"{part} {_shape_words(have, found.yours)}, and it should be {want} = "
            f"{tuple(found.expected.shape)}. {does}".strip()
        )
        asks = "Which line changes the shape, and which axis goes astray there?"
        return Finding(relation.key if relation else "shape", does, asks)
    if found.expected.ndim == 0:
        mine, right = number(float(found.yours)), number(float(found.expected))
        relation = relation or Finding("values", "")
        does = f"Your code gives {mine}, and the right number is {right}. {relation.does}".strip()
        return Finding(relation.key, does, "Take the smallest input: which terms go into the sum?")
    lead = f"{part} has the right shape, {want}, and other numbers."
    asks = "Follow one of the marked cells by hand: from which numbers should it come?"
    return Finding(relation.key if relation else "values", f"{lead} {does}".strip(), asks)


def _shape_words(letters: str, x: Tensor) -> str:
    if x.ndim == 0:
        return "is a single number, of shape ()"
    shape = str(tuple(x.shape))
    return f"has shape {letters}" + (f" = {shape}" if shape != letters else "")


def _alike(found: Difference, wrong: list[Trial], *kinds: str) -> Iterator[relations.Sample]:
    """All inputs on which the same thing differs, in one of these ways."""
    for trial in wrong:
        other = trial.difference
        if other and other.kind in kinds and other.part == found.part:
            yield other.yours, other.expected, trial.case.sizes


def _promised(exercise: Exercise, found: Difference) -> str:
    """The shape that the stub promises, in letters."""
    _, bracket, shape = exercise.gives[found.part].partition("(")
    return bracket + shape


def part_of(exercise: Exercise, found: Difference) -> str:
    if len(exercise.gives) == 1:
        return "Your result"
    return f"Your {exercise.gives[found.part].split(' (')[0].removeprefix('the ')}"


def kind_of(x: Any) -> str:
    name = type(x).__name__
    have = _TYPES.get(name, f"an object of type {name}")
    return f"{have} of {len(x)}" if name in ("list", "tuple") and x else have


def _more_than_asked(exercise: Exercise, wrong: list[Trial]) -> Finding | None:
    """Several results, one of which is what is asked for."""
    values = [t.outcome.value for t in wrong if isinstance(t.outcome, Returned)]
    if len(values) < len(wrong) or not all(isinstance(v, (tuple, list)) for v in values):
        return None
    for i, parts in enumerate(zip(*values, strict=False)):
        pairs = zip(parts, wrong, strict=True)
        if all(same(part, t.expected, t.case.tolerance) for part, t in pairs):
            place = {0: "first", 1: "second"}.get(i, f"{i + 1}th")
            return Finding(
                "more_than_asked",
                f"Your code returns {kind_of(values[0])}. The {place} of them is right, and is all "
                f"that is asked for: {exercise.gives[0]}.",
                "What does your last line return?",
            )
    return None


def _wrong_type(exercise: Exercise, found: Difference) -> Finding:
    name, have = type(found.yours).__name__, kind_of(found.yours)
    want = "one tensor" if isinstance(found.expected, Tensor) else "an int"
    if isinstance(found.yours, Tensor) and isinstance(found.expected, Tensor):
        if found.yours.device.type != "cpu":
            return FIXED_DEVICE
        have, want = "a tensor that is sparse, complex or otherwise special", "a plain one"
    if isinstance(found.expected, tuple):
        want = f"{len(found.expected)} results: {', '.join(exercise.gives)}"
    part = part_of(exercise, found)
    whole = part == "Your result" or isinstance(found.expected, tuple)
    return Finding(
        f"returns_{name}",
        f"{'Your code returns' if whole else f'In place of {part.lower()} comes'} {have}, and it "
        f"should be {want}.",
        "What does your last line return?",
    )


_TYPES = {
    "Tensor": "one tensor",
    "ndarray": "a numpy array",
    "Size": "a shape (`torch.Size`)",
    "builtin_function_or_method": "a method that was not called (round brackets are missing)",
    "method": "a method that was not called (round brackets are missing)",
    "type": "a class",
    "bool": "True or False",
    "NoneType": "`None` on this input",
    "dict": "a dictionary",
    "list": "a list",
    "tuple": "a tuple",
    "float": "a float",
    "int": "a Python int",
    "float64": "a number of numpy's (`np.float64`)",
    "int64": "a number of numpy's (`np.int64`), which ends at 2⁶³",
    "str": "text",
    "generator": "a generator (`yield` instead of `return`)",
    "coroutine": "a coroutine (`async def` instead of `def`)",
}


def wrong_dtype(part: str, found: Difference) -> Finding:
    have, want = (str(t.dtype).removeprefix("torch.") for t in (found.yours, found.expected))
    if want == "bool":
        return Finding(
            "not_bool",
            f"{part} has dtype {have}, and it should be bool, True and False: `~`, `|` and "
            "`masked_fill` count on that.",
            "What gives True and False instead of numbers?",
        )
    return Finding(
        "fixed_dtype",
        f"{part} has dtype {have} for {want} input: somewhere a dtype is fixed instead of "
        "following the input.",
        "Which tensor do you create or convert yourself?",
    )


def _picture(exercise: Exercise, trial: Trial) -> Picture | None:
    found = trial.difference
    if found is None or found.kind not in ("values", "nan"):
        return None
    if not isinstance(found.expected, Tensor) or found.expected.ndim == 0:
        return None
    limit = allowed(found.expected.dtype, trial.case.tolerance)
    cells = close_cells(found.yours, found.expected, limit)
    name = exercise.gives[found.part].split(" (")[0]
    return picture(found.yours, found.expected, ~cells, name)
