"""Make mha_course/pages/model/kernel.wasm of kernel.ts anew, with AssemblyScript from npm.

python tools/kernel.py
"""

import subprocess
import sys
from pathlib import Path

from from_npm import BUILD, fetch

COMPILER = "assemblyscript@0.28.20"
SOURCE = BUILD.parent / "mha_course" / "pages" / "model" / "kernel.ts"
OPTIONS = "-O3 --converge --enable simd --runtime stub --importMemory --noExportMemory --noAssert"


def compile_to(target: Path) -> None:
    """Writes what AssemblyScript makes of the source: the same bytes on every machine."""
    command = [fetch(COMPILER) / ".bin/asc", SOURCE.name, *OPTIONS.split(), "-o", target.resolve()]
    subprocess.run(command, cwd=SOURCE.parent, check=True)


if __name__ == "__main__":
    compile_to(Path(*sys.argv[1:2]) if sys.argv[1:] else SOURCE.with_suffix(".wasm"))
