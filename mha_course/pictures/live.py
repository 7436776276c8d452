"""Moving pictures: sliders over a pure function from their values to a scene.

`Explorer` lays out ipywidgets controls above a `LiveView`, which draws the same marks as `figures`
on a canvas in the browser. A saved page holds all states. A notebook's kernel computes a scene for
a move; once it rests it sends what is one move away, and the browser picks from that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import zlib
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path as FilePath
from typing import Any

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets

from mha_course.base.prose import CODE, SPLIT
from mha_course.base.scripts import bundle
from mha_course.pictures import colours, figures, states
from mha_course.pictures.controls import (
    Controls,
    Reach,
    apply,
    described,
    positions_of,
    requested,
    resolved,
)
from mha_course.pictures.cut import GEOMETRY, Cut
from mha_course.pictures.flow import Flow
from mha_course.pictures.layout import SCREEN, WIDTH, WIDTHS, draw, size
from mha_course.pictures.marks import SCRIPT_SIZE, SHIFTS, SIZE, STRUCK, WAY, OwnMark, Path
from mha_course.pictures.scene import Scene, scene_of
from mha_course.pictures.states import Numbers, State
from mha_course.pictures.tiles import BREAK, LETTER
from mha_course.pictures.words import FAINT
from mha_course.pictures.writes import Writes

__all__ = ["Explorer", "LiveView", "page", "script", "states_script", "whole"]

SCRIPT = bundle(FilePath(__file__).with_suffix(".js"))
EXPORT = "MHA_LESSON_EXPORT"  # set while a page is exported: explorers write themselves into it
SERVED = "JPY_SESSION_NAME"  # set by a Jupyter server: somebody looks at the notebook live
THEME = {  # colours and sizes that the script shares with still pictures
    "heads": list(colours.HEADS),
    "roles": colours.ROLES,
    "tile": colours.TILE,
    "wrong": colours.WRONG,
    "break": BREAK,
    "scripts": {"split": SPLIT, "code": CODE, "down": SHIFTS, "size": SCRIPT_SIZE},
    "ink": colours.INK,
    "size": SIZE,
    "letter": LETTER,
    "ribbon": [colours.RIBBON, colours.RIBBON_FAR],
    "faint": FAINT,
    "struck": STRUCK,
    "way": WAY,
    "cut": GEOMETRY,
    "maps": colours.ENDS,
    "scale": (FilePath(__file__).with_name("scale.css")).read_text("utf-8"),
}
TOO_OLD = "This browser is too old to move the picture: it needs one of 2023 or later."
REST = 0.15  # seconds after the last move until the states around it are sent
FIRST = 1.0  # seconds after it was shown, when the browser knows its width
KEPT = 512  # states that are kept: those around a position share many with those around the next


def pack(scene: Scene, width: float = WIDTH) -> tuple[dict[str, Any], bytes]:
    """A scene as the browser takes it: words and marks that JSON can write, and all arrays.

    Marks name arrays by their number; `arrays` says how each stands in the bytes.
    """
    state = _state(scene, (width,))
    [(width, height, marks)] = state.layouts
    sizes, raw = states.pack_arrays(state.arrays)
    layout = {"width": width, "height": height, "marks": [_plain(mark) for mark in marks]}
    return {**state.words, **layout, "arrays": sizes}, raw


def _state(scene: Scene, widths: Sequence[float]) -> State:
    arrays = Numbers()

    def put(array: Any) -> int:
        return arrays[np.asarray(array, np.float32).tobytes()]

    def hashable(mark: Any) -> Hashable:
        return tuple(mark.sent(put).items()) if isinstance(mark, OwnMark) else mark

    flow = next((panel for panel in scene.flat() if isinstance(panel, Flow)), None)
    cut = next((panel for panel in scene.flat() if isinstance(panel, Cut)), None)
    writes = next((panel for panel in scene.flat() if isinstance(panel, Writes)), None)
    words = {
        "caption": scene.caption,
        "alt": scene.alt,
        "titles": [panel.title for panel in scene.flat()],
        "flow": flow and flow.sent(put),
        "cut": cut and cut.sent(put),
        "writes": writes and writes.sent(put),
    }

    def layout(width: float) -> tuple[float, float, list[Hashable]]:
        if cut:  # the browser draws it
            return *map(_rounded, size(scene, width, SCREEN)), []
        drawn = draw(Scene(writes.map()) if writes else scene, width, SCREEN)
        return _rounded(drawn.width), _rounded(drawn.height), [*map(hashable, drawn.marks)]

    layouts = [*map(layout, widths)]  # which may put arrays, too
    return State(words, [*arrays], layouts)


def _plain(mark: Any) -> dict[str, Any]:
    """A mark of a state as JSON writes it."""
    if isinstance(mark, tuple):
        return dict(mark)
    parts = {"kind": mark.kind} | {name: _rounded(value) for name, value in vars(mark).items()}
    if isinstance(mark, Path):
        parts["points"] = [_rounded(float(v)) for point in mark.points for v in point]
    return parts


def _rounded(value: Any) -> Any:
    """Pixels with one decimal at most."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else round(value, 1)


class LiveView(anywidget.AnyWidget):
    """One canvas that shows a scene: `show(scene)` sends the next in a single message."""

    _esm = SCRIPT
    theme = traitlets.Dict(THEME).tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes().tag(sync=True)
    controls = traitlets.Dict().tag(sync=True)
    prefetched = traitlets.Bytes().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int(WIDTH).tag(sync=True)

    def show(self, thing: Any) -> None:
        """Draws a scene, a panel or panels."""
        header, values = pack(scene_of(thing), self.width)
        with self.hold_sync():
            self.scene, self.data, self.error = header, values, ""


class Explorer:
    """Controls over a pure function `scene_at(**values) -> Scene`, the last line of a cell.

    `controls` maps the function's argument names to ipywidgets. Each begins at its argument's
    default, if that has one, and without a description is named as the argument. `reach` says which
    positions a control has where that depends on earlier ones, or on a page where it is typed: a
    function of the earlier values. A control that has only one is hidden. A ValueError of
    `scene_at` is shown as a sentence, any other exception with its type. A button plays the
    positions of the control `play`, one after the other. The `headline` stands above all and says
    what there is to see.

    A live notebook shows the controls and the moving picture; everywhere else (a hosting site,
    a notebook that was not run, paper) stands the first state as a still picture. A page moves as
    well.
    """

    def __init__(
        self,
        controls: Controls,
        scene_at: Callable[..., Any],
        *,
        reach: Reach | None = None,
        play: str | None = None,
        headline: str = "",
    ) -> None:
        self.controls = dict(controls)
        for key, argument in signature(scene_at).parameters.items():
            if key in self.controls and argument.default is not argument.empty:
                self.controls[key].value = argument.default
        self.reach = dict(reach or {})
        self.play, self.headline = play, headline
        self._scene_at = scene_at
        self._state_at = lru_cache(KEPT)(self._state_anew)
        self._sent: set[tuple[Any, ...]] = set()  # positions that the browser shows by itself
        self._sending: asyncio.Task[None] | None = None
        self._requests = {key: requested(control) for key, control in self.controls.items()}
        self._applying = False
        self.first = self.scene
        self.view = LiveView()
        for key, control in self.controls.items():
            if not control.description:
                control.description = key
            control.style.description_width = "initial"
            if getattr(control, "tooltip", "") is None:  # ipywidgets 7: not every control has one
                control.tooltip = ""  # else ipywidgets writes "null" into the label's
        self.view.controls = {"controls": self._described(), "play": play, "headline": headline}
        self.view.show(self.first)
        self.view.observe(self._widen, "width")
        for key, control in self.controls.items():
            control.observe(partial(self._move, key), "value")
        self._apply(self.values)
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
        """Where the controls stand now, each among the positions that earlier ones leave."""
        return resolved(self.controls, self.reach, self._requests)

    @property
    def scene(self) -> Scene:
        """The scene of now."""
        return self.scene_at(**self.values)

    def pack(self) -> Generator[None, None, bytes]:
        """All its states, for pages of all widths; yields after each of them."""

        # Where controls only choose within a picture, positions share one.
        state_of = lru_cache(1)(partial(_state, widths=WIDTHS))
        return states.pack_states(
            self.controls,
            self.reach,
            lambda at: state_of(self.scene_at(**at)),
            _plain,
            WIDTHS,
            play=self.play,
            headline=self.headline,
            requests=self._requests,
        )

    def still(self) -> str:
        """Its first state as a picture that does not move, with the headline."""
        caption = f"{self.headline} {self.first.caption}".lstrip()
        return figures.html(replace(self.first, caption=caption), SCREEN)

    def _state_anew(self, width: int, *values: Any) -> State:
        scene = self.scene_at(**dict(zip(self.controls, values, strict=True)))
        return _state(scene, (width,))

    def _described(self) -> list[dict[str, Any]]:
        descriptions = []
        for key, control in self.controls.items():
            typed = [control.value] if isinstance(control, widgets.Text) else None
            positions = positions_of(control, typed)
            descriptions.append(described(key, control, positions, self._requests[key]))
        return descriptions

    def _widen(self, _change: Any) -> None:
        self._sent.clear()
        self._answer()

    def _move(self, key: str, _change: Any) -> None:
        if not self._applying:
            self._requests[key] = requested(self.controls[key])
            self._answer()

    def _answer(self) -> None:
        at = self.values
        if tuple(at.values()) in self._sent:
            self.view.error = ""
        else:
            self._show(at)
        self._apply(at)  # the picture comes first
        self._send()

    def _apply(self, at: dict[str, Any]) -> None:
        self._applying = True
        try:
            apply(self.controls, self.reach, at)
        finally:
            self._applying = False

    def _show(self, at: dict[str, Any]) -> None:
        try:
            self.view.show(self.scene_at(**at))
        except ValueError as error:
            self.view.error = str(error)
        except Exception as error:  # shown, since a callback has no cell to print it under
            self.view.error = f"{type(error).__name__}: {error}"

    def _send(self, rest: float = REST) -> None:
        """Sends the states around this one, once nothing has moved for a while."""
        if self._sending:
            self._sending.cancel()
        with contextlib.suppress(RuntimeError):  # no loop: nobody looks
            self._sending = asyncio.get_running_loop().create_task(self._send_around(rest))

    async def _send_around(self, rest: float) -> None:
        await asyncio.sleep(rest)
        width, known = self.view.width, set[tuple[Any, ...]]()

        def state_at(at: dict[str, Any]) -> State | None:
            with contextlib.suppress(Exception):  # shown to a reader who goes there
                state = self._state_at(width, *at.values())
                known.add(tuple(at.values()))
                return state
            return None

        making = states.pack_states(
            self.controls, self.reach, state_at, _plain, (width,), self._requests
        )
        while True:
            try:
                next(making)
            except StopIteration as done:
                self._sent, self.view.prefetched = known, done.value
                return
            await asyncio.sleep(0)  # whatever else the kernel has to do goes first

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words = {"text/plain": self.first.alt}
        if os.environ.get(EXPORT):
            return words | {"text/html": page(self)}, {}
        _, for_colab = self.view._repr_mimebundle_() or ({}, {})
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        bundle = words | {"application/vnd.jupyter.widget-view+json": view}
        if SERVED not in os.environ:
            return bundle | {"text/html": self.still()}, for_colab
        self._send(FIRST)
        return bundle, for_colab


def page(explorer: Explorer) -> str:
    """An explorer with all its states as HTML that needs nothing else: no kernel, no network."""
    name = f"mha-{explorer.box.model_id[:12]}"
    scripts = f"<script>{script()}</script><script>{states_script(explorer, name)}</script>"
    return f'<div id="{name}">{explorer.still()}</div>{scripts}'


def script() -> str:
    """What every page with explorers has before them, once or more often."""
    source = base64.b64encode(zlib.compress(SCRIPT.encode(), 9)).decode()
    return (  # deflated it takes a third of the bytes
        f'window.mhaShow ??= fetch("data:;base64,{source}").then(({{ body }}) => new Response('
        'body.pipeThrough(new DecompressionStream("deflate"))).text())'
        '.then((text) => import("data:text/javascript," + encodeURIComponent(text))).then('
        f"({{ mount }}) => (name, states) => mount(document.getElementById(name), "
        f"{json.dumps(THEME)}, states))"
        f".catch(() => (name) => document.getElementById(name).prepend({json.dumps(TOO_OLD)}));"
    )


def states_script(explorer: Explorer, name: str) -> str:
    """What puts the explorer, with all its states, into the element of this id."""
    states = base64.b64encode(whole(explorer.pack())).decode()
    return f'mhaShow.then((show) => show({json.dumps(name)}, "{states}"));'


def whole(making: Generator[None, None, bytes]) -> bytes:
    """What `pack` makes, once it is done."""
    while True:
        try:
            next(making)
        except StopIteration as done:
            return bytes(done.value)
