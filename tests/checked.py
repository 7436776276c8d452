"""What jaxtyping's import hook checks under pytest, and with what (see conftest.py)."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

NAMES_AXES = [
    "mha_lesson.attention", "mha_lesson.attention_weights", "mha_lesson.masks",
    "mha_lesson.decoding", "mha_lesson.models", "mha_lesson.tasks", "mha_lesson.text",
    "mha_lesson.training", "mha_lesson.runs", "mha_lesson.pretrained", "mha_lesson.heads",
]  # fmt: skip
check_annotations = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # as type checkers read it: where a float is wanted an int will do
        hint_overrides=FrozenDict({Self: Any}),  # methods are checked one by one
    )
)
