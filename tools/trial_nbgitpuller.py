"""A trial by hand: does nbgitpuller lose anything of a learner's? Not part of `make test`.

    python -m venv build/pull && build/pull/bin/python -m pip install nbgitpuller==1.3.0
    build/pull/bin/python tools/trial_nbgitpuller.py

Needs Linux, git, and root for the small disk that gets full. Course and learner are throw-away
repositories with two of the notebooks. It prints how often what was found.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
EDITED, DELETED = "03_splitting_into_heads.ipynb", "00_start_here.ipynb"
MINE, THEIRS = "# the learner's work", "# the update"
IDENTITY = ("-c", "user.name=course", "-c", "user.email=course@example.org")
TIMES, STEP = 60, 32_768  # runs; bytes by which the room on the disk grows


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def pull(course: Path, learner: Path, kill_after: float | None = None) -> bool:
    """nbgitpuller, as the link starts it; killed with its git after some seconds, if wanted."""
    puller = [sys.executable, "-m", "nbgitpuller.pull", course.as_uri(), "main", str(learner)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(puller, start_new_session=True, **quiet)
    try:
        return process.wait(kill_after) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return False


def edit(path: Path, cells: list[int], line: str) -> None:
    """Adds a line to some cells, in the form in which Jupyter saves."""
    notebook = json.loads(path.read_text())
    for n in cells:
        notebook["cells"][n]["source"][-1:] = [
            *(text.rstrip("\n") + "\n" for text in notebook["cells"][n]["source"][-1:]),
            line,
        ]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def state(path: Path) -> str:
    """What of both sides is in the learner's notebook."""
    if not path.exists():
        return "missing"
    text = path.read_text(errors="replace")
    try:
        json.loads(text)
    except ValueError:
        return "not a notebook any more" + (", the learner's line in it" if MINE in text else "")
    return " and ".join(who for who, line in (("mine", MINE), ("theirs", THEIRS)) if line in text)


def set_up(folder: Path) -> tuple[Path, Path, Path]:
    """The course, where its author works, and the learner's clone by the first click."""
    course, author, learner = (folder / name for name in ("course.git", "author", "learner"))
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", course], check=True)
    subprocess.run(["git", "clone", "-q", course, author], check=True, capture_output=True)
    for name in (EDITED, DELETED):
        shutil.copy(NOTEBOOKS / name, author)
    git(author, "checkout", "-q", "-b", "main")
    publish(author)
    assert pull(course, learner)
    return course, author, learner


def publish(author: Path) -> None:
    git(author, "add", "-A")
    git(author, "commit", "-qm", "update")
    git(author, "push", "-q", "origin", "main")


def size(notebook: Path) -> int:
    return len(json.loads(notebook.read_text())["cells"])


def random_edits(folder: Path) -> None:
    """The learner and the course change cells of the same notebook, and other files."""
    seen: Counter[str] = Counter()
    for seed in range(TIMES):
        chance = random.Random(seed)
        here = folder / f"edits{seed}"
        here.mkdir()
        course, author, learner = set_up(here)
        cells = range(size(author / EDITED))
        edit(learner / EDITED, chance.sample(cells, 3), MINE)
        edit(author / EDITED, chance.sample(cells, 3), THEIRS)
        (learner / "notes.txt").write_text(MINE)
        (learner / "new.ipynb").write_text(MINE)
        (learner / DELETED).unlink()
        (author / "new.ipynb").write_text(THEIRS)
        publish(author)
        went = "went through" if pull(course, learner) else "stopped"
        renamed = [p for p in learner.glob("new__*.ipynb") if p.read_text() == MINE]
        kept = (learner / "notes.txt").read_text() == MINE and len(renamed) == 1
        seen[
            f"{went}; {state(learner / EDITED)}; files of the learner's own kept: {kept}; "
            f"a deleted one is back: {(learner / DELETED).exists()}"
        ] += 1
        shutil.rmtree(here)
    tell("Edits on both sides, in cells chosen at random", seen)


def after(course: Path, learner: Path) -> str:
    """What is there after a pull that may have failed, and after the next click."""
    text, lock = state(learner / EDITED), learner / ".git/index.lock"
    waits = lock.exists()
    if waits:  # nbgitpuller takes it for stale after ten minutes
        os.utime(lock, (time.time() - 700,) * 2)
    went = pull(course, learner)
    text += f"; the next pull {'went through' if went else 'stopped'}"
    text += ", after ten minutes, for a lock was left" if waits else ""
    text += f": {state(learner / EDITED)}"
    return text if MINE in (learner / EDITED).read_text() else f"{text}; {history(learner)}"


def history(learner: Path) -> str:
    found = git(learner, "log", "--all", "-S", MINE, "--format=%h").strip()
    return "in git's history: " + ("mine" if found else "nothing")


def conflict_of_one(folder: Path) -> tuple[Path, Path, Path]:
    """The learner has edited one cell; the update changes others and has new pictures."""
    course, author, learner = set_up(folder)
    edit(learner / EDITED, [5], MINE)
    edit(author / EDITED, [5, 9], THEIRS)
    edit(author / EDITED, [20], f"{THEIRS} {random.Random(0).randbytes(100_000).hex()}")
    publish(author)
    return course, author, learner


def killed(folder: Path) -> None:
    course, _, template = conflict_of_one(folder)
    seen: Counter[str] = Counter()
    start = time.monotonic()
    pull(course, Path(shutil.copytree(template, folder / "timed")))
    whole = time.monotonic() - start
    for n in range(TIMES):
        learner = Path(shutil.copytree(template, folder / f"killed{n}"))
        pull(course, learner, kill_after=whole * n / TIMES)
        seen[after(course, learner)] += 1
    tell(f"Killed after 0 to {whole:.1f} seconds", seen)


def killed_at_the_worst_moment(folder: Path) -> None:
    """After git has removed the learner's notebook and before it has written the merged one."""
    course, _, learner = conflict_of_one(folder)
    git(learner, "commit", "-qam", "as nbgitpuller does first")
    (learner / EDITED).unlink()
    tell("Killed at the worst moment, imitated", Counter([after(course, learner)]))


def full_disk(folder: Path) -> None:
    course, _, template = conflict_of_one(folder)
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)
    seen: Counter[str] = Counter()
    try:
        for n in range(TIMES):
            learner = Path(shutil.copytree(template, disk / "learner"))
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            (disk / "other").write_bytes(b"0" * max(0, free - n * STEP))
            told = pull(course, learner)
            (disk / "other").unlink()
            seen[f"{'went through' if told else 'stopped'}; {after(course, learner)}"] += 1
            shutil.rmtree(learner)
    finally:
        subprocess.run(["umount", disk], check=True)
    tell(f"Room for 0 to {STEP * (TIMES - 1) >> 10} KiB", seen)


def tell(title: str, seen: Counter[str]) -> None:
    print(f"{title}:")
    for what, times in seen.most_common():
        print(f"  {times:>3} times: {what}")


if __name__ == "__main__":
    for trial in (random_edits, killed, killed_at_the_worst_moment, full_disk):
        with tempfile.TemporaryDirectory() as name:
            trial(Path(name))
