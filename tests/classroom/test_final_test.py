"""A final test: drawn from what was learned, never over another file, and judged as handed in."""

import inspect
import os
import re
import shlex
from itertools import combinations
from pathlib import Path
from statistics import fmean

import nbformat
import pytest

from mha_course.classroom import command, final_test
from mha_course.classroom.grading import DONE, OPEN, TRIED
from mha_course.collection.bank import EXAM, bank
from mha_course.exercises import variants_solved


def read(folder):
    return nbformat.read(folder / "final_test.ipynb", as_version=4)


def test_a_seed_gives_one_test_of_what_was_learned(tmp_path):
    books = final_test.books("02-05")
    drawn = [final_test.chosen(books, seed) for seed in range(20)]
    assert drawn[7] == final_test.chosen(books, 7) and len({str(one) for one in drawn}) > 15
    for exercises, questions in drawn:
        assert (len(exercises), len(questions)) == (3, 9)
        assert {e.notebook for e in exercises} <= {*books} == {q.notebook for q in questions}
        assert {*questions} <= {*bank(EXAM).values()}
    assert final_test.chosen(["12"], 0)[0] == []
    small = [[e.name for e in final_test.chosen([*books, "06"], seed)[0]] for seed in range(9)]
    assert all(names[-1] == "all_heads_at_once" for names in small)
    folder, _ = final_test.write(books, 7, tmp_path)
    written = folder / "final_test.ipynb"
    written.write_text("a learner's")
    again, secret = final_test.write(books, 7, tmp_path)
    assert written.read_text() == "a learner's" and again.name == "final_test-2"
    sheet = (again / "final_test.html").read_text("utf-8")
    key = (secret / "key.html").read_text("utf-8")
    assert "seed 7" in key and "seed" not in sheet + str(read(again))
    assert "Name: ___" in sheet and "this notebook" not in sheet
    exercises, questions = drawn[7]
    assert all(e.name in key and e.name in sheet for e in exercises)
    for question in questions:
        assert f"(Notebook {int(question.notebook)}, " in key
        judged_by = question.right or question.number
        assert judged_by is None or f"<strong>{judged_by}.</strong>" in key
        assert question.answer[:20] not in sheet + str(read(again))


def test_without_a_seed_each_test_is_another_and_the_teacher_is_told(tmp_path, capsys):
    for _ in range(2):
        final_test.main(["--notebooks", "02-05", "--out", str(tmp_path)])
    first, second = re.findall(r"the seed, (\d+)", capsys.readouterr().out)
    again, _ = final_test.write(final_test.books("02-05"), int(first), tmp_path / "again")
    assert first != second and read(again).cells == read(tmp_path / "final_test").cells


def test_two_tests_share_half_of_what_they_ask():
    drawn = (final_test.chosen(final_test.books("01-06"), seed) for seed in range(20))
    asked = [{part.asks for part in final_test.parts(*some)} for some in drawn]
    shared = [len(one & other) for one, other in combinations(asked, 2)]
    assert 5 < fmean(shared) < 7 and {*map(len, asked)} == {12}


def test_a_teacher_adds_questions(tmp_path, capsys):
    own = tmp_path / "mine.toml"
    said = 'at = "x"\nlevel = 1\nasks = "Why?"\nanswer = "So."\nmust = ["so"]'
    own.write_text(f"[12.mine]\n{said}\n")
    for seed in range(9):  # each time, though there are enough others
        assert "12.mine" in {q.name for q in final_test.chosen(["01", "12"], seed, own)[1]}
    final_test.main(["--notebooks", "12", "--bank", str(own), "--out", str(tmp_path)])
    assert "Asked of your 1 question: 1.\n" in capsys.readouterr().out
    bank.cache_clear()
    both, out = f"[12.mine]\n{said}\n[03.mine]\n{said}\n", tmp_path / "a class"
    own.write_text(both.replace('["so"]', '"so"'), encoding="utf-8-sig")  # as Windows may save it
    assert bank(own)["12.mine"].must == ("so",)
    final_test.main(["--notebooks", "12", "--bank", str(own), "--out", str(out)])
    told = capsys.readouterr().out
    assert "Asked of your 2 questions: 1.\nDrawn: 0 of 0 exercises and 3 of 3 questions;" in told
    assert Path(shlex.split(told.splitlines()[-1])[-1]) == out / "final_test_key"


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="the limits need Linux or macOS")
def test_what_is_handed_in_is_judged_by_the_line_that_it_prints(tmp_path, capsys):
    """One right, one with a wrong answer, one as it was given out."""
    final_test.main(["--notebooks", "03", "--seed", "1", "--out", str(tmp_path)])
    line = capsys.readouterr().out.splitlines()[-1]
    secret = line.split("--test ")[1]
    first, second, *rest = (part.name for part in final_test.read_key(Path(secret)))
    assert first and second and not any(rest)
    for who in ("ada", "bob", "leo"):
        made = read(tmp_path / "final_test")
        for cell in (c for c in made.cells if c.source.startswith("def ") and who != "leo"):
            name = cell.source[4 : cell.source.index("(")]
            cell.source = inspect.getsource(getattr(variants_solved, name))
            if (who, name) == ("bob", first):
                cell.source = cell.source.replace(".permute(", ".transpose(0, 1).permute(")
        made.cells[-1].source = f"*Your answer:* {who}'s"
        (tmp_path / "in" / who).mkdir(parents=True)
        nbformat.write(made, tmp_path / "in" / who / "final_test.ipynb")
    out = tmp_path / "report"
    rows = command.main([str(tmp_path / "in"), "--test", secret, "--out", str(out)])
    states = {row.learner.name: [row.state(name) for name in (first, second)] for row in rows}
    assert states == {"ada": [DONE, DONE], "bob": [TRIED, DONE], "leo": [OPEN, OPEN]}
    assert first in (out / "index.html").read_text("utf-8")
    assert "ada&#39;s" in (out / "words.html").read_text("utf-8")
    assert "2 answers" not in capsys.readouterr().out.splitlines()[-1]
