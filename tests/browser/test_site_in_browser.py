"""The site as a reader meets it: opened from a disk, on a phone and on a desk, light and dark."""

import re

import numpy as np
import pytest
from screen import middle, serious

import notebooks
import sample_site
import website
from mha_course.cells import predictions
from mha_course.explore import n14_writes
from mha_course.explore.n01_scaling import scene

SCALING = "01_scaled_dot_product_attention"
# What reaches beyond the window, but for what lies in a part that moves sideways by itself.
TOO_WIDE = """() => [...document.querySelectorAll('main *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll'))
  .map(e => e.outerHTML.slice(0, 90))"""
TOO_SMALL = """() => [...document.querySelectorAll('button, input, summary, nav a, td a')]
  .map(e => [e, e.getBoundingClientRect()])
  .filter(([e, box]) => box.width && (box.height < 24 || box.width < 24) && !e.closest('label'))
  .map(([e]) => e.outerHTML.slice(0, 90))"""
# The colours of text, each with what lies behind it, and whether its letters are large, which may
# contrast less: all that contrast depends on. The first text of each is marked.
COLOURS = """() => {
  const behind = new Map(), found = new Set();
  for (const e of document.querySelectorAll('html, body, body *')) {
    const style = getComputedStyle(e);
    const own = [style.backgroundColor, style.backgroundImage, style.opacity].join();
    const below = behind.get(e.parentElement) ?? '';
    behind.set(e, own === 'rgba(0, 0, 0, 0),none,1' ? below : `${below} ${own}`);
    const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.6 && style.fontWeight >= 700;
    const seen = e.checkVisibility({ visibilityProperty: true }) && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    const before = found.size;
    if (seen) found.add(`${style.color} on${behind.get(e)}${large ? ', large' : ''}`);
    e.toggleAttribute('data-first', found.size > before);
  }
  return [...found];
}"""  # noqa: E501
# Moves a control of an explorer to one of its ends, and says its name; "" where a state hides it,
# and then it cannot be reached by keys either.
MOVE = """([k, last]) => {
  const control = document.querySelectorAll('.mha-bar :is(input, select)')[k], label = control.closest('label');
  control.focus();
  const seen = control.checkVisibility({ visibilityProperty: true });
  if (seen !== (document.activeElement === control)) throw new Error(label.textContent);
  if (!seen) return '';
  if (control.type === 'checkbox') control.checked = last;
  else if (control.type === 'range') control.value = last ? control.max : control.min;
  else control.value = [...control.options].filter(o => !o.disabled).at(last ? -1 : 0).value;
  control.dispatchEvent(new Event('input', { bubbles: true }));
  return label.textContent;
}"""  # noqa: E501
OPEN = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
# What axe's other rules read, but for sizes, places and the class that says the theme.
WRITTEN = 'document.body.innerHTML.replace(/ (style|data-first)="[^"]*"| mha-dark/g, \'\')'
DRAWN = """dark => [...document.querySelectorAll('[id^=explore-]')]
  .every(e => {
    const drawn = e.querySelector('canvas[aria-label]');
    if (!drawn) e.scrollIntoView(); // then it comes
    return drawn?.mha.colours.dark === dark;
  })"""
# axe's rules about colours; the first takes most of its time. And what they look at: a text for
# each pair of colours, and every link.
CONTRAST, LINKS = "color-contrast", "link-in-text-block"
COLOURED = {"include": [["[data-first]"], ["a[href]"]]}
ALL_ELSE = {CONTRAST: {"enabled": False}}


@pytest.fixture(scope="module")
def site(shared_folder):
    return shared_folder("site", sample_site.build)


@pytest.fixture
def window(tab, site):
    """Opens pages of the site in a window; a request that leaves the disk fails the test."""
    watched, left = set(), []

    def failed(error) -> None:
        left.append(str(error))

    def requested(request) -> None:
        if not request.url.startswith(("file:", "data:")):
            left.append(request.url)

    def sized(width: int, scheme: str):
        def show(name: str):
            page = tab(viewport={"width": width, "height": 700}, has_touch=width < 500)
            page.emulate_media(color_scheme=scheme)
            if page not in watched:
                page.on("pageerror", failed)
                page.on("request", requested)
                watched.add(page)
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_function("!document.querySelector('.opening')")
            return page

        return show

    yield sized
    for page in watched:
        page.evaluate("localStorage.clear()")  # the theme that was chosen, for example
        page.remove_listener("pageerror", failed)
        page.remove_listener("request", requested)
    assert not left


@pytest.fixture(params=[(360, "light"), (1366, "dark")], ids=str)
def opened(request, window):
    return window(*request.param)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["index", SCALING, "TEACHING", "CLAIMS"])
def test_a_page_fits_and_axe_finds_nothing_serious(window, name):
    """A phone shows text in no other colours than a desk, and themes differ in colours alone: so
    axe judges contrast on the desk, of a text for each pair of colours, and all else at both
    widths, in one theme."""
    desk, phone = (window(width, "light")(name) for width in (1366, 360))
    written = set()
    for scheme in ("light", "dark"):
        for page in (desk, phone):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(DRAWN, arg=scheme == "dark")
            where = f"{page.viewport_size['width']} {scheme}"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
            assert page.evaluate(TOO_WIDE) == [], where
            assert page.evaluate(TOO_SMALL) == [], where
        assert set(phone.evaluate(COLOURS)) <= set(desk.evaluate(COLOURS)), scheme
        rules = {"runOnly": {"type": "rule", "values": [CONTRAST, LINKS]}}
        assert serious(desk, COLOURED, **rules) == [], scheme
        written.add((desk.evaluate(WRITTEN), phone.evaluate(WRITTEN)))
    assert len(written) == 1
    for page in (desk, phone):
        assert serious(page, rules=ALL_ELSE) == []


def assert_is_fine_wherever_controls_stand(page, scheme) -> None:
    page.wait_for_function(DRAWN, arg=scheme == "dark")
    page.evaluate(OPEN)
    moved = set()
    for k in range(page.locator(".mha-bar :is(input, select)").count()):
        for last in (True, False):
            moved.add(page.evaluate(MOVE, [k, last]))
            assert serious(page, ".mha-explorer") == [], (k, last)
    assert len(moved - {""}) > 1


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem[:2])
def test_axe_finds_nothing_serious_on_any_page_where_all_was_opened_and_moved(
    tab, shared_folder, path, scheme
):
    site = shared_folder("whole site", lambda place: website.build(place, notebooks.paths()))
    page = tab(viewport={"width": 1366, "height": 700})
    page.emulate_media(color_scheme=scheme)
    page.goto((site / f"{path.stem}.html").as_uri())
    page.evaluate(OPEN)
    if page.locator("[id^=explore-]").count():  # 12 has none
        assert_is_fine_wherever_controls_stand(page, scheme)
    assert serious(page) == []


@pytest.mark.one_in(2)
def test_an_explorer_moves_and_a_cell_is_read(opened):
    page = opened(SCALING)
    cell = page.locator("#cell-explorer")
    canvas = cell.locator("canvas[aria-label]")
    cell.scroll_into_view_if_needed()
    canvas.wait_for()
    cell.get_by_role("slider").focus()
    page.keyboard.press("End")
    said = cell.locator(".mha-caption")
    said.filter(has_text=scene(4096, False).caption).wait_for()
    canvas.scroll_into_view_if_needed()
    point = canvas.tap if page.evaluate("innerWidth") < 500 else canvas.hover
    point(position=middle(canvas, "v.fields[0]", 0, 3))
    cell.locator(".mha-reading").filter(has_text="d_k = ").wait_for()


# Whether the whole block of the step, and the button, are within sight.
STEP_IS_SEEN = """label => {
  const { flow, canvas, stage } = document.querySelector('[id^=explore-flow] canvas').mha;
  const f = flow.fields[flow.flow.last], [x] = f.box(0, 0), [end, , w] = f.box(0, f.columns - 1);
  const left = canvas.getBoundingClientRect().left, place = stage.getBoundingClientRect();
  const button = document.querySelector('[id^=explore-flow] button.next');
  return button.textContent === label && button.getBoundingClientRect().top >= 0
    && left + x >= place.left - 2 && left + end + w <= place.right + 2
    && canvas.getBoundingClientRect().top + f.box(f.rows - 1, 0)[1] + f.box(0, 0)[3] <= innerHeight;
}"""


def test_a_phone_shows_what_the_next_step_adds(window):
    page = window(360, "light")("index")
    page.locator("[id^=explore-flow]").scroll_into_view_if_needed()
    for said in (*["next step"] * 3, "from the start", "next step"):
        page.locator("button.next").click()
        page.wait_for_function(STEP_IS_SEEN, arg=said)


# How far all has jumped since the page was opened, once it was read down to its end, no faster than
# this machine draws it.
JUMPED = """async () => {
  let sum = 0;
  const add = (list) => list.getEntries().forEach(e => { sum += e.value; });
  new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
  const rest = (ms) => new Promise(done => setTimeout(done, ms)), { body } = document;
  await rest(700);
  const drawn = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const waits = (e) => e.checkVisibility() && !e.querySelector('canvas[aria-label]')
    && e.getBoundingClientRect().top < innerHeight + 250;
  const explorers = [...document.querySelectorAll('[id^=explore-]')];
  for (let y = 0, n = 0; y < body.scrollHeight; y += 150) {
    scrollTo(0, y);
    do { await drawn(); } while (n++ < 1000 && explorers.some(waits));
  }
  await rest(300);
  return sum;
}"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["index", SCALING, "03_splitting_into_heads"])
@pytest.mark.parametrize("width", [360, 768, 1350])
def test_nothing_jumps_while_a_page_is_opened_and_read(window, name, width):
    assert window(width, "light")(name).evaluate(JUMPED) < 0.05


@pytest.mark.long
def test_nothing_far_is_fetched_while_a_page_loads(window):
    page = window(360, "light")(SCALING)
    page.locator("#cell-flow").scroll_into_view_if_needed()
    page.locator("#cell-flow canvas[aria-label]").wait_for()
    assert page.locator("#cell-explorer canvas").count() == 0


@pytest.mark.long
def test_a_link_lands_where_it_points_while_the_rest_is_not_laid_out(browser, site):
    page = browser.new_page(viewport={"width": 360, "height": 700})
    page.add_init_script("window.requestIdleCallback = () => {};")
    page.goto((site / f"{SCALING}.html").as_uri())
    assert page.locator(".opening").count() == 1
    page.locator("nav details").evaluate("contents => { contents.open = true; }")
    links = page.locator("nav a[href^='#']")
    links.nth(links.count() // 2).click()
    page.wait_for_function(
        "Math.abs(document.querySelector(':target').getBoundingClientRect().y) < 60"
    )
    page.close()


@pytest.mark.long
def test_paper_shows_the_folded_code_that_a_text_speaks_of(window):
    page = window(1366, "light")(SCALING)
    fold = page.locator("#cell-creek .folded")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert fold.get_attribute("open") is not None
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert fold.get_attribute("open") is None


@pytest.mark.one_in(2)
def test_a_link_and_the_contents_open_the_fold_they_lead_to(opened, site):
    page = opened("03_splitting_into_heads")
    fold = page.locator("details.second-reading", has_text="The two functions")
    assert fold.get_attribute("open") is None
    page.locator("nav details").evaluate("contents => { contents.open = true; }")
    for again in range(2):
        page.locator("nav a", has_text="The two functions").click()
        page.wait_for_function("document.querySelector(':target').closest('details').open")
        assert -1 <= fold.bounding_box()["y"] < 60, again
        fold.evaluate("fold => { fold.open = false; }")
    page.goto("about:blank")
    page.goto((site / "03_splitting_into_heads.html").as_uri() + "#the-two-functions")
    page.wait_for_function("document.querySelector(':target').closest('details').open")


@pytest.mark.one_in(2)
def test_a_word_is_found_across_pages_by_keyboard(opened):
    page = opened("index")
    page.get_by_role("searchbox").fill("gradient saturat")
    page.locator(".find li a").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/01_*.html#*")
    assert page.locator(":target").count() == 1


@pytest.mark.long
def test_the_number_of_hits_is_announced_and_only_for_the_latest_query(opened):
    page = opened("index")
    box, status = page.get_by_role("searchbox"), page.locator(".find [role=status]")
    page.evaluate("void (load.search = new Promise((done) => { window.came = done; }))")
    box.fill("gradient")
    box.fill("")
    found = "{ title: 'gradient', text: '', page: 'a', id: 'b', page_title: 'c' }"
    page.evaluate(f"window.SECTIONS = [{found}]; came()")
    page.wait_for_timeout(700)
    assert not page.locator(".find li").count() and not status.text_content()
    box.fill("gradient")
    status.filter(has_text=re.compile("^1 section found$")).wait_for()


@pytest.mark.one_in(2)
def test_the_theme_is_chosen_and_kept(opened):
    page = opened("index")
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    changed = page.evaluate(background)
    assert changed != before
    page.reload()
    assert page.evaluate(background) == changed


DARK = "document.querySelector('canvas[aria-label]').mha.colours.dark"
INK = "getComputedStyle(document.body).color"


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_white_whatever_the_theme(window, scheme):
    page = window(1366, scheme)(SCALING)
    page.locator("#cell-explorer").scroll_into_view_if_needed()
    page.locator("#cell-explorer canvas[aria-label]").wait_for()
    if scheme == "light":
        page.get_by_role("button", name="Dark").click()
    page.wait_for_function(DARK)
    page.evaluate(f"window.seen = [[{DARK}, {INK}]]")
    page.evaluate(
        f"matchMedia('print').addEventListener('change', () => seen.push([{DARK}, {INK}]))"
    )
    page.pdf()
    page.wait_for_function("seen.length === 3")
    before, printed, after = page.evaluate("seen")
    assert before == after == [True, "rgb(223, 227, 230)"] and printed == [False, "rgb(35, 39, 43)"]


@pytest.mark.long
def test_bars_below_a_picture_keep_their_colours_where_colours_are_forced(tab, site):
    page = tab(forced_colors="active")
    page.goto((site / f"{SCALING}.html").as_uri())
    page.locator("[id^=explore-flow]").scroll_into_view_if_needed()
    page.get_by_role("slider", name="step", exact=True).focus()
    page.keyboard.press("End")
    page.locator("[id^=explore-flow] canvas").first.focus()
    page.keyboard.press("PageUp")  # from a number of Q, which has no parts, to the mixtures
    page.locator(".mha-strip i").first.wait_for(state="attached", timeout=10_000)
    drawn = page.locator(".mha-strip i").evaluate_all(
        "all => all.map(i => [i.style.background, getComputedStyle(i).backgroundColor])"
    )
    assert drawn and all(wanted == actual for wanted, actual in drawn), drawn


RENDER_BEFORE_THE_BOX = """async ([source, guesses]) => {
  const made = await import("data:text/javascript," + encodeURIComponent(source));
  const el = document.createElement("div"), sent = [], values = { names: ["a"], line: "a note" };
  const set = (_, value) => sent.push(value), nothing = () => {};
  const model = { get: (name) => values[name], set };
  for (const name of ["save_changes", "on", "off"]) model[name] = nothing;
  mhaGuesses.byQuestion = guesses;
  made.default.render({ model, el });
  const box = "<details name=a><summary>1</summary></details>";
  document.body.innerHTML = `<div class=mha-guess>${box}</div>`;
  document.body.append(el);
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  return [sent, document.querySelectorAll("[data-mine]").length];
}"""


@pytest.mark.parametrize(
    ("guesses", "result"), [({"a": {"says": "1"}}, [[{"a": "1"}], 1]), ({}, [[], 0])]
)
def test_stored_guesses_are_sent_and_marked_and_nothing_else_is(browser, guesses, result):
    page = browser.new_page()
    sent = [predictions.SCRIPT, guesses]
    assert page.evaluate(RENDER_BEFORE_THE_BOX, sent) == result
    page.close()


@pytest.mark.long
def test_guesses_of_two_tabs_are_both_kept(browser, site):
    context = browser.new_context()
    tabs = context.new_page(), context.new_page()
    for page in tabs:
        page.goto((site / f"{SCALING}.html").as_uri())
    names = []
    for n, page in enumerate(tabs):
        box = page.locator(".mha-guess div:has(> details)").nth(n).locator("details").first
        names.append(box.get_attribute("name"))
        box.locator("summary").first.click()
    kept = "Object.keys(JSON.parse(localStorage.getItem('mha_lesson guesses')))"
    for page in tabs:
        assert page.evaluate(kept) == names
    tabs[0].wait_for_function("document.querySelectorAll('[data-mine]').length === 2")
    context.close()


@pytest.mark.long
def test_a_link_restores_where_the_controls_stood(window):
    page = window(1366, "light")(SCALING)
    explorer = page.locator("#explore-scaling")
    explorer.scroll_into_view_if_needed()
    slider = explorer.locator("input[type=range]").first
    slider.focus()
    page.keyboard.press("End")
    caption = explorer.locator(".mha-caption").text_content()
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    explorer.locator("canvas[aria-label]").wait_for()
    page.wait_for_function(
        "said => document.querySelector('#explore-scaling .mha-caption').textContent === said",
        arg=caption,
    )
    assert slider.input_value() == slider.get_attribute("max")
    assert "explore-scaling?" in link


@pytest.mark.parametrize(
    ("missing", "said"),
    [("script", "is there a network"), ("search", "is there a network"), ("feature", "too old")],
)
def test_what_a_browser_cannot_show_is_said(tab, site, missing, said):
    old = "delete window.DecompressionStream" if missing == "feature" else ";"
    page = tab(script=old)
    if missing != "feature":
        page.route(
            f"**/{'explore-scaling' if missing == 'script' else 'search'}.js",
            lambda way: way.abort(),
        )
    page.goto((site / f"{SCALING}.html").as_uri())
    page.locator("header input").fill("softmax")
    page.locator("#explore-scaling").scroll_into_view_if_needed()
    place = ".find" if missing == "search" else "#explore-scaling"
    page.locator(place, has_text=said).wait_for()
    still = page.locator("#explore-scaling figure")  # it stands, or the live picture comes
    still.wait_for(state="detached" if missing == "search" else "visible")
    page.unroute_all()


FIRST = "[id^=explore-writes]"


@pytest.mark.one_in(2)
def test_a_word_of_the_first_picture_is_cut_above_the_fold_and_a_link_restores_it(opened):
    page = opened("index")
    about, _ = n14_writes.stored()["The capital of France is"]
    word = page.locator(f"{FIRST} .mha-word", has_text="France")
    word.wait_for()
    end = page.locator(f"{FIRST} .mha-next").bounding_box()
    assert end["y"] + end["height"] < page.viewport_size["height"]
    word.click()
    caption, left = page.locator(f"{FIRST} .mha-caption"), about["left"][3]
    said = f"falls from {about['before'][0][1]:.0%} to {left:.0%}"
    caption.filter(has_text=said).wait_for()
    assert page.locator(f"{FIRST} .mha-answer").text_content() == "New"
    link = page.url
    page.get_by_role("button", name="Put it back").click()
    caption.filter(has_text="Which word").wait_for()
    for broken in ("cuts=[[99,0,0]]", "cuts=[1", "cuts=3&mode=[]"):
        page.goto("about:blank")
        page.goto(f"{link.split('?')[0]}?{broken}")
        caption.filter(has_text="Which word").wait_for()
    page.goto("about:blank")
    page.goto(link)
    caption.filter(has_text=said).wait_for()


def test_keys_choose_a_head_and_cut_it_and_its_layer(window):
    page = window(1366, "light")("index")
    caption = page.locator(f"{FIRST} .mha-caption")
    page.locator(f"{FIRST} canvas").evaluate("c => c.mha.choose('prompt', 4)")
    page.locator(f"{FIRST} .mha-word", has_text="Anna").focus()
    for key in ("Enter", "Tab", "Enter"):
        page.keyboard.press(key)
    caption.filter(has_text="Press the ribbon of “Anna”").wait_for()
    _, arrays = n14_writes.stored()["When Anna and Tom met, Tom hugged"]
    page.keyboard.press("Enter")
    caption.filter(
        has_text=f"to {arrays['ribbons'].reshape(30, 9, -1)[..., 1].min():.0%}"
    ).wait_for()
    page.locator(f"{FIRST} canvas").evaluate("c => c.mha.choose('prompt', 0)")
    page.locator(f"{FIRST} summary", has_text="More").press("Enter")
    page.wait_for_function("document.querySelector('canvas').mha.drawn.includes('layer 5')")
    page.locator(f"{FIRST} canvas").focus()
    for key in (*["ArrowRight"] * 5, "Enter"):
        page.keyboard.press(key)
    caption.filter(has_text="Layer 5, head 0").wait_for()
    caption.filter(has_text="Press the ribbon of “France”").wait_for()  # of which the map is
    about, arrays = n14_writes.stored()["The capital of France is"]
    for name, kept in (("head", arrays["heads"][45]), ("layer", arrays["layers"][5])):
        page.get_by_role("button", name=f"cut this {name}").press("Enter")
        caption.filter(has_text=f"Without layer 5{', head 0' * (name == 'head')}").wait_for()
        assert f"{kept:.0%}" in caption.text_content()
    page.get_by_role("button", name="Put it back").press("Enter")
    page.get_by_role("button", name="Back to words").press("Enter")
    page.locator(f"{FIRST} .mha-word", has_text="The").press("Enter")
    page.get_by_role("button", name="Put “My”").press("Enter")
    caption.filter(has_text=f"{about['other'][1]:.0%}").wait_for()
    seen = page.locator(f"{FIRST} canvas").evaluate(
        "(c, n) => [...Array(n).keys()].map((i) => c.mha.writes.weight(20 + Math.floor(i / 45), Math.floor(i / 5) % 9, i % 5))",  # noqa: E501
        len(arrays["swapped"]),
    )
    np.testing.assert_allclose(seen, arrays["swapped"], atol=1e-6)
