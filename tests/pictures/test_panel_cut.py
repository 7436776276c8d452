"""Ribbons to cut: paper and browser draw the same, of the numbers that the model gives."""

import json

import numpy as np
import pytest

from in_node import node
from mha_course.pictures import layout, live
from mha_course.pictures.colours import INK, ROLES
from mha_course.pictures.cut import FULL, Cut
from mha_course.pictures.marks import Path, Rect, Text
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


def test_the_browser_draws_the_marks_of_paper():
    panels = [
        panel(T, cut=cut, share=share)
        for T, cut, share in [
            (3, None, 0.0),
            (5, 1, 0.3),
            (11, 11, 1.0),
            (17, 18, 0.5),
            (23, 22, 0.0),
        ]
    ]
    cases = [(one, width) for one in panels for width in (310, 500, 760, 860)]
    asked = []
    for one, width in cases:
        T, cut = len(one.labels), one.cut
        cuts = [2] * T if cut is not None and cut >= T else [int(j == cut) for j in range(T)]
        seen = {name: getattr(one, name).ravel().tolist() for name in ("weights", "own", "widest")}
        seen |= {name: getattr(one, name) for name in ("labels", "word", "layer", "head", "share")}
        seen |= {"moved": None if cut is None else one.moves[cut].tolist(), "cuts": cuts}
        asked.append({"seen": seen, "page": width, "theme": live.THEME})
    for (one, width), found in zip(cases, node(MARKS, asked=asked), strict=True):
        drawing = layout.draw(Scene(one), width)
        assert (found["width"], found["height"]) == (drawing.width, drawing.height)
        ours = [json.loads(json.dumps({"kind": m.kind, **vars(m)})) for m in drawing.marks]
        for mark in ours:
            if "points" in mark:
                mark["points"] = [value for point in mark["points"] for value in point]
        (words, numbers), (our_words, our_numbers) = map(parted, (found["marks"], ours))
        assert words == our_words
        np.testing.assert_allclose(numbers, our_numbers, atol=1e-6)


def test_a_page_says_the_size_that_the_picture_has():
    """Which is kept for all with the same words."""
    for one in (panel(5), panel(11), panel(5, cut=1, word=0), panel(23), panel(11, word=2)):
        for width in (310, 860):
            sent, _ = live.pack(Scene(one), width)
            drawing = layout.draw(Scene(one), width)
            assert (sent["width"], sent["height"]) == (drawing.width, round(drawing.height, 1))


def parted(marks: list[dict]) -> tuple[list, np.ndarray]:
    """The words of marks, and the names of all their parts; and their numbers."""
    parts = [sorted(mark.items()) for mark in marks]
    words = [(k, v if isinstance(v, str) else np.size(v)) for mark in parts for k, v in mark]
    return words, np.hstack([v for mark in parts for _, v in mark if not isinstance(v, str)])


def marks_of(one: Cut, kind: type, width: int = 860) -> list:
    return [mark for mark in layout.draw(Scene(one), width).marks if isinstance(mark, kind)]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_ribbons_are_as_wide_as_weights_or_as_what_a_cut_does(share):
    one = panel(7, share=share)
    wide = [path.points[-1][1] - path.points[0][1] for path in marks_of(one, Path)]
    full = sum(path.points[-1][1] - path.points[0][1] for path in marks_of(panel(7), Path))
    mixed = (1 - share) * one.weights + share * one.own
    np.testing.assert_allclose(wide, full * mixed, rtol=1e-9)


def test_a_ribbon_ends_in_one_word():
    pitch = 24
    for path in marks_of(panel(7, weights=np.eye(7)[2] * 0.94 + 0.01), Path, 310):
        top, bottom = sorted((path.points[24][1], path.points[25][1]))
        assert bottom - top <= pitch - 2


@pytest.mark.parametrize("cut", [0, 6, 7, 8])
def test_bars_and_numbers_say_how_far_each_vector_moves(cut):
    one = panel(7, cut=cut)
    bars = [mark for mark in marks_of(one, Rect) if mark.colour == ROLES["output"]]
    full = np.minimum(1.0, one.moves[cut] / FULL)
    longest = bars[int(full.argmax())].width / full.max()
    widths = [bar.width for bar in bars]  # one that says 0 is there as well
    np.testing.assert_allclose(widths, np.maximum(0.01, longest * full), atol=1e-9)
    said = [mark.text for mark in marks_of(one, Text) if mark.text.endswith("%")]
    assert said == [
        f"{100 * move:.1f}%".removeprefix("0") if move >= 0.0005 else "0%"
        for move in one.moves[cut]
    ]
    grey = [path.colour.startswith(INK) for path in marks_of(one, Path)]
    assert grey == [cut >= 7 or i == cut for i in range(7)]
