"""What a module draws in training: dropout, of what and how much; and whether it is only that."""

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

DROPOUTS = {"dropout", "dropout_", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d",
            "native_dropout"}  # fmt: skip
WITH_ONE = {
    F.scaled_dot_product_attention: ("dropout_p", 4),
    F.multi_head_attention_forward: ("dropout_p", 10),
}
Drop = tuple[str, float, int]
UNIFORM = {"rand", "rand_like", "uniform_", "bernoulli", "bernoulli_"}


class Drops(TorchFunctionMode):
    """Within it PyTorch's dropout drops nothing, and is noted.

    Attributes:
        seen: (place, p, how many numbers) of each; a place is "weights", "scores", or a shape.
        drawn: what `UNIFORM` gives instead, 0 or almost 1, for a dropout of one's own; or None.
        but: the place where it drops all the same.
    """

    def __init__(self, n_tokens: int, drawn: float | None = None, but: str = "") -> None:
        super().__init__()
        self.but = but
        self.seen, self.n_tokens, self.drawn = list[Drop](), n_tokens, drawn

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in DROPOUTS:
            x, p, training, *_ = (*args, *[None] * 3)
            x = kwargs.get("input", x)
            p = kwargs.get("p", 0.5 if p is None else p)
            on = kwargs.get("training", kwargs.get("train", training))
            if (on or on is None) and p:
                self.seen.append((self._place(x), float(p), x.numel()))
                if self.seen[-1][0] == self.but:
                    return func(*args, **kwargs)
            return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
        if func in WITH_ONE:
            word, place = WITH_ONE[func]
            p = kwargs.get(word, args[place] if len(args) > place else 0.0)
            if p and kwargs.get("training", True):
                heads = kwargs.get("num_heads", args[4] if place > 4 < len(args) else 1)
                rows = (args[0] if args else kwargs["query"]).shape[:-1].numel() * heads
                self.seen.append(("weights", float(p), rows * self.n_tokens))
            args = tuple(0.0 if i == place else value for i, value in enumerate(args))
            kwargs = kwargs | ({word: 0.0} if len(args) <= place else {})
        out = func(*args, **kwargs)
        if self.drawn is not None and name in UNIFORM and isinstance(out, Tensor):
            out.fill_(round(self.drawn) if "bernoulli" in name else self.drawn)
        return out

    def _place(self, x: Tensor) -> str:
        if x.shape[-2:] != (self.n_tokens, self.n_tokens):
            return f"a tensor of axes {tuple(x.shape)}"
        sums = [x.detach().sum(axis) for axis in (-1, -2)]
        whole = (((s - 1).abs() < 1e-3) | (s == 0) for s in sums)
        return "weights" if (x >= 0).all() and any(w.all() for w in whole) else "scores"


def in_words(seen: list[Drop], n_weights: int) -> tuple[str, str]:
    """What is told of them; and what is wrong, as a published mistake's name or in words, or ""."""
    dropped = dict.fromkeys(
        f"{p:g} of {'the weights' if place == 'weights' else place}" for place, p, _ in seen
    )
    places = Counter[str]()
    for place, _, n in seen:
        places[place] += n
    wrong = ""
    if places["scores"]:
        wrong = "dropout_on_scores"
    elif places["weights"] > n_weights:
        wrong = "in training: dropout falls on the weights twice"
    return ("In training it drops " + ", and ".join(dropped) + ".") * bool(dropped), wrong
