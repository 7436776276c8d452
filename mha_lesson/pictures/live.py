"""Moving pictures: sliders over a pure function from their values to a scene.

`Explorer` lays out ipywidgets controls above a `LiveView`, which draws the same marks as `figures`
on a canvas in the browser. The kernel computes a scene for each move, until all states have been
sent and the browser picks; a saved page has them all.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets

from mha_lesson.pictures import figures, states
from mha_lesson.pictures.flow import Flow
from mha_lesson.pictures.layout import (
    SCREEN,
    WIDTH,
    Cells,
    ColourBar,
    Dot,
    Drawing,
    Path,
    Rect,
    Text,
    draw,
)
from mha_lesson.pictures.panels import HEADS, MAPS, ROLES, Heatmap, Scene, Tiles, scene_of
from mha_lesson.pictures.states import Values
from mha_lesson.refusals import require_bool, require_callable, require_kind, require_text, say

__all__ = ["Explorer", "LiveView", "page", "script"]

FILES = [FilePath(__file__).with_name(name) for name in ("live.js", "flow.js")]
SCRIPT = "".join(file.read_text(encoding="utf-8") for file in FILES)  # one module
EXPORT = "MHA_LESSON_EXPORT"  # set while a page is exported: explorers write themselves into it
LOOK = {
    "heads": list(HEADS),
    "roles": ROLES,
    "maps": {name: table.ravel().tolist() for name, table in MAPS.items()},
}
SERVED = "JPY_SESSION_NAME"  # set by a Jupyter server: somebody looks at the notebook live
PAUSE = 0.5  # seconds until a browser has said how wide its view is
_KIND = {Text: "text", Rect: "rect", Path: "path", Dot: "dot", ColourBar: "bar"}


def pack(scene: Scene, width: float = WIDTH) -> tuple[dict[str, Any], bytes]:
    """A scene as the browser takes it: marks and words that JSON can write, and all values.

    Arrays stand among the marks as [offset, length] in the values (float32).
    """
    values = Values()
    return _header(scene, width, values), values.bytes()


def _header(scene: Scene, width: float, values: Values) -> dict[str, Any]:
    drawing = draw(scene, width, SCREEN)
    flow = next((panel for panel in scene.flat() if isinstance(panel, Flow)), None)
    return {
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "marks": _marks(drawing, values.put),
        "caption": scene.caption,
        "alt": scene.alt,
        "text": [list(row) for row in scene.text()],
        "flow": flow and flow.described(values.put),
    }


def _marks(drawing: Drawing, put: Callable[[np.ndarray], list[int]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for mark in drawing.marks:
        if isinstance(mark, Cells):
            tiles = isinstance(mark.panel, Tiles)
            said = _tiles(mark.panel) if isinstance(mark.panel, Tiles) else _heatmap(mark, put)
            place = {"x": mark.x, "y": mark.y, "w": mark.width, "h": mark.height}
            out.append({"kind": "tiles" if tiles else "heatmap"} | place | said)
        else:
            parts = {k: round(v, 1) if isinstance(v, float) else v for k, v in vars(mark).items()}
            if isinstance(mark, Path):
                parts["points"] = [round(float(v), 1) for point in mark.points for v in point]
            out.append({"kind": _KIND[type(mark)]} | parts)
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
        "title": panel.title,
    }


class LiveView(anywidget.AnyWidget):
    """One canvas that shows a scene: `show(scene)` sends the next in a single message."""

    _esm = SCRIPT
    look = traitlets.Dict(LOOK).tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes().tag(sync=True)
    stored = traitlets.Bytes().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    room = traitlets.Int(WIDTH).tag(sync=True)

    def show(self, thing: Any) -> None:
        """Draws a scene, a panel or panels."""
        header, values = pack(scene_of(thing), self.room)
        with self.hold_sync():
            self.scene, self.data, self.error = header, values, ""


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


def _require_reach(reach: Any, controls: Mapping[str, Any]) -> None:
    if reach is None:
        return
    require_kind("reach", reach, Mapping)
    for key, places in reach.items():
        if key not in controls:
            raise ValueError(f"reach must name controls, {', '.join(controls)}; got {say(key)}.")
        require_callable(f"reach[{key!r}]", places)


class Explorer:
    """Controls over a pure function `scene_at(**values) -> Scene`, the last line of a cell.

    `controls` maps the function's argument names to ipywidgets. `reach` says which positions a
    control has where that depends on earlier ones, or for a page where it has no list: a function
    of the earlier values. With `stored` a kernel that rests computes all states, and from then on
    the browser moves without it. A ValueError of the function is shown as a sentence, any other
    exception with its type.

    A live notebook shows the controls and the moving picture; everywhere else (a hosting site,
    a notebook that was not run, paper) stands the first state as a still picture. An exported page
    moves as well, if every control has a list of positions.
    """

    def __init__(
        self,
        controls: Mapping[str, widgets.Widget],
        scene_at: Callable[..., Any],
        *,
        reach: states.Reach | None = None,
        stored: bool = False,
    ) -> None:
        require_callable("scene_at", scene_at)
        _require_controls(controls, scene_at)
        require_bool("stored", stored)
        _require_reach(reach, controls)
        self.controls = dict(controls)
        self.reach = dict(reach or {})
        self._scene_at = scene_at
        self._to_store = stored
        self._sending: asyncio.Task[None] | None = None
        self.first = self.scene
        self.view = LiveView()
        for key, control in self.controls.items():
            if not control.description:
                control.description = key
            control.style.description_width = "initial"
        self.view.show(self.first)
        self.view.observe(self._move, "room")
        for control in self.controls.values():
            control.observe(self._move, "value")
        bar = widgets.Box(list(self.controls.values()))
        bar.layout.flex_flow = "row wrap"
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
        """Whether all its positions are known, so that a page moves without a kernel."""
        return all(states.has_positions(k, c, self.reach) for k, c in self.controls.items())

    def states(self, width: float = WIDTH) -> Iterator[tuple[dict[str, Any], bytes] | None]:
        """All its states and their values, at last; before that None after each."""
        return states.parcel(
            self.controls, self.reach, self.scene_at, lambda scene, put: _header(scene, width, put)
        )

    async def _send_all(self) -> None:
        """Sends all states, bit by bit: whatever else the kernel has to do goes first."""
        await asyncio.sleep(PAUSE)
        for made in self.states(self.view.room):
            await asyncio.sleep(0)
            if made is not None:
                self.view.stored = states.squeezed(*made)
                self._ask_no_more()

    def _ask_no_more(self) -> None:
        self.view.unobserve(self._move, "room")
        for control in self.controls.values():
            control.unobserve(self._move, "value")

    def _move(self, _change: Any) -> None:
        try:
            self.view.show(self.scene)
        except ValueError as error:
            self.view.error = str(error)
        except Exception as error:  # shown, since a callback has no cell to print it under
            self.view.error = f"{type(error).__name__}: {error}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words = {"text/plain": self.first.alt}
        if os.environ.get(EXPORT) and self.has_page:
            return words | {"text/html": page(self)}, {}
        _, for_colab = self.view._repr_mimebundle_() or ({}, {})
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        bundle = words | {"application/vnd.jupyter.widget-view+json": view}
        if SERVED not in os.environ:
            return bundle | {"text/html": figures.html(self.first, SCREEN)}, for_colab
        if self._to_store and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
        return bundle, for_colab


def page(explorer: Explorer) -> str:
    """An explorer with all its states as HTML that needs nothing else: no kernel, no network."""
    require_kind("explorer", explorer, Explorer)
    place = f"mha-{explorer.box.model_id[:12]}"
    moving = script(explorer, place)
    return (
        f'<div id="{place}">{figures.html(explorer.first, SCREEN)}</div><script>{moving}</script>'
    )


def script(explorer: Explorer, place: str) -> str:
    """A script that puts the explorer, with all its states, into the element of this id."""
    require_kind("explorer", explorer, Explorer)
    require_text(place=place)
    if not explorer.has_page:
        raise ValueError("explorer must have a list of positions for each control, or a reach")
    *_, made = explorer.states()
    assert made is not None
    source = base64.b64encode(SCRIPT.encode()).decode()
    states_of_it = base64.b64encode(states.squeezed(*made)).decode()
    return (
        f'import("data:text/javascript;base64,{source}").then(({{ mount }}) => '
        f"mount(document.getElementById({json.dumps(place)}), {json.dumps(LOOK)}, "
        f'"{states_of_it}"));'
    )
