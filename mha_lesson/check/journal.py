"""The learner's own table of the fourteen exercises, in this kernel and, if wanted, in a file."""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mha_lesson.check.report import Report

FILE = "my_progress.json"  # beside the notebooks: Jupyter runs them in their own folder
_WORDS = {True: "done", False: "tried", None: "open"}
_SIGNS = {"done": "✓", "tried": "✗", "open": "○"}
_state: dict[str, str] = {}


@dataclass(frozen=True)
class Progress:
    """Shown by Jupyter as a table; `rows` are (number, notebook, exercise, state)."""

    rows: tuple[tuple[int, str, str, str], ...]
    kept: bool

    @property
    def _summary(self) -> str:
        done = sum(state == "done" for *_, state in self.rows)
        where = f"kept in {FILE}" if self.kept else "for this kernel only"
        return f"{done} of {len(self.rows)} done ({where})."

    def __str__(self) -> str:
        lines = [
            f"{number:>2}  {notebook}  {name:<22} {_SIGNS[state]} {state}"
            for number, notebook, name, state in self.rows
        ]
        return "\n".join([*lines, self._summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td>{number}</td><td>{notebook}</td><td style="text-align:left"><code>'
            f'{escape(name)}</code></td><td style="text-align:left">{_SIGNS[state]} {state}</td>'
            "</tr>"
            for number, notebook, name, state in self.rows
        )
        return (
            "<table><thead><tr><th>#</th><th>notebook</th><th>exercise</th><th>state</th></tr>"
            f"</thead><tbody>{cells}</tbody></table><div>{self._summary}</div>"
        )


def remember(report: Report) -> None:
    """Notes a check's outcome; what was done once stays done."""
    state = _WORDS[report.passed]
    known = _load() | _state if Path(FILE).exists() else _state
    if state == "open" or known.get(report.name) == "done":
        return
    _state[report.name] = state
    if Path(FILE).exists():
        _save()


def table(exercises: list[tuple[int, str, str]], keep: bool | None) -> Progress:
    """`keep=True` starts the file, `keep=False` removes it, None leaves it as it is."""
    if keep is False:
        Path(FILE).unlink(missing_ok=True)
    known = _load() | {k: v for k, v in _state.items() if _load().get(k) != "done"}
    kept = (keep is True or Path(FILE).exists()) and _save()
    rows = tuple((n, book, name, known.get(name, "open")) for n, book, name in exercises)
    return Progress(rows, kept)


def _load() -> dict[str, str]:
    try:
        content = json.loads(Path(FILE).read_text(encoding="utf-8"))
        return {k: v for k, v in content.items() if v in ("done", "tried")}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _save() -> bool:
    """Writes names and states, never code. False where the folder cannot be written to."""
    content = _load()
    content |= {k: v for k, v in _state.items() if content.get(k) != "done"}
    try:
        Path(FILE).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", "utf-8")
    except OSError:
        return False
    return True
