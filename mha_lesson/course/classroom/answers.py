"""Finds a learner's answers in a notebook's source, each with what it needs, to judge it apart.

What a notebook says of itself may be stale, or of another cell. So each answer is cut out and
judged in a process in which nothing else of the notebook has run. Who cheats there cheats in plain
sight: the report shows the code beside the tick.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

MOST = 4  # answers to one exercise that are judged, the newest first
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Answer:
    """One answer to one exercise.

    Attributes:
        code: what the learner wrote, to show.
        program: the same with the imports and helpers that it needs.
        target: the name in `program` that holds the answer.
        broken: why it cannot be run at all; empty if it can.
    """

    code: str
    program: str = ""
    target: str = ""
    broken: str = ""


@dataclass(frozen=True)
class _Part:
    """A statement of the notebook's top level."""

    cell: int
    node: ast.stmt
    text: str
    given: bool  # it stands in one of the course's own cells
    binds: frozenset[str]
    uses: frozenset[str]


def _part(cell: int, node: ast.stmt, source: str, given: bool) -> _Part:
    text = _text(source, node)
    binds, uses = _names(text)
    if not isinstance(node, (*Function, ast.ClassDef)):
        binds |= {*_changed(node)}
    return _Part(cell, node, text, given, binds, uses)


class Notebook:
    """The code of a notebook, cut into statements; `given` are the course's own cells."""

    def __init__(self, cells: list[str], given: set[str]) -> None:
        # One kind of line end: Python counts a \r as a line, and so must whoever cuts by lines.
        self.cells = [re.sub(r"\r\n?", "\n", _without_magics(cell)) for cell in cells]
        self.parts: list[_Part] = []
        self.broken: dict[int, str] = {}
        for number, (source, raw) in enumerate(zip(self.cells, cells, strict=True)):
            try:
                tree = ast.parse(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                self.broken[number] = type(error).__name__
                if isinstance(error, SyntaxError):
                    self.broken[number] = f"line {error.lineno}: {error.msg}"
                continue
            own = raw.strip() in given
            self.parts += [_part(number, node, source, own) for node in tree.body]

    def answers(self, name: str) -> list[Answer]:
        """The learner's answers to an exercise, the newest first: one for each check of it.

        Where none stands before a check, what the name means at the end.
        """
        found: dict[tuple[str, str], Answer] = {}
        for at, handed in reversed(self._calls(name)):
            if answer := self._handed(at, handed):
                found.setdefault((answer.code, answer.program), answer)
        if not found:  # there is no check, or the answer stands below it
            answer = self._handed(len(self.parts), ast.Name(name, ast.Load()))
            return [answer] if answer else []
        return list(found.values())[:MOST]

    def mentions(self, name: str) -> bool:
        """Whether the notebook has this exercise at all."""
        own = any(name in p.binds and not _is_import(p.node) for p in self.parts)
        return own or bool(self._calls(name))

    def _calls(self, name: str) -> list[tuple[int, ast.expr]]:
        """What was handed to the check, and in which statement."""
        return [
            (at, call.args[0])
            for at, part in enumerate(self.parts)
            for call in ast.walk(part.node)
            if isinstance(call, ast.Call) and call.args
            if isinstance(call.func, ast.Attribute) and call.func.attr == name
            if ast.unparse(call.func.value).split(".")[-1] == "check"
        ]

    def _handed(self, at: int, handed: ast.expr) -> Answer | None:
        """The answer that `handed` means in statement `at`."""
        before = self.parts[: at + 1]
        cell = self.parts[at].cell if at < len(self.parts) else len(self.cells)
        if not isinstance(handed, ast.Name):  # a lambda, a partial …
            try:
                source = f"answer = {ast.unparse(handed)}"
                made = _part(cell, ast.parse(source).body[0], source, given=False)
            except RecursionError:
                return Answer("", broken="it nests too deep")
            return self._answer(made, "answer", before)
        target = handed.id
        define = re.compile(rf"^(?:def|class)\s+{target}\b|^{target}\s*=", re.M)
        torn = [n for n in self.broken if n <= cell and define.search(self.cells[n])]
        bound = [p for p in before if target in p.binds]
        if torn and not any(p.cell > torn[-1] for p in bound):
            code, why = self.cells[torn[-1]].rstrip("\n"), self.broken[torn[-1]]
            return Answer(code, broken=f"no Python: {why}")
        if not bound or bound[-1].given or _is_import(bound[-1].node):
            return None
        return self._answer(bound[-1], target, before)

    def _answer(self, last: _Part, target: str, before: list[_Part]) -> Answer:
        parts = [*_needs(last, before), last]
        return Answer(last.text, "\n".join(p.text for p in parts), target)


def _needs(last: _Part, before: list[_Part]) -> list[_Part]:
    """The statements up to the check that bind a name which the answer uses, and so on."""
    before = [p for p in before if p is not last]
    chosen = {id(p) for p in before if _is_star(p.node)}
    wanted, done = {*last.uses}, {*dir(builtins)}
    while fresh := wanted - done:
        done |= fresh
        for part in before:
            if id(part) not in chosen and part.binds & fresh:
                chosen.add(id(part))
                wanted |= part.uses
    return [part for part in before if id(part) in chosen]


def _without_magics(cell: str) -> str:
    """The cell as Python: IPython's %magics and !commands become calls, which no answer needs."""
    from IPython.core.inputtransformer2 import TransformerManager

    if cell.lstrip().startswith("%%"):
        first, _, rest = cell.lstrip().partition("\n")
        cell = rest if first.split()[0] in ("%%time", "%%timeit", "%%capture") else ""
    try:
        return TransformerManager().transform_cell(cell)
    except (SyntaxError, ValueError, RecursionError):
        return cell


def _text(source: str, node: ast.stmt) -> str:
    """The statement as it is written, decorators included."""
    if not isinstance(node, (*Function, ast.ClassDef)):
        return ast.get_source_segment(source, node) or ""
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])


def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a statement of the top level binds, and those that it takes from there."""
    try:
        top = symtable.symtable(text, "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):  # `await` outside a function, for one
        return frozenset(), frozenset()
    binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    inner = list(top.get_children())
    while inner:
        table = inner.pop()
        inner += table.get_children()
        uses |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return frozenset(binds), frozenset(uses)


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names whose parts a statement sets: `W[0] = 1`, `MultiHeadAttention.forward = forward`."""
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            root: ast.expr = part
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names)
