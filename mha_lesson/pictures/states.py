"""All states of an explorer in one parcel, from which a browser picks: no kernel is asked.

Python computes every state; the browser only looks up the one that its controls stand at.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np

from mha_lesson.pictures.panels import Scene

# For a control that depends on earlier ones, or has no list of its own: from their values to its
# positions, values or (label, value) pairs. Fewer positions are always the first of the others.
Reach = Mapping[str, Callable[..., Sequence[Any]]]
HeaderOf = Callable[[Scene, "Values"], dict[str, Any]]


class Values:
    """Arrays one after the other, in float32; equal ones once."""

    def __init__(self) -> None:
        self.spans: dict[bytes, list[int]] = {}
        self.size = 0

    def put(self, array: np.ndarray) -> list[int]:
        """Where the array stands: [offset, length]."""
        raw = np.asarray(array, np.float32).tobytes()
        if raw not in self.spans:
            self.spans[raw] = [self.size, len(raw) // 4]
            self.size += len(raw) // 4
        return self.spans[raw]

    def bytes(self) -> bytes:
        return b"".join(self.spans)


def parcel(
    controls: Mapping[str, widgets.Widget],
    reach: Reach,
    scene_at: Callable[..., Scene],
    header_of: HeaderOf,
) -> Iterator[tuple[dict[str, Any], bytes] | None]:
    """The states and their values, at last; before that None after each, so that others may go on.

    Marks stand in one list, equal ones once; a state picks some. `tree` leads from the positions of
    the controls, one after the other, to a state; at a node there are as many positions as the
    earlier controls leave.
    """
    values, states, pool = Values(), list[dict[str, Any]](), dict[str, int]()
    longest: dict[str, list[tuple[str, Any]]] = {key: [] for key in controls}

    def below(at: dict[str, Any]) -> Generator[None, None, Any]:
        if len(at) == len(controls):
            header = header_of(scene_at(**at), values)
            picked = [pool.setdefault(json.dumps(mark), len(pool)) for mark in header["marks"]]
            states.append({**header, "marks": picked})
            yield
            return len(states) - 1
        key = [*controls][len(at)]
        places = _positions(controls[key], reach[key](**at) if key in reach else None)
        longest[key] = max(longest[key], places, key=len)
        node = []
        for _, value in places:
            node.append((yield from below({**at, key: value})))
        return node

    tree = yield from below({})
    described = [_described(key, controls[key], longest[key]) for key in controls]
    marks = [json.loads(mark) for mark in pool]
    said = {"controls": described, "marks": marks, "states": states, "tree": tree}
    yield said, values.bytes()


def squeezed(stored: dict[str, Any], values: bytes) -> bytes:
    """The length of the JSON, the JSON, the values: deflated, as every browser can read it."""
    said = json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 4)  # the values begin at a whole float
    return zlib.compress(len(said).to_bytes(4, "little") + said + values)


def has_positions(key: str, control: widgets.Widget, reach: Reach) -> bool:
    """Whether all positions of a control are known."""
    try:
        return key in reach or bool(_positions(control, None))
    except TypeError:
        return False


def _positions(control: widgets.Widget, given: Sequence[Any] | None) -> list[tuple[str, Any]]:
    """Label and value of every position."""
    if given is not None:
        return [place if isinstance(place, tuple) else (str(place), place) for place in given]
    if isinstance(control.value, bool):
        return [("off", False), ("on", True)]
    if isinstance(control, widgets.IntSlider):
        return [(str(n), n) for n in range(control.min, control.max + 1, control.step)]
    if hasattr(control, "index") and hasattr(control, "options"):
        return list(control._options_full)
    raise TypeError(
        "stored states need controls with a list of positions (IntSlider, SelectionSlider, "
        f"Dropdown, ToggleButtons, Checkbox), got {type(control).__name__}"
    )


def _described(key: str, control: widgets.Widget, places: list[tuple[str, Any]]) -> dict[str, Any]:
    """What a page needs to make the control, and a notebook to find where it stands."""
    values = [value for _, value in places]
    boxed = isinstance(control.value, bool)
    slides = isinstance(control, widgets.IntSlider | widgets.SelectionSlider)
    return {
        "id": control.model_id,
        "name": control.description or key,
        "input": "checkbox" if boxed else "range" if slides else "select",
        "typed": isinstance(control, widgets.Text),
        "said": [label for label, _ in places],
        "start": values.index(control.value) if control.value in values else 0,
        "min": getattr(control, "min", 0),
        "step": getattr(control, "step", 1),
    }
