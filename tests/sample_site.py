"""The site of two notebooks, which one test file reads and another looks at."""

from pathlib import Path

import notebooks
import website

CHOSEN = notebooks.paths("01", "03")  # with exercises, and explorers that move


def build(place: Path) -> None:
    website.build(place, CHOSEN)
