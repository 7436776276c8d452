"""A copy of any module, run in such ways that what it does on its own account is seen."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_course.comparison_layers import draw
from mha_lesson.refusals import describe

SAME, COARSE = 5, 3  # digits that count as equal, in float64 and in float32
Call = Callable[[nn.Module, Tensor], Any]


class Subject:
    """A module's copy, on the CPU in float64, or in float32 where it only runs in that."""

    def __init__(self, module: nn.Module, call: Call | None) -> None:
        self.call, self.notes, self.coarse = call, [], False
        halves = {str(p.dtype) for p in module.parameters()} & {"torch.float16", "torch.bfloat16"}
        self.notes += [f"Tried in float64, and not in {dtype}." for dtype in sorted(halves)]
        self.dtype, self.also = torch.float64, ""
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
            raise ValueError("module must have run once: its lazy layers have no weights yet.")
        # What it keeps of its last run, as weights to look at, hangs on a graph and is not copied.
        kept = [
            t for part in module.modules() for t in vars(part).values() if isinstance(t, Tensor)
        ]
        try:
            copied = copy.deepcopy(module, {id(t): t.detach().clone() for t in kept})
            self.module = copied.to("cpu", torch.float64)
        except Exception as error:
            raise ValueError(
                f"module must be one that can be copied to the CPU in float64; "
                f"copy.deepcopy or .to raised {type(error).__name__}: {error}"
            ) from error

    def __call__(self, x: Tensor, training: bool = False) -> Tensor:
        """Its output (B, T, d_model), in float64; in training as its own training runs it."""
        with torch.set_grad_enabled(training):
            return self._run(self.module, x.clone(), training).detach().double()

    def _run(self, module: nn.Module, x: Tensor, training: bool) -> Tensor:
        module.train(training)
        default = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)  # of what it makes inside
        try:
            x = x.to(self.dtype)
            out = module(x) if self.call is None else self.call(module, x)
        except Exception as error:
            raise ValueError(
                f"call must run for x of shape {tuple(x.shape)} in {self.dtype}, as "
                f"`lambda m, x: m(x, x, x)` or `m(x, mask)` may; "
                f"it raised {type(error).__name__}: {error}"
            ) from error
        finally:
            torch.set_default_dtype(default)
        out = out[0] if isinstance(out, tuple | list) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out

    @property
    def same(self) -> int:
        return SAME if self.dtype == torch.float64 else COARSE

    @property
    def largest(self) -> int:
        """How many of the ever larger inputs its precision bears."""
        return 5 if self.coarse else 10

    @property
    def precisions(self) -> str:
        return str(self.dtype).removeprefix("torch.") + self.also

    def raised(self, error: ValueError) -> str:
        cause = error.__cause__ or error
        return f"`call` raised {type(cause).__name__}: {str(cause).splitlines()[0][:100]}"

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
                raise first from first.__cause__
            self.notes.append("Tried in float32 only: in float64 " + self.raised(first))
        with _Watch() as watch:
            self(x)
        inside = sorted(str(dtype) for dtype in watch.dtypes - {self.dtype})
        self.coarse = self.dtype == torch.float32 or bool(inside)
        if inside:
            coarse = ": too coarse to tell, so let it compute in float32" * (
                "float16" in str(inside)
            )
            self.notes.append(f"Inside, it computes in {' and '.join(inside)}, too{coarse}.")

    def live(self, matrices: Mapping[str, Tensor], d_model: int) -> dict[str, Tensor]:
        """Of these, the ones that change its output; all where it does not run yet."""
        x = torch.randn(3, 7, d_model, generator=torch.Generator().manual_seed(0)).double()
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module)
        own = dict(other.module.named_parameters())
        draw({name: p for name, p in own.items() if p.ndim > 1}, d_model)
        found = {}
        try:
            y = other(x)
            for where, matrix in matrices.items():
                name = next(n for n, p in self.module.named_parameters() if p is matrix)
                kept = own[name].clone()
                own[name].mul_(-1.5)
                if not torch.allclose(other(x), y, equal_nan=True):
                    found[where] = matrix
                own[name].copy_(kept)
        except ValueError:
            return dict(matrices)
        return found

    def masked(self, x: Tensor) -> bool:
        """Whether `call` gives the module a mask that blocks some pairs and not others."""
        given: list[Any] = []

        def listen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given.extend([*args, *kwargs.values()])
            given.append(any(kwargs.get(name) is True for name in ("causal", "is_causal")))

        handle = self.module.register_forward_pre_hook(listen, with_kwargs=True)
        try:
            self(x)
        finally:
            handle.remove()
        T, masks = x.shape[1], [t for t in given if isinstance(t, Tensor) and t.shape != x.shape]
        square = [t for t in masks if t.shape[-2:] == (T, T) or t.dtype == torch.bool]
        return True in [t for t in given if t is True] or any(len(t.unique()) > 1 for t in square)

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

    def trains(self, x: Tensor) -> bool:
        """Whether two runs in training agree; dropout is made to drop nothing."""
        for part in self.module.modules():
            for name, value in [*vars(part).items()]:
                if isinstance(value, float) and value and re.search("drop|^p$", name):
                    setattr(part, name, 1e-12)
        try:
            return torch.allclose(self(x, True), self(x, True), equal_nan=True)
        except ValueError:
            return False

    def gradient(self, x: Tensor, training: bool) -> Tensor | None:
        """Of all outputs, each times its token's place from 1, summed; None if there is none."""
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            try:
                out = self._run(self.module, x, training).double()
                out = (out * torch.arange(1.0, x.shape[1] + 1)[:, None]).sum()
                [gradient] = torch.autograd.grad(out, x)
            except Exception:
                return None
        self.also += " with gradients"
        return gradient

    def in_float32(self, x: Tensor) -> Tensor | None:
        """Its output in float32; None where that is tried already, or fails."""
        if self.dtype != torch.float64:
            return None
        state = {name: t.clone() for name, t in self.module.state_dict().items()}
        self.module.float()
        self.dtype = torch.float32
        try:
            y = self(x)
        except ValueError as error:
            self.notes.append("Not tried: float32, where " + self.raised(error))
            return None
        finally:
            self.dtype = torch.float64
            self.module.double().load_state_dict(state)
        self.also += " and float32"
        return y


class _Watch(TorchFunctionMode):
    """Notes in which floating types anything is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.is_floating_point():
            self.dtypes.add(out.dtype)
        return out
