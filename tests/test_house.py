"""Imports only go down: each room builds on those listed before it, and on nothing else."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import mha_lesson

PACKAGE = Path(mha_lesson.__file__).parent
HOUSE = PACKAGE.parent
FLOORS = (
    # what everything stands on, and what is taught
    ("refusals", "attention_refusals", "decoding_refusals", "disk", "runtime"),
    ("masks", "attention_weights", "attention", "decoding"),
    # what is built around it, trained, loaded and measured
    ("progress", "tasks", "text", "models", "heads", "training", "shipped", "runs", "pretrained",
     "cost", "comparison_layers", "comparison"),
    # what serves a learner: pictures, exercises, moving pictures, and the course as a whole
    ("pictures", "check.engine", "check.journal", "check.exercises", "check", "explore", "course"),
)  # fmt: skip
ORDER = [room for floor in FLOORS for room in floor]
UPWARD = {("check.engine", "check.journal")}  # a judge notes what it has judged


def room_of(module: str) -> str:
    """The longest listed name that the module's begins with."""
    name = module.removeprefix("mha_lesson").removeprefix(".")
    return max((r for r in ORDER if f"{name}.".startswith(f"{r}.")), key=len, default="")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mha_lesson"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("mha_lesson.")}
    return found


def files() -> list[Path]:
    return [p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem != "__init__"]


def test_every_module_has_a_floor():
    for path in files():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        assert room_of(f"mha_lesson.{module}"), module


def test_imports_only_go_down():
    for path in files():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        here = room_of(f"mha_lesson.{module}")
        for name in imports(path):
            there = room_of(name)
            if there and there != here and (here, there) not in UPWARD:
                assert ORDER.index(there) < ORDER.index(here), f"{module} imports {name}"


def test_no_circle_among_files():
    """Not even through an import within a function."""
    names = {".".join(p.relative_to(HOUSE).with_suffix("").parts): p for p in files()}
    above = {
        name: {m for found in imports(path) for m in (found, found.rpartition(".")[0])} & {*names}
        for name, path in names.items()
    }
    TopologicalSorter({name: below - {name} for name, below in above.items()}).prepare()


def test_actions_are_pinned_by_commit():
    """A tag can be moved; the version stands behind it as a comment."""
    workflows = sorted((HOUSE / ".github/workflows").glob("*.yml"))
    used = [line for path in workflows for line in re.findall(r"uses: (.*)", path.read_text())]
    assert used
    for line in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


WRITTEN = re.compile(r"`([\w/.*-]+(?:/|\.(?:py|md|toml|txt|yml|js|json|ipynb)))`")
ROOMS = (
    "",
    "mha_lesson",
    "tests",
    *(f"mha_lesson/{r}" for r in ("check", "course", "explore", "pictures")),
)
# on a learner's or a teacher's machine
ELSEWHERE = (
    "my_notebooks/", ".progress", "build/", "ada_", "report/", "source/", "jupyterhub_config",
)  # fmt: skip


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "notebooks/TEACHING.md"])
def test_every_file_that_a_page_names_is_there(page):
    text = (HOUSE / page).read_text(encoding="utf-8")
    named = set(WRITTEN.findall(text))
    missing = [
        name
        for name in sorted(named)
        if not name.startswith(ELSEWHERE)
        and not any(list(HOUSE.glob(f"{room}/{name}".strip("/"))) for room in ROOMS)
    ]
    assert named and not missing
    links = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", text))
    assert not [to for to in links if not (HOUSE / page).parent.joinpath(to).exists()]
    for module in re.findall(r"-m (mha_lesson[\w.]*)", text):
        place = HOUSE.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
