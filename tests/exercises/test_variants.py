"""The exercises in another layout: right answers pass, slips are named, no mutant passes."""

import random
from typing import Any

import pytest
import torch

from answers.variants import RIGHT
from mha_course import check
from mha_course.engine.changes import changes
from mha_course.engine.compare import difference
from mha_course.engine.places import Bounded, versions
from mha_course.engine.safely import fresh, undisturbed
from mha_course.engine.source import Source
from mha_course.exercises.variants import VARIANTS

ALL = {v.name: v for variants in VARIANTS.values() for v in variants}
EXERCISE_OF = {v.name: getattr(check, name) for name, some in VARIANTS.items() for v in some}


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
