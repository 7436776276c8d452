"""The verdicts of notebook 12, with other seeds and sizes than the notebook's."""

import math

import pytest
import torch

from mha_course import runs, shipped

SEEDS = (21, 22, 23)
SCALES = [bug for bug in shipped.bugs().values() if bug.kind == "scale"]


# That the fates hold from every start, and made anew: test_runs.py. That no property sees a
# wrong scale: tests/cells/test_predict.py, where each is the right class with other weights.


def test_few_mistakes_look_like_a_failure():
    reported, honest, _ = runs.table("fates").unbind(1)
    right, wrong = reported[0], reported[1:]
    failed = (wrong > right.max() + 0.3).all(dim=-1)
    too_good = (wrong < right.min() - 0.3).all(dim=-1)
    hidden = ~failed & ~too_good
    assert 0 < failed.sum() < len(wrong) / 2 and too_good.sum() >= 3
    assert hidden.sum() >= 2
    assert (honest[1:][too_good] > honest[0].max() + 0.3).all(), "what is too good sees the answer"


@pytest.mark.parametrize("bug", SCALES, ids=lambda bug: bug.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_example_by_hand_finds_a_wrong_scale(bug, seed):
    """Two keys, weights of one fifth and four fifths, three heads of two dimensions."""
    torch.manual_seed(seed)
    wrong = bug.build(6, 3).double()
    with torch.no_grad():
        for name in ("w_q", "w_k", "w_v", "w_o"):
            getattr(wrong, name).weight.copy_(torch.eye(6))
            getattr(wrong, name).bias.zero_()
        wrong.w_q.weight.zero_()
        wrong.w_q.bias.fill_(1.0)
        x = torch.zeros(1, 2, 6, dtype=torch.float64)
        x[0, 1] = math.log(4) / math.sqrt(2)  # q · k = √2 ln 4, and divided by √2 it is ln 4
        right = shipped.with_same_weights(shipped.right(), wrong, 6, 3)
        torch.testing.assert_close(right(x), 0.8 * x[:, 1:].expand_as(x))
        assert (wrong(x) - right(x)).abs().max() > 0.01
