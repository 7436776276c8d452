"""In the sandbox: judges the answers of one notebook, each in a process of its own.

`sandbox.run` starts this file as a program. It reads which statements an answer needs (`slices`),
and forks a process in which those run and nothing else. No code of a learner's runs in this process
itself, and only this process writes the report: what a fork says is handed on if it carries a
password that the fork gets when the learner's code has ended. The values of a right answer are
handed on as well, and compared once more outside (`values`).
"""

import ctypes
import json
import linecache
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import Mock

from mha_course.classroom.sandbox import BUSY, slowness
from mha_course.classroom.slices import BY_TEXT, Notebook, file_name

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What may not happen at all, and what may happen below the submission's own folder only.
_NEVER = """
socket.connect socket.bind socket.sendto subprocess.Popen os.system os.exec os.posix_spawn
os.spawn os.fork os.forkpty os.kill
"""
NEVER = (*_NEVER.split(),)
_BELOW = """
os.remove os.rename os.mkdir os.rmdir os.truncate os.link os.symlink os.chmod os.chown
shutil.rmtree shutil.move shutil.copyfile
"""
BELOW = (*_BELOW.split(),)
FILE = "submission.json"  # the cells, which of them are the course's own, and what is to be judged
MOST_WORDS, MOST_SAID, MOST_ANSWERS = 4_000, 2**22, 20  # characters, bytes, answers of a statement
# How it sounds where a statement that an answer needs did not run.
MISSES = re.compile(
    r"\b(?:NameError|KeyError|IndexError|AttributeError|UnboundLocalError|NoneType|no attribute|"
    r"is not defined|NotImplementedError)"
)
NOTHING_SAID = {"state": "tried", "slips": []}
HIDDEN = "No statement at the top level of a cell gives this name a value."
ABSENT = "It needs the module {}, which is not on this machine."
ENDED = "Its process ended before the check did (os._exit, its memory, or a crash)."
LATE = "It was stopped: it took too long, and could not be interrupted."
INTERRUPTED = "Its cell was interrupted: it took too long."


class Candidate(NamedTuple):
    """What may be an answer: what it is called, before which statement, and what that needs."""

    answer: str  # the name of what is judged; empty where a check gets something without one
    until: int
    needs: tuple[int, ...]

    def with_all_above(self) -> "Candidate":
        return self._replace(needs=tuple(range(self.until)))


def main(work: str, report: int, seconds: float, memory_gb: float) -> None:
    import mha_course.classroom.values  # noqa: F401  # once, before the forks

    _limit(memory_gb)
    _reachable(False)
    with open(os.path.join(work, FILE), encoding="utf-8") as file:
        asked = json.load(file)
    cells, given = asked["cells"], {*asked["given"]}
    session = Session(cells, given, report, seconds / 5, os.path.realpath(work))
    for name in asked["names"]:
        session.judge(name)
    session.write({"end": True})


class Session:
    """The answers of one notebook; `given` are the numbers of the cells that are the course's own.

    An answer that works or waits for more than `seconds` is interrupted, as by ■ in Jupyter.
    """

    def __init__(
        self, cells: list[str], given: set[int], report: int, seconds: float, work: str
    ) -> None:
        self.book, self.cells, self.given = Notebook(cells), cells, given
        self.report, self.seconds, self.work = report, seconds, work

    def write(self, line: dict[str, Any]) -> None:
        with open(self.report, "wb", closefd=False) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def judge(self, name: str) -> None:
        """Reports what is found out about an exercise: right once is right, or else the last."""
        verdict: dict[str, Any] = {}
        for number, candidate in enumerate(self.candidates(name)):
            latest = self.tried(name, candidate)
            if latest["state"] != "done" and MISSES.search(latest.get("words", "")):
                # Not all that it needs was found: once more, with all that stands above it.
                above = candidate.with_all_above()
                if above != candidate and (wider := self.tried(name, above))["state"] == "done":
                    latest, candidate = {**wider, "above": True}, above
            latest["candidate"] = number
            if latest["state"] == "done" and self.shown(candidate):
                return self.write({"name": name, **latest})
            if latest["state"] == "done":
                latest["state"] = "open"  # right, and the course's own
            verdict = verdict or latest
        if verdict := self.unread(name) or verdict:
            self.write({"name": name, **verdict})

    def tried(self, name: str, candidate: Candidate) -> dict[str, Any]:
        for _ in range(2):  # a busy machine is no verdict: what had to wait is tried once more
            latest = self.in_a_fork(name, candidate)
            if not latest.pop("waited", False) or slowness() < BUSY:
                break
        return latest

    def candidates(self, name: str) -> Iterator[Candidate]:
        """What the name means at the end of the notebook, and what is checked.

        The last one first, and none twice.
        """
        seen, book = set(), self.book
        asked = []
        if own := [i for i in book.binding(name) if self.own([i])]:
            end = len(book.statements)  # unless a stub of the course's stands below the answer
            asked = [(name, end if own[-1] in book.definition(name, end) else own[-1] + 1)]
        for answer, i in [*asked, *book.checks(name)]:
            loads = {answer} if answer else {*book.statements[i].loads}
            if (key := (answer or i, *sorted(needs := book.needed(loads, i)))) not in seen:
                seen.add(key)
                yield Candidate(answer, i, tuple(sorted(needs)))

    def own(self, numbers: Iterable[int]) -> list[int]:
        """Of these statements, the cells of those that stand in a cell of the learner's."""
        cells = [self.book.statements[i].cell for i in numbers]
        return [cell for cell in dict.fromkeys(cells) if cell not in self.given]

    def shown(self, candidate: Candidate) -> list[int]:
        """The learner's own cells that an answer stands in, the one that defines it first."""
        return self.own(self.parts(candidate))

    def parts(self, candidate: Candidate) -> list[int]:
        """The statements of an answer, the one that defines it first; no imports."""
        answer, until, needs = candidate
        first = self.book.definition(answer, until) if answer else [until]
        return [*first, *(i for i in needs if not self.book.statements[i].imports)]

    def unread(self, name: str) -> dict[str, Any]:
        """An answer in a cell that is no Python, or made in a way that cannot be followed."""
        meant = re.compile(rf"^\s*(?:(?:def|class)\s+{name}\b|{name}\s*[:=])", re.M)
        for cell in (n for n, text in enumerate(self.cells) if meant.search(text)):
            if cell in self.book.broken:
                return {"cell": cell, **_stopped(self.book.broken[cell])}
            if cell not in self.given and not self.own(self.book.binding(name)):
                return {"cell": cell, "state": "not run", "words": HIDDEN}
        for _, i in [] if self.book.binding(name) else self.book.checks(name):
            cell = self.book.statements[i].cell - 1  # where the answer should stand
            loads = {name for s in self.book.statements if s.cell == cell for name in s.loads}
            if cell not in self.given and loads & {*BY_TEXT, "get_ipython"}:  # exec, %run
                return {"cell": cell, "state": "not run", "words": HIDDEN}
        return {}

    def verdict(self, name: str, candidate: Candidate) -> dict[str, Any]:
        """In a fork: runs what is needed, and says what the check says."""
        from mha_course import check
        from mha_course.classroom.values import heard, pack
        from mha_course.exercises.variants import named

        exercise, answers = named().get(name) or getattr(check, name), []
        space, errors, kind = self.namespace(), [], type(exercise)
        called: set[str] = set()
        judge = kind.__call__

        def note(self: Any, answer: Any) -> Any:
            if self is exercise:
                answers.append(answer)
            return check.Report(self.name, None)

        kind.__call__ = note
        for i in (*candidate.needs, *([] if candidate.answer else [candidate.until])):
            try:
                if i == candidate.until:
                    answers.clear()
                with heard(name, called) if self.own([i]) else nullcontext():
                    self.book.run(i, space)
            except BaseException as error:  # as in a notebook: what stands below runs all the same
                errors.append(error)
        kind.__call__ = judge
        if candidate.answer:
            answers = [space[name] for name in [candidate.answer] if name in space]
        verdict: dict[str, Any] = {"state": "open"}
        for answer in answers[-MOST_ANSWERS:]:
            report = exercise(answer)
            state = {True: "done", False: "tried", None: "open"}[report.passed]
            verdict = {"state": state, "slips": [*report.slips], "words": str(report)[:MOST_WORDS]}
            if report.passed:
                packed, calls = pack(exercise, answer)
                return {**verdict, "values": packed, "called": min([*called, *calls], default="")}
        said = [*map(str, errors), verdict.get("words", "")]
        if absent := re.search(r"No module named '([\w.]+)'", "\n".join(said)):
            return {**NOTHING_SAID, "state": "not run", "words": ABSENT.format(absent[1])}
        return _stopped(errors[0]) if errors and verdict["state"] == "open" else verdict

    def namespace(self) -> dict[str, Any]:
        """An empty one, as a notebook's kernel begins with, whose cells `inspect` can read."""
        module = sys.modules["__main__"] = ModuleType("__main__")
        for number, text in enumerate(self.book.texts):
            file = file_name(number)
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        vars(module).update(display=print, get_ipython=lambda: Mock())
        sys.path.insert(0, self.work)
        return vars(module)

    def in_a_fork(self, name: str, candidate: Candidate) -> dict[str, Any]:
        """The verdict on a candidate. One that ends itself, or does not end, says nothing."""
        password, waits = secrets.token_hex(16).encode(), self.seconds * slowness()
        source, target = os.pipe()
        os.write(target, password)
        with TemporaryFile() as answer:
            child = os.fork()
            if child == 0:
                try:
                    os.close(self.report)
                    os.close(target)
                    _reachable(True)
                    _guard(self.work)
                    waited = _interrupt(self.seconds, waits)
                    try:
                        verdict = self.verdict(name, candidate)
                    except KeyboardInterrupt as error:
                        verdict = _stopped(error)
                    line = json.dumps({**verdict, "waited": bool(waited)}).encode()
                    answer.write(os.read(source, len(password)) + line)
                    answer.flush()
                finally:
                    os._exit(0)
            os.close(source)
            os.close(target)
            deadline = time.monotonic() + 3 * waits + 1
            while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < deadline:
                time.sleep(0.003)
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            answer.seek(0)
            written = answer.read(MOST_SAID)
        with suppress(ValueError, RecursionError):
            return json.loads(written[written.rindex(password) + len(password) :])
        return {**NOTHING_SAID, "words": ENDED if ended else LATE, "waited": not ended}


def _stopped(error: BaseException) -> dict[str, Any]:
    words = f"Its cell stops with {type(error).__name__}: {error}"
    words = INTERRUPTED if isinstance(error, KeyboardInterrupt) else words[:MOST_WORDS]
    return {**NOTHING_SAID, "words": words}


def _interrupt(works: float, waits: float) -> list[int]:
    """KeyboardInterrupt, every so many seconds of work, and on the clock: then it is noted."""
    waited: list[int] = []

    def late(number: int, _: Any) -> None:
        waited.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, works, works)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, waits, waits)
    return waited


def _limit(memory_gb: float) -> None:
    import resource

    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reachable(open_to_others: bool) -> None:
    """Whether processes of the same user may look into this one, its files and its memory (Linux).

    This one writes the report, so it is closed to those that it forks.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(4, int(open_to_others), 0, 0, 0)  # PR_SET_DUMPABLE


def _guard(work: str) -> None:
    """From here on Python refuses to write elsewhere, to connect and to start programs."""

    def outside(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real != os.devnull and os.path.commonpath([work, real]) != work

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in NEVER:
            raise PermissionError(f"{event} is not allowed in a submission")
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & WRITING) if isinstance(flags, int) else (mode or "r")[0] != "r"
            if writes and outside(path):
                raise PermissionError(f"a submission may not write to {path!r}")
        paths = [p for p in arguments[:2] if isinstance(p, str | bytes)]
        if event in BELOW and any(map(outside, paths)):
            raise PermissionError(f"{event} is not allowed outside a submission's folder")

    sys.addaudithook(hook)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
