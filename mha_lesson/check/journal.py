"""The learner's own table of the fourteen exercises, in this kernel and, if wanted, in a file."""

import json
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from filelock import FileLock

from mha_lesson.check.engine.report import Report
from mha_lesson.disk import write_whole

FILE = "my_progress.json"  # beside the notebooks: Jupyter runs them in their own folder
BROKEN = "my_progress.broken.json"  # what was found there, if it is no table
SECONDS = 2  # to wait for another kernel that is writing
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
    if state == "open":
        return
    if _state.get(report.name) != "done":
        _state[report.name] = state
    if Path(FILE).exists():
        _save()


def table(exercises: list[tuple[int, str, str]], keep: bool | None) -> Progress:
    """`keep=True` starts the file, `keep=False` removes it, None leaves it as it is."""
    if keep is False:
        Path(FILE).unlink(missing_ok=True)
    kept = (keep is True or Path(FILE).exists()) and _save()
    known = _with_mine(_load() or {})
    rows = tuple((n, book, name, known.get(name, "open")) for n, book, name in exercises)
    return Progress(rows, kept)


def _load() -> dict[str, str] | None:
    """What the file says; None where it cannot be read as a table."""
    try:
        content = json.loads(Path(FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return None
    fine = isinstance(content, dict) and all(v in ("done", "tried") for v in content.values())
    return content if fine else None


def _with_mine(kept: dict[str, str]) -> dict[str, str]:
    """What the file and this kernel know together."""
    return kept | {k: v for k, v in _state.items() if kept.get(k) != "done"}


def _save() -> bool:
    """Adds names and states to the file, never code. False where that cannot be done."""
    try:
        with _alone():
            kept = _load()
            if kept is None:
                os.replace(FILE, BROKEN)  # not thrown away: somebody may be able to mend it
            content = json.dumps(_with_mine(kept or {}), indent=1, sort_keys=True) + "\n"
            write_whole(Path(FILE), content.encode())
    except OSError:
        return False
    return True


def _alone() -> AbstractContextManager[Any]:
    """No other kernel reads and writes the file meanwhile; a kernel that dies lets go of it."""
    try:
        return FileLock(f".{FILE}.lock", timeout=SECONDS).acquire()
    except (OSError, NotImplementedError):  # a disk without locks, or held for too long
        return nullcontext()
