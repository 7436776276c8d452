"""What moves, and for how long, on a page without a kernel, whose clock the tests control."""

import demo
import pytest
from screen import slider

from mha_course import explore

pytestmark = pytest.mark.long  # a picture without its moves is the same picture
# Time passes only in `pass_time`, which draws 100 frames a second.
CLOCK = """
  let now = 0, frames = [], turns = new Map(), number = 0;
  performance.now = () => now;
  window.requestAnimationFrame = (f) => frames.push(f);
  window.setInterval = (f, ms) => (turns.set(++number, { f, ms, at: now + ms }), number);
  window.clearInterval = (which) => turns.delete(which);
  window.pass_time = (ms) => {
    for (const end = now + ms; now < end;) {
      now += 10;
      for (const turn of [...turns.values()]) if (turn.at <= now) { turn.at += turn.ms; turn.f(); }
      frames.splice(0).forEach((f) => f(now));
    }
  };
  window.waiting = () => frames.length;
"""
# Explorer, slider, position to start from, key; of bars, a curve and arrows; of tiles; of blocks.
MOVES = {
    "moving": (demo.moving_explorer, "n", 1, "ArrowRight"),
    "memory": (explore.memory, "step", 2, "ArrowRight"),
    "flow": (lambda: explore.flow(until="attention"), "step", 1, "ArrowRight"),
}


@pytest.fixture
def opened(open_page, page_of):
    """A page of `MOVES`, or of another explorer, with the clock."""

    def drawn(name, explorer=None, **context):
        path = page_of(name, explorer or MOVES[name][0])
        return open_page(path, script=CLOCK, **context)

    return drawn


def press_from(page, name: str, position: int, key: str) -> str:
    """Puts a slider at `position`, lets animations end, presses `key`; gives the picture before."""
    control = slider(page, name)
    script = "(i, value) => { i.value = value; i.dispatchEvent(new Event('input')) }"
    control.evaluate(script, position)
    page.evaluate("pass_time(300)")
    before = picture(page)
    control.focus()
    page.keyboard.press(key)
    return before


def picture(page) -> str:
    return page.locator("canvas").evaluate("c => c.toDataURL()")


@pytest.mark.parametrize("what", MOVES)
def test_a_move_is_animated_but_not_with_reduced_motion(opened, what):
    _, *move = MOVES[what]
    page, still = opened(what), opened(what, reduced_motion="reduce")
    before, seen = press_from(page, *move), [picture(page)]
    for _ in range(3):  # at 40, 120 and 200 of 250 ms
        page.evaluate("pass_time(40)")
        seen.append(picture(page))
        page.evaluate("pass_time(40)")
    page.evaluate("pass_time(60)")
    after = picture(page)
    assert len({before, *seen, after}) == 6
    page.evaluate("pass_time(300)")
    assert picture(page) == after and page.evaluate("waiting()") == 0  # nothing goes on for ever
    assert press_from(still, *move) == before
    assert picture(still) == after and still.evaluate("waiting()") == 0


def test_marks_are_where_the_time_says(opened):
    """At half of the time three quarters of the way, since a move slows down."""
    (_, *move), page = MOVES["moving"], opened("moving")
    heights = "c => c.mha.shown.filter(m => m.kind === 'rect').map(m => m.height)"
    steps = "c => c.mha.shown.filter(m => m.kind === 'arrows').flatMap(m => [...m.steps])"
    tops = "c => c.mha.shown.filter(m => m.kind === 'dot').map(m => m.y)"
    for values in (heights, steps, tops):
        page.locator("canvas").evaluate("c => c.blur()")
        press_from(page, *move)
        start = page.locator("canvas").evaluate(values.replace("shown", "before"))
        end = page.locator("canvas").evaluate(values.replace("shown", "scene.marks"))
        assert start != end
        for ms, part in ((0, 16 / 250), (110, 126 / 250)):  # the first picture is a frame on
            page.evaluate(f"pass_time({ms})")
            share = part * (2 - part)
            on_the_way = [a + (b - a) * share for a, b in zip(start, end, strict=True)]
            assert page.locator("canvas").evaluate(values) == pytest.approx(on_the_way)


def press(button) -> None:
    button.focus()  # a click would wait for frames
    button.page.keyboard.press("Enter")


def steps_shown(page, times: int) -> list[int]:
    """The slider's `step` once in each interval in which Play takes a step."""
    step, seen = slider(page, "step"), []
    for _ in range(times):
        seen.append(int(step.input_value()))
        page.evaluate("pass_time(160)")
    return seen


def test_play_takes_every_step_until_the_end_a_press_or_a_move(opened):
    page = opened("training", lambda: explore.training([demo.untrained(50)]))
    button = page.locator(".mha-bar button")
    assert steps_shown(page, 2) == [0, 0]
    press(button)
    assert "Pause" in button.text_content() and steps_shown(page, 3) == [0, 1, 2]
    press(button)
    assert "Play" in button.text_content() and steps_shown(page, 3) == [3, 3, 3]
    press(button)
    assert steps_shown(page, 6) == [3, 4, 5, 5, 5, 5] and "Play" in button.text_content()
    assert "step 50" in page.locator(".mha-caption").text_content()
    press(button)
    assert steps_shown(page, 3) == [0, 1, 2]
    slider(page, "step").focus()
    page.keyboard.press("ArrowLeft")
    assert steps_shown(page, 4) == [2, 2, 2, 2] and "Play" in button.text_content()


def test_a_move_during_another_starts_no_second_animation(opened):
    (_, *move), page = MOVES["moving"], opened("moving")
    press_from(page, *move)
    for key in ("ArrowRight", "ArrowLeft"):
        page.evaluate("pass_time(40)")
        page.keyboard.press(key)
        assert page.evaluate("waiting()") == 1


def test_a_frame_is_drawn_once_though_a_move_drew_it(opened):
    (_, *move), page = MOVES["moving"], opened("moving")
    press_from(page, *move)
    page.locator("canvas").evaluate("""({ mha }) => {
      const draw = mha.draw.bind(mha), slider = document.activeElement;
      window.draws = 0;
      mha.draw = () => { window.draws++; draw(); };
      setInterval(() => {
        slider.value = 3 - slider.value;
        slider.dispatchEvent(new Event("input"));
      }, 10);
    }""")
    page.evaluate("pass_time(50)")
    assert page.evaluate("draws") == 5


def test_a_change_of_colours_alone_is_not_animated(opened):
    page = opened("stored", demo.stored_explorer)
    before = press_from(page, "size", 1, "ArrowRight")
    assert picture(page) != before and page.evaluate("waiting()") == 0


def test_a_change_of_width_is_not_animated(opened):
    page = opened("moving")
    page.evaluate("pass_time(300)")
    wide = page.locator("canvas").evaluate("c => c.mha.scene.width")
    page.set_viewport_size({"width": 400, "height": 800})
    narrower = "wide => document.querySelector('canvas').mha.scene.width < wide"
    # Otherwise it would look again in the page's next frame, which only `pass_time` brings.
    page.wait_for_function(narrower, arg=wide, polling=20)
    assert page.locator("canvas").evaluate("c => c.mha.shown === c.mha.scene.marks")
