"""Is a class right? Any attention module beside one that is, and beside the published mistakes.

Only outputs are read. The layers of a copy get new random weights. A right class gets the same,
and so does that class with each published mistake (`classes`): whichever gives the same numbers is
tried further (`trials`, `masks`), and what was found (`findings`) is judged here.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.comparison import layers as layers_of
from mha_course.comparison.classes import RIGHT, Candidate, fitting
from mha_course.comparison.findings import WORDS, Comparison, Finding
from mha_course.comparison.handed import Slot
from mha_course.comparison.layers import Roles
from mha_course.comparison.masks import BOOLS, SMALLEST, Masks, Taken
from mha_course.comparison.subject import Subject
from mha_course.comparison.trials import FEW, Trials
from mha_lesson.refusals import describe, require_positive_int

FIRST = ((3, 7), (2, 5))  # B and T of what every candidate is tried on
CLAIMS = ("causal", "autoregressive", "mask_future", "masked")  # attributes, if True
NO_MASKS = ("mask", "batch", "heads", "split", "merge")  # kinds beside which masks tell nothing
OPEN = (  # what may block nothing; lengths
    torch.zeros_like,
    torch.ones_like,
    lambda given: torch.full_like(given, given.max()),
    lambda given: torch.full_like(given, given.max() + 1),
)


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
    ignore: Collection[str] = (),
) -> Comparison:
    """Says whether a module's self-attention is right, or which published mistake it makes.

    In a test suite: `assert compare(MyAttention(64, 4), causal=False).found == "right"`.

    Args:
        module: any attention with W^Q, W^K, W^V (or several of them in one) and W^O,
            h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. It may give masks, turn axes, and take away positions, a norm
            or a residual path. Masks that the method which it calls takes, or gets from it, are
            tried in other forms, too. What raises an error at some size is said and left out.
        causal: whether the module, called like this, must be causal, with other masks beside, too;
            the answer says what it is if None.
        true_means: what True means in its masks of bools; the answer says it if None.
        n_heads: h; read from the module's attributes, or tried, if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv" (or "w_q" and "w_kv"), and "w_o" → the name of the
            layer or parameter in `module`, or the names of one for each head; guessed from names
            and shapes, and tried in other orders, if None.
        ignore: names of findings that are meant, such as "mask_along_queries", and of parameters
            that are left alone.

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
    if isinstance(ignore, str) or not all(isinstance(name, str) for name in ignore):
        raise TypeError(f"ignore must be a list of names; got {describe(ignore)}.")
    if n_heads is not None:
        require_positive_int("n_heads", n_heads)
    decision = _Decision(Subject(module, call), causal, true_means, {*ignore})
    decision.read(layers, n_heads)
    return decision.made()


class _Decision:
    """Of one module."""

    def __init__(
        self, subject: Subject, causal: bool | None, true_means: str | None, ignore: set[str]
    ) -> None:
        self.subject, self.true_means, self.ignore = subject, true_means, ignore
        parts = [vars(part) for part in subject.module.modules()]
        says = [name for part in parts for name in CLAIMS if part.get(name) is True]
        self.claim = f" Its `{says[0]}` is True." if says and causal is None else ""
        self.demanded = True if self.claim else causal
        self.findings, self.notes, self.sees = list[Finding](), list[str](), False

    def read(self, layers: Mapping[str, str | Sequence[str]] | None, n_heads: int | None) -> None:
        """Finds the layers, d_model and h, and runs it once with new weights."""
        subject, errors = self.subject, list[ValueError]()
        matrices = layers_of.matrices_of(subject.module)
        self.ways = [] if layers is None else [layers_of.chosen(matrices, layers)]
        read = [matrices[n] for names in self.ways[:1] for some in names.values() for n in some]
        for self.d_model in layers_of.widths_of(read or matrices.values()) or [0]:
            try:
                live = subject.live(matrices, self.d_model)
                if layers is None:
                    self.ways = layers_of.options(matrices, live, self.d_model)
                self.own = layers_of.parameters_of(subject.module, self.ways)
                layers_of.draw(self.own, self.d_model)
                self.inputs = [self._drawn(*size, seed=i) for i, size in enumerate(FIRST)]
                subject.start(self.inputs[0])
                break
            except ValueError as error:
                errors.append(error)
        else:
            raise errors[0]
        unused = ", ".join(name for name in matrices if name not in live)
        self.notes += [f"Made, and without effect: {unused}."] * bool(unused)
        if n_heads and self.d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model = {self.d_model}; got {n_heads}.")
        h, sure = (n_heads, True) if n_heads else layers_of.heads_of(subject.module, self.ways[0])
        divisors = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
        self.h = h if h in divisors else None
        self.sure = sure and self.h is not None
        self.heads = sorted(divisors, key=lambda n: n != h)

    def _drawn(self, B: int, T: int, seed: int | None = None) -> Tensor:
        return shipped.draw(B, T, self.d_model, seed=B + T if seed is None else seed)

    def made(self) -> Comparison:
        """What it is, and why."""
        subject, x, meant = self.subject, self.inputs[0], f"True = {self.true_means}"
        slots = [s for s in subject.slots(x) if s.name not in self.ignore]
        if (how := subject.repeats(x)) is not None:
            return Comparison("drawn", seen=(how,))
        if not (best := self._fitting(slots)):
            return Comparison(seen=(*subject.notes, *self._unknown()))
        if subject.opened:
            given = " and ".join(slot.said for slot in subject.opened)
            self.notes.append(f"Other masks stand where `call` gives {given}.")
        trials = Trials(subject, best, [(x, subject(x)) for x in self.inputs], self.own)
        part, c = trials.run(), trials.c
        agreed = int(min(c.digits(x, y) for x, y in trials.runs))
        smallest = (size for size in SMALLEST if self._wrong(c, self._drawn(*size)))
        call = f"x {(*size, self.d_model)}" if c.names and (size := next(smallest, None)) else ""
        self._found(*(Finding(name, call=call) for name in c.names))
        self._found(*[Finding(trials.dropped)] * bool(trials.dropped))
        if self.demanded not in (None, c.causal):
            call = f"x (1, 2, {self.d_model}): token 0 sees token 1.{self.claim}"
            name, call = ("causal", "") if c.causal else ("not_causal", call)
            self._found(Finding(name, call=call))
        taken, said = list[Taken](), " and ".join(slot.said for slot in slots)
        if part or c.bug.kind.startswith(NO_MASKS):
            trials.untried += ["masks"] * bool(slots)
        else:
            taken += Masks(trials).taken(slots)
            trials.tried += [f"masks by {said}"] * bool(said)
        for one in taken:
            self._found(*one.findings)
            self.notes += one.notes
            other = [f for f in one.forms if f.meaning in {*BOOLS} - {meant}]
            if self.true_means and other and not one.findings:
                self._found(Finding("mask_inverted", f"{one.slot.said} {other[0].axes}"))
        part = self._noted(trials, part)
        if trials.leaks and trials.below < FEW and not self.findings:
            where = f"x where scores reach {trials.below:,.0f}: token 0 sees the last one"
            self._found(Finding("mask_leaks", call=where))
        names = list(dict.fromkeys(f.name for f in self.findings))
        if part or (trials.below < FEW and not names):
            names = ["partly"]
        tried = f"Tried in {str(subject.dtype).removeprefix('torch.')}: {'; '.join(trials.tried)}."
        not_tried = f"Not tried: {'; '.join([*trials.untried, WORDS['not_tried']])}."
        return Comparison(
            ", ".join(names) or "right",
            agreed,
            c.causal,
            trials.below,
            tuple(str(one) for one in taken if one.forms or one.flag),
            (*self.notes, *subject.notes),
            (*self.findings,),
            (tried, not_tried),
        )

    def _wrong(self, c: Candidate, x: Tensor) -> bool:
        """Whether a right class gives something else."""
        return c._replace(bug=RIGHT).digits(x, self.subject(x)) < self.subject.same

    def _fitting(self, slots: list[Slot]) -> list[Candidate]:
        """Who gives its outputs: as it is called, or with masks that `call` gives opened."""
        subject, x = self.subject, self.inputs[0]
        given = [s for s in slots if s.given and not isinstance(s.default, bool)]
        some = (part for n in range(len(given)) for part in combinations(given, n + 1))
        opened = [(dict.fromkeys(part, how), False) for part in some for how in OPEN]
        ways: list[tuple[dict[Slot, Any], bool]] = [({}, False), *opened, ({}, True)]
        search = partial(fitting, subject.module, self.ways, self.heads, self.h is not None)
        for subject.opened, deep in ways:
            with suppress(ValueError):
                runs = [(x, subject(x)) for x in self.inputs]
                later = x.clone()
                later[:, 1:] += 1  # not the last alone, which may be padding
                y = subject(later)[:, 0]
                self.sees = not torch.allclose(y, runs[0][1][:, 0], equal_nan=True)
                if found := search(self.sees, runs, subject.same, deep):
                    return found
        subject.opened = {}
        return []

    def _found(self, *findings: Finding) -> None:
        """What counts is found; what is meant, or not asked for, is only told."""
        for finding in findings:
            lost = finding.name == "causality_lost"
            asked = self.demanded if lost else self.true_means or not finding.bools
            if asked and finding.name not in self.ignore:
                self.findings.append(finding)
            else:
                self.notes.append(str(finding).splitlines()[0])

    def _noted(self, trials: Trials, part: str) -> str:
        """Sentences about how it was read, and about where it differs."""
        c, reading, notes, below = trials.c, trials.c.reading, list[str](), trials.below
        if reading.h != self.h and self.sure:
            part = part or f"for h = {self.h}: it agrees with h = {reading.h}"
        if part:
            gives = f"It gives what {', '.join(c.names)} gives, but fails" if c.names else "Fails"
            notes.append(f"{gives} {part}.")
        found = ", which was found by trying" * (reading.h != self.h)
        notes.append(f"Read with h = {reading.h}{found}: {_listed(reading.roles)}.")
        notes += [f"Its {reading.unusual}.".replace("Its rows", "Rows")] * bool(reading.unusual)
        if self.subject.turns:
            lost = shipped.bug("rotated_by_head").threads[0]
            notes.append(f"It computes sines, but gives tokens no positions: lost, as in {lost}?")
        if below < math.inf:
            notes.append(f"It gives something else where scores reach about {below:,.0f}.")
        untried = ("mask repeated",) if c.causal else ("mask",)
        untried += ("mask filled",) * (below < math.inf)
        same = [other.bug for other in trials.best if other.reading.unusual == reading.unusual]
        alike = {bug.name for bug in same if not bug.kind.startswith(untried)}
        alike -= {*c.names, RIGHT.name}
        if c.bug.kind == "scale" and c.bug.name != "scale_n_keys":
            alike.add("any scale of the same value")
        if alike:
            several = ", ".join(sorted(alike))
            notes.append(f"At this size {several} would give the same: try another n_heads.")
        self.notes = notes + self.notes
        return part

    def _unknown(self) -> Iterator[str]:
        """What comes of changing one thing at a time, where nothing fits."""
        subject, x = self.subject, self.inputs[0]
        y, other = subject(x), x.clone()
        other[1:] += 1
        order = [1, 0, *range(2, x.shape[1])]
        if subject.changes_input:
            yield "It changes x in place."
        if not y.any():
            yield "All outputs are zeros."
        if y.isfinite().all():
            mixes = not torch.allclose(subject(other)[0], y[0])
            moves = not torch.allclose(subject(x[:, order])[:, 2:], y[:, 2:])
            knows = "changes what later ones get: positions, perhaps, or a window"
            yield f"Tokens {'see' if self.sees else 'do not see'} later ones."
            yield f"Sequences {'see' if mixes else 'do not see'} each other."
            what = knows if moves else "changes nothing for later ones"
            yield f"Exchanging the first two tokens {what}."
        else:
            yield "Outputs are NaN or infinite. Is a row blocked entirely, or does True mean keep?"
        yield f"Read with h = {self.h or 'any'}: {_listed(self.ways[0])}; {WORDS['unknown']}"


def _listed(roles: Roles) -> str:
    return ", ".join(f"{role} from {' and '.join(names)}" for role, names in roles.items())
