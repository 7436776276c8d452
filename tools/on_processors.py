"""Tests and notebooks as other processors compute them (`make test-processors`).

    python tools/on_processors.py                        every piece
    python tools/on_processors.py plainest-tests         one of them

The libraries below PyTorch choose their code by what the processor can do; they can be told that it
can do less. Another order of sums moves the last digits, and no stored output may hang on those.
A piece is a setting and what runs there: all notebooks, or all tests in which PyTorch computes.
What this processor computes as it is, with one thread and with two, `make checks` and
`make test-again` show.
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
BOTH_CORES = ["-n", "2", "--dist", "loadfile"]
# Of files, pages, windows, processes and refusals: nothing there hangs on the processor.
WITHOUT = (
    "browser", "test_annotations", "test_classroom", "test_contrast", "test_data", "test_export",
    "test_forks", "test_fuzz", "test_handout", "test_house", "test_lab", "test_notebooks",
    "test_nothing_lost", "test_progress", "test_refusals", "test_selfcheck", "test_setup",
    "test_states", "test_website",
)  # fmt: skip
TESTS = [*BOTH_CORES, *(f"--ignore-glob=tests/{name}*" for name in WITHOUT), "tests"]
NOTEBOOKS = [
    "--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg",
    "--nbval-cell-timeout=3600", *BOTH_CORES, "notebooks",
]  # fmt: skip
PIECES = {
    "plainest-tests": (PLAINEST | ONE, TESTS),
    "plainest-notebooks": (PLAINEST | ONE, NOTEBOOKS),
    "avx2-tests": (AVX2 | ONE, TESTS),
    "avx2-notebooks": (AVX2 | ONE, NOTEBOOKS),
    "two-threads-tests": (TWO, TESTS),
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
