"""One query, ten keys: what d_k does to scores, weights and gradient, divided by √d_k or not."""

import math
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.base.numerals import axis_end
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Curve, Scene, number
from mha_lesson.refusals import require_bool, require_one_of

SIZES = tuple(2**k for k in range(2, 13))  # d_k = 4 … 4096
N_KEYS = 10
ROW = 10  # the one to show: it sharpens about as the mean of all does
N_ROWS = 200  # over which the curve of the largest weight is averaged


def scaling() -> Explorer:
    """Sliders `d_k` (4 … 4096) and scaled or not, over scores, weights and gradient of one row."""
    return Explorer(
        {
            "d_k": widgets.SelectionSlider(options=SIZES),
            "scaled": widgets.Checkbox(description="divide by √d_k", indent=False),
        },
        scene,
        headline="Undivided, the longer the vectors, the more one key takes: the root undoes it.",
    )


def scene(d_k: int = 4, scaled: bool = False) -> Scene:
    """One query and ten keys, the first d_k numbers of each: a longer vector only adds to them."""
    require_one_of("d_k", d_k, SIZES)
    require_bool("scaled", scaled)
    row = _scores(d_k, scaled)[ROW]
    weights = row.softmax(dim=-1)
    gradient = weights * (1 - weights)
    keys = [f"k{i}" for i in range(N_KEYS)]
    low, high = float(row.min()), float(row.max())
    limit = axis_end(max(-low, high))

    def bars(
        values: Tensor, name: str, title: str, limits: tuple[float, float], **more: Any
    ) -> Bars:
        return Bars(values, keys, name=name, title=title, limits=limits, **more)

    decimals = 0 if max(-low, high) >= 9.95 else 1
    both = (-limit, limit)
    scores = bars(row, "score", "scores of that row", both, steady=True, decimals=decimals)
    shares = bars(weights, "weight", "weights of one row", (0, 1), decimals=2)
    slopes = bars(gradient, "p (1 − p)", "slope of each weight by its score", (0, 0.25), decimals=2)
    curve = Curve(
        SIZES,
        {
            "unscaled": [_largest(d, False) for d in SIZES],
            "÷ √d_k": [_largest(d, True) for d in SIZES],
        },
        marker=d_k,
        log_x=True,
        limits=(0, 1),
        x_name="d_k",
        y_name="largest weight",
        title=f"largest weight, mean of {N_ROWS} rows",
    )
    how = "divided by √d_k" if scaled else "unscaled"
    return Scene(
        [[curve, shares], [scores, slopes]],
        caption=f"d_k = {d_k}, {how}: scores from {number(low)} to {number(high)}, "
        f"largest weight {number(float(weights.max()), 3)}, "
        f"largest slope {number(float(gradient.max()), 3)} of at most .25.",
    )


@cache
def _vectors() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    draw = partial(torch.randn, generator=generator, device="cpu")
    return draw(N_ROWS, 1, SIZES[-1]), draw(N_ROWS, N_KEYS, SIZES[-1])


@cache
def _scores(d_k: int, scaled: bool) -> Tensor:
    """(N_ROWS, N_KEYS) dot products of the first d_k numbers."""
    queries, keys = _vectors()
    products = (queries[..., :d_k] @ keys[..., :d_k].mT).squeeze(1)
    return products / math.sqrt(d_k) if scaled else products


@cache
def _largest(d_k: int, scaled: bool) -> float:
    return _scores(d_k, scaled).softmax(dim=-1).amax(dim=-1).mean().item()
