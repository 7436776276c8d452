"""What notebook 14 computes with its model, stored for machines that do not have the weights."""

import json
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from mha_lesson.text import data_file
from mha_lesson.weights import WeightsMissing

FILE = "writing.json"
recorded: dict[str, Any] = {}  # of this process: `data/make_writing.py` writes it down


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; without the weights, what it gave before for the same arguments.

    Arguments and result are words, numbers and lists of them. Numbers are rounded alike in both
    cases.
    """

    @wraps(function)
    def given(*args: Any) -> Any:
        key = f"{function.__name__} {json.dumps(args, ensure_ascii=False)}"
        try:
            result = _plain(function(*args))
        except WeightsMissing:
            if key not in stored():
                raise
            return stored()[key]
        recorded[key] = result
        return result

    return given


@cache
def stored() -> dict[str, Any]:
    return json.loads(data_file(FILE).read_text(encoding="utf-8"))


def _plain(x: Any) -> Any:
    """As it comes out of JSON, with five figures."""
    return json.loads(json.dumps(x), parse_float=lambda digits: float(f"{float(digits):.5g}"))
