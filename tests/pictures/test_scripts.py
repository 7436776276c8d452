"""The scripts as modules: each loads by itself, all are one, their colours are Python's."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mha_course.pictures import colours, live
from mha_course.pictures.layout import draw
from mha_course.pictures.panels import Scene, Walk
from mha_course.pictures.walk import Arrows

FOLDER = Path(live.__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.js"))
BROWSER = "globalThis.matchMedia = () => ({ matches: true });"  # what node has not


def node(script: str, given: str = "") -> str:
    if (found := shutil.which("node")) is None:
        pytest.skip("node runs the browser's scripts here, and is not installed")
    command = [found, "--input-type=module", "-e", script]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


def test_the_browser_computes_the_colours_that_python_has():
    script = f"""
    const {{ mapOf }} = await import({json.dumps((FOLDER / "colours.js").as_uri())});
    const {{ maps, ink }} = {json.dumps(live.THEME)};
    console.log(JSON.stringify(Object.values(maps).map((ends) => mapOf(ends, ink))));"""
    np.testing.assert_array_equal(json.loads(node(script)), [*colours.MAPS.values()])


def test_the_browser_writes_the_numbers_of_arrows_where_python_does():
    steps = np.random.default_rng(5).normal(size=(13, 2)) * np.geomspace(0.2, 2, 13)[:, None]
    [arrows] = [m for m in draw(Scene(Walk(steps, (-6, 6, -6, 6)))).marks if isinstance(m, Arrows)]
    mark = {"x": arrows.x, "y": arrows.y, "unit": arrows.unit, "steps": steps.ravel().tolist()}
    script = f"""{BROWSER}
    const {{ cornersOf, numbersOf }} = await import({json.dumps((FOLDER / "areas.js").as_uri())});
    const mark = {json.dumps(mark)};
    console.log(JSON.stringify(numbersOf(cornersOf(mark), mark.y)));"""
    expected = [(n.x, n.y, int(n.text)) for n in arrows.numbers()]
    assert len(expected) == 13
    np.testing.assert_allclose(json.loads(node(script)), expected, atol=1e-6)


def test_a_slider_at_its_end_stays_there_until_it_is_moved_away():
    """Two sliders, moved at random; the first leaves the second as many positions as it says."""
    draw, asked, moves, expected = random.Random(5), [0, 0], [], []
    for _ in range(200):
        k = draw.randrange(2)
        lasts = 3, min(asked[0], 3)
        position = draw.choice([draw.randint(0, lasts[k]), lasts[k]])
        asked[k] = math.inf if position == lasts[k] else position
        moves.append([k, position])
        expected.append([min(asked[0], 3), min(asked[0], 3, asked[1])])
    script = f"""
    const {{ Requests }} = await import({json.dumps((FOLDER / "controls.js").as_uri())});
    const range = {{ input: "range", start: 0 }}, controls = [range, range];
    const states = {{ controls, tree: [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]] }};
    const requests = new Requests(controls);
    console.log(JSON.stringify({moves}.map(([k, position]) => {{
      requests.ask(k, position, requests.left(states, k).length - 1);
      return [0, 1].map((k) => requests.resolved(states, k));
    }})));"""
    assert json.loads(node(script)) == expected


def test_each_script_imports_what_there_is_and_the_whole_is_one_module():
    files = json.dumps([path.as_uri() for path in SCRIPTS])
    script = f"""{BROWSER}
    import {{ text }} from "node:stream/consumers";
    const source = encodeURIComponent(await text(process.stdin));
    const whole = await import("data:text/javascript," + source);
    const parts = await Promise.all({files}.map((file) => import(file)));
    const names = (modules) => [...new Set(modules.flatMap((part) => Object.keys(part)))].sort();
    console.log(JSON.stringify([names([whole]), names(parts)]));"""
    whole, parts = json.loads(node(script, live.SCRIPT))
    assert whole == parts and "default" in whole
