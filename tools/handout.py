"""What a teacher needs besides the notebooks: slides, paper, graders' sources, copies, lessons.

    python tools/handout.py slides [--all] [NUMBER ...]        build/slides/NN_….slides.html
    python tools/handout.py print [--short] [NUMBER ...]       build/print/NN_….html
    python tools/handout.py nbgrader [NUMBER ...]              build/nbgrader/source/…
    python tools/handout.py otter [NUMBER ...]                 build/otter/…
    python tools/handout.py learners [--no-solutions] [NUMBER ...]   build/learners/…, bare
    python tools/handout.py lessons                            build/lessons/….html, by plan

NUMBER is 3, or 1-6; without one, all are made. It is made from the stored notebooks; nothing is
run. Slides hold the open thread, with --all the second readings too; paper holds both, with --short
the open thread. Both are single files that load nothing from anywhere. `make slides` and `make
print` call this.
"""

import re
import shutil
import sys
from pathlib import Path

from nbformat import NotebookNode, v4

import lessons
import notebooks
from from_npm import BUILD, fetch
from mha_course.base.notebook import stated_minutes, tagged, without_folds
from mha_course.lab.copies import LINKED, RECORD, without_outputs
from mha_course.pages import slides as deck
from mha_course.pages.folds import unfold
from mha_course.pages.paper import printed

REVEAL = "reveal.js@5.2.1"
DOTS = re.compile(r"^( *)\.\.\.$", re.M)


def reveal() -> dict[str, str]:
    """The script and style of reveal.js, fetched once and kept in the build folder."""
    dist = fetch(REVEAL) / "reveal.js/dist"
    return {f"reveal_{end}": (dist / f"reveal.{end}").read_text("utf-8") for end in ("js", "css")}


def slides(path: Path) -> str:
    notebook = unfold(notebooks.read(path), keep="--all" in sys.argv)
    return deck.slides(notebook, path.stem, **reveal())


def printed_page(path: Path) -> str:
    return printed(unfold(notebooks.read(path), keep="--short" not in sys.argv), path.stem)


def with_solution(stub: str, solution: str, begin: str, end: str) -> str:
    """The stub with the solution's lines in place of its dots, each part between two marks."""
    first, *others = re.split(r"^ *\.\.\.$", stub, flags=re.M)
    parts, rest = [first], solution.removeprefix(first)
    for indent, kept in zip(DOTS.findall(stub), others, strict=True):
        body, _, rest = rest.partition(kept) if kept else (rest, "", "")
        parts.append(f"{indent}{begin}\n{body.rstrip()}\n{indent}{end}{kept}")
    return "".join(parts)


def for_graders(path: Path, begin: str, end: str) -> tuple[NotebookNode, dict[str, int]]:
    """A notebook with solutions in the stubs and checks asserted, and each stub's id → minutes."""
    notebook, points, minutes = notebooks.read(path), {}, 0
    answers = notebooks.solutions(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes = stated_minutes(cell.source) or minutes
            cell.source = without_folds(cell.source, "Solution")
        elif cell.id in answers:
            points[cell.id] = minutes
            cell.source = with_solution(cell.source, answers[cell.id], begin, end)
        elif tagged(cell, "check"):
            cell.source = f"report = {cell.source}\nassert report.passed, report"
            cell.outputs = []
    return notebook, points


def nbgrader(path: Path) -> str:
    """An nbgrader source: a stub is an answer, its check a test worth the exercise's minutes."""
    notebook, points = for_graders(path, "### BEGIN SOLUTION", "### END SOLUTION")
    worth = iter(points.values())
    for cell in notebook.cells:
        if tagged(cell, "check", "exercise"):
            test = tagged(cell, "check")
            cell.metadata["nbgrader"] = {
                "schema_version": 3,
                "grade_id": cell.id,
                "grade": test,
                "solution": not test,
                "locked": test,
                "task": False,
                **({"points": next(worth)} if test else {}),
            }
    return notebooks.nbformat.writes(notebook)


def otter(path: Path) -> str:
    """A notebook for `otter assign`: each exercise is a question, its check the question's test."""
    notebook, points = for_graders(path, "# BEGIN SOLUTION", "# END SOLUTION")
    cells = [v4.new_raw_cell("# ASSIGNMENT CONFIG\nexport_cell: false\ncheck_all_cell: false")]
    for cell in notebook.cells:
        if cell.id in points:
            name = re.sub(r"\W", "_", cell.id.removesuffix("-stub"))
            question = f"# BEGIN QUESTION\nname: {name}\npoints: {points[cell.id]}"
            parts = [question, "# BEGIN SOLUTION", cell, "# END SOLUTION"]
        elif tagged(cell, "check"):
            parts = ["# BEGIN TESTS", cell, "# END TESTS", "# END QUESTION"]
        else:
            parts = [cell]
        cells += [v4.new_raw_cell(part) if isinstance(part, str) else part for part in parts]
    notebook.cells = cells
    return notebooks.nbformat.writes(notebook)


def for_learners(path: Path) -> str:
    """A notebook without outputs: a guess comes before its answer. Another file as it is."""
    if "--no-solutions" not in sys.argv or path.suffix != ".ipynb":
        return without_outputs(path.read_bytes()).decode()
    notebook = notebooks.read(path)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = without_folds(cell.source, "Solution")
    return without_outputs(notebooks.nbformat.writes(notebook).encode()).decode()


def save(name: str, text: str) -> None:
    """Into the build folder, and says so."""
    path = BUILD / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    print(path.relative_to(BUILD.parent))


def main() -> None:
    forms = {
        "slides": (slides, "slides", ".slides.html", "--all"),
        "print": (printed_page, "print", ".html", "--short"),
        "nbgrader": (nbgrader, "nbgrader/source", ".ipynb", ""),
        "otter": (otter, "otter", ".ipynb", ""),
        "learners": (for_learners, "learners", ".ipynb", "--no-solutions"),
    }
    if sys.argv[1:] == ["lessons"]:
        for name, text in lessons.written((notebooks.FOLDER / "TEACHING.md").read_text("utf-8")):
            save(f"lessons/{name}.html", text)
        return
    form, *words = sys.argv[1:] or [""]
    numbers = [word for word in words if not word.startswith("-")]
    if form not in forms or {*words} - {*numbers, forms[form][3]}:
        raise SystemExit(f"{__doc__}\nGot: {' '.join(sys.argv[1:])}")
    make, folder, ending, _ = forms[form]
    paths = notebooks.paths(*numbers)
    if make is for_learners:  # what lies there from before may be older, or hold solutions
        before = [p for p in notebooks.paths() if (BUILD / folder / p.name).exists()]
        if kept := [p for p in before if p not in paths]:
            print(f"From before, and made anew, too: {', '.join(p.name[:2] for p in kept)}.")
            print(f"To hand out the others alone, remove {BUILD / folder} first.")
        paths += kept
    for path in [*paths, *(notebooks.FOLDER / name for name in LINKED if make is for_learners)]:
        # Graders want a folder for each assignment.
        inside = f"{folder}/{path.stem}" if make in (nbgrader, otter) else folder
        name = path.name if make is for_learners else f"{path.stem}{ending}"
        save(f"{inside}/{name}", make(path))
    shutil.copy(notebooks.FOLDER.parent / "LICENSE", BUILD / folder)  # it goes with what is given
    if make is for_learners and "--no-solutions" not in words:
        print("With solutions: --no-solutions leaves them out.")
    if make is for_learners:  # progress is kept here; empty, it conflicts with no update
        (BUILD / folder / RECORD).write_text("{}\n")


if __name__ == "__main__":
    main()
