"""What a writing model keeps of the tokens so far: the keys and values of each layer.

Axis letters as in `attention`; h_kv heads of keys and values; T_new tokens arrive, and T_held
tokens are in the cache already.

Source: Shazeer (2019), Fast Transformer Decoding.
"""

from typing import Any, Self

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from mha_lesson.execution import Called, is_traced
from mha_lesson.refusals import require_ids, require_kind
from mha_lesson.refusals.of_attention import backward_pass, require_same_layer


class TakesCache(Called):
    """A layer that goes on from a `KVCache`."""


class KVCache:
    """The keys and values of one layer, of the tokens so far; it starts empty.

    It belongs to the layer that first used it. Where no gradient is recorded it keeps memory to
    spare, so that a new token is written behind the others: for a quarter of the tokens held, or
    for 16 if that is more, but never for more than are held.

    Attributes:
        length: how many tokens it has seen: the position of the next one.
        keys, values: (B, h_kv, T_held, d_k), or None while it is empty. T_held is `length`, or at
            most window − 1 where the layer has a window: older tokens are dropped after use.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.layer: nn.Module | None = None
        self.backward = -1  # the number of the backward pass in which it was last used
        self._room: _Room | None = None

    @classmethod
    def for_layers(cls, model: nn.Module) -> list[Self]:
        """An empty cache for each GroupedQueryAttention of a model, in the model's order."""
        require_kind("model", model, nn.Module)
        return [cls() for part in model.modules() if isinstance(part, TakesCache)]

    @property
    def nbytes(self) -> int:
        """The bytes of the keys and values held: 2 · B · h_kv · T_held · d_k · bytes a number."""
        return 0 if self.keys is None else 2 * self.keys.numel() * self.keys.element_size()

    def __copy__(self) -> Self:
        """Holds the same tensors, and goes on in memory of its own."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, _room=None)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With memory of its own; gradients go back through it to the same tokens."""
        twin = self.__copy__()
        twin.layer = memo.get(id(self.layer), self.layer)  # the copy, where that is copied, too
        if self.keys is not None and self.values is not None:
            twin._keep(self.keys, self.values)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """What a file holds: the tokens. Whoever reads it goes on with a layer of their own."""
        return {**self.__dict__, "layer": None, "_room": None}

    def reorder(self, index: Integer[Tensor, " B_new"]) -> None:
        """Goes on with these sequences of the batch, in this order: some twice, some no longer.

        Raises:
            TypeError, ValueError: `index` is not (B_new,) integers from 0 to B − 1, or the cache
                is empty.
        """
        if self.keys is None or self.values is None:
            raise ValueError("reorder needs a cache that holds something; this one is empty.")
        require_ids("index", index, 1, "(B_new,)", len(self.keys))
        index = index.to(self.keys.device)
        self.keys, self.values, self._room = self.keys[index], self.values[index], None

    def joined(
        self, layer: nn.Module, keys: Tensor, values: Tensor, window: int | None
    ) -> tuple[Tensor, Tensor]:
        """What is held, with the new tokens behind it; these do not count until `hold`."""
        if self.keys is None or self.values is None:
            return keys, values
        require_same_layer(self.layer, layer, self.keys, keys)
        n_all = self.keys.shape[2] + keys.shape[2]
        if not recorded(self.keys, self.values, keys, values):
            room = self._room
            if room is not None and room.takes(self.keys, self.values, keys.shape[2]):
                return room.joined(keys, values)
            capacity = _with_spare(_n_kept(n_all, window))
            if n_all <= capacity:  # not where more come at once than a window keeps
                self._room = room = _Room(self.keys, self.values, capacity)
                self.keys, self.values = room.held
                return room.joined(keys, values)
        return torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2)

    def hold(
        self, layer: nn.Module, keys: Tensor, values: Tensor, n_new: int, window: int | None
    ) -> None:
        """Of what `joined` gave, keeps what the next token may look at, itself not counted."""
        n_all = keys.shape[2]
        if recorded(keys, values) and window is not None:
            # Not a slice, which would fix the length in an export, and keep all memory alive.
            last = torch.arange(n_all - torch.sym_min(n_all, window - 1), n_all, device=keys.device)
            self._keep(keys.index_select(2, last), values.index_select(2, last), own=True)
        elif recorded(keys, values):
            self._keep(keys, values, own=self.keys is not None)
        elif self._room is not None and self._room.pending[0] is keys:
            self.keys, self.values = self._room.hold(_n_kept(n_all, window))
        else:
            n = _n_kept(n_all, window)
            self._keep(keys.narrow(2, n_all - n, n), values.narrow(2, n_all - n, n))
        self.layer, self.backward = layer, backward_pass()
        self.length += n_new

    def _keep(self, keys: Tensor, values: Tensor, own: bool = False) -> None:
        """Holds copies of these, or themselves where they are its `own` already."""
        self._room = None
        if not recorded(keys, values):
            self._room = _Room(keys, values, _with_spare(keys.shape[2]))
            keys, values = self._room.held
        elif not own:
            keys, values = (x.clone(memory_format=torch.contiguous_format) for x in (keys, values))
        self.keys, self.values = keys, values


class _Room:
    """Memory for keys and values, of which those from `start` to `end` are held."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        self.keys, self.values = (
            x.new_empty((*x.shape[:2], capacity, x.shape[3])) for x in (keys, values)
        )
        self.start = self.end = 0
        self.joined(keys, values)
        self.hold(keys.shape[2])

    def takes(self, keys: Tensor, values: Tensor, n_new: int) -> bool:
        """Whether these, which a cache holds, lie here still, with space for new ones behind."""
        return (
            self.held[0] is keys
            and self.held[1] is values
            and self.end + n_new <= self.keys.shape[2]
            and (torch.is_inference_mode_enabled() or not self.keys.is_inference())
        )

    def joined(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new ones behind those held: all of them, as views."""
        n_new = keys.shape[2]
        self.keys.narrow(2, self.end, n_new).copy_(keys)
        self.values.narrow(2, self.end, n_new).copy_(values)
        n_all = self.end + n_new - self.start
        keys = self.keys.narrow(2, self.start, n_all)
        self.pending = keys, self.values.narrow(2, self.start, n_all)
        return self.pending

    def hold(self, n: int) -> tuple[Tensor, Tensor]:
        """Counts what was written, and drops all but the last n."""
        n_dropped = self.pending[0].shape[2] - n
        self.end = self.start + n_dropped + n
        self.start += n_dropped
        self.held = self.pending
        if n_dropped:
            self.held = self.held[0].narrow(2, n_dropped, n), self.held[1].narrow(2, n_dropped, n)
        return self.held


def _n_kept(n_all: int, window: int | None) -> int:
    return n_all if window is None else min(n_all, window - 1)


def _with_spare(n: int) -> int:
    return n + min(n, max(16, n // 4))


def recorded(*tensors: Tensor) -> bool:
    """Whether a gradient or a graph is recorded, which needs memory that stays as it is."""
    if is_traced():
        return True
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
