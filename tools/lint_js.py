"""The package's scripts under oxlint: undefined and unused names, and what is surely wrong.

    python tools/lint_js.py [PLACE ...]

npm fetches it, once. Without npm (part of Node.js) or a network nothing is looked at, and a line
says so; in CI that is an error.
"""

import os
import subprocess
import sys
from pathlib import Path

from from_npm import fetch

OXLINT = "oxlint@1.94.0"
HERE = Path(__file__).resolve().parent


def lint(*places: str) -> subprocess.CompletedProcess[str]:
    """Its return code is 0 where nothing was found, and its output says what was."""
    command = [fetch(OXLINT) / ".bin/oxlint", "-c", HERE / "oxlint.json", "--deny-warnings"]
    return subprocess.run([*command, *places], text=True, stdout=subprocess.PIPE)


if __name__ == "__main__":
    try:
        found = lint(*(sys.argv[1:] or [str(HERE.parent / "mha_lesson")]))
    except (SystemExit, subprocess.CalledProcessError) as error:
        print(f"The package's scripts were not looked at: {error}")
        sys.exit("CI" in os.environ)
    print(found.stdout, end="")
    sys.exit(found.returncode)
