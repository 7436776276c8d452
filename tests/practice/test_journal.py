"""The learner's own table: nothing that was done is lost, and it says where it is kept."""

import json
from itertools import product
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

import pytest
from filelock import FileLock

from mha_course.engine.report import Report
from mha_course.practice import journal

ROWS = [(5, "03", "split_heads"), (6, "03", "merge_heads"), (7, "04", "causal_mask")]


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})


def _states_of(table: journal.Progress) -> dict[str, str]:
    return {name: state for *_, name, state in table.rows}


OUTCOMES = [*product((0, 1), (True, False, None))]  # of a check, in one of two kernels


@pytest.mark.parametrize("keep", [True, None])
def test_the_best_outcome_stays(monkeypatch: pytest.MonkeyPatch, keep: bool | None) -> None:
    """In whatever order two kernels of one folder check; without a file each knows its own."""
    words, states = {True: "done", False: "tried", None: "open"}, ["open", "tried", "done"]
    rows = ROWS[:2]
    for order in product(OUTCOMES, repeat=2):
        kernels: list[dict[str, str]] = [{}, {}]
        best = ["open", "open"]
        table = journal.table(rows, keep)
        for kernel, passed in order:
            monkeypatch.setattr(journal, "_state", kernels[kernel])
            journal.remember(Report("split_heads", passed))
            for k in (0, 1) if keep else (kernel,):
                best[k] = max(best[k], words[passed], key=states.index)
        for kernel in (0, 1):
            monkeypatch.setattr(journal, "_state", kernels[kernel])
            table = journal.table(rows, None)
            assert _states_of(table) == {"split_heads": best[kernel], "merge_heads": "open"}
            assert table.kept is bool(keep) and Path(journal.FILE).exists() is bool(keep)
        if keep:
            kept = json.loads(Path(journal.FILE).read_text())
            assert kept == ({} if best[0] == "open" else {"split_heads": best[0]})
        monkeypatch.setattr(journal, "_state", {})
        journal.table(rows, keep=False)
        assert not Path(journal.FILE).exists()


def test_progress_says_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    journal.remember(Report("split_heads", True))
    journal.remember(Report("merge_heads", False))
    journal.table(ROWS, keep=False)  # where nothing is kept there is nothing to remove
    assert str(journal.table(ROWS, None)).endswith("\n1 of 3 done (for this kernel only).")
    assert str(journal.table(ROWS, keep=True)).endswith(f"\n1 of 3 done (kept in {journal.FILE}).")
    assert Path(journal.FILE).read_text() == (
        '{\n "merge_heads": "tried",\n "split_heads": "done"\n}\n'
    )
    monkeypatch.setattr(journal, "FILE", "no/such/folder")
    assert str(journal.table(ROWS, keep=True)).endswith("\n1 of 3 done (for this kernel only).")


def test_progress_in_html_says_the_same() -> None:
    journal.remember(Report("split_heads", True))
    journal.remember(Report("merge_heads", False))
    table = journal.table(ROWS, None)
    root = ElementTree.fromstring(f"<div>{table._repr_html_()}</div>")
    cells = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    signs = {"done": "✓", "tried": "✗", "open": "○"}
    assert cells[0] == ["#", "notebook", "exercise", "state"]
    assert cells[1:] == [
        [str(number), book, name, f"{signs[state]} {state}"]
        for number, book, name, state in table.rows
    ]
    *lines, summary = str(table).splitlines()
    assert [line.split() for line in lines] == [[*c[:3], *c[3].split()] for c in cells[1:]]
    assert root.findtext("div") == summary and repr(table) == str(table)
    assert "".join(root.itertext()) == "".join(c for row in cells for c in row) + summary


def test_a_log_that_was_cut_off_or_is_not_ours_loses_nothing_else(tmp_path):
    (tmp_path / journal.COPY).write_text("{}")
    journal.remember(Report("split_heads", True), "split_heads")
    log = Path(journal.LOG)
    whole = log.read_text()
    log.write_text('{"day": "2026-0\n[1]\nnull\n\n' + whole + '{"name": "split')
    assert [a.name for a in journal.attempts()] == ["split_heads"]
    begun = monotonic()
    with FileLock(journal.LOCK):  # by another kernel, for long: nobody waits for it
        journal.remember(Report("merge_heads", True), "merge_heads")
    assert monotonic() - begun < 10
    assert [a.name for a in journal.attempts()] == ["split_heads", "merge_heads"]
    journal.table(ROWS, keep=False)
    assert not log.exists()
    journal.remember(Report("split_heads", True), "split_heads")
    assert not log.exists()
