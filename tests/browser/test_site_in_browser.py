"""The site as a reader meets it: opened from a disk, on a phone and on a desk, light and dark."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

lab = pytest.importorskip("lab")
if lab.CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)
pytest.importorskip("playwright", reason="playwright is not installed: make setup installs it")

import notebooks  # noqa: E402
import website  # noqa: E402
from mha_lesson.explore.n01_scaling import scene  # noqa: E402

SCALING = "01_scaled_dot_product_attention"
# What reaches beyond the window, but for what lies in a part that moves sideways by itself.
TOO_WIDE = """() => [...document.querySelectorAll('main *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll'))
  .map(e => e.outerHTML.slice(0, 90))"""
TOO_SMALL = """() => [...document.querySelectorAll('button, input, summary, nav a, td a')]
  .map(e => [e, e.getBoundingClientRect()])
  .filter(([e, box]) => box.width && (box.height < 24 || box.width < 24) && !e.closest('label'))
  .map(([e]) => e.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def browser():
    with lab.chromium() as made:
        yield made


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    website.build(place, notebooks.paths("01"))
    return place


@pytest.fixture(params=[(360, "light"), (360, "dark"), (1366, "light"), (1366, "dark")], ids=str)
def opened(request, browser, site):
    """Opens a page of the site; a request that leaves the disk fails the test."""
    width, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 700}, color_scheme=scheme, has_touch=width < 500
    )
    left: list[str] = []

    def show(name: str):
        page = context.new_page()
        page.on("pageerror", lambda error: left.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:")) else left.append(r.url),
        )
        page.goto((site / f"{name}.html").as_uri())
        return page

    yield show
    context.close()
    assert not left


@pytest.mark.parametrize("name", ["index", SCALING, "TEACHING", "CLAIMS"])
def test_a_page_fits_and_axe_finds_nothing_serious(opened, name):
    page = opened(name)
    if name == SCALING:
        page.wait_for_selector("canvas[aria-label]")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(TOO_SMALL) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response
    assert found["passes"]
    serious = [v for v in found["violations"] if v["impact"] in ("critical", "serious")]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in serious] == []


def test_an_explorer_moves_and_a_cell_is_read(opened):
    page = opened(SCALING)
    cell = page.locator("#cell-explorer")
    canvas = cell.locator("canvas[aria-label]")
    canvas.wait_for()
    cell.get_by_role("slider").focus()
    page.keyboard.press("End")
    said = cell.locator(".mha-caption")
    said.filter(has_text=scene(4096, False).caption).wait_for()
    x, y, w, h = canvas.evaluate("c => c.mha.fields[0].box(0, 3)")
    scale = canvas.evaluate("c => c.clientWidth / (c.mha.scene.width + 4)")
    canvas.scroll_into_view_if_needed()
    place = {"x": (x + w / 2 + 2) * scale, "y": (y + h / 2 + 2) * scale}
    if page.evaluate("innerWidth") < 500:
        canvas.tap(position=place)
    else:
        canvas.hover(position=place)
    assert "k3" in cell.locator(".mha-reading").text_content()


def test_a_word_is_found_across_pages_by_keyboard(opened):
    page = opened("index")
    page.get_by_role("searchbox").fill("gradient saturat")
    page.locator(".find li a").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/01_*.html#*")
    assert page.locator(":target").count() == 1


def test_the_theme_is_chosen_and_kept(opened):
    page = opened("index")
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.get_by_role("button", name="Light or dark").click()
    changed = page.evaluate(background)
    assert changed != before
    page.reload()
    assert page.evaluate(background) == changed
