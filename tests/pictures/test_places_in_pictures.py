"""Where pictures put labels, numbers, colours and marks, by what they stand for."""

import io
import itertools
import re

import numpy as np
import pytest
from PIL import Image

from mha_course.pictures import figures
from mha_course.pictures.colours import LOW
from mha_course.pictures.layout import draw
from mha_course.pictures.marks import Cells, ColourBar, Dot, Path, Rect, Text
from mha_course.pictures.panels import (
    Bars,
    Curve,
    Heatmap,
    Scene,
    Table,
    Tiles,
    Walk,
    Words,
    head_colour,
    number,
)
from mha_course.pictures.walk import Arrows
from mha_course.pictures.words import Ribbons


def marks_of(kind, thing, width=860):
    return [m for m in draw(Scene(thing), width).marks if isinstance(m, kind)]


def texts_of(thing):
    return {m.text: m for m in marks_of(Text, thing)}


def pixels(thing):
    return np.asarray(Image.open(io.BytesIO(figures.png(thing))).convert("RGB")).astype(int)


def at(image, x, y):
    return image[round(2 * (y + figures.MARGIN)), round(2 * (x + figures.MARGIN))]


def test_labels_stand_at_their_rows_and_columns():
    heat = Heatmap(
        np.arange(15.0).reshape(3, 5),
        list("abc"),
        list("vwxyz"),
        row_name="from",
        column_name="into",
        numbers=False,
    )
    [cells], texts = marks_of(Cells, heat), texts_of(heat)
    for r, label in enumerate("abc"):
        assert texts[label].y == cells.at(r, 0)[1] + cells.height / 2
    for c, label in enumerate("vwxyz"):
        assert texts[label].x == cells.at(0, c)[0] + cells.width / 2
    assert texts["from"].turned and not texts["into"].turned
    tiles = Tiles([["1", "2"], ["3", "4"], ["5", "6"]], rows=list("abc"))
    [cells], texts = marks_of(Cells, tiles), texts_of(tiles)
    for r, label in enumerate("abc"):
        assert cells.at(r, 0)[1] < texts[label].y < cells.at(r, 0)[1] + cells.height
    words = Words(Heatmap(np.eye(2), ["a", "b"], ["v", "w"], row_name="from", column_name="into"))
    texts = texts_of(words)
    for left, right in (("from", "into"), ("a", "v"), ("b", "w")):
        assert texts[left].align == "right" and texts[left].x < texts[right].x


def test_ticks_marker_and_names_stand_where_their_values_do():
    curve = Curve(
        [1, 2, 3, 5], {"up": [0, 20, 40, 50], "down": [50, 40, 20, 0]}, marker=3, dashed=["down"]
    )
    dots, texts = {m.says: m for m in marks_of(Dot, curve)}, texts_of(curve)
    for x in (1, 2, 3, 5):
        assert texts[f"{x}"].x == pytest.approx(dots[curve.text(0, [1, 2, 3, 5].index(x))].x)
    for k, y in enumerate((0, 20, 40)):
        assert texts[f"{y}"].y == pytest.approx(dots[curve.text(0, k)].y)
    rules = [m for m in marks_of(Path, curve) if m.dashed and m.points[0][0] == m.points[1][0]]
    assert [m.points[0][0] for m in rules] == [pytest.approx(dots[curve.text(0, 2)].x)]
    for i, name in enumerate(curve.lines):
        swatch = [
            m for m in marks_of(Path, curve) if m.points[1] == (texts[name].x - 4, texts[name].y)
        ]
        assert [m.colour for m in swatch] == [dots[curve.text(i, 0)].colour]


def test_numbers_and_legend_belong_to_their_bars():
    bars = Bars(
        [[1.25, 3.5, 2.75], [4.25, 0.5, 1.75]],
        list("abc"),
        series=("one", "two"),
        limits=(0, 7),
        reference=(3, "here"),
    )
    rects, texts = marks_of(Rect, bars), marks_of(Text, bars)
    chips, marks = rects[:2], {m.says: m for m in rects[2:]}
    for s, r in itertools.product(range(2), range(3)):
        bar, value = marks[bars.text(s, r)], bars.values[s, r]
        above = [t for t in texts if t.text == number(value, 2)]
        assert [abs(t.x - bar.x - bar.width / 2) < 1 for t in above] == [True]
        chip = next(t for t in texts if t.text == bars.series[s])
        assert [c.colour for c in chips if abs(c.x - chip.x + 18) < 1] == [bar.colour]
    unit = marks["a, two = 4.25"].height / 4.25
    [rule] = [m for m in marks_of(Path, bars) if m.colour == LOW]
    bar = marks["b, one = 3.50"]
    assert bar.y + bar.height - rule.points[0][1] == pytest.approx(3 * unit)


def test_a_walk_goes_up_where_it_says_up_in_the_colours_of_the_heads():
    steps = [[1, 2], [3, -1], [-2, 0.5], [0, 0], *[[-0.5, -0.5]] * 6, [0.1, 0], [0, -0.1]]
    walk = Walk(steps, (-2, 5, -2, 3))
    [arrows] = marks_of(Arrows, walk)
    total, *lines = [line for line, _ in arrows.parts()]
    assert [line.dashed for line in (total, *lines)] == [True] + [False] * 12
    *numbers, ten, eleven = arrows.numbers()
    assert [n.text for n in numbers] == list("012456789")  # 3 has no length
    for n in numbers:  # beside the middle of its arrow
        (a, b), (c, d) = lines[int(n.text)].points
        away = np.array([n.x - (a + c) / 2, n.y - (b + d) / 2])
        assert away @ [c - a, d - b] == pytest.approx(0, abs=1e-9) and np.hypot(
            *away
        ) == pytest.approx(11)
        left = (d - b) * away[0] > (c - a) * away[1]  # of its way
        assert left == ((b + d) / 2 <= arrows.y)
    ends = np.array([line.points for line in lines])
    for n, other in ((ten, eleven), (eleven, ten)):  # short: where most is free
        far = np.hypot(*(ends.reshape(-1, 2) - (n.x, n.y)).T)
        assert far.min() > 8 and np.hypot(n.x - other.x, n.y - other.y) > 8
        assert np.hypot(*(ends[int(n.text)].mean(axis=0) - (n.x, n.y))) < 21
    for i, (line, (along, up)) in enumerate(zip(lines, walk.steps, strict=True)):
        (x0, y0), (x, y) = line.points
        assert (x - x0, y0 - y) == pytest.approx((along * arrows.unit, up * arrows.unit))
        assert line.colour == head_colour(i)


def test_maps_of_other_scales_have_bars_of_their_own_with_both_ends():
    maps = [Heatmap([[0.5]], limits=(0, far), numbers=False) for far in (3, 7)]
    assert [m.end for m in marks_of(ColourBar, maps)] == ["3", "7"]
    bar = Heatmap([[2.0]], limits=(-13, 17), numbers=False)
    [ramp], texts = marks_of(ColourBar, bar), texts_of(bar)
    assert texts["−13"].x < ramp.x and ramp.end == "17"


def test_a_ribbon_goes_from_the_query_to_the_key_and_the_row_stands_out():
    words = Words(Heatmap([[0.0, 1.0], [0.9, 0.0], [0.0, 0.0]]), row=0)
    [mark], image = marks_of(Ribbons, words), pixels(words)
    ink = lambda x, n: int(np.ptp(at(image, x, mark.y + (n + 0.5) * mark.pitch)))  # noqa: E731
    left, right = ([ink(x, n) for n in range(3)] for x in (mark.x + 2, mark.x + mark.width - 2))
    assert left[0] > left[1] > 10 > left[2]  # of query 0, of query 1, none
    assert right[1] > right[0] > 10 > right[2]


def test_each_cell_has_its_own_number_or_none(monkeypatch):
    values = [[0.11, 0.23, 0.37], [0.41, 0.53, 0.67]]
    panel, silent = (Heatmap(values, limits=(0, 1), numbers=n) for n in (None, False))
    written = {}

    def write(self, x, y, text, **_):
        written[text] = x, y

    monkeypatch.setattr(figures.Axes, "text", write)
    figures.png(panel)
    [cells] = marks_of(Cells, panel)
    width, height = cells.width - cells.gap, cells.height - cells.gap
    for (r, c), value in np.ndenumerate(panel.values):
        x, y = cells.at(r, c)
        assert written[number(value, 2)] == (x + width / 2, y + height / 2)
    written.clear()
    figures.png(silent)
    assert not {number(value, 2) for value in panel.values.flat} & {*written}


def test_a_still_is_as_wide_as_it_says_and_its_bar_grows_to_the_right():
    heat = Heatmap(np.eye(3), limits=(0, 1), numbers=False)
    image, [bar] = pixels(heat), marks_of(ColourBar, heat)
    y = bar.y + bar.height / 2
    assert at(image, bar.x + 5, y)[0] > at(image, bar.x + bar.width - 5, y)[0] + 100
    said = re.search(r'width="(\d+)"', figures.html(heat))
    assert 2 * int(said[1]) == image.shape[1] != image.shape[0]
    page = figures.html(Table([["a", "b"], ["c", "d"]], strong=[1]))
    assert re.findall(r"<tr( style=font-weight:bold)?>", page) == ["", " style=font-weight:bold"]
    chips = [Heatmap([[1]], head=h, title="t", limits=(0, 1), numbers=False) for h in (1, 9)]
    image, (full, hollow) = pixels(Scene(chips)), marks_of(Rect, chips)
    filled = [np.ptp(at(image, m.x + 6, m.y + 6)) > 30 for m in (full, hollow)]
    assert filled == [True, False]


def test_colours_below_zero_and_the_largest_below_zero():
    panel = Heatmap([[-0.5, 0.25], [0.0, 0.75]], limits=(-1, 1))
    assert panel.levels().tolist() == [[64, 159], [128, 223]]
    assert "−.70: a → c" in Heatmap([[0.2, -0.7]], list("a"), list("bc")).alt
