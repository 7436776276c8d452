"""Where controls stand: what is requested, what is possible, and putting ipywidgets there.

Earlier controls may leave fewer positions to later ones. A request that is not possible now is
resolved to one that is; the request is kept, and comes true again when it is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

# For a control that depends on earlier ones, or has no list of its own: from their values to its
# positions, values or (label, value) pairs. Fewer positions are always the first of the others.
Reach = Mapping[str, Callable[..., Sequence[Any]]]
Control = Any  # of ipywidgets, with a value and a description: no one class of it has both
Controls = Mapping[str, Control]
Positions = list[tuple[str, Any]]  # label and value of each position of a control
MAXIMUM = object()  # a slider at its maximum stays there when the range changes


def positions_of(control: Control, given: Sequence[Any] | None = None) -> Positions:
    """Label and value of every position of a control; `given` by what reaches it.

    Raises:
        TypeError: it has no list of positions.
    """
    if given is not None:
        return [one if isinstance(one, tuple) else (str(one), one) for one in given]
    if isinstance(control.value, bool):
        return [("off", False), ("on", True)]
    if isinstance(control, widgets.IntSlider):
        return [(str(n), n) for n in range(control.min, control.max + 1, control.step)]
    if hasattr(control, "index") and hasattr(control, "options"):
        return positions_of(control, control.options)
    raise TypeError(
        "states need controls with a list of positions (IntSlider, SelectionSlider, Dropdown, "
        f"ToggleButtons, Checkbox) or a reach, got {type(control).__name__}"
    )


def described(key: str, control: Control, positions: Positions, request: Any) -> dict[str, Any]:
    """What a page needs to make the control, and a notebook to find where it stands.

    It starts at the request; None is a slider's maximum.
    """
    values = [value for _, value in positions]
    boxed = isinstance(control.value, bool)
    return {
        "id": control.model_id,
        "key": key,
        "name": control.description or key,
        "input": "checkbox" if boxed else "range" if _slides(control) else "select",
        "indexed": hasattr(control, "index"),
        "typed": isinstance(control, widgets.Text),
        "labels": [label for label, _ in positions],
        "start": None if request is MAXIMUM else values.index(request) if request in values else 0,
        "min": getattr(control, "min", 0),
        "step": getattr(control, "step", 1),
    }


def _slides(control: Control) -> bool:
    return isinstance(control, widgets.IntSlider | widgets.SelectionSlider)


def requested(control: Control) -> Any:
    """What a reader asks for by moving a control to where it stands: its value, or `MAXIMUM`."""
    last = _slides(control) and control.value == positions_of(control)[-1][1]
    return MAXIMUM if last else control.value


def resolved(controls: Controls, reach: Reach, requests: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each control: what is requested, if earlier controls leave it; else a slider's
    last position, and the first one of anything else.
    """
    at: dict[str, Any] = {}
    for key, control in controls.items():
        request = requests[key]
        possible = [request]
        if isinstance(control, widgets.Text):
            pass
        elif key in reach:
            possible = [value for _, value in positions_of(control, reach[key](**at))]
        elif request is MAXIMUM:
            possible = [positions_of(control)[-1][1]]
        at[key] = request if request in possible else possible[-1 if _slides(control) else 0]
    return at


def apply(controls: Controls, reach: Reach, at: Mapping[str, Any]) -> None:
    """Gives each control the positions that earlier ones leave, and moves it to its value of `at`.

    A control with one position is hidden; a box that is hidden stays checked.
    """
    before: dict[str, Any] = {}
    for key, control in controls.items():
        if key in reach and not isinstance(control, widgets.Text):
            given = [*reach[key](**before)]
            positions = positions_of(control, given)
            control.layout.display = None if len(positions) > 1 else "none"
            if isinstance(control, widgets.IntSlider):
                control.max = positions[-1][1]  # before the value: a slider clips that at its end
                control.value = at[key]
            elif hasattr(control, "options"):
                with control.hold_sync():  # the browser hears of no position on the way
                    if positions != positions_of(control):
                        control.options = given
                        control.send_state("_options_labels")  # as above
                    control.value = at[key]
        before[key] = at[key]
