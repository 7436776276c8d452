"""The parcel of all states: what the browser looks up is what Python's function says."""

import json
import random
import shutil
import subprocess

import ipywidgets as widgets
import numpy as np
import pytest

from mha_lesson import explore
from mha_lesson.explore.n07_training import HEADS
from mha_lesson.pictures import live, states
from mha_lesson.pictures.panels import Heatmap, Scene
from mha_lesson.training import two_sides_runs

# Runs the browser's own script: reads a parcel and positions, writes the states found there.
LOOK_UP = """
const chunks = []; for await (const chunk of process.stdin) chunks.push(chunk);
const { source, parcel, places } = JSON.parse(Buffer.concat(chunks));
const { unpack, stateAt } = await import("data:text/javascript;base64," + source);
const stored = await unpack(Buffer.from(parcel, "base64"));
const array = (at) => at && Array.from(stored.values.slice(at[0], at[0] + at[1]), String);
process.stdout.write(JSON.stringify(places.map((at) => {
  const state = stateAt(stored, at);
  const marks = state.marks.map((m) =>
    m.kind === "heatmap" ? { ...m, values: array(m.values), blocked: array(m.blocked) } : m);
  const { writes, bias } = state.flow ?? {};
  const flow = state.flow && { ...state.flow, writes: array(writes), bias: array(bias) };
  return { ...state, marks, flow };
})));
"""
FEW = 2  # positions of each control: all states of all explorers take a minute


def look_up(parcel: bytes, places: list[list[int]]) -> list[dict]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node runs the browser's script here, and is not installed")
    sent = {
        "source": live.base64.b64encode(live.SCRIPT.encode()).decode(),
        "parcel": live.base64.b64encode(parcel).decode(),
        "places": places,
    }
    done = subprocess.run(
        [node, "--input-type=module", "-e", LOOK_UP],
        input=json.dumps(sent), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def comparable(state: dict, values: np.ndarray | None = None) -> dict:
    """A state whose arrays stand in it as float32 in words, since NaN differs from itself.

    `values`: what [offset, length] points into; None if the state's own strings are meant.
    """
    for mark in [*state["marks"], state["flow"] or {}]:
        for key in ("values", "blocked", "writes", "bias"):
            if mark.get(key) is not None:
                at = mark[key]
                array = np.array(at, np.float32) if values is None else values[at[0] :][: at[1]]
                mark[key] = str((array + 0).tolist())  # JavaScript writes −0 as 0
    return state


def said(scene: Scene) -> dict:
    """What the kernel would send for a scene."""
    header, raw = live.pack(scene)
    return comparable(json.loads(json.dumps(header)), np.frombuffer(raw, np.float32))


def explorer_of(name: str) -> live.Explorer:
    if name == "training":
        runs = [r for h in HEADS[:FEW] for r in two_sides_runs(h, [0], n_steps=4, snapshot_every=2)]
        return explore.training(runs)
    return getattr(explore, name)()


@pytest.mark.plain
@pytest.mark.parametrize("name", explore.__all__)
def test_the_browser_finds_the_scene_of_every_position(name, monkeypatch):
    explorer = explorer_of(name)
    all_of = states._positions
    monkeypatch.setattr(states, "_positions", lambda control, given: all_of(control, given)[:FEW])
    assert explorer.has_page
    *_, made = explorer.states()
    draw = random.Random(name)
    asked, expected = [], []
    for _ in range(20):
        values, places = {}, []
        for key, control in explorer.controls.items():
            given = explorer.reach[key](**values) if key in explorer.reach else None
            left = states._positions(control, given)
            places.append(draw.randrange(FEW))
            values[key] = left[min(places[-1], len(left) - 1)][1]
        asked.append(places)
        expected.append(said(explorer.scene_at(**values)))
    found = look_up(states.squeezed(*made), asked)
    for at, state, scene in zip(asked, found, expected, strict=True):
        assert comparable(state) == scene, at


def test_the_tree_has_the_positions_that_earlier_controls_leave():
    controls = {
        "n": widgets.IntSlider(value=2, min=1, max=3),
        "on": widgets.Checkbox(value=True, description="on"),
    }
    explorer = live.Explorer(
        controls,
        lambda n, on: Heatmap([[n, on]], limits=(0, 3)),
        reach={"on": lambda n: [False, True][:n]},
    )
    *_, (stored, values) = explorer.states()
    assert stored["tree"] == [[0], [1, 2], [3, 4]]
    assert [c["said"] for c in stored["controls"]] == [["1", "2", "3"], ["False", "True"]]
    assert [c["start"] for c in stored["controls"]] == [1, 1]
    assert len(values) == 4 * 2 * 5


def test_an_explorer_with_a_typed_field_has_no_page_without_a_list_for_it():
    controls = {"word": widgets.Text(value="it", description="word")}
    explorer = live.Explorer(controls, lambda word: Heatmap([[len(word)]], limits=(0, 9)))
    assert not explorer.has_page
    with pytest.raises(ValueError, match="must have a list of positions"):
        live.page(explorer)


@pytest.mark.plain
@pytest.mark.parametrize("reach", [{"m": lambda: [1]}, {"n": [1, 2]}, [1]])
def test_a_wrong_reach_is_refused(reach):
    controls = {"n": widgets.IntSlider(value=2, min=1, max=3)}
    with pytest.raises((ValueError, TypeError), match="reach"):
        live.Explorer(controls, lambda n: Heatmap([[n]], limits=(0, 3)), reach=reach)


def test_where_somebody_looks_live_no_still_picture_is_made(monkeypatch):
    monkeypatch.setattr(live.figures, "html", lambda *_: pytest.fail("nobody will see it"))
    monkeypatch.setenv(live.SERVED, "notebook.ipynb")
    bundle, _ = explore.masks()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
