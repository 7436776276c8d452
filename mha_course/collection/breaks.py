"""Mistakes in all thirty layers of the model that writes, and what comes of each.

Most are made around a learner's class, whose own lines run: with its weights in another order, or
with something done to what goes in or out. Where that cannot be, `opened` makes them in our lines.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mha_course.collection import opened
from mha_course.collection.experiments import measured
from mha_course.collection.opened import Change
from mha_lesson.attention import merge_heads, split_heads
from mha_lesson.decoding import GroupedQueryAttention
from mha_lesson.refusals import require_one_of
from mha_lesson.rotation import rotate
from mha_lesson.smollm import BASE, N_HEADS, N_KV_HEADS, SmolLM
from mha_lesson.weights import WeightsMissing

PROMPT = "The creek was cold and the spunky dog wanted to jump over it. The dog"
Edit = Callable[[Any, int, int], None]  # of a layer, with its h and h_kv


def _weight(layer: Any, name: str, change: Callable[[Tensor], Tensor]) -> None:
    """Gives a linear layer other weights; the model's own stay as they are."""
    weight = change(getattr(layer, name).weight.detach())
    getattr(layer, name).weight = nn.Parameter(weight, requires_grad=False)


def _queries(change: Callable[[Tensor, int], Tensor]) -> Edit:
    return lambda layer, h, h_kv: _weight(layer, "w_q", lambda w: change(w, h))


def _neighbours(layer: Any, h: int, h_kv: int) -> None:
    """Its halves hold what stood side by side."""
    for name, n in (("w_q", h), ("w_k", h_kv)):
        _weight(
            layer, name, lambda w, n=n: w.unflatten(0, (n, -1, 2)).transpose(1, 2).reshape(w.shape)
        )


def _in_turn(layer: Any, h: int, h_kv: int) -> None:
    """Where query heads 0, 1, 2 stood now stand 0, h_kv, 2·h_kv: those dealt to key head 0."""
    order = torch.arange(h).view(-1, h_kv).T.flatten()
    _weight(layer, "w_q", lambda w: w.unflatten(0, (h, -1))[order].flatten(0, 1))
    _weight(layer, "w_o", lambda w: w.unflatten(1, (h, -1))[:, order].flatten(1, 2))


def _not_merged(layer: Any, h: int, h_kv: int) -> None:
    def unmerged(_: Any, given: tuple[Tensor]) -> tuple[Tensor]:
        return (split_heads(given[0], h).reshape(given[0].shape),)

    layer.w_o.register_forward_pre_hook(unmerged)


def _not_rotated(layer: Any, h: int, h_kv: int) -> None:
    """Turned back beforehand, so that its own turns undo it; for texts in one piece."""
    for linear, n in ((layer.w_q, h), (layer.w_k, h_kv)):

        def back(_: Any, __: Any, rows: Tensor, n: int = n) -> Tensor:
            at = -torch.arange(rows.shape[1], device=rows.device)
            return merge_heads(rotate(split_heads(rows, n), at, BASE))

        linear.register_forward_hook(back)


AROUND: dict[str, Edit] = {
    "as written": _queries(lambda w, h: w),
    "no rotation": _not_rotated,
    "neighbours rotated, not halves": _neighbours,
    "base 10,000": _queries(lambda w, h: w),  # the class is built with it
    "key heads in turn": _in_turn,
    "no scale": _queries(lambda w, h: w * (len(w) / h) ** 0.5),
    "divided by d_k": _queries(lambda w, h: w / (len(w) / h) ** 0.5),
    "uniform weights": _queries(lambda w, h: torch.zeros_like(w)),
    "merged without the transpose": _not_merged,
}
INSIDE: dict[str, Change] = {
    "no mask": Change(opened.nothing),
    "blind to itself": Change(opened.blind),
    "window of 64": Change(opened.window(64)),
    "window of 64, and the first": Change(opened.window(64, 0)),
    "4 bits, by token": Change(rounded=opened.by_token(4)),
    "4 bits, keys by dimension": Change(rounded=opened.by_dimension(4)),
}
NAMES = (*AROUND, *INSIDE)


def broken(model: SmolLM, kind: Callable[..., nn.Module], name: str) -> SmolLM:
    """The model with one mistake in every layer, around layers of this class where that can be.

    Raises:
        ValueError: there is no mistake of this name.
    """
    require_one_of("name", name, NAMES)
    if name in INSIDE:
        return opened.changed(opened.opened(model), INSIDE[name])
    base = 10_000.0 if name == "base 10,000" else BASE
    twin = model.with_attention(lambda d_model, h, h_kv, _: kind(d_model, h, h_kv, base))
    for layer in twin.layers:
        AROUND[name](layer.attention, N_HEADS, N_KV_HEADS)
    return twin


def comes_of(model: SmolLM, kind: Callable[..., nn.Module], name: str) -> tuple[float, str]:
    """The loss on a page of the novel, and what eight pieces it writes after PROMPT."""
    twin = broken(model, kind, name)
    loss = opened.loss(twin, opened.pages(model, [0])).item()
    return loss, "".join(twin.write(PROMPT, 8, cached=False))


def all_of_them(model: SmolLM) -> dict[str, tuple[float, str]]:
    """What comes of each, with our own layer."""
    return {name: comes_of(model, opened.Opened, name) for name in NAMES}


def tried(model: Any, kind: type[nn.Module], name: str) -> tuple[float, str]:
    """`comes_of`; without the weights what was computed beforehand, with our own class."""
    try:
        return comes_of(model, kind, name)
    except WeightsMissing:
        loss, text = measured("breaks")[name]
        return loss, text


# ---------------------------------------------------------------- which tests notice


def noticed(kind: type[nn.Module], name: str, seed: int = 0) -> list[str]:
    """Which of notebook 12's tests one small layer with this mistake fails.

    "leak": a later token changes an earlier output. "order": two earlier tokens exchanged change
    nothing at the end. "unequal": the outputs are not those of the package's class.
    """
    d_model, h, h_kv, n = 48, 6, 3, 90  # longer than the window
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, n, d_model, generator=generator)
    right = GroupedQueryAttention(d_model, h, h_kv, rope_base=BASE)
    layer = _small(kind, right, name)
    with torch.no_grad():
        out = layer(x)[0]
        later, exchanged = x.clone(), x.clone()
        later[:, 60:] += 1.0
        exchanged[:, [70, 80]] = x[:, [80, 70]]
        fails = {
            "leak": not torch.allclose(layer(later)[0][:, :60], out[:, :60], atol=1e-4),
            "order": torch.allclose(layer(exchanged)[0][:, -1], out[:, -1], atol=1e-4),
            "unequal": not torch.allclose(out, right(x), atol=1e-4),
        }
    return [test for test, failed in fails.items() if failed]


def _small(kind: type[nn.Module], right: GroupedQueryAttention, name: str) -> nn.Module:
    """One layer of these weights with that mistake."""
    d_model, h, h_kv = right.d_model, right.n_heads, right.n_kv_heads
    base = 10_000.0 if name == "base 10,000" else BASE
    layer: Any = (opened.Opened if name in INSIDE else kind)(d_model, h, h_kv, base)
    rows = (*right.w_qkv.weight.split(right.parts), right.w_o.weight)
    for one, weight in zip(("w_q", "w_k", "w_v", "w_o"), rows, strict=True):
        getattr(layer, one).weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if name in INSIDE:
        layer.change = INSIDE[name]
    else:
        AROUND[name](layer, h, h_kv)
    return layer
