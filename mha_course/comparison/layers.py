"""Where the layers of any attention module are, and in which ways their rows may be read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_course.comparison import findings
from mha_lesson.refusals import say

HEADS = "n_heads num_heads n_head num_head nhead nheads head_num heads head num_attention_heads h"
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
BIAS = re.compile(r"(^|[._])b(ias)?(_[A-Za-z]+)?$")  # one of several axes: (h, d_k)
MOST = 300  # ways to give roles
Weights = Mapping[str, Tensor]  # by the names of their layers
Roles = dict[str, tuple[str, ...]]  # "w_q" …: the name of its layer, or of those of its heads


class Reading(NamedTuple):
    """One way to read the weights."""

    roles: Roles
    h: int
    unusual: str  # what is unusual about it, or ""
    rows: dict[str, Tensor]  # "q", "k", "v" and "o": weight (out, in), its bias as last column
    mistakes: Sequence[str] = ()  # that show in the layers alone


def layer(parameter: str) -> str:
    """A parameter's name without what says that it is a weight or a bias."""
    return re.sub(r"[._]?(weights?|bias)$", "", parameter)


def is_matrix(p: Tensor) -> bool:
    """Axes of length 1, as of convolutions, do not count."""
    return sum(n > 1 for n in p.shape) > 1


def matrices_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Layer → its weight; one that has several roles stands under the names of all of them."""
    out: dict[str, nn.Parameter] = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        same = [other for other, q in out.items() if q is p]
        new = not same or _role(name) not in ("", *map(_role, same))
        if new and is_matrix(p) and not BIAS.search(name):
            out = {n: q for n, q in out.items() if n not in same or _role(n)} | {layer(name): p}
    return out


def widths_of(matrices: Iterable[Tensor]) -> list[int]:
    """What d_model may be: widths that most of them have first, and of several the largest."""
    shapes = [p.shape for p in matrices]
    widths = {n for shape in shapes for n in shape if n > 1}
    return sorted(widths, key=lambda n: (sum(n in shape for shape in shapes), n), reverse=True)


def chosen(matrices: Weights, layers: Mapping[str, str | Sequence[str]]) -> Roles:
    """What the caller says of the layers."""
    roles = {w: (names,) if isinstance(names, str) else (*names,) for w, names in layers.items()}
    unknown = {name for names in roles.values() for name in names} - {*matrices}
    if unknown or {*roles} - {"w_o"} not in map(set, SETS):
        sets, to = " or ".join(" and ".join(some) for some in SETS), ", ".join(matrices)
        raise ValueError(
            f"layers must map {sets}, and mostly w_o, to some of {to}; got {say(roles)}."
        )
    return roles


def options(matrices: Weights, live: Weights, d_model: int) -> list[Roles]:
    """Ways to give roles, likely ones first: with a W^O, and of layers that have an effect."""
    ways = _guessed(live, d_model)
    ways += [roles for roles in _guessed(matrices, d_model) if roles not in ways]
    if not ways:
        sizes = ", ".join(f"{name} {tuple(p.shape)}" for name, p in matrices.items())
        sizes = sizes or "its parameters, which are not matrices"
        raise ValueError(findings.WORDS["no_layers"].format(sizes))
    return sorted(ways, key=lambda roles: "w_o" not in roles)


def heads_of(module: nn.Module, roles: Roles) -> tuple[int | None, bool]:
    """h, by layers or an attribute; and whether it must be that: "h" may be a height."""
    if (n := max(map(len, roles.values()))) > 1:
        return n, True
    for name in HEADS.split():
        for part in module.modules():
            if type(h := getattr(part, name, None)) is int:
                return h, name != "h"
    return None, False


def draw(weights: Weights, d_model: int, seed: int = 0) -> None:
    """Matrices of ordinary size, and otherwise normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    for p in weights.values():
        std = d_model**-0.5 if is_matrix(p) else 1.0
        p.copy_(torch.empty(p.shape, dtype=torch.float64).normal_(std=std, generator=generator))


def parameters_of(module: nn.Module, matrices: Weights, ways: Sequence[Roles]) -> Weights:
    """The weights of these layers, and their biases."""
    layers = {name for roles in ways for names in roles.values() for name in names}
    letters = {*"".join(role for roles in ways for role in roles)}

    every = dict(module.named_parameters(remove_duplicate=False))
    biases = {n for n in every if layer(n) not in matrices and "b" in n}
    layers |= {layer(n) for n in biases if _letters(_role(n)) in letters}
    return {n: p for n, p in every.items() if layer(n) in layers}


def readings(
    module: nn.Module, matrices: Weights, roles: Roles, h: int, d_model: int
) -> Iterator[Reading]:
    """Rows as PyTorch's, rows head by head, and then all other orders."""
    own = parameters_of(module, matrices, [roles])
    biases = {layer(n): p.flatten() for n, p in own.items() if p is not matrices.get(layer(n))}
    linear = {name for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    others = [matrices[s] for names in roles.values() for s in names if s not in linear]
    small = [role for role, names in roles.items() if _small(matrices[names[0]], d_model)]
    used = [id(matrices[name]) for names in roles.values() for name in names]
    mistakes = ["no_w_o"] * ("w_o" not in roles) + ["one_projection_for_all_heads"] * bool(small)
    mistakes += ["layers_tied"] * (len({*used}) < len(used))
    either = any(p.ndim > 2 or p.shape[0] == p.shape[1] for p in others)  # way round may fit
    for turned in (False, True) if either else (False,):
        rows = {}
        for role, names in roles.items():
            parts = [(matrices[name], turned and name not in linear) for name in names]
            if role in small:  # each head's
                parts = [(torch.block_diag(*[p] * h), False) for p, _ in parts[:1]]
            several = [_rows(p, d_model, role, other_way) for p, other_way in parts]
            weight = torch.cat(several, dim=1 if role == "w_o" else 0)
            bias = _bias(names, role, biases, len(weight))
            rows[role] = torch.cat((weight, bias[:, None].to(weight)), dim=1).double()
        if all(p.shape == (len(_letters(r)) * d_model, d_model + 1) for r, p in rows.items()):
            for reading in _orders(roles, rows, h, d_model):
                yield reading._replace(mistakes=mistakes)


def _orders(roles: Roles, rows: dict[str, Tensor], h: int, d_model: int) -> Iterator[Reading]:
    fused = next((role for role in rows if len(_letters(role)) > 1), "")
    letters, none = _letters(fused), torch.eye(d_model, d_model + 1, dtype=torch.float64)
    last = rows.get("w_o", none)  # a missing W^O changes nothing
    for axes, order in product(AXES if fused else (AXES[0], AXES[3]), permutations(letters)):
        heads_last = axes.index("d_k") < axes.index("h")
        out, unusual = {}, []
        for role in rows.keys() - {"w_o"}:
            own, names = (axes, order) if role == fused else (AXES[3 * heads_last], _letters(role))
            out |= dict(zip(names, _in_order(rows[role], own, len(names), h), strict=True))
        if fused and (axes, order) != (AXES[0], (*letters,)):
            shape = axes.replace("n", str(len(letters))).replace(" ", ", ")
            unusual = [f"`{fused}` is read as ({shape}) of {', '.join(order)}"]
        elif heads_last:
            unusual = ["rows are read as (d_k, h)"]
        yield Reading(roles, h, "; ".join(unusual), out | {"o": last})
        if "w_o" in rows:
            columns = _in_order(last[:, :-1].T, AXES[3], 1, h)[0].T
            turned = torch.cat((columns, last[:, -1:]), dim=1)
            unusual = [*unusual, "W^O reads (d_k, h)"]
            yield Reading(roles, h, "; ".join(unusual), out | {"o": turned})


def _small(p: Tensor, d_model: int) -> bool:
    """Whether it may be one head's square, which serves all heads."""
    return p.shape == (len(p), len(p)) and len(p) < d_model and d_model % len(p) == 0


def _in_order(rows: Tensor, axes: str, n: int, h: int) -> Tensor:
    """Rows in the order of `axes` become (n, h·d_k)."""
    sizes, order = {"n": n, "h": h, "d_k": len(rows) // (n * h)}, axes.split()
    split = rows.unflatten(0, [sizes[axis] for axis in order])
    return split.permute(*map(order.index, sizes), 3).flatten(1, 2)


def _rows(p: Tensor, d_model: int, role: str, turned: bool) -> Tensor:
    """A weight as (out, in), of whose axes one is d_model wide."""
    p = p.squeeze()
    wide = [i for i, n in enumerate(p.shape) if n == d_model] or [0]
    if role == "w_o":
        return p.movedim(wide[-1] if turned else wide[0], 0).flatten(1)
    return p.movedim(wide[0] if turned else wide[-1], -1).flatten(0, -2)


def _bias(names: Sequence[str], role: str, biases: Weights, n_rows: int) -> Tensor:
    """That of the same layers, or those whose own names say q, k, v or o; else zeros."""
    own = [biases[name] for name in names if name in biases]
    if not own:
        n = n_rows // len(_letters(role))
        named = {_letters(_role(name)): b for name, b in biases.items() if len(b) == n}
        own = [named.get(letter, torch.zeros(n)) for letter in _letters(role)]
    bias = torch.cat(own)
    return bias.repeat(n_rows // len(bias)) if n_rows % len(bias) == 0 else torch.zeros(n_rows)


def _guessed(matrices: Weights, d_model: int) -> list[Roles]:
    """By shape, in any order; those first whose names say so."""
    heads = dict[tuple[str, int], list[str]]()
    folds = dict[tuple[str, ...], int]()  # layers → how many of d_model × d_model they are
    for name, p in matrices.items():
        role, (n, rest) = _role(name), divmod(p.numel(), d_model**2)
        if d_model in p.shape and not rest and n in (1, 2, 3):
            folds[name,] = n
        elif d_model in p.shape and not n and role:
            heads.setdefault((role, p.numel()), []).append(name)
        elif role in ("w_q", "w_k", "w_v") and _small(p, d_model):
            folds[name,] = 1
    for (role, size), names in heads.items():
        if len(names) * size == len(_letters(role)) * d_model**2:
            folds[*names,] = len(_letters(role))
    ways = list[Roles]()
    for roles in (with_o for some in SETS for with_o in ((*some, "w_o"), some)):
        fit = [[names for names, n in folds.items() if n == len(_letters(w))] for w in roles]
        for role, some in zip(roles, fit, strict=True):
            some.sort(key=lambda names, role=role: _role(names[0]) != role)
        each = islice(product(*fit), 20 * MOST)
        ways += [dict(zip(roles, own, strict=True)) for own in each if len({*own}) == len(own)]
    ways.sort(key=lambda way: sum(_role(names[0]) != role for role, names in way.items()))
    return ways[:MOST]


def _letters(role: str) -> str:
    return role.removeprefix("w_")


@cache
def _role(name: str) -> str:
    """What a layer's or parameter's name says that it is; "" where it says nothing."""
    for part in reversed(name.lower().split(".")):
        words = {re.sub("^to(?=.)", "", word) for word in re.findall("[a-z]+", part)}
        if role := next((role for role, own in WORDS.items() if words & own), ""):
            return role
    return ""
