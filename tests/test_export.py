"""A page that moves: links lead to pages, and nothing is fetched unless a formula needs it."""

import re

import nbformat
import pytest

from mha_lesson.course.export import export


@pytest.mark.parametrize("formula", ["", " and $x^2$"])
def test_a_page_fetches_nothing_without_a_formula(tmp_path, formula):
    text = f"On to [the next](02_next.ipynb#top){formula}; 5 $ is a price."
    cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell("6 * 7")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    page = export(tmp_path / "a.ipynb").read_text(encoding="utf-8")
    assert 'href="02_next.html#top"' in page and ">42<" in re.sub(r"\s", "", page)
    assert bool(re.search(r"""(?:src|href)=["']https?://""", page)) == bool(formula)
    stored = nbformat.read(tmp_path / "a.ipynb", as_version=4)
    assert stored.cells[0].source == text
