"""Is a class right? Any attention module beside one that is, and beside the mistakes on record.

Nothing is read but outputs: the module's weights are put into a reference and into the reference
with each published mistake in turn, and whichever gives the same numbers has the word.
"""

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mha_lesson import shipped
from mha_lesson.refusals import describe, require_positive_int, say

SIZES = ((3, 7), (2, 11))  # B and T of what is tried
HEADS = ("n_heads", "num_heads", "n_head", "num_head", "nhead", "heads", "num_attention_heads", "h")
WORDS = {  # in a layer's name
    "w_qkv": {"qkv", "wqkv"},
    "w_q": {"q", "wq", "query", "queries"},
    "w_k": {"k", "wk", "key", "keys"},
    "w_v": {"v", "wv", "value", "values"},
    "w_o": {"o", "wo", "out", "output", "proj", "dense", "fc"},
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
            said = f"Right: {what}, to {self.digits} digits. Not tried: padding, large scores."
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
    layers: Mapping[str, str | Sequence[str]] | None = None,
) -> Comparison:
    """Says whether a module's self-attention is right, or which published mistake it makes.

    Args:
        module: any attention with W^Q, W^K, W^V (or all three in one) and W^O, h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. A causal mask, other axes, a norm or a residual path are for
            `call` to give, to turn and to take away.
        n_heads: h; read from the module's attributes if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv", and "w_o" → the name of the layer or parameter in
            `module`, or the names of one for each head; guessed from names and shapes if None.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, in float64. Masks of padding
        are not tried.

    Raises:
        TypeError, ValueError: heads or layers are not found; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module; got {describe(module)}.")
    module = copy.deepcopy(module).double()
    found, told = _layers(module, layers)
    h = told if n_heads is None else n_heads
    if h is None:
        raise ValueError(f"n_heads must be given: the module has no attribute {say(HEADS)}.")
    require_positive_int("n_heads", h)
    d_model = next(iter(found.values()))[0].shape[1]

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            out = module(x) if call is None else call(module, x)
        out = out[0] if isinstance(out, tuple) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out.double()

    inputs = [shipped.draw(*size, d_model, seed=i) for i, size in enumerate(SIZES)]
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


def _layers(
    module: nn.Module, layers: Mapping[str, str | Sequence[str]] | None
) -> tuple[Layers, int | None]:
    """The weights (out, in) and biases; and h, if an attribute or a list of layers tells it."""
    own = {name: parameter.detach() for name, parameter in module.named_parameters()}
    matrices = {re.sub(r"[._]?weight$", "", n): p for n, p in own.items() if p.ndim == 2}
    if layers:
        chosen = {n: [p] if isinstance(p, str) else [*p] for n, p in layers.items()}
    else:
        chosen = _guessed(matrices)
    places = [place for several in chosen.values() for place in several]
    if not chosen.keys() <= WORDS.keys() or not {*places} <= matrices.keys():
        known = f"{say([*WORDS])} to {say([*matrices])}"
        raise ValueError(f"layers must map some of {known}; got {say(chosen)}.")
    unclear = not layers and "w_o" not in chosen and len(places) < len(matrices)
    if unclear or not ("w_qkv" in chosen or {"w_q", "w_k", "w_v"} <= chosen.keys()):
        raise ValueError(f"layers must be given: not all were found among {say([*matrices])}.")
    turned = any(3 * len(matrices[p]) == matrices[p].shape[1] for p in places)
    found: Layers = {}
    for role, several in chosen.items():  # one for each head: below each other
        weight = torch.cat([matrices[p].T if turned else matrices[p] for p in several])
        biases = [own.get(f"{p}.bias", own.get(f"{p}_bias")) for p in several]
        kept = [bias for bias in biases if bias is not None]
        found[role] = weight, torch.cat(kept) if kept else weight.new_zeros(len(weight))
    d_model = next(iter(found.values()))[0].shape[1]
    shapes = {name: tuple(weight.shape) for name, (weight, _) in found.items()}
    if any(s != ((3 if n == "w_qkv" else 1) * d_model, d_model) for n, s in shapes.items()):
        raise ValueError(f"layers must be d_model wide, in and out; got {say(shapes)}.")
    named = [getattr(part, name, None) for part in module.modules() for name in HEADS]
    told = [max(map(len, chosen.values())), *(n for n in named if isinstance(n, int))]
    return found, next(iter(told[told[0] == 1 :]), None)


def _guessed(matrices: dict[str, Tensor]) -> dict[str, list[str]]:
    """By shape, then by the words of a name, its last part first; the one left over is W^O."""
    chosen: dict[str, list[str]] = {}
    for place, matrix in matrices.items():
        role = "w_qkv" if 3 * min(matrix.shape) == max(matrix.shape) else _said(place)
        chosen.setdefault(role, []).append(place)
    others = chosen.pop("", [])
    if len(others) == 4 and not chosen:  # a list of layers
        return {role: [place] for role, place in zip([*WORDS][1:], others, strict=True)}
    if len(others) == 1:
        chosen.setdefault("w_o", others)
    return chosen


def _said(place: str) -> str:
    for part in reversed(place.lower().split(".")):
        words = {word.removeprefix("to") for word in re.findall("[a-z]+", part)}
        if role := next((role for role, said in WORDS.items() if words & said), ""):
            return role
    return ""


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
