"""One more input, once all else is right: where a table ends, or one axis is taken for another."""

from collections.abc import Callable
from typing import Any

from mha_lesson.check.engine.compare import difference
from mha_lesson.check.engine.problem import Case, Problem
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Returned, on_the_cpu, run


def right_too(
    exercise: Problem,
    make: Callable[[list[Case]], tuple[Any, ...]],
    where: str,
    asks: str,
    tolerance: float = 0.0,
) -> None:
    """Asks an exercise's answers for one more input.

    Args:
        exercise: which gets the check.
        make: the inputs, of the exercise's cases.
        where: what is special about them, as the beginning of a sentence: "With T = 130".
        asks: the question.
        tolerance: as in `Case`.
    """

    def judge(answer: Callable[..., Any], cases: list[Case]) -> Finding | None:
        inputs = make(cases)
        right, outcome = (
            exercise.variant((), inputs),
            on_the_cpu(run(answer, inputs, set()), inputs),
        )
        does = "stops with an error"
        if isinstance(outcome, Returned):
            if difference(outcome.value, right, tolerance) is None:
                return None
            does = "gives something else"
        said = f"{where} your code {does}; its values on the usual inputs are right."
        return Finding("ends_there", said, asks)

    exercise.further = (*exercise.further, judge)
