"""Where the layers of any attention module are, by name and shape, and how many heads it has."""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mha_lesson.refusals import say

HEADS = ("n_heads", "num_heads", "n_head", "num_head", "nhead", "heads", "num_attention_heads", "h")
WORDS = {  # in a layer's name
    "w_qkv": {"qkv", "wqkv"},
    "w_q": {"q", "wq", "query", "queries"},
    "w_k": {"k", "wk", "key", "keys"},
    "w_v": {"v", "wv", "value", "values"},
    "w_o": {"o", "wo", "out", "output", "proj", "dense", "fc"},
}
Layers = dict[str, Tensor]  # of "w_q" …: weight (out, in), and the bias as one column more
Places = dict[str, list[str]]  # of "w_q" …: where its matrix stands, or those of its heads


def places_in(module: nn.Module, layers: Mapping[str, str | Sequence[str]] | None) -> Places:
    """Role → where its matrix stands, or those of its heads."""
    matrices = {_place(name): p for name, p in module.named_parameters() if p.ndim == 2}
    if layers is not None:
        chosen = {role: [p] if isinstance(p, str) else [*p] for role, p in layers.items()}
    else:
        chosen = _guessed(matrices)
    found = [place for several in chosen.values() for place in several]
    if not chosen.keys() <= WORDS.keys() or not {*found} <= matrices.keys():
        known = f"{say([*WORDS])} to {say([*matrices])}"
        raise ValueError(f"layers must map some of {known}; got {say(chosen)}.")
    left_over = layers is None and "w_o" not in chosen and len(found) < len(matrices)
    if left_over or not ("w_qkv" in chosen or {"w_q", "w_k", "w_v"} <= chosen.keys()):
        raise ValueError(f"layers must be given: not all were found among {say([*matrices])}.")
    return chosen


def heads_of(module: nn.Module, places: Places) -> int:
    """h: as many layers as there are of one role, or what an attribute says."""
    if (several := max(map(len, places.values()))) > 1:
        return several
    named = (getattr(part, name, None) for part in module.modules() for name in HEADS)
    if (h := next((n for n in named if isinstance(n, int)), None)) is None:
        names = ", ".join(HEADS)
        raise ValueError(f"n_heads must be given: the module has no attribute of {names}.")
    return h


def draw_anew(module: nn.Module, places: Places) -> Layers:
    """Gives the layers weights of ordinary size; several of one role stand below each other."""
    own = [(_place(name), p) for name, p in module.named_parameters()]
    matrices, vectors = ({place: p for place, p in own if p.ndim == n} for n in (2, 1))
    turned = any(3 * len(matrices[p]) == matrices[p].shape[1] for ps in places.values() for p in ps)
    generator, weights = torch.Generator().manual_seed(0), Layers()
    for role, several in places.items():
        rows = []
        for place in several:
            weight = matrices[place].T if turned else matrices[place]
            bias = vectors[place] if place in vectors else weight.new_zeros(len(weight))
            weight.normal_(std=weight.shape[1] ** -0.5, generator=generator)
            if place in vectors:
                bias.normal_(generator=generator)
            rows.append(torch.cat((weight, bias[:, None]), dim=1))
        weights[role] = torch.cat(rows)
    return weights


def fitting_width(weights: Layers) -> int:
    """d_model, which each must be wide, in and out, as where every head has keys of its own."""
    sizes = {role: (len(weight), weight.shape[1] - 1) for role, weight in weights.items()}
    d_model = sizes["w_qkv" if "w_qkv" in sizes else "w_q"][1]
    wide = {role: ((3 if role == "w_qkv" else 1) * d_model, d_model) for role in sizes}
    if sizes != wide:
        why = "h·d_k is not d_model, or heads share keys"
        if sizes.get("w_k") != sizes.get("w_q"):
            why = "heads share keys"
        if any(role != "w_o" and n_in != d_model for role, (_, n_in) in sizes.items()):
            why = "keys or values take another width than queries"
        raise ValueError(f"layers must be {wide} (out, in); got {sizes}: {why}.")
    return d_model


def _guessed(matrices: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """By shape, then by the words of a name, its last part first; the one left over is W^O."""
    chosen: dict[str, list[str]] = {}
    for place, matrix in matrices.items():
        role = "w_qkv" if 3 * min(matrix.shape) == max(matrix.shape) else _said(place)
        chosen.setdefault(role, []).append(place)
    others = chosen.pop("", [])
    if len(others) == 4 and not chosen:  # a list of layers
        return {role: [place] for role, place in zip([*WORDS][1:], others, strict=True)}
    if len(others) == 1:
        chosen.setdefault("w_o", others)
    return chosen


def _said(place: str) -> str:
    for part in reversed(place.lower().split(".")):
        words = {word.removeprefix("to") for word in re.findall("[a-z]+", part)}
        if role := next((role for role, said in WORDS.items() if words & said), ""):
            return role
    return ""


def _place(name: str) -> str:
    return re.sub(r"[._]?(weight|bias)$", "", name)
