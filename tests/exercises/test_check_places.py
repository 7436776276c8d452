"""One place that keeps an answer from being right, and what all inputs together show."""

import ast
import math
import sys

import pytest
import torch
import torch.nn.functional as F

from mha_course import check
from mha_course.engine import places
from mha_course.engine.changes import KINDS, changes
from mha_course.engine.places import can_be_changed
from mha_course.engine.source import Source
from mha_course.exercises.nb11 import cached_mask
from mha_course.exercises.nb12_styles import Layers
from typed import typed


class SoftmaxOverHeads(Layers):
    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (w(x).view(B, T, self.n_heads, -1).mT for w in (self.w_q, self.w_k, self.w_v))
        q, k, v = (y.permute(0, 3, 1, 2) for y in (q, k, v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.w_o((scores.softmax(1).nan_to_num() @ v).transpose(1, 2).reshape(B, T, D))


ROUNDED = ["w = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1).round(decimals=1)", "return w @ V, w"]
PLACES = [
    (
        "attention_scores",
        "Q, K",
        ["scores = Q @ K.mT", "return scores / math.sqrt(Q.shape[-1] * 5)"],
        "`… * 5`",
    ),
    ("attention", "Q, K, V", ROUNDED, "`….round(decimals=1)`"),
    (
        "cached_mask",
        "n_new, n_cached, window",
        [
            "query = torch.arange(n_cached, n_cached + n_new)[:, None]",
            "key = torch.arange(n_cached + n_new)",
            "future = key > query",
            "return future if window is None else future & (query - key >= window)",
        ],
        "a different operator",
    ),
    (
        "merge_heads",
        "x",
        ["B, h, T, d_k = x.shape", "x = x.transpose(1, 2)", "return x.reshape(B, h, T * d_k)"],
        "do not fit line 4, `return x.reshape(B, h, T * d_k)`: in one of the two lines `h` and `T`",
    ),
]


@pytest.mark.parametrize(("exercise", "arguments", "lines", "part"), PLACES)
def test_the_place_is_named(exercise, arguments, lines, part) -> None:
    report = getattr(check, exercise)(typed(arguments, *lines, math=math, torch=torch))
    assert report.slips == ("one_place",) and part in str(report), str(report)
    assert report.findings[0].rest_right


def test_an_answer_that_calls_itself_is_changed_at_every_depth() -> None:
    """The version calls itself, not what the learner wrote: else one level alone is mended."""
    lines = (
        "if T == 0: return torch.zeros(0, 0, dtype=torch.bool)",
        "mask = F.pad(answer(T - 1), (0, 1, 0, 1))",
        "mask[: T - 1{}, T - 1] = True",
        "return mask",
    )
    right, wrong = (
        typed("T", *(line.format(n) for line in lines), torch=torch, F=F) for n in ("", " - T // 3")
    )
    assert check.causal_mask(right).passed
    report = check.causal_mask(wrong)
    assert report.slips == ("one_place",) and "Line 4" in str(report), str(report)


def test_beside_an_error_the_place_is_a_note() -> None:
    def turned(X, W_qkv):
        return (X @ W_qkv).chunk(3, -1)

    report = check.project_qkv(turned)
    assert report.slips == ("error:matrix_shapes",)
    assert "`W_qkv`" in report.notes[-1] and "still missing" in report.notes[-1]


def test_a_changed_loop_that_would_not_end_is_stopped() -> None:
    def with_while(n_new, n_cached, window):
        rows, i = [], 0
        while i < n_new:
            rows.append([j > i + n_new for j in range(n_cached + n_new)])
            i += 1
        mask = torch.tensor(rows)
        if window is None:
            return mask
        place = torch.arange(n_cached, n_cached + n_new)[:, None]
        return mask | (place - torch.arange(n_cached + n_new) >= window)

    tracing = sys.gettrace()
    report = cached_mask(with_while)
    assert report.slips == ("moved_by_new",) or "`n_new`" in str(report), str(report)
    assert sys.gettrace() is tracing


def test_an_answer_with_effects_outside_is_never_changed() -> None:
    def writes(n_new, n_cached, window):
        open("/dev/null").close()
        return torch.zeros(n_new, n_cached + n_new, dtype=torch.bool) & (window == 7.5)

    source = Source(writes)
    assert not can_be_changed(source)
    assert can_be_changed(Source(typed("Q, K, V", *ROUNDED)))


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


def test_return_inside_a_loop_and_names_in_another_order() -> None:
    def first_turn(T):
        mask = torch.zeros(T, T, dtype=torch.bool)
        for i in range(T):
            mask[i, i + 1 :] = True
            return mask

    def unpacked_wrongly(heads, W_o):
        _B, h, d_k, _T = heads.shape
        return sum(heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T for i in range(h))

    assert "`return` is inside this loop" in str(check.causal_mask(first_turn))
    assert "the names belong in a different order" in str(
        check.sum_of_head_writes(unpacked_wrongly)
    )


def test_a_letter_of_an_equation_and_an_axis_left_out() -> None:
    def other_letter(Q, K):
        return torch.einsum("...ie,...jf->...ij", Q, K) / math.sqrt(Q.shape[-1])

    def no_axis(x, n_heads):
        return torch.stack(torch.chunk(x, n_heads), dim=1)

    assert "a different letter belongs there" in str(check.attention_scores(other_letter))
    assert "an argument is missing there" in str(check.split_heads(no_axis))


def test_a_version_of_a_method_is_a_class_over_the_learners() -> None:
    found = [made for _, made in places.versions(Source(SoftmaxOverHeads))]
    assert all(issubclass(made, SoftmaxOverHeads) for made in found)
    assert len({made.forward.__code__.co_code for made in found}) > 50


# --- what all inputs together show ---------------------------------------------------------------


def test_right_for_matrices_only() -> None:
    def loops(Q, K):
        out = Q.new_zeros(len(Q), len(K))
        for i, q in enumerate(Q):
            for j, k in enumerate(K):
                out[i, j] = (q * k).sum() / math.sqrt(Q.shape[-1])
        return out

    report = check.attention_scores(loops)
    assert report.slips == ("single_matrices",)
    assert report.findings[0].does.startswith("It is right for single matrices")


def test_right_for_three_axes_only() -> None:
    report = check.attention_scores(lambda Q, K: torch.bmm(Q, K.mT) / math.sqrt(Q.shape[-1]))
    assert "It is right where the first input has 3 axes." in report.notes


def test_no_axis_is_exchanged_with_itself() -> None:
    found = changes(ast.parse("x.transpose(2, 3)"))
    pairs = {ast.unparse(c.new) for c in found if c.kind == "number" and c.key == 0}
    assert "1" in pairs and not pairs & {"3", "-1"}


def test_masks_with_right_results_are_named() -> None:
    class OneMaskForEachHead(SoftmaxOverHeads):
        def forward(self, x, mask=None):
            heads = []
            q, k, v = (
                w(x).unflatten(-1, (self.n_heads, -1)) for w in (self.w_q, self.w_k, self.w_v)
            )
            for i in range(self.n_heads):
                scores = q[:, :, i] @ k[:, :, i].mT / math.sqrt(q.shape[-1])
                if mask is not None:
                    scores = scores.masked_fill(mask, -math.inf)
                heads.append(scores.softmax(-1) @ v[:, :, i])
            return self.w_o(torch.cat(heads, -1))

    report = check.MultiHeadAttention(OneMaskForEachHead)
    notes = report.notes
    assert (
        "Of the inputs tried, it is right without a mask, and with a causal mask (T, T)." in notes
    ), str(report)


def test_arguments_in_any_other_order() -> None:
    def solved(right, wrong, weights, query):
        return weights[:, query, right] > weights[:, query, wrong]

    report = check.solved(solved)
    assert report.slips == ("arguments_exchanged",)
    assert "(right, wrong, weights, query)" in str(report)


def test_one_truth_value_for_all_heads_is_no_slip_of_each() -> None:
    def of_all_together(weights, query, right, wrong):
        row = weights[:, query].sum(0)
        return row[right] > row[wrong]

    assert "unequal" not in check.solved(of_all_together).slips


# --- remarks on right answers --------------------------------------------------------------------


def test_three_products_are_right_and_counted() -> None:
    def three(X, W):
        return tuple(X @ W[i * X.shape[-1] : (i + 1) * X.shape[-1]].mT for i in range(3))

    report = check.project_qkv(three)
    assert report.passed and "It takes 3 products" in report.notes[0]
    assert not check.project_qkv(lambda X, W: F.linear(X, W).chunk(3, -1)).notes
