"""The pictures for who listens: by keyboard alone, from what is announced and handed to readers."""

import importlib
import re
from collections import Counter

import demo
import ipywidgets as widgets
import pytest
from screen import slider

from mha_course import explore
from mha_course.cells import predictions
from mha_course.collection.questions import questions
from mha_course.explore import n01_scaling
from mha_course.pictures.live import Explorer

# What any live region says, in its order; and time passes ten times as fast.
HEARD = """
  window.heard = [];
  new MutationObserver((changes) => {
    const live = "[role=status], [role=alert], [aria-live], output";
    const of = ({ target }) => (target.closest ? target : target.parentElement)?.closest(live);
    const said = [...new Set(changes.map(of))].map((live) => live?.textContent.trim());
    heard.push(...said.filter(Boolean));
  }).observe(document, { subtree: true, childList: true, characterData: true });
  const [began, now, timeout, interval] = [Date.now(), Date.now, setTimeout, setInterval];
  Date.now = () => began + 10 * (now() - began);
  window.setTimeout = (f, ms) => timeout(f, ms / 10);
  window.setInterval = (f, ms) => interval(f, ms / 10);
"""


class Listener:
    """Presses keys and hears."""

    def __init__(self, page):
        self.page, self.keys = page, 0

    def press(self, *keys: str) -> str:
        """What is said once these keys were pressed, one after the other, and all is quiet."""
        before = self.page.evaluate("heard.length")
        for key in keys:
            self.page.keyboard.press(key)
        self.keys += len(keys)
        self.page.wait_for_function("n => heard.length > n", arg=before)
        self.page.wait_for_timeout(200)
        return self.page.evaluate("heard.at(-1)")

    def go_to(self, what: str) -> None:
        """Tab until the focus is there."""
        for _ in range(30):
            self.page.keyboard.press("Tab")
            self.keys += 1
            if self.page.evaluate("what => document.activeElement.matches(what)", what):
                return
        raise AssertionError(f"no Tab leads to {what}")


def few(module: str, **options) -> Explorer:
    """The picture of an explorer with fewer sliders, which is made sooner."""
    controls = {
        name: widgets.SelectionSlider(options=values, value=values[-1])
        for name, values in options.items()
    }
    return Explorer(controls, importlib.import_module(f"mha_course.explore.{module}").scene)


PICTURES = {
    "scaling": explore.scaling,
    "writes": explore.writes,
    "masks": lambda: few("n04_masks", T=[6]),
    "heads": lambda: few("n06_heads", h=[1, 12]),
    "cache": lambda: few("n11_cache", window=["none", 4], step=[3, 4, 5, 6]),
    "flow": lambda: explore.flow(until="mask"),
    "by hand": lambda: explore.flow(until="attention"),
    "training": lambda: explore.training([demo.untrained(150)]),
}


@pytest.fixture
def listening(open_page, page_of):
    """`listening(name)`: somebody before a page with this picture."""

    def opened(name, **context):
        path = page_of(f"heard {name}", PICTURES[name])
        return Listener(open_page(path, script=HEARD, **context))

    return opened


def test_nothing_is_said_at_load_and_one_sentence_for_a_move(listening):
    """01: why √d_k? From the sliders alone."""
    ear = listening("scaling")
    assert ear.page.evaluate("heard") == []
    ear.go_to("[type=range]")
    said = ear.press("End")
    assert said == n01_scaling.scene(4096).caption
    assert float(re.search(r"weight ([\d.]+)", said)[1]) > 0.9
    ear.go_to("[type=checkbox]")
    said = ear.press("Space")
    assert said == n01_scaling.scene(4096, scaled=True).caption
    assert float(re.search(r"weight ([\d.]+)", said)[1]) < 0.6
    assert len(ear.page.evaluate("heard")) == 2 and ear.keys < 8
    assert slider(ear.page, "d_k").count() == 1  # its name without its value, said once
    assert ear.page.locator("output").count() == 0


def test_a_cut_of_the_first_screen_is_announced_once(listening):
    ear = listening("writes")
    seen = ear.page.locator(".mha-top").inner_text()
    assert not re.search("layer|head", seen)  # words that nobody has explained yet
    ear.go_to(".mha-word")
    ear.page.keyboard.press("End")
    ear.page.keyboard.press("ArrowLeft")
    assert ear.press("Enter").startswith("Without “France” it says “New”: ")
    assert ear.press("Escape").endswith("Press one: it is cut.")
    ear.go_to(".mha-main")
    assert ear.press("Enter").startswith("Without “France” it says “New”: ")
    assert ear.press("Enter").startswith("Layer 23, head 4")  # the next step has the focus
    assert len(ear.page.evaluate("heard")) == 4
    keys = ear.page.locator("[id^=mha-keys]").text_content()
    assert "Enter shows a head’s ribbons, Escape" in keys


def test_golf_names_its_sentence_and_keeps_the_focus(listening):
    """Every press draws its buttons anew."""
    ear = listening("writes")
    page = ear.page
    page.locator(".mha-inside > summary").last.click()
    ear.go_to(".mha-list button")
    said = ear.press("Enter")
    story = page.evaluate("document.querySelector('canvas').mha.writes.story")
    assert said.startswith(f"{story['text']} … {story['answer'].strip()}. Change the answer ")
    assert story["text"] in page.locator("canvas").get_attribute("aria-label")
    ribbons = Counter(k for _, _, k in story["tee"])
    for k, word in enumerate(page.locator(".mha-word").all()):
        alone = ribbons[k] == 1
        name = word.get_attribute("aria-label")
        assert (alone or name.endswith(f", {ribbons[k] or 'no'} ribbons")) and "“,”" not in name
    for cuts in (1, 2):
        page.keyboard.press("Tab")
        assert ear.press("Enter").startswith((f"{cuts} cut", "It says"))
        assert page.locator(":focus").get_attribute("aria-pressed") == "true"
    ear.go_to(".mha-steps button:last-child")
    assert ear.press("Enter").startswith("Change the answer ")
    assert page.locator(".mha-steps button:focus").count() == 1
    for below in ("canvas", ".mha-list button >> nth=1"):  # what is pressed below shows above
        page.locator(below).click()
        assert page.locator(".mha-flowing").evaluate("e => e.getBoundingClientRect().top") >= 0


def test_what_a_switch_changes_beside_the_caption_is_heard(listening):
    """04's flow: without the mask other weights mix the values, and the caption stays."""
    ear = listening("flow")
    ear.go_to("[type=range]")
    masked = ear.press("End").split(". ", 1)[1]
    ear.go_to("[type=checkbox]")
    said = ear.press("Space")
    assert said == ear.page.locator(".mha-strip p").text_content() != masked
    ear.go_to("canvas")
    assert ear.press("ArrowDown", "ArrowRight").endswith("the vector of 1st “the”, number 1: .26")
    assert ear.press("Enter").endswith(": .26; kept") and "kept" not in ear.press("ArrowRight")
    assert "· full stop" in ear.press(*["PageDown"] * 4, "End", "ArrowLeft")


@pytest.mark.long
def test_a_short_row_is_read_whole(listening):
    """By hand a zero is a number as any other; a token that is a number is named once."""
    ear = listening("by hand")
    ear.go_to("canvas")
    ear.press("ArrowDown")
    assert ear.press("r") == "token 1: number 1: 1, number 0: 0"
    assert ear.press("c") == "number 0: token 0: 1, token 2: 1, token 1: 0"
    assert ear.press("PageDown", "c") == "token 0: number 0: 1, number 1: 0"


@pytest.mark.long
def test_which_keys_are_blocked(listening):
    """04: a row of the weights, read with R."""
    ear = listening("masks")
    ear.go_to("canvas")
    assert ear.press("p").startswith("scores of sequence 0, 6 of 6 real, panel 1")
    assert "panel 2 of 6" in ear.press("PageDown")
    assert "weights of sequence 0, 6 of 6 real, panel 3" in ear.press("PageDown")
    for row in range(4):
        said = ear.press("r")
        _, blocked = said.split("blocked: ")
        assert blocked == ("1 to 5", "2 to 5", "3 to 5", "4, 5")[row]
        assert said.startswith(f"query {row}: ")
        ear.press("ArrowDown")
    assert ear.press("c").startswith("key 0: ")
    told = "weights of sequence 0, 6 of 6 real, panel 3 of 6: 6 rows, 6 columns"
    assert ear.press("p") == told
    assert ear.press("PageDown", "PageDown").startswith("mask of sequence 1, ")
    ear.page.keyboard.press("Tab")
    said = ear.press("Shift+Tab")  # one comes back to where one was, also after Escape
    assert said.startswith("mask of sequence 1, 3 of 6 real, panel 5 of 6, query 4 pad, key 0: ")
    ear.page.keyboard.press("Escape")
    assert ear.press("ArrowRight").endswith("panel 5 of 6, query 4 pad, key 1: False")


@pytest.mark.long
def test_which_head_looks_from_it_to_creek(listening):
    """06: the same cell of one head after the other; P says where it is largest."""
    ear = listening("heads")
    ear.go_to("canvas")
    said = ear.press(*["ArrowDown"] * 14, "ArrowRight", "ArrowRight")
    assert (
        "query “it”, key “creek”: " in said
    )  # after its panel, where a busy machine has not told it yet
    assert "; query “it”, key “creek” is largest in head 1, .85; " in ear.press("p")
    assert re.search(r"^query “it”: .*full stop \.\d\d", ear.press("r"))  # a mark has a name
    found = {0: said}
    for head in range(1, 12):
        found[head] = ear.press("PageDown")
        assert found[head].startswith(
            f"head {head}, panel {head + 1} of 12, query “it”, key “creek”: "
        )
    weights = [float(re.search(r"“creek”: ([\d.]+)", said)[1]) for said in found.values()]
    assert weights.index(max(weights)) == 1 and max(weights) == 0.85


@pytest.mark.long
def test_what_is_dropped_at_step_6(listening):
    """11: with a window of four."""
    ear = listening("cache")
    ear.go_to("label + label > [type=range]")
    assert ear.press("End").endswith(" 0 tokens dropped.")
    ear.page.keyboard.press("Shift+Tab")
    caption = ear.press("ArrowRight")
    assert caption.startswith("Token 6 of 8") and caption.endswith(" 3 tokens dropped.")
    ear.go_to("canvas")
    assert "keys and values" in ear.press("PageDown")
    assert "dropped: 0 to 2;" in ear.press("r")
    assert "work of this step" in ear.press("PageDown")
    assert ear.press("ArrowDown").startswith("rows of k, v made, anew: ")


@pytest.mark.long
def test_who_plays_or_holds_a_key_hears_little(listening):
    ear = listening("training")
    ear.go_to(".mha-bar button")
    before = ear.page.evaluate("heard.length")
    ear.page.keyboard.press("Enter")
    ear.page.get_by_role("button", name="Pause").wait_for()
    ear.page.get_by_role("button", name="Play").wait_for()
    ear.page.wait_for_timeout(300)
    [said] = ear.page.evaluate("n => heard.slice(n)", before)
    assert "step 150" in said
    ear.go_to("canvas")
    ear.page.wait_for_timeout(300)
    before, began = ear.page.evaluate("[heard.length, Date.now()]")
    for _ in range(25):
        ear.page.keyboard.press("ArrowRight")
    ear.page.wait_for_timeout(250)
    said, end = ear.page.evaluate("[heard.length, Date.now()]")
    assert 1 <= said - before <= 2 + (end - began) / 1000


@pytest.mark.long
def test_a_picture_says_its_keys_and_its_tables_are_tables(listening):
    """As Chromium hands them to a screen reader."""
    ear = listening("heads")
    page = ear.page
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    [picture] = [node for node in tree if node["role"]["value"] == "application"]
    told = picture["description"]["value"]
    assert "Arrow keys" in told and "R reads the row" in told
    assert page.locator(".mha-tables table").count() == 0  # none is made before it is asked for
    ear.go_to("summary")
    page.keyboard.press("Enter")
    table = page.get_by_role("table", name="head 1", exact=True)
    table.wait_for()
    assert page.get_by_role("table").count() == 12
    row = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name="it", exact=True))
    assert row.get_by_role("cell").first.text_content().startswith("largest “creek” .85, ")
    assert table.get_by_role("columnheader").nth(1).text_content() == "in words"
    slider(page, "h").focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelectorAll('.mha-tables table').length === 1")


SPOT = """c => {
  const { left, top, right, bottom } = c.mha.spot.getBoundingClientRect();
  return left >= -1 && right <= innerWidth + 1 && top >= -1 && bottom <= innerHeight + 1
    && document.elementFromPoint((left + right) / 2, (top + bottom) / 2) === c;
}"""


NOT_COVERED = """() => {
  const e = document.activeElement, { left, top, width, height } = e.getBoundingClientRect();
  const there = document.elementFromPoint(left + width / 2, top + height / 2);
  return e === document.body || e.tagName === "CANVAS" || e.contains(there);
}"""


@pytest.mark.long
@pytest.mark.parametrize("size", [(320, 256), (640, 360), (1280, 720)])
def test_what_has_the_focus_is_on_the_screen(listening, size):
    ear = listening("masks", viewport=dict(zip(("width", "height"), size, strict=True)))
    page = ear.page
    page.evaluate("document.body.style.paddingBottom = '900px'")
    ear.go_to("canvas")
    seen = page.locator("canvas")
    for key in ["PageDown"] * 5 + ["ArrowDown"] * 5 + ["End"] + ["PageUp"] * 3 + ["ArrowUp"] * 4:
        page.keyboard.press(key)
        assert seen.evaluate(SPOT), key
    for _ in range(5):
        page.keyboard.press("Tab")
    for _ in range(8):  # and back, which could end below the bar
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(NOT_COVERED)


def test_text_is_as_large_as_the_reader_wants(listening):
    page = listening("scaling").page
    wide = page.locator("canvas").evaluate("c => c.clientWidth / c.mha.scene.width")
    page.add_style_tag(content="html { font-size: 150% }")
    page.locator("canvas").evaluate("c => { c.mha.unit = 1.5; }")
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_function("() => document.querySelector('canvas').mha.scene.width < 700")
    now = page.locator("canvas").evaluate("c => c.clientWidth / c.mha.scene.width")
    assert now == pytest.approx(1.5 * wide, rel=0.02)
    assert page.locator(".mha-caption").evaluate("e => getComputedStyle(e).fontSize") == "19.5px"


def test_who_forgets_guesses_is_asked_first_and_told(tab, page_of):
    name, question = next(iter(questions().items()))
    box = predictions.Predictions({name: next(iter(question.choices))})._repr_html_()
    page = tab(script=HEARD)
    page.goto("about:blank")
    page.set_content(f"<!doctype html><title>t</title>{box}{predictions.script()}")
    group = page.get_by_role("group", name=re.compile(r"^1\. \w"))
    assert group.locator("summary").first.is_visible()
    answers = []
    page.once("dialog", lambda dialog: (answers.append(dialog.message), dialog.dismiss()))
    page.locator(".mha-guess div > details > summary").first.click()
    page.get_by_role("button", name="Forget all my guesses").click()
    assert answers and "Forget your one guess" in answers[0] and page.evaluate("heard") == []
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget all my guesses").click()
    page.wait_for_function("heard.length === 1")
    assert page.evaluate("heard[0]") == "Forgotten: your one guess."
