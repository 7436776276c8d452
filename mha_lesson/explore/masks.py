"""Who may look at whom: two sequences, padding, the future, and three ways to read one mask."""

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_lesson.attention import scaled_dot_product_attention
from mha_lesson.live import Explorer
from mha_lesson.masks import causal_mask, padding_mask
from mha_lesson.panels import Heatmap, Panel, Scene, number

CONVENTIONS = ("True = blocked", "True = keep", "0 and 1, added")
LONGEST = 10
D_K = 8


def masks() -> Explorer:
    """Sliders `T` and a length for each sequence, causal or not, and the convention."""

    def length(name: str, value: int) -> widgets.IntSlider:
        return widgets.IntSlider(value=value, min=0, max=LONGEST, description=name)

    return Explorer(
        {
            "T": widgets.IntSlider(value=6, min=1, max=LONGEST, description="T"),
            "length_0": length("length 0", 6),
            "length_1": length("length 1", 3),
            "causal": widgets.Checkbox(value=True, description="causal", indent=False),
            "convention": widgets.Dropdown(
                options=CONVENTIONS, value=CONVENTIONS[0], description="read as"
            ),
        },
        scene,
    )


def scene(
    T: int = 6,
    length_0: int = 6,
    length_1: int = 3,
    causal: bool = True,
    convention: str = CONVENTIONS[0],
) -> Scene:
    """The mask is always made with True = blocked; `convention` is how attention reads it.

    Lengths beyond T count as T.
    """
    if not (isinstance(T, int) and 1 <= T <= LONGEST):
        raise ValueError(f"T must be a whole number from 1 to {LONGEST}; got {T!r}.")
    if convention not in CONVENTIONS:
        raise ValueError(f"convention must be one of {CONVENTIONS}; got {convention!r}.")
    lengths = [min(length_0, T), min(length_1, T)]
    mask = padding_mask(lengths, T).squeeze(1).expand(2, T, T)
    if causal:
        mask = mask | causal_mask(T)
    q, k, scores = _vectors(T)
    if convention == CONVENTIONS[2]:
        blocked = torch.zeros_like(mask)
        shown = scores + mask.float()
        weights = shown.softmax(dim=-1)
    else:
        blocked = mask if convention == CONVENTIONS[0] else ~mask
        shown = scores
        _, weights = scaled_dot_product_attention(q, k, k, blocked, return_weights=True)
    tokens = [str(i) for i in range(T)]
    rows: list[list[Panel]] = []
    for b, n in enumerate(lengths):
        names = [f"{t}" if t < n else f"{t} pad" for t in range(T)]
        rows.append(
            [
                Heatmap(
                    shown[b], names, tokens, quantity="score", limits=(-2.5, 2.5), numbers=False,
                    title=f"sequence {b}, {n} real: scores", blocked=blocked[b],
                ),
                Heatmap(
                    mask[b].float(), names, tokens, quantity="mask", limits=(0, 1), numbers=False,
                    title="mask, 1 = True",
                ),
                Heatmap(
                    weights[b], names, tokens, limits=(0, 1), numbers=False,
                    title="weights", blocked=blocked[b],
                ),
            ]
        )  # fmt: skip
    return Scene(rows, caption=_caption(mask, blocked, weights, convention))


def _vectors(T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Fixed random queries and keys (2, T, 8) and their scaled scores (2, T, T)."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, LONGEST, D_K, generator=generator)[:, :, :T]
    return q, k, (q @ k.mT / D_K**0.5)


def _caption(mask: Tensor, blocked: Tensor, weights: Tensor, convention: str) -> str:
    forbidden = (weights * mask).sum(dim=-1)
    words = f"Read as “{convention}”: "
    dead = int(blocked.all(dim=-1).sum())
    share = number(float(forbidden.max()))
    if convention == CONVENTIONS[0]:
        words += f"no query takes anything from the {int(mask.sum())} blocked cells."
    else:
        words += (
            f"wrong, and no error: a query takes up to {share} of its weight from cells "
            "that the mask meant to block."
        )
    if dead:
        words += f" {dead} rows are fully blocked: weights and context are zero there, not NaN."
    return words
