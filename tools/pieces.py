"""Tests, notebooks and benches in pieces, which are green or red each by itself.

    python tools/pieces.py processors                 as other processors compute them
    python tools/pieces.py processors avx2-tests      one of these pieces
    python tools/pieces.py gpu tests bench-speed      two of those that want a GPU

`make test-processors` and `make test-gpu` call this.

processors: The libraries below PyTorch choose their code by the processor, and can be made to take
that of a weaker one. Another order of sums moves the last digits, on which no stored output may
depend. `make checks` and `make test-again` run on this processor as it is, with one thread and two.

gpu: Each piece ends within ten minutes, with a row for a table of results. An error where there is
no GPU.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import torch

import mha_lesson

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "-q"]
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg"]

KINDS = "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"
PLAINEST = dict(zip(KINDS, ("default", "SSE4_2", "SSE41"), strict=True))
AVX2 = dict(zip(KINDS, ("avx2", "AVX2", "AVX2"), strict=True))
ONE, TWO = {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}
BOTH_CORES = ["-n", "2", "--dist", "loadfile"]
# Tests of files, pages, processes and refusals, which no processor changes.
SKIPPED = """
    browser test_annotations test_classroom test_contrast test_data test_export test_fuzz
    test_handout test_house test_lab test_notebooks test_nothing_lost test_progress
    test_refusals test_selfcheck test_setup test_states test_website
"""
TESTS = [*PYTEST, *BOTH_CORES, *(f"--ignore-glob=*/{name}*" for name in SKIPPED.split()), "tests"]
NOTEBOOKS = [*PYTEST, *NBVAL, "--nbval-cell-timeout=3600", *BOTH_CORES, "notebooks"]
PROCESSORS = {
    "plainest-tests": (TESTS, PLAINEST | ONE),
    "plainest-notebooks": (NOTEBOOKS, PLAINEST | ONE),
    "avx2-tests": (TESTS, AVX2 | ONE),
    "avx2-notebooks": (NOTEBOOKS, AVX2 | ONE),
    "two-threads-tests": (TESTS, TWO),
}

LIMIT = 600  # seconds of a piece on a GPU
BENCH = ["tools/bench.py", "--device", "cuda", "--only"]
BOOKS = sorted(map(str, ROOT.glob("notebooks/*.ipynb")))
IN_TIME = [*PYTEST, *NBVAL, f"--nbval-cell-timeout={LIMIT}"]
GPU = {
    "tests": ([*PYTEST, "--ignore=tests/browser", "--device", "cuda", "tests"], {}),
    "notebooks-00-06": ([*IN_TIME, *BOOKS[:7]], {}),
    "notebook-07": ([*IN_TIME, BOOKS[7]], {}),
    "notebooks-08-13": ([*IN_TIME, *BOOKS[8:]], {}),
    **{f"bench-{one}": ([*BENCH, one], {}) for one in ("speed", "decoding", "memory")},
}


def run(command: list[str], settings: dict[str, str], limit: float) -> tuple[bool, str]:
    """Whether it passes, and its last line; all its output is printed at once."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    alarm, last = Timer(limit, process.kill), ""
    alarm.start()
    for last in process.stdout or ():
        print(last, end="", flush=True)
    alarm.cancel()
    return process.wait() == 0, last.strip()


def main(kind: str, *wanted: str) -> None:
    pieces, limit = {"processors": (PROCESSORS, 10**6), "gpu": (GPU, LIMIT)}[kind]
    if unknown := {*wanted} - {*pieces}:
        raise SystemExit(f"There is no piece {', '.join(unknown)}; there are {', '.join(pieces)}.")
    if kind == "gpu" and mha_lesson.device.type != "cuda":
        raise SystemExit(
            "Nothing was tested on a GPU: there is none, or this PyTorch is built without CUDA or "
            f"without kernels for it, or MHA_LESSON_DEVICE chose {mha_lesson.device.type}."
        )
    failed = []
    for piece in wanted or pieces:
        start = time.monotonic()
        passed, last = run(*pieces[piece], limit)
        verdict, seconds = "passed" if passed else "FAILED", round(time.monotonic() - start)
        print(f"{piece}: {verdict}, {seconds} s", flush=True)
        failed += [] if passed else [piece]
        if kind == "gpu":
            outcome = f"{verdict}: {last}" if " passed" in last or " failed" in last else verdict
            where = f"{torch.cuda.get_device_name()} | {torch.__version__}"
            print(f"| {piece} | {where} | {outcome} | {seconds} |", flush=True)
    raise SystemExit(f"Failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
