"""One place away from right: the learner's own code, changed in one place at a time.

What is found is true whatever the learner had in mind: with something else at that place, and
nothing else changed, every input comes out right.
"""

import ast
import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations
from time import process_time
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_lesson.check.engine.compare import allowed, close_cells
from mha_lesson.check.engine.exercise import Exercise, Slip
from mha_lesson.check.engine.inputs import unchanged
from mha_lesson.check.engine.naming import Trial
from mha_lesson.check.engine.report import Finding
from mha_lesson.check.engine.safely import Raised, Returned
from mha_lesson.check.engine.source import Source
from mha_lesson.check.engine.values import meet

MADE = "<changed>"
OWN = "_the_learners_own"
LINES = 5_000  # of one run
LOOPS = (ast.For, ast.While, ast.comprehension)  # which a change may keep from ending
SECONDS = 0.5  # of the processor's time: slow answers are given up

OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Add, ast.Div, ast.FloorDiv, ast.MatMult),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
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
ALIKE = (
    {"sum", "mean", "prod", "amax", "median"},
    {"amax", "amin"},
    {"max", "min"},
    {"maximum", "minimum"},
    {"all", "any"},
    {"triu", "tril"},
    {"sin", "cos"},
    {"exp", "log"},
    {"sqrt", "square"},
    {"argmax", "argmin"},
    {"softmax", "log_softmax"},
    {"zeros", "ones"},
    {"zeros_like", "ones_like"},
    {"cat", "stack"},
    {"w_q", "w_k", "w_v", "w_o"},
)


# Functions that take an axis as their last argument.
ALONG = {"chunk", "split", "cat", "stack", "flatten", "softmax", "log_softmax", "cumsum"}
ALONG |= {"sum", "mean", "max", "amax", "argmax"}


class Change(NamedTuple):
    """What would stand in place of a node: `holder[key] = new` makes it, `= node` takes it back."""

    kind: str
    holder: Any
    key: Any
    node: ast.AST
    new: ast.AST


KINDS = {
    "operator": ("another sign belongs there", "Which operation is meant?"),
    "function": ("another function belongs there", "Which one is meant?"),
    "return": ("`return` stands inside this loop", "After how many turns does the loop end?"),
    "order": ("the order of what stands there is wrong", "Which of them comes first?"),
    "number": (
        "another number belongs there",
        "What does it stand for there, and what should?",
    ),
    "letter": ("another letter belongs there", "Which axis does each letter stand for?"),
    "name": ("another name belongs there", "What is meant to be computed with in this place?"),
    "sign": ("the sign in front is too much", "What would be left without it?"),
    "names": ("the names belong in another order", "Which of the values is which?"),
    "missing": ("something is still to be done to it there", "Which sign, or which order of axes?"),
    "much": ("something is too much there", "What would be left without it?"),
    "argument": ("an argument is left out there", "Along which axis should it work?"),
    "size": ("something else belongs under the root", "Which axis is meant? Print its length."),
}


def changes(tree: ast.AST) -> list[Change]:
    """Every way to change one place, the likeliest first."""
    names = _names(tree)
    found = [
        Change(kind, holder, key, node, new)
        for holder, key, node in _places(tree)
        for kind, new in _instead(node, names)
        if not (kind == "number" and _twice(holder, key, new))
    ]
    ranks = list(KINDS)
    return sorted(found, key=lambda change: ranks.index(change.kind))


def _twice(holder: Any, key: Any, new: ast.AST) -> bool:
    """Whether a pair of numbers becomes one twice (3 and −1, of four): an exchange that is none."""
    if not (isinstance(holder, list) and len(holder) == 2):
        return False
    one, other = _number(holder[1 - key]), _number(new)
    return one is not None and other is not None and (one - other) % 4 == 0


def _located(new: ast.AST, like: ast.AST) -> ast.AST:
    """What is new in a node gets the place of the old one."""
    if not hasattr(new, "lineno"):
        ast.copy_location(new, like)
        for child in ast.iter_child_nodes(new):
            _located(child, like)
    return new


def _places(node: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Every node below, but for annotations and texts, and what holds it."""
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "ctx", "ops", "op"):
            continue
        if getattr(node, "name", "") == "__init__":
            continue
        if _number(node) is not None:
            continue  # its sign belongs to it
        parts = enumerate(child) if isinstance(child, list) else [(field, child)]
        holder = child if isinstance(child, list) else vars(node)
        for key, part in parts:
            if isinstance(part, ast.AST):
                yield holder, key, part
                if not _power(part):
                    yield from _places(part)


def _power(node: ast.AST) -> bool:
    """2 ** 60 is one number: with another exponent it may ask for all of the memory."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return False
    return _number(node.left) is not None and _number(node.right) is not None


def _names(tree: ast.AST) -> dict[str, int]:
    """The arguments, and what has been given a name, with the line from which on it has one."""
    arguments = [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
    turns = [n.target for n in ast.walk(tree) if isinstance(n, ast.comprehension)]
    found = {n.id: 0 for target in turns for n in ast.walk(target) if isinstance(n, ast.Name)}
    found |= dict.fromkeys(arguments, 0)
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and _stored(n):
            found[n.id] = min(n.lineno, found.get(n.id, n.lineno))
    return {name: line for name, line in found.items() if name not in ("self", "_")}


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _number(node: ast.AST) -> int | float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _number(node.operand)
        return None if below is None else -below
    value = node.value if isinstance(node, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _instead(node: ast.AST, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
    """(kind, node) for everything that could stand in its place."""
    number = _number(node)
    if number is not None:
        yield from _other_numbers(number, names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "number", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value:
        for text in _other_letters(node.value):
            yield "letter", ast.Constant(text)
    elif isinstance(node, ast.UnaryOp):
        yield "sign", node.operand
        if getattr(node.operand, "attr", "") == "inf":
            yield "number", ast.Constant(0.0)
    elif isinstance(node, ast.BinOp):
        yield from _other_products(node)
        if isinstance(node.op, ast.Pow) and _number(node.right) in (0.5, -0.5):
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
        yield from _more(node, names)


def _other_functions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Attribute):
        for group in ALIKE:
            for name in sorted(group - {node.attr}) if node.attr in group else ():
                yield ast.Attribute(node.value, name, node.ctx)


def _more(node: ast.AST, names: dict[str, int]) -> Iterator[tuple[str, ast.AST]]:
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
        if _number(right) != 1 or sign in (ast.Add, ast.Sub):
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
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Return)) and not _is_text(node):
        yield "much", ast.Pass()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _exchanged(parts: list[Any]) -> Iterator[list[Any]]:
    for i in range(len(parts)):
        for j in range(i + 1, len(parts)):
            other = list(parts)
            other[i], other[j] = parts[j], parts[i]
            yield other


# --- trying them ---------------------------------------------------------------------------------


def _home(answer: Any) -> dict[str, Any]:
    """The names that its lines see: those of its module, which need not be registered."""
    methods = vars(answer).values() if isinstance(answer, type) else (answer,)
    homes = (m.__globals__ for m in methods if isinstance(m, FunctionType))
    return next(homes, {})


def versions(
    source: Source, some: Iterable[Change] | None = None, **names: Any
) -> Iterator[tuple[Change, Any]]:
    """The learner's function or class with one place changed, for each change or some of them.

    `names` stand around them, beside those of the learner's module.
    """
    tree, home = source.tree, _home(source.answer) | names
    assert isinstance(tree, ast.Module)
    top: Any = tree.body[0]
    top.decorator_list = []
    home[OWN] = source.answer
    calls_itself = any(node.id == top.name for node in source.nodes(ast.Name))
    whole, bases = top.body, getattr(top, "bases", None)
    own = [ast.copy_location(ast.Name(OWN, ast.Load()), top)]
    alone = [p for p in whole if isinstance(top, ast.ClassDef) and "super" not in ast.dump(p)]
    part_of = {id(node): part for part in alone for node in ast.walk(part)}
    for change in changes(tree) if some is None else some:
        change.holder[change.key] = _located(change.new, change.node)
        if part := part_of.get(id(change.node)):  # a class over the learner's compiles faster
            top.body, top.bases = [part], own
        made: dict[str, Any] = {}
        around = home | made if calls_itself else home
        try:
            exec(compile(tree, MADE, "exec"), around, made)
        except Exception:
            continue
        finally:
            change.holder[change.key] = change.node
            top.body, top.bases = whole, bases
        around |= made if calls_itself else {}
        yield change, made[top.name]


_NEVER = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Yield, ast.Await)
_NOR = {"open", "input", "exec", "eval", "save", "load", "os", "sys", "shutil", "subprocess"}


def can_be_changed(source: Source) -> bool:
    """Whether versions of it can be run: they may do anything but reach out of themselves."""
    return (
        isinstance(source.tree, ast.Module)
        and isinstance(source.tree.body[0], (ast.FunctionDef, ast.ClassDef))
        and not any(getattr(n, "attr", getattr(n, "id", "")) in _NOR for n in source.all)
        and not any(source.nodes(_NEVER))
        and not getattr(getattr(source.answer, "__code__", None), "co_freevars", ())
    )


class Ended:
    """A version that is stopped after many lines: a changed loop may never end."""

    def __init__(self, version: Callable[..., Any]) -> None:
        self.version, self.left = version, 0

    def __call__(self, *inputs: Any) -> Any:
        self.left, before = LINES, sys.gettrace()
        sys.settrace(self._count)
        try:
            return self.version(*inputs)
        finally:
            sys.settrace(before)

    def _count(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != MADE:
            return None
        self.left -= 1
        if self.left < 0:
            raise TimeoutError("too many lines")
        return self._count


class Found(NamedTuple):
    """The place that keeps an answer from being right; or one that leaves a known slip behind."""

    alone: Finding | None = None
    with_slip: Callable[[], tuple[Finding, ...]] = tuple


def one_place(
    source: Source,
    again: Callable[[Any], Callable[..., Any]],
    trials: list[Trial],
    exercise: Exercise | None = None,
) -> Found:
    """Looks for one place in which an answer goes wrong.

    Args:
        source: the learner's code.
        again: makes a function of a case's inputs of another version of it.
        trials: what the code did on each case.
        exercise: whose slips may be left when the place is mended.
    """
    if source.tree is None or not can_be_changed(source):
        return Found()
    first = sorted(trials, key=lambda t: (t.difference is None, isinstance(t.outcome, Raised)))
    safely = Ended if any(source.nodes(LOOPS)) else unchanged
    end = process_time() + SECONDS

    as_it_is = Change("", {}, "", source.tree, source.tree)

    def attempt(names: dict[str, Any]) -> None:
        for _, watched in versions(source, [as_it_is], **names):
            first[0].again(safely(again(watched)))

    met = meet(source, _places(source.tree), attempt)
    returns = isinstance(first[0].outcome, Returned)
    listed = [c for c in changes(source.tree) if met.fits(c.node, c.new, names=returns)]
    idle = [c for c in listed if source.statement(c.node) in met.idle]
    seen: list[_Version] = []

    def mends(version: Any) -> bool:
        return all(t.again(safely(again(version))).difference is None for t in first)

    tried = (c for c in listed if source.statement(c.node) not in met.idle)
    for n, (change, made) in enumerate(versions(source, tried)):
        answer = safely(again(made))
        if n % 8 == 0 and process_time() > end:  # on some machines a slow question
            break
        trial = first[0].again(answer)
        if trial.difference is None and mends(made):
            around = [c for c in listed if c.kind == "much" and _holds(c, change)]
            around.sort(key=lambda c: (not isinstance(c.node, ast.If), -listed.index(c)))
            for outer, other in versions(source, around):
                if mends(other):
                    change = outer  # what is too much needs no mending
                    break
            return Found(_told(source, change, ALONE))
        if isinstance(trial.outcome, Returned) and not trial.outcome.changed:
            seen.append(_Version(change, trial, answer))
    if exercise is None or isinstance(first[0].expected, int) or one_truth_value(first[0]):
        return Found()  # counts, and single truth values, meet by chance
    left = max(end - process_time(), SECONDS / 4)

    as_before = (_Version(c, first[0], safely(again(m))) for c, m in versions(source, idle))
    return Found(None, lambda: _Left(exercise, source, first).told(seen, as_before, mends, left))


def right_once_kept(
    source: Source,
    line: ast.Expr,
    again: Callable[[Any], Callable[..., Any]],
    trials: list[Trial],
) -> bool:
    """Whether all is right where a name in a line holds what the line throws away."""
    if source.tree is None or not can_be_changed(source):
        return False
    at = next((h, k) for h, k, node in _places(source.tree) if node is line)
    names = dict.fromkeys(n.id for n in ast.walk(line) if isinstance(n, ast.Name))
    kept = (ast.Assign([ast.Name(name, ast.Store())], line.value) for name in names)
    made = versions(source, (Change("", *at, line, new) for new in kept))
    return any(all(t.again(again(m)).difference is None for t in trials) for _, m in made)


def one_truth_value(trial: Trial) -> bool:
    """Whether the answer gave True or False alone: half of all mistakes would give the same."""
    value = trial.outcome.value if isinstance(trial.outcome, Returned) else None
    if isinstance(value, Tensor):
        return value.dtype == torch.bool and value.numel() == 1
    return isinstance(value, bool)


def _holds(outer: Change, change: Change) -> bool:
    """Whether a change takes out something around the place of another."""
    inside = any(node is change.node for node in ast.walk(outer.node))
    apart = change.node is not outer.node and change.node is not outer.new
    return change.kind != "much" and inside and apart


class _Version(NamedTuple):
    """The answer with a change, and what it gives on the first input."""

    change: Change
    trial: Trial
    answer: Callable[..., Any]


class _Left:
    """The slip that is left once a place is mended.

    If one place can be mended so that several slips are left, none of them is meant: a change can
    make a mistake, too. If two places leave a slip each, those two slips are what was made.
    """

    def __init__(self, exercise: Exercise, source: Source, trials: list[Trial]) -> None:
        self.exercise, self.source = exercise, source
        self.trials, self.others = trials, trials[1:]
        self.slips: dict[Any, list[Slip]] = {}  # by what they give on the first input
        for (slip,) in exercise.singles:
            with contextlib.suppress(Exception):
                result = exercise.on(trials[0].case, (slip,))
                self.slips.setdefault(_print_of(result), []).append(slip)
        self.was_there: dict[Slip, bool] = {}

    def told(
        self,
        seen: list[_Version],
        as_before: Iterator[_Version],
        mends: Callable[[Any], bool],
        seconds: float,
    ) -> tuple[Finding, ...]:
        """What is left.

        Args:
            seen: versions that give something on the first input.
            as_before: those that give there what the answer gives.
            mends: says of a version whether all is right with it.
            seconds: how long this may take.
        """
        outcome = self.trials[0].outcome
        alike = isinstance(outcome, Returned) and self.slips.get(_print_of(outcome.value))
        found: dict[Slip, list[Change]] = {}
        end = process_time() + seconds
        for version in chain(seen, as_before if alike else ()):
            if process_time() > end:
                break
            if slip := self._left_by(version):
                same = next((s for s in found if s.does == slip.does), slip)
                found.setdefault(same, []).append(version.change)
        match list(found.items()):
            case [(slip, changes)]:
                ranked = sorted(changes, key=lambda c: (c.kind != "much", -_line(c)))
                return _told(self.source, ranked[0]), slip
            case [(one, these), (other, those)]:
                pairs = [(a, b) for a in these for b in those if not _overlap(a.node, b.node)]
                made = chain.from_iterable(_two(self.source, *pair) for pair in pairs[:9])
                return (one, other) if any(map(mends, made)) else ()
        return ()

    def _left_by(self, version: _Version) -> Slip | None:
        """The slip that is all that is left, and was there before."""
        assert isinstance(version.trial.outcome, Returned)
        slips = self.slips.get(_print_of(version.trial.outcome.value), ())
        change = version.change
        makes = change.kind in ("missing", "name")  # and that may be another mistake
        if not slips or makes or _removes(change) or _measures(change):
            return None
        return next((s for s in slips if self._leaves(s, version) and self._was_there(s)), None)

    def _leaves(self, slip: Slip, version: _Version) -> bool:
        if not self._agree(slip, self.trials[0], version.trial):
            return False
        for i, trial in enumerate(self.others):
            if not self._agree(slip, trial, trial.again(version.answer)):
                self.others.insert(0, self.others.pop(i))  # tells most apart: first the next time
                return False
        return True

    def _agree(self, slip: Slip, before: Trial, after: Trial) -> bool:
        try:
            result = self.exercise.on(before.case, (slip,))
        except Exception:
            return isinstance(after.outcome, Raised)
        return after.gives(result)

    def _was_there(self, slip: Slip) -> bool:
        if slip not in self.was_there:
            self.was_there[slip] = all(self._is_in(slip, t) for t in self.trials)
        return self.was_there[slip]

    def _is_in(self, slip: Slip, trial: Trial) -> bool:
        try:
            result = self.exercise.on(trial.case, (slip,))
        except Exception:
            return True
        return _is_in(result, trial)


def _two(source: Source, one: Change, other: Change) -> Iterator[Any]:
    """The version with both changes."""
    one.holder[one.key] = _located(one.new, one.node)
    for _, version in versions(source, [other]):
        yield version
    one.holder[one.key] = one.node


def _line(change: Change) -> int:
    return getattr(change.node, "lineno", 0)


def _measures(change: Change) -> bool:
    """Whether it makes a large number another: that may only make another mistake."""
    number = _number(change.node)
    return number is not None and abs(number) > 3


def _removes(change: Change) -> bool:
    """Whether a change takes a step out: what is missing then was not missing before."""
    if change.kind == "number" and isinstance(change.holder, dict):  # the parts of a node
        by_one = isinstance(change.holder.get("op"), ast.Mult | ast.Div)
        return by_one and _number(change.new) == 1  # as if nothing were multiplied or divided
    if change.kind != "much" or isinstance(change.node, ast.UnaryOp):
        return False
    if not isinstance(change.node, ast.Call):
        return True
    name = getattr(change.node.func, "attr", "")  # but what is done twice
    return f".{name}(" not in ast.unparse(change.new) or not name


def _overlap(one: Any, other: Any) -> bool:
    ends = [(n.end_lineno, n.end_col_offset) for n in (one, other)]
    starts = [(n.lineno, n.col_offset) for n in (one, other)]
    return max(starts) < min(ends)


def _print_of(result: Any) -> Any:
    """Alike for results that are alike, but for rounding."""
    if isinstance(result, (tuple, list)):
        return tuple(map(_print_of, result))
    if isinstance(result, Tensor):
        return tuple(result.shape), f"{float(result.detach().double().sum()):.5g}"
    return result if isinstance(result, (int, float, str)) else None


def _is_in(result: Any, trial: Trial) -> bool:
    """Whether all that a slip spoils is spoilt in the answer as well."""
    if isinstance(trial.outcome, Raised):
        return True
    yours, expected = trial.outcome.value, trial.expected
    rows = zip(*map(_parts, (result, yours, expected)), strict=False)
    for of_slip, mine, right in rows:
        if not all(isinstance(x, Tensor) for x in (of_slip, mine, right)):
            continue
        if of_slip.dtype != right.dtype:
            return False  # such a slip tells what numbers there are, and a change makes others
        if of_slip.shape != right.shape:
            if mine.shape != of_slip.shape:
                return False
        elif mine.shape == right.shape:
            if (mine.isfinite() & ~of_slip.isfinite()).any():
                return False
            limit = allowed(right.dtype, trial.case.tolerance)
            fine, still = (close_cells(x, right, limit) for x in (mine, of_slip))
            masks = right.dtype == torch.bool  # where two wrongs may make a right
            if fine.sum() > still.sum() if masks else (fine & ~still).any():
                return False
    return True


def _parts(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _told(source: Source, change: Change, then: str = "") -> Finding:
    what, asks = KINDS[change.kind]
    place = change.node
    line = source.line(place)
    part = ast.unparse(place).splitlines()[0]
    if change.kind == "much" and isinstance(change.new, ast.expr):
        part = part.replace(ast.unparse(change.new), "…", 1)
        function = getattr(place, "func", None)
        if isinstance(change.new, ast.Call) and change.new.func is function:
            left = [function, *change.new.args, *change.new.keywords]
            (gone,) = [x for x in ast.iter_child_nodes(place) if x not in left]
            part = ast.unparse(gone)
    there = f"`{line}`" if part in (line, "…") else f"`{part}` in `{line}`"
    return Finding("one_place", f"Line {_line(change)}, {there}: {what}.{then}", asks)


ALONE = " Apart from that, all values are right."
