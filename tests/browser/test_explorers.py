"""Explorers as a learner meets them: a real JupyterLab, a real browser, keys and pointer."""

import json
import random
import sys
from pathlib import Path

import nbformat
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

lab = pytest.importorskip("lab")
if lab.CHROMIUM is None:
    pytest.skip(
        "no Chromium here: on Debian and Ubuntu, apt install chromium", allow_module_level=True
    )
pytest.importorskip("playwright", reason="playwright is not installed: make setup installs it")

import demo  # noqa: E402

from mha_lesson import explore  # noqa: E402
from mha_lesson.course.export import export  # noqa: E402
from mha_lesson.pictures import figures, layout, live, panels  # noqa: E402

SETUP = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport demo"
COMPUTED, STORED = ".mha-explorer >> nth=0", ".mha-explorer >> nth=1"
# Nothing here takes a second when all is well; a machine may be busy.
SOON = 300_000
LOW = {"width": 1366, "height": 460}  # a laptop's window with not much height


@pytest.fixture(scope="module")
def browser():
    with lab.chromium() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = lab.Lab(tmp_path_factory.mktemp("lab"))
    cells = [SETUP, "demo.computed_explorer()", "demo.stored_explorer()"]
    lab.notebook(made.work / "demo.ipynb", cells)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def page(server, browser):
    made = server.open(browser, "demo.ipynb")
    made.wait_for_selector(f"{STORED} >> canvas[aria-label]")
    yield made
    made.context.close()


def view(page, which: str, expression: str):
    """What `expression` says of a view, called `v`."""
    script = f"c => {{ const v = c.mha; return {expression} }}"
    return page.locator(which).locator("canvas").evaluate(script)


def slider(page, name: str):
    return page.get_by_role("slider", name=name, exact=True)


def settle(page, which: str, caption: str) -> None:
    """Waits until the caption of a view is this one."""
    page.locator(which).locator(".mha-caption").filter(has_text=caption).wait_for(timeout=SOON)


def texts(scene: panels.Scene, by_row: bool = False) -> list[str]:
    """What a picture writes, sorted: its labels and the numbers in its cells."""
    out = []
    for mark in layout.draw(scene, height=layout.SCREEN).marks:
        if isinstance(mark, layout.Text):
            out.append(mark.text)
        elif isinstance(mark, layout.ColourBar):
            out.append((by_row and mark.by_row) or mark.end)
        elif isinstance(mark, layout.Cells) and isinstance(mark.panel, panels.Heatmap):
            heat = mark.panel
            out += [
                panels.number(v, heat.decimals)
                for (r, c), v in _cells(heat)
                if mark.numbers and not heat.blocked[r, c] and not heat.mask
            ]
        elif isinstance(mark, layout.Cells):
            fits = [t for row in mark.panel.labels for t in row if t]
            out += [t for t in fits if mark.width - 2 >= 7.4 * len(t) + 2]
    return sorted(out)


def _cells(heat: panels.Heatmap):
    return (
        ((r, c), heat.values[r, c])
        for r in range(heat.values.shape[0])
        for c in range(heat.values.shape[1])
    )


def test_a_live_notebook_shows_the_moving_picture_and_not_the_still_one(page):
    assert page.locator(".mha-view canvas").count() == 2
    assert page.locator(".jp-OutputArea figure").count() == 0


def test_the_same_in_notebook_7(server, browser):
    page = server.open(browser, "demo.ipynb", where="notebooks")
    page.wait_for_selector(f"{STORED} >> canvas[aria-label]", timeout=SOON)
    assert "JupyterNotebook" in page.evaluate("() => jupyterapp.name.replaceAll(' ', '')")
    assert page.locator(".jp-OutputArea figure").count() == 0
    for which, name, key, scene in (
        (COMPUTED, "n", "ArrowRight", demo.computed(4, "it", "none")),
        (STORED, "size", "End", demo.stored(256, True)),
    ):
        slider(page, name).focus()
        page.keyboard.press(key)
        settle(page, which, scene.caption)
        assert sorted(view(page, which, "v.drawn")) == texts(scene)
    page.set_viewport_size(LOW)
    assert_stays(page.locator(COMPUTED))
    page.context.close()


def test_a_notebook_without_its_kernel_shows_the_still_picture(server, browser):
    bundle, _ = demo.stored_explorer()._repr_mimebundle_()
    bundle.pop("application/vnd.jupyter.widget-view+json")
    path = lab.notebook(server.work / "still.ipynb", ["demo.stored_explorer()"])
    made = nbformat.read(path, 4)
    made.cells[0].outputs = [nbformat.v4.new_output("execute_result", bundle, execution_count=1)]
    nbformat.write(made, path)
    page = server.open(browser, "still.ipynb", run=False)
    picture = page.locator(".jp-OutputArea figure img")
    picture.wait_for(timeout=SOON)
    assert picture.evaluate("i => i.naturalWidth") > 100
    assert picture.get_attribute("alt") == demo.stored(4, True).alt
    page.context.close()


def test_keys_move_the_slider_the_picture_and_its_words(page):
    slider(page, "n").focus()
    page.keyboard.press("ArrowRight")
    expected = demo.computed(4, "it", "none")
    settle(page, COMPUTED, expected.caption)
    canvas = page.locator(COMPUTED).locator("canvas")
    assert canvas.get_attribute("aria-label") == expected.alt
    assert slider(page, "n").evaluate("e => e === document.activeElement")


def test_both_renderers_write_the_same(page):
    for n in (5, 6):
        slider(page, "n").focus()
        page.keyboard.press("ArrowRight")
        scene = demo.computed(n, "it", "none")
        settle(page, COMPUTED, scene.caption)
        assert sorted(view(page, COMPUTED, "v.drawn")) == texts(scene)


def test_a_burst_of_keys_ends_on_the_right_picture(page):
    slider(page, "n").focus()
    page.keyboard.press("Home")
    settle(page, COMPUTED, demo.computed(1, "it", "none").caption)
    for _ in range(29):
        page.keyboard.press("ArrowRight")
    scene = demo.computed(30, "it", "none")
    settle(page, COMPUTED, scene.caption)
    page.wait_for_timeout(500)  # whatever came later would show
    sent = json.loads(json.dumps(live.pack(scene)[0]["marks"]))
    places = ["kind", "x", "y", "w", "h", "width", "height", "points", "text", "rows", "says"]
    shown = view(page, COMPUTED, f"v.scene.marks.map(m => {places}.map(key => m[key] ?? null))")
    assert shown == [[mark.get(key) for key in places] for mark in sent]
    first = view(page, COMPUTED, "[...v.fields[0].values]")
    assert first == pytest.approx(scene.flat()[0].values.ravel().tolist(), rel=1e-6)


def test_every_control_has_its_name(page):
    assert slider(page, "n").count() == 1
    assert slider(page, "size").count() == 1
    assert page.get_by_label("word", exact=True).count() == 1
    assert page.get_by_label("fault", exact=True).count() == 1
    assert page.get_by_label("scaled", exact=True).count() == 1
    page.wait_for_function("() => document.querySelector('[aria-valuetext=\"4\"]')")
    assert slider(page, "size").get_attribute("aria-valuetext") == "4"


def _serious(page) -> list:
    """What axe-core calls critical or serious in the outputs of a notebook."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, context={"include": [[".jp-OutputArea"]]}).response
    assert found["passes"], "axe looked at nothing"
    serious = [v for v in found["violations"] if v["impact"] in ("critical", "serious")]
    return [(v["id"], [node["html"][:200] for node in v["nodes"]]) for v in serious]


def test_axe_finds_nothing_serious(page):
    assert not _serious(page)


def test_cells_are_read_by_keyboard_alone(page):
    page.locator(COMPUTED).locator("canvas").focus()
    page.keyboard.press("Escape")
    active = "() => jupyterapp.shell.currentWidget.content.activeCellIndex"
    before = page.evaluate(active)
    scene = demo.computed(30, "it", "none")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    reading = page.locator(COMPUTED).get_by_role("status").text_content()
    assert reading == "head 0: " + scene.flat()[0].text(1, 1)
    page.keyboard.press("PageDown")
    reading = page.locator(COMPUTED).get_by_role("status").text_content()
    assert reading == "head 1: " + scene.flat()[1].text(1, 1)
    assert page.evaluate(active) == before


def test_pointing_at_a_cell_reads_it_and_lights_its_twin(page):
    canvas = page.locator(COMPUTED).locator("canvas")
    canvas.scroll_into_view_if_needed()
    fields = view(page, COMPUTED, "v.fields.map(f => f.kind)")
    first, second = (i for i, kind in enumerate(fields) if kind == "tiles")
    x, y, w, h = view(page, COMPUTED, f"v.fields[{first}].box(0, 5)")
    scale = view(page, COMPUTED, "v.canvas.clientWidth / (v.scene.width + 4)")
    canvas.hover(position={"x": (x + w / 2 + 2) * scale, "y": (y + h / 2 + 2) * scale})
    assert page.locator(COMPUTED).get_by_role("status").text_content() == "place 5"
    assert view(page, COMPUTED, "v.lit") == [[first, 0, 5], [second, 1, 1]]
    page.mouse.move(5, 5)
    assert page.locator(COMPUTED).locator(".mha-reading").text_content() == ""


def test_a_pressed_cell_is_kept_while_a_slider_moves_and_framed_in_all_equal_maps(page):
    canvas, status = (
        page.locator(COMPUTED).locator("canvas"),
        page.locator(COMPUTED).get_by_role("status"),
    )
    x, y, w, h = view(page, COMPUTED, "v.fields[0].box(2, 1)")
    canvas.click(position={"x": x + w / 2 + 2, "y": y + h / 2 + 2})
    slider(page, "n").focus()
    page.keyboard.press("ArrowLeft")
    scene = demo.computed(29, "it", "none")
    settle(page, COMPUTED, scene.caption)
    assert status.text_content() == "head 0: " + scene.flat()[0].text(2, 1)
    assert view(page, COMPUTED, "v.lit") == [[1, 2, 1]]
    page.keyboard.press("ArrowRight")
    settle(page, COMPUTED, demo.computed(30, "it", "none").caption)
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
    settle(page, COMPUTED, "n = 30")


def test_failures_are_sentences_in_the_explorer_and_pass(page):
    alert = page.locator(COMPUTED).get_by_role("alert")
    fault = page.get_by_label("fault", exact=True)
    fault.select_option("refused")
    alert.filter(has_text="n must be friendly, got <b>unfriendly</b>").wait_for(timeout=SOON)
    fault.select_option("broken")
    alert.filter(has_text="KeyError: 'lost'").wait_for(timeout=SOON)
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


def test_the_kernel_hears_of_a_slider_once_it_rests(page):
    slider(page, "size").focus()
    page.keyboard.press("Home")
    canvas = page.locator(STORED).locator("canvas").element_handle()
    around = """([c, at]) => (tree => tree?.every((node, i) => (node[0] !== null) === (i === at)))(
        c.mha.stored?.tree)"""
    page.wait_for_function(around, arg=[canvas, 0])  # the kernel has heard, and sent what is near
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
    assert view(page, STORED, "v.caption.textContent") == demo.stored(256, True).caption
    page.wait_for_function(around, arg=[canvas, 3])
    assert page.evaluate("words") == 1
    page.locator(STORED).locator(".mha-bar [type=checkbox]").evaluate("""box => {
      const home = new KeyboardEvent("keydown", { key: "Home", bubbles: true });
      document.activeElement.dispatchEvent(home);
      box.click();
    }""")  # what the browser does not have: the kernel is told of both at once
    settle(page, STORED, demo.stored(4, False).caption)
    page.get_by_label("scaled", exact=True).check()
    page.wait_for_function(around, arg=[canvas, 0])


def test_what_is_one_move_away_is_shown_without_a_word_from_the_kernel(page):
    slider(page, "size").focus()
    page.keyboard.press("ArrowRight")
    settle(page, STORED, demo.stored(16, True).caption)
    holds = "c => (t => t && t[1][0] !== null && t[3][0] === null)(c.mha.stored?.tree)"
    canvas = page.locator(STORED).locator("canvas").element_handle()
    page.wait_for_function(holds, arg=canvas)  # the kernel has rested since, and sent what is near
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.keyboard.press("End")
    settle(page, STORED, demo.stored(256, True).caption)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.get_by_label("scaled", exact=True).uncheck()
    scene = demo.stored(16, False)
    settle(page, STORED, scene.caption)
    assert sorted(view(page, STORED, "v.drawn")) == texts(scene)


def test_the_picture_is_crisp_narrow_and_in_the_theme_of_the_page(server, browser):
    server.dark(True)
    viewport = {"width": 900, "height": 900}
    page = server.open(browser, "demo.ipynb", viewport=viewport, device_scale_factor=2)
    page.wait_for_selector(f"{STORED} >> canvas[aria-label]")
    dark = "() => document.querySelector('.mha-view canvas').mha.colours?.dark"
    page.wait_for_function(dark)  # the theme may come after the picture
    canvas = "document.querySelector('.mha-view canvas')"  # drawn anew when its page is laid out
    page.wait_for_function(f"() => Math.abs({canvas}.width / {canvas}.clientWidth - 2) < 0.02")
    assert view(page, COMPUTED, "v.stage.clientWidth <= v.el.parentElement.clientWidth")
    light = "{theme: 'JupyterLab Light'}"
    page.evaluate(f"() => jupyterapp.commands.execute('apputils:change-theme', {light})")
    page.wait_for_function("() => !document.querySelector('.mha-view canvas').mha.colours?.dark")
    server.dark(False)
    page.context.close()


def test_numbers_read_alike_in_python_and_in_the_browser(page):
    rng = random.Random(3)
    values = [rng.choice((-1, 1)) * 10 ** rng.uniform(-7, 13) for _ in range(400)]
    values += [0, 0.125, 0.375, 0.5, 1, -2.5, 999.5, 9999.5, 10_000, 99_950, 1e6, 0.0995, 12]
    values += [10_012, 25_000, 1e10, -2.5e9]
    script = """async ([source, values]) => {
        const blob = new Blob([source], {type: 'text/javascript'});
        const {number} = await import(URL.createObjectURL(blob));
        return values.map(v => [number(v), number(v, 2)]);
    }"""
    written = page.evaluate(script, [live.SCRIPT, values])
    for value, (free, fixed) in zip(values, written, strict=True):
        assert panels.number(value) == free, value
        assert panels.number(value, 2) == fixed, value


# Scrolls until the picture's end is the lowest that is seen; what then covers the picture's top?
STAYS = """e => {
  const bar = e.querySelector('.mha-bar'), stage = e.querySelector('.mha-stage');
  stage.scrollIntoView({block: 'end'});
  let port = e.parentElement;
  while (port && !(/auto|scroll/.test(getComputedStyle(port).overflowY) && port.scrollHeight > port.clientHeight))
    port = port.parentElement;
  const frame = port ? port.getBoundingClientRect() : {top: 0, bottom: innerHeight};
  const seen = [...bar.querySelectorAll('[role=slider], input, .mha-caption')].filter(c => c.offsetParent);
  return {
    scrolled: frame.top - e.getBoundingClientRect().top,
    within: seen.every(c => c.getBoundingClientRect().top >= frame.top - 1
                         && c.getBoundingClientRect().bottom <= frame.bottom + 1),
    above: seen.every(c => { const box = c.getBoundingClientRect(); return bar.contains(
      document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)); }),
    picture: stage.getBoundingClientRect().bottom - bar.getBoundingClientRect().bottom,
  };
}"""  # noqa: E501


def assert_stays(explorer) -> None:
    """Controls and sentence are seen above the picture, and much of the picture below them."""
    found = explorer.evaluate(STAYS)
    assert found["scrolled"] > 40, found
    assert found["within"] and found["above"] and found["picture"] > 150, found


def test_controls_and_sentence_stay_in_sight_in_a_notebook(page):
    page.set_viewport_size(LOW)
    assert_stays(page.locator(COMPUTED))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A notebook saved as a page: the explorer that is stored, and the one that moves."""
    path = tmp_path_factory.mktemp("export") / "demo.ipynb"
    cells = [SETUP, "demo.stored_explorer()", "demo.moving_explorer()"]
    return export(lab.notebook(path, cells))


@pytest.mark.parametrize("kind", ["page", "export"])
def test_controls_and_sentence_stay_in_sight_on_a_phone(browser, tmp_path, request, kind):
    if kind == "export":
        path = request.getfixturevalue("exported")
    else:
        path = tmp_path / "page.html"
        path.write_text(f"<!doctype html><title>t</title>{live.page(demo.moving_explorer())}")
    page = browser.new_context(viewport={"width": 360, "height": 640}).new_page()
    page.goto(path.as_uri())
    moving = page.locator(".mha-explorer").last
    moving.locator("canvas[aria-label]").wait_for()
    assert_stays(moving)
    page.context.close()


@pytest.fixture(scope="module")
def gallery(server, browser):
    """Every explorer on a laptop's page, run."""
    cells = [
        "from mha_lesson import explore, training\n"
        "runs = training.two_sides_runs(2, [0], n_steps=20, snapshot_every=10)",
        *(f"explore.{name}({'runs' * (name == 'training')})" for name in explore.__all__),
    ]
    lab.notebook(server.work / "all.ipynb", cells)
    page = server.open(browser, "all.ipynb", viewport={"width": 1366, "height": 9000})
    done = f"() => document.querySelectorAll('canvas[aria-label]').length === {len(cells) - 1}"
    page.wait_for_function(done)
    page.wait_for_timeout(1000)  # whatever failed later would show
    yield page
    page.context.close()


def test_every_explorer_draws_and_axe_finds_nothing_serious(gallery):
    assert gallery.locator(".jp-RenderedText[data-mime-type*=error]").count() == 0
    assert set(gallery.locator(".mha-alert").all_text_contents()) == {""}
    for handle in gallery.get_by_role("slider").all():
        assert handle.get_attribute("aria-label")
    assert not _serious(gallery)


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
    for explorer in gallery.locator(".mha-explorer").all():
        assert explorer.evaluate("e => e.offsetHeight") <= 560
        assert explorer.evaluate("e => e.scrollWidth - e.clientWidth") <= 1


def test_a_thumbnail_moves_the_slider(gallery):
    shown = gallery.locator(".mha-explorer").nth(explore.__all__.index("real_heads"))
    canvas = shown.locator("canvas")
    x, y, w, h = canvas.evaluate("c => c.mha.fields.find(f => f.m.picks?.[1] === 8).box(5, 5)")
    canvas.click(position={"x": x + w / 2 + 2, "y": y + h / 2 + 2})
    shown.locator(".mha-caption").filter(has_text="Layer 3, head 8").wait_for(timeout=SOON)
    assert shown.get_by_role("slider", name="head").get_attribute("aria-valuetext") == "8"


def test_the_colour_bar_says_when_each_row_has_its_own_range(gallery):
    masks = f".mha-explorer >> nth={explore.__all__.index('masks')}"
    scene = explore.masks().scene
    marks = layout.draw(scene, height=layout.SCREEN).marks
    bar = next(m for m in reversed(marks) if isinstance(m, layout.ColourBar))
    key = next(m for m in reversed(marks) if isinstance(m, layout.Text) and m.text == "blocked")
    box = f"{key.x - 20}, {bar.y}, {layout.text_width(key.text) + 20}, {bar.height}"
    beside = f"v.context.getImageData({box}).data.join()"  # the key to what is blocked
    before = view(gallery, masks, beside)
    assert sorted(view(gallery, masks, "v.drawn")) == texts(scene)
    gallery.locator(masks).get_by_label("each row up to its own largest").check()
    assert sorted(view(gallery, masks, "v.drawn")) == texts(scene, by_row=True)
    assert view(gallery, masks, beside) == before


def test_a_saved_page_moves_without_kernel_or_network(browser, exported):
    page = browser.new_context(offline=True).new_page()
    page.goto(exported.as_uri())
    first = ".mha-explorer >> nth=0"
    page.wait_for_selector(f"{first} >> canvas[aria-label]")
    slider(page, "size").focus()
    page.keyboard.press("ArrowRight")
    scene = demo.stored(16, True)
    settle(page, first, scene.caption)
    assert sorted(view(page, first, "v.drawn")) == texts(scene)
    page.context.close()


@pytest.fixture(scope="module")
def memory_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "page.html"
    path.write_text(f"<!doctype html><title>t</title>{live.page(explore.memory())}")
    return path


@pytest.mark.parametrize("width", [700, 360])
def test_a_saved_page_is_laid_out_for_its_width_and_a_tap_reads_a_cell(browser, memory_page, width):
    context = browser.new_context(viewport={"width": width, "height": 700}, has_touch=True)
    page = context.new_page()
    page.goto(memory_page.as_uri())
    page.wait_for_selector("canvas[aria-label]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("canvas").evaluate("c => c.clientWidth / c.mha.scene.width") >= 1
    assert page.locator(".mha-stage").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    box = page.locator("canvas").evaluate("c => c.mha.fields[0].box(0, 1)")
    page.locator("canvas").tap(
        position={"x": box[0] + box[2] / 2 + 2, "y": box[1] + box[3] / 2 + 2}
    )
    assert "place 1 of the strip" in page.locator(".mha-reading").text_content()
    heights = "all => all.map(e => e.offsetHeight).filter(Boolean)"
    assert min(page.locator("label, summary").evaluate_all(heights)) >= 24
    context.close()


@pytest.mark.parametrize(("screen", "kept"), [(400, False), (3000, True)])
def test_a_picture_that_shrinks_keeps_the_place_that_is_seen_and_no_more(
    browser, memory_page, screen, kept
):
    page = browser.new_page(viewport={"width": 360, "height": screen})
    page.goto(memory_page.as_uri())
    page.wait_for_selector("canvas[aria-label]")
    for end in ("max", "min"):
        move = f"s => {{ s.value = s.{end}; s.dispatchEvent(new Event('input')); }}"
        page.get_by_role("slider").evaluate_all(f"all => all.forEach({move})")
        page.wait_for_timeout(400)
        place = page.locator(".mha-stage").evaluate(
            "e => [e.offsetHeight, e.querySelector('canvas').offsetHeight]"
        )
        if end == "max":
            tall = place[0]
    assert place[1] < tall and place[0] == (tall if kept else place[1])
    page.close()


def test_a_control_of_a_page_has_the_positions_that_the_others_leave(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><title>t</title>{live.page(demo.dependent_explorer())}")
    page = browser.new_context(offline=True).new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("canvas[aria-label]")

    def stands(n: int, part: int, word: str = "it") -> None:
        settle(page, ".mha-explorer", demo.part_of(n, part, word).caption)
        if n == 1:  # nothing to choose
            assert slider(page, "part").count() == 0
            return
        assert slider(page, "part").get_attribute("max") == str(n - 1)
        assert slider(page, "part").get_attribute("aria-valuetext") == str(part)

    stands(3, 1)
    slider(page, "n").focus()
    page.keyboard.press("Home")
    stands(1, 0)
    page.keyboard.press("End")
    stands(5, 1)  # where it stood before there was too little room
    slider(page, "part").focus()
    page.keyboard.press("End")
    stands(5, 4)
    slider(page, "n").focus()
    page.keyboard.press("ArrowLeft")
    stands(4, 3)  # who wants the end gets the end
    page.get_by_role("combobox").select_option("creek")
    stands(4, 3, "creek")
    assert "that needs a kernel" in page.locator(".mha-controls").text_content()
    page.context.close()


def test_a_page_without_scripts_shows_the_still_picture(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><title>t</title>{live.page(demo.stored_explorer())}")
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    assert page.locator("figure img").get_attribute("alt") == demo.stored(4, True).alt
    assert figures.html(demo.stored(4, True)) in path.read_text()
    page.context.close()
