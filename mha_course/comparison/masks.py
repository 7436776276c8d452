"""One model of masks: what each must do to the output is computed first, and then looked for.

A form (axes and a meaning) is taken only if it blocks what it must, wherever leaving it out,
turning it round and moving it by one place would give something else. What `call` gives stays
as it is while the others are tried.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_course.collection import shipped
from mha_course.comparison.findings import ADDED, OWN, Finding
from mha_course.comparison.handed import ELSEWHERE, Slot
from mha_course.comparison.subject import digits, raised
from mha_course.comparison.trials import FEW, Trials
from mha_course.comparison.watch import Watch

AXES = {  # of a mask → what is its own in blocked pairs (B, h, T, T), and how it is cut out of them
    "(T, T)": ("pairs", lambda b: b[0, 0]),
    "(1, T, T)": ("pairs", lambda b: b[0, :1]),
    "(1, 1, T, T)": ("pairs", lambda b: b[:1, :1]),
    "(B, T, T)": ("sequences", lambda b: b[:, 0]),
    "(B, 1, T, T)": ("sequences", lambda b: b[:, :1]),
    "(B, T)": ("keys", lambda b: b[:, 0, 0]),
    "(B, 1, T)": ("keys", lambda b: b[:, 0, :1]),
    "(B, 1, 1, T)": ("keys", lambda b: b[:, :1, :1]),
    "(B, h, T, T)": ("heads", lambda b: b),
    "(B·h, T, T)": ("heads", lambda b: b.flatten(0, 1)),
    "(T, T, 1)": ("pairs", lambda b: b[0, 0, :, :, None]),
    "(T, T, B)": ("sequences", lambda b: b[:, 0].permute(1, 2, 0)),
    "(B,)": ("lengths", lambda b: (~b[:, 0, 0]).sum(-1)),
}
ODD_AXES = ("(B·h, T, T)", "(T, T, 1)", "(T, T, B)")  # which only classes made for them take
BOOLS = {"True = blocked": lambda b: b, "True = keep": lambda b: ~b}
NUMBERS = {
    "1 = blocked": lambda b: b.double(),
    "1 = keep": lambda b: (~b).double(),
    "-inf added to the scores": lambda b: b.double().masked_fill(b, -torch.inf),
    "-1e9 added to the scores": lambda b: b.double() * -1e9,
}
MEANINGS = BOOLS | NUMBERS | {"lengths": lambda n: n}
SAME = {"1 = ": (*BOOLS,), "-1e9": ("-inf added to the scores",)}  # which need not be tried
SIZES = ((1, 2), (4, 16), (2, 17), (5, 8), (2, 33), (3, 64), (1, 128))
LONG = 33  # longer ones are tried in evaluation only
SMALLEST = ((1, 2), (1, 3), (2, 2), (2, 3), (3, 7))
SCALES = (2, 4, 6, 16, 128, 256, 1024)
ONES = ("mask applied", "mask filled", "mask repeated", "mask built")
SIGNS = {"~": 0, ">": 1, "<": -1}  # before a pattern: turned round, moved


class Form(NamedTuple):
    """A mask as one may be handed over."""

    axes: str
    meaning: str

    def mask(self, blocked: Tensor) -> Tensor:
        """The mask that blocks these pairs (B, h, T, T)."""
        cut = AXES[self.axes][1](blocked)
        return MEANINGS[self.meaning](cut).clone()

    @property
    def kind(self) -> str:
        return AXES[self.axes][0]

    def padded(self, blocked: Tensor) -> Tensor:
        """Queries (B, T) that are padding themselves, where it is a mask of keys."""
        return blocked[:, 0, 0] & (self.kind in ("keys", "lengths"))


FORMS = [Form(axes, m) for m in MEANINGS for axes in AXES if (m == "lengths") == (axes == "(B,)")]


def patterns(kind: str, B: int, h: int, T: int) -> dict[str, Tensor]:
    """What trial masks block, (B, h, T, T) each; no place is open, or blocked, in all of them."""
    sizes = {"pairs": (1, 1, T), "sequences": (B, 1, T), "heads": (B, h, T)}.get(kind, (B, 1, 1))
    row, j = torch.arange(torch.Size(sizes).numel()).view(*sizes, 1), torch.arange(T)
    at_random = torch.rand((*sizes, T), generator=torch.Generator().manual_seed(T)) < 0.5
    at_random = at_random & (j != row % T)
    few = 1 + row * (T - 1) // max(B - 1, 1)
    out = {
        "right padding": j >= (few if kind == "lengths" else T - 1 - row % max(T - 1, 1)),
        "less padding": j >= (few.flip(0) if kind == "lengths" else 1 + row % max(T - 1, 1)),
        "left padding": j <= row % max(T - 1, 1),
        "the first key": (j == 0) & (row >= 0),
        "the last key": (j == T - 1) & (row >= 0),
        "a key in the middle": j == 1 + row % max(T - 2, 1),
        "all keys but one": j != row % T,
        "keys at random": at_random,
        "nothing": row < 0,
        "the diagonal": j[:, None] == j,
        "whole rows": at_random | (j[:, None] == T // 2),
    }
    names = {"lengths": [*[*out][:2], "nothing"], "keys": [*out][:9]}.get(kind, out)
    return {name: out[name].expand(B, h, T, T) for name in names}


class Outcome(NamedTuple):
    """What came of one form: outputs, and which patterns do what they must."""

    form: Form
    outputs: dict[str, Tensor]
    causal: bool  # whether it must be, beside this mask
    alone: bool  # whether it takes causality away
    agrees: list[str]  # where leaving it out, turning it round or moving it gives something else
    differs: list[str]


@dataclass
class Taken:
    """What a module makes of one place for a mask: its forms, and what was found."""

    slot: Slot
    forms: Sequence[Form] = ()
    flag: str = ""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        axes = dict[str, list[str]]()
        for form in self.forms:
            axes.setdefault(form.meaning, []).append(form.axes)
        each = [f"{meaning} {', '.join(some)}" for meaning, some in axes.items()]
        return f"{self.slot.said} ({'; '.join([self.flag] * bool(self.flag) + each)})"


class Masks:
    """Tries every place for a mask, beside a class that does what it must."""

    def __init__(self, trials: Trials) -> None:
        self.subject, self.c, self.below = trials.subject, trials.c, trials.below
        self.modes, self.h, self.d_model = trials.modes, self.c.reading.h, trials.x.shape[2]
        self.B = 3 if self.h != 3 else 2  # neither h nor T, which broadcasting would take for it
        self.T = 7 if self.h != 7 else 5
        self.x, self.later = shipped.draw(self.B, self.T, self.d_model, seed=5), _later(self.T)
        self.blocked = {kind: patterns(kind, self.B, self.h, self.T) for kind, _ in AXES.values()}
        self.errors, self.open = dict[Slot, str](), dict[Slot, Any]()
        self.hints = dict[Slot, Any]()
        self.wanted = dict[tuple[str, str, bool, str], Tensor]()

    def taken(self, slots: list[Slot]) -> Iterator[Taken]:
        """What comes of each place, masks before flags; then of any two at once."""
        good, flags = list[Taken](), {s: isinstance(s.default, bool) for s in slots}
        on = [s for s in slots if s.default is True and s.given and self._is_hint(s, flags)]
        self.hints = dict.fromkeys(on, False)  # they hold for the mask of `call` alone
        for slot in (s for s, flag in flags.items() if not flag):
            taken = self._mask(slot)
            if taken.forms:
                good.append(taken)
                nothing = taken.forms[0].mask(self.blocked["pairs"]["nothing"])
                self.open |= {slot: nothing} if slot.given else {}
            yield taken
        for slot in (s for s, flag in flags.items() if flag or "causal" in s.name):
            hint = self._is_hint(slot, flags)
            yield (taken := self._hint(slot, good) if hint else self._flag(slot))
            good += [taken] * (bool(taken.flag) and not hint)
        for one, other in combinations(good, 2):
            yield self._both(one, other)

    # ------------------------------------------------------------------ what it must do

    def _want(self, kind: str, what: str, causal: bool, mistake: str = "") -> Tensor:
        """What a class gives of the trial input with this pattern, turned round or moved."""
        key = kind, what, causal, mistake
        if key not in self.wanted:
            blocked, places = self.blocked[kind][what.lstrip("~<>")], torch.arange(self.T)
            if what[0] == "~":
                blocked = ~blocked
            elif (by := SIGNS.get(what[0], 0)) and kind == "lengths":
                blocked = places >= (~blocked).sum(-1, keepdim=True) + by
            elif by:
                blocked = blocked[..., (places - by).clamp(0, self.T - 1)]
            blocked = (blocked | self.later) if causal else blocked
            self.wanted[key] = self.c.masked(self.x, blocked, mistake)
        return self.wanted[key]

    def _open(self, causal: bool) -> Tensor:
        return self._want("pairs", "nothing", causal)

    def _fits(self, own: Tensor, y: Tensor, rows: Any = ...) -> bool:
        return digits(own[rows], y[rows]) >= self.subject.same

    def _judged(
        self, form: Form, outputs: dict[str, Tensor], causal: bool, alone: bool = False
    ) -> Outcome:
        """Which outputs agree with what this mask must do, and which differ."""
        out = Outcome(form, outputs, causal, alone, [], [])
        for what, y in outputs.items():
            own, blocked = self._want(form.kind, what, causal), self.blocked[form.kind][what]
            rows = _with_a_key(blocked | self.later if causal else blocked)
            if not self._fits(own, y, rows):  # where padding asks, classes may give what they like
                rows = rows & ~form.padded(blocked) & (what != "nothing")
            if not rows.any() or not self._fits(own, y, rows):
                out.differs.append(what)
                continue
            others = (self._want(form.kind, sign + what, causal) for sign in SIGNS)
            fit = (self._fits(own, other, rows) for other in (self._open(causal), *others))
            dropped, turned, *aside = fit
            out.agrees.extend([what] * (not (dropped or turned or all(aside))))
        return out

    # ----------------------------------------------------------------------------- masks

    def _run(
        self, masks: Mapping[Slot, Any], x: Tensor | None = None, training: bool = False
    ) -> Tensor | None:
        """Its output with these masks; None where it raises an error, which is kept."""
        try:
            return self.subject(self.x if x is None else x, training, {**self.hints, **masks})
        except ValueError as error:
            self.errors.setdefault([*masks][-1], raised(error))
            return None

    def _outcome(self, slot: Slot, form: Form) -> Outcome | None:
        """What comes of this form, or None where it raises an error."""
        outputs = dict[str, Tensor]()
        for what, blocked in self.blocked[form.kind].items():
            if (y := self._run({slot: form.mask(blocked)})) is not None:
                outputs[what] = y
            elif not outputs:
                return None
        causal = self.c.causal
        if slot.given and "nothing" in outputs:  # what it gives may be what makes it causal
            causal = self._fits(self._open(True), outputs["nothing"])
        beside = self._judged(form, outputs, causal)
        if causal and beside.differs:
            some = {what: y for what, y in outputs.items() if what != "nothing"}
            alone = self._judged(form, some, False, alone=True)
            if alone.agrees and len(alone.differs) < len(beside.differs):
                return alone
        return beside

    def _mask(self, slot: Slot) -> Taken:
        """Every form of one mask, and what is to be said of them."""
        ran, good = list[Outcome](), list[Outcome]()
        for form in FORMS:
            same = SAME.get(form.meaning[:4], ())
            if any(o.form.meaning in same for o in good):
                continue
            if slot.name == "key_padding_mask" and len(form.axes) > 6:
                continue  # torch's name for (B, T)
            if (outcome := self._outcome(slot, form)) is not None:
                ran.append(outcome)
                good += [outcome] * bool(outcome.agrees and not outcome.differs)
        if not ran or ELSEWHERE.search(slot.name):
            why = f": {self.errors[slot]}" if slot in self.errors else ""
            return Taken(slot, findings=[Finding("mask_untried", slot.said, why=why)] * slot.named)
        if not good:
            return self._not_taken(slot, ran)
        rest = [o for o in ran if o not in good]
        nothing = self.blocked["heads"]["nothing"]  # in evaluation fused kernels ask for less
        runs = [self._run({slot: o.form.mask(nothing)}, training=True) is not None for o in good]
        good = [o for o, trained in zip(good, runs, strict=True) if trained] or good
        taken = Taken(slot, [o.form for o in good])
        taken.findings += [Finding("causality_lost", slot.said)] * good[0].alone
        taken.findings += self._wrong(slot, good, rest)
        if all(f.bools or f.name == "causality_lost" for f in taken.findings):
            self._further(taken, good[0].causal)
            self._without_a_key(taken)
        return taken

    def _not_taken(self, slot: Slot, ran: list[Outcome]) -> Taken:
        open_ = self._open(ran[0].causal)
        if not slot.named:
            changes = any(not self._fits(open_, y) for o in ran for y in o.outputs.values())
            return Taken(slot, notes=[f"Not tried: {slot.said}."] * changes)
        for o in ran if "quer" in slot.name else ():
            each = [(y, self.blocked["keys"][what][:, 0, 0]) for what, y in o.outputs.items()]
            if o.form.kind == "keys" and all(self._fits(open_, y, ~b) for y, b in each):
                return Taken(slot, notes=[f"What {slot.said} masks are queries."])
        ran = sorted(ran, key=lambda o: -len(o.agrees))
        return Taken(slot, findings=[self._mistake(slot, ran)])

    def _wrong(self, slot: Slot, good: list[Outcome], rest: list[Outcome]) -> Iterator[Finding]:
        """A form that runs and is wrong is a finding, whatever other form fits."""

        def ranks(form: Form) -> int:
            with Watch(self.T) as watch:
                self._run({slot: form.mask(self.blocked["pairs"]["nothing"])})
            return watch.axes

        meanings, most = {o.form.meaning for o in good}, ranks(good[0].form)
        axes = {o.form.axes for o in good}
        odd = [o for o in rest if o.form.axes not in axes and o.form.meaning in meanings]
        odd = [o for o in odd if o.form.axes not in ODD_AXES and o.form.meaning[:4] != "1 = "]
        if odd := [o for o in odd if ranks(o.form) <= most]:
            yield self._mistake(slot, odd)
        added = [o for o in rest if o.form.meaning in BOOLS and o.form.axes in axes]
        if added and not meanings & BOOLS.keys():
            found = self._mistake(slot, added)
            unknown = found.name == "mask_unknown"
            yield found._replace(name=ADDED if unknown else found.name, bools=True)

    def _mistake(self, slot: Slot, ran: list[Outcome]) -> Finding:
        """Which one explains what came out of all these."""
        bias = self.c.reading.rows["o"][:, -1]  # what a query without a key may give, or NaN

        def least(name: str, sign: str, o: Outcome) -> float:
            each = [16.0]
            for what, y in o.outputs.items():
                own = self._want(o.form.kind, sign + what, o.causal, name)
                keyed = (own - bias).abs().amax(-1) > 1e-9
                rows = keyed & y.isfinite().all(-1)
                each += [digits(own[rows], y[rows]) if rows.any() or not keyed.any() else 0.0]
            return min(each)

        causal, call = ran[0].causal, self._smallest(slot, ran[0])
        for name, base in {"mask_dropped": causal, "mask_made_causal": True}.items():
            if all(self._fits(self._open(base), y) for o in ran for y in o.outputs.values()):
                return Finding(name, *call)
        known = [*shipped.bugs().values(), *OWN.values()]
        ways = [(b.name, "") for b in known if b.kind in ONES] + [("", ">"), ("", "<")]
        each = ((least(*way, o), *way, o) for way in ways for o in ran)
        most, name, sign, o = max(each, key=lambda found: found[0])
        if most >= self.subject.same:
            return Finding("mask_moved" if sign else name, *self._smallest(slot, o))
        leaks = any(o.agrees or self._nearer(o) for o in ran)
        return Finding("mask_leaks" if leaks else "mask_unknown", *call)

    def _nearer(self, o: Outcome) -> bool:
        """Whether it is nearer to what it must be than to what no mask would give."""
        what = "keys at random" if "keys at random" in o.outputs else "right padding"
        own, y = self._want(o.form.kind, what, o.causal), o.outputs[what]
        return bool((y - own).norm() < 0.8 * (self._open(o.causal) - own).norm())

    def _smallest(self, slot: Slot, o: Outcome) -> tuple[str, str]:
        """The place and axes, and the smallest call that differs, in words."""
        where = f"{slot.said} {o.form.axes}"
        for (B, T), what in product(SMALLEST, o.differs or o.outputs):
            x = shipped.draw(B, T, self.d_model, seed=B + T)
            mask = o.form.mask(blocked := patterns(o.form.kind, B, self.h, T)[what])
            total = blocked | _later(T) if o.causal else blocked
            y = self._run({slot: mask}, x)
            if y is not None and not self._fits(self.c.masked(x, total), y, _with_a_key(total)):
                return where, f"x {tuple(x.shape)}, {slot.said} {tuple(mask.shape)} on {what}"
        return where, ""

    def _further(self, taken: Taken, causal: bool) -> None:
        """Other sizes, training, and large scores."""
        slot, forms = taken.slot, {form.kind: form for form in reversed(taken.forms)}.values()

        def differs(x: Tensor, form: Form, training: bool = False, mistake: str = "") -> bool:
            some = patterns(form.kind, len(x), self.h, x.shape[1])
            blocked = some.get("keys at random", some["right padding"])
            mask, kept = form.mask(blocked), form.mask(blocked)
            y = self._run({slot: mask}, x, training)
            total = blocked | _later(x.shape[1]) if causal else blocked
            rows = _with_a_key(total) & ~form.padded(blocked)
            if not torch.equal(mask, kept) and not taken.findings:
                taken.findings.append(Finding("mask_changed", slot.said))
            return y is not None and not self._fits(self.c.masked(x, total, mistake), y, rows)

        for (B, T), form, mode in product(SIZES, forms, self.modes):
            x = shipped.draw(B, T, self.d_model, seed=B + T)
            if (T <= LONG or not mode) and differs(x, form, mode):
                call = f"x ({B}, {T}, {self.d_model}) in {'training' if mode else 'evaluation'}"
                taken.findings.append(Finding("mask_leaks", f"{slot.said} {form.axes}", call))
                return
        for size, form in product(SCALES if not self.subject.coarse else (), forms):
            x, score = self.x * size, self.c.largest_score(self.x * size)
            if form.meaning[:4] != "-1e9" and score <= self.below and differs(x, form):
                high = not differs(x, form, mistake="fill_too_high")
                name = "fill_too_high" if high else "mask_leaks"
                found = Finding(name, f"{slot.said} {form.axes}")
                taken.findings += [found] * (high or score < FEW)
                part = f"what is blocked takes part where scores reach {score:,.0f}."
                taken.notes.append(f"With {slot.said} {part}")
                return

    def _without_a_key(self, taken: Taken) -> None:
        """What the last query of the first sequence gets if every key is blocked."""
        slot, form = taken.slot, taken.forms[0]
        first = (torch.arange(self.B) == 0)[:, None, None, None] | (form.kind == "pairs")
        blocked, what = first | self.blocked["pairs"]["nothing"], "gives something else"
        y = self._run({slot: form.mask(blocked)})
        none, values = self.c.masked(self.x, blocked), self.c.layer("v")(self.x)
        mean = self.c.layer("o")(values.mean(1, keepdim=True)).expand_as(none)
        for given, own in {"W^O's bias": none, "the mean of all values": mean}.items():
            if y is not None and self._fits(own[0, -1], y[0, -1]):
                what = f"gives {given}"
        if y is None or y[0, -1].isnan().any():
            what = "raises an error" if y is None else "gives NaN"
        taken.notes.append(f"With {slot.said} a row without a key {what}.")

    # ----------------------------------------------------------------------------- flags

    def _is_hint(self, flag: Slot, slots: Mapping[Slot, bool]) -> bool:
        """Whether it raises an error without a mask beside it, and in itself alone."""
        none = {s: None for s, is_flag in slots.items() if s.given and not is_flag}
        off, on = (self._run({**none, flag: on}, training=True) for on in (False, True))
        return off is not None and on is None

    def _hint(self, flag: Slot, good: list[Taken]) -> Taken:
        for beside in (t for t in good if t.forms and t.forms[0].kind == "pairs"):
            mask = beside.forms[0].mask(self.later.expand(1, 1, -1, -1))
            y = self._run({beside.slot: mask, flag: True})
            if y is not None and self._fits(self._open(True), y):
                return Taken(flag, flag="True = causal, beside a causal mask")
        untried = Finding("mask_untried", flag.said, why=f": {self.errors.get(flag, '')}")
        return Taken(flag, findings=[untried] * (flag.named and isinstance(flag.default, bool)))

    def _flag(self, slot: Slot) -> Taken:
        """Whether it makes the class causal, or takes that away."""
        off = None if slot.default is None else False
        no, yes = (self._run({**self.open, slot: value}) for value in (off, True))
        is_flag = isinstance(slot.default, bool)
        sure = slot.named and is_flag
        if no is None or yes is None:
            return Taken(slot, findings=[Finding("mask_untried", slot.said)] * sure)
        says = [[self._fits(self._open(causal), y) for y in (no, yes)] for causal in (False, True)]
        if says == [[True, False], [False, True]]:
            return Taken(slot, flag="True = causal")
        if says == [[False, True], [True, False]]:
            turned = re.search("causal", slot.name) and not re.search("no|un|bi", slot.name)
            found = [Finding("flag_inverted", slot.said)] * bool(turned)
            return Taken(slot, flag="False = causal", findings=found)
        name = "mask_dropped" if self._fits(no, yes) else "mask_unknown"
        other = is_flag and not sure and name == "mask_unknown"
        notes = [f"Not tried: {slot.said}."] * other
        return Taken(slot, findings=[Finding(name, slot.said)] * sure, notes=notes)

    def _both(self, one: Taken, other: Taken) -> Taken:
        """Two at once block what either blocks; or one takes the other's place."""
        masks, parts, rows = dict[Slot, Any](), list[Tensor](), torch.tensor(True)
        for taken, what in ((one, "keys at random"), (other, "left padding")):
            masks[taken.slot], part = taken.flag == "True = causal", self.later
            for form in taken.forms[:1]:
                some = self.blocked[form.kind]
                part = some.get(what, some["right padding"])
                masks[taken.slot] = form.mask(part)
                rows = rows & ~form.padded(part)
            parts.append(part.expand(self.B, self.h, -1, -1))
        both = " and ".join(slot.said for slot in masks)
        if (y := self._run(masks)) is None:
            return Taken(one.slot, notes=[f"Not tried together: {both}."])
        base = self._run({**self.open, **{t.slot: False for t in (one, other) if t.flag}})
        causal = self.c.causal and base is not None and self._fits(self._open(True), base)
        rows = rows & _with_a_key(parts[0] | parts[1] | self.later)

        def is_(*blocked: Tensor) -> bool:
            total = torch.stack([*blocked, *[self.later.expand_as(parts[0])] * causal]).any(0)
            return self._fits(self.c.masked(self.x, total), y, rows)

        lost = any(f.name == "causality_lost" for t in (one, other) for f in t.findings)
        if is_(*parts) or lost:
            return Taken(one.slot)
        if other.flag and is_(parts[0]):
            return Taken(one.slot, findings=[Finding("causality_lost", one.slot.said)])
        for beside, dropped, part in ((one, other, parts[0]), (other, one, parts[1])):
            if is_(part):
                where = f"{dropped.slot.said} beside {beside.slot.said}"
                return Taken(one.slot, findings=[Finding("mask_dropped", where)])
        return Taken(one.slot, findings=[Finding("masks_apart", both)])


def _later(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(1)


def _with_a_key(blocked: Tensor) -> Tensor:
    """The queries (B, T) that have one in every head."""
    return ~blocked.all(-1).any(1)
