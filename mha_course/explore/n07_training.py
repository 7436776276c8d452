"""The two-sides task step by step: heads find their roles, or a single head fails."""

import math
from collections.abc import Iterable
from functools import cache

import ipywidgets as widgets
from torch import Tensor, nn

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Curve, Heatmap, Scene
from mha_lesson.models import TwoSidesModel
from mha_lesson.refusals import listed, require_kind
from mha_lesson.tasks import letter_batches
from mha_lesson.training import Run, side_accuracy, silence_head, two_sides_runs, weight_by_offset

HEADS = (1, 2, 4, 8)
NO_HEAD = -1


def training(runs: Iterable[Run] | None = None) -> Explorer:
    """Sliders `h` and `step`, and a head to silence, over the loss, the answers and the weights.

    Args:
        runs: of `two_sides_runs` with snapshots, one for each h; h = 1, 2, 4 and 8 are trained
            now (some seconds) if None.

    Raises:
        TypeError: a run is of another model.
        ValueError: there is no run, a run has no snapshots, or two have the same h.
    """
    by_h = _by_heads(_trained() if runs is None else tuple(listed("runs", runs)))
    counts = sorted(by_h)
    steps = sorted(set.intersection(*(set(run.snapshots) for run in by_h.values())))
    if not steps:
        raise ValueError("runs must share a step at which each has a snapshot; they share none.")
    start = 2 if 2 in by_h else counts[0]
    explorer = Explorer(
        {
            "h": widgets.SelectionSlider(options=counts, value=start),
            "step": widgets.SelectionSlider(options=steps),
            "silence": widgets.Dropdown(options=_silence_choices(start)),
        },
        lambda h, step, silence: draw(by_h[h], step, silence),
        reach={"silence": lambda h, **_: _silence_choices(h)},
        play="step",
        headline="Two answers to find, one at each side. Press Play: do the heads share the work?",
    )
    explorer.first = explorer.scene_at(**explorer.values | {"step": steps[-1]})  # a still, the end
    return explorer


def scene(h: int = 2, step: int = 600, silence: int = NO_HEAD) -> Scene:
    """The runs that `training()` makes by itself: every tenth step has a snapshot."""
    return draw(_by_heads(_trained())[h], step, silence)


def draw(run: Run, step: int, silence: int = NO_HEAD) -> Scene:
    """A two-sides run after so many steps, with one head silenced or none (−1)."""
    model = _two_sides(run.at(step))
    h = model.attention.n_heads
    weights = model.weights().cpu()  # (h, T, T)
    looks = weight_by_offset(weights, (-1, 1)).T  # (2, h)
    answering = model if silence == NO_HEAD else silence_head(model, silence)
    accuracy = side_accuracy(answering, _letters())
    answers = (
        f"named: {accuracy.left:.0%} of the left letters, {accuracy.right:.0%} of the right ones"
    )
    roles = ", ".join(f"head {i} {_role(*look)}" for i, look in enumerate(looks.T.tolist()))
    quiet = "" if silence == NO_HEAD else f" Head {silence} is silent."
    caption = f"h = {h}, step {step}: {roles}.{quiet} Correctly {answers}."
    shown = [1, *range(10, len(run.losses) + 1, 10)]  # all of them would cost 30 ms a move
    losses = {"loss": [run.losses[i - 1] for i in shown], "guessing": [math.log(16)] * len(shown)}
    loss = Curve(
        shown,
        losses,
        dashed=("guessing",),
        marker=max(step, 1),
        x_name="step",
        y_name="nats",
        log_x=True,  # the roles appear in the first tenth
        title="loss",
        wide=0.9,
    )
    share = Bars(
        accuracy,
        ("left", "right", "both"),
        limits=(0, 1),
        decimals=2,
        name="share right",
        reference=(1 / 16, "guessing"),
        title="answers",
        wide=0.7,
    )
    sides = Bars(
        looks,
        [f"head {i}" for i in range(h)],
        series=("to the left", "to the right"),
        limits=(0, 1),
        name="mean weight",
        title="where each head looks",
        wide=max(0.8, 0.25 + 0.25 * h),
    )
    maps = [
        Heatmap(
            one,
            head=i,
            limits=(0, 1),
            numbers=False,
            row_name="query position",
            column_name="key position",
            title=f"{i}, silent" if i == silence else f"head {i}",
        )
        for i, one in enumerate(weights.round(decimals=4))  # half the bytes of a page
    ]
    return Scene([[loss, share, sides], maps], caption=caption, alt=caption)


def _role(left: float, right: float) -> str:
    if left > 0.8:
        return "looks left"
    if right > 0.8:
        return "looks right"
    return "looks at both sides" if left + right > 0.8 else "looks around"


def _silence_choices(h: int) -> list[tuple[str, int]]:
    return [("no head", NO_HEAD), *((f"head {i}", i) for i in range(h))]


def _by_heads(runs: tuple[Run, ...]) -> dict[int, Run]:
    for i, run in enumerate(runs):
        require_kind(f"runs[{i}]", run, Run)
    if not runs or not all(run.snapshots for run in runs):
        raise ValueError("runs must hold at least one run, each with snapshots (snapshot_every).")
    by_h = {_two_sides(run.model).attention.n_heads: run for run in runs}
    if len(by_h) != len(runs):
        raise ValueError("runs must hold one run for each h; two have the same.")
    return by_h


def _two_sides(model: nn.Module) -> TwoSidesModel:
    if not isinstance(model, TwoSidesModel):
        raise TypeError(
            f"runs must be of TwoSidesModels (two_sides_runs); got a {type(model).__name__}."
        )
    return model


@cache
def _trained() -> tuple[Run, ...]:
    return tuple(run for h in HEADS for run in two_sides_runs(h, [0], snapshot_every=10))


@cache
def _letters() -> Tensor:
    return next(letter_batches(500, seed=1))
