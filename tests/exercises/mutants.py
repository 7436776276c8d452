"""Searches for false passes: every known right answer, broken in one place at a time.

A mutant that passes its check must agree with the exercise's own right answer on inputs that no
check uses, of other sizes, too. `survivors` yields those that do not.
"""

import ast
import random
import types
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from answers import Answer
from mha_course import check
from mha_course.engine.changes import changes
from mha_course.engine.compare import difference
from mha_course.engine.places import Bounded, can_be_changed, versions
from mha_course.engine.safely import fresh, undisturbed
from mha_course.engine.source import Source
from mha_course.exercises import Bound, Exercise
from mha_course.exercises.nb06_layers import Layers


@cache
def changeable(answer: Any) -> Source | None:
    source = Source(answer)
    return source if can_be_changed(source) else None


def mutants(
    answer: Any, share: float = 1.0, chance: random.Random | None = None
) -> Iterator[tuple[str, Any]]:
    """Each change, in words, and the answer with it; only a share of the changes, by chance."""
    if source := changeable(answer):
        some = (c for c in changes(source.tree) if chance is None or chance.random() < share)
        for change, made in versions(source, some):
            yield f"{ast.unparse(change.node)} -> {ast.unparse(change.new)}", made


def _seed(chance: random.Random) -> None:
    """Only the CPU's generator: for other devices torch would record the stack each time."""
    torch.default_generator.manual_seed(chance.randrange(2**31))


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def inputs(name: str, chance: random.Random) -> tuple[Any, ...]:
    """Of an answer, and such as no check uses."""
    _seed(chance)
    up_to, normal, choice = partial(chance.randint, 1), _normal, chance.choice
    B, h, T, d, e, T_k = map(up_to, (4, 4, 6, 6, 6, 9))
    old, lead = chance.randint(0, 6), choice([(), (B,), (B, h)])
    rows, keys = (*lead, T, d), (*lead, T_k, d)
    of_mask = choice([(1, h, T, T_k), (B, 1, 1, T_k), (B, h, T, T_k)])
    make = {
        "attention_scores": lambda: (normal(*rows), normal(*keys)),
        "attention": lambda: (normal(*rows), normal(*keys), normal(*lead, T_k, e)),
        "project_qkv": lambda: (normal(B, T, d), normal(3 * d, d)),
        "count_parameters": lambda: (up_to(40), up_to(40), up_to(40)),
        "split_heads": lambda: (normal(B, T, h * d), h),
        "merge_heads": lambda: (normal(B, h, T, d),),
        "causal_mask": lambda: (T_k,),
        "padding_mask": lambda: (torch.randint(T_k + 1, (B,)), T_k),
        "masked_softmax": lambda: (normal(B, h, T, T_k), torch.rand(of_mask) > chance.random()),
        "sum_of_head_writes": lambda: (normal(B, h, T, d), normal(e, h * d)),
        "next_token_loss": lambda: (normal(B, T + 1, e + 1), torch.randint(e + 1, (B, T + 1))),
        "previous_token_score": lambda: (normal(h, T + 1, T + 1).softmax(-1),),
        "count_flops": lambda: (T, h * d, h),
        "blockwise_attention": lambda: (
            *(3 * normal(T, d), 3 * normal(T_k, d), normal(T_k, e), up_to(4)),
        ),
        "silence": lambda: (normal(B, h, T, d), chance.randrange(h)),
        "solved": lambda: (
            *(torch.randint(5, (h, T, T)) / 4, *(chance.randrange(T) for _ in range(3))),
        ),
        "rotate": lambda: (normal(B, T, 2 * d), torch.randint(50, (T,))),
        "grouped_scores": lambda: (normal(B, h * up_to(3), T, d), normal(B, h, T_k, d)),
        "cached_mask": lambda: (T, old, choice([None, 1, 2, 3, 5])),
        "cached_attention": lambda: (
            *(normal(B, h, T, d) for _ in range(3)),
            *((normal(B, h, old, d), normal(B, h, old, d)) if old else (None, None)),
        ),
        "select_keys": lambda: (normal(*lead, T, T), up_to(7)),
        "cache_bytes": lambda: tuple(up_to(12) for _ in range(7)),
    }
    return make[name]()


def of_class(cls: Any, chance: random.Random) -> tuple[Any, tuple[Any, ...], Tensor]:
    """A module, inputs, and the right result for the module's own four layers."""
    _seed(chance)
    B, h, T, d = (chance.randint(1, n) for n in (3, 4, 5, 4))
    module, x = cls(h * d, h).double(), _normal(B, T, h * d)
    shape = chance.choice([(T, T), (B, 1, 1, T), (1, h, 1, T), (B, h, T, T), (1, h, T, T)])
    mask = None if chance.random() < 0.3 else torch.rand(shape) > chance.random()
    right = check.MultiHeadAttention.right(x, mask, Layers(module, h, partial(cls, h * d, h)))
    return Bounded(module), (x,) if mask is None else (x, mask), right


def of_writer(cls: Any, chance: random.Random) -> tuple[Any, tuple[Any, ...], Tensor]:
    """The same of a layer that writes, in calls of some tokens each."""
    _seed(chance)
    B, h_kv, g, pairs, base = *(chance.randint(1, 3) for _ in range(4)), chance.uniform(5, 2000)
    pieces = tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 3)))
    make = partial(cls, 2 * g * h_kv * pairs, g * h_kv, h_kv, base)
    module, x = make().double(), _normal(B, sum(pieces), 2 * g * h_kv * pairs)
    layers = Layers(module, g * h_kv, make, h_kv, base)

    def call(x: Tensor) -> Tensor:
        outputs, cache = [], None
        for piece in x.split(pieces, 1):
            module(piece, cache)  # which leaves the old cache as it was
            output, cache = module(piece, cache)
            outputs.append(output)
        return torch.cat(outputs, 1)

    return Bounded(call), (x,), torch.cat(check.WritingAttention.right(x, pieces, layers), 1)


CLASSES = {"MultiHeadAttention": of_class, "WritingAttention": of_writer}


def is_wrong(name: str, answer: Any, trials: int = 25) -> bool:
    """Whether an answer is wrong somewhere on inputs that no check uses."""
    chance = random.Random(5)
    tolerance = 1e-4 if name == "WritingAttention" else 0.0  # float32 angles
    with undisturbed(), torch.no_grad():
        bound = _bound(name, answer)
        for i in range(trials if bound else 0):
            if name in CLASSES:
                call, given, right = CLASSES[name](answer, chance)
            else:
                call, (given, right) = Bounded(bound.answer), _known_cases(name, trials)[i]
            if _differs(call, given, right, tolerance):
                return True
    return not bound


def _bound(name: str, answer: Any) -> Bound | None:
    """What is judged, and on what; None of what is turned away at once."""
    exercise = getattr(check, name)
    bound = exercise.bind(answer) if exercise.bind else Bound(answer, exercise.cases)
    return bound if isinstance(bound, Bound) else None


def _differs(call: Any, given: tuple[Any, ...], right: Any, tolerance: float) -> bool:
    try:
        return difference(call(*map(fresh, given)), right, tolerance) is not None
    except Exception:
        return True


@cache  # for all answers to it
def _known_cases(name: str, n: int) -> list[tuple[tuple[Any, ...], Any]]:
    chance = random.Random(5)
    several = [inputs(name, chance) for _ in range(n)]
    return [(one, getattr(check, name).right(*map(fresh, one))) for one in several]


def fails_the_check(name: str, answer: Any) -> bool:
    """Whether it is wrong on the check's own inputs, so that it cannot pass."""
    with undisturbed(), torch.no_grad():
        if (bound := _bound(name, answer)) is None:
            return True
        call, result_on = Bounded(bound.answer), getattr(check, name).result_on
        return any(_differs(call, c.inputs, result_on(c), c.tolerance) for c in bound.cases)


def survivors(
    answers: list[Answer], share: float = 1.0, seed: int = 0
) -> Iterator[tuple[Answer, str | None]]:
    """(answer, mutant) for each that passes and is wrong; (answer, None) once an answer is done."""
    chance = random.Random(seed)
    for answer in answers:
        by_values = isinstance(getattr(check, answer.exercise), Exercise)
        if not (answer.right and by_values):
            continue
        for what, mutant in mutants(answer.function, share, chance):
            if not isinstance(mutant, (types.FunctionType, type)):
                continue
            name = answer.exercise
            if fails_the_check(name, mutant) or not is_wrong(name, mutant):
                continue
            if getattr(check, name)(mutant).passed:
                yield answer, what
        yield answer, None
