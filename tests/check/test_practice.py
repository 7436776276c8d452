"""Practice: what is due when, in which layout, and what the notebook says of the last time."""

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import notebooks
from answers.variants import RIGHT
from mha_course import check
from mha_course.__main__ import main as command
from mha_course.check import from_memory, journal, schedule
from mha_course.check.engine.changes import changes
from mha_course.check.engine.compare import difference
from mha_course.check.engine.places import Bounded, versions
from mha_course.check.engine.safely import fresh, undisturbed
from mha_course.check.engine.source import Source
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.journal import Attempt

pytestmark = pytest.mark.plain

MONDAY = date(2026, 3, 2)
COURSE = [name for name in check.practice.exercises]
ALL = {v.name: v for variants in VARIANTS.values() for v in variants}
EXERCISE_OF = {v.name: getattr(check, name) for name, some in VARIANTS.items() for v in some}


@pytest.fixture
def sitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner's folder, with an empty journal and a clock that the test sets."""
    (tmp_path / journal.COPY).write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})
    monkeypatch.setattr(journal, "_attempts", [])

    def on(day: date) -> None:
        monkeypatch.setattr(journal, "today", lambda: day)

    on(MONDAY)
    return on


def days_until(tried: list[tuple[int, bool]], name: str = "split_heads") -> int:
    """Days from the last practice until it is due; (day, known at the first try)."""
    attempts = []
    for n, known in tried:
        attempts.append(Attempt(MONDAY + timedelta(n), name, known, asked=name))
    (found,) = schedule.due(attempts, {}, COURSE)
    return (found.day - attempts[-1].day).days


def test_the_wait_doubles_as_long_as_it_is_known():
    assert days_until([(0, False)]) == 1
    known = [(n, True) for n in (0, 2, 6, 14, 30, 62, 126, 190)]
    assert [days_until(known[:n]) for n in range(1, 9)] == [2, 4, 8, 16, 32, 64, 64, 64]
    assert days_until([*known[:3], (14, False)]) == 1
    assert days_until([*known[:3], (14, False), (15, True)]) == 2


def test_what_is_mended_after_a_message_keeps_its_wait():
    assert days_until([(0, True), (2, True), (6, False), (6, True)]) == 4
    in_the_course = [Attempt(MONDAY, "split_heads", True), Attempt(MONDAY, "split_heads", False)]
    (found,) = schedule.due(in_the_course, {}, COURSE)
    assert (found.box, found.sittings, found.day) == (0, 0, MONDAY + timedelta(1))


def test_first_what_was_never_solved_by_heart_then_what_is_due_longest():
    def at(n: int, name: str, *slips: str, asked: bool = True) -> Attempt:
        day = MONDAY + timedelta(n)
        return Attempt(day, name, not slips, slips, name if asked else "")

    attempts = [
        at(0, "split_heads"), at(0, "merge_heads"), at(1, "attention", asked=False),
        at(1, "causal_mask", "keep_mask", asked=False), at(2, "merge_heads"),
        at(3, "rotate", asked=False),
    ]  # fmt: skip
    found = [
        d.name for d in schedule.due(attempts, {"solved": "done", "cached_mask": "done"}, COURSE)
    ]
    assert found == [
        "cached_mask", "causal_mask", "attention", "rotate", "split_heads", "merge_heads",
    ]  # fmt: skip


def test_six_weeks_bring_back_what_they_should(sitting):
    """Answers right, wrong and skipped; against a table kept by hand, as cards in boxes."""
    chance = random.Random(3)
    card: dict[str, tuple[int, date]] = {}  # name -> box, due
    asked: dict[str, int] = dict.fromkeys(COURSE, 0)
    for name in COURSE[:8]:
        journal.remember(check.Report(name, True))
        card[name] = 0, MONDAY + timedelta(1)
    for n in range(1, 43):
        day = MONDAY + timedelta(n)
        sitting(day)
        ready = [name for name, (_, due) in card.items() if due <= day]
        chosen = check.practice.chosen(day)
        names = [d.name for d in chosen]
        never = [name for name in ready if card[name][0] == 0]
        assert names == [from_memory.CLASS] or from_memory.CLASS not in names
        minutes = sum(from_memory.statements()[name].minutes for name in names)
        assert len(names) == from_memory.MOST or minutes > from_memory.MINUTES - 20
        assert minutes <= from_memory.MINUTES
        assert not never or card[names[0]][0] == 0
        if len(ready) == 1:
            assert ready[0] in names
        for one in chosen:
            problem = check.practice.in_its_layout(one)
            assert problem.name in (one.name, *(v.name for v in VARIANTS.get(one.name, ())))
            does = chance.choice(["right", "wrong", "mended", "skipped"])
            if does == "skipped":
                continue
            asked[one.name] += 1
            box = card.get(one.name, (0, day))[0]
            if does != "right":
                journal.remember(check.Report(problem.name, False), one.name)
            if does != "wrong":
                journal.remember(check.Report(problem.name, True), one.name)
            box = {"right": min(box + 1, 6), "mended": box, "wrong": 0}[does]
            card[one.name] = box, day + timedelta(2**box)
        assert {d.name: (d.box, d.day) for d in check.practice.due()} == card
    assert sum(asked.values()) > 60 and min(asked[name] for name in COURSE[:6]) >= 2


def test_without_a_journal_it_begins_with_the_short_way(sitting):
    assert [d.name for d in check.practice.chosen(MONDAY)] == [
        "attention_scores", "attention", "project_qkv",
    ]  # fmt: skip


def test_a_log_that_was_cut_off_or_is_not_ours_loses_nothing_else(sitting):
    journal.remember(check.Report("split_heads", True), "split_heads")
    log = Path(journal.LOG)
    whole = log.read_text()
    log.write_text('{"day": "2026-0\n[1]\nnull\n\n' + whole + '{"name": "split')
    assert [a.name for a in journal.attempts()] == ["split_heads"]
    check.progress(keep=False)
    assert not log.exists()
    journal.remember(check.Report("split_heads", True), "split_heads")
    assert not log.exists()


def test_the_notebook(sitting, tmp_path):
    first, second = check.practice(), check.practice(whole_class=True)
    assert first.path != second.path and first.path.parent == tmp_path
    notebook = notebooks.read(first.path)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert not any(c.outputs for c in code)
    text = "\n".join(c.source for c in notebook.cells)
    assert "Solution" not in text and "<summary>Hint" in text
    assert text.count("<strong>Right.</strong>") + text.count("Measured:") == from_memory.MOST
    names = {}
    exec(code[0].source, names)
    for cell in code[1:]:
        exec(cell.source, names)
    assert sum("check.practice." in c.source for c in code) == 1 + from_memory.MOST
    whole = "\n".join(c.source for c in notebooks.read(second.path).cells)
    assert "class MultiHeadAttention" in whole and "Twenty minutes" in whole


def test_the_questions_come_from_the_notebooks_begun(sitting):
    journal.remember(check.Report("split_heads", False))
    cells = notebooks.read(check.practice().path).cells[-from_memory.MOST :]
    asked = {cell.source.split(" ", 1)[1] for cell in cells}
    books = {e.notebook for e in check.practice.exercises.values()}
    of = {book: {*from_memory._questions(frozenset({book}))} for book in books}
    assert len(asked) == from_memory.MOST and asked <= of["03"] and not asked & of["01"]
    enough = {book for book in books if len(of[book]) >= from_memory.MOST}
    assert enough == {book for book in books if book <= from_memory.SHORT_WAY}
    assert from_memory.questions(MONDAY, frozenset({"11"})) == from_memory.questions(
        MONDAY, frozenset()
    )


def test_the_command_writes_into_my_notebooks(sitting, tmp_path, monkeypatch, capsys):
    journal.remember(check.Report("rotate", False))
    tmp_path.rename(tmp_path.with_name("my_notebooks"))
    monkeypatch.chdir(tmp_path.parent)
    sitting(MONDAY + timedelta(1))
    assert command(["practice"]) == 0
    path = tmp_path.with_name("my_notebooks") / "practice_2026-03-03.ipynb"
    assert str(path) in capsys.readouterr().out
    assert "check.practice.rotate(rotate)" in path.read_text()


def test_every_exercise_can_be_written_from_an_empty_page():
    """Every solution of the course, with nothing but what the first cell imports, is right."""
    for path in notebooks.paths():
        for code in notebooks.solutions(notebooks.read(path)).values():
            names: dict[str, Any] = {}
            exec(from_memory.SETUP.split("from mha_course")[0], names)
            exec(code, names)
            name = next(n for n in names if n in from_memory.statements())
            report = getattr(check, name)(names[name])
            assert report.passed, report
            if name in COURSE:
                assert from_memory.statements()[name].text and from_memory.statements()[name].stub


def test_what_has_changed_since_last_time(sitting, monkeypatch):
    def unscaled(Q, K):
        return Q @ K.mT

    first = check.practice.attention_scores(unscaled)
    assert not first.passed and "March" not in str(first)
    sitting(MONDAY + timedelta(8))
    again = str(check.practice.attention_scores(unscaled))
    assert "The same as on Monday, 2 March." in again
    mended = check.practice.attention_scores(lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5)
    assert mended.passed and "On Monday, 2 March it was: “" in str(mended)
    assert [a.passed for a in journal.attempts()] == [False, False, True]
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 0.0)
    check.practice.begin()
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 14 * 60.0)

    known: dict[str, Any] = {}
    exec(from_memory.SETUP.split("from mha_course")[0], known)
    (book,) = notebooks.paths("06")
    for code in notebooks.solutions(notebooks.read(book)).values():
        exec(code, known)
    report = check.practice.MultiHeadAttention(known["MultiHeadAttention"])
    assert report.passed and "It took 14 minutes." in str(report)


def test_what_was_not_known_comes_back_in_the_same_layout(sitting):
    for day, name, passed in ((0, "split_heads", True), (2, "split_tokens_first", False)):
        sitting(MONDAY + timedelta(day))
        journal.remember(check.Report(name, passed), "split_heads")
    (one,) = check.practice.due()
    assert (one.known, one.sittings) == (1, 2)
    assert check.practice.in_its_layout(one).name == "split_tokens_first"


def test_where_nothing_was_kept_it_is_kept_from_now_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check.practice()
    assert (tmp_path / journal.FILE).exists()
    check.practice.split_heads(lambda x, n_heads: x)
    assert "split_heads" in (tmp_path / journal.LOG).read_text()


def test_an_untouched_stub_is_no_attempt(sitting):
    assert check.practice.split_heads(lambda x, n_heads: ...).passed is None
    assert journal.attempts() == []
    with pytest.raises(AttributeError, match=r"practice asks for .*; got no_such"):
        _ = check.practice.no_such


def test_progress_names_what_is_due(sitting):
    assert "practice" not in str(check.progress())
    journal.remember(check.Report("split_heads", True), "split_heads")
    assert "practice" not in str(check.progress())
    sitting(MONDAY + timedelta(2))
    assert "Ready in `check.practice()`: split_heads." in str(check.progress())


# --- the variants ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ALL])
def test_right_answers_pass_and_slips_are_named(name):
    for answer in RIGHT[name]:
        report = ALL[name](answer)
        assert report.passed, report
    slips = [slip for (slip,) in ALL[name].singles]
    theirs = [slip for slip in slips if slip in EXERCISE_OF[name].slips]
    assert theirs
    for slip in (*(s for s in slips if s not in theirs), theirs[0]):
        report = ALL[name](lambda *inputs, slip=slip: ALL[name].result_of((slip,), inputs))
        assert report.passed is False
        errors = any(key.startswith("error:") for key in report.slips)
        assert slip.key in report.slips or errors, report


def test_einsum_is_asked_for():
    ask = ALL["scores_tokens_first"]
    by_matmul = ask(lambda Q, K: Q.transpose(0, 1) @ K.permute(1, 2, 0) / K.shape[-1] ** 0.5)
    assert not by_matmul.passed and by_matmul.slips == ("not_einsum",)
    of_one_d_k = ask(lambda Q, K: torch.einsum("tbd,sbd->bts", Q, K) / Q.new_tensor(7).sqrt())
    assert not of_one_d_k.passed and of_one_d_k.slips != ("not_einsum",)


@pytest.mark.parametrize("name", [*ALL])
def test_no_mutant_of_a_right_answer_passes(name):
    """A mutant that passes gives what the answer gives, on inputs that no check uses."""
    problem = ALL[name]
    chance = random.Random(7)
    for answer in RIGHT[name]:
        source = Source(answer)
        some = (c for c in changes(source.tree) if chance.random() < 0.02)
        for _, mutant in versions(source, some):
            if callable(mutant) and problem(mutant).passed:
                for case in problem.cases:
                    inputs = [changed(x, chance) for x in case.inputs]
                    with undisturbed(), torch.no_grad():
                        right = answer(*map(fresh, inputs))
                        assert difference(Bounded(mutant)(*map(fresh, inputs)), right) is None


def changed(x: Any, chance: random.Random) -> Any:
    """Other numbers of the same kind and shape, seldom used to."""
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return torch.randn(x.shape, dtype=x.dtype)
    return x
