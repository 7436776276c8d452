"""Ribbons to cut: paper and browser draw the same, of the numbers that the model gives."""

import json

import numpy as np
import pytest

from in_node import node
from mha_course.pictures import layout, live
from mha_course.pictures.colours import INK, ROLES
from mha_course.pictures.cut import FULL, Cut
from mha_course.pictures.panels import Scene

MARKS = """return given.asked.map(({ seen, page, theme }) => {
  seen.cut = (j) => seen.cuts[j];
  const { marks, width, height } = scripts.cutMarks(seen, page, theme);
  return { marks, width, height };
});"""


def panel(T: int, **more: object) -> Cut:
    """T words, some long, and numbers at random."""
    draw = np.random.default_rng(T)
    weights = draw.dirichlet(np.ones(T))
    values = {
        "word": T // 2,
        "layer": T % 6,
        "head": (3 * T) % 12,
        "text": "a sentence",
        "widest": draw.random((6, 12)),
        "weights": weights,
        "own": draw.random(T) / 9,
        "rescaled": draw.random(T),
        "moves": draw.random((T + 2, T)) ** 3,
    }
    return Cut([f"word{'s' * (i % 13)}" for i in range(T)], **(values | more))


def browser(*asked: tuple[Cut, int | None, float, int]) -> list[dict]:
    """What the browser draws of panels, each with a cut, a share, and the width of its page."""
    cases = []
    for one, cut, share, page in asked:
        T = len(one.labels)
        cuts = [2] * T if cut is not None and cut >= T else [int(j == cut) for j in range(T)]
        seen = {name: getattr(one, name).ravel().tolist() for name in ("weights", "own", "widest")}
        seen |= {name: getattr(one, name) for name in ("labels", "word", "layer", "head")}
        seen |= {"moved": None if cut is None else one.moves[cut].tolist()}
        seen |= {"cuts": cuts, "share": share}
        cases.append({"seen": seen, "page": page, "theme": live.THEME})
    return node(MARKS, asked=cases)


def test_the_browser_draws_the_marks_of_paper():
    """And room for what is seen after a cut: bars of no length, and empty texts."""
    cases = [(panel(T), width) for T in (3, 5, 11, 17, 23) for width in (310, 500, 760, 860)]
    drawn = browser(*((one, None, 0.0, width) for one, width in cases))
    for (one, width), found in zip(cases, drawn, strict=True):
        drawing = layout.draw(Scene(one), width)
        assert (found["width"], found["height"]) == (drawing.width, drawing.height)
        ours = [json.loads(json.dumps({"kind": m.kind, **vars(m)})) for m in drawing.marks]
        for mark in ours:
            if "points" in mark:
                mark["points"] = [value for point in mark["points"] for value in point]
        theirs = [m for m in found["marks"] if m.get("text") != "" and m.get("width") != 0.01]
        ours = [m for m in ours if m.get("text") != ""]
        (words, numbers), (our_words, our_numbers) = map(parted, (theirs, ours))
        assert words == our_words
        np.testing.assert_allclose(numbers, our_numbers, atol=1e-6)


def test_a_page_says_the_size_that_the_picture_has():
    """Which is kept for all with the same words."""
    for one in (panel(5), panel(11), panel(5, word=0), panel(23), panel(11, word=2)):
        for width in (310, 860):
            sent, _ = live.pack(Scene(one), width)
            drawing = layout.draw(Scene(one), width)
            assert (sent["width"], sent["height"]) == (drawing.width, round(drawing.height, 1))


def parted(marks: list[dict]) -> tuple[list, np.ndarray]:
    """The words of marks, and the names of all their parts; and their numbers."""
    parts = [sorted(mark.items()) for mark in marks]
    words = [(k, v if isinstance(v, str) else np.size(v)) for mark in parts for k, v in mark]
    return words, np.hstack([v for mark in parts for _, v in mark if not isinstance(v, str)])


def paths(drawn: dict) -> list[dict]:
    return [mark for mark in drawn["marks"] if mark["kind"] == "path"]


def thickness(path: dict, i: int) -> float:
    """Of a ribbon, at one of the points along it."""
    return path["points"][2 * (len(path["points"]) // 2 - 1 - i) + 1] - path["points"][2 * i + 1]


def test_ribbons_are_as_wide_as_weights_or_as_what_a_cut_does_and_end_in_one_word():
    one = panel(7, weights=np.eye(7)[2] * 0.94 + 0.01)
    for share in (0.0, 0.25, 1.0):
        [drawn] = browser((one, None, share, 310))
        mixed = (1 - share) * one.weights + share * one.own
        wide = np.array([thickness(path, 0) for path in paths(drawn)])
        np.testing.assert_allclose(wide / wide.sum(), mixed / mixed.sum(), rtol=1e-9)
        assert max(thickness(path, 24) for path in paths(drawn)) <= 24 - 2


@pytest.mark.parametrize("cut", [0, 6, 7, 8])
def test_bars_and_numbers_say_how_far_each_vector_moves(cut):
    one = panel(7)
    [drawn] = browser((one, cut, 0.0, 860))
    bars = [m["width"] for m in drawn["marks"] if m.get("colour") == ROLES["output"]]
    full = np.minimum(1.0, one.moves[cut] / FULL)
    longest = bars[int(full.argmax())] / full.max()  # one that says 0 is there as well
    np.testing.assert_allclose(bars, np.maximum(0.01, longest * full), atol=1e-9)
    said = [m["text"] for m in drawn["marks"] if m.get("text", "").endswith("%")]
    assert said == [
        f"{100 * move:.1f}%".removeprefix("0") if move >= 0.0005 else "0%"
        for move in one.moves[cut]
    ]
    grey = [path["colour"].startswith(INK) for path in paths(drawn)]
    assert grey == [cut >= 7 or i == cut for i in range(7)]
