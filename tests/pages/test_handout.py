"""Slides, printed pages and nbgrader's sources: complete, without solutions where they must be."""

import re
from datetime import date

import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from nbformat import reads

import handout
import lessons
import notebooks
from mha_course import check
from mha_course.base.notebook import stated_minutes, tagged
from mha_course.lab import command as lab
from mha_course.lab import practice
from mha_course.pages import worksheets
from mha_course.pages.folds import unfold
from mha_course.pages.slides import as_slides
from mha_course.practice import journal

LOADS = re.compile(r"""(?:src|href)=["']?https?://[^"'>]+\.(?:js|css)|@import|from 'http""")

each_notebook = pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: p.stem[:2])


@each_notebook
def test_a_section_is_one_slide_with_one_thing_to_see_and_few_words(path):
    before = unfold(notebooks.read(path), keep=False)
    names = [cell.source.splitlines()[0] for cell in before.cells if cell.source[:1] == "#"]
    asked = sum(tagged(cell, "prediction") for cell in before.cells)
    slides: list[list] = []
    for cell in as_slides(unfold(notebooks.read(path), keep=False)).cells:
        if cell.metadata.slideshow.slide_type == "slide":
            slides.append([])
        slides[-1].append(cell)
    titles = [slide[0].source.splitlines()[0] for slide in slides]
    assert [*dict.fromkeys(titles)] == names and len(titles) == len(names) + asked <= 20
    for text, *seen in slides:
        assert sum(bool(cell.get("outputs")) for cell in seen) <= 1
        assert str(seen).count("<figure") <= 1 and "Solution" not in str(seen)
        assert not re.search(r"\b(?:folded|below)\b|\.ipynb|<details", text.source), text.source
        assert len(text.source.split()) < 130 and str(seen).count("fragment") <= 2
        lines = [c.source.count("\n") for c in seen if "<figure" not in str(c.outputs)]
        assert max(lines, default=0) < 4 or "..." in str(seen)  # an exercise's own
    boxes = [i for i, slide in enumerate(slides) if 'class="mha-guess' in str(slide)]
    assert len(boxes) == asked and all(titles[i] == titles[i + 1] for i in boxes)


def test_a_picture_is_large_and_a_verdict_comes_at_a_key_press():
    [path] = notebooks.paths("01")
    old, new = notebooks.read(path), as_slides(notebooks.read(path))
    widths = [[*map(int, re.findall(r'<img [^>]*width="(\d+)"', str(n)))] for n in (old, new)]
    assert widths[1] and {*widths[1]} <= {min(1180, round(1.5 * width)) for width in widths[0]}
    assert '<div class="fragment"' in str(new) and '"slide_type": "fragment"' in nbformat.writes(
        new
    )


def test_each_lesson_has_ten_minutes_or_says_what_to_drop_for_them():
    guide = (notebooks.FOLDER / "TEACHING.md").read_text("utf-8")
    for title, before, made in lessons.plans(guide):
        assert before in re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", guide) and "|" not in before
        longest = int(re.search(r"(\d+) minutes$", title)[1])
        for one in made:
            assert one.spare + sum(gives for _, gives in one.drops) >= lessons.SPARE, one
            assert bool(one.drops) == (one.spare < lessons.SPARE) and one.spare >= 0
            starts = [at for at, _ in one.clock]
            assert starts == sorted(starts) and starts[0] == 5 and one.able and one.question
            assert one.parts.count(" up to ") == sum("comes later" in able for able in one.able)
            last = one.clock[-1][1].minutes
            assert starts[-1] + last <= longest - one.spare + 1
            assert {at for at, _ in one.asks} <= {*starts}
            rows = [(at, name) for *_, parts in one.rows for at, name in parts]
            assert rows == [(at, section.name) for at, section in one.clock]
            begins = {section.book or section.name: at for at, section in reversed(one.clock)}
            plan = guide.split(f"### {title}\n")[1].split("\n##")[0]
            line = re.search(rf"^\| {one.number} \|.*", plan, re.M)[0].split(" | ")[3]
            for what, at in re.findall(r"(\d\d|break) at (\d+)", line):  # in fives
                assert -3 <= int(at) - begins[what.replace("break", "Break")] < 5, (line, begins)
    assert [page for _, page in lessons.written("### One session of 90 minutes\n\n##")]


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
    assert page.count("<section") == page.count("</section>") > 20
    assert not LOADS.search(page)
    links = [a["href"] for a in BeautifulSoup(page, "html.parser").find_all("a", href=True)]
    assert all(link.startswith(("#", "https://")) for link in links)
    folded = "Is h a knob to turn later?"
    assert ".ipynb" not in page and f">{folded}<" in page
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
    assert f"#{end['id']} {{ break-before: page; }}" in page  # the last sheets can be kept back
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


def test_what_lies_there_from_before_is_made_anew(tmp_path, monkeypatch, capsys):
    """It may hold what is not to be given out now: solutions."""
    monkeypatch.setattr(handout, "BUILD", tmp_path / "build")
    for words in (["02-03"], ["3", "--no-solutions"]):
        monkeypatch.setattr(handout.sys, "argv", ["handout", "learners", *words])
        handout.main()
    made = [*(tmp_path / "build/learners").glob("*.ipynb")]
    assert {path.name[:2] for path in made} == {"02", "03"}
    assert not any("<summary>Solution" in path.read_text("utf-8") for path in made)
    told = capsys.readouterr().out
    assert "From before, and made anew, too: 02." in told
    assert told.count("With solutions: --no-solutions leaves them out.") == 1


REFUSED = "learners --nosolutions; print --no-solutions; otter 77; learners x; lessons 3; all; "


@pytest.mark.parametrize("words", REFUSED.split(";"))
def test_what_is_not_understood_is_refused(words, tmp_path, monkeypatch):
    monkeypatch.setattr(handout, "BUILD", tmp_path)
    monkeypatch.setattr(handout.sys, "argv", ["handout", *words.split()])
    with pytest.raises(SystemExit, match=r"Got: |takes a list"):
        handout.main()
    assert not [*tmp_path.iterdir()]


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
        assert made["04"]["blocked"].rows[0] == [*"·××××"]
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
    assert len({str([*worksheets.sheets(seed)][1].tables) for seed in range(4)}) == 4
    worksheets.main(["--out", str(tmp_path), "--seed", "3"])
    sheet, key = (
        BeautifulSoup((tmp_path / f"{name}.html").read_text("utf-8"), "html.parser")
        for name in ("worksheets", "key")
    )
    boxes = [[td.text for td in page.select(".wanted td")] for page in (sheet, key)]
    assert not any(boxes[0]) and all(boxes[1]) and len(boxes[0]) == len(boxes[1]) > 150
    assert not sheet.select(".answer") and len(key.select(".answer")) > 30
    assert len(sheet.select("section")) == len(key.select("section")) == len(notebooks.paths())
