"""Is a class right? Any attention module beside one that is, and beside the published mistakes.

Only outputs are read. The layers of a copy get new random weights. A right class gets the same,
and so does that class with each published mistake: whichever gives the same numbers is the verdict.
"""

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug
from mha_course.comparison import layers as layers_of
from mha_course.comparison.layers import Reading, Roles
from mha_course.comparison.subject import COARSE, SAME, Subject, raised
from mha_lesson.refusals import describe, require_positive_int

FIRST = ((3, 7), (2, 5))  # B and T of what every candidate is tried on
MORE = ((1, 1), (1, 2), (4, 3), (2, 9), (6, 4), (1, 17), (9, 2), (1, 33), (5, 6), (1, 65),
        (1, 129), (1, 257), (1, 513))  # and of what those left over are tried on  # fmt: skip
MOST_SCORES = 2**21
LARGER = [2**i for i in range(1, 11)]  # times x; scores grow with the square
DIGITS_BETTER = 3  # by so many digits one candidate beats another
RIGHT = Bug("right", "", "", (), "", True, ())
KEYS = Bug("scale_n_keys", "scale", "The scores are divided by the root of the number of keys.",
           (), "", False, [("math.sqrt(d_k)", "math.sqrt(T)")])  # fmt: skip
NO_EFFECT = "mask_dropped"  # seen from the mask that `call` gives
USUAL = r"|`\w+` is read as \(h, \d, d_k\) of (q, k, v|k, v|q, k)"  # what a usual reading notes
MEANT = {  # kind of mistake → where it is none
    "scale": "If the scale stands elsewhere on purpose (in the initialisation, in a norm, in a "
    "factor that is learned), it is a choice, not a mistake.",
    "layer missing": "If W^O is in another module, let `call` apply both.",
    "batch axis": "If the module wants tokens first, as nn.MultiheadAttention does without "
    "batch_first, let `call` turn the axes: x.transpose(0, 1), and back.",
    "fused order": "If the weights are stored head by head, it is a choice, not a mistake.",
    "mask convention": "If True means “keep” in this module, let `call` give ~mask.",
    "heads": "If one head is meant, say n_heads=1.",
}


@dataclass(frozen=True)
class Comparison:
    """What came out; `str` puts it into words.

    Attributes:
        found: "right" where all that was tried agrees; the name of a published mistake, or of
            two, "a, b"; "partly" where only some of it agrees; "drawn" where two runs in
            evaluation differ; "" where nothing fits.
        digits: to how many digits outputs agree with that.
        causal: whether it agrees with a causal mask.
        below: up to which scores; ∞ where it agrees with all that were tried.
        seen: what else came out, what was tried and what was not, in sentences.
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
        first = {
            "": f"Neither {what} nor one of the published mistakes gives these outputs.",
            "right": f"Right{below} for a class without positions: {what}, to {self.digits} "
            f"digits. If it gives positions in `call`, they are lost, as in {lost}.",
            "partly": "It agrees with what is right, or with a mistake, on only a part of what "
            "was tried.",
            "drawn": "Two runs of the same input differ in evaluation.",
        }.get(self.found)
        if first is None:
            bugs = [KEYS if n == KEYS.name else shipped.bug(n) for n in self.found.split(", ")]
            points = f"{len(bugs)} point{'s' * (len(bugs) > 1)}"
            first = f"Its outputs are those of {what}, changed in {points}:"
            first = "\n".join([first, *map(_described, bugs)])
        return "\n".join([first, *(f"- {note}" for note in self.seen)])


def _described(bug: Bug) -> str:
    mended = ", before it was mended" * bug.mended
    thread = f"\nSo did {bug.threads[0]}{mended}: {bug.summary}" if bug.threads else ""
    return f"{bug.does}{thread}\n{MEANT.get(bug.kind, 'If it is meant, it is not a mistake.')}"


Run = tuple[Tensor, Tensor, bool]  # an input, the module's output, and whether in training


class Candidate(NamedTuple):
    """A class, right or wrong, and how the module's weights are read."""

    bug: Bug
    causal: bool
    reading: Reading

    @property
    def name(self) -> str:
        """Of its mistakes; "right" where there is none."""
        missing = ["no_w_o"] * ("w_o" not in self.reading.roles)
        return ", ".join(missing + [self.bug.name] * (self.bug is not RIGHT)) or "right"

    def output(self, x: Tensor, training: bool) -> Tensor:
        module = copy.copy(_without_weights(x.shape[2], self.reading.h))
        module.__class__ = self.bug.build  # no mistake changes how the layers are made
        for letter, rows in self.reading.rows.items():
            own = getattr(module, f"w_{letter}")._parameters
            own["weight"], own["bias"] = rows[:, :-1], rows[:, -1]
        blocked = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return module.train(training)(x, blocked if self.causal else None)

    def digits(self, x: Tensor, y: Tensor, training: bool) -> int:
        """To how many digits, of y's largest number, it gives y."""
        own = self.output(x, training)
        if self.causal and self.bug.kind == "mask convention":  # the last sees nothing: any fill
            own, y = own[:, :-1], y[:, :-1]
        return digits(own, y)


@lru_cache
def _without_weights(d_model: int, h: int) -> nn.Module:
    """To make layers takes longer than to run them."""
    with torch.device("meta"):
        return shipped.right()(d_model, h)


def gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Of the sum of all outputs, each times its token's place from 1."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        places = torch.arange(1.0, x.shape[1] + 1)[:, None]
        return torch.autograd.grad((run(x) * places).sum(), x)[0]


def digits(own: Tensor, y: Tensor) -> int:
    far = ((own - y).abs().max() / y.abs().max()).item() if y.numel() else 0.0
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

    In a test suite: `assert compare(MyAttention(64, 4)).found == "right"`.

    Args:
        module: any attention with W^Q, W^K, W^V (or several of them in one) and W^O,
            h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. It may give a causal mask, turn axes, and take away positions,
            a norm or a residual path. It is called with batches of 1 to 9 and with 1 to 513 tokens
            (of which a mask is as long); what raises an error there is said and left out.
        n_heads: h; read from the module's attributes, or tried, if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv" (or "w_q" and "w_kv"), and "w_o" → the name of the
            layer or parameter in `module`, or the names of one for each head; guessed from names
            and shapes, and tried in other orders, if None.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, on the CPU in float64 and
        float32, with weights of ordinary size, in evaluation and in training, where its dropout
        drops nothing. Its answer holds for what it says was tried, with this `call` alone.

    Raises:
        TypeError, ValueError: heads or layers are not found or fit no multi-head attention, or the
            call fails; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        made = f" that is made, {module.__name__}(…)" if isinstance(module, type) else ""
        raise TypeError(f"module must be an nn.Module{made}; got {describe(module)}.")
    if n_heads is not None:
        require_positive_int("n_heads", n_heads)
    subject = Subject(module, call)
    matrices = layers_of.matrices_of(subject.module)
    if layers is None:
        d_model = layers_of.width_of(matrices.values())
        ways = layers_of.options(matrices, subject.live(matrices, d_model), d_model)
    else:
        ways = [layers_of.chosen(matrices, layers)]
        d_model = layers_of.width_of(matrices[n] for names in ways[0].values() for n in names)
    h, sure = (n_heads, True) if n_heads else layers_of.heads_of(subject.module, ways[0])
    if n_heads and d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model = {d_model}; got {n_heads}.")
    return _Trial(subject, ways, d_model, h, sure).result()


class _Trial:
    """One module, and whatever could give its outputs."""

    def __init__(
        self, subject: Subject, ways: list[Roles], d_model: int, h: int | None, sure: bool
    ) -> None:
        self.subject, self.ways, self.d_model = subject, ways, d_model
        divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
        self.h = h if h in divisors else None
        self.sure = sure and self.h is not None
        self.heads = sorted(divisors, key=lambda n: n != h)
        self.inputs = [shipped.draw(*size, d_model, seed=i) for i, size in enumerate(FIRST)]

    def result(self) -> Comparison:
        subject, x = self.subject, self.inputs[0]
        self.own = layers_of.parameters_of(subject.module, self.ways)
        layers_of.draw(self.own, self.d_model)
        subject.start(x)
        self.masked = subject.masked(x)
        runs = [(x, subject(x), False) for x in self.inputs]
        if (how := subject.repeats(x)) is not None:
            return Comparison("drawn", seen=(how,))
        later = x.clone()
        later[:, 1:] += 1  # not the last alone, which may be padding
        self.sees = not torch.allclose(subject(later)[:, 0], runs[0][1][:, 0], equal_nan=True)
        if candidates := self._fitting(runs):
            return self._further(candidates, runs)
        read = (
            f"Read: {_listed(self.ways[0])}; h = {self.h or 'any'}; other orders of rows and of "
            "layers were tried. Compare the part without a norm, a residual path or positions: "
            "`call` may leave them out. With a mask other than causal (padding, a window) nothing "
            "fits."
        )
        return Comparison(seen=(*subject.notes, *_behaviour(subject, x, self.sees), read))

    def _fitting(self, runs: list[Run]) -> list[Candidate]:
        """The candidates of the likeliest kind that give what the module gives."""
        singles = [b for b in shipped.bugs().values() if b.of == "Attention"]
        singles = [b for b in [*singles, KEYS] if b.kind not in ("dropout", "mask dropped")]

        def read(roles: Roles, heads: Iterable[int]) -> Iterator[Reading]:
            for h in heads:
                yield from layers_of.readings(self.subject.module, roles, h, self.d_model)

        def each(bugs: Iterable[Bug], readings: Iterable[Reading]) -> Iterator[Candidate]:
            for bug, reading, causal in product(bugs, readings, (False, True)):
                missing = bug.kind == "layer missing" and "w_o" not in reading.roles
                if (causal or not bug.kind.startswith("mask")) and not missing:
                    yield Candidate(bug, causal, reading)

        def others() -> Iterator[Reading]:
            yield from read(self.ways[0], self.heads)
            for roles in self.ways[1:]:
                yield from (r for r in read(roles, self.heads[:1]) if not r.unusual)

        known = [*read(self.ways[0], self.heads[:1] if self.h else self.heads)]
        usual = [r for r in known if re.fullmatch(USUAL, r.unusual)]
        main = (r for r in known if r.h == self.heads[0] and "W^O" not in r.unusual)
        stages: tuple[Iterable[Candidate], ...] = (  # each is made when those before have failed
            each([RIGHT, *singles], usual),
            (Candidate(RIGHT, not self.sees, r) for r in others()),
            each(singles, main),
            each(_pairs(singles), usual),
        )
        for stage in stages:
            fit = [c for c in stage if all(c.digits(*run) >= self.subject.same for run in runs)]
            if fit:
                return fit
        return []

    def _further(self, best: list[Candidate], runs: list[Run]) -> Comparison:
        """Whether it holds for everything else that is tried."""
        subject = self.subject
        exact = [min(c.digits(*run) for run in runs) for c in best]
        best = [c for c, n in zip(best, exact, strict=True) if n > max(exact) - DIGITS_BETTER]
        agreed = min(best[0].digits(*run) for run in runs)
        modes = (False, True) if subject.trains(self.inputs[0]) else (False,)
        small = [(B, T) for B, T in MORE if best[0].reading.h * B * T**2 <= MOST_SCORES]
        sizes, refused, part = [*FIRST], "", ""
        for (B, T), training in [*product(FIRST, modes[1:]), *product(small, modes)]:
            x = shipped.draw(B, T, self.d_model, seed=B + T)
            try:
                y = subject(x, training)
            except ValueError as error:
                refused = refused or f"For B = {B} and T = {T} {raised(error)}"
                continue
            if not (still := [c for c in best if c.digits(x, y, training) >= subject.same]):
                part = f"for B = {B} and T = {T} in {'training' if training else 'evaluation'}"
                break
            best, sizes = still, [*sizes, (B, T)]
        part = part or self._other_ways(best[0], modes[-1])
        below, enough = math.inf, COARSE if subject.coarse else SAME
        for size in LARGER[: 5 if subject.coarse else 10] if not part else ():
            large = [(size * x, subject(size * x, t), t) for x in self.inputs for t in modes]
            still = [c for c in best if min(c.digits(*run) for run in large) >= enough]
            if not still:
                below = float(size**2)
                break
            best = still
        batches, lengths = zip(*sizes, strict=True)
        also = " and in training" * (True in modes)
        precisions = str(subject.dtype).removeprefix("torch.") + subject.also
        tried = [
            f"Tried: {min(batches)} to {max(batches)} sequences of {min(lengths)} to {max(lengths)}"
            f" tokens, in evaluation{also}, in {precisions}, self-attention only."
        ]
        if not also:
            tried.append("Not tried: training, where two runs of the same input differ.")
        tried += [*filter(None, [refused]), *subject.notes]
        return self._in_words(best, agreed, below, part, tried)

    def _other_ways(self, c: Candidate, mode: bool) -> str:
        """In which of these it does not agree: gradients, float32, parameters that are not read."""
        subject, x, y = self.subject, self.inputs[0], None
        if c.bug.kind != "mask convention":
            with suppress(Exception):  # a class need not give any
                y = gradient(lambda x: subject.run(x, mode), x)
                subject.also += " with gradients"
        if y is not None and digits(gradient(lambda x: c.output(x, mode), x), y) < COARSE:
            return "for gradients: something is detached"
        if (y := subject.in_float32(x)) is not None and c.digits(x, y, False) < COARSE:
            return "in float32"
        further = {n: p for n, p in subject.module.named_parameters() if n not in self.own}
        layers_of.draw(further, self.d_model, seed=1)
        with suppress(ValueError):
            if not further or c.digits(x, subject(x), False) >= subject.same:
                return ""
        return f"once {', '.join(further)} are not what they are at the start"

    def _in_words(
        self, best: list[Candidate], agreed: int, below: float, part: str, tried: list[str]
    ) -> Comparison:
        first, *others = best  # what is right comes first
        name, notes = first.name, [f"Not tried: {'padding' if first.causal else 'masks'}."]
        if self.masked and not first.causal and first.bug.kind != "batch axis":
            name = NO_EFFECT if name == "right" else f"{name}, {NO_EFFECT}"
            notes = ["`call` gives a mask, but tokens see later ones as they do without it."]
        reading = first.reading
        if reading.h != self.h:
            if self.sure:
                part = part or f"for h = {self.h}: it agrees with h = {reading.h}"
            notes.append(f"h = {reading.h}, which was found by trying.")
        if reading.unusual:
            notes.append(f"Its {reading.unusual}.".replace("Its rows", "Rows"))
        if reading.roles != self.ways[0]:
            notes.append(f"Read: {_listed(reading.roles)}.")
        untried = ["mask repeated" if first.causal else "mask"]
        if below < math.inf:
            notes.append(f"It gives something else where scores reach about {below:,.0f}.")
            untried.append("mask filled")
        alike = {c.name for c in others if c.reading.unusual == reading.unusual
                 and not c.bug.kind.startswith((*untried,))} - {first.name}  # fmt: skip
        if first.bug.kind == "scale":
            alike.add("any scale of the same value")
        if alike:
            several = ", ".join(sorted(alike))
            notes.append(f"At this size {several} would give the same: try another n_heads.")
        if part:
            what = "It is right" if name == "right" else f"It gives what {name} gives"
            notes.insert(0, f"{what}, but not {part}.")
        if part or below < 100:
            name = "partly"
        return Comparison(name, agreed, first.causal, below, (*notes, *tried))


def _listed(roles: Roles) -> str:
    return ", ".join(f"{role} from {' and '.join(names)}" for role, names in roles.items())


def _pairs(bugs: list[Bug]) -> Iterator[Bug]:
    """Two mistakes in one class, where both have room."""
    done: set[frozenset[str]] = set()
    for one, two in permutations(bugs, 2):  # one may make room for the other
        if one.kind != two.kind and (pair := frozenset((one.name, two.name))) not in done:
            both = Bug(f"{one.name}, {two.name}", f"{one.kind}, {two.kind}", "", (), "", False,
                       [*one.changes, *two.changes])  # fmt: skip
            with suppress(ValueError):
                both.build  # noqa: B018
                done.add(pair)
                yield both


def _behaviour(subject: Subject, x: Tensor, sees: bool) -> Iterator[str]:
    """What comes of changing one thing at a time."""
    y, other = subject(x), x.clone()
    other[1:] += 1
    order = [1, 0, *range(2, x.shape[1])]
    if not y.any():
        yield "All outputs are zeros."
    if not y.isfinite().all():
        yield "Outputs are NaN or infinite. Is a row blocked entirely, or does True mean keep?"
        return
    yield f"Tokens {'see' if sees else 'do not see'} later ones."
    mixes = not torch.allclose(subject(other)[0], y[0])
    yield f"Sequences {'see' if mixes else 'do not see'} each other."
    moves = not torch.allclose(subject(x[:, order])[:, 2:], y[:, 2:])
    knows = "changes what later ones get: positions, perhaps, or a window"
    yield f"Exchanging the first two tokens {knows if moves else 'changes nothing for later ones'}."
