"""The tests that a change can reach: `python tools/changed.py [commit]` names them, a file a line.

What has changed since `main` (or the commit), and what stands on that, directly or through others.
Where a file only hands a name on, as `check` does with each exercise, who uses that name stands on
the file that it comes from. What is no code counts as all code beside it, a .toml as what reads
it. `make test-changed` runs them.
"""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = (
    *("mha_course/__init__.py", "tests/conftest.py", "tests/checked.py", "tests/forks.py"),
    *("data/", "pyproject.toml", "constraints.txt"),
)
COMMAND = ("mha_course", "mha-lesson")
READ = "notebooks"  # a name for what stands in that folder
READERS = ("mha_course.base.disk.NOTEBOOKS", "notebooks.paths")
IN_TEXT = re.compile(r"(?:from|import) (mha_[\w.]+)(?: import (\w+))?")


@cache
def code() -> dict[str, str]:
    """Name -> path; what is no package by its last name, as tests import it."""
    found = {}
    for path in (p for top in ("mha_*", "tests", "tools") for p in ROOT.glob(f"{top}/**/*.py")):
        if path.name == "jupyter_server_config.py":  # which Jupyter looks for: nobody imports it
            continue
        *parts, last = path.relative_to(ROOT).with_suffix("").parts
        package = parts[parts.index("answers") :] if "answers" in parts else parts
        if not {"tests", "tools"} & {*package}:
            last = ".".join([*package, last]).removesuffix(".__init__")
        found[last] = str(path.relative_to(ROOT))
    return found


@cache
def imported(text: str, everywhere: bool = True) -> dict[str, str]:
    """`c`, or what it is called here -> `a.b.c`, of each `from a.b import c`."""
    found, parts = {}, _parts(text)
    for node in parts if everywhere else parts[0].body:
        if isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.asname or a.name: a.name for a in node.names}
    return found


def named(text: str, everywhere: bool = True, runs: bool = False) -> set[str]:
    """What it imports, `a.b.c.d` where all that it asks of `c` is `c.d`; the names of modules among
    its texts; and of code that `runs` what it writes for another process, what is imported there.
    """
    parts, asked, found = _parts(text), defaultdict(set), set()
    inner = {id(part.value) for part in parts if isinstance(part, ast.Attribute)}
    for part in parts:
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            asked[part.value.id].add(f".{part.attr}")
        elif isinstance(part, ast.Name) and id(part) not in inner:
            asked[part.id].add("")
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            found |= {n for n in (part.value, f"mha_course.{part.value}") if "." in part.value} & {
                *code()
            }
            if runs:
                found |= _in_text(part.value)
                found |= {Path(part.value).stem} if part.value.endswith(".py") else set()
                found |= {"mha_course.__main__"} if part.value in COMMAND else set()
    own = imported(text, everywhere)
    return found | {full + more for name, full in own.items() for more in asked[name] or {""}}


@cache
def _parts(text: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(text))]


def _in_text(text: str) -> set[str]:
    try:
        return named(dedent(text)) if "import" in text else set()
    except SyntaxError:
        return {".".join(filter(None, found)) for found in IN_TEXT.findall(text)}


def homes(name: str) -> set[str]:
    """The files that the name stands on; of one that only hands it on, `path itself`."""
    if name in READERS:
        return {READ}
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        if path := code().get(".".join(parts[:n])):
            given = imported(_read(path)).get(parts[n]) if n < len(parts) else None
            if given is None or name.startswith(given):
                return {path}
            return {f"{path} itself"} | homes(".".join([given, *parts[n + 1 :]]))
    return set()


@cache
def stands_on() -> dict[str, set[str]]:
    found = {}
    for path in code().values():
        text = _read(path)
        part = path.startswith("tools/")  # tests use a part of a tool
        names = named(text, everywhere=not part, runs=path.startswith("tests/"))
        found[path] = {home for name in names for home in homes(name)}
        if "__path__" in text:  # of a package that looks for its modules
            found[path] |= {p for p in code().values() if p.startswith(path.rpartition("/")[0])}
    return found


def reached(changed: Iterable[str]) -> list[str]:
    """Test files and notebooks, of these changed files."""
    changed = {*changed}
    tests = sorted(path for name, path in code().items() if name.startswith("test_"))
    books = {str(p.relative_to(ROOT)): p.stem[:2] for p in ROOT.glob("notebooks/*.ipynb")}
    if any(path.startswith(EVERYTHING) for path in changed):
        return [*sorted(books), *tests]
    found = changed | {f"{path} itself" for path in changed}
    for path in changed - {*code().values()}:
        room = READ if path.startswith("notebooks/") else "/".join(path.split("/")[:2]) + "/"
        beside = {p for p in code().values() if p.startswith(room)}
        table, module = Path(path).name, Path(path).with_suffix(".py").name
        readers = {p for p in beside if p.endswith(f"/{module}") or table in _read(p)}
        found |= {READ} if room == READ else (path.endswith(".toml") and readers) or beside
    while more := {path for path, on in stands_on().items() if on & found} - found:
        found |= more
    chosen = {book for book in books if book in changed or below(book) & found}
    claims = {f"tests/claims/test_claims_{books[book]}.py" for book in chosen}
    return [*sorted(chosen), *(t for t in tests if t in found | claims or "tests/house/" in t)]


@cache
def below(book: str) -> set[str]:
    """What the cells of a notebook stand on."""
    cells = [c for c in json.loads(_read(book))["cells"] if c["cell_type"] == "code"]
    lines = "\n".join(re.sub(r"(?m)^[%!].*$", "", "".join(c["source"])) for c in cells)
    return {home for name in named(lines) for home in homes(name)}


@cache
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
