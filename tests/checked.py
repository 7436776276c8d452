"""What jaxtyping's import hook checks under pytest, and with what (see conftest.py)."""

from pathlib import Path
from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

ROOT = Path(__file__).resolve().parents[1]
NAMES_AXES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.glob("mha_*/**/*.py"))
    if "\nfrom jaxtyping import" in path.read_text(encoding="utf-8")
]
check_annotations = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # as type checkers read it: where a float is wanted an int will do
        hint_overrides=FrozenDict({Self: Any}),  # methods are checked one by one
    )
)
