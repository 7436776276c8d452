"""What can be seen in the learner's own lines: rules that serve every exercise.

Each is worded as what stands there, so it is true whatever else is wrong.
"""

import ast
import dis
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised, safe_text

# Methods of lists and dicts that a tensor has under the same name, and that do work in place.
_IN_PLACE = frozenset(["sort", "add", "backward", "register_hook", "retain_grad"])
_FRESH = frozenset(["Linear", "Parameter", "randn", "rand", "randn_like", "rand_like", "Dropout"])


_CHANCE = re.compile("rand|rng|drop|noise|normal|shuffle|generator|bernoulli|empty|time", re.I)
_REDUCE = frozenset(["sum", "mean", "all", "any", "amax", "amin", "norm", "logsumexp"])
_MADE = frozenset(["zeros", "ones", "empty", "full", "eye"])  # float32, unless one says otherwise
STOP = (ast.Subscript, ast.arg)  # three dots below these are an index, or an annotation


def _lines(answer: Any) -> tuple[list[str], int]:
    """The lines of a function or class, and the number of the first.

    Of a class that a notebook's cell defines `inspect` knows no file; its methods know theirs.
    """
    if not isinstance(answer, type):
        return inspect.getsourcelines(answer)
    within = answer.__qualname__ + "."
    methods = [m for m in vars(answer).values() if isinstance(m, FunctionType)]
    codes = [m.__code__ for m in methods if m.__qualname__.startswith(within)]
    code = min(codes, key=lambda code: code.co_firstlineno)
    lines = linecache.getlines(code.co_filename)
    head = re.compile(rf"\s*class\s+{answer.__name__}\b")
    first = max(i for i in range(code.co_firstlineno) if head.match(lines[i]))
    return inspect.getblock(lines[first:]), first + 1


class Source:
    """The learner's code as a tree, with lines counted as the learner's cell counts them."""

    def __init__(self, answer: Any) -> None:
        self.answer = inspect.unwrap(answer) if callable(answer) else answer
        self.tree: ast.AST | None = None
        self.parents: dict[ast.AST, ast.AST] = {}
        try:
            lines, first = _lines(self.answer)
            self.tree = ast.parse("\n" * (first - 1) + textwrap.dedent("".join(lines)))
            if getattr(self.answer, "__name__", "") == "<lambda>":
                lambdas = [n for n in ast.walk(self.tree) if isinstance(n, ast.Lambda)]
                self.tree = lambdas[0] if len(lambdas) == 1 else None
        except (OSError, TypeError, SyntaxError, ValueError, LookupError, RecursionError):
            self.tree = None
        self.all: list[ast.AST] = [self.tree] if self.tree else []  # from the outermost on
        for node in self.all:
            below = [*ast.iter_child_nodes(node)]
            self.parents.update(dict.fromkeys(below, node))
            self.all += below

    def nodes(self, kind: Any) -> Iterator[Any]:
        return (n for n in self.all if isinstance(n, kind))

    def statement(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt) and node in self.parents:
            node = self.parents[node]
        return node

    def line(self, node: ast.AST) -> str:
        """The statement's first line, as code."""
        text = ast.unparse(self.statement(node)).splitlines()[0]
        return text if len(text) <= 70 else text[:69] + "…"

    def three_dots(self) -> Finding | None:
        """Three dots of the stub that still stand there, in code that has been begun."""
        for node in self.nodes(ast.Constant):
            if node.value is not ... or isinstance(self.parents.get(node), ast.Expr):
                continue
            above: ast.AST = node
            while above in self.parents and not isinstance(above, (*STOP, ast.stmt)):
                above = self.parents[above]
            if isinstance(above, STOP):
                continue  # `x[..., 0]`: an index
            return Finding(
                "three_dots",
                f"Line {node.lineno} still holds the three dots: `{self.line(node)}`.",
                "What belongs in their place?",
            )
        return None

    def ends_in_work(self) -> bool:
        """Whether the last statement of a function computes something."""
        function = next(self.nodes(ast.FunctionDef), None)
        last = function.body[-1] if function else None
        if isinstance(last, ast.Expr):
            return isinstance(last.value, ast.Call)
        return isinstance(last, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.With))

    def nothing_kept(self) -> ast.Expr | None:
        """A line whose result nobody keeps: `x.permute(…)` gives a new tensor."""
        for node in self.nodes(ast.Expr):
            value = node.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                name = value.func.attr
                known = callable(getattr(Tensor, name, None)) or hasattr(torch.nn.functional, name)
                if not known or name.endswith("_") or name in _IN_PLACE:
                    continue
                if any(isinstance(k, ast.keyword) and k.arg == "out" for k in value.keywords):
                    continue
            elif not isinstance(value, (ast.BinOp, ast.Compare)):
                continue
            return node
        return None

    def thrown_away(self, node: ast.Expr) -> Finding:
        name = getattr(getattr(node.value, "func", None), "attr", "")
        if isinstance(node.value, ast.Compare):
            return Finding(
                "thrown_away",
                f"Line {node.lineno} compares, `{self.line(node)}`, but does not keep the result.",
                "Is it meant to give a name its value (one `=`), or as an `assert`?",
            )
        what = f"`{name}` gives a new tensor" if name else "it is a new tensor"
        return Finding(
            "thrown_away",
            f"Line {node.lineno} computes `{self.line(node)}` but does not keep the result: "
            f"{what}, and leaves the old one as it is.",
            "Which name should hold the new one?",
        )

    def fresh_weights(self, inputs: tuple[str, ...]) -> Finding | None:
        """A layer made on the spot, in a function that gets its weights as an argument, or none."""
        weights = "the weights to compute with are an argument."
        asks = "Which product does a layer compute with its weight?"
        if not any(name.startswith("W_") for name in inputs):
            weights = "nothing in this exercise is drawn at random, and nothing is learnt."
            asks = "What should be computed from the arguments alone?"
        for node in self.nodes(ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _FRESH:
                return Finding(
                    "fresh_weights",
                    f"Line {node.lineno} makes something new with random numbers, "
                    f"`{self.line(node)}`: {weights}",
                    asks,
                )
        return None

    def layer_in_forward(self, on_self: bool = False) -> Finding | None:
        """A layer made anew at each call; `on_self` asks for one that `self` keeps, in any case."""
        for method in self.nodes(ast.FunctionDef):
            calls = (n for n in ast.walk(method) if isinstance(n, ast.Call))
            for node in calls if method.name == "forward" else ():
                name = getattr(node.func, "attr", "")
                statement: Any = self.statement(node)
                kept = isinstance(statement, ast.Assign) and statement in method.body
                if (
                    name in _FRESH - {"Dropout"}
                    and (kept and "self." in self.line(node)) >= on_self
                ):
                    return Finding(
                        "layer_in_forward",
                        f"Line {node.lineno} makes new weights each time `forward` is called, "
                        f"`{self.line(node)}`: whatever these learn is lost at the next call.",
                        "Which method runs only once, and is there to make the layers?",
                    )
        return None

    def by_numpy(self) -> Finding | None:
        """Work that is handed to numpy."""
        names = {n for n, m in _globals_of(self.answer, ModuleType) if m.__name__ == "numpy"}
        for node in self.nodes((ast.Call, ast.Attribute)):
            function: Any = getattr(node, "func", node)
            while isinstance(function, ast.Attribute) and function.attr != "numpy":
                function = function.value
            if getattr(function, "id", "") in names or getattr(function, "attr", "") == "numpy":
                return Finding(
                    "by_numpy",
                    f"Line {node.lineno} leaves torch for numpy, `{self.line(node)}`. The numbers "
                    "are right; but nothing can learn through it, since no gradient comes back.",
                    "Which functions of torch do the same?",
                )
        return None

    def no_power(self) -> Finding | None:
        for node in self.nodes(ast.BinOp):
            if isinstance(node.op, ast.BitXor):
                return Finding(
                    "no_power",
                    f"Line {node.lineno}, `{self.line(node)}`: in Python `^` is no power; it "
                    "compares two whole numbers bit by bit.",
                    "Which sign, or which function, raises to a power?",
                )
        return None

    def axis_dropped(self, number: int | None) -> str:
        """What a line does that sums along an axis, or the like, and does not keep it."""
        for node in self.nodes(ast.Call):
            reduces = getattr(node.func, "attr", "") in _REDUCE and (node.args or node.keywords)
            kept = any(k.arg == "keepdim" for k in node.keywords)
            if reduces and not kept and node.lineno == number:
                part = ast.unparse(node)
                return (
                    f"`{part}` drops the axis that it runs along, so what is left lines up with "
                    "other axes. (`keepdim` would keep that axis, with size 1.)"
                )
        return ""

    def no_longer_given(self, number: int | None) -> str:
        """Which argument a line uses that an earlier line has replaced."""
        for function in self.nodes(ast.FunctionDef):
            used = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
            here = {n.id for n in used if n.lineno == number and isinstance(n.ctx, ast.Load)}
            given = here & {a.arg for a in function.args.args}
            for n in used:
                line: Any = self.statement(n)
                if isinstance(n.ctx, ast.Load) or isinstance(getattr(line, "value", 0), ast.IfExp):
                    continue
                if n.id in given and line in function.body and n.lineno < (number or 0):
                    return f"There, `{n.id}` is not what came in: line {n.lineno} has replaced it."
        return ""

    def writes_in_place(self) -> str:
        """The line that writes into a tensor; empty where there is none, or more than one."""
        into = [n for n in self.nodes(ast.Subscript) if isinstance(n.ctx, ast.Store)]
        into += [*self.nodes(ast.AugAssign)]
        into += [n for n in self.nodes(ast.Attribute) if re.search(r"[a-z]_$", n.attr)]
        lines = {n.lineno: f"Line {n.lineno}, `{self.line(n)}`, writes" for n in into}
        return lines.popitem()[1] if len(lines) == 1 else ""

    def made_without_dtype(self) -> ast.Call | None:
        """A tensor made without a dtype: then it holds float32 numbers."""
        for node in self.nodes(ast.Call):
            name = getattr(node.func, "attr", "")
            if name in _MADE and not any(k.arg == "dtype" for k in node.keywords):
                return node
        return None

    def truth_of_a_tensor(self, number: int | None) -> Finding | None:
        """`and`, `or`, `not` and `if` want one truth value."""
        words = {
            ast.BoolOp: "`and` and `or` want",
            ast.Not: "`not` wants",
            ast.If: "`if` wants",
            ast.IfExp: "`if` wants",
            ast.While: "`while` wants",
            ast.Assert: "`assert` wants",
            ast.comprehension: "`if` wants",
        }
        for kind, wants in words.items():
            for node in self.nodes(kind):
                line = getattr(self.parents[node] if kind is ast.Not else node, "lineno", number)
                if number in (None, line):
                    asked = getattr(self.parents[node], "operand", getattr(node, "test", None))
                    if kind is ast.BoolOp and isinstance(node.values[1], ast.Call):
                        asked = node.values[0]  # `mask or torch.zeros(…)`
                    given = getattr(asked, "id", "")
                    return Finding(
                        "truth_of_a_tensor",
                        f"Line {line}: {wants} *one* truth value, but a tensor has many.",
                        f"Do you ask whether there is a `{given}` at all? Then say `is None` (or "
                        "`is not None`). Or about its entries: then `any` or `all`?"
                        if given
                        else "Which signs work entry by entry (`&`, `|`, `~`), or which call makes "
                        "one value of many (`all`, `any`)?",
                    )
        return None

    def from_the_notebook(self, kind: Any = (Tensor, int, float, list, tuple)) -> Finding | None:
        """A tensor or a number that comes from another cell, and not from the arguments."""
        for name, value in (*_globals_of(self.answer, kind), *self._held_by_globals(kind)):
            if _is_constant(name, value):
                continue
            asks = "of its sizes"
            if isinstance(value, Tensor) and value.numel() > 1:
                what, asks = f"a tensor of shape {tuple(value.shape)}", "value of your function"
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                what = f"{value:.6g}"
            elif isinstance(value, (list, tuple)) and value:
                what = f"a {type(value).__name__} of {len(value)}"
            else:
                continue
            return Finding(
                "from_the_notebook",
                f"`{name}` ({what}) is not one of your arguments: it comes from outside the "
                "function, and stays the same whatever the function is given.",
                f"Which argument, or which {asks}, should stand in its place?",
            )
        return None

    def _held_by_globals(self, kind: Any) -> Iterator[tuple[str, Any]]:
        """What is asked of an object of another cell, as `creek.hidden`."""
        things = dict(_globals_of(self.answer, object))
        for node in self.nodes(ast.Attribute):
            thing = things.get(getattr(node.value, "id", ""))
            if thing is None or isinstance(thing, (ModuleType, type, FunctionType, Tensor)):
                continue
            try:
                value = getattr(thing, node.attr)
            except Exception:  # a property of the learner's
                continue
            if isinstance(value, kind):
                yield ast.unparse(node), value

    def draws(self) -> bool:
        """Whether a name in it speaks of chance."""
        names = [getattr(n, "attr", getattr(n, "id", "")) for n in self.nodes(ast.expr)]
        return not names or any(_CHANCE.search(name) for name in names)

    def calls(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these functions of somebody else it calls; the learner's own are none."""
        functions = [n.func for n in self.nodes(ast.Call)]
        called = {f.attr for f in functions if isinstance(f, ast.Attribute) and not _of_self(f)}
        own = {n for n, f in _globals_of(self.answer, (FunctionType, type)) if not _of_a_library(f)}
        own.add(safe_text(getattr(self.answer, "__name__", ""), str))  # it calls itself
        own |= {node.name for node in self.nodes(ast.FunctionDef)}  # a helper within it
        called |= {f.id for f in functions if isinstance(f, ast.Name)} - own
        return tuple(name for name in names if name in called)

    def without_self(self, error: Raised) -> Finding | None:
        """A name that stands alone in a method, where `self` holds it or ought to."""
        name = getattr(error.error, "name", None)
        line = f"Line {error.number}, `{error.source}`: "
        for node in self.nodes(ast.Attribute):
            if node.attr == name and _of_self(node) and isinstance(node.ctx, ast.Store):
                does = f"`self.` is missing in front of `{name}`, which line {node.lineno} sets."
                asks = "How does one method reach what another has kept in `self`?"
                return Finding("error:self_missing", line + does, asks)
        for node in self.nodes(ast.FunctionDef):
            if node.name == "__init__" and name in (a.arg for a in node.args.args):
                does = f"`{name}` is an argument of `__init__`, but no other method knows it."
                asks = "What must `__init__` keep in `self`, and how is it reached from there?"
                return Finding("error:self_missing", line + does, asks)
            if node.name == name and isinstance(self.parents.get(node), ast.ClassDef):
                does = f"`self.` is missing in front of `{name}`, a method of your class."
                return Finding(
                    "error:self_missing", line + does, "How does one method call another?"
                )
        return None

    def module_called(self) -> Finding | None:
        """A module that stands where a function of it is meant."""
        called = {getattr(n.func, "id", "") for n in self.nodes(ast.Call)}
        for name, module in _globals_of(self.answer, ModuleType):
            if name not in called:
                continue
            home = safe_text(getattr(module, "__name__", name), str)
            own = [n for n, f in vars(module).items() if getattr(f, "__module__", "") == home]
            like = " and ".join(f"`{n}`" for n in own if name in n and n[0] != "_")
            does = (
                f"`{name}` is the module `{home}` here, a file of functions, and cannot be called."
            )
            does += f" It holds {like}." if like else ""
            return Finding("error:module_called", does, "Which function did you mean to call?")
        return None

    def a_stub_is_called(self) -> Finding | None:
        for name, value in _globals_of(self.answer, FunctionType):
            if _returns_nothing(value.__code__):
                return Finding(
                    "calls_a_stub",
                    f"`{name}` returns nothing yet: it is still a stub, and your code calls it.",
                    f"Which exercise, or which cell, is `{name}` written in?",
                )
        return None


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _of_a_library(function: Any) -> bool:
    home = safe_text(getattr(function, "__module__", ""), str)
    return home.split(".")[0] in ("mha_lesson", "torch")


def _returns_nothing(code: CodeType) -> bool:
    """Whether a function does nothing but return None, as a stub does."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("RESUME", "NOP")]
    return len(instructions) <= 2 and all(
        i.opname.startswith("RETURN") or (i.opname == "LOAD_CONST" and i.argval is None)
        for i in instructions
    )


def _is_constant(name: str, value: Any) -> bool:
    """EPS, or BASE: a number of the learner's own, and no size."""
    is_size = isinstance(value, int) and 0 < value < 1000
    return len(name) > 1 and name.isupper() and isinstance(value, (int, float)) and not is_size


def _globals_of(answer: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    """The global names of such things that the learner's code reads, and what they stand for."""
    functions = [answer] if isinstance(answer, FunctionType) else []
    if isinstance(answer, type):
        functions = [f for f in vars(answer).values() if isinstance(f, FunctionType)]
    for function in functions:
        held = {n: x for n, x in function.__globals__.items() if isinstance(x, kind)}
        yield from ((name, held[name]) for name in _names(function.__code__, held))


def _names(code: CodeType, held: Mapping[str, Any]) -> Iterator[str]:
    if not held.keys().isdisjoint(code.co_names):
        for i in dis.get_instructions(code):
            if i.opname in ("LOAD_GLOBAL", "LOAD_NAME") and i.argval in held:
                yield i.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant, held)
