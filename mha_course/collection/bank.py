"""The bank: questions on what the course says, for notebooks, for practice and for a final test.

`bank.toml` holds them, by notebook, and `exam.toml` those that only a final test asks. Which has a
right answer that can be computed, and that it is the one that stands there, the tests say.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mha_course.collection.questions import Question, read

SOURCE = Path(__file__).with_suffix(".toml")
EXAM = SOURCE.with_name("exam.toml")


@cache
def bank(source: Path = SOURCE) -> Mapping[str, Question]:
    """All questions of a file by their names, notebook by notebook."""
    return read(source)
