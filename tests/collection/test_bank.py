"""The bank: every question can be read alone, is answered where it says, and computes right."""

import math
import re
from collections import Counter

import pytest
import torch

from mha_course.base.notebook import course, heading
from mha_course.collection.bank import EXAM, SOURCE, Question, bank

TORN = re.compile(
    r"\b(this|the) (example|figure|notebook|cell|card|table above)\b|\bthe picture|below", re.I
)
BOOKS = sorted({question.notebook for question in bank().values()})
ALL = pytest.mark.parametrize("book", BOOKS)


HEADINGS = {
    book: {words for level, words in map(heading, cells) if level > 1}
    for book, cells in course().items()
}


def questions(book: str) -> list[Question]:
    return [q for path in (SOURCE, EXAM) for q in bank(path).values() if q.notebook == book]


@ALL
def test_a_question_can_be_read_alone(book: str) -> None:
    for question in questions(book):
        assert not TORN.search(question.asks), question.asks
        assert question.asks.rstrip()[-1] in "?.”", question.asks
        assert question.answer[-1] == ".", question.answer
        assert question.answer.count(". ") <= 4 and question.level in (1, 2, 3), question.asks
        assert 1 <= len(question.must) <= 4, question.asks
        assert question.kind == "say" or not (question.aloud or question.often), question.asks
        words = len(question.asks.split())
        assert 6 <= words <= 60, question.asks


@ALL
def test_a_question_stands_where_it_is_answered(book: str) -> None:
    for question in questions(book):
        assert question.at in HEADINGS[question.notebook], question.at


@ALL
def test_wrong_choices_are_mistakes_that_are_mended_somewhere(book: str) -> None:
    for question in questions(book):
        wrong = [c for label, c in question.choices.items() if label != question.right]
        assert (question.kind == "choose") == (len(wrong) >= 2), question.asks
        for choice in wrong:
            assert choice.heading in HEADINGS[choice.notebook] and choice.says[-1] in ".?", choice


@ALL
def test_a_right_answer_that_can_be_computed_is_right(book: str) -> None:
    for question in questions(book):
        assert (question.kind != "number") or question.computed, question.asks
        if question.computed:
            torch.manual_seed(0)
            value = eval(question.computed, {"math": math, "torch": torch})
            if question.kind == "number":
                assert value == pytest.approx(question.number), question.asks
                said = question.answer.replace(",", "") + " ".join(question.must)
                spelled = ("nine", "five")  # as small numbers are, in a sentence
                shown = f"{question.number:.0f}"
                assert shown in said or any(word in said.lower() for word in spelled), (
                    question.answer
                )
            else:
                assert value == question.right, question.asks


def test_there_are_enough_of_each_kind() -> None:
    assert len(bank()) >= 90
    books = Counter(q.notebook for q in bank().values())
    assert all(books[f"{n:02}"] >= 7 for n in range(14)), books
    assert min(Counter(q.kind for q in bank().values()).values()) >= 15
    for book in books:
        assert {q.level for q in bank().values() if q.notebook == book} >= {1, 2, 3}


def test_an_exam_asks_what_nobody_has_practised() -> None:
    """Enough of it for every notebook that has exercises, and nothing that the bank asks, too."""
    asked = {question.asks for question in bank().values()}
    books = Counter(question.notebook for question in bank(EXAM).values())
    assert len(bank(EXAM)) >= 30 and asked.isdisjoint(q.asks for q in bank(EXAM).values())
    assert all(books[f"{n:02}"] >= 2 for n in range(1, 14))
    assert not [question for question in bank(EXAM).values() if question.aloud or question.often]
