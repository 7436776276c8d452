"""Open the course in JupyterLab on a working copy that updates never overwrite.

`mha-lesson lab`, which is `make lab` in a clone, copies the notebooks to `my_notebooks/` of the
folder that it is called in, where learners work: `copies.py` only ever adds to it or renews what
nobody touched.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from mha_course.base.disk import HERE, IN_WHEEL, NOTEBOOKS
from mha_course.lab.copies import FIRST, MINE, sync, trust, working_copy

SETTINGS = HERE / "lab/jupyter"  # how the lab opens, and how it saves


def options(copies: Path, extra: Sequence[str] = ()) -> list[str]:
    """JupyterLab's options: this machine only, a random token, and what root or Linux needs.

    One of `extra` replaces ours of the same name: JupyterLab refuses an option twice.
    """
    ours = {
        "ip": "--ServerApp.ip=127.0.0.1",
        "root_dir": f"--ServerApp.root_dir={copies.parent}",
        "default_url": f"--LabApp.default_url=/lab/tree/{quote(copies.name)}/{FIRST}",
    }
    # --ip, --ip=0.0.0.0 and --ServerApp.ip=0.0.0.0 all set ip
    named = {option.split("=")[0].split(".")[-1].lstrip("-") for option in extra}
    chosen = [option for name, option in ours.items() if name not in named]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print("You are root, as is usual in a container: JupyterLab is started with --allow-root;")
        where = "where you said" if "ip" in named else "on this machine only (127.0.0.1)"
        print(f"it still listens {where} and asks for its token.")
        chosen.append("--allow-root")
    if sys.platform == "linux" and not (os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}):
        chosen.append("--no-browser")
    return [*chosen, *extra]


def environment() -> dict[str, str]:
    """The environment, with the course's Jupyter settings and the clone before all others.

    Kernels find the package in the clone itself: before 3.13, Python on Windows cannot follow an
    editable installation into a folder whose path has letters beyond ASCII.
    """
    first = {"JUPYTER_CONFIG_PATH": SETTINGS} | ({} if IN_WHEEL else {"PYTHONPATH": HERE.parent})
    return os.environ | {
        name: os.pathsep.join([str(path), *filter(None, [os.environ.get(name)])])
        for name, path in first.items()
    }


def other_torch() -> str:
    """A sentence where PYTHONPATH brings another torch than this environment's."""
    own = Path(sysconfig.get_path("platlib")) / "torch"
    for folder in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if own.is_dir() and (there := Path(folder) / "torch").is_dir() and there.resolve() != own:
            return f"PYTHONPATH brings another torch, {there}: if a notebook fails, unset it."
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mha-lesson lab",
        allow_abbrev=False,
        description=f"Open the course in JupyterLab, on copies of its notebooks in ./{MINE}. What "
        "you change there is never overwritten: a new version is put beside it.",
        epilog="All other options go to JupyterLab, as --port=9000, --no-browser or --ip=0.0.0.0.",
    )
    _, extra = parser.parse_known_args(arguments)
    if find_spec("jupyterlab") is None:
        raise SystemExit("JupyterLab is not installed; get it with: pip install 'mha-lesson[lab]'")
    copies = working_copy()
    try:
        lines = sync(NOTEBOOKS, copies, date.today())
    except OSError as error:
        if not any(copies.glob("*.ipynb")):
            raise SystemExit(
                f"{copies} cannot be written ({error.strerror}): the lab opens on copies that you "
                "work in. Go to a folder of your own, and start it there."
            ) from None
        lines = [f"The notebooks in {copies} could not all be updated ({error}); yours are safe."]
    trust(NOTEBOOKS / FIRST)
    print(*lines, *filter(None, [other_torch()]), sep="\n")
    command = [sys.executable, "-m", "jupyterlab", *options(copies, extra)]
    sys.stdout.flush()
    return _hand_over(command)


def _hand_over(command: list[str]) -> int:
    if os.name == "posix":
        os.execve(command[0], command, environment())  # hands over signals and memory
    with subprocess.Popen(command, env=environment()) as lab:
        while True:
            with suppress(KeyboardInterrupt):  # JupyterLab hears it too, and asks
                return lab.wait()
