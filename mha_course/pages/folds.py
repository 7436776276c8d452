"""Second readings: sections that are folded when a notebook, or a page of it, is opened.

Such a section's heading is tagged; the section ends at the next heading of its level or above.
"""

import re
from typing import Any

TAG = "second-reading"
HEADING = re.compile(r"(#+) ")
SKIP = re.compile(r" Skip to \[[^\]]*\]\([^)]*\)\.$", re.M)  # for viewers that cannot fold


def folds(notebook: Any) -> list[list[Any]]:
    """The cells of every second reading, its heading first."""
    found: list[list[Any]] = []
    level = 0  # of the second reading that is open; 0 where none is
    for cell in notebook.cells:
        heading = HEADING.match(cell.source) if cell.cell_type == "markdown" else None
        if heading and len(heading[1]) <= (level or 6):
            level = len(heading[1]) if TAG in cell.metadata.get("tags", ()) else 0
            found += [[]] if level else []
        if level:
            found[-1].append(cell)
    return found


def fold(notebook: Any) -> Any:
    """The notebook with each second reading marked for a template."""
    for cells in folds(notebook):
        cells[0].source = SKIP.sub("", cells[0].source)
        cells[0].metadata["fold"] = "begin"
        cells[-1].metadata["fold_ends"] = True
    return notebook


def unfold(notebook: Any, *, keep: bool = True) -> Any:
    """The notebook as a whole, for paper and slides; without second readings if not `keep`."""
    found = folds(notebook)
    for cells in found:
        cells[0].source = SKIP.sub("", cells[0].source)
    folded = {cell.id for cells in found for cell in cells}
    notebook.cells = [cell for cell in notebook.cells if keep or cell.id not in folded]
    return notebook
