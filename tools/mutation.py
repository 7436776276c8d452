"""Breaks one place of a room at a time, and says which breaks no quick test of the room notices.

    python tools/mutation.py --sample 200 --seed 1 [core engine comparison classroom scripts]

A seed draws the same breaks of lines that have not changed, wherever these have moved. In a copy of
the project a fork runs the tests that call what is broken (all, if none is seen to), the quickest
first, until one fails. A room's copy, and a line for each break, are left in build/mutants/.
"""

import argparse
import ast
import hashlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BESIDE = "exercises/test_check_places.py exercises/test_check_source.py"
IN_NODE = "pictures/test_scripts.py pictures/test_panel_cut.py explore/test_states.py"
ROOMS = {  # what is broken, and the tests that shall notice
    "core": ("mha_lesson/**/*.py", "lesson"),
    "engine": ("mha_course/engine/*.py", f"engine {BESIDE}"),
    "comparison": ("mha_course/comparison/*.py", "comparison"),
    "classroom": ("mha_course/classroom/*.py", "classroom"),
    "scripts": ("mha_course/pictures/*.js", IN_NODE),
}
SWAPS = """Eq NotEq, NotEq Eq, Lt LtE, LtE Lt, Gt GtE, GtE Gt, Is IsNot, IsNot Is, In NotIn,
    NotIn In, Add Sub, Sub Add, Mult Div, Div Mult, Pow Mult, FloorDiv Div, Mod FloorDiv,
    BitAnd BitOr, BitOr BitAnd, And Or, Or And, === !==, !== ===, < <=, <= <, > >=, >= >,
    && ||, || &&, ?? &&, + -, - +, * /, / *, += -=, -= +=, ++ --, -- ++, true false, false true"""
OTHER = {old: new for old, new in map(str.split, SWAPS.split(","))}
TOKEN = re.compile(  # of scripts: texts and expressions are passed over
    r"//.*|/\*[^*]*\*/|`[^`]*`|\"[^\"\n]*\"|'[^'\n]*'|(?<=[(,=:]) ?/(?:\\.|[^/\n])+/\w*|=>|\?\.|"
    r"(\b\d+\b|\b(?:true|false)\b|[=!]==|[<>]=?|&&|\|\||\?\?|\+\+|--|[-+]=|[-+*/](?!=))"
)
HEAVY = "torch._dynamo", "hypothesis.extra.numpy", "IPython", "ipywidgets", "matplotlib.pyplot"
Break = tuple[str, str, int, int, str, str]  # file, function or line, first byte, end, old, new


def of_script(file: str, raw: bytes) -> Iterator[Break]:
    text = raw.decode("latin-1")  # a letter for a byte
    for found in TOKEN.finditer(text):
        if old := found[1]:
            line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
            yield file, line, *found.span(), old, OTHER.get(old) or str(int(old) + 1)


def of_python(file: str, raw: bytes) -> Iterator[Break]:
    lines = raw.splitlines(keepends=True)

    def at(line: Any, column: Any) -> int:
        return sum(map(len, lines[: line - 1])) + column

    def visit(node: Any, where: str) -> Iterator[Break]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".strip(".")
        if isinstance(node, ast.expr | ast.stmt):
            span = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
            yield from ((file, where, *span, ast.unparse(node), new) for new in changed(node))
        for name, value in ast.iter_fields(node):
            for inner in value if isinstance(value, list) else [value]:
                known = isinstance(inner, ast.AST) and not isinstance(inner, ast.JoinedStr)
                if known and name not in ("annotation", "returns"):
                    yield from visit(inner, where)

    yield from visit(ast.parse(raw), "")


def changed(node: ast.expr | ast.stmt) -> Iterator[str]:
    def put(**fields: Any) -> str:
        return f"({ast.unparse(type(node)(**{**vars(node), **fields}))})"

    operator = getattr(node, "op", None) or (getattr(node, "ops", None) or [None])[0]
    if other := OTHER.get(type(operator).__name__):
        made = getattr(ast, other)()
        yield put(ops=[made, *node.ops[1:]]) if isinstance(node, ast.Compare) else put(op=made)
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
            yield f"({ast.unparse(inner)})"
        case ast.Constant(value=int() | float() as value):
            yield str(not value) if isinstance(value, bool) else str(value + 1)
        case ast.IfExp(test=test):
            yield put(test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(keywords=keywords):
            yield from (put(keywords=[k for k in keywords if k is not one]) for one in keywords)
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "pass"


class Calls:
    """A plugin of pytest: notes what each test takes and calls, or runs only these in order."""

    def __init__(self, chosen: list[str] | None = None) -> None:
        self.chosen = chosen

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is not None:
            by_name = {item.nodeid: item for item in items}
            items[:] = [by_name[name] for name in self.chosen]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.chosen is not None:
            return (yield)
        called, start = set(), time.process_time()
        sys.setprofile(lambda frame, event, _: event == "call" and called.add(frame.f_code))
        ended = yield
        sys.setprofile(None)
        names = {(c.co_filename, c.co_qualname.split(".<")[0]) for c in called}
        with Path("../calls").open("ab") as told:
            pickle.dump((item.nodeid, time.process_time() - start, names), told)
        return ended


def in_a_fork(tests: list[str], plugin: Calls, most: float) -> str:
    """`alive`, `late`, or the name of the test that fails."""
    if (child := os.fork()) == 0:
        os.setsid()
        os.dup2(os.open("../output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        sys.dont_write_bytecode = plugin.chosen is not None  # or the next break might read it
        os._exit(pytest.main(["-xq", "-pno:cacheprovider", *tests], plugins=[plugin]))
    deadline = time.monotonic() + most
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "late"
        time.sleep(0.02)
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", Path("../output").read_text(), re.M)
    return "alive" if ended[1] == 0 else failed[1] if failed else "a crash"


def judged(breaks: list[Break], tests: list[str]) -> Iterator[str]:
    start, seen = time.monotonic(), {}
    assert in_a_fork(tests, Calls(), 3600) == "alive", Path("../output").read_text()
    most = 60 + 3 * (time.monotonic() - start)
    with Path("../calls").open("rb") as told:
        while told.peek():
            name, *seen[name] = pickle.load(told)
    for file, where, first, end, _, new in breaks:
        called = os.path.abspath(file), where
        calling = [name for name, (_, calls) in seen.items() if called in calls] or [*seen]
        calling.sort(key=lambda name: seen[name][0])
        raw = Path(file).read_bytes()
        Path(file).write_bytes(raw[:first] + new.encode() + raw[end:])
        yield in_a_fork([*{name.split("::")[0] for name in calling}], Calls(calling), most)
        Path(file).write_bytes(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rooms", nargs="*", default=[*ROOMS])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked, root = parser.parse_args(), Path.cwd()
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in HEAVY:  # once, and not in each fork
        import_module(module)
    files = subprocess.check_output(["git", "ls-files"], text=True).splitlines()
    for room in asked.rooms:
        place = root / "build/mutants" / room
        shutil.rmtree(place, ignore_errors=True)
        for file in files:
            (place / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, place / "tree" / file)
        os.chdir(place / "tree")
        sys.path[0] = os.environ["PYTHONPATH"] = os.getcwd()
        (of, tests), lots = ROOMS[room], {}
        for path in sorted(Path().glob(of)):
            places = of_python if path.suffix == ".py" else of_script
            for broken in places(str(path), path.read_bytes()):
                told = f"{asked.seed} {path.name} {broken[1].strip()} {broken[4]} {broken[5]}"
                lots[hashlib.sha256(told.encode()).hexdigest()] = broken
        breaks, ends = [lots[n] for n in sorted(lots)][: asked.sample // len(ROOMS)], Counter()
        with Path("../breaks.tsv").open("w", encoding="utf-8") as table:
            names = [f"tests/{one}" for one in tests.split()]
            for ended, (file, where, *_, old, new) in zip(
                judged(breaks, names), breaks, strict=True
            ):
                ends[ended] += 1
                cells = (" ".join(cell.split()) for cell in (ended, file, where, old, new))
                print(*cells, sep="\t", file=table, flush=True)
        killed, late = len(breaks) - ends["alive"], ends["late"]
        print(f"{room}: {killed} of {len(breaks)} killed, {late} by taking for ever", flush=True)


if __name__ == "__main__":
    main()
