"""What a picture may show: every kind of panel, each in a file of its own, and the scene of them.

A panel says what is shown (values, labels, colours, words) and gives its marks; `layout` says where
panels stand; `figures` draws the marks on paper, `live` in the browser. Values may be lists, numpy
arrays or torch tensors.
"""

from mha_course.base.numerals import number
from mha_course.pictures.bars import Bars
from mha_course.pictures.colours import head_colour
from mha_course.pictures.curve import Curve
from mha_course.pictures.heatmap import Heatmap
from mha_course.pictures.panel import Panel
from mha_course.pictures.scene import Scene, scene_of
from mha_course.pictures.stack import Stack
from mha_course.pictures.table import Table
from mha_course.pictures.tiles import Tiles
from mha_course.pictures.walk import Walk
from mha_course.pictures.words import Words

__all__ = [
    "Bars", "Curve", "Heatmap", "Panel", "Scene", "Stack", "Table", "Tiles",
    "Walk", "Words", "head_colour", "number", "scene_of",
]  # fmt: skip
