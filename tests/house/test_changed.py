"""What a change reaches: all that stands on it, and little else."""

import pytest

import changed

ROTATION = "mha_course/explore/n10_rotation.py"
REACHED = (  # what has changed; what must run then; what need not
    ("mha_course/exercises/nb08.py", "test_check_catalogue test_classroom 08_", "tests/engine 01_"),
    ("mha_course/engine/judge.py", "tests/engine test_check_catalogue 01_", "tests/comparison"),
    ("mha_course/practice/schedule.py", "tests/practice test_from_memory 00_", "tests/engine 04_"),
    (ROTATION, "test_states test_claims_10 10_", "tests/exercises tests/comparison 09_"),
    ("mha_course/pictures/view.js", "tests/pictures test_explorers 05_", "tests/engine"),
    ("mha_course/collection/bank.toml", "test_bank tests/practice", "tests/engine tests/lesson"),
    ("mha_course/collection/exam.toml", "test_bank test_final_test", "tests/engine tests/explore"),
    ("mha_course/exercises/nb12.toml", "test_exercise_20 12_", "tests/engine 01_ tests/explore"),
    ("mha_course/engine/errors.toml", "test_check_report test_check_answers", "tests/comparison"),
    ("mha_course/lab/jupyter/jupyter_server_config.py", "test_nothing_lost", "tests/engine"),
    ("mha_lesson/masks.py", "test_masks test_attention tests/explore 04_", "tests/engine"),
    ("mha_lesson/training.py", "test_training 07_ test_claims_07", "test_masks tests/engine 04_"),
    ("tests/exercises/answers/rotate.py", "test_check_answers", "tests/engine 10_"),
    ("notebooks/TEACHING.md", "test_classroom test_teaching", "tests/engine 04_"),
    ("constraints.txt", "tests/engine tests/lesson 13_", ""),
)


@pytest.mark.parametrize(("path", "must", "need_not"), REACHED)
def test_what_a_change_reaches(path, must, need_not):
    reached = changed.reached([path])
    assert not [part for part in must.split() if not any(part in found for found in reached)]
    assert not [part for part in need_not.split() if any(part in found for found in reached)]


def test_tests_and_notebooks_stand_on_every_file():
    on, seen = changed.stands_on(), {p for p in changed.code().values() if "/test_" in p}
    seen = seen.union(*(changed.below(str(p)) for p in changed.ROOT.glob("notebooks/*.ipynb")))
    while more := {home for path in seen for home in on.get(path, ())} - seen:
        seen |= more
    files = {p for p in changed.code().values() if p.startswith("mha_") and "__init__" not in p}
    assert not files - seen
