"""All tests and notebooks as other processors compute them (`make test-processors`).

    python tools/on_processors.py                        every piece
    python tools/on_processors.py plainest-tests         one of them

The libraries below PyTorch choose their code by what the processor can do; they can be told that it
can do less. Another order of sums moves the last digits, and no stored output may hang on those.
A piece is a setting and what runs there: all notebooks, or all tests but the browser's.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLAINEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
ONE, TWO = {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}
SETTINGS = {
    "plainest": PLAINEST | ONE,
    "avx2": AVX2 | ONE,
    "avx2-two-threads": AVX2 | TWO,
    "this-one": ONE,
    "this-one-two-threads": TWO,
}
BOTH_CORES = ["-n", "2", "--dist", "loadfile"]
PARTS = {
    "tests": [*BOTH_CORES, "--ignore=tests/browser", "tests"],
    "notebooks": [
        "--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg",
        "--nbval-cell-timeout=3600", *BOTH_CORES, "notebooks",
    ],
}  # fmt: skip
PIECES = {
    f"{setting}-{part}": (told, arguments)
    for setting, told in SETTINGS.items()
    for part, arguments in PARTS.items()
}


def main() -> None:
    wanted, failed = sys.argv[1:] or list(PIECES), []
    for name in wanted:
        if name not in PIECES:
            raise SystemExit(f"There is no piece {name!r}; there are {', '.join(PIECES)}.")
    for name in wanted:
        told, arguments = PIECES[name]
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        code = subprocess.run(command, cwd=ROOT, env=os.environ | told).returncode
        verdict = "green" if code == 0 else "RED"
        print(f"{name}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
        failed += [name] if code else []
    raise SystemExit(f"Red: {'; '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
