"""The checks on answers that learners could have written, right and wrong, in several hands."""

import re
from pathlib import Path
from textwrap import indent

import pytest
from matplotlib import pyplot

import notebooks
from answers import Answer, all_answers
from answers.pairs import PAIRS
from diagnose import judge, named
from mha_course import check, engine
from mha_course.engine.judge import ASKED, NAMERS
from mha_course.exercises import Exercise
from mutants import is_wrong
from sentences import is_a_sentence

ROOT = Path(__file__).parents[2]

ANSWERS = all_answers()
NAMES = [e.name for e in (*check.EXERCISES, *check.SHORT)]


# `long`: of wrong answers with the same findings all but the first, and five in six of those;
# most of the classes, which take longest; what imports PyTorch's compiler, waits, or computes for
# a second.
WRONG = {(a.exercise, frozenset(a.slips)): a for a in reversed(ANSWERS) if not a.right}
ENOUGH = [*WRONG.values(), *(a for a in ANSWERS if a.right)]
CLASSES = "MultiHeadAttention", "WritingAttention"
ONE_IN = {(True, False): 1, (False, False): 6, (False, True): 10, (True, True): 12}
SLOW = {
    "attention-weights_as_a_gradient",
    "cached_attention-bias_of_the_lower_right",
    "count_parameters-params_by_linear",
    "test_attention-by_properties",
    "test_attention-hanging",
    "test_attention-leaving_python",
    "test_attention-one_head_as_wide_as_four",
}
SOON = {
    answer.id
    for kind, n in ONE_IN.items()  # of answers: right or not, a class or not
    for answer in [a for a in ENOUGH if (a.right, a.exercise in CLASSES) == kind][::n]
} - SLOW


@pytest.mark.parametrize("name", NAMES)
def test_judged_rightly_and_named(name: str) -> None:
    judged_rightly_and_named([a for a in ANSWERS if a.exercise == name and a.id in SOON])


@pytest.mark.long
def test_the_others_are_judged_rightly() -> None:
    judged_rightly_and_named([a for a in ANSWERS if a.id not in SOON])


def judged_rightly_and_named(answers: list[Answer]) -> None:
    for answer in answers:
        report = judge(answer).report
        assert report.passed is answer.right, f"{answer.id}\n{report}"
        assert answer.right or set(report.slips) == set(answer.slips), f"{answer.id}\n{report}"
        assert "unjudged" not in report.slips, answer.id
        slips = {slip.key for slip in getattr(check, answer.exercise).slips}
        own = [f for f in report.findings if f.key not in slips and f.key[:6] != "error:"]
        texts = [text for finding in own for text in (finding.does, finding.asks) if text]
        assert all(map(is_a_sentence, texts)), f"{answer.id}\n{report}"


DRAWN = """
made = x.unflatten(-1, (n, -1)).transpose(1, 2)
pyplot.imshow(made.detach().flatten(0, -2))
return made
"""
NOT_ASKED = [
    DRAWN,
    DRAWN.replace(".detach()", ""),
    "return x.unflatten(-1, (n, -1)).transpose(1, 2).cpu()",
]


@pytest.mark.parametrize("lines", NOT_ASKED)
def test_what_no_exercise_asks_is_a_remark(lines: str) -> None:
    """A picture of what was made, and a fixed device; a mistake beside them is a mistake."""
    space: dict = {"pyplot": pyplot}
    exec("def split(x, n):\n" + indent(lines, "    "), space)
    report = check.split_heads(space["split"])
    assert report.passed and not report.findings and "does not ask for it" in str(report)
    wrong = check.split_heads(lambda x, n: space["split"](x, n).flip(1))
    assert wrong.passed is False and "fixed_device" not in wrong.slips


@pytest.mark.parametrize("exercise", (*check.EXERCISES, *check.SHORT), ids=lambda e: e.name)
def test_an_exercise_is_whole(exercise: Exercise) -> None:
    """A right answer that agrees with the check elsewhere, too, and a stub in its notebook."""
    right = next(a.function for a in ANSWERS if a.right and a.exercise == exercise.name)
    if isinstance(exercise, Exercise):  # which are judged by values
        assert not is_wrong(exercise.name, right, trials=5)
    (path,) = ROOT.glob(f"notebooks/{exercise.notebook}_*.ipynb")
    stubs = [
        c.source for c in notebooks.read(path).cells if "exercise" in c.metadata.get("tags", ())
    ]
    assert re.search(rf"^(def|class) {exercise.name}\b", "\n".join(stubs), re.M)


def test_the_engine_draws_the_flow() -> None:
    """What explains a wrong answer and what a right one is asked, in the order of the code."""
    drawn = [str(engine.__doc__).find(function.__name__) for function in (*NAMERS, *ASKED)]
    assert drawn == sorted(drawn) and min(drawn) > 0


def test_nearly_every_mistake_is_named() -> None:
    """Not "other numbers": a slip, a place, or an error whose meaning is known."""
    wrong = [answer.slips for answer in ANSWERS if not answer.right]
    wrong += [pair for pairs in PAIRS.values() for pair in pairs]
    assert sum(named(slips) for slips in wrong) >= 0.95 * len(wrong)
