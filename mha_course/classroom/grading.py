"""Has every notebook that counts judged, and says what became of each exercise of each learner."""

import hashlib
import json
import shutil
import tempfile
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import matplotlib

from mha_course import check
from mha_course.classroom import inside, values
from mha_course.classroom.files import HandIn, Learner, content, shown
from mha_course.classroom.reading import Read, given, read
from mha_course.classroom.walls import PROJECT, STOPPED, Ended, Limits, run, standing
from mha_lesson.progress import Progress

# What an exercise can be, the best first. Not run: handed in, and nothing could be found out.
DONE, TRIED, OPEN, UNKNOWN, MISSING = STATES = ("done", "tried", "open", "not run", "missing")
EXERCISES = (*check.EXERCISES, *check.SHORT)
NAMES = tuple(exercise.name for exercise in EXERCISES)
BY_NOTEBOOK = {  # in the order of the course
    book: [e.name for e in EXERCISES if e.notebook == book]
    for book in sorted({e.notebook for e in EXERCISES})
}
RESULTS = "results.jsonl"  # a line for each notebook that has been run


@dataclass
class Submission:
    """What came of one notebook.

    Attributes:
        file: its path in the folder, as it is shown.
        notebook: its number, "03"; empty where nothing says one.
        note: what its learner should know of the file: why it could not be read or judged.
        seconds: how long it took.
        wall: what stood around it.
        states: for each exercise that it holds, one of `STATES`.
        slips: the keys of the mistakes that the check of an exercise named.
        words: what the check said, or why there is no verdict.
        code: the cells of the file with the answer, and with what it needs.
        guesses: for each question before a picture, the choice that was opened.
    """

    file: str
    notebook: str = ""
    note: str = ""
    seconds: float = 0
    wall: str = ""
    states: dict[str, str] = field(default_factory=dict)
    slips: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """One learner: what was handed in, what came of it, and the best state of each exercise."""

    learner: Learner
    submissions: list[Submission] = field(default_factory=list)
    names: tuple[str, ...] = NAMES  # what was assigned

    def state(self, name: str) -> str:
        found = [s.states[name] for s in self.submissions if name in s.states]
        return min(found, key=STATES.index, default=MISSING)

    def best(self, name: str) -> Submission | None:
        """The notebook that this exercise's state is from."""
        state = self.state(name)
        return next((s for s in self.submissions if s.states.get(name) == state), None)

    @property
    def done(self) -> int:
        return sum(self.state(name) == DONE for name in self.names)

    def points(self, notebook: str) -> int:
        """How many exercises of this notebook are solved."""
        return sum(self.state(name) == DONE for name in self.books[notebook])

    @property
    def books(self) -> dict[str, list[str]]:
        """Notebook -> what was assigned of it."""
        found = {b: [n for n in names if n in self.names] for b, names in BY_NOTEBOOK.items()}
        return {book: names for book, names in found.items() if names}

    @property
    def notes(self) -> list[str]:
        """What the teacher should know besides."""
        ended = [f"{s.file}: {s.note}" for s in self.submissions if s.note]
        other = [f"{file}: {why}" for file, why in self.learner.others]
        nothing = [] if ended or other or self.submissions else ["nothing handed in"]
        return ended + other + nothing


def grade(rows: list[Row], out: Path, limits: Limits, jobs: int = 1) -> None:
    """Fills in the rows: runs what has no result in `out` yet, `jobs` notebooks at a time.

    Results are kept as they come, so an interrupted run goes on where it stopped.
    """
    kept = _kept(out / RESULTS)
    waiting = []
    for row in rows:
        for hand_in in row.learner.notebooks:
            key = _key(hand_in, limits)
            if key in kept:
                row.submissions.append(replace(kept[key], file=hand_in.file))
            else:
                waiting.append((row, hand_in, key))
    if not waiting:
        return
    out.mkdir(parents=True, exist_ok=True)
    stop = Event()
    with Progress(len(waiting), "notebooks") as bar, ThreadPoolExecutor(jobs) as pool:
        try:
            todo = iter(waiting)
            running: dict[Future[Submission], tuple[Row, str]] = {}
            while True:
                for row, hand_in, key in islice(todo, jobs - len(running)):
                    running[pool.submit(one, hand_in, limits, stop)] = (row, key)
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    row, key = running.pop(future)
                    submission = future.result()
                    row.submissions.append(submission)
                    row.submissions.sort(key=lambda s: s.file)
                    with (out / RESULTS).open("a", encoding="utf-8") as file:
                        file.write(json.dumps([key, asdict(submission)]) + "\n")
                    bar.advance(submission.file)
        finally:
            stop.set()  # interrupted: what runs now ends at once, and is run again next time


def one(hand_in: HandIn, limits: Limits, stop: Event | None = None) -> Submission:
    """Has one notebook judged; never raises because of what it holds."""
    found = Read(why=hand_in.why) if hand_in.why else _read(hand_in)
    submission = Submission(
        hand_in.file, hand_in.notebook, found.why, wall=standing(), guesses=found.guesses
    )
    if found.cells:
        for again in (True, False):  # a busy machine is no verdict: a timeout is tried once more
            ended = _run(found.cells, submission, limits, stop or Event())
            if not (again and ended.note.startswith(STOPPED)):
                break
        submission.seconds = round(ended.seconds, 1)
        _take(submission, ended, found.cells)
    fell_short = bool(submission.note)
    kernel = OTHER_KERNEL.format(shown(found.language)) if found.language and found.cells else ""
    notes = (hand_in.note, kernel, submission.note)
    submission.note = "; ".join(dict.fromkeys(filter(None, notes)))
    for exercise in EXERCISES:  # what a notebook should hold and says nothing of
        if exercise.notebook == submission.notebook:
            submission.states.setdefault(exercise.name, UNKNOWN if fell_short else OPEN)
    return submission


def _read(hand_in: HandIn) -> Read:
    try:
        return read(content(hand_in))
    except (OSError, MemoryError) as error:
        return Read(why=f"not readable ({type(error).__name__})")


def _run(cells: list[str], submission: Submission, limits: Limits, stop: Event) -> Ended:
    names = [e.name for e in EXERCISES if submission.notebook in ("", e.notebook)]
    own = [number for number, cell in enumerate(cells) if cell.strip() in given()]
    with tempfile.TemporaryDirectory(prefix="submission-", ignore_cleanup_errors=True) as work:
        told = json.dumps({"cells": cells, "given": own, "names": names})
        Path(work, inside.FILE).write_text(told, encoding="utf-8")
        for fonts in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
            shutil.copy(fonts, work)  # else each notebook searches the machine for them
        return run(Path(work).resolve(), limits, stop)


def _take(submission: Submission, ended: Ended, cells: list[str]) -> None:
    """What was found out. Nothing is believed that can be looked up in the file, or computed."""
    said = _lines(ended.said)
    submission.note = ended.note
    if not submission.note and not any(line.get("end") is True for line in said):
        submission.note = "ended before all was judged"
    for line in said:
        name, state = str(line.get("name")), line.get("state")
        if name not in NAMES or submission.notebook not in ("", NOTEBOOK_OF[name]):
            continue
        numbers = line.get("cells") if isinstance(line.get("cells"), list) else []
        own = [cells[n] for n in numbers if type(n) is int and 0 <= n < len(cells)]
        words = line["words"] if isinstance(line.get("words"), str) else ""
        if state == DONE and not own:
            state, words = UNKNOWN, NOWHERE
        elif state == DONE and not values.right(getattr(check, name), line.get("values")):
            state, words = TRIED, NOT_ITS_VALUES
        if state not in (DONE, TRIED, OPEN, UNKNOWN):
            continue
        if STATES.index(state) > STATES.index(submission.states.get(name, MISSING)):
            continue  # what was right once counts
        submission.states[name] = state
        submission.slips[name] = _texts(line.get("slips"))
        submission.words[name] = _readable(words)
        submission.code[name] = _readable("\n\n".join(own)[:MOST_CODE])


OTHER_KERNEL = (
    "its kernel is {}, not Python; its code was read as Python all the same: choose Kernel, "
    "Change Kernel, Python 3, run it again and save it"
)
MOST_CODE = 6_000  # characters of an answer that are shown
NOTEBOOK_OF = {exercise.name: exercise.notebook for exercise in EXERCISES}
NOWHERE = "No cell of this file holds an answer, so a ✓ for it counts for nothing."
NOT_ITS_VALUES = (
    "The check called this answer right in the process where the answer ran, and the values that "
    "came out of there are not the right ones. Read its code."
)


def _lines(report: bytes) -> list[dict[str, Any]]:
    found = []
    for line in report.splitlines():
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            found.append(told)
    return found


def _readable(text: str) -> str:
    """No control codes but the ends of lines."""
    return "\n".join(shown(line) if line else "" for line in text.expandtabs(4).split("\n"))


def _texts(slips: Any) -> list[str]:
    return [shown(s) for s in slips if isinstance(s, str)] if isinstance(slips, list) else []


# --- what has been run before -------------------------------------------------------------------


def _key(hand_in: HandIn, limits: Limits) -> str:
    """Changes with the notebook, the limits and the checks."""
    try:
        inner = content(hand_in)
    except OSError:
        inner = b""
    told = f"{_course()} {limits} {hand_in.notebook} {hand_in.note}"
    return hashlib.sha256(told.encode() + inner).hexdigest()


@cache
def _course() -> str:
    """The checks, what runs them, and the questions."""
    package = PROJECT / "mha_course"
    files = [*(package / "check").rglob("*.py"), *(package / "classroom").glob("*.py")]
    files += package.glob("predictions*")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def _kept(path: Path) -> dict[str, Submission]:
    """Key -> result; a line that was cut off in the middle counts for nothing."""
    found = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for line in lines:
        try:
            key, result = json.loads(line)
            found[str(key)] = Submission(**result)
        except (ValueError, TypeError):
            continue
    return found
