"""All heads' weights at once: how many heads, and how many of each head's dimensions take part."""

from functools import partial
from typing import Any

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from mha_course.base.numerals import counted
from mha_course.explore.n00_flow import own_input
from mha_course.pictures.heatmap import ENDS
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene, number
from mha_lesson.attention import (
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from mha_lesson.text import sentence

MOST = 12  # heads drawn at once


def heads(
    mha: MultiHeadAttention | None = None, x: Tensor | None = None, tokens: list[str] | None = None
) -> Explorer:
    """Sliders `h` and `d_k` over the heatmaps of all heads.

    Args:
        mha: a module whose queries and keys to look at; the real layer of the course if None.
        x: (T, d_model), its input; needed with `mha`.
        tokens: T labels; positions if None.
    """
    q, k, labels, trained_h, where = _source(mha, x, tokens)
    width = q.shape[-1]
    counts = [h for h in range(1, MOST + 1) if width % h == 0]
    controls: dict[str, Any] = {
        "h": widgets.SelectionSlider(options=counts, value=trained_h),
        "d_k": widgets.IntSlider(value=width // trained_h, min=1, max=width // trained_h),
        "hide_ends": widgets.Checkbox(description="hide [CLS], [SEP]", indent=False),
    }
    if not {*ENDS} & {*labels}:
        del controls["hide_ends"]
    return Explorer(
        controls,
        partial(draw, q, k, labels, trained_h, where),
        reach={"d_k": lambda h, **_: range(1, width // h + 1)},
        headline="Each head looks in its own way: follow one row through all of them.",
    )


def scene(h: int = 12, d_k: int | None = None, hide_ends: bool = False) -> Scene:
    """The heads of the real layer on the real sentence."""
    source = _source(None, None, None)
    return draw(*source, h, source[0].shape[-1] // h if d_k is None else d_k, hide_ends)


def draw(
    q: Tensor,
    k: Tensor,
    tokens: tuple[str, ...],
    trained_h: int,
    where: str,
    h: int,
    d_k: int,
    hide_ends: bool = False,
) -> Scene:
    """Queries and keys (T, h·d_k) cut into h heads, each looking with its first d_k dimensions."""
    width = q.shape[-1]
    q, k = (split_heads(x[None], h)[0, ..., :d_k] for x in (q, k))
    _, weights = scaled_dot_product_attention(q, k, k, return_weights=True)
    weights = weights.round(decimals=4)  # more is never shown, and doubles the bytes of a page
    words = [i for i, token in enumerate(tokens) if token not in ENDS] or [*range(len(tokens))]
    between = weights[:, words][:, :, words]  # what words look at among words
    names = tuple(tokens[i] for i in words)
    shown, labels = (between, names) if hide_ends else (weights, tokens)
    panels = [
        Heatmap(one, labels, labels, head=i, limits=(0, 1), title=f"head {i}", numbers=False)
        for i, one in enumerate(shown)
    ]
    caption = (
        f"{where}{counted(h, 'head')} with {counted(d_k, 'dimension')}{' each' * (h > 1)}. "
        + _largest(between, names, len(words) < len(tokens))
    )
    if h != trained_h:
        caption += f" Trained with {counted(trained_h, 'head')}; this cut is for comparison."
    elif d_k < width // h:
        caption += f" Trained with {width // h} dimensions; the others are left out."
    return Scene(panels, columns=6 if h > 8 else 4, caption=caption)


def _largest(weights: Tensor, tokens: tuple[str, ...], between_words: bool) -> str:
    """Sentences on the largest of the weights (h, T, T) and, where it is there, on it → creek."""
    head, row, column = np.unravel_index(int(weights.nan_to_num(-1.0).argmax()), weights.shape)
    value = number(float(weights[head, row, column]), 2)
    among = " between words" * between_words
    words = f"Largest weight{among} {value}: {tokens[row]} → {tokens[column]}, in head {head}"
    if {"it", "creek"} <= set(tokens):
        it = weights[:, tokens.index("it")]
        share, best = it[:, tokens.index("creek")].max(dim=0)
        first = int((it.argmax(dim=-1) == tokens.index("creek")).sum())
        if (tokens[row], tokens[column]) != ("it", "creek"):
            words += f". it → creek: largest in head {int(best)}, {number(float(share), 2)}"
        all_heads = counted(len(weights), "head")
        words += f"; among the words, creek comes first in {first} of {all_heads}"
    return f"{words}."


def _source(
    mha: MultiHeadAttention | None, x: Tensor | None, tokens: list[str] | None
) -> tuple[Tensor, Tensor, tuple[str, ...], int, str]:
    """Queries and keys (T, h·d_k), labels, which number of heads they were made for, and where."""
    if mha is None:
        creek = sentence()
        q, k = (merge_heads(x[None])[0] for x in creek.heads[:2])
        return q, k, creek.labels, creek.n_heads, f"Layer {creek.layer}: "
    x, labels = own_input(mha, x, tokens)
    if mha.n_heads > MOST:
        raise ValueError(f"mha must have at most {MOST} heads to be drawn; got {mha.n_heads}.")
    with torch.no_grad():
        q, k, _ = mha.w_qkv(x).chunk(3, dim=-1)
    return q.cpu(), k.cpu(), labels, mha.n_heads, ""
