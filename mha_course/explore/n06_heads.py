"""All heads' weights at once: how many heads, and how many of each head's dimensions take part."""

import ipywidgets as widgets
import numpy as np
from torch import Tensor

from mha_course.pictures.live import Explorer
from mha_course.pictures.numerals import counted
from mha_course.pictures.panels import Heatmap, Scene, number
from mha_lesson.attention import merge_heads, scaled_dot_product_attention, split_heads
from mha_lesson.text import sentence

WIDTH = 384  # of the layer's queries, cut into as many heads
HEADS = (1, 2, 3, 4, 6, 8, 12)
TRAINED = 12


def heads() -> Explorer:
    """Sliders `h` and `d_k` over the heatmaps of all heads of the real layer."""
    most = WIDTH // TRAINED
    return Explorer(
        {
            "h": widgets.SelectionSlider(options=HEADS, value=TRAINED),
            "d_k": widgets.IntSlider(value=most, min=1, max=most),
            "hide_ends": widgets.Checkbox(
                value=False, description="hide [CLS], [SEP]", indent=False
            ),
        },
        scene,
        reach={"d_k": lambda h, **_: range(1, WIDTH // h + 1)},
    )


def scene(h: int = TRAINED, d_k: int | None = None, hide_ends: bool = False) -> Scene:
    """The layer's queries and keys cut into h heads, each looking with its first d_k dimensions."""
    creek = sentence()
    d_k = WIDTH // h if d_k is None else d_k
    q, k = (split_heads(merge_heads(x[None]), h)[0, ..., :d_k] for x in creek.heads[:2])
    _, weights = scaled_dot_product_attention(q, k, k, return_weights=True)
    weights = weights.round(decimals=4)  # more is never shown, and doubles the bytes of a page
    between, names = weights[:, 1:-1, 1:-1], creek.labels[1:-1]  # what words look at among words
    shown, labels = (between, names) if hide_ends else (weights, creek.labels)
    panels = [
        Heatmap(one, labels, labels, head=i, limits=(0, 1), title=f"head {i}", numbers=False)
        for i, one in enumerate(shown)
    ]
    caption = (
        f"{counted(h, 'head')} with {counted(d_k, 'dimension')}{' each' * (h > 1)}. "
        + _largest(between, names)
    )
    if h != TRAINED:
        caption += f" Trained with {counted(TRAINED, 'head')}; this cut is for comparison."
    elif d_k < WIDTH // h:
        caption += f" Trained with {WIDTH // h} dimensions; the others are left out."
    return Scene(panels, columns=6 if h > 8 else 4, caption=caption)


def _largest(weights: Tensor, words: tuple[str, ...]) -> str:
    """Sentences on the largest of the weights (h, T, T) and on it → creek."""
    head, row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    value = number(float(weights[head, row, column]), 2)
    it = weights[:, words.index("it")]
    share, best = it[:, words.index("creek")].max(dim=0)
    first = int((it.argmax(dim=-1) == words.index("creek")).sum())
    return (
        f"Largest weight between words {value}: {words[row]} → {words[column]}, in head {head}. "
        f"it → creek: largest in head {int(best)}, {number(float(share), 2)}; "
        f"among the words, creek comes first in {first} of {counted(len(weights), 'head')}."
    )
