"""Breaks around a class: each is the mistake that its name says, and notebook 12's tests see it."""

import pytest
import torch

from answers.the_writer import AsTaught
from mha_course import check
from mha_course.collection import breaks, opened
from mha_course.collection.breaks import AROUND, NAMES, noticed
from mha_lesson.decoding import GroupedQueryAttention

SLIPS = {
    "no rotation": ("all_at_one",),
    "base 10,000": ("base_not_used",),
    "neighbours rotated, not halves": ("neighbours",),
    "key heads in turn": ("dealt_out",),
    "no scale": ("no_scale",),
    "divided by d_k": ("by_d_k",),
    "merged without the transpose": ("not_permuted_back",),
}
NOTICED = {
    "as written": [],
    "no rotation": ["order", "unequal"],
    "uniform weights": ["order", "unequal"],
    "no mask": ["leak", "unequal"],
    "merged without the transpose": ["leak", "unequal"],
    # 64 tokens share a scale, the later ones too.
    "4 bits, keys by dimension": ["leak", "unequal"],
}


@pytest.mark.parametrize("name", SLIPS)
def test_the_check_names_what_is_done_around_a_class(name):
    """A text in one piece comes as it does from a class that makes the mistake itself."""

    class Broken(AsTaught):
        def forward(self, x, cache=None):
            d_model, base = self.w_q.in_features, self.base
            base = 10_000.0 if name == "base 10,000" else base
            twin = AsTaught(d_model, self.n_heads, self.n_kv_heads, base).to(x)
            twin.load_state_dict(self.state_dict())
            AROUND[name](twin, self.n_heads, self.n_kv_heads)
            return twin(x, cache)

    found = check.WritingAttention(Broken)
    assert found.slips == SLIPS[name], str(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [AsTaught, opened.Opened])
def test_which_tests_notice(kind, name):
    for seed in (1, 2):
        assert noticed(kind, name, seed) == NOTICED.get(name, ["unequal"])


@pytest.mark.parametrize("name", NAMES)
def test_a_break_is_made_where_the_weights_are(name, device):
    right, x = GroupedQueryAttention(12, 3, 1), torch.randn(2, 7, 12)
    here, there = (breaks._small(opened.Opened, right.to(d), name) for d in ("cpu", device))
    out = there(x.to(device))[0]
    assert out.device == right.w_o.weight.device
    torch.testing.assert_close(out.cpu(), here(x)[0])


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="name"):
        breaks.broken(None, AsTaught, "no idea")
