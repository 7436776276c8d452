"""No notebook passes by luck: run under another default seed, each gives the stored outputs.

    PYTHONPATH=…/tests/luck MHA_LESSON_SEED=7 pytest --nbval …

The folder beside this file names `install` as an entry point of torch.backends, which
`import torch` calls. In the kernel of a notebook PyTorch's, NumPy's and Python's generators then
start from MHA_LESSON_SEED; `make test` chooses one at random.
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
