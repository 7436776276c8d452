"""Stored notebooks: what a cell is, as its tags and its code say."""

import re
from typing import Any

EXPLORER = re.compile(r"^explore\.\w+\(", re.M)  # a cell that shows a moving picture


def tagged(cell: Any, *tags: str) -> bool:
    """Whether a cell, as JSON or as nbformat reads it, has one of these tags."""
    return bool({*tags} & {*cell["metadata"].get("tags", ())})
