"""Make mha_course/pages/model/kernel.wasm of kernel.wat anew, with wabt from npm.

python tools/kernel.py
"""

import subprocess
import sys
from pathlib import Path

from from_npm import BUILD, fetch

WABT = "wabt@1.0.39"
SOURCE = BUILD.parent / "mha_course" / "pages" / "model" / "kernel.wat"


def assemble(target: Path) -> None:
    """Writes what wabt makes of the source: the same bytes on every machine."""
    subprocess.run([fetch(WABT) / ".bin/wat2wasm", SOURCE, "-o", target], check=True)


if __name__ == "__main__":
    assemble(Path(*sys.argv[1:2]) if sys.argv[1:] else SOURCE.with_suffix(".wasm"))
