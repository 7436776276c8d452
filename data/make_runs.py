"""Writes runs.safetensors: what notebooks 07 and 10 to 13 have trained beforehand.

    python data/make_runs.py

All plans, with their seeds, stand in `mha_course/collection/runs.py`. On one idle core it takes
some twenty minutes. Training magnifies the last digits, so another processor or another PyTorch
writes other bytes: `tests/collection/test_runs.py` makes it anew and compares what the notebooks
say.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from mha_course.collection.runs import all_tensors

FILE = Path(__file__).parent / "runs.safetensors"


def main(path: Path = FILE) -> None:
    torch.set_num_threads(1)
    made = {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()}
    path.write_bytes(save(all_tensors(), {"made with": json.dumps(made)}))


if __name__ == "__main__":
    main()
