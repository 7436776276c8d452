"""What comes from npm: fetched once, then kept in the build folder."""

import shutil
import subprocess
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / "build"


def is_there(package: str) -> bool:
    return (BUILD / "npm" / package / "node_modules/.package-lock.json").exists()  # written last


def fetch(package: str) -> Path:
    """The folder of a package, `name@version`, in which npm has put it and what it needs."""
    folder = BUILD / "npm" / package
    if not is_there(package):
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(f"{package} needs npm (part of Node.js), once, to fetch it.")
        subprocess.run([npm, "install", "--silent", "--prefix", str(folder), package], check=True)
    return folder / "node_modules"
