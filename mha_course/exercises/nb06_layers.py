"""What exercise 11 is judged on: a learner's class, seen through its layers, and inputs."""

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
    _projected: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _in: dict[torch.dtype, "Layers"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def to(self, dtype: torch.dtype) -> "Layers":
        """The same in another dtype: made once, for all cases of these layers."""
        if dtype not in self._in:
            self._in[dtype] = Layers(self.again().to(dtype), self.n_heads, self.remake)
        return self._in[dtype]

    def again(self) -> nn.Module:
        """A new module with the same weights; a copy would stumble over what forward has kept."""
        module = self.remake()
        module.load_state_dict(self.module.state_dict())
        return module

    def learning(self) -> "Layers":
        return Layers(self.again().to(torch.float64), self.n_heads, self.remake)

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


def bind(cls: Any) -> Bound | Finding | None:
    """What was built of the learner's class; else what keeps it from that, None for a stub."""
    bound = _built(cls)
    if isinstance(bound, Bound):
        layer = Source(cls).layer_in_forward(on_self=True)
        return layer or (of_the_package(cls) if "forward" not in vars(cls) else None) or bound
    if bound is None or not isinstance(cls, type):
        return bound
    return of_the_package(cls) or in_its_lines(cls) or bound


def _built(cls: Any) -> Bound | Finding | None:
    """Builds modules of the learner's class; a finding where that fails, None for a stub."""
    if not isinstance(cls, type):
        return Finding(
            "not_a_class",
            "The check takes the class itself, but got something else (an instance, perhaps).",
            "Does it say `check.MultiHeadAttention(MultiHeadAttention)`?",
        )
    codes = codes_of(cls)
    cases: list[Case] = []
    for number, (sizes, masks) in enumerate(_SIZES):
        d_model, n_heads = sizes["d_model"], sizes["n_heads"]
        outcome = run(cls, (d_model, n_heads), codes)
        if isinstance(outcome, Raised):
            if outcome.not_written:
                return None
            return exchanged(cls, d_model, n_heads, codes) or errors.explain(outcome)
        module = outcome.value
        if not isinstance(module, nn.Module):
            return Finding(
                "not_a_module",
                "Your class does not inherit from `nn.Module`.",
                "What stands in brackets behind the name of the class in the stub?",
            )
        if number == 0 and (forward := _forward_is_open(module, d_model, codes)):
            if forward not in (FORWARD_OPEN, NOTHING_RETURNED):
                return forward
            if not any(isinstance(part, nn.Linear) for part in module.modules()):
                return None
            return _layers(module, d_model) or forward
        if finding := _layers(module, d_model):
            sizes_fit = finding.key == "layer_sizes" and exchanged(cls, d_model, n_heads, codes)
            return sizes_fit or finding
        layers = Layers(module.to(torch.float64), n_heads, partial(cls, d_model, n_heads))
        cases += _cases(layers, sizes, masks, number)
        if _degenerate(module):  # constant or equal weights hide mistakes
            cases += _cases(_randomised(layers), sizes, masks, number + 10)
    return Bound(call, cases, partial(partial, _of_version))


def call(x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    return layers.module(x) if mask is None else layers.module(x, mask)


def _of_version(cls: Any, x: Tensor, mask: Tensor | None, layers: Layers) -> Any:
    """What another version of the class makes of the same modules."""
    module = copy(layers.module)
    module.__class__ = cls
    return call(x, mask, replace(layers, module=module))


def _forward_is_open(module: nn.Module, d_model: int, codes: set[Any]) -> Finding | None:
    """What is to be said of a `forward` that gives nothing, or cannot be called at all."""
    called: list[nn.Module] = []
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_pre_hook(lambda at, _: called.append(at)) for part in linear]
    x, mask = torch.zeros(1, 2, d_model), torch.zeros(1, 1, 2, 2, dtype=torch.bool)
    try:
        for inputs in ((x,), (x, mask)):  # what returns with a mask only was attempted
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


def _layers(module: nn.Module, d_model: int) -> Finding | None:
    """Four linear layers, under their names, d_model to d_model; self-written ones, too."""
    missing = [name for name in NAMES if not _has_weight(getattr(module, name, None))]
    if missing:
        have = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        held = {type(getattr(module, name, None)).__name__ for name in missing} - {"NoneType"}
        named = (f"there is {', '.join(f'`{n}`' for n in have)}" if have
                 else f"what stands there is {' and '.join(sorted(held))}" if held
                 else "there is none")  # fmt: skip
        return Finding(
            "layer_names",
            f"The module has no `nn.Linear` named {', '.join(f'`{n}`' for n in missing)}; {named}.",
            "The exercise asks for four layers under four names. Where does `__init__` set them?",
        )
    if len({id(getattr(module, name)) for name in NAMES}) < 4:
        return Finding(
            "layers_shared",
            "Two of the four names stand for one and the same layer.",
            "Which weights should queries, keys and values share?",
        )
    for name in NAMES:
        layer = getattr(module, name)
        if layer.weight.shape != (d_model, d_model):
            rows, columns = layer.weight.shape
            return Finding(
                "layer_sizes",
                f"`{name}` leads from {columns} to {rows} dimensions where d_model = {d_model}.",
                "All heads together are as wide as d_model: how wide is each projection of all "
                "heads?",
            )
        if is_own(layer) and not _is_linear(layer, d_model):
            return Finding(
                "own_layer",
                f"`{name}` is a layer of your own, and does not map x to x W + b.",
                "What does it give for 2x, less what it gives for 0?",
            )
    return None


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
    plain = any(w.numel() > 1 and (w.std() < 1e-9 or bool((w == w.mT).all())) for w in weights)
    twins = any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])
    return weights[0].numel() > 1 and (plain or twins)


def _randomised(layers: Layers) -> Layers:
    module = layers.again().to(torch.float64)
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(normal(*p.shape, seed=60 + i, std=0.5))
    return Layers(module, layers.n_heads, layers.remake)


_SIZES: tuple[tuple[dict[str, int], bool], ...] = (
    ({"B": 2, "T": 5, "d_model": 21, "n_heads": 3, "d_k": 7}, True),
    ({"B": 1, "T": 3, "d_model": 10, "n_heads": 2, "d_k": 5}, True),
    ({"B": 2, "T": 3, "d_model": 5, "n_heads": 1, "d_k": 5}, False),
    ({"B": 3, "T": 2, "d_model": 15, "n_heads": 5, "d_k": 3}, False),
    ({"B": 2, "T": 1, "d_model": 6, "n_heads": 2, "d_k": 3}, False),
    ({"B": 3, "T": 3, "d_model": 9, "n_heads": 3, "d_k": 3}, False),
    ({"B": 2, "T": 3, "d_model": 3, "n_heads": 3, "d_k": 1}, True),
)


def _cases(layers: Layers, sizes: dict[str, int], masks: bool, seed: int) -> Iterator[Case]:
    B, T, h = sizes["B"], sizes["T"], sizes["n_heads"]
    x = normal(B, T, sizes["d_model"], seed=seed, std=2)
    yield Case((x, None, layers), sizes, "without a mask")
    yield Case((x, future(T), layers), sizes, "with a causal mask (T, T)")
    if not masks:
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
