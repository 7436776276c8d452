"""Exercise 11: why a class cannot be built or called, where its own lines show it."""

import ast
from difflib import get_close_matches
from typing import Any

from torch import nn

from mha_course.engine.report import Finding
from mha_course.engine.safely import Returned, run, safe_text
from mha_course.engine.source import Source

CALLED = {  # a class's methods that others call by name, and who does
    "forward": "torch calls only what is spelled `forward`",
    "__init__": "Python calls only what is spelled `__init__`, two underscores on either side",
}


def in_its_lines(cls: Any) -> Finding | None:
    """A method that is misspelt, indented too far, or lacks `self`; layers made at every call."""
    source = Source(cls)
    top = next(iter(getattr(source.tree, "body", ())), None)
    if not isinstance(top, ast.ClassDef):
        return None
    methods = [node for node in top.body if isinstance(node, ast.FunctionDef)]
    for name, who in CALLED.items():
        if finding := _misses(name, who, methods, source) if _inherited(cls, name) else None:
            return finding
    for method in methods:
        given = [*method.args.posonlyargs, *method.args.args]
        first = given[0].arg if given else ""
        if method.name in CALLED and not method.decorator_list and first in ("x", "d_model", ""):
            return Finding(
                "no_self",
                f"`{method.name}` (line {method.lineno}) has no `self` in front of its arguments: "
                "Python passes the module itself first, so every argument gets the place of the "
                "one before.",
                "What is the first argument of every method?",
            )
    return source.layer_in_forward(on_self=True)


def _inherited(cls: type, name: str) -> bool:
    """Whether the class itself has no such method, and whatever it inherits is torch's."""
    owner = next((c for c in cls.__mro__ if name in vars(c)), nn.Module)
    return owner.__module__.startswith("torch")


def _misses(name: str, who: str, methods: list[ast.FunctionDef], source: Source) -> Finding | None:
    for node in source.nodes(ast.FunctionDef):
        outer: Any = source.parents[node]
        if node.name == name and isinstance(outer, ast.FunctionDef):
            return Finding(
                "method_within",
                f"`{name}` (line {node.lineno}) is indented so far that it stands inside "
                f"`{outer.name}`: it is a part of that method, and the class has none of its own.",
                "How far to the right do the methods of a class begin?",
            )
    own = {method.name: method for method in methods}
    near = get_close_matches(name.strip("_"), [n.strip("_") for n in own], 1, 0.7)
    found = next((n for n in own if [n.strip("_")] == near), "")
    if found:
        does = f"The class has no `{name}`, only `{found}` (line {own[found].lineno}): {who}."
        return Finding("method_misspelt", does, "Which signs differ?")
    if name == "forward" and own:
        listed = ", ".join(f"`{n}`" for n in own)
        does = f"The class has no `forward`; its methods are {listed}. Calling a module runs "
        return Finding("no_forward", f"{does}`forward`.", "Which of yours does that work?")
    return None


def exchanged(cls: Any, given: tuple[Any, ...], codes: set[Any]) -> Finding | None:
    """Whether its sizes come out right once the first two arguments change places."""
    d_model, n_heads, *others = given
    outcome = run(cls, (n_heads, d_model, *others), codes)
    layer = getattr(outcome.value, "w_q", None) if isinstance(outcome, Returned) else None
    if not isinstance(layer, nn.Linear) or layer.in_features != d_model:
        return None
    return Finding(
        "arguments_exchanged",
        "Its layers have the right sizes once it is built with (n_heads, d_model): the exercise "
        "builds it with (d_model, n_heads).",
        "In which order does `__init__` of the stub name them?",
    )


def of_the_package(cls: type) -> Finding | None:
    """A class that is made from the package's own."""
    for base in cls.__mro__[1:]:
        home = safe_text(base.__module__, str)
        if home.startswith("mha_lesson.") and base.__name__ == cls.__name__:
            return Finding(
                "of_the_package",
                f"Your class inherits from the package's `{base.__name__}`, and runs its lines "
                "wherever yours do not say otherwise. The exercise asks for a class from the "
                "ground up.",
                "What stands in brackets behind the name of the class in the stub?",
            )
    return None
