"""The exercises: `check.<name>(answer)` says whether an answer is right, and if not, what it does.

One function per exercise, named as its stub. Each takes the learner's function (or class) and
gives a report: `.passed` is True, False, or None where nothing was attempted yet; `str(report)`
says it in words. `progress()` is the learner's table of all of them.
"""

from typing import Any

from mha_lesson.check import progress as _progress
from mha_lesson.check.engine import check as _check
from mha_lesson.check.exercise import Exercise as _Exercise
from mha_lesson.check.report import Report
from mha_lesson.check.scaling import attention as _attention
from mha_lesson.check.scaling import attention_scores as _attention_scores
