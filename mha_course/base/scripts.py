"""Scripts are modules that import each other; what a page or a widget carries is made from them."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

IMPORT = re.compile(r'^import \{\s*\w+(?:,\s+\w+)*,?\s*\} from "([^"]+)";\n', re.M)
BESIDE = re.compile(r"^ *(//.*\n)?", re.M)  # comments on lines of their own, and indentation


def bundle(entry: Path) -> str:
    """A script and all that it imports as one module: each file once, after those it imports.

    All share one scope: a name stands at the top of one file only.

    Raises:
        graphlib.CycleError: scripts import each other in a circle.
    """
    texts: dict[Path, str] = {}
    imported: dict[Path, list[Path]] = {}
    waiting = [entry.resolve()]
    while waiting:
        path = waiting.pop()
        text = path.read_text(encoding="utf-8")
        texts[path] = BESIDE.sub("", IMPORT.sub("", text))
        imported[path] = [(path.parent / name).resolve() for name in IMPORT.findall(text)]
        waiting += [other for other in imported[path] if other not in texts]
    return "".join(texts[path] for path in TopologicalSorter(imported).static_order())
