"""Predict, then look: questions that stand before a moving picture and are answered by it.

`collection/questions.toml` holds the questions, their choices and an answer to each; the notebook
computes which choice is right. The box is plain HTML that folds, and needs no script. Where scripts
run the browser remembers the guesses; a running notebook also writes them below the box.
"""

import json
import os
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import display

from mha_course.base.prose import prose
from mha_course.base.scripts import bundle
from mha_course.collection.questions import SOURCE, known_guesses, questions
from mha_course.pictures.live import EXPORT
from mha_lesson.refusals import say

SCRIPT = bundle(Path(__file__).with_suffix(".js"))
PREFIX = "Guesses: "  # before them in a notebook's own output
NO_GUESS = "In a running notebook your guesses are written here, and saved with it."
OWN_KEYS = 'data-lm-suppress-shortcuts="true"'  # in JupyterLab b would add a cell
STYLE = """
.mha-guess { max-width: 48em; line-height: 1.5 }
.mha-guess p { margin: .6em 0 .3em }
.mha-guess div { display: flex; flex-wrap: wrap; gap: .4em }
.mha-guess div > details { border: 1px solid #808080; border-radius: 4px; padding: 0 .6em }
.mha-guess div > [open] { flex-basis: 100% }
.mha-guess summary { cursor: pointer; padding: .2em 0; min-height: 24px }
.mha-guess summary[data-mine]::after { content: " (your guess)"; font-style: italic }
.mha-guess button { font: inherit; margin-top: .8em; min-height: 24px }
"""


def predict(**right: str | int) -> "Predictions":
    """The box of these questions, each with the choice that the notebook computed to be right.

    >>> str(predict(scaling_sharp=32)).splitlines()[2]
    '   ( ) 8'

    Raises:
        ValueError: there is no such question, or it has no such choice.
    """
    known = questions()
    for name, answer in right.items():
        if name not in known:
            raise ValueError(f"{name} must be a question of {SOURCE.name}; it holds none so named.")
        if str(answer) not in known[name].choices:
            labels = ", ".join(known[name].choices)
            raise ValueError(f"{name} must be one of its choices ({labels}); got {say(answer)}.")
    return Predictions({name: str(answer) for name, answer in right.items()})


def guesses_in(text: str) -> dict[str, str]:
    """The guesses that the text of a notebook's output holds, if any."""
    if not text.startswith(PREFIX):
        return {}
    try:
        return known_guesses(json.loads(text.removeprefix(PREFIX)))
    except (ValueError, RecursionError):
        return {}


class Predictions:
    """Shown by Jupyter as a box of questions, with the guesses below it."""

    def __init__(self, right: Mapping[str, str]) -> None:
        self.right = dict(right)

    def __str__(self) -> str:
        lines = ["Predict, then look."]
        for i, name in enumerate(self.right, 1):
            question = questions()[name]
            lines += [f"{i}. {question.asks}", *(f"   ( ) {label}" for label in question.choices)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        boxes = "".join(
            f'<p id="asks-{name}">{i}. {prose(questions()[name].asks)}</p>'
            f'<div role="group" aria-labelledby="asks-{name}">{_choices(name, right)}</div>'
            for i, (name, right) in enumerate(self.right.items(), 1)
        )
        return (
            f'<div class="mha-guess"><style>{STYLE}</style>'
            "<p><strong>Predict, then look.</strong> Open your guess; it says where to "
            f"look.</p>{boxes}</div>"
        )

    def _ipython_display_(self) -> None:
        display({"text/html": self._repr_html_(), "text/plain": str(self)}, raw=True)
        note = _Note(self.right)
        note.display = display(note.bundle(), metadata=note.for_colab(), raw=True, display_id=True)


class _Note(anywidget.AnyWidget):
    """Takes the guesses from the browser and writes them into the notebook's output."""

    _esm = SCRIPT
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    guesses = traitlets.Dict().tag(sync=True)
    line = traitlets.Unicode(NO_GUESS).tag(sync=True)

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names=[*names])
        self.known: dict[str, str] = {}
        self.display: Any = None
        self.observe(self._write, "guesses")

    def bundle(self) -> dict[str, Any]:
        bundle: dict[str, Any] = {
            "text/plain": f"{PREFIX}{json.dumps(self.known, ensure_ascii=False)}",
            "text/html": f"<small>{escape(self.line)}</small>",
        }
        if not os.environ.get(EXPORT):  # a page has no kernel
            bundle["application/vnd.jupyter.widget-view+json"] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.model_id,
            }
        return bundle

    def for_colab(self) -> dict[str, Any]:
        """What an output needs beside it there: where the code of widgets comes from."""
        return (self._repr_mimebundle_() or ({}, {}))[1]

    def _write(self, change: Any) -> None:
        self.known = known_guesses(change["new"])
        labels = ", ".join(f"“{label}”" for label in self.known.values())
        self.line = f"Written into this notebook: {labels}." if labels else NO_GUESS
        self.display.update(self.bundle(), metadata=self.for_colab(), raw=True)


def script() -> str:
    """For the end of a page with boxes, so that the browser remembers guesses."""
    return f'<script type="module">{SCRIPT}</script>'


def _choices(name: str, right: str) -> str:
    question = questions()[name]
    return "".join(
        f'<details name="{name}"><summary {OWN_KEYS}>{escape(label)}</summary>'
        f"<p>{prose(question.look)}</p><details>"
        f'<summary {OWN_KEYS} aria-label="I have looked: {escape(label)}">I have looked</summary>'
        f"{choice.answer(label == right)}"
        "</details></details>"
        for label, choice in question.choices.items()
    )
