"""A copy of any module, run in such ways that what it does on its own account is seen."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mha_course.comparison.handed import Handed, Slot
from mha_course.comparison.layers import draw
from mha_course.comparison.watch import Watch
from mha_lesson.refusals import describe

SAME, COARSE = 5, 3  # digits that count as equal, in float64 and in float32
Call = Callable[[nn.Module, Tensor], Any]


class Subject:
    """A module's copy, on the CPU in float64, or in float32 where it only runs in that."""

    def __init__(self, module: nn.Module, call: Call | None) -> None:
        self.call, self.coarse, self.dtype = call, False, torch.float64
        self.changes_input = False
        self.opened = dict[Slot, Any]()  # what stands for masks that `call` gives
        halves = {str(p.dtype) for p in module.parameters()} & {"torch.float16", "torch.bfloat16"}
        self.notes = [f"Tried in float64, not in {dtype}." for dtype in sorted(halves)]
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
            raise ValueError("module must have run once: its lazy layers have no weights yet.")
        # What it keeps of its last run, as weights to look at, hangs on a graph and is not copied.
        kept = [t for m in module.modules() for t in vars(m).values() if isinstance(t, Tensor)]
        try:
            copied = copy.deepcopy(module, {id(t): t.detach().clone() for t in kept})
            self.module = copied.to("cpu", torch.float64)
            with torch.enable_grad():  # else they would be no parameters
                for part in filter(parametrize.is_parametrized, [*self.module.modules()]):
                    held = cast(nn.ModuleDict, part.parametrizations)
                    for name in [*held]:  # such as a weight norm: baked in
                        parametrize.remove_parametrizations(part, name)
            self.handed = Handed(self.module)
        except Exception as error:
            raise ValueError(
                f"module must be one that can be copied to the CPU in float64; "
                f"copy.deepcopy or .to raised {type(error).__name__}: {error}"
            ) from error

    def __call__(
        self, x: Tensor, training: bool = False, masks: Mapping[Slot, Any] | None = None
    ) -> Tensor:
        """Its output (B, T, d_model), in float64; in training nothing is dropped."""
        self.handed.instead = self.opened | dict(masks or {})
        with torch.set_grad_enabled(training), Watch(x.shape[1]) if training else nullcontext():
            try:
                return self.run(x.clone(), training).detach()
            finally:
                self.handed.instead = self.opened

    def run(self, x: Tensor, training: bool) -> Tensor:
        """Its output in float64, with its graph where gradients are asked for."""
        self.module.train(training)
        default = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)  # of what it makes inside
        self.handed.entries.clear()
        try:
            x = x.to(self.dtype)
            before = x.detach().clone()
            out = self.module(x) if self.call is None else self.call(self.module, x)
        except Exception as error:
            raise ValueError(
                f"call must run for x of shape {tuple(x.shape)} in {self.dtype}, as "
                f"`lambda m, x: m(x, x, x)` or `m(x, mask)` may; "
                f"it raised {type(error).__name__}: {error}"
            ) from error
        finally:
            torch.set_default_dtype(default)
        self.changes_input |= not torch.equal(x.detach(), before)
        out = out[0] if isinstance(out, tuple | list) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out.double()

    @property
    def same(self) -> int:
        """Digits that count as equal."""
        return SAME if self.dtype == torch.float64 else COARSE

    def start(self, x: Tensor) -> None:
        """Runs it once, in float32 if it must be, and notes in which precisions it computes."""
        try:
            self(x)
        except ValueError as first:
            self.dtype = torch.float32
            self.module.float()
            try:
                self(x)
            except ValueError:
                self.dtype = torch.float64
                self.module.double()
                raise first from first.__cause__
            self.notes.append("Tried in float32 only: in float64 " + raised(first))
        with Watch(x.shape[1]) as watch:
            self(x)
        self.turns = watch.turns
        inside = sorted(str(dtype) for dtype in watch.dtypes - {self.dtype, torch.float64})
        self.coarse = self.dtype == torch.float32 or bool(inside)
        if inside:
            coarse = ": too coarse to tell, so let it compute in float32" * (
                "float16" in str(inside)
            )
            self.notes.append(f"Inside, it computes in {' and '.join(inside)}, too{coarse}.")

    def tensors(self) -> dict[str, Tensor]:
        """Its parameters and buffers."""
        return dict(self.module.named_parameters()) | dict(self.module.named_buffers())

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Its weights and their precision are afterwards what they were."""
        kept = {n: t.clone() for n, t in self.tensors().items()}
        try:
            yield
        finally:
            self.module.to(self.dtype)
            own = self.tensors()
            for name, before in kept.items():  # a buffer may have been made anew
                own[name].data = before

    def live(self, matrices: Mapping[str, Tensor], d_model: int) -> dict[str, Tensor]:
        """Of these, the ones that change its output; all where it does not run yet."""
        x = torch.randn(3, 7, d_model, generator=torch.Generator().manual_seed(0)).double()
        live = {}
        with self.restored():
            draw({n: p for n, p in self.module.named_parameters() if p.ndim > 1}, d_model)
            try:
                y = self(x)
                for name, matrix in matrices.items():
                    kept = matrix.clone()
                    matrix.mul_(-1.5)
                    if not torch.allclose(self(x), y, equal_nan=True):
                        live[name] = matrix
                    matrix.copy_(kept)
            except ValueError:
                return dict(matrices)
        return live

    def slots(self, x: Tensor) -> list[Slot]:
        """Where masks may be handed over."""
        self(x)
        return [*self.handed.heard(x)]

    def repeats(self, x: Tensor) -> str | None:
        """What differs between two runs in evaluation, or None."""
        torch.manual_seed(0)
        one = self(x)
        if torch.allclose(one, self(x), equal_nan=True):
            return None
        torch.manual_seed(0)
        if torch.allclose(one, self(x), equal_nan=True):
            return "Often it is dropout, as in karpathy/nanoGPT#240."
        return "It is not by chance: something is kept from one call to the next."

    def draws(self, x: Tensor, drawn: float | None = None, but: str = "") -> tuple[Tensor, Watch]:
        """Its output in training where nothing is dropped, and what would have been."""
        with Watch(x.shape[1], drawn, but) as watch:
            return self.run(x.clone(), True).detach(), watch

    def in_float32(self, x: Tensor) -> tuple[Tensor, list[str]]:
        """Its output in float32, and the half precisions that it computes in there."""
        kept = self.dtype
        with self.restored(), Watch(x.shape[1]) as watch:
            self.module.float()
            self.dtype = torch.float32
            try:
                y = self(x)
            finally:
                self.dtype = kept
        return y, sorted(str(dtype) for dtype in watch.dtypes if dtype.itemsize < 4)


def raised(error: ValueError) -> str:
    cause = error.__cause__ or error
    said = (str(cause).splitlines() or [""])[0][:100]
    return f"`call` raised {type(cause).__name__}: {said}"


def digits(own: Tensor, y: Tensor) -> float:
    """To how many digits of the right one's largest number two outputs agree."""
    if not y.numel():
        return 16.0
    far = ((own - y).abs().max() / own.abs().max().clamp(min=1e-300)).item()
    return -math.log10(max(far, 1e-16)) if far < 1e300 else 0.0
