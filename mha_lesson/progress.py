"""A progress bar for long loops that leaves nothing behind: in a notebook, in a terminal, in a log.

In a notebook the bar is one output that changes in place and ends as it began, empty. So a stored
notebook never holds a half-drawn bar or a speed, and a second run stores the same bytes. In a
terminal tqdm draws it on stderr and wipes it at the end; where stderr is a file nothing is drawn.
"""

import time
from html import escape
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from mha_lesson.refusals import require_positive_int, require_text


class Progress:
    """`with Progress(600, "two sides") as bar: … bar.advance("loss 1.23")`, once for each step.

    Args:
        total: how many steps there are.
        label: what is being done, in front of the bar.
    """

    redraw_after = 0.25  # seconds: more often, and drawing slows down what it reports

    def __init__(self, total: int, label: str) -> None:
        require_positive_int("total", total)
        require_text(label=label)
        self.total, self.label, self.done = total, label, 0
        self._terminal: Any = None
        self._output: Any = None
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        self._started = self._drawn = time.monotonic()
        if in_notebook():
            from IPython.display import display

            self._output = display(_html(""), raw=True, display_id=True)
        else:
            self._terminal = tqdm(
                total=self.total,
                desc=self.label,
                leave=False,
                disable=None,  # where stderr is no terminal
                mininterval=0,  # `advance` already waits
            )
        return self

    def advance(self, note: str = "") -> None:
        """One step is done; `note` stands behind the bar, for instance the loss."""
        require_text(note=note)
        self.done += 1
        now = time.monotonic()
        if now - self._drawn < self.redraw_after:
            return
        self._drawn = now
        if self._output is not None:
            self._output.update(_html(self._bar(note, now - self._started)), raw=True)
        elif self._terminal is not None:
            self._terminal.set_postfix_str(note, refresh=False)
            self._terminal.update(self.done - self._terminal.n)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._output is not None:
            self._output.update(_html(""), raw=True)
        elif self._terminal is not None:
            self._terminal.close()

    def _bar(self, note: str, seconds: float) -> str:
        left = seconds / self.done * (self.total - self.done)
        words = f"{self.done} of {self.total}, {left:.0f} s left" + (f" · {note}" if note else "")
        label = escape(self.label)
        return (
            f'<div>{label} <progress value="{self.done}" max="{self.total}" aria-label="{label}">'
            f"</progress> {escape(words)}</div>"
        )


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel, which can show HTML and change it afterwards."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


def _html(html: str) -> dict[str, str]:
    return {"text/html": html}
