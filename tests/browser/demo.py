"""Small explorers for the browser tests, which compute the expected scenes with them, too."""

import ipywidgets as widgets
import numpy as np

from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Curve, Heatmap, Scene, Table, Tiles, Walk, number
from mha_lesson.models import TwoSidesModel
from mha_lesson.training import Run

TOKENS = ("the", "creek", "was", "<b>cold</b>", "it")


def computed(n: int, word: str, fault: str) -> Scene:
    """Heatmaps that depend on n, a label that is typed, and two ways to fail."""
    if fault == "refused":
        raise ValueError("n must be friendly, got <b>unfriendly</b>")
    if fault == "broken":
        raise KeyError("lost")
    weights = np.random.default_rng(n).dirichlet(np.full(5, 0.4), size=(2, 5))
    tokens = (*TOKENS[:4], word)
    blocked = np.triu(np.ones((5, 5)), 1) if n % 2 else None
    panels = [
        Heatmap(w, tokens, tokens, head=i, limits=(0, 1), title=f"head {i}", blocked=blocked)
        for i, w in enumerate(weights)
    ]
    links = np.arange(8)
    return Scene(
        [
            [*panels, Bars(weights[0, 0], tokens, name="weight", title="bars", limits=(0, 1))],
            [
                Tiles(links, links=links, title="storage", says=[f"place {i}" for i in links]),
                Tiles(links.reshape(2, 4).T, links=links.reshape(2, 4).T, title="seen"),
                Table([["n", n]]),
                Curve([1, 2, 4], {"a": [1, n, 3], "b": [3, 2, 1]}, x_name="T", marker=2),
            ],
        ],
        caption=f"n = {n}: the largest weight is {number(panels[0].largest()[1], 2)}.",
    )


def stored(size: int, scaled: bool) -> Scene:
    """A heatmap for each state, small enough to send them all."""
    weights = np.random.default_rng(size + 100 * scaled).dirichlet(np.full(3, 0.5), size=3)
    panel = Heatmap(weights, list("abc"), list("abc"), limits=(0, 1), title="stored")
    return Scene(panel, caption=f"size {size}, {'scaled' if scaled else 'not scaled'}")


def computed_explorer() -> Explorer:
    controls = {
        "n": widgets.IntSlider(value=3, min=1, max=40, description="n"),
        "word": widgets.Text(value="it", description="word", continuous_update=True),
        "fault": widgets.Dropdown(options=["none", "refused", "broken"], description="fault"),
    }
    return Explorer(controls, computed)


def part_of(n: int, part: int, word: str) -> Scene:
    """How many parts there are depends on n, as does the height alone."""
    return Scene(Table([[n, part, word]] * n), caption=f"part {part} of {n}: {word}")


def dependent_explorer() -> Explorer:
    controls = {
        "n": widgets.IntSlider(value=3, min=1, max=5, description="n"),
        "part": widgets.IntSlider(value=1, min=0, max=2, description="part"),
        "word": widgets.Text(value="it", description="word"),
    }
    places = {"part": lambda n: range(n), "word": lambda **_: ["it", "creek"]}
    return Explorer(controls, part_of, reach=places)


def stored_explorer() -> Explorer:
    controls = {
        "size": widgets.SelectionSlider(options=[4, 16, 64, 256], description="size"),
        "scaled": widgets.Checkbox(value=True, description="scaled"),
    }
    return Explorer(controls, stored)


def worded(word: str) -> Heatmap:
    """A map of two tokens, the second of which is chosen."""
    return Heatmap([[1, 2], [3, len(word)]], ["the", word], ["the", word], limits=(0, 9))


def worded_explorer() -> Explorer:
    words = widgets.Dropdown(options=["creek", "dog"], description="word")
    return Explorer({"word": words}, worded)


def moving(n: int) -> Scene:
    """Bars, a curve and arrows that depend on n, each as many as before."""
    panels = [
        Bars([n, 4 - n], limits=(0, 4), title="bars"),
        Curve([1, 2, 4], {"a": [1, n, 3]}, limits=(0, 4), x_name="T"),
        Walk([[1, n], [n, -1]], frame=(-1, 5, -1, 5)),
    ]
    return Scene([panels], caption=f"n = {n}.")


def moving_explorer() -> Explorer:
    return Explorer({"n": widgets.IntSlider(value=1, min=0, max=4, description="n")}, moving)


def untrained(n_steps: int) -> Run:
    """A run as `two_sides_runs` leaves it, with other weights every 10 steps, drawn and not learnt:
    for an optimizer torch would import its compiler, which takes a second."""
    steps = range(0, n_steps + 1, 10)
    snapshots = {step: TwoSidesModel(2).state_dict() for step in steps}
    return Run(TwoSidesModel(2), n_steps, [1.0] * n_steps, snapshots)
