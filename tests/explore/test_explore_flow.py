"""The picture of the whole computation: each of its numbers is the package's own."""

import importlib
import itertools

import numpy as np
import pytest
import torch
from test_explore import layer_of

from mha_course import explore
from mha_course.pictures.colours import HEADS, MAPS, ROLES, rgb
from mha_course.pictures.layout import SCREEN, WIDTH, draw
from mha_course.pictures.marks import Cells
from mha_course.pictures.panel import FOLDED
from mha_lesson import MultiHeadAttention, causal_mask, scaled_dot_product_attention
from mha_lesson.text import sentence

flow = importlib.import_module("mha_course.explore.n00_flow")
STEPS = tuple(flow.STEPS)
STRIP = 80  # below the picture: what made a number


def random_case(d_model=15, n_heads=5, d_k=7, T=11, bias=True):
    torch.manual_seed(2)
    mha = MultiHeadAttention(d_model, n_heads, d_k=d_k, bias=bias).eval()
    torch.nn.init.normal_(mha.w_qkv.weight)
    if bias:
        torch.nn.init.normal_(mha.w_o.bias)
    return mha, torch.randn(T, d_model)


def blocks(panel):
    return {name: torch.tensor(block.values) for name, block in panel.blocks.items()}


def assert_is(mha, x, panel, head, causal):
    """Every block of `panel` against the module, and its one head against the function."""
    seen, d_k = blocks(panel), mha.d_k
    with torch.no_grad():
        output, weights = mha(x, causal=causal, return_weights=True)
        q, k, v = (t.unflatten(-1, (-1, d_k))[:, head] for t in mha.w_qkv(x).chunk(3, dim=-1))
        context = scaled_dot_product_attention(q, k, v, causal=causal)
    close = {"atol": 2e-4, "rtol": 1e-4, "check_dtype": False}
    for name, expected in {
        "x": x,
        "q": q,
        "k": k.T,
        "v": v,
        "products": q @ k.T,
        "scores": q @ k.T / d_k**0.5,
        "weights": weights[head],
        "context": context,
        "output": output,
    }.items():
        torch.testing.assert_close(seen[name], expected.double(), **close)
    torch.testing.assert_close(seen["masked"], seen["scores"], **close)
    blocked = causal_mask(len(x)) if causal else torch.zeros(len(x), len(x), dtype=torch.bool)
    np.testing.assert_array_equal(panel.blocks["masked"].blocked, blocked.numpy())
    slab = slice(head * d_k, (head + 1) * d_k)
    torch.testing.assert_close(seen["concat"][:, slab], context.double(), **close)
    written = torch.tensor(panel.writes).sum(0) + torch.tensor(panel.bias)
    torch.testing.assert_close(written, output, **close)


@pytest.mark.parametrize("causal", [False, True])
def test_every_head_of_the_sentence_is_the_package_s(causal):
    creek = sentence()
    mha = layer_of(creek, creek.n_heads)
    for head in range(creek.n_heads):
        panel = flow.scene("Wᴼ", head, causal=causal).flat()[0]
        assert_is(mha, creek.hidden, panel, head, causal)


@pytest.mark.parametrize("bias", [True, False])
def test_a_module_of_your_own_at_every_head(bias):
    mha, x = random_case(bias=bias)
    source = flow._own_source(mha, x, None)
    for head, causal in itertools.product(range(mha.n_heads), (False, True)):
        panel = flow.draw(source, "Wᴼ", head, causal, "output").flat()[0]
        assert_is(mha, x, panel, head, causal)


def by_hand_heads():
    """Both heads of the example that goes through W^O, and W^O as nn.Linear holds it."""
    back = torch.tensor([[2.0, 0], [2, 0], [0, 2]]), torch.tensor([[2.0, 0], [0, 2], [-2, -2]])
    rows = torch.tensor([[1.0, 0], [0, 1], [1, 1]])
    values = torch.tensor([[[0.0, 10], [10, 0], [5, 5]], [[10, 0], [0, 10], [5, 5]]])
    w_o = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0.5, 0], [-1, 0, 0, 1]])
    return torch.stack([back[0], rows]), torch.stack([back[1], rows]), values, w_o


@pytest.mark.parametrize("causal", [False, True])
def test_the_example_by_hand_goes_through_w_o_with_two_heads(causal):
    q, k, v, w_o = by_hand_heads()
    context, weights = scaled_dot_product_attention(q, k, v, causal=causal, return_weights=True)
    concat = torch.cat([*context], dim=-1)
    if not causal:  # the first head looks one token back, and the first token at itself
        assert weights[0].argmax(dim=-1).tolist() == [0, 0, 1]
    for head in range(2):
        scene = flow.scene("Wᴼ", head, flow.BY_HAND, causal)
        panel = scene.flat()[0]
        for name, expected in {
            "q": q[head],
            "k": k[head].T,
            "v": v[head],
            "products": q[head] @ k[head].T,
            "scores": q[head] @ k[head].T / 2**0.5,
            "weights": weights[head],
            "context": context[head],
            "concat": concat,
            "output": concat @ w_o.T,
        }.items():
            torch.testing.assert_close(blocks(panel)[name], expected.double())
        np.testing.assert_array_equal(panel.w_o, w_o.T.numpy())
        assert panel.writes is None and panel.bias is None
        numbered = [m.panel.title for m in draw(scene).marks if isinstance(m, Cells) and m.numbers]
        assert numbered == [block.title for block in panel.blocks.values()]


def steps(until):
    return explore.flow(until=until).controls["step"].options


def test_each_part_adds_its_steps_and_each_step_shows_one_more():
    for n, until in enumerate(flow.PARTS):
        assert {*steps(until)} >= {*steps(flow.PARTS[max(0, n - 1)])}
        before: tuple[str, ...] = ()
        for step in steps(until):
            panel = flow.scene(step, until=until).flat()[0]
            assert panel.shown == (*before, *flow.STEPS[step])
            before = panel.shown
        assert before == tuple(panel.blocks)
    assert steps("output") == STEPS


@pytest.mark.parametrize("until", flow.PARTS)
def test_it_stands_on_a_laptop_s_screen_and_shows_what_is_there(until):
    examples, pages = (flow.BY_HAND, flow.SENTENCE), (WIDTH, 820, 700, 620, 310)
    for step, example, page in itertools.product(steps(until), examples, pages):
        if (step, example) == ("X", flow.BY_HAND):
            continue  # it is not given
        scene = flow.scene(step, example=example, until=until)
        drawing, panel = draw(scene, page, SCREEN), scene.flat()[0]
        assert drawing.width <= page
        assert page < FOLDED or drawing.height + STRIP <= 500  # and little else: 560
        cells = [mark for mark in drawing.marks if isinstance(mark, Cells)]
        assert [mark.panel.title for mark in cells] == [panel.blocks[n].title for n in panel.shown]
        boxes = []
        for mark in cells:
            rows, columns = mark.panel.values.shape
            right, low = mark.x + columns * mark.width, mark.y + rows * mark.height
            assert mark.x >= 0 and right <= page + 0.01 and low <= drawing.height
            boxes.append((mark.x, mark.y, right, low))
        for a, b in itertools.combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_factors_stand_where_their_product_is_read():
    """Q at the left of the products and Kᵀ above them; V above what the weights make of it."""
    for until in flow.PARTS:
        scene = flow.scene(steps(until)[-1], until=until)
        panel = scene.flat()[0]
        marks = [mark for mark in draw(scene).marks if isinstance(mark, Cells)]
        at = dict(zip(panel.shown, marks, strict=True))
        for left, above, product in (("q", "k", "products"), ("weights", "v", "context")):
            assert (at[left].y, at[left].height) == (at[product].y, at[product].height)
            assert at[left].x < at[product].x
            assert (at[above].x, at[above].width) == (at[product].x, at[product].width)
            assert at[above].y < at[product].y


def test_controls_begin_by_hand_and_go_on_head_by_head():
    begin = {"step": "Q, K, V", "head": 0, "example": flow.BY_HAND}
    first = explore.flow(until="attention")
    assert first.values == begin
    assert first.controls["head"].layout.display == "none"  # one head: nothing to choose
    first.controls["example"].value = flow.SENTENCE
    assert first.values == begin | {"example": flow.SENTENCE, "head": 1}
    whole = explore.flow()
    step, head, example = (whole.controls[name] for name in ("step", "head", "example"))
    assert whole.values == begin | {"step": "Wᴼ", "head": 1, "causal": False}
    assert step.options == STEPS[1:]  # by hand X is not given
    assert (head.max, head.layout.display) == (1, None)
    example.value = flow.SENTENCE
    assert (step.value, step.options) == ("Wᴼ", STEPS[1:])
    assert (head.max, head.layout.display) == (11, None)
    assert head.value == 1
    step.value = "softmax"
    example.value = flow.BY_HAND
    assert (step.value, whole.view.error) == ("softmax", "")
    mha, x = random_case()
    yours = explore.flow(mha, x, until="mask")
    assert yours.values == {"step": "mask", "head": 0, "causal": True}
    assert yours.controls["step"].options[:2] == STEPS[:2]  # X stands alone at first
    assert yours.controls["head"].max == mha.n_heads - 1
    opens = {until: explore.flow(until=until).values["step"] for until in flow.PARTS}
    about = ["Q, K, V", "Q, K, V", "Q, K, V", "mask", "Wᴼ"]  # where the notebook speaks of it
    assert [*opens.values()] == about and explore.flow(mha, x).values["step"] == "Wᴼ"
    shown = [explore.flow(until=until).first.flat()[0].shown for until in flow.PARTS]
    assert [names[-1] for names in shown] == ["context"] * 4 + ["output"]  # a still shows all


# Machado, Oliveira and Fernandes (2009), without one kind of cone; and the eye that has all three.
EYES = {
    "all": np.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def seen_by(eye: str, colour: str) -> np.ndarray:
    """The colour in OKLab (Ottosson, 2020), as this eye sees it."""
    parts = np.array(rgb(colour)) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    r, g, b = np.clip(np.asarray(EYES[eye]) @ linear, 0, 1)
    long = np.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    middle = np.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = np.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return np.array(
        [
            0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
            1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
            0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
        ]
    )


def distance(one: str, other: str) -> float:
    return min(float(np.linalg.norm(seen_by(e, one) - seen_by(e, other))) for e in EYES)


def test_roles_are_told_apart_by_every_eye_from_each_other_and_from_heads():
    assert tuple(ROLES) == ("query", "key", "value", "output")
    for colour in ROLES.values():
        assert min(distance(colour, head) for head in HEADS) > 0.06
    assert min(distance(a, b) for a, b in itertools.combinations(ROLES.values(), 2)) > 0.09
    for role, colour in ROLES.items():
        assert tuple(MAPS[role][-1][:3]) == rgb(colour)
