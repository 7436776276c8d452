"""Moving pictures: sliders over a pure function from their values to a scene.

`Explorer` lays out ipywidgets controls above a `LiveView`, which draws the same marks as `figures`
on a canvas in the browser. Either the kernel computes a scene for each move, or all states are sent
at once and the browser picks: then it moves in a saved page as well.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import itertools
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path as FilePath
from typing import Any

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets

from mha_lesson.pictures import figures
from mha_lesson.pictures.flow import Flow
from mha_lesson.pictures.layout import (
    BREAK,
    LETTER,
    ROOMS,
    SCREEN,
    WIDTH,
    Cells,
    ColourBar,
    Dot,
    Drawing,
    Path,
    Rect,
    Ribbons,
    Text,
    draw,
)
from mha_lesson.pictures.panels import (
    HEADS,
    MAPS,
    RIBBON,
    RIBBON_FAR,
    ROLES,
    TILE,
    WRONG,
    Heatmap,
    Scene,
    Tiles,
    number,
    scene_of,
)
from mha_lesson.refusals import require_bool, require_callable, require_kind, require_one_of, say

__all__ = ["Explorer", "LiveView", "page"]

FILES = [FilePath(__file__).with_name(name) for name in ("live.js", "flow.js")]
SCRIPT = "".join(file.read_text(encoding="utf-8") for file in FILES)  # one module
EXPORT = "MHA_LESSON_EXPORT"  # set while a page is exported: explorers write themselves into it
LOOK = {  # what the script needs of the numbers that a still picture is drawn with
    "heads": list(HEADS),
    "roles": ROLES,
    "tile": TILE,
    "wrong": WRONG,
    "break": BREAK,
    "letter": LETTER,
    "ribbon": [RIBBON, RIBBON_FAR],
    "maps": {name: table.ravel().tolist() for name, table in MAPS.items()},
}
MOST_STATES = 1000
_KIND = {Text: "t", Rect: "r", Path: "p", Dot: "d", ColourBar: "b"}


class _Values:
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


def pack(scene: Scene, width: float = WIDTH) -> tuple[dict[str, Any], bytes]:
    """A scene as the browser takes it: marks and words that JSON can write, and all values.

    Arrays stand among the marks as [offset, length] in the values (float32).
    """
    values = _Values()
    return _layout(scene, width, values) | _words(scene), values.bytes()


def _words(scene: Scene) -> dict[str, Any]:
    return {
        "caption": scene.caption,
        "alt": scene.alt,
        "text": [list(row) for row in scene.text()],
    }


def _layout(scene: Scene, width: float, values: _Values) -> dict[str, Any]:
    drawing = draw(scene, width, SCREEN)
    flow = next((panel for panel in scene.flat() if isinstance(panel, Flow)), None)
    return {
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "marks": _marks(drawing, values.put),
        "flow": flow and flow.described(values.put),
    }


def _marks(drawing: Drawing, put: Callable[[np.ndarray], list[int]]) -> list[list[Any]]:
    out: list[list[Any]] = []
    for mark in drawing.marks:
        if isinstance(mark, Cells):
            kind = "g" if isinstance(mark.panel, Tiles) else "h"
            said = _tiles(mark.panel) if isinstance(mark.panel, Tiles) else _heatmap(mark, put)
            place = {"x": mark.x, "y": mark.y, "w": mark.width, "h": mark.height, "gap": mark.gap}
            place["key"] = mark.key
            out.append([kind, place | said])
        elif isinstance(mark, Ribbons):
            out.append(["l", _ribbons(mark)])
        elif isinstance(mark, Path):
            points = [round(float(v), 1) for point in mark.points for v in point]
            out.append(["p", points, mark.colour, mark.dashed, mark.width])
        else:
            parts = (round(v, 1) if isinstance(v, float) else v for v in vars(mark).values())
            out.append([_KIND[type(mark)], *parts])
    return out


def _heatmap(mark: Cells, put: Callable[[np.ndarray], list[int]]) -> dict[str, Any]:
    panel = mark.panel
    assert isinstance(panel, Heatmap)
    return {
        "values": put(panel.values),
        "blocked": put(panel.blocked) if panel.blocked.any() else None,
        "shape": list(panel.values.shape),
        "rows": list(panel.rows or ()),
        "columns": list(panel.columns or ()),
        "limits": list(panel.limits or ()),
        "colours": panel.colours,
        "per_row": panel.per_row,
        "by_row": panel.by_row,
        "marks": [list(cell) for cell in panel.marks],
        "decimals": panel.decimals,
        "numbers": mark.numbers,
        "mask": panel.mask,
        "title": panel.title,
        "picks": list(panel.picks or ()) or None,
    }


def _tiles(panel: Tiles) -> dict[str, Any]:
    return {
        "labels": [list(row) for row in panel.labels],
        "says": [list(row) for row in panel.says],
        "heads": panel.heads.tolist(),
        "links": panel.links.tolist(),
        "wrong": panel.wrong.astype(int).tolist(),
        "break_rows": panel.break_rows,
        "break_columns": panel.break_columns,
        "copied": panel.copied,
        "title": panel.title,
    }


class LiveView(anywidget.AnyWidget):
    """One canvas that shows a scene: `show(scene)` sends the next in a single message."""

    _esm = SCRIPT
    look = traitlets.Dict(LOOK).tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes().tag(sync=True)
    stored = traitlets.Dict().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    room = traitlets.Int(WIDTH).tag(sync=True)

    def show(self, thing: Any) -> None:
        """Draws a scene, a panel or panels."""
        header, values = pack(scene_of(thing), self.room)
        with self.hold_sync():
            self.scene, self.data, self.error = header, values, ""


def _name(control: widgets.Widget, key: str) -> str:
    return getattr(control, "description", "") or key


def _positions(control: widgets.Widget) -> tuple[str, list[Any]]:
    """How the browser finds where a control stands, and the values of all its positions."""
    if isinstance(control, widgets.Checkbox | widgets.ToggleButton):
        return "bool", [False, True]
    if isinstance(control, widgets.IntSlider | widgets.BoundedIntText):
        return "step", list(range(control.min, control.max + 1, control.step))
    if hasattr(control, "index") and hasattr(control, "options"):
        return "index", [value for _, value in control._options_full]
    raise TypeError(
        "stored states need controls with a list of positions (IntSlider, SelectionSlider, "
        f"Dropdown, ToggleButtons, Checkbox), got {type(control).__name__}"
    )


def _count(controls: Mapping[str, widgets.Widget]) -> int:
    """The number of states, or 0 where a control has no list of positions."""
    try:
        return math.prod(len(_positions(control)[1]) for control in controls.values())
    except TypeError:
        return 0


def _ribbons(mark: Ribbons) -> dict[str, Any]:
    weights = mark.panel.weights
    return {
        "x": mark.x, "y": mark.y, "w": mark.width, "h": mark.pitch, "margin": mark.margin,
        "rows": list(weights.rows), "columns": list(weights.columns), "row": mark.panel.row,
        "ribbons": [[r, c, round(weight, 3), number(weight, 2)]
                    for r, c, weight in mark.panel.ribbons],
        "colour": mark.colour, "title": mark.panel.title,
    }  # fmt: skip


def _describe(controls: Mapping[str, widgets.Widget]) -> list[dict[str, Any]]:
    """What the browser must know of each control, to read it and to move it."""
    described = []
    for key, control in controls.items():
        said: dict[str, Any] = {"id": control.model_id, "key": key, "name": _name(control, key)}
        with contextlib.suppress(TypeError):  # a control without a list of positions
            kind, values = _positions(control)
            names = [label for label, _ in control._options_full] if kind == "index" else values
            said |= {
                "kind": kind, "count": len(values), "said": [str(name) for name in names],
                "start": values.index(control.value),
                "min": getattr(control, "min", 0), "step": getattr(control, "step", 1),
            }  # fmt: skip
        described.append(said)
    return described


def _store(
    controls: Mapping[str, widgets.Widget], scene_at: Callable[..., Scene]
) -> tuple[dict[str, Any], bytes]:
    """All states, each laid out for every room, and their values.

    Marks stand in one list, equal ones once; a layout picks some.
    """
    positions = [_positions(control)[1] for control in controls.values()]
    count = math.prod(map(len, positions))
    if count > MOST_STATES:
        raise ValueError(f"stored states must be at most {MOST_STATES}, these have {count}")
    states: list[dict[str, Any]] = []
    marks: dict[str, int] = {}
    values = _Values()
    for place in itertools.product(*positions):
        scene = scene_of(scene_at(**dict(zip(controls, place, strict=True))))
        layouts = [_layout(scene, room, values) for room in ROOMS]
        for layout in layouts:
            said = map(json.dumps, layout["marks"])
            layout["marks"] = [marks.setdefault(mark, len(marks)) for mark in said]
        states.append(_words(scene) | {"layouts": layouts})
    pool = [json.loads(mark) for mark in marks]
    return {"rooms": ROOMS, "marks": pool, "states": states}, values.bytes()


def _require_controls(controls: Any, scene_at: Callable[..., Any]) -> None:
    require_kind("controls", controls, Mapping)
    for key, control in controls.items():
        fits = isinstance(control, widgets.ValueWidget) and hasattr(control, "description")
        if not (fits and isinstance(key, str)):
            raise TypeError(
                "controls must be ipywidgets with a value and a description, each under the name "
                f"of its argument; got {say(key)}: {type(control).__name__}."
            )
    try:
        inspect.signature(scene_at).bind(**controls)
    except TypeError as error:
        raise TypeError(f"scene_at must take what controls are named: {error}.") from None


class Explorer:
    """Controls over a pure function `scene_at(**values) -> Scene`, the last line of a cell.

    `controls` maps the function's argument names to ipywidgets. With `stored` every state is
    computed at once (at most 1000) and the browser moves between them without the kernel. A
    ValueError of the function is shown as a sentence, any other exception with its type. A button
    plays the positions of the control `play`, one after the other.

    A live notebook shows the controls and the moving picture; everywhere else (a hosting site,
    a notebook that was not run, paper) stands the first state as a still picture. An exported page
    moves as well, wherever its states can be counted and are at most 1000.
    """

    def __init__(
        self,
        controls: Mapping[str, widgets.Widget],
        scene_at: Callable[..., Any],
        *,
        stored: bool = False,
        play: str | None = None,
    ) -> None:
        require_callable("scene_at", scene_at)
        _require_controls(controls, scene_at)
        require_bool("stored", stored)
        if play is not None:
            require_one_of("play", play, tuple(controls))
        self.controls = dict(controls)
        self._scene_at = scene_at
        self.first = self.scene
        self.view = LiveView()
        for key, control in self.controls.items():
            if not control.description:
                control.description = key
            control.style.description_width = "initial"
        self._described = {"controls": _describe(self.controls), "play": play}
        if stored:
            with self.view.hold_sync():
                self.view.stored, self.view.data = self.states()
        else:
            self.view.stored = self._described
            self.view.show(self.first)
            self.view.observe(self._move, "room")
            for control in self.controls.values():
                control.observe(self._move, "value")
        bar = widgets.Box(list(self.controls.values()))
        bar.layout.flex_flow = "row wrap"
        bar.add_class("mha-bar")
        self.box = widgets.VBox([bar, self.view])
        self.box.add_class("mha-explorer")

    def scene_at(self, **values: Any) -> Scene:
        """The scene at these values: the pure function itself."""
        return scene_of(self._scene_at(**values))

    @property
    def values(self) -> dict[str, Any]:
        """Where the controls stand now."""
        return {key: control.value for key, control in self.controls.items()}

    @property
    def scene(self) -> Scene:
        """The scene of now."""
        return self.scene_at(**self.values)

    @property
    def has_page(self) -> bool:
        """Whether all its states can be sent beforehand, so that a page moves without a kernel."""
        return 0 < _count(self.controls) <= MOST_STATES

    def states(self) -> tuple[dict[str, Any], bytes]:
        """All its states as a page takes them; computed now where a kernel has moved it so far."""
        if "states" in self.view.stored:
            return self.view.stored, self.view.data
        stored, values = _store(self.controls, self._scene_at)
        return self._described | stored, values

    def _move(self, _change: Any) -> None:
        try:
            self.view.show(self.scene)
        except ValueError as error:
            self.view.error = str(error)
        except Exception as error:  # shown, since a callback has no cell to print it under
            self.view.error = f"{type(error).__name__}: {error}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if os.environ.get(EXPORT) and self.has_page:
            return {"text/html": page(self), "text/plain": self.first.alt}
        return {
            "text/plain": self.first.alt,
            "text/html": figures.html(self.first, SCREEN),
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.box.model_id,
            },
        }


def page(explorer: Explorer) -> str:
    """An explorer with stored states as HTML that needs nothing else: no kernel, no network."""
    require_kind("explorer", explorer, Explorer)
    if not explorer.has_page:
        raise ValueError(f"explorer must have at most {MOST_STATES} states, all of them known")
    stored, values = explorer.states()
    said = {"look": LOOK, "stored": stored, "bytes": base64.b64encode(values).decode()}
    parcel = base64.b64encode(zlib.compress(json.dumps(said).encode(), 9)).decode()
    still = figures.html(explorer.first, SCREEN)
    source = base64.b64encode(SCRIPT.encode()).decode()
    name = f"mha-{explorer.box.model_id[:12]}"
    return (
        f'<div id="{escape(name)}">{still}</div><script type="module">'
        f'import {{ mount }} from "data:text/javascript;base64,{source}";'
        f'mount(document.getElementById("{name}"), "{parcel}");</script>'
    )
