"""Masks of a module's signature: which it takes, by which convention, and what comes of them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_course.collection import shipped
from mha_course.comparison.handed import ELSEWHERE, Slot
from mha_course.comparison.subject import Subject

Run = Callable[[Tensor, Tensor | None, str], Tensor]  # x, blocked, a mistake or "right": its output
AXES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {  # of what, and blocked pairs → its axes
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
}
MEANINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "True = blocked": lambda b: b,
    "True = keep": lambda b: ~b,
    "1 = blocked": lambda b: b.double(),
    "1 = keep": lambda b: (~b).double(),
    "-inf added to the scores": lambda b: _added(b, -torch.inf),
    "-1e9 added to the scores": lambda b: _added(b, -1e9),
}
LENGTHS, FLAG, NO_FLAG = "lengths", "True = causal", "False = not causal"
SIZES = ((1, 2), (4, 16), (2, 17), (5, 8), (2, 33), (3, 64), (1, 128))
SCALES = (2, 4, 6, 16, 128, 1024)
FEW = 100  # scores below which a trained model's may not stay
BATCHED = ("sequences", "keys")  # with an axis of length 1 in front another rank may fit
ONES = ("mask applied", "mask filled", "mask repeated", "mask built", "mask convention")
OWN = {  # what a mask can do wrong, beside the published mistakes
    "mask_leaks": "What is blocked still takes part, if less.",
    "mask_made_causal": "Any mask that is given becomes the causal one, whatever it blocks.",
    "mask_unknown": "A mask changes the outputs, but blocks by no convention that was tried.",
    "mask_untried": "It raised an error whatever was tried, so *right* would say too much.",
}


class Form(NamedTuple):
    """A mask as one may be handed over."""

    axes: str
    meaning: str

    def mask(self, blocked: Tensor) -> Any:
        """The mask that blocks these pairs (B, h, T, T)."""
        if self.meaning in (FLAG, NO_FLAG):
            return self.meaning == FLAG
        if self.meaning == LENGTHS:
            return (~blocked[:, 0, 0]).sum(-1)
        return MEANINGS[self.meaning](AXES[self.axes][1](blocked)).clone()

    @property
    def kind(self) -> str:
        return {LENGTHS: "lengths", FLAG: "causal", NO_FLAG: "none"}.get(
            self.meaning, AXES.get(self.axes, ("",))[0]
        )


class Taken(NamedTuple):
    """What a module makes of one mask parameter.

    Attributes:
        slot: the parameter.
        forms: those in which it blocks what it should; the first is tried further.
        found: a mistake, one of `OWN`, or "".
        notes: sentences about it.
    """

    slot: Slot
    forms: tuple[Form, ...] = ()
    found: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        meanings = dict.fromkeys(form.meaning for form in self.forms)
        each = [f"{m} {_listed([f.axes for f in self.forms if f.meaning == m])}".strip()
                for m in meanings]  # fmt: skip
        return f"{self.slot.said} ({'; '.join(each)})"


def _added(blocked: Tensor, value: float) -> Tensor:
    return torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, value)


def _listed(axes: list[str]) -> str:
    parts = (", ".join(axes[:-1]), *axes[-1:])
    return " or ".join(part for part in parts if part)


def blocked_pairs(kind: str, B: int, h: int, T: int, seed: int = 0) -> Tensor:
    """(B, h, T, T), True = blocked; every query keeps a key, under a causal mask, too."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "causal" or kind == "none":
        return torch.ones(B, h, T, T, dtype=torch.bool).triu(1) & (kind == "causal")
    if kind == "lengths":
        lengths = 1 + torch.arange(B) * (T - 1) // max(B - 1, 1)
        return (torch.arange(T) >= lengths[:, None])[:, None, None].expand(B, h, T, T)
    axes = {"pairs": (1, 1, T, T), "sequences": (B, 1, T, T), "keys": (B, 1, 1, T),
            "heads": (B, h, T, T)}[kind]  # fmt: skip
    blocked = torch.rand(axes, generator=generator) < 0.5
    if kind == "keys":
        blocked[..., 0] = False
        blocked[..., 1:2] = True  # in every sequence one at least
    else:
        blocked.diagonal(dim1=-2, dim2=-1).fill_(False)
    return blocked.expand(B, h, T, T)


class Masks:
    """Tries what may be a mask, one parameter after the other, beside a right class."""

    def __init__(
        self,
        subject: Subject,
        right: Run,
        score: Callable[[Tensor], float],
        below: float,
        d_model: int,
        h: int,
        causal: bool,
        modes: Sequence[bool],  # in training only where the module draws nothing by itself
    ) -> None:
        self.subject, self.right, self.score, self.below = subject, right, score, below
        self.d_model = d_model
        self.h, self.causal, self.same, self.modes = h, causal, subject.same, modes
        self.B = 2 if h != 2 else 3  # neither h nor T, which broadcasting would take for it
        self.T = 5 if h != 5 else 6
        self.x = shipped.draw(self.B, self.T, d_model, seed=5)
        self.errors = dict[Slot, str]()

    def taken(self, slots: list[Slot]) -> Iterator[Taken]:
        """What comes of each; flags that want a mask beside them are tried with one."""
        good, later = list[Taken](), list[Slot]()
        for slot in slots:
            taken = self._try(slot, {})
            if taken.found == "mask_untried" and isinstance(slot.default, bool):
                later.append(slot)
                continue
            good += [taken] * bool(taken.forms)
            yield taken
        for slot in later:
            beside = next((t.slot for t in good if any(f.axes == "(T, T)" for f in t.forms)), None)
            meaning = next((f.meaning for t in good if t.slot == beside for f in t.forms), "")
            form = Form("(T, T)", meaning)
            others = {} if beside is None else {beside: form.mask(self._blocked("causal"))}
            yield self._try(slot, others)
        if len(good) > 1:
            yield from self._together(good)

    def _blocked(self, kind: str) -> Tensor:
        return blocked_pairs(kind, self.B, self.h, self.T)

    def _output(
        self, slot: Slot, form: Form, others: dict[Slot, Any], blocked: Tensor | None = None
    ) -> Tensor | None:
        blocked = self._blocked(form.kind) if blocked is None else blocked
        try:
            if form.meaning == FLAG:  # a hint beside a mask may only be asked for it in training
                self.subject(self.x, True, {slot: True, **others})
            return self.subject(self.x, False, {slot: form.mask(blocked), **others})
        except ValueError as error:
            cause = error.__cause__ or error
            said = (str(cause).splitlines() or [""])[0][:100]
            self.errors.setdefault(slot, f"{type(cause).__name__}: {said}")
            return None

    def _forms(self, slot: Slot) -> Iterator[Form]:
        flag = isinstance(slot.default, bool)
        if flag or "causal" in slot.name:
            yield Form("", NO_FLAG if slot.default is True else FLAG)
        if not flag:
            axes = ["(B, T)"] if slot.name == "key_padding_mask" else AXES  # torch's name for it
            yield from (Form(some, m) for m, some in product(MEANINGS, axes))
            yield Form("(B,)", LENGTHS)

    def _try(self, slot: Slot, others: dict[Slot, Any]) -> Taken:
        good, ran = list[Form](), dict[Form, Tensor]()
        if slot.default is True and not self.causal:
            return Taken(slot, (), "mask_dropped") if slot.named else Taken(slot)
        for form in self._forms(slot):
            boolean = {f.meaning for f in good}
            if form.meaning.startswith("1 = ") and boolean & {"True = blocked", "True = keep"}:
                continue
            if form.meaning.startswith("-1e9") and "-inf added to the scores" in boolean:
                continue
            if (y := self._output(slot, form, others)) is not None:
                ran[form] = y
                if self._agrees(y, form):
                    good.append(form)
        if good:
            return self._tried_further(slot, good, ran, others)
        if not slot.named:
            note = () if not ran else (f"Not tried: {slot.said}.",)
            return Taken(slot, notes=note if self._matters(ran) else ())
        if not ran or ELSEWHERE.search(slot.name):
            why = f": {self.errors[slot]}" if slot in self.errors else ""
            return Taken(slot, (), "mask_untried", (f"{slot.said} could not be tried{why}.",))
        return Taken(slot, (), self._mistake(ran))

    def _matters(self, ran: dict[Form, Tensor]) -> bool:
        open_ = self.right(self.x, None, "right")
        return any(_digits(y, open_) < self.same for y in ran.values())

    def _agrees(self, y: Tensor, form: Form, mistake: str = "right") -> bool:
        blocked = self._blocked(form.kind)
        own = self.right(self.x, None if form.kind == "none" else blocked, mistake)
        if _digits(own, y) >= self.same:
            return True
        rows = ~blocked[:, 0, 0]  # where padding asks, some classes give something else
        return form.kind in ("keys", "lengths") and _digits(own[rows], y[rows]) >= self.same

    def _mistake(self, ran: dict[Form, Tensor]) -> str:
        """Which one explains what came out of all these."""
        open_ = self.right(self.x, None, "right")
        if all(_digits(y, open_) >= self.same for y in ran.values()):
            return "mask_dropped"
        causal = self.right(self.x, self._blocked("causal"), "right")
        if all(_digits(y, causal) >= self.same for y in ran.values()):
            return "mask_made_causal"
        names = [
            b.name for b in shipped.bugs().values() if b.base == "Attention" and b.kind in ONES
        ]
        fit = {
            name: _digits(self.right(self.x, self._blocked(form.kind), name), y)
            for name in names
            for form, y in ran.items()
            if form.kind != "none" and self._agrees(y, form, name)
        }
        if fit:
            return max(fit, key=lambda name: fit[name])
        for form, y in ran.items():
            if form.kind not in ("none", "heads"):
                own = self.right(self.x, self._blocked(form.kind), "right")
                if (y - own).norm() < 0.5 * (open_ - own).norm():
                    return "mask_leaks"
        return "mask_unknown"

    def _tried_further(
        self, slot: Slot, good: list[Form], ran: dict[Form, Tensor], others: dict[Slot, Any]
    ) -> Taken:
        good = [form for form in good if self._trains(slot, form, others)] or good
        meanings = {form.meaning for form in good}
        most = self._axes(slot, good[0], others)  # a mask of more has made a mess of them
        odd = {form: y for form, y in ran.items() if form not in good and form.kind in BATCHED
               and form.meaning in meanings and not form.meaning.startswith("1 = ")
               and self._axes(slot, form, others) <= most}  # fmt: skip
        if odd:
            axes = _listed([form.axes for form in odd])
            return Taken(slot, (*good,), self._mistake(odd),
                         (f"{slot.said} of axes {axes} is taken for something else.",))  # fmt: skip
        if part := self._part(slot, good, others):
            return Taken(slot, (*good,), *part)
        return Taken(slot, (*good,), notes=(*self._without_a_key(slot, good, others),))

    def _axes(self, slot: Slot, form: Form, others: dict[Slot, Any]) -> int:
        """The most that anything has on the way."""
        with _Ranks() as ranks:
            self._output(slot, form, others)
        return ranks.most

    def _trains(self, slot: Slot, form: Form, others: dict[Slot, Any]) -> bool:
        """Whether it is taken in training, too: in evaluation fused kernels ask for less."""
        try:
            self.subject(self.x, True, {slot: form.mask(self._blocked(form.kind)), **others})
        except ValueError:
            return False
        return True

    def _part(
        self, slot: Slot, good: list[Form], others: dict[Slot, Any]
    ) -> tuple[str, tuple[str, ...]] | None:
        """Where it does not hold: at other sizes, in training, with large scores."""
        kinds = {form.kind: form for form in reversed(good)}.values()  # the first of each kind
        for (B, T), form in product(SIZES, kinds if not others else ()):
            x, blocked = shipped.draw(B, T, self.d_model, seed=B + T), None
            blocked = blocked_pairs(form.kind, B, self.h, T, seed=T)
            mask = form.mask(blocked)
            before = mask.clone() if isinstance(mask, Tensor) else None
            own = self.right(x, None if form.kind == "none" else blocked, "right")
            rows = ~blocked[:, 0, 0] if form.kind in ("keys", "lengths") else slice(None)
            for training in self.modes:
                try:
                    y = self.subject(x, training, {slot: mask})
                except ValueError:
                    continue
                if before is not None and not torch.equal(mask, before):
                    return "mask_leaks", (f"{slot.said} is changed in place.",)
                if _digits(own[rows], y[rows]) < self.same:
                    mode = "training" if training else "evaluation"
                    return "mask_leaks", (f"With {slot.said}, B = {B} and T = {T}, in {mode}, it "
                                          "gives something else.",)  # fmt: skip
        for size, form in product(SCALES if not self.subject.coarse else (), kinds):
            x, blocked = self.x * size, self._blocked(form.kind)
            if form.kind == "none" or form.meaning.startswith("-1e9") or self.score(x) > self.below:
                continue
            y = self.subject(x, False, {slot: form.mask(blocked), **others})
            own = self.right(x, blocked, "right")
            rows = ~blocked[:, 0, 0] if form.kind in ("keys", "lengths") else slice(None)
            if _digits(own[rows], y[rows]) < self.same:
                if _digits(self.right(x, blocked, "fill_too_high"), y) >= self.same:
                    return "fill_too_high", ()
                score = self.score(x)
                note = (
                    f"With {slot.said} what is blocked takes part where scores reach {score:,.0f}."
                )
                return ("mask_leaks" if score < FEW else ""), (note,)
        return None

    def _without_a_key(
        self, slot: Slot, good: list[Form], others: dict[Slot, Any]
    ) -> Iterator[str]:
        """What the last query gets if every key is blocked."""
        form = next((f for f in good if f.kind in ("pairs", "sequences", "heads")), None)
        if form is None:
            return
        blocked = self._blocked(form.kind).clone()
        blocked[:, :, -1] = True
        if (y := self._output(slot, form, others, blocked)) is None:
            yield f"With {slot.said} a row without a key raises an error."
            return
        mean = self.right(self.x, None, "mean")[:, -1]
        none = self.right(self.x, blocked, "right")[:, -1]
        row = y[:, -1]
        what = ("NaN" if row.isnan().any() else "W^O's bias" if _digits(none, row) >= self.same
                else "the mean of all values" if _digits(mean, row) >= self.same
                else "something else")  # fmt: skip
        yield f"With {slot.said} a row without a key gives {what}."

    def _together(self, good: list[Taken]) -> Iterator[Taken]:
        """All at once block what any of them blocks."""
        blocked, masks = self._blocked("causal" if self.causal else "none"), dict[Slot, Any]()
        for taken in good:
            form = taken.forms[0]
            if form.kind != "none":
                pairs = self._blocked(form.kind)
                blocked, masks[taken.slot] = blocked | pairs, form.mask(pairs)
        names = " and ".join(slot.said for slot in masks)
        if len(masks) < 2:
            return
        try:
            y = self.subject(self.x, False, masks)
        except ValueError:
            yield Taken(good[0].slot, notes=(f"Not tried together: {names}.",))
            return
        own = self.right(self.x, blocked, "right")
        rows = ~blocked.all(-1)[:, 0] & own.isfinite().all(-1)
        if _digits(own[rows], y[rows]) < self.same:
            one_wins = any(taken.forms[0].meaning == FLAG for taken in good)  # a flag may yield
            found = "" if one_wins else "mask_unknown"
            yield Taken(good[0].slot, (), found, (f"Together {names} do not add up.",))


class _Ranks(TorchFunctionMode):
    most = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.most = max(self.most, out.ndim if isinstance(out, Tensor) else 0)
        return out


def _digits(own: Tensor, y: Tensor) -> float:
    """To how many digits two outputs agree."""
    if not y.numel():
        return 16.0
    far = ((own - y).abs().max() / own.abs().max().clamp(min=1e-300)).item()
    return float(-torch.tensor(max(far, 1e-16)).log10()) if far == far and far < 1e300 else 0.0
