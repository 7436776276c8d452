"""The course around `mha_lesson`: it draws, checks and asks, opens the lab and reports on a class.

What a notebook uses is imported from here when it is first asked for: matplotlib takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mha_course import check, explore, runs, shipped
    from mha_course.claims import Claim
    from mha_course.comparison import compare
    from mha_course.pictures.figures import show
    from mha_course.pictures.panels import Bars, Curve, Heatmap, Scene, Table, Tiles, Words
    from mha_course.predictions import predict

__all__ = [
    "Bars",
    "Claim",
    "Curve",
    "Heatmap",
    "Scene",
    "Table",
    "Tiles",
    "Words",
    "check",
    "compare",
    "explore",
    "predict",
    "runs",
    "shipped",
    "show",
]

_PANELS = ("Bars", "Curve", "Heatmap", "Scene", "Table", "Tiles", "Words")
_HOMES = dict.fromkeys(_PANELS, "pictures.panels") | {
    "Claim": "claims",
    "compare": "comparison",
    "predict": "predictions",
    "show": "pictures.figures",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    return getattr(home, name) if name in _HOMES else home


def __dir__() -> list[str]:
    return sorted(__all__)
