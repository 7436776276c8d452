"""What a report says: the words that a row of the answers holds, and what no row can hold."""

import sys

import pytest

from answers import Answer, all_answers
from mha_course import check
from typed import typed


@pytest.mark.parametrize("answer", [a for a in all_answers() if a.said], ids=lambda a: a.id)
def test_a_report_says_what_the_row_holds(answer: Answer) -> None:
    tracing = sys.gettrace()
    report = getattr(check, answer.exercise)(answer.function)
    assert sys.gettrace() is tracing  # a changed loop that would not end is stopped by a trace
    assert (report.passed, report.slips) == (answer.right, answer.slips), str(report)
    assert [words for words in answer.said if words not in f"{report}\n"] == [], str(report)
    assert report.slips != ("three_dots",) or not report.where


def test_a_stub_of_another_cell_is_named() -> None:
    lines = "weights = attention_scores(Q, K).softmax(-1)", "return weights @ V, weights"
    report = check.attention(typed("Q, K, V", *lines, attention_scores=typed("Q, K", "...")))
    assert report.slips == ("calls_a_stub",)
    assert "`attention_scores` returns nothing yet" in str(report)


def test_nothing_is_said_where_no_line_is_seen() -> None:
    """Of a whole in one call, the numbers say all that there is."""
    report = check.attention(lambda Q, K, V: (Q.sin(), K.cos()))
    assert report.passed is False and "first wrong numbers" not in str(report)


CELL = """\
import torch
from torch import nn
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
    def forward(self, x, mask=None):
        Q = ...
        return self.w_o(Q)
"""


def test_a_class_of_a_notebooks_cell_is_read() -> None:
    """`inspect` knows no file of it: only its methods do."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.run_cell(CELL, silent=True)
        report = check.MultiHeadAttention(shell.user_ns["MultiHeadAttention"])
    finally:
        InteractiveShell.clear_instance()
    assert report.slips == ("three_dots",) and "Line 9 still holds" in str(report), str(report)
