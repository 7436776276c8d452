"""What a command half understands it refuses with a sentence: each list, range, date and number."""

import re

import pytest

import notebooks
from mha_course.__main__ import main
from mha_course.classroom import command, words
from mha_course.classroom.final_test import Part
from mha_course.collection.bank import bank

TABLE = """
classroom --assigned | 77; 1-99; 6-1; 2.5; 1-; -3; 1..6; to; split; *
classroom --due | tomorrow; 2026-13-01; 2026-12; 20261201; 2026-W49-2; 01.12.2026; 18:00
classroom --seconds | 0; -1; nan; inf; 1:30; 5m
classroom --memory | 0; nan; 6GB
classroom --disk | -5; 1,5
classroom --jobs | 0; 1.5; two
classroom --test | nowhere; .; in/ada/03_x.ipynb
classroom --roster | nowhere.csv; nobody.csv; twice.csv; sheet.csv
classroom --out | in; in/ada/03_x.ipynb
test --notebooks | 6-1; 01-99; 0-9999999999; six; 01-; 01-03-05; 14
test --seed | -1; 1e3; 1.5; seven
test --bank | nowhere.toml; wrong.toml; noted.toml; short.toml; astray.toml; free.toml; mean.toml
test --bank | bare.toml; typo.toml; flat.toml; count.toml; old.toml
test --bank | part.toml; quoted.toml; true.toml; two.toml
test --out | in/ada/03_x.ipynb
worksheets --seed | x; 1.5; 1-3
worksheets --out | in/ada/03_x.ipynb
export | nowhere.ipynb; wrong.toml
weights | reader
practice | 03; 1-3
"""
CASES = [
    (*command.split(), wrong)
    for command, some in (line.split(" | ") for line in TABLE.strip().splitlines())
    for wrong in some.split("; ")
]
PYTHONS = re.compile(r"Traceback|Errno|codec|\w+\(\) |positional|keyword|a mapping|attribute")
MINE = "at = 'x'\nlevel = 1\nasks = 'Why?'\nanswer = 'So.'\n"
FILES = {
    "nobody.csv": "name\n",
    "twice.csv": "Anna Berg,ab1\nAnna Berg,ab1\n",
    "sheet.csv": "PK\3\4 name,ID\nAda,7\n",  # a spreadsheet's own form
    "wrong.toml": "no toml",
    "noted.toml": "[12]\na = 3\n",
    "short.toml": '[12.mine]\nasks = "Why?"\n',
    "astray.toml": f"[99.mine]\n{MINE}must = ['so']\n",  # in no notebook
    "free.toml": f"[12.mine]\n{MINE}",  # for no points
    "mean.toml": f"[12.mine]\n{MINE}must = ['so']\nwrong = [['no', 'Since.', '12 x']]",  # no right
    "bare.toml": f"[mine]\n{MINE}",
    "typo.toml": f"[12.mine]\n{MINE}nubmer = 3\n",
    "flat.toml": f"[12.mine]\n{MINE}right = 'so'\nwrong = ['no', 'nor']\n",
    "count.toml": f"[12.mine]\n{MINE.replace(chr(39) + 'Why?' + chr(39), '5')}must = ['so']\n",
    "part.toml": f"[12.mine]\n{MINE}number = '1/8'\n",
    "quoted.toml": f"[12.mine]\n{MINE}number = '8'\n",
    "true.toml": f"[12.mine]\n{MINE}number = true\n",
    "two.toml": f"[12.mine]\n{MINE}number = [8, -8]\n",
    "old.toml": f"[12.mine]\n{MINE}must = ['caf\xe9']\n",  # in Latin-1
    "in/ada/03_x.ipynb": "{}",
}


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_input_that_is_half_understood_is_refused_before_anything_is_done(
    words, tmp_path, monkeypatch, capsys
):
    """With the option, or its kind, and what came; never in Python's own words."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "latin-1")
    before = {*tmp_path.rglob("*")}
    folder = ["in"] if words[0] == "classroom" else []
    try:
        code = main([words[0], *folder, "=".join(words[1:])])
    except SystemExit as refusal:
        code = refusal.code
    said = capsys.readouterr()
    text = said.err + (code if isinstance(code, str) else "")
    assert code not in (0, None) and words[-1] in text and not PYTHONS.search(text), text
    assert words[1].strip("-") in text and {*tmp_path.rglob("*")} == before
    bank.cache_clear()


def test_folders_and_numbers_that_are_not_there(tmp_path):
    for folder, says in ((tmp_path, "No files"), (tmp_path / "x", "is not a folder")):
        with pytest.raises(SystemExit, match=says):
            command.main([str(folder)])
    assert [path.name[:2] for path in notebooks.paths("12", "0-2")] == ["00", "01", "02", "12"]
    for number in ("15", "13-15", "03_", "5-3"):
        with pytest.raises(SystemExit, match=f"as in 1-6,11 or 00; got {number}"):
            notebooks.paths("03", number)
    with pytest.raises(SystemExit, match="leave --assigned out"):
        command.main([str(tmp_path), "--test", "key", "--assigned", "1"])


@pytest.mark.parametrize("typed", ["3", "-1", "1/2", "two", "1.5.0", "nan"])
def test_points_that_cannot_be(tmp_path, typed):
    test = [Part(5, "Write.", "k"), Part(2, "Why?", "k")]
    (tmp_path / words.FILE).write_text(f"{','.join(words.HEAD)}\n2,ada,so,2,,{typed}\n")
    says = f"question 2 gives 0 to 2 points; got '{re.escape(typed)}'"
    with pytest.raises(ValueError, match=says):
        words.typed_in(tmp_path, test)
    (tmp_path / words.FILE).write_text("question,points\n2,1\n")
    with pytest.raises(ValueError, match="should have the columns question, learner"):
        words.typed_in(tmp_path, test)
