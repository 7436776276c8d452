"""One Chromium for each file of tests; where there is none, a sentence says so."""

import lab
import pytest


@pytest.fixture(scope="module")
def browser():
    if lab.CHROMIUM is None:
        pytest.skip("no Chromium here: on Debian and Ubuntu, apt install chromium")
    pytest.importorskip("playwright", reason="playwright is not installed: make setup installs it")
    with lab.chromium() as made:
        yield made
