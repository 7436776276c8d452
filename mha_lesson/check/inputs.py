"""Tensors to try answers on: seeded, float64, and of distinct prime sizes."""

import torch
from torch import Tensor


def normal(*shape: int, seed: int, std: float = 1.0) -> Tensor:
    """Standard normal numbers, the same in every check; the global random state stays out."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * std


def strided(x: Tensor) -> Tensor:
    """The same numbers in a tensor that is not contiguous: memory runs along the first axis."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def labelled(*shape: int) -> Tensor:
    """Numbers that say where they stand: entry (b, t, c) is 100·b + 10·t + c."""
    x = torch.zeros(shape, dtype=torch.float64)
    for axis, n in enumerate(shape):
        place = 10.0 ** (len(shape) - 1 - axis)
        x = x + place * torch.arange(n, dtype=torch.float64).view(-1, *[1] * (len(shape) - 1 - axis))
    return x
