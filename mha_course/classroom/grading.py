"""Runs every notebook that counts, and says what became of each exercise of each learner."""

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
from mha_course.classroom import inside
from mha_course.classroom.files import HandIn, Learner, content, shown
from mha_course.classroom.walls import PROJECT, Ended, Limits, run
from mha_course.lab import NOTEBOOKS
from mha_course.predictions import known_guesses
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
        notebook: its number, "03"; empty where its name has none.
        note: how the run ended, in words; empty if it went through.
        seconds: how long it took.
        states: for each exercise that it holds, one of `STATES`.
        slips: the keys of the mistakes that the check of an exercise named.
        words: what the check said, or why the answer cannot be run.
        code: the learner's cell with the answer.
        guesses: for each question before a picture, the choice that was opened.
    """

    file: str
    notebook: str = ""
    note: str = ""
    seconds: float = 0
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

    def state(self, name: str) -> str:
        found = [s.states[name] for s in self.submissions if name in s.states]
        return min(found, key=STATES.index, default=MISSING)

    def best(self, name: str) -> Submission | None:
        """The notebook that this exercise's state is from."""
        state = self.state(name)
        return next((s for s in self.submissions if s.states.get(name) == state), None)

    @property
    def done(self) -> int:
        return sum(self.state(name) == DONE for name in NAMES)

    def points(self, notebook: str) -> int:
        """How many exercises of this notebook are solved."""
        return sum(self.state(name) == DONE for name in BY_NOTEBOOK[notebook])

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
    """Runs one notebook; never raises because of what it holds."""
    submission = Submission(hand_in.file, hand_in.notebook)
    try:
        with tempfile.TemporaryDirectory(prefix="submission-", ignore_cleanup_errors=True) as work:
            Path(work, inside.FILE).write_bytes(content(hand_in))
            Path(work, inside.GIVEN).write_text(json.dumps(given()), encoding="utf-8")
            for fonts in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
                shutil.copy(fonts, work)  # else each notebook searches the machine for them
            ended = run(Path(work).resolve(), limits, stop or Event())
    except (OSError, MemoryError) as error:
        submission.note = f"not readable ({type(error).__name__})"
    else:
        submission.seconds = round(ended.seconds, 1)
        _take(submission, ended)
    for exercise in EXERCISES:  # what a notebook should hold and says nothing of
        if exercise.notebook == submission.notebook:
            state = UNKNOWN if submission.note else OPEN
            submission.states.setdefault(exercise.name, state)
    return submission


def _take(submission: Submission, ended: Ended) -> None:
    """What was told while it ran; code that wants to can have told anything."""
    said = _lines(ended.said)
    whys = [shown(line["why"]) for line in said if isinstance(line.get("why"), str) and line["why"]]
    submission.note = whys[0] if whys else ended.note
    if not submission.note and not any(line.get("end") is True for line in said):
        submission.note = "ended before its last cell (os._exit, perhaps)"
    for line in said:
        submission.guesses |= known_guesses(line.get("guesses"))
        name, state = str(line.get("name")), line.get("state")
        if not _counts(name, submission) or state not in (DONE, TRIED, OPEN):
            continue
        if STATES.index(state) > STATES.index(submission.states.get(name, MISSING)):
            continue  # what was right once counts, and what was tried
        submission.states[name] = state
        submission.slips[name] = _texts(line.get("slips"))
        for part, into in (("words", submission.words), ("code", submission.code)):
            if isinstance(line.get(part), str):
                into[name] = _readable(line[part])


def _counts(name: str, submission: Submission) -> bool:
    """Whether it is an exercise of this notebook: what is tried out elsewhere does not count."""
    books = {exercise.name: exercise.notebook for exercise in EXERCISES}
    return name in books and submission.notebook in ("", books[name])


def _lines(report: bytes) -> list[dict[str, Any]]:
    found = []
    for line in report.splitlines():
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            found.append(read)
    return found


def _readable(text: str) -> str:
    """No control codes but the ends of lines."""
    return "\n".join(shown(line) if line else "" for line in text.expandtabs(4).split("\n"))


def _texts(slips: Any) -> list[str]:
    return [shown(s) for s in slips if isinstance(s, str)] if isinstance(slips, list) else []


@cache
def given() -> list[str]:
    """The source of every code cell of the course: none of them is a learner's answer."""
    cells = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                cells.append("".join(cell["source"]).strip())
    return cells


# --- what has been run before -------------------------------------------------------------------


def _key(hand_in: HandIn, limits: Limits) -> str:
    """Changes with the notebook, the limits and the checks."""
    try:
        inner = content(hand_in)
    except OSError:
        inner = b""
    told = f"{_course()} {limits} {hand_in.notebook}"
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
