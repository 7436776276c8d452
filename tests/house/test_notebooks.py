"""The notebooks' form, which is seen without running them, and their solutions.

nbval (`make test`) runs the notebooks as they are and compares outputs. Where they are cleared it
compares nothing, so these tests ask that there are some.
"""

import ast
import dis
import itertools
import re
import statistics
from contextlib import suppress
from copy import copy
from functools import cache
from types import CodeType
from urllib.parse import unquote

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

import minutes
import notebooks
from mha_course.base.notebook import SECOND, heading, headings, open_thread, second_readings
from mha_course.pages.exporter import run
from mha_course.pictures.colours import ROLES

NOTEBOOKS = notebooks.paths()
ORDER = [path.name for path in NOTEBOOKS]

# Cells whose outputs nbval may not compare, and why. Nothing else may be tagged so.
NOT_COMPARED = """
00 device: names the device and the threads
07 sample-code: the end of a long training, which differs between kinds of processor
12 writes-code: letters that are drawn, which differs between releases of PyTorch
14 model: says so where the weights are not here
02 fused-time / 03 loop-time / 11 time / 14 own-time: a time, this machine's own
09 memory-picture dispatcher-table time-picture time-verdict new-memory passes-code dtype-picture
  claim-fused three-or-one-print threads-code gpu-code explorer: a time or a peak of memory
"""

FIGURE = re.compile(r"<img\b[^>]*>")
# What the panels are, and nothing that is seen in them.
TITLES = re.compile(r"\d+ [a-z ]+(?:(?:,| and) \d+ [a-z ]+)*: [^.]*\.")
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u26ff\u2705\u274c\u2728\ufe0f]")
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|Users|tmp|work|opt|private|var)/\w|[A-Z]:\\\\?Users")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem[:2])


@cache
def cells(path, kind):
    return [cell for cell in notebooks.read(path).cells if cell.cell_type == kind]


def tags(cell):
    return cell.metadata.get("tags", [])


def html(cell):
    bundles = [output.get("data", {}) for output in cell.get("outputs", ())]
    return [data["text/html"] for data in bundles if "text/html" in data]


@each_notebook
def test_is_stored_as_it_ran_from_top_to_bottom(path):
    code = cells(path, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell.outputs) for cell in code) >= len(code) / 3


@each_notebook
def test_is_stored_in_the_normal_form(path):
    """`make notebooks` would change no more than a new run does; each cell has its own id."""
    stored = notebooks.read(path)
    nbformat.validate(stored)  # gives another to a second cell of one id
    assert stored == notebooks.normalise(notebooks.read(path))
    assert set(stored.metadata) == {"kernelspec", "language_info"}
    assert stored.metadata.language_info.file_extension == ".py"  # nbconvert --to script writes it


def test_what_was_measured_stays_until_code_changes_or_it_is_cleared():
    def measured(source, *texts):
        outputs = [nbformat.v4.new_output("stream", text=text) for text in texts]
        cell = nbformat.v4.new_code_cell(source, outputs=outputs)
        cell.metadata.tags = ["nbval-ignore-output"]
        return nbformat.v4.new_notebook(cells=[cell])

    for stored, kept in ((("f()", "2 ms"), "2 ms"), (("f()",), "3 ms"), (("g()", "2 ms"), "3 ms")):
        new = notebooks.keep_measured(measured(*stored), measured("f()", "3 ms"))
        assert new.cells[0].outputs[0].text == kept


@each_notebook
def test_errors_appear_only_where_they_are_meant(path):
    for cell in cells(path, "code"):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in tags(cell)), cell.id


def test_what_is_not_compared_is_listed():
    tagged = {
        (path.stem[:2], cell.id)
        for path in NOTEBOOKS
        for cell in cells(path, "code")
        if {"nbval-ignore-output", "nbval-skip"} & set(tags(cell)) or "NBVAL_" in cell.source
    }
    listed = re.findall(r"(\d\d) ((?:[a-z-]+\s*)+)", re.sub(": .*", "", NOT_COMPARED))
    assert tagged == {(book, name) for book, names in listed for name in names.split()}


@each_notebook
def test_size_and_style(path):
    assert path.stat().st_size < 245_000  # a sixth of it one picture of the whole computation
    fewest = 12 if path.name.startswith("00") else 25
    assert len(notebooks.read(path).cells) >= fewest
    for cell in cells(path, "markdown"):
        text = re.sub(r"```.*?```|\|", "", cell.source, flags=re.S)  # a table's bars are no words
        assert len(text.split()) <= 150, cell.id
    lengths = [len(cell.source.splitlines()) for cell in cells(path, "code")]
    assert max(lengths) <= 25
    assert statistics.median(lengths) <= 6


@each_notebook
def test_what_a_reader_sees_is_narrow_and_begins_with_its_heading(path):
    for cell in cells(path, "markdown"):
        text = re.sub(r"```.*?```", "", cell.source, flags=re.S)
        assert not re.search(r"^#", text.partition("\n")[2], re.M), f"{cell.id}: a heading inside"
    for cell in cells(path, "code"):
        folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        assert max(map(len, cell.source.splitlines())) <= 88, cell.id
        assert folded or "claim" not in tags(cell), f"{cell.id}: a claim's code is plumbing"


@each_notebook
def test_no_printed_line_is_broken_inside_a_word_on_a_laptop(path):
    """JupyterLab breaks what is longer than 88 characters at 1366 px, and not between words."""
    for cell in cells(path, "code"):
        shown = [
            o.get("text") or o.get("data", {}).get("text/plain", "")
            for o in cell.outputs
            if "text/html" not in o.get("data", {})
        ]
        lines = [line for text in shown for line in text.splitlines()]
        assert max(map(len, lines), default=0) <= 88, f"{cell.id}: {max(lines, key=len)}"


def test_coloured_squares_stand_beside_the_word_for_their_role():
    texts = [cell.source for path in NOTEBOOKS for cell in cells(path, "markdown")]
    found = re.findall(r"color:(#\w{6})\"[^*]*\*\*(\w+)\*\*", "\n".join(texts))
    assert {word for _, word in found} >= {"query", "key", "value"}
    assert all(ROLES[word] == colour for colour, word in found)
    assert "\n".join(texts).count("color:") == len(found)  # and colour is used for nothing else


@each_notebook
def test_symbols_in_texts_are_formulas(path):
    set_apart = r"```.*?```|\$\$.+?\$\$|\$.+?\$|`[^`]*`|\]\(.*?\)"  # or code, or a link
    for cell in cells(path, "markdown"):
        text = re.sub(set_apart, "", cell.source, flags=re.S)
        lines = [line for line in text.splitlines() if not line.startswith(("#", ">"))]
        assert not re.findall(r"\b[A-Za-z]_\w+|\w\^\w+", " ".join(lines)), cell.id


@each_notebook
def test_leads_to_its_neighbours(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    here = ORDER.index(path.name)
    for neighbour in ORDER[max(here - 1, 0) : here] + ORDER[here + 1 : here + 2]:
        assert f"({neighbour})" in text
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"a link leads nowhere: {target}"


@each_notebook
def test_where_the_course_is_missing_the_error_shows_how_to_get_it(path):
    """A traceback shows the failing line, and two above it."""
    lines = (line for cell in cells(path, "code") for line in ["", *cell.source.splitlines()])
    above, first = next(
        pair for pair in itertools.pairwise(lines) if re.match("(from|import) mha_", pair[1])
    )
    assert any(line.endswith("# missing? %pip install mha-lesson") for line in (above, first))


@each_notebook
def test_every_picture_says_what_it_shows(path):
    notebook = notebooks.read(path)
    for cell in notebook.cells:
        for source in [cell.source, *html(cell)]:
            for tag in FIGURE.findall(source):
                said = re.search(r'\balt="([^"]{10,})"', tag)
                assert said and not TITLES.fullmatch(said[1]), f"{cell.id}: {said and said[1]}"
            assert not re.search(r"!\[\s*\]\(", source), f"{cell.id}: no alt text"
            for after in re.findall(r"<figure[^>]*><style>.*?</figure>(.{0,9})", source, re.S):
                kept = "nbval-ignore-output" in cell.metadata.get("tags", ())  # as it was measured
                assert kept or "<table" in source or after == "<details>", f"{cell.id}: no numbers"
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                assert html(cell), f"{cell.id}: a PNG without the HTML that carries its alt text"


@each_notebook
def test_no_emoji_and_nothing_of_the_machine_it_ran_on(path):
    text = path.read_text(encoding="utf-8")
    assert not EMOJI.search(text)
    assert not MACHINE.search(re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))


@each_notebook
def test_every_exercise_has_its_hint_its_solution_and_its_check(path):
    notebook = notebooks.read(path)
    stubs = [i for i, cell in enumerate(notebook.cells) if "exercise" in tags(cell)]
    assert len(notebooks.solutions(notebook)) == len(stubs)
    for i in stubs:
        stub, after = notebook.cells[i : i + 2]
        task = max(j for j in range(i) if EXERCISE.match(notebook.cells[j].source))
        folds = "".join(cell.source for cell in notebook.cells[task + 1 : i])
        assert folds.startswith("<details><summary>Hint") and "<summary>Solution" in folds
        name = re.search(r"^(?:def|class) (\w+)", stub.source, re.M)[1]
        assert "check" in tags(after)
        assert after.source == f"check.{name}({name})"


@cache
def names(source):
    """What a cell binds, what it uses of other cells, and what it changes in place."""
    source = TransformerManager().transform_cell(source)
    bound, used = bound_and_used(compile(source, "cell", "exec"))
    changed = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            changed |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return bound, used, changed


def bound_and_used(code):
    """The names that code binds, and those it uses before it binds them. Functions count as called
    at the end, when all is bound.
    """
    bound, used, inside = set(), set(), set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            bound.add(step.argval)
        elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL") and step.argval not in bound:
            used.add(step.argval)
        elif isinstance(step.argval, CodeType):
            inside |= bound_and_used(step.argval)[1]
    return bound, used | (inside - bound)


@each_notebook
def test_a_folded_cell_takes_no_name_that_a_cell_before_it_reads(path):
    """Run again, the earlier cell would read a value that no visible code has made."""
    read = set()
    for cell in cells(path, "code"):
        bound, used, _ = names(cell.source)
        taken = bound & read if {"prediction", "claim"}.intersection(tags(cell)) else set()
        assert not taken, cell.id
        read |= used


def with_what_they_need(code, wanted):
    """The wanted cells, and every cell that made or changed a name which one of them uses.

    Changes by a call, such as a training, are not seen here; nbval runs all cells.
    """
    chosen, missing = [], set()
    for cell in reversed(code):
        bound, used, changed = names(cell.source)
        if cell.id in wanted or (bound | changed) & missing:
            chosen.insert(0, cell)
            missing = (missing - bound) | used
    return chosen


@each_notebook
def test_no_open_cell_reads_what_only_a_fold_makes(path):
    notebook = notebooks.read(path)
    open_ids = {cell.id for cell in open_thread(notebook.cells)}
    made = {True: set(), False: set()}  # by open cells, and by folded ones
    for cell in notebook.cells:
        if cell.cell_type == "code":
            is_open = cell.id in open_ids
            bound, used, _ = names(cell.source)
            assert not is_open or not used & (made[False] - made[True]), cell.id
            made[is_open] |= bound


@pytest.mark.long  # test_practice.py has every solution judged, one by one
def test_solutions_pass_their_checks():
    """In one kernel, notebook after notebook: the open thread alone, with every solution in its
    stub; then the exercises in folds, with the cells that they need."""
    joined, n_exercises = nbformat.v4.new_notebook(metadata=notebooks.METADATA), 0
    for path in NOTEBOOKS:
        notebook = notebooks.read(path)
        answers = notebooks.solutions(notebook)
        n_exercises += len(answers)
        theirs = set().union(*(names(answer)[0] for answer in answers.values()))
        cells = notebooks.with_solutions(notebook).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        open_ids = {cell.id for cell in open_thread(notebook.cells)}
        thread = [cell for cell in code if cell.id in open_ids]
        users = {cell.id for cell in code if cell.id in answers or theirs & names(cell.source)[1]}
        folded = with_what_they_need(code, users - open_ids)
        for part in (thread, folded):
            for cell in part:
                joined.cells.append(copy(cell))
                joined.cells[-1].id = f"{path.stem[:2]}-{len(joined.cells)}-{cell.id}"[:64]
            joined.cells.append(nbformat.v4.new_code_cell("%reset -f"))
    run(joined, notebooks.FOLDER, allow_errors=True)
    errors = {
        cell.id: output.evalue
        for cell in joined.cells
        if "raises-exception" not in tags(cell)
        for output in cell.outputs
        if output.output_type == "error"
    }
    assert not errors
    assert sum("check" in tags(cell) for cell in joined.cells) >= n_exercises > 0


# --- the open thread and second readings ----------------------------------------------------------

OPEN_AT_MOST = (15, 35, 20, 35, 40, 20, *[45] * 9)  # minutes, by notebook
FOLD = re.compile(
    r"## (?P<name>[^\n]+)\n\n\*Second reading, \d+ minutes?: [^\n]+\* "
    r"Skip to \[[^\]\n]+\]\(#(?P<to>[^)\n]+)\)\."
)
LINK = re.compile(r"\]\(([\w.]*)#([^)\s]+)\)")
EXERCISE = re.compile(r"###? Exercise \d")


def anchor(words):
    """As JupyterLab makes it: spaces are hyphens, and a formula is read as it is shown."""
    shown = words.replace(r"$\sqrt{d_k}$", "√d_k").replace("`", "").replace("*", "")
    return shown.strip().replace(" ", "-")


@each_notebook
def test_second_readings_fold_and_say_what_they_are(path):
    """All alike: tagged, folded in JupyterLab, of level two, with a line and a link to skip it."""
    cells = notebooks.read(path).cells
    found = second_readings(notebooks.read(path).cells)
    closed = [c.id for c in cells if c.metadata.get("jp-MarkdownHeadingCollapsed")]
    assert closed == [c.id for c in cells if SECOND in tags(c)]
    assert closed == [fold[0].id for fold in found]
    for fold in found:
        said = FOLD.fullmatch(fold[0].source)
        assert said, fold[0].id
        later = cells[[c.id for c in cells].index(fold[-1].id) + 1 :]
        folded = {cell.id for other in found for cell in other}
        heads = (heading(cell) for cell in later if cell.id not in folded)
        assert unquote(said["to"]) == anchor(dict(reversed([*heads]))[2]), fold[0].id
        assert not any("(second reading)" in h.lower() for h in headings(fold))
        assert len(fold) > 1


def test_no_link_leads_to_a_heading_by_letters_that_jupyterlab_does_not_find():
    """JupyterLab does not decode a fragment: an anchor is plain ASCII, without a formula."""
    for path in NOTEBOOKS:
        for cell in cells(path, "markdown"):
            for _, place in LINK.findall(cell.source):
                assert place.isascii(), f"{cell.id}: {place}"


@each_notebook
def test_exercises_of_second_readings_are_a_level_deeper(path):
    notebook = notebooks.read(path)
    open_ids = {cell.id for cell in open_thread(notebook.cells)}
    for cell in notebook.cells:
        if EXERCISE.match(cell.source):
            assert cell.source.startswith("## " if cell.id in open_ids else "### "), cell.id


def test_no_open_sentence_leads_into_a_fold_without_saying_so():
    inside = {}
    for path in NOTEBOOKS:
        folded = [cell for fold in second_readings(notebooks.read(path).cells) for cell in fold]
        inside[path.name] = {*map(anchor, headings(folded))}
    for path in NOTEBOOKS:
        for cell in open_thread(notebooks.read(path).cells):
            for paragraph in cell.source.split("\n\n") if cell.cell_type == "markdown" else ():
                for to, place in LINK.findall(paragraph):
                    if unquote(place) in inside.get(to or path.name, ()):
                        assert "second reading" in paragraph.lower(), f"{cell.id}: {place}"


@each_notebook
def test_minutes_are_what_they_are_by_the_formula(path):
    notebook = notebooks.read(path)
    stated = [cell.source for cell in minutes.with_minutes(notebooks.read(path)).cells]
    assert [cell.source for cell in notebook.cells] == stated
    assert minutes.ON_THE_TITLE.search(notebook.cells[0].source)
    assert minutes.short_and_full(notebook)[0] <= OPEN_AT_MOST[int(path.name[:2])]


def test_tables_of_minutes_are_up_to_date():
    books = {path.stem: notebooks.read(path) for path in NOTEBOOKS}
    for path in notebooks.TABLES:
        text = path.read_text(encoding="utf-8")
        assert minutes.with_new_tables(text, books) == text, f"make notebooks renews {path.name}"
        assert all(f"{name}.ipynb)" in text for name in books if name != path.stem)


@each_notebook
def test_no_open_cell_makes_one_wait(path):
    """By its tag, for one thread; what takes longer is computed beforehand or folded."""
    notebook = notebooks.read(path)
    waits = [
        [minutes.wait_seconds(cell) for cell in cells]
        for cells in (open_thread(notebook.cells), notebook.cells)
    ]
    assert max(waits[0]) <= 10 and sum(waits[0]) <= 30 and sum(waits[1]) - sum(waits[0]) <= 60


@each_notebook
def test_three_questions_are_said_first_as_the_bank_has_them(path):
    notebook = notebooks.read(path)
    said = [cell.source for cell in open_thread(notebook.cells) if cell.id.startswith("say-first-")]
    assert len(said) == len({*said}) == 3
    again = notebooks.with_questions(notebooks.read(path), path.name[:2])
    assert [cell.source for cell in again.cells] == [cell.source for cell in notebook.cells]


LINES = {  # cells before, the line's, its check; what is right, and what is not
    "02": (
        ("imports", "x", "three-matrices", "three-projections", "values-check"),
        "V = X @ W_v.T + b_v",
        {
            "V = X @ W_v.T": "W_v, without a bias",
            "V = X @ W_k.T + b_v": "W_k, with b_v",
            "V = X @ W_v.T + 2 * b_v": "the numbers are not",
            "V = (X @ W_v.T + b_v).T": "(17, 32) is asked for, this is (32, 17)",
            "V = (X @ W_v.T + b_q).double()": "W_v, with b_q",
        },
    ),
    "05": (
        ("imports", "by-hand", "by-hand-sum-code", "by-hand-sum-check"),
        "write_1 = head_1 @ W_o[:, 2:].T",
        {
            "write_1 = head_1 @ W_o[:, 2:]": "not transposed",
            "write_1 = head_1 @ W_o[:, :2].T": "columns of head 0",
            "write_1 = 1": "(2,) is asked for, this is no tensor but 1",
        },
    ),
}


@pytest.mark.parametrize("book", LINES)
def test_a_line_to_write_is_judged_and_nothing_in_its_place(book, capsys):
    names, right, wrong = LINES[book]
    code = {cell.id: cell.source for cell in notebooks.read(*notebooks.paths(book)).cells}
    *before, line, check = (code[name] for name in names)
    kernel = {}
    for source in before:
        exec(source, kernel)
    dots = right.partition(" = ")[0] + " = ..."
    signs = {dots: "○"} | dict.fromkeys(wrong, "✗") | {right: "✓", "1 / 0": "○", "1 /": "○"}
    for answer, sign in signs.items():
        for first in (True, False):  # a cell that fails at its first run has defined nothing
            names = {**kernel} if first else names
            with suppress(ZeroDivisionError, SyntaxError):
                exec(line.replace(dots, answer), names)
            exec(check, names)
            said = capsys.readouterr().out
            assert said[0] == sign and wrong.get(answer, "") in said, answer
