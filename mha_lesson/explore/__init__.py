"""Moving pictures: one function for each explorer, all of them sliders over a pure function.

Each module holds a pure function that turns the sliders' values into a `Scene`, and a thin one that
puts the sliders over it.
"""

from mha_lesson.explore.cost import cost
from mha_lesson.explore.head_writes import head_writes
from mha_lesson.explore.heads import heads
from mha_lesson.explore.masks import masks
from mha_lesson.explore.memory import memory
from mha_lesson.explore.projections import projections
from mha_lesson.explore.real_heads import real_heads
from mha_lesson.explore.scaling import scaling
from mha_lesson.explore.training import training

__all__ = [
    "cost",
    "head_writes",
    "heads",
    "masks",
    "memory",
    "projections",
    "real_heads",
    "scaling",
    "training",
]
