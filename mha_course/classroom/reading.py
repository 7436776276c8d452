"""A notebook that was handed in, read as data: its cells, whose number it has, what was guessed."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mha_course.base.notebook import course, folds, python_in, source
from mha_course.cells.predictions import guesses_in

AGAIN = "open it in Jupyter, save it, and hand in that file"
RIGHT = re.compile(r"^(\w+): right\b.*", re.M)  # how a report's text begins


@dataclass(frozen=True)
class Contents:
    """What a file holds."""

    cells: list[str] = field(default_factory=list)  # the source of each code cell
    why: str = ""  # there are none, in words
    notebook: str = ""  # the number of the course's that has most of its cells, "03"; or empty
    language: str = ""  # of its kernel, where it is not Python
    python: tuple[int, ...] = ()  # the version that it ran in, (3, 14)
    guesses: dict[str, str] = field(default_factory=dict)  # by question before a picture
    shows: dict[str, str] = field(default_factory=dict)  # by exercise: an output that says right
    texts: list[str] = field(default_factory=list)  # the source of every cell, code or not


def read(raw: bytes) -> Contents:
    """Never raises, whatever the bytes are."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Contents(why=f"not readable: saved as UTF-16; a notebook is UTF-8: {AGAIN}")
    try:
        content = json.loads(raw.decode("utf-8-sig").rstrip("\0 \r\n\t"))
        whole = ((c["cell_type"], "".join(c["source"])) for c in content["cells"])
        cells = [(kind, source.replace("\r\n", "\n").strip("\n")) for kind, source in whole]
        code = [source for kind, source in cells if kind == "code" and source.strip()]
        return Contents(
            code,
            "" if code else f"no code in it: {AGAIN}",
            _number({source.strip() for _, source in cells}),
            _language(content.get("metadata", {})),
            _version(content.get("metadata", {})),
            *_told(content["cells"]),
            [source for _, source in cells],
        )
    except UnicodeDecodeError:
        why = "not saved as UTF-8 (Latin-1, perhaps)"
    except json.JSONDecodeError as error:
        merge = "the marks of a merge in it, to be removed first"
        why = merge if b"\n<<<<<<< " in raw else "not a notebook, or cut off"
        why += f" (line {error.lineno})"
    except (MemoryError, RecursionError) as error:
        why = type(error).__name__
    except (KeyError, TypeError, AttributeError, ValueError):
        why = "JSON, but not a notebook of today's format"
    return Contents(why=f"not readable: {why}: {AGAIN}")


def _told(cells: Any) -> tuple[dict[str, str], dict[str, str]]:
    """What the outputs say: the guesses, and which answers a check has called right."""
    guesses: dict[str, str] = {}
    shows: dict[str, str] = {}
    for output in (output for cell in cells for output in cell.get("outputs") or ()):
        try:
            plain = output.get("data", {}).get("text/plain", output.get("text", ""))
            said = "".join(plain)
            guesses |= guesses_in(said)
            shows |= {found[1]: found[0][:200] for found in RIGHT.finditer(said)}
        except (TypeError, AttributeError):
            continue
    return guesses, shows


def _language(metadata: Any) -> str:
    """What a kernel says of itself; Jupyter writes it in two places."""
    try:
        name = metadata.get("language_info", {}).get("name") or metadata["kernelspec"]["language"]
        return "" if str(name).lower().startswith("python") else str(name)[:40]
    except (KeyError, TypeError, AttributeError):
        return ""


def _version(metadata: Any) -> tuple[int, ...]:
    """(3, 14) of "3.14.0", where the kernel is a Python."""
    try:
        version = re.match(r"(\d+)\.(\d+)", metadata["language_info"]["version"])
        return tuple(map(int, version.groups())) if version and not _language(metadata) else ()
    except (KeyError, TypeError, AttributeError):
        return ()


@cache
def _course() -> dict[str, set[tuple[str, str]]]:
    """The source of a cell of the course -> (number of its notebook, kind), of each that has it."""
    cells = defaultdict(set)
    for book, of_book in course().items():
        for cell in of_book:
            cells[source(cell).strip()].add((book, cell["cell_type"]))
    return cells


def _number(sources: set[str]) -> str:
    """Whose cells they are; of cells that several notebooks have nothing can be told."""
    only_in = [at for source in sources if len(at := _course().get(source, ())) == 1]
    counts = Counter(number for [(number, _)] in only_in).most_common(2)
    (number, most), (_, second) = [*counts, ("", 0), ("", 0)][:2]
    return number if most >= 5 and most > 2 * second else ""


@cache
def course_cells() -> frozenset[str]:
    """The source of every code cell of the course: none of them is a learner's answer."""
    return frozenset(
        source for source, places in _course().items() if "code" in dict(places).values()
    )


@cache
def solutions() -> tuple[str, ...]:
    """The code of every solution that the course folds."""
    folded = (fold for text in _course() for fold in folds(text, "Solution"))
    return tuple(code for fold in folded for code in python_in(fold))
