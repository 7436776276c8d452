"""The states that a page holds: what the browser looks up is what Python's function says."""

import asyncio
import base64
import hashlib
import json
import random
import re
import zlib
from collections.abc import Iterator
from functools import cache

import ipywidgets as widgets
import numpy as np
import pytest
import torch

from in_node import node
from mha_course import explore
from mha_course.explore.n07_training import HEADS
from mha_course.pictures import controls, layout, live, panels, states
from mha_course.pictures.marks import Text
from mha_lesson.models import TwoSidesModel
from mha_lesson.training import Run
from readable import unpacked

# What is at positions of packed states, arrays as their digests.
LOOK_UP = """
const { theme, packed, places, widths } = given;
const { createHash } = await import("node:crypto");
const { unpack, stateAt, areaOf } = scripts, states = await unpack(Buffer.from(packed, "base64"));
const known = new Map();
const digest = (array) => {
  if (!known.has(array)) {
    const bytes = new Uint8Array(Float32Array.from(array, (v) => v + 0).buffer); // no −0
    known.set(array, createHash("sha1").update(bytes).digest("hex"));
  }
  return known.get(array);
};
const write = (key, v) => (v instanceof Float32Array ? digest(v) : v);
const cells = (m) => {
  const field = areaOf(m, theme), count = (n) => [...Array(n).keys()];
  return count(field.rows).map((r) => count(field.columns).map((c) => field.says(r, c)));
};
const seen = places.flatMap((at) => widths.map((width) => {
  const scene = stateAt(states, at, width);
  const read = (m) => ["heatmap", "tiles"].includes(m.kind) && !m.key;
  return scene && { scene, says: scene.marks.filter(read).map(cells) };
}));
return JSON.parse(JSON.stringify(seen, write));
"""
NAMES = [*explore.__all__, *(f"flow-{part}" for part in ("attention", "mask"))]
ARRAYS = ("values", "blocked", "writes", "bias")  # what a mark, or a flow, may hold
joined = live.whole


def look_up(packed: bytes, places: list[list[int]], widths: list[int]) -> list[dict]:
    """What the browser finds there, and what every cell says."""
    asked = {"places": places, "widths": widths, "theme": live.THEME}
    return node(LOOK_UP, packed=base64.b64encode(packed).decode(), **asked)


@cache
def digest(array: bytes) -> str:
    return hashlib.sha1((np.frombuffer(array, np.float32) + 0).tobytes()).hexdigest()


def expected(state: states.State) -> Iterator[dict]:
    """The same of a state as Python made it, for each of its widths."""
    for width, height, marks in state.layouts:
        plain = [live._plain(mark) for mark in marks]
        scene = {"width": width, "height": height, "marks": plain, **state.words}
        scene = json.loads(json.dumps(scene))
        for thing in [*scene["marks"], scene["flow"] or {}]:
            thing |= {k: digest(state.arrays[thing[k]]) for k in ARRAYS if thing.get(k) is not None}
        for own in filter(None, (scene["cut"], scene["writes"])):
            own |= {k: digest(state.arrays[i]) for k, i in own["arrays"].items()}
        for thing in scene["marks"]:
            if thing.get("kind") == "arrows":
                thing["steps"] = np.frombuffer(state.arrays[thing["steps"]], np.float32).tolist()
        yield scene


@cache
def explorer_of(name: str) -> live.Explorer:
    kind, _, until = name.partition("-")
    if kind == "training":  # of weights that are drawn: other weights after each step
        states = {h: {n: TwoSidesModel(h).state_dict() for n in (0, 4)} for h in HEADS}
        return explore.training(
            [Run(TwoSidesModel(h), 4, [1.0] * 4, kept) for h, kept in states.items()]
        )
    return getattr(explore, kind)(**({"until": until} if until else {}))


def positions(explorer: live.Explorer) -> list[tuple[list[int], dict]]:
    """Every position: the place of each control among all that it can have, and the values."""
    seen: list[dict] = []
    joined(states.pack_states(explorer.controls, explorer.reach, seen.append, str, ()))
    longest: dict[str, list] = {key: [] for key in explorer.controls}
    for at in seen:
        before: dict = {}
        for key, value in at.items():
            given = explorer.reach[key](**before) if key in explorer.reach else None
            values = [v for _, v in controls.positions_of(explorer.controls[key], given)]
            longest[key] = max(longest[key], values, key=len)
            before[key] = value
    return [([longest[key].index(value) for key, value in at.items()], at) for at in seen]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_browser_finds_the_picture_of_every_position_laid_out_for_each_width(
    name, monkeypatch, pytestconfig
):
    """Of six at random, or (`--all`) of sixty; and what each cell says."""
    monkeypatch.setenv(live.EXPORT, "1")
    explorer, widths = explorer_of(name), layout.WIDTHS
    every, most = positions(explorer), 60 if pytestconfig.getoption("--all") else 6
    sample = random.Random(name).sample(every, min(most, len(every)))
    scenes = {tuple(at.values()): explorer.scene_at(**at) for _, at in sample}
    made = {at: live._state(scene, widths) for at, scene in scenes.items()}

    def state_at(at: dict) -> states.State | None:
        return made.get(tuple(at.values()))

    packed = joined(
        states.pack_states(explorer.controls, explorer.reach, state_at, live._plain, widths)
    )
    shown = look_up(packed, [place for place, _ in sample], [*widths])
    for (_, at), seen in zip(sample, zip(*[iter(shown)] * len(widths), strict=True), strict=True):
        scene = scenes[tuple(at.values())]
        for one in seen:  # only the packing knows them
            del one["scene"]["arrays"], one["scene"]["layouts"]
        assert [one["scene"] for one in seen] == [*expected(made[(*at.values(),)])], at
        assert not re.search(r"(?<!\.)\b\d{4,} [a-z]", scene.caption), "1,024 rows"
        read = [p for p in scene.flat() if isinstance(p, panels.Heatmap | panels.Tiles)]
        for panel, rows in zip(read, seen[0]["says"] if read else [], strict=True):
            for (r, c), says in np.ndenumerate(np.array(rows, object)):
                assert says is None or says == panel.text(r, c), (at, r, c)


def chosen(n: int, on: bool, word: str = "it") -> panels.Heatmap:
    if n == 3 and not on:
        raise ValueError("n must not be 3 here")
    return panels.Heatmap([[n, on, len(word)]], limits=(0, 9), title=word)


def small(**more: widgets.Widget) -> live.Explorer:
    controls = {
        "n": widgets.IntSlider(value=2, min=1, max=4),
        "on": widgets.Checkbox(value=True, description="on"),
    }
    return live.Explorer(controls | more, chosen, reach={"on": lambda n: [False, True][:n]})


def parts_of(packed: bytes) -> dict:
    raw = zlib.decompress(packed)
    return json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])


def test_out_of_range_a_slider_goes_to_its_end_and_a_choice_to_its_first():
    three = {
        "n": widgets.IntSlider(value=4, min=1, max=4),
        "part": widgets.IntSlider(value=3, min=0, max=3),
        "name": widgets.Dropdown(options=["a", "b", "c"], value="c"),
    }
    reach = {"part": lambda n: range(n), "name": lambda n, **_: ["a", "b", "c"][:n]}
    assert controls.resolved(three, reach, {"n": 2, "part": 3, "name": "c"}) == {
        "n": 2,
        "part": 1,
        "name": "a",
    }
    explorer = live.Explorer(three, lambda **at: panels.Heatmap([[0]], title=str(at)), reach=reach)
    [state] = look_up(joined(explorer.pack()), [[1, 3, 2]], [860])
    assert state["scene"]["marks"][0]["text"] == str({"n": 2, "part": 1, "name": "a"})


def test_a_control_begins_at_the_default_of_its_argument_or_where_it_stands():
    controls = {"n": widgets.IntSlider(value=3, max=5), "on": widgets.Checkbox()}
    explorer = live.Explorer(controls, lambda n, on=True: chosen(n, on))
    assert explorer.values == {"n": 3, "on": True}


@pytest.mark.parametrize(("until", "heads", "step"), [("attention", 1, 0), (None, 2, None)])
def test_a_page_begins_at_the_requested_positions(until, heads, step):
    explorer = explore.flow(until=until)
    assert explorer.controls["head"].max == heads - 1
    arguments = explorer.controls, explorer.reach, lambda _: None, str, ()
    packed = joined(states.pack_states(*arguments, requests=explorer._requests))
    at = {c["key"]: c["start"] for c in parts_of(packed)["controls"]}
    assert at | {"causal": 0} == {"example": 0, "step": step, "head": 1, "causal": 0}


def test_states_around_a_position_are_one_move_away():
    explorer = small(word=widgets.Text(value="creek", description="word"))
    at = {"n": 2, "on": True, "word": "creek"}
    seen = []

    def state_at(values):
        seen.append(tuple(values.values()))
        return live._state(explorer.scene_at(**values), (500,))

    making = states.pack_states(
        explorer.controls, explorer.reach, state_at, live._plain, (500,), at
    )
    said = parts_of(joined(making))
    assert said["tree"] == [[[0]], [[1], [2]], [None, [3]], [None, [4]]]
    assert seen == [
        (1, False, "creek"),
        (2, False, "creek"),
        *((n, True, "creek") for n in (2, 3, 4)),
    ]


def test_a_hidden_box_that_was_checked_counts_as_checked_one_move_away():
    """The browser still has it checked: that state is sent, not the one with it off."""

    async def live_one() -> None:
        explorer = explore.head_writes()
        explorer.controls["h"].value = 2
        await explorer._sending
        assert (3, *[True] * 3, *[False] * 9) in explorer._sent

    asyncio.run(live_one())


def test_an_idle_kernel_sends_the_states_nearby_and_answers_for_others():
    """The positions that the browser shows by itself are not drawn again."""

    async def live_one() -> None:
        explorer = small(word=widgets.Text(value="it", description="word"))
        shown = []
        explorer.view.show = lambda scene: shown.append(scene.alt)
        explorer.controls["n"].value = 4
        assert len(shown) == 1
        await explorer._sending
        packed = explorer.view.prefetched
        assert packed and not explorer.view.error
        explorer.controls["n"].value = 3
        explorer.controls["n"].value = 2
        explorer.controls["n"].value = 3
        assert len(shown) == 1
        explorer.controls["on"].value = False  # it is refused, and was not sent
        assert explorer.view.error == "n must not be 3 here"
        explorer.controls["on"].value = True
        assert not explorer.view.error
        explorer.controls["word"].value = "creek"
        assert len(shown) == 2
        await explorer._sending
        assert explorer.view.prefetched != packed
        explorer.view.width = 400  # another layout for every state
        assert len(shown) == 3 and not explorer._sent
        explorer._sending.cancel()

    asyncio.run(live_one())


def test_a_live_view_makes_no_still_picture(monkeypatch):
    monkeypatch.setattr(live.figures, "html", lambda *_: pytest.fail("nobody will see it"))
    monkeypatch.setenv(live.SERVED, "notebook.ipynb")
    bundle, _ = explore.masks()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}


@pytest.mark.parametrize("decimals", [2, 3, 4, 5, 9])
def test_arrays_arrive_as_they_are(decimals):
    generator = torch.Generator().manual_seed(decimals)
    values = (4 * torch.randn(50, generator=generator)).round(decimals=decimals).numpy()
    odd = np.array([np.nan, np.inf, -0.0, 1e-30, 4e5, 32.768], np.float32)
    sizes, raw = states.pack_arrays([values.tobytes(), odd.tobytes()])
    assert sizes == [[50, 3, 10_000] if decimals <= 4 else [50, 4, 0], [6, 4, 0]]
    for sent, array in zip(unpacked(sizes, raw), (values, odd), strict=True):
        np.testing.assert_array_equal(sent, array)


@pytest.mark.parametrize("name", ["masks", "real_heads", "head_writes", "memory"])
def test_a_cached_layout_is_the_one_that_would_be_computed(name):
    """Panels of one size key take the same space, whatever their values."""
    explorer = explorer_of(name)
    sample = random.Random(name).sample(positions(explorer), 5)
    scenes = [explorer.scene_at(**at) for _, at in sample]

    def widths() -> list:
        drawn = [
            layout.draw(scene, width, layout.SCREEN) for scene in scenes for width in (860, 330)
        ]
        return [(d.width, d.height, [m for m in d.marks if isinstance(m, Text)]) for d in drawn]

    remembered = widths()
    for i, scene in enumerate(scenes):
        layout._fitting.cache_clear()
        layout._shares.cache_clear()
        anew = layout.draw(scene, 330, layout.SCREEN), layout.draw(scene, 860, layout.SCREEN)
        for drawing, (width, height, texts) in zip(anew[::-1], remembered[2 * i :], strict=False):
            assert (drawing.width, drawing.height) == (width, height)
            assert [m for m in drawing.marks if isinstance(m, Text)] == texts
