"""Has every notebook that counts judged, and says what became of each exercise of each learner."""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from threading import Event
from typing import Any

import matplotlib

from mha_course import check
from mha_course.classroom import signs, values
from mha_course.classroom.files import CANVAS, HandIn, Learner, content, shown
from mha_course.classroom.reading import Contents, course_cells, read
from mha_course.classroom.sandbox import PROJECT, Limits, Outcome, run, strongest
from mha_course.classroom.sandboxed import FILE, Candidate, Session
from mha_course.exercises.variants import named
from mha_lesson.progress import Progress

# What an exercise can be, the best first. Not run: handed in, and nothing could be found out.
DONE, TRIED, OPEN, UNKNOWN, MISSING = STATES = ("done", "tried", "open", "not run", "missing")
EXERCISES = (*check.EXERCISES, *check.SHORT)
NAMES = tuple(exercise.name for exercise in EXERCISES)
ALL = {exercise.name: exercise for exercise in EXERCISES} | named()  # and those of a final test
NOTEBOOK_OF = {name: exercise.notebook for name, exercise in ALL.items()}
BY_NOTEBOOK = {  # in the order of the course
    book: [name for name in NAMES if NOTEBOOK_OF[name] == book]
    for book in sorted({*NOTEBOOK_OF.values()})
}
RESULTS = "results.jsonl"  # a line for each notebook that has been run
A_LINE_EVERY = 30  # seconds, in a log
MOST_CODE = 60_000  # characters of an answer that are shown; one that is longer gets no ✓
OTHER_KERNEL = (
    "its kernel is {}, not Python; its code was read as Python all the same: choose Kernel, "
    "Change Kernel, Python 3, run it again and save it"
)
STRANGE = (
    "no answer to an exercise is in it, and neither its name nor its cells are those of a notebook "
    "of the course: is it the right file?"
)
NOWHERE = "No cell of this file holds an answer, so a ✓ for it counts for nothing."
TOO_LONG = f"Its code is longer than {MOST_CODE:,} characters, and not all of it stands here."
NEWER = (
    "It ran in Python {}, and this is {}, which cannot read its cell: judge it with that Python."
)
NOT_YET = "not judged yet: the run was interrupted"
NOT_ITS_VALUES = (
    "The check called this answer right in the process where it ran, but the values that came out "
    "of there are not right. Read its code."
)


@dataclass
class Submission:
    """What came of one notebook; what is sorted is so by exercise."""

    file: str  # its path in the folder, as it is shown
    notebook: str = ""  # its number, "03"; empty where nothing says one
    note: str = ""  # what its learner should know of the file
    trouble: str = ""  # of that, why it could not be read or judged
    seconds: float = 0
    sandbox: str = ""  # in which it ran
    states: dict[str, str] = field(default_factory=dict)  # each one of `STATES`
    slips: dict[str, list[str]] = field(default_factory=dict)  # keys of the mistakes that are named
    words: dict[str, str] = field(default_factory=dict)  # of the check, or why there is no verdict
    code: dict[str, str] = field(default_factory=dict)  # the file's cells, with what they need
    guesses: dict[str, str] = field(default_factory=dict)  # by question: the choice that was opened
    shows: dict[str, str] = field(default_factory=dict)  # what a stored output with a ✓ says
    patches: str = ""  # its cells that change the check, or reach into it
    digest: str = ""  # of the file's bytes
    texts: list[str] = field(default_factory=list)  # its cells, where none is the course's: a test


@dataclass
class Row:
    """One learner: what was handed in, what came of it, and the best state of each exercise."""

    learner: Learner
    submissions: list[Submission] = field(default_factory=list)
    names: tuple[str, ...] = NAMES  # what was assigned
    due: float = inf  # when
    new: bool = False  # judged now, where others had been judged before

    def best(self, name: str) -> Submission | None:
        """The first notebook in which this exercise's state is best."""
        holding = [s for s in self.submissions if name in s.states]
        return min(holding, key=lambda s: STATES.index(s.states[name]), default=None)

    def state(self, name: str) -> str:
        best = self.best(name)
        unread = name not in NAMES and any(s.trouble for s in self.submissions)  # of a test
        return best.states[name] if best else UNKNOWN if unread else MISSING

    @property
    def books(self) -> dict[str, list[str]]:
        """Notebook -> what was assigned of it."""
        assigned = {b: [n for n in self.names if NOTEBOOK_OF[n] == b] for b in BY_NOTEBOOK}
        return {book: names for book, names in assigned.items() if names}

    @property
    def points(self) -> dict[str, int]:
        """Notebook -> how many of its exercises are solved."""
        return {b: sum(self.state(n) == DONE for n in names) for b, names in self.books.items()}

    @property
    def done(self) -> int:
        return sum(self.points.values())

    @property
    def late(self) -> list[HandIn]:
        """What Canvas calls so, or what was changed after the day given, by the file's own date."""
        named = [(CANVAS.search(h.file), h) for h in self.learner.notebooks]
        return [h for m, h in named if ("_LATE_" in m[0] if m else h.changed > self.due)]

    @property
    def notes(self) -> list[str]:
        """What the teacher should know besides."""
        notes = [f"{s.file}: {s.note}" for s in self.submissions if s.note]
        notes += [f"{h.file}: late" for h in self.late]
        notes += [f"{file}: {why}" for file, why in self.learner.others]
        return notes if notes or self.submissions else ["nothing handed in"]


def grade(rows: list[Row], out: Path, limits: Limits, jobs: int = 1) -> None:
    """Fills in the rows: runs what has no result in `out` yet, `jobs` notebooks at a time.

    Results are kept as they come, so an interrupted run goes on where it stopped.
    """
    kept = _kept(out / RESULTS)
    waiting = []
    for row in rows:
        for hand_in in row.learner.notebooks:
            if hand_in.notebook in BY_NOTEBOOK.keys() - row.books.keys():
                row.learner.others.append((hand_in.file, "not assigned"))
                continue
            key = _key(hand_in, limits)
            if key in kept:
                row.submissions.append(replace(kept[key], file=hand_in.file))
            else:
                waiting.append((row, hand_in, key))
    if not waiting:
        return
    out.mkdir(parents=True, exist_ok=True)
    stop, start, said = Event(), time.monotonic(), time.monotonic()
    with Progress(len(waiting), "notebooks") as bar, ThreadPoolExecutor(jobs) as pool:
        asked: dict[Future[Submission], tuple[Row, str]] = {}

        def keep(future: Future[Submission]) -> None:
            nonlocal said
            (row, key), submission = asked[future], future.result()
            with (out / RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, asdict(submission)]) + "\n")
            del asked[future]
            row.new = bool(kept)
            row.submissions.append(submission)
            row.submissions.sort(key=lambda s: s.file)
            bar.advance(submission.file)
            now = time.monotonic()
            if not sys.stderr.isatty() and now - said > A_LINE_EVERY:  # there the bar draws nothing
                left = (now - start) / bar.done * (bar.total - bar.done) / 60
                print(f"{bar.done} of {bar.total} notebooks, {left:.0f} min left", flush=True)
                said = now

        try:
            for row, hand_in, key in waiting:
                asked[pool.submit(one, hand_in, limits, stop)] = row, key
            for future in as_completed(asked):
                keep(future)
        finally:  # interrupted: what runs now ends at once, and is run again next time
            ended = [future for future in asked if future.done()]
            pool.shutdown(wait=False, cancel_futures=True)
            stop.set()
            for future in ended:
                keep(future)
            for row, hand_in, _ in waiting:
                if hand_in.file not in {s.file for s in row.submissions}:
                    states = dict.fromkeys(BY_NOTEBOOK.get(hand_in.notebook, ()), UNKNOWN)
                    unread = hand_in.file, hand_in.notebook, NOT_YET, NOT_YET
                    row.submissions.append(Submission(*unread, states=states))


def one(hand_in: HandIn, limits: Limits, stop: Event | None = None) -> Submission:
    """Has one notebook judged; never raises because of what it holds."""
    raw = b""
    try:
        raw = b"" if hand_in.why else content(hand_in)
        held = Contents(why=hand_in.why) if hand_in.why else read(raw)
    except (OSError, MemoryError) as error:
        held = Contents(why=f"not readable ({type(error).__name__})")
    submission = Submission(
        hand_in.file,
        hand_in.notebook,
        held.why,
        sandbox=strongest(),
        guesses=held.guesses,
        shows={name: _readable(said) for name, said in held.shows.items() if name in ALL},
        digest=hashlib.sha256(raw).hexdigest(),
        texts=[] if held.notebook else [_readable(text[:MOST_CODE]) for text in held.texts],
    )
    if held.cells:
        outcome = _run(held.cells, submission, limits, stop or Event())
        submission.seconds = round(outcome.seconds, 1)
        _take(submission, outcome, held.cells)
        _older_than_its_own(submission, held.python)
    if held.cells and not (submission.notebook or submission.states or submission.note):
        submission.note = STRANGE
    submission.trouble = submission.note
    kernel = OTHER_KERNEL.format(shown(held.language)) if held.language and held.cells else ""
    notes = (hand_in.note, kernel, submission.note)
    submission.note = "; ".join(dict.fromkeys(filter(None, notes)))
    for name in BY_NOTEBOOK.get(submission.notebook, ()):  # also those that nothing is said of
        submission.states.setdefault(name, UNKNOWN if submission.trouble else OPEN)
    return submission


def _run(cells: list[str], submission: Submission, limits: Limits, stop: Event) -> Outcome:
    book = submission.notebook
    names = BY_NOTEBOOK.get(book, []) if book else [*ALL]
    with tempfile.TemporaryDirectory(prefix="submission-", ignore_cleanup_errors=True) as work:
        asked = json.dumps({"cells": cells, "given": sorted(_given(cells)), "names": names})
        Path(work, FILE).write_text(asked, encoding="utf-8")
        for fonts in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
            shutil.copy(fonts, work)  # else each notebook searches the machine for them
        return run(Path(work).resolve(), limits, stop)


def _take(submission: Submission, outcome: Outcome, cells: list[str]) -> None:
    """What was found out. Nothing is believed that can be looked up in the file, or computed."""
    lines, given = _lines(outcome.report), _given(cells)
    session = Session(cells, given, -1, 0, "")
    checks = session.book.check_names
    own = [cell for n, cell in enumerate(cells) if n not in given]
    patched = [cell for cell in own if signs.patches(signs.parsed(cell), checks)]
    submission.patches = _readable("\n\n".join(patched)[:MOST_CODE])
    submission.note = outcome.note
    if not submission.note and not any(line.get("end") is True for line in lines):
        submission.note = "ended before all was judged"
    for line in lines:
        name, state = str(line.get("name")), line.get("state")
        if name not in ALL or submission.notebook not in ("", NOTEBOOK_OF[name]):
            continue
        candidate = _candidate(session, name, line)
        shows = session.shown(candidate) if candidate else _its_cell(session, line)
        own = [cells[n] for n in shows]
        words, code = line.get("words"), "\n\n".join(own)
        if state == DONE and not own:
            state, words = UNKNOWN, NOWHERE
        elif state == DONE and len(code) > MOST_CODE:
            state, words = UNKNOWN, TOO_LONG
        elif state == DONE and not values.right(ALL[name], line.get("values")):
            state, words = TRIED, NOT_ITS_VALUES
        elif state == DONE and candidate and (why := _borrowed(session, candidate, line)):
            state, words = UNKNOWN, f"Right. {why}"
        if state not in (DONE, TRIED, OPEN, UNKNOWN):
            continue
        if STATES.index(state) > STATES.index(submission.states.get(name, MISSING)):
            continue  # what was right once counts
        submission.states[name] = state
        told = line.get("slips")
        keys = told if isinstance(told, list) else []
        submission.slips[name] = [shown(key) for key in keys if type(key) is str]
        submission.words[name] = _readable(words if isinstance(words, str) else "")
        submission.code[name] = _readable(code[:MOST_CODE])


def _given(cells: list[str]) -> set[int]:
    """The numbers of the cells that are the course's own."""
    return {number for number, cell in enumerate(cells) if cell.strip() in course_cells()}


def _candidate(session: Session, name: str, line: dict[str, Any]) -> Candidate | None:
    """What was judged, read from the file: a report only says which candidate."""
    number, candidates = line.get("candidate"), [*session.candidates(name)]
    if type(number) is not int or not 0 <= number < len(candidates):
        return None
    return candidates[number].with_all_above() if line.get("above") else candidates[number]


def _its_cell(session: Session, line: dict[str, Any]) -> list[int]:
    """The cell of what is no answer."""
    cell = line.get("cell")
    known = type(cell) is int and 0 <= cell < len(session.cells) and line.get("state") != DONE
    return [cell] if known else []


def _borrowed(session: Session, candidate: Candidate, line: dict[str, Any]) -> str:
    """What in a right answer makes one look: in its code, or in what it called while it ran."""
    book = session.book
    written = {name for s in book.statements if s.tree is None for name in s.binds}
    imported = {pair for s in book.statements if s.tree for pair in signs.imports(s.tree)}
    imported = {(name, package) for name, package in imported if package not in written}
    parts = [book.statements[i] for i in session.parts(candidate) if session.own([i])]
    parts = [part for part in parts if not part.imports]
    trees = [t for s in parts for t in ([s.tree] if s.tree else signs.parsed(book.texts[s.cell]))]
    called = f"It calls {line['called']}." if isinstance(line.get("called"), str) else ""
    name = str(line.get("name"))
    named = signs.taught(trees, imported, values.answers(name))
    return signs.strange(trees, imported) or named or called * bool(line.get("called"))


def _older_than_its_own(submission: Submission, python: tuple[int, ...]) -> None:
    """A cell in a newer Python's syntax is no mistake: no verdict."""
    if python <= sys.version_info[:2]:
        return
    for name, words in submission.words.items():
        if submission.states[name] == TRIED and "stops with SyntaxError" in words:
            versions = (".".join(map(str, v)) for v in (python, sys.version_info[:2]))
            submission.states[name] = UNKNOWN
            submission.words[name] = NEWER.format(*versions)


def _lines(report: bytes) -> list[dict[str, Any]]:
    lines = []
    for line in report.splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return [line for line in lines if isinstance(line, dict)]


def _readable(text: str) -> str:
    """No control codes but the ends of lines."""
    return "\n".join(shown(line) if line else "" for line in text.expandtabs(4).split("\n"))


# --- what has been run before -------------------------------------------------------------------


def _key(hand_in: HandIn, limits: Limits) -> str:
    """Changes with the notebook, the limits and the checks."""
    try:
        raw = content(hand_in)
    except OSError:
        raw = b""
    rest = f"{_course()} {limits} {hand_in.notebook} {hand_in.note}"
    return hashlib.sha256(rest.encode() + raw).hexdigest()


@cache
def _course() -> str:
    """The checks, what runs them, and the questions."""
    package = PROJECT / "mha_course"
    files = [*package.rglob("*.py"), *package.rglob("*.toml")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def _kept(path: Path) -> dict[str, Submission]:
    """Key -> result; a line that was cut off in the middle counts for nothing."""
    kept = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for line in lines:
        try:
            key, result = json.loads(line)
            kept[str(key)] = Submission(**result)
        except (ValueError, TypeError):
            continue
    return kept
