"""Moving pictures: one function for each explorer, all of them sliders over a pure function.

Each module holds a pure function that turns the sliders' values into a `Scene`, and a thin one that
puts the sliders over it.

`own_class` puts a learner's class into the published model.

For learners. It stands on `pictures`, on `collection` for what was trained, and on
`check` for a learner's class.
"""

from mha_course.explore.n00_cut import cut
from mha_course.explore.n00_flow import flow
from mha_course.explore.n01_scaling import scaling
from mha_course.explore.n02_projections import projections
from mha_course.explore.n03_memory import memory
from mha_course.explore.n04_masks import masks
from mha_course.explore.n05_head_writes import head_writes
from mha_course.explore.n06_heads import heads
from mha_course.explore.n07_training import training
from mha_course.explore.n08_real_heads import real_heads
from mha_course.explore.n09_cost import cost
from mha_course.explore.n10_rotation import rotation
from mha_course.explore.n11_cache import cache
from mha_course.explore.n13_models import models
from mha_course.explore.n14_writes import writes

__all__ = [
    "cache", "cost", "cut", "flow", "head_writes", "heads", "masks", "memory", "models",
    "projections",
    "real_heads", "rotation", "scaling", "training", "writes",
]  # fmt: skip
