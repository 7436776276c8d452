"""Within the walls: judges the answers of one notebook, each apart, and then runs its cells.

`walls.run` starts this file as a program of its own, so that little is loaded before the notebook
is known to be one. It reports on two pipes, a line of JSON for each thing it finds out. The first
pipe is for what is judged, and closed before a line of the notebook runs; the second is open while
it runs, so anybody may write into it.
"""

import contextlib
import gc
import json
import linecache
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What may not happen at all, and what may happen below the submission's own folder only.
NEVER = ("socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.system",
         "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill")  # fmt: skip
BELOW = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink",
         "os.chmod", "os.chown", "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
FILE = "submission.ipynb"
GIVEN = "given.json"  # the source of the course's own cells
MOST_CODE, MOST_WORDS = 6_000, 4_000  # characters that are handed on
MOST_ANSWER = 2**16  # bytes that one judgement may take


def main(work: str, judged: int, said: int, seconds: float, memory_gb: float) -> None:
    _limit(memory_gb)
    cells, why = _cells(Path(work, FILE))
    tell(judged, {"cells": len(cells), "why": why})
    if not cells:
        tell(said, {"end": True})
        return
    import mha_lesson

    gc.freeze()  # PyTorch stays, here and in the forks that judge
    check = mha_lesson.check
    tell(judged, {"guesses": _guesses(Path(work, FILE))})
    _judge(check, cells, json.loads(Path(work, GIVEN).read_text("utf-8")), judged, seconds)
    os.close(judged)
    _run(cells, said, os.path.realpath(work))
    tell(said, {"end": True})


def tell(pipe: int, line: dict[str, Any]) -> None:
    left = memoryview(json.dumps(line).encode() + b"\n")
    while left:
        left = left[os.write(pipe, left) :]


def _cells(path: Path) -> tuple[list[str], str]:
    """The source of the code cells; or, in words, why there are none."""
    try:
        raw = path.read_bytes()
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return [], "not readable: saved as UTF-16; a notebook is UTF-8"
        content = json.loads(raw.decode("utf-8-sig"))
        cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        sources = [s for cell in cells if (s := "".join(cell["source"])).strip()]
    except UnicodeDecodeError:
        return [], "not readable: not saved as UTF-8 (Latin-1, perhaps)"
    except json.JSONDecodeError as error:
        if error.doc[:4] == "PK\x03\x04":
            return [], "not readable: a zip archive with a notebook's name"
        return [], f"not readable: no notebook, or cut off (line {error.lineno})"
    except (MemoryError, RecursionError, OSError) as error:
        return [], f"not readable ({type(error).__name__})"
    except (KeyError, TypeError, AttributeError, ValueError):
        return [], "not readable: JSON, but not a notebook of today's format"
    return sources, "" if sources else "no code in it"


def _guesses(path: Path) -> dict[str, str]:
    """What the notebook's outputs say was guessed: read, not run."""
    from mha_lesson.course.predict import noted

    found: dict[str, str] = {}
    for cell in json.loads(path.read_bytes())["cells"]:
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            for output in cell.get("outputs", ()):
                found |= noted("".join(output.get("data", {}).get("text/plain", "")))
    return found


# --- answers, each judged apart ---------------------------------------------------------------


def _judge(check: Any, cells: list[str], given: list[str], judged: int, seconds: float) -> None:
    """Nothing of the notebook has run yet, and each answer runs in a process of its own."""
    # What these processes need, loaded and noted once, and not anew in each of them.
    import numpy.random  # noqa: F401

    from mha_lesson import explore  # noqa: F401
    from mha_lesson.check.engine import judge  # noqa: F401
    from mha_lesson.course.classroom.answers import Notebook

    notebook = Notebook(cells, set(given))
    for exercise in (*check.EXERCISES, *check.SHORT):
        name = exercise.name
        answers = notebook.answers(name)
        if not answers:
            if notebook.mentions(name):
                tell(judged, {"name": name, "state": "open"})
            continue
        found: dict[str, Any] = {}
        for answer in answers:  # what was right once counts: the newest that is right, or the last
            if answer.broken:
                words = f"The cell cannot be run: {answer.broken}."
                this = {"state": "tried", "words": words, "broken": True}
            else:
                this = _apart(check, name, answer, judged, seconds)
            this["code"] = answer.code[:MOST_CODE]
            if not found or this["state"] == "done":
                found = this
            if found["state"] == "done":
                break
        tell(judged, {"name": name, **found})


def _apart(check: Any, name: str, answer: Any, judged: int, seconds: float) -> dict[str, Any]:
    """Judges an answer in a process that has nothing of the notebook but this answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(judged)
        with contextlib.suppress(BaseException):
            _limit_time(seconds)
            _guard(os.path.realpath(os.curdir))
            _answer(check, name, answer, writer)
        os._exit(0)
    os.close(writer)
    try:
        line = _read(reader, seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    try:
        found = json.loads(line)
        state = found["state"] if found["state"] in ("done", "tried", "open", None) else None
        slips = [s for s in found["slips"] if isinstance(s, str)][:20]
        return {"state": state, "slips": slips, "words": str(found["words"])[:MOST_WORDS]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"state": None, "words": "Not judged apart: it did not come to an end."}


def _read(reader: int, seconds: float) -> bytes:
    """What the child writes, until it closes its pipe or its time is over."""
    line, end = b"", time.monotonic() + seconds
    while len(line) < MOST_ANSWER and (left := end - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        chunk = os.read(reader, MOST_ANSWER)
        if not chunk:
            break
        line += chunk
    return line


def _answer(check: Any, name: str, answer: Any, writer: int) -> None:
    """In the child: runs the answer's program, checks the answer, and tells."""
    gc.freeze()  # what is there stays: a look through it all would copy the parent's memory
    file = "<answer>"
    lines = answer.program.splitlines(keepends=True)
    linecache.cache[file] = (len(answer.program), None, lines, file)
    module = sys.modules["answer"] = ModuleType("answer")
    module.__file__ = file
    found: dict[str, Any] = {"state": None, "slips": []}
    try:
        exec(compile(answer.program, file, "exec"), vars(module))
    except BaseException as error:
        found["words"] = f"Not judged apart: its cell stops with {type(error).__name__}: {error}"
    else:
        report = getattr(check, name)(vars(module)[answer.target])
        state = {True: "done", False: "tried", None: "open"}[report.passed]
        found = {"state": state, "slips": list(report.slips), "words": str(report)}
    found["words"] = found["words"][:MOST_WORDS]
    tell(writer, found)


# --- the notebook, from top to bottom ---------------------------------------------------------


def _run(cells: list[str], said: int, work: str) -> None:
    """An error is shown, as in a notebook, and the next cell runs all the same."""
    from IPython.core.interactiveshell import InteractiveShell

    from mha_lesson.check import journal

    def listener(report: Any) -> None:
        """Told at once, so that what was solved before an endless loop is known."""
        tell(said, {"name": report.name, "passed": report.passed, "slips": list(report.slips)})

    journal.listen(listener)
    shell: Any = InteractiveShell.instance()
    shell.history_manager.enabled = False
    _guard(work)
    for source in cells:
        shell.run_cell(source)


def _limit(memory_gb: float) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: float) -> None:
    """A tenth of the notebook's time for one answer, counted in the processor's seconds."""
    import resource

    limit = max(2, int(seconds / 10))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))


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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
