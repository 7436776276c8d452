"""Small tasks to train on, drawn by seeded generators on the CPU, so every machine sees the same.

Every `…_batches` function is endless and starts afresh from its seed; `training.train` takes from
it and moves each batch to the model's device. What does not fit is refused by name.
"""

from collections.abc import Iterator
from itertools import repeat

import torch
from jaxtyping import Int
from torch import Tensor

from mha_lesson import refusals
from mha_lesson.refusals import describe


def repeat_batches(
    n_rows: int = 64, n_tokens: int = 12, n_ids: int = 64, *, seed: int = 0
) -> Iterator[Int[Tensor, "B T"]]:
    """The repeat task: every one of B = n_rows rows is one random id, T = n_tokens times."""
    refusals.require_sizes(n_rows=n_rows, n_tokens=n_tokens, n_ids=n_ids)
    return (ids.repeat(1, n_tokens) for ids in _random_ints(n_ids, (n_rows, 1), seed))


def letter_batches(
    n_rows: int = 64, n_tokens: int = 12, n_letters: int = 16, *, seed: int = 0
) -> Iterator[Int[Tensor, "B T"]]:
    """The rows of the two-sides task: random letters, each independent of the others.

    The answers are `both_sides` of a batch.
    """
    refusals.require_sizes(n_rows=n_rows, n_tokens=n_tokens, n_letters=n_letters)
    return _random_ints(n_letters, (n_rows, n_tokens), seed)


def both_sides(letters: Int[Tensor, "B T"]) -> Int[Tensor, "B inner 2"]:
    """The answers of the two-sides task: for every inner position its left and right letter.

    The first and the last position lack a neighbour: of T letters, at least 3, come (B, T - 2, 2).
    """
    refusals.require_axes("letters", letters, 2, "(B, T)")
    if letters.shape[1] < 3:
        raise ValueError(f"letters must have T of at least 3; got {describe(letters)}.")
    return torch.stack([letters[:, :-2], letters[:, 2:]], dim=-1)


def text_batches(
    ids: Int[Tensor, " N"], n_rows: int = 32, n_tokens: int = 48, *, seed: int = 0
) -> Iterator[Int[Tensor, "B T"]]:
    """Random windows of a text, which has one id for each symbol; each is n_tokens long."""
    refusals.require_sizes(n_rows=n_rows, n_tokens=n_tokens)
    refusals.require_axes("ids", ids, 1, "(N,)")
    if len(ids) < n_tokens:
        raise ValueError(f"ids must hold at least n_tokens = {n_tokens}; got {describe(ids)}.")
    windows = ids.unfold(0, n_tokens, 1)  # (N - T + 1, T), a view: no copy of the text
    return (windows[starts] for starts in _random_ints(len(windows), (n_rows,), seed))


def _random_ints(n: int, size: tuple[int, ...], seed: int) -> Iterator[Tensor]:
    """Endless tensors of integers from 0 to n - 1; an unfit seed is refused at the call."""
    refusals.require_seed(seed)
    generator = torch.Generator().manual_seed(int(seed))
    return (torch.randint(n, size, generator=generator, device="cpu") for _ in repeat(None))
