"""Exercise 16, notebook 10: rotated positions."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, Step, exercise


def rows_and_positions() -> Iterator[Case]:
    rows = (
        ({"B": 2, "h": 3}, 5, 14, (0, 1, 2, 3, 4)),
        ({}, 3, 10, (7, 2, 11)),
        ({"B": 3}, 7, 6, (4, 5, 6, 7, 8, 9, 10)),
        ({"B": 1, "h": 5}, 1, 22, (13,)),
        ({"B": 2}, 4, 2, (0, 3, 3, 17)),
        ({"h": 2}, 3, 26, (101, 5, 1009)),
    )
    for seed, (axes, T, d_k, numbers) in enumerate(rows):
        x = normal(*axes.values(), T, d_k, seed=seed)
        sizes = axes | {"T": T, "d_k": d_k}
        note = f"with positions ({', '.join(map(str, numbers))})"
        positions = torch.tensor(numbers)
        # A float32 angle of 1,009 radians is off by 6e-5.
        tolerance = 1e-3 if max(numbers) > 100 else 2e-5
        yield Case((x, positions), sizes, note, tolerance)
        if seed == 0:
            yield Case((strided(x), positions), sizes, "with x not contiguous", tolerance)
            note = "with the first x again, at other positions,"
            asks = "Is something kept from call to call?"
            yield Case((x, positions + 11), {}, note, asks=asks)
    inputs = normal(2, 6, seed=40), torch.tensor([70_001, 3])
    asks = "Is there a table, or a length, that is too short?"
    # A float32 angle of 70,001 radians is off by 4e-3.
    yield Case(inputs, {}, "with position 70,001", 2e-2, asks=asks)


BASE = 10_000.0


def base_to_minus_2i_over_d_k(x: Tensor, base: float = BASE) -> Tensor:
    half = x.shape[-1] // 2
    return base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)


def turned(a: Tensor, b: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angle.cos().to(a.dtype), angle.sin().to(a.dtype)
    return a * cos - b * sin, a * sin + b * cos


@exercise(
    16,
    "10",
    reread="In q and k: turn them",
    half=True,
    make_cases=rows_and_positions,
    gives=("the rotated rows (..., T, d_k)",),
)
def rotate(x, positions, *, speed, angle, pair, turn, join):
    """Dimension i turns with dimension i + d_k/2 by position · base^(−2i/d_k)."""
    first, second = pair(x)
    return join(*turn(first, second, angle(speed(x, BASE), positions, x)))


OF_BASES = ("base_one_thousand", "base_of_another", "another_base_and_half")


def rotated(x: Tensor, positions: Tensor, base: float, **instead: Step) -> Tensor:
    """What `rotate` gives with another base, or with other steps instead of the right ones."""
    if whole := instead.get(WHOLE):
        return whole(x, positions, base)
    steps = rotate.steps | instead
    return rotate.in_steps(x, positions, **steps | {"speed": lambda x, _: steps["speed"](x, base)})


@rotate.step
def speed(x, base):
    """What is the exponent of the last pair, i = d_k/2 − 1?"""
    d_k = x.shape[-1]
    i = torch.arange(d_k // 2, dtype=torch.float64)
    exponent_half = base ** (-i / d_k)
    "The exponent is −i/d_k: the 2 of −2i/d_k is missing, so the pairs slow down half as fast."
    faster_and_faster = base ** (2 * i / d_k)
    """The exponent is positive: pairs turn *faster* with i, up to thousands of radians a token. |
    Should the last pair be the hand for the minute or for the year?"""
    from_one = base ** (-2 * (i + 1) / d_k)
    """Pairs are counted from 1: pair 0 should turn by one radian a token, and turns more slowly. |
    With which i does `range` begin?"""
    all_alike = torch.ones(d_k // 2, dtype=torch.float64)
    """All pairs turn by one radian a token: the exponent is 0 for every i, or there is no base. |
    What distinguishes pair 0 from pair 1?"""
    base_one_thousand = 1000.0 ** (-2 * i / d_k)
    "The base is 1,000 instead of 10,000. | How many zeros has the base?"
    base_of_another = 500_000.0 ** (-2 * i / d_k)
    "The base is 500,000, as in some other models, instead of 10,000. | Which base is asked for?"
    another_base_and_half = 500_000.0 ** (-i / d_k)
    """The base is 500,000, as in some other models, instead of 10,000, and the exponent −i/d_k: the
    2 of −2i/d_k is missing. | Which base is asked for, and what is the exponent of the last
    pair?"""
    return base_to_minus_2i_over_d_k(x, base)


@rotate.step
def angle(speed, positions, x):
    """Whose place decides how far a row is turned?"""
    T = x.shape[-2]
    own_count = torch.arange(T)[:, None] * speed
    """Rows are counted 0, 1, 2, … whatever `positions` says. | In notebook 11 a single new token
    stands at place 50. By how much should it be turned?"""
    one_further = (positions[:, None] + 1) * speed
    "Every position is one too large: the token at position 0 should not turn at all."
    position_in_degrees = (positions[:, None] * speed).deg2rad()
    """The angle is taken for degrees and turned into radians: all turns are 57 times too small. |
    In which unit does `cos` want its angle?"""
    return positions[:, None] * speed


@rotate.step
def pair(x):
    exchanged = x.chunk(2, dim=-1)[::-1]
    "The halves are exchanged before they are turned. | Which dimension turns with dimension 0?"
    return x.chunk(2, dim=-1)


@rotate.step
def turn(a, b, angle):
    """Turn (1, 0) by a quarter turn on paper: where does it point, and what gives your line?"""
    other_sign = turned(a, b, -angle)
    """All turns go the other way: the angle has the other sign, or cos · a + sin · b and −sin · a +
    cos · b are mixed up. | Turn (1, 0) by a quarter turn: is it (0, 1) or (0, −1)?"""
    cos, sin = angle.cos(), angle.sin()
    plus_everywhere = (a * cos + b * sin, a * sin + b * cos)
    """Both sums have a plus: a turn needs a minus in one of them, or lengths change. | Is the row
    as long after it as before?"""
    sin_and_cos_exchanged = (a * sin - b * cos, a * cos + b * sin)
    "Sine and cosine are exchanged: at position 0 a row should stay as it is."
    already_turned = (a * cos - b * sin, (a * cos - b * sin) * sin + b * cos)
    """The second sum uses the first half *after* it was turned. | Which value of `a` does your
    second line read?"""
    return turned(a, b, angle)


@rotate.step
def join(a, b):
    """Where do dimension i and dimension i + d_k/2 belong in the result?"""
    interleaved = torch.stack((a, b), dim=-1).flatten(-2)
    """The results are laid alternately, 0, d_k/2, 1, d_k/2 + 1, …: right for pairs of neighbours,
    but here dimension i belongs at place i."""
    halves_exchanged = torch.cat((b, a), dim=-1)
    "The halves come back in the wrong order: the second before the first."
    stacked = torch.stack((a, b), dim=-1)
    "The halves are stacked along a new axis, (…, T, d_k/2, 2): `cat` lays them side by side."
    return torch.cat((a, b), dim=-1)


@rotate.step(at="join", pair=lambda x: (x[..., 0::2], x[..., 1::2]))
def neighbours_joined(a, b):
    """Which dimension turns with dimension 0?"""
    neighbours = torch.stack((a, b), dim=-1).flatten(-2)
    """Neighbours are turned together, 0 with 1 and 2 with 3: the other layout. Here dimension i
    turns with dimension i + d_k/2."""
    neighbours_to_halves = torch.cat((a, b), dim=-1)
    "Neighbours are turned together (0 with 1), but the results are stored in halves."


@rotate.step(at="join", pair=lambda x: (x.chunk(2, dim=-1)[0], x.chunk(2, dim=-1)[1].flip(-1)))
def mirrored_joined(a, b):
    """Which dimension turns with dimension 0?"""
    from_both_ends = torch.cat((a, b.flip(-1)), dim=-1)
    "Dimension 0 is turned with the last one, 1 with the last but one, and so on."


@rotate.step
def whole(x, positions, base=BASE):
    """Is x turned, or is something added to it?"""
    angle = positions[:, None] * base_to_minus_2i_over_d_k(x, base)
    twice, (a, b) = angle.repeat_interleave(2, dim=-1), x.chunk(2, dim=-1)
    mixed_layouts = x * twice.cos() + torch.cat((-b, a), dim=-1) * twice.sin()
    """The angles are laid out for pairs of neighbours, each twice side by side, but the dimensions
    are paired as halves. | Which angle belongs to dimension 1, which to dimension 1 + d_k/2?"""
    doubled = torch.cat((angle, angle), dim=-1)
    beside = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    layouts_mixed = x * doubled.cos() + beside * doubled.sin()
    """The angles are laid out for halves, but neighbours are turned: the two dimensions of a pair
    turn by two angles. | Which dimension turns with dimension 0?"""
    added = torch.cat((angle.sin(), angle.cos()), dim=-1) + x
    "Sines and cosines are *added* to x, as the sinusoidal positions are. Here x is turned by them."
    added_in_turn = x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
    "= added"
