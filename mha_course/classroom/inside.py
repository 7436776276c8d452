"""Within the walls: runs the cells of one notebook, and tells what its checks say.

`walls.run` starts this file as a program of its own, so that little is loaded before the notebook
is known to be one. It writes a line of JSON into a pipe for each thing it finds out, at once: what
was solved before a crash is known. Code that wants to can write there, too: see TEACHING.md.
"""

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
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


def main(work: str, pipe: int, seconds: float, memory_gb: float) -> None:
    _limit(memory_gb)
    cells, why = _cells(Path(work, FILE))
    tell(pipe, {"why": why})
    if cells:
        tell(pipe, {"guesses": _guesses(Path(work, FILE))})
        given = json.loads(Path(work, GIVEN).read_text("utf-8"))
        session = Session(cells, {*given}, pipe, seconds / 5)
        _guard(os.path.realpath(work))
        session.run()
    tell(pipe, {"end": True})


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
    from mha_course.predictions import noted

    found: dict[str, str] = {}
    for cell in json.loads(path.read_bytes().decode("utf-8-sig"))["cells"]:
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            for output in cell.get("outputs", ()):
                found |= noted("".join(output.get("data", {}).get("text/plain", "")))
    return found


class Session:
    """A notebook's cells from top to bottom, as after "Restart and run all".

    An error is shown, as in a notebook, and the next cell runs all the same. A cell that takes more
    than `seconds` of the processor's time is interrupted, as by ■ in Jupyter.
    """

    def __init__(self, cells: list[str], given: set[str], pipe: int, seconds: float) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        from mha_course import check
        from mha_course.check import journal

        self.cells, self.given, self.pipe, self.seconds = cells, given, pipe, seconds
        self.exercises = [e.name for e in (*check.EXERCISES, *check.SHORT)]
        self.ran: list[str] = []  # those that Python could read, the last one first
        self.told: dict[str, dict[str, Any]] = {}
        shell: Any = InteractiveShell.instance()
        shell.history_manager.enabled = False
        self.run_source = shell.run_cell
        signal.signal(signal.SIGPROF, signal.default_int_handler)
        journal.listen(self.checked)

    def run(self) -> None:
        for cell in self.cells:
            self.run_cell(cell)
        for name in self.exercises:  # an answer may stand below its check, or none asked for it
            cell = self.defining(name)
            is_own = cell is not None and cell.strip() not in self.given
            if is_own and self.told.get(name, {}).get("code") != cell[:MOST_CODE]:
                self.run_cell(f"from mha_course import check\ncheck.{name}({name})")

    def run_cell(self, cell: str) -> None:
        self.ran.insert(0, cell)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        try:
            result = self.run_source(cell)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if result.error_before_exec:
            del self.ran[0]
        if error := result.error_before_exec or result.error_in_exec:
            words = f"Its cell stops with {type(error).__name__}: {error}"
            for name in self.exercises:
                if defines(cell, name) and self.told.get(name, {}).get("code") != cell[:MOST_CODE]:
                    self.tell(name, state="tried", slips=[], words=words, code=cell)

    def checked(self, report: Any) -> None:
        """A check of the notebook's has given this report."""
        handed = re.search(rf"\.{report.name}\(\s*(\w+)\s*\)", self.ran[0])
        code = self.defining(handed[1]) if handed else self.ran[0]
        state = {True: "done", False: "tried", None: "open"}[report.passed]
        self.tell(report.name, state=state, slips=[*report.slips], words=str(report),
                  code=code or self.ran[0])  # fmt: skip

    def tell(self, name: str, *, words: str, code: str, **state: Any) -> None:
        """Says it once, however often it is found."""
        line = {"name": name, **state, "words": words[:MOST_WORDS], "code": code[:MOST_CODE]}
        if self.told.get(name) != line:
            self.told[name] = line
            tell(self.pipe, line)

    def defining(self, name: str) -> str | None:
        """The last cell so far that gives the name its meaning."""
        return next((cell for cell in self.ran if defines(cell, name)), None)


def defines(cell: str, name: str) -> bool:
    return bool(re.search(rf"^(?:(?:def|class)\s+{name}\b|{name}\s*=)", cell, re.M))


def _limit(memory_gb: float) -> None:
    import resource

    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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
