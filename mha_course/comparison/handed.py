"""What `call` hands to a module, by whatever method, and another mask handed over instead."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SAYS_MASK = re.compile("mask|causal|padding|pad$|valid|length|lens|keep|allowed|blocked|visible")
ELSEWHERE = re.compile("encoder|cross|memory|head_mask")  # masks of what self-attention has not
UNGIVEN = (None, True, False, inspect.Parameter.empty)  # defaults where a mask or flag may go
Given = Mapping["Slot", Any]  # what is handed over there


class Slot(NamedTuple):
    """A place for a mask: a parameter, or a part of what is handed over by it."""

    name: str
    path: tuple[Any, ...] = ()
    default: Any = None  # a flag's value, where `call` does not give another
    given: bool = False  # by `call`
    is_mask: bool = False  # whatever its name says
    numbers: bool = False  # whether `call` gives it a mask of numbers

    @property
    def said(self) -> str:
        inner = "".join(f"[{key!r}]" for key in self.path)
        return f"`{self.name}{inner}`"

    @property
    def is_flag(self) -> bool:
        return isinstance(self.default, bool)

    @property
    def named(self) -> bool:
        says = SAYS_MASK.search(" ".join(map(str, (self.name, *self.path))).lower())
        return self.is_mask or bool(says)


class Entry(NamedTuple):
    """The method that `call` calls, and with what."""

    where: tuple[int, str]
    parameters: Mapping[str, inspect.Parameter]
    arguments: dict[str, Any]
    asked_for: list[str]  # strings of its code that say mask, which **kwargs may hold


class Handed:
    """Listens at the methods of a module and its parts; only the outermost call counts."""

    def __init__(self, module: nn.Module) -> None:
        self.depth, self.entries = 0, list[Entry]()
        self.instead: Given = {}
        self.entry: Entry | None = None
        for part in module.modules():
            own = type(part).__mro__[: type(part).__mro__.index(nn.Module)]
            inner = type(part).__module__.startswith("torch.nn.modules")
            if inner and not isinstance(part, nn.MultiheadAttention):
                continue
            for name in {n for cls in own for n in vars(cls) if not n.startswith("__")}:
                method = inspect.getattr_static(part, name)
                if isinstance(method, FunctionType):
                    part.__dict__[name] = self._listening(part, name, method)

    def _listening(self, part: nn.Module, name: str, method: FunctionType) -> Callable[..., Any]:
        signature, where = inspect.signature(method), (id(part), name)
        words = (c for c in method.__code__.co_consts if isinstance(c, str) and c.isidentifier())
        asked_for = [word for word in words if SAYS_MASK.search(word)]

        @wraps(method)
        def listening(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return method(part, *args, **kwargs)
            self.depth += 1
            try:
                bound = signature.bind(part, *args, **kwargs)
                entry = Entry(where, signature.parameters, dict(bound.arguments), asked_for)
                self.entries.append(entry)
                if self.entry and self.entry.where == where:
                    for slot, value in self.instead.items():
                        _put(bound.arguments, slot, value, signature.parameters[slot.name])
                return method(*bound.args, **bound.kwargs)
            finally:
                self.depth -= 1

        return listening

    def heard(self, x: Tensor) -> list[Slot]:
        """Places for masks in the call just made, of the first method that has any."""
        each = ((entry, [*_slots(entry, x)]) for entry in self.entries)
        self.entry, slots = next((pair for pair in each if pair[1]), (None, []))
        return slots


def _slots(entry: Entry, x: Tensor) -> Iterator[Slot]:
    for p in [*entry.parameters.values()][1:]:
        value, named = entry.arguments.get(p.name), bool(SAYS_MASK.search(p.name.lower()))
        for path, inner in _leaves(value):
            if isinstance(inner, Tensor):
                numbers, lengths = inner.is_floating_point(), inner.shape == x.shape[:1]
                square = inner.shape[-2:] == (x.shape[1], x.shape[1]) and inner.shape != x.shape
                is_mask = inner.dtype == torch.bool or (square and len(inner.unique()) > 1)
                tokens = inner.shape == x.shape[:2] or (lengths and not numbers)
                if named or is_mask or tokens:
                    yield Slot(p.name, path, None, True, is_mask, numbers)
        if p.kind == p.VAR_KEYWORD:
            yield from (Slot(p.name, (n,)) for n in entry.asked_for if n not in (value or {}))
        elif value is None and isinstance(p.default, Tensor):
            yield from [Slot(p.name)] * named
        elif value is None and p.kind != p.VAR_POSITIONAL and p.default in UNGIVEN:
            yield Slot(p.name, default=p.default)
        elif isinstance(value, bool) and named:
            yield Slot(p.name, default=value, given=True)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    held = dict(enumerate(value)) if isinstance(value, tuple | list) else value
    if not isinstance(held, dict):
        yield path, value
        return
    for key, inner in held.items():
        yield from _leaves(inner, (*path, key))


def _put(arguments: dict[str, Any], slot: Slot, new: Any, p: inspect.Parameter) -> None:
    def within(value: Any, path: tuple[Any, ...]) -> Any:
        if not path:
            return new(value) if callable(new) else new
        key, *rest = path
        if isinstance(value, dict):
            return {**value, key: within(value.get(key), (*rest,))}
        parts = [within(v, (*rest,)) if i == key else v for i, v in enumerate(value)]
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)

    empty = {} if p.kind == p.VAR_KEYWORD else None
    arguments[slot.name] = within(arguments.get(slot.name, empty), slot.path)
