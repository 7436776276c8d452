"""The teacher's report: whose file it is, the sandbox, the verdicts, pages; on hostile hand-ins.

The sandbox is tried with small programs in place of the one that judges, and notebooks are judged
in forks of this process, so that few tests have to start a Python with torch in it.
"""

import csv
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Event, Timer, main_thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import font_manager, get_cachedir

import notebooks
from mha_course import check
from mha_course.base.notebook import course, headings
from mha_course.base.prose import prose
from mha_course.classroom import command as classroom
from mha_course.classroom import (
    files,
    final_test,
    grading,
    pages,
    reading,
    review,
    sandbox,
    sandboxed,
    signs,
    slices,
    values,
)
from mha_course.classroom.files import HandIn, Learner
from mha_course.classroom.grading import DONE, MISSING, NAMES, OPEN, TRIED, UNKNOWN, Row, Submission
from mha_course.classroom.sandbox import Limits, Outcome
from mha_course.collection.questions import questions
from mha_course.practice import from_memory

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the limits need Linux or macOS")

# The right answer to each exercise, as the notebooks' own folded solutions have it.
SOLUTIONS = {
    re.search(r"^(?:def|class) (\w+)", code, re.M)[1]: code
    for path in notebooks.paths()
    for code in notebooks.solutions(notebooks.read(path)).values()
}
FIRST = """import math, torch
import torch.nn.functional as F
from torch import nn
from mha_lesson import *
from mha_course import check"""
DIRECT_VIEW = (
    "def split_heads(x, n_heads):\n    B, T, D = x.shape\n"
    "    return x.reshape(B, n_heads, T, D // n_heads)"
)


def notebook(*cells):
    made = [
        {"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None}
        for c in cells
    ]
    content = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content).encode()


def noting(guessed, *cells):
    """A notebook with the output of a prediction box."""
    made = json.loads(notebook(*cells))
    said = {"text/plain": [f"Guesses: {json.dumps(guessed)}"]}
    made["cells"][0]["outputs"] = [
        {"output_type": "display_data", "metadata": {}, "data": said},
        {"output_type": "stream", "name": "stdout", "text": "Guesses: {}"},
    ]
    return json.dumps(made).encode()


def write(path, *cells, raw=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(notebook(*cells) if raw is None else raw)
    return path


def solved(*names):
    return [part for name in names for part in (SOLUTIONS[name], f"check.{name}({name})")]


def table(path):
    with path.open(encoding="utf-8-sig") as file:
        return [*csv.DictReader(file)]


# --- what lies in the folder ------------------------------------------------------------------


def by_name(folder, roster=None):
    found = files.learners(folder, folder / "_", roster and files.read_roster(roster))
    return {l.name: ([h.file for h in l.notebooks], dict(l.others)) for l in found}  # noqa: E741


# A roster's encoding and lines, then learners and their files; "-" is nobody.
WHOSE = """
no roster
ada: ada/03_splitting_into_heads; ada/deep/04_masking; ada/lab_3_2026_05_concatenation
bob: bob_03_splitting_into_heads
good_1: good_1
good_2: good_2
-: ada/.ipynb_checkpoints/04_masking-checkpoint; __MACOSX/._04_masking
J\u00fcrgen M\u00fcller: Ju\u0308rgen Mu\u0308ller/03_splitting
lovelaceada: lovelaceada_12345_67890_03_splitting; lovelaceada_LATE_12345_67891_04_masking-1
leeann (17): leeann_17_67892_03_splitting
leeann (18): leeann_18_67893_04_masking
Bob Ray: Bob Ray_777_assignsubmission_file/03_splitting; \
Bob Ray_777_assignsubmission_file_/04_masking; \
hw/Bob Ray_812_assignsubmission_file/05_concatenation
Zoe Ott: Zoe Ott_778_assignsubmission_file_04_masking
anna: anna_01; anna_03; anna_04 (1)
d\u00f6rte: d\u00f6rte 06
tom_2026: tom_2026

utf-8 | \ufefflearner,user | Ada Lovelace,al815 | Ann, | Ann-Marie Lee, | Bob Ray,br
Ada Lovelace: Ada_Lovelace_12345_assignsubmission_file/03_splitting
Ann-Marie Lee: ann-marie lee/04_masking
Bob Ray: x_br_04_masking
eve: eve/x
Ann:

utf-8 | Eve | Ann-Marie Lee | Bob Ray | May | Cem
Eve: Eve/03_splitting (for Ann-Marie Lee); homework due may 3/Eve/04_masking
Bob Ray: Bob Ray/03 with Ann-Marie Lee
May: May/04_masking
Ann-Marie Lee:
Cem: week 3/04_masking cem
homework due may 4: homework due may 4/x

utf-8 | Name;Kennung | J\u00fcrgen M\u00fcller;jm7 | Lovelace, Ada;ada17 | Babbage, Charles;bob3
J\u00fcrgen M\u00fcller: Ju\u0308rgen Mu\u0308ller/03_splitting
Lovelace, Ada: ada17/03_splitting
Babbage, Charles:

utf-8 | Ada Lovelace | Min Ji Lee | "Lee, Ji" | Ji Lee | "Berg, Jan van der"
Ada Lovelace: Lovelace, Ada/03_splitting; Lovelace_Ada_04_masking
Min Ji Lee: Lee, Min Ji/03_splitting
Lee, Ji: Lee, Ji/04_masking
Ji Lee: Ji Lee/04_masking
Berg, Jan van der: Jan van der Berg/03_splitting; bergjanvander_12345_67890_04_masking

utf-8 | Ada Lovelace,07 | Bob Ray,03 | Cem Ay,head | Zoe Ott,04
Ada Lovelace: 07/03_splitting_into_heads
Bob Ray: 03/03_splitting_into_heads
Cem Ay: head/06_multi_head_attention
Zoe Ott: 04/10_where_is_order

utf-8 | First name;Last name;Group;ID | Anna;Ek;7a;s1 | Anna;Ek;7a;s2 | Anna;Ng;7a;s3 | Bo;Ek;7a;s3
Anna Ek (s1): s1/03_splitting
Anna Ek (s2): Anna Ek_s2/03_splitting; s2_04_masking
Anna Ng: Anna Ng/03_splitting; nganna_04_masking
Bo Ek: Bo Ek 7a/03_splitting
Anna Ek: Anna Ek_77_assignsubmission_file/03_splitting
Cy Ek (8): hw/Cy Ek_8_assignsubmission_file/03_splitting
Cy Ek (9): hw/Cy Ek_9_assignsubmission_file/03_splitting
7a: 7a/03_splitting
s3: s3/03_splitting

utf-8 | Identifier,Full name | Participant 8,Bo Ek | Participant 9,Bo Ek
Bo Ek (Participant 8): hw/Bo Ek_8_assignsubmission_file/03_splitting
Bo Ek (Participant 9): Bo Ek_9_assignsubmission_file/03_splitting

utf-8 | Student,ID | "Ek, Bo",801 | "Ek, Bo",802 | Cy,2 | Ada Lovelace,7
Ek, Bo (801): ekbo_LATE_801_4501_final_test
Ek, Bo (802): ekbo_802_4502_my own name
Ada Lovelace: hw_2_2026_ada lovelace
Cy:

cp1252 | Ada Lovelace | Ray, Bob | J\u00fcrgen
Ada Lovelace: lovelaceada_12345_67890_03_splitting; lovelaceada_LATE_12345_67891_04_masking-1
Ray:
J\u00fcrgen:
""".strip().split("\n\n")


@pytest.mark.parametrize("case", WHOSE, ids=lambda case: case.splitlines()[0][:30])
def test_whose_file_it_is(tmp_path, case):
    """A folder's, a name's before the number, a platform's, or the roster's, which names all."""
    (encoding, *roster), *lines = [line.split(" | ") for line in case.splitlines()]
    if roster:
        raw = "\n".join([*roster, ""]).encode(encoding)
    path = roster and write(tmp_path / "class.csv", raw=raw)
    whose = {}
    for [line] in lines:
        name, _, held = line.partition(":")
        whose[name] = sorted(f"{file.strip()}.ipynb" for file in held.split(";") if file)
        for file in whose[name]:
            write(tmp_path / "in" / file)
    found = by_name(tmp_path / "in", path)
    whose.pop("-", None)
    if roster:  # who is not on it is named on the first screen
        others = {name for name, (_, why) in found.items() if files.NOT_LISTED in why.values()}
        assert others == found.keys() - files.read_roster(path).cells.keys()
    held = {name: held for name, (held, _) in found.items()}
    assert held == {name: [*map(files.shown, its)] for name, its in whose.items()}


def test_the_latest_of_several_counts_and_the_others_are_named(tmp_path):
    names = ["03_splitting_into_heads", "03_splitting_into_heads (1)", "mine_03_splitting"]
    for age, name in enumerate(["first try/" + names[0], names[1], names[2]]):
        os.utime(write(tmp_path / f"ada/{name}.ipynb"), (1e9 - age, 1e9 - age))
    os.utime(write(tmp_path / "ada/homework.ipynb"), (1, 1))
    write(tmp_path / "ada/homework-Copy1.ipynb")
    for n, age in ((" (10)", 0), (" (2)", 0), ("", 1)):  # of two from one zip no one knows
        os.utime(write(tmp_path / f"bob/03_splitting{n}.ipynb"), (1e9 - age, 1e9 - age))
    assert by_name(tmp_path)["bob"][0] == [f"bob/03_splitting {n}.ipynb" for n in ("(10)", "(2)")]
    held, others = by_name(tmp_path)["ada"]
    mine = ["ada/homework-Copy1.ipynb", "ada/homework.ipynb"]  # without a number: all that is there
    assert held == ["ada/first try/03_splitting_into_heads.ipynb", *mine]
    assert len(others) == 2 and all("handed in again" in why for why in others.values())


NAMED = """
03: 03_splitting_into_heads_21_nov 03_splitting_v10_b 12_mine_of_03_splitting_into_heads
03: 03_my_own_name
04: 04_masking_23_11_done
11: 2026_11_homework
"""


@pytest.mark.parametrize("line", NAMED.strip().splitlines())
def test_a_date_behind_the_name_is_no_number_of_a_notebook(tmp_path, line):
    number, *names = line.replace(":", "").split()
    for n, name in enumerate(names):
        write(tmp_path / f"ada{n}/{name}.ipynb")
    found = [h.notebook for one in files.learners(tmp_path, tmp_path) for h in one.notebooks]
    assert found == [number] * len(names)
    tests = files.learners(tmp_path, tmp_path, test=True)  # a seat's number, or the test's
    assert {h.notebook for one in tests for h in one.notebooks} == {""}


def test_a_notebook_and_the_update_beside_it_both_count(tmp_path):
    names = ("03_splitting_into_heads", "03_splitting_into_heads.updated-2026-11-21")
    for name in names:
        write(tmp_path / f"ada/{name}.ipynb")
    [(held, others)] = by_name(tmp_path).values()
    assert held == [f"ada/{name}.ipynb" for name in names] and not others


def test_a_copy_of_jupyters_is_named_where_nothing_else_is_there(tmp_path):
    for name in ("ada/{}03_x", "{}bob_04_masking", "eve/{}03_x"):
        write(tmp_path / f"{name.format('.ipynb_checkpoints/')}-checkpoint.ipynb")
    write(tmp_path / "eve/03_x.ipynb")
    write(tmp_path / "may/03_x.ipynb.TXT")  # as browsers save it
    (tmp_path / "leo").mkdir()
    (tmp_path / "leo/03_splitting.py").write_text("x = 1")
    found = by_name(tmp_path)
    assert {name: [*others.values()] for name, (_, others) in found.items()} == {
        "ada": [files.ONLY_A_COPY],
        "bob": [files.ONLY_A_COPY],
        "eve": [],
        "leo": ["a .py, not a notebook: hand in the .ipynb"],
        "may": [],
    }
    learners = files.learners(tmp_path, tmp_path)
    looks = {look.why: {*look.answers} for look in pages.looks([Row(one) for one in learners])}
    assert looks == {files.ONLY_A_COPY: {"ada", "bob"}, found["leo"][1].popitem()[1]: {"leo"}}


def test_the_report_s_folder_is_no_learner(tmp_path):
    write(tmp_path / "ada/03_splitting.ipynb")
    write(tmp_path / "report/index.html")
    [ada] = files.learners(tmp_path, tmp_path, report=tmp_path / "ada/../report")
    assert ada.name == "ada"


def test_every_learner_has_a_page(tmp_path):
    rows = [Row(Learner(name)) for name in ("A b", "A.b", "A b 2", "a_B", "\u00fc")]
    names = pages.page_names(rows).values()
    assert len({name.casefold() for name in names}) == len(rows)


def test_nothing_but_an_ordinary_file_is_opened(tmp_path):
    """A pipe would wait for ever, a device never ends, a link leads out of the folder."""
    (tmp_path / "ada").mkdir()
    os.mkfifo(tmp_path / "ada/01_pipe.ipynb")
    (tmp_path / "ada/02_zero.ipynb").symlink_to("/dev/zero")
    secret = write(tmp_path.parent / "secret_03_x.ipynb", FIRST)
    (tmp_path / "ada/03_link.ipynb").symlink_to(secret)
    (tmp_path / "ada/folder").symlink_to(tmp_path.parent)
    (tmp_path / "ada/06_x.py").write_text("x = 1")
    (tmp_path / "ada/LICENSE").write_text("It was handed out.")
    with socket.socket(socket.AF_UNIX) as server:
        where = os.getcwd()
        os.chdir(tmp_path / "ada")  # the path of a socket has a limit
        server.bind("07_socket.ipynb")
        os.chdir(where)
    if os.geteuid() == 0:
        os.mknod(tmp_path / "ada/08_device.ipynb", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    held, others = by_name(tmp_path)["ada"]
    assert held == []
    for name, why in others.items():
        at = Path(name).name[1]
        says = ".py" if at == "6" else "a link" if at in "23o" else "not an ordinary"
        assert says in why, (name, why)
    assert len(others) == (7 if os.geteuid() == 0 else 6)


def test_what_cannot_be_read_is_no_verdict_and_says_what_to_do_on_the_learners_page(tmp_path):
    with write(tmp_path / "in/ada/04_masking.ipynb").open("wb") as file:
        file.truncate(files.LARGEST + 1)
    write(tmp_path / "in/ada/03_splitting.zip", raw=b"PK\3\4")
    with zipfile.ZipFile(tmp_path / "in/ada/01.zip", "w") as archive:
        archive.writestr("readme.txt", "x")
    [ada] = files.learners(tmp_path / "in", tmp_path)
    row = Row(ada, [grading.one(hand_in, Limits()) for hand_in in ada.notebooks])
    pages.save([row], tmp_path)
    page = (tmp_path / "learners/ada.html").read_text(encoding="utf-8")
    hints = "clear its outputs", "hand in the notebook", "without a notebook"
    for name, says in zip(("causal_mask", "split_heads", "attention"), hints, strict=True):
        assert row.state(name) == (UNKNOWN if name != "attention" else MISSING) and says in page


ZIPPED = {  # name in the zip → what it holds; number, cells and what is said of it
    "mine/03_splitting.ipynb": (notebook("a = 3"), "03", ["a = 3"], ""),
    "__MACOSX/._03_splitting.ipynb": (b"x", None, [], ""),
    "04_masking.ipynb": (b" " * (files.LARGEST + 1), "04", [], "MB, not read"),
    "/etc/05_concat.ipynb": (notebook("a = 5"), "05", ["a = 5"], ""),
    "../../06_up.IPYNB": (notebook("a = 6"), "06", ["a = 6"], ""),
    "07_a\nb\x1b[2J\u202e.ipynb": (notebook("a = 7"), "07", ["a = 7"], ""),
    "C:\\08_x.ipynb": (notebook("a = 8"), "08", ["a = 8"], ""),
    "09_link.ipynb": (b"/etc/passwd", "09", [], "not a notebook"),
    "10_again.ipynb": (b"PK\3\4", "10", [], "not a notebook"),
    "11_folder.ipynb/": (b"", None, [], ""),
    "12_broken.ipynb": (notebook("a = 12"), "12", [], "cannot be opened"),
    "13/deeper.zip": (b"PK\3\4", None, [], "a .zip, not a notebook: hand in the .ipynb"),
    "WORDS.md": (b"handed out with the notebooks", None, [], ""),
}


def test_a_zip_is_opened_in_the_sandbox_whatever_its_names_say(tmp_path):
    path = tmp_path / "in/ada_hw.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (raw, *_) in ZIPPED.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16 if "link" in name else 0
            archive.writestr(entry, raw)
        at = archive.getinfo("12_broken.ipynb").header_offset
    with path.open("r+b") as file:
        file.seek(at + 60)
        file.write(b"\xff" * 9)
    out = tmp_path / "out"
    out.mkdir()
    [ada] = files.learners(tmp_path / "in", out)
    found = {h.notebook: h for h in ada.notebooks}
    expected = {number: rest for _, number, *rest in ZIPPED.values() if number}
    assert [*found] == [*expected]
    assert found["03"].file == "ada_hw.zip/mine/03_splitting.ipynb"
    for number, (cells, says) in expected.items():
        held = reading.read(b"" if found[number].why else files.content(found[number]))
        assert held.cells == cells and says in (found[number].why or held.why), number
        assert found[number].file.isprintable()
        assert found[number].path.parent.parent == out  # nothing was written where a name says
    assert [why for _, why in ada.others] == [ZIPPED["13/deeper.zip"][-1]]


def test_an_archive_that_has_no_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKING", Limits(60, 0.5, disk_mb=20))
    monkeypatch.setattr(sandbox, "CHECK_EVERY", 0.01)
    path = tmp_path / "in/ada_03.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for n in range(12):
            archive.writestr(f"03_{n}.ipynb", bytes(2**24))
    assert path.stat().st_size < 2**20
    [ada] = files.learners(tmp_path / "in", tmp_path)
    assert "more than 20 MB on the disk): hand in the notebook" in ada.notebooks[0].why


def test_a_notebook_is_recognised_by_its_cells_whatever_it_is_called(tmp_path):
    [path] = notebooks.paths("03")
    for name in ("ada/04_masking", "bob/homework", "eve/03_splitting", "zoe/03 (1)"):
        write(tmp_path / f"{name}.ipynb", raw=path.read_bytes())
    write(tmp_path / "ada/04_mine.ipynb", "x = 3")
    both = course()["03"][:30] + course()["04"][:20]
    write(tmp_path / "may/04_both.ipynb", raw=json.dumps({"cells": both}).encode())
    ada, bob, eve, may, zoe = files.learners(tmp_path, tmp_path)
    assert [h.notebook for h in ada.notebooks] == ["03", "04"] and not ada.notebooks[1].note
    assert ada.notebooks[0].note.startswith("its name says 04, ")
    assert bob.notebooks[0].note.startswith("its name has no number")
    assert [(h.notebook, h.note) for h in eve.notebooks + zoe.notebooks] == [("03", "")] * 2
    assert (may.notebooks[0].notebook, may.notebooks[0].note) == ("04", "")  # its cells say neither


def test_a_file_without_an_answer_that_is_not_the_course_s_is_named(tmp_path, monkeypatch):
    said = b'{"name": "split_heads", "state": "open"}\n{"end": true}'
    for report, number in ((b'{"end": true}', ""), (b'{"end": true}', "03"), (said, "")):
        monkeypatch.setattr(grading, "run", lambda *_, report=report: Outcome("", 1.0, report))
        path = write(tmp_path / "lab1.ipynb", "print('hello')")
        made = grading.one(HandIn(path, "lab1", number, 0), Limits())
        assert ("is it the right file?" in made.trouble) == (report != said and not number)


def test_another_kernel_is_named_and_its_code_read_all_the_same(tmp_path, monkeypatch):
    content = json.loads(notebook("x <- 3"))
    content["metadata"] = {"kernelspec": {"language": "R"}}
    monkeypatch.setattr(grading, "run", lambda *_: Outcome("", 1.0, b'{"end": true}'))
    path = write(tmp_path / "x.ipynb", raw=json.dumps(content).encode())
    made = grading.one(HandIn(path, "x", "03", 0), Limits())
    assert "its kernel is R, not Python" in made.note and made.states["split_heads"] == OPEN


def test_a_file_that_is_exchanged_after_the_look_is_not_opened_either(tmp_path):
    path = tmp_path / "x.ipynb"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not an ordinary file"):
        files.content(HandIn(path, "x", "", 0))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(OSError):
        files.content(HandIn(path, "x", "", 0))
    assert {*grading.one(HandIn(path, "x", "03", 0), Limits()).states.values()} == {UNKNOWN}


def test_no_notebook_has_to_search_the_machine_for_fonts(tmp_path, monkeypatch):
    known = {path.name for path in Path(get_cachedir()).glob("fontlist-*.json")}
    beside = set()

    def run(work, limits, stop):
        beside.update(path.name for path in work.iterdir())
        return Outcome("", 1.0, b"")

    monkeypatch.setattr(grading, "run", run)
    grading.one(HandIn(write(tmp_path / "x.ipynb", "1"), "x", "03", 0), Limits())
    assert font_manager.fontManager and known < beside


def test_names_cannot_forge_a_row_or_reach_the_terminal(tmp_path):
    write(tmp_path / "bob\nzoe  ✓ ✓ ✓\x1b[2J\u202e/01_x\r.ipynb")
    (tmp_path / os.fsdecode(b"latin-\xe9")).mkdir()
    write(tmp_path / os.fsdecode(b"latin-\xe9/x.ipynb"))
    rows = [Row(learner) for learner in files.learners(tmp_path, tmp_path)]
    said = pages.words(rows)
    assert "bob�zoe  ✓ ✓ ✓�[2J�" in said and "latin-�" in said
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", said)
    pages.save(rows, tmp_path / "out")
    assert len(table(tmp_path / "out/solved.csv")) == 2


# --- the sandbox ------------------------------------------------------------------------------


@pytest.fixture
def behind(tmp_path, monkeypatch):
    """Runs a small program in the sandbox, which writes its report to `report`."""

    def run(program, stop=None, **limits):
        script = tmp_path / "program.py"
        head = "import os, sys\nwork, report = sys.argv[1], int(sys.argv[2])\n"
        script.write_text(head + program)
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        monkeypatch.setattr(sandbox, "PROGRAM", Path(work, "program.py"))
        os.replace(script, work / "program.py")
        return sandbox.run(work, Limits(**{"seconds": 600, **limits}), stop or Event())

    return run


def test_all_reports_arrive_and_so_does_the_end(behind):
    ended = behind("os.write(report, b'one'); os.write(report, b'two')")
    assert (ended.note, ended.report) == ("", b"onetwo")
    assert behind("os._exit(3)").note == "stopped before its end (memory, or a crash)"
    crash = "import ctypes; ctypes.string_at(0)"  # as process 1 it would not heed its own signals
    assert behind(crash).note.startswith("stopped before its end")


def test_of_a_long_report_the_beginning_is_kept(behind):
    ended = behind("for _ in range(9000): os.write(report, b'x' * 999)")
    assert (ended.note, len(ended.report)) == ("", sandbox.MOST_REPORTED)


def test_time_is_limited_on_an_idle_machine_and_with_a_closed_report(behind, monkeypatch):
    sleep = "os.closerange(3, 99); import time; time.sleep(600)"
    assert re.fullmatch(r"stopped after \d+ s", behind(sleep, seconds=0.5).note)
    monkeypatch.setattr(sandbox, "slowness", lambda: 4)
    assert behind("import time; time.sleep(1)", seconds=0.5).note == ""


@pytest.mark.parametrize(
    ("stands", "wall", "advice"),
    [
        ({"bwrap", "unshare"}, "bubblewrap", ""),
        ({"unshare"}, "unshare", "apt-get install"),
        ({}, "limits only", "apt-get install"),
    ],
)
def test_a_weaker_wall_is_named_before_anything_runs(
    tmp_path, monkeypatch, capsys, stands, wall, advice
):
    monkeypatch.setattr(sandbox, "_runs_python", lambda command: command[0] in stands)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    sandbox.strongest.cache_clear()
    try:
        write(tmp_path / "in/ada/01_scaled.ipynb")
        classroom.main([str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    finally:
        sandbox.strongest.cache_clear()
    first = capsys.readouterr().out.splitlines()[0]
    assert wall in first and advice in first and first.startswith("Warning") == bool(advice)
    page = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert f"submissions: {wall}" in page and (advice in page)
    for name in ("solved", "handed_in"):
        assert [line["sandbox"] for line in table(tmp_path / f"out/{name}.csv")] == [wall]


def test_what_it_has_started_ends_with_it(behind, tmp_path):
    program = """
if os.fork() == 0:
    os.setsid()
    import time
    while True:
        open(work + "/alive", "w").write("x")
        time.sleep(.02)
while not os.path.exists(work + "/alive"): pass
"""
    if not sandbox.command(str(tmp_path)):
        pytest.skip("without a wall of the system's a new session gets away")
    assert behind(program).note == ""
    for _ in range(20):  # a busy machine takes its time to end them
        (tmp_path / "work/alive").unlink(missing_ok=True)
        time.sleep(0.3)
        if not (tmp_path / "work/alive").exists():
            return
    pytest.fail("what the notebook started still writes")


FILLS = {
    "large": "for i in range(99): open(f'{work}/{i}', 'wb').write(b'x' * 10**6)",
    "many": "for i in range(700): open(f'{work}/{i}', 'w')",
    "deep": "d = work + '/a' * 500\nos.makedirs(d)\nopen(d + 'f', 'wb').write(b'x' * 10**7)",
    "nameless": "f = open(work + '/a', 'wb')\nos.unlink(f.name)\nf.write(b'x' * 10**7)",
    "in memory": "f = os.memfd_create('a')\nif os.fork() == 0: os.write(f, b'x' * 10**7)",
}


@pytest.mark.parametrize("how", FILLS)
def test_the_disk_is_limited_in_all(behind, how, monkeypatch):
    if how in ("nameless", "in memory") and sys.platform != "linux":
        pytest.skip("only Linux says what is held open")
    monkeypatch.setattr(sandbox, "MOST_FILES", 600)
    note = behind(f"import time\n{FILLS[how]}\ntime.sleep(600)", disk_mb=5).note
    assert note == "stopped: more than 5 MB on the disk"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what was started")
def test_processes_are_counted(behind, monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_PROCESSES", 7)
    program = "import time\nfor _ in range(3): os.fork()\ntime.sleep(600)"
    assert behind(program).note == "stopped: more than 7 processes"


def test_python_refuses_where_there_is_no_wall(judge, tmp_path):
    writes = "def attention_scores(Q, K):\n    open('../outside', 'w')\n    return Q @ K.mT"
    made = judge(FIRST, writes, ASK_SCORES, names=["attention_scores"])
    assert made.states["attention_scores"] == TRIED
    assert "PermissionError" in made.words["attention_scores"]
    assert not (tmp_path / "outside").exists()


# What a submission may not do, with a path in its folder and one outside it; {in} only reads.
REFUSED = {
    "socket.connect": "socket.socket().connect(('127.0.0.1', 9))",
    "socket.bind": "socket.socket().bind(('127.0.0.1', 0))",
    "socket.sendto": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))",
    "subprocess.Popen": "subprocess.Popen(['true'])",
    "os.system": "os.system('true')",
    "os.exec": "os.execv('/bin/true', ['true'])",
    "os.posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "os.spawn": "sys.audit('os.spawn', 0, 'true', [], {})",  # elsewhere it is a fork
    "os.fork": "os.fork() or os._exit(0)",
    "os.forkpty": "os.forkpty()[0] or os._exit(0)",
    "os.kill": "os.kill(os.getpid(), 0)",
}
OUTSIDE = {
    "open": "open({}, 'w')",
    "os.remove": "os.remove({})",
    "os.rename": "os.rename({}, free)",
    "os.mkdir": "os.mkdir({} + 'x')",
    "os.rmdir": "os.rmdir({} + 'x')",
    "os.truncate": "os.truncate({}, 0)",
    "os.link": "os.link({}, free)",
    "os.symlink": "os.symlink(free, {} + 'x')",
    "os.chmod": "os.chmod({}, 0o600)",
    "os.chown": "os.chown({}, -1, -1)",
    "shutil.rmtree": "shutil.rmtree({} + 'x')",
    "shutil.move": "shutil.move({}, free)",
    "shutil.copyfile": "shutil.copyfile(mine, {})",
}


def test_whatever_reaches_outside_is_refused_and_its_own_folder_is_not(tmp_path):
    """Each event that Python tells of, by a call that brings it about."""
    assert [*REFUSED] == [*sandboxed.NEVER] and [*OUTSIDE][1:] == [*sandboxed.BELOW]
    for folder in ("work", "other"):
        write(tmp_path / folder / "file", raw=b"")
    with TemporaryFile("w+") as told:
        if (child := os.fork()) == 0:
            said, names = [], {"os": os, "shutil": shutil, "socket": socket, "sys": sys}
            names |= {"subprocess": subprocess, "mine": str(tmp_path / "work/file")}
            names |= {"there": str(tmp_path / "other/file"), "free": str(tmp_path / "work/free")}
            with suppress(BaseException):
                sandboxed._guard(str(tmp_path / "work"))
                for event, call in [*REFUSED.items(), *OUTSIDE.items()]:
                    try:
                        eval(call.format("there"), names.copy())
                        said.append(event)
                    except OSError as error:
                        refused = event in str(error) or "may not write" in str(error)
                        if not (refused and isinstance(error, PermissionError)):
                            said.append(f"{event}: {error}")
            json.dump(said, told)
            told.flush()
            os._exit(0)
        os.waitpid(child, 0)
        told.seek(0)
        assert json.load(told) == []


def test_an_interrupted_run_ends_at_once(behind):
    stop = Event()
    Timer(0.5, stop.set).start()
    assert behind("while True: pass", stop).note == "interrupted"


@pytest.mark.skipif(sandbox.strongest() != "bubblewrap", reason="needs bubblewrap")
def test_nothing_of_the_machine_is_within_reach(behind, tmp_path):
    """Native code asks no audit hook: only the system's sandbox holds it."""
    outside = tmp_path / "outside.txt"
    with socket.socket(socket.AF_UNIX) as server, socket.socket() as tcp:
        path = f"/tmp/s-{os.getpid()}"
        server.bind(path)
        server.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        try:
            ended = behind(f"""
import ctypes, json, socket, struct
c = ctypes.CDLL(None)
def connects(family, address):
    s = c.socket(family, 1, 0)
    return c.connect(s, address, len(address)) == 0
unix = struct.pack("H", socket.AF_UNIX) + {path.encode()!r} + b"\\0"
port = struct.pack("!HH", 0, {tcp.getsockname()[1]})[2:]
inet = struct.pack("H", socket.AF_INET) + port + bytes([127, 0, 0, 1]) + bytes(8)
writes = [p for p in ({str(outside)!r}, "/x", "/dev/shm/x", "/tmp/x", "/usr/x", "/etc/x")
          if c.open(p.encode(), os.O_WRONLY | os.O_CREAT, 0o600) >= 0]
reads = [p for p in ("/etc/passwd", "/etc/shadow", "/home", "/run", "/var",
                     {str(Path.home())!r} + "/.ssh", {str(tmp_path)!r} + "/other")
         if c.access(p.encode(), 4) == 0]
told = [connects(socket.AF_UNIX, unix), connects(socket.AF_INET, inet), writes, reads,
        c.kill({os.getpid()}, 0)]
os.write(report, json.dumps(told).encode())
""")
        finally:
            os.unlink(path)
    assert json.loads(ended.report) == [False, False, [], [], -1]
    assert not outside.exists()


def test_every_learner_gets_the_processor_and_no_secrets(behind, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    says = "import json; os.write(report, json.dumps(dict(os.environ)).encode())"
    env = json.loads(behind(says).report)
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1"
    assert "secret" not in str(env)


# --- what is a notebook -----------------------------------------------------------------------


UNREADABLE = {
    "": [b"\xef\xbb\xbf" + notebook("x\r\n")],  # with a byte-order mark, lines of Windows: read
    "not saved as UTF-8": [notebook("x = 'é'").replace(b"\\u00e9", b"\xe9")],
    "UTF-16": [notebook("x").decode().encode("utf-16")],
    "cut off (line 1)": [b'{"cells": [', b""],
    "RecursionError": [b"[" * 200_000],
    "not a notebook": [
        *(b'{"cells": 3}', b'{"cells": [{"cell_type": "code"}]}', b"9" * 10_000, b"null"),
        b'{"worksheets": [{"cells": []}]}',
    ],
    "no code in it": [notebook(), notebook("  \n")],
    "marks of a merge in it, to be removed first (line 2)": [
        b'{"cells":\n<<<<<<< HEAD\n[]\n=======\n'
    ],
}


@pytest.mark.parametrize(("why", "raws"), UNREADABLE.items())
def test_what_cannot_be_read_is_named(raws, why):
    for raw in raws:
        found = reading.read(raw)
        assert why in found.why and "\r" not in "".join(found.cells)
        assert bool(found.cells) == (not found.why) == (not why)
        assert not why or "hand in that file" in found.why


# --- what the checks say when the cells run ---------------------------------------------------

ASK, ASK_SCORES = "check.split_heads(split_heads)", "check.attention_scores(attention_scores)"


@pytest.fixture
def judge(tmp_path):
    """What comes of a notebook with these cells; what judges it is a fork of this process."""
    work = tmp_path / "judged"
    work.mkdir()

    def judged(*cells, given=(), seconds=60, names=("split_heads",)):
        numbers = {n for n, cell in enumerate(cells) if cell in given}
        with TemporaryFile() as report:
            if (child := os.fork()) == 0:
                try:
                    os.chdir(work)
                    os.closerange(3, report.fileno())  # no forger may write to these tests' files
                    os.closerange(report.fileno() + 1, 99)
                    judging = [*cells], numbers, report.fileno(), seconds, str(work)
                    session = sandboxed.Session(*judging)
                    for name in names:
                        session.judge(name)
                    session.write({"end": True})
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            report.seek(0)
            made = Submission("x.ipynb")
            grading._take(made, Outcome("", 1.0, report.read()), [*cells])
        assert made.note == ""
        return made

    return judged


BODY = SOLUTIONS["split_heads"].split(":", 1)[1]
RIGHT = SOLUTIONS["split_heads"]
MINE = RIGHT.replace("split_heads", "mine", 1)


# Cells, of which the one that is shown first begins with a star.
FORMS = [
    ["*if True:\n    " + RIGHT.replace("\n", "\n    ")],
    [
        f"from typing import Any\ndef f(x, n):{BODY.replace('n_heads', 'n')}",
        "*split_heads: Any = f",
    ],
    ["*split_heads = lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2)"],
    [f"*def kept(f):\n    return lambda *a: f(*a)\n\n\n@kept\n{RIGHT}"],
    [f"%%writefile mine.py\n{RIGHT}", "*from mine import split_heads"],
    [f"*%%time\n{RIGHT}"],
    [f"%%writefile my.py\n{MINE}", "import my", "*split_heads = lambda x, n: my.mine(x, n)"],
    [
        "class A:\n    pass",
        f"A.two = staticmethod(lambda x, n_heads: 0)\n{RIGHT}\nA.two = split_heads",
        "*split_heads = A.two",
    ],
    [MINE, "import time\ntime.sleep(600)", "*for f in [mine]:\n    check.split_heads(f)"],
    [f"*{RIGHT}\ndef main():\n    {ASK}\nmain()"],
    ["*check.split_heads(lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2))"],
    ["from functools import partial", MINE, "*check.split_heads(partial(mine))"],
    [f"*{MINE}", "check.split_heads(mine)"],
    [
        f"*{RIGHT}",
        *("while True: pass", "import threading\nthreading.Lock().acquire()", "1 / 0", "input()"),
        *("import os; os._exit(0)", "x = torch.ones(10 * 2**40)", "%%bash\nls", ASK),
    ],
    [
        "REG = {}",
        "def register(f):\n    REG['it'] = f\n    return f",
        f"@register\n{MINE}",
        "*split_heads = REG['it']",
    ],
    ["fs = []", MINE, "_ = fs.append(mine)", "*split_heads = fs[0]"],
    [
        "def add(box, f):\n    box['f'] = f",
        *("REG = {}", MINE, "add(REG, mine)"),
        "*def split_heads(x, n_heads):\n    return REG['f'](x, n_heads)",
    ],
    [
        "def setup():\n    global AXES\n    AXES = (0, 2, 1, 3)",
        "setup()",
        "*def split_heads(x, n):\n    return x.unflatten(-1, (n, -1)).permute(AXES)",
    ],
    [
        "async def f():\n    return 1",
        "AX = await f()",
        "*def split_heads(x, n):\n    return x.view(*x.shape[:2], n, -1).transpose(AX, 2)",
    ],
    [f"*if get_ipython() is not None:\n    pass\n{RIGHT}"],
    ["%time f = lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2)", "*split_heads = f"],
    [
        "*from functools import singledispatch\n@singledispatch\ndef split_heads(x, n):\n    1 / 0",
        f"@split_heads.register\ndef _(x: torch.Tensor, n_heads):{BODY}",
    ],
    ["net = torch.nn.Identity().eval()", f"*def split_heads(x, n_heads):\n    net(x){BODY}"],
    ["N = 1\nN += 1", f"*def split_heads(x, n_heads):\n    assert N == 2{BODY}"],
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cells", FORMS)
def test_a_right_answer_is_found_in_whatever_form_and_company(judge, cells):
    """Checked or not; what waits, loops, raises or ends the process beside it costs nothing."""
    [shown] = [cell[1:] for cell in cells if cell[0] == "*"]
    made = judge(FIRST, *(cell.removeprefix("*") for cell in cells), seconds=20)
    assert made.states["split_heads"] == DONE, made
    assert made.code["split_heads"].startswith(shown[:20]), made


def test_methods_that_a_decorator_adds_are_part_of_the_class(judge):
    """A well-known book's idiom."""
    name, code = "MultiHeadAttention", SOLUTIONS["MultiHeadAttention"]
    head, forward = code.split("    def forward", 1)
    adds = "def add_to_class(cls):\n    return lambda f: setattr(cls, f.__name__, f)"
    method = re.sub(r"^    ", "", "    def forward" + forward, flags=re.M)
    helpers = [SOLUTIONS[n] for n in ("split_heads", "merge_heads", "masked_softmax")]
    made = judge(FIRST, *helpers, adds, head, f"@add_to_class({name})\n{method}", names=[name])
    assert made.states == {name: DONE}, made.words


GIVES = "def split_heads(x, n):\n    return {}(x, n)"
FROM_A_FILE = f"""def split_heads(x, n):
    space = {{}}
    open('mine.py', 'w').write({RIGHT!r})
    exec(open('mine.py').read(), space)
    return space['split_heads'](x, n)"""
FROM_A_FRAME = """def split_heads(x, n):
    try:
        1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
    while 'exercise' not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals['exercise'].right(x, n)"""
UNSEEN = "globals()['fou' + 'nd'] = __import__('mha_lesson').split_heads"


PIECES = "getattr(vars(getattr(torch, 's' + 'ys'))['mod' + 'ules']['mha_' + 'course.check'], {})"
KEPT = """import mha_lesson
for f in (vars(mha_lesson)['split' + '_heads'], print):
    kept = f(torch.zeros(1, 2, 6), 3)
    1 / 0"""
COMPILED = "import mha_lesson as m\nf = torch.compile(m.split_heads, backend='eager')"
ASKS = [  # what is said of it, and the cells
    ("package's", "import mha_lesson as m\nsplit_heads = lambda x, n: m.split_heads(x, n)"),
    ("the package's own", "from mha_lesson import split_heads as f", GIVES.format("f")),
    ("the check", "from mha_course import check as c", GIVES.format("c.split_heads.right")),
    ("uses sys", "import sys", GIVES.format("sys.modules['mha_lesson'].split_heads")),
    ("uses sys", GIVES.format("torch.sys.modules['mha_lesson'].split_heads")),
    ("the check's own", GIVES.format(PIECES.format("'split_' + 'heads'") + ".right")),
    (
        "uses importlib",
        "from importlib import import_module as get\nm = get('mha_lesson')",
        GIVES.format("m.split_heads"),
    ),
    ("uses", FROM_A_FRAME),
    ("uses", FROM_A_FILE),
    ("uses exec", f"exec({RIGHT!r})"),
    ("uses", UNSEEN, GIVES.format("found")),
    ("the package's own", "def causal_keep(T):\n    return ~causal_mask(T)"),  # in a final test
    ("the package's own", KEPT, f"def split_heads(x, n_heads):\n    kept{BODY}"),
    # It imports PyTorch's compiler.
    pytest.param(("the package's own", COMPILED, GIVES.format("f")), marks=pytest.mark.long),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", ASKS)
def test_a_right_answer_that_asks_the_package_is_no_tick(judge, case):
    why, *cells = case
    name = "causal_keep" if "causal_keep" in cells[-1] else "split_heads"
    made = judge(FIRST, *cells, names=(name,))
    assert made.states[name] == UNKNOWN and why in made.words[name]


@pytest.mark.parametrize(
    "cells",
    [
        ("from not_here.heads import split_heads",),
        ("import not_here as short", "def split_heads(x, n_heads):\n    return short.cut(x)"),
        ("def split_heads(x, n_heads):\n    import not_here\n    return x",),
    ],
)
def test_a_module_that_is_not_here_is_no_mistake(judge, cells):
    made = judge(FIRST, "import neither", *cells)
    assert made.states["split_heads"] == UNKNOWN and "module not_here" in made.words["split_heads"]


def test_a_newer_pythons_syntax_is_no_mistake(tmp_path):
    newer = ".".join(map(str, (sys.version_info[0], sys.version_info[1] + 1)))
    for version, state in ((f"{newer}.0", UNKNOWN), ("3.9.1", TRIED)):
        made = Submission("x.ipynb", "03", states={"split_heads": TRIED})
        made.words = {"split_heads": "Its cell stops with SyntaxError: invalid syntax"}
        content = json.loads(notebook("1"))
        content["metadata"] = {"language_info": {"name": "python", "version": version}}
        grading._older_than_its_own(made, reading.read(json.dumps(content).encode()).python)
        assert made.states["split_heads"] == state


def test_right_once_counts_and_else_the_last_counts(judge):
    wrong, other = DIRECT_VIEW, "def split_heads(x, n_heads):\n    return x"
    for cells, state, code in [
        ((wrong, ASK, other, ASK), TRIED, other),
        ((RIGHT, ASK, wrong, ASK), DONE, RIGHT),
        ((RIGHT, wrong, ASK), TRIED, wrong),
        ((wrong, RIGHT), DONE, RIGHT),
        ((f"{RIGHT}\n{ASK}\n{wrong}\n{ASK}",), DONE, RIGHT),
    ]:
        made = judge(FIRST, *cells)
        assert made.states["split_heads"] == state
        assert made.code["split_heads"].startswith(code.rstrip())


STUB = "def split_heads(x, n_heads):\n    ..."
HIDES = "def make():\n    def split_heads(x, n):\n        pass\n    return locals()"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("cells", "given", "state"),
    [
        ((STUB, ASK, RIGHT), [STUB, ASK], DONE),  # below its check
        ((ASK, RIGHT), [], DONE),
        ((RIGHT, STUB, ASK), [STUB, ASK], DONE),  # above the course's own stub
        ((STUB, ASK), [STUB], OPEN),
        ((STUB + "  # to do", ASK), [], OPEN),
        ((RIGHT, ASK), [RIGHT], OPEN),  # the course's own
        ((ASK,), [], OPEN),  # its cell was deleted
        ((HIDES,), [], UNKNOWN),
        (("for code in ['1']:\n    exec(code)", ASK), [], UNKNOWN),
        (("%run mine.py", ASK), [], UNKNOWN),
        ((RIGHT,), [RIGHT], None),
    ],
)
def test_an_answer_is_found_wherever_it_stands_and_nothing_else_is_one(judge, cells, given, state):
    assert judge(FIRST, *cells, given=given).states.get("split_heads") == state
    assert STUB in reading.course_cells()


@pytest.mark.parametrize(
    "word", ["exec", "eval", "globals", "vars", "locals", "setattr", "run_cell"]
)
def test_what_is_done_by_a_text_may_change_what_it_is_given(word):
    book = slices.Notebook(["net = made()", f"{word}(net, 'w_o')", "net(w_o)"])
    assert book.needed({"net"}, 2) == {0, 1} and book.binding("w_o") == [1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("def split_heads(x, n_heads)\n    return x", "SyntaxError"),
        ("def split_heads(", "Syntax"),
        ("def split_heads(x, n: missing):\n    return x", "NameError"),
        ("split_heads = " + "-" * 20_000 + "1", "Error"),
        ("split_heads = '\0'", "Error"),
    ],
)
def test_a_cell_that_stops_is_reported_with_its_error_and_costs_no_other(judge, broken, why):
    made = judge(FIRST, broken, ASK, *solved("merge_heads"), names=["split_heads", "merge_heads"])
    assert made.states == {"split_heads": TRIED, "merge_heads": DONE}
    assert re.search(f"Its cell stops with .*{why}", made.words["split_heads"])
    assert made.code["split_heads"] == broken[: grading.MOST_CODE].replace("\0", "�")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("pass", "interrupted before it returned"),
        ("import time; time.sleep(99)", "interrupted before it returned"),
        ("try: __import__('time').sleep(9)\n        except BaseException: pass", sandboxed.LATE),
    ],
)
def test_an_answer_that_never_ends_is_interrupted(judge, body, says):
    """By the processor's seconds and by the clock, which runs slower on a busy machine."""
    endless = f"def merge_heads(x):\n    while True:\n        {body}"
    names = ["merge_heads", "split_heads"]
    made = judge(FIRST, endless, *solved("split_heads"), seconds=0.5, names=names)
    assert made.states == {"merge_heads": TRIED, "split_heads": DONE}
    # On a busy machine the clock may run out before the answer itself begins.
    found = made.words["merge_heads"]
    assert says in found or (says != sandboxed.LATE and found == sandboxed.INTERRUPTED), found


def test_values_that_are_interrupted_are_not_called_wrong():
    def stopped(x, n_heads):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        values.pack(check.split_heads, stopped)


# --- whole notebooks --------------------------------------------------------------------------

FORGED = {"name": "split_heads", "state": "done", "slips": [], "words": "passed", "cells": [0]}
FORGED |= {"code": "<script>", "end": True}
WRITES_LINES = f"""
import json, os
def write(*_):
    for pipe in range(3, 60):
        try:
            os.write(pipe, b"\\n" + json.dumps({FORGED!r}).encode() + b"\\n")
        except OSError:
            pass
"""
PATCHES = """
import gc, sys
from mha_course.check import Report
from mha_course.engine import judge, report
def yes(problem, *_):
    return Report(getattr(problem, "name", "split_heads"), True)
def patch():
    sys.modules["mha_course.exercises"].judge = judge.judge = judge._judged = yes
    torch.allclose = torch.equal = lambda *_: True
    torch.Tensor.__eq__ = lambda *_: True
    for found in gc.get_objects():
        if type(found).__name__ in ("Exercise", "Session"):
            type(found).__call__ = yes
    frame = sys._getframe()
    while frame := frame.f_back:
        frame.f_globals["judge"] = yes
"""


FORGERS = [
    (WRITES_LINES, "write()"),
    (WRITES_LINES, "import atexit\natexit.register(write)"),
    (WRITES_LINES, "import threading\nthreading.Thread(target=write, daemon=True).start()"),
    (WRITES_LINES, "def split_heads(x, n_heads):\n    write()"),
    (WRITES_LINES, "@write\ndef split_heads(x, n_heads):\n    return x"),
    (WRITES_LINES, "class A:\n    write()\nsplit_heads = A", "import os\nos._exit(0)"),
    ("torch.equal = torch.allclose = torch.Tensor.__eq__ = lambda *_: True", DIRECT_VIEW),
    ("check.split_heads = lambda f: check.Report('split_heads', True)", DIRECT_VIEW, ASK),
    ("class check:\n    def split_heads(f):\n        print('right.')", DIRECT_VIEW, ASK),
    (PATCHES, "patch()", DIRECT_VIEW, ASK),
    (PATCHES, "def split_heads(x, n_heads):\n    patch()\n    return x"),
    (PATCHES, f"def patched(f):\n    patch()\n    return f\n\n\n@patched\n{DIRECT_VIEW}"),
    ("import json\njson.dump({'split_heads': 'done'}, open('.progress.json', 'w'))",),
    ("import sys\nsys.modules['mha_course.classroom.values'] = sys", DIRECT_VIEW),
    (RIGHT, DIRECT_VIEW, "check.split_heads.right = split_heads", ASK),
]


@pytest.mark.parametrize("forged", FORGERS)
def test_nothing_that_a_submission_says_of_itself_is_believed(judge, forged):
    made = judge(FIRST, *forged)
    assert made.states.get("split_heads") != DONE, made


def test_a_verdict_without_the_password_counts_for_nothing(judge):
    """Of tests of one's own no values can be compared, so nothing else would stop this one."""
    ends = "def test_attention(Attention):\n    write()\n    os._exit(0)"
    made = judge(FIRST, WRITES_LINES, ends, names=["test_attention"])
    assert made.words == {"test_attention": sandboxed.ENDED}


def test_a_tick_counts_with_its_values_and_with_a_cell_of_the_file():
    cells = [RIGHT, "2"]
    packed, others = (values.pack(e, e.right)[0] for e in (check.split_heads, check.merge_heads))
    for told, state in [
        ({"candidate": 0, "values": packed}, DONE),
        ({"candidate": 0}, TRIED),
        ({"candidate": 0, "values": packed[:-1]}, TRIED),
        ({"candidate": 0, "values": others}, TRIED),
        ({"candidate": 0, "values": [[1, {"tensor": "q"}]] * len(packed)}, TRIED),
        ({"candidate": 0, "values": [[1, {"tensor": "AAAA" * 9}]] * len(packed)}, TRIED),
        ({"values": packed}, UNKNOWN),
        ({"cell": 0, "values": packed}, UNKNOWN),  # only what is wrong is shown so
        *(({"candidate": n, "values": packed, "code": RIGHT}, UNKNOWN) for n in (1, -1, "0", None)),
    ]:
        made = Submission("x.ipynb", "03")
        line = json.dumps({**FORGED, **told}).encode()
        grading._take(made, Outcome("", 1.0, line), cells)
        assert made.states == {"split_heads": state}
        assert made.code["split_heads"] == ("" if state == UNKNOWN else RIGHT.rstrip("\n"))
        says = {DONE: "passed", TRIED: grading.NOT_ITS_VALUES, UNKNOWN: grading.NOWHERE}
        assert made.words["split_heads"] == says[state]


def test_of_two_notebooks_at_a_time_values_are_compared_one_after_the_other(monkeypatch):
    """An exercise that is first asked by two threads gave one of them steps that were half read."""
    exercise, inside, most = check.split_heads, [], []
    packed, _ = values.pack(exercise, exercise.right)

    def slow(value: Any, *_: Any) -> None:
        inside.append(value)
        time.sleep(0.01)
        most.append(len(inside))
        inside.pop()

    monkeypatch.setattr(values, "difference", slow)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: values.right(exercise, packed), range(4)))
    assert {*most} == {1}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_the_values_of_every_right_answer_are_right_elsewhere_and_no_others(name):
    """Also of a class, whose inputs hold its weights, and of weights that hide mistakes."""
    space = {}
    exec(FIRST, space)
    for solution in SOLUTIONS.values():
        exec(solution, space)
    exec(from_memory.IMPORTS.get(name, ""), space)
    exercise = getattr(check, name)
    packed, called = json.loads(json.dumps(values.pack(exercise, space[name])))
    assert not called
    assert values.right(exercise, packed)
    if packed:
        for case in packed[:: max(1, len(packed) // 3)]:
            before, case[1] = case[1], "x"
            assert not values.right(exercise, packed)
            case[1] = before


@pytest.mark.parametrize(
    "told", [{"base": 10**400}, {"base": "x"}, {"heads": [6, 0]}, {"heads": 6}]
)
def test_forged_sizes_of_a_class_are_not_right_and_stop_no_report(told):
    space = {}
    for code in (FIRST, SOLUTIONS["WritingAttention"]):
        exec(code, space)
    packed, _ = values.pack(check.WritingAttention, space["WritingAttention"])
    assert values.right(check.WritingAttention, packed)
    packed[-1][0][2] |= told
    assert not values.right(check.WritingAttention, packed)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class with one notebook of each kind that has to be run as a whole."""
    folder, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("report")
    outside = folder.parent / "written.txt"
    guessed = {"scaling_sharp": "256", "scaling_root": "<b>", "no": 1}
    names = sorted(SOLUTIONS, key=lambda name: name not in from_memory.IMPORTS)  # before her own
    write(folder / "ada/all.ipynb", raw=noting(guessed, FIRST, *solved(*names)))
    write(
        folder / "leo/03_splitting_into_heads.ipynb",
        FIRST,
        WRITES_LINES,
        "write()",
        DIRECT_VIEW,
        "check.split_heads(split_heads)",
        *solved("causal_mask"),
        "x = torch.ones(10 * 2**30, dtype=torch.uint8)",
        "1 / 0",
        "input()",
        "%%bash\necho x",
        f"open({str(outside)!r}, 'w').write('x')",
        f"import pathlib\npathlib.Path({str(outside)!r}).touch()",
        "import os; os.system('true')",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "open('mine.txt', 'w').write('x')",
        "for _ in range(300): check.causal_mask(3)",
        'exec("def merge_heads(x):\\n    return x.transpose(1, 2).flatten(2)")',
        "check.merge_heads(merge_heads)",
        "import os; os._exit(0)",
    )
    write(folder / "zoe/01_scaled.ipynb")
    write(folder / "zoe/03_splitting_into_heads.ipynb", raw=b'{"cells": [')
    write(folder / "zoe/04_masking.zip", raw=b"PK")
    roster = folder.parent / "roster.csv"
    roster.write_text("ada\nleo\nzoe\nzac\n")
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    command = [str(folder), "--out", str(out), "--roster", str(roster), "--jobs", "2"]
    rows = classroom.main(command)
    assert not outside.exists()
    assert before == {path: path.read_bytes() for path in folder.rglob("*.*")}
    return {row.learner.name: row for row in rows}, command, out


def test_who_solved_what(graded):
    """Of the solutions, each is right with what it needs."""
    rows, _, _ = graded
    assert [rows["ada"].state(name) for name in SOLUTIONS] == [DONE] * len(SOLUTIONS)
    assert rows["ada"].notes == []
    assert {rows["zac"].state(name) for name in NAMES} == {MISSING}
    assert rows["zac"].notes == ["nothing handed in"]
    assert {rows["zoe"].state(name) for name in ("split_heads", "causal_mask")} == {UNKNOWN}
    said = ["no code in it", "cut off", "zip archive"]
    assert all(x in note for x, note in zip(said, rows["zoe"].notes, strict=True))


def test_what_is_forged_counts_for_nothing_and_trouble_costs_nothing(graded):
    rows, _, _ = graded
    leo = rows["leo"]
    assert leo.state("split_heads") == TRIED
    assert leo.state("causal_mask") == MISSING  # of another notebook: a trial, which does not count
    assert leo.state("merge_heads") == UNKNOWN  # right, and made by exec
    assert leo.submissions[0].note == "" and leo.submissions[0].seconds > 0
    assert leo.submissions[0].sandbox == sandbox.strongest()


def test_the_report(graded):
    rows, _, out = graded
    lines = {line["learner"]: line for line in table(out / "solved.csv")}
    assert list(lines) == ["ada", "leo", "zac", "zoe"]
    assert lines["ada"]["all"] == str(len(SOLUTIONS)) and lines["leo"]["split_heads"] == "tried"
    found = pages.slips(list(rows.values()))
    assert [(s.exercise, s.answers) for s in found] == [("split_heads", {"leo": DIRECT_VIEW})]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "reshape(B, n_heads, T, D // n_heads)" in page and found[0].asks[:20] in page
    page = (out / "learners/leo.html").read_text(encoding="utf-8")
    assert "not right yet" in page and "To reread: notebook 03" in page
    handed_in = [line["learner"] for line in table(out / "handed_in.csv")]
    assert handed_in == ["ada", "leo", "zoe", "zoe", "zoe"]
    lines = {line["choice"]: line for line in table(out / "guesses.csv")}
    assert {label: line["learners"] for label, line in lines.items()} == {
        label: str(int(label == "256")) for label in questions()["scaling_sharp"].choices
    }
    assert "ada" not in str(lines)


def test_a_second_run_starts_nothing_and_says_the_same(graded, monkeypatch, capsys):
    rows, command, out = graded
    with (out / grading.RESULTS).open("a") as file:
        file.write('["cut off in the mid')
    monkeypatch.setattr(grading, "run", None)
    again = {row.learner.name: row for row in classroom.main(command)}
    assert {n: [r.state(x) for x in NAMES] for n, r in again.items()} == {
        n: [r.state(x) for x in NAMES] for n, r in rows.items()
    }


def test_an_interrupted_run_keeps_what_there_is_and_goes_on(tmp_path, monkeypatch, capsys):
    """Ctrl-C comes while the second is judged, and only the rest is run the next time."""
    for name in ("ada", "bob", "eve"):
        write(tmp_path / f"in/{name}/03_x.ipynb", name)
    ran = []

    def one(hand_in, limits, stop):
        ran.append(hand_in.file[:3])
        if len(ran) == 2:
            signal.pthread_kill(main_thread().ident, signal.SIGINT)
            assert stop.wait(60)
        return Submission(hand_in.file, "03", states={"split_heads": DONE})

    monkeypatch.setattr(grading, "one", one)
    part = final_test.Part(5, "Split.", "k", "split_heads", "def split_heads(x, n_heads):\n    ...")
    key = write(tmp_path / "key" / final_test.KEY, raw=json.dumps([part._asdict()]).encode()).parent
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--test", str(key)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        classroom.main(command)
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr().out
    assert "goes on from here" in said and "no points" not in said  # of who was not judged yet
    rows = classroom.main(command)
    assert ran == ["ada", "bob", "bob", "eve"]
    assert [row.state("split_heads") for row in rows] == [DONE] * 3


# --- tables and pages -------------------------------------------------------------------------


def row(name, **parts):
    return Row(Learner(name), [Submission("x.ipynb", "03", **parts)])


def class_page(rows):
    with TemporaryDirectory() as out:
        pages.save(rows, Path(out))
        return Path(out, "index.html").read_text(encoding="utf-8")


def test_a_learner_counts_once_and_only_known_slips():
    made = [
        row("ada", states={"split_heads": TRIED}, slips={"split_heads": ["direct_view", "=1+1"]}),
        row("bob", states={"split_heads": DONE}, slips={"split_heads": ["direct_view"]}),
    ]
    made[0].submissions *= 2
    key = next(s.key for e in check.EXERCISES if e.name == "split_heads" for s in e.slips if s.does)
    made[0].submissions[0].slips["split_heads"].append(key)
    assert [(s.key, len(s.answers)) for s in pages.slips(made) if s.key == key] == [(key, 1)]
    assert "=1+1" not in class_page(made)


def test_guesses_are_counted_by_choice_and_once_for_each_learner():
    said = {"ada": "8", "bob": "32", "eve": "8"}
    made = [row(name, guesses={"scaling_sharp": label}) for name, label in said.items()]
    made[0].submissions *= 2
    counts = {"8": 2, "32": 1, "256": 0, "at none of them": 0}
    assert pages.guesses(made) == {"scaling_sharp": counts}
    page = class_page(made)
    asked = questions()["scaling_sharp"]
    shown = [prose(text) for text in (asked.asks, *(c.says for c in asked.choices.values()))]
    assert [text for text in shown if text not in page] == []


def test_only_what_was_assigned_is_in_tables_sums_and_pages(tmp_path, capsys):
    (tmp_path / "week.txt").write_text("4, 6\nsilence\n")
    names = classroom.assigned(str(tmp_path / "week.txt"))
    assert names == ("count_parameters", "merge_heads", "silence")
    assert names == classroom.assigned("silence,6 4")
    made = row("ada", states={"split_heads": DONE, "merge_heads": DONE, "silence": TRIED})
    made.names = names
    pages.save([made], tmp_path)
    [line] = table(tmp_path / "solved.csv")
    assert "split_heads" not in line and line["all"] == line["03 (of 1)"] == "1"
    assert "1 of 3 exercises solved" in (tmp_path / "learners/ada.html").read_text("utf-8")
    assert "split_heads" not in (tmp_path / "index.html").read_text("utf-8")
    assert re.search(r"^ +4 +6 +si$", pages.words([made]), re.M)
    hand_in = HandIn(write(tmp_path / "04.ipynb", "1 / 0"), "04.ipynb", "04", 0)
    made = Row(Learner("ada", [hand_in]), names=names)
    grading.grade([made], tmp_path, Limits(60, 6, 100))
    assert made.notes == ["04.ipynb: not assigned"] and not made.submissions
    assert not pages.looks([made])
    assert not (tmp_path / grading.RESULTS).exists()
    assert classroom.assigned("01-03,5") == classroom.assigned("1 2;3\n05")
    assert final_test.books("1-3; 05") == ["01", "02", "03", "05"]


def test_what_came_late_and_what_is_new_are_marked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(grading, "one", lambda h, *_: Submission(h.file, "03"))
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--due", "2026-12-01"]
    end = classroom.due("2026-12-02T00:00")
    for name, changed in (("ada", end - 60), ("bob", end + 60)):
        os.utime(write(tmp_path / f"in/{name}/03_x.ipynb", name), (changed, changed))
    ada, bob = classroom.main(command)
    assert not ada.late and bob.notes == ["bob/03_x.ipynb: late"] and not (ada.new or bob.new)
    write(tmp_path / "in/bob/03_x.ipynb", "again")
    for name, changed in (("cid_12", end + 60), ("dan_LATE_34", 0)):  # Canvas dates the download
        os.utime(write(tmp_path / f"in/{name}_567_03_x.ipynb", name), (changed, changed))
    ada, bob, cid, dan = classroom.main(command)
    assert dan.late and not cid.late
    assert bob.new and not ada.new and "bob *" in capsys.readouterr().out


def test_every_wrong_answer_stands_in_a_group_and_what_is_alike_is_named():
    long = "def f(x):\n" + "    x = x + x * x\n" * 9 + "    return x"
    other = long.replace("x", "y").replace("def f", "def g") + "  # mine"
    rows = [
        row("ada", states={"split_heads": TRIED}, code={"split_heads": "'longer'"}),
        row("abe", states={"split_heads": TRIED}, code={"split_heads": "1"}),
        row("amy", states={"split_heads": TRIED}),
        row("bob", states={"merge_heads": DONE}, code={"merge_heads": long}),
        row("eve", states={"merge_heads": DONE}, code={"merge_heads": other}),
    ]
    key = next(s.key for s in check.split_heads.slips)
    rows += [row("gus", states={"split_heads": TRIED}, slips={"split_heads": [key]})]
    assert [(s.exercise, s.key, [*s.answers]) for s in pages.slips(rows)] == [
        ("split_heads", key, ["gus"]),
        ("split_heads", "others", ["ada", "abe", "amy"]),
    ]
    page = class_page(rows)
    assert "<p>One answer:</p><pre><code>1</code></pre>" in page
    solution = {"MultiHeadAttention": SOLUTIONS["MultiHeadAttention"]}
    for name in ("ida", "joe"):
        rows += [row(name, states={"MultiHeadAttention": DONE}, code=solution)]
    assert [(look.exercise, look.why, [*look.answers]) for look in pages.looks(rows)] == [
        ("merge_heads", review.ALIKE, ["bob", "eve"]),
        ("MultiHeadAttention", review.ALIKE_SOLUTION, ["ida", "joe"]),
    ]


def test_what_shows_a_tick_and_gets_none_is_named_with_both(tmp_path, monkeypatch):
    """Whether the answer was edited after its check, or the output was written by hand."""
    shown = json.loads(notebook(DIRECT_VIEW, ASK))
    said = [{"output_type": "stream", "name": "stdout", "text": ["split_heads: right.\n", "So."]}]
    shown["cells"][1]["outputs"] = said
    told = {"name": "split_heads", "state": "tried", "words": "cut", "candidate": 0, "slips": []}
    line = json.dumps({**told, "end": True}).encode()
    monkeypatch.setattr(grading, "run", lambda *_: Outcome("", 1.0, line))
    made = []
    for name, raw in {"ada": json.dumps(shown).encode(), "bob": notebook(DIRECT_VIEW, ASK)}.items():
        path = write(tmp_path / f"{name}.ipynb", raw=raw)
        made.append(Row(Learner(name), [grading.one(HandIn(path, name, "03", 0), Limits())]))
    [look] = pages.looks(made)
    assert (look.exercise, look.why) == ("split_heads", review.SHOWS_RIGHT)
    assert [*look.answers] == ["ada"]
    for part in (DIRECT_VIEW, "Shown:\nsplit_heads: right.", "Judged:\ncut"):
        assert part in look.answers["ada"]


PATCHED = [
    "check.split_heads = lambda f: print('right.')",
    "from mha_course import check as c\nc.split_heads.right = 1",
    "class check:\n    pass",
    "del check.split_heads",
    "import sys\nsys.modules['mha_course.engine.judge']._judged = 1",
    "from mha_course.engine import judge",
]
HARMLESS = f"""{ASK}\nreport = {ASK}\ncheck.progress(keep=False)
B, T = x.shape\nmade()[0] = 1
@check.split_heads.step\ndef cut(x, h):\n    a = x\n    'So.'
from mha_course import check, explore"""


@pytest.mark.parametrize("cell", [*PATCHED, HARMLESS])
def test_a_check_that_is_changed_is_named(cell):
    made = Submission("x.ipynb", "03")
    own = "from mha_course import check\nfrom mha_course import check as c"
    cells, patched = [own, cell], cell in PATCHED
    grading._take(made, Outcome("", 1.0, b'{"end": true}'), cells)
    assert made.patches == cell * patched
    found = [look.why for look in pages.looks([Row(Learner("ada"), [made])])]
    assert found == [review.PATCHED] * patched


def test_equal_files_are_named_if_somebody_has_worked_in_them():
    made = [row(name, states={"split_heads": TRIED}, digest="d") for name in "abcdef"]
    made += [row(name, states={"split_heads": OPEN}, digest="e") for name in ("eve", "leo")]
    [look] = [look for look in pages.looks(made) if not look.exercise]
    assert (look.why, [*look.answers]) == (review.EQUAL, [*"abcdef"])
    assert "(a; b; c; d and 2 more)" in pages.words(made)


def test_answers_are_alike_whatever_their_own_names_are_and_not_if_torchs_differ():
    code = SOLUTIONS["MultiHeadAttention"]
    renamed = re.sub(r"\b(w_[qkvo]|n_heads)\b", r"my_\1", code)
    assert "self.my_n_heads" in renamed and signs.skeleton(renamed) == signs.skeleton(code) != ""
    assert signs.skeleton(code.replace("transpose", "swapaxes")) != signs.skeleton(code)


def test_names_and_answers_become_neither_formulas_nor_html(tmp_path):
    name = "split_heads"
    code = {name: "def split_heads(x): return '</code><script>alert(1)</script>'"}
    made = [
        row("=HYPERLINK(1)", states={name: TRIED}, code=code, words={name: "@SUM(1) <b>"}),
        row("<img src=x>" + "a long name " * 5, states={name: DONE}, code=code),
        row("<IMG_src=x>", note="<i>"),
    ]
    pages.save(made, tmp_path)
    for name in ("solved", "answers"):
        lines = table(tmp_path / f"{name}.csv")
        assert not [c for line in lines for c in line.values() if c[:1] in "=@" and c]
    made_pages = [*tmp_path.glob("learners/*.html"), tmp_path / "index.html"]
    assert len(made_pages) == 4
    for page in made_pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search("<(script|img|b|i)[ >]", text, re.I)
    assert "a long name " * 5 in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_every_exercise_has_a_section_to_reread():
    for name, (book, heading) in pages.sections().items():
        assert heading in headings(course()[book]), name
    assert {*pages.sections()} == {*NAMES}


USUAL = {
    "name": st.sampled_from(grading.BY_NOTEBOOK["03"]),
    "state": st.sampled_from(grading.STATES),
    "slips": st.lists(st.sampled_from(["direct_view", "=1+1"])),
    "words": st.text(),
    "code": st.text(),
    "cells": st.lists(st.integers(-3, 3)),
    "values": st.lists(st.lists(st.none() | st.integers() | st.just({"tensor": "AAAA"}))),
    "end": st.booleans(),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*NAMES, DONE, "8"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*USUAL]), inner),
    max_leaves=5,
)
LINE = st.fixed_dictionaries({}, optional={name: JSON | usual for name, usual in USUAL.items()})


@given(st.lists(JSON | LINE), st.binary())
def test_a_submission_can_say_anything(said, tail):
    """The tables and pages take it; nothing is raised, only its own exercises, and no ✓ counts."""
    told = b"\n".join(json.dumps(line).encode() for line in said) + tail
    submission = Submission("x.ipynb", "03")
    grading._take(submission, Outcome("", 1.0, told), ["<b>", "1"])
    made = [Row(Learner("ada"), [submission])]
    pages.words(made)
    class_page(made)
    assert {*submission.states} <= {*grading.BY_NOTEBOOK["03"]}
    assert DONE not in submission.states.values()


def test_a_report_can_be_saved_whatever_a_notebook_says_of_its_slips(tmp_path):
    said = json.dumps({**FORGED, "state": "tried", "slips": ["\ud800"]}).encode()
    eve = row("eve")
    grading._take(eve.submissions[0], Outcome("", 1.0, said), ["1"])
    pages.save([eve], tmp_path)
    assert "�" in (tmp_path / "answers.csv").read_text("utf-8-sig")
