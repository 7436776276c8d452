"""The exercises: `check.<name>(answer)` says whether an answer is right, and if not, what it does.

One for each stub, and named as the stub is. Each takes the learner's function (or class) and gives
a report: `.passed` is True, False, or None where nothing was attempted yet; `str(report)` says it
in words. `progress()` is the learner's table of all of them.

For learners, and for teachers' reports. It stands on `exercises` and `practice`, and draws nothing.
"""

from mha_course.engine.report import Report
from mha_course.exercises import Exercise
from mha_course.exercises.nb01 import attention, attention_scores
from mha_course.exercises.nb02 import count_parameters, project_qkv
from mha_course.exercises.nb03 import merge_heads, split_heads
from mha_course.exercises.nb04 import causal_mask, masked_softmax, padding_mask
from mha_course.exercises.nb05 import sum_of_head_writes
from mha_course.exercises.nb06 import MultiHeadAttention
from mha_course.exercises.nb07 import next_token_loss
from mha_course.exercises.nb08 import previous_token_score
from mha_course.exercises.nb09 import count_flops
from mha_course.exercises.nb09_blocks import blockwise_attention
from mha_course.exercises.nb10 import rotate
from mha_course.exercises.nb11 import cached_attention, cached_mask, grouped_scores
from mha_course.exercises.nb12 import WritingTests, test_attention
from mha_course.exercises.nb13 import cache_bytes, select_keys
from mha_course.exercises.nb14 import WritingAttention
from mha_course.exercises.short import silence, solved
from mha_course.exercises.variants import VARIANTS
from mha_course.practice import journal
from mha_course.practice.from_memory import Practice
from mha_course.practice.journal import Progress, table

EXERCISES: tuple[Exercise | WritingTests, ...] = (
    attention_scores,
    attention,
    project_qkv,
    count_parameters,
    split_heads,
    merge_heads,
    causal_mask,
    padding_mask,
    masked_softmax,
    sum_of_head_writes,
    MultiHeadAttention,
    next_token_loss,
    previous_token_score,
    count_flops,
    blockwise_attention,
    rotate,
    cached_attention,
    grouped_scores,
    cached_mask,
    test_attention,
    select_keys,
    cache_bytes,
    WritingAttention,
)
# Exercise 20 asks for tests, and tests of one's own are written beside the class, not from memory.
practice = Practice([e for e in EXERCISES if isinstance(e, Exercise)], VARIANTS)
SHORT: tuple[Exercise, ...] = (silence, solved)  # outside the numbered row, and of the table

__all__ = [
    "EXERCISES",
    "SHORT",
    "Report",
    "practice",
    "progress",
    *(e.name for e in (*EXERCISES, *SHORT)),
]


def progress(keep: bool | None = None) -> Progress:
    """The exercises: done, tried or open.

    In the learner's copy of the course (`my_notebooks`) one table spans all notebooks: it is kept
    in `.progress.json` there (names and states, never code), unless you say `keep=False`, which
    removes it. Elsewhere it is this kernel's only, unless you say `keep=True`.
    """
    rows = [(e.number, e.notebook, e.name) for e in EXERCISES]
    due = tuple(d.name for d in practice.due() if d.sittings and d.day <= journal.today())
    return table(rows, keep, due)
