"""One model of masks: what each must do to the output is computed first, and then looked for.

A form (axes and a meaning) is taken only if it blocks what it must, wherever leaving it out,
turning it round and moving it by one place would give something else. What `call` gives stays
as it is while the others are tried.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_course.collection import shipped
from mha_course.comparison.classes import later
from mha_course.comparison.findings import BUGS, Finding
from mha_course.comparison.handed import ELSEWHERE, Given, Slot
from mha_course.comparison.subject import digits, raised
from mha_course.comparison.trials import MODES, Trials, leak

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
    "": ("flag", lambda b: b.any()),
}
ODD_AXES = ("(B·h, T, T)", "(T, T, 1)", "(T, T, B)")  # which only classes made for them take
BOOLS = {"True = blocked": lambda b: b, "True = keep": lambda b: ~b}
NUMBERS = {
    "1 = blocked": lambda b: b.double(),
    "1 = keep": lambda b: (~b).double(),
    "-inf added to the scores": lambda b: b.double().masked_fill(b, -torch.inf),
    "-1e9 added to the scores": lambda b: b.double() * -1e9,
}
FLAGS = {"True = causal": lambda b: bool(b), "False = causal": lambda b: not b}
MEANINGS = BOOLS | NUMBERS | {"lengths": lambda n: n} | FLAGS
SAME = {"1 = ": (*BOOLS,), "-1e9": ("-inf added to the scores",)}  # which need not be tried
SIZES = ((1, 2), (4, 16), (2, 17), (5, 8), (2, 33), (3, 64), (1, 128))
LONG = 33  # longer ones are tried in evaluation only
SMALLEST = ((1, 2), (1, 3), (2, 2), (2, 3), (3, 7))
ONES = ("mask applied", "mask filled", "mask repeated", "mask built")
MIXED = "keys at random"
Patterns = dict[str, Tensor]  # by their names: pairs (B, h, T, T), or what comes of blocking them
SIGNS = {"~": 0, ">": 1, "<": -1}  # before a pattern: turned round, moved


class Form(NamedTuple):
    """A mask, or a flag, as one may be handed over."""

    axes: str
    meaning: str

    def mask(self, blocked: Tensor) -> Any:
        """What blocks these pairs (B, h, T, T)."""
        return MEANINGS[self.meaning](AXES[self.axes][1](blocked).clone())

    @property
    def kind(self) -> str:
        return AXES[self.axes][0]

    def total(self, blocked: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """What must be blocked; and the queries (B, T) that have a key and are no padding."""
        total = blocked | later(blocked.shape[-1]) if causal else blocked
        padding = blocked[:, 0, 0] & (self.kind in ("keys", "lengths"))
        return total, _with_a_key(total) & ~padding


FORMS = [Form(axes, meaning) for meaning in BOOLS | NUMBERS for axes in [*AXES][:-2]]
FORMS += [Form("(B,)", "lengths"), *(Form("", meaning) for meaning in FLAGS)]


def patterns(kind: str, B: int, h: int, T: int) -> Patterns:
    """What trial masks block, (B, h, T, T) each; no place is open, or blocked, in all of them."""
    if kind == "flag":
        return {w: later(T).expand(B, h, T, T) & (w == "later") for w in ("later", "nothing")}
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


def mixed(some: Patterns, what: str = MIXED) -> Tensor:
    """The pattern of this name, or the first one where it is missing."""
    return some.get(what, next(iter(some.values())))


class Outcome(NamedTuple):
    """What came of one form: outputs, and which patterns do what they must."""

    slot: Slot
    form: Form
    outputs: Patterns
    causal: bool  # whether it must be, beside this mask
    agrees: list[str]  # where leaving it out, turning it round or moving it gives something else
    differs: list[str]

    @property
    def where(self) -> str:
        return f"{self.slot.said} {self.form.axes}".strip()


class Taken(NamedTuple):
    """What a module makes of one place for a mask: its forms, and what was found."""

    slot: Slot
    forms: Sequence[Form] = ()
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        axes = dict[str, list[str]]()
        for form in self.forms:
            axes.setdefault(form.meaning, []).append(form.axes)
        each = "; ".join(f"{meaning} {', '.join(some)}".strip() for meaning, some in axes.items())
        return f"{self.slot.said} ({each})"


class Masks:
    """Tries every place for a mask, beside a class that does what it must."""

    def __init__(self, trials: Trials) -> None:
        self.subject, self.c = trials.subject, trials.c
        self.modes, self.h, self.d_model = trials.modes, self.c.reading.h, trials.x.shape[2]
        self.B = 3 if self.h != 3 else 2  # neither h nor T, which broadcasting would take for it
        self.T = 7 if self.h != 7 else 5
        self.x, self.later = shipped.draw(self.B, self.T, self.d_model, seed=5), later(self.T)
        self.blocked = {kind: patterns(kind, self.B, self.h, self.T) for kind, _ in AXES.values()}
        self.errors, self.open = dict[Slot, str](), dict[Slot, Form]()
        self.hints, self.unmasked = dict[Slot, Any](), dict[Slot, Any]()
        self.wanted = dict[tuple[str, str, bool, str], Tensor]()

    def taken(self, slots: list[Slot]) -> Iterator[Taken]:
        """What comes of each place, masks before flags; then of any two at once."""
        good = list[Taken]()
        self.unmasked = {s: None for s in slots if s.given and not s.is_flag}
        on = [s for s in slots if s.default is True and s.given]
        self.hints = {s: False for s in on if self._hint(s, good)}  # but with the mask of `call`
        for slot in sorted(slots, key=lambda slot: slot.is_flag):
            hint = self._hint(slot, good) if slot.is_flag else None
            yield (taken := hint or self._mask(slot))
            if taken.forms and not hint:
                good.append(taken)
                self.open |= {slot: taken.forms[0]} if slot in self.unmasked else {}
        for one, other in combinations(good, 2):
            yield self._both(one, other)

    def _want(self, kind: str, what: str, causal: bool, mistake: str = "") -> Tensor:
        """What a class gives of the trial input with this pattern, turned round or moved."""
        if (key := (kind, what, causal, mistake)) not in self.wanted:
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

    def _judged(self, slot: Slot, form: Form, outputs: Patterns, causal: bool) -> Outcome:
        """Which outputs agree with what this mask must do, and which differ."""
        out = Outcome(slot, form, outputs, causal, [], [])
        for what, y in outputs.items():
            own, blocked = self._want(form.kind, what, causal), self.blocked[form.kind][what]
            total, real = form.total(blocked, causal)  # where padding asks, any answer may do
            fits = [r for r in (_with_a_key(total), real) if r.any() and self._fits(own, y, r)]
            if not fits:
                out.differs.append(what)
                continue
            others = self._open(causal), *(self._want(form.kind, s + what, causal) for s in SIGNS)
            dropped, turned, *aside = (self._fits(own, other, fits[0]) for other in others)
            out.agrees.extend([what] * (not (dropped or turned or all(aside))))
        return out

    def _run(self, masks: Given, x: Tensor | None = None, training: bool = False) -> Tensor | None:
        """Its output, or None and why; flags are tried where masks of `call` block nothing."""
        x, given = self.x if x is None else x, dict(self.hints)
        if any(isinstance(mask, bool) for mask in masks.values()):
            size = len(x), self.h, x.shape[1]
            given |= {s: f.mask(patterns(f.kind, *size)["nothing"]) for s, f in self.open.items()}
        try:
            return self.subject(x, training, {**given, **masks})
        except ValueError as error:
            self.errors.setdefault([*masks][-1], raised(error))
            return None

    def _outcome(self, slot: Slot, form: Form) -> Outcome | None:
        """What comes of this form, or None where it raises an error."""
        outputs: Patterns = {}
        for what, blocked in self.blocked[form.kind].items():
            if (y := self._run({slot: form.mask(blocked)})) is not None:
                outputs[what] = y
            elif not outputs:
                return None
        causal = self.c.causal
        if (slot.given or form.kind == "flag") and "nothing" in outputs:
            causal = self._fits(self._open(True), outputs["nothing"])  # it may be what makes it so
        together = self._judged(slot, form, outputs, causal)
        if causal and together.differs:
            some = {what: y for what, y in outputs.items() if what != "nothing"}
            alone = self._judged(slot, form, some, False)
            if alone.agrees and len(alone.differs) < len(together.differs):
                return alone
        return together

    def _mask(self, slot: Slot) -> Taken:
        """Every form of one mask, and what is to be said of them."""
        ran, good = list[Outcome](), list[Outcome]()
        for form in FORMS:
            flag = slot.is_flag or "causal" in slot.name
            fits = flag if form.kind == "flag" else not slot.is_flag
            known = {o.form.meaning for o in good} & {*SAME.get(form.meaning[:4], ())}
            padding = slot.name == "key_padding_mask" and len(form.axes) > 6  # torch's is (B, T)
            if fits and not known and not padding and (outcome := self._outcome(slot, form)):
                ran.append(outcome)
                good += [outcome] * bool(outcome.agrees and not outcome.differs)
        if not ran or ELSEWHERE.search(slot.name):
            where = ": ".join(filter(None, (slot.said, self.errors.get(slot))))
            return Taken(slot, findings=[Finding("mask_untried", where)] * slot.named)
        if not good:
            return self._not_taken(ran)
        rest = [o for o in ran if o not in good]
        nothing = self.blocked["heads"]["nothing"]  # in evaluation fused kernels ask for less
        runs = [self._run({slot: o.form.mask(nothing)}, training=True) is not None for o in good]
        good = [o for o, trained in zip(good, runs, strict=True) if trained] or good
        flag, forms = good[0].form.kind == "flag", [o.form for o in good]
        lost = self.c.causal and not (good[0].causal or slot.given or flag)
        found = [*[Finding("causality_lost", slot.said)] * lost, *self._wrong(good, rest)]
        if any(not f.partly and f.name != "causality_lost" for f in found):
            return Taken(slot, forms, found)
        found += self._further({o.form.kind: o for o in reversed(good)}.values())
        return Taken(slot, forms, found, [] if flag else [self._without_a_key(good[0])])

    def _not_taken(self, ran: list[Outcome]) -> Taken:
        slot, open_ = ran[0].slot, self._open(ran[0].causal)
        if not slot.named:
            changes = any(not self._fits(open_, y) for o in ran for y in o.outputs.values())
            return Taken(slot, notes=[f"Not tried: {slot.said}."] * changes)
        for o in ran if "quer" in slot.name else ():
            each = [(y, self.blocked["keys"][what][:, 0, 0]) for what, y in o.outputs.items()]
            if o.form.kind == "keys" and all(self._fits(open_, y, ~b) for y, b in each):
                return Taken(slot, notes=[f"What {slot.said} masks are queries."])
        return Taken(slot, findings=[self._mistake(sorted(ran, key=lambda o: -len(o.agrees)))])

    def _wrong(self, good: list[Outcome], rest: list[Outcome]) -> Iterator[Finding]:
        """A form that runs and is wrong is a finding, whatever other form fits."""
        meanings, axes = {o.form.meaning for o in good}, {o.form.axes for o in good}
        most = max(one.count(",") for one in axes)  # what has more axes was not made for it
        odd = [o for o in rest if o.form.axes not in {*axes, *ODD_AXES}]
        odd = [o for o in odd if o.form.meaning in meanings and o.form.meaning[:4] != "1 = "]
        if odd := [o for o in odd if o.form.axes.count(",") <= most]:
            yield self._mistake(odd)
        added = [o for o in rest if o.form.meaning in BOOLS and o.form.axes in axes]
        if added and not meanings & BOOLS.keys():
            found = self._mistake(added)
            name = "mask_added" if found.name == "mask_unknown" else found.name
            yield found._replace(name=name, partly=True)
        slot, turned = good[0].slot, "False = causal" in meanings
        if turned and "causal" in slot.name and not re.search("no|un|bi", slot.name):
            yield Finding("flag_inverted", slot.said)

    def _mistake(self, ran: list[Outcome]) -> Finding:
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

        causal, call = ran[0].causal, self._smallest(ran[0])
        for name, base in {"mask_dropped": causal, "mask_made_causal": True}.items():
            if all(self._fits(self._open(base), y) for o in ran for y in o.outputs.values()):
                return Finding(name, *call)
        ways = [(bug.name, "") for bug in BUGS.values() if bug.kind in ONES]
        each = ((least(*way, o), *way, o) for way in [*ways, ("", ">"), ("", "<")] for o in ran)
        most, name, sign, o = max(each, key=lambda found: found[0])
        if most >= self.subject.same:
            return Finding("mask_moved" if sign else name, *self._smallest(o))
        leaks = any(o.agrees for o in ran)
        for o in ran:  # or is nearer to what it must be than to what no mask would give
            what = next(w for w in ("keys at random", *o.outputs) if w in o.outputs)
            own, open_ = self._want(o.form.kind, what, o.causal), self._open(o.causal)
            leaks |= bool((o.outputs[what] - own).norm() < 0.8 * (open_ - own).norm())
        return Finding("mask_leaks" if leaks else "mask_unknown", *call)

    def _differing(self, o: Outcome, x: Tensor, what: str = MIXED, training: bool = False) -> str:
        """The call, in words, if it gives something else than it must with this mask, or ""."""
        blocked = mixed(patterns(o.form.kind, len(x), self.h, x.shape[1]), what)
        (total, rows), mask = o.form.total(blocked, o.causal), o.form.mask(blocked)
        y = self._run({o.slot: mask}, x, training)
        if y is None or self._fits(self.c.masked(x, total), y, rows):
            return ""
        given = f"{(*mask.shape,)} on {what}" if isinstance(mask, Tensor) else f"= {mask}"
        return f"x {(*x.shape,)}, {o.slot.said} {given}"

    def _smallest(self, o: Outcome) -> tuple[str, str]:
        """The place and axes, and the smallest call that differs, in words."""
        each = product(SMALLEST, o.differs or o.outputs)
        xs = ((shipped.draw(*size, self.d_model, seed=sum(size)), what) for size, what in each)
        return o.where, next(filter(None, (self._differing(o, *x) for x in xs)), "")

    def _further(self, good: Collection[Outcome]) -> Iterator[Finding]:
        """The first of other sizes, or of large scores, where what is blocked takes part."""
        for size, o, mode in product(SIZES, good, self.modes):
            x = shipped.draw(*size, self.d_model, seed=sum(size))
            if (size[1] <= LONG or not mode) and (call := self._differing(o, x, training=mode)):
                yield Finding("mask_leaks", o.where, f"{call}, in {MODES[mode]}")
                return
        last = (torch.arange(2) == 1).expand(64, self.h, 2, 2)  # of two tokens
        for o in good if not self.subject.coarse else ():
            mask = {o.slot: o.form.mask(last)}
            if score := leak(self.c, lambda x, mask=mask: self._run(mask, x)):
                yield Finding("fill_too_high", o.where, f"x where scores reach {score:,.0f}")
                return
        blocked = mixed(self.blocked[o.form.kind])
        self._run({o.slot: (mask := o.form.mask(blocked))})
        if isinstance(mask, Tensor) and not torch.equal(mask, o.form.mask(blocked)):
            yield Finding("mask_changed", o.slot.said)

    def _without_a_key(self, o: Outcome) -> str:
        """What the last query of the first sequence gets if every key is blocked."""
        first = (torch.arange(self.B) == 0)[:, None, None, None] | (o.form.kind == "pairs")
        blocked = first | self.blocked["pairs"]["nothing"]
        y = self._run({o.slot: o.form.mask(blocked)})
        none, values = self.c.masked(self.x, blocked), self.c.layer("v")(self.x)
        mean = self.c.layer("o")(values.mean(1, keepdim=True)).expand_as(none)
        each = {"NaN": none * torch.nan, "W^O's bias": none, "the mean of all values": mean}
        if y is None:
            return f"With {o.slot.said} a row without a key raises an error."
        fits = (n for n, z in each.items() if torch.allclose(y[0, -1], z[0, -1], equal_nan=True))
        return f"With {o.slot.said} a row without a key gives {next(fits, 'something else')}."

    def _hint(self, flag: Slot, good: list[Taken]) -> Taken | None:
        """Of a flag that raises an error without a mask beside it, and does no more than one."""
        off, on = (self._run({**self.unmasked, flag: on}, training=True) for on in (False, True))
        if off is None or on is not None:
            return None
        for beside in (t for t in good if t.forms[0].kind == "pairs"):
            mask = beside.forms[0].mask(self.later.expand(1, 1, -1, -1))
            y = self._run({beside.slot: mask, flag: True})
            if y is not None and self._fits(self._open(True), y):
                return Taken(flag, [Form("", "True = causal, beside a causal mask")])
        untried = Finding("mask_untried", f"{flag.said}: {self.errors.get(flag, '')}")
        return Taken(flag, findings=[untried] * flag.named)

    def _both(self, one: Taken, other: Taken) -> Taken:
        """Two at once block what either blocks; or one takes the other's place."""
        form, beside, nothing = one.forms[0], other.forms[0], self.blocked["pairs"]["nothing"]
        part = mixed(self.blocked[form.kind])
        more = mixed(self.blocked[beside.kind], "left padding")
        y = self._run({one.slot: form.mask(part), other.slot: beside.mask(more)})
        base = self._run({one.slot: form.mask(nothing), other.slot: beside.mask(nothing)})
        both = f"{one.slot.said} and {other.slot.said}"
        if y is None or base is None:
            return Taken(one.slot, notes=[f"Not tried together: {both}."])
        causal = self.c.causal and self._fits(self._open(True), base)
        rows = form.total(part, True)[1] & beside.total(more, True)[1]
        rows = rows & _with_a_key(part | more | self.later)

        def is_(blocked: Tensor) -> bool:
            total = blocked | self.later if causal else blocked
            return self._fits(self.c.masked(self.x, total), y, rows)

        lost = any(f.name == "causality_lost" for t in (one, other) for f in t.findings)
        if lost or is_(part | more):
            return Taken(one.slot)
        name, where = "masks_apart", both
        for kept, dropped, blocked in ((one, other, part), (other, one, more)):
            if is_(blocked):
                name, where = "mask_dropped", f"{dropped.slot.said} beside {kept.slot.said}"
                if dropped.forms[0].kind == "flag":
                    name, where = "causality_lost", kept.slot.said
        return Taken(one.slot, findings=[Finding(name, where)])


def _with_a_key(blocked: Tensor) -> Tensor:
    """The queries (B, T) that have one in every head."""
    return ~blocked.all(-1).any(1)
