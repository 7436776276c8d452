"""Is a class right? Any attention module beside one that is, and beside the published mistakes.

Only outputs are read. The layers of a copy get new random weights. A right class gets the same,
and so does that class with each published mistake (`classes`): whichever gives the same numbers is
tried further (`trials`, `masks`), and what was found (`findings`) is judged here.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations, product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_course.collection.shipped import Bug
from mha_course.comparison import layers as layers_of
from mha_course.comparison.classes import RIGHT, Candidate, pairs
from mha_course.comparison.findings import BUGS, WORDS, Comparison, Finding
from mha_course.comparison.handed import Slot
from mha_course.comparison.layers import Reading, Roles
from mha_course.comparison.masks import BOOLS, SMALLEST, Masks, Taken
from mha_course.comparison.subject import Subject
from mha_course.comparison.trials import FEW, Trials
from mha_lesson.refusals import describe, listed_texts, require_one_of, require_positive_int

FIRST = ((3, 7), (2, 5))  # B and T of what every candidate is tried on
CLAIMS = ("causal", "autoregressive", "mask_future", "masked")  # attributes, if True
USUAL = r"|`\w+` is read as \(h, \d, d_k\) of (q, k, v|k, v|q, k)"  # what a usual reading notes
NO_MIXING = ("scale", "weights", "layer", "heads", "fused")  # kinds that let no token see another
NO_MASKS = ("mask", "batch", "heads", "split", "merge")  # kinds beside which masks tell nothing
OPEN = (  # what may block nothing; lengths
    torch.zeros_like,
    torch.ones_like,
    lambda given: torch.full_like(given, given.max()),
    lambda given: torch.full_like(given, given.max() + 1),
)


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
        module: any attention with W^Q, W^K, W^V (or several in one) and W^O, h·d_k = d_model.
        call: `call(module, x)` gives its output for x (B, T, d_model), or a tuple that begins with
            it; `module(x)` if None. It may give masks, turn axes, and take away positions, a norm
            or a residual path. Masks that the method which it calls takes, or gets from it, are
            tried in other forms, too. What raises an error at some size is said and left out.
        causal: whether it must be causal, called like this, with any other mask; told if None.
        true_means: what True means in its masks of bools; told if None.
        n_heads: h; read from the module's attributes, or tried, if None.
        layers: "w_q", "w_k", "w_v" or "w_qkv" (or "w_q" and "w_kv"), and "w_o" → the name of the
            layer or parameter in `module`, or the names of one for each head; guessed from names
            and shapes, and tried in other orders, if None.
        ignore: findings that are meant, such as "causality_lost", and parameters to leave alone.

    Returns:
        A `Comparison`. The module is left as it is: a copy is tried, on the CPU in float64 and
        float32, with weights of ordinary size, in evaluation and in training, where its dropout is
        noted and drops nothing. Frozen parameters and buffers keep their values.

    Raises:
        TypeError, ValueError: heads or layers are not found or fit no multi-head attention, or the
            call fails; the sentence says what is there.
    """
    if not isinstance(module, nn.Module):
        called = f" that is made, {module.__name__}(…)" if isinstance(module, type) else ""
        raise TypeError(f"module must be an nn.Module{called}; got {describe(module)}.")
    if causal not in (None, True, False):
        raise TypeError(f"causal must be True, False or None; got {describe(causal)}.")
    if true_means is not None:
        require_one_of("true_means", true_means, ("blocked", "keep"))
    if n_heads is not None:
        require_positive_int("n_heads", n_heads)
    meant, threads = {*listed_texts("ignore", ignore)}, torch.get_num_threads()
    torch.set_num_threads(1)  # for small tensors more of them only wait for each other
    try:
        decision = _Decision(Subject(module, call), causal, true_means, meant)
        decision.read(layers, n_heads)
        return decision.made()
    finally:
        torch.set_num_threads(threads)


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
        self.notes, self.sees = list[str](), False

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
                self.own = layers_of.parameters_of(subject.module, matrices, self.ways)
                layers_of.draw(self.own, self.d_model)
                self.inputs = [shipped.draw(*FIRST[i], self.d_model, seed=i) for i in (0, 1)]
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

    def made(self) -> Comparison:
        """What it is, and why."""
        subject, (x, other) = self.subject, self.inputs
        subject(other)  # it has run for x; one that does not run for both is refused
        slots = [s for s in subject.handed.heard(other) if s.name not in self.ignore]
        if (how := subject.repeats(x)) is not None:
            return Comparison("drawn", seen=(how,))
        if not (best := self._fitting(slots)):
            return Comparison(seen=(*subject.notes, *self._unknown()))
        if subject.opened:
            given = " and ".join(slot.said for slot in subject.opened)
            self.notes.append(f"Other masks stand where `call` gives {given}.")
        trials = Trials(subject, best, x, [(x, subject(x)) for x in self.inputs], self.own)
        part, c, taken = trials.run(), trials.c, list[Taken]()
        agreed = int(min(c.digits(x, y) for x, y in trials.runs))
        right, call = c._replace(bug=RIGHT), ""
        for size in SMALLEST[::-1] if c.names else ():
            x = shipped.draw(*size, self.d_model, seed=sum(size))
            with suppress(ValueError):  # it may not run for this one
                call = call if right.digits(x, subject(x)) >= subject.same else f"x {(*x.shape,)}"
        found = [*(Finding(name, call=call) for name in c.names), *trials.findings]
        if self.demanded not in (None, c.causal):
            call = f"x (1, 2, {self.d_model}): token 0 sees token 1.{self.claim}"
            found.append(Finding("causal") if c.causal else Finding("not_causal", call=call))
        if part or c.bug.kind.startswith(NO_MASKS):
            trials.untried += ["masks"] * bool(slots)
        elif slots:
            taken += Masks(trials).taken(slots)
            trials.tried.append(f"masks by {' and '.join(slot.said for slot in slots)}")
        for one in taken:
            bools = one.slot.named and not one.slot.numbers  # or they were promised
            found += [f for f in one.findings if bools or self.true_means or not f.partly]
            self.notes += one.notes
            other = [f for f in one.forms if f.meaning in {*BOOLS} - {f"True = {self.true_means}"}]
            if self.true_means and other and not one.findings:
                found.append(Finding("mask_inverted", f"{one.slot.said} {other[0].axes}"))
        if c.reading.h != self.h and self.sure:
            part = part or f"for h = {self.h}: it agrees with h = {c.reading.h}"
        noted = self.ignore if self.demanded else {*self.ignore, "causality_lost"}
        self.notes += [str(f).splitlines()[0] for f in found if f.name in noted]
        found = [f for f in found if f.name not in noted]
        names = list(dict.fromkeys(f.name for f in found))
        if part or (trials.below < FEW and not names):
            names = ["partly"]
        ran = f"Tried in {str(subject.dtype).removeprefix('torch.')}: {'; '.join(trials.tried)}."
        not_tried = f"Not tried: {'; '.join([*trials.untried, WORDS['not_tried']])}."
        notes = (*self._noted(trials, part), *self.notes, *subject.notes)
        masks, said = tuple(str(one) for one in taken if one.forms), ", ".join(names) or "right"
        told = (*found,), (ran, not_tried)
        return Comparison(said, agreed, c.causal, trials.below, masks, notes, *told)

    def _fitting(self, slots: list[Slot]) -> list[Candidate]:
        """Who gives its outputs: as it is called, or with masks that `call` gives opened."""
        subject, x = self.subject, self.inputs[0]
        given = [s for s in slots if s.given and not s.is_flag]
        some = (part for n in range(len(given)) for part in combinations(given, n + 1))
        opened = [(dict.fromkeys(part, how), False) for part in some for how in OPEN]
        ways: list[tuple[dict[Slot, Any], bool]] = [({}, False), *opened, ({}, True)]
        for subject.opened, deep in ways:
            with suppress(ValueError):
                runs = [(x, subject(x)) for x in self.inputs]
                later = torch.cat((x[:, :1], x[:, 1:] + 1), dim=1)  # the last may be padding
                first = subject(later)[:, 0], runs[0][1][:, 0]
                self.sees = not torch.allclose(*first, equal_nan=True)
                for stage in self._stages(deep):
                    fit = [c for c in stage if all(c.digits(*run) >= subject.same for run in runs)]
                    if fit:
                        return fit
        subject.opened = {}
        return []

    def _stages(self, deep: bool) -> Iterator[Iterator[Candidate]]:
        """Candidates, likely ones first; each stage is made when those before have failed."""
        odd = "Writer", "dropout", "mask dropped"  # what these do shows in other trials
        singles = [bug for bug in BUGS.values() if not {bug.base, bug.kind} & {*odd}]
        own = self.subject.module, layers_of.matrices_of(self.subject.module)

        def read(roles: Roles, numbers: Iterable[int]) -> Iterator[Reading]:
            for h in numbers:
                yield from layers_of.readings(*own, roles, h, self.d_model)

        def each(bugs: Iterable[Bug], readings: Iterable[Reading]) -> Iterator[Candidate]:
            for bug, reading, causal in product(bugs, readings, (False, True)):
                missing = bug.kind == "layer missing" and "w_o" not in reading.roles
                mixes = not all(kind.startswith(NO_MIXING) for kind in bug.kind.split(", "))
                shows = causal if bug.kind.startswith("mask") else mixes or causal != self.sees
                if shows and not missing and (bug is not RIGHT or causal != self.sees):
                    yield Candidate(bug, causal, reading)

        known = [*read(self.ways[0], self.heads if self.h is None else self.heads[:1])]
        usual = [r for r in known if re.fullmatch(USUAL, r.unusual)]
        if not deep:
            yield each([RIGHT, *singles], usual)
            return
        others = (r for way in self.ways[1:] for r in read(way, self.heads[:1]) if not r.unusual)
        every = chain(read(self.ways[0], self.heads), others)
        yield (Candidate(RIGHT, not self.sees, r) for r in every)
        main = (r for r in known if r.h == self.heads[0] and "W^O" not in r.unusual)
        yield each(singles, main)
        yield each(pairs(singles), usual)

    def _noted(self, trials: Trials, part: str) -> list[str]:
        """Sentences about how it was read, and about where it differs."""
        c, reading, below = trials.c, trials.c.reading, trials.below
        gives = f"It gives what {', '.join(c.names)} gives, but fails" if c.names else "Fails"
        found = ", which was found by trying" * (reading.h != self.h)
        unusual = f"Its {reading.unusual}.".replace("Its rows", "Rows")
        lost = WORDS["lost"].format(*shipped.bug("rotated_by_head").threads)
        untried = ("mask repeated",) if c.causal else ("mask",)
        untried += ("mask filled",) * (below < math.inf)
        same = [other.bug for other in trials.best if other.reading.unusual == reading.unusual]
        alike = {b.name for b in same if not b.kind.startswith(untried)} - {*c.names, RIGHT.name}
        scale = c.bug.kind == "scale" and c.bug.name != "scale_n_keys"
        several = ", ".join(sorted(alike | {"any scale of the same value"} if scale else alike))
        notes = {
            f"{gives} {part}.": part,
            f"Read with h = {reading.h}{found}: {_listed(reading.roles)}.": True,
            unusual: reading.unusual,
            lost: self.subject.turns,
            f"It gives something else where scores reach about {below:,.0f}.": below < math.inf,
            f"At this size {several} would give the same: try another n_heads.": several,
        }
        return [note for note, holds in notes.items() if holds]

    def _unknown(self) -> Iterator[str]:
        """What comes of changing one thing at a time, where nothing fits."""
        subject, x = self.subject, self.inputs[0]
        y, order = subject(x), [1, 0, *range(2, x.shape[1])]
        yield from ["It changes x in place."] * subject.changes_input
        yield from ["All outputs are zeros."] * (not y.any())
        if y.isfinite().all():
            mixes = not torch.allclose(subject(torch.cat((x[:1], x[1:] + 1)))[0], y[0])
            moves = not torch.allclose(subject(x[:, order])[:, 2:], y[:, 2:])
            yield f"Tokens {'see' if self.sees else 'do not see'} later ones."
            yield f"Sequences {'see' if mixes else 'do not see'} each other."
            yield f"Exchanging the first two tokens {WORDS['moves' if moves else 'stays']}."
        else:
            yield "Outputs are NaN or infinite. Is a row blocked entirely, or does True mean keep?"
        yield f"Read with h = {self.h or 'any'}: {_listed(self.ways[0])}; {WORDS['unknown']}"


def _listed(roles: Roles) -> str:
    return ", ".join(f"{role} from {' and '.join(names)}" for role, names in roles.items())
