"""A sample of the search for false passes; `tools/diagnose.py --mutants` does all of it."""

import pytest
import torch

from answers import all_answers
from mha_course import check
from mha_course.engine.changes import changes
from mutants import changeable, is_wrong, survivors


@pytest.mark.long
def test_no_wrong_mutant_of_a_right_answer_passes() -> None:
    found = [(a.id, what) for a, what in survivors(all_answers(), share=0.004) if what]
    assert found == []


def test_the_search_can_find_one() -> None:
    def without_transpose(x: torch.Tensor, n_heads: int) -> torch.Tensor:
        return x.unflatten(-1, (n_heads, -1))

    assert is_wrong("split_heads", without_transpose)
    assert not is_wrong("split_heads", check.split_heads.right)
    answers = [a for a in all_answers() if a.right]
    sources = [s for a in answers if (s := changeable(a.function))]
    assert sum(len(changes(s.tree)) for s in sources) > 20 * len(sources)
    assert len(sources) > 0.85 * len(answers)
