"""No notebook passes by luck: run under another default seed, each gives the stored outputs.

    PYTHONPATH=…/tests/luck MHA_LESSON_SEED=7 pytest --nbval …

The folder beside this file names `install` as an entry point of torch.backends, which
`import torch` calls. In the kernel of a notebook PyTorch's, NumPy's and Python's generators then
start from MHA_LESSON_SEED; `make test` chooses one at random. MHA_LESSON_SHIFT is added to every
seed that a cell or the course asks for itself: `tests/house/test_claims.py` reads the verdicts.
"""

import os
import random
import sys


def install() -> None:
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    if get_ipython() is None:
        return
    import numpy as np
    import torch

    seed = int(os.environ.get("MHA_LESSON_SEED") or 0)
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    shift = int(os.environ.get("MHA_LESSON_SHIFT") or 0)

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(seed + shift)

    if shift:
        as_asked, torch.Generator = torch.manual_seed, Generator
        torch.manual_seed = lambda seed: as_asked(seed + shift)
