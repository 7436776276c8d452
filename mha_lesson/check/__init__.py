"""The exercises: `check.<name>(answer)` says whether an answer is right, and if not, what it does.

One function per exercise, named as its stub. Each takes the learner's function (or class) and
gives a report: `.passed` is True, False, or None where nothing was attempted yet; `str(report)`
says it in words. `progress()` is the learner's table of all of them.
"""

from typing import Any

from mha_lesson.check import (
    concatenation,
    cost,
    masking,
    module,
    projections,
    real_heads,
    scaling,
    splitting,
    training,
)
from mha_lesson.check.engine import check as _check
from mha_lesson.check.exercise import Exercise
from mha_lesson.check.journal import Progress, table
from mha_lesson.check.report import Report

EXERCISES: tuple[Exercise, ...] = (
    scaling.attention_scores,
    scaling.attention,
    projections.project_qkv,
    projections.count_parameters,
    splitting.split_heads,
    splitting.merge_heads,
    masking.causal_mask,
    masking.padding_mask,
    masking.masked_softmax,
    concatenation.sum_of_head_writes,
    module.MultiHeadAttention,
    training.next_token_loss,
    real_heads.previous_token_score,
    cost.count_flops,
)

__all__ = [
    "EXERCISES",
    "MultiHeadAttention",
    "Report",
    "attention",
    "attention_scores",
    "causal_mask",
    "count_flops",
    "count_parameters",
    "masked_softmax",
    "merge_heads",
    "next_token_loss",
    "padding_mask",
    "previous_token_score",
    "progress",
    "project_qkv",
    "split_heads",
    "sum_of_head_writes",
]


def attention_scores(answer: Any) -> Report:
    """1: scaled scores of every query with every key."""
    return _check(scaling.attention_scores, answer)


def attention(answer: Any) -> Report:
    """2: scaled dot-product attention, output and weights."""
    return _check(scaling.attention, answer)


def project_qkv(answer: Any) -> Report:
    """3: queries, keys and values from one fused weight."""
    return _check(projections.project_qkv, answer)


def count_parameters(answer: Any) -> Report:
    """4: how many weights the four projections have."""
    return _check(projections.count_parameters, answer)


def split_heads(answer: Any) -> Report:
    """5: (B, T, d_model) to (B, h, T, d_k)."""
    return _check(splitting.split_heads, answer)


def merge_heads(answer: Any) -> Report:
    """6: (B, h, T, d_k) to (B, T, h·d_k)."""
    return _check(splitting.merge_heads, answer)


def causal_mask(answer: Any) -> Report:
    """7: the future, blocked."""
    return _check(masking.causal_mask, answer)


def padding_mask(answer: Any) -> Report:
    """8: padding keys, blocked."""
    return _check(masking.padding_mask, answer)


def masked_softmax(answer: Any) -> Report:
    """9: a softmax that survives rows with nothing left."""
    return _check(masking.masked_softmax, answer)


def sum_of_head_writes(answer: Any) -> Report:
    """10: concatenation and W_o as a sum over heads."""
    return _check(concatenation.sum_of_head_writes, answer)


def MultiHeadAttention(answer: Any) -> Report:
    """11: the whole class."""
    return _check(module.MultiHeadAttention, answer)


def next_token_loss(answer: Any) -> Report:
    """12: the cross-entropy of predicting each next token."""
    return _check(training.next_token_loss, answer)


def previous_token_score(answer: Any) -> Report:
    """13: how much each head looks at the token before."""
    return _check(real_heads.previous_token_score, answer)


def count_flops(answer: Any) -> Report:
    """14: floating-point operations of a forward pass."""
    return _check(cost.count_flops, answer)


def progress(keep: bool | None = None) -> Progress:
    """The exercises: done, tried or open.

    In the learner's copy of the course (`my_notebooks`) one table spans all notebooks: it is kept
    in `.progress.json` there (names and states, never code), unless you say `keep=False`, which
    removes it. Elsewhere it is this kernel's only, unless you say `keep=True`.
    """
    return table([(e.number, e.notebook, e.name) for e in EXERCISES], keep)
