"""Everything that wants a GPU, in pieces of at most ten minutes (`make test-gpu`).

    python tools/on_gpu.py                       all pieces, one after the other
    python tools/on_gpu.py tests bench-speed     these only

Each piece is kept in build/on_gpu; the table of all of them goes into README.md, between the two
lines that MARKS names. Ends with an error where a piece fails, and where there is no GPU to try.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import mha_lesson

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build/on_gpu"
LIMIT = 600  # seconds of a piece
MARKS = ("<!-- on a GPU: written by make test-gpu -->", "<!-- end -->")
NBVAL = [
    "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "--nbval-sanitize-with",
    "tests/nbval_sanitize.cfg", f"--nbval-cell-timeout={LIMIT}",
]  # fmt: skip
PIECES = {
    "tests": ["-m", "pytest", "-q", "--ignore=tests/browser", "--device", "cuda", "tests"],
    "notebooks-00-06": [*NBVAL, "notebooks/0[0-6]_*.ipynb"],
    "notebook-07": [*NBVAL, "notebooks/07_*.ipynb"],
    "notebooks-08-11": [*NBVAL, "notebooks/0[89]_*.ipynb", "notebooks/1*_*.ipynb"],
    "bench-speed": ["tools/bench.py", "--device", "cuda", "--only", "speed"],
    "bench-decoding": ["tools/bench.py", "--device", "cuda", "--only", "decoding"],
    "bench-memory": ["tools/bench.py", "--device", "cuda", "--only", "memory"],
}


def arguments(piece: str) -> list[str]:
    """The command of a piece; a pattern becomes the files that it stands for."""
    found = []
    for word in PIECES[piece]:
        files = sorted(ROOT.glob(word)) if "*" in word else []
        found += [str(path) for path in files] or [word]
    return found


def run(piece: str) -> bool:
    """One piece; its result is kept."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *arguments(piece)], cwd=ROOT, timeout=LIMIT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        said, passed = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        said = out.decode() if isinstance(out, bytes) else out
        said, passed = f"{said}\nIt took longer than {LIMIT} seconds.", False
    print(f"--- {piece}\n{said}", flush=True)
    result = {
        "passed": passed,
        "last": said.strip().splitlines()[-1] if piece.startswith(("tests", "note")) else "",
        "seconds": round(time.monotonic() - start),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
    }
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{piece}.json").write_text(json.dumps(result))
    (KEPT / f"{piece}.txt").write_text(said)
    return passed


def table() -> str:
    """What is kept, as Markdown."""
    rows = ["| piece | GPU | torch | result | seconds |", "|---|---|---|---|---|"]
    for piece in PIECES:
        path = KEPT / f"{piece}.json"
        if path.exists():
            r = json.loads(path.read_text())
            verdict = ("passed" if r["passed"] else "FAILED") + (f": {r['last']}" * bool(r["last"]))
            rows.append(f"| {piece} | {r['gpu']} | {r['torch']} | {verdict} | {r['seconds']} |")
    return "\n".join(rows)


def write_into(readme: str, rows: str) -> str:
    """The README with this table between its two marks; as it was where it has none."""
    before, first, rest = readme.partition(MARKS[0])
    _, last, after = rest.partition(MARKS[1])
    return f"{before}{first}\n{rows}\n{last}{after}" if first and last else readme


def main() -> None:
    wanted = sys.argv[1:] or list(PIECES)
    if unknown := set(wanted) - set(PIECES):
        raise SystemExit(f"There is no piece {', '.join(unknown)}; there are {', '.join(PIECES)}.")
    if mha_lesson.device.type != "cuda":
        raise SystemExit(
            "Nothing was tested on a GPU: there is none, or this PyTorch is built without CUDA or "
            f"without kernels for it, or MHA_LESSON_DEVICE chose {mha_lesson.device.type}."
        )
    failed = [piece for piece in wanted if not run(piece)]
    readme = ROOT / "README.md"
    readme.write_text(write_into(readme.read_text(encoding="utf-8"), table()), encoding="utf-8")
    print(table())
    raise SystemExit(f"Failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
