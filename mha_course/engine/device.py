"""Another device, played on the CPU: the numbers are real, and mixing devices fails as on a GPU.

Some tensors are declared to live elsewhere. What is computed from them lives there too; a tensor
made without `device=` does not. PyTorch's meta device would do nearly the same, but it has no
values, lets several mixtures pass, and takes over a second to import.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("meta")  # what `x.device` says of a tensor that lives elsewhere
_MAKERS = {
    *("tensor", "as_tensor", "zeros", "ones", "full", "empty", "arange", "range", "linspace"),
    *("eye", "rand", "randn", "randint", "randperm", "tril_indices", "triu_indices"),
    *("from_numpy", "scalar_tensor", "asarray"),
}
# One tensor takes part in these, the first; numbers beside it are read out as sizes or values.
_OF_ONE = {
    *("fill_", "pad", "narrow", "roll", "triu", "tril", "view", "reshape", "expand", "repeat"),
    *("split", "select", "unflatten", "diagonal"),
    *("expand_as", "view_as", "reshape_as", "new_tensor"),
}
_MAY_MIX = _OF_ONE | {"to", "copy_", "type_as", "__getitem__", "__setitem__", "__set__"}
_JOINS = {f"__{way}{operator}__" for way in ("", "i", "r") for operator in ("and", "or", "xor")}
TO_NUMPY = ("numpy", "__array__")


class OtherDevice(TorchFunctionMode):
    """While it is on, `tensors` and all that follows from them live on another device.

    A piece of memory lives in one place, so it is memory that is remembered: views and parameters
    made of a tensor are where the tensor is. What compiled code makes is not seen, and of that
    nothing is known.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self._there: dict[int, Tensor] = {}  # holds them, so that no address comes twice
        self._here: dict[int, Tensor] = {}
        self._note(tensors, self._there)

    def has(self, x: Any) -> bool:
        return isinstance(x, Tensor) and _key(x) in self._there

    def lacks(self, x: Any) -> bool:
        """Whether a tensor is known to have been made on the CPU."""
        return isinstance(x, Tensor) and _key(x) in self._here and not self.has(x)

    def _note(self, tensors: Iterable[Any], side: dict[int, Tensor]) -> None:
        side |= {_key(x): x for x in tensors if isinstance(x, Tensor)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if getattr(func, "__self__", None) is torch.Tensor.device and self.has(args[0]):
            return DEVICE
        args, asked = _without_device(args, kwargs)
        if asked is None and name in _MAKERS and torch.get_default_device() == DEVICE:
            # Inside the answer's own `with torch.device(…)`.
            asked, kwargs["device"] = DEVICE, "cpu"
        tensors = [x for x in flat((args, kwargs)) if isinstance(x, Tensor)]
        there = [self.has(x) for x in tensors]
        if any(there) and name in TO_NUMPY and kwargs.get("force"):
            return func(args[0].clone(), **kwargs)  # by way of the CPU, with memory of its own
        if any(there) and name in TO_NUMPY:
            raise TypeError("can't convert cuda device type tensor to numpy")
        self._refuse_mixtures(name, args, tensors, there)
        result = func(*args, **kwargs)
        if name == "__iter__":
            return iter(list(result))  # views
        lands = self._lands_elsewhere(name, args, asked, there)
        if isinstance(result, Tensor) and self.has(result) != lands and name in _COPIES:
            result = result.clone()  # torch has handed back the same memory: for it nothing moved
        self._note(flat(result), self._there if lands else self._here)
        return result

    def _refuse_mixtures(
        self, name: str, args: Any, tensors: list[Tensor], there: list[bool]
    ) -> None:
        # A `CausalBias` is two sizes: its mask is made where the queries are.
        biased = [type(x).__name__ == "CausalBias" for x in tensors]
        known = [(x, s) for x, s, b in zip(tensors, there, biased, strict=True) if not b]
        if name == "__getitem__" and not self.has(args[0]) and any(s and x.ndim for x, s in known):
            raise RuntimeError("indices should be on the same device as the indexed tensor")
        if name in _MAY_MIX or name in _MAKERS or (name.startswith("_") and name not in _JOINS):
            return
        sides = {s for x, s in known if (x.ndim or s) and x.numel() and address(x)}
        if len(sides) > 1:  # a number of the CPU's may join, one of the device's may not
            raise RuntimeError("Expected all tensors to be on the same device")

    def _lands_elsewhere(self, name: str, args: Any, asked: Any, there: list[bool]) -> bool:
        if asked is not None:
            return asked == DEVICE
        if name == "cpu":
            return False
        if name in _OF_ONE or name in ("__getitem__", "copy_", "__setitem__"):
            return there[0]
        if name in ("to", "type_as") and len(args) > 1 and isinstance(args[1], Tensor):
            return self.has(args[1])
        if name in _MAKERS:
            return name in _COPIES and bool(args) and self.has(args[0])
        return any(there)


_COPIES = {"to", "cpu", "type_as", "tensor", "as_tensor", "asarray"}


def _key(x: Tensor) -> int:
    """The address of its memory; where it has none, as if empty, a number of its own."""
    return address(x) or -id(x)


def bare(x: Tensor) -> Tensor:
    """The tensor itself: under `vmap`, or `torch.func.grad`, what is seen is a wrapper."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def address(x: Tensor) -> int:
    try:
        return bare(x).untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # no memory of its own: sparse
        return 0


def _without_device(args: Any, kwargs: dict[str, Any]) -> tuple[Any, torch.device | None]:
    """Takes the device out of a call's arguments: torch itself only ever sees the CPU."""
    asked = kwargs.get("device")
    if asked is not None:
        asked = torch.device(asked)
        kwargs["device"] = "cpu" if asked == DEVICE else asked
    for i, x in enumerate(args):
        if i and (isinstance(x, torch.device) or (isinstance(x, str) and x in ("cpu", "meta"))):
            asked = torch.device(x)
            args = (*args[:i], torch.device("cpu") if asked == DEVICE else x, *args[i + 1 :])
    return args, asked


def flat(x: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(x, dict):
        x = tuple(x.values())
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, (tuple, list)) else [x]
