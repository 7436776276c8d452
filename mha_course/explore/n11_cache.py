"""Writing token by token: what a step computes, what it reads from the cache, what it drops."""

import ipywidgets as widgets

from mha_course.base.numerals import counted
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Scene, Stack, Table, Tiles

LENGTHS = (4, 6, 8, 10, 12)
HEADS = (1, 2, 4)
WINDOWS = ("none", 2, 3, 4, 6)
SAYS = {"new": "new in the cache", "old": "held in the cache", "–": "dropped"}


def cache() -> Explorer:
    """Sliders `T`, `h`, `h_kv`, `window` and `step` over the scores and the cache of one layer."""
    return Explorer(
        {
            "T": widgets.SelectionSlider(options=LENGTHS),
            "h": widgets.SelectionSlider(options=HEADS),
            "h_kv": widgets.SelectionSlider(options=HEADS),
            "window": widgets.SelectionSlider(options=WINDOWS),
            "step": widgets.IntSlider(max=LENGTHS[-1] - 1),
        },
        scene,
        reach={
            "h_kv": lambda h, **_: [n for n in HEADS if n <= h],
            "step": lambda T, **_: range(T),
        },
        headline="A new token makes one row of scores. All older keys and values are read back.",
    )


def scene(
    T: int = 8, h: int = 4, h_kv: int = 2, window: int | str = "none", step: int = 3
) -> Scene:
    """Token `step` is the newest one; h_kv and step are cut to what h and T allow."""
    h_kv, step = min(h_kv, h), min(step, T - 1)
    n_visible = T if window == "none" else int(window)
    visible = [list(range(max(0, i - n_visible + 1), i + 1)) for i in range(T)]  # by each query
    positions = [f"{i}" for i in range(T)]
    scores = Tiles(
        [[_score(i, j, visible, step) for j in range(T)] for i in range(T)],
        heads=[[0 if i == step and j in visible[i] else -1 for j in range(T)] for i in range(T)],
        rows=positions,
        columns=positions,
        row_name="query of token",
        column_name="key of token",
        title=f"scores of one head, after step {step}",
    )
    share = h // h_kv
    row = [_in_cache(j, visible[step], step) for j in range(T)]
    cache_tiles = Tiles(
        [row] * h_kv,
        says=[[label and SAYS[label] for label in row]] * h_kv,
        heads=[[kv if j in visible[step] else -1 for j in range(T)] for kv in range(h_kv)],
        rows=[_readers(kv, share) for kv in range(h_kv)],
        columns=positions,
        row_name="read by",
        column_name="token",
        title=f"keys and values: {h_kv} for {counted(h, 'query head')}",
    )
    anew = h * sum(len(row) for row in visible[: step + 1])
    cached = h * len(visible[step])
    back = h_kv * (len(visible[step]) - 1)
    work = Table(
        [
            ["rows of q made", h * (step + 1), h],
            ["rows of k, v made", h_kv * (step + 1), h_kv],
            ["scores made", anew, cached],
            ["rows of k, v read back", 0, back],
        ],
        header=["of all heads", "anew", "cached"],
        title="work of this step",
    )
    return Scene(
        [[scores, Stack([[cache_tiles], [work]], wide=1.25)]],
        caption=f"Token {step} of {T}: {counted(cached, 'score')} instead of {anew}; "
        f"{counted(back, 'row')} of keys, and as many of values, come from the cache; "
        f"{counted(visible[step][0], 'token')} dropped.",
    )


def _score(i: int, j: int, visible: list[list[int]], step: int) -> str | None:
    if i > step or j not in visible[i]:
        return None  # not written yet, the future, or outside the window
    return "now" if i == step else "was"


def _in_cache(j: int, visible: list[int], step: int) -> str | None:
    if j > step:
        return None
    return "new" if j == step else "old" if j in visible else "–"


def _readers(kv: int, share: int) -> str:
    first, last = kv * share, kv * share + share - 1
    return f"head {first}" if share == 1 else f"heads {first}–{last}"
