"""Second readings on a page: marked for a template, or opened for paper and slides."""

import re
from typing import Any

from mha_course.base.notebook import second_readings

SKIP = re.compile(r" Skip to \[[^\]]*\]\([^)]*\)\.$", re.M)  # for viewers that cannot fold


def fold(notebook: Any) -> Any:
    """The notebook with each second reading marked for a template."""
    for cells in second_readings(notebook.cells):
        cells[0].source = SKIP.sub("", cells[0].source)
        cells[0].metadata["fold"] = "begin"
        cells[-1].metadata["fold_ends"] = True
    return notebook


def unfold(notebook: Any, *, keep: bool = True) -> Any:
    """The notebook as a whole, for paper and slides; without second readings if not `keep`."""
    found = second_readings(notebook.cells)
    for cells in found:
        cells[0].source = SKIP.sub("", cells[0].source)
    folded = {cell.id for cells in found for cell in cells}
    notebook.cells = [cell for cell in notebook.cells if keep or cell.id not in folded]
    return notebook
