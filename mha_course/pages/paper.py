"""A notebook on paper: hints and verdicts open, answers at the end, predictions to be ticked."""

import re
from collections import defaultdict

from nbformat import NotebookNode, v4

from mha_course.base.notebook import folds, heading, tagged, without_folds
from mha_course.pages.exporter import LINK, written

LAST = ("Solution", "Said it aloud")  # what is folded, and stands at the end
GUIDE_LINK = re.compile(r'<a href="\w+\.md\b[^>]*>(.*?)</a>', re.S)


def printed(notebook: NotebookNode, name: str) -> str:
    """The page of a notebook, in one file."""
    title, solutions = "", defaultdict[str, list[str]](list)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            title = heading(cell)[1] or title
            solutions[title] += folds(cell.source, *LAST)
            # After a blank line, else Markdown reads it as part of the hint's HTML.
            said = "\n*The answer stands at the end.*"
            cell.source = without_folds(cell.source, *LAST, instead=said)
            cell.source = cell.source.replace("<details>", "<details open>")
        elif tagged(cell, "claim"):
            for output in cell.outputs:
                html = output.data["text/html"]
                output.data["text/html"] = html.replace("<details ", "<details open ")
    last = "\n\n".join(
        "\n\n".join([f"### {title}: solution", *some]) for title, some in solutions.items() if some
    )
    if last:
        last = f"## Solutions\n\n{last}".replace("<details>", "<details open>")
        notebook.cells.append(v4.new_markdown_cell(last))
    return LINK.sub(r"\1.html", GUIDE_LINK.sub(r"\1", written("paper", notebook, name)))
