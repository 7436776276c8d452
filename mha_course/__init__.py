"""The course around `mha_lesson`: it draws, checks and asks, opens the lab and reports on a class.

What a notebook uses is imported from here when it is first asked for: matplotlib takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mha_course import check, explore
    from mha_course.cells import selfcheck, writing
    from mha_course.cells.claims import Claim
    from mha_course.cells.line import check_line
    from mha_course.cells.predictions import predict
    from mha_course.collection import cost, runs, shipped
    from mha_course.collection.kept import kept
    from mha_course.comparison.compare import compare
    from mha_course.pictures.figures import show
    from mha_course.pictures.panels import Bars, Curve, Heatmap, Scene, Table, Tiles, Words

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
    "check_line",
    "compare",
    "cost",
    "explore",
    "kept",
    "predict",
    "runs",
    "selfcheck",
    "shipped",
    "show",
    "writing",
]

_PANELS = ("Bars", "Curve", "Heatmap", "Scene", "Table", "Tiles", "Words")
_HOMES = dict.fromkeys(_PANELS, "pictures.panels") | {
    "Claim": "cells.claims",
    "check_line": "cells.line",
    "compare": "comparison.compare",
    "kept": "collection.kept",
    "predict": "cells.predictions",
    "show": "pictures.figures",
}

_MODULES = {
    "cost": "collection.cost",
    "runs": "collection.runs",
    "selfcheck": "cells.selfcheck",
    "shipped": "collection.shipped",
    "writing": "cells.writing",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return import_module(f"{__name__}.{_MODULES.get(name, name)}")


def __dir__() -> list[str]:
    return sorted(__all__)
