"""Explorers as a learner meets them: a real JupyterLab, a real browser, keys and pointer."""

import json

import demo
import nbformat
import pytest
from screen import (
    SETUP,
    assert_bar_in_sight,
    await_caption,
    heard,
    middle,
    serious,
    slider,
    texts,
    view,
)

import forks
import lab
from mha_course import explore
from mha_course.base.notebook import paths
from mha_course.collection import questions
from mha_course.explore import n00_cut
from mha_course.pictures import layout, live
from mha_course.pictures.marks import ColourBar, Text, text_width
from mha_lesson import pretrained
from mha_lesson.text import SENTENCE

COMPUTED, STORED = ".mha-explorer >> nth=0", ".mha-explorer >> nth=1"
DESK = {"width": 1400, "height": 1100}
LOW = {"width": 1366, "height": 460}  # a laptop's window with not much height
# The kernel is idle, and the page knows it.
IDLE = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    made = lab.Lab(tmp_path_factory.mktemp("lab"), forks.server_config())
    still, demonstration, every = (made.work / f"{name}.ipynb" for name in ("still", "demo", "all"))
    cells = ["demo.computed_explorer()", "demo.stored_explorer()"]
    lab.notebook(demonstration, [SETUP, *cells])
    imports = f"{SETUP}\nfrom mha_course import explore"
    given = {"training": "[demo.untrained(20)]"}
    calls = [f"explore.{name}({given.get(name, '')})" for name in explore.__all__]
    lab.notebook(every, [imports, *calls, "explore.flow(until='attention')"])
    bundle, _ = demo.stored_explorer()._repr_mimebundle_()
    bundle.pop("application/vnd.jupyter.widget-view+json")
    stored = nbformat.read(lab.notebook(still, cells[1:]), 4)
    stored.cells[0].outputs = [nbformat.v4.new_output("execute_result", bundle, execution_count=1)]
    nbformat.write(stored, still)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def jupyterlab(server, browser):
    """JupyterLab, which starts dark, for one notebook after the other: still, gallery, page."""
    server.dark(True)
    page = server.open(browser, "still.ipynb", run=False)
    yield page
    page.context.close()


def themed(page, dark: bool) -> None:
    """Waits until all pictures are drawn for this theme, which may come after them."""
    pictures = "[...document.querySelectorAll('.mha-view canvas')]"
    page.wait_for_function(f"dark => {pictures}.every(c => c.mha.colours?.dark === dark)", arg=dark)


def choose(page, theme: str) -> None:
    """Changes JupyterLab's theme while pictures are shown."""
    change = "theme => jupyterapp.commands.execute('apputils:change-theme', { theme })"
    page.evaluate(change, f"JupyterLab {theme}")
    themed(page, theme == "Dark")


def test_a_notebook_without_its_kernel_shows_the_still_picture(jupyterlab):
    picture = jupyterlab.locator(".jp-OutputArea figure img")
    picture.wait_for()
    drawn = "i => i.naturalWidth > 100"
    jupyterlab.wait_for_function(drawn, arg=picture.element_handle())
    assert picture.get_attribute("alt") == demo.stored(4, True).alt


@pytest.mark.long
def test_shift_enter_passes_by_a_fold_and_goes_into_it_once_opened(server, jupyterlab):
    """JupyterLab's own would select what is hidden, show the notebook's top, and open the fold."""
    path = lab.notebook(server.work / "fold.ipynb", ["1", "'# ' + str(2)", "3"])
    made = nbformat.read(path, 4)
    folded = {"jp-MarkdownHeadingCollapsed": True}
    made.cells.insert(1, nbformat.v4.new_markdown_cell("## Folded", metadata=folded))
    made.cells.insert(3, nbformat.v4.new_markdown_cell("## Open"))
    nbformat.write(made, path)
    page = jupyterlab
    server.switch_to(page, "fold.ipynb", run=False)
    selected = "i => jupyterapp.shell.currentWidget.content.activeCellIndex === i"
    page.wait_for_function(IDLE.replace("session.kernel.", "session?.kernel?."))
    page.locator(".jp-CodeCell .cm-content").first.click()
    for index in (1, 3):
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(selected, arg=index)
    page.locator(".jp-showHiddenCellsButton").focus()
    page.wait_for_function(selected, arg=1)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(selected, arg=3)
    page.locator(".jp-showHiddenCellsButton").click()  # opens it, and is gone with the focus
    page.locator(".jp-showHiddenCellsButton").wait_for(state="detached")
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(selected, arg=2)


@pytest.fixture(scope="module")
def gallery(server, jupyterlab):
    """Every explorer on a laptop's page, and flow() with one head by hand, run; shown in the dark,
    and then in the light."""
    jupyterlab.set_viewport_size({"width": 1366, "height": 9000})
    server.switch_to(jupyterlab, "all.ipynb")
    done = "all => document.querySelectorAll('canvas[aria-label]').length === all"
    jupyterlab.wait_for_function(done, arg=len(explore.__all__) + 1)
    themed(jupyterlab, dark=True)
    choose(jupyterlab, "Light")
    jupyterlab.wait_for_timeout(1000)  # whatever failed later would show
    return jupyterlab


def test_every_explorer_draws_and_axe_finds_nothing_serious(gallery):
    assert gallery.locator(".jp-RenderedText[data-mime-type*=error]").count() == 0
    assert set(gallery.locator(".mha-alert").all_text_contents()) == {""}
    gallery.wait_for_function(  # the last is named a moment after it has come
        "[...document.querySelectorAll('[role=slider]')].every(handle => handle.ariaLabel)"
    )
    assert not serious(gallery, {"include": [[".jp-OutputArea"]]})
    focused = gallery.locator(".mha-explorer").locator(
        "a, button, input, select, summary, [tabindex]"
    )
    kept = "all => all.filter((e) => !('lmSuppressShortcuts' in e.dataset)).map((e) => e.outerHTML)"
    assert focused.evaluate_all(kept) == []  # there b adds no cell, and an arrow moves to none


# Whether each panel's title heads a table that has more than its own name in each row.
TABLES = """e => {
  const { mha: view } = e.querySelector("canvas");
  view.details.open = true;
  return [view.scene.titles, [...view.tables.querySelectorAll("table")].map((t) => [
    t.caption.textContent, t.rows.length, [...t.tBodies[0].rows].every((r) => r.cells.length > 1),
  ])];
}"""


@pytest.mark.long
def test_every_panel_of_every_explorer_has_a_table(gallery):
    for explorer in gallery.locator(".mha-explorer").all():
        explorer.evaluate(TABLES)
    gallery.wait_for_timeout(300)
    for explorer, name in zip(
        gallery.locator(".mha-explorer").all(), explore.__all__, strict=False
    ):
        titles, tables = explorer.evaluate(TABLES)
        assert tables and all(rows > 1 and cells for _, rows, cells in tables), name
        assert len({title for title, *_ in tables}) == len(tables), name  # no two alike
        named = {part for title, *_ in tables for part in (title, title.split(" of sequence ")[0])}
        # blocks; own tables; ribbons are a map's; a sentence is heard word by word
        if name not in ("flow", "cut", "real_heads", "writes"):
            assert {*titles} <= named, name
    for explorer in gallery.locator(".mha-explorer").all():
        explorer.evaluate("e => { e.querySelector('canvas').mha.details.open = false; }")


def test_handles_stand_on_their_tracks(gallery):
    off = gallery.locator(".mha-explorer .noUi-handle").evaluate_all(
        """all => all.filter(e => e.offsetWidth).map(e => {
          const middle = ({ top, height }) => top + height / 2;
          const track = e.closest('.noUi-target');
          return middle(e.getBoundingClientRect()) - middle(track.getBoundingClientRect());
        })"""
    )
    assert off and max(map(abs, off)) <= 1, off


def test_every_explorer_stands_on_a_laptop_s_screen(gallery):
    sizes = "all => all.map((e) => [e.offsetHeight, e.scrollWidth - e.clientWidth])"
    found = gallery.locator(".mha-explorer").evaluate_all(sizes)
    assert found and max(high for high, _ in found) <= 560, found
    assert max(over for _, over in found) <= 1, found


def test_a_row_of_a_head_is_its_switch(gallery):
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("head_writes"))
    canvas, box = shown.locator("canvas"), shown.get_by_label("head 3", exact=True)
    for on in (False, True):
        canvas.click(position=middle(canvas, "v.fields[0]", 3, 5))
        says = f"Heads of layer 3 that write: {11 + on} of 12."
        shown.locator(".mha-caption", has_text=says).wait_for()  # it is announced as well, later
        assert box.is_checked() == on


def test_what_is_said_of_a_word_hides_no_word(gallery):
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("real_heads"))
    canvas, reading = shown.locator("canvas"), shown.locator(".mha-reading")
    canvas.hover(position=middle(canvas, "v.fields[0]", 9, 0))
    reading.filter(has_text="dog →").wait_for()
    said, first = reading.bounding_box(), middle(canvas, "v.fields[0]", 0, 0)
    assert said["y"] + said["height"] < canvas.bounding_box()["y"] + first["y"] - 6


def test_the_kernel_is_asked_what_two_cuts_do(gallery):
    try:
        model = pretrained.load()
    except pretrained.WeightsMissing as missing:
        pytest.skip(str(missing))
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("cut"))
    canvas, [it, creek, dog] = shown.locator("canvas"), (14, 2, 9)
    for word in (creek, dog):
        canvas.click(position=middle(canvas, "v.fields[0]", word, 1))
    cuts = [(3, 1, it, creek), (3, 1, it, dog)]
    moved = n00_cut.moves(model, SENTENCE, [cuts])[0, it]
    said = f"With 2 cuts the last vector of “it” moves by {100 * moved.item():.1f}%."
    shown.locator(".mha-caption").filter(has_text=said).wait_for()
    shown.get_by_role("button", name="undo").click()


def test_a_thumbnail_moves_the_slider(gallery):
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("real_heads"))
    canvas = shown.locator("canvas")
    canvas.click(position=middle(canvas, "v.fields.find(f => f.m.picks?.[1] === 8)", 5, 5))
    shown.locator(".mha-caption").filter(has_text="Layer 3, head 8").wait_for()
    shown.locator("[role=slider][aria-label=head][aria-valuetext='8']").wait_for()


def prefetched(gallery, number: int):
    """One of its explorers, once the kernel has sent what is one move away."""
    shown = gallery.locator(".mha-explorer").nth(number)
    sent = "c => Boolean(c.mha.prefetched)"
    gallery.wait_for_function(sent, arg=shown.locator("canvas").element_handle())
    return shown


@pytest.mark.long
def test_a_slider_that_another_control_moved_keeps_its_own_request(gallery):
    """One head by hand, of the sentence head 1: not the last, though it stood at the last."""
    shown = prefetched(gallery, len(explore.__all__))
    shown.get_by_label("example").select_option("the sentence")
    shown.locator(".mha-caption").filter(has_text="Layer 3, head 1: ").wait_for()
    shown.locator("[aria-label=head][aria-valuetext='1']").wait_for()


@pytest.mark.long
def test_a_slider_ends_where_its_list_ends_now(gallery):
    """ipywidgets leaves it as long as it was made: 4 key heads for 2 heads, or none for 4."""
    shown = prefetched(gallery, explore.__all__.index("cache"))
    for name, key, value, last in (
        ("h_kv", "ArrowRight", "4", 2),
        ("h", "ArrowLeft", "2", 1),
        ("h_kv", "ArrowRight", "2", 1),  # it goes no further
        ("h", "ArrowRight", "4", 2),
    ):
        slider(shown, name).press(key)
        now = f"[aria-label=h_kv][aria-valuetext='{value}'][aria-valuemax='{last}.0']"
        shown.locator(now).wait_for()
    shown.locator("canvas[aria-label*='4 for 4 query heads']").wait_for()


@pytest.mark.long
def test_end_goes_as_far_as_the_other_controls_let_it(gallery):
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("cache"))
    for name, end in (("T", "12"), ("step", "11"), ("h", "4"), ("h_kv", "4")):
        handle = shown.locator(f"[role=slider][aria-label={name}]")
        handle.focus()
        gallery.keyboard.press("End")
        shown.locator(f"[aria-label={name}][aria-valuetext='{end}']").wait_for()
        if name == "T":
            shown.locator("[aria-label=step][aria-valuemax='11.0']").wait_for()
    shown.locator(".mha-caption").filter(has_text="Token 11 of 12").wait_for()


def test_the_colour_bar_says_when_each_row_has_its_own_range(gallery):
    """Of the picture as it begins: the tests below move it."""
    masks = f".mha-explorer >> nth={explore.__all__.index('masks')}"
    scene = explore.masks().scene
    marks = layout.draw(scene, height=layout.SCREEN).marks
    bar = next(m for m in reversed(marks) if isinstance(m, ColourBar))
    key = next(m for m in reversed(marks) if isinstance(m, Text) and m.text == "blocked")
    box = f"{key.x - 20}, {bar.y}, {text_width(key.text) + 20}, {bar.height}"
    beside = f"v.context.getImageData({box}).data.join()"  # the key to what is blocked
    before = view(gallery, masks, beside)
    assert sorted(view(gallery, masks, "v.drawn")) == texts(scene)
    gallery.locator(masks).get_by_label("each row up to its own largest").check()
    assert sorted(view(gallery, masks, "v.drawn")) == texts(scene, by_row=True)
    assert view(gallery, masks, beside) == before


# Presses a key so often before the kernel can answer; what the caption and the picture say then.
PRESSED = """(e, [key, times]) => {
  const explorer = e.closest('.mha-explorer');
  for (let i = 0; i < times; i++) e.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  return explorer.querySelector('.mha-caption').textContent + explorer.querySelector('canvas').mha.drawn.join();
}"""  # noqa: E501


def test_the_browser_moves_dependent_sliders_without_the_kernel(gallery):
    """Who stands at the end stays there, who does not comes back."""
    heads = [("ArrowLeft", 1, "8 heads with 48 dimensions"), ("ArrowRight", 1, "with 32")]
    masks = [("ArrowLeft", 4, "1, 2 of 2 real"), ("ArrowRight", 6, "1, 3 of 8 real")]
    for name, which, moves in (("heads", "h", heads), ("masks", "T", masks)):
        shown = prefetched(gallery, explore.__all__.index(name))
        handle = slider(shown, which)
        handle.focus()
        for *keys, said in moves:
            assert said in handle.evaluate(PRESSED, keys)
    for name, stands in (("length 0", "8"), ("length 1", "3")):  # shown is masks
        there = f"[role=slider][aria-label='{name}'][aria-valuetext='{stands}']"
        shown.locator(there).wait_for()


def test_labels_have_no_tooltip_null_and_choices_an_arrow_that_is_seen(gallery):
    labels = gallery.locator(".mha-explorer .widget-label")
    assert labels.count() > 20
    assert "null" not in labels.evaluate_all("all => all.map(e => e.title)")
    arrows = gallery.locator(".mha-bar select").evaluate_all(
        "all => all.map(e => [getComputedStyle(e).backgroundImage, getComputedStyle(e).appearance])"
    )
    assert arrows and all(arrow == ["none", "auto"] for arrow in arrows)  # the browser's own


@pytest.fixture(scope="module")
def page(server, jupyterlab):
    """The demonstration, in the place of the gallery."""
    jupyterlab.set_viewport_size(DESK)
    server.switch_to(jupyterlab, "demo.ipynb")
    for which in (COMPUTED, STORED):
        jupyterlab.wait_for_selector(f"{which} >> canvas[aria-label]")
    choose(jupyterlab, "Light")
    return jupyterlab


@pytest.mark.long
def test_the_same_in_notebook_7(server, browser):
    page = server.open(browser, "demo.ipynb", where="notebooks")
    page.wait_for_selector(f"{STORED} >> canvas[aria-label]")
    assert "JupyterNotebook" in page.evaluate("() => jupyterapp.name.replaceAll(' ', '')")
    assert page.locator(".jp-OutputArea figure").count() == 0
    for which, name, key, scene in (
        (COMPUTED, "n", "ArrowRight", demo.computed(4, "it", "none")),
        (STORED, "size", "End", demo.stored(256, True)),
    ):
        slider(page, name).focus()
        page.keyboard.press(key)
        await_caption(page, which, scene.caption)
        assert sorted(view(page, which, "v.drawn")) == texts(scene)
    page.set_viewport_size(LOW)
    assert_bar_in_sight(page.locator(COMPUTED))
    page.context.close()


def test_the_picture_is_crisp_narrow_and_in_the_theme_of_the_page(page):
    choose(page, "Dark")
    devtools, shows = page.context.new_cdp_session(page), "Emulation.setDeviceMetricsOverride"
    devtools.send(shows, {"width": 900, "height": 900, "deviceScaleFactor": 2, "mobile": False})
    canvas = "document.querySelector('.mha-view canvas')"  # drawn anew when its page is laid out
    page.wait_for_function(f"() => Math.abs({canvas}.width / {canvas}.clientWidth - 2) < 0.02")
    assert view(page, COMPUTED, "v.stage.clientWidth <= v.el.parentElement.clientWidth")
    choose(page, "Light")
    devtools.send(shows, {**DESK, "deviceScaleFactor": 1, "mobile": False})


def test_keys_move_the_slider_the_picture_and_its_words(page):
    """And both renderers write the same."""
    slider(page, "n").focus()
    for n in (4, 5, 6):
        page.keyboard.press("ArrowRight")
        scene = demo.computed(n, "it", "none")
        await_caption(page, COMPUTED, scene.caption)
        assert page.locator(COMPUTED).locator("canvas").get_attribute("aria-label") == heard(
            scene.alt
        )
        assert sorted(view(page, COMPUTED, "v.drawn")) == texts(scene)
    assert slider(page, "n").evaluate("e => e === document.activeElement")


@pytest.mark.long
def test_a_burst_of_keys_ends_on_the_right_picture(page):
    slider(page, "n").focus()
    page.keyboard.press("Home")
    await_caption(page, COMPUTED, demo.computed(1, "it", "none").caption)
    for _ in range(29):
        page.keyboard.press("ArrowRight")
    scene = demo.computed(30, "it", "none")
    await_caption(page, COMPUTED, scene.caption)
    page.wait_for_timeout(500)  # whatever came later would show
    sent = json.loads(json.dumps(live.pack(scene)[0]["marks"]))
    places = ["kind", "x", "y", "w", "h", "width", "height", "points", "text", "rows", "says"]
    shown = view(page, COMPUTED, f"v.scene.marks.map(m => {places}.map(key => m[key] ?? null))")
    assert shown == [[mark.get(key) for key in places] for mark in sent]
    first = view(page, COMPUTED, "[...v.fields[0].values]")
    assert first == pytest.approx(scene.flat()[0].values.ravel().tolist(), rel=1e-6)


def test_only_a_slider_of_numbers_takes_typing(page):
    readouts = page.locator(".mha-explorer .widget-readout")
    slider(page, "size").focus()
    for key in ("ArrowRight", "ArrowLeft"):  # ipywidgets opens it anew after every move
        page.keyboard.press(key)
    page.wait_for_function("() => document.querySelector('[aria-valuetext=\"4\"]')")
    page.wait_for_timeout(200)
    typed = readouts.evaluate_all("all => all.map(e => [e.isContentEditable, e.role])")
    assert typed == [[True, "textbox"], [False, None]]


def position(page) -> int:
    return int(slider(page, "n").get_attribute("aria-valuetext"))


def test_cells_are_read_by_keyboard_alone(page):
    page.locator(COMPUTED).locator("canvas").focus()
    page.keyboard.press("Escape")
    active = "() => jupyterapp.shell.currentWidget.content.activeCellIndex"
    before = page.evaluate(active)
    scene = demo.computed(position(page), "it", "none")
    page.keyboard.press("ArrowRight")  # from the cell where Escape let go
    page.keyboard.press("ArrowDown")
    reading = page.locator(COMPUTED).locator(".mha-reading").text_content()
    assert reading == "head 0: " + scene.flat()[0].text(1, 1)
    page.keyboard.press("PageDown")
    reading = page.locator(COMPUTED).locator(".mha-reading").text_content()
    assert reading == "head 1: " + scene.flat()[1].text(1, 1)
    assert page.evaluate(active) == before


def test_pointing_at_a_cell_reads_it_and_marks_the_linked_one(page):
    canvas = page.locator(COMPUTED).locator("canvas")
    canvas.scroll_into_view_if_needed()
    fields = view(page, COMPUTED, "v.fields.map(f => f.m.kind)")
    first, second = (i for i, kind in enumerate(fields) if kind == "tiles")
    canvas.hover(position=middle(canvas, f"v.fields[{first}]", 0, 5))
    reading = page.locator(COMPUTED).locator(".mha-reading")
    reading.filter(has_text="place 5").wait_for()
    assert reading.text_content() == "place 5"
    assert view(page, COMPUTED, "v.lit") == [[first, 0, 5], [second, 1, 1]]
    page.mouse.move(5, 5)
    page.wait_for_function("e => !e.textContent", arg=reading.element_handle())


def test_a_pressed_cell_is_kept_while_a_slider_moves_and_framed_in_all_equal_maps(page):
    shown = page.locator(COMPUTED)
    canvas, status = shown.locator("canvas"), shown.locator(".mha-reading")
    canvas.click(position=middle(canvas, "v.fields[0]", 2, 1))
    slider(page, "n").focus()
    n = position(page)
    page.keyboard.press("ArrowLeft")
    scene = demo.computed(n - 1, "it", "none")
    await_caption(page, COMPUTED, scene.caption)
    assert status.text_content() == "head 0: " + scene.flat()[0].text(2, 1)
    assert view(page, COMPUTED, "v.lit") == [[1, 2, 1]]
    page.keyboard.press("ArrowRight")
    await_caption(page, COMPUTED, demo.computed(n, "it", "none").caption)
    canvas.focus()
    page.keyboard.press("Escape")
    assert status.text_content() == ""


def test_what_is_typed_is_text_and_no_markup(page):
    word = page.get_by_label("word", exact=True)
    word.fill("<img src=x onerror=alert(1)>")
    page.wait_for_function(
        "() => document.querySelector('canvas').mha.drawn.some(t => t.includes('<img src'))"
    )
    assert page.locator(".mha-view img").count() == 0
    word.fill("it")
    await_caption(page, COMPUTED, f"n = {position(page)}:")


def test_failures_are_sentences_in_the_explorer_and_pass(page):
    alert = page.locator(COMPUTED).get_by_role("alert")
    fault = page.get_by_label("fault", exact=True)
    fault.select_option("refused")
    alert.filter(has_text="n must be friendly, got <b>unfriendly</b>").wait_for()
    fault.select_option("broken")
    alert.filter(has_text="KeyError: 'lost'").wait_for()
    fault.select_option("none")
    page.wait_for_function("() => document.querySelector('.mha-alert').textContent === ''")


def test_nothing_jumps_and_nothing_is_wider_than_its_cell(page):
    boxes = "() => [...document.querySelectorAll('.mha-explorer')].map(e => e.offsetHeight)"
    slider(page, "n").focus()
    heights = set()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(150)
        heights.add(str(page.evaluate(boxes)))
    assert len(heights) == 1
    outputs = page.locator(".jp-OutputArea-output")
    wider = outputs.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)")
    assert max(wider) <= 1


def test_the_kernel_gets_a_slider_s_value_once_it_rests(page):
    slider(page, "size").focus()
    page.keyboard.press("Home")
    canvas = page.locator(STORED).locator("canvas").element_handle()
    around = """([c, at]) => c.mha.prefetched?.widths[0] === 860
        && c.mha.prefetched.tree.every((node, i) => (node[0] !== null) === (i === at))"""
    # The kernel has heard, also of the page's width, and sent what is near.
    page.wait_for_function(around, arg=[canvas, 0])
    page.wait_for_function(IDLE)  # with a word on its way the next one would follow at once
    at_once = page.evaluate("""() => {
      const send = WebSocket.prototype.send;
      window.words = 0;
      WebSocket.prototype.send = function (word) {
        const text = typeof word === "string" ? word : new TextDecoder().decode(word);
        if (text.includes("comm_msg")) words++;
        send.call(this, word);
      };
      for (let i = 0; i < 3; i++) {
        const press = new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
        document.activeElement.dispatchEvent(press);
      }
      return words;
    }""")
    assert at_once == 0
    await_caption(page, STORED, demo.stored(256, True).caption)
    page.wait_for_function(around, arg=[canvas, 3])
    assert page.evaluate("words") == 1
    page.locator(STORED).get_by_label("scaled").evaluate("""box => {
      const home = new KeyboardEvent("keydown", { key: "Home", bubbles: true });
      document.activeElement.dispatchEvent(home);
      box.click();
    }""")  # what the browser does not have: the kernel hears of both at once
    await_caption(page, STORED, demo.stored(4, False).caption)
    page.get_by_label("scaled", exact=True).check()
    page.wait_for_function(around, arg=[canvas, 0])


def test_states_one_move_away_are_shown_without_the_kernel(page):
    slider(page, "size").focus()
    page.keyboard.press("ArrowRight")
    await_caption(page, STORED, demo.stored(16, True).caption)
    holds = "c => (t => t && t[1][0] !== null && t[3][0] === null)(c.mha.prefetched?.tree)"
    canvas = page.locator(STORED).locator("canvas").element_handle()
    page.wait_for_function(holds, arg=canvas)  # the kernel has rested since, and sent what is near
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.keyboard.press("End")
    await_caption(page, STORED, demo.stored(256, True).caption)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.get_by_label("scaled", exact=True).uncheck()
    scene = demo.stored(16, False)
    await_caption(page, STORED, scene.caption)
    assert sorted(view(page, STORED, "v.drawn")) == texts(scene)


def test_controls_and_sentence_stay_in_sight_in_a_notebook(page):
    page.set_viewport_size(LOW)
    assert_bar_in_sight(page.locator(COMPUTED))


@pytest.mark.long
def test_links_of_a_guess_and_of_a_text_and_a_search_open_a_fold(server, jupyterlab):
    """JupyterLab itself would not open it, and stops short while cells are still measured."""
    path = server.work / paths()["06"].name
    asked = 'from mha_course.cells.predictions import predict\npredict(heads_one="sharper")'
    made = nbformat.read(lab.notebook(path, [asked]), 4)
    around = ["between\n\n" * 30] * 20
    label, choice = next(iter(questions.questions()["heads_one"].choices.items()))
    sources = ["[a text's link](#Third)", *around, "## Second", f"### {choice.heading}", *around]
    sources += ["## Third", "within"]
    made.cells += [nbformat.v4.new_markdown_cell(source) for source in sources]
    for fold in (22, 44):
        assert made.cells[fold].source in ("## Second", "## Third")
        made.cells[fold].metadata["jp-MarkdownHeadingCollapsed"] = True
    nbformat.write(made, path)
    server.switch_to(jupyterlab, path.name)
    guess = jupyterlab.locator(".mha-guess details[name]", has_text=label)
    for summary in guess.locator("summary").all():
        summary.click()
    jupyterlab.wait_for_function("window.mhaGuesses")
    guess.locator("summary").first.press("b")  # adds no cell
    jupyterlab.get_by_role("button", name="Forget all my guesses").press("b")
    count = "jupyterapp.shell.currentWidget.content.widgets.length"
    assert jupyterlab.evaluate(count) == len(made.cells)
    guess.get_by_role("link").click()
    arrived = """() => {
      const heading = document.querySelector('h3[data-jupyter-id]');
      const seen = heading.checkVisibility({ contentVisibilityAuto: true });
      const notebook = heading.closest('.jp-WindowedPanel-outer').getBoundingClientRect();
      return seen && Math.abs(heading.getBoundingClientRect().top - notebook.top) < 40;
    }"""
    jupyterlab.wait_for_function(arrived)
    notebook = "jupyterapp.shell.currentWidget.content"
    jupyterlab.get_by_role("link", name="a text's link").click()
    there = f"!{notebook}.widgets[44].headingCollapsed && {notebook}.activeCellIndex === 44"
    jupyterlab.wait_for_function(there)
    pulled = """async (link) => {
      const panel = document.querySelector('.jp-WindowedPanel-outer');
      const after = (ms) => new Promise((done) => setTimeout(done, ms));
      link.click();
      await after(150);  // between the first step to the heading, at 100, and the next
      panel.dispatchEvent(new WheelEvent('wheel', { bubbles: true }));
      panel.scrollTop = 0;
      await after(400);
      return panel.scrollTop;
    }"""
    link = jupyterlab.get_by_role("link", name="a text's link")
    assert link.evaluate(pulled) == 0  # whoever scrolls meanwhile is not pulled back
    at = f"{notebook}.activeCellIndex"
    jupyterlab.evaluate(f"() => {{ {at} = 0; {notebook}.widgets[44].headingCollapsed = true; }}")
    jupyterlab.keyboard.press("Control+f")
    jupyterlab.locator(".jp-DocumentSearch-input").fill("within")
    jupyterlab.locator(".jp-DocumentSearch-index-counter", has_text="1").wait_for()
    jupyterlab.keyboard.press("Enter")
    seen = f"""!{notebook}.widgets[44].headingCollapsed && {at} === 45
      && {notebook}.widgets[45].node.checkVisibility({{ contentVisibilityAuto: true }})"""
    jupyterlab.wait_for_function(seen)
