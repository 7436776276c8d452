"""A progress bar for long loops that leaves nothing behind: in a notebook, in a terminal, in a log.

In a notebook the bar is one output that changes in place and ends as it began, empty. So a stored
notebook never holds a half-drawn bar or a speed, and a second run stores the same bytes. In a
terminal it is a line on stderr, wiped at the end; where stderr is a file nothing is drawn.
"""

import shutil
import sys
import time
from html import escape
from typing import Any, Self

from mha_lesson.refusals import require_positive_int, require_text


class Progress:
    """`with Progress(600, "two sides") as bar: … bar.advance("loss 1.23")`, once for each step."""

    redraw_after = 0.25  # seconds: more often, and drawing slows down what it reports

    def __init__(self, total: int, label: str) -> None:
        require_positive_int("total", total)
        require_text(label=label)
        self.total, self.label, self.done = total, label, 0
        self._output: Any = None
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        if in_notebook():
            display = sys.modules["IPython.display"].display
            self._output = display({"text/html": ""}, raw=True, display_id=True)
        return self

    def advance(self, note: str = "") -> None:
        """One step is done; `note` stands behind the bar, for instance the loss."""
        require_text(note=note)
        self.done += 1
        now = time.monotonic()
        if now - self._drawn < self.redraw_after:
            return
        self._drawn = now
        left = (now - self._started) / self.done * (self.total - self.done)
        words = f"{self.done} of {self.total}, {left:.0f} s left" + (f" · {note}" if note else "")
        self._show(words)

    def __exit__(self, *_: object) -> None:
        self._show("")

    def _show(self, words: str) -> None:
        """The bar with these words, or nothing where there are none."""
        if self._output is not None:
            label = escape(self.label)
            bar = (
                f'<div>{label} <progress value="{self.done}" max="{self.total}" '
                f'aria-label="{label}"></progress> {escape(words)}</div>'
            )
            self._output.update({"text/html": bar if words else ""}, raw=True)
        elif sys.stderr is not None and sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            text = f"{self.label}: {words}"[:width] if words else ""
            print(f"\r{text:<{width}}", end="" if words else "\r", file=sys.stderr, flush=True)


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel, which can show HTML and change it afterwards."""
    ipython = sys.modules.get("IPython")  # a kernel has loaded it; here nothing does
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
