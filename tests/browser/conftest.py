"""One Chromium for each file of tests, and pages to look at, each written once in a run."""

import pytest
from screen import TIMEOUT

import lab
from mha_course.pictures import live

DESK = {"width": 1280, "height": 720}


@pytest.fixture(scope="module")
def browser():
    if lab.CHROMIUM is None:
        pytest.skip("no Chromium here: on Debian and Ubuntu, apt install chromium")
    pytest.importorskip("playwright", reason="no playwright here: make test installs it")
    with lab.chromium() as made:
        yield made


@pytest.fixture(scope="module")
def tab(browser):
    """`tab(**context)`: an empty page of such a context, where `script` runs before any other.

    It is the same page each time: a new one takes four times as long as loading a file in it.
    """
    pages = {}

    def emptied(*, viewport=DESK, script=";", **context):
        key = script, *sorted(context.items())
        if key not in pages:
            pages[key] = browser.new_context(**context).new_page()
            pages[key].set_default_timeout(TIMEOUT)
            pages[key].add_init_script(script)
        page = pages[key]
        page.mouse.move(0, 0)
        page.goto("about:blank")  # else scrolling and typed text might be restored
        page.set_viewport_size(viewport)
        return page

    return emptied


@pytest.fixture
def open_page(tab):
    """`open_page(path, **context)`: a page without network, once its first explorer is drawn."""

    def drawn(path, **context):
        page = tab(offline=True, **context)
        page.goto(path.as_uri())
        page.wait_for_selector("canvas[aria-label]", state="attached")
        return page

    return drawn


@pytest.fixture(scope="session")
def page_of(shared_folder):
    """`page_of(name, explorer)`: the path of the page that shows what `explorer()` makes."""

    def written(name: str, explorer, frame: str = "<!doctype html><title>t</title>{}"):
        def write(folder) -> None:
            made = frame.format(live.page(explorer()))
            (folder / "page.html").write_text(made, encoding="utf-8")

        return shared_folder(f"page of {name}", write) / "page.html"

    return written
