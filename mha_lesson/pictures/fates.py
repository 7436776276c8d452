"""What became of a language model with a mistake in its attention: three fates in one picture."""

from mha_lesson import runs
from mha_lesson.pictures.panels import Curve, Scene

WORDS = {
    "right": "right",
    "scale_d_model": "√d_model for √d_k",
    "softmax_over_queries": "softmax along queries",
    "softmax_over_heads": "softmax over heads",
}


def fates() -> Scene:
    """The loss of four models on the way, as it is told and honestly counted."""
    points = runs.table("fates on the way")  # (name, told or honest, point)
    steps = [runs.EVERY * i for i in range(points.shape[-1])]
    lines = [WORDS[name] for name in runs.ON_THE_WAY]
    charts = [
        Curve(
            steps,
            dict(zip(lines, part, strict=True)),
            x_name="step",
            y_name="nats",
            log_y=True,
            limits=(0.1, 20),
            title=title,
        )
        for part, title in zip(points.unbind(1), ("loss as it is told", "honest"), strict=True)
    ]
    return Scene(
        [charts],
        caption="The right class, and three mistakes: hidden, too good, failed.",
        alt="Two charts of loss over 600 steps. As told, the curves of the right class and of "
        "√d_model lie on each other, the softmax along the queries falls far below them, and "
        "the softmax over the heads stays above. Honestly counted, the softmax along the "
        "queries rises far above all others.",
    )
