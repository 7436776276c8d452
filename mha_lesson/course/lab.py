"""Open the course in JupyterLab on a working copy that updates never overwrite.

`make lab` runs `python -m mha_lesson.course.lab`, and so can anyone without make. The notebooks are
copied to `my_notebooks/`, where learners work; this module only ever adds to it or renews what
nobody touched. More options are handed on: `python -m mha_lesson.course.lab --port=9000`.
"""

import hashlib
import itertools
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

from mha_lesson.disk import write_whole

PROJECT = Path(__file__).resolve().parents[2]
NOTEBOOKS = PROJECT / "notebooks"
MINE = PROJECT / "my_notebooks"
RECORD = ".copied.json"  # file name -> hash of what was copied there
SETTINGS = Path(__file__).resolve().parent / "jupyter"  # save whole files, and often


def sync(source: Path, mine: Path, today: date) -> list[str]:
    """Bring `mine` up to date with the notebooks in `source`; return a line for each that is new.

    A file counts as the learner's as soon as one byte differs from what was copied, so a run
    that only changed outputs is kept too: a measurement is work as well. Nothing is lost when a
    run is interrupted or the record disappears: a file that the record does not vouch for is the
    learner's.
    """
    mine.mkdir(parents=True, exist_ok=True)
    record = _read_record(mine)
    lines = []
    try:
        for original in sorted(source.glob("*.ipynb")):
            line = _bring(original, mine, record, today)
            if line:
                lines.append(line)
    finally:
        write_whole(mine / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
    return lines


def _bring(original: Path, mine: Path, record: dict[str, str], today: date) -> str | None:
    """One notebook: add it, renew it, put it beside the learner's, or leave all as it is."""
    content, copy = original.read_bytes(), mine / original.name
    newest, current = _hash(content), copy.read_bytes() if copy.exists() else None
    family = [name for name in record if name == copy.name or _is_beside(name, copy)]
    delivered = {record[name] for name in family}

    if current is None:
        line = f"New: {copy.name}"
    elif _hash(current) == newest:
        record[copy.name] = newest
        return None
    elif _hash(current) == record.get(copy.name) and write_whole(copy, content, current):
        record[copy.name] = newest
        return f"Renewed, you had not changed it: {copy.name}"
    elif newest in delivered or _find(mine, copy, newest):
        return None
    else:
        changed, copy = copy.name, _free_name(copy, today)
        line = f"Updated: you have changed {changed}, so the new version is beside it: {copy.name}"
    write_whole(copy, content)
    record[copy.name] = newest
    return line


def _is_beside(name: str, copy: Path) -> bool:
    return name.startswith(f"{copy.stem}.updated-")


def _find(mine: Path, copy: Path, newest: str) -> bool:
    """Whether an earlier update lies there already, though the record does not know it."""
    beside = mine.glob(f"{copy.stem}.updated-*.ipynb")
    return any(_hash(path.read_bytes()) == newest for path in beside)


def _free_name(copy: Path, today: date) -> Path:
    path = copy.with_name(f"{copy.stem}.updated-{today}.ipynb")
    for n in itertools.count(2):
        if not path.exists():
            break
        path = copy.with_name(f"{copy.stem}.updated-{today}-{n}.ipynb")
    return path


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_record(mine: Path) -> dict[str, str]:
    try:
        record = json.loads((mine / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, str)}


def options() -> list[str]:
    """JupyterLab's options: this machine only, its own random token, and what the place needs."""
    chosen = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={PROJECT}",
        f"--LabApp.default_url=/lab/tree/{MINE.name}/00_start_here.ipynb",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print("You are root, as is usual in a container: JupyterLab is started with --allow-root;")
        print("it still listens on this machine only (127.0.0.1) and asks for its token.")
        chosen.append("--allow-root")
    if sys.platform == "linux" and not (os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}):
        chosen.append("--no-browser")
    return chosen


def environment() -> dict[str, str]:
    """This one, with the course's settings of Jupyter before whatever else is set up."""
    paths = [str(SETTINGS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return os.environ | {"JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}


def main() -> int:
    if not NOTEBOOKS.is_dir():
        print(f"There is no {NOTEBOOKS}: run this in a clone of the project.", file=sys.stderr)
        return 1
    try:
        for line in sync(NOTEBOOKS, MINE, date.today()):
            print(line)
    except OSError as error:
        print(f"The notebooks in {MINE.name} could not all be updated ({error}); yours are safe.")
    command = [sys.executable, "-m", "jupyterlab", *options(), *sys.argv[1:]]
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment())  # hands over signals and memory
    return subprocess.call(command, env=environment())


if __name__ == "__main__":
    sys.exit(main())
