"""The checks on answers that learners could have written, right and wrong, in several hands."""

import pytest

from answers import all_answers
from diagnose import judge, named
from mha_lesson import check

ANSWERS = all_answers()
NAMES = [e.name for e in (*check.EXERCISES, *check.SHORT)]

pytestmark = pytest.mark.plain  # checked annotations take three times as long


def test_there_are_enough_of_them() -> None:
    assert sum(answer.right for answer in ANSWERS) >= 479
    assert len(ANSWERS) >= 860
    for name in NAMES:
        assert any(a.right for a in ANSWERS if a.exercise == name), f"{name} has no right answer"


@pytest.mark.parametrize("name", NAMES)
def test_judged_rightly_and_named(name: str) -> None:
    verdicts = [judge(answer) for answer in ANSWERS if answer.exercise == name]
    for verdict in verdicts:
        answer, report = verdict.answer, verdict.report
        assert report.passed is answer.right, f"{answer.id}\n{report}"
        assert answer.right or set(report.slips) == set(answer.slips), f"{answer.id}\n{report}"
        assert "unjudged" not in report.slips, answer.id


def test_nearly_every_mistake_is_named() -> None:
    """Not "other numbers": a slip, a place, or an error whose meaning is known."""
    wrong = [answer.slips for answer in ANSWERS if not answer.right]
    assert sum(named(slips) for slips in wrong) >= 0.95 * len(wrong)
