"""Is a class right? Any attention module beside one that is, and beside the mistakes on record.

Nothing is read but outputs: the module's weights are put into a reference and into the reference
with each published mistake in turn, and whichever gives the same numbers has the word.
"""

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mha_lesson import shipped
from mha_lesson.refusals import describe, require_positive_int, say

SIZES = ((3, 7), (2, 11))  # B and T of what is tried
HEADS = ("n_heads", "num_heads", "n_head", "nhead", "heads", "num_attention_heads", "h")
WORDS = {  # in the last part of a layer's name
    "w_qkv": {"qkv", "wqkv", "in", "attn"},
    "w_q": {"q", "wq", "query", "queries"},
    "w_k": {"k", "wk", "key", "keys"},
    "w_v": {"v", "wv", "value", "values"},
    "w_o": {"o", "wo", "out", "output", "proj", "dense", "fc", "unifyheads"},
}
SAME, AS_GOOD = 5, 3  # digits that count as equal, and that a later candidate must be better by
Layers = dict[str, tuple[Tensor, ...]]  # weight (out, in) and bias


@dataclass(frozen=True)
class Comparison:
    """What came out; `str` says it in words.

    Attributes:
        found: "right", the name of a published mistake, or "" where nothing fits.
        digits: to how many digits outputs agree with that.
        causal: whether it agrees with a causal mask.
        by_head: whether the rows of a fused layer are read head by head.
        seen: where nothing fits, what changing tokens, sequences and the future shows.
    """

    found: str = ""
    digits: int = 0
    causal: bool = False
    by_head: bool = False
    seen: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = "multi-head attention" + (" with a causal mask" if self.causal else "")
        said = f"Neither {what} nor one of the published mistakes gives these outputs."
        if self.found == "right":
            said = f"Right: {what}, to {self.digits} digits."
        elif self.found:
            bug = shipped.bug(self.found)
            said = (
                f"This is {what} with a published mistake. {bug.does}\n{bug.threads[0]}: {bug.told}"
            )
        rows = ["The rows of its fused layer are read head by head."] if self.by_head else []
        return "\n".join([said, *rows, *(f"- {line}" for line in self.seen)])


def compare(
    module: nn.Module,
    call: Callable[[nn.Module, Tensor], Any] | None = None,
    *,
    n_heads: int | None = None,
    layers: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Says whether a module's self-attention is right, or which published mistake it makes.

    Args:
        module: any attention with W^Q, W^K, W^V (or all three in one) and W^O, h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. A causal mask or other axes are for `call` to give and to turn.
        n_heads: h; read from the module's attributes if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv", and "w_o" → the name of the layer or parameter in
            `module`; guessed from names and shapes if None.
        seed: of the inputs.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, in float64. Masks of padding
        are not tried.

    Raises:
        TypeError, ValueError: heads or layers are not found; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module; got {describe(module)}.")
    module = copy.deepcopy(module).double()
    h = n_heads if n_heads is not None else _heads(module)
    require_positive_int("n_heads", h)
    found = _layers(module, layers)
    d_model = next(iter(found.values()))[0].shape[1]

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            out = module(x) if call is None else call(module, x)
        out = out[0] if isinstance(out, tuple) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out.double()

    inputs = [shipped.draw(*size, d_model, seed=seed + i) for i, size in enumerate(SIZES)]
    best = Comparison()
    with torch.random.fork_rng(devices=[]):
        for training in (False, True):  # there may be a path that only training takes
            module.train(training)
            outputs = [run(x) for x in inputs]
            if not torch.equal(outputs[0], run(inputs[0])):  # something is drawn: dropout
                best = best if training else Comparison("dropout_in_evaluation")
            elif best.found or not training:
                maskings = (best.causal,) if training else (False, True)
                best = _closest([*_candidates(inputs, outputs, found, h, training, maskings)])
        module.eval()
        return best if best.found else replace(best, seen=tuple(_seen(run, inputs[0])))


def _closest(found: list[Comparison]) -> Comparison:
    """The first that is as good as any; what is right comes first."""
    most = max(candidate.digits for candidate in found)
    if most < SAME:
        return Comparison()
    return next(candidate for candidate in found if candidate.digits > most - AS_GOOD)


def _candidates(
    inputs: list[Tensor], outputs: list[Tensor], layers: Layers, h: int,
    training: bool, maskings: tuple[bool, ...],
) -> Iterator[Comparison]:  # fmt: skip
    """What is right, then each mistake, with the module's weights: how well its outputs agree."""
    classes = {"right" if "w_o" in layers else "no_w_o": shipped.right()}
    classes |= {name: b.build for name, b in shipped.bugs().items() if b.of == "Attention"}
    for name, cls in classes.items():
        for by_head in (False, True)[: 1 + ("w_qkv" in layers)]:
            twin = _filled(cls, layers, h, by_head).train(training)
            for causal in maskings:
                pairs = zip(inputs, outputs, strict=True)
                digits = min(_digits(twin, x, y, causal) for x, y in pairs)
                yield Comparison(name, digits, causal, by_head)


def _digits(twin: nn.Module, x: Tensor, y: Tensor, causal: bool) -> int:
    """To how many digits, of y's largest number, the twin's output is y."""
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        far = ((twin(x, mask) - y).abs().max() / y.abs().max()).item()
    return int(-math.log10(max(far, 1e-16))) if math.isfinite(far) else 0


def _filled(cls: type[nn.Module], layers: Layers, h: int, by_head: bool) -> nn.Module:
    """A reference, right or wrong, with the module's weights; what is not there changes nothing."""
    d_model = next(iter(layers.values()))[0].shape[1]
    parts = {"w_o": (torch.eye(d_model), torch.zeros(d_model))} | layers
    if fused := parts.pop("w_qkv", None):
        rows = torch.arange(3 * d_model)
        rows = rows.view(h, 3, -1).transpose(0, 1).flatten() if by_head else rows
        for name, own in zip(("w_q", "w_k", "w_v"), rows.chunk(3), strict=True):
            parts[name] = tuple(part[own] for part in fused)
    twin: Any = cls(d_model, h).double()
    for name, (weight, bias) in parts.items():
        getattr(twin, name).load_state_dict({"weight": weight, "bias": bias})
    return twin


def _heads(module: nn.Module) -> int:
    named = [getattr(part, name, None) for part in module.modules() for name in HEADS]
    numbers = [n for n in named if isinstance(n, int)]
    if not numbers:
        raise ValueError(f"n_heads must be given: the module has no attribute {say(HEADS)}.")
    return numbers[0]


def _layers(module: nn.Module, layers: Mapping[str, str] | None) -> Layers:
    """w_q, w_k, w_v (or w_qkv) and w_o, where there is one."""
    own = {name: parameter.detach() for name, parameter in module.named_parameters()}
    matrices = {re.sub(r"[._]?weight$", "", n): p for n, p in own.items() if p.ndim == 2}
    chosen = dict(layers) if layers else _guessed([*matrices])
    if wrong := {n: p for n, p in chosen.items() if n not in WORDS or p not in matrices}:
        known = f"{say([*WORDS])} to {say([*matrices])}"
        raise ValueError(f"layers must map some of {known}; got {say(wrong)}.")
    if "w_qkv" not in chosen and not {"w_q", "w_k", "w_v"} <= chosen.keys():
        raise ValueError(f"layers must be given: not all were found among {say([*matrices])}.")
    found = {name: matrices[place] for name, place in chosen.items()}
    if any(3 * weight.shape[0] == weight.shape[1] for weight in found.values()):
        found = {name: weight.T for name, weight in found.items()}  # they are (in, out)
    d_model = next(iter(found.values())).shape[1]
    shapes = {name: tuple(weight.shape) for name, weight in found.items()}
    if any(s != ((3 if n == "w_qkv" else 1) * d_model, d_model) for n, s in shapes.items()):
        raise ValueError(f"layers must be d_model wide, in and out; got {say(shapes)}.")
    biases = {
        name: own.get(f"{place}.bias", own.get(f"{place}_bias")) for name, place in chosen.items()
    }
    nothing = {name: weight.new_zeros(len(weight)) for name, weight in found.items()}
    return {n: (w, nothing[n] if (bias := biases[n]) is None else bias) for n, w in found.items()}


def _guessed(places: list[str]) -> dict[str, str]:
    """By the last part of a name; four without a word are q, k, v and o."""
    chosen: dict[str, str] = {}
    for place in places:
        words = {w.removeprefix("to") for w in re.findall("[a-z]+", place.lower().split(".")[-1])}
        role = next((role for role, said in WORDS.items() if words & said), None)
        if role:
            chosen.setdefault(role, place)
    if not chosen and len(places) == 4:
        chosen = dict(zip(("w_q", "w_k", "w_v", "w_o"), places, strict=True))
    return chosen


def _seen(run: Callable[[Tensor], Tensor], x: Tensor) -> Iterator[str]:
    """What comes of changing one thing at a time."""
    y, later, other = run(x), x.clone(), x.clone()
    later[:, -1] += 1
    other[1:] += 1
    sees = not torch.allclose(run(later)[:, :-1], y[:, :-1])
    yield f"Tokens {'see' if sees else 'do not see'} later ones."
    mixes = not torch.allclose(run(other)[0], y[0])
    yield f"Sequences {'see' if mixes else 'do not see'} each other."
    order = torch.arange(x.shape[1]).roll(1)
    moves = torch.allclose(run(x[:, order]), y[:, order])
    yield f"Tokens in another order give {'the same' if moves else 'other'} outputs, in that order."
