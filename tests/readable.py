"""Whether it can be read: a drawing, whose texts do not overlap; two colours."""

import numpy as np

from mha_course.pictures import layout
from mha_course.pictures.colours import luminance
from mha_course.pictures.marks import ColourBar, Drawing, Text, text_width


def contrast(one: str | tuple, other: str | tuple) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def assert_readable(drawing: Drawing, width: float = layout.WIDTH) -> None:
    """No text is below 13 px, outside of the page or on another; the page is wide enough."""
    assert drawing.width <= width + 1
    boxes: list[tuple[str, float, float, float, float]] = []
    for mark in drawing.marks:
        if isinstance(mark, ColourBar):
            mark = mark.label()
        if not isinstance(mark, Text):
            continue
        assert mark.size >= 13
        long, short = 0.8 * text_width(mark.text, mark.size), 0.8 * mark.size
        x = mark.x - {"left": 0, "center": long / 2, "right": long}[mark.align]
        box = (x, mark.y - short / 2, long, short)
        if mark.turned:
            y = mark.y if mark.align == "right" else mark.y - long / 2
            box = (mark.x - short / 2, y, short, long)
        boxes.append((mark.text, *box))
    for i, (text, x, y, w, h) in enumerate(boxes):
        assert x >= -1, text
        assert x + w <= drawing.width + 1, text
        assert y + h <= drawing.height + 1, text
        for other, x2, y2, w2, h2 in boxes[:i]:
            apart = x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
            assert apart, f"{text!r} lies on {other!r}"


def unpacked(sizes: list[list[int]], raw: bytes) -> list[np.ndarray]:
    """The arrays of `states.pack_arrays`, read as the browser reads them."""
    arrays, at = [], 0
    for length, wide, scale in sizes:
        planes = np.zeros((length, 4), np.uint8)
        planes[:, 4 - wide :] = np.frombuffer(raw, np.uint8, wide * length, at).reshape(wide, -1).T
        numbers = planes.view("<i4").ravel() >> 8 * (4 - wide)
        whole = (numbers / scale if scale else numbers.view("<f4")).astype(np.float32)
        arrays.append(whole)
        at += wide * length
    assert at == len(raw)
    return arrays
