"""Who solved what: runs a folder of submitted notebooks and sums up the class.

    python -m mha_lesson.course.classroom FOLDER [--out REPORT] [--seconds 300] [--memory 6]

Every notebook runs in a process and a folder of its own, with limits on time and memory, without
network, and without writing elsewhere. How strong these walls are depends on the system: see
`_walls`. A broken or hostile submission gets a line in the report and never stops the others.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mha_lesson import check
from mha_lesson.pictures.panels import Heatmap, Scene
from mha_lesson.progress import Progress
from mha_lesson.refusals import listed, require_kind, require_positive, require_positive_int

NAMES = tuple(exercise.name for exercise in check.EXERCISES)
DONE, TRIED, OPEN = "done", "tried", "open"
MAX_RESULT = 2**20  # bytes that a submission may report: hundreds of times what it needs


@dataclass
class Submission:
    """What one learner handed in, and what came of it.

    Attributes:
        name: the notebook's path in the folder, without its ending.
        note: how the run ended, in words; empty if it went through.
        states: "done" or "tried" for each exercise that was checked.
        slips: the keys of the mistakes that the last failed check of an exercise named.
    """

    name: str
    note: str = ""
    states: dict[str, str] = field(default_factory=dict)
    slips: dict[str, list[str]] = field(default_factory=dict)

    def take(self, name: str, passed: bool | None, slips: list[str]) -> None:
        """One check's outcome; what was done once stays done.

        A submission can report anything: what no check says is left out.
        """
        known = isinstance(name, str) and name in NAMES
        if not known or not isinstance(passed, bool) or self.states.get(name) == DONE:
            return
        slips = slips if isinstance(slips, list) and not passed else []
        self.states[name] = DONE if passed else TRIED
        self.slips[name] = [slip for slip in slips if isinstance(slip, str)]


def grade(
    folder: Path, seconds: float = 300, memory_gb: float = 6, jobs: int = 1
) -> list[Submission]:
    """Runs every notebook below `folder`, `jobs` at a time, and never raises for one of them."""
    require_kind("folder", folder, Path)
    require_positive("seconds", seconds)
    require_positive("memory_gb", memory_gb)
    require_positive_int("jobs", jobs)
    paths = sorted(p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not paths:
        raise SystemExit(f"No notebooks in {folder}.")
    names = [str(path.relative_to(folder).with_suffix("")) for path in paths]
    submissions = []
    with Progress(len(paths), "submissions") as bar, ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(lambda n, p: _run(n, p, seconds, memory_gb), names, paths):
            submissions.append(done)
            bar.advance(done.name)
    return submissions


def _run(name: str, path: Path, seconds: float, memory_gb: float) -> Submission:
    submission = Submission(name)
    try:
        cells = _code_cells(path)
    except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        submission.note = f"not a readable notebook ({type(error).__name__})"
        return submission
    if not cells:
        submission.note = "no code in it"
        return submission
    with tempfile.TemporaryDirectory(prefix="submission-") as work:
        Path(work, "cells.json").write_text(json.dumps(cells), encoding="utf-8")
        submission.note = _in_own_process(work, seconds, memory_gb, submission)
    return submission


def _code_cells(path: Path) -> list[str]:
    content = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    return [s for cell in cells if (s := "".join(cell["source"])).strip()]


def _in_own_process(work: str, seconds: float, memory_gb: float, submission: Submission) -> str:
    """Runs the cells, takes what they report, and says how it ended."""
    reader, writer = os.pipe()
    env = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "PYTHONPATH")},
        **dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR"), work),
        "OMP_NUM_THREADS": "1",  # several may run side by side
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    child = [
        sys.executable,
        "-m",
        "mha_lesson.course._submission",
        work,
        str(writer),
        str(memory_gb),
    ]
    process = subprocess.Popen(
        [*_walls(work), *child],
        cwd=work,
        env=env,
        pass_fds=(writer,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(writer)
    try:
        process.wait(seconds)
        note = "" if process.returncode == 0 else "stopped before its end (memory, or a crash)"
    except subprocess.TimeoutExpired:
        note = f"stopped after {seconds:g} s"
    finally:
        _end(process)
    os.set_blocking(reader, False)
    with os.fdopen(reader, "rb") as results:
        for line in (results.read(MAX_RESULT) or b"").splitlines():
            try:
                submission.take(*json.loads(line))
            except (ValueError, TypeError, RecursionError):
                continue
    return note


def _end(process: subprocess.Popen) -> None:
    """The process and all it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


@cache
def _tool(*command: str) -> bool:
    """Whether this wall can be built here: tried once, on a command that does nothing."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, timeout=20).returncode == 0


def _walls(work: str) -> list[str]:
    """The strongest wall that the system has.

    With bubblewrap (Linux) everything but the submission's own folder is read-only and there is no
    network, whatever the code tries. With `unshare` there is no network. Everywhere, Python itself
    refuses to open files elsewhere for writing and to connect (`_submission`), which stops
    accidents and simple tricks, but is no wall against native code.
    """
    shell = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
             "--die-with-parent")  # fmt: skip
    if _tool(*shell):
        return [*shell, "--bind", work, work, "--chdir", work]
    if _tool("unshare", "-rn"):
        return ["unshare", "-rn"]
    return []


def common_slips(submissions: Iterable[Submission]) -> list[tuple[str, str, str, str, int]]:
    """(exercise, slip, what the code does, a question to open the lesson with, learners)."""
    counts = Counter(
        (name, slip)
        for submission in _handed_in(submissions)
        for name, slips in submission.slips.items()
        for slip in set(slips)
    )
    known = {(e.name, s.key): s for e in check.EXERCISES for s in e.slips}
    found = []
    for (name, key), n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        slip = known.get((name, key))
        if slip is not None:
            found.append((name, key, slip.does, slip.asks, n))
    return found


def _handed_in(submissions: Iterable[Submission]) -> list[Submission]:
    entries = listed("submissions", submissions, "Submissions")
    for i, entry in enumerate(entries):
        require_kind(f"submissions[{i}]", entry, Submission)
    if not entries:
        raise ValueError("submissions must hold at least one Submission; got none.")
    return entries


def scene(submissions: list[Submission]) -> Scene:
    """Learners × exercises: done is full, tried is half, open is empty."""
    submissions = _handed_in(submissions)
    levels = {DONE: 1.0, TRIED: 0.5, OPEN: 0.0}
    table = [[levels[s.states.get(name, OPEN)] for name in NAMES] for s in submissions]
    solved = [sum(s.states.get(name) == DONE for s in submissions) for name in NAMES]
    least = min(range(len(NAMES)), key=lambda i: solved[i])
    return Scene(
        Heatmap(
            table,
            [s.name for s in submissions],
            [f"{i} {name}" for i, name in enumerate(NAMES, 1)],
            limits=(0, 1),
            numbers=False,
            row_name="learner",
            column_name="exercise",
            quantity="solved",
            title="Who solved what (full: solved, half: tried, empty: open)",
        ),
        caption=f"{len(submissions)} submissions; fewest solved: {NAMES[least]}, {solved[least]}.",
    )


def save(submissions: list[Submission], out: Path) -> None:
    """Writes solved.csv, slips.csv and solved.png into the folder `out`."""
    from mha_lesson.pictures.figures import png

    submissions = _handed_in(submissions)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "solved.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["learner", *NAMES, "note"])
        for s in submissions:
            states = [s.states.get(name, OPEN) for name in NAMES]
            writer.writerow([_plain(s.name), *states, s.note])
    with (out / "slips.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["exercise", "slip", "what the code does", "a question", "learners"])
        writer.writerows(common_slips(submissions))
    (out / "solved.png").write_bytes(png(scene(submissions)))


def _plain(text: str) -> str:
    """A spreadsheet must not take a learner's file name for a formula."""
    return "'" + text if text[:1] in "=+-@\t\r" else text


def words(submissions: list[Submission]) -> str:
    """The report as text."""
    submissions = _handed_in(submissions)
    width = max(len(s.name) for s in submissions)
    lines = [f"{'':{width}}  " + " ".join(f"{i:>2}" for i in range(1, len(NAMES) + 1))]
    signs = {DONE: " ✓", TRIED: " ✗", OPEN: " ·"}
    for s in submissions:
        marks = " ".join(signs[s.states.get(name, OPEN)] for name in NAMES)
        lines.append(f"{s.name:{width}}  {marks}  {s.note}".rstrip())
    slips = common_slips(submissions)
    if slips:
        lines += ["", "What the class does most often, and a question to open with:"]
    for name, _, does, asks, n in slips[:5]:
        lines.append(f"  {n} × {name}: {does} {asks}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m mha_lesson.course.classroom", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="holds the notebooks, at any depth")
    parser.add_argument("--out", type=Path, default=Path("classroom_report"))
    parser.add_argument("--seconds", type=float, default=300, help="for each notebook")
    parser.add_argument("--memory", type=float, default=6, help="GB for each notebook")
    parser.add_argument("--jobs", type=int, default=1, help="how many run side by side")
    options = parser.parse_args(arguments)
    if os.name == "nt":
        raise SystemExit("Limits for hostile code need Linux or macOS; on Windows use WSL.")
    if not options.folder.is_dir():
        raise SystemExit(f"{options.folder} is not a folder.")
    submissions = grade(options.folder, options.seconds, options.memory, options.jobs)
    save(submissions, options.out)
    print(words(submissions))
    print(f"\nSaved in {options.out}: solved.csv, slips.csv, solved.png")


if __name__ == "__main__":
    main()
