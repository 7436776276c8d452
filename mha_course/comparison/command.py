"""`compare` from the command line, for CI: is the class that a factory makes right?"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import nn

from mha_course.comparison.compare import compare

RIGHT, WRONG, UNKNOWN = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Compares, prints the result, and returns the exit status.

    Returns:
        0 for right, 1 for any other result, 2 where nothing could be compared: not found,
        refused, or a wrong option (argparse exits with 2 itself).
    """
    parser = argparse.ArgumentParser(prog="mha-lesson compare", description=__doc__)
    add = parser.add_argument
    add("module", help="package.module:factory or folder/file.py:factory; it makes an nn.Module")
    add("--call", help="the same for call(module, x), which gives the output")
    add("--causal", choices=("yes", "no"), help="what it must be, called like this")
    add("--true-means", choices=("blocked", "keep"), help="what True must mean in its masks")
    add("--layers", metavar="w_q=NAME,…", help="where w_q, w_k, w_v (or w_qkv) and w_o are")
    add("--ignore", default="", metavar="NAME,…", help="what is meant")
    add("--n-heads", type=int, help="h, where the module does not say it")
    given = vars(parser.parse_args(argv))
    try:
        module, call = load(given.pop("module")), given.pop("call")
        given["causal"] = {"yes": True, "no": False}.get(given["causal"])
        given["layers"] = _layers(given["layers"]) if given["layers"] else None
        given["ignore"] = [name for name in given["ignore"].split(",") if name]
        module = module if isinstance(module, nn.Module) else module()
        comparison = compare(module, call and load(call), **given)
    except Exception as error:  # also of the file, or of the factory
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return UNKNOWN
    folded = [comparison.words, "::group::What was tried", *comparison.tried, "::endgroup::"]
    print("\n".join(folded) if "GITHUB_ACTIONS" in os.environ else comparison)
    return RIGHT if comparison.found == "right" else WRONG


def load(target: str) -> Any:
    """What "package.module:name" or "file.py:name" names; puts its folder on the path."""
    where, _, name = target.rpartition(":")
    if not where:
        raise ValueError(f"a target must be package.module:name or file.py:name; got {target!r}.")
    folder = Path()
    if where.endswith(".py"):
        folder, where = Path(where).parent, Path(where).stem
    sys.path.insert(0, str(folder.resolve()))
    return attrgetter(name)(importlib.import_module(where))


def _layers(text: str) -> dict[str, list[str]]:
    """Of "w_q=a.query,w_k=a.key"; the layers of single heads are parted by +."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and layers for name, _, layers in pairs):
        raise ValueError(f"--layers must be w_q=NAME,w_k=NAME,…; got {text!r}.")
    return {name.strip(): layers.strip().split("+") for name, _, layers in pairs}
