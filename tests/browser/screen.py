"""What is on screen, and what should be: helpers of several browser tests."""

import re
from pathlib import Path

import numpy as np
import pytest

from mha_course.pictures import layout, panels
from mha_course.pictures.marks import Cells, ColourBar, Text
from mha_course.pictures.tiles import LETTER

SETUP = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport demo"
# Milliseconds: nothing here takes a second, but a machine may be busy.
TIMEOUT = 300_000


def view(page, which: str, expression: str):
    """The value of `expression`, in which `v` is the view."""
    script = f"c => {{ const v = c.mha; return {expression} }}"
    return page.locator(which).locator("canvas").evaluate(script)


def middle(canvas, field: str, row: int, column: int) -> dict[str, float]:
    """Where the middle of a cell lies on a canvas; `field` is an expression over its view `v`."""
    return canvas.evaluate(f"""c => {{
        const v = c.mha, [x, y, w, h] = ({field}).box({row}, {column}), s = c.clientWidth / (v.scene.width + 4);
        return {{ x: (x + w / 2 + 2) * s, y: (y + h / 2 + 2) * s }};
    }}""")  # noqa: E501


def serious(page, where=None, **options) -> list:
    """The rules that axe-core finds broken seriously or critically, each with its first element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, where, {"resultTypes": ["violations"], **options}).response
    assert found["passes"], "axe looked at nothing"
    return [
        (v["id"], v["nodes"][0]["html"][:200])
        for v in found["violations"]
        if v["impact"] in ("critical", "serious")
    ]


def heard(text: str) -> str:
    """Arrows between words as who listens hears them."""
    text = text.replace("query → key", "queries by keys")
    return re.sub(r"(\S+) → ([^\s,.:;]+|\S)", r"query “\1”, key “\2”", text)


def slider(page, name: str):
    return page.get_by_role("slider", name=name, exact=True)


def await_caption(page, which: str, caption: str) -> None:
    """Waits until the caption of a view is this one."""
    page.locator(which).locator(".mha-caption").filter(has_text=caption).wait_for()


def texts(scene: panels.Scene, by_row: bool = False) -> list[str]:
    """All texts of a picture, sorted: its labels and the numbers in its cells."""
    out = []
    for mark in layout.draw(scene, height=layout.SCREEN).marks:
        if isinstance(mark, Text):
            out.append(mark.text)
        elif isinstance(mark, ColourBar):
            out.append((by_row and mark.by_row) or mark.end)
        elif isinstance(mark, Cells) and isinstance(mark.panel, panels.Heatmap):
            heat = mark.panel
            out += [
                panels.number(v, heat.decimals)
                for at, v in np.ndenumerate(heat.values)
                if mark.numbers and not heat.blocked[at] and not heat.mask
            ]
        elif isinstance(mark, Cells):
            fits = [t for row in mark.panel.labels for t in row if t]
            out += [t for t in fits if mark.width - 2 >= LETTER * len(t) + 2]
    return sorted(out)


# Scrolls to the picture's end; measures where the bar with controls and sentence is then.
BAR = """e => {
  const bar = e.querySelector('.mha-bar'), stage = e.querySelector('.mha-stage');
  stage.scrollIntoView({block: 'end'});
  let port = e.parentElement;
  while (port && !(/auto|scroll/.test(getComputedStyle(port).overflowY) && port.scrollHeight > port.clientHeight))
    port = port.parentElement;
  const frame = port ? port.getBoundingClientRect() : {top: 0, bottom: innerHeight};
  const seen = [...bar.querySelectorAll('[role=slider], input, .mha-caption')].filter(c => c.offsetParent);
  return {
    scrolled: frame.top - e.getBoundingClientRect().top,
    within: seen.every(c => c.getBoundingClientRect().top >= frame.top - 1
                         && c.getBoundingClientRect().bottom <= frame.bottom + 1),
    above: seen.every(c => { const box = c.getBoundingClientRect(); return bar.contains(
      document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)); }),
    picture: stage.getBoundingClientRect().bottom - bar.getBoundingClientRect().bottom,
  };
}"""  # noqa: E501


def assert_bar_in_sight(explorer) -> None:
    """Controls and sentence are seen above the picture, and much of the picture below them.

    It waits: a page whose window has just changed is laid out some frames later.
    """
    from playwright.sync_api import TimeoutError

    enough = "f.scrolled > 40 && f.within && f.above && f.picture > 150"
    script = f"e => {{ const f = ({BAR})(e); return {enough} }}"
    try:
        explorer.page.wait_for_function(script, arg=explorer.element_handle())
    except TimeoutError:
        raise AssertionError(explorer.evaluate(BAR)) from None
