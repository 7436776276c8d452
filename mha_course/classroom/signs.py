"""What in a right answer's code makes one look: it asks the check, a file, or Python's insides.

Read as data, outside the sandbox: no code of a learner's runs here.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

# Packages that an answer may well use.
_USUAL = """
abc cmath collections contextlib copy dataclasses einops enum fractions functools itertools
jaxtyping math matplotlib mha_course mha_lesson numbers numpy operator random string time torch
types typing typing_extensions warnings __future__
"""
USUAL = {*_USUAL.split()}
# What leads to a file, to other code, or out of the answer, whatever it hangs on.
_READS = """
open exec eval globals load fromfile read_text read_bytes sys os builtins importlib inspect gc
ctypes pickle linecache _getframe get_objects f_back f_locals f_globals tb_frame gi_frame
__import__ __builtins__ __globals__ __subclasses__ __code__ __closure__
"""
READS = {*_READS.split()}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
INSIDE = ("mha_course.engine", "mha_course.check", "mha_course.exercises", "mha_course.classroom")
SMALL = 60  # parts of a syntax tree: two people may well write the same so short an answer
LOOK = "It uses {}: see where the answer comes from."


def strange(trees: Sequence[ast.AST], imported: Collection[tuple[str, str]]) -> str:
    """In words, what an answer's statements reach for besides torch; empty for most.

    `imported` are the names that the notebook imports, each with its package.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [n.func for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    checks = {id(call.value) for call in calls}  # check.name(answer) asks for nothing
    for node in nodes:
        named = getattr(node, "id", getattr(node, "attr", ""))
        here = {package for _, package in imports(node)}
        if isinstance(node, ast.Name):
            here |= {package for name, package in imported if name == named}
        if "mha_course" in here and id(node) not in checks:
            return "It asks the check for the answer."
        if isinstance(node, ast.Attribute) and named == "eval":
            named = ""  # net.eval()
        if found := {named} & READS or here - USUAL:
            return LOOK.format(min(found))
    return ""


def taught(
    trees: Sequence[ast.AST], imported: Collection[tuple[str, str]], names: Collection[str]
) -> str:
    """In words, whether it names what the package has of these: compiled, nobody hears it run."""
    modules = {name for name, package in imported if package == "mha_lesson"}
    for node in (node for tree in trees for node in ast.walk(tree)):
        home = getattr(getattr(node, "value", None), "id", "")
        if isinstance(node, ast.Attribute) and home in modules and node.attr in names:
            return f"It names the package's own {node.attr}."
    return ""


def patches(trees: Sequence[ast.AST], checks: Collection[str]) -> bool:
    """Whether a cell changes the check, under any of its names, or reaches into its rooms."""
    for node in (node for tree in trees for node in ast.walk(tree)):
        text = getattr(node, "module", getattr(node, "value", "")) or ""
        if isinstance(node, ast.ImportFrom | ast.Constant) and str(text).startswith(INSIDE):
            return True
        if isinstance(node, DEFINITIONS) and node.name in checks:
            return True
        changed = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        while changed and isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if changed and getattr(node, "id", "") in checks:
            return True
    return False


def parsed(cell: str) -> list[ast.Module]:
    """The cell's tree; none where it is no plain Python."""
    try:
        return [ast.parse(cell)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(the name that an import gives, its package), of one statement."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, (node.module or "").partition(".")[0]
    elif isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield alias.asname or root, root


def skeleton(code: str) -> str:
    """The code without names, comments and docstrings; empty where it is short or no Python."""
    [tree, *_] = [*parsed(code), None]
    if tree is None:
        return ""
    nodes, numbers = [*ast.walk(tree)], dict[str, str]()
    methods = [f for n in nodes if isinstance(n, ast.ClassDef) for f in n.body]
    stored = (n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Store))
    own = {getattr(n, "attr", getattr(n, "name", "")) for n in (*stored, *methods)}  # not torch's
    for node in nodes:
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        for field in ("id", "arg", "name", "attr"):
            named = getattr(node, field, None)
            if isinstance(named, str) and (field != "attr" or named in own):
                space = "." * (field == "attr" or node in methods)
                setattr(node, field, numbers.setdefault(space + named, f"n{len(numbers)}"))
    return ast.dump(tree) if sum(1 for _ in ast.walk(tree)) >= SMALL else ""
