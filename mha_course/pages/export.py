"""Save a notebook as one HTML page whose explorers move without a kernel and without a network.

`mha-lesson export NOTEBOOK.ipynb` runs it and writes NOTEBOOK.html beside it.
All explorers move. Links to other notebooks become links to their pages.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from mha_course.base.disk import plainly
from mha_course.cells import predictions
from mha_course.pages import folds
from mha_course.pages.exporter import LINK, inline, run, written
from mha_course.pictures.live import EXPORT, script
from mha_lesson.refusals import require_kind


def export(notebook: Path) -> Path:
    """Runs a notebook, writes it as HTML beside it, and gives the page's path.

    Raises:
        TypeError, ValueError: it is no notebook, or cannot be read.
    """
    require_kind("notebook", notebook, Path)
    try:
        stored: Any = nbformat.read(notebook, as_version=4)
    except Exception as error:  # no file, no JSON, or JSON that is no notebook
        why = plainly(error)
        raise ValueError(f"notebook must be a Jupyter notebook; {notebook}: {why}") from error
    os.environ[EXPORT] = "1"
    try:
        run(stored, notebook.parent)
    finally:
        del os.environ[EXPORT]
    stored.metadata.pop("widgets", None)
    body = written("page", folds.fold(stored), notebook.stem)
    shared = f"<script>{script()}</script>"  # each explorer brings it; a page needs it once
    before, first, after = body.partition(shared)
    body = f"{before}{first}{after.replace(shared, '')}"
    page = notebook.with_suffix(".html")
    scripts = predictions.script() + inline("folds.js")
    linked = LINK.sub(r"\1.html", body).replace("</body>", f"{scripts}</body>")
    page.write_text(linked, encoding="utf-8")
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="mha-lesson export",
        description="Run a notebook and save it as one HTML page beside it, NOTEBOOK.html, whose "
        "explorers move without a kernel and without a network.",
    )
    parser.add_argument("notebook", type=Path, help="a notebook (.ipynb), which stays as it is")
    print(export(parser.parse_args(arguments).notebook))
