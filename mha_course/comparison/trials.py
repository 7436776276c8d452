"""One table of trials, of everything but masks: each runs, and says where a class differs."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from mha_course.collection import shipped
from mha_course.comparison import layers as layers_of
from mha_course.comparison.classes import Candidate, Run
from mha_course.comparison.drops import Drops, in_words
from mha_course.comparison.findings import sizes_in_words
from mha_course.comparison.masks import FEW
from mha_course.comparison.subject import COARSE, Subject, digits, raised

SIZES = {  # sequences → tokens
    1: "1 2 3 5 8 9 10 16 17 24 31 32 33 50 64 65 100 127 128 129 197 256 257 512 513 1025",
    2: "1 2 3 5 8 10 17 64 129 512",
    3: "1 2 3 5 8 32",
    4: "1 2 3 5 8 16 128",
    5: "1 2 3 5 8 33",
    6: "1 2 3 5 8 10 17 65",
    8: "8",
    16: "3",
}
MOST_SCORES = 2**23
LONG = 128  # longer ones are tried in evaluation only, but for one
LARGER = [2**i for i in range(1, 11)]  # times x; scores grow with the square
FINER = 4  # times the step between two of them is halved
DIGITS_BETTER = 3  # by so many digits one candidate beats another
FLOAT32 = (3 * FEW, 30_000)  # scores: exp ends at 88, and a fill may be -1e4


@dataclass
class Trials:
    """A module, and the candidates that give what it gives."""

    subject: Subject
    best: list[Candidate]
    runs: list[Run]
    own: Mapping[str, Tensor]  # parameters that the candidates read
    modes: tuple[bool, ...] = (False, True)
    below: float = math.inf
    dropped: str = ""  # a published mistake of dropout
    tried: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Runs the table up to the first that differs; gives where, or ""."""
        exact = [min(c.digits(*run) for run in self.runs) for c in self.best]
        self.best = [
            c for c, n in zip(self.best, exact, strict=True) if n > max(exact) - DIGITS_BETTER
        ]
        where = ""
        for what, trial in TABLE.items():
            if where:
                self.untried.append(what)
                continue
            told = len(self.tried)
            try:
                where = trial(self)
                self.tried += [what] * (len(self.tried) == told)  # if it said no more
            except ValueError as error:
                self.untried.append(f"{what} ({raised(error)})")
        return where

    @property
    def c(self) -> Candidate:
        return self.best[0]

    @property
    def x(self) -> Tensor:
        return self.runs[0][0]

    def again(self) -> str:
        if any(self.c.agree(self.subject(x), y) < self.subject.same for x, y in self.runs):
            return "when it is called again: something is kept"
        return ""

    def in_place(self) -> str:
        return "for x afterwards: it is changed in place" * self.subject.changes_input

    def training(self) -> str:
        """Dropout, and in which modes all else is tried."""
        h, d_model = self.c.reading.h, self.x.shape[2]
        n = next(n for n in (6, 7, 9, 10, 11) if n not in (h, d_model // h, d_model))
        x, subject = shipped.draw(2, n, d_model, seed=n), self.subject
        self.modes = (False,)
        (y, drops), (again, _) = subject.draws(x), subject.draws(x)
        if torch.allclose(y, again, equal_nan=True):
            said, wrong = in_words(drops.seen, 2 * h * n**2)
            if wrong and torch.equal(y, subject.draws(x, but="scores")[0]):
                wrong = wrong * (wrong not in shipped.bugs())  # it is thrown away
            self.modes = (False, True)
            subject.notes += [said] * bool(said)
            self.dropped = wrong * (wrong in shipped.bugs())
            return wrong * (not self.dropped)
        some, all_ = (subject.draws(x, drawn)[0] for drawn in (0.0, 1 - 1e-7))
        own, bias = self.c.output(x), self.c.reading.rows["o"][:, -1]
        for kept, none in ((some, all_), (all_, some)):
            times = ((kept - bias).norm() / (own - bias).norm()).item()
            scaled = digits(bias + times * (own - bias), kept) >= COARSE and times > 1 - 1e-6
            if scaled and digits(bias.expand_as(none), none) >= COARSE:
                share = f"{1 - 1 / times:.2g}"
                subject.notes.append(f"In training it drops {share} of the weights, by itself.")
                return ""
        return "in training: two runs differ by more than dropout on the weights"

    def sizes(self) -> str:
        subject, h, d_model = self.subject, self.c.reading.h, self.x.shape[2]
        each = [(B, int(T)) for B, Ts in SIZES.items() for T in Ts.split()]
        most = MOST_SCORES // h if not self.c.names else LONG**2 // 8  # a mistake shows early
        few = dict.fromkeys(
            size for size in (*each, (2, h), (h, 4)) if size[0] * size[1] ** 2 <= most
        )
        ran, part = {tuple(x.shape[:2]) for x, _ in self.runs}, ""
        for (B, T), mode in product(few, self.modes):
            if mode and T > LONG and B * T != 512:
                continue
            x, best = shipped.draw(B, T, d_model, seed=B + T), self.best[: 1 if T > LONG else None]
            try:
                y = subject(x, mode)
            except ValueError as error:
                refused = f"For some sizes, such as B = {B} and T = {T}, {raised(error)}"
                subject.notes += [refused] * ("For some sizes" not in str(subject.notes))
                continue
            left = [c for c in best if c.digits(x, y) >= subject.same]
            if not left:
                part = f"for B = {B} and T = {T} in {_mode(mode)}"
                break
            self.best = left if len(left) < len(best) else self.best
            ran.add((B, T))
        also = f" and in training (more than {LONG} tokens mostly in evaluation)"
        modes = "in evaluation" + also * (True in self.modes)
        self.tried.append(f"sequences × tokens {sizes_in_words(ran)}, {modes}")
        return part

    def zeros(self) -> str:
        odd = self.x.clone()
        odd[:, 1] = 0.0
        return "where a token is all zeros" * self._differs(odd)

    def alike(self) -> str:
        odd = self.x[:, :1].expand_as(self.x).contiguous()
        return "where all tokens are alike" * self._differs(odd)

    def strides(self) -> str:
        x = self.x
        apart = torch.stack((x, x), dim=-1)[..., 0]
        for odd in (x.transpose(0, 1).contiguous().transpose(0, 1), apart, x[:1].expand(2, -1, -1)):
            if self.c.digits(odd, self.subject.run(odd, False)) < self.subject.same:
                return f"for x of strides {odd.stride()}"
        return ""

    def gradients(self) -> str:
        if self.c.bug.kind == "mask convention":
            return ""
        return next(filter(None, map(self._gradients, self.modes)), "")

    def _gradients(self, mode: bool) -> str:
        c, subject, x = self.c, self.subject, self.x.clone()
        used = [n for names in c.reading.roles.values() for n in names]
        weights = {
            n: p
            for n, p in layers_of.matrices_of(subject.module).items()
            if n in used and p.requires_grad
        }
        try:
            with torch.enable_grad(), Drops(x.shape[1]):
                out = subject.run(x.requires_grad_(), mode)
                own, *gradients = torch.autograd.grad(
                    _weighted(out), (x, *weights.values()), allow_unused=True
                )
        except (ValueError, RuntimeError) as error:
            why = raised(error) if isinstance(error, ValueError) else str(error).splitlines()[0]
            return f"where gradients are asked for in {_mode(mode)}: {why[:120]}"
        if c.digits(self.x, out.detach()) < subject.same:
            return f"in {_mode(mode)}, where gradients are asked for"
        if own is None or digits(gradient(c.output, self.x), own) < COARSE:
            return "for gradients: something is detached"
        none = [n for n, g in zip(weights, gradients, strict=True) if g is None]
        unused = bool(none) and not c.names  # a mistake may leave a layer out
        return f"for gradients: none reach {', '.join(none)}" * unused

    def float32(self) -> str:
        y, halves = self.subject.in_float32(self.x)
        if self.c.digits(self.x, y) >= COARSE:
            return ""
        why = f": it computes in {' and '.join(halves)} inside, as under autocast" * bool(halves)
        return f"in float32{why}"

    def opened(self) -> str:
        """What other parameters do once trained; what frozen ones would do is only told."""
        subject = self.subject
        others = {n: p for n, p in subject.module.named_parameters() if n not in self.own}
        trained = {n: p for n, p in others.items() if p.requires_grad}
        still = dict(subject.module.named_buffers()) | {
            n: p for n, p in others.items() if not p.requires_grad
        }
        neutral = {
            n: t
            for n, t in still.items()
            if t.is_floating_point() and t.numel() and ((t == 0).all() or (t == 1).all())
        }

        def differs(tensors: Mapping[str, Tensor]) -> bool:
            with subject.restored(), suppress(ValueError):
                layers_of.draw(tensors, self.x.shape[2], seed=1)
                return self._differs(self.x)
            return False

        if neutral and differs(neutral):
            subject.notes.append(
                f"With other numbers in {', '.join(neutral)} (not trained) it gives something else."
            )
        if trained and differs(trained):
            return f"with other values of {', '.join(trained)}, which training may change"
        return ""

    def large(self) -> str:
        """Larger scores: who is left, and from where on nobody is."""
        subject, up_to = self.subject, 0.0

        def left(size: float) -> list[Candidate]:
            runs = [(size * x, subject(size * x, t)) for x, _ in self.runs for t in self.modes]
            return [c for c in self.best if min(c.digits(*run) for run in runs) >= subject.enough]

        def score(size: float) -> float:
            return max(self.c.largest_score(size * x) for x, _ in self.runs)

        for size in LARGER[: 5 if subject.coarse else 10]:
            if not (still := left(size)):
                low, high = size / 2, float(size)
                for _ in range(FINER):
                    middle = (low * high) ** 0.5
                    low, high = (middle, high) if left(middle) else (low, middle)
                self.below, up_to = score(high), score(low)
                break
            self.best, up_to = still, score(size)
        self.tried.append(f"scores up to {up_to:,.0f}")
        return ""

    def large_in_float32(self) -> str:
        """Whether exp overflows, or a fill is too high in float32 alone."""
        subject, c, up_to = self.subject, self.c, 0.0
        for n, reached in enumerate(FLOAT32):
            x = self.x * (reached / c.largest_score(self.x)) ** 0.5
            if subject.coarse or reached > self.below:
                break
            y, _ = subject.in_float32(x)
            if c.digits(x, y) < COARSE - 1 - n:  # the larger, the coarser
                if n:
                    subject.notes.append(
                        f"In float32 it gives something else where scores reach {reached:,}."
                    )
                    break
                return f"in float32 where scores reach {reached:,}"
            up_to = reached
        self.tried += [f"scores up to {up_to:,} in float32"] * bool(up_to)
        return ""

    def _differs(self, odd: Tensor) -> bool:
        return self.c.digits(odd, self.subject(odd)) < self.subject.same


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Of the sum of all outputs, each times its token's place from 1."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        return torch.autograd.grad(_weighted(run(x)), x)[0]


def _weighted(y: Tensor) -> Tensor:
    return (y * torch.arange(1.0, y.shape[1] + 1)[:, None]).sum()


TABLE: dict[str, Callable[[Trials], str]] = {  # in this order; what is tried → the trial
    "two calls in a row": Trials.again,
    "whether x is changed": Trials.in_place,
    "dropout in training": Trials.training,
    "other sizes": Trials.sizes,
    "a token of zeros": Trials.zeros,
    "equal tokens": Trials.alike,
    "inputs that are not contiguous": Trials.strides,
    "gradients": Trials.gradients,
    "float32": Trials.float32,
    "other values of its other parameters": Trials.opened,
    "large scores": Trials.large,
    "large scores in float32": Trials.large_in_float32,
}
