"""What every head writes into the tokens, and the sum of it: W^O, taken apart."""

from functools import cache
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene, Walk
from mha_lesson.attention import merge_heads, scaled_dot_product_attention, split_heads
from mha_lesson.text import sentence

HEADS = (1, 2, 3, 4, 6, 12)  # into which the layer's 384 dimensions are cut
N_SHOWN = 24  # dimensions of the output shown for one token


def head_writes() -> Explorer:
    """A slider `h` and a box for each head, on or off, over every head's write and their sum."""
    boxes = {
        f"head_{i}": widgets.Checkbox(
            value=True, description=f"head {i}", indent=False, layout={"width": "6em"}
        )
        for i in range(HEADS[-1])
    }
    return Explorer(
        {"h": widgets.SelectionSlider(options=HEADS, value=12), **boxes},
        lambda h, **on: scene(h, tuple(on[f"head_{i}"] for i in range(h))),
        # Off or on; the box of a head that is not there stays off.
        reach={
            f"head_{i}": lambda h, i=i, **_: (False, True) if i < h else (False,)
            for i in range(HEADS[-1])
        },
        headline="The output is a sum: switch a head off, and only what it wrote is missing.",
    )


def scene(h: int = 12, on: tuple[bool, ...] | None = None) -> Scene:
    """Writes of the real layer's heads on the real sentence; `on` says which take part."""
    on = (True,) * h if on is None else on
    creek, full = sentence(), _writes(h).sum(dim=0)  # (T, d_model); the bias belongs to no head
    writes = _writes(h) * torch.tensor(on, device="cpu")[:, None, None]  # a head off writes 0
    total = writes.sum(dim=0)
    it = creek.tokens.index("it")
    rows = [*(f"head {i}" for i in range(h)), "sum"]
    lengths = torch.cat([writes.norm(dim=-1), total.norm(dim=-1)[None]]).round(decimals=4)
    numbers = torch.cat([writes[:, it, :N_SHOWN], total[None, it, :N_SHOWN]]).round(decimals=4)
    plane, frame, (one, other), share = _plane(h)
    plain: dict[str, Any] = {"numbers": False, "row_name": "written by", "picks": ("head", None)}
    everywhere = Heatmap(
        lengths,
        rows,
        creek.labels,
        limits=(0, _longest()),
        quantity="length",
        column_name="token",
        title="how much each head writes where",
        stands_out=it,
        **plain,
    )
    into_it = Heatmap(
        numbers,
        rows,
        range(N_SHOWN),
        limits=(-1.25, 1.25),  # no choice of heads goes further
        quantity="value",
        column_name="dimension",
        title=f"first {N_SHOWN} numbers written into “it”",
        **plain,
    )
    across = f", ↑ where heads {one} and {other} differ" if h > 1 else ""
    walk = Walk(
        writes[:, it] @ plane.mT,
        frame,
        x_name=f"→ their sum{across}",
        title="the same, projected",
        wide=1.6,
        picks="head",
    )
    missing = float((full - total).norm() / full.norm())
    sum_is = (
        "the layer's whole output, but for the bias."
        if all(on)
        else f"{missing:.0%} of the whole output's length away from it."
    )
    cut = "" if h == 12 else " The model was trained with 12; this cut is for comparison."
    return Scene(
        [[everywhere, into_it, walk]],
        caption=f"Heads of layer {creek.layer} that write: {sum(on)} of {h}. Their sum is "
        f"{sum_is}{cut} Of the writes' squared length, {share:.0%} lies in the arrows' plane.",
    )


@cache
def _plane(h: int) -> tuple[Tensor, tuple[float, ...], tuple[int, int], float]:
    """The plane, (2, d_model): along the sum of all writes into “it”, and across it, along the
    difference of the two heads whose writes are most opposed. Then the frame that fits all arrows
    tip to tail; these two heads; the share of the writes' squared length within the plane.
    """
    writes = _writes(h)[:, sentence().tokens.index("it")]
    unit = torch.nn.functional.normalize(writes, dim=-1)
    one, other = divmod(int((unit @ unit.mT).argmin()), h)
    along = torch.nn.functional.normalize(writes.sum(dim=0), dim=0)
    across = writes[one] - writes[other]
    across = torch.nn.functional.normalize(across - (across @ along) * along, dim=0)
    plane = torch.stack([along, across])
    steps = writes @ plane.mT
    low, high = steps.clamp(max=0).sum(dim=0), steps.clamp(min=0).sum(dim=0)  # with any heads off
    (left, lowest), (right, highest) = (low - 0.2).tolist(), (high + 0.2).tolist()
    share = float(steps.pow(2).sum() / writes.pow(2).sum())
    return plane, (left, right, lowest, highest), (one, other), share


@cache
def _longest() -> float:
    """The longest sum of any heads over every h, so that one scale serves all positions."""
    longest = 0.0
    for h in HEADS:
        numbers, bits = (torch.arange(n, device="cpu") for n in (2**h, h))
        on = ((numbers[:, None] >> bits) & 1).float()  # every choice of heads
        products = torch.einsum("itd,jtd->tij", _writes(h), _writes(h))
        longest = max(longest, float(torch.einsum("ni,tij,nj->nt", on, products, on).max()) ** 0.5)
    return longest


@cache
def _writes(h: int) -> Tensor:
    """(h, T, d_model): H_i W_O^(i) for each head i."""
    creek = sentence()
    q, k, v = (split_heads(merge_heads(x[None]), h) for x in creek.heads)
    heads = scaled_dot_product_attention(q, k, v)[0]  # (h, T, d_k)
    slabs = creek.w_o.view(creek.d_model, h, -1).permute(1, 2, 0)  # (h, d_k, d_model)
    return heads @ slabs
