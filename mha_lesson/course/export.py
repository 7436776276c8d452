"""Save a notebook as one HTML page whose explorers move without a kernel and without a network.

`python -m mha_lesson.course.export NOTEBOOK.ipynb` runs it and writes NOTEBOOK.html beside it.
Explorers that send all their states beforehand move; the others show the still picture of their
first state.
Formulas need MathJax from the network, as in every page that nbconvert makes.
"""

import argparse
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from mha_lesson.pictures.live import EXPORT
from mha_lesson.refusals import require_kind

UNUSED = ("require_js_url", "jquery_url", "jupyter_widgets_base_url", "mermaid_js_url")


def export(notebook: Path) -> Path:
    """Runs a notebook, writes it as HTML beside it, and gives the page's path.

    Raises:
        TypeError, ValueError: it is no notebook, or cannot be read.
    """
    require_kind("notebook", notebook, Path)
    try:
        made = nbformat.read(notebook, as_version=4)
    except Exception as error:  # no file, no JSON, or JSON that is no notebook
        raise ValueError(f"notebook must be a Jupyter notebook; {notebook}: {error}") from error
    os.environ[EXPORT] = "1"
    try:
        NotebookClient(
            made, timeout=600, resources={"metadata": {"path": str(notebook.parent)}}
        ).execute()
    finally:
        del os.environ[EXPORT]
    made.metadata.pop("widgets", None)
    exporter = HTMLExporter(**dict.fromkeys(UNUSED, ""))
    body, _ = exporter.from_notebook_node(made, {"metadata": {"name": notebook.stem}})
    page = notebook.with_suffix(".html")
    page.write_text(body, encoding="utf-8")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    print(export(parser.parse_args().notebook))


if __name__ == "__main__":
    main()
