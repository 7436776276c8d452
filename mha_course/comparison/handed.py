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
BOUND = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
OPEN = (None, True, False, inspect.Parameter.empty)  # defaults of what may be a mask or a flag


class Slot(NamedTuple):
    """A place for a mask: a parameter, or a part of what is handed over by it."""

    name: str
    path: tuple[Any, ...] = ()
    default: Any = None  # a flag's value, where `call` does not give another
    given: bool = False  # by `call`
    is_mask: bool = False  # whatever its name says

    @property
    def said(self) -> str:
        """Its name, for people."""
        inner = "".join(f"[{key!r}]" for key in self.path)
        return f"`{self.name}{inner}`"

    @property
    def named(self) -> bool:
        """Whether its name says that it is a mask."""
        says = SAYS_MASK.search(" ".join(map(str, (self.name, *self.path))).lower())
        return self.is_mask or bool(says)


class Entry(NamedTuple):
    """The method that `call` calls, and with what."""

    where: tuple[int, str]
    signature: inspect.Signature
    arguments: dict[str, Any]
    asked_for: tuple[str, ...]  # strings of its code that say mask, which **kwargs may hold


class Handed:
    """Listens at the methods of a module and its parts; only the outermost call counts."""

    def __init__(self, module: nn.Module) -> None:
        self.depth, self.entries = 0, list[Entry]()
        self.instead: Mapping[Slot, Any] = {}
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
        asked_for = tuple(word for word in words if SAYS_MASK.search(word))

        @wraps(method)
        def listening(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return method(part, *args, **kwargs)
            self.depth += 1
            try:
                bound = signature.bind(part, *args, **kwargs)
                self.entries.append(Entry(where, signature, dict(bound.arguments), asked_for))
                if self.instead and self.entry and self.entry.where == where:
                    for slot, value in self.instead.items():
                        _put(bound.arguments, slot, value, signature)
                    return method(*bound.args, **bound.kwargs)
                return method(part, *args, **kwargs)
            finally:
                self.depth -= 1

        return listening

    def heard(self, x: Tensor) -> Iterator[Slot]:
        """Places for masks in the call just made: those given first, then those left open."""
        found: list[Slot] = []
        for entry in self.entries:
            slots = [*_slots(entry, x)]
            if self.entry is None or (slots and not found):
                self.entry, found = entry, slots
        self.entries.clear()
        yield from found


def _is_mask(value: Any, x: Tensor) -> bool:
    """Whether it is one whatever its name says: of bools, or of tokens by tokens."""
    square = value.shape[-2:] == (x.shape[1], x.shape[1]) and value.shape != x.shape
    return bool(value.dtype == torch.bool or (square and len(value.unique()) > 1))


def _slots(entry: Entry, x: Tensor) -> Iterator[Slot]:
    _, *parameters = entry.signature.parameters.values()
    for p in parameters:
        value, named = entry.arguments.get(p.name), bool(SAYS_MASK.search(p.name.lower()))
        for path, inner in _leaves(value):
            if isinstance(inner, Tensor) and (named or _may_be_mask(inner, x)):
                yield Slot(p.name, path, None, True, _is_mask(inner, x))
        if p.kind == BOUND[1]:
            yield from (Slot(p.name, (n,)) for n in entry.asked_for if n not in (value or {}))
        elif value is None and isinstance(p.default, Tensor):
            yield from [Slot(p.name)] * named
        elif value is None and p.kind != BOUND[0] and p.default in OPEN:
            yield Slot(p.name, default=p.default)
        elif isinstance(value, bool) and named:
            yield Slot(p.name, default=value, given=True)


def _may_be_mask(value: Tensor, x: Tensor) -> bool:
    lengths = not value.is_floating_point() and value.shape == x.shape[:1]
    return _is_mask(value, x) or value.shape == x.shape[:2] or lengths


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, tuple | list):
        for i, inner in enumerate(value):
            yield from _leaves(inner, (*path, i))
    else:
        yield path, value


def _put(arguments: dict[str, Any], slot: Slot, new: Any, signature: inspect.Signature) -> None:
    def within(value: Any, path: tuple[Any, ...]) -> Any:
        if not path:
            return new(value) if callable(new) else new
        key, *rest = path
        if isinstance(value, dict):
            return {**value, key: within(value.get(key), (*rest,))}
        parts = [within(v, (*rest,)) if i == key else v for i, v in enumerate(value)]
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)

    empty = {} if signature.parameters[slot.name].kind == BOUND[1] else None
    arguments[slot.name] = within(arguments.get(slot.name, empty), slot.path)
