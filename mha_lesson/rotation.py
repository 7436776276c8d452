"""Rotated positions (RoPE): queries and keys turn with their place, so that scores see distances.

Source: Su et al. (2021), RoFormer.
"""

from functools import lru_cache

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from mha_lesson.execution import is_traced
from mha_lesson.refusals.of_attention import require_rotation


def rotate(
    x: Float[Tensor, "*axes T d_k"], positions: Integer[Tensor, " T"], base: float = 10_000.0
) -> Float[Tensor, "*axes T d_k"]:
    """Turns dimension i with dimension i + d_k/2, by the angle position · base^(−2i/d_k).

    A product of two rotated rows depends on their positions only through the distance.

    Args:
        x: queries or keys, (…, T, d_k), d_k even.
        positions: (T,) integers, where each token stands.
        base: of the angles, above 0: pair 0 turns by 1 radian a token, the last by
            base^(2/d_k) / base.

    Returns:
        (…, T, d_k), with the length of every row as it was.

    Raises:
        TypeError, ValueError: an argument does not fit; the sentence says which and why.
    """
    require_rotation(x, positions, base)
    return turned(x, *_cos_and_sin(positions, x.shape[-1], float(base), x.dtype))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Float[Tensor, "*axes T d_k"]:
    partners = x.roll(x.shape[-1] // 2, dims=-1)  # dimension i + d_k/2 in place of i, and back
    return (x * cos + partners * sin).to(x.dtype)


def _cos_and_sin(
    positions: Integer[Tensor, " T"], d_k: int, base: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "T d_k"], Float[Tensor, "T d_k"]]:
    """The factor of each dimension, and the factor of the one that it turns with.

    In float64, rounded once: in float32 angles near 1,000,000 are off by up to 0.06 rad. On the
    CPU, unless the device is known to have float64.
    """
    device = positions.device
    if device.type not in ("cpu", "cuda", "meta"):
        positions = positions.cpu()
    half = d_k // 2
    pair = torch.arange(half, device=positions.device, dtype=torch.float64)
    angle = positions[:, None] * base ** (-pair / half)  # (T, d_k/2)
    wide = torch.promote_types(dtype, torch.float32)
    cos, sin = angle.cos().to(wide), angle.sin().to(wide)
    return torch.cat((cos, cos), -1).to(device), torch.cat((-sin, sin), -1).to(device)


# PyTorch's own name for leaving its transforms; without it no page is kept, which is slower.
_outside = getattr(torch._C, "_DisableFuncTorch", None)
_PAGE = 2048  # positions whose angles are computed together and kept, for all layers alike


@lru_cache(maxsize=32)
def _page(
    number: int, d_k: int, base: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    assert _outside is not None
    with torch.inference_mode(False), _outside():  # the page outlives both
        at = torch.arange(number * _PAGE, (number + 1) * _PAGE, device="cpu")
        cos, sin = _cos_and_sin(at, d_k, base, dtype)
        return cos.to(device), sin.to(device)


def angles(n_seen: int, n_new: int, base: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """`_cos_and_sin` of the positions from n_seen on, for the rows of `like`."""
    d_k = like.shape[-1]
    # A tensor of another class has no values, or is traced: what it makes must not be kept.
    if _outside is not None and type(like) is Tensor and not is_traced():
        number, row = divmod(n_seen, _PAGE)
        if row + n_new <= _PAGE:
            cos, sin = _page(number, d_k, base, like.dtype, like.device)
            return cos.narrow(0, row, n_new), sin.narrow(0, row, n_new)
    positions = torch.arange(n_seen, n_seen + n_new, device=like.device)
    return _cos_and_sin(positions, d_k, base, like.dtype)
