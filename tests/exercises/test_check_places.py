"""The changes that are tried of an answer, one place at a time."""

import ast

import torch

from mha_course.engine import places
from mha_course.engine.changes import KINDS, changes
from mha_course.engine.places import can_be_changed
from mha_course.engine.source import Source
from mha_course.exercises.nb12_styles import HeadByHead
from typed import typed


def test_an_answer_with_effects_outside_is_never_changed() -> None:
    def writes(n_new, n_cached, window):
        open("/dev/null").close()
        return torch.zeros(n_new, n_cached + n_new, dtype=torch.bool) & (window == 7.5)

    source = Source(writes)
    assert not can_be_changed(source)
    assert can_be_changed(Source(typed("x", "return x + 1")))


def test_every_change_is_of_a_kind_and_is_taken_back() -> None:
    tree = ast.parse(
        "def f(x, n):\n    y = x[1:, ..., 0] @ x.T * -2\n    return y if n else (y, n)"
    )
    before = ast.dump(tree)
    found = changes(tree)
    texts = set()
    for change in found:
        change.holder[change.key] = change.new
        texts.add(ast.unparse(tree))
        change.holder[change.key] = change.node
    assert ast.dump(tree) == before
    assert {c.kind for c in found} <= set(KINDS)
    for wanted in ("* 2", "x[:, ..., 0]", "n if n else", "(n, y)", "@ x * -2", "~y", "x[2:"):
        assert any(wanted in text for text in texts), wanted


CONFUSED = """sum mean, sum prod, mean median, amax amin, max min, all any, maximum minimum,
cat stack, triu tril, sin cos, exp log, sqrt square, argmax argmin, softmax log_softmax, w_q w_o"""


def test_a_function_is_exchanged_for_what_it_is_mistaken_for() -> None:
    for one, other in map(str.split, CONFUSED.split(",")):
        for here, there in ((one, other), (other, one)):
            made = [ast.unparse(change.new) for change in changes(ast.parse(f"torch.{here}(x)"))]
            assert f"torch.{there}" in made, there


def test_a_version_of_a_method_is_a_class_over_the_learners() -> None:
    found = [made for _, made in places.versions(Source(HeadByHead))]
    assert all(issubclass(made, HeadByHead) for made in found)
    assert len({made.forward.__code__.co_code for made in found}) > 50


def test_no_axis_is_exchanged_with_itself() -> None:
    found = changes(ast.parse("x.transpose(2, 3)"))
    pairs = {ast.unparse(c.new) for c in found if c.kind == "number" and c.key == 0}
    assert "1" in pairs and not pairs & {"3", "-1"}
