"""The tests that a change can reach: `python tools/changed.py [commit]` names them, a file a line.

What has changed since `main` (or the commit), and what imports that, directly or through others;
a room of `mha_course` counts as one. `make test-changed` runs them.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = (
    "mha_course/__init__.py", "tests/conftest.py", "tests/checked.py", "data/", "pyproject.toml",
    "constraints.txt",
)  # fmt: skip


def node(path: str) -> str:
    """What changes as a whole: a room, the answers to the exercises, `mha_lesson`, or a file."""
    whole = re.match(r"mha_course/\w+(?=/)|tests/exercises/answers|mha_lesson", path)
    return whole[0] if whole else path


def imports(code: str, everywhere: bool = True) -> set[str]:
    """`a.b.c` of `from a.b import c`, of `import a.b.c`, and of a name that is imported later."""
    found: set[str] = set()
    tree = ast.parse(code)
    for part in ast.walk(tree) if everywhere else tree.body:
        if isinstance(part, ast.Constant) and re.fullmatch(r"mha_course[.\w]+", str(part.value)):
            found.add(str(part.value))
        elif isinstance(part, ast.ImportFrom):
            found |= {f"{part.module}.{alias.name}" for alias in part.names}
        elif isinstance(part, ast.Import):
            found |= {alias.name for alias in part.names}
    return found


def homes() -> dict[str, str]:
    """The first name of an import -> its node; what `mha_course` gives lazily, by its full name."""
    lazy = re.findall(r"from mha_course\.(\w+)[\w.]* import (.*)", _read("mha_course/__init__.py"))
    found = {f"mha_course.{n}": f"mha_course/{room}" for room, names in lazy
             for n in names.split(", ")}  # fmt: skip
    found |= {f"mha_course.{p.name}": f"mha_course/{p.name}" for p in ROOT.glob("mha_course/*/")}
    tools = [*ROOT.glob("tools/*.py"), *ROOT.glob("tests/*.py"), *ROOT.glob("tests/*/*.py")]
    found |= {p.stem: str(p.relative_to(ROOT)) for p in tools if not p.stem.startswith("test_")}
    found["mha_course.__main__"] = "mha_course/__main__.py"
    return found | {"mha_lesson": "mha_lesson", "answers": "tests/exercises/answers"}


def reached(changed: Iterable[str]) -> list[str]:
    """Test files and notebooks, of these changed files."""
    changed = {*changed}
    tests = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("tests/*/test_*.py"))
    books = {str(p.relative_to(ROOT)): p.stem[:2] for p in ROOT.glob("notebooks/*.ipynb")}
    if any(path.startswith(SHARED) for path in changed):
        return [*sorted(books), *tests]
    known = homes()
    stands_on: dict[str, set[str]] = {}
    for path in (p for top in ("mha_*", "tests", "tools") for p in ROOT.glob(f"{top}/**/*.py")):
        name = str(path.relative_to(ROOT))
        found = imports(_read(name), everywhere=not name.startswith("tools/"))  # a part of a tool
        stands_on.setdefault(node(name), set()).update(_nodes(found, known))
    found = {node(path) for path in changed}
    if changed & books.keys():  # whatever reads notebooks
        found |= {name for name, below in stands_on.items() if "tools/notebooks.py" in below}
    while more := {name for name, below in stands_on.items() if below & found} - found:
        found |= more
    chosen = {book for book in books if book in changed or _nodes(_of_book(book), known) & found}
    claims = {f"tests/claims/test_claims_{books[book]}.py" for book in chosen}
    form = [test for test in tests if test.startswith("tests/house/")]
    return [*sorted(chosen), *sorted(({*tests} & (found | claims)) | {*form})]


def _nodes(names: set[str], known: dict[str, str]) -> set[str]:
    parts = [name.split(".") for name in names]
    keys = {".".join(p[: 2 if p[0] == "mha_course" else 1]) for p in parts}
    return {known[key] for key in keys & known.keys()}


def _of_book(path: str) -> set[str]:
    cells = [c for c in json.loads(_read(path))["cells"] if c["cell_type"] == "code"]
    lines = "\n".join(re.sub(r"(?m)^[%!].*$", "", "".join(c["source"])) for c in cells)
    return imports(lines)


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def since(commit: str) -> list[str]:
    base = _git("merge-base", commit, "HEAD")[0]
    return _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    print(*reached(since(*sys.argv[1:] or ["main"])), sep="\n")
