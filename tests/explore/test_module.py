"""The picture of the whole module: its boxes, arrows and shapes are those of the class."""

import torch

from mha_course.explore import module
from mha_course.pictures import figures, layout
from mha_course.pictures.colours import INK, ROLES
from mha_course.pictures.marks import Path, Rect, Text
from mha_lesson import merge_heads, split_heads
from readable import assert_readable


def test_everything_stands_on_the_page_and_no_two_texts_collide():
    assert_readable(layout.draw(module.scene()))
    assert figures.png(module.scene())


def test_boxes_of_the_module_wear_the_colour_of_what_they_make():
    frames = [m for m in layout.draw(module.scene()).marks if isinstance(m, Rect)]
    squares = {(mark.x, mark.y): mark.colour for mark in frames if mark.width == 10}
    worn = {}
    for frame in (f for f in frames if f.hollow):
        inside = [
            c
            for (x, y), c in squares.items()
            if 0 < x - frame.x < frame.width and 0 < y - frame.y < frame.height
        ]
        worn[frame.says.split(" (")[0]] = inside
    assert worn["Q"] == worn["W^Q"] == [ROLES["query"]]
    assert worn["K"] == worn["W^K"] == [ROLES["key"]]
    assert worn["V"] == worn["W^V"] == worn["weights · V"] == [ROLES["value"]]
    assert worn["W^O"] == worn["query + output"] == [ROLES["output"]]
    assert worn["query"] == worn["key and value"] == [ROLES["output"]]  # what layers put out
    assert worn["softmax over the keys"] == []
    assert len(worn) == len(module.BOXES)


def test_arrows_of_the_module_go_from_box_to_box_in_the_colour_of_what_they_carry():
    marks = layout.draw(module.scene()).marks
    frames = dict(
        zip(module.BOXES, [m for m in marks if isinstance(m, Rect) and m.hollow], strict=True)
    )
    lines = [m for m in marks if isinstance(m, Path) and m.points[0][0] == m.points[-1][0]]
    for line, (upper, lower, _) in zip(lines, module.ARROWS, strict=False):
        (x, start), (_, end) = line.points
        assert line.colour == ROLES.get(module.BOXES[upper].role, INK)
        assert start == frames[upper].y + module.HEIGHT and 0 <= frames[lower].y - end <= 9
        for frame in (frames[upper], frames[lower]):
            assert frame.x < x < frame.x + frame.width


def test_shapes_of_the_module_are_those_of_tensors():
    sizes = {"B": 2, "T_q": 5, "T_k": 7, "h": 3, "d_k": 11, "d_model": 13}
    q, k = (split_heads(torch.zeros(2, T, 33), 3) for T in (5, 7))
    scores = q @ k.mT
    context = scores @ k
    real = {
        "w_q": (2, 5, 33),
        "w_k": (2, 7, 33),
        "w_v": (2, 7, 33),
        "q": q.shape,
        "k": k.shape,
        "v": k.shape,
        "scores": scores.shape,
        "mask": scores.shape,
        "softmax": scores.shape,
        "context": context.shape,
        "merge": merge_heads(context).shape,
        "w_o": (2, 5, 13),
        "query": (2, 5, 13),
        "memory": (2, 7, 13),
        "sum": (2, 5, 13),
    }
    boxes, marks = module.BOXES, layout.draw(module.scene()).marks
    assert {n: eval(b.shape.replace("·", "*"), {**sizes}) for n, b in boxes.items()} == real
    frames = [m for m in marks if isinstance(m, Rect) and m.hollow]
    texts = {m.text: m for m in marks if isinstance(m, Text)}
    for row, note in enumerate(module.NOTES):
        tall = [f for f, box in zip(frames, boxes.values(), strict=True) if box.row == row]
        assert all(f.y < texts[note].y < f.y + f.height for f in tall)
