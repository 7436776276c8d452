"""What classes (11, 23) are judged on: a learner's, seen through its layers, and inputs."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.engine import errors
from mha_course.engine.inputs import normal, strided
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, codes_of, run
from mha_course.engine.source import Source
from mha_course.exercises import Bound, Case
from mha_course.exercises.nb04 import future
from mha_course.exercises.nb06_lines import exchanged, in_its_lines, of_the_package

NAMES = ("w_q", "w_k", "w_v", "w_o")


@dataclass(frozen=True)
class Layers:
    """A learner's module, seen through its four layers: what the right answer computes with."""

    module: nn.Module
    n_heads: int
    remake: Callable[[], Any]
    n_kv_heads: int = 0
    base: float = 0.0
    _projected: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _in: dict[torch.dtype, "Layers"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def to(self, dtype: torch.dtype) -> "Layers":
        """The same in another dtype: made once, for all cases of these layers."""
        if dtype not in self._in:
            self._in[dtype] = self.of(in_dtype(self.again(), dtype))
        return self._in[dtype]

    def of(self, module: nn.Module) -> "Layers":
        """The same of another module."""
        return replace(self, module=module, _projected={})

    def again(self) -> nn.Module:
        """A new module with the same weights; a copy would stumble over what forward has kept."""
        module = self.remake()
        module.load_state_dict(self.module.state_dict())
        return module

    def learning(self) -> "Layers":
        return self.of(in_dtype(self.again(), torch.float64))

    def leaves(self) -> dict[str, Tensor]:
        """What is to be trained: the four weights, each under its layer's name."""
        return {f"`{name}`": getattr(self.module, name).weight for name in NAMES}

    def tensors(self) -> Iterator[Tensor]:
        """What `module.to(device)` would move."""
        return chain(self.module.parameters(), self.module.buffers())

    def apply(self, name: str, x: Tensor) -> Tensor:
        layer = getattr(self.module, name)
        return layer(x) if is_own(layer) else F.linear(x, layer.weight, layer.bias)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a case's x: computed once, asked for by every slip."""
        if x not in self._projected:
            Q, K, V = (self.apply(name, x) for name in NAMES[:3])
            self._projected[x] = (Q, K, V)
        return self._projected[x]


@dataclass(frozen=True)
class Stub:
    """A class that an exercise asks for: how it is built, called and tried.

    Attributes:
        name: of the class.
        takes: names of the sizes that it is built with.
        sizes: of the modules that are built, in the letters of the course.
        make_cases: the cases of a module: `make_cases(layers, sizes, seed)`.
        call: what it makes of a case's inputs.
        beside: what a first look gives it beside x of (1, 2, d_model).
        bias: whether its layers may have one.
    """

    name: str
    takes: tuple[str, ...]
    sizes: tuple[dict[str, int], ...]
    make_cases: Callable[[Layers, dict[str, int], int], Iterator[Case]]
    call: Callable[..., Any]
    beside: tuple[Any, ...]
    bias: bool = True

    def bind(self, cls: Any) -> Bound | Finding | None:
        """What was built of the learner's class; else what keeps it from that, None for a stub."""
        bound = self._built(cls)
        if isinstance(bound, Bound):
            layer = Source(cls).layer_in_forward(on_self=True)
            return layer or (of_the_package(cls) if "forward" not in vars(cls) else None) or bound
        if bound is None or not isinstance(cls, type):
            return bound
        return of_the_package(cls) or in_its_lines(cls) or bound

    def _built(self, cls: Any) -> Bound | Finding | None:
        """Builds modules of the learner's class; a finding where that fails, None for a stub."""
        if not isinstance(cls, type):
            return Finding(
                "not_a_class",
                "The check takes the class itself, but got something else (an instance, perhaps).",
                f"Does it say `check.{self.name}({self.name})`?",
            )
        codes = codes_of(cls)
        cases: list[Case] = []
        for number, sizes in enumerate(self.sizes):
            given = tuple(sizes[name] for name in self.takes)
            outcome = run(cls, given, codes)
            if isinstance(outcome, Raised):
                if outcome.not_written:
                    return None
                return exchanged(cls, given, codes) or errors.explain(outcome)
            module = outcome.value
            if not isinstance(module, nn.Module):
                return Finding(
                    "not_a_module",
                    "Your class does not inherit from `nn.Module`.",
                    "What stands in brackets behind the name of the class in the stub?",
                )
            if number == 0 and (forward := self._forward_is_open(module, sizes["d_model"], codes)):
                if forward not in (FORWARD_OPEN, NOTHING_RETURNED):
                    return forward
                if not any(isinstance(part, nn.Linear) for part in module.modules()):
                    return None
                return self._layers(module, sizes) or forward
            if finding := self._layers(module, sizes):
                sizes_fit = finding.key == "layer_sizes" and exchanged(cls, given, codes)
                return sizes_fit or finding
            n_kv_heads, base = given[2:] or (0, 0.0)
            again, module = partial(cls, *given), in_dtype(module, torch.float64)
            layers = Layers(module, sizes["n_heads"], again, n_kv_heads, base)
            cases += self.make_cases(layers, sizes, number)
            if _degenerate(module):  # constant or equal weights hide mistakes
                cases += self.make_cases(_randomised(layers), sizes, number + 10)
        return Bound(self.call, cases, partial(partial, self._of_version))

    def _of_version(self, cls: Any, *inputs: Any) -> Any:
        """What another version of the class makes of the same modules."""
        *others, layers = inputs
        module = copy(layers.module)
        module.__class__ = cls
        return self.call(*others, replace(layers, module=module))

    def _forward_is_open(self, module: nn.Module, d_model: int, codes: set[Any]) -> Finding | None:
        """What is to be said of a `forward` that gives nothing, or cannot be called at all."""
        called: list[nn.Module] = []
        linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
        hooks = [part.register_forward_pre_hook(lambda at, _: called.append(at)) for part in linear]
        x = torch.zeros(1, 2, d_model)
        try:
            for inputs in ((x,), (x, *self.beside)):  # what returns with a mask only was attempted
                outcome = run(lambda *given: module(*given), inputs, codes)
                if isinstance(outcome, Raised):
                    if outcome.not_written:
                        return FORWARD_OPEN
                    return of_the_package(type(module)) or in_its_lines(type(module))
                if outcome.value is not None and outcome.value is not ...:
                    return None
        finally:
            for hook in hooks:
                hook.remove()
        return NOTHING_RETURNED if called else FORWARD_OPEN

    def _layers(self, module: nn.Module, sizes: dict[str, int]) -> Finding | None:
        """Four linear layers, under their names and of their sizes; self-written ones, too."""
        missing = [name for name in NAMES if not _has_weight(getattr(module, name, None))]
        if missing:
            have = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
            held = {type(getattr(module, name, None)).__name__ for name in missing} - {"NoneType"}
            named = (
                f"there is {', '.join(f'`{n}`' for n in have)}"
                if have
                else f"what stands there is {' and '.join(sorted(held))}"
                if held
                else "there is none"
            )
            return Finding(
                "layer_names",
                f"The module has no `nn.Linear` named {', '.join(f'`{n}`' for n in missing)}; "
                f"{named}.",
                "The exercise asks for four layers under four names. Where does `__init__` set "
                "them?",
            )
        if len({id(getattr(module, name)) for name in NAMES}) < 4:
            return Finding(
                "layers_shared",
                "Two of the four names stand for one and the same layer.",
                "Which weights should queries, keys and values share?",
            )
        d_model, shared = sizes["d_model"], sizes.get("n_kv_heads", 0)
        for name in NAMES:
            layer = getattr(module, name)
            narrow = shared > 0 and name in ("w_k", "w_v")
            wanted = shared * sizes["d_k"] if narrow else d_model
            if layer.weight.shape != (wanted, d_model):
                rows, columns = layer.weight.shape
                own = ", ".join(f"{size} = {sizes[size]}" for size in self.takes if size != "base")
                return Finding(
                    "layer_sizes",
                    f"`{name}` leads from {columns} to {rows} dimensions where {own}.",
                    "How many heads of keys and of values are there, and how wide is each?"
                    if narrow
                    else "All heads together are as wide as d_model: how wide is each projection "
                    "of all heads?",
                )
            if is_own(layer) and not _is_linear(layer, d_model):
                return Finding(
                    "own_layer",
                    f"`{name}` is a layer of your own, and does not map x to x W + b.",
                    "What does it give for 2x, less what it gives for 0?",
                )
            if not self.bias and getattr(layer, "bias", None) is not None:
                return Finding(
                    "layer_bias",
                    f"`{name}` has a bias. The published model has none to put there, so that a "
                    "random one would stay.",
                    "Which argument of `nn.Linear` leaves it out?",
                )
        return None


NOTHING_RETURNED = Finding(
    "no_return",
    "`forward` computes something, but returns nothing: a function without `return` gives `None`.",
    "Which of its values should the caller get?",
)
FORWARD_OPEN = Finding(
    "forward_open",
    "The four layers are there, but `forward` is not written yet.",
    "What happens first to x, on the way to queries, keys and values?",
)


def is_own(layer: Any) -> bool:
    """Whether the learner wrote it: such a layer may keep its weight turned."""
    return isinstance(layer, nn.Module) and type(layer) is not nn.Linear


@torch.no_grad()
def weight_and_bias(layer: Any) -> tuple[Tensor, Tensor | None]:
    """Of the nn.Linear that computes what this layer computes."""
    if not is_own(layer):
        return layer.weight, layer.bias
    bias = layer(torch.zeros_like(layer.weight[0]))
    return (layer(torch.eye(*layer.weight.shape).to(layer.weight)) - bias).T, bias


def _has_weight(part: Any) -> bool:
    weight = getattr(part, "weight", None)
    return isinstance(part, nn.Module) and isinstance(weight, Tensor) and weight.ndim == 2


@torch.no_grad()
def _is_linear(layer: nn.Module, d_model: int) -> bool:
    """But for a bias."""
    try:
        x = normal(2, 3, d_model, seed=7).float()
        zero, one, two = (layer(n * x) for n in (0, 1, 2))
        return one.shape == x.shape and torch.allclose(two - zero, 2 * (one - zero), atol=1e-4)
    except Exception:
        return False


def _degenerate(module: nn.Module) -> bool:
    weights = [getattr(module, name).weight.detach().double() for name in NAMES]
    square = [w for w in weights if w.shape == w.mT.shape]
    plain = any(w.numel() > 1 and w.std() < 1e-9 for w in weights)
    plain |= any(w.numel() > 1 and bool((w == w.mT).all()) for w in square)
    twins = any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])
    return weights[0].numel() > 1 and (plain or twins)


def _randomised(layers: Layers) -> Layers:
    module = in_dtype(layers.again(), torch.float64)
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(normal(*p.shape, seed=60 + i, std=0.5))
    return layers.of(module)


def in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """As `module.to(dtype)`, which would take the imaginary part from a table of turns."""
    return module._apply(lambda x: x.to(dtype) if x.is_floating_point() else x)


_SIZES: tuple[dict[str, int], ...] = (
    {"B": 2, "T": 5, "d_model": 21, "n_heads": 3, "d_k": 7},
    {"B": 1, "T": 3, "d_model": 10, "n_heads": 2, "d_k": 5},
    {"B": 2, "T": 3, "d_model": 5, "n_heads": 1, "d_k": 5},
    {"B": 3, "T": 2, "d_model": 15, "n_heads": 5, "d_k": 3},
    {"B": 2, "T": 1, "d_model": 6, "n_heads": 2, "d_k": 3},
    {"B": 3, "T": 3, "d_model": 9, "n_heads": 3, "d_k": 3},
    {"B": 2, "T": 3, "d_model": 3, "n_heads": 3, "d_k": 1},
)
_WITH_MASKS = (0, 1, 6)  # of the row above


def _cases(layers: Layers, sizes: dict[str, int], seed: int) -> Iterator[Case]:
    B, T, h = sizes["B"], sizes["T"], sizes["n_heads"]
    x = normal(B, T, sizes["d_model"], seed=seed, std=2)
    yield Case((x, None, layers), sizes, "without a mask")
    yield Case((x, future(T), layers), sizes, "with a causal mask (T, T)")
    if seed % 10 not in _WITH_MASKS:
        return
    some = normal(B, h, T, T, seed=seed + 30) > 0.5
    some[..., 0] = False
    yield Case((x, some, layers), sizes, "with a mask of its own for every head")
    lengths = torch.tensor([T - 2, 0, T])[:B]
    padding = (torch.arange(T) >= lengths[:, None])[:, None, None]
    yield Case((x, padding, layers), sizes, "with padding, a mask (B, 1, 1, T)")
    dead = some[:, :1].clone()
    dead[0, 0, 1] = True
    yield Case((x, dead, layers), sizes, "with every key of query 1 blocked")
    per_head = some[:1].clone()
    per_head[0, -1, 1] = True
    yield Case((x, per_head, layers), sizes, "with query 1 blocked in one head only, (1, h, T, T)")
    keys = per_head[:, :, :1].clone()
    keys[0, 0] = True
    yield Case((x, keys, layers), sizes, "with one row for all queries of a head, (1, h, 1, T)")
    if seed == 0:
        everything = torch.ones(T, T, dtype=torch.bool)
        yield Case((x, everything, layers), sizes, "with every key of every query blocked")
        yield Case((strided(x), future(T), layers), sizes, "with x not contiguous")
        of_query_1 = (torch.arange(T) == 1)[:, None].expand(1, 1, -1, 1)
        asks = "Which masks broadcast to (B, n_heads, T, T)?"
        yield Case((x, of_query_1, layers), {}, "with a mask (1, 1, T, 1)", asks=asks)
        wide = 60 * x
        alone = "without a mask, where scores are as large as 1e4"
        yield Case((wide, None, layers), sizes, alone, 2e-3, True)
        yield Case((wide, some, layers), sizes, "where scores are as large as 1e4", 2e-3, True)
        low = scoring_low(layers, sizes).expand(B, 1, -1)
        # The first row has one open key, as the last column.
        x = torch.cat([low, x[:, 1:-1], low], 1)
        note = "with a causal mask, where the first token scores itself near −1e4"
        yield Case((x, future(T), layers), sizes, note, 2e-3, True)


def scoring_low(layers: Layers, sizes: Mapping[str, int], size: float = 1e4) -> Tensor:
    """A token that scores itself about −size in head 0: what is blocked has to score lower."""
    tokens = normal(64, sizes["d_model"], seed=77)
    for _ in range(3):  # a bias keeps scores from growing exactly with the square
        Q, K = (layers.apply(name, tokens)[:, : sizes["d_k"]] for name in ("w_q", "w_k"))
        scores = (Q * K).sum(-1) / math.sqrt(sizes["d_k"])
        low = scores.argmin()
        tokens = tokens[low : low + 1] * (size / scores[low].abs().clamp(min=1e-3)).sqrt()
    return tokens.detach()


def call(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    return layers.module(x) if mask is None else layers.module(x, mask)


STUB = Stub(
    "MultiHeadAttention",
    ("d_model", "n_heads"),
    _SIZES,
    _cases,
    call,
    beside=(torch.zeros(1, 1, 2, 2, dtype=torch.bool),),
)
