"""Makes the README's moving picture, and the site's preview, of the first screen in a real browser.

    python tools/readme_pictures.py

Writes .github/cut.webp: a sentence, one of its words cut, then one ribbon of one head, each shown
as long as its words take to be read, three times over. And .github/preview.png, the first cut
alone, for a link.
"""

import io
import sys
from pathlib import Path

from PIL import Image

from mha_course import explore
from mha_course.pictures import live

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from lab import CHROMIUM, chromium  # noqa: E402

FOLDER = ROOT / ".github"
PHONE, CARD = {"width": 440, "height": 524}, {"width": 860, "height": 450}
LETTERS_A_SECOND = 20.0  # as one reads
PAGE = """<!doctype html><title>cut</title><style>body { margin: 12px; background: #FFF;
font-family: "DejaVu Sans", sans-serif } details { display: none }</style>"""


def screenshot(page) -> Image.Image:
    page.wait_for_timeout(500)  # every animation has ended
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def reading_time(page) -> int:
    """Milliseconds to read the words, and a second to look."""
    words = page.locator(".mha-caption").inner_text()
    return round(1000 * (1.5 + len(words) / LETTERS_A_SECOND))


def main() -> None:
    if CHROMIUM is None:
        sys.exit("No Chromium found: on Debian and Ubuntu, apt install chromium.")
    first_screen = PAGE + live.page(explore.writes())
    with chromium() as browser:

        def opened(size: dict[str, int]):
            page = browser.new_context(viewport=size, device_scale_factor=2).new_page()
            page.set_content(first_screen)
            page.locator(".mha-word", has_text="France").wait_for()
            return page

        page = opened(PHONE)
        france = page.locator(".mha-word", has_text="France")
        shots = [(screenshot(page), reading_time(page))]
        for press in (france, page.get_by_role("button", name="Is one ribbon enough?"), france):
            press.click()
            shots.append((screenshot(page), reading_time(page)))
        card = opened(CARD)
        card.locator(".mha-word", has_text="France").click()
        screenshot(card).save(FOLDER / "preview.png", optimize=True)
    (start, _), *rest = shots
    how = {"duration": [wait for _, wait in shots], "loop": 3, "lossless": True, "method": 6}
    start.save(FOLDER / "cut.webp", save_all=True, append_images=[shot for shot, _ in rest], **how)
    for name in ("cut.webp", "preview.png"):
        print(f".github/{name}: {(FOLDER / name).stat().st_size // 1000} KB")


if __name__ == "__main__":
    main()
