"""Whether a gradient gets through a right answer: values alone train nothing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_course.engine import errors
from mha_course.engine.attempt import Attempt
from mha_course.engine.compare import close
from mha_course.engine.device import TO_NUMPY
from mha_course.engine.inputs import normal
from mha_course.engine.problem import Case, Problem
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, fresh, run

TOLERANCE = 1e-4  # a float32 √d_k is allowed in float64, and gradients are sums
DRAWN = "error:numpy_of_learning"  # and where no number of numpy's is used, no more than that
CUT_OFF = ("no_gradient", "gradient_stops", "gradient_differs")  # keys of what is found
ASKS = "Which line takes numbers out of the tensors that torch keeps track of?"
NONE = Finding(
    "no_gradient",
    "The values are right, but no gradient gets through: nothing could be trained by them. "
    "(`no_grad`, `.detach()`, `.data`, `.item()` and numpy cut it off.)",
    ASKS,
)


def gradient(attempt: Attempt) -> Iterator[Finding]:
    """What is wrong with the gradient on the first two inputs, where the exercise asks for one.

    To weights that come as an argument no gradient is asked for: they may be put into a layer.
    """
    for case in attempt.bound.cases[:2] if attempt.problem.gradient else ():
        finding = _gradient_on(attempt, case)
        if finding and finding.key == DRAWN:
            with _NumbersAlone():
                finding = _gradient_on(attempt, case) or finding
        if finding:
            yield finding
            return


class _NumbersAlone(TorchFunctionMode):
    """While it is on, a tensor that learns may be drawn, or printed by numpy: as by `.detach()`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in TO_NUMPY:
            args = (args[0].detach(), *args[1:])
        return func(*args, **(kwargs or {}))


def _gradient_on(attempt: Attempt, case: Case) -> Finding | None:
    problem = attempt.problem
    leaves, yours = _differentiated(problem, attempt.bound.answer, case, attempt.codes)
    if not leaves:
        return None
    if isinstance(yours, Raised):
        error = errors.explain(yours, "in the backward pass, where the gradient is computed")
        line = attempt.source.writes_in_place() if error.key == "error:written_over" else ""
        if line:
            does = error.does.replace("A line writes", line)
            return replace(error, does=does, asks="How could it make a new tensor?")
        return error
    if yours is None or all(g is None for g in yours.values()):
        return NONE
    stops = [n for n, g in yours.items() if g is None and not n.startswith("`W_")]
    if stops:
        does = f"The values are right, but no gradient reaches {' and '.join(stops)}."
        return Finding("gradient_stops", does, ASKS)
    _, right = _differentiated(problem, problem.right, case, set())
    assert isinstance(right, dict)
    pairs = [(n, yours[n], g) for n, g in right.items() if g is not None]
    finite = [(n, g, r) for n, g, r in pairs if g is not None and not g.isnan().any()]
    # Exercises 9 and 11 look for NaN.
    other = [n for n, g, r in finite if not close(g, r, TOLERANCE)]
    if other:
        does = (
            f"The values are right, but the gradient of {' and '.join(other)} is wrong: it is "
            "cut off on a part of the way."
        )
        return Finding("gradient_differs", does, ASKS)
    return None


def has_nan(problem: Problem, answer: Callable[..., Any], case: Case) -> bool:
    """Whether a gradient has NaN in it; where nothing can be differentiated none has."""
    with _NumbersAlone():
        _, by_leaf = _differentiated(problem, answer, case, set())
    gradients = by_leaf.values() if isinstance(by_leaf, dict) else ()
    return any(g is not None and bool(g.isnan().any()) for g in gradients)


def _differentiated(
    problem: Problem, answer: Callable[..., Any], case: Case, codes: set[Any]
) -> tuple[dict[str, Tensor], Raised | dict[str, Tensor | None] | None]:
    """What can learn in a case's inputs, and its gradients: None where nothing depends on it."""
    leaves: dict[str, Tensor] = {}
    inputs: list[Any] = []
    for name, x in zip(problem.arguments, map(fresh, case.inputs), strict=True):
        if isinstance(x, Tensor) and x.is_floating_point():
            leaves[f"`{name}`"] = leaf = x.requires_grad_()
            x = leaf * 1.0  # it may be written into
        elif hasattr(x, "learning"):
            x = x.learning()
            leaves |= x.leaves()
        inputs.append(x)

    def total() -> Any:
        value = answer(*inputs)
        parts: Iterable[Any] = value if isinstance(value, (tuple, list)) else (value,)
        wanted = [(i, p) for i, p in enumerate(parts) if p.requires_grad]
        if not wanted:
            return None
        terms = [(p * normal(*p.shape, 1, seed=90 + i)[..., 0]).sum() for i, p in wanted]
        learn = {n: x for n, x in leaves.items() if x.requires_grad}
        gradients = torch.autograd.grad(terms, list(learn.values()), allow_unused=True)
        return {n: None for n in leaves} | dict(zip(learn, gradients, strict=True))

    outcome = run(total, (), codes)
    return leaves, outcome if isinstance(outcome, Raised) else outcome.value
