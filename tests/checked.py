"""The type checker that pytest puts around every function of the package (see conftest.py).

jaxtyping compares axes from argument to argument, and takes ten times as long as beartype alone; so
it looks at the functions that name axes, and beartype alone at all others.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, Self

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

check_annotations = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # as mypy reads it: where a float is wanted an int will do
        hint_overrides=FrozenDict({Self: Any}),  # methods are checked one by one
    )
)
_with_axes = jaxtyping.jaxtyped


def install() -> None:
    """Has the modules of the package checked that are imported from now on."""
    jaxtyping.jaxtyped = _checked  # its import hook writes @jaxtyping.jaxtyped(typechecker=…)
    jaxtyping.install_import_hook("mha_lesson", "checked.check_annotations")


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
        if names_axes(thing):
            return _with_axes(typechecker=typechecker)(thing)
        checked = typechecker(thing)

        @wraps(thing)
        def either(*args: Any, **kwargs: Any) -> Any:
            return (thing if jaxtyping.config.jaxtyping_disable else checked)(*args, **kwargs)

        return either

    return decorate
