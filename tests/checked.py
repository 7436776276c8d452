"""The type checker that pytest puts around every function of the package (see conftest.py).

jaxtyping compares axes from argument to argument, and takes ten times as long as beartype alone; so
it looks at the functions that name axes, and beartype alone at all others. Beartype writes a
wrapper for each function, which takes longer than most calls: it is written when the function is
first called, and one inside another, defined anew at each call of that one, gets the same again.

The package's modules import functions from each other before any test runs. So a function stays the
object that it is: its wrapper stands in for its code, and leaves it again for tests that are plain.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import update_wrapper, wraps
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Self

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

check_annotations = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # as type checkers read it: where a float is wanted an int will do
        hint_overrides=FrozenDict({Self: Any}),  # methods are checked one by one
    )
)
_with_axes = jaxtyping.jaxtyped
_written: dict[CodeType, tuple[dict[str, Any], Callable[..., Any], Callable[..., Any]]] = {}


class Body(NamedTuple):
    """What a function runs."""

    code: CodeType
    defaults: tuple[Any, ...] | None
    kwdefaults: dict[str, Any] | None


_bodies: list[tuple[FunctionType, Body, Body]] = []  # as it was written, and with its wrapper


def install() -> None:
    """Has the modules of the package checked that are imported from now on."""
    jaxtyping.jaxtyped = _checked  # its import hook writes @jaxtyping.jaxtyped(typechecker=…)
    jaxtyping.install_import_hook("mha_lesson", "checked.check_annotations")


def plain(wanted: bool) -> None:
    """Whether the package's functions run as they were written, with nothing checked."""
    if jaxtyping.config.jaxtyping_disable == wanted:
        return
    jaxtyping.config.update("jaxtyping_disable", wanted)
    for function, written, checked in _bodies:
        _run(function, written if wanted else checked)


def _run(function: FunctionType, body: Body) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = body


def names_axes(function: Callable[..., Any]) -> bool:
    """Whether an annotation, a string or not, reads like Float[Tensor, "B T"]."""
    annotations = inspect.get_annotations(function).values()
    return any(re.search(r"\w\[\w+, ['\"]", str(a)) for a in annotations)


def _checked(*, typechecker: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(thing: Any) -> Any:
        if inspect.isclass(thing):
            if is_dataclass(thing):
                thing.__init__ = decorate(thing.__init__)
            return thing
        if jaxtyping.config.jaxtyping_disable and "<locals>" in thing.__qualname__:
            return thing  # it will be gone when annotations are checked again
        if not (thing.__closure__ or "<locals>" in thing.__qualname__):
            return _with_stand_in(typechecker, thing)
        if names_axes(thing):
            return _with_axes(typechecker=typechecker)(thing)
        checked: Callable[..., Any] | None = None

        @wraps(thing)
        def either(*args: Any, **kwargs: Any) -> Any:
            nonlocal checked
            if jaxtyping.config.jaxtyping_disable:
                return thing(*args, **kwargs)
            checked = checked or _written_once(typechecker, thing)
            return checked(*args, **kwargs)

        return either

    return decorate


def _stand_in(*args: Any, _wrapper: Callable[..., Any], **kwargs: Any) -> Any:
    return _wrapper(*args, **kwargs)


def _with_stand_in(typechecker: Callable[..., Any], thing: FunctionType) -> FunctionType:
    """The same function, which calls its wrapper around a copy of what it was."""
    body = Body(thing.__code__, thing.__defaults__, thing.__kwdefaults__)
    copy = FunctionType(thing.__code__, thing.__globals__)
    _run(copy, body)
    update_wrapper(copy, thing)
    del copy.__wrapped__

    def first(*args: Any, **kwargs: Any) -> Any:
        check = _with_axes(typechecker=typechecker) if names_axes(copy) else typechecker
        called["_wrapper"] = checked = check(copy)
        return checked(*args, **kwargs)

    called: dict[str, Any] = {"_wrapper": first}
    wrapped = Body(_stand_in.__code__, None, called)
    thing.__wrapped__ = copy
    _bodies.append((thing, body, wrapped))
    _run(thing, body if jaxtyping.config.jaxtyping_disable else wrapped)
    return thing


def _written_once(typechecker: Callable[..., Any], thing: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its wrapper: a copy of the one for the first function of this code."""
    told, first, wrapper = _written.get(thing.__code__, (None, None, None))
    if first is None or told != thing.__annotations__:
        told = dict(thing.__annotations__)  # beartype reads strings, and puts types there
        wrapper = typechecker(thing)
        _written[thing.__code__] = told, thing, wrapper
        return wrapper
    if wrapper is first:  # nothing to check
        return thing
    made = FunctionType(wrapper.__code__, wrapper.__globals__, wrapper.__name__)
    kept = wrapper.__kwdefaults__.items()  # what it calls is among them
    made.__kwdefaults__ = {name: thing if value is first else value for name, value in kept}
    return made
