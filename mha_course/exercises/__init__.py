"""The exercises, a file for each notebook; here, what each of these files needs.

An exercise is a problem that judges what it is called with, and notes the outcome.

For learners, who find all of it in `check`. It stands on `collection`, `engine` and `practice`.
"""

from collections.abc import Callable
from typing import Any

from mha_course.engine.judge import judge
from mha_course.engine.problem import HOMES, WHOLE, Bound, Case, Problem, Slip, Step
from mha_course.engine.report import Report
from mha_course.practice import journal

__all__ = ["WHOLE", "Bound", "Case", "Exercise", "Slip", "Step", "exercise"]


class Exercise(Problem):
    def __call__(self, answer: Any) -> Report:
        """Says whether an answer is right, and if not, what it does."""
        report = judge(self, answer)
        journal.remember(report)
        return report


STAGES = {  # what a step makes, as it is spoken of; ">step" is what it is given
    "project": "queries, keys and values",
    "split": "heads",
    "turn": "turned heads",
    "join": "old and new keys and values",
    "share": "shared keys and values",
    "product": "dot products",
    "scale": "scores",
    "fill": "masked scores",
    "normalise": "weights",
    "empty": "weights",
    "mix": "context",
    "arrange": "context",
    ">leave": "joined heads",
    "leave": "output",
    "slab": "slabs",
    "cut": "cut columns",
    "write": "writes",
}


def exercise(
    number: int, notebook: str, stages: str = "", **more: Any
) -> Callable[[Step], Exercise]:
    """Makes an exercise out of its right answer; `more` are the attributes of `Problem`.

    `stages` are the steps whose results a learner's lines make, in order: "product mix=output".
    """
    named = (stage.partition("=") for stage in stages.split())

    def make(in_steps: Step) -> Exercise:
        new = Exercise(in_steps, number, notebook, **more)
        new.stages = {step: name or STAGES[step] for step, _, name in named}
        if new.notebook and not hasattr(in_steps, "__wrapped__"):  # a variant stands in no notebook
            HOMES[new.name] = new.notebook
        new.__doc__ = f"Exercise {number}, notebook {notebook}: {in_steps.__doc__}"
        return new

    return make
