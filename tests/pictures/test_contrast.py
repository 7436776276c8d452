"""Every text that a picture or a page draws can be read on every ground that it can lie on.

WCAG 2's AA: 4.5 : 1 for text, 3 : 1 for what is large or no text.
"""

import io
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mha_course.pictures import figures, live
from mha_course.pictures.axes import OTHERS
from mha_course.pictures.colours import (
    HEADS,
    HIGH,
    LOW,
    MAPS,
    ROLES,
    TILE,
    luminance,
    rgb,
    text_on,
)
from mha_course.pictures.heatmap import HeatmapCells
from mha_course.pictures.layout import draw
from mha_course.pictures.panels import Heatmap, Scene
from readable import contrast

ROOT = Path(__file__).parents[2]
STYLE = (ROOT / "mha_course/pages/templates/site.css").read_text(encoding="utf-8")
PAIR = r"light-dark\((#\w{6}), (#\w{6})\)"
NAMED = {name: (light, dark) for name, light, dark in re.findall(rf"--([\w-]+): {PAIR}", STYLE)}
# JupyterLab's pages and the site's.
LIGHT, DARK = ("#FFFFFF", NAMED["page"][0]), ("#111111", NAMED["page"][1])


def colour_pair(name: str) -> tuple[str, str]:
    """A colour of the browser's renderer, on a dark and on a light page."""
    [pair] = re.findall(rf'\b{name}: dark \? "(#\w{{6}})" : "(#\w{{6}})"', live.SCRIPT)
    return pair


def grounds() -> list[tuple[str, str]]:
    """(page, "dark" or "light")"""
    return [(page, "dark") for page in DARK] + [(page, "light") for page in LIGHT]


@pytest.mark.parametrize(("page", "theme"), grounds())
def test_words_around_a_picture(page, theme):
    text, focus = (colour_pair(name)[theme == "light"] for name in ("text", "focus"))
    assert contrast(text, page) >= 4.5  # and the label at the pointer, which is the same turned
    assert contrast(focus, page) >= 3
    thin = re.findall(r"\$\{of\.text\}(\w\w)`", live.SCRIPT)  # for who asks for more contrast
    [hatch] = re.findall(r'hatch: dark \? "#\w{6}(\w\w)" : "#\w{6}(\w\w)"', live.SCRIPT)
    for least, share in [(3, hatch[theme == "light"]), *((4.5, share) for share in thin)]:
        over = int(share, 16) / 255
        mixed = (1 - over) * np.array(rgb(page)) + over * np.array(rgb(text))
        assert contrast(tuple(mixed), page) >= least
    assert len(thin) == 2


@pytest.mark.one_in(4)
@pytest.mark.parametrize("page", [page for page, _ in grounds()])
@pytest.mark.parametrize("name", MAPS)
def test_numbers_in_cells(page, name):
    opacity = MAPS[name][:, 3:] / 255
    for paper in MAPS[name][:, :3] * opacity + np.array(rgb(page)) * (1 - opacity):
        assert contrast(text_on(tuple(paper)), tuple(paper)) >= 4.5


def test_both_renderers_choose_black_or_white_alike():
    threshold = float(re.search(r"luminance\([^?]*\) > ([\d.]+) \? \"#000000\"", live.SCRIPT)[1])
    greys = [f"#{v:02X}{v:02X}{v:02X}" for v in range(256)]
    white = [text_on(grey) == "#FFFFFF" for grey in greys]
    assert white == [luminance(grey) <= threshold for grey in greys]


def test_words_on_tiles_heads_and_roles():
    assert min(contrast(text_on(colour), colour) for colour in (*HEADS, TILE)) >= 4.5
    assert min(contrast("#FFFFFF", colour) for colour in ROLES.values()) >= 4.5  # a lit word
    squares = product(ROLES.values(), [page for page, _ in grounds()])
    assert min(contrast(colour, page) for colour, page in squares) >= 3


def test_lines_of_heads_and_of_others():
    lines = product((*HEADS, *OTHERS, HIGH, LOW), [page for page, _ in grounds()])
    assert min(contrast(colour, page) for colour, page in lines) >= 3


@pytest.mark.parametrize(("pairs", "is_tall"), [(1, True), (10, False)])
def test_what_is_below_zero_can_be_told_in_grey(pairs, is_tall):
    """A line in the colour of the page goes through such a cell, where it is tall enough."""
    scene = Scene(Heatmap([[0.6, -0.6] * pairs], limits=(-1, 1), numbers=False, bare=True))
    grey = np.asarray(Image.open(io.BytesIO(figures.png(scene))).convert("L"), float)
    [mark] = [m for m in draw(scene).marks if isinstance(m, HeatmapCells)]
    x, y = (2 * (figures.MARGIN + v) for v in (mark.x, mark.y))
    for c, struck in ((0, False), (1, is_tall)):
        column = grey[int(y) : int(y + 2 * mark.height - 2), int(x + 2 * (c + 0.5) * mark.width)]
        assert (column.max() > column.min() + 60) == struck


def test_words_of_a_still():
    assert contrast(figures.INK, figures.CARD) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_of_the_site(theme):
    colours = {name: pair[theme] for name, pair in NAMED.items()}
    written = [n for n in colours if n in ("text", "quiet", "link") or n.startswith("jp-mirror")]
    assert len(written) >= 9
    for name, ground in product(written, ("page", "code")):
        assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def test_a_still_on_a_dark_page_is_turned_dark_and_its_words_still_read():
    page = (ROOT / "mha_course/pages/templates/site.css").read_text(encoding="utf-8")
    turned = re.findall(r"filter: invert\((\.\d+)\) hue-rotate\(180deg\)", page)
    assert len(turned) == 2 and len({*turned}) == 1  # the system's theme, and the page's
    share = float(turned[0])
    card, ink = (
        [255 * share + (1 - 2 * share) * v for v in rgb(c)] for c in (figures.CARD, figures.INK)
    )
    assert luminance(card) < 0.1 and contrast(card, ink) >= 7


def test_a_still_in_a_dark_jupyterlab_is_dimmed_and_its_words_still_read():
    [share] = re.findall(r"brightness\((\.\d+)\)", figures.DIMMED)
    card, ink = ([float(share) * v for v in rgb(c)] for c in (figures.CARD, figures.INK))
    assert luminance(card) < 0.65 and contrast(card, ink) >= 7
