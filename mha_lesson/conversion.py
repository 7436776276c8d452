"""Parameters from elsewhere, and back: what the module of `attention` inherits."""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Self

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from mha_lesson.execution import Called
from mha_lesson.refusals import describe, require_floats, require_kind, require_text, say

# PyTorch's name of a parameter → ours.
_OUR_NAMES = {
    "in_proj_weight": "w_qkv.weight",
    "in_proj_bias": "w_qkv.bias",
    "out_proj.weight": "w_o.weight",
    "out_proj.bias": "w_o.bias",
}


def _renamed(module: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """The weights in use by `module` under new names, `names` being new → own; biases if any."""
    tensors = {new: attrgetter(own)(module) for new, own in names.items()}
    return {new: x for new, x in tensors.items() if x is not None}


# What a projection is called in a file, without "weight" or "bias".
_ROLE = re.compile(
    r"(?:[wb]_?|to_|c_|linear_)?"
    r"(?:(?P<qkv>qkv|attn|in(?=_))|(?P<q>q|quer(?:y|ies))|(?P<k>k|keys?)|(?P<v>v|values?)"
    r"|(?P<o>o|out|output|proj|dense))(?:_?(?:proj|lin|linear))?"
)


_WANTED = "state_dict must hold one attention layer: output, and q, k and v, fused or separate"


def _parts(state_dict: Any) -> dict[tuple[str, str], list[Tensor]]:
    """(role, kind) → its tensor, or one for each head; without causal masks stored beside them."""
    require_kind("state_dict", state_dict, Mapping)
    found: dict[tuple[str, str], dict[int, Tensor]] = {}
    for name, x in state_dict.items():
        require_text(**{"each name in state_dict": name})
        require_kind(f"state_dict[{say(name)}]", x, Tensor)
        last = re.sub(r"(\.0)?[._](weight|bias)$", "", name).lower().rpartition(".")[2]
        if x.ndim in (0, 4) or last in ("mask", "tril"):
            continue
        role, head = _ROLE.fullmatch(last), re.search(r"heads?\.(\d+)\.", name)
        kind = "bias" if name.endswith("bias") or last.startswith("b_") else "weight"
        heads = found.setdefault((str(role and role.lastgroup), kind), {})
        number = int(head[1]) if head else 0
        if role is None or number in heads:
            raise ValueError(f"{_WANTED}; got {say(name)}, another thing or one of these again.")
        require_floats(f"state_dict[{say(name)}]", x, "(rows, columns)")
        heads[number] = x.detach()
    return {part: [heads[i] for i in sorted(heads)] for part, heads in found.items()}


class Convertible(Called):
    """A module of multi-head attention that takes the weights of others, and gives its own."""

    d_model: int
    n_heads: int
    d_k: int
    dropout: float
    w_qkv: nn.Linear
    w_o: nn.Linear

    @classmethod
    def from_torch(cls, other: nn.MultiheadAttention) -> Self:
        """A copy of PyTorch's module: same weights, dtype, device and mode; its parameters learn.

        Ours is batch first, whatever `other.batch_first` says. Of pruned or parametrised weights
        the values in use are copied.

        Raises:
            TypeError: `other` is not an nn.MultiheadAttention.
            ValueError: it has what this class has not: kdim, vdim, add_bias_kv, add_zero_attn, a
                dropout of 1, or a forward of its own with weights of its own.
        """
        if not isinstance(other, nn.MultiheadAttention):
            raise TypeError(f"other must be an nn.MultiheadAttention; got {describe(other)}.")
        if other.in_proj_weight is None:
            raise ValueError(
                f"other must have one width for query, key and value; got embed_dim = "
                f"{other.embed_dim}, kdim = {other.kdim}, vdim = {other.vdim}."
            )
        if other.bias_k is not None or other.add_zero_attn:
            raise ValueError("other must be without add_bias_kv and add_zero_attn; it has one.")
        extra = other.state_dict().keys() - _OUR_NAMES.keys()
        if extra and type(other).forward is not nn.MultiheadAttention.forward:
            raise ValueError(
                f"other must have no weights but those of nn.MultiheadAttention; got one with "
                f"{say(sorted(extra))}."
            )
        has_bias = other.in_proj_bias is not None
        ours = _renamed(other, {own: name for name, own in _OUR_NAMES.items()})
        try:
            mha = cls(other.embed_dim, other.num_heads, bias=has_bias, dropout=other.dropout)
            mha.to(other.in_proj_weight).train(other.training)
            mha.load_state_dict(mha.state_dict() | ours)  # what a subclass adds stays as it starts
        except (TypeError, RuntimeError) as error:
            raise TypeError(
                f"{cls.__name__} must be made by (d_model, n_heads, bias=…, dropout=…) and keep "
                f"w_qkv and w_o, to be made from PyTorch's module: {error}"
            ) from error
        return mha

    def load_layout(self, state_dict: Mapping[str, Shaped[Tensor, "..."]]) -> str:
        """Loads one attention layer of another class, whatever its layout, and says which it was.

        It finds q, k and v fused (rows q, k, v; "turned" if they are columns), separate, or by
        head, under the names in use, such as `in_proj_weight`, `q_proj.weight` and
        `heads.0.W_query.weight`. A bias that is missing is 0, and causal masks are skipped.

        Raises:
            TypeError, ValueError: it is no such layer, or of other sizes; the sentence says which.
        """
        ours = {name: torch.zeros_like(x) for name, x in self.state_dict().items()}
        if not {"w_qkv.weight", "w_o.weight"} <= ours.keys() <= {*_OUR_NAMES.values()}:
            raise ValueError(
                f"w_qkv and w_o must hold a weight and a bias; they hold {say([*ours])}."
            )
        places = {}  # (role, kind) → where it goes
        for kind in ("weight", "bias") if "w_o.bias" in ours else ("weight",):
            rows = ours[f"w_qkv.{kind}"]
            places |= {("qkv", kind): rows, ("o", kind): ours[f"w_o.{kind}"]}
            places |= zip(((role, kind) for role in "qkv"), rows.chunk(3), strict=True)
        parts = _parts(state_dict)
        roles = {role for role, kind in parts if kind == "weight"}
        if roles not in ({*"qkvo"}, {"qkv", "o"}):
            raise ValueError(
                f"{_WANTED}; got weights of {say(sorted(roles)) if roles else 'none'}."
            )
        by_head = any(len(heads) > 1 or heads[0].ndim == 3 for heads in parts.values())
        turned = "qkv" in roles and all(  # both of them: one may be square
            x.shape == places[role, "weight"].shape[::-1]
            for role in ("qkv", "o")
            for x in parts[role, "weight"]
        )
        layout = "by head" if by_head else "separate" if "q" in roles else "fused"
        layout += ", turned" if turned else ""
        layout += ", with biases" if len(parts) > len(roles) else ", without biases"
        for (role, kind), heads in parts.items():
            if len({x.shape for x in heads}) > 1:
                raise ValueError(f"state_dict must hold heads of one size; {role} has several.")
            if heads[0].is_meta and not ours["w_o.weight"].is_meta:
                raise ValueError(f"state_dict must hold values; {role} is on the meta device.")
            x, place = torch.cat(heads), places.get((role, kind))
            if x.ndim == 3:  # (h, d_model, d_k), and of the output (h, d_k, d_model)
                x = x.flatten(0, 1).mT if role == "o" else x.mT.flatten(0, 1)
            x = x.flatten() if kind == "bias" else x.mT if turned else x
            if place is None or x.shape != place.shape:
                wanted = "none" if place is None else f"{tuple(place.shape)}"
                raise ValueError(
                    f"state_dict was read as {layout}; for this module the {kind} of {role} must "
                    f"be {wanted}, and is {tuple(x.shape)}."
                )
            place.copy_(x)
        self.load_state_dict(ours)
        return layout

    def to_torch(self) -> nn.MultiheadAttention:
        """A copy as PyTorch's module (batch_first=True), otherwise as `from_torch` makes ours.

        Raises:
            ValueError: h·d_k differs from d_model, which nn.MultiheadAttention cannot have, or a
                layer was replaced, so that there is no weight to copy.
        """
        for name, layer in (("w_qkv", self.w_qkv), ("w_o", self.w_o)):
            if getattr(layer.forward, "__func__", None) is not nn.Linear.forward:
                raise ValueError(
                    f"{name} must be an nn.Linear, whose weight can be copied; "
                    f"got {describe(layer)}."
                )
        if self.n_heads * self.d_k != self.d_model:
            raise ValueError(
                f"nn.MultiheadAttention needs n_heads * d_k = d_model; this module has "
                f"{self.n_heads} * {self.d_k} and d_model = {self.d_model}."
            )
        has_bias = self.w_o.bias is not None
        other = nn.MultiheadAttention(
            self.d_model, self.n_heads, dropout=self.dropout, bias=has_bias, batch_first=True
        )
        other.to(self.w_o.weight).train(self.training)
        other.load_state_dict(_renamed(self, _OUR_NAMES))
        return other
