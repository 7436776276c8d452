"""The explorer of the two-sides task: its pure function over all positions, and its controls."""

import importlib
import math

import numpy as np
import pytest

from mha_course import explore
from mha_course.pictures.layout import SCREEN, WIDTH, draw
from mha_course.pictures.panels import Bars, Curve, Heatmap
from mha_lesson.models import RepeatModel
from mha_lesson.tasks import letter_batches
from mha_lesson.training import Run, side_accuracy, silence_head, two_sides_runs, weight_by_offset
from readable import assert_readable

n07 = importlib.import_module("mha_course.explore.n07_training")  # the package has the function


@pytest.fixture(scope="module")
def runs():
    settings = {"n_steps": 60, "snapshot_every": 20}
    return [run for h in (1, 2, 8) for run in two_sides_runs(h, [0], **settings)]


@pytest.mark.long
def test_every_position_shows_the_run_as_it_was(runs):
    letters, seen = next(letter_batches(500, seed=1)), set()
    for run, h in zip(runs, (1, 2, 8), strict=True):
        for step in (0, 20, 60):
            for silence in (-1, *range(h)[-2:]):
                scene = n07.draw(run, step, silence)
                panels = scene.flat()
                model = run.at(step)
                maps = [panel for panel in panels if isinstance(panel, Heatmap)]
                weights = model.weights().cpu()
                np.testing.assert_allclose(np.stack([m.values for m in maps]), weights, atol=5.1e-5)
                assert [m.head for m in maps] == list(range(h))
                assert [("silent" in m.title) for m in maps] == [i == silence for i in range(h)]
                [curve] = [panel for panel in panels if isinstance(panel, Curve)]
                np.testing.assert_allclose(
                    curve.lines["loss"], [run.losses[int(x) - 1] for x in curve.x]
                )
                assert curve.marker == max(step, 1) and curve.dashed == ("guessing",)
                assert set(curve.lines["guessing"]) == {math.log(16)}
                answers, looks = [panel for panel in panels if isinstance(panel, Bars)]
                assert answers.labels == ("left", "right", "both")
                assert answers.reference == (pytest.approx(1 / 16), "guessing")
                assert looks.labels == tuple(f"head {i}" for i in range(h))
                assert looks.series == ("to the left", "to the right")
                asked = model if silence < 0 else silence_head(model, silence)
                right = side_accuracy(asked, letters)
                np.testing.assert_allclose(answers.values.ravel(), right)
                shares = f"{right.left:.0%} of the left letters, {right.right:.0%} of the right"
                assert shares in scene.caption
                expected = weight_by_offset(weights, (-1, 1))
                np.testing.assert_allclose(looks.values, expected.T, atol=1e-6)
                roles = [n07._role(*look) for look in expected.tolist()]
                said = ", ".join(f"head {i} {role}" for i, role in enumerate(roles))
                assert scene.caption.startswith(f"h = {h}, step {step}: {said}.")
                seen |= {*roles, right.left > right.right}
                assert (f"Head {silence} is silent" in scene.caption) == (silence >= 0)
                drawing = draw(scene, WIDTH, SCREEN)
                assert drawing.height <= SCREEN
                assert_readable(drawing)
    assert len(seen) >= 4  # several roles, and either side the better one


def test_a_role_is_said_only_where_it_is_there():
    assert n07._role(0.97, 0.01) == "looks left"
    assert n07._role(0.01, 0.97) == "looks right"
    assert n07._role(0.45, 0.47) == "looks at both sides"
    assert n07._role(0.3, 0.1) == n07._role(0.7, 0.05) == n07._role(0.05, 0.7) == "looks around"


def test_the_controls_fit_each_other(runs):
    explorer = explore.training(runs)
    assert explorer.values == {"h": 2, "step": 0, "silence": -1}
    explorer.controls["silence"].value = 1
    explorer.controls["h"].value = 8
    explorer.controls["silence"].value = 7
    explorer.controls["h"].value = 1
    assert explorer.values["silence"] == -1 and not explorer.view.error
    explorer.controls["step"].value = 20
    assert explorer.scene.caption.startswith("h = 1, step 20: head 0 ")
    assert explorer.view.scene["caption"] == explorer.scene.caption


def test_works_without_arguments(runs, monkeypatch):
    asked = []

    def quick(h, seeds, snapshot_every):
        asked.append(h)
        return two_sides_runs(h, seeds, n_steps=20, snapshot_every=snapshot_every)

    monkeypatch.setattr(n07, "two_sides_runs", quick)
    n07._trained.cache_clear()
    try:
        assert tuple(explore.training().controls["h"].options) == (1, 2, 4, 8)
        assert n07.scene(4, 10).caption.startswith("h = 4, step 10: ")
        assert asked == [1, 2, 4, 8]  # once
    finally:
        n07._trained.cache_clear()


def test_refusals(runs):
    with pytest.raises(ValueError, match="the same"):
        explore.training([runs[0], runs[0]])
    with pytest.raises(TypeError, match="RepeatModel"):
        explore.training([Run(RepeatModel(), 1, snapshots={0: {}})])
    with pytest.raises(ValueError, match="step must be one of"):
        n07.draw(runs[0], 7)


def test_runs_of_different_length_share_their_steps(runs):
    short = two_sides_runs(2, [0], n_steps=30, snapshot_every=20)
    explorer = explore.training([runs[0], *short])
    assert tuple(explorer.controls["step"].options) == (0, 20)
