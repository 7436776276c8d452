"""What became of a language model with a mistake in its attention: three fates in one picture."""

from mha_course.collection import runs
from mha_course.pictures.panels import Curve, Heatmap, Scene

SHORT = {  # where the name is too long to stand beside a row
    "scale_upside_down": "scale reciprocal",
    "softmax_over_queries": "softmax: queries",
    "softmax_over_heads": "softmax: heads",
    "softmax_over_batch": "softmax: batch",
    "merged_as_heads_first": "merged as (h, B)",
    "mask_after_softmax": "mask afterwards",
    "scores_times_mask": "scores × mask",
    "mask_along_queries": "mask: queries",
    "one_projection_for_all_heads": "one projection",
    "fused_rows_by_head": "rows by head",
    "dropout_in_evaluation": "dropout in eval",
}
WORDS = {
    "right": "right",
    "scale_d_model": "√d_model for √d_k",
    "softmax_over_queries": "softmax along queries",
    "softmax_over_heads": "softmax over heads",
}


def fates() -> Scene:
    """The loss of four models on the way, as it is reported and as it is honestly counted."""
    points = runs.table("fates on the way")  # (name, reported or honest, point)
    steps = [runs.CURVE_STEP * i for i in range(points.shape[-1])]
    lines = [WORDS[name] for name in runs.ON_THE_WAY]
    charts = [
        Curve(
            steps,
            dict(zip(lines, part, strict=True)),
            dashed=[WORDS["scale_d_model"]],  # and the right one, below it, is seen
            x_name="step",
            y_name="nats",
            log_y=True,
            limits=(0.1, 20),
            title=title,
        )
        for part, title in zip(points.unbind(1), ("loss as reported", "honest"), strict=True)
    ]
    return Scene(
        [[chart] for chart in charts],
        caption="The right class, and three mistakes: hidden, too good, failed.",
        alt="Two charts of loss over 600 steps. As reported, the curves of the right class and of "
        "√d_model lie on each other, the softmax along the queries falls far below them, and "
        "the softmax over the heads stays above. Honestly counted, the softmax along the "
        "queries rises far above all others.",
    )


def ends() -> Scene:
    """How far each mistake ends above the right class from the same start, and honestly counted."""
    losses = runs.table("fates")  # (name, reported or honest, seed)
    above = losses[1:] - losses[0]
    order = above[:, 0].mean(dim=-1).argsort()
    reported, honest = above[order, 0], above[order, 1]
    names = [SHORT.get(name, name.replace("_", " ")) for name in runs.TRAINED[1:]]
    starts = [f"{seed + 1}" for seed in range(losses.shape[-1])]
    maps = [
        Heatmap(
            values,
            [names[i] for i in order],
            columns,
            limits=(-2, 2),
            numbers=True,
            decimals=2,
            row_name="",
            column_name=column_name,
            quantity="nats above right",
            title=title,
        )
        for values, columns, column_name, title in (
            (reported, starts, "start", "loss as reported"),
            (honest.mean(dim=-1, keepdim=True), ["1–5"], "mean", "honest"),
        )
    ]
    return Scene(
        [maps],
        caption="From each start the same fate: too good, hidden, failed.",
        alt="A row for each of 23 mistakes, a column for each of five starts: the loss less the "
        "right class's. As reported, eight rows lie far below 0, ten near 0 and five far above. "
        "Honestly counted, all eight lie far above 0, too.",
    )
