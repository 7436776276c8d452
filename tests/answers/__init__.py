"""Answers to the exercises, right and wrong, by which the checks are judged.

A file here registers answers; what it writes is what a learner could have typed:

    from answers import right, wrong

    @right("split_heads")
    def with_einops(x, n_heads): ...

    @wrong("split_heads", "views straight to (B, h, T, d_k)", slips=("view_only",))
    def view_without_permute(x, n_heads): ...

`slips` are the keys that `report.slips` must hold; left out, any name will do.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Answer:
    exercise: str
    right: bool
    function: Callable[..., Any]
    what: str = ""
    slips: tuple[str, ...] | None = None

    @property
    def id(self) -> str:
        file = self.function.__module__.rpartition(".")[2]
        return f"{self.exercise}-{file}-{self.function.__qualname__}"


_answers: list[Answer] = []


def right(exercise: str) -> Callable[[Any], Any]:
    """Registers a right answer: its check must pass."""

    def register(function: Any) -> Any:
        _answers.append(Answer(exercise, True, function))
        return function

    return register


def wrong(exercise: str, what: str, slips: tuple[str, ...] | None = None) -> Callable[[Any], Any]:
    """Registers a wrong answer: its check must fail, and say `what` it does."""

    def register(function: Any) -> Any:
        _answers.append(Answer(exercise, False, function, what, slips))
        return function

    return register


def all_answers() -> list[Answer]:
    """Every answer of every file in this folder."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return list(_answers)
