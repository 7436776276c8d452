"""Exercise 16, notebook 10: rotary positions."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.engine.exercise import WHOLE, Case, exercise
from mha_lesson.check.engine.inputs import normal, strided, unchanged

BASE = 10_000.0


def vectors_and_positions() -> Iterator[Case]:
    for seed, (lead, T, d_k, first) in enumerate(
        (
            ((2, 3), 5, 14, 0),
            ((), 3, 4, 7),
            ((2,), 7, 10, 0),
            ((1, 1), 1, 2, 3),
            ((3, 2), 4, 6, 90),
        )
    ):
        sizes = dict(zip(("B", "h"), lead, strict=False)) | {"T": T, "d_k": d_k}
        x, positions = normal(*lead, T, d_k, seed=seed), torch.arange(first, first + T)
        # In half precision an angle as large as 90 has no digits left behind the point.
        note = f"with positions from {first}"
        yield Case((x, positions), sizes, note, wide=bool(positions.max() > 8))
        if seed == 0:
            yield Case((strided(x), positions), sizes, "with x not contiguous")
            odd = torch.tensor([4, 0, 9, 9, 2])
            yield Case((x, odd), sizes, "with positions out of order", wide=True)


def falling_speeds(x: Tensor) -> Tensor:
    """the speeds of the pairs"""
    i = torch.arange(x.shape[-1] // 2, device=x.device, dtype=x.dtype)
    return BASE ** (-2 * i / x.shape[-1])


def position_times_speed(positions: Tensor, speeds: Tensor) -> Tensor:
    """the angles, position · speed"""
    return positions.to(speeds.dtype)[:, None] * speeds


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.tensor_split(2, -1)  # type: ignore[return-value]


def turned(a: Tensor, b: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angles.cos(), angles.sin()
    return a * cos - b * sin, a * sin + b * cos


def side_by_side(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], -1)


@exercise(16, "10", cases=vectors_and_positions, gives=("x (..., T, d_k)",))
def rotate(
    x: Tensor,
    positions: Tensor,
    *,
    speed: Any = falling_speeds,
    angle: Any = position_times_speed,
    pair: Any = halves,
    turn: Any = turned,
    join: Any = side_by_side,
    finish: Any = unchanged,
) -> Any:
    """Dimension i turns with dimension i + d_k/2 by position · base^(−2i/d_k)."""
    exact = x.double() if x.dtype in (torch.float16, torch.bfloat16) else x
    angles = angle(positions, speed(exact))
    return finish(join(*turn(*pair(exact), angles)).to(x.dtype))


@rotate.step(join=lambda a, b: torch.stack([a, b], -1).flatten(-2))
def pair(x):
    neighbours = (x[..., 0::2], x[..., 1::2])
    """Neighbouring dimensions turn together, 2i with 2i+1: that is the other layout. | Which
    dimension belongs to dimension 0 in this exercise?"""


@rotate.step(at="pair")
def other_pairs(x):
    """Which dimension belongs to dimension 0 in this exercise?"""
    dealt = (x[..., 0::2], x[..., 1::2])
    "Neighbouring dimensions turn together, and come back in two halves: the layouts are mixed."
    half = x.shape[-1] // 2
    halves_exchanged = (x[..., half:], x[..., :half])
    "The two halves change places before they turn."
    mirrored = (x[..., :half], x[..., half:].flip(-1))
    "Dimension i turns with dimension d_k − 1 − i."


@rotate.step
def speed(x):
    """The exponent is −2i/d_k. What is it for i = 0, and for the last i?"""
    i = torch.arange(x.shape[-1] // 2, dtype=x.dtype)
    d_k = x.shape[-1]
    two_missing = BASE ** (-i / d_k)
    "The factor 2 is missing in the exponent: i/d_k instead of 2i/d_k."
    sign_missing = BASE ** (2 * i / d_k)
    "The exponent has no minus: later dimensions turn faster instead of slower."
    twice_two = BASE ** (-4 * i / d_k)
    "The exponent is twice as large: i runs over half of the dimensions, and each counts as 2i."
    counted_from_one = BASE ** (-2 * (i + 1) / d_k)
    "i is counted from 1: dimension 0 does not turn by the whole position."
    same_for_all = torch.ones_like(i)
    "All dimensions turn equally fast. | Where does i enter?"
    base_1000 = 1000.0 ** (-2 * i / d_k)
    "The base is 1,000 and not 10,000. | Which base does the exercise ask for?"
    base_100000 = 100_000.0 ** (-2 * i / d_k)
    "The base is 100,000 and not 10,000. | Which base does the exercise ask for?"
    linear = 1 - 2 * i / d_k
    "The speeds fall in a straight line, not as powers of the base."
    up_to_the_end = BASE ** (-i / max(1, d_k // 2 - 1))
    "The last pair turns at 1/base exactly: the exponent is divided by d_k/2 − 1, not by d_k/2."
    back_to_front = BASE ** (-2 * i.flip(0) / d_k)
    "The speeds come back to front: the last pair is the fastest."


@rotate.step
def angle(positions, speeds):
    """Position 0 does not turn at all. By how much does position 1?"""
    p = positions.to(speeds.dtype)
    one_more = (p + 1)[:, None] * speeds
    "The positions are counted from 1: position 0 is turned as well."
    from_zero = torch.arange(len(p), dtype=speeds.dtype)[:, None] * speeds
    "The positions given take no part: tokens are counted from 0. | What is `positions` for?"
    backwards = -p[:, None] * speeds
    "Everything turns the other way round. | Which of the two terms has the minus?"
    doubled = 2 * p[:, None] * speeds
    "The angles are twice as large."
    degrees = torch.deg2rad(p[:, None] * speeds)
    "The angles are taken for degrees: `cos` and `sin` want radians."
    divided = p[:, None] / speeds
    "= sign_missing"
    powers = p[:, None] ** speeds
    "The positions are raised to a power. | What is position · base^(−2i/d_k)?"
    not_turned = 0 * p[:, None] * speeds
    "Nothing turns: x comes back as it went in."


@rotate.step
def turn(a, b, angles):
    """A turn by 90° takes (1, 0) to (0, 1). Where does yours take it?"""
    cos, sin = angles.cos(), angles.sin()
    both_plus = (a * cos + b * sin, a * sin + b * cos)
    "Both terms have a plus: that is no rotation, lengths change."
    both_minus = (a * cos - b * sin, b * cos - a * sin)
    "Both second terms have a minus: that is no rotation, lengths change."
    exchanged = (a * sin - b * cos, a * cos + b * sin)
    "`cos` and `sin` are exchanged."
    cos_only = (a * cos, b * cos)
    "Only `cos` is used: a vector then shrinks instead of turning."
    first_half_only = (a * cos - b * sin, b)
    "Only the first half of each pair is turned."
    second_half_only = (a, a * sin + b * cos)
    "Only the second half of each pair is turned."
    step_by_step = (a * cos - b * sin, (a * cos - b * sin) * sin + b * cos)
    "The second half is computed from the first one that has been turned already."
    added = (a + cos, b + sin)
    "`cos` and `sin` are added, as for sinusoidal positions. | Is a vector shifted or turned?"


@rotate.step
def finish(x):
    """The exercise asks for the same shape as x."""
    normalised = x / x.norm(dim=-1, keepdim=True)
    "The vectors are brought to length 1. | Does a rotation change a length?"
    with_pairs_apart = x.unflatten(-1, (2, -1))
    "The pairs have an axis of their own: one axis too many."


@rotate.step(at=WHOLE)
def another_axis(x, positions):
    """Position t belongs to token t. Along which axis of x do the tokens lie?"""
    along_heads = rotate.right(x.transpose(0, -2), torch.arange(x.shape[0])).transpose(0, -2)
    "The angle follows axis 0, not the tokens (axis −2)."
    unturned = x + positions.to(x.dtype)[:, None]
    "The position is added to every dimension. | Is a vector shifted or turned?"
