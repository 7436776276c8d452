"""Explanations that need no search: chance, what stands in the learner's lines, an error."""

import math
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from mha_course.engine import errors
from mha_course.engine.attempt import SINGLE_MATRICES, Attempt, Explanation, where_right
from mha_course.engine.compare import same
from mha_course.engine.first_wrong import turned_axes
from mha_course.engine.places import right_once_kept
from mha_course.engine.problem import HOMES
from mha_course.engine.report import Finding
from mha_course.engine.safely import Outcome, Raised, Returned, on_the_cpu, run, seed
from mha_course.engine.search import single, slips_beside_errors


def three_dots(attempt: Attempt) -> Explanation | None:
    """Three dots of the stub that still stand there."""
    finding = attempt.source.three_dots()
    return Explanation((finding,), shows=False) if finding else None


def chance(attempt: Attempt) -> Explanation | None:
    """Whether the answer gives something else when it is called again."""
    trial = attempt.trials[0]
    if isinstance(trial.outcome, Raised):
        return None
    first = trial.outcome.value
    second = _repeated(attempt)
    if isinstance(second, Raised) and second.kind == "KeyboardInterrupt":
        return Explanation((errors.explain(second),), shows=False)
    if not same(first, first):
        return None  # nothing that can be compared
    if isinstance(second, Returned) and same(second.value, first):
        return None
    third = _repeated(attempt)
    settled = (
        isinstance(second, Returned)
        and isinstance(third, Returned)
        and same(third.value, second.value)
    )  # the same seed gives the same again: it draws at random
    finding = RANDOM if settled or attempt.source.draws() else REMEMBERS
    return Explanation((_fresh_weights(attempt) or finding,), shows=False)


def _repeated(attempt: Attempt) -> Outcome:
    seed(1)
    inputs = attempt.trials[0].case.inputs
    return on_the_cpu(run(attempt.bound.answer, inputs, attempt.codes), inputs)


RANDOM = Finding(
    "random",
    "Your code gives a different result each time it is called on the same input.",
    "Where does chance come in: is there a dropout, or a fresh random tensor?",
)
REMEMBERS = Finding(
    "remembers",
    "Your code gives a different result when it is called again on the same input: it keeps "
    "something from one call to the next.",
    "Where is that kept: in a name outside of the function, an attribute, a default?",
)


def _fresh_weights(attempt: Attempt) -> Finding | None:
    problem, source = attempt.problem, attempt.source
    return source.layer_in_forward() if problem.bind else source.fresh_weights(problem.arguments)


def _from_another_notebook(raised: Raised) -> Finding | None:
    """A name without a value that is an exercise's, or stands in a module that it needs."""
    name = getattr(raised.error, "name", None) or ""
    line = f"Line {raised.number}, `{raised.source}`: `{name}` has no value in this notebook. "
    if name in HOMES:
        return Finding(
            "error:another_notebook",
            f"{line}Each notebook has a memory of its own, and knows only what its own cells have "
            f"made since it was opened. (It is an exercise of notebook {int(HOMES[name])}.)",
            "Did its cell run in this notebook, or does it have to be copied or imported here?",
        )
    for module, short in ((math, "math"), (torch.nn.functional, "F"), (torch, "torch")):
        if callable(getattr(module, name, None)):
            does = f"{line}There is a function of that name in `{short}`."
            return Finding("error:unknown_name", does, "What has to stand in front of it?")
    return None


def kept_nothing(attempt: Attempt) -> Explanation | None:
    """A line whose result is not kept, where that is the only mistake."""
    node = attempt.source.nothing_kept()
    if node is None or not right_once_kept(attempt, node):
        return None
    return Explanation((attempt.source.thrown_away(node),))


# Errors that a tensor or a number of another cell explains.
OF_SHAPES = {
    f"error:{key}"
    for key in ("matrix_shapes", "broadcast_shapes", "shape_for_view", "index_out_of_range")
}
# Errors that only a tensor of another cell explains.
OF_TENSORS = {
    f"error:{key}"
    for key in ("dtype_mix", "axis_out_of_range", "axes_to_name", "numbers_of_axes", "unpacking")
}


def in_the_lines(attempt: Attempt) -> Explanation | None:
    """What stands in the learner's lines comes before what can be guessed from the results."""
    source, key = attempt.source, attempt.first_error.key if attempt.raised else ""
    outcomes, right = [t.outcome for t in attempt.raised], attempt.shown.expected
    finding: Finding | None = None
    first = outcomes[0] if outcomes and isinstance(outcomes[0], Raised) else None
    if key == "error:truth_of_a_tensor" and first:
        finding = source.truth_of_a_tensor(first.number)
    elif key == "error:unknown_name" and first:
        finding = source.without_self(first) or _from_another_notebook(first)
    elif key == "error:module_called":
        finding = source.module_called()
    elif key == "error:none_used":
        finding = source.a_stub_is_called()
    elif key in ("error:dtype_mix", "error:matrix_shapes"):
        finding = _fresh_weights(attempt)
    elif not key and getattr(right, "dtype", type(right)) not in (torch.bool, tuple):
        # Of a mask `^` would be right.
        finding = None if attempt.remembered(single).slips else source.no_power()
    if key in OF_TENSORS and not finding:
        finding = source.from_the_notebook(Tensor)
    if finding:
        return Explanation((finding,))
    explained = attempt.stops or bool(slips_beside_errors(attempt))
    if not explained and (node := source.nothing_kept()):
        return Explanation((source.thrown_away(node),))
    if (key in OF_SHAPES or not explained) and (finding := source.from_the_notebook()):
        return Explanation((finding, attempt.first_error) if attempt.stops else (finding,))
    return None


def arguments_exchanged(attempt: Attempt) -> Explanation | None:
    """Whether it is right once its arguments change places."""
    names = attempt.problem.arguments
    for order in [] if attempt.problem.bind else list(permutations(range(len(names))))[1:]:

        def other(*inputs: Any, order: tuple[int, ...] = order) -> Any:
            return attempt.bound.answer(*(inputs[i] for i in order))

        if all(t.given_by(other).difference is None for t in attempt.trials):
            finding = Finding(
                "arguments_exchanged",
                "Everything is right once the arguments are given in the order "
                f"({', '.join(names[i] for i in order)}): the exercise passes them as "
                f"({', '.join(names)}).",
                "In which order does the first line of the stub name them?",
            )
            return Explanation((finding,), shows=False)
    return None


def its_error(attempt: Attempt) -> Explanation | None:
    """What its error means, where the error is what the report has to explain."""
    if not attempt.stops:
        return None
    error, where = attempt.first_error, where_right(attempt)
    first = attempt.raised[0].outcome
    if where == SINGLE_MATRICES and error.key in OF_SHAPES | OF_TENSORS:
        line = f" (line {first.number})" if isinstance(first, Raised) and first.number else ""
        finding = Finding(
            "single_matrices",
            f"{where} There it stops{line}: what is one row, or one number, of a single matrix is "
            "a whole matrix of each sequence.",
            "How do you name the last two axes, however many come before them?",
        )
        return Explanation((finding,), (error.does,))
    dropped = given = ""
    if error.key == "error:broadcast_shapes" and isinstance(first, Raised):
        dropped = attempt.source.axis_dropped(first.number)
    if error.key in OF_SHAPES | OF_TENSORS and isinstance(first, Raised):
        given = attempt.source.no_longer_given(first.number) or turned_axes(attempt)
    return Explanation((error,), (dropped, given, where))
