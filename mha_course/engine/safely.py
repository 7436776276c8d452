"""Runs a learner's code so that nothing of it escapes: errors, prints, random numbers, changes."""

import contextlib
import dis
import gc
import inspect
import io
import linecache
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Raised:
    """An answer that raised: the error, and the learner's own line, where it is known."""

    error: BaseException
    number: int | None = None
    source: str = ""
    on_purpose: bool = False  # by a `raise` of the learner's, not by torch

    @property
    def kind(self) -> str:
        return type(self.error).__name__

    @property
    def message(self) -> str:
        return safe_text(self.error, str)

    @property
    def not_written(self) -> bool:
        """Whether it says so itself, as a stub does."""
        return self.on_purpose and isinstance(self.error, NotImplementedError)


@dataclass(frozen=True)
class Returned:
    """An answer that returned; `changed` says whether it wrote into its inputs."""

    value: Any
    changed: bool = False


Outcome = Raised | Returned


def run(answer: Callable[..., Any], inputs: tuple[Any, ...], codes: set[CodeType]) -> Outcome:
    """Calls `answer` on copies of `inputs`. `codes` are the learner's, to find the line by."""
    copies = tuple(fresh(x) for x in inputs)
    try:
        value = answer(*copies)
    except BaseException as error:
        forget_recipes()
        line, on_purpose = _learners_line(error, codes), _on_purpose(error, codes)
        error = error.with_traceback(None)  # which would keep every frame
        return Raised(error, *line, on_purpose)
    changed = any(
        isinstance(x, Tensor) and not x.is_meta and not torch.equal(x, copy)
        for x, copy in zip(inputs, copies, strict=True)
    )
    return Returned(value, changed)


def on_the_cpu(outcome: Outcome, inputs: tuple[Any, ...]) -> Outcome:
    """Where no input says on which device to work, any will do."""
    if isinstance(outcome, Raised) or any(map(tensors, inputs)):
        return outcome
    x = outcome.value
    if isinstance(x, Tensor) and x.device.type not in ("cpu", "meta"):
        return replace(outcome, value=x.cpu())
    return outcome


def tensors(x: Any) -> list[Tensor]:
    """Those of an input: itself, or what it holds."""
    if isinstance(x, Tensor):
        return [x]
    return list(x.tensors()) if hasattr(x, "tensors") else []


def fresh(x: Any) -> Any:
    """A copy with the same strides, so that a non-contiguous input stays one."""
    if isinstance(x, tuple) and any(isinstance(part, Tensor) for part in x):
        return tuple(map(fresh, x))
    if not isinstance(x, Tensor) or 0 in x.stride():
        return x.clone() if isinstance(x, Tensor) else x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def codes_of(answer: Any) -> set[CodeType]:
    """The code objects that the learner wrote: of a function, or of a class's methods."""
    if isinstance(answer, type):
        own = [
            c for c in answer.__mro__[:-1] if not c.__module__.startswith(("torch", "mha_lesson."))
        ]
        members = [m for c in own for m in vars(c).values()]
    else:
        inner = getattr(inspect.unwrap(answer), "func", inspect.unwrap(answer))  # of a partial
        members = [answer, inner, type(inner).__call__]
    return {m.__code__ for m in members if isinstance(getattr(m, "__code__", None), CodeType)}


def _learners_line(error: BaseException, codes: set[CodeType]) -> tuple[int | None, str]:
    """The innermost line in a file that the learner's code is in."""
    files = {code.co_filename for code in codes}
    number, file, at = None, "", error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename in files:
            number, file = at.tb_lineno, at.tb_frame.f_code.co_filename
        at = at.tb_next
    return number, linecache.getline(file, number).strip() if number else ""


def _on_purpose(error: BaseException, codes: set[CodeType]) -> bool:
    """Whether the innermost frame is the learner's and stands at a `raise` statement."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_code.co_filename not in {c.co_filename for c in codes}:
        return False
    return dis.opname[at.tb_frame.f_code.co_code[at.tb_lasti]] == "RAISE_VARARGS"


_SENTENCES = re.compile(r".*(?<!\bi\.e)(?<!\be\.g)\.(?=\s)", re.DOTALL)


def safe_text(x: Any, how: Callable[[Any], str] = repr, limit: int = 200) -> str:
    """str or repr of anything, however broken; what is long ends with a sentence or a word."""
    try:
        text = how(x)
    except Exception:
        text = f"an object of type {type(x).__name__}"
    if len(text) <= limit:
        return text
    if sentences := _SENTENCES.match(text[:limit]):
        return sentences[0]
    words = text[: limit - 1].rpartition(" ")[0]
    return f"{words} …" if words else text[: limit - 1] + "…"


class _Beginning(io.StringIO):
    """What is printed first; the rest of it would only fill the memory."""

    def write(self, text: str) -> int:
        super().write(text[: 1000 - self.tell()] if self.tell() < 1000 else "")
        return len(text)


@contextlib.contextmanager
def undisturbed() -> Iterator[io.StringIO]:
    """A check leaves the world as it was; the beginning of what is printed goes into a buffer."""
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    numpy_state = numpy.random.get_state() if numpy else None
    cuda_states = torch.cuda.get_rng_state_all() if cuda else None
    dtype, device = torch.get_default_dtype(), torch.empty(0).device
    threads = torch.get_num_threads()
    printed, collects = _Beginning(), gc.isenabled()
    gc.disable()  # in a large notebook a single collection takes a quarter of a second
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
            torch.inference_mode(False),
            torch.enable_grad(),
            contextlib.nullcontext() if device.type == "cpu" else torch.device("cpu"),
        ):
            warnings.simplefilter("ignore")
            torch.set_default_dtype(torch.float32)
            torch.set_num_threads(1)  # for small tensors more of them only wait for each other
            seed(0)
            forget_recipes()
            yield printed
    finally:
        if collects:
            gc.enable()
        random.setstate(python_state)
        torch.set_rng_state(torch_state)
        if numpy and numpy_state is not None:
            numpy.random.set_state(numpy_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if device.type == "cpu":
            torch.set_default_device(None)  # setting it to "cpu" slows every later call
            # Before 2.10, PyTorch's get_default_device stumbles over what that leaves.
            vars(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", torch)).pop("device_context", None)
        elif torch.empty(0).device != device:
            torch.set_default_device(device)


def seed(number: int) -> None:
    """One seed for everything that an answer may draw from."""
    random.seed(number)
    torch.random.default_generator.manual_seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)


def forget_recipes() -> None:
    """einops keeps what it made of 2.0, an error, for 2 as well: a mended line would still fail."""
    if einops := sys.modules.get("einops.einops"):
        for part in _caches_of(einops):
            part.cache_clear()


@cache
def _caches_of(module: ModuleType) -> list[Any]:
    return [part for part in vars(module).values() if hasattr(part, "cache_clear")]
