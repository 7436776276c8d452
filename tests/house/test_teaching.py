"""The teacher's guide against the notebooks that it names, and against what the explorers show.

A heading or a number of minutes that has changed fails here.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from traitlets.config import Config

import minutes
import notebooks
from mha_course import check
from mha_course.pictures.panels import Heatmap, Scene
from mha_lesson import pretrained

GUIDE = (notebooks.FOLDER / "TEACHING.md").read_text(encoding="utf-8")
BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}


def texts(book: str) -> str:
    return "\n".join(c.source for c in BOOKS[book].cells if c.cell_type == "markdown")


def headings(book: str) -> list[str]:
    return [heading.strip() for heading in re.findall(r"^##+ (.*)$", texts(book), re.M)]


def part(start: str, end: str) -> str:
    return GUIDE.split(f"\n{start}\n")[1].split(f"\n{end}\n")[0]


def sections_named() -> list[tuple[str, str]]:
    """(notebook, heading) for all that stands in italics notebook by notebook."""
    found = []
    chapter = part("## Notebook by notebook", "## From memory")
    for section in re.split(r"^### ", chapter, flags=re.M)[1:]:
        found += [(section[:2], h) for h in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", section)]
    found += re.findall(r"^\| `\w+` \| (\d\d), \*(.+?)\* \|$", GUIDE, re.M)
    return found


def test_every_section_it_names_is_there():
    stale = [(book, name) for book, name in sections_named() if name not in headings(book)]
    assert not stale, "\n".join(f"{book}: {name}" for book, name in stale)
    assert len(sections_named()) > 60


def in_folds(book: str) -> set[str]:
    """Headings that stand in a second reading, and nowhere else."""
    opened = {cell.id for cell in minutes.thread(BOOKS[book])}
    cells = [c for c in BOOKS[book].cells if c.cell_type == "markdown" and c.source[:1] == "#"]
    names = [(c.source.splitlines()[0].lstrip("# ").strip(), c.id in opened) for c in cells]
    return {name for name, _ in names} - {name for name, is_open in names if is_open}


def test_a_section_that_is_folded_is_said_to_be():
    chapter = part("## Notebook by notebook", "## From memory")
    for section in re.split(r"^### ", chapter, flags=re.M)[1:]:
        for name, mark in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)( \(fold\))?", section):
            assert bool(mark) == (name in in_folds(section[:2])), f"{section[:2]}: {name}"


def test_every_notebook_has_its_section():
    chapter = part("## Notebook by notebook", "## From memory")
    assert re.findall(r"^### (\d\d) ", chapter, re.M) == list(BOOKS)


# --- what they will see -----------------------------------------------------------------------


def scene(book: str, **state) -> Scene:
    found = [
        p.stem for p in (Path(notebooks.FOLDER.parent) / "mha_course/explore").glob(f"n{book}_*")
    ]
    return import_module(f"mha_course.explore.{found[0]}").scene(**state)


def values(panel) -> np.ndarray:
    return np.asarray(panel.values, dtype=float)


def titled(shown: Scene, start: str) -> list:
    """The panels whose title begins so."""
    panels = [panel for row in shown.panels for panel in row]
    return [panel for panel in panels if panel.title.startswith(start)]


def block(name: str, **state) -> np.ndarray:
    """A block of the whole computation."""
    [flow] = scene("00", **state).flat()
    return values(flow.blocks[name])


def by_hand_weights(keys: np.ndarray) -> np.ndarray:
    given = {"example": "by hand", "until": "attention", "step": "softmax"}
    scores = block("q", **given) @ keys / 2**0.5
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def only_token_0_stays() -> None:
    given = {"example": "by hand", "until": "attention", "step": "softmax"}
    keys = block("k", **given)  # a column for each token
    before, moved = by_hand_weights(keys), keys.copy()
    np.testing.assert_allclose(before, block("weights", **given), atol=1e-6)
    moved[1, 2] += 1
    stays = np.isclose(by_hand_weights(moved), before).all(axis=-1)
    assert stays.tolist() == [True, False, False]
    assert block("q", **given)[0].tolist() == [1, 0]


def values_make_no_weight() -> None:
    given = {"example": "by hand", "until": "attention", "step": "weights · V"}
    weights = by_hand_weights(block("k", **given))  # without V
    np.testing.assert_allclose(block("weights", **given), weights, atol=1e-6)
    np.testing.assert_allclose(block("context", **given), weights @ block("v", **given), 1e-6)


def it_takes_most_from_creek() -> None:
    [flow] = scene("00").flat()
    words = list(flow.words)
    row = np.stack([block("weights", head=i)[words.index("it")] for i in range(12)])
    first = [words[i] for i in row.argmax(-1)]
    assert [i for i, word in enumerate(first) if word == "creek"] == [1]
    assert f"{row[1].max():.2f}" == "0.85" and first.count("[CLS]") == 8


def first_and_last_row() -> None:
    for head in range(12):
        free, masked = (block("weights", head=head, causal=c) for c in (False, True))
        assert masked[0, 0] == 1 and not masked[0, 1:].any()
        stays = np.isclose(free, masked, atol=1e-6).all(axis=-1)
        assert stays.tolist() == [False] * (len(free) - 1) + [True]


def moved_at_contiguous() -> None:
    memory = import_module("mha_course.explore.n03_memory")
    x = memory.right_way(3, 2, 3)
    kept = [step for step in memory.STEPS if x[step].data_ptr() == x[memory.STEPS[0]].data_ptr()]
    assert memory.STEPS[len(kept)] == "contiguous" and kept == list(memory.STEPS[: len(kept)])


def after_permute() -> None:
    """Two heads of three: a0 a1 a2 | a3 a4 a5 | b0 …: letters are tokens."""
    memory = import_module("mha_course.explore.n03_memory")
    x = memory.right_way(3, 2, 3)
    strip, heads = x[memory.STEPS[0]].flatten().tolist(), x["permute"]
    a2, b0 = strip[2], strip[6]
    assert strip[3] == heads.flatten(0, -3)[1].flatten()[0]  # a3 belongs to head 1
    in_head_0 = heads.flatten(0, -3)[0].flatten().tolist()
    assert in_head_0[in_head_0.index(a2) + 1] == b0


def masks(sequence: int, **state) -> tuple[np.ndarray, np.ndarray]:
    """(mask, weights) as the picture shows them."""
    module = import_module("mha_course.explore.n04_masks")
    maps = [p for row in module.scene(**state).panels for p in row if isinstance(p, Heatmap)]
    blocked = module.scene(**{**state, "convention": module.BLOCKED})
    hidden = [p for row in blocked.panels for p in row if isinstance(p, Heatmap)]
    weights = values(maps[3 * sequence + 2])
    return ~(values(hidden[3 * sequence + 2]) > 0), weights


def read_as_keep() -> None:
    for sequence in (0, 1):
        mask, weights = masks(sequence, convention="True = keep")
        assert (weights[~mask] == 0).all() and np.isfinite(weights).all()
        empty = [i for i, row in enumerate(weights) if not row.any()]
        assert empty == ([len(weights) - 1] if sequence == 0 else [])


def added() -> None:
    pairs = [masks(sequence, convention="0 and 1, added") for sequence in (0, 1)]
    blocked = np.concatenate([weights[mask] for mask, weights in pairs])
    others = np.concatenate([weights[~mask] for mask, weights in pairs])
    assert (blocked > 0).all() and (others > 0).all()
    assert (f"{blocked.mean():.2f}", f"{others.mean():.2f}") == ("0.21", "0.12")
    assert min(weights[t][mask[t]].sum() for mask, weights in pairs for t in range(5)) < 0.5


def lengths() -> np.ndarray:
    return values(titled(scene("05"), "how much")[0])


def writes_against() -> None:
    *writes, total = lengths()
    ratios = np.sum(writes, axis=0) / total
    assert (f"{ratios.min():.1f}", f"{ratios.max():.1f}") == ("2.5", "3.6")


def head_9() -> None:
    writes = import_module("mha_course.explore.n05_head_writes")._writes(12)
    full = writes.sum(dim=0).norm()
    away = [float(w.norm() / full) for w in writes]
    assert away.index(max(away)) == 9 and round(max(away), 2) == 0.5
    assert "50%" in scene("05", h=12, on=tuple(i != 9 for i in range(12))).caption


def loudest_wins() -> None:
    for h, mean in ((1, "0.98"), (12, "0.58")):
        maps = [p for row in scene("06", h=h).panels for p in row if isinstance(p, Heatmap)]
        assert f"{np.mean([values(m).max(-1).mean() for m in maps]):.2f}" == mean


def roles_of_heads() -> None:
    try:
        pretrained.weights_path()
    except Exception as error:
        pytest.skip(str(error))
    best = {}
    every = np.stack([
        np.stack([values(p) for p in scene("08", layer=layer).flat() if p.bare])
        for layer in range(6)
    ])  # fmt: skip
    n = every.shape[-1]
    inner = range(1, n)
    best["previous"] = every[:, :, inner, range(n - 1)].mean(-1)
    best["next"] = every[:, :, range(n - 1), inner].mean(-1)
    best["[CLS]"] = every[:, :, :, 0].mean(-1)
    where = {k: divmod(int(v.argmax()), 12) for k, v in best.items()}
    assert where == {"previous": (0, 2), "next": (1, 8), "[CLS]": (4, 5)}


def slow_pairs() -> None:
    slow = {}
    for base in (10_000, 1_000_000):
        [bars] = titled(scene("10", distance=16, d_k=16, base=base), "tokens for a full turn")
        slow[base] = values(bars)[values(bars) > 10 * 16]
    assert [len(turns) for turns in slow.values()] == [5, 6] and round(slow[10_000].min()) == 199


def sharing_keeps_scores() -> None:
    for h_kv in (1, 2, 4):
        said = scene("11", T=8, h=4, h_kv=h_kv, window="none", step=7).caption
        assert " 32 scores" in said and f" {7 * h_kv} rows of keys" in said


def h_costs_bytes() -> None:
    from mha_course.collection.cost import core_bytes, flops

    assert flops(1024, 512, 1) == flops(1024, 512, 16)
    assert core_bytes(1024, 512, 16, "explicit") > 10 * core_bytes(1024, 512, 1, "explicit")
    one, most = (titled(scene("09", h=h), "time")[0] for h in (1, 16))
    assert max(most.lines["explicit, predicted"]) > max(one.lines["explicit, predicted"])


def guesses_say(**choices: str) -> Callable[[], None]:
    """These choices are right in the stored boxes."""

    def say() -> None:
        boxes = [c.outputs[0].data["text/html"] for book in BOOKS.values() for c in book.cells
                 if "prediction" in c.metadata.get("tags", ())]  # fmt: skip
        for name, label in choices.items():
            verdict = rf'name="{name}"><summary>{label}</summary>.*?<strong>(.*?)</strong>'
            assert re.search(verdict, "".join(boxes), re.S)[1] == "Right."

    return say


# Row by row of each notebook's tables: the results that stand there, and what computes them; None
# for what is trained (nbval compares 07's own words), the class's own, or what test_predict.py
# computes.
ROWS: dict[str, list[tuple[str, Callable[[], None] | None]]] = {
    "01": [
        ("Token 0", only_token_0_stays),
        ("None", values_make_no_weight),
        ("head 1, .85, eight", it_takes_most_from_creek),
        ("32", None),
        (".16, .53", None),  # to two digits in test_claims_01.py
        ("", None),
    ],
    "02": [("None", guesses_say(projections_tied="neither"))],
    "03": [
        ("`contiguous`", moved_at_contiguous),
        ("", guesses_say(memory_one="none")),
        ("a3, head 1, b0", after_permute),
    ],
    "04": [
        ("zero", guesses_say(masks_empty="rows of zeros")),
        ("sequence 0", read_as_keep),
        (".21, .12", added),
    ],
    "05": [("2.5 to 3.6", writes_against), ("head 9", head_9)],
    "06": [
        ("first, last", first_and_last_row),
        ("Two", None),
        (".98, .58", loudest_wins),
    ],
    "07": [("", None), ("", None)],
    "08": [
        ("Layer 0 head 2, layer 1 head 8, layer 4 head 5", roles_of_heads),
        ("", None),
    ],
    "09": [
        ("4,096", guesses_say(cost_gigabyte="4,096", cost_width="not at all")),
        ("bytes", h_costs_bytes),
    ],
    "10": [
        ("Five", slow_pairs),
        ("Six", slow_pairs),
        ("", guesses_say(rotation_rises="it rises")),
    ],
    "11": [
        ("Twelve scores, two rows", guesses_say(cache_scores="12", cache_rows="2")),
        ("32 scores, seven rows", sharing_keeps_scores),
        ("held", sharing_keeps_scores),
    ],
    "12": [
        ("B", guesses_say(review_b="merge it")),
        ("Lowest", None),
        ("None", guesses_say(finds_scale="none")),
    ],
    "13": [
        ("Qwen3-Next", guesses_say(models_first="Qwen3-Next 80B-A3B")),
        ("640", guesses_say(models_rows="640")),
        ("E2B", guesses_say(models_reused="Gemma 4 E2B")),
    ],
}


def rows(book: str) -> list[str]:
    """The right-hand column of what they will see."""
    chapter = part("## Notebook by notebook", "## From memory")
    [section] = [s for s in re.split(r"^### ", chapter, flags=re.M) if s.startswith(book)]
    tables = re.findall(r"what they will see \|\n\|---\|---\|\n((?:\|.*\|\n)+)", section)
    return [line.split(" | ")[-1] for table in tables for line in table.splitlines()]


@pytest.mark.parametrize("book", BOOKS)
def test_what_they_will_see_is_what_is_computed(book):
    for row, (results, computed) in zip(rows(book), ROWS.get(book, []), strict=True):
        assert all(result in row for result in results.split(", ")), row
        if computed:
            computed()


def test_the_questions_to_be_answered_in_words_are_the_banks():
    assert notebooks.with_questions_in_words(GUIDE) == GUIDE
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
    cells = {b: n.cells if everything else minutes.thread(n) for b, n in BOOKS.items() if b > "00"}
    parts = [part for books, _ in PLANS[title] for part in minutes.PART.findall(books)]
    taken = [cell.id for book, *at, _ in parts for cell in minutes.between(cells[book], *at)]
    assert taken == [cell.id for book in cells for cell in cells[book]] and len(WHOLE_WAYS) == 4


@pytest.mark.parametrize("title", [title for title in PLANS if "45" in title])
def test_each_session_holds_what_learners_do_and_fills_its_time(title):
    for books, total in PLANS[title]:
        parts = minutes.PART.findall(books)
        cells = [c for b, *at, _ in parts for c in minutes.between(minutes.thread(BOOKS[b]), *at)]
        folds = [c for b, *_, also in parts for c in minutes.fold(BOOKS[b], also)]
        assert all(bool(also) <= bool(minutes.fold(BOOKS[b], also)) for b, *_, also in parts), books
        does = [
            c for c in cells + folds if {"exercise", "prediction"} & {*c.metadata.get("tags", ())}
        ]
        assert (does or books.startswith("from memory")) and 35 <= int(total) <= 45, books


def test_what_is_asked_aloud_is_counted_at_a_cell_that_is_open():
    """Each table names an explorer's call or a heading, and a lesson takes longer for it."""
    for section in GUIDE.split("### "):
        for table in minutes.QUESTION_TABLE.findall(section):
            cells = minutes.thread(BOOKS[section[:2]])
            more = minutes.in_class(cells, [table]) - minutes.in_class(cells, [])
            assert more == pytest.approx(minutes.ALOUD * table[1].count("\n")) and more > 1, table
    assert GUIDE.count("| ask before") == len(minutes.QUESTION_TABLE.findall(GUIDE))


def test_what_a_plan_may_drop_takes_as_long_as_it_says():
    asked = r"(\d\d) from\s\*([^*]+)\*\s?on \((\d+) minutes"
    found = re.findall(asked, part("## Plans", "## Predict, then look"))
    for book, heading, said in found:
        cells = minutes.between(minutes.thread(BOOKS[book]), heading, "")
        aloud = minutes.QUESTION_TABLE.findall(GUIDE.partition(f"### {book} ")[2].split("### ")[0])
        assert round(minutes.in_class(cells, aloud)) == int(said), heading
    assert found
