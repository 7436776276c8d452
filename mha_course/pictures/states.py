"""States of an explorer in one parcel, from which a browser picks: no kernel is asked.

Python computes every state; the browser looks up the one that its controls stand at. A page gets
all of them, a live notebook those that are one move away.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ipywidgets as widgets
import numpy as np

# For a control that depends on earlier ones, or has no list of its own: from their values to its
# positions, values or (label, value) pairs. Fewer positions are always the first of the others.
Reach = Mapping[str, Callable[..., Sequence[Any]]]
Control = Any  # of ipywidgets, with a value and a description: no one class of it has both
Controls = Mapping[str, Control]
Places = list[tuple[str, Any]]  # label and value of each position of a control
SCALE = 10_000  # arrays of four decimals are sent as whole numbers
END = object()  # who goes to a slider's end wants the end, wherever it will be


@dataclass(frozen=True, eq=False)
class State:
    """What is seen at one position of the controls.

    Attributes:
        words: what JSON can write of it: the caption, for example.
        arrays: float32, one after the other; words and marks name them by their number.
        layouts: width, height and marks, one for each width that was asked for.
    """

    words: Mapping[str, Any]
    arrays: Sequence[bytes]
    layouts: Sequence[tuple[float, float, Sequence[Hashable]]]


class Pool:
    """Things in the order in which they first came; equal ones once."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def put(self, thing: Hashable) -> int:
        """The number of this thing."""
        return self.known.setdefault(thing, len(self.known))


class Arrays(Pool):
    """Arrays, as float32."""

    def put(self, thing: Any) -> int:
        """The number of this array."""
        return super().put(np.asarray(thing, np.float32).tobytes())


def packed(arrays: Sequence[bytes]) -> tuple[list[list[int]], bytes]:
    """[length, bytes of a number, scale] of each array, and their bytes: all lowest ones first.

    Rounded numbers are sent as whole ones, `scale` to the unit; those of scale 0 are float32.
    """
    sizes, parts = list[list[int]](), list[bytes]()
    for raw in arrays:
        values = np.frombuffer(raw, "<f4")
        wide, scale, coded = _coded(values)
        sizes.append([len(values), wide, scale])
        parts.append(coded.view(np.uint8).reshape(len(values), 4)[:, :wide].T.tobytes())
    return sizes, b"".join(parts)


def _coded(values: np.ndarray) -> tuple[int, int, np.ndarray]:
    if np.isfinite(values).all():
        whole = np.round(values.astype(float) * SCALE)
        far = np.abs(whole).max(initial=0)
        if far < 2**23 and ((whole / SCALE).astype(np.float32) == values).all():
            return 2 if far < 2**15 else 3, SCALE, whole.astype("<i4")
    return 4, 0, values


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as tables, a list for each name, which takes half the room: `of` says for each row in
    which of the tables, one for each set of names, its turn comes.
    """
    tables: dict[tuple[str, ...], dict[str, list[Any]]] = {}
    of = []
    for row in rows:
        names = tuple(row)
        table = tables.setdefault(names, {name: [] for name in names})
        for name, value in row.items():
            table[name].append(value)
        of.append([*tables].index(names))
    return {"of": of, "tables": [*tables.values()]}


def _steps(numbers: list[int]) -> list[int]:
    """From each number to the next, from 0 on: mostly 1, which takes little room."""
    return [b - a for a, b in pairwise([0, *numbers])]


def places_of(control: Control, given: Sequence[Any] | None = None) -> Places:
    """Label and value of every position of a control; `given` by what reaches it.

    Raises:
        TypeError: it has no list of positions.
    """
    if given is not None:
        return [place if isinstance(place, tuple) else (str(place), place) for place in given]
    if isinstance(control.value, bool):
        return [("off", False), ("on", True)]
    if isinstance(control, widgets.IntSlider):
        return [(str(n), n) for n in range(control.min, control.max + 1, control.step)]
    if hasattr(control, "index") and hasattr(control, "options"):
        return places_of(control, control.options)
    raise TypeError(
        "states need controls with a list of positions (IntSlider, SelectionSlider, Dropdown, "
        f"ToggleButtons, Checkbox) or a reach, got {type(control).__name__}"
    )


def described(key: str, control: Control, places: Places, wished: Any) -> dict[str, Any]:
    """What a page needs to make the control, and a notebook to find where it stands.

    It starts at the position that is wished for; None for a slider that is wished at its end.
    """
    values = [value for _, value in places]
    boxed = isinstance(control.value, bool)
    return {
        "id": control.model_id,
        "key": key,
        "name": control.description or key,
        "input": "checkbox" if boxed else "range" if _slides(control) else "select",
        "indexed": hasattr(control, "index"),
        "typed": isinstance(control, widgets.Text),
        "said": [label for label, _ in places],
        "start": None if wished is END else values.index(wished) if wished in values else 0,
        "min": getattr(control, "min", 0),
        "step": getattr(control, "step", 1),
    }


def _slides(control: Control) -> bool:
    return isinstance(control, widgets.IntSlider | widgets.SelectionSlider)


def wish(control: Control) -> Any:
    """What somebody wants who has put a control where it stands: its value, or `END`."""
    last = _slides(control) and control.value == places_of(control)[-1][1]
    return END if last else control.value


def settled(controls: Controls, reach: Reach, wished: Mapping[str, Any]) -> dict[str, Any]:
    """Where the controls stand when these values are wished for, each among those that earlier
    ones leave: beyond them a slider stands at its end, anything else at its first position.
    """
    at: dict[str, Any] = {}
    for key, control in controls.items():
        left = [wished[key]]
        if isinstance(control, widgets.Text):
            pass
        elif key in reach:
            left = [value for _, value in places_of(control, reach[key](**at))]
        elif wished[key] is END:
            left = [places_of(control)[-1][1]]
        at[key] = wished[key] if wished[key] in left else left[-1 if _slides(control) else 0]
    return at


def fit(controls: Controls, reach: Reach, at: Mapping[str, Any]) -> None:
    """Gives each control the positions that earlier ones leave, and puts it at its own of `at`.

    One that has no choice is not seen; a box that is not seen stays checked.
    """
    before: dict[str, Any] = {}
    for key, control in controls.items():
        if key in reach and not isinstance(control, widgets.Text):
            given = [*reach[key](**before)]
            places = places_of(control, given)
            control.layout.display = None if len(places) > 1 else "none"
            if isinstance(control, widgets.IntSlider):
                control.max = places[-1][1]  # sent before the value: a slider clips that at its end
                control.value = at[key]
            elif hasattr(control, "options"):
                with control.hold_sync():  # the browser hears of no place on the way
                    if places != places_of(control):
                        control.options = given
                        control.send_state("_options_labels")  # as above
                    control.value = at[key]
        before[key] = at[key]


def parcel(
    controls: Controls,
    reach: Reach,
    state_at: Callable[[dict[str, Any]], State | None],
    plain: Callable[[Any], Any],
    rooms: Sequence[float],
    around: dict[str, Any] | None = None,
    play: str | None = None,
    start: Mapping[str, Any] | None = None,
) -> Generator[None, None, bytes]:
    """All states, or those at most one move from `around`. Stops after each, so that others may go
    on, and gives the parcel at last: the length of a JSON text, the text and arrays, deflated.

    `state_at` gives a state, or None where the function refuses; `plain` a mark as JSON writes it.
    Marks and layouts stand in lists, equal ones once; a layout has the steps from mark to mark.
    `tree` leads from the positions of the controls, one after the other, to a state; a node has the
    positions that earlier ones leave. A button plays the positions of the control `play`. Controls
    begin at what `start` wishes for, or where they stand.
    """
    arrays, marks, layouts = Pool(), Pool(), Pool()
    states: list[dict[str, Any]] = []
    longest: dict[str, Places] = {key: [] for key in controls}

    def put(state: State) -> int:
        states.append({
            **state.words,
            "arrays": [arrays.put(raw) for raw in state.arrays],
            "layouts": [
                layouts.put((width, height, *_steps([marks.put(mark) for mark in there])))
                for width, height, there in state.layouts
            ],
        })  # fmt: skip
        return len(states) - 1

    def below(at: dict[str, Any], moved: bool) -> Generator[None, None, Any]:
        if len(at) == len(controls):
            state = state_at(at)
            yield
            return None if state is None else put(state)
        key = [*controls][len(at)]
        given = reach[key](**at) if key in reach else None
        if around and isinstance(controls[key], widgets.Text):
            given = [around[key]]
        places = places_of(controls[key], given)
        longest[key] = max(longest[key], places, key=len)
        stays = settled(controls, reach, {**around, **at})[key] if around else None
        node: list[Any] = []
        for _, value in places:
            leaves = around is not None and value != stays
            far = moved and leaves
            node.append(None if far else (yield from below({**at, key: value}, moved or leaves)))
        return node

    tree = yield from below({}, False)
    sizes, raw = packed([*arrays.known])
    start = start or {key: control.value for key, control in controls.items()}
    told = {
        "rooms": list(rooms),
        "play": play,
        "controls": [described(key, controls[key], longest[key], start[key]) for key in controls],
        "arrays": sizes,
        "marks": columns([plain(mark) for mark in marks.known]),
        "layouts": [*layouts.known],
        "states": columns(states),
        "tree": tree,
    }
    said = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    hard = 9 if around is None else -1  # a page is made once; a notebook's reader waits
    return zlib.compress(len(said).to_bytes(4, "little") + said + raw, hard)
