"""Tests and notebooks as other processors compute them (`make test-processors`).

    python tools/on_processors.py              every setting
    python tools/on_processors.py plainest     one of them

The libraries below PyTorch choose their code by what the processor can do; they can be told that it
can do less. Another order of sums moves the last digits, and no stored output may hang on those.
Every setting runs the notebooks and the tests of the core; the plainest runs all tests.
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
    "avx2, two threads": AVX2 | TWO,
    "this one": ONE,
    "this one, two threads": TWO,
}
NBVAL = [
    "--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg",
    "--nbval-cell-timeout=3600", "-n", "2", "--dist", "loadfile", "notebooks",
]  # fmt: skip
CORE = [
    f"tests/test_{name}.py"
    for name in ("attention", "masks", "refusals", "decoding", "models", "tasks", "heads")
]
ALL = ["-n", "2", "--dist", "loadfile", "--ignore=tests/browser", "tests"]


def runs(setting: str) -> dict[str, list[str]]:
    tests = {"tests": ALL} if setting == "plainest" else {"core": CORE}
    return {**tests, "notebooks": NBVAL}


def main() -> None:
    wanted, failed = sys.argv[1:] or list(SETTINGS), []
    for name in wanted:
        if name not in SETTINGS:
            raise SystemExit(f"There is no setting {name!r}; there are {', '.join(SETTINGS)}.")
        for run, arguments in runs(name).items():
            start = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-q", *arguments]
            code = subprocess.run(command, cwd=ROOT, env=os.environ | SETTINGS[name]).returncode
            verdict = "green" if code == 0 else "RED"
            print(f"{name}, {run}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
            failed += [f"{name}, {run}"] if code else []
    raise SystemExit(f"Red: {'; '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
