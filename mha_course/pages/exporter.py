"""Notebooks as HTML: one exporter for all pages, with a template for each kind beside it.

`page` moves without a kernel, `paper` is printed, `slides` are shown, `site` is the whole course.
Formulas are MathML, and none loads anything from elsewhere.
"""

import re
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from nbclient import NotebookClient
from nbconvert import HTMLExporter, SlidesExporter

from mha_course.base.scripts import bundle
from mha_course.pages.formulas import typeset

TEMPLATES = Path(__file__).with_name("templates")
LINK = re.compile(r'(href="\w+)\.ipynb\b')  # to a notebook whose page lies beside this one
# Addresses of scripts that nbconvert's own templates would load.
UNUSED = ("require_js_url", "jquery_url", "jupyter_widgets_base_url")


def run(notebook: Any, folder: Path, *, allow_errors: bool = False) -> Any:
    """The notebook, run in a fresh kernel in this folder."""
    NotebookClient(
        notebook,
        timeout=600,  # plenty: a machine may be busy
        allow_errors=allow_errors,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return notebook


def exporter_of(kind: str) -> HTMLExporter:
    """What writes notebooks as HTML by the template of this kind."""
    exporter = SlidesExporter if kind == "slides" else HTMLExporter
    return typeset(
        exporter(
            template_file=f"{kind}.html.j2",
            extra_loaders=[FileSystemLoader(TEMPLATES)],
            **dict.fromkeys(UNUSED, ""),
        )
    )


def written(kind: str, notebook: Any, name: str, **resources: Any) -> str:
    """One notebook, called `name`, as HTML; the template is given the resources."""
    given = {"metadata": {"name": name}, **resources}
    page, _ = exporter_of(kind).from_notebook_node(notebook, given)
    return str(page)


def asset(name: str) -> str:
    """A script or a style beside the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def inline(name: str) -> str:
    """A script beside the templates, for the end of a page."""
    return f"<script>\n{bundle(TEMPLATES / name)}</script>"
