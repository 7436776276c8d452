"""The teacher's guide against the notebooks that it names, and against what the explorers show.

A heading or a number of minutes that has changed fails here.
"""

import re
from functools import cache

import numpy as np
import pytest
from traitlets.config import Config

import minutes
import notebooks
from mha_course import check
from mha_course.base.notebook import headings, open_thread, tagged
from mha_course.collection import cost
from mha_course.collection.questions import questions
from mha_course.explore import n06_heads, n13_models
from mha_course.pictures.panels import Heatmap

GUIDE = (notebooks.FOLDER / "TEACHING.md").read_text(encoding="utf-8")
BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}


def part(start: str, end: str) -> str:
    return GUIDE.split(f"\n{start}\n")[1].split(f"\n{end}\n")[0]


CHAPTER = part("## Notebook by notebook", "## From memory")
SECTIONS = {part[:2]: part for part in re.split(r"^### ", CHAPTER, flags=re.M)[1:]}


def test_every_section_it_names_is_there_and_folded_where_it_says_so():
    """What stands in italics notebook by notebook, and what the exercises tell one to reread."""
    named = re.findall(r"^\| `\w+` \| (\d\d), \*(.+?)\* \|$", GUIDE, re.M)
    for book, section in SECTIONS.items():
        folded = {*headings(BOOKS[book].cells)} - {*headings(open_thread(BOOKS[book].cells))}
        for name, mark in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)( \(fold\))?", section):
            assert bool(mark) == (name in folded), f"{book}: {name}"
            named.append((book, name))
    assert not [(book, name) for book, name in named if name not in headings(BOOKS[book].cells)]
    assert len(named) > 60 and [*SECTIONS] == [*BOOKS]


# --- what they will see -----------------------------------------------------------------------


@cache
def of_pictures() -> dict[str, str]:
    """Of three notebooks, what only a moving picture tells."""
    models = [n13_models.scene(model, 1).caption for model in n13_models.published()]
    means = [
        np.mean([np.max(p.values, -1) for p in n06_heads.scene(h).flat() if isinstance(p, Heatmap)])
        for h in (1, 12)
    ]
    gigabytes = cost.core_bytes(4096, 512, 8, "explicit") / 1e9
    return {
        "06": f"{means[0]:.2f} {means[1]:.2f}",
        "09": f"{gigabytes:.2f}",
        "13": re.sub(r"([\d.]+) kB", lambda m: f"{float(m[1]) / 1000:.2f} MB", " ".join(models)),
    }


def shown(book: str) -> str:
    """All that a notebook says and gives, and what is said of a guess made in it."""
    cells = BOOKS[book].cells
    given = [o.get("data", {}) for cell in cells for o in cell.get("outputs", ())]
    html = (re.sub(r'base64,[^"]*', "", data.get("text/html", "")) for data in given)
    choices = (c for q in questions().values() for c in q.choices.values())
    guesses = (c.says for c in choices if c.notebook == book)
    told = [*(c.source for c in cells), *(data.get("text/plain", "") for data in given)]
    return " ".join([of_pictures().get(book, ""), *told, *html, *guesses])


def rows(book: str) -> list[str]:
    """The right-hand column of what they will see."""
    head = r"what they will see \|\n\|---\|---\|\n((?:\|.*\|\n)+)"
    tables = re.findall(head, SECTIONS[book])
    return [line.split(" | ")[-1] for table in tables for line in table.splitlines()]


@pytest.mark.parametrize("book", BOOKS)
def test_what_they_will_see_stands_in_the_notebook(book):
    """Its numbers: there they are computed whenever the notebook runs."""
    text = shown(book)
    for row in rows(book):
        for number in re.findall(r"(?<![\w.])(?:\d[\d,]*\.?\d*|\.\d+)", row):
            said = re.escape(number.rstrip(".,"))
            assert re.search(rf"(?<![\w.])0?{said}(?!\d)", text), f"{number}: {row}"


def test_the_questions_to_be_answered_in_words_are_the_banks():
    assert notebooks.with_questions_in_words(GUIDE) == GUIDE == notebooks.with_the_exercises(GUIDE)
    row = r"^\| (\d\d) \| ([^|]+) \| [^|]+ \| [^|]+ \|$"
    rows = re.findall(row, GUIDE.split("### In words\n")[1].split("\n### ")[0], re.M)
    assert [row[0] for row in rows] == [book for book in BOOKS for _ in range(2)]


# --- a slip typed in class ----------------------------------------------------------------------


def test_the_slip_it_shows_is_named_at_once():
    """As the guide has it, in a real shell: an answer with this mistake gets its sentence."""
    from IPython.core.interactiveshell import InteractiveShell

    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.S | re.M)
    [block] = [block for block in blocks if "attention_scores.step" in block]
    before = len(check.attention_scores.slips)
    wrong = "check.attention_scores(lambda Q, K: Q @ K.mT / (Q.shape[-1] * Q.shape[1]))"
    shell = InteractiveShell.instance()
    try:
        for cell in (block, f"said = {wrong}"):
            assert shell.run_cell(cell, silent=True).success
        assert shell.user_ns["said"].slips == ("by_d_k_and_h",)
        assert "Which axis does the dot product sum over?" in str(shell.user_ns["said"])
    finally:
        check.attention_scores._known[before:] = []
        InteractiveShell.clear_instance()
    assert "scale" in check.attention_scores.sites


# --- the hub's configuration ------------------------------------------------------------------


def test_the_hubs_configuration_adds_and_overwrites_nothing():
    """Run over an admin's own, and over none: theirs stays, and traitlets can read it."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.S | re.M)
    [block] = [block for block in blocks if "load_roles" in block]
    theirs, none = Config(), Config()
    theirs.JupyterHub.services = [{"name": "theirs"}]
    theirs.JupyterHub.load_roles = [{"name": "theirs"}]
    theirs.Authenticator.allowed_users, theirs.Authenticator.admin_users = {"zoe"}, {"admin"}
    theirs.Spawner.args, theirs.Spawner.environment = ["--theirs"], {"THEIRS": "1"}
    for config in (theirs, none):
        exec(block, {"get_config": lambda config=config: config})

    def read(config: Config, part: str, name: str, default):
        value = config[part][name]
        return value.get_value(default) if hasattr(value, "get_value") else value

    for config, before in ((theirs, ["theirs"]), (none, [])):
        for name in ("services", "load_roles"):
            found = [entry["name"] for entry in read(config, "JupyterHub", name, [])]
            assert found == [*before, "idle-culler"]
        users = read(config, "Authenticator", "allowed_users", set())
        assert users - {"zoe"} == {"ada", "bob"} and ("zoe" in users) == bool(before)
        environment = read(config, "Spawner", "environment", {})
        assert environment["CUDA_VISIBLE_DEVICES"] == "" and ("THEIRS" in environment) == bool(
            before
        )
        arguments = read(config, "Spawner", "args", [])
        assert "--KernelManager.transport=ipc" in arguments
        assert ("--theirs" in arguments) == bool(before)


# --- the plans ---------------------------------------------------------------------------------

PLANS = {
    title: re.findall(r"^\| \d+ \| ((?:from memory, )?\d\d\b[^|]*) \| (\d+) \|", plan, re.M)
    for title, plan in re.findall(r"### ([^\n]*\d minutes)\n(.*?)(?=\n##)", GUIDE, re.S)
}
WHOLE_WAYS = [title for title in PLANS if "essions of" in title and "Two" not in title]


@pytest.mark.parametrize("title", PLANS)
def test_no_session_is_longer_than_its_plan_says(title):
    longest = int(re.search(r"(\d+) minutes$", title)[1])
    assert PLANS[title] and max(int(total) for _, total in PLANS[title]) <= longest


@pytest.mark.parametrize("title", WHOLE_WAYS)  # for 90, 60 and 45 minutes, and for everything
def test_a_plan_leaves_nothing_out_and_takes_nothing_twice(title):
    everything = title.startswith("Everything")
    cells = {
        b: n.cells if everything else open_thread(n.cells) for b, n in BOOKS.items() if b > "00"
    }
    parts = [part for books, _ in PLANS[title] for part in minutes.PART.findall(books)]
    taken = [cell.id for book, *at, _ in parts for cell in minutes.between(cells[book], *at)]
    assert taken == [cell.id for book in cells for cell in cells[book]] and len(WHOLE_WAYS) == 4


@pytest.mark.parametrize("title", [title for title in PLANS if "45" in title])
def test_each_session_holds_what_learners_do_and_fills_its_time(title):
    for books, total in PLANS[title]:
        parts = minutes.PART.findall(books)
        cells = [cell for part in parts for cell in minutes.part_of_a_plan(part, BOOKS)]
        assert all(bool(also) <= bool(minutes.fold(BOOKS[b], also)) for b, *_, also in parts), books
        does = any(tagged(cell, "exercise", "prediction") for cell in cells)
        assert (does or books.startswith("from memory")) and 35 <= int(total) <= 45, books


def test_what_is_asked_aloud_is_counted_at_a_cell_that_is_open():
    """Each table names an explorer's call or a heading, and a lesson takes longer for it."""
    for section in GUIDE.split("### "):
        for table in minutes.QUESTION_TABLE.findall(section):
            cells = open_thread(BOOKS[section[:2]].cells)
            more = minutes.in_class(cells, [table]) - minutes.in_class(cells, [])
            assert more == pytest.approx(minutes.ALOUD * table[1].count("\n")) and more > 1, table
    assert GUIDE.count("| ask before") == len(minutes.QUESTION_TABLE.findall(GUIDE))


def test_what_a_plan_may_drop_takes_as_long_as_it_says():
    asked = r"(\d\d) from\s\*([^*]+)\*\s?on \((\d+) minutes"
    found = re.findall(asked, part("## Plans", "## Predict, then look"))
    for book, heading, said in found:
        cells = minutes.between(open_thread(BOOKS[book].cells), heading, "")
        aloud = minutes.QUESTION_TABLE.findall(GUIDE.partition(f"### {book} ")[2].split("### ")[0])
        assert round(minutes.in_class(cells, aloud)) == int(said), heading
    assert found
