"""Tensors to try answers on: seeded, float64, and of distinct prime sizes."""

from typing import Any

import torch
from torch import Tensor


def normal(*shape: int, seed: int, std: float = 1.0) -> Tensor:
    """Standard normal numbers, the same in every check; the global random state stays out."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * std


def strided(x: Tensor) -> Tensor:
    """The same numbers in a tensor that is not contiguous: memory runs along the first axis."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def labelled(B: int, T: int, width: int) -> Tensor:
    """Numbers that say where they stand: 100·t + c in token t, column c; 10,000 more a sequence."""
    b, t, c = (torch.arange(n, dtype=torch.float64) for n in (B, T, width))
    return 10_000 * b[:, None, None] + 100 * t[:, None] + c


def unchanged(x: Any, *_: Any) -> Any:
    """The step that does nothing."""
    return x
