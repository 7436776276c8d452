"""Predictions: what is asked, where each choice leads, and which one is right, by another route.

The notebooks compute the right choices from the explorers' own pictures; those that hang on a seed
are computed again here, in float64 or from the modules below the explorers.
"""

import math
import re
from html import escape
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nbconvert.filters.markdown_mistune import markdown2html_mistune

import notebooks
from mha_course import explore, runs
from mha_course.base.notebook import headings, open_thread
from mha_course.cells import predictions
from mha_course.explore import n01_scaling, n04_masks, n08_real_heads
from mha_course.pictures import panels
from mha_lesson import models, text
from mha_lesson.tasks import letter_batches
from mha_lesson.training import side_accuracy, silence_head, weight_by_offset

BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
QUESTIONS = predictions.questions()
FOLD = re.compile(r'<details name="(\w+)"><summary[^>]*>(.*?)</summary>.*?<strong>(.*?)</strong>')


def questions_by_notebook() -> dict[str, list[str]]:
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


def scaled_goes_up_and_down() -> bool:
    tops = [row(2**i, True)[1].max() for i in range(2, 13)]
    return min(tops) > 0.1 and 0.3 < max(tops) < 0.6


def slopes(d_k: int) -> np.ndarray:
    weights = row(d_k, False)[1]
    return weights * (1 - weights)


def spread() -> str:
    times = np.ptp(row(4096, False)[0]) / np.ptp(row(16, False)[0])
    return f"{min((256, 16, 1), key=lambda n: abs(math.log(times / n)))} times"


# --- from here on the notebooks compute with the modules themselves, and these ask the pictures ---


def scene(book: str, **state) -> panels.Scene:
    [stem] = [m for m in vars(explore) if m.startswith(f"n{book}_")]
    return getattr(explore, stem).scene(**state)


def caption(book: str, **state) -> str:
    return scene(book, **state).caption


def number_in(text: str, pattern: str) -> float:
    return float(re.search(pattern, text)[1].replace(",", ""))


def maps(book: str, **state) -> dict[str, np.ndarray]:
    """Title -> values of every map in a picture."""
    flat = scene(book, **state).flat()
    return {panel.title: panel.values for panel in flat if isinstance(panel, panels.Heatmap)}


def share_that_prefers_blocked() -> float:
    """Of the rows with a blocked cell, the share that gives blocked cells more than open ones."""
    mask = (np.arange(6) >= np.array((6, 3))[:, None, None]) | np.triu(np.ones((6, 6), bool), 1)
    # No mask is read: the scores of the picture as they are.
    open_mask = torch.zeros(2, 6, 6, dtype=torch.bool)
    scores = n04_masks.attend(open_mask, n04_masks.BLOCKED)[0].double().numpy() + mask
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    rows = [
        (row[m].mean(), row[~m].mean())
        for row, m in zip(weights.reshape(12, 6), mask.reshape(12, 6), strict=True)
        if m.any()
    ]
    return sum(blocked > seen for blocked, seen in rows) / len(rows)


def gap_without(*off: int) -> float:
    """The caption's distance, in %, of the sum without these heads from the whole output."""
    words = caption("05", on=tuple(i not in off for i in range(12)))
    return number_in(words, r"(\d+)% of the whole")


def lengths(**state) -> np.ndarray:
    """How much each head writes where: the first map."""
    return next(iter(maps("05", **state).values()))


def head_maps(**state) -> np.ndarray:
    found = maps("06", **state)
    return np.stack([found[f"head {i}"] for i in range(len(found))])


def it_creek() -> tuple[int, int]:
    tokens = text.sentence().tokens
    return tokens.index("it"), tokens.index("creek")


def preferred_noun(sentence: str) -> str:
    """What the picture's large map gives “it” for dog and cat, in layer 3, head 1."""
    weights = maps("08", layer=3, head=1, text=sentence)["layer 3, head 1"]
    words = ["[CLS]", "the", "dog", "chased", "the", "cat", "because", "it"]
    row = weights[words.index("it")]
    return max("dog", "cat", key=lambda word: row[words.index(word)])


CHASED = "The dog chased the cat because it was {}."


def weight_before(layer: int, head: int, sentence: str = text.SENTENCE) -> float:
    weights = maps("08", layer=layer, head=head, text=sentence)[f"layer {layer}, head {head}"]
    return float(np.diagonal(weights, -1).mean())


def untrained_looks() -> float:
    """The largest mean weight on either neighbour, of models that nobody trained."""
    looks = []
    for seed in range(5):
        torch.manual_seed(seed)
        weights = models.TwoSidesModel(2).weights()
        looks.append(float(weight_by_offset(weights, (-1, 1)).max()))
    return max(looks)


def step_of_parting(seed: int) -> int:
    """The step from which the loss of one head stays behind that of two, of other runs."""
    one, two = (runs.load(f"two sides, h = {h}, seed {seed}").losses for h in (1, 2))
    return next(n for n in range(75) if sum(one[n : n + 5]) > sum(two[n : n + 5]) + 1.5)


def spare_heads(seed: int) -> int:
    """Of four heads of another run, how many can be silenced while both letters stay right."""
    run = runs.load(f"two sides, h = 4, seed {seed}")
    letters = next(letter_batches(300, seed=98))
    quiet = [silence_head(run.model, i) for i in range(4)]
    return sum(side_accuracy(model, letters).both > 0.9 for model in quiet)


def ends(name: str, kind: int = 0) -> float:
    """Where a curve of the charts ends: another run of the code than the table's."""
    return float(runs.table("fates on the way")[runs.ON_THE_WAY.index(name), kind, -1])


# The right choice, computed.
COMPUTED = {
    "scaling_sharp": first_over_nine_tenths,
    "scaling_spread": spread,
    "heads_it": lambda: f"at {text.sentence().tokens[head_maps(h=1)[0, it_creek()[0]].argmax()]}",
    # No second route that takes less than training anew: the film's cell computes it under nbval.
    "training_eight": lambda: "about as soon",
}
# The right choice, and what must hold for it.
CONDITIONS = {
    "scaling_root": ("it goes up and down between .1 and .6", scaled_goes_up_and_down),
    "scaling_slope": ("below .01", lambda: slopes(256).max() < 0.01),
    "scaling_order": ("no, the same key leads",
        lambda: row(512, False)[0].argmax() == row(512, True)[1].argmax()),
    "masks_added": ("in most, but not in all", lambda: 0.5 < share_that_prefers_blocked() < 1),
    "writes_pair": ("about 30%, as without one of them",
        lambda: all(25 < gap_without(*off) < 35 for off in ((3, 4), (3,), (4,)))),
    "writes_least": ("about 10%, the least of all",
        lambda: 5 < gap_without(5) < 15 and min(range(12), key=gap_without) == 5),
    "writes_alone": ("more than 75%", lambda: 75 < gap_without(*range(9), 10, 11) < 100),
    "writes_others": ("they stay", lambda: np.array_equal(
        *(np.delete(maps("05", on=tuple(on))["how much each head writes where"], (3, 12), 0)
          for on in ([True] * 12, [i != 3 for i in range(12)])))),
    "writes_off": ("zeros",
        lambda: not lengths(on=(False,) * 12).any()),
    "writes_one": ("less than half",
        lambda: lengths(h=1)[-1].mean() < lengths(h=12)[-1].mean() / 2),
    "heads_one": ("sharper",
        lambda: head_maps(h=1).max(-1).mean() > head_maps(h=12).max(-1).mean()),
    "heads_orders": ("2: an order and its reverse",
        lambda: max(len({*q.sign().tolist()}) for q in text.sentence().heads[0][..., 0]) == 2),
    "heads_which": ("in one",
        lambda: (head_maps(h=12)[:, it_creek()[0]].argmax(-1) == it_creek()[1]).sum() == 1),
    "heads_flat": ("flatter",
        lambda: head_maps(h=12, d_k=1).max(-1).mean() < head_maps(h=12).max(-1).mean()),
    "training_when": ("all at once, in the first hundred",
        lambda: "between steps 20 and 50" in "".join(c.source for c in BOOKS["07"].cells)),
    "training_alike": ("for some twenty steps", lambda: 10 < step_of_parting(seed=1) < 60),
    "training_four": ("some of them", lambda: 0 < spare_heads(seed=1) < 4),
    "training_start": ("to no side in particular", lambda: untrained_looks() < 0.3),
    "real_previous": ("one, in layer 0",
        lambda: [n for n in range(6) if any(weight_before(n, i) > 0.95 for i in range(12))] == [0]),
    "real_ends": ("more than half", lambda: np.mean(
        [number_in(caption("08", layer=4, head=i), r"(\d+)%") for i in range(12)]) > 50),
    "real_it": ("the cat", lambda: preferred_noun(CHASED.format("hungry")) == "cat"),
    "real_pair": ("the same one twice",
        lambda: preferred_noun(CHASED.format("hungry")) == preferred_noun(CHASED.format("slow"))),
    "real_words": ("it still looks at the token before",
        lambda: weight_before(0, 2, "over it jump the dog cold creek") > 0.95),
    "fate_lowest": ("softmax along the queries",
        lambda: ends("softmax_over_queries") < min(1.0, ends("right"), ends("scale_d_model"))),
    "fate_scale": ("less than .05", lambda: abs(ends("scale_d_model") - ends("right")) < 0.05),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_right_choice_is_the_one_another_route_gives(name):
    """Exactly one choice of the stored box is called right, and what it says holds."""
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    (called,) = [
        label for n, label, verdict in FOLD.findall(html) if n == name and verdict == "Right."
    ]
    if name in COMPUTED or name in CONDITIONS:
        right, holds = CONDITIONS[name] if name in CONDITIONS else (COMPUTED[name](), lambda: True)
        assert called == escape(right) and holds()


def test_what_hangs_on_a_seed_is_computed_twice():
    """On random numbers, a training, or a published model; what follows from sizes alone, once."""
    seeded = ("scaling", "writes", "heads", "training", "real", "fate")
    of_a_seed = {name for name in QUESTIONS if name.startswith(seeded)}
    assert of_a_seed | {"masks_added"} == {*COMPUTED, *CONDITIONS}


# --- what is asked --------------------------------------------------------------------------------


def test_every_question_is_asked_once():
    assert 50 <= len(QUESTIONS) <= 80 and all(
        len(names) >= 4 for names in list(questions_by_notebook().values())[1:]
    )
    names = [name for book in questions_by_notebook().values() for name in book]
    assert sorted(names) == sorted(QUESTIONS)


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
        target = re.search('href="([^"]+)"', choice.link())[1]
        file, anchor = target.split("#")
        assert (notebooks.FOLDER / file).exists() and file.startswith(choice.notebook)
        assert f'id="{anchor}"' in markdown2html_mistune(heading)


def test_a_box_shows_the_choices_in_their_order_and_folds_all_else():
    name = "scaling_sharp"
    for label in QUESTIONS[name].choices:
        html = predictions.predict(**{name: label})._repr_html_()
        assert [found for _, found, _ in FOLD.findall(html)] == [*QUESTIONS[name].choices]
        assert [found for _, found, v in FOLD.findall(html) if v == "Right."] == [label]
        seen = html
        while (folded := re.sub(r"(</summary>)(?:(?!<details|</details>).)+", r"\1", seen)) != seen:
            seen = folded
        assert "Right." not in seen and "Not so" not in seen
    assert len({str(predictions.predict(**{name: x})) for x in QUESTIONS[name].choices}) == 1


def test_a_box_loads_nothing():
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    assert html and not re.search(r"https?:|<script|<img|@import|url\(", html)
    assert not re.search(r"https?:|import[ (]|fetch|XMLHttp", predictions.SCRIPT)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="no_such must be a question"):
        predictions.predict(no_such="8")
    with pytest.raises(ValueError, match=r"scaling_sharp must be one .*; got 7"):
        predictions.predict(scaling_sharp=7)
    assert predictions.predict(scaling_sharp=32).right == {"scaling_sharp": "32"}


def test_on_the_short_way_a_box_is_two_questions_and_the_others_are_folded():
    for book in ("01", "02", "03", "04", "05", "06", "07", "11"):
        opened = {cell.id for cell in open_thread(BOOKS[book].cells)}
        cells = [c for c in BOOKS[book].cells if "prediction" in c.metadata.get("tags", ())]
        assert [c.id in opened for c in cells] == [True, False]
        html = cells[0].outputs[0].data["text/html"]
        assert len({name for name, _, _ in FOLD.findall(html)}) == 2, book


def test_an_answer_in_an_open_box_says_where_it_leads_into_a_fold():
    opened = {
        book: {cell.id: cell for cell in open_thread(notebook.cells)}
        for book, notebook in BOOKS.items()
    }
    places = {
        (book, words) for book, thread in opened.items() for words in headings(thread.values())
    }
    cells = [cell for thread in opened.values() for cell in thread.values()]
    boxes = [cell for cell in cells if "prediction" in cell.metadata.get("tags", ())]
    names = {n for box in boxes for n, _, _ in FOLD.findall(box.outputs[0].data["text/html"])}
    assert len(names) > 20
    for choice in (c for name in names for c in QUESTIONS[name].choices.values()):
        if (choice.notebook, choice.heading) not in places:
            assert "second reading" in choice.says.lower(), choice


# --- what was guessed -----------------------------------------------------------------------------


def test_a_guess_is_written_below_the_box():
    shown, note = [], predictions._Note(["scaling_sharp"])
    note.display = SimpleNamespace(update=lambda made, **_: shown.append(made))
    note.guesses = {"scaling_sharp": "8", "scaling_root": "nothing of the kind", "other": 3}
    assert predictions.guesses_in(shown[-1]["text/plain"]) == {"scaling_sharp": "8"}
    assert note.line == "Written into this notebook: “8”."
    assert note.line in shown[-1]["text/html"]
    note.guesses = {}
    assert predictions.guesses_in(shown[-1]["text/plain"]) == {}
    assert note.line == predictions.NO_GUESS


def test_colab_gets_the_source_of_the_note_at_first_and_with_each_guess(monkeypatch):
    sent, colab = [], {"application/vnd.jupyter.widget-view+json": {"colab": {}}}

    def display(_data, metadata=None, **_):
        sent.append(metadata)
        return SimpleNamespace(update=display)

    monkeypatch.setattr(predictions, "display", display)
    note = predictions._Note(["scaling_sharp"])
    monkeypatch.setattr(predictions._Note, "_repr_mimebundle_", lambda self: ({}, colab))
    monkeypatch.setattr(predictions, "_Note", lambda _: note)
    predictions.predict(scaling_sharp=8)._ipython_display_()
    note.guesses = {"scaling_sharp": "8"}
    assert sent == [None, colab, colab]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "Guesses: ",
        "Guesses: [",
        "Guesses: [1]",
        'Guesses: {"scaling_sharp": ["8"]}',
        'Guesses: {"x": "8"}',
        "Guesses: " + "[" * 100_000,
    ],
    ids=range(8),
)
def test_what_is_no_guess_counts_as_none(text):
    assert predictions.guesses_in(text) == {}


def test_stored_notebooks_hold_no_guess():
    for notebook in BOOKS.values():
        for cell in notebook.cells:
            if "prediction" in cell.metadata.get("tags", ()):
                assert cell.metadata.jupyter.source_hidden
                assert cell.outputs[1].data["text/plain"] == "Guesses: {}"


def test_a_page_offers_the_sentences_that_its_predictions_ask_for() -> None:
    asked = " ".join(q.asks for q in predictions.questions().values())
    typed = re.findall(r"Type: (.*?)\.", asked)
    assert len(typed) == 2
    slow = typed[0].replace("hungry", "slow")
    assert {s.rstrip(".") for s in n08_real_heads.OFFERED} >= {*typed, slow}
