"""Published models side by side: what a token sees, what is kept, what is computed."""

import json
from functools import cache
from typing import Any

import ipywidgets as widgets

from mha_course.base.numerals import counted, number
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Scene, Stack, Table, Tiles
from mha_lesson import text

LENGTHS = tuple(2**k for k in range(21))  # 1 … 1,048,576
BYTES = 2  # of a number, everywhere: bfloat16
IN_ROW = 12  # layers side by side
ORDINALS = tuple((f"{n} kind", i) for i, n in enumerate(("first", "second", "third", "fourth")))
SAYS = {
    "A": "all tokens",
    "C": "chosen rows",
    "R": "a row for several",
    "S": "what a state kept",
    "–": "nothing",
}


@cache
def published() -> dict[str, dict[str, Any]]:
    """The models of data/models.json, by name, in the order in which they came out."""
    models = json.loads(text.data_file("models.json").read_text("utf-8"))["models"]
    return {model["name"]: model for model in models}


def models() -> Explorer:
    """Sliders `model`, `length` and `layer` over what attention keeps, computes and sees."""
    names = list(published())
    return Explorer(
        {
            "model": widgets.SelectionSlider(options=names, value="Gemma 3 4B"),
            "length": widgets.SelectionSlider(options=LENGTHS, value=2**13),
            "layer": widgets.SelectionSlider(options=ORDINALS),
        },
        scene,
        reach={"layer": lambda model, **_: ORDINALS[: len(published()[model]["kinds"])]},
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
    """The layers by kind, what the newest token sees in the chosen kind, and what all cost."""
    about = published()[model]
    pattern, kinds = about["pattern"], about["kinds"]
    letters = sorted(kinds, key=pattern.index)
    letter = letters[min(layer, len(letters) - 1)]
    chosen = kinds[letter]

    def total(per_layer: Any) -> int:
        return sum(per_layer(kinds[one]) for one in pattern)

    kept = total(lambda kind: numbers_kept(kind, length)) * BYTES
    grows = total(lambda kind: growth(kind, length))
    phases = {
        phase: total(lambda kind, phase=phase: operations(kind, length, phase))
        for phase in ("prefill", "decode")
    }
    near, far = rows_seen(chosen, length)
    work = Table(
        [
            ["cache, for one more token", f"{number(grows * BYTES)}B"],
            ["cache, in all", f"{number(kept)}B"],
            ["operations a token, prefill", number(phases["prefill"])],
            ["operations a token, decode", number(phases["decode"])],
            ["operations for a byte of cache", number(phases["decode"] / max(kept, 1))],
        ],
        header=[f"all {len(pattern)} layers", f"at {length:,} tokens"],
        title=f"{model}, {about['published']}",
    )
    sees = Table(
        [
            [
                f"{pattern.count(one)} × {kinds[one]['name']}",
                _sees(kinds[one]),
                kinds[one]["places"],
                f"{number(numbers_kept(kinds[one], length) * BYTES)}B",
            ]
            for one in letters
        ],
        header=["layers", "a token sees", "places", "kept in each"],
        strong=[letters.index(letter)],
        title="its kinds of layers",
    )
    return Scene(
        [
            [
                Stack(
                    [
                        [_grid(pattern, letters, kinds)],
                        [_row(chosen, length, letters.index(letter))],
                    ],
                    wide=1.0,
                ),
                work,
            ],
            [sees],
        ],
        caption=f"{model} after {counted(length, 'token')}: {number(kept)}B of cache. In layer "
        f"{pattern.index(letter)} ({chosen['name']}) the newest token attends to "
        f"{counted(near + far, 'row')}.",
    )


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
    rows = [cells[i : i + IN_ROW] for i in range(0, len(cells), IN_ROW)]
    return Tiles(
        rows,
        heads=[[-1 if cell is None else letters.index(cell) for cell in row] for row in rows],
        says=[[None if cell is None else kinds[cell]["name"] for cell in row] for row in rows],
        rows=[f"{i}" for i in range(0, len(cells), IN_ROW)],
        row_name="layers from",
        title="kinds: " + ", ".join(f"{letter} {kinds[letter]['name']}" for letter in letters),
    )


def _row(kind: dict[str, Any], length: int, colour: int) -> Tiles:
    """What the newest token sees, by the distance back, which doubles from cell to cell."""
    near, _ = rows_seen(kind, length)
    far = "–" if not kind["far"] else "C" if kind["most"] else "A" if kind["far"] == 1 else "R"
    far = "S" if kind["state"] else far
    starts = (0, *LENGTHS[:-1])
    labels = [None if at >= length else "A" if at < near else far for at in starts]
    used = [letter for letter in SAYS if letter in labels]
    return Tiles(
        [labels],
        heads=[[-1 if label in (None, "–") else colour for label in labels]],
        says=[[label and SAYS[label] for label in labels]],
        columns=[number(n) for n in starts],
        column_name="tokens back, from",
        title="the newest token sees: " + ", ".join(f"{x} {SAYS[x]}" for x in used),
    )
