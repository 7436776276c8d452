"""What in a right answer's code makes one look: it asks the package, the check, or a file for it.

Read as data, outside the sandbox: no code of a learner's runs here.
"""

import ast
from collections.abc import Iterator, Sequence

SAME = {  # exercise -> what of the package is its answer, besides what has its name
    "attention": {"scaled_dot_product_attention", "textbook_attention"},
    "attention_scores": {"scaled_dot_product_attention", "textbook_attention"},
    "cached_attention": {"scaled_dot_product_attention", "GroupedQueryAttention"},
    "blockwise_attention": {"scaled_dot_product_attention", "textbook_attention"},
}
READS = {
    "open", "exec", "inspect", "gc", "linecache", "__import__", "read_text", "read_bytes",
    "_getframe", "get_objects", "f_back",
}  # fmt: skip
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SMALL = 60  # parts of a syntax tree: two people may well write the same so short an answer


def borrowed(name: str, cells: Sequence[str], own: Sequence[str]) -> str:
    """In words, what the answer in the cells `own` asks for it; empty for most."""
    imported = {alias for cell in cells for tree in parsed(cell) for alias in _imports(tree)}
    taught = {name} | SAME.get(name, set())
    trees = [tree for cell in own for tree in parsed(cell)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    defined = {node.name for node in nodes if isinstance(node, DEFINITIONS)}
    defined |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def taken(node: ast.AST) -> str:
        """What of the package is named here."""
        if isinstance(node, ast.Name) and node.id not in defined:
            known = {("mha_lesson", node.id), ("mha_lesson", "*")} & imported
            return node.id if known else ""
        root = getattr(node, "value", None)
        by_module = isinstance(root, ast.Name) and ("mha_lesson", root.id) in imported
        return node.attr if by_module and isinstance(node, ast.Attribute) else ""

    for node in (node for tree in trees for node in _inside(tree)):
        if (what := taken(node)) in taught:
            return f"It calls the package's own {what}."
        named = getattr(node, "id", getattr(node, "attr", ""))
        if named == "check":
            return "It asks the check for the answer."
        if named in READS:
            return f"It uses {named}: see where the answer comes from."
    return ""


def parsed(cell: str) -> list[ast.Module]:
    """The cell's tree; none where it is no plain Python."""
    try:
        return [ast.parse(cell)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(package, the name that a cell gives it or what it takes from it)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module.partition(".")[0], alias.asname or alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], alias.asname or alias.name.partition(".")[0]


def _inside(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands within the functions and classes of a cell, and what is assigned at its top."""
    for statement in tree.body:
        if isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign)):
            yield from ast.walk(statement)


def skeleton(code: str) -> str:
    """The code without names, comments and docstrings; empty where it is short or no Python."""
    [tree, *_] = [*parsed(code), None]
    if tree is None:
        return ""
    numbers: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        for field in ("id", "arg", "name"):
            if isinstance(named := getattr(node, field, None), str):
                setattr(node, field, numbers.setdefault(named, f"n{len(numbers)}"))
    return ast.dump(tree) if sum(1 for _ in ast.walk(tree)) >= SMALL else ""
