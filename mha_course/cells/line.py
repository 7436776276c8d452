"""A line that the learner writes into a cell of the open thread, judged in a sentence."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_handed: dict[str, Tensor] = {}  # what stands in a line's place since its check ran


def check_line(
    name: str, names: Mapping[str, Any], right: Tensor, mistakes: Mapping[str, Tensor]
) -> Tensor:
    """Prints whether the line is right, or which mistake it makes; gives what is right, to go on.

    Args:
        name: what the line defines.
        names: the notebook's, where it need not be: a cell that fails defines nothing.
        right: what it should hold.
        mistakes: in a few words each, and what it would give.
    """
    print(_said(name, names.get(name), right, mistakes))
    _handed[name] = right
    return right


def _said(name: str, yours: Any, right: Tensor, mistakes: Mapping[str, Tensor]) -> str:
    if yours is None or yours is _handed.get(name):
        return f"○ {name}: first run the cell above, to its end"
    if yours is ...:
        return f"○ {name}: not written yet; the course's own stands in"
    if not isinstance(yours, Tensor) or yours.shape != right.shape:
        came = tuple(yours.shape) if isinstance(yours, Tensor) else f"no tensor but {yours!r:.30}"
        return f"✗ {name}: a tensor of shape {tuple(right.shape)} is asked for, this is {came}"
    yours = yours.to(right)
    for does, gives in mistakes.items():
        if torch.allclose(yours, gives, atol=1e-4) and not torch.allclose(gives, right, atol=1e-4):
            return f"✗ {name}: {does}"
    if torch.allclose(yours, right, atol=1e-4):
        return f"✓ {name}: right"
    return f"✗ {name}: the shape is right, the numbers are not. What goes into the line above it?"
