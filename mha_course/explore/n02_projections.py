"""What h and d_k cost: parameters of each matrix, and operations for each token."""

import ipywidgets as widgets

from mha_course.base.numerals import axis_end, counted
from mha_course.pictures.colours import ROLES
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Scene
from mha_lesson.refusals import require_sizes
from mha_lesson.refusals.of_attention import require_divisible

WIDTHS = (48, 96, 192, 384, 768)
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # each divides every width
TIED = "d_model / h"
FREE = (1, 2, 4, 8, 16, 32, 64, 128)
T = 128  # tokens, for the operations that depend on their number


def projections() -> Explorer:
    """Sliders `d_model`, `h` and `d_k`, tied to d_model / h or free, over parameters and work."""
    return Explorer(
        {
            "d_model": widgets.SelectionSlider(options=WIDTHS, value=384),
            "h": widgets.SelectionSlider(options=HEADS, value=12),
            "d_k": widgets.SelectionSlider(options=(TIED, *FREE)),
        },
        lambda d_model, h, d_k: scene(d_model, h, None if d_k == TIED else d_k),
        headline="More heads on one width add no parameters. With widths of their own, they do.",
    )


def scene(d_model: int = 384, h: int = 12, d_k: int | None = None) -> Scene:
    """Parameters (biases left out) and operations for each token among T = 128.

    d_k is d_model / h if None.
    """
    require_sizes(d_model=d_model, h=h)
    if d_k is None:
        require_divisible(d_model, h)
        d_k = d_model // h
    require_sizes(d_k=d_k)
    d_model, h, d_k = int(d_model), int(h), int(d_k)  # NumPy's would overflow
    one = d_model * h * d_k  # parameters of one matrix
    products = 2 * T * h * d_k  # a multiply-add counts as two operations
    share = "exactly" if one == d_model**2 else f"{one / d_model**2:.3g} times"
    matrices = ["W_q", "W_k", "W_v", "W_o"]
    parameters = Bars(
        [one] * 4,
        matrices,
        roles=ROLES,
        name="parameters",
        title="parameters",
        limits=(0, axis_end(max(one, d_model**2))),
        steady=True,
        reference=(d_model**2, "d_model²"),
    )
    operations = Bars(
        [2 * one] * 4 + [products] * 2,
        [*matrices, "Q Kᵀ", "A V"],
        roles=[*ROLES, None, "value"],
        name="operations",
        title=f"operations for each of {T} tokens",
        limits=(0, axis_end(max(2 * one, products))),
        steady=True,
    )
    return Scene(
        [parameters, operations],
        caption=f"{counted(h, 'head')} of {counted(d_k, 'dimension')}: "
        f"4 · {d_model} · {h} · {d_k} = {4 * one:,} parameters, {share} 4 · d_model². "
        f"The two products of attention, Q Kᵀ and A V (A: the weights), take "
        f"{2 * products / (8 * one + 2 * products):.0%} of the operations.",
    )
