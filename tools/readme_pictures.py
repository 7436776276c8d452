"""Makes the README's pictures of `explore.flow()` from a real browser.

    python tools/readme_pictures.py

Writes .github/flow.png, the whole computation, and .github/flow.webp, a loop: a number by hand is
dragged, then the sentence is walked through step by step, each shown as long as its words take to
be read. And .github/fates.png.
"""

import io
import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image

from mha_course import explore
from mha_course.explore.fates import fates
from mha_course.pictures import figures, live

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from lab import CHROMIUM, chromium  # noqa: E402

FOLDER = ROOT / ".github"
VIEWPORT = {"width": 890, "height": 580}
LETTERS_A_SECOND, MOST_BYTES = 20.0, 157_000  # as one reads; of the loop
CELL_MIDDLE = """(c, [block, row, column]) => {
    const [x, y, w, h] = c.mha.flow.fields[block].box(row, column);
    const at = c.getBoundingClientRect();
    return [at.left + x + w / 2 + 2, at.top + y + h / 2 + 2];
}"""


def flow(until: str) -> str:
    """A page with the explorer alone."""
    body = '<body style="margin:12px;background:#FFF;font:14px sans-serif">'
    return f"<!doctype html><title>flow</title>{body}{live.page(explore.flow(until=until))}"


def screenshot(page) -> Image.Image:
    page.wait_for_timeout(350)  # every animation has ended
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def reading_time(page) -> int:
    """Milliseconds to read the step's sentence and the number's, and a second to look."""
    words = "".join(page.locator(".mha-caption, .mha-strip p").all_text_contents())
    return round(1000 * (1 + len(words) / LETTERS_A_SECOND))


def frames(page, hand: str, whole: str) -> list[tuple[Image.Image, int]]:
    """What the loop shows, each with its milliseconds; the last is the whole picture."""
    page.set_content(hand)
    page.wait_for_selector("canvas[aria-label]")
    page.get_by_role("slider", name="step", exact=True).focus()
    page.keyboard.press("End")
    shots = [(screenshot(page), reading_time(page))]
    x, y = page.locator("canvas").evaluate(CELL_MIDDLE, ["q", 2, 1])
    page.mouse.move(x, y)
    page.mouse.down()
    for step in (1, 2, 3, 4):
        page.mouse.move(x, y - 12 * step)
        shots.append((screenshot(page), 600))  # only numbers change
    page.mouse.up()
    page.set_content(whole)
    page.wait_for_selector("canvas[aria-label]")
    slider = page.get_by_role("slider", name="step", exact=True)
    slider.focus()
    page.keyboard.press("Home")
    shots.append((screenshot(page), reading_time(page)))
    while slider.input_value() != slider.get_attribute("max"):
        page.keyboard.press("ArrowRight")
        if slider.get_attribute("aria-valuetext") != "mask":  # there is none
            shots.append((screenshot(page), reading_time(page)))
    return shots


def main() -> None:
    if CHROMIUM is None:
        sys.exit("No Chromium found: on Debian and Ubuntu, apt install chromium.")
    hand, whole = flow("attention"), flow("output")
    with chromium() as browser:
        shots = frames(browser.new_context(viewport=VIEWPORT).new_page(), hand, whole)
        sharp = browser.new_context(viewport=VIEWPORT, device_scale_factor=2).new_page()
        sharp.set_content(whole)
        sharp.wait_for_selector("canvas[aria-label]")
        still = screenshot(sharp)
    still.save(FOLDER / "flow.png", optimize=True)
    charts = fates()
    beside = replace(charts, panels=[charts.flat()])  # in one row, which is less high
    (FOLDER / "fates.png").write_bytes(figures.png(beside))
    first, *rest = (shot for shot, _ in shots)
    loop = FOLDER / "flow.webp"
    how = {"duration": [wait for _, wait in shots], "loop": 0, "lossless": True, "method": 6}
    first.save(loop, save_all=True, append_images=rest, **how)
    for path in (FOLDER / "flow.png", loop):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB")
    if loop.stat().st_size > MOST_BYTES:
        sys.exit("The loop is larger than it was allowed to be.")


if __name__ == "__main__":
    main()
