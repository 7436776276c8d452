"""Where the course computes, and with how many threads."""

import os
import sys

import torch

# CUDA or the CPU: Apple's MPS has no float64, in which the notebooks compare.
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def use_one_thread_in_a_kernel() -> None:
    """One CPU thread in a Jupyter kernel, so that thirty learners can share one machine.

    Anyone who asks for threads gets them: by `OMP_NUM_THREADS` before the kernel starts, or by
    `torch.set_num_threads` after the import. Scripts and libraries are left alone.
    """
    if "ipykernel" in sys.modules and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
