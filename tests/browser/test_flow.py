"""The picture of the whole computation in a real browser, as a page without kernel or network."""

import numpy as np
import pytest
import torch
from screen import slider

from mha_course import explore
from mha_course.base.numerals import number
from mha_course.base.prose import scripts
from mha_lesson import scaled_dot_product_attention
from mha_lesson.text import sentence

PAGE = (
    '<!doctype html><html lang="en" style="color-scheme:light dark"><title>flow</title>'
    '<body style="font:14px sans-serif;'
    'color:light-dark(#000,#EEE);background:light-dark(#FFF,#111)">'
    "<main><h1>flow</h1>{}</main>"
)
# Whether the whole block of the step stands between the controls and the sentence below.
BLOCK_IS_SEEN = """() => {
  const canvas = document.querySelector('canvas'), { flow } = canvas.mha, f = flow.fields[flow.flow.last];
  const edge = (s, side) => document.querySelector(s).getBoundingClientRect()[side];
  const top = edge('canvas', 'top') + f.box(0, 0)[1], [, y, , h] = f.box(f.rows - 1, 0);
  return top >= edge('.mha-bar', 'bottom') - 1 && edge('canvas', 'top') + y + h <= edge('.mha-strip', 'top') + 1;
}"""  # noqa: E501
# The blocks that a name lies on while the cursor goes through all pairs of the last step.
HIDDEN = """() => {
  const { flow } = document.querySelector('canvas').mha, { view } = flow, g = view.context, on = [];
  const f = flow.fields[flow.flow.last], blocks = Object.entries(flow.fields);
  g.fillRect = (x, y, w, h) => { for (const [name, o] of blocks) {
    const [left, top] = o.box(0, 0), [right, low, wide, high] = o.box(o.rows - 1, o.columns - 1);
    if (x < right + wide && x + w > left && y + 1 < low + high && y + h > top) on.push(name); } };
  for (let r = 0; r < f.rows; r++) for (let c = 0; c < f.columns; c++) { view.cursor = [view.fields.indexOf(f), r, c]; flow.mark(g); }
  delete g.fillRect;
  view.cursor = null;
  return on;
}"""  # noqa: E501


@pytest.fixture
def opened(open_page, page_of):
    """The last step on a page by hand, with one head, of the whole by hand, or of the sentence."""

    def show(which: str, theme: str = "light"):
        if which == "one head":
            path = page_of("flow", lambda: explore.flow(until="attention"))
        else:
            path = page_of("grown flow", explore.flow, PAGE)
        page = open_page(path, viewport={"width": 900, "height": 700}, color_scheme=theme)
        page.wait_for_function("() => document.querySelector('.mha-strip p').textContent")
        if which == "sentence":
            page.get_by_label("example").select_option("the sentence")
        slider(page, "step").focus()
        page.keyboard.press("End")
        return page

    return show


def cell_middle(page, block: str, row: int, column: int) -> tuple[float, float]:
    """The middle of a cell on the screen."""
    script = """(c, [block, row, column]) => {
        const [x, y, w, h] = c.mha.flow.fields[block].box(row, column);
        const at = c.getBoundingClientRect();
        return [at.left + x + w / 2 + 2, at.top + y + h / 2 + 2];
    }"""
    return page.locator("canvas").evaluate(script, [block, row, column])


def sentence_below(page) -> str:
    return page.locator(".mha-strip p").text_content()


def lit_cells(page) -> list:
    return page.locator("canvas").evaluate("c => c.mha.flow.lit.map(l => l.slice(0, 3))")


def values(page, block: str) -> np.ndarray:
    script = "(c, block) => [...c.mha.flow.fields[block].values]"
    return np.array(page.locator("canvas").evaluate(script, block), dtype=float)


def test_pointing_at_a_number_lights_what_made_it_and_says_how(opened):
    page, creek = opened("sentence"), sentence()
    it, at, head = creek.tokens.index("it"), creek.tokens.index("creek"), 1
    q, k, v = creek.head(head)
    score, weight = float(q[it] @ k[at]), float(creek.weights[head, it, at])
    context = float(creek.weights[head, it] @ v[:, 5])
    for block, cell, makers, words in (
        ("products", (it, at), [["q", it, None], ["k", None, at]], f"add up to {score:.2f}"),
        ("scores", (it, at), [["products", it, at]], f"{score:.2f} ÷ √32 = {score / 32**0.5:.2f}"),
        ("weights", (it, at), [["masked", it, None]], f"that is {weight:.2f}".replace("0.", ".")),
        (
            "context",
            (it, 5),
            [["weights", it, None], ["v", None, 5]],
            f"add up to {context:.2f}".replace("0.", ".").replace("-", "−"),
        ),
        ("output", (it, 3), [["concat", it, None]], "the heads write"),
    ):
        page.mouse.move(*cell_middle(page, block, *cell))
        page.locator(".mha-strip p").filter(has_text=words).wait_for()
        assert lit_cells(page) == makers, block
    assert page.locator(".mha-strip span").count() == creek.n_heads


def test_a_step_back_takes_the_block_under_the_pointer_away(opened):
    page, errors = opened("by hand"), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    blocks = page.locator("canvas").evaluate("c => c.mha.flow.flow.blocks")
    page.mouse.move(*cell_middle(page, blocks[-1], 1, 1))
    before = sentence_below(page)
    page.locator("input[type=range]").first.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "n => document.querySelector('canvas').mha.fields.length < n", arg=len(blocks)
    )
    page.wait_for_function(
        "old => document.querySelector('.mha-strip p').textContent !== old", arg=before
    )
    assert not errors


@pytest.mark.long
def test_the_browser_s_own_keys_change_no_number(opened):
    page = opened("one head")
    page.mouse.move(*cell_middle(page, "q", 0, 0))
    page.locator("canvas").focus()
    before = values(page, "q").tolist()
    for key in ("Control+Equal", "Control+Minus", "Meta+Equal"):
        page.keyboard.press(key)
    assert values(page, "q").tolist() == before
    page.keyboard.press("+")
    assert values(page, "q").tolist() != before


@pytest.mark.long
def test_a_click_keeps_a_pair_and_each_step_speaks_of_it(opened):
    page, words = opened("sentence"), sentence().labels
    page.mouse.click(*cell_middle(page, "weights", 4, 2))
    step = slider(page, "step")
    step.focus()
    for name in ("concat", "context", "weights", "masked", "scores", "products"):
        page.keyboard.press("ArrowLeft")
        arrow = name in ("weights", "masked", "scores")  # it quotes for who listens
        assert sentence_below(page).startswith(words[4] if arrow else f"“{words[4]}”"), name
        assert page.locator("canvas").evaluate("c => c.mha.flow.now()")[0] == name
    assert sentence_below(page).startswith(f"“{words[4]}” · “{words[2]}”")


def test_numbers_by_hand_are_dragged_and_stepped_and_all_follow(opened):
    page = opened("one head")
    x, y = cell_middle(page, "q", 2, 1)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 24, steps=3)
    page.mouse.up()
    q = values(page, "q").reshape(3, 2)
    assert q.tolist() == [[1, 0], [0, 1], [1, 2]]
    page.locator("canvas").focus()
    page.keyboard.press("-")
    assert values(page, "q").reshape(3, 2)[2, 1] == 1.5
    step = slider(page, "step")
    step.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")  # the reader's numbers stay
    q, k, v = (
        values(page, name).reshape(n, m) for name, n, m in (("q", 3, 2), ("k", 2, 3), ("v", 3, 2))
    )
    context, weights = scaled_dot_product_attention(
        *(torch.tensor(a) for a in (q, k.T.copy(), v)), return_weights=True
    )
    np.testing.assert_allclose(values(page, "weights"), weights.flatten(), atol=1e-5)
    np.testing.assert_allclose(values(page, "context"), context.flatten(), atol=1e-4)
    assert q[2, 1] == 1.5


def test_the_browser_raises_and_lowers_what_python_does(opened):
    page = opened("sentence")
    texts = ["W^Q", "4 · d_model² by W^O", "(B, T_q, h·d_k)", "x.view(T, h, d_k)", "n_heads", "it"]
    script = "(c, texts) => texts.map(t => c.mha.pieces(t))"
    made = page.locator("canvas").evaluate(script, texts)
    assert [[tuple(piece) for piece in pieces] for pieces in made] == [*map(scripts, texts)]


@pytest.mark.long
def test_what_is_moved_in_both_heads_goes_through_w_o(opened):
    """Of both heads, in either order, with the mask and without; 12 random numbers for each."""
    page, generator = opened("by hand"), torch.Generator().manual_seed(3)
    w_o = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0.5, 0], [-1, 0, 0, 1]])
    q, k, v = (torch.randn(2, 3, 2, generator=generator).double() for _ in range(3))
    head = slider(page, "head")
    change = """(c, [name, numbers]) => {
        const flow = c.mha.flow, i = c.mha.fields.indexOf(flow.fields[name]);
        numbers.forEach((row, r) => row.forEach((to, at) => flow.change([i, r, at], to))); }"""
    for n, key in ((1, "End"), (0, "Home")):
        head.focus()
        page.keyboard.press(key)
        page.wait_for_function(
            "n => document.querySelector('canvas').mha.flow.flow.head === n", arg=n
        )
        for name, numbers in (("q", q[n]), ("k", k[n].T), ("v", v[n])):
            page.locator("canvas").evaluate(change, [name, numbers.tolist()])
    for causal in (False, True):
        page.get_by_role("checkbox").set_checked(causal)
        blocked = (
            "b => Boolean(document.querySelector('canvas').mha.flow.fields.masked.blocked) === b"
        )
        page.wait_for_function(blocked, arg=causal)
        concat = torch.cat([*scaled_dot_product_attention(q, k, v, causal=causal)], dim=-1)
        np.testing.assert_allclose(values(page, "concat"), concat.flatten(), atol=1e-5)
        output = concat @ w_o.T.double()
        np.testing.assert_allclose(values(page, "output"), output.flatten(), atol=1e-5)
    page.mouse.move(*cell_middle(page, "output", 2, 2))
    terms = " + ".join(
        f"{number(float(c), 2)} · {w}"
        for c, w in zip(concat[2], ("0", "1", ".50", "0"), strict=True)
    )
    assert sentence_below(page) == f"token 2, number 2: {terms} = {number(float(output[2, 2]), 2)}"
    labels = page.locator(".mha-strip b").all_text_contents()
    assert labels == ["head 0", "head 0", "head 1", "head 1"]


@pytest.mark.long
def test_by_hand_there_are_two_heads_and_the_steps_of_the_sentence(opened):
    page = opened("by hand")
    step = slider(page, "step")
    head = slider(page, "head")
    assert step.get_attribute("aria-valuetext") == "W O" and head.get_attribute("max") == "1"
    assert sentence_below(page).startswith("token 2, number 0: ")
    page.get_by_label("example").select_option("the sentence")
    assert step.get_attribute("aria-valuetext") == "W O" and head.get_attribute("max") == "11"
    assert head.input_value() == "1"  # of two heads by hand it is the last, which nobody wanted
    step.focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    strip = page.locator(".mha-strip")
    assert strip.locator("b").all_text_contents()[-1] == "[SEP]"
    assert strip.evaluate("strip => strip.scrollWidth <= strip.clientWidth")  # all of it is seen
    for _ in range(4):
        page.keyboard.press("ArrowLeft")  # to Q Kᵀ: 32 products, without words
    wide = strip.locator("i").evaluate_all("bars => bars.map((bar) => bar.clientWidth)")
    assert len(wide) == 32 and min(wide) > 8
    page.keyboard.press("Home")
    assert step.get_attribute("aria-valuetext") == "Q, K, V"
    page.get_by_label("example").select_option("by hand")  # where no X is given
    assert step.get_attribute("aria-valuetext") == "Q, K, V"
    assert sentence_below(page).startswith("the value of token 2")


@pytest.mark.long
def test_with_one_head_there_is_no_slider_and_no_tab_stop_for_it(opened):
    page = opened("one head")
    assert not slider(page, "head").is_visible()
    page.get_by_label("example").focus()
    names = []
    for _ in range(2):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.closest('label')?.textContent ?? ''"))
    assert names[0].startswith("step") and names[1] == "", names


@pytest.mark.long
def test_on_paper_it_is_drawn_for_white_on_a_dark_page_too(opened):
    page = opened("sentence", "dark")
    dark = "document.querySelector('canvas').mha.colours.dark"
    assert page.evaluate(dark)
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function(f"!{dark}")
    page.emulate_media(media="screen")
    page.wait_for_function(dark)


@pytest.mark.long
def test_where_colours_may_not_tell_numbers_below_zero_are_struck(opened):
    page = opened("sentence")
    struck = """() => {
        const view = document.querySelector('canvas').mha;
        let n = 0;
        view.strike = () => { n++; };
        view.draw();
        delete view.strike;
        return n;
    }"""
    assert page.evaluate(struck) == 0
    for how in ({"media": "print"}, {"media": "screen", "contrast": "more"}):
        page.emulate_media(**how)
        assert page.evaluate(struck) > 100


@pytest.mark.one_in(2)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_laptop_and_a_phone_and_axe_is_content(opened, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened("sentence", theme)
    assert page.locator("canvas").evaluate("c => c.mha.colours.dark") == (theme == "dark")
    # from the controls to the sentence; the line of tables and files may lie below
    edge = "s => document.querySelector(s).getBoundingClientRect()"
    top, bottom = page.evaluate(edge, ".mha-explorer"), page.evaluate(edge, ".mha-strip")
    assert bottom["bottom"] - top["top"] <= 560
    found = axe.run(page).response
    assert found["passes"] and not found["violations"], found["violations"]
    for width in (849, 640, 360):  # JupyterLab beside its files; a tablet; a phone
        page.set_viewport_size({"width": width, "height": 640})
        page.wait_for_function(
            "w => document.querySelector('canvas').mha.scene.width <= w", arg=width
        )
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.locator(".mha-stage").evaluate("s => s.scrollWidth <= s.clientWidth")
        assert page.locator("canvas").evaluate("c => c.clientWidth / c.mha.scene.width") >= 0.98
    slider(page, "step").focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(BLOCK_IS_SEEN)


@pytest.mark.long
@pytest.mark.parametrize("width", [360, 640, 900])
def test_on_a_low_window_too_the_block_is_seen_and_no_name_hides_a_number(opened, width):
    page = opened("one head")
    page.set_viewport_size({"width": width, "height": 430})
    page.wait_for_function("w => document.querySelector('canvas').mha.scene.width <= w", arg=width)
    step = slider(page, "step")
    for example in ("the sentence", "by hand"):
        page.get_by_label("example").select_option(example)
        step.focus()
        page.keyboard.press("End")
        for _ in range(4):
            if width < 700:
                page.wait_for_function(BLOCK_IS_SEEN)
            assert page.evaluate(HIDDEN) == []
            page.keyboard.press("ArrowLeft")


def test_a_map_of_tokens_names_its_row_and_its_column(opened):
    page, words = opened("sentence"), sentence().labels
    page.mouse.move(*cell_middle(page, "weights", 4, 9))
    drawn = "two => document.querySelector('canvas').mha.drawn.slice(-2).join() === two.join()"
    page.wait_for_function(drawn, arg=[words[9], words[4]])
