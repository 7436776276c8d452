"""Answers to the exercises, right and wrong, by which the checks are judged.

Short ones, and those that change some words of a plain right one, are rows of `variations.toml`;
the others stand in a file for each exercise, as a learner could have typed them:

    EXERCISE = "split_heads"

    def with_einops(x, n_heads): ...  # right: its check must pass

    @slips("view_only")  # wrong: its check must fail, and name this slip
    def view_without_permute(x, n_heads): ...

    def _helper(x): ...  # what answers call

`slips` takes all keys that `report.slips` must hold. A mistake that is a slip of the catalogue, or
one of the `PAIRS`, is tested there and needs no answer here. Here are the right answers of several
people, without those whose every operation stands in others of the exercise, and one of the other
wrong ones for each thing that a check finds.
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True)
class Answer:
    exercise: str
    right: bool
    function: Callable[..., Any]
    id: str
    slips: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # words of its report, at whose end stands "\n"

    @classmethod
    def of(cls, exercise: str, name: str, function: Any, named: Iterable[str]) -> "Answer":
        """`named` holds slips, and words of the report: these have a blank in them."""
        slips, said = (tuple(x for x in named if (" " in x) is words) for words in (False, True))
        return cls(exercise, not slips, function, f"{exercise}-{name}", slips, said)


_slips: dict[Any, tuple[str, ...]] = {}


def slips(*keys: str) -> Callable[[Any], Any]:
    """Marks an answer as wrong, with the slips that its check must name, and words of its report."""

    def mark(answer: Any) -> Any:
        _slips[answer] = keys
        return answer

    return mark


def all_answers() -> list[Answer]:
    """Every answer of every file in this folder."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return [answer for module in modules for answer in _answers(module)]


def _answers(module: ModuleType) -> Iterator[Answer]:
    yield from getattr(module, "ANSWERS", ())  # of several exercises
    for name, made in vars(module).items():
        own = isinstance(made, (FunctionType, type)) and made.__module__ == module.__name__
        if own and not name.startswith("_") and hasattr(module, "EXERCISE"):
            yield Answer.of(module.EXERCISE, name, made, _slips.get(made, ()))
