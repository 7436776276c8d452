"""Practice: what is due when, in which layout, and what the notebook says of the last time."""

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import notebooks
from mha_course.collection.bank import bank
from mha_course.engine.problem import Case, Problem
from mha_course.engine.report import Report
from mha_course.practice import asked, from_memory, journal, schedule
from mha_course.practice.from_memory import Practice
from mha_course.practice.journal import Attempt

MONDAY = date(2026, 3, 2)


def pairs() -> list[Case]:
    sizes = [{"B": 2, "T": 3, "d": 5}, {"B": 3, "T": 7, "d": 2}]
    return [Case(tuple(torch.rand(2, *n.values()).double()), n) for n in sizes]


def attention_scores(Q: Any, K: Any, *, scale: Any = lambda made, K: made / K.shape[-1] ** 0.5):
    return scale(Q @ K.mT, K)


SCORES = Problem(attention_scores, 1, "01", pairs, ("scores (B, T, T)",), part_of="attention")
SCORES.step([("unscaled", "Not scaled.", "", lambda made, K: made)], at="scale")


def toy(name: str, book: str) -> Problem:
    """What the exercise of this name is to practice."""

    def halves(x: Any, n_heads: Any) -> Any:
        "Half of it."
        return x / 2

    halves.__name__ = name
    more = {"make_cases": pairs, "gives": ("y (B, T, d)",), "gradient": False}
    return Problem(halves, 0, book, **more)


BOOKS = {
    "attention": "01",
    "project_qkv": "02",
    "count_parameters": "02",
    "split_heads": "03",
    "merge_heads": "03",
    "causal_mask": "04",
    "padding_mask": "04",
    "masked_softmax": "04",
    "MultiHeadAttention": "06",
    "rotate": "10",
    "cached_mask": "11",
}
VARIANTS = {"split_heads": (toy("split_tokens_first", ""),)}
PRACTICE = Practice([SCORES, *(toy(name, book) for name, book in BOOKS.items())], VARIANTS)
COURSE = [*PRACTICE.exercises]


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
    assert days_until([(0, True), (2, True), (6, False), (6, False)]) == 1
    in_the_course = [Attempt(MONDAY, "split_heads", True), Attempt(MONDAY, "split_heads", False)]
    (found,) = schedule.due(in_the_course, {}, COURSE)
    assert (found.box, found.sittings, found.day) == (0, 0, MONDAY + timedelta(1))


def test_first_what_was_never_solved_by_heart_then_what_is_due_longest():
    def at(n: int, name: str, *slips: str, asked: bool = True) -> Attempt:
        day = MONDAY + timedelta(n)
        return Attempt(day, name, not slips, slips, name if asked else "")

    attempts = [
        at(0, "split_heads"),
        at(0, "merge_heads"),
        at(1, "attention", asked=False),
        at(1, "causal_mask", "keep_mask", asked=False),
        at(2, "merge_heads"),
        at(3, "rotate", asked=False),
    ]
    states = {"solved": "done", "cached_mask": "done"}
    found = " ".join(d.name for d in schedule.due(attempts, states, COURSE))
    assert found == "cached_mask causal_mask attention rotate split_heads merge_heads"


def test_six_weeks_bring_back_what_they_should(sitting):
    """Answers right, wrong and skipped; against a table kept by hand, as cards in boxes."""
    chance = random.Random(3)
    card: dict[str, tuple[int, date]] = {}  # name -> box, due
    asked: dict[str, int] = dict.fromkeys(COURSE, 0)
    for name in COURSE[:8]:
        journal.remember(Report(name, True))
        card[name] = 0, MONDAY + timedelta(1)
    for n in range(1, 43):
        day = MONDAY + timedelta(n)
        sitting(day)
        ready = [name for name, (_, due) in card.items() if due <= day]
        chosen = PRACTICE.chosen(day)
        names = [d.name for d in chosen]
        never = [name for name in ready if card[name][0] == 0]
        assert names == [from_memory.CLASS] or from_memory.CLASS not in names
        minutes = sum(from_memory.statements()[name].minutes for name in names)
        both = {SCORES.name, SCORES.part_of}
        assert not both <= {*names}
        as_many = len(names) == min(len(ready) - (both <= {*ready}), from_memory.MOST)
        assert as_many or minutes > from_memory.MINUTES - 20
        assert {*names} <= {*ready}
        assert minutes <= from_memory.MINUTES
        assert not never or card[names[0]][0] == 0
        if len(ready) == 1:
            assert ready[0] in names
        for one in chosen:
            problem = PRACTICE.in_its_layout(one)
            assert problem.name in (one.name, *(v.name for v in VARIANTS.get(one.name, ())))
            does = chance.choice(["right", "wrong", "mended", "skipped"])
            if does == "skipped":
                continue
            asked[one.name] += 1
            box = card.get(one.name, (0, day))[0]
            if does != "right":
                journal.remember(Report(problem.name, False), one.name)
            if does != "wrong":
                journal.remember(Report(problem.name, True), one.name)
            box = {"right": min(box + 1, 6), "mended": box, "wrong": 0}[does]
            card[one.name] = box, day + timedelta(2**box)
        assert {d.name: (d.box, d.day) for d in PRACTICE.due()} == card
    assert sum(asked.values()) > 60 and min(asked[name] for name in COURSE[:6]) >= 2


def test_with_nothing_met_there_is_nothing_to_ask(sitting, tmp_path):
    assert "Nothing is due" in str(PRACTICE())
    assert not [*tmp_path.glob("*.ipynb")] and PRACTICE.chosen(MONDAY) == []


def test_nothing_is_asked_before_its_day(sitting, tmp_path, monkeypatch):
    journal.remember(Report("split_heads", True))
    assert PRACTICE.chosen(MONDAY) == []
    text = PRACTICE().path.read_text("utf-8")  # questions alone
    assert "split_heads" not in text and text.count("practice.answer") == from_memory.MOST
    monkeypatch.setattr(asked, "chosen", lambda *_: [])
    assert "split_heads comes back on Tuesday, 3 March." in str(PRACTICE())
    assert len([*tmp_path.glob("*.ipynb")]) == 1


def test_questions_are_of_the_notebooks_that_lead_up_to_a_solved_exercise(sitting):
    def books():
        days = (MONDAY + timedelta(n) for n in range(60))
        return {q.notebook for day in days for q in PRACTICE.questions(day)}

    journal.remember(Report("rotate", True))
    assert books() == {"00", "10"}
    journal.remember(Report("masked_softmax", False))  # 02 and 05 have none in their threads
    assert books() == {"00", "01", "02", "03", "04", "10"}


def test_a_variant_has_the_hints_of_the_exercise(sitting):
    for day in (0, 2):
        sitting(MONDAY + timedelta(day))
        journal.remember(Report("split_heads", True), "split_heads")
    cells = PRACTICE.notebook(PRACTICE.due(), MONDAY + timedelta(6))["cells"]
    text = "\n".join(cell["source"] for cell in cells)
    assert "split_tokens_first" in text or "def split_heads" in text
    sitting(MONDAY + timedelta(6))
    journal.remember(Report("split_heads", True), "split_heads")
    cells = PRACTICE.notebook(PRACTICE.due(), MONDAY + timedelta(14))["cells"]
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
            assert [q.level for q in found] == sorted(q.level for q in found)  # all are new
    assert ("01", "Temperature") not in asked.open_headings()
    assert {book for book, _ in asked.open_headings()} == {p.stem[:2] for p in notebooks.paths()}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("01.spread_number", 8, 8.1), ("04.combine", "causal | padding", 0), ("01.why_root", 0, 2)],
)
def test_a_question_is_judged_and_one_answered_wrongly_comes_back(sitting, name, right, wrong):
    question = bank()[name]
    if question.kind == "choose":
        labels = [*question.choices]
        mistake = next(label for label in labels if label != right)
        right, wrong = 1 + labels.index(right), 1 + labels.index(mistake)
    said = PRACTICE.answer(name, wrong)
    assert not said.passed and question.answer in str(said)
    assert ("1 of 3 points." in str(said)) == (question.kind == "say")
    if question.kind == "choose":
        assert question.choices[mistake].says in str(said)
    assert PRACTICE.answer(name).passed is PRACTICE.answer(name, True).passed is None
    day = MONDAY + timedelta(1)
    sitting(day)
    book = {question.notebook}
    assert asked.chosen(day, book, 1) == [question]
    assert PRACTICE.answer(name, right).passed
    assert question not in asked.chosen(day + timedelta(1), book, 99)
    assert question in asked.chosen(day + timedelta(2), book, 1)
    with pytest.raises(ValueError, match="no question"):
        PRACTICE.answer("01.nobody", 1)


def test_files_of_earlier_days_are_cleared_unless_written_in(sitting, tmp_path):
    journal.remember(Report("split_heads", True))
    sitting(MONDAY + timedelta(1))
    untouched, written, broken = PRACTICE().path, PRACTICE().path, PRACTICE().path
    text = written.read_text("utf-8").replace("def split_heads(x, n_heads):", "def split(x):")
    written.write_text(text, "utf-8")
    broken.write_text("{}")
    own = tmp_path / "practice_of_mine.ipynb"
    own.write_text("{}")
    assert untouched.exists()
    sitting(MONDAY + timedelta(2))
    PRACTICE()
    assert not untouched.exists() and written.exists() and broken.exists() and own.exists()


def test_not_today_is_only_said_where_it_is_so(sitting):
    def unscaled(Q, K):
        return Q @ K.mT

    def scaled(Q, K):
        return Q @ K.mT / K.shape[-1] ** 0.5

    PRACTICE.attention_scores(unscaled)
    sitting(MONDAY + timedelta(8))
    PRACTICE.attention_scores(unscaled)
    mended = str(PRACTICE.attention_scores(scaled))
    assert "Not today" not in mended and "Mended now." in mended
    sitting(MONDAY + timedelta(16))
    assert "Not today." in str(PRACTICE.attention_scores(scaled))


def test_a_month_of_days(sitting, tmp_path, monkeypatch):
    """Right, wrong and skipped, in two kernels, with a clock put back and a line torn off."""
    chance = random.Random(7)
    kernels = [({}, []), ({}, [])]
    for name in COURSE[:6]:
        journal.remember(Report(name, True))
    noted, missed = 6, set()
    for n in range(1, 31):
        day = MONDAY + timedelta(n if n != 12 else 5)  # that day the clock is put back
        sitting(day)
        for part, value in zip(("_state", "_attempts"), kernels[n % 2], strict=True):
            monkeypatch.setattr(journal, part, value)
        if n == 10:
            with Path(journal.LOG).open("a") as log:
                log.write('{"day": "2026-03')
        assert all(a.day <= day for a in journal.attempts())
        written = PRACTICE()
        cells = "".join(c.source for c in notebooks.read(written.path).cells)
        found = [q for q in bank().values() if f'"{q.name}"' in cells]
        assert not missed or missed & {q.name for q in found} or n in (12, 13)
        for question in found:
            does = chance.choice(["right", "wrong", "skipped"])
            if does != "skipped":
                good = {"say": 0, "number": question.number}.get(question.kind)
                if question.kind == "choose":
                    good = 1 + [*question.choices].index(question.right)
                answer = good if does == "right" else 99
                assert PRACTICE.answer(question.name, answer).passed == (does == "right")
                noted += 1
                (missed.add if does == "wrong" else missed.discard)(question.name)
        for one in PRACTICE.chosen(day):
            if chance.random() < 0.7:
                passed = chance.random() < 0.6
                journal.remember(Report(one.name, passed), one.name)
                noted += 1
    assert len(journal.attempts()) == noted  # none lost: the torn line was nobody's
    assert len([*tmp_path.glob("*.ipynb")]) <= 2
    tried = {a.name for a in journal.attempts() if a.name in bank()}
    assert len(tried) > 12 and {bank()[name].notebook for name in tried} <= {"00", "01", "02", "03"}


def test_what_has_changed_since_last_time(sitting, monkeypatch):
    def unscaled(Q, K):
        return Q @ K.mT

    first = PRACTICE.attention_scores(unscaled)
    assert not first.passed and "March" not in str(first)
    sitting(MONDAY + timedelta(8))
    again = str(PRACTICE.attention_scores(unscaled))
    assert "The same as on Monday, 2 March." in again
    mended = PRACTICE.attention_scores(lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5)
    assert mended.passed and "On Monday, 2 March it was: “" in str(mended)
    assert [a.passed for a in journal.attempts()] == [False, False, True]
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 0.0)
    PRACTICE.begin()
    monkeypatch.setattr(from_memory.time, "monotonic", lambda: 14 * 60.0)
    report = PRACTICE.MultiHeadAttention(lambda x, n_heads: x / 2)
    assert report.passed and "It took 14 minutes." in str(report)


def test_what_was_not_known_comes_back_in_the_same_layout(sitting):
    for day, name, passed in ((0, "split_heads", True), (2, "split_tokens_first", False)):
        sitting(MONDAY + timedelta(day))
        journal.remember(Report(name, passed), "split_heads")
    (one,) = PRACTICE.due()
    assert (one.known, one.sittings) == (1, 2)
    assert PRACTICE.in_its_layout(one).name == "split_tokens_first"


def test_where_nothing_was_kept_it_is_kept_from_now_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {"split_heads": "done"})
    PRACTICE()
    assert (tmp_path / journal.FILE).exists()
    PRACTICE.split_heads(lambda x, n_heads: x)
    assert "split_heads" in (tmp_path / journal.LOG).read_text()


def test_an_untouched_stub_is_no_attempt(sitting):
    assert PRACTICE.split_heads(lambda x, n_heads: ...).passed is None
    assert journal.attempts() == []
    with pytest.raises(AttributeError, match=r"practice asks for .*; got no_such"):
        _ = PRACTICE.no_such
