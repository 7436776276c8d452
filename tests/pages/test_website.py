"""The course as a site: every link leads somewhere, nothing is fetched, what is folded stays so."""

import json
import re
import subprocess
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from nbformat import v4

import notebooks
import sample_site
import website
from mha_course import explore
from mha_course.explore import n07_training
from mha_course.pages.formulas import typed, typeset
from mha_course.pictures import live
from mha_lesson.pretrained import WeightsMissing
from sample_site import CHOSEN

FORMULA = re.compile(r"\$\$.+?\$\$|\$.+?\$")


@pytest.fixture(scope="module")
def site(shared_folder):
    return shared_folder("site", sample_site.build)


@pytest.fixture(scope="module")
def soups(site):
    return {p.name: BeautifulSoup(p.read_text("utf-8"), "html.parser") for p in site.glob("*.html")}


def test_there_is_a_page_for_each_notebook_and_text(soups):
    texts = [f"{name}.html" for name in website.TEXTS]
    assert sorted(soups) == sorted(["index.html", *texts, *(f"{p.stem}.html" for p in CHOSEN)])


def test_every_link_leads_to_a_place_that_is_there(soups):
    followed = 0
    places = {name: {part["id"] for part in soup.find_all(id=True)} for name, soup in soups.items()}
    for name, soup in soups.items():
        for link in soup.find_all("a", href=True):
            if "://" in link["href"]:
                continue
            page, _, place = link["href"].partition("#")
            assert not page or page in soups, link
            if place:
                assert place in places[page or name], f"{name}: {link}"
            followed += 1
    assert followed > 50


def test_a_heading_is_its_own_link_and_has_a_plain_name(soups):
    headings = [h for soup in soups.values() for h in soup.select("main :is(h1, h2, h3)[id]")]
    assert len(headings) > 40
    for heading in headings:
        assert re.fullmatch(r"[\w-]+", heading["id"]) and "c2b7" not in heading["id"]
        if not heading.find_parent("summary"):  # who listens hears the heading, and nothing else
            [link] = heading.find_all(recursive=False)
            assert heading.contents == [link] and link["href"] == f"#{heading['id']}"
            assert not link.has_attr("aria-label")


def test_nothing_is_fetched_from_elsewhere(site, soups):
    for soup in soups.values():
        for tag in soup.find_all(src=True) + soup.find_all("link"):
            said = tag.get("src") or tag["href"]
            assert said.startswith("data:") or (site / said).exists(), said
    for file in (*site.glob("*.css"), *site.glob("page.js")):
        assert "//" not in re.sub(r"^//.*| // .*", "", file.read_text("utf-8"), flags=re.M)


def test_every_page_says_what_it_is_and_no_table_has_an_empty_header(soups):
    texts = [s.find("meta", attrs={"name": "description"})["content"] for s in soups.values()]
    assert len({*texts}) == len(soups) and all(50 <= len(text) <= 160 for text in texts), texts
    assert all(th.get_text(strip=True) for soup in soups.values() for th in soup.select("main th"))


@pytest.mark.parametrize("said", ["git@github.com:a/b.git", "https://github.com/a/b", ""])
def test_a_page_opens_elsewhere_where_its_repository_has_an_address(monkeypatch, tmp_path, said):
    def git(*_, **__):
        return subprocess.CompletedProcess([], 0, said + "\n")

    monkeypatch.setattr(website.subprocess, "run", git)
    book, name = notebooks.read(CHOSEN[0]), CHOSEN[0].stem
    book.cells = book.cells[:3]
    website.write_pages(tmp_path, {name: ("a title", book)})
    text = (tmp_path / f"{name}.html").read_text("utf-8")
    links = re.findall(r'href="(https://(?:colab|mybinder)[^"]*)"', text)
    assert [len(links), all("a/b" in link for link in links)] == [2 * bool(said), True]


def test_no_page_is_large(site):
    assert max(path.stat().st_size for path in site.iterdir()) < 2_000_000


def test_an_exercise_says_where_to_type_and_keeps_its_answers_folded(soups):
    for path in CHOSEN:
        main, notebook = soups[f"{path.stem}.html"].main, notebooks.read(path)
        answers = notebooks.solutions(notebook)
        assert len(main.select(".note a[href^='index.html#']")) == len(answers)
        folded = [details.get_text() for details in main.select("details:not([open])")]
        for stub, answer in answers.items():
            assert main.find(id=f"cell-{stub}")
            assert any(answer.strip() in text for text in folded)
        assert "attempted" not in " ".join(o.get_text() for o in main.select("[role=status]"))


def test_a_notebook_s_page_says_how_to_run_it(soups):
    for path in CHOSEN:
        [note] = soups[f"{path.stem}.html"].select("main > section:first-of-type .run")
        assert note.a["href"] == "index.html#begin"


@pytest.mark.parametrize("weights", [True, False])
def test_what_a_learner_s_class_computes_says_where_it_runs(tmp_path, monkeypatch, weights):
    monkeypatch.setattr(website, "has_weights", lambda: weights)
    [path] = notebooks.paths("06")
    book = notebooks.read(path)
    said = "goes into a published model here"
    waits = [cell for cell in book.cells if said in str(cell.get("outputs"))]
    book.cells = [book.cells[0], *waits]
    website.write_pages(tmp_path, {path.stem: ("a title", book)})
    page = BeautifulSoup((tmp_path / f"{path.stem}.html").read_text("utf-8"), "html.parser")
    assert waits and all(page.select(f"#cell-{cell.id} .note a[href]") for cell in waits)
    assert len(page.select(f"details:not([open]) > #{website.OWN_CLASS}")) == weights


@pytest.mark.parametrize("name", ["pictures/*.js", "pages/templates/*.css"])
def test_type_has_the_sizes_of_the_scale(name):
    for path in Path(explore.__file__).parents[1].glob(name):
        for size in re.findall(r"font-size: ?([^;}]+)", path.read_text("utf-8")):
            assert "var(--mha-" in size or re.fullmatch(r"[\d.]+em", size), (path.name, size)


def test_words_for_a_kernel_are_left_out_of_a_page():
    [path] = notebooks.paths("00")
    cells = website.prepare(notebooks.read(path)).cells
    assert not any("Shift + Enter" in cell.source for cell in cells)


def test_a_site_without_the_published_weights_says_so(capsys):
    model = Future()
    model.set_exception(WeightsMissing("get them"))
    assert website.told(model, "a sentence") is website.told(None, "a prompt") is None
    assert capsys.readouterr().out == "Nobody can type a sentence on this site: get them\n"


def test_what_is_hidden_in_the_notebook_is_folded_on_the_page(soups):
    for path in CHOSEN:
        for cell in notebooks.read(path).cells:
            if cell.metadata.get("jupyter", {}).get("source_hidden"):
                made = soups[f"{path.stem}.html"].find(id=f"cell-{cell.id}")
                assert made.select("details:not([open]) .highlight")
                assert bool(made.select(".output")) == bool(cell.outputs)


def test_what_can_be_found_is_there_and_holds_no_answer(site, soups):
    text = (site / "search.js").read_text("utf-8")
    index = json.loads(text.removeprefix("window.SECTIONS = ").rstrip(";\n"))
    for section in index:
        assert soups[f"{section['page']}.html"].find(id=section["id"]), section
    assert any("saturat" in s["title"].lower() for s in index if s["page"].startswith("01"))
    everything = " ".join(s["text"] for s in index)
    for path in CHOSEN:
        for answer in notebooks.solutions(notebooks.read(path)).values():
            assert answer.splitlines()[-1].strip() not in everything


def test_every_explorer_moves_in_its_page(site, soups):
    for path in CHOSEN:
        main = soups[f"{path.stem}.html"].main
        places = main.select("[id^=explore-]")
        assert len(places) == 2
        for place in places:
            assert f'show("{place["id"]}"' in (site / f"{place['id']}.js").read_text("utf-8")
        assert (site / "explore.js").exists() and not main.find_all("script", src=True)


@pytest.mark.long
def test_every_explorer_of_the_course_can_be_made_for_its_page(monkeypatch):
    few_steps = partial(n07_training.two_sides_runs, seeds=[0], n_steps=10, snapshot_every=10)
    runs = [run for h in n07_training.HEADS for run in few_steps(h)]
    monkeypatch.setattr(n07_training, "_trained", lambda: runs)
    monkeypatch.setattr(live, "states_script", lambda made, _: made.first.alt)
    cells = [cell for path in notebooks.paths() for cell in notebooks.read(path).cells]
    names = {website.explorer_id(cell) for cell in cells} - {""}
    assert len(names) > len(explore.__all__) and all(map(website.explorer_script, names))


@pytest.mark.long  # the site of two notebooks has most of them
def test_every_formula_of_the_course_is_set_without_a_script():
    exporter = typeset(HTMLExporter(template_name="basic"))
    found = []
    for path in notebooks.paths():
        texts = [c for c in notebooks.read(path).cells if c.cell_type == "markdown"]
        page, _ = exporter.from_notebook_node(v4.new_notebook(cells=texts))
        formulas = BeautifulSoup(page, "html.parser").find_all("math")
        assert len(formulas) == len(FORMULA.findall("\n".join(c.source for c in texts))), path
        found += [formula.get_text() for formula in formulas]
        found += [formula["alttext"] for formula in formulas]  # read aloud, and looked for
    assert len(found) > 600
    assert not any(re.search(r"[\\&${}]", said) for said in found), found


def test_a_formula_is_read_aloud_without_latex():
    assert typed(r"\frac{Q K^T}{\sqrt{d_k}}") == "Q K^T / √d_k"
    assert typed(r"\text{base}^{-2i/d_\text{model}} + H_{h-1}") == "base^(-2i/d_model) + H_(h-1)"
    assert typed(r"\sum_i h_{kv}\,e^{-\infty}, \dots") == "∑_i h_kv e^(-∞), …"


def test_a_symbol_is_found_as_one_types_it(site):
    index = (site / "search.js").read_text(encoding="utf-8")
    for words in ("(h, T, d_k)", "e^x", "d_model", "softmax(Q K^T / √d_k) V", "√d_k"):
        assert words in index, words


def test_a_prediction_is_remembered_and_its_answers_are_not_found(site, soups):
    asking = {name for name, soup in soups.items() if soup.select(".mha-guess")}
    assert asking == {name for name, soup in soups.items() if "mhaGuesses" in str(soup)}
    assert "01_scaled_dot_product_attention.html" in asking
    found = (site / "search.js").read_text("utf-8")
    assert "Not so." not in found and "Right." not in found
    assert not any("running notebook your guesses" in soup.text for soup in soups.values())
