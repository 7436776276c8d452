"""Still pictures: everything is drawn, nothing collides, bytes are repeatable."""

import base64
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from mha_lesson import figures, layout, live
from mha_lesson.panels import Bars, Curve, Heatmap, Scene, Table, Tiles, head_colour, rgb

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
