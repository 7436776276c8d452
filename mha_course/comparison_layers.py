"""Where the layers of any attention module are, and in which ways their rows may be read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_lesson.refusals import say

HEADS = ("n_heads", "num_heads", "n_head", "num_head", "nhead", "nheads", "head_num", "heads",
         "head", "num_attention_heads", "h")  # fmt: skip
WORDS = {  # in a layer's name
    "w_qkv": {"qkv", "wqkv", "kqv"},
    "w_kv": {"kv", "wkv"},
    "w_qk": {"qk", "wqk"},
    "w_q": {"q", "qs", "wq", "query", "queries"},
    "w_k": {"k", "ks", "wk", "key", "keys"},
    "w_v": {"v", "vs", "wv", "value", "values"},
    "w_o": {"o", "wo", "out", "output", "proj", "projection", "dense", "fc"},
}
SETS = (("w_qkv",), ("w_q", "w_k", "w_v"), ("w_q", "w_kv"), ("w_qk", "w_v"))  # beside w_o
AXES = ("n h d_k", "h n d_k", "h d_k n", "n d_k h", "d_k n h", "d_k h n")  # of a fused layer's rows
MOST = 300  # ways to give places to roles
Places = dict[str, tuple[str, ...]]  # of "w_q" …: where its matrix stands, or those of its heads


class Reading(NamedTuple):
    """One way to read the weights."""

    places: Places
    h: int
    said: str  # what is unusual about it, or ""
    parts: dict[str, Tensor]  # "q", "k", "v" and "o": weight (out, in), its bias as last column


def place(name: str) -> str:
    """A parameter's name without what says that it is a weight or a bias."""
    return re.sub(r"[._]?(weights?|bias)$", "", name)


def matrices_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Place → a weight of two axes or more; those of length 1, as of convolutions, do not count."""
    own = module.named_parameters()
    return {place(name): p for name, p in own if sum(n > 1 for n in p.shape) > 1}


def width_of(matrices: Mapping[str, Tensor]) -> int:
    """d_model: the width that most of them have, and of several the largest."""
    shapes = [p.shape for p in matrices.values()]
    widths = {n for shape in shapes for n in shape}
    return max(widths, key=lambda n: (sum(n in shape for shape in shapes), n), default=0)


def chosen(matrices: Mapping[str, Tensor], layers: Mapping[str, str | Sequence[str]]) -> Places:
    """What the caller says of the layers."""
    places = {role: (p,) if isinstance(p, str) else (*p,) for role, p in layers.items()}
    found = {where for several in places.values() for where in several}
    if not any({*roles} == places.keys() - {"w_o"} for roles in SETS) or not found <= {*matrices}:
        sets = " or ".join(" and ".join(roles) for roles in SETS)
        raise ValueError(
            f"layers must map {sets}, and mostly w_o, to some of {', '.join(matrices)}; "
            f"got {say(places)}."
        )
    return places


def options(
    matrices: Mapping[str, Tensor], live: Mapping[str, Tensor], d_model: int
) -> list[Places]:
    """Ways to give places to roles, likely ones first; those of what has an effect before all."""
    found: list[Places] = []
    for several in (live, matrices):
        for places in islice(_guessed(several, d_model), MOST):
            used = [where for source in places.values() for where in source]
            if len({*used}) == len(used) and places not in found:
                found.append(places)
    if not found:
        sizes = ", ".join(f"{where} {tuple(p.shape)}" for where, p in matrices.items())
        raise ValueError(
            "layers must be given, or cannot be: W^Q, W^K and W^V of h·d_k = d_model rows are not "
            f"among {sizes or 'its parameters, which are no matrices'}. Shared or narrower keys, "
            f"and an h·d_k other than d_model, are not compared."
        )
    return found


def heads_of(module: nn.Module, places: Places) -> tuple[int | None, bool]:
    """h, as many layers as there are of one role or what an attribute says, and whether it must be.

    "h" alone may be a height.
    """
    if (several := max(map(len, places.values()))) > 1:
        return several, True
    named = ((getattr(part, name, None), name) for name in HEADS for part in module.modules())
    found = (one for one in named if isinstance(one[0], int) and not isinstance(one[0], bool))
    h, name = next(found, (None, "h"))
    return h, name != "h"


def draw(weights: Mapping[str, Tensor], d_model: int, seed: int = 0) -> None:
    """Matrices of ordinary size, and otherwise normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    for p in weights.values():
        size = d_model**-0.5 if sum(n > 1 for n in p.shape) > 1 else 1.0
        p.copy_(torch.empty(p.shape, dtype=torch.float64).normal_(std=size, generator=generator))


def parameters_of(module: nn.Module, several: Sequence[Places]) -> dict[str, nn.Parameter]:
    """The weights at these places, and their biases."""
    where = {s: role for places in several for role, of in places.items() for s in of}
    letters, matrices = {*"".join(where.values())}, matrices_of(module)

    def is_own(name: str) -> bool:
        bias = place(name) not in matrices and "b" in name
        return place(name) in where or (bias and _letters(_said(name)) in letters)

    return {name: p for name, p in module.named_parameters() if is_own(name)}


def readings(module: nn.Module, places: Places, h: int, d_model: int) -> Iterator[Reading]:
    """Rows as PyTorch's, rows head by head, and then all other orders."""
    matrices = matrices_of(module)
    own = parameters_of(module, [places])
    biases = {
        place(name): p.flatten() for name, p in own.items() if p is not matrices.get(place(name))
    }
    fixed = {name for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    open_ones = [matrices[s] for several in places.values() for s in several if s not in fixed]
    loose = any(p.ndim > 2 or p.shape[0] == p.shape[1] for p in open_ones)  # either way may fit
    for turned in (False, True) if loose else (False,):
        parts = {}
        for role, several in places.items():
            rows = [_rows(matrices[s], d_model, role, turned and s not in fixed) for s in several]
            weight = torch.cat(rows, dim=1 if role == "w_o" else 0)
            column = _bias(several, role, biases, len(weight))
            parts[role] = torch.cat((weight, column[:, None].to(weight)), dim=1).double()
        sizes = {role: (len(_letters(role)) * d_model, d_model + 1) for role in parts}
        if sizes == {role: tuple(part.shape) for role, part in parts.items()}:
            yield from _orders(places, parts, h, d_model)


def _orders(places: Places, parts: dict[str, Tensor], h: int, d_model: int) -> Iterator[Reading]:
    block = next((role for role in parts if len(_letters(role)) > 1), "")
    letters, last = _letters(block), parts.get("w_o")
    for axes, order in product(AXES if block else (AXES[0], AXES[3]), permutations(letters)):
        heads_last = axes.index("d_k") < axes.index("h")
        out, said = {}, []
        for role in parts.keys() - {"w_o"}:
            own, names = (axes, order) if role == block else (AXES[3 * heads_last], _letters(role))
            several = _laid(parts[role], own.split(), len(names), h)
            out |= dict(zip(names, several, strict=True))
        if block and (axes, order) != (AXES[0], (*letters,)):
            laid = axes.replace("n", str(len(letters))).replace(" ", ", ")
            said = [f"`{block}` is read as ({laid}) of {', '.join(order)}"]
        elif heads_last:
            said = ["rows are read as (d_k, h)"]
        none = torch.eye(d_model, d_model + 1, dtype=torch.float64)  # a missing W^O changes nothing
        yield Reading(places, h, "; ".join(said), out | {"o": none if last is None else last})
        if last is not None:
            columns = _laid(last[:, :-1].T, AXES[3].split(), 1, h)[0].T
            turned = torch.cat((columns, last[:, -1:]), dim=1)
            said = [*said, "W^O reads (d_k, h)"]
            yield Reading(places, h, "; ".join(said), out | {"o": turned})


def _laid(rows: Tensor, axes: Sequence[str], n: int, h: int) -> Tensor:
    """Rows in the order of `axes` become (n, h·d_k)."""
    sizes = {"n": n, "h": h, "d_k": len(rows) // (n * h)}
    laid = rows.unflatten(0, [sizes[axis] for axis in axes])
    return laid.permute(*(axes.index(axis) for axis in ("n", "h", "d_k")), 3).flatten(1, 2)


def _rows(p: Tensor, d_model: int, role: str, turned: bool) -> Tensor:
    """A weight as (out, in), of whose axes one is d_model wide."""
    p = p.reshape([n for n in p.shape if n > 1])
    wide = [i for i, n in enumerate(p.shape) if n == d_model] or [0]
    if role == "w_o":
        return p.movedim(wide[-1] if turned else wide[0], 0).flatten(1)
    return p.movedim(wide[0] if turned else wide[-1], -1).flatten(0, -2)


def _bias(several: Sequence[str], role: str, biases: Mapping[str, Tensor], n_rows: int) -> Tensor:
    """That of the same place, or those whose own names say q, k, v or o; else zeros."""
    found = [biases[s] for s in several if s in biases]
    if not found:
        n = n_rows // len(_letters(role))
        named = {_letters(_said(where)): b for where, b in biases.items() if len(b) == n}
        found = [named.get(letter, torch.zeros(n)) for letter in _letters(role)]
    column = torch.cat(found)
    return column if len(column) == n_rows else torch.zeros(n_rows)


def _guessed(matrices: Mapping[str, Tensor], d_model: int) -> Iterator[Places]:
    """By name and shape, and then in any order."""
    heads: dict[tuple[str, int], list[str]] = {}
    whole: dict[str, list[tuple[str, ...]]] = {}
    for where, p in matrices.items():
        n, rest = divmod(p.numel(), d_model**2)
        role = _said(where)
        if d_model in p.shape and not rest and n in (1, 2, 3):
            if n != len(_letters(role)):
                role = ("", "w_kv", "w_qkv")[n - 1]
            whole.setdefault(role, []).append((where,))
        elif d_model in p.shape and not n and role:
            heads.setdefault((role, p.numel()), []).append(where)
    for (role, size), several in heads.items():
        if len(several) * size == len(_letters(role)) * d_model**2:
            whole.setdefault(role, []).append((*several,))
    square = [source for role in ("w_q", "w_k", "w_v", "w_o", "") for source in whole.get(role, [])]
    square.sort(key=lambda source: [*matrices].index(source[0]))
    last = [*whole.get("w_o", []), *whole.get("", []), None]
    for roles in SETS:
        for own in product(*(whole.get(role, []) for role in roles)):
            for o in last:
                yield dict(zip(roles, own, strict=True)) | ({} if o is None else {"w_o": o})
    for roles in (("w_q", "w_k", "w_v", "w_o"), ("w_q", "w_k", "w_v")):
        for order in permutations(square, len(roles)):
            yield dict(zip(roles, order, strict=True))
    for fused, other in (("w_kv", "w_q"), ("w_qk", "w_v")):
        for source, (one, o) in product(whole.get("w_kv", []), permutations(square, 2)):
            yield {fused: source, other: one, "w_o": o}


def _letters(role: str) -> str:
    return role.removeprefix("w_")


def _said(where: str) -> str:
    for part in reversed(where.lower().split(".")):
        words = {re.sub("^to(?=.)", "", word) for word in re.findall("[a-z]+", part)}
        if role := next((role for role, said in WORDS.items() if words & said), ""):
            return role
    return ""
