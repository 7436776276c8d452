"""A net for tricks: what in an answer leads from arithmetic to files, to the checks, into PyTorch.

Imported names are looked up, so `T = torch.Tensor` is known for what it is. A module or a class of
somebody else's may be used where it stands (called, asked for an attribute, named as a type), and
not handed on: what it is handed to could change it. `changed` is the second net: what PyTorch and
the checks are made of, compared before and after.
"""

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

MODULES = {
    "torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.parameter",
    "torch.linalg", "torch.special", "torch.fft", "torch.cuda", "math", "cmath", "numpy",
    "numpy.linalg", "numpy.random", "einops", "functools", "itertools", "collections",
    "collections.abc", "typing", "dataclasses", "jaxtyping", "fractions", "numbers", "random",
    "statistics", "__future__", "mha_lesson", "mha_lesson.attention", "mha_lesson.masks",
    "mha_lesson.decoding", "mha_lesson.models", "mha_lesson.tasks", "mha_lesson.text",
    "mha_lesson.training", "mha_lesson.pretrained", "mha_lesson.heads", "mha_lesson.cost",
}  # fmt: skip
ROOTS = {module.split(".")[0] for module in MODULES} | {"builtins"}
# Of these an answer needs no more; `functools.update_wrapper` sets any attribute of anything.
ONLY = {
    "functools": {"partial", "reduce", "cache", "lru_cache"},
    "collections": {"abc", "Counter", "defaultdict", "deque", "namedtuple", "OrderedDict"},
    "dataclasses": {"dataclass", "field"},
    "einops": {"rearrange", "reduce", "repeat", "einsum", "pack", "unpack"},
}
# What leads from arithmetic to files, to other programs, or into the checks themselves: as a name …
NAMES = {"exec", "eval", "compile", "open", "globals", "locals", "vars", "getattr", "setattr",
         "delattr", "breakpoint", "get_ipython", "check", "explore"}  # fmt: skip
# … and behind a dot.
BEHIND = {
    "attrgetter", "methodcaller", "get_type_hints", "get_args", "ForwardRef", "make_dataclass",
    "mro", "obj", "array_type", "register", "os", "sys", "io", "gc", "ctypes", "ctypeslib",
    "inspect", "importlib", "subprocess", "socket", "pickle", "builtins", "signal", "threading",
    "shutil", "warnings", "multiprocessing", "distributed", "serialization", "hub", "jit", "fx",
    "package", "ops", "library", "overrides", "compiler", "compile", "testing", "f2py", "lib",
    "utils", "load", "save", "savez", "savez_compressed", "dump", "loadtxt", "savetxt",
    "genfromtxt", "fromregex", "fromfile", "tofile", "from_file", "memmap",
    "load_library", "check", "course", "explore", "journal",
    "DataSource", "PyTorchFileWriter", "DisableTorchFunction", "DisableTorchFunctionSubclass",
}  # fmt: skip
SWITCHES = re.compile(r"(?:set|use|register)_")  # of a module: they hold for everybody
DUNDERS = {"__init__", "__call__", "__repr__", "__len__", "__getitem__", "__iter__", "__name__",
           "__doc__", "__post_init__"}  # fmt: skip
FRAMES = re.compile(r"(?:f|tb|gi|cr|ag|co|func)_[a-z]+$")
SETTABLE = {"weight", "bias", "data", "grad", "requires_grad", "training"}
WATCHED = {
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.linalg",
    "builtins",
    "math",
    "inspect",
}
BASES = {"object", "Exception", "ValueError", "TypeError"}
GENERIC = {"list", "tuple", "dict", "set", "frozenset", "type"}
Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MADE = (ast.Call, ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.Set, ast.Lambda)
Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
HEAP = 1 << 9  # of a class: Python lets its attributes be set
VALUE, BASE, CALLED, TYPE = "value", "base", "called", "type"  # where an expression stands
_NOTHING = object()


def objections(statements: list[ast.stmt], given: Iterable[ast.stmt] = ()) -> Iterator[str]:
    """What in the statements an answer does not need; `given` are the course's own beside them."""
    known = _bindings([*_of_scope([*given, *statements])], {})
    every = [node for statement in statements for node in ast.walk(statement)]
    bound = set(_bound(every))
    classes = {node.name for node in every if isinstance(node, ast.ClassDef)}
    for node in statements:
        if isinstance(node, Defined) and _is_ours(known.get(node.name)):
            del known[node.name]  # the learner's own instead of the package's
    own = _made(every) - known.keys()
    scope = _Scope(known, own, frozenset(), bound, classes)
    for node in statements:
        yield from _look(node, scope, VALUE)


@dataclass(frozen=True)
class _Scope:
    """Names where the net looks.

    Attributes:
        known: what comes from an import, looked up.
        own: of the learner's making: their attributes may be set.
        selves: the first argument of a method.
        bound: every name that is bound anywhere, so no longer Python's own.
        classes: the learner's classes.
    """

    known: dict[str, Any]
    own: set[str]
    selves: frozenset[str]
    bound: set[str]
    classes: set[str]

    def find(self, node: ast.AST) -> Any:
        return _find(node, self.known)

    def without(self, names: set[str]) -> "_Scope":
        known = {name: x for name, x in self.known.items() if name not in names}
        return replace(self, known=known, own=self.own - names, selves=self.selves - names)


def _find(node: ast.AST, known: dict[str, Any]) -> Any:
    """The object that a name, or a chain of dots, stands for; `_NOTHING` if it is no import's."""
    if isinstance(node, ast.Name):
        return known.get(node.id, _NOTHING)
    if isinstance(node, ast.Attribute) and not (node.attr[0] == "_" or _is_behind(node.attr)):
        base = _find(node.value, known)
        try:
            return _NOTHING if base is _NOTHING else getattr(base, node.attr, _NOTHING)
        except Exception:  # a module that loads its parts when they are asked for
            return _NOTHING
    return _NOTHING


def _bindings(nodes: list[ast.AST], known: dict[str, Any]) -> dict[str, Any]:
    """The known names with those that these nodes of one scope import or call otherwise."""
    known = dict(known)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                known[alias.asname or name] = _module(name)
        elif isinstance(node, ast.ImportFrom):
            module = _module(node.module or "")
            for alias in node.names:
                names = [alias.name] if alias.name != "*" else _public(module)
                for name in names:
                    known[alias.asname or name] = _member(module, name)
    known = {name: x for name, x in known.items() if x is not _NOTHING}
    aliases = [*_aliases(nodes)]
    for _ in aliases:  # one may be another's alias
        found = {name: x for name, value in aliases if (x := _find(value, known)) is not _NOTHING}
        known |= found
    return known


def _aliases(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Name and value of each `name = value`."""
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((t.id, node.value) for t in targets if isinstance(t, ast.Name))


def _module(name: str) -> Any:
    if name not in MODULES:
        return _NOTHING
    try:
        return importlib.import_module(name)
    except ImportError:
        return _NOTHING


def _public(module: Any) -> list[str]:
    return getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]


def _member(module: Any, name: str) -> Any:
    if module is _NOTHING or name[0] == "_" or _is_behind(name):
        return _NOTHING
    return getattr(module, name, _module(f"{module.__name__}.{name}"))


def _of_scope(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and what lies in them, in the order of the source, but for what lies in functions
    and classes within.
    """
    left = [*reversed(nodes)]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*Function, ast.ClassDef)):
            left += reversed([*ast.iter_child_nodes(node)])


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif not isinstance(node, (ast.expr, ast.expr_context)):
            yield from (x for part in ("name", "asname", "rest") if (x := getattr(node, part, "")))


def _made(every: list[ast.AST]) -> set[str]:
    """Names that nothing but definitions, calls and literals are ever called by."""
    stored = Counter(
        n.id for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    values = [*_aliases(every)]
    called = Counter(name for name, _ in values)
    other = {name for name, value in values if not isinstance(value, MADE)}
    defined = {node.name for node in every if isinstance(node, Defined)}
    once = {name for name in defined | called.keys() if stored[name] == called[name]}
    return once - other


def _is_strange(found: Any) -> bool:
    """A function or class that a module of the list has from another one: a `Path`, say."""
    owner = str(getattr(found, "__module__", None) or "builtins").lstrip("_")
    if owner.startswith("mha_lesson"):
        return owner not in MODULES | {"mha_lesson.runtime"}
    if owner in ONLY:
        return getattr(found, "__name__", "") not in ONLY[owner]
    return owner.split(".")[0] not in ROOTS


def _is_ours(found: Any) -> bool:
    return getattr(found, "__module__", "").startswith("mha_lesson")


# --- looking ------------------------------------------------------------------------------------


def _look(node: ast.AST, scope: _Scope, place: str) -> Iterator[str]:
    """Objections to a node and what lies in it; `place` is how its value is used."""
    yield from _identifiers(node)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _imports(node)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and "__" in node.value:
            yield "holds a name between double underscores"
    elif isinstance(node, (ast.Name, ast.Attribute)):
        yield from _look_at_name(node, scope, place)
    elif isinstance(node, Function):
        yield from _look_at_function(node, scope, method=False)
    elif isinstance(node, ast.ClassDef):
        yield from _look_at_class(node, scope)
    elif isinstance(node, Comprehension):
        inner = scope.without(set(_bound(n for g in node.generators for n in ast.walk(g.target))))
        first = node.generators[0].iter  # which Python reads outside
        yield from _look(first, scope, VALUE)
        for each in node.generators:
            for part in [each.target, *each.ifs, *([each.iter] if each.iter is not first else [])]:
                yield from _look(part, inner, VALUE)
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in made:
            yield from _look(part, inner, VALUE)
    else:
        stored = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if stored and scope.find(getattr(node, "value", node)) is not _NOTHING:
            yield f"changes {ast.unparse(node)}"
        for child, where in _children(node, scope, place):
            yield from _look(child, scope, where)


def _children(node: ast.AST, scope: _Scope, place: str) -> Iterator[tuple[ast.AST, str]]:
    """What lies in a node, and how it is used there."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, _place(node, field, scope, place)


def _place(node: ast.AST, field: str, scope: _Scope, place: str) -> str:
    match node, field:
        case ast.Call(func=ast.Name(id="type")), "func":
            return CALLED if place == TYPE else VALUE
        case ast.Call(), "func":
            return CALLED
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass" as name)), "args":
            return VALUE if name in scope.bound else TYPE
        case (ast.arg() | ast.AnnAssign(), "annotation") | (ast.MatchClass(), "cls"):
            return TYPE
        case (ast.Compare(), _) | (ast.ExceptHandler(), "type"):
            return TYPE
        case ((ast.Assign() | ast.AnnAssign()), "value"):
            names = [name for name, _ in _aliases([node])]
            plain = len(names) == len(getattr(node, "targets", [0]))
            return BASE if plain and all(name in scope.known for name in names) else VALUE
        case ast.Subscript(), "value":
            return BASE
        case ast.Subscript(), "slice":
            root = node.value
            python = isinstance(root, ast.Name) and root.id in GENERIC - scope.bound
            return TYPE if python or scope.find(root) is not _NOTHING else VALUE
        case ((ast.BinOp() | ast.Tuple() | ast.List() | ast.Starred()), _):
            return place if place == TYPE else VALUE
    return VALUE


def _look_at_name(node: ast.Name | ast.Attribute, scope: _Scope, place: str) -> Iterator[str]:
    found = scope.find(node)
    if isinstance(node, ast.Name):
        unfit = node.id in NAMES or (node.id == "type" and place != CALLED)
        if unfit or (_is_dunder(node.id) and node.id not in DUNDERS):
            yield f"uses {ast.unparse(node)}"
    else:
        root = node.value
        own = isinstance(root, ast.Name) and root.id in scope.selves
        private = node.attr.startswith("__" if own else "_") and node.attr not in DUNDERS
        base = scope.find(root)
        only = ONLY.get(getattr(base, "__name__", "")) if isinstance(base, ModuleType) else None
        switch = isinstance(base, ModuleType) and SWITCHES.match(node.attr)
        behind = not own and _is_behind(node.attr)
        if private or behind or switch or (only and node.attr not in only):
            yield f"uses {ast.unparse(node)}"
        if not isinstance(node.ctx, ast.Load) and not _may_be_set(node, scope):
            yield f"changes {ast.unparse(node)}"
        yield from _look(root, scope, TYPE if node.attr == "__name__" else BASE)
    if isinstance(found, ModuleType) and (found.__name__ not in MODULES or place != BASE):
        yield f"hands on {ast.unparse(node)}"
    elif _is_strange(found):
        yield f"uses {ast.unparse(node)}"
    settable = isinstance(found, type) and found.__flags__ & HEAP
    if (settable and place == VALUE) or isinstance(found, (dict, list, set)):
        yield f"hands on {ast.unparse(node)}"


def _may_be_set(node: ast.Attribute, scope: _Scope) -> bool:
    """A part of `self`, of something of the learner's own, or a weight."""
    if scope.find(node.value) is not _NOTHING or isinstance(node.value, ast.Call):
        return False
    if isinstance(node.value, ast.Name) and node.value.id in scope.own | scope.selves:
        return True
    return node.attr in SETTABLE


def _look_at_function(node: Any, scope: _Scope, method: bool) -> Iterator[str]:
    """Its decorators, defaults and types are read outside, its body within."""
    arguments = node.args
    outside = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += filter(None, [arguments.vararg, arguments.kwarg])
    for part in outside:
        yield from _look(part, scope, VALUE)
    for part in getattr(node, "decorator_list", []):
        yield from _look(part, scope, VALUE if isinstance(part, ast.Call) else TYPE)
    for argument in every:
        yield from _look(argument, scope, VALUE)
    if getattr(node, "returns", None):
        yield from _look(node.returns, scope, TYPE)
    body = node.body if isinstance(node.body, list) else [node.body]
    lies_in = [*_of_scope(body)]
    loops = [n for x in lies_in if isinstance(x, Comprehension) for n in ast.walk(x)]
    outer = {n for x in lies_in if isinstance(x, (ast.Global, ast.Nonlocal)) for n in x.names}
    inside = {id(n) for n in loops}
    local = set(_bound([*every, *(x for x in lies_in if id(x) not in inside)]))
    within = scope.without(local - outer)
    within = replace(within, known=_bindings(lies_in, within.known))
    if method and every:
        within = replace(within, selves=within.selves | {every[0].arg} - within.known.keys())
    if outer & within.known.keys():
        yield f"makes {', '.join(sorted(outer & within.known.keys()))} global"
    for part in body if not _docstring(node) else body[1:]:
        yield from _look(part, within, VALUE)


def _look_at_class(node: ast.ClassDef, scope: _Scope) -> Iterator[str]:
    if node.keywords:
        yield f"defines {node.name} with {ast.unparse(node.keywords[0].value)}"
    for base in node.bases:
        found = scope.find(base)
        name = base.id if isinstance(base, ast.Name) else ""
        module = isinstance(found, type) and issubclass(found, nn.Module)
        python = name in BASES - scope.bound or found is NamedTuple
        if not (module or python or (found is _NOTHING and name in scope.classes)):
            yield f"is a kind of {ast.unparse(base)}"
    for decorator in node.decorator_list:
        yield from _look(decorator, scope, VALUE if isinstance(decorator, ast.Call) else TYPE)
    known = _bindings([*_of_scope(node.body)], scope.known)
    for part in node.body if not _docstring(node) else node.body[1:]:
        if any(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in _of_scope([part])):
            yield f"imports within {node.name}"
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _identifiers(part)
            static = any(getattr(d, "id", "") == "staticmethod" for d in part.decorator_list)
            yield from _look_at_function(part, scope, method=not static)
        else:
            yield from _look(part, replace(scope, known=known), VALUE)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Names that are no expression: of a definition, an argument, a pattern, `as` something."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        return
    for _, value in ast.iter_fields(node):
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and _is_dunder(name) and name not in DUNDERS:
                yield f"defines {name}"
    for name in getattr(node, "kwd_attrs", []):
        if name.startswith("_") or _is_behind(name):
            yield f"matches {name}"


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or "."]
    yield from (f"imports {module}" for module in modules if module not in MODULES)
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:  # the course's own line imports `check`, which no answer may use
            name, module = alias.name, node.module or ""
            plain = name in ("check", "explore") and alias.asname is None
            found = _member(_module(module), name) if name != "*" else None
            foreign = isinstance(found, ModuleType) and found.__name__ not in MODULES
            foreign = foreign or (found is not _NOTHING and not plain and _is_strange(found))
            unfit = name in NAMES or name.startswith("_") or _is_behind(name) or foreign
            unfit = unfit or bool(SWITCHES.match(name)) or name not in ONLY.get(module, {name})
            if unfit and not plain:
                yield f"imports {name}"


def _is_behind(name: str) -> bool:
    return name in BEHIND or bool(FRAMES.match(name)) or (_is_dunder(name) and name not in DUNDERS)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _docstring(node: Any) -> bool:
    first = node.body[0] if isinstance(node.body, list) else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)


# --- the second net -----------------------------------------------------------------------------


def made_of() -> dict[str, dict[str, Any]]:
    """The parts of PyTorch's and the checks' modules and classes: owner -> name -> part."""
    owners: dict[str, Any] = {"torch.Tensor": vars(torch.Tensor), "nn.Module": vars(nn.Module)}
    for name, module in [*sys.modules.items()]:
        if name in WATCHED or name.split(".")[0] == "mha_lesson":
            owners[name] = vars(module)
            classes = [x for x in vars(module).values() if isinstance(x, type)]
            owners |= {f"{name}.{c.__name__}": vars(c) for c in classes if c.__module__ == name}
    return {owner: dict(parts) for owner, parts in owners.items()}


def changed(before: dict[str, dict[str, Any]]) -> str:
    """The first part that is another one than before; empty if none is."""
    after = made_of()
    for owner, old in before.items():
        new = after.get(owner, {})
        for name in old.keys() | new.keys():
            if not _same(old.get(name), new.get(name)):
                return f"{owner}.{name}"
    return ""


def _same(old: Any, new: Any) -> bool:
    """The same, or PyTorch's own wrapper of it: some it puts on when a part is first asked for."""
    if old is new:
        return True
    old, new = (None if isinstance(x, ModuleType) else x for x in (old, new))
    if old is new:
        return True  # a module is imported when it is first asked for
    theirs = getattr(new, "__module__", None) or ""
    named = getattr(old, "__name__", 0) == getattr(new, "__name__", 1)
    return named and theirs.startswith("torch")
