"""The checks on answers that learners could have written, right and wrong, in several hands."""

import pytest

from answers import Answer, all_answers
from diagnose import Verdict, judge, table

ANSWERS = all_answers()
_verdicts: dict[str, Verdict] = {}


def verdict_on(answer: Answer) -> Verdict:
    if answer.id not in _verdicts:
        _verdicts[answer.id] = judge(answer)
    return _verdicts[answer.id]


def test_there_are_enough_of_them() -> None:
    assert len(ANSWERS) >= 300
    assert len({a.id for a in ANSWERS}) == len(ANSWERS)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: a.id)
def test_judged_rightly(answer: Answer) -> None:
    verdict = verdict_on(answer)
    assert verdict.report.passed is answer.right, str(verdict.report)
    if answer.slips is not None:
        assert set(verdict.report.slips) == set(answer.slips), str(verdict.report)


def test_most_wrong_answers_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = [verdict_on(a) for a in ANSWERS]
    with capsys.disabled():
        print("\n" + table(verdicts))
    wrong = [v for v in verdicts if not v.answer.right]
    assert sum(v.named for v in wrong) >= 0.90 * len(wrong)
    assert not any("unjudged" in v.report.slips for v in verdicts)
