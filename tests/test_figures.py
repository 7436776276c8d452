"""Still pictures: everything is drawn, nothing collides, bytes are repeatable."""

import base64
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from mha_lesson.pictures import figures, layout, live, module
from mha_lesson.pictures.panels import (
    Bars,
    Curve,
    Heatmap,
    Scene,
    Table,
    Tiles,
    head_colour,
    rgb,
    text_on,
)

TOKENS = ["the", "creek", "was", "cold", "and", "the", "spunky", "dog", "wanted", "to", "jump",
          "over", "it"]  # fmt: skip
RNG = np.random.default_rng(11)
WEIGHTS = RNG.dirichlet(np.full(13, 0.2), size=(12, 13))


def heads(n: int) -> Scene:
    """The picture of n heads."""
    return Scene(
        [
            Heatmap(w, TOKENS, TOKENS, head=i, title=f"head {i}", limits=(0, 1))
            for i, w in enumerate(WEIGHTS[:n])
        ],
        columns=4,
        title="Heads",
        caption="What they look at.",
    )


SCENES = {
    "heads": heads(8),
    "mask": Scene([Heatmap(RNG.normal(size=(5, 5)), blocked=np.triu(np.ones((5, 5)), 1))]),
    "bars": Scene([[Bars(WEIGHTS[0, 0], TOKENS, name="weight", reference=(1 / 13, "uniform"))],
                   [Bars([[1, -2], [3, 4]], series=("a", "b"))]]),
    "curve": Scene([Curve([64, 128, 256], {"measured": [1, 4, 17], "T²": [1, 4, 16]}, x_name="T",
                          log_x=True, log_y=True, dashed=["T²"], marker=128)]),
    "module": module.scene(),
    "tiles": Scene([[Tiles(np.arange(24), links=np.arange(24))],
                    [Tiles(np.arange(24).reshape(6, 4), links=np.arange(24).reshape(6, 4),
                           rows=list("abcdef"), break_rows=3), Table([["shape", "(6, 4)"]])]]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_everything_stands_on_the_page_and_no_two_texts_collide(name):
    drawing = layout.draw(SCENES[name])
    assert drawing.width <= layout.WIDTH + 1
    boxes = []
    for mark in drawing.marks:
        if isinstance(mark, layout.ColourBar):
            mark = mark.label()
        if not isinstance(mark, layout.Text):
            continue
        assert mark.size >= 12
        long, short = 0.8 * layout.text_width(mark.text, mark.size), 0.8 * mark.size
        x = mark.x - {"left": 0, "center": long / 2, "right": long}[mark.align]
        box = (x, mark.y - short / 2, long, short)
        if mark.turned:
            y = mark.y if mark.align == "right" else mark.y - long / 2
            box = (mark.x - short / 2, y, short, long)
        boxes.append((mark.text, *box))
    for i, (text, x, y, w, h) in enumerate(boxes):
        assert x >= -1, text
        assert x + w <= drawing.width + 1, text
        assert y + h <= drawing.height + 1, text
        for other, x2, y2, w2, h2 in boxes[:i]:
            apart = x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
            assert apart, f"{text!r} lies on {other!r}"


@pytest.mark.parametrize("width", [420, 640, 860])
def test_a_narrow_cell_gets_a_narrower_picture(width):
    assert layout.draw(heads(4), width).width <= width + 1


def test_labels_are_shared_between_neighbours():
    texts = [m.text for m in layout.draw(heads(8)).marks if isinstance(m, layout.Text)]
    assert texts.count("spunky") == 2 + 4  # beside each row of heatmaps, under each column
    assert texts.count("weight") == 1  # one colour bar for all


def test_bytes_are_the_same_in_another_process():
    source = (
        "import hashlib, sys; sys.path.insert(0, 'tests')\n"
        "import test_figures as t; print(hashlib.sha256(t.figures.png(t.heads(8))).hexdigest())"
    )
    runs = {subprocess.check_output([sys.executable, "-c", source]) for _ in range(2)}
    assert len(runs) == 1


def test_pictures_are_small_and_crisp():
    picture = figures.png(heads(8))
    image = Image.open(io.BytesIO(picture))
    assert len(picture) < 40_000
    assert image.width > 1.9 * layout.draw(heads(8)).width


def test_the_page_shows_through_and_heads_have_their_colours():
    image = np.asarray(Image.open(io.BytesIO(figures.png(heads(8)))).convert("RGBA")).astype(int)
    assert (image[..., 3] == 0).mean() > 0.3
    for head in range(8):
        chip = image[..., :3] - rgb(head_colour(head))
        assert ((abs(chip).max(-1) < 3) & (image[..., 3] == 255)).sum() > 300, head


def test_a_stronger_weight_has_more_ink():
    image = Image.open(io.BytesIO(figures.png(Heatmap([[0.1, 0.9]], limits=(0, 1), numbers=False))))
    alpha = np.asarray(image.convert("RGBA"))[..., 3]
    cells = next(
        m
        for m in layout.draw(Scene(Heatmap([[0.1, 0.9]], limits=(0, 1), numbers=False))).marks
        if isinstance(m, layout.Cells)
    )
    y = round(2 * (cells.y + cells.height / 2 + 2))
    weak, strong = (alpha[y, round(2 * (cells.x + (c + 0.5) * cells.width + 2))] for c in (0, 1))
    assert int(weak) + 120 < int(strong)


def test_show_gives_a_figure_with_alt_text_and_caption_and_words_without_html():
    still = figures.show(Scene(Heatmap([[1]], ["<i>"], ["b"], title="a & b"), caption="1 < 2"))
    html = still._repr_html_()
    source = re.search(r'src="data:image/webp;base64,([^"]+)"', html)
    assert source is not None
    assert Image.open(io.BytesIO(base64.b64decode(source[1]))).format == "WEBP"
    assert "<figcaption>1 &lt; 2</figcaption>" in html
    assert 'alt="1 &lt; 2. a &amp; b: heatmap' in html
    assert "<i>" not in html
    assert repr(still).startswith("1 < 2. a & b: heatmap of 1 × 1")


@pytest.mark.parametrize("name", SCENES)
def test_the_browser_gets_the_marks_that_the_figure_draws(name):
    header, values = live.pack(SCENES[name])
    drawing = layout.draw(SCENES[name])
    texts = [m.text for m in drawing.marks if isinstance(m, layout.Text)]
    assert [m[3] for m in header["marks"] if m[0] == "t"] == texts
    assert len(header["marks"]) == len(drawing.marks)
    cells = [m for m in drawing.marks if isinstance(m, layout.Cells)]
    for (kind, sent), mark in zip((m for m in header["marks"] if m[0] in "gh"), cells, strict=True):
        if kind == "h":
            start, size = sent["values"]
            np.testing.assert_allclose(
                values[start : start + size].reshape(sent["shape"]), mark.panel.values, rtol=1e-6
            )
        assert (sent["x"], sent["w"]) == (mark.x, mark.width)


def test_a_difference_of_states_gives_the_state_back():
    def merge(base, delta):
        if isinstance(delta, list):
            return delta[0]
        keys = range(len(base)) if isinstance(base, list) else base
        parts = {k: merge(base[k], delta[str(k)]) if str(k) in delta else base[k] for k in keys}
        return list(parts.values()) if isinstance(base, list) else parts

    states = [live.pack(scene)[0] for scene in SCENES.values()]
    for new in states:
        assert merge(states[0], live._delta(states[0], new)) == new
    assert live._delta(states[0], states[0]) == {}


FRAME = (0xCF, 0x5A, 0x08)
INK = rgb(figures.INK)


def cell_pixels(panel: Heatmap | Tiles, row: int, column: int) -> np.ndarray:
    """What is drawn within one cell: RGBA, two pixels for each of the layout's."""
    scene = Scene(panel)
    image = np.asarray(Image.open(io.BytesIO(figures.png(scene))).convert("RGBA")).astype(int)
    cells = [m for m in layout.draw(scene).marks if isinstance(m, layout.Cells)]
    [mark] = [m for m in cells if m.panel is panel]  # not the key of blocked cells
    x, y = (round(2 * (start + 2)) for start in mark.at(row, column))  # a margin of 2 all round
    return image[y : y + int(2 * mark.height) - 2, x : x + int(2 * mark.width) - 2].reshape(-1, 4)


def share(pixels: np.ndarray, colour: tuple[int, ...]) -> float:
    """Of the pixels, how many are of this colour, and opaque or nearly so."""
    near = abs(pixels[:, :3] - np.array(colour)).max(-1) < 12
    return float((near & (pixels[:, 3] > 200)).mean())


def mean_ink(pixels: np.ndarray) -> float:
    return float(pixels[:, 3].mean())


def test_a_blocked_cell_is_hatched_and_an_unknown_one_is_empty():
    panel = Heatmap([[0.9, 0.9, np.nan]], blocked=[[0, 1, 0]], limits=(0, 1), numbers=False)
    filled, hatched, unknown = (cell_pixels(panel, 0, c)[:, 3] for c in range(3))
    assert (filled > 0).mean() > 0.95
    assert 0.1 < (hatched > 0).mean() < 0.9
    assert 0 < (unknown > 0).mean() < 0.6  # an outline, and NaN in words


@pytest.mark.parametrize("marked", [(0, 1), (2, 0)])
def test_only_marked_cells_are_framed(marked):
    panel = Heatmap(np.full((3, 2), 0.4), marks=[marked], limits=(0, 1), numbers=False)
    for cell in np.ndindex(3, 2):
        framed = share(cell_pixels(panel, *cell), FRAME) > 0.05
        assert framed == (cell == marked), cell


def test_numbers_are_written_into_cells_and_can_be_left_out():
    values = [[0.1, 0.9]]
    for column in range(2):
        said, silent = (
            cell_pixels(Heatmap(values, limits=(0, 1), numbers=n), 0, column) for n in (True, False)
        )
        assert len(np.unique(silent[:, 3])) < 10  # one even colour, and its edge
        assert len(np.unique(said[:, :3], axis=0)) > 10  # letters have soft edges


def test_tiles_have_their_heads_colours_and_holes_stay_empty():
    heads_of = [[0, 3, -1], [2, 1, 0]]
    labels = [["", "", ""], ["", None, ""]]
    panel = Tiles(labels, heads=heads_of)
    for r, c in np.ndindex(2, 3):
        head, pixels = heads_of[r][c], cell_pixels(panel, r, c)
        if labels[r][c] is None:
            assert mean_ink(pixels) == 0
        elif head >= 0:
            assert share(pixels, rgb(head_colour(head))) > 0.7
        else:
            assert all(share(pixels, rgb(head_colour(h))) < 0.1 for h in range(4))


def test_a_wrong_tile_has_a_dashed_edge():
    panel = Tiles([["", ""]], heads=[[1, 1]], wrong=[[False, True]])
    right, wrong = (share(cell_pixels(panel, 0, c), (0x11, 0x11, 0x11)) for c in range(2))
    assert right == 0 < 0.02 < wrong


def test_what_a_tile_reads_is_written_where_there_is_room():
    letters = rgb(text_on(head_colour(0)))
    for label, is_written in (("a1", True), ("", False), ("x" * 60, False)):
        pixels = cell_pixels(Tiles([[label] * 9], heads=[[0] * 9]), 0, 0)
        assert (share(pixels, letters) > 0.01) == is_written, label
