"""Notebooks as pages to hand out: moving pages, paper, slides, the site.

For teachers. It stands on `explore` and `cells`.

`exporter` runs a notebook and writes it as HTML for all kinds of pages, each with its template in
`templates/`; `folds`: second readings, `formulas`: LaTeX as MathML. `worksheets` are no notebooks:
numbers to compute on paper; its sheets are those of a test and of a lesson, too.
"""
