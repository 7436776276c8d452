"""Two rows some tokens apart: how far each pair of dimensions turns, and what they score."""

import math

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Curve, Scene, number
from mha_lesson.rotation import rotate

DISTANCES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
WIDTHS = (4, 8, 16, 32)
BASES = (100, 10_000, 1_000_000)


def rotation() -> Explorer:
    """Sliders `distance`, `d_k` and `base` over the turn of each pair and the score by distance."""
    return Explorer(
        {
            "distance": widgets.SelectionSlider(options=DISTANCES),
            "d_k": widgets.SelectionSlider(options=WIDTHS),
            "base": widgets.SelectionSlider(options=BASES),
        },
        scene,
        headline="Turned by their places, two equal rows score by how far apart they stand.",
    )


def scene(distance: int = 3, d_k: int = 16, base: int = 10_000) -> Scene:
    """Every pair of the query and of the key is (1, 0): before turning all pairs score alike."""
    half = d_k // 2
    shares = _pair_scores(d_k, base)  # (129, half)
    score = shares.mean(dim=-1)
    turn = [2 * math.pi * base ** (i / half) for i in range(half)]  # tokens for a full turn
    pairs = [f"{i}" for i in range(half)]
    backwards = int((shares[distance] < 0).sum())
    each = Bars(
        shares[distance],
        pairs,
        name="cos of the angle",
        limits=(-1, 1),
        title=f"each pair's score, {distance} apart",
    )
    turns = Bars(
        turn,
        pairs,
        name="tokens",
        log=True,
        limits=(1, 1e7),
        reference=(float(distance), "distance"),
        title="tokens for a full turn of each pair",
    )
    curve = Curve(
        range(DISTANCES[-1] + 1),
        {"score": score.tolist()},
        marker=distance,
        limits=(-1, 1),
        x_name="distance in tokens",
        y_name="score / number of pairs",
        title="two equal rows, by their distance",
    )
    return Scene(
        [[curve], [each, turns]],
        caption=f"Distance {distance}, d_k = {d_k}, base {number(base)}: the pairs add up to "
        f"{number(float(score[distance]))} of their score at distance 0; {backwards} of {half} "
        f"pairs {'counts' if backwards == 1 else 'count'} against it.",
    )


def _pair_scores(d_k: int, base: int) -> Tensor:
    """(distances, pairs): a pair (1, 0) at position 0 times the same pair further on."""
    half = d_k // 2
    row = torch.cat((torch.ones(half, device="cpu"), torch.zeros(half, device="cpu"))).double()
    positions = torch.arange(DISTANCES[-1] + 1, device="cpu")
    turned = rotate(row.expand(len(positions), d_k), positions, base)
    return turned[:, :half]  # times (1, 0): the first number of each pair
