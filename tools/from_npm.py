"""What comes from npm: fetched once, then kept in the build folder."""

import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

BUILD = Path(__file__).resolve().parents[1] / "build"
# After 1 and 3 s, not after 10 and 60: without a network nobody waits long.
RETRIES = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000")


def fetch(package: str) -> Path:
    """The `node_modules` with a package, `name@version`, and what it needs."""
    folder = BUILD / "npm" / package
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):  # `make test` looks at scripts beside the tests
        if not (folder / "node_modules/.package-lock.json").exists():  # written last
            if (npm := shutil.which("npm")) is None:
                raise SystemExit(f"{package} needs npm (part of Node.js), once, to fetch it.")
            command = [npm, "install", "--silent", *RETRIES, "--prefix", str(folder), package]
            subprocess.run(command, check=True)
    return folder / "node_modules"
