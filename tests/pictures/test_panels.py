"""What pictures say, in words, numbers and colours, and where they put them, by what it stands for.

What they refuse: test_fuzz.py.
"""

import io
import itertools
import math
import re
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mha_course.base import numerals
from mha_course.pictures import axes, colours, figures, layout, panels
from mha_course.pictures.colours import LOW
from mha_course.pictures.marks import Cells, ColourBar, Dot, Drawing, Path, Rect, Text, text_width
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
    scene_of,
)
from mha_course.pictures.walk import Arrows
from mha_course.pictures.words import Ribbons

TOKENS = ["the", "creek", "was"]


def marks_of(kind, thing, width=860):
    return [m for m in layout.draw(scene_of(thing), width).marks if isinstance(m, kind)]


def texts_of(thing):
    return {m.text: m for m in marks_of(Text, thing)}


def pixels(thing):
    return np.asarray(Image.open(io.BytesIO(figures.png(thing))).convert("RGB")).astype(int)


def at(image, x, y):
    return image[round(2 * (y + figures.MARGIN)), round(2 * (x + figures.MARGIN))]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.85, None, ".85"), (1, None, "1"), (1, 2, "1.00"), (-0.314, None, "−.31"), (0, 2, ".00"),
        (-0.001, 2, ".00"), (0.125, 2, ".13"), (0.0312, None, ".031"), (12.34, None, "12.3"),
        (4096, None, "4096"), (1234.5, None, "1.2k"), (999.7, None, "1.0k"), (2**20, None, "1.0M"),
        (2.1e-5, None, "2.1e−5"), (math.nan, 2, "NaN"), (-math.inf, None, "−∞"),
        (123.4, None, "123"), (99.96, None, "100"), (10_000, None, "10k"), (1e6, None, "1M"),
        (10_012, None, "10.0k"), (25_000, 1, "25k"), (1e10, None, "10G"), (-2.5e9, None, "−2.5G"),
    ],
)  # fmt: skip
def test_numbers_read_as_in_print(value, decimals, text):
    assert number(value, decimals) == text


def _read(text: str) -> float:
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1)
    return float(text.rstrip("kMGT").replace("−", "-")) * scale


@given(st.floats(-1e14, 1e14).filter(lambda v: abs(v) > 1e-12))
def test_numbers_keep_two_digits_of_the_value(value):
    assert _read(number(value)) == pytest.approx(value, rel=0.051)


@given(st.floats(0.001, 1e6), st.floats(1.01, 1e4), st.booleans())
def test_ticks_are_few_rising_and_inside(low, ratio, log):
    high = low * ratio
    at = numerals.ticks(low, high, log)
    assert 1 <= len(at) <= 11
    assert all(a < b for a, b in pairwise(at))
    assert all(low * (1 - 1e-6) <= t <= high * (1 + 1e-6) for t in at)


def _lightness(rgba: np.ndarray, page: str) -> np.ndarray:
    """CIE L* of a map's colours on a page."""
    alpha = rgba[:, 3:] / 255
    solid = rgba[:, :3] * alpha + np.array(colours.rgb(page)) * (1 - alpha)
    y = np.array([colours.luminance(tuple(c)) for c in solid])
    return np.where(y > 216 / 24389, 116 * np.cbrt(y) - 16, y * 24389 / 27)


@pytest.mark.parametrize("page", ["#FFFFFF", "#111111"])
def test_lightness_changes_evenly_with_the_value_on_both_pages(page):
    steps = np.diff(_lightness(colours.MAPS["sequential"][::15], page))
    assert (steps < 0).all() if page == "#FFFFFF" else (steps > 0).all()
    assert abs(steps).max() < 2.6 * abs(steps).min()


def test_eight_heads_have_eight_colours_then_they_repeat():
    assert len({panels.head_colour(i) for i in range(8)}) == 8
    assert panels.head_colour(9) == panels.head_colour(1)


def test_a_heatmap_says_its_largest_cell_and_what_is_blocked():
    values = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=torch.bfloat16)
    blocked = torch.tensor([[0, 1, 1], [0, 0, 1], [1, 0, 0]]) > 0
    panel = Heatmap(values, TOKENS, TOKENS, blocked=blocked)
    assert "largest weight .30: creek → creek" in panel.alt
    assert "4 blocked" in panel.alt
    assert panel.text(0, 1) == "the → creek = blocked"
    assert panel.text(1, 0) == "creek → the = .20"


@given(st.integers(1, 6), st.integers(1, 6), st.randoms())
def test_a_row_in_words_names_the_largest_and_what_is_blocked(n_rows, n_columns, random):
    rng = np.random.default_rng(random.randrange(2**32))
    values, blocked = rng.random((n_rows, n_columns)), rng.random((n_rows, n_columns)) < 0.4
    panel = Heatmap(np.tile(values, (65, 1)), blocked=np.tile(blocked, (65, 1)))
    header, rows = panel.table()
    assert header == ["", "largest three"] and len(rows) == 65 * n_rows
    for (_, said), row, shut in zip(rows, values, blocked, strict=False):
        largest = sorted(((v, c) for c, v in enumerate(row) if not shut[c]), reverse=True)[:3]
        names = ", ".join(str(c) for c in np.flatnonzero(shut))
        for n, a in product(range(6, 2, -1), range(4)):
            names = names.replace(", ".join(map(str, range(a, a + n))), f"{a} to {a + n - 1}")
        hidden = "all blocked" if shut.all() else f"blocked: {names}" if shut.any() else ""
        seen = ", ".join(f"key {c} {number(v, 2)}" for v, c in largest)
        assert said == "; ".join(filter(None, [seen, hidden]))


def test_nan_and_infinities_are_said_and_do_not_stretch_the_colours():
    panel = Heatmap([[math.nan, -math.inf], [1.0, 3.0]])
    assert panel.limits == (-3.0, 3.0)
    assert panel.text(0, 0).endswith("= NaN")
    assert panel.text(0, 1).endswith("= −∞")
    assert "1 NaN" in panel.alt
    assert panel.levels().tolist() == [[0, 0], [170, 255]]


@pytest.mark.parametrize(
    ("values", "options", "ends", "by_row"),
    [
        ([[0.1, 0.9]], {"limits": (0, 1)}, ("0", "1"), True),
        ([[0.1, 7.19]], {}, ("0", "7.19"), True),
        ([[0.5, 0.9]], {"limits": (0.5, 1)}, (".50", "1"), False),
        ([[-3, 2]], {}, ("−3", "3"), False),
        ([[-0.4, 0.3]], {"limits": (-1, 1)}, ("−1", "1"), False),
    ],
)
def test_a_colour_bar_says_what_its_ends_stand_for(values, options, ends, by_row):
    panel = Heatmap(values, numbers=False, **options)
    assert panel.ends() == ends
    assert panel.by_row == by_row
    (bar,) = marks_of(ColourBar, panel)
    assert (bar.label().text, bar.by_row) == (ends[1], "row’s largest" if by_row else "")


def test_curves_say_their_values_where_the_marker_is():
    panel = Curve(
        [64, 128, 256], {"measured": [1.0, 4.1, 15.9], "T²": [1, 4, 16]}, x_name="T", marker=128
    )
    assert panel.text(0, panel.now()) == "measured at T = 128: 4.10"
    assert "T² at T = 128: 4" in panel.alt


def test_bars_say_series_and_largest():
    panel = Bars([[0.25, 0.5], [0.75, 0.125]], ["a", "b"], series=("head 0", "head 1"), name="w")
    assert panel.text(1, 1) == "b, head 1 = .13"
    assert panel.alt.endswith("largest .75: a, head 1")
    assert panel.table() == (["", "head 0", "head 1"], [["a", ".25", ".75"], ["b", ".50", ".13"]])


def test_tiles_keep_holes_links_and_faults():
    panel = Tiles([[1, None], [3, 4]], links=[[0, None], [1, 2]], wrong=[[0, 0], [0, 1]])
    assert panel.labels == (("1", None), ("3", "4"))
    assert panel.links.tolist() == [[0, -1], [1, 2]]
    assert "1 in the wrong place" in panel.alt
    assert Tiles(torch.arange(3)).labels == (("0", "1", "2"),)


def test_a_scene_is_rows_and_has_words_for_all_of_it():
    many = [Bars([i + 1.0], title=f"bar {i}") for i in range(5)]
    scene = Scene(many, columns=2, caption="They rise.")
    assert [len(row) for row in scene.panels] == [2, 2, 1]
    few = Scene(many[:2]).alt
    assert few == "bar 0: 1 bars; largest 1.00: 0. bar 1: 1 bars; largest 2: 0."
    kinds = "15 bar charts: bar 0; bar 1; bar 2; bar 3; bar 4"
    assert Scene(many * 3).alt == f"{kinds}. bar 0: 1 bars; largest 1.00: 0."
    maps = [Heatmap([[0.0, v]], title=f"head {v}") for v in (0.1, 0.3, 0.5, 0.2, 0.4)]
    assert Scene(maps).alt.endswith("head 0.4. The largest weight .50: 0 → 1, in head 0.5.")


@pytest.mark.parametrize("values", [[[0.0, 0.0]], [[0.0, 1.0]]])
def test_zero_is_the_pale_middle_where_limits_lie_on_both_sides(values):
    """All heads switched off write zeros: drawn from -1 upwards they would look half full."""
    panel = Heatmap(torch.tensor(values), limits=(-1, 1))
    assert panel.colours == "diverging"
    assert panel.levels()[0, 0] in (127, 128)  # of 255


@pytest.mark.parametrize(
    ("n", "rows"), [(1, [1]), (4, [4]), (5, [3, 2]), (6, [3, 3]), (8, [4, 4]), (12, [4, 4, 4])]
)
def test_no_row_is_nearly_empty(n, rows):
    """Six heads are 3 + 3: in 4 + 2 the last two would look like the ones that matter."""
    scene = Scene([Heatmap([[1.0]]) for _ in range(n)], columns=4)
    assert [len(row) for row in scene.panels] == rows


def test_a_mask_is_hatched_or_empty_and_says_true_or_false():
    panel = Heatmap([[False, True]], mask=True)
    assert panel.blocked.tolist() == [[False, True]]
    assert (panel.text(0, 0), panel.text(0, 1)) == ("0 → 0 = False", "0 → 1 = True")
    assert panel.alt == "mask of 1 × 2, query → key; 1 True"
    assert panel.peak is None
    assert panel.table() == (["", "0", "1"], [["0", "False", "True"]])
    texts = [m.text for m in layout.draw(Scene(panel)).marks if isinstance(m, Text)]
    assert {"True", "False"} <= set(texts) and "blocked" not in texts
    assert not any(isinstance(m, ColourBar) for m in layout.draw(Scene(panel)).marks)
    for wrong in ({"values": [[0.5]]}, {"values": [[1]], "blocked": [[True]]}):
        with pytest.raises(ValueError, match="values of a mask must be"):
            Heatmap(**wrong, mask=True)


def test_the_largest_link_of_a_sentence_lies_between_words():
    names = ["[CLS]", "it", "creek", "[SEP]"]
    values = np.full((4, 4), 0.1)
    values[1, 2], values[0, 0], values[2, 3] = 0.3, 0.9, 0.5
    panel = Heatmap(values, names, names)
    assert panel.largest() == ("it → creek", 0.3)
    assert "largest weight between words .30: it → creek" in panel.alt
    assert Heatmap(values).largest() == ("0 → 0", 0.9)


@pytest.mark.parametrize(
    ("values", "limits", "texts"),
    [
        ([8.3, 146.2, -0.4], None, {"8", "146", "0"}),
        ([2.08, -0.2], (-160, 160), {"2.08", "−.20"}),
        ([0.057, 0.5], None, {".06", ".50"}),
        ([0.0189, 0.0016], None, {".0189", ".0016"}),
        ([3, 12], None, {"3", "12"}),
    ],
)
def test_all_bars_of_an_axis_have_as_many_decimals(values, limits, texts):
    panel = Bars(values, limits=limits)
    assert {number(v, panel.decimals) for v in panel.values[0]} == texts


@pytest.mark.parametrize(("high", "labels"), [(30, 3), (90, 5)])
def test_labels_of_a_low_axis_keep_apart_and_each_tick_has_its_line(high, labels):
    drawing, scale = Drawing(), axes.scale_of((0, 100), False)
    axes.y_axis(drawing, scale, lambda v: high * (1 - v / 100), (50, 150), "", (0, high))
    heights = [m.y for m in drawing.marks if isinstance(m, Text) and m.text]
    assert len(heights) == labels and min(a - b for a, b in pairwise(heights)) >= 12
    assert sum(isinstance(m, Path) for m in drawing.marks) == len(scale[0]) == 5


def test_a_logarithmic_axis_begins_below_its_points_and_ends_above():
    low, high = axes.limits_of(None, np.array([3.0, 11.0]), log=True, zero=False)
    assert 0 < low < 3 / 1.2 and high > 11 * 1.2
    low, high = Curve([0.3], {"a": [1]}, log_x=True).x_limits
    assert 0 < low < 0.3 < high


def test_no_bar_goes_without_its_number():
    for n in (3, 10, 16):
        panel = Bars(np.linspace(-1.99, 2.08, n), limits=(-160, 160))
        drawn = [m.text for m in layout.draw(Scene([[panel, panel]])).marks if isinstance(m, Text)]
        for value in panel.values[0]:
            said = {number(value, 2), number(value, 1)}
            assert said & set(drawn), (n, value)


def test_numbers_at_bars_of_other_heights_may_be_wider_than_their_slot():
    def said(values: list[float]) -> list[str]:
        drawn = layout.draw(Scene(Bars(values, limits=(0, 1), decimals=2)), 310).marks
        return [m.text for m in drawn if isinstance(m, Text) and "." in m.text and not m.turned]

    steep, level = [0.0] * 9 + [1.0], [1.0] * 10
    assert said(steep)[-10:] == [".00"] * 9 + ["1.00"] and said(level)[-10:] == ["1.0"] * 10


def test_on_a_narrow_page_a_table_is_folded_and_each_part_begins_with_the_names():
    rows = [["a name", "x" * 33, "y" * 12, "z" * 9], ["other", "u", "v", "w"]]
    header = ["one", "two", "three", "four"]
    for width, parts in ((860, 1), (310, 2)):
        drawing = layout.draw(Scene(Table(rows, header)), width)
        texts = [m for m in drawing.marks if isinstance(m, Text)]
        assert drawing.width <= width
        assert {m.text for m in texts} == {*header, *rows[0], *rows[1]}
        assert sum(m.text == "a name" for m in texts) == parts
        name, wide = (next(m for m in texts if m.text == text) for text in ("other", "u"))
        assert (wide.y > name.y) == (parts == 2)  # too wide beside its name: a line of its own


def test_on_a_narrow_page_a_sentence_of_a_table_stands_in_lines_that_fit():
    said = "a lively dog was about to leap across a chilly stream and beyond"
    drawing = layout.draw(Scene(Table([[".61", said], [".49", "a cat"]], strong=[0])), 310)
    lines = [m for m in drawing.marks if isinstance(m, Text) and m.text in said]
    assert " ".join(line.text for line in lines) == said and len({m.y for m in lines}) > 1
    assert drawing.width <= 310 and all(m.x + 1.1 * text_width(m.text) < 310 for m in lines)


def test_letters_of_tiles_are_written_all_or_none():
    for n, there in ((6, True), (40, False)):
        tiles = Tiles([["a", "long"] * (n // 2)])
        cells = marks_of(Cells, tiles, 310)[0]
        assert cells.numbers == there


def test_on_a_narrow_page_lines_are_named_above_the_plot():
    lines = {"a line with a name": [1, 2], "and another one": [2, 1]}
    for width, above in ((860, False), (310, True)):
        marks = layout.draw(Scene(Curve([1, 2], lines)), width).marks
        names = [m for m in marks if isinstance(m, Text) and m.text in lines]
        lowest = min(m.y for m in marks if isinstance(m, Dot))
        assert all(name.y < lowest for name in names) == above


def test_names_of_lines_stand_above_the_numbers_of_the_axis_below():
    panel = Curve([1, 2], {f"line {i}": [1, 0] for i in range(4)}, limits=(0, 1))
    texts = {m.text: m.y for m in layout.draw(Scene(panel)).marks if isinstance(m, Text)}
    names = [texts[f"line {i}"] for i in range(4)]
    assert max(names) <= texts["0"] and min(np.diff(sorted(names))) >= 15
    lines = texts_of(Curve([1, 2], {"low": [1, 2], "high": [1, 9], "middle": [1, 3]}))
    assert lines["high"].y < lines["middle"].y < lines["low"].y


def test_panels_in_columns_begin_at_one_place_and_their_rows_are_of_one_height():
    def row(left: list[str], right: list[str]) -> list[Heatmap]:
        first, second = Heatmap(np.eye(2), left, numbers=False), [*"ab"]
        return [first, Heatmap(np.eye(2), right, second, numbers=False)]

    scene = Scene([row(["3 pad", "4"], ["3", "4"]), row(["3", "4"], ["3 pad", "4"])])
    cells = [m for m in layout.draw(scene).marks if isinstance(m, Cells) and m.x > 0]
    assert [c.x for c in cells[:2]] == [c.x for c in cells[2:]]
    wide = Scene([[Heatmap(np.eye(13), numbers=False), Heatmap(np.ones((13, 24)), numbers=False)]])
    left, right = marks_of(Cells, wide)
    assert (left.y, left.height) == (right.y, right.height) and left.width > right.width


@pytest.mark.parametrize(
    "other", [{}, {"limits": (0, 2)}, {"colours": "diverging"}, {"quantity": "v"}]
)
def test_one_bar_serves_heatmaps_of_one_scale_and_quantity(other):
    same = {"limits": (0, 1), "colours": "sequential", "quantity": "q"}
    maps = Heatmap(np.eye(2), **same), Heatmap(np.eye(2), **(same | other))
    assert layout.shared_bar(Scene(maps)) is (None if other else maps[0])


def test_the_reference_is_drawn_over_the_bars():
    marks = layout.draw(Scene(Bars([3, 4], reference=(2, "here")))).marks
    kinds = [type(m) for m in marks]
    dashed = next(i for i, m in enumerate(marks) if isinstance(m, Path) and m.dashed)
    assert dashed > max(i for i, kind in enumerate(kinds) if kind is Rect)


def test_labels_stand_upright_where_there_is_room():
    numbers = [f"{n}" for n in range(60)]  # too wide for their columns; some are left out
    bars = Bars([1, 2], ["quite a long label", "another long one"])
    for panel in (bars, Heatmap(np.eye(60), columns=numbers, row_name="")):
        assert not any(m.turned for m in layout.draw(Scene(panel)).marks if isinstance(m, Text))


def test_a_picture_shrinks_to_the_height_that_it_is_given():
    maps = Scene([Heatmap(np.eye(13), numbers=False) for _ in range(12)], columns=4)
    assert layout.draw(maps).height > 600
    assert layout.draw(maps, layout.WIDTH, 480).height <= 480


def test_a_walk_goes_on_from_the_tip_of_the_arrow_before():
    walk = Walk([[1, 2], [0, 0], [3, -1]], (-1, 5, -1, 3))
    np.testing.assert_array_equal(walk.corners(), [[0, 0], [1, 2], [1, 2], [4, 1]])
    assert walk.table()[1][2] == ["head 2", "3.00 along, 1.00 down"]
    assert walk.alt == "3 arrows, tip to tail, to (4.00, 1.00)"
    lines = marks_of(Path, walk)
    gone = Walk([[1, 2], [0, 0], [0, 0]], (-1, 5, -1, 3))
    assert len(lines) == sum(isinstance(m, Path) for m in layout.draw(Scene(gone)).marks)


def test_ribbons_are_the_weights_that_can_be_seen_the_strongest_on_top():
    values = np.array([[0.7, 0.27, 0.03], [0.2, 0.5, 0.3]])
    words = Words(Heatmap(values, blocked=[[0, 0, 0], [0, 1, 0]]), row=1)
    assert words.ribbons == [(1, 0, 0.2), (0, 1, 0.27), (1, 2, 0.3), (0, 0, 0.7)]
    assert words.table() == words.weights.table()
    with pytest.raises(ValueError, match="between 0 and 1"):
        Words(Heatmap([[-1, 2]]))


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
    [tall] = marks_of(Cells, Tiles([["1", "2"]] * 24))
    assert tall.height < cells.height
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
