"""Answers to the exercises, right and wrong, by which the checks are judged.

A file for each exercise, and what it writes is what a learner could have typed:

    EXERCISE = "split_heads"

    def with_einops(x, n_heads): ...  # right: its check must pass

    @told("view_only")  # wrong: its check must fail, and say this
    def view_without_permute(x, n_heads): ...

    def _helper(x): ...  # what answers call

`told` takes all keys that `report.slips` must hold. A mistake that is one slip of the catalogue
stands there, and is tried as itself, as are the `PAIRS` that people made; here stand every right
answer that people have written, and of the other wrong ones one for each thing that is found.
"""

import pkgutil
from collections.abc import Callable, Iterator
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


_told: dict[Any, tuple[str, ...]] = {}


def told(*slips: str) -> Callable[[Any], Any]:
    """Says that an answer is wrong, and which slips its check must name."""

    def mark(answer: Any) -> Any:
        _told[answer] = slips
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
            exercise, slips = module.EXERCISE, _told.get(made, ())
            yield Answer(exercise, not slips, made, f"{exercise}-{name}", slips)
