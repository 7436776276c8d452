"""All heads' weights at once: how many heads, and how many of each head's dimensions take part."""

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_lesson.attention import MultiHeadAttention, scaled_dot_product_attention, split_heads
from mha_lesson.pictures.live import Explorer
from mha_lesson.pictures.panels import Heatmap, Scene
from mha_lesson.refusals import describe, listed, require_positive_int
from mha_lesson.text import sentence

MOST = 12  # heads drawn at once


def heads(
    mha: MultiHeadAttention | None = None,
    x: Tensor | None = None,
    tokens: list[str] | None = None,
) -> Explorer:
    """Sliders `h` and `d_k` over the heatmaps of all heads.

    Args:
        mha: a module whose queries and keys to look at; the real layer of the course if None.
        x: (T, d_model), its input; needed with `mha`.
        tokens: T labels; positions if None.
    """
    q, k, labels, trained = _source(mha, x, tokens)
    width = q.shape[-1]
    counts = [h for h in range(1, MOST + 1) if width % h == 0]
    h_control = widgets.SelectionSlider(options=counts, value=trained, description="h")
    d_k_control = widgets.IntSlider(
        value=width // trained, min=1, max=width // trained, description="d_k"
    )

    def fit(change: dict) -> None:
        d_k_control.max = width // change["new"]
        d_k_control.value = d_k_control.max

    h_control.observe(fit, "value")
    return Explorer(
        {"h": h_control, "d_k": d_k_control},
        lambda h, d_k: draw(q, k, labels, h, min(d_k, width // h), trained),
    )


def scene(h: int = 12, d_k: int | None = None) -> Scene:
    """The heads of the real layer on the real sentence."""
    require_positive_int("h", h)
    q, k, labels, trained = _source(None, None, None)
    return draw(q, k, labels, h, q.shape[-1] // h if d_k is None else d_k, trained)


def draw(q: Tensor, k: Tensor, tokens: tuple[str, ...], h: int, d_k: int, trained: int) -> Scene:
    """Queries and keys (T, h·d_k) cut into h heads, each looking with its first d_k dimensions."""
    require_positive_int("h", h)
    require_positive_int("d_k", d_k)
    h, d_k, width = int(h), int(d_k), q.shape[-1]
    if width % h or h > MOST:
        raise ValueError(f"h must divide {width} and be at most {MOST}; got {h}.")
    if d_k > width // h:
        raise ValueError(f"d_k must be at most {width} / {h} = {width // h}; got {d_k}.")
    q, k = (split_heads(x[None], h)[0, ..., :d_k] for x in (q, k))
    _, weights = scaled_dot_product_attention(q, k, k, return_weights=True)
    panels = [
        Heatmap(one, tokens, tokens, head=i, limits=(0, 1), title=f"head {i}", numbers=False)
        for i, one in enumerate(weights)
    ]
    best = max(range(h), key=lambda i: float(weights[i].max()))
    where, value = next(iter(panels[best].largest(1)), ("everywhere", "NaN"))
    words = (
        f"{h} head{'s' * (h > 1)} with {d_k} dimension{'s' * (d_k > 1)}{' each' * (h > 1)}; "
        f"largest weight {value}: {where}, in head {best}."
    )
    if h != trained:
        words += f" Trained with {trained} head{'s' * (trained > 1)}; this cut is for comparison."
    elif d_k < width // h:
        words += f" Trained with {width // h} dimensions; the others are left out."
    return Scene(panels, columns=min(h, 4), caption=words)


def _source(
    mha: MultiHeadAttention | None, x: Tensor | None, tokens: list[str] | None
) -> tuple[Tensor, Tensor, tuple[str, ...], int]:
    """Queries and keys (T, h·d_k), labels, and the number of heads they were made for."""
    if mha is None:
        creek = sentence()
        q, k = (creek.hidden @ w.T + b for w, b in ((creek.w_q, creek.b_q), (creek.w_k, creek.b_k)))
        return q, k, creek.labels, creek.n_heads
    if not isinstance(mha, MultiHeadAttention):
        raise TypeError(f"mha must be a MultiHeadAttention; got {type(mha).__name__}.")
    if mha.n_heads > MOST:
        raise ValueError(f"mha must have at most {MOST} heads to be drawn; got {mha.n_heads}.")
    weight = mha.w_qkv.weight
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != mha.d_model or not len(x):
        raise ValueError(
            f"x must be a tensor (T, d_model = {mha.d_model}), what the module is to look at; "
            f"got {describe(x)}."
        )
    if x.dtype != weight.dtype or x.device != weight.device:
        raise ValueError(f"x must be like the weights, {describe(weight)}; got {describe(x)}.")
    with torch.no_grad():
        q, k, _ = mha.w_qkv(x).chunk(3, dim=-1)
    labels = tuple(listed("tokens", range(len(x)) if tokens is None else tokens))
    if len(labels) != len(x):
        raise ValueError(f"tokens must be T = {len(x)} labels; got {len(labels)}.")
    return q.cpu(), k.cpu(), labels, mha.n_heads
