"""Is a class right? Any attention module beside one that is, and beside the published mistakes.

Only outputs are read. The layers of a copy get new random weights. A right class gets the same,
and so does that class with each published mistake: whichever gives the same numbers is the verdict.
"""

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import permutations, product
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug
from mha_course.comparison import layers as layers_of
from mha_course.comparison.answer import KEYS, Comparison, sizes_in_words
from mha_course.comparison.drops import Drops, in_words
from mha_course.comparison.layers import Reading, Roles
from mha_course.comparison.mask_trials import FEW, Masks, Taken
from mha_course.comparison.subject import COARSE, SAME, Subject, raised
from mha_lesson.refusals import describe, require_positive_int

FIRST = ((3, 7), (2, 5))  # B and T of what every candidate is tried on
LENGTHS = (1, 2, 3, 5, 8, 9, 10, 16, 17, 24, 31, 32, 33, 64, 65, 127, 128, 129, 256, 257, 512, 513)
SEVERAL = (*((B, T) for B in (2, 3, 4, 5, 6) for T in (1, 2, 3, 5, 8)), (8, 8), (2, 10), (6, 10),
           (4, 16), (16, 3), (2, 17), (6, 17), (3, 32), (5, 33), (2, 64), (6, 65), (4, 128),
           (2, 129), (2, 512))  # fmt: skip
MOST_SCORES = 2**22
LONG = 128  # longer ones are tried in evaluation only, but for one
LARGER = [2**i for i in range(1, 11)]  # times x; scores grow with the square
FINER = 4  # times the step between two of them is halved
DIGITS_BETTER = 3  # by so many digits one candidate beats another
RIGHT = Bug("right", "", "", (), "", True, ())
NO_EFFECT = "mask_dropped"  # seen from the mask that `call` gives
CLAIMS = ("causal", "autoregressive", "mask_future", "masked")  # attributes, if True
USUAL = r"|`\w+` is read as \(h, \d, d_k\) of (q, k, v|k, v|q, k)"  # what a usual reading notes


Run = tuple[Tensor, Tensor]  # an input, and the module's output


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

    def output(self, x: Tensor, blocked: Tensor | None = None) -> Tensor:
        """Its output; `blocked` beside what it blocks by itself."""
        module = copy.copy(_without_weights(x.shape[2], self.reading.h))
        module.__class__ = self.bug.build  # no mistake changes how the layers are made
        for letter, rows in self.reading.rows.items():
            own = getattr(module, f"w_{letter}")._parameters
            own["weight"], own["bias"] = rows[:, :-1], rows[:, -1]
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            blocked = later if blocked is None else later | blocked
        return module(x, blocked)

    def digits(self, x: Tensor, y: Tensor) -> int:
        """To how many digits, of y's largest number, it gives y."""
        return self.agree(self.output(x), y)

    def agree(self, own: Tensor, y: Tensor) -> int:
        if self.causal and self.bug.kind == "mask convention":  # the last sees nothing: any fill
            own, y = own[:, :-1], y[:, :-1]
        return digits(own, y)

    def largest_score(self, x: Tensor) -> float:
        q, k = (x @ self.reading.rows[letter][:, :-1].T + self.reading.rows[letter][:, -1]
                for letter in "qk")  # fmt: skip
        q, k = (part.unflatten(-1, (self.reading.h, -1)).transpose(1, 2) for part in (q, k))
        return ((q @ k.mT).abs().max() / q.shape[-1] ** 0.5).item()


@lru_cache
def _without_weights(d_model: int, h: int) -> nn.Module:
    """To make layers takes longer than to run them."""
    with torch.device("meta"):
        return shipped.right()(d_model, h).eval()


def gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Of the sum of all outputs, each times its token's place from 1."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        return torch.autograd.grad(_weighted(run(x)), x)[0]


def _weighted(y: Tensor) -> Tensor:
    return (y * torch.arange(1.0, y.shape[1] + 1)[:, None]).sum()


def digits(own: Tensor, y: Tensor) -> int:
    far = ((own - y).abs().max() / y.abs().max()).item() if y.numel() else 0.0
    return int(-math.log10(max(far, 1e-16))) if math.isfinite(far) else 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """For small tensors more of them only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
@torch.random.fork_rng(devices=[])
@torch.no_grad()
def compare(
    module: nn.Module,
    call: Callable[[nn.Module, Tensor], Any] | None = None,
    *,
    causal: bool | None = None,
    true_means: Literal["blocked", "keep"] | None = None,
    n_heads: int | None = None,
    layers: Mapping[str, str | Sequence[str]] | None = None,
) -> Comparison:
    """Says whether a module's self-attention is right, or which published mistake it makes.

    In a test suite: `assert compare(MyAttention(64, 4), causal=False).found == "right"`.

    Args:
        module: any attention with W^Q, W^K, W^V (or several of them in one) and W^O,
            h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. It may give a causal mask, turn axes, and take away positions,
            a norm or a residual path. Masks that the method which it calls takes, or gets from it,
            are tried in other forms, too. What raises an error at some size is said and left out.
        causal: whether the module, called like this, must be causal; the answer says what it is
            if None.
        true_means: what True means in its masks of bools; the answer says it if None.
        n_heads: h; read from the module's attributes, or tried, if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv" (or "w_q" and "w_kv"), and "w_o" → the name of the
            layer or parameter in `module`, or the names of one for each head; guessed from names
            and shapes, and tried in other orders, if None.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, on the CPU in float64 and
        float32, with weights of ordinary size, in evaluation and in training, where its dropout is
        noted and drops nothing. Frozen parameters and buffers keep their values. The answer lists
        what was tried, with this `call` alone.

    Raises:
        TypeError, ValueError: heads or layers are not found or fit no multi-head attention, or the
            call fails; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        called = f" that is made, {module.__name__}(…)" if isinstance(module, type) else ""
        raise TypeError(f"module must be an nn.Module{called}; got {describe(module)}.")
    if causal not in (None, True, False):
        raise TypeError(f"causal must be True, False or None; got {describe(causal)}.")
    if true_means not in (None, "blocked", "keep"):
        raise ValueError(f'true_means must be "blocked" or "keep"; got {true_means!r}.')
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
    return _Trial(subject, ways, d_model, h, sure, causal, true_means).result()


class _Trial:
    """One module, and whatever could give its outputs."""

    def __init__(
        self,
        subject: Subject,
        ways: list[Roles],
        d_model: int,
        h: int | None,
        sure: bool,
        causal: bool | None,
        true_means: str | None,
    ) -> None:
        self.demanded, self.true_means = causal, true_means
        self.modes: tuple[bool, ...] = (False, True)
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
        self.slots = subject.slots(x)
        self.masked = subject.masked(x, self.slots)
        runs = [(x, subject(x)) for x in self.inputs]
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
        singles = [b for b in shipped.bugs().values() if b.base == "Attention"]
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
        modes, of_training, part = self._training(best[0])
        self.modes, self.dropped = modes, part * (part in shipped.bugs())
        part = part * (not self.dropped)
        sizes, refused = [tuple(x.shape[:2]) for x in self.inputs], ""
        for B, T in [] if part else self._sizes(best[0]):
            x = shipped.draw(B, T, self.d_model, seed=B + T)
            owns = [c.output(x) for c in best]
            for training in modes[: 1 if T > LONG and B * T != 512 else 2]:
                try:
                    y = subject(x, training)
                except ValueError as error:
                    refused = refused or f"For B = {B} and T = {T} {raised(error)}"
                    break
                alive = [c.agree(own, y) >= subject.same for c, own in zip(best, owns, strict=True)]
                if not any(alive):
                    mode = "training" if training else "evaluation"
                    part = f"for B = {B} and T = {T} in {mode}"
                    break
                best = [c for c, lives in zip(best, alive, strict=True) if lives]
                owns = [own for own, lives in zip(owns, alive, strict=True) if lives]
            else:
                sizes.append((B, T))
            if part:
                break
        part = part or self._other_ways(best[0], runs)
        below, up_to = math.inf, 0.0
        if not part:
            best, below, up_to = self._large(best, modes)
            part = self._overflows(best[0], below)
        precisions = str(subject.dtype).removeprefix("torch.") + subject.also
        also = " and in training" * (True in modes)
        tried = [
            f"Tried, sequences × tokens: {sizes_in_words(sizes)}; in evaluation{also} (more than "
            f"{LONG} tokens mostly in evaluation), in {precisions}, scores up to {up_to:,.0f}, "
            "inputs that are not contiguous, a token of zeros, equal tokens, two calls in a row. "
            "What was not tried may differ: another h or d_model, other lengths, other numbers, "
            "half precision, another device, keys of another sequence, a cache."
        ]
        tried += [*filter(None, [of_training, refused]), *subject.notes]
        return self._in_words(best, agreed, below, part, tried)

    def _sizes(self, c: Candidate) -> list[tuple[int, int]]:
        h = c.reading.h
        sizes = [*((1, T) for T in LENGTHS), *SEVERAL, (2, h), (h, 4)]
        if c.name != "right":
            sizes = [(B, T) for B, T in sizes if B * T <= LONG // 2]
        return [(B, T) for B, T in dict.fromkeys(sizes) if h * B * T**2 <= MOST_SCORES]

    def _training(self, c: Candidate) -> tuple[tuple[bool, ...], str, str]:
        """The modes to try, what is told of training, and in what it is wrong."""
        h = c.reading.h
        n = next(n for n in (6, 7, 9, 10, 11) if n not in (h, self.d_model // h, self.d_model))
        x = shipped.draw(2, n, self.d_model, seed=n)
        try:
            (y, drops), (again, _) = self.subject.draws(x), self.subject.draws(x)
            if torch.allclose(y, again, equal_nan=True):
                of_training, wrong = in_words(drops.seen, 2 * h * n**2)
                if wrong and torch.equal(y, self.subject.draws(x, but="scores")[0]):
                    wrong = wrong * (wrong not in shipped.bugs())  # it is thrown away
                return (False, True), of_training, wrong
            some, all_ = (self.subject.draws(x, drawn)[0] for drawn in (0.0, 1 - 1e-7))
        except ValueError as error:
            return (False,), f"Not tried: training, where {raised(error)}", ""
        own, bias = c.output(x), c.reading.rows["o"][:, -1]
        for kept, none in ((some, all_), (all_, some)):
            times = ((kept - bias).norm() / (own - bias).norm()).item()
            scaled = digits(bias + times * (own - bias), kept) >= COARSE and times > 1 - 1e-6
            if scaled and digits(bias.expand_as(none), none) >= COARSE:
                of_training = f"In training it drops {1 - 1 / times:.2g} of the weights, by itself."
                return (False,), of_training, ""
        return (False,), "", "in training: two runs differ by more than dropout on the weights"

    def _large(
        self, best: list[Candidate], modes: Sequence[bool]
    ) -> tuple[list[Candidate], float, float]:
        """Who is left with larger scores, from which on nobody is, and how far it went."""
        subject, enough, up_to = self.subject, COARSE if self.subject.coarse else SAME, 0.0

        def left(size: float) -> list[Candidate]:
            runs = [(size * x, subject(size * x, t)) for x in self.inputs for t in modes]
            return [c for c in best if min(c.digits(*run) for run in runs) >= enough]

        def score(size: float) -> float:
            return max(best[0].largest_score(size * x) for x in self.inputs)

        for size in LARGER[: 5 if subject.coarse else 10]:
            if not (still := left(size)):
                low, high = size / 2, float(size)
                for _ in range(FINER):
                    middle = (low * high) ** 0.5
                    low, high = (middle, high) if left(middle) else (low, middle)
                return best, score(high), score(low)
            best, up_to = still, score(size)
        return best, math.inf, up_to

    def _other_ways(self, c: Candidate, runs: list[Run]) -> str:
        """In which it does not: two calls, strides, gradients, float32, other parameters."""
        subject, x = self.subject, self.inputs[0]
        zero, alike = x.clone(), x[:, :1].expand_as(x).contiguous()
        zero[:, 1] = 0.0
        if any(c.agree(subject(x), y) < subject.same for x, y in runs):
            return "when it is called again: something is kept"
        for odd, what in ((zero, "a token is all zeros"), (alike, "all tokens are alike")):
            if c.digits(odd, subject(odd)) < subject.same:
                return f"where {what}"
        apart = torch.stack((x, x), dim=-1)[..., 0]
        for odd in (x.transpose(0, 1).contiguous().transpose(0, 1), apart, x[:1].expand(2, -1, -1)):
            try:
                if c.digits(odd, subject.run(odd, False)) < subject.same:
                    return f"for x of strides {odd.stride()}"
            except ValueError as error:
                subject.notes.append(f"For x that is not contiguous {raised(error)}")
                break
        if c.bug.kind != "mask convention":
            for mode in self.modes:
                if part := self._gradients(c, mode):
                    return part
        if subject.changes_input:
            return "for x afterwards: it is changed in place"
        if (y := subject.in_float32(x)) is not None and c.digits(x, y) < COARSE:
            return "in float32"
        return self._opened(c)

    def _overflows(self, c: Candidate, below: float) -> str:
        """Whether it does not with scores of hundreds in float32, where exp ends at 88."""
        x = self.inputs[0] * (3 * FEW / c.largest_score(self.inputs[0])) ** 0.5
        score = c.largest_score(x)
        if self.subject.coarse or score > below or (y := self.subject.in_float32(x)) is None:
            return ""
        return f"in float32 where scores reach {score:,.0f}" * (c.digits(x, y) < COARSE - 1)

    def _gradients(self, c: Candidate, mode: bool) -> str:
        subject, x = self.subject, self.inputs[0].clone()
        how = "in training" if mode else "in evaluation"
        used = [n for names in c.reading.roles.values() for n in names]
        weights = {n: p for n, p in layers_of.matrices_of(subject.module).items()
                   if n in used and p.requires_grad}  # fmt: skip
        try:
            with torch.enable_grad(), Drops(x.shape[1]):
                out = subject.run(x.requires_grad_(), mode)
                own, *gradients = torch.autograd.grad(
                    _weighted(out), (x, *weights.values()), allow_unused=True
                )
        except (ValueError, RuntimeError) as error:
            why = raised(error) if isinstance(error, ValueError) else str(error).splitlines()[0]
            return f"where gradients are asked for {how}: {why[:120]}"
        if c.digits(self.inputs[0], out.detach()) < subject.same:
            return f"{how}, where gradients are asked for"
        if " with gradients" not in subject.also:
            subject.also += " with gradients"
        if own is None or digits(gradient(c.output, self.inputs[0]), own) < COARSE:
            return "for gradients: something is detached"
        none = [n for n, g in zip(weights, gradients, strict=True) if g is None]
        unused = bool(none) and c.name == "right"  # a mistake may leave a layer out
        return f"for gradients: none reach {', '.join(none)}" * unused

    def _opened(self, c: Candidate) -> str:
        """What other parameters do once trained; what frozen ones would do is only told."""
        subject, x = self.subject, self.inputs[0]
        others = {n: p for n, p in subject.module.named_parameters() if n not in self.own}
        trained = {n: p for n, p in others.items() if p.requires_grad}
        still = dict(subject.module.named_buffers()) | {
            n: p for n, p in others.items() if not p.requires_grad
        }
        neutral = {n: t for n, t in still.items() if t.is_floating_point() and t.numel()
                   and ((t == 0).all() or (t == 1).all())}  # fmt: skip

        def differs(tensors: Mapping[str, Tensor]) -> bool:
            with subject.restored(), suppress(ValueError):
                layers_of.draw(tensors, self.d_model, seed=1)
                return c.digits(x, subject(x)) < subject.same
            return False

        if neutral and differs(neutral):
            subject.notes.append(
                f"With other numbers in {', '.join(neutral)} (not trained) it gives something else."
            )
        if trained and differs(trained):
            return f"with other values of {', '.join(trained)}, which training may change"
        return ""

    def _masks(self, c: Candidate, below: float) -> list[Taken]:
        """What comes of each mask in the signature, with scores at which the class holds."""

        def own(x: Tensor, blocked: Tensor | None, mistake: str) -> Tensor:
            if mistake == "mean":
                flat = c.reading.rows | {"k": torch.zeros_like(c.reading.rows["k"])}
                reading = c.reading._replace(rows=flat)
                return c._replace(reading=reading, causal=False).output(x, blocked)
            bug = RIGHT if mistake == "right" else shipped.bug(mistake)
            inner = c.causal and not self.masked
            return c._replace(bug=bug, causal=inner).output(x, blocked)

        subject = self.subject
        causal = c.causal and not self.masked
        sizes = self.d_model, c.reading.h
        masks = Masks(subject, own, c.largest_score, below, *sizes, causal, self.modes)
        return [*masks.taken(self.slots)]

    def _not_as_demanded(self, c: Candidate) -> tuple[str, str]:
        """Whether it is causal where it must not be, or the other way round; and a sentence."""
        says = next((f"`{name}`" for part in self.subject.module.modules()
                     for name, value in vars(part).items()
                     if value is True and name in CLAIMS), "")  # fmt: skip
        demanded = self.demanded
        if demanded is None and says and not c.causal:
            demanded = True
        if demanded is None or demanded == c.causal:
            return "", ""
        why = f" Its {says} is True; if that is meant, say causal=False." if says else ""
        if c.causal:
            return "causal", "It is causal: no token sees a later one."
        i, j = self._leak()
        return "not_causal", f"It is not causal: token {i} sees token {j}, counted from 0.{why}"

    def _leak(self) -> tuple[int, int]:
        """A token and a later one that it sees."""
        x = shipped.draw(1, 9, self.d_model, seed=9)
        y = self.subject(x)
        for i, j in ((3, 7), *((i, j) for i, j in product(range(9), repeat=2) if i < j)):
            other = x.clone()
            other[:, j] += 1
            if not torch.allclose(self.subject(other)[:, i], y[:, i]):
                return i, j
        return 0, 1

    def _in_words(
        self, best: list[Candidate], agreed: int, below: float, part: str, tried: list[str]
    ) -> Comparison:
        first, *others = best  # what is right comes first
        name, notes, masks = first.name, list[str](), tuple[str, ...]()
        dropped = self.masked and not first.causal and first.bug.kind != "batch axis"
        if dropped:
            name = NO_EFFECT if name == "right" else f"{name}, {NO_EFFECT}"
            notes = ["`call` gives a mask, but tokens see later ones as they do without it."]
        elif name == "right" and not first.causal and self.subject.fills:
            name = NO_EFFECT
            notes = ["It fills scores by a mask, and tokens see later ones all the same."]
        broken, sentence = self._not_as_demanded(first)
        if broken:
            notes.insert(0, sentence)
            name = broken if name == "right" else name
        if self.dropped:
            name = self.dropped if name == "right" else f"{name}, {self.dropped}"
        if first.name == "right" and not part and name in ("right", "not_causal", "causal"):
            taken = self._masks(first, below)
            masks = tuple(str(t) for t in taken if t.forms)
            notes += [note for t in taken for note in t.notes]
            wrong = [self._mistake_of(t) for t in taken]
            for t, mistake in zip(taken, wrong, strict=True):
                if mistake and not t.notes:
                    notes.append(f"That is {t.slot.said}.")
            if mistakes := ", ".join(dict.fromkeys(filter(None, wrong))):
                name = mistakes if name == "right" else name
        elif not first.causal or self.slots:
            notes.append("Not tried: masks.")
        if self.subject.turns:
            lost = shipped.bug("rotated_by_head").threads[0]
            notes.append(f"It computes sines, but gives tokens no positions: lost, as in {lost}?")
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
        if part or (below < FEW and name == "right"):
            name = "partly"
        return Comparison(name, agreed, first.causal, below, masks, (*notes, *tried))

    def _mistake_of(self, taken: Taken) -> str:
        """What is wrong with a mask, its convention included where one is demanded."""
        meant = {"blocked": "True = blocked", "keep": "True = keep"}.get(self.true_means or "")
        bools = {form.meaning for form in taken.forms} & {"True = blocked", "True = keep"}
        if not taken.found and meant and bools and meant not in bools:
            return "mask_inverted"
        return taken.found


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
