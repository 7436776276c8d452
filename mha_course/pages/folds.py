"""Second readings: sections that are folded when a notebook, or a page of it, is opened.

Such a section's heading is tagged; the section ends at the next heading of its level or above.
"""

import re
from typing import Any

TAG = "second-reading"
HEADING = re.compile(r"(#+) ")
SKIP = re.compile(r" Skip to \[[^\]]*\]\([^)]*\)\.$", re.M)  # for viewers that cannot fold
# What a page's template says of each cell, once `fold` has marked them.
BLOCK = """
{%- block any_cell -%}
{%- if cell.metadata.fold == "begin" -%}
<details class="second-reading"><summary>{{ cell.source | markdown2html }}</summary>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- if cell.metadata.fold_ends -%}</details>{%- endif -%}
{%- endblock -%}
"""
STYLE = """
.second-reading { border: 1px solid #8886; border-radius: 6px; padding: 0 .8rem; margin: 1.2em 0; }
.second-reading[open] { padding-bottom: .6rem; }
.second-reading > summary { cursor: pointer; padding: .6rem 0; }
.second-reading > summary > * { margin: 0 0 .2em; }
.second-reading > summary > h2 { display: inline; font-size: 1.15rem; }
@media print {
  .second-reading { border: 0; padding: 0; }
  .second-reading > summary { break-inside: avoid; break-after: avoid; }
}
"""
# For browsers that do not do so themselves; and on paper nothing is folded.
SCRIPT = """<script>
(() => {
  const open = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = place && place.closest("details:not([open])");
    if (!folded) return;
    folded.open = true;
    place.scrollIntoView();
  };
  addEventListener("hashchange", open);
  addEventListener("click", (e) => { if (e.target.closest('a[href^="#"]')) setTimeout(open); });
  addEventListener("DOMContentLoaded", open);
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details.second-reading").forEach((d) => { d.open = true; });
  });
})();
</script>"""


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
    """The notebook with each second reading marked for the template `BLOCK`."""
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
