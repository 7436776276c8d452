"""The teacher's tool, on thirty generated submissions; some are broken, some are hostile."""

import csv
import json
import os
import socket

import pytest
from PIL import Image

import notebooks
from mha_lesson.course import classroom
from mha_lesson.course.classroom import Submission

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the limits need Linux or macOS")

# The right answer to each exercise, as the notebooks' own folded solutions have it.
SOLUTIONS = {
    code.split("(")[0].split()[-1].rstrip(":"): code
    for path in notebooks.paths()
    for code in notebooks.solutions(notebooks.read(path)).values()
}
FIRST = """import math, torch
import torch.nn.functional as F
from torch import nn
from mha_lesson import *
from mha_lesson import check"""
NO_SCALE = "def attention_scores(Q, K):\n    return Q @ K.transpose(-2, -1)"
DIRECT_VIEW = (
    "def split_heads(x, n_heads):\n    B, T, D = x.shape\n"
    "    return x.reshape(B, n_heads, T, D // n_heads)"
)


def write(path, *cells, raw=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [
        {"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None}
        for c in cells
    ]
    content = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content) if raw is None else raw, encoding="utf-8")


def solved(*names):
    return [part for name in names for part in (SOLUTIONS[name], f"check.{name}({name})")]


def native_code(path):
    """Only a wall of the system's stops this one: torch writes the file without asking Python."""
    walled = classroom._walls("/tmp")[:1] == ["bwrap"]
    return [f"torch.save({{}}, {str(path)!r})"] if walled else []


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    return tmp_path_factory.mktemp("outside") / "written.txt"


@pytest.fixture(scope="module")
def submissions(tmp_path_factory, outside):
    folder = tmp_path_factory.mktemp("class")
    good = ("attention_scores", "split_heads", "causal_mask")
    for i in range(10):
        write(folder / f"good_{i}.ipynb", FIRST, *solved(*good))
    for i in range(5):
        write(folder / f"unscaled_{i}.ipynb", FIRST, NO_SCALE,
              "check.attention_scores(attention_scores)")  # fmt: skip
    for i in range(4):
        write(folder / f"view_{i}.ipynb", FIRST, DIRECT_VIEW, "check.split_heads(split_heads)",
              *solved("causal_mask"))  # fmt: skip
    for i in range(2):
        write(folder / f"untouched_{i}.ipynb", FIRST, "def merge_heads(x):\n    ...",
              "check.merge_heads(merge_heads)")  # fmt: skip
    write(folder / "group b/all.ipynb", FIRST, *solved(*SOLUTIONS))
    write(folder / "crashes.ipynb", FIRST, "1 / 0", *solved("causal_mask"), "import no_such_thing")
    write(folder / "endless.ipynb", FIRST, *solved("causal_mask"), "while True: pass")
    write(folder / "greedy.ipynb", FIRST, *solved("causal_mask"),
          "x = torch.ones(10 * 2**30, dtype=torch.uint8)", *solved("merge_heads"))  # fmt: skip
    write(folder / "writes.ipynb", FIRST, f"open({str(outside)!r}, 'w').write('x')",
          f"import os; os.system('touch ' + {str(outside)!r})",
          f"import pathlib; pathlib.Path({str(outside)!r}).write_text('x')",
          *native_code(outside),
          "open('mine.txt', 'w').write('x')", *solved("causal_mask"))  # fmt: skip
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0)
        port = server.getsockname()[1]
        write(folder / "calls.ipynb", FIRST,
              f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
              *solved("causal_mask"))  # fmt: skip
        write(folder / "broken.ipynb", raw='{"cells": [')
        write(folder / "empty.ipynb")
        write(folder / "exits.ipynb", FIRST, *solved("causal_mask"), "import os; os._exit(3)")
        found = classroom.grade(folder, seconds=60, jobs=2)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert len(found) == 30
    return {s.name: s for s in found}


def test_who_solved_what(submissions):
    for name, submission in submissions.items():
        if name.startswith("good"):
            assert submission.note == ""
            assert list(submission.states.values()) == ["done"] * 3
        if name.startswith("unscaled"):
            assert submission.states == {"attention_scores": "tried"}
            assert submission.slips == {"attention_scores": ["no_scale"]}
        if name.startswith("view"):
            assert submission.states == {"split_heads": "tried", "causal_mask": "done"}
        if name.startswith("untouched"):
            assert submission.states == {} and submission.note == ""
    everything = submissions[os.path.join("group b", "all")]
    assert everything.states == dict.fromkeys(SOLUTIONS, "done")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("crashes", ""),
        ("endless", "stopped after 60 s"),
        ("writes", ""),
        ("calls", ""),
        ("greedy", ""),
        ("exits", "stopped before its end (memory, or a crash)"),
    ],
)
def test_trouble_costs_nobody_what_was_solved(submissions, name, note):
    assert submissions[name].states["causal_mask"] == "done"
    assert submissions[name].note == note


def test_ten_gigabytes_are_refused_and_the_rest_still_runs(submissions):
    assert submissions["greedy"].states["merge_heads"] == "done"


def test_nothing_is_written_outside(submissions, outside):
    assert not outside.exists()


def test_unreadable_and_empty_ones_get_a_line(submissions):
    assert submissions["broken"].note.startswith("not a readable notebook")
    assert submissions["empty"].note == "no code in it"


def test_the_report(submissions, tmp_path):
    everyone = list(submissions.values())
    classroom.save(everyone, tmp_path)
    with (tmp_path / "solved.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:-1] == list(classroom.NAMES) and len(rows) == 31
    assert Image.open(tmp_path / "solved.png").width > 300
    slips = classroom.common_slips(everyone)
    assert slips[0][:2] == ("attention_scores", "no_scale") and slips[0][4] == 5
    assert slips[1][0] == "split_heads" and slips[1][4] == 4
    text = classroom.words(everyone)
    assert "endless" in text and "5 × attention_scores" in text and slips[0][2] in text


def test_names_cannot_become_formulas(tmp_path):
    classroom.save([Submission("=HYPERLINK(1)")], tmp_path)
    assert "'=HYPERLINK" in (tmp_path / "solved.csv").read_text(encoding="utf-8")


def test_a_folder_without_notebooks(tmp_path):
    with pytest.raises(SystemExit, match="No notebooks"):
        classroom.grade(tmp_path)
    with pytest.raises(SystemExit, match="is not a folder"):
        classroom.main([str(tmp_path / "nowhere")])
