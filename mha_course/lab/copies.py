"""A working copy of the course that updates never overwrite.

A copy comes without outputs: a guess comes before its answer, and whoever wants an output runs the
cell.
"""

import hashlib
import json
import platform
import re
import sqlite3
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from mha_course.base.disk import free_path, write_whole
from mha_course.base.notebook import EXPLORER

MINE = "my_notebooks"
LINKED = ("CLAIMS.md", "WORDS.md")  # what else the notebooks lead to
RECORD = ".copied.json"  # file name -> hash of the work in what was copied there
FIRST = "00_start_here.ipynb"
FIRST_PICTURE = "writes"  # the cell whose picture is kept
TO_RUN = "Run this cell (Shift+Enter): a picture appears, and you can move it."
# What ipykernel says of itself, which Jupyter writes into every notebook that it opens.
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": platform.python_version(),
}


def sync(source: Path, copies: Path, today: date) -> list[str]:
    """Bring `copies` up to date with the course in `source`; return a line for each new file.

    A file counts as the learner's as soon as a cell or an output differs from what was copied: a
    measurement is work as well. What Jupyter writes into a notebook when it is opened is not.
    Nothing is lost when a run is interrupted or the record disappears: a file that the record does
    not vouch for is the learner's.
    """
    copies.mkdir(parents=True, exist_ok=True)
    record = _read_record(copies)
    pages = [source / name for name in LINKED if (source / name).exists()]
    try:
        lines = [_update(path, copies, record, today) for path in sorted(source.glob("*.ipynb"))]
        lines += [_update(path, copies, record, today) for path in pages]
        lines += _left_the_course(source, copies, record)
    finally:
        write_whole(copies / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
    return [*filter(None, lines)]


def _left_the_course(source: Path, copies: Path, record: dict[str, str]) -> list[str]:
    """A line for each copy whose original is gone, said once; the copy stays."""
    original = {name: re.sub(r"\.updated-.*(?=\.)", "", name) for name in sorted(record)}
    gone = [name for name, first in original.items() if not (source / first).exists()]
    for name in gone:
        del record[name]
    return [f"No longer in the course, yours stays: {n}" for n in gone if (copies / n).exists()]


def _update(original: Path, copies: Path, record: dict[str, str], today: date) -> str | None:
    """Adds one file, renews it, puts it beside the learner's, or leaves all as it is."""
    content, copy = without_outputs(original.read_bytes()), copies / original.name
    newest, current = _fingerprint(content), copy.read_bytes() if copy.exists() else None
    now = None if current is None else _fingerprint(_as_it_came(current, content))
    beside = f"{copy.stem}.updated-"
    family = [name for name in record if name == copy.name or name.startswith(beside)]
    updates = copies.glob(f"{beside}*{copy.suffix}")  # also one that the record lost
    as_copied = current is not None and record.get(copy.name) == now

    if current is None:
        line = f"New: {copy.name}"
    elif now == newest:
        record[copy.name] = newest
        return None
    elif as_copied and write_whole(copy, content, current):
        record[copy.name] = newest
        return f"Renewed, you had not changed it: {copy.name}"
    elif newest in {record[name] for name in family} or any(
        _fingerprint(path.read_bytes()) == newest for path in updates
    ):
        return None
    else:
        changed = copy.name
        copy = free_path(copy.with_name(f"{beside}{today}{copy.suffix}"))
        line = f"Updated: you have changed {changed}, so the new version is beside it: {copy.name}"
    write_whole(copy, content)
    record[copy.name] = newest
    return line


def trust(first: Path) -> None:
    """Has JupyterLab trust the copy of this notebook, whose picture is there before a cell has run:
    from what it does not trust it cuts the style that dims pictures in the dark.

    What is signed are the contents: a copy that anybody changed has another signature.
    """
    import nbformat  # seldom needed, and slow to import
    from nbformat.sign import NotebookNotary

    copied = nbformat.reads(without_outputs(first.read_bytes()).decode(), as_version=4)
    with suppress(OSError, sqlite3.Error):  # no folder for signatures: it opens all the same
        NotebookNotary().sign(copied)


def _notebook(content: bytes) -> dict[str, Any] | None:
    """A notebook's JSON; None for any other file."""
    try:
        notebook = json.loads(content)
        whole = all(isinstance(c["source"], str | list) for c in notebook["cells"])
        return notebook if whole else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def without_outputs(content: bytes) -> bytes:
    """A notebook without outputs; its explorers ask to be run. Another file as it is.

    Only the first picture of the course is kept. The notebook names the Python that runs it, as
    Jupyter would on opening it: so opening changes nothing.
    """
    notebook = _notebook(content)
    if notebook is None:
        return content
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            shows = [{"text/plain": [TO_RUN]}] if EXPLORER.search("".join(cell["source"])) else []
            if cell.get("id") == FIRST_PICTURE:
                shows = [output["data"] for output in cell["outputs"] if "data" in output]
            outputs = [{"output_type": "display_data", "metadata": {}, "data": x} for x in shows]
            cell |= {"outputs": outputs, "execution_count": None}
    notebook.setdefault("metadata", {})["language_info"] = LANGUAGE
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _as_it_came(current: bytes, content: bytes) -> bytes:
    """A copy whose outputs a tool has cleared, with those of `content`; any other as it is."""
    notebook, newest = _notebook(current), _notebook(content)
    if not notebook or not newest or any(cell.get("outputs") for cell in notebook["cells"]):
        return current
    came = {cell.get("id"): cell.get("outputs") for cell in newest["cells"]}
    cells = [cell | {"outputs": came.get(cell.get("id"))} for cell in notebook["cells"]]
    return json.dumps(notebook | {"cells": cells}).encode()


def _fingerprint(content: bytes) -> str:
    """A hash of a learner's work in a file: of a notebook, its cells and their outputs."""
    notebook = _notebook(content)
    if notebook is not None:
        parts = ("cell_type", "source", "attachments", "outputs")
        cells = [
            {part: _joined(cell.get(part) or None) for part in parts} for cell in notebook["cells"]
        ]
        content = json.dumps(cells, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _joined(text: Any) -> Any:
    """Jupyter stores a text as one string or as a list of its lines."""
    in_lines = isinstance(text, list) and all(isinstance(line, str) for line in text)
    return "".join(text) if in_lines else text


def _read_record(copies: Path) -> dict[str, str]:
    try:
        record = json.loads((copies / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, str)}


def working_copy() -> Path:
    """`my_notebooks` in this folder, or this folder where it is one."""
    here = Path.cwd()
    return here if (here / RECORD).exists() else here / MINE
