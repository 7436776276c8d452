"""Which statements of a notebook an answer needs: read from the file, never run.

An answer is judged in a process in which nothing runs but the statements that it needs: its own,
and those that define what they name. What else a notebook does, an endless loop or a patched torch,
cannot touch it. A name is looked up as Python would: the last statement above that binds it, and
whatever changes its object in between. (A backward slice, in the words of compilers.)
"""

import __future__

import ast
import asyncio
import inspect
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

RUNS = re.compile(r"\A\s*%%(?:time|timeit|capture|prun)\b.*")  # magics that run the cell below them
TIMED = re.compile(r"^(\s*)%(?:time|timeit|prun)\s+(?=[^\s-])", re.M)  # and the line behind them
WRITES = re.compile(r"\s*%%(?:writefile|file)\s+(\w+)\.py\s*\n")
BY_TEXT = {"exec", "eval", "globals", "vars", "locals", "setattr", "run_cell"}
IMPORTS = (ast.Import, ast.ImportFrom)
SURE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
LOOPS = (ast.For, ast.While, ast.With)  # what a name is in them is known when they run
BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Statement:
    """One statement of a cell's own level, and the names that it deals with."""

    cell: int  # its number
    tree: ast.stmt | None  # None for a cell that writes a module
    binds: frozenset[str] = frozenset()  # assigned or defined, whatever they were before
    may_bind: frozenset[str] = frozenset()  # assigned perhaps: under an `if`, in a text for `exec`
    changes: frozenset[str] = frozenset()  # whose object it changes
    loads: frozenset[str] = frozenset()  # looked up

    @property
    def imports(self) -> bool:
        return isinstance(self.tree, IMPORTS)

    @property
    def star(self) -> bool:
        """Whether it imports all names of a module."""
        return isinstance(self.tree, ast.ImportFrom) and self.tree.names[0].name == "*"


def _statement(cell: int, tree: ast.stmt) -> Statement:
    top = symtable.symtable(ast.unparse(tree), "cell", "exec")
    tables = [top]
    for table in tables:
        tables += table.get_children()
    binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    loads = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    inner = [s for table in tables[1:] for s in table.get_symbols() if s.is_global()]
    loads |= {s.get_name() for s in inner}
    may_bind = {s.get_name() for s in inner if s.is_assigned()}
    if isinstance(tree, IMPORTS):
        paths = [getattr(tree, "module", None) or "", *(alias.name for alias in tree.names)]
        loads |= {path.partition(".")[0] for path in paths}
    if not isinstance(tree, (*IMPORTS, *SURE)):
        binds, may_bind = set(), may_bind | binds
    changes = set()
    for node in _run_now(tree):
        if isinstance(node, ast.Call) and {*_root_name(node.func)} & BY_TEXT:
            texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
            may_bind |= {*re.findall(r"\w+", " ".join(t for t in texts if isinstance(t, str)))}
            changes |= {name for part in node.args[:1] for name in _root_name(part)}
        for decorator in getattr(node, "decorator_list", ()):  # @add_to_class(MultiHeadAttention)
            parts = [decorator] if not isinstance(decorator, ast.Name) else []  # @f.register
            parts += getattr(decorator, "args", [])
            changes |= {name for part in parts for name in _root_name(part)}
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            targets = [node.value.func]
        parts = [t for t in targets if isinstance(t, ast.Attribute | ast.Subscript)]
        changes |= {name for part in parts for name in _root_name(part)}
    return Statement(cell, tree, *map(frozenset, (binds - {"*"}, may_bind, changes, loads)))


def _run_now(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when the statement does: no function's body."""
    yield tree
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for node in ast.iter_child_nodes(tree):
            yield from _run_now(node)


def _root_name(node: Any) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


class Notebook:
    """The statements of a notebook, and what each of them needs."""

    def __init__(self, cells: Sequence[str]) -> None:
        self.statements: list[Statement] = []
        self.broken: dict[int, Exception] = {}  # number of a cell that is no Python -> its error
        self.texts: list[str] = []  # of each cell, what is compiled
        for number, cell in enumerate(cells):
            self._read(number, cell)
        trees = [s.tree for s in self.statements if isinstance(s.tree, IMPORTS)]
        aliases = [alias for tree in trees for alias in tree.names]
        names = {a.asname for a in aliases if a.asname and a.name.endswith("check")}
        self.check_names = {"check", *names}
        future = any(getattr(tree, "module", "") == "__future__" for tree in trees)
        self.flags = __future__.annotations.compiler_flag if future else 0

    def _read(self, number: int, cell: str) -> None:
        if writes := WRITES.match(cell):
            self.statements.append(Statement(number, None, frozenset([writes[1]])))
            self.texts.append(cell[writes.end() :])
            return
        try:
            plain = TIMED.sub(r"\1", RUNS.sub("", cell, count=1))
            text = TransformerManager().transform_cell(plain)
            self.statements += [_statement(number, tree) for tree in ast.parse(text).body]
        except BROKEN as error:
            self.broken[number], text = error, cell
        self.texts.append(text)

    def needed(self, names: set[str], until: int) -> set[int]:
        """The numbers of the statements before `until` that say what these names are then."""
        chosen = {i for i in range(until) if self.statements[i].star}
        asked = {(name, until) for name in names}
        asked |= {(name, i) for i in chosen for name in self.statements[i].loads}
        waiting = [*asked]
        while waiting:
            for i in self.definition(*waiting.pop()):
                # What a function's body names is looked up when it is called.
                new = {(name, b) for name in self.statements[i].loads for b in (i, until)} - asked
                asked |= new
                waiting += new
                chosen.add(i)
        return chosen

    def run(self, number: int, space: dict[str, Any]) -> None:
        """Runs one statement, as a cell of a notebook would."""
        statement = self.statements[number]
        if statement.tree is None:
            [module] = statement.binds
            with open(f"{module}.py", "w", encoding="utf-8") as file:
                file.write(self.texts[statement.cell])
            return
        tree, file = ast.Module([statement.tree], []), file_name(statement.cell)
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, file, "exec", flags, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, space))
        else:
            exec(code, space)

    def definition(self, name: str, before: int) -> list[int]:
        """The last statement that binds a name, and what may change it afterwards.

        Of an imported module nothing is changed: that would change it for the check as well.
        """
        defines, changes = [], []
        for i in reversed(range(before)):
            statement = self.statements[i]
            if name in statement.binds | statement.may_bind:
                defines.append(i)
            elif name in statement.changes:
                changes.append(i)
            if name in statement.binds:
                break
        own = any(not self.statements[i].imports for i in defines)
        return defines + changes if own else defines

    def binding(self, name: str) -> list[int]:
        """The statements that bind a name, or may do so."""
        return [i for i, s in enumerate(self.statements) if name in s.binds | s.may_bind]

    def checks(self, name: str) -> Iterator[tuple[str, int]]:
        """The statements that call this check, the last one first, with the name it is given."""
        for i in reversed(range(len(self.statements))):
            tree = self.statements[i].tree or ast.Pass()
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            if asks := [call.args for call in calls if self._is_check(call.func, name)]:
                plain = len(asks) == 1 and not isinstance(tree, LOOPS)
                names = [a.id for a in asks[0] if plain and isinstance(a, ast.Name)]
                yield names[0] if names else "", i

    def _is_check(self, called: Any, name: str) -> bool:
        """Whether it is `check.name`, whatever the learner calls `check`."""
        module = getattr(called, "value", None)
        module = getattr(module, "id", getattr(module, "attr", ""))
        return getattr(called, "attr", "") == name and module in self.check_names


def file_name(cell: int) -> str:
    """What stands for the file of a cell."""
    return f"<cell {cell + 1}>"
