"""Save a notebook as one HTML page whose explorers move without a kernel and without a network.

`mha-lesson export NOTEBOOK.ipynb` runs it and writes NOTEBOOK.html beside it.
All explorers move. Links to other notebooks become links to their pages.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import DictLoader
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from mha_course.cells import predictions
from mha_course.pages import folds
from mha_course.pages.formulas import typeset
from mha_course.pictures.live import EXPORT
from mha_lesson.refusals import require_kind

LINK = re.compile(r'(href="\w+)\.ipynb\b')
PAGE = (
    """
{%- extends 'index.html.j2' -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}
{{ super() }}
<style>
  .jp-RenderedMarkdown :is(p, ul, ol) { max-width: 75ch; }
  .jp-Notebook { max-width: 80rem; }
  .second-reading > summary { font: var(--jp-content-font-size1)/var(--jp-content-line-height)
                              var(--jp-content-font-family); }
  @media print { pre { white-space: pre-wrap !important; overflow-wrap: anywhere; } }
"""
    + folds.STYLE
    + """</style>
{%- endblock -%}
"""
    + folds.BLOCK
)
UNUSED = ("require_js_url", "jquery_url", "jupyter_widgets_base_url")


def export(notebook: Path) -> Path:
    """Runs a notebook, writes it as HTML beside it, and gives the page's path.

    Raises:
        TypeError, ValueError: it is no notebook, or cannot be read.
    """
    require_kind("notebook", notebook, Path)
    try:
        made: Any = nbformat.read(notebook, as_version=4)
    except Exception as error:  # no file, no JSON, or JSON that is no notebook
        raise ValueError(f"notebook must be a Jupyter notebook; {notebook}: {error}") from error
    os.environ[EXPORT] = "1"
    try:
        NotebookClient(
            made,
            timeout=600,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(notebook.parent)}},
        ).execute()
    finally:
        del os.environ[EXPORT]
    made.metadata.pop("widgets", None)
    exporter = HTMLExporter(
        template_file="page.html.j2",
        extra_loaders=[DictLoader({"page.html.j2": PAGE})],
        **dict.fromkeys(UNUSED, ""),
    )
    named = {"metadata": {"name": notebook.stem}}
    body, _ = typeset(exporter).from_notebook_node(folds.fold(made), named)
    page = notebook.with_suffix(".html")
    scripts = predictions.script() + folds.SCRIPT
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
