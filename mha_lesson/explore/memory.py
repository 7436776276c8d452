"""What view, permute and contiguous do: the storage as a strip, the tensor as it is seen."""

from string import ascii_lowercase

import ipywidgets as widgets
import torch
from torch import Tensor

from mha_lesson.live import Explorer
from mha_lesson.panels import Panel, Scene, Table, Tiles

STEPS = ("linear output", "view", "permute", "contiguous", "merged")
LARGEST = 6  # of T, h and d_k: more cells than that are hard to read
STRIP = 24  # cells in a row of the strip


def memory() -> Explorer:
    """Sliders `T`, `h`, `d_k` and `step` over the way of one sequence into heads and back."""
    return Explorer(
        {
            "T": widgets.IntSlider(value=3, min=1, max=LARGEST, description="T"),
            "h": widgets.IntSlider(value=2, min=1, max=4, description="h"),
            "d_k": widgets.IntSlider(value=3, min=1, max=4, description="d_k"),
            "step": widgets.SelectionSlider(options=STEPS, value="permute", description="step"),
        },
        scene,
    )


def scene(T: int = 3, h: int = 2, d_k: int = 3, step: str = "permute") -> Scene:
    """The strip, the tensor with shape and strides, and what the shortcut makes of it.

    A cell is named by its token (a letter) and its place in the token's row; its colour is the
    head that the place belongs to. Everything is read off a real tensor.
    """
    for name, value in (("T", T), ("h", h), ("d_k", d_k)):
        if not (isinstance(value, int) and 1 <= value <= LARGEST):
            raise ValueError(f"{name} must be a whole number from 1 to {LARGEST}; got {value!r}.")
    if step not in STEPS:
        raise ValueError(f"step must be one of {', '.join(STEPS)}; got {step!r}.")
    right, wrong, shortcut = _tensors(T, h, d_k, step)
    faulty = right != wrong if wrong is not None else torch.zeros_like(right, dtype=torch.bool)

    stored = torch.as_strided(right, (right.numel(),), (1,), 0)
    rows = [stored[i : i + STRIP] for i in range(0, len(stored), STRIP)]
    strip = torch.full((len(rows), min(STRIP, len(stored))), -1)
    for i, row in enumerate(rows):
        strip[i, : len(row)] = row
    pictures: list[Panel] = [_tiles(right, h, d_k, f"the tensor after: {step}")]
    if wrong is not None:
        pictures.append(_tiles(wrong, h, d_k, f"the shortcut: {shortcut}", faulty))
    return Scene(
        [
            [
                _tiles(strip, h, d_k, "storage: one strip of memory", rows=STRIP * len(rows)),
            ],
            pictures,
            [
                Table(
                    [
                        [step, *_rule(right)],
                        *([[shortcut, *_rule(wrong)]] if wrong is not None else []),
                    ],
                    ("", "shape", "strides", "contiguous"),
                )
            ],
        ],
        caption=_caption(step, right, wrong, faulty),
    )


def _tensors(T: int, h: int, d_k: int, step: str) -> tuple[Tensor, Tensor | None, str]:
    """The tensor after a step, the tempting wrong one beside it, and how that is written."""
    x = torch.arange(T * h * d_k).view(T, h * d_k)
    cut = x.view(T, h, d_k)
    heads = cut.permute(1, 0, 2)
    at = {"linear output": x, "view": cut, "permute": heads, "contiguous": heads.contiguous()}
    if step == "linear output":
        return x, None, ""
    if step == "merged":
        return (
            heads.permute(1, 0, 2).reshape(T, h * d_k).clone(),
            heads.contiguous().view(T, h * d_k),
            "view(T, h·d_k), no permute",
        )
    if step == "view":
        return cut, None, ""
    return at[step], x.view(h, T, d_k), "view(h, T, d_k), no permute"


def _tiles(
    x: Tensor, h: int, d_k: int, title: str, faulty: Tensor | None = None, rows: int = 0
) -> Tiles:
    """Any tensor as rows of its last axis; the storage is a tensor of one or two axes, too."""
    ids = x.reshape(-1, x.shape[-1])
    width = h * d_k

    def table(cell):  # noqa: ANN001, ANN202
        return [[cell(i) if i >= 0 else None for i in row] for row in ids.tolist()]

    names = None
    if rows:
        names = [f"{STRIP * i}" for i in range(len(ids))] if len(ids) > 1 else None
    elif x.ndim == 3:
        outer = "head" if x.shape[0] == h and title.split(": ")[-1] != "view" else "token"
        inner = "row" if outer == "head" else "head"
        names = [f"{outer} {i}, {inner} {j}" for i in range(x.shape[0]) for j in range(x.shape[1])]
    else:
        names = [f"row {i}" for i in range(len(ids))]
    return Tiles(
        table(lambda i: f"{ascii_lowercase[i // width]}{i % width}"),
        heads=table(lambda i: i % width // d_k),
        links=table(lambda i: i),
        says=table(
            lambda i: f"token {ascii_lowercase[i // width]}, place {i % width}, "
            f"head {i % width // d_k}"
        ),
        rows=names,
        break_rows=x.shape[1] if x.ndim == 3 else 0,
        break_columns=0 if rows or x.ndim == 3 else d_k,
        wrong=None if faulty is None else faulty.reshape(ids.shape).tolist(),
        title=title,
    )


def _rule(x: Tensor) -> list[str]:
    return [str(tuple(x.shape)), str(x.stride()), "yes" if x.is_contiguous() else "no"]


def _caption(step: str, right: Tensor, wrong: Tensor | None, faulty: Tensor) -> str:
    rule = f"shape {tuple(right.shape)}, strides {right.stride()}"
    what = {
        "linear output": f"As the linear layer writes it: {rule}; each token's heads side by side.",
        "view": f"view cuts each row into heads: {rule}. Nothing has moved on the strip.",
        "permute": f"permute puts the head in front: {rule}. Still nothing has moved.",
        "contiguous": f"contiguous writes a new strip in the order of the axes: {rule}.",
        "merged": f"permute back and merge: {rule}, as it came.",
    }[step]
    if wrong is None:
        return what
    count = int(faulty.sum())
    if not count:
        return f"{what} The shortcut gives the same here."
    return f"{what} The shortcut puts {count} of {faulty.numel()} numbers in the wrong place."
