"""The package's scripts under oxlint: undefined and unused names, and what is surely wrong.

    python tools/lint_js.py

npm fetches oxlint, once. Without npm (part of Node.js) or a network nothing is looked at, and a
line says so; on GitHub's runners that is an error.
"""

import os
import subprocess
import sys
from pathlib import Path

from from_npm import fetch

OXLINT = "oxlint@1.94.0"
RULES = Path(__file__).with_name("oxlint.json")
PACKAGE = Path(__file__).resolve().parents[1] / "mha_course"

if __name__ == "__main__":
    try:
        oxlint = fetch(OXLINT) / ".bin/oxlint"
    except (SystemExit, subprocess.CalledProcessError) as error:
        print(f"The package's scripts were not looked at: {error}")
        sys.exit("GITHUB_ACTIONS" in os.environ)
    # What is written for another compiler is not looked at.
    command = [oxlint, "-c", RULES, "--deny-warnings", "--ignore-pattern", "kernel.ts", PACKAGE]
    sys.exit(subprocess.run(command).returncode)
