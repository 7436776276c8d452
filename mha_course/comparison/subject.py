"""A copy of any module, and what it does on its own account, inside, too."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from mha_course.comparison.findings import WORDS
from mha_course.comparison.handed import Given, Handed
from mha_course.comparison.layers import draw
from mha_lesson.refusals import describe

SAME, COARSE = 5, 3  # digits that count as equal, in float64 and in float32
UNIFORM = {"rand", "rand_like", "uniform_", "bernoulli", "bernoulli_"}
FUSED = "query key value attn_mask dropout_p is_causal"
WITH_ONE = {  # a dropout inside → their parameters
    F.scaled_dot_product_attention: FUSED.split(),
    F.multi_head_attention_forward: [*signature(F.multi_head_attention_forward).parameters],
}


class Watch(TorchFunctionMode):
    """Notes what runs within it, where PyTorch's dropout drops nothing.

    Weights and scores are known by `n_tokens`; `drawn`, 0 or almost 1, is what `UNIFORM` gives
    instead, for a dropout of one's own; `but` is where it drops all the same. Kept are `drops`, "p
    of the weights" (of scores, of a shape) → how many numbers, `dtypes`, and whether it `turns`.
    """

    def __init__(self, n_tokens: int, drawn: float | None = None, but: str = "") -> None:
        super().__init__()
        self.n_tokens, self.drawn, self.but, self.turns = n_tokens, drawn, but, False
        self.drops, self.dtypes = Counter[str](), set[torch.dtype]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name or func in WITH_ONE:
            given = dict(zip(WITH_ONE.get(func, ["input", "p", "training"]), args, strict=False))
            given |= kwargs
            on = given.get("training", given.get("train", True)) in (True, None)
            if "dropout" in name:
                x, p = given["input"], given.get("p", 0.5)
                if on and p:
                    self.drops[f"{p:g} of {(place := self._place(x))}"] += x.numel()
                    if place == self.but:
                        return func(*args, **kwargs)
                return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
            if on and (p := given.get("dropout_p", 0.0)):
                rows = given["query"].shape[:-1].numel() * given.get("num_heads", 1)
                self.drops[f"{p:g} of the weights"] += rows * self.n_tokens
            args, kwargs = (), given | {"dropout_p": 0.0}
        out = func(*args, **kwargs)
        self.turns |= name in ("sin", "cos", "polar")
        if isinstance(out, Tensor):
            if out.is_floating_point():
                self.dtypes.add(out.dtype)
            if self.drawn is not None and name in UNIFORM:
                out.fill_(round(self.drawn) if "bernoulli" in name else self.drawn)
        return out

    def _place(self, x: Tensor) -> str:
        if x.shape[-2:] != (self.n_tokens, self.n_tokens):
            return f"a tensor of axes {tuple(x.shape)}"
        sums = [x.detach().sum(axis) for axis in (-1, -2)]
        whole = (((s / s.max() - 1).abs() < 1e-3) | (s == 0) for s in sums)  # or one scale of it
        return "the weights" if (x >= 0).all() and any(w.all() for w in whole) else "scores"


class Subject:
    """A module's copy, on the CPU in float64, or in float32 where it only runs in that."""

    def __init__(self, module: nn.Module, call: Callable[[nn.Module, Tensor], Any] | None) -> None:
        self.call, self.dtype = call, torch.float64
        self.same, self.coarse, self.changes_input = SAME, False, False
        self.opened: Given = {}  # what stands for masks that `call` gives
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
                    for name, _ in [*part.get_submodule("parametrizations").named_children()]:
                        parametrize.remove_parametrizations(part, name)  # such as a weight norm
            self.handed = Handed(self.module)
        except Exception as error:
            raise ValueError(WORDS["no_copy"].format(type(error).__name__, error)) from error

    def __call__(self, x: Tensor, training: bool = False, masks: Given | None = None) -> Tensor:
        """Its output (B, T, d_model), in float64; in training nothing is dropped."""
        self.handed.instead = {**self.opened, **(masks or {})}
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
            said = (*x.shape,), self.dtype, type(error).__name__, error
            raise ValueError(WORDS["no_run"].format(*said)) from error
        finally:
            torch.set_default_dtype(default)
        self.changes_input |= not torch.equal(x.detach(), before)
        out = out[0] if isinstance(out, tuple | list) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out.double()

    def start(self, x: Tensor) -> None:
        """Runs it once, in float32 if it must be, and notes in which precisions it computes."""
        errors = list[ValueError]()
        for self.dtype, self.same in ((torch.float64, SAME), (torch.float32, COARSE)):
            self.module.to(self.dtype)
            try:
                self(x)
                break
            except ValueError as error:
                errors.append(error)
        else:
            raise errors[0]
        self.notes += ["Tried in float32 only: in float64 " + raised(error) for error in errors]
        with Watch(x.shape[1]) as watch:
            self(x)
        self.turns = watch.turns
        inside = sorted(str(dtype) for dtype in watch.dtypes - {self.dtype, torch.float64})
        self.coarse = self.dtype == torch.float32 or bool(inside)
        if inside:
            half = ": too coarse to tell, so let it compute in float32" * ("float16" in str(inside))
            self.notes.append(f"Inside, it computes in {' and '.join(inside)}, too{half}.")

    def tensors(self) -> dict[str, Tensor]:
        """Its parameters and buffers."""
        return dict(self.module.named_parameters()) | dict(self.module.named_buffers())

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Its weights and their precision are afterwards what they were."""
        dtype, kept = self.dtype, {n: t.clone() for n, t in self.tensors().items()}
        try:
            yield
        finally:
            self.dtype = dtype
            self.module.to(dtype)
            own = self.tensors()
            for name, before in kept.items():  # a buffer may have been made anew
                own[name].data = before

    def changes(self, x: Tensor, tensors: Mapping[str, Tensor]) -> bool:
        """Whether other numbers in these change its output."""
        with self.restored():
            y = self(x)
            draw(tensors, x.shape[2], seed=1)
            return not torch.allclose(self(x), y, equal_nan=True)

    def live(self, matrices: Mapping[str, Tensor], d_model: int) -> Mapping[str, Tensor]:
        """Of these, the ones that change its output; all where it does not run yet."""
        x = torch.randn(3, 7, d_model, generator=torch.Generator().manual_seed(0)).double()
        with self.restored(), suppress(ValueError):
            draw({n: p for n, p in self.module.named_parameters() if p.ndim > 1}, d_model)
            return {name: p for name, p in matrices.items() if self.changes(x, {name: p})}
        return matrices

    def repeats(self, x: Tensor) -> str | None:
        """What differs between two runs in evaluation, or None."""
        torch.manual_seed(0)
        one, other = self(x), self(x)
        torch.manual_seed(0)
        if torch.allclose(one, other, equal_nan=True):
            return None
        if torch.allclose(one, self(x), equal_nan=True):
            return "Often it is dropout, as in karpathy/nanoGPT#240."
        return "It is not by chance: something is kept from one call to the next."

    def draws(self, x: Tensor, drawn: float | None = None, but: str = "") -> tuple[Tensor, Watch]:
        """Its output in training where nothing is dropped, and what would have been."""
        with Watch(x.shape[1], drawn, but) as watch:
            return self.run(x.clone(), True).detach(), watch

    def in_float32(self, x: Tensor) -> tuple[Tensor, list[str]]:
        """Its output in float32, and the half precisions that it computes in there."""
        with self.restored(), Watch(x.shape[1]) as watch:
            self.module.float()
            self.dtype = torch.float32
            y = self(x)
        return y, sorted(str(dtype) for dtype in watch.dtypes if dtype.itemsize < 4)


def raised(error: Exception) -> str:
    cause = error.__cause__ or error
    said = (str(cause).splitlines() or [""])[0][:100]
    return f"`call` raised {type(cause).__name__}: {said}"


def digits(own: Tensor, y: Tensor) -> float:
    """To how many digits of the right one's largest number two outputs agree."""
    if not y.numel():
        return 16.0
    far = ((own - y).abs().max() / own.abs().max().clamp(min=1e-300)).item()
    return -math.log10(max(far, 1e-16)) if far < 1e300 else 0.0
