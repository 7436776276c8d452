"""Public functions name their axes, and only pytest checks them."""

import inspect

import pytest
from torch import Tensor

import new_process
from mha_lesson import attention, masks


def public_functions(module):
    """Functions, and methods of classes, that a module defines under a public name."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield from (m for n, m in vars(value).items() if inspect.isfunction(m) and n[0] != "_")
        elif inspect.isfunction(value):
            yield value


def annotations(function):
    """(parameter or "return", annotation) of everything that should have one."""
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        if name != "self":
            yield name, parameter.annotation
    yield "return", signature.return_annotation


def parts(annotation):
    """The members of a union or tuple annotation, however deep."""
    inner = getattr(annotation, "__args__", ())
    return [part for a in inner for part in parts(a)] if inner else [annotation]


@pytest.mark.parametrize("module", [attention, masks], ids=lambda m: m.__name__)
def test_every_public_function_is_annotated_and_tensors_name_their_axes(module):
    for function in public_functions(module):
        for name, annotation in annotations(function):
            where = f"{function.__qualname__}, {name}"
            assert annotation is not inspect.Parameter.empty, f"{where}: no annotation"
            assert Tensor not in parts(annotation), f"{where}: a bare Tensor names no axis"


def test_a_plain_import_brings_no_checker_and_no_pictures(shared_folder):
    new = new_process.after(shared_folder, "import mha_lesson")
    heavy = {"beartype", "typeguard", "matplotlib", "ipywidgets", "anywidget", "IPython"}
    assert heavy & {*new["loaded"]} == set() and not new["checked"]
    assert new["frozen"] == 0  # nor does it freeze what is the caller's
