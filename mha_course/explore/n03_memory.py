"""What view, permute and contiguous do: the storage as a strip, the tensor as it is seen."""

from collections.abc import Callable
from itertools import pairwise, product
from string import ascii_lowercase
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Panel, Scene, Table, Tiles

CODE = {
    "linear output": "x",
    "view": "x.view(T, h, d_k)",
    "permute": ".permute(1, 0, 2)",
    "contiguous": ".contiguous()",
    "merged": ".permute(1, 0, 2).reshape(T, h*d_k)",
}
STEPS = tuple(CODE)
SHORTCUTS = {  # the tempting wrong line, at the steps that have one
    "permute": "x.view(h, T, d_k)",
    "contiguous": "x.view(h, T, d_k)",
    "merged": "heads.view(T, h*d_k)",
}
MOST = {"T": 4, "h": 3, "d_k": 4}  # more cells do not fit into a picture
STRIP = 24  # cells in a row of the strip, at most


def memory() -> Explorer:
    """Sliders `T`, `h`, `d_k` and `step` over the way of one sequence into heads and back."""
    return Explorer(
        {
            "T": widgets.IntSlider(min=1, max=MOST["T"]),
            "h": widgets.IntSlider(min=1, max=MOST["h"]),
            "d_k": widgets.IntSlider(min=1, max=MOST["d_k"]),
            "step": widgets.SelectionSlider(options=STEPS),
        },
        scene,
        headline="view and permute move nothing in memory. Nor does the shortcut, and it is wrong.",
    )


def scene(T: int = 3, h: int = 2, d_k: int = 3, step: str = "permute") -> Scene:
    """The strip, the tensor after `step`, the shortcut beside it, and a table of all steps.

    A cell is named by its token (a letter) and its column in X; its colour is the head that this
    column belongs to. Everything is read off real tensors.
    """
    x = right_way(T, h, d_k)
    now, before = x[step], x[STEPS[max(0, STEPS.index(step) - 1)]]
    wrong = wrong_way(x, step)
    copied = now.data_ptr() != before.data_ptr()

    strips = [(now, "storage: one strip of memory")]
    if copied:
        strips = [(before, "storage before this step"), (now, "storage after it: a copy")]
    wrapped = T * h * d_k > STRIP
    side_by_side = copied and wrapped and h * d_k * 2 <= STRIP
    most = STRIP // 2 if side_by_side else STRIP
    drawn = [
        _strip(t, h, d_k, title, most, path=[] if wrapped or i else _order(now, t), copied=i > 0)
        for i, (t, title) in enumerate(strips)
    ]
    rows: list[list[Panel]] = [[*drawn]] if side_by_side else [[strip] for strip in drawn]
    rows.append([_as_tiles(now, h, d_k, f"the tensor after: {step}")])
    if wrong is not None:
        rows[-1].append(_as_tiles(wrong, h, d_k, f"the shortcut: {SHORTCUTS[step]}", wrong != now))
    pointers = pairwise(tensor.data_ptr() for tensor in x.values())
    stored = ["", *("same" if a == b else "new" for a, b in pointers)]
    table = [[name, CODE[name], *_rule(x[name]), stored[i]] for i, name in enumerate(STEPS)]
    if wrong is not None:
        table.append(["shortcut", SHORTCUTS[step], *_rule(wrong), "same"])
    header = ["step", "code", "shape", "strides", "contiguous", "storage"]
    rows.append([Table(table, header, strong=[STEPS.index(step)])])
    return Scene(rows, caption=_caption(step, now, copied, wrong))


def right_way(T: int, h: int, d_k: int) -> dict[str, Tensor]:
    """The tensor after each step, for one sequence; each number is its place on the first strip."""
    x = torch.arange(T * h * d_k, device="cpu").view(T, h * d_k)
    cut = x.view(T, h, d_k)
    heads = cut.permute(1, 0, 2)
    laid_out = heads.contiguous()
    merged = laid_out.permute(1, 0, 2).reshape(T, h * d_k)
    return dict(zip(STEPS, (x, cut, heads, laid_out, merged), strict=True))


def wrong_way(x: dict[str, Tensor], step: str) -> Tensor | None:
    """What the shortcut makes: the same shape as the right way, without its permute."""
    if step not in SHORTCUTS:
        return None
    source = x["contiguous"] if step == "merged" else x["linear output"]
    return source.view(x[step].shape)


def _stored(x: Tensor) -> list[int]:
    return torch.as_strided(x, (x.numel(),), (1,), 0).tolist()


def _order(x: Tensor, storage: Tensor) -> list[int]:
    """The places on a strip where the numbers of x lie, in the order of x."""
    place_of = {number: place for place, number in enumerate(_stored(storage))}
    return [place_of[number] for number in x.flatten().tolist()]


def _strip(x: Tensor, h: int, d_k: int, title: str, most: int, **more: Any) -> Tiles:
    """The storage of x in rows of whole tokens."""
    stored = _stored(x)
    width = most // (h * d_k) * (h * d_k)
    rows: list[list[int | None]] = [[*stored[i : i + width]] for i in range(0, len(stored), width)]
    if len(rows) > 1:
        rows[-1] += [None] * (width - len(rows[-1]))
        more["rows"] = [str(r * width) for r in range(len(rows))]
    where = {i: f"place {place} of the strip" for place, i in enumerate(stored)}
    return _tiles(rows, where, h, d_k, title, **more)


def _as_tiles(x: Tensor, h: int, d_k: int, title: str, wrong: Tensor | None = None) -> Tiles:
    """x as its shape and strides arrange it: rows of its last axis, blocks of its first."""
    tokens = [f"token {ascii_lowercase[t]}" for t in range(MOST["T"])]
    heads = [f"head {i}" for i in range(MOST["h"])]
    if x.ndim == 2:
        names, breaks = tokens[: len(x)], {"break_columns": d_k}
    else:
        first, second = (tokens, heads) if title.endswith(": view") else (heads, tokens)
        names = [f"{a}, {b}" for a in first[: x.shape[0]] for b in second[: x.shape[1]]]
        breaks = {"break_rows": x.shape[1]}
    where = {int(x[index]): _address(x, index) for index in product(*map(range, x.shape))}
    faulty = None if wrong is None else wrong.flatten(0, -2)
    return _tiles(
        x.flatten(0, -2).tolist(), where, h, d_k, title, rows=names, wrong=faulty, **breaks
    )


def _address(x: Tensor, index: tuple[int, ...]) -> str:
    """How the strides lead to a cell: "[1, 0, 2]: 1·3 + 0·6 + 2·1 = place 5 of the strip"."""
    steps = " + ".join(f"{i}·{s}" for i, s in zip(index, x.stride(), strict=True))
    place = sum(i * s for i, s in zip(index, x.stride(), strict=True))
    return f"{[*index]}: {steps} = place {place} of the strip"


def _tiles(
    ids: list[list[int | None]], where: dict[int, str], h: int, d_k: int, title: str, **more: Any
) -> Tiles:
    """A cell for each number, which gives its label and head; `where` says how it is found."""

    def label(i: int) -> str:
        return f"{ascii_lowercase[i // (h * d_k)]}{i % (h * d_k)}"

    def head(i: int) -> int:
        return i % (h * d_k) // d_k

    def each(cell: Callable[[int], Any]) -> list[list[Any]]:
        return [[None if i is None else cell(i) for i in row] for row in ids]

    says = each(lambda i: f"{label(i)}, head {head(i)}; {where[i]}")
    return Tiles(each(label), heads=each(head), links=ids, says=says, title=title, **more)


def _rule(x: Tensor) -> list[str]:
    """Shape, strides and contiguity."""
    return [str(tuple(x.shape)), str(x.stride()), "yes" if x.is_contiguous() else "no"]


def _caption(step: str, now: Tensor, copied: bool, wrong: Tensor | None) -> str:
    rule = f"shape {tuple(now.shape)}, strides {now.stride()}"
    words = {
        "linear output": f"As the linear layer writes it, {rule}: each token's heads side by side.",
        "view": f"view cuts each row into heads, {rule}. Nothing moves on the strip.",
        "permute": f"permute puts the head first, {rule}. Nothing moves on the strip"
        + (
            ", which still is in the tensor's order."
            if now.is_contiguous()
            else ", but the tensor now has another order: view(-1), all in one row, is refused."
        ),
        "contiguous": f"contiguous writes a new strip in the tensor's order, {rule}."
        if copied
        else f"contiguous has nothing to do, {rule}: the strip is in the tensor's order.",
        "merged": f"permuted back and merged, {rule}: as it came"
        + (", on a new strip." if copied else ", without a copy."),
    }[step]
    if wrong is None:
        return words
    n = int((wrong != now).sum())
    if not n:
        return f"{words} With one head or one token the shortcut gives the same."
    return (
        f"{words} The shortcut has the same shape and raises no error, "
        f"but {n} of {now.numel()} numbers are in the wrong place."
    )
