"""How smoothly the explorers move: python tools/bench_explorers.py [explorer ...]

Opens each in a real JupyterLab and a headless Chromium and presses arrow keys on each slider.
`first` is the kernel's CPU time for making the explorer and showing it, as the notebooks do.
`move` is the time from a key press to the frame that shows the changed picture; its p95 is also
given as a multiple of the quickest slider's, which a busy machine slows alike. `held` presses a key
in each frame (back at the ends), as when a slider is dragged: pictures a second, beside those of a
canvas of the same size that is only cleared.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from lab import CHROMIUM, Lab, chromium, notebook
from mha_course import explore

BEFORE = {  # what the notebooks pass to an explorer
    "training": "arguments = [[run for h in (1, 2, 4, 8) "
    "for run in training.two_sides_runs(h, [0], snapshot_every=10)]]",
    "cost": "arguments = [cost.measure((128, 256, 512), d_model=512, n_heads=8)]",
}
CELL = """import time
from IPython.display import display
from mha_course import explore
from mha_course import cost
from mha_lesson import training
{before}
began = time.process_time()
display(explore.{name}(*arguments))
print(f"first picture: {{1000 * (time.process_time() - began):.0f}}")"""
LABELS = "all => all.map((slider) => slider.getAttribute('aria-label'))"
MOVES, HELD = 30, 1500  # key presses; ms of a press in each frame
# Counts a picture when pixels or caption differ from the last; its time is the next frame's.
PROBE = """() => {
  const bench = window.bench = {key: 0, marks: [], last: null};
  const view = document.querySelector('.mha-view canvas').mha, draw = view.draw.bind(view);
  const small = new OffscreenCanvas(96, 96).getContext('2d', {willReadFrequently: true});
  const hash = () => { small.clearRect(0, 0, 96, 96); small.drawImage(view.canvas, 0, 0, 96, 96);
    let h = 7;
    for (const v of small.getImageData(0, 0, 96, 96).data) h = Math.imul(h, 31) + v | 0;
    return `${h} ${view.scene.caption}`; };
  bench.last = hash();
  view.draw = () => { draw(); requestAnimationFrame(() => { const port = new MessageChannel();
    port.port1.onmessage = () => { const t = performance.now(), now = hash();
      if (now === bench.last) return;
      bench.last = now; bench.marks.push(t); };
    port.port2.postMessage(0); }); };
  // The arrow key to press next on the slider in focus: the way back where it stands at an end.
  bench.nextKey = (key) => {
    const of = (part) => document.activeElement.getAttribute(`aria-value${part}`);
    return of("now") === of("max") ? "ArrowLeft" : of("now") === of("min") ? "ArrowRight" : key; };
  bench.held = (ms, key) => new Promise((done) => {
    [bench.marks, bench.from] = [[], performance.now()];
    const press = () => {
      if (performance.now() - bench.from > ms) return done();
      requestAnimationFrame(press); // once a frame, as a browser sends pointer events
      key = bench.nextKey(key);
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); };
    requestAnimationFrame(press); });
  bench.cleared = () => new Promise((done) => {
    const { width, height } = view.canvas, empty = document.createElement("canvas");
    const g = empty.getContext("2d"), from = performance.now(); let n = 0;
    [empty.width, empty.height] = [width, height];
    empty.style.cssText = "position:fixed;left:0;top:0";
    document.body.append(empty);
    const clear = () => { g.clearRect(0, 0, width, height); n++;
      const passed = performance.now() - from;
      if (passed < 1000) return requestAnimationFrame(clear);
      empty.remove(); done(1000 * n / passed); };
    requestAnimationFrame(clear); });
  window.addEventListener('keydown', (e) => { bench.key = e.timeStamp; }, true);
}"""


def measure(page, label: str) -> dict[str, float]:
    """Times of single key presses, and of a key held down, on the slider `label`."""
    slider = page.locator(f'.mha-explorer [role=slider][aria-label="{label}"]').first
    slider.scroll_into_view_if_needed()
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(600)
    times, missed, key = [], 0, "ArrowRight"
    for _ in range(MOVES + 3):
        key = page.evaluate("key => { bench.marks = []; return bench.nextKey(key); }", key)
        page.keyboard.press(key)
        page.wait_for_timeout(180)
        waited = page.evaluate("() => bench.marks.length ? bench.marks[0] - bench.key : null")
        if waited is None:
            missed += 1
        else:
            times.append(waited)
    times = sorted(times[3:])
    page.keyboard.press("Home")
    page.wait_for_timeout(600)
    page.evaluate("ms => bench.held(ms, 'ArrowRight')", HELD)
    page.wait_for_timeout(800)
    rate = page.evaluate("""() =>
        1000 * bench.marks.filter((t) => t <= bench.key).length / (bench.key - bench.from)""")
    return {
        "p50": statistics.median(times),
        "p95": times[int(0.95 * (len(times) - 1))],
        "missed": missed,
        "rate": rate,
        "cleared": page.evaluate("bench.cleared()"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("explorers", nargs="*", default=explore.__all__)
    chosen = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("No Chromium found: on Debian and Ubuntu, apt install chromium.")
    rows = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        lab = Lab(Path(folder))
        try:
            for name in chosen.explorers:
                source = CELL.format(name=name, before=BEFORE.get(name, "arguments = []"))
                notebook(lab.work / f"{name}.ipynb", [source])
                page = lab.open(browser, f"{name}.ipynb")
                page.wait_for_selector(".mha-view canvas[aria-label]")
                page.wait_for_timeout(1500)
                first = page.get_by_text("first picture:").last.text_content().split(":")[1].strip()
                page.evaluate(PROBE)
                for label in page.locator(".mha-explorer [role=slider]").evaluate_all(LABELS):
                    r = measure(page, label)
                    rows.append((name, label, first, r))
                    print(f"{name} {label}: {r['p50']:.0f} / {r['p95']:.0f} ms", file=sys.stderr)
                page.context.close()
        finally:
            lab.stop()
    print(table(rows))


def table(rows: list[tuple[str, str, str, dict[str, float]]]) -> str:
    """Markdown: a row for each slider."""
    quickest = min(r["p95"] for *_, r in rows)
    lines = [
        "| explorer | slider | first ms | move p50 / p95 ms | p95 / quickest "
        "| held: pictures a second | cleared |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, label, first, r in rows:
        missed = f" ({r['missed']} keys changed nothing)" if r["missed"] else ""
        lines.append(
            f"| {name} | {label} | {first} | {r['p50']:.0f} / {r['p95']:.0f}{missed} "
            f"| {r['p95'] / quickest:.1f} | {r['rate']:.0f} | {r['cleared']:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
