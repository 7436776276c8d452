"""One Chromium for each file of tests, and pages to look at, each written once in a run."""

import lab
import pytest

from mha_lesson.pictures import live


@pytest.fixture(scope="module")
def browser():
    if lab.CHROMIUM is None:
        pytest.skip("no Chromium here: on Debian and Ubuntu, apt install chromium")
    pytest.importorskip("playwright", reason="playwright is not installed: make setup installs it")
    with lab.chromium() as made:
        yield made


@pytest.fixture(scope="session")
def page_of(once):
    """`page_of(name, explorer)`: the path of the page that shows what `explorer()` makes."""

    def written(name: str, explorer):
        def write(folder) -> None:
            made = f"<!doctype html><title>t</title>{live.page(explorer())}"
            (folder / "page.html").write_text(made, encoding="utf-8")

        return once(f"page of {name}", write) / "page.html"

    return written
