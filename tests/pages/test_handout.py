"""Slides, printed pages and nbgrader's sources: complete, without solutions where they must be."""

import re
from datetime import date

import numpy as np
import pytest
from bs4 import BeautifulSoup
from nbformat import reads

import handout
import notebooks
from mha_course import check
from mha_course.base.notebook import stated_minutes, tagged
from mha_course.lab import command as lab
from mha_course.lab import practice
from mha_course.pages import worksheets
from mha_course.pages.slides import as_slides
from mha_course.practice import journal

LOADS = re.compile(r"""(?:src|href)=["']?https?://[^"'>]+\.(?:js|css)|@import|from 'http""")

each_notebook = pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: p.stem[:2])


def outputs(notebook, kind):
    """What its cells show, cell by cell."""
    return [
        [o.get("text") or o.get("data", {}).get(kind) for o in c.outputs]
        for c in notebook.cells
        if c.get("outputs")
    ]


@pytest.mark.one_in(4)
@each_notebook
def test_slides_hold_everything_but_answers_large_and_a_verdict_at_a_key_press(path):
    before, deck = notebooks.read(path), as_slides(notebooks.read(path))
    code = [c for c in before.cells if c.cell_type == "code" and c.id != "imports"]
    shown = [c for c in code if not tagged(c, "exercise", "check")]
    slides = [c for c in deck.cells if c.cell_type == "code"]
    told = [c.source for c in shown if not tagged(c, "claim", "prediction")]
    assert [c.source for c in slides if c.source] == told
    before.cells = [*shown, *(c for c in before.cells if c.cell_type == "markdown")]
    assert outputs(deck, "text/plain") == outputs(before, "text/plain")

    text = "\n".join(c.source for c in deck.cells if c.cell_type == "markdown")
    texts = [c.source for c in before.cells if c.cell_type == "markdown"]
    assert not any(c.source in text for c in before.cells if c.id == "imports-text")
    headings = re.findall(r"^##? .*", "\n".join(texts), re.M)
    assert [h for h in headings if h in text] == headings
    assert "<details" not in text and ".ipynb" not in text.split("\n\n")[-1]
    for cell in deck.cells:
        kind = cell.metadata.slideshow.slide_type
        if kind == "slide":
            assert cell.source.startswith("#")
            heading = cell.source.splitlines()[0].lstrip("# ")
        elif kind == "subslide":
            assert re.sub("<[^>]*>", "", cell.source).strip() == heading

    old, new = (str(outputs(n, "text/html")) for n in (before, deck))
    widths = [[*map(int, re.findall(r'<img [^>]*width="(\d+)"', html))] for html in (old, new)]
    assert widths[1] == [min(1180, round(1.5 * width)) for width in widths[0]]
    assert new.count('<div class="fragment"') == sum(tagged(c, "claim") for c in code)
    explorers = [c for c in code if c.source.lstrip().startswith("explore.")]
    assert new.count("stands still") >= len(explorers)


@pytest.fixture
def only(monkeypatch):
    """Of a notebook that is read, only the cells with one of these words are there."""

    def some(*words):
        def read(path):
            made = whole(path)
            made.cells = [c for c in made.cells if any(word in c.source for word in words)]
            return made

        whole = notebooks.read
        monkeypatch.setattr(notebooks, "read", read)

    return some


def test_a_deck_is_one_file_and_opens_second_readings_only_when_asked(monkeypatch, only):
    fetched = {"reveal_js": "/* R */", "reveal_css": "/* C */"}
    monkeypatch.setattr(handout, "reveal", lambda: fetched)
    monkeypatch.setattr("sys.argv", ["handout.py", "slides", "--all"])
    page = handout.slides(notebooks.paths("06")[0])
    assert "<script>/* R */</script>" in page and "<style>/* C */</style>" in page
    assert page.count("<section") == page.count("</section>") > 30
    assert not LOADS.search(page)
    links = [a["href"] for a in BeautifulSoup(page, "html.parser").find_all("a", href=True)]
    assert all(link.startswith(("#", "https://")) for link in links)
    folded = "Is h a knob to turn later?"
    assert ".ipynb" not in page and f"→ notebook 6, <em>{folded}" in page and f">{folded}<" in page
    assert '("toggle", fit, true)' in page
    assert page.count('display="block"') == 2 and "$$" not in page and "$W^O$" not in page
    only("## ")
    monkeypatch.setattr("sys.argv", ["handout.py", "slides"])
    assert f">{folded}<" not in handout.slides(notebooks.paths("06")[0])


def test_a_printed_page_is_one_file_with_everything_open_but_the_predictions():
    path = notebooks.paths("06")[0]
    page = handout.printed_page(path)
    cells = notebooks.read(path).cells
    folded = sum(c.source.count("<details") + tagged(c, "claim") for c in cells)
    boxes = [c.outputs[0].data["text/html"] for c in cells if tagged(c, "prediction")]
    assert page.count("<details open") == folded > 0
    soup = BeautifulSoup(page, "html.parser")
    folds = [d for d in soup.find_all("details") if d.summary.text.startswith("Solution")]
    [end] = [h for h in soup.find_all("h2") if h.text.startswith("Solutions")]
    assert len(folds) == len(notebooks.solutions(notebooks.read(path))) > 0
    assert all(end in fold.find_all_previous("h2") for fold in folds)
    headings = [fold.find_previous(["h2", "h3"]).text for fold in folds]
    assert all(heading.startswith("Exercise") for heading in headings)
    names = [part["id"] for part in soup.find_all(id=True)]
    assert len(names) == len(set(names))
    numbers = soup.find_all("summary", string="Its numbers")  # of pictures, folded on a page too
    assert page.count("<details") == folded + "".join(boxes).count("<details") + len(numbers)
    assert not LOADS.search(page)
    assert "07_training_the_heads.html" in page
    assert page.count('display="block"') == 2 and "$$" not in page and "$W^O$" not in page


def test_printed_pages_lead_to_one_another_and_to_no_file_else(only):
    only(".ipynb", ".md", "Solution")
    page = BeautifulSoup(handout.printed_page(notebooks.paths("09")[0]), "html.parser")
    links = [a["href"] for a in page.find_all("a", href=True)]
    files = [link for link in links if not link.startswith(("#", "https://"))]
    made = {f"{path.stem}.html" for path in notebooks.paths()}
    assert {file.partition("#")[0] for file in files} <= made and len(files) > 2
    assert "CLAIMS.md" in page.get_text()
    assert "The answer stands at the end." in [em.text for em in page.find_all("em")]


@each_notebook
def test_learners_get_no_answer_to_a_guess(path, monkeypatch):
    plain = reads(handout.for_learners(path), as_version=4)
    assert not [c for c in plain.cells if tagged(c, "prediction", "claim") and c.outputs]
    assert [c.source for c in plain.cells] == [c.source for c in notebooks.read(path).cells]
    monkeypatch.setattr(handout.sys, "argv", ["handout", "learners", "--no-solutions"])
    bare = reads(handout.for_learners(path), as_version=4)
    assert "<summary>Solution" not in str(bare) and len(bare.cells) == len(plain.cells)


def test_in_what_learners_get_progress_is_kept_and_the_lab_changes_nothing(tmp_path, monkeypatch):
    """As in a clone of it on a hub: the folder is the working copy itself."""
    monkeypatch.setattr(handout, "BUILD", tmp_path / "build")
    monkeypatch.setattr(handout.sys, "argv", ["handout", "learners"])
    handout.main()
    here = tmp_path / "build/learners"
    given = {path: path.read_bytes() for path in here.iterdir()}
    assert given[here / journal.COPY] == b"{}\n"  # the same in each version: no update conflicts
    monkeypatch.chdir(here)
    monkeypatch.setattr(journal, "_state", {})
    journal.remember(check.Report("split_heads", False))
    assert check.progress().kept
    practice.main([])
    new = {path.name for path in here.iterdir()} - {path.name for path in given}
    assert {journal.FILE, journal.LOG} < new and "my_notebooks" not in new
    assert [name for name in new if name.startswith("practice_")]
    assert lab.sync(notebooks.FOLDER, lab.working_copy(), date.today()) == []
    assert [p.name for p in given if p.read_bytes() != given[p]] == [journal.COPY]


@pytest.mark.one_in(4)
@each_notebook
def test_graders_sources_hold_the_solution_its_minutes_and_what_learners_get_does_not(path):
    """Without what the marks enclose a stub is the notebook's; without marks, the solution."""
    before, answers = notebooks.read(path), notebooks.solutions(notebooks.read(path))
    stubs = {cell.id: cell.source for cell in before.cells if cell.id in answers}
    sources = [reads(make(path), as_version=4) for make in (handout.nbgrader, handout.otter)]
    for source, mark in zip(sources, ("###", "#"), strict=True):
        cells = {cell.id: cell.source for cell in source.cells if cell.id in answers}
        begin, end = f" *{mark} BEGIN SOLUTION\n", f"\n *{mark} END SOLUTION"
        for key, code in cells.items():
            cleared = re.sub(f"{begin}.*?{end}", "    ...", code, flags=re.S)
            assert cleared.split() == stubs[key].split()
            assert re.sub(f"{begin}|{end}", "", code) == answers[key]
        assert cells.keys() == answers.keys() and not notebooks.solutions(source)
        tests = [cell for cell in source.cells if tagged(cell, "check")]
        assert all(cell.source.endswith("assert report.passed, report") for cell in tests)
        assert len(tests) == len(answers)
    marked = [c.metadata.nbgrader for c in sources[0].cells if "nbgrader" in c.metadata]
    points = [mark.points for mark in marked if mark.grade]
    text = "\n".join(cell.source for cell in before.cells if cell.cell_type == "markdown")
    counted = re.sub(r"^\*(?:Trial|Yours), .*", "", text, flags=re.M)
    assert sum(points) == stated_minutes(counted)
    assert all(mark.locked == mark.grade != mark.solution for mark in marked)
    raw = [cell.source for cell in sources[1].cells if cell.cell_type == "raw"]
    assert [int(re.search(r"points: (\d+)", r)[1]) for r in raw if "points" in r] == points
    assert len(raw) == 1 + 6 * len(points)


# --- worksheets -------------------------------------------------------------------------------


def numbers(table):
    return np.array([[float(x.replace("−", "-").replace(",", "")) for x in r] for r in table.rows])


def test_worksheets_ask_for_what_can_be_computed_and_their_key_has_it(tmp_path):
    """The printed tables alone give the key's numbers."""
    for seed in range(12):
        made = {s.title[:2]: {t.name: t for t in s.tables} for s in worksheets.sheets(seed)}
        assert [*made] == [path.stem[:2] for path in notebooks.paths()]
        assert "NaN" not in str(made) and "∞" not in str(made)
        x = {
            book: {
                name: t.rows if "×" in str(t.rows) or book in ("06", "07", "12") else numbers(t)
                for name, t in tables.items()
            }
            for book, tables in made.items()
        }
        expected = {
            ("00", "out"): x["00"]["weights"] @ x["00"]["V"],
            ("01", "scores"): x["01"]["Q"] @ x["01"]["K"].T / 2,
            ("02", "keys"): x["02"]["x"] @ x["02"]["W^K"].T,
            ("05", "both"): np.hstack((x["05"]["head 0"], x["05"]["head 1"]))
            @ x["05"]["rows of W^O"].T,
            ("08", "previous token"): x["08"]["weights"].diagonal(-1).mean(),
            ("10", "dot products"): x["10"]["turned"] @ x["10"]["turned"].T,
            ("11", "bytes"): 512 * x["11"]["keys"],
        }
        for (book, name), value in expected.items():
            np.testing.assert_allclose(x[book][name], np.atleast_2d(value), atol=1e-4)
        exact = np.exp(x["01"]["scores"])
        exact /= exact.sum(-1, keepdims=True)
        np.testing.assert_allclose(x["01"]["weights"], exact, atol=0.0051)
        halved = np.exp(2 * np.log(x["14"]["e to the score"]))
        np.testing.assert_allclose(
            x["14"]["at temperature 1/2"], halved / halved.sum(), atol=0.0051
        )
    worksheets.main(["--out", str(tmp_path), "--seed", "3"])
    sheet, key = (
        BeautifulSoup((tmp_path / f"{name}.html").read_text("utf-8"), "html.parser")
        for name in ("worksheets", "key")
    )
    boxes = [[td.text for td in page.select(".wanted td")] for page in (sheet, key)]
    assert not any(boxes[0]) and all(boxes[1]) and len(boxes[0]) == len(boxes[1]) > 150
    assert not sheet.select(".answer") and len(key.select(".answer")) > 30
    assert len(sheet.select("section")) == len(key.select("section")) == len(notebooks.paths())
