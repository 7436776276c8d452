"""Predictions: what is asked, where each choice leads, and which one is right, by another route.

The notebooks compute the right choices from the explorers' own pictures; here they are computed
again, from formulas in float64 or from the modules below the explorers.
"""

import math
import re
from html import escape
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nbconvert.filters.markdown_mistune import markdown2html_mistune

import minutes
import notebooks
from mha_course import explore, predictions, runs, shipped
from mha_course.check.exercises.nb12 import KeysByQueries
from mha_course.explore import n01_scaling, n03_memory, n04_masks, n09_cost, n11_cache
from mha_course.pictures import panels
from mha_lesson import MultiHeadAttention, causal_mask, models, padding_mask, text
from mha_lesson.tasks import letter_batches
from mha_lesson.training import side_accuracy, silence_head, weight_by_offset

BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
QUESTIONS = predictions.questions()
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


def scaled_goes_up_and_down() -> bool:
    tops = [row(2**i, True)[1].max() for i in range(2, 13)]
    return min(tops) > 0.1 and 0.3 < max(tops) < 0.6


def slopes(d_k: int) -> np.ndarray:
    weights = row(d_k, False)[1]
    return weights * (1 - weights)


def spread() -> str:
    times = np.ptp(row(4096, False)[0]) / np.ptp(row(16, False)[0])
    return f"{min((256, 16, 1), key=lambda n: abs(math.log(times / n)))} times"


def parameters(d_model: int, h: int, d_k: int) -> list[int]:
    return [h * d_k * d_model] * 3 + [d_model * h * d_k]


def share_of_products(d_model: int, T: int) -> float:
    return 4 * T * d_model / (8 * d_model**2 + 4 * T * d_model)


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


def table(**state) -> dict[str, int]:
    """What the explorer of notebook 11 says a step makes with a cache."""
    work = n11_cache.scene(**{"T": 8, "h": 4, **state}).flat()[-1]
    return {row[0]: int(row[2]) for row in work.rows}


AFTER = ("view", "permute", "contiguous", "merged")


def moves(step: str) -> bool:
    """Whether the picture's table says that this step, with one head, makes a new strip."""
    rules = n03_memory.scene(h=1, step=step).panels[-1][0].rows
    [storage] = [row[-1] for row in rules if row[0] == step]
    return storage == "new"


def misplaced(T: int, h: int, d_k: int) -> int:
    strip = np.arange(T * h * d_k)
    return int((strip.reshape(h, T, d_k) != strip.reshape(T, h, d_k).transpose(1, 0, 2)).sum())


def mask_weights(lengths, causal, turned=False, added=False) -> tuple[np.ndarray, np.ndarray]:
    """The mask, and the softmax of scores with it, by hand."""
    T = 6
    mask = np.arange(T)[None, None] >= np.array(lengths)[:, None, None]
    mask = mask | (np.triu(np.ones((T, T), bool), 1) if causal else False)
    mask = np.broadcast_to(mask, (2, T, T))
    # No mask is read: the scores of the picture as they are.
    open_mask = torch.zeros(2, T, T, dtype=torch.bool)
    scores = n04_masks.attend(open_mask, n04_masks.BLOCKED)[0].double().numpy()
    blocked = ~mask if turned else mask
    scores = scores + mask if added else np.where(blocked, -np.inf, scores)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores)
        return mask, np.nan_to_num(powers / powers.sum(-1, keepdims=True))


def empty_rows(weights: np.ndarray) -> int:
    return int((weights.sum(-1) == 0).sum())


def first_sees_all_but_itself() -> bool:
    """Token 0, of both sequences, where what is blocked is read as open."""
    first = mask_weights((6, 6), True, turned=True)[1][:, 0]
    return (first > 0).sum() == 10 and not first[:, 0].any()


def recommended() -> float:
    """Of the rows with a blocked cell, the share that gives such a cell more than an open one."""
    mask, weights = mask_weights((6, 3), True, added=True)
    rows = [(row[m].mean(), row[~m].mean()) for row, m in zip(
        weights.reshape(12, 6), mask.reshape(12, 6), strict=True) if m.any()]  # fmt: skip
    return sum(blocked > seen for blocked, seen in rows) / len(rows)


def away(*off: int) -> float:
    """How far the sum is from the whole output without these heads, as the caption says, in %."""
    words = caption("05", on=tuple(i not in off for i in range(12)))
    return number_in(words, r"(\d+)% of the whole")


def lengths(h: int) -> np.ndarray:
    return maps("05", h=h)["how much each head writes, and where"]


def head_maps(**state) -> np.ndarray:
    found = maps("06", **state)
    return np.stack([found[f"head {i}"] for i in range(len(found))])


def creek() -> tuple[int, int]:
    tokens = text.sentence().tokens
    return tokens.index("it"), tokens.index("creek")


def noun(sentence: str) -> str:
    """What the picture's large map gives “it” for dog and cat, in layer 3, head 1."""
    weights = maps("08", layer=3, head=1, text=sentence)["layer 3, head 1"]
    words = ["[CLS]", "the", "dog", "chased", "the", "cat", "because", "it"]
    row = weights[words.index("it")]
    return max("dog", "cat", key=lambda word: row[words.index(word)])


CHASED = "The dog chased the cat because it was {}."


def before(layer: int, head: int, sentence: str = text.SENTENCE) -> float:
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


def parted(seed: int) -> int:
    """The step from which the loss of one head stays behind that of two, of other runs."""
    one, two = (runs.load(f"two sides, h = {h}, seed {seed}").losses for h in (1, 2))
    return next(n for n in range(75) if sum(one[n : n + 5]) > sum(two[n : n + 5]) + 1.5)


def that_can_go(seed: int) -> int:
    """Of four heads of another run, those without which both letters stay right."""
    run = runs.load(f"two sides, h = 4, seed {seed}")
    letters = next(letter_batches(300, seed=98))
    quiet = [silence_head(run.model, i) for i in range(4)]
    return sum(side_accuracy(model, letters).both > 0.9 for model in quiet)


def gflop(T: int, d_model: int) -> float:
    return 8 * T * d_model**2 + 4 * T**2 * d_model


def explicit_megabytes(T: int, d_model: int, h: int) -> float:
    """Megabytes in the caption of notebook 9's picture."""
    words = caption("09", T=T, d_model=d_model, h=h)
    return number_in(words, r"explicit core holds ([\d.]+) MB")


def more_held(T: int, h: int) -> float:
    """How many times as much the explicit core holds, in the same caption."""
    return number_in(caption("09", T=T, d_model=512, h=h), r"([\d.]+) times as much")


def cosine_mean(distance: int, base: float) -> float:
    return float(np.mean([math.cos(distance * base ** (-i / 8)) for i in range(8)]))


def slow(base: float) -> int:
    return sum(16 * base ** (-i / 8) < 2 * math.pi / 10 for i in range(8))


def reviewed(cls: type) -> str:
    """Beside the package's own class, with two lengths, in evaluation."""
    torch.manual_seed(5)
    theirs, ours = cls(10, 2).double().eval(), MultiHeadAttention(10, 2).double()
    with torch.no_grad():
        for part in ("weight", "bias"):
            stacked = [getattr(getattr(theirs, name), part) for name in ("w_q", "w_k", "w_v")]
            getattr(ours.w_qkv, part).copy_(torch.cat(stacked))
    ours.w_o.load_state_dict(theirs.w_o.state_dict())
    x, mask = shipped.draw(3, 7, 10, seed=9), causal_mask(7) | padding_mask([2, 7, 4], 7)
    far = (theirs(x, mask) - ours(x, mask=mask)).abs().max()
    return "merge it" if far < 1e-9 else "send it back"


def ends(name: str, kind: int = 0) -> float:
    """Where a curve of the charts ends: another run of the code than the table's."""
    return float(runs.table("fates on the way")[runs.ON_THE_WAY.index(name), kind, -1])


def is_other_weights(name: str) -> bool:
    """Whether a wrong scale is the right class with longer queries, so that no property sees it."""
    torch.manual_seed(6)
    wrong = shipped.bug(name).build(12, 3).double()
    x, factor = shipped.draw(1, 4, 12, seed=3), {
        "scale_d_model": 3**-0.5, "scale_n_heads": (4 / 3) ** 0.5, "scale_upside_down": 4.0,
        "scale_forgotten": 2.0, "scale_twice": 0.5, "scale_times_half_d_k": 4.0,
    }[name]  # fmt: skip
    right = shipped.twin(shipped.right(), wrong, 12, 3)
    with torch.no_grad():
        right.w_q.weight.mul_(factor)
        right.w_q.bias.mul_(factor)
        return bool(torch.allclose(right(x), wrong(x)))


SCALES = [name for name in shipped.bugs() if name.startswith("scale")]

# The right choice, worked out.
FOUND = {
    "scaling_sharp": first_over_nine_tenths,
    "scaling_spread": spread,
    "projections_wider": lambda: (
        f"{sum(parameters(768, 12, 64)) // sum(parameters(384, 12, 32))} times"
    ),
    "memory_moves": lambda: next((step for step in AFTER if moves(step)), "at none"),
    "memory_stride": lambda: str(np.arange(36).reshape(4, 3, 3)[1, 0, 0]),
    "masks_rows": lambda: str(empty_rows(mask_weights((6, 6), True, turned=True)[1])),
    "heads_it": lambda: f"at {text.sentence().tokens[head_maps(h=1)[0, creek()[0]].argmax()]}",
    "heads_few": lambda: str(
        min(d for d in range(1, 33) if head_maps(h=12, d_k=d)[1][creek()] > 0.25)
    ),
    # No second route that takes less than training anew: the film's cell computes it under nbval.
    "training_eight": lambda: "about as soon",
    "cost_gigabyte": lambda: f"{min(T for T in n09_cost.LENGTHS if 2 * 4 * 8 * T**2 > 1e9):,}",
    "cost_saving": lambda: f"about {more_held(1024, 16):.0f} times",
    "cost_wider": lambda: f"{gflop(1024, 1536) / gflop(1024, 512):.0f} times",
    "rotation_slow": lambda: str(slow(1e4)),
    "cache_scores": lambda: str(table(h_kv=1, window=3, step=7)["scores made"]),
    "cache_rows": lambda: str(table(h_kv=1, window=3, step=7)["rows of k, v read back"]),
    "cache_wide": lambda: str(table(h_kv=1, step=7)["scores made"]),
    **{
        f"review_{letter}": lambda name=name: reviewed(shipped.bug(name).build)
        for letter, name in {
            "a": "scale_d_model",
            "c": "merged_unmoved",
            "d": "mask_tiled",
            "e": "dropout_in_evaluation",
            "f": "softmax_over_queries",
        }.items()
    },
    "review_b": lambda: reviewed(KeysByQueries),
}
# The right choice, and what must hold for it.
BECAUSE = {
    "scaling_root": ("it goes up and down between .1 and .6", scaled_goes_up_and_down),
    "scaling_slope": ("below .01", lambda: slopes(256).max() < 0.01),
    "scaling_order": ("no, the same key leads",
        lambda: row(512, False)[0].argmax() == row(512, True)[1].argmax()),
    "projections_tied": ("neither",
        lambda: {4 * 128 * h * (384 // h) for h in (1, 2, 12, 24)} == {4 * 128 * 384}),
    "projections_free": ("twice as much of everything",
        lambda: parameters(384, 24, 32) == [2 * n for n in parameters(384, 12, 32)]),
    "projections_products": ("more than a half",
        lambda: round(1 / share_of_products(384, 128)) == 7 and share_of_products(48, 128) > 0.5),
    "projections_one": ("all have the same", lambda: len({*parameters(384, 1, 64)}) == 1),
    "memory_one": ("none", lambda: misplaced(3, 1, 3) == 0),
    "memory_wrong": ("all of token a, and nothing else",
        lambda: np.arange(27).reshape(3, 3, 3)[0].max() == 8),
    "memory_back": ("half of a, then half of b",
        lambda: [*np.arange(18).reshape(3, 2, 3).swapaxes(0, 1).flat][:6] == [0, 1, 2, 6, 7, 8]),
    "masks_empty": ("rows of zeros",
        lambda: "zero there, not NaN" in caption("04", length_1=0)),
    "masks_padding": ("none", lambda: empty_rows(mask_weights((6, 3), False)[1]) == 0),
    "masks_keep": ("at everything but itself", first_sees_all_but_itself),
    "masks_added": ("in most, but not in all", lambda: 0.5 < recommended() < 1),
    "writes_pair": ("about 30%, as without one of them",
        lambda: all(25 < away(*off) < 35 for off in ((3, 4), (3,), (4,)))),
    "writes_least": ("about 10%, the least of all",
        lambda: 5 < away(5) < 15 and away(5) == min(away(i) for i in range(12))),
    "writes_alone": ("more than 75%", lambda: 75 < away(*range(9), 10, 11) < 100),
    "writes_off": ("zeros",
        lambda: not maps("05", on=(False,) * 12)["how much each head writes, and where"].any()),
    "writes_one": ("less than half",
        lambda: lengths(1)[-1].mean() < lengths(12)[-1].mean() / 2),
    "heads_one": ("sharper",
        lambda: head_maps(h=1).max(-1).mean() > head_maps(h=12).max(-1).mean()),
    "heads_which": ("in one",
        lambda: (head_maps(h=12)[:, creek()[0]].argmax(-1) == creek()[1]).sum() == 1),
    "heads_flat": ("flatter",
        lambda: head_maps(h=12, d_k=1).max(-1).mean() < head_maps(h=12).max(-1).mean()),
    "training_when": ("all at once, in the first hundred",
        lambda: "between steps 20 and 50" in "".join(c.source for c in BOOKS["07"].cells)),
    "training_alike": ("for some twenty steps", lambda: 10 < parted(seed=1) < 60),
    "training_four": ("some of them", lambda: 0 < that_can_go(seed=1) < 4),
    "training_start": ("to no side in particular", lambda: untrained_looks() < 0.3),
    "real_previous": ("one, in layer 0",
        lambda: [n for n in range(6) if any(before(n, i) > 0.95 for i in range(12))] == [0]),
    "real_ends": ("more than half", lambda: np.mean(
        [number_in(caption("08", layer=4, head=i), r"(\d+)%") for i in range(12)]) > 50),
    "real_it": ("the cat", lambda: noun(CHASED.format("hungry")) == "cat"),
    "real_pair": ("the same one twice",
        lambda: noun(CHASED.format("hungry")) == noun(CHASED.format("slow"))),
    "real_words": ("it still looks at the token before",
        lambda: before(0, 2, "over it jump the dog cold creek") > 0.95),
    "cost_width": ("not at all",
        lambda: explicit_megabytes(1024, 1536, 8) == explicit_megabytes(1024, 512, 8)),
    "cost_short": ("twice", lambda: more_held(64, 8) == 2),
    "rotation_base": ("more", lambda: slow(1e6) > slow(1e4)),
    "rotation_rises": ("it rises", lambda: cosine_mean(24, 1e4) > cosine_mean(16, 1e4)),
    "rotation_far": ("between a tenth and a half", lambda: 0.1 < cosine_mean(128, 1e4) < 0.5),
    "rotation_short": ("lower", lambda: cosine_mean(16, 100) < cosine_mean(16, 1e4)),
    "cache_fewer": ("h_kv = 1 and no window",
        lambda: table(h_kv=1, step=7)["rows of k, v read back"]
        < table(h_kv=4, window=3, step=7)["rows of k, v read back"]),
    "cache_longer": ("no", lambda: table(T=8, step=3) == table(T=12, step=3)),
    "fate_lowest": ("softmax along the queries",
        lambda: ends("softmax_over_queries") < min(1.0, ends("right"), ends("scale_d_model"))),
    "fate_scale": ("less than .05", lambda: abs(ends("scale_d_model") - ends("right")) < 0.05),
    "finds_scale": ("none", lambda: all(map(is_other_weights, SCALES))),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_right_choice_is_the_one_another_route_gives(name):
    """Exactly one choice of the stored box is called right, and what it says holds."""
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    called = [
        label for n, label, verdict in FOLD.findall(html) if n == name and verdict == "Right."
    ]
    right, holds = BECAUSE[name] if name in BECAUSE else (FOUND[name](), lambda: True)
    assert called == [escape(right)] and holds()


# --- what is asked --------------------------------------------------------------------------------


def test_every_question_is_asked_once():
    assert 50 <= len(QUESTIONS) <= 70 and all(
        len(names) >= 4 for names in list(asked().values())[1:]
    )
    names = [name for book in asked().values() for name in book]
    assert sorted(names) == sorted(QUESTIONS) == sorted([*FOUND, *BECAUSE])


def test_on_the_short_way_a_box_is_two_questions_and_the_others_are_folded():
    for book in ("01", "02", "03", "04", "05", "06", "07", "11"):
        opened = {cell.id for cell in minutes.thread(BOOKS[book])}
        cells = [c for c in BOOKS[book].cells if "prediction" in c.metadata.get("tags", ())]
        assert [c.id in opened for c in cells] == [True, False]
        html = cells[0].outputs[0].data["text/html"]
        assert len({name for name, _, _ in FOLD.findall(html)}) == 2, book


def test_an_answer_in_an_open_box_says_where_it_leads_into_a_fold():
    opened = {
        book: {cell.id: cell for cell in minutes.thread(notebook)}
        for book, notebook in BOOKS.items()
    }
    headings = {
        (book, line.lstrip("# "))
        for book, thread in opened.items()
        for cell in thread.values()
        for line in re.findall(r"^#+ .*", cell.source, re.M)
    }
    cells = [cell for thread in opened.values() for cell in thread.values()]
    boxes = [cell for cell in cells if "prediction" in cell.metadata.get("tags", ())]
    names = {n for box in boxes for n, _, _ in FOLD.findall(box.outputs[0].data["text/html"])}
    assert len(names) > 20
    for choice in (c for name in names for c in QUESTIONS[name].choices.values()):
        if (choice.notebook, choice.heading) not in headings:
            assert "second reading" in choice.says.lower(), choice


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
        target = re.search('href="([^"]+)"', predictions.link(choice))[1]
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
        assert "So it is" not in seen and "Not so" not in seen
    assert len({str(predictions.predict(**{name: x})) for x in QUESTIONS[name].choices}) == 1


def test_a_box_loads_nothing():
    html = "".join(box for notebook in BOOKS.values() for box in boxes(notebook))
    assert html and not re.search(r"https?:|<script|<img|@import|url\(", html)
    assert not re.search(r"https?:|import[ (]|fetch|XMLHttp", predictions.SCRIPT.read_text("utf-8"))


def test_what_it_refuses():
    with pytest.raises(ValueError, match="no_such must be a question"):
        predictions.predict(no_such="8")
    with pytest.raises(ValueError, match=r"scaling_sharp must be one .*; got 7"):
        predictions.predict(scaling_sharp=7)
    assert predictions.predict(scaling_sharp=32).right == {"scaling_sharp": "32"}


# --- what was guessed -----------------------------------------------------------------------------


def test_a_guess_is_written_below_the_box():
    shown, place = [], SimpleNamespace(update=lambda made, **_: shown.append(made))
    note = predictions._Note(["scaling_sharp"])
    note.display = place
    note.said = {"scaling_sharp": "8", "scaling_root": "nothing of the kind", "other": 3}
    assert predictions.noted(shown[-1]["text/plain"]) == {"scaling_sharp": "8"}
    assert "“8”" in shown[-1]["text/html"] and "“8”" in note.line
    note.said = {}
    assert predictions.noted(shown[-1]["text/plain"]) == {} and note.line == predictions.NONE


def test_colab_is_told_where_the_box_comes_from_and_again_with_each_guess(monkeypatch):
    told, colab = [], {"application/vnd.jupyter.widget-view+json": {"colab": {}}}

    def display(_data, metadata=None, **_):
        told.append(metadata)
        return SimpleNamespace(update=display)

    monkeypatch.setattr(predictions, "display", display)
    note = predictions._Note(["scaling_sharp"])
    monkeypatch.setattr(predictions._Note, "_repr_mimebundle_", lambda self: ({}, colab))
    monkeypatch.setattr(predictions, "_Note", lambda _: note)
    predictions.predict(scaling_sharp=8)._ipython_display_()
    note.said = {"scaling_sharp": "8"}
    assert told == [None, colab, colab]


@pytest.mark.parametrize(
    "text",
    ["", "8", "Guesses: ", "Guesses: [", "Guesses: [1]", 'Guesses: {"scaling_sharp": ["8"]}',
     'Guesses: {"x": "8"}', "Guesses: " + "[" * 100_000],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_guess_counts_as_none(text):
    assert predictions.noted(text) == {}


def test_stored_notebooks_hold_no_guess():
    for notebook in BOOKS.values():
        for cell in notebook.cells:
            if "prediction" in cell.metadata.get("tags", ()):
                assert cell.metadata.jupyter.source_hidden
                assert cell.outputs[1].data["text/plain"] == "Guesses: {}"
