"""The package's scripts under oxlint: undefined and unused names, and what is surely wrong.

    python tools/lint_js.py

Scripts of one folder are one module in the browser, so they are joined first. npm fetches oxlint,
once. Without npm (part of Node.js) or a network nothing is looked at, and a line says so; on
GitHub's runners that is an error.
"""

import os
import subprocess
import sys
from pathlib import Path

from from_npm import BUILD, fetch

OXLINT = "oxlint@1.94.0"
RULES = Path(__file__).with_name("oxlint.json")
PACKAGE = Path(__file__).resolve().parents[1] / "mha_course"


def lint(*scripts: Path) -> subprocess.CompletedProcess[str]:
    """Its return code is 0 where nothing was found, and its output says what was."""
    command = [fetch(OXLINT) / ".bin/oxlint", "-c", RULES, "--deny-warnings", *scripts]
    return subprocess.run(command, text=True, stdout=subprocess.PIPE)


def joined(folder: Path) -> Path:
    """The scripts of a folder as one, in build/js."""
    parts = [f"// {p}\n{p.read_text(encoding='utf-8')}" for p in sorted(folder.glob("*.js"))]
    whole = BUILD / "js" / f"{folder.name}.js"
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text("\n".join(parts), encoding="utf-8")
    return whole


if __name__ == "__main__":
    folders = sorted({path.parent for path in PACKAGE.rglob("*.js")})
    try:
        found = lint(*map(joined, folders))
    except (SystemExit, subprocess.CalledProcessError) as error:
        print(f"The package's scripts were not looked at: {error}")
        sys.exit("GITHUB_ACTIONS" in os.environ)
    print(found.stdout, end="")
    sys.exit(found.returncode)
