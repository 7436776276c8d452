"""The colours of heads, roles and values, and what reads on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mha_lesson.refusals import MOST, require_whole

# Okabe and Ito's colours (2008), the three light ones darker: a line of each reaches 3 : 1 on white
# and on dark pages; and no eye takes two for one that could tell theirs. Black is a grey.
HEADS = (
    "#0072B2",
    "#BE8B11",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#549AC9",
    "#7D800A",
    "#808080",
)
# What a vector is for: query, key, value, or what a layer puts out (and takes in). Every eye can
# tell them from each other and from the heads' colours, and they are dark enough for text.
ROLES = {"query": "#962FEF", "key": "#89561B", "value": "#346875", "output": "#C627A7"}
INK = "#787878"  # equal contrast (4.3 : 1) on a white page and on a #111 one
PLATE = "#F3F5F8"  # cells that carry numbers lie on this, so that the numbers can be read anywhere
HIGH, LOW = "#2878CC", "#CF5A08"  # the far ends of the maps: more and less than zero
RAMP = 256
TILE, WRONG = "#D3D7DC", "#111111"  # a cell of no head; the dashes around a cell in a wrong place
RIBBON, RIBBON_FAR = 0.75, 0.18  # opacity of those that one looks at, and of the others


def head_colour(head: int) -> str:
    """The colour of head `head` in every picture, as "#rrggbb".

    Heads 8 to 15 take the eight colours again, hollow or dashed; a head's number is printed too.
    """
    require_whole("head", head, 0, MOST)
    return HEADS[head % len(HEADS)]


def rgb(colour: str) -> tuple[int, int, int]:
    """(red, green, blue) from 0 to 255 of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _ramp(top: str) -> np.ndarray:
    """(256, 4) uint8 RGBA: from a faint tint of the page to `top`.

    Opacity carries the value: zero looks empty on a light and on a dark page alike, and lightness
    changes evenly on both.
    """
    t = np.linspace(0, 1, RAMP)[:, None]
    table = np.full((RAMP, 4), 255.0)
    table[:, :3] = np.asarray(rgb(INK)) * (1 - t) ** 6 + np.asarray(rgb(top)) * (1 - (1 - t) ** 6)
    table[:, 3:] = 255 * (0.09 + 0.91 * t)
    return table.round().astype(np.uint8)


def _map(top: str, low: str = "") -> np.ndarray:
    """(256, 4) uint8 RGBA: up to `top` far above zero; with `low`, from there far below zero."""
    return np.concatenate([_ramp(low)[:0:-2], _ramp(top)[::2]]) if low else _ramp(top)


ENDS = {  # of each map: far above zero and, where it has values there, far below
    "sequential": (HIGH,),
    "diverging": (HIGH, LOW),
    **{role: (colour, INK) for role, colour in ROLES.items()},
    **{f"head {i}": (colour, INK) for i, colour in enumerate(HEADS)},
    **{f"head {i} from 0": (colour,) for i, colour in enumerate(HEADS)},
}
MAPS = {name: _map(*ends) for name, ends in ENDS.items()}  # in the browser: colours.js


def on_plate(table: np.ndarray) -> np.ndarray:
    """A map of RGBA as the opaque colours it has on the plate, for cells that carry numbers."""
    alpha = table[:, 3:] / 255.0
    solid = table[:, :3] * alpha + np.asarray(rgb(PLATE)) * (1 - alpha)
    return np.concatenate([solid, np.full_like(alpha, 255)], axis=1).round().astype(np.uint8)


def luminance(colour: str | Sequence[Any]) -> float:
    """Relative luminance as WCAG 2 defines it, 0 (black) to 1 (white)."""
    parts = np.asarray(rgb(colour) if isinstance(colour, str) else colour[:3]) / 255.0
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def text_on(paper: str | Sequence[Any]) -> str:
    """Black or white, whichever reads better on `paper`: at least 4.5 : 1."""
    return "#000000" if luminance(paper) > 0.179 else "#FFFFFF"
