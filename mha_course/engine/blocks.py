"""Reads a block of slips: a function whose statements are ways to do a step, each with its words.

    @attention_scores.step
    def scale(scores, Q, K):
        '''The question that is asked where a slip has none of its own.'''
        root = math.sqrt(Q.shape[-1])
        times_root = scores * root
        "The scores are *multiplied* by √d_k. | Should the scale make them larger or smaller?"
        in_another_way = root * scores
        "= times_root"
        return scores / root

A name with a string below it is a slip: its key, what it gives, and the words, what the code does
and (after a bar) a question. "= key" makes it another way to make that slip, and "right" another
right way. What the block returns is the right way itself, which has no key. A slip that takes
several lines is a function without arguments; one that is made in several ways, with other numbers,
is a generator of them. Names without words (`root`) belong to all below.

The block itself never runs: every slip becomes a function of its own, with the block's arguments,
so that one that raises does not touch the next.
"""

import ast
import copy
import inspect
import linecache
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from types import FunctionType
from typing import Any

from mha_course.engine.report import Finding

RIGHT = "right"
Way = tuple[str, str, str, Callable[..., Any]]  # key, what it does, a question, the function


def ways(block: Any, known: Mapping[str, Finding]) -> Iterator[Way]:
    """The slips of a block; `known` are those that "= key" may mean."""
    function = inspect.unwrap(block)
    node = _source(function)
    shared: list[ast.stmt] = []
    parts: list[tuple[str, str, ast.FunctionDef]] = []
    body = node.body
    *_, default = ["", *map(_text, takewhile(_text, body))]  # the last string above the slips
    default = " ".join(default.split())
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef):
            words, name, each = ast.get_docstring(statement), statement.name, [statement.body[1:]]
        elif isinstance(statement, ast.Assign) and (words := _text(after)):
            name, each = ast.unparse(statement.targets[0]), _each(statement.value, function)
        elif isinstance(statement, ast.Return):
            words, name, each = RIGHT, "", [[statement]]
        elif _text(statement):
            continue
        else:
            shared.append(statement)
            continue
        for own in each:
            clone = ast.copy_location(copy.copy(node), statement)  # with the block's arguments
            clone.name, clone.body, clone.decorator_list = f"way_{len(parts)}", [*shared, *own], []
            parts.append((name, " ".join((words or "").split()), clone))
    tree = ast.fix_missing_locations(ast.Module([clone for *_, clone in parts], []))
    made_of: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, made_of)
    words_of = {key: (finding.does, finding.asks) for key, finding in known.items()}
    for name, words, _ in parts:
        does, _, asks = words.partition(" | ")
        words_of[name] = (does, asks or default)
    for (name, words, _), way in zip(parts, made_of.values(), strict=True):
        key = words.removeprefix("= ")
        if words == RIGHT:
            yield name, "", "", way
        elif words == key:
            yield name, *words_of[name], way
        elif key in words_of:
            yield key, *words_of[key], way
        else:
            raise ValueError(f"{name}: no slip above, or in this block, is called {key}.")


def _each(value: ast.expr, function: FunctionType) -> list[list[ast.stmt]]:
    """What gives the value, or each of a generator's."""
    if not isinstance(value, ast.GeneratorExp):
        return [[ast.Return(value)]]
    [loop] = value.generators
    numbers = map(ast.Constant, eval(ast.unparse(loop.iter), function.__globals__))
    return [[ast.Assign([loop.target], number), ast.Return(value.elt)] for number in numbers]


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else ""
    return ""


_trees: dict[tuple[str, int], ast.Module] = {}  # of a file, read once


def _source(function: FunctionType) -> ast.FunctionDef:
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    key = (code.co_filename, len(lines))
    if key not in _trees:
        _trees[key] = ast.parse("".join(lines))
    for node in ast.walk(_trees[key]):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    raise ValueError(f"{function.__name__}: the source of a block of slips has to be at hand.")
