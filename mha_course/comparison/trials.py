"""One table of trials, of everything but masks: each runs, and says where a class differs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import torch
from torch import Tensor

from mha_course.collection import shipped
from mha_course.comparison import layers as layers_of
from mha_course.comparison.classes import RIGHT, UNSEEN, Candidate
from mha_course.comparison.findings import Finding
from mha_course.comparison.subject import COARSE, Subject, Watch, digits, raised

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
LARGER = [2**i for i in range(1, 11)]  # times x; scores grow with its square, to 300,000 at the 8th
FLOAT32 = (3 * FEW, 30_000)  # scores: exp ends at 88, and a fill may be -1e4
MODES = {False: "evaluation", True: "training"}


@dataclass
class Trials:
    """A module, and the candidates that give what it gives."""

    subject: Subject
    best: list[Candidate]
    x: Tensor
    runs: list[tuple[Tensor, Tensor]]  # inputs, x first, and the module's outputs
    own: Mapping[str, Tensor]  # parameters that the candidates read
    modes: tuple[bool, ...] = (False, True)
    below: float = math.inf
    findings: list[Finding] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    ran: str = ""  # what the trial that runs has tried

    def run(self) -> str:
        """Runs the table up to the first that differs; gives where, or ""."""
        exact = [min(c.digits(*run) for run in self.runs) for c in self.best]
        better = max(exact) - 3  # digits by which one candidate beats another
        self.best = [c for c, n in zip(self.best, exact, strict=True) if n > better]
        where = ""
        for what, trial in TABLE.items():
            self.ran = "" if where else what
            try:
                where = where or trial(self)
            except ValueError as error:
                self.ran, what = "", f"{what} ({raised(error)})"
            self.tried += [self.ran] * bool(self.ran)
            self.untried += [what] * (not self.ran)
        return where

    @property
    def c(self) -> Candidate:
        return self.best[0]

    def odd(self, what: str) -> str:
        """Inputs that are odd in one way; they are handed over as they are."""
        each = ((x, self.subject.run(x, False).detach()) for x in ODD[what](self.x))
        return f"for {what}" * any(self.c.digits(*run) < self.subject.same for run in each)

    def training(self) -> str:
        """Dropout, and in which modes all else is tried."""
        h, d_model = self.c.reading.h, self.x.shape[2]
        n = next(n for n in (6, 7, 9, 10, 11) if n not in (h, d_model // h, d_model))
        x, subject = shipped.draw(2, n, d_model, seed=n), self.subject
        self.modes = (False,)
        (y, watch), (again, _) = subject.draws(x), subject.draws(x)
        if torch.allclose(y, again, equal_nan=True):
            self.modes = (False, True)
            each = ", and ".join(watch.drops)
            subject.notes += [f"In training it drops {each}."] * bool(each)
            if "scores" in each and not torch.equal(y, subject.draws(x, but="scores")[0]):
                self.findings.append(Finding("dropout_on_scores"))  # and not thrown away
                return ""
            times = sum(n for what, n in watch.drops.items() if what.endswith("weights"))
            return "in training: dropout falls on the weights twice" * (times > 2 * h * n**2)
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
        lengths = {B: sorted(T for b, T in ran if b == B) for B, _ in sorted(ran)}
        sizes = "; ".join(f"{B} × {str(Ts)[1:-1]}" for B, Ts in lengths.items())
        self.ran = f"sequences × tokens {sizes}, in evaluation{also * (True in self.modes)}"
        return part

    def gradients(self) -> str:
        """Of the input, and whether any reaches every layer."""
        c, subject, x = self.c, self.subject, self.x
        layers, used = layers_of.matrices_of(subject.module), sum(c.reading.roles.values(), ())
        weights = {name: layers[name] for name in used if layers[name].requires_grad}
        self.ran *= c.bug.kind not in UNSEEN
        for mode in self.modes if self.ran else ():
            try:
                with Watch(x.shape[1]):
                    run = partial(subject.run, training=mode)
                    y, own, *gradients = gradient(run, x, *weights.values())
            except (ValueError, RuntimeError) as error:
                return f"where gradients are asked for in {MODES[mode]}: {raised(error)}"
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
        others = {n: t for n, t in self.subject.tensors().items() if n not in self.own}
        trained = {n: t for n, t in others.items() if t.requires_grad}
        rest = {n: t for n, t in others.items() if n not in trained and t.is_floating_point()}
        neutral = {n: t for n, t in rest.items() if t.unique().tolist() in ([0], [1])}
        if self.subject.changes(self.x, neutral):
            told = f"With other numbers in {', '.join(neutral)} (not trained) it differs."
            self.subject.notes.append(told)
        where = f"with other values of {', '.join(trained)}, which training may change"
        return where * self.subject.changes(self.x, trained)

    def large(self) -> str:
        """Larger scores: who is left, and from where on nobody is."""
        subject, up_to = self.subject, 0.0
        enough = COARSE if subject.coarse else subject.same  # inside it may be coarser than outside

        def left(size: float) -> list[Candidate]:
            runs = [(size * x, subject(size * x, t)) for x, _ in self.runs for t in self.modes]
            return [c for c in self.best if min(c.digits(*run) for run in runs) >= enough]

        def score(size: float) -> float:
            return max(self.c.scores(size * x).abs().max().item() for x, _ in self.runs)

        for size in LARGER[: 5 if subject.coarse else 10]:
            if not (still := left(size)):
                low, high = size / 2, float(size)
                for _ in range(4):  # the step is halved
                    middle = (low * high) ** 0.5
                    low, high = (middle, high) if left(middle) else (low, middle)
                self.below, up_to = score(high), score(low)
                break
            self.best, up_to = still, score(size)
        self.ran = f"scores up to {up_to:,.0f}"
        self.leaks(subject)
        return ""

    def large_in_float32(self) -> str:
        """Whether exp overflows, or a fill is too high in float32 alone."""
        reached, up_to, subject = self.c.scores(self.x).abs().max().item(), 0, self.subject
        for digits_less, score in enumerate(FLOAT32, start=1):  # ever coarser
            if subject.coarse or score > self.below:
                break
            x = self.x * (score / reached) ** 0.5
            if self.c.digits(x, subject.in_float32(x)[0]) < COARSE - digits_less:
                if not up_to:
                    return f"in float32 where scores reach {score:,}"
                subject.notes.append(f"In float32 it differs where scores reach {score:,}.")
                break
            up_to = score
        self.ran = f"scores up to {up_to:,} in float32" * bool(up_to)
        self.leaks(lambda x: subject.in_float32(x)[0], " in float32")
        return ""

    def leaks(self, run: Callable[[Tensor], Tensor], where: str = "") -> None:
        """Finds that a causal class lets later tokens in at some score."""
        if not (self.findings or self.subject.coarse) and (score := leak(self.c, run)):
            call = f"x where scores reach {score:,.0f}{where}: token 0 sees token 1"
            self.findings.append(Finding("fill_too_high", call=call))


def leak(c: Candidate, run: Callable[[Tensor], Tensor | None]) -> float:
    """The scores, of a model's size, from which a blocked second token changes the first; or 0."""
    off = 1 if c.bug is RIGHT else len(c.reading.rows["o"]) // c.reading.h  # its scale, at most
    for n in (1, *LARGER[:8]):
        x = n * shipped.draw(64, 2, len(c.reading.rows["o"]), seed=2)
        pair = x, x * torch.tensor([[1.0], [1.01]])
        gap = torch.stack([c.scores(each)[:, :, 0].diff() for each in pair])
        sure = ((gap < 60 / off) | (gap > 900 * off)).all(0).flatten(1).all(1)  # else exp may be 0
        one, two = map(run, pair)
        ran = one is not None and two is not None
        if ran and not torch.allclose(one[sure, 0], two[sure, 0], rtol=1e-3, equal_nan=True):
            return (n > 1) * c.scores(x).abs().max().item()  # at 1 it is no matter of the fill
    return 0.0


def gradient(run: Callable[[Tensor], Tensor], x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """The output, and the gradients of the sum of all outputs, each times its token's place."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = run(x)
        of = (y * torch.arange(1.0, y.shape[1] + 1)[:, None]).sum()
        return y.detach(), *torch.autograd.grad(of, (x, *weights), allow_unused=True)


ODD: dict[str, Callable[[Tensor], list[Tensor]]] = {  # what is tried → such inputs
    "two calls in a row": lambda x: [x],
    "a token of zeros": lambda x: [x.index_fill(1, torch.tensor([1]), 0.0)],
    "equal tokens": lambda x: [x[:, :1].expand_as(x).contiguous()],
    "inputs that are not contiguous": lambda x: [
        x.transpose(0, 1).contiguous().transpose(0, 1),
        torch.stack((x, x), -1)[..., 0],
        x[:1].expand_as(x),
    ],
}
TABLE: dict[str, Callable[[Trials], str]] = {  # in this order; what is tried → the trial
    "whether x is changed": lambda t: "afterwards: x is changed in place" * t.subject.changes_input,
    "dropout in training": Trials.training,
    "other sizes": Trials.sizes,
    **{what: partial(Trials.odd, what=what) for what in ODD},
    "gradients": Trials.gradients,
    "float32": Trials.float32,
    "other values of its other parameters": Trials.opened,
    "large scores": Trials.large,
    "large scores in float32": Trials.large_in_float32,
}
