"""A page that moves: links lead to pages, formulas are set, and nothing is fetched."""

import re

import nbformat
import pytest
from nbconvert import HTMLExporter

from mha_course.pages.export import export
from mha_course.pages.formulas import typeset


def test_a_page_fetches_nothing(tmp_path):
    text = "On to [the next](02_next.ipynb#top): $x^2$; 5 $ is a price.\n\n$$a < b$$\n\n`$HOME`"
    cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell("6 * 7")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    page = export(tmp_path / "a.ipynb").read_text(encoding="utf-8")
    assert 'href="02_next.html#top"' in page and ">42<" in re.sub(r"\s", "", page)
    assert not re.search(r"""(?:src|href)=["']https?://|import\(""", page)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in page and "5 $ is" in page and "$HOME" in page
    assert page.count("<math ") == 2 and 'display="block"' in page
    stored = nbformat.read(tmp_path / "a.ipynb", as_version=4)
    assert stored.cells[0].source == text


def test_a_page_has_the_script_of_its_pictures_once(tmp_path):
    picture = (
        "from IPython.display import HTML\nfrom mha_course.pictures import live\n"
        "HTML(f'<script>{live.script()}</script><p>drawn</p>')"
    )
    cells = [nbformat.v4.new_code_cell(picture) for _ in range(2)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    page = export(tmp_path / "a.ipynb").read_text(encoding="utf-8")
    assert page.count("<p>drawn</p>") == 2 and page.count("window.mhaShow ??=") == 1


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"a & b", "<mi>&amp;</mi>"),
        (r"x^", "<code>x^</code>"),  # not to be converted: its source
        (r"\begin{matrix} <", r"<code>\begin{matrix} &lt;</code>"),
        (r"\text{softmax}", "<mtext>softmax</mtext>"),  # a word is read as a word
    ],
)
def test_a_formula_is_set_or_keeps_its_source(latex, shown):
    cell = nbformat.v4.new_markdown_cell(f"So $${latex}$$ it is")
    page, _ = typeset(HTMLExporter(template_name="basic")).from_notebook_node(
        nbformat.v4.new_notebook(cells=[cell])
    )
    assert shown in page and "$" not in page


def test_a_comma_stays_with_its_formula():
    cell = nbformat.v4.new_markdown_cell("Of $x$ and $y$, or ($z$): $$w$$")
    page, _ = typeset(HTMLExporter(template_name="basic")).from_notebook_node(
        nbformat.v4.new_notebook(cells=[cell])
    )
    whole = re.findall(
        r'<span style="white-space:nowrap"><math alttext="(.)".*?</math>(\S+)</span>', page
    )
    assert whole == [("y", ","), ("z", "):")]
