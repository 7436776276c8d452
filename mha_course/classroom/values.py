"""What a right answer gives, handed from one process to another and compared there.

The check of an answer runs in the process that the answer runs in. A ✓ counts if the values that
come out of there are right in a process where no learner's code has ever run.
"""

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product, zip_longest
from threading import Lock
from types import FrameType, SimpleNamespace
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

import mha_lesson
from mha_course import check
from mha_course.engine.compare import difference, plain
from mha_course.engine.problem import Problem
from mha_course.engine.safely import Raised, Returned, run, undisturbed
from mha_course.exercises.nb06_layers import NAMES, Layers, weight_and_bias

SAME = {  # exercise → what of the package is its answer, besides what has its name
    "attention": ("scaled_dot_product_attention", "textbook_attention"),
    "attention_scores": ("scaled_dot_product_attention", "textbook_attention"),
    "cached_attention": ("scaled_dot_product_attention", "GroupedQueryAttention"),
    "blockwise_attention": ("scaled_dot_product_attention", "textbook_attention"),
}
_WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)
BROKEN = (*_WRONG, SafetensorError)
ONE_AT_A_TIME = Lock()  # an exercise reads its steps and makes its cases when it is first asked


def pack(exercise: Any, answer: Any) -> tuple[list[Any], list[str]]:
    """What the answer gives on each case, and its inputs where only the answer knows them.

    And whose right answers it has called for that. Nothing of tests, which give nothing.
    """
    if not isinstance(exercise, Problem):
        return [], []
    called: set[str] = set()
    with undisturbed(), heard(exercise.name, called):
        bound = exercise.bind(answer) if exercise.bind else None
        call, cases = (bound.answer, bound.cases) if bound else (answer, exercise.cases)
        given = () if exercise.cases else [case.inputs for case in cases]
        outcomes = [run(call, case.inputs, set()) for case in cases]
    for out in outcomes:
        if isinstance(out, Raised) and isinstance(out.error, KeyboardInterrupt):
            raise out.error
    gave = [out.value if isinstance(out, Returned) else None for out in outcomes]
    pairs = [[_packed(x) for x in pair] for pair in zip_longest(given, gave)]
    return pairs, sorted(called)


def answers(name: str) -> tuple[str, ...]:
    """What of the package is the answer to an exercise; of a final test, all of it."""
    return (name, *SAME.get(name, ())) if name in check.__all__ else tuple(mha_lesson.__all__)


@contextmanager
def heard(name: str, called: set[str]) -> Iterator[None]:
    """Adds which right answers run meanwhile: the package's own, and those of the checks."""
    problems = [e for e in (*check.EXERCISES, *check.SHORT) if isinstance(e, Problem)]
    owners = {problem.in_steps.__code__: "the check's own right answer" for problem in problems}
    for taught, home in product(answers(name), (mha_lesson, mha_lesson.attention)):
        thing = getattr(home, taught, None)
        parts = [thing, *(vars(thing).values() if isinstance(thing, type) else ())]
        codes = [part.__code__ for part in parts if hasattr(part, "__code__")]
        owners |= dict.fromkeys(codes, f"the package's own {taught}")

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (found := owners.get(frame.f_code)):
            called.add(found)

    sys.setprofile(note)
    try:
        yield
    finally:
        if sys.getprofile() is not note:
            called.add("sys.setprofile")
        sys.setprofile(None)


def right(exercise: Any, packed: Any) -> bool:
    """Whether these are the values of a right answer; of tests nothing can be compared."""
    if not isinstance(exercise, Problem):
        return True
    try:
        with ONE_AT_A_TIME:
            pairs = [(_unpacked(inputs), _unpacked(value)) for inputs, value in packed]
            if own := exercise.cases:
                pairs = [(c.inputs, value) for c, (_, value) in zip(own, pairs, strict=True)]
            cases = own or exercise.bind(_Layers).cases  # type: ignore[misc]
            tolerance = max(case.tolerance for case in cases)
            return len(pairs) >= len(cases) and not any(
                difference(value, exercise.result_of((), inputs), tolerance)
                for inputs, value in pairs
            )
    except BROKEN:
        return False


class _Layers(nn.Module):
    """Where only a class knows the cases: one that has what exercise 11, or 23, asks for."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int = 0, base: float = 0.0) -> None:
        super().__init__()
        self.writes = n_kv_heads > 0
        narrow = d_model // n_heads * (n_kv_heads or n_heads)
        for name, width in zip(NAMES, (d_model, narrow, narrow, d_model), strict=True):
            setattr(self, name, nn.Linear(d_model, width, bias=not self.writes))

    def forward(self, x: Tensor, given: Any = None) -> Any:
        return (x, x) if self.writes else x


def _packed(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return [_packed(part) for part in x]
    if isinstance(x, Layers):
        layers = [_packed(weight_and_bias(getattr(x.module, name))) for name in NAMES]
        return {"layers": layers, "heads": [x.n_heads, x.n_kv_heads], "base": x.base}
    if not isinstance(x, Tensor):
        return x if type(x) is int else None
    if not plain(x):
        return None
    return {"tensor": base64.b64encode(save({"": x.detach().contiguous()})).decode()}


def _unpacked(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(map(_unpacked, x))
    if not isinstance(x, dict):
        return x if type(x) is int else None
    if "layers" in x:
        pairs = zip(NAMES, map(_unpacked, x["layers"]), strict=True)
        module: Any = SimpleNamespace(
            **{n: SimpleNamespace(weight=w, bias=b) for n, (w, b) in pairs}
        )
        n_heads, n_kv_heads = x["heads"]
        return Layers(module, n_heads, lambda: None, n_kv_heads, float(x["base"]))
    return load(base64.b64decode(x["tensor"]))[""]
