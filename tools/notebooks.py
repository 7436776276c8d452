"""Run the notebooks anew and store their outputs in one normal form.

    python tools/notebooks.py            all of them, two at a time
    python tools/notebooks.py 01 05      these only

`make notebooks` calls this. Run twice without a change it leaves no diff. The tests use
`normalise` (into the stored form) and `with_solutions` (each in its stub), too.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mha_course.base.disk import write_whole
from mha_course.base.notebook import course, exercises
from mha_course.base.numerals import listed

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
TABLES = (FOLDER.parent / "README.md", FOLDER / "TEACHING.md", FOLDER / "00_start_here.ipynb")
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"file_extension": ".py", "name": "python"},  # what nbconvert calls a script
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
IN_WORDS = re.compile(r"(^### In words\n\n(?:[^|\n].*\n|\n)*)(?:\|.*\n)+", re.M)
REREAD = re.compile(r"(?:^\| `\w+` \| \d\d, \*.+\* \|\n)+", re.M)
CLOSED = "jp-MarkdownHeadingCollapsed"


def paths(*numbers: str) -> list[Path]:
    """The notebooks with these numbers, 3 or 1-6; all of them when none is given."""
    found = {path.name[:2]: path for path in sorted(FOLDER.glob("*.ipynb"))}
    try:
        named = {int(number): number for number in found}
        asked = listed("NUMBER", " ".join(numbers), named, [*found]) if numbers else found
        return [found[number] for number in asked]
    except ValueError as error:
        raise SystemExit(str(error)) from error


def read(path: Path) -> NotebookNode:
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))  # not validated again each time


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Strip everything that differs between two runs; ids, tags and folded code stay."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        folded = cell.metadata.get("jupyter", {}).get("source_hidden")
        kept = {
            "tags": cell.metadata.get("tags"),
            "jupyter": {"source_hidden": True} if folded else None,  # code, seen at a click
            CLOSED: cell.metadata.get(CLOSED),  # JupyterLab folds the section below this heading
        }
        cell.metadata = nbformat.from_dict({key: value for key, value in kept.items() if value})
        for output in cell.get("outputs", ()):
            if "data" in output:
                # A live view names a model that lives in the kernel only; without it, an explorer
                # that nobody has run yet shows the picture that lies beside it. nbval never
                # compares this key.
                output.data.pop(WIDGET_VIEW, None)
                output.metadata = nbformat.from_dict({})
    return notebook


def keep_measured(stored: NotebookNode, run_now: NotebookNode) -> NotebookNode:
    """Times and other outputs that are never compared stay as they were while no code changes."""
    code = [[c for c in n.cells if c.cell_type == "code"] for n in (stored, run_now)]
    if [c.source for c in code[0]] == [c.source for c in code[1]]:
        for old, new in zip(*code, strict=True):
            if "nbval-ignore-output" in new.metadata.get("tags", ()) and old.outputs:
                new.outputs = old.outputs
    return run_now


def with_questions(notebook: NotebookNode, book: str) -> NotebookNode:
    """The notebook with the bank's questions for it in the cells `say-first-1` to `-3`."""
    from mha_course.collection.bank import bank
    from mha_course.practice.asked import aloud

    chosen = [q for q in bank().values() if q.aloud and q.notebook == book]
    cells = [cell for cell in notebook.cells if cell.id.startswith("say-first-")]
    for cell, question in zip(cells, chosen, strict=True):
        cell.source = f"**{cell.id[-1]}.** {aloud(question)}"
    return notebook


def store(path: Path) -> str:
    """Run one notebook, write its normal form, and say what happened in one line."""
    # They stand on what the lab and the pages are made of.
    from mha_course.pages.exporter import run
    from minutes import with_minutes

    before = path.read_text(encoding="utf-8")
    notebook = keep_measured(read(path), normalise(run(read(path), FOLDER)))
    notebook = with_minutes(with_questions(notebook, path.name[:2]))
    after = nbformat.writes(notebook).rstrip("\n") + "\n"
    if after == before:
        return f"{path.name}: the same"
    write_whole(path, after.encode())
    return f"{path.name}: stored anew, {len(after.encode()) // 1024} KB"


def solutions(notebook: NotebookNode) -> dict[str, str]:
    """Folded solution of each exercise: id of the stub's cell -> code."""
    asked = exercises(notebook.cells)
    return {one.stub.id: one.solution for one in asked if one.solution}


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """The notebook with every folded solution in its stub, and every check made an assertion."""
    answers = solutions(notebook)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
        if "check" in cell.metadata.get("tags", ()):
            *before, call = cell.source.rstrip().splitlines()
            cell.source = "\n".join([*before, f"report = {call}", "assert report.passed, report"])
    return notebook


def with_questions_in_words(guide: str) -> str:
    """The teacher's guide with the table of the bank's questions, under *In words*."""
    from mha_course.collection.bank import bank

    rows = [
        f"| {q.notebook} | {q.asks} | {q.answer} | “{q.often[0]}” {q.often[1]} |"
        for q in bank().values()
        if q.often
    ]
    head = "| | question | a good answer | a wrong one, and what it shows |\n|---|---|---|---|\n"
    return IN_WORDS.sub(lambda found: found[1] + head + "\n".join(rows) + "\n", guide)


def with_the_exercises(guide: str) -> str:
    """The teacher's guide with what the exercises say: where to reread, how many, and for long."""
    from mha_course import check

    every = sorted((*check.EXERCISES, *check.SHORT), key=lambda exercise: exercise.notebook)
    rows = [f"| `{e.name}` | {e.notebook}, *{e.reread}* |\n" for e in every]
    asked = {one.name: one.minutes for cells in course().values() for one in exercises(cells)}
    minutes = sum(asked[exercise.name] for exercise in every)
    guide = REREAD.sub(lambda _: "".join(rows), guide)
    guide = re.sub(r"(?<=the )\d+( exercises together )\d+", rf"{len(every)}\g<1>{minutes}", guide)
    counts = f"all {len(every)} count ({len(check.EXERCISES)} numbered ones"
    return re.sub(r"all \d+ count \([\w-]+ numbered ones", counts, guide)


def main() -> None:
    from minutes import with_new_tables

    with ThreadPoolExecutor(max_workers=2) as pool:  # each notebook has its own kernel process
        for line in pool.map(store, paths(*sys.argv[1:])):
            print(line, flush=True)
    books = {path.stem: read(path) for path in paths()}
    for path in TABLES:  # their minutes, and the guide's questions
        text = with_the_exercises(with_questions_in_words(path.read_text(encoding="utf-8")))
        path.write_text(with_new_tables(text, books), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
