"""Practice with the exercises of the course, as a learner meets it."""

import re
from datetime import date
from typing import Any

import notebooks
from mha_course import check
from mha_course.practice import from_memory, journal

COURSE = [*check.practice.exercises]


def test_the_notebook(sitting, tmp_path):
    for name in COURSE[1:4]:
        journal.remember(check.Report(name, True))
    sitting(date(2026, 3, 3))
    first, second = check.practice(), check.practice(whole_class=True)
    assert first.path != second.path and first.path.parent == tmp_path
    notebook = notebooks.read(first.path)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert not any(c.outputs for c in code)
    text = "\n".join(c.source for c in notebook.cells)
    assert "Solution" not in text and "<summary>Hint" in text
    names = {}
    exec(code[0].source, names)
    for cell in code[1:]:
        exec(cell.source, names)
    assert sum("check.practice." in c.source for c in code) == 1 + 3 + from_memory.MOST
    whole = "\n".join(c.source for c in notebooks.read(second.path).cells)
    assert "class MultiHeadAttention" in whole and "Twenty minutes" in whole


def test_every_exercise_can_be_written_from_an_empty_page():
    """Every solution of the course, with nothing but what is imported there, is right."""
    for path in notebooks.paths():
        for code in notebooks.solutions(notebooks.read(path)).values():
            names: dict[str, Any] = {}
            exec(from_memory.SETUP.split("from mha_course")[0], names)
            name = next(
                n
                for n in re.findall(r"^(?:def|class) (\w+)", code, re.M)
                if n in from_memory.statements()
            )
            exec(from_memory.IMPORTS.get(name, "") + code, names)
            report = getattr(check, name)(names[name])
            assert report.passed, report
            if name in COURSE:
                assert from_memory.statements()[name].says and from_memory.statements()[name].stub


def test_progress_names_what_is_due(sitting):
    assert "practice" not in str(check.progress())
    journal.remember(check.Report("split_heads", True), "split_heads")
    assert "practice" not in str(check.progress())
    sitting(date(2026, 3, 4))
    assert "Ready in `check.practice()`: split_heads." in str(check.progress())
