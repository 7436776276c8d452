"""Every way to change the learner's code in one place: what could stand there instead."""

import ast
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Add, ast.Div, ast.FloorDiv, ast.MatMult),
    ast.MatMult: (ast.Mult,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr, ast.Pow),
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE),
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
_ALIKE = """
    sum mean prod amax median / amax amin / max min / all any / maximum minimum / triu tril /
    sin cos / exp log / sqrt square / argmax argmin / softmax log_softmax / zeros ones / cat
    stack / zeros_like ones_like / w_q w_k w_v w_o
"""
ALIKE = [{*group.split()} for group in _ALIKE.split("/")]


# Functions that take an axis as their last argument.
ALONG = {"chunk", "split", "cat", "stack", "flatten", "softmax", "log_softmax", "cumsum"}
REDUCE = {"sum", "mean", "amax", "amin", "all", "any", "norm", "logsumexp"}
ALONG |= {"sum", "mean", "max", "amax", "argmax"}


class Change(NamedTuple):
    """What would stand in place of a node: `holder[key] = new` makes it, `= node` takes it back."""

    kind: str
    holder: Any
    key: Any
    node: ast.AST
    new: ast.AST


KINDS = {
    "operator": ("a different operator belongs there", "Which operation do you mean?"),
    "function": ("a different function belongs there", "Which one do you mean?"),
    "return": ("`return` is inside this loop", "After how many turns does the loop end?"),
    "order": ("the order there is wrong", "Which of them comes first?"),
    "number": ("a different number belongs there", "What does it stand for, and what should it?"),
    "truth": ("the opposite belongs there", "What does it switch on, and what does it switch off?"),
    "letter": ("a different letter belongs there", "Which axis does each letter stand for?"),
    "names": ("the names belong in a different order", "Which of the values is which?"),
    "name": ("a different name belongs there", "Which value should be used in this place?"),
    "sign": ("the sign in front does not belong there", "What would be left without it?"),
    "missing": ("something is still missing there", "Which sign, or which order of axes?"),
    "much": ("something does not belong there", "What would be left without it?"),
    "argument": ("an argument is missing there", "Along which axis should it work?"),
    "kept": (
        "the axis it works along is dropped, so the rest lines up with other axes",
        "What does `keepdim` do to the axis that a sum, a maximum or `all` runs along?",
    ),
    "size": ("something else belongs under the root", "Which axis is meant? Print its length."),
}


def changes(tree: ast.AST) -> list[Change]:
    """Every way to change one place, the likeliest first."""
    (top,) = getattr(tree, "body", [tree])
    within = (
        [n for n in top.body if isinstance(n, ast.FunctionDef)]
        if isinstance(top, ast.ClassDef)
        else [tree]
    )
    every = [
        Change(kind, holder, key, node, new)
        for part in within
        for names in [_names(part)]
        for holder, key, node in slots(part)
        for kind, new in _replacements(node, names)
        if not (kind == "number" and _twice(holder, key, new))
    ]
    ranks = list(KINDS)
    return sorted(every, key=lambda change: ranks.index(change.kind))


def _twice(holder: Any, key: Any, new: ast.AST) -> bool:
    """Whether a pair of numbers becomes one twice (3 and −1, of four): an exchange that is none."""
    if not (isinstance(holder, list) and len(holder) == 2):
        return False
    one, other = number_at(holder[1 - key]), number_at(new)
    return one is not None and other is not None and (one - other) % 4 == 0


def located(new: ast.AST, old: ast.AST) -> ast.AST:
    """Gives new nodes the line and column of the one that they replace."""
    if not hasattr(new, "lineno"):
        ast.copy_location(new, old)
        for child in ast.iter_child_nodes(new):
            located(child, old)
    return new


def slots(node: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """(holder, key, node) for every node below, but for annotations and texts."""
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "ctx", "ops", "op"):
            continue
        if getattr(node, "name", "") == "__init__":
            continue
        if number_at(node) is not None:
            continue  # its sign belongs to it
        parts = enumerate(child) if isinstance(child, list) else [(field, child)]
        holder = child if isinstance(child, list) else vars(node)
        for key, part in parts:
            if isinstance(part, ast.AST):
                yield holder, key, part
                if not _power(part):
                    yield from slots(part)


def _power(node: ast.AST) -> bool:
    """Of two numbers, as 2 ** 60: with another exponent it may need all of the memory."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return False
    return number_at(node.left) is not None and number_at(node.right) is not None


def _names(tree: ast.AST) -> dict[str, int]:
    """The arguments, and what has been given a name, with the line from which on it has one."""
    arguments = [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
    turns = [n.target for n in ast.walk(tree) if isinstance(n, ast.comprehension)]
    first = {n.id: 0 for target in turns for n in ast.walk(target) if isinstance(n, ast.Name)}
    first |= dict.fromkeys(arguments, 0)
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            first[n.id] = min(n.lineno, first.get(n.id, n.lineno))
    return {name: line for name, line in first.items() if name not in ("self", "_")}


def number_at(node: ast.AST) -> int | float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = number_at(node.operand)
        return None if below is None else -below
    value = node.value if isinstance(node, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _replacements(node: ast.AST, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
    """(kind, node) for everything that could stand in its place."""
    number = number_at(node)
    if number is not None:
        yield from _other_numbers(number, names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value:
        for text in _other_letters(node.value):
            yield "letter", ast.Constant(text)
    elif isinstance(node, ast.UnaryOp):
        yield "sign", node.operand
        if getattr(node.operand, "attr", "") == "inf":
            yield "number", ast.Constant(0.0)
    elif isinstance(node, ast.BinOp):
        yield from _other_products(node)
        if isinstance(node.op, ast.Pow) and number_at(node.right) in (0.5, -0.5):
            for size in _sizes(names):
                yield "size", ast.BinOp(size, node.op, node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for sign in OPERATORS.get(type(node.ops[0]), ()):
            yield "operator", ast.Compare(node.left, [sign()], node.comparators)
    elif isinstance(node, ast.Call):
        yield from _other_calls(node, names)
    elif isinstance(node, ast.Attribute):
        for new in _other_functions(node):
            yield "function", new
        if node.attr in ("mT", "T"):
            yield "much", node.value
        if node.attr == "values" and isinstance(node.value, ast.Call):  # of `median` or `max`
            for new in _other_functions(node.value.func):
                yield "function", ast.Call(new, node.value.args, node.value.keywords)
        if node.attr == "inf":
            yield "number", ast.Constant(0.0)
    elif isinstance(node, ast.Slice):
        yield from _other_slices(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield "much", node.value
    elif isinstance(node, (ast.Tuple, ast.List)):
        kind = "order" if isinstance(node.ctx, ast.Load) else "names"
        for parts in _exchanged(node.elts):
            yield kind, type(node)(parts, node.ctx)
    elif isinstance(node, ast.IfExp):
        yield "much", node.body
        yield "much", node.orelse
    elif isinstance(node, ast.stmt):
        yield from _other_statements(node)
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        yield from _names_and_signs(node, names)


def _other_functions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Attribute):
        for group in ALIKE:
            for name in sorted(group - {node.attr}) if node.attr in group else ():
                yield ast.Attribute(node.value, name, node.ctx)


def _names_and_signs(node: ast.AST, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
    """Another name, or something done to it."""
    if isinstance(node, ast.Name):
        if node.id not in names:
            return  # a module, or a function
        for name, line in names.items():
            if name != node.id and line <= node.lineno:
                yield "name", ast.Name(name, ast.Load())
    if isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.Compare)):
        yield "missing", ast.UnaryOp(ast.USub(), node)
        yield "missing", ast.UnaryOp(ast.Invert(), node)
        yield "missing", ast.Attribute(node, "mT", ast.Load())


def _other_numbers(n: int | float, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
    for other in dict.fromkeys((n + 1, n - 1, -n, 0, 1, 2, 3, -1, -2, 2 * n, n / 2, n + 2)):
        if other != n:
            whole = isinstance(n, int) and other == int(other)
            yield "number", ast.Constant(int(other) if whole else other)
    if isinstance(n, int) and n > 3:
        for name in names:
            yield "number", ast.Name(name, ast.Load())


def _other_products(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    left, op, right = node.left, node.op, node.right
    for sign in OPERATORS.get(type(op), ()):
        if number_at(right) != 1 or sign in (ast.Add, ast.Sub):
            yield "operator", ast.BinOp(left, sign(), right)
    if not isinstance(op, COMMUTATIVE):
        yield "order", ast.BinOp(right, op, left)
    yield "much", left
    yield "much", right
    if isinstance(right, ast.BinOp) and not isinstance(right.op, ast.Pow):  # brackets too many
        yield "order", ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right)
    if isinstance(left, ast.BinOp):  # brackets left out
        yield "order", ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))


def _other_slices(node: ast.Slice) -> Iterator[tuple[str, ast.AST]]:
    minus_one = ast.UnaryOp(ast.USub(), ast.Constant(1))
    for side, end in (("lower", ast.Constant(1)), ("upper", minus_one), ("step", None)):
        parts = {s: getattr(node, s) for s in ("lower", "upper", "step")}
        if parts[side] is not None:
            yield "much", ast.Slice(**parts | {side: None})
        elif end is not None:
            yield "missing", ast.Slice(**parts | {side: end})


def _sizes(names: dict[str, int]) -> Iterator[ast.expr]:
    """Lengths of axes of what is given."""
    for name in [n for n, line in names.items() if not line][:2]:
        for axis in (-1, -2):
            shape = ast.Attribute(ast.Name(name, ast.Load()), "shape", ast.Load())
            yield ast.Subscript(shape, ast.Constant(axis), ast.Load())


def _other_calls(node: ast.Call, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
    function, args, keywords = node.func, node.args, node.keywords
    if getattr(function, "id", "") == "float":  # float("-inf")
        yield "number", ast.Constant(0.0)
    for i in range(len(keywords)):
        yield "much", ast.Call(function, args, keywords[:i] + keywords[i + 1 :])
    for i in range(len(args)):
        yield "much", ast.Call(function, args[:i] + args[i + 1 :], keywords)
    for parts in _exchanged(args):
        yield "order", ast.Call(function, parts, keywords)
    if isinstance(function, ast.Attribute):
        yield "much", function.value
        if function.attr in REDUCE and not any(k.arg == "keepdim" for k in keywords):
            kept = ast.keyword("keepdim", ast.Constant(True))
            yield "kept", ast.Call(function, args, [*keywords, kept])
        if function.attr in ALONG and not any(k.arg in ("dim", "axis") for k in keywords):
            for axis in (-1, 1):
                yield "argument", ast.Call(function, [*args, ast.Constant(axis)], keywords)
    if args:
        yield "much", args[0]
    if getattr(function, "attr", getattr(function, "id", "")) in ("sqrt", "isqrt"):
        for size in _sizes(names) if len(args) == 1 else ():
            yield "size", ast.Call(function, [size], keywords)


def _other_letters(text: str) -> Iterator[str]:
    """An equation of `einsum` or `rearrange` with one name, or two of one side, in other places."""
    parts = re.split(r"(\w+)" if " " in text else r"(\w)", text)
    names = range(1, len(parts), 2)
    for i in names:
        for name in dict.fromkeys(parts[j] for j in names):
            if name != parts[i]:
                yield "".join([*parts[:i], name, *parts[i + 1 :]])
    for i, j in combinations(names, 2):
        if parts[i] != parts[j] and "->" not in "".join(parts[i:j]):
            other = list(parts)
            other[i], other[j] = parts[j], parts[i]
            yield "".join(other)


def _other_statements(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, (ast.For, ast.With, ast.If)) and node.body:
        *before, last = node.body
        if isinstance(node, ast.For) and before and isinstance(last, ast.Return):
            loop = ast.For(node.target, node.iter, before, node.orelse)
            yield "return", ast.If(ast.Constant(True), [loop, last], [])
    if isinstance(node, ast.If):
        yield "much", ast.If(ast.Constant(True), node.body, [])
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        yield "missing", ast.AugAssign(node.targets[0], ast.Add(), node.value)
    if isinstance(node, ast.AugAssign):
        for other in OPERATORS.get(type(node.op), ()):
            yield "operator", ast.AugAssign(node.target, other(), node.value)
        yield "operator", ast.Assign([node.target], node.value)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if not is_text and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Return)):
        yield "much", ast.Pass()


def _exchanged(parts: list[Any]) -> Iterator[list[Any]]:
    for i in range(len(parts)):
        for j in range(i + 1, len(parts)):
            other = list(parts)
            other[i], other[j] = parts[j], parts[i]
            yield other
