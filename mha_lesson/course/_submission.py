"""Runs one submission's cells, inside the process that `classroom` has made for it."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What may not happen at all, and what may happen below the submission's own folder only.
NEVER = ("socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.system",
         "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill")  # fmt: skip
BELOW = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink",
         "os.chmod", "os.chown", "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip


def main(work: str, results: int, memory_gb: float) -> None:
    _limit_memory(memory_gb)
    cells = json.loads(Path(work, "cells.json").read_text(encoding="utf-8"))
    from IPython.core.interactiveshell import InteractiveShell

    journal: Any = import_module("mha_lesson.check.journal")
    remember = journal.remember

    def report(found: Any) -> None:
        """Told at once, so that what was solved before an endless loop counts."""
        line = json.dumps([found.name, found.passed, list(found.slips)]) + "\n"
        os.write(results, line.encode())
        remember(found)

    journal.remember = report
    shell: Any = InteractiveShell.instance()
    shell.history_manager.enabled = False
    _guard(os.path.realpath(work))
    for source in cells:
        shell.run_cell(source)  # an error is shown, and the next cell runs all the same


def _limit_memory(memory_gb: float) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
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
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
