"""One table of trials, of everything but masks: each runs, and says where a class differs."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import torch
from torch import Tensor

from mha_course.collection import shipped
from mha_course.comparison import layers as layers_of
from mha_course.comparison.classes import UNSEEN, Candidate, Run
from mha_course.comparison.findings import sizes_in_words
from mha_course.comparison.subject import COARSE, Subject, digits, raised
from mha_course.comparison.watch import Watch

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
FEW = 100  # scores below which a trained model's may not stay
MOST_SCORES = 2**23
LONG = 128  # longer ones are tried in evaluation only, but for one
LARGER = [2**i for i in range(1, 11)]  # times x; scores grow with the square
FINER = 4  # times the step between two of them is halved
DIGITS_BETTER = 3  # by so many digits one candidate beats another
FLOAT32 = (3 * FEW, 30_000)  # scores: exp ends at 88, and a fill may be -1e4
MODES = {False: "evaluation", True: "training"}


@dataclass
class Trials:
    """A module, and the candidates that give what it gives."""

    subject: Subject
    best: list[Candidate]
    runs: list[Run]
    own: Mapping[str, Tensor]  # parameters that the candidates read
    modes: tuple[bool, ...] = (False, True)
    below: float = math.inf
    leaks: bool = False  # whether later tokens change earlier ones from that score on
    dropped: str = ""  # a published mistake of dropout
    tried: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Runs the table up to the first that differs; gives where, or ""."""
        exact = [min(c.digits(*run) for run in self.runs) for c in self.best]
        better = max(exact) - DIGITS_BETTER
        self.best = [c for c, n in zip(self.best, exact, strict=True) if n > better]
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

    def odd(self, make: Callable[[Tensor], list[Tensor]], where: str) -> str:
        """Inputs that are odd in one way; they are handed over as they are."""
        for x in make(self.x):
            if self.c.digits(x, self.subject.run(x, False).detach()) < self.subject.same:
                return where.format(x.stride())
        return ""

    def training(self) -> str:
        """Dropout, and in which modes all else is tried."""
        h, d_model = self.c.reading.h, self.x.shape[2]
        n = next(n for n in (6, 7, 9, 10, 11) if n not in (h, d_model // h, d_model))
        x, subject = shipped.draw(2, n, d_model, seed=n), self.subject
        self.modes = (False,)
        (y, watch), (again, _) = subject.draws(x), subject.draws(x)
        if torch.allclose(y, again, equal_nan=True):
            said, wrong = watch.dropped(2 * h * n**2)
            known = wrong in shipped.bugs()
            if known and torch.equal(y, subject.draws(x, but="scores")[0]):
                wrong = ""  # it is thrown away
            self.modes = (False, True)
            subject.notes += [said] * bool(said)
            self.dropped = wrong * known
            return wrong * (not known)
        some, all_ = (subject.draws(x, drawn)[0] for drawn in (0.0, 1 - 1e-7))
        own, bias = self.c.output(x), self.c.reading.rows["o"][:, -1]
        for kept, none in ((some, all_), (all_, some)):
            times = ((kept - bias).norm() / (own - bias).norm()).item()
            scaled = digits(kept, bias + times * (own - bias)) >= COARSE and times > 1 - 1e-6
            if scaled and digits(bias.expand_as(none), none) >= COARSE:
                share = f"{1 - 1 / times:.2g}"
                subject.notes.append(f"In training it drops {share} of the weights, by itself.")
                return ""
        return "in training: two runs differ by more than dropout on the weights"

    def sizes(self) -> str:
        subject, h, d_model = self.subject, self.c.reading.h, self.x.shape[2]
        each = [(B, int(T)) for B, Ts in SIZES.items() for T in Ts.split()]
        most = MOST_SCORES // h if not self.c.names else LONG**2 // 8  # a mistake shows early
        ran, refused, part = {tuple(x.shape[:2]) for x, _ in self.runs}, list[str](), ""
        for (B, T), mode in product(dict.fromkeys((*each, (2, h), (h, 4))), self.modes):
            if most < B * T**2 or (mode and T > LONG and B * T != 512):
                continue
            x, best = shipped.draw(B, T, d_model, seed=B + T), self.best[: 1 if T > LONG else None]
            try:
                y = subject(x, mode)
            except ValueError as error:
                refused.append(f"For some sizes, such as B = {B} and T = {T}, {raised(error)}")
                continue
            left = [c for c in best if c.digits(x, y) >= subject.same]
            if not left:
                part = f"for B = {B} and T = {T} in {MODES[mode]}"
                break
            self.best = left if len(left) < len(best) else self.best
            ran.add((B, T))
        subject.notes += refused[:1]
        also = f" and in training (more than {LONG} tokens mostly in evaluation)"
        modes = "in evaluation" + also * (True in self.modes)
        self.tried.append(f"sequences × tokens {sizes_in_words(ran)}, {modes}")
        return part

    def gradients(self) -> str:
        """Of the input, and whether any reaches every layer."""
        c, subject, x = self.c, self.subject, self.x
        used = [n for names in c.reading.roles.values() for n in names]
        matrices = layers_of.matrices_of(subject.module).items()
        weights = {n: p for n, p in matrices if n in used and p.requires_grad}
        for mode in self.modes if c.bug.kind not in UNSEEN else ():
            try:
                with Watch(x.shape[1]):
                    y, own, *gradients = gradient(
                        lambda x, mode=mode: subject.run(x, mode), x, *weights.values()
                    )
            except (ValueError, RuntimeError) as error:
                why = raised(error) if isinstance(error, ValueError) else str(error).splitlines()[0]
                return f"where gradients are asked for in {MODES[mode]}: {why[:120]}"
            if c.digits(x, y) < subject.same:
                return f"in {MODES[mode]}, where gradients are asked for"
            if own is None or digits(gradient(c.output, x)[1], own) < COARSE:
                return "for gradients: something is detached"
            none = [n for n, g in zip(weights, gradients, strict=True) if g is None]
            if none and not c.names:  # a mistake may leave a layer out
                return f"for gradients: none reach {', '.join(none)}"
        return ""

    def float32(self) -> str:
        y, halves = self.subject.in_float32(self.x)
        why = f": it computes in {' and '.join(halves)} inside, as under autocast" * bool(halves)
        return f"in float32{why}" * (self.c.digits(self.x, y) < COARSE)

    def opened(self) -> str:
        """What other parameters do once trained; what frozen ones would do is only told."""
        subject, params = self.subject, dict(self.subject.module.named_parameters())
        others = {n: t for n, t in subject.tensors().items() if n not in self.own}
        trained = {n: t for n, t in others.items() if n in params and t.requires_grad}
        neutral = {
            n: t
            for n, t in others.items()
            if n not in trained
            and t.is_floating_point()
            and t.numel()
            and ((t == 0).all() or (t == 1).all())
        }

        def differs(tensors: Mapping[str, Tensor]) -> bool:
            with subject.restored(), suppress(ValueError):
                layers_of.draw(tensors, self.x.shape[2], seed=1)
                return self.c.digits(self.x, subject(self.x)) < subject.same
            return False

        if neutral and differs(neutral):
            names = ", ".join(neutral)
            subject.notes.append(f"With other numbers in {names} (not trained) it differs.")
        if trained and differs(trained):
            return f"with other values of {', '.join(trained)}, which training may change"
        return ""

    def large(self) -> str:
        """Larger scores: who is left, and from where on nobody is."""
        subject, up_to = self.subject, 0.0
        enough = COARSE if subject.coarse else subject.same  # inside it may be coarser than outside

        def left(size: float) -> list[Candidate]:
            runs = [(size * x, subject(size * x, t)) for x, _ in self.runs for t in self.modes]
            return [c for c in self.best if min(c.digits(*run) for run in runs) >= enough]

        def score(size: float) -> float:
            return max(self.c.largest_score(size * x) for x, _ in self.runs)

        for size in LARGER[: 5 if subject.coarse else 10]:
            if not (still := left(size)):
                low, high = size / 2, float(size)
                for _ in range(FINER):
                    middle = (low * high) ** 0.5
                    low, high = (middle, high) if left(middle) else (low, middle)
                self.below, up_to = score(high), score(low)
                x = size * self.x
                other = torch.cat((x[:, :-1], -x[:, -1:]), dim=1)
                one, two = (subject(odd)[:, :-1] for odd in (x, other))
                self.leaks = self.c.causal and not torch.allclose(one, two, equal_nan=True)
                break
            self.best, up_to = still, score(size)
        self.tried.append(f"scores up to {up_to:,.0f}")
        return ""

    def large_in_float32(self) -> str:
        """Whether exp overflows, or a fill is too high in float32 alone."""
        reached, up_to = self.c.largest_score(self.x), 0
        for digits_less, score in enumerate(FLOAT32, start=1):  # ever coarser
            if self.subject.coarse or score > self.below:
                break
            x = self.x * (score / reached) ** 0.5
            if self.c.digits(x, self.subject.in_float32(x)[0]) < COARSE - digits_less:
                if not up_to:
                    return f"in float32 where scores reach {score:,}"
                self.subject.notes.append(f"In float32 it differs where scores reach {score:,}.")
                break
            up_to = score
        self.tried += [f"scores up to {up_to:,} in float32"] * bool(up_to)
        return ""


def gradient(run: Callable[[Tensor], Tensor], x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """The output, and the gradients of the sum of all outputs, each times its token's place."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = run(x)
        of = (y * torch.arange(1.0, y.shape[1] + 1)[:, None]).sum()
        return y.detach(), *torch.autograd.grad(of, (x, *weights), allow_unused=True)


ODD = {  # what is tried → such inputs, and where it differs
    "two calls in a row": (lambda x: [x], "when it is called again: something is kept"),
    "a token of zeros": (
        lambda x: [x.index_fill(1, torch.tensor([1]), 0.0)],
        "where a token is all zeros",
    ),
    "equal tokens": (
        lambda x: [x[:, :1].expand_as(x).contiguous()],
        "where all tokens are alike",
    ),
    "inputs that are not contiguous": (
        lambda x: [
            x.transpose(0, 1).contiguous().transpose(0, 1),
            torch.stack((x, x), -1)[..., 0],
            x[:1].expand_as(x),
        ],
        "for x of strides {}",
    ),
}
TABLE: dict[str, Callable[[Trials], str]] = {  # in this order; what is tried → the trial
    "whether x is changed": lambda trials: (
        "for x afterwards: it is changed in place" * trials.subject.changes_input
    ),
    "dropout in training": Trials.training,
    "other sizes": Trials.sizes,
    **{what: partial(Trials.odd, make=make, where=where) for what, (make, where) in ODD.items()},
    "gradients": Trials.gradients,
    "float32": Trials.float32,
    "other values of its other parameters": Trials.opened,
    "large scores": Trials.large,
    "large scores in float32": Trials.large_in_float32,
}
