"""The type checker that pytest puts around every function of the package (see conftest.py)."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

check_annotations = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # as mypy reads it: where a float is wanted an int will do
        hint_overrides=FrozenDict({Self: Any}),  # methods are checked one by one
    )
)
