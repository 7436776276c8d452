"""Where the layers of any attention module are, and in which ways their rows may be read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_course.comparison import findings
from mha_lesson.refusals import say

HEADS = (  # what h is called
    *("n_heads", "num_heads", "n_head", "num_head", "nhead", "nheads", "head_num", "heads", "head"),
    *("num_attention_heads", "h"),
)
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
Roles = dict[str, tuple[str, ...]]  # "w_q" …: the name of its layer, or of those of its heads


class Reading(NamedTuple):
    """One way to read the weights."""

    roles: Roles
    h: int
    unusual: str  # what is unusual about it, or ""
    rows: dict[str, Tensor]  # "q", "k", "v" and "o": weight (out, in), its bias as last column
    mistakes: tuple[str, ...] = ()  # that show in the layers alone


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
        if (
            is_matrix(p)
            and not BIAS.search(name)
            and (not same or _role(name) not in ("", *map(_role, same)))
        ):
            out = {n: q for n, q in out.items() if n not in same or _role(n)} | {layer(name): p}
    return out


def widths_of(matrices: Iterable[Tensor]) -> list[int]:
    """What d_model may be: widths that most of them have first, and of several the largest."""
    shapes = [p.shape for p in matrices]
    widths = {n for shape in shapes for n in shape if n > 1}
    return sorted(widths, key=lambda n: (sum(n in shape for shape in shapes), n), reverse=True)


def chosen(matrices: Mapping[str, Tensor], layers: Mapping[str, str | Sequence[str]]) -> Roles:
    """What the caller says of the layers."""
    roles = {
        role: (names,) if isinstance(names, str) else (*names,) for role, names in layers.items()
    }
    unknown = {name for names in roles.values() for name in names} - {*matrices}
    if unknown or {*roles} - {"w_o"} not in map(set, SETS):
        sets = " or ".join(" and ".join(some) for some in SETS)
        raise ValueError(
            f"layers must map {sets}, and mostly w_o, to some of {', '.join(matrices)}; "
            f"got {say(roles)}."
        )
    return roles


def options(
    matrices: Mapping[str, Tensor], live: Mapping[str, Tensor], d_model: int
) -> list[Roles]:
    """Ways to give roles, likely ones first: with a W^O, and of layers that have an effect."""
    ways: list[Roles] = []
    for some in (live, matrices):
        for roles in islice(_guessed(some, d_model), MOST):
            used = [name for names in roles.values() for name in names]
            if len({*used}) == len(used) and roles not in ways:
                ways.append(roles)
    if not ways:
        sizes = ", ".join(f"{name} {tuple(p.shape)}" for name, p in matrices.items())
        sizes = sizes or "its parameters, which are not matrices"
        raise ValueError(findings.WORDS["no_layers"].format(sizes))
    return sorted(ways, key=lambda roles: "w_o" not in roles)


def heads_of(module: nn.Module, roles: Roles) -> tuple[int | None, bool]:
    """h, as many layers as there are of one role or what an attribute says, and whether it must be.

    "h" alone may be a height.
    """
    if (n := max(map(len, roles.values()))) > 1:
        return n, True
    for name in HEADS:
        for part in module.modules():
            if type(h := getattr(part, name, None)) is int:
                return h, name != "h"
    return None, False


def draw(weights: Mapping[str, Tensor], d_model: int, seed: int = 0) -> None:
    """Matrices of ordinary size, and otherwise normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    for p in weights.values():
        std = d_model**-0.5 if is_matrix(p) else 1.0
        p.copy_(torch.empty(p.shape, dtype=torch.float64).normal_(std=std, generator=generator))


def parameters_of(module: nn.Module, ways: Sequence[Roles]) -> dict[str, nn.Parameter]:
    """The weights of these layers, and their biases."""
    layers = {name for roles in ways for names in roles.values() for name in names}
    letters, matrices = {*"".join(role for roles in ways for role in roles)}, matrices_of(module)

    def is_own(name: str) -> bool:
        bias = layer(name) not in matrices and "b" in name
        return layer(name) in layers or (bias and _letters(_role(name)) in letters)

    every = module.named_parameters(remove_duplicate=False)
    return {name: p for name, p in every if is_own(name)}


def readings(module: nn.Module, roles: Roles, h: int, d_model: int) -> Iterator[Reading]:
    """Rows as PyTorch's, rows head by head, and then all other orders."""
    matrices = matrices_of(module)
    own = parameters_of(module, [roles])
    biases = {
        layer(name): p.flatten() for name, p in own.items() if p is not matrices.get(layer(name))
    }
    linear = {name for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    others = [matrices[s] for names in roles.values() for s in names if s not in linear]
    small = [role for role, names in roles.items() if _small(matrices[names[0]], d_model, h)]
    used = [id(matrices[name]) for names in roles.values() for name in names]
    mistakes = (
        *["no_w_o"] * ("w_o" not in roles),
        *["one_projection_for_all_heads"] * bool(small),
        *["layers_tied"] * (len({*used}) < len(used)),
    )
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
    letters, last = _letters(fused), rows.get("w_o")
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
        none = torch.eye(d_model, d_model + 1, dtype=torch.float64)  # a missing W^O changes nothing
        yield Reading(roles, h, "; ".join(unusual), out | {"o": none if last is None else last})
        if last is not None:
            columns = _in_order(last[:, :-1].T, AXES[3], 1, h)[0].T
            turned = torch.cat((columns, last[:, -1:]), dim=1)
            unusual = [*unusual, "W^O reads (d_k, h)"]
            yield Reading(roles, h, "; ".join(unusual), out | {"o": turned})


def _small(p: Tensor, d_model: int, h: int | None = None) -> bool:
    """Whether it may be one head's square, which serves all heads."""
    n = len(p)
    return (
        p.shape == (n, n) and n < d_model and (d_model % n == 0 if h is None else n * h == d_model)
    )


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


def _bias(names: Sequence[str], role: str, biases: Mapping[str, Tensor], n_rows: int) -> Tensor:
    """That of the same layers, or those whose own names say q, k, v or o; else zeros."""
    own = [biases[name] for name in names if name in biases]
    if not own:
        n = n_rows // len(_letters(role))
        named = {_letters(_role(name)): b for name, b in biases.items() if len(b) == n}
        own = [named.get(letter, torch.zeros(n)) for letter in _letters(role)]
    bias = torch.cat(own)
    return bias.repeat(n_rows // len(bias)) if n_rows % len(bias) == 0 else torch.zeros(n_rows)


def _guessed(matrices: Mapping[str, Tensor], d_model: int) -> Iterator[Roles]:
    """By name and shape, and then in any order."""
    heads: dict[tuple[str, int], list[str]] = {}
    whole: dict[str, list[tuple[str, ...]]] = {}
    for name, p in matrices.items():
        n, rest = divmod(p.numel(), d_model**2)
        role = _role(name)
        if d_model in p.shape and not rest and n in (1, 2, 3):
            if n != len(_letters(role)):
                role = ("", "w_kv", "w_qkv")[n - 1]
            whole.setdefault(role, []).append((name,))
        elif d_model in p.shape and not n and role:
            heads.setdefault((role, p.numel()), []).append(name)
        elif role in ("w_q", "w_k", "w_v") and _small(p, d_model):
            whole.setdefault(role, []).append((name,))
    for (role, size), names in heads.items():
        if len(names) * size == len(_letters(role)) * d_model**2:
            whole.setdefault(role, []).append((*names,))
    square = [names for role in ("w_q", "w_k", "w_v", "w_o", "") for names in whole.get(role, [])]
    square.sort(key=lambda names: [*matrices].index(names[0]))
    last = [*whole.get("w_o", []), *whole.get("", []), None]
    for some in SETS:
        for own, o in product(product(*(whole.get(role, []) for role in some)), last):
            yield dict(zip(some, own, strict=True)) | ({} if o is None else {"w_o": o})
    for some in (("w_q", "w_k", "w_v", "w_o"), ("w_q", "w_k", "w_v")):
        for own in permutations(square, len(some)):
            yield dict(zip(some, own, strict=True))
    for fused, other in (("w_kv", "w_q"), ("w_qk", "w_v")):
        for own, (one, o) in product(whole.get("w_kv", []), permutations(square, 2)):
            yield {fused: own, other: one, "w_o": o}


def _letters(role: str) -> str:
    return role.removeprefix("w_")


def _role(name: str) -> str:
    """What a layer's or parameter's name says that it is; "" where it says nothing."""
    for part in reversed(name.lower().split(".")):
        words = {re.sub("^to(?=.)", "", word) for word in re.findall("[a-z]+", part)}
        if role := next((role for role, own in WORDS.items() if words & own), ""):
            return role
    return ""
