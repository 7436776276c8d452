"""A notebook on paper: hints and verdicts open, solutions at the end, predictions to be ticked."""

import re

from nbformat import NotebookNode, v4

from mha_course.base.stored import tagged
from mha_course.pages.exporter import LINK, written

SOLUTION = re.compile(r"<details>\s*<summary>Solution.*?</details>", re.S)
GUIDE_LINK = re.compile(r'<a href="\w+\.md\b[^>]*>(.*?)</a>', re.S)


def printed(notebook: NotebookNode, name: str) -> str:
    """The page of a notebook, in one file."""
    heading, solutions = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if cell.source.startswith("#"):
                heading = cell.source.splitlines()[0].lstrip("# ")
            solutions += [f"### {heading}: solution\n\n{s}" for s in SOLUTION.findall(cell.source)]
            # After a blank line, else Markdown reads it as part of the hint's HTML.
            cell.source = SOLUTION.sub("\n*The solution stands at the end.*", cell.source)
            cell.source = cell.source.replace("<details>", "<details open>")
        elif tagged(cell, "claim"):
            for output in cell.outputs:
                html = output.data["text/html"]
                output.data["text/html"] = html.replace("<details ", "<details open ")
    if solutions:
        last = "\n\n".join(["## Solutions", *solutions]).replace("<details>", "<details open>")
        notebook.cells.append(v4.new_markdown_cell(last))
    return LINK.sub(r"\1.html", GUIDE_LINK.sub(r"\1", written("paper", notebook, name)))
