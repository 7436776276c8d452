"""What a module does inside while it runs: its dropout, its floating types, its axes, its sines."""

from collections import Counter
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

DROPOUTS = {"dropout", "dropout_", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d"}
DROPOUTS |= {"native_dropout"}
UNIFORM = {"rand", "rand_like", "uniform_", "bernoulli", "bernoulli_"}
WITH_ONE = {  # a dropout inside → their parameters
    F.scaled_dot_product_attention: ("query", "key", "value", "attn_mask", "dropout_p"),
    F.multi_head_attention_forward: (*signature(F.multi_head_attention_forward).parameters,),
}


class Watch(TorchFunctionMode):
    """Notes what runs within it, where PyTorch's dropout drops nothing.

    Args:
        n_tokens: of the input, by which weights and scores are known.
        drawn: what `UNIFORM` gives instead, 0 or almost 1, for a dropout of one's own; or None.
        but: the place where it drops all the same.

    Attributes:
        drops: (place, p, how many numbers) of each dropout; a place is "weights", "scores", or a
            shape.
        dtypes: the floating types in which anything is computed.
        axes: the most that anything has.
        turns: whether it computes sines.
    """

    def __init__(self, n_tokens: int, drawn: float | None = None, but: str = "") -> None:
        super().__init__()
        self.n_tokens, self.drawn, self.but = n_tokens, drawn, but
        self.drops, self.dtypes = list[tuple[str, float, int]](), set[torch.dtype]()
        self.axes, self.turns = 0, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in DROPOUTS or func in WITH_ONE:
            given = dict(zip(WITH_ONE.get(func, ("input", "p", "training")), args, strict=False))
            given |= kwargs
            on = given.get("training", given.get("train", True)) in (True, None)
            if name in DROPOUTS:
                x, p = given["input"], given.get("p", 0.5)
                if on and p:
                    self.drops.append((place := self._place(x), float(p), x.numel()))
                    if place == self.but:
                        return func(*args, **kwargs)
                return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
            if on and (p := given.get("dropout_p", 0.0)):
                rows = given["query"].shape[:-1].numel() * given.get("num_heads", 1)
                self.drops.append(("weights", float(p), rows * self.n_tokens))
            args, kwargs = (), given | {"dropout_p": 0.0}
        out = func(*args, **kwargs)
        self.turns |= name in ("sin", "cos", "polar")
        if isinstance(out, Tensor):
            self.axes = max(self.axes, out.ndim)
            if out.is_floating_point():
                self.dtypes.add(out.dtype)
            if self.drawn is not None and name in UNIFORM:
                out.fill_(round(self.drawn) if "bernoulli" in name else self.drawn)
        return out

    def _place(self, x: Tensor) -> str:
        if x.shape[-2:] != (self.n_tokens, self.n_tokens):
            return f"a tensor of axes {tuple(x.shape)}"
        sums = [x.detach().sum(axis) for axis in (-1, -2)]
        whole = (((s - 1).abs() < 1e-3) | (s == 0) for s in sums)
        return "weights" if (x >= 0).all() and any(w.all() for w in whole) else "scores"

    def dropped(self, n_weights: int) -> tuple[str, str]:
        """What is told of dropout; and what is wrong, as a mistake's name or in words, or ""."""
        each = dict.fromkeys(
            f"{p:g} of {'the weights' if place == 'weights' else place}"
            for place, p, _ in self.drops
        )
        places = Counter[str]()
        for place, _, n in self.drops:
            places[place] += n
        wrong = "in training: dropout falls on the weights twice"
        wrong *= places["weights"] > n_weights
        told = ("In training it drops " + ", and ".join(each) + ".") * bool(each)
        return told, "dropout_on_scores" if places["scores"] else wrong
