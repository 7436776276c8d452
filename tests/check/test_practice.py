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
from mha_course.check import asked, from_memory, journal, schedule
from mha_course.check.engine.changes import changes
from mha_course.check.engine.compare import difference
from mha_course.check.engine.places import Bounded, versions
from mha_course.check.engine.safely import fresh, undisturbed
from mha_course.check.engine.source import Source
from mha_course.check.exercises.variants import VARIANTS
from mha_course.check.journal import Attempt
from mha_course.collection.bank import bank

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
        as_many = len(names) == min(len(ready), from_memory.MOST)
        assert as_many or minutes > from_memory.MINUTES - 20
        assert {*names} <= {*ready}
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


def test_with_nothing_met_there_is_nothing_to_ask(sitting, tmp_path):
    assert "Nothing is due" in str(check.practice())
    assert not [*tmp_path.glob("*.ipynb")] and check.practice.chosen(MONDAY) == []


def test_nothing_is_asked_before_its_day(sitting, tmp_path, monkeypatch):
    journal.remember(check.Report("split_heads", True))
    assert check.practice.chosen(MONDAY) == []
    text = check.practice().path.read_text("utf-8")  # questions alone
    assert "split_heads" not in text and text.count("practice.answer") == from_memory.MOST
    monkeypatch.setattr(asked, "chosen", lambda *_: [])
    assert "split_heads comes back on Tuesday, 3 March." in str(check.practice())
    assert len([*tmp_path.glob("*.ipynb")]) == 1


def test_questions_are_of_the_notebooks_that_lead_up_to_a_solved_exercise(sitting):
    def books():
        days = (MONDAY + timedelta(n) for n in range(60))
        return {q.notebook for day in days for q in check.practice.questions(day)}

    journal.remember(check.Report("rotate", True))
    assert books() == {"00", "10"}
    journal.remember(check.Report("masked_softmax", False))  # 02 and 05 have none in their threads
    assert books() == {"00", "01", "02", "03", "04", "10"}


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
    for name in COURSE[:3]:
        journal.remember(check.Report(name, True))
    sitting(MONDAY + timedelta(1))
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


def test_a_variant_has_the_hints_of_the_exercise(sitting):
    for day in (0, 2):
        sitting(MONDAY + timedelta(day))
        journal.remember(check.Report("split_heads", True), "split_heads")
    cells = check.practice.notebook(check.practice.due(), MONDAY + timedelta(6))["cells"]
    text = "\n".join(cell["source"] for cell in cells)
    assert "split_tokens_first" in text or "def split_heads" in text
    sitting(MONDAY + timedelta(6))
    journal.remember(check.Report("split_heads", True), "split_heads")
    cells = check.practice.notebook(check.practice.due(), MONDAY + timedelta(14))["cells"]
    text = "\n".join(cell["source"] for cell in cells)
    assert "## Split, in another form" in text
    assert "split_tokens_first" in text and "<summary>Hint" in text


def test_questions_are_of_what_was_met_and_in_the_open_thread(sitting):
    for books in (set(), {"00", "03"}, {"00", "01", "02"}):
        for n in range(40):
            found = asked.chosen(MONDAY + timedelta(n), books, from_memory.MOST)
            assert len(found) == (from_memory.MOST if books else 0)
            assert {q.notebook for q in found} <= books
            assert all((q.notebook, q.at) in asked.open_headings() for q in found)
    assert ("01", "Temperature") not in asked.open_headings()
    assert {book for book, _ in asked.open_headings()} == {p.stem[:2] for p in notebooks.paths()}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("01.spread_number", 8, 64), ("04.combine", "causal | padding", 0), ("01.why_root", 0, 2)],
)
def test_a_question_is_judged_and_one_answered_wrongly_comes_back(sitting, name, right, wrong):
    question = bank()[name]
    if question.kind == "choose":
        right = 1 + question.choices.index(right)
        wrong = 1 + question.choices.index(question.wrong[0].choice)
    said = check.practice.answer(name, wrong)
    assert said.passed is False and question.answer in str(said)
    if question.kind == "choose":
        assert question.wrong[0].says in str(said)
    assert check.practice.answer(name).passed is None
    day = MONDAY + timedelta(1)
    sitting(day)
    book = {question.notebook}
    assert asked.chosen(day, book, 1) == [question]
    assert check.practice.answer(name, right).passed
    assert question not in asked.chosen(day + timedelta(1), book, 99)
    assert question in asked.chosen(day + timedelta(2), book, 1)
    with pytest.raises(ValueError, match="no question"):
        check.practice.answer("01.nobody", 1)


def test_files_of_earlier_days_are_cleared_unless_written_in(sitting, tmp_path):
    journal.remember(check.Report("split_heads", True))
    sitting(MONDAY + timedelta(1))
    untouched, written, broken = check.practice().path, check.practice().path, check.practice().path
    text = written.read_text("utf-8").replace("def split_heads(x, n_heads):", "def split(x):")
    written.write_text(text, "utf-8")
    broken.write_text("{}")
    own = tmp_path / "practice_of_mine.ipynb"
    own.write_text("{}")
    assert untouched.exists()
    sitting(MONDAY + timedelta(2))
    check.practice()
    assert not untouched.exists() and written.exists() and broken.exists() and own.exists()


def test_not_today_is_only_said_where_it_is_so(sitting):
    def unscaled(Q, K):
        return Q @ K.mT

    def scaled(Q, K):
        return Q @ K.mT / K.shape[-1] ** 0.5

    check.practice.attention_scores(unscaled)
    sitting(MONDAY + timedelta(8))
    check.practice.attention_scores(unscaled)
    mended = str(check.practice.attention_scores(scaled))
    assert "Not today" not in mended and "Mended now." in mended
    sitting(MONDAY + timedelta(16))
    assert "Not today." in str(check.practice.attention_scores(scaled))


def test_a_month_of_days(sitting, tmp_path, monkeypatch):
    """Right, wrong and skipped, in two kernels, with a clock put back and a line torn off."""
    chance = random.Random(7)
    kernels = [({}, []), ({}, [])]
    for name in COURSE[:6]:
        journal.remember(check.Report(name, True))
    noted, missed = 6, set()
    for n in range(1, 31):
        day = MONDAY + timedelta(n if n != 12 else 5)  # that day the clock is put back
        sitting(day)
        for part, value in zip(("_state", "_attempts"), kernels[n % 2], strict=True):
            monkeypatch.setattr(journal, part, value)
        if n == 10:
            with Path(journal.LOG).open("a") as log:
                log.write('{"day": "2026-03')
        written = check.practice()
        cells = "".join(c.source for c in notebooks.read(written.path).cells)
        found = [q for q in bank().values() if f'"{q.name}"' in cells]
        assert not missed or missed & {q.name for q in found} or n in (12, 13)
        for question in found:
            does = chance.choice(["right", "wrong", "skipped"])
            if does != "skipped":
                good = {"say": 0, "number": question.number}.get(question.kind)
                if question.kind == "choose":
                    good = 1 + question.choices.index(question.right)
                answer = good if does == "right" else 99
                assert check.practice.answer(question.name, answer).passed == (does == "right")
                noted += 1
                (missed.add if does == "wrong" else missed.discard)(question.name)
        for one in check.practice.chosen(day):
            if chance.random() < 0.7:
                passed = chance.random() < 0.6
                journal.remember(check.Report(one.name, passed), one.name)
                noted += 1
    assert len(journal.attempts()) == noted  # none lost: the torn line was nobody's
    assert all(a.day <= MONDAY + timedelta(30) for a in journal.attempts())
    assert len([*tmp_path.glob("*.ipynb")]) <= 2
    tried = {a.name for a in journal.attempts() if a.name in bank()}
    assert len(tried) > 12 and {bank()[name].notebook for name in tried} <= {"00", "01", "02", "03"}


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
    monkeypatch.setattr(journal, "_state", {"split_heads": "done"})
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


@pytest.mark.one_in(3)
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
