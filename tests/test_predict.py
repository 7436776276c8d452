"""Predictions: what is asked, where each choice leads, and which one is right, by another route.

The notebooks compute the right choices from the explorers' own pictures; here they are computed
again, from formulas in float64 or from the modules below the explorers.
"""

import math
import re
from html import escape

import numpy as np
import pytest
from nbconvert.filters.markdown_mistune import markdown2html_mistune

import notebooks
from mha_lesson.course import predict
from mha_lesson.explore import n01_scaling

BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
QUESTIONS = predict.questions()
FOLD = re.compile(r'<details name="(\w+)"><summary>(.*?)</summary>.*?<strong>(.*?)</strong>')


def asked() -> dict[str, list[str]]:
    """Notebook -> the names of its questions, as its stored output has them, in order."""
    found = {}
    for book, notebook in BOOKS.items():
        names = [name for html in boxes(notebook) for name, _, _ in FOLD.findall(html)]
        found[book] = list(dict.fromkeys(names))
    return found


def boxes(notebook) -> list[str]:
    cells = [c for c in notebook.cells if "prediction" in c.metadata.get("tags", ())]
    return [c.outputs[0].data["text/html"] for c in cells]


# --- which choice is right, computed again ------------------------------------------------------


def row(d_k: int, scaled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scores and weights of the row that `scaling` shows, in float64."""
    query, keys = (x[n01_scaling.ROW].double().numpy() for x in n01_scaling._vectors())
    scores = keys[:, :d_k] @ query[0, :d_k] / (math.sqrt(d_k) if scaled else 1)
    return scores, np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()


def first_over_nine_tenths() -> str:
    return str(min(2**i for i in range(2, 13) if row(2**i, False)[1].max() > 0.9))


def scaled_tops() -> str:
    tops = [row(2**i, True)[1].max() for i in range(2, 13)]
    assert min(tops) > 0.1 and 0.3 < max(tops) < 0.6
    return "it goes up and down between .1 and .6"


def slope() -> str:
    weights = row(256, False)[1]
    return "below .01" if (weights * (1 - weights)).max() < 0.01 else "no"


def leader() -> str:
    same = row(512, False)[0].argmax() == row(512, True)[1].argmax()
    return "no, the same key leads" if same else "yes, another one leads"


def spread() -> str:
    times = np.ptp(row(4096, False)[0]) / np.ptp(row(16, False)[0])
    return f"{min((256, 16, 1), key=lambda n: abs(math.log(times / n)))} times"


def parameters(d_model: int, h: int, d_k: int) -> list[int]:
    return [h * d_k * d_model] * 3 + [d_model * h * d_k]


def share_of_products(d_model: int, T: int) -> float:
    return 4 * T * d_model / (8 * d_model**2 + 4 * T * d_model)


KEYS = {
    "scaling_sharp": first_over_nine_tenths,
    "scaling_root": scaled_tops,
    "scaling_slope": slope,
    "scaling_order": leader,
    "scaling_spread": spread,
    "projections_tied": lambda: (
        "none" if parameters(384, 1, 384) == parameters(384, 24, 16) else "all"
    ),
    "projections_free": lambda: (
        "twice as much of everything"
        if parameters(384, 24, 32) == [2 * n for n in parameters(384, 12, 32)]
        else "the same"
    ),
    "projections_wider": lambda: (
        f"{sum(parameters(768, 12, 64)) // sum(parameters(384, 12, 32))} times"
    ),
    "projections_products": lambda: (
        "about a seventh" if round(1 / share_of_products(384, 128)) == 7 else "no"
    ),
    "projections_one": lambda: "all have the same" if len({*parameters(384, 1, 64)}) == 1 else "no",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_right_choice_is_the_one_another_route_gives(name):
    """Exactly one choice of the stored box is called right."""
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    called = [label for n, label, verdict in FOLD.findall(html) if n == name and "So" in verdict]
    assert called == [escape(KEYS[name]())]


# --- what is asked --------------------------------------------------------------------------------


def test_every_question_is_asked_once():
    names = [name for book in asked().values() for name in book]
    assert sorted(names) == sorted(QUESTIONS) == sorted(KEYS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_short_and_every_choice_leads_somewhere(name):
    question = QUESTIONS[name]
    assert 2 <= len(question.choices) <= 4 and len(question.asks.split()) <= 40
    assert question.asks.endswith("?") and question.look.endswith(".")
    for label, choice in question.choices.items():
        assert not re.search(r"[`<&]", label), "a label is compared with what the browser shows"
        assert len(choice.says.split()) <= 40 and choice.says.endswith(".")
        texts = [c.source for c in BOOKS[choice.notebook].cells if c.cell_type == "markdown"]
        [heading] = [
            line
            for line in re.findall(r"^#+ .*", "\n".join(texts), re.M)
            if line.lstrip("# ") == choice.heading
        ]
        target = re.search('href="([^"]+)"', predict.link(choice))[1]
        file, anchor = target.split("#")
        assert (notebooks.FOLDER / file).exists() and file.startswith(choice.notebook)
        assert f'id="{anchor}"' in markdown2html_mistune(heading)


def test_a_box_shows_the_choices_in_their_order_and_folds_all_else():
    name = "scaling_sharp"
    for label in QUESTIONS[name].choices:
        html = predict.predict(**{name: label})._repr_html_()
        assert [found for _, found, _ in FOLD.findall(html)] == [*QUESTIONS[name].choices]
        assert [found for _, found, v in FOLD.findall(html) if v == "So it is."] == [label]
        seen = html
        while (folded := re.sub(r"(</summary>)(?:(?!<details|</details>).)+", r"\1", seen)) != seen:
            seen = folded
        assert "So it is" not in seen and "Not so" not in seen
    assert len({str(predict.predict(**{name: x})) for x in QUESTIONS[name].choices}) == 1


def test_a_box_loads_nothing():
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    assert html and not re.search(r"https?:|<script|<img|@import|url\(", html)
    assert not re.search(r"https?:|import[ (]|fetch|XMLHttp", predict.SCRIPT.read_text("utf-8"))


def test_what_it_refuses():
    with pytest.raises(ValueError, match="no_such must be a question"):
        predict.predict(no_such="8")
    with pytest.raises(ValueError, match=r"scaling_sharp must be one .*; got 7"):
        predict.predict(scaling_sharp=7)
    assert predict.predict(scaling_sharp=32).right == {"scaling_sharp": "32"}


# --- what was guessed -----------------------------------------------------------------------------


def test_a_guess_is_written_below_the_box():
    shown = []
    note = predict._Note(["scaling_sharp"])
    note.place = type("Place", (), {"update": lambda self, made, raw: shown.append(made)})()
    note.said = {"scaling_sharp": "8", "scaling_root": "nothing of the kind", "other": 3}
    assert predict.noted(shown[-1]["text/plain"]) == {"scaling_sharp": "8"}
    assert "“8”" in shown[-1]["text/html"] and "“8”" in note.line
    note.said = {}
    assert predict.noted(shown[-1]["text/plain"]) == {} and note.line == predict.NONE


@pytest.mark.parametrize(
    "text",
    ["", "8", "Guesses: ", "Guesses: [", "Guesses: [1]", 'Guesses: {"scaling_sharp": ["8"]}',
     'Guesses: {"x": "8"}', "Guesses: " + "[" * 100_000],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_guess_counts_as_none(text):
    assert predict.noted(text) == {}


def test_stored_notebooks_hold_no_guess():
    for notebook in BOOKS.values():
        for cell in notebook.cells:
            if "prediction" in cell.metadata.get("tags", ()):
                assert cell.metadata.jupyter.source_hidden
                assert cell.outputs[1].data["text/plain"] == "Guesses: {}"
