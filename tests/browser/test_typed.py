"""A sentence of one's own in a page: the field, a lost network, the picture, and saving it."""

import json
import re
import shutil
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from screen import await_caption, middle, view

import website
from mha_course.explore import n00_cut, n08_real_heads, own_class
from mha_course.pages import published, writing
from mha_course.pictures import live
from mha_lesson import pretrained
from mha_lesson.text import SENTENCE

OWN = "A dog ran."
EXPLORER = "#explore-real_heads"
MENU, SAYS = ".mha-controls select", "menu => menu.selectedOptions[0].text"
CHOOSE = "menu => { menu.value = 0; menu.dispatchEvent(new Event('input', { bubbles: true })); }"


@pytest.fixture(scope="module")
def page_with_model(shared_folder, site_of):
    """A page with one stored sentence, and room for typed ones of up to six tokens."""
    site = site_of(published)

    def write(place) -> None:
        explorer = n08_real_heads.real_heads()
        explorer.reach["text"] = lambda **_: [SENTENCE]
        shutil.copytree(site, place, dirs_exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(n08_real_heads, "MOST_TYPED", 6)
            (place / published.NAME / "heads.js").write_bytes(published.pictures())
        about = json.loads((site / "about.json").read_text("utf-8"))
        scripts = live.script() + writing.offers(about, None)
        inside = f'<main id="explore-real_heads"></main><script>{scripts}'
        for name, made in (("page", explorer), ("cut", n00_cut.cut(offered=1))):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(live.EXPORT, "1")
                states = live.states_script(made, "explore-real_heads")
            page = f"<!doctype html><meta charset=utf-8><title>t</title>{inside}{states}</script>"
            (place / f"{name}.html").write_text(page, encoding="utf-8")

    return shared_folder("typed", write) / "page.html"


@pytest.fixture
def offered(open_page, page_with_model):
    page = open_page(page_with_model)
    page.get_by_role("button", name="Type your own").wait_for()
    return page


def test_nothing_is_fetched_unasked_and_what_is_lost_can_be_asked_for_again(
    offered, page_with_model
):
    asked, [lost] = [], page_with_model.parent.glob("*/layer-2-narrow.js")
    offered.on("request", lambda request: asked.append(request.url))
    offered.wait_for_timeout(100)
    assert not asked
    offered.locator("summary").first.focus()
    offered.keyboard.press("Shift+Tab")  # into the picture, at the word whose ribbons stand out
    offered.get_by_role("status").filter(has_text="query “it” takes from: “creek” .85").wait_for()
    away = lost.rename(lost.with_suffix(".away"))
    try:
        offered.get_by_role("button", name=re.compile(r"Type your own: .* \d+ MB")).press("Enter")
        offered.get_by_role("status").filter(has_text="network").wait_for()
    finally:
        away.rename(lost)
    assert offered.evaluate("document.activeElement.textContent") == "Try once more"
    offered.keyboard.press("Enter")
    offered.get_by_role("textbox", name="your own sentence").wait_for()


def test_a_typed_sentence_is_drawn_as_python_draws_it(offered):
    offered.get_by_role("button", name="Type your own").click()
    field = offered.get_by_role("textbox", name="your own sentence")
    field.fill(OWN)
    field.press("Enter")
    offered.get_by_role("status").filter(has_text="6 tokens").wait_for()
    offered.get_by_role("slider", name="layer").fill("2")
    offered.get_by_role("slider", name="head").fill("5")
    assert offered.locator(MENU).evaluate(SAYS) == OWN  # also where another control was moved
    scene = n08_real_heads.scene(2, 5, OWN)
    caption = offered.locator(".mha-caption")
    assert caption.text_content() == scene.caption
    written = view(offered, EXPLORER, "v.scene.marks.filter(m => m.text).map(m => m.text)")
    assert set(pretrained.load().encode(OWN).labels) <= set(written)
    found = view(offered, EXPLORER, "v.scene.marks.filter(m => m.values).map(m => [...m.values])")
    drawn = [panel.weights if hasattr(panel, "weights") else panel for panel in scene.flat()]
    for values, panel in zip(found, drawn, strict=True):
        assert np.allclose(values, panel.values.ravel(), atol=0.002)
    assert view(offered, EXPLORER, "v.scene.alt") == scene.alt
    field.fill("")
    field.press("Enter")
    offered.get_by_role("status").filter(has_text="no word").wait_for()


@pytest.mark.long
def test_several_ribbons_are_cut_one_in_all_heads_and_all_of_it_is_undone(
    open_page, page_with_model
):
    page = open_page(page_with_model.with_name("cut.html"))
    page.get_by_role("button", name="Type your own").click()
    page.get_by_role("status").filter(has_text="17 tokens").wait_for()
    canvas, words = page.locator("canvas"), pretrained.load().encode(SENTENCE).labels
    it, creek, dog = (words.index(word) for word in ("it", "creek", "dog"))
    one, other = ((3, 1, it, to) for to in (creek, dog))

    def awaited(before: str, *cuts: n00_cut.OneCut) -> None:
        await_caption(page, EXPLORER, f"{before} the last vector of “it” moves by ")
        [said] = re.findall(r"([\d.]+)%", page.locator(".mha-caption").text_content())
        moved = n00_cut.moves(pretrained.load(), SENTENCE, [cuts])[0, it].item()
        assert float(said) == pytest.approx(100 * moved, abs=0.3)

    canvas.click(position=middle(canvas, "v.fields[0]", creek, 1))
    awaited("Without it → creek (.85, layer 3, head 1)", one)
    canvas.click(position=middle(canvas, "v.fields[0]", dog, 1))
    awaited("With 2 cuts", one, other)
    page.get_by_role("button", name="undo").click()
    page.get_by_role("button", name="cut “creek” in all heads").click()
    awaited("Without it → creek in all 72 heads", *((i, None, it, creek) for i in range(6)))
    page.get_by_role("button", name="undo").click()
    awaited("Without it → creek (.85, layer 3, head 1)", one)
    field, menu = page.get_by_role("textbox", name="your own sentence"), page.locator(MENU).first
    field.fill(OWN)
    page.get_by_role("status").filter(has_text="6 tokens").wait_for()
    assert menu.evaluate(SAYS) == OWN
    menu.evaluate(CHOOSE)  # which was chosen before
    page.get_by_role("status").filter(has_text="17 tokens").wait_for()
    assert field.input_value() == menu.evaluate(SAYS) == SENTENCE


@pytest.mark.long
def test_a_break_of_the_class_changes_its_ribbons_and_the_sentence_it_finds(
    open_page, page_of, page_with_model
):
    page, which = open_page(page_of("the class in the model", website.solved)), ".mha-explorer"
    choice = page.get_by_role("combobox", name="the course's class")
    seen = []
    for name, found in ((own_class.WHOLE, True), ("mask upside down", False)):
        choice.select_option(name)
        await_caption(page, which, "less than .00001" if found else name)
        nearest = re.escape(f": “{own_class.SIX[0]}”")
        caption = page.locator(".mha-caption").text_content()
        assert bool(re.search(rf"Nearest, by \S+{nearest}", caption)) == found
        marks = "v.scene.marks.filter(m => m.kind === 'ribbons').map(m => [...m.values])"
        [ribbons] = view(page, which, marks)
        row = view(page, which, "v.scene.marks.find(m => / nearest$/.test(m.text)).row")
        seen.append((max(ribbons), row))
    (widest, first), (none, other) = seen
    assert widest == pytest.approx(0.85, abs=0.005) and first == none == 0 != other


def test_a_picture_is_saved_as_it_is_seen(offered, tmp_path):
    saved = {}
    view(offered, EXPLORER, "v.scene.alt += ' <&'")  # as a sentence of one's own may hold
    for kind in ("PNG", "SVG"):
        offered.locator(f"{EXPLORER} .mha-save summary").click()
        with offered.expect_download() as download:
            offered.get_by_role("button", name=f"picture ({kind})").click()
        saved[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[kind])
    svg = ElementTree.parse(saved["SVG"]).getroot()
    width, height = (int(float(svg.get(side))) for side in ("width", "height"))
    twice = Image.open(saved["PNG"])
    assert twice.width == 2 * width and 0 <= twice.height - 2 * height <= 1
    assert twice.convert("RGBA").getextrema()[3] == (255, 255)
    space = "{http://www.w3.org/2000/svg}"
    written = Counter(text.text for text in svg.iter(f"{space}text"))
    assert Counter(view(offered, EXPLORER, "v.drawn")) < written  # and what there is to see
    assert svg.find(f"{space}title").text == view(offered, EXPLORER, "v.scene.alt")
    offered.goto(saved["SVG"].as_uri())
    for side, size in zip(("width", "height"), twice.size, strict=True):
        set_to = "(svg, [side, size]) => svg.setAttribute(side, size)"
        offered.locator("svg").first.evaluate(set_to, [side, size])
    offered.set_viewport_size(dict(zip(("width", "height"), twice.size, strict=True)))
    offered.screenshot(path=tmp_path / "seen.png")
    pictures = [
        Image.open(path).convert("L").resize((width // 8, height // 8))
        for path in (tmp_path / "seen.png", saved["PNG"])
    ]
    seen, canvas = (np.asarray(picture, float) for picture in pictures)
    assert np.abs(seen - canvas).mean() < 2
