"""Which values the learner's expressions have: a change that cannot matter need not be tried."""

import ast
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor

from mha_lesson.check.engine.source import Source

READ = (ast.Name, ast.Call, ast.Subscript, ast.Compare, ast.BinOp, ast.UnaryOp, ast.IfExp)
MET = "_met"  # the name by which the watched code tells its values
SIGNS: dict[type, set[str]] = {ast.USub: {"number", "float", "int"}, ast.Invert: {"bool"}}


class Met(NamedTuple):
    """The kinds of values that expressions had, and the statements that never began."""

    kinds: dict[ast.AST, set[str]]
    of_name: dict[str, set[str]]
    idle: set[ast.AST]

    def fits(self, node: ast.AST, new: ast.AST, names: bool) -> bool:
        """Whether what is new can stand there: a sign, a transpose, and of `names` another one."""
        known = self.kinds.get(node)
        if known is None:
            return True
        if isinstance(new, ast.UnaryOp) and new.operand is node:
            return bool(known & SIGNS[type(new.op)])
        if isinstance(new, ast.Attribute) and new.value is node:
            return "wide" in known
        if names and isinstance(new, ast.Name) and isinstance(node, ast.Name):
            return not known.isdisjoint(self.of_name.get(new.id, known) - {"wide"})
        return True


def meet(
    source: Source,
    places: Iterable[tuple[Any, Any, Any]],
    attempt: Callable[[dict[str, Any]], None],
) -> Met:
    """Watches the code on one input.

    Args:
        source: the learner's code.
        places: its nodes and what holds them.
        attempt: compiles the tree as it is then, with these names around it, and calls it.
    """
    watched = [p for p in places if isinstance(p[2], READ) and _is_read(p[2])]
    kinds: dict[ast.AST, set[str]] = {}
    of_name: dict[str, set[str]] = {}

    def met(number: int, value: Any) -> Any:
        node, found = watched[number][2], set(_kinds(value))
        kinds.setdefault(node, set()).update(found)
        if isinstance(node, ast.Name):
            of_name.setdefault(node.id, set()).update(found)
        return value

    for i, (holder, key, node) in enumerate(watched):
        call = ast.Call(ast.Name(MET, ast.Load()), [ast.Constant(i), node], [])
        holder[key] = ast.fix_missing_locations(ast.copy_location(call, node))
    try:
        attempt({MET: met})
    finally:
        for holder, key, node in watched:
            holder[key] = node
    begun = {source.statement(node) for node in kinds}
    statements = {source.statement(node) for *_, node in watched}
    return Met(kinds, of_name, statements - begun if begun else set())


def _is_read(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _kinds(value: Any) -> Iterable[str]:
    if not isinstance(value, Tensor):
        yield "number" if type(value) in (int, float) else type(value).__name__
        return
    yield "bool" if value.dtype.itemsize == 1 else "float" if value.is_floating_point() else "int"
    if value.ndim == 0:
        yield "number"
    if value.ndim > 1:
        yield "wide"
