"""What is drawn is what is hit: a press in the middle of what one sees chooses that."""

import ipywidgets as widgets
import numpy as np
import pytest
from screen import slider

from mha_course import explore
from mha_course.explore import n00_cut
from mha_course.pictures.live import Explorer
from mha_course.pictures.panels import Heatmap, Scene, Words

WINDOWS = {360: {"width": 360, "height": 780}, 1280: {"width": 1280, "height": 800}}
# Points at places on the canvas, [[what, x, y]], as a pointer does; [what, chosen] where these
# differ, and how many places there are.
PRESS = """(c, places) => {
  const v = c.mha, s = c.clientWidth / (v.scene.width + 4), box = c.getBoundingClientRect(), wrong = [];
  for (const [what, x, y] of places(v)) {
    const at = { clientX: box.left + (x + 2) * s, clientY: box.top + (y + 2) * s };
    c.dispatchEvent(new PointerEvent("pointermove", at));
    if (String(v.cursor) !== String(what)) wrong.push([what, v.cursor]);
  }
  return { wrong, count: places(v).length };
}"""  # noqa: E501
# Seven places on the middle line of each ribbon that is drawn.
RIBBONS = """v => v.scene.marks.filter((m) => m.kind === "path").flatMap(({ points: p }, j) => {
  const n = p.length / 2, high = (i) => p[2 * (n - 1 - i) + 1] - p[2 * i + 1];
  return [2, 5, 9, 12, 15, 19, 22].filter((i) => high(i) >= 1.5).map((i) => [[0, j, 1], p[2 * i], p[2 * i + 1] + high(i) / 2]);
})"""  # noqa: E501
# Places on ribbons between words, where none lies above: in the left half its query is chosen, in
# the right half its key.
BETWEEN = """v => {
  const f = v.fields[0], { x, w, h } = f.m;
  return f.links.flatMap(([r, k], n) => v.theme.way.slice(1, -1).flatMap(([along, down]) => {
    const { a, b } = f.ends(r, k), y = a + (b - a) * down, half = Number(along > 0.5);
    const hidden = f.links.slice(n + 1).some(([r, k, weight]) => {
      const { a, b } = f.ends(r, k);
      return Math.abs(y - a - (b - a) * down) <= weight * (h - 2) / 2;
    });
    return hidden || Math.abs(along - 0.5) < 0.01 ? [] : [[[0, [r, k][half], half], x + w * along, y]];
  }));
}"""  # noqa: E501
# The middles of cells, dots and bars; of those that share theirs the first.
CELLS = """v => {
  const places = new Map();
  v.fields.forEach((f, i) => {
    for (let r = 0; r < f.rows; r++) for (let k = 0; k < f.columns; k++) if (f.says(r, k) && f.constructor.name !== "Words") {
      const [x, y, w, h] = f.box(r, k), at = [x + w / 2, y + h / 2];
      if (!places.has(String(at))) places.set(String(at), [[i, r, k], ...at]);
    }
  });
  return [...places.values()];
}"""  # noqa: E501


def misses(page, places: str, at_least: int = 1) -> list:
    """What a press at these places does not choose."""
    done = page.locator("canvas").evaluate(f"c => ({PRESS})(c, {places})")
    assert done["count"] >= at_least
    return done["wrong"]


def words() -> Explorer:
    """Ribbons between eleven words, wide and thin, that cross."""
    draw = np.random.default_rng(7)
    weights = draw.dirichlet(np.full(11, 0.3), 11).astype(np.float32)
    names = [f"w{i}" for i in range(11)]
    heat = Heatmap(weights, rows=names, columns=names, limits=(0, 1))
    return Explorer({}, lambda: Scene(Words(heat, head=2)))


def some_heads() -> Explorer:
    """Five heads of the sentence of the course."""
    heads = ((3, 1), (0, 3), (2, 5), (5, 7), (4, 10))

    def scene(n: int) -> Scene:
        return n00_cut.scene(layer=heads[n][0], head=heads[n][1])

    return Explorer({"n": widgets.IntSlider(max=len(heads) - 1)}, scene)


@pytest.mark.parametrize("width", WINDOWS)
def test_a_press_cuts_a_ribbon_and_a_button_the_rest(open_page, page_of, monkeypatch, width):
    monkeypatch.setenv(n00_cut.EXPORT, "1")
    page = open_page(page_of("some heads", some_heads), viewport=WINDOWS[width])
    for n in range(5):
        slider(page, "n").fill(str(n))
        assert not misses(page, RIBBONS, 20), n
    for name, head in (("head", 10), ("layer", None)):
        page.get_by_role("button", name=f"cut the {name}").click()
        assert page.locator("canvas").evaluate("c => c.mha.cut.cuts") == [[4, head, None, None]]


@pytest.mark.parametrize("width", WINDOWS)
def test_a_press_on_a_ribbon_between_words_chooses_its_words(open_page, page_of, width):
    page = open_page(page_of("words", words), viewport=WINDOWS[width])
    assert not misses(page, BETWEEN, 100)


# Of the ribbons of a prompt, at seven places of each: what is seen there, and what a press chooses.
FLOWING = """c => {
  const w = c.mha.writes, paths = [...w.svg.children], point = w.svg.createSVGPoint(), box = w.stage.getBoundingClientRect(), wrong = [];
  for (const path of paths) {
    const points = path.getAttribute("d").slice(1, -1).split("L").map((pair) => pair.split(" ").map(Number)), n = points.length;
    for (const i of [3, 6, 9, 12, 15, 18, 22]) {
      const [x, y] = [(points[i][0] + points[n - 1 - i][0]) / 2, points[i][1]];
      const seenAt = ([dx, dy]) => {
        [point.x, point.y] = [x + dx, y + dy];
        const word = document.elementFromPoint(box.left + point.x, box.top + point.y)?.closest(".mha-word");
        return word ? Number(word.dataset.k) : w.ribbons[paths.findLastIndex((one) => one.isPointInFill(point))]?.k;
      };
      const [seen, ...beside] = [[0, 0], [-0.6, 0], [0.6, 0], [0, -1], [0, 1]].map(seenAt);
      if (beside.every((k) => k === seen) && w.hit(x, y)?.k !== seen) wrong.push([i, seen]); // not on an edge
    }
  }
  const { left, top, width, height } = w.words.querySelectorAll(".mha-word")[1].getBoundingClientRect();
  w.stage.dispatchEvent(new PointerEvent("pointerdown", { pointerType: "touch", clientX: left + width / 2, clientY: top + height / 2 }));
  return { wrong, count: 7 * paths.length, under: [...w.words.querySelectorAll(".mha-word.mha-near")].map((one) => one.dataset.k) };
}"""  # noqa: E501


@pytest.mark.parametrize("width", WINDOWS)
def test_a_press_on_the_first_screen_cuts_the_word_whose_ribbon_is_seen(open_page, page_of, width):
    page = open_page(page_of("writes", explore.writes), viewport=WINDOWS[width] | {"height": 1200})
    count = 0
    for n in range(8):
        canvas = page.locator("canvas")
        canvas.evaluate("(c, n) => c.mha.choose('prompt', n)", n)
        found = canvas.evaluate(FLOWING)
        count += found["count"]
        assert not found["wrong"]
        assert found["under"] == ["1"]  # a finger sees what it presses
    assert count >= 400
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WINDOWS)
@pytest.mark.parametrize("name", ["scaling", "head_writes", "rotation", "masks"])
def test_a_press_in_the_middle_of_a_cell_a_dot_or_a_bar_chooses_it(open_page, page_of, name, width):
    def first() -> Explorer:
        scene = getattr(explore, name)().first
        return Explorer({}, lambda: scene)

    page = open_page(page_of(name, first), viewport=WINDOWS[width])
    assert not misses(page, CELLS, 10)
