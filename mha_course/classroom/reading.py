"""A notebook that was handed in, read as data: its cells, whose number it has, what was guessed."""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mha_course.lab import NOTEBOOKS
from mha_course.predictions import noted


@dataclass(frozen=True)
class Read:
    """What a file holds.

    Attributes:
        cells: the source of each code cell.
        why: why there are none, in words; empty where there are.
        notebook: the number of the course's notebook that has most of its cells, "03"; or empty.
        language: of its kernel, where it is not Python.
        guesses: what its outputs say was guessed before a picture.
    """

    cells: list[str] = field(default_factory=list)
    why: str = ""
    notebook: str = ""
    language: str = ""
    guesses: dict[str, str] = field(default_factory=dict)


def read(raw: bytes) -> Read:
    """Never raises, whatever the bytes are."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Read(why=f"not readable: saved as UTF-16; a notebook is UTF-8: {AGAIN}")
    try:
        content = json.loads(raw.decode("utf-8-sig"))
        cells = [(c["cell_type"], "".join(c["source"]).strip("\n")) for c in content["cells"]]
        code = [source for kind, source in cells if kind == "code" and source.strip()]
        return Read(
            code,
            "" if code else f"no code in it: {AGAIN}",
            _number({source.strip() for _, source in cells}),
            _language(content.get("metadata", {})),
            _guesses(content["cells"]),
        )
    except UnicodeDecodeError:
        why = "not saved as UTF-8 (Latin-1, perhaps)"
    except json.JSONDecodeError as error:
        why = f"no notebook, or cut off (line {error.lineno})"
    except (MemoryError, RecursionError) as error:
        why = type(error).__name__
    except (KeyError, TypeError, AttributeError, ValueError):
        why = "JSON, but not a notebook of today's format"
    return Read(why=f"not readable: {why}: {AGAIN}")


AGAIN = "open it in Jupyter, save it, and hand in that file"


def _guesses(cells: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for cell in cells:
        for output in cell.get("outputs", ()):
            try:
                found |= noted("".join(output.get("data", {}).get("text/plain", "")))
            except (TypeError, AttributeError):
                continue
    return found


def _language(metadata: Any) -> str:
    """What a kernel says of itself; Jupyter writes it in two places."""
    try:
        said = metadata.get("language_info", {}).get("name") or metadata["kernelspec"]["language"]
        return "" if str(said).lower().startswith("python") else str(said)[:40]
    except (KeyError, TypeError, AttributeError):
        return ""


@cache
def course() -> dict[str, dict[str, set[str]]]:
    """Number of a notebook -> the sources of its code cells, and of all of its cells."""
    found = {}
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = [(c["cell_type"], "".join(c["source"]).strip()) for c in cells]
        code = {source for kind, source in sources if kind == "code"}
        found[path.name[:2]] = {"code": code, "all": {source for _, source in sources}}
    return found


def _number(sources: set[str]) -> str:
    """Whose cells they are; of cells that several notebooks have nothing can be told."""
    times = Counter(source for book in course().values() for source in book["all"])
    own = {
        number: sum(times[source] == 1 for source in book["all"] & sources)
        for number, book in course().items()
    }
    second, most = sorted([0, 0, *own.values()])[-2:]
    clear = most >= 5 and most > 2 * second
    return max(own, key=lambda number: own[number]) if clear else ""


@cache
def given() -> frozenset[str]:
    """The source of every code cell of the course: none of them is a learner's answer."""
    return frozenset().union(*(book["code"] for book in course().values()))
