"""Who solved what: judges a folder of submitted notebooks and sums up the class.

    mha-lesson classroom FOLDER [--roster CLASS.csv] [--assigned 1-6,11]

A learner is a subfolder, or a line of the roster. Every answer is judged in a process and a folder
of its own, with limits on time, memory and disk, in the strongest sandbox that the system has. A
broken or hostile submission gets a line in the report and never stops the others. An interrupted
run goes on where it stopped.
"""

import argparse
import os
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_course.base.numerals import listed
from mha_course.classroom import files, pages, sandbox, words
from mha_course.classroom.final_test import read_key
from mha_course.classroom.grading import ALL, EXERCISES, NAMES, Row, grade
from mha_course.classroom.sandbox import Limits
from mha_lesson.refusals import require_positive, require_positive_int


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(
        prog="mha-lesson classroom",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="holds the notebooks, at any depth")
    parser.add_argument("--roster", type=Path, help="CSV: name, then what names their files")
    parser.add_argument("--assigned", help="exercises, 1-6,11 or names; or a file that holds them")
    parser.add_argument("--test", type=Path, help="the folder of a test's key: a test is handed in")
    parser.add_argument("--due", help="what changed after 2026-12-01 or 2026-12-01T18:00 is late")
    parser.add_argument("--out", type=Path, default=Path("classroom_report"))
    parser.add_argument("--seconds", type=float, default=300, help="for each notebook")
    parser.add_argument("--memory", type=float, default=6, help="GB for each notebook")
    parser.add_argument("--disk", type=float, default=1000, help="MB for each notebook")
    parser.add_argument("--jobs", type=int, default=1, help="how many run side by side")
    options = parser.parse_args(arguments)
    for name in ("seconds", "memory", "disk"):
        require_positive(name, getattr(options, name))
    require_positive_int("jobs", options.jobs)
    if os.name == "nt":
        raise SystemExit("Limits for hostile code need Linux or macOS; on Windows use WSL.")
    if not options.folder.is_dir():
        unpack = ": unpack it first" if options.folder.is_file() else ""
        raise SystemExit(f"{options.folder} is not a folder{unpack}.")
    if options.out.is_file() or options.out.resolve() == options.folder.resolve():
        raise SystemExit(f"--out takes a folder of its own for the report; got {options.out}.")
    if options.test and options.assigned:
        raise SystemExit("--test says what is assigned: leave --assigned out.")
    test = read_key(options.test) if options.test else []
    names = tuple(part.name for part in test if part.name) or assigned(options.assigned)
    typed = words.typed_in(options.out, test) if test else {}
    roster = files.read_roster(options.roster) if options.roster else files.Roster()
    end = due(options.due)
    kind = sandbox.strongest()
    print(sandbox.warning() or f"Sandbox: {kind}: {sandbox.MEANS[kind]}.")
    with TemporaryDirectory(prefix="unpacked-", ignore_cleanup_errors=True) as unpacked:
        into = Path(unpacked)
        learners = files.learners(options.folder, into, roster, options.out, bool(test))
        if not learners:
            raise SystemExit(f"No files in {options.folder}.")
        rows = [Row(learner, names=names, due=end) for learner in learners]
        count = sum(len(learner.notebooks) for learner in learners)
        minutes = count * options.seconds / 60 / options.jobs
        print(
            f"{count} notebooks, at most {minutes:.0f} minutes on an idle machine, "
            f"{4 * minutes:.0f} on the busiest; most take seconds each."
        )
        try:
            limits = Limits(options.seconds, options.memory, options.disk)
            grade(rows, options.out, limits, options.jobs)
        except KeyboardInterrupt:
            print("Interrupted. What has been run is kept: the same command goes on from here.")
            test = []
    pages.save(rows, options.out, roster)
    print(pages.words(rows))
    print(f"\nSaved in {options.out}: index.html, learners/, six tables for a spreadsheet (CSV)")
    if test and (left := words.save(rows, test, typed, options.out, roster)):
        print(left)
    return rows


def due(day: str | None) -> float:
    """The end of a day, or a moment, on this machine's clock."""
    if day is None:
        return inf
    try:
        moment = datetime.strptime(day, "%Y-%m-%dT%H:%M" if "T" in day else "%Y-%m-%d")
    except ValueError as error:
        raise SystemExit(f"--due takes 2026-12-01 or 2026-12-01T18:00; got {day}.") from error
    return (moment + timedelta(days="T" not in day)).timestamp()


def assigned(exercises: str | None) -> tuple[str, ...]:
    """The names of the exercises that were assigned, in the order of the course."""
    if exercises is None:
        return NAMES
    path = Path(exercises)
    text = path.read_text(encoding="utf-8-sig") if path.is_file() else exercises
    numbers = {e.number: e.name for e in EXERCISES if e.number}
    return tuple(listed("--assigned", text, numbers, [*ALL]))
