"""Imports only go down: each room, and its tests, build on those listed before it."""

import ast
import doctest
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import mha_course
import mha_lesson
import new_process

HOUSE = Path(mha_lesson.__file__).parents[1]
FLOORS = """
    mha_lesson.refusals mha_lesson.execution mha_lesson.refusals.of_attention mha_lesson.runtime
    mha_lesson.masks mha_lesson.conversion mha_lesson.cache mha_lesson.attention mha_lesson.rotation
    mha_lesson.decoding mha_lesson.progress mha_lesson.tasks mha_lesson.heads mha_lesson.text
    mha_lesson.models mha_lesson.training mha_lesson.weights mha_lesson.pretrained mha_lesson.smollm
    mha_lesson
    mha_course.base mha_course.collection mha_course.comparison mha_course.engine
    mha_course.practice mha_course.exercises mha_course.check mha_course.lab mha_course.pictures
    mha_course.explore mha_course.cells mha_course.pages mha_course.classroom mha_course.__main__
    mha_course
"""
ORDER = FLOORS.split()
ROOMS = [room for room in ORDER if "course." in room and "__" not in room]
# The highest that a room's tests may name; those of the exercises call them by their face.
HIGHEST = {"lesson": "mha_lesson", "exercises": "mha_course.check"}


def above(room: str) -> list[str]:
    """What the tests of a room may not name."""
    return ORDER[ORDER.index(HIGHEST.get(room, f"mha_course.{room}")) + 1 :]


def room_of(module: str) -> str:
    """The longest listed name that the module's begins with."""
    return max((r for r in ORDER if f"{module}.".startswith(f"{r}.")), key=len, default="")


@cache
def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mha_"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("mha_")}
    return found


# Of tests; those that need all rooms are in `house`, `claims` and `browser`.
FOLDERS = ["lesson", *(room.split(".")[1] for room in ROOMS)]
TESTED = [room for room in FOLDERS if (HOUSE / "tests" / room).exists()]
PATHS = {p for p in HOUSE.glob("mha_*/**/*.py") if p != HOUSE / "mha_course/__init__.py"}
MODULES = {".".join(p.relative_to(HOUSE).with_suffix("").parts): p for p in sorted(PATHS)}


def test_every_module_has_a_floor():
    for module in MODULES.keys() - {"mha_lesson.__init__"}:
        assert room_of(module) not in ("", "mha_lesson", "mha_course"), module


def test_imports_only_go_down():
    for module, path in MODULES.items():
        here = room_of(module)
        for name in imports(path):
            if (there := room_of(name)) != here:
                assert ORDER.index(there) < ORDER.index(here), f"{module} imports {name}"


def test_a_room_says_what_it_stands_on():
    """Every room that it imports, or one that stands on that."""
    below: dict[str, set[str]] = {}
    for room in FOLDERS[1:]:
        place = HOUSE / "mha_course" / room
        inside = [*place.rglob("*.py")] or [place.with_suffix(".py")]
        used = {part for path in inside for name in imports(path) for part in name.split(".")[1:2]}
        said = ast.get_docstring(ast.parse(sorted(inside)[0].read_text()))
        named = set(re.findall(r"`(\w+)`", said.partition("stands on")[2].partition(".")[0]))
        below[room] = {room, *named}.union(*(below.get(name, set()) for name in named))
        assert used & {*FOLDERS} <= below[room], room


def test_no_circle_among_files():
    """Not even through an import within a function."""
    below = {
        name: {m for found in imports(path) for m in (found, found.rpartition(".")[0])} & {*MODULES}
        for name, path in MODULES.items()
    }
    TopologicalSorter({name: found - {name} for name, found in below.items()}).prepare()


@pytest.mark.parametrize(
    "room",
    [pytest.param(r, marks=[pytest.mark.long] if r != "base" else []) for r in TESTED],
)
def test_the_tests_of_a_room_need_no_room_above_it(room):
    """They pass where those cannot be imported: the lowest room's here, all with `--all`."""
    absent = ",".join(r for r in above(room) if r in ROOMS)
    words = [sys.executable, "-m", "pytest", "-q", f"--absent={absent}", f"tests/{room}"]
    done = subprocess.run(words, cwd=HOUSE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


def test_tests_stand_beside_what_they_test():
    """What `mha_course` gives lazily counts as its room's."""
    for room in TESTED:
        for path in (HOUSE / "tests" / room).rglob("*.py"):
            for name in imports(path):
                home = mha_course._HOMES | mha_course._MODULES
                first, _, last = name.rpartition(".")
                there = room_of(f"{first}.{home.get(last, last)}")
                assert there not in above(room) or there == "mha_course", f"{path.name}: {name}"


def test_a_name_that_the_course_does_not_have_is_told():
    with pytest.raises(AttributeError, match="'mha_course' has no attribute 'film'"):
        _ = mha_course.film


def test_what_is_taught_is_small_and_stands_alone(shared_folder):
    """No file of it names the course or imports IPython, which a kernel has loaded anyway."""
    lesson = sorted((HOUSE / "mha_lesson").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in lesson]
    assert len(texts) <= 20 and sum(text.count("\n") for text in texts) <= 3800
    assert not [p.name for p, text in zip(lesson, texts, strict=True) if "mha_course" in text]
    assert not [text for text in texts if re.search(r"^\s*(from|import) IPython", text, re.M)]
    loaded = {*new_process.after(shared_folder, "import mha_lesson")["loaded"]}
    assert not {"matplotlib", "ipywidgets", "anywidget", "IPython"} & loaded
    assert "mha_lesson.attention" in loaded


def test_examples_in_docstrings_give_what_they_say():
    files = [name for name, path in MODULES.items() if ">>> " in path.read_text(encoding="utf-8")]
    tried = [doctest.testmod(import_module(name)) for name in files]
    assert len(tried) >= 5 and not any(result.failed for result in tried)


def test_no_file_is_too_long():
    for path in sorted(HOUSE.glob("mha_*/**/*.[pj]*")):
        if path.suffix in (".py", ".js"):
            lines = path.read_text(encoding="utf-8").splitlines()
            assert len(lines) <= 600, path.name
            assert path.suffix == ".py" or max(map(len, lines)) <= 120, path.name


def test_the_formatter_is_seldom_asked_to_look_away():
    files = (p for top in ("mha_*", "tests", "tools", "data") for p in HOUSE.glob(f"{top}/**/*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert sum(len(re.findall(r"# fmt: (?:skip|off)", text)) for text in texts) <= 40


def test_actions_are_pinned_by_commit():
    """A tag can be moved; the version stands behind it as a comment."""
    workflows = sorted((HOUSE / ".github/workflows").glob("*.yml"))
    used = [line for path in workflows for line in re.findall(r"uses: (.*)", path.read_text())]
    assert used
    for line in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


WRITTEN = re.compile(r"`([\w/.*-]+(?:/|\.(?:py|md|toml|txt|yml|js|json|ipynb)))`")
PLACES = (
    "",
    "mha_lesson",
    "mha_lesson/refusals",
    "mha_course",
    "tests",
    *sorted(str(p.relative_to(HOUSE)) for p in HOUSE.glob("mha_course/*/")),
)
PAGES = ["CONTRIBUTING.md", "INSTALL.md", "README.md", "notebooks/TEACHING.md"]
# on a learner's or a teacher's machine
ELSEWHERE = """
    my_notebooks/ .progress build/ ada_ report/ source/ jupyterhub_config nbgrader_config
    results/ submissions/
"""


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page):
    text = (HOUSE / page).read_text(encoding="utf-8")
    named = set(WRITTEN.findall(text))
    missing = [
        name
        for name in sorted(named)
        if not name.startswith((*ELSEWHERE.split(),))
        and not any(list(HOUSE.glob(f"{room}/{name}".strip("/"))) for room in PLACES)
    ]
    assert not missing and (named or page == "README.md")
    links = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", text))
    assert not [to for to in links if not (HOUSE / page).parent.joinpath(to).exists()]
    for module in re.findall(r"-m (mha_[\w.]*)", text):
        place = HOUSE.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_the_readme_shows_what_a_check_says():
    text = (HOUSE / "README.md").read_text(encoding="utf-8")
    code, call, said = re.search(
        r"```python\n(def .*?)\n\n\n(.*?)\n```\n\n((?:> .*\n)+)", text, re.S
    ).groups()
    kernel = {"check": mha_course.check}
    exec(code, kernel)
    report = str(eval(call, kernel)).splitlines()
    assert not [line for line in re.findall("> (.*)", said) if line not in report]
