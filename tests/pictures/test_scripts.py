"""The scripts as modules: each loads by itself, all are one; they compute what Python does."""

import math
import random
from pathlib import Path

import numpy as np
import torch

from in_node import node
from mha_course.pictures import colours, live, panels
from mha_course.pictures.layout import draw
from mha_course.pictures.panels import Scene, Walk
from mha_course.pictures.walk import Arrows
from mha_lesson import causal_mask, scaled_dot_product_attention


def test_the_browser_computes_the_colours_that_python_has():
    script = """const { maps, ink } = given.theme;
    return Object.values(maps).map((ends) => scripts.mapOf(ends, ink));"""
    np.testing.assert_array_equal(node(script, theme=live.THEME), [*colours.MAPS.values()])


def test_the_browser_writes_the_numbers_of_arrows_where_python_does():
    steps = np.random.default_rng(5).normal(size=(13, 2)) * np.geomspace(0.2, 2, 13)[:, None]
    [arrows] = [m for m in draw(Scene(Walk(steps, (-6, 6, -6, 6)))).marks if isinstance(m, Arrows)]
    mark = {"x": arrows.x, "y": arrows.y, "unit": arrows.unit, "steps": steps.ravel().tolist()}
    script = "return scripts.numbersOf(scripts.cornersOf(given.mark), given.mark.y);"
    expected = [(n.x, n.y, int(n.text)) for n in arrows.numbers()]
    assert len(expected) == 13
    np.testing.assert_allclose(node(script, mark=mark), expected, atol=1e-6)


def test_numbers_read_alike_in_python_and_in_the_browser():
    rng = random.Random(3)
    values = [rng.choice((-1, 1)) * 10 ** rng.uniform(-7, 13) for _ in range(400)]
    values += [0, 0.125, 0.375, 0.5, 1, -2.5, 999.5, 9999.5, 10_000, 99_950, 1e6, 0.0995, 12]
    values += [10_012, 25_000, 1e10, -2.5e9]
    script = "return given.values.map((v) => [scripts.number(v), scripts.number(v, 2)]);"
    assert node(script, values=values) == [[panels.number(v), panels.number(v, 2)] for v in values]


def test_tones_rise_with_the_numbers_and_what_is_blocked_is_a_low_click():
    script = """const made = [], nothing = () => {}, gain = { setValueAtTime: nothing,
      exponentialRampToValueAtTime: nothing };
    const tone = () => ({ frequency: {}, connect: (x) => x, start: nothing, stop: nothing });
    globalThis.AudioContext = class {
      currentTime = 0; close() {} createGain() { return { gain, connect: nothing }; }
      createOscillator() { return made[made.push(tone()) - 1]; }
    };
    scripts.play(given.shares);
    return made.map(({ frequency, type }) => [frequency.value, type]);"""
    tones = node(script, shares=[0, 0.5, 1, None])
    assert tones == [[220, "sine"], [440, "sine"], [880, "sine"], [80, "square"]]


def test_the_browser_attends_as_python_does():
    """1,000 numbers for each of Q, K and V, drawn at random, with a mask and without."""
    cases, expected = [], []
    for n in range(167):
        q, k, v = (torch.randn(3, 2) * 4 for _ in range(3))
        mask = causal_mask(3) if n % 2 else None
        blocked = None if mask is None else mask.int().flatten().tolist()
        cases.append([x.flatten().tolist() for x in (q, k.T, v)] + [blocked])
        context, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True)
        scores = q @ k.T / 2**0.5
        expected.append([x.flatten().tolist() for x in (q @ k.T, scores, scores, weights, context)])
    script = """return given.cases.map(([q, k, v, blocked]) => {
      const made = scripts.attend(...[q, k, v].map((a) => new Float32Array(a)), 2, blocked);
      return Object.values(made).map((a) => [...a]);
    });"""
    for found, right in zip(node(script, cases=cases), expected, strict=True):
        for ours, theirs in zip(found, right, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)


def test_what_is_heard_quotes_tokens_and_knows_the_sign_of_scores():
    names, values = ["it", "creek", ".", "it"], [[-3.5, 2, 0.5, 1], [0.02, -1, 0, 0]]
    script = """const { theme, mark } = given, shape = [mark.rows.length, mark.columns.length];
    const values = mark.values.flat(), { heard } = scripts;
    const [map, ribbons, steps] = ["heatmap", "ribbons", "heatmap"].map((kind, i) =>
      scripts.areaOf({ ...mark, kind, shape, values, ...(i > 1 && { rows: ["0", "1"] }) }, theme));
    return [map.spoken(0, 1), map.spokenRow(0, 0), map.spokenColumn(0), steps.spokenColumn(0),
      ribbons.spokenRow(0, 0), ribbons.spokenRow(1, 0), ribbons.spokenRow(1, 1),
      heard("strongest: to → to, .21; . → it"), heard("query → key"), heard(given.alt)];"""
    mark = {"rows": ["to", "it"], "columns": names, "values": values, "decimals": 2}
    mark |= {"row_name": "query", "column_name": "key"}
    alt = "heatmap of 2 × 3, written by → first 9 numbers; largest .5: sum → the. "
    alt += "mask of 2 × 2, query → key; 1 True"
    assert node(script, theme=live.THEME, mark=mark, alt=alt) == [
        "query “to”, key “creek”: 2.00",
        "query “to”: largest “creek” 2.00, 2nd “it” 1.00, full stop .50; lowest 1st “it” −3.50",
        "key 1st “it”: “it” .02, “to” −3.50",
        "key 1st “it”: query 1: .02, query 0: −3.50",
        "query “to” takes from: “creek” 2.00, 2nd “it” 1.00, full stop .50",
        "query “it” takes from: no ribbon here",
        "key “creek” gives to: “to” 2.00",
        "strongest: query “to”, key “to”, .21; query full stop, key “it”",
        "queries by keys",
        "heatmap of 2 × 3, rows: written by, columns: first 9 numbers; largest .5: sum, the. "
        "mask of 2 × 2, queries by keys; 1 True",
    ]


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
    script = """const range = { input: "range", start: 0 }, controls = [range, range];
    const states = { controls, tree: [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]] };
    const requests = new scripts.Requests(controls);
    return given.moves.map(([k, position]) => {
      requests.ask(k, position, requests.left(states, k).length - 1);
      return [0, 1].map((k) => requests.resolved(states, k));
    });"""
    assert node(script, moves=moves) == expected


def test_marks_of_a_kind_move_only_where_there_are_as_many_as_before():
    before, after = ["text", "dot", "dot", "path"], ["dot", "text", "dot", "path", "path"]
    script = """const made = (kinds) => kinds.map((kind, i) => ({ kind, i }));
    const [before, after] = given.marks.map(made);
    return scripts.origins(before, after).map((from) => from?.i ?? null);"""
    assert node(script, marks=[before, after]) == [1, 0, 2, None, None]


def test_each_script_imports_what_there_is_and_the_whole_is_one_module():
    files = [path.as_uri() for path in sorted(Path(live.__file__).parent.glob("*.js"))]
    script = """const parts = await Promise.all(given.files.map((file) => import(file)));
    const names = (modules) => [...new Set(modules.flatMap((part) => Object.keys(part)))].sort();
    return [names([scripts]), names(parts)];"""
    whole, parts = node(script, files=files)
    assert whole == parts and "default" in whole
