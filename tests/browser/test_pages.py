"""Explorers on saved pages: no kernel, no network, a phone, no scripts."""

import demo
import pytest
from screen import SETUP, assert_bar_in_sight, await_caption, heard, middle, slider, texts, view

import lab
from mha_course import explore
from mha_course.pages.export import export
from mha_course.pictures import figures


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A notebook saved as a page: the explorer that is stored, and the one that moves."""
    path = tmp_path_factory.mktemp("export") / "demo.ipynb"
    cells = [SETUP, "demo.stored_explorer()", "demo.moving_explorer()"]
    return export(lab.notebook(path, cells))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["page", "export"])
def test_controls_and_sentence_stay_in_sight_on_a_phone(open_page, page_of, request, kind):
    if kind == "export":
        path = request.getfixturevalue("exported")
    else:
        path = page_of("moving", demo.moving_explorer)
    page = open_page(path, viewport={"width": 360, "height": 640})
    moving = page.locator(".mha-explorer").last
    moving.locator("canvas[aria-label]").wait_for()
    assert_bar_in_sight(moving)


@pytest.mark.long  # the site's pages move at every commit
def test_a_saved_page_moves_without_kernel_or_network(open_page, exported):
    page, first = open_page(exported), ".mha-explorer >> nth=0"
    slider(page, "size").focus()
    page.keyboard.press("ArrowRight")
    scene = demo.stored(16, True)
    await_caption(page, first, scene.caption)
    assert sorted(view(page, first, "v.drawn")) == texts(scene)


@pytest.fixture
def memory_page(page_of):
    return page_of("memory", explore.memory)


@pytest.mark.long
@pytest.mark.parametrize(("width", "least"), [(700, 1), (360, 0.95)])
def test_a_page_is_laid_out_for_its_width_and_a_tap_reads_a_cell(
    open_page, memory_page, width, least
):
    page = open_page(memory_page, viewport={"width": width, "height": 700}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("canvas").evaluate("c => c.clientWidth / c.mha.scene.width") >= least
    assert page.locator(".mha-stage").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    canvas = page.locator("canvas")
    canvas.tap(position=middle(canvas, "v.fields[0]", 0, 1))
    page.locator(".mha-reading").filter(has_text="place 1 of the strip").wait_for()
    heights = "all => all.map(e => e.offsetHeight).filter(Boolean)"
    assert min(page.locator("label, summary").evaluate_all(heights)) >= 24


@pytest.mark.long
@pytest.mark.parametrize(("screen", "kept"), [(400, False), (3000, True)])
def test_a_picture_that_shrinks_keeps_its_space_where_that_is_seen(
    open_page, memory_page, screen, kept
):
    page = open_page(memory_page, viewport={"width": 360, "height": screen})
    for end in ("max", "min"):
        move = f"s => {{ s.value = s.{end}; s.dispatchEvent(new Event('input')); }}"
        page.get_by_role("slider").evaluate_all(f"all => all.forEach({move})")
        page.wait_for_timeout(400)
        place = page.locator(".mha-stage").evaluate(
            "e => [e.offsetHeight, e.querySelector('canvas').offsetHeight]"
        )
        if end == "max":
            tall = place[0]
    assert place[1] < tall and place[0] == (tall if kept else place[1])


# Of the next picture, the sides of the canvas by those of the scene.
SIDES = """c => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const { width, height, mha: { scene } } = c;
  done(width / (scene.width + 4) / height * (scene.height + 4));
})))"""


def test_a_control_of_a_page_has_the_positions_that_the_others_allow(open_page, page_of):
    page = open_page(page_of("dependent", demo.dependent_explorer))

    def stands(n: int, part: int, word: str = "it") -> None:
        await_caption(page, ".mha-explorer", demo.part_of(n, part, word).caption)
        assert abs(page.locator("canvas").evaluate(SIDES) - 1) < 0.05
        if n == 1:  # nothing to choose
            assert slider(page, "part").count() == 0
            return
        assert slider(page, "part").get_attribute("max") == str(n - 1)
        assert slider(page, "part").get_attribute("aria-valuetext") == str(part)

    stands(3, 1)
    slider(page, "n").focus()
    page.keyboard.press("Home")
    stands(1, 0)
    page.keyboard.press("End")
    stands(5, 1)  # where it stood before there was too little room
    slider(page, "part").focus()
    page.keyboard.press("End")
    stands(5, 4)
    slider(page, "n").focus()
    page.keyboard.press("ArrowLeft")
    stands(4, 3)  # who wants the end gets the end
    page.get_by_role("combobox").select_option("creek")
    stands(4, 3, "creek")
    assert "that needs a kernel" in page.locator(".mha-controls").text_content()


def test_a_pinned_cell_is_released_when_its_tokens_change(open_page, page_of):
    page = open_page(page_of("worded", demo.worded_explorer))
    reading, canvas = page.locator(".mha-reading"), page.locator("canvas")
    for row, said in ((0, "the → the = 1"), (1, "")):
        page.get_by_role("combobox").select_option("creek")
        canvas.click(position=middle(canvas, "v.fields[0]", row, 0))
        page.mouse.move(0, 0)
        assert reading.text_content() == ("creek → the = 3" if row else said)
        page.get_by_role("combobox").select_option("dog")
        assert reading.text_content() == said
        assert page.locator("canvas").evaluate("c => Boolean(c.mha.pinned)") == bool(said)


def test_a_page_without_scripts_shows_the_still_picture(tab, page_of):
    path = page_of("stored", demo.stored_explorer)
    page = tab(java_script_enabled=False)
    page.goto(path.as_uri())
    assert page.locator("figure img").get_attribute("alt") == demo.stored(4, True).alt
    assert figures.html(demo.stored(4, True)) in path.read_text(encoding="utf-8")


@pytest.mark.long
def test_a_picture_in_a_fold_that_is_opened_for_paper_is_drawn_at_once(tab, page_of):
    folded = "<!doctype html><title>t</title><details><summary>more</summary>{}</details>"
    page = tab(offline=True)
    page.goto(page_of("fold", demo.stored_explorer, folded).as_uri())
    page.wait_for_selector("canvas", state="attached")
    said = page.evaluate("""() => {
        document.querySelector("details").open = true;
        dispatchEvent(new Event("beforeprint"));
        return document.querySelector("canvas").getAttribute("aria-label");
    }""")
    assert said == heard(demo.stored_explorer().first.alt)
