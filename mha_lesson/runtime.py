"""Where the course computes, and with how many threads."""

import gc
import os
import re
import sys
import warnings

import torch


def choose_device() -> torch.device:
    """What MHA_LESSON_DEVICE names; else CUDA where it works; else the CPU.

    Never Apple's MPS by itself: it has no float64, in which the notebooks compare.
    """
    if wanted := os.environ.get("MHA_LESSON_DEVICE", "").strip():
        try:
            torch.empty(0, device=wanted)
        except (RuntimeError, AssertionError) as error:  # the second from a build without CUDA
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"MHA_LESSON_DEVICE must name a device of this machine, such as cpu or cuda; "
                f"got {wanted!r} ({reason})."
            ) from None
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() and _build_supports_gpu() else "cpu")


def _build_supports_gpu() -> bool:
    """Whether this build of PyTorch has kernels for this GPU: newer builds leave out old ones.

    An entry sm_XY runs on GPUs X.Y and later ones of the same X, compute_XY on all from X.Y on.
    With the suffix f either runs on the same X only, and with a, on X.Y only.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of such a card; the answer says it, too
        try:
            card, built = torch.cuda.get_device_capability(), torch.cuda.get_arch_list()
        except RuntimeError:  # no driver that works
            return False
    for entry in built:
        if found := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", entry):
            kind, major, minor, only = found.groups()
            first = int(major), int(minor)
            same = (kind == "compute" and not only) or first[0] == card[0]
            if first == card or (same and first <= card and only != "a"):
                return True
    return False


device = choose_device()


def configure_kernel() -> None:
    """A Jupyter kernel computes with one CPU thread, so that thirty learners can share one machine.

    Anyone who asks for threads gets them: by `OMP_NUM_THREADS` before the kernel starts, or by
    `torch.set_num_threads` after the import. The garbage collector skips what the imports made,
    which stays anyway. Nothing changes in scripts and libraries.
    """
    if "ipykernel" not in sys.modules:
        return
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    gc.freeze()
