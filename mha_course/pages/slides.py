"""A notebook as slides: a heading starts one, and so does each text, code cell or picture."""

import re

from nbformat import NotebookNode, v4

from mha_course.base.notebook import EXPLORER, tagged, without_folds
from mha_course.pages.exporter import written

NEIGHBOURS = re.compile(r"^[←→·] ?\[.*$", re.M)  # a line
IMAGE = re.compile(r'(<img [^>]*width=")(\d+)')
LARGER, WIDEST = 1.5, 1180  # pictures on slides, in times and in pixels
STILL = "<p><em>On a slide this picture stands still; in the notebook it moves.</em></p>"
SETUP = ("imports", "imports-text")  # cells that no slide needs
FILE_LINK = re.compile(r'<a href="\w+\.(?:ipynb|md)\b[^>]*>(.*?)</a>', re.S)


def as_slides(notebook: NotebookNode) -> NotebookNode:
    """The notebook as slides: a heading starts one, and so does each text, code cell or picture.

    A cell's output appears one key press after its code: first predict, then look. Claims and
    predictions are shown without their code, which holds the answer; a verdict is one key press
    away. Exercises keep their task; hints, solutions, stubs and the setup are left out. Each
    further slide below a heading repeats it, small.
    """
    cells: list[NotebookNode] = []
    heading = ""

    def add(cell: NotebookNode, kind: str) -> None:
        again = v4.new_markdown_cell(f'<div class="again">\n\n{heading}\n\n</div>')
        parts = [(again, kind), (cell, "-")] if kind == "subslide" else [(cell, kind)]
        for part, kind in parts:
            part.metadata["slideshow"] = {"slide_type": kind}
            cells.append(part)

    for cell in (cell for cell in notebook.cells if cell.id not in SETUP):
        if cell.cell_type == "markdown":
            text = without_folds(NEIGHBOURS.sub("", cell.source))
            for part in re.split(r"^(?=## )", text, flags=re.M):
                if part.startswith("#"):
                    heading = part.splitlines()[0].lstrip("# ")
                if part.strip():
                    kind = "slide" if part.startswith("#") else "subslide"
                    add(v4.new_markdown_cell(part.strip()), kind)
        elif not tagged(cell, "exercise", "check"):
            shown = v4.new_code_cell(
                "", outputs=cell.outputs, metadata={"transient": {"remove_source": True}}
            )
            outputs, cell.outputs = cell.outputs, []
            for output in outputs:
                if "text/html" in output.get("data", {}):
                    output.data["text/html"] = on_a_slide(cell, output.data["text/html"])
            if not tagged(cell, "claim", "prediction"):
                add(cell, "subslide" if cells[-1].cell_type == "code" else "-")
            if outputs:
                large = any("text/html" in output.get("data", {}) for output in outputs)
                add(shown, "subslide" if large else "fragment")
    notebook.cells = cells
    return notebook


def on_a_slide(cell: NotebookNode, html: str) -> str:
    """What a cell shows, larger; explorers say that they are still, a verdict is a fragment."""
    html = IMAGE.sub(lambda m: f"{m[1]}{min(WIDEST, round(LARGER * int(m[2])))}", html)
    if tagged(cell, "claim"):
        return html.replace("</summary><div ", '</summary><div class="fragment" ')
    return html + STILL * bool(EXPLORER.search(cell.source))


def slides(notebook: NotebookNode, name: str, **reveal: str) -> str:
    """The page of a deck; `reveal` holds the script and the style of reveal.js."""
    return FILE_LINK.sub(r"\1", written("slides", as_slides(notebook), name, **reveal))
