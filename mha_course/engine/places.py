"""One place away from right: the learner's own code, changed in one place at a time.

What is found is true whatever the learner had in mind: with something else at that place, and
nothing else changed, every input comes out right.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from types import FunctionType
from typing import Any

from mha_course.engine.attempt import Attempt, Explanation
from mha_course.engine.changes import KINDS, Change, changes, located, slots
from mha_course.engine.inputs import unchanged
from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised
from mha_course.engine.search import slip_in_part, slips_beside_errors
from mha_course.engine.source import Source

CHANGED = "<changed>"  # the file that a version's lines are said to stand in
OWN = "_the_learners_own"
LINES = 5_000  # that one run of a version may execute
LOOPS = (ast.For, ast.While, ast.comprehension)  # which a change may keep from ending
MOST_VERSIONS = 1_000


def first_mend(attempt: Attempt) -> Change | None:
    """The first change that makes every input come out right."""
    source = attempt.source
    if source.tree is None or not can_be_changed(source):
        return None
    ordered = sorted(
        attempt.trials, key=lambda t: (t.difference is None, isinstance(t.outcome, Raised))
    )
    bounded = Bounded if any(source.nodes(LOOPS)) else unchanged
    listed = changes(source.tree)

    def mends(answer: Callable[..., Any]) -> bool:
        return all(t.given_by(answer).difference is None for t in ordered)

    for change, version in versions(source, islice(listed, MOST_VERSIONS)):
        if mends(bounded(attempt.bound.rebind(version))):
            around = [c for c in listed if c.kind == "much" and _takes_out(c, change)]
            around.sort(key=lambda c: (not isinstance(c.node, ast.If), -listed.index(c)))
            around += [c for c in listed if change.kind == "missing" and _turns_back(c)]
            for outer, other in versions(source, around):  # simpler: leave it out altogether
                if mends(bounded(attempt.bound.rebind(other))):
                    return outer
            return change
    return None


def one_place(attempt: Attempt) -> Explanation | None:
    """The place that alone keeps the answer from being right; beside an error, as a note."""
    change = attempt.remembered(first_mend)
    if change is None:
        return None
    place = replace(_finding(attempt.source, change), rest_right=True)
    if attempt.stops or slips_beside_errors(attempt):
        explanation = slip_in_part(attempt) or Explanation((attempt.first_error,))
        return explanation._replace(notes=(place.sentence,))
    return Explanation((place,))


# --- versions of what the learner wrote ----------------------------------------------------------


def versions(source: Source, some: Iterable[Change] | None = None) -> Iterator[tuple[Change, Any]]:
    """The learner's function or class with one place changed, for each change or some of them."""
    tree, home = source.tree, _home(source.answer)
    assert isinstance(tree, ast.Module)
    top: Any = tree.body[0]
    home[OWN] = source.answer
    calls_itself = any(node.id == top.name for node in source.nodes(ast.Name))
    whole, bases, decorators = top.body, getattr(top, "bases", None), top.decorator_list
    own = [ast.copy_location(ast.Name(OWN, ast.Load()), top)]
    methods = [p for p in whole if isinstance(top, ast.ClassDef) and "super" not in ast.dump(p)]
    part_of = {id(node): part for part in methods for node in ast.walk(part)}
    for change in changes(tree) if some is None else some:
        change.holder[change.key] = located(change.new, change.node)
        top.decorator_list = []
        if part := part_of.get(id(change.node)):  # a class over the learner's compiles faster
            top.body, top.bases = [part], own
        namespace: dict[str, Any] = {}
        around = home | namespace if calls_itself else home
        try:
            exec(compile(tree, CHANGED, "exec"), around, namespace)
        except Exception:
            continue
        finally:
            change.holder[change.key] = change.node
            top.body, top.bases, top.decorator_list = whole, bases, decorators
        around |= namespace if calls_itself else {}
        yield change, namespace[top.name]


def _home(answer: Any) -> dict[str, Any]:
    """The names that its lines see: those of its module, which need not be registered."""
    methods = vars(answer).values() if isinstance(answer, type) else (answer,)
    homes = (m.__globals__ for m in methods if isinstance(m, FunctionType))
    return dict(next(homes, {}))


REACHES_OUT = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Yield, ast.Await)
OUTSIDE = {"open", "input", "exec", "eval", "save", "load", "os", "sys", "shutil", "subprocess"}


def can_be_changed(source: Source) -> bool:
    """Whether versions of it can be run: they may do anything but reach out of themselves."""
    own = {name.arg for name in source.nodes(ast.arg)}  # `input` may be an argument
    read = {name.id for name in source.nodes(ast.Name)} - own
    read |= {name.attr for name in source.nodes(ast.Attribute)}
    return (
        isinstance(source.tree, ast.Module)
        and isinstance(source.tree.body[0], (ast.FunctionDef, ast.ClassDef))
        and not read & OUTSIDE
        and not any(source.nodes(REACHES_OUT))
        and not getattr(getattr(source.answer, "__code__", None), "co_freevars", ())
    )


class Bounded:
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
        if frame.f_code.co_filename != CHANGED:
            return None
        self.left -= 1
        if self.left < 0:
            raise TimeoutError("too many lines")
        return self._count


def right_once_kept(attempt: Attempt, line: ast.Expr) -> bool:
    """Whether all is right once a name of the line is given what the line computes and drops."""
    source = attempt.source
    if source.tree is None or not can_be_changed(source):
        return False
    at = next((h, k) for h, k, node in slots(source.tree) if node is line)
    names = dict.fromkeys(n.id for n in ast.walk(line) if isinstance(n, ast.Name))
    kept = (ast.Assign([ast.Name(name, ast.Store())], line.value) for name in names)
    changed = versions(source, (Change("", *at, line, new) for new in kept))
    answers = (attempt.bound.rebind(version) for _, version in changed)
    return any(all(t.given_by(a).difference is None for t in attempt.trials) for a in answers)


# --- what a change shows -------------------------------------------------------------------------


def _takes_out(outer: Change, change: Change) -> bool:
    """Whether a change takes out something around the place of another."""
    inside = any(node is change.node for node in ast.walk(outer.node))
    elsewhere = change.node is not outer.node and change.node is not outer.new
    return change.kind != "much" and inside and elsewhere


def _turns_back(change: Change) -> bool:
    """Whether a change takes out an exchange of axes: then none was missing elsewhere."""
    function = getattr(change.node, "func", change.node)
    turns = getattr(function, "attr", "") in ("T", "mT", "transpose", "swapaxes", "permute")
    return change.kind == "much" and turns and change.new is getattr(function, "value", None)


def _line(change: Change) -> int:
    return getattr(change.node, "lineno", 0)


SOFTMAX = (
    "the softmax runs along another axis than the keys', so that what sums to 1 is no row of "
    "weights",
    "Each query shares out a weight of 1 among the keys. Along which axis do the keys lie?",
)
TURNED = (
    "True and False are exchanged there",
    "True means *blocked* in this course: what is True on each side of that sign, and which of the "
    "two does the line want?",
)
NOT_TURNED = (
    "True and False would have to be exchanged there",
    "True means *blocked* in this course: what does it mean to whatever gets this mask?",
)


def _in_one_of_two_lines(source: Source, change: Change) -> tuple[str, str] | None:
    """Of two names given in the wrong order, where one line uses both: that may exchange them."""
    given, other = (getattr(node, "elts", ()) for node in (change.node, change.new))
    pair = [getattr(a, "id", "") for a, b in zip(given, other, strict=False) if a is not b]
    uses = [
        node
        for node in source.nodes(ast.Name)
        if node.id in pair and isinstance(node.ctx, ast.Load) and node.lineno > _line(change)
    ]
    if {node.id for node in uses} != {*pair} or len({node.lineno for node in uses}) != 1:
        return None
    first, second = (f"`{name}`" for name in pair)
    return (
        f"these names do not fit line {uses[0].lineno}, `{source.line(uses[0])}`: in one of the "
        f"two lines {first} and {second} have to change places",
        "What does each of the two names mean in the first line, and what in the second?",
    )


def _meaning(source: Source, change: Change) -> tuple[str, str] | None:
    """What a number, a sign or a pair of names is about, where that can be seen."""
    if change.kind == "names":
        return _in_one_of_two_lines(source, change)
    around: Any = source.parents.get(change.node)
    around = source.parents.get(around) if isinstance(around, ast.keyword) else around
    name = getattr(getattr(around, "func", None), "attr", "")
    if change.kind == "number" and name in ("softmax", "log_softmax"):
        return SOFTMAX
    if isinstance(getattr(change.node, "op", None), ast.Invert):
        return TURNED if change.kind == "sign" else None
    turned = change.kind == "missing" and isinstance(getattr(change.new, "op", None), ast.Invert)
    return NOT_TURNED if turned else None


def _finding(source: Source, change: Change) -> Finding:
    what, asks = _meaning(source, change) or KINDS[change.kind]
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
    return Finding("one_place", f"Line {_line(change)}, {there}: {what}.", asks)
