"""A function as it was typed into a notebook's cell: its text is in linecache, and in no file."""

import linecache
from collections.abc import Callable
from typing import Any


def typed(arguments: str, *lines: str, **names: Any) -> Callable[..., Any]:
    """`def answer(arguments):` with these lines; `names` are what other cells have left."""
    text = "\n    ".join((f"def answer({arguments}):", *lines)) + "\n"
    linecache.cache[text] = len(text), None, text.splitlines(keepends=True), text
    exec(compile(text, text, "exec"), names)
    return names["answer"]
