"""Answers to the exercises, right and wrong, by which the checks are judged.

A file here registers answers; what it writes is what a learner could have typed:

    from answers import right, wrong

    @right("split_heads")
    def with_einops(x, n_heads): ...

    @wrong("split_heads", "views straight to (B, h, T, d_k)", slips=("view_only",))
    def view_without_permute(x, n_heads): ...

`slips` are the keys that `report.slips` must hold: all that the check should say. A mistake that is
one slip of the catalogue stands there, and is tried as itself; here stand every right answer that
people have written, and of the other wrong ones one for each thing that is found.
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
    id: str
    what: str = ""
    slips: tuple[str, ...] = ()


_answers: dict[str, Answer] = {}


def _register(answer: Answer) -> None:
    assert answer.id not in _answers, answer.id
    _answers[answer.id] = answer


def right(exercise: str) -> Callable[[Any], Any]:
    """Registers a right answer: its check must pass."""

    def register(function: Any) -> Any:
        _register(Answer(exercise, True, function, f"{exercise}-{function.__name__}"))
        return function

    return register


def wrong(exercise: str, what: str, slips: tuple[str, ...], name: str = "") -> Callable[[Any], Any]:
    """Registers a wrong answer: its check must fail, and say `slips`."""

    def register(function: Any) -> Any:
        id = f"{exercise}-{name or function.__name__}"
        _register(Answer(exercise, False, function, id, what, slips))
        return function

    return register


def all_answers() -> list[Answer]:
    """Every answer of every file in this folder."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return list(_answers.values())
