"""Is a class right? Any attention module beside one that is, and beside the mistakes on record.

Nothing is read but outputs. The layers of a copy get weights that are drawn anew, and so do a
reference and the reference with each published mistake: whose numbers are the same has the word.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_course import shipped
from mha_course.comparison_layers import Layers, draw_anew, fitting_width, heads_of, places_in
from mha_lesson.refusals import describe, require_positive_int

SIZES = ((3, 7), (2, 5))  # B and T of what is tried
LARGE = [2**i for i in range(1, 11)]  # times x; scores grow with the square
SAME, AS_GOOD = 5, 3  # digits that count as equal, and that a later candidate must be better by
Run = Callable[[Tensor, bool], Tensor]  # x (B, T, d_model), in training or not


@dataclass(frozen=True)
class Comparison:
    """What came out; `str` says it in words.

    Attributes:
        found: "right", the name of a published mistake, "drawn" where two runs in evaluation
            differ, or "" where nothing fits.
        digits: to how many digits outputs agree with that.
        causal: whether it agrees with a causal mask.
        below: up to which scores; ∞ where it agrees with all that were tried.
        seen: what else came out and what was not tried, in sentences.
    """

    found: str = ""
    digits: int = 0
    causal: bool = False
    below: float = math.inf
    seen: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = "multi-head attention" + " with a causal mask" * self.causal
        below = "" if self.below == math.inf else f" below scores of {self.below:,.0f}"
        lost = shipped.bug("rotated_by_head").threads[0]
        said = {
            "": f"Neither {what} nor one of the published mistakes gives these outputs.",
            "right": f"Right{below} for a class without positions: {what}, to {self.digits} "
            f"digits. If it gives positions in `call`, they are lost, as in {lost}.",
            "drawn": "Two runs of the same input differ in evaluation: something is drawn.",
        }.get(self.found)
        if said is None:
            bug = shipped.bug(self.found)
            said = (
                f"This is {what} with a published mistake. {bug.does}\n{bug.threads[0]}: {bug.told}"
            )
        return "\n".join([said, *(f"- {line}" for line in self.seen)])


class Candidate(NamedTuple):
    """A class, right or wrong, with the module's weights."""

    name: str
    kind: str
    by_head: bool
    causal: bool
    twin: nn.Module

    def digits(self, x: Tensor, y: Tensor, training: bool) -> int:
        """To how many digits, of y's largest number, it gives y."""
        blocked = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        own = self.twin.train(training)(x, blocked if self.causal else None)
        if self.causal and self.kind == "mask convention":  # the last sees nothing: any fill goes
            own, y = own[:, :-1], y[:, :-1]
        far = ((own - y).abs().max() / y.abs().max()).item()
        return int(-math.log10(max(far, 1e-16))) if math.isfinite(far) else 0


@torch.random.fork_rng(devices=[])
@torch.no_grad()
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
            it; `module(x)` if None. It may give a causal mask, turn axes, and take away positions,
            a norm or a residual path. With any other mask (padding, a window) nothing fits.
        n_heads: h; read from the module's attributes if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv", and "w_o" → the name of the layer or parameter in
            `module`, or the names of one for each head; guessed from names and shapes if None.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, on the CPU in float64, with
        weights of ordinary size. Padding is not tried, nor any mask that `call` does not give.

    Raises:
        TypeError, ValueError: heads or layers are not found or fit no multi-head attention, or the
            call fails; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        made = f" that is made, {module.__name__}(…)" if isinstance(module, type) else ""
        raise TypeError(f"module must be an nn.Module{made}; got {describe(module)}.")
    narrow = {str(p.dtype) for p in module.parameters()} & {"torch.float16", "torch.bfloat16"}
    module = copy.deepcopy(module).to("cpu", torch.float64)
    places = places_in(module, layers)
    h = heads_of(module, places) if n_heads is None else n_heads
    require_positive_int("n_heads", h)
    weights = draw_anew(module, places)
    d_model = fitting_width(weights)
    if d_model % h:
        raise ValueError(f"n_heads must divide d_model = {d_model}; got {h}.")

    def run(x: Tensor, training: bool = False) -> Tensor:
        module.train(training)
        try:
            out = module(x) if call is None else call(module, x)
        except Exception as error:
            raise ValueError(
                f"call must run for x of shape {tuple(x.shape)}, as `lambda m, x: m(x, x, x)` or "
                f"`m(x, mask)` may; "
                f"it raised {type(error).__name__}: {error}"
            ) from error
        out = out[0] if isinstance(out, tuple) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            raise ValueError(f"call must give a tensor of x's shape; got {describe(out)}.")
        return out.double()

    found = _verdict(run, [*_candidates(weights, d_model, h)], d_model)
    seen = [f"Tried in float64, and not in {dtype}." for dtype in narrow]
    if not found.found:
        read = ", ".join(f"{role} from {' and '.join(several)}" for role, several in places.items())
        order = "; fused rows as q, k, v, in no other order" if "w_qkv" in weights else ""
        seen.append(
            f"Read: {read}; h = {h}{order}. Compare the part without a norm, a residual "
            "path or positions: `call` may leave them out. With a mask other than causal "
            "(padding, a window) nothing fits."
        )
    return replace(found, seen=(*found.seen, *seen))


def _verdict(run: Run, candidates: list[Candidate], d_model: int) -> Comparison:
    inputs = [shipped.draw(*size, d_model, seed=i) for i, size in enumerate(SIZES)]
    twice = {t: (run(inputs[0], t), run(inputs[0], t)) for t in (False, True)}
    modes = [t for t, both in twice.items() if torch.allclose(*both, equal_nan=True)]
    if False not in modes:
        return Comparison("drawn", seen=("Often it is dropout, as in karpathy/nanoGPT#240.",))

    def at(size: float) -> list[tuple[Tensor, Tensor, bool]]:
        return [(size * x, run(size * x, training), training) for x in inputs for training in modes]

    plain = at(1)
    for tried in plain:
        candidates = [c for c in candidates if c.digits(*tried) >= SAME]
    if not candidates:
        return Comparison(seen=(*_looked_at(run, inputs[0]),))
    digits = {c: min(c.digits(*tried) for tried in plain) for c in candidates}
    best = [c for c in candidates if digits[c] > max(digits.values()) - AS_GOOD]
    below = math.inf
    for size in LARGE:
        tried = at(size)
        still = [c for c in best if min(c.digits(*one) for one in tried) >= SAME]
        if not still:
            below = float(size**2)
            break
        best = still
    first, *others = best  # what is right comes first
    seen = [f"Not tried: {'padding' if first.causal else 'masks'}."]
    untried = ["mask repeated" if first.causal else "mask"]
    if True not in modes:
        seen.append("Not tried: training, where two runs of the same input differ.")
        untried.append("mask dropped")
    if below < math.inf:
        seen.append(f"It gives something else where scores reach about {below:,.0f}.")
        untried.append("mask filled")
    told = [c for c in others if c.by_head == first.by_head and not c.kind.startswith((*untried,))]
    alike = sorted({c.name for c in told} - {first.name})
    alike += ["any scale of the same value"] * (first.kind == "scale")
    if alike:
        seen.append(f"At this size {', '.join(alike)} would give the same: try another n_heads.")
    if first.by_head:
        seen.append("The rows of its fused layer are read head by head.")
    return Comparison(first.name, digits[first], first.causal, below, tuple(seen))


def _candidates(weights: Layers, d_model: int, h: int) -> Iterator[Candidate]:
    """What is right, and then each mistake that gives the same twice."""
    classes = {"right" if "w_o" in weights else "no_w_o": ("", shipped.right())}
    for name, bug in shipped.bugs().items():
        if bug.of == "Attention" and bug.kind != "dropout":
            classes[name] = bug.kind, bug.build
    orders = (False, True) if "w_qkv" in weights else (False,)
    states = [_state(weights, d_model, h, by_head) for by_head in orders]
    for name, (kind, cls) in classes.items():
        for by_head, state in enumerate(states):
            with torch.device("meta"):  # nothing is drawn, and all share the same numbers
                twin = cls(d_model, h)
            twin.load_state_dict(state, assign=True)
            for causal in (False, True):
                yield Candidate(name, kind, bool(by_head), causal, twin)


def _state(weights: Layers, d_model: int, h: int, by_head: bool) -> dict[str, Tensor]:
    """The four layers of a reference, of which a missing W^O changes nothing."""
    parts = {"w_o": torch.eye(d_model, d_model + 1, dtype=torch.float64)} | weights
    if (fused := parts.pop("w_qkv", None)) is not None:
        rows = fused.unflatten(0, (h, 3, -1)).transpose(0, 1).flatten(0, 2) if by_head else fused
        parts |= zip(("w_q", "w_k", "w_v"), rows.chunk(3), strict=True)
    weight = {f"{role}.weight": part[:, :-1] for role, part in parts.items()}
    return weight | {f"{role}.bias": part[:, -1] for role, part in parts.items()}


def _looked_at(run: Run, x: Tensor) -> Iterator[str]:
    """What comes of changing one thing at a time."""
    y, later, other = run(x, False), x.clone(), x.clone()
    later[:, 1:] += 1  # not the last alone, which may be padding
    other[1:] += 1
    order = [1, 0, *range(2, x.shape[1])]
    if not y.any():
        yield "All outputs are zeros."
    if not y.isfinite().all():
        yield "Outputs are NaN or infinite. Is a row blocked entirely, or does True mean keep?"
        return
    sees = not torch.allclose(run(later, False)[:, 0], y[:, 0])
    yield f"Tokens {'see' if sees else 'do not see'} later ones."
    mixes = not torch.allclose(run(other, False)[0], y[0])
    yield f"Sequences {'see' if mixes else 'do not see'} each other."
    moves = not torch.allclose(run(x[:, order], False)[:, 2:], y[:, 2:])
    knows = "changes what later ones get: positions, perhaps, or a window"
    yield f"Exchanging the first two tokens {knows if moves else 'changes nothing for later ones'}."
