"""What T, d_model and h cost: operations by part, time and memory of the two cores."""

import math
from functools import partial

import ipywidgets as widgets

from mha_course.base.numerals import axis_end
from mha_course.collection.cost import CORES, TEXTBOOK, Measured, core_bytes, core_seconds, flops
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Bars, Curve, Scene, Table
from mha_lesson.refusals import say

LENGTHS = tuple(2**k for k in range(6, 15))  # T = 64 … 16,384
WIDTHS = (192, 384, 512, 768, 1536)
HEADS = (1, 2, 4, 8, 16)  # each divides every width
MS_AXIS, BYTES_AXIS = (1e-3, 1e5), (1e4, 1e11)  # for all positions
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cost(measured: Measured | None = None) -> Explorer:
    """Sliders `T`, `d_model` and `h` over predicted cost.

    Args:
        measured: a result of `mha_course.cost.measure`, drawn beside the prediction wherever
            the sliders stand at its sizes.
    """
    if measured is not None and not isinstance(measured, Measured):
        raise TypeError(f"measured must come from mha_course.cost.measure; got {say(measured)}.")
    d_model, h = (512, 8) if measured is None else (measured.d_model, measured.n_heads)
    widths = sorted({w for w in WIDTHS if w % h == 0} | {d_model})
    heads = [n for n in sorted({*HEADS, h}) if all(w % n == 0 for w in widths)]
    return Explorer(
        {
            "T": widgets.SelectionSlider(options=LENGTHS),
            "d_model": widgets.SelectionSlider(options=widths),
            "h": widgets.SelectionSlider(options=heads),
        },
        partial(scene, d_model=d_model, h=h, measured=measured),
        headline="Twice the text: four times the scores. The fused core never holds them.",
    )


def scene(T: int = 1024, d_model: int = 512, h: int = 8, measured: Measured | None = None) -> Scene:
    """Operations of an attention layer by part; seconds and bytes of the two cores over T."""
    parts = flops(T, d_model, h)
    machine = TEXTBOOK if measured is None else measured.machine
    lengths = sorted({*LENGTHS, T, *(measured.lengths if measured else ())})
    milliseconds, sizes = {}, {}
    for core in CORES:
        seconds = (core_seconds(t, d_model, h, core, machine) for t in lengths)
        milliseconds[f"{core}, predicted"] = [1e3 * s for s in seconds]
        sizes[f"{core}, predicted"] = [core_bytes(t, d_model, h, core) for t in lengths]
    dashed = tuple(milliseconds)
    if measured and (d_model, h) == (measured.d_model, measured.n_heads):
        for core in CORES:
            seconds_at = dict(zip(measured.lengths, measured.seconds[core], strict=True))
            bytes_at = dict(zip(measured.lengths, measured.bytes[core], strict=True))
            milliseconds[f"{core}, measured"] = [1e3 * seconds_at.get(t, math.nan) for t in lengths]
            sizes[f"{core}, measured"] = [bytes_at.get(t, math.nan) for t in lengths]

    def curve(lines: dict[str, list], unit: str, limits: tuple, title: str) -> Curve:
        seen = [v for values in lines.values() for v in values if math.isfinite(v)]
        low, high = min(limits[0], *seen), max(limits[1], *seen)
        cores = [CORES.index(name.split(",")[0]) for name in lines]  # a colour for each core
        return Curve(
            lengths,
            lines,
            heads=cores,
            marker=T,
            dashed=dashed,
            log_x=True,
            log_y=True,
            limits=(low, high),
            x_name="T",
            y_name=unit,
            title=title,
        )

    operations = Bars(
        list(parts.values()),
        ["4 W", "Q Kᵀ", "A V"],
        name="operations",
        limits=(0, axis_end(max(parts.values()))),
        steady=True,
        title=f"operations of the layer, T = {T:,}",
    )
    rules = Table(
        [
            ["4 W", "four projections", "4 · 2 T d_model²"],
            ["Q Kᵀ", "scores", "2 T² d_model"],
            ["A V", "weights · values", "2 T² d_model"],
        ],
        ("", "part", "operations"),
    )
    time = curve(milliseconds, "ms", MS_AXIS, "time of the core")
    memory = curve(sizes, "bytes", BYTES_AXIS, "memory of the core")
    caption = _caption(T, d_model, h, parts, measured)
    return Scene([[memory, time], [operations, rules]], caption=caption)


def amount(value: float) -> str:
    """Three digits and the prefix of a unit: "17.2 G", "806 M"."""
    size, prefix = next(((s, p) for s, p in UNITS if value >= 0.9995 * s), (1.0, ""))
    digits = value / size
    decimals = 2 if digits < 9.995 else 1 if digits < 99.95 else 0
    return f"{digits:.{decimals}f} {prefix}"


def _caption(T: int, d_model: int, h: int, parts: dict[str, int], measured: Measured | None) -> str:
    total = sum(parts.values())
    quadratic = 1 - parts["projections"] / total
    explicit, fused = (core_bytes(T, d_model, h, core) for core in CORES)
    ratio = explicit / fused  # two digits: "1.3", "62", "1,300"
    times = f"{ratio:.1f}" if ratio < 9.95 else f"{float(f'{ratio:.2g}'):,.0f}"
    words = (
        f"{amount(total)}FLOP, {quadratic:.0%} of them in the two products that grow "
        f"with T². The explicit core holds {amount(explicit)}B, {times} times "
        f"as much as the fused one: {amount(fused)}B."
    )
    if measured is None:
        rate, flow = TEXTBOOK.flops_per_second / 1e9, TEXTBOOK.bytes_per_second / 1e9
        return f"{words} Times for a core of {rate:.0f} GFLOP/s that moves {flow:.0f} GB/s."
    if (d_model, h) == (measured.d_model, measured.n_heads):
        return f"{words} Measured on: {measured.device}."
    return f"{words} Measured only at d_model = {measured.d_model}, h = {measured.n_heads}."
