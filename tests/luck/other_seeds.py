"""No notebook passes by luck: run under another default seed, each gives the stored outputs.

    PYTHONPATH=…/tests/luck MHA_LESSON_SEED=7 pytest --nbval …     `make test-notebooks`, any seed
    python tests/luck/other_seeds.py build/luck                   which cells drew unseeded numbers

The folder beside this file names `install` as an entry point of torch.backends, which
`import torch` calls. In the kernel of a notebook PyTorch's, NumPy's and Python's generators then
start from MHA_LESSON_SEED. With MHA_LESSON_LUCK=folder every kernel also notes there what its
cells left the generators in: a cell that moves one, and leaves it elsewhere under another seed, has
drawn numbers that nobody seeded. A draw inside `fork_rng` leaves no trace but its output.
"""

import hashlib
import json
import os
import pickle
import random
import sys
from collections import defaultdict
from pathlib import Path


def states() -> dict[str, str]:
    import numpy as np
    import torch

    found = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": pickle.dumps(np.random.get_state()),
        "random": pickle.dumps(random.getstate()),
    }
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in found.items()}


def install() -> None:
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    if (shell := get_ipython()) is None:
        return
    import numpy as np
    import torch

    seed = int(os.environ.get("MHA_LESSON_SEED") or 0)
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    if folder := os.environ.get("MHA_LESSON_LUCK"):
        _note_cells(shell, Path(folder) / f"{seed}-{os.getpid()}.jsonl")


def _note_cells(shell, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = states()

    def start(_) -> None:
        nonlocal before
        before = states()

    def end(result) -> None:
        after = states()
        moved = {name: state for name, state in after.items() if state != before[name]}
        line = json.dumps({"cell": result.info.raw_cell, "moved": moved})
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    shell.events.register("pre_run_cell", start)
    shell.events.register("post_run_cell", end)


def unseeded(folder: Path) -> dict[str, set[str]]:
    """Source of a cell -> the generators that it moved to different places under two seeds."""
    left: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in folder.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            noted = json.loads(line)
            for name, state in noted["moved"].items():
                left[noted["cell"], name].add(state)
    found: dict[str, set[str]] = defaultdict(set)
    for (cell, name), ends in left.items():
        if len(ends) > 1:
            found[cell].add(name)
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    noted = list(folder.glob("*.jsonl"))
    if len({path.name.split("-")[0] for path in noted}) < 2:
        raise SystemExit(f"{folder} holds no runs under two seeds.")
    found, n = unseeded(folder), 0
    for path in sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if source in found:
                n += 1
                kinds = ", ".join(found[source])
                print(f"{path.name}, cell {cell['id']}: unseeded draws ({kinds})")
    print(f"{n} cells with unseeded draws, {len(noted)} kernels looked at.")
    raise SystemExit(bool(n))


if __name__ == "__main__":
    main()
