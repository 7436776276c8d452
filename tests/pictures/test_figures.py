"""Still pictures: everything is drawn, nothing collides, bytes are repeatable."""

import base64
import hashlib
import io
import re

import numpy as np
import pytest
from PIL import Image

import new_process
from mha_course.pictures import figures, layout, live
from mha_course.pictures.colours import MAPS, ROLES, rgb, text_on
from mha_course.pictures.marks import (
    PLAIN,
    Cells,
    ColourBar,
    Dot,
    Drawing,
    Mark,
    Rect,
    Text,
    scripts,
)
from mha_course.pictures.panels import (
    Bars,
    Curve,
    Heatmap,
    Scene,
    Stack,
    Table,
    Tiles,
    Words,
    head_colour,
)
from mha_course.pictures.words import Ribbons
from mha_lesson.text import SENTENCE
from readable import assert_readable, contrast, unpacked

TOKENS = SENTENCE.lower().rstrip(".").split()
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
    assert_readable(layout.draw(SCENES[name]))


@pytest.mark.parametrize("width", [420, 640, 860])
def test_a_narrow_cell_gets_a_narrower_picture(width):
    assert layout.draw(heads(4), width).width <= width + 1


def test_bytes_are_the_same_in_another_process(shared_folder):
    other = new_process.after(shared_folder, "draw")["hash"]
    assert other == hashlib.sha256(figures.png(heads(8))).hexdigest()


def test_a_picture_is_a_small_crisp_light_card_with_dark_ink_and_heads_have_their_colours():
    picture = figures.png(heads(8))
    image = np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA")).astype(np.int16)
    assert len(picture) < 40_000
    assert image.shape[1] > 1.9 * layout.draw(heads(8)).width
    assert (image[..., 3] == 255).all()
    assert (image[3:20, 3:20, :3] == rgb(figures.CARD)).all()
    assert (image[0, :, :3] != rgb(figures.CARD)).any()  # the border
    assert contrast(figures.INK, figures.CARD) > 10
    for head in range(8):
        chip = image[..., :3] - rgb(head_colour(head))
        assert (abs(chip).max(-1) < 3).sum() > 300, head


@pytest.mark.parametrize("title", ["", "The best head", "The best head of twelve"])
def test_a_frame_has_four_sides(title):
    bars = Bars([1, 2], ["a", "b"], name="weight", title=title)
    pixels = np.asarray(Image.open(io.BytesIO(figures.png(bars))).convert("L"))
    for side in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (side < 240).all()


def test_every_cell_has_the_colour_of_its_map_without_bands():
    ramp = np.linspace(-1, 1, 128).reshape(8, 16)
    maps = ["query", "key", "value", "output", "diverging", "head 1"]
    scene = Scene([Heatmap(ramp, colours=c, limits=(-1, 1), numbers=False, title=c) for c in maps])
    image = np.asarray(Image.open(io.BytesIO(figures.png(scene))).convert("RGB")).astype(float)
    fields = [m for m in layout.draw(scene).marks if isinstance(m, Cells)]
    assert len(fields) == len(maps)
    for name, field in zip(maps, fields, strict=True):
        for (row, column), level in np.ndenumerate(field.panel.levels()):
            x, y = field.at(row, column)
            middle = x + (field.width - field.gap) / 2, y + field.height / 4  # above its line
            at = [round(figures.DENSITY * (figures.MARGIN + side)) for side in middle]
            *colour, opacity = MAPS[name][level] / 255
            wanted = 255 * (1 - opacity * (1 - np.array(colour)))  # on a white card
            assert abs(image[at[1], at[0]] - wanted).max() <= 1.5, (name, row, column)


def marks_of(scene: Scene, width: float = layout.WIDTH) -> list[Mark]:
    return layout.draw(scene, width).marks


def test_the_key_stands_above_the_first_row_of_maps():
    maps = [Heatmap(w, limits=(0, 1), title=f"{i}") for i, w in enumerate(WEIGHTS[:2])]
    marks = marks_of(Scene([[Curve([1, 2], {"a": [1, 2]}, title="curve")], maps]))
    [bar] = (m for m in marks if isinstance(m, ColourBar))
    above = [m.y for m in marks if isinstance(m, Dot)]
    below = [m.y for m in marks if isinstance(m, Cells)]
    assert max(above) < bar.y < min(below) < bar.y + 60


def test_on_a_phone_a_plot_loses_no_room_to_the_labels_of_another():
    bars = Bars(WEIGHTS[0, 0], TOKENS)
    curve = Curve([1, 2], {"a line of a long name": [1, 2], "another": [2, 3]})
    alone, both = (
        [m.width for m in marks_of(scene, 330) if isinstance(m, Rect)]
        for scene in (Scene(bars), Scene([[bars], [curve]]))
    )
    assert alone == both


def test_a_stack_begins_where_its_neighbour_begins():
    one, two, three = (Heatmap(w, title=name) for w, name in zip(WEIGHTS, "abc", strict=False))
    marks = marks_of(Scene([[one, Stack([[two], [three]])]]))
    titles = {m.text: m.y for m in marks if isinstance(m, Text) and m.bold}
    assert titles["a"] == titles["b"] < titles["c"]


def test_ticks_do_not_repeat_the_name_of_their_axis():
    rows, columns = ["layer 0", "layer 1"], ["head 0", "head 1", "all heads"]
    heat = Heatmap(np.ones((2, 3)), rows, columns, row_name="layer", column_name="head")
    said = [m.text for m in marks_of(Scene(heat)) if isinstance(m, Text)]
    assert {"0", "1", "all heads", "layer", "head"} <= {*said}
    assert not {*rows, *columns[:2]} & {*said}
    assert heat.text(1, 0) == "layer 1 → head 0 = 1"


@pytest.mark.parametrize(
    ("values", "limits", "said"),
    [
        ([0, 3.5, 4, 7.64], (0, 14), ["0", "3.50", "4", "7.64"]),
        ([0, 0.25, 1], (0, 1), [".00", ".25", "1.00"]),
    ],
)
def test_a_whole_count_has_no_decimals_and_a_share_always(values, limits, said):
    bars = Bars(values, limits=limits)
    assert [bars.text(0, i).split(" = ")[1] for i in range(len(values))] == said
    written = [m.text for m in marks_of(Scene(bars)) if isinstance(m, Text)]
    assert written[-2 * len(said) : -len(said)] == said


def test_bars_of_a_role_wear_its_colour():
    bars = Bars([1, 2, 3], roles=["key", None, "value"])
    rects = [m.colour for m in layout.draw(Scene(bars)).marks if isinstance(m, Rect)]
    assert rects == [ROLES["key"], PLAIN, ROLES["value"]]


@pytest.mark.parametrize(
    ("text", "raised", "lowered"),
    [
        ("W^Q", ["Q"], []),
        ("4 · d_model² by W^O", ["O"], ["model"]),
        ("(B, T_q, h·d_k)", [], ["q", "k"]),
        ("√d_k", [], ["k"]),
        ("x.view(T, h, d_k)", [], []),  # code
        ("n_heads, w_qkv, e^x", [], []),
    ],
)
def test_superscripts_and_subscripts_are_split_off(text, raised, lowered):
    pieces = scripts(text)
    assert [piece for piece, sign in pieces if sign == "^"] == raised
    assert [piece for piece, sign in pieces if sign == "_"] == lowered
    assert "".join(sign + piece for piece, sign in pieces) == text


@pytest.mark.parametrize("turned", [False, True])
def test_a_raised_letter_stands_higher_and_a_lowered_one_lower(turned):
    """Where the last letter's ink ends, against that of the same letter on the line."""

    def ends(text: str) -> tuple[int, int]:
        drawing = Drawing(width=80, height=80)
        drawing.add(Text(40, 40, text, "center", turned=turned, size=20))
        image = Image.open(io.BytesIO(figures._bytes(drawing, "png"))).convert("L")
        ink = np.asarray(image)[4:-4, 4:-4] < 128
        ink = np.rot90(ink, -1) if turned else ink  # so that it can be read level
        last = ink[:, np.flatnonzero(ink.any(axis=0))[-6:]].any(axis=1)
        return int(np.flatnonzero(last)[0]), int(np.flatnonzero(last)[-1])

    plain, raised, lowered = ends("W O"), ends("W^O"), ends("W_o")
    assert raised[0] < plain[0] and raised[1] < plain[1]
    assert lowered[1] > plain[1]


def test_show_gives_a_figure_with_alt_text_and_caption_and_words_without_html():
    still = figures.show(Scene(Heatmap([[1]], ["<i>"], ["b"], title="a & b"), caption="1 < 2"))
    html = still._repr_html_()
    source = re.search(r'src="data:image/webp;base64,([^"]+)"', html)
    assert source is not None
    assert Image.open(io.BytesIO(base64.b64decode(source[1]))).format == "WEBP"
    assert "<figcaption>1 &lt; 2</figcaption>" in html and figures.DIMMED in html
    assert 'alt="a &amp; b: heatmap' in html
    assert "<i>" not in html
    assert repr(still).startswith("a & b: heatmap of 1 × 1")


def test_a_table_alone_is_a_table_that_can_be_selected():
    table = Table([["<i>", "2"], ["c", "d"]], ("x", "y"), strong=[1], title="t")
    html = figures.html(Scene(table, caption="Said."))
    assert "<img" not in html and "<i>" not in html
    assert html.count("<tr") == 3 and html.count("<th>") == 4 and html.count("<td>") == 2
    assert "&lt;i&gt;" in html and "<figcaption>Said.</figcaption>" in html
    assert "<img" in figures.html([[table, Bars([1])]])


@pytest.mark.parametrize("name", SCENES)
def test_the_browser_gets_the_marks_that_the_figure_draws(name):
    header, raw = live.pack(SCENES[name])
    arrays = unpacked(header["arrays"], raw)
    drawing = layout.draw(SCENES[name], height=layout.SCREEN)
    texts = [m.text for m in drawing.marks if isinstance(m, Text)]
    assert [m["text"] for m in header["marks"] if m["kind"] == "text"] == texts
    assert len(header["marks"]) == len(drawing.marks)
    cells = [m for m in drawing.marks if isinstance(m, Cells)]
    places = [m for m in header["marks"] if m["kind"] in ("heatmap", "tiles")]
    for sent, mark in zip(places, cells, strict=True):
        if sent["kind"] == "heatmap":
            shape, shown = sent["shape"], arrays[sent["values"]]
            np.testing.assert_allclose(shown.reshape(shape), mark.panel.values, rtol=1e-6)
        assert (sent["x"], sent["w"]) == (mark.x, mark.width)


def test_a_ribbon_is_as_wide_as_its_weight():
    values = np.array([[0.25, 0.0], [0.0, 0.75]])
    scene = Scene(Words(Heatmap(values), head=5))
    [ribbons] = [m for m in layout.draw(scene).marks if isinstance(m, Ribbons)]
    image = np.asarray(Image.open(io.BytesIO(figures.png(scene))).convert("RGB")).astype(int)
    middle = round(2 * (ribbons.x + ribbons.width / 2 + figures.MARGIN))
    coloured = (np.ptp(image[:, middle], axis=-1) > 30).astype(int)
    starts, ends = np.flatnonzero(np.diff(coloured) > 0), np.flatnonzero(np.diff(coloured) < 0)
    wanted = 2 * (ribbons.pitch - 2) * np.diag(values)
    np.testing.assert_allclose(ends - starts, wanted, atol=1.5)


FRAME = rgb(figures.INK)


def cell_pixels(panel: Heatmap | Tiles, row: int, column: int) -> np.ndarray:
    """What is drawn within one cell: RGB, two pixels for each of the layout's."""
    scene = Scene(panel)
    image = np.asarray(Image.open(io.BytesIO(figures.png(scene))).convert("RGB")).astype(int)
    cells = [m for m in layout.draw(scene).marks if isinstance(m, Cells)]
    [mark] = [m for m in cells if m.panel is panel]  # not the key of blocked cells
    x, y = (round(2 * (start + figures.MARGIN)) for start in mark.at(row, column))
    return image[y : y + int(2 * mark.height) - 2, x : x + int(2 * mark.width) - 2].reshape(-1, 3)


def share(pixels: np.ndarray, colour: tuple[int, ...]) -> float:
    """Of the pixels, how many are of this colour."""
    return float((abs(pixels - np.array(colour)).max(-1) < 12).mean())


def inked(pixels: np.ndarray) -> float:
    """Of the pixels, how many are not the card's."""
    return 1 - share(pixels, rgb(figures.CARD))


def test_a_blocked_cell_is_hatched_and_an_unknown_one_is_empty():
    panel = Heatmap([[0.9, 0.9, np.nan]], blocked=[[0, 1, 0]], limits=(0, 1), numbers=False)
    filled, hatched, unknown = (inked(cell_pixels(panel, 0, c)) for c in range(3))
    assert filled > 0.95
    assert 0.1 < hatched < 0.9
    assert 0 < unknown < 0.6  # an outline, and NaN in words


def test_a_mask_is_hatched_where_it_is_true_and_never_filled():
    true, false = (inked(cell_pixels(Heatmap([[1, 0]], mask=True), 0, c)) for c in range(2))
    assert 0.1 < true < 0.9 and 0 < false < 0.2


@pytest.mark.parametrize("marked", [(0, 1), (2, 0)])
def test_only_marked_cells_are_framed(marked):
    panel = Heatmap(np.full((3, 2), 0.4), marks=[marked], limits=(0, 1), numbers=False)
    for cell in np.ndindex(3, 2):
        framed = share(cell_pixels(panel, *cell), FRAME) > 0.05
        assert framed == (cell == marked), cell


def test_tiles_have_their_heads_colours_and_holes_stay_empty():
    heads_of = [[0, 3, -1], [2, 1, 0]]
    labels = [["", "", ""], ["", None, ""]]
    panel = Tiles(labels, heads=heads_of)
    for r, c in np.ndindex(2, 3):
        head, pixels = heads_of[r][c], cell_pixels(panel, r, c)
        if labels[r][c] is None:
            assert inked(pixels) == 0
        elif head >= 0:
            assert share(pixels, rgb(head_colour(head))) > 0.7
        else:
            assert all(share(pixels, rgb(head_colour(h))) < 0.1 for h in range(4))


def test_a_wrong_tile_has_a_dashed_edge():
    panel = Tiles([["", ""]], heads=[[1, 1]], wrong=[[False, True]])
    right, wrong = (share(cell_pixels(panel, 0, c), (0x11, 0x11, 0x11)) for c in range(2))
    assert right == 0 < 0.02 < wrong


def test_what_a_tile_reads_is_written_where_there_is_room():
    letters = rgb(text_on(head_colour(1)))  # black, unlike the card
    for label, is_written in (("a1", True), ("", False), ("x" * 60, False)):
        pixels = cell_pixels(Tiles([[label] * 9], heads=[[1] * 9]), 0, 0)
        assert (share(pixels, letters) > 0.01) == is_written, label
