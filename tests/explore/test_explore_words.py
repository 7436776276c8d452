"""What the explorers write, mark and colour, against other computations of the same."""

import importlib
import itertools
import math
import re

import numpy as np
import pytest
import torch
from test_explore import module

from mha_course.collection import cost
from mha_course.pictures.colours import ROLES
from mha_course.pictures.layout import draw
from mha_course.pictures.marks import Cells, Path, Rect, Text
from mha_course.pictures.panels import head_colour, number
from mha_lesson import MultiHeadAttention

flow = importlib.import_module("mha_course.explore.n00_flow")


def test_what_a_cache_holds_and_saves():
    cache = module("cache")
    says = {None: "", "new": "new in the cache", "old": "held in the cache", "–": "dropped"}
    for T, h, h_kv, window, step in itertools.product(
        cache.LENGTHS, cache.HEADS, cache.HEADS, cache.WINDOWS, (0, 3, 11)
    ):
        scores, held, work = (scene := cache.scene(T, h, h_kv, window, step)).flat()
        kv, t, far = min(h_kv, h), min(step, T - 1), T if window == "none" else window
        i, j = np.indices((T, T))
        seen = (j <= i) & (i - j < far) & (i <= t)
        now, made = int(seen[t].sum()), int(seen.sum())
        word = np.where(i == t, "now", "was")
        assert scores.labels == tuple(
            tuple(str(w) if s else None for w, s in zip(*row, strict=True))
            for row in zip(word, seen, strict=True)
        )
        assert (scores.heads == np.where(seen & (i == t), 0, -1)).all()
        assert (scores.row_name, scores.column_name) == ("query of token", "key of token")
        assert scores.title.endswith(f"after step {t}")
        row = [
            None if c > t else "new" if c == t else "old" if seen[t, c] else "–" for c in range(T)
        ]
        assert held.labels == (tuple(row),) * kv
        assert held.says == (tuple(says[c] for c in row),) * kv
        assert (held.heads == np.where(seen[t], np.arange(kv)[:, None], -1)).all()
        readers = [[n for n in range(h) if n * kv // h == g] for g in range(kv)]
        assert held.rows == tuple(
            f"head {r[0]}" if len(r) == 1 else f"heads {r[0]}–{r[-1]}" for r in readers
        )
        assert work.header == ("of all heads", "anew", "cached")
        assert [[int(n) for n in r[1:]] for r in work.rows] == [
            [h * (t + 1), h],
            [kv * (t + 1), kv],
            [h * made, h * now],
            [0, kv * (now - 1)],
        ]
        said = [int(n) for n in re.findall(r"\d+", scene.caption)]
        assert said == [t, T, h * now, h * made, kv * (now - 1), t + 1 - now]


def test_what_published_models_keep():
    """Against sums worked out by hand, in bytes of two each number."""
    models = module("models")
    T = 2**17
    for name, numbers in {
        "Llama 2 7B": 32 * 2 * 32 * 128 * T,
        "Mistral 7B v0.1": 32 * 2 * 8 * 128 * 4096,
        "Gemma 3 4B": 2 * 4 * 256 * (5 * T + 29 * 1024),
        "gpt-oss 120B": 2 * 8 * 64 * (18 * T + 18 * 128),
        "DeepSeek-V3": 61 * (512 + 64) * T,
        "MiniMax-M3": (60 * 2 * 4 + 57) * 128 * T,
        "Gemma 4 E2B": 2 * (3 * 512 * T + 12 * 256 * 512),
        "Gemma 4 31B": 2 * (10 * 4 * 512 * T + 50 * 16 * 256 * 1024),
    }.items():
        about = models.published()[name]
        kept = sum(models.numbers_kept(about["kinds"][one], T) for one in about["pattern"])
        assert kept == numbers, name
        size = number(2 * numbers)
        scene = models.scene(name, T)
        assert f"{size[:-1]} {size[-1]}B of cache" in scene.caption
        said = [cell for row in scene.flat()[1].says for cell in row if cell]
        assert [cell.split(", ")[0] for cell in said] == [f"layer {i}" for i in range(len(said))]
    for kind in (k for about in models.published().values() for k in about["kinds"].values()):
        rows = kind["far"] or 1  # of which a new one comes at once
        for length in {T, *(rows * (min(kind["near"], T) // rows) + i * rows for i in (-1, 0, 1))}:
            more = models.numbers_kept(kind, length + rows) - models.numbers_kept(kind, length)
            assert models.growth(kind, length) == more / rows
    piece = models.published()["Llama 4 Scout"]["kinds"]["C"]
    seen = [models.rows_seen(piece, n)[0] for n in (1, 8192, 8193, 16384)]
    assert seen == [1, 8192, 1, 8192]  # a piece begins anew
    for name, sees in (
        ("Llama 4 Scout", "its piece of 8,192"),
        ("Mistral 7B v0.1", "the last 4,096"),
    ):
        *_, row, kinds = models.scene(name, T).flat()
        within = [distance < int(sees[-5:].replace(",", "")) for distance in models.DISTANCES]
        assert kinds.rows[0][1] == sees
        assert [label == "A" for label in row.labels[0]] == within


def test_what_a_rotation_turns():
    rotation = module("rotation")
    for distance, d_k, base in itertools.product(
        rotation.DISTANCES, rotation.WIDTHS, rotation.BASES
    ):
        scene = rotation.scene(distance, d_k, base)
        curve, each, turns = scene.flat()
        half = d_k // 2
        speed = float(base) ** (-np.arange(half) / half)
        cos = np.cos(distance * speed)
        np.testing.assert_allclose(each.values[0], cos, atol=1e-6)
        np.testing.assert_allclose(turns.values[0], 2 * math.pi / speed)
        every = np.cos(np.arange(129)[:, None] * speed).mean(axis=1)
        np.testing.assert_allclose(curve.lines["score"], every, atol=1e-6)
        assert curve.marker == distance and f"{distance} apart" in each.title
        assert turns.reference == (distance, "distance")
        assert turns.limits[0] <= turns.values.min() and turns.values.max() <= turns.limits[1]
        assert scene.caption.startswith(
            f"Distance {distance}, d_k = {d_k}, base {number(base)}: the pairs add up to "
            f"{number(float(curve.lines['score'][distance]))} of their score at distance 0; "
            f"{(cos < 0).sum()} of {half} pairs "
        )


def test_what_a_layer_costs():
    units = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

    def read(value, unit):
        return float(value.replace(",", "")) * units[unit]

    machine = cost.Machine(7e9, 3e9)
    two = {"explicit": (0.5, 0.75), "fused": (0.25, 0.125)}
    measured = cost.Measured((256, 1024), 192, 3, "this CPU", machine, two, two)
    for T, d, h, given in (
        (64, 768, 12, None),
        (64, 192, 3, None),
        (1024, 192, 3, None),
        (256, 192, 3, measured),
    ):
        scene = module("cost").scene(T, d, h, given)
        sizes, ms, bars, table = scene.flat()
        parts = [8 * T * d * d, 2 * T * T * d, 2 * T * T * d]
        assert bars.labels == ("4 W", "Q Kᵀ", "A V") and bars.values[0].tolist() == parts
        assert f"T = {T:,}" in bars.title
        for row, part in zip(table.rows, parts, strict=True):
            rule = row[2].replace(" · ", "*").replace(" ", "*").replace("²", "**2")
            assert eval(rule, {"T": T, "d_model": d}) == part
        assert not bars.log and bars.limits[0] == 0
        assert bars.values.max() <= bars.limits[1] <= 2.5 * bars.values.max()
        explicit, fused = 4 * h * T * (T + max(T, d // h)), 4 * T * (d + h)
        said = re.search(
            r"(\d+)% of them .* holds (\S+) (\w?)B, (\S+) times .* one: (\S+) (\w?)B\.",
            scene.caption,
        )
        assert int(said[1]) == round(100 * sum(parts[1:]) / sum(parts))
        assert read(*said.group(2, 3)) == pytest.approx(explicit, rel=6e-3)
        times = explicit / fused
        assert said[4] == (f"{times:.1f}" if times < 9.95 else f"{float(f'{times:.2g}'):,.0f}")
        assert read(*said.group(5, 6)) == pytest.approx(fused, rel=6e-3)
        assert ("50 GFLOP/s that moves 10 GB/s" in scene.caption) == (given is None)
        for curve, unit in ((ms, "ms"), (sizes, "bytes")):
            assert (curve.marker, curve.y_name) == (T, unit)
            explicit, fused = (curve.lines[f"{core}, predicted"] for core in cost.CORES)
            low, high = curve.limits  # one axis for all positions
            assert low < fused.min() and (explicit > fused).all() and explicit.max() < high
            assert curve.heads == (0, 1, 0, 1)[: len(curve.lines)]
            assert all(("predicted" in name) == (name in curve.dashed) for name in curve.lines)
        rates = given.machine if given else cost.TEXTBOOK
        at = [*ms.x].index(T)
        for core, n in (("explicit", 4 * T * d + 4 * h * T * T), ("fused", 4 * T * d)):
            seconds = 4 * T * T * d / rates.flops_per_second + 4 * n / rates.bytes_per_second
            assert ms.lines[f"{core}, predicted"][at] == pytest.approx(1e3 * seconds)


def test_your_own_flow_begins_with_the_last_query_and_what_it_looks_at_most():
    torch.manual_seed(4)
    mha, x = MultiHeadAttention(12, 3), 3 * torch.randn(7, 12)
    mha.w_qkv.weight.data.normal_()
    most = int(mha(x, return_weights=True)[1][0, -1].argmax())
    assert most < 6 and flow._own_source(mha, x, None).pick == (6, most)


@pytest.mark.parametrize("head", [1, 7, 10])
def test_squares_arrows_and_slices_of_the_flow_belong_to_their_blocks(head):
    scene = flow.scene("Wᴼ", head)
    panel, marks = scene.flat()[0], draw(scene).marks
    cells = dict(zip(panel.shown, (m for m in marks if isinstance(m, Cells)), strict=True))
    rects, paths = ([m for m in marks if isinstance(m, k)] for k in (Rect, Path))
    text = {m.text: m for m in marks if isinstance(m, Text)}
    wears = {"x": "output", "q": "query", "k": "key", "v": "value", "concat": "value"}
    for name, role in wears.items():
        square = [
            m
            for m in rects
            if m.width == m.height == 10 and m.x == cells[name].x and 0 < cells[name].y - m.y < 20
        ]
        assert [m.colour for m in square] == [ROLES[role]], name
    assert text["W^K"].x < cells["x"].x < text["W^V"].x
    for name in "kqv":
        ways = [
            m
            for m in paths
            if m.colour == ROLES[wears[name]]
            and len(m.points) in (2, 4)
            and not m.dashed
            and m.width == 1.5
            and abs(m.points[0][0] - m.points[-1][0]) > 9
        ]
        assert ways, name
    slices = [m for m in rects if m.height in (3.0, 8.0)]
    assert len(slices) == 4 * 12
    for k in range(4):
        row = sorted(slices[12 * k : 12 * k + 12], key=lambda m: m.x)
        assert [m.colour for m in row] == [head_colour(i) for i in range(12)]
        assert [m.height == 8 for m in row] == [i == head for i in range(12)]
    [way] = [m for m in paths if m.colour == head_colour(head) and len(m.points) == 4]
    slab = cells["concat"].width * 384 / 12
    assert head * slab < way.points[-1][0] < (head + 1) * slab
