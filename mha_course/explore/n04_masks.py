"""Who may look at whom: two sequences, padding, the future, and three ways to read one mask."""

from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Panel, Scene, number
from mha_lesson.attention import scaled_dot_product_attention
from mha_lesson.masks import causal_mask, padding_mask

BLOCKED, KEEP, ADDED = CONVENTIONS = ("True = blocked", "True = keep", "0 and 1, added")
LONGEST = 8
D_K = 8
SCALE = (-4, 4)  # of scores; the added 1 included


def masks() -> Explorer:
    """Sliders `T` and a length for each sequence, causal or not, and the convention."""
    return Explorer(
        {
            "T": widgets.IntSlider(min=1, max=LONGEST),
            "length_0": widgets.IntSlider(max=6, description="length 0"),  # stays at T
            "length_1": widgets.IntSlider(max=6, description="length 1"),
            "causal": widgets.Checkbox(indent=False),
            "convention": widgets.Dropdown(options=CONVENTIONS, description="read as"),
        },
        scene,
        reach={f"length_{b}": lambda T, **_: range(T + 1) for b in range(2)},
        headline="One mask, read in three ways: only one hides the future and the padding.",
    )


def scene(
    T: int = 6, length_0: int = 6, length_1: int = 3, causal: bool = True, convention: str = BLOCKED
) -> Scene:
    """Scores, mask and weights of two sequences.

    The mask is always made with True = blocked; `convention` is how attention reads it.
    Lengths beyond T count as T.
    """
    lengths = [min(length_0, T), min(length_1, T)]
    mask = padding_mask(torch.tensor(lengths, device="cpu"), T).squeeze(1).expand(2, T, T)
    if causal:
        mask = mask | causal_mask(T, mask.device)
    shown, blocked, weights = attend(mask, convention)
    rows: list[list[Panel]] = []
    for b, n in enumerate(lengths):
        names = [f"{t}" if t < n else f"{t} pad" for t in range(T)]
        plain: dict[str, Any] = {"rows": names, "columns": range(T)}
        seen = plain | {"blocked": blocked[b], "numbers": False}
        title = f"scores of sequence {b}, {n} of {T} real"
        rows.append(
            [
                Heatmap(shown[b], limits=SCALE, quantity="score", title=title, **seen),
                Heatmap(mask[b], mask=True, title="mask", **plain),
                Heatmap(weights[b], limits=(0, 1), title="weights", **seen),
            ]
        )
    return Scene(rows, caption=_caption(mask, convention, blocked, weights))


def attend(mask: Tensor, convention: str) -> tuple[Tensor, Tensor, Tensor]:
    """Scores as they enter the softmax, the cells that are blocked then, and the weights.

    Each (2, T, T), for fixed random queries and keys.
    """
    generator = torch.Generator().manual_seed(0)
    T = mask.shape[-1]
    q, k = torch.randn(2, 2, LONGEST, D_K, generator=generator, device="cpu")[:, :, :T]
    scores = q @ k.mT / D_K**0.5
    if convention == ADDED:
        scores = scores + mask
        return scores, torch.zeros_like(mask), scores.softmax(dim=-1)
    blocked = mask if convention == BLOCKED else ~mask
    return scores, blocked, scaled_dot_product_attention(q, k, k, blocked, return_weights=True)[1]


def _caption(mask: Tensor, convention: str, blocked: Tensor, weights: Tensor) -> str:
    leaked = float((weights * mask).sum(dim=-1).max())
    n = int(mask.sum())
    if convention == BLOCKED:
        cells = f"{n} blocked cells" if n > 1 else "blocked cell"
        what = f"no query takes anything from the {cells}." if n else "nothing is blocked."
    elif torch.equal(weights, attend(mask, BLOCKED)[2]):
        what = "nothing is blocked, so nothing differs."
    elif leaked:
        what = (
            f"wrong, but no error: a query takes up to {number(leaked, 2)} of its weight from "
            "cells that the mask meant to block."
        )
    else:
        what = "wrong, but no error: cells that may be seen are blocked."
    words = f"Read as “{convention}”: {what}"
    if dead := int(blocked.all(dim=-1).sum()):
        rows = f"{dead} rows are" if dead > 1 else "1 row is"
        words += f" {rows} blocked from end to end: weights and context are zero there, not NaN."
    return words
