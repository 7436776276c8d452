"""Published models side by side: what a token sees, what is kept, what is computed."""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import ipywidgets as widgets

from mha_course.base.numerals import counted, number
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Scene, Table, Tiles
from mha_lesson import text

DISTANCES = (0, *(2**k for k in range(20)))  # tokens back: 0, 1, 2 … 524,288
LENGTHS = (1, 100, 1000, 2**10, 2**12, 2**13, 10_000, 2**15, 100_000, 2**17, 10**6, 2**20)
BYTES = 2  # of a number, everywhere: bfloat16
IN_ROW = 12  # layers side by side
ORDINALS = tuple((f"{n} kind", i) for i, n in enumerate(("first", "second", "third", "fourth")))
SAYS = {"A": "all", "C": "chosen", "R": "merged", "S": "a state", "–": "none"}
WORK = (
    "cache a token",
    "cache, in all",
    "operations, prefill",
    "operations, decode",
    "operations a byte",
)
POLES = ("Llama 2 7B", "DeepSeek-V4 Flash", "Gemma 3 4B")  # beside which a model is seen


@cache
def published() -> dict[str, dict[str, Any]]:
    """The models of data/models.json, by name, in the order in which they came out."""
    models = json.loads(text.data_file("models.json").read_text("utf-8"))["models"]
    return {model["name"]: model for model in models}


def models() -> Explorer:
    """Sliders `model`, `length` and `layer` over what attention keeps, computes and sees."""
    return Explorer(
        {
            "model": widgets.Dropdown(options=[*published()]),
            "length": widgets.SelectionSlider(options=LENGTHS),
            "layer": widgets.SelectionSlider(options=ORDINALS),
        },
        scene,
        reach={"layer": lambda model, **_: ORDINALS[: len(published()[model]["kinds"])]},
        headline="What must a model keep to write on? Three of them at one length.",
    )


def rows_seen(kind: dict[str, Any], length: int) -> tuple[int, int]:
    """How many rows the newest of `length` tokens attends to: near ones, and far ones."""
    near = (length - 1) % kind["near"] + 1 if kind["chunk"] else min(length, kind["near"])
    far = length // kind["far"] if kind["far"] else 0
    return near, min(far, kind["most"] or far)


def numbers_kept(kind: dict[str, Any], length: int) -> int:
    """Numbers in a layer's cache after `length` tokens."""
    far = length // kind["far"] if kind["far"] else 0
    return kind["kept_near"] * min(length, kind["near"]) + kind["kept_far"] * far + kind["state"]


def growth(kind: dict[str, Any], length: int) -> float:
    """Numbers that one more token adds; rows of several tokens count by their share."""
    far = kind["kept_far"] / kind["far"] if kind["far"] else 0
    return kind["kept_near"] * (length < kind["near"]) + far


def operations(kind: dict[str, Any], length: int, phase: str) -> int:
    """Operations of a layer for the newest token; a multiply-add counts as two."""
    far = length // kind["far"] if kind["far"] else 0
    return 2 * (kind["project"] + kind[phase] * sum(rows_seen(kind, length)) + kind["scan"] * far)


def scene(model: str = "Gemma 3 4B", length: int = 2**13, layer: int = 0) -> Scene:
    """The model beside two others, its layers by kind, and what the newest token sees in one."""
    about = published()[model]
    pattern, kinds = about["pattern"], about["kinds"]
    letters = sorted(kinds, key=pattern.index)
    letter = letters[min(layer, len(letters) - 1)]
    chosen = kinds[letter]
    beside = [model, *(name for name in POLES if name != model)][:3]
    kept, *_ = amounts = [_amounts(published()[name], length) for name in beside]
    near, far = rows_seen(chosen, length)
    work = Table(
        [list(row) for row in zip(WORK, *amounts, strict=True)],
        header=[f"after {length:,}", *beside],
        title="all layers: cache, operations a token",
    )
    sees = Table(
        [
            [
                f"{one}: {pattern.count(one)} × {kinds[one]['name']}",
                _sees(kinds[one]),
                kinds[one]["places"].removesuffix(", turned back in values"),
                _bytes(numbers_kept(kinds[one], length)),
            ]
            for one in letters
        ],
        header=["layers", "a token sees", "places", "kept"],
        strong=[letters.index(letter)],
        title="its kinds of layers",
    )
    caption = (
        f"{model} ({about['published']}) after {counted(length, 'token')}: {kept[1]} of cache. In "
        f"layer {pattern.index(letter)} ({chosen['name']}) the newest token attends to "
        f"{counted(near + far, 'row')}."
    )
    return Scene(
        [
            [work],
            [_grid(pattern, letters, kinds), _row(chosen, length, letters.index(letter))],
            [sees],
        ],
        caption=caption,
        alt=f"What {', '.join(beside)} keep and compute, and the layers of the first. {caption}",
    )


def _amounts(about: dict[str, Any], length: int) -> list[str]:
    """What a model keeps and computes, in the order of `WORK`."""

    def total(per_layer: Callable[..., float], *more: Any) -> float:
        return sum(per_layer(about["kinds"][one], length, *more) for one in about["pattern"])

    kept, decode = total(numbers_kept), total(operations, "decode")
    return [
        _bytes(total(growth)),
        _bytes(kept),
        number(total(operations, "prefill")),
        number(decode),
        number(decode / max(kept * BYTES, 1)),
    ]


def _bytes(numbers: float) -> str:
    """ "289 MB"."""
    return re.sub("[kMGT]?$", r" \g<0>B", number(numbers * BYTES), count=1)


def _sees(kind: dict[str, Any]) -> str:
    parts = []
    if kind["near"]:
        parts.append(f"{'its piece of' if kind['chunk'] else 'the last'} {kind['near']:,}")
    if kind["far"]:
        rows = "all" if kind["far"] == 1 else f"a row for every {kind['far']}"
        parts.append(f"{kind['most']:,} chosen of {rows}" if kind["most"] else rows)
    return ", ".join(parts) or "a state"


def _grid(pattern: str, letters: list[str], kinds: dict[str, Any]) -> Tiles:
    """Layer by layer, a dozen in a row."""
    cells = [*pattern, *[None] * (-len(pattern) % IN_ROW)]
    names = [one and f"layer {i}, {kinds[one]['name']}" for i, one in enumerate(cells)]
    starts = range(0, len(cells), IN_ROW)
    rows, says = ([some[i : i + IN_ROW] for i in starts] for some in (cells, names))
    return Tiles(
        rows,
        heads=[[-1 if cell is None else letters.index(cell) for cell in row] for row in rows],
        says=says,
        rows=[f"{i}" for i in starts],
        row_name="layers from",
        title="layer by layer",
    )


def _row(kind: dict[str, Any], length: int, colour: int) -> Tiles:
    """What the newest token sees, by the distance back, which doubles from cell to cell."""
    near, _ = rows_seen(kind, length)
    far = "–" if not kind["far"] else "C" if kind["most"] else "A" if kind["far"] == 1 else "R"
    far = "S" if kind["state"] else far
    labels = [None if at >= length else "A" if at < near else far for at in DISTANCES]
    used = [letter for letter in SAYS if letter in labels]
    return Tiles(
        [labels],
        heads=[[-1 if label in (None, "–") else colour for label in labels]],
        says=[[label and SAYS[label] for label in labels]],
        columns=[number(n) for n in DISTANCES],
        column_name="tokens back, from",
        title="the newest sees: " + ", ".join(f"{x} {SAYS[x]}" for x in used),
    )
