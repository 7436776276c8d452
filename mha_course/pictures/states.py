"""The states of an explorer, packed for a browser, which looks up what its controls ask for.

A page gets all states, a live notebook those that are one move away.
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

from mha_course.pictures.controls import (
    Controls,
    Positions,
    Reach,
    described,
    positions_of,
    resolved,
)

SCALE = 10_000  # arrays of four decimals are sent as whole numbers


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


class Numbers(dict[Any, int]):
    """The number of each thing, in the order in which they first come; equal ones have the same."""

    def __missing__(self, thing: Hashable) -> int:
        self[thing] = len(self)
        return self[thing]


def pack_arrays(arrays: Sequence[bytes]) -> tuple[list[list[int]], bytes]:
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


def as_tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as tables, a list for each name, which takes half the bytes: `of` says for each row in
    which of the tables, one for each set of names, its turn comes.
    """
    tables: dict[tuple[str, ...], dict[str, list[Any]]] = {}
    turns = []
    for row in rows:
        names = tuple(row)
        table = tables.setdefault(names, {name: [] for name in names})
        for name, value in row.items():
            table[name].append(value)
        turns.append([*tables].index(names))
    return {"of": turns, "tables": [*tables.values()]}


def _steps(numbers: list[int]) -> list[int]:
    """From each number to the next, from 0 on: mostly 1, which takes few bytes."""
    return [b - a for a, b in pairwise([0, *numbers])]


def pack_states(
    controls: Controls,
    reach: Reach,
    state_at: Callable[[dict[str, Any]], State | None],
    plain: Callable[[Any], Any],
    widths: Sequence[float],
    around: dict[str, Any] | None = None,
    play: str | None = None,
    headline: str = "",
    requests: Mapping[str, Any] | None = None,
) -> Generator[None, None, bytes]:
    """All states, or those at most one move from `around`. Yields after each, so that others may go
    on, and returns the length of a JSON text, the text, and the arrays, deflated.

    `state_at` gives a state, or None where the function refuses; `plain` a mark as JSON writes it.
    Marks and layouts stand in lists, equal ones once; a layout has the steps from mark to mark.
    `tree` leads from the positions of the controls, one after the other, to a state; a node has the
    positions that earlier ones leave. A button plays the positions of the control `play`. Controls
    begin at `requests`, or where they stand.
    """
    arrays, marks, layouts = Numbers(), Numbers(), Numbers()
    states: list[dict[str, Any]] = []
    last: State | None = None
    longest: dict[str, Positions] = {key: [] for key in controls}

    def keep(state: State) -> int:
        nonlocal last
        if state is last:
            return len(states) - 1
        last = state
        states.append(
            {
                **state.words,
                "arrays": [arrays[raw] for raw in state.arrays],
                "layouts": [
                    layouts[width, height, *_steps([marks[mark] for mark in drawn])]
                    for width, height, drawn in state.layouts
                ],
            }
        )
        return len(states) - 1

    def below(at: dict[str, Any], moved: bool) -> Generator[None, None, Any]:
        if len(at) == len(controls):
            state = state_at(at)
            yield
            return None if state is None else keep(state)
        key = [*controls][len(at)]
        given = reach[key](**at) if key in reach else None
        if around and isinstance(controls[key], widgets.Text):
            given = [around[key]]
        positions = positions_of(controls[key], given)
        longest[key] = max(longest[key], positions, key=len)
        stays = resolved(controls, reach, {**around, **at})[key] if around else None
        node: list[Any] = []
        for _, value in positions:
            leaves = around is not None and value != stays
            far = moved and leaves
            node.append(None if far else (yield from below({**at, key: value}, moved or leaves)))
        return node

    tree = yield from below({}, False)
    sizes, raw = pack_arrays([*arrays])
    requests = requests or {key: control.value for key, control in controls.items()}
    parts = {
        "widths": list(widths),
        "play": play,
        "headline": headline,
        "controls": [described(k, controls[k], longest[k], requests[k]) for k in controls],
        "arrays": sizes,
        "marks": as_tables([plain(mark) for mark in marks]),
        "layouts": [*layouts],
        "states": as_tables(states),
        "tree": tree,
    }
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    effort = 9 if around is None else -1  # a page is made once; a notebook's reader waits
    return zlib.compress(len(text).to_bytes(4, "little") + text + raw, effort)
