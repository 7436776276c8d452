"""The checks on answers that learners could have written, right and wrong, in several hands."""

import pytest

from answers import all_answers
from diagnose import judge
from mha_lesson import check
from mha_lesson.check.engine import places

ANSWERS = all_answers()
NAMES = [e.name for e in (*check.EXERCISES, *check.SHORT)]

pytestmark = pytest.mark.plain  # checked annotations take three times as long


@pytest.fixture(autouse=True)
def however_slow_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SECONDS", 60)


def test_there_are_enough_of_them() -> None:
    assert len(ANSWERS) >= 3_200
    assert len({a.id for a in ANSWERS}) == len(ANSWERS)


@pytest.mark.parametrize("name", NAMES)
def test_judged_rightly_and_named(name: str, request: pytest.FixtureRequest) -> None:
    """All that are right, all of which the slips are said, and a third of the rest, another one
    with every `--turn`: `make diagnose` takes all."""
    turn = request.config.getoption("--turn", 0)
    mine = [a for a in ANSWERS if a.exercise == name]
    said = [a for a in mine if a.right or a.slips is not None]
    verdicts = [judge(a) for a in (*said, *[a for a in mine if a not in said][turn % 3 :: 3])]
    for verdict in verdicts:
        answer, report = verdict.answer, verdict.report
        assert report.passed is answer.right, f"{answer.id}\n{report}"
        if answer.slips is not None:
            assert set(report.slips) == set(answer.slips), f"{answer.id}\n{report}"
        assert "unjudged" not in report.slips, answer.id
    wrong = [v for v in verdicts if not v.answer.right]
    assert sum(v.named for v in wrong) >= 0.9 * len(wrong)
