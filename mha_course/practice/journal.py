"""The learner's own table of the exercises: in this kernel, and in a file for all notebooks.

In the learner's copy of the course (`my_notebooks`, which `make lab` marks) the file is kept unless
the learner says no: each notebook has a kernel of its own, and only a file sees them all. Anywhere
else nothing is written unless the learner asks for it. It holds names and states, never code.
"""

import json
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from mha_course.base.disk import free_path, write_whole
from mha_course.engine.report import Report

FILE = ".progress.json"
BROKEN = ".progress.broken.json"  # what was found there, if it is no table
LOCK = ".progress.json.lock"
LOG = ".practice.jsonl"  # beside it: a line for each check, for practice to know what is due
COPY = ".copied.json"  # lies in the learner's copy: see lab.py
SECONDS = 2  # to wait for another kernel that is writing
_REFUSED = b"false"  # what the file holds where the learner wants none
_WORDS = {True: "done", False: "tried", None: "open"}
_SIGNS = {"done": "✓", "tried": "✗", "open": "○"}
today = date.today
_state: dict[str, str] = {}
_attempts: list["Attempt"] = []


class Attempt(NamedTuple):
    """One check: on which day, of which exercise, and what came out."""

    day: date
    name: str
    passed: bool
    slips: tuple[str, ...] = ()
    asked: str = ""  # what practice asked for, the exercise or a variant; "" in the course itself
    minutes: int = 0


@dataclass(frozen=True)
class Progress:
    """Shown by Jupyter as a table; `rows` are (number, notebook, exercise, state)."""

    rows: tuple[tuple[int, str, str, str], ...]
    kept: bool
    due: tuple[str, ...] = ()

    @property
    def _summary(self) -> str:
        done = sum(state == "done" for *_, state in self.rows)
        where = f"kept in {FILE}" if self.kept else "for this kernel only"
        due = f" Ready in `check.practice()`: {', '.join(self.due)}." if self.due else ""
        return f"{done} of {len(self.rows)} done ({where}).{due}"

    def __str__(self) -> str:
        lines = [
            f"{number:>2}  {notebook}  {name:<22} {_SIGNS[state]} {state}"
            for number, notebook, name, state in self.rows
        ]
        return "\n".join([*lines, self._summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td>{number}</td><td>{notebook}</td><td style="text-align:left"><code>{name}'
            f'</code></td><td style="text-align:left">{_SIGNS[state]} {state}</td></tr>'
            for number, notebook, name, state in self.rows
        )
        return (
            "<table><thead><tr><th>#</th><th>notebook</th><th>exercise</th><th>state</th></tr>"
            f"</thead><tbody>{cells}</tbody></table><div>{self._summary}</div>"
        )


def remember(report: Report, name: str = "", minutes: int = 0) -> None:
    """Notes a check's outcome; what was done once stays done. Practice names the exercise."""
    state = _WORDS[report.passed]
    if state == "open":
        return
    done = name or report.name
    if _state.get(done) != "done":
        _state[done] = state
    asked = report.name if name else ""
    note(Attempt(today(), done, state == "done", report.slips, asked, minutes))


def note(attempt: Attempt) -> None:
    """Adds a line to the log; a question of practice stands there alone, outside the table."""
    _attempts.append(attempt)
    if _wanted():
        _save(attempt)


def attempts() -> list[Attempt]:
    """All that were noted, in their order; only this kernel's where nothing is kept."""
    kept: list[Attempt] = []
    with suppress(OSError, UnicodeDecodeError):
        for line in (folder() / LOG).read_text(encoding="utf-8").splitlines() if _wanted() else ():
            with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                read = json.loads(line)  # that may be cut off, or somebody else's
                day, slips = date.fromisoformat(read.pop("day")), tuple(read.pop("slips"))
                kept.append(Attempt(day, slips=slips, **read))
    kept = kept or [*_attempts]  # of a clock that was put back, days that are still to come
    return sorted((a._replace(day=min(a.day, today())) for a in kept), key=lambda a: a.day)


def states() -> dict[str, str]:
    """done or tried, by the names of the exercises."""
    with suppress(OSError):
        return _with_mine(_load() or {})
    return dict(_state)


def table(
    exercises: list[tuple[Any, str, str]], keep: bool | None, due: tuple[str, ...] = ()
) -> Progress:
    """`keep=True` starts the file, `keep=False` removes it, None leaves it as it is."""
    if keep is False:
        _refuse()
    kept = (keep is True or _wanted()) and _save()
    known = states()
    rows = tuple((n, book, name, known.get(name, "open")) for n, book, name in exercises)
    return Progress(rows, kept, due)


def folder() -> Path:
    """The learner's copy of the course, if the kernel runs in it or below; else where it runs."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody has removed the folder: nothing is there
        return Path()
    return next((p for p in (here, *here.parents) if (p / COPY).exists()), here)


def _wanted() -> bool:
    here = folder()
    try:
        return (here / FILE).read_bytes().strip() != _REFUSED
    except FileNotFoundError:
        return (here / COPY).exists()
    except OSError:
        return False


def _refuse() -> None:
    here = folder()
    (here / LOG).unlink(missing_ok=True)
    if (here / COPY).exists():  # there it would come back by itself
        write_whole(here / FILE, _REFUSED)
    else:
        (here / FILE).unlink(missing_ok=True)


def _load() -> dict[str, str] | None:
    """What is kept; None where the file is no table."""
    if not _wanted():
        return {}
    try:
        content = json.loads((folder() / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    fine = isinstance(content, dict) and all(v in ("done", "tried") for v in content.values())
    return content if fine else None


def _with_mine(kept: dict[str, str]) -> dict[str, str]:
    """What the file and this kernel know together."""
    return kept | {k: v for k, v in _state.items() if kept.get(k) != "done"}


def _save(attempt: Attempt | None = None) -> bool:
    """Adds names and states to the file, and a line to the log. False where it cannot be done."""
    here = folder()
    try:
        with _alone(here):
            kept = _load()
            if kept is None:
                # Not thrown away: somebody may be able to mend it.
                os.replace(here / FILE, free_path(here / BROKEN))
            content = json.dumps(_with_mine(kept or {}), indent=1, sort_keys=True) + "\n"
            write_whole(here / FILE, content.encode())
            if attempt:
                line = json.dumps(attempt._asdict(), default=str, ensure_ascii=False)
                with (here / LOG).open("ab+") as log:
                    torn = log.seek(0, os.SEEK_END) and log.seek(-1, os.SEEK_END) is not None
                    start = "\n" if torn and log.read(1) != b"\n" else ""  # of one cut off
                    log.write(f"{start}{line}\n".encode())
    except OSError:
        return False
    return True


def _alone(where: Path) -> AbstractContextManager[Any]:
    """No other kernel reads and writes the file meanwhile; a kernel that dies lets go of it."""
    try:
        return FileLock(where / LOCK, timeout=SECONDS).acquire()
    except (OSError, NotImplementedError):  # a disk without locks, or held for too long
        return nullcontext()
